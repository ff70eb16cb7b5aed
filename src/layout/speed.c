#include "layout/speed.h"

int tm_shape_speed_predicted(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                             struct tm_error *e)
{
    struct tm_speed_context *speed = context;
    struct tm_predict_request request = speed->request;
    struct tm_fleet_group group = speed->group;
    struct tm_prediction prediction;
    group.nodes = pipelines * stages;
    request.groups = &group;
    request.group_count = 1;
    request.pipelines = pipelines * group.gpus_per_node;
    request.stages = stages;
    if (request.batch < request.pipelines) { /* fewer samples than pipelines: some would idle */
        *samples_per_s = *step_s = 0;
        return 0;
    }
    int rc = tm_predict(&request, &prediction, e);
    if (rc == -(int)TM_ENONE) { /* does not fit: this shape cannot train */
        *samples_per_s = *step_s = 0;
        return 0;
    }
    if (rc != 0) return rc;
    *samples_per_s = prediction.samples_per_s;
    *step_s = prediction.step_s.mean;
    return 0;
}
