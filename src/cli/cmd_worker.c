/* The worker of one instance, as its agent starts it: the built-in engine, or the job's own command. A command of the
 * program's own, in no list. */
#include "base/number.h"
#include "cli/commands.h"
#include "job/run_fingerprint.h"
#include "job/run_work.h"
#include "job/run_worker.h"
#include "run/run_settings.h"
#include "run/state_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

const struct tm_option tm_worker_command_options[] = {
    {.name = "state", .value = "DIR", .help = "the job's state folder"},
    {.name = "job", .value = "JOB.yaml", .help = "the job, where there is no state folder"},
    {.name = NULL},
};

/* The shell that runs a job's command may start others: when its agent is gone, all of the group go. */
static void end_group(int number)
{
    (void)number;
    (void)kill(0, SIGKILL);
}

/* Runs the job's own command, in its folder, with its variables; ends as it does. */
static int run_command(struct tm_cli *cli, const struct tm_job *job, struct tm_error *e)
{
    const char *const words[] = {"/bin/sh", "-c", job->run, NULL};
    struct sigaction action = {.sa_handler = end_group};
    int pid = 0;
    int status = 0;
    (void)sigaction(SIGTERM, &action, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    int rc = cli->env->process_start(cli->env, words, &pid, e);
    while (rc == 0) {
        rc = cli->env->process_wait(cli->env, pid, 60000, &status, e);
        if (rc == 0) break;
        if (rc == -(int)TM_ETIMEOUT) rc = 0;
    }
    if (rc == 0) cli->exit_status = status;
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
                   {"TIDEMILL_LAYERS", job->layers > 0 ? job->layers : TM_RUN_COMMAND_LAYERS}};
    char text[32];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        (void)snprintf(text, sizeof text, "%" PRId64, numbers[i].value);
        if (numbers[i].value > 0 && setenv(numbers[i].name, text, 1) != 0) return tm_error_nomem(e);
    }
    if (job->determinism != NULL && setenv("TIDEMILL_DETERMINISM", job->determinism, 1) != 0) return tm_error_nomem(e);
    return 0;
}

/* What the engine is to say that it trains. */
static int tell_fingerprint(struct tm_cli *cli, const char *path, const struct tm_run_settings *settings,
                            struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, TM_RUN_FINGERPRINT_MAX);
    int rc = tm_run_fingerprint(cli->env, path, settings, &cli->arena, &text, e);
    if (rc == 0 && setenv("TIDEMILL_FINGERPRINT", tm_text_string(&text), 1) != 0) rc = tm_error_nomem(e);
    tm_text_deinit(&text);
    return rc;
}

static int become_command(struct tm_cli *cli, const char *path, const struct tm_run_settings *settings,
                          struct tm_error *e)
{
    const char *folder = settings->folder;
    struct tm_job job;
    tm_job_init(&job);
    int rc = tm_job_load(cli->env, path, &job, e);
    if (rc == 0 && job.run == NULL) rc = tm_error_set(e, TM_EINPUT, "%s: there is no run to start", path);
    if (rc == 0) rc = tell_fingerprint(cli, path, settings, e);
    if (rc == 0 && folder[0] != '\0' && chdir(folder) != 0) rc = tm_error_errno(e, errno, "%s", folder);
    if (rc == 0 && job.workdir != NULL && chdir(job.workdir) != 0)
        rc = tm_error_errno(e, errno, "%s: workdir %s", path, job.workdir);
    for (size_t i = 0; rc == 0 && i < job.envs.count; i++) /* what the agent said counts more */
        if (setenv(job.envs.items[i].name, job.envs.items[i].text, 0) != 0) rc = tm_error_nomem(e);
    if (rc == 0) rc = tell_job(&job, e);
    if (rc == 0) rc = run_command(cli, &job, e);
    tm_job_deinit(&job);
    return rc;
}

/* Did the agent die before we asked to die with it? */
static bool is_orphan(const struct tm_cli *cli)
{
    const char *agent = cli->env->variable(cli->env, "TIDEMILL_AGENT_PID");
    int64_t pid = 0;
    int64_t start = 0;
    if (agent == NULL || !tm_number_i64(agent, strlen(agent), &pid) || pid < 2 || pid > INT32_MAX) return false;
    return getppid() == 1 || cli->env->process_started(cli->env, (int)pid, &start, NULL) != 0;
}

int tm_cmd_worker(struct tm_cli *cli, struct tm_error *e)
{
    const char *dir = tm_given_text(cli, "state");
    char path[TM_STATE_PATH_MAX];
    struct tm_run_settings settings;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive its agent */
    if (is_orphan(cli)) return tm_error_set(e, TM_ECANCELED, "the agent that started this worker is gone");
    (void)signal(SIGXFSZ, SIG_IGN); /* a full disk is an error of write */
    tm_run_settings_init(&settings);
    int rc = 0;
    if (dir != NULL) {
        rc = tm_state_check(dir, e);
        if (rc == 0) rc = tm_run_settings_load(cli->env, dir, &settings, e);
        tm_state_path(dir, TM_STATE_JOB, path);
    } else if (tm_given(cli, "job")) {
        struct tm_job job;
        const char *given = tm_given_text(cli, "job");
        const char *slash = strrchr(given, '/');
        const char *folder = slash != NULL ? tm_arena_strndup(&cli->arena, given, (size_t)(slash - given)) : "";
        tm_job_init(&job);
        (void)snprintf(path, sizeof path, "%s", given);
        rc = folder == NULL ? tm_error_nomem(e) : tm_job_load(cli->env, given, &job, e);
        if (rc == 0) rc = tm_run_settings_of_job(&job, given, folder, &settings, e);
        tm_job_deinit(&job);
    } else {
        rc = tm_error_set(e, TM_EUSAGE, "a worker is started by tidemill agent");
    }
    if (rc == 0 && settings.engine == TM_RUN_COMMAND)
        rc = become_command(cli, path, &settings, e);
    else if (rc == 0)
        rc = tm_run_worker(cli->env, path, &settings, &cli->arena, e);
    tm_run_settings_deinit(&settings);
    return rc;
}
