#include "market/price_history.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

static const char header[] = "instance,zone,time,usd_h\n";

static int add(struct tm_price_history *history, const char *instance, const char *zone, int64_t time_ms, double usd_h)
{
    return tm_price_history__add(history, instance, strlen(instance), zone, strlen(zone), time_ms, usd_h, NULL);
}

/* Prints the history without its header. */
static void check_printed(const struct tm_price_history *history, const char *want)
{
    struct tm_text out;
    tm_text_init(&out, 10000);
    tm_price_history__print(history, &out);
    assert_int_equal(tm_text_status(&out, NULL), 0);
    assert_int_equal(strncmp(tm_text_string(&out), header, sizeof header - 1), 0);
    assert_string_equal(tm_text_string(&out) + sizeof header - 1, want);
    tm_text_deinit(&out);
}

static void test_order_and_the_last_of_a_moment(void **state)
{
    (void)state;
    struct tm_price_history history;
    tm_price_history_init(&history);
    assert_int_equal(add(&history, "p3", "b", 2000, 1.5), 0);
    assert_int_equal(add(&history, "p3", "b", 1000, 1.25), 0);
    assert_int_equal(add(&history, "p3", "a", 9000, 3), 0);
    assert_int_equal(add(&history, "g5", "b", 500, 0.1), 0);
    assert_int_equal(add(&history, "p3", "b", 2000, 1.75), 0);
    assert_int_equal(add(&history, "p3", "b", 2000, 1.625), 0); /* of one moment the last one added stays */
    assert_int_equal(history.count, 6);
    assert_int_equal(tm_price_history__sort(&history, NULL), 0);
    check_printed(&history, "g5,b,1970-01-01T00:00:00.500Z,0.1\np3,a,1970-01-01T00:00:09Z,3\n"
                            "p3,b,1970-01-01T00:00:01Z,1.25\np3,b,1970-01-01T00:00:02Z,1.625\n");
    assert_int_equal(tm_price_history__sort(&history, NULL), 0);
    assert_int_equal(history.count, 4);
    assert_int_equal(history.names.count, 4);
    tm_price_history_deinit(&history);
    tm_price_history_deinit(&history);
}

static void test_nothing(void **state)
{
    (void)state;
    struct tm_price_history history;
    tm_price_history_init(&history);
    assert_int_equal(tm_price_history__sort(&history, NULL), 0);
    check_printed(&history, "");
    tm_price_history_deinit(&history);
}

static struct tm_env *env_with(const char *content)
{
    struct tm_env *env = tm_env_virtual_create(1);
    assert_non_null(env);
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/d"), 0);
    if (content != NULL)
        assert_int_equal(env->file_write(env, "/d/spot-prices.csv", content, strlen(content), NULL), 0);
    return env;
}

static void test_loading(void **state)
{
    (void)state;
    static const struct {
        const char *content; /* NULL: no such file */
        int rc;
        size_t count;
        const char *words;
    } rows[] = {
        {NULL, 0, 0, ""},
        {"instance,zone,time,usd_h\n", 0, 0, ""},
        {"instance,zone,time,usd_h\np3,a,2024-02-01T00:01:36Z,0.5\ng5,b,2024-02-01,1\n", 0, 2, ""},
        {"p3,a,2024-02-01T00:01:36Z,0.5\n", -TM_EINPUT, 0, "/d/spot-prices.csv:1: expected instance,zone,time,usd_h"},
        {"instance,zone,time,usd_h\np3,a,soon,0.5\n", -TM_EINPUT, 0, "/d/spot-prices.csv:2: expected instance,zone"},
        {"instance,zone,time,usd_h\n\np3,a,2024-02-01,cheap\n", -TM_EINPUT, 0, "/d/spot-prices.csv:3: expected"},
        {"instance,zone,time,usd_h\np3,a,2024-02-01\n", -TM_EINPUT, 0, "/d/spot-prices.csv:2: expected"},
        {"instance,zone,time,usd_h\np3,a,2024-02-01,1,2\n", -TM_EINPUT, 0, "/d/spot-prices.csv:2: expected"},
        {" ", -TM_EINPUT, 0, "/d/spot-prices.csv: file is empty"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_env *env = env_with(rows[i].content);
        struct tm_price_history history;
        struct tm_error e = {0};
        tm_price_history_init(&history);
        int rc = tm_price_history_load(env, &history, &e);
        assert_row(rc == rows[i].rc, "row %zu: got %d: %s", i, rc, e.text);
        assert_row(strstr(e.text, rows[i].words) != NULL, "row %zu: \"%s\"", i, e.text);
        assert_row(rc != 0 || history.count == rows[i].count, "row %zu: %zu changes", i, history.count);
        tm_price_history_deinit(&history);
        tm_env_virtual_destroy(env);
    }
}

static void test_without_a_home_it_is_empty(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_price_history history;
    tm_price_history_init(&history);
    assert_int_equal(tm_price_history_load(env, &history, NULL), 0);
    assert_int_equal(history.count, 0);
    tm_price_history_deinit(&history);
    tm_env_virtual_destroy(env);
}

/* Names as a hostile CSV may bring them: what is written must read again, the same. */
static void test_round_trip(void **state)
{
    (void)state;
    static const struct {
        const char *instance, *zone;
        int64_t time_ms;
        double usd_h;
    } rows[] = {
        {"\"quoted\"", "a\nb", 0, 0},
        {"comma,d", "a\rb", 1, 1.0 / 3},
        {"g4dn.xlarge", "us-east-2a", 1706745696000, 0.4939},
        {"p3.2xlarge", "us-east-2a", 1706745696123, 1e-9},
    };
    struct tm_price_history history;
    struct tm_price_history again;
    struct tm_text out;
    tm_price_history_init(&history);
    tm_price_history_init(&again);
    tm_text_init(&out, 10000);
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_int_equal(add(&history, rows[i].instance, rows[i].zone, rows[i].time_ms, rows[i].usd_h), 0);
    tm_price_history__print(&history, &out);
    struct tm_env *env = env_with(tm_text_string(&out));
    struct tm_error e = {0};
    assert_row(tm_price_history_load(env, &again, &e) == 0, "%s", e.text);
    assert_int_equal(again.count, TM_COUNT(rows));
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        const struct tm_price_change *got = &again.changes[i];
        assert_row_string(rows[i].instance, again.names.names[got->instance], rows[i].instance);
        assert_row_string(rows[i].zone, again.names.names[got->zone], rows[i].zone);
        assert_row(got->time_ms == rows[i].time_ms && got->usd_h == rows[i].usd_h, "row %zu", i);
    }
    tm_env_virtual_destroy(env);
    tm_text_deinit(&out);
    tm_price_history_deinit(&again);
    tm_price_history_deinit(&history);
}

static int load_and_sort_once(struct tm_env *env)
{
    struct tm_price_history history;
    tm_price_history_init(&history);
    int rc = tm_price_history_load(env, &history, NULL);
    if (rc == 0 && history.count != 2) rc = -TM_EINTERNAL; /* a history lost for want of memory must be said */
    if (rc == 0) rc = tm_price_history__sort(&history, NULL);
    tm_price_history_deinit(&history);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    struct tm_env *env = env_with("instance,zone,time,usd_h\np3,a,2024-02-01,0.5\ng5,b,2024-02-01,1\n");
    TM_FAIL_EACH_ALLOC(rc = load_and_sort_once(env));
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_order_and_the_last_of_a_moment), TM_TEST(test_nothing), TM_TEST(test_loading),
             TM_TEST(test_without_a_home_it_is_empty), TM_TEST(test_round_trip), TM_TEST(test_without_memory))
