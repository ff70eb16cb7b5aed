#include "base/jsonout.h"

#include "base/number.h"
#include "base/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

void tm_jsonout_init(struct tm_jsonout *json, struct tm_text *out)
{
    *json = (struct tm_jsonout){.out = out};
}

void tm_jsonout_init_line(struct tm_jsonout *json, struct tm_text *out)
{
    *json = (struct tm_jsonout){.out = out, .one_line = true};
}

static void new_line(struct tm_jsonout *json)
{
    if (json->one_line) return;
    tm_text_putc(json->out, '\n');
    tm_text_fill(json->out, ' ', (size_t)json->depth * 2);
}

/* Bytes that are no UTF-8 (a file name may hold any) become U+FFFD, so that the document stays JSON. */
static void put_quoted(struct tm_text *out, const char *string)
{
    tm_text_putc(out, '"');
    size_t left = strlen(string);
    for (const char *s = string; left > 0;) {
        size_t length = tm_utf8__next(s, left, NULL);
        if (length == 0)
            tm_text_puts(out, "\\ufffd");
        else if (*s == '"' || *s == '\\')
            tm_text_printf(out, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            tm_text_printf(out, "\\u%04x", (unsigned char)*s);
        else
            tm_text_append(out, s, length);
        size_t used = length > 0 ? length : 1;
        s += used;
        left -= used;
    }
    tm_text_putc(out, '"');
}

static void start_item(struct tm_jsonout *json, const char *key)
{
    if (json->depth > 0) {
        if (json->has_items[json->depth - 1]) tm_text_puts(json->out, json->one_line ? ", " : ",");
        json->has_items[json->depth - 1] = true;
        new_line(json);
    }
    if (key == NULL) return;
    put_quoted(json->out, key);
    tm_text_puts(json->out, ": ");
}

static void open_group(struct tm_jsonout *json, const char *key, char opener, char closer)
{
    assert(json->depth < TM_JSONOUT_DEPTH_MAX);
    start_item(json, key);
    tm_text_putc(json->out, opener);
    json->has_items[json->depth] = false;
    json->closers[json->depth++] = closer;
}

void tm_jsonout_object(struct tm_jsonout *json, const char *key)
{
    open_group(json, key, '{', '}');
}

void tm_jsonout_list(struct tm_jsonout *json, const char *key)
{
    open_group(json, key, '[', ']');
}

void tm_jsonout_end(struct tm_jsonout *json)
{
    assert(json->depth > 0);
    json->depth--;
    if (json->has_items[json->depth]) new_line(json);
    tm_text_putc(json->out, json->closers[json->depth]);
    if (json->depth == 0) tm_text_putc(json->out, '\n');
}

void tm_jsonout_string(struct tm_jsonout *json, const char *key, const char *value)
{
    start_item(json, key);
    if (value == NULL)
        tm_text_puts(json->out, "null");
    else
        put_quoted(json->out, value);
}

void tm_jsonout_number(struct tm_jsonout *json, const char *key, double value)
{
    char buffer[TM_NUMBER_TEXT_MAX];
    start_item(json, key);
    tm_text_puts(json->out, isfinite(value) ? tm_number_print(value, buffer) : "null");
}

void tm_jsonout_integer(struct tm_jsonout *json, const char *key, int64_t value)
{
    start_item(json, key);
    tm_text_printf(json->out, "%" PRId64, value);
}

void tm_jsonout_bool(struct tm_jsonout *json, const char *key, bool value)
{
    start_item(json, key);
    tm_text_puts(json->out, value ? "true" : "false");
}

void tm_jsonout_null(struct tm_jsonout *json, const char *key)
{
    start_item(json, key);
    tm_text_puts(json->out, "null");
}
