/* Opens the dashboard as options of this call say, for `dashboard` and for `run --dashboard`. */
#ifndef TM_CLI_DASHBOARD_OPEN_H
#define TM_CLI_DASHBOARD_OPEN_H

#include "api/dashboard.h"
#include "cli/command.h"

enum { TM_DASHBOARD_ATTACHED_MAX = 16 };

/* `dir`: the run's own state folder, shown wherever it is; NULL: those of --state. The caller owns the result. */
int tm_dashboard_open(struct tm_cli *cli, const char *dir, struct tm_dashboard **out, struct tm_error *e);

#endif
