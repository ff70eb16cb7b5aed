#include "job/job_engine.h"

#include "job/job_engine_internal.h"
#include "job/run_fingerprint.h"

#include <assert.h>

static const struct tm_job_engine *const engines[] = {
    [TM_JOB_ENGINE_GPT] = &tm_job__engine_gpt,
    [TM_JOB_ENGINE_PACED] = &tm_job__engine_paced,
    [TM_JOB_ENGINE_COMMAND] = &tm_job__engine_command,
};

const struct tm_job_engine *tm_job_engine_of(const struct tm_job *job)
{
    assert(job->engine >= 0 && (size_t)job->engine < sizeof engines / sizeof *engines);
    return engines[job->engine];
}

int tm_run_work__load(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_run_work *out,
                      struct tm_error *e)
{
    return tm_job_engine_of(job)->load(env, job, arena, out, e);
}

int tm_run_work__measure(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, double *out_core_s,
                         struct tm_error *e)
{
    const struct tm_job_engine *engine = tm_job_engine_of(job);
    *out_core_s = 0;
    return engine->measure != NULL ? engine->measure(env, job, arena, out_core_s, e) : 0;
}

int tm_run__fingerprint(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_text *out,
                        struct tm_error *e)
{
    int rc = tm_job_engine_of(job)->fingerprint(env, job, arena, out, e);
    return rc == 0 ? tm_text_status(out, e) : rc;
}
