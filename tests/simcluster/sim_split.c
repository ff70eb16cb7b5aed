/* Two coordinators of one job. The record belongs to one: its lock refuses a second one on the same machine, and a disk
 * that was moved to another machine can be written only there. So the old one is back with all that it knew, hears who
 * still speaks to it, and may say what it likes until it has to write something down: that fails, and it ends. What it
 * said before must do no harm. */
#include "sim.h"

#include <assert.h>

enum { WRITE_BY_MS = 1000 /* what need not be synced is written once a second */, START_MS_MAX = 10000 };

static void old_tick(struct sim *sim, struct event *event);

void split_end(struct sim *sim)
{
    struct outlived *old = &sim->outlived;
    if (old->coordinator == NULL) return;
    sim_trace(sim, "the coordinator before ends");
    tm_coordinator_destroy(old->coordinator);
    tm_set_manifests_deinit(&old->manifests);
    *old = (struct outlived){.incarnation = 0};
}

/* The one that runs becomes the old one, and another starts on its record. */
static bool begin(struct sim *sim, int64_t back_in_ms, bool writes)
{
    struct outlived *old = &sim->outlived;
    if (sim->coordinator == NULL || old->coordinator != NULL || sim->finished || sim->stopped) return false;
    if (!tm_action_queue_open(&sim->queue)) return false; /* what it waits for would never come */
    /* One that was told to stop ends all who train, with a full disk even before it is written down; whoever told it so
     * would start them again. */
    if (tm_coordinator_look(sim->coordinator).state == TM_JOB_STOPPING) return false;
    sim_trace(sim, "another coordinator takes over; this one is back in %lld ms", (long long)back_in_ms);
    *old = (struct outlived){.coordinator = sim->coordinator,
                             .manifests = sim->manifests,
                             .incarnation = sim->coordinator_options.incarnation,
                             .policy = sim->policy,
                             .paused_ms = sim->now_ms + back_in_ms,
                             .writes = writes};
    sim->coordinator = NULL;
    sim->coordinator_paused_ms = 0;
    sim->crash_after_actions = -1;
    if (!writes) sim_record_left(sim, false);
    sim_coordinator_start_in(sim, 100 + (int64_t)tm_random_below(&sim->odd, START_MS_MAX));
    sim_schedule(sim, old->paused_ms, old_tick, old->incarnation, 0, 0, 0, NULL, 0);
    return true;
}

void split_second(struct sim *sim)
{
    if (sim->coordinator == NULL || !fault_comes(sim, FAULT_COORDINATOR_SECOND)) return;
    if (TM_PLANTED(record_shared)) (void)begin(sim, 0, true); /* else the lock refuses it, and it ends */
}

void split_move(struct sim *sim, int64_t back_in_ms)
{
    if (fault_may(sim, FAULT_COORDINATOR_MOVED) && begin(sim, back_in_ms, false))
        (void)fault_comes(sim, FAULT_COORDINATOR_MOVED);
}

/* ---- what the old one does ---- */

static void old_actions(struct sim *sim, struct tm_outbox *out)
{
    struct outlived *old = &sim->outlived;
    bool ends = tm_outbox_status(out, NULL) != 0;
    for (size_t i = 0; i < out->count && !ends; i++) {
        const struct tm_action *action = &out->actions[i];
        switch (action->kind) {
        case TM_ACTION_SEND:
            sim_say(sim, 0, action, tm_outbox_data(out, action));
            break;
        case TM_COORDINATOR_RECORD:
            if (old->writes)
                sim_record_put(sim, tm_outbox_data(out, action), action->length, action->number != 0);
            else if (action->number != 0)
                ends = true;
            else if (old->dirty_ms == 0)
                old->dirty_ms = sim->now_ms;
            break;
        case TM_COORDINATOR_MANIFEST:
            (void)tm_set_manifests_put(&old->manifests, action->number, tm_outbox_data(out, action), action->length,
                                       NULL);
            break;
        case TM_COORDINATOR_FILES_DROP:
            files_drop(sim, &old->manifests, action->number);
            break;
        case TM_COORDINATOR_DONE:
            ends = true;
            break;
        default:
            assert(false);
        }
    }
    if (ends) split_end(sim);
}

static void old_tick(struct sim *sim, struct event *event)
{
    struct outlived *old = &sim->outlived;
    if (old->coordinator == NULL || old->incarnation != event->a) return;
    sim_schedule(sim, sim->now_ms + TICK_MS, old_tick, event->a, 0, 0, 0, NULL, 0);
    if (old->dirty_ms != 0 && sim->now_ms - old->dirty_ms >= WRITE_BY_MS) {
        split_end(sim);
        return;
    }
    struct tm_outbox out;
    tm_outbox_init(&out);
    tm_coordinator_tick(old->coordinator, sim->now_ms, sim_utc(sim), &out);
    old_actions(sim, &out);
    tm_outbox_deinit(&out);
}

/* ---- who speaks to it ---- */

static void late(struct sim *sim, struct event *event)
{
    struct tm_arena arena;
    tm_message *message = NULL;
    struct tm_outbox out;
    if (sim->outlived.incarnation != event->d || sim->outlived.coordinator == NULL) return;
    tm_arena_init(&arena, 64 << 20);
    tm_outbox_init(&out);
    if (tm_message_unpack(event->data, event->length, &arena, &message, NULL) == 0)
        tm_coordinator_receive(sim->outlived.coordinator, sim->now_ms, message, &out);
    old_actions(sim, &out);
    tm_outbox_deinit(&out);
    tm_arena_deinit(&arena);
}

/* Whoever speaks to the old one by name has its connection still. Who only says hello finds either, once both are
 * there. */
bool split_takes(struct sim *sim, const struct event *event)
{
    struct outlived *old = &sim->outlived;
    struct tm_arena arena;
    tm_message *message = NULL;
    if (old->coordinator == NULL) return false;
    tm_arena_init(&arena, 64 << 20);
    bool its = false;
    if (tm_message_unpack(event->data, event->length, &arena, &message, NULL) == 0) {
        its = message->to_incarnation == old->incarnation;
        if (message->to_incarnation == 0 && old->paused_ms <= sim->now_ms) its = tm_random_below(&sim->odd, 2) == 0;
    }
    tm_arena_deinit(&arena);
    if (its)
        sim_schedule(sim, old->paused_ms, late, event->a, event->b, event->c, old->incarnation, event->data,
                     event->length);
    return its;
}
