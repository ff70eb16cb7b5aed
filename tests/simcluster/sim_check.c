/* The checkers: what must hold whatever goes wrong. Each says in its failure which one it is. */
#include "sim.h"

#include "base/alloc.h"
#include "run/decide_again.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef unsigned long long ull;

enum { UNHEARD_MS = 1500, UNKNOWN_MS = 6000 /* a death may be */ };

/* ---- steps ---- */

static struct held_seen *held_of(struct sim *sim, uint64_t generation, uint64_t step)
{
    for (size_t i = sim->held_count; i-- > 0;)
        if (sim->held[i].generation == generation && sim->held[i].step == step) return &sim->held[i];
    int rc = tm_grow((void **)&sim->held, &sim->held_capacity, sim->held_count + 1, sizeof *sim->held, 1 << 20);
    assert(rc == 0);
    sim->held[sim->held_count] = (struct held_seen){.generation = generation, .step = step, .first_ms = sim->now_ms};
    return &sim->held[sim->held_count++];
}

static bool has_held(const struct held_seen *held, uint64_t node)
{
    return (held->instances[node / 64] >> node % 64 & 1) != 0;
}

/* What was said to workers may not be forgotten: a generation trains only once its start is on the record's disk. */
void check_begun(struct sim *sim, const struct node *node, uint64_t generation)
{
    bool recorded = sim->generation_count == GENERATIONS_MAX;
    for (size_t i = sim->generation_count; i-- > 0 && !recorded;)
        recorded = sim->generations[i].generation == generation;
    if (!recorded)
        sim_fail(sim, "recorded: worker %llu trains in generation %llu, whose start is not on the record's disk",
                 (ull)node->id, (ull)generation);
}

void check_held(struct sim *sim, struct node *node, uint64_t generation, uint64_t step)
{
    held_of(sim, generation, step)->instances[node->id / 64] |= (uint64_t)1 << node->id % 64;
}

/* Only a step that all members of its generation hold may be applied, and only while no later generation has gone on.
 */
static bool all_held(struct sim *sim, struct node *node, uint64_t generation, uint64_t step)
{
    struct tm_worker_view view = tm_worker_look(node->worker, sim_clock(sim, node));
    const struct held_seen *held = held_of(sim, generation, step);
    for (size_t i = 0; i < view.roster->member_count; i++)
        if (!view.roster->members[i].spare && !has_held(held, view.roster->members[i].id)) return false;
    return true;
}

static void check_generation_of(struct sim *sim, struct node *node, uint64_t generation, uint64_t step)
{
    struct tm_worker_view view = tm_worker_look(node->worker, sim_clock(sim, node));
    const struct held_seen *held = held_of(sim, generation, step);
    for (size_t i = 0; i < view.roster->member_count; i++) {
        const struct tm_member *member = &view.roster->members[i];
        if (!member->spare && !has_held(held, member->id))
            sim_fail(sim,
                     "one generation: worker %llu applies step %llu of generation %llu, which worker %llu does not "
                     "hold",
                     (ull)node->id, (ull)step, (ull)generation, (ull)member->id);
    }
    bool past = false; /* in order of time: after a lost record, a number may be lower when all who knew are dead */
    for (size_t i = 0; i < sim->generation_count; i++) {
        const struct generation_seen *later = &sim->generations[i];
        if (!past) {
            past = later->generation == generation;
            continue;
        }
        /* A member that was fenced holds no further step: so the first to hold this one did so before the fence. */
        if (held->first_ms > later->at_ms)
            sim_fail(sim,
                     "one generation: worker %llu applies step %llu in generation %llu, but %llu runs from step %llu",
                     (ull)node->id, (ull)step, (ull)generation, (ull)later->generation, (ull)later->base);
        break;
    }
}

void check_applied(struct sim *sim, struct node *node, uint64_t generation, uint64_t step)
{
    struct tm_worker_view view = tm_worker_look(node->worker, sim_clock(sim, node));
    sim->steps_applied++;
    if (view.phase == TM_WORKER_RUNNING) {
        events_applied(sim, generation);
        orders_applied(sim, node, generation, step);
    }
    if (step != view.applied + 1)
        sim_fail(sim, "steps: worker %llu applies step %llu after %llu", (ull)node->id, (ull)step, (ull)view.applied);
    for (uint32_t l = 0; l < sim->layers; l++) {
        const struct toy_layer *layer = &node->toy.layers[l];
        if (!layer->have) continue;
        if (layer->step != step)
            sim_fail(sim, "steps: worker %llu has layer %u at step %llu, not %llu", (ull)node->id, l, (ull)layer->step,
                     (ull)step);
        else if (!oracle_matches(sim, step, l, layer->words, toy_layer_bytes(l)))
            sim_fail(sim, "state: worker %llu has other bits in layer %u after step %llu", (ull)node->id, l, (ull)step);
    }
    if (view.phase == TM_WORKER_RUNNING)
        check_generation_of(sim, node, generation, step);
    else if (step > sim->highest_applied && !all_held(sim, node, generation, step))
        sim_fail(sim, "steps: worker %llu applies step %llu in doubt, which nobody has applied", (ull)node->id,
                 (ull)step);
    if (step > sim->highest_applied) sim->highest_applied = step;
}

/* Steps that were computed in more than one generation. */
uint64_t sim_steps_redone(const struct sim *sim)
{
    uint64_t redone = 0;
    for (size_t i = 0; i < sim->held_count; i++) {
        bool earlier = false;
        for (size_t k = 0; k < i; k++)
            earlier = earlier || sim->held[k].step == sim->held[i].step;
        redone += earlier;
    }
    return redone;
}

/* ---- what a new generation has to go on from ---- */

void check_report(struct sim *sim, struct node *node, uint64_t incarnation, const Tmw__Report *report)
{
    if (node->reported_generation == report->generation && node->reported_incarnation == incarnation) return;
    node->reported_generation = report->generation;
    node->reported_incarnation = incarnation;
    node->reported_applied = report->applied;
    node->reported_held = report->held;
    node->reported_norm = report->norm_known != 0;
    for (uint32_t l = 0; l < sim->layers; l++)
        node->reported_step[l] = UINT64_MAX;
    for (size_t i = 0; i < report->n_layers; i++)
        node->reported_step[report->layers[i]->layer] = report->layers[i]->step;
}

static const struct node *reporter(const struct sim *sim, const struct tm_roster *roster, size_t i)
{
    const struct node *node = &sim->instances[roster->members[i].id];
    bool same =
        node->reported_generation == roster->generation && node->reported_incarnation == roster->members[i].incarnation;
    return same ? node : NULL;
}

/* While one replica of each stage lives, no applied step is lost: those behind hold the step in doubt. */
static void check_survivors(struct sim *sim, const struct tm_roster *roster, uint64_t base)
{
    uint64_t newest = 0;
    for (size_t i = 0; i < roster->member_count; i++) {
        const struct node *node = reporter(sim, roster, i);
        if (node != NULL && node->reported_norm && node->reported_applied > newest) newest = node->reported_applied;
    }
    for (uint32_t l = 0; l < sim->layers; l++) {
        bool found = false;
        for (size_t i = 0; i < roster->member_count; i++) {
            const struct node *node = reporter(sim, roster, i);
            if (node == NULL) continue;
            bool behind = node->reported_held == newest && node->reported_applied + 1 == newest &&
                          node->reported_step[l] + 1 == newest;
            found = found || node->reported_step[l] == newest || behind;
        }
        if (!found) return;
    }
    if (base < newest)
        sim_fail(sim, "survivors: generation %llu starts from step %llu, though every layer is there at step %llu",
                 (ull)roster->generation, (ull)base, (ull)newest);
}

/* ---- what the record says ---- */

static const struct tm_copy_part *part_at(struct sim *sim, uint64_t holder, uint64_t incarnation, uint64_t set,
                                          uint32_t layer)
{
    const struct node *node = holder < sim->node_count ? &sim->instances[holder] : NULL;
    if (node == NULL || node->worker == NULL || node->incarnation != incarnation) return NULL;
    return tm_copies_find(tm_worker_look(node->worker, 0).copies, set, layer);
}

static void check_part(struct sim *sim, const Tmw__CopyPart *part)
{
    const void *data = NULL;
    size_t length = 0;
    if (part->holder == 0) {
        const struct stored_file *file = files_find(sim, part->set, part->layer);
        struct tm_copy_name name;
        if (file != NULL && file->damaged) return;
        if (file == NULL || tm_copy_file_decode(file->data, file->length, &name, &data, NULL) != 0) {
            sim_fail(sim, "copy set: set %llu is called whole, but the file of layer %u is not there", (ull)part->set,
                     part->layer);
            return;
        }
        length = name.size;
    } else {
        const struct node *node = &sim->instances[part->holder];
        if (node->worker == NULL || node->incarnation != part->holder_incarnation) return; /* it died just now */
        const struct tm_copy_part *copy = part_at(sim, part->holder, part->holder_incarnation, part->set, part->layer);
        if (copy == NULL) {
            sim_fail(sim, "copy set: set %llu is called whole, but worker %llu does not hold layer %u", (ull)part->set,
                     (ull)part->holder, part->layer);
            return;
        }
        if (!tm_hash_equal(tm_hash_of(copy->block->data, copy->name.size), copy->name.hash)) return; /* damaged by us */
        data = copy->block->data;
        length = copy->name.size;
    }
    if (!oracle_matches(sim, part->step, part->layer, data, length))
        sim_fail(sim, "copy set: set %llu holds layer %u not as of step %llu", (ull)part->set, part->layer,
                 (ull)part->step);
}

static void check_set(struct sim *sim, const Tmw__CopySet *set)
{
    bool layers[LAYERS_MAX] = {false};
    bool again = false; /* a set known from its manifest is recorded anew when the record was lost */
    for (size_t i = 0; i < sim->set_count; i++)
        again = again || (sim->sets[i].set == set->set && sim->sets[i].step == set->step);
    if (again) return;
    struct set_seen *seen = &sim->sets[sim->set_count < SETS_SEEN_MAX ? sim->set_count++ : SETS_SEEN_MAX - 1];
    *seen = (struct set_seen){.set = set->set, .step = set->step};
    for (size_t i = 0; i < set->n_parts; i++) {
        const Tmw__CopyPart *part = set->parts[i];
        check_part(sim, part);
        layers[part->layer] = true;
        size_t at = seen->part_count < LAYERS_MAX * 4 ? seen->part_count++ : seen->part_count - 1;
        seen->parts[at].layer = part->layer;
        seen->parts[at].holder = part->holder;
        seen->in_files = seen->in_files || part->holder == 0;
        seen->parts[at].incarnation = part->holder_incarnation;
        seen->parts[at].hash = (struct tm_hash){.low = part->hash_low, .high = part->hash_high};
    }
    for (uint32_t l = 0; l < sim->layers; l++)
        if (!layers[l]) sim_fail(sim, "copy set: set %llu is called whole without layer %u", (ull)set->set, l);
    sim_trace(sim, "copy set %llu of step %llu is whole", (ull)set->set, (ull)set->step);
}

static void check_bad(struct sim *sim, uint64_t set)
{
    for (size_t i = 0; i < sim->set_count; i++)
        if (sim->sets[i].set == set) sim->sets[i].bad = true;
}

/* Nothing that we did stands against restoring this part: its file or its holder's process is as it was. */
static bool part_unharmed(struct sim *sim, const struct set_seen *set, size_t p, const struct tm_roster *roster)
{
    uint64_t holder = set->parts[p].holder;
    if (holder == 0) {
        const struct stored_file *file = files_find(sim, set->set, set->parts[p].layer);
        return !set->unnamed && (file == NULL || !file->damaged);
    }
    const struct tm_member *member = tm_roster_find(roster, holder);
    const struct node *node = &sim->instances[holder];
    if (member == NULL || member->incarnation != set->parts[p].incarnation) return false;
    if (node->worker == NULL || node->incarnation != set->parts[p].incarnation) return false;
    const struct tm_copy_part *copy = part_at(sim, holder, node->incarnation, set->set, set->parts[p].layer);
    if (copy == NULL) return !(set->forgotten && set != &sim->sets[sim->set_count - 1]); /* a later one replaced it */
    return tm_hash_equal(tm_hash_of(copy->block->data, copy->name.size), copy->name.hash);
}

static bool set_unharmed(struct sim *sim, const struct set_seen *set, const struct tm_roster *roster)
{
    for (uint32_t l = 0; l < sim->layers; l++) {
        bool found = false;
        for (size_t p = 0; p < set->part_count && !found; p++)
            found = set->parts[p].layer == l && part_unharmed(sim, set, p, roster);
        if (!found) return false;
    }
    return true;
}

static bool has_damaged_file(struct sim *sim, const struct set_seen *set)
{
    for (size_t p = 0; p < set->part_count; p++) {
        const struct stored_file *file = files_find(sim, set->set, set->parts[p].layer);
        if (set->parts[p].holder == 0 && file != NULL && file->damaged) return true;
    }
    return false;
}

/* No set that can be restored holds a later step. One that was found damaged stays given up, though a slow write that
 * was tried twice may mend its file long after training went on from an older one. */
static void check_sets_below(struct sim *sim, const struct tm_roster *roster, uint64_t base)
{
    for (size_t i = 0; i < sim->set_count; i++) {
        struct set_seen *set = &sim->sets[i];
        if (set->dropped || set->bad || set->given_up || set->step <= base) continue;
        if (set_unharmed(sim, set, roster))
            sim_fail(sim, "durable: generation %llu starts from step %llu, but set %llu holds step %llu",
                     (ull)roster->generation, (ull)base, (ull)set->set, (ull)set->step);
        else
            set->given_up = has_damaged_file(sim, set);
    }
}

static void check_owners(struct sim *sim, const struct tm_roster *roster, uint64_t base)
{
    for (size_t i = 0; i < roster->member_count; i++) {
        const struct tm_member *member = &roster->members[i];
        const struct node *node = &sim->instances[member->id];
        if (member->spare || node->worker == NULL || node->incarnation != member->incarnation) continue;
        struct tm_worker_view view = tm_worker_look(node->worker, 0);
        if (view.generation != roster->generation) continue; /* fenced again, before this was recorded */
        for (uint32_t l = roster->stage_first[member->stage]; l < roster->stage_first[member->stage + 1]; l++) {
            const struct toy_layer *layer = &node->toy.layers[l];
            if (!layer->have || layer->step != base)
                sim_fail(sim, "owners: worker %llu starts without layer %u at step %llu", (ull)member->id, l,
                         (ull)base);
            else if (!oracle_matches(sim, base, l, layer->words, toy_layer_bytes(l)))
                sim_fail(sim, "state: worker %llu starts with other bits in layer %u", (ull)member->id, l);
        }
    }
}

/* How far the newest generation came. */
static uint64_t reached_of_last(const struct sim *sim)
{
    const struct generation_seen *last = &sim->generations[sim->generation_count - 1];
    uint64_t reached = last->base;
    for (size_t i = 0; i < sim->held_count; i++)
        if (sim->held[i].generation == last->generation && sim->held[i].step > reached) reached = sim->held[i].step;
    return reached;
}

/* A generation that starts above all that the one before it did has its base from one that was silent for a while. The
 * first one of a record that was begun anew cannot know what the lost one told: of a worker that has steps of an older
 * past, what was rolled back then is told again. */
static void note_come_back(struct sim *sim, const Tmw__GenerationEvent *event)
{
    if (sim->generation_count == 0) return;
    uint64_t base = event->base_step;
    uint64_t reached = reached_of_last(sim);
    if (base > reached) sim->come_back += base - reached;
    bool record_lost = event->generation >> 32 != sim->generations[sim->generation_count - 1].generation >> 32;
    uint64_t rolled_back = reached > base ? reached - base : 0;
    if (record_lost && event->rolled_back > rolled_back) sim->come_back += event->rolled_back - rolled_back;
}

static void check_started(struct sim *sim, const Tmw__GenerationEvent *event)
{
    struct tm_roster roster = {0};
    struct tm_error e;
    if (tm_roster_read(event->generation, event->layout, sim->layers, sim->micro_batches, &roster, &e) != 0) {
        sim_fail(sim, "owners: generation %llu: %s", (ull)event->generation, e.text);
        return;
    }
    for (size_t i = 0; i < sim->generation_count; i++) {
        const struct generation_seen *earlier = &sim->generations[i];
        if (earlier->generation == event->generation)
            sim_fail(sim, "one generation: %llu starts twice", (ull)event->generation);
        if (earlier->generation < event->generation) continue;
        for (size_t n = 1; n < sim->node_count; n++)
            if (tm_roster_find(&roster, n) != NULL && sim->instances[n].worker != NULL &&
                tm_worker_look(sim->instances[n].worker, 0).generation > event->generation)
                sim_fail(sim, "one generation: %llu starts after %llu, which worker %zu obeys", (ull)event->generation,
                         (ull)earlier->generation, n);
    }
    note_come_back(sim, event);
    if (sim->generation_count < GENERATIONS_MAX)
        sim->generations[sim->generation_count++] =
            (struct generation_seen){.generation = event->generation, .base = event->base_step, .at_ms = sim->now_ms};
    orders_started(sim, event->base_step);
    check_owners(sim, &roster, event->base_step);
    pools_started(sim, &roster);
    check_survivors(sim, &roster, event->base_step);
    check_sets_below(sim, &roster, event->base_step);
    sim->rolled_back += event->rolled_back;
    sim_trace(sim, "generation %llu starts from step %llu: %u pipelines of %u stages, %zu members",
              (ull)event->generation, (ull)event->base_step, roster.pipelines, roster.stages, roster.member_count);
    tm_roster_deinit(&sim->last_roster);
    sim->last_roster = roster;
}

void check_record(struct sim *sim, const void *data, size_t length)
{
    struct tm_arena arena;
    struct tm_error e;
    Tmw__RecordEvent *event = NULL;
    tm_arena_init(&arena, 64 << 20);
    if (tm_record_event_unpack(data, length, &arena, &event, &e) != 0)
        sim_fail(sim, "an event of ours is refused: %s", e.text);
    else if (event->body_case == TMW__RECORD_EVENT__BODY_GENERATION && event->generation->started)
        check_started(sim, event->generation);
    else if (event->body_case == TMW__RECORD_EVENT__BODY_GENERATION)
        sim_trace(sim, "generation %llu fences: %s", (ull)event->generation->generation, event->generation->why);
    else if (event->body_case == TMW__RECORD_EVENT__BODY_SET_WHOLE)
        check_set(sim, event->set_whole);
    else if (event->body_case == TMW__RECORD_EVENT__BODY_SET_BAD)
        check_bad(sim, event->set_bad);
    if (event != NULL) hostile_check(sim, event);
    if (event != NULL) events_take(sim, event);
    tm_arena_deinit(&arena);
}

/* An instance is given back, of which this is the first worker: nobody counts on it any more. */
void check_release(struct sim *sim, uint64_t first)
{
    if (sim->coordinator == NULL) return;
    struct tm_coordinator_view view = tm_coordinator_look(sim->coordinator);
    bool runs = view.phase == TM_COORDINATOR_RUNNING && view.generation == sim->last_roster.generation;
    for (uint64_t id = first; id < sim_next(sim, first); id++) {
        const struct tm_member *member = tm_roster_find(&sim->last_roster, id);
        if (runs && member != NULL && !member->spare && member->incarnation == sim->instances[id].incarnation)
            sim_fail(sim, "release: the instance of %llu is given back, but has a seat", (ull)id);
    }
    for (size_t i = 0; i < sim->set_count; i++) {
        const struct set_seen *set = &sim->sets[i];
        if (set->set != view.durable_set || set->dropped) continue;
        for (uint32_t l = 0; l < sim->layers; l++) {
            bool with = false, without = false;
            for (size_t p = 0; p < set->part_count; p++) {
                uint64_t holder = set->parts[p].holder;
                if (set->parts[p].layer != l) continue;
                bool there = holder == 0 || part_at(sim, holder, set->parts[p].incarnation, set->set, l) != NULL;
                if (holder != 0 && sim->now_ms - sim->instances[holder].died_ms < UNKNOWN_MS) without = true;
                bool here = holder != 0 && sim_first(sim, holder) == first;
                with = with || (there && here);
                without = without || (there && !here && !(holder != 0 && sim->instances[holder].giving_back));
            }
            if (with && !without)
                sim_fail(sim, "release: the instance of %llu is given back, and with it the only copy of layer %u",
                         (ull)first, l);
        }
    }
}

/* ---- at any time ---- */

/* What the coordinator counts on is there, unless its holder died. */
static void check_durable_now(struct sim *sim)
{
    if (sim->coordinator == NULL) return;
    uint64_t durable = tm_coordinator_look(sim->coordinator).durable_set;
    for (size_t i = sim->set_count; durable != 0 && i-- > 0;) {
        const struct set_seen *set = &sim->sets[i];
        if (set->set != durable) continue;
        for (size_t p = 0; p < set->part_count; p++) {
            uint64_t holder = set->parts[p].holder;
            if (holder == 0) return; /* in files as well: memory may go */
            const struct node *node = &sim->instances[holder];
            if (node->worker == NULL || node->incarnation != set->parts[p].incarnation) continue;
            if (part_at(sim, holder, node->incarnation, set->set, set->parts[p].layer) == NULL)
                sim_fail(sim, "durable: worker %llu has dropped layer %u of set %llu, the newest that is whole",
                         (ull)holder, set->parts[p].layer, (ull)set->set);
        }
        return;
    }
}

void check_now(struct sim *sim)
{
    check_durable_now(sim);
    cloud_check(sim);
    for (size_t i = 1; i < sim->node_count; i++) {
        const struct node *node = &sim->instances[i];
        if (node->worker == NULL) continue;
        struct tm_worker_view view = tm_worker_look(node->worker, sim_clock(sim, node));
        const struct tm_member *me = view.phase == TM_WORKER_RUNNING ? tm_roster_find(view.roster, node->id) : NULL;
        if (view.phase == TM_WORKER_FENCED && view.snapshot_bytes > 0)
            sim_fail(sim, "leak: worker %llu keeps the snapshot of a set that was given up", (ull)node->id);
        for (uint32_t l = 0; l < sim->layers; l++) {
            uint64_t step = 0;
            bool holds = tm_worker_holds(node->worker, l, &step);
            if (holds != node->toy.layers[l].have)
                sim_fail(sim, "owners: worker %llu and its engine differ over layer %u", (ull)node->id, l);
            bool mine = me != NULL && !me->spare && l >= view.roster->stage_first[me->stage] &&
                        l < view.roster->stage_first[me->stage + 1];
            if (mine && !holds) sim_fail(sim, "owners: worker %llu trains without its layer %u", (ull)node->id, l);
        }
    }
}

/* ---- at the end ---- */

static bool process_lives(const struct sim *sim)
{
    for (size_t i = 1; i < sim->node_count; i++)
        if (sim->instances[i].worker != NULL) return true;
    return false;
}

/* The sum of instance time at its price, as far as the cloud has told. */
static void check_bill(struct sim *sim)
{
    double sum = 0;
    double on_demand = 0;
    for (size_t i = 1; i < sim->node_count; i++) {
        double usd = cloud_bill_microusd(sim, &sim->instances[i]);
        sum += usd;
        if (!sim->instances[i].spot) on_demand += usd;
    }
    struct tm_coordinator_view view = tm_coordinator_look(sim->coordinator);
    double unheard = 0; /* reports come four times a second */
    for (size_t i = 1; i < sim->node_count; i++)
        if (sim->instances[i].up) unheard += (double)sim->instances[i].price_microusd_h * UNHEARD_MS / 3.6e6;
    if (fabs((double)view.bill_microusd - sum) > unheard + 1 ||
        fabs((double)view.on_demand_bill_microusd - on_demand) > unheard + 1)
        sim_fail(sim, "bill: %.6f, but instances ran for %.6f", (double)view.bill_microusd / 1e6, sum / 1e6);
    double listed = 0;
    for (size_t i = 1; i < sim->node_count; i++) /* what it cost at last may never have been told */
        if (sim->instances[i].forgotten) unheard += cloud_bill_microusd(sim, &sim->instances[i]);
    for (size_t i = 0; i < view.instance_count; i++)
        listed += (double)view.instances[i].bill_microusd;
    if (fabs(listed - sum) > unheard + (double)sim->node_count)
        sim_fail(sim, "bill: instances are listed with %.6f, but ran for %.6f", listed / 1e6, sum / 1e6);
}

/* What is told as rolled back was done again. Not the other way round: what was computed since the last heartbeats of
 * those who died nobody can tell. */
static void check_counts(struct sim *sim)
{
    uint64_t redone = sim_steps_redone(sim);
    if (sim->rolled_back > redone + sim->come_back)
        sim_fail(sim, "counts: %llu steps rolled back, but %llu were done again", (ull)sim->rolled_back, (ull)redone);
}

/* What the record keeps of decisions is enough to make them again. */
static void check_decisions(struct sim *sim)
{
    struct tm_decide_again *again = NULL;
    struct tm_error e;
    int rc = tm_decide_again_create(NULL, &again, &e);
    for (size_t i = 0; rc == 0 && i < sim->record_count; i++) {
        struct tm_arena arena;
        Tmw__RecordEvent *event = NULL;
        tm_arena_init(&arena, 64 << 20);
        rc = tm_record_event_unpack(sim->record[i].data, sim->record[i].length, &arena, &event, &e);
        if (rc == 0) rc = tm_decide_again_take(again, i + 1, event, &e);
        tm_arena_deinit(&arena);
    }
    if (rc != 0) {
        sim_fail(sim, "decisions: they cannot be made again: %s", e.text);
    } else {
        const struct tm_decided_again *result = tm_decide_again_result(again);
        sim->decided_again = result->decisions;
        if (result->different > 0)
            sim_fail(sim, "decisions: %llu of %llu differ, the first is %llu, in %s", (ull)result->different,
                     (ull)result->decisions, (ull)result->first.index, result->first.figure);
        if (result->shared_otherwise > 0)
            sim_fail(sim, "shares: of %llu generations %llu are shared out otherwise than their members are slow",
                     (ull)result->generations, (ull)result->shared_otherwise);
    }
    tm_decide_again_destroy(again);
}

void check_end(struct sim *sim)
{
    if (sim->failure[0] != '\0') return;
    check_decisions(sim);
    if (sim->coordinator == NULL) {
        sim_fail(sim, "progress: the coordinator is not there at the end");
        return;
    }
    struct tm_coordinator_view view = tm_coordinator_look(sim->coordinator);
    if (!sim->finished) {
        sim_fail(sim, "progress: step %llu of %llu, coordinator %s (generation %llu) waits for %s", (ull)view.applied,
                 (ull)sim->steps, tm_coordinator_phase_name(view.phase), (ull)view.generation, view.waiting);
        return;
    }
    check_counts(sim);
    if (sim->gives_up != (view.phase == TM_COORDINATOR_FAILED))
        sim_fail(sim, "failures: the job is %s at the end", tm_coordinator_phase_name(view.phase));
    if (sim->highest_applied != sim->steps && !sim->gives_up)
        sim_fail(sim, "steps: finished at step %llu of %llu", (ull)sim->highest_applied, (ull)sim->steps);
    if (sim->coordinator_options.copies_to_files && files_newest_step(sim) != sim->steps && !sim->gives_up)
        sim_fail(sim, "finish: the newest manifest is of step %llu, not the last", (ull)files_newest_step(sim));
    check_bill(sim);
    events_check(sim);
    size_t lives = 1; /* the cloud */
    for (size_t i = 1; i < sim->node_count; i++)
        lives +=
            (size_t)(sim->instances[i].up && sim->instances[i].agent_up) + (size_t)(sim->instances[i].worker != NULL);
    view = tm_coordinator_look(sim->coordinator);
    if (view.leases > lives) sim_fail(sim, "leak: %zu leases for %zu processes", view.leases, lives);
    if (process_lives(sim)) sim_fail(sim, "leak: a worker runs on after the job's end");
}

/* What the coordinator shows of the losses is what the toy engines told (sim_toy.c). */
void check_losses(struct sim *sim)
{
    struct tm_coordinator_view view = tm_coordinator_look(sim->coordinator);
    for (size_t i = 0; i < view.loss_count; i++) {
        const struct tm_step_loss *told = &view.losses[i];
        if (told->step == 0 || told->step > sim->steps || told->loss != 1.0 / (double)told->step)
            sim_fail(sim, "losses: %g is shown for step %llu", told->loss, (ull)told->step);
        if (i > 0 && told->step <= view.losses[i - 1].step) sim_fail(sim, "losses: not one a step");
    }
}
