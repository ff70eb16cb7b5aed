/* Pictures of numbers: sparklines and braille plots in the terminal, line plots as SVG. */
#ifndef TM_BASE_PLOT_H
#define TM_BASE_PLOT_H

#include "base/term.h"

#include <stddef.h>

/* `values` squeezed into at most `width` bars (mean of each group), scaled from 0 to the largest. */
void tm_plot_sparkline(const struct tm_term *term, struct tm_text *out, const double *values, size_t count,
                       size_t width);

/* A step function: y[i] holds from x[i] to x[i + 1], the last one to x_end. */
struct tm_plot {
    const char *title;
    const char *x_label; /* with its unit */
    const char *y_label;
    const double *x; /* ascending */
    const double *y;
    size_t count;
    double x_end;
    double y_max;        /* top of the y axis; its bottom is 0 */
    const double *y_low; /* a band around the curve, as long as it; NULL: none, the area below the curve is filled */
    const double *y_high;
};

/* Axes, labels and curve, `columns` x `rows` characters of curve. Without UTF-8, '#' bars. */
int tm_plot_terminal(const struct tm_plot *plot, const struct tm_term *term, size_t columns, size_t rows,
                     struct tm_text *out, struct tm_error *e);

/* A self-contained SVG document. */
int tm_plot_svg(const struct tm_plot *plot, struct tm_text *out, struct tm_error *e);

#endif
