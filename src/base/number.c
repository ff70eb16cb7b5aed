#include "base/number.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_LENGTH_MAX = 63 };

bool tm_number__add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

bool tm_number__mul(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool tm_number_i64(const char *text, size_t length, int64_t *out)
{
    size_t i = 0;
    bool negative = false;
    if (i < length && (text[i] == '-' || text[i] == '+')) negative = text[i++] == '-';
    if (i == length) return false;
    int64_t value = 0;
    for (; i < length; i++) {
        if (!is_digit(text[i])) return false;
        int64_t digit = text[i] - '0';
        if (!tm_number__mul(value, 10, &value)) return false;
        if (!tm_number__add(value, negative ? -digit : digit, &value)) return false;
    }
    *out = value;
    return true;
}

/* Powers of ten that a double holds exactly. */
static const double pow10_exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                     1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Most numbers in our files have few digits. For up to 15 of them and no exponent, digits / 10^places is one
 * correctly rounded division, hence exact, and several times faster than strtod (Clinger's fast path). */
static bool read_short_decimal(const char *text, size_t length, double *out)
{
    size_t i = 0;
    bool negative = false;
    if (i < length && text[i] == '-') {
        negative = true;
        i++;
    }
    int64_t digits = 0;
    int digit_count = 0;
    int places = 0;
    bool point = false;
    for (; i < length; i++) {
        if (text[i] == '.' && !point) {
            point = true;
        } else if (is_digit(text[i]) && digit_count < 15) {
            digits = digits * 10 + (text[i] - '0');
            digit_count++;
            if (point) places++;
        } else {
            return false;
        }
    }
    if (digit_count == 0) return false;
    double value = (double)digits / pow10_exact[places];
    *out = negative ? -value : value;
    return true;
}

bool tm_number_double(const char *text, size_t length, double *out)
{
    if (length == 0 || length > NUMBER_LENGTH_MAX) return false;
    if (read_short_decimal(text, length, out)) return true;
    bool any_digit = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (!is_digit(c) && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E') return false;
        any_digit = any_digit || is_digit(c);
    }
    if (!any_digit) return false;
    char copy[NUMBER_LENGTH_MAX + 1];
    memcpy(copy, text, length);
    copy[length] = '\0';
    char *end = NULL;
    double value = strtod(copy, &end);
    if (end != copy + length || !isfinite(value)) return false;
    *out = value;
    return true;
}

const char *tm_number_print(double value, char buffer[TM_NUMBER_TEXT_MAX])
{
    if (value == 0) value = 0; /* no "-0" */
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(buffer, TM_NUMBER_TEXT_MAX, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value) break;
    }
    return buffer;
}

bool tm_number_scaled(const char *text, size_t length, int64_t unit, int64_t *out)
{
    size_t i = 0;
    int64_t whole = 0;
    bool any_digit = false;
    for (; i < length && is_digit(text[i]); i++, any_digit = true) {
        if (!tm_number__mul(whole, 10, &whole) || !tm_number__add(whole, text[i] - '0', &whole)) return false;
    }
    if (!tm_number__mul(whole, unit, &whole)) return false;
    size_t fraction = i;
    if (i < length && text[i] == '.') {
        for (fraction = ++i; i < length && is_digit(text[i]); i++)
            any_digit = true;
    }
    if (!any_digit || i != length) return false;
    int64_t halves = 0; /* 2 * unit * fraction without what is behind its point: from the last digit to the first */
    while (i-- > fraction) {
        int64_t part = 0;
        if (!tm_number__mul(unit, 2 * (text[i] - '0'), &part) || !tm_number__add(halves, part, &halves)) return false;
        halves /= 10;
    }
    return tm_number__add(whole, (halves + 1) / 2, out);
}

/* 1 where the text ends in no letter for a power of a thousand. */
static int64_t thousands_of(const char *text, size_t length)
{
    static const struct {
        char letter;
        int64_t factor;
    } powers[] = {{'k', 1000}, {'K', 1000}, {'M', 1000000}, {'B', 1000000000}, {'G', 1000000000}, {'T', 1000000000000}};
    for (size_t i = 0; length > 0 && i < sizeof powers / sizeof powers[0]; i++) {
        if (text[length - 1] == powers[i].letter) return powers[i].factor;
    }
    return 1;
}

size_t tm_number__ungroup(const char *text, size_t length, char *copy, size_t size)
{
    char mark = '\0';
    size_t used = 0, digits = 0, i = 0; /* digits of this group */
    if (length >= size) return 0;
    if (length > 0 && (text[0] == '-' || text[0] == '+')) copy[used++] = text[i++];
    for (; i < length && (is_digit(text[i]) || text[i] == ',' || text[i] == '_'); i++) {
        if (is_digit(text[i])) {
            copy[used++] = text[i];
            digits++;
            continue;
        }
        if (mark == '\0' ? digits < 1 || digits > 3 : digits != 3 || text[i] != mark) return 0;
        mark = text[i];
        digits = 0;
    }
    if (mark == '\0' || digits != 3) return 0;
    memcpy(copy + used, text + i, length - i);
    used += length - i;
    copy[used] = '\0';
    return used;
}

bool tm_number_written(const char *text, size_t length, double max, double *out)
{
    char copy[NUMBER_LENGTH_MAX + 1];
    int64_t whole = 0;
    bool percent = max <= 1 && length > 1 && text[length - 1] == '%';
    if (percent) length--;
    if (max > 1 && length > 1 && text[0] == '$') {
        text++;
        length--;
    }
    size_t ungrouped = tm_number__ungroup(text, length, copy, sizeof copy);
    if (ungrouped > 0) {
        text = copy;
        length = ungrouped;
    }
    if (!tm_number_double(text, length, out)) {
        if (!tm_number_whole(text, length, &whole)) return false;
        *out = (double)whole;
    }
    if (percent) *out /= 100;
    return true;
}

bool tm_number_whole(const char *text, size_t length, int64_t *out)
{
    double number = 0;
    char copy[NUMBER_LENGTH_MAX + 1];
    size_t ungrouped = tm_number__ungroup(text, length, copy, sizeof copy);
    if (ungrouped > 0) {
        text = copy;
        length = ungrouped;
    }
    if (tm_number_i64(text, length, out)) return true;
    int64_t thousands = thousands_of(text, length);
    if (thousands > 1) return tm_number_scaled(text, length - 1, thousands, out);
    bool has_exponent = memchr(text, 'e', length) != NULL || memchr(text, 'E', length) != NULL;
    if (!has_exponent || !tm_number_double(text, length, &number)) return false;
    if (number != floor(number) || fabs(number) > 9e15) return false; /* a double holds these exactly */
    *out = (int64_t)number;
    return true;
}
