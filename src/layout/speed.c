#include "layout/speed.h"

static int workers_of(const struct tm_speed_context *speed)
{
    return speed->workers > 1 ? speed->workers : 1;
}

static int gpus_of_worker(const struct tm_speed_context *speed)
{
    int workers = workers_of(speed), gpus = speed->group.gpus_per_node;
    return gpus % workers == 0 ? gpus / workers : 1;
}

/* With so many stages of a pipeline on one worker; leaves what is faster. */
static int predict_deep(const struct tm_speed_context *speed, int pipelines, int stages, int deep,
                        double *samples_per_s, double *step_s, struct tm_error *e)
{
    struct tm_predict_request request = speed->request;
    struct tm_fleet_group group = speed->group;
    struct tm_prediction prediction;
    int workers = workers_of(speed), gpus = gpus_of_worker(speed);
    group.instances = (pipelines * stages + workers - 1) / workers;
    group.gpus_per_node = gpus * workers;
    request.groups = &group;
    request.group_count = 1;
    request.pipelines = pipelines * (gpus / deep);
    request.stages = stages * deep;
    int micro_batches = request.micro_batch > 0 ? (request.batch - 1) / request.micro_batch + 1 : request.batch;
    if (micro_batches < request.pipelines) return 0; /* some pipelines would idle */
    if (deep > 1 && (request.stages > (int)request.model->layer_count || request.stages > TM_PREDICT_STAGES_MAX))
        return 0;
    int rc = tm_predict(&request, &prediction, e);
    if (rc == -(int)TM_ENONE) return 0; /* does not fit: this layout cannot train */
    if (rc != 0 || prediction.samples_per_s <= *samples_per_s) return rc;
    *samples_per_s = prediction.samples_per_s;
    *step_s = prediction.step_s.mean;
    return 0;
}

int tm_layout_speed_predicted(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                              struct tm_error *e)
{
    const struct tm_speed_context *speed = context;
    int rc = 0, gpus = gpus_of_worker(speed);
    *samples_per_s = *step_s = 0;
    for (int deep = 1; rc == 0 && deep <= gpus; deep++)
        if (gpus % deep == 0) rc = predict_deep(speed, pipelines, stages, deep, samples_per_s, step_s, e);
    return rc;
}

int tm_speed_measured_compare(struct tm_speed_measured *measured, struct tm_error *e)
{
    double sum_s = 0, measured_sum_s = 0;
    for (int i = 0; i < measured->cost->step_count; i++) {
        const struct tm_step_time *step = &measured->cost->steps[i];
        double samples_per_s = 0, step_s = 0;
        int rc = measured->speed(measured->context, step->pipelines, step->stages, &samples_per_s, &step_s, e);
        if (rc != 0) return rc;
        if (!(samples_per_s > 0)) continue; /* of another model, or another machine */
        sum_s += step_s;
        measured_sum_s += step->step_ms / 1000;
    }
    measured->ratio = sum_s > 0 ? measured_sum_s / sum_s : 1;
    return 0;
}

int tm_layout_speed_as_measured(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                                struct tm_error *e)
{
    const struct tm_speed_measured *measured = context;
    double samples = 0, seconds = 0;
    int rc = measured->speed(measured->context, pipelines, stages, &samples, &seconds, e);
    if (rc != 0) return rc;
    double now_s = seconds * measured->ratio;
    for (int i = 0; i < measured->cost->step_count; i++) {
        const struct tm_step_time *step = &measured->cost->steps[i];
        if (step->pipelines == pipelines && step->stages == stages) now_s = step->step_ms / 1000;
    }
    *samples_per_s = samples > 0 && now_s > 0 ? samples * seconds / now_s : 0;
    *step_s = samples > 0 ? now_s : 0;
    return 0;
}
