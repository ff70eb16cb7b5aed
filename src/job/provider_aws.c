/* AWS as a provider: VMs of EC2 that join by tickets (cloud/aws_cloud.h). The program, and what VMs leave, is in the
 * bucket that the job's copies are in. */
#include "job/provider.h"

#include "cloud/aws_cloud.h"
#include "run/state_folder.h"
#include "store/copy_store.h"
#include "store/objects.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct aws {
    const struct tm_provider_request *request;
    struct tm_cloud_pool pools[TM_CLOUD_POOLS_MAX];
    int pool_count;
    char region[64]; /* "": as set for AWS's own tools */
    char bucket[TM_BUCKET_MAX];
    char prefix[TM_PREFIX_MAX];
};

/* ---- where ---- */

/* The region of a zone ("us-east-1a"), or of a region; "" where a zone's id ("use1-az2") does not say it. */
static void region_of(const char *place, char out[64])
{
    size_t length = strstr(place, "-az") != NULL ? 0 : strlen(place);
    if (length > 1 && place[length - 1] >= 'a' && place[length - 1] <= 'z') length--;
    (void)snprintf(out, 64, "%.*s", (int)(length < 63 ? length : 63), place);
}

/* All pools are in one: workers of one layout talk to each other all the time. */
static int find_region(const struct tm_job_fleet *fleet, const char *place, char out[64], struct tm_error *e)
{
    size_t count = 0;
    const struct tm_job_pool *pools = tm_job_fleet_pools(fleet, &count);
    out[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        char region[64] = "";
        if (pools[i].zone != NULL) region_of(pools[i].zone, region);
        if (pools[i].region != NULL) (void)snprintf(region, sizeof region, "%s", pools[i].region);
        if (pools[i].cloud != NULL && strcmp(pools[i].cloud, "aws") != 0)
            return tm_error_set(e, TM_EINPUT, "%s: fleet.pools[%zu].cloud: %s, but the job runs on cloud aws", place,
                                i + 1, pools[i].cloud);
        if (out[0] != '\0' && region[0] != '\0' && strcmp(out, region) != 0)
            return tm_error_set(e, TM_EINPUT, "%s: fleet.pools: %s and %s; cloud aws rents in one region at a time",
                                place, out, region);
        if (region[0] != '\0') (void)snprintf(out, 64, "%s", region);
    }
    return 0;
}

static int settle_aws(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    const struct tm_job *job = &settings->job;
    const struct tm_job_fleet *fleet = &job->fleet;
    char region[64];
    (void)env;
    if (job->copies == NULL || strncmp(job->copies, "s3://", 5) != 0)
        return tm_error_set(e, TM_EINPUT,
                            "%s: copies: cloud aws needs a bucket, where VMs find the program, too; write for example "
                            "copies: s3://my-bucket/%s",
                            place, job->name);
    if (fleet->pools.count == 0 && (fleet->instance == NULL || fleet->instance[0] == '\0'))
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.instance: which instance type? write for example fleet: {instance: g5.xlarge, "
                            "limit: 4}",
                            place);
    if (fleet->pools.count == 0 && fleet->limit == 0)
        return tm_error_set(e, TM_EINPUT, "%s: fleet.limit: how many instances at most? write for example limit: 4",
                            place);
    if (settings->advertise == NULL && (settings->listen == NULL || strncmp(settings->listen, "0.0.0.0", 7) == 0))
        return tm_error_set(e, TM_EUSAGE,
                            "where do VMs reach this machine? give --advertise ADDRESS, and --listen 0.0.0.0:PORT for "
                            "ports that its firewall lets in (PORT and PORT + 1)");
    return find_region(fleet, place, region, e);
}

static int check_aws(const struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &settings->job.fleet;
    if (settings->job.engine == TM_JOB_ENGINE_COMMAND && settings->job.setup == NULL)
        return tm_error_set(e, TM_EINPUT,
                            "%s: setup: a VM is empty: say how it gets what `run` needs (git clone, aws s3 cp, pip "
                            "install)",
                            place);
    if (!tm_job_fleet_has_choices(fleet) && tm_job_fleet_keepers(fleet) > 0 &&
        tm_job_fleet_keepers(fleet) < fleet->on_demand)
        return tm_error_set(
            e, TM_EINPUT, "%s: fleet: on-demand instances either all train or all keep copies, with cloud aws", place);
    return 0;
}

/* ---- opening ---- */

/* Two pools for a job that has no choice, or as it has them. */
static void fill_pools(struct aws *aws)
{
    const struct tm_provider_request *request = aws->request;
    const struct tm_job_fleet *fleet = &request->settings->job.fleet;
    size_t count = 0;
    const struct tm_job_pool *planned = tm_job_fleet_pools(fleet, &count);
    if (request->pool_count > 0) {
        aws->pool_count = request->pool_count;
        memcpy(aws->pools, request->pools, (size_t)request->pool_count * sizeof *aws->pools);
        return;
    }
    aws->pool_count = 2;
    for (int kind = 0; kind < 2; kind++) {
        struct tm_cloud_pool *pool = &aws->pools[kind];
        bool on_demand = kind == TM_INSTANCE_ON_DEMAND;
        bool keeps = on_demand && tm_job_fleet_keepers(fleet) > 0 && fleet->anchor_instance[0] != '\0';
        int64_t price = keeps       ? fleet->anchor_usd_h_millionths
                        : on_demand ? fleet->on_demand_usd_h_millionths
                                    : fleet->spot_usd_h_millionths;
        *pool = (struct tm_cloud_pool){.kind = on_demand ? TM_INSTANCE_ON_DEMAND : TM_INSTANCE_SPOT,
                                       .limit = on_demand ? 0 : (int)fleet->limit,
                                       .price_usd_h = price >= 0 ? (double)price / 1e6 : NAN};
        (void)snprintf(pool->name, sizeof pool->name, "%s", on_demand ? "on-demand" : "spot");
        (void)snprintf(pool->type, sizeof pool->type, "%s", keeps ? fleet->anchor_instance : fleet->instance);
        bool first = true;
        for (size_t i = 0; i < count; i++) { /* of one zone, if all are */
            if ((planned[i].market == TM_POOL_ON_DEMAND) != on_demand) continue;
            const char *zone = planned[i].zone != NULL ? planned[i].zone : "";
            bool same = first || strcmp(zone, pool->zone) == 0;
            (void)snprintf(pool->zone, sizeof pool->zone, "%s", same ? zone : "");
            first = false;
        }
    }
}

/* As a shell reads it. */
static void put_quoted(struct tm_text *out, const char *text)
{
    tm_text_putc(out, '\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            tm_text_puts(out, "'\\''");
        else
            tm_text_putc(out, *text);
    }
    tm_text_putc(out, '\'');
}

static int print_variables(const struct tm_provider_request *request, const char **out, struct tm_error *e)
{
    const struct tm_job_pairs *envs = &request->settings->job.envs;
    struct tm_text text;
    tm_text_init(&text, 1 << 20);
    for (size_t i = 0; i < envs->count; i++) {
        tm_text_printf(&text, "export %s=", envs->items[i].name);
        put_quoted(&text, envs->items[i].text != NULL ? envs->items[i].text : "");
        tm_text_putc(&text, '\n');
    }
    int rc = tm_text_status(&text, e);
    *out = rc == 0 ? tm_arena_strdup(request->arena, tm_text_string(&text)) : NULL;
    tm_text_deinit(&text);
    return rc == 0 && *out == NULL ? tm_error_nomem(e) : rc;
}

static int find_bucket(struct tm_env *env, struct aws *aws, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    char place[TM_COPY_PLACE_MAX];
    tm_state_path(aws->request->dir, TM_STATE_COPIES, path);
    int rc = tm_copy_store_place(env, path, place, e);
    return rc == 0 ? tm_objects_place(place, aws->bucket, aws->prefix, e) : rc;
}

static int ticket(void *context, uint64_t id, bool on_demand, char out[TM_AWS_TICKET_MAX], struct tm_error *e)
{
    static const int64_t usual_ms = 30 * 60000;
    const struct tm_provider_request *request = context;
    int64_t start_ms = request->settings->job.fleet.aws.start_ms;
    const struct tm_ticket_for who = {
        .instance = id, .anchor = on_demand, .valid_ms = start_ms > 0 ? start_ms : usual_ms};
    static_assert((int)TM_AWS_TICKET_MAX >= (int)TM_TICKET_MAX, "a ticket has room");
    return request->ticket(request->office, &who, out, e);
}

static int open_aws(struct tm_env *env, const struct tm_provider_request *request, struct tm_cloud **out,
                    struct tm_error *e)
{
    const struct tm_job *job = &request->settings->job;
    const struct tm_job_aws *said = &job->fleet.aws;
    struct aws *aws = tm_arena_alloc(request->arena, sizeof *aws);
    const char *variables = NULL;
    const char *owner = env->variable(env, "USER");
    if (aws == NULL) return tm_error_nomem(e);
    *aws = (struct aws){.request = request};
    int rc = find_region(&job->fleet, request->dir, aws->region, e);
    if (rc == 0) rc = find_bucket(env, aws, e);
    if (rc == 0) rc = print_variables(request, &variables, e);
    if (rc != 0) return rc;
    fill_pools(aws);
    struct tm_aws_options options = {.pools = aws->pools,
                                     .pool_count = aws->pool_count,
                                     .region = aws->region[0] != '\0' ? aws->region : NULL,
                                     .image = said->image,
                                     .subnet = said->subnet,
                                     .security_group = said->security_group,
                                     .profile = said->instance_profile,
                                     .disk_gb = (said->disk + 999999999) / 1000000000,
                                     .job = job->name,
                                     .owner = owner != NULL && owner[0] != '\0' ? owner : "not known",
                                     .run = request->settings->number,
                                     .bucket = aws->bucket,
                                     .prefix = aws->prefix,
                                     .program = request->program,
                                     .variables = variables,
                                     .setup = job->setup,
                                     .state_dir = request->cloud_dir,
                                     .log_dir = request->log_dir,
                                     .id_first = request->account->instance + 1,
                                     .account_ms = request->account->time_ms,
                                     .poll_ms = job->fleet.poll_ms,
                                     .silence_ms = said->silence_ms,
                                     .life_ms = said->life_ms,
                                     .start_ms = said->start_ms,
                                     .ticket = ticket,
                                     .has_joined = tm_provider__has_joined,
                                     .context = (void *)request};
    return tm_aws_cloud_create(env, &options, out, e);
}

const struct tm_provider tm_provider__aws = {.name = "aws",
                                             .about = "instances are VMs of EC2, rented on demand and spot",
                                             .instances_max = TM_AWS_INSTANCES_MAX,
                                             .joins = true,
                                             .settle = settle_aws,
                                             .check = check_aws,
                                             .open = open_aws};
