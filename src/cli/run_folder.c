#include "cli/run_folder.h"

#include "run/find_run.h"

int tm_run_folder(struct tm_cli *cli, const char **out_dir, struct tm_error *e)
{
    if (cli->argument_count > 0)
        return tm_error_set(e, TM_EUSAGE, "unexpected argument \"%.60s\"; name a run with --state", cli->arguments[0]);
    return tm_run_find(cli->env, tm_given_text(cli, "state"), &cli->arena, out_dir, e);
}
