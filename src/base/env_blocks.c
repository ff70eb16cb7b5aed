/* Large files past the page cache: a copy set is written once and read hardly ever, and the cache costs a copy of every
 * byte and the memory of the machine that trains. */
#include "base/env_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITE_BYTES = 8 << 20, READ_BYTES = 4 << 20 }; /* in one call: the kernel keeps the disk busy with it */

/* How much of `left` the next call moves: a little more than usual, rather than a call for a little that is left. */
static size_t piece_of(size_t left, size_t usual)
{
    return left <= usual + usual / 4 ? left : usual;
}

/* A file system may also refuse when it comes to the first bytes. */
static bool refuses_direct(int fd, bool *direct)
{
    if (!*direct || errno != EINVAL) return false;
    int flags = fcntl(fd, F_GETFL);
    *direct = false;
    return flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

static int write_all(int fd, const char *data, size_t length, bool *direct)
{
    size_t at = 0;
    while (at < length) {
        size_t piece = piece_of(length - at, WRITE_BYTES);
        ssize_t done = pwrite(fd, data + at, piece, (off_t)at);
        if (done < 0 && errno != EINTR && !refuses_direct(fd, direct)) return -1;
        if (done > 0) at += (size_t)done;
    }
    return 0;
}

static bool set_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
}

int tm_env__file_write_blocks(struct tm_env *env, const char *path, const void *data, size_t length, bool *out_direct,
                              struct tm_error *e)
{
    char fresh[TM_ENV__FRESH_MAX];
    int rc = tm_env__make_parents(path, 0700, e);
    if (rc != 0) return rc;
    int fd = tm_env__open_fresh(env, path, 0600, fresh);
    if (fd < 0) return tm_error_errno(e, errno, "writing %s", path);
    bool direct = set_direct(fd); /* not when it is opened: where that is refused, a file is left behind */
    int failed = write_all(fd, data, length, &direct) != 0 || fdatasync(fd) != 0;
    if (failed) rc = tm_error_errno(e, errno, "writing %s", path);
    if (close(fd) != 0 && rc == 0) rc = tm_error_errno(e, errno, "writing %s", path);
    if (rc == 0 && rename(fresh, path) != 0) rc = tm_error_errno(e, errno, "renaming %s to %s", fresh, path);
    if (rc != 0) {
        (void)unlink(fresh);
        return rc;
    }
    tm_env__sync_folder_of(path);
    *out_direct = direct;
    return 0;
}

static int read_all(int fd, const char *path, char *data, size_t length, tm_piece_f piece, void *context,
                    struct tm_error *e)
{
    bool direct = true;
    size_t at = 0;
    while (at < length) {
        size_t most = piece_of(length - at, READ_BYTES);
        size_t pages = (most + 4095) / 4096 * 4096; /* an odd end is read as if there were more */
        ssize_t got = pread(fd, data + at, pages, (off_t)at);
        if (got < 0 && (errno == EINTR || refuses_direct(fd, &direct))) continue;
        if (got < 0) return tm_error_errno(e, errno, "%s", path);
        if (got == 0) return tm_error_set(e, TM_EINPUT, "%s: shrank while it was being read", path);
        size_t came = (size_t)got < most ? (size_t)got : most;
        int rc = piece(context, data + at, came, e);
        if (rc != 0) return rc;
        at += came;
    }
    return 0;
}

int tm_env__file_read_blocks(struct tm_env *env, const char *path, void *data, size_t room, tm_piece_f piece,
                             void *context, size_t *out_length, struct tm_error *e)
{
    (void)env;
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
    if (fd < 0 && errno == EINVAL) fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return tm_env__cannot_open(path, errno, e);
    int rc = 0;
    if (fstat(fd, &status) != 0) rc = tm_error_errno(e, errno, "%s", path);
    if (rc == 0 && !S_ISREG(status.st_mode)) rc = tm_error_set(e, TM_EINPUT, "%s: not a regular file", path);
    if (rc == 0 && (uintmax_t)status.st_size > room)
        rc = tm_error_set(e, TM_ELIMIT, "%s: file has %jd bytes, more than the limit of %zu", path,
                          (intmax_t)status.st_size, room);
    if (rc == 0) rc = read_all(fd, path, data, (size_t)status.st_size, piece, context, e);
    (void)close(fd);
    if (rc == 0) *out_length = (size_t)status.st_size;
    return rc;
}
