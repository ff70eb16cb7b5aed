#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

static _Atomic enum tm_log__level current_level = TM_LOG_WARN;
static _Atomic tm_log_sink_f current_sink;
static void *_Atomic current_context;

void tm_log_set_level(enum tm_log__level level)
{
    atomic_store(&current_level, level);
}

enum tm_log__level tm_log__level(void)
{
    return atomic_load(&current_level);
}

void tm_log_set_sink(tm_log_sink_f sink, void *context)
{
    atomic_store(&current_context, context);
    atomic_store(&current_sink, sink);
}

const char *tm_log_level_name(enum tm_log__level level)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    return names[level];
}

static void put(enum tm_log__level level, const char *format, va_list args)
{
    char line[2048];
    (void)vsnprintf(line, sizeof line, format, args);
    for (char *c = line; *c != '\0'; c++) { /* one line, and no commands to the terminal */
        bool c1 = (unsigned char)c[0] == 0xC2 && ((unsigned char)c[1] & 0xE0) == 0x80;
        if (c1) c[1] = ' ';
        if (c1 || (unsigned char)*c < 0x20 || *c == 0x7F) *c = ' ';
    }
    tm_log_sink_f sink = atomic_load(&current_sink);
    if (sink != NULL)
        sink(atomic_load(&current_context), level, line);
    else
        (void)fprintf(stderr, "%s: %s\n", tm_log_level_name(level), line);
}

void tm_log(enum tm_log__level level, const char *format, ...)
{
    if (level > atomic_load(&current_level)) return;
    va_list args;
    va_start(args, format);
    put(level, format, args);
    va_end(args);
}

void tm_log__always(enum tm_log__level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(level, format, args);
    va_end(args);
}
