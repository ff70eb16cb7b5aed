#include "layout/recorded.h"

#include "base/alloc.h"
#include "base/figures.h"

#include <string.h>

enum { POINTS_MAX = TM_LAYOUT_INSTANCES_MAX };
#define LARGE 1e18

/* ---- layouts ---- */

#define LAYOUTS_INT(member, low, high)                                                                                 \
    {                                                                                                                  \
        .name = #member, .type = TM_FIGURE_INT, .offset = offsetof(struct tm_layouts, member), .min = (low),           \
        .max = (high)                                                                                                  \
    }
static const struct tm_figure layouts_figures[] = {LAYOUTS_INT(instances_max, 0, TM_LAYOUT_INSTANCES_MAX),
                                                   LAYOUTS_INT(stages_max, 0, TM_LAYOUT_STAGES_MAX),
                                                   LAYOUTS_INT(layer_count, 0, TM_LAYOUT_INSTANCES_MAX),
                                                   LAYOUTS_INT(workers_each, 0, TM_LAYOUT_INSTANCES_MAX),
                                                   {.name = "bytes_per_param",
                                                    .type = TM_FIGURE_DOUBLE,
                                                    .offset = offsetof(struct tm_layouts, bytes_per_param),
                                                    .max = LARGE},
                                                   {.name = "layer_params_before",
                                                    .type = TM_FIGURE_DOUBLE,
                                                    .offset = offsetof(struct tm_layouts, layer_params_before),
                                                    .count = TM_LAYOUT_INSTANCES_MAX + 1,
                                                    .max = LARGE},
                                                   {.name = NULL}};

/* Those of one number of stages: with 1 pipeline, 2, ... */
struct depth {
    int stages;
    int count;
    double samples_per_s[POINTS_MAX];
    double step_s[POINTS_MAX];
};

static const struct tm_figure depth_figures[] = {
    {.name = "stages",
     .type = TM_FIGURE_INT,
     .offset = offsetof(struct depth, stages),
     .min = 1,
     .max = TM_LAYOUT_STAGES_MAX},
    {.name = "count", .type = TM_FIGURE_INT, .offset = offsetof(struct depth, count), .max = POINTS_MAX},
    {.name = "samples_per_s",
     .type = TM_FIGURE_DOUBLE,
     .offset = offsetof(struct depth, samples_per_s),
     .count = POINTS_MAX,
     .max = LARGE},
    {.name = "step_s",
     .type = TM_FIGURE_DOUBLE,
     .offset = offsetof(struct depth, step_s),
     .count = POINTS_MAX,
     .max = LARGE},
    {.name = NULL}};

void tm_layouts_record(const struct tm_layouts *layouts, struct tm_text *out)
{
    struct depth *depth = tm_calloc(1, sizeof *depth);
    if (depth == NULL) {
        out->failed = -(int)TM_ENOMEM;
        return;
    }
    tm_figures_print(layouts_figures, layouts, out);
    for (int stages = 1; stages <= layouts->stages_max; stages++) {
        int first = layouts->first_of[stages], end = layouts->first_of[stages + 1];
        if (first == end) continue;
        *depth = (struct depth){.stages = stages, .count = end - first};
        for (int i = first; i < end; i++) {
            depth->samples_per_s[i - first] = layouts->list[i].samples_per_s;
            depth->step_s[i - first] = layouts->list[i].step_s;
        }
        tm_text_putc(out, '\n'); /* an empty line before each */
        tm_figures_print(depth_figures, depth, out);
    }
    tm_free(depth);
}

/* A tm_layout_speed, of what was read so far. */
struct recalled {
    struct depth *of[TM_LAYOUT_STAGES_MAX + 1]; /* owned */
};

static int speed_of(void *context, int pipelines, int stages, double *samples_per_s, double *step_s, struct tm_error *e)
{
    const struct recalled *recalled = context;
    const struct depth *depth = recalled->of[stages];
    if (depth == NULL || pipelines > depth->count)
        return tm_error_set(e, TM_EINPUT, "there is no layout %dx%d", pipelines, stages);
    *samples_per_s = depth->samples_per_s[pipelines - 1];
    *step_s = depth->step_s[pipelines - 1];
    return 0;
}

static int read_depth(const char *text, size_t length, struct recalled *recalled, struct tm_error *e)
{
    struct depth *depth = tm_calloc(1, sizeof *depth);
    if (depth == NULL) return tm_error_nomem(e);
    int rc = tm_figures_parse(depth_figures, text, length, depth, e);
    if (rc == 0 && (depth->stages < 1 || recalled->of[depth->stages] != NULL))
        rc = tm_error_set(e, TM_EINPUT, "layouts of %d stages twice, or of none", depth->stages);
    if (rc == 0)
        recalled->of[depth->stages] = depth;
    else
        tm_free(depth);
    return rc;
}

/* The part of the text up to the next empty line. */
static size_t part_length(const char *text, size_t length)
{
    const char *end = memmem(text, length, "\n\n", 2);
    return end == NULL ? length : (size_t)(end - text) + 1;
}

static int build(const struct tm_layouts *head, struct recalled *recalled, struct tm_layouts *out, struct tm_error *e)
{
    struct tm_layout_rules rules = {.stages_min = 1, .stages_max = head->stages_max, .pipelines_min = 1};
    for (int stages = 1; stages <= TM_LAYOUT_STAGES_MAX; stages++)
        rules.skipped[stages] = recalled->of[stages] == NULL;
    return tm_layouts__restore(out, head, &rules, speed_of, recalled, e);
}

int tm_layouts_recall(const char *text, size_t length, struct tm_layouts *out, struct tm_error *e)
{
    struct recalled recalled = {{NULL}};
    struct tm_layouts *head = tm_calloc(1, sizeof *head);
    size_t part = part_length(text, length);
    int rc = head == NULL ? tm_error_nomem(e) : tm_figures_parse(layouts_figures, text, part, head, e);
    for (size_t at = part; rc == 0 && at < length;) {
        at++; /* the empty line */
        part = part_length(text + at, length - at);
        rc = read_depth(text + at, part, &recalled, e);
        at += part;
    }
    if (rc == 0) rc = build(head, &recalled, out, e);
    for (int stages = 0; stages <= TM_LAYOUT_STAGES_MAX; stages++)
        tm_free(recalled.of[stages]);
    tm_free(head);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "layouts");
}

/* ---- costs ---- */

#define COST(label, member, kind_of, low, high)                                                                        \
    {                                                                                                                  \
        .name = (label), .type = (kind_of), .offset = offsetof(struct tm_cost, member), .min = (low), .max = (high)    \
    }
#define COST_DOUBLE(member) COST(#member, member, TM_FIGURE_DOUBLE, 0, LARGE)
#define COST_LIST(label, member, kind_of, many, step, high)                                                            \
    {                                                                                                                  \
        .name = (label), .type = (kind_of), .offset = offsetof(struct tm_cost, member), .count = (many),               \
        .stride = (step), .max = (high)                                                                                \
    }
#define COST_GROUP(group)                                                                                              \
    COST_DOUBLE(paper.group.base_ms), COST_DOUBLE(paper.group.per_pipeline_ms), COST_DOUBLE(paper.group.per_stage_ms), \
        COST_DOUBLE(paper.group.per_instance_ms), COST_DOUBLE(paper.group.pipelines_1_ms),                             \
        COST_DOUBLE(paper.group.pipelines_6_ms), COST_DOUBLE(paper.group.pipelines_12_ms)

static const struct tm_figure cost_figures[] = {
    COST("kind", kind, TM_FIGURE_INT, TM_COST_PAPER, TM_COST_MEASURED),
    COST("rules.stages_min", rules.stages_min, TM_FIGURE_INT, 0, TM_LAYOUT_STAGES_MAX),
    COST("rules.stages_max", rules.stages_max, TM_FIGURE_INT, 0, TM_LAYOUT_STAGES_MAX),
    COST("rules.pipelines_min", rules.pipelines_min, TM_FIGURE_INT, 0, TM_LAYOUT_INSTANCES_MAX),
    COST_LIST("rules.skipped", rules.skipped, TM_FIGURE_BOOL, TM_LAYOUT_STAGES_MAX + 1, 0, 1),
    COST_LIST("paper.point_bytes", paper.point_bytes, TM_FIGURE_DOUBLE, TM_COST_POINTS_MAX, 0, LARGE),
    COST_LIST("paper.point_us", paper.point_us, TM_FIGURE_DOUBLE, TM_COST_POINTS_MAX, 0, LARGE),
    COST("paper.point_count", paper.point_count, TM_FIGURE_INT, 0, TM_COST_POINTS_MAX),
    COST_DOUBLE(paper.rollback_ms),
    COST_DOUBLE(paper.process_ms),
    COST_DOUBLE(paper.rendezvous_ms),
    COST_DOUBLE(paper.rendezvous_extra_ms),
    COST_GROUP(group_add),
    COST_GROUP(group_remove),
    COST_LIST("paper.build_ms", paper.build_ms, TM_FIGURE_DOUBLE, TM_LAYOUT_STAGES_MAX + 1, 0, LARGE),
    COST_DOUBLE(paper.build_base_ms),
    COST_DOUBLE(paper.build_per_layer_ms),
    COST_DOUBLE(measured.reform_ms),
    COST_DOUBLE(measured.reform_per_instance_ms),
    COST_DOUBLE(measured.link_bit_s),
    COST_DOUBLE(measured.link_latency_ms),
    COST_DOUBLE(measured.store_bit_s),
    COST_DOUBLE(measured.detect_ms),
    COST_DOUBLE(measured.begin_s),
    COST_DOUBLE(measured.join_s),
    COST("measured.leaves", measured.leaves, TM_FIGURE_BOOL, 0, 1),
    COST_DOUBLE(measured.leave_s),
    COST_DOUBLE(measured.drain_s),
    COST_DOUBLE(measured.stop_s),
    COST_DOUBLE(measured.speed),
    COST("measured.paced", measured.paced, TM_FIGURE_BOOL, 0, 1),
    COST_LIST("steps.pipelines", steps[0].pipelines, TM_FIGURE_INT, TM_COST_STEPS_MAX, sizeof(struct tm_step_time),
              TM_LAYOUT_INSTANCES_MAX),
    COST_LIST("steps.stages", steps[0].stages, TM_FIGURE_INT, TM_COST_STEPS_MAX, sizeof(struct tm_step_time),
              TM_LAYOUT_STAGES_MAX),
    COST_LIST("steps.step_ms", steps[0].step_ms, TM_FIGURE_DOUBLE, TM_COST_STEPS_MAX, sizeof(struct tm_step_time),
              LARGE),
    COST("step_count", step_count, TM_FIGURE_INT, 0, TM_COST_STEPS_MAX),
    COST_DOUBLE(start_s),
    COST_DOUBLE(copy_interval_s),
    {.name = NULL}};

void tm_cost_record(const struct tm_cost *cost, struct tm_text *out)
{
    tm_figures_print(cost_figures, cost, out);
}

int tm_cost_recall(const char *text, size_t length, struct tm_cost *out, struct tm_error *e)
{
    struct tm_cost cost;
    memset(&cost, 0, sizeof cost);
    int rc = tm_figures_parse(cost_figures, text, length, &cost, e);
    if (rc != 0) return tm_error_wrap(e, rc, "costs");
    *out = cost;
    return 0;
}
