#include "cli/coordinator_folder.h"

#include "base/paths.h"
#include "cli/run_fingerprint.h"
#include "cli/run_tls.h"
#include "wire/fingerprint.h"
#include "wire/peer_links.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INSTANCES_DEFAULT = 16, INSTANCES_MAX = 1024 };

static bool is_there(struct tm_cli *cli, const char *dir, enum tm_state_file file)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, file, path);
    return cli->env->file_exists(cli->env, path);
}

static int read_job(struct tm_cli *cli, const char *path, struct tm_run_settings *out, struct tm_error *e)
{
    struct tm_job job;
    char real[PATH_MAX];
    tm_job_init(&job);
    int rc = tm_job_load(cli->env, path, &job, e);
    if (rc == 0 && realpath(path, real) == NULL) rc = tm_error_errno(e, errno, "%s", path);
    if (rc == 0) {
        char *slash = strrchr(real, '/');
        slash[slash == real] = '\0';
        rc = tm_run_settings_of_job(&job, path, real, out, e);
    }
    out->fleet.speed = 1; /* no trace is replayed */
    tm_job_deinit(&job);
    return rc;
}

static int find_dir(struct tm_cli *cli, const char *name, char out[TM_STATE_PATH_MAX], struct tm_error *e)
{
    const char *given = tm_given_text(cli, "state");
    char here[TM_STATE_PATH_MAX] = "";
    if (given == NULL) given = tm_path(cli->env, TM_PATH_STATE, name, &cli->arena, e);
    if (given == NULL) return -(int)e->code;
    if (given[0] != '/' && getcwd(here, sizeof here) == NULL) return tm_error_errno(e, errno, "the current folder");
    (void)snprintf(out, TM_STATE_PATH_MAX, "%.2000s%s%.2000s", here, here[0] != '\0' ? "/" : "", given);
    return tm_state_check(out, e);
}

/* The job file must say what the one says that the folder is of. */
static int compare_jobs(struct tm_cli *cli, const char *path, const struct tm_run_settings *settings, const char *dir,
                        struct tm_error *e)
{
    char own[TM_STATE_PATH_MAX];
    char why[TM_MESSAGE_STRING_MAX + 1];
    struct tm_fingerprint there = {.count = 0};
    struct tm_fingerprint given = {.count = 0};
    struct tm_text first;
    struct tm_text second;
    tm_state_path(dir, TM_STATE_JOB, own);
    tm_text_init(&first, TM_RUN_FINGERPRINT_MAX);
    tm_text_init(&second, TM_RUN_FINGERPRINT_MAX);
    int rc = tm_run_fingerprint(cli->env, own, settings, &cli->arena, &first, e);
    if (rc == 0) rc = tm_run_fingerprint(cli->env, path, settings, &cli->arena, &second, e);
    if (rc == 0) {
        tm_fingerprint_add_lines(&there, tm_text_string(&first));
        tm_fingerprint_add_lines(&given, tm_text_string(&second));
        for (size_t i = 0; rc == 0 && i < given.count; i++)
            if (tm_fingerprint_differs(&there, given.parts[i], path, why))
                rc = tm_error_set(e, TM_EINPUT, "%s: %s; another --state begins anew", dir, why);
    }
    tm_text_deinit(&second);
    tm_text_deinit(&first);
    return rc;
}

static int copy_text(struct tm_cli *cli, const char *path, const char *dir, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, TM_JOB_BYTES_MAX);
    int rc = cli->env->file_read(cli->env, path, &text, e);
    if (rc == 0) rc = tm_state_write(cli->env, dir, TM_STATE_JOB, tm_text_string(&text), e);
    tm_text_deinit(&text);
    return rc;
}

/* Where all workers write copy sets; the folder's own name for it is copies. It stays what it is for the job's life. */
static int link_copies(struct tm_cli *cli, const char *dir, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    char real[PATH_MAX];
    char there[PATH_MAX];
    const char *given = tm_given_text(cli, "copies");
    tm_state_path(dir, TM_STATE_COPIES, path);
    if (given == NULL) return 0;
    if (mkdir(given, 0700) != 0 && errno != EEXIST) return tm_error_errno(e, errno, "--copies %s", given);
    if (realpath(given, real) == NULL) return tm_error_errno(e, errno, "--copies %s", given);
    if (symlink(real, path) == 0) return 0;
    if (errno != EEXIST) return tm_error_errno(e, errno, "%s", path);
    if (realpath(path, there) != NULL && strcmp(there, real) == 0) return 0;
    return tm_error_set(e, TM_EUSAGE,
                        "--copies %s: this job has its copies in %s; leave it out, or begin anew with another --state",
                        given, there);
}

static int make_files(struct tm_cli *cli, const char *path, struct tm_run_settings *settings, const char *dir,
                      struct tm_error *e)
{
    char token[TM_STATE_TOKEN_MAX];
    struct tm_text text;
    tm_text_init(&text, 1 << 20);
    int rc = copy_text(cli, path, dir, e);
    if (rc == 0) rc = tm_state_token(cli->env, dir, token, e);
    if (rc == 0) rc = tm_token_job(token, &settings->job, e);
    if (rc == 0) rc = link_copies(cli, dir, e);
    tm_run_settings_print(settings, &text);
    if (rc == 0) rc = tm_text_status(&text, e);
    if (rc == 0) rc = tm_state_write(cli->env, dir, TM_STATE_RUN, tm_text_string(&text), e); /* last: it is whole */
    tm_text_deinit(&text);
    return rc;
}

static int make_certificates(struct tm_cli *cli, const char *dir, struct tm_error *e)
{
    struct tm_run_tls tls;
    int64_t instances = INSTANCES_DEFAULT;
    int rc = tm_given_integer(cli, "instances", 1, INSTANCES_MAX, &instances, e);
    if (rc != 0) return rc;
    rc = tm_run_tls_make(cli->env, dir, &tls, e);
    for (int64_t i = 1; rc == 0 && i <= instances; i++)
        rc = tm_run_tls_issue(&tls, (uint64_t)i, e);
    tm_run_tls_deinit(&tls);
    return rc;
}

int tm_coordinator_folder_make(struct tm_cli *cli, const char *path, struct tm_coordinator_folder *out,
                               struct tm_error *e)
{
    struct tm_run_settings settings;
    char certificate[TM_STATE_PATH_MAX + 16];
    char folder[TM_STATE_PATH_MAX];
    const char *listen = tm_given_text(cli, "listen");
    bool beyond = listen != NULL && !tm_address_is_loopback(listen);
    tm_run_settings_init(&settings);
    int rc = path == NULL ? 0 : read_job(cli, path, &settings, e);
    if (rc == 0) rc = find_dir(cli, settings.name, out->dir, e);
    if (rc == 0 && !is_there(cli, out->dir, TM_STATE_RUN)) {
        if (path == NULL)
            rc = tm_error_set(e, TM_ENOTFOUND, "%s: there is no job; name its file: tidemill coordinator JOB.yaml",
                              out->dir);
        else if (beyond && !tm_given(cli, "copies"))
            rc = tm_error_set(e, TM_EUSAGE,
                              "on several machines copy sets need a folder that all of them share: give --copies DIR");
        if (rc == 0) rc = make_files(cli, path, &settings, out->dir, e);
    } else if (rc == 0) {
        if (path != NULL) rc = compare_jobs(cli, path, &settings, out->dir, e);
        if (rc == 0) rc = link_copies(cli, out->dir, e);
    }
    tm_state_tls_path(out->dir, TM_STATE_TLS_COORDINATOR, folder);
    (void)snprintf(certificate, sizeof certificate, "%s/node.pem", folder);
    out->tls = rc == 0 && cli->env->file_exists(cli->env, certificate);
    if (rc == 0 && beyond && !out->tls) {
        rc = make_certificates(cli, out->dir, e);
        out->tls = rc == 0;
    }
    tm_run_settings_deinit(&settings);
    return rc;
}
