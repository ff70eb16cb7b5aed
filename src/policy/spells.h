/* How spot came and went so far: for each of "there" and "not there", how long and how many times it ended.
 *
 * Old observations fade: after a time of `memory_s` they count 1/e, so that a change of the market is learned. */
#ifndef TM_POLICY_SPELLS_H
#define TM_POLICY_SPELLS_H

#include <stdbool.h>

struct tm_spells {
    double memory_s;
    bool known; /* anything observed yet */
    bool up;    /* now */
    double now_s;
    double time_s[2]; /* faded time [not there, there] */
    double ends[2];   /* faded number of times it ended */
};

void tm_spells_init(struct tm_spells *spells, double memory_s);
/* Spot is (not) there at now_s, and has been as it was before since the observation before. Times do not go back. */
void tm_spells_observe(struct tm_spells *spells, double now_s, bool up);

#endif
