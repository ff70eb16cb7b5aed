#include "engine/elastic_result.h"

#include "base/alloc.h"
#include "engine/checkpoint.h"
#include "store/copy_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Reads one layer of a set; step 0: any. */
static int read_layer(struct tm_copy_store *store, struct tm_block_pool *pool, uint64_t set,
                      struct tm_layer_state *state, uint64_t *step, struct tm_error *e)
{
    struct tm_block *block = NULL;
    size_t size = 0;
    struct tm_copy_name name;
    void *to = tm_layer_state__bytes(state, &size);
    int rc = store->get(store, set, (uint32_t)state->layer, 0, pool, &name, &block, e);
    if (rc != 0) return rc;
    if (name.set != set || name.layer != (uint32_t)state->layer || name.size != size ||
        (*step != 0 && name.step != *step))
        rc = tm_error_set(e, TM_EINPUT,
                          "%s: set %" PRIu64 " has a copy of layer %" PRIu32 " (%" PRIu64 " bytes) at step %" PRIu64
                          " of set %" PRIu64 " as layer %d: of another job?",
                          store->where, set, name.layer, name.size, name.step, name.set, state->layer);
    if (rc == 0) memcpy(to, block->data, size);
    if (rc == 0) *step = name.step;
    tm_block_release(block);
    return rc;
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
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_copy_store *store = NULL;
    int rc = hashes == NULL || files == NULL || pool == NULL ? tm_error_nomem(e) : 0;
    if (rc == 0) rc = tm_copy_store_open(env, copies, 0, &store, e);
    if (rc == 0) rc = store->newest(store, &result.set, e);
    for (int l = 0; rc == 0 && l < layers; l++) {
        struct tm_layer_state state;
        rc = tm_layer_state__init(&state, &job->network, l, e);
        if (rc != 0) break;
        rc = read_layer(store, pool, result.set, &state, &result.step, e);
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
    if (store != NULL) store->close(store);
    tm_block_pool_destroy(pool);
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
