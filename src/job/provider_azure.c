/* Azure as a provider: VMs that join by tickets (cloud/azure_cloud.h). */
#include "cloud/azure_cloud.h"
#include "cloud/azure_market.h"
#include "job/provider_vms.h"

#include <stdio.h>
#include <string.h>

/* The location of "eastus-2", or of a location. */
static void region_of(const char *place, char out[64])
{
    size_t length = strcspn(place, "-");
    (void)snprintf(out, 64, "%.*s", (int)(length < 63 ? length : 63), place);
}

static const struct tm_provider__vm_kind kind = {.cloud = "azure",
                                                 .scheme = "az",
                                                 .type = "Standard_NC4as_T4_v3",
                                                 .region_of = region_of,
                                                 .origin = tm_azure_cloud_origin};

static int settle_azure(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    return tm_provider_vms__settle(&kind, env, settings, place, e);
}

static int check_azure(const struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    return tm_provider_vms__check(&kind, settings, place, e);
}

static int azure_spot_price(struct tm_env *env, const struct tm_run_settings *settings, const char *type,
                            const char *zone, double *out_usd_h, struct tm_error *e)
{
    const char *said = settings->job.fleet.azure.location;
    char region[64];
    (void)zone; /* the same in each zone of a location */
    int rc = tm_provider_vms__region(&kind, &settings->job.fleet, settings->job.file, region, e);
    const char *location = said != NULL ? said : region;
    if (rc == 0 && location[0] == '\0') return tm_error_set(e, TM_EINPUT, "fleet.azure.location is not said");
    return rc == 0 ? tm_azure_market_price(env, location, type, out_usd_h, e) : rc;
}

/* -TM_EINPUT: nobody says where. */
static int find_location(const struct tm_job_azure *said, const char *region, const char *place, const char **out,
                         struct tm_error *e)
{
    *out = said->location != NULL ? said->location : region;
    if ((*out)[0] != '\0') return 0;
    return tm_error_set(e, TM_EINPUT,
                        "%s: fleet.azure.location: where? write for example fleet: {azure: {location: eastus}}", place);
}

static int open_azure(struct tm_env *env, const struct tm_provider_request *request, struct tm_cloud **out,
                      struct tm_error *e)
{
    const char *location = NULL;
    const struct tm_job_azure *said = &request->settings->job.fleet.azure;
    const struct tm_provider__vm_times times = {said->silence_ms, said->life_ms, said->start_ms};
    struct tm_provider__vms *vms = NULL;
    int rc = tm_provider_vms__fill(&kind, env, request, &times, &vms, e);
    if (rc == 0) rc = find_location(said, vms->region, request->dir, &location, e);
    if (rc != 0) return rc;
    struct tm_azure_options options = {.vm = vms->options,
                                       .location = location,
                                       .group = said->resource_group,
                                       .image = said->image,
                                       .subnet = said->subnet,
                                       .security_group = said->security_group,
                                       .identity = said->identity,
                                       .public_ip = said->public_ip,
                                       .disk_gb = (said->disk + 999999999) / 1000000000};
    return tm_azure_cloud_create(env, &options, out, e);
}

static const struct tm_job_coordinator_vm *said_coordinator(const struct tm_job_fleet *fleet)
{
    return &fleet->azure.coordinator;
}

static int rent_coordinator(struct tm_env *env, const struct tm_run_settings *settings, struct tm_away_vm *o,
                            char out_id[TM_VM_ID_MAX], struct tm_error *e)
{
    const struct tm_job_azure *said = &settings->job.fleet.azure;
    const char *location = NULL;
    char region[64];
    int rc = tm_provider_vms__region(&kind, &settings->job.fleet, settings->job.file, region, e);
    if (rc == 0) rc = find_location(said, region, settings->job.file, &location, e);
    if (rc != 0) return rc;
    const struct tm_azure_options options = {.location = location,
                                             .group = said->resource_group,
                                             .image = said->image,
                                             .subnet = said->subnet,
                                             .security_group = said->security_group,
                                             .identity = said->coordinator.account,
                                             .public_ip = said->public_ip};
    o->life_ms = said->life_ms;
    return tm_azure_coordinator_rent(env, &options, o, out_id, e);
}

static const struct tm_provider_coordinator coordinator = {
    .scheme = "az",
    .type = "Standard_B1ms",
    .usd_h = 0.0207, /* in eastus, by its list of 2025 */
    .key = "coordinator_identity",
    .about = "a managed identity that",
    .rights = "it needs Storage Blob Data Contributor on the container",
    .said = said_coordinator,
    .rent = rent_coordinator,
    .find = tm_azure_coordinator_find};

const struct tm_provider tm_provider__azure = {.name = "azure",
                                               .typed = true,
                                               .about = "instances are VMs of Azure, rented on demand and spot",
                                               .instances_max = TM_AZURE_INSTANCES_MAX,
                                               .joins = true,
                                               .settle = settle_azure,
                                               .check = check_azure,
                                               .spot_price = azure_spot_price,
                                               .open = open_azure,
                                               .coordinator = &coordinator};
