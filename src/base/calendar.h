/* Points in time: milliseconds since 1970-01-01T00:00:00Z, in UTC, without the C library's time zones. */
#ifndef TM_BASE_CALENDAR_H
#define TM_BASE_CALENDAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_CALENDAR_TEXT_MAX 32

/* Reads ISO 8601 as clouds write it: "2022-11-28", "2022-11-28T22:23", "2022-11-28 22:23:37", with ".000", and "Z" or
 * "+00:00" or "-08:00" behind it (none: UTC). False where the text is something else or no such day. */
bool tm_calendar_parse(const char *text, size_t length, int64_t *out_ms);

/* "2022-11-28T22:23:37Z", with ".123" where there are milliseconds. */
const char *tm_calendar_print(int64_t ms, char buffer[TM_CALENDAR_TEXT_MAX]);
/* "2022-11-28". */
const char *tm_calendar_print_day(int64_t ms, char buffer[TM_CALENDAR_TEXT_MAX]);

#endif
