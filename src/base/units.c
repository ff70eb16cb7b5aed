#include "base/units.h"

#include "base/number.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct suffix {
    const char *name;
    int64_t unit;
};

/* The empty name is what a bare number means; a kind without one wants a unit. */
static const struct suffix duration_suffixes[] = {
    {"ms", 1},
    {"s", 1000},
    {"sec", 1000},
    {"secs", 1000},
    {"second", 1000},
    {"seconds", 1000},
    {"m", 60 * 1000},
    {"min", 60 * 1000},
    {"mins", 60 * 1000},
    {"minute", 60 * 1000},
    {"minutes", 60 * 1000},
    {"h", 3600 * 1000},
    {"hr", 3600 * 1000},
    {"hrs", 3600 * 1000},
    {"hour", 3600 * 1000},
    {"hours", 3600 * 1000},
    {"d", 86400 * 1000},
    {"day", 86400 * 1000},
    {"days", 86400 * 1000},
    {"w", 7 * 86400 * 1000LL},
    {"week", 7 * 86400 * 1000LL},
    {"weeks", 7 * 86400 * 1000LL},
    {NULL, 0},
};
static const struct suffix money_suffixes[] = {{"", 1000000}, {NULL, 0}};
static const struct suffix bytes_suffixes[] = {
    {"", 1},
    {"B", 1},
    {"kB", 1000},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
    {"KiB", 1LL << 10},
    {"MiB", 1LL << 20},
    {"GiB", 1LL << 30},
    {"TiB", 1LL << 40},
    {NULL, 0},
};
static const struct suffix rate_suffixes[] = {
    {"bit/s", 1},
    {"kbit/s", 1000},
    {"Mbit/s", 1000000},
    {"Gbit/s", 1000000000},
    {"Tbit/s", 1000000000000},
    {"kbit", 1000},
    {"Mbit", 1000000},
    {"Gbit", 1000000000},
    {"kbps", 1000},
    {"Mbps", 1000000},
    {"Gbps", 1000000000},
    {"Tbps", 1000000000000},
    {NULL, 0},
};

static const struct {
    const char *name;
    const char *article;
    const char *example;
    const struct suffix *suffixes;
} kinds[] = {
    [TM_UNIT_DURATION] = {"duration", "duration", "6h", duration_suffixes},
    [TM_UNIT_MONEY] = {"money", "amount in dollars", "12.50", money_suffixes},
    [TM_UNIT_BYTES] = {"bytes", "size in bytes", "16GiB", bytes_suffixes},
    [TM_UNIT_RATE] = {"rate", "rate in bits per second", "25Gbit/s", rate_suffixes},
};

const char *tm_unit__name(enum tm_unit_kind kind)
{
    return kinds[kind].name;
}

const char *tm_unit__example(enum tm_unit_kind kind)
{
    return kinds[kind].example;
}

static bool is_number_char(char c)
{
    return (c >= '0' && c <= '9') || c == '.';
}

static const struct suffix *find_suffix(const struct suffix *table, const char *text, size_t length)
{
    for (; table->name != NULL; table++) {
        if (strlen(table->name) == length && memcmp(table->name, text, length) == 0) return table;
    }
    return NULL;
}

/* Reads "NUMBER [blank] SUFFIX" at *at; false where there is none or it overflows. */
static bool read_part(enum tm_unit_kind kind, const char *text, size_t length, size_t *at, int64_t *out)
{
    size_t number = *at;
    size_t i = number;
    while (i < length && is_number_char(text[i]))
        i++;
    size_t number_end = i;
    if (i < length && text[i] == ' ') i++;
    size_t word = i;
    while (i < length && !is_number_char(text[i]) && text[i] != ' ')
        i++;
    const struct suffix *suffix = find_suffix(kinds[kind].suffixes, text + word, i - word);
    if (suffix == NULL) return false;
    *at = i;
    return tm_number_scaled(text + number, number_end - number, suffix->unit, out);
}

static bool read_quantity(enum tm_unit_kind kind, const char *text, size_t length, int64_t *out)
{
    size_t at = 0;
    if (kind == TM_UNIT_MONEY && length > 0 && text[0] == '$') at++;
    int64_t sum = 0;
    if (at == length) return false;
    while (at < length) {
        int64_t part = 0;
        if (!read_part(kind, text, length, &at, &part) || !tm_number__add(sum, part, &sum)) return false;
        if (kind != TM_UNIT_DURATION && at < length) return false;
        if (at < length && text[at] == ' ' && ++at == length) return false;
    }
    *out = sum;
    return true;
}

int tm_unit_parse(enum tm_unit_kind kind, const char *text, size_t length, int64_t *out, struct tm_error *e)
{
    char copy[64];
    bool dollars = kind == TM_UNIT_MONEY && length > 0 && text[0] == '$';
    size_t ungrouped = tm_number__ungroup(text + dollars, length - dollars, copy, sizeof copy);
    if (ungrouped > 0 ? read_quantity(kind, copy, ungrouped, out) : read_quantity(kind, text, length, out)) return 0;
    const char *dots = length > 40 ? "..." : "";
    return tm_error_set(e, TM_EINPUT, "expected %s, got \"%.*s%s\"; write for example %s", kinds[kind].article,
                        (int)(length > 40 ? 40 : length), text, dots, kinds[kind].example);
}

/* The two largest units that say something: 1d 4h, 1h 30m, 45s, 2.5s, 250ms. */
static void print_duration(int64_t ms, char buffer[TM_UNITS_TEXT_MAX])
{
    static const struct suffix units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}};
    if (ms < 1000) {
        (void)snprintf(buffer, TM_UNITS_TEXT_MAX, "%lldms", (long long)ms);
        return;
    }
    if (ms < 60000) {
        char number[TM_NUMBER_TEXT_MAX];
        (void)snprintf(buffer, TM_UNITS_TEXT_MAX, "%ss", tm_number_print((double)(ms / 100) / 10, number));
        return;
    }
    size_t largest = ms >= 86400000 ? 0 : ms >= 3600000 ? 1 : 2;
    int64_t smaller_unit = units[largest + 1].unit;
    int64_t rounded = (ms / smaller_unit + (ms % smaller_unit >= smaller_unit / 2)) * smaller_unit;
    if (largest > 0 && rounded >= units[largest - 1].unit) largest--;
    long long high = rounded / units[largest].unit;
    long long low = rounded % units[largest].unit / units[largest + 1].unit;
    if (low == 0)
        (void)snprintf(buffer, TM_UNITS_TEXT_MAX, "%lld%s", high, units[largest].name);
    else
        (void)snprintf(buffer, TM_UNITS_TEXT_MAX, "%lld%s %lld%s", high, units[largest].name, low,
                       units[largest + 1].name);
}

static void print_money(int64_t micro_usd, char buffer[TM_UNITS_TEXT_MAX])
{
    int places = micro_usd >= 1000000 || micro_usd == 0 ? 2 : 4;
    (void)snprintf(buffer, TM_UNITS_TEXT_MAX, "$%.*f", places, (double)micro_usd / 1e6);
}

static void print_scaled(int64_t value, const struct suffix *units, char buffer[TM_UNITS_TEXT_MAX])
{
    while (units->unit > 1 && value < units->unit)
        units++;
    char number[TM_NUMBER_TEXT_MAX];
    double scaled = (double)(int64_t)((double)value / (double)units->unit * 100 + 0.5) / 100;
    (void)snprintf(buffer, TM_UNITS_TEXT_MAX, "%s %s", tm_number_print(scaled, number), units->name);
}

const char *tm_unit_print(enum tm_unit_kind kind, int64_t value, char buffer[TM_UNITS_TEXT_MAX])
{
    static const struct suffix bytes[] = {
        {"TiB", 1LL << 40}, {"GiB", 1LL << 30}, {"MiB", 1LL << 20}, {"KiB", 1LL << 10}, {"B", 1}};
    static const struct suffix rates[] = {
        {"Tbit/s", 1000000000000}, {"Gbit/s", 1000000000}, {"Mbit/s", 1000000}, {"kbit/s", 1000}, {"bit/s", 1}};
    switch (kind) {
    case TM_UNIT_DURATION:
        print_duration(value, buffer);
        break;
    case TM_UNIT_MONEY:
        print_money(value, buffer);
        break;
    case TM_UNIT_BYTES:
        print_scaled(value, bytes, buffer);
        break;
    case TM_UNIT_RATE:
        print_scaled(value, rates, buffer);
        break;
    }
    return buffer;
}

const char *tm_unit_print_limit(double seconds, char buffer[TM_UNITS_TEXT_MAX])
{
    double unit_s = seconds > 86400 - 60 ? 3600 : seconds > 3600 - 1 ? 60 : seconds > 60 - 0.1 ? 1 : 0.1;
    return tm_unit_print(TM_UNIT_DURATION, llround(ceil(seconds / unit_s - 1e-9) * unit_s * 1000), buffer);
}

const char *tm_unit_print_exact(enum tm_unit_kind kind, int64_t value, char buffer[TM_UNITS_TEXT_MAX])
{
    long long v = value;
    switch (kind) {
    case TM_UNIT_DURATION:
        if (v % 1000 == 0)
            (void)snprintf(buffer, TM_UNITS_TEXT_MAX, "%llds", v / 1000);
        else
            (void)snprintf(buffer, TM_UNITS_TEXT_MAX, "%lldms", v);
        break;
    case TM_UNIT_MONEY:
        (void)snprintf(buffer, TM_UNITS_TEXT_MAX, "%lld.%06lld", v / 1000000, v % 1000000);
        break;
    case TM_UNIT_BYTES:
        (void)snprintf(buffer, TM_UNITS_TEXT_MAX, "%lld", v);
        break;
    case TM_UNIT_RATE:
        (void)snprintf(buffer, TM_UNITS_TEXT_MAX, "%lldbit/s", v);
        break;
    }
    return buffer;
}
