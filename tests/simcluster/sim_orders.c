/* Orders from outside: the job is stopped, and goes on later, with other machines or the same. */
#include "sim.h"

typedef unsigned long long ull;

static void order_stop(struct sim *sim, struct event *event)
{
    if (sim->finished || sim->stopped) return;
    if (sim->coordinator == NULL || sim->coordinator_paused_ms > sim->now_ms) { /* whoever asks, asks again */
        sim_schedule(sim, sim->now_ms + 1000, order_stop, event->a, event->b, 0, 0, NULL, 0);
        return;
    }
    struct tm_outbox out;
    tm_outbox_init(&out);
    sim_trace(sim, "the job is told to stop");
    tm_coordinator_stop(sim->coordinator, sim->now_ms, "told to", sim->stop_at_once, &out);
    sim_coordinator_actions(sim, &out);
    tm_outbox_deinit(&out);
}

void orders_stop(struct sim *sim, int64_t at_ms, int64_t for_ms, bool machines_stay)
{
    sim->stop_at_once = false;
    sim->stop_for_ms = for_ms;
    sim->stop_machines_stay = machines_stay;
    sim_schedule(sim, at_ms, order_stop, 0, 0, 0, 0, NULL, 0);
}

static void resume(struct sim *sim, struct event *event)
{
    size_t count = sim->stages + 1 + (size_t)sim_below(sim, 4);
    (void)event;
    sim_trace(sim, "the job goes on");
    sim->stopped = false;
    sim->resumes = true;
    if (sim->coordinator != NULL) sim_coordinator_crash(sim, false, 1);
    cloud_start(sim);
    for (size_t i = 0; i < count && !sim->stop_machines_stay; i++)
        (void)sim_add_instance(sim);
    sim_agents_again(sim);
}

/* As they lie there: a set may be in the record though its coordinator died before it could say so. */
static bool in_files(const struct sim *sim, uint64_t step)
{
    for (size_t i = 0; i < sim->file_count; i++) {
        uint64_t layers = 0;
        for (size_t k = 0; k < sim->file_count; k++) {
            const struct stored_file *file = &sim->files[k];
            struct tm_copy_name name;
            const void *data = NULL;
            if (file->set != sim->files[i].set || file->layer >= sim->layers) continue;
            if (file->damaged || (tm_copy_file_decode(file->data, file->length, &name, &data, NULL) == 0 &&
                                  name.step == step && oracle_matches(sim, step, file->layer, data, name.size)))
                layers |= (uint64_t)1 << file->layer;
        }
        if (layers == ((uint64_t)1 << sim->layers) - 1) return true;
    }
    return false;
}

/* The coordinator says that all is done. */
void orders_done(struct sim *sim)
{
    enum tm_job_state state = tm_coordinator_look(sim->coordinator).state;
    if (state == TM_JOB_FAILED) {
        if (!sim->gives_up) sim_fail(sim, "failures: the job fails: %s", tm_coordinator_look(sim->coordinator).failure);
        if (!sim->finished) sim->finished_ms = sim->now_ms;
        sim->finished = true;
        return;
    }
    if (state != TM_JOB_STOPPED) {
        if (sim->coordinator_options.copies_to_files && !in_files(sim, sim->steps))
            sim_fail(sim, "finish: the job is finished, but its last step is not in files");
        if (!sim->finished) sim->finished_ms = sim->now_ms;
        sim->finished = true;
        check_losses(sim);
        sim_trace(sim, "the job is finished");
        return;
    }
    if (sim->stopped) return;
    sim->stopped = true;
    sim_trace(sim, "the job is stopped at step %llu", (ull)tm_coordinator_look(sim->coordinator).stopped_step);
    /* One that gave up because of its files goes on when somebody has mended them. */
    int64_t for_ms = tm_coordinator_look(sim->coordinator).gave_up ? 30000 : sim->stop_for_ms;
    sim_schedule(sim, sim->now_ms + for_ms, resume, 0, 0, 0, 0, NULL, 0);
}

/* ---- the checker ---- */

void orders_started(struct sim *sim, uint64_t base)
{
    sim->applied_here = base;
    sim->stands_still = false;
}

void orders_state(struct sim *sim, const Tmw__StateEvent *event)
{
    sim->stands_still = event->state == TM_JOB_STOPPED && event->quiet;
    if (!sim->stands_still || event->step == 0) return;
    if (!in_files(sim, event->step))
        sim_fail(sim, "stop: the job stops at step %llu, which is not in files", (ull)event->step);
    if (event->step < sim->applied_here)
        sim_fail(sim, "stop: the job stops at step %llu, though %llu is committed", (ull)event->step,
                 (ull)sim->applied_here);
}

/* A member that stood still may yet apply a step of an older generation, which all had prepared before the fence. That
 * keeps nothing and breaks nothing: what counts is the generation that started last. */
void orders_applied(struct sim *sim, const struct node *node, uint64_t generation, uint64_t step)
{
    if (sim->generation_count == 0 || generation != sim->generations[sim->generation_count - 1].generation) return;
    if (step > sim->applied_here) sim->applied_here = step;
    if (sim->stands_still)
        sim_fail(sim, "stop: worker %llu applies step %llu of a job that was stopped", (ull)node->id, (ull)step);
}
