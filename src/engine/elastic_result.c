#include "engine/elastic_result.h"

#include "base/alloc.h"
#include "engine/checkpoint.h"
#include "store/copy_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* Reads one layer of a set; step 0: any. */
static int read_layer(struct tm_env *env, const char *copies, uint64_t set, struct tm_layer_state *state,
                      uint64_t *step, struct tm_error *e)
{
    char path[PATH_BYTES];
    const void *file = NULL;
    const void *data = NULL;
    size_t length = 0;
    size_t size = 0;
    struct tm_copy_name name;
    tm_copy_file_path(copies, set, (uint32_t)state->layer, path, sizeof path);
    int rc = env->file_map(env, path, &file, &length, e);
    if (rc != 0) return rc;
    rc = tm_copy_file_decode(file, length, &name, &data, e);
    void *to = tm_layer_state__bytes(state, &size);
    if (rc == 0 && (name.set != set || name.layer != (uint32_t)state->layer || name.size != size ||
                    (*step != 0 && name.step != *step)))
        rc = tm_error_set(e, TM_EINPUT,
                          "is a copy of layer %" PRIu32 " (%" PRIu64 " bytes) at step %" PRIu64 " of set %" PRIu64
                          ": of another job?",
                          name.layer, name.size, name.step, name.set);
    if (rc == 0) memcpy(to, data, size);
    if (rc == 0) *step = name.step;
    env->file_unmap(env, file, length);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "%s", path);
}

/* Goes through the layers; `place` NULL: only hashes them. */
static int collect(struct tm_env *env, const char *copies, const struct tm_train_job *job,
                   const struct tm_checkpoint_place *place, struct tm_checkpoint_info *info,
                   struct tm_elastic_result *out, struct tm_error *e)
{
    int layers = tm_network_layers(&job->network);
    struct tm_elastic_result result = {.set = 0};
    struct tm_hash *hashes = tm_calloc((size_t)layers, sizeof *hashes);
    struct tm_layer_files *files = tm_calloc((size_t)layers, sizeof *files);
    int rc = hashes == NULL || files == NULL ? tm_error_nomem(e) : tm_copy_newest_set(env, copies, &result.set, e);
    for (int l = 0; rc == 0 && l < layers; l++) {
        struct tm_layer_state state;
        rc = tm_layer_state__init(&state, &job->network, l, e);
        if (rc != 0) break;
        rc = read_layer(env, copies, result.set, &state, &result.step, e);
        hashes[l] = tm_layer_state__weights_hash(&state);
        info->step = (int64_t)result.step;
        if (rc == 0 && place != NULL) rc = tm_checkpoint__write_layer(place, info, &state, &files[l], e);
        tm_layer_state__deinit(&state);
    }
    if (rc == 0 && place != NULL) rc = tm_checkpoint__finish(place, info, files, e);
    if (rc == 0) {
        result.weights_hash = tm_hash_of(hashes, (size_t)layers * sizeof *hashes);
        *out = result;
    }
    tm_free(hashes);
    tm_free(files);
    return rc;
}

int tm_elastic_weights_hash(struct tm_env *env, const char *copies, const struct tm_train_job *job,
                            struct tm_elastic_result *out, struct tm_error *e)
{
    struct tm_checkpoint_info info = {.network = job->network};
    return collect(env, copies, job, NULL, &info, out, e);
}

int tm_elastic_write_checkpoint(struct tm_env *env, const char *copies, const struct tm_train_job *job,
                                const char *kernel_class, const char *dir, struct tm_elastic_result *out,
                                struct tm_error *e)
{
    char kernels[64] = "";
    const char *slash = strchr(kernel_class, '/');
    (void)snprintf(kernels, sizeof kernels, "%.*s",
                   (int)(slash == NULL ? strlen(kernel_class) : (size_t)(slash - kernel_class)), kernel_class);
    struct tm_checkpoint_place place = {.env = env, .dir = dir, .keep = job->checkpoint.keep};
    struct tm_checkpoint_info info = {.network = job->network,
                                      .kernels = kernels,
                                      .blas_core = slash == NULL ? "" : slash + 1,
                                      .name = job->name,
                                      .seed = job->seed};
    return collect(env, copies, job, &place, &info, out, e);
}
