#include "cli/job_layouts.h"

#include <string.h>

static int64_t batch_of(const struct tm_model *model, int64_t batch, int instances_max)
{
    if (batch > 0) return batch;
    return model->global_batch > 0 ? model->global_batch : 8 * (int64_t)instances_max;
}

/* Throughput by prediction, for models that bring no measured layouts. */
static int predict(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_model *model, const char *name,
                   struct tm_job_speed *out, struct tm_error *e)
{
    struct tm_speed_context *context = &out->predicted;
    const struct tm_instance_type *instance = NULL;
    if (tm_knowledge_instance(NULL, catalog, name, &instance, NULL) != 0 || instance->gpus < 1)
        return tm_error_set(e, TM_EUSAGE,
                            "%s has no measured layouts, and %s is no GPU instance of the catalogue; "
                            "give --instance",
                            model->name, name);
    int rc = tm_knowledge_gpu(catalog, instance->gpu, &context->group.gpu, e);
    if (rc != 0) return rc;
    const double *flops = context->group.gpu.flops;
    enum tm_precision precision = flops[TM_BF16] > 0 ? TM_BF16 : flops[TM_FP16] > 0 ? TM_FP16 : TM_FP32;
    rc = tm_knowledge_read(cli, &out->knowledge, e);
    if (rc == 0) rc = tm_knowledge_learn(cli, catalog, model, (int)precision, &out->knowledge, e);
    context->group.instance = instance->name;
    context->group.gpus_per_node = (int)instance->gpus;
    context->group.network_bit_s = instance->network_gbps * 1e9;
    context->request.model = model;
    context->request.precision = precision;
    context->request.compute = &out->knowledge.compute;
    context->request.comm = &out->knowledge.comm;
    context->request.gradients = out->knowledge.gradients;
    context->request.gradient_count = out->knowledge.gradient_count;
    return rc;
}

int tm_job_speed_init(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_model *model,
                      const char *instance, int64_t batch, int instances_max, struct tm_job_speed *out,
                      struct tm_error *e)
{
    memset(out, 0, sizeof *out);
    tm_knowledge_init(&out->knowledge);
    if (model->point_count > 0) {
        union { /* a tm_layout_speed takes its context as it comes, and this one only reads it */
            const struct tm_model *given;
            void *taken;
        } context = {model};
        out->speed = tm_layout_speed_measured;
        out->context = context.taken;
        return 0;
    }
    out->speed = tm_layout_speed_predicted;
    out->context = &out->predicted;
    out->predicted.request.batch = (int)batch_of(model, batch, instances_max);
    return predict(cli, catalog, model, instance != NULL ? instance : "p3.2xlarge", out, e);
}

void tm_job_speed_deinit(struct tm_job_speed *speed)
{
    tm_knowledge_deinit(&speed->knowledge);
}

int tm_job_layouts_make(const struct tm_model *model, const struct tm_cost *cost, int instances_max,
                        tm_layout_speed speed, void *context, struct tm_layouts *out, struct tm_error *e)
{
    struct tm_speed_measured measured = {.speed = speed, .context = context, .cost = cost};
    if (cost->step_count == 0) return tm_layouts_init(out, model, &cost->rules, instances_max, speed, context, e);
    int rc = tm_speed_measured_compare(&measured, e);
    if (rc != 0) return rc;
    return tm_layouts_init(out, model, &cost->rules, instances_max, tm_layout_speed_as_measured, &measured, e);
}

int tm_job_layouts_init(struct tm_cli *cli, const struct tm_job_layouts_request *request, struct tm_job_layouts *out,
                        struct tm_error *e)
{
    struct tm_job_speed speed;
    memset(out, 0, sizeof *out);
    tm_model_init(&out->model);
    int rc = tm_model_load(cli->env, request->model, &out->model, e);
    if (rc == 0) rc = tm_cost_load(cli->env, request->cost, out->model.name, &out->cost, e);
    if (rc == 0 && request->speed > 0) tm_cost_change_speed(&out->cost, request->speed);
    if (rc != 0) return rc;
    if (request->rules != NULL) out->cost.rules = *request->rules;
    rc = tm_job_speed_init(cli, request->catalog, &out->model, request->instance, request->batch,
                           request->instances_max, &speed, e);
    if (rc == 0)
        rc = tm_job_layouts_make(&out->model, &out->cost, request->instances_max, speed.speed, speed.context,
                                 &out->layouts, e);
    tm_job_speed_deinit(&speed);
    return rc;
}

void tm_job_layouts_deinit(struct tm_job_layouts *job)
{
    tm_layouts_deinit(&job->layouts);
    tm_model_deinit(&job->model);
}
