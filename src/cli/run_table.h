/* What a run is expected to take and cost, as a table that people are asked about. */
#ifndef TM_CLI_RUN_TABLE_H
#define TM_CLI_RUN_TABLE_H

#include "base/term.h"
#include "job/expectation.h"

/* `dir` is the state folder. */
int tm_run_table_print(const struct tm_term *term, const struct tm_run_settings *settings,
                       const struct tm_run_plan *plan, const char *dir, struct tm_text *out, struct tm_error *e);

#endif
