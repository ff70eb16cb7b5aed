/* Shared by the parts of the report: report.c (document), report_bars.c, report_tables.c, report_timeline.c (with
 * report_columns.c) and report_fan.c. Text, numbers, axes and looks are those of base/html.h. */
#ifndef TM_SIM_REPORT_INTERNAL_H
#define TM_SIM_REPORT_INTERNAL_H

#include "base/html.h"
#include "sim/report.h"

#include <math.h>

enum { TM_REPORT_CAUSES = TM_SIM_START + 1, TM_REPORT_COLORS = 7, TM_REPORT_NONE = -1 };

/* Runs of one model on one trace, best first. */
struct tm_report_group {
    const char *model;
    const char *trace;
    const char *note;                  /* "": none */
    const struct tm_report_run **runs; /* into the view's order */
    size_t count;
    bool finite; /* a job with an end: some run finished it; judged by its bill, else by samples */
    size_t won;  /* so many share the first place, of those that can be run and, without an end, on spot */
    int next;    /* the second of them, also of equals; TM_REPORT_NONE: there is none */
    int ideal;   /* the run of the policy ideal */
    double end_s;
    int instances_max;
    double rate_max;
    int color_of[TM_LAYOUT_STAGES_MAX +
                 1];  /* by number of stages; TM_REPORT_NONE: not used, TM_REPORT_COLORS: one of many */
    bool more_depths; /* than colours */
};

struct tm_report_view {
    const struct tm_report *report;
    const struct tm_report_run **order; /* owned */
    struct tm_report_group *groups;     /* owned */
    size_t group_count;
    size_t column_max; /* of one timeline, so that all together stay small */
    bool priced;       /* some run has a bill */
};

/* ---- judging ---- */

/* Cannot be run for real: it knows what is to come, or pays for nothing. */
bool tm_report__is_bound(const struct tm_report_run *run);
bool tm_report__is_on_demand(const struct tm_report_run *run);
double tm_report__until_s(const struct tm_report_run *run); /* its end, or the end of the simulation */
double tm_report__stall_s(const struct tm_report_run *run); /* all causes together */
double tm_report__stall_of(const struct tm_report_run *run, enum tm_sim_cause cause);
extern const char *const tm_report__cause_names[TM_REPORT_CAUSES];

/* ---- columns: a log made ready to draw ---- */

struct tm_report_column {
    double from_s, to_s;
    double instances; /* mean */
    int instances_least, instances_most;
    int pipelines, stages; /* of the longest part */
    double samples_per_s;
    double stalled_s[TM_REPORT_CAUSES];
};

/* Pauses and work, each counted. */
size_t tm_report__piece_count(const struct tm_sim_log *log);

/* Pauses and work apart where they fit in column_max, else that many columns of equal time. The caller frees
 * *out_columns. */
int tm_report__columns(const struct tm_sim_log *log, size_t column_max, struct tm_report_column **out_columns,
                       size_t *out_count, struct tm_error *e);

/* ---- parts ---- */

void tm_report__cards(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group);
void tm_report__bars(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group);
void tm_report__overview(struct tm_text *out, const struct tm_report_view *view);
void tm_report__table(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group);
void tm_report__policies(struct tm_text *out, const struct tm_report_view *view);
int tm_report__timelines(struct tm_text *out, const struct tm_report_view *view, const struct tm_report_group *group,
                         struct tm_error *e);
void tm_report__fan(struct tm_text *out, const struct tm_report_fan *fan);

#endif
