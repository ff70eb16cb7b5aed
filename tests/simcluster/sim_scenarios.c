/* Named scenarios: scripts of what once hurt others, each with what must come of it. The usual job: six layers, two
 * stages, 60 steps of about a second, copies with one peer and in files. All checkers watch as well. */
#include "sim.h"

#include <string.h>

typedef unsigned long long ull;

void scenario_setup(struct sim *sim)
{
    sim->layers = 6;
    sim->micro_batches = 6;
    sim->stages = 2;
    sim->steps = 60;
    sim->compute_ms = 1000;
    sim->layout_dice = 0;
    sim->by_policy = false;
    sim->cloud_passive = true;
    sim->on_demand_dice = 0;
    sim->anchors = 0;
    sim->coordinator_options.remotes = 0;
    sim->workers = sim->coordinator_options.workers = 1;
    sim->rule = (struct tm_use_all){.stages = 2, .workers_min = 2, .copy_every_ms = 8000};
    sim->coordinator_options.layers = 6;
    sim->coordinator_options.micro_batches = 6;
    sim->coordinator_options.steps = 60;
    sim->coordinator_options.copies = 1;
    sim->coordinator_options.copies_to_files = true;
    sim->coordinator_options.follow_limit_ms = 20000;
    sim->faults.until_ms = 120000;
}

static void without_copies(struct sim *sim)
{
    sim->coordinator_options.copies = 0;
    sim->coordinator_options.copies_to_files = false;
}

static void only_files(struct sim *sim)
{
    sim->coordinator_options.copies = 0;
}

static void pairs(struct sim *sim)
{
    sim->workers = sim->coordinator_options.workers = 2;
}

static void pairs_without_files(struct sim *sim)
{
    pairs(sim);
    sim->rule.stages = 4;
    sim->rule.workers_min = 4;
    sim->coordinator_options.copies_to_files = false;
}

static void without_files(struct sim *sim)
{
    sim->coordinator_options.copies_to_files = false;
}

static void long_copied(struct sim *sim)
{
    sim->steps = 240;
    sim->coordinator_options.steps = 240;
    sim->faults.until_ms = 300000;
}

static void long_job(struct sim *sim)
{
    without_copies(sim);
    sim->steps = 120;
    sim->coordinator_options.steps = 120;
}

/* ---- small words for scripts ---- */

static void start_with(struct sim *sim, size_t workers)
{
    for (size_t i = 0; i < workers; i++)
        (void)sim_add_instance(sim);
    sim_run_until(sim, 12000);
}

static void for_ms(struct sim *sim, int64_t ms)
{
    sim_run_until(sim, sim->now_ms + ms);
}

/* Runs until the coordinator is in that phase; false if it does not get there in 30 s. */
static bool until_phase(struct sim *sim, enum tm_coordinator_phase phase)
{
    for (int64_t end_ms = sim->now_ms + 30000; sim->now_ms < end_ms && sim->failure[0] == '\0'; for_ms(sim, 1))
        if (sim->coordinator != NULL && tm_coordinator_look(sim->coordinator).phase == phase) return true;
    sim_fail(sim, "scenario: the coordinator does not get to %s", tm_coordinator_phase_name(phase));
    return false;
}

static bool until_step(struct sim *sim, uint64_t step)
{
    for (int64_t end_ms = sim->now_ms + 200000; sim->now_ms < end_ms && sim->failure[0] == '\0'; for_ms(sim, 20))
        if (sim->highest_applied >= step) return true;
    sim_fail(sim, "scenario: step %llu is not reached", (ull)step);
    return false;
}

static bool until_stopped(struct sim *sim)
{
    for (int64_t end_ms = sim->now_ms + 120000; sim->now_ms < end_ms && sim->failure[0] == '\0'; for_ms(sim, 10))
        if (sim->stopped) return true;
    sim_fail(sim, "scenario: the job does not stop");
    return false;
}

static void expect(struct sim *sim, bool holds, const char *what)
{
    if (!holds) sim_fail(sim, "scenario: %s", what);
}

static void take(struct sim *sim, uint64_t node)
{
    sim_instance_gone(sim, &sim->instances[node]);
}

static const struct tm_roster *roster(const struct sim *sim)
{
    return &sim->last_roster;
}

static size_t seated(const struct sim *sim)
{
    return tm_roster_seated(roster(sim));
}

/* Every pause that was told, against what it was. */
static void expect_pauses(struct sim *sim, enum tm_change_cause cause)
{
    expect(sim, sim->pause_count > 0, "no pause is told");
    for (size_t i = 0; i < sim->pause_count; i++) {
        int64_t off_ms = sim->pauses[i].told_ms - sim->pauses[i].true_ms;
        if (off_ms < -50 || off_ms > 50)
            sim_fail(sim, "scenario: a pause of %lld ms is told as %lld", (long long)sim->pauses[i].true_ms,
                     (long long)sim->pauses[i].told_ms);
    }
    if (sim->pause_count > 0)
        expect(sim, sim->pauses[sim->pause_count - 1].cause == cause, "the last pause is told with another cause");
}

/* ---- the scenarios ---- */

/* Horovod's deadlock: survivors are fewer than the minimum, and rejoin. */
static void under_minimum(struct sim *sim)
{
    start_with(sim, 3);
    until_step(sim, 10);
    take(sim, 1);
    take(sim, 2);
    for_ms(sim, 20000);
    uint64_t reached = sim->highest_applied;
    expect(sim, reached < 60, "training goes on with fewer than the minimum");
    (void)sim_add_instance(sim);
    for_ms(sim, 20000);
    expect(sim, sim->highest_applied > reached, "training does not go on after the minimum is there again");
}

static void all_replicas_lost(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 25);
    uint64_t durable = tm_coordinator_look(sim->coordinator).durable_step;
    expect(sim, durable > 0, "no copy set after 25 steps");
    uint64_t first = tm_roster_at(roster(sim), 0, 1)->id;
    uint64_t second = tm_roster_at(roster(sim), 1, 1)->id;
    take(sim, first);
    take(sim, second);
    size_t before = sim->generation_count;
    for (int i = 0; i < 3000 && sim->generation_count == before && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    expect(sim, sim->generation_count > before, "no new generation");
    expect(sim, sim->generations[sim->generation_count - 1].base >= durable, "starts below the newest copy set");
    expect(sim, sim->rolled_back > 0 && sim->rolled_back <= 15, "rolls back more than was done since the copy set");
}

static void lost_in_migration(struct sim *sim)
{
    start_with(sim, 2);
    (void)sim_add_instance(sim);
    (void)sim_add_instance(sim);
    if (until_phase(sim, TM_COORDINATOR_ASSIGNED)) sim_coordinator_crash(sim, false, 3000);
    for_ms(sim, 30000);
    expect(sim, seated(sim) == 4, "arrivals have no seat after the coordinator is back");
    expect(sim, sim->rolled_back == 0, "steps are rolled back though nobody was lost");
}

static void lost_in_change(struct sim *sim)
{
    start_with(sim, 4);
    sim_worker_kill(sim, &sim->instances[2]);
    if (until_phase(sim, TM_COORDINATOR_COLLECTING)) sim_coordinator_crash(sim, false, 3000);
    for_ms(sim, 30000);
    expect(sim, sim->rolled_back == 0, "steps are rolled back though a replica of each stage lived");
}

static void disk_lost(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 15);
    sim_coordinator_crash(sim, true, 2000);
    uint64_t reached = sim->highest_applied;
    for_ms(sim, 12000);
    expect(sim, sim->highest_applied > reached + 3, "workers do not train on while the coordinator is away");
    for_ms(sim, 40000);
    expect(sim, sim->rolled_back == 0, "steps are rolled back though only the record was lost");
}

static void restart_same_generation(struct sim *sim)
{
    start_with(sim, 4);
    uint64_t generation = tm_coordinator_look(sim->coordinator).generation;
    sim_coordinator_crash(sim, false, 5000);
    for_ms(sim, 15000);
    expect(sim, tm_coordinator_look(sim->coordinator).generation == generation, "the generation is not resumed");
    expect(sim, sim_steps_redone(sim) == 0, "steps are redone");
}

static void lost_in_copy(struct sim *sim)
{
    start_with(sim, 4);
    for (int i = 0; i < 20000 && sim->failure[0] == '\0'; i++) {
        for (size_t n = 1; n < sim->node_count; n++) {
            if (sim->instances[n].worker == NULL) continue;
            if (tm_worker_look(sim->instances[n].worker, 0).snapshot_bytes == 0) continue;
            take(sim, n % 4 + 1); /* a holder */
            take(sim, n);         /* and the source itself */
            (void)sim_add_instance(sim);
            (void)sim_add_instance(sim);
            return;
        }
        for_ms(sim, 2);
    }
    expect(sim, false, "no copy is ever under way");
}

static void two_notices(struct sim *sim)
{
    start_with(sim, 6);
    until_step(sim, 15);
    fault_notice(sim, &sim->instances[1], 30000, 30000);
    fault_notice(sim, &sim->instances[4], 30000, 30000);
    for_ms(sim, 40000);
    expect(sim, tm_roster_find(roster(sim), 1) == NULL || tm_roster_find(roster(sim), 1)->spare, "1 still trains");
    expect(sim, seated(sim) == 4, "the others do not train on");
    expect(sim, sim_steps_redone(sim) == 0 && sim->rolled_back == 0, "a step is redone though there was a notice");
    expect(sim, sim->told_redone == 0, "a step is told to be redone");
    expect_pauses(sim, TM_CHANGED_NOTICE);
}

static void false_alarm(struct sim *sim)
{
    start_with(sim, 4);
    fault_notice(sim, &sim->instances[2], -1, 20000);
    for_ms(sim, 8000);
    expect(sim, seated(sim) == 2, "the notice does not change the layout");
    fault_notice_undone(sim, &sim->instances[2]);
    for_ms(sim, 12000);
    expect(sim, seated(sim) == 4, "the false alarm is not undone");
    fault_notice(sim, &sim->instances[3], -1, 10000); /* nobody takes this one back */
    for_ms(sim, 35000);
    expect(sim, seated(sim) == 4, "an alarm that did not come true counts for ever");
    expect(sim, sim_steps_redone(sim) == 0, "a step is redone");
}

static void hang(struct sim *sim)
{
    start_with(sim, 4);
    uint64_t old = sim->instances[3].incarnation;
    sim->instances[3].hangs = true;
    for_ms(sim, 60000);
    expect(sim, sim->instances[3].incarnation != old, "the worker that hangs is not started again");
    expect(sim, sim->highest_applied > 15 && sim->rolled_back == 0, "the others do not train on");
    expect(sim, sim->told_redone == 1, "the step that it held up is not told to be redone");
}

static void stopped_and_continued(struct sim *sim)
{
    start_with(sim, 4);
    sim->instances[2].paused_ms = sim->now_ms + 10000;
    for_ms(sim, 40000);
    expect(sim, seated(sim) == 4, "the worker that was stopped has no seat again");
    expect(sim, sim->rolled_back == 0, "steps are rolled back");
}

/* Everything stands still for 10 s, and one of the only two that hold the newest steps for a moment longer. The third
 * could go on with the other from the last copy set at once. */
static void all_stand_still(struct sim *sim)
{
    start_with(sim, 3);
    until_step(sim, 23);
    for (uint64_t n = 0; n < sim->node_count; n++)
        sim->instances[n].paused_ms = sim->instances[n].agent_paused_ms = sim->now_ms + 10000;
    sim->coordinator_paused_ms = sim->cloud_paused_ms = sim->now_ms + 10000;
    sim->instances[tm_roster_at(roster(sim), 0, 1)->id].paused_ms += 3500;
    uint64_t reached = sim->highest_applied;
    for_ms(sim, 30000);
    expect(sim, sim->highest_applied > reached + 5, "training does not go on");
    expect(sim, sim->rolled_back == 0, "steps are rolled back though nobody was lost");
}

/* Of the only two that hold the newest steps, one is not heard for 10 s, and one does not hear. */
static void silent_member(struct sim *sim)
{
    start_with(sim, 3);
    until_step(sim, 20);
    fault_cut(sim, tm_roster_at(roster(sim), 0, 1)->id, 0, 10000);
    for_ms(sim, 30000);
    expect(sim, sim->rolled_back == 0, "steps are rolled back though nobody was lost");
    fault_cut(sim, 0, tm_roster_at(roster(sim), 0, 0)->id, 10000);
    for_ms(sim, 30000);
    expect(sim, sim->rolled_back == 0, "steps are rolled back though nobody was lost");
}

/* It never comes back, and nobody says that it is dead: after the orphan time the newest copy set is gone on from. */
static void silent_for_good(struct sim *sim)
{
    start_with(sim, 3);
    until_step(sim, 20);
    uint64_t silent = tm_roster_at(roster(sim), 0, 1)->id;
    size_t before = sim->generation_count;
    int64_t cut_ms = sim->now_ms;
    fault_cut(sim, silent, 0, 100000);
    fault_cut(sim, 0, silent, 100000);
    for (int i = 0; i < 3000 && sim->generation_count == before && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    expect(sim, sim->generation_count > before, "no new generation");
    expect(sim, sim->now_ms < cut_ms + 30000, "one that never comes back is waited for too long");
}

/* ---- disks ---- */

static void fill_disks(struct sim *sim, int64_t for_ms)
{
    sim->faults.record_full_ms = sim->now_ms + for_ms;
    sim->faults.files_full_ms = sim->now_ms + for_ms;
}

/* The disk is full for a while: training goes on. Then a worker is lost, which has to wait for the record. */
static void disk_full(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 10);
    uint64_t starts = sim->coordinator_starts;
    uint64_t generation = tm_coordinator_look(sim->coordinator).generation;
    fill_disks(sim, 30000);
    for_ms(sim, 20000);
    uint64_t reached = sim->highest_applied;
    expect(sim, reached > 20, "training does not go on while the disk is full");
    sim_worker_kill(sim, &sim->instances[2]);
    for_ms(sim, 9000);
    expect(sim, sim->coordinator != NULL && tm_coordinator_look(sim->coordinator).generation == generation,
           "a generation begins that the record cannot know");
    expect(sim, sim->coordinator_starts <= starts + 1, "the coordinator begins anew again and again");
    for_ms(sim, 10000);
    expect(sim, sim->highest_applied > reached + 3, "training does not go on when there is room again");
    expect(sim, sim->rolled_back == 0 && !sim->stopped, "steps are rolled back");
}

/* Only the disk for copies is full, and for long. */
static void copies_full(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 10);
    fault_files_full(sim, 300000);
    until_step(sim, 220);
    expect(sim, sim->rolled_back == 0 && !sim->stopped, "a full disk ends the job");
    sim->faults.files_full_ms = 0;
}

static void disk_full_stop(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 20);
    fill_disks(sim, 100000);
    for_ms(sim, 2000);
    orders_stop(sim, sim->now_ms, 60000, false);
    int64_t asked_ms = sim->now_ms;
    if (!until_stopped(sim)) return;
    expect(sim, sim->now_ms - asked_ms < 60000, "a full disk keeps the job from stopping");
}

/* The last step is done, and there is no room for it: the job ends, and goes on when there is. */
static void disk_full_at_the_end(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 55);
    fill_disks(sim, 200000);
    until_step(sim, 60);
    if (!until_stopped(sim)) return;
    expect(sim, tm_coordinator_look(sim->coordinator).gave_up, "it does not say that it gave up");
    sim->faults.record_full_ms = sim->faults.files_full_ms = 0;
}

/* The folder for copies cannot be used at all: nothing would be durable, so the job ends, and says why. */
static void folder_unusable(struct sim *sim)
{
    start_with(sim, 4);
    sim->faults.files_down = true;
    if (!until_stopped(sim)) return;
    expect(sim, tm_coordinator_look(sim->coordinator).gave_up, "it does not say that it gave up");
    sim->faults.files_down = false;
}

static void one_way_link(struct sim *sim)
{
    start_with(sim, 4);
    fault_cut(sim, 1, 2, 100000);
    until_step(sim, 40);
    expect(sim, sim->now_ms < 105000, "a link cut one way stops the job");
}

/* Without copies, and with both replicas of a stage lost: all steps are done again, and flags of the same steps come
 * again from the generation before. */
static void old_duplicates(struct sim *sim)
{
    sim->capturing = true;
    start_with(sim, 4);
    sim->capturing = false;
    uint64_t first = tm_roster_at(roster(sim), 0, 1)->id;
    uint64_t second = tm_roster_at(roster(sim), 1, 1)->id;
    sim_worker_kill(sim, &sim->instances[first]);
    sim_worker_kill(sim, &sim->instances[second]);
    uint64_t reached = sim->highest_applied;
    for (int i = 0; i < 40 && sim->failure[0] == '\0'; i++) {
        sim_replay_captured(sim);
        for_ms(sim, 700);
    }
    expect(sim, sim->captured_count > 100, "nothing was there to come again");
    expect(sim, sim->highest_applied > reached + 10, "training does not go on");
}

static void clock_jumps(struct sim *sim)
{
    start_with(sim, 4);
    for (int i = 0; i < 8; i++) {
        sim->faults.utc_jump_ms = (i % 2 == 0 ? 1 : -1) * 3600000 * (i + 1);
        for_ms(sim, 1500);
    }
    expect(sim, sim_steps_redone(sim) == 0, "a clock that jumps costs a step");
    for (size_t n = 1; n <= 4; n++) { /* a machine that was suspended: time has passed for its processes all at once */
        sim->instances[n].clock_ms += 15000 * (int64_t)n;
        for_ms(sim, 2500);
    }
    uint64_t reached = sim->highest_applied;
    for_ms(sim, 10000);
    expect(sim, sim->highest_applied > reached + 5, "training does not go on");
    expect(sim, sim->rolled_back == 0, "steps are rolled back");
}

/* The coordinator is cut off from all who train, and others join it: it may not start without them too soon, and they
 * must stop before it does. */
static void orphans(struct sim *sim)
{
    if (sim->node_count == 1) start_with(sim, 2);
    until_step(sim, 8);
    for (uint64_t n = 1; n <= 2; n++) {
        fault_cut(sim, 0, n, 70000);
        fault_cut(sim, n, 0, 70000);
    }
    (void)sim_add_instance(sim);
    (void)sim_add_instance(sim);
    for_ms(sim, 60000);
    expect(sim, sim->generations[sim->generation_count - 1].at_ms > 30000, "nobody trains on the coordinator's side");
}

/* The same, and then the disk is lost and the links are whole again: a coordinator that knows no generation must not
 * wake those whose time is over, while the others train on. */
static void orphans_and_disk_lost(struct sim *sim)
{
    orphans(sim);
    size_t before = sim->generation_count;
    uint64_t obeyed = tm_worker_look(sim->instances[1].worker, 0).generation;
    expect(sim, obeyed < sim->last_roster.generation, "those who were cut off have heard of the next generation");
    sim_coordinator_crash(sim, true, 1000);
    for_ms(sim, 20000); /* the links are mended; it still only listens */
    expect(sim, sim->generation_count == before, "it does not wait until all who may train have been heard");
}

/* Short steps: one falls into the moment that counts. */
static void short_steps(struct sim *sim)
{
    without_copies(sim);
    sim->compute_ms = 250;
    sim->steps = 250;
    sim->coordinator_options.steps = 250;
}

/* The same, and the clocks of those who train run 5% slow: they think for longer that they may. */
static void slow_clocks(struct sim *sim)
{
    for (int i = 0; i < 2; i++) {
        struct node *node = sim_add_instance(sim);
        node->clock_ppm = -50000;
    }
    sim_run_until(sim, 12000);
    orphans(sim);
}

/* A machine whose job file has another learning rate never trains, whether it comes first or later. */
static void other_job(struct sim *sim)
{
    struct node *wrong = sim_add_instance(sim);
    wrong->other_job = true;
    start_with(sim, 4);
    until_step(sim, 10);
    expect(sim, tm_roster_find(roster(sim), wrong->id) == NULL, "a machine with another job file takes part");
    sim_coordinator_crash(sim, false, 3000);
    for_ms(sim, 20000);
    expect(sim, tm_roster_find(roster(sim), wrong->id) == NULL, "it takes part after the coordinator was lost");
    expect(sim, seated(sim) == 4, "the others do not train");
}

/* It is refused again and again while nobody else is here: that is not the job's failure. */
static void other_job_alone(struct sim *sim)
{
    sim_add_instance(sim)->other_job = true;
    sim_run_until(sim, 20000);
    start_with(sim, 4);
    until_step(sim, 10);
}

static void arrivals(struct sim *sim)
{
    start_with(sim, 2);
    sim->layers_moved = 0;
    for (int i = 0; i < 4; i++) {
        (void)sim_add_instance(sim);
        for_ms(sim, 6000);
    }
    expect(sim, seated(sim) == 6, "arrivals have no seat");
    expect(sim, sim_steps_redone(sim) == 0 && sim->told_redone == 0, "an arrival costs a step");
    expect_pauses(sim, TM_CHANGED_ARRIVAL);
    expect(sim, sim->layers_moved == 0, "layers are moved while all pause");
}

/* The newest set is damaged at its only holder: the one before it is used. */
static void damaged_copy(struct sim *sim)
{
    start_with(sim, 2);
    for (int i = 0; i < 4000 && sim->set_count < 2 && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    uint64_t newest = sim->sets[sim->set_count - 1].set;
    uint64_t previous = sim->sets[sim->set_count - 2].step;
    for (size_t i = 0; i < sim->file_count; i++) {
        if (sim->files[i].set != newest || sim->files[i].layer == UINT32_MAX) continue;
        sim->files[i].data[sim->files[i].length - 3] ^= 4;
        sim->files[i].damaged = true;
    }
    for (size_t n = 1; n <= 2; n++) {
        const struct tm_copies *copies = tm_worker_look(sim->instances[n].worker, 0).copies;
        for (size_t p = 0; p < copies->count; p++)
            if (copies->parts[p].name.set == newest) sim_damage_part(&sim->instances[n], &copies->parts[p], 5);
    }
    sim_worker_kill(sim, &sim->instances[2]);
    size_t before = sim->generation_count;
    for (int i = 0; i < 3000 && sim->generation_count == before && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    expect(sim, sim->generations[sim->generation_count - 1].base == previous, "the set before is not used");
}

static bool copy_under_way(const struct sim *sim)
{
    for (size_t n = 1; n < sim->node_count; n++)
        if (sim->instances[n].worker != NULL && tm_worker_look(sim->instances[n].worker, 0).snapshot_bytes > 0)
            return true;
    return false;
}

/* Files are slow, and the copy set that is being written is given up with its coordinator. The files come in the end,
 * when the next coordinator has made sets of its own: they must not lie over those. */
static void late_files(struct sim *sim)
{
    start_with(sim, 4);
    for (int i = 0; i < 4000 && sim->set_count == 0 && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    sim->faults.files_slow_ms = 14000;
    for (int i = 0; i < 4000 && !copy_under_way(sim) && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    expect(sim, copy_under_way(sim), "no copy is ever under way");
    sim_worker_kill(sim, &sim->instances[4]);
    if (!until_phase(sim, TM_COORDINATOR_COLLECTING)) return;
    sim_coordinator_crash(sim, false, 1000);
    sim->faults.files_slow_ms = 0;
    for_ms(sim, 17000);
    uint64_t durable = tm_coordinator_look(sim->coordinator).durable_step;
    for (uint64_t n = 1; n <= 4; n++)
        take(sim, n);
    for (int i = 0; i < 4; i++)
        (void)sim_add_instance(sim);
    size_t before = sim->generation_count;
    for (int i = 0; i < 3000 && sim->generation_count == before && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    expect(sim, sim->generations[sim->generation_count - 1].base >= durable, "files of a set are not its own");
}

/* The coordinator dies between the record's word of a whole set and its manifest; the next one loses the record, and
 * all who train are lost: the set must be found by its manifest. */
static void killed_before_manifest(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 20);
    sim->crash_before_manifest = true;
    for (int i = 0; i < 4000 && sim->crash_before_manifest && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    expect(sim, !sim->crash_before_manifest, "no set becomes whole");
    uint64_t durable = sim->sets[sim->set_count - 1].step;
    for_ms(sim, 1500); /* the next one has begun */
    sim_coordinator_crash(sim, true, 1000);
    for (uint64_t n = 1; n <= 4; n++)
        take(sim, n);
    for (int i = 0; i < 4; i++)
        (void)sim_add_instance(sim);
    size_t before = sim->generation_count;
    for (int i = 0; i < 3000 && sim->generation_count == before && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    expect(sim, sim->generations[sim->generation_count - 1].base >= durable, "the newest set is not found");
}

/* The disk is full when the last set's manifest is due: it is written when there is room, for who reads the weights. */
static void full_at_the_end(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 58);
    for_ms(sim, 500);
    sim->full_before_manifest = true;
    until_step(sim, 60);
    for_ms(sim, 20000);
    expect(sim, !sim->full_before_manifest, "no set becomes whole");
}

/* A stage is lost while the next copy set is being made: the last whole one is still there. */
static void lost_before_whole(struct sim *sim)
{
    start_with(sim, 2);
    for (int kill = 0; kill < 4; kill++) {
        size_t whole = sim->set_count;
        for (int i = 0; i < 4000 && sim->set_count == whole && sim->failure[0] == '\0'; i++)
            for_ms(sim, 20);
        for_ms(sim, 8400 + 600 * kill);
        sim_worker_kill(sim, &sim->instances[1 + kill % 2]);
    }
}

/* One worker computes three times slower: the run says so, and who it is. */
static void with_prediction(struct sim *sim)
{
    sim->rule.stages = 4; /* one pipeline: nobody could do more instead */
    sim->coordinator_options.predicted_step_ms = 1400;
}

static void slow_worker(struct sim *sim)
{
    start_with(sim, 4);
    expect(sim, sim->bottleneck == 0 && sim->told_pace_ms == 0, "an even cluster is said to have a bottleneck");
    sim->instances[3].slow = 3;
    until_step(sim, 50);
    expect(sim, sim->bottleneck == 3, "the slow worker is not named");
}

/* Micro-batches are computed one by one, and nothing else takes time. */
static void many_micro_batches(struct sim *sim)
{
    without_copies(sim);
    sim->by_share = true;
    sim->micro_batches = sim->coordinator_options.micro_batches = 28;
    sim->compute_ms = 28 * 250.0;
    sim->stages = sim->rule.stages = 1;
    sim->steps = sim->coordinator_options.steps = 160;
}

/* Steps in the time that follows, over those that all workers could make, each at its own speed. */
static double efficiency(struct sim *sim, double speeds)
{
    uint64_t before = sim->highest_applied;
    int64_t begun_ms = sim->now_ms, best_ms;
    if (!until_step(sim, before + 40)) return 0;
    best_ms = (int64_t)(40 * sim->compute_ms / speeds);
    return (double)best_ms / (double)(sim->now_ms - begun_ms);
}

static bool shares_are(const struct sim *sim, size_t count, const uint32_t *shares)
{
    if (roster(sim)->pipelines != count) return false;
    for (size_t i = 0; i < count; i++)
        if (roster(sim)->micro_batches[i] != shares[i]) return false;
    return true;
}

/* Workers of speeds 1, 2 and 4 share out a step by what was measured: they make 95% of the sum of their speeds. */
static void mixed_speeds(struct sim *sim)
{
    start_with(sim, 3);
    sim->instances[1].slow = 4;
    sim->instances[2].slow = 2;
    until_step(sim, 20);
    expect(sim, shares_are(sim, 3, (uint32_t[]){16, 8, 4}), "shares are not in proportion to speeds");
    expect(sim, efficiency(sim, 1.75) >= 0.95, "less than 95% of the sum of speeds");
}

/* One of four becomes half as fast, and well again: the others lose less than 5%, and it gets its share back. */
static void straggler(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 5);
    expect(sim, shares_are(sim, 4, (uint32_t[]){7, 7, 7, 7}), "equal workers do not get equal shares");
    sim->instances[2].slow = 2;
    until_step(sim, sim->highest_applied + 25);
    expect(sim, shares_are(sim, 4, (uint32_t[]){8, 8, 8, 4}), "a straggler does not get less");
    expect(sim, efficiency(sim, 3.5) >= 0.95, "the others wait for the straggler");
    sim->instances[2].slow = 1;
    until_step(sim, sim->highest_applied + 25);
    expect(sim, shares_are(sim, 4, (uint32_t[]){7, 7, 7, 7}), "one that is well again gets less");
}

static void many_in_two(struct sim *sim)
{
    many_micro_batches(sim);
    sim->stages = sim->rule.stages = 2;
}

/* Two stages: pipelines are made of like workers. */
static void mixed_pipelines(struct sim *sim)
{
    start_with(sim, 4);
    uint64_t first = tm_roster_at(roster(sim), 0, 0)->id, second = tm_roster_at(roster(sim), 1, 1)->id;
    sim->instances[first].slow = sim->instances[second].slow = 3;
    until_step(sim, 20);
    for (size_t i = 0; i < roster(sim)->member_count; i++) {
        const struct tm_member *member = &roster(sim)->members[i];
        bool slow = sim->instances[member->id].slow > 1;
        expect(sim, member->spare || member->pipeline == (slow ? 1U : 0U), "a pipeline of unlike workers");
    }
    expect(sim, roster(sim)->micro_batches[0] > 2 * roster(sim)->micro_batches[1], "the slow pipeline has too much");
}

/* The prediction is half of what steps take: that is said once, though the fleet changes. */
static void with_wrong_prediction(struct sim *sim)
{
    sim->coordinator_options.predicted_step_ms = 400;
}

static void wrong_prediction(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 30);
    expect(sim, sim->told_pace_ms > 500, "nobody says that steps take longer than predicted");
    sim->told_pace_ms = 0;
    take(sim, 4);
    take(sim, 3);
    until_step(sim, 58);
    expect(sim, sim->bottleneck == 0, "an even cluster is said to have a bottleneck");
}

static void stop_and_go_on(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 20);
    orders_stop(sim, sim->now_ms, 10000, false);
    if (!until_stopped(sim)) return;
    uint64_t reached = sim->highest_applied;
    expect(sim, tm_coordinator_look(sim->coordinator).stopped_step == reached, "it stops before its last step");
    for_ms(sim, 5000);
    for (size_t i = 1; i < sim->node_count; i++)
        expect(sim, !sim->instances[i].up, "an instance is not given back");
    until_step(sim, reached + 10);
    expect(sim, sim->generations[sim->generation_count - 1].base >= reached, "it goes on from an older step");
    expect(sim, sim_steps_redone(sim) == 0 && sim->rolled_back == 0, "a step is redone");
}

static void four_wanted(struct sim *sim)
{
    sim->rule.workers_max = 4;
}

/* Coordinator and cloud's program die together, all instances end, and others are there when both come back: those that
 * nobody names any more are not waited for, and nobody who is here is given back in their stead. */
static void ends_unheard(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 20);
    for (int i = 0; i < 2000 && sim->highest_applied < tm_coordinator_look(sim->coordinator).durable_step + 6; i++)
        for_ms(sim, 20);
    sim->record_synced = sim->record_count; /* the program puts it down each second */
    sim_coordinator_crash(sim, false, 3000);
    for (uint64_t i = 1; i <= 4; i++)
        take(sim, i);
    cloud_start(sim);
    for (int i = 0; i < 4; i++)
        (void)sim_add_instance(sim);
    until_step(sim, 40);
    for (size_t i = 0; i < 4; i++)
        expect(sim, tm_coordinator_look(sim->coordinator).instances[i].end_ms != 0, "one that has ended runs");
    expect(sim, sim->rolled_back > 0 && sim->rolled_back + 2 >= sim_steps_redone(sim),
           "steps are redone, and not told");
}

/* A member and the coordinator are lost while the job stops; it stops all the same, and goes on. */
static void lost_in_stop(struct sim *sim)
{
    start_with(sim, 4);
    until_step(sim, 20);
    orders_stop(sim, sim->now_ms, 10000, true);
    if (!until_phase(sim, TM_COORDINATOR_STOPPING)) return;
    sim_worker_kill(sim, &sim->instances[2]);
    for_ms(sim, 300);
    if (!until_phase(sim, TM_COORDINATOR_STOPPING)) return;
    for_ms(sim, 200);
    sim_coordinator_crash(sim, false, 3000);
    if (!until_stopped(sim)) return;
    uint64_t reached = sim->highest_applied;
    expect(sim, tm_coordinator_look(sim->coordinator).stopped_step == reached, "it stops before its last step");
    sim_coordinator_crash(sim, false, 500);
    for_ms(sim, 5000);
    expect(sim, sim->highest_applied == reached, "a coordinator that was not told to goes on with a stopped job");
    until_step(sim, reached + 10);
    expect(sim, sim->rolled_back == 0, "steps are rolled back");
}

/* ---- anchors ---- */

static void with_remotes(struct sim *sim)
{
    sim->coordinator_options.remotes = 2;
    without_files(sim);
}

static void add_anchors(struct sim *sim, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct node *node = sim_add_instance(sim);
        node->anchor = true;
        node->spot = false;
    }
}

/* All spot instances are lost at once, others come: the state is what anchors have in memory. */
static void lose_all_spot(struct sim *sim)
{
    until_step(sim, 25);
    uint64_t durable = tm_coordinator_look(sim->coordinator).durable_step;
    size_t before = sim->generation_count;
    expect(sim, durable > 0, "no copy set after 25 steps");
    for (size_t i = 1; i < sim->node_count; i++)
        if (sim->instances[i].spot) take(sim, i);
    for_ms(sim, 10000);
    expect(sim, sim->generation_count == before, "anchors train alone");
    for (int i = 0; i < 4; i++)
        (void)sim_add_instance(sim);
    for (int i = 0; i < 3000 && sim->generation_count == before && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    expect(sim, sim->generation_count > before, "training does not go on");
    expect(sim, sim->generations[sim->generation_count - 1].base >= durable, "what anchors hold is not used");
}

static void tiering(struct sim *sim)
{
    add_anchors(sim, 2);
    start_with(sim, 4);
    expect(sim, seated(sim) == 4 && tm_roster_find(roster(sim), 1)->spare && tm_roster_find(roster(sim), 2)->spare,
           "an anchor that is to keep copies has a seat");
    lose_all_spot(sim);
    until_step(sim, 40);
    expect(sim, seated(sim) == 4 && tm_roster_find(roster(sim), 1)->spare, "a remote has a seat later on");
}

/* The remote comes when training has begun: copies go to it from then on. */
static void late_remote(struct sim *sim)
{
    start_with(sim, 4);
    add_anchors(sim, 1);
    until_step(sim, 20);
    expect(sim, tm_roster_find(roster(sim), 5) != NULL, "nobody knows of a remote that has arrived");
    lose_all_spot(sim);
}

static void single_anchor(struct sim *sim)
{
    add_anchors(sim, 1);
    start_with(sim, 3);
    expect(sim, seated(sim) == 4, "an anchor that is to train has no seat");
    lose_all_spot(sim);
}

static void three_without_files(struct sim *sim)
{
    sim->rule.workers_min = 3;
    without_files(sim);
}

/* All instances of one zone are lost at once; numbers 1 and 4 are of one, 5 of another. */
static void zone_lost(struct sim *sim)
{
    for (uint64_t i = 1; i <= 5; i++) {
        (void)sim_add_instance(sim);
        if (i == 2 || i == 3) take(sim, i);
    }
    until_step(sim, 20);
    uint64_t durable = tm_coordinator_look(sim->coordinator).durable_step;
    size_t before = sim->generation_count;
    expect(sim, durable > 0, "no copy set after 20 steps");
    take(sim, 1);
    take(sim, 4);
    (void)sim_add_instance(sim);
    (void)sim_add_instance(sim);
    for (int i = 0; i < 3000 && sim->generation_count == before && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    expect(sim, sim->generation_count > before, "training does not go on");
    expect(sim, sim->generations[sim->generation_count - 1].base >= durable, "copies were in the zone of their source");
}

/* Instances of two workers: neighbouring stages sit on one instance, replicas on two; a whole instance goes, and then
 * all but one at once: what the last one keeps is enough. */
static void instances_lost(struct sim *sim)
{
    start_with(sim, 2);
    until_step(sim, 12);
    expect(sim, seated(sim) == 4, "not all four workers of two instances train");
    for (size_t i = 0; i < roster(sim)->member_count; i++) {
        const struct tm_member *one = &roster(sim)->members[i];
        for (size_t k = 0; k < i; k++) {
            const struct tm_member *other = &roster(sim)->members[k];
            bool beside = sim_first(sim, one->id) == sim_first(sim, other->id);
            if (beside) expect(sim, one->stage != other->stage, "replicas of a stage are on one instance");
            if (beside) expect(sim, one->pipeline == other->pipeline, "neighbouring stages are on two instances");
        }
    }
    uint64_t redone = sim_steps_redone(sim);
    take(sim, 1);
    until_step(sim, 20);
    expect(sim, sim_steps_redone(sim) <= redone + 1 && sim->rolled_back == 0, "the replicas went with one instance");
    (void)sim_add_instance(sim);
    (void)sim_add_instance(sim);
    until_step(sim, 34);
    uint64_t durable = tm_coordinator_look(sim->coordinator).durable_step;
    size_t before = sim->generation_count;
    expect(sim, durable > 0, "no copy set after 34 steps");
    take(sim, 3);
    take(sim, 5);
    (void)sim_add_instance(sim);
    for (int i = 0; i < 3000 && sim->generation_count == before && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    expect(sim, sim->generation_count > before, "training does not go on");
}

/* One pipeline over two instances of two workers, without files: each layer is on one instance alone, and its copy must
 * be on the other. */
static void copies_apart(struct sim *sim)
{
    start_with(sim, 2);
    until_step(sim, 20);
    uint64_t durable = tm_coordinator_look(sim->coordinator).durable_step;
    size_t before = sim->generation_count;
    expect(sim, durable > 0, "no copy set after 20 steps");
    take(sim, 1);
    (void)sim_add_instance(sim);
    for (int i = 0; i < 3000 && sim->generation_count == before && sim->failure[0] == '\0'; i++)
        for_ms(sim, 20);
    expect(sim, sim->generation_count > before, "training does not go on");
    expect(sim, sim->generations[sim->generation_count - 1].base >= durable,
           "copies were on the instance of their source");
}

/* ---- workers that fail by themselves ---- */

enum { SEGFAULT = 128 + 11 };

static bool has_failed(const struct sim *sim)
{
    return sim->coordinator != NULL && tm_coordinator_look(sim->coordinator).phase == TM_COORDINATOR_FAILED;
}

static void fail_all(struct sim *sim, int status)
{
    for (size_t i = 1; i < sim->node_count; i++)
        if (sim->instances[i].up) sim_worker_end(sim, &sim->instances[i], status);
}

/* All fail at once, again and again, but get on between: that is no reason to give up. */
static void failures_with_progress(struct sim *sim)
{
    start_with(sim, 3);
    for (uint64_t at = 10; at <= 40; at += 5) {
        until_step(sim, at);
        fail_all(sim, SEGFAULT);
    }
    expect(sim, !has_failed(sim), "a job that gets on is given up");
}

/* Instances go before anything comes of them, and their workers with them: whatever that costs, it is no failure. */
static void preempted_without_progress(struct sim *sim)
{
    start_with(sim, 3);
    until_step(sim, 10);
    for (int round = 0; round < 6; round++) {
        for (size_t i = 1; i < sim->node_count; i++) {
            if (!sim->instances[i].up) continue;
            fault_notice(sim, &sim->instances[i], 3000, 3000);
            for_ms(sim, 1);
            sim_worker_end(sim, &sim->instances[i], 1); /* as a script may that hears SIGTERM */
            take(sim, i);
        }
        for (int i = 0; i < 3; i++)
            (void)sim_add_instance(sim);
        for_ms(sim, 1500);
    }
    expect(sim, sim->highest_applied < 20, "it gets on, and so the scenario shows nothing");
    expect(sim, !has_failed(sim), "preemptions are taken for failures");
}

static void to_give_up(struct sim *sim)
{
    sim->gives_up = true;
}

/* A job that dies whenever it begins is given up, also when the coordinator is lost meanwhile: it counts by the record.
 */
static void failures_without_progress(struct sim *sim)
{
    start_with(sim, 3);
    until_step(sim, 10);
    int64_t crash_ms = sim->now_ms + 500;
    for (int64_t end_ms = sim->now_ms + 60000; sim->now_ms < end_ms && !has_failed(sim); for_ms(sim, 10)) {
        fail_all(sim, 1);
        if (crash_ms != 0 && sim->now_ms >= crash_ms) {
            sim_coordinator_crash(sim, false, 500);
            crash_ms = 0;
        }
    }
    expect(sim, has_failed(sim), "a job that fails for ever is not given up");
    expect(sim, crash_ms == 0, "it is given up before a coordinator was lost");
    for_ms(sim, 5000);
    for (size_t i = 1; i < sim->node_count; i++)
        expect(sim, sim->instances[i].worker == NULL, "a worker is started for a job that was given up");
}

/* It gets as far as it got before, and dies there each time: earlier steps that are done again are no progress. */
static void failures_at_one_step(struct sim *sim)
{
    start_with(sim, 3);
    size_t tries = 0;
    for (size_t seen = 0; tries < 5 && !has_failed(sim) && sim->failure[0] == '\0'; for_ms(sim, 5)) {
        if (sim->applied_here < 20 || sim->generation_count == seen) continue;
        seen = sim->generation_count;
        tries++;
        fail_all(sim, SEGFAULT);
    }
    expect(sim, tries <= 4, "more tries than three, and one whose last step was not heard of");
    expect(sim, has_failed(sim), "a job that dies at the same step for ever is not given up");
}

const struct scenario scenarios[] = {
    {"failures-with-progress", "workers fail by themselves, but get on between", NULL, failures_with_progress},
    {"failures-without-progress", "workers fail for ever: the job is given up", to_give_up, failures_without_progress},
    {"failures-at-one-step", "workers die at one step each time: the job is given up", to_give_up,
     failures_at_one_step},
    {"preempted-without-progress", "instances go before anything comes of them: no failure", NULL,
     preempted_without_progress},
    {"under-minimum", "survivors fall under the minimum and rejoin (Horovod's deadlock)", NULL, under_minimum},
    {"all-replicas-lost", "all replicas of a stage are lost: back to the newest copy set", NULL, all_replicas_lost},
    {"lost-in-migration", "the coordinator is lost while layers move", NULL, lost_in_migration},
    {"lost-in-change", "the coordinator is lost during a generation change", NULL, lost_in_change},
    {"disk-lost", "the coordinator's disk is lost", NULL, disk_lost},
    {"disk-lost-memory", "the coordinator's disk is lost, copies only in peers' memory", without_files, disk_lost},
    {"restart", "a restarted coordinator resumes the same generation", NULL, restart_same_generation},
    {"lost-in-copy", "a source and a holder are lost in the middle of a copy", NULL, lost_in_copy},
    {"killed-before-manifest", "the coordinator dies between a set's record and its manifest, the record is lost next",
     only_files, killed_before_manifest},
    {"full-at-the-end", "the disk is full when the last set's manifest is due", NULL, full_at_the_end},
    {"lost-before-whole", "a stage is lost while the next copy set is made", without_files, lost_before_whole},
    {"two-notices", "two notices at once", NULL, two_notices},
    {"false-alarm", "notices that do not come true, taken back or not", NULL, false_alarm},
    {"hang", "a worker hangs without dying", without_copies, hang},
    {"stopped", "a worker stands still for 10 s, then goes on", NULL, stopped_and_continued},
    {"all-still", "everything stands still for 10 s, then goes on", NULL, all_stand_still},
    {"silent", "a member with the newest steps is not heard for 10 s, or does not hear", NULL, silent_member},
    {"silent-for-good", "it never comes back, and nobody says that it is dead", NULL, silent_for_good},
    {"disk-full", "the disk is full for a while: training goes on", NULL, disk_full},
    {"copies-full", "the disk for copies is full for long", long_copied, copies_full},
    {"disk-full-stop", "the job is stopped while the disk is full", NULL, disk_full_stop},
    {"disk-full-end", "the last step is done while the disk is full", NULL, disk_full_at_the_end},
    {"folder-unusable", "the folder for copies cannot be written", NULL, folder_unusable},
    {"one-way-link", "a link is cut one way", NULL, one_way_link},
    {"old-duplicates", "messages of an old generation come again", without_copies, old_duplicates},
    {"clock-jumps", "the clock jumps by hours", NULL, clock_jumps},
    {"orphans", "the coordinator is cut off from all who train, and others join it", without_copies, orphans},
    {"slow-clocks", "the same, and the clocks of those who train run 5% slow", short_steps, slow_clocks},
    {"orphans-disk-lost", "the same, and then the coordinator's disk is lost", long_job, orphans_and_disk_lost},
    {"other-job", "a machine has another job file", NULL, other_job},
    {"other-job-alone", "a machine with another job file is the only one for a while", NULL, other_job_alone},
    {"arrivals", "workers arrive one after the other", NULL, arrivals},
    {"stop", "the job is stopped, and goes on with other machines", NULL, stop_and_go_on},
    {"stop-memory", "the same, with copies in memory only otherwise", without_files, stop_and_go_on},
    {"stop-none", "the same, without copies otherwise", without_copies, stop_and_go_on},
    {"lost-in-stop", "a member and the coordinator are lost while the job stops", NULL, lost_in_stop},
    {"ends-unheard", "instances end while nobody can write it down", four_wanted, ends_unheard},
    {"slow-worker", "one worker is slow: an event names it", with_prediction, slow_worker},
    {"mixed-speeds", "workers of speeds 1, 2 and 4: each gets its share", many_micro_batches, mixed_speeds},
    {"straggler", "one of four workers becomes half as fast, and well again", many_micro_batches, straggler},
    {"mixed-pipelines", "two stages, workers of two speeds: like ones train together", many_in_two, mixed_pipelines},
    {"wrong-prediction", "steps take longer than predicted: an event says so", with_wrong_prediction, wrong_prediction},
    {"late-files", "files of a copy set that was given up come late, and lie over no other", only_files, late_files},
    {"tiering", "all spot instances are lost; anchors that do not train have the state", with_remotes, tiering},
    {"late-remote", "the same, and the anchor comes when training has begun", with_remotes, late_remote},
    {"single-anchor", "the same, with one anchor that trains", without_files, single_anchor},
    {"zone-lost", "all instances of one zone are lost at once", three_without_files, zone_lost},
    {"instances-lost", "instances of two workers are lost as a whole", pairs, instances_lost},
    {"copies-apart", "one of two instances with all stages but a copy on each", pairs_without_files, copies_apart},
    {"damaged-copy", "the newest copy set is damaged everywhere: the one before is used", NULL, damaged_copy},
};
const size_t scenario_count = sizeof scenarios / sizeof *scenarios;
