/* A role that is assumed at AWS's token service (STS): by somebody's keys, or by the token of an identity provider,
 * which needs no keys. */
#include "base/alloc.h"
#include "base/calendar.h"
#include "web/aws.h"
#include "web/aws_credentials.h"
#include "web/aws_endpoint.h"
#include "web/plain.h"
#include "web/xml.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

enum { STS_MS = 20000, FORM_MAX = 65536, HOST_MAX = 256, REGION_MAX = 64 };

struct place {
    char origin[TM_AWS_ENDPOINT_MAX + 16];
    char host[HOST_MAX];
    char region[REGION_MAX];
};

/* ---- where ---- */

/* Nobody named a region: the one that answers for the whole partition. */
static const char *region_of_partition(const char *arn)
{
    if (strncmp(arn, "arn:aws-cn:", 11) == 0) return "cn-north-1";
    return strncmp(arn, "arn:aws-us-gov:", 15) == 0 ? "us-gov-west-1" : "us-east-1";
}

static int find_place(struct tm_env *env, const struct tm_aws_role *role, struct place *out, struct tm_error *e)
{
    struct tm_aws_endpoints endpoints;
    (void)snprintf(out->region, sizeof out->region, "%s",
                   role->region[0] != '\0' ? role->region : region_of_partition(role->arn));
    int rc = tm_aws_endpoints__read(&endpoints, env, e);
    if (rc != 0) return rc;
    const char *given = tm_aws_endpoints__find(&endpoints, env, "sts");
    if (given == NULL) {
        (void)snprintf(out->host, sizeof out->host, "sts.%s.amazonaws.com%s", out->region,
                       strncmp(out->region, "cn-", 3) == 0 ? ".cn" : "");
        (void)snprintf(out->origin, sizeof out->origin, "https://%s", out->host);
        return 0;
    }
    const char *host = strstr(given, "://");
    size_t length = host != NULL ? strcspn(host + 3, "/") : 0;
    if (length == 0 || length >= sizeof out->host)
        return tm_error_set(e, TM_EINPUT, "%.200s: not an endpoint; write it as https://HOST", given);
    (void)snprintf(out->host, sizeof out->host, "%.*s", (int)length, host + 3);
    (void)snprintf(out->origin, sizeof out->origin, "%.*s", (int)((size_t)(host + 3 - given) + length), given);
    return 0;
}

/* ---- what is asked ---- */

static void put(struct tm_text *out, const char *name, const char *value)
{
    if (value[0] == '\0') return;
    tm_text_printf(out, "&%s=", name);
    tm_percent_encode(value, false, out);
}

static int put_token(struct tm_env *env, const char *path, struct tm_text *out, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, FORM_MAX / 3);
    int rc = env->file_read(env, path, &text, e);
    if (rc == 0 && text.length > 0) {
        char *word = text.data;
        word[strcspn(word, "\r\n \t")] = '\0';
        put(out, "WebIdentityToken", word);
    }
    if (rc == 0 && (text.length == 0 || text.data[0] == '\0')) rc = tm_error_set(e, TM_EINPUT, "%s is empty", path);
    if (text.data != NULL) OPENSSL_cleanse(text.data, text.length);
    tm_text_deinit(&text);
    if (rc == 0 || rc == -(int)TM_ENOMEM) return rc;
    (void)tm_error_wrap(e, rc, "the token of the identity provider (AWS_WEB_IDENTITY_TOKEN_FILE)");
    if (e != NULL) e->code = TM_EINPUT;
    return -(int)TM_EINPUT;
}

static int print_form(struct tm_env *env, const struct tm_aws_role *role, bool by_token, struct tm_text *out,
                      struct tm_error *e)
{
    char made[40];
    (void)snprintf(made, sizeof made, "tidemill-%" PRId64, env->now_ms(env) / 1000);
    tm_text_printf(out, "Action=AssumeRole%s&Version=2011-06-15", by_token ? "WithWebIdentity" : "");
    put(out, "RoleArn", role->arn);
    put(out, "RoleSessionName", role->session[0] != '\0' ? role->session : made);
    put(out, "DurationSeconds", role->duration_s);
    if (!by_token) put(out, "ExternalId", role->external_id);
    int rc = by_token ? put_token(env, role->token_file, out, e) : 0;
    return rc == 0 ? tm_text_status(out, e) : rc;
}

/* ---- asking ---- */

static const struct tm_web_pair form_type = {"content-type", "application/x-www-form-urlencoded; charset=utf-8"};

static int print_headers(const struct place *place, const struct tm_aws_keys *by, const struct tm_text *form,
                         int64_t now_ms, struct tm_text *out, struct tm_error *e)
{
    char hash[TM_SHA256_HEX];
    struct tm_text target;
    struct tm_aws_signed to_sign = {.method = "POST",
                                    .host = place->host,
                                    .path = "/",
                                    .headers = &form_type,
                                    .header_count = 1,
                                    .payload = hash,
                                    .region = place->region,
                                    .service = "sts",
                                    .time_ms = now_ms};
    if (by == NULL) {
        tm_text_printf(out, "%s: %s\n", form_type.name, form_type.value);
        return tm_text_status(out, e);
    }
    tm_sha256_hex(form->data, form->length, hash);
    tm_text_init(&target, 64);
    int rc = tm_aws_sign(&to_sign, by, &target, out, e);
    tm_text_deinit(&target);
    return rc == 0 ? tm_text_status(out, e) : rc;
}

static int ask_once(struct tm_env *env, const struct place *place, const struct tm_aws_keys *by,
                    const struct tm_text *form, int64_t ahead_ms, struct tm_web_answer *out, struct tm_error *e)
{
    char url[TM_AWS_ENDPOINT_MAX + 32];
    struct tm_text headers;
    tm_text_init(&headers, 32768);
    (void)snprintf(url, sizeof url, "%s/", place->origin);
    int rc = print_headers(place, by, form, env->now_ms(env) + ahead_ms, &headers, e);
    if (rc == 0)
        rc = tm_web_plain__ask(env, "POST", url, tm_text_string(&headers), tm_text_string(form), STS_MS, out, e);
    if (headers.data != NULL) OPENSSL_cleanse(headers.data, headers.length);
    tm_text_deinit(&headers);
    return rc;
}

/* A signature holds the time: where the service's clock is another, by that. */
static int ask(struct tm_env *env, const struct place *place, const struct tm_aws_keys *by, const struct tm_text *form,
               struct tm_web_answer *out, struct tm_error *e)
{
    _Atomic int64_t ahead_ms = 0;
    int rc = ask_once(env, place, by, form, 0, out, e);
    bool refused = rc == 0 && (out->status == 400 || out->status == 403);
    if (refused && by != NULL && tm_web__set_clock(env, out, &ahead_ms)) {
        tm_web_answer_deinit(out);
        rc = ask_once(env, place, by, form, ahead_ms, out, e);
    }
    return rc;
}

/* ---- what is answered ---- */

static bool take(const struct tm_xml *from, const char *name, char *out, size_t room)
{
    const char *text = tm_xml_text(from, name);
    if (text[0] == '\0' || strlen(text) >= room || strpbrk(text, "\r\n") != NULL) return false;
    (void)snprintf(out, room, "%s", text);
    return true;
}

int tm_aws_keys__read_role(const char *text, size_t length, struct tm_aws_keys *out, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    struct tm_aws_keys keys = {.ends_ms = 0};
    struct tm_error own; /* what is wrong in the text may show some of it */
    tm_arena_init(&arena, 1 << 20);
    int rc = tm_xml_read(text, length, &arena, &root, &own);
    const struct tm_xml *found = rc == 0 ? tm_xml__anywhere(root, "Credentials") : NULL;
    const char *ends = tm_xml_text(found, "Expiration");
    bool good = found != NULL && take(found, "AccessKeyId", keys.id, sizeof keys.id) &&
                take(found, "SecretAccessKey", keys.secret, sizeof keys.secret) &&
                take(found, "SessionToken", keys.token, sizeof keys.token) &&
                tm_calendar_parse(ends, strlen(ends), &keys.ends_ms);
    tm_arena_deinit(&arena);
    if (good) *out = keys;
    tm_aws_keys__clear(&keys);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    return good ? 0 : tm_error_set(e, TM_EINPUT, "no credentials in the token service's answer");
}

static int refused(const struct tm_aws_role *role, const struct tm_web_answer *answer, bool by_token,
                   struct tm_error *e)
{
    struct tm_aws_refusal why;
    int rc = tm_aws_refusal(answer, &why, e);
    if (rc != 0) return rc;
    if (why.code[0] == '\0') (void)snprintf(why.code, sizeof why.code, "status %d", answer->status);
    return tm_error_set(e, TM_EINPUT, "the role %s is not given: %s: %s; %s", role->arn, why.code, why.message,
                        by_token ? "its trust policy names the identity provider and who may have it"
                                 : "its trust policy and sts:AssumeRole of who asks must both allow it");
}

int tm_aws_keys__of_role(struct tm_env *env, const struct tm_aws_role *role, const struct tm_aws_keys *by,
                         struct tm_aws_keys *out, struct tm_error *e)
{
    struct tm_text form;
    struct place place;
    struct tm_web_answer answer;
    int rc = find_place(env, role, &place, e);
    if (rc != 0) return rc;
    tm_text_init(&form, FORM_MAX);
    rc = print_form(env, role, by == NULL, &form, e);
    if (rc == 0) rc = ask(env, &place, by, &form, &answer, e);
    if (form.data != NULL) OPENSSL_cleanse(form.data, form.length);
    tm_text_deinit(&form);
    if (rc != 0) return tm_error_wrap(e, rc, "assuming the role %s", role->arn);
    if (answer.status == 200)
        rc = tm_aws_keys__read_role(tm_text_string(&answer.body), answer.body.length, out, e);
    else
        rc = refused(role, &answer, by == NULL, e);
    if (answer.body.data != NULL) OPENSSL_cleanse(answer.body.data, answer.body.length);
    tm_web_answer_deinit(&answer);
    return rc;
}
