/* Asking before something is changed. */
#ifndef TM_CLI_CONFIRM_H
#define TM_CLI_CONFIRM_H

#include "cli/command.h"

/* Asks `question` unless -y was given. -TM_ECANCELED: the answer is no. -TM_EUSAGE: nobody can be asked. */
int tm_confirm(const struct tm_cli *cli, const char *question, struct tm_error *e);

#endif
