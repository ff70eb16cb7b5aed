#include "layout/liveput.h"

void tm_liveput_pipelines(int pipelines, int stages, int spares, int lost, double *at_least)
{
    at_least[0] = 1;
    for (int keep = 1; keep <= pipelines; keep++)
        at_least[keep] = tm_losses_keep_probability(pipelines, stages, spares, lost, keep);
}

static double after_losing(const struct tm_layouts *layouts, const struct tm_layout *layout, int fleet, int lost)
{
    double at_least[TM_LAYOUT_INSTANCES_MAX + 1], expected = 0;
    tm_liveput_pipelines(layout->pipelines, layout->stages, fleet - layout->instances, lost, at_least);
    for (int left = 1; left <= layout->pipelines; left++) {
        double exactly = at_least[left] - (left < layout->pipelines ? at_least[left + 1] : 0);
        expected += exactly * layouts->list[tm_layouts_find(layouts, left, layout->stages)].samples_per_s;
    }
    return expected;
}

double tm_liveput(const struct tm_layouts *layouts, int layout, int fleet, const double *loss_pmf, int loss_count)
{
    const struct tm_layout *of = &layouts->list[layout];
    if (of->instances == 0) return 0;
    double expected = 0, rest = 1;
    for (int lost = 1; lost < loss_count && lost <= fleet; lost++) {
        if (loss_pmf[lost] <= 0) continue;
        expected += loss_pmf[lost] * after_losing(layouts, of, fleet, lost);
        rest -= loss_pmf[lost];
    }
    return expected + (rest > 0 ? rest : 0) * of->samples_per_s;
}
