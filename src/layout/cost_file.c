/* tidemill-cost files: YAML with a kind and its figures; man page tidemill-cost(5). */
#include "layout/cost.h"

#include "base/content.h"
#include "base/embed.h"
#include "base/fields.h"
#include "base/number.h"
#include "base/paths.h"
#include "base/suggest.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

TM_EMBED(tm_embedded_paper_cost, "costs/paper.tmcost");
TM_EMBED(tm_embedded_local_cost, "costs/local.tmcost");
TM_EMBED(tm_embedded_paced_cost, "costs/paced.tmcost");

static const char *const kinds[] = {"paper", "measured", NULL};

static const struct tm_field group_fields[] = {
#define GROUP_FIELD(name)                                                                                              \
    {                                                                                                                  \
        .key = #name, .type = TM_FIELD_NUMBER, .offset = offsetof(struct tm_group_cost, name), .min = 0, .max = 1e9    \
    }
    GROUP_FIELD(base_ms),         GROUP_FIELD(per_pipeline_ms),
    GROUP_FIELD(per_stage_ms),    GROUP_FIELD(per_instance_ms),
    GROUP_FIELD(pipelines_1_ms),  GROUP_FIELD(pipelines_6_ms),
    GROUP_FIELD(pipelines_12_ms), {.key = NULL}};

/* What stands under a model's name, before it goes to its place in struct tm_cost. */
struct model_figures {
    int64_t stages_min, stages_max, pipelines_min;
    struct tm_strings stages_skipped;
    struct tm_paper_cost paper;
};

#define MODEL_NUMBER(name)                                                                                             \
    {                                                                                                                  \
        .key = #name, .type = TM_FIELD_NUMBER, .offset = offsetof(struct model_figures, paper.name), .min = 0,         \
        .max = 1e9                                                                                                     \
    }
#define MODEL_INTEGER(name, low)                                                                                       \
    {                                                                                                                  \
        .key = #name, .type = TM_FIELD_INTEGER, .offset = offsetof(struct model_figures, name), .min = (low),          \
        .max = TM_LAYOUT_STAGES_MAX                                                                                    \
    }
static const struct tm_field model_fields[] = {
    MODEL_INTEGER(stages_min, 1),
    MODEL_INTEGER(stages_max, 1),
    MODEL_INTEGER(pipelines_min, 1),
    {.key = "stages_skipped", .type = TM_FIELD_STRINGS, .offset = offsetof(struct model_figures, stages_skipped)},
    MODEL_NUMBER(process_ms),
    MODEL_NUMBER(rendezvous_ms),
    MODEL_NUMBER(rendezvous_extra_ms),
    MODEL_NUMBER(build_base_ms),
    MODEL_NUMBER(build_per_layer_ms),
    {.key = "group_add",
     .type = TM_FIELD_MAP,
     .fields = group_fields,
     .offset = offsetof(struct model_figures, paper.group_add)},
    {.key = "group_remove",
     .type = TM_FIELD_MAP,
     .fields = group_fields,
     .offset = offsetof(struct model_figures, paper.group_remove)},
    {.key = NULL}};

struct file_figures {
    int64_t version;
    int kind;
    const char *source;
    double rollback_ms, start_s, copy_interval_s;
    double reform_ms, reform_per_instance_ms, link_latency_ms, detect_ms, begin_s, join_s, leave_s, drain_s, stop_s,
        speed;
    int64_t link_bit_s, store_bit_s;
    bool paced;
};

#define FILE_NUMBER(name)                                                                                              \
    {                                                                                                                  \
        .key = #name, .type = TM_FIELD_NUMBER, .offset = offsetof(struct file_figures, name), .min = 0, .max = 1e9     \
    }
static const struct tm_field file_fields[] = {
    {.key = "tidemill-cost",
     .type = TM_FIELD_INTEGER,
     .offset = offsetof(struct file_figures, version),
     .required = true,
     .min = 1,
     .max = 1},
    {.key = "kind",
     .type = TM_FIELD_CHOICE,
     .choices = kinds,
     .offset = offsetof(struct file_figures, kind),
     .required = true},
    {.key = "source", .type = TM_FIELD_STRING, .offset = offsetof(struct file_figures, source)},
    FILE_NUMBER(rollback_ms),
    FILE_NUMBER(start_s),
    FILE_NUMBER(copy_interval_s),
    FILE_NUMBER(reform_ms),
    FILE_NUMBER(reform_per_instance_ms),
    FILE_NUMBER(link_latency_ms),
    FILE_NUMBER(detect_ms),
    FILE_NUMBER(begin_s),
    FILE_NUMBER(join_s),
    FILE_NUMBER(leave_s),
    FILE_NUMBER(drain_s),
    FILE_NUMBER(stop_s),
    {.key = "speed", .type = TM_FIELD_NUMBER, .offset = offsetof(struct file_figures, speed), .min = 1e-6, .max = 1e6},
    {.key = "paced", .type = TM_FIELD_BOOL, .offset = offsetof(struct file_figures, paced)},
    {.key = "link", .type = TM_FIELD_RATE, .offset = offsetof(struct file_figures, link_bit_s)},
    {.key = "store", .type = TM_FIELD_RATE, .offset = offsetof(struct file_figures, store_bit_s)},
    {.key = NULL}};

/* ---- parts ---- */

static struct tm_node *take_child(struct tm_node *map, const char *key)
{
    for (struct tm_node **link = &map->first; *link != NULL; link = &(*link)->next) {
        if (strcmp((*link)->key, key) != 0) continue;
        struct tm_node *found = *link;
        *link = found->next;
        map->count--;
        found->next = NULL;
        return found;
    }
    return NULL;
}

/* A map of numbers to numbers: the key to *key, the value to *value. */
static int read_pair(const char *file, const struct tm_node *node, double *key, double *value, struct tm_error *e)
{
    char place[300];
    if (node->kind != TM_NODE_SCALAR || !tm_number_double(node->key, strlen(node->key), key) ||
        !tm_number_double(node->text, strlen(node->text), value) || !(*key >= 0) || !(*value >= 0) || *value > 1e12)
        return tm_error_set(e, TM_EINPUT,
                            "%s: expected a number and its figure, for example 1024: 137.4; got \"%.40s\"",
                            tm_node_place(file, node, place, sizeof place), node->key);
    return 0;
}

static int read_points(const char *file, const struct tm_node *map, struct tm_paper_cost *paper, struct tm_error *e)
{
    char place[300];
    if (map == NULL || map->kind != TM_NODE_MAP || map->count < 2 || map->count > TM_COST_POINTS_MAX)
        return tm_error_set(e, TM_EINPUT, "%s: transfer_us: expected 2 to %d lines of \"bytes: microseconds\"",
                            map != NULL ? tm_node_place(file, map, place, sizeof place) : file, TM_COST_POINTS_MAX);
    for (const struct tm_node *node = map->first; node != NULL; node = node->next) {
        int n = paper->point_count;
        int rc = read_pair(file, node, &paper->point_bytes[n], &paper->point_us[n], e);
        if (rc != 0) return rc;
        if (n > 0 && paper->point_bytes[n] <= paper->point_bytes[n - 1])
            return tm_error_set(e, TM_EINPUT, "%s: transfer_us: bytes must grow from line to line",
                                tm_node_place(file, node, place, sizeof place));
        paper->point_count++;
    }
    return 0;
}

static bool is_stage_count(double value)
{
    return value >= 1 && value <= TM_LAYOUT_STAGES_MAX && value == (int)value;
}

static int read_build(const char *file, const struct tm_node *map, struct tm_paper_cost *paper, struct tm_error *e)
{
    char place[300];
    if (map == NULL) return 0;
    if (map->kind != TM_NODE_MAP)
        return tm_error_set(e, TM_EINPUT, "%s: build_ms: expected lines of \"stages: milliseconds\"",
                            tm_node_place(file, map, place, sizeof place));
    for (const struct tm_node *node = map->first; node != NULL; node = node->next) {
        double stages, ms;
        int rc = read_pair(file, node, &stages, &ms, e);
        if (rc != 0) return rc;
        if (!is_stage_count(stages))
            return tm_error_set(e, TM_EINPUT, "%s: build_ms: a number of stages is 1 to %d",
                                tm_node_place(file, node, place, sizeof place), TM_LAYOUT_STAGES_MAX);
        paper->build_ms[(int)stages] = ms;
    }
    return 0;
}

/* "4x8": 4 pipelines of 8 stages. */
static bool read_layout(const char *text, struct tm_step_time *out)
{
    const char *cross = strchr(text, 'x');
    int64_t pipelines, stages;
    if (cross == NULL || !tm_number_i64(text, (size_t)(cross - text), &pipelines) ||
        !tm_number_i64(cross + 1, strlen(cross + 1), &stages))
        return false;
    if (pipelines < 1 || pipelines > TM_LAYOUT_INSTANCES_MAX || stages < 1 || stages > TM_LAYOUT_STAGES_MAX)
        return false;
    out->pipelines = (int)pipelines;
    out->stages = (int)stages;
    return true;
}

static int read_steps(const char *file, const struct tm_node *map, struct tm_cost *out, struct tm_error *e)
{
    char place[300];
    if (map == NULL) return 0;
    if (map->kind != TM_NODE_MAP || map->count > TM_COST_STEPS_MAX)
        return tm_error_set(e, TM_EINPUT, "%s: step_ms: expected up to %d lines of \"PIPELINESxSTAGES: milliseconds\"",
                            tm_node_place(file, map, place, sizeof place), TM_COST_STEPS_MAX);
    for (const struct tm_node *node = map->first; node != NULL; node = node->next) {
        struct tm_step_time *step = &out->steps[out->step_count];
        bool right = node->kind == TM_NODE_SCALAR && read_layout(node->key, step) &&
                     tm_number_double(node->text, strlen(node->text), &step->step_ms) && step->step_ms > 0 &&
                     step->step_ms <= 1e9;
        if (!right)
            return tm_error_set(e, TM_EINPUT,
                                "%s: step_ms: expected a layout and milliseconds above 0, for example 4x8: 51.2; got "
                                "\"%.40s\"",
                                tm_node_place(file, node, place, sizeof place), node->key);
        out->step_count++;
    }
    return 0;
}

static int read_skipped(const char *file, const struct tm_node *map, const struct model_figures *figures,
                        struct tm_layout_rules *rules, struct tm_error *e)
{
    char place[300];
    for (size_t i = 0; i < figures->stages_skipped.count; i++) {
        double stages;
        const char *text = figures->stages_skipped.items[i];
        if (!tm_number_double(text, strlen(text), &stages) || !is_stage_count(stages))
            return tm_error_set(e, TM_EINPUT, "%s: stages_skipped: expected numbers from 1 to %d, got \"%.40s\"",
                                tm_node_place(file, map, place, sizeof place), TM_LAYOUT_STAGES_MAX, text);
        rules->skipped[(int)stages] = true;
    }
    return 0;
}

static int read_model(const char *file, struct tm_node *map, struct tm_arena *arena, struct tm_cost *out,
                      struct tm_error *e)
{
    struct model_figures figures = {.stages_min = 1, .stages_max = TM_LAYOUT_STAGES_MAX, .pipelines_min = 1};
    figures.paper = out->paper;
    struct tm_node *build = map->kind == TM_NODE_MAP ? take_child(map, "build_ms") : NULL;
    struct tm_node *steps = map->kind == TM_NODE_MAP ? take_child(map, "step_ms") : NULL;
    int rc = tm_fields_read(file, map, model_fields, arena, &figures, e);
    if (rc == 0) rc = read_build(file, build, &figures.paper, e);
    if (rc == 0) rc = read_steps(file, steps, out, e);
    if (rc == 0) rc = read_skipped(file, map, &figures, &out->rules, e);
    if (rc != 0) return rc;
    char place[300];
    if (figures.stages_min > figures.stages_max)
        return tm_error_set(e, TM_EINPUT, "%s: stages_min is greater than stages_max",
                            tm_node_place(file, map, place, sizeof place));
    out->rules.stages_min = (int)figures.stages_min;
    out->rules.stages_max = (int)figures.stages_max;
    out->rules.pipelines_min = (int)figures.pipelines_min;
    out->paper = figures.paper;
    return 0;
}

static int read_models(const char *file, struct tm_node *models, const char *model, struct tm_arena *arena,
                       struct tm_cost *out, struct tm_error *e)
{
    if (models == NULL) return 0;
    char place[300];
    if (models->kind != TM_NODE_MAP)
        return tm_error_set(e, TM_EINPUT, "%s: models: expected names of models with their figures",
                            tm_node_place(file, models, place, sizeof place));
    struct tm_node *chosen = take_child(models, model);
    if (chosen == NULL) chosen = take_child(models, "default");
    return chosen == NULL ? 0 : read_model(file, chosen, arena, out, e);
}

static int check_measured(const char *file, const struct tm_cost *cost, struct tm_error *e)
{
    if (cost->kind != TM_COST_MEASURED) return 0;
    if (!(cost->measured.link_bit_s > 0))
        return tm_error_set(e, TM_EINPUT,
                            "%s: link: a measured cost file gives the bandwidth of a link, for example 10Gbit/s", file);
    return 0;
}

/* From real time to the trace's. */
static void change_clock(struct tm_cost *cost, double factor)
{
    struct tm_measured_cost *measured = &cost->measured;
    double *times[] = {&measured->reform_ms,       &measured->reform_per_instance_ms,
                       &measured->link_latency_ms, &measured->detect_ms,
                       &measured->begin_s,         &measured->join_s,
                       &measured->leave_s,         &measured->drain_s,
                       &measured->stop_s};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        *times[i] *= factor;
    measured->link_bit_s /= factor;
    measured->store_bit_s /= factor;
}

static int read_root(const char *file, struct tm_node *root, const char *model, struct tm_arena *arena,
                     struct tm_cost *out, struct tm_error *e)
{
    struct file_figures figures = {.start_s = 120, .copy_interval_s = 600, .leave_s = NAN, .speed = 1};
    char place[300];
    if (root->kind != TM_NODE_MAP)
        return tm_error_set(e, TM_EINPUT, "%s: expected \"tidemill-cost: 1\", then keys and values",
                            tm_node_place(file, root, place, sizeof place));
    struct tm_node *models = take_child(root, "models"), *points = take_child(root, "transfer_us");
    int rc = tm_fields_read(file, root, file_fields, arena, &figures, e);
    if (rc != 0) return rc;
    out->kind = (enum tm_cost_kind)figures.kind;
    double factor = out->kind == TM_COST_MEASURED ? figures.speed : 1;
    out->start_s = figures.start_s;
    out->copy_interval_s = figures.copy_interval_s;
    out->paper.rollback_ms = figures.rollback_ms;
    double bit_s = (double)figures.link_bit_s;
    out->measured = (struct tm_measured_cost){
        figures.reform_ms,
        figures.reform_per_instance_ms,
        bit_s,
        figures.link_latency_ms,
        figures.store_bit_s > 0 ? (double)figures.store_bit_s : bit_s,
        figures.detect_ms,
        figures.begin_s,
        figures.join_s,
        !isnan(figures.leave_s),
        isnan(figures.leave_s) ? 0 : figures.leave_s,
        figures.drain_s,
        figures.stop_s,
        figures.speed,
        figures.paced,
    };
    change_clock(out, factor);
    snprintf(out->source, sizeof out->source, "%s", figures.source != NULL ? figures.source : file);
    if (out->kind == TM_COST_PAPER) rc = read_points(file, points, &out->paper, e);
    if (rc == 0) rc = read_models(file, models, model, arena, out, e);
    for (int i = 0; i < out->step_count; i++)
        out->steps[i].step_ms *= factor;
    return rc != 0 ? rc : check_measured(file, out, e);
}

/* ---- public ---- */

int tm_cost_parse(const char *file, const char *text, size_t length, const char *model, struct tm_cost *out,
                  struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_node *root;
    struct tm_cost cost = {.rules = {.stages_min = 1, .stages_max = TM_LAYOUT_STAGES_MAX, .pipelines_min = 1}};
    tm_arena_init(&arena, 8 << 20);
    int rc = tm_doc_parse_yaml(file, text, length, &arena, &root, e);
    if (rc == 0) rc = read_root(file, root, model, &arena, &cost, e);
    tm_arena_deinit(&arena);
    if (rc == 0) *out = cost;
    return rc;
}

void tm_cost_change_speed(struct tm_cost *cost, double speed)
{
    if (cost->kind != TM_COST_MEASURED) return;
    double factor = speed / cost->measured.speed;
    change_clock(cost, factor);
    for (int i = 0; i < cost->step_count && !cost->measured.paced; i++)
        cost->steps[i].step_ms *= factor;
    cost->measured.speed = speed;
}

static void put_number(struct tm_text *out, const char *key, double value)
{
    tm_text_printf(out, "%s: %.6g\n", key, value);
}

/* Between quotes; what would end them is left out. */
static void put_quoted(struct tm_text *out, const char *text)
{
    tm_text_putc(out, '"');
    for (; *text != '\0'; text++)
        tm_text_putc(out, *text == '"' || *text == '\\' || (unsigned char)*text < ' ' ? ' ' : *text);
    tm_text_putc(out, '"');
}

static void print_model(const struct tm_cost *cost, const char *model, struct tm_text *out)
{
    tm_text_puts(out, "models:\n  ");
    put_quoted(out, model);
    tm_text_printf(out, ":\n    stages_min: %d\n    stages_max: %d\n    pipelines_min: %d\n", cost->rules.stages_min,
                   cost->rules.stages_max, cost->rules.pipelines_min);
    bool any = false;
    for (int stages = 1; stages <= TM_LAYOUT_STAGES_MAX; stages++) {
        if (!cost->rules.skipped[stages]) continue;
        tm_text_printf(out, any ? ", %d" : "    stages_skipped: [%d", stages);
        any = true;
    }
    if (any) tm_text_puts(out, "]\n");
    if (cost->step_count > 0) tm_text_puts(out, "    step_ms:\n");
    for (int i = 0; i < cost->step_count; i++)
        tm_text_printf(out, "      %dx%d: %.6g\n", cost->steps[i].pipelines, cost->steps[i].stages,
                       cost->steps[i].step_ms / cost->measured.speed);
}

void tm_cost_print(const struct tm_cost *cost, const char *model, struct tm_text *out)
{
    struct tm_cost wall = *cost;
    const struct tm_measured_cost *measured = &wall.measured;
    double speed = cost->measured.speed;
    change_clock(&wall, 1 / speed);
    tm_text_puts(out, "tidemill-cost: 1\nkind: measured\nsource: ");
    put_quoted(out, cost->source);
    tm_text_putc(out, '\n');
    put_number(out, "speed", speed);
    put_number(out, "reform_ms", measured->reform_ms);
    put_number(out, "reform_per_instance_ms", measured->reform_per_instance_ms);
    tm_text_printf(out, "link: %.0fbit/s\n", fmin(fmax(measured->link_bit_s, 1), 1e18));
    put_number(out, "link_latency_ms", measured->link_latency_ms);
    tm_text_printf(out, "store: %.0fbit/s\n", fmin(fmax(measured->store_bit_s, 1), 1e18));
    put_number(out, "detect_ms", measured->detect_ms);
    put_number(out, "begin_s", measured->begin_s);
    put_number(out, "join_s", measured->join_s);
    if (measured->leaves) put_number(out, "leave_s", measured->leave_s);
    put_number(out, "drain_s", measured->drain_s);
    put_number(out, "stop_s", measured->stop_s);
    if (measured->paced) tm_text_puts(out, "paced: true\n");
    put_number(out, "start_s", cost->start_s);
    put_number(out, "copy_interval_s", cost->copy_interval_s);
    print_model(cost, model, out);
}

static int load_file(struct tm_env *env, const char *path, const char *model, struct tm_cost *out, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, TM_COST_BYTES_MAX);
    int rc = tm_content_read(env, path, &text, e);
    if (rc == 0) rc = tm_cost_parse(path, tm_text_string(&text), text.length, model, out, e);
    tm_text_deinit(&text);
    return rc;
}

int tm_cost_load(struct tm_env *env, const char *name, const char *model, struct tm_cost *out, struct tm_error *e)
{
    const struct {
        const char *name, *begin, *end;
    } shipped[] = {{"paper", tm_embedded_paper_cost_begin, tm_embedded_paper_cost_end},
                   {"local", tm_embedded_local_cost_begin, tm_embedded_local_cost_end},
                   {"paced", tm_embedded_paced_cost_begin, tm_embedded_paced_cost_end}};
    for (size_t i = 0; i < sizeof shipped / sizeof *shipped; i++)
        if (strcmp(name, shipped[i].name) == 0)
            return tm_cost_parse(name, shipped[i].begin, (size_t)(shipped[i].end - shipped[i].begin), model, out, e);
    if (strcmp(name, "measured") != 0) return load_file(env, name, model, out, e);
    struct tm_arena arena;
    tm_arena_init(&arena, 1 << 20);
    struct tm_error no_path = {0};
    const char *path = tm_path(env, TM_PATH_DATA, "measured.tmcost", &arena, &no_path);
    bool missing = path != NULL && !env->file_exists(env, path);
    int rc = 0;
    if (path == NULL)
        rc = tm_error_set(e, no_path.code, "%s", no_path.text);
    else if (!missing)
        rc = load_file(env, path, model, out, e);
    tm_arena_deinit(&arena);
    if (missing)
        rc = tm_error_set(e, TM_ENOTFOUND,
                          "--cost measured: no run on this machine has measured its migration costs yet; name a file, "
                          "or use --cost paper");
    return rc;
}
