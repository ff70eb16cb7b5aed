/* What a job learns of its pools: how long instances live, how capacity comes and goes, and what goes together. */
#include "policy/pools_internal.h"

#include <math.h>
#include <string.h>

static const double fading = 0.999; /* of a sample, each ten minutes: half of it is gone in five days */
/* Calm for less than these seconds: preempted every ... */
static const double ages_s[TM_POOLS_AGES] = {900, 3600, 4 * 3600, INFINITY};
static const double usual_s[TM_POOLS_AGES] = {3600, 2 * 3600, 4 * 3600, 10 * 3600}; /* ... until there are figures */
static const double usual_losses = 2;      /* that these stand for, among those of all pools ... */
static const double others_losses = 3;     /* ... and those of all pools beside its own */
static const double usual_kept = 0.92;     /* of a deviation from the mean, from sample to sample: it lasts two hours */
static const double usual_weight = 36;     /* samples that these figures stand for */
static const double usual_together = 0.25; /* pools that lose together, until it is known ... */
static const double usual_drops = 4;       /* ... as if so many losses had been seen */
static const double least_kept = 0.7;
static const double most_kept = 0.995;
static const double together_s = 900;

void tm_learned_pools__init(struct tm_learned_pools *learned)
{
    memset(learned, 0, sizeof *learned);
    learned->current = -1;
    for (int i = 0; i < TM_POOLS_MAX; i++)
        learned->pools[i].dropped_s = -INFINITY;
}

int tm_pool__capacity(const struct tm_pool *pool, int most)
{
    int ours = pool->here + pool->ordered;
    if (pool->offered >= 0) return ours + pool->offered;
    if (pool->limit > 0 && pool->limit < most) most = pool->limit;
    return pool->refused > 0 || ours > most ? ours : most;
}

static bool is_unknown(const struct tm_pool *pool)
{
    return pool->offered < 0 && pool->here + pool->ordered + pool->leaving + pool->lost + pool->refused == 0;
}

static int age_of(const struct tm_learned_pools *learned, const struct tm_learned_pool *pool)
{
    int age = 0;
    while (age < TM_POOLS_AGES - 1 && learned->now_s - pool->calm_s >= ages_s[age])
        age++;
    return age;
}

static void learn_drop(struct tm_learned_pools *learned, int pool, int taken)
{
    struct tm_learned_pool *it = &learned->pools[pool];
    it->losses[age_of(learned, it)] += taken;
    it->drops++;
    it->dropped_s = it->calm_s = learned->now_s;
    for (int i = 0; i < TM_POOLS_MAX; i++) {
        if (i == pool || learned->now_s - learned->pools[i].dropped_s > together_s) continue;
        learned->together[pool][i]++;
        learned->together[i][pool]++;
    }
}

static void sample_group(struct tm_learned_group *group, double now_s, double rate)
{
    while (now_s - group->sampled_s >= TM_POOLS_SAMPLE_S) {
        group->weight = group->weight * fading + 1;
        group->sum = group->sum * fading + group->last;
        group->squares = group->squares * fading + group->last * group->last;
        group->products *= fading;
        group->sampled_s += TM_POOLS_SAMPLE_S;
        bool newest = now_s - group->sampled_s < TM_POOLS_SAMPLE_S;
        group->products += group->last * (newest ? rate : group->last);
        if (newest) group->last = rate;
    }
}

/* A pool that took or refused instances is short until one arrives there. */
static void learn_pool_short(struct tm_learned_pool *it, const struct tm_pool *pool)
{
    int here = pool->here + pool->leaving;
    if (pool->lost > 0 || pool->refused > 0)
        it->is_short = true;
    else if (here > it->here)
        it->is_short = false;
    it->here = here;
}

/* Who does not say what it would give says it by a refusal: what others could have had there is gone, as where the
 * offer of a pool that tells falls. Once, until it gives some again. */
static void learn_refusal(struct tm_learned_pools *learned, int pool, const struct tm_pool *seen)
{
    struct tm_learned_pool *it = &learned->pools[pool];
    int ours = seen->here + seen->ordered + seen->leaving;
    if (seen->offered < 0 && seen->refused > 0) {
        if (it->gives && seen->lost == 0) learn_drop(learned, pool, 1); /* else it is counted already */
        it->gives = false;
    } else if (ours > it->ours) {
        it->gives = true;
    }
    it->ours = ours;
}

/* Where fewer than two pools are not short, none is. */
static void learn_short(struct tm_learned_pools *learned, const struct tm_pool *pools, int count)
{
    int active = 0, spot = 0;
    for (int i = 0; i < count; i++) {
        if (pools[i].market != TM_POOL_SPOT) continue;
        spot++;
        active += !learned->pools[i].is_short;
        if (pools[i].here + pools[i].ordered + pools[i].leaving + pools[i].lost > 0) learned->current = i;
    }
    for (int i = 0; spot > 1 && active < 2 && i < count; i++)
        learned->pools[i].is_short = false;
}

void tm_learned_pools__observe(struct tm_learned_pools *learned, double now_s, const struct tm_pool *pools, int count,
                               int capacities[TM_POOLS_MAX])
{
    double passed_s = learned->begun ? fmax(0, now_s - learned->now_s) : 0;
    learned->now_s = now_s;
    for (int g = 0; g < TM_POOLS_MAX; g++)
        capacities[g] = 0;
    for (int i = 0; i < count; i++) {
        struct tm_learned_pool *it = &learned->pools[i];
        if (pools[i].market != TM_POOL_SPOT) continue;
        int ours = pools[i].here + pools[i].ordered + pools[i].leaving;
        int capacity = pools[i].offered < 0 ? ours : ours + pools[i].offered;
        it->instance_s[age_of(learned, it)] += it->capacity * passed_s;
        int taken = pools[i].lost; /* what the job gives back is still on offer, where that is said */
        if (pools[i].offered >= 0 && it->capacity - capacity > taken) taken = it->capacity - capacity;
        if (learned->begun && taken > 0) learn_drop(learned, i, taken);
        learn_refusal(learned, i, &pools[i]);
        learn_pool_short(it, &pools[i]);
        if (it->capacity == 0) it->calm_s = now_s;
        it->capacity = capacity;
        int *sum = &capacities[pools[i].group];
        *sum = *sum < 0 || is_unknown(&pools[i]) ? -1 : *sum + capacity;
    }
    learn_short(learned, pools, count);
    learned->begun = true;
}

void tm_learned_pools__sample(struct tm_learned_pools *learned, int group, double rate)
{
    struct tm_learned_group *it = &learned->groups[group];
    if (!it->begun) *it = (struct tm_learned_group){.begun = true, .sampled_s = learned->now_s, .last = rate};
    sample_group(it, learned->now_s, rate);
}

/* Losses a second of instances whose pool has been calm for so long. */
static double hazard(const struct tm_learned_pools *learned, const struct tm_learned_pool *pool, int age)
{
    double losses = usual_losses, instance_s = usual_losses * usual_s[age];
    for (int i = 0; i < TM_POOLS_MAX; i++) {
        losses += learned->pools[i].losses[age];
        instance_s += learned->pools[i].instance_s[age];
    }
    return (pool->losses[age] + others_losses) / (pool->instance_s[age] + others_losses * instance_s / losses);
}

double tm_learned_pools__lost_per_s(const struct tm_learned_pools *learned, int pool)
{
    const struct tm_learned_pool *it = &learned->pools[pool];
    double life_s = 0, alive = 1, calm_s = it->capacity > 0 ? learned->now_s - it->calm_s : 0;
    for (int age = it->capacity > 0 ? age_of(learned, it) : 0; age < TM_POOLS_AGES; age++) {
        double lost_per_s = hazard(learned, it, age), stays = exp(-lost_per_s * (ages_s[age] - calm_s));
        life_s += alive * (1 - stays) / lost_per_s;
        alive *= stays;
        calm_s = ages_s[age];
    }
    return 1 / life_s;
}

double tm_learned_pools__at_once(const struct tm_learned_pools *learned, int pool)
{
    const struct tm_learned_pool *it = &learned->pools[pool];
    double taken = usual_drops;
    for (int age = 0; age < TM_POOLS_AGES; age++)
        taken += it->losses[age];
    return taken / (it->drops + usual_drops);
}

double tm_learned_pools__together(const struct tm_learned_pools *learned, int pool, int other)
{
    double drops = learned->pools[pool].drops, both = learned->together[pool][other];
    return fmin(1, (both + usual_together * usual_drops) / (drops + usual_drops));
}

double tm_learned_pools__expected(const struct tm_learned_pools *learned, int group, double now, int samples)
{
    const struct tm_learned_group *it = &learned->groups[group];
    double kept = usual_kept, mean = now;
    if (it->weight > 0) {
        mean = (it->sum + usual_weight * now) / (it->weight + usual_weight);
        double plain = it->sum / it->weight, variance = it->squares / it->weight - plain * plain;
        double shared = it->products / it->weight - plain * plain;
        double seen =
            variance > 1e-6 * plain * plain ? fmin(most_kept, fmax(least_kept, shared / variance)) : usual_kept;
        kept = (it->weight * seen + usual_weight * usual_kept) / (it->weight + usual_weight);
    }
    return fmax(0, mean + (now - mean) * pow(kept, samples));
}
