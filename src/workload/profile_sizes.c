#include "workload/profile_sizes.h"

#include "base/number.h"
#include "workload/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- fields ---- */

bool tm_profile__is_word(struct tm_slice text, const char *word)
{
    return strlen(word) == text.length && strncasecmp(text.data, word, text.length) == 0;
}

static bool is_one_of(struct tm_slice text, const char *words)
{
    for (const char *at = words; *at != '\0';) {
        size_t length = strcspn(at, "|");
        if (length == text.length && strncasecmp(at, text.data, length) == 0) return true;
        at += length + (at[length] == '|');
    }
    return false;
}

int tm_profile__column(const struct tm_csv *csv, const char *names)
{
    for (const char *at = names; *at != '\0';) {
        size_t length = strcspn(at, "|");
        for (size_t i = 0; i < csv->field_count; i++) {
            struct tm_slice field = tm_slice_trim(csv->fields[i]);
            if (field.length == length && strncasecmp(at, field.data, length) == 0) return (int)i;
        }
        at += length + (at[length] == '|');
    }
    return -1;
}

struct tm_slice tm_profile__field(const struct tm_csv *csv, int at)
{
    struct tm_slice nothing = {"", 0};
    return at >= 0 && (size_t)at < csv->field_count ? tm_slice_trim(csv->fields[at]) : nothing;
}

bool tm_profile__is_missing(struct tm_slice text)
{
    return text.length == 0 || is_one_of(text, "nan|na|n/a|none|null|-|oom");
}

bool tm_profile__flag(struct tm_slice text, int *out)
{
    *out = is_one_of(text, "1|true|yes|y|on|1.0");
    return *out || tm_profile__is_missing(text) || is_one_of(text, "0|false|no|n|off|0.0");
}

bool tm_profile__whole(struct tm_slice text, int64_t *out)
{
    double number = 0;
    if (tm_number_i64(text.data, text.length, out)) return true;
    if (!tm_number_double(text.data, text.length, &number) || number != floor(number) || fabs(number) > 9e15)
        return false;
    *out = (int64_t)number;
    return true;
}

/* ---- families ---- */

/* What people call a family, what it is counted as, and what goes without saying. */
static const struct {
    const char *names;
    const char *family;
    const char *adds;
    bool experts; /* it must say how many */
} families[] = {
    {"gpt|gpt2|gpt-2|gpt3|gpt-3|nanogpt|mpt|opt", "gpt", "", false},
    {"gpt-neox|gpt_neox|pythia", "gpt", ";tied=0", false},
    {"llama|llama2|llama-2|llama3|llama-3|mistral|qwen|qwen2|qwen2.5|qwen3|phi3|phi-3|phi4|phi-4|smollm|smollm2|"
     "tinyllama|yi|olmo",
     "llama", "", false},
    {"gemma|gemma2|gemma-2|gemma3|gemma-3", "llama", ";tied=1", false},
    {"moe|mixtral|qwen_moe|qwen2_moe|qwen3_moe|qwen-moe|qwen2-moe|qwen3-moe", "llama", "", true},
    {"bert|roberta", "bert", "", false},
    {"vit|deit", "vit", "", false},
    {"t5|flan-t5", "t5", "", false},
};
enum { FAMILIES = sizeof families / sizeof *families };

static const char family_list[] = "gpt (gpt2, mpt, opt, pythia), llama (mistral, qwen, gemma, phi3, smollm, yi, olmo), "
                                  "moe (mixtral), bert, vit or t5";

/* ---- sizes ---- */

enum size_kind {
    SIZE,      /* a whole number of 1 or more */
    ZERO_NONE, /* likewise; 0: there is none, or as the family has it */
    FLAG,
    ATTENTION,
};

enum { S_LAYERS, S_HIDDEN, S_CTX = 6, S_EXPERTS = 8, S_TIED = 11, S_HEAD_DIM = 5 };

static const struct {
    const char *key;   /* of a formula */
    const char *names; /* of the column */
    enum size_kind kind;
} size_columns[TM_PROFILE_SIZES] = {
    {"layers", "layers|n_layers|num_layers|n_layer|num_hidden_layers|depth", SIZE},
    {"hidden", "hidden|hidden_size|d_model|n_embd|hidden_dim|dim|width", SIZE},
    {"heads", "heads|n_heads|num_heads|n_head|num_attention_heads", ZERO_NONE},
    {"kv_heads", "kv_heads|n_kv_heads|num_kv_heads|num_key_value_heads", ZERO_NONE},
    {"ffn", "ffn|ffn_size|ffn_dim|ffn_hidden|intermediate_size|d_ff|mlp_dim", ZERO_NONE},
    {"head_dim", "head_dim|d_head|head_size", ZERO_NONE},
    {"ctx", "ctx|seq_len|seqlen|seq|sequence_length|seq_length|context|context_length|block_size|max_seq_len|tokens",
     SIZE},
    {"vocab", "vocab|vocab_size|n_vocab", ZERO_NONE},
    {"experts", "experts|num_experts|n_experts|num_local_experts", ZERO_NONE},
    {"active", "active|active_experts|top_k|topk|experts_per_token|num_experts_per_tok", ZERO_NONE},
    {"lora", "lora|lora_rank|lora_r", ZERO_NONE},
    {"tied", "tied|tie_embeddings|tied_embeddings|tie_word_embeddings|tied_head", FLAG},
    {"attention", "attention|attn|attn_implementation", ATTENTION},
    {"image", "image|image_size|img_size|resolution", ZERO_NONE},
    {"patch", "patch|patch_size", ZERO_NONE},
    {"classes", "classes|num_classes", ZERO_NONE},
    {"target", "target|target_len|decoder_len", ZERO_NONE},
};

void tm_profile__find_sizes(const struct tm_csv *csv, struct tm_profile__sizes *out)
{
    out->family_at = tm_profile__column(csv, "family|architecture|arch|model_type");
    out->params_at = tm_profile__column(csv, "params|parameters|n_params|num_params");
    for (size_t i = 0; i < TM_PROFILE_SIZES; i++)
        out->at[i] = tm_profile__column(csv, size_columns[i].names);
}

static int wrong(const struct tm_csv *csv, const char *column, const char *expected, struct tm_error *e)
{
    return tm_error_set(e, TM_EINPUT, "%s:%d: %s: expected %s", csv->file, csv->line, column, expected);
}

/* One size, as it stands in a formula; "" where the row does not say. */
static int read_size(const struct tm_csv *csv, size_t i, struct tm_slice text, char out[48], struct tm_error *e)
{
    const char *key = size_columns[i].key;
    int64_t number = 0;
    int flag = 0;
    out[0] = '\0';
    if (tm_profile__is_missing(text)) return 0;
    switch (size_columns[i].kind) {
    case FLAG:
        if (!tm_profile__flag(text, &flag)) return wrong(csv, key, "0 or 1", e);
        (void)snprintf(out, 48, ";%s=%d", key, flag);
        return 0;
    case ATTENTION: {
        bool plain = is_one_of(text, "plain|eager|math|naive|unfused");
        if (!plain && !is_one_of(text, "fused|sdpa|flash|flash2|flash_attention|flash_attention_2|flash-attention|"
                                       "efficient|mem_efficient"))
            return wrong(csv, key, "fused (sdpa, flash) or plain (eager, math)", e);
        (void)snprintf(out, 48, ";%s=%s", key, plain ? "plain" : "fused");
        return 0;
    }
    default:
        if (!tm_profile__whole(text, &number) || number < (size_columns[i].kind == SIZE ? 1 : 0) || number > 1 << 24)
            return wrong(csv, key, "a whole number of 1 or more", e);
        if (number > 0) (void)snprintf(out, 48, ";%s=%lld", key, (long long)number);
        return 0;
    }
}

/* How far a formula's weights are from those that the row has, as a share of them; NaN: it is no formula. */
static double params_error(const char *formula, double params)
{
    struct tm_model model;
    double error = NAN;
    tm_model_init(&model);
    if (tm_model__from_formula(formula, &model, NULL) == 0) error = fabs(tm_model_totals(&model).params / params - 1);
    tm_model_deinit(&model);
    return error;
}

/* Where the row says neither whether the head is tied nor how wide a head is, its `params` tell: a table of 128,256
 * words is a fifth of a model of 1 G parameters. What the family has stays unless something else fits clearly better.
 */
static void fit_params(char formula[TM_PROFILE_FORMULA_MAX], bool tied_said, bool width_said, double params)
{
    static const char *const ties[] = {"", ";tied=0", ";tied=1"};
    static const char *const widths[] = {"", ";head_dim=128", ";head_dim=64", ";head_dim=256", ";head_dim=96"};
    char best[TM_PROFILE_FORMULA_MAX];
    char tried[TM_PROFILE_FORMULA_MAX];
    double error = params_error(formula, params);
    double before = isnan(error) ? 1 : error;
    memcpy(best, formula, TM_PROFILE_FORMULA_MAX);
    if (before < 0.003) return;
    for (size_t w = 0; w < (width_said ? 1 : sizeof widths / sizeof *widths); w++) {
        for (size_t t = 0; t < (tied_said ? 1 : sizeof ties / sizeof *ties); t++) {
            int length = snprintf(tried, sizeof tried, "%s%s%s", formula, ties[t], widths[w]);
            double now = length < (int)sizeof tried ? params_error(tried, params) : NAN;
            if (isnan(now) || now > 0.02 || (!isnan(error) && now > error - 0.003)) continue;
            error = now;
            memcpy(best, tried, sizeof best);
        }
    }
    memcpy(formula, best, TM_PROFILE_FORMULA_MAX);
}

/* The pairs of all columns, behind the family. */
static int put_sizes(const struct tm_csv *csv, const struct tm_profile__sizes *sizes, size_t family,
                     char formula[TM_PROFILE_FORMULA_MAX], bool said[TM_PROFILE_SIZES], struct tm_error *e)
{
    bool vision = strcmp(families[family].family, "vit") == 0;
    size_t length = (size_t)snprintf(formula, TM_PROFILE_FORMULA_MAX, "%s:", families[family].family);
    for (size_t i = 0; i < TM_PROFILE_SIZES; i++) {
        char pair[48];
        int rc = read_size(csv, i, tm_profile__field(csv, sizes->at[i]), pair, e);
        if (rc != 0) return rc;
        said[i] = pair[0] != '\0';
        bool needed =
            i == S_LAYERS || i == S_HIDDEN || (i == S_CTX && !vision) || (i == S_EXPERTS && families[family].experts);
        if (needed && !said[i])
            return wrong(csv, size_columns[i].key,
                         i == S_CTX ? "the tokens of a sample, a whole number of 1 or more (ctx or seq_len)"
                                    : "a whole number of 1 or more",
                         e);
        length += (size_t)snprintf(formula + length, TM_PROFILE_FORMULA_MAX - length, "%s", pair + (i == 0));
        if (length >= TM_PROFILE_FORMULA_MAX - 64) return wrong(csv, "family", "fewer sizes", e);
    }
    if (!said[S_TIED]) (void)snprintf(formula + length, TM_PROFILE_FORMULA_MAX - length, "%s", families[family].adds);
    return 0;
}

static int64_t size_of(const struct tm_csv *csv, const struct tm_profile__sizes *sizes, size_t i)
{
    int64_t number = 0;
    return tm_profile__whole(tm_profile__field(csv, sizes->at[i]), &number) ? number : 0;
}

int tm_profile__read_sizes(const struct tm_csv *csv, const struct tm_profile__sizes *sizes,
                           char formula[TM_PROFILE_FORMULA_MAX], char name[TM_PROFILE_NAME_MAX], struct tm_error *e)
{
    struct tm_slice text = tm_profile__field(csv, sizes->family_at);
    struct tm_slice params_text = tm_profile__field(csv, sizes->params_at);
    bool said[TM_PROFILE_SIZES] = {false};
    size_t family = 0;
    double params = 0;
    while (family < FAMILIES && !is_one_of(text, families[family].names))
        family++;
    if (family == FAMILIES) return wrong(csv, "family", family_list, e);
    int rc = put_sizes(csv, sizes, family, formula, said, e);
    if (rc != 0) return rc;
    bool tied_said = said[S_TIED] || families[family].adds[0] != '\0';
    if (tm_number_double(params_text.data, params_text.length, &params) && params > 0)
        fit_params(formula, tied_said, said[S_HEAD_DIM], params);
    struct tm_model model;
    struct tm_error why = {0};
    tm_model_init(&model);
    rc = tm_model__from_formula(formula, &model, &why);
    tm_model_deinit(&model);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (rc != 0) return tm_error_set(e, TM_EINPUT, "%s:%d: %s", csv->file, csv->line, why.text);
    (void)snprintf(name, TM_PROFILE_NAME_MAX, "%.*s-%lldx%lld-%lld", (int)text.length, text.data,
                   (long long)size_of(csv, sizes, S_LAYERS), (long long)size_of(csv, sizes, S_HIDDEN),
                   (long long)size_of(csv, sizes, S_CTX));
    for (char *c = name; *c != '\0'; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    return 0;
}
