#include "job/coordinator_folder.h"

#include "base/paths.h"
#include "job/copies_place.h"
#include "job/job_file.h"
#include "job/launch.h"
#include "job/run_fingerprint.h"
#include "job/run_tls.h"
#include "store/copy_store.h"
#include "wire/fingerprint.h"
#include "wire/peer_links.h"

#include <stdio.h>
#include <string.h>

enum { INSTANCES_DEFAULT = 16 };

static bool is_there(struct tm_env *env, const char *dir, enum tm_state_file file)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, file, path);
    return env->file_exists(env, path);
}

/* The job file must say what the one says that the folder is of. */
static int compare_jobs(struct tm_env *env, const struct tm_job *job, const char *dir, struct tm_arena *arena,
                        struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    char why[TM_MESSAGE_STRING_MAX + 1];
    struct tm_fingerprint there = {.count = 0};
    struct tm_fingerprint given = {.count = 0};
    struct tm_job own;
    struct tm_text first;
    struct tm_text second;
    tm_state_path(dir, TM_STATE_JOB, path);
    tm_job_init(&own);
    tm_text_init(&first, TM_RUN_FINGERPRINT_MAX);
    tm_text_init(&second, TM_RUN_FINGERPRINT_MAX);
    int rc = tm_job_load(env, path, &own, e);
    own.folder = job->folder;
    own.engine = job->engine;
    if (rc == 0) rc = tm_run__fingerprint(env, &own, arena, &first, e);
    if (rc == 0) rc = tm_run__fingerprint(env, job, arena, &second, e);
    if (rc == 0) {
        tm_fingerprint_add_lines(&there, tm_text_string(&first));
        tm_fingerprint_add_lines(&given, tm_text_string(&second));
        for (size_t i = 0; rc == 0 && i < given.count; i++)
            if (tm_fingerprint_differs(&there, given.parts[i], job->file, why))
                rc = tm_error_set(e, TM_EINPUT, "%s: %s; use another --state to start over", dir, why);
    }
    tm_text_deinit(&second);
    tm_text_deinit(&first);
    tm_job_deinit(&own);
    return rc;
}

static int make_files(struct tm_env *env, const struct tm_coordinator_request *request,
                      struct tm_run_settings *settings, const char *dir, struct tm_error *e)
{
    char token[TM_STATE_TOKEN_MAX];
    struct tm_text text;
    tm_text_init(&text, 1 << 20);
    int rc = tm_state_write(env, dir, TM_STATE_JOB, settings->job.document, e);
    if (rc == 0) rc = tm_state_token(env, dir, token, e);
    if (rc == 0) rc = tm_token_job(token, &settings->number, e);
    if (rc == 0) rc = tm_copies_place__link(env, request->copies, NULL, dir, "--copies", e);
    tm_run_settings_print(settings, &text);
    if (rc == 0) rc = tm_text_status(&text, e);
    if (rc == 0) rc = tm_state_write(env, dir, TM_STATE_RUN, tm_text_string(&text), e); /* last: it is whole */
    tm_text_deinit(&text);
    return rc;
}

static int make_certificates(struct tm_env *env, const struct tm_coordinator_request *request, const char *dir,
                             struct tm_error *e)
{
    int64_t instances = request->instances > 0 ? request->instances : INSTANCES_DEFAULT;
    struct tm_run_tls tls;
    int rc = tm_run_tls__make(env, dir, request->listen, request->advertise, &tls, e);
    for (int64_t i = 1; rc == 0 && i <= instances; i++)
        rc = tm_run_tls__issue(&tls, (uint64_t)i, e);
    tm_run_tls__deinit(&tls);
    return rc;
}

int tm_coordinator_folder_make(struct tm_env *env, const struct tm_coordinator_request *request, struct tm_arena *arena,
                               struct tm_coordinator_folder *out, struct tm_error *e)
{
    const char *path = request->path;
    struct tm_run_settings settings;
    char certificate[TM_STATE_PATH_MAX + 16];
    char folder[TM_STATE_PATH_MAX];
    tm_run_settings_init(&settings);
    settings.listen = request->listen;
    settings.advertise = request->advertise;
    bool beyond = tm_run_settings_tls(&settings);
    int rc = request->copies == NULL ? 0 : tm_copy_store_check_place(request->copies, e);
    if (rc != 0) rc = tm_error_wrap(e, rc, "--copies");
    if (rc == 0 && path != NULL) rc = tm_job_file_load(env, path, &settings, e);
    settings.job.fleet.speed = 1; /* no trace is replayed */
    const char *dir = NULL;
    if (rc == 0) rc = tm_launch_find_dir(env, request->state, settings.job.name, arena, &dir, e);
    if (rc == 0) (void)snprintf(out->dir, sizeof out->dir, "%s", dir);
    if (rc == 0 && !is_there(env, out->dir, TM_STATE_RUN)) {
        if (path == NULL)
            rc = tm_error_set(e, TM_ENOTFOUND, "%s: there is no job; give its file: tidemill coordinator JOB.yaml",
                              out->dir);
        else if (beyond && request->copies == NULL)
            rc =
                tm_error_set(e, TM_EUSAGE,
                             "with several machines, copy sets need a folder shared by all of them: give --copies DIR");
        if (rc == 0) rc = make_files(env, request, &settings, out->dir, e);
    } else if (rc == 0) {
        if (path != NULL) rc = compare_jobs(env, &settings.job, out->dir, arena, e);
        if (rc == 0) rc = tm_copies_place__link(env, request->copies, NULL, out->dir, "--copies", e);
    }
    tm_state_tls_path(out->dir, TM_STATE_TLS_COORDINATOR, folder);
    (void)snprintf(certificate, sizeof certificate, "%s/node.pem", folder);
    out->tls = rc == 0 && env->file_exists(env, certificate);
    if (rc == 0 && beyond && !out->tls) {
        rc = make_certificates(env, request, out->dir, e);
        out->tls = rc == 0;
    }
    tm_run_settings_deinit(&settings);
    return rc;
}
