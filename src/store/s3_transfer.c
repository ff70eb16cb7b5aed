/* Large objects: several requests at a time, each for its own stretch of memory. */
#include "base/alloc.h"
#include "store/s3.h"
#include "web/xml.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STREAMS = 6, PARTS_MAX = 9000, ETAG_BYTES = 80, DATA_MS = 600000, SILENCE_MS = 30000, TRIES = 6 };

static const size_t part_bytes = (size_t)8 << 20;
static const size_t alone_bytes = (size_t)12 << 20; /* up to here one request is best */

/* One of the requests under way. */
struct stream {
    struct tm_aws_request request;
    struct tm_web_call *call; /* NULL: free */
    size_t part;
    size_t length;
    char number[24];
    char range[64];
};

struct transfer {
    struct tm_s3 *s3;
    struct tm_web *web;
    const char *path;
    const char *upload;  /* id of the upload; NULL: a download */
    const uint8_t *from; /* an upload */
    uint8_t *into;       /* a download */
    size_t length;
    size_t part; /* bytes of each but the last */
    size_t count;
    size_t begun;
    size_t ended;
    char (*etags)[ETAG_BYTES]; /* an upload: of each part; owned */
    uint64_t total;            /* a download: of the whole object */
    struct stream streams[STREAMS];
};

static size_t part_length(const struct transfer *t, size_t part)
{
    size_t at = part * t->part;
    return t->length - at < t->part ? t->length - at : t->part;
}

static int begin_part(struct transfer *t, struct stream *stream, struct tm_error *e)
{
    size_t part = t->begun;
    size_t at = part * t->part;
    struct tm_aws_request *r = &stream->request;
    stream->part = part;
    stream->length = part_length(t, part);
    *r = tm_s3__request(t->s3, t->upload != NULL ? "PUT" : "GET", t->path);
    r->deadline_ms = DATA_MS;
    r->silence_ms = SILENCE_MS;
    r->tries_max = TRIES;
    if (t->upload != NULL) {
        (void)snprintf(stream->number, sizeof stream->number, "%zu", part + 1);
        r->query[r->query_count++] = (struct tm_web_pair){"partNumber", stream->number};
        r->query[r->query_count++] = (struct tm_web_pair){"uploadId", t->upload};
        r->body = t->from + at;
        r->length = stream->length;
        r->unsigned_body = true; /* copies have hashes of their own */
    } else {
        (void)snprintf(stream->range, sizeof stream->range, "bytes=%zu-%zu", at, at + stream->length - 1);
        r->headers[r->header_count++] = (struct tm_web_pair){"range", stream->range};
        r->into = t->into + at;
        r->room = stream->length;
    }
    int rc = tm_aws_begin(t->web, r, &stream->call, e);
    if (rc == 0) t->begun++;
    return rc;
}

static int take_part(struct transfer *t, const struct stream *stream, const struct tm_web_answer *answer,
                     struct tm_error *e)
{
    if (t->upload != NULL) {
        if (answer->etag[0] == '\0' || strlen(answer->etag) >= ETAG_BYTES)
            return tm_error_set(e, TM_EIO, "%s: part %zu has no ETag", t->path, stream->part + 1);
        (void)snprintf(t->etags[stream->part], ETAG_BYTES, "%.*s", ETAG_BYTES - 1, answer->etag);
        return 0;
    }
    uint64_t total = answer->total >= 0 ? (uint64_t)answer->total : answer->received;
    if (stream->part == 0) t->total = total;
    if (answer->received != stream->length)
        return tm_error_set(e, TM_EINPUT, "%s: has %" PRIu64 " bytes, fewer than expected", t->path, total);
    return 0;
}

static int end_part(struct transfer *t, struct stream *stream, struct tm_error *e)
{
    struct tm_web_answer answer;
    int rc = tm_s3__judge(t->s3, tm_web_end(stream->call, &answer, e), t->path, &answer, e);
    stream->call = NULL;
    t->ended++;
    if (rc != 0) return rc;
    rc = take_part(t, stream, &answer, e);
    tm_web_answer_deinit(&answer);
    return rc;
}

/* All parts, so many at a time; the first that fails ends it. */
static int carry(struct transfer *t, struct tm_error *e)
{
    int rc = 0;
    while (rc == 0 && t->ended < t->count) {
        for (size_t i = 0; rc == 0 && i < STREAMS; i++)
            if (t->streams[i].call == NULL && t->begun < t->count) rc = begin_part(t, &t->streams[i], e);
        if (rc == 0) rc = tm_web_step_wait(t->web, e);
        for (size_t i = 0; rc == 0 && i < STREAMS; i++)
            if (t->streams[i].call != NULL && tm_web_is_done(t->streams[i].call)) rc = end_part(t, &t->streams[i], e);
    }
    for (size_t i = 0; i < STREAMS; i++) {
        struct tm_web_answer ignored = {.status = 0};
        if (t->streams[i].call == NULL) continue;
        if (tm_web_end(t->streams[i].call, &ignored, NULL) == 0) tm_web_answer_deinit(&ignored);
    }
    return rc;
}

static void cut_parts(struct transfer *t, size_t alone)
{
    t->part = t->length <= alone ? t->length : part_bytes;
    while (t->part > 0 && t->length / t->part >= PARTS_MAX)
        t->part *= 2;
    t->count = t->part == 0 ? 0 : (t->length + t->part - 1) / t->part;
}

/* ---- down ---- */

int tm_s3__download(struct tm_s3 *s3, const char *name, void *into, size_t length, uint64_t *out_total,
                    struct tm_error *e)
{
    char path[TM_S3_KEY_MAX + 2];
    assert(length > 0);
    tm_s3__path(s3, name, path);
    struct transfer *t = tm_calloc(1, sizeof *t);
    if (t == NULL) return tm_error_nomem(e);
    *t = (struct transfer){.s3 = s3, .path = path, .into = into, .length = length};
    cut_parts(t, part_bytes);
    int rc = tm_s3__take_web(s3, &t->web, e);
    if (rc == 0) {
        rc = carry(t, e);
        tm_s3__give_web(s3, t->web);
    }
    if (rc == 0) *out_total = t->total;
    tm_free(t);
    return rc;
}

/* ---- up ---- */

static int ask(struct transfer *t, struct tm_aws_request *request, struct tm_web_answer *out, struct tm_error *e)
{
    return tm_s3__judge(t->s3, tm_aws_ask(t->web, request, out, e), t->path, out, e);
}

static int put_alone(struct transfer *t, struct tm_error *e)
{
    struct tm_web_answer answer;
    struct tm_aws_request request = tm_s3__request(t->s3, "PUT", t->path);
    request.body = t->from;
    request.length = t->length;
    request.unsigned_body = true;
    request.deadline_ms = DATA_MS;
    request.silence_ms = SILENCE_MS;
    int rc = ask(t, &request, &answer, e);
    if (rc == 0) tm_web_answer_deinit(&answer);
    return rc;
}

static int begin_upload(struct transfer *t, char id[TM_S3_KEY_MAX], struct tm_error *e)
{
    struct tm_web_answer answer;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    struct tm_aws_request request = tm_s3__request(t->s3, "POST", t->path);
    request.query[request.query_count++] = (struct tm_web_pair){"uploads", ""};
    int rc = ask(t, &request, &answer, e);
    if (rc != 0) return rc;
    tm_arena_init(&arena, 1 << 20);
    rc = tm_xml_read(tm_text_string(&answer.body), answer.body.length, &arena, &root, e);
    const char *found = rc == 0 ? tm_xml_text(root, "UploadId") : "";
    if (rc != -(int)TM_ENOMEM && (found[0] == '\0' || strlen(found) >= TM_S3_KEY_MAX))
        rc = tm_error_set(e, TM_EIO, "%s: the upload has no number", t->path);
    if (rc == 0) (void)snprintf(id, TM_S3_KEY_MAX, "%s", found);
    tm_arena_deinit(&arena);
    tm_web_answer_deinit(&answer);
    return rc;
}

static void abort_upload(struct transfer *t)
{
    struct tm_web_answer answer;
    struct tm_aws_request request = tm_s3__request(t->s3, "DELETE", t->path);
    request.query[request.query_count++] = (struct tm_web_pair){"uploadId", t->upload};
    request.tries_max = 2; /* what stays goes with its set */
    if (ask(t, &request, &answer, NULL) == 0) tm_web_answer_deinit(&answer);
}

/* The answer may be a refusal though its status is 200. */
static int complete(struct transfer *t, struct tm_error *e)
{
    struct tm_text body;
    struct tm_web_answer answer;
    struct tm_aws_refusal why = {.code = ""};
    tm_text_init(&body, 4 << 20);
    tm_text_puts(&body, "<CompleteMultipartUpload>");
    for (size_t i = 0; i < t->count; i++)
        tm_text_printf(&body, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag></Part>", i + 1, t->etags[i]);
    tm_text_puts(&body, "</CompleteMultipartUpload>");
    int rc = tm_text_status(&body, e);
    if (rc == 0) {
        struct tm_aws_request request = tm_s3__request(t->s3, "POST", t->path);
        request.query[request.query_count++] = (struct tm_web_pair){"uploadId", t->upload};
        request.headers[request.header_count++] = (struct tm_web_pair){"content-type", "application/xml"};
        request.body = body.data;
        request.length = body.length;
        request.deadline_ms = DATA_MS;
        rc = ask(t, &request, &answer, e);
    }
    tm_text_deinit(&body);
    if (rc != 0) return rc == -(int)TM_ENOTFOUND ? tm_error_set(e, TM_EIO, "%s: the upload is gone", t->path) : rc;
    rc = tm_aws_refusal(&answer, &why, e);
    tm_web_answer_deinit(&answer);
    if (rc == 0 && why.code[0] != '\0')
        rc = tm_error_set(e, TM_EIO, "%s: refused with %s: %s", t->path, why.code, why.message);
    return rc;
}

static int put_parts(struct transfer *t, struct tm_error *e)
{
    char id[TM_S3_KEY_MAX];
    int rc = begin_upload(t, id, e);
    if (rc != 0) return rc;
    t->upload = id;
    t->etags = tm_calloc(t->count, sizeof *t->etags);
    rc = t->etags == NULL ? tm_error_nomem(e) : carry(t, e);
    if (rc == 0) rc = complete(t, e);
    if (rc != 0) abort_upload(t);
    tm_free(t->etags);
    t->upload = NULL;
    return rc;
}

int tm_s3__upload(struct tm_s3 *s3, const char *name, const void *data, size_t length, struct tm_error *e)
{
    char path[TM_S3_KEY_MAX + 2];
    tm_s3__path(s3, name, path);
    struct transfer *t = tm_calloc(1, sizeof *t);
    if (t == NULL) return tm_error_nomem(e);
    *t = (struct transfer){.s3 = s3, .path = path, .from = data, .length = length};
    cut_parts(t, alone_bytes);
    int rc = tm_s3__take_web(s3, &t->web, e);
    if (rc == 0) {
        rc = t->count <= 1 ? put_alone(t, e) : put_parts(t, e);
        tm_s3__give_web(s3, t->web);
    }
    tm_free(t);
    return rc;
}
