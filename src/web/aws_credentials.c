#include "web/aws_credentials.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/doc.h"
#include "base/log.h"
#include "web/renewal.h"
#include "web/tape.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

static const int64_t renew_before_ms = 15 * 60000;

struct tm_aws_credentials {
    struct tm_env *env;
    struct tm_renewal renewal; /* with its lock: all that follows */
    bool known;
    bool doubted;
    struct tm_aws_keys keys;
    char source[256];
};

void tm_aws_keys__clear(struct tm_aws_keys *keys)
{
    OPENSSL_cleanse(keys, sizeof *keys);
}

/* ---- what services answer ---- */

static bool take(const json_t *root, const char *name, char *out, size_t room)
{
    const char *text = json_string_value(json_object_get(root, name));
    if (text == NULL || text[0] == '\0' || strlen(text) >= room || strpbrk(text, "\r\n") != NULL) return false;
    (void)snprintf(out, room, "%s", text);
    return true;
}

int tm_aws_keys__read(const char *from, const char *text, size_t length, struct tm_aws_keys *out, struct tm_error *e)
{
    json_t *root = NULL;
    struct tm_aws_keys keys = {.ends_ms = INT64_MAX};
    char ends[64];
    struct tm_error own; /* what is wrong in the text may show some of it */
    int rc = tm_json_load(from, text, length, &root, &own);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (rc != 0) return tm_error_set(e, TM_EINPUT, "%s: not credentials in JSON", from);
    bool good = take(root, "AccessKeyId", keys.id, sizeof keys.id) &&
                take(root, "SecretAccessKey", keys.secret, sizeof keys.secret);
    if (good && !take(root, "SessionToken", keys.token, sizeof keys.token))
        (void)take(root, "Token", keys.token, sizeof keys.token);
    if (good && take(root, "Expiration", ends, sizeof ends))
        good = tm_calendar_parse(ends, strlen(ends), &keys.ends_ms);
    json_decref(root);
    if (good) *out = keys;
    tm_aws_keys__clear(&keys);
    if (good) return 0;
    return tm_error_set(e, TM_EINPUT, "%s: AccessKeyId and SecretAccessKey, and a good Expiration, are expected", from);
}

/* ---- the chain ---- */

int tm_aws_keys__of_environment(struct tm_env *env, struct tm_aws_keys *out, struct tm_error *e)
{
    const char *id = env->variable(env, "AWS_ACCESS_KEY_ID");
    const char *secret = env->variable(env, "AWS_SECRET_ACCESS_KEY");
    const char *token = env->variable(env, "AWS_SESSION_TOKEN");
    if (id == NULL || id[0] == '\0') return tm_error_set(e, TM_ENOTFOUND, "AWS_ACCESS_KEY_ID is not set");
    if (secret == NULL || secret[0] == '\0')
        return tm_error_set(e, TM_EINPUT, "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not");
    if (token == NULL) token = "";
    if (strlen(id) >= sizeof out->id || strlen(secret) >= sizeof out->secret || strlen(token) >= sizeof out->token)
        return tm_error_set(e, TM_EINPUT, "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_SESSION_TOKEN is too long");
    *out = (struct tm_aws_keys){.ends_ms = INT64_MAX};
    (void)snprintf(out->id, sizeof out->id, "%s", id);
    (void)snprintf(out->secret, sizeof out->secret, "%s", secret);
    (void)snprintf(out->token, sizeof out->token, "%s", token);
    return 0;
}

static int find(struct tm_env *env, struct tm_aws_keys *out, char source[256], struct tm_error *e)
{
    if (tm_tape__is_replayed()) { /* nobody is asked, so nobody checks them */
        (void)snprintf(source, 256, "a recording");
        *out = (struct tm_aws_keys){.ends_ms = INT64_MAX, .id = "REPLAYED", .secret = "replayed"};
        return 0;
    }
    (void)snprintf(source, 256, "the environment");
    int rc = tm_aws_keys__of_environment(env, out, e);
    if (rc == -(int)TM_ENOTFOUND) rc = tm_aws_keys__of_profile(env, out, source, e);
    if (rc == -(int)TM_ENOTFOUND) {
        (void)snprintf(source, 256, "the container");
        rc = tm_aws_keys__of_container(env, out, e);
    }
    if (rc == -(int)TM_ENOTFOUND) {
        (void)snprintf(source, 256, "the instance's role");
        rc = tm_aws_keys__of_instance(env, out, e);
    }
    if (rc == -(int)TM_ENOTFOUND)
        return tm_error_set(e, TM_ENOTFOUND,
                            "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws "
                            "configure` (or `aws sso login`), or give the instance a role");
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "AWS credentials");
}

/* With the lock. Those that last longer are kept: a service may give the same again, or a slow one older ones. */
static void keep(struct tm_aws_credentials *c, const struct tm_aws_keys *keys, const char *source)
{
    if (c->known && !c->doubted && keys->ends_ms < c->keys.ends_ms) return;
    bool same = c->known && keys->ends_ms == c->keys.ends_ms && strcmp(keys->id, c->keys.id) == 0;
    c->keys = *keys;
    c->known = true;
    c->doubted = false;
    (void)snprintf(c->source, sizeof c->source, "%s", source);
    if (!same) tm_renewal__got(&c->renewal);
}

static int ask(struct tm_aws_credentials *c, struct tm_aws_keys *out, char source[256], struct tm_error *e)
{
    *out = (struct tm_aws_keys){.ends_ms = INT64_MAX};
    source[0] = '\0';
    int rc = find(c->env, out, source, e);
    if (rc == 0 && out->ends_ms <= c->env->now_ms(c->env))
        rc = tm_error_set(e, TM_EINPUT, "AWS credentials: those of %s have ended; log in again", source);
    return rc;
}

static bool is_good(const struct tm_aws_credentials *c)
{
    return c->known && !c->doubted && tm_renewal__is_good(&c->renewal, c->keys.ends_ms);
}

/* By a thread. */
static int ask_beside(void *context, struct tm_error *e)
{
    struct tm_aws_credentials *c = context;
    struct tm_aws_keys keys;
    char source[256];
    int rc = ask(c, &keys, source, e);
    (void)pthread_mutex_lock(&c->renewal.lock);
    if (rc == 0) keep(c, &keys, source);
    bool good = is_good(c);
    (void)pthread_mutex_unlock(&c->renewal.lock);
    tm_aws_keys__clear(&keys);
    if (rc != 0 && good) tm_log(TM_LOG_WARN, "%s; the old ones are still good", e->text);
    return rc;
}

static int find_good(struct tm_aws_credentials *c, bool waits, struct tm_aws_keys *out, struct tm_error *e)
{
    int rc = 0;
    (void)pthread_mutex_lock(&c->renewal.lock);
    if (is_good(c))
        tm_renewal__refresh(&c->renewal, c->keys.ends_ms, renew_before_ms);
    else
        rc = waits ? tm_renewal__await(&c->renewal, e) : tm_renewal__look(&c->renewal, e);
    if (rc == 0) *out = c->keys;
    (void)pthread_mutex_unlock(&c->renewal.lock);
    return rc;
}

int tm_aws_credentials__get(struct tm_aws_credentials *c, struct tm_aws_keys *out, struct tm_error *e)
{
    return find_good(c, true, out, e);
}

int tm_aws_credentials__look(struct tm_aws_credentials *c, struct tm_aws_keys *out, struct tm_error *e)
{
    return find_good(c, false, out, e);
}

void tm_aws_credentials__doubt(struct tm_aws_credentials *c)
{
    (void)pthread_mutex_lock(&c->renewal.lock);
    c->doubted = true;
    tm_renewal__doubt(&c->renewal);
    (void)pthread_mutex_unlock(&c->renewal.lock);
}

void tm_aws_credentials__source(struct tm_aws_credentials *c, char out[256])
{
    (void)pthread_mutex_lock(&c->renewal.lock);
    (void)snprintf(out, 256, "%s", c->source);
    (void)pthread_mutex_unlock(&c->renewal.lock);
}

int tm_aws_credentials__create(struct tm_env *env, struct tm_aws_credentials **out, struct tm_error *e)
{
    assert(env != NULL);
    struct tm_aws_credentials *c = tm_calloc(1, sizeof *c);
    if (c == NULL) return tm_error_nomem(e);
    c->env = env;
    tm_renewal__init(&c->renewal, env, ask_beside, c);
    *out = c;
    return 0;
}

void tm_aws_credentials__destroy(struct tm_aws_credentials *c)
{
    if (c == NULL) return;
    tm_renewal__deinit(&c->renewal);
    tm_aws_keys__clear(&c->keys);
    tm_free(c);
}
