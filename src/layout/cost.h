/* What a change of layout costs, as figures (tidemill-cost(5) describes the file; cost_file.c reads it).
 *
 * Two kinds. `paper`: Parcae's planner, constant by constant, with its rules and its omissions (migrate.c says which),
 * so that its published behaviour is reproduced. `measured`: what a runtime has measured of itself: a fixed pause to
 * form the next generation, every byte that has to move over the links it has, how soon instances are used and left,
 * and how long steps took. A file has times in real time, and how many seconds of the trace passed per second
 * (speed); in memory all times and rates are the trace's. */
#ifndef TM_LAYOUT_COST_H
#define TM_LAYOUT_COST_H

#include "base/env.h"
#include "layout/layouts.h"

enum { TM_COST_POINTS_MAX = 64, TM_COST_STEPS_MAX = 256, TM_COST_BYTES_MAX = 1 << 20 };

enum tm_cost_kind { TM_COST_PAPER, TM_COST_MEASURED };

/* Forming the communication groups of D x P instances: a sum of parts, and a step with D. */
struct tm_group_cost {
    double base_ms;
    double per_pipeline_ms;
    double per_stage_ms;
    double per_instance_ms;
    double pipelines_1_ms; /* on top, with 1 to 5 pipelines */
    double pipelines_6_ms; /* with 6 to 11 */
    double pipelines_12_ms;
};

struct tm_paper_cost {
    double point_bytes[TM_COST_POINTS_MAX]; /* of one transfer, ascending */
    double point_us[TM_COST_POINTS_MAX];
    int point_count;
    double rollback_ms;
    double process_ms;
    double rendezvous_ms;
    double rendezvous_extra_ms;
    struct tm_group_cost group_add;
    struct tm_group_cost group_remove;
    double build_ms[TM_LAYOUT_STAGES_MAX + 1];
    double build_base_ms; /* where the table has no row for a number of stages */
    double build_per_layer_ms;
};

struct tm_measured_cost {
    double reform_ms; /* pause of any change of generation */
    double reform_per_instance_ms;
    double link_bit_s;      /* of one instance, each way */
    double link_latency_ms; /* of one transfer */
    double store_bit_s;     /* reading a copy set, all instances together */
    double detect_ms;       /* from an unannounced loss to its detection */
    double begin_s;         /* from the start of the job to its first step; 0: as any other change */
    double join_s;          /* from an instance's arrival to the change that uses it */
    bool leaves;            /* an instance with a notice is left ... */
    double leave_s;         /* ... so long after the notice; else it is used to its end */
    double drain_s;         /* from the word to stop to the last step, in training */
    double stop_s;          /* from the end of training to that of the instances, which are paid meanwhile */
    double speed;           /* trace seconds per wall second at which it was measured */
    bool paced;             /* steps take the same time of the trace whatever the speed: of the paced engine */
};

/* What a step took in a layout. */
struct tm_step_time {
    int pipelines;
    int stages;
    double step_ms;
};

struct tm_cost {
    enum tm_cost_kind kind;
    struct tm_layout_rules rules;
    struct tm_paper_cost paper;
    struct tm_measured_cost measured;
    struct tm_step_time steps[TM_COST_STEPS_MAX]; /* measured, of the model */
    int step_count;
    double start_s;         /* from the grant of an on-demand instance to its first work */
    double copy_interval_s; /* between copy sets: what a rollback loses, on average half of it */
    char source[256];
};

/* `name` is "paper", "local" or "paced" (what is typical of workers on one machine), "measured" (the file that the last
 * run left in the data folder) or a path; `model` picks the figures of a model. Fills *out on success. */
int tm_cost_load(struct tm_env *env, const char *name, const char *model, struct tm_cost *out, struct tm_error *e);
int tm_cost_parse(const char *file, const char *text, size_t length, const char *model, struct tm_cost *out,
                  struct tm_error *e);

/* A measured cost as a file that reads back to the same figures; what was measured of a model stands under its name. */
void tm_cost_print(const struct tm_cost *cost, const char *model, struct tm_text *out);
/* The same measured figures for a trace that passes at another speed: what took a second of real time still does, but
 * for steps of the paced engine. */
void tm_cost_change_speed(struct tm_cost *cost, double speed);

/* One transfer of so many bytes, by the paper's table. */
double tm_cost__transfer_ms(const struct tm_paper_cost *paper, double bytes);
/* Forming groups, starting processes and building the stages of a layout; `adding`: instances are added, so all meet
 * again. */
double tm_cost__group_ms(const struct tm_group_cost *group, int pipelines, int stages);
double tm_cost_restart_ms(const struct tm_cost *cost, const struct tm_layouts *layouts, int layout, bool adding);
/* Parcae's reactive baseline: everybody restarts and loads a checkpoint. */
double tm_cost_rollback_ms(const struct tm_cost *cost, const struct tm_layouts *layouts, int layout, bool adding,
                           bool first);

#endif
