#include "base/calendar.h"

#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {
        {"1970-01-01", 0},
        {"1969-12-31T23:59:59.999Z", -1},
        {"2022-11-28", 1669593600000},
        {"2022-11-28T22:23", 1669674180000},
        {"2022-11-28 22:23:37", 1669674217000},
        {"2022-11-28T22:23:37Z", 1669674217000},
        {"2022-11-28T22:23:37.000Z", 1669674217000},
        {"2022-11-28T22:23:37.5", 1669674217500},
        {"2022-11-28T22:23:37.123456789Z", 1669674217123},
        {"2022-11-28T22:23:37+00:00", 1669674217000},
        {"2022-11-28T14:23:37-08:00", 1669674217000},
        {"2022-11-29T03:53:37+0530", 1669674217000},
        {"2000-02-29", 951782400000},
        {"2024-02-29", 1709164800000},
        {"2016-12-31T23:59:60Z", 1483228800000}, /* a leap second is the next second */
        {"0000-01-01", -62167219200000},
        {"9999-12-31T23:59:59.999Z", 253402300799999},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int64_t ms = -77;
        assert_row(tm_calendar_parse(rows[i].text, strlen(rows[i].text), &ms), "\"%s\" was refused", rows[i].text);
        assert_row(ms == rows[i].ms, "\"%s\": got %lld", rows[i].text, (long long)ms);
    }
}

static void test_refuse(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "2022",
        "2022-11",
        "2022-13-01",
        "2022-00-01",
        "2022-11-31",
        "2022-11-00",
        "2022-02-29",
        "1900-02-29",
        "2100-02-29",
        "22-11-28",
        "2022-1-28",
        "2022/11/28",
        "2022-11-28T",
        "2022-11-28T22",
        "2022-11-28T24:00",
        "2022-11-28T22:60",
        "2022-11-28T22:23:61",
        "2022-11-28T22:23:",
        "2022-11-28T22:23:37.",
        "2022-11-28T22:23:37X",
        "2022-11-28T22:23:37+",
        "2022-11-28T22:23:37+15:00",
        "2022-11-28T22:23:37+08:60",
        "2022-11-28T22:23:37Zx",
        "2022-11-28T22:23:37+08:00Z",
        "2022-11-28x",
        "2022-11-28Z",
        " 2022-11-28",
        "2022-11-28 ",
        "-022-11-28",
        "20221128",
        "now",
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int64_t ms = -77;
        assert_row(!tm_calendar_parse(rows[i], strlen(rows[i]), &ms), "\"%s\" was taken", rows[i]);
        assert_row(ms == -77, "\"%s\": output was set", rows[i]);
    }
}

static void test_print(void **state)
{
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } rows[] = {
        {0, "1970-01-01T00:00:00Z"},
        {-1, "1969-12-31T23:59:59.999Z"},
        {1669674217000, "2022-11-28T22:23:37Z"},
        {1669674217123, "2022-11-28T22:23:37.123Z"},
        {1709164800007, "2024-02-29T00:00:00.007Z"},
        {253402300800000, "10000-01-01T00:00:00Z"},
        {INT64_MAX, "292278994-08-17T07:12:55.807Z"},
        {INT64_MIN, "-292275055-05-16T16:47:04.192Z"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char buffer[TM_CALENDAR_TEXT_MAX];
        assert_row_string(rows[i].text, tm_calendar_print(rows[i].ms, buffer), rows[i].text);
        tm_calendar_print_day(rows[i].ms, buffer);
        assert_row(strncmp(rows[i].text, buffer, strlen(buffer)) == 0 && rows[i].text[strlen(buffer)] == 'T',
                   "%s: day \"%s\"", rows[i].text, buffer);
    }
}

/* Every 5th day over 800 years, against the C library. */
static void test_days_agree_with_gmtime(void **state)
{
    (void)state;
    for (int64_t day = -146097; day <= 146097; day += 5) {
        time_t seconds = (time_t)(day * 86400);
        struct tm parts;
        assert_non_null(gmtime_r(&seconds, &parts));
        char want[64];
        char got[TM_CALENDAR_TEXT_MAX];
        (void)snprintf(want, sizeof want, "%04d-%02d-%02d", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
        assert_row_string(want, tm_calendar_print_day(day * 86400000, got), want);
        int64_t back = 1;
        assert_row(tm_calendar_parse(want, strlen(want), &back) && back == day * 86400000, "%s does not read back",
                   want);
    }
}

TM_TEST_MAIN(TM_TEST(test_parse), TM_TEST(test_refuse), TM_TEST(test_print), TM_TEST(test_days_agree_with_gmtime))
