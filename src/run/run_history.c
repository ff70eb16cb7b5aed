#include "run/run_history.h"

#include "base/alloc.h"
#include "run/outlook.h"

#include <math.h>
#include <string.h>

/* A list that grows; NULL: no memory, or TM_HISTORY_POINTS_MAX is reached (then it is dropped: the picture ends there).
 */
#define APPEND(list, count, capacity, rc)                                                                              \
    (((rc) = tm_grow((void **)&(list), &(capacity), (count) + 1, sizeof *(list), TM_HISTORY_POINTS_MAX)) == 0          \
         ? &(list)[(count)++]                                                                                          \
         : NULL)

struct pool_now {
    bool known;
    uint32_t want, here;
};

struct tm_run_historian {
    struct tm_run_history history;
    struct tm_run_watch *watch;
    size_t fleet_capacity, pool_capacity, layout_capacity, progress_capacity, bill_capacity, pause_capacity,
        instance_capacity, event_capacity;
    double time_s; /* of the event that is taken */
    struct pool_now pools[TM_RUN_POOLS_MAX];
    bool trains; /* the last layout goes on */
    bool waits;  /* the last pause goes on */
    double bill_usd;
    double on_demand_usd;
    bool told; /* what goes on was given an end, and the curve of the cost was settled, by these */
    double paid_scale;
    double on_demand_scale;
    struct tm_outlook outlook;
    double forecast_every_s;
    double begun_s; /* start-up or a resumed run: since when; NaN: it trains */
};

struct tm_run_historian *tm_run_historian_create(void)
{
    struct tm_run_historian *h = tm_calloc(1, sizeof *h);
    if (h == NULL) return NULL;
    h->watch = tm_run_watch_create();
    if (h->watch == NULL) {
        tm_free(h);
        return NULL;
    }
    return h;
}

void tm_run_historian_destroy(struct tm_run_historian *h)
{
    if (h == NULL) return;
    for (size_t i = 0; i < h->history.event_count; i++)
        tm_free(h->history.events[i].text);
    tm_free(h->history.fleet);
    tm_free(h->history.pools);
    tm_free(h->history.layouts);
    tm_free(h->history.progress);
    tm_free(h->history.bill);
    tm_free(h->history.pauses);
    tm_free(h->history.instances);
    tm_free(h->history.events);
    tm_run_watch_destroy(h->watch);
    tm_free(h);
}

/* ---- what there was ---- */

static int add_fleet(struct tm_run_historian *h, const struct tm_run_status *s)
{
    struct tm_run_history *all = &h->history;
    int rc = 0;
    const struct tm_history_fleet *last = all->fleet_count == 0 ? NULL : &all->fleet[all->fleet_count - 1];
    if (last != NULL && last->here == s->here && last->noticed == s->noticed) return 0;
    struct tm_history_fleet *fleet = APPEND(all->fleet, all->fleet_count, h->fleet_capacity, rc);
    if (fleet != NULL) *fleet = (struct tm_history_fleet){.time_s = h->time_s, .here = s->here, .noticed = s->noticed};
    return rc;
}

/* Without a choice of pools the two markets stand for them. */
static uint32_t pool_of(const struct tm_run_status *s, const struct tm_run_instance *instance)
{
    return s->job.pool_count > 0 ? instance->pool : !instance->spot;
}

static int add_pool(struct tm_run_historian *h, uint32_t pool, uint32_t want, uint32_t here)
{
    struct tm_run_history *all = &h->history;
    int rc = 0;
    struct pool_now *now = &h->pools[pool];
    if (now->known ? now->want == want && now->here == here : want == 0 && here == 0) return 0;
    *now = (struct pool_now){.known = true, .want = want, .here = here};
    struct tm_history_pool *point = APPEND(all->pools, all->pool_count, h->pool_capacity, rc);
    if (point != NULL)
        *point = (struct tm_history_pool){
            .time_s = h->time_s, .pool = pool, .want = want, .here = here, .usd = all->pool_usd[pool]};
    return rc;
}

/* What is wanted of each pool, and there. */
static int add_pools(struct tm_run_historian *h, const struct tm_run_status *s)
{
    int rc = 0;
    if (s->job.pool_count > 0) {
        for (uint32_t i = 0; rc == 0 && i < s->job.pool_count; i++)
            rc = add_pool(h, i, s->pools[i].want, s->pools[i].here);
        return rc;
    }
    uint32_t here[2] = {0, 0};
    for (size_t i = 0; i < s->instance_count; i++)
        here[pool_of(s, &s->instances[i])] += tm_run_instance_is_here(&s->instances[i]);
    rc = add_pool(h, 0, s->want_spot, here[0]);
    return rc != 0 ? rc : add_pool(h, 1, s->want_on_demand, here[1]);
}

/* Bills are told now and then, instance by instance; between, time at its price is added up. */
static void accrue(struct tm_run_historian *h, double time_s)
{
    const struct tm_run_status *s = h->history.status;
    if (s == NULL || time_s <= h->time_s) return;
    double hours = (time_s - h->time_s) * s->job.speed / 3600;
    for (size_t i = 0; i < s->instance_count; i++) {
        if (!tm_run_instance_is_here(&s->instances[i])) continue;
        if (!isnan(s->instances[i].price_usd_h)) {
            h->bill_usd += hours * s->instances[i].price_usd_h;
            h->history.pool_usd[pool_of(s, &s->instances[i])] += hours * s->instances[i].price_usd_h;
        }
        double on_demand_usd_h = tm_run__on_demand_usd_h(s, &s->instances[i]);
        if (!isnan(on_demand_usd_h)) h->on_demand_usd += hours * on_demand_usd_h;
    }
}

static int add_bill(struct tm_run_historian *h)
{
    struct tm_run_history *all = &h->history;
    int rc = 0;
    struct tm_history_bill *bill = all->bill_count == 0 ? NULL : &all->bill[all->bill_count - 1];
    if (bill == NULL || bill->time_s < h->time_s) bill = APPEND(all->bill, all->bill_count, h->bill_capacity, rc);
    if (bill != NULL)
        *bill =
            (struct tm_history_bill){.time_s = h->time_s, .bill_usd = h->bill_usd, .on_demand_usd = h->on_demand_usd};
    return rc;
}

/* The cloud's own count is the truth: the curve ends there. */
static void settle_bill(struct tm_run_historian *h)
{
    struct tm_run_history *all = &h->history;
    h->paid_scale = h->bill_usd > 0 && all->status->bill_usd > 0 ? all->status->bill_usd / h->bill_usd : 1;
    all->pool_scale = h->paid_scale;
    h->on_demand_scale =
        h->on_demand_usd > 0 && !(all->status->on_demand_usd <= 0) ? all->status->on_demand_usd / h->on_demand_usd : 1;
    for (size_t i = 0; i < all->bill_count; i++) {
        all->bill[i].bill_usd *= h->paid_scale;
        all->bill[i].on_demand_usd *= h->on_demand_scale;
    }
}

/* There is more to take. */
static void untell(struct tm_run_historian *h)
{
    struct tm_run_history *all = &h->history;
    if (!h->told) return;
    h->told = false;
    for (size_t i = 0; i < all->bill_count; i++) {
        all->bill[i].bill_usd /= h->paid_scale;
        all->bill[i].on_demand_usd =
            isnan(h->on_demand_scale) ? h->on_demand_usd : all->bill[i].on_demand_usd / h->on_demand_scale;
    }
    for (size_t i = 0; i < all->instance_count; i++)
        if (all->instances[i].state == TM_INSTANCE_RUNNING) all->instances[i].to_s = NAN;
}

static struct tm_history_instance *find_instance(struct tm_run_history *all, uint64_t id)
{
    for (size_t i = all->instance_count; i-- > 0;)
        if (all->instances[i].id == id) return &all->instances[i];
    return NULL;
}

static int add_instance(struct tm_run_historian *h, uint64_t id, struct tm_history_instance **out)
{
    struct tm_run_history *all = &h->history;
    int rc = 0;
    *out = find_instance(all, id);
    if (*out != NULL) return 0;
    *out = APPEND(all->instances, all->instance_count, h->instance_capacity, rc);
    if (*out != NULL)
        **out = (struct tm_history_instance){
            .id = id, .from_s = h->time_s, .to_s = NAN, .notice_s = NAN, .state = TM_INSTANCE_RUNNING};
    return rc;
}

static int take_instance(struct tm_run_historian *h, const Tmw__Instance *body)
{
    struct tm_history_instance *instance = NULL;
    int rc = add_instance(h, body->id, &instance);
    if (instance == NULL) return rc;
    instance->spot = body->spot;
    instance->bill_usd = (double)body->bill_microusd / 1e6;
    if (body->announced && isnan(instance->notice_s)) instance->notice_s = h->time_s;
    if (body->end_ms == 0 || !isnan(instance->to_s)) return 0;
    instance->to_s = h->time_s;
    instance->announced = body->announced;
    instance->state = body->released ? TM_INSTANCE_RELEASED : TM_INSTANCE_LOST;
    return 0;
}

/* Without a cloud, a worker stands for its instance. */
static int take_worker(struct tm_run_historian *h, uint64_t id, bool lost, bool announced)
{
    const struct tm_run_status *s = h->history.status;
    struct tm_history_instance *instance = NULL;
    for (size_t i = 0; s != NULL && i < s->instance_count; i++)
        if (s->instances[i].id == id && s->instances[i].start_ms != 0) return 0; /* the cloud tells of it */
    int rc = add_instance(h, id, &instance);
    if (instance == NULL) return rc;
    instance->to_s = lost ? h->time_s : NAN;
    instance->state = lost ? TM_INSTANCE_LOST : TM_INSTANCE_RUNNING;
    instance->announced = lost && announced;
    return 0;
}

/* ---- generations and pauses ---- */

static int add_pause(struct tm_run_historian *h, double from_s, double to_s, enum tm_change_cause cause)
{
    struct tm_run_history *all = &h->history;
    int rc = 0;
    struct tm_history_pause *pause = APPEND(all->pauses, all->pause_count, h->pause_capacity, rc);
    if (pause != NULL)
        *pause = (struct tm_history_pause){.from_s = from_s > 0 ? from_s : 0, .to_s = to_s, .cause = cause};
    return rc;
}

static void end_layout(struct tm_run_historian *h)
{
    struct tm_run_history *all = &h->history;
    if (h->trains) all->layouts[all->layout_count - 1].to_s = h->time_s;
    h->trains = false;
}

static void end_waiting(struct tm_run_historian *h)
{
    if (h->waits) h->history.pauses[h->history.pause_count - 1].to_s = h->time_s;
    h->waits = false;
}

static int take_generation(struct tm_run_historian *h, const Tmw__GenerationEvent *body)
{
    struct tm_run_history *all = &h->history;
    const struct tm_run_status *s = all->status;
    int rc = 0;
    end_layout(h);
    if (!body->started || body->layout == NULL) return 0;
    end_waiting(h);
    if (!isnan(h->begun_s)) rc = add_pause(h, h->begun_s, h->time_s, TM_CHANGED_BEGIN);
    h->begun_s = NAN;
    if (rc != 0) return rc;
    struct tm_history_layout *layout = APPEND(all->layouts, all->layout_count, h->layout_capacity, rc);
    if (layout == NULL) return rc;
    *layout = (struct tm_history_layout){.from_s = h->time_s,
                                         .to_s = NAN,
                                         .generation = body->generation,
                                         .pipelines = s->pipelines,
                                         .stages = s->stages,
                                         .spares = s->spares};
    h->trains = true;
    return 0;
}

static int take_state(struct tm_run_historian *h, enum tm_job_state state)
{
    if (state != TM_JOB_WAITING) end_waiting(h);
    if (state == TM_JOB_STOPPED) h->begun_s = h->time_s; /* going on begins here */
    if (state == TM_JOB_STOPPED || state == TM_JOB_FINISHED || state == TM_JOB_FAILED) end_layout(h);
    if (state != TM_JOB_WAITING || h->waits) return 0;
    int rc = add_pause(h, h->time_s, NAN, TM_CHANGED_NONE);
    h->waits = rc == 0;
    return rc;
}

static int take_pause(struct tm_run_historian *h, uint64_t generation)
{
    const struct tm_run_status *s = h->history.status;
    if (s->pause_count == 0 || s->pauses[s->pause_count - 1].generation != generation) return 0; /* start-up */
    const struct tm_run_pause *pause = &s->pauses[s->pause_count - 1];
    double end_s = h->time_s - (double)(s->utc_ms - pause->end_utc_ms) / 1000;
    return add_pause(h, end_s - pause->pause_s, end_s, pause->cause);
}

/* A few, however long it goes on: where there are too many every second one goes. */
static void keep_forecast(struct tm_run_historian *h, uint64_t step)
{
    struct tm_run_history *all = &h->history;
    uint64_t steps = all->status->job.steps;
    size_t count = all->forecast_count;
    tm_outlook__keep(&h->outlook, h->time_s, (double)step);
    if (step >= steps || (count > 0 && h->time_s - all->forecasts[count - 1].time_s < h->forecast_every_s)) return;
    double low_s = tm_outlook__left_s(&h->outlook, (double)(steps - step), 0.1);
    double high_s = tm_outlook__left_s(&h->outlook, (double)(steps - step), 0.9);
    if (isnan(low_s) || isnan(high_s)) return;
    if (count == TM_HISTORY_FORECASTS_MAX) {
        for (count = 0; count < TM_HISTORY_FORECASTS_MAX / 2; count++)
            all->forecasts[count] = all->forecasts[2 * count];
        h->forecast_every_s =
            2 * (all->forecasts[count - 1].time_s - all->forecasts[0].time_s) / TM_HISTORY_FORECASTS_MAX;
    }
    all->forecasts[count] = (struct tm_history_forecast){
        .time_s = h->time_s, .step = step, .low_s = h->time_s + low_s, .high_s = h->time_s + high_s};
    all->forecast_count = count + 1;
}

static int take_progress(struct tm_run_historian *h, const Tmw__ProgressEvent *body)
{
    struct tm_run_history *all = &h->history;
    int rc = 0;
    struct tm_history_progress *progress = APPEND(all->progress, all->progress_count, h->progress_capacity, rc);
    if (progress != NULL)
        *progress = (struct tm_history_progress){.time_s = h->time_s,
                                                 .step = body->step,
                                                 .loss = body->loss_known ? body->loss : NAN,
                                                 .step_s = body->step_ms > 0 ? body->step_ms / 1000.0 : NAN};
    keep_forecast(h, body->step);
    return rc;
}

/* ---- copies ---- */

static void drop_copy(struct tm_run_history *all, uint64_t set)
{
    size_t kept = 0;
    for (size_t i = 0; i < all->copy_count; i++)
        if (all->copies[i].set != set) all->copies[kept++] = all->copies[i];
    all->copy_count = kept;
}

static void take_copy(struct tm_run_history *all, int64_t utc_ms, const Tmw__CopySet *set)
{
    drop_copy(all, set->set);
    if (all->copy_count == TM_HISTORY_COPIES_MAX) drop_copy(all, all->copies[0].set);
    struct tm_history_copy *copy = &all->copies[all->copy_count++];
    *copy = (struct tm_history_copy){.set = set->set, .step = set->step, .utc_ms = utc_ms, .took_ms = set->took_ms};
    copy->holder_count = tm_run__set_holders(set, copy->holders);
}

/* ---- events ---- */

static int take_body(struct tm_run_historian *h, const Tmw__RecordEvent *event)
{
    switch (event->body_case) {
    case TMW__RECORD_EVENT__BODY_INSTANCE:
        return take_instance(h, event->instance);
    case TMW__RECORD_EVENT__BODY_ARRIVAL:
        return take_worker(h, event->arrival->instance, false, false);
    case TMW__RECORD_EVENT__BODY_LOSS:
        return take_worker(h, event->loss->instance, true, event->loss->announced);
    case TMW__RECORD_EVENT__BODY_GENERATION:
        return take_generation(h, event->generation);
    case TMW__RECORD_EVENT__BODY_STATE:
        return take_state(h, (enum tm_job_state)event->state->state);
    case TMW__RECORD_EVENT__BODY_FINISHED_STEP:
        return take_state(h, TM_JOB_FINISHED);
    case TMW__RECORD_EVENT__BODY_PAUSE:
        return take_pause(h, event->pause->generation);
    case TMW__RECORD_EVENT__BODY_PROGRESS:
        return take_progress(h, event->progress);
    case TMW__RECORD_EVENT__BODY_SET_WHOLE:
        take_copy(&h->history, event->at_ms, event->set_whole);
        return 0;
    case TMW__RECORD_EVENT__BODY_SET_BAD:
        drop_copy(&h->history, event->set_bad);
        return 0;
    default:
        return 0;
    }
}

static int keep_event(struct tm_run_historian *h, const Tmw__RecordEvent *event)
{
    struct tm_run_history *all = &h->history;
    struct tm_text words;
    int rc = 0;
    if (tm_run_event_quiet(event)) return 0;
    if (all->event_count == TM_HISTORY_EVENTS_MAX) {
        all->events_left_out++;
        return 0;
    }
    tm_text_init(&words, 4096);
    tm_run_event_words(event, &words);
    char *text = words.failed == 0 ? tm_strndup(tm_text_string(&words), words.length) : NULL;
    struct tm_history_event *kept = text == NULL ? NULL : APPEND(all->events, all->event_count, h->event_capacity, rc);
    if (kept != NULL)
        *kept = (struct tm_history_event){.time_s = h->time_s, .kind = tm_run_event_kind(event), .text = text};
    else
        tm_free(text);
    tm_text_deinit(&words);
    return text == NULL ? -(int)TM_ENOMEM : rc;
}

int tm_run_historian_take(struct tm_run_historian *h, uint64_t sequence, const Tmw__RecordEvent *event,
                          struct tm_error *e)
{
    untell(h);
    accrue(h, tm_run_watch__wall_s(h->watch, event->at_ms));
    int rc = tm_run_watch_take(h->watch, sequence, event, e);
    if (rc != 0) return rc;
    const struct tm_run_status *s = tm_run_watch_status(h->watch);
    h->history.status = s;
    h->time_s = s->wall_s;
    rc = take_body(h, event);
    bool fleet = event->body_case == TMW__RECORD_EVENT__BODY_INSTANCE ||
                 event->body_case == TMW__RECORD_EVENT__BODY_ARRIVAL ||
                 event->body_case == TMW__RECORD_EVENT__BODY_LOSS || event->body_case == TMW__RECORD_EVENT__BODY_NOTICE;
    if (rc == 0 && fleet) rc = add_fleet(h, s);
    if (rc == 0 && (fleet || event->body_case == TMW__RECORD_EVENT__BODY_RENT)) rc = add_pools(h, s);
    if (rc == 0 && event->body_case == TMW__RECORD_EVENT__BODY_INSTANCE) rc = add_bill(h);
    if (rc == 0) rc = keep_event(h, event);
    return rc == -(int)TM_ENOMEM ? tm_error_nomem(e) : 0;
}

const struct tm_run_history *tm_run_historian_tell(struct tm_run_historian *h)
{
    struct tm_run_history *all = &h->history;
    all->status = tm_run_watch_status(h->watch);
    double end_s = all->status->wall_s;
    untell(h);
    settle_bill(h);
    h->told = true;
    if (h->trains) all->layouts[all->layout_count - 1].to_s = end_s;
    if (h->waits) all->pauses[all->pause_count - 1].to_s = end_s;
    for (size_t i = 0; i < all->instance_count; i++)
        if (isnan(all->instances[i].to_s)) all->instances[i].to_s = end_s;
    return all;
}
