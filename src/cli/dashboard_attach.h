/* --attach and --token of `tidemill dashboard`. */
#ifndef TM_CLI_DASHBOARD_ATTACH_H
#define TM_CLI_DASHBOARD_ATTACH_H

#include "api/dashboard.h"
#include "cli/command.h"

/* What they say, in the call's arena. Tokens come from a file or a variable, never from the command line, which
 * everybody here can read. */
int tm_dashboard_attached(struct tm_cli *cli, const struct tm_dashboard_attach **out, size_t *out_count,
                          struct tm_error *e);

#endif
