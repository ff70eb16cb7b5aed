/* What the spot instances of a fleet live through, as a trace of their own: cut from the trace of a place, or drawn
 * from what is known of how instances are lost. Who judges a fleet and who runs it emulated get the same ones.
 *
 * Drawn: every instance is lost at random, once in its mean life. A share of the losses comes in bursts: the zone runs
 * short, each instance of the pool is taken with a chance at once, and the pool gives none until the shortage is over.
 * An instance that went alone is replaced after a while.
 *
 * Cut: the trace says which share of what was asked for a place gives. Each pool lives through it from a start of its
 * own, so that zones are short at different times, and has its count times the share. A trace that is too short begins
 * anew. */
#ifndef TM_MARKET_TRACE_DRAW_H
#define TM_MARKET_TRACE_DRAW_H

#include "market/trace.h"

enum { TM_DRAW_POOLS_MAX = 32, TM_DRAW_INSTANCES_MAX = 4096 };

/* Instances of one offer. */
struct tm_draw_pool {
    int count;
    double price_usd_h;
    int64_t mean_life_ms; /* of one instance; 0: it is never lost */
    bool always;          /* there, whatever the trace says: on demand */
};

struct tm_draw_losses {
    double burst_share; /* of the losses: from 0 to 1 */
    double burst_size;  /* chance of an instance to go in a burst: above 0 where burst_share is, at most 1 */
    int64_t outage_ms;  /* until a pool gives instances again after a burst */
    int64_t replace_ms; /* until an instance that went alone is replaced */
};

/* What is assumed where nothing is known; and the mean life. */
enum { TM_DRAW_LIFE_MS = 24 * 3600 * 1000 };
struct tm_draw_losses tm_draw_losses_usual(void);

struct tm_draw {
    const struct tm_draw_pool *pools;
    size_t pool_count;
    const struct tm_trace *like; /* cut from this one; NULL: drawn from the losses */
    struct tm_draw_losses losses;
    uint64_t seed;
    int number;        /* which of */
    int draws;         /* so many: starts are spread evenly over the trace; at least 1 */
    int64_t length_ms; /* of what is made */
};

/* The trace begins at 0 with all that there is then; its prices are those of the instances that are there, on average.
 * The same figures give the same trace. `out` must be initialised; it is filled only on success. -TM_EINPUT: figures
 * that cannot be, or a trace without instances; -TM_ELIMIT: too many losses. */
int tm_trace_draw(const struct tm_draw *draw, struct tm_trace *out, struct tm_error *e);

#endif
