/* The built-in engine's result: layers of a copy set in files, as a checkpoint that everybody reads. */
#include "base/alloc.h"
#include "cli/run_result.h"
#include "engine/checkpoint.h"
#include "engine/trainer.h"
#include "run/state_folder.h"
#include "store/copies.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int read_layer(struct tm_env *env, const char *dir, uint64_t set, struct tm_layer_state *state,
                      int64_t *out_step, struct tm_error *e)
{
    char folder[TM_STATE_PATH_MAX];
    char path[TM_STATE_PATH_MAX + 64];
    const void *file = NULL;
    const void *data = NULL;
    size_t length = 0;
    size_t size = 0;
    struct tm_copy_name name;
    tm_state_path(dir, TM_STATE_COPIES, folder);
    (void)snprintf(path, sizeof path, "%s/set-%" PRIu64 "/layer-%d.tmcopy", folder, set, state->layer);
    int rc = env->file_map(env, path, &file, &length, e);
    if (rc != 0) return rc;
    void *bytes = tm_layer_state_bytes(state, &size);
    rc = tm_copy_file_decode(file, length, &name, &data, e);
    if (rc == 0 && (name.size != size || name.layer != (uint32_t)state->layer))
        rc = tm_error_set(e, TM_EINPUT, "is layer %u of %llu bytes, not layer %d of %zu", name.layer,
                          (unsigned long long)name.size, state->layer, size);
    if (rc == 0) {
        memcpy(bytes, data, size);
        *out_step = (int64_t)name.step;
    }
    env->file_unmap(env, file, length);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "%s", path);
}

struct output {
    struct tm_checkpoint_place place;
    struct tm_layer_files *files; /* by layer; owned */
};

static int write_all(struct tm_env *env, const char *dir, uint64_t set, struct tm_checkpoint_info *info,
                     struct output *outputs, size_t output_count, struct tm_hash *hashes, struct tm_error *e)
{
    int rc = 0;
    int layers = tm_network_layers(&info->network);
    for (int l = 0; rc == 0 && l < layers; l++) {
        struct tm_layer_state state;
        rc = tm_layer_state_init(&state, &info->network, l, e);
        if (rc != 0) break;
        rc = read_layer(env, dir, set, &state, &info->step, e);
        hashes[l] = tm_layer_state_weights_hash(&state);
        for (size_t i = 0; rc == 0 && i < output_count; i++)
            rc = tm_checkpoint_write_layer(&outputs[i].place, info, &state, &outputs[i].files[l], e);
        tm_layer_state_deinit(&state);
    }
    for (size_t i = 0; rc == 0 && i < output_count; i++)
        rc = tm_checkpoint_finish(&outputs[i].place, info, outputs[i].files, e);
    return rc;
}

int tm_run_result_gpt(struct tm_env *env, const char *dir, const char *folder, uint64_t set, struct tm_arena *arena,
                      char out_hash[33], struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    char result[TM_STATE_PATH_MAX];
    struct tm_train_job job;
    const struct tm_kernels *kernels = NULL;
    tm_state_path(dir, TM_STATE_JOB, path);
    tm_state_path(dir, TM_STATE_RESULT, result);
    int rc = tm_train_job_load_from(env, path, folder, arena, &job, e);
    if (rc == 0) rc = tm_kernels_choose(env, &kernels, e);
    if (rc != 0) return rc;
    size_t layers = (size_t)tm_network_layers(&job.network);
    struct tm_checkpoint_info info = {.network = job.network,
                                      .kernels = kernels->name,
                                      .blas_core = kernels->core,
                                      .name = job.name,
                                      .seed = job.seed};
    struct output outputs[] = {{.place = {.env = env, .dir = result, .keep = 1}},
                               {.place = {.env = env, .dir = job.checkpoint.dir, .keep = job.checkpoint.keep}}};
    size_t count = job.checkpoint.dir[0] != '\0' ? 2 : 1;
    struct tm_hash *hashes = tm_calloc(layers, sizeof *hashes);
    for (size_t i = 0; i < count; i++)
        outputs[i].files = tm_calloc(layers, sizeof *outputs[i].files);
    bool room = hashes != NULL && outputs[0].files != NULL && (count < 2 || outputs[1].files != NULL);
    rc = room ? write_all(env, dir, set, &info, outputs, count, hashes, e) : tm_error_nomem(e);
    if (rc == 0) (void)tm_hash_print(tm_hash_of(hashes, layers * sizeof *hashes), out_hash);
    for (size_t i = 0; i < count; i++)
        tm_free(outputs[i].files);
    tm_free(hashes);
    return rc;
}
