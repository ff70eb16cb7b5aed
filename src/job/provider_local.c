/* The local cloud as a provider: what the job says of its fleet, as options of cloud/local_cloud.h. */
#include "job/provider.h"

#include "base/log.h"
#include "cloud/local_cloud.h"

#include <string.h>

/* Instances of a planned fleet are called what was planned; those of several zones have no one zone's name. */
static void name_instances(const struct tm_job_fleet *fleet, struct tm_local_options *options)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    options->keepers = (int)tm_job_fleet_keepers(fleet);
    options->keeper_type = fleet->anchor_instance[0] != '\0' ? fleet->anchor_instance : NULL;
    options->keeper_usd_h = (double)fleet->anchor_usd_h_millionths / 1e6;
    if (count == 0) return;
    for (size_t i = 0; i < count; i++) {
        bool keeps = pools[i].role == TM_POOL_KEEPS_COPIES;
        int kind = pools[i].market == TM_POOL_SPOT ? TM_INSTANCE_SPOT : TM_INSTANCE_ON_DEMAND;
        const char **type = keeps ? &options->keeper_type : &options->types[kind];
        const char **zone = keeps ? &options->keeper_zone : &options->zones[kind];
        bool first = keeps ? *zone == NULL : *type == NULL;
        bool same = pools[i].zone != NULL && *zone != NULL && strcmp(pools[i].zone, *zone) == 0;
        *type = pools[i].instance;
        *zone = first || same ? pools[i].zone : NULL;
    }
    if (options->types[TM_INSTANCE_ON_DEMAND] == NULL) /* what is bought for a deadline */
        options->types[TM_INSTANCE_ON_DEMAND] = fleet->instance;
}

/* An agent each, which finds the rest in the state folder. */
static int make_words(const struct tm_provider_request *request, struct tm_local_options *options, struct tm_error *e)
{
    const char *words[] = {request->program, "agent", "--state", request->dir, NULL};
    const char *marks[] = {request->mark, NULL};
    const char **command = tm_arena_alloc(request->arena, sizeof words);
    const char **variables = tm_arena_alloc(request->arena, sizeof marks);
    if (command == NULL || variables == NULL) return tm_error_nomem(e);
    memcpy(command, words, sizeof words);
    memcpy(variables, marks, sizeof marks);
    options->command = command;
    options->variables = variables;
    return 0;
}

static int make_choices(const struct tm_provider_request *request, struct tm_local_options *options, struct tm_error *e)
{
    struct tm_local_pool *pools = tm_arena_alloc(request->arena, (size_t)request->pool_count * sizeof *pools);
    if (pools == NULL) return tm_error_nomem(e);
    for (int i = 0; i < request->pool_count; i++) {
        const struct tm_trace *trace = &request->pool_traces[i];
        pools[i] = (struct tm_local_pool){request->pools[i], trace->end_ms > 0 ? trace : NULL};
    }
    options->pools = pools;
    options->pool_count = request->pool_count;
    return 0;
}

static int open_local(struct tm_env *env, const struct tm_provider_request *request, struct tm_cloud **out,
                      struct tm_error *e)
{
    const struct tm_run_settings *settings = request->settings;
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    struct tm_local_options options = {.trace = request->trace,
                                       .state_dir = request->cloud_dir,
                                       .log_dir = request->log_dir,
                                       .speed = fleet->speed,
                                       .notice_ms = fleet->notice_ms,
                                       .notice_wall_ms = fleet->notice_wall_ms,
                                       .hint_ms = fleet->hint_ms,
                                       .spot_start_ms = fleet->spot_start_ms,
                                       .on_demand_start_ms = fleet->on_demand_start_ms,
                                       .spot_usd_h = (double)fleet->spot_usd_h_millionths / 1e6,
                                       .on_demand_usd_h = (double)fleet->on_demand_usd_h_millionths / 1e6,
                                       .limit = (int)fleet->limit,
                                       .id_first = request->account->instance + 1,
                                       .seed = (uint64_t)fleet->seed,
                                       .no_losses = settings->no_losses,
                                       .netns = settings->netns,
                                       .link_bits_per_s = settings->link_bit_s,
                                       .prepare = request->certify,
                                       .context = request->context};
    int rc = make_words(request, &options, e);
    if (rc != 0) return rc;
    if (request->pool_count > 0)
        rc = make_choices(request, &options, e);
    else
        name_instances(fleet, &options);
    if (rc != 0) return rc;
    rc = tm_local_cloud_create(env, &options, out, e);
    if (rc == 0 && tm_local_cloud_leftovers(*out) > 0)
        tm_log(TM_LOG_WARN, "removing %d processes and namespaces left over from an earlier run",
               tm_local_cloud_leftovers(*out));
    return rc;
}

static int check_local(const struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    return tm_job_fleet_check_local(&settings->job.fleet, place, e);
}

const struct tm_provider tm_provider__local = {.name = "local",
                                               .typed = true,
                                               .about = "instances are processes on this machine",
                                               .instances_max = TM_LOCAL_INSTANCES_MAX,
                                               .emulates = true,
                                               .check = check_local,
                                               .open = open_local,
                                               .host = tm_local_cloud_host};
