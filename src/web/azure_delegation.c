#include "web/azure_delegation.h"

#include "base/calendar.h"
#include "base/log.h"
#include "web/tape.h"
#include "web/xml.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ASK_MS = 20000, TRIES = 4, ARENA_MAX = 1 << 20, BODY_BYTES = 256 };

static const int64_t hour_ms = 3600000;
static const int64_t week_s = 7 * 24 * 3600 - 60; /* the most that the service gives */
static const int64_t early_s = 300;               /* clocks differ */

static bool take(const struct tm_xml *root, const char *name, char *out, size_t room)
{
    const char *text = tm_xml_text(root, name);
    size_t length = strlen(text);
    if (length == 0 || length >= room || strpbrk(text, "\r\n") != NULL) return false;
    memcpy(out, text, length + 1);
    return true;
}

static bool take_key(const char *text, struct tm_azure_delegated *out)
{
    unsigned char bytes[TM_AZURE_DELEGATED_MAX + 3];
    size_t length = strlen(text);
    if (length == 0 || length % 4 != 0 || length / 4 * 3 > TM_AZURE_DELEGATED_MAX) return false;
    int size = EVP_DecodeBlock(bytes, (const unsigned char *)text, (int)length);
    if (size <= 0) return false;
    out->key_length = (size_t)size - (text[length - 1] != '=' ? 0 : text[length - 2] == '=' ? 2 : 1);
    memcpy(out->key, bytes, out->key_length);
    OPENSSL_cleanse(bytes, sizeof bytes);
    return true;
}

int tm_azure_delegation__read(const char *text, size_t length, struct tm_azure_delegated *out, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    struct tm_azure_delegated key = {.key_length = 0};
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_xml_read(text, length, &arena, &root, NULL); /* its words may show some of the key */
    bool good = rc == 0 && take(root, "SignedOid", key.object, sizeof key.object) &&
                take(root, "SignedTid", key.tenant, sizeof key.tenant) &&
                take(root, "SignedStart", key.start, sizeof key.start) &&
                take(root, "SignedExpiry", key.expiry, sizeof key.expiry) &&
                take(root, "SignedService", key.service, sizeof key.service) &&
                take(root, "SignedVersion", key.version, sizeof key.version) &&
                tm_calendar_parse(key.expiry, strlen(key.expiry), &key.ends_ms) &&
                take_key(tm_xml_text(root, "Value"), &key);
    tm_arena_deinit(&arena);
    if (good) *out = key;
    OPENSSL_cleanse(&key, sizeof key);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    return good ? 0 : tm_error_set(e, TM_EINPUT, "the service gives no user delegation key");
}

static void print_time(int64_t seconds, char out[40])
{
    struct tm tm;
    time_t at = (time_t)seconds;
    (void)gmtime_r(&at, &tm);
    (void)strftime(out, 40, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int ask(const struct tm_azure_delegation *d, struct tm_azure_delegated *out, struct tm_error *e)
{
    struct tm_web *web = NULL;
    struct tm_web_answer answer;
    char start[40], expiry[40], body[BODY_BYTES];
    int64_t now_s = tm_azure__now_ms(d->azure) / 1000;
    if (tm_tape__is_replayed()) { /* nobody checks it */
        *out = (struct tm_azure_delegated){.key = "replayed", .key_length = 8, .ends_ms = now_s * 1000 + week_s * 1000};
        return 0;
    }
    print_time(now_s - early_s, start);
    print_time(now_s - early_s + week_s, expiry);
    int length = snprintf(body, sizeof body,
                          "<?xml version=\"1.0\" encoding=\"utf-8\"?><KeyInfo><Start>%s</Start><Expiry>%s</Expiry>"
                          "</KeyInfo>",
                          start, expiry);
    struct tm_azure_request request = {.azure = d->azure,
                                       .method = "POST",
                                       .path = "/",
                                       .query = {{"restype", "service"}, {"comp", "userdelegationkey"}},
                                       .query_count = 2,
                                       .body = body,
                                       .length = (size_t)length,
                                       .deadline_ms = ASK_MS,
                                       .tries_max = TRIES};
    int rc = tm_web_create(d->env, &web, e);
    if (rc == 0) rc = tm_azure_ask(web, &request, &answer, e);
    tm_web_destroy(web);
    if (rc != 0) return rc;
    if (answer.status == 200)
        rc = tm_azure_delegation__read(tm_text_string(&answer.body), answer.body.length, out, e);
    else
        rc = tm_error_set(e, TM_EINPUT, "the service answers %d%s", answer.status,
                          answer.status == 403   ? ": give this identity the role Storage Blob Data Contributor on the "
                                                   "whole account, or set AZURE_STORAGE_KEY"
                          : answer.status == 400 ? ": is the clock of this machine right?"
                                                 : "");
    if (answer.body.data != NULL) OPENSSL_cleanse(answer.body.data, answer.body.length);
    tm_web_answer_deinit(&answer);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "a key for URLs by which VMs fetch single blobs");
}

/* With the lock. */
static void keep(struct tm_azure_delegation *d, const struct tm_azure_delegated *key)
{
    d->key = *key;
    tm_renewal__got(&d->renewal);
}

static bool is_good(const struct tm_azure_delegation *d)
{
    return d->key.key_length > 0 && tm_renewal__is_good(&d->renewal, d->key.ends_ms - 24 * hour_ms);
}

static int ask_beside(void *context, struct tm_error *e)
{
    struct tm_azure_delegation *d = context;
    struct tm_azure_delegated key;
    int rc = ask(d, &key, e);
    (void)pthread_mutex_lock(&d->renewal.lock);
    if (rc == 0) keep(d, &key);
    bool good = is_good(d);
    (void)pthread_mutex_unlock(&d->renewal.lock);
    OPENSSL_cleanse(&key, sizeof key);
    if (rc != 0 && good) tm_log(TM_LOG_WARN, "%s; the old one is still good", e->text);
    return rc;
}

int tm_azure_delegation__get(struct tm_azure_delegation *d, bool waits, struct tm_azure_delegated *out,
                             struct tm_error *e)
{
    int rc = 0;
    (void)pthread_mutex_lock(&d->renewal.lock);
    if (is_good(d))
        tm_renewal__refresh(&d->renewal, d->renewal.got_ms + 2 * hour_ms, hour_ms);
    else
        rc = waits ? tm_renewal__await(&d->renewal, e) : tm_renewal__look(&d->renewal, e);
    if (rc == 0) *out = d->key;
    (void)pthread_mutex_unlock(&d->renewal.lock);
    return rc;
}

void tm_azure_delegation__init(struct tm_azure_delegation *d, struct tm_env *env, struct tm_azure *azure)
{
    *d = (struct tm_azure_delegation){.env = env, .azure = azure};
    tm_renewal__init(&d->renewal, env, ask_beside, d);
}

void tm_azure_delegation__deinit(struct tm_azure_delegation *d)
{
    tm_renewal__deinit(&d->renewal);
    OPENSSL_cleanse(d, sizeof *d);
}
