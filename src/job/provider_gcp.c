/* Google Cloud as a provider: VMs of Compute Engine that join by tickets (cloud/gcp_cloud.h). */
#include "base/alloc.h"
#include "cloud/gcp_cloud.h"
#include "cloud/gcp_market.h"
#include "job/provider_vms.h"
#include "market/catalog.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The region of "us-central1-a", or of a region. */
static void region_of(const char *place, char out[64])
{
    size_t length = strlen(place);
    if (length > 2 && place[length - 2] == '-') length -= 2;
    (void)snprintf(out, 64, "%.*s", (int)(length < 63 ? length : 63), place);
}

static const struct tm_provider__vm_kind kind = {
    .cloud = "gcp", .scheme = "gs", .type = "g2-standard-4", .region_of = region_of, .origin = tm_gcp_cloud_origin};

static int settle_gcp(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    return tm_provider_vms__settle(&kind, env, settings, place, e);
}

static int check_gcp(const struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    return tm_provider_vms__check(&kind, settings, place, e);
}

/* Where VMs of this zone ("": of no pool) are rented. "": nobody says. */
static int find_region(struct tm_env *env, const struct tm_run_settings *settings, const char *zone, char out[64],
                       struct tm_error *e)
{
    int rc = tm_provider_vms__region(&kind, &settings->job.fleet, settings->job.file, out, e);
    const char *set = env->variable(env, "CLOUDSDK_COMPUTE_REGION");
    if (set == NULL) set = env->variable(env, "CLOUDSDK_COMPUTE_ZONE"); /* as the cloud itself looks for it */
    if (out[0] == '\0' && set != NULL) region_of(set, out);
    if (zone[0] != '\0') region_of(zone, out);
    return rc;
}

/* The catalogue's, where it is rented: a region may cost a third more than the cheapest. */
static int gcp_spot_price(struct tm_env *env, const struct tm_run_settings *settings, const char *type,
                          const char *zone, double *out_usd_h, struct tm_error *e)
{
    struct tm_catalog catalog;
    char region[64];
    double best = NAN;
    int rc = find_region(env, settings, zone, region, e);
    if (rc != 0 || region[0] == '\0') return rc;
    tm_catalog_init(&catalog);
    rc = tm_catalog_load(env, &catalog, e);
    for (size_t i = 0; rc == 0 && i < catalog.offer_count; i++) {
        const struct tm_offer *offer = &catalog.offers[i];
        const struct tm_instance_type *sold = &catalog.instances[offer->instance];
        bool here = strcmp(sold->cloud, kind.cloud) == 0 && strcmp(offer->region, region) == 0;
        if (here && strcasecmp(sold->name, type) == 0) best = fmin(best, offer->spot_usd_h);
    }
    tm_catalog_deinit(&catalog);
    if (rc == 0) *out_usd_h = best;
    return rc;
}

/* ---- prices of now: the list is long, and is asked for once ---- */

struct asking {
    struct tm_market_want wants[TM_FLEET_POOLS_MAX];
    char regions[TM_FLEET_POOLS_MAX][64];
    int64_t *prices[TM_FLEET_POOLS_MAX]; /* in millionths; of the job */
    size_t count;
};

static int add_want(struct tm_env *env, const struct tm_run_settings *settings, const char *type, const char *zone,
                    int64_t *price, struct asking *a, struct tm_error *e)
{
    char *region = a->regions[a->count];
    if (*price >= 0 || type == NULL || type[0] == '\0' || a->count == TM_FLEET_POOLS_MAX) return 0;
    int rc = find_region(env, settings, zone != NULL ? zone : "", region, e);
    if (rc != 0 || region[0] == '\0') return rc;
    a->wants[a->count] = (struct tm_market_want){.type = type, .region = region, .zone = ""};
    a->prices[a->count++] = price;
    return 0;
}

static int ask_all(struct tm_env *env, const struct asking *a, struct tm_error *e)
{
    double usd_h[TM_FLEET_POOLS_MAX];
    int rc = tm_gcp_market_prices(env, a->wants, a->count, usd_h, e);
    for (size_t i = 0; rc == 0 && i < a->count; i++)
        if (!isnan(usd_h[i])) *a->prices[i] = llround(usd_h[i] * 1e6);
    return rc;
}

static int gcp_spot_prices(struct tm_env *env, struct tm_run_settings *settings, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->job.fleet;
    struct asking *a = tm_calloc(1, sizeof *a);
    int rc = a == NULL ? tm_error_nomem(e) : 0;
    for (size_t i = 0; rc == 0 && i < fleet->pools.count; i++) {
        struct tm_job_pool *pool = &((struct tm_job_pool *)fleet->pools.items)[i];
        if (pool->market == TM_POOL_SPOT && pool->trace == NULL)
            rc = add_want(env, settings, pool->instance, pool->zone, &pool->usd_h_millionths, a, e);
    }
    if (rc == 0 && fleet->pools.count == 0)
        rc = add_want(env, settings, fleet->instance, "", &fleet->spot_usd_h_millionths, a, e);
    if (rc == 0 && a->count > 0) rc = ask_all(env, a, e);
    tm_free(a);
    return rc;
}

static int open_gcp(struct tm_env *env, const struct tm_provider_request *request, struct tm_cloud **out,
                    struct tm_error *e)
{
    const struct tm_job_gcp *said = &request->settings->job.fleet.gcp;
    const struct tm_provider__vm_times times = {said->silence_ms, said->life_ms, said->start_ms};
    struct tm_provider__vms *vms = NULL;
    int rc = tm_provider_vms__fill(&kind, env, request, &times, &vms, e);
    if (rc != 0) return rc;
    struct tm_gcp_options options = {.common = vms->options,
                                     .region = vms->region[0] != '\0' ? vms->region : NULL,
                                     .image = said->image,
                                     .network = said->network,
                                     .subnetwork = said->subnetwork,
                                     .service_account = said->service_account,
                                     .disk_gb = (said->disk + 999999999) / 1000000000};
    return tm_gcp_cloud_create(env, &options, out, e);
}

static const struct tm_job_coordinator_vm *said_coordinator(const struct tm_job_fleet *fleet)
{
    return &fleet->gcp.coordinator;
}

static int rent_coordinator(struct tm_env *env, const struct tm_run_settings *settings, struct tm_away_vm *o,
                            char out_id[TM_VM_ID_MAX], struct tm_error *e)
{
    const struct tm_job_gcp *said = &settings->job.fleet.gcp;
    char region[64];
    int rc = tm_provider_vms__region(&kind, &settings->job.fleet, settings->job.file, region, e);
    if (rc != 0) return rc;
    const struct tm_gcp_options options = {.region = region[0] != '\0' ? region : NULL,
                                           .image = said->image,
                                           .network = said->network,
                                           .subnetwork = said->subnetwork,
                                           .service_account = said->coordinator.account};
    o->life_ms = said->life_ms;
    return tm_gcp_coordinator_rent(env, &options, o, out_id, e);
}

static const struct tm_provider_coordinator coordinator = {
    .scheme = "gs",
    .type = "e2-small",
    .usd_h = 0.0168, /* in us-central1: half a core and 2 GB of E2's, by its list of 2025 */
    .key = "coordinator_account",
    .about = "a service account that",
    .rights = "it needs Storage Object User on the bucket and Service Account Token Creator on itself, you "
              "Service Account User on it",
    .said = said_coordinator,
    .rent = rent_coordinator,
    .find = tm_gcp_coordinator_find};

const struct tm_provider tm_provider__gcp = {.name = "gcp",
                                             .typed = true,
                                             .about = "instances are VMs of Google Cloud, rented on demand and spot",
                                             .instances_max = TM_GCP_INSTANCES_MAX,
                                             .joins = true,
                                             .settle = settle_gcp,
                                             .check = check_gcp,
                                             .spot_price = gcp_spot_price,
                                             .spot_prices = gcp_spot_prices,
                                             .open = open_gcp,
                                             .coordinator = &coordinator};
