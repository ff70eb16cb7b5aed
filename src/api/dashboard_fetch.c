#include "api/dashboard_internal.h"

#include <stdio.h>
#include <string.h>

enum { ANSWER_MS = 4000, LONGEST_MS = 30000 };

static void finish(struct tm_dashboard *d, struct tm_fetch *fetch, int status)
{
    fetch->state = TM_FETCH_DONE;
    fetch->status = status;
    fetch->changed_ms = tm_dashboard__now_ms(d);
    tm_http_call_hang_up(&fetch->call);
    if (fetch->job->away != NULL) tm_dashboard__away_answered(d, fetch->job, status != 0);
    d->version++;
}

void tm_dashboard__hang_up(struct tm_dashboard *d, const struct tm_dashboard_job *job)
{
    for (size_t i = 0; i < TM_DASHBOARD_FETCHES; i++)
        if (d->fetches[i].job == job && d->fetches[i].state == TM_FETCH_ASKING && d->fetches[i].call.handle >= 0)
            finish(d, &d->fetches[i], 0);
}

static bool begin_remote(struct tm_fetch *fetch)
{
    const struct tm_dashboard_attach *given = fetch->job->remote->given;
    struct tm_text *request = &fetch->call.request;
    tm_http_call_clear(&fetch->call);
    tm_text_printf(request, "%s ", fetch->method);
    tm_dashboard__remote_target(fetch->job, fetch->target, request);
    tm_text_printf(request, " HTTP/1.1\r\nAuthorization: Bearer %s\r\n", given->token);
    if (strcmp(fetch->method, "GET") != 0) tm_text_puts(request, "Content-Length: 0\r\n");
    return tm_http_call_begin(&fetch->call, given->address, NULL) == 0;
}

/* The file says where its coordinator is, and what lets us in: both change with each coordinator. */
static bool begin(struct tm_dashboard *d, struct tm_fetch *fetch)
{
    if (fetch->job->remote != NULL) return begin_remote(fetch);
    if (fetch->job->away != NULL) return tm_dashboard__away_begin(d, fetch);
    char text[TM_ADDRESS_MAX + 80];
    if (tm_state_read(d->env, fetch->job->dir, TM_STATE_API, text, sizeof text, NULL) != 0) return false;
    char *space = strchr(text, ' ');
    if (space == NULL || strchr(text, '\n') != NULL) return false;
    *space = '\0';
    tm_http_call_clear(&fetch->call);
    tm_text_printf(&fetch->call.request, "%s %s HTTP/1.1\r\nAuthorization: Bearer %s\r\n", fetch->method, fetch->target,
                   space + 1);
    if (strcmp(fetch->method, "GET") != 0) tm_text_puts(&fetch->call.request, "Content-Length: 0\r\n");
    return tm_http_call_begin(&fetch->call, text, NULL) == 0;
}

static void ask(struct tm_dashboard *d, struct tm_fetch *fetch)
{
    fetch->state = TM_FETCH_ASKING;
    fetch->changed_ms = fetch->asked_ms = tm_dashboard__now_ms(d);
    fetch->until_ms = fetch->changed_ms + (strstr(fetch->target, "wait=") != NULL ? LONGEST_MS : ANSWER_MS);
    tm_text_clear(&fetch->body);
    if (!begin(d, fetch)) finish(d, fetch, 0);
}

static void clear(struct tm_fetch *fetch)
{
    if (fetch->state == TM_FETCH_FREE) return;
    tm_http_call_deinit(&fetch->call);
    tm_text_deinit(&fetch->body);
    *fetch = (struct tm_fetch){.state = TM_FETCH_FREE};
}

/* A free one, or the one that nobody has asked for longest. */
static struct tm_fetch *place(struct tm_dashboard *d)
{
    struct tm_fetch *oldest = NULL;
    for (size_t i = 0; i < TM_DASHBOARD_FETCHES; i++) {
        struct tm_fetch *fetch = &d->fetches[i];
        if (fetch->state == TM_FETCH_FREE) return fetch;
        if (fetch->state == TM_FETCH_DONE && (oldest == NULL || fetch->used_ms < oldest->used_ms)) oldest = fetch;
    }
    return oldest;
}

const struct tm_fetch *tm_dashboard__fetch(struct tm_dashboard *d, struct tm_dashboard_job *job, const char *method,
                                           const char *target, int64_t age_ms)
{
    int64_t now_ms = tm_dashboard__now_ms(d);
    struct tm_fetch *fetch = NULL;
    for (size_t i = 0; i < TM_DASHBOARD_FETCHES && fetch == NULL; i++) {
        struct tm_fetch *one = &d->fetches[i];
        if (one->state != TM_FETCH_FREE && one->job == job && strcmp(one->target, target) == 0 &&
            strcmp(one->method, method) == 0)
            fetch = one;
    }
    if (fetch == NULL) {
        fetch = place(d);
        if (fetch == NULL) return NULL; /* all are under way: the next one that comes makes room */
        clear(fetch);
        fetch->job = job;
        (void)snprintf(fetch->method, sizeof fetch->method, "%s", method);
        (void)snprintf(fetch->target, sizeof fetch->target, "%s", target);
        struct tm_env *env =
            job->remote != NULL && job->remote->net != NULL ? tm_tls_net_env(job->remote->net) : d->env;
        tm_http_call_init(&fetch->call, env, TM_API_RESPONSE_MAX + TM_HTTP_HEAD_MAX);
        tm_text_init(&fetch->body, TM_API_RESPONSE_MAX);
        ask(d, fetch);
    } else if (fetch->state == TM_FETCH_DONE && now_ms - fetch->changed_ms > age_ms) {
        ask(d, fetch);
    }
    fetch->used_ms = now_ms;
    return fetch->state == TM_FETCH_DONE ? fetch : NULL;
}

void tm_dashboard__step_fetches(struct tm_dashboard *d)
{
    struct tm_http_head head;
    for (size_t i = 0; i < TM_DASHBOARD_FETCHES; i++) {
        struct tm_fetch *fetch = &d->fetches[i];
        if (fetch->state != TM_FETCH_ASKING) continue;
        int rc = tm_http_call_step(&fetch->call, &head, &fetch->body, NULL);
        if (rc == 0)
            finish(d, fetch, head.status);
        else if (rc != -(int)TM_EBUSY || tm_dashboard__now_ms(d) > fetch->until_ms)
            finish(d, fetch, 0);
    }
}

void tm_dashboard__forget_fetches(struct tm_dashboard *d, const struct tm_dashboard_job *job)
{
    for (size_t i = 0; i < TM_DASHBOARD_FETCHES; i++)
        if (job == NULL || d->fetches[i].job == job) clear(&d->fetches[i]);
}
