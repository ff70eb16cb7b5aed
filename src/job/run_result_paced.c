/* The paced engine's result: its layers of a copy set in files against those of an undisturbed run. */
#include "base/alloc.h"
#include "engine/paced.h"
#include "job/run_result.h"
#include "run/state_folder.h"
#include "store/copy_file.h"
#include "workload/model.h"

#include <inttypes.h>
#include <stdio.h>

static int read_hash(struct tm_env *env, const char *copies, uint64_t set, uint32_t layer, struct tm_copy_name *out,
                     struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX + 64];
    const void *file = NULL;
    const void *data = NULL;
    size_t length = 0;
    tm_copy_file_path(copies, set, layer, path, sizeof path);
    int rc = env->file_map(env, path, &file, &length, e);
    if (rc != 0) return rc;
    rc = tm_copy_file_decode(file, length, out, &data, e); /* which checks the hash */
    env->file_unmap(env, file, length);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "%s", path);
}

struct wanted {
    struct tm_hash *hashes; /* by layer */
};

static void take_reference(void *context, uint32_t layer, const void *state, uint64_t bytes)
{
    ((struct wanted *)context)->hashes[layer] = tm_hash_of(state, bytes);
}

int tm_run_result_paced(struct tm_env *env, const char *dir, uint64_t step, const struct tm_run_work *work,
                        char out_hash[33], struct tm_error *e)
{
    char copies[TM_STATE_PATH_MAX];
    uint64_t set = 0;
    struct tm_model model;
    struct tm_paced_job job = {
        .model = &model, .micro_batches = work->micro_batches, .speed = 1, .bytes_divisor = TM_PACED_DIVISOR};
    struct tm_hash *hashes = tm_calloc(work->layers, sizeof *hashes);
    struct wanted wanted = {tm_calloc(work->layers, sizeof *wanted.hashes)};
    tm_model_init(&model);
    int rc = hashes == NULL || wanted.hashes == NULL ? tm_error_nomem(e) : tm_model_load(env, work->model, &model, e);
    tm_state_path(dir, TM_STATE_COPIES, copies);
    if (rc == 0) rc = tm_copy_newest_set(env, copies, &set, e);
    for (uint32_t l = 0; rc == 0 && l < work->layers; l++) {
        struct tm_copy_name name;
        rc = read_hash(env, copies, set, l, &name, e);
        if (rc == 0 && name.step != step)
            rc = tm_error_set(e, TM_EINPUT, "%s: the newest set is of step %" PRIu64 ", not of %" PRIu64, copies,
                              name.step, step);
        if (rc == 0) hashes[l] = name.hash;
    }
    if (rc == 0) rc = tm_paced_reference(&job, step, take_reference, &wanted, e);
    for (uint32_t l = 0; rc == 0 && l < work->layers; l++)
        if (!tm_hash_equal(hashes[l], wanted.hashes[l]))
            rc = tm_error_set(e, TM_EINTERNAL, "layer %u after step %" PRIu64 " is not what an undisturbed run has", l,
                              step);
    if (rc == 0) (void)tm_hash_print(tm_hash_of(hashes, work->layers * sizeof *hashes), out_hash);
    tm_model_deinit(&model);
    tm_free(wanted.hashes);
    tm_free(hashes);
    return rc;
}
