#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *remedy;
    int status;
} codes[TM_CODE_COUNT] = {
#define TM_CODE_ROW(name, remedy, status) {#name, remedy, status},
    TM_CODES(TM_CODE_ROW)
#undef TM_CODE_ROW
};

/* Marks a text that vsnprintf cut off, so that a reader knows that something is missing. */
static void mark_if_cut(char *text, size_t size, int wanted)
{
    if (wanted >= 0 && (size_t)wanted >= size) memcpy(text + size - 4, "...", 4);
}

static void fill(struct tm_error *e, enum tm_code code, const char *format, va_list args)
{
    if (e == NULL) return;
    e->code = code;
    int wanted = vsnprintf(e->text, sizeof e->text, format, args);
    mark_if_cut(e->text, sizeof e->text, wanted);
}

static void prepend(struct tm_error *e, const char *format, va_list args)
{
    char inner[TM_ERROR_TEXT_MAX];
    memcpy(inner, e->text, sizeof inner);
    int wanted = vsnprintf(e->text, sizeof e->text, format, args);
    mark_if_cut(e->text, sizeof e->text, wanted);
    size_t used = strlen(e->text);
    wanted = snprintf(e->text + used, sizeof e->text - used, ": %s", inner);
    mark_if_cut(e->text, sizeof e->text, (int)used + wanted);
}

void tm_error__set(struct tm_error *e, enum tm_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(e, code, format, args);
    va_end(args);
}

int tm_error_wrap(struct tm_error *e, int rc, const char *format, ...)
{
    if (e == NULL) return rc;
    va_list args;
    va_start(args, format);
    prepend(e, format, args);
    va_end(args);
    return rc;
}

int tm_error_errno(struct tm_error *e, int errno_value, const char *format, ...)
{
    enum tm_code code = errno_value == ENOENT ? TM_ENOTFOUND : TM_EIO;
    if (errno_value == ENOMEM) code = TM_ENOMEM;
    if (errno_value == ENOSPC || errno_value == EDQUOT || errno_value == EFBIG) code = TM_EFULL;
    if (e != NULL) {
        va_list args;
        va_start(args, format);
        fill(e, code, format, args);
        va_end(args);
        size_t used = strlen(e->text);
        int wanted = snprintf(e->text + used, sizeof e->text - used, ": %s%s", strerror(errno_value),
                              errno_value == EMFILE ? ": allow this program more of them (ulimit -n)" : "");
        mark_if_cut(e->text, sizeof e->text, (int)used + wanted);
    }
    return -(int)code;
}

const char *tm_code__name(enum tm_code code)
{
    return (unsigned)code < TM_CODE_COUNT ? codes[code].name : "TM_E?";
}

const char *tm_code__remedy(enum tm_code code)
{
    return (unsigned)code < TM_CODE_COUNT ? codes[code].remedy : "report a bug";
}

int tm_code_exit_status(enum tm_code code)
{
    return (unsigned)code < TM_CODE_COUNT ? codes[code].status : 1;
}
