/* A study of lifetimes: all figures of every group of instances, by type, and by type and zone. */
#ifndef TM_MARKET_STUDY_H
#define TM_MARKET_STUDY_H

#include "market/survival.h"

struct tm_study_group {
    struct tm_lifetime_filter filter; /* zone -1: all zones of the type; type -1 as well: everything */
    struct tm_survival survival;
    struct tm_hazards hazards;
    double pooled[TM_AGE_BINS]; /* losses per instance-hour by age, shrunk towards the group around it */
    struct tm_bursts bursts;
};

struct tm_study {
    struct tm_study_group *groups; /* owned: everything; then each type, followed by its zones where it has several */
    size_t count;
    size_t capacity;
};

void tm_study_init(struct tm_study *study);
void tm_study_deinit(struct tm_study *study);
/* Of the records that pass the filter. -TM_EINPUT where none do. `out` must be initialised. */
int tm_study_make(const struct tm_lifetimes *lifetimes, struct tm_lifetime_filter filter, struct tm_study *out,
                  struct tm_error *e);

#endif
