/* What reports are made of: text and numbers as HTML, axes, lanes, and how all look. Self-contained files: no network,
 * no script needed, light and dark, on paper too. */
#ifndef TM_BASE_HTML_H
#define TM_BASE_HTML_H

#include "base/text.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- text and numbers ---- */

void tm_html_escape(struct tm_text *out, const char *string);
/* With commas and so many decimals; a dash where it is not finite. */
void tm_html_number(struct tm_text *out, double value, int decimals);
/* About three digits: "1,234,567", "12.3", "0.0123". */
void tm_html_short(struct tm_text *out, double value);
/* "45 s", "4.2 min", "3.1 h". */
void tm_html_duration(struct tm_text *out, double seconds);
void tm_html_usd(struct tm_text *out, double usd);
/* value / whole as "12.3%" with so many decimals; a dash where there is no whole. */
void tm_html_percent(struct tm_text *out, double value, double whole, int decimals);

/* Can be drawn: finite, and far from where sums of such numbers would not be. */
static inline bool tm_html_is_plain(double value)
{
    return fabs(value) < 1e15;
}

/* ---- axes ---- */

enum { TM_HTML_TICKS_MAX = 16 };

struct tm_html_axis {
    double end;  /* in units of the data */
    double step; /* between ticks */
    double unit; /* data divided by it is what labels say */
    const char *unit_name;
};

/* From 0 to a round number at or above `max`, about `parts` steps; whole steps only where `whole`. */
struct tm_html_axis tm_html_axis(double max, int parts, bool whole);
/* From 0 to exactly end_s, in the unit that suits. */
struct tm_html_axis tm_html_time_axis(double end_s);
size_t tm_html_ticks(const struct tm_html_axis *axis, double ticks[TM_HTML_TICKS_MAX]);
/* "12.5" for a place on the axis. */
void tm_html_tick_label(struct tm_text *out, const struct tm_html_axis *axis, double tick);

/* A lane: caption and scale at the left, a plot of 1000 x 100 stretched to the lane's size at the right. `open` ends
 * inside the plot's svg with grid lines drawn; `labels` ends it and begins the one for text, where x and y are in
 * percent; `close` ends all. */
void tm_html_lane_open(struct tm_text *out, const char *kind, const char *caption, const struct tm_html_axis *x,
                       const struct tm_html_axis *y);
void tm_html_lane_labels(struct tm_text *out);
void tm_html_lane_close(struct tm_text *out);
/* The x axis below lanes: ticks, and "what (unit)". */
void tm_html_scale(struct tm_text *out, const struct tm_html_axis *x, const char *what);
void tm_html_time_scale(struct tm_text *out, const struct tm_html_axis *x);

static inline double tm_html_x(const struct tm_html_axis *axis, double value)
{
    return axis->end > 0 ? value / axis->end * 1000 : 0;
}

static inline double tm_html_y(const struct tm_html_axis *axis, double value)
{
    return axis->end > 0 ? 100 - value / axis->end * 100 : 100;
}

/* ---- the document ---- */

extern const char tm_html__style[];
extern const char tm_html__script[];

/* From the document's beginning to the heading; the body is open. */
void tm_html_begin(struct tm_text *out, const char *title);
/* "To repeat it: COMMAND". */
void tm_html_command(struct tm_text *out, const char *command);
void tm_html_end(struct tm_text *out);

#endif
