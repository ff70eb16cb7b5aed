/* Runs whose state folder does not lie in the folder of all runs (`run --state DIR`) are put down there, by name, so
 * that who looks there later finds them, too: the dashboard. */
#ifndef TM_RUN_RUN_PLACES_H
#define TM_RUN_RUN_PLACES_H

#include "base/env.h"

/* Puts down `dir` (absolute), unless it lies in `root`; places where nothing is any more are struck out. What cannot be
 * written is not: nothing depends on it. */
void tm_run_places_add(struct tm_env *env, const char *root, const char *dir);
/* Each of them, in any order; there may be no run there any more. */
int tm_run_places_each(struct tm_env *env, const char *root, tm_name_f take, void *context, struct tm_error *e);

#endif
