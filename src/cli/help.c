#include "base/jsonout.h"
#include "cli/command.h"

#include <string.h>

enum { HELP_COLUMN = 30, HELP_WIDTH = 100 };

/* Breaks text into lines of at most HELP_WIDTH columns, indented; an empty line in it starts a paragraph. */
static void put_wrapped(struct tm_text *out, const char *text, size_t indent)
{
    size_t column = 0;
    while (*text != '\0') {
        if (text[0] == '\n' && text[1] == '\n') {
            tm_text_puts(out, "\n\n");
            column = 0;
            text += strspn(text, "\n ");
            continue;
        }
        size_t word = strcspn(text, " \n");
        if (word == 0) {
            text++;
            continue;
        }
        if (column > 0 && column + 1 + word > HELP_WIDTH) {
            tm_text_putc(out, '\n');
            column = 0;
        }
        if (column == 0) {
            tm_text_fill(out, ' ', indent);
            column = indent;
        } else {
            tm_text_putc(out, ' ');
            column++;
        }
        tm_text_append(out, text, word);
        column += word;
        text += word;
    }
    tm_text_putc(out, '\n');
}

static void put_options(const struct tm_option *options, struct tm_text *out)
{
    for (; options != NULL && options->name != NULL; options++) {
        if (options->hidden) continue;
        size_t start = out->length;
        if (options->letter != 0)
            tm_text_printf(out, "  -%c, --%s", options->letter, options->name);
        else
            tm_text_printf(out, "      --%s", options->name);
        if (options->value != NULL) tm_text_printf(out, " %s", options->value);
        size_t used = out->length - start;
        tm_text_fill(out, ' ', used + 2 > HELP_COLUMN ? 2 : HELP_COLUMN - used);
        tm_text_puts(out, options->help);
        if (options->choices != NULL) {
            tm_text_puts(out, " (");
            for (const char *const *choice = options->choices; *choice != NULL; choice++)
                tm_text_printf(out, "%s%s", choice == options->choices ? "" : ", ", *choice);
            tm_text_puts(out, ")");
        }
        tm_text_putc(out, '\n');
    }
}

static void put_commands(const struct tm_command *list, struct tm_text *out)
{
    for (; list->name != NULL; list++)
        tm_text_printf(out, "  %-14s %s\n", list->name, list->summary);
}

static void put_title(const struct tm_term *term, struct tm_text *out, const char *title)
{
    tm_text_putc(out, '\n');
    tm_term_put(term, out, TM_BOLD, title);
    tm_text_putc(out, '\n');
}

void tm_help_overview(const struct tm_term *term, struct tm_text *out)
{
    tm_term_put(term, out, TM_BOLD, "tidemill");
    tm_text_puts(out, " - train deep networks on spot instances that come and go\n");
    put_title(term, out, "Use");
    tm_text_puts(out, "  tidemill COMMAND [OPTIONS] [ARGUMENTS]\n");
    put_title(term, out, "Commands");
    put_commands(tm_commands, out);
    put_title(term, out, "Options of every command");
    put_options(tm_global_options, out);
    tm_text_puts(out, "\nTry: tidemill catalog --sort flopp\n"
                      "     tidemill trace show hadp\n"
                      "     tidemill help catalog\n");
}

void tm_help_command(const struct tm_command *const *path, size_t path_count, const struct tm_term *term,
                     struct tm_text *out)
{
    const struct tm_command *command = path[path_count - 1];
    tm_term_put(term, out, TM_BOLD, "tidemill");
    for (size_t i = 0; i < path_count; i++) {
        tm_text_putc(out, ' ');
        tm_term_put(term, out, TM_BOLD, path[i]->name);
    }
    tm_text_printf(out, " - %s\n", command->summary);
    put_title(term, out, "Use");
    tm_text_puts(out, "  tidemill");
    for (size_t i = 0; i < path_count; i++)
        tm_text_printf(out, " %s", path[i]->name);
    tm_text_printf(out, "%s [OPTIONS]%s%s\n", command->subcommands != NULL ? " [COMMAND]" : "",
                   command->arguments != NULL ? " " : "", command->arguments != NULL ? command->arguments : "");
    if (command->description != NULL) {
        tm_text_putc(out, '\n');
        put_wrapped(out, command->description, 0);
    }
    if (command->subcommands != NULL) {
        put_title(term, out, "Commands");
        put_commands(command->subcommands, out);
    }
    if (command->options != NULL) {
        put_title(term, out, "Options");
        put_options(command->options, out);
    }
    put_title(term, out, "Options of every command");
    put_options(tm_global_options, out);
    if (command->examples != NULL) {
        put_title(term, out, "Examples");
        tm_text_puts(out, command->examples);
    }
}

/* ---- as JSON ---- */

static void put_options_json(struct tm_jsonout *json, const char *key, const struct tm_option *options)
{
    tm_jsonout_list(json, key);
    for (; options != NULL && options->name != NULL; options++) {
        if (options->hidden) continue;
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "name", options->name);
        tm_jsonout_string(json, "value", options->value);
        tm_jsonout_string(json, "help", options->help);
        if (options->choices != NULL) {
            tm_jsonout_list(json, "choices");
            for (const char *const *choice = options->choices; *choice != NULL; choice++)
                tm_jsonout_string(json, NULL, *choice);
            tm_jsonout_end(json);
        }
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

static void put_command_json(struct tm_jsonout *json, const struct tm_command *command)
{
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "name", command->name);
    tm_jsonout_string(json, "summary", command->summary);
    tm_jsonout_string(json, "arguments", command->arguments);
    put_options_json(json, "options", command->options);
    tm_jsonout_list(json, "commands");
    for (const struct tm_command *sub = command->subcommands; sub != NULL && sub->name != NULL; sub++) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "name", sub->name);
        tm_jsonout_string(json, "summary", sub->summary);
        tm_jsonout_string(json, "arguments", sub->arguments);
        put_options_json(json, "options", sub->options);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

void tm_help_json(const struct tm_command *command, struct tm_text *out)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_list(&json, "commands");
    for (const struct tm_command *one = tm_commands; command == NULL && one->name != NULL; one++)
        put_command_json(&json, one);
    if (command != NULL) put_command_json(&json, command);
    tm_jsonout_end(&json);
    put_options_json(&json, "options", tm_global_options);
    tm_jsonout_end(&json);
}
