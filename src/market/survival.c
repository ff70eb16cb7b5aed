#include "market/survival.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>

const double tm_age_bin_h[TM_AGE_BINS + 1] = {0, 1, 3, 6, 12, 24, INFINITY};

static const double z_95 = 1.959963984540054;

static bool passes(const struct tm_lifetime *life, struct tm_lifetime_filter filter)
{
    return (filter.type < 0 || life->type == filter.type) && (filter.zone < 0 || life->zone == filter.zone) &&
           (filter.idle < 0 || life->idle == (filter.idle == 1));
}

/* ---- Kaplan-Meier ---- */

void tm_survival_init(struct tm_survival *survival)
{
    *survival = (struct tm_survival){0};
}

void tm_survival_deinit(struct tm_survival *survival)
{
    tm_free(survival->steps);
    *survival = (struct tm_survival){0};
}

static int by_age(const void *a, const void *b)
{
    double x = ((const struct tm_lifetime *)a)->age_s;
    double y = ((const struct tm_lifetime *)b)->age_s;
    return (x > y) - (x < y);
}

/* The records that pass, by age. */
static int pick(const struct tm_lifetimes *lifetimes, struct tm_lifetime_filter filter, struct tm_lifetime **out,
                size_t *out_count, struct tm_error *e)
{
    struct tm_lifetime *picked = tm_alloc((lifetimes->count + 1) * sizeof *picked);
    if (picked == NULL) return tm_error_nomem(e);
    size_t count = 0;
    for (size_t i = 0; i < lifetimes->count; i++)
        if (passes(&lifetimes->records[i], filter)) picked[count++] = lifetimes->records[i];
    qsort(picked, count, sizeof *picked, by_age);
    *out = picked;
    *out_count = count;
    return 0;
}

/* Limits on the scale of log(-log S): they stay within 0 and 1. Where all are lost, the most that could have been left
 * with a chance of 2.5%. */
static void set_limits(struct tm_survival_step *step, double greenwood, double instances)
{
    if (!(step->survival > 0)) {
        step->low = 0;
        step->high = 1 - pow(0.025, 1 / fmax(instances, 1));
        return;
    }
    double width = z_95 * sqrt(greenwood) / fabs(log(step->survival));
    step->low = pow(step->survival, exp(width));
    step->high = pow(step->survival, exp(-width));
}

static void climb(const struct tm_lifetime *lives, size_t count, struct tm_survival *out)
{
    double at_risk = out->instances;
    double survival = 1;
    double greenwood = 0;
    for (size_t i = 0; i < count;) {
        double lost = 0;
        double gone = 0;
        double age_s = lives[i].age_s;
        for (; i < count && lives[i].age_s == age_s; i++) {
            gone += lives[i].weight;
            lost += lives[i].end == TM_LIFETIME_LOST ? lives[i].weight : 0;
        }
        if (lost > 0) {
            double left = fmax(0, at_risk - lost);
            survival = left > 1e-9 ? survival * left / at_risk : 0;
            greenwood += lost / (at_risk * left);
            struct tm_survival_step step = {.age_s = age_s, .at_risk = at_risk, .lost = lost, .survival = survival};
            set_limits(&step, greenwood, out->instances);
            out->steps[out->count++] = step;
        }
        at_risk -= gone;
    }
}

int tm_survival_estimate(const struct tm_lifetimes *lifetimes, struct tm_lifetime_filter filter,
                         struct tm_survival *out, struct tm_error *e)
{
    struct tm_lifetime *lives;
    size_t count;
    int rc = pick(lifetimes, filter, &lives, &count, e);
    if (rc != 0) return rc;
    struct tm_survival made = {.steps = tm_alloc((count + 1) * sizeof *made.steps)};
    if (made.steps == NULL) {
        tm_free(lives);
        return tm_error_nomem(e);
    }
    for (size_t i = 0; i < count; i++) {
        made.instances += lives[i].weight;
        double *kind = lives[i].end == TM_LIFETIME_LOST     ? &made.lost
                       : lives[i].end == TM_LIFETIME_CAPPED ? &made.capped
                                                            : &made.released;
        *kind += lives[i].weight;
        made.longest_s = lives[i].age_s;
    }
    climb(lives, count, &made);
    tm_free(lives);
    tm_survival_deinit(out);
    *out = made;
    return 0;
}

double tm_survival_lost_by(const struct tm_survival *survival, double age_s, double *out_low, double *out_high)
{
    const struct tm_survival_step *at = NULL;
    for (size_t i = 0; i < survival->count && survival->steps[i].age_s <= age_s; i++)
        at = &survival->steps[i];
    bool known = age_s <= survival->longest_s || (at != NULL && at->survival <= 0);
    if (!known) {
        if (out_low != NULL) *out_low = NAN;
        if (out_high != NULL) *out_high = NAN;
        return NAN;
    }
    double none_lost = 1 - pow(0.025, 1 / fmax(survival->instances, 1));
    if (out_low != NULL) *out_low = at != NULL ? 1 - at->high : 0;
    if (out_high != NULL) *out_high = at != NULL ? 1 - at->low : none_lost;
    return at != NULL ? 1 - at->survival : 0;
}

double tm_survival_median(const struct tm_survival *survival)
{
    for (size_t i = 0; i < survival->count; i++) {
        const struct tm_survival_step *step = &survival->steps[i];
        if (step->survival > 0.5 + 1e-9) continue;
        bool exactly = step->survival > 0.5 - 1e-9 && i + 1 < survival->count;
        return exactly ? (step->age_s + step[1].age_s) / 2 : step->age_s;
    }
    return INFINITY;
}

/* ---- hazards ---- */

static void add_hours_of_day(struct tm_hazards *out, const struct tm_lifetime *life)
{
    double start_h = (life->end_s - life->age_s) / 3600;
    double end_h = life->end_s / 3600;
    double whole_days = floor((end_h - start_h) / TM_HOURS);
    for (int h = 0; h < TM_HOURS; h++)
        out->hour_hours[h] += life->weight * whole_days;
    end_h -= whole_days * TM_HOURS;
    for (double at = start_h; at < end_h;) {
        double next = fmin(end_h, floor(at) + 1);
        int hour = (int)fmod(fmod(floor(at), TM_HOURS) + TM_HOURS, TM_HOURS);
        out->hour_hours[hour] += life->weight * (next - at);
        at = next;
    }
}

struct tm_hazards tm_hazards__count(const struct tm_lifetimes *lifetimes, struct tm_lifetime_filter filter)
{
    struct tm_hazards out = {0};
    double lost = 0;
    for (size_t i = 0; i < lifetimes->count; i++) {
        const struct tm_lifetime *life = &lifetimes->records[i];
        if (!passes(life, filter)) continue;
        double age_h = life->age_s / 3600;
        bool counts = life->end == TM_LIFETIME_LOST;
        for (int b = 0; b < TM_AGE_BINS && age_h > tm_age_bin_h[b]; b++)
            out.age_hours[b] += life->weight * (fmin(age_h, tm_age_bin_h[b + 1]) - tm_age_bin_h[b]);
        int bin = 0;
        while (bin + 1 < TM_AGE_BINS && age_h >= tm_age_bin_h[bin + 1])
            bin++;
        out.age_lost[bin] += counts ? life->weight : 0;
        lost += counts ? life->weight : 0;
        if (!lifetimes->has_hour || isnan(life->end_s)) continue;
        add_hours_of_day(&out, life);
        int hour = (int)fmod(fmod(floor(life->end_s / 3600), TM_HOURS) + TM_HOURS, TM_HOURS);
        out.hour_lost[hour] += counts ? life->weight : 0;
    }
    out.first_hour_share = lost > 0 ? out.age_lost[0] / lost : NAN;
    return out;
}

void tm_hazards__by_age(const struct tm_hazards *hazards, double out[TM_AGE_BINS])
{
    for (int b = 0; b < TM_AGE_BINS; b++)
        out[b] = hazards->age_hours[b] > 0 ? hazards->age_lost[b] / hazards->age_hours[b] : 0;
}

void tm_hazards__pool(const struct tm_hazards *group, const double parent[TM_AGE_BINS], double prior_losses,
                      double out[TM_AGE_BINS])
{
    for (int b = 0; b < TM_AGE_BINS; b++) {
        double prior_hours = parent[b] > 0 ? prior_losses / parent[b] : 0;
        double hours = group->age_hours[b] + prior_hours;
        out[b] = hours > 0 && parent[b] > 0 ? (group->age_lost[b] + prior_losses) / hours : 0;
    }
}

double tm_hazards__prior(const struct tm_hazards *groups, size_t count, const double parent[TM_AGE_BINS])
{
    double best = 1;
    double best_value = -INFINITY;
    for (int power = -2; power <= 6; power++) {
        double k = ldexp(1, power);
        double value = 0;
        for (size_t g = 0; g < count; g++) {
            for (int b = 0; b < TM_AGE_BINS; b++) {
                double mean = parent[b] * groups[g].age_hours[b];
                double lost = groups[g].age_lost[b];
                if (!(mean > 0)) continue;
                value += lgamma(k + lost) - lgamma(k) - lgamma(lost + 1) + k * log(k / (k + mean)) +
                         lost * log(mean / (k + mean));
            }
        }
        if (value > best_value) {
            best_value = value;
            best = k;
        }
    }
    return best;
}

double tm_hazards_lost_by(const double hazard[TM_AGE_BINS], double age_h)
{
    double sum = 0;
    for (int b = 0; b < TM_AGE_BINS && age_h > tm_age_bin_h[b]; b++)
        sum += hazard[b] * (fmin(age_h, tm_age_bin_h[b + 1]) - tm_age_bin_h[b]);
    return 1 - exp(-sum);
}

/* ---- bursts ---- */

static int by_zone_and_end(const void *a, const void *b)
{
    const struct tm_lifetime *x = a;
    const struct tm_lifetime *y = b;
    if (x->zone != y->zone) return x->zone < y->zone ? -1 : 1;
    return (x->end_s > y->end_s) - (x->end_s < y->end_s);
}

static void end_burst(struct tm_bursts *out, double size)
{
    if (!(size > 0)) return;
    int index = (int)floor(size + 0.5) - 1;
    index = index < 0 ? 0 : index >= TM_BURST_SIZES ? TM_BURST_SIZES - 1 : index;
    out->count[index]++;
    out->bursts++;
    out->losses += size;
    out->largest = fmax(out->largest, size);
    out->share_together += size > 1.5 ? size : 0;
}

int tm_bursts__count(const struct tm_lifetimes *lifetimes, struct tm_lifetime_filter filter, struct tm_bursts *out,
                     struct tm_error *e)
{
    struct tm_lifetime *lives;
    size_t count;
    int rc = pick(lifetimes, filter, &lives, &count, e);
    if (rc != 0) return rc;
    size_t lost = 0;
    for (size_t i = 0; i < count; i++)
        if (lives[i].end == TM_LIFETIME_LOST && !isnan(lives[i].end_s)) lives[lost++] = lives[i];
    qsort(lives, lost, sizeof *lives, by_zone_and_end);
    *out = (struct tm_bursts){0};
    double size = 0;
    size_t first = 0; /* of the burst */
    for (size_t i = 0; i < lost; i++) {
        bool together = lives[i].zone == lives[first].zone && lives[i].end_s - lives[first].end_s < 60;
        if (!together) {
            end_burst(out, size);
            size = 0;
            first = i;
        }
        size += lives[i].weight;
    }
    end_burst(out, size);
    out->share_together = out->losses > 0 ? out->share_together / out->losses : NAN;
    tm_free(lives);
    return 0;
}

/* ---- bands ---- */

double tm_band__hazard_h(int band)
{
    static const double middle[] = {0.025, 0.075, 0.125, 0.175, 0.25};
    if (band < 0 || band >= (int)(sizeof middle / sizeof *middle)) return NAN;
    return -log(1 - middle[band]) / 720;
}
