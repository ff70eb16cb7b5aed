#include "sim/sweep.h"

#include "base/alloc.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* One call under way, shared by its threads. */
struct sweeping {
    struct tm_env *env;
    const struct tm_sweep *sweep;
    struct tm_progress *progress; /* moved by the calling thread alone */
    struct tm_sweep_run *runs;
    size_t pair_count;
    size_t runs_per_pair;
    atomic_size_t next; /* pair to be taken */
    atomic_size_t done;
    atomic_int failed;
    int *pair_rc;                 /* [pairs] */
    struct tm_error *pair_errors; /* [pairs] */
};

/* A thread and its tables. */
struct hand {
    struct sweeping *sweeping;
    struct tm_migrations **tables;   /* [models]; NULL: not made yet */
    struct tm_migrations **believed; /* likewise, of what policies believe */
    bool is_caller;
    int rc;
    struct tm_error e;
    pthread_t thread;
};

static int table_of(struct tm_migrations **tables, size_t model, const struct tm_sim_job *job,
                    struct tm_migrations **out, struct tm_error *e)
{
    int rc = 0;
    if (tables[model] == NULL) rc = tm_migrations_create(job->layouts, job->cost, &tables[model], e);
    *out = tables[model];
    return rc;
}

/* All policies and seeds on one (model, trace), each against the ideal. */
static int run_pair(struct hand *hand, size_t pair, struct tm_error *e)
{
    const struct sweeping *all = hand->sweeping;
    const struct tm_sweep *sweep = all->sweep;
    size_t model = pair / sweep->trace_count;
    const struct tm_sweep_trace *trace = &sweep->traces[pair % sweep->trace_count];
    const struct tm_sweep_model *m = &sweep->models[model];
    struct tm_sim_job believed = {.layouts = m->believed_layouts, .cost = m->believed_cost};
    struct tm_sim_job job = {
        .layouts = m->layouts, .cost = m->cost, .believed = m->believed_layouts != NULL ? &believed : NULL};
    struct tm_sim_result ideal;
    int rc = table_of(hand->tables, model, &job, &job.migrations, e);
    if (rc == 0 && job.believed != NULL) rc = table_of(hand->believed, model, &believed, &believed.migrations, e);
    if (rc == 0)
        rc = tm_simulate(all->env, &job, trace->trace, tm_policy_find("ideal"), &trace->options, &ideal, NULL, e);
    for (size_t i = 0; rc == 0 && i < all->runs_per_pair; i++) {
        struct tm_sweep_run *run = &all->runs[pair * all->runs_per_pair + i];
        const struct tm_policy_info *info = sweep->policies[i % sweep->policy_count];
        struct tm_sim_options options = trace->options;
        options.seed = sweep->seeds[i / sweep->policy_count];
        run->model = sweep->models[model].name;
        run->trace = trace->name;
        run->policy = info->name;
        run->seed = options.seed;
        rc = tm_simulate(all->env, &job, trace->trace, info, &options, &run->result, sweep->logs ? &run->log : NULL, e);
        if (rc != 0) rc = tm_error_wrap(e, rc, "%s on %s, policy %s", run->model, run->trace, run->policy);
        run->fraction_of_ideal = ideal.samples > 0 ? run->result.samples_per_s / ideal.samples_per_s : NAN;
    }
    return rc;
}

static void work(struct hand *hand)
{
    struct sweeping *all = hand->sweeping;
    for (;;) {
        if (atomic_load(&all->failed)) return; /* what was taken is run: of several errors the first is told */
        size_t pair = atomic_fetch_add(&all->next, 1);
        if (pair >= all->pair_count) return;
        all->pair_rc[pair] = run_pair(hand, pair, &all->pair_errors[pair]);
        if (all->pair_rc[pair] != 0) atomic_store(&all->failed, 1);
        size_t done = atomic_fetch_add(&all->done, 1) + 1;
        if (hand->is_caller && all->progress != NULL) tm_progress_update(all->progress, (int64_t)done);
    }
}

static void *start(void *hand)
{
    work(hand);
    return NULL;
}

static int make_tables(struct hand *hand, struct sweeping *all, struct tm_error *e)
{
    hand->sweeping = all;
    hand->tables = tm_calloc(all->sweep->model_count, sizeof(struct tm_migrations *));
    hand->believed = tm_calloc(all->sweep->model_count, sizeof(struct tm_migrations *));
    return hand->tables == NULL || hand->believed == NULL ? tm_error_nomem(e) : 0;
}

static void drop_tables(struct hand *hand)
{
    for (size_t i = 0; hand->tables != NULL && i < hand->sweeping->sweep->model_count; i++)
        tm_migrations_destroy(hand->tables[i]);
    for (size_t i = 0; hand->believed != NULL && i < hand->sweeping->sweep->model_count; i++)
        tm_migrations_destroy(hand->believed[i]);
    tm_free(hand->tables);
    tm_free(hand->believed);
}

/* The calling thread works too; a thread that cannot be started is done without. */
static int work_together(struct sweeping *all, int threads, struct tm_error *e)
{
    struct hand hands[TM_SWEEP_THREADS_MAX];
    int started = 0, made = 0, rc = 0;
    memset(hands, 0, sizeof hands);
    for (; rc == 0 && made < threads; made++)
        rc = make_tables(&hands[made], all, e);
    for (int i = 1; rc == 0 && i < threads; i++) {
        if (pthread_create(&hands[i].thread, NULL, start, &hands[i]) != 0) break;
        started = i;
    }
    hands[0].is_caller = true;
    if (rc == 0) work(&hands[0]);
    for (int i = 1; i <= started; i++)
        (void)pthread_join(hands[i].thread, NULL);
    for (int i = 0; i < made; i++)
        drop_tables(&hands[i]);
    for (size_t i = 0; rc == 0 && i < all->pair_count; i++) {
        rc = all->pair_rc[i];
        if (rc != 0 && e != NULL) *e = all->pair_errors[i];
    }
    return rc;
}

int tm_sweep_run(struct tm_env *env, const struct tm_sweep *sweep, struct tm_progress *progress,
                 struct tm_sweep_run **out, size_t *out_count, struct tm_error *e)
{
    struct sweeping all = {.env = env, .sweep = sweep, .progress = progress};
    all.pair_count = sweep->model_count * sweep->trace_count;
    all.runs_per_pair = sweep->policy_count * sweep->seed_count;
    size_t count = all.pair_count * all.runs_per_pair;
    if (count > TM_SWEEP_RUNS_MAX)
        return tm_error_set(e, TM_ELIMIT, "%zu simulations in one call; at most %d", count, TM_SWEEP_RUNS_MAX);
    all.runs = tm_calloc(count + 1, sizeof *all.runs);
    all.pair_rc = tm_calloc(all.pair_count + 1, sizeof *all.pair_rc);
    all.pair_errors = tm_calloc(all.pair_count + 1, sizeof *all.pair_errors);
    int threads = sweep->threads < 1 ? 1 : sweep->threads;
    if (threads > TM_SWEEP_THREADS_MAX) threads = TM_SWEEP_THREADS_MAX;
    if ((size_t)threads > all.pair_count) threads = all.pair_count > 0 ? (int)all.pair_count : 1;
    int rc = all.runs == NULL || all.pair_rc == NULL || all.pair_errors == NULL ? tm_error_nomem(e)
                                                                                : work_together(&all, threads, e);
    tm_free(all.pair_rc);
    tm_free(all.pair_errors);
    if (rc != 0) {
        tm_sweep_free(all.runs, count);
        return rc;
    }
    *out = all.runs;
    *out_count = count;
    return 0;
}

void tm_sweep_free(struct tm_sweep_run *runs, size_t count)
{
    for (size_t i = 0; runs != NULL && i < count; i++)
        tm_sim_log_deinit(&runs[i].log);
    tm_free(runs);
}
