/* Man pages in scdoc's form, made from the command table: one for the program, one for each command. */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

/* scdoc gives '_' and '*' a meaning, and '\' before them takes it away. */
static void put_plain(struct tm_text *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("_*\\[]<>#~`|", *text) != NULL) tm_text_putc(out, '\\');
        tm_text_putc(out, *text);
    }
}

static void put_options(const struct tm_option *options, struct tm_text *out)
{
    for (; options != NULL && options->name != NULL; options++) {
        if (options->hidden) continue;
        if (options->letter != 0) tm_text_printf(out, "*-%c*, ", options->letter);
        tm_text_printf(out, "*--%s*", options->name);
        if (options->value != NULL) {
            tm_text_puts(out, " _");
            tm_text_puts(out, options->value);
            tm_text_putc(out, '_');
        }
        tm_text_puts(out, "\n\t");
        put_plain(out, options->help);
        if (options->choices != NULL) {
            tm_text_puts(out, " (");
            for (const char *const *choice = options->choices; *choice != NULL; choice++) {
                if (choice != options->choices) tm_text_puts(out, ", ");
                put_plain(out, *choice);
            }
            tm_text_puts(out, ")");
        }
        tm_text_puts(out, ".\n\n");
    }
}

static void put_examples(const char *examples, struct tm_text *out)
{
    tm_text_puts(out, "# EXAMPLES\n\n```\n");
    tm_text_puts(out, examples);
    tm_text_puts(out, "```\n\n");
}

static void put_description(const char *text, struct tm_text *out)
{
    for (const char *at = text; *at != '\0';) {
        const char *end = strstr(at, "\n\n");
        size_t length = end != NULL ? (size_t)(end - at) : strlen(at);
        for (size_t i = 0; i < length; i++) {
            char one[2] = {at[i], '\0'};
            put_plain(out, one);
        }
        tm_text_puts(out, "\n\n");
        at += length;
        at += strspn(at, "\n");
    }
}

static void put_tail(struct tm_text *out)
{
    tm_text_puts(out, "# EXIT STATUS\n\n"
                      "*0* done; *1* failed; *2* wrong use or bad input (the message names file, line and fix); *3* no "
                      "answer satisfies the constraints.\n\n"
                      "# SEE ALSO\n\n_tidemill_(1), _tidemill-trace_(5), _tidemill-catalog_(5)\n");
}

static void put_program(struct tm_text *out)
{
    tm_text_puts(out, "tidemill(1)\n"
                      "\n"
                      "# NAME\n"
                      "\n"
                      "tidemill - train deep networks on spot instances that come and go\n"
                      "\n"
                      "# SYNOPSIS\n"
                      "\n"
                      "*tidemill* _COMMAND_ [_OPTIONS_] [_ARGUMENTS_]\n"
                      "\n"
                      "# COMMANDS\n"
                      "\n");
    for (const struct tm_command *command = tm_commands; command->name != NULL; command++) {
        tm_text_printf(out, "*tidemill-%s*(1)\n\t", command->name);
        put_plain(out, command->summary);
        tm_text_puts(out, ".\n\n");
    }
    tm_text_puts(out, "# OPTIONS OF EVERY COMMAND\n\n");
    put_options(tm_global_options, out);
    tm_text_puts(out, "# SETTINGS\n\nRead from *config.yaml* in the settings folder, or from the file that *--config* "
                      "names:\n\n");
    for (const struct tm_field *field = tm_settings_fields; field->key != NULL; field++) {
        tm_text_putc(out, '*');
        put_plain(out, field->key);
        tm_text_puts(out, "*\n\t");
        put_plain(out, field->doc);
        tm_text_puts(out, "; ");
        struct tm_text expected;
        tm_text_init(&expected, 512);
        tm_field_expected(field, &expected);
        put_plain(out, tm_text_string(&expected));
        if (expected.failed != 0) out->failed = expected.failed;
        tm_text_deinit(&expected);
        tm_text_puts(out, ".\n\n");
    }
    tm_text_puts(
        out,
        "# ENVIRONMENT\n"
        "\n"
        "*TIDEMILL\\_CONFIG\\_DIR*, *TIDEMILL\\_DATA\\_DIR*, *TIDEMILL\\_STATE\\_DIR*, *TIDEMILL\\_CACHE\\_DIR*\n"
        "\tFolders for settings, data, state and cache. The default is _tidemill_ in the XDG folders.\n"
        "\n"
        "*TIDEMILL\\_DEBUG*\n"
        "\tPrints debug output of these rooms on standard error: _wire_, _web_, _store_, _worker_, _engine_, _cloud_, "
        "_run_, _sim_, separated by commas, or _all_. Programs that the command starts write it to their logs.\n"
        "\n"
        "*NO\\_COLOR*\n"
        "\tNo colour, even on a terminal.\n"
        "\n"
        "*COLUMNS*\n"
        "\tWidth of tables and plots.\n"
        "\n");
    put_tail(out);
}

static void put_command(const struct tm_command *command, const char *parent, struct tm_text *out)
{
    tm_text_printf(out, "*%s%s*", parent, command->name);
    if (command->options != NULL) tm_text_puts(out, " [_OPTIONS_]");
    if (command->arguments != NULL) {
        tm_text_putc(out, ' ');
        put_plain(out, command->arguments);
    }
    tm_text_puts(out, "\n\n");
}

static void put_page(const struct tm_command *command, struct tm_text *out)
{
    char parent[80];
    (void)snprintf(parent, sizeof parent, "tidemill %s ", command->name);
    tm_text_printf(out, "tidemill-%s(1)\n\n# NAME\n\ntidemill-%s - ", command->name, command->name);
    put_plain(out, command->summary);
    tm_text_puts(out, "\n\n# SYNOPSIS\n\n");
    if (command->run != NULL) put_command(command, "tidemill ", out);
    for (const struct tm_command *sub = command->subcommands; sub != NULL && sub->name != NULL; sub++)
        put_command(sub, parent, out);
    tm_text_puts(out, "# DESCRIPTION\n\n");
    put_description(command->description, out);
    if (command->options != NULL) {
        tm_text_puts(out, "# OPTIONS\n\n");
        put_options(command->options, out);
    }
    for (const struct tm_command *sub = command->subcommands; sub != NULL && sub->name != NULL; sub++) {
        tm_text_printf(out, "# %s: ", sub->name);
        put_plain(out, sub->summary);
        tm_text_puts(out, "\n\n");
        if (sub->description != NULL) put_description(sub->description, out);
        put_options(sub->options, out);
    }
    tm_text_puts(out, "# OPTIONS OF EVERY COMMAND\n\n");
    put_options(tm_global_options, out);
    if (command->examples != NULL) put_examples(command->examples, out);
    put_tail(out);
}

int tm_man_source(const char *page, struct tm_text *out, struct tm_error *e)
{
    const struct tm_command *command =
        strncmp(page, "tidemill-", 9) == 0 ? tm_command_find(tm_commands, page + 9) : NULL;
    if (strcmp(page, "tidemill") == 0)
        put_program(out);
    else if (command != NULL)
        put_page(command, out);
    else
        return tm_error_set(e, TM_ENOTFOUND, "no man page \"%.60s\"", page);
    return tm_text_status(out, e);
}

void tm_man_list(struct tm_text *out)
{
    tm_text_puts(out, "tidemill\n");
    for (const struct tm_command *command = tm_commands; command->name != NULL; command++)
        tm_text_printf(out, "tidemill-%s\n", command->name);
}
