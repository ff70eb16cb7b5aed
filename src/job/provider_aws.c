/* AWS as a provider: VMs of EC2 that join by tickets (cloud/aws_cloud.h). */
#include "cloud/aws_cloud.h"
#include "cloud/aws_market.h"
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
    .cloud = "aws", .scheme = "s3", .type = "g5.xlarge", .region_of = region_of, .origin = tm_aws_cloud_origin};

static int settle_aws(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    return tm_provider_vms__settle(&kind, env, settings, place, e);
}

static int check_aws(const struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    return tm_provider_vms__check(&kind, settings, place, e);
}

static int aws_spot_price(struct tm_env *env, const struct tm_run_settings *settings, const char *type,
                          const char *zone, double *out_usd_h, struct tm_error *e)
{
    char region[64];
    int rc = tm_provider_vms__region(&kind, &settings->job.fleet, settings->job.file, region, e);
    return rc == 0 ? tm_aws_market_price(env, region[0] != '\0' ? region : NULL, type, zone, out_usd_h, e) : rc;
}

static int open_aws(struct tm_env *env, const struct tm_provider_request *request, struct tm_cloud **out,
                    struct tm_error *e)
{
    const struct tm_job_aws *said = &request->settings->job.fleet.aws;
    const struct tm_provider__vm_times times = {said->silence_ms, said->life_ms, said->start_ms};
    struct tm_provider__vms *vms = NULL;
    int rc = tm_provider_vms__fill(&kind, env, request, &times, &vms, e);
    if (rc != 0) return rc;
    struct tm_aws_options options = {.common = vms->options,
                                     .region = vms->region[0] != '\0' ? vms->region : NULL,
                                     .image = said->image,
                                     .subnet = said->subnet,
                                     .security_group = said->security_group,
                                     .profile = said->instance_profile,
                                     .disk_gb = (said->disk + 999999999) / 1000000000};
    return tm_aws_cloud_create(env, &options, out, e);
}

static const struct tm_job_coordinator_vm *said_coordinator(const struct tm_job_fleet *fleet)
{
    return &fleet->aws.coordinator;
}

static int rent_coordinator(struct tm_env *env, const struct tm_run_settings *settings, struct tm_away_vm *o,
                            char out_id[TM_VM_ID_MAX], struct tm_error *e)
{
    const struct tm_job_aws *said = &settings->job.fleet.aws;
    const struct tm_aws_options options = {.image = said->image,
                                           .subnet = said->subnet,
                                           .security_group = said->security_group,
                                           .profile = said->coordinator.account};
    o->life_ms = said->life_ms;
    return tm_aws_coordinator_rent(env, &options, o, out_id, e);
}

static const struct tm_provider_coordinator coordinator = {.scheme = "s3",
                                                           .type = "t3.small",
                                                           .usd_h = 0.0208, /* in the United States, 2026-08 */
                                                           .key = "coordinator_profile",
                                                           .about = "an instance profile whose role",
                                                           .rights = "you need iam:PassRole for it",
                                                           .said = said_coordinator,
                                                           .rent = rent_coordinator,
                                                           .find = tm_aws_coordinator_find};

const struct tm_provider tm_provider__aws = {.name = "aws",
                                             .typed = true,
                                             .about = "instances are VMs of EC2, rented on demand and spot",
                                             .instances_max = TM_AWS_INSTANCES_MAX,
                                             .joins = true,
                                             .settle = settle_aws,
                                             .check = check_aws,
                                             .spot_price = aws_spot_price,
                                             .open = open_aws,
                                             .coordinator = &coordinator};
