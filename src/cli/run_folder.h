/* Which run a command is about. */
#ifndef TM_CLI_RUN_FOLDER_H
#define TM_CLI_RUN_FOLDER_H

#include "cli/command.h"

/* --state DIR or NAME; without it as run/find_run.h says. The folder's name lives in the call's arena. */
int tm_run_folder(struct tm_cli *cli, const char **out_dir, struct tm_error *e);

#endif
