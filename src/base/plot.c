#include "base/plot.h"

#include "base/alloc.h"
#include "base/number.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* ---- sparkline ---- */

void tm_plot_sparkline(const struct tm_term *term, struct tm_text *out, const double *values, size_t count,
                       size_t width)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain_bars[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    if (width > count) width = count;
    double top = 0;
    for (size_t i = 0; i < count; i++)
        top = fmax(top, values[i]);
    for (size_t column = 0; column < width; column++) {
        size_t from = column * count / width;
        size_t to = (column + 1) * count / width;
        double sum = 0;
        for (size_t i = from; i < to; i++)
            sum += values[i];
        double share = top > 0 ? sum / (double)(to - from) / top : 0;
        size_t level = !(share > 0) ? 0 : share >= 1 ? 7 : (size_t)(share * 8);
        tm_text_puts(out, term->utf8 ? bars[level] : plain_bars[level]);
    }
}

/* ---- the curve as a grid of samples ---- */

/* Lowest and highest value of a step function (or of a band: its two edges) over each of `columns` equal spans of its x
 * range. */
struct span {
    double low;
    double high;
};

static void sample_spans(const struct tm_plot *plot, const double *lows, const double *highs, size_t columns,
                         struct span *spans)
{
    double x0 = plot->x[0];
    double width = (plot->x_end - x0) / (double)columns;
    size_t at = 0;
    for (size_t c = 0; c < columns; c++) {
        double from = x0 + width * (double)c;
        double to = c + 1 == columns ? INFINITY : from + width;
        while (at + 1 < plot->count && plot->x[at + 1] <= from)
            at++;
        struct span span = {lows[at], highs[at]};
        for (size_t i = at + 1; i < plot->count && plot->x[i] < to; i++) {
            span.low = fmin(span.low, lows[i]);
            span.high = fmax(span.high, highs[i]);
        }
        spans[c] = span;
    }
}

static size_t to_dot(double value, double top, size_t dots)
{
    double share = top > 0 ? value / top : 0;
    if (!(share > 0)) return 0;
    return share >= 1 ? dots - 1 : (size_t)(share * (double)(dots - 1) + 0.5);
}

/* ---- terminal ---- */

static void put_braille(struct tm_text *out, unsigned pattern)
{
    unsigned point = 0x2800 + pattern;
    char bytes[3] = {(char)(0xE0 | point >> 12), (char)(0x80 | (point >> 6 & 0x3F)), (char)(0x80 | (point & 0x3F))};
    tm_text_append(out, bytes, 3);
}

/* Dots of a character cell: 2 wide, 4 high, in Unicode's order. Sparse: every second one, for a band. */
static unsigned braille_pattern(const struct span *spans, size_t column, size_t row_bottom, double top, size_t dots,
                                bool sparse)
{
    static const unsigned char bit[4][2] = {{0x40, 0x80}, {0x04, 0x20}, {0x02, 0x10}, {0x01, 0x08}};
    unsigned pattern = 0;
    for (size_t x = 0; x < 2; x++) {
        size_t low = to_dot(spans[column * 2 + x].low, top, dots);
        size_t high = to_dot(spans[column * 2 + x].high, top, dots);
        for (size_t y = 0; y < 4; y++) {
            bool left_out = sparse && (x + y) % 2 != 0;
            if (row_bottom + y >= low && row_bottom + y <= high && !left_out) pattern |= bit[y][x];
        }
    }
    return pattern;
}

/* `band` follows the curve's spans, where the plot has one. */
static void put_row(const struct tm_plot *plot, const struct tm_term *term, const struct span *spans, size_t columns,
                    size_t rows, size_t row, struct tm_text *out)
{
    size_t bottom = (rows - 1 - row) * 4;
    struct tm_text cells;
    tm_text_init(&cells, columns * 4 + 1);
    for (size_t c = 0; c < columns; c++) {
        unsigned pattern = braille_pattern(spans, c, bottom, plot->y_max, rows * 4, false);
        unsigned around =
            plot->y_low == NULL ? 0 : braille_pattern(spans + columns * 2, c, bottom, plot->y_max, rows * 4, true);
        if (term->utf8)
            put_braille(&cells, pattern | around);
        else
            tm_text_putc(&cells, pattern != 0 ? '#' : around != 0 ? '.' : ' ');
    }
    tm_term_put(term, out, TM_CYAN, tm_text_string(&cells));
    if (cells.failed != 0) out->failed = cells.failed;
    tm_text_deinit(&cells);
}

static void put_y_mark(const struct tm_plot *plot, const struct tm_term *term, size_t rows, size_t row,
                       struct tm_text *out)
{
    const char *axis = term->utf8 ? "┤" : "|";
    bool marked = row == 0 || row == rows - 1 || (rows >= 7 && row == rows / 2);
    if (marked) {
        double value = plot->y_max * (double)(rows - 1 - row) / (double)(rows - 1);
        tm_text_printf(out, "%8.4g %s", value, axis);
    } else {
        tm_text_printf(out, "%8s %s", "", term->utf8 ? "│" : "|");
    }
}

static void put_x_axis(const struct tm_plot *plot, const struct tm_term *term, size_t columns, struct tm_text *out)
{
    tm_text_printf(out, "%8s %s", "", term->utf8 ? "└" : "+");
    for (size_t c = 0; c < columns; c++)
        tm_text_puts(out, term->utf8 ? "─" : "-");
    char left[32];
    char right[32];
    (void)snprintf(left, sizeof left, "%.4g", plot->x[0]);
    (void)snprintf(right, sizeof right, "%.4g", plot->x_end);
    size_t used = strlen(left) + strlen(right) + strlen(plot->x_label);
    size_t blank = columns > used ? columns - used : 2;
    tm_text_printf(out, "\n%10s%s", "", left);
    tm_text_fill(out, ' ', blank / 2);
    tm_text_puts(out, plot->x_label);
    tm_text_fill(out, ' ', blank - blank / 2);
    tm_text_printf(out, "%s\n", right);
}

int tm_plot_terminal(const struct tm_plot *plot, const struct tm_term *term, size_t columns, size_t rows,
                     struct tm_text *out, struct tm_error *e)
{
    if (plot->count == 0 || columns < 2 || rows < 2) return tm_error_set(e, TM_EUSAGE, "nothing to plot");
    struct span *spans = tm_calloc(columns * 4, sizeof *spans);
    if (spans == NULL) return tm_error_nomem(e);
    sample_spans(plot, plot->y, plot->y, columns * 2, spans);
    if (plot->y_low != NULL) sample_spans(plot, plot->y_low, plot->y_high, columns * 2, spans + columns * 2);
    struct tm_text title;
    tm_text_init(&title, 4096);
    tm_term_put_safe(&title, plot->title, strlen(plot->title));
    tm_term_put(term, out, TM_BOLD, tm_text_string(&title));
    if (title.failed != 0) out->failed = title.failed;
    tm_text_deinit(&title);
    tm_text_printf(out, "  (%s)\n", plot->y_label);
    for (size_t row = 0; row < rows; row++) {
        put_y_mark(plot, term, rows, row, out);
        put_row(plot, term, spans, columns, rows, row, out);
        tm_text_putc(out, '\n');
    }
    put_x_axis(plot, term, columns, out);
    tm_free(spans);
    return tm_text_status(out, e);
}

/* ---- SVG ---- */

enum { SVG_WIDTH = 860, SVG_HEIGHT = 320, SVG_LEFT = 64, SVG_RIGHT = 20, SVG_TOP = 44, SVG_BOTTOM = 52 };

/* Text of a file or its name: no control characters, valid UTF-8, and nothing that XML would take for markup. */
static void put_escaped(struct tm_text *out, const char *string)
{
    struct tm_text safe;
    tm_text_init(&safe, 4096);
    tm_term_put_safe(&safe, string, strlen(string));
    for (const char *s = tm_text_string(&safe); *s != '\0'; s++) {
        if (*s == '<')
            tm_text_puts(out, "&lt;");
        else if (*s == '>')
            tm_text_puts(out, "&gt;");
        else if (*s == '&')
            tm_text_puts(out, "&amp;");
        else
            tm_text_putc(out, *s);
    }
    if (safe.failed != 0) out->failed = safe.failed;
    tm_text_deinit(&safe);
}

static double nice_step(double range, int parts)
{
    if (!(range > 0)) return 1;
    double raw = range / parts;
    double power = pow(10, floor(log10(raw)));
    double lead = raw / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static double svg_x(const struct tm_plot *plot, double x)
{
    double range = plot->x_end - plot->x[0];
    double share = range > 0 ? (x - plot->x[0]) / range : 0;
    return SVG_LEFT + share * (SVG_WIDTH - SVG_LEFT - SVG_RIGHT);
}

static double svg_y(const struct tm_plot *plot, double y)
{
    double share = plot->y_max > 0 ? y / plot->y_max : 0;
    return SVG_HEIGHT - SVG_BOTTOM - share * (SVG_HEIGHT - SVG_TOP - SVG_BOTTOM);
}

static void put_grid(const struct tm_plot *plot, struct tm_text *out)
{
    double step = nice_step(plot->y_max, 5);
    for (int i = 0; i <= 10 && (double)i * step <= plot->y_max * 1.0001; i++) {
        double y = (double)i * step;
        tm_text_printf(out,
                       "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                       "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
                       SVG_LEFT, SVG_WIDTH - SVG_RIGHT, svg_y(plot, y), svg_y(plot, y), SVG_LEFT - 8,
                       svg_y(plot, y) + 4, y);
    }
    step = nice_step(plot->x_end - plot->x[0], 8);
    double first = ceil(plot->x[0] / step) * step;
    for (int i = 0; i <= 20 && first + i * step <= plot->x_end * 1.0001; i++) {
        double x = first + i * step;
        tm_text_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n", svg_x(plot, x),
                       SVG_HEIGHT - SVG_BOTTOM + 18, fabs(x) < step / 1e6 ? 0 : x);
    }
}

static void put_curve(const struct tm_plot *plot, struct tm_text *out)
{
    tm_text_printf(out, "<path class=\"area\" d=\"M%.2f %.2f", svg_x(plot, plot->x[0]), svg_y(plot, 0));
    for (size_t i = 0; i < plot->count; i++) {
        double to = i + 1 < plot->count ? plot->x[i + 1] : plot->x_end;
        tm_text_printf(out, "V%.2fH%.2f", svg_y(plot, plot->y[i]), svg_x(plot, to));
    }
    tm_text_printf(out, "V%.2fZ\"/>\n", svg_y(plot, 0));
}

static void put_band(const struct tm_plot *plot, struct tm_text *out)
{
    for (size_t i = 0; i < plot->count; i++) {
        double to = i + 1 < plot->count ? plot->x[i + 1] : plot->x_end;
        tm_text_printf(out, "%s%.2f %.2fH%.2f", i == 0 ? "<path class=\"band\" d=\"M" : "L", svg_x(plot, plot->x[i]),
                       svg_y(plot, plot->y_high[i]), svg_x(plot, to));
    }
    for (size_t i = plot->count; i-- > 0;) {
        double to = i + 1 < plot->count ? plot->x[i + 1] : plot->x_end;
        tm_text_printf(out, "L%.2f %.2fH%.2f", svg_x(plot, to), svg_y(plot, plot->y_low[i]), svg_x(plot, plot->x[i]));
    }
    tm_text_puts(out, "Z\"/>\n");
    for (size_t i = 0; i < plot->count; i++) {
        double to = i + 1 < plot->count ? plot->x[i + 1] : plot->x_end;
        tm_text_printf(out, "%s%.2f %.2fH%.2f", i == 0 ? "<path class=\"line\" d=\"M" : "L", svg_x(plot, plot->x[i]),
                       svg_y(plot, plot->y[i]), svg_x(plot, to));
    }
    tm_text_puts(out, "\"/>\n");
}

int tm_plot_svg(const struct tm_plot *plot, struct tm_text *out, struct tm_error *e)
{
    if (plot->count == 0) return tm_error_set(e, TM_EUSAGE, "nothing to plot");
    tm_text_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
                   "font-family=\"system-ui, sans-serif\" font-size=\"12\">\n"
                   "<style>.grid{stroke:#ccc;stroke-width:1}.area{fill:#0072b2;fill-opacity:.25;stroke:#0072b2;"
                   "stroke-width:1.2;stroke-linejoin:round}%stext{fill:#333}</style>\n"
                   "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<title>",
                   SVG_WIDTH, SVG_HEIGHT,
                   plot->y_low == NULL ? ""
                                       : ".band{fill:#0072b2;fill-opacity:.25}.line{fill:none;stroke:#0072b2;"
                                         "stroke-width:1.6;stroke-linejoin:round}");
    put_escaped(out, plot->title);
    tm_text_printf(out, "</title>\n<text x=\"%d\" y=\"20\" font-size=\"15\" font-weight=\"600\">", SVG_LEFT);
    put_escaped(out, plot->title);
    tm_text_printf(out, "</text>\n<text x=\"%d\" y=\"36\">", SVG_LEFT);
    put_escaped(out, plot->y_label);
    tm_text_puts(out, "</text>\n");
    put_grid(plot, out);
    if (plot->y_low != NULL)
        put_band(plot, out);
    else
        put_curve(plot, out);
    tm_text_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (SVG_WIDTH + SVG_LEFT) / 2, SVG_HEIGHT - 12);
    put_escaped(out, plot->x_label);
    tm_text_puts(out, "</text>\n</svg>\n");
    return tm_text_status(out, e);
}
