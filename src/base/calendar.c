#include "base/calendar.h"

#include <stdio.h>

/* Days since 1970-01-01 of a day in the proleptic Gregorian calendar, by counting years from March, so that the leap
 * day is the last of a year. */
static int64_t days_from_civil(int64_t year, int month, int day)
{
    if (month <= 2) year--;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static void civil_from_days(int64_t days, int *year, int *month, int *day)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t day_of_era = days - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t shifted_month = (5 * day_of_year + 2) / 153;
    *day = (int)(day_of_year - (153 * shifted_month + 2) / 5 + 1);
    *month = (int)(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
    *year = (int)(year_of_era + era * 400 + (*month <= 2));
}

static bool read_digits(const char *text, size_t length, size_t *at, int count, int *out)
{
    int value = 0;
    for (int i = 0; i < count; i++, (*at)++) {
        if (*at >= length || text[*at] < '0' || text[*at] > '9') return false;
        value = value * 10 + (text[*at] - '0');
    }
    *out = value;
    return true;
}

static bool read_char(const char *text, size_t length, size_t *at, char c)
{
    if (*at >= length || text[*at] != c) return false;
    (*at)++;
    return true;
}

static bool read_day(const char *text, size_t length, size_t *at, int64_t *out_days)
{
    static const int month_days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = 0;
    int month = 0;
    int day = 0;
    if (!read_digits(text, length, at, 4, &year) || !read_char(text, length, at, '-') ||
        !read_digits(text, length, at, 2, &month) || !read_char(text, length, at, '-') ||
        !read_digits(text, length, at, 2, &day))
        return false;
    if (month < 1 || month > 12 || day < 1 || day > month_days[month - 1]) return false;
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (month == 2 && day == 29 && !leap) return false;
    *out_days = days_from_civil(year, month, day);
    return true;
}

static bool read_clock(const char *text, size_t length, size_t *at, int64_t *out_ms)
{
    int hour = 0;
    int minute = 0;
    int second = 0;
    if (!read_digits(text, length, at, 2, &hour) || !read_char(text, length, at, ':') ||
        !read_digits(text, length, at, 2, &minute))
        return false;
    if (read_char(text, length, at, ':') && !read_digits(text, length, at, 2, &second)) return false;
    if (hour > 23 || minute > 59 || second > 60) return false;
    int64_t ms = ((int64_t)hour * 3600 + minute * 60 + second) * 1000;
    if (read_char(text, length, at, '.')) {
        int64_t unit = 100;
        size_t first = *at;
        for (; *at < length && text[*at] >= '0' && text[*at] <= '9'; (*at)++, unit /= 10)
            ms += unit * (text[*at] - '0');
        if (*at == first) return false;
    }
    *out_ms = ms;
    return true;
}

static bool read_offset(const char *text, size_t length, size_t *at, int64_t *out_ms)
{
    *out_ms = 0;
    if (*at == length || read_char(text, length, at, 'Z')) return true;
    bool west = text[*at] == '-';
    if (!west && text[*at] != '+') return false;
    (*at)++;
    int hour = 0;
    int minute = 0;
    if (!read_digits(text, length, at, 2, &hour)) return false;
    (void)read_char(text, length, at, ':');
    if (!read_digits(text, length, at, 2, &minute) || hour > 14 || minute > 59) return false;
    int64_t ms = ((int64_t)hour * 60 + minute) * 60000;
    *out_ms = west ? -ms : ms;
    return true;
}

bool tm_calendar_parse(const char *text, size_t length, int64_t *out_ms)
{
    size_t at = 0;
    int64_t days = 0;
    int64_t clock_ms = 0;
    int64_t offset_ms = 0;
    if (!read_day(text, length, &at, &days)) return false;
    if (at < length) {
        if (text[at] != 'T' && text[at] != ' ') return false;
        at++;
        if (!read_clock(text, length, &at, &clock_ms) || !read_offset(text, length, &at, &offset_ms)) return false;
    }
    if (at != length) return false;
    *out_ms = days * 86400000 + clock_ms - offset_ms;
    return true;
}

const char *tm_calendar_print_day(int64_t ms, char buffer[TM_CALENDAR_TEXT_MAX])
{
    int64_t days = ms / 86400000 - (ms % 86400000 < 0);
    int year = 0;
    int month = 0;
    int day = 0;
    civil_from_days(days, &year, &month, &day);
    (void)snprintf(buffer, TM_CALENDAR_TEXT_MAX, "%04d-%02d-%02d", year, month, day);
    return buffer;
}

const char *tm_calendar_print(int64_t ms, char buffer[TM_CALENDAR_TEXT_MAX])
{
    int64_t of_day = ((ms % 86400000) + 86400000) % 86400000;
    char day[TM_CALENDAR_TEXT_MAX];
    tm_calendar_print_day(ms, day);
    int hour = (int)(of_day / 3600000);
    int minute = (int)(of_day / 60000 % 60);
    int second = (int)(of_day / 1000 % 60);
    int milli = (int)(of_day % 1000);
    if (milli == 0)
        (void)snprintf(buffer, TM_CALENDAR_TEXT_MAX, "%.16sT%02d:%02d:%02dZ", day, hour, minute, second);
    else
        (void)snprintf(buffer, TM_CALENDAR_TEXT_MAX, "%.16sT%02d:%02d:%02d.%03dZ", day, hour, minute, second, milli);
    return buffer;
}
