/* Making a run's status: events one by one, then what the coordinator says of now. The header defines the counts. */
#include "run/run_status.h"

#include "base/alloc.h"
#include "base/term.h"
#include "run/outlook.h"
#include "wire/hash.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PAUSES_MAX = 1 << 20, INSTANCES_MAX = 1 << 16, RATE_SAMPLES = 64, ZONES_MAX = 256, RATE_WINDOW_MS = 10000 };

struct rate_sample {
    int64_t utc_ms;
    uint64_t step;
};

/* Pauses by size, so that the median is at hand. */
struct sorted {
    double *sizes; /* owned */
    size_t count;
    size_t capacity;
};

/* What the number of a zone means. */
struct zone {
    uint32_t number;
    char name[TM_RUN_ZONE_MAX];
};

struct tm_run_watch {
    struct tm_run_status status;
    int64_t event_utc_ms; /* of the last event */
    int64_t wall_ms;      /* up to it */

    struct rate_sample samples[RATE_SAMPLES]; /* of this generation; oldest first */
    size_t sample_count;
    uint64_t loss_seen;
    uint64_t loss_stride; /* every how many-th loss becomes a point */

    int64_t waiting_since_ms; /* UTC; 0: it is not waiting */
    int64_t waiting_ms;       /* in all, spells that are over */
    int64_t pause_waited_ms;  /* since the last pause ended */
    struct sorted all_pauses;
    struct sorted recoveries;

    bool cloud_tells;     /* of instances */
    double told_bill_usd; /* by the coordinator, or by events: newer than what is known of each instance; 0: not told */
    double traffic_usd[TM_RUN_POOLS_MAX]; /* by pool, beside all bills: of gradients from region to region */
    bool bill_settled;                    /* it is the bill, whatever was said before */
    uint64_t workers_arrived;
    uint64_t workers_announced; /* losses of workers, with a notice ... */
    uint64_t workers_unannounced;
    int64_t cloud_utc_ms; /* when it was ... */
    int64_t cloud_ms;     /* ... that time in the cloud */
    bool deadline_ordered;
    bool budget_ordered;
    struct tm_outlook outlook;
    struct zone zones[ZONES_MAX]; /* a ring: the newest */
    size_t zone_count;
};

static void begin(struct tm_run_watch *watch)
{
    *watch = (struct tm_run_watch){.loss_stride = 1};
    struct tm_run_status *s = &watch->status;
    s->job.speed = 1;
    s->loss = s->step_s = s->on_demand_usd = s->spot_usd_h = s->on_demand_usd_h = NAN;
    s->deadline_s = s->budget_usd = s->left_s = s->left_low_s = s->left_high_s = NAN;
    s->pause = s->recovery = (struct tm_run_spread){.p50_s = NAN, .max_s = NAN};
}

struct tm_run_watch *tm_run_watch_create(void)
{
    struct tm_run_watch *watch = tm_calloc(1, sizeof *watch);
    if (watch != NULL) begin(watch);
    return watch;
}

void tm_run_watch_destroy(struct tm_run_watch *watch)
{
    if (watch == NULL) return;
    tm_run_status_deinit(&watch->status);
    tm_free(watch->all_pauses.sizes);
    tm_free(watch->recoveries.sizes);
    tm_free(watch);
}

/* Text from the record: printable, cut to its place. */
static void copy_text(char *out, size_t size, const char *text)
{
    struct tm_text safe;
    tm_text_init(&safe, 4096);
    tm_term_put_safe(&safe, text, strnlen(text, size - 1));
    (void)snprintf(out, size, "%s", tm_text_string(&safe));
    tm_text_deinit(&safe);
}

static bool has_ended(enum tm_job_state state)
{
    return state == TM_JOB_STOPPED || state == TM_JOB_FINISHED || state == TM_JOB_FAILED;
}

/* ---- steps ---- */

static void sample_rate(struct tm_run_watch *watch, int64_t utc_ms, uint64_t step)
{
    struct rate_sample *samples = watch->samples;
    size_t count = watch->sample_count;
    if (count > 0 && step <= samples[count - 1].step) return;
    while (count > 1 && utc_ms - samples[1].utc_ms > RATE_WINDOW_MS)
        memmove(samples, samples + 1, --count * sizeof *samples);
    if (count == RATE_SAMPLES) memmove(samples, samples + 1, --count * sizeof *samples);
    samples[count++] = (struct rate_sample){.utc_ms = utc_ms, .step = step};
    watch->sample_count = count;
}

static void committed(struct tm_run_watch *watch, int64_t utc_ms, uint64_t step)
{
    if (step > watch->status.committed) watch->status.committed = step;
    sample_rate(watch, utc_ms, step);
}

static void set_rate(struct tm_run_watch *watch)
{
    struct tm_run_status *s = &watch->status;
    s->steps_s = 0;
    if (s->state != TM_JOB_TRAINING && s->state != TM_JOB_STOPPING) return;
    const struct rate_sample *first = &watch->samples[0];
    const struct rate_sample *last = &watch->samples[watch->sample_count > 0 ? watch->sample_count - 1 : 0];
    int64_t end_ms = s->utc_ms - last->utc_ms > RATE_WINDOW_MS ? s->utc_ms : last->utc_ms; /* it stands still */
    if (watch->sample_count > 1 && end_ms > first->utc_ms)
        s->steps_s = (double)(last->step - first->step) * 1000 / (double)(end_ms - first->utc_ms);
    else if (s->step_s > 0)
        s->steps_s = 1 / s->step_s;
}

/* Where little was seen, the throughput of the last seconds is all there is to go by. */
static void set_left(struct tm_run_watch *watch)
{
    struct tm_run_status *s = &watch->status;
    double steps = (double)s->job.steps - (double)s->committed;
    s->left_s = s->left_low_s = s->left_high_s = NAN;
    if (!s->live || steps <= 0 || has_ended(s->state)) return;
    tm_outlook__keep(&watch->outlook, s->wall_s, (double)s->committed);
    s->left_s = tm_outlook__left_s(&watch->outlook, steps, 0.5);
    s->left_low_s = tm_outlook__left_s(&watch->outlook, steps, 0.1);
    s->left_high_s = tm_outlook__left_s(&watch->outlook, steps, 0.9);
    if (isnan(s->left_s) && s->steps_s > 0) s->left_s = steps / s->steps_s;
}

static void add_loss(struct tm_run_watch *watch, uint64_t step, double loss)
{
    struct tm_run_status *s = &watch->status;
    s->loss = loss;
    if (s->point_count > 0 && step <= s->points[s->point_count - 1].step) return; /* done again: the same bits */
    if (watch->loss_seen++ % watch->loss_stride != 0) return;
    if (s->point_count == TM_STATUS_LOSS_POINTS) {
        for (size_t i = 0; i < TM_STATUS_LOSS_POINTS / 2; i++)
            s->points[i] = s->points[2 * i];
        s->point_count = TM_STATUS_LOSS_POINTS / 2;
        watch->loss_stride *= 2;
    }
    s->points[s->point_count++] = (struct tm_step_loss){.step = step, .loss = loss};
}

static void take_progress(struct tm_run_watch *watch, int64_t at_ms, const Tmw__ProgressEvent *body)
{
    if (body->step_ms > 0) watch->status.step_s = body->step_ms / 1000.0;
    if (body->loss_known) add_loss(watch, body->step, body->loss);
    committed(watch, at_ms, body->step);
    tm_outlook__keep(&watch->outlook, (double)watch->wall_ms / 1000, (double)watch->status.committed);
    double bill_usd = (double)body->bill_microusd / 1e6;
    watch->bill_settled = body->settled;
    watch->told_bill_usd = body->settled ? bill_usd : fmax(watch->told_bill_usd, bill_usd);
    for (size_t i = 0; i < body->n_pool_traffic_microusd && i < TM_RUN_POOLS_MAX; i++)
        watch->traffic_usd[i] = (double)body->pool_traffic_microusd[i] / 1e6;
}

/* By layer, each once: which copy does not matter, they are the same bytes. */
static int take_set(struct tm_run_watch *watch, int64_t at_ms, const Tmw__CopySet *body, struct tm_error *e)
{
    struct tm_run_status *s = &watch->status;
    if (body->step > s->durable) s->durable = body->step;
    committed(watch, at_ms, body->step);
    if (s->job.layers == 0 || s->job.layers > TM_LAYERS_MAX || body->step != s->job.steps) return 0;
    struct tm_hash *hashes = tm_calloc(s->job.layers, sizeof *hashes);
    if (hashes == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < body->n_parts; i++) {
        const Tmw__CopyPart *part = body->parts[i];
        if (part->layer < s->job.layers)
            hashes[part->layer] = (struct tm_hash){.low = part->hash_low, .high = part->hash_high};
    }
    struct tm_hash all = tm_hash_of(hashes, s->job.layers * sizeof *hashes);
    (void)snprintf(s->state_hash, sizeof s->state_hash, "%016llx%016llx", (unsigned long long)all.high,
                   (unsigned long long)all.low);
    tm_free(hashes);
    return 0;
}

/* ---- instances ---- */

static struct tm_run_instance *find_instance(struct tm_run_status *s, uint64_t id)
{
    size_t low = 0;
    size_t high = s->instance_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->instances[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->instance_count && s->instances[low].id == id ? &s->instances[low] : NULL;
}

/* It, made if need be; NULL: no memory. */
static struct tm_run_instance *instance_of(struct tm_run_status *s, uint64_t id)
{
    struct tm_run_instance *found = find_instance(s, id);
    if (found != NULL) return found;
    void *array = s->instances;
    int rc = tm_grow(&array, &s->instance_capacity, s->instance_count + 1, sizeof *s->instances, INSTANCES_MAX);
    s->instances = array;
    if (rc != 0) return NULL;
    size_t at = s->instance_count++;
    while (at > 0 && s->instances[at - 1].id > id) {
        s->instances[at] = s->instances[at - 1];
        at--;
    }
    s->instances[at] = (struct tm_run_instance){.id = id, .state = TM_INSTANCE_RUNNING, .price_usd_h = NAN};
    return &s->instances[at];
}

static void cloud_time(struct tm_run_watch *watch, int64_t utc_ms, int64_t cloud_ms)
{
    if (watch->cloud_utc_ms != 0 && cloud_ms <= watch->cloud_ms) return;
    watch->cloud_utc_ms = utc_ms;
    watch->cloud_ms = cloud_ms;
}

static void take_zone(struct tm_run_watch *watch, const Tmw__ZoneEvent *body)
{
    struct zone *zone = &watch->zones[watch->zone_count++ % ZONES_MAX];
    zone->number = body->zone;
    copy_text(zone->name, sizeof zone->name, body->name);
}

static const char *zone_name(const struct tm_run_watch *watch, uint32_t number)
{
    for (size_t i = 0; number != 0 && i < watch->zone_count && i < ZONES_MAX; i++)
        if (watch->zones[i].number == number) return watch->zones[i].name;
    return "";
}

static int take_instance(struct tm_run_watch *watch, int64_t at_ms, const Tmw__Instance *body, struct tm_error *e)
{
    struct tm_run_status *s = &watch->status;
    bool is_new = find_instance(s, body->id) == NULL || !watch->cloud_tells;
    struct tm_run_instance *instance = instance_of(s, body->id);
    if (instance == NULL) return tm_error_nomem(e);
    is_new = is_new || (instance->start_ms == 0 && instance->end_ms == 0 && isnan(instance->price_usd_h));
    bool ended = body->end_ms != 0 && instance->end_ms == 0;
    if (!watch->cloud_tells) /* until now workers were counted in their place: some may be faster than the cloud's word
                              */
        s->arrivals = s->losses_announced = s->losses_unannounced = 0;
    if (is_new) s->arrivals++;
    if (ended && !body->released) {
        s->losses_announced += body->announced != 0;
        s->losses_unannounced += body->announced == 0;
    }
    watch->cloud_tells = true;
    cloud_time(watch, at_ms, body->end_ms != 0 ? body->end_ms : body->start_ms);
    instance->spot = body->spot;
    instance->paid_before_ms = body->paid_before_ms > 0 ? body->paid_before_ms : 0;
    instance->pool = body->pool < TM_RUN_POOLS_MAX ? body->pool : 0;
    instance->announced = body->announced;
    instance->zone = body->zone;
    copy_text(instance->zone_name, sizeof instance->zone_name, zone_name(watch, body->zone));
    instance->start_ms = body->start_ms;
    instance->end_ms = body->end_ms;
    instance->price_usd_h = (double)body->price_microusd_h / 1e6;
    instance->bill_usd = (double)body->bill_microusd / 1e6;
    if (body->end_ms != 0)
        instance->state = body->released ? TM_INSTANCE_RELEASED : TM_INSTANCE_LOST;
    else
        instance->state = body->announced ? TM_INSTANCE_NOTICED : TM_INSTANCE_RUNNING;
    bool told_when = body->notice_left_ms > 0 || instance->leaves_utc_ms == 0;
    if (instance->state == TM_INSTANCE_NOTICED && told_when) instance->leaves_utc_ms = at_ms + body->notice_left_ms;
    return 0;
}

static int take_arrival(struct tm_run_watch *watch, const Tmw__ArrivalEvent *body, struct tm_error *e)
{
    struct tm_run_instance *instance = instance_of(&watch->status, body->instance);
    if (instance == NULL) return tm_error_nomem(e);
    instance->worker = true;
    if (!watch->cloud_tells) instance->state = TM_INSTANCE_RUNNING;
    if (!body->again) watch->workers_arrived++;
    return 0;
}

static void take_loss(struct tm_run_watch *watch, const Tmw__LossEvent *body)
{
    struct tm_run_instance *instance = find_instance(&watch->status, body->instance);
    watch->status.worker_losses++;
    watch->workers_announced += body->announced != 0;
    watch->workers_unannounced += body->announced == 0;
    if (instance == NULL) return;
    instance->worker = false;
    if (!watch->cloud_tells) instance->state = TM_INSTANCE_LOST;
}

static void take_notice(struct tm_run_watch *watch, int64_t at_ms, const Tmw__NoticeEvent *body)
{
    struct tm_run_instance *instance = find_instance(&watch->status, body->instance);
    if (instance == NULL || instance->end_ms != 0) return;
    instance->state = body->taken_back ? TM_INSTANCE_RUNNING : TM_INSTANCE_NOTICED;
    instance->leaves_utc_ms = body->taken_back ? 0 : at_ms + (int64_t)(body->left_ms & INT32_MAX);
}

/* Bills, and what the same time costs on demand: of what is here, up to now in the cloud's time. */
static void add_up_instances(struct tm_run_watch *watch)
{
    struct tm_run_status *s = &watch->status;
    double passed_ms = (double)(s->utc_ms - watch->cloud_utc_ms) * s->job.speed;
    double now_ms = (double)watch->cloud_ms + (s->live && watch->cloud_utc_ms > 0 && passed_ms > 0 ? passed_ms : 0);
    double seconds = 0;
    double bill_usd = 0;
    double pools_usd = 0; /* on-demand */
    s->here = s->noticed = 0;
    for (size_t i = 0; i < s->job.pool_count; i++) {
        s->pools[i].here = 0;
        s->pools[i].instance_hours = s->pools[i].bill_usd = 0;
    }
    for (size_t i = 0; i < s->instance_count; i++) {
        const struct tm_run_instance *instance = &s->instances[i];
        double end_ms = instance->end_ms != 0 ? (double)instance->end_ms : now_ms;
        s->here += tm_run_instance_is_here(instance);
        s->noticed += instance->state == TM_INSTANCE_NOTICED;
        bill_usd += instance->bill_usd;
        struct tm_run_pool_status *pool = &s->pools[instance->pool];
        pool->here += tm_run_instance_is_here(instance);
        pool->bill_usd += instance->bill_usd;
        pool->instance_hours += (double)instance->paid_before_ms / 3.6e6;
        if (!watch->cloud_tells || end_ms <= (double)instance->start_ms) continue;
        seconds += (end_ms - (double)instance->start_ms) / 1000;
        pool->instance_hours += (end_ms - (double)instance->start_ms) / 3.6e6;
        pools_usd += (end_ms - (double)instance->start_ms) / 3.6e6 * tm_run__on_demand_usd_h(s, instance);
    }
    if (!watch->cloud_tells) {
        s->arrivals = watch->workers_arrived;
        s->losses_announced = watch->workers_announced;
        s->losses_unannounced = watch->workers_unannounced;
    }
    s->bill_usd = bill_usd;
    s->on_demand_usd = s->job.pool_count > 0 ? pools_usd : seconds / 3600 * s->on_demand_usd_h;
}

/* On demand it would cost as much. */
static void add_traffic(struct tm_run_watch *watch)
{
    struct tm_run_status *s = &watch->status;
    for (size_t i = 0; i < s->job.pool_count; i++) {
        s->pools[i].bill_usd += watch->traffic_usd[i];
        s->bill_usd += watch->traffic_usd[i];
        s->on_demand_usd += watch->traffic_usd[i];
    }
}

/* One that is on-demand costs what it costs. */
double tm_run__on_demand_usd_h(const struct tm_run_status *s, const struct tm_run_instance *instance)
{
    if (s->job.pool_count == 0) return s->on_demand_usd_h;
    if (!instance->spot && instance->price_usd_h > 0) return instance->price_usd_h;
    double usd_h = instance->pool < s->job.pool_count ? s->job.on_demand_usd_h[instance->pool] : 0;
    return usd_h > 0 ? usd_h : NAN;
}

bool tm_run_instance_is_here(const struct tm_run_instance *instance)
{
    return instance->state == TM_INSTANCE_RUNNING || instance->state == TM_INSTANCE_NOTICED;
}

/* ---- generations and pauses ---- */

static int take_layout(struct tm_run_watch *watch, const Tmw__Layout *layout, struct tm_error *e)
{
    struct tm_run_status *s = &watch->status;
    size_t stages = layout->n_stages;
    if (layout->pipelines == 0 || stages == 0 || stages > TM_STAGES_MAX || layout->pipelines > TM_MEMBERS_MAX / stages)
        return tm_error_set(e, TM_EINPUT, "record: a layout of %u x %zu", layout->pipelines, stages);
    uint64_t *seats = tm_calloc(layout->pipelines * stages, sizeof *seats);
    uint32_t *first_layers = tm_calloc(stages, sizeof *first_layers);
    if (seats == NULL || first_layers == NULL) {
        tm_free(seats);
        tm_free(first_layers);
        return tm_error_nomem(e);
    }
    tm_free(s->seats);
    tm_free(s->first_layers);
    s->seats = seats;
    s->first_layers = first_layers;
    s->pipelines = layout->pipelines;
    s->stages = (uint32_t)stages;
    s->spares = 0;
    for (size_t i = 0; i < stages; i++)
        first_layers[i] = layout->stages[i]->first_layer;
    for (size_t i = 0; i < s->instance_count; i++)
        s->instances[i].seat = TM_SEAT_NONE;
    for (size_t i = 0; i < layout->n_members; i++) {
        const Tmw__Member *member = layout->members[i];
        struct tm_run_instance *instance = instance_of(s, tm_instance_of_worker(member->id, s->job.workers));
        if (instance == NULL) return tm_error_nomem(e);
        bool trains = !member->spare && member->pipeline < s->pipelines && member->stage < s->stages;
        instance->worker = true;
        if (trains) seats[member->pipeline * stages + member->stage] = member->id;
        bool keeps = !trains && (s->job.keepers >> (s->job.pool_count > 0 ? instance->pool : !instance->spot) & 1) != 0;
        s->spares += !trains && !keeps;
        if (instance->seat == TM_SEAT_TRAINS) continue; /* of several workers, the first seat is shown */
        instance->seat = trains ? TM_SEAT_TRAINS : keeps ? TM_SEAT_KEEPS : TM_SEAT_SPARE;
        instance->pipeline = member->pipeline;
        instance->stage = member->stage;
    }
    return 0;
}

static void end_waiting(struct tm_run_watch *watch, int64_t utc_ms)
{
    if (watch->waiting_since_ms == 0) return;
    int64_t waited_ms = utc_ms > watch->waiting_since_ms ? utc_ms - watch->waiting_since_ms : 0;
    watch->waiting_ms += waited_ms;
    watch->pause_waited_ms += waited_ms;
    watch->waiting_since_ms = 0;
}

static void set_state(struct tm_run_watch *watch, int64_t utc_ms, enum tm_job_state state)
{
    if (state != TM_JOB_WAITING) end_waiting(watch, utc_ms);
    if (state == TM_JOB_WAITING && watch->waiting_since_ms == 0) watch->waiting_since_ms = utc_ms;
    watch->status.state = state;
    watch->status.reason[0] = '\0';
}

static int take_generation(struct tm_run_watch *watch, int64_t at_ms, const Tmw__GenerationEvent *body,
                           struct tm_error *e)
{
    struct tm_run_status *s = &watch->status;
    s->generation = body->generation;
    watch->sample_count = 0;
    if (!body->started || body->layout == NULL) return 0;
    int rc = take_layout(watch, body->layout, e);
    if (rc != 0) return rc;
    s->generations++;
    s->rolled_back += body->rolled_back;
    s->redone += body->rolled_back + body->redone;
    s->committed = body->base_step;
    if (body->rolled_back > 0) s->loss = NAN; /* it was a later step's: the next one tells */
    sample_rate(watch, at_ms, body->base_step);
    set_state(watch, at_ms, TM_JOB_TRAINING);
    return 0;
}

static bool is_planned(enum tm_change_cause cause)
{
    return cause != TM_CHANGED_LOSS && cause != TM_CHANGED_STALL && cause != TM_CHANGED_DAMAGE;
}

/* The median of an even number is the mean of the middle two. */
static int add_sorted(struct sorted *sorted, double size, struct tm_run_spread *out, struct tm_error *e)
{
    void *array = sorted->sizes;
    int rc = tm_grow(&array, &sorted->capacity, sorted->count + 1, sizeof *sorted->sizes, PAUSES_MAX);
    sorted->sizes = array;
    if (rc != 0) return rc == -(int)TM_ENOMEM ? tm_error_nomem(e) : 0;
    size_t at = sorted->count++;
    for (; at > 0 && sorted->sizes[at - 1] > size; at--)
        sorted->sizes[at] = sorted->sizes[at - 1];
    sorted->sizes[at] = size;
    out->count = sorted->count;
    out->total_s += size;
    out->max_s = sorted->sizes[sorted->count - 1];
    out->p50_s = (sorted->sizes[sorted->count / 2] + sorted->sizes[(sorted->count - 1) / 2]) / 2;
    return 0;
}

static int take_pause(struct tm_run_watch *watch, int64_t at_ms, const Tmw__PauseEvent *body, struct tm_error *e)
{
    struct tm_run_status *s = &watch->status;
    end_waiting(watch, at_ms);
    int64_t waited_ms = watch->pause_waited_ms;
    watch->pause_waited_ms = 0;
    if (body->cause == TM_CHANGED_BEGIN) return 0; /* start-up, or going on after a stop */
    void *array = s->pauses;
    int rc = tm_grow(&array, &s->pause_capacity, s->pause_count + 1, sizeof *s->pauses, PAUSES_MAX);
    s->pauses = array;
    if (rc != 0) return rc == -(int)TM_ENOMEM ? tm_error_nomem(e) : 0;
    int64_t end_ms = at_ms - (int64_t)(body->ago_ms & INT32_MAX);
    double lost_ms = (double)body->pause_ms - (double)body->step_ms - (double)waited_ms;
    s->pauses[s->pause_count++] = (struct tm_run_pause){.generation = body->generation,
                                                        .cause = (enum tm_change_cause)body->cause,
                                                        .end_utc_ms = end_ms,
                                                        .pause_s = lost_ms > 0 ? lost_ms / 1000 : 0};
    double pause_s = s->pauses[s->pause_count - 1].pause_s;
    rc = add_sorted(&watch->all_pauses, pause_s, &s->pause, e);
    if (rc != 0 || is_planned((enum tm_change_cause)body->cause)) return rc;
    return add_sorted(&watch->recoveries, pause_s, &s->recovery, e);
}

/* ---- events ---- */

/* Put together from its pieces; one that is cut would not do the same again, and is left out. */
static void take_command(char *out, size_t size, const Tmw__JobEvent *body)
{
    struct tm_text safe;
    tm_text_init(&safe, size);
    for (size_t i = 0; i < body->n_command; i++)
        tm_term_put_safe(&safe, body->command[i], strlen(body->command[i]));
    bool whole = safe.failed == 0 && safe.length < size;
    (void)snprintf(out, size, "%s", whole ? tm_text_string(&safe) : "");
    tm_text_deinit(&safe);
}

/* What the job file says holds until somebody orders otherwise. */
static void set_limit(double *out, bool *ordered, bool orders, double value)
{
    if (!orders && *ordered) return;
    *ordered = *ordered || orders;
    *out = value > 0 ? value : NAN;
}

static void take_steer(struct tm_run_watch *watch, const Tmw__SteerEvent *body)
{
    struct tm_run_status *s = &watch->status;
    struct tm_run_instance *instance = NULL;
    switch ((enum tm_steer)body->what) {
    case TM_STEER_DEADLINE:
        set_limit(&s->deadline_s, &watch->deadline_ordered, true, (double)body->deadline_ms / 1000);
        break;
    case TM_STEER_BUDGET:
        set_limit(&s->budget_usd, &watch->budget_ordered, true, (double)body->budget_microusd / 1e6);
        break;
    case TM_STEER_DRAIN:
        instance = find_instance(s, body->instance);
        if (instance != NULL) instance->drained = true;
        break;
    case TM_STEER_COPY:
        break;
    }
}

static void take_job(struct tm_run_watch *watch, const Tmw__JobEvent *body)
{
    struct tm_run_job *job = &watch->status.job;
    copy_text(job->name, sizeof job->name, body->name);
    take_command(job->command, sizeof job->command, body);
    job->steps = body->steps;
    job->samples_per_step = body->samples_per_step;
    job->tokens_per_step = body->tokens_per_step;
    job->layers = body->layers;
    job->micro_batches = body->micro_batches;
    job->keepers = body->keepers;
    job->workers = body->workers > 1 ? body->workers : 1;
    job->speed = body->speed > 0 && isfinite(body->speed) ? body->speed : 1;
    job->deadline_s = (double)body->deadline_ms / 1000;
    job->budget_usd = (double)body->budget_microusd / 1e6;
    set_limit(&watch->status.deadline_s, &watch->deadline_ordered, false, job->deadline_s);
    set_limit(&watch->status.budget_usd, &watch->budget_ordered, false, job->budget_usd);
    job->pool_count = body->n_pools < TM_RUN_POOLS_MAX ? body->n_pools : TM_RUN_POOLS_MAX;
    for (size_t i = 0; i < job->pool_count; i++)
        copy_text(job->pools[i], sizeof job->pools[i], body->pools[i]);
    for (size_t i = 0; i < body->n_gpus && i < TM_RUN_POOLS_MAX; i++)
        copy_text(job->gpus[i], sizeof job->gpus[i], body->gpus[i]);
    for (size_t i = 0; i < body->n_on_demand_microusd_h && i < TM_RUN_POOLS_MAX; i++)
        job->on_demand_usd_h[i] = (double)body->on_demand_microusd_h[i] / 1e6;
}

static void take_failed(struct tm_run_watch *watch, int64_t at_ms, const Tmw__FailedEvent *body)
{
    struct tm_run_status *s = &watch->status;
    set_state(watch, at_ms, TM_JOB_FAILED);
    copy_text(s->reason, sizeof s->reason, body->reason);
    copy_text(s->output_file, sizeof s->output_file, body->file);
    tm_last_lines_read(body->lines, body->n_lines, &s->output);
    for (size_t i = 0; i < s->output.count; i++) {
        char line[sizeof s->output.text[i]];
        memcpy(line, s->output.text[i], sizeof line);
        copy_text(s->output.text[i], sizeof s->output.text[i], line);
    }
}

static int take_body(struct tm_run_watch *watch, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct tm_run_status *s = &watch->status;
    int64_t at_ms = event->at_ms;
    switch (event->body_case) {
    case TMW__RECORD_EVENT__BODY_GENERATION:
        return take_generation(watch, at_ms, event->generation, e);
    case TMW__RECORD_EVENT__BODY_SET_WHOLE:
        return take_set(watch, at_ms, event->set_whole, e);
    case TMW__RECORD_EVENT__BODY_INSTANCE:
        return take_instance(watch, at_ms, event->instance, e);
    case TMW__RECORD_EVENT__BODY_FINISHED_STEP:
        committed(watch, at_ms, event->finished_step);
        set_state(watch, at_ms, TM_JOB_FINISHED);
        return 0;
    case TMW__RECORD_EVENT__BODY_PROGRESS:
        take_progress(watch, at_ms, event->progress);
        return 0;
    case TMW__RECORD_EVENT__BODY_FAILED:
        take_failed(watch, at_ms, event->failed);
        return 0;
    case TMW__RECORD_EVENT__BODY_ARRIVAL:
        return take_arrival(watch, event->arrival, e);
    case TMW__RECORD_EVENT__BODY_LOSS:
        take_loss(watch, event->loss);
        return 0;
    case TMW__RECORD_EVENT__BODY_NOTICE:
        take_notice(watch, at_ms, event->notice);
        return 0;
    case TMW__RECORD_EVENT__BODY_PAUSE:
        return take_pause(watch, at_ms, event->pause, e);
    case TMW__RECORD_EVENT__BODY_RENT:
        s->want_spot = event->rent->want_spot;
        s->want_on_demand = event->rent->want_on_demand;
        for (size_t i = 0; i < event->rent->n_want && i < TM_RUN_POOLS_MAX; i++)
            s->pools[i].want = event->rent->want[i];
        return 0;
    case TMW__RECORD_EVENT__BODY_PRICE:
        s->spot_usd_h = event->price->spot_microusd_h > 0 ? (double)event->price->spot_microusd_h / 1e6 : NAN;
        s->on_demand_usd_h =
            event->price->on_demand_microusd_h > 0 ? (double)event->price->on_demand_microusd_h / 1e6 : NAN;
        for (size_t i = 0; i < event->price->n_pool_microusd_h && i < TM_RUN_POOLS_MAX; i++)
            s->pools[i].price_usd_h =
                event->price->pool_microusd_h[i] > 0 ? (double)event->price->pool_microusd_h[i] / 1e6 : NAN;
        return 0;
    case TMW__RECORD_EVENT__BODY_STATE:
        set_state(watch, at_ms, (enum tm_job_state)event->state->state);
        copy_text(s->reason, sizeof s->reason, event->state->reason);
        s->gave_up = event->state->gave_up;
        return 0;
    case TMW__RECORD_EVENT__BODY_JOB:
        take_job(watch, event->job);
        return 0;
    case TMW__RECORD_EVENT__BODY_ZONE:
        take_zone(watch, event->zone);
        return 0;
    case TMW__RECORD_EVENT__BODY_STEER:
        take_steer(watch, event->steer);
        return 0;
    default:
        return 0;
    }
}

/* The time of day may jump back: then no time has passed. */
static int64_t passed_ms(const struct tm_run_watch *watch, int64_t at_ms)
{
    bool passes = watch->event_utc_ms != 0 && at_ms > watch->event_utc_ms && !has_ended(watch->status.state);
    return passes ? at_ms - watch->event_utc_ms : 0;
}

double tm_run_watch__wall_s(const struct tm_run_watch *watch, int64_t utc_ms)
{
    return (double)(watch->wall_ms + passed_ms(watch, utc_ms)) / 1000;
}

static void pass_time(struct tm_run_watch *watch, int64_t at_ms)
{
    struct tm_run_status *s = &watch->status;
    if (s->begun_utc_ms == 0) s->begun_utc_ms = at_ms;
    watch->wall_ms += passed_ms(watch, at_ms);
    watch->event_utc_ms = at_ms;
    s->utc_ms = at_ms;
}

static void keep_words(struct tm_run_status *s, uint64_t sequence, const Tmw__RecordEvent *event)
{
    struct tm_text words;
    if (s->event_count == TM_STATUS_EVENTS) memmove(s->events, s->events + 1, --s->event_count * sizeof *s->events);
    struct tm_run_event_text *kept = &s->events[s->event_count++];
    *kept = (struct tm_run_event_text){.sequence = sequence, .utc_ms = event->at_ms};
    (void)snprintf(kept->kind, sizeof kept->kind, "%s", tm_run_event_kind(event));
    tm_text_init(&words, 2048);
    tm_run_event_words(event, &words);
    (void)snprintf(kept->text, sizeof kept->text, "%.*s", TM_STATUS_TEXT_MAX - 1, tm_text_string(&words));
    tm_text_deinit(&words);
}

int tm_run_watch_take(struct tm_run_watch *watch, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct tm_run_status *s = &watch->status;
    if (sequence <= s->sequence) return 0;
    pass_time(watch, event->at_ms);
    int rc = take_body(watch, event, e);
    if (rc != 0) return rc;
    s->sequence = sequence;
    if (!tm_run_event_quiet(event)) keep_words(s, sequence, event);
    return 0;
}

/* ---- now ---- */

int tm_run_watch_look(struct tm_run_watch *watch, const struct tm_coordinator_view *view, int64_t utc_ms,
                      struct tm_error *e)
{
    struct tm_run_status *s = &watch->status;
    s->live = true;
    s->utc_ms = utc_ms;
    if (s->begun_utc_ms == 0) s->begun_utc_ms = utc_ms;
    if (view->state != s->state) set_state(watch, utc_ms, view->state);
    const char *why = view->phase == TM_COORDINATOR_FAILED ? view->failure : view->waiting;
    if (s->state != TM_JOB_STOPPED && s->state != TM_JOB_STOPPING) copy_text(s->reason, sizeof s->reason, why);
    char trouble[TM_STATUS_TEXT_MAX];
    (void)snprintf(
        trouble, sizeof trouble, "%s%s%s", view->trouble,
        view->trouble_full && s->state == TM_JOB_TRAINING && s->committed < s->job.steps ? "; training continues" : "",
        view->trouble_full ? "; free some disk space" : "");
    copy_text(s->trouble, sizeof s->trouble, trouble);
    bool runs = view->phase == TM_COORDINATOR_RUNNING || view->phase == TM_COORDINATOR_DRAINING ||
                view->phase == TM_COORDINATOR_FINISHED;
    if (runs && view->applied > s->committed) committed(watch, utc_ms, view->applied);
    if (view->durable_step > s->durable) s->durable = view->durable_step;
    if (view->step_ms > 0) s->step_s = view->step_ms / 1000.0;
    if (view->loss_count > 0) s->loss = view->losses[view->loss_count - 1].loss;
    s->generation = view->generation;
    s->want_spot = view->want_spot;
    s->want_on_demand = view->want_on_demand;
    for (size_t i = 0; i < view->pool_count && i < TM_RUN_POOLS_MAX; i++)
        s->pools[i].want = view->want[i];
    for (size_t i = 0; i < view->instance_count; i++) {
        int rc = take_instance(watch, utc_ms, &view->instances[i], e);
        if (rc != 0) return rc;
    }
    watch->told_bill_usd = fmax(watch->told_bill_usd, (double)view->bill_microusd / 1e6);
    return 0;
}

const struct tm_run_status *tm_run_watch_status(struct tm_run_watch *watch)
{
    struct tm_run_status *s = &watch->status;
    int64_t more_ms = has_ended(s->state) || s->utc_ms < watch->event_utc_ms ? 0 : s->utc_ms - watch->event_utc_ms;
    int64_t waiting_ms =
        watch->waiting_since_ms != 0 && s->utc_ms > watch->waiting_since_ms ? s->utc_ms - watch->waiting_since_ms : 0;
    s->wall_s = (double)(watch->wall_ms + more_ms) / 1000;
    s->waiting_s = (double)(watch->waiting_ms + waiting_ms) / 1000;
    set_rate(watch);
    set_left(watch);
    add_up_instances(watch);
    s->bill_usd = watch->bill_settled ? watch->told_bill_usd : fmax(s->bill_usd, watch->told_bill_usd);
    add_traffic(watch);
    return s;
}

void tm_run_watch__give(struct tm_run_watch *watch, struct tm_run_status *out)
{
    *out = *tm_run_watch_status(watch);
    tm_free(watch->all_pauses.sizes);
    tm_free(watch->recoveries.sizes);
    begin(watch);
}
