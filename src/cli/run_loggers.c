#include "cli/run_loggers.h"

#include "base/alloc.h"
#include "base/embed.h"
#include "base/log.h"
#include "run/state_folder.h"
#include "run/step_log.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

TM_EMBED(tm_loggers_script, "../python/tidemill/loggers.py");

enum { PROCESSES_MAX = 8, FIRST_WAIT_MS = 2000, WAIT_MAX_MS = 60000, LAST_MS = 60000, PART_MAX = 1024 };

struct process {
    const struct tm_log_target *target;
    int pid; /* 0: none runs */
    int64_t at_ms;
    int64_t wait_ms;
    bool warned, done;
};

struct tm_run_loggers {
    struct tm_env *env;
    const struct tm_run_settings *settings;
    const char *dir;
    char script[TM_STATE_PATH_MAX];
    char output[TM_STATE_PATH_MAX];
    struct process processes[PROCESSES_MAX];
    size_t count;
};

static int64_t now_ms(const struct tm_run_loggers *l)
{
    return l->env->monotonic_ns(l->env) / 1000000;
}

struct tm_run_loggers *tm_run_loggers_open(struct tm_cli *cli, const struct tm_run_settings *settings, const char *dir)
{
    const struct tm_log_target *list = settings->job.log.items;
    char logs[TM_STATE_PATH_MAX];
    if (settings->job.log.count == 0) return NULL;
    struct tm_run_loggers *l = tm_calloc(1, sizeof *l);
    if (l == NULL) return NULL;
    *l = (struct tm_run_loggers){.env = cli->env, .settings = settings, .dir = dir};
    tm_state_path(dir, TM_STATE_LOGS, logs);
    (void)snprintf(l->script, sizeof l->script, "%.4000s/loggers.py", logs);
    (void)snprintf(l->output, sizeof l->output, "%.4000s/loggers.log", logs);
    for (size_t i = 0; i < settings->job.log.count && l->count < PROCESSES_MAX; i++)
        if (list[i].tensorboard == NULL)
            l->processes[l->count++] = (struct process){.target = &list[i], .wait_ms = FIRST_WAIT_MS};
    return l;
}

/* A Python named with a path stands beside the job file, as its other files do. */
static void find_python(const struct tm_run_loggers *l, const char *python, char out[TM_STATE_PATH_MAX])
{
    const char *folder = l->settings->job.folder;
    bool beside = python != NULL && python[0] != '/' && strchr(python, '/') != NULL && folder[0] != '\0';
    (void)snprintf(out, TM_STATE_PATH_MAX, "%.2000s%s%.2000s", beside ? folder : "", beside ? "/" : "",
                   python == NULL ? "python3" : python);
}

static int start(const struct tm_run_loggers *l, struct process *p, struct tm_error *e)
{
    const struct tm_log_target *target = p->target;
    char python[TM_STATE_PATH_MAX];
    char metrics[TM_STATE_PATH_MAX];
    char job[32];
    const char *argv[16] = {python,
                            l->script,
                            target->mlflow != NULL ? "mlflow" : "wandb",
                            target->mlflow != NULL ? target->mlflow : target->wandb,
                            "--metrics",
                            metrics,
                            "--job",
                            job,
                            "--name",
                            l->settings->job.name,
                            NULL};
    struct tm_process_options options = {.argv = argv,
                                         .folder = l->settings->job.folder[0] == '\0' ? NULL : l->settings->job.folder,
                                         .group = true,
                                         .output = l->output};
    find_python(l, target->python, python);
    tm_state_path(l->dir, TM_STATE_METRICS, metrics);
    (void)snprintf(job, sizeof job, "%016" PRIx64, l->settings->number);
    if (target->experiment != NULL) {
        argv[10] = "--experiment";
        argv[11] = target->experiment;
    }
    int rc = l->env->file_write_private(l->env, l->script, tm_loggers_script_begin,
                                        (size_t)(tm_loggers_script_end - tm_loggers_script_begin), e);
    return rc != 0 ? rc : l->env->process_start_with(l->env, &options, &p->pid, e);
}

static const char *name_of(const struct process *p)
{
    return p->target->mlflow != NULL ? "MLflow" : "Weights & Biases";
}

/* Later again, ever later: nothing is lost meanwhile. */
static void put_off(const struct tm_run_loggers *l, struct process *p, const char *why)
{
    p->pid = 0;
    p->at_ms = now_ms(l) + p->wait_ms;
    p->wait_ms = 2 * p->wait_ms < WAIT_MAX_MS ? 2 * p->wait_ms : WAIT_MAX_MS;
    if (!p->warned) tm_log(TM_LOG_WARN, "%s gets no metrics now: %s; retrying; see %s", name_of(p), why, l->output);
    p->warned = true;
}

static void step_one(const struct tm_run_loggers *l, struct process *p)
{
    struct tm_error e = {.text = ""};
    char why[64];
    int status = 0;
    if (p->done) return;
    if (p->pid == 0) {
        if (now_ms(l) >= p->at_ms && start(l, p, &e) != 0) put_off(l, p, e.text);
        return;
    }
    if (l->env->process_wait(l->env, p->pid, 0, &status, NULL) == -(int)TM_ETIMEOUT) return;
    (void)snprintf(why, sizeof why, "its process ended with status %d", status);
    put_off(l, p, why);
}

void tm_run_loggers_step(struct tm_run_loggers *l)
{
    for (size_t i = 0; l != NULL && i < l->count; i++)
        step_one(l, &l->processes[i]);
}

/* ---- the end ---- */

static void finish_one(const struct tm_run_loggers *l, struct process *p, int64_t end_ms)
{
    struct tm_error e = {.text = ""};
    int status = 1;
    if (p->pid == 0 && start(l, p, &e) != 0) p->pid = 0;
    if (p->pid != 0) {
        int64_t left_ms = end_ms - now_ms(l);
        (void)l->env->process_signal(l->env, p->pid, SIGTERM, NULL);
        int rc = l->env->process_wait(l->env, p->pid, left_ms > 0 ? left_ms : 0, &status, NULL);
        if (rc != 0) {
            (void)l->env->process_signal_group(l->env, p->pid, SIGKILL, NULL);
            (void)l->env->process_wait(l->env, p->pid, 1000, &status, NULL);
            status = 1;
        }
    }
    p->done = true;
    p->pid = 0;
    if (status == 0) return;
    tm_log(TM_LOG_WARN,
           "%s has not got all metrics; see %s. What is missing is added by: %s %s %s %s --once --metrics "
           "%s/metrics.jsonl --job %016" PRIx64 " --name %s",
           name_of(p), l->output, p->target->python == NULL ? "python3" : p->target->python, l->script,
           p->target->mlflow != NULL ? "mlflow" : "wandb",
           p->target->mlflow != NULL ? p->target->mlflow : p->target->wandb, l->dir, l->settings->number,
           l->settings->job.name);
}

void tm_run_loggers_finish(struct tm_run_loggers *l)
{
    struct tm_error e = {.text = ""};
    if (l == NULL) return;
    struct tm_step_log *log =
        tm_step_log_create(l->env, l->dir, &l->settings->job.log, l->settings->job.folder, l->settings->number);
    int rc = log == NULL ? tm_error_nomem(&e) : tm_step_log_complete(log, &e);
    if (rc != 0) tm_log(TM_LOG_WARN, "not all metrics were logged: %s", e.text);
    tm_step_log_destroy(log);
    int64_t end_ms = now_ms(l) + LAST_MS;
    for (size_t i = 0; i < l->count; i++)
        finish_one(l, &l->processes[i], end_ms);
}

void tm_run_loggers_close(struct tm_run_loggers *l)
{
    if (l == NULL) return;
    for (size_t i = 0; i < l->count; i++) {
        int status = 0;
        if (l->processes[i].pid == 0) continue;
        (void)l->env->process_signal_group(l->env, l->processes[i].pid, SIGKILL, NULL);
        (void)l->env->process_wait(l->env, l->processes[i].pid, 1000, &status, NULL);
    }
    tm_free(l);
}
