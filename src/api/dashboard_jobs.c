#include "api/dashboard_internal.h"

#include "base/alloc.h"
#include "base/paths.h"
#include "run/find_run.h"
#include "run/run_places.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 500, RECORDS_AT_ONCE = 4, LIST_MS = 2000, STATUS_AGE_MS = 1000, SOON_MS = 50 };

/* ---- a run that does not go on: its record ---- */

static void drop_record(struct tm_dashboard_job *job)
{
    if (job->has_status) tm_run_status_deinit(&job->status);
    job->has_status = false;
    job->summary.known = false;
    job->tap.sequence = 0;
    tm_api__source_deinit(&job->source);
}

static const struct tm_run_status *tap_status(struct tm_run_tap *tap)
{
    struct tm_dashboard_job *job = tap->self;
    if (!job->has_status && tm_run_record_status(job->dir, &job->status, NULL) == 0) {
        job->has_status = true;
        job->tap.sequence = job->status.sequence;
    }
    return job->has_status ? &job->status : NULL;
}

static int tap_events(struct tm_run_tap *tap, uint64_t after, size_t max, tm_run_each_f each, void *context,
                      struct tm_error *e)
{
    struct tm_dashboard_job *job = tap->self;
    char path[TM_STATE_PATH_MAX];
    tm_state_path(job->dir, TM_STATE_RECORD, path);
    return tm_run_record_each(path, after, max, each, context, e);
}

static void tap_stop(struct tm_run_tap *tap, bool now)
{
    (void)tap;
    (void)now;
}

static int tap_steer(struct tm_run_tap *tap, const struct tm_steer_order *order, struct tm_error *e)
{
    (void)tap;
    (void)order;
    return tm_error_set(e, TM_EBUSY, "it is not running");
}

/* ---- which there are ---- */

static void destroy_job(struct tm_dashboard *d, struct tm_dashboard_job *job)
{
    tm_dashboard__forget_fetches(d, job);
    tm_dashboard__away_forget(d, job);
    drop_record(job);
    tm_free(job);
}

struct tm_dashboard_job *tm_dashboard__find(const struct tm_dashboard *d, const char *name)
{
    for (size_t i = 0; i < d->job_count; i++)
        if (strcmp(d->jobs[i]->name, name) == 0) return d->jobs[i];
    return NULL;
}

static bool is_run(struct tm_env *env, const char *dir)
{
    char path[TM_STATE_PATH_MAX];
    if (tm_state_check(dir, NULL) != 0) return false;
    tm_state_path(dir, TM_STATE_RECORD, path);
    return env->file_exists(env, path) || tm_run_is_away(env, dir);
}

/* Where memory is out it is not listed: the next search finds it. */
struct tm_dashboard_job *tm_dashboard__add(struct tm_dashboard *d, const char *name, const char *dir)
{
    void *array = d->jobs;
    struct tm_dashboard_job *job = NULL;
    if (strlen(name) >= TM_API_JOB_NAME_MAX || tm_grow(&array, &d->job_capacity, d->job_count + 1,
                                                       sizeof(struct tm_dashboard_job *), TM_DASHBOARD_JOBS_MAX) != 0)
        return NULL;
    d->jobs = array;
    job = tm_calloc(1, sizeof *job);
    if (job == NULL) return NULL;
    (void)snprintf(job->name, sizeof job->name, "%s", name);
    (void)snprintf(job->dir, sizeof job->dir, "%s", dir);
    job->seen = true;
    job->looked_ms = -1;
    job->tap = (struct tm_run_tap){
        .self = job, .status = tap_status, .events = tap_events, .stop = tap_stop, .steer = tap_steer};
    job->source = (struct tm_api_source){.env = d->env, .dir = job->dir, .tap = &job->tap};
    d->jobs[d->job_count++] = job;
    d->version++;
    return job;
}

static int take_name(void *context, const char *name, struct tm_error *e)
{
    struct tm_dashboard *d = context;
    char dir[TM_STATE_PATH_MAX];
    (void)e;
    if (name[0] == '.' || snprintf(dir, sizeof dir, "%s/%s", d->options.root, name) >= (int)sizeof dir) return 0;
    struct tm_dashboard_job *job = tm_dashboard__find(d, name);
    if (job != NULL && !job->elsewhere)
        job->seen = is_run(d->env, dir);
    else if (job == NULL && is_run(d->env, dir))
        (void)tm_dashboard__add(d, name, dir);
    return 0;
}

/* Named by their last part; where two have the same, a number follows. */
static void add_elsewhere(struct tm_dashboard *d, const char *dir)
{
    char name[TM_API_JOB_NAME_MAX];
    const char *base = tm_path_base(dir);
    for (size_t i = 0; i < d->job_count; i++)
        if (strcmp(d->jobs[i]->dir, dir) == 0) return;
    for (int i = 1; i < 100; i++) {
        (void)snprintf(name, sizeof name, i == 1 ? "%.200s" : "%.200s-%d", base, i);
        if (tm_dashboard__find(d, name) == NULL) break;
    }
    struct tm_dashboard_job *job = is_run(d->env, dir) ? tm_dashboard__add(d, name, dir) : NULL;
    if (job != NULL) job->elsewhere = true;
}

static int take_place(void *context, const char *dir, struct tm_error *e)
{
    (void)e;
    add_elsewhere(context, dir);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct tm_dashboard_job *const *x = a;
    const struct tm_dashboard_job *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

void tm_dashboard__search(struct tm_dashboard *d)
{
    size_t kept = 0;
    d->searched_ms = tm_dashboard__now_ms(d);
    for (size_t i = 0; i < d->job_count; i++)
        d->jobs[i]->seen = d->jobs[i]->elsewhere && is_run(d->env, d->jobs[i]->dir);
    (void)d->env->folder_each(d->env, d->options.root, take_name, d, NULL);
    for (size_t i = 0; i < d->options.dir_count; i++)
        add_elsewhere(d, d->options.dirs[i]);
    (void)tm_run_places_each(d->env, d->options.root, take_place, d, NULL);
    tm_dashboard__search_remotes(d);
    for (size_t i = 0; i < d->job_count; i++) {
        if (d->jobs[i]->seen)
            d->jobs[kept++] = d->jobs[i];
        else
            destroy_job(d, d->jobs[i]);
    }
    if (kept != d->job_count) d->version++;
    d->job_count = kept;
    if (kept > 0) qsort(d->jobs, kept, sizeof(struct tm_dashboard_job *), by_name);
}

void tm_dashboard__forget_jobs(struct tm_dashboard *d)
{
    for (size_t i = 0; i < d->job_count; i++)
        destroy_job(d, d->jobs[i]);
    d->job_count = 0;
    tm_free(d->jobs);
}

static int hex_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

struct tm_dashboard_job *tm_dashboard__job(struct tm_dashboard *d, struct tm_slice name)
{
    char text[TM_API_JOB_NAME_MAX];
    size_t length = 0;
    for (size_t i = 0; i < name.length && length + 1 < sizeof text; i++) {
        char c = name.at[i];
        if (c == '%' && i + 2 < name.length && hex_of(name.at[i + 1]) >= 0 && hex_of(name.at[i + 2]) >= 0) {
            c = (char)(hex_of(name.at[i + 1]) * 16 + hex_of(name.at[i + 2]));
            i += 2;
        }
        if (c == '\0') return NULL;
        text[length++] = c;
    }
    text[length] = '\0';
    return tm_dashboard__find(d, text);
}

/* Of one that another machine has nobody is asked here. `out_news`: what was read of it may be old. */
static bool is_owned(struct tm_dashboard *d, struct tm_dashboard_job *job, bool *out_news)
{
    *out_news = false;
    if (tm_run_is_away(d->env, job->dir)) return tm_dashboard__away_look(d, job, out_news);
    if (job->away != NULL) { /* it is run here now */
        tm_dashboard__forget_fetches(d, job);
        tm_dashboard__away_forget(d, job);
        *out_news = true;
    }
    return tm_run_is_owned(d->env, job->dir);
}

static bool answers(const struct tm_dashboard_job *job)
{
    return job->owned && (job->away == NULL || !job->away->silent);
}

/* Once it goes on or has ended, what was known is of another time. */
bool tm_dashboard__is_live(struct tm_dashboard *d, struct tm_dashboard_job *job)
{
    int64_t now_ms = tm_dashboard__now_ms(d);
    bool news = false;
    if (job->remote != NULL) return true; /* there somebody answers for it, whether it goes on or not */
    if (job->looked_ms >= 0 && now_ms - job->looked_ms < LOOK_MS) return answers(job);
    bool owned = is_owned(d, job, &news);
    struct tm_hash stamp = job->away != NULL ? job->stamp : tm_run_stamp(d->env, job->dir);
    /* Also where it went on and ended between two looks. */
    if (owned != job->owned || job->looked_ms < 0 || !tm_hash_equal(stamp, job->stamp)) {
        tm_dashboard__forget_fetches(d, job);
        if (job->away != NULL) job->away->silent = false;
        news = true;
    }
    if (news) drop_record(job);
    if (news) d->version++;
    job->owned = owned;
    job->stamp = stamp;
    job->looked_ms = now_ms;
    return answers(job);
}

/* ---- the list ---- */

static void summarize(const struct tm_run_status *s, bool live, struct tm_dashboard_summary *out)
{
    *out = (struct tm_dashboard_summary){.known = true,
                                         .live = live,
                                         .state = s->state,
                                         .steps = s->job.steps,
                                         .committed = s->committed,
                                         .durable = s->durable,
                                         .samples_per_step = s->job.samples_per_step,
                                         .loss = s->loss,
                                         .steps_s = s->steps_s,
                                         .tokens_s = s->steps_s * (double)s->job.tokens_per_step,
                                         .bill_usd = s->bill_usd,
                                         .on_demand_usd = s->on_demand_usd,
                                         .left_s = s->left_s,
                                         .left_low_s = s->left_low_s,
                                         .left_high_s = s->left_high_s,
                                         .wall_s = s->wall_s,
                                         .here = s->here,
                                         .noticed = s->noticed,
                                         .begun_utc_ms = s->begun_utc_ms,
                                         .utc_ms = s->utc_ms};
}

static void summarize_record(struct tm_dashboard_job *job)
{
    const struct tm_run_status *own = tap_status(&job->tap);
    if (own != NULL) summarize(own, false, &job->summary);
}

/* False: wait for it. */
static bool look_at(struct tm_dashboard *d, struct tm_dashboard_job *job, size_t *records)
{
    struct tm_run_status status;
    if (!tm_dashboard__is_live(d, job)) {
        if (job->summary.known && !job->summary.live) return true;
        if ((*records)++ >= RECORDS_AT_ONCE) return false;
        summarize_record(job);
        return true;
    }
    const struct tm_fetch *fetch = tm_dashboard__fetch(d, job, "GET", "/v1/status", STATUS_AGE_MS);
    if (fetch == NULL) return false;
    if (fetch->status == 0 && job->away != NULL) summarize_record(job);
    if (fetch->status == 200 &&
        tm_run_status_read("status", tm_text_string(&fetch->body), fetch->body.length, &status, NULL) == 0) {
        summarize(&status, job->remote == NULL || status.live, &job->summary);
        if (job->remote != NULL) job->owned = status.live;
        tm_run_status_deinit(&status);
    }
    return true;
}

static void write_job(const struct tm_dashboard_job *job, struct tm_jsonout *json)
{
    const struct tm_dashboard_summary *s = &job->summary;
    double samples = (double)s->committed * (double)s->samples_per_step;
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "name", job->name);
    tm_jsonout_string(json, "folder", job->dir);
    tm_jsonout_bool(json, "live", job->owned);
    tm_jsonout_string(json, "state", s->known ? tm_job_state_name(s->state) : NULL);
    tm_jsonout_integer(json, "steps", (int64_t)s->steps);
    tm_jsonout_integer(json, "committed", (int64_t)s->committed);
    tm_jsonout_integer(json, "durable", (int64_t)s->durable);
    tm_jsonout_number(json, "loss", s->known ? s->loss : NAN);
    tm_jsonout_number(json, "steps_per_s", s->steps_s);
    tm_jsonout_number(json, "tokens_per_s", s->tokens_s);
    tm_jsonout_number(json, "bill_usd", s->bill_usd);
    tm_jsonout_number(json, "on_demand_usd", s->known ? s->on_demand_usd : NAN);
    tm_jsonout_number(json, "usd_per_million_samples", samples > 0 ? s->bill_usd / samples * 1e6 : NAN);
    tm_jsonout_number(json, "left_s", s->known ? s->left_s : NAN);
    tm_jsonout_number(json, "left_low_s", s->known ? s->left_low_s : NAN);
    tm_jsonout_number(json, "left_high_s", s->known ? s->left_high_s : NAN);
    tm_jsonout_integer(json, "here", s->here);
    tm_jsonout_integer(json, "noticed", s->noticed);
    tm_jsonout_number(json, "wall_s", s->wall_s);
    tm_jsonout_integer(json, "begun_utc_ms", s->begun_utc_ms);
    tm_jsonout_integer(json, "utc_ms", s->utc_ms);
    tm_jsonout_end(json);
}

int64_t tm_dashboard__list(struct tm_dashboard *d, const struct tm_api_asked *asked,
                           const struct tm_http_request *request, struct tm_api_content *out)
{
    size_t after = (size_t)tm_api__param(asked, "after");
    size_t limit = (size_t)tm_api__param(asked, "limit");
    size_t records = 0;
    bool all = true;
    struct tm_jsonout json;
    if (after > d->job_count) after = d->job_count;
    size_t end = limit < d->job_count - after ? after + limit : d->job_count;
    if (request->cursor[0] == 0) request->cursor[0] = (uint64_t)request->now_ms + LIST_MS; /* patience */
    for (size_t i = after; i < end; i++)
        all = look_at(d, d->jobs[i], &records) && all;
    if (!all && (uint64_t)request->now_ms < request->cursor[0]) return records > RECORDS_AT_ONCE ? 1 : SOON_MS;
    tm_jsonout_init(&json, &out->body);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_list(&json, "jobs");
    for (size_t i = after; i < end; i++)
        write_job(d->jobs[i], &json);
    tm_jsonout_end(&json);
    if (end < d->job_count)
        tm_jsonout_integer(&json, "next", (int64_t)end);
    else
        tm_jsonout_null(&json, "next");
    tm_jsonout_end(&json);
    return 0;
}
