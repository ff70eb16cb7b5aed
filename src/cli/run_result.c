#include "cli/run_result.h"

#include "run/run_tap.h"
#include "run/state_folder.h"

struct search {
    uint64_t step;
    uint64_t set; /* 0: none so far */
};

static int look(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct search *search = context;
    (void)sequence;
    (void)e;
    if (event->body_case == TMW__RECORD_EVENT__BODY_SET_BAD && event->set_bad == search->set) search->set = 0;
    if (event->body_case != TMW__RECORD_EVENT__BODY_SET_WHOLE || event->set_whole->step != search->step) return 0;
    for (size_t i = 0; i < event->set_whole->n_parts; i++)
        if (event->set_whole->parts[i]->holder == 0) search->set = event->set_whole->set; /* in files */
    return 0;
}

int tm_run_result_set(const char *dir, uint64_t step, uint64_t *out_set, struct tm_error *e)
{
    struct search search = {.step = step};
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, TM_STATE_RECORD, path);
    int rc = tm_run_record_each(path, 0, SIZE_MAX, look, &search, e);
    if (rc == 0 && search.set == 0)
        rc = tm_error_set(e, TM_ENOTFOUND, "no copy of step %llu is in files", (unsigned long long)step);
    if (rc == 0) *out_set = search.set;
    return rc;
}
