/* What our policy gains, and what decisions cost.
 *
 * Use: bench_simulate [P3.csv [TRACE...]]
 * Without files the four shipped hours are used, which know no history. With Bamboo's p3 trace the hours are cut from
 * it with the history before them, as Parcae's published figures are; further traces of several instances follow. */
#include "base/alloc.h"
#include "base/env.h"
#include "market/trace_generate.h"
#include "sim/moments.h"
#include "sim/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const models[] = {"parcae/gpt-1.5b", "parcae/gpt-6.7b", "parcae/bert", "parcae/resnet152",
                                     "parcae/vgg19"};
enum { MODELS = sizeof models / sizeof *models, HOURS = 4, TRACES_MAX = 64 };
static const struct {
    const char *name;
    double from_h;
} hours[HOURS] = {{"hadp", 5.5}, {"hasp", 1.5}, {"ladp", 8}, {"lasp", 10}};

struct job {
    struct tm_model model;
    struct tm_cost cost;
    struct tm_layouts layouts;
    struct tm_migrations *migrations;
};

static void must(int rc, const struct tm_error *e)
{
    if (rc == 0) return;
    fprintf(stderr, "bench_simulate: %s\n", e->text);
    exit(1);
}

static double seconds(void)
{
    return (double)tm_env_real()->monotonic_ns(tm_env_real()) / 1e9;
}

static void make_job(struct job *job, const char *model, int instances_max, tm_layout_speed speed)
{
    struct tm_error e;
    tm_model_init(&job->model);
    must(tm_model_load(tm_env_real(), model, &job->model, &e), &e);
    must(tm_cost_load(tm_env_real(), "paper", job->model.name, &job->cost, &e), &e);
    must(tm_layouts_init(&job->layouts, &job->model, &job->cost.rules, instances_max, speed, &job->model, &e), &e);
    must(tm_migrations_create(&job->layouts, &job->cost, &job->migrations, &e), &e);
}

static void drop_job(struct job *job)
{
    tm_migrations_destroy(job->migrations);
    tm_layouts_deinit(&job->layouts);
    tm_model_deinit(&job->model);
}

static struct tm_sim_result run(struct job *job, const struct tm_trace *trace, const char *policy,
                                struct tm_sim_options options)
{
    struct tm_error e;
    struct tm_sim_result result;
    struct tm_sim_job of = {&job->layouts, job->migrations, &job->cost, NULL};
    must(tm_simulate(tm_env_real(), &of, trace, tm_policy_find(policy), &options, &result, NULL, &e), &e);
    return result;
}

static struct tm_sim_options options_for(const struct tm_trace *trace)
{
    return (struct tm_sim_options){.from_ms = trace->begin_ms,
                                   .to_ms = tm_moments_end_ms(trace, 60000),
                                   .interval_s = 60,
                                   .horizon = 12,
                                   .notice_s = 30,
                                   .spot_usd_h = 0.9731,
                                   .on_demand_usd_h = 3.06};
}

/* ---- gains ---- */

struct tally {
    int cells, above_parcae, at_notice, above_parcae_unannounced, below_reactive;
    double of_truth, gap_closed, gaps;
};

static void compare(struct job *job, const struct tm_trace *trace, struct tm_sim_options options, const char *name,
                    struct tally *tally)
{
    struct tm_sim_options no_notice = options;
    no_notice.notice_s = 0;
    double reactive = run(job, trace, "reactive", options).samples, parcae = run(job, trace, "parcae", options).samples;
    double notice = run(job, trace, "parcae-notice", options).samples;
    double truth = run(job, trace, "parcae-truth", options).samples;
    double oracle = run(job, trace, "oracle", options).samples;
    double ours = run(job, trace, "tidemill", options).samples;
    double unannounced = run(job, trace, "tidemill", no_notice).samples;
    bool gap = oracle > notice * 1.0001;
    printf("  %-17s %-6s %8.4f %8.4f %8.4f %8.4f %8.4f %8.4f", job->model.name, name, reactive / oracle,
           parcae / oracle, notice / oracle, truth / oracle, ours / oracle, unannounced / oracle);
    printf(gap ? " %+7.0f%%\n" : "       -\n", gap ? 100 * (ours - notice) / (oracle - notice) : 0);
    tally->cells++;
    tally->above_parcae += ours > parcae;
    tally->at_notice += ours >= notice * (1 - 1e-9);
    tally->above_parcae_unannounced += unannounced > parcae;
    tally->below_reactive += ours < reactive || unannounced < reactive;
    tally->of_truth += ours / truth;
    if (gap) {
        tally->gap_closed += (ours - notice) / (oracle - notice);
        tally->gaps++;
    }
}

static void load_hour(const struct tm_trace *p3, int hour, struct tm_trace *own, const struct tm_trace **trace,
                      struct tm_sim_options *options)
{
    struct tm_error e;
    *trace = p3;
    if (p3 == NULL) {
        must(tm_trace_load(tm_env_real(), hours[hour].name, NULL, own, &e), &e);
        *trace = own;
    }
    *options = options_for(*trace);
    if (p3 == NULL) return;
    options->from_ms = (int64_t)(hours[hour].from_h * 3.6e6);
    options->to_ms = options->from_ms + 3600000;
}

static void bench_gains(const struct tm_trace *p3)
{
    struct tally tally = {0};
    double begin = seconds();
    printf("samples as a share of the oracle's, paper costs%s; gap: share of what parcae-notice leaves to the oracle "
           "that\n"
           "tidemill gets\n",
           p3 == NULL ? " (shipped hours, no history)" : "");
    printf("  %-17s %-6s %8s %8s %8s %8s %8s %8s %8s\n", "model", "hour", "reactive", "parcae", "-notice", "-truth",
           "tidemill", "no word", "gap");
    for (int m = 0; m < MODELS; m++) {
        struct job job;
        make_job(&job, models[m], 32, tm_layout_speed_measured);
        for (int h = 0; h < HOURS; h++) {
            struct tm_trace own;
            const struct tm_trace *trace;
            struct tm_sim_options options;
            tm_trace_init(&own);
            load_hour(p3, h, &own, &trace, &options);
            compare(&job, trace, options, hours[h].name, &tally);
            tm_trace_deinit(&own);
        }
        drop_job(&job);
    }
    printf(
        "  tidemill above parcae in %d of %d (target 20), at or above parcae-notice in %d (18), %.4f of parcae-truth "
        "(0.995);\n  without notice above parcae in %d (18); below reactive in %d (0); gap closed %.0f%% on average; "
        "%.1f s\n",
        tally.above_parcae, tally.cells, tally.at_notice, tally.of_truth / tally.cells, tally.above_parcae_unannounced,
        tally.below_reactive, 100 * tally.gap_closed / tally.gaps, seconds() - begin);
}

/* ---- the whole trace, all policies ---- */

static void bench_whole(const struct tm_trace *p3)
{
    struct tally tally = {0};
    double begin = seconds();
    int runs = 0;
    size_t bytes = 0;
    printf("the whole trace, all policies, one thread:\n");
    for (int m = 0; m < MODELS; m++) {
        struct job job;
        make_job(&job, models[m], 32, tm_layout_speed_measured);
        for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++, runs++)
            (void)run(&job, p3, info->name, options_for(p3));
        if (tm_migrations_bytes(job.migrations) > bytes) bytes = tm_migrations_bytes(job.migrations);
        compare(&job, p3, options_for(p3), "all", &tally);
        drop_job(&job);
    }
    printf("  %d runs of %.1f h in %.1f s (target 10 s on two cores); largest table %.1f MB\n", runs,
           (double)p3->end_ms / 3.6e6, seconds() - begin, (double)bytes / 1e6);
}

/* ---- other traces ---- */

static void bench_others(char **paths, int count)
{
    double sum = 0;
    int cells = 0;
    printf("samples for a dollar, tidemill over parcae (and over reactive), other traces of several instances:\n");
    for (int i = 0; i < count; i++) {
        struct tm_trace trace;
        struct tm_error e;
        tm_trace_init(&trace);
        must(tm_trace_load(tm_env_real(), paths[i], NULL, &trace, &e), &e);
        const char *slash = strrchr(paths[i], '/');
        printf("  %-52.52s", slash != NULL ? slash + 1 : paths[i]);
        for (int m = 0; m < MODELS; m++) {
            struct job job;
            make_job(&job, models[m], (int)trace.instances_max, tm_layout_speed_measured);
            struct tm_sim_options options = options_for(&trace);
            double ours = run(&job, &trace, "tidemill", options).usd_per_million_samples;
            double parcae = run(&job, &trace, "parcae", options).usd_per_million_samples;
            double reactive = run(&job, &trace, "reactive", options).usd_per_million_samples;
            if (isnan(ours) || isnan(parcae)) {
                printf("        -       ");
            } else {
                printf(" %7.3f (%5.3f)", parcae / ours, reactive / ours);
                sum += parcae / ours;
                cells++;
            }
            drop_job(&job);
        }
        printf("\n");
        tm_trace_deinit(&trace);
    }
    if (cells > 0) printf("  mean %.4f over %d (target: above 1)\n", sum / cells, cells);
}

/* ---- how decisions grow with the fleet ---- */

/* A pipeline of P stages takes (micro-batches + P - 1) / P of the time that one instance would. */
static int made_up_speed(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                         struct tm_error *e)
{
    (void)context;
    (void)e;
    enum { BATCH = 4096 };
    double micro_batches = ceil((double)BATCH / pipelines);
    *step_s = (micro_batches + stages - 1) * 0.6 / stages + 0.002 * pipelines;
    *samples_per_s = BATCH / *step_s;
    return 0;
}

static struct tm_sim_result decide_on(int instances, enum tm_breadth breadth, double *cold_us, double *warm_us)
{
    struct tm_trace trace;
    struct tm_error e;
    struct job job;
    struct tm_trace_recipe recipe = {.seed = 1,
                                     .instances_max = instances,
                                     .mean_available = instances * 0.8,
                                     .mtbf_ms = 480000,
                                     .mean_burst = fmax(2, instances * 0.02),
                                     .interval_ms = 60000,
                                     .duration_ms = 4 * 3600000};
    tm_trace_init(&trace);
    must(tm_trace_generate(&recipe, &trace, &e), &e);
    make_job(&job, "parcae/gpt-1.5b", instances, made_up_speed);
    struct tm_sim_options options = options_for(&trace);
    options.breadth = breadth;
    struct tm_sim_result result = run(&job, &trace, "tidemill", options);
    double minutes = (double)(options.to_ms - options.from_ms) / 60000;
    *warm_us = result.decision_us_mean;
    *cold_us = *warm_us + result.tables_ms * 1000 / minutes;
    drop_job(&job);
    tm_trace_deinit(&trace);
    return result;
}

static void bench_growth(void)
{
    double before = 0, cold, warm;
    printf(
        "microseconds a decision of tidemill, four hours of a made-up trace (target 1,000 at 32, 100,000 at 1,024):\n");
    printf("  %9s %12s %12s %8s\n", "instances", "with tables", "cold", "growth");
    for (int instances = 16; instances <= 1024; instances *= 2) {
        (void)decide_on(instances, TM_BREADTH_DEFAULT, &cold, &warm);
        printf("  %9d %12.1f %12.1f", instances, warm, cold);
        printf(before > 0 ? " %7.1fx\n" : "       -\n", warm / before);
        before = warm;
    }
    double all = decide_on(64, TM_BREADTH_ALL, &cold, &warm).samples;
    double likely = decide_on(64, TM_BREADTH_LIKELY, &cold, &warm).samples;
    printf("  looking at likely shapes alone, at 64: %+.4f%% of the samples with all of them\n",
           100 * (likely / all - 1));
}

int main(int argc, char **argv)
{
    struct tm_trace p3;
    struct tm_error e;
    tm_trace_init(&p3);
    if (argc > 1) must(tm_trace_load(tm_env_real(), argv[1], NULL, &p3, &e), &e);
    bench_gains(argc > 1 ? &p3 : NULL);
    if (argc > 1) bench_whole(&p3);
    if (argc > 2) bench_others(argv + 2, argc - 2);
    bench_growth();
    tm_trace_deinit(&p3);
    return 0;
}
