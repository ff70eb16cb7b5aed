#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/web_tape.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OUTPUT_BYTES_MAX = 1 << 30, ARENA_BYTES_MAX = 64 << 20 };

static bool is_switch_given(int word_count, char *const *words, const char *name)
{
    for (int i = 0; i < word_count && strcmp(words[i], "--") != 0; i++) {
        if (strcmp(words[i], name) == 0) return true;
    }
    return false;
}

/* Everything is printed at once at the end, so that a failing command prints no half document. */
static int write_out(const struct tm_text *out)
{
    size_t done = 0;
    while (done < out->length) {
        ssize_t more = write(STDOUT_FILENO, out->data + done, out->length - done);
        if (more < 0 && errno == EINTR) continue;
        if (more < 0 && errno == EPIPE) return 0; /* the reader, say head, has seen enough */
        if (more < 0) {
            (void)fprintf(stderr, "tidemill: writing to standard output: %s\n", strerror(errno));
            return 1;
        }
        done += (size_t)more;
    }
    return 0;
}

static void apply_settings(struct tm_cli *cli)
{
    int level = cli->settings.log;
    if (tm_given(cli, "verbose") && level < TM_LOG_INFO) level = TM_LOG_INFO;
    if (cli->quiet) level = TM_LOG_ERROR;
    tm_log_set_level((enum tm_log__level)level);
    enum tm_color_mode mode = (enum tm_color_mode)cli->settings.color;
    if (tm_given(cli, "no-color") || cli->json) mode = TM_COLOR_NEVER;
    cli->term = tm_term_detect(cli->env, STDOUT_FILENO, mode);
    if (cli->settings.data_dir[0] != '\0' && cli->env->variable(cli->env, "TIDEMILL_DATA_DIR") == NULL)
        (void)cli->env->set_variable(cli->env, "TIDEMILL_DATA_DIR", cli->settings.data_dir);
}

/* Global options that end the call. 1: one did. */
static int run_global(struct tm_cli *cli, struct tm_error *e)
{
    if (tm_given(cli, "version")) {
        if (cli->json)
            tm_text_puts(&cli->out, "{\n  \"version\": \"" TIDEMILL_VERSION "\"\n}\n");
        else
            tm_text_puts(&cli->out, "tidemill " TIDEMILL_VERSION "\n");
        return 1;
    }
    if (tm_given(cli, "list-man-pages")) {
        tm_man_list(&cli->out);
        return 1;
    }
    if (tm_given(cli, "man-source")) {
        int rc = tm_man_source(tm_given_text(cli, "man-source"), &cli->out, e);
        return rc == 0 ? 1 : rc;
    }
    if (tm_given(cli, "help") || cli->path_count == 0) {
        if (cli->json)
            tm_help_json(cli->path_count > 0 ? cli->path[cli->path_count - 1] : NULL, &cli->out);
        else if (cli->path_count == 0)
            tm_help_overview(&cli->term, &cli->out);
        else
            tm_help_command(cli->path, cli->path_count, &cli->term, &cli->out);
        return 1;
    }
    return 0;
}

static int run(struct tm_cli *cli, int word_count, char *const *words, struct tm_error *e)
{
    int rc = tm_cli_parse(cli, word_count, words, e);
    if (rc != 0) return rc;
    cli->json = tm_given(cli, "json");
    cli->quiet = tm_given(cli, "quiet");
    rc = tm_settings_load(cli->env, tm_given_text(cli, "config"), &cli->arena, &cli->settings, e);
    if (rc != 0) return rc;
    apply_settings(cli);
    rc = tm_debug_open(cli->env, e);
    if (rc != 0) return rc;
    rc = run_global(cli, e);
    if (rc != 0) return rc < 0 ? rc : tm_text_status(&cli->out, e);
    const struct tm_command *command = cli->path[cli->path_count - 1];
    if (command->run == NULL) {
        struct tm_text path;
        tm_text_init(&path, 128);
        tm_cli_path(cli, &path);
        rc = tm_error_set(e, TM_EUSAGE, "%s needs a subcommand; see: %s --help", tm_text_string(&path),
                          tm_text_string(&path));
        tm_text_deinit(&path);
        return rc;
    }
    rc = tm_cmd_take_tape(cli, e);
    if (rc == 0) rc = command->run(cli, e);
    return rc == 0 ? tm_text_status(&cli->out, e) : rc;
}

int tm_cli_main(struct tm_env *env, int word_count, char *const *words)
{
    struct tm_cli *cli = tm_calloc(1, sizeof *cli);
    if (cli == NULL) {
        (void)fputs("tidemill: error: out of memory\n", stderr);
        return tm_code_exit_status(TM_ENOMEM);
    }
    struct tm_error e = {.code = TM_OK};
    cli->env = env;
    tm_arena_init(&cli->arena, ARENA_BYTES_MAX);
    tm_text_init(&cli->out, OUTPUT_BYTES_MAX);
    tm_settings_defaults(&cli->settings);
    cli->term = tm_term_detect(env, STDOUT_FILENO, TM_COLOR_NEVER);
    int rc = run(cli, word_count, words, &e);
    int status = cli->exit_status;
    if (rc < 0) {
        bool plain = is_switch_given(word_count, words, "--no-color");
        bool color = tm_term_detect(env, STDERR_FILENO, plain ? TM_COLOR_NEVER : TM_COLOR_AUTO).color;
        struct tm_text shown; /* an error may quote a file: no control characters to the terminal */
        tm_text_init(&shown, 2 * TM_ERROR_TEXT_MAX);
        tm_term_put_safe(&shown, e.text, strlen(e.text));
        (void)fprintf(stderr, "%stidemill: error:%s %s\n", color ? "\033[31m" : "", color ? "\033[0m" : "",
                      tm_text_string(&shown));
        tm_text_deinit(&shown);
        status = tm_code_exit_status(e.code);
    } else if (write_out(&cli->out) != 0) {
        status = 1;
    }
    tm_text_deinit(&cli->out);
    tm_arena_deinit(&cli->arena);
    tm_free(cli);
    return status;
}

/* ---- the call again ---- */

/* A word as a shell reads it back. */
static void put_word(struct tm_text *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:,=@%";
    tm_text_putc(out, ' ');
    if (word[0] != '\0' && strspn(word, plain) == strlen(word)) {
        tm_text_puts(out, word);
        return;
    }
    tm_text_putc(out, '\'');
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            tm_text_puts(out, "'\\''");
        else
            tm_text_putc(out, *word);
    }
    tm_text_putc(out, '\'');
}

void tm_cli_put_call(const struct tm_cli *cli, const char *command, struct tm_text *out)
{
    tm_text_printf(out, "tidemill %s", command);
    for (size_t i = 0; i < cli->given_count; i++) {
        tm_text_printf(out, " --%s", cli->given[i].option->name);
        if (cli->given[i].value != NULL) put_word(out, cli->given[i].value);
    }
    for (size_t i = 0; i < cli->argument_count; i++)
        put_word(out, cli->arguments[i]);
}
