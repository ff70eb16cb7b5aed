/* What faults cost a run: the built-in engine in four processes on this machine, under `tidemill run`, with kills of a
 * worker alone, of a whole instance (agent and worker), of the coordinator, with announced departures and with
 * arrivals.
 *
 * Recovery is the time from the kill to the next commit, less one undisturbed step; a pause is the time from the last
 * commit before a planned change to the first after it, less one step (of all four: fewer may step faster on few cores,
 * so either can be below 0). Times are the record's. Ratios are to torchrun
 * elastic on the same events as published with the issue that set the targets (bench/torch_recovery.py measures it).
 *
 * Use: bench_recovery TIDEMILL [ROUNDS [WIDTH]]; with a width of the network, planned changes alone, of that much
 * state. */
#include "api/api_client.h"
#include "base/alloc.h"
#include "base/paths.h"
#include "bench_tools.h"
#include "run/run_tap.h"
#include "run/state_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, ROUNDS_MAX = 64, WAIT_S = 60, SAMPLES_MAX = 4096 };

static pid_t running; /* the run under way; 0: none */

static void fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_recovery: %s: %s\n", what, why);
    if (running > 0) (void)kill(running, SIGTERM);
    exit(1);
}

static int64_t now_ms(void)
{
    return tm_env_real()->now_ms(tm_env_real());
}

static void pause_ms(int64_t ms)
{
    tm_env_real()->sleep_ms(tm_env_real(), ms);
}

/* ---- a run ---- */

struct run {
    char dir[256];
    pid_t pid;
    struct tm_api_client *client;
};

static void write_file(const char *path, const char *text)
{
    struct tm_error e;
    if (tm_env_real()->file_write(tm_env_real(), path, text, strlen(text), &e) != 0) fail(path, e.text);
}

/* A network whose step takes some 50 ms on four workers and two cores; a wider one gets less to do, for its state. */
static void write_job(const char *path, int width, const char *fleet)
{
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "name: recovery\nmodel: {gpt: {layers: 4, hidden: %d, heads: 4, ctx: %d, dropout: 0.1}}\n"
                   "data: kjv-new-testament\nbatch: %d\nmicro_batch: %d\nsteps: 1000000\nseed: 1\n"
                   "optimizer: {lr: 1e-3, clip: 1.0}\ndeterminism: bitwise\nfleet: {%s}\n",
                   width, width > 64 ? 8 : 64, width > 64 ? 4 : 16, width > 64 ? 1 : 2, fleet);
    write_file(path, text);
}

static void start_run(struct run *run, const char *tidemill, const char *folder, const char *name, const char *job,
                      const char *trace)
{
    char log[300];
    (void)snprintf(run->dir, sizeof run->dir, "%s/%s", folder, name);
    (void)snprintf(log, sizeof log, "%s.log", run->dir);
    (void)fflush(stdout);
    run->pid = fork();
    if (run->pid == 0) {
        if (freopen(log, "w", stdout) == NULL || dup2(STDOUT_FILENO, STDERR_FILENO) < 0) _exit(127);
        (void)execl(tidemill, tidemill, "run", job, "--state", run->dir, "--trace", trace, "-y", (char *)NULL);
        _exit(127);
    }
    running = run->pid;
    run->client = tm_api_client_create(tm_env_real(), run->dir);
    if (run->pid < 0 || run->client == NULL) fail(name, "cannot be started");
}

/* Until so many train, and `steps` more steps are committed with them. */
static void await_training(struct run *run, uint32_t workers, uint64_t steps)
{
    uint64_t since = 0;
    bool counted = false;
    for (int64_t end_ms = now_ms() + WAIT_S * 1000; now_ms() < end_ms; pause_ms(20)) {
        struct tm_run_status status;
        struct tm_error e;
        if (waitpid(run->pid, NULL, WNOHANG) != 0) fail(run->dir, "the run ended");
        if (tm_api_status(run->client, 2000, &status, &e) != 0) continue;
        bool all = status.pipelines * status.stages == workers && status.here >= workers;
        uint64_t committed = status.committed;
        tm_run_status_deinit(&status);
        if (!all) counted = false;
        if (all && !counted) since = committed;
        if (all) counted = true;
        if (all && committed >= since + steps) return;
    }
    fail(run->dir, "does not train with all workers");
}

static void stop_run(struct run *run)
{
    (void)kill(run->pid, SIGINT);
    (void)waitpid(run->pid, NULL, 0);
    running = 0;
    tm_api_client_destroy(run->client);
}

/* ---- what the record says ---- */

struct history {
    int64_t pause_end_ms[SAMPLES_MAX];
    double pause_ms[SAMPLES_MAX];
    enum tm_change_cause cause[SAMPLES_MAX];
    uint64_t base[SAMPLES_MAX];
    size_t pauses;
    int64_t told_ms[SAMPLES_MAX]; /* words of progress */
    uint64_t told_step[SAMPLES_MAX];
    size_t tolds;
    int64_t restart_ms[SAMPLES_MAX];
    size_t restarts;
    int64_t fence_ms[SAMPLES_MAX];
    size_t fences;
    int64_t loss_ms[SAMPLES_MAX]; /* words of a lost worker */
    size_t losses;
    uint64_t rolled_back;
    uint64_t redone;
};

static int take(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct history *h = context;
    (void)sequence;
    (void)e;
    if (event->body_case == TMW__RECORD_EVENT__BODY_PAUSE && h->pauses < SAMPLES_MAX) {
        h->pause_end_ms[h->pauses] = event->at_ms - (int64_t)event->pause->ago_ms;
        h->cause[h->pauses] = (enum tm_change_cause)event->pause->cause;
        h->pause_ms[h->pauses++] = (double)event->pause->pause_ms;
    }
    if (event->body_case == TMW__RECORD_EVENT__BODY_PROGRESS && h->tolds < SAMPLES_MAX) {
        h->told_ms[h->tolds] = event->at_ms;
        h->told_step[h->tolds++] = event->progress->step;
    }
    if (event->body_case == TMW__RECORD_EVENT__BODY_RESTART && h->restarts < SAMPLES_MAX)
        h->restart_ms[h->restarts++] = event->at_ms;
    if (event->body_case == TMW__RECORD_EVENT__BODY_LOSS && h->losses < SAMPLES_MAX)
        h->loss_ms[h->losses++] = event->at_ms;
    if (event->body_case == TMW__RECORD_EVENT__BODY_GENERATION) {
        if (event->generation->started) {
            h->rolled_back += event->generation->rolled_back;
            h->redone += event->generation->redone;
        } else if (h->fences < SAMPLES_MAX) {
            h->fence_ms[h->fences++] = event->at_ms;
        }
    }
    return 0;
}

static struct history *read_history(const struct run *run)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_error e = {.text = ""};
    struct history *h = tm_calloc(1, sizeof *h);
    tm_state_path(run->dir, TM_STATE_RECORD, path);
    if (h == NULL || tm_run_record_each(path, 0, SIZE_MAX, take, h, &e) != 0) fail(path, e.text);
    return h;
}

/* The median step between two words of progress with no change in between. */
static double undisturbed_step_ms(const struct history *h)
{
    double steps[SAMPLES_MAX];
    size_t count = 0;
    for (size_t i = 1; i < h->tolds; i++) {
        bool changed = h->told_step[i] <= h->told_step[i - 1];
        for (size_t f = 0; f < h->fences; f++)
            changed = changed || (h->fence_ms[f] > h->told_ms[i - 1] - 2000 && h->fence_ms[f] < h->told_ms[i] + 500);
        for (size_t f = 0; f < h->restarts; f++)
            changed =
                changed || (h->restart_ms[f] > h->told_ms[i - 1] - 2000 && h->restart_ms[f] < h->told_ms[i] + 500);
        if (!changed)
            steps[count++] =
                (double)(h->told_ms[i] - h->told_ms[i - 1]) / (double)(h->told_step[i] - h->told_step[i - 1]);
    }
    return bench_median(steps, count);
}

/* ---- victims ---- */

static int worker_of(const struct run *run, uint64_t instance)
{
    int pid = 0;
    return tm_state_worker(tm_env_real(), run->dir, instance, &pid, NULL) == 0 ? pid : 0;
}

static int parent_of(int pid)
{
    char path[64];
    char line[512] = "";
    int parent = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    if (fgets(line, sizeof line, file) != NULL && strrchr(line, ')') != NULL)
        (void)sscanf(strrchr(line, ')') + 1, " %*c %d", &parent);
    (void)fclose(file);
    return parent;
}

/* An instance that trains, another one each time. */
static uint64_t pick_instance(struct run *run, int round)
{
    struct tm_run_status status;
    struct tm_error e;
    if (tm_api_status(run->client, 5000, &status, &e) != 0) fail("status", e.text);
    uint64_t picked = status.seats[(size_t)round % (status.pipelines * status.stages)];
    tm_run_status_deinit(&status);
    return picked;
}

static int coordinator_of(const struct run *run)
{
    char command[512];
    int pid = 0;
    (void)snprintf(command, sizeof command, "pgrep -f -- 'coordinator --state %s$'", run->dir);
    FILE *pipe = popen(command, "r");
    if (pipe == NULL || fscanf(pipe, "%d", &pid) != 1) pid = 0;
    if (pipe != NULL) (void)pclose(pipe);
    return pid;
}

/* ---- the table ---- */

static void row(const char *what, double *values, size_t count, double target_s, double rival_s, const char *rival)
{
    double worst = -INFINITY;
    for (size_t i = 0; i < count; i++)
        worst = fmax(worst, values[i]);
    double middle = bench_median(values, count);
    printf("%-34s %7.3f s median %7.3f s worst of %-3zu", what, middle, worst, count);
    printf("  target %.1f s: %s", target_s, middle <= target_s ? "met   " : "MISSED");
    if (rival_s > 0) printf("  ratio %.3f of %s (%.0f s)", middle / rival_s, rival, rival_s);
    printf("\n");
}

/* From a kill to the next commit, less a step. NaN: none came. */
static double recovery_s(const struct history *h, int64_t killed_ms, double step_ms)
{
    for (size_t i = 0; i < h->pauses; i++)
        if (h->pause_end_ms[i] > killed_ms) return ((double)(h->pause_end_ms[i] - killed_ms) - step_ms) / 1000;
    return NAN;
}

static double detection_s(const struct history *h, int64_t killed_ms)
{
    for (size_t i = 0; i < h->losses; i++)
        if (h->loss_ms[i] >= killed_ms) return (double)(h->loss_ms[i] - killed_ms) / 1000;
    return NAN;
}

/* ---- the parts ---- */

struct kills {
    int64_t worker_ms[ROUNDS_MAX];
    int64_t instance_ms[ROUNDS_MAX];
    int64_t coordinator_ms[ROUNDS_MAX];
};

static void kill_things(struct run *run, int rounds, struct kills *out)
{
    await_training(run, WORKERS, 40);
    for (int i = 0; i < rounds; i++) {
        int worker = worker_of(run, pick_instance(run, i));
        if (worker <= 0) fail("kill", "no worker is found");
        out->worker_ms[i] = now_ms();
        (void)kill(worker, SIGKILL);
        await_training(run, WORKERS, 20);
        worker = worker_of(run, pick_instance(run, i + 1));
        int agent = worker > 0 ? parent_of(worker) : 0;
        if (agent <= 1) fail("kill", "no agent is found");
        out->instance_ms[i] = now_ms();
        (void)kill(agent, SIGKILL);
        (void)kill(worker, SIGKILL);
        await_training(run, WORKERS, 20);
        int coordinator = coordinator_of(run);
        if (coordinator <= 1) fail("kill", "no coordinator is found");
        out->coordinator_ms[i] = now_ms();
        (void)kill(coordinator, SIGKILL);
        await_training(run, WORKERS, 40);
    }
}

static void report_coordinator(const struct history *h, const int64_t *killed_ms, int rounds, double step_ms)
{
    double back[ROUNDS_MAX];
    double pace[ROUNDS_MAX];
    size_t count = 0;
    for (int i = 0; i < rounds; i++) {
        size_t before = 0;
        size_t after = 0;
        for (size_t k = 0; k < h->tolds; k++) {
            if (h->told_ms[k] <= killed_ms[i]) before = k;
            if (h->told_ms[k] > killed_ms[i] && after == 0) after = k;
        }
        if (after == 0) continue;
        back[count] = (double)(h->told_ms[after] - killed_ms[i]) / 1000;
        double took_ms = (double)(h->told_ms[after] - h->told_ms[before]);
        pace[count++] = (double)(h->told_step[after] - h->told_step[before]) * step_ms / took_ms;
    }
    row("coordinator killed: it is back", back, count, 2, 0, "");
    printf("%-34s %5.1f%% of the undisturbed pace meanwhile (median); torchrun: losing the head loses the job\n",
           "  training went on", 100 * bench_median(pace, count));
}

static void bench_kills(const char *tidemill, const char *folder, int rounds)
{
    struct run run;
    struct kills kills;
    char job[300];
    char trace[300];
    (void)snprintf(job, sizeof job, "%s/kills.yaml", folder);
    (void)snprintf(trace, sizeof trace, "%s/still.tmtrace", folder);
    write_job(job, 64, "speed: 1, limit: 4, scaled: 0, stages_min: 2, stages_max: 2");
    write_file(trace, "tidemill-trace 1\ninstance: p3.2xlarge\nend: 86400s\n\n0 +4\n");
    start_run(&run, tidemill, folder, "kills", job, trace);
    kill_things(&run, rounds, &kills);
    stop_run(&run);
    struct history *h = read_history(&run);
    double step_ms = undisturbed_step_ms(h);
    double instance[ROUNDS_MAX];
    double worker[ROUNDS_MAX];
    double found[2 * ROUNDS_MAX];
    size_t count = 0;
    for (int i = 0; i < rounds; i++) {
        instance[i] = recovery_s(h, kills.instance_ms[i], step_ms);
        worker[i] = recovery_s(h, kills.worker_ms[i], step_ms);
        found[count++] = detection_s(h, kills.instance_ms[i]);
        found[count++] = detection_s(h, kills.worker_ms[i]);
    }
    printf("an undisturbed step takes %.1f ms; a loss is known after %.0f ms (median)\n", step_ms,
           1000 * bench_median(found, count));
    row("instance killed, one of four", instance, (size_t)rounds, 1, 17.5, "torchrun elastic, tuned");
    row("worker killed alone", worker, (size_t)rounds, 0.3, 5, "torchrun elastic, tuned");
    report_coordinator(h, kills.coordinator_ms, rounds, step_ms);
    printf("%-34s %" PRIu64 " steps in flight done again, %" PRIu64 " rolled back\n", "  work", h->redone,
           h->rolled_back);
    tm_free(h);
}

/* Instances come and go as announced, one every three seconds. */
static void bench_planned(const char *tidemill, const char *folder, int rounds, int width)
{
    struct run run;
    char job[300];
    char trace[300];
    struct tm_text text;
    (void)snprintf(job, sizeof job, "%s/planned.yaml", folder);
    (void)snprintf(trace, sizeof trace, "%s/planned.tmtrace", folder);
    write_job(job, width, "speed: 1, limit: 4, scaled: 0, notice: 2s, stages_min: 2, stages_max: 2");
    tm_text_init(&text, 1 << 16);
    tm_text_puts(&text, "tidemill-trace 1\ninstance: p3.2xlarge\nend: 86400s\n\n0 +4\n");
    for (int i = 0; i < rounds; i++)
        tm_text_printf(&text, "%d -1\n%d +1\n", 10 + 8 * i, 13 + 8 * i);
    write_file(trace, tm_text_string(&text));
    tm_text_deinit(&text);
    start_run(&run, tidemill, folder, "planned", job, trace);
    await_training(&run, WORKERS, 20);
    for (int64_t end_ms = now_ms() + (8 * rounds + 10) * 1000; now_ms() < end_ms; pause_ms(100))
        if (waitpid(run.pid, NULL, WNOHANG) != 0) fail(run.dir, "the run ended");
    stop_run(&run);
    struct history *h = read_history(&run);
    double step_ms = undisturbed_step_ms(h);
    double leave[SAMPLES_MAX];
    double join[SAMPLES_MAX];
    size_t leaves = 0;
    size_t joins = 0;
    for (size_t i = 1; i < h->pauses; i++) { /* the first belongs to the start */
        double s = (h->pause_ms[i] - step_ms) / 1000;
        if (h->cause[i] == TM_CHANGED_NOTICE) leave[leaves++] = s;
        if (h->cause[i] == TM_CHANGED_ARRIVAL) join[joins++] = s;
    }
    printf("planned changes, with %.1f MB of state in steps of %.1f ms:\n", 4 * 12.0 * width * width * 12 / 1e6,
           step_ms);
    row("planned departure: pause", leave, leaves, 0.5, 0, "");
    row("join: pause", join, joins, 0.5, 0, "");
    printf("%-34s %" PRIu64 " steps done again, %" PRIu64 " rolled back\n", "  work", h->redone, h->rolled_back);
    tm_free(h);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/tidemill-bench-XXXXXX";
    int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 7;
    int width = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 64;
    if (argc < 2 || rounds < 1 || rounds > ROUNDS_MAX || width < 4 || width > 4096 || width % 4 != 0)
        fail("use", "bench_recovery TIDEMILL [ROUNDS [WIDTH]]");
    if (mkdtemp(folder) == NULL) fail(folder, strerror(errno));
    (void)setenv("TIDEMILL_DATA_DIR", folder, 1);
    printf(
        "faults, four workers of the built-in engine, %d of each; torchrun's figures as published with the targets:\n",
        rounds);
    if (argc <= 3) bench_kills(argv[1], folder, rounds);
    bench_planned(argv[1], folder, rounds, width);
    char command[300];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : 1;
}
