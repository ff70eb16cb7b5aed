/* SkyPilot as a provider: what the job file's resources say, one cluster of one node for each instance
 * (cloud/sky_cloud.h). */
#include "job/provider.h"

#include "cloud/sky_cloud.h"
#include "run/state_folder.h"

#include <string.h>

/* Clusters must reach this machine. */
static int check_address(const struct tm_run_settings *settings, struct tm_error *e)
{
    if (settings->listen != NULL || settings->advertise != NULL) return 0;
    return tm_error_set(
        e, TM_EUSAGE, "where do SkyPilot's clusters reach this machine? give --advertise HOST, or --listen HOST:PORT");
}

static int settle_skypilot(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->job.fleet;
    (void)env;
    if (fleet->pools.count > 0)
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.pools: SkyPilot chooses by resources; leave pools out with cloud: skypilot",
                            place);
    if (fleet->limit == 0) fleet->limit = settings->job.num_instances;
    if (fleet->limit == 0)
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.limit: how many instances at most? write for example limit: 4, or num_nodes: 4",
                            place);
    if (!tm_job_says(&settings->job, "fleet.instance")) fleet->instance = "cluster"; /* SkyPilot says, once it is up */
    if (fleet->spot_usd_h_millionths < 0) fleet->spot_usd_h_millionths = 0;
    if (fleet->on_demand_usd_h_millionths < 0) fleet->on_demand_usd_h_millionths = 0;
    return check_address(settings, e);
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
    return tm_sky_cloud_create(env, &options, out, e);
}

const struct tm_provider tm_provider__skypilot = {.name = "skypilot",
                                                  .about = "instances are clusters that SkyPilot rents",
                                                  .instances_max = TM_REMOTE_INSTANCES_MAX,
                                                  .by_resources = true,
                                                  .joins = true,
                                                  .settle = settle_skypilot,
                                                  .open = open_skypilot};
