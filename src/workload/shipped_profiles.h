/* Measured and published training steps that are part of the binary: what is known before the user's own. */
#ifndef TM_WORKLOAD_SHIPPED_PROFILES_H
#define TM_WORKLOAD_SHIPPED_PROFILES_H

#include "workload/profile.h"

/* Adds all of them to `profile`, which is initialised. */
int tm_shipped_profiles(struct tm_profile *profile, struct tm_error *e);

#endif
