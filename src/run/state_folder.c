#include "run/state_folder.h"

#include "base/number.h"
#include "base/planted.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 64 << 10, NAME_ROOM = 64, JOB_DIGITS = 16, SECRET_DIGITS = 32 };
enum { OWNER_WAIT_MS = 1000, OWNER_LOOK_MS = 10 };

static const char *const names[] = {
#define TM_STATE_FILE_NAME(name, text) text,
    TM_STATE_FILES(TM_STATE_FILE_NAME)
#undef TM_STATE_FILE_NAME
};

void tm_state_path(const char *dir, enum tm_state_file file, char out[TM_STATE_PATH_MAX])
{
    (void)snprintf(out, TM_STATE_PATH_MAX, "%s/%s", dir, names[file]);
}

int tm_state_check(const char *dir, struct tm_error *e)
{
    if (dir[0] == '\0') return tm_error_set(e, TM_EUSAGE, "the state folder needs a name");
    if (strlen(dir) < TM_STATE_PATH_MAX - NAME_ROOM) return 0;
    return tm_error_set(e, TM_ELIMIT, "the state folder's name has %zu bytes, more than %d", strlen(dir),
                        TM_STATE_PATH_MAX - NAME_ROOM);
}

/* ---- small files ---- */

static int read_line(struct tm_env *env, const char *path, char *out, size_t size, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, FILE_BYTES_MAX);
    int rc = env->file_read(env, path, &text, e);
    size_t length = rc == 0 ? strcspn(tm_text_string(&text), "\r\n") : 0;
    if (rc == 0 && (length == 0 || length >= size))
        rc = tm_error_set(e, TM_EINPUT, "%s: expected one line of 1 to %zu bytes", path, size - 1);
    if (rc == 0) {
        memcpy(out, tm_text_string(&text), length);
        out[length] = '\0';
    }
    tm_text_deinit(&text);
    return rc;
}

int tm_state_read(struct tm_env *env, const char *dir, enum tm_state_file file, char *out, size_t size,
                  struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, file, path);
    return read_line(env, path, out, size, e);
}

int tm_state_write(struct tm_env *env, const char *dir, enum tm_state_file file, const char *text, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, file, path);
    return env->file_write_private(env, path, text, strlen(text), e);
}

/* ---- the token ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int tm_token_job(const char *token, uint64_t *out_job, struct tm_error *e)
{
    uint64_t job = 0;
    bool good = strlen(token) == JOB_DIGITS + 1 + SECRET_DIGITS && token[JOB_DIGITS] == '-';
    for (size_t i = 0; good && token[i] != '\0'; i++) {
        if (i == JOB_DIGITS) continue;
        int digit = hex_digit(token[i]);
        good = digit >= 0;
        if (i < JOB_DIGITS) job = job << 4 | (uint64_t)digit;
    }
    if (!good || job == 0)
        return tm_error_set(e, TM_EINPUT,
                            "expected a join token, JOB-SECRET in hexadecimal digits; it is in the file token of the "
                            "job's state folder");
    *out_job = job;
    return 0;
}

int tm_token_read(struct tm_env *env, const char *path, char out[TM_STATE_TOKEN_MAX], struct tm_error *e)
{
    char token[TM_STATE_TOKEN_MAX];
    uint64_t job = 0;
    int rc = read_line(env, path, token, sizeof token, e);
    if (rc != 0) return rc;
    rc = tm_token_job(token, &job, e);
    if (rc != 0) return tm_error_wrap(e, rc, "%s", path);
    memcpy(out, token, sizeof token);
    return 0;
}

/* As books have it (state_bundle.h): who goes on with the run elsewhere makes a secret of its own. */
static bool is_job_alone(const char *token, uint64_t *out_job)
{
    char *end = NULL;
    if (strlen(token) != 16 || strspn(token, "0123456789abcdef") != 16) return false;
    *out_job = strtoull(token, &end, 16);
    return true;
}

int tm_state_token(struct tm_env *env, const char *dir, char out[TM_STATE_TOKEN_MAX], struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    char token[TM_STATE_TOKEN_MAX];
    tm_state_path(dir, TM_STATE_TOKEN, path);
    uint64_t job = env->random_u64(env) | 1;
    if (env->file_exists(env, path)) {
        int rc = read_line(env, path, token, sizeof token, e);
        if (rc != 0) return rc;
        if (!is_job_alone(token, &job)) return tm_token_read(env, path, out, e);
    }
    (void)snprintf(token, sizeof token, "%016" PRIx64 "-%016" PRIx64 "%016" PRIx64, job, env->random_u64(env),
                   env->random_u64(env));
    int rc = tm_state_write(env, dir, TM_STATE_TOKEN, token, e);
    if (rc == 0) memcpy(out, token, sizeof token);
    return rc;
}

/* ---- who runs it ---- */

/* "PID START MARK". -TM_ENOTFOUND: no file; -TM_EINPUT: not such a line. */
static int read_owner(struct tm_env *env, const char *dir, struct tm_state_owner *out, struct tm_error *e)
{
    char line[TM_STATE_MARK_MAX + 64];
    int64_t pid = 0;
    int rc = tm_state_read(env, dir, TM_STATE_OWNER, line, sizeof line, e);
    if (rc != 0) return rc;
    size_t first = strcspn(line, " ");
    size_t second = line[first] == ' ' ? first + 1 + strcspn(line + first + 1, " ") : first;
    if (line[second] != ' ' || !tm_number_i64(line, first, &pid) || pid < 1 || pid > INT32_MAX ||
        !tm_number_i64(line + first + 1, second - first - 1, &out->start) ||
        strlen(line + second + 1) >= sizeof out->mark)
        return tm_error_set(e, TM_EINPUT,
                            "%s/%s: expected a pid, its start and a mark; if no program runs this job, "
                            "remove the file",
                            dir, names[TM_STATE_OWNER]);
    out->pid = (int)pid;
    (void)snprintf(out->mark, sizeof out->mark, "%s", line + second + 1);
    return 0;
}

static bool lives(struct tm_env *env, const struct tm_state_owner *owner)
{
    int64_t start = 0;
    return env->process_started(env, owner->pid, &start, NULL) == 0 && start == owner->start;
}

int tm_state__owner(struct tm_env *env, const char *dir, struct tm_state_owner *out, struct tm_error *e)
{
    struct tm_state_owner owner;
    int rc = read_owner(env, dir, &owner, e);
    if (rc != 0) return rc;
    if (!lives(env, &owner)) return tm_error_set(e, TM_ENOTFOUND, "%s: this job is not running", dir);
    *out = owner;
    return 0;
}

int tm_state_free(struct tm_env *env, const char *dir, struct tm_error *e)
{
    struct tm_state_owner owner;
    if (tm_state__owner(env, dir, &owner, NULL) != 0) return 0;
    return tm_error_set(e, TM_EBUSY,
                        "%s: process %d is running this job; stop it with tidemill stop, or use another --state", dir,
                        owner.pid);
}

/* Whoever has the lock says who it is as soon as it can. */
static int held(struct tm_env *env, const char *dir, struct tm_error *e)
{
    for (int64_t waited_ms = 0; waited_ms < OWNER_WAIT_MS; waited_ms += OWNER_LOOK_MS) {
        int rc = tm_state_free(env, dir, e);
        if (rc != 0) return rc;
        env->sleep_ms(env, OWNER_LOOK_MS);
    }
    return tm_error_set(e, TM_EBUSY, "%s: another process has just started this job", dir);
}

/* With the lock: what an earlier one left is ended, and this one is named. */
static int take_over(struct tm_env *env, const char *dir, struct tm_state_owner *own, int *leftovers,
                     struct tm_error *e)
{
    struct tm_state_owner before;
    char line[TM_STATE_MARK_MAX + 64];
    int rc = read_owner(env, dir, &before, e);
    if (rc == 0 && lives(env, &before)) return held(env, dir, e); /* of a release without locks */
    if (rc == 0 && strncmp(before.mark, "TIDEMILL_RUN_MARK=", 18) == 0)
        rc = env->process_end_marked(env, before.mark, leftovers, e);
    if (rc == -(int)TM_ENOTFOUND) rc = 0;
    if (rc == 0) rc = env->process_started(env, own->pid, &own->start, e);
    if (rc != 0) return rc;
    (void)snprintf(own->mark, sizeof own->mark, "TIDEMILL_RUN_MARK=%016" PRIx64, env->random_u64(env));
    (void)snprintf(line, sizeof line, "%d %" PRId64 " %s", own->pid, own->start, own->mark);
    return tm_state_write(env, dir, TM_STATE_OWNER, line, e);
}

int tm_state_own(struct tm_env *env, const char *dir, struct tm_state_owner *out, int *out_leftovers,
                 struct tm_error *e)
{
    struct tm_state_owner own = {.pid = env->process_self(env)};
    char path[TM_STATE_PATH_MAX];
    int leftovers = 0;
    int rc = tm_state_check(dir, e);
    if (rc != 0) return rc;
    tm_state_path(dir, TM_STATE_LOCK, path);
    rc = env->file_lock(env, path, &own.lock, e);
    if (TM_PLANTED(owner_unlocked)) rc = 0;
    if (rc == -(int)TM_EBUSY) return held(env, dir, e);
    if (rc != 0) return rc;
    rc = take_over(env, dir, &own, &leftovers, e);
    if (rc != 0) {
        env->file_unlock(env, own.lock);
        return rc;
    }
    *out = own;
    *out_leftovers = leftovers;
    return 0;
}

void tm_state_disown(struct tm_env *env, const char *dir, const struct tm_state_owner *owner)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, TM_STATE_OWNER, path);
    (void)env->file_remove(env, path, NULL);
    env->file_unlock(env, owner->lock);
}

/* ---- workers ---- */

void tm_state_tls_path(const char *dir, const char *member, char out[TM_STATE_PATH_MAX])
{
    (void)snprintf(out, TM_STATE_PATH_MAX, "%.*s/%s/%.40s", TM_STATE_PATH_MAX - NAME_ROOM, dir, names[TM_STATE_TLS],
                   member);
}

void tm_state_worker_path(const char *dir, uint64_t instance, char out[TM_STATE_PATH_MAX])
{
    (void)snprintf(out, TM_STATE_PATH_MAX, "%.*s/%s/worker-%" PRIu64, TM_STATE_PATH_MAX - NAME_ROOM, dir,
                   names[TM_STATE_CLOUD], instance);
}

void tm_state_output_path(const char *dir, uint64_t instance, char out[TM_STATE_PATH_MAX])
{
    (void)snprintf(out, TM_STATE_PATH_MAX, "%.*s/%s/worker-%" PRIu64 ".log", TM_STATE_PATH_MAX - NAME_ROOM, dir,
                   names[TM_STATE_LOGS], instance);
}

int tm_state_worker(struct tm_env *env, const char *dir, uint64_t instance, int *out_pid, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_text text;
    int64_t pid = 0;
    int64_t start = 0;
    int64_t started = -1;
    tm_state_worker_path(dir, instance, path);
    tm_text_init(&text, 256);
    int rc = env->file_read(env, path, &text, NULL);
    const char *line = tm_text_string(&text);
    size_t first = strcspn(line, " ");
    size_t rest = line[first] == ' ' ? strcspn(line + first + 1, "\n") : 0;
    bool known = rc == 0 && rest > 0 && tm_number_i64(line, first, &pid) && pid > 1 && pid <= INT32_MAX &&
                 tm_number_i64(line + first + 1, rest, &start) &&
                 env->process_started(env, (int)pid, &started, NULL) == 0 && started == start;
    tm_text_deinit(&text);
    if (!known) return tm_error_set(e, TM_ENOTFOUND, "no worker runs on instance %" PRIu64, instance);
    *out_pid = (int)pid;
    return 0;
}
