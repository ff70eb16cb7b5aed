/* Copy sets: planned over sources and holders, followed in heartbeats, whole only when every part is with every holder
 * that was planned; the old ones stay until enough new ones are. */
#include "run/coord_internal.h"

#include "base/alloc.h"
#include "base/planted.h"

#include <string.h>

enum { TARGETS_MAX = 8 };

static void copying_end(struct tm_coordinator *c)
{
    tm_free(c->copying.parts);
    tm_free(c->copying.done);
    tm_free(c->copying.sources);
    c->copying = (struct copying){.set = 0};
}

void tm_coord__sets_deinit(struct tm_coordinator *c)
{
    copying_end(c);
    for (size_t i = 0; i < c->set_count; i++)
        tm_free(c->sets[i].parts);
    tm_free(c->sets);
    c->sets = NULL;
    c->set_count = 0;
}

/* ---- what is known of sets ---- */

bool tm_coord__is_bad(const struct tm_coordinator *c, uint64_t set, uint32_t layer, uint64_t source, uint64_t step)
{
    for (size_t i = 0; i < c->bad_count; i++) {
        const struct bad_part *bad = &c->bad[i];
        if (bad->set == set && bad->layer == layer && bad->source == source && (set != 0 || bad->step == step))
            return true;
    }
    return false;
}

static bool holder_dead(struct tm_coordinator *c, const struct copy_held *part)
{
    const struct known *k = tm_coord__find(c, TM_ROLE_WORKER, part->holder);
    const Tmw__Instance *instance = tm_coord__instance_of(c, part->holder);
    if (instance != NULL && instance->end_ms != 0) return true;
    /* A report names all that are there. One that is not named went before this cloud's program or our record began. */
    if (instance == NULL && c->cloud.heard && (k == NULL || !k->registered)) return true;
    if (k == NULL) return false;
    if (k->peer.incarnation != 0 && part->holder_incarnation != 0 && k->peer.incarnation != part->holder_incarnation)
        return true;
    for (size_t i = 0; i < PAST_MAX; i++)
        if (part->holder_incarnation != 0 && k->past[i] == part->holder_incarnation) return true;
    return false;
}

static bool set_holds(struct tm_coordinator *c, const struct copy_set *set, bool now)
{
    if (set->bad) return false;
    for (uint32_t l = 0; l < c->options.layers; l++) {
        bool found = false;
        for (size_t p = 0; p < set->part_count && !found; p++) {
            const struct copy_held *part = &set->parts[p];
            if (part->layer != l || tm_coord__is_bad(c, set->set, l, part->holder, set->step)) continue;
            const struct known *k = tm_coord__find(c, TM_ROLE_WORKER, part->holder);
            if (part->holder == 0)
                found = true;
            else
                found = !holder_dead(c, part) && (!now || (k != NULL && k->registered));
        }
        if (!found) return false;
    }
    return true;
}

static bool set_good(struct tm_coordinator *c, const struct copy_set *set)
{
    return set_holds(c, set, false);
}

/* Every part is in files or with a worker that holds a lease. */
static bool set_here(struct tm_coordinator *c, const struct copy_set *set)
{
    return set_holds(c, set, true);
}

const struct copy_set *tm_coord__newest_good(struct tm_coordinator *c)
{
    for (size_t i = c->set_count; i-- > 0;)
        if (set_good(c, &c->sets[i])) return &c->sets[i];
    return NULL;
}

/* All that are known and not bad, and the one under way. Which those are is decided in drop_old alone: a list that
 * changed with every lease would let holders drop what is needed when the lease ends again. */
size_t tm_coord__kept(struct tm_coordinator *c, uint64_t keep[SETS_MAX])
{
    size_t count = 0;
    if (c->copying.set != 0) keep[count++] = c->copying.set;
    if (TM_PLANTED(drop_only_set) && c->copying.set != 0) return count;
    for (size_t i = c->set_count; i-- > 0 && count < SETS_MAX;)
        if (!c->sets[i].bad) keep[count++] = c->sets[i].set;
    return count;
}

/* Forgets all but the newest few that are here now, and whatever is newer than those; their files may go. */
static void drop_old(struct tm_coordinator *c, struct tm_outbox *out)
{
    uint32_t here = 0;
    for (size_t i = c->set_count; i-- > 0;) {
        if (here < c->options.sets_kept) {
            here += set_here(c, &c->sets[i]);
            continue;
        }
        tm_coord__record_bad(c, c->sets[i].set, out); /* before its files go */
        tm_outbox_add(out, TM_COORDINATOR_FILES_DROP, NULL, 0, c->sets[i].set, 0);
        tm_free(c->sets[i].parts);
        memmove(&c->sets[i], &c->sets[i + 1], (c->set_count - i - 1) * sizeof *c->sets);
        c->set_count--;
    }
}

/* Every layer's part of one set at one step, each once, from all reports; NULL if one is missing or they differ. */
static struct copy_held *gather(struct tm_coordinator *c, uint64_t set, uint64_t step, size_t *out_count)
{
    size_t count = 0;
    struct copy_held *parts = tm_calloc((size_t)c->options.layers * TARGETS_MAX, sizeof *parts);
    bool found_all = parts != NULL;
    for (uint32_t l = 0; found_all && l < c->options.layers; l++) {
        size_t first = count;
        for (size_t i = 0; i < c->known_count; i++) {
            const struct known *k = &c->known[i];
            for (size_t p = 0; k->reported == c->generation && p < k->copy_count; p++) {
                const struct copy_held *held = &k->copies[p];
                if (held->set != set || held->step != step || held->layer != l) continue;
                if (count > first && !tm_hash_equal(held->hash, parts[first].hash)) found_all = false;
                if (count - first < TARGETS_MAX) parts[count++] = *held;
            }
        }
        found_all = found_all && count > first;
    }
    if (!found_all) {
        tm_free(parts);
        return NULL;
    }
    *out_count = count;
    return parts;
}

void tm_coord__adopt_sets(struct tm_coordinator *c, struct tm_outbox *out)
{
    const struct copy_set *newest = tm_coord__newest_good(c);
    uint64_t after = newest == NULL ? 0 : newest->step;
    for (size_t i = 0; i < c->known_count; i++) {
        const struct known *k = &c->known[i];
        for (size_t p = 0; k->reported == c->generation && p < k->copy_count; p++) {
            const struct copy_held *held = &k->copies[p];
            bool recorded = held->step <= after || c->set_count == SETS_MAX || held->set == 0;
            recorded = recorded || held->set > c->newest_set || held->step > c->options.steps; /* no number of ours */
            for (size_t s = 0; c->sets != NULL && s < c->set_count; s++)
                recorded = recorded || c->sets[s].set >= held->set;
            size_t count = 0;
            struct copy_held *parts = recorded ? NULL : gather(c, held->set, held->step, &count);
            if (parts == NULL) continue;
            if (tm_grow((void **)&c->sets, &c->set_capacity, c->set_count + 1, sizeof *c->sets, SETS_MAX) != 0) {
                tm_free(parts);
                return;
            }
            c->sets[c->set_count++] = (struct copy_set){
                .set = held->set, .generation = c->generation, .step = held->step, .parts = parts, .part_count = count};
            after = held->step;
            tm_coord__record_set(c, &c->sets[c->set_count - 1], out);
        }
    }
}

/* ---- planning ---- */

static bool holds_stage(const struct tm_member *member, uint32_t stage)
{
    return !member->spare && member->stage == stage;
}

/* In which zone each member of the roster is; 0: not known. NULL: no memory. */
static uint32_t *zones_of(const struct tm_coordinator *c)
{
    uint32_t *zones = tm_calloc(c->roster.member_count + 1, sizeof *zones);
    for (size_t i = 0; zones != NULL && i < c->roster.member_count; i++) {
        const Tmw__Instance *instance = tm_coord__instance_of(c, c->roster.members[i].id);
        if (instance != NULL) zones[i] = instance->zone;
    }
    return zones;
}

/* How good a holder of a stage's layers a member is, the lower the better: anchors before all, then members that do not
 * train them (their loss is another loss), then others; of equals those in another zone than the source. Those on an
 * instance that has them already, the source's or another holder's, are lost with it, and come last. */
enum { HOLDER_RANKS = 12 };
static int holder_rank(const struct known *k, const struct tm_member *member, uint32_t stage, bool elsewhere,
                       bool together)
{
    int rank = k->anchor && !TM_PLANTED(anchors_last) ? 0 : holds_stage(member, stage) ? 2 : 1;
    bool last = TM_PLANTED(copies_together) ? !together : together;
    return 2 * rank + (elsewhere ? 0 : 1) + (last ? HOLDER_RANKS / 2 : 0);
}

static bool has_it_already(const struct tm_coordinator *c, uint64_t id, const struct tm_member *source,
                           const uint64_t *targets, size_t count)
{
    bool has = tm_coord__place(c, id) == tm_coord__place(c, source->id);
    for (size_t i = 0; i < count; i++)
        has = has || tm_coord__place(c, id) == tm_coord__place(c, targets[i]);
    return has;
}

static size_t choose_targets(struct tm_coordinator *c, uint32_t layer, const struct tm_member *source,
                             const uint32_t *zones, uint64_t targets[TARGETS_MAX])
{
    uint32_t stage = tm_roster_stage_of(&c->roster, layer);
    uint32_t zone = zones[source - c->roster.members];
    size_t count = 0;
    size_t wanted = c->options.copies < TARGETS_MAX - 1 ? c->options.copies : TARGETS_MAX - 1;
    for (int rank = 0; rank < HOLDER_RANKS; rank++) {
        for (size_t i = 0; i < c->roster.member_count && count < wanted; i++) {
            size_t at = (i + layer) % c->roster.member_count;
            const struct tm_member *member = &c->roster.members[at];
            const struct known *k = tm_coord__member(c, member);
            if (k == NULL || !tm_coord__usable(c, k, k->heard_ms) || member->id == source->id) continue;
            bool elsewhere = !TM_PLANTED(zones_ignored) && zone != 0 && zones[at] != 0 && zones[at] != zone;
            bool chosen = false;
            for (size_t t = 0; t < count; t++)
                chosen = chosen || targets[t] == member->id;
            bool together = has_it_already(c, member->id, source, targets, count);
            if (!chosen && holder_rank(k, member, stage, elsewhere, together) == rank) targets[count++] = member->id;
        }
    }
    return count;
}

static int plan_parts(struct tm_coordinator *c, bool files_only, const uint32_t *zones)
{
    bool to_files = files_only || c->options.copies_to_files;
    size_t most = (size_t)c->options.layers * (TARGETS_MAX + 1);
    struct copying *copying = &c->copying;
    copying->parts = tm_calloc(most, sizeof *copying->parts);
    copying->done = tm_calloc(most, sizeof *copying->done);
    copying->sources = tm_calloc(most, sizeof *copying->sources);
    if (copying->parts == NULL || copying->done == NULL || copying->sources == NULL) return -(int)TM_ENOMEM;
    for (uint32_t l = 0; l < c->options.layers; l++) {
        uint32_t stage = tm_roster_stage_of(&c->roster, l);
        const struct tm_member *source = tm_roster_at(&c->roster, l % c->roster.pipelines, stage);
        uint64_t targets[TARGETS_MAX];
        size_t count = files_only ? 0 : choose_targets(c, l, source, zones, targets);
        if (count == 0 && !to_files) return -(int)TM_ENONE; /* nowhere to put it */
        /* The source keeps its snapshot too: when a peer is lost, the others' layers of that step are still there. */
        if (count > 0) targets[count++] = source->id;
        for (size_t t = 0; t < count + to_files; t++) {
            struct copy_held *part = &copying->parts[copying->part_count];
            *part = (struct copy_held){.set = copying->set, .step = copying->step, .layer = l};
            if (t < count) {
                part->holder = targets[t];
                part->holder_incarnation = tm_roster_find(&c->roster, targets[t])->incarnation;
            }
            copying->sources[copying->part_count++] = source->id;
        }
    }
    return 0;
}

static size_t order_tasks(struct tm_coordinator *c, uint64_t source, struct tm_arena *arena, Tmw__CopyTask ***out)
{
    const struct copying *copying = &c->copying;
    Tmw__CopyTask *tasks = tm_arena_alloc(arena, (c->options.layers + 1) * sizeof *tasks);
    *out = tm_arena_alloc(arena, (c->options.layers + 1) * sizeof(Tmw__CopyTask *));
    size_t count = 0;
    if (tasks == NULL || *out == NULL) return 0;
    for (size_t i = 0; i < copying->part_count; i++) {
        if (copying->sources[i] != source) continue;
        if (count == 0 || tasks[count - 1].layer != copying->parts[i].layer) {
            tmw__copy_task__init(&tasks[count]);
            tasks[count].layer = copying->parts[i].layer;
            tasks[count].targets = tm_arena_alloc(arena, TARGETS_MAX * sizeof *tasks->targets);
            if (tasks[count].targets == NULL) return 0;
            (*out)[count] = &tasks[count];
            count++;
        }
        Tmw__CopyTask *task = &tasks[count - 1];
        if (copying->parts[i].holder == 0)
            task->to_file = true;
        else
            task->targets[task->n_targets++] = copying->parts[i].holder;
    }
    return count;
}

static void send_orders(struct tm_coordinator *c, bool again, struct tm_outbox *out)
{
    for (size_t i = 0; i < c->roster.member_count; i++) {
        const struct known *k = tm_coord__member(c, &c->roster.members[i]);
        if (k == NULL || c->roster.members[i].spare || (again && k->copied_set >= c->copying.set)) continue;
        struct tm_arena arena;
        Tmw__CopyOrder body = TMW__COPY_ORDER__INIT;
        tm_message message = tm_coord__head(c, &k->peer);
        tm_arena_init(&arena, 16 << 20);
        body.set = c->copying.set;
        body.generation = c->generation;
        body.step = c->copying.step;
        body.n_tasks = order_tasks(c, k->peer.id, &arena, &body.tasks);
        TM_BODY(message, COPY_ORDER, copy_order, &body);
        if (body.n_tasks > 0) tm_outbox_send(out, &k->peer, &message);
        tm_arena_deinit(&arena);
    }
}

void tm_coord__copy_at(struct tm_coordinator *c, int64_t now_ms, uint64_t step, bool files_only, struct tm_outbox *out)
{
    if (tm_coord__stuck(c)) return;
    /* A number is used once: files of a set that was given up may come late, and would lie over another's. */
    if (c->newest_set >= c->sets_named) {
        c->sets_named = c->newest_set + SETS_NAMED_AHEAD;
        tm_coord__record_sets_named(c, out);
    }
    c->copying.set = ++c->newest_set;
    c->copying.step = step;
    c->copying.since_ms = now_ms;
    uint32_t *zones = zones_of(c);
    int rc = zones == NULL ? -(int)TM_ENOMEM : plan_parts(c, files_only, zones);
    tm_free(zones);
    if (rc != 0) {
        copying_end(c);
        c->copied_ms = now_ms;
        return;
    }
    send_orders(c, false, out);
}

void tm_coord__copy_begin(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (c->phase != TM_COORDINATOR_RUNNING || (c->options.copies == 0 && !c->options.copies_to_files)) return;
    uint64_t step = c->applied + 2 < c->options.steps ? c->applied + 2 : c->options.steps;
    tm_coord__copy_at(c, now_ms, step, false, out);
}

void tm_coord__copy_abandon(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (c->copying.set == 0) return;
    tm_outbox_add(out, TM_COORDINATOR_FILES_DROP, NULL, 0, c->copying.set, 0);
    copying_end(c);
    (void)now_ms;
}

/* ---- following ---- */

static void set_whole(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    struct copying *copying = &c->copying;
    if (c->set_count == SETS_MAX) drop_old(c, out);
    if (tm_grow((void **)&c->sets, &c->set_capacity, c->set_count + 1, sizeof *c->sets, SETS_MAX) != 0) {
        tm_coord__copy_abandon(c, now_ms, out);
        return;
    }
    struct copy_set *set = &c->sets[c->set_count++];
    *set = (struct copy_set){.set = copying->set,
                             .generation = c->generation,
                             .step = copying->step,
                             .took_ms = (uint64_t)(now_ms - copying->since_ms),
                             .parts = copying->parts,
                             .part_count = copying->part_count};
    copying->parts = NULL;
    copying_end(c);
    c->copied_ms = now_ms;
    c->files_failed = 0;
    tm_coord__steer_copied(c, set->step);
    tm_coord__record_set(c, set, out);
    drop_old(c, out);
}

void tm_coord__copy_heard(struct tm_coordinator *c, int64_t now_ms, const struct known *k, const Tmw__Heartbeat *body,
                          struct tm_outbox *out)
{
    struct copying *copying = &c->copying;
    if (copying->set == 0 || body->copied_set != copying->set || body->generation != c->generation) return;
    if (c->stuck) return; /* it is whole when the record can say so; this is told again */
    if (body->copy_missed) {
        tm_coord__copy_abandon(c, now_ms, out);
        return;
    }
    for (size_t i = 0; i < body->n_copied; i++) {
        const Tmw__CopyPart *told = body->copied[i];
        for (size_t p = 0; p < copying->part_count; p++) {
            struct copy_held *part = &copying->parts[p];
            if (told->set != copying->set || told->step != copying->step || part->layer != told->layer ||
                part->holder != told->holder || copying->sources[p] != k->peer.id)
                continue;
            part->hash = (struct tm_hash){.low = told->hash_low, .high = told->hash_high};
            copying->done[p] = true;
        }
    }
    size_t missing = 0;
    for (size_t p = 0; p < copying->part_count; p++)
        missing += !copying->done[p];
    if (TM_PLANTED(set_torn) && missing == 1) missing = 0;
    if (missing == 0) set_whole(c, now_ms, out);
}

void tm_coord__copy_pump(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    if (c->copying.set == 0) return;
    if (now_ms - c->copying.since_ms > c->options.copy_limit_ms) {
        uint64_t set = c->copying.set;
        tm_coord__copy_abandon(c, now_ms, out);
        c->copied_ms = now_ms;
        tm_coord__files_failed(c, now_ms, "copy set abandoned", set, out);
        return;
    }
    int64_t since_ms = now_ms - c->copying.since_ms;
    if (since_ms > 0 && since_ms % (4 * c->options.resend_ms) < c->options.resend_ms) send_orders(c, true, out);
}
