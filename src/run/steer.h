/* What may be ordered of a run that goes on, beside a stop: another deadline or budget, that an instance goes, a copy
 * now. An order is an event of the record, so it holds for coordinators to come. */
#ifndef TM_RUN_STEER_H
#define TM_RUN_STEER_H

#include <stdbool.h>
#include <stdint.h>

enum tm_steer { TM_STEER_DEADLINE, TM_STEER_BUDGET, TM_STEER_DRAIN, TM_STEER_COPY };

struct tm_steer_order {
    enum tm_steer what;
    uint64_t value; /* the deadline of the whole job in ms of the cloud's time, the budget in millionths of a dollar
                       (each 0: none), the instance; of a copy nothing */
};

/* Limits that were ordered; what was not is as the job file has it. */
struct tm_run_limits {
    bool deadline_set;
    double deadline_s; /* of the whole job, in the cloud's time; 0: none */
    bool budget_set;
    double budget_usd; /* 0: none */
};

#endif
