/* A log as columns to draw: what is short stays exact, what is long is summed into equal slices of time. */
#include "base/alloc.h"
#include "sim/report_internal.h"

#include <math.h>
#include <string.h>

enum { LAYOUTS_MAX = 8 };

/* How long each layout stood within one slice; the first few seen are enough to find the longest. */
struct layout_times {
    int pipelines[LAYOUTS_MAX], stages[LAYOUTS_MAX];
    double time_s[LAYOUTS_MAX];
    size_t count;
};

/* A part of an interval in which nothing changes. */
struct piece {
    double from_s, to_s;
    double samples_per_s;
    enum tm_sim_cause cause;
    const struct tm_sim_interval *interval;
};

/* The pause of an interval, then its work; the second is empty where there is none. */
static void cut_interval(const struct tm_sim_interval *interval, struct piece pieces[2])
{
    double duration_s = interval->duration_s > 0 ? interval->duration_s : 0;
    double pause_s = interval->cause == TM_SIM_NONE || !(interval->pause_s > 0) ? 0 : interval->pause_s;
    if (interval->cause == TM_SIM_IDLE || pause_s > duration_s) pause_s = duration_s;
    double work_s = duration_s - pause_s, begin_s = interval->time_s;
    double rate = work_s > 0 && interval->samples > 0 ? interval->samples / work_s : 0;
    pieces[0] = (struct piece){begin_s, begin_s + pause_s, 0, interval->cause, interval};
    pieces[1] = (struct piece){begin_s + pause_s, begin_s + duration_s, rate, TM_SIM_NONE, interval};
}

static bool is_drawable(const struct piece *piece)
{
    return piece->from_s >= 0 && piece->to_s > piece->from_s && tm_html_is_plain(piece->to_s) &&
           tm_html_is_plain(piece->samples_per_s);
}

static struct tm_report_column exact_column(const struct piece *piece)
{
    const struct tm_sim_interval *interval = piece->interval;
    struct tm_report_column column = {.from_s = piece->from_s,
                                      .to_s = piece->to_s,
                                      .instances = interval->after,
                                      .instances_least = interval->after,
                                      .instances_most = interval->after,
                                      .pipelines = interval->pipelines,
                                      .stages = interval->stages,
                                      .samples_per_s = piece->samples_per_s};
    column.stalled_s[piece->cause] = piece->to_s - piece->from_s;
    return column;
}

static void note_layout(struct layout_times *times, const struct tm_sim_interval *interval, double time_s)
{
    size_t i = 0;
    while (i < times->count && (times->pipelines[i] != interval->pipelines || times->stages[i] != interval->stages))
        i++;
    if (i == LAYOUTS_MAX) return;
    if (i == times->count) {
        times->pipelines[i] = interval->pipelines;
        times->stages[i] = interval->stages;
        times->time_s[i] = 0;
        times->count++;
    }
    times->time_s[i] += time_s;
}

/* While a slice fills, instances and samples_per_s are sums over time, and from_s..to_s is the slice. */
static void add_part(struct tm_report_column *column, struct layout_times *times, const struct piece *piece,
                     double time_s)
{
    int instances = piece->interval->after;
    if (times->count == 0 || instances < column->instances_least) column->instances_least = instances;
    if (times->count == 0 || instances > column->instances_most) column->instances_most = instances;
    column->instances += instances * time_s;
    column->samples_per_s += piece->samples_per_s * time_s;
    column->stalled_s[piece->cause] += time_s;
    note_layout(times, piece->interval, time_s);
}

static void close_slice(struct tm_report_column *column, struct layout_times *times)
{
    double time_s = 0, longest_s = -1;
    for (size_t i = 0; i < times->count; i++) {
        if (times->time_s[i] > longest_s) {
            longest_s = times->time_s[i];
            column->pipelines = times->pipelines[i];
            column->stages = times->stages[i];
        }
    }
    for (int cause = 0; cause < TM_REPORT_CAUSES; cause++)
        time_s += column->stalled_s[cause]; /* TM_SIM_NONE is the work */
    if (time_s > 0) {
        column->instances /= time_s;
        column->samples_per_s /= time_s;
    }
    times->count = 0;
}

struct slicer {
    struct tm_report_column *columns;
    struct layout_times times;
    size_t count, at;
    double width_s;
};

static void slice_piece(struct slicer *s, const struct piece *piece)
{
    double from_s = piece->from_s;
    while (from_s < piece->to_s) {
        while (s->at + 1 < s->count && from_s >= s->columns[s->at].to_s)
            close_slice(&s->columns[s->at++], &s->times);
        double to_s = s->at + 1 < s->count ? fmin(piece->to_s, s->columns[s->at].to_s) : piece->to_s;
        add_part(&s->columns[s->at], &s->times, piece, to_s - from_s);
        from_s = to_s;
    }
}

static void slice_log(struct slicer *s, const struct tm_sim_log *log)
{
    for (size_t i = 0; i < s->count; i++) {
        s->columns[i].from_s = (double)i * s->width_s;
        s->columns[i].to_s = (double)(i + 1) * s->width_s;
    }
    for (size_t i = 0; i < log->count; i++) {
        struct piece pieces[2];
        cut_interval(&log->intervals[i], pieces);
        for (int k = 0; k < 2; k++)
            if (is_drawable(&pieces[k])) slice_piece(s, &pieces[k]);
    }
    while (s->at < s->count)
        close_slice(&s->columns[s->at++], &s->times);
}

size_t tm_report__piece_count(const struct tm_sim_log *log)
{
    size_t count = 0;
    for (size_t i = 0; i < log->count; i++) {
        struct piece pieces[2];
        cut_interval(&log->intervals[i], pieces);
        count += (size_t)is_drawable(&pieces[0]) + (size_t)is_drawable(&pieces[1]);
    }
    return count;
}

static void copy_pieces(const struct tm_sim_log *log, struct tm_report_column *columns)
{
    for (size_t i = 0; i < log->count; i++) {
        struct piece pieces[2];
        cut_interval(&log->intervals[i], pieces);
        for (int k = 0; k < 2; k++)
            if (is_drawable(&pieces[k])) *columns++ = exact_column(&pieces[k]);
    }
}

static double end_of(const struct tm_sim_log *log)
{
    double end_s = 0;
    for (size_t i = 0; i < log->count; i++) {
        struct piece pieces[2];
        cut_interval(&log->intervals[i], pieces);
        for (int k = 0; k < 2; k++)
            if (is_drawable(&pieces[k])) end_s = fmax(end_s, pieces[k].to_s);
    }
    return end_s;
}

int tm_report__columns(const struct tm_sim_log *log, size_t column_max, struct tm_report_column **out_columns,
                       size_t *out_count, struct tm_error *e)
{
    size_t pieces = tm_report__piece_count(log), count = pieces <= column_max ? pieces : column_max;
    struct tm_report_column *columns = tm_calloc(count + 1, sizeof *columns);
    if (columns == NULL) return tm_error_nomem(e);
    if (pieces > column_max) {
        struct slicer slicer = {.columns = columns, .count = count, .width_s = end_of(log) / (double)count};
        slice_log(&slicer, log);
    } else {
        copy_pieces(log, columns);
    }
    *out_columns = columns;
    *out_count = count;
    return 0;
}
