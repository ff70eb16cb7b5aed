#include "job/run_tls.h"

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

static int issue(struct tm_run_tls *tls, const char *member, struct tm_error *e)
{
    char folder[TM_STATE_PATH_MAX];
    char name[128];
    tm_state_tls_path(tls->dir, member, folder);
    (void)snprintf(name, sizeof name, "tidemill %.60s", member);
    return tm_tls_authority_issue(tls->authority, tls->env, folder, name, e);
}

int tm_run_tls__make(struct tm_env *env, const char *dir, struct tm_run_tls *out, struct tm_error *e)
{
    *out = (struct tm_run_tls){.env = env};
    (void)snprintf(out->dir, sizeof out->dir, "%s", dir);
    tm_run_tls__remove(dir);
    int rc = tm_tls_authority_create(env, &out->authority, e);
    if (rc == 0) rc = issue(out, TM_STATE_TLS_COORDINATOR, e);
    if (rc == 0) rc = issue(out, TM_STATE_TLS_CLOUD, e);
    return rc;
}

void tm_run_tls__deinit(struct tm_run_tls *tls)
{
    tm_tls_authority_destroy(tls->authority);
    tls->authority = NULL;
}

int tm_run_tls__issue(void *tls, uint64_t instance, struct tm_error *e)
{
    char member[64];
    (void)snprintf(member, sizeof member, TM_STATE_TLS_INSTANCE, instance);
    return issue(tls, member, e);
}
