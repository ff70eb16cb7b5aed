/* Small training runs for the tests of this room. */
#ifndef TM_ENGINE_TEST_ENGINE_HELPERS_H
#define TM_ENGINE_TEST_ENGINE_HELPERS_H

#include "base/test/harness.h"
#include "engine/trainer.h"

#include <stdio.h>
#include <string.h>

/* Seconds of work at most; dropout, clipping and a tied weight are on; 7 micro-batches go evenly into no layout. */
static inline struct tm_train_job small_job(void)
{
    struct tm_train_job job = {.name = "small",
                               .network = {.blocks = 4, .width = 32, .heads = 4, .ctx = 24, .dropout = 0.1},
                               .data = "kjv-new-testament",
                               .batch = 14,
                               .micro_batch = 2,
                               .steps = 6,
                               .seed = 7,
                               .optimizer = tm_optimizer_defaults(),
                               .pipelines = 1,
                               .stages = 1,
                               .checkpoint = {.dir = "", .keep = 2}};
    job.optimizer.clip = 0.5;
    job.optimizer.lr = 3e-3;
    job.optimizer.warmup_steps = 2;
    job.optimizer.decay_steps = 20;
    return job;
}

static inline struct tm_blas test_blas(void)
{
    struct tm_blas blas;
    struct tm_error e = {0};
    assert_row(tm_blas_open(tm_env_real(), tm_kernels__avx2.core, &blas, &e) == 0, "%s", e.text);
    return blas;
}

/* Trains and gives the hash of the weights; the rest of the result if asked for. */
static inline struct tm_hash train_layouts(const struct tm_train_job *job, const struct tm_layout_change *layouts,
                                           size_t count, uint64_t shuffle, struct tm_train_result *out)
{
    struct tm_blas blas = test_blas();
    struct tm_train_options options = {.job = job,
                                       .steps = job->steps,
                                       .layouts = layouts,
                                       .layout_count = count,
                                       .shuffle = shuffle,
                                       .kernels = &tm_kernels__avx2,
                                       .blas = &blas};
    struct tm_train_result result;
    struct tm_error e = {0};
    assert_row(tm_train(tm_env_real(), &options, &result, &e) == 0, "%dx%d: %s", layouts[0].pipelines,
               layouts[0].stages, e.text);
    struct tm_hash hash = result.weights_hash;
    tm_train_result_deinit(&result);
    if (out != NULL) *out = result;
    return hash;
}

static inline struct tm_hash train_as(const struct tm_train_job *job, int pipelines, int stages)
{
    struct tm_layout_change layout = {.pipelines = pipelines, .stages = stages};
    return train_layouts(job, &layout, 1, 0, NULL);
}

#endif
