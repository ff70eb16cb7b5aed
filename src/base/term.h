/* What the place we print to can show: colour, width, UTF-8; and text measured as it appears there. */
#ifndef TM_BASE_TERM_H
#define TM_BASE_TERM_H

#include "base/env.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

enum tm_color { TM_PLAIN, TM_BOLD, TM_DIM, TM_RED, TM_GREEN, TM_YELLOW, TM_BLUE, TM_CYAN };

enum tm_color_mode { TM_COLOR_AUTO, TM_COLOR_ALWAYS, TM_COLOR_NEVER };

struct tm_term {
    bool is_terminal;
    bool color;
    bool utf8;
    int width; /* columns; 0: unlimited (a pipe or a file) */
};

/* Looks at a file descriptor and at NO_COLOR, TERM, COLUMNS, LC_ALL, LC_CTYPE and LANG. In AUTO, colour needs a
 * terminal that is not "dumb" and no NO_COLOR. UTF-8 is assumed unless the locale names another character set or
 * C/POSIX on a terminal. */
struct tm_term tm_term_detect(struct tm_env *env, int fd, enum tm_color_mode mode);

/* Appends `string`, coloured if the terminal can. */
void tm_term_put(const struct tm_term *term, struct tm_text *out, enum tm_color color, const char *string);

/* Columns that UTF-8 text takes: combining marks 0, East Asian wide and emoji 2, anything else 1. */
size_t tm_term_columns(const char *string);

/* Appends `string` cut to `columns` (with an ellipsis when cut). */
void tm_term__put_cut(const struct tm_term *term, struct tm_text *out, const char *string, size_t columns);

/* Appends text from a file with control characters, and bytes that are no UTF-8, shown as '?', so that it cannot
 * command the terminal. */
void tm_term_put_safe(struct tm_text *out, const char *bytes, size_t length);

#endif
