/* A command of somebody's tool (Slurm's, SkyPilot's, a credential plugin) on its way: started, read, and given up when
 * it takes too long. Nothing is waited for. */
#ifndef TM_CLOUD_TOOL_PROCESS_H
#define TM_CLOUD_TOOL_PROCESS_H

#include "base/env.h"

/* One at a time; `text` is initialised, and `variables` are set, by its owner. */
struct tm_tool__process {
    const char *const *variables; /* "NAME=VALUE", besides this program's own; ends in NULL; NULL: none */
    int pid;                      /* 0: none */
    int handle;                   /* ready when it has ended */
    int output;                   /* -1: closed */
    int64_t deadline_ms;
    struct tm_text text;
};

/* Starts it; nothing else may be on its way. */
int tm_tool_process__start(struct tm_tool__process *process, struct tm_env *env, const char *const *argv,
                           int64_t limit_ms, struct tm_error *e);
/* Reads what is there. True: it has ended, *out_status says how (-1: it was given up), and `text` is whole. */
bool tm_tool_process__step(struct tm_tool__process *process, struct tm_env *env, int *out_status);
/* What to wait for; up to two handles. */
size_t tm_tool_process__watch(const struct tm_tool__process *process, int handles[2]);
/* Ends it, if there is one. */
void tm_tool_process__stop(struct tm_tool__process *process, struct tm_env *env);

#endif
