/* DeepVM's data sets in our form.
 *
 *     tidemill-deepvm 1
 *     variant: run                   run or simulation: which of the released programs the set belongs to
 *     source: where it comes from
 *
 *     [quota]                        vCPUs by class
 *     class,on_demand_vcpus,spot_vcpus
 *     [instance]                     in the order of the original, which decides ties; flops, a, b, c only of GPU types
 *     name,class,vcpus,memory_gib,network_gbps,on_demand,spot,flops,a,b,c
 *
 * '#' starts a comment line. */
#include "plan/deepvm.h"

#include "base/alloc.h"
#include "base/content.h"
#include "base/csv.h"
#include "base/number.h"

#include <math.h>
#include <string.h>

static const char heading[] = "tidemill-deepvm 1";
static const char *const quota_columns[] = {"class", "on_demand_vcpus", "spot_vcpus", NULL};
static const char *const instance_columns[] = {
    "name", "class", "vcpus", "memory_gib", "network_gbps", "on_demand", "spot", "flops", "a", "b", "c", NULL};

enum { COLUMNS_MAX = 12, FILE_BYTES_MAX = 1 << 20 };

enum table { TABLE_KEYS, TABLE_QUOTAS, TABLE_INSTANCES };

struct reader {
    struct tm_deepvm_data *data;
    struct tm_csv *csv;
    struct tm_error *e;
    enum table table;
    bool has_header;
    bool has_variant;
    int at[COLUMNS_MAX];
};

void tm_deepvm_data_init(struct tm_deepvm_data *data)
{
    memset(data, 0, sizeof *data);
    data->source = "";
    tm_arena_init(&data->arena, 1 << 20);
}

void tm_deepvm_data_deinit(struct tm_deepvm_data *data)
{
    tm_arena_deinit(&data->arena);
    tm_deepvm_data_init(data);
}

static int wrong(const struct reader *reader, const char *what, const char *expected)
{
    return tm_error_set(reader->e, TM_EINPUT, "%s:%d: %s: expected %s", reader->csv->file, reader->csv->line, what,
                        expected);
}

static const char *const *columns_of(const struct reader *reader)
{
    return reader->table == TABLE_QUOTAS ? quota_columns : instance_columns;
}

static struct tm_slice field(const struct reader *reader, int column)
{
    int at = reader->at[column];
    if (at < 0 || (size_t)at >= reader->csv->field_count) return (struct tm_slice){"", 0};
    return tm_slice_trim(reader->csv->fields[at]);
}

static int keep_word(const struct reader *reader, struct tm_slice text, const char *what, const char **out)
{
    if (text.length == 0 || text.length > 500 || !tm_slice_is_plain(text)) return wrong(reader, what, "a name");
    *out = tm_arena_strndup(&reader->data->arena, text.data, text.length);
    return *out != NULL ? 0 : tm_error_nomem(reader->e);
}

static int read_figure(const struct reader *reader, int column, bool needed, double *out)
{
    struct tm_slice text = field(reader, column);
    *out = NAN;
    if (text.length == 0 && !needed) return 0;
    if (!tm_number_double(text.data, text.length, out) || !(*out > 0) || *out > 1e12)
        return wrong(reader, columns_of(reader)[column], "a number above 0");
    return 0;
}

static int read_header(struct reader *reader)
{
    const char *const *columns = columns_of(reader);
    for (int i = 0; columns[i] != NULL; i++) {
        reader->at[i] = tm_csv_find(reader->csv, columns[i]);
        if (reader->at[i] < 0) return wrong(reader, columns[i], "a column of this name");
    }
    reader->has_header = true;
    return 0;
}

static int take_quota(struct reader *reader)
{
    struct tm_deepvm_data *data = reader->data;
    if (data->quota_count == TM_DEEPVM_CLASSES_MAX) return wrong(reader, "class", "fewer classes");
    struct tm_deepvm_quota *quota = &data->quotas[data->quota_count];
    int rc = keep_word(reader, field(reader, 0), "class", &quota->class_name);
    if (rc == 0) rc = read_figure(reader, 1, true, &quota->on_demand_vcpus);
    if (rc == 0) rc = read_figure(reader, 2, true, &quota->spot_vcpus);
    if (rc == 0 && quota->spot_vcpus > 1000) rc = wrong(reader, "spot_vcpus", "at most 1000");
    if (rc == 0) data->quota_count++;
    return rc;
}

static int take_instance(struct reader *reader)
{
    struct tm_deepvm_data *data = reader->data;
    if (data->instance_count == TM_DEEPVM_INSTANCES_MAX) return wrong(reader, "name", "fewer instance types");
    struct tm_deepvm_instance *instance = &data->instances[data->instance_count];
    int rc = keep_word(reader, field(reader, 0), "name", &instance->name);
    if (rc == 0) rc = keep_word(reader, field(reader, 1), "class", &instance->class_name);
    bool gpu = rc == 0 && (strcmp(instance->class_name, "G") == 0 || strcmp(instance->class_name, "P") == 0);
    double *const figures[] = {&instance->vcpus,
                               &instance->memory_gib,
                               &instance->network_gbps,
                               &instance->on_demand_usd_h,
                               &instance->spot_usd_h,
                               &instance->flops,
                               &instance->a,
                               &instance->b,
                               &instance->c};
    for (int i = 0; rc == 0 && i < 9; i++)
        rc = read_figure(reader, i + 2, i < 5 || gpu, figures[i]);
    if (rc == 0 && instance->vcpus < 4 && data->variant == TM_DEEPVM_RUN)
        rc = wrong(reader, "vcpus", "at least 4"); /* keeps counts within the tables of the search */
    if (rc == 0) data->instance_count++;
    return rc;
}

static int read_key(struct reader *reader)
{
    struct tm_slice name = {"", 0};
    struct tm_slice value = {"", 0};
    (void)tm_csv_key(tm_csv_raw(reader->csv), &name, &value);
    if (tm_slice_equals(name, "source")) return keep_word(reader, value, "source", &reader->data->source);
    if (!tm_slice_equals(name, "variant"))
        return wrong(reader, "line", "variant: run|simulation, source: TEXT or a table");
    bool run = tm_slice_equals(value, "run");
    if (!run && !tm_slice_equals(value, "simulation")) return wrong(reader, "variant", "run or simulation");
    reader->data->variant = run ? TM_DEEPVM_RUN : TM_DEEPVM_SIMULATION;
    reader->has_variant = true;
    return 0;
}

static int take_row(struct reader *reader)
{
    struct tm_slice first = tm_slice_trim(reader->csv->fields[0]);
    bool quotas = tm_slice_equals(first, "[quota]");
    if (quotas || tm_slice_equals(first, "[instance]")) {
        reader->table = quotas ? TABLE_QUOTAS : TABLE_INSTANCES;
        reader->has_header = false;
        return 0;
    }
    if (reader->table == TABLE_KEYS) return read_key(reader);
    if (!reader->has_header) return read_header(reader);
    return reader->table == TABLE_QUOTAS ? take_quota(reader) : take_instance(reader);
}

int tm_deepvm_data__parse(const char *file, const char *text, size_t length, struct tm_deepvm_data *data,
                          struct tm_error *e)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    struct reader reader = {.data = data, .csv = csv, .e = e};
    tm_csv_init(csv, file, text, length);
    csv->comments = true;
    int rc = tm_csv_next(csv, e);
    if (rc >= 0 && (rc == 0 || csv->field_count != 1 || !tm_slice_equals(tm_slice_trim(csv->fields[0]), heading)))
        rc = tm_error_set(e, TM_EINPUT, "%s:1: expected \"%s\" in the first line", file, heading);
    while (rc >= 0 && (rc = tm_csv_next(csv, e)) == 1)
        rc = take_row(&reader);
    tm_free(csv);
    if (rc == 0 && !reader.has_variant) rc = tm_error_set(e, TM_EINPUT, "%s: key \"variant\" is missing", file);
    if (rc == 0 && data->instance_count == 0) rc = tm_error_set(e, TM_EINPUT, "%s: no rows in [instance]", file);
    return rc;
}

int tm_deepvm_data_load(struct tm_env *env, const char *path, struct tm_deepvm_data *data, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, FILE_BYTES_MAX);
    int rc = tm_content_read(env, path, &text, e);
    if (rc == 0) rc = tm_deepvm_data__parse(path, tm_text_string(&text), text.length, data, e);
    tm_text_deinit(&text);
    return rc;
}
