/* What a room does, line by line, for finding bugs: off unless it is asked for.
 *
 *     TIDEMILL_DEBUG=wire,run tidemill run job.yaml     (or "all")
 *
 * Lines go where the log goes, whatever its level: "debug: 12:34:56.789 wire: connected to ...". The time is the
 * environment's, so that a simulation prints the same lines every time. While a room is off, a line costs one branch.
 * What users should read is a log line or an event, never this. */
#ifndef TM_BASE_DEBUG_H
#define TM_BASE_DEBUG_H

#include "base/env.h"

#include <inttypes.h> /* lines are full of numbers */
#include <stdatomic.h>

#define TM_DEBUG_ROOMS(X)                                                                                              \
    X(WIRE, "wire")                                                                                                    \
    X(WEB, "web")                                                                                                      \
    X(STORE, "store") X(WORKER, "worker") X(ENGINE, "engine") X(CLOUD, "cloud") X(RUN, "run") X(SIM, "sim")

enum tm_debug_room {
#define TM_DEBUG_ENUM(name, word) TM_DEBUG_##name,
    TM_DEBUG_ROOMS(TM_DEBUG_ENUM)
#undef TM_DEBUG_ENUM
        TM_DEBUG_COUNT
};

/* Turns on the rooms that TIDEMILL_DEBUG names, and takes the time from `env`, which must outlive all lines. -TM_EUSAGE
 * names the rooms there are. */
int tm_debug_open(struct tm_env *env, struct tm_error *e);
/* "wire,run", "all"; NULL or "": none. */
int tm_debug_set(struct tm_env *env, const char *rooms, struct tm_error *e);

extern atomic_uint tm_debug__rooms;
#define tm_debug_is_on(room) ((atomic_load_explicit(&tm_debug__rooms, memory_order_relaxed) >> (room)&1U) != 0)
#define tm_debug(room, ...)                                                                                            \
    do {                                                                                                               \
        if (tm_debug_is_on(room)) tm_debug__say((room), __VA_ARGS__);                                                  \
    } while (0)
void tm_debug__say(enum tm_debug_room room, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
