/* Who does what in a generation: D pipelines of P stages, the cut of layers into stages, and how many micro-batches
 * each pipeline gets. A pure function of network and layout, so every worker finds the same. */
#ifndef TM_ENGINE_ASSIGNMENT_H
#define TM_ENGINE_ASSIGNMENT_H

#include "engine/mesh.h"
#include "engine/network.h"

enum { TM_ASSIGNMENT_STAGES_MAX = 64, TM_WORKERS_MAX = 256 };

struct tm_assignment {
    int pipelines;
    int stages;
    int first_layer[TM_ASSIGNMENT_STAGES_MAX + 1]; /* stage s holds layers first_layer[s] .. first_layer[s + 1] - 1 */
    int64_t first_micro[TM_WORKERS_MAX + 1];       /* pipeline p does micro-batches first_micro[p] .. [p + 1] - 1 */
    int ranks[TM_WORKERS_MAX];                     /* of stage s of pipeline p: ranks[p * stages + s] */
};

/* "2x3": 2 pipelines of 3 stages. -TM_EUSAGE where the text is something else. */
int tm_layout_parse(const char *text, int *out_pipelines, int *out_stages, struct tm_error *e);

/* Layers cut so that the slowest stage is as fast as can be; micro-batches as evenly as they go; worker p * stages + s
 * is stage s of pipeline p. -TM_EINPUT: more stages than layers, more pipelines than micro-batches, too many workers.
 */
int tm_assignment_make(const struct tm_network *network, int pipelines, int stages, int64_t micro_batches,
                       struct tm_assignment *out, struct tm_error *e);

/* Pipeline and stage of a rank; false: a spare. */
bool tm_assignment__place(const struct tm_assignment *assignment, int rank, int *out_pipeline, int *out_stage);
bool tm_assignment_holds(const struct tm_assignment *assignment, int rank, int layer);

/* Those who hold the same layers as stage `stage`, and those who hold a copy of the tied weight. `rank` is one of them.
 */
struct tm_group tm_assignment__stage_group(const struct tm_assignment *assignment, int stage, int rank);
struct tm_group tm_assignment__tied_group(const struct tm_assignment *assignment, int rank);

/* Layers that must move when `from` becomes `to`: each to a worker that lacks it, from one that has it, turn by turn.
 */
struct tm_layer_move {
    int layer;
    int from;
    int to;
};
/* At most `max` moves are written; returns how many there are. */
size_t tm_assignment__moves(const struct tm_assignment *from, const struct tm_assignment *to, int workers,
                            struct tm_layer_move *out, size_t max);

/* ---- 1F1B: what a stage does in turn ---- */

struct tm_stage__turn {
    bool backward;
    int64_t micro; /* 0 .. count - 1 within the pipeline */
};
/* Turn number `turn` of 2 x count. */
struct tm_stage__turn tm_stage__turn(int stages, int stage, int64_t count, int64_t turn);
/* Micro-batches whose activations are kept at one time, at most. */
int64_t tm_stage_in__flight(int stages, int stage, int64_t count);

#endif
