/* Transformers by formula: a family and what its size is made of.
 *
 *     gpt:layers=48,hidden=1600,heads=25,ctx=1024,vocab=50257
 *         as GPT-2: biases, learned positions, GELU, tied head
 *     llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,...
 *         RMSNorm, SwiGLU, grouped keys and values, no biases
 *     bert:layers=24,hidden=1024,ctx=512,vocab=30522
 *         an encoder: every token sees every other
 *     vit:layers=12,hidden=768,image=224,patch=16,classes=1000
 *         an encoder of an image's patches, and one head for all of them
 *     t5:layers=12,hidden=768,heads=12,ffn=3072,ctx=512,target=114,vocab=32128
 *         so many blocks that encode ctx tokens, and as many that decode target tokens and see those
 *
 * What is kept and moved is counted as PyTorch trains such a block under autocast: the residual stream and what the
 * norms read stay in 32 bits, all else is in 16. The counts meet measured peaks within 2% (src/workload/memory.h). */
#include "workload/model.h"

#include "base/number.h"

#include <string.h>

enum family { FAMILY_gpt, FAMILY_llama, FAMILY_bert, FAMILY_vit, FAMILY_t5, FAMILIES };

static const char *const family_names[FAMILIES] = {"gpt:", "llama:", "bert:", "vit:", "t5:"};

struct formula {
    enum family family;
    int64_t layers, hidden, heads, kv_heads, head_dim, ctx, vocab, ffn;
    int64_t image, patch, classes; /* vit: pixels of a side */
    int64_t target;                /* t5: tokens that are decoded */
    int64_t experts, active;       /* feed-forward networks of a block, and how many a token goes through */
    int64_t lora;                  /* rank of the adapters; 0: all weights are trained */
    int64_t tied;                  /* 1: the head has the embedding's weights */
    int64_t plain;                 /* attention scores are stored */
    int64_t recompute;
    int64_t compile;
    bool narrow_gradients;
    int64_t dropout; /* 1: values are dropped, and masks kept; -1: as the family's published recipe */
};

static const char key_list[] =
    "layers, hidden, heads, kv_heads, head_dim, ffn, ctx, vocab, experts, active, "
    "tied, lora, attention, recompute, compile, dropout, gradients; vit: image, patch, classes; t5: target";

/* A whole number; of tokens 4k, too: 4,096. */
static bool read_value(const char *text, size_t length, bool tokens, int64_t *out)
{
    bool thousands = tokens && length > 1 && (text[length - 1] == 'k' || text[length - 1] == 'K');
    if (!tm_number_i64(text, length - (thousands ? 1 : 0), out)) return false;
    if (thousands) *out = *out <= 1 << 20 ? *out * 1024 : 0;
    return true;
}

struct range {
    int64_t min, max; /* both 0: of no key */
};

/* A key whose value is a word. */
static bool read_word(const char *at, size_t key_length, const char *value, size_t length, struct formula *formula)
{
    if (key_length == 9 && memcmp(at, "gradients", 9) == 0)
        return tm_model__read_gradients(value, length, &formula->narrow_gradients);
    if (key_length != 9 || memcmp(at, "attention", 9) != 0 || length != 5) return false;
    formula->plain = memcmp(value, "plain", 5) == 0;
    return formula->plain == 1 || memcmp(value, "fused", 5) == 0;
}

/* One KEY=VALUE, or a switch alone; *range is what the values of the key may be, where there is such a key. */
static bool read_pair(const char *at, size_t length, struct formula *formula, struct range *range)
{
    const struct {
        const char *key;
        int64_t *value;
        int64_t min, max;
    } keys[] = {{"layers", &formula->layers, 1, 1000},
                {"hidden", &formula->hidden, 1, 1 << 17},
                {"heads", &formula->heads, 1, 4096},
                {"kv_heads", &formula->kv_heads, 1, 4096},
                {"head_dim", &formula->head_dim, 1, 1 << 16},
                {"ctx", &formula->ctx, 1, 1 << 24},
                {"vocab", &formula->vocab, 1, 1 << 24},
                {"ffn", &formula->ffn, 1, 1 << 20},
                {"image", &formula->image, 1, 1 << 14},
                {"patch", &formula->patch, 1, 1 << 10},
                {"classes", &formula->classes, 1, 1 << 24},
                {"target", &formula->target, 1, 1 << 20},
                {"experts", &formula->experts, 1, 4096},
                {"active", &formula->active, 1, 4096},
                {"tied", &formula->tied, 0, 1},
                {"lora", &formula->lora, 1, 1 << 16},
                {"recompute", &formula->recompute, 0, 1},
                {"compile", &formula->compile, 0, 1},
                {"dropout", &formula->dropout, 0, 1}};
    const char *equals = memchr(at, '=', length);
    size_t key_length = equals != NULL ? (size_t)(equals - at) : length;
    const char *value = equals != NULL ? equals + 1 : "1";
    size_t value_length = equals != NULL ? length - key_length - 1 : 1;
    if (equals != NULL && read_word(at, key_length, value, value_length, formula)) return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strlen(keys[i].key) != key_length || memcmp(keys[i].key, at, key_length) != 0) continue;
        bool tokens = keys[i].value == &formula->ctx || keys[i].value == &formula->target;
        if (equals == NULL && keys[i].max > 1) return false;
        *range = (struct range){keys[i].min, keys[i].max};
        return read_value(value, value_length, tokens, keys[i].value) && *keys[i].value >= keys[i].min &&
               *keys[i].value <= keys[i].max;
    }
    return false;
}

static int wrong_pair(const char *at, size_t length, const struct range *range, struct tm_error *e)
{
    int shown = (int)(length < 60 ? length : 60);
    if (range->max > 0)
        return tm_error_set(e, TM_EUSAGE, "model formula: \"%.*s\": expected a whole number from %lld to %lld", shown,
                            at, (long long)range->min, (long long)range->max);
    return tm_error_set(e, TM_EUSAGE,
                        "model formula: \"%.*s\": expected KEY=NUMBER with one of the keys %s; write for example "
                        "gpt:layers=12,hidden=768,heads=12,attention=fused",
                        shown, at, key_list);
}

/* Pairs stand behind commas, or semicolons where a comma has another meaning. */
static int read_formula(const char *text, struct formula *formula, struct tm_error *e)
{
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, ",;");
        struct range range = {0};
        if (!read_pair(at, length, formula, &range)) return wrong_pair(at, length, &range, e);
        at += length + (at[length] != '\0');
    }
    return 0;
}

static void set_or(int64_t *value, int64_t otherwise)
{
    if (*value == 0) *value = otherwise;
}

/* A side whose square this is; 0: none. */
static int64_t root_of(int64_t square)
{
    int64_t side = 0;
    while (side * side < square)
        side++;
    return side * side == square ? side : 0;
}

/* The tokens of an image are its patches, and one for all of them (of some networks not). Either tells the other. */
static int check_image(struct formula *formula, struct tm_error *e)
{
    set_or(&formula->patch, 16);
    int64_t side = formula->ctx > 0 ? root_of(formula->ctx - 1) : 0;
    if (side == 0 && formula->ctx > 0) side = root_of(formula->ctx);
    if (formula->ctx > 0 && side == 0)
        return tm_error_set(
            e, TM_EUSAGE,
            "model formula: ctx=%lld of an image is no square of patches, with or without one token for "
            "all of them; write for example image=384",
            (long long)formula->ctx);
    set_or(&formula->image, side > 0 ? side * formula->patch : 224);
    if (formula->image % formula->patch != 0)
        return tm_error_set(e, TM_EUSAGE, "model formula: image=%lld is not a multiple of patch=%lld",
                            (long long)formula->image, (long long)formula->patch);
    int64_t patches = formula->image / formula->patch;
    if (side > 0 && side != patches)
        return tm_error_set(e, TM_EUSAGE, "model formula: image=%lld with patch=%lld has %lld tokens, not ctx=%lld",
                            (long long)formula->image, (long long)formula->patch, (long long)(patches * patches + 1),
                            (long long)formula->ctx);
    set_or(&formula->ctx, patches * patches + 1);
    return 0;
}

static int check_formula(struct formula *formula, struct tm_error *e)
{
    bool llama = formula->family == FAMILY_llama;
    if (formula->layers == 0 || formula->hidden == 0)
        return tm_error_set(e, TM_EUSAGE,
                            "model formula: needs layers and hidden, for example gpt:layers=12,hidden=768,heads=12");
    int64_t head = llama && formula->hidden >= 2048 ? 128 : 64;
    set_or(&formula->heads, formula->hidden >= head ? formula->hidden / head : 1);
    set_or(&formula->kv_heads, formula->heads);
    set_or(&formula->ffn, llama ? (8 * formula->hidden / 3 + 255) / 256 * 256 : 4 * formula->hidden);
    static const int64_t ctx[FAMILIES] = {1024, 4096, 512, 0, 512};
    static const int64_t vocab[FAMILIES] = {50257, 32000, 30522, 1, 32128};
    set_or(&formula->classes, 1000);
    set_or(&formula->target, 114);
    int rc = formula->family == FAMILY_vit ? check_image(formula, e) : 0;
    if (rc != 0) return rc;
    set_or(&formula->ctx, ctx[formula->family]);
    set_or(&formula->vocab, vocab[formula->family]);
    set_or(&formula->experts, 1);
    set_or(&formula->active, formula->experts > 1 ? 2 : 1);
    if (formula->dropout < 0) formula->dropout = formula->family == FAMILY_bert;
    if (formula->tied < 0) formula->tied = llama || formula->family == FAMILY_vit ? 0 : 1;
    if (formula->head_dim == 0 && formula->hidden % formula->heads != 0)
        return tm_error_set(e, TM_EUSAGE, "model formula: hidden=%lld is not a multiple of heads=%lld",
                            (long long)formula->hidden, (long long)formula->heads);
    set_or(&formula->head_dim, formula->hidden / formula->heads);
    if (formula->heads % formula->kv_heads != 0)
        return tm_error_set(e, TM_EUSAGE, "model formula: heads=%lld is not a multiple of kv_heads=%lld",
                            (long long)formula->heads, (long long)formula->kv_heads);
    if (formula->active > formula->experts)
        return tm_error_set(e, TM_EUSAGE, "model formula: active=%lld of experts=%lld", (long long)formula->active,
                            (long long)formula->experts);
    return 0;
}

/* Weights of a block's matrices, those of one expert, and of low-rank adapters beside all of them. */
struct weights {
    double attention;
    double expert;
    double adapters;
    double small; /* norms and biases */
};

static struct weights weights_of(const struct formula *formula)
{
    double d = (double)formula->hidden;
    double a = (double)(formula->heads * formula->head_dim);
    double k = (double)(formula->kv_heads * formula->head_dim);
    double f = (double)formula->ffn;
    double r = (double)formula->lora;
    bool llama = formula->family == FAMILY_llama;
    return (struct weights){
        .attention = 2 * d * a + 2 * d * k,
        .expert = (llama ? 3 : 2) * d * f,
        .adapters = r * (2 * (d + a) + 2 * (d + k) + (llama ? 3 : 2) * (double)formula->experts * (d + f)),
        .small = (llama || formula->family == FAMILY_t5 ? 2 * d : 6 * d + a + 2 * k + f) +
                 (formula->experts > 1 ? d * (double)formula->experts : 0),
    };
}

/* What dropout keeps: masks of a byte for what is added to the residual stream twice, and T5's feed-forward middle with
 * its result; of plain attention the mask of the scores, and in 32 bits what is left of them, too (under autocast that
 * is the 16-bit copy that the next product keeps anyway). Fused attention draws its mask anew from a seed. */
static void keep_masks(const struct formula *formula, struct tm_layer *layer)
{
    static const double MASK = 0.25; /* of a value of 32 bits */
    double t = (double)formula->ctx;
    double middle = formula->family == FAMILY_t5 ? t * (double)(formula->ffn * formula->active) : 0;
    double scores = formula->plain != 0 ? (double)formula->heads * t * t : 0;
    double masks = MASK * (2 * t * (double)formula->hidden + middle + scores);
    if (formula->dropout == 0) return;
    layer->saved_values += masks + middle + scores;
    layer->wide_values += masks - scores; /* two copies in 16 bits are one in 32 */
}

/* A pre-norm block. Kept for the backward pass, per token: of norms their input in 32 bits and their output; queries,
 * keys, values and what attention gives; the feed-forward's middle (of a gated one gate, up, activation and product).
 * Fused attention keeps no scores; a plain one keeps nearly all of them in 32 bits, and moves them five times. Half of
 * a causal fused attention is never computed. Launches are as measured: checkpointing a block costs about as many again
 * (compute.c). */
static struct tm_layer block_of(const struct formula *formula, const char *name)
{
    double t = (double)formula->ctx;
    double d = (double)formula->hidden;
    double a = (double)(formula->heads * formula->head_dim);
    double k = (double)(formula->kv_heads * formula->head_dim);
    double f = (double)formula->ffn * (double)formula->active;
    double scores = (double)formula->heads * t * t;
    bool llama = formula->family == FAMILY_llama;
    struct weights w = weights_of(formula);
    double middle = llama ? (formula->compile != 0 ? 3 * f : 4 * f) : 2 * f;
    struct tm_layer layer = {
        .name = name,
        .kind = TM_LAYER_block,
        .params = w.attention + (double)formula->experts * w.expert + w.small + w.adapters,
        .frozen_params = formula->lora > 0 ? w.attention + (double)formula->experts * w.expert + w.small : 0,
        .forward_flops = 2 * t * (w.attention + (double)formula->active * w.expert + w.adapters),
        .traffic_values = t * (llama ? 24 * d + 6 * f : 30 * d + 4 * f),
        .saved_values = t * ((llama ? 5.25 : 4) * d + 2 * a + 2 * k + middle),
        .wide_values = t * 2 * d,
        .output_values = t * d,
        .ops = llama ? 9 : 18,
        .tied = -1,
    };
    double attention = 4 * t * t * a;
    if (formula->plain == 0) {
        bool causal = formula->family == FAMILY_gpt || llama;
        layer.attention_flops = causal ? attention / 2 : attention;
        layer.attention_scores = causal ? scores / 2 : scores;
    } else {
        layer.traffic_values += 5 * scores;
        layer.saved_values += 0.85 * scores;
        layer.wide_values += 0.85 * scores;
        layer.ops += 8;
    }
    layer.forward_flops += formula->plain == 0 ? layer.attention_flops : attention;
    keep_masks(formula, &layer);
    return layer;
}

/* A block of t5 that decodes: the same over the tokens that are decoded, and attention to the encoded ones. */
static struct tm_layer decoder_of(const struct formula *formula, const char *name)
{
    struct formula own = *formula;
    own.ctx = formula->target;
    struct tm_layer layer = block_of(&own, name);
    double t = (double)formula->target;
    double seen = (double)formula->ctx;
    double d = (double)formula->hidden;
    double a = (double)(formula->heads * formula->head_dim);
    double k = (double)(formula->kv_heads * formula->head_dim);
    double cross = 2 * d * a + 2 * d * k;
    double attention = 4 * t * seen * a;
    double scores = (double)formula->heads * t * seen;
    layer.params += cross + d;
    if (formula->lora > 0) layer.frozen_params += cross + d;
    layer.forward_flops += 2 * t * 2 * d * a + 2 * seen * 2 * d * k + attention;
    layer.traffic_values += t * (10 * d + 4 * a) + seen * (d + 4 * k);
    layer.saved_values += t * (2 * d + 2 * a) + seen * 2 * k;
    layer.wide_values += t * d;
    layer.output_values = (t + seen) * d; /* what was encoded goes along */
    layer.ops += 9;
    if (formula->plain == 0) {
        layer.attention_flops += attention;
        layer.attention_scores += scores;
    } else {
        layer.traffic_values += 5 * scores;
        layer.saved_values += 0.85 * scores;
        layer.wide_values += 0.85 * scores;
    }
    return layer;
}

/* The ends of a vision transformer: patches to tokens, and a head over one of them. */
static void image_ends_of(const struct formula *formula, struct tm_layer *layers, size_t count)
{
    double t = (double)formula->ctx;
    double d = (double)formula->hidden;
    double inputs = 3 * (double)(formula->patch * formula->patch);
    double pixels = 3 * (double)(formula->image * formula->image);
    double classes = (double)formula->classes;
    double embedding = inputs * d + 2 * d + t * d;
    bool frozen = formula->lora > 0;
    layers[0] = (struct tm_layer){.name = "patches",
                                  .kind = TM_LAYER_matmul,
                                  .params = embedding,
                                  .frozen_params = frozen ? embedding : 0,
                                  .forward_flops = 2 * (t - 1) * inputs * d,
                                  .traffic_values = pixels + 4 * t * d,
                                  .saved_values = pixels,
                                  .output_values = t * d,
                                  .ops = 5,
                                  .tied = -1};
    layers[count - 2] = (struct tm_layer){.name = "norm",
                                          .kind = TM_LAYER_norm,
                                          .params = 2 * d,
                                          .frozen_params = frozen ? 2 * d : 0,
                                          .traffic_values = 3 * t * d,
                                          .saved_values = t * d,
                                          .wide_values = t * d,
                                          .output_values = t * d,
                                          .ops = 1,
                                          .tied = -1};
    layers[count - 1] = (struct tm_layer){.name = "head",
                                          .kind = TM_LAYER_matmul,
                                          .params = classes * d + classes,
                                          .forward_flops = 2 * d * classes,
                                          .traffic_values = 4 * classes + d,
                                          .saved_values = d + 3 * classes,
                                          .output_values = classes,
                                          .ops = 4,
                                          .tied = -1};
}

/* The embedding, the last norm, and the head with the loss. Logits are kept in 16 bits, and twice in 32 for the loss.
 * Rows that are no multiple of 8 cost more passes, unless a compiler pads them. */
static void ends_of(const struct formula *formula, struct tm_layer *layers, size_t count)
{
    bool t5 = formula->family == FAMILY_t5;
    bool bare = t5 || formula->family == FAMILY_llama;
    double t = (double)(t5 ? formula->target : formula->ctx);
    double d = (double)formula->hidden;
    double v = (double)formula->vocab;
    double positions = bare ? 0 : t * d;
    double head = formula->tied != 0 ? 0 : v * d;
    bool frozen = formula->lora > 0;
    int last = (int)count - 1;
    bool compiled = formula->compile != 0;
    layers[0] = (struct tm_layer){.name = "embedding",
                                  .kind = TM_LAYER_embedding,
                                  .params = v * d + positions,
                                  .frozen_params = frozen ? v * d + positions : 0,
                                  .traffic_values = 3 * t * d,
                                  .saved_values = 0,
                                  .output_values = t * d,
                                  .ops = 4,
                                  .tied = formula->tied != 0 ? last : -1};
    layers[count - 2] = (struct tm_layer){.name = "norm",
                                          .kind = TM_LAYER_norm,
                                          .params = bare ? d : 2 * d,
                                          .frozen_params = frozen ? bare ? d : 2 * d : 0,
                                          .traffic_values = 3 * t * d,
                                          .saved_values = t * d,
                                          .wide_values = t * d,
                                          .output_values = t * d,
                                          .ops = 1,
                                          .tied = -1};
    layers[last] = (struct tm_layer){.name = "unembedding",
                                     .kind = TM_LAYER_matmul,
                                     .params = head,
                                     .frozen_params = frozen ? head : 0,
                                     .forward_flops = 2 * t * d * v,
                                     .unaligned_values = formula->vocab % 8 != 0 && !compiled ? t * v : 0,
                                     .traffic_values = 4 * t * v,
                                     .saved_values = t * d + (compiled ? 1.5 : 3) * t * v,
                                     .wide_values = compiled ? 0 : 2 * t * v,
                                     .output_values = t * v,
                                     .ops = 5,
                                     .tied = formula->tied != 0 ? 0 : -1};
}

static enum family family_of(const char *text)
{
    for (int i = 0; i < FAMILIES; i++) {
        if (strncmp(text, family_names[i], strlen(family_names[i])) == 0) return (enum family)i;
    }
    return FAMILIES;
}

bool tm_model__is_formula(const char *text)
{
    return family_of(text) != FAMILIES;
}

static const char *describe_input(const struct formula *formula, struct tm_arena *arena)
{
    long long side = formula->image;
    if (formula->family == FAMILY_vit) return tm_arena_printf(arena, "3x%lldx%lld", side, side);
    if (formula->family == FAMILY_t5)
        return tm_arena_printf(arena, "%lld tokens, %lld decoded", (long long)formula->ctx, (long long)formula->target);
    return tm_arena_printf(arena, "%lld tokens", (long long)formula->ctx);
}

int tm_model__from_formula(const char *text, struct tm_model *model, struct tm_error *e)
{
    static const char *const sources[FAMILIES] = {"formula of a GPT-2-like decoder", "formula of a Llama-like decoder",
                                                  "formula of a BERT-like encoder", "formula of a vision transformer",
                                                  "formula of a T5-like encoder and decoder"};
    struct formula formula = {.family = family_of(text), .tied = -1, .dropout = -1};
    if (formula.family == FAMILIES)
        return tm_error_set(e, TM_EUSAGE, "model formula: \"%.40s\": expected gpt:, llama:, bert:, vit: or t5:", text);
    int rc = read_formula(text + strlen(family_names[formula.family]), &formula, e);
    if (rc == 0) rc = check_formula(&formula, e);
    if (rc != 0) return rc;
    struct tm_model fresh;
    tm_model_init(&fresh);
    bool t5 = formula.family == FAMILY_t5;
    int64_t blocks = t5 ? 2 * formula.layers : formula.layers;
    size_t count = (size_t)blocks + 3;
    fresh.layers = tm_arena_alloc(&fresh.arena, count * sizeof *fresh.layers);
    fresh.name = tm_arena_strndup(&fresh.arena, text, strlen(text));
    fresh.input = describe_input(&formula, &fresh.arena);
    fresh.source = sources[formula.family];
    fresh.heads = (int)formula.heads;
    fresh.recompute = formula.recompute != 0;
    fresh.compiled = formula.compile != 0;
    fresh.narrow_gradients = formula.narrow_gradients;
    bool ok = fresh.layers != NULL && fresh.name != NULL && fresh.input != NULL;
    for (int64_t i = 0; ok && i < blocks; i++) {
        const char *name = tm_arena_printf(&fresh.arena, "block%lld", (long long)i);
        ok = name != NULL;
        if (ok) fresh.layers[i + 1] = i < formula.layers ? block_of(&formula, name) : decoder_of(&formula, name);
    }
    if (!ok) {
        tm_model_deinit(&fresh);
        return tm_error_nomem(e);
    }
    if (formula.family == FAMILY_vit)
        image_ends_of(&formula, fresh.layers, count);
    else
        ends_of(&formula, fresh.layers, count);
    fresh.layer_count = count;
    tm_model_deinit(model);
    *model = fresh;
    return 0;
}
