/* The job's own command: its job in numbers, as far as the file says them, and the shell that runs it as a worker. */
#include "job/job_engine_internal.h"
#include "job/run_fingerprint.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { LAYERS = 8 }; /* of what `run` trains, where the job does not say */

/* Where `run` is called in must be there before anything is rented for it. */
static int check_workdir(struct tm_env *env, const struct tm_job *job, const char *folder, struct tm_arena *arena,
                         struct tm_error *e)
{
    if (job->workdir == NULL) return 0;
    bool absolute = job->workdir[0] == '/' || folder[0] == '\0';
    const char *full = absolute ? job->workdir : tm_arena_printf(arena, "%s/%s", folder, job->workdir);
    if (full == NULL) return tm_error_nomem(e);
    return env->file_exists(env, full) ? 0 : tm_job_wrong(job, "workdir", e, "there is no folder %s", full);
}

static int load_work(struct tm_env *env, const struct tm_job *job, const struct tm_run_settings *settings,
                     struct tm_arena *arena, struct tm_run_work *out, struct tm_error *e)
{
    int64_t layers = job->layers > 0 ? job->layers : LAYERS;
    int64_t micro_batch = job->micro_batch > 0 ? job->micro_batch : job->batch;
    if (job->steps < 1 || job->batch < 1)
        return tm_error_set(e, TM_EINPUT, "%s: to run, a job needs steps and batch", job->file);
    if (job->batch % micro_batch != 0 || job->batch / micro_batch > 1 << 20)
        return tm_job_wrong(job, "batch", e, "must be a multiple of micro_batch (%lld), got %lld",
                            (long long)micro_batch, (long long)job->batch);
    int rc = check_workdir(env, job, settings->folder, arena, e);
    if (rc != 0) return rc;
    *out = (struct tm_run_work){.layers = (uint32_t)layers,
                                .steps = (uint64_t)job->steps,
                                .micro_batches = (uint32_t)(job->batch / micro_batch),
                                .batch = job->batch,
                                .state_bytes_param = 16};
    out->layer_params = tm_arena_alloc(arena, (size_t)layers * sizeof(double));
    out->layer_flops = tm_arena_alloc(arena, (size_t)layers * sizeof(double));
    if (out->layer_params == NULL || out->layer_flops == NULL) return tm_error_nomem(e);
    for (int64_t i = 0; i < layers; i++)
        out->layer_params[i] = out->layer_flops[i] = 1; /* nobody knows: all alike */
    return 0;
}

static int fingerprint(struct tm_env *env, const struct tm_job *job, const struct tm_run_settings *settings,
                       struct tm_arena *arena, struct tm_text *out, struct tm_error *e)
{
    (void)arena;
    (void)e;
    tm_run_fingerprint__job(env, job, settings->folder, out);
    return 0;
}

/* ---- the worker ---- */

/* The shell that runs a job's command may start others: when its agent is gone, all of the group go. */
static void end_group(int number)
{
    (void)number;
    (void)kill(0, SIGKILL);
}

/* Runs the job's own command, in its folder, with its variables; ends as it does. */
static int run_command(struct tm_env *env, const struct tm_job *job, int *out_status, struct tm_error *e)
{
    const char *const words[] = {"/bin/sh", "-c", job->run, NULL};
    struct sigaction action = {.sa_handler = end_group};
    int pid = 0;
    int status = 0;
    (void)sigaction(SIGTERM, &action, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    int rc = env->process_start(env, words, &pid, e);
    while (rc == 0) {
        rc = env->process_wait(env, pid, 60000, &status, e);
        if (rc == 0) break;
        if (rc == -(int)TM_ETIMEOUT) rc = 0;
    }
    if (rc == 0) *out_status = status;
    return rc;
}

/* What an engine of the user's has to know of the job: the coordinator counts by the same figures. */
static int tell_job(const struct tm_job *job, struct tm_error *e)
{
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"TIDEMILL_STEPS", job->steps},
                   {"TIDEMILL_BATCH", job->batch},
                   {"TIDEMILL_MICRO_BATCH", job->micro_batch},
                   {"TIDEMILL_SEED", job->seed},
                   {"TIDEMILL_LAYERS", job->layers > 0 ? job->layers : LAYERS}};
    char text[32];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        (void)snprintf(text, sizeof text, "%" PRId64, numbers[i].value);
        if (numbers[i].value > 0 && setenv(numbers[i].name, text, 1) != 0) return tm_error_nomem(e);
    }
    if (job->determinism != NULL && setenv("TIDEMILL_DETERMINISM", job->determinism, 1) != 0) return tm_error_nomem(e);
    return 0;
}

/* What the engine is to say that it trains. */
static int tell_fingerprint(struct tm_env *env, const struct tm_job *job, const struct tm_run_settings *settings,
                            struct tm_arena *arena, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, TM_RUN_FINGERPRINT_MAX);
    int rc = tm_run__fingerprint(env, job, settings, arena, &text, e);
    if (rc == 0 && setenv("TIDEMILL_FINGERPRINT", tm_text_string(&text), 1) != 0) rc = tm_error_nomem(e);
    tm_text_deinit(&text);
    return rc;
}

static int train(struct tm_env *env, const struct tm_job *job, const struct tm_run_settings *settings,
                 struct tm_arena *arena, int *out_status, struct tm_error *e)
{
    const char *folder = settings->folder;
    *out_status = 0;
    if (job->run == NULL) return tm_error_set(e, TM_EINPUT, "%s: there is no run", job->file);
    int rc = tell_fingerprint(env, job, settings, arena, e);
    if (rc == 0 && folder[0] != '\0' && chdir(folder) != 0) rc = tm_error_errno(e, errno, "%s", folder);
    if (rc == 0 && job->workdir != NULL && chdir(job->workdir) != 0)
        rc = tm_error_errno(e, errno, "%s: workdir %s", job->file, job->workdir);
    for (size_t i = 0; rc == 0 && i < job->envs.count; i++) /* what the agent said counts more */
        if (setenv(job->envs.items[i].name, job->envs.items[i].text, 0) != 0) rc = tm_error_nomem(e);
    if (rc == 0) rc = tell_job(job, e);
    return rc == 0 ? run_command(env, job, out_status, e) : rc;
}

const struct tm_job_engine tm_job__engine_command = {.name = "command",
                                                     .costs = "local",
                                                     .one_stage = true,
                                                     .saves = true,
                                                     .load = load_work,
                                                     .layouts = tm_run_layouts__here,
                                                     .fingerprint = fingerprint,
                                                     .train = train};
