/* Parcae's availability predictor, bug for bug (Duan et al., NSDI 2024; rules read in the released code).
 *
 * A window of the last H counts is cleaned (spikes, turning points), its differences are fitted by ARIMA(1,1,0) with
 * drift, the path is rounded and clipped to +-3 of its first step and to 8..32; a flat path over a window that was not
 * gets random losses. Steep windows set penalties that damp changes, in that forecast and in all later ones: they are
 * never taken back, and neither are they here. Random numbers are those of numpy's RandomState (MT19937), so that a
 * seed gives what it gave the original. */
#include "base/alloc.h"
#include "market/arima.h"
#include "market/forecast_internal.h"

#include <math.h>

enum { WINDOW_MAX = TM_FORECAST_STEPS_MAX, COUNT_LOW = 8, COUNT_HIGH = 32, SPREAD = 3, SPIKE_MAX = 3 };
enum { TWISTER_SIZE = 624, TWISTER_SHIFT = 397 };

struct tm_parcae {
    int counts[WINDOW_MAX]; /* newest last */
    int losses[WINDOW_MAX];
    int64_t observed;
    double in_penalty;
    double out_penalty;
    uint32_t twister[TWISTER_SIZE];
    int twister_at;
};

/* ---- numpy's random numbers ---- */

static void twister_seed(struct tm_parcae *parcae, uint32_t seed)
{
    parcae->twister[0] = seed;
    for (uint32_t i = 1; i < TWISTER_SIZE; i++) {
        uint32_t before = parcae->twister[i - 1];
        parcae->twister[i] = 1812433253U * (before ^ before >> 30) + i;
    }
    parcae->twister_at = TWISTER_SIZE;
}

static void twist(uint32_t *state)
{
    for (int i = 0; i < TWISTER_SIZE; i++) {
        uint32_t y = (state[i] & 0x80000000U) | (state[(i + 1) % TWISTER_SIZE] & 0x7fffffffU);
        state[i] = state[(i + TWISTER_SHIFT) % TWISTER_SIZE] ^ y >> 1 ^ ((y & 1) != 0 ? 0x9908b0dfU : 0);
    }
}

static uint32_t twister_u32(struct tm_parcae *parcae)
{
    if (parcae->twister_at == TWISTER_SIZE) {
        twist(parcae->twister);
        parcae->twister_at = 0;
    }
    uint32_t y = parcae->twister[parcae->twister_at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680U;
    y ^= y << 15 & 0xefc60000U;
    return y ^ y >> 18;
}

static double twister_unit(struct tm_parcae *parcae)
{
    uint32_t a = twister_u32(parcae) >> 5;
    uint32_t b = twister_u32(parcae) >> 6;
    return ((double)a * 67108864 + (double)b) / 9007199254740992;
}

/* numpy's method for means below 10. (It has another one for larger ones, which a window of real losses hardly has.) */
static int poisson(struct tm_parcae *parcae, double mean)
{
    if (!(mean > 0)) return 0;
    double least = exp(-fmin(mean, 500));
    double product = 1;
    for (int drawn = 0;; drawn++) {
        product *= twister_unit(parcae);
        if (product <= least) return drawn;
    }
}

/* ---- the window ---- */

/* History by look-ahead, as the original's table has it; 0: it does not work there. */
static int window_of(int horizon)
{
    switch (horizon) {
    case 5:
        return 10;
    case 7:
        return 8;
    case 14:
        return 17;
    default:
        return horizon >= 7 ? horizon : 0;
    }
}

bool tm_parcae__looks(int horizon)
{
    return window_of(horizon) > 0;
}

static void remove_spikes(int *x, int n)
{
    for (int width = SPIKE_MAX; width >= 1; width--) {
        for (int i = 0; i + width + 1 < n; i++) {
            bool spike = x[i] == x[i + width + 1];
            for (int k = 1; k <= width; k++)
                spike = spike && x[i + k] != x[i];
            for (int k = 1; spike && k <= width; k++)
                x[i + k] = x[i];
        }
    }
}

/* Forgets what was before the last lowest (else highest) point, where both ends are above (below) it. */
static void forget_before_turn(int *x, int n)
{
    int lowest = 0;
    int highest = 0;
    for (int i = 1; i < n; i++) {
        if (x[i] <= x[lowest]) lowest = i;
        if (x[i] >= x[highest]) highest = i;
    }
    bool dip = x[lowest] < x[0] && x[lowest] < x[n - 1];
    bool peak = x[highest] > x[0] && x[highest] > x[n - 1];
    if (!dip && !peak) return;
    int turn = dip ? lowest : highest;
    for (int i = 0; i < turn; i++)
        x[i] = x[turn];
}

static double penalty_of(int change, double penalty)
{
    return change >= 10 ? 0.5 : change >= 5 ? 0.75 : penalty;
}

static void set_penalties(struct tm_parcae *parcae, const int *x, int n)
{
    bool rising = true;
    bool falling = true;
    for (int i = 1; i < n; i++) {
        rising = rising && x[i] >= x[i - 1];
        falling = falling && x[i] <= x[i - 1];
    }
    if (rising) parcae->in_penalty = penalty_of(x[n - 1] - x[0], parcae->in_penalty);
    if (falling) parcae->out_penalty = penalty_of(x[0] - x[n - 1], parcae->out_penalty);
}

static bool is_flat(const int *x, int n)
{
    for (int i = 1; i < n; i++)
        if (x[i] != x[0]) return false;
    return true;
}

/* ---- the path ---- */

static int clip(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

static void extrapolate(const int *x, int n, int horizon, int *path)
{
    double differences[WINDOW_MAX];
    double values[TM_FORECAST_STEPS_MAX];
    for (int i = 1; i < n; i++)
        differences[i - 1] = x[i] - x[i - 1];
    struct tm_arima model = tm_arima__fit(differences, (size_t)n - 1);
    tm_arima__extrapolate(model, x[n - 1], differences[n - 2], values, (size_t)horizon);
    for (int h = 0; h < horizon; h++)
        path[h] = (int)rint(fmax(-1e6, fmin(1e6, values[h])));
}

/* The smallest of mean, variance and standard deviation of the losses in the window. */
static double loss_rate(const int *losses, int n)
{
    double mean = 0;
    double variance = 0;
    for (int i = 0; i < n; i++)
        mean += (double)losses[i] / n;
    for (int i = 0; i < n; i++)
        variance += (losses[i] - mean) * (losses[i] - mean) / n;
    return fmin(mean, fmin(variance, sqrt(variance)));
}

/* Changes of the path are damped by the penalties; the rounding (half to even) is of the counts. */
static void damp(const struct tm_parcae *parcae, int last, const int *path, int horizon, int *out_count)
{
    int before = last;
    int count = last;
    for (int h = 0; h < horizon; h++) {
        int change = path[h] - before;
        count = (int)rint(count + change * (change > 0 ? parcae->in_penalty : parcae->out_penalty));
        if (count < 0) count = 0;
        out_count[h] = count;
        before = path[h];
    }
}

int tm_parcae__predict(struct tm_parcae *parcae, int horizon, int *out_count, struct tm_error *e)
{
    int n = window_of(horizon);
    if (n == 0)
        return tm_error_set(e, TM_EUSAGE, "method parcae looks 5, 7 or more intervals ahead, not %d: use --horizon 12",
                            horizon);
    const int *newest = parcae->counts + WINDOW_MAX - n;
    int last = newest[n - 1];
    if (parcae->observed - 1 < n) { /* too little history: it stays as it is */
        for (int h = 0; h < horizon; h++)
            out_count[h] = last;
        return 0;
    }
    int x[WINDOW_MAX];
    int path[TM_FORECAST_STEPS_MAX];
    for (int i = 0; i < n; i++)
        x[i] = newest[i];
    remove_spikes(x, n);
    forget_before_turn(x, n);
    set_penalties(parcae, x, n);
    bool flat = is_flat(x, n);
    for (int h = 0; h < horizon; h++)
        path[h] = last;
    if (!flat) extrapolate(x, n, horizon, path);
    int first = path[0];
    for (int h = 0; h < horizon; h++)
        path[h] = clip(clip(path[h], first - SPREAD, first + SPREAD), COUNT_LOW, COUNT_HIGH);
    if (!flat && is_flat(path, horizon)) {
        double mean = loss_rate(parcae->losses + WINDOW_MAX - n, n);
        int lost = 0;
        for (int h = 0; h < horizon; h++) {
            lost += poisson(parcae, mean);
            path[h] -= lost;
        }
    }
    damp(parcae, last, path, horizon, out_count);
    return 0;
}

/* ---- life ---- */

int tm_parcae__create(const struct tm_forecaster_options *options, struct tm_parcae **out, struct tm_error *e)
{
    struct tm_parcae *parcae = tm_calloc(1, sizeof *parcae);
    if (parcae == NULL) return tm_error_nomem(e);
    parcae->in_penalty = 1;
    parcae->out_penalty = 1;
    twister_seed(parcae, (uint32_t)options->seed);
    *out = parcae;
    return 0;
}

void tm_parcae__destroy(struct tm_parcae *parcae)
{
    tm_free(parcae);
}

void tm_parcae__observe(struct tm_parcae *parcae, int count, int losses)
{
    for (int i = 1; i < WINDOW_MAX; i++) {
        parcae->counts[i - 1] = parcae->counts[i];
        parcae->losses[i - 1] = parcae->losses[i];
    }
    parcae->counts[WINDOW_MAX - 1] = count;
    parcae->losses[WINDOW_MAX - 1] = losses;
    parcae->observed++;
}
