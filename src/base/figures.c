#include "base/figures.h"

#include "base/number.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static size_t size_of(enum tm_figure_type type)
{
    return type == TM_FIGURE_DOUBLE ? sizeof(double) : type == TM_FIGURE_BOOL ? sizeof(bool) : sizeof(int);
}

static size_t place_of(const struct tm_figure *figure, size_t i)
{
    return figure->offset + i * (figure->stride > 0 ? figure->stride : size_of(figure->type));
}

static size_t count_of(const struct tm_figure *figure)
{
    return figure->count > 0 ? figure->count : 1;
}

static double value_of(const struct tm_figure *figure, const void *from, size_t i)
{
    const char *at = (const char *)from + place_of(figure, i);
    double number = 0;
    int whole = 0;
    bool flag = false;
    if (figure->type == TM_FIGURE_DOUBLE)
        memcpy(&number, at, sizeof number);
    else if (figure->type == TM_FIGURE_BOOL)
        memcpy(&flag, at, sizeof flag);
    else
        memcpy(&whole, at, sizeof whole);
    return figure->type == TM_FIGURE_DOUBLE ? number : figure->type == TM_FIGURE_BOOL ? (double)flag : (double)whole;
}

static void set_value(const struct tm_figure *figure, void *to, size_t i, double value)
{
    char *at = (char *)to + place_of(figure, i);
    int whole = figure->type == TM_FIGURE_INT ? (int)value : 0;
    bool flag = value != 0;
    if (figure->type == TM_FIGURE_DOUBLE)
        memcpy(at, &value, sizeof value);
    else if (figure->type == TM_FIGURE_BOOL)
        memcpy(at, &flag, sizeof flag);
    else
        memcpy(at, &whole, sizeof whole);
}

/* ---- printing ---- */

static void print_value(double value, struct tm_text *out)
{
    char number[TM_NUMBER_TEXT_MAX];
    if (isnan(value))
        tm_text_puts(out, "nan");
    else if (isinf(value))
        tm_text_puts(out, value > 0 ? "inf" : "-inf");
    else
        tm_text_puts(out, tm_number_print(value, number));
}

void tm_figures_print(const struct tm_figure *table, const void *from, struct tm_text *out)
{
    for (const struct tm_figure *figure = table; figure->name != NULL; figure++) {
        size_t count = count_of(figure);
        while (count > 0 && value_of(figure, from, count - 1) == 0)
            count--;
        if (count == 0) continue;
        tm_text_puts(out, figure->name);
        for (size_t i = 0; i < count; i++) {
            tm_text_putc(out, ' ');
            print_value(value_of(figure, from, i), out);
        }
        tm_text_putc(out, '\n');
    }
}

/* ---- reading ---- */

struct word {
    const char *at;
    size_t length;
};

/* The next word of a line that ends at `end`; an empty one: there is none. */
static struct word next_word(const char **at, const char *end)
{
    while (*at < end && **at == ' ')
        (*at)++;
    struct word word = {.at = *at};
    while (*at < end && **at != ' ')
        (*at)++;
    word.length = (size_t)(*at - word.at);
    return word;
}

static bool word_is(struct word word, const char *text)
{
    return word.length == strlen(text) && memcmp(word.at, text, word.length) == 0;
}

static bool read_value(const struct tm_figure *figure, struct word word, double *out)
{
    bool special = true;
    if (word_is(word, "nan"))
        *out = NAN;
    else if (word_is(word, "inf"))
        *out = INFINITY;
    else if (word_is(word, "-inf"))
        *out = -INFINITY;
    else
        special = false;
    if (special) return figure->special;
    if (!tm_number_double(word.at, word.length, out)) return false;
    if (figure->type != TM_FIGURE_DOUBLE && (*out != floor(*out) || fabs(*out) > INT32_MAX)) return false;
    if (figure->type == TM_FIGURE_BOOL) return *out == 0 || *out == 1;
    return *out >= figure->min && *out <= figure->max;
}

static int read_line(const struct tm_figure *table, const char *at, const char *end, void *to, struct tm_error *e)
{
    struct word name = next_word(&at, end);
    const struct tm_figure *figure = table;
    while (figure->name != NULL && !word_is(name, figure->name))
        figure++;
    if (figure->name == NULL)
        return tm_error_set(e, TM_EINPUT, "\"%.*s\" is not known to this release",
                            name.length < 40 ? (int)name.length : 40, name.at);
    size_t i = 0;
    for (struct word word = next_word(&at, end); word.length > 0; word = next_word(&at, end)) {
        double value = 0;
        if (i == count_of(figure)) return tm_error_set(e, TM_EINPUT, "%s: more than %zu values", figure->name, i);
        if (!read_value(figure, word, &value))
            return tm_error_set(e, TM_EINPUT, "%s: \"%.*s\" cannot be", figure->name,
                                word.length < 40 ? (int)word.length : 40, word.at);
        set_value(figure, to, i++, value);
    }
    return 0;
}

int tm_figures_parse(const struct tm_figure *table, const char *text, size_t length, void *to, struct tm_error *e)
{
    const char *end = length == 0 ? text : text + length;
    int rc = 0;
    for (const char *at = text; rc == 0 && at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = newline == NULL ? end : newline;
        if (line_end > at) rc = read_line(table, at, line_end, to, e);
        at = line_end + (newline != NULL);
    }
    return rc;
}

/* ---- comparing ---- */

bool tm_figures_same(const struct tm_figure *table, const void *a, const void *b, const struct tm_figure **out_which)
{
    for (const struct tm_figure *figure = table; figure->name != NULL; figure++) {
        for (size_t i = 0; i < count_of(figure); i++) {
            double x = value_of(figure, a, i);
            double y = value_of(figure, b, i);
            if (x == y || (isnan(x) && isnan(y))) continue;
            if (out_which != NULL) *out_which = figure;
            return false;
        }
    }
    return true;
}
