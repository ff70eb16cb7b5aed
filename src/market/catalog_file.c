/* The catalogue's file form, shipped and imported alike: CSV tables behind each other, each with a name and a header.
 *
 *     tidemill-catalog 1
 *
 *     [source]                      where figures come from; `source` columns below name a row of this table
 *     name,as_of,text
 *     [gpu]                         dense peak TFLOPS of one GPU by precision; empty: not supported or not known
 *     name,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source
 *     [instance]                    what is in an instance type; network: sustained Gbit/s
 *     cloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source
 *     [burst]                       what its network gives for a while, Gbit/s, where that is more
 *     cloud,instance,burst_gbps,source
 *     [offer]                       where it is offered; $ an hour; empty: not offered or not known
 *     cloud,region,zone,instance,on_demand,spot,source
 *     [band]                        share of spot capacity reclaimed in a month, 0..4: <5, 5-10, 10-15, 15-20, >20 %
 *     cloud,region,instance,band,saving_percent,source
 *     [price]                       newest spot price in an imported price history
 *     cloud,zone,instance,spot,time,source
 *
 * '#' starts a comment line. Columns are found by name, in any order. A table may come more than once. */
#include "market/catalog.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/csv.h"
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char heading[] = "tidemill-catalog 1";

/* ---- reading ---- */

enum { COLUMNS_MAX = 12 };

struct reader {
    struct tm_catalog *catalog;
    struct tm_csv *csv;
    struct tm_error *e;
    bool imported;
    const struct section *section; /* NULL before the first */
    int columns[COLUMNS_MAX];      /* where each of the section's columns is in the rows */
    bool has_header;
};

struct section {
    const char *name;
    const char *columns[COLUMNS_MAX]; /* NULL-terminated */
    int (*take)(struct reader *reader);
};

static struct tm_slice field(const struct reader *reader, int column)
{
    int at = reader->columns[column];
    if (at < 0 || (size_t)at >= reader->csv->field_count) return (struct tm_slice){"", 0};
    return tm_slice_trim(reader->csv->fields[at]);
}

static int wrong(const struct reader *reader, int column, const char *expected)
{
    struct tm_slice text = field(reader, column);
    return tm_error_set(reader->e, TM_EINPUT, "%s:%d: %s: expected %s, got \"%.*s\"", reader->csv->file,
                        reader->csv->line, reader->section->columns[column], expected,
                        (int)(text.length < 40 ? text.length : 40), text.data);
}

/* A figure of 0 or more; empty: NaN. */
static int read_figure(const struct reader *reader, int column, double *out)
{
    struct tm_slice text = field(reader, column);
    *out = NAN;
    if (text.length == 0) return 0;
    if (!tm_number_double(text.data, text.length, out) || *out < 0)
        return wrong(reader, column, "a number of 0 or more");
    return 0;
}

static int read_word(const struct reader *reader, int column, bool required, const char **out)
{
    struct tm_slice text = field(reader, column);
    if (required && text.length == 0) return wrong(reader, column, "a name");
    if (text.length > 200) return wrong(reader, column, "a shorter name");
    if (!tm_slice_is_plain(text)) return wrong(reader, column, "a name without control characters");
    *out = tm_catalog__string(reader->catalog, text.data, text.length);
    return *out != NULL ? 0 : tm_error_nomem(reader->e);
}

static int read_source(const struct reader *reader, int column, int *out)
{
    struct tm_slice text = field(reader, column);
    for (size_t i = 0; i < reader->catalog->source_count; i++) {
        if (!tm_slice_equals(text, reader->catalog->sources[i].name)) continue;
        *out = (int)i;
        return 0;
    }
    return wrong(reader, column, "a name from the [source] table above");
}

static int take_source(struct reader *reader)
{
    char name[201];
    char as_of[16];
    char text[512];
    struct tm_slice fields[3] = {field(reader, 0), field(reader, 1), field(reader, 2)};
    int64_t time_ms = 0;
    int source = 0;
    if (fields[0].length == 0 || fields[0].length >= sizeof name || !tm_slice_is_plain(fields[0]))
        return wrong(reader, 0, "a name");
    if (fields[2].length >= sizeof text || !tm_slice_is_plain(fields[2]))
        return wrong(reader, 2, "at most 511 bytes of text without control characters");
    if (fields[1].length != 10 || !tm_calendar_parse(fields[1].data, fields[1].length, &time_ms))
        return wrong(reader, 1, "a date such as 2026-08-22");
    (void)snprintf(name, sizeof name, "%.*s", (int)fields[0].length, fields[0].data);
    (void)snprintf(as_of, sizeof as_of, "%.*s", (int)fields[1].length, fields[1].data);
    (void)snprintf(text, sizeof text, "%.*s", (int)fields[2].length, fields[2].data);
    return tm_catalog__add_source(reader->catalog, name, as_of, text, &source, reader->e);
}

static int take_gpu(struct reader *reader)
{
    struct tm_gpu gpu;
    int rc = read_word(reader, 0, true, &gpu.name);
    if (rc == 0) rc = read_word(reader, 1, false, &gpu.aliases);
    if (rc == 0) rc = read_figure(reader, 2, &gpu.memory_gib);
    if (rc == 0) rc = read_figure(reader, 3, &gpu.memory_gbyte_s);
    for (int i = 0; rc == 0 && i < TM_PRECISION_COUNT; i++)
        rc = read_figure(reader, 4 + i, &gpu.tflops[i]);
    if (rc == 0) rc = read_source(reader, 9, &gpu.source);
    return rc == 0 ? tm_catalog__add_gpu(reader->catalog, &gpu, reader->e) : rc;
}

static int take_instance(struct reader *reader)
{
    struct tm_instance_type instance = {.burst_gbps = 0};
    int rc = read_word(reader, 0, true, &instance.cloud);
    if (rc == 0) rc = read_word(reader, 1, true, &instance.name);
    if (rc == 0) rc = read_word(reader, 2, false, &instance.gpu);
    if (rc == 0) rc = read_figure(reader, 3, &instance.gpus);
    if (rc == 0) rc = read_figure(reader, 4, &instance.vcpus);
    if (rc == 0) rc = read_figure(reader, 5, &instance.memory_gib);
    if (rc == 0) rc = read_figure(reader, 6, &instance.gpu_memory_gib);
    if (rc == 0) rc = read_figure(reader, 7, &instance.network_gbps);
    if (rc == 0) rc = read_source(reader, 8, &instance.source);
    if (rc == 0 && isnan(instance.gpus)) instance.gpus = 0;
    if (rc == 0 && (instance.gpu[0] != '\0') != (instance.gpus > 0))
        rc = wrong(reader, 3, "a number of GPUs where there is a GPU, and none where there is none");
    return rc == 0 ? tm_catalog__add_instance(reader->catalog, &instance, NULL, reader->e) : rc;
}

static int take_burst(struct reader *reader)
{
    const char *cloud = NULL;
    const char *name = NULL;
    double gbps = NAN;
    int source = 0;
    int rc = read_word(reader, 0, true, &cloud);
    if (rc == 0) rc = read_word(reader, 1, true, &name);
    if (rc == 0) rc = read_figure(reader, 2, &gbps);
    if (rc == 0) rc = read_source(reader, 3, &source);
    if (rc != 0) return rc;
    const struct tm_instance_type *instance = tm_catalog_instance(reader->catalog, cloud, name);
    if (instance == NULL) return wrong(reader, 1, "an instance from the [instance] table above");
    if (!(gbps > 0)) return wrong(reader, 2, "a number above 0");
    reader->catalog->instances[instance - reader->catalog->instances].burst_gbps = gbps;
    return 0;
}

static int take_offer(struct reader *reader)
{
    const char *cloud = NULL;
    const char *name = NULL;
    struct tm_offer offer = {.band = TM_BAND_UNKNOWN, .imported = reader->imported};
    int rc = read_word(reader, 0, true, &cloud);
    if (rc == 0) rc = read_word(reader, 1, true, &offer.region);
    if (rc == 0) rc = read_word(reader, 2, false, &offer.zone);
    if (rc == 0) rc = read_word(reader, 3, true, &name);
    if (rc == 0) rc = read_figure(reader, 4, &offer.on_demand_usd_h);
    if (rc == 0) rc = read_figure(reader, 5, &offer.spot_usd_h);
    if (rc == 0) rc = read_source(reader, 6, &offer.source);
    if (rc != 0) return rc;
    const struct tm_instance_type *instance = tm_catalog_instance(reader->catalog, cloud, name);
    if (instance == NULL) return wrong(reader, 3, "an instance from the [instance] table above");
    if (isnan(offer.on_demand_usd_h) && isnan(offer.spot_usd_h))
        return wrong(reader, 4, "an on-demand price or a spot price");
    offer.instance = (uint32_t)(instance - reader->catalog->instances);
    return tm_catalog__add_offer(reader->catalog, &offer, reader->e);
}

/* A saving may be a loss: spot has been dearer than on-demand. */
static int read_saving(const struct reader *reader, int column, double *out)
{
    struct tm_slice text = field(reader, column);
    *out = NAN;
    if (text.length == 0) return 0;
    if (!tm_number_double(text.data, text.length, out) || *out > 100 || *out < -1000)
        return wrong(reader, column, "a percentage of at most 100");
    return 0;
}

static int take_band(struct reader *reader)
{
    struct tm_band band;
    double number = NAN;
    int rc = read_word(reader, 0, true, &band.cloud);
    if (rc == 0) rc = read_word(reader, 1, true, &band.region);
    if (rc == 0) rc = read_word(reader, 2, true, &band.instance);
    if (rc == 0) rc = read_figure(reader, 3, &number);
    if (rc == 0 && !(number >= 0 && number <= 4 && floor(number) == number)) rc = wrong(reader, 3, "0, 1, 2, 3 or 4");
    if (rc == 0) rc = read_saving(reader, 4, &band.saving_percent);
    if (rc == 0) rc = read_source(reader, 5, &band.source);
    if (rc != 0) return rc;
    band.band = (int)number;
    return tm_catalog__add_band(reader->catalog, &band, reader->e);
}

static int take_price(struct reader *reader)
{
    struct tm_spot_price price;
    int rc = read_word(reader, 0, true, &price.cloud);
    if (rc == 0) rc = read_word(reader, 1, true, &price.zone);
    if (rc == 0) rc = read_word(reader, 2, true, &price.instance);
    if (rc == 0) rc = read_figure(reader, 3, &price.spot_usd_h);
    if (rc == 0 && isnan(price.spot_usd_h)) rc = wrong(reader, 3, "a price");
    struct tm_slice time = field(reader, 4);
    if (rc == 0 && !tm_calendar_parse(time.data, time.length, &price.time_ms)) rc = wrong(reader, 4, "a time");
    if (rc == 0) rc = read_source(reader, 5, &price.source);
    return rc == 0 ? tm_catalog__add_price(reader->catalog, &price, reader->e) : rc;
}

static const struct section sections[] = {
    {"source", {"name", "as_of", "text"}, take_source},
    {"gpu",
     {"name", "aliases", "memory_gib", "memory_gbyte_s", "fp32", "tf32", "fp16", "bf16", "fp8", "source"},
     take_gpu},
    {"instance",
     {"cloud", "name", "gpu", "gpus", "vcpus", "memory_gib", "gpu_memory_gib", "network_gbps", "source"},
     take_instance},
    {"burst", {"cloud", "instance", "burst_gbps", "source"}, take_burst},
    {"offer", {"cloud", "region", "zone", "instance", "on_demand", "spot", "source"}, take_offer},
    {"band", {"cloud", "region", "instance", "band", "saving_percent", "source"}, take_band},
    {"price", {"cloud", "zone", "instance", "spot", "time", "source"}, take_price},
};

enum { SECTION_COUNT = sizeof sections / sizeof *sections };

static int enter_section(struct reader *reader)
{
    struct tm_slice name = tm_slice_trim(reader->csv->fields[0]);
    reader->has_header = false;
    reader->section = NULL; /* rows of an unknown table belong to no other */
    for (size_t i = 0; i < SECTION_COUNT; i++) {
        if (name.length != strlen(sections[i].name) + 2 ||
            memcmp(name.data + 1, sections[i].name, name.length - 2) != 0)
            continue;
        reader->section = &sections[i];
        return 0;
    }
    return tm_error_set(
        reader->e, TM_EINPUT,
        "%s:%d: unknown table %.*s; expected [source], [gpu], [instance], [burst], [offer], [band] or [price]",
        reader->csv->file, reader->csv->line, (int)(name.length < 40 ? name.length : 40), name.data);
}

static int read_header(struct reader *reader)
{
    for (int i = 0; i < COLUMNS_MAX && reader->section->columns[i] != NULL; i++) {
        reader->columns[i] = tm_csv_find(reader->csv, reader->section->columns[i]);
        if (reader->columns[i] < 0)
            return tm_error_set(reader->e, TM_EINPUT, "%s:%d: table [%s] has no column \"%s\"", reader->csv->file,
                                reader->csv->line, reader->section->name, reader->section->columns[i]);
    }
    reader->has_header = true;
    return 0;
}

static int take_row(struct reader *reader)
{
    struct tm_slice first = tm_slice_trim(reader->csv->fields[0]);
    bool is_section = reader->csv->field_count == 1 && first.length > 2 && first.data[0] == '[' &&
                      first.data[first.length - 1] == ']';
    if (is_section) return enter_section(reader);
    if (reader->section == NULL)
        return tm_error_set(reader->e, TM_EINPUT, "%s:%d: expected a table such as [offer]", reader->csv->file,
                            reader->csv->line);
    return reader->has_header ? reader->section->take(reader) : read_header(reader);
}

/* 1: there may be more; 0: the end. */
static int take_next(struct reader *reader)
{
    int rc = tm_csv_next(reader->csv, reader->e);
    if (rc == -(int)TM_ELIMIT) { /* a row too long is a bad row; a full catalogue is none */
        reader->e->code = TM_EINPUT;
        rc = -(int)TM_EINPUT;
    }
    int taken = rc == 1 ? take_row(reader) : 0;
    return taken != 0 ? taken : rc;
}

/* lost NULL: the first row that cannot be read is an error. */
static int parse(struct reader *reader, const char *file, const char *text, size_t length, tm_catalog_lost_f lost,
                 void *context)
{
    struct tm_csv *csv = reader->csv;
    tm_csv_init(csv, file, text, length);
    csv->comments = true;
    int rc = tm_csv_next(csv, reader->e);
    if (rc >= 0 && (rc == 0 || csv->field_count != 1 || !tm_slice_equals(tm_slice_trim(csv->fields[0]), heading)))
        rc = tm_error_set(reader->e, TM_EINPUT, "%s:1: expected \"%s\" in the first line", file, heading);
    while (rc >= 0 && (rc = take_next(reader)) != 0) {
        if (rc != -(int)TM_EINPUT || lost == NULL) continue;
        lost(context, csv->line, reader->e);
        rc = 1;
    }
    return rc;
}

static int parse_into(struct tm_catalog *catalog, const char *file, const char *text, size_t length, bool imported,
                      tm_catalog_lost_f lost, void *context, struct tm_error *e)
{
    struct tm_error here = {0};
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    struct reader reader = {.catalog = catalog, .csv = csv, .e = &here, .imported = imported};
    int rc = parse(&reader, file, text, length, lost, context);
    tm_free(csv);
    return rc == 0 ? 0 : tm_error_set(e, here.code, "%s", here.text);
}

int tm_catalog_parse(struct tm_catalog *catalog, const char *file, const char *text, size_t length, bool imported,
                     struct tm_error *e)
{
    return parse_into(catalog, file, text, length, imported, NULL, NULL, e);
}

int tm_catalog__salvage(struct tm_catalog *catalog, const char *file, const char *text, size_t length,
                        tm_catalog_lost_f lost, void *context, struct tm_error *e)
{
    return parse_into(catalog, file, text, length, true, lost, context, e);
}

/* ---- writing ---- */

static void put_text(struct tm_text *out, const char *text, char end)
{
    bool comment_or_table = text[0] == '#' || text[0] == '['; /* at the start of a line they would mean something */
    if (strpbrk(text, ",\"") == NULL && !comment_or_table) {
        tm_text_puts(out, text);
    } else {
        tm_text_putc(out, '"');
        for (; *text != '\0'; text++) {
            if (*text == '"') tm_text_putc(out, '"');
            tm_text_putc(out, *text);
        }
        tm_text_putc(out, '"');
    }
    tm_text_putc(out, end);
}

static void put_figure(struct tm_text *out, double value)
{
    char buffer[TM_NUMBER_TEXT_MAX];
    if (!isnan(value)) tm_text_puts(out, tm_number_print(value, buffer));
    tm_text_putc(out, ',');
}

static void put_header(struct tm_text *out, const char *name)
{
    for (size_t i = 0; i < SECTION_COUNT; i++) {
        if (strcmp(sections[i].name, name) != 0) continue;
        tm_text_printf(out, "\n[%s]\n", name);
        for (int c = 0; c < COLUMNS_MAX && sections[i].columns[c] != NULL; c++)
            tm_text_printf(out, "%s%s", c > 0 ? "," : "", sections[i].columns[c]);
        tm_text_putc(out, '\n');
    }
}

static const char *source_name(const struct tm_catalog *catalog, int source)
{
    return catalog->sources[source].name;
}

static void put_gpus(const struct tm_catalog *catalog, struct tm_text *out)
{
    if (catalog->gpu_count > 0) put_header(out, "gpu");
    for (size_t i = 0; i < catalog->gpu_count; i++) {
        const struct tm_gpu *gpu = &catalog->gpus[i];
        put_text(out, gpu->name, ',');
        put_text(out, gpu->aliases, ',');
        put_figure(out, gpu->memory_gib);
        put_figure(out, gpu->memory_gbyte_s);
        for (int p = 0; p < TM_PRECISION_COUNT; p++)
            put_figure(out, gpu->tflops[p]);
        put_text(out, source_name(catalog, gpu->source), '\n');
    }
}

static void put_instances(const struct tm_catalog *catalog, struct tm_text *out)
{
    if (catalog->instance_count > 0) put_header(out, "instance");
    for (size_t i = 0; i < catalog->instance_count; i++) {
        const struct tm_instance_type *instance = &catalog->instances[i];
        put_text(out, instance->cloud, ',');
        put_text(out, instance->name, ',');
        put_text(out, instance->gpu, ',');
        put_figure(out, instance->gpus);
        put_figure(out, instance->vcpus);
        put_figure(out, instance->memory_gib);
        put_figure(out, instance->gpu_memory_gib);
        put_figure(out, instance->network_gbps);
        put_text(out, source_name(catalog, instance->source), '\n');
    }
}

static void put_bursts(const struct tm_catalog *catalog, struct tm_text *out)
{
    bool any = false;
    for (size_t i = 0; i < catalog->instance_count; i++) {
        const struct tm_instance_type *instance = &catalog->instances[i];
        if (!(instance->burst_gbps > 0)) continue;
        if (!any) put_header(out, "burst");
        any = true;
        put_text(out, instance->cloud, ',');
        put_text(out, instance->name, ',');
        put_figure(out, instance->burst_gbps);
        put_text(out, source_name(catalog, instance->source), '\n');
    }
}

static void put_offers(const struct tm_catalog *catalog, struct tm_text *out)
{
    if (catalog->offer_count > 0) put_header(out, "offer");
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        put_text(out, catalog->instances[offer->instance].cloud, ',');
        put_text(out, offer->region, ',');
        put_text(out, offer->zone, ',');
        put_text(out, catalog->instances[offer->instance].name, ',');
        put_figure(out, offer->on_demand_usd_h);
        put_figure(out, offer->spot_usd_h);
        put_text(out, source_name(catalog, offer->source), '\n');
    }
}

static void put_bands(const struct tm_catalog *catalog, struct tm_text *out)
{
    if (catalog->band_count > 0) put_header(out, "band");
    for (size_t i = 0; i < catalog->band_count; i++) {
        const struct tm_band *band = &catalog->bands[i];
        put_text(out, band->cloud, ',');
        put_text(out, band->region, ',');
        put_text(out, band->instance, ',');
        tm_text_printf(out, "%d,", band->band);
        put_figure(out, band->saving_percent);
        put_text(out, source_name(catalog, band->source), '\n');
    }
}

static void put_prices(const struct tm_catalog *catalog, struct tm_text *out)
{
    char time[TM_CALENDAR_TEXT_MAX];
    if (catalog->price_count > 0) put_header(out, "price");
    for (size_t i = 0; i < catalog->price_count; i++) {
        const struct tm_spot_price *price = &catalog->prices[i];
        put_text(out, price->cloud, ',');
        put_text(out, price->zone, ',');
        put_text(out, price->instance, ',');
        put_figure(out, price->spot_usd_h);
        put_text(out, tm_calendar_print(price->time_ms, time), ',');
        put_text(out, source_name(catalog, price->source), '\n');
    }
}

void tm_catalog__print(const struct tm_catalog *catalog, struct tm_text *out)
{
    tm_text_printf(out, "%s\n", heading);
    put_header(out, "source");
    for (size_t i = 0; i < catalog->source_count; i++) {
        put_text(out, catalog->sources[i].name, ',');
        put_text(out, catalog->sources[i].as_of, ',');
        put_text(out, catalog->sources[i].text, '\n');
    }
    put_gpus(catalog, out);
    put_instances(catalog, out);
    put_bursts(catalog, out);
    put_offers(catalog, out);
    put_bands(catalog, out);
    put_prices(catalog, out);
}
