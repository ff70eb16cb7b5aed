/* What lifetimes say: Kaplan-Meier curves, hazards by age and hour of day, bursts, and estimates for small groups that
 * borrow from larger ones. */
#ifndef TM_MARKET_SURVIVAL_H
#define TM_MARKET_SURVIVAL_H

#include "market/lifetimes.h"

/* Which records: -1 of a type or zone means any. */
struct tm_lifetime_filter {
    int type;
    int zone;
    int idle; /* -1: any; 0: loaded; 1: idle */
};

struct tm_survival_step {
    double age_s;
    double at_risk; /* just before */
    double lost;
    double survival;  /* from here on, to the next step */
    double low, high; /* 95% confidence, log(-log) with Greenwood's variance */
};

/* The curve is 1 before the first step. */
struct tm_survival {
    struct tm_survival_step *steps; /* owned; ages ascending */
    size_t count;
    double instances; /* sums of weights */
    double lost, capped, released;
    double longest_s; /* nothing is known beyond */
};

void tm_survival_init(struct tm_survival *survival);
void tm_survival_deinit(struct tm_survival *survival);
/* Capped and released instances are censored. `out` must be initialised; filled only on success. */
int tm_survival_estimate(const struct tm_lifetimes *lifetimes, struct tm_lifetime_filter filter,
                         struct tm_survival *out, struct tm_error *e);
/* Share lost up to an age, with its confidence limits; without any loss the upper one is what leaves a chance of 2.5%
 * to see none. NaN beyond the longest life seen. */
double tm_survival_lost_by(const struct tm_survival *survival, double age_s, double *out_low, double *out_high);
/* Age at which half are lost (the middle of the time with exactly half of them); infinite where fewer are. */
double tm_survival_median(const struct tm_survival *survival);

/* ---- hazards ---- */

enum { TM_AGE_BINS = 6, TM_HOURS = 24 };
extern const double tm_age_bin_h[TM_AGE_BINS + 1]; /* 0, 1, 3, 6, 12, 24, infinity */

struct tm_hazards {
    double age_lost[TM_AGE_BINS];
    double age_hours[TM_AGE_BINS]; /* instance-hours lived at that age */
    double hour_lost[TM_HOURS];    /* by hour of the day at which an instance was lost */
    double hour_hours[TM_HOURS];   /* instance-hours lived at that hour; all 0 where times are not known */
    double first_hour_share;       /* of all losses; NaN without any */
};
struct tm_hazards tm_hazards__count(const struct tm_lifetimes *lifetimes, struct tm_lifetime_filter filter);

/* Losses per instance-hour by age of a small group: its own, shrunk towards those of a larger one. A gamma prior with
 * the mean of the larger group weighs as many losses as make its parts most likely (empirical Bayes); see
 * tm_hazards__prior. */
void tm_hazards__pool(const struct tm_hazards *group, const double parent[TM_AGE_BINS], double prior_losses,
                      double out[TM_AGE_BINS]);
/* How many losses the prior weighs: the one of 0.25, 0.5, ... 64 under which the groups' counts, negative binomial
 * around the parent's hazards, are the most likely. */
double tm_hazards__prior(const struct tm_hazards *groups, size_t count, const double parent[TM_AGE_BINS]);
/* Plain losses / hours; 0 where there were no hours. */
void tm_hazards__by_age(const struct tm_hazards *hazards, double out[TM_AGE_BINS]);
/* Share lost by an age under hazards by age. */
double tm_hazards_lost_by(const double hazard[TM_AGE_BINS], double age_h);

/* ---- bursts: losses in one zone, all within a minute of the first ---- */

enum { TM_BURST_SIZES = 9 };

struct tm_bursts {
    double count[TM_BURST_SIZES]; /* of bursts of size 1, 2, ... 8, and more */
    double bursts;
    double losses;
    double largest;
    double share_together; /* of losses in bursts of two and more; NaN without losses */
};
int tm_bursts__count(const struct tm_lifetimes *lifetimes, struct tm_lifetime_filter filter, struct tm_bursts *out,
                     struct tm_error *e);

/* ---- interruption bands ---- */

/* Losses per instance-hour of a band (0..4: <5%, 5-10%, 10-15%, 15-20%, >20% reclaimed a month): the band's middle p
 * over 30 days of running, -ln(1 - p) / 720 h. The open top band is taken as 20-30%. NaN for an unknown band. */
double tm_band__hazard_h(int band);

#endif
