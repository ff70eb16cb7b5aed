/* Layouts: how a job may be laid out. D pipelines of P stages on D x P instances; the rest of the fleet are spares.
 *
 * The set is made once for a job and then only read: every layout that the model allows on up to instances_max
 * instances, its throughput, how the layers are cut into its stages, and how many bytes of state each stage holds.
 * Layout 0 is the pause: no pipelines, no throughput, always possible. */
#ifndef TM_LAYOUT_LAYOUTS_H
#define TM_LAYOUT_LAYOUTS_H

#include "base/error.h"
#include "workload/model.h"

#include <stdbool.h>
#include <stddef.h>

enum { TM_LAYOUT_STAGES_MAX = 64, TM_LAYOUT_INSTANCES_MAX = 4096, TM_LAYOUTS_MAX = 32768, TM_LAYOUT_PAUSE = 0 };

struct tm_layout {
    int pipelines;
    int stages;
    int instances; /* pipelines x stages */
    double samples_per_s;
    double step_s;
};

/* How a model is cut into so many stages: stage i holds layers [first[i], first[i + 1]). */
struct tm_cut {
    int stages; /* 0: the model is not trained with so many */
    int first[TM_LAYOUT_STAGES_MAX + 1];
    double params[TM_LAYOUT_STAGES_MAX];
};

struct tm_layouts {
    struct tm_layout *list; /* owned; the pause, then by stages, then by pipelines */
    size_t count;
    int instances_max;
    int stages_max;
    int stages_min;
    int first_of[TM_LAYOUT_STAGES_MAX +
                 2];     /* index of the layout 1 x P; of the next number of stages where there is none */
    int *best;           /* owned; [instances]: the fastest layout on up to so many; of equals the larger */
    int *fastest;        /* owned; [layout]: the fastest of the layouts of its depth with at most its pipelines */
    struct tm_cut *cuts; /* owned; [stages], 0 to stages_max */
    double layer_params_before[TM_LAYOUT_INSTANCES_MAX + 1]; /* parameters of the layers before layer i, frozen
                                                                ones by the bytes that they have */
    int layer_count;
    bool convolutions;      /* the model has layers of them */
    double micro_batches;   /* of a step, over all pipelines; 0: not known */
    double bytes_per_param; /* of state: weight and optimizer, 4 bytes each */
    int workers_each;       /* what is laid out are workers, so many of an instance, lost together; 0: 1 */
};

/* Which layouts a model may have. */
struct tm_layout_rules {
    int stages_min; /* at least 1 */
    int stages_max;
    int pipelines_min;
    bool skipped[TM_LAYOUT_STAGES_MAX + 1]; /* numbers of stages that are not used */
};

/* Throughput of a layout; 0 where it cannot train. */
typedef int (*tm_layout_speed)(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                               struct tm_error *e);

/* Fills `layouts`; tm_layouts_deinit frees it. Layers are cut evenly by number: the first layer comes on top of the
 * first stage, what is left over goes to the stages before the last, from the back. */
int tm_layouts_init(struct tm_layouts *layouts, const struct tm_model *model, const struct tm_layout_rules *rules,
                    int instances_max, tm_layout_speed speed, void *context, struct tm_error *e);
/* The same from what was recorded of others: all but the lists stands in `head`. */
int tm_layouts__restore(struct tm_layouts *layouts, const struct tm_layouts *head, const struct tm_layout_rules *rules,
                        tm_layout_speed speed, void *context, struct tm_error *e);
void tm_layouts_deinit(struct tm_layouts *layouts);

/* Throughput from the model's own measured points; 0 where there is none. The context is the model. */
int tm_layout_speed_measured(void *model, int pipelines, int stages, double *samples_per_s, double *step_s,
                             struct tm_error *e);

/* The index of a layout, or TM_LAYOUT_PAUSE if the model may not have it. */
int tm_layouts_find(const struct tm_layouts *layouts, int pipelines, int stages);

/* Bytes of state that stage `stage` of `stages` holds. */
double tm_layouts_stage_bytes(const struct tm_layouts *layouts, int stages, int stage);

#endif
