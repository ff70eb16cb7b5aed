/* The worker of one instance, as its agent starts it: the built-in engine, or the job's own command. A command of the
 * program's own, in no list. */
#include "base/number.h"
#include "cli/commands.h"
#include "job/job_engine.h"
#include "job/job_file.h"
#include "run/state_folder.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

const struct tm_option tm_worker_command_options[] = {
    {.name = "state", .value = "DIR", .help = "the job's state folder"},
    {.name = "job", .value = "JOB.yaml", .help = "the job, where there is no state folder"},
    {.name = NULL},
};

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
    struct tm_run_settings settings;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive its agent */
    if (is_orphan(cli)) return tm_error_set(e, TM_ECANCELED, "the agent that started this worker has ended");
    (void)signal(SIGXFSZ, SIG_IGN); /* a full disk is an error of write */
    tm_run_settings_init(&settings);
    int rc = 0;
    if (dir != NULL) {
        rc = tm_state_check(dir, e);
        if (rc == 0) rc = tm_run_settings_load(cli->env, dir, &settings, e);
    } else if (tm_given(cli, "job")) {
        rc = tm_job_file_load(cli->env, tm_given_text(cli, "job"), &settings, e);
    } else {
        rc = tm_error_set(e, TM_EUSAGE, "a worker is started by tidemill agent");
    }
    const struct tm_job *job = &settings.job;
    if (rc == 0) rc = tm_job_engine_of(job)->train(cli->env, job, &cli->arena, &cli->exit_status, e);
    tm_run_settings_deinit(&settings);
    return rc;
}
