#include "store/s3.h"

#include "base/alloc.h"
#include "web/xml.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { WEBS_MAX = 64, SMALL_MS = 60000, TRIES = 8, ARENA_MAX = 64 << 20, PAGES_MAX = 100000 };

struct tm_s3 {
    struct tm_env *env;
    struct tm_aws *aws;
    char bucket[TM_S3_BUCKET_MAX];
    char prefix[TM_S3_PREFIX_MAX]; /* without slashes at its ends; "": none */
    pthread_mutex_t lock;
    struct tm_web *idle[WEBS_MAX]; /* with the lock */
    size_t idle_count;
};

/* ---- places ---- */

static bool is_bucket(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_");
    return name[length] == '\0' && length >= 3 && length < TM_S3_BUCKET_MAX && name[0] != '.' && name[0] != '-';
}

int tm_s3__place(const char *place, char bucket[TM_S3_BUCKET_MAX], char prefix[TM_S3_PREFIX_MAX], struct tm_error *e)
{
    static const char scheme[] = "s3://";
    if (strncmp(place, scheme, sizeof scheme - 1) != 0)
        return tm_error_set(e, TM_EUSAGE, "%.200s: not of the form s3://BUCKET/PREFIX", place);
    const char *name = place + sizeof scheme - 1;
    size_t length = strcspn(name, "/");
    const char *rest = name + length;
    while (*rest == '/')
        rest++;
    size_t rest_length = strlen(rest);
    while (rest_length > 0 && rest[rest_length - 1] == '/')
        rest_length--;
    if (length < TM_S3_BUCKET_MAX) (void)snprintf(bucket, TM_S3_BUCKET_MAX, "%.*s", (int)length, name);
    if (length >= TM_S3_BUCKET_MAX || !is_bucket(bucket))
        return tm_error_set(e, TM_EUSAGE,
                            "%.200s: the name of a bucket has 3 to 63 small letters, digits, dots and hyphens", place);
    if (rest_length >= TM_S3_PREFIX_MAX)
        return tm_error_set(e, TM_EUSAGE, "%.60s...: a prefix has at most %d bytes", place, TM_S3_PREFIX_MAX - 1);
    (void)snprintf(prefix, TM_S3_PREFIX_MAX, "%.*s", (int)rest_length, rest);
    return 0;
}

int tm_s3__create(struct tm_env *env, const char *place, struct tm_s3 **out, struct tm_error *e)
{
    struct tm_s3 *s3 = tm_calloc(1, sizeof *s3);
    if (s3 == NULL) return tm_error_nomem(e);
    s3->env = env;
    (void)pthread_mutex_init(&s3->lock, NULL);
    int rc = tm_s3__place(place, s3->bucket, s3->prefix, e);
    if (rc == 0) rc = tm_aws_create(env, NULL, &s3->aws, e);
    if (rc != 0) {
        tm_s3__destroy(s3);
        return rc;
    }
    *out = s3;
    return 0;
}

void tm_s3__destroy(struct tm_s3 *s3)
{
    if (s3 == NULL) return;
    for (size_t i = 0; i < s3->idle_count; i++)
        tm_web_destroy(s3->idle[i]);
    (void)pthread_mutex_destroy(&s3->lock);
    tm_aws_destroy(s3->aws);
    tm_free(s3);
}

int tm_s3__take_web(struct tm_s3 *s3, struct tm_web **out, struct tm_error *e)
{
    struct tm_web *web = NULL;
    (void)pthread_mutex_lock(&s3->lock);
    if (s3->idle_count > 0) web = s3->idle[--s3->idle_count];
    (void)pthread_mutex_unlock(&s3->lock);
    if (web == NULL) return tm_web_create(s3->env, out, e);
    *out = web;
    return 0;
}

void tm_s3__give_web(struct tm_s3 *s3, struct tm_web *web)
{
    (void)pthread_mutex_lock(&s3->lock);
    bool room = s3->idle_count < WEBS_MAX;
    if (room) s3->idle[s3->idle_count++] = web;
    (void)pthread_mutex_unlock(&s3->lock);
    if (!room) tm_web_destroy(web);
}

void tm_s3__path(const struct tm_s3 *s3, const char *name, char out[TM_S3_KEY_MAX + 2])
{
    (void)snprintf(out, TM_S3_KEY_MAX + 2, "/%s%s%s", s3->prefix, s3->prefix[0] != '\0' ? "/" : "", name);
}

struct tm_aws_request tm_s3__request(struct tm_s3 *s3, const char *method, const char *path)
{
    return (struct tm_aws_request){.aws = s3->aws,
                                   .service = "s3",
                                   .bucket = s3->bucket,
                                   .method = method,
                                   .path = path,
                                   .deadline_ms = SMALL_MS,
                                   .tries_max = TRIES};
}

/* ---- what it says ---- */

static int refused(struct tm_s3 *s3, const char *path, const struct tm_web_answer *answer, struct tm_error *e)
{
    struct tm_aws_refusal why;
    int rc = tm_aws_refusal(answer, &why, e);
    if (rc != 0) return rc;
    if (strcmp(why.code, "NoSuchBucket") == 0)
        return tm_error_set(e, TM_EIO, "there is no bucket %s: create it, or correct its name", s3->bucket);
    if (answer->status == 404) return tm_error_set(e, TM_ENOTFOUND, "s3://%s%s: not found", s3->bucket, path);
    if (answer->status == 412) return tm_error_set(e, TM_EEXISTS, "s3://%s%s: has changed", s3->bucket, path);
    if (answer->status == 416) return tm_error_set(e, TM_EINPUT, "s3://%s%s: shorter than expected", s3->bucket, path);
    if ((answer->status == 301 || answer->status == 400) && answer->region[0] != '\0' &&
        strcmp(answer->region, tm_aws_region(s3->aws)) != 0)
        return tm_error_set(e, TM_EIO, "bucket %s is in region %s, not in %s: set AWS_REGION=%s", s3->bucket,
                            answer->region, tm_aws_region(s3->aws), answer->region);
    const char *fix = answer->status == 403 ? " (`tidemill cloud check aws` says what is missing)" : "";
    return tm_error_set(e, TM_EIO, "s3://%s%s: refused with %d %s: %s%s", s3->bucket, path, answer->status, why.code,
                        why.message, fix);
}

int tm_s3__judge(struct tm_s3 *s3, int rc, const char *path, struct tm_web_answer *answer, struct tm_error *e)
{
    if (rc == -(int)TM_ENOMEM) return rc;
    if (rc != 0) {
        (void)tm_error_wrap(e, rc, "s3://%s", s3->bucket);
        if (e != NULL) e->code = TM_EIO; /* temporary, as far as the store's callers can tell */
        return -(int)TM_EIO;
    }
    if (answer->status >= 200 && answer->status < 300) return 0;
    rc = refused(s3, path, answer, e);
    tm_web_answer_deinit(answer);
    return rc;
}

/* Asks and judges; 0: the answer is the caller's. */
static int ask(struct tm_s3 *s3, struct tm_aws_request *request, struct tm_web_answer *out, struct tm_error *e)
{
    struct tm_web *web = NULL;
    int rc = tm_s3__take_web(s3, &web, e);
    if (rc != 0) return rc;
    rc = tm_s3__judge(s3, tm_aws_ask(web, request, out, e), request->path, out, e);
    tm_s3__give_web(s3, web);
    return rc;
}

/* ---- small objects ---- */

int tm_s3__put(struct tm_s3 *s3, const char *name, const void *data, size_t length, const char *if_match,
               char out_etag[TM_WEB_WORD_MAX], struct tm_error *e)
{
    char path[TM_S3_KEY_MAX + 2];
    struct tm_web_answer answer;
    tm_s3__path(s3, name, path);
    struct tm_aws_request request = tm_s3__request(s3, "PUT", path);
    request.body = data;
    request.length = length;
    if (if_match != NULL)
        request.headers[request.header_count++] = (struct tm_web_pair){
            if_match[0] == '\0' ? "if-none-match" : "if-match", if_match[0] == '\0' ? "*" : if_match};
    int rc = ask(s3, &request, &answer, e);
    if (rc != 0) return if_match != NULL && if_match[0] != '\0' && rc == -(int)TM_ENOTFOUND ? -(int)TM_EEXISTS : rc;
    if (out_etag != NULL) (void)snprintf(out_etag, TM_WEB_WORD_MAX, "%s", answer.etag);
    tm_web_answer_deinit(&answer);
    return 0;
}

int tm_s3__get(struct tm_s3 *s3, const char *name, struct tm_text *out, char out_etag[TM_WEB_WORD_MAX],
               struct tm_error *e)
{
    char path[TM_S3_KEY_MAX + 2];
    struct tm_web_answer answer;
    tm_s3__path(s3, name, path);
    struct tm_aws_request request = tm_s3__request(s3, "GET", path);
    int rc = ask(s3, &request, &answer, e);
    if (rc != 0) return rc;
    tm_text_append(out, tm_text_string(&answer.body), answer.body.length);
    if (out_etag != NULL) (void)snprintf(out_etag, TM_WEB_WORD_MAX, "%s", answer.etag);
    tm_web_answer_deinit(&answer);
    return tm_text_status(out, e);
}

int tm_s3__remove(struct tm_s3 *s3, const char *name, struct tm_error *e)
{
    char path[TM_S3_KEY_MAX + 2];
    struct tm_web_answer answer;
    tm_s3__path(s3, name, path);
    struct tm_aws_request request = tm_s3__request(s3, "DELETE", path);
    int rc = ask(s3, &request, &answer, e);
    if (rc == 0) tm_web_answer_deinit(&answer);
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

/* ---- lists ---- */

/* One page of a list in the arena, as XML. */
static int ask_page(struct tm_s3 *s3, struct tm_aws_request *request, struct tm_arena *arena, struct tm_xml **out,
                    struct tm_error *e)
{
    struct tm_web_answer answer;
    int rc = ask(s3, request, &answer, e);
    if (rc != 0) return rc;
    rc = tm_xml_read(tm_text_string(&answer.body), answer.body.length, arena, out, e);
    tm_web_answer_deinit(&answer);
    if (rc == 0 || rc == -(int)TM_ENOMEM) return rc;
    return tm_error_set(e, TM_EIO, "s3://%s: the answer is not a list", s3->bucket);
}

static const char *below_prefix(const struct tm_s3 *s3, const char *key)
{
    size_t length = strlen(s3->prefix);
    return length == 0 ? key : strlen(key) > length ? key + length + 1 : "";
}

/* A page; `more` is where the next begins, "" after the last. */
static int one_page(struct tm_s3 *s3, const char *from, bool flat, char more[2 * TM_S3_KEY_MAX], tm_name_f take,
                    void *context, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    char key[TM_S3_KEY_MAX + 2];
    tm_s3__path(s3, from, key);
    struct tm_aws_request request = tm_s3__request(s3, "GET", "/");
    request.query[request.query_count++] = (struct tm_web_pair){"list-type", "2"};
    request.query[request.query_count++] = (struct tm_web_pair){"prefix", key + 1};
    if (flat) request.query[request.query_count++] = (struct tm_web_pair){"delimiter", "/"};
    if (more[0] != '\0') request.query[request.query_count++] = (struct tm_web_pair){"continuation-token", more};
    tm_arena_init(&arena, ARENA_MAX);
    int rc = ask_page(s3, &request, &arena, &root, e);
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "Contents") : NULL;
    for (; rc == 0 && one != NULL; one = tm_xml_again(one))
        rc = take(context, below_prefix(s3, tm_xml_text(one, "Key")), e);
    bool ended = rc != 0 || strcmp(tm_xml_text(root, "IsTruncated"), "true") != 0;
    (void)snprintf(more, (size_t)2 * TM_S3_KEY_MAX, "%s", ended ? "" : tm_xml_text(root, "NextContinuationToken"));
    tm_arena_deinit(&arena);
    return rc;
}

int tm_s3__each(struct tm_s3 *s3, const char *from, bool flat, tm_name_f take, void *context, struct tm_error *e)
{
    char more[2 * TM_S3_KEY_MAX] = "";
    int rc = 0;
    for (int page = 0; rc == 0 && page < PAGES_MAX; page++) {
        rc = one_page(s3, from, flat, more, take, context, e);
        if (more[0] == '\0') break;
    }
    return rc;
}

static int abort_one(struct tm_s3 *s3, const char *key, const char *upload, struct tm_error *e)
{
    char path[TM_S3_KEY_MAX + 2];
    struct tm_web_answer answer;
    (void)snprintf(path, sizeof path, "/%s", key);
    struct tm_aws_request request = tm_s3__request(s3, "DELETE", path);
    request.query[request.query_count++] = (struct tm_web_pair){"uploadId", upload};
    int rc = ask(s3, &request, &answer, e);
    if (rc == 0) tm_web_answer_deinit(&answer);
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

int tm_s3__abort_uploads(struct tm_s3 *s3, const char *from, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    char key[TM_S3_KEY_MAX + 2];
    tm_s3__path(s3, from, key);
    tm_arena_init(&arena, ARENA_MAX);
    struct tm_aws_request request = tm_s3__request(s3, "GET", "/");
    request.query[request.query_count++] = (struct tm_web_pair){"uploads", ""};
    request.query[request.query_count++] = (struct tm_web_pair){"prefix", key + 1};
    int rc = ask_page(s3, &request, &arena, &root, e);
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "Upload") : NULL; /* up to 1000; the rest another time */
    for (; rc == 0 && one != NULL; one = tm_xml_again(one))
        if (strncmp(tm_xml_text(one, "Key"), key + 1, strlen(key + 1)) == 0)
            rc = abort_one(s3, tm_xml_text(one, "Key"), tm_xml_text(one, "UploadId"), e);
    tm_arena_deinit(&arena);
    return rc;
}
