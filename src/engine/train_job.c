#include "engine/train_job.h"

#include "base/number.h"
#include "engine/assignment.h"
#include "engine/corpus.h"
#include "store/data_set.h"
#include "wire/fingerprint.h"
#include "wire/hash.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHIPPED "kjv-new-testament"

enum { BLOCKS_MAX = 1022 };

int tm_train_job__check(const struct tm_train_job *job, struct tm_error *e)
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

/* ---- from a job ---- */

/* What the engine takes of a number, where others take more. */
static int check_number(const struct tm_job *job, const char *key, int64_t value, int64_t max, const char *example,
                        struct tm_error *e)
{
    if (!tm_job_says(job, key))
        return tm_error_set(e, TM_EINPUT, "%s: key \"%s\" is missing; write for example %s", job->file, key, example);
    if (value >= 1 && value <= max) return 0;
    return tm_job_wrong(job, key, e, "the built-in engine takes from 1 to %lld, got %lld", (long long)max,
                        (long long)value);
}

static int check_model(const struct tm_job *job, struct tm_error *e)
{
    static const char gpt[] = "{gpt: {layers: 4, hidden: 128, heads: 4, ctx: 64}}";
    if (job->model == NULL)
        return tm_error_set(e, TM_EINPUT, "%s: key \"model\" is missing; write for example model: %s", job->file, gpt);
    if (!tm_job_says(job, "model.gpt"))
        return tm_job_wrong(job, "model", e, "the built-in engine trains gpt with its sizes, such as %s, not \"%.60s\"",
                            gpt, job->model);
    int rc = check_number(job, "model.gpt.layers", job->gpt.layers, BLOCKS_MAX, "layers: 4", e);
    if (rc == 0) rc = check_number(job, "model.gpt.hidden", job->gpt.hidden, 65536, "hidden: 128", e);
    if (rc == 0) rc = check_number(job, "model.gpt.heads", job->gpt.heads, 65536, "heads: 4", e);
    if (rc == 0) rc = check_number(job, "model.gpt.ctx", job->gpt.ctx, TM_CTX_MAX, "ctx: 64", e);
    if (rc == 0 && job->gpt.vocab != 0 && job->gpt.vocab != TM_VOCAB)
        rc = tm_job_wrong(job, "model.gpt.vocab", e, "the built-in engine reads bytes: leave it out, or write %d",
                          TM_VOCAB);
    return rc;
}

static int check_keys(const struct tm_job *job, struct tm_error *e)
{
    int rc = check_model(job, e);
    if (rc == 0 && job->data == NULL)
        rc = tm_error_set(e, TM_EINPUT, "%s: key \"data\" is missing; write for example data: " SHIPPED, job->file);
    if (rc == 0) rc = check_number(job, "batch", job->batch, 1 << 24, "batch: 8", e);
    if (rc == 0 && job->micro_batch > 0) rc = check_number(job, "micro_batch", job->micro_batch, 65536, "", e);
    if (rc == 0) rc = check_number(job, "steps", job->steps, 1 << 24, "steps: 100", e);
    return rc;
}

static double said(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

static struct tm_optimizer optimizer_of(const struct tm_job *job)
{
    const struct tm_job_optimizer *o = &job->optimizer;
    struct tm_optimizer defaults = tm_optimizer_defaults();
    return (struct tm_optimizer){.lr = said(o->lr, defaults.lr),
                                 .beta1 = said(o->beta1, defaults.beta1),
                                 .beta2 = said(o->beta2, defaults.beta2),
                                 .eps = said(o->eps, defaults.eps),
                                 .weight_decay = said(o->weight_decay, defaults.weight_decay),
                                 .clip = said(o->clip, defaults.clip),
                                 .warmup_steps = job->schedule.warmup,
                                 .decay_steps = job->schedule.decay_to,
                                 .lr_min = job->schedule.lr_min};
}

/* A path that a job file names is meant from where the file is. */
static const char *data_of(const struct tm_job *job, struct tm_arena *arena)
{
    const char *folder = job->folder;
    bool as_it_is = strcmp(job->data, SHIPPED) == 0 || folder[0] == '\0' || job->data[0] == '/' ||
                    job->data[0] == '\0' || tm_data_set_is(job->data);
    return as_it_is ? tm_arena_strdup(arena, job->data) : tm_arena_printf(arena, "%s/%s", folder, job->data);
}

int tm_train_job_of(const struct tm_job *from, struct tm_arena *arena, struct tm_train_job *out, struct tm_error *e)
{
    int rc = check_keys(from, e);
    if (rc != 0) return rc;
    struct tm_train_job job = {
        .name = tm_arena_strdup(arena, from->name != NULL ? from->name : "job"),
        .network = {.blocks = (int)from->gpt.layers,
                    .width = (int)from->gpt.hidden,
                    .heads = (int)from->gpt.heads,
                    .ctx = (int)from->gpt.ctx,
                    .dropout = from->gpt.dropout},
        .data = data_of(from, arena),
        .batch = from->batch,
        .micro_batch = from->micro_batch > 0 ? from->micro_batch : from->batch,
        .steps = from->steps,
        .seed = tm_job_says(from, "seed") ? (uint64_t)from->seed : 1,
        .optimizer = optimizer_of(from),
        .memory_max = from->memory,
        .checkpoint = {.dir = tm_arena_strdup(arena, from->checkpoint.dir != NULL ? from->checkpoint.dir : ""),
                       .every = from->checkpoint.every,
                       .keep = from->checkpoint.keep > 0 ? from->checkpoint.keep : 2}};
    if (job.name == NULL || job.data == NULL || job.checkpoint.dir == NULL) return tm_error_nomem(e);
    for (int i = 0; from->determinism != NULL && tm_determinism_names[i] != NULL; i++)
        if (strcmp(from->determinism, tm_determinism_names[i]) == 0) job.determinism = (enum tm_determinism)i;
    struct tm_error wrong = {.text = ""};
    rc = tm_layout_parse(from->layout != NULL ? from->layout : "1x1", &job.pipelines, &job.stages, &wrong);
    if (rc != 0) return tm_job_wrong(from, "layout", e, "%s", wrong.text);
    rc = tm_train_job__check(&job, e);
    if (rc != 0) return tm_error_wrap(e, rc, "%s", from->file);
    *out = job;
    return 0;
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
