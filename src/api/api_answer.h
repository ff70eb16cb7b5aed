/* What a run's own API answers: a function from what a run shows (run/run_tap.h) and a request to a response.
 * api_routes.h has what there is.
 *
 * Every request needs "Authorization: Bearer CREDENTIAL" and must come from this machine, not from another site's page
 * in a browser. Errors are JSON, {"error": "..."}. Requests have no body. */
#ifndef TM_API_API_ANSWER_H
#define TM_API_API_ANSWER_H

#include "api/api_produce.h"
#include "base/http_server.h"

enum { TM_API_WAIT_MAX_S = 60, TM_API_STREAM_BEAT_MS = 15000, TM_API_STATUS_EVERY_MS = 1000 };

/* Appends the whole response to `out`, or returns for how many ms to hold the request (tm_http_answer_f). */
int64_t tm_api__answer(struct tm_api_source *source, const char *credential, const struct tm_http_request *request,
                       struct tm_text *out);

/* A response with these words as its error. */
void tm_api__refuse(const struct tm_http_request *request, int status, const char *more, const char *why,
                    struct tm_text *out);
/* A response with this content. */
void tm_api__send(const struct tm_http_request *request, const struct tm_api_content *content, const char *more,
                  struct tm_text *out);
/* What is wrong by tm_api__find. */
void tm_api__refuse_request(const struct tm_http_request *request, int found, const struct tm_api_asked *asked,
                            struct tm_text *out);

#endif
