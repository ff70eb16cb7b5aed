/* `tidemill forecast --instance`: of a type and place, without a trace. */
#ifndef TM_CLI_FORECAST_KNOWN_H
#define TM_CLI_FORECAST_KNOWN_H

#include "cli/commands.h"

/* How many of --count instances are left after 1, 3, 6, 12 and 24 hours, if none is replaced, by what is known of the
 * risk of spot (market/risk.h). */
int tm_forecast_known(struct tm_cli *cli, struct tm_error *e);

#endif
