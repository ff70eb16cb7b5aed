/* A record in the hands of others than its coordinator. */
#include "run/run_tap.h"

#include "base/alloc.h"
#include "run/state_folder.h"
#include "store/record.h"

enum { EVENT_BYTES_MAX = 64 << 20, INSTANCE_BYTES_MAX = 1 << 16 };

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

int tm_run_record__read(struct tm_record *record, uint64_t after, size_t max, tm_run_each_f each, void *context,
                        struct tm_error *e)
{
    struct reader reader = {.each = each, .context = context};
    return record->each(record, after, max, unpack_each, &reader, e);
}

int tm_run_record_each(const char *path, uint64_t after, size_t max, tm_run_each_f each, void *context,
                       struct tm_error *e)
{
    struct tm_record *record = NULL;
    int rc = tm_record_open_read(path, &record, e);
    if (rc == 0) rc = tm_run_record__read(record, after, max, each, context, e);
    tm_record_close(record);
    return rc;
}

static int watch_each(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    return tm_run_watch_take(context, sequence, event, e);
}

int tm_run_record__watch(const char *path, struct tm_run_watch *watch, struct tm_error *e)
{
    return tm_run_record_each(path, 0, SIZE_MAX, watch_each, watch, e);
}

int tm_run_record_status(const char *dir, struct tm_run_status *out, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_run_watch *watch = tm_run_watch_create();
    if (watch == NULL) return tm_error_nomem(e);
    tm_state_path(dir, TM_STATE_RECORD, path);
    int rc = tm_run_record__watch(path, watch, e);
    if (rc == 0) tm_run_watch__give(watch, out);
    tm_run_watch_destroy(watch);
    return rc;
}

/* ---- the end of instances ---- */

/* What the record says so far of those that are asked for. */
struct settling {
    Tmw__Instance *const *instances;
    size_t count;
    bool *settled;
    uint64_t step;           /* the last that was told */
    bool billed;             /* a bill was, */
    struct tm_run_bill bill; /* this one */
};

static int compare_each(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct settling *settling = context;
    (void)sequence;
    (void)e;
    if (event->body_case == TMW__RECORD_EVENT__BODY_PROGRESS) {
        settling->step = event->progress->step;
        settling->billed = true;
        settling->bill = (struct tm_run_bill){event->progress->bill_microusd, event->progress->on_demand_bill_microusd};
    }
    if (event->body_case != TMW__RECORD_EVENT__BODY_INSTANCE) return 0;
    for (size_t i = 0; i < settling->count; i++) {
        const Tmw__Instance *told = settling->instances[i];
        if (told->id != event->instance->id) continue;
        bool same = event->instance->end_ms == told->end_ms && event->instance->bill_microusd == told->bill_microusd;
        settling->settled[i] = same || (event->instance->end_ms != 0 && told->end_ms == 0);
    }
    return 0;
}

static int put_event(struct tm_record *record, int64_t utc_ms, Tmw__RecordEvent *event, struct tm_error *e)
{
    struct tm_text text;
    event->at_ms = utc_ms;
    tm_text_init(&text, INSTANCE_BYTES_MAX);
    tm_record_event_pack(event, &text);
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = record->append(record, text.data, text.length, false, NULL, e);
    tm_text_deinit(&text);
    return rc;
}

static int put_instance(struct tm_record *record, int64_t utc_ms, Tmw__Instance *instance, struct tm_error *e)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    event.body_case = TMW__RECORD_EVENT__BODY_INSTANCE;
    event.instance = instance;
    return put_event(record, utc_ms, &event, e);
}

static int put_bill(struct tm_record *record, int64_t utc_ms, const struct tm_run_bill *bill, uint64_t step,
                    struct tm_error *e)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__ProgressEvent body = TMW__PROGRESS_EVENT__INIT;
    body.step = step;
    body.bill_microusd = bill->microusd;
    body.on_demand_bill_microusd = bill->on_demand_microusd;
    body.settled = true;
    event.body_case = TMW__RECORD_EVENT__BODY_PROGRESS;
    event.progress = &body;
    return put_event(record, utc_ms, &event, e);
}

int tm_run_record__settle(const char *path, int64_t utc_ms, Tmw__Instance *const *instances, size_t count,
                          const struct tm_run_bill *bill, struct tm_error *e)
{
    struct settling settling = {.instances = instances, .count = count, .settled = tm_calloc(count + 1, sizeof(bool))};
    struct tm_record *record = NULL;
    int rc = settling.settled == NULL ? tm_error_nomem(e) : tm_record_open(path, &record, e);
    if (rc == 0) rc = tm_run_record__read(record, 0, SIZE_MAX, compare_each, &settling, e);
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (!settling.settled[i]) rc = put_instance(record, utc_ms, instances[i], e);
    bool known = bill == NULL || (settling.billed && settling.bill.microusd == bill->microusd);
    if (rc == 0 && !known) rc = put_bill(record, utc_ms, bill, settling.step, e);
    if (rc == 0) rc = record->flush(record, true, e);
    tm_record_close(record);
    tm_free(settling.settled);
    return rc;
}
