#include "base/text.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tm_text_init(struct tm_text *text, size_t max)
{
    *text = (struct tm_text){.max = max};
}

void tm_text_deinit(struct tm_text *text)
{
    tm_free(text->data);
    *text = (struct tm_text){.max = text->max};
}

void tm_text_clear(struct tm_text *text)
{
    text->length = 0;
    text->failed = 0;
    if (text->data != NULL) text->data[0] = '\0';
}

/* Room for `more` bytes and the NUL; false (and sticky failure) when there is none. */
static int reserve(struct tm_text *text, size_t more)
{
    if (text->failed != 0) return 0;
    if (more > text->max || text->length > text->max - more) {
        text->failed = -(int)TM_ELIMIT;
        return 0;
    }
    void *data = text->data;
    int rc = tm_grow(&data, &text->capacity, text->length + more + 1, 1, text->max + 1);
    text->data = data;
    if (rc != 0) text->failed = rc;
    return rc == 0;
}

void tm_text_append(struct tm_text *text, const char *bytes, size_t length)
{
    if (!reserve(text, length)) return;
    if (length > 0) memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void tm_text_puts(struct tm_text *text, const char *string)
{
    tm_text_append(text, string, strlen(string));
}

void tm_text_putc(struct tm_text *text, char c)
{
    tm_text_append(text, &c, 1);
}

void tm_text_fill(struct tm_text *text, char c, size_t count)
{
    if (!reserve(text, count)) return;
    memset(text->data + text->length, c, count);
    text->length += count;
    text->data[text->length] = '\0';
}

char *tm_text_room(struct tm_text *text, size_t count)
{
    if (!reserve(text, count)) return NULL;
    char *room = text->data + text->length;
    text->length += count;
    text->data[text->length] = '\0';
    return room;
}

void tm_text_printf(struct tm_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) {
        text->failed = -(int)TM_EINTERNAL;
    } else if (reserve(text, (size_t)length)) {
        (void)vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

int tm_text_status(const struct tm_text *text, struct tm_error *e)
{
    if (text->failed == 0) return 0;
    if (text->failed == -(int)TM_ELIMIT)
        return tm_error_set(e, TM_ELIMIT, "text is longer than its limit of %zu bytes", text->max);
    if (text->failed == -(int)TM_ENOMEM) return tm_error_nomem(e);
    return tm_error_set(e, TM_EINTERNAL, "text could not be formatted");
}

const char *tm_text_string(const struct tm_text *text)
{
    return text->data != NULL ? text->data : "";
}
