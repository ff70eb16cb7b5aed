/* The last lines of a text, in the form that messages carry: a few, each cut to what a message allows. */
#ifndef TM_WIRE_LAST_LINES_H
#define TM_WIRE_LAST_LINES_H

#include "wire/message.h"

enum { TM_LAST_LINES = 16 };

struct tm_last_lines {
    char text[TM_LAST_LINES][TM_MESSAGE_STRING_MAX + 1];
    size_t count;
};

/* Empty lines at the end are left out. Of what a carriage return writes over, as progress bars do, the last counts. */
void tm_last_lines_of(const char *text, size_t length, struct tm_last_lines *out);
/* Fields of a message as `repeated string` has them; too many: the last ones. */
void tm_last_lines_read(char *const *lines, size_t count, struct tm_last_lines *out);
/* The other way: fills `pointers`, which borrow, and returns their count. */
size_t tm_last_lines_point(struct tm_last_lines *lines, char *pointers[TM_LAST_LINES]);

#endif
