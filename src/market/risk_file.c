/* tidemill-lifetimes(5), RECORDED POOLS: CSV with the header below, '#' comments, numbers in hours. */
#include "base/alloc.h"
#include "base/content.h"
#include "base/csv.h"
#include "base/number.h"
#include "base/paths.h"
#include "market/risk.h"
#include "market/shipped.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char file_name[] = "risk.tmrisk";
static const char header[] =
    "cloud,instance,gpu,gpus,region,zone,campaign,instances,lost_1h,lost_3h,lost_6h,lost_12h,lost_24h,lost_later,"
    "hours_1h,hours_3h,hours_6h,hours_12h,hours_24h,hours_later,hour_lost,hour_hours";
enum { FIELDS = 10 + 2 * TM_AGE_BINS, FILE_BYTES_MAX = 4 << 20, TEXT_MAX = 64 };

static const char *const columns[FIELDS] = {
    "cloud",    "instance",  "gpu",       "gpus",        "region",    "zone",       "campaign", "instances",
    "lost_1h",  "lost_3h",   "lost_6h",   "lost_12h",    "lost_24h",  "lost_later", "hours_1h", "hours_3h",
    "hours_6h", "hours_12h", "hours_24h", "hours_later", "hour_lost", "hour_hours"};

static int take_text(const struct tm_csv *csv, int column, char out[TEXT_MAX], struct tm_error *e)
{
    struct tm_slice text = tm_slice_trim(csv->fields[column]);
    if (text.length >= TEXT_MAX || !tm_slice_is_plain(text))
        return tm_error_set(e, TM_EINPUT, "%s:%d: %s: longer than %d characters, or not plain text", csv->file,
                            csv->line, columns[column], TEXT_MAX - 1);
    (void)snprintf(out, TEXT_MAX, "%.*s", (int)text.length, text.data);
    return 0;
}

static bool is_count(struct tm_slice text, double *out)
{
    return tm_number_double(text.data, text.length, out) && *out >= 0 && *out <= 1e12;
}

static int take_number(const struct tm_csv *csv, int column, double *out, struct tm_error *e)
{
    if (is_count(tm_slice_trim(csv->fields[column]), out)) return 0;
    return tm_error_set(e, TM_EINPUT, "%s:%d: %s: expected a number from 0 to 1e12", csv->file, csv->line,
                        columns[column]);
}

/* 24 numbers with blanks between them, or nothing. */
static int take_hours(const struct tm_csv *csv, int column, double out[TM_HOURS], struct tm_error *e)
{
    struct tm_slice left = tm_slice_trim(csv->fields[column]);
    int count = 0;
    if (left.length == 0) return 0;
    while (left.length > 0 && count < TM_HOURS) {
        const char *blank = memchr(left.data, ' ', left.length);
        size_t length = blank != NULL ? (size_t)(blank - left.data) : left.length;
        if (!is_count((struct tm_slice){left.data, length}, &out[count])) break;
        count++;
        left = tm_slice_trim((struct tm_slice){left.data + length, left.length - length});
    }
    if (count == TM_HOURS && left.length == 0) return 0;
    return tm_error_set(e, TM_EINPUT, "%s:%d: %s: expected 24 numbers with blanks between them, or nothing", csv->file,
                        csv->line, columns[column]);
}

static int take_row(struct tm_risk *risk, const struct tm_csv *csv, struct tm_error *e)
{
    char texts[7][TEXT_MAX];
    struct tm_risk_pool pool = {0};
    int rc = 0;
    if (csv->field_count != FIELDS)
        return tm_error_set(e, TM_EINPUT, "%s:%d: expected %d fields, got %zu", csv->file, csv->line, FIELDS,
                            csv->field_count);
    for (int i = 0; rc == 0 && i < 7; i++)
        if (i != 3) rc = take_text(csv, i, texts[i], e);
    if (rc == 0) rc = take_number(csv, 3, &pool.gpus, e);
    if (rc == 0) rc = take_number(csv, 7, &pool.instances, e);
    for (int b = 0; rc == 0 && b < TM_AGE_BINS; b++)
        rc = take_number(csv, 8 + b, &pool.age_lost[b], e);
    for (int b = 0; rc == 0 && b < TM_AGE_BINS; b++)
        rc = take_number(csv, 8 + TM_AGE_BINS + b, &pool.age_hours[b], e);
    if (rc == 0) rc = take_hours(csv, FIELDS - 2, pool.hour_lost, e);
    if (rc == 0) rc = take_hours(csv, FIELDS - 1, pool.hour_hours, e);
    if (rc != 0) return rc;
    pool.cloud = texts[0];
    pool.instance = texts[1];
    pool.gpu = texts[2];
    pool.region = texts[4];
    pool.zone = texts[5];
    pool.campaign = texts[6];
    return tm_risk__add(risk, &pool, e);
}

static int parse_rows(struct tm_risk *risk, struct tm_csv *csv, struct tm_error *e)
{
    csv->comments = true;
    int rc = tm_csv_next(csv, e);
    if (rc < 0) return rc;
    struct tm_slice raw = rc > 0 ? tm_csv_raw(csv) : (struct tm_slice){"", 0};
    if (!tm_slice_equals(raw, header))
        return tm_error_set(e, TM_EINPUT, "%s:%d: expected the header of recorded pools (tidemill-lifetimes(5)): %s",
                            csv->file, csv->line > 0 ? csv->line : 1, header);
    while ((rc = tm_csv_next(csv, e)) > 0) {
        rc = take_row(risk, csv, e);
        if (rc != 0) return rc;
    }
    return rc;
}

int tm_risk__parse(struct tm_risk *risk, const char *file, const char *text, size_t length, struct tm_error *e)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    tm_csv_init(csv, file, text, length);
    int rc = parse_rows(risk, csv, e);
    tm_free(csv);
    return rc;
}

/* ---- printing ---- */

static void put_hours(const double *hours, struct tm_text *out)
{
    double sum = 0;
    for (int h = 0; h < TM_HOURS; h++)
        sum += hours[h];
    tm_text_putc(out, ',');
    for (int h = 0; sum > 0 && h < TM_HOURS; h++)
        tm_text_printf(out, "%s%.6g", h > 0 ? " " : "", hours[h]);
}

static void print_own(const struct tm_risk *risk, struct tm_text *out)
{
    tm_text_printf(out, "%s\n", header);
    for (size_t i = 0; i < risk->count; i++) {
        const struct tm_risk_pool *pool = &risk->pools[i];
        if (strcmp(pool->campaign, TM_RISK_OWN) != 0) continue;
        tm_text_printf(out, "%s,%s,%s,%g,%s,%s,%s,%.6g", pool->cloud, pool->instance, pool->gpu, pool->gpus,
                       pool->region, pool->zone, pool->campaign, pool->instances);
        for (int b = 0; b < TM_AGE_BINS; b++)
            tm_text_printf(out, ",%.6g", pool->age_lost[b]);
        for (int b = 0; b < TM_AGE_BINS; b++)
            tm_text_printf(out, ",%.6g", pool->age_hours[b]);
        bool timed = false;
        for (int h = 0; h < TM_HOURS; h++)
            timed = timed || pool->hour_hours[h] > 0;
        static const double none[TM_HOURS];
        put_hours(timed ? pool->hour_lost : none, out);
        put_hours(timed ? pool->hour_hours : none, out);
        tm_text_putc(out, '\n');
    }
}

/* ---- the user's own ---- */

static int load_own(struct tm_env *env, struct tm_risk *risk, bool path_needed, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_text text;
    struct tm_error here = {0};
    tm_arena_init(&arena, 1 << 16);
    tm_text_init(&text, FILE_BYTES_MAX);
    const char *path = tm_path(env, TM_PATH_DATA, file_name, &arena, &here);
    int rc = path == NULL && path_needed ? tm_error_set(e, here.code, "%s", here.text) : 0;
    if (path != NULL && env->file_exists(env, path)) {
        rc = tm_content_read(env, path, &text, e);
        if (rc == 0) rc = tm_risk__parse(risk, path, tm_text_string(&text), text.length, e);
    }
    tm_text_deinit(&text);
    tm_arena_deinit(&arena);
    return rc;
}

int tm_risk_load(struct tm_env *env, struct tm_risk *risk, struct tm_error *e)
{
    struct tm_shipped shipped = tm_shipped__risk();
    int rc = tm_risk__parse(risk, shipped.name, shipped.text, shipped.length, e);
    if (rc == 0) rc = load_own(env, risk, false, e);
    return rc == 0 ? tm_risk__prepare(risk, e) : rc;
}

static int save_own(struct tm_env *env, const struct tm_risk *risk, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_text text;
    tm_arena_init(&arena, 1 << 16);
    tm_text_init(&text, FILE_BYTES_MAX);
    struct tm_error here = {0};
    const char *path = tm_path(env, TM_PATH_DATA, file_name, &arena, &here);
    int rc = path == NULL ? tm_error_set(e, here.code, "%s", here.text) : 0;
    tm_text_puts(&text, "# What was learned of your own instances (tidemill study --learn; tidemill-lifetimes(5)).\n");
    print_own(risk, &text);
    if (rc == 0) rc = tm_text_status(&text, e);
    if (rc == 0) rc = env->file_write(env, path, tm_text_string(&text), text.length, e);
    tm_text_deinit(&text);
    tm_arena_deinit(&arena);
    return rc;
}

int tm_risk_learn(struct tm_env *env, const struct tm_risk_pool *pools, size_t count, struct tm_error *e)
{
    struct tm_risk risk;
    tm_risk_init(&risk);
    int rc = load_own(env, &risk, true, e);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct tm_risk_pool own = pools[i];
        own.campaign = TM_RISK_OWN;
        rc = tm_risk__add(&risk, &own, e);
    }
    if (rc == 0) rc = save_own(env, &risk, e);
    tm_risk_deinit(&risk);
    return rc;
}
