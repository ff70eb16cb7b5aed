/* Our forecast: a distribution over counts for each step of look-ahead, learned from the trace as it goes.
 *
 * The errors that "it stays as it is" made are kept by step and by context: how full the pool is, what happened last
 * and how long ago, the hour of the day. Experts turn them into distributions: the errors of all contexts, of one, of
 * two together (each shrunk towards the wider one, so that small cells borrow), the same with old errors fading, a
 * simple law of rates and sizes of changes for the time when little has been seen, and "probably nothing happens".
 * Beside them stand what `last` says, "it goes on as it went" with the errors of that, and a walk of changes drawn
 * from those seen. Each counts twice: as it is, and held below the most ever seen, for a pool may be full or growing.
 * Each is scored by the CRPS of what it said; the forecast is their mixture, weighted by the scores.
 *
 * Three corrections follow. Where the 80% interval has held too much, the middle is given more; where it has held too
 * little, while things move in ways that cannot be told before, the mixture is widened, for as long as that costs no
 * more than it gives. And the median leaves the last count only where doing so has paid, and goes on paying.
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
    EXPERT_LAST,  /* the errors of all, with nothing else: what `last` says */
    EXPERT_TREND, /* it goes on as it went, with the errors of that */
    EXPERT_WALK,  /* as many changes as steps, drawn from those seen */
    EXPERTS,
    MIXTURE = EXPERTS, /* kept beside the experts, to be scored like them: the forecast; */
    PLAIN,             /* before it was widened, */
    WIDE,              /* and after */
    KEPT
};
enum { SCORED_MAX = 8, FEW_ERRORS = 24 };
enum { WALK_MAX = 3000 }; /* counts times kinds of changes that a step of the walk may take */

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
static const double few = 1e-3;         /* weight below which an expert is left out */
static const double from_others = 0.3;  /* what scores at other steps count in the weights at one */
static const double trend_handicap = 2; /* in log weight: trends are rare, and dear where they end */
static const double retreat = 0.002;    /* what a median that left the last count may lose, of the latter's errors */

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
    int64_t moves[2]; /* how often counts fell, rose, so far */

    int scored[SCORED_MAX]; /* steps whose forecasts are kept and scored, 1-based, ascending */
    int scored_count;
    int *nearest; /* [steps]: index into scored */

    int *counts;                 /* ring [steps] */
    short (*contexts)[FAMILIES]; /* ring [steps] */
    float *seen;                 /* [steps][CONTEXTS][2 count_max + 1] */
    float *seen_fading;          /* [steps][CONTEXTS_FADING][2 count_max + 1] */
    double *totals;              /* [steps][CONTEXTS] */
    double *totals_fading;
    float *seen_trend; /* [steps][2 count_max + 1]: errors of "it goes on as it went" */
    double *totals_trend;
    double *slopes;      /* ring [steps]: changes an interval */
    float *changes_seen; /* [2 count_max + 1]: changes from one interval to the next */
    int kinds_of_change;
    double *walk; /* [2][count_max + 1]: distribution of the walk after this step, and the next */

    float *kept; /* [slots][KEPT][count_max + 1]: cumulated; the slots of scored[i] start at slot_at[i] */
    struct {
        int low, high; /* what was kept of the distributions */
        int roof;
        int median; /* of the mixture before the guard, */
        int told;   /* and after */
    } * slots;
    int slot_at[SCORED_MAX + 1];
    double loss[SCORED_MAX][2][EXPERTS]; /* summed CRPS above that of EXPERT_ALL, held below the top; free, held */
    double loss_all[SCORED_MAX];
    double scored_times[SCORED_MAX];
    double covered[SCORED_MAX]; /* fading sum, and its weight */
    double covered_weight[SCORED_MAX];
    double loss_plain[SCORED_MAX];   /* summed CRPS of the mixture before corrections */
    double median_error[SCORED_MAX]; /* summed absolute errors of its median */
    double gain_squares[SCORED_MAX]; /* of median_gain's parts */
    double loss_wide[SCORED_MAX];    /* summed CRPS of the widened mixture above that of the plain one */
    double last_error[SCORED_MAX];   /* summed absolute errors of the last count ... */
    double median_gain[SCORED_MAX];  /* ... and what the mixture's median would have saved, ... */
    double told_gain[SCORED_MAX];    /* ... and has saved, where it was told */

    double *scratch; /* [KEPT][count_max + 1] */
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
    float *seen, *seen_fading, *seen_trend, *changes_seen, *kept;
    double *scratch, *pmf, *walk;
};

static void room_free(struct room *room)
{
    tm_free(room->seen);
    tm_free(room->seen_fading);
    tm_free(room->seen_trend);
    tm_free(room->changes_seen);
    tm_free(room->walk);
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
        .seen_trend = tm_calloc(steps * width_of(wide), sizeof *room.seen_trend),
        .changes_seen = tm_calloc(width_of(wide), sizeof *room.changes_seen),
        .walk = tm_calloc(2 * counts, sizeof *room.walk),
        .kept = tm_calloc(slots * KEPT * counts, sizeof *room.kept),
        .scratch = tm_calloc((KEPT)*counts, sizeof *room.scratch),
        .pmf = tm_calloc(steps * counts, sizeof *room.pmf),
    };
    if (room.seen == NULL || room.seen_fading == NULL || room.seen_trend == NULL || room.changes_seen == NULL ||
        room.walk == NULL || room.kept == NULL || room.scratch == NULL || room.pmf == NULL) {
        room_free(&room);
        return tm_error_nomem(e);
    }
    if (tide->seen != NULL) {
        copy_errors(tide->seen, tide->count_max, room.seen, wide, steps * CONTEXTS);
        copy_errors(tide->seen_fading, tide->count_max, room.seen_fading, wide, steps * CONTEXTS_FADING);
        copy_errors(tide->seen_trend, tide->count_max, room.seen_trend, wide, steps);
        copy_errors(tide->changes_seen, tide->count_max, room.changes_seen, wide, 1);
        copy_kept(tide->kept, tide->count_max, room.kept, wide, slots * KEPT);
    }
    struct room old = {tide->seen, tide->seen_fading, tide->seen_trend, tide->changes_seen,
                       tide->kept, tide->scratch,     tide->pmf,        tide->walk};
    room_free(&old);
    tide->seen = room.seen;
    tide->seen_fading = room.seen_fading;
    tide->seen_trend = room.seen_trend;
    tide->changes_seen = room.changes_seen;
    tide->walk = room.walk;
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
    tide->totals_trend = tm_calloc(steps, sizeof *tide->totals_trend);
    tide->slopes = tm_calloc(steps, sizeof *tide->slopes);
    int rc = -(int)TM_ENOMEM;
    if (tide->nearest != NULL) {
        choose_scored(tide);
        tide->slots = tm_calloc((size_t)tide->slot_at[tide->scored_count], sizeof *tide->slots);
    }
    if (tide->nearest != NULL && tide->counts != NULL && tide->contexts != NULL && tide->totals != NULL &&
        tide->totals_fading != NULL && tide->totals_trend != NULL && tide->slopes != NULL && tide->slots != NULL)
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
    struct room room = {tide->seen, tide->seen_fading, tide->seen_trend, tide->changes_seen,
                        tide->kept, tide->scratch,     tide->pmf,        tide->walk};
    room_free(&room);
    tm_free(tide->nearest);
    tm_free(tide->counts);
    tm_free(tide->contexts);
    tm_free(tide->totals);
    tm_free(tide->totals_fading);
    tm_free(tide->totals_trend);
    tm_free(tide->slopes);
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
/* The same with what lies above `roof` put there. */
static double crps_held(const float *cumulated, int low, int high, int roof, int count)
{
    if (roof >= high) return crps_of(cumulated, low, high, count);
    double sum = count < low ? low - count : count > roof ? count - (roof > low ? roof : low) : 0;
    for (int k = low; k < roof; k++) {
        double v = (double)cumulated[k] - (k >= count);
        sum += v * v;
    }
    return sum;
}

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
        int roof = tide->slots[slot].roof;
        double all = crps_held(kept + EXPERT_ALL * counts, low, high, roof, count);
        tide->loss_all[i] += all;
        tide->scored_times[i]++;
        for (int x = 0; x < EXPERTS; x++) {
            tide->loss[i][0][x] += crps_of(kept + (size_t)x * counts, low, high, count) - all;
            tide->loss[i][1][x] += crps_held(kept + (size_t)x * counts, low, high, roof, count) - all;
        }
        double plain = crps_of(kept + PLAIN * counts, low, high, count);
        tide->loss_plain[i] += plain;
        tide->loss_wide[i] += crps_of(kept + WIDE * counts, low, high, count) - plain;
        tide->median_error[i] += fabs((double)tide->slots[slot].median - count);
        tide->covered[i] = tide->covered[i] * rate_fading + coverage_of(kept + MIXTURE * counts, low, high, count);
        tide->covered_weight[i] = tide->covered_weight[i] * rate_fading + 1;
        int before = tide->counts[(tide->observed - step) % tide->steps];
        double last_error = fabs((double)before - count);
        tide->last_error[i] += last_error;
        double gain = last_error - fabs((double)tide->slots[slot].median - count);
        tide->median_gain[i] += gain;
        tide->gain_squares[i] += gain * gain;
        tide->told_gain[i] += last_error - fabs((double)tide->slots[slot].told - count);
        if (tide->told_gain[i] < -retreat * tide->last_error[i]) tide->told_gain[i] = tide->median_gain[i] = 0;
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
    float *seen = &tide->changes_seen[change + tide->count_max];
    tide->kinds_of_change += *seen == 0;
    *seen += 1;
    if (change == 0) return;
    tide->changed = true;
    tide->moves[change > 0]++;
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

static int trend_of(const struct tm_tide *tide, int count, double slope, int step)
{
    double to = count + step * slope;
    return to < 0 ? 0 : to > tide->count_max ? tide->count_max : (int)lround(to);
}

static void learn_trend(struct tm_tide *tide, int count)
{
    size_t width = width_of(tide->count_max);
    for (int h = 1; h <= tide->steps && h <= tide->observed; h++) {
        int64_t then = (tide->observed - h) % tide->steps;
        int error = count - trend_of(tide, tide->counts[then], tide->slopes[then], h);
        if (error < tide->error_low) tide->error_low = error;
        if (error > tide->error_high) tide->error_high = error;
        int place = error + tide->count_max;
        tide->seen_trend[(size_t)(h - 1) * width + (size_t)place]++;
        tide->totals_trend[h - 1]++;
    }
    int64_t back = tide->observed < tide->steps ? tide->observed : tide->steps;
    tide->slopes[tide->observed % tide->steps] =
        back > 0 ? (double)(count - tide->counts[(tide->observed - back) % tide->steps]) / (double)back : 0;
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

/* Adds a count plus each error, times `weight`; what would leave the window is put at its edge. */
static void add_errors(const struct tm_tide *tide, const float *seen, double weight, int from, double *out)
{
    for (int error = tide->error_low; error <= tide->error_high; error++) {
        double n = (double)seen[error + tide->count_max];
        if (n == 0) continue;
        int count = from + error;
        out[count < tide->low ? tide->low : count > tide->high ? tide->high : count] += weight * n;
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
        for (int k = tide->last + direction; k >= tide->low && k <= tide->high && p > 1e-9; k += direction) {
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
        add_errors(tide, tide->seen + (size_t)h * CONTEXTS * width, 1 / all, tide->last, out);
}

/* The errors of a context, shrunk towards a wider distribution. Overlapping windows: of n errors at step h, n / h are
 * independent. */
static void context_expert(const struct tm_tide *tide, const float *seen, double total, double independent,
                           const double *wider, double *out)
{
    double weight = independent / (independent + shrinkage);
    for (int k = tide->low; k <= tide->high; k++)
        out[k] = (1 - weight) * wider[k];
    if (total > 0) add_errors(tide, seen, weight / total, tide->last, out);
}

static void trend_expert(const struct tm_tide *tide, int step, double *out)
{
    size_t width = width_of(tide->count_max);
    int from = trend_of(tide, tide->last, tide->slopes[tide->observed % tide->steps], step);
    from = from < tide->low ? tide->low : from > tide->high ? tide->high : from;
    clear(tide, out);
    bool enough = tide->totals_trend[step - 1] >= FEW_ERRORS;
    double all = 0;
    for (int h = enough ? step - 1 : 0; h < (enough ? step : tide->steps); h++)
        all += tide->totals_trend[h];
    if (all == 0) {
        out[from] = 1;
        return;
    }
    for (int h = enough ? step - 1 : 0; h < (enough ? step : tide->steps); h++)
        add_errors(tide, tide->seen_trend + (size_t)h * width, 1 / all, from, out);
}

/* One more change than at the step before, drawn from those seen. Where there are too many kinds of them to be done in
 * time, `instead`. */
static void walk_expert(const struct tm_tide *tide, int step, const double *instead, double *out)
{
    size_t window = (size_t)(tide->high - tide->low + 1) * sizeof *out;
    if (tide->kinds_of_change * (tide->high - tide->low + 1) > WALK_MAX) {
        memcpy(out + tide->low, instead + tide->low, window);
        return;
    }
    size_t counts = (size_t)tide->count_max + 1;
    const double *from = tide->walk + (size_t)((step - 1) % 2) * counts;
    double *to = tide->walk + (size_t)(step % 2) * counts;
    if (step == 1) {
        clear(tide, tide->walk);
        tide->walk[tide->last] = 1;
    }
    clear(tide, to);
    double total = (double)tide->observed;
    int low = tide->low;
    int high = tide->high;
    if (total == 0) memcpy(to + low, from + low, window);
    for (int change = tide->error_low; total > 0 && change <= tide->error_high; change++) {
        double p = (double)tide->changes_seen[change + tide->count_max] / total;
        if (p == 0) continue;
        int inner_low = low - change > low ? low - change : low;
        int inner_high = high - change < high ? high - change : high;
        for (int k = inner_low; k <= inner_high; k++)
            to[k + change] += p * from[k];
        for (int k = low; k < inner_low; k++)
            to[low] += p * from[k];
        for (int k = inner_high + 1; k <= high; k++)
            to[high] += p * from[k];
    }
    memcpy(out + low, to + low, window);
}

/* Which experts a step needs: all where they are scored, else those with weight, and what these are made from. */
static void find_needed(const struct tm_tide *tide, int step, double weight[2][EXPERTS], bool *needed)
{
    bool scored = tide->scored[tide->nearest[step - 1]] == step;
    for (int x = 0; x < EXPERTS; x++)
        needed[x] = scored || weight[0][x] >= few || weight[1][x] >= few;
    needed[EXPERT_BOTH] |= needed[EXPERT_HALF_BOTH];
    needed[EXPERT_LEVEL] |= needed[EXPERT_BOTH] || needed[EXPERT_HOUR];
    needed[EXPERT_ACTIVITY] |= needed[EXPERT_BOTH];
    needed[EXPERT_FADING + FAMILY_LEVEL] |= needed[EXPERT_FADING + FAMILY_BOTH];
    needed[EXPERT_FADING + FAMILY_ACTIVITY] |= needed[EXPERT_FADING + FAMILY_BOTH];
}

static void all_experts(const struct tm_tide *tide, int step, const short *contexts, const bool *needed,
                        double **expert, double *spare)
{
    size_t width = width_of(tide->count_max);
    double independent;
    rates_expert(tide, step, expert[EXPERT_RATES]);
    all_errors(tide, step, spare, &independent);
    memcpy(expert[EXPERT_LAST] + tide->low, spare + tide->low, (size_t)(tide->high - tide->low + 1) * sizeof *spare);
    if (tide->observed == 0) expert[EXPERT_LAST][tide->last] = 1;
    if (needed[EXPERT_TREND]) trend_expert(tide, step, expert[EXPERT_TREND]);
    walk_expert(tide, step, expert[EXPERT_LAST], expert[EXPERT_WALK]);
    double prior = independent > 0 ? prior_weight / (prior_weight + independent) : 1;
    blend(tide, expert[EXPERT_ALL], 1 - prior, spare, prior, expert[EXPERT_RATES]);
    for (int fades = 0; fades < 2; fades++) {
        int first = fades ? EXPERT_FADING : EXPERT_ALL;
        size_t rows = (size_t)(step - 1) * (fades ? CONTEXTS_FADING : CONTEXTS);
        const float *seen = fades ? tide->seen_fading : tide->seen;
        const double *totals = fades ? tide->totals_fading : tide->totals;
        double unit = fades ? tide->fade_weight : 1;
        for (int f = fades ? FAMILY_ALL : FAMILY_LEVEL; f <= FAMILY_BOTH; f++) {
            if (!needed[first + f]) continue;
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

static int median_of(const struct tm_tide *tide, const double *pmf)
{
    double sum = 0;
    for (int k = tide->low; k < tide->high; k++) {
        sum += pmf[k];
        if (sum >= 0.5) return k;
    }
    return tide->high;
}

/* The mean score of the widest expert, which others are measured by. */
static double scale_of(const struct tm_tide *tide, int i)
{
    return tide->scored_times[i] > 0 ? tide->loss_all[i] / tide->scored_times[i] + 1e-9 : 1;
}

/* Adds an expert, as it is or with what lies above the top put there. */
static void add_expert(const struct tm_tide *tide, double weight, const double *expert, bool held, double *out)
{
    int high = held && tide->top < tide->high ? tide->top : tide->high;
    for (int k = tide->low; k <= high; k++)
        out[k] += weight * expert[k];
    double above = 0;
    for (int k = high + 1; k <= tide->high; k++)
        above += expert[k];
    out[high] += weight * above;
}

/* What the scores at one step say of an expert: to the weights at that step, and to those at others. */
struct scores {
    double own[SCORED_MAX][2][EXPERTS];
    double others[SCORED_MAX][2][EXPERTS];
};

static void find_scores(const struct tm_tide *tide, struct scores *out)
{
    for (int j = 0; j < tide->scored_count; j++) {
        double scale = scale_of(tide, j);
        for (int held = 0; held < 2; held++)
            for (int x = 0; x < EXPERTS; x++) {
                double loss = tide->loss[j][held][x];
                out->own[j][held][x] = loss / scale / tide->scored[j];
                out->others[j][held][x] = from_others * loss / scale / tide->scored[j];
            }
    }
}

/* At all steps whose nearest scored one is number `i`. */
static void find_weights(const struct tm_tide *tide, const struct scores *scores, int i, double weight[2][EXPERTS])
{
    static const double nothing = -750; /* the exponential function is 0 there, after a long way */
    double best = -INFINITY;
    for (int held = 0; held < 2; held++)
        for (int x = 0; x < EXPERTS; x++) {
            double loss = 0;
            for (int j = 0; j < tide->scored_count; j++)
                loss += j == i ? scores->own[j][held][x] : scores->others[j][held][x];
            double prior = x == EXPERT_ALL ? head_start : x == EXPERT_TREND ? -trend_handicap : 0;
            weight[held][x] = prior - learning_rate * loss;
            best = fmax(best, weight[held][x]);
        }
    double sum = 0;
    for (int x = 0; x < 2 * EXPERTS; x++) {
        double *w = &weight[x / EXPERTS][x % EXPERTS];
        sum += *w = *w - best > nothing ? exp(*w - best) : 0;
    }
    for (int x = 0; x < 2 * EXPERTS; x++)
        weight[x / EXPERTS][x % EXPERTS] /= sum;
}

static void mix(const struct tm_tide *tide, double weight[2][EXPERTS], double **expert, double *out)
{
    clear(tide, out);
    for (int x = 0; x < 2 * EXPERTS; x++) {
        double w = weight[x / EXPERTS][x % EXPERTS];
        if (w >= few) add_expert(tide, w, expert[x % EXPERTS], x >= EXPERTS, out);
    }
    double sum = 0;
    for (int k = tide->low; k <= tide->high; k++)
        sum += out[k];
    for (int k = tide->low; k <= tide->high; k++)
        out[k] /= sum;
}

/* 0 where changes can be told before, as those of a fleet that grows steadily; 1 where they come by chance: by what the
 * mixture's scores are of the errors of the last count. */
static double by_chance(const struct tm_tide *tide)
{
    double plain = 0;
    double lasts = 0;
    for (int j = 0; j < tide->scored_count; j++) {
        plain += tide->loss_plain[j];
        lasts += tide->last_error[j];
    }
    return lasts > 0 ? fmin(1, fmax(0, (plain / lasts - 0.3) / 0.3)) : 1;
}

/* How much of a wide distribution to add: the more, the less the 80% interval has held lately, while things move; the
 * less, the more that has cost. At the beginning of a trace that moves, forecasts are taken to be too narrow. */
static double widening(const struct tm_tide *tide, int step)
{
    int i = tide->nearest[step - 1];
    double early = 8 * 30 / (30 + fmax(0, (double)tide->observed - 12));
    double held = 2 * tide->covered[i] / step;
    double weight = 2 * tide->covered_weight[i] / step;
    double coverage =
        (held + early * (tide->changed ? 0.4 : coverage_wanted) + 4 * coverage_wanted) / (weight + early + 4);
    double pays = exp(-fmax(0, tide->loss_wide[i]) / scale_of(tide, i) / tide->scored[i]);
    return pays * by_chance(tide) * fmin(0.6, fmax(0, 2 * (0.77 - coverage))) * fmin(1, tide->recent_changes / 2);
}

static double wide_mean(const struct tm_tide *tide, int step)
{
    int i = tide->nearest[step - 1];
    double mean_error = tide->scored_times[i] > 0 ? tide->median_error[i] / tide->scored_times[i] : 0;
    double usual = wide_size * usual_spread(tide->last) * 60 / (60 + (double)tide->observed);
    return fmax(fmax(1, 3 * mean_error), usual);
}

/* How much more the middle is given: the 80% interval has held too much lately, over all steps. */
static double narrowing(const struct tm_tide *tide)
{
    double held = coverage_wanted;
    double weight = 1;
    for (int j = 0; j < tide->scored_count; j++) {
        held += 2 * tide->covered[j] / tide->scored[j];
        weight += 2 * tide->covered_weight[j] / tide->scored[j];
    }
    return fmin(0.95, 30 * (held / weight - coverage_wanted));
}

static void narrow_mixture(const struct tm_tide *tide, double share, double *pmf)
{
    int middle = median_of(tide, pmf);
    for (int k = tide->low; k <= tide->high; k++)
        pmf[k] *= 1 - share;
    pmf[middle] += share;
}

/* Mixes in a two-sided geometric distribution around the median, up to somewhat above what was ever seen unless
 * the capacity is known. */
static void widen_mixture(const struct tm_tide *tide, int step, double *pmf, double *spare)
{
    double share = widening(tide, step);
    if (!(share > 0)) return;
    double size = wide_mean(tide, step);
    int middle = median_of(tide, pmf);
    int high = (tide->top > middle ? tide->top : middle) + (tide->capacity > 0 ? 0 : (int)size);
    if (high > tide->high) high = tide->high;
    double ratio = 1 - 1 / (1 + size);
    double sum = spare[middle] = 1;
    for (int k = middle - 1; k >= tide->low; k--)
        sum += spare[k] = spare[k + 1] * ratio;
    for (int k = middle + 1; k <= high; k++)
        sum += spare[k] = spare[k - 1] * ratio;
    for (int k = tide->low; k <= high; k++)
        pmf[k] = (1 - share) * pmf[k] + share * spare[k] / sum;
    for (int k = high + 1; k <= tide->high; k++)
        pmf[k] *= 1 - share;
}

/* Counts that may have probability: where errors have been, and ten times the mean of what the others reckon with. */
static void set_window(struct tm_tide *tide)
{
    struct rates rates = find_rates(tide, tide->steps);
    double reach = 7 * fmax(fmax(rates.mean[0], rates.mean[1]), wide_mean(tide, tide->steps));
    reach = fmin(TM_FORECAST_COUNT_MAX, fmax(reach, fmax(-tide->error_low, tide->error_high)));
    tide->low = tide->last > (int)reach ? tide->last - (int)reach : 0;
    tide->high = tide->last + (int)reach < tide->count_max ? tide->last + (int)reach : tide->count_max;
    if (tide->capacity > 0 && tide->high > tide->top) tide->high = tide->top;
}

/* Leaving the last count has paid: at this step by more than 1% and two windows' errors; or at all steps together by
 * much more than chance gives; or by something, and counts have only ever moved that way. */
static bool has_paid(const struct tm_tide *tide, int step, int median)
{
    int i = tide->nearest[step - 1];
    double times = tide->scored_times[i];
    double needed = 0.01 * tide->last_error[i] + 2 * step * tide->last_error[i] / fmax(times, 1);
    if (times > FEW_ERRORS && tide->median_gain[i] > needed) return true;
    double gain = 0;
    double lasts = 0;
    double deviations = 0; /* windows overlap: of n gains at step h, n / h are independent */
    for (int j = 0; j < tide->scored_count; j++) {
        gain += tide->median_gain[j];
        lasts += tide->last_error[j];
        if (tide->gain_squares[j] > 0)
            deviations += tide->median_gain[j] / sqrt(tide->scored[j] * tide->gain_squares[j]);
    }
    if (deviations > 3 && gain > 0.1 * lasts) return true;
    bool up = median > tide->last;
    bool one_way = tide->moves[up] >= 8 && tide->moves[!up] == 0 && 2 * tide->observed >= 3 * tide->steps;
    return one_way && gain > 0.05 * lasts;
}

/* The median may leave the last count only where that has paid; else it is held there by what lies between the two: no
 * other change of the distribution is as small. */
static void guard_median(const struct tm_tide *tide, int step, double *pmf, int median)
{
    if (median == tide->last || has_paid(tide, step, median)) return;
    double below = 0;
    for (int k = tide->low; k < tide->last; k++)
        below += pmf[k];
    int way = median > tide->last ? 1 : -1;
    double missing = way > 0 ? 0.5 + 1e-9 - below - pmf[tide->last] : below - 0.4999999;
    for (int k = tide->last + way; k >= tide->low && k <= tide->high && missing > 0; k += way) {
        double taken = fmin(pmf[k], missing);
        pmf[k] -= taken;
        pmf[tide->last] += taken;
        missing -= taken;
    }
}

/* `expert` ends in what was kept before and after widening. */
static void keep(struct tm_tide *tide, int step, double *const *expert, const double *pmf, int median)
{
    int i = tide->nearest[step - 1];
    if (tide->scored[i] != step) return;
    size_t counts = (size_t)tide->count_max + 1;
    int place = tide->slot_at[i] + (int)(tide->observed % step);
    size_t slot = (size_t)place;
    for (int x = 0; x < KEPT; x++) {
        float *kept = tide->kept + (slot * KEPT + (size_t)x) * counts;
        const double *from = x == MIXTURE ? pmf : expert[x]; /* expert[MIXTURE] is spare room */
        double sum = 0;
        for (int k = tide->low; k <= tide->high; k++)
            kept[k] = (float)(sum += from[k]);
    }
    tide->slots[slot].low = tide->low;
    tide->slots[slot].high = tide->high;
    tide->slots[slot].roof = tide->top;
    tide->slots[slot].median = median;
    tide->slots[slot].told = median_of(tide, pmf);
}

static void forecast(struct tm_tide *tide, const short *contexts)
{
    size_t counts = (size_t)tide->count_max + 1;
    double *expert[KEPT];
    for (size_t x = 0; x < KEPT; x++)
        expert[x] = tide->scratch + x * counts;
    double *spare = expert[MIXTURE];
    set_window(tide);
    double weight[2][EXPERTS];
    bool needed[EXPERTS];
    struct scores scores;
    find_scores(tide, &scores);
    double narrow = narrowing(tide);
    size_t window = (size_t)(tide->high - tide->low + 1) * sizeof *spare;
    for (int step = 1; step <= tide->steps; step++) {
        int nearest = tide->nearest[step - 1];
        double *pmf = tide->pmf + (size_t)(step - 1) * counts;
        memset(pmf, 0, counts * sizeof *pmf);
        if (step == 1 || nearest != tide->nearest[step - 2]) find_weights(tide, &scores, nearest, weight);
        find_needed(tide, step, weight, needed);
        all_experts(tide, step, contexts, needed, expert, spare);
        mix(tide, weight, expert, pmf);
        memcpy(expert[PLAIN] + tide->low, pmf + tide->low, window);
        if (narrow > 0)
            narrow_mixture(tide, narrow, pmf);
        else
            widen_mixture(tide, step, pmf, spare);
        memcpy(expert[WIDE] + tide->low, pmf + tide->low, window);
        int median = median_of(tide, pmf);
        guard_median(tide, step, pmf, median);
        keep(tide, step, expert, pmf, median);
    }
}

int tm_tide__observe(struct tm_tide *tide, int count, struct tm_error *e)
{
    int rc = widen(tide, count + tide->error_high, e);
    if (rc != 0) return rc;
    score(tide, count);
    learn_change(tide, count);
    if (count > tide->top) tide->top = count;
    learn_errors(tide, count);
    learn_trend(tide, count);
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
