/* What simulations gave, as one HTML file for people: no network, no script needed, light and dark, on paper too.
 *
 * Runs are grouped by (model, trace, note), in the order of their first appearance. A group shows which policy won
 * (bars of samples and cost, a table), why (stalls by cause), and what happened when (a timeline of each policy). Times
 * are since the start of the simulation. Long runs are drawn in at most some hundred columns, each the sum or mean of
 * its intervals, so the file stays small whatever the trace. */
#ifndef TM_SIM_REPORT_H
#define TM_SIM_REPORT_H

#include "base/text.h"
#include "sim/simulate.h"

enum {
    TM_REPORT_RUNS_MAX = 4096,
    TM_REPORT_TIMELINES_MAX = 240,  /* of the first so many runs; the others are in bars and tables */
    TM_REPORT_BYTES_MAX = 32 << 20, /* a limit for the text that no report reaches */
};

/* All is borrowed for the call. */
struct tm_report_run {
    const char *policy;
    const char *trace; /* a name or a file: any bytes */
    const char *model;
    const struct tm_sim_result *result;
    const struct tm_sim_log *log; /* NULL or empty: no timeline */
    double fraction_of_ideal;     /* NaN: unknown */
    const char *note;             /* what else tells its group from others, such as "seed 3"; NULL: nothing */
};

/* Forecasts made `horizon` intervals before, against what came: element i is about time_s[i], ascending. */
struct tm_report_fan {
    const char *trace;
    double interval_s;
    int horizon;
    size_t count;
    const double *time_s;
    const double *p10, *p50, *p90;
    const double *truth;
};

struct tm_report {
    const char *title;
    const char *command; /* the exact command to repeat it */
    double deadline_s;   /* of the job, drawn and judged; 0: none */
    const struct tm_report_run *runs;
    size_t run_count;
    const struct tm_report_fan *fans;
    size_t fan_count;
};

/* Appends the HTML document to `out`. -TM_ELIMIT: more than TM_REPORT_RUNS_MAX runs, or longer than out's limit.
 * Numbers that are not finite are shown as a dash or left out of pictures. */
int tm_report_html(const struct tm_report *report, struct tm_text *out, struct tm_error *e);

#endif
