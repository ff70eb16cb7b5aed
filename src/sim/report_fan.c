/* Forecasts against what came: a band from the 10th to the 90th percentile, the median, and the truth. */
#include "sim/report_internal.h"

#include <math.h>

enum { SLICES_MAX = 480 };

/* Means of a slice of the fan's points; counts of how often the band held the truth are over all points. */
struct slice {
    double from_s, to_s;
    double p10, p50, p90, truth;
};

struct slices {
    struct slice list[SLICES_MAX];
    size_t count;
    size_t points, inside;
    double error_sum, most, begin_s, end_s;
};

static bool is_drawable(const struct tm_report_fan *fan, size_t i)
{
    return fan->time_s[i] >= 0 && tm_html_is_plain(fan->time_s[i]) && tm_html_is_plain(fan->p10[i]) &&
           tm_html_is_plain(fan->p50[i]) && tm_html_is_plain(fan->p90[i]) && tm_html_is_plain(fan->truth[i]);
}

static void note_point(struct slices *s, const struct tm_report_fan *fan, size_t i)
{
    s->points++;
    if (fan->truth[i] >= fan->p10[i] && fan->truth[i] <= fan->p90[i]) s->inside++;
    s->error_sum += fabs(fan->truth[i] - fan->p50[i]);
    s->most = fmax(s->most, fmax(fan->truth[i], fan->p90[i]));
    s->end_s = fmax(s->end_s, fan->time_s[i] + fan->interval_s);
}

static void make_slices(struct slices *s, const struct tm_report_fan *fan)
{
    *s = (struct slices){.count = 0};
    if (!(fan->interval_s > 0) || !tm_html_is_plain(fan->interval_s)) return;
    size_t each = (fan->count + SLICES_MAX - 1) / SLICES_MAX;
    for (size_t i = 0; i < fan->count;) {
        struct slice slice = {.from_s = NAN};
        size_t until = fan->count - i < each ? fan->count : i + each;
        double n = 0;
        for (; i < until; i++) {
            if (!is_drawable(fan, i)) continue;
            note_point(s, fan, i);
            if (n == 0) slice.from_s = fan->time_s[i];
            slice.to_s = fan->time_s[i] + fan->interval_s;
            n++;
            slice.p10 += (fan->p10[i] - slice.p10) / n;
            slice.p50 += (fan->p50[i] - slice.p50) / n;
            slice.p90 += (fan->p90[i] - slice.p90) / n;
            slice.truth += (fan->truth[i] - slice.truth) / n;
        }
        if (n > 0) s->list[s->count++] = slice;
    }
}

static void draw_band(struct tm_text *out, const struct slices *s, const struct tm_html_axis *x,
                      const struct tm_html_axis *y)
{
    tm_text_puts(out, "<path class=band d=\"");
    for (size_t i = 0; i < s->count; i++)
        tm_text_printf(out, "%s%.5g %.4gH%.5g", i == 0 ? "M" : "L", tm_html_x(x, s->list[i].from_s),
                       tm_html_y(y, s->list[i].p90), tm_html_x(x, s->list[i].to_s));
    for (size_t i = s->count; i-- > 0;)
        tm_text_printf(out, "L%.5g %.4gH%.5g", tm_html_x(x, s->list[i].to_s), tm_html_y(y, s->list[i].p10),
                       tm_html_x(x, s->list[i].from_s));
    tm_text_puts(out, "Z\"/>");
}

static void draw_line(struct tm_text *out, const char *class, const struct slices *s, size_t offset,
                      const struct tm_html_axis *x, const struct tm_html_axis *y)
{
    tm_text_printf(out, "<path class=%s d=\"", class);
    for (size_t i = 0; i < s->count; i++) {
        double value = *(const double *)((const char *)&s->list[i] + offset);
        tm_text_printf(out, "%s%.5g %.4gH%.5g", i == 0 ? "M" : "L", tm_html_x(x, s->list[i].from_s),
                       tm_html_y(y, value), tm_html_x(x, s->list[i].to_s));
    }
    tm_text_puts(out, "\"/>");
}

static void head_fan(struct tm_text *out, const struct tm_report_fan *fan, const struct slices *s)
{
    tm_text_puts(out, "<h4>");
    tm_html_escape(out, fan->trace);
    tm_text_puts(out, " <small>forecast ");
    tm_html_duration(out, fan->interval_s * fan->horizon);
    tm_text_printf(out, " ahead (%d interval%s of ", fan->horizon, fan->horizon == 1 ? "" : "s");
    tm_html_duration(out, fan->interval_s);
    tm_text_puts(out, ") \xc2\xb7 the 80% band held the truth ");
    tm_html_percent(out, (double)s->inside, (double)s->points, 0);
    tm_text_puts(out, " of the time \xc2\xb7 the median was off by ");
    tm_html_number(out, s->error_sum / (double)s->points, 2);
    tm_text_puts(out, " instances on average</small></h4>\n");
}

void tm_report__fan(struct tm_text *out, const struct tm_report_fan *fan)
{
    struct slices s;
    make_slices(&s, fan);
    if (s.count == 0) return;
    struct tm_html_axis x = tm_html_time_axis(s.end_s), y = tm_html_axis(s.most, 4, true);
    tm_text_puts(out, "<section class=strip>");
    head_fan(out, fan, &s);
    tm_html_lane_open(out, "fan", "instances", &x, &y);
    draw_band(out, &s, &x, &y);
    draw_line(out, "median", &s, offsetof(struct slice, p50), &x, &y);
    draw_line(out, "truth", &s, offsetof(struct slice, truth), &x, &y);
    tm_html_lane_labels(out);
    tm_html_lane_close(out);
    tm_html_time_scale(out, &x);
    if (fan->count > SLICES_MAX)
        tm_text_printf(out, "<p class=note>Each point is the mean of %zu.</p>",
                       (fan->count + SLICES_MAX - 1) / SLICES_MAX);
    tm_text_puts(out, "</section>\n");
}
