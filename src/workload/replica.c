#include "workload/replica.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

enum { BUCKETS_MAX = 4096 };

static const double SPREAD_MAX = 0.15; /* of one worker's steps: more than that is somebody else's load */
static const double FIT_SPREAD = 0.05; /* of a line through other batches */

/* ---- one worker ---- */

/* One worker's step at a batch. */
struct worker {
    double forward_ms;
    double backward_ms;
    double optimizer_ms;
    double data_ms;
    double other_ms;
    double spread;
    double busy_cores;
    int cores;
    bool profiled;
};

static bool is_row(const struct tm_replica_request *request, const struct tm_profile_step *step)
{
    return strcmp(step->network, request->network) == 0 && strcmp(step->gpu, request->gpu) == 0 &&
           step->precision == request->precision;
}

static double known(double figure, double otherwise)
{
    return isnan(figure) ? otherwise : figure;
}

static struct worker worker_of(const struct tm_profile_step *step)
{
    struct worker worker = {.forward_ms = step->forward_ms,
                            .backward_ms = step->backward_ms,
                            .optimizer_ms = step->optimizer_ms,
                            .data_ms = known(step->data_ms, 0),
                            .other_ms = known(step->other_ms, 0),
                            .busy_cores = known(step->busy_cores, 0),
                            .cores = step->cores};
    double p10 = known(step->step_ms_p10, 0);
    double p90 = known(step->step_ms_p90, 0);
    if (p10 > 0 && p90 > p10) worker.spread = fmin(tm_estimate__spread_between(p10, p90), SPREAD_MAX);
    return worker;
}

/* The profiled step whose batch is nearest, in proportion. */
static const struct tm_profile_step *nearest(const struct tm_replica_request *request, int batch)
{
    const struct tm_profile_step *best = NULL;
    for (size_t i = 0; i < request->profile->step_count; i++) {
        const struct tm_profile_step *step = &request->profile->steps[i];
        if (!is_row(request, step)) continue;
        double off = fabs(log((double)step->micro_batch / batch));
        if (best == NULL || off < fabs(log((double)best->micro_batch / batch))) best = step;
    }
    return best;
}

static const struct tm_profile_step *largest(const struct tm_replica_request *request)
{
    const struct tm_profile_step *best = NULL;
    for (size_t i = 0; i < request->profile->step_count; i++) {
        const struct tm_profile_step *step = &request->profile->steps[i];
        if (is_row(request, step) && (best == NULL || step->micro_batch > best->micro_batch)) best = step;
    }
    return best;
}

/* ---- batches that were not profiled ---- */

/* Forward and backward at a batch on a line through what was measured, weighted so that relative errors count. */
static double line_ms(const struct tm_replica_request *request, int batch)
{
    double weights = 0, x = 0, y = 0, xx = 0, xy = 0, share = 0;
    for (size_t i = 0; i < request->profile->step_count; i++) {
        const struct tm_profile_step *step = &request->profile->steps[i];
        if (!is_row(request, step)) continue;
        double ms = step->forward_ms + step->backward_ms;
        double weight = 1 / (ms * ms);
        weights += weight;
        x += weight * step->micro_batch;
        y += weight * ms;
        xx += weight * step->micro_batch * step->micro_batch;
        xy += weight * step->micro_batch * ms;
    }
    double spread = weights * xx - x * x;
    if (spread > 1e-9 * weights * xx) {
        double slope = (weights * xy - x * y) / spread;
        double base = (y - slope * x) / weights;
        if (slope > 0 && base >= 0) return base + slope * batch;
        if (slope <= 0) return y / weights; /* no slower with more: something else sets the pace */
    }
    share = xy / xx; /* one batch, or a base below 0: in proportion */
    return share * batch;
}

static int curve_ms(const struct tm_replica_request *request, int batch, struct tm_estimate *out, struct tm_error *e)
{
    size_t count = request->profile->step_count;
    int *batches = tm_calloc(count, sizeof *batches);
    double *ms = tm_calloc(count, sizeof *ms);
    struct tm_compute__curve curve;
    size_t found = 0;
    int rc = batches == NULL || ms == NULL ? tm_error_nomem(e) : 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct tm_profile_step *step = &request->profile->steps[i];
        if (!is_row(request, step)) continue;
        batches[found] = step->micro_batch;
        ms[found++] = tm_profile_step_ms(step);
    }
    if (rc == 0)
        rc = tm_compute__curve(request->compute, request->layers, request->figures, request->precision, &curve, e);
    if (rc == 0) rc = tm_compute__tune(&curve, TM_COMPUTE_ANY_HOST, batches, ms, found, e);
    if (rc == 0) *out = tm_compute__step_ms(&curve, batch);
    tm_free(batches);
    tm_free(ms);
    return rc;
}

/* Moves a profiled worker to another batch: passes as predicted, data in proportion, the rest as it is. */
static int move_batch(const struct tm_replica_request *request, const struct tm_profile_step *from, int batch,
                      struct worker *worker, struct tm_error *e)
{
    double passes_ms = worker->forward_ms + worker->backward_ms;
    double moved_ms = 0;
    double spread = FIT_SPREAD;
    if (request->figures != NULL && request->layers != NULL) {
        struct tm_estimate step;
        int rc = curve_ms(request, batch, &step, e);
        if (rc != 0) return rc;
        moved_ms = fmax(step.mean - worker->optimizer_ms, 0.2 * step.mean);
        spread = tm_estimate_spread(&step);
    } else {
        moved_ms = line_ms(request, batch);
    }
    worker->forward_ms *= moved_ms / passes_ms;
    worker->backward_ms *= moved_ms / passes_ms;
    worker->data_ms *= (double)batch / from->micro_batch;
    worker->spread = hypot(worker->spread, spread);
    return 0;
}

/* ---- all of them ---- */

/* The mean of the largest of n standard normals (Blom's approximation). */
static double largest_of(int n)
{
    double share = (n - 0.375) / (n + 0.25);
    double low = 0;
    double high = 10;
    if (n < 2) return 0;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (0.5 * erfc(-middle / sqrt(2)) < share)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Buckets of the network's gradients; the caller frees them. */
static int find_buckets(const struct tm_replica_request *request, struct tm_comm_bucket **out, size_t *out_count,
                        double *out_bytes, struct tm_error *e)
{
    const struct tm_profile *profile = request->profile;
    struct tm_comm_bucket *tensors = tm_calloc(profile->gradient_count + 1, sizeof *tensors);
    struct tm_comm_bucket *buckets = tm_calloc(BUCKETS_MAX, sizeof *buckets);
    size_t count = 0;
    double bytes = 0;
    int rc = tensors == NULL || buckets == NULL ? tm_error_nomem(e) : 0;
    for (size_t i = 0; rc == 0 && i < profile->gradient_count; i++) {
        const struct tm_profile_gradient *row = &profile->gradients[i];
        if (strcmp(row->network, request->network) != 0) continue;
        tensors[count++] = (struct tm_comm_bucket){row->bytes, row->ready};
        bytes += row->bytes;
    }
    if (rc == 0 && count == 0)
        rc = tm_error_set(e, TM_EINPUT,
                          "the profile has no table [gradient] of %s: more than one worker cannot be predicted",
                          request->network);
    if (rc == 0) *out_count = tm_comm__tensor_buckets(tensors, count, buckets, BUCKETS_MAX);
    tm_free(tensors);
    if (rc != 0) {
        tm_free(buckets);
        return rc;
    }
    *out = buckets;
    *out_bytes = bytes;
    return 0;
}

/* Time behind the last backward pass until all gradients are there, with the spread of the whole. */
static int expose(const struct tm_replica_request *request, const struct worker *worker, double before_ms,
                  struct tm_replica_prediction *out, double *out_spread, struct tm_error *e)
{
    struct tm_comm_bucket *buckets = NULL;
    *out_spread = 0;
    if (request->workers < 2) return 0;
    int rc = find_buckets(request, &buckets, &out->buckets, &out->grad_bytes, e);
    if (rc != 0) return rc;
    struct tm_comm_iteration iteration = {.world = request->workers,
                                          .rate_bit_s = request->rate_bit_s,
                                          .grad_bytes = out->grad_bytes,
                                          .forward_ms = before_ms,
                                          .backward_ms = worker->backward_ms,
                                          .crowding = out->crowding,
                                          .buckets = buckets,
                                          .bucket_count = out->buckets};
    struct tm_estimate estimate = tm_comm_iteration__ms(request->comm, &iteration);
    out->exposed_ms = fmax(0, estimate.mean - before_ms - worker->backward_ms);
    *out_spread = tm_estimate_spread(&estimate);
    tm_free(buckets);
    return 0;
}

static void slow_down(struct worker *worker, double factor)
{
    worker->forward_ms *= factor;
    worker->backward_ms *= factor;
    worker->optimizer_ms *= factor;
    worker->data_ms *= factor;
    worker->other_ms *= factor;
}

static int find_worker(const struct tm_replica_request *request, struct worker *out, int *out_batch,
                       int *out_micro_batches, struct tm_error *e)
{
    const struct tm_profile_step *step = request->batch > 0 ? nearest(request, request->batch) : largest(request);
    if (step == NULL)
        return tm_error_set(e, TM_EINPUT, "the profile has no steps of %s on %s in %s", request->network,
                            request->gpu[0] != '\0' ? request->gpu : "an unnamed device",
                            tm_precision_names[request->precision]);
    int batch = request->batch > 0 ? request->batch : step->micro_batch;
    *out = worker_of(step);
    out->profiled = batch == step->micro_batch;
    *out_batch = batch;
    *out_micro_batches = request->micro_batches;
    if (*out_micro_batches == 0) *out_micro_batches = step->micro_batches > 0 ? step->micro_batches : 1;
    return out->profiled ? 0 : move_batch(request, step, batch, out, e);
}

int tm_replica_share_batch(int64_t samples, struct tm_replica_request *request, struct tm_error *e)
{
    int workers = request->workers;
    if (samples < workers)
        return tm_error_set(e, TM_EUSAGE, "%lld samples are too few for %d workers", (long long)samples, workers);
    int64_t each = (samples + workers - 1) / workers;
    if (request->batch == 0) request->batch = (int)each;
    request->micro_batches = (int)((each + request->batch - 1) / request->batch);
    return 0;
}

int tm_replica_predict(const struct tm_replica_request *request, struct tm_replica_prediction *out, struct tm_error *e)
{
    struct worker worker;
    struct tm_replica_prediction fresh = {.crowding = 1};
    double comm_spread = 0;
    if (request->workers < 1 || request->workers > TM_REPLICA_WORKERS_MAX)
        return tm_error_set(e, TM_EINPUT, "from 1 to %d workers", TM_REPLICA_WORKERS_MAX);
    if (request->workers > 1 && !(request->rate_bit_s > 0))
        return tm_error_set(e, TM_EINPUT, "the bandwidth of the links is not known");
    int rc = find_worker(request, &worker, &fresh.batch, &fresh.micro_batches, e);
    if (rc != 0) return rc;
    int per_host = request->per_host > 0 ? request->per_host : 1;
    if (worker.cores > 0) fresh.crowding = fmax(1, per_host * worker.busy_cores / worker.cores);
    slow_down(&worker, fresh.crowding);
    fresh.profiled = worker.profiled;
    fresh.compute_ms = fresh.micro_batches * (worker.forward_ms + worker.backward_ms);
    fresh.optimizer_ms = worker.optimizer_ms;
    fresh.data_ms = worker.data_ms;
    fresh.other_ms = worker.other_ms;
    double before_ms = worker.data_ms + worker.other_ms + fresh.compute_ms - worker.backward_ms;
    rc = expose(request, &worker, before_ms, &fresh, &comm_spread, e);
    if (rc != 0) return rc;
    fresh.compute_ms *= 1 + worker.spread * largest_of(request->workers);
    double mean = fresh.compute_ms + fresh.exposed_ms + fresh.optimizer_ms + fresh.data_ms + fresh.other_ms;
    double spread = hypot(worker.spread * fresh.compute_ms / mean, comm_spread * fresh.exposed_ms / mean);
    fresh.step_ms = tm_estimate_around(mean, spread);
    fresh.samples_per_s = (double)request->workers * fresh.micro_batches * fresh.batch / mean * 1e3;
    *out = fresh;
    return 0;
}
