/* How likely spot instances are to be preempted: by cloud, GPU, region, zone and hour of the day, with how sure that
 * is.
 *
 * What is known is a list of recorded pools (data/risk.tmrisk, and what the user has learned on top): preemptions and
 * instance-hours by age. The logarithm of a pool's cumulated hazard is taken to be a sum of effects, each normal: of
 * its cloud, of cloud and GPU, of the type (GPU and how many), of region, of zone, of the campaign (who recorded it
 * when, the largest of them) and of the pool itself. The recorded pools are then jointly normal with the one that is
 * asked for (kriging, or a Gaussian process, over names): a pool like those recorded gets a narrow answer, one that is
 * like none gets a wide one. AWS's interruption bands move the answer in proportion; every recorded pool of AWS was of
 * a type that is in the top band, which is therefore where the bands are calibrated. doc/forecast-and-lifetimes.md has
 * the figures and how often the intervals hold. */
#ifndef TM_MARKET_RISK_H
#define TM_MARKET_RISK_H

#include "base/env.h"
#include "base/names.h"
#include "base/text.h"
#include "market/survival.h"

enum { TM_RISK_POOLS_MAX = 512, TM_RISK_AGES = 5 };
/* Ages: 1, 3, 6, 12 and 24 hours. */

/* One recorded pool. Strings are the list's own; "": not known. */
struct tm_risk_pool {
    const char *cloud;
    const char *instance;
    const char *gpu; /* "": it has none */
    const char *region;
    const char *zone;
    const char *campaign; /* TM_RISK_OWN: the user's */
    double gpus;
    double instances;
    double age_lost[TM_AGE_BINS];
    double age_hours[TM_AGE_BINS];
    double hour_lost[TM_HOURS]; /* by hour of the day, UTC; all 0 where it is not known */
    double hour_hours[TM_HOURS];
};
#define TM_RISK_OWN "own"

struct tm_risk {
    struct tm_names strings;
    struct tm_risk_pool *pools;
    size_t count, capacity;
    double *factors; /* of the recorded pools' covariance, and its weights: made by tm_risk__prepare */
    double *weights;
};

void tm_risk_init(struct tm_risk *risk);
void tm_risk_deinit(struct tm_risk *risk);
/* What ships, and on top of it the user's own (file risk.tmrisk of the data folder). `risk` must be initialised. */
int tm_risk_load(struct tm_env *env, struct tm_risk *risk, struct tm_error *e);
/* Adds the rows of a file; a row of the user's own campaign is added to an earlier one of the same type and place. */
int tm_risk__parse(struct tm_risk *risk, const char *file, const char *text, size_t length, struct tm_error *e);
int tm_risk__add(struct tm_risk *risk, const struct tm_risk_pool *pool, struct tm_error *e);
/* Adds pools to the user's own file; their campaign is the user's, whatever they say. */
int tm_risk_learn(struct tm_env *env, const struct tm_risk_pool *pools, size_t count, struct tm_error *e);
/* Call after the last row was added, before asking. */
int tm_risk__prepare(struct tm_risk *risk, struct tm_error *e);

/* The list without a record, or without its whole campaign: to try predictions on it. Records are the same where type,
 * place and counts are. `out` must be initialised; it is prepared. */
int tm_risk_without(const struct tm_risk *risk, const struct tm_risk_pool *record, bool campaign, struct tm_risk *out,
                    struct tm_error *e);

/* What is asked: as far as it is known; "" or NULL: not known. */
struct tm_risk_query {
    const char *cloud;
    const char *instance;
    const char *gpu;
    double gpus;
    const char *region;
    const char *zone;
    const char *campaign; /* NULL: the user's own */
    int band;             /* TM_BAND_UNKNOWN where there is none */
    int hour_utc;         /* at which the instance starts; -1: any */
};

struct tm_risk_share {
    double middle, low, high; /* the median, and an interval that holds 80% */
};

struct tm_risk_answer {
    struct tm_risk_share lost[TM_RISK_AGES]; /* share of instances preempted by an age */
    struct tm_risk_share life_h;             /* instance-hours per preemption */
    double
        loss_per_s; /* to count with: the mean of what the rate may be, so that what is less sure counts as riskier */
    double spread;  /* of the logarithm of the rate */
    double cumulated[TM_RISK_AGES], deviation[TM_RISK_AGES]; /* log of the hazard up to an age, and its deviation */
    size_t same_type; /* recorded pools of the same cloud and GPU (or instance type, without GPU) */
};
void tm_risk_ask(const struct tm_risk *risk, const struct tm_risk_query *query, struct tm_risk_answer *out);

/* The interval that holds 80% of the shares that a record of so many instances would show. */
struct tm_risk_share tm_risk_recorded(const struct tm_risk_answer *answer, size_t age, double instances);

/* How much more often than on average instances are preempted at an hour of the day (UTC) in a region. */
double tm_risk__hour_factor(const struct tm_risk *risk, const char *cloud, const char *region, int hour_utc);

/* "us-east-1" of "us-east-1a", "us-central1" of "us-central1-c"; any other zone as it is. */
void tm_risk_region(const char *zone, char out[64]);

#endif
