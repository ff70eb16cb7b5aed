/* Runs that another machine has, and that `tidemill attach` made known here: their folders say where their bucket is,
 * and what it said last. Buckets may be slow, or gone: a program of its own asks them, `tidemill status`, so that
 * nobody here waits. While the run goes on its coordinator is asked, over TLS; where that is not reached, its books
 * tell. */
#include "api/dashboard_internal.h"

#include "base/alloc.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    LOOK_MS = 5000,       /* a bucket is asked so often while its run is not reached ... */
    LOOK_LIVE_MS = 30000, /* ... and so often while it answers */
    LONGEST_MS = 60000,   /* that a program may take */
    SILENT_MS = 20000,    /* one that did not answer is not asked so long */
    PROGRAMS_AT_ONCE = 4, /* others wait for their turn */
};

static void close_tls(struct tm_dashboard_away *away)
{
    tm_tls_net_destroy(away->net);
    tm_tls_destroy(away->tls);
    away->net = NULL;
    away->tls = NULL;
}

static void end_program(struct tm_dashboard *d, struct tm_dashboard_away *away)
{
    int status = 0;
    if (away->pid <= 0) return;
    (void)d->env->process_signal_group(d->env, away->pid, SIGKILL, NULL);
    (void)d->env->process_wait(d->env, away->pid, 5000, &status, NULL);
    away->pid = 0;
}

void tm_dashboard__away_forget(struct tm_dashboard *d, struct tm_dashboard_job *job)
{
    if (job->away == NULL) return;
    end_program(d, job->away);
    close_tls(job->away);
    tm_free(job->away);
    job->away = NULL;
    job->remote_name[0] = '\0';
}

/* ---- its bucket ---- */

static size_t programs(const struct tm_dashboard *d)
{
    size_t count = 0;
    for (size_t i = 0; i < d->job_count; i++)
        count += d->jobs[i]->away != NULL && d->jobs[i]->away->pid > 0;
    return count;
}

/* What it prints is not read: it brings what the bucket says into the folder. */
static void start_program(struct tm_dashboard *d, const struct tm_dashboard_job *job, int64_t now_ms)
{
    struct tm_dashboard_away *away = job->away;
    const char *const argv[] = {d->options.program, "status", "--json", "--state", job->dir, NULL};
    struct tm_process_options options = {.argv = argv, .group = true, .output = "/dev/null"};
    int pid = 0;
    away->looked_ms = now_ms;
    if (d->env->process_start_with(d->env, &options, &pid, NULL) != 0) return;
    away->pid = pid;
    away->until_ms = now_ms + LONGEST_MS;
}

/* True: it has ended, so the folder may have something new. */
static bool step_program(struct tm_dashboard *d, struct tm_dashboard_away *away, int64_t now_ms)
{
    int status = 0;
    if (away->pid <= 0) return false;
    int rc = d->env->process_wait(d->env, away->pid, 0, &status, NULL);
    if (rc == -(int)TM_ETIMEOUT && now_ms <= away->until_ms) return false;
    if (rc == -(int)TM_ETIMEOUT) end_program(d, away);
    away->pid = 0;
    away->looked_ms = now_ms;
    return true;
}

bool tm_dashboard__away_look(struct tm_dashboard *d, struct tm_dashboard_job *job, bool *out_news)
{
    char path[TM_STATE_PATH_MAX];
    int64_t now_ms = tm_dashboard__now_ms(d);
    *out_news = false;
    if (job->away == NULL) {
        job->away = tm_calloc(1, sizeof *job->away);
        if (job->away == NULL) return false; /* the next look */
        job->away->looked_ms = -1;
    }
    struct tm_dashboard_away *away = job->away;
    tm_state_path(job->dir, TM_STATE_API, path);
    *out_news = step_program(d, away, now_ms);
    bool live = d->env->file_exists(d->env, path);
    int64_t every_ms = live && !away->silent ? LOOK_LIVE_MS : LOOK_MS;
    bool due = away->looked_ms < 0 || now_ms - away->looked_ms >= every_ms;
    if (due && away->pid <= 0 && programs(d) < PROGRAMS_AT_ONCE) start_program(d, job, now_ms);
    if (away->silent && now_ms - away->silent_ms >= SILENT_MS) away->silent = false;
    return live;
}

/* ---- its coordinator ---- */

void tm_dashboard__away_answered(struct tm_dashboard *d, struct tm_dashboard_job *job, bool answered)
{
    int64_t now_ms = tm_dashboard__now_ms(d);
    if (!answered) job->away->silent_ms = now_ms;
    job->away->silent = !answered;
}

/* Only the one that has this certificate is spoken with; what was under way with another has no answer. */
static bool open_tls(struct tm_dashboard *d, struct tm_dashboard_job *job, const char *fingerprint)
{
    struct tm_dashboard_away *away = job->away;
    uint8_t bytes[TM_TLS_FINGERPRINT_BYTES];
    if (!tm_tls_read_fingerprint(fingerprint, bytes)) return false;
    if (away->net != NULL && memcmp(bytes, away->fingerprint, sizeof bytes) == 0) return true;
    tm_dashboard__hang_up(d, job);
    close_tls(away);
    memcpy(away->fingerprint, bytes, sizeof bytes);
    if (tm_tls_create_client(bytes, &away->tls, NULL) != 0) return false;
    away->net = tm_tls_net_create(d->env, away->tls, false, NULL);
    return away->net != NULL;
}

bool tm_dashboard__away_begin(struct tm_dashboard *d, struct tm_fetch *fetch)
{
    char text[TM_HOME_WHERE_MAX];
    struct tm_home_where where;
    struct tm_dashboard_job *job = fetch->job;
    if (tm_state_read(d->env, job->dir, TM_STATE_API, text, sizeof text, NULL) != 0) return false;
    if (!tm_home_where_read(text, &where) || !open_tls(d, job, where.fingerprint)) return false;
    if (snprintf(job->remote_name, sizeof job->remote_name, "%s", where.name) >= (int)sizeof job->remote_name)
        return false;
    struct tm_text *request = &fetch->call.request;
    fetch->call.env = tm_tls_net_env(job->away->net);
    tm_http_call_clear(&fetch->call);
    tm_text_printf(request, "%s ", fetch->method);
    tm_dashboard__remote_target(job, fetch->target, request);
    tm_text_printf(request, " HTTP/1.1\r\nAuthorization: Bearer %s\r\n", where.token);
    if (strcmp(fetch->method, "GET") != 0) tm_text_puts(request, "Content-Length: 0\r\n");
    return tm_http_call_begin(&fetch->call, where.address, NULL) == 0;
}
