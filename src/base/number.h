/* Numbers as text: strict reading (the whole text, no NaN, no infinity, no hex), shortest exact printing. */
#ifndef TM_BASE_NUMBER_H
#define TM_BASE_NUMBER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_NUMBER_TEXT_MAX 32

/* True and *out set if the `length` bytes are one decimal number, and nothing else. Blanks are not skipped. */
bool tm_number_i64(const char *text, size_t length, int64_t *out);
bool tm_number_double(const char *text, size_t length, double *out);
/* Copies a number without the commas or underscores between groups of three digits: 1,000,000 and 1_000_000. Returns
 * the length of the copy; 0 where nothing is grouped so, or it is longer than `size` has room for. */
size_t tm_number__ungroup(const char *text, size_t length, char *copy, size_t size);
/* A number as people write them: 0.95, 1,000.50, 500k, 1e6; "$100" where `max` is above 1, "95%" (0.95) where it is
 * not. */
bool tm_number_written(const char *text, size_t length, double max, double *out);
/* A whole number, also as people write large ones: 1,000,000, 1_000_000, 1e8, 2.5e6, 10k, 2.5M, 7B (or 7G), 2T. */
bool tm_number_whole(const char *text, size_t length, int64_t *out);

/* The shortest decimal text that reads back as exactly `value`; "0" for -0; not for NaN or infinity.
 * Returns `buffer`. */
const char *tm_number_print(double value, char buffer[TM_NUMBER_TEXT_MAX]);

/* A decimal like "12.5" times `unit`, exactly, rounded half up to an integer; false where the text is no plain
 * decimal or the result leaves [0, INT64_MAX]. */
bool tm_number_scaled(const char *text, size_t length, int64_t unit, int64_t *out);

/* a + b and a * b; false on overflow. */
bool tm_number__add(int64_t a, int64_t b, int64_t *out);
bool tm_number__mul(int64_t a, int64_t b, int64_t *out);

#endif
