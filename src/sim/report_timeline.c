/* Timelines: of each run the instances there were and the layout on them, the throughput, and the stalls by cause. */
#include "base/alloc.h"
#include "sim/report_internal.h"

#include <math.h>
#include <string.h>

#define TIMES "\xc3\x97"
#define TO    "\xe2\x80\x93"

/* One run being drawn. */
struct strip {
    struct tm_text *out;
    const struct tm_report_run *run;
    const struct tm_report_group *group;
    struct tm_html_axis time, instances, rate;
    const struct tm_report_column *columns;
    size_t count;
    bool exact;  /* columns are parts of intervals, not slices of time */
    bool titled; /* blocks tell more when pointed at */
};

/* Columns in a row with one layout. */
struct block {
    size_t first, end; /* columns */
    double from_s, to_s;
    double instances, samples, stalled_s;
};

static struct block next_block(const struct strip *strip, size_t first)
{
    const struct tm_report_column *columns = strip->columns;
    struct block block = {.first = first, .end = first, .from_s = columns[first].from_s};
    for (; block.end < strip->count; block.end++) {
        const struct tm_report_column *column = &columns[block.end];
        if (column->pipelines != columns[first].pipelines || column->stages != columns[first].stages) break;
        double time_s = column->to_s - column->from_s;
        block.to_s = column->to_s;
        block.instances += column->instances * time_s;
        block.samples += column->samples_per_s * time_s;
        for (int cause = TM_SIM_NONE + 1; cause < TM_REPORT_CAUSES; cause++)
            block.stalled_s += column->stalled_s[cause];
    }
    return block;
}

/* ---- what there was, and the layout on it ---- */

static void draw_available(const struct strip *strip, const char *class, bool most)
{
    struct tm_text *out = strip->out;
    if (strip->count == 0) return;
    tm_text_printf(out, "<path class=%s d=\"M%.5g 100", class, tm_html_x(&strip->time, strip->columns[0].from_s));
    int shown = -1;
    for (size_t i = 0; i < strip->count; i++) {
        const struct tm_report_column *column = &strip->columns[i];
        int instances = most ? column->instances_most : column->instances_least;
        if (instances != shown) {
            if (i > 0) tm_text_printf(out, "H%.4g", tm_html_x(&strip->time, column->from_s));
            tm_text_printf(out, "V%.3g", tm_html_y(&strip->instances, instances));
        }
        shown = instances;
    }
    tm_text_printf(out, "H%.5gV100\"/>", tm_html_x(&strip->time, strip->columns[strip->count - 1].to_s));
}

static void title_block(const struct strip *strip, const struct block *block)
{
    const struct tm_report_column *column = &strip->columns[block->first];
    double unit = strip->time.unit, time_s = block->to_s - block->from_s;
    struct tm_text *out = strip->out;
    tm_text_puts(out, "<title>");
    tm_html_number(out, block->from_s / unit, 1);
    tm_text_puts(out, TO);
    tm_html_number(out, block->to_s / unit, 1);
    tm_text_printf(out, " %s: %d " TIMES " %d = %d of ", strip->time.unit_name, column->pipelines, column->stages,
                   column->pipelines * column->stages);
    tm_html_short(out, time_s > 0 ? round(block->instances / time_s * 10) / 10 : NAN);
    tm_text_puts(out, " instances, ");
    tm_html_short(out, time_s > 0 ? block->samples / time_s : NAN);
    tm_text_puts(out, " samples/s");
    if (block->stalled_s > 0) {
        tm_text_puts(out, ", not training ");
        tm_html_duration(out, block->stalled_s);
    }
    tm_text_puts(out, "</title>");
}

static int color_of(const struct strip *strip, int stages)
{
    int color = stages >= 0 && stages <= TM_LAYOUT_STAGES_MAX ? strip->group->color_of[stages] : TM_REPORT_COLORS;
    return color == TM_REPORT_NONE ? TM_REPORT_COLORS : color;
}

/* A block each, that tells more when pointed at. */
static void draw_told_blocks(const struct strip *strip)
{
    struct tm_text *out = strip->out;
    for (size_t i = 0; i < strip->count;) {
        struct block block = next_block(strip, i);
        int pipelines = strip->columns[i].pipelines, stages = strip->columns[i].stages;
        i = block.end;
        if (pipelines <= 0 || stages <= 0) continue;
        double x = tm_html_x(&strip->time, block.from_s), width = tm_html_x(&strip->time, block.to_s) - x;
        double y = tm_html_y(&strip->instances, pipelines * stages);
        tm_text_printf(out, "<rect class=k%d x=%.5g y=%.4g width=%.5g height=%.4g>", color_of(strip, stages), x, y,
                       width, 100 - y);
        title_block(strip, &block);
        tm_text_puts(out, "</rect>");
    }
}

/* All of a colour as one path: a third of the bytes. */
static void draw_plain_blocks(const struct strip *strip, int color)
{
    struct tm_text *out = strip->out;
    bool any = false;
    for (size_t i = 0; i < strip->count;) {
        struct block block = next_block(strip, i);
        int pipelines = strip->columns[i].pipelines, stages = strip->columns[i].stages;
        i = block.end;
        if (pipelines <= 0 || stages <= 0 || color_of(strip, stages) != color) continue;
        if (!any) tm_text_printf(out, "<path class=\"b k%d\" d=\"", color);
        any = true;
        double x = tm_html_x(&strip->time, block.from_s), to = tm_html_x(&strip->time, block.to_s);
        tm_text_printf(out, "M%.4g 100V%.3gH%.4gV100", x, tm_html_y(&strip->instances, pipelines * stages), to);
    }
    if (any) tm_text_puts(out, "\"/>");
}

static void draw_blocks(const struct strip *strip)
{
    if (strip->titled) {
        draw_told_blocks(strip);
        return;
    }
    for (int color = 0; color <= TM_REPORT_COLORS; color++)
        draw_plain_blocks(strip, color);
}

/* A line above each pipeline: D bands, each P instances high. */
static void draw_pipelines(const struct strip *strip)
{
    struct tm_text *out = strip->out;
    tm_text_puts(out, "<path class=pipe d=\"");
    for (size_t i = 0; i < strip->count;) {
        struct block block = next_block(strip, i);
        int pipelines = strip->columns[i].pipelines, stages = strip->columns[i].stages;
        i = block.end;
        double x = tm_html_x(&strip->time, block.from_s), to = tm_html_x(&strip->time, block.to_s);
        if (pipelines > 0 && pipelines <= 24 && stages > 0 && to - x >= (strip->titled ? 4 : 30))
            for (int d = 1; d <= pipelines; d++)
                tm_text_printf(out, "M%.5g %.4gH%.5g", x, tm_html_y(&strip->instances, d * stages), to);
    }
    tm_text_puts(out, "\"/>");
}

/* Only where they fit: narrow ones (class n) not on small screens either. */
static void label_blocks(const struct strip *strip)
{
    struct tm_text *out = strip->out;
    for (size_t i = 0; i < strip->count;) {
        struct block block = next_block(strip, i);
        int pipelines = strip->columns[i].pipelines, stages = strip->columns[i].stages;
        i = block.end;
        double x = tm_html_x(&strip->time, block.from_s) / 10, to = tm_html_x(&strip->time, block.to_s) / 10;
        bool paused = pipelines <= 0 || stages <= 0;
        double y = paused ? 50 : (100 + tm_html_y(&strip->instances, pipelines * stages)) / 2;
        double need = paused ? 4.5 : 0.6 + 0.75 * ((pipelines > 9) + (stages > 9) + 2);
        if (to - x < need || (!paused && y > 90)) continue;
        const char *narrow = to - x < 3.2 * need ? "n " : "";
        if (paused)
            tm_text_printf(out, "<text class=\"%sm\" x=%.4g%% y=50%%>migrating</text>", narrow, (x + to) / 2);
        else
            tm_text_printf(out, "<text class=\"%sk%d\" x=%.4g%% y=%.4g%%>%d" TIMES "%d</text>", narrow,
                           color_of(strip, stages), (x + to) / 2, y, pipelines, stages);
    }
}

static void mark(const struct strip *strip, const char *class, double time_s)
{
    if (!isfinite(time_s) || !(time_s > 0) || time_s > strip->time.end) return;
    double x = tm_html_x(&strip->time, time_s);
    tm_text_printf(strip->out, "<path class=%s d=\"M%.5g 0V100\"/>", class, x);
}

static void label_mark(const struct strip *strip, const char *words, int y, double time_s)
{
    if (!isfinite(time_s) || !(time_s > 0) || time_s > strip->time.end) return;
    double x = tm_html_x(&strip->time, time_s) / 10;
    tm_text_printf(strip->out, "<text class=\"m %s\" x=%.4g%% y=%d>%s</text>", x > 85 ? "e" : "s", x, y, words);
}

static void draw_instances(const struct strip *strip, double deadline_s)
{
    tm_html_lane_open(strip->out, "nodes", "instances", &strip->time, &strip->instances);
    draw_available(strip, "av", true);
    if (!strip->exact) draw_available(strip, "avl", false);
    draw_blocks(strip);
    draw_pipelines(strip);
    mark(strip, "due", deadline_s);
    mark(strip, "done", strip->run->result->finished_at_s);
    tm_html_lane_labels(strip->out);
    label_blocks(strip);
    label_mark(strip, "deadline", 8, deadline_s);
    label_mark(strip, "finished", 22, strip->run->result->finished_at_s);
    tm_html_lane_close(strip->out);
}

/* ---- throughput ---- */

static void draw_rate_path(const struct strip *strip, bool area)
{
    struct tm_text *out = strip->out;
    double y = NAN;
    for (size_t i = 0; i < strip->count; i++) {
        const struct tm_report_column *column = &strip->columns[i];
        double now = tm_html_y(&strip->rate, column->samples_per_s);
        double x = tm_html_x(&strip->time, column->from_s);
        if (i == 0 && area) tm_text_printf(out, "M%.5g 100V%.4g", x, now);
        if (i == 0 && !area) tm_text_printf(out, "M%.5g %.4g", x, now);
        bool moved = i == 0 || fabs(now - y) > 0.05;
        if (i > 0 && moved) tm_text_printf(out, "H%.4gV%.3g", x, now);
        if (moved) y = now;
    }
    if (strip->count > 0) tm_text_printf(out, "H%.5g", tm_html_x(&strip->time, strip->columns[strip->count - 1].to_s));
    if (strip->count > 0 && area) tm_text_puts(out, "V100");
}

static void draw_throughput(const struct strip *strip, size_t group_number)
{
    struct tm_text *out = strip->out;
    tm_html_lane_open(out, "rate", "samples/s", &strip->time, &strip->rate);
    tm_text_puts(out, "<path class=rt d=\"");
    draw_rate_path(strip, true);
    tm_text_puts(out, "\"/>");
    if (strip->group->ideal != TM_REPORT_NONE && strip->group->runs[strip->group->ideal] != strip->run)
        tm_text_printf(out, "<use href=\"#ideal%zu\"/>", group_number);
    tm_html_lane_labels(out);
    tm_html_lane_close(out);
}

/* ---- stalls ---- */

/* How high this cause stands on those before it; the ones before are drawn over it. */
static double stall_top(const struct tm_report_column *column, int cause)
{
    double stalled_s = 0, time_s = column->to_s - column->from_s;
    for (int c = TM_SIM_NONE + 1; c <= cause; c++)
        stalled_s += column->stalled_s[c];
    return 100 - (time_s > 0 ? fmin(1, stalled_s / time_s) * 100 : 0);
}

static void draw_stalls_of(const struct strip *strip, int cause)
{
    struct tm_text *out = strip->out;
    double y = 100, total_s = 0;
    for (size_t i = 0; i < strip->count; i++)
        total_s += strip->columns[i].stalled_s[cause];
    if (!(total_s > 0)) return;
    tm_text_printf(out, "<path class=w%d d=\"M0 100", cause);
    for (size_t i = 0; i < strip->count; i++) {
        double now = stall_top(&strip->columns[i], cause);
        if (fabs(now - y) < 0.5) continue;
        tm_text_printf(out, "H%.4gV%.3g", tm_html_x(&strip->time, strip->columns[i].from_s), now);
        y = now;
    }
    tm_text_printf(out, "H%.4gV100\"/>", tm_html_x(&strip->time, strip->columns[strip->count - 1].to_s));
}

static void draw_stalls(const struct strip *strip)
{
    struct tm_html_axis whole = {.end = 1, .step = 2, .unit = 1};
    tm_html_lane_open(strip->out, "stall", "pauses", &strip->time, &whole);
    for (int cause = TM_REPORT_CAUSES - 1; cause > TM_SIM_NONE; cause--)
        draw_stalls_of(strip, cause);
    tm_html_lane_labels(strip->out);
    tm_html_lane_close(strip->out);
}

/* ---- a strip ---- */

static void head_strip(const struct strip *strip)
{
    struct tm_text *out = strip->out;
    const struct tm_report_run *run = strip->run;
    bool best = false;
    for (size_t i = 0; i < strip->group->won; i++)
        best = best || strip->group->runs[i] == run;
    tm_text_printf(out, "<h4>%s", best ? "<span class=won>" : "");
    tm_html_escape(out, run->policy);
    tm_text_puts(out, best ? " \xe2\x98\x85</span> <small>" : " <small>");
    if (tm_report__is_bound(run)) tm_text_puts(out, "a bound that cannot be run \xc2\xb7 ");
    tm_html_short(out, run->result->samples);
    tm_text_puts(out, " samples");
    if (isfinite(run->fraction_of_ideal)) {
        tm_text_puts(out, " \xc2\xb7 ");
        tm_html_percent(out, run->fraction_of_ideal, 1, 1);
        tm_text_puts(out, " of ideal");
    }
    tm_text_puts(out, " \xc2\xb7 not training ");
    tm_html_duration(out, tm_report__stall_s(run));
    tm_text_printf(out, " \xc2\xb7 %d migration%s</small></h4>\n", run->result->reconfigurations,
                   run->result->reconfigurations == 1 ? "" : "s");
}

static struct strip make_strip(struct tm_text *out, const struct tm_report_group *group,
                               const struct tm_report_run *run)
{
    return (struct strip){.out = out,
                          .run = run,
                          .group = group,
                          .time = tm_html_time_axis(group->end_s),
                          .instances = tm_html_axis(group->instances_max, 3, true),
                          .rate = tm_html_axis(group->rate_max, 2, false)};
}

static int draw_strip(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group,
                      const struct tm_report_run *run, struct tm_error *e)
{
    struct strip strip = make_strip(out, group, run);
    struct tm_report_column *columns = NULL;
    if (run->log == NULL || run->log->count == 0) return 0;
    int rc = tm_report__columns(run->log, view->column_max, &columns, &strip.count, e);
    if (rc != 0) return rc;
    strip.columns = columns;
    strip.exact = tm_report__piece_count(run->log) <= view->column_max;
    strip.titled = view->column_max >= 200;
    tm_text_puts(out, "<section class=strip>");
    head_strip(&strip);
    draw_instances(&strip, view->report->deadline_s);
    draw_throughput(&strip, (size_t)(group - view->groups));
    draw_stalls(&strip);
    tm_html_time_scale(out, &strip.time);
    tm_text_puts(out, "</section>\n");
    tm_free(columns);
    return 0;
}

/* The throughput of ideal, for the others to be seen against; drawn once, used by each. */
static int define_ideal(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group,
                        struct tm_error *e)
{
    if (group->ideal == TM_REPORT_NONE) return 0;
    const struct tm_report_run *run = group->runs[group->ideal];
    struct strip strip = make_strip(out, group, run);
    struct tm_report_column *columns = NULL;
    if (run->log == NULL) return 0;
    int rc = tm_report__columns(run->log, view->column_max, &columns, &strip.count, e);
    if (rc != 0) return rc;
    strip.columns = columns;
    tm_text_printf(out, "<svg class=defs aria-hidden=true><defs><path id=ideal%zu class=ideal d=\"",
                   (size_t)(group - view->groups));
    draw_rate_path(&strip, false);
    tm_text_puts(out, "\"/></defs></svg>\n");
    tm_free(columns);
    return 0;
}

static void draw_legend(struct tm_text *out, const struct tm_report_group *group)
{
    tm_text_puts(out, "<ul class=legend><li><i class=av></i>instances available</li>");
    for (int stages = 1; stages <= TM_LAYOUT_STAGES_MAX; stages++)
        if (group->color_of[stages] != TM_REPORT_NONE && group->color_of[stages] != TM_REPORT_COLORS)
            tm_text_printf(out, "<li><i class=k%d></i>D" TIMES "%d</li>", group->color_of[stages], stages);
    if (group->more_depths) tm_text_printf(out, "<li><i class=k%d></i>other depths</li>", (int)TM_REPORT_COLORS);
    tm_text_puts(out, "<li class=note>in use as D pipelines " TIMES " P stages, one band per pipeline</li></ul>\n"
                      "<ul class=legend><li><i class=rt></i>throughput</li>");
    if (group->ideal != TM_REPORT_NONE) tm_text_puts(out, "<li><i class=idl></i>throughput of ideal</li>");
    tm_text_puts(out, "<li class=note>not training:</li>");
    for (int cause = TM_SIM_NONE + 1; cause < TM_REPORT_CAUSES; cause++)
        tm_text_printf(out, "<li><i class=w%d></i>%s</li>", cause, tm_report__cause_names[cause]);
    tm_text_puts(out, "</ul>\n");
}

static void tell_slices(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group)
{
    bool sliced = false;
    for (size_t i = 0; i < group->count && !sliced; i++)
        sliced = group->runs[i]->log != NULL && tm_report__piece_count(group->runs[i]->log) > view->column_max;
    if (!sliced) return;
    tm_text_puts(out, "<p class=note>Drawn in slices of ");
    tm_html_duration(out, group->end_s / (double)view->column_max);
    tm_text_puts(out, ": the layout used longest in each, the mean throughput, the share of time not training; most "
                      "(light) and fewest (dark) instances available.</p>\n");
}

int tm_report__timelines(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group,
                         struct tm_error *e)
{
    size_t drawn_before = (size_t)(group->runs - view->order), drawn = 0;
    if (!(group->end_s > 0)) return 0;
    tm_text_printf(out, "<details%s><summary>What happened when</summary>\n",
                   group == view->groups || view->group_count <= 3 ? " open" : "");
    draw_legend(out, group);
    tell_slices(out, view, group);
    int rc = define_ideal(out, view, group, e);
    for (; rc == 0 && drawn < group->count && drawn_before + drawn < TM_REPORT_TIMELINES_MAX; drawn++)
        rc = draw_strip(out, view, group, group->runs[drawn], e);
    if (drawn < group->count)
        tm_text_printf(
            out,
            "<p class=note>Timelines are shown for the first %d runs; simulate fewer at once to see the others.</p>\n",
            (int)TM_REPORT_TIMELINES_MAX);
    tm_text_puts(out, "</details>\n");
    return rc;
}
