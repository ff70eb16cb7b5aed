/* What a run did, as one HTML file for people, like the report of simulations (sim/report.h): what it took and cost
 * beside what was predicted, what happened when, the loss, the instances, every event. */
#ifndef TM_RUN_RUN_REPORT_H
#define TM_RUN_RUN_REPORT_H

#include "run/run_history.h"

/* By simulation, before the run; NaN: not known. Times are the cloud's. */
struct tm_run_predicted {
    double time_s;
    double bill_usd;
    double paused_s;
};

struct tm_run_report {
    const struct tm_run_history *history;
    const struct tm_run_predicted *run;       /* NULL: none; then the others are not shown either */
    const struct tm_run_predicted *restart;   /* the same by checkpoint-restart; NULL: none */
    const struct tm_run_predicted *on_demand; /* a full fleet on demand; NULL: none */
    const char *policy;
    const char *weights_hash; /* NULL: not known, then the state's is shown */
};

/* Appends the document to `out`. */
int tm_run_report_html(const struct tm_run_report *report, struct tm_text *out, struct tm_error *e);

#endif
