/* Giving instances back. Which ones, when there are more than are wanted; and when: not before nothing is there that is
 * not elsewhere too. An instance that is to go is treated as one with a notice: it gets no seat and no copies, and the
 * running generation is changed without it. */
#include "run/coord_internal.h"

#include "base/alloc.h"
#include "base/planted.h"

bool tm_coord__releasing(const struct tm_coordinator *c, uint64_t id)
{
    for (size_t i = 0; i < c->release_count; i++)
        if (c->releases[i].id == id) return true;
    return false;
}

/* ---- which ---- */

static int dispensable_worker(struct tm_coordinator *c, int64_t now_ms, uint64_t worker)
{
    const struct known *k = tm_coord__find(c, TM_ROLE_WORKER, worker);
    const struct tm_member *member = tm_roster_find(&c->roster, worker);
    if (k == NULL || !k->registered) return member == NULL ? 4 : 0; /* one that is silent may come back with state */
    if (tm_coord__noticed(c, k, now_ms)) return 3;
    bool needed = member != NULL && (!member->spare || member->remote);
    return needed || tm_coord__remote(c, k, now_ms) ? 1 : 2;
}

/* How little it is missed: the higher, the less. One that is about to be preempted comes before all that stay; of
 * several workers the one that is missed most counts. */
static int dispensable(struct tm_coordinator *c, int64_t now_ms, const Tmw__Instance *instance)
{
    int least = 5;
    if (instance->announced) return least;
    for (uint32_t w = 0; w < tm_coord__workers_each(c); w++) {
        int rank = dispensable_worker(c, now_ms, tm_worker_of_instance(instance->id, w, c->options.workers));
        if (rank < least) least = rank;
    }
    return least;
}

static size_t running(const struct tm_coordinator *c, uint32_t pool)
{
    size_t count = 0;
    for (size_t i = 0; i < c->instance_count; i++)
        count += c->instances[i].end_ms == 0 && tm_coord__pool(c, &c->instances[i]) == pool;
    return count;
}

static const Tmw__Instance *choose(struct tm_coordinator *c, int64_t now_ms, uint32_t pool)
{
    const Tmw__Instance *best = NULL;
    int most = 0;
    for (size_t i = 0; i < c->instance_count; i++) {
        const Tmw__Instance *instance = &c->instances[i];
        if (instance->end_ms != 0 || tm_coord__pool(c, instance) != pool || tm_coord__releasing(c, instance->id))
            continue;
        int rank = dispensable(c, now_ms, instance);
        if (rank < most || rank == 0) continue; /* of equals the newest */
        most = rank;
        best = instance;
    }
    return best;
}

static size_t chosen(const struct tm_coordinator *c, uint32_t pool)
{
    size_t count = 0;
    for (size_t i = 0; i < c->release_count; i++)
        count += c->releases[i].pool == pool;
    return count;
}

static void forget(struct tm_coordinator *c, size_t i)
{
    c->releases[i] = c->releases[--c->release_count];
}

static void choose_all(struct tm_coordinator *c, int64_t now_ms, uint32_t pool)
{
    size_t want = tm_coord__wanted(c, pool);
    while (running(c, pool) > want + chosen(c, pool) && c->release_count < RELEASES_MAX) {
        const Tmw__Instance *instance = choose(c, now_ms, pool);
        if (instance == NULL) return;
        c->releases[c->release_count++] = (struct release){.id = instance->id, .pool = pool};
    }
    for (size_t i = c->release_count; i-- > 0;) { /* wanted after all, as long as the cloud has not been told */
        const struct release *release = &c->releases[i];
        if (release->pool == pool && !release->ordered && !release->drained && !release->noticed &&
            running(c, pool) < want + chosen(c, pool))
            forget(c, i);
    }
}

bool tm_coord__drain_instance(struct tm_coordinator *c, const Tmw__Instance *instance)
{
    size_t i = 0;
    while (i < c->release_count && c->releases[i].id != instance->id)
        i++;
    if (i == RELEASES_MAX) return false;
    if (i == c->release_count)
        c->releases[c->release_count++] = (struct release){.id = instance->id, .pool = tm_coord__pool(c, instance)};
    c->releases[i].drained = true;
    return true;
}

uint32_t tm_coord__draining(const struct tm_coordinator *c, uint32_t pool)
{
    uint32_t count = 0;
    for (size_t i = 0; i < c->release_count; i++)
        count += c->releases[i].drained && (pool == UINT32_MAX || c->releases[i].pool == pool);
    return count;
}

/* One that has a notice is released before its time is up, where somebody waits for its place. */
static void choose_noticed(struct tm_coordinator *c)
{
    for (size_t i = 0; i < c->instance_count && c->release_count < RELEASES_MAX; i++) {
        const Tmw__Instance *instance = &c->instances[i];
        if (instance->end_ms != 0 || !instance->announced || tm_coord__releasing(c, instance->id)) continue;
        c->releases[c->release_count++] =
            (struct release){.id = instance->id, .pool = tm_coord__pool(c, instance), .noticed = true};
    }
}

/* ---- when ---- */

/* Is the newest copy set whole without those that go? */
static bool copies_elsewhere(struct tm_coordinator *c)
{
    const struct copy_set *set = tm_coord__newest_good(c);
    for (uint32_t l = 0; set != NULL && l < c->options.layers; l++) {
        bool found = false;
        for (size_t p = 0; p < set->part_count && !found; p++) {
            const struct copy_held *part = &set->parts[p];
            if (part->layer != l || tm_coord__is_bad(c, set->set, l, part->holder, set->step)) continue;
            const struct known *k = tm_coord__find(c, TM_ROLE_WORKER, part->holder);
            bool here = k != NULL && k->registered && k->peer.incarnation == part->holder_incarnation;
            found = part->holder == 0 || (here && !tm_coord__releasing(c, tm_coord__place(c, part->holder)));
        }
        if (!found) return false;
    }
    return true;
}

static bool may_go(struct tm_coordinator *c, uint64_t id)
{
    if (TM_PLANTED(release_unsafe)) return true;
    for (uint32_t w = 0; w < tm_coord__workers_each(c); w++) {
        const struct tm_member *member = tm_roster_find(&c->roster, tm_worker_of_instance(id, w, c->options.workers));
        if (member != NULL && !member->spare) return false;
    }
    for (size_t p = 0; p < c->copying.part_count; p++)
        if (c->copying.parts[p].holder != 0 && tm_coord__place(c, c->copying.parts[p].holder) == id) return false;
    if (copies_elsewhere(c)) return true;
    c->copy_asked = true;
    return false;
}

void tm_coord__release_pump(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    for (size_t i = c->release_count; i-- > 0;) {
        const Tmw__Instance *instance = tm_coord__instance(c, c->releases[i].id);
        if (instance == NULL || instance->end_ms != 0) forget(c, i);
    }
    if (c->options.leaves_early && !tm_coord__ended(c)) choose_noticed(c);
    if ((!c->rents && c->release_count == 0) || tm_coord__ended(c)) return;
    for (uint32_t i = 0; c->rents && i < (c->options.pools > 0 ? c->options.pools : 2); i++)
        choose_all(c, now_ms, i);
    if (c->phase != TM_COORDINATOR_RUNNING) return; /* who is needed is not known before a generation runs */
    for (size_t i = 0; i < c->release_count; i++) {
        struct release *release = &c->releases[i];
        if (release->ordered || !may_go(c, release->id)) continue;
        release->ordered = true;
        Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
        Tmw__ReleaseEvent body = TMW__RELEASE_EVENT__INIT;
        body.instance = release->id;
        event.body_case = TMW__RECORD_EVENT__BODY_RELEASE;
        event.release = &body;
        tm_coord__record(c, &event, false, out);
    }
}

/* What was safe when it was ordered may not be any more, if somebody else was lost since: the cloud may not have acted
 * yet. */
size_t tm_coord__release_list(struct tm_coordinator *c, uint64_t list[RELEASES_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < c->release_count; i++)
        if (c->releases[i].ordered && tm_coord__instance(c, c->releases[i].id)->end_ms == 0 &&
            may_go(c, c->releases[i].id))
            list[count++] = c->releases[i].id;
    return count;
}
