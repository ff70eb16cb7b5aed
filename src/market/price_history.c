#include "market/price_history.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/content.h"
#include "base/csv.h"
#include "base/number.h"
#include "base/paths.h"

#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 1 << 20 };

void tm_price_history_init(struct tm_price_history *history)
{
    *history = (struct tm_price_history){0};
    tm_names_init(&history->names, NAMES_MAX);
}

void tm_price_history_deinit(struct tm_price_history *history)
{
    tm_names_deinit(&history->names);
    tm_free(history->changes);
    *history = (struct tm_price_history){0};
}

int tm_price_history__add(struct tm_price_history *history, const char *instance, size_t instance_length,
                          const char *zone, size_t zone_length, int64_t time_ms, double usd_h, struct tm_error *e)
{
    long instance_number = tm_names_add(&history->names, instance, instance_length);
    long zone_number = tm_names_add(&history->names, zone, zone_length);
    void *changes = history->changes;
    int rc = tm_grow(&changes, &history->capacity, history->count + 1, sizeof *history->changes, TM_PRICE_CHANGES_MAX);
    history->changes = changes;
    if (rc == -(int)TM_ELIMIT) return tm_error_set(e, TM_ELIMIT, "more than %d price changes", TM_PRICE_CHANGES_MAX);
    if (rc != 0 || instance_number < 0 || zone_number < 0) return tm_error_nomem(e);
    history->changes[history->count++] = (struct tm_price_change){
        .instance = (uint32_t)instance_number, .zone = (uint32_t)zone_number, .time_ms = time_ms, .usd_h = usd_h};
    return 0;
}

static int compare_names(const struct tm_names *names, uint32_t a, uint32_t b)
{
    return a == b ? 0 : strcmp(names->names[a], names->names[b]);
}

/* qsort_r keeps no order among equals: the place in the array decides last. */
struct sort_item {
    struct tm_price_change change;
    size_t place;
};

static int compare_items(const void *a, const void *b, void *context)
{
    const struct sort_item *x = a;
    const struct sort_item *y = b;
    const struct tm_names *names = context;
    int order = compare_names(names, x->change.instance, y->change.instance);
    if (order == 0) order = compare_names(names, x->change.zone, y->change.zone);
    if (order == 0) order = (x->change.time_ms > y->change.time_ms) - (x->change.time_ms < y->change.time_ms);
    if (order == 0) order = (x->place > y->place) - (x->place < y->place);
    return order;
}

static bool same_moment(const struct tm_price_change *a, const struct tm_price_change *b)
{
    return a->instance == b->instance && a->zone == b->zone && a->time_ms == b->time_ms;
}

int tm_price_history__sort(struct tm_price_history *history, struct tm_error *e)
{
    struct sort_item *items = tm_alloc(history->count * sizeof *items);
    if (items == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < history->count; i++)
        items[i] = (struct sort_item){history->changes[i], i};
    qsort_r(items, history->count, sizeof *items, compare_items, &history->names);
    size_t kept = 0;
    for (size_t i = 0; i < history->count; i++) {
        if (kept > 0 && same_moment(&history->changes[kept - 1], &items[i].change)) kept--;
        history->changes[kept++] = items[i].change;
    }
    history->count = kept;
    tm_free(items);
    return 0;
}

static int parse(struct tm_price_history *history, const char *file, const struct tm_text *text, struct tm_error *e)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    tm_csv_init(csv, file, tm_text_string(text), text->length);
    int rc = tm_csv_next(csv, e);
    if (rc == 1 && tm_csv_find(csv, "instance") != 0)
        rc = tm_error_set(e, TM_EINPUT, "%s:1: expected instance,zone,time,usd_h", file);
    while (rc >= 0 && (rc = tm_csv_next(csv, e)) == 1) {
        int64_t time_ms = 0;
        double usd_h = 0;
        const struct tm_slice *fields = csv->fields;
        if (csv->field_count != 4 || !tm_calendar_parse(fields[2].data, fields[2].length, &time_ms) ||
            !tm_number_double(fields[3].data, fields[3].length, &usd_h))
            rc = tm_error_set(e, TM_EINPUT, "%s:%d: expected instance,zone,time,usd_h", file, csv->line);
        else
            rc = tm_price_history__add(history, fields[0].data, fields[0].length, fields[1].data, fields[1].length,
                                       time_ms, usd_h, e);
    }
    tm_free(csv);
    return rc;
}

int tm_price_history_load(struct tm_env *env, struct tm_price_history *history, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_text text;
    tm_arena_init(&arena, 1 << 16);
    tm_text_init(&text, TM_PRICE_HISTORY_BYTES_MAX);
    int rc = 0;
    struct tm_error no_path = {0};
    const char *path = tm_path(env, TM_PATH_DATA, "spot-prices.csv", &arena, &no_path);
    if (path == NULL && no_path.code == TM_ENOMEM) rc = tm_error_nomem(e);
    if (path != NULL && env->file_exists(env, path)) {
        rc = tm_content_read(env, path, &text, e);
        if (rc == 0) rc = parse(history, path, &text, e);
    }
    tm_text_deinit(&text);
    tm_arena_deinit(&arena);
    return rc;
}

static void put_name(struct tm_text *out, const char *name)
{
    bool plain = strpbrk(name, ",\"\r\n") == NULL;
    if (!plain) tm_text_putc(out, '"');
    for (const char *at = name; *at != '\0'; at++) {
        if (*at == '"') tm_text_putc(out, '"');
        tm_text_putc(out, *at);
    }
    tm_text_puts(out, plain ? "," : "\",");
}

void tm_price_history__print(const struct tm_price_history *history, struct tm_text *out)
{
    char time[TM_CALENDAR_TEXT_MAX];
    char number[TM_NUMBER_TEXT_MAX];
    tm_text_puts(out, "instance,zone,time,usd_h\n");
    for (size_t i = 0; i < history->count; i++) {
        const struct tm_price_change *change = &history->changes[i];
        put_name(out, history->names.names[change->instance]);
        put_name(out, history->names.names[change->zone]);
        tm_text_puts(out, tm_calendar_print(change->time_ms, time));
        tm_text_putc(out, ',');
        tm_text_puts(out, tm_number_print(change->usd_h, number));
        tm_text_putc(out, '\n');
    }
}
