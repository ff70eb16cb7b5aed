/* Structs of plain numbers as text, exactly: what is read back is what was printed, to the last bit (of NaN, that it is
 * one). One line a figure: its name and its values. Zeros at the end are left out, and so are figures that are all
 * zero: a struct gets new members without making old text unreadable. */
#ifndef TM_BASE_FIGURES_H
#define TM_BASE_FIGURES_H

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

enum tm_figure_type { TM_FIGURE_INT, TM_FIGURE_BOOL, TM_FIGURE_DOUBLE };

struct tm_figure {
    const char *name; /* ends a table: NULL */
    enum tm_figure_type type;
    size_t offset;
    size_t count;  /* of values; 0: one */
    size_t stride; /* from one to the next; 0: side by side */
    double min;    /* what is outside is refused when it is read */
    double max;
    bool special; /* NaN and infinity are values, too */
};

void tm_figures_print(const struct tm_figure *table, const void *from, struct tm_text *out);
/* Sets what the text says; all else stays. -TM_EINPUT: a figure that there is not, too many values, one out of bounds.
 */
int tm_figures_parse(const struct tm_figure *table, const char *text, size_t length, void *to, struct tm_error *e);
/* Is every figure of both the same? NaN is the same as NaN. Else the first that is not to *out_which (NULL: not
 * wanted).
 */
bool tm_figures_same(const struct tm_figure *table, const void *a, const void *b, const struct tm_figure **out_which);

#endif
