#include "run/supervisor.h"

#include "base/alloc.h"
#include "base/log.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { BACKOFF_MS = 250, BACKOFF_DOUBLINGS = 2, STEADY_MS = 5000, FAILURES_MAX = 6, DEATH_LIMIT_MS = 5000 };
enum { LAST_WORDS_MS = 2000 };

struct tm_supervisor {
    struct tm_env *env;
    struct tm_supervisor_options options;
    struct tm_cloud *cloud;
    struct tm_cloud_driver *driver;
    struct tm_chaos_driver *chaos;
    int pid;    /* of the coordinator; 0: none runs */
    int handle; /* ready when it has ended; -1: none */
    int starts;
    int failures; /* in a row, each soon after the start */
    int64_t started_ms;
    int64_t start_at_ms;
    bool ended;
    int stops;     /* asked for */
    int passed_on; /* of them, to this coordinator */
    int64_t end_at_ms;
};

static int64_t now_ms(const struct tm_supervisor *s)
{
    return s->env->monotonic_ns(s->env) / 1000000;
}

/* ---- the coordinator ---- */

static void log_path(const struct tm_supervisor *s, char out[TM_STATE_PATH_MAX + 32])
{
    char folder[TM_STATE_PATH_MAX];
    tm_state_path(s->options.driver.dir, TM_STATE_LOGS, folder);
    (void)snprintf(out, TM_STATE_PATH_MAX + 32, "%s/coordinator.log", folder);
}

static int start_coordinator(struct tm_supervisor *s, struct tm_error *e)
{
    const char *argv[9] = {s->options.program, "coordinator", "--state", s->options.driver.dir};
    size_t words = 4;
    if (s->options.listen != NULL) {
        argv[words++] = "--listen";
        argv[words++] = s->options.listen;
    }
    if (s->options.advertise != NULL) {
        argv[words++] = "--advertise";
        argv[words++] = s->options.advertise;
    }
    const char *variables[4] = {s->options.mark};
    size_t told = 1;
    if (s->options.call != NULL) variables[told++] = s->options.call;
    if (s->options.resumed && s->starts == 0) variables[told] = "TIDEMILL_RUN_RETRY=1";
    char output[TM_STATE_PATH_MAX + 32];
    log_path(s, output);
    struct tm_process_options options = {.argv = argv, .variables = variables, .group = true, .output = output};
    int rc = s->env->process_start_with(s->env, &options, &s->pid, e);
    if (rc != 0) return tm_error_wrap(e, rc, "the coordinator could not be started");
    if (s->env->process_handle(s->env, s->pid, &s->handle, NULL) != 0) s->handle = -1;
    s->starts++;
    s->started_ms = now_ms(s);
    s->passed_on = 0;
    tm_cloud_driver__greet(s->driver);
    return 0;
}

/* The last line that it wrote, for people. */
static void last_words(const struct tm_supervisor *s, char *out, size_t size)
{
    char path[TM_STATE_PATH_MAX + 32];
    struct tm_text text;
    log_path(s, path);
    tm_text_init(&text, 64 << 20);
    out[0] = '\0';
    if (s->env->file_read(s->env, path, &text, NULL) == 0) {
        size_t end = text.length;
        while (end > 0 && text.data[end - 1] == '\n')
            end--;
        size_t begin = end;
        while (begin > 0 && text.data[begin - 1] != '\n')
            begin--;
        (void)snprintf(out, size, "%.*s", (int)(end - begin < size ? end - begin : size - 1),
                       tm_text_string(&text) + begin);
    }
    tm_text_deinit(&text);
}

static int coordinator_ended(struct tm_supervisor *s, int status, struct tm_error *e)
{
    if (s->handle >= 0) s->env->net_close(s->env, s->handle);
    s->handle = -1;
    s->pid = 0;
    if (status == 0) {
        s->ended = true;
        return 0;
    }
    if (status == TM_COORDINATOR_UNRECORDED)
        return tm_error_set(
            e, TM_EFULL,
            "disk full: the run has ended, but its last events or its last copy set could not be written to %s; what "
            "was written is kept: free some disk space, then continue with --resume",
            s->options.driver.dir);
    s->failures = now_ms(s) - s->started_ms < STEADY_MS ? s->failures + 1 : 1;
    bool by_itself = status < 128; /* else a signal ended it: that is no fault of its own */
    if (by_itself && (s->failures >= FAILURES_MAX || status == 2)) {
        char words[600];
        last_words(s, words, sizeof words);
        return tm_error_set(e, TM_EPEER, "the coordinator keeps ending with status %d; its last output: %s", status,
                            words);
    }
    int doublings = s->failures - 2 < BACKOFF_DOUBLINGS ? s->failures - 2 : BACKOFF_DOUBLINGS;
    s->start_at_ms = now_ms(s) + (s->failures < 2 ? 0 : (int64_t)BACKOFF_MS << doublings);
    tm_log(TM_LOG_INFO, "the coordinator ended with status %d; restarting it", status);
    return 0;
}

static int watch_coordinator(struct tm_supervisor *s, struct tm_error *e)
{
    int status = 0;
    if (s->pid != 0 && s->env->process_wait(s->env, s->pid, 0, &status, NULL) == 0) {
        int rc = coordinator_ended(s, status, e);
        if (rc != 0) return rc;
    }
    if (s->stops > 1 && (s->pid == 0 || now_ms(s) >= s->end_at_ms)) s->ended = true;
    if (s->pid == 0 && !s->ended && now_ms(s) >= s->start_at_ms) return start_coordinator(s, e);
    /* One that was started after the stop was asked for has to hear of it, too: once it listens. */
    while (s->pid != 0 && s->passed_on < s->stops && tm_cloud_driver__connected(s->driver)) {
        (void)s->env->process_signal(s->env, s->pid, SIGTERM, NULL);
        s->passed_on++;
    }
    return 0;
}

void tm_supervisor_stop(struct tm_supervisor *s)
{
    s->stops++;
    if (s->stops != 2) return;
    s->end_at_ms = now_ms(s) + LAST_WORDS_MS; /* its record should be whole; but at once means at once */
    for (; s->pid != 0 && s->passed_on < 2; s->passed_on++)
        (void)s->env->process_signal(s->env, s->pid, SIGTERM, NULL);
}

/* ---- checkpoint-restart ---- */

static void end_workers(struct tm_supervisor *s)
{
    size_t count = 0;
    const struct tm_cloud_instance *all = s->cloud->instances(s->cloud, &count);
    for (size_t i = 0; i < count; i++) {
        uint32_t each = s->options.workers > 1 ? s->options.workers : 1;
        for (uint32_t w = 0; w < each && tm_instance_is_here(&all[i]); w++) {
            int pid = 0;
            uint64_t worker = tm_worker_of_instance(all[i].id, w, each);
            if (tm_state_worker(s->env, s->options.driver.dir, worker, &pid, NULL) == 0)
                (void)s->env->process_signal(s->env, pid, SIGKILL, NULL);
        }
    }
}

static void watch_fleet(struct tm_supervisor *s)
{
    struct tm_cloud_event event;
    bool changed = false;
    while (tm_cloud_driver__event(s->driver, &event))
        changed = changed || event.kind == TM_CLOUD_ARRIVED || event.kind == TM_CLOUD_LOST;
    if (s->options.restart_all && changed) end_workers(s);
}

/* ---- life ---- */

int tm_supervisor_step(struct tm_supervisor *s, int64_t timeout_ms, struct tm_error *e)
{
    int rc = watch_coordinator(s, e);
    if (rc != 0 || s->ended) return rc;
    if (s->chaos != NULL && s->stops == 0) {
        /* Not before somebody can be hit: a coordinator that nobody has joined is no test of anything. */
        if (tm_cloud_driver__order(s->driver)->job_state != TM_JOB_STARTING) tm_chaos_driver__step(s->chaos, s->pid);
        int64_t wait_ms = tm_chaos_driver__wait_ms(s->chaos);
        if (wait_ms > 0 && wait_ms < timeout_ms) timeout_ms = wait_ms;
    }
    if (s->pid == 0 && s->start_at_ms - now_ms(s) < timeout_ms)
        timeout_ms = s->start_at_ms > now_ms(s) ? s->start_at_ms - now_ms(s) : 0;
    rc = tm_cloud_driver__step(s->driver, timeout_ms, &s->handle, s->handle >= 0 ? 1 : 0, e);
    watch_fleet(s);
    return rc;
}

bool tm_supervisor_ended(const struct tm_supervisor *s)
{
    return s->ended;
}

struct tm_supervisor_view tm_supervisor__look(const struct tm_supervisor *s)
{
    return (struct tm_supervisor_view){.coordinator_pid = s->pid,
                                       .coordinator_starts = s->starts,
                                       .connected = tm_cloud_driver__connected(s->driver),
                                       .order = tm_cloud_driver__order(s->driver),
                                       .faults = s->chaos != NULL ? tm_chaos_driver__count(s->chaos) : 0};
}

int tm_supervisor_create(struct tm_env *env, const struct tm_supervisor_options *options, struct tm_supervisor **out,
                         struct tm_error *e)
{
    struct tm_supervisor *s = tm_calloc(1, sizeof *s);
    char path[TM_STATE_PATH_MAX + 32];
    if (s == NULL) return tm_error_nomem(e);
    s->env = env;
    s->options = *options;
    s->cloud = options->driver.cloud;
    s->handle = -1;
    tm_state_path(options->driver.dir, TM_STATE_ADDRESS, path); /* of an earlier coordinator */
    int rc = env->file_remove(env, path, e);
    tm_state_path(options->driver.dir, TM_STATE_ADDRESS_HERE, path);
    if (rc == 0) rc = env->file_remove(env, path, e);
    log_path(s, path);
    if (rc == 0) rc = env->file_write_private(env, path, "", 0, e); /* makes the folder, too */
    if (rc == 0) rc = tm_cloud_driver__create(env, &options->driver, &s->driver, e);
    if (rc == 0 && options->chaos != NULL)
        rc = tm_chaos_driver__create(env, options->chaos, s->cloud, options->driver.dir, &s->chaos, e);
    if (rc == 0) rc = start_coordinator(s, e);
    if (rc == 0)
        *out = s;
    else
        tm_supervisor_destroy(s);
    return rc;
}

static void end_coordinator(struct tm_supervisor *s)
{
    int status = 0;
    if (s->pid != 0) {
        (void)s->env->process_signal_group(s->env, s->pid, SIGKILL, NULL);
        (void)s->env->process_wait(s->env, s->pid, DEATH_LIMIT_MS, &status, NULL);
    }
    if (s->handle >= 0) s->env->net_close(s->env, s->handle);
    s->pid = 0;
    s->handle = -1;
}

int tm_supervisor_close(struct tm_supervisor *s, struct tm_error *e)
{
    end_coordinator(s);
    s->ended = true;
    return tm_cloud_driver__close(s->driver, e);
}

void tm_supervisor_destroy(struct tm_supervisor *s)
{
    if (s == NULL) return;
    tm_chaos_driver__destroy(s->chaos);
    end_coordinator(s);
    tm_cloud_driver__destroy(s->driver);
    tm_free(s);
}
