/* Helpers that the simulator's tests share. */
#ifndef TM_SIM_TEST_SIM_HELPERS_H
#define TM_SIM_TEST_SIM_HELPERS_H

#include "base/env_virtual.h"
#include "layout/test/layout_helpers.h"
#include "sim/simulate.h"

/* A shipped model with paper costs on up to `instances` instances; the caller drops it. */
static inline struct test_job *paper_job(struct tm_env *env, const char *model, int instances)
{
    struct test_job *job = tm_calloc(1, sizeof *job);
    struct tm_error e = {0};
    assert_non_null(job);
    tm_model_init(&job->model);
    int rc = tm_model_load(env, model, &job->model, &e);
    if (rc == 0) rc = tm_cost_load(env, "paper", model, &job->cost, &e);
    if (rc == 0)
        rc = tm_layouts_init(&job->layouts, &job->model, &job->cost.rules, instances, tm_layout_speed_measured,
                             &job->model, &e);
    if (rc == 0) rc = tm_migrations_create(&job->layouts, &job->cost, &job->migrations, &e);
    assert_row(rc == 0, "%s: %s", model, e.text);
    return job;
}

static inline void paper_job_drop(struct test_job *job)
{
    tm_model_deinit(&job->model);
    job_drop(job);
}

static inline struct tm_sim_options minute_options(int64_t from_ms, int64_t to_ms)
{
    return (struct tm_sim_options){.from_ms = from_ms,
                                   .to_ms = to_ms,
                                   .interval_s = 60,
                                   .horizon = 12,
                                   .notice_s = 30,
                                   .spot_usd_h = 0.91,
                                   .on_demand_usd_h = 3.06};
}

/* One run that must succeed. `log` may be NULL. */
static inline struct tm_sim_result simulate(struct tm_env *env, struct test_job *job, const struct tm_trace *trace,
                                            const char *policy, const struct tm_sim_options *options,
                                            struct tm_sim_log *log)
{
    struct tm_sim_job sim_job = {.layouts = &job->layouts, .migrations = job->migrations, .cost = &job->cost};
    struct tm_sim_result result;
    struct tm_error e = {0};
    const struct tm_policy_info *info = tm_policy_find(policy);
    assert_row(info != NULL, "no policy %s", policy);
    int rc = tm_simulate(env, &sim_job, trace, info, options, &result, log, &e);
    assert_row(rc == 0, "%s: %s", policy, e.text);
    return result;
}

#endif
