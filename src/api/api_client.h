/* Asking the status API of a run, by its state folder: the commands wait for an answer, the live view does not. */
#ifndef TM_API_API_CLIENT_H
#define TM_API_API_CLIENT_H

#include "base/http_call.h"
#include "run/run_status.h"

struct tm_api_client;

/* The caller owns the result; NULL: out of memory. `state_dir` is borrowed. */
struct tm_api_client *tm_api_client_create(struct tm_env *env, const char *state_dir);
void tm_api_client_destroy(struct tm_api_client *client); /* NULL is allowed */

/* One request and its answer: "GET", "/v1/status". The file `api` is read each time. -TM_ENOTFOUND: there is no
 * such file: no coordinator runs. -TM_EPEER, -TM_ETIMEOUT: there is no answer. Other answers than 200 to 299 are errors
 * with the server's words. `body` must be initialised; its limit is the body's. */
int tm_api_ask(struct tm_api_client *client, const char *method, const char *target, int64_t timeout_ms,
               struct tm_text *body, struct tm_error *e);
/* GET /v1/status. On success the caller owns what is in `out`. */
int tm_api_status(struct tm_api_client *client, int64_t timeout_ms, struct tm_run_status *out, struct tm_error *e);

/* The status of the run in a state folder, from whoever can tell: the coordinator's word; where it does not answer, the
 * record's (status->live is false). The caller owns what is in `out`. */
int tm_api_run_status(struct tm_env *env, const char *state_dir, struct tm_run_status *out, struct tm_error *e);
/* What is to be said of such a status that is not live: "" where the job has ended. */
const char *tm_api_away_note(struct tm_env *env, const char *state_dir, const struct tm_run_status *status);

/* A GET without waiting: call it now and then, with the same target until it is answered; `body` must be initialised.
 * Results as of tm_api_status_step. */
int tm_api_ask_step(struct tm_api_client *client, const char *target, struct tm_text *body, struct tm_error *e);
/* The same without waiting: call it now and then. 0: here is one. -TM_EBUSY: not yet. Else: it cannot be had now (no
 * file, no coordinator); the next call tries again. */
int tm_api_status_step(struct tm_api_client *client, struct tm_run_status *out, struct tm_error *e);

#endif
