#include "cli/job_shapes.h"

#include "cli/knowledge.h"
#include "layout/speed.h"

#include <math.h>
#include <string.h>

static const char *instance_of(const struct tm_job_shapes_request *request)
{
    return request->instance != NULL ? request->instance : "p3.2xlarge";
}

static int64_t batch_of(const struct tm_job_shapes_request *request, const struct tm_model *model)
{
    if (request->batch > 0) return request->batch;
    return model->global_batch > 0 ? model->global_batch : 8 * (int64_t)request->nodes_max;
}

static int make_shapes(struct tm_job_shapes *job, int nodes_max, tm_shape_speed speed, void *context,
                       struct tm_error *e)
{
    struct tm_speed_measured measured = {.speed = speed, .context = context, .cost = &job->cost};
    if (job->cost.step_count == 0)
        return tm_shapes_init(&job->shapes, &job->model, &job->cost.rules, nodes_max, speed, context, e);
    int rc = tm_speed_measured_compare(&measured, e);
    if (rc != 0) return rc;
    return tm_shapes_init(&job->shapes, &job->model, &job->cost.rules, nodes_max, tm_shape_speed_as_measured, &measured,
                          e);
}

/* Throughput by prediction, for models that bring no measured layouts. */
static int predict_shapes(struct tm_cli *cli, const struct tm_job_shapes_request *request, struct tm_job_shapes *job,
                          struct tm_error *e)
{
    struct tm_knowledge knowledge;
    struct tm_speed_context context = {.request = {.model = &job->model}};
    const char *name = instance_of(request);
    const struct tm_instance *instance = NULL;
    for (size_t i = 0; instance == NULL && i < request->catalog->instance_count; i++)
        if (strcasecmp(request->catalog->instances[i].name, name) == 0) instance = &request->catalog->instances[i];
    if (instance == NULL || instance->gpus < 1)
        return tm_error_set(e, TM_EUSAGE,
                            "%s has no measured layouts, and %s is no GPU instance of the catalogue; "
                            "give --instance",
                            job->model.name, name);
    int rc = tm_knowledge_gpu(request->catalog, instance->gpu, &context.group.gpu, e);
    if (rc != 0) return rc;
    enum tm_precision precision = context.group.gpu.flops[TM_BF16] > 0   ? TM_BF16
                                  : context.group.gpu.flops[TM_FP16] > 0 ? TM_FP16
                                                                         : TM_FP32;
    tm_knowledge_init(&knowledge);
    rc = tm_knowledge_read(cli, &knowledge, e);
    if (rc == 0) rc = tm_knowledge_learn(cli, request->catalog, &job->model, (int)precision, &knowledge, e);
    context.group.instance = instance->name;
    context.group.gpus_per_node = (int)instance->gpus;
    context.group.network_bit_s = instance->network_gbps * 1e9;
    context.request.precision = precision;
    context.request.batch = (int)batch_of(request, &job->model);
    context.request.compute = &knowledge.compute;
    context.request.comm = &knowledge.comm;
    context.request.gradients = knowledge.gradients;
    context.request.gradient_count = knowledge.gradient_count;
    if (rc == 0) rc = make_shapes(job, request->nodes_max, tm_shape_speed_predicted, &context, e);
    tm_knowledge_deinit(&knowledge);
    return rc;
}

int tm_job_shapes_init(struct tm_cli *cli, const struct tm_job_shapes_request *request, struct tm_job_shapes *out,
                       struct tm_error *e)
{
    memset(out, 0, sizeof *out);
    tm_model_init(&out->model);
    int rc = tm_model_load(cli->env, request->model, &out->model, e);
    if (rc == 0) rc = tm_cost_load(cli->env, request->cost, out->model.name, &out->cost, e);
    if (rc == 0 && request->speed > 0) tm_cost_change_speed(&out->cost, request->speed);
    if (rc != 0) return rc;
    if (out->model.point_count > 0)
        return make_shapes(out, request->nodes_max, tm_shape_speed_measured, &out->model, e);
    return predict_shapes(cli, request, out, e);
}

void tm_job_shapes_deinit(struct tm_job_shapes *job)
{
    tm_shapes_deinit(&job->shapes);
    tm_model_deinit(&job->model);
}

double tm_job_shapes_batch(const struct tm_job_shapes *job)
{
    for (size_t i = 1; i < job->shapes.count; i++) {
        const struct tm_shape *shape = &job->shapes.list[i];
        if (shape->samples_per_s > 0) return round(shape->samples_per_s * shape->step_s);
    }
    return 0;
}
