/* Rows of measured steps that describe their network by its sizes: family, layers, hidden, heads, ... */
#ifndef TM_WORKLOAD_PROFILE_SIZES_H
#define TM_WORKLOAD_PROFILE_SIZES_H

#include "base/csv.h"

#include <stdbool.h>
#include <stdint.h>

enum { TM_PROFILE_SIZES = 17, TM_PROFILE_FORMULA_MAX = 400, TM_PROFILE_NAME_MAX = 96 };

/* Where the columns are in the rows; -1: missing. */
struct tm_profile__sizes {
    int family_at;
    int params_at;
    int at[TM_PROFILE_SIZES];
};

/* The column that has one of these names, separated by '|', in any letters; the first name that there is wins. -1:
 * none. */
int tm_profile__column(const struct tm_csv *csv, const char *names);
struct tm_slice tm_profile__field(const struct tm_csv *csv, int at); /* without blanks; "" where `at` is -1 */

/* Is this a field that nobody filled: empty, nan, n/a, none, null, - or oom? */
bool tm_profile__is_missing(struct tm_slice text);
/* 0 or 1, false or true, no or yes, off or on. */
bool tm_profile__flag(struct tm_slice text, int *out);
/* A whole number, also written as 12.0. */
bool tm_profile__whole(struct tm_slice text, int64_t *out);
/* Is it this word, in any letters? */
bool tm_profile__is_word(struct tm_slice text, const char *word);

void tm_profile__find_sizes(const struct tm_csv *csv, struct tm_profile__sizes *out);
/* The formula of the row last read (workload/model.h), with semicolons, and a name for it: gpt-12x768-1024. What the
 * row does not say of its head and its heads' width is what its `params` fit. -TM_EINPUT names line and column. */
int tm_profile__read_sizes(const struct tm_csv *csv, const struct tm_profile__sizes *sizes,
                           char formula[TM_PROFILE_FORMULA_MAX], char name[TM_PROFILE_NAME_MAX], struct tm_error *e);

#endif
