#include "market/trace_format.h"

#include "market/test/market_helpers.h"

#define CREATED(id) "Created instance " id " with 1 GPU(s) of type v100 in zone us-east-1b\n"
#define NODES2      "{\"nodes\": [\"a\", \"b\"], \"duration\": 60000, \"x_strategy\": [1, {\"y\": null}]}]\n"

/* text, format asked for (NULL: found by content), format found, events, interval in seconds, instances_max */
struct sample {
    const char *text;
    const char *asked;
    const char *found;
    const char *want;
    double interval_s;
    int64_t instances_max;
};

static void check_samples(const struct sample *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct tm_trace trace;
        char shown[400];
        trace_from(rows[i].text, rows[i].asked, &trace);
        assert_row_string(rows[i].text, trace.format, rows[i].found);
        assert_row_string(rows[i].text, show_trace(&trace, shown, sizeof shown), rows[i].want);
        assert_row((double)trace.interval_ms == rows[i].interval_s * 1000, "\"%s\": interval %lld ms", rows[i].text,
                   (long long)trace.interval_ms);
        assert_row(trace.instances_max == rows[i].instances_max, "\"%s\": at most %lld", rows[i].text,
                   (long long)trace.instances_max);
        assert_row(trace.begin_ms == trace.events[0].time_ms, "\"%s\": wrong begin", rows[i].text);
        check_round_trip(rows[i].text, &trace);
        tm_trace_deinit(&trace);
    }
}

static void test_json_series(void **state)
{
    (void)state;
    static const struct sample rows[] = {
        {"{\"metadata\": {\"gap_seconds\": 60}, \"data\": [1, 1, 0, 1]}", NULL, "json-series",
         "0+1 120-1 180+1 end 240", 60, 1},
        {" \r\n\t{\"data\":[0,16,3],\"metadata\":{\"gap_seconds\":0.5}}\r\n", NULL, "json-series",
         "0 0.5+16 1-13 end 1.5", 0.5, 16},
        {"{\"metadata\":{\"gap_seconds\":10},\"data\":[2,2,2,2],\"prices\":[0.5,0.5,0.25,null]}", NULL, "json-series",
         "0+2$0.5 20$0.25 end 40", 10, 2},
        {"{\"metadata\":{\"gap_seconds\":10},\"data\":[0,1,1],\"prices\":[null,0,0]}", NULL, "json-series",
         "0 10+1$0 end 30", 10, 1},
        {"{\"metadata\":{\"gap_seconds\":60,\"other\":1},\"data\":[1000000],\"more\":[]}", "json-series", "json-series",
         "0+1000000 end 60", 60, 1000000},
    };
    check_samples(rows, TM_COUNT(rows));
}

static void test_parcae(void **state)
{
    (void)state;
    static const struct sample rows[] = {
        {"[0, \"add\", " NODES2 "[60000, \"no-op\", {\"nodes\": [], \"duration\": 60000}]\n"
         "[120000, \"remove\", {\"nodes\": [\"a\"], \"duration\": 60000}]\n",
         NULL, "parcae-jsonl", "0+2 120-1 end 180", 60, 2},
        {"[0, \"add\", " NODES2 "\n \t\r\n[60000, \"add\", " NODES2 "[60000, \"remove\", " NODES2, NULL, "parcae-jsonl",
         "0+2 60-2+2 end 120", 60, 2},
        {"[0 , \"no-op\", {\"nodes\":[1,2],\"duration\":30000}]", NULL, "parcae-jsonl", "0 end 30", 30, 0},
    };
    check_samples(rows, TM_COUNT(rows));
}

static void test_log(void **state)
{
    (void)state;
    static const struct sample rows[] = {
        {"[2020-03-15T10:00:00Z] " CREATED("a") "[2020-03-15T10:05:00Z] Instance a running in zone us-east-1b\n"
                                                "[2020-03-15T10:10:00Z] Instance a not running in zone us-east-1b\n"
                                                "[2020-03-15T10:10:00Z] Instance a not running in zone us-east-1b\n"
                                                "[2020-03-15T10:12:00Z] " CREATED(
                                                    "b") "[2020-03-15T10:20:00Z] Instance b deleted\n",
         NULL, "log", "0+1 600-1 720+1 end 1200", 0, 1},
        {"[2020-03-15 10:00:00.500] Instance creation failed\r\n\r\n"
         "[2020-03-15 10:01:00.500] Instance x running in zone z\r\n",
         NULL, "log", "0 60+1 end 60", 0, 1}, /* known from the first line on, though nobody is there */
        {"[2020-03-15T10:00:00Z] Instance a not running in zone z\n"
         "[2020-03-15T09:59:00Z] Instance  running in zone z\n[2020-03-15T10:00:09Z] Instance b running in zone z",
         NULL, "log", "0 9+1 end 9", 0, 1},
    };
    check_samples(rows, TM_COUNT(rows));
}

static void test_polls_of_logs(void **state)
{
    (void)state;
    struct tm_trace trace;
    trace_from("[2020-03-15T10:00:00Z] " CREATED("a") "[2020-03-15T10:05:00Z] Instance a running in zone z\n"
                                                      "[2020-03-15T10:10:00Z] Instance a not running in zone z\n"
                                                      "[2020-03-15T10:15:00Z] Instance a running in zone z\n"
                                                      "[2020-03-15T10:14:00Z] Instance a running in zone z\n",
               NULL, &trace);
    assert_int_equal(trace.polls, 4);
    assert_int_equal(trace.polls_running, 3);
    assert_true(trace.has_start);
    assert_int_equal(trace.start_utc_ms, 1584266400000);
    assert_int_equal(trace.warnings[TM_TRACE_TIMES_GO_BACK].count, 1);
    assert_int_equal(trace.warnings[TM_TRACE_TIMES_GO_BACK].first_line, 5);
    tm_trace_deinit(&trace);
}

static void test_node_events(void **state)
{
    (void)state;
    static const struct sample rows[] = {
        {"0,add,n1\n0,add,n2\n60000,remove,n1\n180000,add,n3\n", NULL, "csv-node-events", "0+2 60-1 180+1 end 180", 60,
         2},
        {"480000,add,n1\r\n480000, add ,n2\r\n480500,remove,n2\r\n", NULL, "csv-node-events", "480+2 480.5-1 end 480.5",
         0, 2},
        {"\n0,add,a\n0,add,b\n60000,add,c\n30000,remove,a\n", NULL, "csv-node-events", "0+2 60-1+1 end 60", 60, 2},
    };
    check_samples(rows, TM_COUNT(rows));
}

static void test_counts(void **state)
{
    (void)state;
    static const struct sample rows[] = {
        /* whole thousands, or numbers past 10^7: milliseconds */
        {"0,4\n60000,3\n", NULL, "csv-counts-ms", "0+4 60-1 end 60", 60, 4},
        {"0,4\n10000001,3\n", NULL, "csv-counts-ms", "0+4 10000-1 end 10000", 10000.001, 4},
        /* other whole numbers: seconds */
        {"0,4\n21529,3\n", NULL, "csv-counts-s", "0+4 21529-1 end 21529", 21529, 4},
        {"0,4\n10000000,5\n60,3\n", NULL, "csv-counts-s", "0+4 1e+07-2+1 end 1e+07", 10000000, 4},
        {"0,4\n", NULL, "csv-counts-s", "0+4 end 0", 0, 4},
        /* a point anywhere: hours; 0.03 h is 108 s, to the millisecond */
        {"0,4\n1000,4\n1000.5,3\n", NULL, "csv-counts-h", "0+4 3.6018e+06-1 end 3.6018e+06", 3601800, 4},
        {"0.000,9\n0.030,8\n", NULL, "csv-counts-h", "0+9 108-1 end 108", 108, 9},
        /* said, not guessed */
        {"0,4\n60000,3\n", "csv-counts-s", "csv-counts-s", "0+4 60000-1 end 60000", 60000, 4},
        {"0,4\n7,3\n", "csv-counts-ms", "csv-counts-ms", "0+4 0.007-1 end 0.007", 0, 4},
        {"0,4\n2,3\n", "csv-counts-h", "csv-counts-h", "0+4 7200-1 end 7200", 7200, 4},
        {"0,4\n2.0004,3\n", "csv-counts-s", "csv-counts-s", "0+4 2-1 end 2", 0, 4},
        /* step corners: old and new count at one time; the last one holds */
        {"1,4\n61,4\n61,2\n121,2\n121,5\n", NULL, "csv-counts-s", "1+4 61-2 121+3 end 121", 0, 5},
        {"1,4\n61,3\n61,4\n", NULL, "csv-counts-s", "1+4 61-1+1 end 61", 0, 4}, /* lost and replaced: both show */
        {"1,4\n61,4\n181,4\n", NULL, "csv-counts-s", "1+4 end 181", 0, 4},
        {" 5 , 4 \r\n\r\n 65 , 0\r\n", NULL, "csv-counts-s", "5+4 65-4 end 65", 0, 4},
        {"\xEF\xBB\xBF"
         "7,4\n",
         NULL, "csv-counts-s", "7+4 end 7", 0, 4},
        {"9,1000000\n", NULL, "csv-counts-s", "9+1000000 end 9", 0, 1000000},
    };
    check_samples(rows, TM_COUNT(rows));
}

static void test_text_counts(void **state)
{
    (void)state;
    static const struct sample rows[] = {
        {"2021-12-10, 13:07:45, 80\n2021-12-10, 13:09:00, 79\n", NULL, "txt-counts", "0+80 75-1 end 75", 0, 80},
        {"2021-12-10, 23:59:59, 8\r\n2021-12-11, 00:00:01, 9\r\n", NULL, "txt-counts", "0+8 2+1 end 2", 0, 9},
        {"2021-12-10, 13:00:00, 8\n2021-12-10, 12:00:00, 7\n2021-12-10, 13:00:10, 9\n2021-12-10, 13:00:05, 6\n", NULL,
         "txt-counts", "0-1+8 10-3+2 end 10", 0, 7},
    };
    check_samples(rows, TM_COUNT(rows));
}

static void test_probes_and_their_polarity(void **state)
{
    (void)state;
    static const char even[] = "0,2022-11-28T22:20:00Z,0\n1,2022-11-28T22:30:01Z,1\n2,2022-11-28T22:40:00Z,0\n";
    static const struct sample rows[] = {
        {even, NULL, "csv-probe", "0+1 599-1 1198+1 end 1797", 599, 1}, /* on the grid of the median */
        {even, "csv-probe-up", "csv-probe-up", "0 599+1 1198-1 end 1797", 599, 1},
        {"0,2022-11-28T22:20:00Z,0\n1,2022-11-28T22:30:00Z,0\n2,2022-11-28T22:50:00Z,1\r\n", NULL, "csv-probe",
         "0+1 1800-1 end 2400", 0, 1}, /* uneven: each holds until the next, the last for the median */
        {"7,2022-11-28 22:20:00+00:00,1\n", NULL, "csv-probe", "0 end 0", 0, 1},
        {"0,2022-11-28T22:20:00Z,0\n1,2022-11-28T22:10:00Z,1\n2,2022-11-28T22:30:00Z,0\n"
         "3,2022-11-28T22:40:00Z,0\n",
         NULL, "csv-probe", "0-1+1 600+1 end 1800", 0, 1},
    };
    check_samples(rows, TM_COUNT(rows));
}

static void test_warnings(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *format;
        enum tm_trace_warning warning;
        int count, first_line;
    } rows[] = {
        {"0,2022-11-28T22:20:00Z,1\n1,2022-11-28T22:30:00Z,1\n", NULL, TM_TRACE_NEVER_AVAILABLE, 1, 1},
        {"0,2022-11-28T22:20:00Z,1\n1,2022-11-28T22:30:00Z,1\n", "csv-probe-up", TM_TRACE_NEVER_AVAILABLE, 0, 0},
        {"0,2022-11-28T22:20:00Z,0\n1,2022-11-28T22:30:00Z,0\n", "csv-probe-up", TM_TRACE_NEVER_AVAILABLE, 1, 1},
        {"\n0,2022-11-28T22:20:00Z,0\n1,2022-11-28T22:30:00Z,0\n2,2022-11-28T22:41:00Z,0", NULL,
         TM_TRACE_IRREGULAR_PROBES, 1, 2},
        {"0,2022-11-28T22:20:00Z,0\n1,2022-11-28T22:30:00Z,0\n2,2022-11-28T22:40:05Z,0", NULL,
         TM_TRACE_IRREGULAR_PROBES, 0, 0},
        {"0,2022-11-28T22:20:00Z,0\n1,2022-11-28T22:10:00Z,1\n", NULL, TM_TRACE_TIMES_GO_BACK, 1, 2},
        {"0,4\n61,3\n", NULL, TM_TRACE_UNIT_GUESSED, 1, 1},
        {"0,4\n61,3\n", "csv-counts-s", TM_TRACE_UNIT_GUESSED, 0, 0},
        {"0,4\n61,3\n7,2\n61,3\n8,2\n", NULL, TM_TRACE_TIMES_GO_BACK, 2, 3},
        {"2021-12-10, 13:00:00, 8\n2021-12-10, 12:00:00, 7\n", NULL, TM_TRACE_TIMES_GO_BACK, 1, 2},
        {"0,add,a\n60000,add,b\n30000,remove,b\n", NULL, TM_TRACE_TIMES_GO_BACK, 1, 3},
        {"0,add,a\n60000,add,b\n", NULL, TM_TRACE_TIMES_GO_BACK, 0, 0},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_trace trace;
        trace_from(rows[i].text, rows[i].format, &trace);
        int count = trace.warnings[rows[i].warning].count;
        int line = trace.warnings[rows[i].warning].first_line;
        assert_row(count == rows[i].count && line == rows[i].first_line, "row %zu: %d %s, first in line %d", i, count,
                   tm_trace_warning_name(rows[i].warning), line);
        tm_trace_deinit(&trace);
    }
}

struct bad {
    const char *text;
    const char *format;
    const char *words;
};

static void check_bad(const struct bad *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct tm_trace trace;
        struct tm_error e = {0};
        tm_trace_init(&trace);
        trace.instances_max = 77;
        int rc = parse_exactly(rows[i].text, rows[i].format, &trace, &e);
        assert_row(rc == -TM_EINPUT, "\"%s\": got %d", rows[i].text, rc);
        assert_row(strstr(e.text, rows[i].words) != NULL, "\"%s\": \"%s\"", rows[i].text, e.text);
        assert_row(trace.instances_max == 77 && trace.events == NULL, "\"%s\": touched its output", rows[i].text);
    }
}

static void test_bad_rows_of_tables(void **state)
{
    (void)state;
    static const struct bad rows[] = {
        {"0,4\n60,x\n", NULL, "t:2: expected seconds,count, for example 21529,4"},
        {"0,4\n60,3,1\n", NULL, "t:2: expected seconds,count"},
        {"0,4\n60\n", NULL, "t:2: expected seconds,count"},
        {"0,4\n-60,3\n", NULL, "t:2: expected seconds,count"},
        {"0,4\n\n60,-3\n", NULL, "t:3: expected a number of instances from 0 to 1000000, got -3"},
        {"0,4\n60,1000001\n", NULL, "t:2: expected a number of instances from 0 to 1000000, got 1000001"},
        {"0,4\n60,99999999999999999999\n", NULL, "t:2: expected seconds,count"},
        {"0,4\n99999999999999999999,4\n", NULL, "t:2: expected seconds,count"},
        {"0,4\n9223372036854775807,4\n", "csv-counts-s", "t:2: expected seconds,count"},
        {"0,4\n60,NaN\n", NULL, "t:2: expected seconds,count"},
        {"0,4\nnan,4\n", "csv-counts-h", "t:2: expected hours,count, for example 0.030,9"},
        {"0,4\n1e3,4\n", "csv-counts-ms", "t:2: expected milliseconds,count, for example 60000,4"},
        {"0,4.5\n", NULL, "t:1: expected seconds,count"},
        {"0,4\n\"60,4\n", NULL, "t:2: quoted field has no closing"},
        {"0,4\n\"60\",4 \n\"61\",x\n", NULL, "t:3: expected seconds,count"},
        {"2021-12-10, 13:07:45, 80\n2021-12-10, 25:07:45, 80\n", NULL, "t:2: expected date, time, count"},
        {"2021-12-10, 13:07:45, 80\n2021-12-10, 13:07:46, -1\n", NULL, "t:2: expected a number of instances"},
        {"2021-12-10, 13:07:45, 80\n2021-12-10, 13:07:46\n", NULL, "t:2: expected date, time, count"},
        {"0,2022-11-28T22:20:00Z,0\n1,2022-11-28T22:30:00Z,2\n", NULL,
         "t:2: expected 0 (launched) or 1 (failed) in the third column, got \"2\""},
        {"0,2022-11-28T22:20:00Z,\n", "csv-probe-up", "t:1: expected 1 (available) or 0 in the third column, got \"\""},
        {"0,2022-11-28T22:20:00Z,0\n1,yesterday,0\n", NULL, "t:2: expected index,time,fail, for example 0,2022-11-28T"},
        {"0,2022-11-28T22:20:00Z,0\nx,2022-11-28T22:30:00Z,0\n", NULL, "t:2: expected index,time,fail"},
        {"0,2022-11-28T22:20:00Z,0\n1,2022-11-28T22:30:00Z\n", NULL, "t:2: expected index,time,fail"},
        {"0,add,a\n60000,remove,a\n60000,remove,a\n", NULL, "t:3: node a is removed but is not there"},
        {"0,add,a\n60000,remove,b\n", NULL, "t:2: node b is removed but is not there"},
        {"0,add,a\n0,add,a\n", NULL, "t:2: node a is added a second time"},
        {"0,add,a\n1,remove,a\n2,add,a\n", NULL, "t:3: node a is added a second time"},
        {"0,add,a\n1,swap,a\n", NULL, "t:2: expected milliseconds,add|remove,node, for example 60000,remove,node3"},
        {"0,add,a\n-1,add,b\n", NULL, "t:2: expected milliseconds,add|remove,node"},
        {"0,add,a\n1,add,\n", NULL, "t:2: expected milliseconds,add|remove,node"},
        {"0,add,a\n1.5,add,b\n", NULL, "t:2: expected milliseconds,add|remove,node"},
        {"0,add,a\n1,add\n", NULL, "t:2: expected milliseconds,add|remove,node"},
    };
    check_bad(rows, TM_COUNT(rows));
}

static void test_bad_json_and_logs(void **state)
{
    (void)state;
    static const struct bad rows[] = {
        {"{\"data\": [1]", NULL, "t:"},
        {"{\"data\": [1]}", NULL, "t: metadata.gap_seconds: expected a number of seconds above 0"},
        {"{\"data\": [1], \"metadata\": {\"gap_seconds\": 0}}", NULL, "metadata.gap_seconds"},
        {"{\"data\": [1], \"metadata\": {\"gap_seconds\": 1e12}}", NULL, "metadata.gap_seconds"},
        {"{\"data\": [1], \"metadata\": {\"gap_seconds\": \"60\"}}", NULL, "metadata.gap_seconds"},
        {"{\"metadata\": {\"gap_seconds\": 60}}", NULL, "t: data: expected a list of counts"},
        {"{\"data\": [], \"metadata\": {\"gap_seconds\": 60}}", NULL, "t: data: expected a list of counts"},
        {"{\"data\": [1, -1], \"metadata\": {\"gap_seconds\": 60}}", NULL,
         "t: data[1]: expected a number of instances"},
        {"{\"data\": [1, 0.5], \"metadata\": {\"gap_seconds\": 60}}", NULL, "t: data[1]: expected a number"},
        {"{\"data\": [1000001], \"metadata\": {\"gap_seconds\": 60}}", NULL, "t: data[0]: expected a number"},
        {"{\"data\": [1, NaN], \"metadata\": {\"gap_seconds\": 60}}", NULL, "t:1"},
        {"{\"data\": [1, 1], \"metadata\": {\"gap_seconds\": 60}, \"prices\": [1]}", NULL,
         "t: prices: expected a list as long as data (2 values)"},
        {"{\"data\": [1, 1], \"metadata\": {\"gap_seconds\": 60}, \"prices\": [1, -1]}", NULL,
         "t: prices[1]: expected a price of 0 or more"},
        {"[0, \"add\", " NODES2 "[60000, \"add\", {\"nodes\": []}]\n", NULL, "t:2: expected [ms, \"add\"|\"remove\"|"},
        {"[0, \"add\", " NODES2 "\n[60000, \"grow\", " NODES2, NULL, "t:3: expected [ms, "},
        {"[0, \"add\", " NODES2 "[60000.5, \"add\", " NODES2, NULL, "t:2: expected [ms, "},
        {"[0, \"add\", " NODES2 "[60000, \"add\", {\"nodes\": [], \"duration\": 0}]", NULL, "t:2: expected [ms, "},
        {"[0, \"add\", " NODES2 "{}", NULL, "t:2: expected [ms, "},
        {"[0, \"add\", " NODES2 "[1, 2", NULL, "t:2: expected [ms, "},
        {"[60000, \"add\", " NODES2 "[0, \"add\", " NODES2, NULL, "t:2: time goes back from 60.000 s to 0.000 s"},
        {"[0, \"add\", " NODES2 "[-5, \"add\", " NODES2, NULL, "t:2: time is before the start of the trace"},
        {"[0, \"add\", " NODES2 "[60000, \"remove\", " NODES2 "[120000, \"remove\", " NODES2, NULL,
         "t: at 120.000 s more instances leave than there are"},
        {"[2020-03-15T10:00:00Z] x\nInstance a running in zone z\n", NULL,
         "t:2: expected [2020-03-15T10:07:33Z] and a message"},
        {"[2020-03-15T10:00:00Z] x\n\n[soon] Instance a running in zone z\n", NULL, "t:3: expected [2020-03-15T"},
        {"[2020-03-15T10:00:00Z] x\n[2020-03-15T10:00:00Z", NULL, "t:2: expected [2020-03-15T"},
    };
    check_bad(rows, TM_COUNT(rows));
}

static void test_files_that_are_no_traces(void **state)
{
    (void)state;
    static const struct bad rows[] = {
        {"insert_time,zone,machine_type,lifetime_s\n", NULL, "t: a list of lifetimes of single VMs, not a trace"},
        {"K80,,\nVM name,Start,Terminate\n", NULL, "t: a list of lifetimes of single VMs"},
        {"VM name,Start,Terminate\n", NULL, "t: a list of lifetimes of single VMs"},
        {"InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB\n", NULL,
         "t: a SkyPilot catalogue; read it with: tidemill catalog import --format skypilot FILE"},
        {"timestamp,availability_zone,instance_type,spot_usd_h\n", NULL,
         "t: a price history; read it with: tidemill catalog import --format prices FILE"},
        {"date,availability_zone,instance_type,min_usd_h,max_usd_h,last_usd_h,changes\r\n", NULL, "t: a price history"},
        {"hello\nworld\n", NULL, "t:1: no known trace format starts with \"hello\"; see tidemill-trace(5)"},
        {"a,b\n", NULL, "starts with \"a,b\""},
        {"\"0\",4\n", NULL, "no known trace format"},
        {"\x1b[31mred\n", NULL, "no known trace format"},
        {"[1234567", NULL, "no known trace format"},
        {"[12345678901", NULL, "no known trace format"},
        {"[2020-03-15T10:00:00Z", NULL, "no known trace format"},
        {"    \n\n   \t ", NULL, "no known trace format"},
        {"", NULL, "t: file is empty"},
        {"\xEF\xBB\xBF", NULL, "t: file is empty"},
        {"", "log", "t: file is empty"},
        {"  \n ", "csv-counts-s", "t: no records in the trace"},
        {"  \n ", "csv-probe", "t: no records in the trace"},
        {"\n\n", "log", "t: no records in the trace"},
        {"\n \n", "parcae-jsonl", "t: no records in the trace"},
        {"\n", "csv-node-events", "t: no records in the trace"},
    };
    check_bad(rows, TM_COUNT(rows));
    struct tm_error e = {0};
    struct tm_trace trace;
    tm_trace_init(&trace);
    assert_int_equal(parse_exactly("\x1b[31mred\n", NULL, &trace, &e), -TM_EINPUT);
    assert_null(strchr(e.text, '\x1b')); /* what a file holds cannot steer the terminal */
}

static void test_the_table_of_formats(void **state)
{
    (void)state;
    size_t count = 0;
    for (const struct tm_trace_format *const *format = tm_trace__formats(); *format != NULL; format++, count++) {
        const struct tm_trace_format *found = NULL;
        assert_row(tm_trace_format__find((*format)->name, &found, NULL) == 0, "%s not found", (*format)->name);
        assert_row(found == *format, "%s is there twice", (*format)->name);
        assert_row(strlen((*format)->name) < sizeof((struct tm_trace *)0)->format, "%s: too long", (*format)->name);
        assert_row(strlen((*format)->summary) > 5 && (*format)->read != NULL, "%s: not whole", (*format)->name);
    }
    assert_int_equal(count, 12);
}

static void test_readers_without_memory(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"metadata\": {\"gap_seconds\": 60}, \"data\": [1, 1, 0, 1], \"prices\": [1, 1, 2, 2]}",
        "[0, \"add\", " NODES2 "[120000, \"remove\", {\"nodes\": [\"a\"], \"duration\": 60000}]\n",
        "[2020-03-15T10:00:00Z] " CREATED("a") "[2020-03-15T10:05:00Z] Instance b running in zone z\n"
                                               "[2020-03-15T10:06:00Z] Instance a not running in zone z\n",
        "0,add,n1\n0,add,n2\n60000,remove,n1\n180000,add,n3\n",
        "2021-12-10, 13:07:45, 80\n2021-12-10, 13:09:00, 79\n",
        "0,2022-11-28T22:20:00Z,0\n1,2022-11-28T22:30:01Z,1\n2,2022-11-28T22:40:00Z,0\n",
        "0,4\n61,3\n",
        "tidemill-trace 1\nend: 60s\n\n0 +1\n",
    };
    for (size_t i = 0; i < TM_COUNT(texts); i++)
        TM_FAIL_EACH_ALLOC(rc = parse_once(texts[i], NULL));
    static const char *const named[] = {"csv-counts-ms", "csv-counts-s", "csv-counts-h", "csv-probe-up"};
    for (size_t i = 0; i < TM_COUNT(named); i++)
        TM_FAIL_EACH_ALLOC(rc = parse_once(i < 3 ? texts[6] : texts[5], named[i]));
}

/* The names that options offer are the table's, in its order. */
static void test_names_are_those_of_the_table(void **state)
{
    (void)state;
    size_t i = 0;
    for (; tm_trace__formats()[i] != NULL; i++) {
        assert_row(tm_trace_format_names[i] != NULL, "%s is not among the names", tm_trace__formats()[i]->name);
        assert_row_string("name", tm_trace_format_names[i], tm_trace__formats()[i]->name);
    }
    assert_null(tm_trace_format_names[i]);
}

TM_TEST_MAIN(TM_TEST(test_names_are_those_of_the_table), TM_TEST(test_json_series), TM_TEST(test_parcae),
             TM_TEST(test_log), TM_TEST(test_polls_of_logs), TM_TEST(test_node_events), TM_TEST(test_counts),
             TM_TEST(test_text_counts), TM_TEST(test_probes_and_their_polarity), TM_TEST(test_warnings),
             TM_TEST(test_bad_rows_of_tables), TM_TEST(test_bad_json_and_logs), TM_TEST(test_files_that_are_no_traces),
             TM_TEST(test_the_table_of_formats), TM_TEST(test_readers_without_memory))
