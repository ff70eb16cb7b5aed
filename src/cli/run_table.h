/* What a run is expected to take and cost, as a table that people are asked about. */
#ifndef TM_CLI_RUN_TABLE_H
#define TM_CLI_RUN_TABLE_H

#include "base/jsonout.h"
#include "base/term.h"
#include "job/verdict.h"

/* `dir` is the state folder. */
int tm_run_table_print(const struct tm_term *term, const struct tm_run_settings *settings,
                       const struct tm_run_plan *plan, const struct tm_verdict *verdict, const char *dir,
                       struct tm_text *out, struct tm_error *e);

/* ---- for programs ---- */

/* A list "expected" of {"policy","time_s","bill_usd","p_deadline","chosen"}; what is not known is null. */
void tm_run_expected_json(const struct tm_verdict *verdict, struct tm_jsonout *json);
/* {"job","feasible","fleet","expected","why"}. */
void tm_run_verdict_json(const char *name, const struct tm_verdict *verdict, struct tm_jsonout *json);

#endif
