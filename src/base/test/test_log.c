#include "base/log.h"

#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct taken {
    int count;
    enum tm_log__level level;
    char line[4096];
};

static void take(void *context, enum tm_log__level level, const char *line)
{
    struct taken *taken = context;
    taken->count++;
    taken->level = level;
    (void)snprintf(taken->line, sizeof taken->line, "%s", line);
}

static int to_the_start(void **state)
{
    (void)state;
    tm_log_set_sink(NULL, NULL);
    tm_log_set_level(TM_LOG_WARN);
    return 0;
}

static void test_the_first_level_is_warn(void **state)
{
    (void)state;
    assert_int_equal(tm_log__level(), TM_LOG_WARN);
}

static void test_levels_above_are_dropped(void **state)
{
    (void)state;
    struct taken taken = {0};
    tm_log_set_sink(take, &taken);
    for (int set = TM_LOG_ERROR; set <= TM_LOG_DEBUG; set++) {
        tm_log_set_level((enum tm_log__level)set);
        assert_int_equal(tm_log__level(), set);
        for (int level = TM_LOG_ERROR; level <= TM_LOG_DEBUG; level++) {
            taken.count = 0;
            tm_log((enum tm_log__level)level, "x");
            assert_row(taken.count == (level <= set), "level %d at %d: %d lines", level, set, taken.count);
            assert_row(taken.count == 0 || (int)taken.level == level, "level %d at %d: wrong level", level, set);
        }
    }
}

static void test_a_message_is_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *want;
    } rows[] = {{"plain", "plain"}, {"a\nb", "a b"}, {"a\r\nb", "a  b"}, {"\033[2Jx", " [2Jx"}, {"", ""}};
    struct taken taken = {0};
    tm_log_set_sink(take, &taken);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        tm_log(TM_LOG_ERROR, "%s", rows[i].text);
        assert_row_string(rows[i].want, taken.line, rows[i].want);
    }
}

static void test_a_long_message_is_cut(void **state)
{
    (void)state;
    struct taken taken = {0};
    tm_log_set_sink(take, &taken);
    tm_log(TM_LOG_ERROR, "%100000d", 1);
    assert_int_equal(taken.count, 1);
    assert_true(strlen(taken.line) < 2048);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {"error", "warning", "info", "debug"};
    for (int level = TM_LOG_ERROR; level <= TM_LOG_DEBUG; level++)
        assert_row_string(names[level], tm_log_level_name((enum tm_log__level)level), names[level]);
}

static void test_without_a_sink_lines_go_to_standard_error(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    (void)fflush(stderr);
    int saved = dup(STDERR_FILENO);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    tm_log(TM_LOG_WARN, "disk is %d%% full", 95);
    tm_log(TM_LOG_INFO, "not shown");
    (void)fflush(stderr);
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    (void)close(ends[1]);
    char line[100] = "";
    ssize_t got = read(ends[0], line, sizeof line - 1);
    (void)close(ends[0]);
    assert_true(got > 0);
    assert_string_equal(line, "warning: disk is 95% full\n");
}

#define LOG_TEST(function) cmocka_unit_test_setup_teardown(function, to_the_start, to_the_start)

TM_TEST_MAIN(TM_TEST(test_the_first_level_is_warn), LOG_TEST(test_levels_above_are_dropped),
             LOG_TEST(test_a_message_is_one_line), LOG_TEST(test_a_long_message_is_cut), LOG_TEST(test_names),
             LOG_TEST(test_without_a_sink_lines_go_to_standard_error))
