/* What always holds, whatever was heard: a mistake of the worker itself ends it here, near its cause, rather than in
 * somebody's lost step. Nothing here depends on what others say being right. */
#include "worker/worker_internal.h"

#include "base/planted.h"

#include <assert.h>

enum { PHASES = TM_WORKER_STOPPED + 1 };

#define TO(phase) (1U << TM_WORKER_##phase)

/* A fence or a stop may come in any phase but the last; else there is one way (worker.h). */
static const unsigned moves[PHASES] = {
    [TM_WORKER_FENCED] = TO(FENCED) | TO(FETCHING) | TO(STOPPED),
    [TM_WORKER_FETCHING] = TO(FENCED) | TO(READY) | TO(STOPPED),
    [TM_WORKER_READY] = TO(FENCED) | TO(RUNNING) | TO(STOPPED),
    [TM_WORKER_RUNNING] = TO(FENCED) | TO(STOPPED),
    [TM_WORKER_STOPPED] = 0,
};

bool tm_worker__may_enter(enum tm_worker_phase from, enum tm_worker_phase to)
{
    return ((moves[from] >> to) & 1U) != 0;
}

void tm_worker__enter(struct tm_worker *w, enum tm_worker_phase phase)
{
    assert(tm_worker__may_enter(w->phase, phase));
    assert(!w->computing);
    assert(phase != TM_WORKER_FETCHING || (w->held == 0 && w->applying == 0));
    assert(phase == TM_WORKER_FENCED || phase == TM_WORKER_STOPPED || w->roster.generation == w->generation);
    w->phase = phase;
}

/* Bugs that are planted break what is checked here before the simulated cluster can find them. */
static bool is_planted(void)
{
#ifdef TIDEMILL_PLANTED
    return tm_planted_bug != TM_BUG_none;
#else
    return false;
#endif
}

static void check_bounds(const struct tm_worker *w)
{
    assert((w->layer_count == 0) == (w->layers == NULL) && w->layer_count <= TM_LAYERS_MAX);
    assert(!w->registered || w->layer_count > 0);
    assert(w->acked_sequence <= w->sequence);
    assert(w->steps_told.count <= TM_STEPS_KEPT);
    assert(w->failure_lines.count <= TM_LAST_LINES);
    assert(w->generation >= w->roster.generation);
    assert(w->roster.generation == 0 || w->my_place < w->roster.member_count);
    assert(w->roster.generation == 0 || w->roster.members[w->my_place].id == w->self.id);
    assert(w->fetch_count <= w->layer_count && (w->fetch_count == 0 || w->fetches != NULL));
    assert(w->out.part_count <= w->layer_count && (w->out.set != 0 || w->out.parts == NULL));
    assert(w->serving.count <= w->serving.capacity && w->serving.count <= TM_LAYERS_MAX);
    assert(w->follow.count <= w->layer_count && w->follow.peer_count <= TM_MEMBERS_MAX);
    assert(w->follow.follower_count <= TM_MEMBERS_MAX && (w->follow.number != 0 || w->follow.count == 0));
    assert(w->copies.count <= w->copies.capacity && w->copies.bytes <= w->copies.bytes_max);
    assert(w->reads.count <= w->reads.capacity && (w->reads.list != NULL || w->reads.bytes == 0));
}

/* One step at a time: computed, then held, then applied. */
static void check_step(const struct tm_worker *w)
{
    assert(w->held == 0 || w->held == w->applied + 1);
    assert(w->applying == 0 || w->applying == w->held);
    assert(!w->computing || (w->held == 0 && w->applying == 0));
    assert(!w->computing || w->phase == TM_WORKER_RUNNING);
    assert(w->held == 0 || w->phase != TM_WORKER_FETCHING);
    bool counts = w->phase == TM_WORKER_READY || w->phase == TM_WORKER_RUNNING;
    assert(!counts || w->ballots[0].step == w->applied + 1);
    assert(!counts || w->ballots[1].step == w->applied + 2);
}

static void check_phase(const struct tm_worker *w)
{
    bool placed = w->phase == TM_WORKER_FETCHING || w->phase == TM_WORKER_READY || w->phase == TM_WORKER_RUNNING;
    assert(!placed || w->roster.generation == w->generation);
    assert(w->fetch_count == 0 || w->phase == TM_WORKER_FETCHING);
    assert(w->out.set == 0 || w->phase == TM_WORKER_RUNNING);
    assert(w->serving.count == 0 || w->phase != TM_WORKER_STOPPED);
    assert(w->phase != TM_WORKER_READY || w->applied == w->base);
    if (w->phase != TM_WORKER_READY && w->phase != TM_WORKER_RUNNING) return;
    const struct tm_member *me = &w->roster.members[w->my_place];
    if (me->spare) return;
    for (uint32_t l = w->roster.stage_first[me->stage]; l < w->roster.stage_first[me->stage + 1]; l++)
        assert(w->layers[l].have && w->layers[l].step == w->applied);
}

static void check_serving(const struct tm_worker *w)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < w->serving.count; i++) {
        const struct followed *served = &w->serving.layers[i];
        assert(served->version != NULL || (served->bytes == 0 && served->gradient_count == 0));
        assert(served->waiting_count <= FOLLOWERS_MAX && served->gradient_count <= served->gradient_capacity);
        bytes += served->bytes;
    }
    assert(bytes == w->serving.bytes);
}

void tm_worker__check(const struct tm_worker *w)
{
    if (is_planted()) return;
    check_bounds(w);
    check_step(w);
    check_phase(w);
    check_serving(w);
}
