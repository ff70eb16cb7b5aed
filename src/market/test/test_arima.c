#include "market/arima.h"

#include "market/test/market_helpers.h"

/* Rows of tests/oracle/arima_rows.txt: statsmodels' exact maximum likelihood. It stops at gradients of about 1e-5, so
 * parameters agree to some 1e-3 where the likelihood is flat; ours must never be the less likely one. */
static void test_statsmodels(void **state)
{
    (void)state;
    FILE *file = fopen(TIDEMILL_SOURCE_DIR "/tests/oracle/arima_rows.txt", "r");
    assert_non_null(file);
    char line[512];
    int rows = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (line[0] == '#') continue;
        double counts[64];
        double d[64];
        size_t n = 0;
        char *at = line;
        for (; *at != ';' && n < 64; n++)
            counts[n] = strtod(at, &at);
        for (size_t i = 1; i < n; i++)
            d[i - 1] = counts[i] - counts[i - 1];
        struct tm_arima theirs = {0};
        theirs.mu = strtod(at + 1, &at);
        theirs.phi = strtod(at + 1, &at);
        struct tm_arima ours = tm_arima__fit(d, n - 1);
        assert_row(near(ours.mu, theirs.mu, 2e-3) && near(ours.phi, theirs.phi, 2e-3), "%smu %f phi %f", line, ours.mu,
                   ours.phi);
        double ahead = tm_arima__log_likelihood(d, n - 1, ours) - tm_arima__log_likelihood(d, n - 1, theirs);
        assert_row(ahead > -1e-9, "%sless likely by %g", line, -ahead);
        rows++;
    }
    (void)fclose(file);
    assert_true(rows >= 20);
}

static void test_without_noise(void **state)
{
    (void)state;
    const double steady[] = {2, 2, 2, 2};
    struct tm_arima model = tm_arima__fit(steady, 4);
    assert_true(model.mu == 2 && model.phi == 0);
    double path[3];
    tm_arima__extrapolate(model, 10, 2, path, 3);
    assert_true(path[0] == 12 && path[1] == 14 && path[2] == 16);
}

/* x_{T+h} = x_{T+h-1} + d, d going back to mu as phi^h. */
static void test_extrapolation(void **state)
{
    (void)state;
    struct tm_arima model = {.mu = 1, .phi = 0.5};
    double path[3];
    tm_arima__extrapolate(model, 10, 5, path, 3);
    assert_true(near(path[0], 13, 1e-12) && near(path[1], 15, 1e-12) && near(path[2], 16.5, 1e-12));
}

TM_TEST_MAIN(TM_TEST(test_statsmodels), TM_TEST(test_without_noise), TM_TEST(test_extrapolation))
