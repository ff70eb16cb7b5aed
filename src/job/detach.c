#include "job/detach.h"

#include "base/alloc.h"
#include "base/log.h"
#include "job/launch.h"
#include "job/provider_vms.h"
#include "job/workdir.h"
#include "run/run_home.h"
#include "run/state_bundle.h"
#include "run/state_folder.h"
#include "store/copy_store.h"
#include "store/objects.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_MAX = 1 << 20, TOKEN_BYTES = 64, LISTED_S = 60 };

#define BOOKS   "run/books"
#define DATA    "run/data-"
#define FOLDER  "run/folder-" /* of the job's command */
#define WHERE   "run/where"
#define CLAIM   "job" /* of whoever runs it (copy_bucket.c) */
#define SHIPPED "kjv-new-testament"

bool tm_detach_is_place(const char *text)
{
    return strstr(text, "://") != NULL;
}

/* Has it data that is a file here? */
static bool has_data(const struct tm_job *job)
{
    return job->engine == TM_JOB_ENGINE_GPT && job->data != NULL && job->data[0] != '\0' &&
           strcmp(job->data, SHIPPED) != 0 && !tm_detach_is_place(job->data);
}

/* Has it a folder that goes along? */
static bool has_folder(const struct tm_job *job)
{
    return job->engine == TM_JOB_ENGINE_COMMAND && job->workdir != NULL;
}

static bool is_below(const char *path)
{
    char whole[TM_STATE_PATH_MAX];
    (void)snprintf(whole, sizeof whole, "/%s/", path);
    return path[0] != '/' && strstr(whole, "/../") == NULL;
}

int tm_detach_check(const struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    const struct tm_job *job = &settings->job;
    const char *cloud = tm_job_cloud_names[job->cloud];
    const struct tm_provider_coordinator *rents = tm_provider_of(job)->coordinator;
    if (rents == NULL)
        return tm_error_set(e, TM_EUSAGE,
                            "--detach rents a VM for the coordinator with cloud aws, gcp and azure, not with cloud %s",
                            cloud);
    if (rents->said(&job->fleet)->account == NULL)
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.%s.%s: --detach needs %s may rent VMs and use the bucket; `tidemill cloud check "
                            "%s --emit policy` prints what it must be allowed",
                            place, cloud, rents->key, rents->about, cloud);
    if (has_data(job) && !is_below(job->data))
        return tm_error_set(e, TM_EINPUT,
                            "%s: data: %s: with --detach data lies beside the job file, or in a bucket: data: s3://...",
                            place, job->data);
    if (has_folder(job) && !is_below(job->workdir))
        return tm_error_set(e, TM_EINPUT,
                            "%s: workdir: %s: with --detach the folder of the command is the job file's (workdir: .), "
                            "or lies in it",
                            place, job->workdir);
    return 0;
}

void tm_detach_name_rights(const struct tm_job *job, struct tm_cloud_checks *out)
{
    const struct tm_provider_coordinator *rents = tm_provider_of(job)->coordinator;
    const char *account = rents != NULL ? rents->said(&job->fleet)->account : NULL;
    if (account == NULL) return;
    struct tm_cloud_check *line = tm_cloud_checks_add(out, "coordinator", TM_CHECK_UNKNOWN);
    (void)snprintf(line->what, sizeof line->what,
                   "not tried: with --detach %.120s needs what --emit policy prints, too; %.150s", account,
                   rents->rights);
}

double tm_detach_usd_h(const struct tm_run_settings *settings)
{
    const struct tm_provider_coordinator *rents = tm_provider_of(&settings->job)->coordinator;
    const struct tm_job_coordinator_vm *said = rents->said(&settings->job.fleet);
    if (said->usd_h_millionths >= 0) return (double)said->usd_h_millionths / 1e6;
    return said->type == NULL || strcmp(said->type, rents->type) == 0 ? rents->usd_h : 0;
}

/* ---- who has its VM ---- */

/* NULL: nobody rents one for a run whose books are there. */
static const struct tm_provider_coordinator *who_rents(const char *place)
{
    const struct tm_provider *provider = NULL;
    for (size_t i = 0; (provider = tm_provider__at(i)) != NULL; i++) {
        size_t length = provider->coordinator != NULL ? strlen(provider->coordinator->scheme) : 0;
        if (length > 0 && strncmp(place, provider->coordinator->scheme, length) == 0 &&
            strncmp(place + length, "://", 3) == 0)
            return provider->coordinator;
    }
    return NULL;
}

static int find(struct tm_env *env, const char *place, char out_id[TM_VM_ID_MAX], struct tm_error *e)
{
    const struct tm_away_search search = {.place = place};
    const struct tm_provider_coordinator *rents = who_rents(place);
    struct tm_away_found found = {.id = ""};
    if (rents == NULL) return tm_error_set(e, TM_ENOTFOUND, "%s: no cloud rents a VM for it", place);
    int rc = rents->find(env, &search, &found, e);
    if (rc == 0) memcpy(out_id, found.id, sizeof found.id);
    return rc;
}

int tm_detach_find(struct tm_env *env, const char *cloud, const char *job, char *out, size_t room, struct tm_error *e)
{
    const struct tm_away_search search = {.job = job};
    struct tm_away_found found = {.id = ""};
    const struct tm_provider *provider = NULL;
    size_t at = 0;
    while ((provider = tm_provider__at(at)) != NULL && strcmp(provider->name, cloud) != 0)
        at++;
    if (provider == NULL || provider->coordinator == NULL)
        return tm_error_set(e, TM_ENOTFOUND, "cloud %s has no coordinators", cloud);
    int rc = provider->coordinator->find(env, &search, &found, e);
    if (rc == 0) (void)snprintf(out, room, "%s", found.place);
    return rc;
}

bool tm_detach_is_rented(struct tm_env *env, const char *dir)
{
    char place[TM_COPY_PLACE_MAX];
    char id[TM_VM_ID_MAX];
    if (tm_run_away_place(env, dir, place, NULL) != 0) return false;
    return who_rents(place) == NULL || find(env, place, id, NULL) == 0;
}

/* ---- what is brought ---- */

struct names {
    char (*list)[TM_KEY_MAX]; /* owned */
    size_t count;
    size_t capacity;
};

static int take_name(void *context, const char *name, struct tm_error *e)
{
    static const char *const ours[] = {"run/", "result/", "report.html", "summary.json", "job", "newest", "set-"};
    struct names *names = context;
    bool own = false;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        size_t length = strlen(ours[i]);
        bool whole = strchr("/-", ours[i][length - 1]) == NULL;
        own = own || (whole ? strcmp(name, ours[i]) == 0 : strncmp(name, ours[i], length) == 0);
    }
    if (!own || strlen(name) >= TM_KEY_MAX) return 0; /* what else lies there is not ours, or of VMs that live */
    if (tm_grow((void **)&names->list, &names->capacity, names->count + 1, sizeof *names->list, NAMES_MAX) != 0)
        return tm_error_nomem(e);
    (void)snprintf(names->list[names->count++], TM_KEY_MAX, "%s", name);
    return 0;
}

/* What of ours begins so. */
static int clear_from(struct tm_objects *o, const char *from, struct tm_error *e)
{
    struct names names = {.list = NULL};
    int rc = o->each(o->self, from, false, take_name, &names, e);
    for (size_t i = 0; rc == 0 && i < names.count; i++)
        rc = o->remove(o->self, names.list[i], e);
    tm_free(names.list);
    return rc;
}

static int clear(struct tm_objects *o, struct tm_error *e)
{
    int rc = clear_from(o, "", e);
    return rc == 0 ? o->abort_uploads(o->self, "set-", e) : rc;
}

/* A file, under a name that says its hash: the only one of its kind, whatever a call that was killed brought before. */
static int bring_file(struct tm_env *env, const char *path, const char *kind, const char *what, struct tm_objects *o,
                      struct tm_error *e)
{
    char name[64];
    char hash[33];
    const void *data = NULL;
    size_t length = 0;
    int rc = env->file_map(env, path, &data, &length, e);
    if (rc != 0) return rc;
    (void)snprintf(name, sizeof name, "%s%s", kind, tm_hash_print(tm_hash_of(data, length), hash));
    tm_log(TM_LOG_INFO, "bringing %s (%zu bytes) to the bucket", what, length);
    rc = clear_from(o, kind, e);
    if (rc == 0) rc = o->upload(o->self, name, data, length, e);
    env->file_unmap(env, data, length);
    return rc;
}

/* dir: where it lies beside the job file of the state folder, too, for whoever resumes the run. */
static int bring_data(struct tm_env *env, const struct tm_job *job, const char *dir, struct tm_objects *o,
                      struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    const void *data = NULL;
    size_t length = 0;
    if (!has_data(job)) return 0;
    (void)snprintf(path, sizeof path, "%s/%s", job->folder, job->data);
    int rc = bring_file(env, path, DATA, "the data", o, e);
    if (rc == 0) rc = env->file_map(env, path, &data, &length, e);
    if (rc != 0) return tm_error_wrap(e, rc, "data");
    (void)snprintf(path, sizeof path, "%s/%s", dir, job->data);
    if (!env->file_exists(env, path)) rc = env->file_write_private(env, path, data, length, e);
    env->file_unmap(env, data, length);
    return rc;
}

static int bring_folder(struct tm_env *env, const struct tm_detach_request *request, struct tm_objects *o,
                        struct tm_error *e)
{
    const struct tm_job *job = &request->settings->job;
    const char *file = NULL;
    char path[TM_STATE_PATH_MAX];
    if (!has_folder(job)) return 0;
    (void)snprintf(path, sizeof path, "%s/workdir.tar", request->dir);
    int rc = env->file_write_private(env, path, "", 0, e); /* which makes the state folder */
    if (rc == 0) rc = tm_workdir__pack(env, job, request->dir, request->arena, &file, e);
    if (rc != 0) return rc;
    if (file == NULL)
        return tm_error_set(e, TM_ELIMIT, "%s: workdir: with --detach it has %d MB at most", job->file,
                            TM_WORKDIR_MAX / 1000000);
    rc = bring_file(env, file, FOLDER, "the folder of the command", o, e);
    (void)env->file_remove(env, file, NULL);
    return rc;
}

/* The job file as the VM shall have it: with those to be told that config.yaml names here. */
static int job_file(const struct tm_detach_request *request, struct tm_text *out, struct tm_error *e)
{
    const struct tm_notify_target *all = request->notify->items;
    size_t webhooks = 0;
    for (size_t i = 0; i < request->notify->count; i++)
        webhooks += all[i].webhook != NULL;
    if (webhooks < request->notify->count)
        tm_log(TM_LOG_WARN,
               "notify in config.yaml: the coordinator's VM tells webhooks alone; mail and commands need this machine");
    if (webhooks > 0) return tm_notify_add_webhooks(request->settings->job.document, request->notify, out, e);
    tm_text_puts(out, request->settings->job.document);
    return tm_text_status(out, e);
}

/* Books that have the job alone: a run that has not begun. */
static int bring_job(struct tm_env *env, const struct tm_detach_request *request, struct tm_objects *o,
                     struct tm_error *e)
{
    struct tm_text books;
    struct tm_text job;
    char dir[TM_STATE_PATH_MAX];
    (void)snprintf(dir, sizeof dir, "%s/away.job", request->dir);
    tm_text_init(&books, TM_BUNDLE_BYTES_MAX);
    tm_text_init(&job, TM_BUNDLE_BYTES_MAX);
    int rc = job_file(request, &job, e);
    if (rc == 0) rc = tm_state_write(env, dir, TM_STATE_JOB, tm_text_string(&job), e);
    if (rc == 0) rc = tm_state_pack(env, dir, &books, e);
    if (rc == 0) rc = o->upload(o->self, BOOKS, books.data, books.length, e);
    tm_text_deinit(&job);
    tm_text_deinit(&books);
    char path[TM_STATE_PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/job.yaml", dir);
    (void)env->file_remove(env, path, NULL);
    (void)env->file_remove(env, dir, NULL);
    return rc;
}

/* What an earlier run left here is not of this one. */
static void forget(struct tm_env *env, const char *dir)
{
    static const char *const names[] = {"record", "record-wal", "record-shm", "summary.json", "run.yaml", "api"};
    char path[TM_STATE_PATH_MAX + 16];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        (void)env->file_remove(env, path, NULL);
    }
}

/* Nothing that lasts is thrown away unasked. Books that nobody has claimed were brought by a call like this one, which
 * was killed, and no VM has them: they are brought again. */
static int check_place(struct tm_objects *o, const char *place, struct tm_error *e)
{
    char head[TM_BUNDLE_HEAD];
    uint64_t total = 0;
    int rc = o->download(o->self, BOOKS, head, sizeof head, &total, e);
    if (rc == 0) rc = o->download(o->self, CLAIM, head, 1, &total, e);
    if (rc == -(int)TM_ENOTFOUND) return 0;
    if (rc != 0) return rc;
    return tm_error_set(e, TM_EEXISTS,
                        "%s has a run already; see it with tidemill attach %s, delete it with --again, or give copies: "
                        "another prefix",
                        place, place);
}

static int bring(struct tm_env *env, const struct tm_detach_request *request, const char *place, struct tm_error *e)
{
    struct tm_objects o;
    int rc = tm_objects_open(env, place, &o, e);
    if (rc != 0) return rc;
    if (request->resumed) {
        rc = o.remove(o.self, WHERE, e); /* of the VM that is gone */
        o.close(o.self);
        return rc;
    }
    rc = request->again ? clear(&o, e) : check_place(&o, place, e);
    if (rc == 0) rc = bring_data(env, &request->settings->job, request->dir, &o, e);
    if (rc == 0) rc = bring_folder(env, request, &o, e);
    if (rc == 0) rc = bring_job(env, request, &o, e); /* last: what has books has all */
    o.close(o.self);
    return rc;
}

/* ---- renting ---- */

/* The token of a call that was not answered, as it was written down; else a new one. */
static int find_token(struct tm_env *env, const char *dir, char out[TOKEN_BYTES], struct tm_error *e)
{
    if (tm_state_read(env, dir, TM_STATE_AWAY_CALL, out, TOKEN_BYTES, NULL) == 0) return 0;
    (void)snprintf(out, TOKEN_BYTES, "tmc-%016" PRIx64 "%016" PRIx64, env->random_u64(env), env->random_u64(env));
    return tm_state_write(env, dir, TM_STATE_AWAY_CALL, out, e);
}

/* The token was used: its VM is there, or was, though the cloud may need a while to list it. */
static int find_rented(struct tm_env *env, const char *place, char out_id[TM_VM_ID_MAX], struct tm_error *e)
{
    int rc = -(int)TM_ENOTFOUND;
    for (int i = 0; rc == -(int)TM_ENOTFOUND && i < LISTED_S; i++) {
        if (i > 0) env->sleep_ms(env, 1000);
        rc = find(env, place, out_id, e);
    }
    return rc;
}

static int rent(struct tm_env *env, const struct tm_detach_request *request, const char *place,
                char out_id[TM_VM_ID_MAX], struct tm_error *e)
{
    const struct tm_job *job = &request->settings->job;
    const struct tm_provider_coordinator *rents = tm_provider_of(job)->coordinator;
    const struct tm_job_coordinator_vm *said = rents->said(&job->fleet);
    char owner[TM_PROVIDER_OWNER_MAX];
    char bucket[TM_BUCKET_MAX];
    char prefix[TM_PREFIX_MAX];
    char token[TOKEN_BYTES];
    const char *wheel = NULL;
    int rc = tm_objects_place(place, bucket, prefix, e);
    if (rc == 0 && job->engine == TM_JOB_ENGINE_COMMAND)
        rc = tm_provider_vms__wheel(env, request->program, request->arena, &wheel, e);
    if (rc == 0) rc = find_token(env, request->dir, token, e);
    if (rc != 0) return rc;
    tm_provider_vms_owner(env, owner);
    struct tm_away_vm o = {.type = said->type != NULL ? said->type : rents->type,
                           .usd_h = tm_detach_usd_h(request->settings),
                           .reached_from = said->reached_from,
                           .job = job->name,
                           .owner = owner,
                           .place = place,
                           .bucket = bucket,
                           .prefix = prefix,
                           .program = request->program,
                           .wheel = wheel,
                           .token = token,
                           .options = request->options};
    rc = rents->rent(env, request->settings, &o, out_id, e);
    if (rc == -(int)TM_EEXISTS) rc = find_rented(env, place, out_id, e);
    if (rc == 0 || rc == -(int)TM_EINPUT || rc == -(int)TM_ENOTFOUND) { /* answered: the next is another call */
        char path[TM_STATE_PATH_MAX];
        tm_state_path(request->dir, TM_STATE_AWAY_CALL, path);
        (void)env->file_remove(env, path, NULL);
    }
    return rc;
}

int tm_detach(struct tm_env *env, const struct tm_detach_request *request, char out_id[TM_VM_ID_MAX],
              struct tm_error *e)
{
    const char *place = request->settings->job.copies;
    int rc = find(env, place, out_id, e);
    if (rc == 0 && !request->again) {
        rc = tm_run_away_write(env, request->dir, place, e);
        return rc == 0 && !request->resumed
                   ? tm_error_set(e, TM_EBUSY, "%s: VM %s has this run already; see it with tidemill status", place,
                                  out_id)
                   : rc;
    }
    if (rc == 0)
        return tm_error_set(e, TM_EBUSY, "%s: VM %s has this run; stop it first: tidemill stop", place, out_id);
    if (rc == -(int)TM_ENOTFOUND) rc = 0;
    if (rc == 0) rc = bring(env, request, place, e);
    if (rc == 0 && !request->resumed) forget(env, request->dir);
    if (rc == 0) rc = tm_run_away_write(env, request->dir, place, e);
    return rc == 0 ? rent(env, request, place, out_id, e) : rc;
}

/* ---- on the VM ---- */

const char *tm_detach_folder(const char *dir, struct tm_arena *arena)
{
    return tm_arena_printf(arena, "%s/home", dir);
}

static int take_one(void *context, const char *name, struct tm_error *e)
{
    (void)e;
    (void)snprintf(context, TM_KEY_MAX, "%s", name);
    return 0;
}

/* The one of this kind, whose name says the hash of what it must be. */
static int fetch_file(struct tm_env *env, const char *place, const char *kind, const char *path, struct tm_error *e)
{
    struct tm_objects o;
    char name[TM_KEY_MAX] = "";
    char hash[33];
    char byte = 0;
    uint64_t total = 0;
    char *data = NULL;
    int rc = tm_objects_open(env, place, &o, e);
    if (rc != 0) return rc;
    rc = o.each(o.self, kind, true, take_one, name, e);
    if (rc == 0 && name[0] == '\0') rc = tm_error_set(e, TM_ENOTFOUND, "%s has no %s...", place, kind);
    if (rc == 0) rc = o.download(o.self, name, &byte, 1, &total, e);
    if (rc == 0 && (data = tm_alloc(total > 0 ? (size_t)total : 1)) == NULL) rc = tm_error_nomem(e);
    if (rc == 0) rc = o.download(o.self, name, data, (size_t)total, &total, e);
    if (rc == 0 && strcmp(tm_hash_print(tm_hash_of(data, (size_t)total), hash), name + strlen(kind)) != 0)
        rc = tm_error_set(e, TM_EINPUT, "%s/%s is damaged", place, name);
    if (rc == 0) rc = env->file_write_private(env, path, data, (size_t)total, e);
    tm_free(data);
    o.close(o.self);
    return rc;
}

/* Once: what the command has changed in it since stays. */
static int arrive_folder(struct tm_env *env, const char *place, const char *dir, const char *folder,
                         const struct tm_job *job, struct tm_error *e)
{
    char file[TM_STATE_PATH_MAX + 24];
    char path[TM_STATE_PATH_MAX];
    char mark[TM_STATE_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", folder, job->workdir);
    (void)snprintf(file, sizeof file, "%s/.tidemill-folder.tar", path);
    (void)snprintf(mark, sizeof mark, "%s/folder.here", dir);
    if (env->file_exists(env, mark)) return 0;
    int rc = fetch_file(env, place, FOLDER, file, e); /* which makes its folders */
    if (rc == 0) rc = tm_workdir__unpack(env, file, path, e);
    if (rc != 0) return rc;
    (void)env->file_remove(env, file, NULL);
    return env->file_write_private(env, mark, "", 0, e);
}

static int arrive_data(struct tm_env *env, const char *place, const char *dir, const char *folder, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_job job;
    tm_job_init(&job);
    tm_state_path(dir, TM_STATE_JOB, path);
    int rc = tm_job_load(env, path, &job, e);
    if (rc == 0 && has_data(&job) && is_below(job.data)) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, job.data);
        if (!env->file_exists(env, path)) rc = fetch_file(env, place, DATA, path, e);
    }
    if (rc == 0 && has_folder(&job) && is_below(job.workdir)) rc = arrive_folder(env, place, dir, folder, &job, e);
    if (rc == -(int)TM_ENOTFOUND) rc = 0; /* whoever needs it names it */
    tm_job_deinit(&job);
    return rc;
}

int tm_detach_arrive(struct tm_env *env, const char *place, const char *dir, struct tm_arena *arena,
                     const char **out_job, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_text job;
    const char *folder = tm_detach_folder(dir, arena);
    *out_job = NULL;
    if (folder == NULL) return tm_error_nomem(e);
    tm_state_path(dir, TM_STATE_RECORD, path);
    int rc = env->file_exists(env, path) ? 0 : tm_run_home_fetch(env, place, dir, e); /* what is here is newer */
    if (rc == 0) rc = arrive_data(env, place, dir, folder, e);
    tm_state_path(dir, TM_STATE_RUN, path);
    if (rc != 0 || (tm_launch_has_work(env, dir) && env->file_exists(env, path))) return rc;
    tm_text_init(&job, 1 << 20);
    tm_state_path(dir, TM_STATE_JOB, path);
    rc = env->file_read(env, path, &job, e);
    const char *file = tm_arena_printf(arena, "%s/job.yaml", folder);
    if (rc == 0 && file == NULL) rc = tm_error_nomem(e);
    if (rc == 0) rc = env->file_write_private(env, file, tm_text_string(&job), job.length, e);
    tm_text_deinit(&job);
    if (rc == 0) *out_job = file;
    return rc;
}
