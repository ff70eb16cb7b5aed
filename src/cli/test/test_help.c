#include "cli/command.h"

#include "base/test/harness.h"

#include <string.h>

enum { TEXT_MAX = 1 << 20, WIDTH = 100 };

static const struct tm_term plain = {.width = 0};

/* Help of a made-up command. */
static struct tm_text help_of(const struct tm_command *command, const struct tm_term *term)
{
    const struct tm_command *const path[] = {command};
    struct tm_text out;
    tm_text_init(&out, TEXT_MAX);
    tm_help_command(path, 1, term, &out);
    assert_int_equal(tm_text_status(&out, NULL), 0);
    return out;
}

/* What help makes of a description: what stands between the synopsis and the next title. */
static struct tm_text wrap(const char *description)
{
    const struct tm_command command = {.name = "x", .summary = "s", .description = description};
    struct tm_text all = help_of(&command, &plain);
    struct tm_text part;
    tm_text_init(&part, TEXT_MAX);
    const char *start = strstr(all.data, "[OPTIONS]\n\n");
    const char *stop = strstr(all.data, "\nOptions of every command\n");
    assert_non_null(start);
    assert_non_null(stop);
    start += strlen("[OPTIONS]\n\n");
    tm_text_append(&part, start, (size_t)(stop - start));
    tm_text_deinit(&all);
    return part;
}

static void test_short_paragraphs(void **state)
{
    (void)state;
    static const struct {
        const char *description;
        const char *want;
    } rows[] = {
        {"One.", "One.\n"},
        {"One  two.", "One two.\n"},
        {"One\ntwo.", "One two.\n"},
        {"One.\n\nTwo.", "One.\n\nTwo.\n"},
        {"One.\n\n\n  Two.", "One.\n\nTwo.\n"},
        {" One. ", "One.\n"},
        {"", "\n"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text got = wrap(rows[i].description);
        assert_row_string(rows[i].description, tm_text_string(&got), rows[i].want);
        tm_text_deinit(&got);
    }
}

/* Words of one length, many times: how many fit a line of 100 columns, blanks between them counted. */
static void test_lines_are_broken(void **state)
{
    (void)state;
    static const struct {
        size_t word;
        size_t on_a_line;
    } rows[] = {{1, 50}, {4, 20}, {9, 10}, {24, 4}, {33, 2}, {49, 2}, {50, 1}, {100, 1}, {150, 1}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text text;
        tm_text_init(&text, TEXT_MAX);
        for (int n = 0; n < 60; n++) {
            tm_text_fill(&text, 'x', rows[i].word);
            tm_text_putc(&text, ' ');
        }
        struct tm_text got = wrap(text.data);
        size_t want = rows[i].on_a_line * (rows[i].word + 1) - 1;
        size_t first = strcspn(got.data, "\n");
        assert_row(first == want, "words of %zu: first line of %zu, want %zu", rows[i].word, first, want);
        size_t words = 0;
        for (const char *line = got.data; *line != '\0'; line += strcspn(line, "\n") + 1) {
            size_t length = strcspn(line, "\n");
            assert_row(length <= WIDTH || length == rows[i].word, "words of %zu: line of %zu", rows[i].word, length);
            assert_row(length > 0 && line[length - 1] == 'x', "words of %zu: blank at the end", rows[i].word);
            words += (length + 1) / (rows[i].word + 1);
        }
        assert_row(words == 60, "words of %zu: %zu of 60 left", rows[i].word, words);
        tm_text_deinit(&got);
        tm_text_deinit(&text);
    }
}

static void test_option_lines(void **state)
{
    (void)state;
    static const char *const choices[] = {"a", "b", NULL};
    static const struct tm_option options[] = {
        {.name = "plain", .help = "a switch"},
        {.name = "short", .letter = 's', .value = "N", .help = "a number"},
        {.name = "kind", .value = "K", .help = "one of", .choices = choices},
        {.name = "a-rather-long-name", .value = "VALUE", .help = "does not fit"},
        {.name = "secret", .help = "not shown", .hidden = true},
        {.name = NULL},
    };
    static const char want[] = "\nOptions\n"
                               "      --plain                 a switch\n"
                               "  -s, --short N               a number\n"
                               "      --kind K                one of (a, b)\n"
                               "      --a-rather-long-name VALUE  does not fit\n"
                               "\nOptions of every command\n";
    const struct tm_command command = {.name = "x", .summary = "s", .options = options};
    struct tm_text got = help_of(&command, &plain);
    assert_row(strstr(got.data, want) != NULL, "%s", got.data);
    assert_null(strstr(got.data, "secret"));
    tm_text_deinit(&got);
}

static void test_synopsis(void **state)
{
    (void)state;
    static const struct tm_command subcommands[] = {{.name = "y", .summary = "the sub"}, {.name = NULL}};
    static const struct {
        struct tm_command command;
        const char *want;
    } rows[] = {
        {{.name = "x", .summary = "s"}, "tidemill x - s\n\nUse\n  tidemill x [OPTIONS]\n"},
        {{.name = "x", .summary = "s", .arguments = "FILE..."}, "\n  tidemill x [OPTIONS] FILE...\n"},
        {{.name = "x", .summary = "s", .subcommands = subcommands}, "\n  tidemill x [COMMAND] [OPTIONS]\n"},
        {{.name = "x", .summary = "s", .subcommands = subcommands}, "\nCommands\n  y              the sub\n"},
        {{.name = "x", .summary = "s", .examples = "  tidemill x  # e\n"}, "\nExamples\n  tidemill x  # e\n"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text got = help_of(&rows[i].command, &plain);
        assert_row(strstr(got.data, rows[i].want) != NULL, "row %zu: no \"%s\" in \"%s\"", i, rows[i].want, got.data);
        tm_text_deinit(&got);
    }
}

static void test_a_subcommand_has_its_whole_name(void **state)
{
    (void)state;
    const struct tm_command *trace = tm_command_find(tm_commands, "trace");
    const struct tm_command *const path[] = {trace, tm_command_find(trace->subcommands, "cut")};
    struct tm_text got;
    tm_text_init(&got, TEXT_MAX);
    tm_help_command(path, 2, &plain, &got);
    assert_row(strncmp(got.data, "tidemill trace cut - ", 21) == 0, "%s", got.data);
    assert_non_null(strstr(got.data, "\n  tidemill trace cut [OPTIONS] FILE\n"));
    tm_text_deinit(&got);
}

static void test_color(void **state)
{
    (void)state;
    static const struct {
        struct tm_term term;
        bool want;
    } rows[] = {{{.color = true, .is_terminal = true}, true}, {{.color = false, .is_terminal = true}, false}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        const struct tm_command command = {.name = "x", .summary = "s"};
        struct tm_text got = help_of(&command, &rows[i].term);
        struct tm_text overview;
        tm_text_init(&overview, TEXT_MAX);
        tm_help_overview(&rows[i].term, &overview);
        assert_row((strchr(got.data, '\033') != NULL) == rows[i].want, "row %zu: help", i);
        assert_row((strchr(overview.data, '\033') != NULL) == rows[i].want, "row %zu: overview", i);
        tm_text_deinit(&overview);
        tm_text_deinit(&got);
    }
}

static void test_text_that_does_not_fit(void **state)
{
    (void)state;
    const struct tm_command *const path[] = {tm_command_find(tm_commands, "catalog")};
    struct tm_text small;
    tm_text_init(&small, 100);
    tm_help_command(path, 1, &plain, &small);
    assert_int_equal(tm_text_status(&small, NULL), -(int)TM_ELIMIT);
    tm_text_clear(&small);
    assert_int_equal(tm_man_source("tidemill", &small, NULL), -(int)TM_ELIMIT);
    tm_text_clear(&small);
    assert_int_equal(tm_completion("bash", &small, NULL), -(int)TM_ELIMIT);
    tm_text_deinit(&small);
}

static void test_help_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_text out;
        tm_text_init(&out, TEXT_MAX);
        tm_help_overview(&plain, &out);
        rc = tm_text_status(&out, NULL);
        tm_text_deinit(&out);
    });
    TM_FAIL_EACH_ALLOC({
        struct tm_text out;
        tm_text_init(&out, TEXT_MAX);
        rc = tm_man_source("tidemill", &out, NULL);
        tm_text_deinit(&out);
    });
}

TM_TEST_MAIN(TM_TEST(test_short_paragraphs), TM_TEST(test_lines_are_broken), TM_TEST(test_option_lines),
             TM_TEST(test_synopsis), TM_TEST(test_a_subcommand_has_its_whole_name), TM_TEST(test_color),
             TM_TEST(test_text_that_does_not_fit), TM_TEST(test_help_without_memory))
