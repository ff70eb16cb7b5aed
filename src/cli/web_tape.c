#include "cli/web_tape.h"

#include "cli/commands.h"
#include "cloud/talk.h"

int tm_cmd_open_tape(struct tm_cli *cli, struct tm_error *e)
{
    return tm_cloud_talk(cli->env, tm_given_text(cli, "record"), tm_given_text(cli, "replay"), e);
}
