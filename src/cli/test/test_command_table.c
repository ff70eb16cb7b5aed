/* The table of commands against itself and against all that is made from it: what is in the table must be in the man
 * pages, the help and the completions, and what is there must be in the table. */
#include "cli/command.h"

#include "base/test/harness.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { ENTRIES_MAX = 100, TEXT_MAX = 1 << 20 };

/* A command or a subcommand with the way to it. */
struct entry {
    const struct tm_command *path[2];
    size_t path_count;
    const struct tm_command *command; /* the last of the path */
    char name[80];                    /* "catalog import" */
};

static struct entry entries[ENTRIES_MAX];
static size_t entry_count;

static void add_entry(const struct tm_command *command, const struct tm_command *parent)
{
    assert_true(entry_count < ENTRIES_MAX);
    struct entry *entry = &entries[entry_count++];
    *entry = (struct entry){.command = command};
    if (parent != NULL) entry->path[entry->path_count++] = parent;
    entry->path[entry->path_count++] = command;
    (void)snprintf(entry->name, sizeof entry->name, "%s%s%s", parent != NULL ? parent->name : "",
                   parent != NULL ? " " : "", command->name);
}

static int fill_entries(void **state)
{
    (void)state;
    for (const struct tm_command *command = tm_commands; command->name != NULL; command++) {
        add_entry(command, NULL);
        for (const struct tm_command *sub = command->subcommands; sub != NULL && sub->name != NULL; sub++) {
            assert_row(sub->subcommands == NULL, "%s %s: a third level of commands", command->name, sub->name);
            add_entry(sub, command);
        }
    }
    return 0;
}

static const struct tm_option *find_option(const struct tm_option *options, const char *name, size_t length)
{
    for (; options != NULL && options->name != NULL; options++) {
        if (strlen(options->name) == length && memcmp(options->name, name, length) == 0) return options;
    }
    return NULL;
}

/* An option of the command, its subcommands, or all. */
static const struct tm_option *find_within(const struct tm_command *command, const char *name, size_t length)
{
    const struct tm_option *found = find_option(tm_global_options, name, length);
    if (found == NULL && command != NULL) found = find_option(command->options, name, length);
    const struct tm_command *sub = command != NULL ? command->subcommands : NULL;
    for (; found == NULL && sub != NULL && sub->name != NULL; sub++)
        found = find_option(sub->options, name, length);
    return found;
}

static size_t count_shown(const struct tm_option *options)
{
    size_t count = 0;
    for (; options != NULL && options->name != NULL; options++)
        count += !options->hidden;
    return count;
}

static size_t count_pieces(const char *text, size_t length, const char *piece)
{
    size_t count = 0;
    const char *end = text + length;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), piece, strlen(piece))) != NULL; at++)
        count++;
    return count;
}

/* ---- the table alone ---- */

static bool is_one_line(const char *text)
{
    size_t length = text != NULL ? strlen(text) : 0;
    return length > 0 && strchr(text, '\n') == NULL && text[length - 1] != '.' && text[0] != ' ';
}

static void test_commands_are_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < entry_count; i++) {
        const struct tm_command *command = entries[i].command;
        const char *name = entries[i].name;
        assert_row(is_one_line(command->summary), "%s: summary", name);
        assert_row(command->description != NULL && command->description[0] != '\0', "%s: no description", name);
        assert_row(command->description[strlen(command->description) - 1] == '.', "%s: description has no end", name);
        assert_row(command->run != NULL || command->subcommands != NULL, "%s: nothing to run", name);
        assert_row(command->arguments == NULL || command->arguments[0] != '\0', "%s: arguments", name);
        assert_row(!command->files || command->arguments != NULL, "%s: takes files that its synopsis lacks", name);
        assert_row(command->words == NULL || command->arguments != NULL, "%s: takes words its synopsis lacks", name);
        size_t length = command->examples != NULL ? strlen(command->examples) : 0;
        assert_row(length == 0 || command->examples[length - 1] == '\n', "%s: examples end within a line", name);
        for (size_t j = 0; j < i; j++)
            assert_row(strcmp(name, entries[j].name) != 0, "%s stands twice", name);
    }
}

static void check_options(const char *command, const struct tm_option *options)
{
    for (const struct tm_option *option = options; option != NULL && option->name != NULL; option++) {
        const char *name = option->name;
        assert_row(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(name) && strlen(name) > 1 &&
                       strlen(name) < 64 && name[0] != '-',
                   "%s: --%s: name", command, name);
        assert_row(is_one_line(option->help), "%s: --%s: help", command, name);
        assert_row(option->value == NULL || option->value[0] != '\0', "%s: --%s: value", command, name);
        assert_row(option->choices == NULL || (option->value != NULL && option->choices[0] != NULL),
                   "%s: --%s: choices", command, name);
        assert_row(option->letter == 0 || isalpha((unsigned char)option->letter), "%s: --%s: letter", command, name);
        for (const struct tm_option *other = options; other != option; other++) {
            assert_row(strcmp(name, other->name) != 0, "%s: --%s stands twice", command, name);
            assert_row(option->letter == 0 || option->letter != other->letter, "%s: -%c stands twice", command,
                       option->letter);
        }
        for (const struct tm_option *other = tm_global_options; options != tm_global_options && other->name != NULL;
             other++) {
            assert_row(strcmp(name, other->name) != 0, "%s: --%s hides the one of every command", command, name);
            assert_row(option->letter == 0 || option->letter != other->letter, "%s: -%c hides the one of every command",
                       command, option->letter);
        }
    }
}

static void test_options_are_whole(void **state)
{
    (void)state;
    check_options("every command", tm_global_options);
    for (size_t i = 0; i < entry_count; i++)
        check_options(entries[i].name, entries[i].command->options);
}

/* ---- man pages ---- */

static void check_in_page(const char *page, const char *text, const struct tm_option *options)
{
    for (; options != NULL && options->name != NULL; options++) {
        char piece[80];
        (void)snprintf(piece, sizeof piece, "*--%s*", options->name);
        assert_row((strstr(text, piece) == NULL) == options->hidden, "%s: --%s", page, options->name);
    }
}

static void check_page(const char *page)
{
    const struct tm_command *command = strcmp(page, "tidemill") == 0 ? NULL : tm_command_find(tm_commands, page + 9);
    struct tm_text text;
    struct tm_error e = {0};
    tm_text_init(&text, TEXT_MAX);
    assert_row(tm_man_source(page, &text, &e) == 0, "%s: %s", page, e.text);
    check_in_page(page, text.data, tm_global_options);
    if (command != NULL) check_in_page(page, text.data, command->options);
    for (const struct tm_command *sub = command != NULL ? command->subcommands : NULL; sub != NULL && sub->name != NULL;
         sub++) {
        check_in_page(page, text.data, sub->options);
        assert_row(strstr(text.data, sub->name) != NULL, "%s: no %s", page, sub->name);
    }
    for (const char *at = text.data; (at = strstr(at, "*--")) != NULL;) {
        at += 3;
        size_t length = strcspn(at, "*\n");
        const struct tm_option *option = find_within(command, at, length);
        assert_row(option != NULL && !option->hidden, "%s: --%.*s is not in the table", page, (int)length, at);
    }
    tm_text_deinit(&text);
}

static void test_man_pages(void **state)
{
    (void)state;
    struct tm_text list;
    size_t pages = 0;
    tm_text_init(&list, TEXT_MAX);
    tm_man_list(&list);
    for (char *page = strtok(list.data, "\n"); page != NULL; page = strtok(NULL, "\n"), pages++)
        check_page(page);
    size_t commands = 0;
    while (tm_commands[commands].name != NULL)
        commands++;
    assert_int_equal(pages, commands + 1);
    tm_text_deinit(&list);
}

static void test_no_such_page(void **state)
{
    (void)state;
    static const char *const rows[] = {"", "x", "catalog", "tidemill-", "tidemill-x", "tidemill-catalog-import"};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text text;
        struct tm_error e = {0};
        tm_text_init(&text, TEXT_MAX);
        assert_row(tm_man_source(rows[i], &text, &e) == -(int)TM_ENOTFOUND, "\"%s\"", rows[i]);
        assert_error_has(e, "no man page");
        tm_text_deinit(&text);
    }
}

static void test_the_program_page_has_every_setting(void **state)
{
    (void)state;
    struct tm_text text;
    tm_text_init(&text, TEXT_MAX);
    assert_int_equal(tm_man_source("tidemill", &text, NULL), 0);
    for (const struct tm_field *field = tm_settings_fields; field->key != NULL; field++) {
        char piece[80] = "*";
        for (const char *c = field->key; *c != '\0'; c++) /* scdoc wants '_' escaped */
            (void)snprintf(piece + strlen(piece), sizeof piece - strlen(piece), "%s%c", *c == '_' ? "\\" : "", *c);
        (void)snprintf(piece + strlen(piece), sizeof piece - strlen(piece), "*\n");
        assert_row(strstr(text.data, piece) != NULL, "no setting %s", piece);
    }
    tm_text_deinit(&text);
}

/* ---- help ---- */

static void check_in_help(const char *name, const char *text, const struct tm_option *options)
{
    for (; options != NULL && options->name != NULL; options++) {
        char piece[160];
        (void)snprintf(piece, sizeof piece, "%s--%s%s%s ", options->letter != 0 ? ", " : "      ", options->name,
                       options->value != NULL ? " " : "", options->value != NULL ? options->value : "");
        const char *found = strstr(text, piece);
        assert_row((found == NULL) == options->hidden, "help %s: --%s", name, options->name);
        assert_row(found == NULL || strstr(found, options->help) != NULL, "help %s: --%s: words", name, options->name);
    }
}

/* Every "--word" in a text is an option that is shown. */
static void check_mentioned(const char *name, const char *text, const struct tm_command *command)
{
    for (const char *at = text; (at = strstr(at, "--")) != NULL;) {
        at += 2;
        size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789-");
        if (length == 0) continue; /* "--" alone: what follows is no option */
        const struct tm_option *option = find_within(command, at, length);
        assert_row(option != NULL && !option->hidden, "help %s: --%.*s is not in the table", name, (int)length, at);
    }
}

static void test_help_of_every_command(void **state)
{
    (void)state;
    const struct tm_term term = {.width = 0};
    for (size_t i = 0; i < entry_count; i++) {
        const struct entry *entry = &entries[i];
        struct tm_text text;
        tm_text_init(&text, TEXT_MAX);
        tm_help_command(entry->path, entry->path_count, &term, &text);
        assert_int_equal(tm_text_status(&text, NULL), 0);
        check_in_help(entry->name, text.data, entry->command->options);
        check_in_help(entry->name, text.data, tm_global_options);
        check_mentioned(entry->name, text.data, entry->command);
        for (const struct tm_command *sub = entry->command->subcommands; sub != NULL && sub->name != NULL; sub++)
            assert_row(strstr(text.data, sub->summary) != NULL, "help %s: no %s", entry->name, sub->name);
        tm_text_deinit(&text);
    }
}

static void test_the_overview(void **state)
{
    (void)state;
    const struct tm_term term = {.width = 0};
    struct tm_text text;
    tm_text_init(&text, TEXT_MAX);
    tm_help_overview(&term, &text);
    check_in_help("overview", text.data, tm_global_options);
    for (const struct tm_command *command = tm_commands; command->name != NULL; command++) {
        char piece[200];
        (void)snprintf(piece, sizeof piece, "\n  %-14s %s\n", command->name, command->summary);
        assert_row(strstr(text.data, piece) != NULL, "no %s", command->name);
    }
    tm_text_deinit(&text);
}

/* ---- completions ---- */

static void complete(const char *shell, struct tm_text *out)
{
    struct tm_error e = {0};
    tm_text_init(out, TEXT_MAX);
    assert_row(tm_completion(shell, out, &e) == 0, "%s: %s", shell, e.text);
}

/* What stands between `start` and the next `stop`. */
static struct tm_text part_of(const char *text, const char *start, const char *stop)
{
    struct tm_text part;
    tm_text_init(&part, TEXT_MAX);
    const char *from = strstr(text, start);
    assert_row(from != NULL, "no %s", start);
    const char *to = strstr(from, stop);
    assert_row(to != NULL, "no end of %s", start);
    tm_text_append(&part, from, (size_t)(to - from));
    tm_text_putc(&part, ' ');
    return part;
}

/* The part has "PREFIX--name SUFFIX" for every option shown, and nothing else with that prefix. */
static void check_part(const struct entry *entry, const struct tm_text *part, const char *prefix, char suffix)
{
    const struct tm_option *const lists[] = {entry->command->options, tm_global_options};
    for (size_t i = 0; i < TM_COUNT(lists); i++) {
        for (const struct tm_option *option = lists[i]; option != NULL && option->name != NULL; option++) {
            char piece[100];
            (void)snprintf(piece, sizeof piece, "%s--%s%c", prefix, option->name, suffix);
            bool found = memmem(part->data, part->length, piece, strlen(piece)) != NULL;
            assert_row(found != option->hidden, "%s: --%s", entry->name, option->name);
        }
    }
    char any[16];
    (void)snprintf(any, sizeof any, "%s--", prefix);
    size_t want = count_shown(lists[0]) + count_shown(lists[1]);
    size_t got = count_pieces(part->data, part->length, any);
    assert_row(got == want, "%s: %zu options, want %zu", entry->name, got, want);
}

static void test_completions_for_bash(void **state)
{
    (void)state;
    struct tm_text text;
    complete("bash", &text);
    for (size_t i = 0; i < entry_count; i++) {
        char start[100];
        (void)snprintf(start, sizeof start, "        '%s')\n", entries[i].name);
        struct tm_text part = part_of(text.data, start, "\" files=");
        check_part(&entries[i], &part, " ", ' ');
        const char *const *words = entries[i].command->words;
        for (; words != NULL && *words != NULL; words++)
            assert_row(strstr(part.data, *words) != NULL, "%s: no %s", entries[i].name, *words);
        tm_text_deinit(&part);
    }
    tm_text_deinit(&text);
}

static void test_completions_for_zsh(void **state)
{
    (void)state;
    struct tm_text text;
    complete("zsh", &text);
    for (size_t i = 0; i < entry_count; i++) {
        char start[100];
        (void)snprintf(start, sizeof start, "\n_tidemill_%s() {\n", entries[i].name);
        char *blank = strchr(start, ' ');
        if (entries[i].path_count > 1) *blank = '_';
        struct tm_text part = part_of(text.data, start, "\n}\n");
        check_part(&entries[i], &part, "'*", '[');
        tm_text_deinit(&part);
    }
    tm_text_deinit(&text);
}

/* Lines "complete -c tidemillCONDITION -l NAME"; returns how many options are shown. */
static size_t check_fish(const char *text, const char *name, const char *condition, const struct tm_option *options)
{
    for (const struct tm_option *option = options; option != NULL && option->name != NULL; option++) {
        char piece[300];
        (void)snprintf(piece, sizeof piece, "\ncomplete -c tidemill%s -l %s ", condition, option->name);
        const char *found = strstr(text, piece);
        assert_row((found == NULL) == option->hidden, "%s: --%s", name, option->name);
        (void)snprintf(piece, sizeof piece, " -s %c ", option->letter);
        size_t length = found == NULL ? 0 : strcspn(found + 1, "\n");
        bool has_letter = found != NULL && memmem(found, length, piece, strlen(piece)) != NULL;
        assert_row(option->letter == 0 || option->hidden || has_letter, "%s: -%c", name, option->letter);
    }
    return count_shown(options);
}

static void test_completions_for_fish(void **state)
{
    (void)state;
    struct tm_text text;
    complete("fish", &text);
    size_t shown = check_fish(text.data, "every command", "", tm_global_options);
    for (size_t i = 0; i < entry_count; i++) {
        const struct entry *entry = &entries[i];
        char condition[200];
        if (entry->path_count == 1)
            (void)snprintf(condition, sizeof condition, " -n '__fish_seen_subcommand_from %s'", entry->name);
        else
            (void)snprintf(condition, sizeof condition,
                           " -n '__fish_seen_subcommand_from %s; and __fish_seen_subcommand_from %s'",
                           entry->path[0]->name, entry->command->name);
        shown += check_fish(text.data, entry->name, condition, entry->command->options);
    }
    assert_int_equal(count_pieces(text.data, text.length, " -l "), shown);
    tm_text_deinit(&text);
}

/* What an option may be is offered too. */
static void test_completions_know_the_choices(void **state)
{
    (void)state;
    static const char *const shells[] = {"bash", "zsh", "fish"};
    for (size_t s = 0; s < TM_COUNT(shells); s++) {
        struct tm_text text;
        complete(shells[s], &text);
        for (size_t i = 0; i < entry_count; i++) {
            const struct tm_option *option = entries[i].command->options;
            for (; option != NULL && option->name != NULL; option++) {
                for (const char *const *choice = option->choices; choice != NULL && *choice != NULL; choice++)
                    assert_row(strstr(text.data, *choice) != NULL, "%s: --%s: no %s", shells[s], option->name, *choice);
            }
        }
        tm_text_deinit(&text);
    }
}

static void test_no_such_shell(void **state)
{
    (void)state;
    static const char *const rows[] = {"", "tcsh", "Bash", "bash "};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text text;
        struct tm_error e = {0};
        tm_text_init(&text, TEXT_MAX);
        assert_row(tm_completion(rows[i], &text, &e) == -(int)TM_EUSAGE, "\"%s\"", rows[i]);
        assert_error_has(e, "bash, zsh and fish");
        tm_text_deinit(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TM_TEST(test_commands_are_whole),
        TM_TEST(test_options_are_whole),
        TM_TEST(test_man_pages),
        TM_TEST(test_no_such_page),
        TM_TEST(test_the_program_page_has_every_setting),
        TM_TEST(test_help_of_every_command),
        TM_TEST(test_the_overview),
        TM_TEST(test_completions_for_bash),
        TM_TEST(test_completions_for_zsh),
        TM_TEST(test_completions_for_fish),
        TM_TEST(test_completions_know_the_choices),
        TM_TEST(test_no_such_shell),
    };
    return cmocka_run_group_tests(tests, fill_entries, NULL);
}
