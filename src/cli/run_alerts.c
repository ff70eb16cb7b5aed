#include "cli/run_alerts.h"

#include "api/api_client.h"
#include "base/alloc.h"
#include "base/log.h"
#include "run/notifier.h"
#include "run/state_folder.h"

#include <string.h>

enum { LOOK_MS = 1000, LAST_MS = 15000, STEP_MS = 20, PATIENCE_S = 600 };

struct tm_run_alerts {
    struct tm_env *env;
    const struct tm_maps *lists[2];
    struct tm_maps own; /* of config.yaml, without those that the job names, too; the array is owned */
    struct tm_notifier *notifier;
    struct tm_api_client *client;
    int64_t looked_ms;
    const char *job;
};

static int64_t now_ms(const struct tm_run_alerts *a)
{
    return a->env->monotonic_ns(a->env) / 1000000;
}

/* A run that was detached has this machine's webhooks in its job file; whoever goes on with it here tells them once. */
static bool is_named(const struct tm_maps *job, const struct tm_notify_target *target)
{
    const struct tm_notify_target *all = job->items;
    for (size_t i = 0; target->webhook != NULL && i < job->count; i++)
        if (all[i].webhook != NULL && strcmp(all[i].webhook, target->webhook) == 0) return true;
    return false;
}

static int take_own(struct tm_run_alerts *a, const struct tm_maps *job, const struct tm_maps *config)
{
    const struct tm_notify_target *from = config->items;
    struct tm_notify_target *to = tm_calloc(config->count + 1, sizeof *to);
    if (to == NULL) return -(int)TM_ENOMEM;
    for (size_t i = 0; i < config->count; i++)
        if (!is_named(job, &from[i])) to[a->own.count++] = from[i];
    a->own.items = to;
    return 0;
}

struct tm_run_alerts *tm_run_alerts_open(struct tm_cli *cli, const struct tm_job *job, const char *dir, bool resumed)
{
    char logs[TM_STATE_PATH_MAX];
    struct tm_alert_limits limits = {.probability = job->probability, .patience_s = PATIENCE_S};
    if (job->notify.count + cli->settings.notify.count == 0) return NULL;
    struct tm_run_alerts *a = tm_calloc(1, sizeof *a);
    if (a == NULL) return NULL;
    a->env = cli->env;
    a->job = job->name;
    a->lists[0] = &job->notify;
    a->lists[1] = &a->own;
    tm_state_path(dir, TM_STATE_LOGS, logs);
    if (take_own(a, &job->notify, &cli->settings.notify) == 0)
        a->notifier = tm_notifier_create(cli->env, logs, a->lists, 2, &limits);
    a->client = tm_api_client_create(cli->env, dir);
    if (a->notifier != NULL && resumed) tm_notifier_go_on(a->notifier);
    if (a->notifier != NULL && a->client != NULL) return a;
    tm_run_alerts_close(a);
    return NULL;
}

void tm_run_alerts_close(struct tm_run_alerts *a)
{
    if (a == NULL) return;
    tm_notifier_destroy(a->notifier);
    tm_api_client_destroy(a->client);
    tm_free(a->own.items);
    tm_free(a);
}

void tm_run_alerts_step(struct tm_run_alerts *a, int strays)
{
    struct tm_run_status status;
    if (a == NULL) return;
    tm_notifier_found(a->notifier, a->job, strays);
    if (now_ms(a) - a->looked_ms >= LOOK_MS) {
        int rc = tm_api_status_step(a->client, &status, NULL);
        if (rc != -(int)TM_EBUSY) a->looked_ms = now_ms(a);
        if (rc == 0) {
            tm_notifier_look(a->notifier, &status);
            tm_run_status_deinit(&status);
        }
    }
    (void)tm_notifier_step(a->notifier);
}

static void wait_for_all(struct tm_run_alerts *a)
{
    int64_t end_ms = now_ms(a) + LAST_MS;
    while (!tm_notifier_step(a->notifier)) {
        if (now_ms(a) > end_ms) {
            tm_log(TM_LOG_WARN, "not all were told how it ended: a receiver does not answer; see logs/notify.log");
            return;
        }
        a->env->sleep_ms(a->env, STEP_MS);
    }
}

void tm_run_alerts_left(struct tm_run_alerts *a, const char *words)
{
    if (a == NULL) return;
    tm_notifier_left(a->notifier, a->job, words);
    wait_for_all(a);
}

void tm_run_alerts_failed(struct tm_run_alerts *a, const char *words)
{
    if (a == NULL) return;
    tm_notifier_failed(a->notifier, a->job, words);
    wait_for_all(a);
}

void tm_run_alerts_finish(struct tm_run_alerts *a, const struct tm_run_status *status)
{
    if (a == NULL) return;
    tm_notifier_look(a->notifier, status);
    wait_for_all(a);
}
