#include "layout/layouts.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

/* ---- cutting ---- */

static void cut_layers(struct tm_layouts *layouts, int stages)
{
    struct tm_cut *cut = &layouts->cuts[stages];
    int rest = layouts->layer_count - 1;
    int each = rest / stages, left_over = rest % stages;
    cut->stages = stages;
    int layer = 0;
    for (int i = 0; i < stages; i++) {
        cut->first[i] = layer;
        layer += each + (i == 0 ? 1 : 0);
        if (i <= stages - 2 && i > stages - 2 - left_over) layer++;
        cut->params[i] = layouts->layer_params_before[layer] - layouts->layer_params_before[cut->first[i]];
    }
    cut->first[stages] = layer;
}

static int sum_layers(struct tm_layouts *layouts, const struct tm_model *model, struct tm_error *e)
{
    if (model->layer_count > TM_LAYOUT_INSTANCES_MAX)
        return tm_error_set(e, TM_ELIMIT, "%s has %zu layers; layouts are made for at most %d", model->name,
                            model->layer_count, TM_LAYOUT_INSTANCES_MAX);
    layouts->layer_count = (int)model->layer_count;
    double sum = 0;
    for (size_t i = 0; i < model->layer_count; i++) {
        layouts->layer_params_before[i] = sum;
        /* Frozen weights move too, in 2 bytes and without moments. */
        double trained = model->layers[i].params - model->layers[i].frozen_params;
        sum += trained + model->layers[i].frozen_params / (2.0 * (1 + model->optimizer_states));
        if (model->layers[i].kind == TM_LAYER_conv) layouts->convolutions = true;
    }
    if (model->global_batch > 0 && model->micro_batch > 0)
        layouts->micro_batches = (double)model->global_batch / model->micro_batch;
    layouts->layer_params_before[model->layer_count] = sum;
    layouts->bytes_per_param = 4.0 * (1 + model->optimizer_states);
    return 0;
}

/* ---- the list ---- */

static int add_layout(struct tm_layouts *layouts, size_t *capacity, int pipelines, int stages, tm_layout_speed speed,
                      void *context, struct tm_error *e)
{
    if (tm_grow((void **)&layouts->list, capacity, layouts->count + 1, sizeof *layouts->list, TM_LAYOUTS_MAX) != 0)
        return layouts->count + 1 > TM_LAYOUTS_MAX
                   ? tm_error_set(e, TM_ELIMIT, "more than %d layouts are possible; allow fewer instances",
                                  TM_LAYOUTS_MAX)
                   : tm_error_nomem(e);
    struct tm_layout layout = {.pipelines = pipelines, .stages = stages, .instances = pipelines * stages};
    if (speed != NULL) {
        int rc = speed(context, pipelines, stages, &layout.samples_per_s, &layout.step_s, e);
        if (rc != 0) return rc;
        if (!isfinite(layout.samples_per_s) || layout.samples_per_s < 0)
            return tm_error_set(e, TM_EINPUT, "throughput of layout %dx%d is not a number of samples per second",
                                pipelines, stages);
    }
    layouts->list[layouts->count++] = layout;
    return 0;
}

static bool allowed(const struct tm_layouts *layouts, const struct tm_layout_rules *rules, int stages)
{
    return stages >= rules->stages_min && stages <= rules->stages_max && !rules->skipped[stages] &&
           stages < layouts->layer_count + (layouts->layer_count == 1);
}

static int list_layouts(struct tm_layouts *layouts, const struct tm_layout_rules *rules, tm_layout_speed speed,
                        void *context, struct tm_error *e)
{
    size_t capacity = 0;
    int rc = add_layout(layouts, &capacity, 0, 0, NULL, NULL, e);
    layouts->first_of[0] = 0;
    for (int stages = 1; rc == 0 && stages <= layouts->stages_max; stages++) {
        layouts->first_of[stages] = (int)layouts->count;
        if (!allowed(layouts, rules, stages)) continue;
        cut_layers(layouts, stages);
        if (layouts->stages_min == 0) layouts->stages_min = stages;
        for (int pipelines = 1; rc == 0 && pipelines * stages <= layouts->instances_max; pipelines++)
            rc = add_layout(layouts, &capacity, pipelines, stages, pipelines < rules->pipelines_min ? NULL : speed,
                            context, e);
    }
    layouts->first_of[layouts->stages_max + 1] = (int)layouts->count;
    return rc;
}

static int find_best(struct tm_layouts *layouts, struct tm_error *e)
{
    layouts->best = tm_calloc((size_t)layouts->instances_max + 1, sizeof *layouts->best);
    layouts->fastest = tm_calloc(layouts->count, sizeof *layouts->fastest);
    if (layouts->best == NULL || layouts->fastest == NULL) return tm_error_nomem(e);
    for (size_t i = 1; i < layouts->count; i++) {
        int before = layouts->list[i].pipelines > 1 ? layouts->fastest[i - 1] : (int)i;
        bool faster = layouts->list[i].samples_per_s >= layouts->list[before].samples_per_s;
        layouts->fastest[i] = faster ? (int)i : before;
    }
    for (size_t i = 1; i < layouts->count; i++) {
        const struct tm_layout *layout = &layouts->list[i];
        if (layout->samples_per_s > layouts->list[layouts->best[layout->instances]].samples_per_s)
            layouts->best[layout->instances] = (int)i;
    }
    for (int instances = 1; instances <= layouts->instances_max; instances++) {
        int fewer = layouts->best[instances - 1];
        if (layouts->list[fewer].samples_per_s > layouts->list[layouts->best[instances]].samples_per_s)
            layouts->best[instances] = fewer;
    }
    return 0;
}

static int fill(struct tm_layouts *layouts, const struct tm_layout_rules *rules, tm_layout_speed speed, void *context,
                struct tm_error *e)
{
    layouts->cuts = tm_calloc((size_t)layouts->stages_max + 1, sizeof *layouts->cuts);
    int rc = layouts->cuts == NULL ? tm_error_nomem(e) : list_layouts(layouts, rules, speed, context, e);
    if (rc == 0) rc = find_best(layouts, e);
    if (rc != 0) tm_layouts_deinit(layouts);
    return rc;
}

int tm_layouts_init(struct tm_layouts *layouts, const struct tm_model *model, const struct tm_layout_rules *rules,
                    int instances_max, tm_layout_speed speed, void *context, struct tm_error *e)
{
    memset(layouts, 0, sizeof *layouts);
    if (instances_max < 0 || instances_max > TM_LAYOUT_INSTANCES_MAX)
        return tm_error_set(e, TM_ELIMIT, "a fleet of %d instances; layouts are for at most %d", instances_max,
                            TM_LAYOUT_INSTANCES_MAX);
    layouts->instances_max = instances_max;
    layouts->stages_max = rules->stages_max < TM_LAYOUT_STAGES_MAX ? rules->stages_max : TM_LAYOUT_STAGES_MAX;
    int rc = sum_layers(layouts, model, e);
    return rc == 0 ? fill(layouts, rules, speed, context, e) : rc;
}

int tm_layouts__restore(struct tm_layouts *layouts, const struct tm_layouts *head, const struct tm_layout_rules *rules,
                        tm_layout_speed speed, void *context, struct tm_error *e)
{
    memcpy(layouts, head, sizeof *layouts);
    if (layouts->layer_count < 1) return tm_error_set(e, TM_EINPUT, "a model without layers");
    return fill(layouts, rules, speed, context, e);
}

void tm_layouts_deinit(struct tm_layouts *layouts)
{
    tm_free(layouts->list);
    tm_free(layouts->best);
    tm_free(layouts->fastest);
    tm_free(layouts->cuts);
    memset(layouts, 0, sizeof *layouts);
}

int tm_layout_speed_measured(void *model, int pipelines, int stages, double *samples_per_s, double *step_s,
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

int tm_layouts_find(const struct tm_layouts *layouts, int pipelines, int stages)
{
    if (stages < 1 || stages > layouts->stages_max || pipelines < 1) return TM_LAYOUT_PAUSE;
    int first = layouts->first_of[stages], count = layouts->first_of[stages + 1] - first;
    return pipelines <= count ? first + pipelines - 1 : TM_LAYOUT_PAUSE;
}

double tm_layouts_stage_bytes(const struct tm_layouts *layouts, int stages, int stage)
{
    return layouts->cuts[stages].params[stage] * layouts->bytes_per_param;
}
