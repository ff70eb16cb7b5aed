#include "market/study.h"

#include "base/alloc.h"

enum { GROUPS_MAX = 1 << 16 };

void tm_study_init(struct tm_study *study)
{
    *study = (struct tm_study){0};
}

void tm_study_deinit(struct tm_study *study)
{
    for (size_t i = 0; i < study->count; i++)
        tm_survival_deinit(&study->groups[i].survival);
    tm_free(study->groups);
    *study = (struct tm_study){0};
}

/* Adds a group unless nobody is in it. */
static int add_group(struct tm_study *study, const struct tm_lifetimes *lifetimes, struct tm_lifetime_filter filter,
                     struct tm_error *e)
{
    struct tm_study_group group = {.filter = filter};
    int rc = tm_survival_estimate(lifetimes, filter, &group.survival, e);
    if (rc == 0 && group.survival.instances > 0) {
        void *groups = study->groups;
        rc = tm_grow(&groups, &study->capacity, study->count + 1, sizeof *study->groups, GROUPS_MAX);
        study->groups = groups;
        if (rc == -(int)TM_ENOMEM)
            rc = tm_error_nomem(e);
        else if (rc != 0)
            rc = tm_error_set(e, TM_ELIMIT, "more than %d groups of instances", GROUPS_MAX);
        if (rc == 0) rc = tm_bursts__count(lifetimes, filter, &group.bursts, e);
        if (rc == 0) {
            group.hazards = tm_hazards__count(lifetimes, filter);
            tm_hazards__by_age(&group.hazards, group.pooled);
            study->groups[study->count++] = group;
            return 0;
        }
    }
    tm_survival_deinit(&group.survival);
    return rc;
}

/* Shrinks the hazards of groups from..to towards those of a parent. */
static int pool(struct tm_study *study, const size_t *members, size_t count, const double parent[TM_AGE_BINS],
                struct tm_error *e)
{
    if (count < 2) return 0; /* the group is the parent */
    struct tm_hazards *hazards = tm_alloc(count * sizeof *hazards);
    if (hazards == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < count; i++)
        hazards[i] = study->groups[members[i]].hazards;
    double prior = tm_hazards__prior(hazards, count, parent);
    for (size_t i = 0; i < count; i++)
        tm_hazards__pool(&hazards[i], parent, prior, study->groups[members[i]].pooled);
    tm_free(hazards);
    return 0;
}

static int pool_all(struct tm_study *study, struct tm_error *e)
{
    size_t *members = tm_alloc(study->count * sizeof *members);
    if (members == NULL) return tm_error_nomem(e);
    size_t types = 0;
    for (size_t i = 1; i < study->count; i++)
        if (study->groups[i].filter.zone == study->groups[0].filter.zone) members[types++] = i;
    int rc = pool(study, members, types, study->groups[0].pooled, e);
    for (size_t i = 1; rc == 0 && i < study->count; i++) {
        size_t zones = 0;
        for (size_t j = i + 1; j < study->count && study->groups[j].filter.type == study->groups[i].filter.type; j++)
            members[zones++] = j;
        if (zones > 0) rc = pool(study, members, zones, study->groups[i].pooled, e);
        i += zones;
    }
    tm_free(members);
    return rc;
}

static int add_type(struct tm_study *study, const struct tm_lifetimes *lifetimes, struct tm_lifetime_filter filter,
                    struct tm_error *e)
{
    size_t before = study->count;
    int rc = add_group(study, lifetimes, filter, e);
    if (rc != 0 || study->count == before || filter.zone >= 0) return rc;
    size_t zones_at = study->count;
    for (size_t z = 0; rc == 0 && z < lifetimes->zones.count; z++) {
        struct tm_lifetime_filter part = filter;
        part.zone = (int)z;
        rc = add_group(study, lifetimes, part, e);
    }
    if (rc == 0 && study->count == zones_at + 1) /* one zone: the type's row says it all */
        tm_survival_deinit(&study->groups[--study->count].survival);
    return rc;
}

int tm_study_make(const struct tm_lifetimes *lifetimes, struct tm_lifetime_filter filter, struct tm_study *out,
                  struct tm_error *e)
{
    struct tm_study made;
    tm_study_init(&made);
    int rc = add_group(&made, lifetimes, filter, e);
    if (rc == 0 && made.count == 0) rc = tm_error_set(e, TM_EINPUT, "no instance of that type and zone in the files");
    for (size_t t = 0; rc == 0 && t < lifetimes->types.count; t++) {
        struct tm_lifetime_filter part = filter;
        if (filter.type >= 0 && filter.type != (int)t) continue;
        part.type = (int)t;
        rc = add_type(&made, lifetimes, part, e);
    }
    if (rc == 0) rc = pool_all(&made, e);
    if (rc != 0) {
        tm_study_deinit(&made);
        return rc;
    }
    tm_study_deinit(out);
    *out = made;
    return 0;
}
