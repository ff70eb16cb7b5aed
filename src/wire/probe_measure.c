/* Tests of one link, from its one end. */
#include "wire/probe_internal.h"

#include "base/alloc.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

enum { ROUND_TRIPS = 60, SIZE_TRIPS = 7, SIZE_BUDGET_MS = 800 };

const size_t tm_probe_sizes[TM_PROBE_SIZES] = {1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24};

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    return values[count / 2];
}

/* ---- one stream ---- */

static int64_t warm_ms_of(int64_t duration_ms)
{
    return duration_ms / 5;
}

int tm_probe__measure_flow(const struct tm_probe_target *target, bool back, double *out_bits_s, struct tm_error *e)
{
    struct tm_probe_stream stream;
    uint64_t bytes = 0;
    uint64_t ns = 0;
    int rc = tm_probe__connect(target->env, target->address, target->tls, &stream, e);
    if (rc != 0) return rc;
    stream.wait_ms += target->duration_ms;
    if (back) {
        rc = tm_probe__send_frame(&stream, TM_PROBE_SOURCE, (uint64_t)target->duration_ms, 0, e);
        if (rc == 0) rc = tm_probe__drain(&stream, warm_ms_of(target->duration_ms), &bytes, &ns, e);
    } else {
        struct tm_probe_frame answer = {0};
        rc = tm_probe__send_frame(&stream, TM_PROBE_SINK, (uint64_t)warm_ms_of(target->duration_ms), 0, e);
        if (rc == 0) rc = tm_probe__pour(&stream, target->duration_ms, e);
        if (rc == 0) rc = tm_probe__receive_frame(&stream, &answer, e);
        if (rc == 0 && (answer.kind != TM_PROBE_RESULT || answer.b == 0))
            rc = tm_error_set(e, TM_EPEER, "the server could not count what arrived");
        bytes = answer.a;
        ns = answer.b;
    }
    if (rc == 0) *out_bits_s = (double)bytes * 8e9 / (double)ns;
    tm_probe__close(&stream);
    return rc;
}

/* ---- several at once ---- */

struct flow {
    const struct tm_probe_target *target;
    bool back;
    double bits_s;
    int rc;
    struct tm_error e;
    pthread_t thread;
};

static void *run_flow(void *context)
{
    struct flow *flow = context;
    flow->rc = tm_probe__measure_flow(flow->target, flow->back, &flow->bits_s, &flow->e);
    return NULL;
}

/* Runs them at the same time; the first error counts. */
static int run_flows(struct flow *flows, size_t count, struct tm_error *e)
{
    size_t started = 0;
    while (started < count && pthread_create(&flows[started].thread, NULL, run_flow, &flows[started]) == 0)
        started++;
    int rc = started == count ? 0 : tm_error_set(e, TM_ENOMEM, "no more threads");
    for (size_t i = 0; i < started; i++) {
        (void)pthread_join(flows[i].thread, NULL);
        if (rc != 0 || flows[i].rc == 0) continue;
        rc = flows[i].rc;
        if (e != NULL) *e = flows[i].e;
    }
    return rc;
}

static int measure_streams(const struct tm_probe_target *target, bool back, double *out_bits_s, struct tm_error *e)
{
    struct flow flows[TM_PROBE_STREAMS_MAX];
    size_t count = (size_t)target->streams;
    for (size_t i = 0; i < count; i++)
        flows[i] = (struct flow){.target = target, .back = back};
    int rc = run_flows(flows, count, e);
    *out_bits_s = 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        *out_bits_s += flows[i].bits_s;
    return rc;
}

/* ---- round trips ---- */

static int trip(struct tm_probe_stream *stream, const char *bytes, size_t size, double *out_ms, struct tm_error *e)
{
    struct tm_probe_frame answer;
    int64_t begin_ns = stream->env->monotonic_ns(stream->env);
    int rc = tm_probe__send_frame(stream, TM_PROBE_ECHO, size, 0, e);
    if (rc == 0 && size > 0) rc = tm_probe__send(stream, bytes, size, e);
    if (rc == 0) rc = tm_probe__receive_frame(stream, &answer, e);
    if (rc == 0 && answer.kind != TM_PROBE_ACK)
        rc = tm_error_set(e, TM_EPEER, "a frame that is not an acknowledgement");
    if (rc == 0) *out_ms = (double)(stream->env->monotonic_ns(stream->env) - begin_ns) / 1e6;
    return rc;
}

static int measure_latency(const struct tm_probe_target *target, double *out_ms, struct tm_error *e)
{
    struct tm_probe_stream stream;
    double ms[ROUND_TRIPS];
    int rc = tm_probe__connect(target->env, target->address, target->tls, &stream, e);
    if (rc != 0) return rc;
    for (int i = 0; rc == 0 && i < 5; i++) /* handshake, first packets */
        rc = trip(&stream, NULL, 0, &ms[0], e);
    for (size_t i = 0; rc == 0 && i < ROUND_TRIPS; i++)
        rc = trip(&stream, NULL, 0, &ms[i], e);
    if (rc == 0) *out_ms = median(ms, ROUND_TRIPS) / 2;
    tm_probe__close(&stream);
    return rc;
}

int tm_probe__measure_sizes(const struct tm_probe_target *target, double ms[TM_PROBE_SIZES], struct tm_error *e)
{
    struct tm_probe_stream stream;
    int rc = tm_probe__connect(target->env, target->address, target->tls, &stream, e);
    if (rc != 0) return rc;
    char *bytes = tm_calloc(1, tm_probe_sizes[TM_PROBE_SIZES - 1]);
    if (bytes == NULL) rc = tm_error_nomem(e);
    double spent_ms = 0;
    stream.wait_ms *= 4;
    for (size_t s = 0; s < TM_PROBE_SIZES; s++) {
        double trips[SIZE_TRIPS];
        size_t taken = 0;
        /* The next size takes some four times the last: no more than the budget on a slow link. */
        bool too_long = s > 0 && (isnan(ms[s - 1]) || 8 * ms[s - 1] > SIZE_BUDGET_MS);
        ms[s] = NAN;
        for (; rc == 0 && !too_long && taken < SIZE_TRIPS && (taken == 0 || spent_ms < SIZE_BUDGET_MS); taken++) {
            rc = trip(&stream, bytes, tm_probe_sizes[s], &trips[taken], e);
            if (rc == 0) spent_ms += trips[taken];
        }
        if (rc == 0 && taken > 0) ms[s] = median(trips, taken);
    }
    tm_free(bytes);
    tm_probe__close(&stream);
    return rc;
}

/* ---- all of a pair ---- */

int tm_probe__measure_pair(const struct tm_probe_target *target, struct tm_probe_pair *out, struct tm_error *e)
{
    struct tm_probe_pair pair = {0};
    struct flow both[] = {{.target = target}, {.target = target, .back = true}};
    int rc = measure_latency(target, &pair.latency_ms, e);
    if (rc == 0) rc = tm_probe__measure_flow(target, false, &pair.out, e);
    if (rc == 0) rc = tm_probe__measure_flow(target, true, &pair.back, e);
    if (rc == 0) rc = run_flows(both, 2, e);
    pair.both_out = both[0].bits_s;
    pair.both_back = both[1].bits_s;
    if (rc == 0) rc = measure_streams(target, false, &pair.streams_out, e);
    if (rc == 0) rc = measure_streams(target, true, &pair.streams_back, e);
    if (rc == 0) *out = pair;
    return rc;
}
