/* How long the instances of a run lived: told to whoever plans the next one. */
#ifndef TM_JOB_RUN_LIVES_H
#define TM_JOB_RUN_LIVES_H

#include "cloud/cloud.h"

/* What a run's instances were, where the cloud's pools do not say. */
struct tm_run_lives {
    const char *cloud; /* of the provider: "aws" */
    const char *type;  /* of instances without one of their own; NULL: not known */
    const char *dir;   /* state folder */
    bool emulated;     /* instances followed a trace: nothing is learned of a cloud that was not there */
};

/* Adds the spot instances that `cloud` has had to lifetimes.csv of the state folder (tidemill-lifetimes(5)) and, unless
 * they were emulated, to what the user has recorded (market/risk.h). Instances that are there still, or were given
 * back, were not preempted; nor were those that went without the notice that their pool gives. */
int tm_run_lives__keep(struct tm_env *env, struct tm_cloud *cloud, const struct tm_run_lives *lives,
                       struct tm_error *e);

/* Tells whoever plans the next run how long instances were waited for, where that is the cloud's to say
 * (market/starts.h), and says it in the log. One that never came has waited so long at least. */
int tm_run_lives__keep_waits(struct tm_env *env, struct tm_cloud *cloud, const char *name, struct tm_error *e);

#endif
