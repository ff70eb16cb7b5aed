#include "job/run_tls.h"

#include "base/address.h"

#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

void tm_run_tls__remove(const char *dir)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, TM_STATE_TLS, path);
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int issue(struct tm_run_tls *tls, const char *member, const struct tm_tls_member *names, struct tm_error *e)
{
    char folder[TM_STATE_PATH_MAX];
    char subject[128];
    struct tm_tls_member all = *names;
    tm_state_tls_path(tls->dir, member, folder);
    (void)snprintf(subject, sizeof subject, "tidemill %.60s", member);
    all.subject = subject;
    return tm_tls_authority_issue(tls->authority, tls->env, folder, &all, e);
}

/* "HOST" or "HOST:PORT"; NULL stays NULL. */
static const char *host_of(const char *given, char out[TM_ADDRESS_MAX])
{
    char address[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    if (given == NULL) return NULL;
    tm_address_of_host(given, "0", address);
    return tm_address_split(address, out, port, NULL) == 0 ? out : NULL;
}

int tm_run_tls__make(struct tm_env *env, const char *dir, const char *listen, const char *advertise,
                     struct tm_run_tls *out, struct tm_error *e)
{
    char hosts[2][TM_ADDRESS_MAX];
    const struct tm_tls_member coordinator = {
        .names = {TM_TLS_COORDINATOR, host_of(listen, hosts[0]), host_of(advertise, hosts[1])}};
    const struct tm_tls_member cloud = {.names = {"cloud.tidemill"}};
    *out = (struct tm_run_tls){.env = env};
    (void)snprintf(out->dir, sizeof out->dir, "%s", dir);
    tm_run_tls__remove(dir);
    int rc = tm_tls_authority_create(env, &out->authority, e);
    if (rc == 0) rc = issue(out, TM_STATE_TLS_COORDINATOR, &coordinator, e);
    if (rc == 0) rc = issue(out, TM_STATE_TLS_CLOUD, &cloud, e);
    return rc;
}

int tm_run_tls__issue_office(struct tm_run_tls *tls, struct tm_error *e)
{
    const struct tm_tls_member office = {.names = {TM_TLS_OFFICE}};
    return issue(tls, TM_STATE_TLS_OFFICE, &office, e);
}

void tm_run_tls__deinit(struct tm_run_tls *tls)
{
    tm_tls_authority_destroy(tls->authority);
    tls->authority = NULL;
}

int tm_run_tls__issue(void *tls, uint64_t instance, struct tm_error *e)
{
    char member[64];
    char name[80];
    (void)snprintf(member, sizeof member, TM_STATE_TLS_INSTANCE, instance);
    (void)snprintf(name, sizeof name, "%s.tidemill", member);
    return issue(tls, member, &(struct tm_tls_member){.names = {name}}, e);
}
