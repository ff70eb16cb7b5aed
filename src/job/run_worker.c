#include "job/run_worker.h"

#include "engine/elastic.h"

/* The agent's variables say who we are and where the others are. */
static int read_variables(struct tidemill_options *out, struct tm_error *e)
{
    char error[512];
    if (tidemill_options_from_environment(out, error, sizeof error) == 0) return 0;
    return tm_error_set(e, TM_EUSAGE, "%s", error);
}

static int run_gpt(struct tm_env *env, const char *path, const struct tm_run_settings *settings, struct tm_arena *arena,
                   struct tm_error *e)
{
    struct tm_train_job job;
    struct tm_elastic_options options = {.job = &job};
    int rc = tm_train_job_load_from(env, path, settings->folder, arena, &job, e);
    if (rc == 0) rc = read_variables(&options.library, e);
    return rc == 0 ? tm_elastic_worker(env, &options, e) : rc;
}

int tm_run_worker(struct tm_env *env, const char *path, const struct tm_run_settings *settings, struct tm_arena *arena,
                  struct tm_error *e)
{
    if (settings->engine == TM_RUN_GPT) return run_gpt(env, path, settings, arena, e);
    if (settings->engine == TM_RUN_PACED) return tm_run_worker_paced(env, path, settings, arena, e);
    return tm_error_set(e, TM_EINTERNAL, "%s: engine %s has no worker of its own", path,
                        tm_run_engine_names[settings->engine]);
}
