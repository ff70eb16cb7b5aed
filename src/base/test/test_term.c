#include "base/term.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"

#include <fcntl.h>
#include <pty.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct variable {
    const char *name;
    const char *value;
};

static struct tm_term detect(const struct variable *variables, size_t count, int fd, enum tm_color_mode mode)
{
    struct tm_env *env = tm_env_virtual_create(1);
    assert_non_null(env);
    for (size_t i = 0; i < count && variables[i].name != NULL; i++)
        assert_int_equal(tm_env_virtual_set_variable(env, variables[i].name, variables[i].value), 0);
    struct tm_term term = tm_term_detect(env, fd, mode);
    tm_env_virtual_destroy(env);
    return term;
}

static void test_detect_on_a_terminal(void **state)
{
    (void)state;
    static const struct {
        struct variable variables[3];
        enum tm_color_mode mode;
        bool color;
        bool utf8;
        int width;
    } rows[] = {
        {{{"TERM", "xterm"}}, TM_COLOR_AUTO, true, true, 100},
        {{{0}}, TM_COLOR_AUTO, false, true, 100},
        {{{"TERM", "dumb"}}, TM_COLOR_AUTO, false, true, 100},
        {{{"TERM", "dumb"}}, TM_COLOR_ALWAYS, true, true, 100},
        {{{"TERM", "xterm"}, {"NO_COLOR", "1"}}, TM_COLOR_AUTO, false, true, 100},
        {{{"TERM", "xterm"}, {"NO_COLOR", ""}}, TM_COLOR_AUTO, true, true, 100},
        {{{"TERM", "xterm"}, {"NO_COLOR", "1"}}, TM_COLOR_ALWAYS, true, true, 100},
        {{{"TERM", "xterm"}}, TM_COLOR_NEVER, false, true, 100},
        {{{"LANG", "C"}}, TM_COLOR_NEVER, false, false, 100},
        {{{"LANG", "POSIX"}}, TM_COLOR_NEVER, false, false, 100},
        {{{"LANG", "C"}, {"LC_ALL", "C.UTF-8"}}, TM_COLOR_NEVER, false, true, 100},
        {{{"LANG", "en_US.UTF-8"}, {"LC_CTYPE", "de_DE.ISO-8859-1"}}, TM_COLOR_NEVER, false, false, 100},
        {{{"LC_ALL", ""}, {"LANG", "en_US.utf8"}}, TM_COLOR_NEVER, false, true, 100},
        {{{"COLUMNS", "60"}}, TM_COLOR_NEVER, false, true, 60},
        {{{"COLUMNS", "19"}}, TM_COLOR_NEVER, false, true, 100},
        {{{"COLUMNS", "10001"}}, TM_COLOR_NEVER, false, true, 100},
        {{{"COLUMNS", "wide"}}, TM_COLOR_NEVER, false, true, 100},
        {{{"COLUMNS", "99999999999999999999"}}, TM_COLOR_NEVER, false, true, 100},
    };
    int master = -1;
    int slave = -1;
    const struct winsize size = {.ws_col = 100, .ws_row = 24};
    if (openpty(&master, &slave, NULL, NULL, &size) != 0) skip(); /* a sandbox without /dev/pts */
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_term term = detect(rows[i].variables, 3, slave, rows[i].mode);
        assert_row(term.is_terminal, "row %zu: no terminal", i);
        assert_row(term.color == rows[i].color, "row %zu: color %d", i, term.color);
        assert_row(term.utf8 == rows[i].utf8, "row %zu: utf8 %d", i, term.utf8);
        assert_row(term.width == rows[i].width, "row %zu: width %d", i, term.width);
    }
    (void)close(master);
    (void)close(slave);
}

static void test_a_terminal_without_a_size_has_80_columns(void **state)
{
    (void)state;
    int master = -1;
    int slave = -1;
    if (openpty(&master, &slave, NULL, NULL, NULL) != 0) skip();
    assert_int_equal(detect(NULL, 0, slave, TM_COLOR_AUTO).width, 80);
    (void)close(master);
    (void)close(slave);
}

static void test_detect_on_a_file(void **state)
{
    (void)state;
    static const struct {
        struct variable variables[2];
        enum tm_color_mode mode;
        bool color;
        bool utf8;
        int width;
    } rows[] = {
        {{{"TERM", "xterm"}}, TM_COLOR_AUTO, false, true, 0},
        {{{"TERM", "xterm"}}, TM_COLOR_ALWAYS, true, true, 0},
        {{{"LANG", "C"}}, TM_COLOR_AUTO, false, true, 0},
        {{{"LANG", "de_DE.ISO-8859-1"}}, TM_COLOR_AUTO, false, false, 0},
        {{{"COLUMNS", "60"}}, TM_COLOR_AUTO, false, true, 60},
    };
    int fd = open("/dev/null", O_RDWR);
    assert_true(fd >= 0);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_term term = detect(rows[i].variables, 2, fd, rows[i].mode);
        assert_row(!term.is_terminal, "row %zu: a terminal", i);
        assert_row(term.color == rows[i].color, "row %zu: color %d", i, term.color);
        assert_row(term.utf8 == rows[i].utf8, "row %zu: utf8 %d", i, term.utf8);
        assert_row(term.width == rows[i].width, "row %zu: width %d", i, term.width);
    }
    (void)close(fd);
    assert_false(detect(NULL, 0, -1, TM_COLOR_AUTO).is_terminal);
}

static void test_put_colors(void **state)
{
    (void)state;
    static const struct {
        enum tm_color color;
        const char *colored;
    } rows[] = {
        {TM_PLAIN, "x"},
        {TM_BOLD, "\033[1mx\033[0m"},
        {TM_DIM, "\033[2mx\033[0m"},
        {TM_RED, "\033[31mx\033[0m"},
        {TM_GREEN, "\033[32mx\033[0m"},
        {TM_YELLOW, "\033[33mx\033[0m"},
        {TM_BLUE, "\033[34mx\033[0m"},
        {TM_CYAN, "\033[36mx\033[0m"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text out;
        tm_text_init(&out, 100);
        tm_term_put(&(struct tm_term){.color = true}, &out, rows[i].color, "x");
        assert_row_string(rows[i].colored, tm_text_string(&out), rows[i].colored);
        tm_text_clear(&out);
        tm_term_put(&(struct tm_term){.color = false}, &out, rows[i].color, "x");
        assert_row_string("without color", tm_text_string(&out), "x");
        tm_text_deinit(&out);
    }
}

static void test_columns(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t columns;
    } rows[] = {
        {"", 0},     {"abc", 3},      {"äöü", 3},      {"日本", 4},
        {"한글", 4}, {"😀", 2},        {"e\u0301", 1},  {"a\u200Bb", 2},
        {"▁█", 2},   {"\xff\xfe", 2}, {"\xE6\x97", 2}, /* cut in the middle */ {"\xF0\x9F\x98", 3},
        {"\xC3", 1},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        size_t columns = tm_term_columns(rows[i].text);
        assert_row(columns == rows[i].columns, "\"%s\": got %zu", rows[i].text, columns);
    }
}

static void test_put_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t columns;
        bool utf8;
        const char *want;
    } rows[] = {
        {"abc", 3, true, "abc"},      {"abcd", 3, true, "ab…"},   {"abcd", 3, false, "ab~"},
        {"abcd", 1, true, "…"},       {"abcd", 0, true, ""},      {"", 0, true, ""},
        {"日本語", 5, true, "日本…"}, {"日本語", 4, true, "日…"}, {"日本語", 6, true, "日本語"},
        {"äöüß", 3, true, "äö…"},     {"日", 1, true, "…"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text out;
        tm_text_init(&out, 100);
        tm_term__put_cut(&(struct tm_term){.utf8 = rows[i].utf8}, &out, rows[i].text, rows[i].columns);
        assert_row_string(rows[i].text, tm_text_string(&out), rows[i].want);
        assert_row(tm_term_columns(tm_text_string(&out)) <= rows[i].columns, "\"%s\": too wide", rows[i].text);
        tm_text_deinit(&out);
    }
}

static void test_put_safe(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *want;
    } rows[] = {
        {"plain", "plain"},
        {"\033[2J", "?[2J"},
        {"a\nb\tc\rd", "a?b?c?d"},
        {"\x7f\x01\b", "???"},
        {"\xC2\x9B"
         "2J",
         "?2J"},
        {"äöü 日本", "äöü 日本"},
        {"\xC2\xA0\xC3\x9B", "\xC2\xA0\xC3\x9B"},
        {"\xC2", "?"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text out;
        tm_text_init(&out, 100);
        tm_term_put_safe(&out, rows[i].text, strlen(rows[i].text));
        assert_row_string(rows[i].want, tm_text_string(&out), rows[i].want);
        tm_text_deinit(&out);
    }
}

static int put_once(void)
{
    struct tm_term term = {.color = true, .utf8 = true};
    struct tm_text out;
    tm_text_init(&out, 10000);
    tm_term_put(&term, &out, TM_RED, "x");
    tm_term__put_cut(&term, &out, "a long text that is cut", 10);
    tm_term_put_safe(&out, "\033x", 2);
    int rc = tm_text_status(&out, NULL);
    tm_text_deinit(&out);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = put_once());
}

TM_TEST_MAIN(TM_TEST(test_detect_on_a_terminal), TM_TEST(test_a_terminal_without_a_size_has_80_columns),
             TM_TEST(test_detect_on_a_file), TM_TEST(test_put_colors), TM_TEST(test_columns), TM_TEST(test_put_cut),
             TM_TEST(test_put_safe), TM_TEST(test_without_memory))
