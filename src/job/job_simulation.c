#include "job/job_simulation.h"

#include "job/pool_speeds.h"

#include "base/alloc.h"
#include "base/content.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/yaml_print.h"
#include "job/job_file.h"
#include "sim/moments.h"

#include <math.h>
#include <string.h>
#include <strings.h>

void tm_job_simulation_init(struct tm_job_simulation *simulation)
{
    *simulation = (struct tm_job_simulation){.trace = ""};
    tm_run_settings_init(&simulation->settings);
    tm_trace_init(&simulation->plan.trace);
}

void tm_job_simulation_deinit(struct tm_job_simulation *simulation)
{
    tm_run_layouts__deinit(&simulation->here);
    tm_run_layouts__deinit(&simulation->believed);
    if (simulation->layouts != NULL && simulation->layouts == &simulation->predicted.layouts)
        tm_fleet_layouts_deinit(&simulation->predicted);
    if (simulation->pools != NULL) tm_job_pools__deinit(simulation->pools);
    tm_free(simulation->pools);
    if (simulation->planned != NULL) tm_planned_fleet__deinit(simulation->planned);
    tm_free(simulation->planned);
    tm_run_plan_deinit(&simulation->plan);
    tm_run_settings_deinit(&simulation->settings);
}

static bool ends_in(const char *text, const char *end)
{
    size_t length = strlen(text);
    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

bool tm_job_simulation_is_job(struct tm_env *env, const char *path)
{
    static const char *const keys[] = {"model", "profile", "run", "fleet", "engine", "steps", "batch", "resources"};
    struct tm_text text;
    struct tm_arena arena;
    struct tm_node *root = NULL;
    bool found = false;
    if (ends_in(path, ".yaml") || ends_in(path, ".yml")) return true; /* its mistakes are a job's */
    tm_text_init(&text, TM_JOB_BYTES_MAX);
    tm_arena_init(&arena, 4 * TM_JOB_BYTES_MAX);
    int rc = tm_content_read(env, path, &text, NULL);
    if (rc == 0) rc = tm_doc_parse_yaml(path, tm_text_string(&text), text.length, &arena, &root, NULL);
    for (size_t i = 0; rc == 0 && root->kind == TM_NODE_MAP && i < sizeof keys / sizeof *keys; i++)
        found = found || tm_node_find(root, keys[i]) != NULL;
    tm_arena_deinit(&arena);
    tm_text_deinit(&text);
    return found;
}

int tm_job_simulation_read(struct tm_env *env, const char *path, struct tm_job_simulation *simulation,
                           struct tm_error *e)
{
    int rc = tm_job_file_load(env, path, &simulation->settings, e);
    if (rc != 0) return rc;
    rc = tm_job_file_check_engine(&simulation->settings.job, e);
    return rc == -(int)TM_EINPUT ? 0 : rc; /* nothing is trained here */
}

/* On-demand instances that train are there from the beginning, as the judge has them: they are of the trace. */
static int put_on_demand(struct tm_job_simulation *simulation, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &simulation->settings.job.fleet;
    struct tm_draw_pool pools[TM_DRAW_POOLS_MAX];
    bool spot = tm_job_fleet_spot_max(fleet) > 0;
    if (fleet->on_demand == 0 || fleet->on_demand_trains == 0 || fleet->pools.count == 0) return 0;
    if (spot && !tm_job_fleet_is_drawn(fleet)) return 0;
    struct tm_draw draw = tm_run_draw(fleet, pools);
    if (draw.pool_count == TM_DRAW_POOLS_MAX) return 0;
    if (!spot) draw.losses = tm_draw_losses_usual();
    pools[draw.pool_count++] = (struct tm_draw_pool){.count = (int)(fleet->on_demand - tm_job_fleet_keepers(fleet)),
                                                     .price_usd_h = (double)fleet->on_demand_usd_h_millionths / 1e6,
                                                     .always = true};
    int rc = tm_trace_draw(&draw, &simulation->plan.trace, e);
    simulation->drawn_on_demand = rc == 0;
    return rc;
}

/* The whole job, as far as its trace goes and, after that, on what there is then. */
static int set_options(struct tm_job_simulation *simulation, struct tm_error *e)
{
    struct tm_run_settings settings = simulation->settings; /* borrows */
    const struct tm_job_fleet *fleet = &settings.job.fleet;
    if (simulation->plan.planned) settings.job.fleet = tm_job_fleet_by_instance(fleet); /* as its layouts are */
    int rc = tm_trace_multiply(&simulation->plan.trace, tm_job_fleet_workers_each(fleet), e);
    if (rc != 0) return rc;
    simulation->options =
        tm_run__sim_options(&settings, &simulation->plan.work, simulation->layouts, &simulation->plan.trace);
    if (simulation->drawn_on_demand) simulation->options.anchors = 0;
    if (fleet->pools.count == 0) return 0; /* as the judge of planned fleets has them */
    if (fleet->on_demand_trains == 0) simulation->options.anchors = 0;
    simulation->options.beside_usd_h = (double)tm_job_fleet_keepers(fleet) * simulation->options.keeper_usd_h;
    return 0;
}

/* The layouts that the verdict was made with. */
static int make_layouts(struct tm_env *env, const char *dir, struct tm_job_simulation *simulation, struct tm_error *e)
{
    const struct tm_run_settings *settings = &simulation->settings;
    if (!simulation->plan.planned) {
        int rc = tm_run_layouts__init(env, dir, settings, &simulation->plan.work, &simulation->here, e);
        if (rc != 0) return rc;
        simulation->layouts = &simulation->here.job.layouts;
        simulation->cost = &simulation->here.job.cost;
        return 0;
    }
    bool known = false;
    struct tm_planned_fleet *planned = simulation->planned = tm_calloc(1, sizeof *planned);
    if (planned == NULL) return tm_error_nomem(e);
    int rc = tm_planned_fleet__init(env, settings, planned, &known, e);
    if (rc == 0)
        rc = tm_fleet_layouts_init(&planned->judge, &planned->request, &planned->fleet, &simulation->predicted, e);
    if (rc != 0) return rc;
    simulation->layouts = &simulation->predicted.layouts;
    simulation->cost = &simulation->predicted.cost;
    return 0;
}

/* ---- pools that are choices ---- */

static int make_planned(struct tm_env *env, struct tm_job_simulation *simulation, bool *out_known, struct tm_error *e)
{
    struct tm_job_pool pool = {0};
    struct tm_run_settings one = tm_pool_speeds__alone(&simulation->settings, simulation->settings.job.fleet.instance,
                                                       simulation->pools->wanted, &pool);
    struct tm_planned_fleet *planned = simulation->planned = tm_calloc(1, sizeof *planned);
    if (planned == NULL) return tm_error_nomem(e);
    int rc = tm_planned_fleet__init(env, &one, planned, out_known, e);
    if (rc == 0 && *out_known)
        rc = tm_fleet_layouts_init(&planned->judge, &planned->request, &planned->fleet, &simulation->predicted, e);
    if (rc != 0 || !*out_known) return rc;
    simulation->layouts = &simulation->predicted.layouts;
    simulation->cost = &simulation->predicted.cost;
    simulation->options.samples_total = planned->request.job.samples;
    double bytes = tm_model_totals(&planned->model).trained_params * 4 * (1 + planned->model.optimizer_states);
    simulation->pools->pools.move_usd = tm_job_pools__egress_usd(&simulation->settings.job.fleet, bytes);
    simulation->pools->pools.far =
        tm_job_pools__far(&simulation->settings.job.fleet, tm_model_totals(&planned->model).trained_params * 4,
                          planned->request.supply.batch);
    int count = simulation->layouts->instances_max;
    double first = simulation->layouts->list[simulation->layouts->best[count]].samples_per_s;
    return tm_pool_speeds__find(env, &simulation->settings, count, first, simulation->pools, e);
}

static int make_here(struct tm_env *env, const char *dir, struct tm_arena *arena, struct tm_job_simulation *simulation,
                     struct tm_error *e)
{
    struct tm_run_settings *settings = &simulation->settings;
    struct tm_run_work *work = &simulation->plan.work;
    settings->job.fleet.limit = simulation->pools->wanted;
    int rc = tm_run__load_work(env, settings, arena, work, e);
    if (rc == 0) rc = tm_run_layouts__init(env, dir, settings, work, &simulation->here, e);
    if (rc == 0 && simulation->here.speed_unknown)
        rc = tm_error_set(e, TM_EINPUT,
                          "%s: the step time of run: is not known before it runs; add a model or a profile",
                          settings->job.file);
    if (rc != 0) return rc;
    simulation->layouts = &simulation->here.job.layouts;
    simulation->cost = &simulation->here.job.cost;
    for (int i = 0; i < simulation->pools->pools.count; i++)
        simulation->pools->list[i].start_s += tm_job_pools__join_s(&settings->job.fleet, simulation->cost);
    rc = tm_job_pools__count_workers(simulation->pools, (int)tm_job_fleet_workers_each(&settings->job.fleet), e);
    if (rc != 0) return rc;
    simulation->options.samples_total = (double)settings->job.steps * (double)work->batch;
    simulation->pools->pools.move_usd = tm_job_pools__egress_usd(&settings->job.fleet, tm_run_work__state_bytes(work));
    simulation->pools->pools.far =
        tm_job_pools__far(&settings->job.fleet, tm_run_work__gradient_bytes(work), (double)work->batch);
    return 0;
}

/* Without a verdict: instances are as fast as predicted, wherever the job would run. */
static int make_choices(struct tm_env *env, const char *dir, struct tm_arena *arena,
                        struct tm_job_simulation *simulation, struct tm_error *e)
{
    const struct tm_run_settings *settings = &simulation->settings;
    bool known = false;
    struct tm_job_pools *pools = simulation->pools = tm_calloc(1, sizeof *pools);
    if (pools == NULL) return tm_error_nomem(e);
    int rc = tm_job_pools__init(env, &settings->job, arena, pools, e);
    if (rc == 0 && settings->costs == NULL) rc = make_planned(env, simulation, &known, e); /* else as it was run */
    if (rc == 0 && !known) rc = make_here(env, dir, arena, simulation, e);
    if (rc != 0) return rc;
    simulation->options = tm_job_pools__sim_options(settings, pools, simulation->options.samples_total);
    simulation->trace = "pools";
    if (settings->job.quotas.count > 0)
        tm_log(TM_LOG_WARN, "%s: only plan heeds quotas: over pools they are not simulated; give each pool a limit",
               settings->job.file);
    return 0;
}

int tm_job_simulation_make(struct tm_env *env, struct tm_arena *arena, struct tm_job_simulation *simulation,
                           struct tm_error *e)
{
    struct tm_run_settings *settings = &simulation->settings;
    const char *dir = tm_path(env, TM_PATH_STATE, settings->job.name, arena, e);
    if (dir == NULL) return -(int)e->code;
    if (tm_job_fleet_has_choices(&settings->job.fleet)) return make_choices(env, dir, arena, simulation, e);
    int rc = tm_run_plan_make(env, dir, settings, arena, &simulation->plan, e);
    if (rc == 0) rc = tm_verdict_make(&settings->job, &simulation->plan, NULL, arena, &simulation->verdict, e);
    if (rc == 0 && simulation->plan.speed_unknown)
        rc = tm_error_set(e, TM_EINPUT,
                          "%s: the step time of run: is not known before it runs; add a model or a profile",
                          settings->job.file);
    if (rc == 0) rc = make_layouts(env, dir, simulation, e);
    if (rc == 0) rc = put_on_demand(simulation, e);
    if (rc != 0) return rc;
    simulation->trace = settings->job.fleet.trace[0] != '\0' ? settings->job.fleet.trace : "drawn";
    return set_options(simulation, e);
}

int tm_job_simulation_believe(struct tm_env *env, const char *costs, struct tm_job_simulation *simulation,
                              struct tm_error *e)
{
    struct tm_run_settings believed = simulation->settings; /* borrows */
    if (simulation->plan.work.layers == 0)
        return tm_error_set(e, TM_EUSAGE, "--believe: only where the job is simulated as it was run; give --cost, too");
    believed.costs = costs;
    return tm_run_layouts__init(env, "", &believed, &simulation->plan.work, &simulation->believed, e);
}
