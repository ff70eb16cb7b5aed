/* The office of a run whose instances join from other machines: where it listens, and what it hands out. */
#include "base/address.h"
#include "base/number.h"
#include "job/join.h"
#include "job/launch_internal.h"
#include "job/workdir.h"
#include "store/data_set.h"

#include <stdio.h>
#include <string.h>

/* The built-in engine's data, where it is a file of this machine that is not too large, or the folder of a command;
 * NULL: machines find it. */
static int find_data(struct tm_launch *launch, const char **out, struct tm_error *e)
{
    const struct tm_job *job = &launch->request.settings->job;
    struct tm_env *env = launch->env;
    char byte = 0;
    size_t length = 0;
    int64_t size = 0;
    *out = NULL;
    if (job->engine == TM_JOB_ENGINE_COMMAND)
        return tm_workdir__pack(env, job, launch->request.dir, launch->request.arena, out, e);
    if (job->engine != TM_JOB_ENGINE_GPT || job->data == NULL || job->data[0] == '\0') return 0;
    if (tm_data_set_is(job->data)) { /* fetched here, and handed on: machines need no credentials for it */
        const char *fetched = NULL;
        int rc = tm_data_set_path(env, job->data, launch->request.arena, &fetched, e);
        if (rc == 0 && env->file_read_at(env, fetched, 0, &byte, 1, &length, &size, NULL) == 0 &&
            size <= TM_JOIN_DATA_MAX)
            *out = fetched;
        return rc;
    }
    bool absolute = job->data[0] == '/' || job->folder[0] == '\0';
    const char *path =
        tm_arena_printf(launch->request.arena, "%s%s%s", absolute ? "" : job->folder, absolute ? "" : "/", job->data);
    if (path == NULL) return tm_error_nomem(e);
    if (env->file_read_at(env, path, 0, &byte, 1, &length, &size, NULL) == 0 && size <= TM_JOIN_DATA_MAX) *out = path;
    return 0;
}

/* VMs have no credentials of the user's: before one is rented, it is known whether they can read it. */
static int find_data_set(struct tm_launch *launch, const char **out, struct tm_error *e)
{
    const struct tm_job *job = &launch->request.settings->job;
    struct tm_grant grant;
    uint64_t total = 0;
    *out = job->data != NULL && tm_data_set_is(job->data) ? job->data : NULL;
    if (*out == NULL || job->engine != TM_JOB_ENGINE_COMMAND || !tm_job_rents_vms(job)) return 0;
    tm_grant_init(&grant);
    int rc = tm_data_set_grant(launch->env, job->data, &grant, &total, e);
    tm_grant_deinit(&grant);
    if (rc != -(int)TM_ENONE) return rc;
    return tm_error_set(e, TM_EINPUT,
                        "data: %.200s: nothing here can sign URLs by which VMs read it (a key of a service account or "
                        "of the storage account can): take the key out, and fetch it in setup, as an account of theirs",
                        job->data);
}

/* Beside the coordinator: the same host, and the next port where one was given. */
static void find_listen(struct tm_launch *launch)
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    char next[TM_PORT_MAX] = "0";
    int64_t number = 0;
    if (tm_address_split(launch->listen, host, port, NULL) != 0) return; /* whoever listens says so */
    if (tm_number_i64(port, strlen(port), &number) && number > 0)
        (void)snprintf(next, sizeof next, "%d", (int)(number % 65535) + 1);
    tm_address_join(host, next, launch->office_listen);
}

/* What agents are told, for coordinator and office alike: what was asked for; "": this machine as they reach it. */
static void find_host(struct tm_launch *launch)
{
    const struct tm_run_settings *settings = launch->request.settings;
    char address[TM_ADDRESS_MAX];
    char host[TM_ADDRESS_MAX] = "";
    char port[TM_PORT_MAX];
    const char *given = settings->advertise != NULL ? settings->advertise : settings->listen;
    if (given == NULL) return;
    tm_address_of_host(given, "0", address);
    if (tm_address_split(address, host, port, NULL) != 0 || tm_host_is_any(host)) return;
    (void)snprintf(launch->office_host, sizeof launch->office_host, "%s", host);
}

int tm_launch__open_office(struct tm_launch *launch, struct tm_error *e)
{
    const struct tm_run_settings *settings = launch->request.settings;
    const struct tm_provider *provider = tm_provider_of(&settings->job);
    struct tm_office_options options = {.listen = launch->office_listen,
                                        .dir = launch->request.dir,
                                        .tls_folder = launch->office_tls_dir,
                                        .token = launch->token,
                                        .job = settings->number,
                                        .authority = launch->tls.authority,
                                        .guests = provider->guests};
    if (!provider->joins) return 0;
    tm_state_tls_path(launch->request.dir, TM_STATE_TLS_OFFICE, launch->office_tls_dir);
    find_listen(launch);
    find_host(launch);
    if (launch->office_host[0] != '\0') options.host = options.coordinator_host = launch->office_host;
    int rc = tm_run_tls__issue_office(&launch->tls, e);
    if (rc == 0) rc = find_data_set(launch, &options.data_set, e);
    if (rc == 0) rc = find_data(launch, &options.data, e);
    return rc == 0 ? tm_office_create(launch->env, &options, &launch->office, e) : rc;
}
