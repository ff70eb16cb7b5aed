/* The certificates of a job's members, under tls/ of its state folder: a key each, in coordinator/, cloud/, office/
 * and instance-N/. The authority's key is only in memory, and is gone when the program ends. */
#ifndef TM_JOB_RUN_TLS_H
#define TM_JOB_RUN_TLS_H

#include "run/state_folder.h"
#include "wire/tls.h"

struct tm_run_tls {
    struct tm_env *env;
    char dir[TM_STATE_PATH_MAX]; /* the state folder */
    struct tm_tls_authority *authority;
};

/* A new authority, and what the coordinator and the cloud's program need; what was there goes, and is worth nothing any
 * more. The coordinator's certificate is for `listen` and `advertise` too (HOST or HOST:PORT; NULL: not known).
 * `out` needs tm_run_tls__deinit also where it fails. */
int tm_run_tls__make(struct tm_env *env, const char *dir, const char *listen, const char *advertise,
                     struct tm_run_tls *out, struct tm_error *e);
void tm_run_tls__deinit(struct tm_run_tls *tls);
/* For the instance of that number; `tls` is a struct tm_run_tls. */
int tm_run_tls__issue(void *tls, uint64_t instance, struct tm_error *e);
/* For the office of a run whose instances join. */
int tm_run_tls__issue_office(struct tm_run_tls *tls, struct tm_error *e);
/* Removes the folder. */
void tm_run_tls__remove(const char *dir);

#endif
