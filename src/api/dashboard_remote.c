/* Runs of other machines: their dashboards are asked for their lists, and for each run as a coordinator here would be.
 */
#include "api/dashboard_internal.h"

#include "base/address.h"
#include "base/alloc.h"
#include "base/doc.h"

#include <stdio.h>
#include <string.h>

enum { LIST_AGE_MS = 2000 };

int tm_dashboard__attach(struct tm_dashboard *d, struct tm_error *e)
{
    char host[TM_ADDRESS_MAX], port[TM_PORT_MAX];
    if (d->options.attached_count == 0) return 0;
    d->remotes = tm_calloc(d->options.attached_count, sizeof *d->remotes);
    if (d->remotes == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < d->options.attached_count; i++) {
        struct tm_dashboard_remote *remote = &d->remotes[d->remote_count++];
        const struct tm_dashboard_attach *given = &d->options.attached[i];
        *remote = (struct tm_dashboard_remote){.given = given, .all = {.remote = remote}};
        int rc = tm_address_split(given->address, host, port, e);
        if (rc == 0 && !given->tls && !tm_address_is_loopback(given->address))
            rc = tm_error_set(e, TM_EUSAGE, "--attach http://%s: without TLS only on loopback, as through ssh -L",
                              given->address);
        if (rc == 0 && given->tls)
            rc = tm_tls_create_client(given->pinned ? given->fingerprint : NULL, &remote->tls, e);
        if (rc == 0 && given->tls) {
            remote->net = tm_tls_net_create(d->env, remote->tls, false, given->pinned ? NULL : host);
            if (remote->net == NULL) rc = tm_error_nomem(e);
        }
        if (rc != 0) return rc;
    }
    return 0;
}

void tm_dashboard__detach(struct tm_dashboard *d)
{
    for (size_t i = 0; i < d->remote_count; i++) {
        tm_tls_net_destroy(d->remotes[i].net);
        tm_tls_destroy(d->remotes[i].tls);
    }
    tm_free(d->remotes);
    d->remotes = NULL;
    d->remote_count = 0;
}

/* "gpt-tiny@host:8642". */
static void take_name(struct tm_dashboard *d, struct tm_dashboard_remote *remote, const char *name)
{
    char own[TM_API_JOB_NAME_MAX];
    char dir[TM_STATE_PATH_MAX];
    if (snprintf(own, sizeof own, "%s@%s", name, remote->given->address) >= (int)sizeof own) return;
    (void)snprintf(dir, sizeof dir, "http%s://%s", remote->given->tls ? "s" : "", remote->given->address);
    struct tm_dashboard_job *job = tm_dashboard__find(d, own);
    if (job == NULL) {
        job = tm_dashboard__add(d, own, dir);
        if (job == NULL) return;
        job->remote = remote;
        (void)snprintf(job->remote_name, sizeof job->remote_name, "%s", name);
    }
    job->seen = true;
}

static void take_list(struct tm_dashboard *d, struct tm_dashboard_remote *remote, json_t *list)
{
    json_t *jobs = json_object_get(list, "jobs");
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(jobs, i), "name"));
        if (name != NULL && name[0] != '\0' && strchr(name, '@') == NULL) take_name(d, remote, name); /* its own */
    }
}

/* Of one that does not answer now, all that were there stay. */
static void keep_all(struct tm_dashboard *d, const struct tm_dashboard_remote *remote)
{
    for (size_t i = 0; i < d->job_count; i++)
        if (d->jobs[i]->remote == remote) d->jobs[i]->seen = true;
}

void tm_dashboard__search_remotes(struct tm_dashboard *d)
{
    for (size_t r = 0; r < d->remote_count; r++) {
        struct tm_dashboard_remote *remote = &d->remotes[r];
        json_t *list = NULL;
        const struct tm_fetch *fetch = tm_dashboard__fetch(d, &remote->all, "GET", "/v1/jobs?limit=500", LIST_AGE_MS);
        bool told = fetch != NULL && fetch->status == 200 &&
                    tm_json_load("jobs", tm_text_string(&fetch->body), fetch->body.length, &list, NULL) == 0;
        if (told)
            take_list(d, remote, list);
        else
            keep_all(d, remote);
        json_decref(list);
    }
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
}

void tm_dashboard__remote_target(const struct tm_dashboard_job *job, const char *target, struct tm_text *out)
{
    if (job->remote_name[0] == '\0') { /* of the dashboard itself */
        tm_text_puts(out, target);
        return;
    }
    tm_text_puts(out, "/v1/jobs/");
    for (const char *at = job->remote_name; *at != '\0'; at++)
        tm_text_printf(out, is_plain(*at) ? "%c" : "%%%02X", is_plain(*at) ? *at : (unsigned char)*at);
    tm_text_puts(out, target + strlen("/v1"));
}
