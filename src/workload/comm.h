/* How long data-parallel workers wait for each other.
 *
 * Gradients become ready in backward order and go out in buckets (PyTorch's rule: the first closes at 1 MiB, the others
 * at 25 MiB); each bucket is all-reduced around a ring, one after the other, while the backward pass goes on:
 *
 *     ring(m) = 2 (n-1) latency + (2 (n-1)/n m - burst) / (efficiency x rate) + 2 (n-1)/n m x handling
 *     start(k) = max(ready(k), end(k-1));  end(k) = start(k) + ring(m_k);  iteration = max(compute, end(last)) x sync
 *
 * What links really give (efficiency, latency, the bytes a shaped link lets through at once, the time to add numbers
 * up, the cost of waiting for the slowest) are unknowns with a prior, learned from measured runs. */
#ifndef TM_WORKLOAD_COMM_H
#define TM_WORKLOAD_COMM_H

#include "workload/compute.h"
#include "workload/profile.h"

enum { TM_COMM_UNKNOWNS = 5 };

struct tm_comm_model {
    double x[TM_COMM_UNKNOWNS]; /* see comm.c */
    double spread;              /* one standard deviation of the log error of an iteration */
};

struct tm_comm_model tm_comm_prior(void); /* processes on hosts' processors over shaped or shared links */
struct tm_comm_model tm_comm_gpus(void);  /* GPUs whose collectives do not load the host (NCCL), on a cloud's network */
int tm_comm_learn(const struct tm_profile_run *const *runs, size_t count, struct tm_comm_model *out,
                  struct tm_error *e);

/* One data-parallel iteration. */
struct tm_comm_iteration {
    int world;
    double rate_bit_s; /* of the slowest link */
    double grad_bytes;
    double forward_ms;
    double backward_ms;
};

struct tm_estimate tm_comm_iteration_ms(const struct tm_comm_model *model, const struct tm_comm_iteration *iteration);

/* Compute time and one ring at the nominal rate, one after the other: what a user would reckon by hand. */
double tm_comm_naive_ms(const struct tm_comm_iteration *iteration);

/* A measured run as an iteration: a third of its compute is the forward pass. */
struct tm_comm_iteration tm_comm_iteration_of(const struct tm_profile_run *run);

#endif
