/* Dates of RFC 1123, on top of the calendar. */
#include "cloud/metadata.h"

#include "base/calendar.h"
#include "base/number.h"

#include <stdio.h>
#include <string.h>

static const char *const days[] = {"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"}; /* 1970 began with the first */
static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

static int number_at(const char *text, size_t length) /* -1: none */
{
    int64_t value = 0;
    return tm_number_i64(text, length, &value) && value >= 0 ? (int)value : -1;
}

void tm_http_date__print(int64_t utc_ms, char buffer[40])
{
    char iso[TM_CALENDAR_TEXT_MAX];
    (void)tm_calendar_print(utc_ms, iso); /* 2016-09-19T18:29:47Z */
    int month = number_at(iso + 5, 2);
    int64_t day = utc_ms / 86400000;
    (void)snprintf(buffer, 40, "%s, %.2s %s %.4s %.8s GMT", days[(day % 7 + 7) % 7], iso + 8,
                   months[month >= 1 && month <= 12 ? month - 1 : 0], iso, iso + 11);
}

bool tm_http_date__parse(const char *text, size_t length, int64_t *out_utc_ms)
{
    char iso[TM_CALENDAR_TEXT_MAX];
    if (length != 29 || memcmp(text + 3, ", ", 2) != 0 || memcmp(text + 25, " GMT", 4) != 0) return false;
    for (int month = 0; month < 12; month++) {
        if (memcmp(text + 8, months[month], 3) != 0) continue;
        int written = snprintf(iso, sizeof iso, "%.4s-%02d-%.2sT%.8sZ", text + 12, month + 1, text + 5, text + 17);
        return written == 20 && tm_calendar_parse(iso, 20, out_utc_ms);
    }
    return false;
}
