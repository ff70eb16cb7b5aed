#include "market/lifetimes.h"

#include "market/test/market_helpers.h"

/* All records in one text: "K80/us-west1-b 24.1h capped x1". */
static void show(const struct tm_lifetimes *lifetimes, char *out, size_t size)
{
    static const char *const ends[] = {"lost", "capped", "released"};
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < lifetimes->count && used < size; i++) {
        const struct tm_lifetime *life = &lifetimes->records[i];
        used += (size_t)snprintf(out + used, size - used, "%s/%s %gs %s", lifetimes->types.names[life->type],
                                 lifetimes->zones.names[life->zone], life->age_s, ends[life->end]);
        if (life->weight != 1 && used < size) used += (size_t)snprintf(out + used, size - used, " x%g", life->weight);
        if (life->idle && used < size) used += (size_t)snprintf(out + used, size - used, " idle");
        if (used < size) used += (size_t)snprintf(out + used, size - used, "; ");
    }
}

static int parse(const char *text, double cap_s, struct tm_lifetimes *lifetimes, struct tm_error *e)
{
    size_t length = strlen(text);
    char *copy = malloc(length + 1);
    if (copy == NULL) abort();
    memcpy(copy, text, length);
    int rc = tm_lifetimes__parse("t.csv", copy, length, cap_s, lifetimes, e);
    free(copy);
    return rc;
}

static void test_good(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double cap_s;
        const char *want;
    } rows[] = {
        {"K80,,\nVM name,Start,Terminate\na-us-west1-b-0,2/18/19 23:40,2/19/19 00:40\n"
         "a-us-west1-b-1less,2/18/19 23:40,2/19/19 23:46\nP100,,\nVM name,Start,Terminate\n"
         "a-p100-europe-west1-b-2,2/28/19 23:00,3/1/19 01:00\nPrevious experiments,,\n",
         -1, "K80/us-west1-b 3600s lost; K80/us-west1-b 86760s capped idle; P100/europe-west1-b 7200s lost; "},
        {"insert_time,zone,machine_type,lifetime_s,end,load\n2019-02-18T08:57:37.265-08:00,us-central1-f,n1,4648.5,"
         "preempted,idle\n,us-east-1a,n2,90000,preempted,busy\n,us-east1-b,n2,90000,preempted,busy\n,z,n2,5,stopped,"
         "x\n",
         -1,
         "n1/us-central1-f 4648.5s lost idle; n2/us-east-1a 90000s lost; n2/us-east1-b 90000s capped; n2/z 5s "
         "released; "},
        {"lifetime_s,end\n100,lost\n", 0, "/t.csv 100s lost; "},
        {"lifetime_s,end\n3600,lost\n3000,lost\n", 3600, "/t.csv 3600s capped; /t.csv 3000s lost; "},
        {"0,add,a\n0,add,b\n60000,remove,a\n120000,add,c\n", -1,
         "/t.csv 60s lost; /t.csv 120s released; /t.csv 0s released; "},
        {"[2020-03-15T10:00:00Z] Created instance i1 with 1 GPU(s) of type nvidia-tesla-v100 in zone z1\n"
         "[2020-03-15T10:00:30Z] Instance i1 running in zone z1\n[2020-03-15T10:01:00Z] Instance i1 not running in "
         "zone "
         "z1\n[2020-03-15T10:02:00Z] Instance i2 creation failed\n[2020-03-15T10:03:00Z] Created instance i3 with 8 "
         "GPU(s) of type k80 in zone z2\n[2020-03-15T10:05:00Z] Instance i3 running in zone z2\n",
         -1, "V100/z1 60s lost; K80/z2 120s released; "},
        /* Only counts: each of four loses a half, then a quarter of a half of the first two and of the new ones. */
        {"tidemill-trace 1\ninstance: p3\nzone: z\nend: 180s\n\n0 +4\n60 -2 +2\n120 -1\n", -1,
         "p3/z 60s lost x2; p3/z 120s lost x0.5; p3/z 60s lost x0.5; p3/z 180s released x1.5; p3/z 120s released "
         "x1.5; "},
    };
    for (size_t r = 0; r < TM_COUNT(rows); r++) {
        struct tm_lifetimes lifetimes;
        struct tm_error e = {0};
        char got[1024];
        tm_lifetimes_init(&lifetimes);
        int rc = parse(rows[r].text, rows[r].cap_s, &lifetimes, &e);
        assert_row(rc == 0, "%s: %s", rows[r].text, e.text);
        show(&lifetimes, got, sizeof got);
        assert_row_string(rows[r].text, got, rows[r].want);
        tm_lifetimes_deinit(&lifetimes);
    }
}

static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words;
    } rows[] = {
        {"lifetime_s,zone\n5,z\n", "t.csv:1: a list of lifetimes needs the columns lifetime_s and end"},
        {"lifetime_s,end\nx,lost\n", "t.csv:2: lifetime_s: expected seconds, got \"x\""},
        {"lifetime_s,end\n-1,lost\n", "t.csv:2: lifetime_s: expected seconds"},
        {"lifetime_s,end\nnan,lost\n", "t.csv:2: lifetime_s: expected seconds"},
        {"lifetime_s,end\n1e999,lost\n", "t.csv:2"},
        {"lifetime_s,end\n", "no instances in it"},
        {"lifetime_s,end,insert_time\n5,lost,yesterday\n", "t.csv:2: insert_time: expected a time"},
        {"VM name,Start,Terminate\na-b-c-d-0,2/30/19 10:00,3/1/19 10:00\n", "t.csv:2: expected two times"},
        {"VM name,Start,Terminate\na-b-c-d-0,2/18/19 10:00,2/17/19 10:00\n", "t.csv:2: an instance that ends before"},
        {"0,add,a\n60000,move,a\n", "t.csv:2: expected milliseconds, add or remove"},
        {"0,add,a\n5\n", "t.csv:2: expected milliseconds"},
        {"[2020-03-15T10:00:00Z] hello\nworld\n", "t.csv:2: expected [2020"},
        {"gibberish", "t.csv"},
    };
    for (size_t r = 0; r < TM_COUNT(rows); r++) {
        struct tm_lifetimes lifetimes;
        struct tm_error e = {0};
        tm_lifetimes_init(&lifetimes);
        assert_int_equal(parse("lifetime_s,end\n5,lost\n", 0, &lifetimes, &e), 0);
        int rc = parse(rows[r].text, -1, &lifetimes, &e);
        assert_row(rc == -(int)TM_EINPUT, "%s: %d", rows[r].text, rc);
        assert_error_has(e, rows[r].words);
        assert_row(lifetimes.count == 1, "%s: left %zu records", rows[r].text, lifetimes.count);
        tm_lifetimes_deinit(&lifetimes);
    }
}

static int load_once(const char *text)
{
    struct tm_lifetimes lifetimes;
    tm_lifetimes_init(&lifetimes);
    int rc = parse(text, -1, &lifetimes, NULL);
    tm_lifetimes_deinit(&lifetimes);
    return rc;
}

static void test_out_of_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = load_once("lifetime_s,end\n5,lost\n7,lost\n"));
    TM_FAIL_EACH_ALLOC(rc = load_once("0,add,a\n0,add,b\n60000,remove,a\n"));
    TM_FAIL_EACH_ALLOC(rc = load_once("tidemill-trace 1\nend: 180s\n\n0 +4\n60 -2\n"));
}

TM_TEST_MAIN(TM_TEST(test_good), TM_TEST(test_bad), TM_TEST(test_out_of_memory))
