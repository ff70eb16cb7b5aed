/* Our form of a profile: CSV tables behind each other, as in the catalogue.
 *
 *     tidemill-profile 1
 *     source: where and how it was measured
 *
 *     [network]                       what is known of a network as a whole
 *     network,optimizer_states,input,model
 *
 *     [step]                          training steps on one GPU; medians, in ms; empty: not measured
 *     network,gpu,precision,micro_batch,forward_ms,backward_ms,optimizer_ms,peak_gib,step_ms_p10,params,
 *     train_gflop_per_sample,data_ms,other_ms,step_ms_p90,iterations,micro_batches,busy_cores,cores,overhead_percent,
 *     recompute,compile
 *
 *     [layer]                         a network's layers in order, as in a model file, with measured times
 *     network,name,kind,params,forward_flops,traffic_values,saved_values,output_values,ops,tied,forward_ms,backward_ms
 *
 *     [run]                           data-parallel iterations over links of `mbit` Mbit/s; medians, in ms
 *     network,world,mbit,batch,grad_bytes,iter_ms,iter_ms_std,compute_ms,compute_ms_std,all_reduce_ms
 *
 *     [gradient]                      gradients in the order in which the backward pass gives them; `ready` is the
 *     network,bytes,ready             share of the pass that is over then, from 0 to 1
 *
 * Columns are found by name, in any order; '#' starts a comment line. Other people's CSV with the same columns under
 * other names (fwd_ms, bwd_ms, opt_ms; model, iter_ms_median, compute_ms_mean) is read too: then the header is the
 * first line and its columns tell which table it is. Rows with family, layers, hidden, heads, kv_heads, ffn, ctx and
 * vocab are steps of transformers without a name: they get one, and a row of [network] with their formula
 * (profile_sizes.h). Steps of other people's that nobody timed (empty, nan, oom) are counted and passed over. */
#include "workload/profile.h"

#include "base/alloc.h"
#include "base/content.h"
#include "base/csv.h"
#include "base/number.h"
#include "workload/profile_sizes.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char heading[] = "tidemill-profile 1";

void tm_profile_init(struct tm_profile *profile)
{
    *profile = (struct tm_profile){.source = ""};
    tm_arena_init(&profile->arena, 64 << 20);
}

void tm_profile_deinit(struct tm_profile *profile)
{
    tm_arena_deinit(&profile->arena);
    tm_free(profile->steps);
    tm_free(profile->runs);
    tm_free(profile->gradients);
    tm_free(profile->networks);
    tm_free(profile->layers);
    *profile = (struct tm_profile){.source = ""};
}

double tm_profile_step_ms(const struct tm_profile_step *step)
{
    return step->forward_ms + step->backward_ms + step->optimizer_ms;
}

double tm_profile__whole_step_ms(const struct tm_profile_step *step)
{
    int micro_batches = step->micro_batches > 0 ? step->micro_batches : 1;
    return micro_batches * (step->forward_ms + step->backward_ms) + step->optimizer_ms +
           (isnan(step->data_ms) ? 0 : step->data_ms) + (isnan(step->other_ms) ? 0 : step->other_ms);
}

const char *tm_profile_model_name(const struct tm_profile *profile, const char *network)
{
    for (size_t i = 0; i < profile->network_count; i++) {
        if (strcmp(profile->networks[i].network, network) == 0) return profile->networks[i].model;
    }
    return "";
}

/* ---- columns ---- */

/* What a field may be; and what an empty one means. */
enum field_type {
    NAME,       /* a word that must be there */
    WORD,       /* a word, maybe empty */
    COUNT,      /* a whole number of 1 or more */
    MAYBE,      /* likewise, or empty: 0 */
    SMALL,      /* a whole number from 0 to 16 */
    POSITIVE,   /* a number above 0 */
    FIGURE,     /* a number of 0 or more, or empty: NaN */
    ZERO,       /* likewise, but empty: 0 */
    SHARE,      /* from 0 to 1 */
    FLAG,       /* 0 or 1, false or true, or empty: 0 */
    PRECISION,  /* a number format */
    LAYER_KIND, /* of a layer */
};

/* Our name of a column, other names for it behind each other with '|' between them, where it goes, and whether it must
 * be there. */
struct column {
    const char *name;
    const char *other; /* NULL: none */
    enum field_type type;
    bool required;
    size_t at; /* in the row's struct */
};

#define STEP(member) offsetof(struct tm_profile_step, member)
static const struct column step_columns[] = {
    {"network", NULL, NAME, true, STEP(network)},
    {"gpu", "gpu_name|device|accelerator", WORD, false, STEP(gpu)},
    {"precision", "dtype", PRECISION, true, STEP(precision)},
    {"micro_batch", "batch|batch_size|micro_batch_size|microbatch|mbs", COUNT, true, STEP(micro_batch)},
    {"forward_ms", "fwd_ms", POSITIVE, true, STEP(forward_ms)},
    {"backward_ms", "bwd_ms", POSITIVE, true, STEP(backward_ms)},
    {"optimizer_ms", "opt_ms", ZERO, false, STEP(optimizer_ms)},
    {"peak_gib", "memory_gib", FIGURE, false, STEP(peak_gib)},
    {"step_ms_p10", NULL, FIGURE, false, STEP(step_ms_p10)},
    {"params", "parameters|n_params|num_params", FIGURE, false, STEP(params)},
    {"train_gflop_per_sample", NULL, FIGURE, false, STEP(train_gflop_per_sample)},
    {"data_ms", NULL, FIGURE, false, STEP(data_ms)},
    {"other_ms", NULL, FIGURE, false, STEP(other_ms)},
    {"step_ms_p90", NULL, FIGURE, false, STEP(step_ms_p90)},
    {"iterations", NULL, MAYBE, false, STEP(iterations)},
    {"micro_batches", NULL, MAYBE, false, STEP(micro_batches)},
    {"busy_cores", NULL, FIGURE, false, STEP(busy_cores)},
    {"cores", NULL, MAYBE, false, STEP(cores)},
    {"overhead_percent", NULL, FIGURE, false, STEP(overhead_percent)},
    {"recompute", "checkpoint|gradient_checkpointing|activation_checkpointing", FLAG, false, STEP(recompute)},
    {"compile", "compiled|torch_compile", FLAG, false, STEP(compile)},
};

#define RUN(member) offsetof(struct tm_profile_run, member)
static const struct column run_columns[] = {
    {"network", "model", NAME, true, RUN(network)},
    {"world", NULL, COUNT, true, RUN(world)},
    {"mbit", NULL, POSITIVE, true, RUN(mbit)},
    {"batch", NULL, COUNT, true, RUN(batch)},
    {"grad_bytes", NULL, POSITIVE, true, RUN(grad_bytes)},
    {"iter_ms", "iter_ms_median", POSITIVE, true, RUN(iter_ms)},
    {"iter_ms_std", NULL, FIGURE, false, RUN(iter_ms_std)},
    {"compute_ms", "compute_ms_mean", POSITIVE, true, RUN(compute_ms)},
    {"compute_ms_std", NULL, FIGURE, false, RUN(compute_ms_std)},
    {"all_reduce_ms", "flat_allreduce_ms_median", FIGURE, false, RUN(all_reduce_ms)},
};

#define GRADIENT(member) offsetof(struct tm_profile_gradient, member)
static const struct column gradient_columns[] = {
    {"network", NULL, NAME, true, GRADIENT(network)},
    {"bytes", NULL, POSITIVE, true, GRADIENT(bytes)},
    {"ready", NULL, SHARE, true, GRADIENT(ready)},
};

#define NETWORK(member) offsetof(struct tm_profile_network, member)
static const struct column network_columns[] = {
    {"network", NULL, NAME, true, NETWORK(network)},
    {"optimizer_states", NULL, SMALL, true, NETWORK(optimizer_states)},
    {"input", NULL, WORD, false, NETWORK(input)},
    {"model", NULL, WORD, false, NETWORK(model)},
};

#define LAYER(member) offsetof(struct tm_profile_layer, member)
static const struct column layer_columns[] = {
    {"network", NULL, NAME, true, LAYER(network)},
    {"name", NULL, NAME, true, LAYER(layer.name)},
    {"kind", NULL, LAYER_KIND, true, LAYER(layer.kind)},
    {"params", NULL, ZERO, true, LAYER(layer.params)},
    {"forward_flops", NULL, ZERO, true, LAYER(layer.forward_flops)},
    {"traffic_values", NULL, ZERO, true, LAYER(layer.traffic_values)},
    {"saved_values", NULL, ZERO, true, LAYER(layer.saved_values)},
    {"output_values", NULL, ZERO, true, LAYER(layer.output_values)},
    {"ops", NULL, ZERO, true, LAYER(layer.ops)},
    {"tied", NULL, WORD, false, LAYER(tied)},
    {"forward_ms", NULL, FIGURE, false, LAYER(forward_ms)},
    {"backward_ms", NULL, FIGURE, false, LAYER(backward_ms)},
};

enum { COLUMNS_MAX = 24 };

/* ---- tables ---- */

union row {
    struct tm_profile_network network;
    struct tm_profile_step step;
    struct tm_profile_layer layer;
    struct tm_profile_run run;
    struct tm_profile_gradient gradient;
};

enum table { TABLE_NONE, TABLE_NETWORKS, TABLE_STEPS, TABLE_LAYERS, TABLE_RUNS, TABLE_GRADIENTS, TABLES };

#define COLUMNS(list) (list), sizeof(list) / sizeof *(list)
static const struct {
    const char *name;
    const struct column *columns;
    size_t column_count;
    size_t row_size;
    size_t rows_at; /* the array, its count and its capacity in the profile */
    size_t count_at;
    size_t capacity_at;
} tables[TABLES] = {
#define TABLE(name, columns, type, rows, count, capacity)                                                              \
    {                                                                                                                  \
        (name), COLUMNS(columns), sizeof(type), offsetof(struct tm_profile, rows), offsetof(struct tm_profile, count), \
            offsetof(struct tm_profile, capacity)                                                                      \
    }
    [TABLE_NETWORKS] =
        TABLE("[network]", network_columns, struct tm_profile_network, networks, network_count, network_capacity),
    [TABLE_STEPS] = TABLE("[step]", step_columns, struct tm_profile_step, steps, step_count, step_capacity),
    [TABLE_LAYERS] = TABLE("[layer]", layer_columns, struct tm_profile_layer, layers, layer_count, layer_capacity),
    [TABLE_RUNS] = TABLE("[run]", run_columns, struct tm_profile_run, runs, run_count, run_capacity),
    [TABLE_GRADIENTS] =
        TABLE("[gradient]", gradient_columns, struct tm_profile_gradient, gradients, gradient_count, gradient_capacity),
};

static const char table_list[] = "[network], [step], [layer], [run] or [gradient]";

/* The rows of a table, as bytes: tables differ only in their columns. */
static void *get_rows(const struct tm_profile *profile, enum table table)
{
    void *rows = NULL;
    memcpy(&rows, (const char *)profile + tables[table].rows_at, sizeof rows);
    return rows;
}

static size_t *count_of(struct tm_profile *profile, enum table table)
{
    return (size_t *)((char *)profile + tables[table].count_at);
}

static size_t row_count(const struct tm_profile *profile, enum table table)
{
    size_t count;
    memcpy(&count, (const char *)profile + tables[table].count_at, sizeof count);
    return count;
}

static int append_row(struct tm_profile *profile, enum table table, const void *row)
{
    void *rows = get_rows(profile, table);
    size_t size = tables[table].row_size;
    size_t *count = count_of(profile, table);
    size_t *capacity = (size_t *)((char *)profile + tables[table].capacity_at);
    int rc = tm_grow(&rows, capacity, *count + 1, size, TM_PROFILE_ROWS_MAX);
    memcpy((char *)profile + tables[table].rows_at, &rows, sizeof rows);
    if (rc != 0) return rc;
    memcpy((char *)rows + *count * size, row, size);
    (*count)++;
    return 0;
}

/* ---- fields ---- */

struct reader {
    struct tm_profile *profile;
    struct tm_csv *csv;
    struct tm_error *e;
    enum table table;
    bool has_header;
    bool foreign; /* other people's CSV */
    bool sized;   /* rows have a transformer's sizes instead of a network, or beside its name */
    struct tm_profile__sizes sizes;
    int whole_at;        /* of whole steps, where passes were not timed one by one; -1: passes were */
    int at[COLUMNS_MAX]; /* where each column of the table is in the rows; -1: missing */
};

static int wrong(const struct reader *reader, const char *what, const char *expected)
{
    return tm_error_set(reader->e, TM_EINPUT, "%s:%d: %s: expected %s", reader->csv->file, reader->csv->line, what,
                        expected);
}

static int read_header(struct reader *reader)
{
    const struct column *columns = tables[reader->table].columns;
    assert(tables[reader->table].column_count <= COLUMNS_MAX);
    for (size_t i = 0; i < tables[reader->table].column_count; i++) {
        reader->at[i] = tm_profile__column(reader->csv, columns[i].name);
        if (reader->at[i] < 0 && columns[i].other != NULL)
            reader->at[i] = tm_profile__column(reader->csv, columns[i].other);
        /* The network: from its sizes; passes: from the whole step. */
        bool made = (reader->sized && i == 0) || (reader->whole_at >= 0 && columns[i].type == POSITIVE);
        if (reader->at[i] < 0 && columns[i].required && !made)
            return wrong(reader, columns[i].name, "a column of this name");
    }
    reader->has_header = true;
    return 0;
}

static int read_word(const struct reader *reader, struct tm_slice text, const struct column *column, const char **out)
{
    bool broken = text.length > 0 && (text.data[0] == '#' || memchr(text.data, ',', text.length) != NULL ||
                                      memchr(text.data, '"', text.length) != NULL);
    if ((column->type == NAME && text.length == 0) || text.length > 200 || !tm_slice_is_plain(text) || broken)
        return wrong(reader, column->name, "a name, without commas and quotes");
    *out = tm_arena_strndup(&reader->profile->arena, text.data, text.length);
    return *out != NULL ? 0 : tm_error_nomem(reader->e);
}

static int read_number(const struct reader *reader, struct tm_slice text, const struct column *column, double *out)
{
    *out = column->type == ZERO ? 0 : NAN;
    bool missing = reader->foreign ? tm_profile__is_missing(text) : text.length == 0;
    if (missing && (column->type == FIGURE || column->type == ZERO)) return 0;
    bool good =
        tm_number_double(text.data, text.length, out) && *out >= 0 && *out <= (column->type == ZERO ? 1e18 : 1e15);
    if (column->type == SHARE)
        return good && *out <= 1 ? 0 : wrong(reader, column->name, "the completed share of the backward pass, 0 to 1");
    if (column->type == POSITIVE) return good && *out > 0 ? 0 : wrong(reader, column->name, "a number above 0");
    return good ? 0 : wrong(reader, column->name, "a number of 0 or more");
}

static int read_flag(const struct reader *reader, struct tm_slice text, const struct column *column, int *out)
{
    return tm_profile__flag(text, out) ? 0 : wrong(reader, column->name, "0 or 1");
}

static int read_count(const struct reader *reader, struct tm_slice text, const struct column *column, int *out)
{
    int64_t number = 0;
    *out = 0;
    if (text.length == 0 && column->type == MAYBE) return 0;
    bool good = tm_profile__whole(text, &number);
    if (column->type == SMALL && (!good || number < 0 || number > 16))
        return wrong(reader, column->name, "a whole number from 0 to 16");
    if (column->type != SMALL && (!good || number < 1 || number > 1 << 30))
        return wrong(reader, column->name, "a whole number of 1 or more");
    *out = (int)number;
    return 0;
}

static int find_name(struct tm_slice text, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (tm_profile__is_word(text, names[i])) return i;
    }
    return -1;
}

static int read_field(const struct reader *reader, const struct column *column, struct tm_slice text, char *out)
{
    int chosen = 0;
    switch (column->type) {
    case NAME:
    case WORD:
        return read_word(reader, text, column, (const char **)out);
    case COUNT:
    case MAYBE:
    case SMALL:
        return read_count(reader, text, column, (int *)out);
    case FLAG:
        return read_flag(reader, text, column, (int *)out);
    case PRECISION:
        chosen = tm_precision_find(text.data, text.length);
        if (chosen < 0) return wrong(reader, column->name, "fp32, tf32, fp16, bf16 or fp8");
        *(enum tm_precision *)out = (enum tm_precision)chosen;
        return 0;
    case LAYER_KIND:
        chosen = find_name(text, tm_layer_kind_names, TM_LAYER_KIND_COUNT);
        if (chosen < 0) return wrong(reader, column->name, "conv, depthwise, matmul, block, embedding or norm");
        *(enum tm_layer_kind *)out = (enum tm_layer_kind)chosen;
        return 0;
    default:
        return read_number(reader, text, column, (double *)out);
    }
}

/* Finds or makes the [network] row of a formula: gpt-12x768-1024, with a number behind it where others have that name.
 */
static int name_formula(struct reader *reader, const char *base, const char *formula, const char **out)
{
    struct tm_profile *profile = reader->profile;
    int others = 0;
    for (size_t i = 0; i < profile->network_count; i++) {
        if (strcmp(profile->networks[i].model, formula) == 0) {
            *out = profile->networks[i].network;
            return 0;
        }
        if (strncmp(profile->networks[i].network, base, strlen(base)) == 0) others++;
    }
    struct tm_profile_network row = {.optimizer_states = 2, .input = ""};
    row.network = others == 0 ? tm_arena_strndup(&profile->arena, base, strlen(base))
                              : tm_arena_printf(&profile->arena, "%s-v%d", base, others + 1);
    row.model = tm_arena_strndup(&profile->arena, formula, strlen(formula));
    if (row.network == NULL || row.model == NULL) return tm_error_nomem(reader->e);
    int rc = append_row(profile, TABLE_NETWORKS, &row);
    if (rc != 0) return tm_error_set(reader->e, (enum tm_code) - rc, "%s: no room for more rows", reader->csv->file);
    *out = row.network;
    return 0;
}

static int read_sizes(struct reader *reader, const char **out)
{
    char formula[TM_PROFILE_FORMULA_MAX];
    char name[TM_PROFILE_NAME_MAX];
    int rc = tm_profile__read_sizes(reader->csv, &reader->sizes, formula, name, reader->e);
    return rc == 0 ? name_formula(reader, name, formula, out) : rc;
}

/* A step of which nobody timed the passes: a third of it is called forward. */
static int read_whole(const struct reader *reader, struct tm_profile_step *out)
{
    static const struct column whole = {"step_ms", NULL, POSITIVE, true, 0};
    double ms = 0;
    int rc = read_number(reader, tm_profile__field(reader->csv, reader->whole_at), &whole, &ms);
    out->forward_ms = ms / 3;
    out->backward_ms = ms * 2 / 3;
    out->optimizer_ms = 0;
    return rc;
}

/* Did nobody time this step: did it run out of memory, say? */
static bool lacks_time(const struct reader *reader)
{
    bool lacks = reader->whole_at >= 0 && tm_profile__is_missing(tm_profile__field(reader->csv, reader->whole_at));
    for (size_t i = 0; reader->whole_at < 0 && i < tables[reader->table].column_count; i++)
        lacks = lacks || (step_columns[i].type == POSITIVE &&
                          tm_profile__is_missing(tm_profile__field(reader->csv, reader->at[i])));
    return lacks;
}

static int take_row(struct reader *reader)
{
    union row row;
    if (reader->foreign && reader->table == TABLE_STEPS && lacks_time(reader)) {
        reader->profile->passed_over++;
        return 0;
    }
    memset(&row, 0, sizeof row);
    if (reader->table == TABLE_LAYERS) row.layer.layer.tied = -1;
    for (size_t i = 0; i < tables[reader->table].column_count; i++) {
        const struct column *column = &tables[reader->table].columns[i];
        bool sized = reader->sized && i == 0 && tm_profile__field(reader->csv, reader->sizes.family_at).length > 0;
        if (reader->whole_at >= 0 && column->type == POSITIVE) continue;
        int rc = sized ? read_sizes(reader, &row.step.network)
                       : read_field(reader, column, tm_profile__field(reader->csv, reader->at[i]),
                                    (char *)&row + column->at);
        if (rc != 0) return rc;
    }
    int whole_rc = reader->whole_at >= 0 ? read_whole(reader, &row.step) : 0;
    if (whole_rc != 0) return whole_rc;
    int rc = append_row(reader->profile, reader->table, &row);
    return rc == 0 ? 0 : tm_error_set(reader->e, (enum tm_code) - rc, "%s: no room for more rows", reader->csv->file);
}

static int take_own_row(struct reader *reader)
{
    struct tm_slice first = tm_slice_trim(reader->csv->fields[0]);
    if (reader->csv->field_count == 1 && first.length > 1 && first.data[0] == '[') {
        reader->table = TABLE_NONE;
        for (int t = 1; t < TABLES; t++)
            if (tm_slice_equals(first, tables[t].name)) reader->table = (enum table)t;
        reader->has_header = false;
        return reader->table != TABLE_NONE ? 0 : wrong(reader, "table", table_list);
    }
    if (reader->table == TABLE_NONE) {
        struct tm_slice key;
        struct tm_slice text;
        if (!tm_csv_key(tm_csv_raw(reader->csv), &key, &text) || !tm_slice_equals(key, "source"))
            return wrong(reader, "line", "source: TEXT, [network], [step], [layer], [run] or [gradient]");
        if (text.length > 500 || !tm_slice_is_plain(text)) return wrong(reader, "source", "a line of text");
        reader->profile->source = tm_arena_strndup(&reader->profile->arena, text.data, text.length);
        return reader->profile->source != NULL ? 0 : tm_error_nomem(reader->e);
    }
    return reader->has_header ? take_row(reader) : read_header(reader);
}

/* A header alone tells what other people's CSV is. */
static int read_foreign_header(struct reader *reader)
{
    const struct tm_csv *csv = reader->csv;
    bool runs = tm_profile__column(csv, "world") >= 0;
    tm_profile__find_sizes(csv, &reader->sizes);
    reader->foreign = true;
    reader->sized = !runs && reader->sizes.family_at >= 0;
    bool passes = tm_profile__column(csv, "fwd_ms|forward_ms") >= 0;
    if (!runs && !passes) reader->whole_at = tm_profile__column(csv, "step_ms|step_time_ms|iter_ms|ms_per_step");
    reader->table = runs ? TABLE_RUNS : TABLE_STEPS;
    bool known = runs ? tm_profile__column(csv, "mbit") >= 0
                      : tm_profile__column(csv, "micro_batch|batch|batch_size|micro_batch_size|microbatch|mbs") >= 0;
    if (known) return read_header(reader);
    return wrong(reader, "first line",
                 "\"tidemill-profile 1\", or a header with network, precision, micro_batch, fwd_ms, "
                 "bwd_ms, opt_ms (or world, mbit, model, batch, ...)");
}

int tm_profile_parse(const char *file, const char *text, size_t length, struct tm_profile *profile, struct tm_error *e)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    struct reader reader = {.profile = profile, .csv = csv, .e = e, .whole_at = -1};
    const char *source_before = profile->source;
    size_t passed_over_before = profile->passed_over;
    size_t before[TABLES] = {0};
    size_t rows = 0;
    for (int t = 1; t < TABLES; t++)
        before[t] = *count_of(profile, (enum table)t);
    tm_csv_init(csv, file, text, length);
    csv->comments = true;
    int rc = tm_csv_next(csv, e);
    bool own = rc == 1 && csv->field_count == 1 && tm_slice_equals(tm_slice_trim(csv->fields[0]), heading);
    if (rc == 0) rc = tm_error_set(e, TM_EINPUT, "%s: file is empty", file);
    if (rc == 1) rc = own ? 0 : read_foreign_header(&reader);
    while (rc >= 0 && (rc = tm_csv_next(csv, e)) == 1)
        rc = own ? take_own_row(&reader) : take_row(&reader);
    tm_free(csv);
    for (int t = 1; t < TABLES; t++)
        rows += *count_of(profile, (enum table)t) - before[t];
    if (rc == 0 && rows == 0)
        rc = profile->passed_over > passed_over_before
                 ? tm_error_set(e, TM_EINPUT, "%s: no row has a measured time", file)
                 : tm_error_set(e, TM_EINPUT, "%s: no rows in the profile", file);
    if (rc != 0) { /* nothing of a bad file stays */
        profile->source = source_before;
        profile->passed_over = passed_over_before;
        for (int t = 1; t < TABLES; t++)
            *count_of(profile, (enum table)t) = before[t];
    }
    return rc;
}

int tm_profile_load(struct tm_env *env, const char *path, struct tm_profile *profile, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, TM_PROFILE_BYTES_MAX);
    int rc = tm_content_read(env, path, &text, e);
    if (rc == 0) rc = tm_profile_parse(path, tm_text_string(&text), text.length, profile, e);
    tm_text_deinit(&text);
    return rc;
}

/* ---- what is said again ---- */

static bool same_step(const struct tm_profile_step *a, const struct tm_profile_step *b)
{
    return strcmp(a->gpu, b->gpu) == 0 && a->precision == b->precision && a->micro_batch == b->micro_batch &&
           a->recompute == b->recompute && a->compile == b->compile;
}

static bool same_network(const void *a, const void *b) /* all rows start with it */
{
    const char *const *one = a;
    const char *const *other = b;
    return strcmp(*one, *other) == 0;
}

/* Does the later row replace the earlier? */
static bool replaces(enum table table, const void *later, const void *earlier)
{
    const union row *a = later;
    const union row *b = earlier;
    if (!same_network(later, earlier)) return false;
    if (table == TABLE_STEPS) return same_step(&a->step, &b->step);
    if (table == TABLE_RUNS)
        return a->run.world == b->run.world && a->run.mbit == b->run.mbit && a->run.batch == b->run.batch;
    return true;
}

/* Drops rows before `fresh` that rows from there on replace. */
static void drop_replaced(struct tm_profile *profile, enum table table, size_t fresh)
{
    char *rows = get_rows(profile, table);
    size_t size = tables[table].row_size;
    size_t *count = count_of(profile, table);
    size_t kept = 0;
    bool whole = table != TABLE_STEPS && table != TABLE_RUNS; /* then one row of a network tells for all */
    for (size_t i = 0; i < *count; i++) {
        bool replaced = false;
        for (size_t k = fresh; i < fresh && k < *count && !replaced; k++) {
            bool seen = whole && k > fresh && same_network(rows + k * size, rows + (k - 1) * size);
            replaced = !seen && replaces(table, rows + k * size, rows + i * size);
        }
        if (replaced) continue;
        if (kept != i) memcpy(rows + kept * size, rows + i * size, size);
        kept++;
    }
    *count = kept;
}

int tm_profile_update(struct tm_env *env, const char *path, struct tm_profile *profile, struct tm_error *e)
{
    size_t before[TABLES] = {0};
    for (int t = 1; t < TABLES; t++)
        before[t] = *count_of(profile, (enum table)t);
    int rc = tm_profile_load(env, path, profile, e);
    for (int t = 1; rc == 0 && t < TABLES; t++)
        drop_replaced(profile, (enum table)t, before[t]);
    return rc;
}

/* ---- writing ---- */

static void put_field(struct tm_text *out, const struct column *column, const char *at)
{
    char number[TM_NUMBER_TEXT_MAX];
    int count = 0;
    double figure = 0;
    switch (column->type) {
    case NAME:
    case WORD:
        tm_text_puts(out, *(const char *const *)at);
        return;
    case COUNT:
    case MAYBE:
    case SMALL:
    case FLAG:
        memcpy(&count, at, sizeof count);
        if (count != 0 || column->type == SMALL) tm_text_printf(out, "%d", count);
        return;
    case PRECISION:
        tm_text_puts(out, tm_precision_names[*(const enum tm_precision *)at]);
        return;
    case LAYER_KIND:
        tm_text_puts(out, tm_layer_kind_names[*(const enum tm_layer_kind *)at]);
        return;
    default:
        memcpy(&figure, at, sizeof figure);
        if (!isnan(figure)) tm_text_puts(out, tm_number_print(figure, number));
    }
}

static void put_table(const struct tm_profile *profile, enum table table, struct tm_text *out)
{
    const struct column *columns = tables[table].columns;
    size_t column_count = tables[table].column_count;
    const char *rows = get_rows(profile, table);
    if (row_count(profile, table) == 0) return;
    tm_text_printf(out, "\n%s\n", tables[table].name);
    for (size_t i = 0; i < column_count; i++)
        tm_text_printf(out, "%s%s", i > 0 ? "," : "", columns[i].name);
    tm_text_putc(out, '\n');
    for (size_t r = 0; r < row_count(profile, table); r++) {
        for (size_t i = 0; i < column_count; i++) {
            if (i > 0) tm_text_putc(out, ',');
            put_field(out, &columns[i], rows + r * tables[table].row_size + columns[i].at);
        }
        tm_text_putc(out, '\n');
    }
}

void tm_profile_print(const struct tm_profile *profile, struct tm_text *out)
{
    tm_text_printf(out, "%s\n", heading);
    if (profile->source[0] != '\0') tm_text_printf(out, "source: %s\n", profile->source);
    for (int t = 1; t < TABLES; t++)
        put_table(profile, (enum table)t, out);
}
