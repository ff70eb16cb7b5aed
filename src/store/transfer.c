#include "store/transfer.h"

#include <assert.h>

enum { PARTS_MAX = 9000 };

static const size_t part_bytes = (size_t)8 << 20;
static const size_t alone_bytes = (size_t)12 << 20; /* up to here one request is best */

/* ---- connections ---- */

void tm_webs__init(struct tm_webs *webs, struct tm_env *env)
{
    webs->env = env;
    webs->idle_count = 0;
    (void)pthread_mutex_init(&webs->lock, NULL);
}

void tm_webs__deinit(struct tm_webs *webs)
{
    for (size_t i = 0; i < webs->idle_count; i++)
        tm_web_destroy(webs->idle[i]);
    (void)pthread_mutex_destroy(&webs->lock);
}

int tm_webs__take(struct tm_webs *webs, struct tm_web **out, struct tm_error *e)
{
    struct tm_web *web = NULL;
    (void)pthread_mutex_lock(&webs->lock);
    if (webs->idle_count > 0) web = webs->idle[--webs->idle_count];
    (void)pthread_mutex_unlock(&webs->lock);
    if (web == NULL) return tm_web_create(webs->env, out, e);
    *out = web;
    return 0;
}

void tm_webs__give(struct tm_webs *webs, struct tm_web *web)
{
    (void)pthread_mutex_lock(&webs->lock);
    bool room = webs->idle_count < sizeof webs->idle / sizeof *webs->idle;
    if (room) webs->idle[webs->idle_count++] = web;
    (void)pthread_mutex_unlock(&webs->lock);
    if (!room) tm_web_destroy(web);
}

/* ---- parts ---- */

size_t tm_transfer__part_bytes(size_t length, size_t parts_max)
{
    size_t part = part_bytes;
    while (length / part >= parts_max)
        part *= 2;
    return part;
}

size_t tm_transfer__upload_parts(size_t length)
{
    if (length <= alone_bytes) return 1;
    size_t part = tm_transfer__part_bytes(length, PARTS_MAX);
    return (length + part - 1) / part;
}

struct streams {
    struct tm_web_call *calls[TM_TRANSFER_STREAMS]; /* NULL: free */
    struct tm_stretch parts[TM_TRANSFER_STREAMS];
};

static int begin_next(const struct tm_transfer *t, struct streams *streams, size_t stream, size_t number, size_t bytes,
                      struct tm_error *e)
{
    size_t at = number * bytes;
    size_t length = t->length - at < bytes ? t->length - at : bytes;
    streams->parts[stream] = (struct tm_stretch){.number = number, .at = at, .length = length, .stream = stream};
    return t->begin(t->context, &streams->parts[stream], &streams->calls[stream], e);
}

static void give_up(struct streams *streams)
{
    for (size_t i = 0; i < TM_TRANSFER_STREAMS; i++) {
        struct tm_web_answer ignored = {.status = 0};
        if (streams->calls[i] == NULL) continue;
        if (tm_web_end(streams->calls[i], &ignored, NULL) == 0) tm_web_answer_deinit(&ignored);
    }
}

int tm_transfer__carry(const struct tm_transfer *t, size_t parts, struct tm_error *e)
{
    assert(t->length > 0);
    struct streams streams = {.calls = {NULL}};
    size_t suits = t->part_bytes > 0 ? t->part_bytes : tm_transfer__part_bytes(t->length, PARTS_MAX);
    size_t bytes = parts == 1 ? t->length : suits;
    size_t count = (t->length + bytes - 1) / bytes;
    size_t begun = 0;
    size_t ended = 0;
    int rc = 0;
    while (rc == 0 && ended < count) {
        for (size_t i = 0; rc == 0 && i < TM_TRANSFER_STREAMS; i++)
            if (streams.calls[i] == NULL && begun < count) rc = begin_next(t, &streams, i, begun++, bytes, e);
        if (rc == 0) rc = tm_web_step_wait(t->web, e);
        for (size_t i = 0; rc == 0 && i < TM_TRANSFER_STREAMS; i++) {
            struct tm_web_call *call = streams.calls[i];
            if (call == NULL || !tm_web_is_done(call)) continue;
            streams.calls[i] = NULL;
            ended++;
            rc = t->end(t->context, &streams.parts[i], call, e);
        }
    }
    give_up(&streams);
    return rc;
}
