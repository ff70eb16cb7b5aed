/* Our form of a profile: CSV tables behind each other, as in the catalogue.
 *
 *     tidemill-profile 1
 *     source: where and how it was measured
 *
 *     [step]                          training steps on one GPU; medians, in ms; empty: not measured
 *     network,gpu,precision,micro_batch,forward_ms,backward_ms,optimizer_ms,peak_gib,step_ms_p10,params,train_gflop_per_sample
 *
 *     [run]                           data-parallel iterations over links of `mbit` Mbit/s; medians, in ms
 *     network,world,mbit,batch,grad_bytes,iter_ms,iter_ms_std,compute_ms,compute_ms_std,all_reduce_ms
 *
 *     [gradient]                      gradients in the order in which the backward pass gives them; `ready` is the
 *     network,bytes,ready             share of the pass that is over then, from 0 to 1
 *
 * Columns are found by name, in any order; '#' starts a comment line. Other people's CSV with the same columns under
 * other names (fwd_ms, bwd_ms, opt_ms; model, iter_ms_median, compute_ms_mean) is read too: then the header is the
 * first line and its columns tell which table it is. */
#include "workload/profile.h"

#include "base/alloc.h"
#include "base/content.h"
#include "base/csv.h"
#include "base/number.h"

#include <math.h>
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
    *profile = (struct tm_profile){.source = ""};
}

double tm_profile_step_ms(const struct tm_profile_step *step)
{
    return step->forward_ms + step->backward_ms + step->optimizer_ms;
}

/* ---- columns ---- */

enum step_column {
    S_NETWORK,
    S_GPU,
    S_PRECISION,
    S_BATCH,
    S_FORWARD,
    S_BACKWARD,
    S_OPTIMIZER,
    S_PEAK,
    S_P10,
    S_PARAMS,
    S_GFLOP,
    STEP_COLUMNS
};
enum run_column {
    R_NETWORK,
    R_WORLD,
    R_MBIT,
    R_BATCH,
    R_BYTES,
    R_ITER,
    R_ITER_STD,
    R_COMPUTE,
    R_COMPUTE_STD,
    R_ALL_REDUCE,
    RUN_COLUMNS
};
enum gradient_column { G_NETWORK, G_BYTES, G_READY, GRADIENT_COLUMNS };
enum { COLUMNS_MAX = 12 };

/* Our name of a column, another name for it, and whether it must be there. */
struct column {
    const char *name;
    const char *other;
    bool required;
};

static const struct column step_columns[] = {
    {"network", "network", true},
    {"gpu", "gpu", false},
    {"precision", "precision", true},
    {"micro_batch", "micro_batch", true},
    {"forward_ms", "fwd_ms", true},
    {"backward_ms", "bwd_ms", true},
    {"optimizer_ms", "opt_ms", true},
    {"peak_gib", "peak_gib", false},
    {"step_ms_p10", "step_ms_p10", false},
    {"params", "params", false},
    {"train_gflop_per_sample", "train_gflop_per_sample", false},
};

static const struct column run_columns[] = {
    {"network", "model", true},
    {"world", "world", true},
    {"mbit", "mbit", true},
    {"batch", "batch", true},
    {"grad_bytes", "grad_bytes", true},
    {"iter_ms", "iter_ms_median", true},
    {"iter_ms_std", "iter_ms_std", false},
    {"compute_ms", "compute_ms_mean", true},
    {"compute_ms_std", "compute_ms_std", false},
    {"all_reduce_ms", "flat_allreduce_ms_median", false},
};

static const struct column gradient_columns[] = {
    {"network", "network", true},
    {"bytes", "bytes", true},
    {"ready", "ready", true},
};

enum table { TABLE_NONE, TABLE_STEPS, TABLE_RUNS, TABLE_GRADIENTS };

static const char *const table_names[] = {NULL, "[step]", "[run]", "[gradient]"};
enum { TABLES = sizeof table_names / sizeof *table_names };

struct reader {
    struct tm_profile *profile;
    struct tm_csv *csv;
    struct tm_error *e;
    enum table table;
    bool has_header;
    int at[COLUMNS_MAX]; /* where each column of the table is in the rows; -1: missing */
};

static int wrong(const struct reader *reader, const char *what, const char *expected)
{
    return tm_error_set(reader->e, TM_EINPUT, "%s:%d: %s: expected %s", reader->csv->file, reader->csv->line, what,
                        expected);
}

/* Finds the columns of a table in the row in hand; false if a required one is missing (named in *missing). */
static bool find_columns(struct reader *reader, const struct column *columns, int count, const char **missing)
{
    for (int i = 0; i < count; i++) {
        reader->at[i] = tm_csv_find(reader->csv, columns[i].name);
        if (reader->at[i] < 0) reader->at[i] = tm_csv_find(reader->csv, columns[i].other);
        if (reader->at[i] < 0 && columns[i].required) {
            *missing = columns[i].name;
            return false;
        }
    }
    return true;
}

static int read_header(struct reader *reader)
{
    static const struct {
        const struct column *columns;
        int count;
    } tables[TABLES] = {[TABLE_STEPS] = {step_columns, STEP_COLUMNS},
                        [TABLE_RUNS] = {run_columns, RUN_COLUMNS},
                        [TABLE_GRADIENTS] = {gradient_columns, GRADIENT_COLUMNS}};
    const char *missing = "";
    if (!find_columns(reader, tables[reader->table].columns, tables[reader->table].count, &missing))
        return wrong(reader, missing, "a column of this name");
    reader->has_header = true;
    return 0;
}

/* ---- rows ---- */

static struct tm_slice field(const struct reader *reader, int column)
{
    int at = reader->at[column];
    if (at < 0 || (size_t)at >= reader->csv->field_count) return (struct tm_slice){"", 0};
    return tm_slice_trim(reader->csv->fields[at]);
}

static int read_word(const struct reader *reader, int column, const char *name, bool required, const char **out)
{
    struct tm_slice text = field(reader, column);
    bool broken = text.length > 0 && (text.data[0] == '#' || memchr(text.data, ',', text.length) != NULL ||
                                      memchr(text.data, '"', text.length) != NULL);
    if ((required && text.length == 0) || text.length > 100 || !tm_slice_is_plain(text) || broken)
        return wrong(reader, name, "a name, without commas and quotes");
    *out = tm_arena_strndup(&reader->profile->arena, text.data, text.length);
    return *out != NULL ? 0 : tm_error_nomem(reader->e);
}

static int read_figure(const struct reader *reader, int column, const char *name, bool positive, double *out)
{
    struct tm_slice text = field(reader, column);
    *out = NAN;
    if (text.length == 0 && !positive) return 0;
    if (!tm_number_double(text.data, text.length, out) || *out < 0 || (positive && *out <= 0) || *out > 1e15)
        return wrong(reader, name, positive ? "a number above 0" : "a number of 0 or more");
    return 0;
}

static int read_count(const struct reader *reader, int column, const char *name, int *out)
{
    struct tm_slice text = field(reader, column);
    int64_t number = 0;
    if (!tm_number_i64(text.data, text.length, &number) || number < 1 || number > 1 << 30)
        return wrong(reader, name, "a whole number of 1 or more");
    *out = (int)number;
    return 0;
}

static int read_precision(const struct reader *reader, enum tm_precision *out)
{
    for (int p = 0; p < TM_PRECISION_COUNT; p++) {
        if (!tm_slice_equals(field(reader, S_PRECISION), tm_precision_names[p])) continue;
        *out = (enum tm_precision)p;
        return 0;
    }
    return wrong(reader, "precision", "fp32, tf32, fp16, bf16 or fp8");
}

static int take_step(struct reader *reader)
{
    struct tm_profile *profile = reader->profile;
    struct tm_profile_step step;
    int rc = read_word(reader, S_NETWORK, "network", true, &step.network);
    if (rc == 0) rc = read_word(reader, S_GPU, "gpu", false, &step.gpu);
    if (rc == 0) rc = read_precision(reader, &step.precision);
    if (rc == 0) rc = read_count(reader, S_BATCH, "micro_batch", &step.micro_batch);
    if (rc == 0) rc = read_figure(reader, S_FORWARD, "forward_ms", true, &step.forward_ms);
    if (rc == 0) rc = read_figure(reader, S_BACKWARD, "backward_ms", true, &step.backward_ms);
    if (rc == 0) rc = read_figure(reader, S_OPTIMIZER, "optimizer_ms", false, &step.optimizer_ms);
    if (rc == 0) rc = read_figure(reader, S_PEAK, "peak_gib", false, &step.peak_gib);
    if (rc == 0) rc = read_figure(reader, S_P10, "step_ms_p10", false, &step.step_ms_p10);
    if (rc == 0) rc = read_figure(reader, S_PARAMS, "params", false, &step.params);
    if (rc == 0) rc = read_figure(reader, S_GFLOP, "train_gflop_per_sample", false, &step.train_gflop_per_sample);
    if (rc != 0) return rc;
    if (isnan(step.optimizer_ms)) step.optimizer_ms = 0;
    void *rows = profile->steps;
    rc = tm_grow(&rows, &profile->step_capacity, profile->step_count + 1, sizeof step, TM_PROFILE_ROWS_MAX);
    profile->steps = rows;
    if (rc != 0) return tm_error_set(reader->e, (enum tm_code) - rc, "%s: no room for more rows", reader->csv->file);
    profile->steps[profile->step_count++] = step;
    return 0;
}

static int take_run(struct reader *reader)
{
    struct tm_profile *profile = reader->profile;
    struct tm_profile_run run;
    int rc = read_word(reader, R_NETWORK, "network", true, &run.network);
    if (rc == 0) rc = read_count(reader, R_WORLD, "world", &run.world);
    if (rc == 0) rc = read_figure(reader, R_MBIT, "mbit", true, &run.mbit);
    if (rc == 0) rc = read_count(reader, R_BATCH, "batch", &run.batch);
    if (rc == 0) rc = read_figure(reader, R_BYTES, "grad_bytes", true, &run.grad_bytes);
    if (rc == 0) rc = read_figure(reader, R_ITER, "iter_ms", true, &run.iter_ms);
    if (rc == 0) rc = read_figure(reader, R_ITER_STD, "iter_ms_std", false, &run.iter_ms_std);
    if (rc == 0) rc = read_figure(reader, R_COMPUTE, "compute_ms", true, &run.compute_ms);
    if (rc == 0) rc = read_figure(reader, R_COMPUTE_STD, "compute_ms_std", false, &run.compute_ms_std);
    if (rc == 0) rc = read_figure(reader, R_ALL_REDUCE, "all_reduce_ms", false, &run.all_reduce_ms);
    if (rc != 0) return rc;
    void *rows = profile->runs;
    rc = tm_grow(&rows, &profile->run_capacity, profile->run_count + 1, sizeof run, TM_PROFILE_ROWS_MAX);
    profile->runs = rows;
    if (rc != 0) return tm_error_set(reader->e, (enum tm_code) - rc, "%s: no room for more rows", reader->csv->file);
    profile->runs[profile->run_count++] = run;
    return 0;
}

static int take_gradient(struct reader *reader)
{
    struct tm_profile *profile = reader->profile;
    struct tm_profile_gradient gradient;
    int rc = read_word(reader, G_NETWORK, "network", true, &gradient.network);
    if (rc == 0) rc = read_figure(reader, G_BYTES, "bytes", true, &gradient.bytes);
    if (rc == 0) rc = read_figure(reader, G_READY, "ready", false, &gradient.ready);
    if (rc != 0) return rc;
    if (!(gradient.ready <= 1)) return wrong(reader, "ready", "the share of the backward pass that is over, 0 to 1");
    void *rows = profile->gradients;
    rc = tm_grow(&rows, &profile->gradient_capacity, profile->gradient_count + 1, sizeof gradient, TM_PROFILE_ROWS_MAX);
    profile->gradients = rows;
    if (rc != 0) return tm_error_set(reader->e, (enum tm_code) - rc, "%s: no room for more rows", reader->csv->file);
    profile->gradients[profile->gradient_count++] = gradient;
    return 0;
}

static int take_row(struct reader *reader)
{
    if (reader->table == TABLE_STEPS) return take_step(reader);
    return reader->table == TABLE_RUNS ? take_run(reader) : take_gradient(reader);
}

static int take_own_row(struct reader *reader)
{
    struct tm_slice first = tm_slice_trim(reader->csv->fields[0]);
    if (reader->csv->field_count == 1 && first.length > 1 && first.data[0] == '[') {
        reader->table = TABLE_NONE;
        for (int t = 1; t < TABLES; t++)
            if (tm_slice_equals(first, table_names[t])) reader->table = (enum table)t;
        reader->has_header = false;
        return reader->table != TABLE_NONE ? 0 : wrong(reader, "table", "[step], [run] or [gradient]");
    }
    if (reader->table == TABLE_NONE) {
        struct tm_slice key;
        struct tm_slice text;
        if (!tm_csv_key(tm_csv_raw(reader->csv), &key, &text) || !tm_slice_equals(key, "source"))
            return wrong(reader, "line", "source: TEXT, [step], [run] or [gradient]");
        if (text.length > 500 || !tm_slice_is_plain(text)) return wrong(reader, "source", "a line of text");
        reader->profile->source = tm_arena_strndup(&reader->profile->arena, text.data, text.length);
        return reader->profile->source != NULL ? 0 : tm_error_nomem(reader->e);
    }
    return reader->has_header ? take_row(reader) : read_header(reader);
}

/* A header alone tells what other people's CSV is. */
static int read_foreign_header(struct reader *reader)
{
    bool runs = tm_csv_find(reader->csv, "world") >= 0;
    reader->table = runs ? TABLE_RUNS : TABLE_STEPS;
    if (tm_csv_find(reader->csv, runs ? "mbit" : "micro_batch") >= 0) return read_header(reader);
    return wrong(reader, "first line",
                 "\"tidemill-profile 1\", or a header with network, precision, micro_batch, fwd_ms, "
                 "bwd_ms, opt_ms (or world, mbit, model, batch, ...)");
}

int tm_profile_parse(const char *file, const char *text, size_t length, struct tm_profile *profile, struct tm_error *e)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    struct reader reader = {.profile = profile, .csv = csv, .e = e};
    const char *source_before = profile->source;
    size_t steps_before = profile->step_count;
    size_t runs_before = profile->run_count;
    size_t gradients_before = profile->gradient_count;
    tm_csv_init(csv, file, text, length);
    csv->comments = true;
    int rc = tm_csv_next(csv, e);
    bool own = rc == 1 && csv->field_count == 1 && tm_slice_equals(tm_slice_trim(csv->fields[0]), heading);
    if (rc == 0) rc = tm_error_set(e, TM_EINPUT, "%s: file is empty", file);
    if (rc == 1) rc = own ? 0 : read_foreign_header(&reader);
    while (rc >= 0 && (rc = tm_csv_next(csv, e)) == 1)
        rc = own ? take_own_row(&reader) : take_row(&reader);
    tm_free(csv);
    if (rc == 0 && profile->step_count == 0 && profile->run_count == 0 && profile->gradient_count == 0)
        rc = tm_error_set(e, TM_EINPUT, "%s: no rows in the profile", file);
    if (rc != 0) { /* nothing of a bad file stays */
        profile->source = source_before;
        profile->step_count = steps_before;
        profile->run_count = runs_before;
        profile->gradient_count = gradients_before;
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

/* ---- writing ---- */

static void put_header(struct tm_text *out, const char *name, const struct column *columns, int count)
{
    tm_text_printf(out, "\n[%s]\n", name);
    for (int i = 0; i < count; i++)
        tm_text_printf(out, "%s%s", i > 0 ? "," : "", columns[i].name);
    tm_text_putc(out, '\n');
}

static void put_figures(struct tm_text *out, const double *figures, size_t count)
{
    char number[TM_NUMBER_TEXT_MAX];
    for (size_t i = 0; i < count; i++)
        tm_text_printf(out, ",%s", isnan(figures[i]) ? "" : tm_number_print(figures[i], number));
    tm_text_putc(out, '\n');
}

void tm_profile_print(const struct tm_profile *profile, struct tm_text *out)
{
    tm_text_printf(out, "%s\n", heading);
    if (profile->source[0] != '\0') tm_text_printf(out, "source: %s\n", profile->source);
    if (profile->step_count > 0) put_header(out, "step", step_columns, STEP_COLUMNS);
    for (size_t i = 0; i < profile->step_count; i++) {
        const struct tm_profile_step *s = &profile->steps[i];
        const double figures[] = {s->forward_ms,  s->backward_ms, s->optimizer_ms,          s->peak_gib,
                                  s->step_ms_p10, s->params,      s->train_gflop_per_sample};
        tm_text_printf(out, "%s,%s,%s,%d", s->network, s->gpu, tm_precision_names[s->precision], s->micro_batch);
        put_figures(out, figures, sizeof figures / sizeof *figures);
    }
    if (profile->run_count > 0) put_header(out, "run", run_columns, RUN_COLUMNS);
    for (size_t i = 0; i < profile->run_count; i++) {
        const struct tm_profile_run *r = &profile->runs[i];
        const double mbit[] = {r->mbit};
        const double figures[] = {r->grad_bytes, r->iter_ms,        r->iter_ms_std,
                                  r->compute_ms, r->compute_ms_std, r->all_reduce_ms};
        char number[TM_NUMBER_TEXT_MAX];
        tm_text_printf(out, "%s,%d,%s,%d", r->network, r->world, tm_number_print(mbit[0], number), r->batch);
        put_figures(out, figures, sizeof figures / sizeof *figures);
    }
    if (profile->gradient_count > 0) put_header(out, "gradient", gradient_columns, GRADIENT_COLUMNS);
    for (size_t i = 0; i < profile->gradient_count; i++) {
        const struct tm_profile_gradient *g = &profile->gradients[i];
        const double figures[] = {g->bytes, g->ready};
        tm_text_puts(out, g->network);
        put_figures(out, figures, sizeof figures / sizeof *figures);
    }
}
