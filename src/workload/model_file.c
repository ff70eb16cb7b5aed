/* The file form of a model.
 *
 *     tidemill-model 1
 *     name: resnet50                        keys, each at most once; name is required
 *     input: 3x224x224
 *     global-batch: 2048                    where the model comes with a batch of its own
 *     micro-batch: 32
 *     optimizer-states: 2                   values kept per parameter besides the weight
 *     recompute: 1                          blocks' activations are always recomputed
 *     compile: 1                            kernels are fused by a compiler
 *     gradients: 16                         have 16 bits in training of 16 bits; without: 32, as under autocast
 *     cut: even                             stages have as many layers each; without: as much to do
 *     source: where the figures come from
 *
 *     name,kind,params,forward_flops,traffic_values,saved_values,output_values,ops,tied
 *     stem,conv,9536,236027904,...          one layer a line, in order; figures per sample
 *
 *     [throughput]                          optional: measured layouts
 *     pipelines,stages,step_ms,samples_per_s
 *
 * kind is conv, depthwise, matmul, block, embedding or norm. `tied` names the layer with the same weights, both ways,
 * and one of the two has params 0. Behind `tied` the header may go on with attention_flops, unaligned_values,
 * wide_values and frozen_params, all four: the parts of the figures before them that model.h tells; and behind them
 * with attention_scores, which heads of 128 are taken for where it is missing. '#' starts a comment line. */
#include "workload/model.h"

#include "base/alloc.h"
#include "base/csv.h"
#include "base/number.h"

#include <stdio.h>
#include <string.h>

static const char heading[] = "tidemill-model 1";
enum { LAYER_COLUMNS = 9, MORE_COLUMNS = 13, MOST_COLUMNS = 14, POINT_COLUMNS = 4 };

static const char layer_header[] = "name,kind,params,forward_flops,traffic_values,saved_values,output_values,ops,tied";
static const char more_header[] = "name,kind,params,forward_flops,traffic_values,saved_values,output_values,ops,tied,"
                                  "attention_flops,unaligned_values,wide_values,frozen_params";
static const char most_header[] = "name,kind,params,forward_flops,traffic_values,saved_values,output_values,ops,tied,"
                                  "attention_flops,unaligned_values,wide_values,frozen_params,attention_scores";
static const struct {
    size_t columns;
    const char *text;
} layer_headers[] = {{LAYER_COLUMNS, layer_header}, {MORE_COLUMNS, more_header}, {MOST_COLUMNS, most_header}};
static const char point_header[] = "pipelines,stages,step_ms,samples_per_s";

enum part { PART_KEYS, PART_LAYERS, PART_POINTS_HEADER, PART_POINTS };

struct reader {
    struct tm_model *model;
    struct tm_csv *csv;
    struct tm_error *e;
    enum part part;
    unsigned keys_seen;
    size_t columns;                        /* of layers */
    const char *tied[TM_MODEL_LAYERS_MAX]; /* by layer: name of the tied layer, or NULL */
    size_t layer_capacity;
    size_t point_capacity;
    struct tm_layer *layers; /* grows on the heap, moves to the model's arena at the end */
    struct tm_model_point *points;
};

static int wrong(const struct reader *reader, const char *expected)
{
    return tm_error_set(reader->e, TM_EINPUT, "%s:%d: expected %s", reader->csv->file, reader->csv->line, expected);
}

/* ---- keys ---- */

static int keep_text(struct reader *reader, struct tm_slice value, const char **out)
{
    if (value.length > 500 || !tm_slice_is_plain(value)) return wrong(reader, "a line of text");
    *out = tm_arena_strndup(&reader->model->arena, value.data, value.length);
    return *out != NULL ? 0 : tm_error_nomem(reader->e);
}

static int keep_count(const struct reader *reader, struct tm_slice value, int64_t max, int *out)
{
    int64_t number = 0;
    if (!tm_number_i64(value.data, value.length, &number) || number < 0 || number > max)
        return wrong(reader, "a whole number of 0 or more");
    *out = (int)number;
    return 0;
}

static int keep_switch(const struct reader *reader, struct tm_slice value, bool *out)
{
    int number = 0;
    int rc = keep_count(reader, value, 1, &number);
    *out = number != 0;
    return rc;
}

static int read_key(struct reader *reader)
{
    static const char *const names[] = {"name",          "input",       "source",    "optimizer-states",
                                        "global-batch",  "micro-batch", "recompute", "compile",
                                        "channels-last", "cut",         "gradients"};
    enum { KEYS = sizeof names / sizeof *names };
    struct tm_slice name;
    struct tm_slice value;
    if (!tm_csv_key(tm_csv_raw(reader->csv), &name, &value))
        return wrong(reader, "KEY: VALUE, or the header of the layers");
    unsigned key = 0;
    while (key < KEYS && !tm_slice_equals(name, names[key]))
        key++;
    if (key == KEYS)
        return wrong(reader, "one of the keys name, input, source, optimizer-states, global-batch, micro-batch, "
                             "recompute, compile, channels-last, cut, gradients");
    if ((reader->keys_seen & 1U << key) != 0) return wrong(reader, "each key once");
    reader->keys_seen |= 1U << key;
    struct tm_model *model = reader->model;
    switch (key) {
    case 0:
        return keep_text(reader, value, &model->name);
    case 1:
        return keep_text(reader, value, &model->input);
    case 2:
        return keep_text(reader, value, &model->source);
    case 3:
        return keep_count(reader, value, 16, &model->optimizer_states);
    case 4:
        return keep_count(reader, value, 1 << 30, &model->global_batch);
    case 5:
        return keep_count(reader, value, 1 << 30, &model->micro_batch);
    case 6:
        return keep_switch(reader, value, &model->recompute);
    case 7:
        return keep_switch(reader, value, &model->compiled);
    case 8:
        return keep_switch(reader, value, &model->channels_last);
    case 9:
        model->even_cut = tm_slice_equals(value, "even");
        return model->even_cut ? 0 : wrong(reader, "cut: even");
    default:
        return tm_model__read_gradients(value.data, value.length, &model->narrow_gradients)
                   ? 0
                   : wrong(reader, "gradients: 16 or 32");
    }
}

/* ---- tables ---- */

static bool is_row(const struct tm_csv *csv, const char *text)
{
    size_t at = 0;
    for (size_t i = 0; i < csv->field_count; i++) {
        struct tm_slice field = tm_slice_trim(csv->fields[i]);
        if (strlen(text + at) < field.length || memcmp(text + at, field.data, field.length) != 0) return false;
        at += field.length;
        if (text[at] != (i + 1 < csv->field_count ? ',' : '\0')) return false;
        at++;
    }
    return true;
}

static int read_figures(const struct reader *reader, size_t first, double *const *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct tm_slice field = tm_slice_trim(reader->csv->fields[first + i]);
        if (!tm_number_double(field.data, field.length, out[i]) || *out[i] < 0 || *out[i] > 1e25)
            return wrong(reader, "numbers of 0 or more");
    }
    return 0;
}

/* The columns behind `tied`: parts of what stands before it. */
static int read_parts(const struct reader *reader, struct tm_layer *layer)
{
    double *const figures[] = {&layer->attention_flops, &layer->unaligned_values, &layer->wide_values,
                               &layer->frozen_params, &layer->attention_scores};
    int rc = read_figures(reader, LAYER_COLUMNS, figures, reader->columns - LAYER_COLUMNS);
    if (rc != 0) return rc;
    if (reader->columns < MOST_COLUMNS) layer->attention_scores = layer->attention_flops / (4 * 128);
    bool fine = layer->attention_flops <= layer->forward_flops && layer->wide_values <= layer->saved_values &&
                layer->frozen_params <= layer->params;
    return fine ? 0 : wrong(reader, "parts no larger than forward_flops, saved_values and params");
}

static const char *header_of(size_t columns)
{
    size_t i = 0;
    while (layer_headers[i].columns != columns)
        i++;
    return layer_headers[i].text;
}

static int read_layer(struct reader *reader)
{
    struct tm_model *model = reader->model;
    if (reader->csv->field_count != reader->columns) return wrong(reader, header_of(reader->columns));
    if (model->layer_count == TM_MODEL_LAYERS_MAX)
        return tm_error_set(reader->e, TM_ELIMIT, "%s: more than %d layers", reader->csv->file, TM_MODEL_LAYERS_MAX);
    struct tm_layer layer = {.tied = -1};
    int kind = 0;
    while (tm_layer_kind_names[kind] != NULL &&
           !tm_slice_equals(tm_slice_trim(reader->csv->fields[1]), tm_layer_kind_names[kind]))
        kind++;
    if (tm_layer_kind_names[kind] == NULL)
        return wrong(reader, "kind conv, depthwise, matmul, block, embedding or norm");
    layer.kind = (enum tm_layer_kind)kind;
    double *const figures[] = {&layer.params,       &layer.forward_flops, &layer.traffic_values,
                               &layer.saved_values, &layer.output_values, &layer.ops};
    int rc = keep_text(reader, tm_slice_trim(reader->csv->fields[0]), &layer.name);
    if (rc == 0 && (layer.name[0] == '\0' || layer.name[0] == '#' || strpbrk(layer.name, ",\"") != NULL))
        rc = wrong(reader, "a name for the layer, without commas and quotes");
    if (rc == 0) rc = read_figures(reader, 2, figures, 6);
    if (rc == 0 && reader->columns > LAYER_COLUMNS) rc = read_parts(reader, &layer);
    struct tm_slice tied = tm_slice_trim(reader->csv->fields[8]);
    const char *tied_name = NULL;
    if (rc == 0 && tied.length > 0) rc = keep_text(reader, tied, &tied_name);
    void *layers = reader->layers;
    if (rc == 0 &&
        tm_grow(&layers, &reader->layer_capacity, model->layer_count + 1, sizeof layer, TM_MODEL_LAYERS_MAX) != 0)
        rc = tm_error_nomem(reader->e);
    reader->layers = layers;
    if (rc != 0) return rc;
    reader->tied[model->layer_count] = tied_name;
    reader->layers[model->layer_count++] = layer;
    return 0;
}

static int read_point(struct reader *reader)
{
    struct tm_model *model = reader->model;
    if (reader->csv->field_count != POINT_COLUMNS) return wrong(reader, point_header);
    struct tm_model_point point = {0};
    double *const figures[] = {&point.step_ms, &point.samples_per_s};
    int rc = keep_count(reader, tm_slice_trim(reader->csv->fields[0]), 1 << 20, &point.pipelines);
    if (rc == 0) rc = keep_count(reader, tm_slice_trim(reader->csv->fields[1]), 1 << 20, &point.stages);
    if (rc == 0) rc = read_figures(reader, 2, figures, 2);
    void *points = reader->points;
    if (rc != 0) return rc;
    rc = tm_grow(&points, &reader->point_capacity, model->point_count + 1, sizeof point, TM_MODEL_POINTS_MAX);
    reader->points = points;
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(reader->e);
    if (rc != 0)
        return tm_error_set(reader->e, TM_ELIMIT, "%s: more than %d measured layouts", reader->csv->file,
                            TM_MODEL_POINTS_MAX);
    reader->points[model->point_count++] = point;
    return 0;
}

static int read_row(struct reader *reader)
{
    bool section =
        reader->csv->field_count == 1 && tm_slice_equals(tm_slice_trim(reader->csv->fields[0]), "[throughput]");
    switch (reader->part) {
    case PART_KEYS:
        reader->columns = 0;
        for (size_t i = 0; i < sizeof layer_headers / sizeof *layer_headers; i++) {
            if (is_row(reader->csv, layer_headers[i].text)) reader->columns = layer_headers[i].columns;
        }
        if (reader->columns == 0) return read_key(reader);
        reader->part = PART_LAYERS;
        return 0;
    case PART_LAYERS:
        if (!section) return read_layer(reader);
        reader->part = PART_POINTS_HEADER;
        return 0;
    case PART_POINTS_HEADER:
        if (!is_row(reader->csv, point_header)) return wrong(reader, point_header);
        reader->part = PART_POINTS;
        return 0;
    default:
        return read_point(reader);
    }
}

/* ---- the whole ---- */

static int resolve_tied(struct reader *reader)
{
    for (size_t i = 0; i < reader->model->layer_count; i++) {
        if (reader->tied[i] == NULL) continue;
        size_t other = 0;
        while (other < reader->model->layer_count && strcmp(reader->layers[other].name, reader->tied[i]) != 0)
            other++;
        if (other == reader->model->layer_count || other == i)
            return tm_error_set(reader->e, TM_EINPUT, "%s: layer %s is tied to %s, which is not another layer",
                                reader->csv->file, reader->layers[i].name, reader->tied[i]);
        reader->layers[i].tied = (int)other;
    }
    for (size_t i = 0; i < reader->model->layer_count; i++) {
        const struct tm_layer *layer = &reader->layers[i];
        if (layer->tied < 0) continue;
        const struct tm_layer *other = &reader->layers[layer->tied];
        if (other->tied != (int)i || (layer->params > 0 && other->params > 0))
            return tm_error_set(reader->e, TM_EINPUT,
                                "%s: layers %s and %s are tied: both must name each other, and one have params 0",
                                reader->csv->file, layer->name, other->name);
    }
    return 0;
}

static int move_to_arena(struct reader *reader)
{
    struct tm_model *model = reader->model;
    size_t layer_bytes = model->layer_count * sizeof *model->layers;
    size_t point_bytes = model->point_count * sizeof *model->points;
    model->layers = tm_arena_alloc(&model->arena, layer_bytes);
    model->points = tm_arena_alloc(&model->arena, point_bytes + 1);
    if (model->layers == NULL || model->points == NULL) return tm_error_nomem(reader->e);
    memcpy(model->layers, reader->layers, layer_bytes);
    if (point_bytes > 0) memcpy(model->points, reader->points, point_bytes);
    return 0;
}

static int read_all(struct reader *reader)
{
    int rc = tm_csv_next(reader->csv, reader->e);
    if (rc >= 0 &&
        (rc == 0 || reader->csv->field_count != 1 || !tm_slice_equals(tm_slice_trim(reader->csv->fields[0]), heading)))
        return tm_error_set(reader->e, TM_EINPUT, "%s:1: expected \"%s\" in the first line", reader->csv->file,
                            heading);
    while (rc >= 0 && (rc = tm_csv_next(reader->csv, reader->e)) == 1)
        rc = read_row(reader);
    if (rc != 0) return rc;
    if (reader->model->name[0] == '\0')
        return tm_error_set(reader->e, TM_EINPUT, "%s: key \"name\" is missing", reader->csv->file);
    if (reader->model->layer_count == 0)
        return tm_error_set(reader->e, TM_EINPUT, "%s: no layers; the table starts with %s", reader->csv->file,
                            layer_header);
    rc = resolve_tied(reader);
    return rc == 0 ? move_to_arena(reader) : rc;
}

int tm_model__parse(const char *file, const char *text, size_t length, struct tm_model *model, struct tm_error *e)
{
    struct tm_model fresh;
    struct reader *reader = tm_calloc(1, sizeof *reader);
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (reader == NULL || csv == NULL) {
        tm_free(reader);
        tm_free(csv);
        return tm_error_nomem(e);
    }
    tm_model_init(&fresh);
    tm_csv_init(csv, file, text, length);
    csv->comments = true;
    reader->model = &fresh;
    reader->csv = csv;
    reader->e = e;
    int rc = read_all(reader);
    tm_free(reader->layers);
    tm_free(reader->points);
    tm_free(reader);
    tm_free(csv);
    if (rc != 0) {
        tm_model_deinit(&fresh);
        return rc;
    }
    tm_model_deinit(model);
    *model = fresh;
    return 0;
}

/* ---- writing ---- */

static size_t columns_of(const struct tm_model *model)
{
    size_t columns = LAYER_COLUMNS;
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct tm_layer *layer = &model->layers[i];
        if (layer->attention_scores > 0) return MOST_COLUMNS;
        if (layer->attention_flops + layer->unaligned_values + layer->wide_values + layer->frozen_params > 0)
            columns = MORE_COLUMNS;
    }
    return columns;
}

static void put_layer(const struct tm_model *model, const struct tm_layer *layer, size_t columns, struct tm_text *out)
{
    const double figures[] = {layer->params,       layer->forward_flops, layer->traffic_values,
                              layer->saved_values, layer->output_values, layer->ops};
    const double parts[] = {layer->attention_flops, layer->unaligned_values, layer->wide_values, layer->frozen_params,
                            layer->attention_scores};
    char number[TM_NUMBER_TEXT_MAX];
    tm_text_printf(out, "%s,%s", layer->name, tm_layer_kind_names[layer->kind]);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        tm_text_printf(out, ",%s", tm_number_print(figures[i], number));
    tm_text_printf(out, ",%s", layer->tied >= 0 ? model->layers[layer->tied].name : "");
    for (size_t i = 0; i < columns - LAYER_COLUMNS; i++)
        tm_text_printf(out, ",%s", tm_number_print(parts[i], number));
    tm_text_putc(out, '\n');
}

void tm_model__print(const struct tm_model *model, struct tm_text *out)
{
    char ms[TM_NUMBER_TEXT_MAX];
    char rate[TM_NUMBER_TEXT_MAX];
    tm_text_printf(out, "%s\nname: %s\n", heading, model->name);
    if (model->input[0] != '\0') tm_text_printf(out, "input: %s\n", model->input);
    if (model->global_batch > 0) tm_text_printf(out, "global-batch: %d\n", model->global_batch);
    if (model->micro_batch > 0) tm_text_printf(out, "micro-batch: %d\n", model->micro_batch);
    if (model->even_cut) tm_text_puts(out, "cut: even\n");
    tm_text_printf(out, "optimizer-states: %d\n", model->optimizer_states);
    if (model->source[0] != '\0') tm_text_printf(out, "source: %s\n", model->source);
    if (model->recompute) tm_text_puts(out, "recompute: 1\n");
    if (model->compiled) tm_text_puts(out, "compile: 1\n");
    if (model->channels_last) tm_text_puts(out, "channels-last: 1\n");
    if (model->narrow_gradients) tm_text_puts(out, "gradients: 16\n");
    size_t columns = columns_of(model);
    tm_text_printf(out, "\n%s\n", header_of(columns));
    for (size_t i = 0; i < model->layer_count; i++)
        put_layer(model, &model->layers[i], columns, out);
    if (model->point_count > 0) tm_text_printf(out, "\n[throughput]\n%s\n", point_header);
    for (size_t i = 0; i < model->point_count; i++) {
        const struct tm_model_point *point = &model->points[i];
        tm_text_printf(out, "%d,%d,%s,%s\n", point->pipelines, point->stages, tm_number_print(point->step_ms, ms),
                       tm_number_print(point->samples_per_s, rate));
    }
}
