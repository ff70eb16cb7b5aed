/* Profiles: measured times of models. `steps` are training steps on one device, `runs` are data-parallel iterations
 * over links, `gradients` say when each becomes ready, `layers` what each layer of a network is and takes.
 *
 * Read from our own form (tidemill-profile(5), profile.c) and from three CSV forms: one row a step (network, precision,
 * micro_batch, fwd_ms, bwd_ms, opt_ms, peak_gib, ...), the same with a transformer's sizes instead of a name (family,
 * layers, hidden, heads, kv_heads, ffn, ctx, vocab, ...), and one row a data-parallel cell (world, mbit, model, batch,
 * ...). */
#ifndef TM_WORKLOAD_PROFILE_H
#define TM_WORKLOAD_PROFILE_H

#include "base/arena.h"
#include "base/env.h"
#include "base/precision.h"
#include "workload/model.h"

#include <stddef.h>

enum { TM_PROFILE_ROWS_MAX = 1 << 18, TM_PROFILE_BYTES_MAX = 64 << 20 };

/* NaN: not measured; of counts: 0. A step of k micro-batches takes k (forward + backward) + optimizer + data + other.
 */
struct tm_profile_step {
    const char *network;
    const char *gpu; /* "" where the file does not say; "cpu": on the host's processors */
    enum tm_precision precision;
    int micro_batch;
    double forward_ms;  /* of a micro-batch */
    double backward_ms; /* of a micro-batch, with the loss */
    double optimizer_ms;
    double peak_gib;
    double step_ms_p10; /* of whole steps */
    double params;
    double train_gflop_per_sample;
    double data_ms;  /* that the loop waits for a batch */
    double other_ms; /* what is none of these: copies to the device, gradients set to zero, logs */
    double step_ms_p90;
    int iterations;    /* that were timed */
    int micro_batches; /* of a step */
    double busy_cores; /* processor time over time */
    int cores;         /* that the job may use */
    double overhead_percent;
    int recompute; /* 1: every block was checkpointed */
    int compile;   /* 1: by torch.compile */
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

/* A gradient of a network, in the order in which the backward pass gives them: whole tensors. */
struct tm_profile_gradient {
    const char *network;
    double bytes;
    double ready; /* the share of the backward pass that is over then: 0 to 1 */
};

struct tm_profile_network {
    const char *network;
    int optimizer_states; /* values kept per parameter besides the weight */
    const char *input;
    const char *model; /* a shipped model or a formula with semicolons; "": as its name or its layers tell */
};

struct tm_profile_layer {
    const char *network;
    struct tm_layer layer; /* its `tied` is not set: */
    const char *tied;      /* the layer with the same weights; "": none */
    double forward_ms;     /* of a micro-batch; NaN: not measured */
    double backward_ms;
};

struct tm_profile {
    struct tm_arena arena; /* owns the strings */
    const char *source;
    size_t passed_over; /* rows of steps that nobody timed */
    struct tm_profile_step *steps;
    size_t step_count;
    size_t step_capacity;
    struct tm_profile_run *runs;
    size_t run_count;
    size_t run_capacity;
    struct tm_profile_gradient *gradients;
    size_t gradient_count;
    size_t gradient_capacity;
    struct tm_profile_network *networks;
    size_t network_count;
    size_t network_capacity;
    struct tm_profile_layer *layers;
    size_t layer_count;
    size_t layer_capacity;
};

void tm_profile_init(struct tm_profile *profile);
void tm_profile_deinit(struct tm_profile *profile);
/* Adds what a file says to `profile`. */
int tm_profile_load(struct tm_env *env, const char *path, struct tm_profile *profile, struct tm_error *e);
int tm_profile_parse(const char *file, const char *text, size_t length, struct tm_profile *profile, struct tm_error *e);
/* The same, and what it says again replaces what was known: a step by its network, GPU, precision and micro-batch, a
 * run by its network, world, rate and batch; layers, gradients and the rest of a network as a whole. */
int tm_profile_update(struct tm_env *env, const char *path, struct tm_profile *profile, struct tm_error *e);
void tm_profile_print(const struct tm_profile *profile, struct tm_text *out);

/* The model that the [network] table names for a network; "" where it names none. */
const char *tm_profile_model_name(const struct tm_profile *profile, const char *network);

double tm_profile_step_ms(const struct tm_profile_step *step); /* forward + backward + optimizer */
/* All of a step: every micro-batch, data and the rest. */
double tm_profile__whole_step_ms(const struct tm_profile_step *step);

/* The network that a profile is of: `name`, or the only one that it has layers of (NULL). */
int tm_profile_choose(const struct tm_profile *profile, const char *file, const char *name, const char **out,
                      struct tm_error *e);
/* A profiled network as a model, from its layers, with the batch that the job takes. `model` must be initialised; it is
 * filled only on success. */
int tm_profile_model(const struct tm_profile *profile, const char *file, const char *network, struct tm_model *model,
                     struct tm_error *e);

#endif
