/* The job's own command: its job in numbers, as far as the file says them, and the shell that runs it as a worker. */
#include "job/job_engine_internal.h"
#include "job/run_fingerprint.h"
#include "job/workdir.h"
#include "store/data_set.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 8 }; /* of what `run` trains, where the job does not say */

/* Where `run` is called in, which must be there before anything is rented for it; NULL: where this program is. */
static int find_folder(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, const char **out,
                       struct tm_error *e)
{
    *out = tm_workdir__find(job, arena);
    if (job->workdir == NULL) return 0;
    if (*out == NULL) return tm_error_nomem(e);
    return env->file_exists(env, *out) ? 0 : tm_job_wrong(job, "workdir", e, "there is no folder %s", *out);
}

static int load_work(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_run_work *out,
                     struct tm_error *e)
{
    int64_t layers = job->layers > 0 ? job->layers : LAYERS;
    int64_t micro_batch = job->micro_batch > 0 ? job->micro_batch : job->batch;
    if (job->steps < 1 || job->batch < 1)
        return tm_error_set(e, TM_EINPUT,
                            "%s: to run, a job needs %s; add %s%s%s, as the script's tidemill.torch.init(steps=..., "
                            "batch=...) has them: written there as plain numbers they are taken from it",
                            job->file,
                            job->steps >= 1   ? "batch"
                            : job->batch >= 1 ? "steps"
                                              : "steps and batch",
                            job->steps < 1 ? "steps: N" : "", job->steps < 1 && job->batch < 1 ? " and " : "",
                            job->batch < 1 ? "batch: N" : "");
    if (job->batch % micro_batch != 0 || job->batch / micro_batch > 1 << 20)
        return tm_job_wrong(job, "batch", e, "must be a multiple of micro_batch (%lld), got %lld",
                            (long long)micro_batch, (long long)job->batch);
    const char *folder = NULL;
    int rc = find_folder(env, job, arena, &folder, e);
    if (rc != 0) return rc;
    *out = (struct tm_run_work){.layers = (uint32_t)layers,
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

static int fingerprint(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, struct tm_text *out,
                       struct tm_error *e)
{
    (void)arena;
    (void)e;
    tm_run_fingerprint__job(env, job, out);
    return 0;
}

/* ---- the worker ---- */

/* The variables of the command: "NAME=VALUE", ended by NULL. */
struct told {
    struct tm_arena *arena;
    const char **items; /* with room for all that is told */
    size_t count;
};

static int tell(struct told *told, const char *name, const char *value, struct tm_error *e)
{
    const char *text = tm_arena_printf(told->arena, "%s=%s", name, value);
    if (text == NULL) return tm_error_nomem(e);
    told->items[told->count++] = text;
    return 0;
}

static bool is_told(const struct told *told, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < told->count; i++)
        if (strncmp(told->items[i], name, length) == 0 && told->items[i][length] == '=') return true;
    return false;
}

/* What an engine of the user's has to know of the job: the coordinator counts by the same figures. */
static int tell_job(struct told *told, const struct tm_job *job, struct tm_error *e)
{
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"TIDEMILL_STEPS", job->steps},
                   {"TIDEMILL_BATCH", job->batch},
                   {"TIDEMILL_MICRO_BATCH", job->micro_batch > 0 ? job->micro_batch : job->batch},
                   {"TIDEMILL_SEED", job->seed},
                   {"TIDEMILL_LAYERS", job->layers > 0 ? job->layers : LAYERS}};
    char text[32];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof numbers / sizeof *numbers; i++) {
        (void)snprintf(text, sizeof text, "%" PRId64, numbers[i].value);
        if (numbers[i].value > 0) rc = tell(told, numbers[i].name, text, e);
    }
    if (rc == 0 && job->determinism != NULL) rc = tell(told, "TIDEMILL_DETERMINISM", job->determinism, e);
    return rc;
}

/* Data in a bucket is fetched before the command begins, once for all that run on this machine; a machine that joined
 * may have it already. */
static int tell_data(struct told *told, struct tm_env *env, const struct tm_job *job, struct tm_error *e)
{
    const char *path = NULL;
    if (job->data != NULL && job->data[0] == '/') return tell(told, "TIDEMILL_DATA", job->data, e);
    if (job->data == NULL || !tm_data_set_is(job->data)) return 0;
    int rc = tm_data_set_path(env, job->data, told->arena, &path, e);
    return rc == 0 ? tell(told, "TIDEMILL_DATA", path, e) : rc;
}

/* What the engine is to say that it trains. */
static int tell_fingerprint(struct told *told, struct tm_env *env, const struct tm_job *job, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, TM_RUN_FINGERPRINT_MAX);
    int rc = tm_run__fingerprint(env, job, told->arena, &text, e);
    if (rc == 0) rc = tell(told, "TIDEMILL_FINGERPRINT", tm_text_string(&text), e);
    tm_text_deinit(&text);
    return rc;
}

/* The job's own variables count less than what the agent said, and than what is told of the job. */
static int tell_all(struct told *told, struct tm_env *env, const struct tm_job *job, struct tm_error *e)
{
    enum { OURS = 8 };
    told->items = tm_arena_alloc(told->arena, (OURS + job->envs.count) * sizeof *told->items);
    if (told->items == NULL) return tm_error_nomem(e);
    int rc = tell_fingerprint(told, env, job, e);
    if (rc == 0) rc = tell_job(told, job, e);
    if (rc == 0) rc = tell_data(told, env, job, e);
    for (size_t i = 0; rc == 0 && i < job->envs.count; i++) {
        const struct tm_job_pair *pair = &job->envs.items[i];
        if (env->variable(env, pair->name) == NULL && !is_told(told, pair->name))
            rc = tell(told, pair->name, pair->text, e);
    }
    return rc;
}

/* What lets its owner act as the user in a cloud. An agent may need it, to fetch data; the user's code does not get it,
 * unless the job names it. */
static const char *const credentials[] = {"AWS_ACCESS_KEY_ID",
                                          "AWS_SECRET_ACCESS_KEY",
                                          "AWS_SESSION_TOKEN",
                                          "AWS_SECURITY_TOKEN",
                                          "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                          "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                          "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                          "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                          "AWS_WEB_IDENTITY_TOKEN_FILE",
                                          "GOOGLE_APPLICATION_CREDENTIALS",
                                          "GOOGLE_OAUTH_ACCESS_TOKEN",
                                          "CLOUDSDK_AUTH_ACCESS_TOKEN",
                                          "AZURE_CLIENT_SECRET",
                                          "AZURE_CLIENT_CERTIFICATE_PATH",
                                          "AZURE_CLIENT_CERTIFICATE_PASSWORD",
                                          "AZURE_FEDERATED_TOKEN_FILE",
                                          "AZURE_PASSWORD",
                                          "AZURE_STORAGE_CONNECTION_STRING",
                                          "AZURE_STORAGE_KEY",
                                          "AZURE_STORAGE_SAS_TOKEN",
                                          "IDENTITY_HEADER",
                                          "MSI_SECRET"};

enum { CREDENTIALS = sizeof credentials / sizeof *credentials, WORDS = 2 * CREDENTIALS + 5 };

static bool is_named(const struct tm_job *job, const char *name)
{
    for (size_t i = 0; i < job->envs.count; i++)
        if (strcmp(job->envs.items[i].name, name) == 0) return true;
    return false;
}

/* The command, without the credentials that the job does not name. */
static void find_words(const struct tm_job *job, const char *out[WORDS])
{
    size_t count = 0;
    out[count++] = "env";
    for (size_t i = 0; i < CREDENTIALS; i++) {
        if (is_named(job, credentials[i])) continue;
        out[count++] = "-u";
        out[count++] = credentials[i];
    }
    out[count++] = "/bin/sh";
    out[count++] = "-c";
    out[count++] = job->run;
    out[count] = NULL;
}

/* Runs the job's own command, in its folder, with its variables; ends as it does. The shell may start others: when its
 * agent is gone, all of them go. */
static int train(struct tm_env *env, const struct tm_job *job, struct tm_arena *arena, int *out_status,
                 struct tm_error *e)
{
    const char *words[WORDS];
    struct told told = {.arena = arena};
    struct tm_process_options options = {.argv = words};
    int pid = 0;
    *out_status = 0;
    if (job->run == NULL) return tm_error_set(e, TM_EINPUT, "%s: there is no run", job->file);
    int rc = find_folder(env, job, arena, &options.folder, e);
    if (rc == 0) rc = tell_all(&told, env, job, e);
    if (rc != 0) return rc;
    find_words(job, words);
    options.variables = told.items;
    env->process_end_together(env);
    rc = env->process_start_with(env, &options, &pid, e);
    if (rc != 0) return rc;
    do
        rc = env->process_wait(env, pid, 60000, out_status, e);
    while (rc == -(int)TM_ETIMEOUT);
    return rc;
}

const struct tm_job_engine tm_job__engine_command = {.name = "command",
                                                     .costs = "local",
                                                     .one_stage = true,
                                                     .saves = true,
                                                     .load = load_work,
                                                     .layouts = tm_run_layouts__here,
                                                     .fingerprint = fingerprint,
                                                     .train = train};
