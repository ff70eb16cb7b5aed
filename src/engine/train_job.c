#include "engine/train_job.h"

#include "base/content.h"
#include "base/doc.h"
#include "base/number.h"
#include "engine/assignment.h"
#include "engine/corpus.h"
#include "wire/fingerprint.h"
#include "wire/hash.h"
#include "workload/job.h"

#include <stdio.h>
#include <string.h>

enum { JOB_BYTES_MAX = 1 << 20 };

/* The file as it stands, before it is a job. */
struct gpt_fields {
    int64_t layers;
    int64_t hidden;
    int64_t heads;
    int64_t ctx;
    int64_t vocab;
    double dropout;
};

struct model_fields {
    struct gpt_fields gpt;
};

struct optimizer_fields {
    double lr;
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    double clip;
};

struct schedule_fields {
    int64_t warmup;
    int64_t decay_to;
    double lr_min;
};

struct checkpoint_fields {
    const char *dir;
    int64_t every;
    int64_t keep;
};

struct job_fields {
    const char *name;
    struct model_fields model;
    const char *data;
    int64_t batch;
    int64_t micro_batch;
    int64_t steps;
    int64_t seed;
    struct optimizer_fields optimizer;
    struct schedule_fields schedule;
    struct checkpoint_fields checkpoint;
    int determinism;
    const char *layout;
    int64_t memory;
};

#define AT(type, member) .offset = offsetof(struct type, member)

static const struct tm_field gpt_table[] = {
    {.key = "layers", .type = TM_FIELD_INTEGER, AT(gpt_fields, layers), .required = true, .min = 1, .max = 1022},
    {.key = "hidden", .type = TM_FIELD_INTEGER, AT(gpt_fields, hidden), .required = true, .min = 1, .max = 65536},
    {.key = "heads", .type = TM_FIELD_INTEGER, AT(gpt_fields, heads), .required = true, .min = 1, .max = 65536},
    {.key = "ctx", .type = TM_FIELD_INTEGER, AT(gpt_fields, ctx), .required = true, .min = 1, .max = TM_CTX_MAX},
    {.key = "vocab", .type = TM_FIELD_INTEGER, AT(gpt_fields, vocab), .min = TM_VOCAB, .max = TM_VOCAB},
    {.key = "dropout", .type = TM_FIELD_NUMBER, AT(gpt_fields, dropout), .min = 0, .max = 0.9},
    {.key = NULL}};

static const struct tm_field model_table[] = {
    {.key = "gpt", .type = TM_FIELD_MAP, AT(model_fields, gpt), .required = true, .fields = gpt_table}, {.key = NULL}};

static const struct tm_field optimizer_table[] = {
    {.key = "lr", .type = TM_FIELD_NUMBER, AT(optimizer_fields, lr), .min = 0, .max = 1000},
    {.key = "beta1", .type = TM_FIELD_NUMBER, AT(optimizer_fields, beta1), .min = 0, .max = 0.999999},
    {.key = "beta2", .type = TM_FIELD_NUMBER, AT(optimizer_fields, beta2), .min = 0, .max = 0.999999},
    {.key = "eps", .type = TM_FIELD_NUMBER, AT(optimizer_fields, eps), .min = 1e-30, .max = 1},
    {.key = "weight_decay", .type = TM_FIELD_NUMBER, AT(optimizer_fields, weight_decay), .min = 0, .max = 100},
    {.key = "clip", .type = TM_FIELD_NUMBER, AT(optimizer_fields, clip), .min = 0, .max = 1e30},
    {.key = NULL}};

static const struct tm_field schedule_table[] = {
    {.key = "warmup", .type = TM_FIELD_INTEGER, AT(schedule_fields, warmup), .min = 0, .max = 1e15},
    {.key = "decay_to", .type = TM_FIELD_INTEGER, AT(schedule_fields, decay_to), .min = 0, .max = 1e15},
    {.key = "lr_min", .type = TM_FIELD_NUMBER, AT(schedule_fields, lr_min), .min = 0, .max = 1000},
    {.key = NULL}};

static const struct tm_field checkpoint_table[] = {
    {.key = "dir", .type = TM_FIELD_STRING, AT(checkpoint_fields, dir), .required = true},
    {.key = "every", .type = TM_FIELD_INTEGER, AT(checkpoint_fields, every), .min = 0, .max = 1e15},
    {.key = "keep", .type = TM_FIELD_INTEGER, AT(checkpoint_fields, keep), .min = 1, .max = 100},
    {.key = NULL}};

static const struct tm_field job_table[] = {
    {.key = "name", .type = TM_FIELD_STRING, AT(job_fields, name)},
    {.key = "model", .type = TM_FIELD_MAP, AT(job_fields, model), .required = true, .fields = model_table},
    {.key = "data", .type = TM_FIELD_STRING, AT(job_fields, data), .required = true, .example = "kjv-new-testament"},
    {.key = "batch", .type = TM_FIELD_INTEGER, AT(job_fields, batch), .required = true, .min = 1, .max = 1 << 24},
    {.key = "micro_batch", .type = TM_FIELD_INTEGER, AT(job_fields, micro_batch), .min = 1, .max = 65536},
    {.key = "steps", .type = TM_FIELD_INTEGER, AT(job_fields, steps), .required = true, .min = 1, .max = 1 << 24},
    {.key = "seed", .type = TM_FIELD_INTEGER, AT(job_fields, seed), .min = 0, .max = 9e15},
    {.key = "optimizer", .type = TM_FIELD_MAP, AT(job_fields, optimizer), .fields = optimizer_table},
    {.key = "schedule", .type = TM_FIELD_MAP, AT(job_fields, schedule), .fields = schedule_table},
    {.key = "checkpoint", .type = TM_FIELD_MAP, AT(job_fields, checkpoint), .fields = checkpoint_table},
    {.key = "determinism", .type = TM_FIELD_CHOICE, AT(job_fields, determinism), .choices = tm_determinism_names},
    {.key = "layout", .type = TM_FIELD_STRING, AT(job_fields, layout), .example = "2x2"},
    {.key = "memory", .type = TM_FIELD_BYTES, AT(job_fields, memory)},
    {.key = NULL}};

int tm_train_job_check(const struct tm_train_job *job, struct tm_error *e)
{
    int rc = tm_network__check(&job->network, e);
    if (rc != 0) return tm_error_wrap(e, rc, "model.gpt");
    if (job->micro_batch < 1 || job->batch % job->micro_batch != 0)
        return tm_error_set(e, TM_EINPUT, "batch: must be a multiple of micro_batch (%lld), got %lld",
                            (long long)job->micro_batch, (long long)job->batch);
    if (job->micro_batch * job->network.ctx > 1 << 24)
        return tm_error_set(e, TM_EINPUT, "micro_batch: %lld samples of %d bytes are too many at once",
                            (long long)job->micro_batch, job->network.ctx);
    struct tm_assignment assignment;
    return tm_assignment_make(&job->network, job->pipelines, job->stages, job->batch / job->micro_batch, &assignment,
                              e);
}

static int to_job(const struct job_fields *f, struct tm_train_job *job, struct tm_error *e)
{
    *job = (struct tm_train_job){
        .name = f->name,
        .network = {.blocks = (int)f->model.gpt.layers,
                    .width = (int)f->model.gpt.hidden,
                    .heads = (int)f->model.gpt.heads,
                    .ctx = (int)f->model.gpt.ctx,
                    .dropout = f->model.gpt.dropout},
        .data = f->data,
        .batch = f->batch,
        .micro_batch = f->micro_batch > 0 ? f->micro_batch : f->batch,
        .steps = f->steps,
        .seed = (uint64_t)f->seed,
        .optimizer = {.lr = f->optimizer.lr,
                      .beta1 = f->optimizer.beta1,
                      .beta2 = f->optimizer.beta2,
                      .eps = f->optimizer.eps,
                      .weight_decay = f->optimizer.weight_decay,
                      .clip = f->optimizer.clip,
                      .warmup_steps = f->schedule.warmup,
                      .decay_steps = f->schedule.decay_to,
                      .lr_min = f->schedule.lr_min},
        .determinism = (enum tm_determinism)f->determinism,
        .memory_max = f->memory,
        .checkpoint = {.dir = f->checkpoint.dir, .every = f->checkpoint.every, .keep = f->checkpoint.keep}};
    int rc = tm_layout_parse(f->layout, &job->pipelines, &job->stages, e);
    if (rc != 0) {
        if (e != NULL) e->code = TM_EINPUT;
        return tm_error_wrap(e, -(int)TM_EINPUT, "layout");
    }
    return tm_train_job_check(job, e);
}

static bool has_key(const struct tm_field *table, const char *key)
{
    while (table->key != NULL && strcmp(table->key, key) != 0)
        table++;
    return table->key != NULL;
}

/* What only plans read: one file serves both. */
static void drop_plan_keys(struct tm_node *root)
{
    for (struct tm_node **at = &root->first; root->kind == TM_NODE_MAP && *at != NULL;) {
        const char *key = (*at)->key;
        bool is_plan = has_key(tm_job_fields, key) || strcmp(key, "envs") == 0 || strcmp(key, "quotas") == 0;
        if (is_plan && !has_key(job_table, key)) {
            *at = (*at)->next;
            root->count--;
        } else {
            at = &(*at)->next;
        }
    }
}

int tm_train_job_parse(const char *file, const char *text, size_t length, struct tm_arena *arena,
                       struct tm_train_job *out, struct tm_error *e)
{
    struct tm_optimizer defaults = tm_optimizer_defaults();
    struct job_fields fields = {.name = "job",
                                .model = {.gpt = {.vocab = TM_VOCAB}},
                                .seed = 1,
                                .optimizer = {.lr = defaults.lr,
                                              .beta1 = defaults.beta1,
                                              .beta2 = defaults.beta2,
                                              .eps = defaults.eps,
                                              .weight_decay = defaults.weight_decay,
                                              .clip = defaults.clip},
                                .checkpoint = {.dir = "", .keep = 2},
                                .layout = "1x1"};
    struct tm_node *root = NULL;
    struct tm_train_job job;
    int rc = tm_doc_parse_yaml(file, text, length, arena, &root, e);
    if (rc == 0) drop_plan_keys(root);
    if (rc == 0) rc = tm_fields_read(file, root, job_table, arena, &fields, e);
    if (rc != 0) return rc;
    rc = to_job(&fields, &job, e);
    if (rc != 0) return tm_error_wrap(e, rc, "%s", file);
    *out = job;
    return 0;
}

int tm_train_job_load_from(struct tm_env *env, const char *path, const char *folder, struct tm_arena *arena,
                           struct tm_train_job *out, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, JOB_BYTES_MAX);
    int rc = tm_content_read(env, path, &text, e);
    if (rc == 0) rc = tm_train_job_parse(path, tm_text_string(&text), text.length, arena, out, e);
    tm_text_deinit(&text);
    if (rc != 0) return rc;
    bool shipped = strcmp(out->data, "kjv-new-testament") == 0;
    if (!shipped && folder[0] != '\0' && out->data[0] != '/' && out->data[0] != '\0')
        out->data = tm_arena_printf(arena, "%s/%s", folder, out->data);
    return out->data == NULL ? tm_error_nomem(e) : 0;
}

/* A path that a job file names is meant from where the file is. */
int tm_train_job_load(struct tm_env *env, const char *path, struct tm_arena *arena, struct tm_train_job *out,
                      struct tm_error *e)
{
    const char *slash = strrchr(path, '/');
    const char *folder = slash == path   ? "/"
                         : slash != NULL ? tm_arena_strndup(arena, path, (size_t)(slash - path))
                                         : "";
    if (folder == NULL) return tm_error_nomem(e);
    return tm_train_job_load_from(env, path, folder, arena, out, e);
}

/* ---- what the job is known by ---- */

static void put_number(struct tm_text *out, const char *name, double value)
{
    char text[TM_NUMBER_TEXT_MAX];
    tm_fingerprint_line(out, name, tm_number_print(value, text));
}

static void put_data(struct tm_env *env, const struct tm_train_job *job, struct tm_text *out)
{
    struct tm_corpus corpus;
    char hash[33];
    char text[64];
    if (tm_corpus_open(env, job->data, &corpus, NULL) != 0) return;
    (void)snprintf(text, sizeof text, "%s (%zu bytes)", tm_hash_print(tm_hash_of(corpus.bytes, corpus.length), hash),
                   corpus.length);
    tm_fingerprint_line(out, "data", text);
    tm_corpus__close(&corpus);
}

void tm_train_job_fingerprint(struct tm_env *env, const struct tm_train_job *job, struct tm_text *out)
{
    const struct tm_optimizer *o = &job->optimizer;
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"layers", job->network.blocks},
                   {"hidden", job->network.width},
                   {"heads", job->network.heads},
                   {"ctx", job->network.ctx},
                   {"dropout", job->network.dropout},
                   {"batch", (double)job->batch},
                   {"micro_batch", (double)job->micro_batch},
                   {"steps", (double)job->steps},
                   {"seed", (double)job->seed},
                   {"lr", o->lr},
                   {"beta1", o->beta1},
                   {"beta2", o->beta2},
                   {"eps", o->eps},
                   {"weight_decay", o->weight_decay},
                   {"clip", o->clip},
                   {"warmup", (double)o->warmup_steps},
                   {"decay_to", (double)o->decay_steps},
                   {"lr_min", o->lr_min}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_number(out, numbers[i].name, numbers[i].value);
    tm_fingerprint_line(out, "determinism", tm_determinism_names[job->determinism]);
    tm_fingerprint_line(out, "program", "tidemill " TIDEMILL_VERSION);
    put_data(env, job, out);
}
