#include "market/shipped.h"

#include "market/catalog.h"
#include "market/test/market_helpers.h"
#include "market/trace_stats.h"

static void load(const char *name, struct tm_trace *trace)
{
    struct tm_shipped shipped;
    struct tm_error e = {0};
    assert_row(tm_shipped__trace_find(name, &shipped), "%s is not shipped", name);
    tm_trace_init(trace);
    int rc = tm_trace_parse(name, shipped.text, shipped.length, NULL, trace, &e);
    assert_row(rc == 0, "%s: %s", name, e.text);
}

/* The published hours: figures of the papers' segments. */
static void test_the_four_hours(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double mean;
        int64_t min, max, loss_events, instances_lost, arrival_events, instances_arrived;
    } rows[] = {
        {"hadp", 27.483, 20, 32, 9, 19, 7, 16},
        {"hasp", 29.633, 23, 32, 6, 11, 4, 7},
        {"ladp", 16.817, 11, 24, 8, 18, 12, 17},
        {"lasp", 14.633, 14, 18, 3, 4, 0, 0},
    };
    assert_int_equal(tm_shipped__trace_count(), TM_COUNT(rows));
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_trace trace;
        load(rows[i].name, &trace);
        struct tm_trace_stats s = tm_trace_stats(&trace);
        assert_row_string(rows[i].name, tm_shipped__trace(i).name, rows[i].name);
        assert_row(near(s.mean_available, rows[i].mean, 0.0005), "%s: mean %g", rows[i].name, s.mean_available);
        assert_row(s.min == rows[i].min && s.max == rows[i].max, "%s: range", rows[i].name);
        assert_row(s.loss_events == rows[i].loss_events && s.instances_lost == rows[i].instances_lost,
                   "%s: %d (%d) lost", rows[i].name, (int)s.loss_events, (int)s.instances_lost);
        assert_row(s.arrival_events == rows[i].arrival_events && s.instances_arrived == rows[i].instances_arrived,
                   "%s: %d (%d) came", rows[i].name, (int)s.arrival_events, (int)s.instances_arrived);
        assert_row(trace.end_ms == 3600000 && trace.interval_ms == 60000, "%s: not an hour of minutes", rows[i].name);
        assert_row(strcmp(trace.instance, "p3.2xlarge") == 0, "%s: instance", rows[i].name);
        assert_row(strlen(trace.source) > 20 && strlen(tm_shipped__trace(i).summary) > 10, "%s: words", rows[i].name);
        check_round_trip(rows[i].name, &trace);
        tm_trace_deinit(&trace);
    }
}

/* Count at the start of each minute. */
static void counts_by_minute(const struct tm_trace *trace, int64_t counts[60])
{
    int64_t count = 0;
    size_t next = 0;
    for (int minute = 0; minute < 60; minute++) {
        for (; next < trace->event_count && trace->events[next].time_ms <= minute * 60000; next++)
            count += trace->events[next].in - trace->events[next].out;
        counts[minute] = count;
    }
}

static void test_the_hours_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *file;
    } rows[] = {
        {"hadp", SHARED_DATA "/traces/aws-fleet-parcae-p3-hh.jsonl"},
        {"hasp", SHARED_DATA "/traces/aws-fleet-parcae-p3-hl.jsonl"},
        {"ladp", SHARED_DATA "/traces/aws-fleet-parcae-p3-lh.jsonl"},
        {"lasp", SHARED_DATA "/traces/aws-fleet-parcae-p3-ll.jsonl"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_trace ours;
        struct tm_trace published;
        struct tm_error e = {0};
        int64_t got[60];
        int64_t want[60];
        if (!tm_env_real()->file_exists(tm_env_real(), rows[i].file)) {
            print_message("skipped: no file %s\n", rows[i].file);
            skip();
        }
        load(rows[i].name, &ours);
        tm_trace_init(&published);
        assert_row(tm_trace_load(tm_env_real(), rows[i].file, NULL, &published, &e) == 0, "%s", e.text);
        counts_by_minute(&ours, got);
        counts_by_minute(&published, want);
        for (int minute = 0; minute < 60; minute++)
            assert_row(got[minute] == want[minute], "%s: minute %d: %d, want %d", rows[i].name, minute,
                       (int)got[minute], (int)want[minute]);
        tm_trace_deinit(&published);
        tm_trace_deinit(&ours);
    }
}

static void test_finding_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *want; /* NULL: there is none */
    } rows[] = {
        {"hadp", "hadp"}, {"HADP", "hadp"}, {"LaSp", "lasp"}, {"", NULL}, {"had", NULL}, {"catalog", NULL},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_shipped shipped = {.name = NULL};
        bool found = tm_shipped__trace_find(rows[i].name, &shipped);
        assert_row(found == (rows[i].want != NULL), "\"%s\": found: %d", rows[i].name, found);
        if (found) assert_row_string(rows[i].name, shipped.name, rows[i].want);
    }
}

static void test_the_catalogue_parses(void **state)
{
    (void)state;
    struct tm_shipped shipped = tm_shipped__catalog();
    struct tm_catalog catalog;
    struct tm_error e = {0};
    assert_true(shipped.length > 10000);
    assert_int_equal(shipped.text[shipped.length - 1], '\n');
    tm_catalog_init(&catalog);
    int rc = tm_catalog_parse(&catalog, "shipped", shipped.text, shipped.length, false, &e);
    assert_row(rc == 0, "%s", e.text);
    assert_true(catalog.offer_count > 1000);
    tm_catalog_deinit(&catalog);
}

TM_TEST_MAIN(TM_TEST(test_the_four_hours), TM_TEST(test_the_hours_are_the_published_ones),
             TM_TEST(test_finding_by_name), TM_TEST(test_the_catalogue_parses))
