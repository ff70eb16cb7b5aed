/* Slurm as a provider: its partitions are the pools of the job. Nodes that see the state folder use it; others join by
 * a ticket. */
#include "job/provider.h"

#include "cloud/slurm_cloud.h"

#include <stdio.h>
#include <string.h>

enum { ADDRESS_BYTES = 256 };

/* How nodes reach this machine: in a job of Slurm by the node's address, else by its name. */
static int find_own(struct tm_env *env, struct tm_run_settings *settings, struct tm_error *e)
{
    char address[ADDRESS_BYTES];
    struct tm_text name;
    if (tm_slurm_own_address(env, address, sizeof address)) {
        settings->advertise = tm_arena_strndup(&settings->job.arena, address, strlen(address));
        return settings->advertise != NULL ? 0 : tm_error_nomem(e);
    }
    tm_text_init(&name, ADDRESS_BYTES);
    int rc = env->file_read(env, "/proc/sys/kernel/hostname", &name, e);
    if (rc == 0) {
        size_t length = strcspn(tm_text_string(&name), "\n");
        settings->advertise = tm_arena_strndup(&settings->job.arena, tm_text_string(&name), length);
        if (settings->advertise == NULL) rc = tm_error_nomem(e);
    }
    tm_text_deinit(&name);
    return rc;
}

/* Nodes must reach the coordinator, unless something else is said. */
static int listen_beyond(struct tm_env *env, struct tm_run_settings *settings, struct tm_error *e)
{
    if (settings->listen != NULL) return 0;
    int rc = settings->advertise == NULL ? find_own(env, settings, e) : 0;
    if (rc == 0) settings->listen = tm_provider_any_host(env);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "where do nodes reach this machine? give --listen or --advertise");
}

/* One instance is one node, once: what says otherwise would be another job than the one that is watched. */
static const char *refused_option(const char *sbatch)
{
    static const char *const refused[] = {"--nodes", "-N", "--array", "-a", "--requeue"};
    for (const char *at = sbatch; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, " \t");
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
            size_t word = strlen(refused[i]);
            bool letter = word == 2; /* -N4 */
            if (length >= word && memcmp(at, refused[i], word) == 0 && (letter || length == word || at[word] == '='))
                return refused[i];
        }
        at += length + strspn(at + length, " \t");
    }
    return NULL;
}

static int check_pools(const struct tm_job_fleet *fleet, const char *place, struct tm_error *e)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    if (count == 0)
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.pools: which partitions? write for example pools: [{partition: spot, limit: 4}]",
                            place);
    for (size_t i = 0; i < count; i++) {
        if (pools[i].partition == NULL)
            return tm_error_set(e, TM_EINPUT, "%s: fleet.pools[%zu].partition: missing; cloud slurm needs one", place,
                                i + 1);
        const char *refused = refused_option(pools[i].sbatch);
        if (refused != NULL)
            return tm_error_set(e, TM_EINPUT,
                                "%s: fleet.pools[%zu].sbatch: leave %s out: an instance is a job of one node that is "
                                "not requeued; limit says how many",
                                place, i + 1, refused);
        if (pools[i].role == TM_POOL_KEEPS_COPIES)
            return tm_error_set(e, TM_EINPUT,
                                "%s: fleet.pools[%zu].role: cloud slurm has no instances that only keep copies; leave "
                                "it out",
                                place, i + 1);
    }
    return 0;
}

static int settle_slurm(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->job.fleet;
    int rc = check_pools(fleet, place, e);
    if (rc != 0) return rc;
    if (fleet->spot_usd_h_millionths < 0) fleet->spot_usd_h_millionths = 0;
    if (fleet->on_demand_usd_h_millionths < 0) fleet->on_demand_usd_h_millionths = 0;
    return listen_beyond(env, settings, e);
}

static int make_pools(const struct tm_provider_request *request, struct tm_slurm_options *options, struct tm_error *e)
{
    size_t count = 0;
    const struct tm_job_pool *given = tm_job_fleet_pools(&request->settings->job.fleet, &count);
    struct tm_slurm_pool *pools = tm_arena_alloc(request->arena, count * sizeof *pools);
    if (pools == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < count; i++)
        pools[i] =
            (struct tm_slurm_pool){.partition = given[i].partition,
                                   .kind = given[i].market == TM_POOL_SPOT ? TM_INSTANCE_SPOT : TM_INSTANCE_ON_DEMAND,
                                   .limit = (int)(given[i].limit > 0 ? given[i].limit : given[i].count),
                                   .price_usd_h = (double)given[i].usd_h_millionths / 1e6,
                                   .notice_ms = given[i].notice_ms,
                                   .time_limit_ms = given[i].time_limit_ms,
                                   .words = given[i].sbatch};
    options->pools = pools;
    options->pool_count = count;
    options->choices = request->pool_count > 0;
    return 0;
}

static int open_slurm(struct tm_env *env, const struct tm_provider_request *request, struct tm_cloud **out,
                      struct tm_error *e)
{
    /* Whoever resumes the run takes the node over, if its agent has not given up: the queue may be long. */
    const char *words[] = {request->program, "agent",     "--state", request->dir, "--notice",
                           "none",           "--give-up", "15m",     NULL};
    const char **command = tm_arena_alloc(request->arena, sizeof words);
    const char *others[] = {request->program, "agent", "--notice", "none", NULL};
    const char **join = tm_arena_alloc(request->arena, sizeof others);
    struct tm_slurm_options options = {.command = command,
                                       .join = join,
                                       .folder = request->dir,
                                       .script_dir = request->cloud_dir,
                                       .log_dir = request->log_dir,
                                       .run = request->settings->number,
                                       .id_last = request->account->instance,
                                       .poll_ms = request->settings->job.fleet.poll_ms,
                                       .rest = request->settings->job.fleet.slurm.rest,
                                       .token_file = request->settings->job.fleet.slurm.token_file,
                                       .prepare = request->certify,
                                       .context = request->context,
                                       .ticket = tm_provider__day_ticket,
                                       .ticket_context = (void *)request};
    if (command == NULL || join == NULL) return tm_error_nomem(e);
    memcpy(command, words, sizeof words);
    memcpy(join, others, sizeof others);
    int rc = make_pools(request, &options, e);
    return rc == 0 ? tm_slurm_cloud_create(env, &options, out, e) : rc;
}

const struct tm_provider tm_provider__slurm = {.name = "slurm",
                                               .about = "instances are jobs of Slurm, one node each",
                                               .instances_max = TM_SLURM_JOBS_MAX,
                                               .joins = true,
                                               .leaves_early = true,
                                               .settle = settle_slurm,
                                               .open = open_slurm};
