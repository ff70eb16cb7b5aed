#include "store/s3.h"

#include "base/alloc.h"
#include "store/transfer.h"
#include "web/xml.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { SMALL_MS = 60000, TRIES = 8, ARENA_MAX = 64 << 20, PAGES_MAX = 100000 };

struct tm_s3 {
    struct tm_aws *aws;
    char bucket[TM_BUCKET_MAX];
    char prefix[TM_PREFIX_MAX]; /* without slashes at its ends; "": none */
    struct tm_webs webs;
};

/* ---- the bucket ---- */

static void s3_close(void *self)
{
    struct tm_s3 *s3 = self;
    tm_webs__deinit(&s3->webs);
    tm_aws_destroy(s3->aws);
    tm_free(s3);
}

struct tm_webs *tm_s3__webs(struct tm_s3 *s3)
{
    return &s3->webs;
}

void tm_s3__path(const struct tm_s3 *s3, const char *name, char out[TM_KEY_MAX + 2])
{
    (void)snprintf(out, TM_KEY_MAX + 2, "/%s%s%s", s3->prefix, s3->prefix[0] != '\0' ? "/" : "", name);
}

int tm_s3__await_keys(const struct tm_s3 *s3, struct tm_error *e)
{
    return tm_aws_await_keys(s3->aws, e);
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
    int rc = tm_webs__take(&s3->webs, &web, e);
    if (rc != 0) return rc;
    rc = tm_s3__judge(s3, tm_aws_ask(web, request, out, e), request->path, out, e);
    tm_webs__give(&s3->webs, web);
    return rc;
}

/* ---- small objects ---- */

static int s3_put(void *self, const char *name, const void *data, size_t length, const char *if_match,
                  char out_etag[TM_WEB_WORD_MAX], struct tm_error *e)
{
    struct tm_s3 *s3 = self;
    char path[TM_KEY_MAX + 2];
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

static int s3_get(void *self, const char *name, struct tm_text *out, char out_etag[TM_WEB_WORD_MAX], struct tm_error *e)
{
    struct tm_s3 *s3 = self;
    char path[TM_KEY_MAX + 2];
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

static int s3_remove(void *self, const char *name, struct tm_error *e)
{
    struct tm_s3 *s3 = self;
    char path[TM_KEY_MAX + 2];
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
static int one_page(struct tm_s3 *s3, const char *from, bool flat, char more[2 * TM_KEY_MAX], tm_name_f take,
                    void *context, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    char key[TM_KEY_MAX + 2];
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
    (void)snprintf(more, (size_t)2 * TM_KEY_MAX, "%s", ended ? "" : tm_xml_text(root, "NextContinuationToken"));
    tm_arena_deinit(&arena);
    return rc;
}

static int s3_each(void *self, const char *from, bool flat, tm_name_f take, void *context, struct tm_error *e)
{
    struct tm_s3 *s3 = self;
    char more[2 * TM_KEY_MAX] = "";
    int rc = 0;
    for (int page = 0; rc == 0 && page < PAGES_MAX; page++) {
        rc = one_page(s3, from, flat, more, take, context, e);
        if (more[0] == '\0') break;
    }
    return rc;
}

static int abort_one(struct tm_s3 *s3, const char *key, const char *upload, struct tm_error *e)
{
    char path[TM_KEY_MAX + 2];
    struct tm_web_answer answer;
    (void)snprintf(path, sizeof path, "/%s", key);
    struct tm_aws_request request = tm_s3__request(s3, "DELETE", path);
    request.query[request.query_count++] = (struct tm_web_pair){"uploadId", upload};
    int rc = ask(s3, &request, &answer, e);
    if (rc == 0) tm_web_answer_deinit(&answer);
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

/* Where a page of uploads begins; "": at the first. */
struct uploads_at {
    char key[TM_KEY_MAX];
    char upload[TM_KEY_MAX];
};

static int abort_page(struct tm_s3 *s3, const char *prefix, struct uploads_at *from, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    tm_arena_init(&arena, ARENA_MAX);
    struct tm_aws_request request = tm_s3__request(s3, "GET", "/");
    request.query[request.query_count++] = (struct tm_web_pair){"uploads", ""};
    request.query[request.query_count++] = (struct tm_web_pair){"prefix", prefix};
    if (from->key[0] != '\0') {
        request.query[request.query_count++] = (struct tm_web_pair){"key-marker", from->key};
        request.query[request.query_count++] = (struct tm_web_pair){"upload-id-marker", from->upload};
    }
    int rc = ask_page(s3, &request, &arena, &root, e);
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "Upload") : NULL;
    for (; rc == 0 && one != NULL; one = tm_xml_again(one))
        if (strncmp(tm_xml_text(one, "Key"), prefix, strlen(prefix)) == 0)
            rc = abort_one(s3, tm_xml_text(one, "Key"), tm_xml_text(one, "UploadId"), e);
    bool more = rc == 0 && strcmp(tm_xml_text(root, "IsTruncated"), "true") == 0;
    (void)snprintf(from->key, sizeof from->key, "%s", more ? tm_xml_text(root, "NextKeyMarker") : "");
    (void)snprintf(from->upload, sizeof from->upload, "%s", more ? tm_xml_text(root, "NextUploadIdMarker") : "");
    tm_arena_deinit(&arena);
    return rc;
}

static int s3_abort_uploads(void *self, const char *from, struct tm_error *e)
{
    struct tm_s3 *s3 = self;
    char path[TM_KEY_MAX + 2];
    struct uploads_at at = {.key = ""};
    int rc = 0;
    tm_s3__path(s3, from, path);
    for (int page = 0; rc == 0 && page < PAGES_MAX; page++) {
        rc = abort_page(s3, path + 1, &at, e);
        if (at.key[0] == '\0') break;
    }
    return rc;
}

int tm_s3__open(struct tm_env *env, const char *place, struct tm_objects *out, struct tm_error *e)
{
    struct tm_s3 *s3 = tm_calloc(1, sizeof *s3);
    if (s3 == NULL) return tm_error_nomem(e);
    tm_webs__init(&s3->webs, env);
    int rc = tm_objects_place(place, s3->bucket, s3->prefix, e);
    if (rc == 0) rc = tm_aws_create(env, NULL, &s3->aws, e);
    if (rc != 0) {
        s3_close(s3);
        return rc;
    }
    *out = (struct tm_objects){.self = s3,
                               .put = s3_put,
                               .get = s3_get,
                               .remove = s3_remove,
                               .each = s3_each,
                               .abort_uploads = s3_abort_uploads,
                               .aborts_alone = true,
                               .upload = tm_s3__upload,
                               .download = tm_s3__download,
                               .grant = tm_s3__grant,
                               .granted = tm_s3__granted,
                               .close = s3_close};
    return 0;
}
