/* SkyPilot as a provider: what the job file's resources say, or its pools, one cluster of one node for each instance
 * (cloud/sky_cloud.h). */
#include "job/provider.h"

#include "cloud/sky_cloud.h"
#include "run/state_folder.h"

#include <stdio.h>
#include <string.h>

/* Clusters must reach this machine. */
static int check_address(const struct tm_run_settings *settings, struct tm_error *e)
{
    if (settings->listen != NULL || settings->advertise != NULL) return 0;
    return tm_error_set(
        e, TM_EUSAGE, "where do SkyPilot's clusters reach this machine? give --advertise HOST, or --listen HOST:PORT");
}

static bool same(const char *a, const char *b)
{
    return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

/* The pool of a market, of pools that are no choice; NULL: there is none. */
static const struct tm_job_pool *pool_of(const struct tm_job_fleet *fleet, enum tm_pool_market market)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count; i++)
        if (pools[i].market == (int)market) return &pools[i];
    return NULL;
}

/* Counted pools are one of each market, as a plan for one instance type writes them; more are a choice. */
static int check_counts(const struct tm_job_fleet *fleet, const char *place, struct tm_error *e)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    for (size_t i = 0; i < count && !tm_job_fleet_has_choices(fleet); i++) {
        const struct tm_job_pool *first = pool_of(fleet, (enum tm_pool_market)pools[i].market);
        if (same(first->instance, pools[i].instance) && same(first->cloud, pools[i].cloud) &&
            same(first->region, pools[i].region) && same(first->zone, pools[i].zone) && first->role == pools[i].role)
            continue;
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.pools[%zu]: of pools with a count, cloud skypilot takes one %s; write limit in "
                            "place of count in all of them",
                            place, i + 1, tm_pool_market_names[pools[i].market]);
    }
    return 0;
}

static int settle_skypilot(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->job.fleet;
    (void)env;
    int rc = check_counts(fleet, place, e);
    if (rc != 0) return rc;
    if (fleet->limit == 0) fleet->limit = settings->job.num_instances;
    if (fleet->limit == 0)
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.limit: how many instances at most? write for example limit: 4, or num_nodes: 4",
                            place);
    if (fleet->pools.count == 0 && !tm_job_says(&settings->job, "fleet.instance"))
        fleet->instance = "cluster"; /* SkyPilot says, once it is up */
    if (fleet->spot_usd_h_millionths < 0) fleet->spot_usd_h_millionths = 0;
    if (fleet->on_demand_usd_h_millionths < 0) fleet->on_demand_usd_h_millionths = 0;
    return check_address(settings, e);
}

/* cloud/region/zone as SkyPilot writes it, with "*" for what is left open before something that is said. */
static const char *infra_of(const struct tm_job_pool *pool, struct tm_arena *arena)
{
    const char *parts[] = {pool->cloud, pool->region, pool->zone};
    const char *infra = "";
    bool more = false;
    for (size_t i = 3; i-- > 0 && infra != NULL;) {
        if (parts[i] == NULL && !more) continue;
        infra = tm_arena_printf(arena, "%s%s%s", parts[i] != NULL ? parts[i] : "*", more ? "/" : "", infra);
        more = true;
    }
    return infra;
}

/* Two pools, by market, of pools that are no choice. */
static int make_plain(const struct tm_provider_request *request, struct tm_sky_options *options, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &request->settings->job.fleet;
    struct tm_cloud_pool *pools = tm_arena_alloc(request->arena, 2 * sizeof *pools);
    struct tm_sky_pool *places = tm_arena_alloc(request->arena, 2 * sizeof *places);
    if (pools == NULL || places == NULL) return tm_error_nomem(e);
    for (int kind = 0; kind < 2; kind++) {
        const struct tm_job_pool *from = pool_of(fleet, kind == TM_CLOUD_SPOT ? TM_POOL_SPOT : TM_POOL_ON_DEMAND);
        bool spot = kind == TM_CLOUD_SPOT;
        pools[kind] = (struct tm_cloud_pool){
            .kind = spot ? TM_INSTANCE_SPOT : TM_INSTANCE_ON_DEMAND,
            .limit = (int)(spot ? fleet->limit : fleet->on_demand),
            .price_usd_h = from != NULL && from->usd_h_millionths > 0 ? (double)from->usd_h_millionths / 1e6 : 0};
        (void)snprintf(pools[kind].name, sizeof pools[kind].name, "%s", spot ? "spot" : "on-demand");
        (void)snprintf(pools[kind].type, sizeof pools[kind].type, "%s", from != NULL ? from->instance : "cluster");
        places[kind] = (struct tm_sky_pool){from != NULL ? from->instance : "",
                                            from != NULL ? infra_of(from, request->arena) : ""};
        if (places[kind].infra == NULL) return tm_error_nomem(e);
    }
    options->pools = pools;
    options->places = places;
    options->pool_count = 2;
    return 0;
}

static int make_places(const struct tm_provider_request *request, struct tm_sky_options *options, struct tm_error *e)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(&request->settings->job.fleet, &count);
    if (count == 0) return 0;
    if (request->pool_count == 0) return make_plain(request, options, e);
    struct tm_sky_pool *places = tm_arena_alloc(request->arena, count * sizeof *places);
    if (places == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < count; i++) {
        places[i] = (struct tm_sky_pool){.instance = pools[i].instance, .infra = infra_of(&pools[i], request->arena)};
        if (places[i].infra == NULL) return tm_error_nomem(e);
    }
    options->pools = request->pools;
    options->places = places;
    options->pool_count = request->pool_count;
    return 0;
}

static int open_skypilot(struct tm_env *env, const struct tm_provider_request *request, struct tm_cloud **out,
                         struct tm_error *e)
{
    const struct tm_job *job = &request->settings->job;
    char path[TM_STATE_PATH_MAX];
    tm_state_path(request->dir, TM_STATE_JOB, path); /* as the user wrote it */
    const char *task = tm_arena_strdup(request->arena, path);
    if (task == NULL) return tm_error_nomem(e);
    struct tm_sky_options options = {.python = env->variable(env, "TIDEMILL_PYTHON"),
                                     .task = task,
                                     .folder = job->folder != NULL && job->folder[0] != '\0' ? job->folder : ".",
                                     .program = request->program,
                                     .state = request->dir,
                                     .dir = request->cloud_dir,
                                     .limit = {(int)job->fleet.limit, (int)job->fleet.on_demand},
                                     .poll_ms = job->fleet.poll_ms,
                                     .id_first = request->account->instance + 1,
                                     .ticket = tm_provider__day_ticket,
                                     .has_joined = tm_provider__has_joined,
                                     .context = (void *)request};
    int rc = make_places(request, &options, e);
    return rc == 0 ? tm_sky_cloud_create(env, &options, out, e) : rc;
}

const struct tm_provider tm_provider__skypilot = {.name = "skypilot",
                                                  .about = "instances are clusters that SkyPilot rents",
                                                  .instances_max = TM_REMOTE_INSTANCES_MAX,
                                                  .by_resources = true,
                                                  .joins = true,
                                                  .settle = settle_skypilot,
                                                  .open = open_skypilot};
