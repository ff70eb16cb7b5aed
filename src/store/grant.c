#include "store/grant.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { TAG_BYTES = 80, FIRST_SILENCE_MS = 10000 };

void tm_grant_init(struct tm_grant *grant)
{
    *grant = (struct tm_grant){.part_bytes = 0};
    tm_text_init(&grant->urls, TM_GRANT_URLS_MAX);
}

void tm_grant_deinit(struct tm_grant *grant)
{
    tm_text_deinit(&grant->urls);
}

/* A request under way: what `prepare` needs. */
struct asked {
    const char *url; /* up to the end of its line */
    char range[64];  /* "": none */
};

struct moving {
    struct tm_web *web;
    const char *urls[TM_GRANT_PARTS_MAX];
    size_t url_count;
    int tries;
    const uint8_t *from; /* NULL: a download */
    uint8_t *into;
    size_t length;
    char tags[TM_GRANT_PARTS_MAX][TAG_BYTES];
    struct asked asked[TM_TRANSFER_STREAMS];
};

static int prepare(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    const struct asked *asked = context;
    tm_text_append(url, asked->url, strcspn(asked->url, "\n"));
    if (asked->range[0] != '\0') tm_text_printf(headers, "range: %s\n", asked->range);
    return tm_text_status(url, e);
}

static int begin_part(void *context, const struct tm_stretch *part, struct tm_web_call **out, struct tm_error *e)
{
    struct moving *m = context;
    struct asked *asked = &m->asked[part->stream];
    bool up = m->from != NULL;
    struct tm_web_request request = {.method = up ? "PUT" : "GET",
                                     .deadline_ms = TM_TRANSFER_MS,
                                     .silence_ms = m->tries > 1 ? TM_TRANSFER_SILENCE_MS : FIRST_SILENCE_MS,
                                     .tries_max = m->tries,
                                     .prepare = prepare,
                                     .context = asked};
    *asked = (struct asked){.url = m->urls[up ? part->number : 0]};
    if (up) {
        request.body = m->from + part->at;
        request.length = part->length;
    } else {
        (void)snprintf(asked->range, sizeof asked->range, "bytes=%zu-%zu", part->at, part->at + part->length - 1);
        request.into = m->into + part->at;
        request.room = part->length;
    }
    return tm_web_begin(m->web, &request, out, e);
}

static int take_answer(struct moving *m, const struct tm_stretch *part, const struct tm_web_answer *answer,
                       struct tm_error *e)
{
    bool refused = answer->status == 400 || answer->status == 401 || answer->status == 403;
    if (answer->status < 200 || answer->status > 299)
        return tm_error_set(e, refused ? TM_EPEER : TM_EIO, "the store answers %d to what was granted", answer->status);
    if (m->from == NULL) {
        bool whole = answer->total >= 0 ? (uint64_t)answer->total == m->length : part->length == m->length;
        if (whole && answer->received == part->length) return 0;
        return tm_error_set(e, TM_EINPUT, "the object has another size than %zu bytes", m->length);
    }
    if (strlen(answer->etag) >= TAG_BYTES || strchr(answer->etag, '\n') != NULL)
        return tm_error_set(e, TM_EIO, "the store's answer to a part cannot be used");
    (void)snprintf(m->tags[part->number], TAG_BYTES, "%.*s", TAG_BYTES - 1, answer->etag);
    return 0;
}

static int end_part(void *context, const struct tm_stretch *part, struct tm_web_call *call, struct tm_error *e)
{
    struct tm_web_answer answer;
    int rc = tm_web_end(call, &answer, e);
    if (rc == -(int)TM_ENOMEM) return rc;
    if (rc != 0) {
        if (e != NULL) e->code = TM_EPEER;
        return -(int)TM_EPEER;
    }
    rc = take_answer(context, part, &answer, e);
    tm_web_answer_deinit(&answer);
    return rc;
}

/* Finds the lines. */
static int find_urls(struct moving *m, const struct tm_grant *grant, size_t count, struct tm_error *e)
{
    for (const char *at = tm_text_string(&grant->urls); at[0] != '\0' && m->url_count < TM_GRANT_PARTS_MAX;) {
        m->urls[m->url_count++] = at;
        at += strcspn(at, "\n");
        at += at[0] == '\n';
    }
    if (m->url_count == count) return 0;
    return tm_error_set(e, TM_EIO, "granted are %zu requests, and needed %zu", m->url_count, count);
}

static int move(struct moving *m, const struct tm_grant *grant, struct tm_webs *webs, size_t count, struct tm_error *e)
{
    int rc = find_urls(m, grant, count, e);
    if (rc == 0) rc = tm_webs__take(webs, &m->web, e);
    if (rc != 0) return rc;
    struct tm_transfer transfer = {.web = m->web,
                                   .length = m->length,
                                   .part_bytes = grant->part_bytes,
                                   .context = m,
                                   .begin = begin_part,
                                   .end = end_part};
    rc = tm_transfer__carry(&transfer, 0, e);
    tm_webs__give(webs, m->web);
    return rc;
}

int tm_grant__up(const struct tm_grant *grant, struct tm_webs *webs, int tries, const void *data, size_t length,
                 struct tm_text *out_tags, struct tm_error *e)
{
    assert(data != NULL && length > 0);
    if (grant->part_bytes == 0) return tm_error_set(e, TM_EIO, "granted are parts of no bytes");
    struct moving *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return tm_error_nomem(e);
    *m = (struct moving){.from = data, .length = length, .tries = tries};
    size_t count = (length - 1) / grant->part_bytes + 1;
    int rc = move(m, grant, webs, count, e);
    for (size_t i = 0; rc == 0 && i < count; i++)
        tm_text_printf(out_tags, "%s\n", m->tags[i]);
    tm_free(m);
    return rc == 0 ? tm_text_status(out_tags, e) : rc;
}

int tm_grant__down(const struct tm_grant *grant, struct tm_webs *webs, int tries, void *into, size_t length,
                   struct tm_error *e)
{
    assert(into != NULL && length > 0);
    struct moving *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return tm_error_nomem(e);
    *m = (struct moving){.into = into, .length = length, .tries = tries};
    int rc = move(m, grant, webs, 1, e);
    tm_free(m);
    return rc;
}
