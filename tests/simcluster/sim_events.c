/* What the record tells people, held against what happened. */
#include "sim.h"

typedef unsigned long long ull;

static void trace_event(struct sim *sim, const Tmw__RecordEvent *event)
{
    switch (event->body_case) {
    case TMW__RECORD_EVENT__BODY_NOTE:
        sim_trace(sim, "note: %s (%llu, %llu)", event->note->what, (ull)event->note->worker, (ull)event->note->value);
        break;
    case TMW__RECORD_EVENT__BODY_ARRIVAL:
        sim_trace(sim, "event: worker %llu is here%s", (ull)event->arrival->worker,
                  event->arrival->again ? " again" : "");
        break;
    case TMW__RECORD_EVENT__BODY_LOSS:
        sim_trace(sim, "event: worker %llu is lost%s%s", (ull)event->loss->worker,
                  event->loss->announced ? ", as announced" : "", event->loss->silent ? ", without a word" : "");
        break;
    case TMW__RECORD_EVENT__BODY_NOTICE:
        sim_trace(sim, "event: notice to %llu%s", (ull)event->notice->instance,
                  event->notice->taken_back ? " is taken back" : "");
        break;
    case TMW__RECORD_EVENT__BODY_PAUSE:
        sim_trace(sim, "event: a pause of %llu ms, cause %s", (ull)event->pause->pause_ms,
                  tm_change_cause_name((enum tm_change_cause)event->pause->cause));
        break;
    case TMW__RECORD_EVENT__BODY_STATE:
        sim_trace(sim, "event: the job is %s", tm_job_state_name((enum tm_job_state)event->state->state));
        break;
    case TMW__RECORD_EVENT__BODY_RENT:
        sim_trace(sim, "event: %u spot and %u on-demand instances are wanted", event->rent->want_spot,
                  event->rent->want_on_demand);
        break;
    case TMW__RECORD_EVENT__BODY_RELEASE:
        sim_trace(sim, "event: instance %llu may be given back", (ull)event->release->instance);
        break;
    case TMW__RECORD_EVENT__BODY_PACE:
        sim_trace(sim, "event: steps take %llu ms, predicted were %llu", (ull)event->pace->observed_ms,
                  (ull)event->pace->predicted_ms);
        break;
    case TMW__RECORD_EVENT__BODY_BOTTLENECK:
        sim_trace(sim, "event: %s (worker %llu, %u%%)",
                  tm_bottleneck_words((enum tm_bottleneck_cause)event->bottleneck->cause),
                  (ull)event->bottleneck->worker, event->bottleneck->percent);
        break;
    default:
        break;
    }
}

/* When steps were really committed. */
void events_applied(struct sim *sim, uint64_t generation)
{
    if (generation != sim->commit_generation) {
        sim->commit_generation = generation;
        sim->pause_true_ms = sim->now_ms - sim->commit_ms;
    }
    sim->commit_ms = sim->now_ms;
}

static void take_pause(struct sim *sim, const Tmw__PauseEvent *pause)
{
    struct pause_seen *seen = &sim->pauses[sim->pause_count % PAUSES_SEEN_MAX];
    sim->pause_count++;
    *seen = (struct pause_seen){.cause = (enum tm_change_cause)pause->cause,
                                .told_ms = (int64_t)pause->pause_ms,
                                .true_ms = sim->pause_true_ms,
                                .generation = pause->generation};
}

void events_take(struct sim *sim, const Tmw__RecordEvent *event)
{
    trace_event(sim, event);
    if (event->body_case == TMW__RECORD_EVENT__BODY_PAUSE) take_pause(sim, event->pause);
    if (event->body_case == TMW__RECORD_EVENT__BODY_BOTTLENECK) sim->bottleneck = event->bottleneck->worker;
    if (event->body_case == TMW__RECORD_EVENT__BODY_STATE) orders_state(sim, event->state);
    if (event->body_case == TMW__RECORD_EVENT__BODY_PACE) sim->told_pace_ms = event->pace->observed_ms;
    if (event->body_case == TMW__RECORD_EVENT__BODY_GENERATION && event->generation->started)
        sim->told_redone += event->generation->redone;
}

/* ---- at the end: the record as it is then ---- */

static void here_or_lost(struct sim *sim, const Tmw__RecordEvent *event, uint64_t here[INSTANCES_MAX])
{
    if (event->body_case == TMW__RECORD_EVENT__BODY_ARRIVAL) {
        uint64_t id = event->arrival->worker;
        if (id >= sim->node_count || here[id] == event->arrival->incarnation)
            sim_fail(sim, "events: worker %llu is here twice", (ull)id);
        else
            here[id] = event->arrival->incarnation;
    } else {
        uint64_t id = event->loss->worker;
        if (id >= sim->node_count || here[id] == 0)
            sim_fail(sim, "events: worker %llu is lost, but was not here", (ull)id);
        else
            here[id] = 0;
    }
}

unsigned long long events_losses_unknown;

/* Steps of the record that loggers read: each once, in order, with the loss that the toy engines told (sim_toy.c). */
static void check_steps(struct sim *sim, const Tmw__StepsEvent *event, uint64_t *last)
{
    for (size_t i = 0; i < event->n_steps; i++) {
        const Tmw__StepLoss *told = event->steps[i];
        bool first = *last == 0 && sim->fault_kinds[FAULT_DISK_LOST] > 0; /* of another record */
        if (told->step != *last + 1 && !first)
            sim_fail(sim, "logged: step %llu after %llu", (ull)told->step, (ull)*last);
        if (!told->unknown && told->loss != 1.0 / (double)told->step)
            sim_fail(sim, "logged: %g for step %llu", told->loss, (ull)told->step);
        if (told->unknown && sim->fault_kinds[FAULT_DISK_LOST] == 0)
            sim_fail(sim, "logged: nothing is known of step %llu", (ull)told->step);
        events_losses_unknown += told->unknown != 0;
        *last = told->step;
    }
}

/* Nobody comes or goes twice, and those who are here are told to be. */
void events_check(struct sim *sim)
{
    uint64_t here[INSTANCES_MAX] = {0};
    uint64_t logged = 0;
    for (size_t i = 0; i < sim->record_count; i++) {
        struct tm_arena arena;
        Tmw__RecordEvent *event = NULL;
        tm_arena_init(&arena, 64 << 20);
        bool read = tm_record_event_unpack(sim->record[i].data, sim->record[i].length, &arena, &event, NULL) == 0;
        if (read &&
            (event->body_case == TMW__RECORD_EVENT__BODY_ARRIVAL || event->body_case == TMW__RECORD_EVENT__BODY_LOSS))
            here_or_lost(sim, event, here);
        if (read && event->body_case == TMW__RECORD_EVENT__BODY_STEPS) check_steps(sim, event->steps, &logged);
        tm_arena_deinit(&arena);
    }
    if (sim->choice->log_steps && sim->finished && !sim->gives_up && logged != sim->steps)
        sim_fail(sim, "logged: the last step is %llu of %llu", (ull)logged, (ull)sim->steps);
}
