/* Throughput of layouts that nobody has measured: predicted, on instances of one type. */
#ifndef TM_LAYOUT_SPEED_H
#define TM_LAYOUT_SPEED_H

#include "layout/cost.h"
#include "workload/predict.h"

/* What tm_layout_speed_predicted needs; all is borrowed. The request's fleet is one group; instances and layout are set
 * for each layout: one place of a pipeline is one worker. The workers of an instance share its GPUs evenly; those of
 * one worker train side by side, or are stages of their own, or both, whatever is fastest. Where the GPUs cannot be
 * shared evenly, an instance counts as one with a GPU for each worker. */
struct tm_speed_context {
    struct tm_predict_request request;
    struct tm_fleet_group group;
    int workers; /* of an instance; 0: 1 */
};

/* A tm_layout_speed: 0 where the model does not fit the memory in that layout. */
int tm_layout_speed_predicted(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                              struct tm_error *e);

/* What tm_layout_speed_as_measured needs: another speed, and what a run has measured; all is borrowed. */
struct tm_speed_measured {
    tm_layout_speed speed;
    void *context;
    const struct tm_cost *cost;
    double ratio; /* steps as measured to those of `speed`, over all layouts that were measured; set by compare */
};

int tm_speed_measured_compare(struct tm_speed_measured *measured, struct tm_error *e);
/* A tm_layout_speed: as measured where it was, elsewhere `speed`, slower or faster by the ratio. */
int tm_layout_speed_as_measured(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                                struct tm_error *e);

#endif
