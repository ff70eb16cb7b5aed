#include "base/units.h"

#include "base/test/harness.h"

#include <string.h>

enum { D = TM_UNIT_DURATION, M = TM_UNIT_MONEY, B = TM_UNIT_BYTES, R = TM_UNIT_RATE };

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        int kind;
        const char *text;
        int64_t value;
    } rows[] = {
        {D, "6h", 21600000},
        {D, "90m", 5400000},
        {D, "45s", 45000},
        {D, "1h30m", 5400000},
        {D, "1h 30m", 5400000},
        {D, "5.5h", 19800000},
        {D, "250ms", 250},
        {D, "2d", 172800000},
        {D, "1w", 604800000},
        {D, "0s", 0},
        {D, "1.5s250ms", 1750},
        {D, "3 min", 180000},
        {D, "10sec", 10000},
        {D, "2days", 172800000},
        {D, "1 day 2 hours", 93600000},
        {D, "90 minutes", 5400000},
        {D, "1,000h", 3600000000},
        {D, "9223372036854775807ms", INT64_MAX},
        {M, "$12.50", 12500000},
        {M, "12.5", 12500000},
        {M, "0.0031", 3100},
        {M, "$0", 0},
        {M, "$1,000", 1000000000},
        {M, "1,234,567.25", 1234567250000},
        {M, "1_000", 1000000000},
        {M, "0.0000005", 1},
        {B, "16GiB", 17179869184},
        {B, "500MB", 500000000},
        {B, "1.5 TiB", 1649267441664},
        {B, "4096", 4096},
        {B, "1kB", 1000},
        {B, "1KB", 1000},
        {B, "1KiB", 1024},
        {B, "7B", 7},
        {B, "9223372036854775807", INT64_MAX},
        {R, "25Gbit/s", 25000000000},
        {R, "10Gbps", 10000000000},
        {R, "400Mbit", 400000000},
        {R, "1 Tbit/s", 1000000000000},
        {R, "8bit/s", 8},
        {R, "2.5kbps", 2500},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int64_t value = -1;
        struct tm_error e = {0};
        int rc = tm_unit_parse((enum tm_unit_kind)rows[i].kind, rows[i].text, strlen(rows[i].text), &value, &e);
        assert_row(rc == 0, "\"%s\": %s", rows[i].text, e.text);
        assert_row(value == rows[i].value, "\"%s\": got %lld", rows[i].text, (long long)value);
    }
}

static void test_refuse(void **state)
{
    (void)state;
    static const struct {
        int kind;
        const char *text;
    } rows[] = {
        {D, ""},
        {D, "soon"},
        {D, "6"},
        {D, "h"},
        {D, "-6h"},
        {D, "6H"},
        {D, "6h "},
        {D, " 6h"},
        {D, "6hh"},
        {D, "6h30"},
        {D, "1.2.3h"},
        {D, "1e3s"},
        {D, "6h,30m"},
        {D, "inf"},
        {D, "9223372036854775808ms"},
        {D, "9999999999999999h"},
        {D, "9223372036854775807ms1ms"},
        {M, ""},
        {M, "$"},
        {M, "-1"},
        {M, "12.50$"},
        {M, "1,00"},
        {M, "$$1"},
        {M, "9223372036855"},
        {B, "GiB"},
        {B, "1gib"},
        {B, "1 G"},
        {B, "-1"},
        {B, "8388608TiB"},
        {B, "1MB2MB"},
        {B, "0x10"},
        {R, "25"},
        {R, "25Gb"},
        {R, "fast"},
        {R, "9999999999Tbit/s"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int64_t value = -77;
        struct tm_error e = {0};
        int rc = tm_unit_parse((enum tm_unit_kind)rows[i].kind, rows[i].text, strlen(rows[i].text), &value, &e);
        assert_row(rc == -(int)TM_EINPUT, "\"%s\" (kind %d): got %d", rows[i].text, rows[i].kind, rc);
        assert_row(value == -77, "\"%s\" (kind %d): output was set", rows[i].text, rows[i].kind);
        assert_error_has(e, rows[i].text);
    }
}

static void test_the_words_of_errors(void **state)
{
    (void)state;
    static const struct {
        int kind;
        const char *words;
    } rows[] = {
        {D, "expected duration, got \"soon\"; write for example 6h"},
        {M, "expected amount in dollars, got \"soon\"; write for example 12.50"},
        {B, "expected size in bytes, got \"soon\"; write for example 16GiB"},
        {R, "expected rate in bits per second, got \"soon\"; write for example 25Gbit/s"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int64_t value = 0;
        struct tm_error e = {0};
        (void)tm_unit_parse((enum tm_unit_kind)rows[i].kind, "soon", 4, &value, &e);
        assert_row_string(rows[i].words, e.text, rows[i].words);
    }
    char big[5000];
    memset(big, 'x', sizeof big);
    int64_t value = 0;
    struct tm_error e = {0};
    assert_int_equal(tm_unit_parse(TM_UNIT_BYTES, big, sizeof big, &value, &e), -(int)TM_EINPUT);
    assert_error_has(e, "xxx...\"");
    assert_true(strlen(e.text) < 200);
}

static void test_print_for_people(void **state)
{
    (void)state;
    static const struct {
        int kind;
        int64_t value;
        const char *text;
    } rows[] = {
        {D, 0, "0ms"},
        {D, 250, "250ms"},
        {D, 1000, "1s"},
        {D, 2500, "2.5s"},
        {D, 59999, "59.9s"},
        {D, 60000, "1m"},
        {D, 90000, "1m 30s"},
        {D, 5400000, "1h 30m"},
        {D, 3599600, "1h"},
        {D, 86399999, "1d"},
        {D, 100800000, "1d 4h"},
        {D, INT64_MAX, "106751991167d 7h"},
        {M, 0, "$0.00"},
        {M, 3100, "$0.0031"},
        {M, 12500000, "$12.50"},
        {M, 1000000, "$1.00"},
        {B, 0, "0 B"},
        {B, 1023, "1023 B"},
        {B, 1024, "1 KiB"},
        {B, 17179869184, "16 GiB"},
        {B, 1649267441664, "1.5 TiB"},
        {B, INT64_MAX, "8388608 TiB"},
        {R, 8, "8 bit/s"},
        {R, 25000000000, "25 Gbit/s"},
        {R, 1500, "1.5 kbit/s"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char buffer[TM_UNITS_TEXT_MAX];
        tm_unit_print((enum tm_unit_kind)rows[i].kind, rows[i].value, buffer);
        assert_row_string(rows[i].text, buffer, rows[i].text);
    }
}

static void test_print_as_a_limit(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {{0, "0ms"},       {0.12, "200ms"},  {59.95, "1m"}, {61, "1m 1s"},    {61.2, "1m 2s"},  {3599.5, "1h"},
                {9241, "2h 35m"}, {9240, "2h 34m"}, {86399, "1d"}, {97201, "1d 4h"}, {86400 * 3, "3d"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[TM_UNITS_TEXT_MAX];
        assert_row_string("a limit", tm_unit_print_limit(rows[i].seconds, text), rows[i].text);
    }
}

static void test_print_exact_reads_back(void **state)
{
    (void)state;
    static const int64_t values[] = {0,           1,           999,           1000,        1001,
                                     999999,      1000000,     5400000,       12345678901, INT64_MAX - 1,
                                     17179869184, 25000000000, INT64_MAX / 3, INT64_MAX};
    for (int kind = D; kind <= R; kind++) {
        for (size_t i = 0; i < TM_COUNT(values); i++) {
            char text[TM_UNITS_TEXT_MAX];
            int64_t back = -1;
            tm_unit_print_exact((enum tm_unit_kind)kind, values[i], text);
            int rc = tm_unit_parse((enum tm_unit_kind)kind, text, strlen(text), &back, NULL);
            assert_row(rc == 0 && back == values[i], "kind %d, %lld: \"%s\" reads as %lld", kind, (long long)values[i],
                       text, (long long)back);
        }
    }
}

static void test_names_and_examples(void **state)
{
    (void)state;
    static const char *const names[] = {"duration", "money", "bytes", "rate"};
    for (int kind = D; kind <= R; kind++) {
        const char *example = tm_unit__example((enum tm_unit_kind)kind);
        int64_t value = 0;
        assert_row_string(names[kind], tm_unit__name((enum tm_unit_kind)kind), names[kind]);
        int rc = tm_unit_parse((enum tm_unit_kind)kind, example, strlen(example), &value, NULL);
        assert_row(rc == 0 && value > 0, "example \"%s\" cannot be read", example);
    }
}

TM_TEST_MAIN(TM_TEST(test_parse), TM_TEST(test_refuse), TM_TEST(test_the_words_of_errors),
             TM_TEST(test_print_for_people), TM_TEST(test_print_as_a_limit), TM_TEST(test_print_exact_reads_back),
             TM_TEST(test_names_and_examples))
