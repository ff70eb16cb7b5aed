/* Which run a command is about, and its status, from whoever can tell. */
#ifndef TM_CLI_RUN_FOLDER_H
#define TM_CLI_RUN_FOLDER_H

#include "cli/command.h"
#include "run/run_status.h"

/* --state DIR or NAME; without it, the one run that is going on, or the only one there is. -TM_ENOTFOUND says what
 * there is. The folder's name is absolute or as it was given, and lives in the call's arena. */
int tm_run_folder(struct tm_cli *cli, const char **out_dir, struct tm_error *e);

/* Does a program that lives run it? */
bool tm_run_is_owned(struct tm_cli *cli, const char *dir);

/* The coordinator's word; where it does not answer, the record's (status->live is false). The caller owns what is in
 * `out`. */
int tm_run_status_of(struct tm_cli *cli, const char *dir, struct tm_run_status *out, struct tm_error *e);
/* What is to be said of a status that is not live: "" where the job has ended. */
const char *tm_run_away_note(struct tm_cli *cli, const char *dir, const struct tm_run_status *status);

#endif
