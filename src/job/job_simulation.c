#include "job/job_simulation.h"

#include "base/alloc.h"
#include "base/content.h"
#include "base/paths.h"
#include "base/yaml_print.h"
#include "job/job_file.h"
#include "sim/moments.h"

#include <math.h>
#include <string.h>

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
    tm_text_init(&text, TM_JOB_BYTES_MAX);
    tm_arena_init(&arena, 4 * TM_JOB_BYTES_MAX);
    int rc = tm_content_read(env, path, &text, NULL);
    bool named = ends_in(path, ".yaml") || ends_in(path, ".yml"); /* then its mistakes are a job's */
    if (rc == 0) rc = tm_doc_parse_yaml(path, tm_text_string(&text), text.length, &arena, &root, NULL);
    for (size_t i = 0; rc == 0 && root->kind == TM_NODE_MAP && i < sizeof keys / sizeof *keys; i++)
        found = found || tm_node_find(root, keys[i]) != NULL;
    tm_arena_deinit(&arena);
    tm_text_deinit(&text);
    return found || named;
}

int tm_job_simulation_read(struct tm_env *env, const char *path, struct tm_job_simulation *simulation,
                           struct tm_error *e)
{
    int rc = tm_job_file_settings(env, path, &simulation->settings, e);
    if (rc != 0) return rc;
    rc = tm_job_file_check_engine(env, path, &simulation->settings, e);
    return rc == -(int)TM_EINPUT ? 0 : rc; /* nothing is trained here */
}

/* On-demand instances that train are there from the beginning, as the judge has them: they are of the trace. */
static int put_on_demand(struct tm_job_simulation *simulation, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &simulation->settings.fleet;
    struct tm_draw_pool pools[TM_DRAW_POOLS_MAX];
    bool spot = tm_job_fleet_spot_max(fleet) > 0;
    if (fleet->on_demand == 0 || fleet->on_demand_trains == 0 || fleet->pools.count == 0) return 0;
    if (spot && !tm_job_fleet_is_drawn(fleet)) return 0;
    struct tm_draw draw = tm_run_draw(fleet, pools);
    if (draw.pool_count == TM_DRAW_POOLS_MAX) return 0;
    if (!spot) draw.losses = tm_draw_losses_usual();
    pools[draw.pool_count++] = (struct tm_draw_pool){
        .count = (int)fleet->on_demand, .price_usd_h = (double)fleet->on_demand_usd_h_millionths / 1e6, .always = true};
    int rc = tm_trace_draw(&draw, &simulation->plan.trace, e);
    simulation->drawn_on_demand = rc == 0;
    return rc;
}

/* The whole job, as far as its trace goes and, after that, on what there is then. */
static void set_options(struct tm_job_simulation *simulation)
{
    const struct tm_run_settings *settings = &simulation->settings;
    const struct tm_job_fleet *fleet = &settings->fleet;
    simulation->options =
        tm_run__sim_options(settings, &simulation->plan.work, simulation->layouts, &simulation->plan.trace);
    if (simulation->drawn_on_demand) simulation->options.anchors = 0;
    /* Keepers of another type have their own price, and in a run nothing is bought beside them. */
    bool keepers = fleet->pools.count > 0 && fleet->on_demand > 0 && fleet->on_demand_trains == 0;
    if (!keepers) return;
    simulation->options.anchors = 0;
    simulation->options.buys_nothing = true;
    simulation->options.beside_usd_h = (double)fleet->on_demand * simulation->options.on_demand_usd_h;
    simulation->options.on_demand_usd_h = isnan(simulation->plan.trains_usd_h) ? 0 : simulation->plan.trains_usd_h;
}

/* The layouts that the verdict was made with. */
static int make_layouts(struct tm_env *env, const char *path, const char *dir, struct tm_job_simulation *simulation,
                        struct tm_error *e)
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
    int rc = tm_planned_fleet__init(env, path, settings, planned, &known, e);
    if (rc == 0)
        rc = tm_fleet_layouts_init(&planned->judge, &planned->request, &planned->fleet, &simulation->predicted, e);
    if (rc != 0) return rc;
    simulation->layouts = &simulation->predicted.layouts;
    simulation->cost = &simulation->predicted.cost;
    return 0;
}

int tm_job_simulation_make(struct tm_env *env, const char *path, struct tm_arena *arena,
                           struct tm_job_simulation *simulation, struct tm_error *e)
{
    struct tm_run_settings *settings = &simulation->settings;
    const char *dir = tm_path(env, TM_PATH_STATE, settings->name, arena, e);
    if (dir == NULL) return -(int)e->code;
    int rc = tm_run_plan_make(env, path, dir, settings, arena, &simulation->plan, e);
    if (rc == 0) rc = tm_verdict_make(settings, &simulation->plan, NULL, arena, &simulation->verdict, e);
    if (rc == 0 && simulation->plan.speed_unknown)
        rc = tm_error_set(e, TM_EINPUT,
                          "%s: the step time of run: is not known before it runs; add a model or a profile", path);
    if (rc == 0) rc = make_layouts(env, path, dir, simulation, e);
    if (rc == 0) rc = put_on_demand(simulation, e);
    if (rc != 0) return rc;
    simulation->trace = settings->fleet.trace[0] != '\0' ? settings->fleet.trace : "drawn";
    set_options(simulation);
    return 0;
}

int tm_job_simulation_believe(struct tm_env *env, const char *costs, struct tm_job_simulation *simulation,
                              struct tm_error *e)
{
    struct tm_run_settings believed = simulation->settings; /* borrows */
    believed.costs = costs;
    return tm_run_layouts__init(env, "", &believed, &simulation->plan.work, &simulation->believed, e);
}
