#include "workload/model.h"

#include "base/alloc.h"
#include "base/content.h"
#include "base/number.h"
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
        totals.forward_flops += layer->forward_flops;
        totals.traffic_values += layer->traffic_values;
        totals.saved_values += layer->saved_values;
        totals.ops += layer->ops;
    }
    totals.train_flops = 3 * totals.forward_flops;
    return totals;
}

/* ---- by formula ---- */

struct formula {
    int64_t layers, hidden, heads, ctx, vocab, ffn;
};

static int read_formula(const char *text, struct formula *formula, struct tm_error *e)
{
    *formula = (struct formula){.heads = 0, .ctx = 1024, .vocab = 50257};
    const struct {
        const char *key;
        int64_t *value;
        int64_t max;
    } keys[] = {{"layers", &formula->layers, 1000},  {"hidden", &formula->hidden, 1 << 17},
                {"heads", &formula->heads, 4096},    {"ctx", &formula->ctx, 1 << 24},
                {"vocab", &formula->vocab, 1 << 24}, {"ffn", &formula->ffn, 1 << 20}};
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, ",");
        const char *equals = memchr(at, '=', length);
        size_t key_length = equals == NULL ? 0 : (size_t)(equals - at);
        bool known = false;
        for (size_t i = 0; equals != NULL && i < sizeof keys / sizeof *keys; i++) {
            if (strlen(keys[i].key) != key_length || memcmp(keys[i].key, at, key_length) != 0) continue;
            known = tm_number_i64(equals + 1, length - key_length - 1, keys[i].value) && *keys[i].value >= 1 &&
                    *keys[i].value <= keys[i].max;
        }
        if (!known)
            return tm_error_set(e, TM_EUSAGE,
                                "model formula: \"%.*s\": expected KEY=NUMBER with a key out of layers, hidden, heads, "
                                "ctx, vocab, ffn; write for example gpt:layers=12,hidden=768,heads=12",
                                (int)(length < 60 ? length : 60), at);
        at += length + (at[length] == ',');
    }
    return 0;
}

static int check_formula(struct formula *formula, struct tm_error *e)
{
    if (formula->layers == 0 || formula->hidden == 0)
        return tm_error_set(e, TM_EUSAGE,
                            "model formula: needs layers and hidden, for example gpt:layers=12,hidden=768,heads=12");
    if (formula->heads == 0) formula->heads = formula->hidden >= 64 ? formula->hidden / 64 : 1;
    if (formula->ffn == 0) formula->ffn = 4 * formula->hidden;
    if (formula->hidden % formula->heads != 0)
        return tm_error_set(e, TM_EUSAGE, "model formula: hidden=%lld is no multiple of heads=%lld",
                            (long long)formula->hidden, (long long)formula->heads);
    return 0;
}

/* A pre-norm block: attention (query, key, value, output), feed-forward of two matrices, two norms, all with biases.
 * Passes over memory besides the products: norms 3 each, residuals 3 each, dropouts 2 each, activation 2, softmax 5. */
static struct tm_layer block_of(const struct formula *formula, const char *name)
{
    double t = (double)formula->ctx;
    double d = (double)formula->hidden;
    double f = (double)formula->ffn;
    double scores = (double)formula->heads * t * t;
    return (struct tm_layer){
        .name = name,
        .kind = TM_LAYER_block,
        .params = 4 * d * d + 2 * d * f + 9 * d + f,
        .forward_flops = 2 * t * (4 * d * d + 2 * d * f) + 4 * t * t * d,
        .traffic_values = t * d * (6 + 6 + 4) + t * f * 4 + 5 * scores + t * (8 * d + 2 * f),
        .saved_values = t * d * 9 + t * f * 2 + 2 * scores,
        .output_values = t * d,
        .ops = 22,
        .tied = -1,
    };
}

int tm_model_from_formula(const char *text, struct tm_model *model, struct tm_error *e)
{
    struct formula formula;
    int rc = read_formula(text, &formula, e);
    if (rc == 0) rc = check_formula(&formula, e);
    if (rc != 0) return rc;
    struct tm_model fresh;
    tm_model_init(&fresh);
    double t = (double)formula.ctx;
    double d = (double)formula.hidden;
    double v = (double)formula.vocab;
    size_t count = (size_t)formula.layers + 3;
    fresh.layers = tm_arena_alloc(&fresh.arena, count * sizeof *fresh.layers);
    fresh.name = tm_arena_printf(&fresh.arena, "gpt:%s", text);
    fresh.input = tm_arena_printf(&fresh.arena, "%lld tokens", (long long)formula.ctx);
    fresh.source = "formula of a GPT-2-like decoder with a tied embedding";
    bool ok = fresh.layers != NULL && fresh.name != NULL && fresh.input != NULL;
    for (int64_t i = 0; ok && i < formula.layers; i++) {
        const char *name = tm_arena_printf(&fresh.arena, "block%lld", (long long)i);
        ok = name != NULL;
        if (ok) fresh.layers[i + 1] = block_of(&formula, name);
    }
    if (!ok) {
        tm_model_deinit(&fresh);
        return tm_error_nomem(e);
    }
    fresh.layers[0] = (struct tm_layer){"embedding", TM_LAYER_embedding, v * d + t * d, 0, 3 * t * d, t * d, t * d,
                                        4,           (int)count - 1};
    fresh.layers[count - 2] = (struct tm_layer){"norm", TM_LAYER_norm, 2 * d, 0, 3 * t * d, t * d, t * d, 1, -1};
    fresh.layers[count - 1] = (struct tm_layer){
        "unembedding", TM_LAYER_matmul, 0, 2 * t * d * v, t * d + 6 * t * v, t * d + 3 * t * v, t * v, 4, 0};
    fresh.layer_count = count;
    tm_model_deinit(model);
    *model = fresh;
    return 0;
}

/* ---- by name or path ---- */

size_t tm_model_shipped_count(void)
{
    return tm_shipped_model_count();
}

const char *tm_model_shipped_name(size_t i)
{
    return tm_shipped_model(i).name;
}

static int no_such_model(const char *name, struct tm_error *e)
{
    struct tm_suggest suggest = {.word = name};
    struct tm_text names;
    tm_text_init(&names, 1024);
    for (size_t i = 0; i < tm_shipped_model_count(); i++) {
        tm_suggest_offer(&suggest, tm_shipped_model(i).name);
        tm_text_printf(&names, "%s%s", i > 0 ? ", " : "", tm_shipped_model(i).name);
    }
    int rc = suggest.best != NULL
                 ? tm_error_set(e, TM_ENOTFOUND, "no model \"%.60s\"; did you mean %s?", name, suggest.best)
                 : tm_error_set(e, TM_ENOTFOUND, "no model \"%.60s\"; a file, gpt:layers=..., or one of %s", name,
                                tm_text_string(&names));
    tm_text_deinit(&names);
    return rc;
}

int tm_model_load(struct tm_env *env, const char *name_or_path, struct tm_model *model, struct tm_error *e)
{
    if (strncmp(name_or_path, "gpt:", 4) == 0) return tm_model_from_formula(name_or_path + 4, model, e);
    for (size_t i = 0; i < tm_shipped_model_count(); i++) {
        struct tm_shipped_model shipped = tm_shipped_model(i);
        if (strcmp(shipped.name, name_or_path) == 0)
            return tm_model_parse(shipped.name, shipped.text, shipped.length, model, e);
    }
    struct tm_text text;
    tm_text_init(&text, TM_MODEL_BYTES_MAX);
    int rc = tm_content_read(env, name_or_path, &text, e);
    if (rc == -(int)TM_ENOTFOUND)
        rc = no_such_model(name_or_path, e);
    else if (rc == 0)
        rc = tm_model_parse(name_or_path, tm_text_string(&text), text.length, model, e);
    tm_text_deinit(&text);
    return rc;
}
