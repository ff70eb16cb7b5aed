/* The end of a run, for people. */
#ifndef TM_CLI_RUN_SUMMARY_H
#define TM_CLI_RUN_SUMMARY_H

#include "base/term.h"
#include "job/run_report_file.h"

/* A few lines: how it ended, what it took and cost, beside what was predicted (NULL: nothing was), where the files are,
 * and three commands to try next. */
void tm_run_summary_print(const struct tm_run_status *status, const struct tm_run_predictions *predicted,
                          const char *dir, const struct tm_term *term, struct tm_text *out);

#endif
