#include "cloud/talk.h"

#include "web/tape.h"

int tm_cloud_talk(struct tm_env *env, const char *record, const char *replay, struct tm_error *e)
{
    if (record != NULL && replay != NULL)
        return tm_error_set(e, TM_EUSAGE, "--record and --replay: one of them, what is replayed is recorded already");
    if (record != NULL) return tm_tape_record(env, record, e);
    return replay != NULL ? tm_tape_replay(env, replay, e) : 0;
}
