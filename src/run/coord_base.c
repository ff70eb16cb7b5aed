/* From which step to go on, who sits where, who fetches what from whom. All of it from the reports to the fence and the
 * record's whole copy sets. */
#include "run/coord_internal.h"

#include "base/alloc.h"
#include "base/planted.h"

#include <string.h>

static bool reporter(const struct tm_coordinator *c, const struct known *k)
{
    return k->peer.role == TM_ROLE_WORKER && k->registered && k->reported == c->generation;
}

/* ---- where a layer can be had ---- */

/* What a whole set says the layer's bytes are at this step; that is the word that counts. */
static bool manifest_hash(const struct tm_coordinator *c, uint32_t layer, uint64_t step, struct tm_hash *out)
{
    for (size_t i = 0; i < c->set_count; i++) {
        const struct copy_set *set = &c->sets[i];
        for (size_t p = 0; set->step == step && p < set->part_count; p++) {
            if (set->parts[p].layer != layer) continue;
            *out = set->parts[p].hash;
            return true;
        }
    }
    return false;
}

/* The hash that live state has; false: there is none, or its holders differ and none is known to be right. */
static bool live_hash(struct tm_coordinator *c, uint32_t layer, uint64_t step, struct tm_hash *out)
{
    bool found = false;
    if (manifest_hash(c, layer, step, out)) return true;
    for (size_t i = 0; i < c->known_count; i++) {
        const struct known *k = &c->known[i];
        if (!reporter(c, k) || !k->layers[layer].have || k->layers[layer].step != step) continue;
        if (found && !tm_hash_equal(*out, k->layers[layer].hash)) return false;
        *out = k->layers[layer].hash;
        found = true;
    }
    return found;
}

static bool live_sources(struct tm_coordinator *c, uint32_t layer, uint64_t step, struct layer_sources *out)
{
    if (!live_hash(c, layer, step, &out->hash)) return false;
    for (size_t i = 0; i < c->known_count && out->worker_count < SOURCES_MAX; i++) {
        const struct known *k = &c->known[i];
        if (!reporter(c, k) || !k->layers[layer].have || k->layers[layer].step != step) continue;
        if (!tm_hash_equal(k->layers[layer].hash, out->hash)) continue;
        if (tm_coord__is_bad(c, 0, layer, k->peer.id, step)) continue;
        out->workers[out->worker_count++] = k->peer.id;
    }
    return out->worker_count > 0;
}

static void add_copy(struct tm_coordinator *c, const struct copy_held *held, struct layer_sources *out)
{
    if (tm_coord__is_bad(c, held->set, held->layer, held->holder, held->step)) return;
    if (held->set < out->set) return;
    if (held->set > out->set) {
        *out = (struct layer_sources){.set = held->set, .hash = held->hash};
    } else if (!tm_hash_equal(held->hash, out->hash)) {
        return;
    }
    if (held->holder == 0)
        out->from_file = true;
    else if (out->worker_count < SOURCES_MAX)
        out->workers[out->worker_count++] = held->holder;
}

static bool copy_sources(struct tm_coordinator *c, uint32_t layer, uint64_t step, struct layer_sources *out)
{
    struct tm_hash known_hash;
    bool manifest = manifest_hash(c, layer, step, &known_hash);
    *out = (struct layer_sources){.set = 0};
    for (size_t i = 0; i < c->known_count; i++) {
        const struct known *k = &c->known[i];
        for (size_t p = 0; reporter(c, k) && p < k->copy_count; p++) {
            const struct copy_held *held = &k->copies[p];
            if (held->layer != layer || held->step != step) continue;
            if (!manifest || tm_hash_equal(held->hash, known_hash)) add_copy(c, held, out);
        }
    }
    for (size_t i = 0; i < c->set_count; i++)
        for (size_t p = 0; c->sets[i].step == step && p < c->sets[i].part_count; p++)
            if (c->sets[i].parts[p].layer == layer && c->sets[i].parts[p].holder == 0)
                add_copy(c, &c->sets[i].parts[p], out);
    return out->worker_count > 0 || out->from_file;
}

bool tm_coord__sources(struct tm_coordinator *c, uint32_t layer, uint64_t step, struct layer_sources *out)
{
    *out = (struct layer_sources){.set = 0};
    return live_sources(c, layer, step, out) || copy_sources(c, layer, step, out);
}

/* ---- the base ---- */

static uint64_t next_lower(uint64_t step, uint64_t below, uint64_t best)
{
    return step < below && step > best ? step : best;
}

/* The highest step below `below` that anything is known of; 0: none. */
static uint64_t candidate(struct tm_coordinator *c, uint64_t below)
{
    uint64_t best = 0;
    for (size_t i = 0; i < c->known_count; i++) {
        const struct known *k = &c->known[i];
        if (!reporter(c, k)) continue;
        for (uint32_t l = 0; l < c->options.layers; l++)
            if (k->layers[l].have) best = next_lower(k->layers[l].step, below, best);
        for (size_t p = 0; p < k->copy_count; p++)
            best = next_lower(k->copies[p].step, below, best);
    }
    for (size_t i = 0; i < c->set_count; i++)
        best = next_lower(c->sets[i].step, below, best);
    return best;
}

uint64_t tm_coord__best_base(struct tm_coordinator *c)
{
    uint64_t step = c->options.steps + 1; /* what lies behind the job's end is nobody's */
    bool skip = TM_PLANTED(durable_ignored);
    while ((step = candidate(c, step)) > 0) {
        struct layer_sources sources = {.set = 0};
        uint32_t layer = 0;
        while (layer < c->options.layers && tm_coord__sources(c, layer, step, &sources))
            layer++;
        if (layer < c->options.layers) continue;
        if (skip && sources.set != 0) {
            skip = false;
            continue;
        }
        return step;
    }
    return 0; /* as it was before the first step: made from the job's seed */
}

/* ---- seats ---- */

static bool is_at(const struct layer_report *layers, uint32_t layer, uint64_t step)
{
    return layers[layer].have && layers[layer].step == step;
}

/* How many of a stage's layers a worker has: by its report, in the engine or followed; or (no base) by its seat. */
static uint32_t overlap(const struct tm_coordinator *c, const struct known *k, const struct tm_run_decision *decision,
                        uint32_t stage, const uint64_t *base)
{
    uint32_t count = 0;
    const struct tm_member *member = base != NULL ? NULL : tm_roster_find(&c->roster, k->peer.id);
    if (base == NULL && (member == NULL || member->spare || member->incarnation != k->peer.incarnation)) return 0;
    for (uint32_t l = decision->stage_first[stage]; l < decision->stage_first[stage + 1]; l++) {
        if (base != NULL)
            count += is_at(k->layers, l, *base) || is_at(k->followed, l, *base);
        else
            count += l >= c->roster.stage_first[member->stage] && l < c->roster.stage_first[member->stage + 1];
    }
    return count;
}

/* Who gains how much by which seat, 0 where it may have none: [member][stage]. NULL: no memory. */
static uint32_t *gains_of(struct tm_coordinator *c, int64_t now_ms, const struct tm_run_decision *decision,
                          const uint64_t *base, const struct tm_roster *roster)
{
    uint32_t *gains = tm_calloc(roster->member_count * decision->stages + 1, sizeof *gains);
    for (size_t i = 0; gains != NULL && i < roster->member_count; i++) {
        const struct known *k = tm_coord__member(c, &roster->members[i]);
        if (k == NULL || roster->members[i].remote || !tm_coord__usable(c, k, now_ms)) continue;
        if (!tm_coord__may_sit(c, roster->members[i].id)) continue;
        for (uint32_t s = 0; s < decision->stages; s++)
            gains[i * decision->stages + s] = overlap(c, k, decision, s, base) + 1;
    }
    return gains;
}

/* Gives the seat whose holder has most of its layers already, again and again: little is moved. */
static int take_seats(struct tm_coordinator *c, int64_t now_ms, const struct tm_run_decision *decision,
                      const uint64_t *base, struct tm_roster *roster)
{
    uint32_t taken[TM_STAGES_MAX] = {0};
    uint32_t *gains = gains_of(c, now_ms, decision, base, roster);
    if (gains == NULL) return -(int)TM_ENOMEM;
    for (size_t seat = 0; seat < (size_t)decision->pipelines * decision->stages; seat++) {
        size_t best_place = roster->member_count;
        uint32_t best_stage = 0;
        uint32_t best = 0;
        for (size_t i = 0; i < roster->member_count; i++) {
            for (uint32_t s = 0; roster->members[i].spare && s < decision->stages; s++) {
                uint32_t gain = gains[i * decision->stages + s];
                if (gain <= best || taken[s] == decision->pipelines) continue;
                best = gain;
                best_place = i;
                best_stage = s;
            }
        }
        if (best_place == roster->member_count) break;
        roster->members[best_place].spare = false;
        roster->members[best_place].stage = best_stage;
        roster->members[best_place].pipeline = taken[best_stage]++;
    }
    tm_free(gains);
    return 0;
}

/* With a base: of those who have reported. Without: of those who are here, as things stand. */
static int make_roster(struct tm_coordinator *c, int64_t now_ms, const struct tm_run_decision *decision,
                       const uint64_t *base, struct tm_roster *out)
{
    struct tm_roster roster = {
        .generation = c->generation, .pipelines = decision->pipelines, .stages = decision->stages};
    roster.members = tm_calloc(c->known_count + 1, sizeof *roster.members);
    if (roster.members == NULL) return -(int)TM_ENOMEM;
    memcpy(roster.stage_first, decision->stage_first, (decision->stages + 1) * sizeof *roster.stage_first);
    for (uint32_t p = 0; p < decision->pipelines; p++)
        roster.micro_batches[p] = c->options.micro_batches / decision->pipelines +
                                  (p < c->options.micro_batches % decision->pipelines ? 1 : 0);
    for (size_t i = 0; i < c->known_count && roster.member_count < TM_MEMBERS_MAX; i++) {
        const struct known *k = &c->known[i];
        if (base != NULL ? !reporter(c, k) : !tm_coord__usable(c, k, now_ms)) continue;
        struct tm_member *member = &roster.members[roster.member_count++];
        *member = (struct tm_member){.id = k->peer.id,
                                     .incarnation = k->peer.incarnation,
                                     .spare = true,
                                     .remote = tm_coord__remote(c, k, now_ms)};
        memcpy(member->address, k->address, sizeof member->address);
        memcpy(member->endpoint, k->endpoint, sizeof member->endpoint);
    }
    int rc = take_seats(c, now_ms, decision, base, &roster);
    if (rc == 0) rc = tm_roster_check(&roster, c->options.layers, c->options.micro_batches, NULL);
    if (rc != 0) {
        tm_roster_deinit(&roster);
        return rc;
    }
    *out = roster;
    return 0;
}

int tm_coord__seat(struct tm_coordinator *c, int64_t now_ms, const struct tm_run_decision *decision, uint64_t base)
{
    struct tm_roster roster;
    int rc = make_roster(c, now_ms, decision, &base, &roster);
    if (rc != 0) return rc;
    tm_roster_deinit(&c->roster);
    c->roster = roster;
    return 0;
}

int tm_coord__foresee(struct tm_coordinator *c, int64_t now_ms, const struct tm_run_decision *decision,
                      struct tm_roster *out)
{
    return make_roster(c, now_ms, decision, NULL, out);
}

/* ---- who fetches what ---- */

static void plan_fetch(const struct tm_coordinator *c, const struct tm_member *member, uint32_t layer,
                       const struct layer_sources *sources, Tmw__Fetch *fetch, uint64_t *list)
{
    tmw__fetch__init(fetch);
    fetch->layer = layer;
    fetch->initial = c->base == 0;
    if (fetch->initial) return;
    fetch->hash_low = sources->hash.low;
    fetch->hash_high = sources->hash.high;
    fetch->set = sources->set;
    fetch->from_file = sources->from_file;
    fetch->sources = list;
    /* Begin with another source for each member, so that all of them are read at once. */
    for (size_t i = 0; i < sources->worker_count; i++) {
        uint64_t source = sources->workers[(i + member->id) % sources->worker_count];
        if (source != member->id || sources->set != 0) list[fetch->n_sources++] = source;
    }
}

static bool has_it(const struct known *k, uint32_t layer, uint64_t base, const struct layer_sources *sources)
{
    bool held = is_at(k->layers, layer, base) && tm_hash_equal(k->layers[layer].hash, sources->hash);
    bool followed = is_at(k->followed, layer, base) && tm_hash_equal(k->followed[layer].hash, sources->hash);
    if (TM_PLANTED(follow_unchecked)) followed = is_at(k->followed, layer, base);
    return base > 0 && (held || followed);
}

void tm_coord__send_assign(struct tm_coordinator *c, const struct tm_member *member, struct tm_outbox *out)
{
    const struct known *k = tm_coord__member(c, member);
    struct tm_arena arena;
    Tmw__Assign body = TMW__ASSIGN__INIT;
    tm_arena_init(&arena, 64 << 20);
    uint32_t first = member->spare ? 0 : c->roster.stage_first[member->stage];
    uint32_t last = member->spare ? 0 : c->roster.stage_first[member->stage + 1];
    Tmw__Fetch *fetches = tm_arena_alloc(&arena, (last - first + 1) * sizeof *fetches);
    uint64_t *lists = tm_arena_alloc(&arena, (size_t)(last - first + 1) * SOURCES_MAX * sizeof *lists);
    body.fetches = tm_arena_alloc(&arena, (last - first + 1) * sizeof(Tmw__Fetch *));
    body.layout = tm_roster_write(&c->roster, &arena);
    bool good = k != NULL && fetches != NULL && lists != NULL && body.fetches != NULL && body.layout != NULL;
    for (uint32_t l = first; good && l < last; l++) {
        struct layer_sources sources;
        bool found = tm_coord__sources(c, l, c->base, &sources);
        if (c->base > 0 && found && has_it(k, l, c->base, &sources)) continue;
        size_t at = body.n_fetches++;
        plan_fetch(c, member, l, &sources, &fetches[at], lists + at * SOURCES_MAX);
        body.fetches[at] = &fetches[at];
    }
    if (good) {
        tm_message message = tm_coord__head(c, &k->peer);
        body.generation = c->generation;
        body.base_step = c->base;
        TM_BODY(message, ASSIGN, assign, &body);
        tm_outbox_send(out, &k->peer, &message);
    }
    tm_arena_deinit(&arena);
}
