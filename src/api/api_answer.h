/* What the status API answers: a function from what a run shows (run/run_tap.h) and a request to a response.
 *
 *   GET  /v1/status                 the run as it stands (tm_run_status_write), one JSON document
 *   GET  /v1/events?after=N         events with a number above N (0), as JSON lines (tm_run_event_write), oldest first;
 *        &limit=M                   at most M of them (1000); the next request begins after the last number
 *        &wait=S                    where there is none yet, wait up to S seconds (at most 60) for one
 *   POST /v1/stop                   stop with a copy set of the last step; ?now=1: without one. 202
 *   GET  /metrics                   for Prometheus (metrics.h)
 *
 * Every request needs "Authorization: Bearer CREDENTIAL". Errors are JSON, {"error": "..."}. Requests have no body. */
#ifndef TM_API_API_ANSWER_H
#define TM_API_API_ANSWER_H

#include "base/http_server.h"
#include "run/run_tap.h"

enum { TM_API_EVENTS_MAX = 10000, TM_API_WAIT_MAX_S = 60, TM_API_RESPONSE_MAX = 8 << 20 };

/* Appends the whole response to `out`, or returns for how many ms to hold the request (tm_http_answer_f). */
int64_t tm_api__answer(struct tm_run_tap *tap, const char *credential, const struct tm_http_request *request,
                       struct tm_text *out);

#endif
