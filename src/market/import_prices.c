/* Price histories of AWS: CSV with a header, either every change (timestamp,availability_zone,instance_type,
 * spot_usd_h) or a day's summary (date,...,min_usd_h,max_usd_h,last_usd_h,changes), of which the last price counts. */
#include "market/import_internal.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/csv.h"
#include "base/number.h"

#include <string.h>

struct price_columns {
    int time;
    int zone;
    int instance;
    int price;
};

static int find_columns(const struct tm_csv *csv, struct price_columns *out, struct tm_error *e)
{
    out->time = tm_csv_find(csv, "timestamp") >= 0 ? tm_csv_find(csv, "timestamp") : tm_csv_find(csv, "date");
    out->price = tm_csv_find(csv, "spot_usd_h") >= 0 ? tm_csv_find(csv, "spot_usd_h") : tm_csv_find(csv, "last_usd_h");
    out->zone = tm_csv_find(csv, "availability_zone");
    out->instance = tm_csv_find(csv, "instance_type");
    if (out->time < 0 || out->price < 0)
        return tm_error_set(e, TM_EINPUT, "%s:1: expected columns timestamp and spot_usd_h, or date and last_usd_h",
                            csv->file);
    return 0;
}

static int take_row(struct tm_import *import, const struct tm_csv *csv, void *context, struct tm_error *e)
{
    const struct price_columns *columns = context;
    int last = columns->time;
    last = columns->zone > last ? columns->zone : last;
    last = columns->instance > last ? columns->instance : last;
    last = columns->price > last ? columns->price : last;
    int64_t time_ms = 0;
    double usd_h = 0;
    if (csv->field_count <= (size_t)last) {
        tm_import__issue(import, csv->line, true, "too few columns");
        return 0;
    }
    struct tm_slice time = tm_slice_trim(csv->fields[columns->time]);
    struct tm_slice zone = tm_slice_trim(csv->fields[columns->zone]);
    struct tm_slice instance = tm_slice_trim(csv->fields[columns->instance]);
    struct tm_slice price = tm_slice_trim(csv->fields[columns->price]);
    if (!tm_calendar_parse(time.data, time.length, &time_ms)) {
        tm_import__issue(import, csv->line, true, "expected a time such as 2024-02-01T00:01:36+00:00");
    } else if (!tm_number_double(price.data, price.length, &usd_h) || usd_h < 0) {
        tm_import__issue(import, csv->line, true, "expected dollars per hour of 0 or more");
    } else if (zone.length == 0 || instance.length == 0 || zone.length > 100 || instance.length > 100 ||
               !tm_slice_is_plain(zone) || !tm_slice_is_plain(instance) ||
               memchr(zone.data, ',', zone.length) != NULL || memchr(instance.data, ',', instance.length) != NULL) {
        tm_import__issue(import, csv->line, true, "no zone or no instance type");
    } else {
        import->report->kept++;
        if (time_ms > import->newest_ms) import->newest_ms = time_ms;
        return tm_price_history__add(import->history, instance.data, instance.length, zone.data, zone.length, time_ms,
                                     usd_h, e);
    }
    return 0;
}

/* The newest price of each instance type and zone goes into the catalogue. */
static int note_newest(struct tm_import *import, size_t first, struct tm_error *e)
{
    for (size_t i = first; i < import->history->count; i++) {
        const struct tm_price_change *change = &import->history->changes[i];
        const char *zone = import->history->names.names[change->zone];
        const char *instance = import->history->names.names[change->instance];
        struct tm_spot_price price = {
            .cloud = tm_catalog__string(import->user, "aws", 3),
            .zone = tm_catalog__string(import->user, zone, strlen(zone)),
            .instance = tm_catalog__string(import->user, instance, strlen(instance)),
            .spot_usd_h = change->usd_h,
            .time_ms = change->time_ms,
            .source = import->source,
        };
        if (price.cloud == NULL || price.zone == NULL || price.instance == NULL) return tm_error_nomem(e);
        int rc = tm_catalog__add_price(import->user, &price, e);
        if (rc != 0) return rc;
    }
    return 0;
}

int tm_import__prices(struct tm_import *import, struct tm_error *e)
{
    if (!import->history_changed) {
        int rc = tm_price_history_load(import->env, import->history, e);
        if (rc != 0) return rc;
        import->history_changed = true;
    }
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    size_t first = import->history->count;
    tm_csv_init(csv, import->file, import->text, import->length);
    struct price_columns columns = {0};
    int rc = tm_csv_next(csv, e);
    if (rc == 1) rc = find_columns(csv, &columns, e);
    if (rc == 0) rc = tm_import__each_row(import, csv, take_row, &columns, e);
    if (rc == 0) rc = tm_import__source(import, "price history", e); /* now that the newest day is known */
    tm_free(csv);
    return rc == 0 ? note_newest(import, first, e) : rc;
}
