/* What clouds are asked and answer, to a file or from one (web/tape.h), for commands. */
#ifndef TM_CLOUD_TALK_H
#define TM_CLOUD_TALK_H

#include "base/env.h"

/* Before anything is asked: records to a file, or takes all answers from one. NULL: not so; both at once is an error.
 */
int tm_cloud_talk(struct tm_env *env, const char *record, const char *replay, struct tm_error *e);

#endif
