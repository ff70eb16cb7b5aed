/* CSV rows out of memory: RFC 4180 quoting, LF or CRLF, a byte order mark skipped, blank lines skipped, '#' comment
 * lines skipped where asked. Everything has a limit, and errors name file and line. */
#ifndef TM_BASE_CSV_H
#define TM_BASE_CSV_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { TM_CSV_FIELDS_MAX = 64, TM_CSV_ROW_BYTES_MAX = 1 << 16 };

struct tm_slice {
    const char *data;
    size_t length;
};

bool tm_slice_equals(struct tm_slice slice, const char *string);
struct tm_slice tm_slice_trim(struct tm_slice slice); /* without blanks around it */

/* No control characters in it: may stand in a table or a key. */
bool tm_slice_is_plain(struct tm_slice slice);

struct tm_csv {
    const char *file; /* for messages; borrowed */
    const char *data; /* borrowed */
    size_t length;
    size_t at;
    bool comments; /* skip lines that start with '#' */
    int line;      /* of the row last given, from 1 */
    int next_line;
    size_t row_at; /* where the row last given starts */
    struct tm_slice fields[TM_CSV_FIELDS_MAX];
    size_t field_count;
    char unquoted[TM_CSV_ROW_BYTES_MAX]; /* where quoted fields lose their quotes */
};

/* `csv` is large: give it its own allocation. `data` must outlive it. */
void tm_csv_init(struct tm_csv *csv, const char *file, const char *data, size_t length);

/* The next row into csv->fields. 1: there is one; 0: the end; negative: an error that names file and line (the row
 * is skipped: reading may go on behind it). Slices hold until the next call. */
int tm_csv_next(struct tm_csv *csv, struct tm_error *e);

/* The row last read as it stands in the file, commas, quotes and all; blanks around it are left out. For lines such as
 * "key: any, text". */
struct tm_slice tm_csv_raw(const struct tm_csv *csv);

/* Splits "key: value" (a raw row) at its first colon; false if there is none. */
bool tm_csv_key(struct tm_slice raw, struct tm_slice *out_key, struct tm_slice *out_value);

/* Index of the column called `name` in the row last read, or -1. */
int tm_csv_find(const struct tm_csv *csv, const char *name);

#endif
