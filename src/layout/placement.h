/* Placement: which instance holds which stage, so that one zone's burst cannot take all replicas of a stage.
 *
 * Each zone's instances are dealt out evenly over the stages: of n instances in a zone no stage gets more than
 * ceil(n / stages). So a stage loses all its replicas to one zone only where that zone holds nearly the whole fleet.
 * Among all such placements, instances keep the stage they hold where they can: little state moves. */
#ifndef TM_LAYOUT_PLACEMENT_H
#define TM_LAYOUT_PLACEMENT_H

#include "base/error.h"
#include "layout/layouts.h"

enum { TM_ZONES_MAX = 64, TM_PLACE_SPARE = -1 };

struct tm_placed {
    int zone;     /* 0 .. TM_ZONES_MAX - 1 */
    int holds;    /* the stage whose state it has, in the coming cut; TM_PLACE_SPARE: none */
    int stage;    /* set: its stage, or TM_PLACE_SPARE */
    int pipeline; /* set: its pipeline, or TM_PLACE_SPARE */
};

/* Sets stage and pipeline of `count` instances for a layout of at most that many. Zones give in proportion to their
 * size: spares come from all. -TM_EUSAGE: too few instances, or a zone or stage out of range. */
int tm_place(struct tm_placed *instances, int count, int pipelines, int stages, struct tm_error *e);

/* The fewest replicas that any stage keeps when all of the worst zone goes. */
int tm_placement_left_by_worst_zone(const struct tm_placed *instances, int count, int stages);

#endif
