/* Two `run`s on one state folder: the real run/state_folder.h over a folder and processes of ours. A second one is
 * started while the first lives; the first is killed, and two are started at once, the second in the middle of what the
 * first does about the folder. One of them has the job, and what the killed one left is ended before it goes on. */
#include "sim.h"

#include "run/state_folder.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_PID = 100, CALLS_MOST = 12, STARTS_AFTER_MS = 15000 };

/* ---- the folder and the processes, as one program sees them ---- */

static int start_run(struct sim *sim, int pid);

/* Between any two of its calls another program may do all that it has to do. */
static struct runs *calls(struct tm_env *env)
{
    struct sim *sim = env->self;
    struct runs *runs = &sim->runs;
    if (runs->other_pid != 0 && runs->other_in-- == 0) {
        int pid = runs->other_pid;
        int self = runs->self_pid;
        runs->other_pid = 0;
        runs->other_rc = start_run(sim, pid);
        runs->self_pid = self;
    }
    return runs;
}

static bool is_alive(const struct runs *runs, int pid)
{
    return pid >= FIRST_PID && pid < FIRST_PID + RUNS_MAX && runs->alive[pid - FIRST_PID];
}

static int env_self(struct tm_env *env)
{
    return calls(env)->self_pid;
}

static int env_lock(struct tm_env *env, const char *path, int *out_handle, struct tm_error *e)
{
    struct runs *runs = calls(env);
    if (is_alive(runs, runs->lock_pid)) return tm_error_set(e, TM_EBUSY, "%s: in use by another process", path);
    runs->lock_pid = runs->self_pid;
    *out_handle = 1;
    return 0;
}

static void env_unlock(struct tm_env *env, int handle)
{
    struct runs *runs = calls(env);
    (void)handle;
    if (runs->lock_pid == runs->self_pid) runs->lock_pid = 0;
}

static int env_read(struct tm_env *env, const char *path, struct tm_text *out, struct tm_error *e)
{
    const struct runs *runs = calls(env);
    if (runs->owner[0] == '\0') return tm_error_set(e, TM_ENOTFOUND, "%s: No such file or directory", path);
    tm_text_append(out, runs->owner, strlen(runs->owner));
    return tm_text_status(out, e);
}

static int env_write(struct tm_env *env, const char *path, const char *data, size_t length, struct tm_error *e)
{
    struct runs *runs = calls(env);
    (void)path;
    (void)e;
    (void)snprintf(runs->owner, sizeof runs->owner, "%.*s", (int)length, data);
    return 0;
}

static int env_started(struct tm_env *env, int pid, int64_t *out_start, struct tm_error *e)
{
    const struct runs *runs = calls(env);
    if (!is_alive(runs, pid)) return tm_error_set(e, TM_ENOTFOUND, "process %d is gone", pid);
    *out_start = 7 * pid;
    return 0;
}

/* All that the one before has started, on this machine: coordinator, agents, workers. */
static int env_end_marked(struct tm_env *env, const char *mark, int *out_count, struct tm_error *e)
{
    struct sim *sim = env->self;
    (void)calls(env);
    (void)mark;
    (void)e;
    *out_count = 0;
    split_end(sim);
    if (sim->coordinator != NULL) sim_coordinator_crash(sim, false, 0);
    for (size_t i = 1; i < sim->node_count; i++) {
        *out_count += sim->instances[i].up;
        sim_instance_gone(sim, &sim->instances[i]);
    }
    return 0;
}

static uint64_t env_random(struct tm_env *env)
{
    struct sim *sim = env->self;
    (void)calls(env);
    return tm_random_u64(&sim->odd);
}

static void env_sleep(struct tm_env *env, int64_t ms)
{
    (void)calls(env);
    (void)ms;
}

/* 0: this one has the job. */
static int start_run(struct sim *sim, int pid)
{
    struct tm_env env = {.self = sim,
                         .process_self = env_self,
                         .file_lock = env_lock,
                         .file_unlock = env_unlock,
                         .file_read = env_read,
                         .file_write = env_write,
                         .file_write_private = env_write,
                         .process_started = env_started,
                         .process_end_marked = env_end_marked,
                         .random_u64 = env_random,
                         .sleep_ms = env_sleep};
    struct tm_state_owner owner;
    int leftovers = 0;
    sim->runs.self_pid = pid;
    sim->runs.alive[pid - FIRST_PID] = true;
    int rc = tm_state_own(&env, "state", &owner, &leftovers, NULL);
    sim_trace(sim, "run %d %s", pid, rc == 0 ? "has the job" : "is refused");
    if (rc != 0) sim->runs.alive[pid - FIRST_PID] = false;
    return rc;
}

static int new_pid(struct sim *sim)
{
    return sim->runs.count < RUNS_MAX ? FIRST_PID + (int)sim->runs.count++ : 0;
}

/* ---- what happens ---- */

void runs_begin(struct sim *sim)
{
    sim->runs.pid = new_pid(sim);
    if (start_run(sim, sim->runs.pid) != 0) sim_fail(sim, "two runs: the only one is refused");
}

void runs_second(struct sim *sim)
{
    int pid = sim->runs.down || sim->stopped ? 0 : new_pid(sim);
    if (pid == 0 || !fault_comes(sim, FAULT_RUN_SECOND)) return;
    if (start_run(sim, pid) == 0) sim_fail(sim, "two runs: a second one has the job of one that lives");
}

/* Whoever gets the folder starts all anew; the other ends. */
static void start_two(struct sim *sim, struct event *event)
{
    struct runs *runs = &sim->runs;
    int first = new_pid(sim);
    int second = new_pid(sim);
    (void)event;
    if (second == 0) first = first == 0 ? runs->pid : first;
    runs->other_pid = second;
    runs->other_in = (int)tm_random_below(&sim->odd, CALLS_MOST);
    runs->other_rc = -1;
    int rc = start_run(sim, first);
    runs->other_pid = 0; /* it was done before the other's turn came */
    if (rc == 0 && runs->other_rc == 0) sim_fail(sim, "two runs: both have the job");
    if (rc != 0 && runs->other_rc != 0) sim_fail(sim, "two runs: neither has the job");
    runs->pid = rc == 0 ? first : second;
    runs->down = false;
    sim->cloud_paused_ms = 0;
    cloud_start(sim);
    sim->resumes = true;
    sim_coordinator_start(sim);
    for (size_t i = 0; sim->cloud_passive && i < sim->stages + 2; i++)
        (void)sim_add_instance(sim);
}

/* By somebody's kill -9: the cloud's program is part of it, and the coordinator ends when it sees that it is alone. */
void runs_kill(struct sim *sim)
{
    struct runs *runs = &sim->runs;
    if (runs->down || sim->stopped || sim->finished || runs->count + 2 > RUNS_MAX) return;
    if (!fault_comes(sim, FAULT_RUN_KILLED)) return;
    sim_trace(sim, "run %d is killed", runs->pid);
    runs->alive[runs->pid - FIRST_PID] = false;
    runs->down = true;
    sim->cloud_paused_ms = INT64_MAX;
    sim_schedule(sim, sim->now_ms + (int64_t)tm_random_below(&sim->odd, STARTS_AFTER_MS), start_two, 0, 0, 0, 0, NULL,
                 0);
    split_end(sim);
    if (sim->coordinator != NULL) sim_coordinator_crash(sim, false, 0);
}
