#include "wire/roster.h"

#include "base/alloc.h"

#include <assert.h>
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

static int check_seats(const struct tm_roster *roster, struct tm_error *e)
{
    assert(roster->members != NULL || roster->member_count == 0);
    size_t seated = 0;
    for (size_t i = 0; i < roster->member_count; i++) {
        const struct tm_member *member = &roster->members[i];
        if (member->id == 0) return tm_error_set(e, TM_EINPUT, "layout: member %zu has no number", i);
        for (size_t k = 0; k < i; k++) {
            const struct tm_member *other = &roster->members[k];
            if (other->id == member->id)
                return tm_error_set(e, TM_EINPUT, "layout: worker %llu twice", (unsigned long long)member->id);
            if (!member->spare && !other->spare && other->pipeline == member->pipeline && other->stage == member->stage)
                return tm_error_set(e, TM_EINPUT, "layout: two workers at stage %u of pipeline %u", member->stage,
                                    member->pipeline);
        }
        if (member->spare) continue;
        if (member->remote)
            return tm_error_set(e, TM_EINPUT, "layout: remote %llu has a seat", (unsigned long long)member->id);
        if (member->pipeline >= roster->pipelines || member->stage >= roster->stages)
            return tm_error_set(e, TM_EINPUT, "layout: worker %llu outside the layout", (unsigned long long)member->id);
        seated++;
    }
    if (seated != (size_t)roster->pipelines * roster->stages)
        return tm_error_set(e, TM_EINPUT, "layout: %zu of %zu seats taken", seated,
                            (size_t)roster->pipelines * roster->stages);
    return 0;
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
        layout->pipelines > TM_MEMBERS_MAX || layout->n_micro_batches != layout->pipelines ||
        layout->n_members > TM_MEMBERS_MAX)
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
    memcpy(out->micro_batches, layout->micro_batches, layout->n_micro_batches * sizeof *layout->micro_batches);
    return 0;
}

static int read_members(const Tmw__Layout *layout, struct tm_roster *out, struct tm_error *e)
{
    assert(layout->n_members <= TM_MEMBERS_MAX && out->members == NULL);
    out->members = tm_calloc(layout->n_members + 1, sizeof *out->members);
    if (out->members == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < layout->n_members; i++) {
        const Tmw__Member *from = layout->members[i];
        struct tm_member *to = &out->members[i];
        size_t length = strlen(from->address);
        size_t endpoint_length = strlen(from->endpoint);
        if (length >= sizeof to->address || endpoint_length >= sizeof to->endpoint)
            return tm_error_set(e, TM_EINPUT, "layout: addresses of %zu and %zu bytes", length, endpoint_length);
        *to = (struct tm_member){.id = from->id,
                                 .incarnation = from->incarnation,
                                 .spare = from->spare,
                                 .remote = from->remote,
                                 .pipeline = from->pipeline,
                                 .stage = from->stage};
        memcpy(to->address, from->address, length + 1);
        memcpy(to->endpoint, from->endpoint, endpoint_length + 1);
    }
    out->member_count = layout->n_members;
    return 0;
}

int tm_roster_read(uint64_t generation, const Tmw__Layout *layout, uint32_t layers, uint32_t micro_batches,
                   struct tm_roster *out, struct tm_error *e)
{
    if (layout == NULL) return tm_error_set(e, TM_EINPUT, "no layout");
    struct tm_roster read = {.generation = generation};
    int rc = read_stages(layout, &read, e);
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
        struct tm_member *from = &roster->members[i];
        tmw__member__init(&members[i]);
        members[i].id = from->id;
        members[i].incarnation = from->incarnation;
        members[i].address = from->address;
        members[i].endpoint = from->endpoint;
        members[i].spare = from->spare;
        members[i].remote = from->remote;
        members[i].pipeline = from->pipeline;
        members[i].stage = from->stage;
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

const struct tm_member *tm_roster_find(const struct tm_roster *roster, uint64_t id)
{
    assert(roster->members != NULL || roster->member_count == 0);
    for (size_t i = 0; i < roster->member_count; i++)
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
