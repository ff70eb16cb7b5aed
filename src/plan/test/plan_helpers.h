/* What tests of the planner start from: a catalogue of their own, resnet50, and what is known of it without a
 * profile. */
#ifndef TM_PLAN_TEST_PLAN_HELPERS_H
#define TM_PLAN_TEST_PLAN_HELPERS_H

#include "base/env.h"
#include "base/test/harness.h"
#include "plan/search.h"

#include <math.h>
#include <string.h>

struct planning {
    struct tm_catalog catalog;
    struct tm_model model;
    struct tm_compute_model compute;
    struct tm_comm_model comm;
};

/* A job of 1e8 samples without limits, whose instances are lost after ten hours. */
static inline struct tm_plan_request planning_init(struct planning *p, const char *catalog)
{
    struct tm_error e = {0};
    tm_catalog_init(&p->catalog);
    tm_model_init(&p->model);
    assert_row(tm_catalog_parse(&p->catalog, "c", catalog, strlen(catalog), false, &e) == 0, "%s", e.text);
    assert_int_equal(tm_catalog_finish(&p->catalog, &e), 0);
    assert_int_equal(tm_model_load(tm_env_real(), "resnet50", &p->model, &e), 0);
    p->compute = tm_compute_prior();
    p->comm = tm_comm_gpus();
    return (struct tm_plan_request){
        .supply = {.model = &p->model,
                   .compute = &p->compute,
                   .comm = &p->comm,
                   .precision = TM_PRECISION_MIXED,
                   .batch = 256,
                   .loss_per_s = 1 / 36000.0},
        .job = {.samples = 1e8, .deadline_s = INFINITY, .checkpoint_s = 1, .restart_s = 60, .startup_s = 180},
        .budget_usd = INFINITY,
        .max_usd_h = INFINITY,
        .max_instances = 8,
        .min_probability = 0.95,
        .top = 4};
}

static inline void planning_deinit(struct planning *p)
{
    tm_model_deinit(&p->model);
    tm_catalog_deinit(&p->catalog);
}

#endif
