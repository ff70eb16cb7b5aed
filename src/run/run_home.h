/* Where a run is at home when its copies are in a bucket: beside them lie its books, so that losing the machine that
 * runs it loses nothing, and any other machine can read them, or go on with the run.
 *
 *     PREFIX/run/books   the state folder (state_bundle.h), a few seconds old while the run goes on
 *     PREFIX/run/where   how the run is reached while it goes on: "https://HOST:PORT TOKEN FINGERPRINT NAME"; gone when
 *                        nobody runs it
 *     PREFIX/run/order   "stop" or "now": a wish of somebody who does not reach it
 *
 * Whoever may read the bucket may steer the run: it is as private as the weights in it.
 *
 * A state folder whose run another machine has says so in its file `away`: the place. What is here then is what the
 * bucket said last. */
#ifndef TM_RUN_RUN_HOME_H
#define TM_RUN_RUN_HOME_H

#include "base/env.h"
#include "base/text.h"

enum { TM_HOME_WHERE_MAX = 1024 };

/* ---- of the machine that runs it ---- */

enum tm_home_order { TM_HOME_ORDER_NONE, TM_HOME_ORDER_STOP, TM_HOME_ORDER_NOW };

struct tm_run_home;

/* Brings the books to the place and, from then on, every `every_ms` (0: 10 s) what has changed, on a thread of its own.
 * Waits for the first time: what is rented afterwards can be found again by them. The caller owns the result. Texts are
 * borrowed. */
int tm_run_home_open(struct tm_env *env, const char *dir, const char *place, int64_t every_ms, struct tm_run_home **out,
                     struct tm_error *e);
/* From now on it is reached there; "": nowhere. */
void tm_run_home_tell(struct tm_run_home *home, const char *where);
/* The strongest order that came since it was asked last. */
enum tm_home_order tm_run_home_order(struct tm_run_home *home);
/* The run is over here: the last books are brought, and nobody is to look for it any more. Frees it; NULL is allowed.
 */
int tm_run_home_close(struct tm_run_home *home, struct tm_error *e);

/* ---- of others ---- */

/* The books at a place, into a state folder. -TM_ENOTFOUND: there are none. */
int tm_run_home_fetch(struct tm_env *env, const char *place, const char *dir, struct tm_error *e);
/* -TM_ENOTFOUND: nobody runs it. `out` has room for TM_HOME_WHERE_MAX. */
int tm_run_home_where(struct tm_env *env, const char *place, char *out, struct tm_error *e);
int tm_run_home_ask_stop(struct tm_env *env, const char *place, bool now, struct tm_error *e);

/* ---- a state folder whose run is elsewhere ---- */

/* Is it one? */
bool tm_run_is_away(struct tm_env *env, const char *dir);
/* Its place. `out` has room for TM_COPY_PLACE_MAX. */
int tm_run_away_place(struct tm_env *env, const char *dir, char *out, struct tm_error *e);
/* Makes it one. */
int tm_run_away_write(struct tm_env *env, const char *dir, const char *place, struct tm_error *e);
/* Brings what the bucket says into the folder: books, and how the run is reached (the file `api`). -TM_ENOTFOUND: there
 * are no books so far. */
int tm_run_away_refresh(struct tm_env *env, const char *dir, struct tm_error *e);
/* Does somebody run it? Asks the bucket; where that does not answer, what was known last. */
bool tm_run__away_is_live(struct tm_env *env, const char *dir);

/* "https://HOST:PORT TOKEN FINGERPRINT NAME" taken apart, in place. False: it is none. */
struct tm_home_where {
    const char *address;
    const char *token;
    const char *fingerprint;
    const char *name;
};
bool tm_home_where_read(char *text, struct tm_home_where *out);

#endif
