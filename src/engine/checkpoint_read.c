#include "base/alloc.h"
#include "base/doc.h"
#include "engine/checkpoint_internal.h"

#include <stdio.h>
#include <string.h>

static const size_t index_bytes_max = (size_t)64 << 20;

/* ---- opening ---- */

static int load_json(struct tm_checkpoint *c, const char *name, json_t **out, struct tm_error *e)
{
    struct tm_text text;
    const char *path = tm_arena_printf(&c->arena, "%s/%s", c->dir, name);
    if (path == NULL) return tm_error_nomem(e);
    tm_text_init(&text, index_bytes_max);
    int rc = c->env->file_read(c->env, path, &text, e);
    if (rc == 0) rc = tm_json_load(path, tm_text_string(&text), text.length, out, e);
    tm_text_deinit(&text);
    return rc;
}

static int whole(const json_t *map, const char *key, int *out)
{
    const json_t *value = json_object_get(map, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > 1 << 24) return -1;
    *out = (int)json_integer_value(value);
    return 0;
}

static int read_config(struct tm_checkpoint *c, struct tm_error *e)
{
    json_t *root = NULL;
    int vocab = 0;
    int rc = load_json(c, "config.json", &root, e);
    if (rc != 0) return rc;
    if (whole(root, "n_layer", &c->network.blocks) != 0 || whole(root, "n_embd", &c->network.width) != 0 ||
        whole(root, "n_head", &c->network.heads) != 0 || whole(root, "n_positions", &c->network.ctx) != 0 ||
        whole(root, "vocab_size", &vocab) != 0)
        rc = tm_error_set(e, TM_EINPUT,
                          "%s/config.json: expected n_layer, n_embd, n_head, n_positions and vocab_size, whole numbers",
                          c->dir);
    else if (vocab != TM_VOCAB)
        rc = tm_error_set(e, TM_EINPUT,
                          "%s/config.json: vocab_size: only byte-level networks (256) are supported, got %d", c->dir,
                          vocab);
    if (rc == 0) {
        rc = tm_network__check(&c->network, e);
        if (rc != 0) rc = tm_error_wrap(e, rc, "%s/config.json", c->dir);
    }
    json_decref(root);
    return rc;
}

static bool read_hash(const char *text, struct tm_hash *out)
{
    uint64_t parts[2] = {0, 0};
    if (text == NULL || strlen(text) != 32) return false;
    for (int i = 0; i < 32; i++) {
        const char *digits = "0123456789abcdef";
        const char *digit = strchr(digits, text[i]);
        if (digit == NULL) return false;
        parts[i / 16] = parts[i / 16] << 4 | (uint64_t)(digit - digits);
    }
    *out = (struct tm_hash){.high = parts[0], .low = parts[1]};
    return true;
}

/* The shard that holds `name`, which must be there and be a plain file name. */
static int find_shard(struct tm_checkpoint *c, const json_t *root, const char *index, const char *name,
                      const char **out_file, struct tm_hash *out_hash, struct tm_error *e)
{
    const char *file = json_string_value(json_object_get(json_object_get(root, "weight_map"), name));
    if (file == NULL) return tm_error_set(e, TM_EINPUT, "%s/%s: weight_map has no \"%s\"", c->dir, index, name);
    if (strchr(file, '/') != NULL || file[0] == '.')
        return tm_error_set(e, TM_EINPUT, "%s/%s: \"%.80s\" is not a plain file name", c->dir, index, file);
    const char *path = tm_arena_printf(&c->arena, "%s/%s", c->dir, file);
    if (path == NULL) return tm_error_nomem(e);
    if (!c->env->file_exists(c->env, path))
        return tm_error_set(e, TM_EINPUT, "%s: missing, but %s/%s lists it; copy the checkpoint again, or use another",
                            path, c->dir, index);
    const json_t *hashes = json_object_get(json_object_get(root, "metadata"), "xxh3_128");
    (void)read_hash(json_string_value(json_object_get(hashes, file)), out_hash);
    *out_file = path;
    return 0;
}

static int read_indexes(struct tm_checkpoint *c, struct tm_error *e)
{
    size_t layers = (size_t)tm_network_layers(&c->network);
    json_t *model = NULL;
    json_t *optimizer = NULL;
    c->model_shards = tm_arena_alloc(&c->arena, layers * sizeof *c->model_shards);
    c->optimizer_shards = tm_arena_alloc(&c->arena, layers * sizeof *c->optimizer_shards);
    c->model_hashes = tm_arena_alloc(&c->arena, layers * sizeof *c->model_hashes);
    c->optimizer_hashes = tm_arena_alloc(&c->arena, layers * sizeof *c->optimizer_hashes);
    if (c->model_shards == NULL || c->optimizer_shards == NULL || c->model_hashes == NULL ||
        c->optimizer_hashes == NULL)
        return tm_error_nomem(e);
    const char *optimizer_path = tm_arena_printf(&c->arena, "%s/optimizer.safetensors.index.json", c->dir);
    if (optimizer_path == NULL) return tm_error_nomem(e);
    c->has_optimizer = c->env->file_exists(c->env, optimizer_path);
    int rc = load_json(c, "model.safetensors.index.json", &model, e);
    if (rc == 0 && c->has_optimizer) rc = load_json(c, "optimizer.safetensors.index.json", &optimizer, e);
    const json_t *own = json_object_get(json_object_get(model, "metadata"), "tidemill");
    const char *kernels = json_string_value(json_object_get(own, "kernels"));
    c->step = json_integer_value(json_object_get(own, "step"));
    c->kernels = tm_arena_strdup(&c->arena, kernels != NULL ? kernels : "");
    if (rc == 0 && (c->kernels == NULL)) rc = tm_error_nomem(e);
    for (size_t l = 0; rc == 0 && l < layers; l++) {
        char name[TM_CHECKPOINT__NAME_MAX];
        size_t tensor = l == layers - 1 ? 1 : 0; /* the head's first is the tied one, in layer 0's shard */
        (void)tm_network__tensor_name(&c->network, (int)l, tensor, name);
        rc = find_shard(c, model, "model.safetensors.index.json", name, &c->model_shards[l], &c->model_hashes[l], e);
        if (rc != 0 || !c->has_optimizer) continue;
        tm_checkpoint__moment_name(&c->network, (int)l, tensor, 1, name);
        rc = find_shard(c, optimizer, "optimizer.safetensors.index.json", name, &c->optimizer_shards[l],
                        &c->optimizer_hashes[l], e);
    }
    json_decref(model);
    json_decref(optimizer);
    return rc;
}

/* The folder itself: what `path` names, or the first line of its `latest`. */
static int find_folder(struct tm_checkpoint *c, const char *path, struct tm_error *e)
{
    const char *latest = tm_arena_printf(&c->arena, "%s/latest", path);
    c->dir = tm_arena_strdup(&c->arena, path);
    if (latest == NULL || c->dir == NULL) return tm_error_nomem(e);
    if (!c->env->file_exists(c->env, latest)) return 0;
    struct tm_text text;
    tm_text_init(&text, 1 << 16);
    int rc = c->env->file_read(c->env, latest, &text, e);
    const char *name = tm_text_string(&text);
    size_t length = strcspn(name, "\n");
    if (rc == 0 && (strncmp(name, "step-", 5) != 0 || memchr(name, '/', length) != NULL))
        rc = tm_error_set(e, TM_EINPUT, "%s: expected the name of a folder such as step-00000100", latest);
    if (rc == 0) c->dir = tm_arena_printf(&c->arena, "%s/%.*s", path, (int)length, name);
    tm_text_deinit(&text);
    return rc == 0 && c->dir == NULL ? tm_error_nomem(e) : rc;
}

int tm_checkpoint_open(struct tm_env *env, const char *path, struct tm_checkpoint *out, struct tm_error *e)
{
    struct tm_checkpoint c = {.env = env};
    tm_arena_init(&c.arena, index_bytes_max);
    int rc = find_folder(&c, path, e);
    if (rc == 0) rc = read_config(&c, e);
    if (rc == 0) rc = read_indexes(&c, e);
    if (rc != 0) {
        tm_arena_deinit(&c.arena);
        return tm_error_wrap(e, rc, "checkpoint %s", path);
    }
    *out = c;
    return 0;
}

void tm_checkpoint_close(struct tm_checkpoint *checkpoint)
{
    tm_arena_deinit(&checkpoint->arena);
    *checkpoint = (struct tm_checkpoint){0};
}

/* ---- layers ---- */

static int copy_tensor(const struct tm_safetensors *file, const char *path, const char *name,
                       const struct tm_tensor_spec *spec, float *arena, struct tm_error *e)
{
    const struct tm_named_tensor *tensor = tm_safetensors__find(file, name);
    if (tensor == NULL) return tm_error_set(e, TM_EINPUT, "%s: has no tensor \"%s\"", path, name);
    bool same = tensor->dtype == TM_DTYPE_F32 && tensor->dims == spec->dims && tensor->shape[0] == spec->shape[0] &&
                (spec->dims == 1 || tensor->shape[1] == spec->shape[1]);
    if (!same)
        return tm_error_set(e, TM_EINPUT, "%s: tensor \"%s\" does not have the type and shape of config.json", path,
                            name);
    memcpy(arena + spec->offset, tensor->data, tensor->bytes);
    return 0;
}

static int open_shard(const struct tm_checkpoint *c, const char *path, struct tm_hash want, struct tm_safetensors *out,
                      struct tm_error *e)
{
    int rc = tm_safetensors__open(c->env, path, out, e);
    if (rc != 0) return rc;
    struct tm_hash unknown = {0};
    if (tm_hash_equal(want, unknown) || tm_hash_equal(want, out->hash)) return 0;
    tm_safetensors__close(out);
    return tm_error_set(
        e, TM_EINPUT,
        "%s: its checksum does not match the index: the file was changed; copy the checkpoint again, or use another",
        path);
}

static int read_weights(const struct tm_checkpoint *c, const char *path, struct tm_hash hash,
                        struct tm_layer_state *state, size_t first, size_t end, struct tm_error *e)
{
    struct tm_safetensors file;
    int rc = open_shard(c, path, hash, &file, e);
    if (rc != 0) return rc;
    for (size_t t = first; rc == 0 && t < end; t++) {
        char name[TM_TENSOR_NAME_MAX];
        rc = copy_tensor(&file, path, tm_network__tensor_name(&c->network, state->layer, t, name),
                         &state->spec.tensors[t], state->weights, e);
    }
    tm_safetensors__close(&file);
    return rc;
}

static int read_scales(const struct tm_safetensors *file, const char *path, struct tm_layer_state *state,
                       struct tm_error *e)
{
    char name[TM_CHECKPOINT__NAME_MAX];
    (void)snprintf(name, sizeof name, "scales.%d", state->layer);
    const struct tm_named_tensor *scales = tm_safetensors__find(file, name);
    if (scales == NULL || scales->dtype != TM_DTYPE_I32 ||
        scales->bytes != state->spec.tensor_count * sizeof *state->scales)
        return tm_error_set(e, TM_EINPUT, "%s: has no matching tensor \"%s\"", path, name);
    memcpy(state->scales, scales->data, scales->bytes);
    return 0;
}

/* Tensors first .. end - 1; with the last of the layer come its scales. */
static int read_moments(const struct tm_checkpoint *c, const char *path, struct tm_hash hash,
                        struct tm_layer_state *state, size_t first, size_t end, struct tm_error *e)
{
    struct tm_safetensors file;
    char name[TM_CHECKPOINT__NAME_MAX];
    int rc = open_shard(c, path, hash, &file, e);
    if (rc != 0) return rc;
    for (size_t t = first; rc == 0 && t < end; t++) {
        for (int moment = 1; rc == 0 && moment <= 2; moment++) {
            tm_checkpoint__moment_name(&c->network, state->layer, t, moment, name);
            rc = copy_tensor(&file, path, name, &state->spec.tensors[t], moment == 1 ? state->moment1 : state->moment2,
                             e);
        }
    }
    if (rc == 0 && end == state->spec.tensor_count) rc = read_scales(&file, path, state, e);
    tm_safetensors__close(&file);
    return rc;
}

int tm_checkpoint__read_layer(const struct tm_checkpoint *checkpoint, struct tm_layer_state *state, struct tm_error *e)
{
    const struct tm_checkpoint *c = checkpoint;
    size_t count = state->spec.tensor_count;
    int l = state->layer;
    bool is_head = state->spec.kind == TM_LAYER_HEAD;
    int rc = read_weights(c, c->model_shards[l], c->model_hashes[l], state, is_head ? 1 : 0, count, e);
    if (rc == 0 && is_head) rc = read_weights(c, c->model_shards[0], c->model_hashes[0], state, 0, 1, e);
    if (rc != 0 || !c->has_optimizer) return rc;
    rc = read_moments(c, c->optimizer_shards[l], c->optimizer_hashes[l], state, is_head ? 1 : 0, count, e);
    if (rc == 0 && is_head) rc = read_moments(c, c->optimizer_shards[0], c->optimizer_hashes[0], state, 0, 1, e);
    return rc;
}
