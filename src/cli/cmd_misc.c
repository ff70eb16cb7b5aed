#include "base/jsonout.h"
#include "base/paths.h"
#include "base/suggest.h"
#include "cli/commands.h"

#include <string.h>

const char *const tm_completion_shells[] = {"bash", "zsh", "fish", NULL};

int tm_cmd_completion(struct tm_cli *cli, struct tm_error *e)
{
    if (cli->argument_count != 1)
        return tm_error_set(e, TM_EUSAGE, "give one shell: tidemill completion bash, zsh or fish");
    if (!cli->json) return tm_completion(cli->arguments[0], &cli->out, e);
    struct tm_text script;
    struct tm_jsonout json;
    tm_text_init(&script, 1 << 20);
    int rc = tm_completion(cli->arguments[0], &script, e);
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "shell", cli->arguments[0]);
    tm_jsonout_string(&json, "script", tm_text_string(&script));
    tm_jsonout_end(&json);
    tm_text_deinit(&script);
    return rc;
}

static int no_such_help(const struct tm_command *list, const char *word, struct tm_error *e)
{
    struct tm_suggest suggest = {.word = word};
    for (; list != NULL && list->name != NULL; list++)
        tm_suggest_offer(&suggest, list->name);
    return tm_error_set(e, TM_EUSAGE, "no command \"%.60s\"; %s%s", word,
                        suggest.best != NULL ? "did you mean " : "see: tidemill --help",
                        suggest.best != NULL ? suggest.best : "");
}

int tm_cmd_help(struct tm_cli *cli, struct tm_error *e)
{
    const struct tm_command *path[4];
    size_t count = 0;
    const struct tm_command *list = tm_commands;
    for (; count < cli->argument_count && count < 4; count++) {
        path[count] = tm_command_find(list, cli->arguments[count]);
        if (path[count] == NULL) return no_such_help(list, cli->arguments[count], e);
        list = path[count]->subcommands;
    }
    if (cli->json)
        tm_help_json(count > 0 ? path[count - 1] : NULL, &cli->out);
    else if (count == 0)
        tm_help_overview(&cli->term, &cli->out);
    else
        tm_help_command(path, count, &cli->term, &cli->out);
    return 0;
}

/* ---- config ---- */

static void put_value(const struct tm_field *field, const struct tm_settings *settings, struct tm_text *out)
{
    const char *member = (const char *)settings + field->offset;
    if (field->type == TM_FIELD_CHOICE) {
        tm_text_puts(out, field->choices[*(const int *)member]);
    } else if (field->type == TM_FIELD_STRING) {
        tm_text_puts(out, *(const char *const *)member);
    } else if (field->type == TM_FIELD_MAPS) { /* what is in them may be secret */
        size_t count = ((const struct tm_maps *)member)->count;
        if (count > 0) tm_text_printf(out, "%zu of them", count);
    } else {
        const struct tm_strings *strings = (const struct tm_strings *)member;
        for (size_t i = 0; i < strings->count; i++)
            tm_text_printf(out, "%s%s", i > 0 ? "," : "", strings->items[i]);
    }
}

enum { VALUE_BYTES_MAX = 1 << 20 }; /* no settings file is longer */

static const struct {
    const char *name;
    enum tm_path_kind kind;
} folders[] = {{"config", TM_PATH_CONFIG}, {"data", TM_PATH_DATA}, {"state", TM_PATH_STATE}, {"cache", TM_PATH_CACHE}};

/* NULL: no variable tells where it is. */
static const char *folder_path(struct tm_cli *cli, size_t i)
{
    struct tm_error no_path = {0};
    const char *path = tm_path(cli->env, folders[i].kind, "", &cli->arena, &no_path);
    if (path == NULL && no_path.code == TM_ENOMEM) cli->out.failed = -(int)TM_ENOMEM;
    return path;
}

static void print_json(struct tm_cli *cli)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, &cli->out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "file", cli->settings.path[0] != '\0' ? cli->settings.path : NULL);
    tm_jsonout_object(&json, "settings");
    for (const struct tm_field *field = tm_settings_fields; field->key != NULL; field++) {
        struct tm_text value;
        tm_text_init(&value, VALUE_BYTES_MAX);
        put_value(field, &cli->settings, &value);
        tm_jsonout_string(&json, field->key, tm_text_string(&value));
        if (value.failed != 0) cli->out.failed = value.failed;
        tm_text_deinit(&value);
    }
    tm_jsonout_end(&json);
    tm_jsonout_object(&json, "folders");
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        tm_jsonout_string(&json, folders[i].name, folder_path(cli, i));
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

int tm_cmd_config(struct tm_cli *cli, struct tm_error *e)
{
    if (cli->argument_count > 0) return tm_error_set(e, TM_EUSAGE, "config takes no arguments");
    if (cli->json) {
        print_json(cli);
        return tm_text_status(&cli->out, e);
    }
    const char *file = cli->settings.path[0] != '\0' ? cli->settings.path : "none (defaults)";
    tm_text_printf(&cli->out, "settings file: %s\n\n", file);
    for (const struct tm_field *field = tm_settings_fields; field->key != NULL; field++) {
        struct tm_text value;
        tm_text_init(&value, VALUE_BYTES_MAX);
        put_value(field, &cli->settings, &value);
        tm_text_printf(&cli->out, "%-10s %-10s # %s\n", field->key, tm_text_string(&value), field->doc);
        if (value.failed != 0) cli->out.failed = value.failed;
        tm_text_deinit(&value);
    }
    tm_text_putc(&cli->out, '\n');
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *path = folder_path(cli, i);
        tm_text_printf(&cli->out, "%-10s %s\n", folders[i].name, path != NULL ? path : "-");
    }
    return tm_text_status(&cli->out, e);
}
