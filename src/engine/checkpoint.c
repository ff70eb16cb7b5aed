/* Writing checkpoints; reading them is in checkpoint_read.c. */
#include "engine/checkpoint.h"

#include "base/alloc.h"
#include "base/jsonout.h"
#include "engine/checkpoint_internal.h"

#include <stdio.h>
#include <string.h>

enum { NAMES_MAX = 3 * TM_TENSORS_MAX, TEXT_MAX = 1 << 24, KEPT_MAX = 128 };

static void shard_name(char out[64], const char *kind, int layer, int layers)
{
    (void)snprintf(out, 64, "%s-%05d-of-%05d.safetensors", kind, layer + 1, layers);
}

/* The tied weight stands in layer 0's files only. */
static size_t first_tensor(const struct tm_layer_state *state)
{
    return state->spec.kind == TM_LAYER_HEAD ? 1 : 0;
}

static struct tm_named_tensor describe(const struct tm_tensor_spec *spec, const char *name, const float *arena)
{
    return (struct tm_named_tensor){.name = name,
                                    .dtype = TM_DTYPE_F32,
                                    .dims = spec->dims,
                                    .shape = {spec->shape[0], spec->shape[1]},
                                    .data = arena + spec->offset,
                                    .bytes = spec->count * sizeof(float)};
}

static int path_in(char *out, size_t size, const struct tm_checkpoint_place *place, int64_t step, const char *name,
                   struct tm_error *e)
{
    int length =
        snprintf(out, size, "%s/step-%08lld%s%s", place->dir, (long long)step, name[0] != '\0' ? "/" : "", name);
    if (length < 0 || (size_t)length >= size) return tm_error_set(e, TM_ELIMIT, "%s: path is too long", place->dir);
    return 0;
}

static int write_weights(const struct tm_checkpoint_place *place, const struct tm_checkpoint_info *info,
                         const struct tm_layer_state *state, struct tm_hash *out, struct tm_error *e)
{
    struct tm_named_tensor tensors[TM_TENSORS_MAX];
    char names[TM_TENSORS_MAX][TM_TENSOR_NAME_MAX];
    char file[64];
    char path[4096];
    size_t count = 0;
    for (size_t t = first_tensor(state); t < state->spec.tensor_count; t++) {
        const char *name = tm_network__tensor_name(&info->network, state->layer, t, names[count]);
        tensors[count++] = describe(&state->spec.tensors[t], name, state->weights);
    }
    shard_name(file, "model", state->layer, tm_network_layers(&info->network));
    int rc = path_in(path, sizeof path, place, info->step, file, e);
    return rc == 0 ? tm_safetensors__write(place->env, path, tensors, count, out, e) : rc;
}

static int write_moments(const struct tm_checkpoint_place *place, const struct tm_checkpoint_info *info,
                         const struct tm_layer_state *state, struct tm_hash *out, struct tm_error *e)
{
    struct tm_named_tensor tensors[NAMES_MAX];
    char names[NAMES_MAX][TM_CHECKPOINT__NAME_MAX];
    char file[64];
    char path[4096];
    size_t count = 0;
    for (size_t t = first_tensor(state); t < state->spec.tensor_count; t++) {
        for (int moment = 1; moment <= 2; moment++) {
            tm_checkpoint__moment_name(&info->network, state->layer, t, moment, names[count]);
            tensors[count] =
                describe(&state->spec.tensors[t], names[count], moment == 1 ? state->moment1 : state->moment2);
            count++;
        }
    }
    (void)snprintf(names[count], TM_CHECKPOINT__NAME_MAX, "scales.%d", state->layer);
    tensors[count] = (struct tm_named_tensor){.name = names[count],
                                              .dtype = TM_DTYPE_I32,
                                              .dims = 1,
                                              .shape = {(int64_t)state->spec.tensor_count},
                                              .data = state->scales,
                                              .bytes = state->spec.tensor_count * sizeof *state->scales};
    count++;
    shard_name(file, "optimizer", state->layer, tm_network_layers(&info->network));
    int rc = path_in(path, sizeof path, place, info->step, file, e);
    return rc == 0 ? tm_safetensors__write(place->env, path, tensors, count, out, e) : rc;
}

void tm_checkpoint__moment_name(const struct tm_network *network, int layer, size_t tensor, int moment,
                                char out[TM_CHECKPOINT__NAME_MAX])
{
    char name[TM_TENSOR_NAME_MAX];
    (void)snprintf(out, TM_CHECKPOINT__NAME_MAX, "%s.moment%d", tm_network__tensor_name(network, layer, tensor, name),
                   moment);
}

int tm_checkpoint__write_layer(const struct tm_checkpoint_place *place, const struct tm_checkpoint_info *info,
                               struct tm_layer_state *state, struct tm_layer_files *out, struct tm_error *e)
{
    struct tm_layer_files files;
    int rc = write_weights(place, info, state, &files.model, e);
    if (rc == 0) rc = write_moments(place, info, state, &files.optimizer, e);
    if (rc == 0) *out = files;
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "checkpoint of step %lld", (long long)info->step);
}

/* ---- the indexes ---- */

static void put_hash(struct tm_jsonout *json, const char *key, struct tm_hash hash)
{
    char text[33];
    (void)snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)hash.high, (unsigned long long)hash.low);
    tm_jsonout_string(json, key, text);
}

/* "metadata" and "weight_map"; with `files`, checksums under metadata. */
static void put_index(const struct tm_checkpoint_info *info, const struct tm_layer_files *files, bool optimizer,
                      struct tm_text *out)
{
    const struct tm_network *network = &info->network;
    int layers = tm_network_layers(network);
    struct tm_jsonout json;
    char file[64];
    tm_jsonout_init(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_object(&json, "metadata");
    tm_jsonout_integer(&json, "total_size", tm_network__parameters(network) * (optimizer ? 8 : 4));
    if (!optimizer) {
        tm_jsonout_object(&json, "tidemill");
        tm_jsonout_string(&json, "job", info->name);
        tm_jsonout_integer(&json, "step", info->step);
        tm_jsonout_integer(&json, "seed", (int64_t)info->seed);
        tm_jsonout_string(&json, "kernels", info->kernels);
        tm_jsonout_string(&json, "blas_core", info->blas_core);
        tm_jsonout_end(&json);
    }
    tm_jsonout_object(&json, "xxh3_128");
    for (int l = 0; l < layers; l++) {
        shard_name(file, optimizer ? "optimizer" : "model", l, layers);
        put_hash(&json, file, optimizer ? files[l].optimizer : files[l].model);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    tm_jsonout_object(&json, "weight_map");
    for (int l = 0; l < layers; l++) {
        struct tm_layer_spec spec;
        tm_network_layer(network, l, &spec);
        shard_name(file, optimizer ? "optimizer" : "model", l, layers);
        for (size_t t = spec.kind == TM_LAYER_HEAD ? 1 : 0; t < spec.tensor_count; t++) {
            char name[TM_CHECKPOINT__NAME_MAX];
            for (int moment = 1; optimizer && moment <= 2; moment++) {
                tm_checkpoint__moment_name(network, l, t, moment, name);
                tm_jsonout_string(&json, name, file);
            }
            if (!optimizer) tm_jsonout_string(&json, tm_network__tensor_name(network, l, t, name), file);
        }
        char scales[32];
        (void)snprintf(scales, sizeof scales, "scales.%d", l);
        if (optimizer) tm_jsonout_string(&json, scales, file);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

/* What Hugging Face's GPT2LMHeadModel needs to load the weights. */
static void put_config(const struct tm_network *network, struct tm_text *out)
{
    struct tm_jsonout json;
    tm_jsonout_init(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_list(&json, "architectures");
    tm_jsonout_string(&json, NULL, "GPT2LMHeadModel");
    tm_jsonout_end(&json);
    tm_jsonout_string(&json, "model_type", "gpt2");
    tm_jsonout_string(&json, "activation_function", "gelu_new");
    tm_jsonout_integer(&json, "vocab_size", TM_VOCAB);
    tm_jsonout_integer(&json, "n_positions", network->ctx);
    tm_jsonout_integer(&json, "n_embd", network->width);
    tm_jsonout_integer(&json, "n_layer", network->blocks);
    tm_jsonout_integer(&json, "n_head", network->heads);
    tm_jsonout_number(&json, "layer_norm_epsilon", 1e-5);
    tm_jsonout_number(&json, "resid_pdrop", network->dropout);
    tm_jsonout_number(&json, "embd_pdrop", network->dropout);
    tm_jsonout_number(&json, "attn_pdrop", network->dropout);
    tm_jsonout_bool(&json, "tie_word_embeddings", true);
    tm_jsonout_string(&json, "torch_dtype", "float32");
    tm_jsonout_end(&json);
}

static int write_text(const struct tm_checkpoint_place *place, int64_t step, const char *name,
                      const struct tm_text *text, struct tm_error *e)
{
    char path[4096];
    int rc = tm_text_status(text, e);
    if (rc == 0) rc = path_in(path, sizeof path, place, step, name, e);
    return rc == 0 ? place->env->file_write(place->env, path, text->data, text->length, e) : rc;
}

/* ---- what stays ---- */

static void remove_checkpoint(const struct tm_checkpoint_place *place, const char *folder, int layers)
{
    static const char *const singles[] = {"model.safetensors.index.json", "optimizer.safetensors.index.json",
                                          "config.json"};
    char path[4096];
    for (size_t i = 0; i < sizeof singles / sizeof *singles; i++) { /* the index first: half a checkpoint is none */
        (void)snprintf(path, sizeof path, "%s/%s/%s", place->dir, folder, singles[i]);
        (void)place->env->file_remove(place->env, path, NULL);
    }
    for (int l = 0; l < 2 * layers; l++) {
        char file[64];
        shard_name(file, l < layers ? "model" : "optimizer", l % layers, layers);
        (void)snprintf(path, sizeof path, "%s/%s/%s", place->dir, folder, file);
        (void)place->env->file_remove(place->env, path, NULL);
    }
    (void)snprintf(path, sizeof path, "%s/%s", place->dir, folder);
    (void)place->env->file_remove(place->env, path, NULL);
}

/* Puts the new folder first in `latest`; those past `keep` are removed after. */
static int update_latest(const struct tm_checkpoint_place *place, const struct tm_checkpoint_info *info,
                         struct tm_error *e)
{
    struct tm_text old;
    struct tm_text now;
    char path[4096];
    char folder[32];
    const char *dropped[KEPT_MAX];
    size_t dropped_count = 0;
    tm_text_init(&old, TEXT_MAX);
    tm_text_init(&now, TEXT_MAX);
    (void)snprintf(path, sizeof path, "%s/latest", place->dir);
    (void)snprintf(folder, sizeof folder, "step-%08lld", (long long)info->step);
    if (place->env->file_exists(place->env, path)) (void)place->env->file_read(place->env, path, &old, NULL);
    tm_text_printf(&now, "%s\n", folder);
    int64_t kept = 1;
    for (char *line = old.data; line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end != NULL) *end = '\0';
        bool is_name = strncmp(line, "step-", 5) == 0 && strchr(line, '/') == NULL && strcmp(line, folder) != 0;
        if (is_name && kept < place->keep) {
            tm_text_printf(&now, "%s\n", line);
            kept++;
        } else if (is_name && dropped_count < KEPT_MAX) {
            dropped[dropped_count++] = line;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    int rc = tm_text_status(&now, e);
    if (rc == 0) rc = place->env->file_write(place->env, path, now.data, now.length, e);
    for (size_t i = 0; rc == 0 && i < dropped_count; i++)
        remove_checkpoint(place, dropped[i], tm_network_layers(&info->network));
    tm_text_deinit(&old);
    tm_text_deinit(&now);
    return rc;
}

int tm_checkpoint__finish(const struct tm_checkpoint_place *place, const struct tm_checkpoint_info *info,
                          const struct tm_layer_files *files, struct tm_error *e)
{
    struct tm_text config;
    struct tm_text model;
    struct tm_text optimizer;
    tm_text_init(&config, TEXT_MAX);
    tm_text_init(&model, TEXT_MAX);
    tm_text_init(&optimizer, TEXT_MAX);
    put_config(&info->network, &config);
    put_index(info, files, true, &optimizer);
    put_index(info, files, false, &model);
    int rc = write_text(place, info->step, "config.json", &config, e);
    if (rc == 0) rc = write_text(place, info->step, "optimizer.safetensors.index.json", &optimizer, e);
    if (rc == 0) rc = write_text(place, info->step, "model.safetensors.index.json", &model, e);
    if (rc == 0) rc = update_latest(place, info, e);
    tm_text_deinit(&config);
    tm_text_deinit(&model);
    tm_text_deinit(&optimizer);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "checkpoint of step %lld", (long long)info->step);
}
