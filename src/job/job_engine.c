#include "job/job_engine.h"

#include "job/job_engine_internal.h"
#include "job/run_fingerprint.h"
#include "run/state_folder.h"

#include <assert.h>

static const struct tm_job_engine *const engines[] = {
    [TM_RUN_GPT] = &tm_job__engine_gpt,
    [TM_RUN_PACED] = &tm_job__engine_paced,
    [TM_RUN_COMMAND] = &tm_job__engine_command,
};

const struct tm_job_engine *tm_job_engine_of(const struct tm_run_settings *settings)
{
    assert(settings->engine >= 0 && (size_t)settings->engine < sizeof engines / sizeof *engines);
    return engines[settings->engine];
}

int tm_run_work__load(struct tm_env *env, const struct tm_job *job, const struct tm_run_settings *settings,
                      struct tm_arena *arena, struct tm_run_work *out, struct tm_error *e)
{
    return tm_job_engine_of(settings)->load(env, job, settings, arena, out, e);
}

int tm_run_work__measure(struct tm_env *env, const struct tm_job *job, const struct tm_run_settings *settings,
                         struct tm_arena *arena, double *out_core_s, struct tm_error *e)
{
    const struct tm_job_engine *engine = tm_job_engine_of(settings);
    *out_core_s = 0;
    return engine->measure != NULL ? engine->measure(env, job, settings, arena, out_core_s, e) : 0;
}

int tm_run__fingerprint(struct tm_env *env, const struct tm_job *job, const struct tm_run_settings *settings,
                        struct tm_arena *arena, struct tm_text *out, struct tm_error *e)
{
    int rc = tm_job_engine_of(settings)->fingerprint(env, job, settings, arena, out, e);
    return rc == 0 ? tm_text_status(out, e) : rc;
}

int tm_job_result(struct tm_env *env, const char *dir, const struct tm_run_settings *settings, uint64_t step,
                  struct tm_arena *arena, char out_hash[33], struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_job job;
    tm_job_init(&job);
    tm_state_path(dir, TM_STATE_JOB, path);
    int rc = tm_job_load(env, path, &job, e);
    if (rc == 0) rc = tm_job_engine_of(settings)->result(env, &job, dir, settings, step, arena, out_hash, e);
    tm_job_deinit(&job);
    return rc;
}
