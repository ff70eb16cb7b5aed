#include "workload/job_training.h"

#include "workload/job_internal.h"

#include <math.h>
#include <string.h>

#define AT(type, member) .offset = offsetof(struct type, member)

static const struct tm_field gpt_fields[] = {
    {.key = "layers", .type = TM_FIELD_INTEGER, AT(tm_job_gpt, layers), .min = 1, .max = 100000},
    {.key = "hidden", .type = TM_FIELD_INTEGER, AT(tm_job_gpt, hidden), .min = 1, .max = 1 << 17},
    {.key = "heads", .type = TM_FIELD_INTEGER, AT(tm_job_gpt, heads), .min = 1, .max = 65536},
    {.key = "ctx", .type = TM_FIELD_INTEGER, AT(tm_job_gpt, ctx), .min = 1, .max = 1 << 24},
    {.key = "vocab", .type = TM_FIELD_INTEGER, AT(tm_job_gpt, vocab), .min = 1, .max = 1 << 24},
    {.key = "dropout", .type = TM_FIELD_NUMBER, AT(tm_job_gpt, dropout), .min = 0, .max = 0.9},
    {.key = NULL}};

const struct tm_field tm_job__optimizer_fields[] = {
    {.key = "lr", .type = TM_FIELD_NUMBER, AT(tm_job_optimizer, lr), .min = 0, .max = 1000},
    {.key = "beta1", .type = TM_FIELD_NUMBER, AT(tm_job_optimizer, beta1), .min = 0, .max = 0.999999},
    {.key = "beta2", .type = TM_FIELD_NUMBER, AT(tm_job_optimizer, beta2), .min = 0, .max = 0.999999},
    {.key = "eps", .type = TM_FIELD_NUMBER, AT(tm_job_optimizer, eps), .min = 1e-30, .max = 1},
    {.key = "weight_decay", .type = TM_FIELD_NUMBER, AT(tm_job_optimizer, weight_decay), .min = 0, .max = 100},
    {.key = "clip", .type = TM_FIELD_NUMBER, AT(tm_job_optimizer, clip), .min = 0, .max = 1e30},
    {.key = NULL}};

const struct tm_field tm_job__schedule_fields[] = {
    {.key = "warmup", .type = TM_FIELD_INTEGER, AT(tm_job_schedule, warmup), .min = 0, .max = 1e15},
    {.key = "decay_to", .type = TM_FIELD_INTEGER, AT(tm_job_schedule, decay_to), .min = 0, .max = 1e15},
    {.key = "lr_min", .type = TM_FIELD_NUMBER, AT(tm_job_schedule, lr_min), .min = 0, .max = 1000},
    {.key = NULL}};

const struct tm_field tm_job__checkpoint_fields[] = {
    {.key = "dir", .type = TM_FIELD_STRING, AT(tm_job_checkpoint, dir), .required = true},
    {.key = "every", .type = TM_FIELD_INTEGER, AT(tm_job_checkpoint, every), .min = 0, .max = 1e15},
    {.key = "keep", .type = TM_FIELD_INTEGER, AT(tm_job_checkpoint, keep), .min = 1, .max = 100},
    {.key = NULL}};

struct tm_job_optimizer tm_job__optimizer_unsaid(void)
{
    return (struct tm_job_optimizer){
        .lr = NAN, .beta1 = NAN, .beta2 = NAN, .eps = NAN, .weight_decay = NAN, .clip = NAN};
}

/* The sizes as they stand; dropout costs no time worth the name. */
static int make_formula(const struct tm_node *gpt, struct tm_job *job, struct tm_error *e)
{
    const char *formula = "gpt:";
    for (const struct tm_node *size = gpt->first; formula != NULL && size != NULL; size = size->next)
        if (strcmp(size->key, "dropout") != 0)
            formula = tm_arena_printf(&job->arena, "%s%s=%s,", formula, size->key, size->text);
    if (formula != NULL && job->gpt.vocab == 0) formula = tm_arena_printf(&job->arena, "%svocab=256,", formula);
    job->model = formula != NULL ? tm_arena_strndup(&job->arena, formula, strlen(formula) - 1) : NULL;
    return job->model == NULL ? tm_error_nomem(e) : 0;
}

int tm_job__read_model(const char *file, const struct tm_node *model, struct tm_job *job, struct tm_error *e)
{
    static const struct tm_field map_fields[] = {{.key = "gpt", .type = TM_FIELD_MAP, .fields = gpt_fields},
                                                 {.key = NULL}};
    static const struct tm_field fields[] = {{.key = "model", .type = TM_FIELD_MAP, .fields = map_fields},
                                             {.key = NULL}};
    char place[512];
    const struct tm_node *gpt = model->first;
    if (gpt == NULL || gpt->next != NULL || strcmp(gpt->key, "gpt") != 0 || gpt->kind != TM_NODE_MAP)
        return tm_error_set(e, TM_EINPUT, "%s: model: expected a name, or gpt with its sizes",
                            tm_node_place(file, model, place, sizeof place));
    struct tm_node alone = *model;
    struct tm_node root = {.kind = TM_NODE_MAP, .line = model->line, .first = &alone, .count = 1};
    alone.next = NULL;
    int rc = tm_fields_read(file, &root, fields, &job->arena, &job->gpt, e);
    return rc == 0 ? make_formula(gpt, job, e) : rc;
}
