#include "engine/elastic_result.h"
#include "engine/trainer.h"
#include "job/run_result.h"
#include "run/state_folder.h"

#include <inttypes.h>
#include <stdio.h>

int tm_run_result_gpt(struct tm_env *env, const char *dir, const char *folder, uint64_t step, struct tm_arena *arena,
                      char out_hash[33], struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    char copies[TM_STATE_PATH_MAX];
    char result[TM_STATE_PATH_MAX];
    char kernel_class[80];
    struct tm_train_job job;
    struct tm_elastic_result found;
    const struct tm_kernels *kernels = NULL;
    tm_state_path(dir, TM_STATE_JOB, path);
    tm_state_path(dir, TM_STATE_COPIES, copies);
    tm_state_path(dir, TM_STATE_RESULT, result);
    int rc = tm_train_job_load_from(env, path, folder, arena, &job, e);
    if (rc == 0) rc = tm_kernels_choose(env, &kernels, e); /* as the workers on this machine did */
    if (rc != 0) return rc;
    (void)snprintf(kernel_class, sizeof kernel_class, "%.30s/%.30s", kernels->name, kernels->core);
    rc = tm_elastic_write_checkpoint(env, copies, &job, kernel_class, result, &found, e);
    if (rc == 0 && found.step != step)
        rc = tm_error_set(e, TM_EINPUT, "%s: the newest copy is of step %" PRIu64 ", not of %" PRIu64, copies,
                          found.step, step);
    if (rc == 0 && job.checkpoint.dir[0] != '\0')
        rc = tm_elastic_write_checkpoint(env, copies, &job, kernel_class, job.checkpoint.dir, &found, e);
    if (rc == 0) (void)tm_hash_print(found.weights_hash, out_hash);
    return rc;
}
