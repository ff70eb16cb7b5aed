#include "base/number.h"

#include "base/test/harness.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"+7", true, 7},
        {"007", true, 7},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"99999999999999999999999", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"+-1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"1.0", false, 0},
        {"0x10", false, 0},
        {"1e3", false, 0},
        {"\xD9\xA3", false, 0}, /* an Arabic digit */
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int64_t value = -77;
        bool ok = tm_number_i64(rows[i].text, strlen(rows[i].text), &value);
        assert_row(ok == rows[i].ok, "\"%s\": got %d", rows[i].text, ok);
        assert_row(value == (ok ? rows[i].value : -77), "\"%s\": value %lld", rows[i].text, (long long)value);
    }
    int64_t value = 0;
    assert_true(tm_number_i64("123456", 3, &value));
    assert_int_equal(value, 123);
}

static void test_doubles(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        double value;
    } rows[] = {
        {"0", true, 0},
        {"12.5", true, 12.5},
        {"-0.25", true, -0.25},
        {".5", true, 0.5},
        {"5.", true, 5},
        {"1e3", true, 1000},
        {"1E-3", true, 0.001},
        {"+2", true, 2},
        {"0.1", true, 0.1},
        {"123456789012345", true, 123456789012345.0},
        {"1.7976931348623157e308", true, DBL_MAX},
        {"5e-324", true, 5e-324},
        {"0.30000000000000004", true, 0.30000000000000004},
        {"1e309", false, 0},
        {"nan", false, 0},
        {"inf", false, 0},
        {"-infinity", false, 0},
        {"0x1p3", false, 0},
        {"", false, 0},
        {".", false, 0},
        {"-", false, 0},
        {"-.", false, 0},
        {"e5", false, 0},
        {"1e", false, 0},
        {"1e+", false, 0},
        {"1.2.3", false, 0},
        {"--1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"1,5", false, 0},
        {"1_000", false, 0},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double value = -77;
        bool ok = tm_number_double(rows[i].text, strlen(rows[i].text), &value);
        assert_row(ok == rows[i].ok, "\"%s\": got %d", rows[i].text, ok);
        assert_row(value == (ok ? rows[i].value : -77), "\"%s\": value %.17g", rows[i].text, value);
    }
}

static void test_whole_numbers(void **state)
{
    (void)state;
    const struct {
        const char *text;
        bool good;
        int64_t value;
    } rows[] = {{"12", true, 12},
                {"1e8", true, 100000000},
                {"2.5E6", true, 2500000},
                {"-3e2", true, -300},
                {"2.5", false, 0},
                {"1.5e0", false, 0},
                {"1e16", false, 0},
                {"1e", false, 0},
                {"9007199254740993", true, 9007199254740993},
                {"1,000,000", true, 1000000},
                {"1_000_000", true, 1000000},
                {"-12,345", true, -12345},
                {"1,500k", true, 1500000},
                {"1,5", false, 0},
                {"1,0000", false, 0},
                {"1000,000", false, 0},
                {"1,000_000", false, 0},
                {"1,,000", false, 0},
                {",000", false, 0},
                {"1,000,", false, 0},
                {"10k", true, 10000},
                {"2.5M", true, 2500000},
                {"7B", true, 7000000000},
                {"7G", true, 7000000000},
                {"2T", true, 2000000000000},
                {"M", false, 0},
                {"1kM", false, 0},
                {"1e3k", false, 0},
                {"10m", false, 0},
                {"99999999T", false, 0},
                {"", false, 0}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int64_t value = 0;
        assert_int_equal(tm_number_whole(rows[i].text, strlen(rows[i].text), &value), rows[i].good);
        if (rows[i].good) assert_int_equal(value, rows[i].value);
    }
}

static void test_written_numbers(void **state)
{
    (void)state;
    const struct {
        const char *text;
        double max;
        bool good;
        double value;
    } rows[] = {{"0.95", 1, true, 0.95},     {"95%", 1, true, 0.95},     {"95%", 100, false, 0},
                {"$100", 1e9, true, 100},    {"$0.5", 1, false, 0},      {"$1,000.50", 1e9, true, 1000.5},
                {"500k", 1e9, true, 500000}, {"1_000", 1e9, true, 1000}, {"%", 1, false, 0},
                {"$", 1e9, false, 0},        {"100$", 1e9, false, 0}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double value = 0;
        bool good = tm_number_written(rows[i].text, strlen(rows[i].text), rows[i].max, &value);
        assert_row(good == rows[i].good && (!good || value == rows[i].value), "%s: %d, %g", rows[i].text, good, value);
    }
}

static void test_a_number_too_long_is_none(void **state)
{
    (void)state;
    char digits[200];
    memset(digits, '1', sizeof digits);
    double value = 0;
    assert_true(tm_number_double(digits, 63, &value));
    assert_false(tm_number_double(digits, 64, &value));
    assert_false(tm_number_double(digits, sizeof digits, &value));
}

/* Many texts of few digits: the fast path must agree with strtod. */
static void test_the_fast_path_agrees_with_strtod(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252U; /* xorshift */
    for (int i = 0; i < 20000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        char text[64];
        int places = (int)(x % 16);
        (void)snprintf(text, sizeof text, "%s%.*f", x & 1024 ? "-" : "", places, (double)(x >> 40) / 4096);
        double value = 0;
        assert_row(tm_number_double(text, strlen(text), &value), "\"%s\" is no number", text);
        assert_row(value == strtod(text, NULL), "\"%s\": got %.17g", text, value);
    }
}

static void test_print_shortest(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {0, "0"},
        {-0.0, "0"},
        {1, "1"},
        {-12.5, "-12.5"},
        {0.1, "0.1"},
        {1.0 / 3, "0.3333333333333333"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1e15, "1e+15"},
        {123456789, "123456789"},
        {9007199254740992.0, "9007199254740992"},
        {1e-7, "1e-07"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {DBL_MIN, "2.2250738585072014e-308"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char buffer[TM_NUMBER_TEXT_MAX];
        assert_true(tm_number_print(rows[i].value, buffer) == buffer);
        assert_row_string(rows[i].text, buffer, rows[i].text);
    }
}

static void test_print_reads_back(void **state)
{
    (void)state;
    uint64_t x = 1;
    for (int i = 0; i < 20000; i++) {
        x = x * 6364136223846793005U + 1442695040888963407U;
        double value = 0;
        memcpy(&value, &x, sizeof value);
        if (!isfinite(value)) continue;
        char buffer[TM_NUMBER_TEXT_MAX];
        double back = 0;
        tm_number_print(value, buffer);
        assert_row(tm_number_double(buffer, strlen(buffer), &back), "%a: \"%s\" is no number", value, buffer);
        assert_row(back == value, "%a: \"%s\" reads as %a", value, buffer, back);
    }
}

static void test_scaled_is_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t unit;
        bool ok;
        int64_t value;
    } rows[] = {
        {"12.5", 1000000, true, 12500000},
        {"0", 1000, true, 0},
        {".5", 1000, true, 500},
        {"5.", 1000, true, 5000},
        {"0.0000004", 1000000, true, 0},
        {"0.0000005", 1000000, true, 1}, /* half up */
        {"0.00000049999999999999999999999999999999", 1000000, true, 0},
        {"109234.7275", 1000, true, 109234728}, /* these three went down in floating point */
        {"124.0033835", 1000000, true, 124003384},
        {"2.7159285", 1000000, true, 2715929},
        {"0.99999999999999999999999999999999", 1000, true, 1000},
        {"9223372036854775807", 1, true, INT64_MAX},
        {"9223372036854.775807", 1000000, true, INT64_MAX},
        {"9223372036854.775808", 1000000, false, 0},
        {"9223372036854775808", 1, false, 0},
        {"9223372036854775807", 2, false, 0},
        {"9223372036854775807.5", 1, false, 0},
        {"0.9", INT64_MAX, false, 0},
        {"", 1, false, 0},
        {".", 1, false, 0},
        {"-1", 1, false, 0},
        {"+1", 1, false, 0},
        {"1e3", 1, false, 0},
        {"1.2.3", 1, false, 0},
        {"1 ", 1, false, 0},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int64_t value = 0;
        bool ok = tm_number_scaled(rows[i].text, strlen(rows[i].text), rows[i].unit, &value);
        assert_row(ok == rows[i].ok, "\"%s\" x %lld: got %d", rows[i].text, (long long)rows[i].unit, ok);
        assert_row(!ok || value == rows[i].value, "\"%s\" x %lld: value %lld", rows[i].text, (long long)rows[i].unit,
                   (long long)value);
    }
}

static void test_sums_and_products(void **state)
{
    (void)state;
    static const struct {
        int64_t a;
        int64_t b;
        bool add_ok;
        bool mul_ok;
    } rows[] = {
        {2, 3, true, true},
        {-2, 3, true, true},
        {INT64_MAX, 0, true, true},
        {INT64_MAX, 1, false, true},
        {INT64_MIN, -1, false, false},
        {INT64_MAX, INT64_MAX, false, false},
        {INT64_MAX, INT64_MIN, true, false},
        {3037000500, 3037000500, true, false},
        {3037000499, 3037000499, true, true},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int64_t out = 0;
        bool add_ok = tm_number__add(rows[i].a, rows[i].b, &out);
        assert_row(add_ok == rows[i].add_ok && (!add_ok || out - rows[i].b == rows[i].a), "row %zu: sum", i);
        bool mul_ok = tm_number__mul(rows[i].a, rows[i].b, &out);
        assert_row(mul_ok == rows[i].mul_ok, "row %zu: product", i);
        assert_row(!mul_ok || rows[i].b == 0 || out / rows[i].b == rows[i].a, "row %zu: %lld", i, (long long)out);
    }
}

TM_TEST_MAIN(TM_TEST(test_integers), TM_TEST(test_doubles), TM_TEST(test_whole_numbers), TM_TEST(test_written_numbers),
             TM_TEST(test_a_number_too_long_is_none), TM_TEST(test_the_fast_path_agrees_with_strtod),
             TM_TEST(test_print_shortest), TM_TEST(test_print_reads_back), TM_TEST(test_scaled_is_exact),
             TM_TEST(test_sums_and_products))
