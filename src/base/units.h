/* Quantities with units: durations, money, bytes, rates. Whole numbers inside, overflow checked.
 *
 *     duration   int64_t milliseconds       "6h" "90m" "45s" "1h30m" "5.5h" "250ms" "2d" "2 days"
 *     money      int64_t millionths of $    "$12.50" "12.5" "0.0031" "$1,000"
 *     bytes      int64_t bytes              "16GiB" "500MB" "1.5 TiB" "4096"
 *     rate       int64_t bits per second    "25Gbit/s" "10Gbps" "400Mbit"
 *
 * All are non-negative. An error says what was expected, what was found and an example. */
#ifndef TM_BASE_UNITS_H
#define TM_BASE_UNITS_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define TM_UNITS_TEXT_MAX 48

enum tm_unit_kind { TM_UNIT_DURATION, TM_UNIT_MONEY, TM_UNIT_BYTES, TM_UNIT_RATE };

/* Reads a quantity of a kind: `expected duration, got "soon"; write for example 6h`, as -TM_EINPUT. */
int tm_unit_parse(enum tm_unit_kind kind, const char *text, size_t length, int64_t *out, struct tm_error *e);

/* Prints a quantity for people ("1h 30m", "$12.50", "16 GiB", "25 Gbit/s"). Returns `buffer`. */
const char *tm_unit_print(enum tm_unit_kind kind, int64_t value, char buffer[TM_UNITS_TEXT_MAX]);

/* Prints a quantity so that tm_unit_parse gives it back exactly ("5400s", "12.5", "17179869184", "25000000000bit/s").
 */
const char *tm_unit_print_exact(enum tm_unit_kind kind, int64_t value, char buffer[TM_UNITS_TEXT_MAX]);

/* Seconds, rounded up to what tm_unit_print shows of them: who takes it for a limit has enough. */
const char *tm_unit_print_limit(double seconds, char buffer[TM_UNITS_TEXT_MAX]);

const char *tm_unit__name(enum tm_unit_kind kind);    /* "duration" */
const char *tm_unit__example(enum tm_unit_kind kind); /* "6h" */

#endif
