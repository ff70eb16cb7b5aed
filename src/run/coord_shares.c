/* Shares: which pipeline gets how many micro-batches (layout/shares.h), by what its members' micro-batches take.
 *
 * Workers say what a micro-batch takes them, with every heartbeat. Members of one stage hold the same layers, so among
 * them these times tell who is slow: one's slowness is its time over the median's, each over what is expected of its
 * pool. It is kept as long as the process lives. Whoever has not been measured is as slow as its pool is said to be.
 *
 * A generation is shared out when it is made. While it runs, the policy is told what steps take over what they would
 * take if shared out anew, and says whether that is worth a change. */
#include "run/coord_internal.h"

#include "base/alloc.h"
#include "layout/shares.h"

#include <stdlib.h>

enum { LOOK_EVERY_MS = 1000, AGAIN_AFTER_MS = 10000, AGAIN_DOUBLED_MAX = 6 };

static uint32_t known_or_usual(uint32_t slowness)
{
    return slowness > 0 ? slowness : TM_SLOWNESS_USUAL;
}

static uint32_t expected_of(const struct tm_coordinator *c, uint64_t id)
{
    const Tmw__Instance *instance = c->options.pools > 0 ? tm_coord__instance_of(c, id) : NULL;
    uint32_t slowness = instance != NULL ? c->options.pool_slowness[tm_coord__pool(c, instance)] : 0;
    return known_or_usual(slowness);
}

static uint32_t slowness_of(const struct tm_coordinator *c, const struct known *k)
{
    return k->slowness > 0 ? k->slowness : expected_of(c, k->peer.id);
}

void tm_coord__shares_heard(struct tm_coordinator *c, struct known *k, const Tmw__Heartbeat *body)
{
    if (c->options.speeds_alike || body->micro_us == 0 || body->micro_us > UINT32_MAX ||
        body->generation != c->started.generation)
        return;
    k->micro_us = body->micro_us;
    k->micro_generation = body->generation;
}

/* ---- who is slow ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of those of one stage that have been measured: the median of their times, each over what is expected of it. */
static double unit_of(struct tm_coordinator *c, uint32_t stage, double *scratch)
{
    size_t count = 0;
    for (size_t i = 0; i < c->started.member_count; i++) {
        const struct tm_member *member = &c->started.members[i];
        const struct known *k = member->spare || member->stage != stage ? NULL : tm_coord__member(c, member);
        if (k == NULL || k->micro_us == 0 || k->micro_generation != c->started.generation) continue;
        scratch[count++] = (double)k->micro_us / expected_of(c, k->peer.id);
    }
    if (count < 2) return 0; /* alone, nobody is slow */
    qsort(scratch, count, sizeof *scratch, by_size);
    return scratch[(count - 1) / 2];
}

static int judge(struct tm_coordinator *c)
{
    if (c->started.member_count == 0) return 0;
    double *scratch = tm_calloc(c->started.member_count, sizeof *scratch);
    if (scratch == NULL) return -(int)TM_ENOMEM;
    for (uint32_t s = 0; s < c->started.stages; s++) {
        double unit = unit_of(c, s, scratch);
        for (size_t i = 0; unit > 0 && i < c->started.member_count; i++) {
            const struct tm_member *member = &c->started.members[i];
            struct known *k = member->spare || member->stage != s ? NULL : tm_coord__member(c, member);
            if (k == NULL || k->micro_us == 0 || k->micro_generation != c->started.generation) continue;
            k->slowness = tm_slowness((double)k->micro_us / unit / TM_SLOWNESS_USUAL);
        }
    }
    tm_free(scratch);
    return 0;
}

/* ---- sharing out ---- */

/* A pipeline is as slow as its slowest member. */
static void pipelines_of(const struct tm_roster *roster, uint32_t slowness[TM_MEMBERS_MAX])
{
    for (uint32_t p = 0; p < roster->pipelines; p++)
        slowness[p] = 0;
    for (size_t i = 0; i < roster->member_count; i++) {
        const struct tm_member *member = &roster->members[i];
        uint32_t its = known_or_usual(member->slowness);
        if (!member->spare && its > slowness[member->pipeline]) slowness[member->pipeline] = its;
    }
}

static int by_slowness(const void *a, const void *b)
{
    const struct tm_member *x = *(struct tm_member *const *)a, *y = *(struct tm_member *const *)b;
    uint32_t slower_x = known_or_usual(x->slowness), slower_y = known_or_usual(y->slowness);
    if (slower_x != slower_y) return slower_x < slower_y ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Pipelines of like members: those of each stage in order, the fastest in the first pipeline. Nobody's stage changes,
 * unless no layer is anywhere yet and each instance has one worker: else replicas would come onto one instance. */
static int pair_up(struct tm_roster *roster, bool stages_free)
{
    struct tm_member **order = tm_calloc(roster->member_count + 1, sizeof(struct tm_member *));
    if (order == NULL) return -(int)TM_ENOMEM;
    for (uint32_t s = 0; s < roster->stages; s++) {
        size_t count = 0;
        for (size_t i = 0; i < roster->member_count; i++) {
            struct tm_member *member = &roster->members[i];
            if (!member->spare && (stages_free || member->stage == s)) order[count++] = member;
        }
        qsort(order, count, sizeof(struct tm_member *), by_slowness);
        for (size_t i = 0; i < count; i++) {
            order[i]->pipeline = (uint32_t)(stages_free ? i / roster->stages : i);
            if (stages_free) order[i]->stage = (uint32_t)(i % roster->stages);
        }
        if (stages_free) break;
    }
    tm_free(order);
    return 0;
}

int tm_coord__share_out(struct tm_coordinator *c, bool stages_free, struct tm_roster *roster)
{
    uint32_t slowness[TM_MEMBERS_MAX];
    bool mixed = false;
    int rc = judge(c);
    for (size_t i = 0; rc == 0 && i < roster->member_count; i++) {
        struct tm_member *member = &roster->members[i];
        const struct known *k = member->spare ? NULL : tm_coord__member(c, member);
        uint32_t its = k != NULL ? slowness_of(c, k) : TM_SLOWNESS_USUAL;
        member->slowness = its != TM_SLOWNESS_USUAL ? its : 0; /* says nothing where nobody is slow */
        mixed = mixed || member->slowness != 0;
    }
    if (rc == 0 && mixed) rc = pair_up(roster, stages_free && tm_coord__workers_each(c) == 1);
    if (rc != 0 || roster->pipelines > c->options.micro_batches) return rc;
    pipelines_of(roster, slowness);
    (void)tm_shares_make(slowness, roster->pipelines, roster->stages, c->options.micro_batches, roster->micro_batches);
    return 0;
}

/* ---- is it worth a change? ---- */

void tm_coord__shared_out(struct tm_coordinator *c, int64_t now_ms)
{
    if (c->changed_ms > c->shared_out_ms) c->shared_out = 0;
    if (c->shared_out < AGAIN_DOUBLED_MAX) c->shared_out++;
    c->shared_out_ms = now_ms;
}

/* Times that go up and down are not followed up and down. */
static bool shared_out_lately(const struct tm_coordinator *c, int64_t now_ms)
{
    bool of_this_fleet = c->shared_out > 0 && c->changed_ms <= c->shared_out_ms;
    return of_this_fleet && now_ms - c->shared_out_ms < (int64_t)AGAIN_AFTER_MS << (c->shared_out - 1);
}

double tm_coord__uneven(struct tm_coordinator *c, int64_t now_ms)
{
    struct tm_roster anew = {.generation = 0}, standing = {.generation = 0};
    uint32_t slowness[TM_MEMBERS_MAX];
    if (c->phase != TM_COORDINATOR_RUNNING || c->roster.pipelines < 2 || shared_out_lately(c, now_ms)) return 1;
    if (c->uneven > 0 && now_ms - c->uneven_ms < LOOK_EVERY_MS) return c->uneven;
    c->uneven = 1;
    c->uneven_ms = now_ms;
    if (tm_roster_copy(&anew, &c->roster, NULL) == 0 && tm_roster_copy(&standing, &c->roster, NULL) == 0 &&
        tm_coord__share_out(c, false, &anew) == 0) {
        for (size_t i = 0; i < standing.member_count; i++)
            standing.members[i].slowness = anew.members[i].slowness;
        pipelines_of(&standing, slowness);
        uint64_t now = tm_shares_time(slowness, standing.micro_batches, standing.pipelines, standing.stages);
        pipelines_of(&anew, slowness);
        uint64_t then = tm_shares_time(slowness, anew.micro_batches, anew.pipelines, anew.stages);
        if (then > 0 && now > then) c->uneven = (double)now / (double)then;
    }
    tm_roster_deinit(&anew);
    tm_roster_deinit(&standing);
    return c->uneven;
}
