/* From which step to go on, who sits where, who fetches what from whom. All of it from the reports to the fence and the
 * record's whole copy sets. */
#include "run/coord_internal.h"

#include "base/alloc.h"
#include "base/planted.h"

#include <stdlib.h>
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
    for (size_t i = 0; i < c->set_count; i++) /* of one that the record calls bad, files may be gone */
        for (size_t p = 0; c->sets[i].step == step && !c->sets[i].bad && p < c->sets[i].part_count; p++)
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

/* ---- who sits where ---- */

enum { ZONES_MAX = 16 }; /* that are told apart; those of others are as good as not known */

/* Seats as they are given out. All lists are by place in the roster. */
struct seating {
    const struct tm_coordinator *c;
    const struct tm_run_decision *decision;
    struct tm_roster *roster;
    uint32_t *gains; /* [member][stage] */
    size_t *order;   /* members by number: those of one instance are side by side */
    size_t *at;      /* of a member in it */
    uint32_t *zone;  /* of each, from 1 to ZONES_MAX; 0: not known */
    size_t *choices; /* member x stages + stage: most gained first, then by member, then by stage */
    size_t choice_count;
    uint32_t taken[TM_STAGES_MAX];
    uint32_t zones[ZONES_MAX]; /* as the cloud numbers them */
    size_t zone_count;
    bool zone_has[ZONES_MAX + 1][TM_STAGES_MAX]; /* a replica of the stage */
};

static uint32_t zone_index(struct seating *s, uint64_t worker)
{
    const Tmw__Instance *instance = tm_coord__instance_of(s->c, worker);
    size_t i = 0;
    if (instance == NULL || instance->zone == 0) return 0;
    while (i < s->zone_count && s->zones[i] != instance->zone)
        i++;
    if (i == ZONES_MAX) return 0;
    if (i == s->zone_count) s->zones[s->zone_count++] = instance->zone;
    return (uint32_t)i + 1;
}

static void seating_deinit(struct seating *s)
{
    tm_free(s->gains);
    tm_free(s->order);
    tm_free(s->at);
    tm_free(s->zone);
    tm_free(s->choices);
}

struct numbered {
    uint64_t id;
    size_t place;
};

static int by_number(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int order_members(struct seating *s)
{
    const struct tm_roster *roster = s->roster;
    struct numbered *numbered = tm_calloc(roster->member_count + 1, sizeof *numbered);
    s->order = tm_calloc(roster->member_count + 1, sizeof *s->order);
    s->at = tm_calloc(roster->member_count + 1, sizeof *s->at);
    s->zone = tm_calloc(roster->member_count + 1, sizeof *s->zone);
    bool good = numbered != NULL && s->order != NULL && s->at != NULL && s->zone != NULL;
    for (size_t i = 0; good && i < roster->member_count; i++) {
        numbered[i] = (struct numbered){roster->members[i].id, i};
        s->zone[i] = zone_index(s, roster->members[i].id);
    }
    if (good) qsort(numbered, roster->member_count, sizeof *numbered, by_number);
    for (size_t i = 0; good && i < roster->member_count; i++) {
        s->order[i] = numbered[i].place;
        s->at[numbered[i].place] = i;
    }
    tm_free(numbered);
    return good ? 0 : -(int)TM_ENOMEM;
}

/* Most gained first, by counting. */
static int order_choices(struct seating *s)
{
    size_t all = s->roster->member_count * s->decision->stages;
    size_t most = s->c->options.layers + 2;
    size_t *first = tm_calloc(most + 1, sizeof *first);
    s->choices = tm_calloc(all + 1, sizeof *s->choices);
    if (first == NULL || s->choices == NULL) {
        tm_free(first);
        return -(int)TM_ENOMEM;
    }
    for (size_t i = 0; i < all; i++)
        first[most - s->gains[i]] += s->gains[i] > 0;
    for (size_t g = 0, sum = 0; g <= most; g++) {
        size_t count = first[g];
        first[g] = sum;
        sum += count;
        s->choice_count = sum;
    }
    for (size_t i = 0; i < all; i++)
        if (s->gains[i] > 0) s->choices[first[most - s->gains[i]]++] = i;
    tm_free(first);
    return 0;
}

/* What other workers of its instance do: whether one has this stage, and whether one has the next or the one before. */
static void look_beside(const struct seating *s, size_t i, uint32_t stage, bool *out_same, bool *out_next)
{
    uint64_t place = tm_coord__place(s->c, s->roster->members[i].id);
    *out_same = *out_next = false;
    if (tm_coord__workers_each(s->c) == 1) return;
    for (int way = -1; way <= 1; way += 2) {
        for (size_t n = s->at[i] + (size_t)way; n < s->roster->member_count; n += (size_t)way) {
            const struct tm_member *mate = &s->roster->members[s->order[n]];
            if (tm_coord__place(s->c, mate->id) != place) break;
            if (mate->spare) continue;
            *out_same = *out_same || mate->stage == stage;
            *out_next = *out_next || mate->stage + 1 == stage || mate->stage == stage + 1;
        }
    }
}

/* Which of these choices, all of one member and of one gain, is the best: a stage that no worker of its instance has
 * (`apart`: nothing else), then one that nobody in its zone has, then one beside those that its instance has. */
static size_t best_choice(const struct seating *s, const size_t *choices, size_t count, bool apart)
{
    uint32_t stages = s->decision->stages;
    size_t best = SIZE_MAX;
    int most = -1;
    for (size_t n = 0; n < count; n++) {
        uint32_t stage = (uint32_t)(choices[n] % stages);
        bool same, next;
        if (s->taken[stage] == s->decision->pipelines) continue;
        look_beside(s, choices[n] / stages, stage, &same, &next);
        bool zone = s->zone_has[s->zone[choices[n] / stages]][stage];
        int score = (same ? 0 : 4) + (zone ? 0 : 2) + (next ? 1 : 0);
        if ((same && apart) || score <= most) continue;
        most = score;
        best = choices[n];
    }
    return best;
}

static void take_seat(struct seating *s, size_t choice)
{
    struct tm_member *member = &s->roster->members[choice / s->decision->stages];
    member->spare = false;
    member->stage = (uint32_t)(choice % s->decision->stages);
    member->pipeline = s->taken[member->stage]++;
    uint32_t zone = s->zone[choice / s->decision->stages];
    if (zone > 0) s->zone_has[zone][member->stage] = true;
}

/* Those who gain alike, one member after the other; first those whose seat keeps replicas apart. */
static void take_alike(struct seating *s, const size_t *choices, size_t count)
{
    uint32_t stages = s->decision->stages;
    for (int apart = tm_coord__workers_each(s->c) > 1; apart >= 0; apart--) {
        for (size_t from = 0, to; from < count; from = to) {
            to = from;
            while (to < count && choices[to] / stages == choices[from] / stages)
                to++;
            if (!s->roster->members[choices[from] / stages].spare) continue;
            size_t choice = best_choice(s, choices + from, to - from, apart != 0);
            if (choice != SIZE_MAX) take_seat(s, choice);
        }
    }
}

/* Stage by stage, replicas are given the pipelines whose stage before is on their own instance, as far as there are
 * some: what they send each other does not leave it. */
static void join_neighbours(struct seating *s, size_t *row, size_t *next, bool *placed)
{
    struct tm_roster *roster = s->roster;
    for (uint32_t stage = 0; stage < s->decision->stages; stage++) {
        for (uint32_t p = 0; p < s->decision->pipelines; p++)
            next[p] = SIZE_MAX;
        for (uint32_t p = 0; stage > 0 && p < s->decision->pipelines; p++) {
            uint64_t place = tm_coord__place(s->c, roster->members[row[p]].id);
            for (int way = -1; way <= 1 && next[p] == SIZE_MAX; way += 2) {
                for (size_t n = s->at[row[p]] + (size_t)way; n < roster->member_count; n += (size_t)way) {
                    size_t mate = s->order[n];
                    if (tm_coord__place(s->c, roster->members[mate].id) != place || next[p] != SIZE_MAX) break;
                    if (roster->members[mate].spare || roster->members[mate].stage != stage || placed[mate]) continue;
                    next[p] = mate;
                    placed[mate] = true;
                }
            }
        }
        uint32_t free = 0;
        for (size_t i = 0; i < roster->member_count; i++) {
            if (roster->members[i].spare || roster->members[i].stage != stage || placed[i]) continue;
            while (next[free] != SIZE_MAX)
                free++;
            next[free] = i;
            placed[i] = true;
        }
        for (uint32_t p = 0; p < s->decision->pipelines; p++) {
            roster->members[next[p]].pipeline = p;
            row[p] = next[p];
        }
    }
}

static int join_pipelines(struct seating *s)
{
    for (uint32_t stage = 0; stage < s->decision->stages; stage++)
        if (s->taken[stage] < s->decision->pipelines) return 0; /* there are too few: the roster is not used */
    size_t *row = tm_calloc(s->decision->pipelines, sizeof *row);
    size_t *next = tm_calloc(s->decision->pipelines, sizeof *next);
    bool *placed = tm_calloc(s->roster->member_count + 1, sizeof *placed);
    bool good = row != NULL && next != NULL && placed != NULL;
    if (good) join_neighbours(s, row, next, placed);
    tm_free(row);
    tm_free(next);
    tm_free(placed);
    return good ? 0 : -(int)TM_ENOMEM;
}

/* Gives seats to those who have most of their layers already, so that little is moved. Among those who gain alike,
 * replicas of a stage go to different instances, and neighbouring stages to one. */
static int take_seats(struct tm_coordinator *c, int64_t now_ms, const struct tm_run_decision *decision,
                      const uint64_t *base, struct tm_roster *roster)
{
    struct seating s = {.c = c, .decision = decision, .roster = roster};
    s.gains = gains_of(c, now_ms, decision, base, roster);
    int rc = s.gains == NULL ? -(int)TM_ENOMEM : order_members(&s);
    if (rc == 0) rc = order_choices(&s);
    for (size_t from = 0, to; rc == 0 && from < s.choice_count; from = to) {
        to = from;
        while (to < s.choice_count && s.gains[s.choices[to]] == s.gains[s.choices[from]])
            to++;
        take_alike(&s, s.choices + from, to - from);
    }
    if (rc == 0 && tm_coord__workers_each(c) > 1) rc = join_pipelines(&s);
    seating_deinit(&s);
    return rc;
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
    tm_roster_order(&roster);
    int rc = take_seats(c, now_ms, decision, base, &roster);
    if (rc == 0) rc = tm_coord__share_out(c, base != NULL && *base == 0, &roster);
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
    tm_coord__assignment_end(c);
    c->ready_count = 0;
    if (c->roster.generation != c->started.generation) { /* some have it, though it never started */
        tm_roster_deinit(&c->before);
        c->before = c->roster;
    } else {
        tm_roster_deinit(&c->roster);
    }
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

void tm_coord__assignment_end(struct tm_coordinator *c)
{
    if (c->assignment.open) tm_arena_deinit(&c->assignment.arena);
    tm_free(c->assignment.sources);
    tm_free(c->assignment.found);
    tm_free(c->assignment.looked);
    c->assignment = (struct assignment){.open = false};
}

/* The layout for one that has the layout of a generation: how it differs, or all of it. NULL: no memory. */
static Tmw__Layout *layout_for(struct tm_coordinator *c, uint64_t has, uint64_t *out_since)
{
    struct assignment *made = &c->assignment;
    const struct tm_roster *from[LAYOUT_FORMS] = {NULL, &c->started, &c->before};
    int form = LAYOUT_WHOLE;
    for (int i = LAYOUT_SINCE_STARTED; i < LAYOUT_FORMS; i++)
        if (has != 0 && from[i]->generation == has && from[i]->ordered) form = i;
    if (!made->open) tm_arena_init(&made->arena, 64 << 20);
    made->open = true;
    *out_since = form == LAYOUT_WHOLE ? 0 : has;
    if (made->layouts[form] == NULL)
        made->layouts[form] = form == LAYOUT_WHOLE ? tm_roster_write(&c->roster, &made->arena)
                                                   : tm_roster_write_change(from[form], &c->roster, &made->arena);
    return made->layouts[form];
}

/* The same for all who lack the layer. NULL: no memory. */
static const struct layer_sources *sources_of(struct tm_coordinator *c, uint32_t layer, bool *out_found)
{
    struct assignment *made = &c->assignment;
    size_t layers = c->options.layers;
    if (made->sources == NULL) made->sources = tm_calloc(layers, sizeof *made->sources);
    if (made->found == NULL) made->found = tm_calloc(layers, sizeof *made->found);
    if (made->looked == NULL) made->looked = tm_calloc(layers, sizeof *made->looked);
    if (made->sources == NULL || made->found == NULL || made->looked == NULL) return NULL;
    if (!made->looked[layer]) made->found[layer] = tm_coord__sources(c, layer, c->base, &made->sources[layer]);
    made->looked[layer] = true;
    *out_found = made->found[layer];
    return &made->sources[layer];
}

/* How flags of steps go round: each to each among few, in a tree among many. */
static uint32_t vote_fan(const struct tm_coordinator *c)
{
    enum { DIRECT_MAX = 16, FAN = 8 };
    size_t direct_max = c->options.votes_direct_max > 0 ? c->options.votes_direct_max : DIRECT_MAX;
    uint32_t fan = c->options.vote_fan > 0 ? c->options.vote_fan : FAN;
    return (size_t)c->roster.pipelines * c->roster.stages <= direct_max ? 0 : fan;
}

void tm_coord__send_assign(struct tm_coordinator *c, const struct tm_member *member, struct tm_outbox *out)
{
    const struct known *k = tm_coord__member(c, member);
    struct tm_arena arena;
    Tmw__Assign body = TMW__ASSIGN__INIT;
    if (k == NULL) return;
    tm_arena_init(&arena, 64 << 20);
    uint32_t first = member->spare ? 0 : c->roster.stage_first[member->stage];
    uint32_t last = member->spare ? 0 : c->roster.stage_first[member->stage + 1];
    Tmw__Fetch *fetches = tm_arena_alloc(&arena, (last - first + 1) * sizeof *fetches);
    uint64_t *lists = tm_arena_alloc(&arena, (size_t)(last - first + 1) * SOURCES_MAX * sizeof *lists);
    body.fetches = tm_arena_alloc(&arena, (last - first + 1) * sizeof(Tmw__Fetch *));
    body.layout = layout_for(c, k->report_assigned, &body.since);
    bool good = fetches != NULL && lists != NULL && body.fetches != NULL && body.layout != NULL;
    for (uint32_t l = first; good && l < last; l++) {
        bool found = false;
        const struct layer_sources *sources = sources_of(c, l, &found);
        good = sources != NULL;
        if (!good || (c->base > 0 && found && has_it(k, l, c->base, sources))) continue;
        size_t at = body.n_fetches++;
        plan_fetch(c, member, l, sources, &fetches[at], lists + at * SOURCES_MAX);
        body.fetches[at] = &fetches[at];
    }
    if (good) {
        tm_message message = tm_coord__head(c, &k->peer);
        body.generation = c->generation;
        body.base_step = c->base;
        body.vote_fan = vote_fan(c);
        TM_BODY(message, ASSIGN, assign, &body);
        tm_outbox_send(out, &k->peer, &message);
    }
    tm_arena_deinit(&arena);
}
