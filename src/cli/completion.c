/* Completions for bash, zsh and fish, made from the command table. */
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

static void put_names(const struct tm_command *list, struct tm_text *out)
{
    for (const struct tm_command *command = list; command != NULL && command->name != NULL; command++)
        tm_text_printf(out, "%s%s", command == list ? "" : " ", command->name);
}

static void put_option_names(const struct tm_option *options, struct tm_text *out)
{
    for (; options != NULL && options->name != NULL; options++) {
        if (!options->hidden) tm_text_printf(out, " --%s", options->name);
    }
}

/* ---- bash ---- */

/* Values that name files say so in help. */
static bool takes_file(const struct tm_option *option)
{
    return option->choices == NULL && (strcmp(option->value, "FILE") == 0 || strcmp(option->value, "OUT") == 0);
}

/* In a command's case: what may follow an option that takes a value. */
static void put_bash_values(const struct tm_option *options, struct tm_text *out)
{
    for (; options != NULL && options->name != NULL; options++) {
        if (options->value == NULL || options->hidden) continue;
        tm_text_printf(out, "                --%s", options->name);
        if (options->letter != 0) tm_text_printf(out, "|-%c", options->letter);
        tm_text_puts(out, ") words=\"");
        for (const char *const *choice = options->choices; choice != NULL && *choice != NULL; choice++)
            tm_text_printf(out, "%s%s", choice == options->choices ? "" : " ", *choice);
        tm_text_printf(out, "\" files=%s ;;\n", takes_file(options) ? "yes" : "");
    }
}

static void put_bash_case(const struct tm_command *command, const char *parent, struct tm_text *out)
{
    tm_text_printf(out, "        '%s%s%s')\n            words=\"", parent, parent[0] != '\0' ? " " : "", command->name);
    put_names(command->about_commands ? tm_commands : command->subcommands, out);
    for (const char *const *word = command->words; word != NULL && *word != NULL; word++)
        tm_text_printf(out, " %s", *word);
    put_option_names(command->options, out);
    put_option_names(tm_global_options, out);
    tm_text_printf(out, "\" files=%s\n            case \"$previous\" in\n", command->files ? "yes" : "");
    put_bash_values(command->options, out);
    put_bash_values(tm_global_options, out);
    tm_text_puts(out, "            esac ;;\n");
}

static void put_value_options(const struct tm_option *options, struct tm_text *out)
{
    for (; options != NULL && options->name != NULL; options++) {
        if (options->value == NULL || options->hidden) continue;
        tm_text_printf(out, "|--%s", options->name);
        if (options->letter != 0) tm_text_printf(out, "|-%c", options->letter);
    }
}

static void each_options(void (*put)(const struct tm_option *, struct tm_text *), struct tm_text *out)
{
    put(tm_global_options, out);
    for (const struct tm_command *command = tm_commands; command->name != NULL; command++) {
        put(command->options, out);
        for (const struct tm_command *sub = command->subcommands; sub != NULL && sub->name != NULL; sub++)
            put(sub->options, out);
    }
}

static void put_bash(struct tm_text *out)
{
    tm_text_puts(out, "# bash completion for tidemill; made by: tidemill completion bash\n"
                      "_tidemill() {\n"
                      "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
                      "    local path='' words='' files='' i\n"
                      "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                      "        case \"${COMP_WORDS[i]}\" in\n            --tidemill-none");
    each_options(put_value_options, out);
    tm_text_puts(out, ") i=$((i + 1)) ;; # its value is no command\n"
                      "            -*) ;;\n"
                      "            *) path=\"${path:+$path }${COMP_WORDS[i]}\" ;;\n"
                      "        esac\n"
                      "    done\n"
                      "    while :; do\n"
                      "        case \"$path\" in\n        '') words=\"");
    put_names(tm_commands, out);
    put_option_names(tm_global_options, out);
    tm_text_puts(out, "\" ;;\n");
    for (const struct tm_command *command = tm_commands; command->name != NULL; command++) {
        put_bash_case(command, "", out);
        for (const struct tm_command *sub = command->subcommands; sub != NULL && sub->name != NULL; sub++)
            put_bash_case(sub, command->name, out);
    }
    tm_text_puts(out,
                 "        *' '*) path=${path% *}; continue ;;\n"
                 "        *) path=''; continue ;;\n        esac\n        break\n    done\n"
                 "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
                 "    if [ -n \"$files\" ]; then\n"
                 "        local found\n"
                 "        while IFS= read -r found; do COMPREPLY+=(\"$found\"); done < <(compgen -f -- \"$current\")\n"
                 "    fi\n"
                 "    return 0\n"
                 "}\ncomplete -o filenames -F _tidemill tidemill\n");
}

/* ---- zsh ---- */

static void put_zsh_text(const char *text, struct tm_text *out)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            tm_text_puts(out, "'\\''");
        else if (strchr("[]:\\", *text) != NULL)
            tm_text_printf(out, "\\%c", *text);
        else
            tm_text_putc(out, *text);
    }
}

static void put_zsh_option(const struct tm_option *option, const char *written, struct tm_text *out)
{
    tm_text_printf(out, " \\\n        '*%s[", written);
    put_zsh_text(option->help, out);
    tm_text_puts(out, "]");
    if (option->choices != NULL) {
        tm_text_printf(out, ":%s:(", option->name);
        for (const char *const *choice = option->choices; *choice != NULL; choice++)
            tm_text_printf(out, "%s%s", choice == option->choices ? "" : " ", *choice);
        tm_text_puts(out, ")");
    } else if (option->value != NULL) {
        tm_text_printf(out, ":%s:%s", option->name, takes_file(option) ? "_files" : "");
    }
    tm_text_puts(out, "'");
}

static void put_zsh_options(const struct tm_option *options, struct tm_text *out)
{
    for (; options != NULL && options->name != NULL; options++) {
        if (options->hidden) continue;
        char written[80];
        (void)snprintf(written, sizeof written, "-%c", options->letter);
        if (options->letter != 0) put_zsh_option(options, written, out);
        (void)snprintf(written, sizeof written, "--%s", options->name);
        put_zsh_option(options, written, out);
    }
}

static void put_zsh_list(const struct tm_command *list, struct tm_text *out)
{
    tm_text_puts(out, "    local -a commands=(");
    for (; list->name != NULL; list++) {
        tm_text_printf(out, "\n        '%s:", list->name);
        put_zsh_text(list->summary, out);
        tm_text_puts(out, "'");
    }
    tm_text_puts(out, ")\n    _describe command commands\n");
}

static void put_zsh_function(const struct tm_command *command, const char *prefix, struct tm_text *out)
{
    tm_text_printf(out, "%s_%s() {\n    _arguments -s", prefix, command->name);
    put_zsh_options(command->options, out);
    put_zsh_options(tm_global_options, out);
    if (command->about_commands) {
        tm_text_puts(out, " \\\n        '*: :_tidemill_commands'");
    } else if (command->words != NULL) {
        tm_text_puts(out, command->files ? " \\\n        '*: :{_files; compadd" : " \\\n        '*: :{compadd");
        for (const char *const *word = command->words; *word != NULL; word++)
            tm_text_printf(out, " %s", *word);
        tm_text_puts(out, "}'");
    } else if (command->files) {
        tm_text_puts(out, " \\\n        '*:file:_files'");
    }
    tm_text_puts(out, "\n}\n");
}

static void put_zsh(struct tm_text *out)
{
    tm_text_puts(out, "#compdef tidemill\n# zsh completion for tidemill; made by: tidemill completion zsh\n");
    for (const struct tm_command *command = tm_commands; command->name != NULL; command++) {
        put_zsh_function(command, "_tidemill", out);
        for (const struct tm_command *sub = command->subcommands; sub != NULL && sub->name != NULL; sub++) {
            char prefix[80];
            (void)snprintf(prefix, sizeof prefix, "_tidemill_%s", command->name);
            put_zsh_function(sub, prefix, out);
        }
    }
    tm_text_puts(out, "_tidemill_commands() {\n");
    put_zsh_list(tm_commands, out);
    tm_text_puts(out, "}\n_tidemill() {\n    if ((CURRENT == 2)); then _tidemill_commands; return; fi\n"
                      "    local command=${words[2]} sub=${words[3]}\n"
                      "    if ((CURRENT > 3)) && (($+functions[_tidemill_${command}_$sub])); then\n"
                      "        shift 2 words; ((CURRENT -= 2)); _tidemill_${command}_$sub; return\n    fi\n"
                      "    case $command in\n");
    for (const struct tm_command *command = tm_commands; command->name != NULL; command++) {
        if (command->subcommands == NULL) continue;
        tm_text_printf(out, "    %s) if ((CURRENT == 3)); then\n", command->name);
        put_zsh_list(command->subcommands, out);
        tm_text_puts(out, "    fi ;;\n");
    }
    tm_text_puts(out, "    esac\n    shift words; ((CURRENT--))\n"
                      "    (($+functions[_tidemill_$command])) && _tidemill_$command\n}\n_tidemill \"$@\"\n");
}

/* ---- fish ---- */

static void put_fish_text(const char *text, struct tm_text *out)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'' || *text == '\\') tm_text_putc(out, '\\');
        tm_text_putc(out, *text);
    }
}

static void put_fish_options(const struct tm_option *options, const char *condition, struct tm_text *out)
{
    for (; options != NULL && options->name != NULL; options++) {
        if (options->hidden) continue;
        tm_text_printf(out, "complete -c tidemill%s -l %s", condition, options->name);
        if (options->letter != 0) tm_text_printf(out, " -s %c", options->letter);
        if (options->value != NULL) tm_text_puts(out, " -r");
        if (options->choices != NULL) {
            tm_text_puts(out, " -f -a '");
            for (const char *const *choice = options->choices; *choice != NULL; choice++)
                tm_text_printf(out, "%s%s", choice == options->choices ? "" : " ", *choice);
            tm_text_puts(out, "'");
        }
        tm_text_puts(out, " -d '");
        put_fish_text(options->help, out);
        tm_text_puts(out, "'\n");
    }
}

static void put_fish_command(const struct tm_command *command, const char *condition, struct tm_text *out)
{
    tm_text_printf(out, "complete -c tidemill%s -f -a %s -d '", condition, command->name);
    put_fish_text(command->summary, out);
    tm_text_puts(out, "'\n");
}

static void put_fish(struct tm_text *out)
{
    char condition[256];
    tm_text_puts(out, "# fish completion for tidemill; made by: tidemill completion fish\n");
    put_fish_options(tm_global_options, "", out);
    for (const struct tm_command *command = tm_commands; command->name != NULL; command++) {
        put_fish_command(command, " -n __fish_use_subcommand", out);
        (void)snprintf(condition, sizeof condition, " -n '__fish_seen_subcommand_from %s'", command->name);
        put_fish_options(command->options, condition, out);
        for (const char *const *word = command->words; word != NULL && *word != NULL; word++)
            tm_text_printf(out, "complete -c tidemill%s -f -a %s\n", condition, *word);
        for (const struct tm_command *one = tm_commands; command->about_commands && one->name != NULL; one++)
            tm_text_printf(out, "complete -c tidemill%s -f -a %s\n", condition, one->name);
        for (const struct tm_command *sub = command->subcommands; sub != NULL && sub->name != NULL; sub++) {
            put_fish_command(sub, condition, out);
            char both[256];
            (void)snprintf(both, sizeof both,
                           " -n '__fish_seen_subcommand_from %s; and __fish_seen_subcommand_from %s'", command->name,
                           sub->name);
            put_fish_options(sub->options, both, out);
            for (const char *const *word = sub->words; word != NULL && *word != NULL; word++)
                tm_text_printf(out, "complete -c tidemill%s -a %s\n", both, *word);
        }
    }
}

int tm_completion(const char *shell, struct tm_text *out, struct tm_error *e)
{
    if (strcmp(shell, "bash") == 0)
        put_bash(out);
    else if (strcmp(shell, "zsh") == 0)
        put_zsh(out);
    else if (strcmp(shell, "fish") == 0)
        put_fish(out);
    else
        return tm_error_set(e, TM_EUSAGE, "completions are for bash, zsh and fish, not for \"%.40s\"", shell);
    return tm_text_status(out, e);
}
