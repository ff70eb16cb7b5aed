/* Counts of instances over time as pools might have them, and as none has: made up from a seed. The forecast's
 * constants were chosen with an eye on these kinds, so they are no proof of what it does on others. */
#ifndef TM_MARKET_TEST_MADE_UP_COUNTS_H
#define TM_MARKET_TEST_MADE_UP_COUNTS_H

#include "base/random.h"

#include <math.h>
#include <stddef.h>

enum made_up {
    MADE_RAMP_UP,       /* one more each interval */
    MADE_RAMP_UP_SLOW,  /* one more every fifth */
    MADE_RAMP_UP_NOISY, /* a quarter more each interval on average, by chance */
    MADE_RAMP_DOWN,
    MADE_RAMP_DOWN_SLOW,
    MADE_RAMP_DOWN_NOISY,
    MADE_RAMP_AND_PLATEAU, /* grows, stays, grows, ... */
    MADE_SAWTOOTH,         /* grows slowly, is lost at once */
    MADE_SAWTOOTH_NOISY,
    MADE_WALK,
    MADE_WALK_WIDE,
    MADE_REVERTING,
    MADE_REVERTING_SLOW,
    MADE_BURSTS, /* losses of many at once, arrivals that fill the pool up again */
    MADE_BURSTS_RARE,
    MADE_STEPS, /* another level now and then */
    MADE_STEPS_GROWING,
    MADE_ON_OFF,      /* none or one */
    MADE_ON_OFF_POOL, /* none or all */
    MADE_RARE,        /* a change in some hundred intervals */
    MADE_LARGE_CHURN, /* 200, each lost and replaced by itself */
    MADE_LARGE_BURSTS,
    MADE_CYCLE_HOUR, /* up and down in 60 intervals */
    MADE_CYCLE_HOUR_NOISY,
    MADE_CYCLE_DAY,
    MADE_ALTERNATING, /* one of two, in turn */
    MADE_GROWING_BURSTS,
    MADE_KINDS
};

static const char *const made_up_names[MADE_KINDS] = {
    "ramp up",          "ramp up, slow", "ramp up, noisy",  "ramp down",     "ramp down, slow",  "ramp down, noisy",
    "ramp and plateau", "sawtooth",      "sawtooth, noisy", "walk",          "walk, wide",       "reverting",
    "reverting, slow",  "bursts",        "bursts, rare",    "steps",         "steps, growing",   "on and off",
    "all on and off",   "rare changes",  "large, churn",    "large, bursts", "cycle of an hour", "cycle, noisy",
    "cycle of a day",   "alternating",   "growing, bursts",
};

static inline int made_up_draw(struct tm_random *random, int below)
{
    return (int)tm_random_below(random, (uint64_t)below);
}

/* Sum of twelve uniform numbers: mean 0, variance 1. */
static inline double made_up_normal(struct tm_random *random)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += tm_random_unit(random);
    return sum;
}

/* How many of n, each with probability p. */
static inline int made_up_binomial(struct tm_random *random, int n, double p)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += tm_random_unit(random) < p;
    return sum;
}

static inline int made_up_within(int count, int low, int high)
{
    return count < low ? low : count > high ? high : count;
}

static inline int made_up_burst(struct tm_random *random, int last, int pool, double losses, double arrivals)
{
    double u = tm_random_unit(random);
    if (u < losses && last > 0) return last - 1 - made_up_draw(random, last);
    if (u < losses + arrivals && last < pool) return last + 1 + made_up_draw(random, (pool - last + 1) / 2);
    return last;
}

static inline int made_up_straight(enum made_up kind, struct tm_random *random, int t, int n, int last)
{
    switch (kind) {
    case MADE_RAMP_UP:
        return 4 + t;
    case MADE_RAMP_UP_SLOW:
        return 4 + t / 5;
    case MADE_RAMP_UP_NOISY:
        return last + (tm_random_unit(random) < 0.25);
    case MADE_RAMP_DOWN:
        return 4 + n - t;
    case MADE_RAMP_DOWN_SLOW:
        return 4 + (n - t) / 5;
    case MADE_RAMP_DOWN_NOISY:
        return made_up_within(last - (tm_random_unit(random) < 0.25), 0, 4096);
    case MADE_RAMP_AND_PLATEAU:
        return 4 + (t / 80) * 40 + (t % 80 < 40 ? t % 80 : 40);
    case MADE_SAWTOOTH:
        return 4 + (t % 50) / 2;
    default:
        return made_up_within(tm_random_unit(random) < 0.03 ? 4 : last + (tm_random_unit(random) < 0.5), 0, 60);
    }
}

static inline int made_up_wandering(enum made_up kind, struct tm_random *random, int last, double *level)
{
    double u = tm_random_unit(random);
    switch (kind) {
    case MADE_WALK:
        return made_up_within(last + (u < 0.2) - (u > 0.8), 0, 40);
    case MADE_WALK_WIDE:
        return made_up_within(last + (int)lround(2 * made_up_normal(random)), 0, 120);
    case MADE_REVERTING:
        *level += 0.2 * (24 - *level) + 2 * made_up_normal(random);
        break;
    default:
        *level += 0.03 * (24 - *level) + 0.7 * made_up_normal(random);
        break;
    }
    return made_up_within((int)lround(*level), 0, 4096);
}

static inline int made_up_jumping(enum made_up kind, struct tm_random *random, int last)
{
    double u = tm_random_unit(random);
    switch (kind) {
    case MADE_BURSTS:
        return made_up_burst(random, last, 32, 0.05, 0.15);
    case MADE_BURSTS_RARE:
        return made_up_burst(random, last, 16, 0.01, 0.05);
    case MADE_STEPS:
        return u < 0.02 ? made_up_draw(random, 41) : last;
    case MADE_STEPS_GROWING:
        return u < 0.04 ? last + 1 + made_up_draw(random, 6) : last;
    case MADE_ON_OFF:
        return u < 0.05 ? 1 - last : last;
    case MADE_ON_OFF_POOL:
        return u < 0.04 ? 16 - last : last;
    case MADE_RARE:
        return u < 0.008 ? made_up_within(last + (u < 0.004 ? 1 : -1), 0, 12) : last;
    case MADE_LARGE_CHURN:
        return last - made_up_binomial(random, last, 0.01) + made_up_binomial(random, 200 - last, 0.05);
    case MADE_LARGE_BURSTS:
        return made_up_burst(random, last, 200, 0.02, 0.2);
    default:
        return u < 0.02 ? last - made_up_draw(random, last / 2 + 1) : last + (u < 0.4);
    }
}

static inline int made_up_cycling(enum made_up kind, struct tm_random *random, int t)
{
    double hour = sin(2 * 3.14159265358979 * t / 60);
    double day = sin(2 * 3.14159265358979 * t / 1440);
    switch (kind) {
    case MADE_CYCLE_HOUR:
        return (int)lround(20 + 10 * hour);
    case MADE_CYCLE_HOUR_NOISY:
        return made_up_within((int)lround(20 + 8 * hour + 2 * made_up_normal(random)), 0, 64);
    case MADE_CYCLE_DAY:
        return made_up_within((int)lround(20 + 10 * day + made_up_normal(random)), 0, 64);
    default:
        return t % 2 == 0 ? 5 : 7;
    }
}

/* n counts; the same for the same kind, length and seed. */
static inline void made_up_counts(enum made_up kind, uint64_t seed, int n, int *out)
{
    struct tm_random random = tm_random_make(seed, (uint64_t)kind);
    double level = 24;
    int last = kind == MADE_ON_OFF            ? 1
               : kind == MADE_LARGE_CHURN     ? 166
               : kind == MADE_LARGE_BURSTS    ? 150
               : kind == MADE_RARE            ? 10
               : kind == MADE_RAMP_DOWN_NOISY ? 4 + n / 3
                                              : 16;
    for (int t = 0; t < n; t++) {
        if (kind <= MADE_SAWTOOTH_NOISY)
            last = made_up_straight(kind, &random, t, n, last);
        else if (kind <= MADE_REVERTING_SLOW)
            last = made_up_wandering(kind, &random, last, &level);
        else if (kind <= MADE_LARGE_BURSTS || kind == MADE_GROWING_BURSTS)
            last = made_up_jumping(kind, &random, last);
        else
            last = made_up_cycling(kind, &random, t);
        out[t] = last;
    }
}

#endif
