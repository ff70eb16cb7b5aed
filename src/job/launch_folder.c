/* The state folder of a run: what is in it, and what goes into it before anything is rented. */
#include "base/log.h"
#include "base/paths.h"
#include "job/copies_place.h"
#include "job/job_changes.h"
#include "job/launch_internal.h"
#include "job/pool_lives.h"
#include "job/run_report_file.h"
#include "run/run_tap.h"
#include "store/copy_store.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_there(struct tm_env *env, const char *dir, enum tm_state_file file)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, file, path);
    return env->file_exists(env, path);
}

/* ---- what is there ---- */

bool tm_launch_has_work(struct tm_env *env, const char *dir)
{
    char path[TM_STATE_PATH_MAX];
    uint64_t set = 0;
    tm_state_path(dir, TM_STATE_COPIES, path);
    return is_there(env, dir, TM_STATE_RECORD) || tm_copy_store_newest(env, path, &set, NULL) == 0;
}

/* How the run that is there ended; TM_JOB_TRAINING: it did not, or nobody knows. */
static enum tm_job_state state_there(struct tm_env *env, const char *dir)
{
    struct tm_run_status status;
    if (!is_there(env, dir, TM_STATE_SUMMARY) || tm_run_record_status(dir, &status, NULL) != 0) return TM_JOB_TRAINING;
    enum tm_job_state state = status.state;
    tm_run_status_deinit(&status);
    return state;
}

int tm_launch_may_clear(struct tm_env *env, const char *dir, struct tm_error *e)
{
    char copies[TM_STATE_PATH_MAX];
    uint64_t set = 0;
    if (!tm_launch_has_work(env, dir)) return 0;
    tm_state_path(dir, TM_STATE_COPIES, copies);
    bool durable = tm_copy_store_newest(env, copies, &set, NULL) != -(int)TM_ENOTFOUND;
    enum tm_job_state state = state_there(env, dir);
    bool ended = state == TM_JOB_FINISHED || state == TM_JOB_FAILED;
    if (ended && !durable) return 0;
    if (state == TM_JOB_FINISHED)
        return tm_error_set(
            e, TM_EEXISTS,
            "%s: there is a finished run, with its weights; delete it with --again, or use another --state", dir);
    return tm_error_set(
        e, TM_EEXISTS, "%s: there is %s run; continue it with --resume, delete it with --again, or use another --state",
        dir, state == TM_JOB_FAILED ? "a failed" : "an unfinished");
}

int tm_launch_find_dir(struct tm_env *env, const char *given, const char *name, struct tm_arena *arena,
                       const char **out, struct tm_error *e)
{
    char here[TM_STATE_PATH_MAX];
    if (given == NULL) {
        struct tm_error own;
        struct tm_error *where = e != NULL ? e : &own;
        *out = tm_path(env, TM_PATH_STATE, name, arena, where);
        return *out == NULL ? -(int)where->code : tm_state_check(*out, e);
    }
    if (given[0] != '/' && getcwd(here, sizeof here) == NULL) return tm_error_errno(e, errno, "the current folder");
    *out = given[0] == '/' ? tm_arena_strdup(arena, given) : tm_arena_printf(arena, "%s/%s", here, given);
    return *out == NULL ? tm_error_nomem(e) : tm_state_check(*out, e);
}

/* A run goes on as the job that it was begun as: the settings get that one, and in what the given one differs is said.
 */
static int take_own_job(struct tm_env *env, const char *dir, struct tm_run_settings *settings, struct tm_text *out,
                        struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_job own;
    struct tm_text changes;
    tm_state_path(dir, TM_STATE_JOB, path);
    tm_job_init(&own);
    tm_text_init(&changes, 1 << 19);
    int rc = tm_job_load(env, path, &own, e);
    if (rc == 0) rc = tm_job__changes(&own, &settings->job, &changes, e);
    own.folder = rc == 0 ? tm_arena_strdup(&own.arena, settings->job.folder) : "";
    if (own.folder == NULL) rc = tm_error_nomem(e);
    if (rc == 0 && changes.length > 0)
        tm_text_printf(
            out,
            "%s has changed since this run started. The run keeps the job file it started with; options override it:\n"
            "%sTo use the new file, start over with --again or another --state.\n"
            "\n",
            settings->job.file, tm_text_string(&changes));
    if (rc == 0) rc = tm_text_status(out, e);
    tm_text_deinit(&changes);
    if (rc == 0) {
        tm_job_deinit(&settings->job);
        settings->job = own;
    } else {
        tm_job_deinit(&own);
    }
    return rc;
}

int tm_launch_resume(struct tm_env *env, const char *dir, struct tm_run_settings *settings, struct tm_text *changes,
                     struct tm_error *e)
{
    bool given = settings->job.file != NULL;
    bool job = is_there(env, dir, TM_STATE_JOB);
    bool run = is_there(env, dir, TM_STATE_RUN);
    if (!tm_launch_has_work(env, dir))
        return tm_error_set(e, TM_ENOTFOUND, "%s: there is no run to resume; leave out --resume", dir);
    if (!given && !(job && run))
        return tm_error_set(e, TM_ENOTFOUND,
                            "%s: %s is missing, but the run's work is there; give the job file too: tidemill run "
                            "JOB.yaml --resume --state %s",
                            dir, run ? "job.yaml" : "run.yaml", dir);
    if (!given) return tm_run_settings_load(env, dir, settings, e);
    int rc = job ? take_own_job(env, dir, settings, changes, e) : 0;
    if (rc != 0 || run) return rc == 0 ? tm_run_settings_read(env, dir, settings, e) : rc;
    tm_log(TM_LOG_WARN, "%s: run.yaml is missing; using %s instead", dir, settings->job.file);
    if (job) rc = tm_pool_lives__fill(env, &settings->job, e);
    return job && rc == 0 ? tm_run_settings_settle(settings, e) : rc;
}

/* ---- what goes into it ---- */

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

/* What an earlier run left; nothing else that lies there. */
static void clear_folder(const char *dir, bool keep_token)
{
    static const char *const also[] = {"record-wal", "record-shm"};
    char path[TM_STATE_PATH_MAX + 32];
    for (int file = 0; file < TM_STATE_FILE_COUNT; file++) {
        if (file == TM_STATE_OWNER || file == TM_STATE_LOCK || file == TM_STATE_COST)
            continue; /* what was measured is of use to the next */
        if (keep_token && file == TM_STATE_TOKEN) continue;
        tm_state_path(dir, (enum tm_state_file)file, path);
        (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    for (size_t i = 0; i < sizeof also / sizeof *also; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, also[i]);
        (void)remove(path);
    }
}

static int write_settings(const struct tm_launch *launch, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, 1 << 20);
    tm_run_settings_print(launch->request.settings, &text);
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = tm_state_write(launch->env, launch->request.dir, TM_STATE_RUN, tm_text_string(&text), e);
    tm_text_deinit(&text);
    return rc;
}

/* Before anything is rented: what cannot be written, listed and read back now would never be durable. A place that
 * others see becomes this job's, unless another has it; `before` is where the run was that this one begins again. */
static int check_copies(const struct tm_launch *launch, const char *before, struct tm_error *e)
{
    const struct tm_launch_request *request = &launch->request;
    char path[TM_STATE_PATH_MAX];
    char place[TM_COPY_PLACE_MAX];
    struct tm_copy_store *store = NULL;
    bool shared = tm_copies_place__is_shared(launch->env, request->dir);
    tm_state_path(request->dir, TM_STATE_COPIES, path);
    int rc = tm_copy_store_place(launch->env, path, place, e);
    if (rc == 0) rc = tm_copy_store_open(launch->env, path, shared ? request->settings->number : 0, &store, e);
    if (rc == 0) {
        rc = store->check(store, e);
        if (rc == 0 && shared) rc = store->claim(store, strcmp(place, before) == 0, e);
        store->close(store);
    }
    if (rc != 0 && shared) return tm_error_wrap(e, rc, "the place for copies cannot be used");
    if (rc != 0) return tm_error_wrap(e, rc, "the folder for copies cannot be used; fix that, or give another --state");
    return 0;
}

/* A run begins: what an earlier one left goes, also what it left elsewhere. */
static int begin_anew(const struct tm_launch *launch, char *before, size_t room, struct tm_error *e)
{
    const char *dir = launch->request.dir;
    /* killed before it had any work, it is this run: what it has made in a cloud has its number in its tags */
    bool same = launch->request.keep_token || !tm_launch_has_work(launch->env, dir);
    int rc = tm_copies_place__forget(launch->env, dir, before, room, e);
    if (rc != 0) return tm_error_wrap(e, rc, "copies of the run before cannot be deleted");
    clear_folder(dir, same);
    return 0;
}

int tm_launch__prepare(struct tm_launch *launch, struct tm_error *e)
{
    struct tm_env *env = launch->env;
    const struct tm_launch_request *request = &launch->request;
    const struct tm_job *job = &request->settings->job;
    char before[TM_COPY_PLACE_MAX] = "";
    int rc = tm_state_own(env, request->dir, &launch->owner, &launch->leftovers, e);
    if (rc != 0) return rc;
    launch->owned = true;
    if (launch->leftovers > 0)
        tm_log(TM_LOG_WARN, "ending %d processes left over from an earlier run", launch->leftovers);
    if (!request->resumed) rc = begin_anew(launch, before, sizeof before, e);
    if (rc == 0 && !is_there(env, request->dir, TM_STATE_JOB))
        rc = tm_state_write(env, request->dir, TM_STATE_JOB, request->settings->job.document, e);
    if (rc == 0) rc = tm_state_token(env, request->dir, launch->token, e);
    if (rc == 0) rc = tm_token_job(launch->token, &request->settings->number, e);
    if (rc == 0) rc = write_settings(launch, e);
    if (rc == 0) rc = tm_copies_place__link(env, job->copies, job->folder, request->dir, "copies:", e);
    if (rc == 0) rc = check_copies(launch, before, e);
    if (rc == 0 && tm_run_settings_tls(request->settings)) /* new each time: all who use them are started anew */
        rc = tm_run_tls__make(env, request->dir, request->settings->listen, request->settings->advertise, &launch->tls,
                              e);
    if (rc == 0 && !request->resumed && !request->plan->speed_unknown)
        rc = tm_run_predictions__save(env, request->dir, request->plan, e);
    if (rc == 0) rc = tm_cloud_account_read(env, request->dir, &launch->account, e);
    return rc;
}
