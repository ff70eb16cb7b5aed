#include "workload/fit.h"

#include "base/random.h"
#include "workload/test/workload_helpers.h"

/* ---- Cholesky ---- */

enum { SIZE_MAX_TESTED = 3 };

static const struct {
    const char *name;
    size_t n;
    double a[SIZE_MAX_TESTED * SIZE_MAX_TESTED];
    double b[SIZE_MAX_TESTED];
    double x[SIZE_MAX_TESTED];
} systems[] = {
    {"one", 1, {4}, {8}, {2}},
    {"identity", 3, {1, 0, 0, 0, 1, 0, 0, 0, 1}, {1, -2, 3}, {1, -2, 3}},
    {"two", 2, {4, 2, 2, 3}, {8, 8}, {1, 2}},
    {"three", 3, {25, 15, -5, 15, 18, 0, -5, 0, 11}, {40, 51, 28}, {1, 2, 3}},
    {"far apart", 2, {1e-12, 0, 0, 1e12}, {2e-12, 3e12}, {2, 3}},
    {"nothing", 2, {2, 1, 1, 2}, {0, 0}, {0, 0}},
};

static void test_cholesky(void **state)
{
    (void)state;
    for (size_t i = 0; i < TM_COUNT(systems); i++) {
        double a[SIZE_MAX_TESTED * SIZE_MAX_TESTED];
        double b[SIZE_MAX_TESTED];
        memcpy(a, systems[i].a, sizeof a);
        memcpy(b, systems[i].b, sizeof b);
        assert_row(tm_fit__cholesky(systems[i].n, a, b) == 0, "%s: refused", systems[i].name);
        for (size_t k = 0; k < systems[i].n; k++)
            assert_row(fabs(b[k] - systems[i].x[k]) < 1e-12, "%s: x%zu is %g", systems[i].name, k, b[k]);
    }
}

static void test_cholesky_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double a[4];
    } rows[] = {{"zero", {0, 0, 0, 0}},          {"negative", {-1, 0, 0, 1}}, {"indefinite", {1, 2, 2, 1}},
                {"singular", {1, 1, 1, 1}},      {"NaN", {NAN, 0, 0, 1}},     {"NaN aside", {1, NAN, NAN, 1}},
                {"negative last", {1, 0, 0, -1}}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double a[4];
        double b[2] = {1, 1};
        memcpy(a, rows[i].a, sizeof a);
        assert_row(tm_fit__cholesky(2, a, b) != 0, "%s: taken for positive definite", rows[i].name);
    }
}

/* ---- lines and curves ---- */

enum { POINTS_MAX = 200 };

struct points {
    double at[POINTS_MAX];
    double value[POINTS_MAX];
    double noise;
};

static double line_residual(const void *context, const double *x, size_t i)
{
    const struct points *points = context;
    return (x[0] + x[1] * points->at[i] - points->value[i]) / points->noise;
}

static double decay_residual(const void *context, const double *x, size_t i)
{
    const struct points *points = context;
    return (exp(x[0]) * exp(-exp(x[1]) * points->at[i]) + x[2] - points->value[i]) / points->noise;
}

/* Sums of uniform numbers: near enough to a normal of standard deviation 1. */
static double bell(struct tm_random *random)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += tm_random_unit(random);
    return sum;
}

static void solve(const struct tm_fit *fit, double *x)
{
    struct tm_error e = {0};
    int rc = tm_fit__solve(fit, x, &e);
    assert_row(rc == 0, "%s", e.text);
}

/* Points on a line give that line, whatever the prior, if they are many times surer than it. */
static void test_exact_line(void **state)
{
    (void)state;
    static const double lines[][2] = {{0, 0}, {1, 2}, {-3, 0.5}, {1000, -7}, {0.001, 1e4}};
    static const double prior[] = {0.3, -0.3};
    static const double spread[] = {1e6, 1e6};
    for (size_t i = 0; i < TM_COUNT(lines); i++) {
        struct points points = {.noise = 0.01};
        for (size_t k = 0; k < 10; k++) {
            points.at[k] = (double)k;
            points.value[k] = lines[i][0] + lines[i][1] * (double)k;
        }
        struct tm_fit fit = {2, 10, prior, spread, 0, line_residual, &points};
        double x[2];
        solve(&fit, x);
        for (size_t k = 0; k < 2; k++)
            assert_row(fabs(x[k] - lines[i][k]) < 1e-6 * (1 + fabs(lines[i][k])), "line %zu: x%zu is %.9g", i, k, x[k]);
    }
}

/* Least squares of (0,0) (1,1) (2,1) (3,2): x = (0.1, 0.6), by the normal equations on paper. */
static void test_known_least_squares(void **state)
{
    (void)state;
    static const double prior[] = {0, 0};
    static const double spread[] = {1e8, 1e8};
    struct points points = {.at = {0, 1, 2, 3}, .value = {0, 1, 1, 2}, .noise = 1};
    struct tm_fit fit = {2, 4, prior, spread, 0, line_residual, &points};
    double x[2];
    solve(&fit, x);
    assert_true(fabs(x[0] - 0.1) < 1e-6 && fabs(x[1] - 0.6) < 1e-6);
}

/* A measurement and a prior of one unknown meet where their precisions balance. */
static double single_residual(const void *context, const double *x, size_t i)
{
    (void)i;
    return x[0] - *(const double *)context;
}

static void test_prior_weighs(void **state)
{
    (void)state;
    static const struct {
        double spread;
        size_t residuals;
        double want;
    } rows[] = {{1, 1, 5}, {1, 4, 8}, {2, 1, 8}, {0.5, 1, 2}, {1e-6, 1, 0}, {1e6, 1, 10}, {3, 0, 0}};
    static const double prior[] = {0};
    double measured = 10;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_fit fit = {1, rows[i].residuals, prior, &rows[i].spread, 0, single_residual, &measured};
        double x[1];
        solve(&fit, x);
        assert_row(fabs(x[0] - rows[i].want) < 1e-5, "row %zu: %g, want %g", i, x[0], rows[i].want);
    }
}

/* Without data, and in what the data do not say, the prior stands. */
static void test_prior_only(void **state)
{
    (void)state;
    static const double prior[] = {3, -4};
    static const double spread[] = {0.5, 2};
    struct points points = {.at = {0}, .value = {7}, .noise = 1e-3};
    struct tm_fit fit = {2, 0, prior, spread, 1, line_residual, &points};
    double x[2];
    solve(&fit, x);
    assert_true(x[0] == 3 && x[1] == -4);
    fit.residuals = 1; /* a point at 0 says nothing of the slope */
    fit.robust = 0;
    solve(&fit, x);
    assert_true(fabs(x[0] - 7) < 1e-4 && fabs(x[1] + 4) < 1e-6);
}

static void test_exponential_decay(void **state)
{
    (void)state;
    static const double truth[] = {1.2, -0.7, 0.5};
    static const double spread[] = {2, 2, 2};
    static const double priors[][3] = {{0, 0, 0}, {2, -2, 1}, {0.5, 0.5, -1}};
    struct tm_random random = tm_random_make(7, 0);
    struct points points = {.noise = 0.01};
    for (size_t k = 0; k < 60; k++) {
        points.at[k] = 0.1 * (double)k;
        points.value[k] = decay_residual(&(struct points){.at = {points.at[k]}, .noise = 1}, truth, 0);
        points.value[k] += 0.01 * bell(&random);
    }
    for (size_t i = 0; i < TM_COUNT(priors); i++) {
        struct tm_fit fit = {3, 60, priors[i], spread, 0, decay_residual, &points};
        double x[3];
        solve(&fit, x);
        for (size_t k = 0; k < 3; k++)
            assert_row(fabs(x[k] - truth[k]) < 0.03, "prior %zu: x%zu is %g", i, k, x[k]);
    }
}

/* ---- wild points ---- */

/* A noisy line of 200 points; every 20th (5%) is moved up by 100 times the noise. */
static void make_line(struct points *points, bool wild)
{
    struct tm_random random = tm_random_make(11, 0);
    *points = (struct points){.noise = 0.1};
    for (size_t k = 0; k < POINTS_MAX; k++) {
        points->at[k] = (double)k / POINTS_MAX;
        points->value[k] = 2 + 3 * points->at[k] + 0.1 * bell(&random);
        if (wild && k % 20 == 0) points->value[k] += 10;
    }
}

/* Plain squares follow the wild points (5% of 10 is 0.5); the robust fit stays within half the noise of one point. */
static void test_wild_points(void **state)
{
    (void)state;
    static const double prior[] = {0, 0};
    static const double spread[] = {1e4, 1e4};
    double clean[2];
    double robust[2];
    double plain[2];
    struct points points;
    make_line(&points, false);
    struct tm_fit fit = {2, POINTS_MAX, prior, spread, 1, line_residual, &points};
    solve(&fit, clean);
    make_line(&points, true);
    solve(&fit, robust);
    fit.robust = 0;
    solve(&fit, plain);
    double middle_moved = fabs(robust[0] + robust[1] / 2 - clean[0] - clean[1] / 2);
    assert_true(fabs(clean[0] - 2) < 0.05 && fabs(clean[1] - 3) < 0.1);
    assert_row(middle_moved < 0.05, "moved by %g", middle_moved);
    assert_row(fabs(robust[1] - clean[1]) < 0.05, "slope moved by %g", robust[1] - clean[1]);
    assert_row(fabs(plain[0] + plain[1] / 2 - clean[0] - clean[1] / 2) > 0.4, "squares did not move");
}

/* ---- what cannot be solved ---- */

static double broken_residual(const void *context, const double *x, size_t i)
{
    (void)i;
    return *(const double *)context * x[0];
}

/* Not a number anywhere but at the prior: the fit stays where it can. */
static double edge_residual(const void *context, const double *x, size_t i)
{
    (void)context;
    (void)i;
    return x[0] == 1 ? 5 : NAN;
}

static void test_residuals_that_are_no_numbers(void **state)
{
    (void)state;
    static const double prior[] = {1};
    static const double spread[] = {1};
    static const double broken[] = {NAN, INFINITY, -INFINITY};
    struct tm_error e = {0};
    double x[1];
    for (size_t i = 0; i < TM_COUNT(broken); i++) {
        struct tm_fit fit = {1, 2, prior, spread, 1, broken_residual, &broken[i]};
        assert_row(tm_fit__solve(&fit, x, &e) == -(int)TM_EINTERNAL, "row %zu", i);
    }
    assert_error_has(e, "not numbers");
    struct tm_fit fit = {1, 2, prior, spread, 1, edge_residual, NULL};
    assert_int_equal(tm_fit__solve(&fit, x, &e), 0);
    assert_true(x[0] == 1);
}

TM_TEST_MAIN(TM_TEST(test_cholesky), TM_TEST(test_cholesky_refuses), TM_TEST(test_exact_line),
             TM_TEST(test_known_least_squares), TM_TEST(test_prior_weighs), TM_TEST(test_prior_only),
             TM_TEST(test_exponential_decay), TM_TEST(test_wild_points), TM_TEST(test_residuals_that_are_no_numbers))
