#include "base/debug.h"

#include "base/env_virtual.h"
#include "base/log.h"
#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

struct taken {
    int count;
    enum tm_log__level level;
    char line[2048];
};

static void take(void *context, enum tm_log__level level, const char *line)
{
    struct taken *taken = context;
    taken->count++;
    taken->level = level;
    (void)snprintf(taken->line, sizeof taken->line, "%s", line);
}

static int count_up(int *count)
{
    return ++*count;
}

static void test_lines_of_a_room(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct taken taken = {0};
    int asked = 0;
    tm_log_set_sink(take, &taken);
    tm_log_set_level(TM_LOG_ERROR);
    assert_int_equal(tm_debug_open(env, NULL), 0); /* no variable: all are off, and nothing is computed */
    tm_debug(TM_DEBUG_WIRE, "%d", count_up(&asked));
    assert_int_equal(taken.count, 0);
    assert_int_equal(asked, 0);
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DEBUG", "store,wire"), 0);
    assert_int_equal(tm_debug_open(env, NULL), 0);
    tm_env_virtual_advance(env, 86400000 + 3723004); /* the time is the environment's */
    tm_debug(TM_DEBUG_WIRE, "number %d", count_up(&asked));
    assert_int_equal(taken.count, 1);
    assert_int_equal(taken.level, TM_LOG_DEBUG);
    assert_string_equal(taken.line, "01:02:03.004 wire: number 1");
    tm_debug(TM_DEBUG_RUN, "%d", count_up(&asked));
    assert_int_equal(asked, 1);
    assert_true(tm_debug_is_on(TM_DEBUG_STORE) && !tm_debug_is_on(TM_DEBUG_RUN));
    assert_int_equal(tm_debug_set(env, "all", NULL), 0);
    for (int room = 0; room < TM_DEBUG_COUNT; room++)
        assert_true(tm_debug_is_on(room));
    assert_int_equal(tm_debug_set(env, "", NULL), 0);
    assert_false(tm_debug_is_on(TM_DEBUG_WIRE));
    tm_log_set_sink(NULL, NULL);
    tm_log_set_level(TM_LOG_WARN);
    tm_env_virtual_destroy(env);
}

static void test_rooms_that_are_not_there(void **state)
{
    (void)state;
    static const char *const rows[] = {"wier", "wire,", "wire,,run", "wire run", "WIRE", "allx"};
    struct tm_env *env = tm_env_virtual_create(1);
    assert_int_equal(tm_debug_set(env, "run", NULL), 0);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {0};
        int rc = tm_debug_set(env, rows[i], &e);
        bool fine = strcmp(rows[i], "wire,") == 0; /* nothing behind the last comma */
        assert_row(rc == (fine ? 0 : -(int)TM_EUSAGE), "\"%s\"", rows[i]);
        if (!fine)
            assert_row(strstr(e.text, "rooms are wire, web, store, worker, engine, cloud, run, sim, or all"), "%s",
                       e.text);
    }
    assert_int_equal(tm_debug_set(env, NULL, NULL), 0);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_lines_of_a_room), TM_TEST(test_rooms_that_are_not_there))
