#include "run/measure.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GENERATIONS_MAX = 1 << 20, INSTANCES_MAX = 1 << 20, SEATS_MAX = 1 << 24, SAMPLES_MIN = 1, UNKNOWN = -1 };
enum { SAMPLES_A_PART = 4 };
static const double first_fleet_ms = 1000; /* of the cloud: who arrived so soon after the first belongs to its fleet */

struct seat {
    uint64_t id;
    uint64_t incarnation;
    uint32_t first_layer; /* of its stage; a spare has none */
    uint32_t last_layer;
};

/* A generation that started. Times are the record's, UNKNOWN where it does not say. */
struct generation {
    uint64_t base;
    uint64_t rolled_back;
    int pipelines;
    int stages;
    size_t seat_first; /* in measure.seats */
    size_t seat_count; /* spares too */
    enum tm_change_cause cause;
    double pause_ms;     /* before its first commit, that step too */
    double first_ms;     /* its first commit */
    double told_ms[2];   /* first and last word of progress ... */
    uint64_t told_at[2]; /* ... and the steps then */
    bool waited;         /* for workers, before it started */
};

struct instance {
    uint64_t id;
    double start_ms; /* the cloud's */
    double end_ms;   /* UNKNOWN: it has not ended */
    bool announced;
    bool released;       /* by us, before its end */
    double announced_ms; /* the record's word of its notice; UNKNOWN */
    bool spot;
    double lost_ms; /* the record's word of its loss without a notice; UNKNOWN */
};

struct tm_measure {
    struct tm_measure_options options;
    struct generation *generations;
    size_t generation_count, generation_capacity;
    struct seat *seats;
    size_t seat_count, seat_capacity;
    struct instance *instances;
    size_t instance_count, instance_capacity;
    double offset_ms; /* the wall's time when the cloud's was 0, at the latest; INFINITY: nothing says */
    double set_ms[2]; /* first and last whole copy set */
    uint64_t sets;
    bool waiting;
    double ended_ms;     /* the job was told to stop, or is finished; UNKNOWN */
    uint64_t stopped_at; /* the step at which it then stood still; 0: not told */
};

struct tm_measure *tm_measure__create(const struct tm_measure_options *options)
{
    struct tm_measure *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return NULL;
    m->options = *options;
    m->offset_ms = INFINITY;
    m->ended_ms = UNKNOWN;
    return m;
}

void tm_measure__destroy(struct tm_measure *m)
{
    if (m == NULL) return;
    tm_free(m->generations);
    tm_free(m->seats);
    tm_free(m->instances);
    tm_free(m);
}

/* ---- taking events ---- */

static int grow(void **array, size_t *capacity, size_t need, size_t size, size_t max, struct tm_error *e)
{
    int rc = tm_grow(array, capacity, need, size, max);
    if (rc == -(int)TM_ELIMIT) return tm_error_set(e, TM_ELIMIT, "the record has more than %zu such events", max);
    return rc == 0 ? 0 : tm_error_nomem(e);
}

static int take_start(struct tm_measure *m, const Tmw__GenerationEvent *event, struct tm_error *e)
{
    const Tmw__Layout *layout = event->layout;
    if (!event->started || layout == NULL) return 0;
    int rc = grow((void **)&m->generations, &m->generation_capacity, m->generation_count + 1, sizeof *m->generations,
                  GENERATIONS_MAX, e);
    if (rc == 0)
        rc = grow((void **)&m->seats, &m->seat_capacity, m->seat_count + layout->n_members, sizeof *m->seats, SEATS_MAX,
                  e);
    if (rc != 0) return rc;
    m->generations[m->generation_count++] = (struct generation){.base = event->base_step,
                                                                .rolled_back = event->rolled_back,
                                                                .pipelines = (int)layout->pipelines,
                                                                .stages = (int)layout->n_stages,
                                                                .seat_first = m->seat_count,
                                                                .seat_count = layout->n_members,
                                                                .pause_ms = UNKNOWN,
                                                                .first_ms = UNKNOWN,
                                                                .told_ms = {UNKNOWN, UNKNOWN},
                                                                .waited = m->waiting};
    m->waiting = false;
    for (size_t i = 0; i < layout->n_members; i++) {
        const Tmw__Member *member = layout->members[i];
        struct seat seat = {.id = member->id, .incarnation = member->incarnation};
        if (!member->spare && member->stage < layout->n_stages) {
            const Tmw__Stage *stage = layout->stages[member->stage];
            seat.first_layer = stage->first_layer;
            seat.last_layer = stage->first_layer + stage->layer_count;
        }
        m->seats[m->seat_count++] = seat;
    }
    return 0;
}

static struct instance *find_instance(struct tm_measure *m, uint64_t id)
{
    for (size_t i = m->instance_count; i-- > 0;)
        if (m->instances[i].id == id) return &m->instances[i];
    return NULL;
}

/* The cloud's time `cloud_ms` had come when the record said so. */
static void set_clock(struct tm_measure *m, int64_t at_ms, double cloud_ms)
{
    m->offset_ms = fmin(m->offset_ms, (double)at_ms - cloud_ms / m->options.speed);
}

static int take_instance(struct tm_measure *m, int64_t at_ms, const Tmw__Instance *event, struct tm_error *e)
{
    struct instance *instance = find_instance(m, event->id);
    if (instance == NULL) {
        int rc = grow((void **)&m->instances, &m->instance_capacity, m->instance_count + 1, sizeof *m->instances,
                      INSTANCES_MAX, e);
        if (rc != 0) return rc;
        instance = &m->instances[m->instance_count++];
        *instance = (struct instance){.id = event->id,
                                      .start_ms = (double)event->start_ms,
                                      .end_ms = UNKNOWN,
                                      .spot = event->spot != 0,
                                      .announced_ms = UNKNOWN,
                                      .lost_ms = UNKNOWN};
        set_clock(m, at_ms, instance->start_ms);
    }
    if (event->announced && !instance->announced) instance->announced_ms = (double)at_ms;
    instance->announced = instance->announced || event->announced;
    instance->released = instance->released || event->released;
    if (event->end_ms == 0 || instance->end_ms >= 0) return 0;
    instance->end_ms = (double)event->end_ms;
    set_clock(m, at_ms, instance->end_ms);
    return 0;
}

static void take_pause(struct tm_measure *m, int64_t at_ms, const Tmw__PauseEvent *event)
{
    if (m->generation_count == 0) return;
    struct generation *now = &m->generations[m->generation_count - 1];
    now->pause_ms = (double)event->pause_ms;
    now->first_ms = (double)at_ms - (double)event->ago_ms;
    now->cause = (enum tm_change_cause)event->cause;
}

static void take_progress(struct tm_measure *m, int64_t at_ms, const Tmw__ProgressEvent *event)
{
    if (m->generation_count == 0) return;
    struct generation *now = &m->generations[m->generation_count - 1];
    if (event->step <= now->base) return;
    int which = now->told_ms[0] >= 0;
    now->told_ms[which] = (double)at_ms;
    now->told_at[which] = event->step;
}

static void take_loss(struct tm_measure *m, int64_t at_ms, const Tmw__LossEvent *event)
{
    struct instance *instance = find_instance(m, event->instance);
    if (instance != NULL && !event->announced && event->seated) instance->lost_ms = (double)at_ms;
}

int tm_measure__take(struct tm_measure *m, const Tmw__RecordEvent *event, struct tm_error *e)
{
    switch (event->body_case) {
    case TMW__RECORD_EVENT__BODY_GENERATION:
        return take_start(m, event->generation, e);
    case TMW__RECORD_EVENT__BODY_INSTANCE:
        return take_instance(m, event->at_ms, event->instance, e);
    case TMW__RECORD_EVENT__BODY_PAUSE:
        take_pause(m, event->at_ms, event->pause);
        return 0;
    case TMW__RECORD_EVENT__BODY_PROGRESS:
        take_progress(m, event->at_ms, event->progress);
        return 0;
    case TMW__RECORD_EVENT__BODY_LOSS:
        take_loss(m, event->at_ms, event->loss);
        return 0;
    case TMW__RECORD_EVENT__BODY_STATE:
        m->waiting = m->waiting || event->state->state != TM_JOB_TRAINING;
        if (event->state->state == TM_JOB_STOPPING || (event->state->state == TM_JOB_FINISHED && m->ended_ms < 0))
            m->ended_ms = (double)event->at_ms;
        if (event->state->state == TM_JOB_STOPPED && event->state->quiet) m->stopped_at = event->state->step;
        return 0;
    case TMW__RECORD_EVENT__BODY_SET_WHOLE:
        if (m->sets == 0) m->set_ms[0] = (double)event->at_ms;
        m->set_ms[1] = (double)event->at_ms;
        m->sets++;
        return 0;
    default:
        return 0;
    }
}

/* ---- steps ---- */

/* The last commit of the generation before; UNKNOWN. */
static double ended_ms(const struct generation *next)
{
    return next->first_ms >= 0 && next->pause_ms >= 0 ? next->first_ms - next->pause_ms : UNKNOWN;
}

/* A stretch of a generation between two commits whose times are known; 0 steps: none is. */
static uint64_t stretch(const struct tm_measure *m, size_t g, double *out_ms)
{
    const struct generation *now = &m->generations[g];
    const struct generation *next = g + 1 < m->generation_count ? now + 1 : NULL;
    double from_ms = now->first_ms >= 0 ? now->first_ms : now->told_ms[0];
    uint64_t from = now->first_ms >= 0 ? now->base + 1 : now->told_at[0];
    double to_ms = next != NULL ? ended_ms(next) : now->told_ms[1];
    uint64_t to = next != NULL ? next->base + next->rolled_back : now->told_at[1];
    if (to_ms < 0) {
        to_ms = now->told_ms[1];
        to = now->told_at[1];
    }
    if (from_ms < 0 || to_ms <= from_ms || to <= from) return 0;
    *out_ms = to_ms - from_ms;
    return to - from;
}

/* Milliseconds of a step in a layout, over all generations that had it; NaN: none can be told. */
static double step_ms(const struct tm_measure *m, int pipelines, int stages)
{
    double sum_ms = 0, ms;
    uint64_t steps = 0;
    for (size_t g = 0; g < m->generation_count; g++) {
        if (m->generations[g].pipelines != pipelines || m->generations[g].stages != stages) continue;
        uint64_t more = stretch(m, g, &ms);
        if (more == 0) continue;
        steps += more;
        sum_ms += ms;
    }
    return steps > 0 ? sum_ms / (double)steps : NAN;
}

static void list_steps(const struct tm_measure *m, struct tm_cost *out)
{
    for (size_t g = 0; g < m->generation_count && out->step_count < TM_COST_STEPS_MAX; g++) {
        const struct generation *now = &m->generations[g];
        bool there = false;
        for (int i = 0; i < out->step_count; i++)
            there = there || (out->steps[i].pipelines == now->pipelines && out->steps[i].stages == now->stages);
        double ms = step_ms(m, now->pipelines, now->stages);
        if (!there && !isnan(ms) && now->stages <= TM_LAYOUT_STAGES_MAX)
            out->steps[out->step_count++] = (struct tm_step_time){now->pipelines, now->stages, ms};
    }
}

/* ---- the beginning ---- */

static double wall_ms(const struct tm_measure *m, double cloud_ms)
{
    return m->offset_ms + cloud_ms / m->options.speed;
}

static double first_start_ms(const struct tm_measure *m)
{
    double first = INFINITY;
    for (size_t i = 0; i < m->instance_count; i++)
        first = fmin(first, m->instances[i].start_ms);
    return first;
}

/* The workers of an instance have numbers of their own, one after the other. */
static uint64_t instance_of(const struct tm_measure *m, uint64_t worker)
{
    return m->options.workers > 1 ? (worker - 1) / m->options.workers + 1 : worker;
}

/* Of an instance's workers, those that are in a generation, and those of them that train. */
static uint32_t members_of(const struct tm_measure *m, const struct generation *g, uint64_t id, uint32_t *out_seated)
{
    uint32_t members = 0;
    *out_seated = 0;
    for (size_t i = 0; i < g->seat_count; i++) {
        const struct seat *seat = &m->seats[g->seat_first + i];
        if (instance_of(m, seat->id) != id) continue;
        members++;
        *out_seated += seat->last_layer > seat->first_layer;
    }
    return members;
}

static bool is_whole(const struct tm_measure *m, const struct generation *g, uint64_t id)
{
    uint32_t seated = 0;
    return members_of(m, g, id, &seated) >= (m->options.workers > 1 ? m->options.workers : 1);
}

static bool is_seated(const struct tm_measure *m, const struct generation *g, uint64_t id)
{
    uint32_t seated = 0;
    (void)members_of(m, g, id, &seated);
    return seated > 0;
}

/* The first generation with everybody who was there from the beginning; the first of all where that never was. */
static size_t first_whole(const struct tm_measure *m)
{
    double start_ms = first_start_ms(m);
    for (size_t g = 0; g < m->generation_count; g++) {
        bool all = m->instance_count > 0;
        for (size_t i = 0; i < m->instance_count; i++)
            if (m->instances[i].start_ms <= start_ms + first_fleet_ms)
                all = all && is_whole(m, &m->generations[g], m->instances[i].id);
        if (all) return g;
    }
    return 0;
}

static double begin_s(const struct tm_measure *m, size_t g)
{
    const struct generation *now = &m->generations[g];
    double each_ms = step_ms(m, now->pipelines, now->stages);
    double at_ms = now->first_ms >= 0 ? now->first_ms : now->told_ms[0];
    uint64_t done = now->first_ms >= 0 ? now->base + 1 : now->told_at[0];
    if (isnan(each_ms) || at_ms < 0 || !isfinite(m->offset_ms)) return 0;
    return fmax(0, at_ms - wall_ms(m, first_start_ms(m)) - (double)done * each_ms) / 1000;
}

/* ---- the end ---- */

/* From the word to stop to the last step's commit. */
static double drain_s(const struct tm_measure *m)
{
    const struct generation *last = &m->generations[m->generation_count - 1];
    double each_ms = step_ms(m, last->pipelines, last->stages);
    if (m->ended_ms < 0 || m->stopped_at <= last->base || last->first_ms < 0 || isnan(each_ms)) return 0;
    double at_ms = last->first_ms + (double)(m->stopped_at - last->base - 1) * each_ms;
    return fmax(0, at_ms - m->ended_ms) / 1000;
}

/* ---- changes ---- */

static const struct seat *seat_of(const struct tm_measure *m, const struct generation *g, uint64_t worker)
{
    for (size_t i = 0; i < g->seat_count; i++)
        if (m->seats[g->seat_first + i].id == worker) return &m->seats[g->seat_first + i];
    return NULL;
}

/* The most that one member has to get: layers of its stage that it did not have in the generation before. */
static double worst_bytes(const struct tm_measure *m, size_t g)
{
    double worst = 0;
    for (size_t i = 0; i < m->generations[g].seat_count; i++) {
        const struct seat *now = &m->seats[m->generations[g].seat_first + i];
        const struct seat *old = seat_of(m, &m->generations[g - 1], now->id);
        bool same = old != NULL && old->incarnation == now->incarnation;
        double bytes = 0;
        for (uint32_t l = now->first_layer; l < now->last_layer; l++)
            if (!same || l < old->first_layer || l >= old->last_layer)
                bytes += m->options.layer_bytes(m->options.context, l);
        worst = fmax(worst, bytes);
    }
    return worst;
}

struct fit {
    double sums[3][4]; /* normal equations of pause = x0 + x1 instances + x2 bytes: [row][column, right side last] */
    double squares;    /* of the pauses */
    size_t count;
    double bytes_max;
};

static void add_sample(struct fit *fit, double instances, double bytes, double ms)
{
    double row[4] = {1, instances, bytes, ms};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++)
            fit->sums[i][k] += row[i] * row[k];
    fit->squares += ms * ms;
    fit->count++;
    fit->bytes_max = fmax(fit->bytes_max, bytes);
}

/* Solves for the unknowns that `used` names, the others 0. False: they cannot be told apart. */
static bool solve(const struct fit *fit, unsigned used, double x[3])
{
    double a[3][4];
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++)
            a[i][k] = (used >> i & 1) && (k == 3 || (used >> k & 1)) ? fit->sums[i][k] : i == k ? 1 : 0;
    for (int i = 0; i < 3; i++) {
        double whole = a[i][i];
        for (int k = 0; k < i; k++) {
            double share = a[i][k] / a[k][k];
            for (int c = k; c < 4; c++)
                a[i][c] -= share * a[k][c];
        }
        if (!(a[i][i] > 1e-9 * whole)) return false;
    }
    for (int i = 2; i >= 0; i--) {
        x[i] = a[i][3];
        for (int k = i + 1; k < 3; k++)
            x[i] -= a[i][k] * x[k];
        x[i] /= a[i][i];
    }
    return true;
}

/* Least squares with no part below 0: of all choices of parts, the best that has none. Of a few changes only the mean
 * is told, unless the parts explain them all: one slow change would make every byte slow. */
static void solve_positive(const struct fit *fit, double best[3])
{
    double least = INFINITY;
    for (unsigned used = 1; used < 8; used++) {
        double x[3], error = 0;
        unsigned parts = (used & 1) + (used >> 1 & 1) + (used >> 2 & 1);
        if (parts > fit->count || !solve(fit, used, x) || x[0] < 0 || x[1] < 0 || x[2] < 0) continue;
        for (int i = 0; i < 3; i++) {
            for (int k = 0; k < 3; k++)
                error += x[i] * fit->sums[i][k] * x[k];
            error -= 2 * x[i] * fit->sums[i][3];
        }
        bool few = used != 1 && fit->count < parts * SAMPLES_A_PART;
        if (few && fit->squares + error > 0.01 * fit->squares) continue;
        if (error >= least - 1e-9 * fabs(least)) continue; /* fewer parts where more gain nothing */
        least = error;
        memcpy(best, x, sizeof x);
    }
}

static void fit_pauses(const struct tm_measure *m, size_t whole, struct fit *out)
{
    memset(out, 0, sizeof *out);
    for (size_t g = whole + 1; g < m->generation_count; g++) {
        const struct generation *now = &m->generations[g];
        double each_ms = step_ms(m, now->pipelines, now->stages);
        if (now->pause_ms < 0 || isnan(each_ms) || now->waited) continue;
        add_sample(out, (double)now->pipelines * now->stages, worst_bytes(m, g), fmax(0, now->pause_ms - each_ms));
    }
}

/* ---- who comes and goes ---- */

struct mean {
    double sum;
    size_t count;
};

static void add(struct mean *mean, double value)
{
    mean->sum += fmax(0, value);
    mean->count++;
}

/* The change that first seats an instance, or first leaves it after it was seated; 0: none. */
static size_t change_of(const struct tm_measure *m, uint64_t id, bool leaves)
{
    bool seated = false;
    for (size_t g = 0; g < m->generation_count; g++) {
        bool now = is_seated(m, &m->generations[g], id);
        if (now && !leaves) return g;
        if (!now && seated) return g;
        seated = now;
    }
    return 0;
}

static void watch_instance(const struct tm_measure *m, const struct instance *instance, size_t whole,
                           struct mean *leave, struct mean *detect)
{
    size_t left = change_of(m, instance->id, true);
    double left_ms = left > whole ? ended_ms(&m->generations[left]) : UNKNOWN;
    bool planned = left > whole && m->generations[left].cause == TM_CHANGED_NOTICE;
    if (instance->end_ms < 0) return;
    double lost_ms = wall_ms(m, instance->end_ms);
    double told_ms = instance->released ? instance->announced_ms : lost_ms - m->options.notice_wall_s * 1000;
    if (instance->announced && planned && left_ms >= 0) add(leave, left_ms - told_ms);
    if (!instance->announced && instance->lost_ms >= 0) add(detect, instance->lost_ms - lost_ms);
}

/* A change for arrivals: the last of those that it seats first was what it waited for; others may have been spares. */
static void watch_arrivals(const struct tm_measure *m, size_t g, struct mean *join)
{
    const struct generation *now = &m->generations[g];
    double last_ms = -INFINITY;
    if (now->cause != TM_CHANGED_ARRIVAL || now->waited || ended_ms(now) < 0) return;
    for (size_t i = 0; i < m->instance_count; i++)
        if (change_of(m, m->instances[i].id, false) == g) last_ms = fmax(last_ms, wall_ms(m, m->instances[i].start_ms));
    if (isfinite(last_ms)) add(join, ended_ms(now) - last_ms);
}

static void watch_instances(const struct tm_measure *m, size_t whole, struct tm_cost *out)
{
    struct mean join = {0}, leave = {0}, detect = {0}, stop = {0};
    if (!isfinite(m->offset_ms)) return;
    for (size_t i = 0; i < m->instance_count; i++)
        watch_instance(m, &m->instances[i], whole, &leave, &detect);
    for (size_t g = whole + 1; g < m->generation_count; g++)
        watch_arrivals(m, g, &join);
    for (size_t i = 0; m->ended_ms >= 0 && i < m->instance_count; i++)
        if (m->instances[i].end_ms >= 0 && wall_ms(m, m->instances[i].end_ms) > m->ended_ms)
            add(&stop, wall_ms(m, m->instances[i].end_ms) - m->ended_ms);
    if (stop.count > 0) out->measured.stop_s = stop.sum / (double)stop.count / 1000;
    if (join.count > 0) out->measured.join_s = join.sum / (double)join.count / 1000;
    if (detect.count > 0) out->measured.detect_ms = detect.sum / (double)detect.count;
    out->measured.leaves = leave.count > 0;
    if (leave.count > 0) out->measured.leave_s = leave.sum / (double)leave.count / 1000;
}

/* ---- all together ---- */

int tm_measure__cost(const struct tm_measure *m, struct tm_cost *out, struct tm_error *e)
{
    struct tm_cost cost = {.kind = TM_COST_MEASURED, .rules = m->options.rules, .copy_interval_s = 600};
    struct fit fit;
    double parts[3] = {0};
    size_t whole = first_whole(m);
    if (m->generation_count > 0) list_steps(m, &cost);
    if (cost.step_count == 0) return tm_error_set(e, TM_ENONE, "no generation ran long enough to measure a step");
    fit_pauses(m, whole, &fit);
    if (fit.count < SAMPLES_MIN)
        return tm_error_set(e, TM_ENONE, "the layout never changed: no migration could be measured");
    solve_positive(&fit, parts);
    cost.measured.speed = 1; /* so far all times are the wall's */
    cost.measured.reform_ms = parts[0];
    cost.measured.reform_per_instance_ms = parts[1];
    /* where bytes made no difference, the most that moved counts a hundredth of the rest */
    double hundredth_ms = fmax(0.01, 0.01 * (parts[0] + parts[1]));
    cost.measured.link_bit_s = parts[2] > 0 ? 8e3 / parts[2] : fmax(1, fit.bytes_max) * 8e3 / hundredth_ms;
    cost.measured.store_bit_s = cost.measured.link_bit_s;
    cost.measured.begin_s = begin_s(m, whole);
    cost.measured.drain_s = drain_s(m);
    watch_instances(m, whole, &cost);
    tm_cost_change_speed(&cost, m->options.speed);
    cost.measured.paced = m->options.paced;
    cost.start_s = m->options.on_demand_start_s + cost.measured.join_s;
    if (m->sets > 1)
        cost.copy_interval_s = (m->set_ms[1] - m->set_ms[0]) / 1000 / (double)(m->sets - 1) * m->options.speed;
    (void)snprintf(cost.source, sizeof cost.source, "measured by a run: %zu layouts, %zu migrations, %zu instances",
                   (size_t)cost.step_count, fit.count, m->instance_count);
    *out = cost;
    return 0;
}
