/* What a single-gang job with a deadline is told: shared by the files deadline*.h. */
#ifndef TM_POLICY_DEADLINE_TERMS_H
#define TM_POLICY_DEADLINE_TERMS_H

enum tm_gang_on { TM_GANG_NOTHING, TM_GANG_SPOT, TM_GANG_ON_DEMAND };

/* All are finite and at least 0; work and deadline are more. */
struct tm_deadline_terms {
    double work_s;     /* time the work takes on the gang, without a stop */
    double deadline_s; /* since the start of the job */
    double restart_s;  /* at each launch: billed, no work */
    double start_s;    /* from asking for on-demand instances to having them: not billed, no work */
    double spot_usd_h; /* of the whole gang */
    double on_demand_usd_h;
    double spot_start_s; /* from asking for spot instances to their first work, beside the restart: billed, no work */
};

/* What an on-demand launch takes before it works. */
static inline double tm_deadline_launch_s(const struct tm_deadline_terms *terms)
{
    return terms->start_s + terms->restart_s;
}

/* And what a spot launch takes. */
static inline double tm_deadline_spot_launch_s(const struct tm_deadline_terms *terms)
{
    return terms->spot_start_s + terms->restart_s;
}

#endif
