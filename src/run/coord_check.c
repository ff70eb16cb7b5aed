/* What always holds, whatever was heard: mistakes of the coordinator itself end it here, near their cause, rather than
 * in somebody's lost step. Nothing here depends on what others say being right. */
#include "run/coord_internal.h"

#include "base/debug.h"

#include <assert.h>

enum { PHASES = TM_COORDINATOR_FAILED + 1 };

#define TO(phase) (1U << TM_COORDINATOR_##phase)

/* From any phase a generation may have to be fenced, unless the job has ended; and it may end. */
static const unsigned moves[PHASES] = {
    [TM_COORDINATOR_REBUILDING] = TO(COLLECTING) | TO(STOPPED) | TO(FAILED),
    [TM_COORDINATOR_COLLECTING] = TO(COLLECTING) | TO(ASSIGNED) | TO(STOPPED) | TO(FAILED),
    [TM_COORDINATOR_ASSIGNED] = TO(COLLECTING) | TO(RUNNING) | TO(STOPPED) | TO(FAILED),
    [TM_COORDINATOR_RUNNING] = TO(COLLECTING) | TO(DRAINING) | TO(STOPPING) | TO(STOPPED) | TO(FINISHED) | TO(FAILED),
    [TM_COORDINATOR_DRAINING] = TO(COLLECTING) | TO(STOPPED) | TO(FAILED),
    [TM_COORDINATOR_STOPPING] = TO(COLLECTING) | TO(RUNNING) | TO(STOPPED) | TO(FAILED), /* running: it was the last */
    [TM_COORDINATOR_STOPPED] = 0,
    [TM_COORDINATOR_FINISHED] = 0,
    [TM_COORDINATOR_FAILED] = 0,
};
/* Where a coordinator begins is what its record says. */
static const unsigned beginnings =
    TO(REBUILDING) | TO(COLLECTING) | TO(RUNNING) | TO(STOPPED) | TO(FINISHED) | TO(FAILED);

bool tm_coord__may_enter(bool begun, enum tm_coordinator_phase from, enum tm_coordinator_phase to)
{
    return (((begun ? moves[from] : beginnings) >> to) & 1U) != 0;
}

void tm_coord__enter(struct tm_coordinator *c, enum tm_coordinator_phase phase, int64_t now_ms)
{
    assert(tm_coord__may_enter(c->entered, c->phase, phase));
    bool has_layout = phase == TM_COORDINATOR_ASSIGNED || phase == TM_COORDINATOR_RUNNING;
    assert(!has_layout || tm_roster_check(&c->roster, c->options.layers, c->options.micro_batches, NULL) == 0);
    tm_debug(TM_DEBUG_RUN, "coordinator: %s, was %s; generation %" PRIu64 ", step %" PRIu64,
             tm_coordinator_phase_name(phase), tm_coordinator_phase_name(c->phase), c->generation, c->applied);
    c->entered = true;
    c->phase = phase;
    c->phase_ms = now_ms;
    c->waiting = "";
}

/* ---- after every event ---- */

static void check_bounds(const struct tm_coordinator *c)
{
    assert(c->known_count <= c->known_capacity && c->known_count <= KNOWN_MAX);
    assert(c->set_count <= c->set_capacity && c->set_count <= SETS_MAX);
    assert(c->bad_count <= c->bad_capacity && c->bad_count <= BAD_MAX);
    assert(c->instance_count <= c->instance_capacity && c->instance_count <= INSTANCES_MAX);
    assert(c->release_count <= RELEASES_MAX);
    assert(c->loss_count <= LOSSES_MAX);
    assert(c->pace.step_count <= PACE_STEPS_MAX);
    assert(c->roster.member_count <= TM_MEMBERS_MAX && c->roster.stages <= TM_STAGES_MAX);
}

static void check_generation(const struct tm_coordinator *c)
{
    assert(c->generation >= c->checked_generation); /* a number is never used for two things */
    assert(c->roster.generation <= c->generation);
    assert(c->started.generation <= c->generation);
    assert(c->started.member_count == 0 || c->started_dead != NULL);
    bool runs = tm_coord__runs(c);
    if (runs || c->phase == TM_COORDINATOR_ASSIGNED) {
        assert(c->roster.generation == c->generation);
        assert(c->roster.pipelines > 0 && c->roster.stages > 0);
        assert((size_t)c->roster.pipelines * c->roster.stages <= c->roster.member_count);
    }
    if (runs) {
        assert(c->started.generation == c->generation);
        assert(c->started.member_count == c->roster.member_count);
        assert(c->base <= c->applied);
        assert(c->base <= c->reached);
        assert(c->generations_started > 0);
    }
    if (c->phase == TM_COORDINATOR_DRAINING || c->phase == TM_COORDINATOR_STOPPING) assert(c->drain_step > 0);
    if (c->phase == TM_COORDINATOR_COLLECTING || c->phase == TM_COORDINATOR_ASSIGNED) assert(c->drain_step == 0);
}

static void check_copies(const struct tm_coordinator *c)
{
    for (size_t i = 0; i < c->set_count; i++) {
        assert(c->sets[i].set != 0 && c->sets[i].parts != NULL);
        assert(c->sets[i].set <= c->newest_set);
        assert(i == 0 || c->sets[i - 1].set <= c->sets[i].set); /* equal: the record says it twice */
    }
    if (c->copying.set == 0) return;
    assert(tm_coord__runs(c)); /* a fence gives it up, and so does the end */
    assert(c->copying.set <= c->newest_set && c->copying.set <= c->sets_named);
    assert(c->copying.parts != NULL && c->copying.done != NULL && c->copying.sources != NULL);
    assert(c->copying.step >= c->base);
}

static void check_rest(const struct tm_coordinator *c)
{
    for (size_t i = 1; i < c->loss_count; i++)
        assert(c->losses[i - 1].step < c->losses[i].step);
    for (size_t i = 0; i < c->release_count; i++)
        assert(c->releases[i].id != 0);
    assert(c->phase != TM_COORDINATOR_FAILED || c->failure[0] != '\0');
    assert(c->fence_due == TM_CHANGED_NONE || c->fence_why != NULL);
    assert(c->stuck || c->stuck_why[0] == '\0');
    assert(c->waiting != NULL);
}

void tm_coord__check(struct tm_coordinator *c, int64_t now_ms)
{
    if (!c->entered) return; /* before begin: told of its end while it loads */
    assert(now_ms >= c->phase_ms && now_ms >= c->begun_ms);
    check_bounds(c);
    check_generation(c);
    check_copies(c);
    check_rest(c);
    c->checked_generation = c->generation;
}
