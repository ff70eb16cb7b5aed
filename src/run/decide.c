#include "run/decide.h"

static const double least_uneven = 1.1;

/* Cuts layers into stages as evenly as whole layers allow. */
static void cut_layers(uint32_t layers, uint32_t stages, uint32_t stage_first[])
{
    for (uint32_t s = 0; s <= stages; s++)
        stage_first[s] = (uint32_t)((uint64_t)layers * s / stages);
}

static void use_all(void *context, const struct tm_run_view *view, struct tm_run_decision *out)
{
    const struct tm_use_all *rule = context;
    size_t usable = view->worker_count;
    *out = (struct tm_run_decision){.rents = rule->workers_max > 0, .want_spot = rule->workers_max};
    out->copy = rule->copy_every_ms > 0 && view->applied > view->copied_step &&
                (view->since_copy_ms < 0 || view->since_copy_ms >= rule->copy_every_ms || view->applied == view->steps);
    if (usable < rule->workers_min || usable == 0) return;
    uint32_t stages = rule->stages < view->layers ? rule->stages : view->layers;
    if (usable < stages) stages = (uint32_t)usable;
    uint32_t pipelines = (uint32_t)(usable / stages);
    if (pipelines > view->micro_batches) pipelines = view->micro_batches;
    out->pipelines = pipelines;
    out->stages = stages;
    cut_layers(view->layers, stages, out->stage_first);
    out->share = view->uneven >= least_uneven;
}

struct tm_decider tm_decider_use_all(struct tm_use_all *rule)
{
    return (struct tm_decider){.context = rule, .decide = use_all};
}
