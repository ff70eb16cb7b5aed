/* Lists and logs that name their instances:
 *
 *     K80,,                                     a section: the type of what follows
 *     VM name,Start,Terminate                   times as 2/18/19 23:40; the zone is part of the name; "less" behind it:
 *     a-us-west1-b-0less,2/18/19 23:40,...      the instance was idle
 *
 *     insert_time,zone,machine_type,lifetime_s,end,...,load       end: preempted, else stopped by the user; load: idle
 *
 *     0,add,node1 and 60000,remove,node1        csv-node-events of tidemill-trace(5)
 *     [2020-03-15T10:07:33Z] Created instance ID with N GPU(s) of type T in zone Z      a log, as trace_log.c has it
 *
 * Anything else must be a trace. */
#include "market/lifetimes.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/content.h"
#include "base/csv.h"
#include "base/number.h"
#include "base/paths.h"
#include "market/shipped.h"
#include "market/trace.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double cap_tolerance_s = 0.1 * 3600;
static const double gce_cap_s = 24 * 3600;
enum { COHORTS_MAX = 1 << 16 };

void tm_lifetimes_init(struct tm_lifetimes *lifetimes)
{
    *lifetimes = (struct tm_lifetimes){0};
    tm_names_init(&lifetimes->types, TM_LIFETIME_GROUPS_MAX);
    tm_names_init(&lifetimes->zones, TM_LIFETIME_GROUPS_MAX);
}

void tm_lifetimes_deinit(struct tm_lifetimes *lifetimes)
{
    tm_names_deinit(&lifetimes->types);
    tm_names_deinit(&lifetimes->zones);
    tm_free(lifetimes->records);
    *lifetimes = (struct tm_lifetimes){0};
}

/* ---- adding ---- */

struct reader {
    const char *file;
    const char *text;
    size_t length;
    double cap_s;
    struct tm_lifetimes *out;
};

/* us-central1-c and the like; AWS writes us-east-1c. */
static bool is_gce_zone(struct tm_slice zone)
{
    return zone.length > 4 && zone.data[zone.length - 2] == '-' && isdigit((unsigned char)zone.data[zone.length - 3]) &&
           isalpha((unsigned char)zone.data[zone.length - 4]);
}

static int name_number(struct tm_names *names, struct tm_slice name, const char *what, int *out, struct tm_error *e)
{
    long number = tm_names_add(names, name.data, name.length);
    if (number == -(long)TM_ENOMEM) return tm_error_nomem(e);
    if (number < 0) return tm_error_set(e, TM_ELIMIT, "more than %d %s", TM_LIFETIME_GROUPS_MAX, what);
    *out = (int)number;
    return 0;
}

static int add(struct reader *reader, struct tm_lifetime life, struct tm_slice type, struct tm_slice zone,
               struct tm_error *e)
{
    struct tm_lifetimes *out = reader->out;
    if (!(life.age_s >= 0) || !isfinite(life.age_s))
        return tm_error_set(e, TM_EINPUT, "an instance that ends before it starts");
    if (!tm_slice_is_plain(type) || !tm_slice_is_plain(zone))
        return tm_error_set(e, TM_EINPUT, "control characters in the name of a type or zone");
    if (zone.length == 0) zone = (struct tm_slice){tm_path_base(reader->file), strlen(tm_path_base(reader->file))};
    double cap_s = reader->cap_s >= 0 ? reader->cap_s : is_gce_zone(zone) ? gce_cap_s : 0;
    if (cap_s > 0 && life.end == TM_LIFETIME_LOST && life.age_s >= cap_s - cap_tolerance_s)
        life.end = TM_LIFETIME_CAPPED;
    int rc = name_number(&out->types, type, "types", &life.type, e);
    if (rc == 0) rc = name_number(&out->zones, zone, "zones", &life.zone, e);
    if (rc != 0) return rc;
    void *records = out->records;
    rc = tm_grow(&records, &out->capacity, out->count + 1, sizeof *out->records, TM_LIFETIMES_MAX);
    out->records = records;
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (rc != 0) return tm_error_set(e, TM_ELIMIT, "more than %d instances", TM_LIFETIMES_MAX);
    out->records[out->count++] = life;
    return 0;
}

/* ---- VM name, Start, Terminate ---- */

/* A number of one to four digits, and the character behind it (0: the end). */
static bool take_number(struct tm_slice *text, char behind, int *out)
{
    size_t digits = 0;
    int64_t value;
    while (digits < text->length && digits < 4 && isdigit((unsigned char)text->data[digits]))
        digits++;
    if (digits == 0 || !tm_number_i64(text->data, digits, &value)) return false;
    bool ends = digits == text->length;
    if (behind == '\0' ? !ends : ends || text->data[digits] != behind) return false;
    size_t used = digits + (behind != '\0');
    *text = (struct tm_slice){text->data + used, text->length - used};
    *out = (int)value;
    return true;
}

/* M/D/YY HH:MM */
static bool parse_us_time(struct tm_slice text, double *out_s)
{
    int month;
    int day;
    int year;
    int hour;
    int minute;
    char iso[80];
    int64_t ms;
    if (!take_number(&text, '/', &month) || !take_number(&text, '/', &day) || !take_number(&text, ' ', &year) ||
        !take_number(&text, ':', &hour) || !take_number(&text, '\0', &minute))
        return false;
    (void)snprintf(iso, sizeof iso, "%04d-%02d-%02dT%02d:%02d", year < 100 ? 2000 + year : year, month, day, hour,
                   minute);
    if (!tm_calendar_parse(iso, strlen(iso), &ms)) return false;
    *out_s = (double)ms / 1000;
    return true;
}

/* "europe-west1-b" of "a-p100-europe-west1-b-3less": the last three parts before the number. */
static struct tm_slice zone_in_name(struct tm_slice name)
{
    size_t end = name.length;
    while (end > 0 && name.data[end - 1] != '-')
        end--;
    if (end > 0) end--;
    size_t at = end;
    for (int dashes = 0; at > 0; at--) {
        if (name.data[at - 1] == '-' && ++dashes == 3) break;
    }
    return (struct tm_slice){name.data + at, end - at};
}

static bool ends_with(struct tm_slice text, const char *tail)
{
    size_t length = strlen(tail);
    return text.length >= length && memcmp(text.data + text.length - length, tail, length) == 0;
}

static int take_named_row(struct reader *reader, struct tm_csv *csv, struct tm_slice *section, struct tm_error *e)
{
    struct tm_slice name = tm_slice_trim(csv->fields[0]);
    bool alone = csv->field_count < 3 || (csv->fields[1].length == 0 && csv->fields[2].length == 0);
    if (alone) {
        *section = name;
        return 0;
    }
    if (tm_slice_equals(name, "VM name")) return 0;
    double start_s;
    double end_s;
    if (!parse_us_time(tm_slice_trim(csv->fields[1]), &start_s) ||
        !parse_us_time(tm_slice_trim(csv->fields[2]), &end_s))
        return tm_error_set(e, TM_EINPUT, "expected two times such as 2/18/19 23:40");
    struct tm_lifetime life = {.age_s = end_s - start_s,
                               .end_s = end_s,
                               .weight = 1,
                               .end = TM_LIFETIME_LOST,
                               .idle = ends_with(name, "less")};
    reader->out->has_load = true;
    reader->out->has_hour = true;
    return add(reader, life, *section, zone_in_name(name), e);
}

static int read_named(struct reader *reader, struct tm_csv *csv, struct tm_error *e)
{
    struct tm_slice section = {"", 0};
    int rc;
    while ((rc = tm_csv_next(csv, e)) > 0) {
        rc = take_named_row(reader, csv, &section, e);
        if (rc != 0) return tm_error_wrap(e, rc, "%s:%d", reader->file, csv->line);
    }
    return rc;
}

/* ---- lifetime_s, end ---- */

struct columns {
    int life, end, zone, type, time, load;
};

static struct tm_slice field(const struct tm_csv *csv, int column)
{
    if (column < 0 || (size_t)column >= csv->field_count) return (struct tm_slice){"", 0};
    return tm_slice_trim(csv->fields[column]);
}

static int take_listed_row(struct reader *reader, const struct tm_csv *csv, const struct columns *at,
                           struct tm_error *e)
{
    struct tm_slice life = field(csv, at->life);
    struct tm_slice time = field(csv, at->time);
    struct tm_lifetime record = {.end_s = NAN, .weight = 1, .idle = tm_slice_equals(field(csv, at->load), "idle")};
    if (!tm_number_double(life.data, life.length, &record.age_s) || !(record.age_s >= 0))
        return tm_error_set(e, TM_EINPUT, "lifetime_s: expected seconds, got \"%.*s\"",
                            (int)(life.length < 40 ? life.length : 40), life.data);
    int64_t start_ms;
    if (time.length > 0) {
        if (!tm_calendar_parse(time.data, time.length, &start_ms))
            return tm_error_set(e, TM_EINPUT, "insert_time: expected a time such as 2019-02-18T08:57:37Z");
        record.end_s = (double)start_ms / 1000 + record.age_s;
        reader->out->has_hour = true;
    }
    struct tm_slice end = field(csv, at->end);
    bool lost = tm_slice_equals(end, "preempted") || tm_slice_equals(end, "revoked") || tm_slice_equals(end, "lost");
    record.end = lost ? TM_LIFETIME_LOST : TM_LIFETIME_RELEASED;
    if (at->load >= 0) reader->out->has_load = true;
    return add(reader, record, field(csv, at->type), field(csv, at->zone), e);
}

static int read_listed(struct reader *reader, struct tm_csv *csv, struct tm_error *e)
{
    int rc = tm_csv_next(csv, e);
    if (rc <= 0) return rc;
    struct columns at = {.life = tm_csv_find(csv, "lifetime_s"),
                         .end = tm_csv_find(csv, "end"),
                         .zone = tm_csv_find(csv, "zone"),
                         .type = tm_csv_find(csv, "gpu"),
                         .time = tm_csv_find(csv, "insert_time"),
                         .load = tm_csv_find(csv, "load")};
    if (at.type < 0) at.type = tm_csv_find(csv, "machine_type");
    if (at.life < 0 || at.end < 0)
        return tm_error_set(e, TM_EINPUT,
                            "%s:%d: a list of lifetimes needs the columns lifetime_s and end (preempted, stopped)",
                            reader->file, csv->line);
    while ((rc = tm_csv_next(csv, e)) > 0) {
        rc = take_listed_row(reader, csv, &at, e);
        if (rc != 0) return tm_error_wrap(e, rc, "%s:%d", reader->file, csv->line);
    }
    return rc;
}

/* ---- logs and events that name instances ---- */

/* Instances that are there, by number of their id. */
struct alive {
    struct tm_names ids;
    struct instance {
        double since_s; /* NaN: not there */
        char type[40];
        char zone[40];
    } * instances;
    size_t capacity;
    size_t known;
};

static int find_instance(struct alive *alive, struct tm_slice id, struct instance **out, struct tm_error *e)
{
    long number = tm_names_add(&alive->ids, id.data, id.length);
    if (number == -(long)TM_ENOMEM) return tm_error_nomem(e);
    if (number < 0) return tm_error_set(e, TM_ELIMIT, "more than %d instances", TM_LIFETIMES_MAX);
    void *instances = alive->instances;
    int rc = tm_grow(&instances, &alive->capacity, (size_t)number + 1, sizeof *alive->instances, TM_LIFETIMES_MAX);
    alive->instances = instances;
    if (rc != 0) return tm_error_nomem(e);
    for (; alive->known <= (size_t)number; alive->known++)
        alive->instances[alive->known] = (struct instance){.since_s = NAN};
    *out = &alive->instances[number];
    return 0;
}

static void set_name(char out[40], struct tm_slice name)
{
    (void)snprintf(out, 40, "%.*s", (int)(name.length < 39 ? name.length : 39), name.data);
}

static int end_life(struct reader *reader, struct instance *instance, double now_s, enum tm_lifetime_end end,
                    struct tm_error *e)
{
    struct tm_lifetime life = {.age_s = now_s - instance->since_s, .end_s = now_s, .weight = 1, .end = end};
    instance->since_s = NAN;
    return add(reader, life, (struct tm_slice){instance->type, strlen(instance->type)},
               (struct tm_slice){instance->zone, strlen(instance->zone)}, e);
}

/* Those still there when the record ends. */
static int end_record(struct reader *reader, struct alive *alive, double now_s, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < alive->known; i++)
        if (!isnan(alive->instances[i].since_s))
            rc = end_life(reader, &alive->instances[i], now_s, TM_LIFETIME_RELEASED, e);
    return rc;
}

static int read_events(struct reader *reader, struct tm_csv *csv, struct alive *alive, struct tm_error *e)
{
    double now_s = 0;
    int rc;
    while ((rc = tm_csv_next(csv, e)) > 0) {
        int64_t ms;
        struct instance *instance;
        struct tm_slice time = field(csv, 0);
        struct tm_slice what = field(csv, 1);
        bool adds = tm_slice_equals(what, "add");
        if (csv->field_count != 3 || !tm_number_i64(time.data, time.length, &ms) || ms < 0 ||
            (!adds && !tm_slice_equals(what, "remove")) || field(csv, 2).length == 0)
            return tm_error_set(e, TM_EINPUT, "%s:%d: expected milliseconds, add or remove, and a name", reader->file,
                                csv->line);
        now_s = fmax(now_s, (double)ms / 1000);
        rc = find_instance(alive, field(csv, 2), &instance, e);
        if (rc == 0 && adds && isnan(instance->since_s)) instance->since_s = now_s;
        if (rc == 0 && !adds && !isnan(instance->since_s)) rc = end_life(reader, instance, now_s, TM_LIFETIME_LOST, e);
        if (rc != 0) return tm_error_wrap(e, rc, "%s:%d", reader->file, csv->line);
    }
    return rc != 0 ? rc : end_record(reader, alive, now_s, e);
}

/* The word behind `before` in a message; false if it is not there. */
static bool word_behind(struct tm_slice message, const char *before, struct tm_slice *out)
{
    const char *at = memmem(message.data, message.length, before, strlen(before));
    if (at == NULL) return false;
    at += strlen(before);
    size_t left = message.length - (size_t)(at - message.data);
    size_t length = 0;
    while (length < left && at[length] != ' ')
        length++;
    *out = (struct tm_slice){at, length};
    return length > 0;
}

/* "nvidia-tesla-v100" is V100. */
static void set_gpu(char out[40], struct tm_slice type)
{
    const char *dash = memrchr(type.data, '-', type.length);
    if (dash != NULL) type = (struct tm_slice){dash + 1, type.length - (size_t)(dash + 1 - type.data)};
    set_name(out, type);
    for (char *c = out; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
}

static int take_message(struct reader *reader, struct alive *alive, struct tm_slice message, double now_s,
                        struct tm_error *e)
{
    struct tm_slice id;
    struct tm_slice type;
    struct tm_slice zone;
    struct instance *instance;
    bool created = word_behind(message, "Created instance ", &id) && word_behind(message, " of type ", &type);
    bool gone = !created && word_behind(message, "Instance ", &id) &&
                memmem(message.data, message.length, " not running", 12) != NULL;
    bool there = !created && !gone && word_behind(message, "Instance ", &id) &&
                 memmem(message.data, message.length, " running in", 11) != NULL;
    if (!created && !gone && !there) return 0;
    int rc = find_instance(alive, id, &instance, e);
    if (rc != 0) return rc;
    if (created) set_gpu(instance->type, type);
    if (word_behind(message, " in zone ", &zone)) set_name(instance->zone, zone);
    if (!gone && isnan(instance->since_s)) instance->since_s = now_s;
    if (gone && !isnan(instance->since_s)) return end_life(reader, instance, now_s, TM_LIFETIME_LOST, e);
    return 0;
}

static int read_log(struct reader *reader, struct alive *alive, struct tm_error *e)
{
    const char *end = reader->text + reader->length;
    double now_s = 0;
    int line = 0;
    reader->out->has_hour = true;
    for (const char *at = reader->text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline != NULL ? newline : end;
        const char *close = memchr(at, ']', (size_t)(stop - at));
        int64_t ms;
        line++;
        if (close != NULL && at[0] == '[' && tm_calendar_parse(at + 1, (size_t)(close - at) - 1, &ms)) {
            now_s = fmax(now_s, (double)ms / 1000);
            struct tm_slice message = tm_slice_trim((struct tm_slice){close + 1, (size_t)(stop - close) - 1});
            int rc = take_message(reader, alive, message, now_s, e);
            if (rc != 0) return tm_error_wrap(e, rc, "%s:%d", reader->file, line);
        } else if (stop > at && at[0] != '\r') {
            return tm_error_set(e, TM_EINPUT, "%s:%d: expected [2020-03-15T10:07:33Z] and a message", reader->file,
                                line);
        }
        at = stop + 1;
    }
    return end_record(reader, alive, now_s, e);
}

/* ---- traces that only count ---- */

struct cohort {
    double since_s;
    double weight;
};

struct cohorts {
    struct cohort *list;
    size_t count;
    size_t capacity;
    double alive;
};

/* Takes `going` of all instances there, in equal shares, as losses (or as still there at the end). */
static int spread(struct reader *reader, struct cohorts *cohorts, double going, double now_s, enum tm_lifetime_end end,
                  const struct tm_lifetime *template, struct tm_slice type, struct tm_slice zone, struct tm_error *e)
{
    double share = cohorts->alive > 0 ? fmin(1, going / cohorts->alive) : 0;
    size_t left = 0;
    for (size_t i = 0; i < cohorts->count; i++) {
        struct cohort *cohort = &cohorts->list[i];
        struct tm_lifetime life = *template;
        life.age_s = now_s - cohort->since_s;
        life.end_s += now_s;
        life.weight = cohort->weight * share;
        life.end = end;
        int rc = life.weight > 1e-9 ? add(reader, life, type, zone, e) : 0;
        if (rc != 0) return rc;
        cohort->weight -= life.weight;
        if (cohort->weight > 1e-6) cohorts->list[left++] = *cohort;
    }
    cohorts->count = left;
    cohorts->alive -= cohorts->alive * share;
    return 0;
}

static int follow_trace(struct reader *reader, const struct tm_trace *trace, struct cohorts *cohorts,
                        struct tm_error *e)
{
    struct tm_slice type = {trace->instance, strlen(trace->instance)};
    struct tm_slice zone = {trace->zone, strlen(trace->zone)};
    struct tm_lifetime template = {.end_s = trace->has_start ? (double)trace->start_utc_ms / 1000 : 0};
    if (trace->has_start) reader->out->has_hour = true;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct tm_trace_event *event = &trace->events[i];
        double now_s = (double)event->time_ms / 1000;
        int rc =
            event->out > 0 ? spread(reader, cohorts, event->out, now_s, TM_LIFETIME_LOST, &template, type, zone, e) : 0;
        void *list = cohorts->list;
        if (rc == 0) rc = tm_grow(&list, &cohorts->capacity, cohorts->count + 1, sizeof *cohorts->list, COHORTS_MAX);
        cohorts->list = list;
        if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
        if (rc != 0) return tm_error_wrap(e, rc, "too many instances of different age at once");
        if (event->in > 0) cohorts->list[cohorts->count++] = (struct cohort){now_s, event->in};
        cohorts->alive += event->in;
    }
    return spread(reader, cohorts, cohorts->alive, (double)trace->end_ms / 1000, TM_LIFETIME_RELEASED, &template, type,
                  zone, e);
}

static int read_trace(struct reader *reader, struct tm_error *e)
{
    struct tm_trace trace;
    struct cohorts cohorts = {0};
    tm_trace_init(&trace);
    double cap_s = reader->cap_s;
    if (cap_s < 0) reader->cap_s = 0; /* ages of shares are too blurred for it */
    int rc = tm_trace_parse(reader->file, reader->text, reader->length, NULL, &trace, e);
    if (rc == 0) {
        rc = follow_trace(reader, &trace, &cohorts, e);
        if (rc != 0) rc = tm_error_wrap(e, rc, "%s", reader->file);
    }
    reader->cap_s = cap_s;
    tm_free(cohorts.list);
    tm_trace_deinit(&trace);
    return rc;
}

/* ---- which is it? ---- */

enum kind { KIND_NAMED, KIND_LISTED, KIND_EVENTS, KIND_LOG, KIND_TRACE };

static struct tm_slice first_line(const char *text, size_t length)
{
    const char *newline = memchr(text, '\n', length);
    return tm_slice_trim((struct tm_slice){text, newline != NULL ? (size_t)(newline - text) : length});
}

static bool has(struct tm_slice text, const char *piece)
{
    return memmem(text.data, text.length, piece, strlen(piece)) != NULL;
}

static enum kind kind_of(const struct reader *reader)
{
    struct tm_slice first = first_line(reader->text, reader->length);
    size_t behind = (size_t)(first.data + first.length - reader->text);
    struct tm_slice rest = {reader->text + behind, reader->length - behind > 64 ? 64 : reader->length - behind};
    int64_t ms;
    if (has(first, "lifetime_s")) return KIND_LISTED;
    if (has(first, "VM name,Start") || has(rest, "VM name,Start")) return KIND_NAMED;
    if (has(first, ",add,") || has(first, ",remove,")) return KIND_EVENTS;
    const char *close = memchr(first.data, ']', first.length);
    if (first.length > 0 && first.data[0] == '[' && close != NULL &&
        tm_calendar_parse(first.data + 1, (size_t)(close - first.data) - 1, &ms))
        return KIND_LOG;
    return KIND_TRACE;
}

static int read_as(struct reader *reader, enum kind kind, struct tm_error *e)
{
    if (kind == KIND_TRACE) return read_trace(reader, e);
    struct alive alive = {0};
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    tm_csv_init(csv, reader->file, reader->text, reader->length);
    tm_names_init(&alive.ids, TM_LIFETIMES_MAX);
    int rc = kind == KIND_NAMED    ? read_named(reader, csv, e)
             : kind == KIND_LISTED ? read_listed(reader, csv, e)
             : kind == KIND_EVENTS ? read_events(reader, csv, &alive, e)
                                   : read_log(reader, &alive, e);
    tm_names_deinit(&alive.ids);
    tm_free(alive.instances);
    tm_free(csv);
    return rc;
}

int tm_lifetimes__parse(const char *file, const char *text, size_t length, double cap_s, struct tm_lifetimes *lifetimes,
                        struct tm_error *e)
{
    struct reader reader = {.file = file, .text = text, .length = length, .cap_s = cap_s, .out = lifetimes};
    size_t before = lifetimes->count;
    int rc = read_as(&reader, kind_of(&reader), e);
    if (rc == 0 && lifetimes->count == before)
        rc = tm_error_set(e, TM_EINPUT, "%s: there are no instances in it", file);
    if (rc != 0) lifetimes->count = before;
    return rc;
}

int tm_lifetimes_load(struct tm_env *env, const char *path, double cap_s, struct tm_lifetimes *lifetimes,
                      struct tm_error *e)
{
    struct tm_text text;
    struct tm_shipped shipped;
    if (strcmp(path, "-") != 0 && !env->file_exists(env, path) && tm_shipped__trace_find(path, &shipped))
        return tm_lifetimes__parse(path, shipped.text, shipped.length, cap_s, lifetimes, e);
    tm_text_init(&text, TM_LIFETIMES_BYTES_MAX);
    int rc = tm_content_read(env, path, &text, e);
    if (rc == 0) rc = tm_lifetimes__parse(path, tm_text_string(&text), text.length, cap_s, lifetimes, e);
    tm_text_deinit(&text);
    return rc;
}
