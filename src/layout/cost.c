#include "layout/cost.h"

double tm_cost__transfer_ms(const struct tm_paper_cost *paper, double bytes)
{
    int last = paper->point_count - 1;
    if (last < 0) return 0;
    const double *at = paper->point_bytes, *us = paper->point_us;
    if (bytes <= at[0]) return us[0] / 1000;
    if (bytes >= at[last]) return us[last] * bytes / at[last] / 1000;
    int low = 0, high = last;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (at[middle] <= bytes)
            low = middle;
        else
            high = middle;
    }
    return (us[low] + (us[high] - us[low]) * (bytes - at[low]) / (at[high] - at[low])) / 1000;
}

double tm_cost__group_ms(const struct tm_group_cost *group, int pipelines, int stages)
{
    double step = pipelines < 6    ? group->pipelines_1_ms
                  : pipelines < 12 ? group->pipelines_6_ms
                                   : group->pipelines_12_ms;
    return group->base_ms + group->per_pipeline_ms * pipelines + group->per_stage_ms * stages +
           group->per_instance_ms * pipelines * stages + step;
}

static double build_ms(const struct tm_paper_cost *paper, const struct tm_layouts *layouts, int stages)
{
    if (paper->build_ms[stages] > 0) return paper->build_ms[stages];
    if (paper->build_per_layer_ms <= 0) return paper->build_base_ms;
    int layers = (layouts->layer_count + stages - 1) / stages;
    return paper->build_base_ms + paper->build_per_layer_ms * layers;
}

double tm_cost_restart_ms(const struct tm_cost *cost, const struct tm_layouts *layouts, int layout, bool adding)
{
    const struct tm_layout *to = &layouts->list[layout];
    if (to->instances == 0) return 0;
    if (cost->kind == TM_COST_MEASURED)
        return cost->measured.reform_ms + cost->measured.reform_per_instance_ms * to->instances;
    const struct tm_paper_cost *paper = &cost->paper;
    double ms = tm_cost__group_ms(adding ? &paper->group_add : &paper->group_remove, to->pipelines, to->stages) +
                paper->process_ms + build_ms(paper, layouts, to->stages);
    return adding ? ms + paper->rendezvous_ms + paper->rendezvous_extra_ms : ms;
}

/* State of all stages, one after the other, as the paper's code reads a checkpoint. */
static double load_ms(const struct tm_cost *cost, const struct tm_layouts *layouts, int stages)
{
    double ms = 0, bytes = 0;
    for (int i = 0; i < stages; i++) {
        bytes += tm_layouts_stage_bytes(layouts, stages, i);
        if (cost->kind == TM_COST_PAPER)
            ms += tm_cost__transfer_ms(&cost->paper, tm_layouts_stage_bytes(layouts, stages, i));
    }
    if (cost->kind == TM_COST_MEASURED) ms = cost->measured.link_latency_ms + bytes * 8e3 / cost->measured.store_bit_s;
    return ms;
}

double tm_cost_rollback_ms(const struct tm_cost *cost, const struct tm_layouts *layouts, int layout, bool adding,
                           bool first)
{
    const struct tm_layout *to = &layouts->list[layout];
    if (to->instances == 0) return 0;
    double ms = tm_cost_restart_ms(cost, layouts, layout, adding) + load_ms(cost, layouts, to->stages);
    return first ? ms : ms + cost->paper.rollback_ms;
}
