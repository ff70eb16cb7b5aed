/* Growable text with a limit. Failure is sticky: append as you like, ask once at the end.
 *
 *     struct tm_text out;
 *     tm_text_init(&out, 1 << 20);
 *     tm_text_printf(&out, "%d nodes\n", n);
 *     rc = tm_text_status(&out, e);       -TM_ENOMEM or -TM_ELIMIT if any append did not fit
 *     tm_text_deinit(&out); */
#ifndef TM_BASE_TEXT_H
#define TM_BASE_TEXT_H

#include "base/error.h"

#include <stddef.h>

struct tm_text {
    char *data; /* always NUL-terminated once anything was appended; NULL before */
    size_t length;
    size_t capacity;
    size_t max; /* longest length allowed */
    int failed; /* 0 or the negative code of the first failure */
};

void tm_text_init(struct tm_text *text, size_t max);
void tm_text_deinit(struct tm_text *text);
void tm_text_clear(struct tm_text *text); /* length 0, failure forgotten, memory kept */

void tm_text_append(struct tm_text *text, const char *bytes, size_t length);
void tm_text_puts(struct tm_text *text, const char *string);
void tm_text_putc(struct tm_text *text, char c);
void tm_text_fill(struct tm_text *text, char c, size_t count);
/* Appends so many bytes for the caller to write, at the pointer returned; NULL when they did not fit. */
char *tm_text_room(struct tm_text *text, size_t count);
void tm_text_printf(struct tm_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

int tm_text_status(const struct tm_text *text, struct tm_error *e);
/* The text as a string, "" if empty. Borrowed; valid until the next append. */
const char *tm_text_string(const struct tm_text *text);

#endif
