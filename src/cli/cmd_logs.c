#include "base/jsonout.h"
#include "base/number.h"
#include "base/term.h"
#include "cli/commands.h"
#include "run/find_run.h"
#include "run/state_folder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUT_MAX = 64 << 20, INSTANCES_MAX = 4096 };

const struct tm_option tm_logs_command_options[] = {
    {.name = "state",
     .value = "DIR|NAME",
     .help = "state folder or name of the run (the one running, or the only one)"},
    {.name = "instance", .value = "N", .help = "only the output of instance N's worker"},
    {.name = "last", .value = "N", .help = "only the last N lines of each instance"},
    {.name = NULL},
};

struct listing {
    size_t count;
    uint64_t instances[INSTANCES_MAX];
};

/* Names of the form worker-N.log. */
static int take_name(void *context, const char *name, struct tm_error *e)
{
    static const char prefix[] = "worker-";
    struct listing *all = context;
    char *end = NULL;
    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0) return 0;
    const char *digits = name + sizeof(prefix) - 1;
    uint64_t instance = strtoull(digits, &end, 10);
    if (*digits < '0' || *digits > '9' || strcmp(end, ".log") != 0) return 0;
    if (all->count == INSTANCES_MAX)
        return tm_error_set(e, TM_ELIMIT, "more than %d instances have written logs: choose one with --instance",
                            INSTANCES_MAX);
    all->instances[all->count++] = instance;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Where the last `lines` lines begin. */
static char *last_lines(char *text, size_t length, int64_t lines)
{
    char *at = text + length;
    if (at > text && at[-1] == '\n') at--;
    while (at > text) {
        if (at[-1] == '\n' && --lines == 0) break;
        at--;
    }
    return at;
}

/* `end` is the text's own end, where its zero is. */
static void print_lines(struct tm_cli *cli, struct tm_jsonout *json, uint64_t instance, char *text, char *end)
{
    while (text < end) {
        char *line_end = memchr(text, '\n', (size_t)(end - text));
        if (line_end == NULL) line_end = end;
        if (json != NULL) {
            *line_end = '\0';
            tm_jsonout_string(json, NULL, text);
        } else {
            tm_text_printf(&cli->out, "[%" PRIu64 "] ", instance);
            tm_term_put_safe(&cli->out, text, (size_t)(line_end - text));
            tm_text_putc(&cli->out, '\n');
        }
        text = line_end < end ? line_end + 1 : end;
    }
}

static int print_output(struct tm_cli *cli, struct tm_jsonout *json, const char *dir, uint64_t instance, int64_t last,
                        struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_text text;
    tm_state_output_path(dir, instance, path);
    tm_text_init(&text, OUTPUT_MAX);
    int rc = cli->env->file_read(cli->env, path, &text, e);
    if (rc == 0 && text.length > 0) {
        char *begin = last > 0 ? last_lines(text.data, text.length, last) : text.data;
        print_lines(cli, json, instance, begin, text.data + text.length);
    }
    tm_text_deinit(&text);
    return rc;
}

static int print_all(struct tm_cli *cli, const char *dir, const struct listing *all, int64_t last, struct tm_error *e)
{
    struct tm_jsonout json;
    int rc = 0;
    if (cli->json) {
        tm_jsonout_init(&json, &cli->out);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_list(&json, "instances");
    }
    for (size_t i = 0; rc == 0 && i < all->count; i++) {
        if (cli->json) {
            tm_jsonout_object(&json, NULL);
            tm_jsonout_integer(&json, "instance", (int64_t)all->instances[i]);
            tm_jsonout_list(&json, "lines");
        }
        rc = print_output(cli, cli->json ? &json : NULL, dir, all->instances[i], last, e);
        if (cli->json) {
            tm_jsonout_end(&json);
            tm_jsonout_end(&json);
        }
    }
    if (cli->json) {
        tm_jsonout_end(&json);
        tm_jsonout_end(&json);
    }
    return rc;
}

/* As an argument, or by its option; 0: neither. */
static int read_instance(struct tm_cli *cli, int64_t *out, struct tm_error *e)
{
    const char *word = cli->argument_count > 0 ? cli->arguments[0] : NULL;
    if (cli->argument_count > 1 || (word != NULL && tm_given(cli, "instance")))
        return tm_error_set(e, TM_EUSAGE, "one instance, or all: tidemill logs INSTANCE");
    if (word == NULL) return tm_given_integer(cli, "instance", 1, INT64_MAX, out, e);
    if (tm_number_i64(word, strlen(word), out) && *out > 0) return 0;
    return tm_error_set(e, TM_EUSAGE, "\"%.60s\" is not the number of an instance; name a run with --state", word);
}

int tm_cmd_logs(struct tm_cli *cli, struct tm_error *e)
{
    const char *dir = NULL;
    char folder[TM_STATE_PATH_MAX];
    int64_t instance = 0, last = 0;
    struct listing *all = tm_arena_alloc(&cli->arena, sizeof(*all));
    if (all == NULL) return tm_error_nomem(e);
    all->count = 0;
    int rc = tm_run_find(cli->env, tm_given_text(cli, "state"), &cli->arena, &dir, e);
    if (rc == 0) rc = read_instance(cli, &instance, e);
    if (rc == 0) rc = tm_given_integer(cli, "last", 1, INT64_MAX, &last, e);
    if (rc != 0) return rc;
    tm_state_path(dir, TM_STATE_LOGS, folder);
    if (instance > 0) {
        all->instances[all->count++] = (uint64_t)instance;
    } else {
        rc = cli->env->folder_each(cli->env, folder, take_name, all, e);
        if (rc != 0) return rc;
        qsort(all->instances, all->count, sizeof(all->instances[0]), by_number);
    }
    if (all->count == 0) return tm_error_set(e, TM_ENOTFOUND, "%s: no worker has written anything yet", folder);
    return print_all(cli, dir, all, last, e);
}
