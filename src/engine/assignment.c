#include "engine/assignment.h"

#include "base/number.h"

#include <string.h>

int tm_layout_parse(const char *text, int *out_pipelines, int *out_stages, struct tm_error *e)
{
    const char *x = strchr(text, 'x');
    int64_t pipelines = 0;
    int64_t stages = 0;
    bool ok = x != NULL && tm_number_i64(text, (size_t)(x - text), &pipelines) &&
              tm_number_i64(x + 1, strlen(x + 1), &stages) && pipelines > 0 && stages > 0 &&
              pipelines <= TM_WORKERS_MAX && stages <= TM_ASSIGNMENT_STAGES_MAX;
    if (!ok)
        return tm_error_set(
            e, TM_EUSAGE,
            "expected a layout such as 2x3 (2 pipelines of 3 stages; at most %d pipelines and %d stages), "
            "got \"%.40s\"",
            TM_WORKERS_MAX, TM_ASSIGNMENT_STAGES_MAX, text);
    *out_pipelines = (int)pipelines;
    *out_stages = (int)stages;
    return 0;
}

/* Relative time of a layer: multiplications a row. */
static double layer_cost(const struct tm_network *network, int layer)
{
    double width = network->width;
    if (layer == 0) return 16 * width;
    if (layer == network->blocks + 1) return (TM_VOCAB + 16) * width;
    return 12 * width * width + (2.0 * network->ctx + 64) * width;
}

/* The cut whose largest stage is least: smallest[s][l] over the first l layers in s stages, by trying every last stage.
 * Layers are at most 1024 and stages 64, so this is some 10^7 additions at worst. */
static void cut_layers(const struct tm_network *network, int stages, int *first_layer)
{
    static const double never = 1e300;
    int layers = tm_network_layers(network);
    double sums[TM_NETWORK_LAYERS_MAX + 1] = {0};
    double best[TM_NETWORK_LAYERS_MAX + 1];
    short starts[TM_ASSIGNMENT_STAGES_MAX + 1][TM_NETWORK_LAYERS_MAX + 1];
    for (int l = 0; l < layers; l++)
        sums[l + 1] = sums[l] + layer_cost(network, l);
    for (int l = 0; l <= layers; l++)
        best[l] = l == 0 ? 0 : never;
    for (int s = 1; s <= stages; s++) {
        double next[TM_NETWORK_LAYERS_MAX + 1];
        for (int l = 0; l <= layers; l++) {
            next[l] = never;
            starts[s][l] = 0;
            for (int k = l - 1; k >= s - 1; k--) {
                double last = sums[l] - sums[k];
                double worst = best[k] > last ? best[k] : last;
                if (worst < next[l]) {
                    next[l] = worst;
                    starts[s][l] = (short)k;
                }
            }
        }
        memcpy(best, next, sizeof best);
    }
    first_layer[stages] = layers;
    for (int s = stages; s > 0; s--)
        first_layer[s - 1] = starts[s][first_layer[s]];
}

int tm_assignment_make(const struct tm_network *network, int pipelines, int stages, int64_t micro_batches,
                       struct tm_assignment *out, struct tm_error *e)
{
    int layers = tm_network_layers(network);
    if (stages > layers)
        return tm_error_set(e, TM_EINPUT,
                            "layout %dx%d: %d stages, but the network has %d layers (embedding, %d blocks, head); use "
                            "at most %d stages",
                            pipelines, stages, stages, layers, network->blocks, layers);
    if (stages > TM_ASSIGNMENT_STAGES_MAX || pipelines * stages > TM_WORKERS_MAX)
        return tm_error_set(e, TM_EINPUT, "layout %dx%d: at most %d stages and %d workers", pipelines, stages,
                            TM_ASSIGNMENT_STAGES_MAX, TM_WORKERS_MAX);
    if (pipelines > micro_batches)
        return tm_error_set(
            e, TM_EINPUT,
            "layout %dx%d: %d pipelines, but a step has %lld micro-batches; raise batch or lower micro_batch",
            pipelines, stages, pipelines, (long long)micro_batches);
    *out = (struct tm_assignment){.pipelines = pipelines, .stages = stages};
    cut_layers(network, stages, out->first_layer);
    int64_t share = micro_batches / pipelines;
    int64_t more = micro_batches % pipelines;
    for (int p = 0; p < pipelines; p++)
        out->first_micro[p + 1] = out->first_micro[p] + share + (p < more ? 1 : 0);
    for (int i = 0; i < pipelines * stages; i++)
        out->ranks[i] = i;
    return 0;
}

bool tm_assignment__place(const struct tm_assignment *assignment, int rank, int *out_pipeline, int *out_stage)
{
    for (int i = 0; i < assignment->pipelines * assignment->stages; i++) {
        if (assignment->ranks[i] != rank) continue;
        *out_pipeline = i / assignment->stages;
        *out_stage = i % assignment->stages;
        return true;
    }
    return false;
}

bool tm_assignment_holds(const struct tm_assignment *assignment, int rank, int layer)
{
    int pipeline = 0;
    int stage = 0;
    if (!tm_assignment__place(assignment, rank, &pipeline, &stage)) return false;
    return layer >= assignment->first_layer[stage] && layer < assignment->first_layer[stage + 1];
}

static void join(struct tm_group *group, int member, int rank)
{
    if (member == rank) group->place = group->count;
    group->ranks[group->count++] = member;
}

struct tm_group tm_assignment__stage_group(const struct tm_assignment *assignment, int stage, int rank)
{
    struct tm_group group = {0};
    for (int p = 0; p < assignment->pipelines; p++)
        join(&group, assignment->ranks[p * assignment->stages + stage], rank);
    return group;
}

struct tm_group tm_assignment__tied_group(const struct tm_assignment *assignment, int rank)
{
    struct tm_group group = {0};
    for (int p = 0; p < assignment->pipelines; p++) {
        join(&group, assignment->ranks[p * assignment->stages], rank);
        if (assignment->stages > 1)
            join(&group, assignment->ranks[p * assignment->stages + assignment->stages - 1], rank);
    }
    return group;
}

size_t tm_assignment__moves(const struct tm_assignment *from, const struct tm_assignment *to, int workers,
                            struct tm_layer_move *out, size_t max)
{
    size_t count = 0;
    int layers = from->first_layer[from->stages];
    for (int layer = 0; layer < layers; layer++) {
        int holders[TM_WORKERS_MAX];
        int holder_count = 0;
        for (int w = 0; w < workers; w++) {
            if (tm_assignment_holds(from, w, layer)) holders[holder_count++] = w;
        }
        if (holder_count == 0) continue;
        int turn = 0;
        for (int w = 0; w < workers; w++) {
            if (!tm_assignment_holds(to, w, layer) || tm_assignment_holds(from, w, layer)) continue;
            if (count < max)
                out[count] = (struct tm_layer_move){.layer = layer, .from = holders[turn % holder_count], .to = w};
            turn++;
            count++;
        }
    }
    return count;
}

struct tm_stage__turn tm_stage__turn(int stages, int stage, int64_t count, int64_t turn)
{
    int64_t warm = stages - 1 - stage < count ? stages - 1 - stage : count;
    if (turn < warm) return (struct tm_stage__turn){.micro = turn};
    int64_t steady = turn - warm;
    int64_t pairs = count - warm;
    if (steady < 2 * pairs)
        return (struct tm_stage__turn){.backward = steady % 2 == 1,
                                       .micro = steady % 2 == 1 ? steady / 2 : warm + steady / 2};
    return (struct tm_stage__turn){.backward = true, .micro = pairs + steady - 2 * pairs};
}

int64_t tm_stage_in__flight(int stages, int stage, int64_t count)
{
    return stages - stage < count ? stages - stage : count;
}
