/* A tap over a record made by hand, for tests and fuzz targets of whoever watches. */
#ifndef TM_RUN_TEST_SAMPLE_TAP_H
#define TM_RUN_TEST_SAMPLE_TAP_H

#include "run/run_tap.h"
#include "run/test/record_samples.h"

struct sample_tap {
    struct tm_run_tap tap;
    struct samples samples;
    struct tm_run_watch *watch;
    int stops;
    bool stop_now;
    struct tm_steer_order steered; /* the last order */
    int steers;
    int refuse;  /* orders, with this code */
    bool broken; /* nothing can be read */
};

static inline const struct tm_run_status *sample_tap_status(struct tm_run_tap *tap)
{
    struct sample_tap *t = tap->self;
    for (size_t i = 0; i < t->tap.sequence; i++)
        if (tm_run_watch_take(t->watch, i + 1, t->samples.events[i], NULL) != 0) return NULL;
    return t->broken ? NULL : tm_run_watch_status(t->watch);
}

static inline int sample_tap_events(struct tm_run_tap *tap, uint64_t after, size_t max, tm_run_each_f each,
                                    void *context, struct tm_error *e)
{
    struct sample_tap *t = tap->self;
    if (t->broken) return tm_error_set(e, TM_EIO, "broken");
    for (size_t i = (size_t)after; i < t->tap.sequence && max-- > 0; i++) {
        int rc = each(context, i + 1, t->samples.events[i], e);
        if (rc != 0) return rc;
    }
    return 0;
}

static inline void sample_tap_stop(struct tm_run_tap *tap, bool now)
{
    struct sample_tap *t = tap->self;
    t->stops++;
    t->stop_now = now;
}

static inline int sample_tap_steer(struct tm_run_tap *tap, const struct tm_steer_order *order, struct tm_error *e)
{
    struct sample_tap *t = tap->self;
    if (t->refuse != 0) return tm_error_set(e, (enum tm_code)t->refuse, "not so");
    t->steers++;
    t->steered = *order;
    return 0;
}

/* The small run, of which the first `count` events have happened; 0: all. */
static inline void sample_tap_init(struct sample_tap *t, size_t count)
{
    *t = (struct sample_tap){.watch = tm_run_watch_create()};
    assert(t->watch != NULL);
    samples_init(&t->samples);
    samples_small_run(&t->samples, true);
    t->tap = (struct tm_run_tap){.self = t,
                                 .sequence = count == 0 ? t->samples.count : count,
                                 .status = sample_tap_status,
                                 .events = sample_tap_events,
                                 .stop = sample_tap_stop,
                                 .steer = sample_tap_steer};
}

static inline void sample_tap_deinit(struct sample_tap *t)
{
    tm_run_watch_destroy(t->watch);
    samples_deinit(&t->samples);
}

#endif
