/* The answer at a glance: cards with the winner, bars of samples, time not training and cost by policy. */
#include "sim/report_internal.h"

#include <math.h>

/* ---- cards ---- */

static void open_card(struct tm_text *out, const char *caption)
{
    tm_text_printf(out, "<div class=card><span>%s</span><b>", caption);
}

static bool is_in_time(const struct tm_report_view *view, const struct tm_report_run *run)
{
    return isfinite(run->result->finished_at_s) && (!(view->report->deadline_s > 0) || run->result->deadline_met);
}

static const char *caption_of(const struct tm_report_view *view, const struct tm_report_group *group,
                              const struct tm_report_run *best)
{
    if (!group->finite) return tm_report__is_on_demand(best) ? "Most samples" : "Most samples on spot";
    if (!isfinite(best->result->finished_at_s)) return "Most samples; none finished";
    if (!is_in_time(view, best)) return "Cheapest that finished, all late";
    return view->report->deadline_s > 0 ? "Cheapest in time" : "Cheapest that finished";
}

static void card_winner(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group,
                        const struct tm_report_run *best)
{
    open_card(out, caption_of(view, group, best));
    tm_html_escape(out, best->policy);
    tm_text_puts(out, "</b><small>");
    if (isfinite(best->result->finished_at_s)) {
        tm_text_puts(out, "finished after ");
        tm_html_duration(out, best->result->finished_at_s);
    } else {
        tm_html_short(out, best->result->samples);
        tm_text_puts(out, " samples");
    }
    if (isfinite(best->fraction_of_ideal) && !group->finite) {
        tm_text_puts(out, ", ");
        tm_html_percent(out, best->fraction_of_ideal, 1, 1);
        tm_text_puts(out, " of ideal");
    }
    tm_text_puts(out, "</small></div>");
}

static void put_lead(struct tm_text *out, const struct tm_report_group *group, const struct tm_report_run *best,
                     const struct tm_report_run *next)
{
    double mine = group->finite ? best->result->bill_usd : best->result->samples;
    double theirs = group->finite ? next->result->bill_usd : next->result->samples;
    double lead = theirs > 0 ? (mine / theirs - 1) * 100 : NAN;
    if (lead > 0) tm_text_putc(out, '+');
    tm_html_number(out, lead, fabs(lead) < 0.1 ? 3 : 1);
    tm_text_printf(out, "%s</b><small>%s ", isfinite(lead) ? "%" : "",
                   group->finite ? "cost, against" : "samples over");
    tm_html_escape(out, next->policy);
    tm_text_puts(out, "</small></div>");
}

static void card_lead(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group,
                      const struct tm_report_run *best)
{
    if (group->next == TM_REPORT_NONE) return;
    const struct tm_report_run *next = group->runs[group->next];
    open_card(out, "Compared with the next best");
    if (group->won > 1) {
        tm_text_printf(out, "a tie</b><small>%s ", group->finite ? "the cost of" : "as many samples as");
        tm_html_escape(out, next->policy);
        tm_text_puts(out, "</small></div>");
    } else if (group->finite && is_in_time(view, best) && !is_in_time(view, next)) {
        tm_text_puts(out, "the only one</b><small>");
        tm_html_escape(out, next->policy);
        tm_text_puts(out, isfinite(next->result->finished_at_s) ? " is late" : " does not finish");
        tm_text_puts(out, "</small></div>");
    } else {
        put_lead(out, group, best, next);
    }
}

static void card_stalls(struct tm_text *out, const struct tm_report_group *group, const struct tm_report_run *best)
{
    open_card(out, "Time not training");
    tm_html_duration(out, tm_report__stall_s(best));
    tm_text_puts(out, "</b><small>");
    tm_html_percent(out, tm_report__stall_s(best), tm_report__until_s(best), 1);
    tm_text_puts(out, " of the run");
    if (group->next != TM_REPORT_NONE) {
        tm_text_puts(out, "; ");
        tm_html_escape(out, group->runs[group->next]->policy);
        tm_text_puts(out, ": ");
        tm_html_duration(out, tm_report__stall_s(group->runs[group->next]));
    }
    tm_text_puts(out, "</small></div>");
}

static void card_cost(struct tm_text *out, const struct tm_report_group *group, const struct tm_report_run *best)
{
    open_card(out, group->finite ? "Cost" : "Cost per million samples");
    double mine = group->finite ? best->result->bill_usd : best->result->usd_per_million_samples;
    tm_html_usd(out, mine);
    tm_text_puts(out, "</b><small>");
    for (size_t i = 0; i < group->count; i++) {
        const struct tm_report_run *run = group->runs[i];
        double theirs = group->finite ? run->result->bill_usd : run->result->usd_per_million_samples;
        if (!tm_report__is_on_demand(run) || run == best || !isfinite(theirs) || !(mine > 0)) continue;
        tm_html_escape(out, run->policy);
        tm_text_puts(out, ": ");
        tm_html_usd(out, theirs);
        tm_text_puts(out, ", ");
        tm_html_number(out, theirs / mine, 2);
        tm_text_puts(out, " times");
        break;
    }
    tm_text_puts(out, "</small></div>");
}

void tm_report__cards(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group)
{
    if (group->won == 0) return;
    const struct tm_report_run *best = group->runs[0];
    tm_text_puts(out, "<div class=cards>");
    card_winner(out, view, group, best);
    card_lead(out, view, group, best);
    card_stalls(out, group, best);
    if (view->priced) card_cost(out, group, best);
    tm_text_puts(out, "</div>\n");
}

/* ---- bars ---- */

/* One picture: a value of each run, or the parts of a sum. */
struct bars {
    const char *title;
    double (*value)(const struct tm_report_run *run);
    void (*label)(struct tm_text *out, const struct tm_report_run *run, double value);
    bool by_cause;
    bool as_time;
    bool judged; /* against the deadline */
};

static double samples_of(const struct tm_report_run *run)
{
    return run->result->samples;
}

static double finished_of(const struct tm_report_run *run)
{
    return run->result->finished_at_s;
}

static double million_usd_of(const struct tm_report_run *run)
{
    return run->result->usd_per_million_samples;
}

static double bill_of(const struct tm_report_run *run)
{
    return run->result->bill_usd;
}

static void label_samples(struct tm_text *out, const struct tm_report_run *run, double value)
{
    (void)run;
    tm_html_short(out, value);
}

static void label_finished(struct tm_text *out, const struct tm_report_run *run, double value)
{
    (void)run;
    if (isfinite(value))
        tm_html_duration(out, value);
    else
        tm_text_puts(out, "not finished");
}

static void label_stalls(struct tm_text *out, const struct tm_report_run *run, double value)
{
    tm_html_duration(out, value);
    tm_text_puts(out, " (");
    tm_html_percent(out, value, tm_report__until_s(run), 0);
    tm_text_puts(out, ")");
}

static void label_usd(struct tm_text *out, const struct tm_report_run *run, double value)
{
    (void)run;
    tm_html_usd(out, value);
}

/* Bars take this much of the width at most: the rest is for the number at their end. */
static const double bars_share = 0.64;

static double bar_width(const struct tm_html_axis *axis, double value)
{
    return tm_html_is_plain(value) && value > 0 && axis->end > 0 ? value / axis->end * 100 * bars_share : 0;
}

static void draw_bar(struct tm_text *out, const struct bars *bars, const struct tm_report_run *run, bool best,
                     const struct tm_html_axis *axis)
{
    double value = bars->value(run), x = 0;
    const char *kind = tm_report__is_bound(run) ? "bound" : best ? "best" : "other";
    if (!bars->by_cause) {
        x = bar_width(axis, value);
        tm_text_printf(out, "<rect class=%s y=3 height=16 width=\"%.4g%%\"/>", kind, x);
    }
    for (int cause = TM_SIM_NONE + 1; bars->by_cause && cause < TM_REPORT_CAUSES; cause++) {
        double width = bar_width(axis, tm_report__stall_of(run, (enum tm_sim_cause)cause));
        if (!(width > 0)) continue;
        tm_text_printf(out, "<rect class=w%d x=\"%.4g%%\" y=3 height=16 width=\"%.4g%%\"><title>%s: ", cause, x, width,
                       tm_report__cause_names[cause]);
        tm_html_duration(out, tm_report__stall_of(run, (enum tm_sim_cause)cause));
        tm_text_puts(out, "</title></rect>");
        x += width;
    }
    tm_text_printf(out, "<text x=\"%.4g%%\" dx=5 y=15%s>", x, best ? " class=best" : "");
    bars->label(out, run, value);
    if (bars->judged && isfinite(value) && !run->result->deadline_met) tm_text_puts(out, ", late");
    tm_text_puts(out, "</text>");
}

static void draw_grid(struct tm_text *out, const struct tm_html_axis *axis)
{
    double ticks[TM_HTML_TICKS_MAX];
    size_t count = tm_html_ticks(axis, ticks);
    for (size_t i = 0; i < count; i++) {
        double x = ticks[i] / axis->end * 100 * bars_share;
        tm_text_printf(out, "<line class=grid x1=\"%.4g%%\" x2=\"%.4g%%\" y1=0 y2=22 />", x, x);
    }
}

static void draw_bar_scale(struct tm_text *out, const struct tm_html_axis *axis)
{
    double ticks[TM_HTML_TICKS_MAX];
    size_t count = tm_html_ticks(axis, ticks);
    tm_text_puts(out, "<span></span><div class=bscale>");
    for (size_t i = 0; i < count; i++) {
        tm_text_printf(out, "<i style=\"left:%.4g%%\">", ticks[i] / axis->end * 100 * bars_share);
        tm_html_tick_label(out, axis, ticks[i]);
        tm_text_puts(out, "</i>");
    }
    tm_text_puts(out, "</div>");
}

static struct tm_html_axis bars_axis(const struct bars *bars, const struct tm_report_group *group)
{
    double max = 0;
    for (size_t i = 0; i < group->count; i++) {
        double value = bars->value(group->runs[i]);
        if (tm_html_is_plain(value)) max = fmax(max, value);
    }
    double unit = bars->as_time ? tm_html_time_axis(max).unit : 1;
    struct tm_html_axis axis = tm_html_axis(max / unit, 3, false);
    axis.step *= unit;
    axis.end = max > 0 ? max : unit; /* the longest bar is as long as can be; ticks stand at round numbers */
    axis.unit = unit;
    axis.unit_name = tm_html_time_axis(max).unit_name;
    return axis;
}

static void draw_bars(struct tm_text *out, const struct bars *bars, const struct tm_report_group *group)
{
    struct tm_html_axis axis = bars_axis(bars, group);
    tm_text_printf(out, "<figure class=bars><figcaption>%s", bars->title);
    if (bars->as_time) tm_text_printf(out, " (%s)", axis.unit_name);
    tm_text_puts(out, "</figcaption>");
    for (size_t i = 0; i < group->count; i++) {
        const struct tm_report_run *run = group->runs[i];
        bool best = i < group->won;
        tm_text_printf(out, "<span class=\"name%s\">", best ? " won" : tm_report__is_bound(run) ? " bnd" : "");
        tm_html_escape(out, run->policy);
        tm_text_puts(out, best ? " \xe2\x98\x85</span><svg>" : "</span><svg>");
        draw_grid(out, &axis);
        draw_bar(out, bars, run, best, &axis);
        tm_text_puts(out, "</svg>");
    }
    draw_bar_scale(out, &axis);
    tm_text_puts(out, "</figure>\n");
}

void tm_report__bars(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group)
{
    struct bars samples = {.title = "Samples trained", .value = samples_of, .label = label_samples};
    struct bars finished = {.title = "Time to finish",
                            .value = finished_of,
                            .label = label_finished,
                            .as_time = true,
                            .judged = view->report->deadline_s > 0};
    struct bars stalls = {.title = "Time not training, by cause",
                          .value = tm_report__stall_s,
                          .label = label_stalls,
                          .by_cause = true,
                          .as_time = true};
    struct bars cost = {.title = "Cost per million samples ($)", .value = million_usd_of, .label = label_usd};
    struct bars bill = {.title = "Bill ($)", .value = bill_of, .label = label_usd};
    tm_text_puts(out, "<div class=trio>");
    draw_bars(out, group->finite ? &finished : &samples, group);
    draw_bars(out, &stalls, group);
    if (view->priced) draw_bars(out, group->finite ? &bill : &cost, group);
    tm_text_puts(out, "</div>\n"
                      "<ul class=legend><li><i class=best></i>best policy that can be run</li><li><i "
                      "class=other></i>others</li><li><i class=bound></i>bounds: know the future, or migrate for "
                      "free</li><li class=note>not training:</li>");
    for (int cause = TM_SIM_NONE + 1; cause < TM_REPORT_CAUSES; cause++)
        tm_text_printf(out, "<li><i class=w%d></i>%s</li>", cause, tm_report__cause_names[cause]);
    tm_text_puts(out, "</ul>\n");
}
