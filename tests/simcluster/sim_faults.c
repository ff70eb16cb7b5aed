/* What goes wrong: by dice from the seed, or by the script of a scenario. */
#include "sim.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

/* ---- single faults ---- */

bool fault_may(const struct sim *sim, enum sim_fault_kind kind)
{
    return !sim->choice->off[kind];
}

bool fault_comes(struct sim *sim, enum sim_fault_kind kind)
{
    if (!fault_may(sim, kind)) return false;
    sim->fault_kinds[kind]++;
    return true;
}

static struct node *any_node(struct sim *sim)
{
    struct node *up[INSTANCES_MAX];
    size_t count = 0;
    for (size_t i = 1; i < sim->node_count; i++)
        if (sim->instances[i].up) up[count++] = &sim->instances[i];
    return count == 0 ? NULL : up[sim_below(sim, count)];
}

static size_t instances_up(const struct sim *sim)
{
    size_t count = 0;
    for (size_t i = 1; i < sim->node_count; i += sim->workers)
        count += sim->instances[i].up && !sim->instances[i].other_job;
    return count;
}

static void arrive(struct sim *sim, struct event *event)
{
    (void)event;
    (void)sim_add_instance(sim);
}

static void taken(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    if (!node->up || (sim->faults.until_ms > 0 && sim->now_ms >= sim->faults.until_ms)) return;
    sim_instance_gone(sim, node);
    if (sim->cloud_passive && instances_up(sim) < sim->fleet_max && sim_unit(sim) < 0.8)
        sim_schedule(sim, sim->now_ms + 1000 + (int64_t)sim_below(sim, 20000), arrive, 0, 0, 0, 0, NULL, 0);
}

/* All spot instances at once: what is left is what anchors hold, and files. */
static void spot_lost(struct sim *sim, struct event *event)
{
    (void)event;
    if (sim->now_ms >= sim->faults.until_ms || sim->finished) return;
    if (!fault_comes(sim, FAULT_SPOT_LOST)) return;
    sim_trace(sim, "all spot instances are taken");
    sim->fault_count++;
    for (size_t i = 1; i < sim->node_count; i++) {
        if (!sim->instances[i].up || !sim->instances[i].spot) continue;
        sim_instance_gone(sim, &sim->instances[i]);
        if (sim->cloud_passive)
            sim_schedule(sim, sim->now_ms + 1000 + (int64_t)sim_below(sim, 20000), arrive, 0, 0, 0, 0, NULL, 0);
    }
}

static void notice(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    int64_t left_ms = (int64_t)event->b - 1; /* 0: taken back */
    if (left_ms < 0) node->announced = false;
    if (!node->up || !node->agent_up) return;
    struct tm_outbox out;
    tm_outbox_init(&out);
    sim_trace(sim, "notice to %llu: %lld ms", (unsigned long long)node->id, (long long)left_ms);
    tm_agent_notice(&node->agent, sim_clock(sim, node), left_ms, &out);
    for (size_t i = 0; i < out.count; i++) /* only messages: the rest waits for the next tick */
        if (out.actions[i].kind == TM_ACTION_SEND) node->agent.said_ms = -1;
    tm_outbox_deinit(&out);
}

void fault_notice(struct sim *sim, struct node *node, int64_t left_ms, int64_t told_ms)
{
    uint64_t first = sim_first(sim, node->id);
    for (uint64_t i = first; i < sim_next(sim, first); i++) {
        sim->instances[i].announced =
            tm_instance_of_worker(i, sim->workers) % 2 == 0; /* of some the cloud's listing says it too */
        sim->instances[i].notice_end_ms = sim->now_ms + told_ms;
        sim_schedule(sim, sim->now_ms, notice, i, (uint64_t)(told_ms + 1), 0, 0, NULL, 0);
    }
    if (left_ms >= 0) sim_schedule(sim, sim->now_ms + left_ms, taken, node->id, 0, 0, 0, NULL, 0);
}

static void notice_all(struct sim *sim, const struct node *node, int64_t at_ms, uint64_t left)
{
    for (uint64_t i = sim_first(sim, node->id); i < sim_next(sim, node->id); i++)
        sim_schedule(sim, at_ms, notice, i, left, 0, 0, NULL, 0);
}

void fault_notice_undone(struct sim *sim, struct node *node)
{
    notice_all(sim, node, sim->now_ms, 0);
}

static void mend_link(struct sim *sim, struct event *event)
{
    sim->faults.cut[event->a][event->b] = false;
}

void fault_cut(struct sim *sim, uint64_t from, uint64_t to, int64_t for_ms)
{
    sim_trace(sim, "link %llu -> %llu is cut for %lld ms", (unsigned long long)from, (unsigned long long)to,
              (long long)for_ms);
    sim->faults.cut[from][to] = true;
    sim_schedule(sim, sim->now_ms + for_ms, mend_link, from, to, 0, 0, NULL, 0);
}

static void partition(struct sim *sim, int64_t for_ms)
{
    uint64_t side = tm_random_u64(&sim->random);
    if (!fault_comes(sim, FAULT_PARTITION)) return;
    for (uint64_t i = 0; i < sim->node_count; i++)
        for (uint64_t k = 0; k < sim->node_count; k++)
            if ((side >> i % 64 & 1) != (side >> k % 64 & 1)) fault_cut(sim, i, k, for_ms);
}

static void files_up(struct sim *sim, struct event *event)
{
    (void)event;
    sim->faults.files_down = false;
    sim->faults.files_slow_ms = 0;
}

void fault_files_full(struct sim *sim, int64_t for_ms)
{
    sim_trace(sim, "the disk for copies is full for %lld ms", (long long)for_ms);
    sim->faults.files_full_ms = sim->now_ms + for_ms;
}

/* Nobody mends it for long. */
static void disk_fault(struct sim *sim)
{
    int64_t for_ms = 20000 + (int64_t)tm_random_below(&sim->odd, 100000);
    switch (tm_random_below(&sim->odd, 3)) {
    case 0:
        if (fault_comes(sim, FAULT_FILES_FULL)) fault_files_full(sim, for_ms);
        break;
    case 1:
        if (!fault_comes(sim, FAULT_FILES_UNREADABLE)) break;
        sim_trace(sim, "copies in files cannot be read for %lld ms", (long long)for_ms);
        sim->faults.files_unreadable_ms = sim->now_ms + for_ms;
        break;
    default:
        if (!fault_comes(sim, FAULT_RECORD_FULL)) break;
        sim_trace(sim, "the coordinator's disk is full for %lld ms", (long long)for_ms);
        sim->faults.record_full_ms = sim->now_ms + for_ms;
    }
}

static void damage_file(struct sim *sim)
{
    if (sim->file_count == 0) return;
    struct stored_file *file = &sim->files[sim_below(sim, sim->file_count)];
    if (file->length == 0 || file->layer == UINT32_MAX) return;
    bool torn = sim_unit(sim) < 0.5;
    if (!fault_comes(sim, torn ? FAULT_FILE_TORN : FAULT_FILE_DAMAGED)) return;
    sim_trace(sim, "file of set %llu, layer %u is damaged", (unsigned long long)file->set, file->layer);
    if (torn)
        file->length = (size_t)sim_below(sim, file->length);
    else
        file->data[sim_below(sim, file->length)] ^= 0x10;
    file->damaged = true;
}

/* This copy alone: what is still on its way to others and to files shares its block. */
void sim_damage_part(struct node *node, struct tm_copy_part *part, uint64_t at)
{
    struct tm_block *bad = tm_block_create(tm_worker_blocks(node->worker), part->block->size);
    assert(bad != NULL);
    memcpy(bad->data, part->block->data, part->block->size);
    bad->data[at] ^= 1;
    tm_block_release(part->block);
    part->block = bad;
}

static void damage_copy(struct sim *sim)
{
    struct node *node = any_node(sim);
    if (node == NULL || node->worker == NULL) return;
    const struct tm_copies *copies = tm_worker_look(node->worker, 0).copies;
    if (copies->count == 0) return;
    struct tm_copy_part *part = &copies->parts[sim_below(sim, copies->count)];
    if (!part->complete || !fault_comes(sim, FAULT_COPY_DAMAGED)) return;
    sim_trace(sim, "copy of set %llu, layer %u at worker %llu is damaged", (unsigned long long)part->name.set,
              part->name.layer, (unsigned long long)node->id);
    sim_damage_part(node, part, sim_below(sim, part->name.size));
}

static void recover_speed(struct sim *sim, struct event *event)
{
    sim->instances[event->a].slow = sim->instances[event->a].usual_slow;
}

/* ---- by dice ---- */

static void notice_fault(struct sim *sim, struct node *node)
{
    int64_t left_ms = 5000 + (int64_t)sim_below(sim, 60000);
    switch (sim_below(sim, 6)) {
    case 0: /* too late to be of use */
        if (!fault_comes(sim, FAULT_NOTICE_LATE)) break;
        fault_notice(sim, node, 100, 100);
        break;
    case 1: /* false: nothing happens, and nobody takes it back until the end */
        if (!fault_comes(sim, FAULT_NOTICE_FALSE)) break;
        fault_notice(sim, node, -1, left_ms);
        notice_all(sim, node, sim->now_ms + left_ms, 0);
        break;
    case 2: /* taken back */
        if (!fault_comes(sim, FAULT_NOTICE_UNDONE)) break;
        fault_notice(sim, node, -1, left_ms);
        notice_all(sim, node, sim->now_ms + left_ms / 3, 0);
        break;
    case 3: /* twice */
        if (!fault_comes(sim, FAULT_NOTICE_TWICE)) break;
        fault_notice(sim, node, left_ms, left_ms);
        notice_all(sim, node, sim->now_ms + left_ms / 2, (uint64_t)(left_ms / 2 + 1));
        break;
    case 4: /* comes true sooner than it said */
        if (!fault_comes(sim, FAULT_NOTICE_SHORT)) break;
        fault_notice(sim, node, left_ms / 4, left_ms);
        break;
    default:
        if (fault_comes(sim, FAULT_NOTICE_RIGHT)) fault_notice(sim, node, left_ms, left_ms);
    }
}

static void node_fault(struct sim *sim, uint64_t kind, struct node *node)
{
    switch (kind) {
    case 0:
        if (!fault_comes(sim, FAULT_WORKER_KILLED)) break;
        sim_worker_kill(sim, node);
        break;
    case 1:
        if (!fault_comes(sim, FAULT_AGENT_KILLED)) break;
        sim_agent_kill(sim, node, 500 + (int64_t)sim_below(sim, 10000));
        break;
    case 2:
        if (!fault_comes(sim, FAULT_INSTANCE_TAKEN)) break;
        sim_schedule(sim, sim->now_ms, taken, node->id, 0, 0, 0, NULL, 0);
        break;
    case 3:
    case 4:
        notice_fault(sim, node);
        break;
    case 5:
        if (!fault_comes(sim, FAULT_WORKER_STILL)) break;
        node->paused_ms = sim->now_ms + 500 + (int64_t)sim_below(sim, 25000);
        break;
    case 6:
        if (!fault_comes(sim, FAULT_WORKER_HANGS)) break;
        node->hangs = node->worker != NULL;
        break;
    case 7:
        if (!fault_comes(sim, FAULT_WORKER_SLOW)) break;
        node->slow = (2 + (double)sim_below(sim, 8)) * node->usual_slow;
        sim_schedule(sim, sim->now_ms + 20000, recover_speed, node->id, 0, 0, 0, NULL, 0);
        break;
    case 8: /* of one that lives */
        if (!fault_comes(sim, FAULT_CONNECTION_LOST)) break;
        if (node->worker != NULL) sim_disconnect(sim, node, TM_ROLE_WORKER);
        if (node->agent_up && sim_unit(sim) < 0.5) sim_disconnect(sim, node, TM_ROLE_AGENT);
        break;
    default:
        if (fault_comes(sim, FAULT_AGENT_STILL))
            node->agent_paused_ms = sim->now_ms + 500 + (int64_t)sim_below(sim, 15000);
    }
}

static void files_fault(struct sim *sim)
{
    bool slow = sim_unit(sim) < 0.3;
    if (!fault_comes(sim, slow ? FAULT_FILES_SLOW : FAULT_FILES_DOWN)) return;
    if (slow)
        sim->faults.files_slow_ms = (int64_t)sim_below(sim, 30000);
    else
        sim->faults.files_down = true;
    sim_schedule(sim, sim->now_ms + 2000 + (int64_t)sim_below(sim, 20000), files_up, 0, 0, 0, 0, NULL, 0);
}

static void cloud_fault(struct sim *sim)
{
    bool killed = sim_unit(sim) < 0.3;
    if (sim->runs.down) return;
    if (!fault_comes(sim, killed ? FAULT_CLOUD_KILLED : FAULT_CLOUD_STILL)) return;
    if (killed)
        cloud_start(sim);
    else
        sim->cloud_paused_ms = sim->now_ms + 500 + (int64_t)sim_below(sim, 25000);
}

static void world_fault(struct sim *sim, uint64_t kind)
{
    uint64_t a = sim_below(sim, sim->node_count);
    uint64_t b = sim_below(sim, sim->node_count);
    switch (kind) {
    case 0:
        if (!fault_comes(sim, FAULT_COORDINATOR_KILLED)) break;
        sim_coordinator_crash(sim, sim_unit(sim) < 0.15 && fault_may(sim, FAULT_DISK_LOST),
                              200 + (int64_t)sim_below(sim, 30000));
        break;
    case 1: /* counted when it comes to it, as is a sync that fails */
        if (fault_may(sim, FAULT_COORDINATOR_KILLED_BETWEEN)) sim->crash_after_actions = (int64_t)sim_below(sim, 12);
        break;
    case 2:
        sim->fail_next_sync = fault_may(sim, FAULT_SYNC_FAILED);
        break;
    case 3:
        if (!fault_comes(sim, FAULT_COORDINATOR_STILL)) break;
        sim->coordinator_paused_ms = sim->now_ms + 500 + (int64_t)sim_below(sim, 12000);
        break;
    case 4:
        if (a == b) break;
        if (!fault_comes(sim, FAULT_LINK_CUT)) break;
        fault_cut(sim, a, b, 2000 + (int64_t)sim_below(sim, 40000)); /* one way */
        break;
    case 5:
        partition(sim, 2000 + (int64_t)sim_below(sim, 30000));
        break;
    case 6:
        files_fault(sim);
        break;
    case 7:
        damage_file(sim);
        break;
    case 8:
        damage_copy(sim);
        break;
    case 9:
        if (!fault_comes(sim, FAULT_CLOCK_JUMP)) break;
        sim->faults.utc_jump_ms = (int64_t)sim_below(sim, 7200000) - 3600000;
        break;
    case 10:
        if (fault_may(sim, FAULT_MEMORY))
            sim->faults.memory_short_ms = sim->now_ms + 200 + (int64_t)sim_below(sim, 4000);
        break;
    case 11:
        cloud_fault(sim);
        break;
    case 12:
        if (!fault_comes(sim, FAULT_SUPPLY)) break;
        sim->supply = 1 + (size_t)sim_below(sim, sim->fleet_max);
        break;
    default:
        if (instances_up(sim) + 1 < sim->fleet_max) (void)sim_add_instance(sim);
    }
}

static void next_fault(struct sim *sim, struct event *event)
{
    if (sim->now_ms >= sim->faults.until_ms || sim->finished) return;
    struct node *node = any_node(sim);
    sim->fault_count++;
    if (node != NULL && sim_unit(sim) < 0.6)
        node_fault(sim, sim_below(sim, 10), node);
    else
        world_fault(sim, sim_below(sim, 14));
    double mean_ms = (double)event->a;
    sim_schedule(sim, sim->now_ms + (int64_t)tm_random_exponential(&sim->random, mean_ms), next_fault, event->a, 0, 0,
                 0, NULL, 0);
}

/* A machine with another job file comes: it has the token, and would train something else. Not where pools run dry: a
 * job that has no other machines fails by it, as it should. */
static void other_job(struct sim *sim)
{
    if (sim->pool_count > 0) return;
    if (instances_up(sim) + 1 >= sim->fleet_max || !fault_may(sim, FAULT_JOB_DIFFERS)) return;
    struct node *node = sim_add_instance(sim);
    if (node == NULL || !fault_comes(sim, FAULT_JOB_DIFFERS)) return;
    node->other_job = true;
    sim_alike(sim, node);
    sim_schedule(sim, sim->now_ms + 20000 + (int64_t)tm_random_below(&sim->odd, 40000), taken, node->id, 0, 0, 0, NULL,
                 0); /* somebody sees why it is refused */
}

/* Rarer than the others, and longer. From dice of their own, so that a seed without them is what it was. */
static void next_odd_fault(struct sim *sim, struct event *event)
{
    if (sim->now_ms >= sim->faults.until_ms || sim->finished) return;
    sim->fault_count++;
    switch (tm_random_below(&sim->odd, 8)) {
    case 0:
        disk_fault(sim);
        break;
    case 5:
        other_job(sim);
        break;
    case 6:
        runs_second(sim);
        break;
    case 7:
        runs_kill(sim);
        break;
    case 3:
        split_second(sim);
        break;
    case 4:
        split_move(sim, tm_random_unit(&sim->odd) < 0.3 ? 0 : 500 + (int64_t)tm_random_below(&sim->odd, 60000));
        break;
    case 1:
        hostile_replays(sim);
        break;
    default:
        hostile_speaks(sim);
    }
    sim_schedule(sim, sim->now_ms + (int64_t)tm_random_exponential(&sim->odd, (double)event->a), next_odd_fault,
                 event->a, 0, 0, 0, NULL, 0);
}

/* Everything is mended, and there are machines enough: from here on the job must get on. */
void faults_stop(struct sim *sim, struct event *event)
{
    (void)event;
    if (sim->faults.over) return;
    sim->faults.over = true;
    sim_trace(sim, "---- faults stop ----");
    sim->faults.loss = sim->faults.duplicate = sim->faults.long_delay = 0;
    sim->faults.delay_ms_max = 0;
    sim->faults.files_down = false;
    sim->faults.files_full_ms = sim->faults.files_unreadable_ms = sim->faults.record_full_ms = 0;
    sim->faults.files_slow_ms = 0;
    sim->faults.memory_short_ms = 0;
    sim->fail_next_sync = false;
    sim->crash_after_actions = -1;
    sim->supply = INSTANCES_MAX;
    pools_mend(sim);
    if (!sim->runs.down) sim->cloud_paused_ms = 0;
    split_end(sim);
    memset(sim->faults.cut, 0, sizeof sim->faults.cut);
    for (size_t i = 1; i < sim->node_count; i++) {
        struct node *node = &sim->instances[i];
        node->slow = node->usual_slow;
        node->announced = false;
        if (node->other_job) sim_instance_gone(sim, node); /* somebody saw why it was refused */
        if (node->up && node->agent_up) {
            struct event undo = {.a = node->id, .b = 0};
            notice(sim, &undo);
        }
    }
    while (instances_up(sim) < sim->stages + 1 + sim->coordinator_options.remotes / sim->workers &&
           sim_add_instance(sim) != NULL)
        continue;
}

/* Messages, all through the run. */
static void plan_network(struct sim *sim)
{
    static const double losses[] = {0, 0, 0.01, 0.05, 0.2};
    struct faults *faults = &sim->faults;
    double loss = losses[sim_below(sim, 5)];
    double duplicate = losses[sim_below(sim, 5)];
    double long_delay = sim_unit(sim) < 0.3 ? 0.002 : 0;
    faults->loss = fault_may(sim, FAULT_MESSAGE_LOST) ? loss : 0;
    faults->duplicate = fault_may(sim, FAULT_MESSAGE_DOUBLED) ? duplicate : 0;
    faults->long_delay = fault_may(sim, FAULT_MESSAGE_LATE) ? long_delay : 0;
    faults->delay_ms_max = sim_unit(sim) < 0.4 ? 400 : 0;
}

/* In some runs the coordinator's disk takes its time, and the coordinator goes on meanwhile. */
static void plan_disk(struct sim *sim)
{
    sim->disk = tm_random_make(sim->seed, 0x6469736b);
    if (tm_random_below(&sim->disk, 3) == 0) sim->sync_ms_max = 1 + tm_random_below(&sim->disk, 300);
}

void faults_plan(struct sim *sim)
{
    struct faults *faults = &sim->faults;
    plan_disk(sim);
    size_t few = 2 + (size_t)sim_below(sim, 6);
    size_t count = sim->choice->instances > 0 ? sim->choice->instances : few;
    for (size_t i = 0; i < count + sim->anchors; i++) {
        struct node *node = sim_add_instance(sim);
        node->anchor = sim_unit(sim) < 0.15 || i < sim->anchors;
        node->spot = i >= sim->anchors;
        node->clock_ppm = (int64_t)sim_below(sim, 60000) - 30000;
        sim_alike(sim, node);
        pools_place_any(sim, node);
    }
    plan_network(sim);
    pools_plan(sim);
    faults->until_ms = 60000 + (int64_t)sim_below(sim, 180000);
    double mean_ms = (2000 + (double)sim_below(sim, 20000)) / sim->choice->scale;
    double odd_ms = (20000 + (double)tm_random_below(&sim->odd, 100000)) / sim->choice->scale;
    sim_schedule(sim, 5000, next_fault, (uint64_t)mean_ms + 1, 0, 0, 0, NULL, 0);
    sim_schedule(sim, 5000 + (int64_t)tm_random_below(&sim->odd, 60000), next_odd_fault, (uint64_t)odd_ms + 1, 0, 0, 0,
                 NULL, 0);
    bool stops = sim_unit(sim) < 0.25;
    if (stops)
        orders_stop(sim, 5000 + (int64_t)sim_below(sim, (uint64_t)faults->until_ms),
                    2000 + (int64_t)sim_below(sim, 30000), sim_unit(sim) < 0.3);
    if (stops) sim->stop_at_once = sim_unit(sim) < 0.2;
    for (int64_t at_ms = 10000, i = 0; sim->anchors > 0 && i < 3; i++) {
        at_ms += (int64_t)sim_below(sim, 60000);
        sim_schedule(sim, at_ms, spot_lost, 0, 0, 0, 0, NULL, 0);
    }
    sim_schedule(sim, faults->until_ms, faults_stop, 0, 0, 0, 0, NULL, 0);
}
