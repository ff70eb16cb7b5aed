/* Helpers that the workload's tests share. */
#ifndef TM_WORKLOAD_TEST_WORKLOAD_HELPERS_H
#define TM_WORKLOAD_TEST_WORKLOAD_HELPERS_H

#include "base/test/harness.h"
#include "workload/compute.h"
#include "workload/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Measurements that may lie beside the repository. */
#define SHARED_PROFILES TIDEMILL_SOURCE_DIR "/../shared/data/profiles"
#define H200_STEPS      SHARED_PROFILES "/h200_steps.csv"
#define DDP_GRID        SHARED_PROFILES "/ddp_grid.csv"

/* Equal but for a share of `want`. */
static inline bool close_to(double got, double want, double share)
{
    return fabs(got - want) <= share * fabs(want);
}

/* Skips the test that calls it where the file is absent. */
static inline void skip_without(const char *path)
{
    if (tm_env_real()->file_exists(tm_env_real(), path)) return;
    print_message("skipped: no file %s\n", path);
    skip();
}

/* Two GPUs as their makers describe them; the V100 has neither tf32 nor bf16 nor fp8. */
static inline struct tm_gpu_figures h200(void)
{
    return (struct tm_gpu_figures){.name = "H200",
                                   .flops = {66.9e12, 494.7e12, 989.4e12, 989.4e12, 1978.9e12},
                                   .memory_bytes_s = 4.8e12,
                                   .memory_gib = 141};
}

static inline struct tm_gpu_figures v100(void)
{
    return (struct tm_gpu_figures){
        .name = "V100", .flops = {15.7e12, NAN, 125e12, NAN, NAN}, .memory_bytes_s = 0.9e12, .memory_gib = 16};
}

/* A model by name, path or formula, which must be good. */
static inline void model_from(const char *name, struct tm_model *model)
{
    struct tm_error e = {0};
    tm_model_init(model);
    int rc = tm_model_load(tm_env_real(), name, model, &e);
    assert_row(rc == 0, "%s: %s", name, e.text);
}

static inline void profile_from(const char *path, struct tm_profile *profile)
{
    struct tm_error e = {0};
    tm_profile_init(profile);
    int rc = tm_profile_load(tm_env_real(), path, profile, &e);
    assert_row(rc == 0, "%s: %s", path, e.text);
}

/* The parsers get a copy that is exactly as long as the text: the address sanitizer sees every byte read behind it. */
static inline char *exact_copy(const char *text)
{
    size_t length = strlen(text);
    char *copy = malloc(length > 0 ? length : 1);
    if (copy == NULL) abort();
    memcpy(copy, text, length);
    return copy;
}

static inline int parse_model(const char *text, struct tm_model *model, struct tm_error *e)
{
    char *copy = exact_copy(text);
    int rc = tm_model__parse("m", copy, strlen(text), model, e);
    free(copy);
    return rc;
}

static inline int parse_profile(const char *text, struct tm_profile *profile, struct tm_error *e)
{
    char *copy = exact_copy(text);
    int rc = tm_profile_parse("p", copy, strlen(text), profile, e);
    free(copy);
    return rc;
}

#endif
