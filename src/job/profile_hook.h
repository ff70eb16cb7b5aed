/* The profiler as Python source, carried by the program, and the folder that puts it in front of a command. */
#ifndef TM_JOB_PROFILE_HOOK_H
#define TM_JOB_PROFILE_HOOK_H

#include "base/arena.h"
#include "base/env.h"

/* Where a command's profile goes; texts live in the caller's arena. */
struct tm_profile_hook {
    const char *folder; /* to remove when done */
    const char *out;    /* the profile, once it is written */
    const char *why;    /* instead: a line that says why there is none */
    const char *site;   /* files of the folder */
    const char *source;
};

/* Makes a folder of its own under $TMPDIR with the profiler in it. */
int tm_profile_hook_make(struct tm_env *env, struct tm_arena *arena, struct tm_profile_hook *out, struct tm_error *e);
void tm_profile_hook_remove(struct tm_env *env, const struct tm_profile_hook *hook);

#endif
