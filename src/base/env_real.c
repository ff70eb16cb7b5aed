#include "base/env.h"

#include "base/alloc.h"
#include "base/env_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READ_CHUNK = 1 << 16 };

/* ---- clock, randomness, variables ---- */

static int64_t real_now_ms(struct tm_env *env)
{
    (void)env;
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t real_monotonic_ns(struct tm_env *env)
{
    (void)env;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t real_processor_ns(struct tm_env *env)
{
    (void)env;
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void real_sleep_ms(struct tm_env *env, int64_t ms)
{
    (void)env;
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

static uint64_t real_random_u64(struct tm_env *env)
{
    uint64_t value = 0;
    ssize_t got = getrandom(&value, sizeof value, 0);
    if (got != (ssize_t)sizeof value) value = (uint64_t)real_monotonic_ns(env) * 0x9E3779B97F4A7C15U;
    return value;
}

static const char *real_variable(struct tm_env *env, const char *name)
{
    (void)env;
    return getenv(name);
}

static int real_set_variable(struct tm_env *env, const char *name, const char *value)
{
    (void)env;
    return setenv(name, value, 1) == 0 ? 0 : -(int)TM_ENOMEM;
}

/* ---- files ---- */

/* Stops before a file that is known to be too long is read. */
static int check_size(const struct stat *status, const char *path, const struct tm_text *out, struct tm_error *e)
{
    if (S_ISREG(status->st_mode) && status->st_size > 0 && (uintmax_t)status->st_size > out->max - out->length)
        return tm_error_set(e, TM_ELIMIT, "%s: file has %jd bytes, more than the limit of %zu", path,
                            (intmax_t)status->st_size, out->max);
    return 0;
}

/* A file that may not be read is an input to correct, not a fault of the file system. */
int tm_env__cannot_open(const char *path, int errno_value, struct tm_error *e)
{
    int rc = tm_error_errno(e, errno_value, "%s", path);
    if (errno_value != EACCES) return rc;
    if (e != NULL) e->code = TM_EINPUT;
    return -(int)TM_EINPUT;
}

static int real_file_read(struct tm_env *env, const char *path, struct tm_text *out, struct tm_error *e)
{
    (void)env;
    struct stat status;
    int fd = -1;
    int rc = tm_env__open_to_read(path, &status, &fd, e);
    if (rc != 0) return rc;
    rc = check_size(&status, path, out, e);
    char *chunk = rc == 0 ? tm_alloc(READ_CHUNK) : NULL;
    if (rc == 0 && chunk == NULL) rc = tm_error_nomem(e);
    if (rc == 0) rc = tm_env__read_all(fd, path, &status, chunk, READ_CHUNK, out, e);
    tm_free(chunk);
    (void)close(fd);
    return rc;
}

static int write_all(int fd, const struct tm_part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *data = parts[i].data;
        size_t length = parts[i].length;
        while (length > 0) {
            ssize_t done = write(fd, data, length);
            if (done < 0 && errno == EINTR) continue;
            if (done < 0) return -1;
            data += done;
            length -= (size_t)done;
        }
    }
    return 0;
}

int tm_env__make_parents(const char *path, mode_t mode, struct tm_error *e)
{
    char part[4096];
    size_t length = strlen(path);
    if (length >= sizeof part) return tm_error_set(e, TM_ELIMIT, "path is longer than %zu bytes", sizeof part - 1);
    memcpy(part, path, length + 1);
    for (size_t i = 1; i < length; i++) {
        if (part[i] != '/') continue;
        part[i] = '\0';
        if (mkdir(part, mode) != 0 && errno != EEXIST) return tm_error_errno(e, errno, "making folder %s", part);
        part[i] = '/';
    }
    return 0;
}

void tm_env__sync_folder_of(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - path);
    if (length >= sizeof folder) return;
    memcpy(folder, path, length);
    folder[length] = '\0';
    int fd = open(slash == NULL ? "." : length == 0 ? "/" : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    (void)close(fd);
}

/* Into a pipe or a device: there is nothing to replace. */
static int write_straight(const char *path, const struct tm_part *parts, size_t count, struct tm_error *e)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return tm_error_errno(e, errno, "writing %s", path);
    int rc = write_all(fd, parts, count) == 0 ? 0 : tm_error_errno(e, errno, "writing %s", path);
    if (close(fd) != 0 && rc == 0) rc = tm_error_errno(e, errno, "writing %s", path);
    return rc;
}

int tm_env__open_fresh(struct tm_env *env, const char *path, mode_t mode, char fresh[TM_ENV__FRESH_MAX])
{
    (void)snprintf(fresh, TM_ENV__FRESH_MAX, "%s.new-%ld-%016" PRIx64, path, (long)getpid(), env->random_u64(env));
    return open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
}

/* `exactly`: the umask does not count. */
static int write_renamed(struct tm_env *env, const char *path, mode_t mode, bool exactly, const struct tm_part *parts,
                         size_t count, struct tm_error *e)
{
    char fresh[TM_ENV__FRESH_MAX];
    int rc = 0;
    int fd = tm_env__open_fresh(env, path, mode, fresh);
    if (fd < 0) return tm_error_errno(e, errno, "writing %s", path);
    int failed = (exactly && fchmod(fd, mode) != 0) || write_all(fd, parts, count) != 0 || fsync(fd) != 0;
    if (failed) rc = tm_error_errno(e, errno, "writing %s", path);
    if (close(fd) != 0 && rc == 0) rc = tm_error_errno(e, errno, "writing %s", path);
    if (rc == 0 && rename(fresh, path) != 0) rc = tm_error_errno(e, errno, "renaming %s to %s", fresh, path);
    if (rc != 0)
        (void)unlink(fresh);
    else
        tm_env__sync_folder_of(path);
    return rc;
}

static int write_with(struct tm_env *env, const char *path, mode_t mode, bool exactly, const struct tm_part *parts,
                      size_t count, struct tm_error *e)
{
    int rc = tm_env__make_parents(path, mode | (mode & 0444) >> 2, e); /* who may read may look into folders */
    if (rc != 0) return rc;
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
        return write_straight(path, parts, count, e);
    char *target = realpath(path, NULL); /* the file behind a link; NULL: there is none yet */
    rc = write_renamed(env, target != NULL ? target : path, mode, exactly, parts, count, e);
    free(target); /* realpath's own */
    return rc;
}

static int real_file_write_parts(struct tm_env *env, const char *path, const struct tm_part *parts, size_t count,
                                 struct tm_error *e)
{
    return write_with(env, path, 0666, false, parts, count, e);
}

static int real_file_write_private(struct tm_env *env, const char *path, const char *data, size_t length,
                                   struct tm_error *e)
{
    struct tm_part part = {.data = data, .length = length};
    return write_with(env, path, 0600, false, &part, 1, e);
}

static int real_file_write_mode(struct tm_env *env, const char *path, unsigned mode, const char *data, size_t length,
                                struct tm_error *e)
{
    struct tm_part part = {.data = data, .length = length};
    return write_with(env, path, (mode_t)mode & 0777, true, &part, 1, e);
}

static int real_file_write(struct tm_env *env, const char *path, const char *data, size_t length, struct tm_error *e)
{
    struct tm_part part = {.data = data, .length = length};
    return real_file_write_parts(env, path, &part, 1, e);
}

static int real_file_remove(struct tm_env *env, const char *path, struct tm_error *e)
{
    (void)env;
    int failed = unlink(path) != 0 ? errno : 0;
    if (failed == EISDIR || failed == EPERM) failed = rmdir(path) != 0 ? errno : 0;
    if (failed != 0 && failed != ENOENT) return tm_error_errno(e, failed, "removing %s", path);
    return 0;
}

static bool real_file_exists(struct tm_env *env, const char *path)
{
    (void)env;
    return access(path, F_OK) == 0;
}

static int real_file_map(struct tm_env *env, const char *path, const void **out_data, size_t *out_length,
                         struct tm_error *e)
{
    (void)env;
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return tm_env__cannot_open(path, errno, e);
    int rc = 0;
    const void *data = NULL;
    if (fstat(fd, &status) != 0) rc = tm_error_errno(e, errno, "%s", path);
    if (rc == 0 && !S_ISREG(status.st_mode)) rc = tm_error_set(e, TM_EINPUT, "%s: not a regular file", path);
    if (rc == 0 && status.st_size > 0) {
        void *mapped = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (mapped == MAP_FAILED) rc = tm_error_errno(e, errno, "%s", path);
        data = mapped;
    }
    (void)close(fd);
    if (rc != 0) return rc;
    *out_data = data;
    *out_length = (size_t)status.st_size;
    return 0;
}

static void real_file_unmap(struct tm_env *env, const void *data, size_t length)
{
    (void)env;
    union { /* munmap does not write to what it is given, but its type does not say so */
        const void *given;
        void *taken;
    } address = {.given = data};
    if (data != NULL) (void)munmap(address.taken, length);
}

/* ---- processes ---- */

static int real_process_start(struct tm_env *env, const char *const *argv, int *out_pid, struct tm_error *e)
{
    struct tm_process_options options = {.argv = argv};
    return tm_env__process_start_with(env, &options, out_pid, e);
}

static int real_process_signal(struct tm_env *env, int pid, int signal_number, struct tm_error *e)
{
    (void)env;
    if (kill(pid, signal_number) == 0) return 0;
    if (errno == ESRCH) return tm_error_set(e, TM_ENOTFOUND, "process %d is gone", pid);
    return tm_error_errno(e, errno, "signalling process %d", pid);
}

static int real_process_wait(struct tm_env *env, int pid, int64_t timeout_ms, int *out_status, struct tm_error *e)
{
    (void)env;
    int fd = tm_env__pidfd_open(pid);
    if (fd < 0) return tm_error_errno(e, errno, "waiting for process %d", pid);
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    int ready = tm_env__poll(&polled, 1, timeout_ms);
    (void)close(fd);
    if (ready <= 0) return tm_error_set(e, TM_ETIMEOUT, "process %d is still running", pid);
    int status = 0;
    if (waitpid(pid, &status, 0) != pid) return tm_error_errno(e, errno, "waiting for process %d", pid);
    *out_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return 0;
}

struct tm_env *tm_env_real(void)
{
    static struct tm_env env = {
        .now_ms = real_now_ms,
        .monotonic_ns = real_monotonic_ns,
        .processor_ns = real_processor_ns,
        .sleep_ms = real_sleep_ms,
        .random_u64 = real_random_u64,
        .variable = real_variable,
        .set_variable = real_set_variable,
        .file_read = real_file_read,
        .file_write = real_file_write,
        .file_write_private = real_file_write_private,
        .file_write_mode = real_file_write_mode,
        .file_write_parts = real_file_write_parts,
        .file_write_blocks = tm_env__file_write_blocks,
        .file_read_blocks = tm_env__file_read_blocks,
        .file_remove = real_file_remove,
        .file_read_at = tm_env__file_read_at,
        .file_extend = tm_env__file_extend,
        .file_exists = real_file_exists,
        .file_is_link = tm_env__file_is_link,
        .file_map = real_file_map,
        .file_unmap = real_file_unmap,
        .file_lock = tm_env__file_lock,
        .file_unlock = tm_env__file_unlock,
        .folder_each = tm_env__folder_each,
        .folder_make = tm_env__folder_make,
        .net_listen = tm_env__net_listen,
        .net_connect = tm_env__net_connect,
        .net_accept = tm_env__net_accept,
        .net_send = tm_env__net_send,
        .net_receive = tm_env__net_receive,
        .net_wait = tm_env__net_wait,
        .net_watch = tm_env__net_watch,
        .net_pair = tm_env__net_pair,
        .net_own_address = tm_env__net_own_address,
        .net_peer_address = tm_env__net_peer_address,
        .net_wait_send = tm_env__net_wait_send,
        .net_shutdown = tm_env__net_shutdown,
        .net_close = tm_env__net_close,
        .process_start = real_process_start,
        .process_signal = real_process_signal,
        .process_wait = real_process_wait,
        .process_start_with = tm_env__process_start_with,
        .process_signal_group = tm_env__process_signal_group,
        .process_handle = tm_env__process_handle,
        .process_self = tm_env__process_self,
        .process_end_together = tm_env__process_end_together,
        .process_started = tm_env__process_started,
        .process_end_marked = tm_env__process_end_marked,
        .process_limit_files = tm_env__process_limit_files,
    };
    return &env;
}
