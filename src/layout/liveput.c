#include "layout/liveput.h"

void tm_liveput_pipelines(int pipelines, int stages, int spares, int lost, double *at_least)
{
    at_least[0] = 1;
    for (int keep = 1; keep <= pipelines; keep++)
        at_least[keep] = tm_losses_keep_probability(pipelines, stages, spares, lost, keep);
}

static double after_losing(const struct tm_shapes *shapes, const struct tm_shape *shape, int fleet, int lost)
{
    double at_least[TM_SHAPE_NODES_MAX + 1], expected = 0;
    tm_liveput_pipelines(shape->pipelines, shape->stages, fleet - shape->nodes, lost, at_least);
    for (int left = 1; left <= shape->pipelines; left++) {
        double exactly = at_least[left] - (left < shape->pipelines ? at_least[left + 1] : 0);
        expected += exactly * shapes->list[tm_shapes_find(shapes, left, shape->stages)].samples_per_s;
    }
    return expected;
}

double tm_liveput(const struct tm_shapes *shapes, int shape, int fleet, const double *loss_pmf, int loss_count)
{
    const struct tm_shape *of = &shapes->list[shape];
    if (of->nodes == 0) return 0;
    double expected = 0, rest = 1;
    for (int lost = 1; lost < loss_count && lost <= fleet; lost++) {
        if (loss_pmf[lost] <= 0) continue;
        expected += loss_pmf[lost] * after_losing(shapes, of, fleet, lost);
        rest -= loss_pmf[lost];
    }
    return expected + (rest > 0 ? rest : 0) * of->samples_per_s;
}
