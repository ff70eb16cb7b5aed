/* Pictures of a run's report, each a lane of base/html.h over the time of the run. */
#include "run/run_report_internal.h"

#include <inttypes.h>

#define TIMES "\xc3\x97"

enum { COLUMNS = 300, COLORS = 7, POINTS = 1000, INSTANCES_DRAWN = 200 };

const char *tm_run__cause_words(enum tm_change_cause cause)
{
    static const char *const words[] = {
        "waiting for instances",    "a loss",         "a notice",       "an arrival", "a better layout",
        "an instance was released", "a worker hangs", "a damaged copy", "start-up"};
    return (unsigned)cause < sizeof words / sizeof *words ? words[cause] : "other";
}

/* Pauses take the colours of stalls in simulations: told by place and legend too. */
static int color_of_pause(enum tm_change_cause cause)
{
    switch (cause) {
    case TM_CHANGED_NONE:
    case TM_CHANGED_BEGIN:
        return 3;
    case TM_CHANGED_LOSS:
    case TM_CHANGED_STALL:
    case TM_CHANGED_DAMAGE:
        return 2;
    case TM_CHANGED_NOTICE:
    case TM_CHANGED_RELEASE:
        return 1;
    default:
        return 4;
    }
}

/* ---- instances and layouts ---- */

/* Colours by number of stages, the fewest first; those beyond the last colour share one more. */
static int color_of_stages(const struct tm_run_history *history, uint32_t stages)
{
    int rank = 0;
    for (uint32_t fewer = 1; fewer < stages; fewer++) {
        bool used = false;
        for (size_t i = 0; i < history->layout_count && !used; i++)
            used = history->layouts[i].stages == fewer;
        rank += used;
    }
    return rank < COLORS ? rank : COLORS;
}

static void draw_here(struct tm_text *out, const struct tm_run_history *history, const struct tm_html_axis *time,
                      const struct tm_html_axis *instances)
{
    if (history->fleet_count == 0) return;
    tm_text_printf(out, "<path class=av d=\"M%.5g 100", tm_html_x(time, history->fleet[0].time_s));
    for (size_t i = 0; i < history->fleet_count; i++)
        tm_text_printf(out, "H%.5gV%.4g", tm_html_x(time, history->fleet[i].time_s),
                       tm_html_y(instances, history->fleet[i].here));
    tm_text_puts(out, "H1000V100\"/>");
}

static void draw_layout(struct tm_text *out, const struct tm_run_history *history,
                        const struct tm_history_layout *layout, const struct tm_html_axis *time,
                        const struct tm_html_axis *instances)
{
    double x = tm_html_x(time, layout->from_s);
    double width = tm_html_x(time, layout->to_s) - x;
    double y = tm_html_y(instances, (double)layout->pipelines * layout->stages);
    if (!(width > 0)) return;
    tm_text_printf(out, "<rect class=k%d x=%.5g y=%.4g width=%.5g height=%.4g><title>",
                   color_of_stages(history, layout->stages), x, y, width, 100 - y);
    tm_html_number(out, layout->from_s, 1);
    tm_text_puts(out, "\xe2\x80\x93");
    tm_html_number(out, layout->to_s, 1);
    tm_text_printf(out, " s: generation %" PRIu32 ", %u " TIMES " %u, %u spare%s</title></rect>",
                   (uint32_t)layout->generation, layout->pipelines, layout->stages, layout->spares,
                   layout->spares == 1 ? "" : "s");
    if (layout->pipelines > 24 || width < 4) return;
    tm_text_puts(out, "<path class=pipe d=\"");
    for (uint32_t d = 1; d <= layout->pipelines; d++)
        tm_text_printf(out, "M%.5g %.4gh%.5g", x, tm_html_y(instances, (double)d * layout->stages), width);
    tm_text_puts(out, "\"/>");
}

static void label_layout(struct tm_text *out, const struct tm_run_history *history,
                         const struct tm_history_layout *layout, const struct tm_html_axis *time,
                         const struct tm_html_axis *instances)
{
    double x = tm_html_x(time, layout->from_s) / 10;
    double to = tm_html_x(time, layout->to_s) / 10;
    /* in the middle of a band, not on the line between two */
    double y = tm_html_y(instances, (layout->pipelines / 2 + 0.5) * layout->stages);
    double need = 0.6 + 0.75 * ((layout->pipelines > 9) + (layout->stages > 9) + 2);
    if (to - x < need || y > 94) return;
    tm_text_printf(out, "<text class=\"%sk%d\" x=%.4g%% y=%.4g%%>%u" TIMES "%u</text>", to - x < 3.2 * need ? "n " : "",
                   color_of_stages(history, layout->stages), (x + to) / 2, y, layout->pipelines, layout->stages);
}

static void draw_instances(struct tm_text *out, const struct tm_run_history *history, const struct tm_html_axis *time)
{
    double most = 1;
    for (size_t i = 0; i < history->fleet_count; i++)
        most = fmax(most, history->fleet[i].here);
    for (size_t i = 0; i < history->layout_count; i++)
        most = fmax(most, (double)history->layouts[i].pipelines * history->layouts[i].stages);
    struct tm_html_axis instances = tm_html_axis(most, 3, true);
    tm_html_lane_open(out, "nodes", "instances", time, &instances);
    draw_here(out, history, time, &instances);
    for (size_t i = 0; i < history->layout_count; i++)
        draw_layout(out, history, &history->layouts[i], time, &instances);
    tm_html_lane_labels(out);
    for (size_t i = 0; i < history->layout_count; i++)
        label_layout(out, history, &history->layouts[i], time, &instances);
    tm_html_lane_close(out);
}

/* ---- pace ---- */

/* Steps committed in each of COLUMNS equal parts of the time, per second; what was rolled back counts each time. */
static double fill_pace(const struct tm_run_history *history, double end_s, double pace[COLUMNS])
{
    double width_s = end_s / COLUMNS;
    double most = 0;
    for (size_t c = 0; c < COLUMNS; c++)
        pace[c] = 0;
    double from_s = history->layout_count > 0 ? history->layouts[0].from_s : 0;
    uint64_t from = 0;
    for (size_t i = 0; i < history->progress_count; i++) {
        const struct tm_history_progress *to = &history->progress[i];
        double steps = to->step > from ? (double)(to->step - from) : 0;
        for (size_t c = (size_t)(from_s / width_s); steps > 0 && to->time_s > from_s && c < COLUMNS; c++) {
            double left = fmax(from_s, (double)c * width_s);
            double right = fmin(to->time_s, (double)(c + 1) * width_s);
            if (left >= to->time_s) break;
            if (right > left) pace[c] += steps * (right - left) / (to->time_s - from_s) / width_s;
        }
        from_s = to->time_s;
        from = to->step;
    }
    for (size_t c = 0; c < COLUMNS; c++)
        most = fmax(most, pace[c]);
    return most;
}

static void draw_pace(struct tm_text *out, const struct tm_run_history *history, const struct tm_html_axis *time)
{
    double pace[COLUMNS];
    double most = fill_pace(history, time->end, pace);
    struct tm_html_axis rate = tm_html_axis(most, 2, false);
    tm_html_lane_open(out, "rate", "steps/s", time, &rate);
    tm_text_puts(out, "<path class=rt d=\"M0 100");
    for (size_t c = 0; c < COLUMNS; c++)
        tm_text_printf(out, "V%.4gH%.5g", tm_html_y(&rate, pace[c]), 1000.0 * (double)(c + 1) / COLUMNS);
    tm_text_puts(out, "V100\"/>");
    tm_html_lane_labels(out);
    tm_html_lane_close(out);
}

/* ---- pauses ---- */

static void draw_pauses(struct tm_text *out, const struct tm_run_history *history, const struct tm_html_axis *time)
{
    static const struct tm_html_axis whole = {.end = 1, .step = 2, .unit = 1};
    tm_html_lane_open(out, "stall", "pauses", time, &whole);
    for (size_t i = 0; i < history->pause_count; i++) {
        const struct tm_history_pause *pause = &history->pauses[i];
        double x = tm_html_x(time, pause->from_s);
        double width = fmax(tm_html_x(time, pause->to_s) - x, 1.5); /* the shortest are seen, too */
        tm_text_printf(out, "<rect class=w%d x=%.5g y=0 width=%.5g height=100><title>", color_of_pause(pause->cause), x,
                       width);
        tm_html_number(out, pause->from_s, 2);
        tm_text_printf(out, " s: %s, ", tm_run__cause_words(pause->cause));
        tm_html_number(out, pause->to_s - pause->from_s, 3);
        tm_text_puts(out, " s</title></rect>");
    }
    tm_html_lane_labels(out);
    tm_html_lane_close(out);
}

/* ---- bill ---- */

static void draw_bill_path(struct tm_text *out, const struct tm_run_history *history, const struct tm_html_axis *time,
                           const struct tm_html_axis *usd, bool on_demand)
{
    size_t stride = history->bill_count / POINTS + 1;
    tm_text_printf(out, "<path class=%s d=\"", on_demand ? "median" : "truth");
    for (size_t i = 0; i < history->bill_count; i++) {
        if (i % stride != 0 && i + 1 < history->bill_count) continue;
        const struct tm_history_bill *bill = &history->bill[i];
        tm_text_printf(out, "%c%.5g %.4g", i == 0 ? 'M' : 'L', tm_html_x(time, bill->time_s),
                       tm_html_y(usd, on_demand ? bill->on_demand_usd : bill->bill_usd));
    }
    tm_text_puts(out, "\"/>");
}

static void draw_bill(struct tm_text *out, const struct tm_run_history *history, const struct tm_html_axis *time)
{
    if (history->bill_count < 2) return;
    const struct tm_history_bill *last = &history->bill[history->bill_count - 1];
    bool compared = tm_html_is_plain(last->on_demand_usd) && last->on_demand_usd > 0;
    double most = compared ? fmax(last->bill_usd, last->on_demand_usd) : last->bill_usd;
    struct tm_html_axis usd = tm_html_axis(most, 3, false);
    tm_html_lane_open(out, "nodes", "dollars", time, &usd);
    if (compared) draw_bill_path(out, history, time, &usd, true);
    draw_bill_path(out, history, time, &usd, false);
    tm_html_lane_labels(out);
    tm_html_lane_close(out);
}

/* ---- all together ---- */

static void put_pause_legend(struct tm_text *out, const struct tm_run_history *history)
{
    static const struct {
        int color;
        const char *words;
    } rows[] = {{2, "a preemption, a failure or a damaged copy"},
                {1, "a notice, or an instance released"},
                {4, "an arrival, or a better layout"},
                {3, "start-up, or too few instances"}};
    tm_text_puts(out, "<li class=note>not training because of:</li>");
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        bool used = false;
        for (size_t i = 0; i < history->pause_count && !used; i++)
            used = color_of_pause(history->pauses[i].cause) == rows[r].color;
        if (used) tm_text_printf(out, "<li><i class=w%d></i>%s</li>", rows[r].color, rows[r].words);
    }
}

static void put_legend(struct tm_text *out, const struct tm_run_history *history)
{
    tm_text_puts(out, "<ul class=legend><li><i class=av></i>instances here</li>");
    for (uint32_t stages = 1; stages <= TM_STAGES_MAX; stages++) {
        bool used = false;
        for (size_t i = 0; i < history->layout_count && !used; i++)
            used = history->layouts[i].stages == stages;
        int color = used ? color_of_stages(history, stages) : COLORS;
        if (color < COLORS) tm_text_printf(out, "<li><i class=k%d></i>D" TIMES "%u</li>", color, stages);
    }
    tm_text_puts(out, "<li class=note>in use as D pipelines " TIMES " P stages, one band per pipeline</li></ul>\n"
                      "<ul class=legend><li><i class=rt></i>steps per second</li>");
    put_pause_legend(out, history);
    if (history->bill_count > 1)
        tm_text_puts(out, "<li><i class=truth></i>paid</li><li><i class=median></i>the same on-demand</li>");
    tm_text_puts(out, "</ul>\n");
}

void tm_run__timeline(struct tm_text *out, const struct tm_run_history *history)
{
    const struct tm_run_status *s = history->status;
    struct tm_html_axis time = tm_html_time_axis(s->wall_s);
    tm_text_puts(out, "<article class=flow><h2>What happened when</h2>\n");
    if (!(s->wall_s > 0)) {
        tm_text_puts(out, "<p>Nothing has happened yet.</p>\n");
        return;
    }
    put_legend(out, history);
    tm_text_puts(out, "<section class=strip>");
    draw_instances(out, history, &time);
    draw_pace(out, history, &time);
    draw_pauses(out, history, &time);
    draw_bill(out, history, &time);
    tm_html_time_scale(out, &time);
    tm_text_puts(out, "</section>\n");
    if (s->job.speed != 1) {
        tm_text_puts(out, "<p class=note>One second of real time is ");
        tm_html_duration(out, s->job.speed);
        tm_text_puts(out, " in the cloud, by which is billed.</p>\n");
    }
}

/* ---- loss ---- */

void tm_run__loss_curve(struct tm_text *out, const struct tm_run_history *history)
{
    double most = 0;
    size_t told = 0;
    uint64_t last = 0;
    for (size_t i = 0; i < history->progress_count; i++) {
        const struct tm_history_progress *p = &history->progress[i];
        if (!tm_html_is_plain(p->loss)) continue;
        most = fmax(most, p->loss);
        if (p->step > last) last = p->step;
        told++;
    }
    if (told < 2) return;
    struct tm_html_axis steps = tm_html_axis((double)last, 8, true);
    struct tm_html_axis loss = tm_html_axis(most, 4, false);
    size_t stride = history->progress_count / POINTS + 1;
    steps.end = (double)last;
    tm_text_puts(out, "<article class=flow><h2>Loss</h2>\n<section class=strip>");
    tm_html_lane_open(out, "fan", "training loss", &steps, &loss);
    tm_text_puts(out, "<path class=truth d=\"");
    char command = 'M';
    for (size_t i = 0; i < history->progress_count; i++) {
        const struct tm_history_progress *p = &history->progress[i];
        bool kept = i % stride == 0 || i + 1 == history->progress_count;
        if (!kept || !tm_html_is_plain(p->loss)) continue;
        tm_text_printf(out, "%c%.5g %.4g", command, tm_html_x(&steps, (double)p->step), tm_html_y(&loss, p->loss));
        command = 'L';
    }
    tm_text_puts(out, "\"/>");
    tm_html_lane_labels(out);
    tm_html_lane_close(out);
    tm_html_scale(out, &steps, "step");
    tm_text_puts(out, "</section></article>\n");
}

/* ---- instances ---- */

static void draw_stay(struct tm_text *out, const struct tm_history_instance *instance, const struct tm_html_axis *time)
{
    double x = tm_html_x(time, instance->from_s);
    double to = tm_html_x(time, instance->to_s);
    const char *end = instance->state == TM_INSTANCE_RELEASED ? "released"
                      : instance->state != TM_INSTANCE_LOST   ? "still running at the end"
                      : instance->announced                   ? "preempted with notice"
                                                              : "preempted without notice";
    tm_text_printf(out,
                   "<div class=\"lane stay\"><div class=y><span class=c>%" PRIu64 "%s</span></div><div class=plot>"
                   "<svg class=d viewBox=\"0 0 1000 100\" preserveAspectRatio=none>",
                   instance->id, instance->spot ? "" : "*");
    tm_text_printf(
        out, "<rect class=%s x=%.5g y=15 width=%.5g height=70><title>instance %" PRIu64 ": %.1f to %.1f s, %s",
        instance->spot ? "k2" : "k4", x, fmax(to - x, 1), instance->id, instance->from_s, instance->to_s, end);
    if (instance->bill_usd > 0) {
        tm_text_puts(out, ", ");
        tm_html_usd(out, instance->bill_usd);
    }
    tm_text_puts(out, "</title></rect>");
    if (!isnan(instance->notice_s)) {
        double noticed = tm_html_x(time, instance->notice_s);
        tm_text_printf(out, "<rect class=w1 x=%.5g y=15 width=%.5g height=70><title>notice at %.1f s</title></rect>",
                       noticed, fmax(to - noticed, 1), instance->notice_s);
    }
    tm_text_puts(out, "</svg><svg class=t>");
    if (instance->state == TM_INSTANCE_LOST)
        tm_text_printf(out, "<text class=\"m %s\" x=%.4g%% y=50%%>%s</text>", to > 970 ? "e" : "s", to / 10,
                       instance->announced ? "preempted" : "\xe2\x9c\x95 preempted, no notice");
    tm_text_puts(out, "</svg></div></div>\n");
}

void tm_run__instances(struct tm_text *out, const struct tm_run_history *history)
{
    struct tm_html_axis time = tm_html_time_axis(history->status->wall_s);
    if (history->instance_count == 0 || !(history->status->wall_s > 0)) return;
    tm_text_puts(
        out,
        "<article class=flow><h2>Instances</h2>\n"
        "<ul class=legend><li><i class=k2></i>spot</li><li><i class=k4></i>on-demand (*)</li><li><i class=w1></i>after "
        "its notice</li><li class=note>the label says how it ended; those without one were released</li></ul>\n"
        "<section class=\"strip stays\">");
    for (size_t i = 0; i < history->instance_count && i < INSTANCES_DRAWN; i++)
        draw_stay(out, &history->instances[i], &time);
    tm_html_time_scale(out, &time);
    tm_text_puts(out, "</section>\n");
    if (history->instance_count > INSTANCES_DRAWN)
        tm_text_printf(out, "<p class=note>The first %d of %zu instances.</p>\n", INSTANCES_DRAWN,
                       history->instance_count);
    tm_text_puts(out, "</article>\n");
}
