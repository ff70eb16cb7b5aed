#include "cli/web_tape.h"

#include "cli/commands.h"
#include "web/tape.h"

int tm_cmd_open_tape(struct tm_cli *cli, struct tm_error *e)
{
    const char *record = tm_given_text(cli, "record");
    const char *replay = tm_given_text(cli, "replay");
    if (record != NULL && replay != NULL)
        return tm_error_set(e, TM_EUSAGE, "--record and --replay: one of them, what is replayed is recorded already");
    if (record != NULL) return tm_tape_record(cli->env, record, e);
    return replay != NULL ? tm_tape_replay(cli->env, replay, e) : 0;
}
