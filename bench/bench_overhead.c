/* What fault tolerance costs while nothing fails: one job, two workers of the built-in engine as processes that talk
 * over TCP, first as `tidemill train` (no coordinator, no agents, no votes, no copies), then under `tidemill run` with
 * all of it, copies at the policy's interval among them; turn by turn, with the same steps to the same weights.
 *
 * Starting and ending cost each of them something else and are left out: each is run with few steps and with many, and
 * the difference counts. CPU time is of all its processes. Parts are what the kinds of processes of the longest runs
 * took, looked at ten times a second.
 *
 * Use: bench_overhead TIDEMILL [ROUNDS [STEPS]] */
#include "base/alloc.h"
#include "base/env.h"
#include "bench_tools.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS_MAX = 32, STEPS_FEW = 20, TOKENS_STEP = 12 * 48, PROCESSES_MAX = 64, LOOK_MS = 100 };

static pid_t running; /* 0: none */

static void fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_overhead: %s: %s\n", what, why);
    if (running > 0) (void)kill(running, SIGTERM);
    exit(1);
}

/* ---- which process took how much ---- */

enum { PART_RUN, PART_COORDINATOR, PART_AGENTS, PART_WORKERS, PARTS };
static const char *const part_words[PARTS] = {"run", "coordinator", "agent", "worker"};

struct process {
    int pid;
    int part;
    double cpu_s;
};

struct processes {
    struct process list[PROCESSES_MAX];
    size_t count;
};

/* The second word of its command: what it is. */
static int part_of(int pid)
{
    char path[64];
    char words[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return -1;
    size_t length = fread(words, 1, sizeof words - 1, file);
    (void)fclose(file);
    const char *second = words + strlen(words) + 1;
    for (int p = 0; second < words + length && p < PARTS; p++)
        if (strcmp(second, part_words[p]) == 0) return p;
    return -1;
}

static bool stat_of(int pid, int *parent, double *cpu_s)
{
    char path[64];
    char line[1024] = "";
    unsigned long user = 0;
    unsigned long system = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    bool read = fgets(line, sizeof line, file) != NULL && strrchr(line, ')') != NULL;
    (void)fclose(file);
    if (!read || sscanf(strrchr(line, ')') + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", parent, &user,
                        &system) != 3)
        return false;
    *cpu_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    return true;
}

static struct process *known(struct processes *all, int pid)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->list[i].pid == pid) return &all->list[i];
    return NULL;
}

/* Children come after their parents in /proc, or are found at the next look. */
static void look(struct processes *all)
{
    DIR *folder = opendir("/proc");
    const struct dirent *entry = NULL;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        int parent = 0;
        double cpu_s = 0;
        int pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
        if (pid == 0 || !stat_of(pid, &parent, &cpu_s)) continue;
        struct process *process = known(all, pid);
        if (process == NULL && (pid == running || known(all, parent) != NULL) && all->count < PROCESSES_MAX) {
            process = &all->list[all->count++];
            *process = (struct process){.pid = pid};
        }
        if (process == NULL) continue;
        process->part = part_of(pid) >= 0 ? part_of(pid) : process->part;
        process->cpu_s = cpu_s;
    }
    if (folder != NULL) (void)closedir(folder);
}

/* ---- a run of either kind ---- */

struct cost {
    double wall_s;
    double cpu_s;
    char hash[64];
    double part_s[PARTS];
};

static void start(char *const *words, const char *log)
{
    (void)fflush(stdout);
    running = fork();
    if (running < 0) fail(words[0], strerror(errno));
    if (running > 0) return;
    if (freopen(log, "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL) _exit(127);
    (void)execv(words[0], words);
    _exit(127);
}

static void find_hash(const char *log, char out[64])
{
    struct tm_text text;
    tm_text_init(&text, 1 << 20);
    if (tm_env_real()->file_read(tm_env_real(), log, &text, NULL) != 0) fail(log, "cannot be read");
    const char *at = strstr(tm_text_string(&text), "\"weights_hash\"");
    if (at == NULL || sscanf(at, "\"weights_hash\" : \"%32[0-9a-f]", out) != 1)
        if (at == NULL || sscanf(at, "\"weights_hash\":\"%32[0-9a-f]", out) != 1) fail(log, "no hash of weights");
    tm_text_deinit(&text);
}

static struct cost run_to_end(char *const *words, const char *log)
{
    struct cost cost = {.wall_s = bench_now_s()};
    struct processes all = {.count = 0};
    struct rusage usage;
    int status = 0;
    start(words, log);
    for (;;) {
        look(&all);
        pid_t ended = wait4(running, &status, WNOHANG, &usage);
        if (ended == running) break;
        tm_env_real()->sleep_ms(tm_env_real(), LOOK_MS);
    }
    cost.wall_s = bench_now_s() - cost.wall_s;
    running = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail(log, "the command failed");
    cost.cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    for (size_t i = 0; i < all.count; i++)
        cost.part_s[all.list[i].part] += all.list[i].cpu_s;
    find_hash(log, cost.hash);
    return cost;
}

struct bench {
    char *tidemill;
    char folder[64];
    int number; /* of commands so far */
};

static void write_file(const char *path, const char *text)
{
    struct tm_error e;
    if (tm_env_real()->file_write(tm_env_real(), path, text, strlen(text), &e) != 0) fail(path, e.text);
}

/* Some 40 MB of state, and a step of 50 to 100 ms on two idle cores. Where other work goes on, wall times tell nothing:
 * the kernel shares cores out among sessions, and `run` has more of them than `train`. */
static void write_job(const char *path, int steps)
{
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "name: overhead\nmodel: {gpt: {layers: 4, hidden: 256, heads: 4, ctx: 48, dropout: 0.1}}\n"
                   "data: kjv-new-testament\nbatch: 12\nmicro_batch: 2\nsteps: %d\nseed: 1\n"
                   "optimizer: {lr: 1e-3, clip: 1.0}\ndeterminism: bitwise\n"
                   "fleet: {speed: 1, limit: 2, scaled: 0, stages_min: 1, stages_max: 1}\n",
                   steps);
    write_file(path, text);
}

static struct cost one(struct bench *b, bool tolerant, int steps)
{
    char job[128];
    char trace[128];
    char dir[128];
    char log[128];
    b->number++;
    (void)snprintf(job, sizeof job, "%s/job-%d.yaml", b->folder, b->number);
    (void)snprintf(dir, sizeof dir, "%s/state-%d", b->folder, b->number);
    (void)snprintf(log, sizeof log, "%s/%d.log", b->folder, b->number);
    (void)snprintf(trace, sizeof trace, "%s/still.tmtrace", b->folder);
    write_job(job, steps);
    write_file(trace, "tidemill-trace 1\ninstance: p3.2xlarge\nend: 86400s\n\n0 +2\n");
    char *plain[] = {b->tidemill, "train", job, "--layout", "2x1", "--transport", "tcp", "--json", "-q", NULL};
    char *full[] = {b->tidemill, "run", job, "--state", dir, "--trace", trace, "-y", "--json", "-q", NULL};
    return run_to_end(tolerant ? full : plain, log);
}

/* ---- side by side ---- */

struct rates {
    double wall_s[ROUNDS_MAX]; /* of a step */
    double cpu_s[ROUNDS_MAX];
    struct cost longest;
};

static void one_round(struct bench *b, bool tolerant, int steps, int round, struct rates *out)
{
    struct cost few = one(b, tolerant, STEPS_FEW);
    struct cost many = one(b, tolerant, steps);
    out->wall_s[round] = (many.wall_s - few.wall_s) / (steps - STEPS_FEW);
    out->cpu_s[round] = (many.cpu_s - few.cpu_s) / (steps - STEPS_FEW);
    out->longest = many;
}

static void row(const char *what, const double *plain_s, const double *full_s, int rounds)
{
    double ratio[ROUNDS_MAX];
    double least = INFINITY;
    double most = 0;
    for (int i = 0; i < rounds; i++) {
        ratio[i] = plain_s[i] / full_s[i]; /* of throughput */
        least = fmin(least, ratio[i]);
        most = fmax(most, ratio[i]);
    }
    double middle = bench_median(ratio, (size_t)rounds);
    printf("%-24s plain %7.0f   fault tolerant %7.0f   ratio %.3f (%.3f to %.3f)   target 0.970: %s\n", what,
           TOKENS_STEP / bench_median(plain_s, (size_t)rounds), TOKENS_STEP / bench_median(full_s, (size_t)rounds),
           middle, least, most, middle >= 0.97 ? "met" : "MISSED");
}

int main(int argc, char **argv)
{
    struct bench b = {.tidemill = argc > 1 ? argv[1] : NULL, .folder = "/tmp/tidemill-bench-XXXXXX"};
    int rounds = argc > 2 ? atoi(argv[2]) : 3;
    int steps = argc > 3 ? atoi(argv[3]) : 200;
    static struct rates plain;
    static struct rates full;
    if (argc < 2 || rounds < 1 || rounds > ROUNDS_MAX || steps <= STEPS_FEW)
        fail("use", "bench_overhead TIDEMILL [ROUNDS [STEPS]]");
    if (mkdtemp(b.folder) == NULL) fail(b.folder, strerror(errno));
    (void)setenv("TIDEMILL_DATA_DIR", b.folder, 1);
    for (int i = 0; i < rounds; i++) {
        one_round(&b, i % 2 != 0, steps, i, i % 2 != 0 ? &full : &plain);
        one_round(&b, i % 2 == 0, steps, i, i % 2 == 0 ? &full : &plain);
        if (strcmp(plain.longest.hash, full.longest.hash) != 0) fail("weights", "are not the same");
    }
    printf("fault tolerance without faults, two workers, %d steps of %.0f ms, median of %d turns, same weights:\n",
           steps, 1000 * bench_median(plain.wall_s, (size_t)rounds), rounds);
    row("tokens per CPU second", plain.cpu_s, full.cpu_s, rounds);
    row("tokens per wall second", plain.wall_s, full.wall_s, rounds);
    printf("CPU of the last run, starting and ending included:");
    for (int p = 0; p < PARTS; p++)
        printf(" %s%s %.2f s%s", part_words[p], p >= PART_AGENTS ? "s" : "", full.longest.part_s[p],
               p + 1 < PARTS ? "," : "\n");
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", b.folder);
    return system(command) == 0 ? 0 : 1;
}
