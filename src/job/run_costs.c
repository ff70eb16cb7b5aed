#include "job/run_costs.h"

#include "job/job_engine.h"
#include "run/measure.h"
#include "run/state_folder.h"

static double layer_bytes(void *context, uint32_t layer)
{
    const struct tm_job_layouts *job = context;
    return layer < job->model.layer_count ? job->model.layers[layer].params * job->layouts.bytes_per_param : 0;
}

int tm_run_costs__save(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                       const struct tm_run_work *work, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    struct tm_run_layouts layouts;
    struct tm_cost cost;
    char record[TM_STATE_PATH_MAX];
    tm_state_path(dir, TM_STATE_RECORD, record);
    int rc = tm_run_layouts__init(env, dir, settings, work, &layouts, e);
    if (rc != 0) return rc;
    double notice_ms =
        fleet->notice_wall_ms > 0 ? (double)fleet->notice_wall_ms : (double)fleet->notice_ms / fleet->speed;
    struct tm_measure_options options = {.workers = (uint32_t)tm_job_fleet_workers_each(fleet),
                                         .speed = fleet->speed,
                                         .notice_wall_s = notice_ms / 1000,
                                         .layer_bytes = layer_bytes,
                                         .context = &layouts.job,
                                         .rules = layouts.job.cost.rules,
                                         .paced = tm_job_engine_of(&settings->job)->paced,
                                         .on_demand_start_s = (double)fleet->on_demand_start_ms / 1000};
    rc = tm_measure_record(record, &options, &cost, e);
    if (rc == 0) rc = tm_measure_save(env, dir, layouts.job.model.name, &cost, e);
    tm_run_layouts__deinit(&layouts);
    return rc;
}
