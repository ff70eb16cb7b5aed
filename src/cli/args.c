#include "cli/command.h"

#include "base/number.h"
#include "base/suggest.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const struct tm_command *tm_command_find(const struct tm_command *list, const char *name)
{
    for (; list != NULL && list->name != NULL; list++) {
        if (strcmp(list->name, name) == 0) return list;
    }
    return NULL;
}

static const struct tm_option *find_in(const struct tm_option *options, const char *name, char letter)
{
    for (; options != NULL && options->name != NULL; options++) {
        if (name != NULL ? strcmp(options->name, name) == 0 : options->letter == letter) return options;
    }
    return NULL;
}

const struct tm_option *tm_option_find(const struct tm_cli *cli, const char *name, char letter)
{
    const struct tm_option *found = NULL;
    if (cli->path_count > 0) found = find_in(cli->path[cli->path_count - 1]->options, name, letter);
    return found != NULL ? found : find_in(tm_global_options, name, letter);
}

void tm_cli_path(const struct tm_cli *cli, struct tm_text *out)
{
    tm_text_puts(out, "tidemill");
    for (size_t i = 0; i < cli->path_count; i++)
        tm_text_printf(out, " %s", cli->path[i]->name);
}

/* ---- errors with advice ---- */

static int unknown_option(const struct tm_cli *cli, const char *word, struct tm_error *e)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    struct tm_suggest suggest = {.word = name + strspn(name, "-")};
    const struct tm_option *own = cli->path_count > 0 ? cli->path[cli->path_count - 1]->options : NULL;
    for (const struct tm_option *option = own; option != NULL && option->name != NULL; option++)
        tm_suggest_offer(&suggest, option->name);
    for (const struct tm_option *option = tm_global_options; option->name != NULL; option++) {
        if (!option->hidden) tm_suggest_offer(&suggest, option->name);
    }
    struct tm_text path;
    tm_text_init(&path, 128);
    tm_cli_path(cli, &path);
    int rc = suggest.best != NULL
                 ? tm_error_set(e, TM_EUSAGE, "unknown option %s; did you mean --%s?", name, suggest.best)
                 : tm_error_set(e, TM_EUSAGE, "unknown option %s; see: %s --help", name, tm_text_string(&path));
    tm_text_deinit(&path);
    return rc;
}

static int unknown_command(const struct tm_cli *cli, const struct tm_command *list, const char *word,
                           struct tm_error *e)
{
    struct tm_suggest suggest = {.word = word};
    for (const struct tm_command *command = list; command->name != NULL; command++)
        tm_suggest_offer(&suggest, command->name);
    struct tm_text path;
    tm_text_init(&path, 128);
    tm_cli_path(cli, &path);
    bool show = suggest.best == NULL && tm_command_find(list, "show") != NULL;
    int rc = show ? tm_error_set(e, TM_EUSAGE, "unknown command \"%.60s\"; perhaps: %s show %.60s", word,
                                 tm_text_string(&path), word)
             : suggest.best != NULL
                 ? tm_error_set(e, TM_EUSAGE, "unknown command \"%.60s\"; did you mean: %s %s?", word,
                                tm_text_string(&path), suggest.best)
                 : tm_error_set(e, TM_EUSAGE, "unknown command \"%.60s\"; see: %s --help", word, tm_text_string(&path));
    tm_text_deinit(&path);
    return rc;
}

/* ---- parsing ---- */

static int check_choice(const struct tm_option *option, const char *value, struct tm_error *e)
{
    if (option->choices == NULL) return 0;
    struct tm_suggest suggest = {.word = value};
    struct tm_text all;
    tm_text_init(&all, 512);
    int rc = -1;
    for (const char *const *choice = option->choices; rc != 0 && *choice != NULL; choice++) {
        if (strcasecmp(*choice, value) == 0) rc = 0;
        tm_suggest_offer(&suggest, *choice);
        tm_text_printf(&all, "%s%s", choice == option->choices ? "" : ", ", *choice);
    }
    if (rc != 0)
        rc = tm_error_set(e, TM_EUSAGE, "--%s: expected one of %s, got \"%.60s\"%s%s%s", option->name,
                          tm_text_string(&all), value, suggest.best != NULL ? "; did you mean " : "",
                          suggest.best != NULL ? suggest.best : "", suggest.best != NULL ? "?" : "");
    tm_text_deinit(&all);
    return rc;
}

static int add_given(struct tm_cli *cli, const struct tm_option *option, const char *value, struct tm_error *e)
{
    if (cli->given_count == TM_OPTIONS_GIVEN_MAX)
        return tm_error_set(e, TM_ELIMIT, "more than %d options", TM_OPTIONS_GIVEN_MAX);
    int rc = value != NULL ? check_choice(option, value, e) : 0;
    if (rc != 0) return rc;
    cli->given[cli->given_count++] = (struct tm_option_given){option, value};
    return 0;
}

/* A command that is called as another program is. */
static bool is_foreign(const struct tm_cli *cli)
{
    return cli->path_count > 0 && cli->path[cli->path_count - 1]->foreign;
}

/* "--name", "--name=value" or "--name value"; *at is moved over what was used. */
static int take_long(struct tm_cli *cli, int word_count, char *const *words, int *at, struct tm_error *e)
{
    const char *word = words[*at];
    char name[64];
    size_t length = strcspn(word + 2, "=");
    if (length >= sizeof name) return unknown_option(cli, word, e);
    (void)snprintf(name, sizeof name, "%.*s", (int)length, word + 2);
    for (char *c = name; is_foreign(cli) && *c != '\0'; c++)
        if (*c == '_') *c = '-';
    const struct tm_option *option = tm_option_find(cli, name, 0);
    if (option == NULL) return unknown_option(cli, word, e);
    const char *equals = word[2 + length] == '=' ? word + 3 + length : NULL;
    if (option->value == NULL && equals != NULL) return tm_error_set(e, TM_EUSAGE, "--%s takes no value", option->name);
    if (option->value == NULL) return add_given(cli, option, NULL, e);
    if (equals == NULL && *at + 1 >= word_count)
        return tm_error_set(e, TM_EUSAGE, "--%s needs a value: --%s %s", option->name, option->name, option->value);
    if (equals == NULL) equals = words[++*at];
    return add_given(cli, option, equals, e);
}

/* "-q", "-qv", "-o FILE" or "-oFILE". */
static int take_short(struct tm_cli *cli, int word_count, char *const *words, int *at, struct tm_error *e)
{
    for (const char *letter = words[*at] + 1; *letter != '\0'; letter++) {
        const struct tm_option *option = tm_option_find(cli, NULL, *letter);
        if (option == NULL) return unknown_option(cli, words[*at], e);
        if (option->value != NULL) {
            const char *value = letter[1] != '\0' ? letter + 1 : *at + 1 < word_count ? words[++*at] : NULL;
            if (value == NULL) return tm_error_set(e, TM_EUSAGE, "-%c needs a value: %s", *letter, option->value);
            return add_given(cli, option, value, e);
        }
        int rc = add_given(cli, option, NULL, e);
        if (rc != 0) return rc;
    }
    return 0;
}

/* A word that is no option: a (sub)command's name while there can be one, else an argument. A command with subcommands
 * may take arguments itself: then what is no subcommand is one. */
static int take_word(struct tm_cli *cli, char *word, struct tm_error *e)
{
    const struct tm_command *here = cli->path_count > 0 ? cli->path[cli->path_count - 1] : NULL;
    const struct tm_command *list = here == NULL ? tm_commands : here->subcommands;
    if (list != NULL && cli->argument_count == 0) {
        const struct tm_command *found = tm_command_find(list, word);
        if (found == NULL && here == NULL) found = tm_command_find(tm_plumbing_commands, word);
        bool takes_arguments = here != NULL && here->run != NULL && here->arguments != NULL;
        if (found == NULL && !takes_arguments) return unknown_command(cli, list, word, e);
        if (found != NULL) {
            cli->path[cli->path_count++] = found;
            return 0;
        }
    }
    cli->arguments[cli->argument_count++] = word;
    return 0;
}

int tm_cli_parse(struct tm_cli *cli, int word_count, char *const *words, struct tm_error *e)
{
    cli->arguments = tm_arena_alloc(&cli->arena, ((size_t)word_count + 1) * sizeof *cli->arguments);
    if (cli->arguments == NULL) return tm_error_nomem(e);
    bool options_over = false;
    bool parted = false;
    for (int at = 0; at < word_count; at++) {
        const char *word = words[at];
        int rc = 0;
        if (options_over || word[0] != '-' || word[1] == '\0') {
            rc = options_over && cli->path_count > 0 ? (cli->arguments[cli->argument_count++] = words[at], 0)
                                                     : take_word(cli, words[at], e);
        } else if (strcmp(word, "--") == 0) {
            options_over = !is_foreign(cli) || parted; /* behind the first, it is that program's line */
            parted = true;
        } else {
            rc =
                word[1] == '-' ? take_long(cli, word_count, words, &at, e) : take_short(cli, word_count, words, &at, e);
        }
        if (rc != 0) return rc;
        if (is_foreign(cli) && cli->argument_count > 0) options_over = true;
    }
    return 0;
}

/* ---- options given ---- */

bool tm_given(const struct tm_cli *cli, const char *name)
{
    for (size_t i = 0; i < cli->given_count; i++) {
        if (strcmp(cli->given[i].option->name, name) == 0) return true;
    }
    return false;
}

const char *tm_given_text(const struct tm_cli *cli, const char *name)
{
    for (size_t i = cli->given_count; i-- > 0;) {
        if (strcmp(cli->given[i].option->name, name) == 0) return cli->given[i].value;
    }
    return NULL;
}

int tm_given_duration(const struct tm_cli *cli, const char *name, int64_t *out_ms, struct tm_error *e)
{
    const char *text = tm_given_text(cli, name);
    if (text == NULL) return 0;
    int rc = tm_unit_parse(TM_UNIT_DURATION, text, strlen(text), out_ms, e);
    if (rc == 0) return 0;
    (void)tm_error_wrap(e, rc, "--%s", name);
    if (e != NULL) e->code = TM_EUSAGE;
    return -(int)TM_EUSAGE;
}

int tm_given_number(const struct tm_cli *cli, const char *name, double min, double max, double *out, struct tm_error *e)
{
    const char *text = tm_given_text(cli, name);
    if (text == NULL) return 0;
    if (tm_number_written(text, strlen(text), max, out) && *out >= min && *out <= max) return 0;
    return tm_error_set(e, TM_EUSAGE, "--%s: expected a number from %g to %g, got \"%.40s\"", name, min, max, text);
}

int tm_given_integer(const struct tm_cli *cli, const char *name, int64_t min, int64_t max, int64_t *out,
                     struct tm_error *e)
{
    const char *text = tm_given_text(cli, name);
    if (text == NULL) return 0;
    if (tm_number_whole(text, strlen(text), out) && *out >= min && *out <= max) return 0;
    return tm_error_set(e, TM_EUSAGE, "--%s: expected a whole number from %lld to %lld, got \"%.40s\"", name,
                        (long long)min, (long long)max, text);
}

int tm_given_choice(const struct tm_cli *cli, const char *name, int *out, struct tm_error *e)
{
    const char *text = tm_given_text(cli, name);
    const struct tm_option *option = tm_option_find(cli, name, 0);
    if (text == NULL) return 0;
    for (int i = 0; option->choices[i] != NULL; i++) {
        if (strcasecmp(option->choices[i], text) != 0) continue;
        *out = i;
        return 0;
    }
    return check_choice(option, text, e);
}

bool tm_given_matches(const struct tm_cli *cli, const char *name, const char *text)
{
    bool any = false;
    size_t length = strlen(text);
    for (size_t i = 0; i < cli->given_count; i++) {
        if (strcmp(cli->given[i].option->name, name) != 0) continue;
        any = true;
        for (const char *at = cli->given[i].value; *at != '\0';) {
            size_t word = strcspn(at, ",");
            if (word == length && strncasecmp(at, text, length) == 0) return true;
            at += word + (at[word] == ',');
        }
    }
    return !any;
}
