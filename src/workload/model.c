#include "workload/model.h"

#include "base/alloc.h"
#include "base/content.h"
#include "base/number.h"
#include "base/suggest.h"
#include "workload/shipped_models.h"

#include <stdio.h>
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

int64_t tm_model_sample_tokens(const struct tm_model *model)
{
    static const char unit[] = " tokens";
    size_t digits = model->input != NULL ? strspn(model->input, "0123456789") : 0;
    int64_t tokens = 0;
    if (digits == 0 || strncmp(model->input + digits, unit, sizeof unit - 1) != 0) return 0;
    return tm_number_i64(model->input, digits, &tokens) ? tokens : 0;
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

static int list_models(struct tm_error *e)
{
    struct tm_text names;
    tm_text_init(&names, 8192);
    for (size_t i = 0; i < tm_shipped_model__count(); i++)
        tm_text_printf(&names, "%s%s", i > 0 ? ", " : "", tm_shipped__model(i).name);
    int rc = tm_error_set(e, TM_ENOTFOUND, "the models that ship: %s", tm_text_string(&names));
    tm_text_deinit(&names);
    return rc;
}

static int no_such_model(const char *name, struct tm_error *e)
{
    struct tm_suggest suggest = {.word = name};
    for (size_t i = 0; i < tm_shipped_model__count(); i++)
        tm_suggest_offer(&suggest, tm_shipped__model(i).name);
    if (strcmp(name, "list") == 0) return list_models(e);
    if (suggest.best != NULL)
        return tm_error_set(e, TM_ENOTFOUND, "no model \"%.60s\"; did you mean %s?", name, suggest.best);
    return tm_error_set(e, TM_ENOTFOUND,
                        "no model \"%.60s\"; a file, gpt:layers=..., llama:layers=..., or one of the %zu that ship "
                        "(--model list names them)",
                        name, tm_shipped_model__count());
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

bool tm_model__read_gradients(const char *text, size_t length, bool *out_narrow)
{
    static const char *const names[] = {"16", "fp16", "bf16", "32", "fp32"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) != length || strncmp(names[i], text, length) != 0) continue;
        *out_narrow = i < 3;
        return true;
    }
    return false;
}

/* Images of another size: what convolutions do and keep goes by the area. Pooling leaves as much to the products at the
 * end. */
static bool resize_image(struct tm_model *model, int64_t side)
{
    double scale = (double)(side * side) / (224.0 * 224);
    for (size_t i = 0; i < model->layer_count; i++) {
        struct tm_layer *layer = &model->layers[i];
        if (layer->kind == TM_LAYER_matmul) continue;
        layer->forward_flops *= scale;
        layer->traffic_values *= scale;
        layer->saved_values *= scale;
        layer->wide_values *= scale;
        layer->output_values *= scale;
    }
    model->input = tm_arena_printf(&model->arena, "3x%lldx%lld", (long long)side, (long long)side);
    return model->input != NULL;
}

/* One key behind the name of a network of convolutions; a switch may stand alone. */
static int read_file_key(const char *name, const char *at, size_t length, struct tm_model *model, struct tm_error *e)
{
    const struct {
        const char *key;
        bool *on;
    } switches[] = {
        {"channels_last", &model->channels_last}, {"recompute", &model->recompute}, {"compile", &model->compiled}};
    const char *equals = memchr(at, '=', length);
    size_t key_length = equals != NULL ? (size_t)(equals - at) : length;
    const char *value = equals != NULL ? equals + 1 : "1";
    size_t value_length = equals != NULL ? length - key_length - 1 : 1;
    int64_t number = 0;
    bool whole = tm_number_i64(value, value_length, &number);
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        if (strlen(switches[i].key) != key_length || strncmp(switches[i].key, at, key_length) != 0) continue;
        *switches[i].on = number == 1;
        if (whole && (number == 0 || number == 1)) return 0;
    }
    if (key_length == 9 && strncmp(at, "gradients", 9) == 0 &&
        tm_model__read_gradients(value, value_length, &model->narrow_gradients))
        return 0;
    bool image = key_length == 5 && strncmp(at, "image", 5) == 0 && strcmp(model->input, "3x224x224") == 0;
    if (image && whole && number >= 32 && number <= 4096 && number % 32 == 0)
        return resize_image(model, number) ? 0 : tm_error_nomem(e);
    return tm_error_set(e, TM_EUSAGE,
                        "model %s: \"%.*s\": expected channels_last=1, recompute=1, compile=1, gradients=16 or "
                        "image=PIXELS (of a side, a multiple of 32)",
                        name, (int)(length < 60 ? length : 60), at);
}

/* A shipped file by its name, maybe with the keys behind it that it can have: resnet50,channels_last=1,image=160. */
static int load_shipped_file(const struct tm_shipped__model *shipped, const char *spec, struct tm_model *model,
                             struct tm_error *e)
{
    const char *more = spec + strlen(shipped->name);
    struct tm_model fresh;
    tm_model_init(&fresh);
    int rc = tm_model__parse(shipped->name, shipped->text, shipped->length, &fresh, e);
    while (rc == 0 && *more != '\0') {
        size_t length = strcspn(++more, ",;");
        rc = read_file_key(shipped->name, more, length, &fresh, e);
        more += length;
    }
    if (rc != 0) {
        tm_model_deinit(&fresh);
        return rc;
    }
    tm_model_deinit(model);
    *model = fresh;
    return 0;
}

static bool cut_end(char *name, const char *end)
{
    size_t length = strlen(name);
    size_t cut = strlen(end);
    if (length <= cut || strcmp(name + length - cut, end) != 0) return false;
    name[length - cut] = '\0';
    return true;
}

/* A name as Hugging Face has it, as ours: meta-llama/Llama-3.1-8B-Instruct is llama-3.1-8b. Keys behind it stay. */
static bool find_alias(const char *spec, char out[256])
{
    static const char *const ends[] = {"-instruct", "-hf", "-it", "-pt", "-base", "-chat", "-v0.1", "-v0.2", "-v0.3"};
    static const char *const aliases[][2] = {{"gpt2", "gpt2-124m"},
                                             {"gpt2-small", "gpt2-124m"},
                                             {"gpt2-medium", "gpt2-355m"},
                                             {"gpt2-large", "gpt2-774m"},
                                             {"gpt2-xl", "gpt2-1.5b"},
                                             {"bert-base-uncased", "bert-base"},
                                             {"bert-base-cased", "bert-base"},
                                             {"bert-large-uncased", "bert-large"},
                                             {"bert-large-cased", "bert-large"},
                                             {"vit-base-patch16-224", "vit_b_16"},
                                             {"vit-large-patch16-224", "vit-l-16"}};
    char name[128];
    size_t length = strcspn(spec, ",;");
    const char *slash = memrchr(spec, '/', length);
    const char *begin = slash != NULL ? slash + 1 : spec;
    size_t own = length - (size_t)(begin - spec);
    for (size_t i = 0; i < tm_shipped_model__count(); i++) {
        const char *shipped = tm_shipped__model(i).name;
        if (strlen(shipped) == length && strncmp(shipped, spec, length) == 0) return false; /* ours as it is */
    }
    if (own == 0 || own >= sizeof name || strlen(spec + length) > 100) return false;
    for (size_t i = 0; i <= own; i++)
        name[i] = i < own && begin[i] >= 'A' && begin[i] <= 'Z' ? (char)(begin[i] - 'A' + 'a') : begin[i];
    name[own] = '\0';
    if (strncmp(name, "meta-llama-", 11) == 0) memmove(name, name + 5, strlen(name + 5) + 1);
    for (size_t i = 0; i < 2 * sizeof ends / sizeof *ends; i++) /* -instruct-v0.1, too */
        (void)cut_end(name, ends[i % (sizeof ends / sizeof *ends)]);
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(name, aliases[i][0]) == 0) (void)snprintf(name, sizeof name, "%s", aliases[i][1]);
    for (size_t i = 0; i < tm_shipped_model__count(); i++) {
        if (strcmp(tm_shipped__model(i).name, name) != 0) continue;
        (void)snprintf(out, 256, "%s%s", name, spec + length);
        return strcmp(out, spec) != 0;
    }
    return false;
}

int tm_model_load(struct tm_env *env, const char *name_or_path, struct tm_model *model, struct tm_error *e)
{
    char alias[256];
    if (tm_model__is_formula(name_or_path)) return tm_model__from_formula(name_or_path, model, e);
    if (!env->file_exists(env, name_or_path) && find_alias(name_or_path, alias)) name_or_path = alias;
    for (size_t i = 0; i < tm_shipped_model__count(); i++) {
        struct tm_shipped__model shipped = tm_shipped__model(i);
        size_t length = strlen(shipped.name);
        if (strncmp(shipped.name, name_or_path, length) != 0) continue;
        if (shipped.formula != NULL && strchr(",;", name_or_path[length]) != NULL) /* its end is one of these, too */
            return load_formula(&shipped, name_or_path, model, e);
        if (shipped.formula == NULL && strchr(",;", name_or_path[length]) != NULL)
            return load_shipped_file(&shipped, name_or_path, model, e);
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
