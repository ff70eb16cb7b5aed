/* What a run tells about costs: from the events of its record to figures that a simulation reads (layout/cost.h). A
 * pure function of the events: how long steps took by layout, what changes of generation took from training, how soon
 * arrivals were used, instances with a notice left, and losses found.
 *
 *     pause of a change   from the last commit before it to the first after it, less a step of the layout after it
 *     begin               from the first instance's arrival to the first commit with the whole first fleet, less all
 *                         steps that were committed meanwhile, as that layout takes them
 *     join                from the last arrival of those that a change seats first to the last commit before it
 *     leave               from an instance's notice to the last commit before the change that leaves it
 *     stop                from the word to stop, or the end of the job, to the end of its instances
 *     detect              from the end of an instance without a notice to the record's word of it
 *
 * Arrivals and ends bear the cloud's time; real time is found from the earliest report of any of them. */
#ifndef TM_RUN_MEASURE_H
#define TM_RUN_MEASURE_H

#include "base/env.h"
#include "layout/cost.h"
#include "wire/message.h"

struct tm_measure_options {
    uint32_t workers;     /* of an instance; 0: 1 */
    double speed;         /* the cloud's seconds per second of real time */
    double notice_wall_s; /* how long before a loss the notice came, in real time; 0: none came */
    /* Bytes of a layer's state: the model's, not what a scaled engine moves. */
    double (*layer_bytes)(void *context, uint32_t layer);
    void *context;
    struct tm_layout_rules rules; /* of the layouts that the run chose from */
    bool paced;                   /* by the paced engine */
    double on_demand_start_s;     /* from asking for an on-demand instance to its arrival, in the cloud's time */
};

struct tm_measure;

struct tm_measure *tm_measure__create(const struct tm_measure_options *options); /* NULL: out of memory */
void tm_measure__destroy(struct tm_measure *measure);                            /* NULL is allowed */

/* Events in the order of the record. -TM_ENOMEM; -TM_ELIMIT: more generations or instances than a run has. */
int tm_measure__take(struct tm_measure *measure, const Tmw__RecordEvent *event, struct tm_error *e);
/* What they say together. -TM_ENONE: not enough happened to say anything, no step was counted or nothing changed. */
int tm_measure__cost(const struct tm_measure *measure, struct tm_cost *out, struct tm_error *e);

/* All of that for a record in a file. */
int tm_measure_record(const char *record, const struct tm_measure_options *options, struct tm_cost *out,
                      struct tm_error *e);
/* Leaves the costs in a run's state folder (measured.tmcost), and in the data folder, where `--cost measured` finds
 * them. */
int tm_measure_save(struct tm_env *env, const char *state_dir, const char *model, const struct tm_cost *cost,
                    struct tm_error *e);

#endif
