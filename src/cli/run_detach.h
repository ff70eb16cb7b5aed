/* `tidemill run --detach`: what is said and awaited on the machine that asks for it. */
#ifndef TM_CLI_RUN_DETACH_H
#define TM_CLI_RUN_DETACH_H

#include "api/dashboard.h"
#include "cli/command.h"
#include "job/detach.h"

/* Rents the coordinator's VM, and waits until it says how it is reached: killed meanwhile, the run goes on. */
int tm_run_detach(struct tm_cli *cli, const struct tm_detach_request *request, struct tm_error *e);
/* What --serve puts into the bucket; "": the page is on loopback only. `out` has room for TM_HOME_WHERE_MAX. */
void tm_run_where(const struct tm_dashboard *dashboard, const char *dir, char *out);

#endif
