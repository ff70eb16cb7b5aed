#include "web/aws.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "web/aws_credentials.h"
#include "web/aws_endpoint.h"
#include "web/tape.h"
#include "web/xml.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { ORIGIN_BYTES = TM_AWS_ENDPOINT_MAX + 16 };

struct tm_aws {
    struct tm_env *env;
    char region[64];
    struct tm_aws_endpoints endpoints;
    struct tm_aws_credentials *credentials;
    _Atomic int64_t ahead_ms; /* of the services' clock before ours */
};

/* ---- where ---- */

static const char *set_variable(struct tm_env *env, const char *name)
{
    const char *value = env->variable(env, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool is_region(const char *text)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return length > 0 && length < 40 && text[length] == '\0';
}

static int find_region(struct tm_env *env, const char *given, const char *otherwise, char out[64], struct tm_error *e)
{
    const char *found = given;
    char of_profile[64] = "";
    char of_tape[TM_TAPE_NOTE_MAX];
    tm_tape__noted(TM_TAPE_REGION, of_tape);
    if (found == NULL) found = set_variable(env, "AWS_REGION");
    if (found == NULL) found = set_variable(env, "AWS_DEFAULT_REGION");
    if (found == NULL && of_tape[0] != '\0') found = of_tape;
    if (found == NULL) {
        int rc = tm_aws_profile__setting(env, "region", of_profile, sizeof of_profile, e);
        if (rc != 0) return rc;
        if (of_profile[0] != '\0') found = of_profile;
    }
    if (found == NULL) found = otherwise;
    if (found == NULL)
        return tm_error_set(e, TM_EINPUT,
                            "no AWS region: set AWS_REGION (for example AWS_REGION=us-east-1), or run `aws configure`");
    if (!is_region(found)) return tm_error_set(e, TM_EINPUT, "%.60s: not the name of an AWS region", found);
    (void)snprintf(out, 64, "%.63s", found);
    return 0;
}

static const char *region_of(const struct tm_aws_request *r)
{
    return r->region != NULL ? r->region : r->aws->region;
}

/* "https://HOST" of the request in `origin`, and its host alone; whether the bucket is part of the path. */
static int find_place(struct tm_aws_request *r, char origin[ORIGIN_BYTES], bool *bucket_in_path, struct tm_error *e)
{
    const char *endpoint = tm_aws_endpoints__find(&r->aws->endpoints, r->aws->env, r->service);
    const char *dot_cn = strncmp(region_of(r), "cn-", 3) == 0 ? ".cn" : "";
    *bucket_in_path = r->bucket != NULL && (endpoint != NULL || strchr(r->bucket, '.') != NULL);
    if (endpoint == NULL) {
        bool in_name = r->bucket != NULL && !*bucket_in_path;
        (void)snprintf(r->host, sizeof r->host, "%s%s%s.%s.amazonaws.com%s", in_name ? r->bucket : "",
                       in_name ? "." : "", r->service, region_of(r), dot_cn);
        (void)snprintf(origin, ORIGIN_BYTES, "https://%s", r->host);
        return 0;
    }
    const char *host = strstr(endpoint, "://");
    bool known = strncmp(endpoint, "http://", 7) == 0 || strncmp(endpoint, "https://", 8) == 0;
    size_t length = known ? strcspn(host + 3, "/") : 0;
    if (length == 0 || length >= sizeof r->host || strlen(host + 3 + length) > 1)
        return tm_error_set(e, TM_EINPUT, "%.200s: not an endpoint; write it as https://HOST or http://HOST:PORT",
                            endpoint);
    (void)snprintf(r->host, sizeof r->host, "%.*s", (int)length, host + 3);
    (void)snprintf(origin, ORIGIN_BYTES, "%.*s", (int)((size_t)(host + 3 - endpoint) + length), endpoint);
    return 0;
}

int tm_aws_origin(struct tm_aws *aws, const char *service, char out[TM_AWS_ORIGIN_MAX], struct tm_error *e)
{
    struct tm_aws_request request = {.aws = aws, .service = service};
    char origin[ORIGIN_BYTES];
    bool in_path = false;
    int rc = find_place(&request, origin, &in_path, e);
    if (rc == 0) (void)snprintf(out, TM_AWS_ORIGIN_MAX, "%.*s", TM_AWS_ORIGIN_MAX - 1, origin);
    return rc;
}

/* ---- requests ---- */

static int make_path(const struct tm_aws_request *r, bool bucket_in_path, struct tm_text *out, struct tm_error *e)
{
    if (bucket_in_path) tm_text_printf(out, "/%s", r->bucket);
    tm_text_puts(out, r->path);
    return tm_text_status(out, e);
}

/* Signs it: for headers, or for a URL that is good for so many seconds. */
static int sign(struct tm_aws_request *r, int64_t seconds, struct tm_text *url, struct tm_text *headers,
                struct tm_error *e)
{
    struct tm_aws *aws = r->aws;
    struct tm_aws_keys keys = {.ends_ms = 0};
    char origin[ORIGIN_BYTES];
    struct tm_text path;
    bool in_path = false;
    tm_text_init(&path, 8192);
    int rc = find_place(r, origin, &in_path, e);
    if (rc == 0) rc = make_path(r, in_path, &path, e);
    if (rc == 0) rc = tm_aws_credentials__look(aws->credentials, &keys, e);
    if (rc == 0) {
        struct tm_aws_signed to_sign = {.method = r->method,
                                        .host = r->host,
                                        .path = tm_text_string(&path),
                                        .query = r->query,
                                        .query_count = r->query_count,
                                        .headers = r->headers,
                                        .header_count = r->header_count,
                                        .payload = r->unsigned_body ? TM_AWS_UNSIGNED : r->hash,
                                        .payload_header = strcmp(r->service, "s3") == 0,
                                        .region = region_of(r),
                                        .service = r->service,
                                        .time_ms = aws->env->now_ms(aws->env) + atomic_load(&aws->ahead_ms)};
        tm_text_puts(url, origin);
        rc = headers != NULL ? tm_aws_sign(&to_sign, &keys, url, headers, e)
                             : tm_aws_presign(&to_sign, &keys, seconds, url, e);
    }
    tm_aws_keys__clear(&keys);
    tm_text_deinit(&path);
    return rc;
}

static int prepare(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    return sign(context, 0, url, headers, e);
}

int tm_aws_url(struct tm_aws_request *request, int64_t seconds, struct tm_text *out, struct tm_error *e)
{
    return sign(request, seconds, out, NULL, e);
}

int tm_aws_await_keys(struct tm_aws *aws, struct tm_error *e)
{
    struct tm_aws_keys keys = {.ends_ms = 0};
    int rc = tm_aws_credentials__get(aws->credentials, &keys, e);
    tm_aws_keys__clear(&keys);
    return rc;
}

static bool is_any(const char *code, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strcmp(code, *list) == 0) return true;
    return false;
}

/* A refusal that says nothing: HEAD has no body for the code. */
static bool is_mute(const struct tm_web_answer *answer)
{
    return answer->body.length == 0 && (answer->status == 400 || answer->status == 403);
}

/* Refusals that mend themselves: throttling under any status, a clock that differs, credentials that have ended. One
 * that does not say why is taken for each of the last two, once. */
static bool again(void *context, const struct tm_web_answer *answer)
{
    static const char *const wait[] = {"RequestLimitExceeded",
                                       "Throttling",
                                       "ThrottlingException",
                                       "EC2ThrottledException",
                                       "SlowDown",
                                       "RequestTimeout",
                                       "RequestTimeoutException",
                                       "OperationAborted",
                                       "ConditionalRequestConflict",
                                       "Unavailable",
                                       "InternalError",
                                       NULL};
    static const char *const skewed[] = {"RequestTimeTooSkewed", "RequestExpired",     "SignatureDoesNotMatch",
                                         "AuthFailure",          "RequestInTheFuture", NULL};
    static const char *const ended[] = {"ExpiredToken", "ExpiredTokenException", "RequestExpired",
                                        "TokenRefreshRequired", NULL};
    struct tm_aws_request *r = context;
    struct tm_aws *aws = r->aws;
    struct tm_aws_refusal refusal;
    if (tm_aws_refusal(answer, &refusal, NULL) != 0) return false;
    bool mute = is_mute(answer);
    if (is_any(refusal.code, wait)) return true;
    if ((mute || is_any(refusal.code, skewed)) && !r->clock_set && answer->date_ms > 0) {
        r->clock_set = true;
        if (tm_web__set_clock(aws->env, answer, &aws->ahead_ms)) return true;
    }
    if ((mute || is_any(refusal.code, ended)) && !r->renewed) {
        r->renewed = true;
        tm_aws_credentials__doubt(aws->credentials);
        return true;
    }
    return false;
}

int tm_aws_begin(struct tm_web *web, struct tm_aws_request *r, struct tm_web_call **out, struct tm_error *e)
{
    assert(r->aws != NULL && r->path[0] == '/' && r->query_count <= 8 && r->header_count <= 8);
    if (!r->unsigned_body) tm_sha256_hex(r->body != NULL ? r->body : "", r->length, r->hash);
    struct tm_web_request request = {.method = r->method,
                                     .body = r->body,
                                     .length = r->length,
                                     .into = r->into,
                                     .room = r->room,
                                     .deadline_ms = r->deadline_ms,
                                     .silence_ms = r->silence_ms,
                                     .tries_max = r->tries_max,
                                     .prepare = prepare,
                                     .again = again,
                                     .context = r};
    return tm_web_begin(web, &request, out, e);
}

int tm_aws_ask(struct tm_web *web, struct tm_aws_request *r, struct tm_web_answer *out, struct tm_error *e)
{
    struct tm_web_call *call = NULL;
    int rc = tm_aws_begin(web, r, &call, e);
    if (rc != 0) return rc;
    rc = tm_web__finish(web, call, out, e);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "%s", r->host[0] != '\0' ? r->host : r->service);
}

/* ---- answers ---- */

int tm_aws_refusal(const struct tm_web_answer *answer, struct tm_aws_refusal *out, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    *out = (struct tm_aws_refusal){.code = ""};
    if (answer->body.length == 0) return 0;
    tm_arena_init(&arena, 8 << 20);
    int rc = tm_xml_read(answer->body.data, answer->body.length, &arena, &root, e);
    if (rc == 0) {
        const struct tm_xml *code = tm_xml__anywhere(root, "Code");
        const struct tm_xml *message = tm_xml__anywhere(root, "Message");
        (void)snprintf(out->code, sizeof out->code, "%s", code != NULL ? code->text : "");
        (void)snprintf(out->message, sizeof out->message, "%s", message != NULL ? message->text : "");
    }
    tm_arena_deinit(&arena);
    return rc == -(int)TM_ENOMEM ? rc : 0;
}

/* ---- the account ---- */

static int create(struct tm_env *env, const char *region, const char *otherwise, struct tm_aws **out,
                  struct tm_error *e)
{
    assert(env != NULL);
    struct tm_aws *aws = tm_calloc(1, sizeof *aws);
    if (aws == NULL) return tm_error_nomem(e);
    aws->env = env;
    int rc = find_region(env, region, otherwise, aws->region, e);
    if (rc == 0) rc = tm_aws_endpoints__read(&aws->endpoints, env, e);
    if (rc == 0) rc = tm_aws_credentials__create(env, &aws->credentials, e);
    if (rc != 0) {
        tm_aws_destroy(aws);
        return rc;
    }
    tm_tape__note(TM_TAPE_REGION, aws->region);
    *out = aws;
    return 0;
}

int tm_aws_create(struct tm_env *env, const char *region, struct tm_aws **out, struct tm_error *e)
{
    return create(env, region, NULL, out, e);
}

int tm_aws_create_anywhere(struct tm_env *env, struct tm_aws **out, struct tm_error *e)
{
    return create(env, NULL, "us-east-1", out, e);
}

void tm_aws_destroy(struct tm_aws *aws)
{
    if (aws == NULL) return;
    tm_aws_credentials__destroy(aws->credentials);
    tm_free(aws);
}

const char *tm_aws_region(const struct tm_aws *aws)
{
    return aws->region;
}
