#include "job/run_layouts.h"

#include "job/job_engine_internal.h"
#include "job/pool_lives.h"
#include "run/state_folder.h"

#include <math.h>
#include <string.h>

#define WAITING_SHARE 0.1

struct pace {
    const struct tm_run_work *work;
    double core_s;
    int cores;
    double speed; /* of the trace */
    double memory;
    double params;
};

/* Micro-batches go through a pipeline one behind the other, its stages on cores of their own as long as there are so
 * many; what all of them compute together is shared by the machine's cores. */
static int speed_here(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                      struct tm_error *e)
{
    const struct pace *pace = context;
    const struct tm_run_work *work = pace->work;
    (void)e;
    *samples_per_s = *step_s = 0;
    if (pipelines > (int)work->micro_batches || stages > (int)work->layers) return 0;
    double uneven = ceil((double)work->layers / stages) / ((double)work->layers / stages);
    if (pace->memory > 0 && pace->params / stages * uneven * work->state_bytes_param > pace->memory) return 0;
    double each = ceil((double)work->micro_batches / pipelines);
    double path_s = pace->core_s / work->micro_batches * (each + stages - 1) / stages * uneven;
    double shared_s = pace->core_s / fmin(pace->cores, (double)pipelines * stages);
    /* Waiting for each other costs something where cores are shared, too; so of layouts that share them alike the one
     * is taken that machines of their own would like best. */
    *step_s = (fmax(path_s, shared_s) + WAITING_SHARE * path_s) * pace->speed;
    *samples_per_s = (double)work->batch / *step_s;
    return 0;
}

static int make_model(struct tm_model *model, const struct tm_run_settings *settings, const struct tm_run_work *work,
                      struct tm_error *e)
{
    model->name = tm_arena_strdup(&model->arena, settings->job.name);
    model->layers = tm_arena_alloc(&model->arena, work->layers * sizeof *model->layers);
    if (model->name == NULL || model->layers == NULL) return tm_error_nomem(e);
    model->input = model->source = "";
    model->optimizer_states = 2;
    model->global_batch = (int)work->batch;
    model->layer_count = work->layers;
    for (uint32_t l = 0; l < work->layers; l++)
        model->layers[l] = (struct tm_layer){.name = "layer",
                                             .kind = TM_LAYER_block,
                                             .params = work->layer_params[l],
                                             .forward_flops = work->layer_flops[l],
                                             .tied = -1};
    return 0;
}

double tm_run_layouts__first_wait_s(const struct tm_job_fleet *fleet)
{
    int64_t on_demand_ms = tm_pool_lives__start_ms(fleet, TM_POOL_ON_DEMAND), on_demand = fleet->on_demand;
    if (fleet->on_demand_trains == 0 || on_demand <= tm_job_fleet_keepers(fleet)) on_demand = 0;
    if (tm_job_fleet_has_choices(fleet)) return 0;
    if (on_demand == 0) return (double)fleet->spot_start_ms / 1000;
    return on_demand >= fleet->limit && on_demand_ms > 0 ? (double)on_demand_ms / 1000 : 0;
}

/* Costs are of instances that are there; the job, or what earlier runs have seen, says how long one waits for them. */
static void add_starts(const struct tm_job_fleet *fleet, bool measured, bool given, struct tm_cost *out)
{
    double spot_s = (double)fleet->spot_start_ms / 1000, on_demand_s = (double)fleet->on_demand_start_ms / 1000;
    double join_s = out->measured.join_s;
    if (!given) out->start_s = measured ? on_demand_s + join_s : fmax(on_demand_s, join_s);
    out->measured.join_s += spot_s;
}

/* What an earlier run in this folder has measured, else what is typical; for the speed of this one. */
static int load_cost(struct tm_env *env, const char *dir, const struct tm_run_settings *settings, const char *model,
                     struct tm_cost *out, bool *out_measured, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, TM_STATE_COST, path);
    *out_measured = settings->costs == NULL && env->file_exists(env, path);
    const char *typical = settings->costs != NULL ? settings->costs : tm_job_engine_of(&settings->job)->costs;
    int rc = tm_cost_load(env, *out_measured ? path : typical, model, out, e);
    if (rc != 0) return rc;
    tm_cost_change_speed(out, settings->job.fleet.speed);
    add_starts(&settings->job.fleet, *out_measured, settings->costs != NULL, out);
    return 0;
}

static void set_rules(const struct tm_run_settings *settings, struct tm_layout_rules *rules)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    if (fleet->stages_min > 0) rules->stages_min = (int)fleet->stages_min;
    if (fleet->stages_max > 0) rules->stages_max = (int)fleet->stages_max;
    if (fleet->stages_max == 0 && tm_job_engine_of(&settings->job)->one_stage) rules->stages_max = rules->stages_min;
}

/* Layouts of an engine that computes: as fast as this machine is. */
int tm_run_layouts__here(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                         const struct tm_run_work *work, struct tm_run_layouts *out, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    struct tm_job_layouts *job = &out->job;
    struct pace pace = {.work = work,
                        .core_s = settings->step_core_s > 0 ? settings->step_core_s : 1,
                        .cores = settings->cores > 0 ? (int)settings->cores : (int)tm_job_fleet_workers_max(fleet),
                        .speed = fleet->speed,
                        .memory = (double)fleet->memory / (double)tm_job_fleet_workers_each(fleet)};
    for (uint32_t l = 0; l < work->layers; l++)
        pace.params += work->layer_params[l];
    tm_model_init(&job->model);
    int rc = make_model(&job->model, settings, work, e);
    if (rc == 0) rc = load_cost(env, dir, settings, settings->job.name, &job->cost, &out->measured, e);
    if (rc != 0) return rc;
    out->speed_unknown = !(settings->step_core_s > 0);
    set_rules(settings, &job->cost.rules);
    return tm_job_layouts__make(&job->model, &job->cost, (int)tm_job_fleet_workers_max(fleet), speed_here, &pace,
                                &job->layouts, e);
}

/* Layouts of the paced engine: as fast as profiled or predicted, whatever this machine is. */
int tm_run_layouts__predicted(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                              const struct tm_run_work *work, struct tm_run_layouts *out, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    struct tm_job_layouts *job = &out->job;
    struct tm_catalog catalog;
    struct tm_job_speed speed;
    tm_model_init(&job->model);
    int rc = tm_model_load(env, work->model, &job->model, e);
    if (rc == 0) rc = load_cost(env, dir, settings, job->model.name, &job->cost, &out->measured, e);
    if (rc != 0) return rc;
    set_rules(settings, &job->cost.rules);
    tm_catalog_init(&catalog);
    rc = tm_catalog_load(env, &catalog, e);
    if (rc == 0) {
        struct tm_job_speed_request request =
            tm_job_speed__of_job(env, &settings->job, &catalog, &job->model, work->batch, &job->model.arena);
        rc = tm_job_speed__init(env, &request, &speed, e);
        if (rc == 0)
            rc = tm_job_layouts__make(&job->model, &job->cost, (int)tm_job_fleet_workers_max(fleet), speed.speed,
                                      speed.context, &job->layouts, e);
        tm_job_speed__deinit(&speed);
    }
    tm_catalog_deinit(&catalog);
    return rc;
}

int tm_run_layouts__check_together(const struct tm_job *job, const struct tm_run_layouts *run, struct tm_error *e)
{
    const struct tm_layouts *layouts = &run->job.layouts;
    int most = tm_job_engine_of(job)->workers_max, largest = 0;
    for (size_t i = 0; i < layouts->count; i++)
        if (layouts->list[i].samples_per_s > 0 && layouts->list[i].instances > largest)
            largest = layouts->list[i].instances;
    if (most == 0 || largest <= most) return 0;
    int64_t each = tm_job_fleet_workers_each(&job->fleet);
    return tm_job_wrong(job, "fleet.limit", e,
                        "%lld instances with %lld worker(s) each would train together; engine %s connects at most %d: "
                        "write a limit of up to %lld, or fewer workers of an instance (fleet.workers)",
                        (long long)job->fleet.limit, (long long)each, tm_job_engine_of(job)->name, most,
                        (long long)(most / each));
}

int tm_run_layouts__init(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                         const struct tm_run_work *work, struct tm_run_layouts *out, struct tm_error *e)
{
    struct tm_layouts *layouts = &out->job.layouts;
    int64_t limit = tm_job_fleet_workers_max(&settings->job.fleet);
    memset(out, 0, sizeof *out);
    int rc = tm_job_engine_of(&settings->job)->layouts(env, dir, settings, work, out, e);
    layouts->workers_each = (int)tm_job_fleet_workers_each(&settings->job.fleet);
    if (rc == 0 && layouts->list[layouts->best[limit]].samples_per_s <= 0)
        rc = tm_error_set(e, TM_ENONE,
                          "no layout on up to %lld workers can train it: raise fleet.limit or fleet.memory, or lower "
                          "fleet.stages_min",
                          (long long)limit);
    if (rc == 0) rc = tm_migrations_create(layouts, &out->job.cost, &out->migrations, e);
    if (rc != 0) tm_run_layouts__deinit(out);
    return rc;
}

void tm_run_layouts__deinit(struct tm_run_layouts *layouts)
{
    tm_migrations_destroy(layouts->migrations);
    tm_job_layouts_deinit(&layouts->job);
    memset(layouts, 0, sizeof *layouts);
}
