#include "market/trace_draw.h"

#include "base/alloc.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHANGES_MAX = 1 << 20 };

/* From now on the pool has `by` more instances (drawn), or is to be looked at again (cut). */
struct change {
    int64_t time_ms;
    uint32_t pool;
    int32_t by;
};

struct changes {
    struct change *list;
    size_t count;
    size_t capacity;
};

static int add_change(struct changes *changes, int64_t time_ms, size_t pool, int by, struct tm_error *e)
{
    int rc =
        tm_grow((void **)&changes->list, &changes->capacity, changes->count + 1, sizeof *changes->list, CHANGES_MAX);
    if (rc == -(int)TM_ELIMIT)
        return tm_error_set(e, TM_ELIMIT, "more than %d losses: instances live too short for so long a job",
                            CHANGES_MAX);
    if (rc != 0) return tm_error_nomem(e);
    changes->list[changes->count++] = (struct change){time_ms, (uint32_t)pool, by};
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    if (x->time_ms != y->time_ms) return x->time_ms < y->time_ms ? -1 : 1;
    return (x->pool > y->pool) - (x->pool < y->pool);
}

struct tm_draw_losses tm_draw_losses_usual(void)
{
    return (struct tm_draw_losses){
        .burst_share = 0.5, .burst_size = 0.25, .outage_ms = 15 * 60000, .replace_ms = 3 * 60000};
}

/* The counts of all pools as one trace. */
static int add_moment(struct tm_trace *out, int64_t time_ms, const struct tm_draw *draw, const int *counts, int *before,
                      double *price_before, struct tm_error *e)
{
    int instances = 0;
    double usd_h = 0;
    for (size_t i = 0; i < draw->pool_count; i++) {
        instances += counts[i];
        usd_h += counts[i] * draw->pools[i].price_usd_h;
    }
    double price = instances > 0 ? usd_h / instances : NAN;
    bool news = !isnan(price) && price != *price_before;
    if (time_ms > 0 && instances == *before && !news) return 0;
    int rc = tm_trace_add(out, time_ms, instances > *before ? instances - *before : 0,
                          instances < *before ? *before - instances : 0, news ? price : NAN, e);
    *before = instances;
    if (news) *price_before = price;
    return rc;
}

/* ---- drawn ---- */

enum { STREAM_BURSTS, STREAM_INSTANCES };

static double exponential_ms(struct tm_random *random, double mean_ms)
{
    return isfinite(mean_ms) ? ceil(tm_random_exponential(random, mean_ms)) : INFINITY;
}

/* When the pool's zone runs short; `out` has the times alone. */
static int draw_bursts(const struct tm_draw *draw, size_t pool, struct changes *out, struct tm_error *e)
{
    const struct tm_draw_losses *losses = &draw->losses;
    double life_ms = (double)draw->pools[pool].mean_life_ms;
    double mean_ms = losses->burst_share > 0 ? life_ms * losses->burst_size / losses->burst_share : INFINITY;
    struct tm_random random = tm_random_make(draw->seed + (uint64_t)draw->number, pool << 32 | STREAM_BURSTS);
    double at_ms = 0;
    int rc = 0;
    while (rc == 0 && (at_ms += exponential_ms(&random, mean_ms)) < (double)draw->length_ms) {
        rc = add_change(out, (int64_t)at_ms, pool, 0, e);
        at_ms += (double)losses->outage_ms; /* a zone that is short does not run short again */
    }
    return rc;
}

/* One instance of a pool, and those that replace it. */
static int draw_instance(const struct tm_draw *draw, size_t pool, size_t instance, const struct changes *bursts,
                         struct changes *out, struct tm_error *e)
{
    const struct tm_draw_losses *losses = &draw->losses;
    double alone_ms =
        losses->burst_share < 1 ? (double)draw->pools[pool].mean_life_ms / (1 - losses->burst_share) : INFINITY;
    struct tm_random random =
        tm_random_make(draw->seed + (uint64_t)draw->number, pool << 32 | (STREAM_INSTANCES + instance));
    size_t burst = 0;
    int rc = 0;
    for (double up_ms = 0; rc == 0;) {
        double lost_ms = up_ms + exponential_ms(&random, alone_ms), back_ms = lost_ms + (double)losses->replace_ms;
        while (burst < bursts->count && (double)bursts->list[burst].time_ms <= up_ms)
            burst++;
        for (; burst < bursts->count && (double)bursts->list[burst].time_ms < lost_ms; burst++) {
            if (tm_random_unit(&random) >= losses->burst_size) continue;
            lost_ms = (double)bursts->list[burst].time_ms;
            back_ms = lost_ms + (double)losses->outage_ms;
        }
        /* Nobody arrives while the zone is short. */
        for (size_t i = burst; i < bursts->count && (double)bursts->list[i].time_ms <= back_ms; i++)
            back_ms = fmax(back_ms, (double)(bursts->list[i].time_ms + losses->outage_ms));
        if (lost_ms >= (double)draw->length_ms) return 0;
        rc = add_change(out, (int64_t)lost_ms, pool, -1, e);
        if (back_ms >= (double)draw->length_ms) return rc;
        if (rc == 0) rc = add_change(out, (int64_t)back_ms, pool, 1, e);
        up_ms = back_ms;
    }
    return rc;
}

static int draw_pool(const struct tm_draw *draw, size_t pool, struct changes *out, struct tm_error *e)
{
    struct changes bursts = {0};
    if (draw->pools[pool].mean_life_ms == 0 || draw->pools[pool].always) return 0;
    int rc = draw_bursts(draw, pool, &bursts, e);
    for (int i = 0; rc == 0 && i < draw->pools[pool].count; i++)
        rc = draw_instance(draw, pool, (size_t)i, &bursts, out, e);
    tm_free(bursts.list);
    return rc;
}

static int draw_all(const struct tm_draw *draw, struct tm_trace *out, struct tm_error *e)
{
    struct changes changes = {0};
    int counts[TM_DRAW_POOLS_MAX];
    int before = 0, rc = 0;
    double price = NAN;
    for (size_t i = 0; rc == 0 && i < draw->pool_count; i++) {
        counts[i] = draw->pools[i].count;
        rc = draw_pool(draw, i, &changes, e);
    }
    if (changes.count > 0) qsort(changes.list, changes.count, sizeof *changes.list, by_time);
    if (rc == 0) rc = add_moment(out, 0, draw, counts, &before, &price, e);
    for (size_t i = 0; rc == 0 && i < changes.count; i++) {
        counts[changes.list[i].pool] += changes.list[i].by;
        bool last = i + 1 == changes.count || changes.list[i + 1].time_ms != changes.list[i].time_ms;
        if (last) rc = add_moment(out, changes.list[i].time_ms, draw, counts, &before, &price, e);
    }
    tm_free(changes.list);
    return rc;
}

/* ---- cut ---- */

/* Where a pool is in the trace, as time passes. */
struct place {
    int64_t offset_ms;
    size_t next; /* event of the trace */
    int64_t there;
    int64_t round; /* how often the trace has begun anew */
};

/* Evenly spread over the traced ones: on average over the draws exactly the traced share is there. */
static int cut_count(const struct tm_draw *draw, size_t pool, const struct place *place)
{
    static const double golden = 0.6180339887498949; /* steps of it fill the range evenly */
    if (draw->pools[pool].always) return draw->pools[pool].count;
    double luck = (draw->number + 0.5) / draw->draws + golden * (double)place->round;
    double share = (double)place->there / (double)draw->like->instances_max;
    return (int)fmax(0, ceil(draw->pools[pool].count * share - (luck - floor(luck))));
}

/* The next time, in the drawn trace, at which something happens to the pool after what it has seen. */
static int64_t cut_next_ms(const struct tm_trace *like, const struct place *place)
{
    int64_t length = like->end_ms - like->begin_ms;
    int64_t at = place->next < like->event_count && like->events[place->next].time_ms < like->end_ms
                     ? like->events[place->next].time_ms - like->begin_ms
                     : length;
    return at + place->round * length - place->offset_ms;
}

static void cut_step(const struct tm_trace *like, struct place *place)
{
    if (place->next < like->event_count && like->events[place->next].time_ms < like->end_ms) {
        place->there += like->events[place->next].in - like->events[place->next].out;
        place->next++;
    } else {
        place->round++;
        place->next = 0;
        place->there = 0;
    }
}

static int cut_all(const struct tm_draw *draw, struct tm_trace *out, struct tm_error *e)
{
    const struct tm_trace *like = draw->like;
    int64_t length = like->end_ms - like->begin_ms;
    int64_t start_ms = length * ((int64_t)draw->number * 7 % draw->draws) / draw->draws; /* luck goes another way */
    struct place places[TM_DRAW_POOLS_MAX] = {{0}};
    int counts[TM_DRAW_POOLS_MAX];
    int before = 0, rc = 0;
    double price = NAN;
    for (size_t i = 0; i < draw->pool_count; i++)
        places[i].offset_ms = (start_ms + (int64_t)i * (length / (int64_t)draw->pool_count)) % length;
    for (int64_t now_ms = 0, moments = 0; rc == 0 && now_ms < draw->length_ms; moments++) {
        int64_t next_ms = INT64_MAX;
        if (moments == CHANGES_MAX)
            return tm_error_set(e, TM_ELIMIT, "more than %d changes: the trace is too short for so long a job",
                                CHANGES_MAX);
        for (size_t i = 0; i < draw->pool_count; i++) {
            while (cut_next_ms(like, &places[i]) <= now_ms)
                cut_step(like, &places[i]);
            counts[i] = cut_count(draw, i, &places[i]);
            int64_t next = cut_next_ms(like, &places[i]);
            if (next < next_ms) next_ms = next;
        }
        rc = add_moment(out, now_ms, draw, counts, &before, &price, e);
        now_ms = next_ms;
    }
    return rc;
}

/* ---- both ---- */

static int check(const struct tm_draw *draw, struct tm_error *e)
{
    const struct tm_draw_losses *losses = &draw->losses;
    int64_t instances = 0;
    bool sound = draw->pool_count <= TM_DRAW_POOLS_MAX && draw->draws > 0 && draw->number >= 0 && draw->length_ms > 0;
    for (size_t i = 0; sound && i < draw->pool_count; i++) {
        sound = draw->pools[i].count >= 0 && draw->pools[i].price_usd_h >= 0 && draw->pools[i].mean_life_ms >= 0;
        instances += draw->pools[i].count;
    }
    if (draw->like != NULL && (draw->like->instances_max < 1 || draw->like->end_ms <= draw->like->begin_ms))
        return tm_error_set(e, TM_EINPUT, "the trace has no instances: there is nothing to replay");
    if (draw->like == NULL)
        sound = sound && losses->burst_share >= 0 && losses->burst_share <= 1 && losses->outage_ms >= 0 &&
                losses->replace_ms >= 0 &&
                (losses->burst_share == 0 || (losses->burst_size > 0 && losses->burst_size <= 1));
    if (!sound || instances > TM_DRAW_INSTANCES_MAX)
        return tm_error_set(e, TM_EINPUT,
                            "a fleet of up to %d instances in up to %d pools, with sound losses, expected",
                            TM_DRAW_INSTANCES_MAX, TM_DRAW_POOLS_MAX);
    return 0;
}

int tm_trace_draw(const struct tm_draw *draw, struct tm_trace *out, struct tm_error *e)
{
    struct tm_trace made;
    int rc = check(draw, e);
    if (rc != 0) return rc;
    tm_trace_init(&made);
    if (draw->like != NULL) memcpy(made.instance, draw->like->instance, sizeof made.instance);
    rc = draw->like != NULL && draw->pool_count > 0 ? cut_all(draw, &made, e) : draw_all(draw, &made, e);
    if (rc != 0) {
        tm_trace_deinit(&made);
        return rc;
    }
    made.end_ms = draw->length_ms;
    for (size_t i = 0; i < draw->pool_count; i++)
        made.instances_max += draw->pools[i].count;
    tm_trace_deinit(out);
    *out = made;
    return 0;
}
