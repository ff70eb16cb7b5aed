/* A profiled job summed up: where a step's time goes, which layers take most, and what that suggests. */
#ifndef TM_WORKLOAD_PROFILE_REPORT_H
#define TM_WORKLOAD_PROFILE_REPORT_H

#include "workload/comm.h"

enum { TM_REPORT_LAYERS_MAX = 8, TM_REPORT_ADVICE_MAX = 6, TM_REPORT_TEXT_MAX = 240 };

struct tm_profile_report {
    const struct tm_profile_step *step; /* the one that is summed up */
    double step_ms;
    double samples_per_s;
    double spread; /* of the log of whole steps; NaN: not measured */
    /* Layers by time, the slowest first. */
    const struct tm_profile_layer *layers[TM_REPORT_LAYERS_MAX];
    size_t layer_count;
    size_t layers_in_all;
    double layers_ms; /* of all layers, forward and backward */
    double grad_bytes;
    size_t tensors;
    size_t buckets;      /* that PyTorch would make */
    double first_ready;  /* share of the backward pass that is over when the first leaves */
    double hidden_share; /* of the gradients' bytes: ready before the backward pass ends */
    char advice[TM_REPORT_ADVICE_MAX][TM_REPORT_TEXT_MAX];
    size_t advice_count;
};

/* Of the newest step of a network in the profile; borrowed rows. -TM_EINPUT: it has none. */
int tm_profile_report(const struct tm_profile *profile, const char *network, struct tm_profile_report *out,
                      struct tm_error *e);

#endif
