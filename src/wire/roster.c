#include "wire/roster.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void tm_roster_deinit(struct tm_roster *roster)
{
    tm_free(roster->members);
    roster->members = NULL;
    roster->member_count = 0;
    roster->generation = 0;
    roster->pipelines = 0;
    roster->stages = 0;
}

int tm_roster_copy(struct tm_roster *to, const struct tm_roster *from, struct tm_error *e)
{
    assert(to != from && from->member_count <= TM_MEMBERS_MAX);
    assert(from->stages <= TM_STAGES_MAX && from->pipelines <= TM_MEMBERS_MAX);
    struct tm_member *members = tm_calloc(from->member_count + 1, sizeof *members);
    if (members == NULL) return tm_error_nomem(e);
    memcpy(members, from->members, from->member_count * sizeof *members);
    tm_free(to->members);
    *to = *from;
    to->members = members;
    return 0;
}

/* Has every member a number of its own? */
static int check_numbers(const struct tm_roster *roster, struct tm_error *e)
{
    for (size_t i = 0; i < roster->member_count; i++) {
        uint64_t id = roster->members[i].id;
        if (id == 0) return tm_error_set(e, TM_EINPUT, "layout: member %zu has no number", i);
        for (size_t k = roster->ordered && i > 0 ? i - 1 : 0; k < i; k++) /* of ordered ones, the one before */
            if (roster->members[k].id == id)
                return tm_error_set(e, TM_EINPUT, "layout: worker %llu twice", (unsigned long long)id);
    }
    return 0;
}

static int take_seat(const struct tm_roster *roster, const struct tm_member *member, bool *taken, struct tm_error *e)
{
    if (member->remote)
        return tm_error_set(e, TM_EINPUT, "layout: remote %llu has a seat", (unsigned long long)member->id);
    if (member->pipeline >= roster->pipelines || member->stage >= roster->stages)
        return tm_error_set(e, TM_EINPUT, "layout: worker %llu outside the layout", (unsigned long long)member->id);
    bool *seat = &taken[(size_t)member->pipeline * roster->stages + member->stage];
    if (*seat)
        return tm_error_set(e, TM_EINPUT, "layout: two workers at stage %u of pipeline %u", member->stage,
                            member->pipeline);
    *seat = true;
    return 0;
}

static int check_seats(const struct tm_roster *roster, struct tm_error *e)
{
    assert(roster->members != NULL || roster->member_count == 0);
    bool taken[TM_MEMBERS_MAX] = {false};
    size_t seats = (size_t)roster->pipelines * roster->stages;
    size_t seated = tm_roster_seated(roster);
    int rc = check_numbers(roster, e);
    if (rc == 0 && (seated != seats || seats > TM_MEMBERS_MAX))
        rc = tm_error_set(e, TM_EINPUT, "layout: %zu of %zu seats taken", seated, seats);
    for (size_t i = 0; rc == 0 && i < roster->member_count; i++)
        if (!roster->members[i].spare) rc = take_seat(roster, &roster->members[i], taken, e);
    return rc;
}

int tm_roster_check(const struct tm_roster *roster, uint32_t layers, uint32_t micro_batches, struct tm_error *e)
{
    if (roster->pipelines == 0 || roster->pipelines > TM_MEMBERS_MAX || roster->stages == 0 ||
        roster->stages > TM_STAGES_MAX)
        return tm_error_set(e, TM_EINPUT, "layout of %u pipelines and %u stages", roster->pipelines, roster->stages);
    if (roster->stage_first[0] != 0 || roster->stage_first[roster->stages] != layers)
        return tm_error_set(e, TM_EINPUT, "layout: stages do not hold layers 0 to %u", layers);
    for (uint32_t s = 0; s < roster->stages; s++)
        if (roster->stage_first[s] >= roster->stage_first[s + 1])
            return tm_error_set(e, TM_EINPUT, "layout: stage %u holds no layer", s);
    uint64_t sum = 0;
    for (uint32_t p = 0; p < roster->pipelines; p++)
        sum += roster->micro_batches[p];
    if (sum != micro_batches)
        return tm_error_set(e, TM_EINPUT, "layout: gives out %llu micro-batches of %u", (unsigned long long)sum,
                            micro_batches);
    return check_seats(roster, e);
}

static int read_stages(const Tmw__Layout *layout, struct tm_roster *out, struct tm_error *e)
{
    uint32_t next = 0;
    if (layout->n_stages == 0 || layout->n_stages > TM_STAGES_MAX || layout->pipelines == 0 ||
        layout->pipelines > TM_MEMBERS_MAX || layout->n_members > TM_MEMBERS_MAX)
        return tm_error_set(e, TM_EINPUT, "layout: %zu stages, %u pipelines, %zu members", layout->n_stages,
                            layout->pipelines, layout->n_members);
    for (size_t s = 0; s < layout->n_stages; s++) {
        const Tmw__Stage *stage = layout->stages[s];
        if (stage->first_layer != next || stage->layer_count > TM_LAYERS_MAX)
            return tm_error_set(e, TM_EINPUT, "layout: stage %zu does not follow the one before", s);
        out->stage_first[s] = next;
        next += stage->layer_count;
    }
    out->stages = (uint32_t)layout->n_stages;
    out->stage_first[out->stages] = next;
    out->pipelines = layout->pipelines;
    return 0;
}

static int read_shares(const Tmw__Layout *layout, struct tm_roster *out, struct tm_error *e)
{
    if (layout->n_micro_batches != layout->pipelines)
        return tm_error_set(e, TM_EINPUT, "layout: micro-batches of %zu pipelines, but there are %u",
                            layout->n_micro_batches, layout->pipelines);
    memcpy(out->micro_batches, layout->micro_batches, layout->n_micro_batches * sizeof *layout->micro_batches);
    return 0;
}

static bool is_ordered(const struct tm_roster *roster)
{
    for (size_t i = 1; i < roster->member_count; i++)
        if (roster->members[i - 1].id >= roster->members[i].id) return false;
    return true;
}

static int read_member(const Tmw__Member *from, struct tm_member *to, struct tm_error *e)
{
    size_t length = strlen(from->address);
    size_t endpoint_length = strlen(from->endpoint);
    if (length >= sizeof to->address || endpoint_length >= sizeof to->endpoint)
        return tm_error_set(e, TM_EINPUT, "layout: addresses of %zu and %zu bytes", length, endpoint_length);
    *to = (struct tm_member){.id = from->id,
                             .incarnation = from->incarnation,
                             .spare = from->spare,
                             .remote = from->remote,
                             .pipeline = from->pipeline,
                             .stage = from->stage,
                             .slowness = from->slowness};
    memcpy(to->address, from->address, length + 1);
    memcpy(to->endpoint, from->endpoint, endpoint_length + 1);
    return 0;
}

static int read_members(const Tmw__Layout *layout, struct tm_roster *out, struct tm_error *e)
{
    assert(layout->n_members <= TM_MEMBERS_MAX && out->members == NULL);
    out->members = tm_calloc(layout->n_members + 1, sizeof *out->members);
    if (out->members == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < layout->n_members; i++) {
        int rc = read_member(layout->members[i], &out->members[i], e);
        if (rc != 0) return rc;
    }
    out->member_count = layout->n_members;
    out->ordered = is_ordered(out);
    return 0;
}

int tm_roster_read(uint64_t generation, const Tmw__Layout *layout, uint32_t layers, uint32_t micro_batches,
                   struct tm_roster *out, struct tm_error *e)
{
    if (layout == NULL) return tm_error_set(e, TM_EINPUT, "no layout");
    struct tm_roster read = {.generation = generation};
    int rc = read_stages(layout, &read, e);
    if (rc == 0) rc = read_shares(layout, &read, e);
    if (rc == 0) rc = read_members(layout, &read, e);
    if (rc == 0) rc = tm_roster_check(&read, layers, micro_batches, e);
    if (rc != 0) {
        tm_roster_deinit(&read);
        return rc;
    }
    *out = read;
    return 0;
}

static bool write_stages(const struct tm_roster *roster, struct tm_arena *arena, Tmw__Layout *layout)
{
    layout->stages = tm_arena_alloc(arena, roster->stages * sizeof *layout->stages);
    Tmw__Stage *stages = tm_arena_alloc(arena, roster->stages * sizeof *stages);
    if (layout->stages == NULL || stages == NULL) return false;
    layout->n_stages = roster->stages;
    for (uint32_t s = 0; s < roster->stages; s++) {
        tmw__stage__init(&stages[s]);
        stages[s].first_layer = roster->stage_first[s];
        stages[s].layer_count = roster->stage_first[s + 1] - roster->stage_first[s];
        layout->stages[s] = &stages[s];
    }
    return true;
}

static void write_member(struct tm_member *from, Tmw__Member *to)
{
    tmw__member__init(to);
    to->id = from->id;
    to->incarnation = from->incarnation;
    to->address = from->address;
    to->endpoint = from->endpoint;
    to->spare = from->spare;
    to->remote = from->remote;
    to->pipeline = from->pipeline;
    to->stage = from->stage;
    to->slowness = from->slowness;
}

Tmw__Layout *tm_roster_write(const struct tm_roster *roster, struct tm_arena *arena)
{
    assert(roster->stages <= TM_STAGES_MAX && roster->pipelines <= TM_MEMBERS_MAX);
    assert(roster->members != NULL || roster->member_count == 0);
    Tmw__Layout *layout = tm_arena_alloc(arena, sizeof *layout);
    Tmw__Member *members = tm_arena_alloc(arena, (roster->member_count + 1) * sizeof *members);
    Tmw__Member **list = tm_arena_alloc(arena, (roster->member_count + 1) * sizeof(Tmw__Member *));
    uint32_t *micro_batches = tm_arena_alloc(arena, (roster->pipelines + 1) * sizeof *micro_batches);
    if (layout == NULL || members == NULL || list == NULL || micro_batches == NULL) return NULL;
    tmw__layout__init(layout);
    if (!write_stages(roster, arena, layout)) return NULL;
    for (size_t i = 0; i < roster->member_count; i++) {
        write_member(&roster->members[i], &members[i]);
        list[i] = &members[i];
    }
    memcpy(micro_batches, roster->micro_batches, roster->pipelines * sizeof *micro_batches);
    layout->pipelines = roster->pipelines;
    layout->members = list;
    layout->n_members = roster->member_count;
    layout->micro_batches = micro_batches;
    layout->n_micro_batches = roster->pipelines;
    return layout;
}

/* ---- changes ---- */

static int by_member(const void *a, const void *b)
{
    const struct tm_member *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

void tm_roster_order(struct tm_roster *roster)
{
    if (roster->member_count > 0) qsort(roster->members, roster->member_count, sizeof *roster->members, by_member);
    roster->ordered = true;
}

static bool same_member(const struct tm_member *a, const struct tm_member *b)
{
    return a->id == b->id && a->incarnation == b->incarnation && a->spare == b->spare && a->remote == b->remote &&
           a->pipeline == b->pipeline && a->stage == b->stage && a->slowness == b->slowness &&
           strcmp(a->address, b->address) == 0 && strcmp(a->endpoint, b->endpoint) == 0;
}

static bool same_stages(const struct tm_roster *a, const struct tm_roster *b)
{
    return a->stages == b->stages &&
           memcmp(a->stage_first, b->stage_first, (a->stages + 1) * sizeof *a->stage_first) == 0;
}

/* Both lists are ordered: one walk through them. */
static void write_members_changed(const struct tm_roster *from, const struct tm_roster *roster, Tmw__Member *members,
                                  Tmw__Layout *layout)
{
    size_t old = 0;
    for (size_t i = 0; i <= roster->member_count; i++) {
        uint64_t id = i < roster->member_count ? roster->members[i].id : UINT64_MAX;
        for (; old < from->member_count && from->members[old].id < id; old++)
            layout->gone[layout->n_gone++] = from->members[old].id;
        if (i == roster->member_count) break;
        bool was = old < from->member_count && from->members[old].id == id;
        bool same = was && same_member(&from->members[old], &roster->members[i]);
        old += was;
        if (same) continue;
        write_member(&roster->members[i], &members[layout->n_members]);
        layout->members[layout->n_members] = &members[layout->n_members];
        layout->n_members++;
    }
}

static bool write_shares_changed(const struct tm_roster *from, const struct tm_roster *roster, struct tm_arena *arena,
                                 Tmw__Layout *layout)
{
    layout->shares = tm_arena_alloc(arena, (roster->pipelines + 1) * sizeof(Tmw__Share *));
    for (uint32_t p = 0; layout->shares != NULL && p < roster->pipelines; p++) {
        if (p < from->pipelines && from->micro_batches[p] == roster->micro_batches[p]) continue;
        Tmw__Share *share = tm_arena_alloc(arena, sizeof *share);
        if (share == NULL) return false;
        tmw__share__init(share);
        share->pipeline = p;
        share->micro_batches = roster->micro_batches[p];
        layout->shares[layout->n_shares++] = share;
    }
    return layout->shares != NULL;
}

Tmw__Layout *tm_roster_write_change(const struct tm_roster *from, const struct tm_roster *roster,
                                    struct tm_arena *arena)
{
    assert(from->ordered && roster->ordered);
    Tmw__Layout *layout = tm_arena_alloc(arena, sizeof *layout);
    Tmw__Member *members = tm_arena_alloc(arena, (roster->member_count + 1) * sizeof *members);
    if (layout == NULL || members == NULL) return NULL;
    tmw__layout__init(layout);
    layout->pipelines = roster->pipelines;
    layout->members = tm_arena_alloc(arena, (roster->member_count + 1) * sizeof(Tmw__Member *));
    layout->gone = tm_arena_alloc(arena, (from->member_count + 1) * sizeof *layout->gone);
    if (layout->members == NULL || layout->gone == NULL) return NULL;
    if (!same_stages(from, roster) && !write_stages(roster, arena, layout)) return NULL;
    if (!write_shares_changed(from, roster, arena, layout)) return NULL;
    write_members_changed(from, roster, members, layout);
    return layout;
}

static int change_members(const struct tm_roster *from, const Tmw__Layout *change, struct tm_roster *out,
                          struct tm_error *e)
{
    size_t most = from->member_count + change->n_members;
    if (change->n_members > TM_MEMBERS_MAX || change->n_gone > TM_MEMBERS_MAX)
        return tm_error_set(e, TM_EINPUT, "layout: %zu members change, %zu are gone", change->n_members,
                            change->n_gone);
    out->members = tm_calloc(most + 1, sizeof *out->members);
    if (out->members == NULL) return tm_error_nomem(e);
    size_t next = 0, gone = 0; /* as they are written, both lists are ordered, too */
    for (size_t i = 0; i <= from->member_count; i++) {
        uint64_t id = i < from->member_count ? from->members[i].id : UINT64_MAX;
        bool replaced = false;
        for (; next < change->n_members && change->members[next]->id <= id; next++) {
            replaced = change->members[next]->id == id;
            int rc = read_member(change->members[next], &out->members[out->member_count++], e);
            if (rc != 0) return rc;
        }
        if (i == from->member_count) break;
        while (gone < change->n_gone && change->gone[gone] < id)
            gone++;
        bool left = gone < change->n_gone && change->gone[gone] == id;
        if (!replaced && !left) out->members[out->member_count++] = from->members[i];
    }
    out->ordered = is_ordered(out);
    if (next < change->n_members || !out->ordered || out->member_count > TM_MEMBERS_MAX)
        return tm_error_set(e, TM_EINPUT, "layout: a change to %zu members that is out of order", out->member_count);
    return 0;
}

int tm_roster_read_change(const struct tm_roster *from, uint64_t generation, const Tmw__Layout *change, uint32_t layers,
                          uint32_t micro_batches, struct tm_roster *out, struct tm_error *e)
{
    if (change == NULL || !from->ordered || change->pipelines == 0 || change->pipelines > TM_MEMBERS_MAX)
        return tm_error_set(e, TM_EINPUT, "no change of a layout");
    struct tm_roster read = *from;
    read.members = NULL;
    read.member_count = 0;
    read.generation = generation;
    int rc = change->n_stages > 0 ? read_stages(change, &read, e) : 0;
    read.pipelines = change->pipelines;
    for (size_t i = 0; rc == 0 && i < change->n_shares; i++) {
        if (change->shares[i]->pipeline >= change->pipelines)
            rc = tm_error_set(e, TM_EINPUT, "layout: a share of pipeline %u", change->shares[i]->pipeline);
        else
            read.micro_batches[change->shares[i]->pipeline] = change->shares[i]->micro_batches;
    }
    if (rc == 0) rc = change_members(from, change, &read, e);
    if (rc == 0) rc = tm_roster_check(&read, layers, micro_batches, e);
    if (rc != 0) {
        tm_roster_deinit(&read);
        return rc;
    }
    *out = read;
    return 0;
}

const struct tm_member *tm_roster_find(const struct tm_roster *roster, uint64_t id)
{
    assert(roster->members != NULL || roster->member_count == 0);
    size_t low = 0;
    size_t high = roster->ordered ? roster->member_count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (roster->members[middle].id == id) return &roster->members[middle];
        if (roster->members[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t i = 0; !roster->ordered && i < roster->member_count; i++)
        if (roster->members[i].id == id) return &roster->members[i];
    return NULL;
}

const struct tm_member *tm_roster_at(const struct tm_roster *roster, uint32_t pipeline, uint32_t stage)
{
    assert(pipeline < roster->pipelines && stage < roster->stages);
    for (size_t i = 0; i < roster->member_count; i++) {
        const struct tm_member *member = &roster->members[i];
        if (!member->spare && member->pipeline == pipeline && member->stage == stage) return member;
    }
    return NULL;
}

uint32_t tm_roster_stage_of(const struct tm_roster *roster, uint32_t layer)
{
    assert(roster->stages > 0 && roster->stages <= TM_STAGES_MAX);
    assert(layer < roster->stage_first[roster->stages]);
    uint32_t stage = 0;
    while (stage + 1 < roster->stages && layer >= roster->stage_first[stage + 1])
        stage++;
    return stage;
}

size_t tm_roster_seated(const struct tm_roster *roster)
{
    assert(roster->members != NULL || roster->member_count == 0);
    size_t count = 0;
    for (size_t i = 0; i < roster->member_count; i++)
        count += !roster->members[i].spare;
    return count;
}
