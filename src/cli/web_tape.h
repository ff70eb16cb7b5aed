/* --record and --replay of commands that ask a cloud (web/tape.h). */
#ifndef TM_CLI_WEB_TAPE_H
#define TM_CLI_WEB_TAPE_H

#include "cli/command.h"

/* clang-format off */
#define TM_TAPE_OPTIONS                                                                                                \
    {.name = "record", .value = "FILE",                                                                                \
     .help = "record what the cloud is asked and answers, without secrets, to send it with a report"},                 \
    {.name = "replay", .value = "FILE", .help = "ask nobody: take the answers from such a file"}
/* clang-format on */

/* Opens what the options say, before anything is asked. */
int tm_cmd_open_tape(struct tm_cli *cli, struct tm_error *e);
/* A process that a replayed command started asks nobody either. */
int tm_cmd_take_tape(struct tm_cli *cli, struct tm_error *e);

#endif
