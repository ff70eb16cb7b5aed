#include "workload/comm.h"

#include "workload/fit.h"

#include <math.h>

enum {
    X_EFFICIENCY, /* logit of the share of the nominal rate */
    X_LATENCY,    /* log of ms per ring step */
    X_HANDLING,   /* log of ms per MB on the processor */
    X_SYNC,       /* log of the factor for waiting */
    X_BURST,      /* log of kB that pass at once */
};

static const double prior_x[TM_COMM_UNKNOWNS] = {3.0, -1.203973, 0.405465, 0.0, 4.094345};
static const double prior_spread[TM_COMM_UNKNOWNS] = {1.0, 1.0, 1.0, 0.1, 1.0};
static const double RUN_NOISE = 0.05;
static const double PRIOR_SPREAD = 0.10;

enum { FIRST_BUCKET_BYTES = 1 << 20, BUCKET_BYTES = 25 << 20 };

struct tm_comm_model tm_comm__prior(void)
{
    struct tm_comm_model model = {.spread = PRIOR_SPREAD};
    for (size_t i = 0; i < TM_COMM_UNKNOWNS; i++)
        model.x[i] = prior_x[i];
    return model;
}

struct tm_comm_model tm_comm_hosts(void)
{
    /* 95% of the nominal rate (headers), 0.3 ms a hop, 0.6 ms a MB to copy and add up, 60 kB at once. */
    return (struct tm_comm_model){.x = {2.99, -1.203973, -0.510826, 0.0, 4.094345}, .spread = 0.05};
}

struct tm_comm_model tm_comm_gpus(void)
{
    /* 88% of the nominal rate, 0.05 ms a hop, adding up at some 400 GB/s (a third of what a V100's memory gives, as it
     * reads two values and writes one), nothing for free. */
    return (struct tm_comm_model){.x = {1.99, -2.995732, -5.991465, 0.0, 0.0}, .spread = 0.15, .trees = true};
}

void tm_comm_probed(double latency_ms, double spread, struct tm_comm_model *model)
{
    model->x[X_EFFICIENCY] = 5.0; /* 99%: a probe of all at once sees what a collective sees, but for its frames */
    if (!isnan(latency_ms)) model->x[X_LATENCY] = log(latency_ms);
    model->spread = hypot(0.05, spread / 2); /* a ring sees many links at once */
}

struct tm_comm_iteration tm_comm_iteration__of(const struct tm_profile_run *run)
{
    return (struct tm_comm_iteration){.world = run->world,
                                      .rate_bit_s = run->mbit * 1e6,
                                      .grad_bytes = run->grad_bytes,
                                      .forward_ms = run->compute_ms / 3,
                                      .backward_ms = run->compute_ms * 2 / 3};
}

double tm_comm__naive_ms(const struct tm_comm_iteration *iteration)
{
    double share = 2.0 * (iteration->world - 1) / iteration->world;
    return iteration->forward_ms + iteration->backward_ms +
           share * iteration->grad_bytes * 8 / iteration->rate_bit_s * 1e3;
}

/* What the unknowns mean for one all-reduce: time per byte and per all-reduce. */
struct ring {
    double fixed_ms;
    double slow_ms_per_byte; /* of what goes over the link after the burst */
    double any_ms_per_byte;  /* of all bytes, whichever way they go */
    double burst_bytes;
    double sent_share;
};

static const double LOCAL_LATENCY = 0.2; /* of the latency between instances */

/* Messages behind each other, there and back. */
static double hops_of(int members, bool trees)
{
    double ring = members - 1;
    return 2 * (trees ? fmin(ring, ceil(log2(members))) : ring);
}

static struct ring ring_of(const double *x, const struct tm_comm_iteration *iteration, bool trees)
{
    double efficiency = 1 / (1 + exp(-x[X_EFFICIENCY]));
    double handling = exp(x[X_HANDLING]) / 1e6 * fmax(1, iteration->crowding);
    int local = iteration->local > 1 ? iteration->local : 1;
    int instances = (iteration->world + local - 1) / local;
    double sharing = iteration->sharing > 1 ? iteration->sharing : 1;
    struct ring ring = {.fixed_ms = hops_of(instances, trees) * exp(x[X_LATENCY]),
                        .slow_ms_per_byte = 8e3 * sharing / (iteration->rate_bit_s * efficiency),
                        .burst_bytes = exp(x[X_BURST]) * 1e3,
                        .sent_share = 2.0 * (instances - 1) / instances};
    ring.any_ms_per_byte = ring.sent_share * handling;
    if (local == 1) return ring;
    double local_share = 2.0 * (local - 1) / local;
    double local_ms_per_byte = local_share * 8e3 / (iteration->local_bit_s * efficiency);
    /* Chunks go through the inner link while others leave the instance: only what the slower link does not hide. */
    if (trees) local_ms_per_byte = fmax(0, local_ms_per_byte - ring.sent_share * ring.slow_ms_per_byte);
    ring.fixed_ms += LOCAL_LATENCY * hops_of(local, trees) * exp(x[X_LATENCY]);
    ring.any_ms_per_byte += local_ms_per_byte + local_share * handling;
    return ring;
}

static double ring_ms(const struct ring *ring, double bytes)
{
    double late = fmax(0, ring->sent_share * bytes - ring->burst_bytes);
    return ring->fixed_ms + late * ring->slow_ms_per_byte + bytes * ring->any_ms_per_byte;
}

double tm_comm__send_ms(const struct tm_comm_model *model, double bytes, double rate_bit_s)
{
    double efficiency = 1 / (1 + exp(-model->x[X_EFFICIENCY]));
    return bytes > 0 ? exp(model->x[X_LATENCY]) + bytes * 8e3 / (rate_bit_s * efficiency) : 0;
}

size_t tm_comm__buckets(const struct tm_comm_bucket *tensors, size_t count, struct tm_comm_bucket *out, size_t max)
{
    size_t made = 0;
    double total = 0;
    for (size_t i = 0; i < count; i++)
        total += tensors[i].bytes;
    double usual = fmax(BUCKET_BYTES, max > 1 ? (total - FIRST_BUCKET_BYTES) / (double)(max - 1) : 0);
    double limit = max > 1 ? FIRST_BUCKET_BYTES : INFINITY;
    struct tm_comm_bucket bucket = {0, 0};
    for (size_t i = 0; i < count; i++) {
        double left = tensors[i].bytes;
        while (left > 0) { /* a layer of ours may be many tensors: it fills buckets evenly */
            double taken = fmin(left, limit - bucket.bytes);
            double begin = i > 0 ? tensors[i - 1].ready : 0;
            left -= taken;
            bucket.bytes += taken;
            bucket.ready = begin + (tensors[i].ready - begin) * (1 - left / tensors[i].bytes);
            if (bucket.bytes < limit) continue;
            out[made++] = bucket;
            bucket = (struct tm_comm_bucket){0, 0};
            limit = made + 1 < max ? usual : INFINITY;
        }
    }
    if (bucket.bytes > 0) out[made++] = bucket;
    return made;
}

size_t tm_comm__tensor_buckets(const struct tm_comm_bucket *tensors, size_t count, struct tm_comm_bucket *out,
                               size_t max)
{
    size_t made = 0;
    double limit = max > 1 ? FIRST_BUCKET_BYTES : INFINITY;
    struct tm_comm_bucket bucket = {0, 0};
    for (size_t i = 0; i < count; i++) {
        bucket.bytes += tensors[i].bytes;
        bucket.ready = fmax(bucket.ready, tensors[i].ready);
        if (bucket.bytes < limit) continue;
        out[made++] = bucket;
        bucket = (struct tm_comm_bucket){0, 0};
        limit = made + 1 < max ? BUCKET_BYTES : INFINITY;
    }
    if (bucket.bytes > 0) out[made++] = bucket;
    return made;
}

static double last_end(const struct tm_comm_iteration *iteration, const struct ring *ring)
{
    double end_ms = 0;
    for (size_t i = 0; i < iteration->bucket_count; i++) {
        double ready_ms = iteration->forward_ms + iteration->backward_ms * iteration->buckets[i].ready;
        end_ms = fmax(ready_ms, end_ms) + ring_ms(ring, iteration->buckets[i].bytes);
    }
    if (iteration->buckets != NULL) return end_ms;
    double done = 0;
    double bucket = FIRST_BUCKET_BYTES;
    while (done < iteration->grad_bytes) {
        double bytes = fmin(bucket, iteration->grad_bytes - done);
        done += bytes;
        double ready_ms = iteration->forward_ms + iteration->backward_ms * done / iteration->grad_bytes;
        end_ms = fmax(ready_ms, end_ms) + ring_ms(ring, bytes);
        bucket = BUCKET_BYTES;
    }
    return end_ms;
}

static double iteration_at(const double *x, const struct tm_comm_iteration *iteration, bool trees)
{
    double compute_ms = iteration->forward_ms + iteration->backward_ms;
    if (iteration->world < 2 || iteration->grad_bytes <= 0) return compute_ms;
    struct ring ring = ring_of(x, iteration, trees);
    return fmax(compute_ms, last_end(iteration, &ring)) * exp(x[X_SYNC]);
}

struct tm_estimate tm_comm_iteration__ms(const struct tm_comm_model *model, const struct tm_comm_iteration *iteration)
{
    return tm_estimate_around(iteration_at(model->x, iteration, model->trees), model->spread);
}

static double run_residual(const void *context, const double *x, size_t i)
{
    const struct tm_profile_run *run = ((const struct tm_profile_run *const *)context)[i];
    struct tm_comm_iteration iteration = tm_comm_iteration__of(run);
    return log(iteration_at(x, &iteration, false) / run->iter_ms) / RUN_NOISE;
}

int tm_comm_learn(const struct tm_profile_run *const *runs, size_t count, struct tm_comm_model *out, struct tm_error *e)
{
    struct tm_comm_model model = tm_comm__prior();
    struct tm_fit fit = {.unknowns = TM_COMM_UNKNOWNS,
                         .residuals = count,
                         .prior = prior_x,
                         .spread = prior_spread,
                         .robust = 1,
                         .residual = run_residual,
                         .context = runs};
    int rc = tm_fit__solve(&fit, model.x, e);
    if (rc != 0) return rc;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double off = run_residual(runs, model.x, i) * RUN_NOISE;
        sum += fmin(off * off, 0.04);
    }
    double known = (double)count / ((double)count + 5);
    double fitted = count > 0 ? sum / (double)count : 0;
    model.spread = sqrt(known * fmax(fitted, 0.03 * 0.03) + (1 - known) * PRIOR_SPREAD * PRIOR_SPREAD);
    *out = model;
    return 0;
}
