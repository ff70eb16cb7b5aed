#include "job/job_layouts.h"

#include "plan/supply.h"

#include <string.h>

static int64_t batch_of(const struct tm_job_speed_request *request)
{
    if (request->batch > 0) return request->batch;
    return request->model->global_batch > 0 ? request->model->global_batch : 8 * (int64_t)request->instances_max;
}

/* Throughput by prediction, for models that bring no measured layouts. */
static int predict(struct tm_env *env, const struct tm_job_speed_request *request, struct tm_job_speed *out,
                   struct tm_error *e)
{
    const struct tm_catalog *catalog = request->catalog;
    const struct tm_model *model = request->model;
    const char *name = request->instance != NULL ? request->instance : "p3.2xlarge";
    struct tm_speed_context *context = &out->predicted;
    const struct tm_instance_type *instance = NULL;
    if (tm_knowledge_instance(catalog, name, NULL, NULL, &instance, NULL) != 0 || instance->gpus < 1)
        return tm_error_set(
            e, TM_EUSAGE, "%s has no measured layouts, and %s is not a GPU instance of the catalogue; give --instance",
            model->name, name);
    int rc = tm_knowledge__group(catalog, instance, &context->group, e);
    if (rc != 0) return rc;
    context->workers = request->workers;
    int asked = request->precise ? request->precision : TM_PRECISION_MIXED;
    enum tm_precision precision = tm_plan_precision(&context->group.gpu, asked);
    rc = tm_knowledge_read(env, &request->source, &out->knowledge, e);
    if (rc == 0) rc = tm_knowledge_learn(env, &request->source, catalog, model, asked, &out->knowledge, e);
    context->request.model = model;
    context->request.precision = precision;
    context->request.compute = &out->knowledge.compute;
    context->request.comm = &out->knowledge.comm;
    context->request.gradients = out->knowledge.gradients;
    context->request.gradient_count = out->knowledge.gradient_count;
    if (out->knowledge.precision == precision && strcmp(out->knowledge.gpu, context->group.gpu.name) == 0) {
        context->request.measured_batches = out->knowledge.batches;
        context->request.measured_ms = out->knowledge.ms;
        context->request.measured_count = out->knowledge.count;
    }
    return rc;
}

struct tm_job_speed_request tm_job_speed__of_job(struct tm_env *env, const struct tm_job *job,
                                                 const struct tm_catalog *catalog, const struct tm_model *model,
                                                 int64_t batch, struct tm_arena *arena)
{
    int precision = tm_knowledge__said_precision(job);
    return (struct tm_job_speed_request){.catalog = catalog,
                                         .model = model,
                                         .instance = job->fleet.instance,
                                         .batch = batch,
                                         .micro_batch = job->micro_batch,
                                         .precise = precision >= 0,
                                         .precision = precision,
                                         .instances_max = (int)tm_job_fleet_workers_max(&job->fleet),
                                         .workers = (int)tm_job_fleet_workers_each(&job->fleet),
                                         .source = tm_knowledge__of_job(env, job, arena)};
}

int tm_job_speed__init(struct tm_env *env, const struct tm_job_speed_request *request, struct tm_job_speed *out,
                       struct tm_error *e)
{
    const struct tm_model *model = request->model;
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
    out->predicted.request.batch = (int)batch_of(request);
    out->predicted.request.micro_batch = (int)request->micro_batch;
    return predict(env, request, out, e);
}

void tm_job_speed__deinit(struct tm_job_speed *speed)
{
    tm_knowledge_deinit(&speed->knowledge);
}

int tm_job_layouts__make(const struct tm_model *model, const struct tm_cost *cost, int instances_max,
                         tm_layout_speed speed, void *context, struct tm_layouts *out, struct tm_error *e)
{
    struct tm_speed_measured measured = {.speed = speed, .context = context, .cost = cost};
    if (cost->step_count == 0) return tm_layouts_init(out, model, &cost->rules, instances_max, speed, context, e);
    int rc = tm_speed_measured_compare(&measured, e);
    if (rc != 0) return rc;
    return tm_layouts_init(out, model, &cost->rules, instances_max, tm_layout_speed_as_measured, &measured, e);
}

int tm_job_layouts_init(struct tm_env *env, const struct tm_job_layouts_request *request, struct tm_job_layouts *out,
                        struct tm_error *e)
{
    struct tm_job_speed speed;
    memset(out, 0, sizeof *out);
    tm_model_init(&out->model);
    int rc = tm_model_load(env, request->model, &out->model, e);
    if (rc == 0) rc = tm_cost_load(env, request->cost, out->model.name, &out->cost, e);
    if (rc == 0 && request->speed > 0) tm_cost_change_speed(&out->cost, request->speed);
    if (rc != 0) return rc;
    if (request->rules != NULL) out->cost.rules = *request->rules;
    struct tm_job_speed_request fast = {.catalog = request->catalog,
                                        .model = &out->model,
                                        .instance = request->instance,
                                        .batch = request->batch,
                                        .instances_max = request->instances_max,
                                        .source = request->source};
    rc = tm_job_speed__init(env, &fast, &speed, e);
    if (rc == 0)
        rc = tm_job_layouts__make(&out->model, &out->cost, request->instances_max, speed.speed, speed.context,
                                  &out->layouts, e);
    tm_job_speed__deinit(&speed);
    return rc;
}

void tm_job_layouts_deinit(struct tm_job_layouts *job)
{
    tm_layouts_deinit(&job->layouts);
    tm_model_deinit(&job->model);
}
