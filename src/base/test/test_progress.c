#include "base/progress.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"

#include <string.h>

struct screen {
    struct tm_text text;
    int writes;
};

static void take(void *context, const char *text, size_t length)
{
    struct screen *screen = context;
    tm_text_clear(&screen->text);
    tm_text_append(&screen->text, text, length);
    screen->writes++;
}

static struct tm_progress start(struct tm_env *env, struct screen *screen, bool is_terminal, bool utf8)
{
    struct tm_progress progress;
    struct tm_term term = {.is_terminal = is_terminal, .utf8 = utf8};
    tm_text_init(&screen->text, 10000);
    screen->writes = 0;
    tm_progress_start(&progress, env, term, "simulating", 100);
    progress.write = take;
    progress.write_context = screen;
    return progress;
}

static void test_drawn_at_most_ten_times_a_second(void **state)
{
    (void)state;
    static const struct {
        int64_t advance_ms;
        int writes;
    } rows[] = {{0, 0}, {999, 0}, {1, 1}, {0, 1}, {99, 1}, {1, 2}, {99, 2}, {1, 3}, {5000, 4}, {0, 4}};
    struct tm_env *env = tm_env_virtual_create(1);
    struct screen screen;
    struct tm_progress progress = start(env, &screen, true, true);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        tm_env_virtual_advance(env, rows[i].advance_ms);
        tm_progress_update(&progress, (int64_t)i);
        assert_row(screen.writes == rows[i].writes, "row %zu: %d writes", i, screen.writes);
    }
    tm_progress_finish(&progress);
    assert_int_equal(screen.writes, 5);
    assert_string_equal(tm_text_string(&screen.text), "\r\033[K");
    tm_progress_finish(&progress); /* nothing left to wipe */
    assert_int_equal(screen.writes, 5);
    tm_text_deinit(&screen.text);
    tm_env_virtual_destroy(env);
}

static void test_what_is_drawn(void **state)
{
    (void)state;
    static const struct {
        int64_t done;
        bool utf8;
        const char *want;
    } rows[] = {
        {0, false, "\rsimulating ..............................   0%\033[K"},
        {50, false, "\rsimulating ###############...............  50%  10s left\033[K"},
        {100, false, "\rsimulating ############################## 100%  0ms left\033[K"},
        {900, false, "\rsimulating ############################## 100%  0ms left\033[K"},
        {10, true, "\rsimulating ███░░░░░░░░░░░░░░░░░░░░░░░░░░░  10%  1m 30s left\033[K"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_env *env = tm_env_virtual_create(1);
        struct screen screen;
        struct tm_progress progress = start(env, &screen, true, rows[i].utf8);
        tm_env_virtual_advance(env, 10000);
        tm_progress_update(&progress, rows[i].done);
        assert_row_string(rows[i].want, tm_text_string(&screen.text), rows[i].want);
        tm_text_deinit(&screen.text);
        tm_env_virtual_destroy(env);
    }
}

static void test_silent_on_a_pipe(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct screen screen;
    struct tm_progress progress = start(env, &screen, false, true);
    tm_env_virtual_advance(env, 10000);
    tm_progress_update(&progress, 50);
    tm_progress_finish(&progress);
    assert_int_equal(screen.writes, 0);
    tm_text_deinit(&screen.text);
    tm_env_virtual_destroy(env);
}

static void test_quick_work_shows_nothing(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct screen screen;
    struct tm_progress progress = start(env, &screen, true, true);
    tm_env_virtual_advance(env, 500);
    tm_progress_update(&progress, 99);
    tm_progress_finish(&progress);
    assert_int_equal(screen.writes, 0);
    tm_text_deinit(&screen.text);
    tm_env_virtual_destroy(env);
}

static void test_no_total_and_a_label_too_long(void **state)
{
    (void)state;
    char label[3000];
    memset(label, 'x', sizeof label);
    label[sizeof label - 1] = '\0';
    struct tm_env *env = tm_env_virtual_create(1);
    struct screen screen;
    struct tm_progress progress = start(env, &screen, true, false);
    progress.total = 0;
    tm_env_virtual_advance(env, 2000);
    tm_progress_update(&progress, 5);
    assert_non_null(strstr(tm_text_string(&screen.text), "   0%"));
    progress.label = label;
    tm_env_virtual_advance(env, 2000);
    tm_progress_update(&progress, 5);
    assert_int_equal(screen.writes, 1);
    tm_text_deinit(&screen.text);
    tm_env_virtual_destroy(env);
}

static int draw_once(struct tm_env *env)
{
    struct screen screen;
    struct tm_progress progress = start(env, &screen, true, true);
    progress.started_ns -= 2000000000;
    tm_progress_update(&progress, 50);
    tm_progress_finish(&progress);
    tm_text_deinit(&screen.text);
    return 0; /* a bar that is not drawn is no failure */
}

static void test_without_memory(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    TM_FAIL_EACH_ALLOC(rc = draw_once(env));
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_drawn_at_most_ten_times_a_second), TM_TEST(test_what_is_drawn),
             TM_TEST(test_silent_on_a_pipe), TM_TEST(test_quick_work_shows_nothing),
             TM_TEST(test_no_total_and_a_label_too_long), TM_TEST(test_without_memory))
