#include "base/debug.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

atomic_uint tm_debug__rooms;

static struct tm_env *_Atomic clock_of;

static const char *const words[] = {
#define WORD(name, word) word,
    TM_DEBUG_ROOMS(WORD)
#undef WORD
};

static int unknown_room(const char *room, size_t length, struct tm_error *e)
{
    char rooms[256] = "";
    size_t at = 0;
    for (size_t i = 0; i < TM_DEBUG_COUNT; i++) {
        int more = snprintf(rooms + at, sizeof rooms - at, "%s%s", i == 0 ? "" : ", ", words[i]);
        if (more > 0 && (size_t)more < sizeof rooms - at) at += (size_t)more;
    }
    return tm_error_set(e, TM_EUSAGE, "TIDEMILL_DEBUG: unknown room \"%.*s\"; rooms are %s, or all", (int)length, room,
                        rooms);
}

static int find_room(const char *room, size_t length, unsigned *bits, struct tm_error *e)
{
    if (length == 3 && strncmp(room, "all", 3) == 0) {
        *bits |= (1U << TM_DEBUG_COUNT) - 1;
        return 0;
    }
    for (size_t i = 0; i < TM_DEBUG_COUNT; i++) {
        if (strlen(words[i]) != length || strncmp(words[i], room, length) != 0) continue;
        *bits |= 1U << i;
        return 0;
    }
    return unknown_room(room, length < 40 ? length : 40, e);
}

int tm_debug_set(struct tm_env *env, const char *rooms, struct tm_error *e)
{
    unsigned bits = 0;
    for (const char *at = rooms; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ",");
        int rc = find_room(at, length, &bits, e);
        if (rc != 0) return rc;
        at += length + (at[length] == ',');
    }
    atomic_store(&clock_of, env);
    atomic_store(&tm_debug__rooms, bits);
    return 0;
}

int tm_debug_open(struct tm_env *env, struct tm_error *e)
{
    return tm_debug_set(env, env->variable(env, "TIDEMILL_DEBUG"), e);
}

void tm_debug__say(enum tm_debug_room room, const char *format, ...)
{
    char text[1024];
    struct tm_env *env = atomic_load(&clock_of);
    int64_t now_ms = env == NULL ? 0 : env->now_ms(env);
    int64_t day_ms = now_ms % 86400000;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tm_log__always(TM_LOG_DEBUG, "%02d:%02d:%02d.%03d %s: %s", (int)(day_ms / 3600000), (int)(day_ms / 60000 % 60),
                   (int)(day_ms / 1000 % 60), (int)(day_ms % 1000), words[room], text);
}
