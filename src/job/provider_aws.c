/* AWS as a provider: VMs of EC2 that join by tickets (cloud/aws_cloud.h). */
#include "cloud/aws_cloud.h"
#include "job/provider_vms.h"

#include <stdio.h>
#include <string.h>

/* The region of a zone ("us-east-1a"), or of a region; "" where a zone's id ("use1-az2") does not say it. */
static void region_of(const char *place, char out[64])
{
    size_t length = strstr(place, "-az") != NULL ? 0 : strlen(place);
    if (length > 1 && place[length - 1] >= 'a' && place[length - 1] <= 'z') length--;
    (void)snprintf(out, 64, "%.*s", (int)(length < 63 ? length : 63), place);
}

static const struct tm_provider__vm_kind kind = {
    .cloud = "aws", .scheme = "s3", .type = "g5.xlarge", .region_of = region_of};

static int settle_aws(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    (void)env;
    return tm_provider_vms__settle(&kind, settings, place, e);
}

static int check_aws(const struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    return tm_provider_vms__check(&kind, settings, place, e);
}

static int open_aws(struct tm_env *env, const struct tm_provider_request *request, struct tm_cloud **out,
                    struct tm_error *e)
{
    const struct tm_job_aws *said = &request->settings->job.fleet.aws;
    const struct tm_provider__vm_times times = {said->silence_ms, said->life_ms, said->start_ms};
    struct tm_provider__vms *vms = NULL;
    int rc = tm_provider_vms__fill(&kind, env, request, &times, &vms, e);
    if (rc != 0) return rc;
    const struct tm_vm_options *o = &vms->options;
    struct tm_aws_options options = {.pools = o->pools,
                                     .pool_count = o->pool_count,
                                     .region = vms->region[0] != '\0' ? vms->region : NULL,
                                     .image = said->image,
                                     .subnet = said->subnet,
                                     .security_group = said->security_group,
                                     .profile = said->instance_profile,
                                     .disk_gb = (said->disk + 999999999) / 1000000000,
                                     .job = o->job,
                                     .owner = o->owner,
                                     .run = o->run,
                                     .bucket = o->bucket,
                                     .prefix = o->prefix,
                                     .program = o->program,
                                     .variables = o->variables,
                                     .setup = o->setup,
                                     .state_dir = o->state_dir,
                                     .log_dir = o->log_dir,
                                     .id_first = o->id_first,
                                     .account_ms = o->account_ms,
                                     .poll_ms = o->poll_ms,
                                     .silence_ms = o->silence_ms,
                                     .life_ms = o->life_ms,
                                     .start_ms = o->start_ms,
                                     .ticket = o->ticket,
                                     .has_joined = o->has_joined,
                                     .context = o->context};
    return tm_aws_cloud_create(env, &options, out, e);
}

const struct tm_provider tm_provider__aws = {.name = "aws",
                                             .about = "instances are VMs of EC2, rented on demand and spot",
                                             .instances_max = TM_AWS_INSTANCES_MAX,
                                             .joins = true,
                                             .settle = settle_aws,
                                             .check = check_aws,
                                             .open = open_aws};
