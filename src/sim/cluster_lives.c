/* How long transient workers live: by GPU, region and hour of the day as the study found, and of GPUs that it did not
 * have by what is known of the risk of spot. */
#include "sim/cluster_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* CM-DARE (ICDCS 2020): shares of VMs revoked within 1, 3 and 24 hours by region; 156 K80, 120 P100, 120 V100. */
static const struct tm_cluster_region regions[] = {
    {TM_CLUSTER_K80, "us-west1", 0.04, 0.15, 0.229},       {TM_CLUSTER_K80, "us-east1", 0.467, 0.467, 0.467},
    {TM_CLUSTER_K80, "us-central1", 0.10, 0.15, 0.563},    {TM_CLUSTER_K80, "europe-west1", 0.40, 0.47, 0.667},
    {TM_CLUSTER_P100, "europe-west1", 0, 0.13, 0.267},     {TM_CLUSTER_P100, "us-central1", 0.27, 0.33, 0.533},
    {TM_CLUSTER_P100, "us-west1", 0.17, 0.30, 0.667},      {TM_CLUSTER_P100, "us-east1", 0.20, 0.63, 0.70},
    {TM_CLUSTER_V100, "europe-west4", 0.07, 0.17, 0.433},  {TM_CLUSTER_V100, "asia-east1", 0.23, 0.37, 0.467},
    {TM_CLUSTER_V100, "us-central1", 0.667, 0.667, 0.667}, {TM_CLUSTER_V100, "us-west1", 0.30, 0.53, 0.733},
};

/* The same VMs: revocations by local hour of the day. */
static const double hour_lost[TM_CLUSTER_GPUS][TM_HOURS] = {
    {2, 0, 7, 2, 0, 4, 0, 3, 0, 0, 12, 5, 2, 2, 0, 8, 7, 2, 2, 2, 3, 3, 4, 2},
    {0, 0, 2, 1, 2, 1, 4, 1, 0, 2, 1, 9, 4, 19, 1, 3, 4, 4, 0, 0, 1, 6, 0, 0},
    {0, 2, 0, 4, 2, 0, 2, 4, 1, 9, 6, 3, 11, 12, 1, 7, 0, 0, 0, 0, 0, 4, 1, 0},
};
/* Hours are taken three together, and the average counts as so many revocations beside them. */
static const double hour_prior = 16;

static const double gce_limit_h = 24;

const struct tm_cluster_gpu_facts *tm_cluster__facts(const struct tm_cluster *cluster, int gpu)
{
    return gpu < TM_CLUSTER_GPUS ? &tm_cluster__gpus[gpu] : &cluster->others[gpu - TM_CLUSTER_GPUS].facts;
}

const char *tm_cluster_gpu_name(const struct tm_cluster *cluster, int gpu)
{
    return gpu < TM_CLUSTER_GPUS ? tm_cluster__gpus[gpu].name : cluster->others[gpu - TM_CLUSTER_GPUS].name;
}

/* Hazards of shares lost by 1, 3 and 24 hours, even in between. */
static void hazards_of(double lost_1h, double lost_3h, double lost_24h, double out[TM_AGE_BINS])
{
    double h1 = -log(1 - lost_1h), h3 = -log(1 - lost_3h), h24 = -log(1 - lost_24h);
    out[0] = h1;
    out[1] = fmax(0, (h3 - h1) / 2);
    for (int b = 2; b < TM_AGE_BINS; b++)
        out[b] = fmax(0, (h24 - h3) / 21);
}

void tm_cluster_life_of(const struct tm_cluster *cluster, size_t worker, struct tm_cluster_life *out)
{
    const struct tm_cluster_worker *who = &cluster->workers[worker];
    const struct tm_cluster_gpu_facts *facts = tm_cluster__facts(cluster, who->gpu);
    *out = (struct tm_cluster_life){.first_hour_layout = facts->first_hour_layout, .gpu = who->gpu};
    memcpy(out->hazard_h, facts->hazard_h, sizeof out->hazard_h);
    for (size_t r = 0; r < sizeof regions / sizeof *regions; r++) {
        size_t length = strlen(regions[r].region); /* zones are their regions: us-central1-c */
        if ((int)regions[r].gpu != who->gpu || strncmp(who->region, regions[r].region, length) != 0) continue;
        if (who->region[length] != '\0' && who->region[length] != '-') continue;
        hazards_of(regions[r].lost_1h, regions[r].lost_3h, regions[r].lost_24h, out->hazard_h);
        out->of_region = true;
    }
}

size_t tm_cluster__regions(struct tm_cluster_region *out, size_t count)
{
    size_t all = sizeof regions / sizeof *regions;
    if (out != NULL) memcpy(out, regions, (count < all ? count : all) * sizeof *out);
    return out == NULL || count > all ? all : count;
}

double tm_cluster__hour_factor(int gpu, int hour)
{
    if (gpu >= TM_CLUSTER_GPUS || hour < 0) return 1;
    const double *lost = hour_lost[gpu];
    double sum = 0;
    for (int h = 0; h < TM_HOURS; h++)
        sum += lost[h];
    double near = lost[(hour + TM_HOURS - 1) % TM_HOURS] + lost[hour % TM_HOURS] + lost[(hour + 1) % TM_HOURS];
    return (near + hour_prior) / (sum / 8 + hour_prior);
}

/* By hours of its life, each with the factor of its hour of the day. */
static double age_by_hours(const struct tm_cluster_life *life, int hour, double cumulated)
{
    for (int age = 0; age < (int)gce_limit_h; age++) {
        int bin = 0;
        while (bin + 1 < TM_AGE_BINS && tm_age_bin_h[bin + 1] <= age)
            bin++;
        double here = life->hazard_h[bin] * tm_cluster__hour_factor(life->gpu, (hour + age) % TM_HOURS);
        if (here > 0 && cumulated <= here)
            return age + pow(cumulated / here, age == 0 ? 1 / life->first_hour_layout : 1);
        cumulated -= here;
    }
    return gce_limit_h;
}

double tm_cluster__age_at(const struct tm_cluster_life *life, int hour, double cumulated)
{
    const double *hazard_h = life->hazard_h;
    if (hour >= 0) return age_by_hours(life, hour, cumulated);
    for (int b = 0; b < TM_AGE_BINS; b++) {
        double here = hazard_h[b] * (tm_age_bin_h[b + 1] - tm_age_bin_h[b]);
        if (b == 0 && here > 0 && cumulated <= here)
            return pow(cumulated / here, 1 / life->first_hour_layout) * tm_age_bin_h[1];
        if (hazard_h[b] > 0 && cumulated <= here) return fmin(gce_limit_h, tm_age_bin_h[b] + cumulated / hazard_h[b]);
        cumulated -= hazard_h[b] > 0 ? here : 0;
        if (tm_age_bin_h[b + 1] >= gce_limit_h) break;
    }
    return gce_limit_h;
}

double tm_cluster_lost_by(const struct tm_cluster_life *life, double age_h)
{
    if (age_h >= tm_age_bin_h[1]) return tm_hazards_lost_by(life->hazard_h, age_h);
    return 1 - exp(-life->hazard_h[0] * tm_age_bin_h[1] * pow(age_h / tm_age_bin_h[1], life->first_hour_layout));
}

/* ---- GPUs that the study did not have ---- */

/* The offer to take the prices of: of GCE where there is one, else the cheapest on-demand of a GPU. */
static const struct tm_offer *offer_of(const struct tm_catalog *catalog, const char *gpu)
{
    const struct tm_offer *best = NULL;
    double best_usd_h = INFINITY;
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        const struct tm_instance_type *type = &catalog->instances[offer->instance];
        if (strcmp(type->gpu, gpu) != 0 || !(type->gpus > 0) || !(offer->on_demand_usd_h > 0) ||
            !(offer->spot_usd_h > 0))
            continue;
        double usd_h = offer->on_demand_usd_h / type->gpus * (strcmp(type->cloud, "gcp") == 0 ? 1e-3 : 1);
        if (usd_h >= best_usd_h) continue;
        best_usd_h = usd_h;
        best = offer;
    }
    return best;
}

static void know_life(const struct tm_risk *risk, const struct tm_instance_type *type, const char *region,
                      struct tm_cluster_gpu_facts *facts)
{
    struct tm_risk_answer answer;
    char of_zone[64] = "";
    if (region[0] != '\0') tm_risk_region(region, of_zone);
    struct tm_risk_query query = {
        .cloud = type->cloud, .gpu = type->gpu, .gpus = 1, .region = of_zone, .band = TM_BAND_UNKNOWN, .hour_utc = -1};
    tm_risk_ask(risk, &query, &answer);
    double before = 0;
    for (int b = 0; b < TM_RISK_AGES; b++) {
        double now = -log(1 - fmin(answer.lost[b].middle, 1 - 1e-9));
        facts->hazard_h[b] = fmax(0, (now - before) / (tm_age_bin_h[b + 1] - tm_age_bin_h[b]));
        before = fmax(before, now);
    }
    facts->hazard_h[TM_AGE_BINS - 1] = facts->hazard_h[TM_AGE_BINS - 2];
}

int tm_cluster_know(struct tm_cluster *cluster, const struct tm_catalog *catalog, const struct tm_risk *risk,
                    struct tm_error *e)
{
    for (size_t i = 0; i < cluster->other_count; i++) {
        struct tm_cluster_other *other = &cluster->others[i];
        const struct tm_gpu *gpu = tm_catalog_gpu(catalog, other->name);
        const struct tm_offer *offer = gpu == NULL ? NULL : offer_of(catalog, gpu->name);
        if (gpu == NULL)
            return tm_error_set(e, TM_EUSAGE, "workers: no GPU \"%s\" is in the catalogue; see tidemill catalog",
                                other->name);
        if (offer == NULL)
            return tm_error_set(e, TM_EUSAGE, "workers: the catalogue has no spot price of a %s", other->name);
        const struct tm_instance_type *type = &catalog->instances[offer->instance];
        snprintf(other->name, sizeof other->name, "%s", gpu->name);
        snprintf(other->instance, sizeof other->instance, "%s %s", tm_cloud_label(type->cloud), type->name);
        other->facts = (struct tm_cluster_gpu_facts){.transient_usd_h = offer->spot_usd_h / type->gpus,
                                                     .on_demand_usd_h = offer->on_demand_usd_h / type->gpus,
                                                     .startup_s = 70,
                                                     .first_hour_layout = 1};
        know_life(risk, type, other->region, &other->facts);
    }
    return 0;
}
