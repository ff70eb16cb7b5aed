/* Helpers that the tests of layout, policy and sim share: a job made from a few lines. */
#ifndef TM_LAYOUT_TEST_LAYOUT_HELPERS_H
#define TM_LAYOUT_TEST_LAYOUT_HELPERS_H

#include "base/random.h"
#include "base/test/harness.h"
#include "layout/migrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEST_LAYERS_MAX = 64, TEST_INSTANCES_MAX = 32 };

/* Equal but for what sums of doubles may lose. */
static inline bool close_to(double got, double want, double relative)
{
    return fabs(got - want) <= relative * fmax(1, fmax(fabs(got), fabs(want)));
}

static inline struct tm_cost cost_from(const char *text, const char *model)
{
    struct tm_cost cost;
    struct tm_error e = {0};
    int rc = tm_cost_parse("test", text, strlen(text), model, &cost, &e);
    assert_row(rc == 0, "\"%s\": %s", text, e.text);
    return cost;
}

/* More instances are faster, deeper pipelines a little less so; no two layouts are equally fast. */
static inline int test_speed(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                             struct tm_error *e)
{
    (void)context;
    (void)e;
    *samples_per_s = 10 * pow(pipelines, 0.95) * pow(stages, 0.85);
    *step_s = 8 / *samples_per_s;
    return 0;
}

struct test_job {
    struct tm_model model;
    struct tm_layer layers[TEST_LAYERS_MAX];
    struct tm_cost cost;
    struct tm_layouts layouts;
    struct tm_migrations *migrations;
};

/* A model of so many layers: the first and the last large, as embeddings are; the others all equal, or all different.
 */
static inline void test_model(struct test_job *job, int layers, bool equal)
{
    assert_true(layers <= TEST_LAYERS_MAX);
    memset(job->layers, 0, sizeof job->layers);
    for (int i = 0; i < layers; i++) {
        bool end = i == 0 || i == layers - 1;
        job->layers[i].params = (end ? 5e6 : 3e6) + (equal ? 0 : 1e4 * i * i);
        job->layers[i].tied = -1;
    }
    job->model =
        (struct tm_model){.name = "test", .optimizer_states = 2, .layers = job->layers, .layer_count = (size_t)layers};
}

/* The caller frees it with job_drop. */
static inline struct test_job *job_make(int layers, bool equal, const char *cost, int instances_max,
                                        tm_layout_speed speed)
{
    struct test_job *job = tm_calloc(1, sizeof *job);
    struct tm_error e = {0};
    assert_non_null(job);
    test_model(job, layers, equal);
    job->cost = cost_from(cost, "test");
    int rc = tm_layouts_init(&job->layouts, &job->model, &job->cost.rules, instances_max, speed, NULL, &e);
    assert_row(rc == 0, "%s", e.text);
    rc = tm_migrations_create(&job->layouts, &job->cost, &job->migrations, &e);
    assert_row(rc == 0, "%s", e.text);
    return job;
}

static inline void job_drop(struct test_job *job)
{
    tm_migrations_destroy(job->migrations);
    tm_layouts_deinit(&job->layouts);
    tm_free(job);
}

/* Calls `visit` for each way to choose `lost` of the instances 0..instances-1; `gone` says of each if it is lost. */
static inline void each_subset(int instances, int lost, void (*visit)(void *context, const bool *gone), void *context)
{
    bool gone[TEST_INSTANCES_MAX] = {false};
    int chosen[TEST_INSTANCES_MAX];
    assert_true(instances <= TEST_INSTANCES_MAX && lost <= instances);
    for (int i = 0; i < lost; i++) {
        chosen[i] = i;
        gone[i] = true;
    }
    for (;;) {
        visit(context, gone);
        int i = lost - 1;
        while (i >= 0 && chosen[i] == instances - lost + i)
            i--;
        if (i < 0) return;
        for (int k = i; k < lost; k++)
            gone[chosen[k]] = false;
        chosen[i]++;
        for (int k = i + 1; k < lost; k++)
            chosen[k] = chosen[k - 1] + 1;
        for (int k = i; k < lost; k++)
            gone[chosen[k]] = true;
    }
}

/* The same of whole instances with so many workers each, which stand beside each other; `gone` says it of each worker.
 */
struct each_of {
    int each;
    int instances;
    void (*visit)(void *context, const bool *gone);
    void *context;
};

static inline void visit_workers(void *context, const bool *gone)
{
    const struct each_of *it = context;
    bool workers[TEST_INSTANCES_MAX] = {false};
    assert_true(it->instances * it->each <= TEST_INSTANCES_MAX);
    for (int k = 0; k < it->instances * it->each; k++)
        workers[k] = gone[k / it->each];
    it->visit(it->context, workers);
}

static inline void each_subset_by(int each, int workers, int lost, void (*visit)(void *context, const bool *gone),
                                  void *context)
{
    struct each_of it = {each, workers / each, visit, context};
    each_subset(workers / each, lost / each, visit_workers, &it);
}

/* Draws `lost` of so many instances, all equally likely. */
static inline void draw_subset(struct tm_random *random, int instances, int lost, bool *gone)
{
    int ids[TM_LAYOUT_INSTANCES_MAX];
    for (int i = 0; i < instances; i++) {
        ids[i] = i;
        gone[i] = false;
    }
    for (int i = 0; i < lost; i++) {
        int j = i + (int)tm_random_below(random, (uint64_t)(instances - i));
        int id = ids[j];
        ids[j] = ids[i];
        ids[i] = id;
        gone[id] = true;
    }
}

/* What is left of each stage: instance k < pipelines x stages holds stage k mod stages, the others are spares. */
static inline struct tm_survivors survivors_of(int pipelines, int stages, const bool *gone)
{
    struct tm_survivors survivors = {.stages = stages, .probability = 1};
    for (int k = 0; k < pipelines * stages; k++)
        survivors.left[k % stages] += !gone[k];
    return survivors;
}

#endif
