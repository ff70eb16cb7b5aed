/* How fast the built-in engine trains, in CPU seconds of this process, so that other work on the machine shows little.
 *
 * Use: bench_engine LAYERS WIDTH HEADS CTX MICRO_BATCH MICRO_BATCHES DROPOUT DxP STEPS KIND...
 * KIND is bitwise, fast (each: steps with that way of summing gradients) or sgemm (the machine's rate, one thread).
 * Kinds take turns step by step; a line a kind: KIND, tokens per CPU second (best and median step), wall seconds of a
 * step, GFLOP/s, megabytes sent in a step. */
#include "base/alloc.h"
#include "bench_tools.h"
#include "engine/train_worker.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/mesh_local.h"

enum { KINDS_MAX = 8, STEPS_MAX = 1000, WORKERS_MAX = 16 };

struct measured {
    double cpu_s[STEPS_MAX];
    double wall_s[STEPS_MAX];
    double megabytes;
};

static double cpu_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double wall_now(void)
{
    return (double)tm_env_real()->monotonic_ns(tm_env_real()) * 1e-9;
}

/* One engine a worker, all with the same layout. */
struct team {
    struct tm_engine *engines[WORKERS_MAX];
    struct tm_mesh_local *local;
    int workers;
};

struct task {
    struct team *team;
    int rank;
    int64_t step;
    int rc;
    uint64_t bytes;
    struct tm_error e;
};

static void *do_step(void *argument)
{
    struct task *task = argument;
    struct tm_step_result result = {0};
    struct tm_mesh *mesh = tm_mesh_local_end(task->team->local, task->rank);
    task->rc = tm_engine_prepare(task->team->engines[task->rank], mesh, task->step, &result, &task->e);
    if (task->rc == 0) tm_engine_apply(task->team->engines[task->rank], result.clip_factor);
    task->bytes = result.bytes_sent;
    return NULL;
}

static void team_step(struct team *team, int64_t step, struct measured *out)
{
    struct task tasks[WORKERS_MAX];
    pthread_t threads[WORKERS_MAX];
    double cpu = cpu_now();
    double wall = wall_now();
    for (int i = 0; i < team->workers; i++)
        tasks[i] = (struct task){.team = team, .rank = i, .step = step};
    for (int i = 1; i < team->workers; i++)
        (void)pthread_create(&threads[i], NULL, do_step, &tasks[i]);
    (void)do_step(&tasks[0]);
    for (int i = 1; i < team->workers; i++)
        (void)pthread_join(threads[i], NULL);
    out->cpu_s[step] = cpu_now() - cpu;
    out->wall_s[step] = wall_now() - wall;
    out->megabytes = 0;
    for (int i = 0; i < team->workers; i++) {
        if (tasks[i].rc != 0) {
            (void)fprintf(stderr, "bench_engine: %s\n", tasks[i].e.text);
            exit(1);
        }
        out->megabytes += (double)tasks[i].bytes / 1e6;
    }
}

static void make_team(struct team *team, const struct tm_engine_options *options, int pipelines, int stages)
{
    struct tm_assignment assignment;
    struct tm_error e = {0};
    team->workers = pipelines * stages;
    int rc = tm_assignment_make(&options->network, pipelines, stages, options->micro_batches, &assignment, &e);
    if (rc == 0) rc = tm_mesh_local_create(team->workers, &team->local, &e);
    for (int w = 0; rc == 0 && w < team->workers; w++) {
        rc = tm_engine_create(options, &team->engines[w], &e);
        for (int l = 0; rc == 0 && l < tm_network_layers(&options->network); l++) {
            if (!tm_assignment_holds(&assignment, w, l)) continue;
            rc = tm_engine_hold(team->engines[w], l, &e);
            if (rc == 0) tm_engine_start_layer(team->engines[w], l);
        }
        if (rc == 0) rc = tm_engine_assign(team->engines[w], &assignment, w, &e);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "bench_engine: %s\n", e.text);
        exit(1);
    }
}

/* The products of one block and one micro-batch, forward: what the network itself asks of sgemm. */
static void sgemm_step(const struct tm_engine_options *options, int64_t step, struct measured *out, float *memory)
{
    int rows = options->micro_batch * options->network.ctx;
    int width = options->network.width;
    float *a = memory;
    float *b = a + (size_t)rows * 4 * (size_t)width;
    float *c = b + 4 * (size_t)width * (size_t)width;
    struct tm_gemm layout = {
        .m = rows, .n = 4 * width, .k = width, .alpha = 1, .lda = width, .ldb = 4 * width, .ldc = 4 * width};
    double cpu = cpu_now();
    double wall = wall_now();
    for (int i = 0; i < 20; i++)
        tm_gemm(options->blas, &layout, a, b, c);
    out->cpu_s[step] = cpu_now() - cpu;
    out->wall_s[step] = wall_now() - wall;
}

static void report(const char *kind, struct measured *m, int64_t steps, double tokens, double flops)
{
    bench_sort(m->cpu_s + 1, (size_t)steps - 1); /* the first step warms up */
    bench_sort(m->wall_s + 1, (size_t)steps - 1);
    double best = m->cpu_s[1];
    double median = m->cpu_s[1 + (steps - 1) / 2];
    printf("%-8s %9.1f best %9.1f median tokens/cpu-s   wall %.4f s   %.1f GFLOP/s   %.2f MB sent\n", kind,
           tokens / best, tokens / median, m->wall_s[1 + (steps - 1) / 2], flops / best / 1e9, m->megabytes);
}

int main(int argc, char **argv)
{
    static struct measured measured[KINDS_MAX];
    struct team teams[KINDS_MAX] = {0};
    struct tm_corpus corpus;
    struct tm_blas blas;
    int pipelines = 1;
    int stages = 1;
    if (argc < 11 || argc - 10 > KINDS_MAX || tm_layout_parse(argv[8], &pipelines, &stages, NULL) != 0) return 2;
    struct tm_engine_options options = {.network = {.blocks = (int)strtol(argv[1], NULL, 10),
                                                    .width = (int)strtol(argv[2], NULL, 10),
                                                    .heads = (int)strtol(argv[3], NULL, 10),
                                                    .ctx = (int)strtol(argv[4], NULL, 10),
                                                    .dropout = strtod(argv[7], NULL)},
                                        .micro_batch = (int)strtol(argv[5], NULL, 10),
                                        .micro_batches = strtol(argv[6], NULL, 10),
                                        .seed = 1,
                                        .optimizer = tm_optimizer_defaults(),
                                        .blas = &blas,
                                        .corpus = &corpus};
    int64_t steps = strtol(argv[9], NULL, 10);
    if (steps < 2 || steps > STEPS_MAX || pipelines * stages > WORKERS_MAX) return 2;
    options.optimizer.lr = 1e-4;
    if (tm_kernels_choose(tm_env_real(), &options.kernels, NULL) != 0 ||
        tm_blas_open(tm_env_real(), options.kernels->core, &blas, NULL) != 0 ||
        tm_corpus_open(tm_env_real(), "kjv-new-testament", &corpus, NULL) != 0)
        return 1;
    double batch = (double)options.micro_batch * (double)options.micro_batches;
    (void)tm_corpus_windows(&corpus, "", options.network.ctx, 1, &options.windows, NULL);
    float *memory =
        calloc((size_t)options.micro_batch * (size_t)options.network.ctx * 8 * (size_t)options.network.width +
                   4 * (size_t)options.network.width * (size_t)options.network.width,
               sizeof *memory);
    for (int k = 10; k < argc; k++) {
        options.determinism = strcmp(argv[k], "fast") == 0 ? TM_FAST : TM_BITWISE;
        if (strcmp(argv[k], "sgemm") != 0) make_team(&teams[k - 10], &options, pipelines, stages);
    }
    for (int64_t step = 0; step < steps; step++) {
        for (int k = 10; k < argc; k++) {
            if (strcmp(argv[k], "sgemm") == 0)
                sgemm_step(&options, step, &measured[k - 10], memory);
            else
                team_step(&teams[k - 10], step, &measured[k - 10]);
        }
    }
    printf("kernels %s, OpenBLAS %s\n", options.kernels->name, blas.core);
    double rows = (double)options.micro_batch * (double)options.network.ctx;
    for (int k = 10; k < argc; k++) {
        bool is_sgemm = strcmp(argv[k], "sgemm") == 0;
        double flops = is_sgemm ? 20 * 8 * rows * options.network.width * options.network.width
                                : batch * tm_network_sample_flops(&options.network);
        report(argv[k], &measured[k - 10], steps, is_sgemm ? 0 : batch * options.network.ctx, flops);
        for (int w = 0; w < teams[k - 10].workers; w++)
            tm_engine_destroy(teams[k - 10].engines[w]);
        tm_mesh_local_destroy(teams[k - 10].local);
    }
    free(memory);
    return 0;
}
