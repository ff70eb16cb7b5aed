#include "workload/model.h"

#include "base/alloc.h"
#include "base/content.h"
#include "base/suggest.h"
#include "workload/shipped_models.h"

#include <string.h>

enum { ARENA_BYTES_MAX = 16 << 20 };

const char *const tm_layer_kind_names[] = {
#define TM_LAYER_KIND_NAME(name) #name,
    TM_LAYER_KINDS(TM_LAYER_KIND_NAME)
#undef TM_LAYER_KIND_NAME
        NULL};

void tm_model_init(struct tm_model *model)
{
    *model = (struct tm_model){.name = "", .input = "", .source = "", .optimizer_states = 2};
    tm_arena_init(&model->arena, ARENA_BYTES_MAX);
}

void tm_model_deinit(struct tm_model *model)
{
    tm_arena_deinit(&model->arena);
    tm_model_init(model);
}

struct tm_model_totals tm_model_totals(const struct tm_model *model)
{
    struct tm_model_totals totals = {0};
    for (size_t i = 0; i < model->layer_count; i++) {
        const struct tm_layer *layer = &model->layers[i];
        totals.params += layer->params;
        totals.trained_params += layer->params - layer->frozen_params;
        totals.forward_flops += layer->forward_flops;
        totals.traffic_values += layer->traffic_values;
        totals.saved_values += layer->saved_values;
        totals.ops += layer->ops;
    }
    totals.train_flops = 3 * totals.forward_flops;
    return totals;
}

/* ---- by name or path ---- */

size_t tm_model_shipped_count(void)
{
    return tm_shipped_model__count();
}

const char *tm_model_shipped_name(size_t i)
{
    return tm_shipped__model(i).name;
}

static int no_such_model(const char *name, struct tm_error *e)
{
    struct tm_suggest suggest = {.word = name};
    struct tm_text names;
    tm_text_init(&names, 4096);
    for (size_t i = 0; i < tm_shipped_model__count(); i++) {
        tm_suggest_offer(&suggest, tm_shipped__model(i).name);
        tm_text_printf(&names, "%s%s", i > 0 ? ", " : "", tm_shipped__model(i).name);
    }
    int rc = suggest.best != NULL
                 ? tm_error_set(e, TM_ENOTFOUND, "no model \"%.60s\"; did you mean %s?", name, suggest.best)
                 : tm_error_set(e, TM_ENOTFOUND,
                                "no model \"%.60s\"; a file, gpt:layers=..., llama:layers=..., or one of %s", name,
                                tm_text_string(&names));
    tm_text_deinit(&names);
    return rc;
}

/* A shipped formula by its name, maybe with keys behind it that change it: llama-2-7b,lora=16,ctx=2048. */
static int load_formula(const struct tm_shipped__model *shipped, const char *spec, struct tm_model *model,
                        struct tm_error *e)
{
    const char *more = spec + strlen(shipped->name);
    struct tm_text formula;
    tm_text_init(&formula, 4096);
    tm_text_printf(&formula, "%s%s", shipped->formula, more);
    int rc = tm_text_status(&formula, e);
    if (rc == 0) rc = tm_model__from_formula(tm_text_string(&formula), model, e);
    tm_text_deinit(&formula);
    if (rc != 0) return rc;
    model->source = shipped->source;
    model->name = tm_arena_strndup(&model->arena, spec, strlen(spec));
    if (model->name != NULL) return 0;
    tm_model_deinit(model);
    return tm_error_nomem(e);
}

int tm_model_load(struct tm_env *env, const char *name_or_path, struct tm_model *model, struct tm_error *e)
{
    if (tm_model__is_formula(name_or_path)) return tm_model__from_formula(name_or_path, model, e);
    for (size_t i = 0; i < tm_shipped_model__count(); i++) {
        struct tm_shipped__model shipped = tm_shipped__model(i);
        size_t length = strlen(shipped.name);
        if (strncmp(shipped.name, name_or_path, length) != 0) continue;
        if (shipped.formula != NULL && strchr(",;", name_or_path[length]) != NULL) /* its end is one of these, too */
            return load_formula(&shipped, name_or_path, model, e);
        if (shipped.formula == NULL && name_or_path[length] == '\0')
            return tm_model__parse(shipped.name, shipped.text, shipped.length, model, e);
    }
    struct tm_text text;
    tm_text_init(&text, TM_MODEL_BYTES_MAX);
    int rc = tm_content_read(env, name_or_path, &text, e);
    if (rc == -(int)TM_ENOTFOUND)
        rc = no_such_model(name_or_path, e);
    else if (rc == 0)
        rc = tm_model__parse(name_or_path, tm_text_string(&text), text.length, model, e);
    tm_text_deinit(&text);
    return rc;
}
