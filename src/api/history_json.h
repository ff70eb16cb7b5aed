/* A run over time as one JSON document: GET /v1/history. Curves are lists of the same length, one for each quantity,
 * thinned evenly to a number of points; of lists of things the last 2000 are told. */
#ifndef TM_API_HISTORY_JSON_H
#define TM_API_HISTORY_JSON_H

#include "run/run_history.h"

void tm_history__write(const struct tm_run_history *history, size_t points_max, struct tm_jsonout *json);

#endif
