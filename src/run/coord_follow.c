/* Before a planned change: whoever will get layers in it follows them while their members train on (worker_follow.c).
 * The coordinator foresees the seats, tells each follower what to follow from whom, and lets the drain begin when all
 * are nearly level. When the members stand still, it waits a moment for the last step to reach the followers. It is no
 * condition: after the limit the change goes on, and what is missing is fetched. */
#include "run/coord_internal.h"

#include "base/alloc.h"

enum { NEAR_STEPS = 2, LAST_STEP_MS = 200, LAST_STEP_MAX_MS = 2000 };

void tm_coord__follow_forget(struct tm_coordinator *c)
{
    uint64_t number = c->follow.number;
    tm_roster_deinit(&c->follow.roster);
    c->follow = (struct following){.number = number};
}

/* ---- what each is to follow ---- */

/* The layers of its stage to come that it does not train now: [first, last), but for [held_first, held_last). */
struct wanted_layers {
    uint32_t first, last, held_first, held_last;
};

static struct wanted_layers wanted_of(const struct tm_coordinator *c, const struct tm_member *to_be)
{
    struct wanted_layers wanted = {0};
    const struct tm_member *now = tm_roster_find(&c->roster, to_be->id);
    if (to_be->spare) return wanted;
    wanted.first = c->follow.roster.stage_first[to_be->stage];
    wanted.last = c->follow.roster.stage_first[to_be->stage + 1];
    if (now == NULL || now->spare || now->incarnation != to_be->incarnation) return wanted;
    wanted.held_first = c->roster.stage_first[now->stage];
    wanted.held_last = c->roster.stage_first[now->stage + 1];
    return wanted;
}

static bool lacks(const struct wanted_layers *wanted, uint32_t layer)
{
    return layer >= wanted->first && layer < wanted->last &&
           !(layer >= wanted->held_first && layer < wanted->held_last);
}

static bool is_follower(struct tm_coordinator *c, const struct tm_member *to_be)
{
    const struct known *k = tm_coord__member(c, to_be);
    struct wanted_layers wanted = wanted_of(c, to_be);
    if (k == NULL || !k->registered || !k->follows) return false;
    for (uint32_t l = wanted.first; l < wanted.last; l++)
        if (lacks(&wanted, l)) return true;
    return false;
}

/* Another member of the layer's stage for each follower and layer, so that all of them are read at once. */
static const struct tm_member *source_of(struct tm_coordinator *c, uint32_t layer, uint64_t follower)
{
    uint32_t stage = tm_roster_stage_of(&c->roster, layer);
    for (uint32_t p = 0; p < c->roster.pipelines; p++) {
        const struct tm_member *member =
            tm_roster_at(&c->roster, (uint32_t)((layer + follower + p) % c->roster.pipelines), stage);
        const struct known *k = member == NULL ? NULL : tm_coord__member(c, member);
        if (k != NULL && k->registered && k->follows && member->id != follower) return member;
    }
    return NULL;
}

/* Those whom the others are to give layers. */
static size_t list_followers(struct tm_coordinator *c, struct tm_arena *arena, Tmw__Member ***out)
{
    const struct tm_roster *foreseen = &c->follow.roster;
    Tmw__Layout *layout = tm_roster_write(foreseen, arena);
    size_t count = 0;
    if (layout == NULL) return 0;
    *out = layout->members;
    for (size_t i = 0; i < foreseen->member_count; i++)
        if (is_follower(c, &foreseen->members[i])) (*out)[count++] = layout->members[i];
    return count;
}

static void send_follow(struct tm_coordinator *c, const struct tm_member *to_be, struct tm_outbox *out)
{
    struct known *k = tm_coord__member(c, to_be);
    struct wanted_layers wanted = wanted_of(c, to_be);
    Tmw__Follow body = TMW__FOLLOW__INIT;
    tm_message message = tm_coord__head(c, &k->peer);
    struct tm_arena arena;
    tm_arena_init(&arena, 16 << 20);
    size_t most = wanted.last - wanted.first + 1;
    Tmw__FollowTask *tasks = tm_arena_alloc(&arena, most * sizeof *tasks);
    body.tasks = tm_arena_alloc(&arena, most * sizeof(Tmw__FollowTask *));
    Tmw__Layout *layout = tm_roster_write(&c->roster, &arena);
    if (tasks != NULL && body.tasks != NULL && layout != NULL) {
        for (uint32_t l = wanted.first; l < wanted.last; l++) {
            const struct tm_member *source = lacks(&wanted, l) ? source_of(c, l, to_be->id) : NULL;
            if (source == NULL) continue;
            tmw__follow_task__init(&tasks[body.n_tasks]);
            tasks[body.n_tasks].layer = l;
            tasks[body.n_tasks].source = source->id;
            body.tasks[body.n_tasks] = &tasks[body.n_tasks];
            body.n_tasks++;
        }
        body.generation = c->generation;
        body.number = c->follow.number;
        body.peers = layout->members;
        body.n_peers = layout->n_members;
        body.n_followers = list_followers(c, &arena, &body.followers);
        TM_BODY(message, FOLLOW, follow, &body);
        tm_outbox_send(out, &k->peer, &message);
    }
    tm_arena_deinit(&arena);
}

/* ---- how far they are ---- */

static bool level(struct tm_coordinator *c, uint64_t step, uint64_t behind)
{
    for (size_t i = 0; i < c->follow.roster.member_count; i++) {
        const struct tm_member *to_be = &c->follow.roster.members[i];
        if (!is_follower(c, to_be)) continue;
        const struct known *k = tm_coord__member(c, to_be);
        if (k->follow_number != c->follow.number || k->follow_step == 0 || k->follow_step + behind < step) return false;
    }
    return true;
}

static void tell(struct tm_coordinator *c, int64_t now_ms, const struct tm_member *to_be, struct tm_outbox *out)
{
    struct known *k = tm_coord__member(c, to_be);
    if (k == NULL || !k->registered || !k->follows || k->follow_number == c->follow.number) return;
    if (k->follow_told == c->follow.number && now_ms - k->follow_told_ms < c->options.resend_ms) return;
    k->follow_told = c->follow.number;
    k->follow_told_ms = now_ms;
    send_follow(c, to_be, out);
}

/* First those who will be asked: they answer nobody whom they have not been told of. */
static void tell_all(struct tm_coordinator *c, int64_t now_ms, struct tm_outbox *out)
{
    const struct tm_roster *foreseen = &c->follow.roster;
    for (size_t i = 0; i < c->roster.member_count; i++) {
        struct tm_member source = c->roster.members[i];
        const struct tm_member *to_be = tm_roster_find(foreseen, source.id);
        if (source.spare || (to_be != NULL && is_follower(c, to_be))) continue;
        source.spare = true; /* follows nothing itself */
        tell(c, now_ms, &source, out);
    }
    for (size_t i = 0; i < foreseen->member_count; i++)
        if (is_follower(c, &foreseen->members[i])) tell(c, now_ms, &foreseen->members[i], out);
}

static bool begin(struct tm_coordinator *c, int64_t now_ms, const struct tm_run_decision *decision)
{
    tm_coord__follow_forget(c);
    if (tm_coord__foresee(c, now_ms, decision, &c->follow.roster) != 0) return false;
    bool any = false;
    for (size_t i = 0; i < c->follow.roster.member_count; i++)
        any = any || is_follower(c, &c->follow.roster.members[i]);
    if (!any) {
        tm_coord__follow_forget(c);
        return false;
    }
    if (c->follow.number < c->follow_highest) c->follow.number = c->follow_highest;
    c->follow.number++;
    c->follow.active = true;
    c->follow.since_ms = now_ms;
    return true;
}

bool tm_coord__followed(struct tm_coordinator *c, int64_t now_ms, const struct tm_run_decision *decision,
                        int64_t limit_ms, struct tm_outbox *out)
{
    if (limit_ms <= 0 || c->applied == 0) return true;
    const struct tm_roster *foreseen = &c->follow.roster;
    bool same = c->follow.active && c->changed_ms <= c->follow.since_ms && foreseen->pipelines == decision->pipelines &&
                foreseen->stages == decision->stages;
    for (uint32_t s = 0; same && s <= decision->stages; s++)
        same = foreseen->stage_first[s] == decision->stage_first[s];
    if (!same && !begin(c, now_ms, decision)) return true;
    tell_all(c, now_ms, out);
    return level(c, c->applied, NEAR_STEPS) || now_ms - c->follow.since_ms > limit_ms;
}

/* All members stand at the drain's step. */
bool tm_coord__follow_last(struct tm_coordinator *c, int64_t now_ms)
{
    if (!c->follow.active || level(c, c->drain_step, 0)) return true;
    if (c->follow.drained_ms == 0) c->follow.drained_ms = now_ms;
    int64_t limit_ms = 2 * (int64_t)c->told_step_ms;
    if (limit_ms < LAST_STEP_MS) limit_ms = LAST_STEP_MS;
    if (limit_ms > LAST_STEP_MAX_MS) limit_ms = LAST_STEP_MAX_MS;
    return now_ms - c->follow.drained_ms > limit_ms;
}

/* No change is wanted any more. */
void tm_coord__follow_end(struct tm_coordinator *c, struct tm_outbox *out)
{
    if (!c->follow.active) return;
    c->follow.number++;
    for (size_t i = 0; i < c->follow.roster.member_count; i++) {
        struct tm_member nobody = c->follow.roster.members[i];
        if (!is_follower(c, &nobody)) continue;
        nobody.spare = true; /* nothing is to be followed */
        send_follow(c, &nobody, out);
    }
    tm_coord__follow_forget(c);
}
