#include "layout/placement.h"

#include <string.h>

struct placing {
    struct tm_placed *instances;
    int count;
    int pipelines;
    int stages;
    int in_zone[TM_ZONES_MAX];
    int from_zone[TM_ZONES_MAX];                   /* how many of a zone work */
    int quota[TM_ZONES_MAX][TM_LAYOUT_STAGES_MAX]; /* how many of a zone may hold a stage */
};

static int check(const struct placing *placing, struct tm_error *e)
{
    if (placing->stages < 1 || placing->stages > TM_LAYOUT_STAGES_MAX || placing->pipelines < 1 ||
        placing->pipelines > placing->count / placing->stages)
        return tm_error_set(e, TM_EUSAGE, "a layout of %dx%d does not fit on %d instances", placing->pipelines,
                            placing->stages, placing->count);
    for (int i = 0; i < placing->count; i++) {
        const struct tm_placed *at = &placing->instances[i];
        if (at->zone < 0 || at->zone >= TM_ZONES_MAX || at->holds < TM_PLACE_SPARE || at->holds >= placing->stages)
            return tm_error_set(e, TM_EUSAGE, "instance %d is in zone %d and holds stage %d of %d", i, at->zone,
                                at->holds, placing->stages);
    }
    return 0;
}

/* Spares are taken from the zones that have most left, so that no zone weighs more than it must. */
static void choose_spares(struct placing *placing)
{
    for (int i = 0; i < placing->count; i++)
        placing->in_zone[placing->instances[i].zone]++;
    memcpy(placing->from_zone, placing->in_zone, sizeof placing->from_zone);
    for (int spare = placing->pipelines * placing->stages; spare < placing->count; spare++) {
        int largest = 0;
        for (int zone = 1; zone < TM_ZONES_MAX; zone++)
            if (placing->from_zone[zone] > placing->from_zone[largest]) largest = zone;
        placing->from_zone[largest]--;
    }
}

/* Deals the zones' places out over the stages, one after the other, on and on: every stage ends with one for each
 * pipeline, and of each zone with an even share. */
static void deal_quotas(struct placing *placing)
{
    int next = 0;
    for (int zone = 0; zone < TM_ZONES_MAX; zone++)
        for (int i = 0; i < placing->from_zone[zone]; i++, next = (next + 1) % placing->stages)
            placing->quota[zone][next]++;
}

static void assign(struct placing *placing, struct tm_placed *at, int stage, int *filled)
{
    placing->quota[at->zone][stage]--;
    at->stage = stage;
    at->pipeline = filled[stage]++;
}

int tm_place(struct tm_placed *instances, int count, int pipelines, int stages, struct tm_error *e)
{
    struct placing placing = {.instances = instances, .count = count, .pipelines = pipelines, .stages = stages};
    int rc = check(&placing, e);
    if (rc != 0) return rc;
    int filled[TM_LAYOUT_STAGES_MAX] = {0};
    choose_spares(&placing);
    deal_quotas(&placing);
    for (int i = 0; i < count; i++) { /* who may keep its stage keeps it */
        struct tm_placed *at = &instances[i];
        at->stage = at->pipeline = TM_PLACE_SPARE;
        if (at->holds >= 0 && placing.quota[at->zone][at->holds] > 0) assign(&placing, at, at->holds, filled);
    }
    for (int i = 0; i < count; i++) {
        struct tm_placed *at = &instances[i];
        for (int stage = 0; stage < stages && at->stage == TM_PLACE_SPARE; stage++)
            if (placing.quota[at->zone][stage] > 0) assign(&placing, at, stage, filled);
    }
    return 0;
}

int tm_placement_left_by_worst_zone(const struct tm_placed *instances, int count, int stages)
{
    int fewest = count;
    for (int zone = 0; zone < TM_ZONES_MAX; zone++) {
        int left[TM_LAYOUT_STAGES_MAX] = {0};
        for (int i = 0; i < count; i++)
            if (instances[i].zone != zone && instances[i].stage >= 0) left[instances[i].stage]++;
        for (int stage = 0; stage < stages; stage++)
            if (left[stage] < fewest) fewest = left[stage];
    }
    return fewest;
}
