/* Shared by run_report.c (document) and run_report_lanes.c (pictures). */
#ifndef TM_RUN_RUN_REPORT_INTERNAL_H
#define TM_RUN_RUN_REPORT_INTERNAL_H

#include "base/html.h"
#include "run/run_report.h"

#include <stdio.h>

/* "a loss", "a notice"; for tables and legends. */
const char *tm_run__cause_words(enum tm_change_cause cause);
/* Instances and the layout on them, pace, pauses, bill; ends in an open article. */
void tm_run__timeline(struct tm_text *out, const struct tm_run_history *history);
void tm_run__loss_curve(struct tm_text *out, const struct tm_run_history *history);
/* From when to when each was there, and how it went. */
void tm_run__instances(struct tm_text *out, const struct tm_run_history *history);

#endif
