/* Data-parallel workers that are each like the one that was profiled: the same machine, the same job, a share of the
 * batch.
 *
 * A worker's step is what the profile measured. The last backward pass overlaps with the all-reduce of the gradients,
 * in PyTorch's buckets of whole tensors and at the times at which the profile saw them ready (comm.h); the optimizer
 * comes behind both. Everybody waits for the slowest of n, by the spread that the profile saw. Workers that share a
 * machine's processors slow each other down as far as they need more of them than there are.
 *
 * For a batch that was not profiled: on a GPU of the catalogue the curve of compute.h, moved to the batches that were;
 * on anything else a line through them, or one in proportion. */
#ifndef TM_WORKLOAD_REPLICA_H
#define TM_WORKLOAD_REPLICA_H

#include "workload/comm.h"

enum { TM_REPLICA_WORKERS_MAX = 65536 };

struct tm_replica_request {
    const struct tm_profile *profile;
    const char *network;
    const char *gpu; /* as in the profile's steps */
    enum tm_precision precision;
    /* For batches not profiled, on a GPU that is known; NULL: it is not. */
    const struct tm_gpu_figures *figures;
    const struct tm_network *layers;
    const struct tm_compute_model *compute;
    const struct tm_comm_model *comm;
    int batch;         /* of one worker's micro-batch; 0: as profiled, the largest */
    int micro_batches; /* of one worker; 0: as profiled */
    int workers;
    int per_host;      /* that share a machine's processors; 0: 1 */
    double rate_bit_s; /* of each worker's link; any, for one worker */
};

/* Parts in ms; they add up to the mean. */
struct tm_replica_prediction {
    struct tm_estimate step_ms;
    double compute_ms; /* forward and backward of all micro-batches, and waiting for others' */
    double exposed_ms; /* communication behind the last backward pass */
    double optimizer_ms;
    double data_ms;
    double other_ms;
    double samples_per_s; /* of all workers */
    double crowding;      /* how much slower processors are that workers share */
    double grad_bytes;
    size_t buckets;
    int batch; /* as used */
    int micro_batches;
    bool profiled; /* this very batch was */
};

/* A worker's share of a global batch of so many samples, in micro-batches of the size that the request has, else in
 * one. -TM_EUSAGE: too few samples for the request's workers. */
int tm_replica_share_batch(int64_t samples, struct tm_replica_request *request, struct tm_error *e);
/* -TM_EINPUT: the profile has no such steps, or no gradients for more than one worker. */
int tm_replica_predict(const struct tm_replica_request *request, struct tm_replica_prediction *out, struct tm_error *e);

#endif
