#include "layout/shapes.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

/* ---- cutting ---- */

static void cut_layers(struct tm_shapes *shapes, int stages)
{
    struct tm_cut *cut = &shapes->cuts[stages];
    int rest = shapes->layer_count - 1;
    int each = rest / stages, left_over = rest % stages;
    cut->stages = stages;
    int layer = 0;
    for (int i = 0; i < stages; i++) {
        cut->first[i] = layer;
        layer += each + (i == 0 ? 1 : 0);
        if (i <= stages - 2 && i > stages - 2 - left_over) layer++;
        cut->params[i] = shapes->layer_params_before[layer] - shapes->layer_params_before[cut->first[i]];
    }
    cut->first[stages] = layer;
}

static int sum_layers(struct tm_shapes *shapes, const struct tm_model *model, struct tm_error *e)
{
    if (model->layer_count > TM_SHAPE_NODES_MAX)
        return tm_error_set(e, TM_ELIMIT, "%s has %zu layers; layouts are made for at most %d", model->name,
                            model->layer_count, TM_SHAPE_NODES_MAX);
    shapes->layer_count = (int)model->layer_count;
    double sum = 0;
    for (size_t i = 0; i < model->layer_count; i++) {
        shapes->layer_params_before[i] = sum;
        sum += model->layers[i].params;
    }
    shapes->layer_params_before[model->layer_count] = sum;
    shapes->bytes_per_param = 4.0 * (1 + model->optimizer_states);
    return 0;
}

/* ---- the list ---- */

static int add_shape(struct tm_shapes *shapes, size_t *capacity, int pipelines, int stages, tm_shape_speed speed,
                     void *context, struct tm_error *e)
{
    if (tm_grow((void **)&shapes->list, capacity, shapes->count + 1, sizeof *shapes->list, TM_SHAPES_MAX) != 0)
        return shapes->count + 1 > TM_SHAPES_MAX
                   ? tm_error_set(e, TM_ELIMIT, "more than %d layouts are possible; allow fewer instances",
                                  TM_SHAPES_MAX)
                   : tm_error_nomem(e);
    struct tm_shape shape = {.pipelines = pipelines, .stages = stages, .nodes = pipelines * stages};
    if (speed != NULL) {
        int rc = speed(context, pipelines, stages, &shape.samples_per_s, &shape.step_s, e);
        if (rc != 0) return rc;
        if (!isfinite(shape.samples_per_s) || shape.samples_per_s < 0)
            return tm_error_set(e, TM_EINPUT, "throughput of layout %dx%d is not a number of samples a second",
                                pipelines, stages);
    }
    shapes->list[shapes->count++] = shape;
    return 0;
}

static bool allowed(const struct tm_shapes *shapes, const struct tm_shape_rules *rules, int stages)
{
    return stages >= rules->stages_min && stages <= rules->stages_max && !rules->skipped[stages] &&
           stages < shapes->layer_count + (shapes->layer_count == 1);
}

static int list_shapes(struct tm_shapes *shapes, const struct tm_shape_rules *rules, tm_shape_speed speed,
                       void *context, struct tm_error *e)
{
    size_t capacity = 0;
    int rc = add_shape(shapes, &capacity, 0, 0, NULL, NULL, e);
    shapes->first_of[0] = 0;
    for (int stages = 1; rc == 0 && stages <= shapes->stages_max; stages++) {
        shapes->first_of[stages] = (int)shapes->count;
        if (!allowed(shapes, rules, stages)) continue;
        cut_layers(shapes, stages);
        if (shapes->stages_min == 0) shapes->stages_min = stages;
        for (int pipelines = 1; rc == 0 && pipelines * stages <= shapes->nodes_max; pipelines++)
            rc = add_shape(shapes, &capacity, pipelines, stages, pipelines < rules->pipelines_min ? NULL : speed,
                           context, e);
    }
    shapes->first_of[shapes->stages_max + 1] = (int)shapes->count;
    return rc;
}

static int find_best(struct tm_shapes *shapes, struct tm_error *e)
{
    shapes->best = tm_calloc((size_t)shapes->nodes_max + 1, sizeof *shapes->best);
    shapes->fastest = tm_calloc(shapes->count, sizeof *shapes->fastest);
    if (shapes->best == NULL || shapes->fastest == NULL) return tm_error_nomem(e);
    for (size_t i = 1; i < shapes->count; i++) {
        int before = shapes->list[i].pipelines > 1 ? shapes->fastest[i - 1] : (int)i;
        bool faster = shapes->list[i].samples_per_s >= shapes->list[before].samples_per_s;
        shapes->fastest[i] = faster ? (int)i : before;
    }
    for (size_t i = 1; i < shapes->count; i++) {
        const struct tm_shape *shape = &shapes->list[i];
        if (shape->samples_per_s > shapes->list[shapes->best[shape->nodes]].samples_per_s)
            shapes->best[shape->nodes] = (int)i;
    }
    for (int nodes = 1; nodes <= shapes->nodes_max; nodes++) {
        int fewer = shapes->best[nodes - 1];
        if (shapes->list[fewer].samples_per_s > shapes->list[shapes->best[nodes]].samples_per_s)
            shapes->best[nodes] = fewer;
    }
    return 0;
}

int tm_shapes_init(struct tm_shapes *shapes, const struct tm_model *model, const struct tm_shape_rules *rules,
                   int nodes_max, tm_shape_speed speed, void *context, struct tm_error *e)
{
    memset(shapes, 0, sizeof *shapes);
    if (nodes_max < 0 || nodes_max > TM_SHAPE_NODES_MAX)
        return tm_error_set(e, TM_ELIMIT, "a fleet of %d instances; layouts are made for at most %d", nodes_max,
                            TM_SHAPE_NODES_MAX);
    shapes->nodes_max = nodes_max;
    shapes->stages_max = rules->stages_max < TM_SHAPE_STAGES_MAX ? rules->stages_max : TM_SHAPE_STAGES_MAX;
    int rc = sum_layers(shapes, model, e);
    if (rc != 0) return rc;
    shapes->cuts = tm_calloc((size_t)shapes->stages_max + 1, sizeof *shapes->cuts);
    rc = shapes->cuts == NULL ? tm_error_nomem(e) : list_shapes(shapes, rules, speed, context, e);
    if (rc == 0) rc = find_best(shapes, e);
    if (rc != 0) tm_shapes_deinit(shapes);
    return rc;
}

void tm_shapes_deinit(struct tm_shapes *shapes)
{
    tm_free(shapes->list);
    tm_free(shapes->best);
    tm_free(shapes->fastest);
    tm_free(shapes->cuts);
    memset(shapes, 0, sizeof *shapes);
}

int tm_shape_speed_measured(void *model, int pipelines, int stages, double *samples_per_s, double *step_s,
                            struct tm_error *e)
{
    (void)e;
    const struct tm_model *m = model;
    for (size_t i = 0; i < m->point_count; i++) {
        if (m->points[i].pipelines != pipelines || m->points[i].stages != stages) continue;
        *samples_per_s = m->points[i].samples_per_s;
        *step_s = m->points[i].step_ms / 1000;
        break;
    }
    return 0;
}

int tm_shapes_find(const struct tm_shapes *shapes, int pipelines, int stages)
{
    if (stages < 1 || stages > shapes->stages_max || pipelines < 1) return TM_SHAPE_PAUSE;
    int first = shapes->first_of[stages], count = shapes->first_of[stages + 1] - first;
    return pipelines <= count ? first + pipelines - 1 : TM_SHAPE_PAUSE;
}

double tm_shapes_stage_bytes(const struct tm_shapes *shapes, int stages, int stage)
{
    return shapes->cuts[stages].params[stage] * shapes->bytes_per_param;
}
