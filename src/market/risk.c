#include "market/risk.h"

#include "base/alloc.h"
#include "market/catalog.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const double age_h[TM_RISK_AGES] = {1, 3, 6, 12, 24};
enum { QUANTITIES = TM_RISK_AGES + 1, RATE = TM_RISK_AGES };

/* Standard deviations of the effects, of the logarithm of a hazard. Fitted to the recorded pools by their likelihood,
 * then rounded. Those of campaigns are what makes 80% intervals hold 80% of pools whose campaign is left out whole: AWS
 * in 2020 was much as AWS in 2023, while GCE lost a few percent an hour in 2019 and most in 2020. Of any other cloud
 * nothing is known, which is no better. */
static const struct {
    double mean_sd, cloud, gpu, type, region, zone, pool, campaign_aws, campaign;
} effect = {.mean_sd = 3,
            .cloud = 0.7,
            .gpu = 0.3,
            .type = 0.5,
            .region = 0.3,
            .zone = 0.3,
            .pool = 0.3,
            .campaign_aws = 0.3,
            .campaign = 1.6};
static const double mean_at_first = -1;
static const double measured_variance = 0.02; /* of a record, however long: lives are rounded to its polls */

/* A band's share over that of the top band moves the logarithm of the rate as it is, give or take this part of it: AWS
 * counts shares of instances of all ages, and says neither how long they ran nor how it counts. No band, where the
 * cloud publishes them: as bad as the top one, and less sure. */
static const double band_doubt = 0.35;
static const double no_band_sd = 0.5;
/* The mean of a log-normal rate grows without bound with its spread; nothing is gained by more than this. */
static const double spread_counted_max = 1;
static const double z_90 = 1.2815515655446004;

void tm_risk_init(struct tm_risk *risk)
{
    *risk = (struct tm_risk){0};
    tm_names_init(&risk->strings, 8 * TM_RISK_POOLS_MAX);
}

void tm_risk_deinit(struct tm_risk *risk)
{
    tm_names_deinit(&risk->strings);
    tm_free(risk->pools);
    tm_free(risk->factors);
    tm_free(risk->weights);
    *risk = (struct tm_risk){0};
}

void tm_risk_region(const char *zone, char out[64])
{
    size_t length = strlen(zone);
    if (length > 63) length = 63;
    bool lettered = length > 2 && isalpha((unsigned char)zone[length - 1]);
    if (lettered && isdigit((unsigned char)zone[length - 2]))
        length -= 1; /* us-east-1a */
    else if (lettered && zone[length - 2] == '-')
        length -= 2; /* us-central1-c */
    (void)snprintf(out, 64, "%.*s", (int)length, zone);
}

/* ---- the list ---- */

static int own_string(struct tm_risk *risk, const char **text, struct tm_error *e)
{
    const char *from = *text != NULL ? *text : "";
    long number = tm_names_add(&risk->strings, from, strlen(from));
    if (number == -(long)TM_ENOMEM) return tm_error_nomem(e);
    if (number < 0) return tm_error_set(e, TM_ELIMIT, "more names than %d pools can have", TM_RISK_POOLS_MAX);
    *text = risk->strings.names[number];
    return 0;
}

static bool is_same_pool(const struct tm_risk_pool *a, const struct tm_risk_pool *b)
{
    return strcasecmp(a->cloud, b->cloud) == 0 && strcasecmp(a->instance, b->instance) == 0 &&
           strcasecmp(a->gpu, b->gpu) == 0 && strcmp(a->region, b->region) == 0 && strcmp(a->zone, b->zone) == 0;
}

static void add_counts(struct tm_risk_pool *to, const struct tm_risk_pool *from)
{
    to->instances += from->instances;
    for (int b = 0; b < TM_AGE_BINS; b++) {
        to->age_lost[b] += from->age_lost[b];
        to->age_hours[b] += from->age_hours[b];
    }
    for (int h = 0; h < TM_HOURS; h++) {
        to->hour_lost[h] += from->hour_lost[h];
        to->hour_hours[h] += from->hour_hours[h];
    }
}

int tm_risk__add(struct tm_risk *risk, const struct tm_risk_pool *pool, struct tm_error *e)
{
    struct tm_risk_pool own = *pool;
    const char **const strings[] = {&own.cloud, &own.instance, &own.gpu, &own.region, &own.zone, &own.campaign};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        int rc = own_string(risk, strings[i], e);
        if (rc != 0) return rc;
    }
    for (size_t i = 0; strcmp(own.campaign, TM_RISK_OWN) == 0 && i < risk->count; i++) {
        struct tm_risk_pool *old = &risk->pools[i];
        if (strcmp(old->campaign, TM_RISK_OWN) != 0 || !is_same_pool(old, &own)) continue;
        add_counts(old, &own);
        return 0;
    }
    void *pools = risk->pools;
    int rc = tm_grow(&pools, &risk->capacity, risk->count + 1, sizeof *risk->pools, TM_RISK_POOLS_MAX);
    risk->pools = pools;
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (rc != 0) return tm_error_set(e, TM_ELIMIT, "more than %d recorded pools", TM_RISK_POOLS_MAX);
    risk->pools[risk->count++] = own;
    return 0;
}

static bool is_same_record(const struct tm_risk_pool *a, const struct tm_risk_pool *b)
{
    double lost_a = 0;
    double lost_b = 0;
    for (int i = 0; i < TM_AGE_BINS; i++) {
        lost_a += a->age_lost[i];
        lost_b += b->age_lost[i];
    }
    return strcasecmp(a->cloud, b->cloud) == 0 && strcasecmp(a->gpu, b->gpu) == 0 && strcmp(a->zone, b->zone) == 0 &&
           fabs(a->instances - b->instances) < 1e-3 * (1 + b->instances) && fabs(lost_a - lost_b) < 1e-3 * (1 + lost_b);
}

int tm_risk_without(const struct tm_risk *risk, const struct tm_risk_pool *record, bool campaign, struct tm_risk *out,
                    struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < risk->count; i++) {
        const struct tm_risk_pool *pool = &risk->pools[i];
        if (is_same_record(pool, record) || (campaign && strcmp(pool->campaign, record->campaign) == 0)) continue;
        rc = tm_risk__add(out, pool, e);
    }
    return rc == 0 ? tm_risk__prepare(out, e) : rc;
}

/* ---- what a record says ---- */

struct seen {
    double value; /* a logarithm */
    double variance;
};

static struct seen seen_rate(const struct tm_risk_pool *pool)
{
    double lost = 0;
    double hours = 0;
    for (int b = 0; b < TM_AGE_BINS; b++) {
        lost += pool->age_lost[b];
        hours += pool->age_hours[b];
    }
    return (struct seen){log(fmax(lost, 0.5) / fmax(hours, 1e-3)), 1 / (lost + 0.5) + measured_variance};
}

/* The hazard up to an age. Where nobody lived as long, as in the last hours that somebody lived. */
static struct seen seen_hazard(const struct tm_risk_pool *pool, int bins)
{
    double sum = 0;
    double variance = 0;
    double lost = 0;
    double hours = 0;
    double last_lost = 0;
    double last_hours = 1;
    double hazard = 0;
    for (int b = 0; b < bins; b++) {
        double width_h = tm_age_bin_h[b + 1] - tm_age_bin_h[b];
        if (pool->age_hours[b] >= 0.3) {
            last_lost = pool->age_lost[b];
            last_hours = pool->age_hours[b];
        }
        hazard = last_lost / last_hours;
        sum += hazard * width_h;
        variance += last_lost / (last_hours * last_hours) * width_h * width_h;
        lost += pool->age_lost[b];
        hours += pool->age_hours[b];
    }
    if (lost < 0.5 || !(sum > 0)) {
        double width_h = tm_age_bin_h[bins];
        return (struct seen){log(0.5 / fmax(hours, 1e-3) * width_h), 2 + measured_variance};
    }
    return (struct seen){log(sum), fmax(variance / (sum * sum), 1 / (lost + 0.5)) + measured_variance};
}

static struct seen seen_of(const struct tm_risk_pool *pool, int quantity)
{
    return quantity == RATE ? seen_rate(pool) : seen_hazard(pool, quantity + 1);
}

/* ---- likeness ---- */

static bool same_known(const char *a, const char *b)
{
    return a[0] != '\0' && strcasecmp(a, b) == 0;
}

static bool is_same_type(const struct tm_risk_pool *a, const struct tm_risk_pool *b)
{
    if (a->gpu[0] == '\0' && b->gpu[0] == '\0') return same_known(a->instance, b->instance);
    return same_known(a->gpu, b->gpu) && a->gpus == b->gpus;
}

static double campaign_variance(const struct tm_risk_pool *pool)
{
    double deviation = strcasecmp(pool->cloud, "aws") == 0 ? effect.campaign_aws : effect.campaign;
    return deviation * deviation;
}

static double covariance(const struct tm_risk_pool *a, const struct tm_risk_pool *b)
{
    double sum = effect.mean_sd * effect.mean_sd;
    if (!same_known(a->cloud, b->cloud)) return sum;
    bool together = same_known(a->campaign, b->campaign);
    if (together) sum += campaign_variance(a);
    if (together && is_same_pool(a, b)) sum += effect.pool * effect.pool;
    sum += effect.cloud * effect.cloud;
    if (strcasecmp(a->gpu, b->gpu) == 0) sum += effect.gpu * effect.gpu;
    if (is_same_type(a, b)) sum += effect.type * effect.type;
    if (same_known(a->region, b->region)) sum += effect.region * effect.region;
    if (same_known(a->zone, b->zone)) sum += effect.zone * effect.zone;
    return sum;
}

/* Of what is asked for, with itself: effects that nothing shares are still there. */
static double own_variance(const struct tm_risk_pool *pool)
{
    return effect.mean_sd * effect.mean_sd + effect.cloud * effect.cloud + effect.gpu * effect.gpu +
           effect.type * effect.type + effect.region * effect.region + effect.zone * effect.zone +
           campaign_variance(pool) + effect.pool * effect.pool;
}

/* ---- Cholesky: the lower half of `a`, in place ---- */

static void factorize(double *a, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j; i < n; i++) {
            double sum = a[i * n + j];
            for (size_t k = 0; k < j; k++)
                sum -= a[i * n + k] * a[j * n + k];
            a[i * n + j] = i == j ? sqrt(fmax(sum, 1e-12)) : sum / a[j * n + j];
        }
    }
}

/* x = L^-1 x */
static void solve_lower(const double *l, size_t n, double *x)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            x[i] -= l[i * n + k] * x[k];
        x[i] /= l[i * n + i];
    }
}

/* x = L^-T x */
static void solve_upper(const double *l, size_t n, double *x)
{
    for (size_t i = n; i-- > 0;) {
        for (size_t k = i + 1; k < n; k++)
            x[i] -= l[k * n + i] * x[k];
        x[i] /= l[i * n + i];
    }
}

int tm_risk__prepare(struct tm_risk *risk, struct tm_error *e)
{
    size_t n = risk->count;
    tm_free(risk->factors);
    tm_free(risk->weights);
    risk->factors = tm_alloc((QUANTITIES * n * n + 1) * sizeof *risk->factors);
    risk->weights = tm_alloc((QUANTITIES * n + 1) * sizeof *risk->weights);
    if (risk->factors == NULL || risk->weights == NULL) return tm_error_nomem(e);
    for (int q = 0; q < QUANTITIES; q++) {
        double *l = risk->factors + (size_t)q * n * n;
        double *weights = risk->weights + (size_t)q * n;
        for (size_t i = 0; i < n; i++) {
            struct seen seen = seen_of(&risk->pools[i], q);
            for (size_t k = 0; k <= i; k++)
                l[i * n + k] = covariance(&risk->pools[i], &risk->pools[k]);
            l[i * n + i] = own_variance(&risk->pools[i]) + seen.variance;
            weights[i] = seen.value - mean_at_first;
        }
        factorize(l, n);
        solve_lower(l, n, weights);
        solve_upper(l, n, weights);
    }
    return 0;
}

/* ---- asking ---- */

static struct tm_risk_pool pool_of(const struct tm_risk_query *query)
{
    return (struct tm_risk_pool){.cloud = query->cloud != NULL ? query->cloud : "",
                                 .instance = query->instance != NULL ? query->instance : "",
                                 .gpu = query->gpu != NULL ? query->gpu : "",
                                 .gpus = query->gpus,
                                 .region = query->region != NULL ? query->region : "",
                                 .zone = query->zone != NULL ? query->zone : "",
                                 .campaign = query->campaign != NULL ? query->campaign : TM_RISK_OWN};
}

/* The normal distribution of one quantity, given the recorded pools. */
static struct seen estimate(const struct tm_risk *risk, const struct tm_risk_pool *asked, int quantity)
{
    size_t n = risk->count;
    const double *l = risk->factors + (size_t)quantity * n * n;
    const double *weights = risk->weights + (size_t)quantity * n;
    double like[TM_RISK_POOLS_MAX];
    struct seen out = {mean_at_first, own_variance(asked)};
    for (size_t i = 0; i < n; i++) {
        like[i] = covariance(asked, &risk->pools[i]);
        out.value += like[i] * weights[i];
    }
    solve_lower(l, n, like);
    for (size_t i = 0; i < n; i++)
        out.variance -= like[i] * like[i];
    out.variance = fmax(out.variance, 1e-6);
    return out;
}

static void heed_band(const struct tm_risk_query *query, struct seen *estimate)
{
    double hazard_h = tm_band__hazard_h(query->band);
    if (!isnan(hazard_h)) {
        double part = log(hazard_h / tm_band__hazard_h(4));
        estimate->value += part;
        estimate->variance += band_doubt * part * band_doubt * part;
    } else if (query->cloud != NULL && strcasecmp(query->cloud, "aws") == 0) {
        estimate->variance += no_band_sd * no_band_sd;
    }
}

/* How far the hours that follow the start differ from the average, up to an age. */
static double hours_factor(const struct tm_risk *risk, const struct tm_risk_query *query, double hours)
{
    double sum = 0;
    if (query->hour_utc < 0) return 1;
    for (int h = 0; h < (int)hours; h++)
        sum += tm_risk__hour_factor(risk, query->cloud != NULL ? query->cloud : "",
                                    query->region != NULL ? query->region : "", (query->hour_utc + h) % TM_HOURS);
    return sum / hours;
}

static double share_of(double log_hazard)
{
    return 1 - exp(-exp(log_hazard));
}

void tm_risk_ask(const struct tm_risk *risk, const struct tm_risk_query *query, struct tm_risk_answer *out)
{
    struct tm_risk_pool asked = pool_of(query);
    *out = (struct tm_risk_answer){0};
    double low = 0;
    double high = 0;
    for (int a = 0; a < TM_RISK_AGES; a++) {
        struct seen hazard = estimate(risk, &asked, a);
        heed_band(query, &hazard);
        hazard.value += log(hours_factor(risk, query, age_h[a]));
        double deviation = sqrt(hazard.variance);
        out->cumulated[a] = a > 0 ? fmax(hazard.value, out->cumulated[a - 1]) : hazard.value;
        out->deviation[a] = deviation;
        low = fmax(low, share_of(out->cumulated[a] - z_90 * deviation));
        high = fmax(high, share_of(out->cumulated[a] + z_90 * deviation));
        out->lost[a] = (struct tm_risk_share){share_of(out->cumulated[a]), low, high};
    }
    struct seen rate = estimate(risk, &asked, RATE);
    heed_band(query, &rate);
    out->spread = sqrt(rate.variance);
    out->life_h = (struct tm_risk_share){exp(-rate.value), exp(-rate.value - z_90 * out->spread),
                                         exp(-rate.value + z_90 * out->spread)};
    double counted = fmin(out->spread, spread_counted_max);
    out->loss_per_s = exp(rate.value + counted * counted / 2) / 3600;
    for (size_t i = 0; i < risk->count; i++) {
        const struct tm_risk_pool *pool = &risk->pools[i];
        bool same = asked.gpu[0] != '\0' ? same_known(asked.gpu, pool->gpu) : is_same_type(&asked, pool);
        out->same_type += same && same_known(asked.cloud, pool->cloud);
    }
}

/* ---- what a record of n instances would show ---- */

enum { POINTS = 40 };

/* Quantile of the standard normal distribution, by bisection: it is asked for a few points only. */
static double normal_quantile(double p)
{
    double low = -8;
    double high = 8;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (0.5 * erfc(-middle / sqrt(2)) < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

struct tm_risk_share tm_risk_recorded(const struct tm_risk_answer *answer, size_t age, double instances)
{
    struct tm_risk_share out = {answer->lost[age].middle, NAN, 1};
    double share[POINTS];
    double log_chance[POINTS];
    int n = (int)fmin(fmax(1, round(instances)), 100000);
    for (int j = 0; j < POINTS; j++) {
        double z = normal_quantile((j + 0.5) / POINTS);
        share[j] = fmin(fmax(share_of(answer->cumulated[age] + z * answer->deviation[age]), 1e-12), 1 - 1e-12);
        log_chance[j] = n * log(1 - share[j]);
    }
    double below = 0;
    for (int k = 0; k <= n; k++) {
        for (int j = 0; j < POINTS; j++) {
            below += exp(log_chance[j]) / POINTS;
            log_chance[j] += log((double)(n - k) / (k + 1)) + log(share[j] / (1 - share[j]));
        }
        if (isnan(out.low) && below >= 0.1) out.low = (double)k / n;
        if (below >= 0.9) {
            out.high = (double)k / n;
            break;
        }
    }
    if (isnan(out.low)) out.low = out.high;
    return out;
}

/* ---- hours of the day ---- */

/* Hours that local time is ahead of UTC, without daylight saving: for parts of the day that is near enough. */
static int utc_offset_h(const char *region)
{
    static const struct {
        const char *prefix;
        int hours;
    } zones[] = {
        {"us-east", -5},      {"us-west", -8},       {"us-central", -6},   {"us-south", -6},  {"ca-", -5},
        {"northamerica", -5}, {"sa-", -3},           {"southamerica", -3}, {"eu-west-2", 0},  {"eu-", 1},
        {"europe-west2", 0},  {"europe-", 1},        {"me-", 3},           {"ap-south-", 5},  {"asia-south1", 5},
        {"ap-northeast", 9},  {"asia-northeast", 9}, {"ap-", 8},           {"asia-", 8},      {"australia", 10},
        {"eastus", -5},       {"westus", -8},        {"centralus", -6},    {"westeurope", 1}, {"northeurope", 0}};
    for (size_t i = 0; i < sizeof zones / sizeof *zones; i++)
        if (strncasecmp(region, zones[i].prefix, strlen(zones[i].prefix)) == 0) return zones[i].hours;
    return 0;
}

double tm_risk__hour_factor(const struct tm_risk *risk, const char *cloud, const char *region, int hour_utc)
{
    static const double prior_losses = 16; /* a quarter of a day's hours have some 60 in the recorded pools */
    double lost = prior_losses;
    double expected = prior_losses;
    int local = (hour_utc + utc_offset_h(region) + 2 * TM_HOURS) % TM_HOURS;
    for (size_t i = 0; i < risk->count; i++) {
        const struct tm_risk_pool *pool = &risk->pools[i];
        double all_lost = 0;
        double all_hours = 0;
        if (!same_known(pool->cloud, cloud)) continue;
        for (int h = 0; h < TM_HOURS; h++) {
            all_lost += pool->hour_lost[h];
            all_hours += pool->hour_hours[h];
        }
        if (!(all_hours > 0)) continue;
        int at = (local - utc_offset_h(pool->region) + 2 * TM_HOURS) % TM_HOURS;
        for (int d = -1; d <= 1; d++) { /* and the hours around it: one alone is noise */
            int h = (at + d + TM_HOURS) % TM_HOURS;
            lost += pool->hour_lost[h];
            expected += pool->hour_hours[h] * all_lost / all_hours;
        }
    }
    return lost / expected;
}
