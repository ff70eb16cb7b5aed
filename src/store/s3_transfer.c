/* Large objects of S3: multipart uploads, ranges, and both by URLs for somebody without credentials. */
#include "base/alloc.h"
#include "store/s3.h"
#include "store/transfer.h"
#include "web/xml.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ETAG_BYTES = 80 };

struct moving {
    struct tm_s3 *s3;
    struct tm_web *web;
    const char *path;
    const char *upload;  /* id of the upload; NULL: a download */
    const uint8_t *from; /* an upload */
    uint8_t *into;       /* a download */
    size_t length;
    char (*etags)[ETAG_BYTES]; /* an upload: of each part; owned */
    uint64_t total;            /* a download: of the whole object */
    struct tm_aws_request requests[TM_TRANSFER_STREAMS];
    char words[TM_TRANSFER_STREAMS][64]; /* of each request: its part's number, or its range */
};

static int begin_part(void *context, const struct tm_stretch *part, struct tm_web_call **out, struct tm_error *e)
{
    struct moving *m = context;
    struct tm_aws_request *r = &m->requests[part->stream];
    char *word = m->words[part->stream];
    *r = tm_s3__request(m->s3, m->upload != NULL ? "PUT" : "GET", m->path);
    r->deadline_ms = TM_TRANSFER_MS;
    r->silence_ms = TM_TRANSFER_SILENCE_MS;
    r->tries_max = TM_TRANSFER_TRIES;
    if (m->upload != NULL) {
        (void)snprintf(word, sizeof m->words[0], "%zu", part->number + 1);
        r->query[r->query_count++] = (struct tm_web_pair){"partNumber", word};
        r->query[r->query_count++] = (struct tm_web_pair){"uploadId", m->upload};
        r->body = m->from + part->at;
        r->length = part->length;
        r->unsigned_body = true; /* copies have hashes of their own */
    } else {
        (void)snprintf(word, sizeof m->words[0], "bytes=%zu-%zu", part->at, part->at + part->length - 1);
        r->headers[r->header_count++] = (struct tm_web_pair){"range", word};
        r->into = m->into + part->at;
        r->room = part->length;
    }
    return tm_aws_begin(m->web, r, out, e);
}

static int take_part(struct moving *m, const struct tm_stretch *part, const struct tm_web_answer *answer,
                     struct tm_error *e)
{
    if (m->upload != NULL) {
        if (answer->etag[0] == '\0' || strlen(answer->etag) >= ETAG_BYTES)
            return tm_error_set(e, TM_EIO, "%s: part %zu has no ETag", m->path, part->number + 1);
        (void)snprintf(m->etags[part->number], ETAG_BYTES, "%.*s", ETAG_BYTES - 1, answer->etag);
        return 0;
    }
    uint64_t total = answer->total >= 0 ? (uint64_t)answer->total : answer->received;
    if (part->number == 0) m->total = total;
    if (answer->received != part->length)
        return tm_error_set(e, TM_EINPUT, "%s: has %" PRIu64 " bytes, fewer than expected", m->path, total);
    return 0;
}

static int end_part(void *context, const struct tm_stretch *part, struct tm_web_call *call, struct tm_error *e)
{
    struct moving *m = context;
    struct tm_web_answer answer;
    int rc = tm_s3__judge(m->s3, tm_web_end(call, &answer, e), m->path, &answer, e);
    if (rc != 0) return rc;
    rc = take_part(m, part, &answer, e);
    tm_web_answer_deinit(&answer);
    return rc;
}

static int carry(struct moving *m, size_t parts, struct tm_error *e)
{
    struct tm_transfer transfer = {
        .web = m->web, .length = m->length, .context = m, .begin = begin_part, .end = end_part};
    return tm_transfer__carry(&transfer, parts, e);
}

/* ---- down ---- */

int tm_s3__download(void *s3, const char *name, void *into, size_t length, uint64_t *out_total, struct tm_error *e)
{
    char path[TM_KEY_MAX + 2];
    assert(length > 0);
    tm_s3__path(s3, name, path);
    struct moving *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return tm_error_nomem(e);
    *m = (struct moving){.s3 = s3, .path = path, .into = into, .length = length};
    int rc = tm_webs__take(tm_s3__webs(s3), &m->web, e);
    if (rc == 0) {
        rc = carry(m, 0, e);
        tm_webs__give(tm_s3__webs(s3), m->web);
    }
    if (rc == 0) *out_total = m->total;
    tm_free(m);
    return rc;
}

/* ---- up ---- */

static int ask(struct moving *m, struct tm_aws_request *request, struct tm_web_answer *out, struct tm_error *e)
{
    return tm_s3__judge(m->s3, tm_aws_ask(m->web, request, out, e), m->path, out, e);
}

static int put_alone(struct moving *m, struct tm_error *e)
{
    struct tm_web_answer answer;
    struct tm_aws_request request = tm_s3__request(m->s3, "PUT", m->path);
    request.body = m->from;
    request.length = m->length;
    request.unsigned_body = true;
    request.deadline_ms = TM_TRANSFER_MS;
    request.silence_ms = TM_TRANSFER_SILENCE_MS;
    int rc = ask(m, &request, &answer, e);
    if (rc == 0) tm_web_answer_deinit(&answer);
    return rc;
}

static int begin_upload(struct moving *m, char id[TM_KEY_MAX], struct tm_error *e)
{
    struct tm_web_answer answer;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    struct tm_aws_request request = tm_s3__request(m->s3, "POST", m->path);
    request.query[request.query_count++] = (struct tm_web_pair){"uploads", ""};
    int rc = ask(m, &request, &answer, e);
    if (rc != 0) return rc;
    tm_arena_init(&arena, 1 << 20);
    rc = tm_xml_read(tm_text_string(&answer.body), answer.body.length, &arena, &root, e);
    const char *found = rc == 0 ? tm_xml_text(root, "UploadId") : "";
    if (rc != -(int)TM_ENOMEM && (found[0] == '\0' || strlen(found) >= TM_KEY_MAX))
        rc = tm_error_set(e, TM_EIO, "%s: the upload has no number", m->path);
    if (rc == 0) (void)snprintf(id, TM_KEY_MAX, "%s", found);
    tm_arena_deinit(&arena);
    tm_web_answer_deinit(&answer);
    return rc;
}

static void abort_upload(struct moving *m)
{
    struct tm_web_answer answer;
    struct tm_aws_request request = tm_s3__request(m->s3, "DELETE", m->path);
    request.query[request.query_count++] = (struct tm_web_pair){"uploadId", m->upload};
    request.tries_max = 2; /* what stays goes with its set */
    if (ask(m, &request, &answer, NULL) == 0) tm_web_answer_deinit(&answer);
}

/* The answer may be a refusal though its status is 200. */
static int complete(struct moving *m, size_t parts, struct tm_error *e)
{
    struct tm_text body;
    struct tm_web_answer answer;
    struct tm_aws_refusal why = {.code = ""};
    tm_text_init(&body, 4 << 20);
    tm_text_puts(&body, "<CompleteMultipartUpload>");
    for (size_t i = 0; i < parts; i++)
        tm_text_printf(&body, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag></Part>", i + 1, m->etags[i]);
    tm_text_puts(&body, "</CompleteMultipartUpload>");
    int rc = tm_text_status(&body, e);
    if (rc == 0) {
        struct tm_aws_request request = tm_s3__request(m->s3, "POST", m->path);
        request.query[request.query_count++] = (struct tm_web_pair){"uploadId", m->upload};
        request.headers[request.header_count++] = (struct tm_web_pair){"content-type", "application/xml"};
        request.body = body.data;
        request.length = body.length;
        request.deadline_ms = TM_TRANSFER_MS;
        rc = ask(m, &request, &answer, e);
    }
    tm_text_deinit(&body);
    if (rc != 0) return rc == -(int)TM_ENOTFOUND ? tm_error_set(e, TM_EIO, "%s: the upload is gone", m->path) : rc;
    rc = tm_aws_refusal(&answer, &why, e);
    tm_web_answer_deinit(&answer);
    if (rc == 0 && why.code[0] != '\0')
        rc = tm_error_set(e, TM_EIO, "%s: refused with %s: %s", m->path, why.code, why.message);
    return rc;
}

static int put_parts(struct moving *m, size_t parts, struct tm_error *e)
{
    char id[TM_KEY_MAX];
    int rc = begin_upload(m, id, e);
    if (rc != 0) return rc;
    m->upload = id;
    m->etags = tm_calloc(parts, sizeof *m->etags);
    rc = m->etags == NULL ? tm_error_nomem(e) : carry(m, parts, e);
    if (rc == 0) rc = complete(m, parts, e);
    if (rc != 0) abort_upload(m);
    tm_free(m->etags);
    m->upload = NULL;
    return rc;
}

int tm_s3__upload(void *s3, const char *name, const void *data, size_t length, struct tm_error *e)
{
    char path[TM_KEY_MAX + 2];
    tm_s3__path(s3, name, path);
    struct moving *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return tm_error_nomem(e);
    *m = (struct moving){.s3 = s3, .path = path, .from = data, .length = length};
    int rc = tm_webs__take(tm_s3__webs(s3), &m->web, e);
    if (rc == 0) {
        size_t parts = tm_transfer__upload_parts(length);
        rc = parts == 1 ? put_alone(m, e) : put_parts(m, parts, e);
        tm_webs__give(tm_s3__webs(s3), m->web);
    }
    tm_free(m);
    return rc;
}

/* ---- for somebody without credentials ---- */

static int add_url(struct moving *m, size_t part, struct tm_text *out, struct tm_error *e)
{
    char number[24];
    struct tm_aws_request r = tm_s3__request(m->s3, m->length > 0 ? "PUT" : "GET", m->path);
    r.unsigned_body = true;
    (void)snprintf(number, sizeof number, "%zu", part + 1);
    if (m->upload != NULL) {
        r.query[r.query_count++] = (struct tm_web_pair){"partNumber", number};
        r.query[r.query_count++] = (struct tm_web_pair){"uploadId", m->upload};
    }
    int rc = tm_aws_url(&r, TM_GRANT_S, out, e);
    if (rc == 0) tm_text_puts(out, "\n");
    return rc == 0 ? tm_text_status(out, e) : rc;
}

static int grant(struct moving *m, struct tm_grant *out, struct tm_error *e)
{
    size_t parts = m->length == 0 ? 1 : tm_transfer__upload_parts(m->length);
    int rc = tm_s3__await_keys(m->s3, e);
    out->part_bytes = m->length;
    out->upload[0] = '\0';
    if (rc == 0 && parts > 1) {
        out->part_bytes = tm_transfer__part_bytes(m->length, TM_GRANT_PARTS_MAX);
        parts = (m->length - 1) / out->part_bytes + 1;
        rc = begin_upload(m, out->upload, e);
        if (rc == 0) m->upload = out->upload;
    }
    for (size_t i = 0; rc == 0 && i < parts; i++)
        rc = add_url(m, i, &out->urls, e);
    if (rc != 0 && m->upload != NULL) abort_upload(m);
    return rc;
}

int tm_s3__grant(void *s3, const char *name, size_t length, struct tm_grant *out, struct tm_error *e)
{
    char path[TM_KEY_MAX + 2];
    tm_s3__path(s3, name, path);
    struct moving *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return tm_error_nomem(e);
    *m = (struct moving){.s3 = s3, .path = path, .length = length};
    int rc = tm_webs__take(tm_s3__webs(s3), &m->web, e);
    if (rc == 0) {
        rc = grant(m, out, e);
        tm_webs__give(tm_s3__webs(s3), m->web);
    }
    tm_free(m);
    if (rc != -(int)TM_EBUSY && rc != -(int)TM_ETIMEOUT) return rc;
    if (e != NULL) e->code = TM_EIO;
    return -(int)TM_EIO;
}

/* They come from another machine, and go into XML. */
static int read_tags(struct moving *m, const char *tags, size_t *out_count, struct tm_error *e)
{
    size_t count = 0;
    for (; tags[0] != '\0' && count < TM_GRANT_PARTS_MAX; count++) {
        size_t length = strcspn(tags, "\n");
        bool plain = length > 0 && length < ETAG_BYTES && strcspn(tags, "<>&") >= length && tags[length] == '\n';
        if (!plain) return tm_error_set(e, TM_EINPUT, "%s: not what parts are answered with", m->path);
        (void)snprintf(m->etags[count], ETAG_BYTES, "%.*s", (int)length, tags);
        tags += length + 1;
    }
    *out_count = count;
    return tags[0] == '\0' ? 0 : tm_error_set(e, TM_EINPUT, "%s: too many parts", m->path);
}

static int end_granted(struct moving *m, const char *tags, struct tm_error *e)
{
    size_t parts = 0;
    m->etags = tm_calloc(TM_GRANT_PARTS_MAX, sizeof *m->etags);
    int rc = m->etags == NULL ? tm_error_nomem(e) : read_tags(m, tags, &parts, e);
    if (rc == 0 && parts > 0) rc = complete(m, parts, e);
    if (rc != 0 || parts == 0) abort_upload(m);
    tm_free(m->etags);
    return rc;
}

int tm_s3__granted(void *s3, const char *name, const char *upload, const char *tags, struct tm_error *e)
{
    char path[TM_KEY_MAX + 2];
    tm_s3__path(s3, name, path);
    struct moving *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return tm_error_nomem(e);
    *m = (struct moving){.s3 = s3, .path = path, .upload = upload};
    int rc = tm_webs__take(tm_s3__webs(s3), &m->web, e);
    if (rc == 0) {
        rc = end_granted(m, tags, e);
        tm_webs__give(tm_s3__webs(s3), m->web);
    }
    tm_free(m);
    return rc;
}
