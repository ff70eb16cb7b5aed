/* How long instances live: records of single instances, and what they say (survival.h).
 *
 * Records come from lists of lifetimes (columns lifetime_s and end, or VM name, Start, Terminate), from logs and traces
 * that name their instances, and from any other trace: where a trace says only how many went, every instance there is
 * taken to have been equally likely to go, so that its losses are spread over the instances there, by weight. */
#ifndef TM_MARKET_LIFETIMES_H
#define TM_MARKET_LIFETIMES_H

#include "base/env.h"
#include "base/names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_LIFETIMES_MAX = 1 << 20, TM_LIFETIME_GROUPS_MAX = 4096, TM_LIFETIMES_BYTES_MAX = 64 << 20 };

enum tm_lifetime_end {
    TM_LIFETIME_LOST,    /* the cloud took it back */
    TM_LIFETIME_CAPPED,  /* it reached the cloud's limit (GCE: 24 h) */
    TM_LIFETIME_RELEASED /* stopped by its user, or still there when the record ends */
};

struct tm_lifetime {
    double age_s;  /* at its end */
    double end_s;  /* when that was: seconds since 1970, or since the record's zero; NaN: not known */
    double weight; /* 1, or the share of an instance */
    enum tm_lifetime_end end;
    int type; /* number of the name of its GPU or machine type */
    int zone;
    bool idle;
};

struct tm_lifetimes {
    struct tm_names types; /* "" where not known */
    struct tm_names zones;
    struct tm_lifetime *records; /* owned */
    size_t count;
    size_t capacity;
    bool has_load; /* some records say whether the instance was idle */
    bool has_hour; /* some ends are points in time, in UTC or the record's own zone */
};

void tm_lifetimes_init(struct tm_lifetimes *lifetimes);
void tm_lifetimes_deinit(struct tm_lifetimes *lifetimes);

/* Adds what a file (or shipped trace) says. cap_s: a life of at least this (less 0.1 h) ended by the cloud's limit and
 * not by a loss; 0: no limit; negative: 24 h where the zone is one of GCE's. On an error nothing has been added. */
int tm_lifetimes_load(struct tm_env *env, const char *path, double cap_s, struct tm_lifetimes *lifetimes,
                      struct tm_error *e);
int tm_lifetimes__parse(const char *file, const char *text, size_t length, double cap_s, struct tm_lifetimes *lifetimes,
                        struct tm_error *e);

#endif
