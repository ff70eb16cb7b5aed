/* Measured costs between files: from the record of a run to a cost file in its folder. */
#include "base/paths.h"
#include "run/measure.h"
#include "run/state_folder.h"
#include "store/record.h"

static int take_event(void *context, uint64_t sequence, const void *data, size_t length, struct tm_error *e)
{
    struct tm_arena arena;
    Tmw__RecordEvent *event = NULL;
    (void)sequence;
    tm_arena_init(&arena, 64 << 20);
    int rc = tm_record_event_unpack(data, length, &arena, &event, e);
    if (rc == 0) rc = tm_measure__take(context, event, e);
    tm_arena_deinit(&arena);
    return rc;
}

int tm_measure_record(const char *path, const struct tm_measure_options *options, struct tm_cost *out,
                      struct tm_error *e)
{
    struct tm_record *record = NULL;
    struct tm_measure *measure = tm_measure__create(options);
    int rc = measure == NULL ? tm_error_nomem(e) : tm_record_open_read(path, &record, e);
    if (rc == 0) rc = record->each(record, 0, SIZE_MAX, take_event, measure, e);
    if (rc == 0) rc = tm_measure__cost(measure, out, e);
    tm_record_close(record);
    tm_measure__destroy(measure);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "measuring migration costs of %s", path);
}

int tm_measure_save(struct tm_env *env, const char *state_dir, const char *model, const struct tm_cost *cost,
                    struct tm_error *e)
{
    struct tm_text text;
    struct tm_arena arena;
    char own[TM_STATE_PATH_MAX];
    tm_text_init(&text, TM_COST_BYTES_MAX);
    tm_arena_init(&arena, 1 << 20);
    tm_state_path(state_dir, TM_STATE_COST, own);
    tm_cost_print(cost, model, &text);
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = env->file_write(env, own, text.data, text.length, e);
    struct tm_error no_path = {.code = TM_OK};
    const char *shared = rc == 0 ? tm_path(env, TM_PATH_DATA, "measured.tmcost", &arena, &no_path) : NULL;
    if (shared != NULL)
        rc = env->file_write(env, shared, text.data, text.length, e);
    else if (rc == 0)
        rc = tm_error_set(e, no_path.code, "%s", no_path.text);
    tm_arena_deinit(&arena);
    tm_text_deinit(&text);
    return rc;
}
