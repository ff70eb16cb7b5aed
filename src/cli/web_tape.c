#include "cli/web_tape.h"

#include "cli/commands.h"
#include "cloud/talk.h"

#define VARIABLE "TIDEMILL_REPLAY_TAPE"

int tm_cmd_open_tape(struct tm_cli *cli, struct tm_error *e)
{
    const char *replay = tm_given_text(cli, "replay");
    int rc = tm_cloud_talk(cli->env, tm_given_text(cli, "record"), replay, e);
    if (rc == 0 && replay != NULL && cli->env->set_variable(cli->env, VARIABLE, replay) != 0) rc = tm_error_nomem(e);
    return rc;
}

int tm_cmd_take_tape(struct tm_cli *cli, struct tm_error *e)
{
    const char *replay = cli->env->variable(cli->env, VARIABLE);
    return replay != NULL && replay[0] != '\0' ? tm_cloud_talk(cli->env, NULL, replay, e) : 0;
}
