#include "cli/run_worker.h"

int tm_run_worker(struct tm_cli *cli, const char *path, const struct tm_run_settings *settings, struct tm_error *e)
{
    (void)cli;
    return tm_error_set(e, TM_EUSAGE, "%s: engine %s cannot be run yet", path, tm_run_engine_names[settings->engine]);
}
