#include "run/notifier.h"

#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "run/state_folder.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    QUEUE_MAX = 256,
    TRIES = 5,
    FIRST_WAIT_MS = 2000,
    LONGEST_MS = 30000,
    TOLD_MAX = 4096,
    VARIABLE_MAX = TM_ALERT_TEXT_MAX + 32
};

struct delivery {
    const struct tm_notify_target *target;
    enum tm_alert alert;
    char text[TM_ALERT_TEXT_MAX];
    int tried;
    int pid;       /* 0: not under way */
    int64_t at_ms; /* when it is tried next; under way: when it is given up */
};

struct tm_notifier {
    struct tm_env *env;
    char dir[TM_STATE_PATH_MAX];
    char job[TM_STATUS_NAME_MAX];
    const struct tm_maps *const *lists;
    size_t list_count;
    struct tm_alert_limits limits;
    struct tm_alerts *alerts; /* of each receiver, in the order of the lists */
    struct delivery *queue;
    size_t count;
    size_t capacity;
    size_t targets;
    int strays; /* that were told of */
    char told[TOLD_MAX];
};

static bool is_done(const struct delivery *d)
{
    return d->pid == 0 && (d->target == NULL || d->tried >= TRIES);
}

static int64_t now_ms(const struct tm_notifier *n)
{
    return n->env->monotonic_ns(n->env) / 1000000;
}

struct tm_notifier *tm_notifier_create(struct tm_env *env, const char *dir, const struct tm_maps *const *lists,
                                       size_t list_count, const struct tm_alert_limits *limits)
{
    struct tm_notifier *n = tm_calloc(1, sizeof *n);
    size_t targets = 0;
    if (n == NULL) return NULL;
    for (size_t l = 0; l < list_count; l++)
        targets += lists[l]->count;
    n->alerts = tm_calloc(targets > 0 ? targets : 1, sizeof *n->alerts);
    if (n->alerts == NULL) {
        tm_free(n);
        return NULL;
    }
    n->env = env;
    (void)snprintf(n->dir, sizeof n->dir, "%s", dir);
    n->lists = lists;
    n->list_count = list_count;
    n->targets = targets;
    n->limits = *limits;
    return n;
}

/* ---- what was told before ---- */

/* Causes that outlast the program: told once, also where a run goes on. */
static const enum tm_alert lasting[] = {TM_ALERT_BUDGET, TM_ALERT_DEADLINE};
enum { LASTING = sizeof lasting / sizeof *lasting };

static void told_path(const struct tm_notifier *n, char out[TM_STATE_PATH_MAX + 64])
{
    (void)snprintf(out, TM_STATE_PATH_MAX + 64, "%s/notified", n->dir);
}

/* A character for each receiver and cause. */
static void put_told(const struct tm_notifier *n, char out[TOLD_MAX])
{
    size_t length = 0;
    for (size_t i = 0; i < n->targets && length + LASTING < TOLD_MAX; i++)
        for (size_t k = 0; k < LASTING; k++)
            out[length++] = n->alerts[i].raised[lasting[k]] ? '1' : '0';
    out[length] = '\0';
}

static void keep_told(struct tm_notifier *n)
{
    char path[TM_STATE_PATH_MAX + 64], now[TOLD_MAX];
    put_told(n, now);
    if (strcmp(now, n->told) == 0) return;
    memcpy(n->told, now, sizeof now);
    told_path(n, path);
    (void)n->env->file_write(n->env, path, now, strlen(now), NULL);
}

void tm_notifier_go_on(struct tm_notifier *n)
{
    char path[TM_STATE_PATH_MAX + 64];
    struct tm_text text;
    told_path(n, path);
    tm_text_init(&text, TOLD_MAX);
    int rc = n->env->file_read(n->env, path, &text, NULL);
    /* With other receivers than then nobody is taken for told. */
    for (size_t i = 0; rc == 0 && text.length == LASTING * n->targets && i < text.length; i++)
        n->alerts[i / LASTING].raised[lasting[i % LASTING]] = text.data[i] == '1';
    tm_text_deinit(&text);
    put_told(n, n->told);
}

static void path_of(const struct tm_notifier *n, const struct delivery *d, const char *end,
                    char out[TM_STATE_PATH_MAX + 64])
{
    (void)snprintf(out, TM_STATE_PATH_MAX + 64, "%s/notify-%td.%s", n->dir, d - n->queue, end);
}

static void remove_files(const struct tm_notifier *n, const struct delivery *d)
{
    char path[TM_STATE_PATH_MAX + 64];
    static const char *const ends[] = {"body", "curl"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        path_of(n, d, ends[i], path);
        (void)n->env->file_remove(n->env, path, NULL);
    }
}

void tm_notifier_destroy(struct tm_notifier *n)
{
    if (n == NULL) return;
    for (size_t i = 0; i < n->count; i++) {
        struct delivery *d = &n->queue[i];
        int status = 0;
        if (d->pid > 0) {
            (void)n->env->process_signal_group(n->env, d->pid, SIGKILL, NULL);
            (void)n->env->process_wait(n->env, d->pid, 1000, &status, NULL);
        }
        remove_files(n, d);
    }
    tm_free(n->queue);
    tm_free(n->alerts);
    tm_free(n);
}

/* ---- what is raised ---- */

static bool wants(const struct tm_notify_target *target, enum tm_alert alert)
{
    for (size_t i = 0; i < target->on.count; i++)
        if (strcmp(target->on.items[i], tm_notify_alert_names[alert]) == 0) return true;
    return target->on.count == 0;
}

struct raising {
    struct tm_notifier *notifier;
    const struct tm_notify_target *target;
};

/* One that is told, or given up, makes room: a run of weeks tells of more than the queue holds. NULL: it is full. */
static struct delivery *free_place(struct tm_notifier *n)
{
    void *array = n->queue;
    for (size_t i = 0; i < n->count; i++)
        if (is_done(&n->queue[i])) return &n->queue[i];
    if (tm_grow(&array, &n->capacity, n->count + 1, sizeof *n->queue, QUEUE_MAX) != 0) return NULL;
    n->queue = array;
    return &n->queue[n->count++];
}

static void raise_to(void *context, enum tm_alert alert, const char *text)
{
    const struct raising *r = context;
    if (!wants(r->target, alert)) return;
    struct delivery *d = free_place(r->notifier);
    if (d == NULL) {
        tm_log(TM_LOG_WARN, "nobody was told that \"%s\": too many are waiting to be told", text);
        return;
    }
    *d = (struct delivery){.target = r->target, .alert = alert};
    (void)snprintf(d->text, sizeof d->text, "%s", text);
}

static void raise_to_all(struct tm_notifier *n, enum tm_alert alert, const char *text)
{
    for (size_t l = 0; l < n->list_count; l++) {
        const struct tm_notify_target *targets = n->lists[l]->items;
        for (size_t i = 0; i < n->lists[l]->count; i++)
            raise_to(&(struct raising){n, &targets[i]}, alert, text);
    }
}

void tm_notifier_look(struct tm_notifier *n, const struct tm_run_status *status)
{
    struct tm_alerts *alerts = n->alerts;
    (void)snprintf(n->job, sizeof n->job, "%s", status->job.name);
    for (size_t l = 0; l < n->list_count; l++) {
        const struct tm_notify_target *targets = n->lists[l]->items;
        for (size_t i = 0; i < n->lists[l]->count; i++) {
            struct tm_alert_limits limits = n->limits;
            struct raising raising = {n, &targets[i]};
            if (targets[i].patience_ms > 0) limits.patience_s = (double)targets[i].patience_ms / 1000;
            tm_alerts__look(alerts++, &limits, status, now_ms(n), raise_to, &raising);
        }
    }
    keep_told(n);
}

void tm_notifier_found(struct tm_notifier *n, const char *job, int strays)
{
    char text[TM_ALERT_TEXT_MAX];
    if (strays <= n->strays) return;
    (void)snprintf(n->job, sizeof n->job, "%s", job);
    (void)snprintf(text, sizeof text, "%s: %d leaked instance%s or process%s found, left by an earlier program: ended",
                   n->job, strays - n->strays, strays - n->strays == 1 ? "" : "s",
                   strays - n->strays == 1 ? " was" : "es were");
    n->strays = strays;
    raise_to_all(n, TM_ALERT_LEAKED, text);
}

void tm_notifier_left(struct tm_notifier *n, const char *job, const char *words)
{
    char text[TM_ALERT_TEXT_MAX];
    (void)snprintf(n->job, sizeof n->job, "%s", job);
    (void)snprintf(text, sizeof text, "%s: instances may have been left and cost money: %.250s", n->job, words);
    raise_to_all(n, TM_ALERT_LEAKED, text);
}

void tm_notifier_failed(struct tm_notifier *n, const char *job, const char *words)
{
    char text[TM_ALERT_TEXT_MAX];
    (void)snprintf(n->job, sizeof n->job, "%s", job);
    (void)snprintf(text, sizeof text, "%s failed: %.300s", n->job, words);
    raise_to_all(n, TM_ALERT_FAILED, text);
}

/* ---- telling ---- */

static void write_body(const struct tm_notifier *n, const struct delivery *d, struct tm_text *out)
{
    struct tm_jsonout json;
    if (d->target->email != NULL) {
        tm_text_printf(out, "To: %s\nSubject: Tidemill: %s %s\nContent-Type: text/plain; charset=utf-8\n\n%s\n",
                       d->target->email, n->job, tm_notify_alert_names[d->alert], d->text);
        return;
    }
    tm_jsonout_init_line(&json, out);
    tm_jsonout_object(&json, NULL);
    if (d->target->format == TM_NOTIFY_SLACK) {
        tm_jsonout_string(&json, "text", d->text);
    } else if (d->target->format == TM_NOTIFY_DISCORD) {
        tm_jsonout_string(&json, "content", d->text);
    } else {
        tm_jsonout_string(&json, "alert", tm_notify_alert_names[d->alert]);
        tm_jsonout_string(&json, "job", n->job);
        tm_jsonout_string(&json, "text", d->text);
        tm_jsonout_integer(&json, "utc_ms", n->env->now_ms(n->env));
    }
    tm_jsonout_end(&json);
}

static int write_file(const struct tm_notifier *n, const char *path, const struct tm_text *text, struct tm_error *e)
{
    int rc = tm_text_status(text, e);
    return rc != 0 ? rc : n->env->file_write_private(n->env, path, tm_text_string(text), text->length, e);
}

/* The address stands in curl's own file: on its command line everybody here could read it. */
static int write_files(const struct tm_notifier *n, const struct delivery *d, const char *body, const char *curl,
                       struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, 65536);
    write_body(n, d, &text);
    int rc = write_file(n, body, &text, e);
    tm_text_clear(&text);
    if (rc == 0 && d->target->webhook != NULL) {
        tm_text_printf(&text,
                       "url = \"%s\"\ndata-binary = \"@%s\"\nheader = \"Content-Type: application/json\"\nsilent\n"
                       "show-error\nfail\nmax-time = 20\noutput = \"/dev/null\"\n",
                       d->target->webhook, body);
        rc = write_file(n, curl, &text, e);
    }
    tm_text_deinit(&text);
    return rc;
}

static int start(struct tm_notifier *n, struct delivery *d, struct tm_error *e)
{
    static const char mail[] = "PATH=\"$PATH:/usr/sbin:/usr/lib\"; exec sendmail -t < \"$TIDEMILL_BODY\"";
    char body[TM_STATE_PATH_MAX + 64];
    char curl[TM_STATE_PATH_MAX + 64];
    char log[TM_STATE_PATH_MAX + 64];
    char alert[VARIABLE_MAX];
    char job[VARIABLE_MAX];
    char text[VARIABLE_MAX];
    char file[TM_STATE_PATH_MAX + 96];
    path_of(n, d, "body", body);
    path_of(n, d, "curl", curl);
    (void)snprintf(log, sizeof log, "%s/notify.log", n->dir);
    (void)snprintf(alert, sizeof alert, "TIDEMILL_ALERT=%s", tm_notify_alert_names[d->alert]);
    (void)snprintf(job, sizeof job, "TIDEMILL_JOB=%s", n->job);
    (void)snprintf(text, sizeof text, "TIDEMILL_TEXT=%s", d->text);
    (void)snprintf(file, sizeof file, "TIDEMILL_BODY=%s", body);
    const char *const variables[] = {alert, job, text, file, NULL};
    const char *const by_curl[] = {"curl", "--config", curl, NULL};
    const char *const by_shell[] = {"sh", "-c", d->target->email != NULL ? mail : d->target->command, NULL};
    struct tm_process_options options = {
        .argv = d->target->webhook != NULL ? by_curl : by_shell, .variables = variables, .group = true, .output = log};
    int rc = write_files(n, d, body, curl, e);
    return rc != 0 ? rc : n->env->process_start_with(n->env, &options, &d->pid, e);
}

static const char *kind_of(const struct tm_notify_target *target)
{
    return target->webhook != NULL ? "webhook" : target->email != NULL ? "email" : "command";
}

/* It did not go: later again, ever later, a few times. */
static void put_off(const struct tm_notifier *n, struct delivery *d, const char *why)
{
    d->pid = 0;
    d->at_ms = now_ms(n) + ((int64_t)FIRST_WAIT_MS << d->tried);
    if (++d->tried >= TRIES)
        tm_log(TM_LOG_WARN, "nobody was told that \"%s\": the %s failed %d times (%s); see logs/notify.log", d->text,
               kind_of(d->target), TRIES, why);
}

/* True: it is done with, one way or the other. */
static bool step_one(struct tm_notifier *n, struct delivery *d)
{
    struct tm_error e = {.text = ""};
    int status = 0;
    if (is_done(d)) return true;
    if (d->pid == 0 && now_ms(n) >= d->at_ms) {
        if (start(n, d, &e) != 0)
            put_off(n, d, e.text);
        else
            d->at_ms = now_ms(n) + LONGEST_MS;
        return false;
    }
    if (d->pid == 0) return false;
    int rc = n->env->process_wait(n->env, d->pid, 0, &status, NULL);
    if (rc == -(int)TM_ETIMEOUT && now_ms(n) < d->at_ms) return false;
    if (rc == -(int)TM_ETIMEOUT) {
        (void)n->env->process_signal_group(n->env, d->pid, SIGKILL, NULL);
        (void)n->env->process_wait(n->env, d->pid, 1000, &status, NULL);
        status = 1;
    }
    if (rc != 0 || status != 0) {
        char why[64];
        (void)snprintf(why, sizeof why, "exit status %d", status);
        put_off(n, d, why);
        return false;
    }
    remove_files(n, d);
    d->pid = 0;
    d->target = NULL; /* told */
    return true;
}

bool tm_notifier_step(struct tm_notifier *n)
{
    bool all = true;
    for (size_t i = 0; i < n->count; i++)
        all = step_one(n, &n->queue[i]) && all;
    return all;
}
