/* Writing JSON: a stream of calls to a text, indented by two, keys in the order they were written, numbers as the
 * shortest text that reads back exactly. (Reading JSON is jansson's work: see doc.h.)
 *
 *     struct tm_jsonout j;
 *     tm_jsonout_init(&j, &text);
 *     tm_jsonout_object(&j, NULL);  tm_jsonout_number(&j, "nodes", 3);  tm_jsonout_end(&j); */
#ifndef TM_BASE_JSONOUT_H
#define TM_BASE_JSONOUT_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum { TM_JSONOUT_DEPTH_MAX = 16 };

struct tm_jsonout {
    struct tm_text *out; /* borrowed; its sticky failure is ours */
    bool one_line;
    int depth;
    bool has_items[TM_JSONOUT_DEPTH_MAX];
    char closers[TM_JSONOUT_DEPTH_MAX];
};

void tm_jsonout_init(struct tm_jsonout *json, struct tm_text *out);
/* Everything in one line, for JSON lines. */
void tm_jsonout_init_line(struct tm_jsonout *json, struct tm_text *out);
/* `key` is NULL inside a list and for the outermost value. */
void tm_jsonout_object(struct tm_jsonout *json, const char *key);
void tm_jsonout_list(struct tm_jsonout *json, const char *key);
void tm_jsonout_end(struct tm_jsonout *json); /* of the innermost object or list; a newline after the outermost */
void tm_jsonout_string(struct tm_jsonout *json, const char *key, const char *value); /* NULL: null */
void tm_jsonout_number(struct tm_jsonout *json, const char *key, double value);      /* NaN, infinity: null */
void tm_jsonout_integer(struct tm_jsonout *json, const char *key, int64_t value);
void tm_jsonout_bool(struct tm_jsonout *json, const char *key, bool value);
void tm_jsonout_null(struct tm_jsonout *json, const char *key);

#endif
