/* How long data-parallel workers wait for each other.
 *
 * Gradients become ready in backward order and go out in buckets (PyTorch's rule: the first closes at 1 MiB, the others
 * at 25 MiB); each bucket is all-reduced around a ring, one after the other, while the backward pass goes on:
 *
 *     ring(m) = 2 (n-1) latency + (2 (n-1)/n m - burst) / (efficiency x rate) + 2 (n-1)/n m x handling
 *     start(k) = max(ready(k), end(k-1));  end(k) = start(k) + ring(m_k);  iteration = max(compute, end(last)) x sync
 *
 * Where an instance holds several workers of the ring, they first add up among themselves over its inner link and then
 * one ring goes between the instances (the two-level form): ring(m) is the sum of both. Rings of several stages that
 * leave an instance by one link share its rate.
 *
 * NCCL builds trees where they are faster, within and between instances: the same bytes on every link, and messages
 * behind each other as deep as the tree, 2 log2(n) of them. It sends in chunks, so that the inner links work while the
 * outer ones do: the slower of both counts.
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
    bool trees;                 /* as NCCL does: see above */
};

struct tm_comm_model tm_comm__prior(void); /* processes on hosts' processors over shaped or shared links */
/* The same where gradients' ready times are measured, and need not be guessed: PyTorch over gloo, as measured. */
struct tm_comm_model tm_comm_hosts(void);
struct tm_comm_model tm_comm_gpus(void); /* GPUs whose collectives do not load the host (NCCL), on a cloud's network */
/* Links were probed: what was measured is what they give, with this latency (NaN: as before) and spread. */
void tm_comm_probed(double latency_ms, double spread, struct tm_comm_model *model);
int tm_comm_learn(const struct tm_profile_run *const *runs, size_t count, struct tm_comm_model *out,
                  struct tm_error *e);

/* Gradients that go out together: how much, and which share of the backward pass is over when they are ready. */
struct tm_comm_bucket {
    double bytes;
    double ready;
};

/* PyTorch's buckets, of layers in the order in which the backward pass gives them: bytes of each and the share of the
 * pass behind it. Returns how many there are; at most `max` (larger ones, where those of PyTorch would be more). */
size_t tm_comm__buckets(const struct tm_comm_bucket *tensors, size_t count, struct tm_comm_bucket *out, size_t max);
/* The same of whole tensors, as PyTorch has it: a bucket closes behind the tensor that fills it, and waits for the last
 * of them. */
size_t tm_comm__tensor_buckets(const struct tm_comm_bucket *tensors, size_t count, struct tm_comm_bucket *out,
                               size_t max);

/* One data-parallel iteration. */
struct tm_comm_iteration {
    int world;
    double rate_bit_s; /* of the slowest link between instances, all of it */
    double grad_bytes;
    double forward_ms;
    double backward_ms;
    int local;          /* workers of the ring on one instance; 0 or 1: one */
    double local_bit_s; /* of the link between them */
    int sharing;        /* rings that share the link between instances; 0 or 1: this one alone */
    double crowding;    /* how much slower processors handle messages that several workers share; 0: no slower */
    /* When gradients become ready; NULL: evenly over the backward pass. */
    const struct tm_comm_bucket *buckets;
    size_t bucket_count;
};

struct tm_estimate tm_comm_iteration__ms(const struct tm_comm_model *model, const struct tm_comm_iteration *iteration);

/* One message between two instances. */
double tm_comm__send_ms(const struct tm_comm_model *model, double bytes, double rate_bit_s);

/* Compute time and one ring at the nominal rate, one after the other: what a user would reckon by hand. */
double tm_comm__naive_ms(const struct tm_comm_iteration *iteration);

/* A measured run as an iteration: a third of its compute is the forward pass. */
struct tm_comm_iteration tm_comm_iteration__of(const struct tm_profile_run *run);

#endif
