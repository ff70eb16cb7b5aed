/* Text, numbers and axes of reports. */
#include "base/html.h"
#include "base/utf8.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define DASH        "\xe2\x80\x93"
#define REPLACEMENT "\xef\xbf\xbd"

/* Any bytes as text of HTML, also within quotes: what is not UTF-8, controls and marks that turn the direction of text
 * become U+FFFD. */
void tm_html_escape(struct tm_text *out, const char *string)
{
    size_t length = strlen(string);
    for (size_t i = 0; i < length;) {
        uint32_t point = 0;
        size_t bytes = tm_utf8__next(string + i, length - i, &point);
        bool control = (point < 0x20 && point != '\n' && point != '\t') || (point >= 0x7f && point < 0xa0) ||
                       (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
        if (bytes == 0 || control)
            tm_text_puts(out, REPLACEMENT);
        else if (point == '<')
            tm_text_puts(out, "&lt;");
        else if (point == '>')
            tm_text_puts(out, "&gt;");
        else if (point == '&')
            tm_text_puts(out, "&amp;");
        else if (point == '"')
            tm_text_puts(out, "&quot;");
        else if (point == '\'')
            tm_text_puts(out, "&#39;");
        else
            tm_text_append(out, string + i, bytes);
        i += bytes == 0 ? 1 : bytes;
    }
}

void tm_html_number(struct tm_text *out, double value, int decimals)
{
    if (!isfinite(value)) {
        tm_text_puts(out, DASH);
        return;
    }
    if (fabs(value) >= 1e15) {
        tm_text_printf(out, "%.3g", value);
        return;
    }
    char digits[64];
    snprintf(digits, sizeof digits, "%.*f", decimals, fabs(value));
    bool zero = strspn(digits, "0.") == strlen(digits);
    if (value < 0 && !zero) tm_text_puts(out, "\xe2\x88\x92"); /* a true minus */
    size_t whole = strcspn(digits, ".");
    for (size_t i = 0; digits[i] != '\0'; i++) {
        if (i > 0 && i < whole && (whole - i) % 3 == 0) tm_text_putc(out, ',');
        tm_text_putc(out, digits[i]);
    }
}

void tm_html_short(struct tm_text *out, double value)
{
    double size = fabs(value);
    int decimals = 0;
    if (isfinite(value) && size > 0 && size < 99.95) decimals = size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
    if (size > 0 && size < 0.0995) decimals = 4;
    tm_html_number(out, value, decimals);
}

void tm_html_duration(struct tm_text *out, double seconds)
{
    static const struct {
        double least_s, unit_s;
        const char *name;
    } units[] = {{172800, 86400, " d"}, {7200, 3600, " h"}, {120, 60, " min"}, {0, 1, " s"}};
    if (!isfinite(seconds) || seconds < 0) {
        tm_text_puts(out, DASH);
        return;
    }
    size_t i = 0;
    while (seconds < units[i].least_s)
        i++;
    double value = seconds / units[i].unit_s;
    bool whole = fabs(value - round(value)) < 0.005;
    tm_html_number(out, value, value < 99.95 && !whole ? 1 : 0);
    tm_text_puts(out, units[i].name);
}

void tm_html_usd(struct tm_text *out, double usd)
{
    if (isfinite(usd)) tm_text_putc(out, '$');
    int decimals = !(fabs(usd) < 9999.5) ? 0 : fabs(usd) < 0.0995 && usd != 0 ? 4 : 2;
    tm_html_number(out, usd, decimals);
}

void tm_html_percent(struct tm_text *out, double value, double whole, int decimals)
{
    double share = whole > 0 ? value / whole * 100 : NAN;
    tm_html_number(out, share, decimals);
    if (isfinite(share)) tm_text_putc(out, '%');
}

/* ---- axes ---- */

struct tm_html_axis tm_html_axis(double max, int parts, bool whole)
{
    struct tm_html_axis axis = {.end = 1, .step = 1, .unit = 1, .unit_name = ""};
    if (!tm_html_is_plain(max) || !(max > 1e-300)) return axis;
    double raw = max / parts;
    double power = pow(10, floor(log10(raw)));
    double lead = raw / power;
    axis.step = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
    if (whole && axis.step < 1) axis.step = 1;
    axis.end = fmax(1, ceil(max / axis.step - 1e-9)) * axis.step;
    return axis;
}

struct tm_html_axis tm_html_time_axis(double end_s)
{
    static const double steps_s[] = {1,      2,      5,     10,     15,     30,     60,     120,     300,    600,
                                     900,    1200,   1800,  3600,   7200,   10800,  14400,  21600,   43200,  86400,
                                     172800, 432000, 864e3, 1728e3, 2592e3, 5184e3, 7776e3, 15552e3, 31536e3};
    struct tm_html_axis axis = {.end = 1, .step = 1, .unit = 1, .unit_name = "s"};
    if (!tm_html_is_plain(end_s) || !(end_s > 1e-300)) return axis;
    axis.end = end_s;
    size_t count = sizeof steps_s / sizeof *steps_s, i = 0;
    while (i + 1 < count && end_s / steps_s[i] > 8)
        i++;
    axis.step = fmax(steps_s[i], end_s / (TM_HTML_TICKS_MAX - 1));
    if (end_s >= 120) axis.unit = 60, axis.unit_name = "min";
    if (end_s > 7200) axis.unit = 3600, axis.unit_name = "h";
    if (end_s > 3 * 86400) axis.unit = 86400, axis.unit_name = "days";
    return axis;
}

size_t tm_html_ticks(const struct tm_html_axis *axis, double ticks[TM_HTML_TICKS_MAX])
{
    size_t count = 0;
    for (; count < TM_HTML_TICKS_MAX; count++) {
        ticks[count] = (double)count * axis->step;
        if (ticks[count] > axis->end * (1 + 1e-9)) break;
    }
    return count;
}

void tm_html_tick_label(struct tm_text *out, const struct tm_html_axis *axis, double tick)
{
    double value = tick / axis->unit, step = axis->step / axis->unit;
    const char *times = "";
    if (step >= 1e6)
        value /= 1e6, step /= 1e6, times = " M";
    else if (step >= 5e3)
        value /= 1e3, step /= 1e3, times = " k";
    int decimals = 0;
    while (decimals < 4 && fabs(step * pow(10, decimals) - round(step * pow(10, decimals))) > 1e-6)
        decimals++;
    if (step < 1e-4)
        tm_text_printf(out, "%.3g", value);
    else
        tm_html_number(out, value, decimals);
    if (tick > 0) tm_text_puts(out, times);
}

/* ---- lanes ---- */

void tm_html_lane_open(struct tm_text *out, const char *kind, const char *caption, const struct tm_html_axis *x,
                       const struct tm_html_axis *y)
{
    double ticks[TM_HTML_TICKS_MAX];
    size_t count = tm_html_ticks(y, ticks);
    tm_text_printf(out, "<div class=\"lane %s\"><div class=y><span class=c>%s</span>", kind, caption);
    for (size_t i = 0; i < count; i++) {
        double top = tm_html_y(y, ticks[i]);
        tm_text_printf(out, "<i%s style=\"top:%.4g%%\">", top > 99 ? " class=lo" : top < 1 ? " class=hi" : "", top);
        tm_html_tick_label(out, y, ticks[i]);
        tm_text_puts(out, "</i>");
    }
    tm_text_puts(out, "</div><div class=plot><svg class=d viewBox=\"0 0 1000 100\" preserveAspectRatio=none "
                      "aria-hidden=true><path class=grid d=\"");
    for (size_t i = 0; i < count; i++)
        tm_text_printf(out, "M0 %.4gH1000", tm_html_y(y, ticks[i]));
    count = tm_html_ticks(x, ticks);
    for (size_t i = 0; i < count; i++)
        tm_text_printf(out, "M%.5g 0V100", tm_html_x(x, ticks[i]));
    tm_text_puts(out, "\"/>");
}

void tm_html_lane_labels(struct tm_text *out)
{
    tm_text_puts(out, "</svg><svg class=t>");
}

void tm_html_lane_close(struct tm_text *out)
{
    tm_text_puts(out, "</svg></div></div>\n");
}

void tm_html_scale(struct tm_text *out, const struct tm_html_axis *x, const char *what)
{
    double ticks[TM_HTML_TICKS_MAX];
    size_t count = tm_html_ticks(x, ticks);
    tm_text_puts(out, "<div class=\"lane scale\"><div class=y></div><div class=plot>");
    for (size_t i = 0; i < count; i++) {
        double left = tm_html_x(x, ticks[i]) / 10;
        tm_text_printf(out, "<i%s style=\"left:%.4g%%\">", left > 98 ? " class=hi" : "", left);
        tm_html_tick_label(out, x, ticks[i]);
        tm_text_puts(out, "</i>");
    }
    tm_text_printf(out, "<b>%s%s%s%s</b></div></div>\n", what, x->unit_name[0] != '\0' ? " (" : "", x->unit_name,
                   x->unit_name[0] != '\0' ? ")" : "");
}

void tm_html_time_scale(struct tm_text *out, const struct tm_html_axis *x)
{
    tm_html_scale(out, x, "time since the start");
}

/* ---- the document ---- */

void tm_html_begin(struct tm_text *out, const char *title)
{
    tm_text_puts(out, "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
                      "<meta name=viewport content=\"width=device-width,initial-scale=1\">"
                      "<meta name=generator content=tidemill><title>");
    tm_html_escape(out, title);
    tm_text_puts(out, "</title>\n<style>");
    tm_text_puts(out, tm_html__style);
    tm_text_puts(out, "</style></head><body>\n<header><h1>");
    tm_html_escape(out, title);
    tm_text_puts(out, "</h1>\n");
}

void tm_html_command(struct tm_text *out, const char *command)
{
    tm_text_puts(out, "<p class=repeat><span>To reproduce:</span> <code>");
    tm_html_escape(out, command);
    tm_text_puts(out, "</code></p></header>\n");
}

void tm_html_end(struct tm_text *out)
{
    tm_text_printf(out, "<script>%s</script>\n</body></html>\n", tm_html__script);
}
