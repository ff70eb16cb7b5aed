/* Files of the real environment: what kind of thing is read, locks, names in a folder. */
#include "base/env_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITER_MS = 2000 };

/* ---- reading ---- */

/* Standard input, or what a shell made of <(...): whoever gave it writes to it. */
static bool is_handed_over(const char *path)
{
    return strcmp(path, "/dev/stdin") == 0 || strncmp(path, "/dev/fd/", 8) == 0 ||
           strncmp(path, "/proc/self/fd/", 14) == 0;
}

static int wait_as_usual(int fd, const char *path, struct tm_error *e)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0) return 0;
    return tm_error_errno(e, errno, "%s", path);
}

/* A pipe without a writer would be waited for until the end of days: it gets a moment to find one. */
static int await_writer(int fd, const char *path, bool *waited, struct tm_error *e)
{
    struct pollfd watch = {.fd = fd, .events = POLLIN};
    if (*waited)
        return tm_error_set(e, TM_EINPUT, "%s: a pipe that nothing writes to; name a file, or - for standard input",
                            path);
    *waited = true;
    (void)poll(&watch, 1, WRITER_MS);
    return 0;
}

int tm_env__read_all(int fd, const char *path, const struct stat *status, char *chunk, size_t size, struct tm_text *out,
                     struct tm_error *e)
{
    bool pipe_alone = S_ISFIFO(status->st_mode) && !is_handed_over(path);
    bool waited = false;
    size_t start = out->length;
    int rc = 0;
    while (rc == 0) {
        ssize_t got = read(fd, chunk, size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN && pipe_alone) { /* there is a writer */
            rc = wait_as_usual(fd, path, e);
            continue;
        }
        if (got < 0) rc = tm_error_errno(e, errno, "%s", path);
        if (got == 0 && pipe_alone && out->length == start) {
            rc = await_writer(fd, path, &waited, e);
            continue;
        }
        if (got <= 0) break;
        tm_text_append(out, chunk, (size_t)got);
        rc = tm_text_status(out, e);
        if (rc != 0) rc = tm_error_wrap(e, rc, "%s", path);
    }
    return rc;
}

int tm_env__open_to_read(const char *path, struct stat *status, int *out, struct tm_error *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return tm_env__cannot_open(path, errno, e);
    int rc = fstat(fd, status) == 0 ? 0 : tm_error_errno(e, errno, "%s", path);
    if (rc == 0 && S_ISDIR(status->st_mode)) rc = tm_error_set(e, TM_EINPUT, "%s: is a folder, not a file", path);
    if (rc == 0 && S_ISBLK(status->st_mode)) rc = tm_error_set(e, TM_EINPUT, "%s: is a disk, not a file", path);
    if (rc == 0 && is_handed_over(path)) rc = wait_as_usual(fd, path, e);
    if (rc == 0)
        *out = fd;
    else
        (void)close(fd);
    return rc;
}

int tm_env__file_read_at(struct tm_env *env, const char *path, int64_t offset, void *buffer, size_t room,
                         size_t *out_length, int64_t *out_size, struct tm_error *e)
{
    (void)env;
    struct stat status = {.st_size = 0};
    size_t length = 0;
    int fd = -1;
    int rc = tm_env__open_to_read(path, &status, &fd, e);
    if (rc != 0) return rc;
    for (ssize_t got = 1; rc == 0 && got != 0 && length < room;) {
        got = pread(fd, (char *)buffer + length, room - length, (off_t)(offset + (int64_t)length));
        if (got < 0 && errno != EINTR) rc = tm_error_errno(e, errno, "%s", path);
        if (got > 0) length += (size_t)got;
    }
    (void)close(fd);
    if (rc != 0) return rc;
    *out_length = length;
    *out_size = (int64_t)status.st_size;
    return 0;
}

int tm_env__file_extend(struct tm_env *env, const char *path, int64_t offset, const void *data, size_t length,
                        struct tm_error *e)
{
    (void)env;
    size_t done = 0;
    int rc = tm_env__make_parents(path, 0700, e);
    if (rc != 0) return rc;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return tm_error_errno(e, errno, "%s", path);
    while (rc == 0 && done < length) {
        ssize_t put = pwrite(fd, (const char *)data + done, length - done, (off_t)(offset + (int64_t)done));
        if (put < 0 && errno != EINTR) rc = tm_error_errno(e, errno, "writing %s", path);
        if (put > 0) done += (size_t)put;
    }
    if (rc == 0 && ftruncate(fd, (off_t)(offset + (int64_t)length)) != 0) rc = tm_error_errno(e, errno, "%s", path);
    if (close(fd) != 0 && rc == 0) rc = tm_error_errno(e, errno, "writing %s", path);
    return rc;
}

bool tm_env__file_is_link(struct tm_env *env, const char *path)
{
    (void)env;
    struct stat status;
    return lstat(path, &status) == 0 && S_ISLNK(status.st_mode);
}

/* ---- locks ---- */

int tm_env__file_lock(struct tm_env *env, const char *path, int *out_handle, struct tm_error *e)
{
    (void)env;
    int rc = tm_env__make_parents(path, 0700, e);
    if (rc != 0) return rc;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0) return tm_error_errno(e, errno, "%s", path);
    int failed = 0;
    do
        failed = flock(fd, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
    while (failed == EINTR);
    if (failed == 0) {
        *out_handle = fd;
        return 0;
    }
    (void)close(fd);
    if (failed == EWOULDBLOCK) return tm_error_set(e, TM_EBUSY, "%s: in use by another process", path);
    return tm_error_errno(e, failed, "locking %s", path);
}

void tm_env__file_unlock(struct tm_env *env, int handle)
{
    (void)env;
    (void)close(handle);
}

/* ---- folders ---- */

int tm_env__folder_each(struct tm_env *env, const char *path, tm_name_f take, void *context, struct tm_error *e)
{
    (void)env;
    int rc = 0;
    DIR *folder = opendir(path);
    if (folder == NULL) return tm_env__cannot_open(path, errno, e);
    for (struct dirent *entry = NULL; rc == 0 && (entry = readdir(folder)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) rc = take(context, entry->d_name, e);
    (void)closedir(folder);
    return rc;
}

int tm_env__folder_make(struct tm_env *env, const char *path, struct tm_error *e)
{
    (void)env;
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : tm_error_errno(e, errno, "%s", path);
}
