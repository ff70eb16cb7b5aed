/* The table of commands: help, man pages, completions and dispatch all read it.
 *
 * To add a command: write cmd_NAME.c with its options and its run function, and add one row to the table in
 * commands.c. A test checks that every option is documented and that every documented option exists. */
#ifndef TM_CLI_COMMAND_H
#define TM_CLI_COMMAND_H

#include "base/arena.h"
#include "base/env.h"
#include "base/term.h"
#include "base/text.h"
#include "cli/settings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_OPTIONS_GIVEN_MAX = 256 };

struct tm_option {
    const char *name;           /* without "--"; NULL ends the list */
    char letter;                /* 0: no short form */
    const char *value;          /* what follows it, for help ("DURATION"); NULL: a switch */
    const char *help;           /* one line, no full stop */
    const char *const *choices; /* the values it may have, NULL-terminated; or NULL: any */
    bool hidden;                /* not in help, man pages and completions */
};

struct tm_cli;

struct tm_command {
    const char *name;        /* NULL ends the list */
    const char *summary;     /* one line, no full stop */
    const char *arguments;   /* synopsis of what is not an option: "FILE..." */
    const char *description; /* paragraphs, separated by empty lines */
    const char *examples;    /* lines of "command  # what it does" */
    const struct tm_option *options;
    const struct tm_command *subcommands;               /* NULL: none */
    int (*run)(struct tm_cli *cli, struct tm_error *e); /* NULL: needs a subcommand */
    bool about_commands;                                /* arguments are names of commands (completions) */
    bool foreign;                                       /* options end with the first argument; _ in them is - */
    bool files;                                         /* arguments are file names (completions) */
    const char *const *words;                           /* arguments are one of these (completions); NULL: not */
};

extern const struct tm_command tm_commands[];
/* Those that the program starts itself with: in no help, man page or completion. */
extern const struct tm_command tm_plumbing_commands[];
extern const struct tm_option tm_global_options[];

struct tm_option_given {
    const struct tm_option *option;
    const char *value; /* NULL for switches */
};

/* One call of the program. */
struct tm_cli {
    struct tm_env *env;
    struct tm_arena arena; /* lives as long as the call */
    struct tm_settings settings;
    struct tm_term term;              /* of standard output */
    struct tm_text out;               /* what goes to standard output */
    const struct tm_command *path[4]; /* command, subcommand, ... */
    size_t path_count;
    struct tm_option_given given[TM_OPTIONS_GIVEN_MAX];
    size_t given_count;
    const char **arguments; /* what is not an option */
    size_t argument_count;
    bool json;
    bool quiet;
    int exit_status; /* of a run that succeeded but has something to say by its status */
};

/* Finds command and options in the words behind the program's name. Fills path, given and arguments. */
int tm_cli_parse(struct tm_cli *cli, int word_count, char *const *words, struct tm_error *e);
/* The whole program: parse, run, print. Returns the exit status. */
int tm_cli_main(struct tm_env *env, int word_count, char *const *words);

const struct tm_command *tm_command_find(const struct tm_command *list, const char *name);
/* The option called `name` (or with the letter) of the innermost command, or a global one; NULL if there is none. */
const struct tm_option *tm_option_find(const struct tm_cli *cli, const char *name, char letter);

/* Appends the call as a shell takes it, so that it can be repeated. */
void tm_cli_put_call(const struct tm_cli *cli, const char *command, struct tm_text *out);

/* ---- options given ---- */

bool tm_given(const struct tm_cli *cli, const char *name);
const char *tm_given_text(const struct tm_cli *cli, const char *name); /* the last one given; NULL: none */
/* Each of these leaves *out alone where the option was not given. */
int tm_given_duration(const struct tm_cli *cli, const char *name, int64_t *out_ms, struct tm_error *e);
int tm_given_number(const struct tm_cli *cli, const char *name, double min, double max, double *out,
                    struct tm_error *e);
int tm_given_integer(const struct tm_cli *cli, const char *name, int64_t min, int64_t max, int64_t *out,
                     struct tm_error *e);
int tm_given_choice(const struct tm_cli *cli, const char *name, int *out, struct tm_error *e);
/* True if `text` equals one of the values given for `name` (case ignored; commas separate values), or none was. */
bool tm_given_matches(const struct tm_cli *cli, const char *name, const char *text);

/* "tidemill catalog import" */
void tm_cli_path(const struct tm_cli *cli, struct tm_text *out);

/* ---- made from the table ---- */

void tm_help_overview(const struct tm_term *term, struct tm_text *out);
void tm_help_command(const struct tm_command *const *path, size_t path_count, const struct tm_term *term,
                     struct tm_text *out);
/* The same as one JSON document; NULL: all commands. */
void tm_help_json(const struct tm_command *command, struct tm_text *out);
/* Man page in scdoc's form: "tidemill", or "tidemill-catalog". -TM_ENOTFOUND if there is no such page. */
int tm_man_source(const char *page, struct tm_text *out, struct tm_error *e);
void tm_man_list(struct tm_text *out); /* names of the pages, one a line */
/* shell: bash, zsh or fish. */
int tm_completion(const char *shell, struct tm_text *out, struct tm_error *e);

#endif
