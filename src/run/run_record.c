/* A record read by others than its coordinator. */
#include "run/run_tap.h"
#include "store/record.h"

enum { EVENT_BYTES_MAX = 64 << 20 };

struct reader {
    tm_run_each_f each;
    void *context;
};

static int unpack_each(void *context, uint64_t sequence, const void *data, size_t length, struct tm_error *e)
{
    const struct reader *reader = context;
    struct tm_arena arena;
    Tmw__RecordEvent *event = NULL;
    tm_arena_init(&arena, EVENT_BYTES_MAX);
    int rc = tm_record_event_unpack(data, length, &arena, &event, e);
    if (rc == 0) rc = reader->each(reader->context, sequence, event, e);
    tm_arena_deinit(&arena);
    return rc;
}

int tm_run_record_read(struct tm_record *record, uint64_t after, size_t max, tm_run_each_f each, void *context,
                       struct tm_error *e)
{
    struct reader reader = {.each = each, .context = context};
    return tm_record_each(record, after, max, unpack_each, &reader, e);
}

int tm_run_record_each(const char *path, uint64_t after, size_t max, tm_run_each_f each, void *context,
                       struct tm_error *e)
{
    struct tm_record *record = NULL;
    int rc = tm_record_open_read(path, &record, e);
    if (rc == 0) rc = tm_run_record_read(record, after, max, each, context, e);
    tm_record_close(record);
    return rc;
}

static int watch_each(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    return tm_run_watch_take(context, sequence, event, e);
}

int tm_run_record_watch(const char *path, struct tm_run_watch *watch, struct tm_error *e)
{
    return tm_run_record_each(path, 0, SIZE_MAX, watch_each, watch, e);
}
