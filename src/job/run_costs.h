/* What a run has measured of itself, for the next one and for simulations. */
#ifndef TM_JOB_RUN_COSTS_H
#define TM_JOB_RUN_COSTS_H

#include "job/run_layouts.h"

/* From the record in the state folder `dir` to measured.tmcost there and in the data folder. -TM_ENONE: too little
 * happened to say anything; what an earlier run has measured stays. */
int tm_run_costs__save(struct tm_env *env, const char *dir, const struct tm_run_settings *settings,
                       const struct tm_run_work *work, struct tm_error *e);

#endif
