/* Profiles: measured times of models. `steps` are training steps on one GPU, `runs` are data-parallel iterations over
 * links, `gradients` say when each becomes ready.
 *
 * Read from our own form (tidemill-profile(5), profile.c) and from two CSV forms: one row a step (network, precision,
 * micro_batch, fwd_ms, bwd_ms, opt_ms, peak_gib, ...), and one row a data-parallel cell (world, mbit, model, batch,
 * ...). */
#ifndef TM_WORKLOAD_PROFILE_H
#define TM_WORKLOAD_PROFILE_H

#include "base/arena.h"
#include "base/env.h"
#include "base/precision.h"

#include <stddef.h>

enum { TM_PROFILE_ROWS_MAX = 1 << 18, TM_PROFILE_BYTES_MAX = 64 << 20 };

/* NaN: not measured. */
struct tm_profile_step {
    const char *network;
    const char *gpu; /* "" where the file does not say */
    enum tm_precision precision;
    int micro_batch;
    double forward_ms;
    double backward_ms;
    double optimizer_ms;
    double peak_gib;
    double step_ms_p10;
    double params;
    double train_gflop_per_sample;
};

struct tm_profile_run {
    const char *network;
    int world;
    double mbit;
    int batch; /* of one worker */
    double grad_bytes;
    double iter_ms; /* median */
    double iter_ms_std;
    double compute_ms;
    double compute_ms_std;
    double all_reduce_ms; /* one flat all-reduce of all gradients */
};

/* A gradient of a network, in the order in which the backward pass gives them. */
struct tm_profile_gradient {
    const char *network;
    double bytes;
    double ready; /* the share of the backward pass that is over then: 0 to 1 */
};

struct tm_profile {
    struct tm_arena arena; /* owns the strings */
    const char *source;
    struct tm_profile_step *steps;
    size_t step_count;
    size_t step_capacity;
    struct tm_profile_run *runs;
    size_t run_count;
    size_t run_capacity;
    struct tm_profile_gradient *gradients;
    size_t gradient_count;
    size_t gradient_capacity;
};

void tm_profile_init(struct tm_profile *profile);
void tm_profile_deinit(struct tm_profile *profile);
/* Adds what a file says to `profile`. */
int tm_profile_load(struct tm_env *env, const char *path, struct tm_profile *profile, struct tm_error *e);
int tm_profile_parse(const char *file, const char *text, size_t length, struct tm_profile *profile, struct tm_error *e);
void tm_profile_print(const struct tm_profile *profile, struct tm_text *out);

double tm_profile_step_ms(const struct tm_profile_step *step); /* forward + backward + optimizer */

#endif
