/* Every public trace beside the repository against the table of figures that came with it (index.csv).
 *
 * The table's definitions, which are ours too:
 * - days: length of the trace, counted from its zero (aws-fleet-bamboo-g4dn has its first record at 480 s only);
 * - mean_availability: mean count over the time from the first record to the end, divided by instances_max; for logs of
 *   polled instances the share of polls that found the instance running;
 * - loss_events, instances_lost: times at which instances went, and how many; an instance lost and replaced at one
 * recorded time counts as lost (the count alone would not show it);
 * - text files whose times go back in places: such a line counts as at the latest time so far.
 * Figures in the table are rounded to 3 (days) and 4 (availability) decimals, intervals to whole seconds. */
#include "base/content.h"
#include "base/csv.h"
#include "base/number.h"
#include "market/test/market_helpers.h"
#include "market/trace_stats.h"

#define TRACES SHARED_DATA "/traces/"

enum { FILE_NAME, FORMAT, INTERVAL, DAYS, INSTANCES, AVAILABILITY, LOSSES, LOST, COLUMN_COUNT };
static const char *const column_names[COLUMN_COUNT] = {
    "file", "format", "interval_s", "days", "nodes_max", "mean_availability", "loss_events", "nodes_lost"};

struct row {
    char file[200];
    char format[32];
    double figures[COLUMN_COUNT]; /* NaN where the table has words */
};

static void read_row(const struct tm_csv *csv, const int *columns, struct row *row)
{
    struct tm_slice file = csv->fields[columns[FILE_NAME]];
    struct tm_slice format = csv->fields[columns[FORMAT]];
    (void)snprintf(row->file, sizeof row->file, "%.*s", (int)file.length, file.data);
    (void)snprintf(row->format, sizeof row->format, "%.*s", (int)format.length, format.data);
    for (int i = INTERVAL; i < COLUMN_COUNT; i++) {
        struct tm_slice text = csv->fields[columns[i]];
        row->figures[i] = NAN;
        (void)tm_number_double(text.data, text.length, &row->figures[i]);
        assert_row(i == INTERVAL || !isnan(row->figures[i]), "%s: no %s", row->file, column_names[i]);
    }
}

/* Calls `check` for each row, and gives how many there are; skips the test where the folder is not there. */
static size_t for_each_row(void (*check)(const struct row *row))
{
    struct tm_env *env = tm_env_real();
    if (!env->file_exists(env, TRACES "index.csv")) {
        print_message("skipped: no folder %s\n", TRACES);
        skip();
    }
    struct tm_text text;
    struct tm_error e = {0};
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    int columns[COLUMN_COUNT];
    size_t count = 0;
    assert_non_null(csv);
    tm_text_init(&text, 1 << 20);
    assert_row(tm_content_read(env, TRACES "index.csv", &text, &e) == 0, "%s", e.text);
    tm_csv_init(csv, "index.csv", tm_text_string(&text), text.length);
    assert_int_equal(tm_csv_next(csv, &e), 1);
    for (int i = 0; i < COLUMN_COUNT; i++) {
        columns[i] = tm_csv_find(csv, column_names[i]);
        assert_row(columns[i] >= 0, "index.csv has no column %s", column_names[i]);
    }
    for (; tm_csv_next(csv, &e) == 1; count++) {
        struct row row;
        read_row(csv, columns, &row);
        check(&row);
    }
    tm_free(csv);
    tm_text_deinit(&text);
    return count;
}

static void load(const struct row *row, struct tm_trace *trace)
{
    char path[600];
    struct tm_error e = {0};
    (void)snprintf(path, sizeof path, TRACES "%s", row->file);
    tm_trace_init(trace);
    int rc = tm_trace_load(tm_env_real(), path, NULL, trace, &e);
    assert_row(rc == 0, "%s", e.text);
}

static void check_figures(const struct row *row)
{
    struct tm_trace trace;
    load(row, &trace);
    struct tm_trace_stats s = tm_trace_stats(&trace);
    const double *want = row->figures;
    assert_row(strcmp(trace.format, row->format) == 0, "%s: read as %s, want %s", row->file, trace.format, row->format);
    assert_row((double)s.instances_max == want[INSTANCES], "%s: %lld nodes", row->file, (long long)s.instances_max);
    assert_row(near(s.duration_s / 86400, want[DAYS], 0.000501), "%s: %g days, want %g", row->file,
               s.duration_s / 86400, want[DAYS]);
    assert_row(near(s.availability, want[AVAILABILITY], 0.0000501), "%s: availability %g, want %g", row->file,
               s.availability, want[AVAILABILITY]);
    assert_row((double)s.loss_events == want[LOSSES], "%s: %lld losses, want %g", row->file, (long long)s.loss_events,
               want[LOSSES]);
    assert_row((double)s.instances_lost == want[LOST], "%s: %lld nodes lost, want %g", row->file,
               (long long)s.instances_lost, want[LOST]);
    assert_row(isnan(want[INTERVAL]) || near((double)trace.interval_ms / 1000, want[INTERVAL], 0.5),
               "%s: interval %lld ms, want %g s", row->file, (long long)trace.interval_ms, want[INTERVAL]);
    tm_trace_deinit(&trace);
}

static void test_the_figures_of_every_trace(void **state)
{
    (void)state;
    assert_int_equal(for_each_row(check_figures), 47);
}

static void check_printing(const struct row *row)
{
    struct tm_trace trace;
    load(row, &trace);
    check_round_trip(row->file, &trace);
    tm_trace_deinit(&trace);
}

static void test_nothing_is_lost_in_our_text_form(void **state)
{
    (void)state;
    assert_int_equal(for_each_row(check_printing), 47);
}

static void test_lifetimes_are_refused_with_advice(void **state)
{
    (void)state;
    static const char *const files[] = {"gcp-lifetimes-2019-k80-p100-v100.csv", "gcp-lifetimes-2019-n1.csv"};
    for (size_t i = 0; i < TM_COUNT(files); i++) {
        char path[600];
        struct tm_trace trace;
        struct tm_error e = {0};
        (void)snprintf(path, sizeof path, TRACES "%s", files[i]);
        if (!tm_env_real()->file_exists(tm_env_real(), path)) skip();
        tm_trace_init(&trace);
        assert_int_equal(tm_trace_load(tm_env_real(), path, NULL, &trace, &e), -TM_EINPUT);
        assert_error_has(e, "a list of lifetimes of single VMs");
    }
}

TM_TEST_MAIN(TM_TEST(test_the_figures_of_every_trace), TM_TEST(test_nothing_is_lost_in_our_text_form),
             TM_TEST(test_lifetimes_are_refused_with_advice))
