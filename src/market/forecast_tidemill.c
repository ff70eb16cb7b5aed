/* Our forecast: a distribution over counts for each step of look-ahead, learned from the trace as it goes.
 *
 * The errors that "it stays as it is" made are kept by step and by context: how full the pool is, what happened last
 * and how long ago, the hour of the day. Experts turn them into distributions: the errors of all contexts, of one, of
 * two together (each shrunk towards the wider one, so that small cells borrow), the same with old errors fading, a
 * simple law of rates and sizes of changes for the time when little has been seen, and "probably nothing happens".
 * Counts are held within 0 and the capacity. Each expert is scored by the CRPS of what it said; the forecast is their
 * mixture, weighted by the scores. Two corrections follow: where the 80% interval has held too little of what came,
 * while things move, the mixture is widened; and the median leaves the last count only where doing so has paid.
 *
 * All forecasts are made as counts are observed, so that what is learned does not depend on who asks when.
 * doc/forecast-and-lifetimes.md has the formulas and what was measured. */
#include "base/alloc.h"
#include "market/forecast_internal.h"

#include <math.h>
#include <string.h>

enum { LEVELS = 5, ACTIVITIES = 9, HOURS = 6 };
enum { FAMILY_ALL, FAMILY_LEVEL, FAMILY_ACTIVITY, FAMILY_BOTH, FAMILY_HOUR, FAMILIES };
enum { FAMILIES_FADING = FAMILY_HOUR }; /* the first four are kept a second time, fading */
enum {
    CONTEXT_LEVEL = 1,
    CONTEXT_ACTIVITY = CONTEXT_LEVEL + LEVELS,
    CONTEXT_BOTH = CONTEXT_ACTIVITY + ACTIVITIES,
    CONTEXT_HOUR = CONTEXT_BOTH + LEVELS * ACTIVITIES,
    CONTEXTS = CONTEXT_HOUR + HOURS * LEVELS,
    CONTEXTS_FADING = CONTEXT_HOUR,
};
enum expert {
    EXPERT_ALL,
    EXPERT_LEVEL,
    EXPERT_ACTIVITY,
    EXPERT_BOTH,
    EXPERT_FADING, /* four of them, as above */
    EXPERT_RATES = EXPERT_FADING + FAMILIES_FADING,
    EXPERT_HALF_ALL, /* half of it "nothing happens" */
    EXPERT_HALF_BOTH,
    EXPERT_HALF_RATES,
    EXPERT_HOUR,
    EXPERTS,
    MIXTURE = EXPERTS, /* kept beside the experts, to be scored like them */
    KEPT
};
enum { SCORED_MAX = 8, FEW_ERRORS = 24 };

/* Chosen on public traces; the mixture makes most of them uncritical. */
static const double learning_rate = 3;   /* of the experts' weights, per mean score */
static const double head_start = 1;      /* of the widest expert, in log weight */
static const double shrinkage = 8;       /* independent errors at which a context counts half */
static const double fading = 1.004;      /* each error weighs that much more than the one before: half in 174 */
static const double rate_fading = 0.97;  /* of the rates of changes */
static const double prior_changes = 0.3; /* of each sign, in ... */
static const double prior_steps = 25;    /* ... that many intervals */
static const double prior_size = 0.25;   /* of a change, times usual_spread; weighs as two changes */
static const double wide_size = 0.15;    /* of what the mixture is widened by, the same */
static const double prior_weight = 5;    /* of the law of rates, in independent errors */
static const double coverage_wanted = 0.8;

struct tm_tide {
    int steps;
    int capacity;  /* known one; 0: not */
    int count_max; /* room for counts */
    int top;       /* the highest count seen or known of */
    int error_low; /* all errors so far lie between these */
    int error_high;
    int low; /* counts outside low..high have no probability worth a name in the newest forecast */
    int high;
    double steps_per_hour_bin;
    int64_t observed;
    int last;
    int since_change; /* intervals */
    int change_sign;
    double recent_changes; /* fading count */
    double changes[2];     /* fading count of losses, arrivals; their sizes; and the intervals */
    double change_sizes[2];
    double rate_steps;
    double fade_weight;
    bool changed;

    int scored[SCORED_MAX]; /* steps whose forecasts are kept and scored, 1-based, ascending */
    int scored_count;
    int *nearest; /* [steps]: index into scored */

    int *counts;                 /* ring [steps] */
    short (*contexts)[FAMILIES]; /* ring [steps] */
    float *seen;                 /* [steps][CONTEXTS][2 count_max + 1] */
    float *seen_fading;          /* [steps][CONTEXTS_FADING][2 count_max + 1] */
    double *totals;              /* [steps][CONTEXTS] */
    double *totals_fading;

    float *kept; /* [slots][KEPT][count_max + 1]: cumulated; the slots of scored[i] start at slot_at[i] */
    struct {
        int low, high; /* what was kept of the distributions */
        int median;    /* of the mixture before the guard */
    } * slots;
    int slot_at[SCORED_MAX + 1];
    double loss[SCORED_MAX][EXPERTS]; /* summed CRPS above that of EXPERT_ALL */
    double loss_all[SCORED_MAX];
    double scored_times[SCORED_MAX];
    double covered[SCORED_MAX]; /* fading sum, and its weight */
    double covered_weight[SCORED_MAX];
    double last_error[SCORED_MAX];  /* summed absolute errors of the last count ... */
    double median_gain[SCORED_MAX]; /* ... and what the mixture's median would have saved */

    double *scratch; /* [KEPT + 2][count_max + 1] */
    double *pmf;     /* [steps][count_max + 1]: the forecast */
};

/* ---- room ---- */

static size_t width_of(int count_max)
{
    return 2 * (size_t)count_max + 1;
}

/* Copies rows of a histogram of errors to wider ones, zero staying in the middle. */
static void copy_errors(const float *from, int from_max, float *to, int to_max, size_t rows)
{
    size_t shift = (size_t)(to_max - from_max);
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * width_of(to_max) + shift, from + r * width_of(from_max), width_of(from_max) * sizeof *to);
}

static void copy_kept(const float *from, int from_max, float *to, int to_max, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * (size_t)(to_max + 1), from + r * (size_t)(from_max + 1), (size_t)(from_max + 1) * sizeof *to);
}

struct room {
    float *seen, *seen_fading, *kept;
    double *scratch, *pmf;
};

static void room_free(struct room *room)
{
    tm_free(room->seen);
    tm_free(room->seen_fading);
    tm_free(room->kept);
    tm_free(room->scratch);
    tm_free(room->pmf);
}

/* Makes room for counts up to `count` and some more. */
static int widen(struct tm_tide *tide, int count, struct tm_error *e)
{
    if (count <= tide->count_max && tide->seen != NULL) return 0;
    int wide = count + count / 4 + 16;
    if (wide > TM_FORECAST_COUNT_MAX) wide = TM_FORECAST_COUNT_MAX;
    size_t steps = (size_t)tide->steps;
    size_t slots = (size_t)tide->slot_at[tide->scored_count];
    size_t counts = (size_t)wide + 1;
    struct room room = {
        .seen = tm_calloc(steps * CONTEXTS * width_of(wide), sizeof *room.seen),
        .seen_fading = tm_calloc(steps * CONTEXTS_FADING * width_of(wide), sizeof *room.seen_fading),
        .kept = tm_calloc(slots * KEPT * counts, sizeof *room.kept),
        .scratch = tm_calloc((KEPT + 2) * counts, sizeof *room.scratch),
        .pmf = tm_calloc(steps * counts, sizeof *room.pmf),
    };
    if (room.seen == NULL || room.seen_fading == NULL || room.kept == NULL || room.scratch == NULL ||
        room.pmf == NULL) {
        room_free(&room);
        return tm_error_nomem(e);
    }
    if (tide->seen != NULL) {
        copy_errors(tide->seen, tide->count_max, room.seen, wide, steps * CONTEXTS);
        copy_errors(tide->seen_fading, tide->count_max, room.seen_fading, wide, steps * CONTEXTS_FADING);
        copy_kept(tide->kept, tide->count_max, room.kept, wide, slots * KEPT);
    }
    struct room old = {tide->seen, tide->seen_fading, tide->kept, tide->scratch, tide->pmf};
    room_free(&old);
    tide->seen = room.seen;
    tide->seen_fading = room.seen_fading;
    tide->kept = room.kept;
    tide->scratch = room.scratch;
    tide->pmf = room.pmf;
    tide->count_max = wide;
    return 0;
}

/* Steps that are scored: 1, 2, 4, 8, ... and the last one. */
static void choose_scored(struct tm_tide *tide)
{
    for (int step = 1; step < tide->steps && tide->scored_count < SCORED_MAX - 1; step *= 2)
        tide->scored[tide->scored_count++] = step;
    tide->scored[tide->scored_count++] = tide->steps;
    for (int i = 0; i < tide->scored_count; i++)
        tide->slot_at[i + 1] = tide->slot_at[i] + tide->scored[i];
    int at = 0;
    for (int h = 1; h <= tide->steps; h++) {
        while (at + 1 < tide->scored_count && tide->scored[at + 1] - h <= h - tide->scored[at])
            at++;
        tide->nearest[h - 1] = at;
    }
}

int tm_tide__create(const struct tm_forecaster_options *options, struct tm_tide **out, struct tm_error *e)
{
    struct tm_tide *tide = tm_calloc(1, sizeof *tide);
    if (tide == NULL) return tm_error_nomem(e);
    size_t steps = (size_t)options->horizon_max;
    tide->steps = options->horizon_max;
    tide->capacity = options->capacity;
    tide->top = options->capacity;
    tide->since_change = 1000;
    tide->change_sign = 1;
    tide->fade_weight = 1;
    tide->steps_per_hour_bin = 86400e3 / HOURS / (double)options->interval_ms;
    tide->nearest = tm_calloc(steps, sizeof *tide->nearest);
    tide->counts = tm_calloc(steps, sizeof *tide->counts);
    tide->contexts = tm_calloc(steps, sizeof *tide->contexts);
    tide->totals = tm_calloc(steps * CONTEXTS, sizeof *tide->totals);
    tide->totals_fading = tm_calloc(steps * CONTEXTS_FADING, sizeof *tide->totals_fading);
    int rc = -(int)TM_ENOMEM;
    if (tide->nearest != NULL) {
        choose_scored(tide);
        tide->slots = tm_calloc((size_t)tide->slot_at[tide->scored_count], sizeof *tide->slots);
    }
    if (tide->nearest != NULL && tide->counts != NULL && tide->contexts != NULL && tide->totals != NULL &&
        tide->totals_fading != NULL && tide->slots != NULL)
        rc = widen(tide, options->capacity, e);
    if (rc != 0) {
        tm_tide__destroy(tide);
        return tm_error_nomem(e);
    }
    *out = tide;
    return 0;
}

void tm_tide__destroy(struct tm_tide *tide)
{
    if (tide == NULL) return;
    struct room room = {tide->seen, tide->seen_fading, tide->kept, tide->scratch, tide->pmf};
    room_free(&room);
    tm_free(tide->nearest);
    tm_free(tide->counts);
    tm_free(tide->contexts);
    tm_free(tide->totals);
    tm_free(tide->totals_fading);
    tm_free(tide->slots);
    tm_free(tide);
}

/* ---- contexts ---- */

static int level_of(int count, int top)
{
    if (count == 0) return 0;
    if (count >= top) return 1;
    return 2 * count <= top ? 2 : 5 * count <= 4 * top ? 3 : 4;
}

/* What happened last (losses, arrivals), for as long as that may matter, and how long ago. */
static int activity_of(int since_change, int sign)
{
    if (since_change > 20) return 8;
    if (since_change > 8) return 7;
    int age = since_change <= 1 ? 0 : since_change <= 3 ? 1 : 2;
    return 2 * age + (sign > 0);
}

static void find_contexts(const struct tm_tide *tide, int count, short *out)
{
    int level = level_of(count, tide->top);
    int activity = activity_of(tide->since_change, tide->change_sign);
    int hour = (int)fmod((double)tide->observed / tide->steps_per_hour_bin, HOURS);
    out[FAMILY_ALL] = 0;
    out[FAMILY_LEVEL] = (short)(CONTEXT_LEVEL + level);
    out[FAMILY_ACTIVITY] = (short)(CONTEXT_ACTIVITY + activity);
    out[FAMILY_BOTH] = (short)(CONTEXT_BOTH + level * ACTIVITIES + activity);
    out[FAMILY_HOUR] = (short)(CONTEXT_HOUR + hour * LEVELS + level);
}

/* ---- scores of past forecasts ---- */

/* Below low the distribution is 0, above high it is 1. */
static double crps_of(const float *cumulated, int low, int high, int count)
{
    double sum = count < low ? low - count : count > high ? count - high - 1 : 0;
    for (int k = low; k <= high; k++) {
        double v = (double)cumulated[k] - (k >= count);
        sum += v * v;
    }
    return sum;
}

/* The share of a count's own probability that lies between the quantiles 0.1 and 0.9: 0 or 1 but for the counts at
 * whose middle the quantiles cut. On average 0.8 if the forecasts are right, however large the steps of the
 * distribution are. */
static double coverage_of(const float *cumulated, int low, int high, int count)
{
    if (count < low || count > high) return 0;
    double below = count > low ? (double)cumulated[count - 1] : 0;
    double upto = (double)cumulated[count];
    if (upto - below < 1e-9) return 0;
    return fmax(0, fmin(upto, 0.9) - fmax(below, 0.1)) / (upto - below);
}

static void score(struct tm_tide *tide, int count)
{
    size_t counts = (size_t)tide->count_max + 1;
    for (int i = 0; i < tide->scored_count; i++) {
        int step = tide->scored[i];
        if (tide->observed < step) break;
        int place = tide->slot_at[i] + (int)((tide->observed - step) % step);
        size_t slot = (size_t)place;
        const float *kept = tide->kept + slot * KEPT * counts;
        int low = tide->slots[slot].low;
        int high = tide->slots[slot].high;
        double all = crps_of(kept + EXPERT_ALL * counts, low, high, count);
        tide->loss_all[i] += all;
        tide->scored_times[i]++;
        for (int x = 1; x < EXPERTS; x++)
            tide->loss[i][x] += crps_of(kept + (size_t)x * counts, low, high, count) - all;
        tide->covered[i] = tide->covered[i] * rate_fading + coverage_of(kept + MIXTURE * counts, low, high, count);
        tide->covered_weight[i] = tide->covered_weight[i] * rate_fading + 1;
        int before = tide->counts[(tide->observed - step) % tide->steps];
        double last_error = fabs((double)before - count);
        tide->last_error[i] += last_error;
        tide->median_gain[i] += last_error - fabs((double)tide->slots[slot].median - count);
    }
}

/* ---- learning ---- */

static void learn_change(struct tm_tide *tide, int count)
{
    if (tide->observed == 0) return;
    int change = count - tide->last;
    tide->recent_changes *= 0.9;
    tide->rate_steps = tide->rate_steps * rate_fading + 1;
    for (int sign = 0; sign < 2; sign++) {
        tide->changes[sign] *= rate_fading;
        tide->change_sizes[sign] *= rate_fading;
    }
    if (tide->since_change < 1000) tide->since_change++;
    if (change == 0) return;
    tide->changed = true;
    tide->recent_changes++;
    tide->changes[change > 0]++;
    tide->change_sizes[change > 0] += fabs((double)change);
    tide->since_change = 1;
    tide->change_sign = change;
}

/* Keeps the fading weights, which grow, within what a float holds. */
static void rescale(struct tm_tide *tide)
{
    if (tide->fade_weight < 1e6) return;
    size_t rows = (size_t)tide->steps * CONTEXTS_FADING;
    for (size_t i = 0; i < rows * width_of(tide->count_max); i++)
        tide->seen_fading[i] = (float)((double)tide->seen_fading[i] / tide->fade_weight);
    for (size_t i = 0; i < rows; i++)
        tide->totals_fading[i] /= tide->fade_weight;
    tide->fade_weight = 1;
}

static void learn_errors(struct tm_tide *tide, int count)
{
    size_t width = width_of(tide->count_max);
    tide->fade_weight *= fading;
    for (int h = 1; h <= tide->steps && h <= tide->observed; h++) {
        int64_t then = (tide->observed - h) % tide->steps;
        int error = count - tide->counts[then];
        if (error < tide->error_low) tide->error_low = error;
        if (error > tide->error_high) tide->error_high = error;
        int place = error + tide->count_max;
        size_t at = (size_t)place;
        for (int f = 0; f < FAMILIES; f++) {
            size_t row = (size_t)(h - 1) * CONTEXTS + (size_t)tide->contexts[then][f];
            tide->seen[row * width + at]++;
            tide->totals[row]++;
        }
        for (int f = 0; f < FAMILIES_FADING; f++) {
            size_t row = (size_t)(h - 1) * CONTEXTS_FADING + (size_t)tide->contexts[then][f];
            tide->seen_fading[row * width + at] += (float)tide->fade_weight;
            tide->totals_fading[row] += tide->fade_weight;
        }
    }
    rescale(tide);
}

/* ---- the experts ---- */

/* out = wa a + wb b, over the counts of the forecast. */
static void blend(const struct tm_tide *tide, double *restrict out, double wa, const double *restrict a, double wb,
                  const double *restrict b)
{
    for (int k = tide->low; k <= tide->high; k++)
        out[k] = wa * a[k] + wb * b[k];
}

static void clear(const struct tm_tide *tide, double *out)
{
    memset(out + tide->low, 0, (size_t)(tide->high - tide->low + 1) * sizeof *out);
}

/* Adds the last count plus each error, times `weight`; what would leave 0..top is put at its edge. */
static void add_errors(const struct tm_tide *tide, const float *seen, double weight, double *out)
{
    for (int error = tide->error_low; error <= tide->error_high; error++) {
        double n = (double)seen[error + tide->count_max];
        if (n == 0) continue;
        int count = tide->last + error;
        out[count < 0 ? 0 : count > tide->top ? tide->top : count] += weight * n;
    }
}

/* What sizes of changes go with: the count of a small pool, the root of a large one's. */
static double usual_spread(int count)
{
    return fmin(count, 5 * sqrt(count));
}

/* How changes come and how large they are, whatever their order: with few observations mostly what is true of pools in
 * general. Changes come at random, sizes are geometric, their sum grows as the root of their number. */
struct rates {
    double some;     /* probability that anything changes within the step */
    double share[2]; /* of losses, arrivals among first changes */
    double mean[2];  /* of what they sum up to */
};

static struct rates find_rates(const struct tm_tide *tide, int step)
{
    double rate[2];
    double size[2];
    double usual = fmax(1, prior_size * usual_spread(tide->last));
    for (int sign = 0; sign < 2; sign++) {
        rate[sign] = (tide->changes[sign] + prior_changes) / (tide->rate_steps + prior_steps);
        size[sign] = (tide->change_sizes[sign] + 2 * usual) / (tide->changes[sign] + 2);
    }
    double expected = step * (rate[0] + rate[1]);
    struct rates rates = {.some = 1 - exp(-expected)};
    for (int sign = 0; sign < 2; sign++) {
        rates.share[sign] = rate[sign] / (rate[0] + rate[1]);
        rates.mean[sign] = size[sign] * sqrt(expected / rates.some);
    }
    return rates;
}

static void rates_expert(const struct tm_tide *tide, int step, double *out)
{
    struct rates rates = find_rates(tide, step);
    clear(tide, out);
    double left = 1;
    for (int sign = 0; sign < 2; sign++) {
        double ratio = rates.mean[sign] > 1 ? 1 - 1 / rates.mean[sign] : 0;
        double p = rates.some * rates.share[sign] * (1 - ratio);
        int direction = sign == 0 ? -1 : 1;
        int high = tide->high < tide->top ? tide->high : tide->top;
        for (int k = tide->last + direction; k >= tide->low && k <= high && p > 1e-9; k += direction) {
            out[k] += p;
            left -= p;
            p *= ratio;
        }
    }
    out[tide->last] += left;
}

/* The errors at this step if there are enough of them, else those of all steps. */
static void all_errors(const struct tm_tide *tide, int step, double *out, double *out_independent)
{
    size_t width = width_of(tide->count_max);
    double total = tide->totals[(size_t)(step - 1) * CONTEXTS];
    bool enough = total >= FEW_ERRORS;
    *out_independent = total / step;
    clear(tide, out);
    double all = total;
    for (int h = 0; !enough && h < tide->steps; h++)
        all += h == step - 1 ? 0 : tide->totals[(size_t)h * CONTEXTS];
    if (all == 0) return;
    for (int h = enough ? step - 1 : 0; h < (enough ? step : tide->steps); h++)
        add_errors(tide, tide->seen + (size_t)h * CONTEXTS * width, 1 / all, out);
}

/* The errors of a context, shrunk towards a wider distribution. Overlapping windows: of n errors at step h, n / h are
 * independent. */
static void context_expert(const struct tm_tide *tide, const float *seen, double total, double independent,
                           const double *wider, double *out)
{
    double weight = independent / (independent + shrinkage);
    for (int k = tide->low; k <= tide->high; k++)
        out[k] = (1 - weight) * wider[k];
    if (total > 0) add_errors(tide, seen, weight / total, out);
}

static void all_experts(const struct tm_tide *tide, int step, const short *contexts, double **expert, double *spare)
{
    size_t width = width_of(tide->count_max);
    double independent;
    rates_expert(tide, step, expert[EXPERT_RATES]);
    all_errors(tide, step, spare, &independent);
    double prior = independent > 0 ? prior_weight / (prior_weight + independent) : 1;
    blend(tide, expert[EXPERT_ALL], 1 - prior, spare, prior, expert[EXPERT_RATES]);
    for (int fades = 0; fades < 2; fades++) {
        int first = fades ? EXPERT_FADING : EXPERT_ALL;
        size_t rows = (size_t)(step - 1) * (fades ? CONTEXTS_FADING : CONTEXTS);
        const float *seen = fades ? tide->seen_fading : tide->seen;
        const double *totals = fades ? tide->totals_fading : tide->totals;
        double unit = fades ? tide->fade_weight : 1;
        for (int f = fades ? FAMILY_ALL : FAMILY_LEVEL; f <= FAMILY_BOTH; f++) {
            size_t row = rows + (size_t)contexts[f];
            const double *wider = expert[EXPERT_ALL];
            if (f == FAMILY_BOTH) {
                blend(tide, spare, 0.5, expert[first + FAMILY_LEVEL], 0.5, expert[first + FAMILY_ACTIVITY]);
                wider = spare;
            }
            context_expert(tide, seen + row * width, totals[row], totals[row] / unit / step, wider, expert[first + f]);
        }
    }
    size_t row = (size_t)(step - 1) * CONTEXTS + (size_t)contexts[FAMILY_HOUR];
    bool days =
        (double)tide->observed > 2 * HOURS * tide->steps_per_hour_bin; /* else an hour of the day was seen once */
    context_expert(tide, tide->seen + row * width, tide->totals[row], days ? tide->totals[row] / step : 0,
                   expert[EXPERT_LEVEL], expert[EXPERT_HOUR]);
    clear(tide, spare);
    spare[tide->last] = 1;
    blend(tide, expert[EXPERT_HALF_ALL], 0.5, expert[EXPERT_ALL], 0.5, spare);
    blend(tide, expert[EXPERT_HALF_BOTH], 0.5, expert[EXPERT_BOTH], 0.5, spare);
    blend(tide, expert[EXPERT_HALF_RATES], 0.5, expert[EXPERT_RATES], 0.5, spare);
}

/* ---- the mixture and its corrections ---- */

static void mix(const struct tm_tide *tide, int step, double **expert, double *out)
{
    int i = tide->nearest[step - 1];
    double scale = tide->scored_times[i] > 0 ? tide->loss_all[i] / tide->scored_times[i] + 1e-9 : 1;
    double weight[EXPERTS];
    double best = -INFINITY;
    for (int x = 0; x < EXPERTS; x++) {
        weight[x] = -learning_rate * tide->loss[i][x] / scale / tide->scored[i] + (x == EXPERT_ALL ? head_start : 0);
        best = fmax(best, weight[x]);
    }
    double sum = 0;
    for (int x = 0; x < EXPERTS; x++)
        sum += weight[x] = exp(weight[x] - best);
    clear(tide, out);
    for (int x = 0; x < EXPERTS; x++) {
        double w = weight[x] / sum;
        if (w < 1e-6) continue;
        for (int k = tide->low; k <= tide->high; k++)
            out[k] += w * expert[x][k];
    }
    sum = 0;
    for (int k = tide->low; k <= tide->high; k++)
        sum += out[k];
    for (int k = tide->low; k <= tide->high; k++)
        out[k] /= sum;
}

/* How much of a wide distribution to add: the more, the less the 80% interval has held lately, while things move. At
 * the beginning of a trace that moves, forecasts are taken to be too narrow. */
static double widening(const struct tm_tide *tide, int step)
{
    int i = tide->nearest[step - 1];
    double early = 8 * 30 / (30 + fmax(0, (double)tide->observed - 12));
    double held = 2 * tide->covered[i] / step;
    double weight = 2 * tide->covered_weight[i] / step;
    double coverage =
        (held + early * (tide->changed ? 0.4 : coverage_wanted) + 4 * coverage_wanted) / (weight + early + 4);
    return fmin(0.6, fmax(0, 2 * (0.77 - coverage))) * fmin(1, tide->recent_changes / 2);
}

static double wide_mean(const struct tm_tide *tide, int step)
{
    int i = tide->nearest[step - 1];
    double mean_error = tide->scored_times[i] > 0 ? tide->last_error[i] / tide->scored_times[i] : 0;
    return fmax(fmax(1, 3 * mean_error), wide_size * usual_spread(tide->last));
}

/* Mixes in a two-sided geometric distribution around the last count, up to somewhat above what was ever seen unless
 * the capacity is known. */
static void widen_mixture(const struct tm_tide *tide, int step, double *pmf, double *spare)
{
    double share = widening(tide, step);
    if (!(share > 0)) return;
    double size = wide_mean(tide, step);
    int high = tide->top + (tide->capacity > 0 ? 0 : (int)size);
    if (high > tide->high) high = tide->high;
    double ratio = 1 - 1 / (1 + size);
    double sum = spare[tide->last] = 1;
    for (int k = tide->last - 1; k >= tide->low; k--)
        sum += spare[k] = spare[k + 1] * ratio;
    for (int k = tide->last + 1; k <= high; k++)
        sum += spare[k] = spare[k - 1] * ratio;
    for (int k = tide->low; k <= high; k++)
        pmf[k] = (1 - share) * pmf[k] + share * spare[k] / sum;
}

/* Counts that may have probability: where errors have been, and ten times the mean of what the others reckon with. */
static void set_window(struct tm_tide *tide)
{
    struct rates rates = find_rates(tide, tide->steps);
    double reach = 10 * fmax(fmax(rates.mean[0], rates.mean[1]), wide_mean(tide, tide->steps));
    reach = fmin(TM_FORECAST_COUNT_MAX, fmax(reach, fmax(-tide->error_low, tide->error_high)));
    tide->low = tide->last > (int)reach ? tide->last - (int)reach : 0;
    tide->high = tide->last + (int)reach < tide->count_max ? tide->last + (int)reach : tide->count_max;
}

static int median_of(const struct tm_tide *tide, const double *pmf)
{
    double sum = 0;
    for (int k = tide->low; k < tide->high; k++) {
        sum += pmf[k];
        if (sum >= 0.5) return k;
    }
    return tide->high;
}

/* The median may leave the last count only where that has paid; else just enough of "nothing happens" is mixed in. */
static void guard_median(const struct tm_tide *tide, int step, double *pmf, int median)
{
    int i = tide->nearest[step - 1];
    double times = tide->scored_times[i];
    double needed = 0.01 * tide->last_error[i] + 2 * step * tide->last_error[i] / fmax(times, 1);
    if (median == tide->last || (times > FEW_ERRORS && tide->median_gain[i] > needed)) return;
    double below = 0;
    for (int k = tide->low; k < tide->last; k++)
        below += pmf[k];
    double upto = below + pmf[tide->last];
    double share = upto < 0.5 ? (0.5 - upto) / (1 - upto) + 1e-9 : 1 - 0.4999999 / below;
    for (int k = tide->low; k <= tide->high; k++)
        pmf[k] *= 1 - share;
    pmf[tide->last] += share;
}

static void keep(struct tm_tide *tide, int step, double *const *expert, const double *pmf, int median)
{
    int i = tide->nearest[step - 1];
    if (tide->scored[i] != step) return;
    size_t counts = (size_t)tide->count_max + 1;
    int place = tide->slot_at[i] + (int)(tide->observed % step);
    size_t slot = (size_t)place;
    for (int x = 0; x < KEPT; x++) {
        float *kept = tide->kept + (slot * KEPT + (size_t)x) * counts;
        const double *from = x == MIXTURE ? pmf : expert[x];
        double sum = 0;
        for (int k = tide->low; k <= tide->high; k++)
            kept[k] = (float)(sum += from[k]);
    }
    tide->slots[slot].low = tide->low;
    tide->slots[slot].high = tide->high;
    tide->slots[slot].median = median;
}

static void forecast(struct tm_tide *tide, const short *contexts)
{
    size_t counts = (size_t)tide->count_max + 1;
    double *expert[EXPERTS];
    for (size_t x = 0; x < EXPERTS; x++)
        expert[x] = tide->scratch + x * counts;
    double *spare = tide->scratch + EXPERTS * counts;
    set_window(tide);
    for (int step = 1; step <= tide->steps; step++) {
        double *pmf = tide->pmf + (size_t)(step - 1) * counts;
        memset(pmf, 0, counts * sizeof *pmf);
        all_experts(tide, step, contexts, expert, spare);
        mix(tide, step, expert, pmf);
        widen_mixture(tide, step, pmf, spare);
        int median = median_of(tide, pmf);
        guard_median(tide, step, pmf, median);
        keep(tide, step, expert, pmf, median);
    }
}

int tm_tide__observe(struct tm_tide *tide, int count, struct tm_error *e)
{
    int rc = widen(tide, count, e);
    if (rc != 0) return rc;
    score(tide, count);
    learn_change(tide, count);
    if (count > tide->top) tide->top = count;
    learn_errors(tide, count);
    short contexts[FAMILIES];
    find_contexts(tide, count, contexts);
    tide->last = count;
    tide->counts[tide->observed % tide->steps] = count;
    memcpy(tide->contexts[tide->observed % tide->steps], contexts, sizeof contexts);
    forecast(tide, contexts);
    tide->observed++;
    return 0;
}

int tm_tide__count_max(const struct tm_tide *tide)
{
    return tide->count_max;
}

void tm_tide__predict(struct tm_tide *tide, int horizon, int count_max, double *pmf)
{
    size_t from = (size_t)tide->count_max + 1;
    size_t to = (size_t)count_max + 1;
    memset(pmf, 0, (size_t)horizon * to * sizeof *pmf);
    for (size_t h = 0; h < (size_t)horizon; h++)
        memcpy(pmf + h * to, tide->pmf + h * from, from * sizeof *pmf);
}
