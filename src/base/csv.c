#include "base/csv.h"

#include <string.h>

bool tm_slice_equals(struct tm_slice slice, const char *string)
{
    return strlen(string) == slice.length && memcmp(slice.data, string, slice.length) == 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

struct tm_slice tm_slice_trim(struct tm_slice slice)
{
    while (slice.length > 0 && is_blank(slice.data[0])) {
        slice.data++;
        slice.length--;
    }
    while (slice.length > 0 && is_blank(slice.data[slice.length - 1]))
        slice.length--;
    return slice;
}

bool tm_slice_is_plain(struct tm_slice slice)
{
    for (size_t i = 0; i < slice.length; i++) {
        if ((unsigned char)slice.data[i] < 0x20 || slice.data[i] == 0x7F) return false;
    }
    return true;
}

void tm_csv_init(struct tm_csv *csv, const char *file, const char *data, size_t length)
{
    csv->file = file;
    csv->data = data;
    csv->length = length;
    csv->at = length >= 3 && memcmp(data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    csv->comments = false;
    csv->line = 0;
    csv->next_line = 1;
    csv->row_at = csv->at;
    csv->field_count = 0;
}

static void skip_line(struct tm_csv *csv)
{
    const char *end = memchr(csv->data + csv->at, '\n', csv->length - csv->at);
    csv->at = end == NULL ? csv->length : (size_t)(end - csv->data) + 1;
    csv->next_line++;
}

/* True at a line that holds nothing. */
static bool skip_if_empty(struct tm_csv *csv)
{
    size_t at = csv->at;
    while (at < csv->length && (is_blank(csv->data[at]) || csv->data[at] == '\r'))
        at++;
    bool empty = at == csv->length || csv->data[at] == '\n' || (csv->comments && csv->data[csv->at] == '#');
    if (empty) skip_line(csv);
    return empty;
}

/* Reads "..." at csv->at into csv->unquoted. */
static int read_quoted(struct tm_csv *csv, size_t *used, struct tm_error *e)
{
    size_t start = *used;
    size_t at = csv->at + 1;
    int newlines = 0; /* counted once the field is whole: a bad one is left by its first line */
    for (; at < csv->length; at++) {
        char c = csv->data[at];
        if (c == '"') {
            if (at + 1 >= csv->length || csv->data[at + 1] != '"') break;
            at++;
        }
        if (c == '\n') newlines++;
        if (*used == TM_CSV_ROW_BYTES_MAX)
            return tm_error_set(e, TM_ELIMIT, "%s:%d: row is longer than %d bytes", csv->file, csv->line,
                                TM_CSV_ROW_BYTES_MAX);
        csv->unquoted[(*used)++] = c;
    }
    if (at >= csv->length)
        return tm_error_set(e, TM_EINPUT, "%s:%d: quoted field has no closing '\"'", csv->file, csv->line);
    csv->fields[csv->field_count++] = (struct tm_slice){csv->unquoted + start, *used - start};
    csv->at = at + 1;
    csv->next_line += newlines;
    return 0;
}

static int read_plain(struct tm_csv *csv, struct tm_error *e)
{
    size_t start = csv->at;
    size_t limit = csv->length - start > TM_CSV_ROW_BYTES_MAX ? start + TM_CSV_ROW_BYTES_MAX : csv->length;
    size_t at = start;
    while (at < limit && csv->data[at] != ',' && csv->data[at] != '\n')
        at++;
    if (at == limit && limit < csv->length)
        return tm_error_set(e, TM_ELIMIT, "%s:%d: row is longer than %d bytes", csv->file, csv->line,
                            TM_CSV_ROW_BYTES_MAX);
    size_t end = at;
    if (end > start && csv->data[end - 1] == '\r' && (at == csv->length || csv->data[at] == '\n')) end--;
    csv->fields[csv->field_count++] = (struct tm_slice){csv->data + start, end - start};
    csv->at = at;
    return 0;
}

/* The separator behind a field: 1: another field follows; 0: the row ends. */
static int read_separator(struct tm_csv *csv, struct tm_error *e)
{
    if (csv->at < csv->length && csv->data[csv->at] == ',') {
        csv->at++;
        return 1;
    }
    if (csv->at < csv->length && csv->data[csv->at] == '\r') csv->at++;
    if (csv->at == csv->length || csv->data[csv->at] == '\n') {
        if (csv->at < csv->length) csv->at++;
        csv->next_line++;
        return 0;
    }
    return tm_error_set(e, TM_EINPUT, "%s:%d: text after a closing '\"'; double the quotes inside a quoted field",
                        csv->file, csv->line);
}

static int read_fields(struct tm_csv *csv, struct tm_error *e)
{
    size_t used = 0;
    for (;;) {
        if (csv->field_count == TM_CSV_FIELDS_MAX)
            return tm_error_set(e, TM_ELIMIT, "%s:%d: row has more than %d columns", csv->file, csv->line,
                                TM_CSV_FIELDS_MAX);
        bool quoted = csv->at < csv->length && csv->data[csv->at] == '"';
        int rc = quoted ? read_quoted(csv, &used, e) : read_plain(csv, e);
        if (rc == 0) rc = read_separator(csv, e);
        if (rc < 0) return rc;
        if (rc == 0) return 1;
    }
}

int tm_csv_next(struct tm_csv *csv, struct tm_error *e)
{
    do {
        if (csv->at >= csv->length) return 0;
    } while (skip_if_empty(csv));
    csv->line = csv->next_line;
    csv->row_at = csv->at;
    csv->field_count = 0;
    int rc = read_fields(csv, e);
    if (rc < 0) skip_line(csv);
    return rc;
}

struct tm_slice tm_csv_raw(const struct tm_csv *csv)
{
    size_t end = csv->at;
    while (end > csv->row_at && (csv->data[end - 1] == '\n' || csv->data[end - 1] == '\r'))
        end--;
    return tm_slice_trim((struct tm_slice){csv->data + csv->row_at, end - csv->row_at});
}

bool tm_csv_key(struct tm_slice raw, struct tm_slice *out_key, struct tm_slice *out_value)
{
    const char *colon = memchr(raw.data, ':', raw.length);
    if (colon == NULL) return false;
    size_t length = (size_t)(colon - raw.data);
    *out_key = tm_slice_trim((struct tm_slice){raw.data, length});
    *out_value = tm_slice_trim((struct tm_slice){colon + 1, raw.length - length - 1});
    return true;
}

int tm_csv_find(const struct tm_csv *csv, const char *name)
{
    for (size_t i = 0; i < csv->field_count; i++) {
        if (tm_slice_equals(tm_slice_trim(csv->fields[i]), name)) return (int)i;
    }
    return -1;
}
