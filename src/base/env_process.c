/* Processes of the real environment: groups, variables, who is who, and ending all that bear a mark. */
#include "base/env_internal.h"

#include "base/alloc.h"
#include "base/number.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { VARIABLES_MAX = 1 << 16, STAT_BYTES_MAX = 4096, START_FIELD = 22, DEATH_LIMIT_MS = 5000, SWEEPS_MAX = 100 };

/* ---- starting ---- */

static bool same_name(const char *a, const char *b) /* of two "NAME=VALUE" */
{
    size_t length = strcspn(a, "=");
    return strncmp(a, b, length) == 0 && b[length] == '=';
}

static bool is_replaced(const char *variable, const char *const *by)
{
    for (size_t i = 0; by[i] != NULL; i++) {
        if (same_name(by[i], variable)) return true;
    }
    return false;
}

/* The program's variables with these beside or instead: an array to free, of strings that are borrowed. */
static int merge_variables(const char *const *added, const char ***out, struct tm_error *e)
{
    size_t count = 0;
    size_t capacity = 0;
    void *merged = NULL;
    int rc = 0;
    for (char **own = environ; rc == 0 && own != NULL && *own != NULL; own++) {
        if (is_replaced(*own, added)) continue;
        rc = tm_grow(&merged, &capacity, count + 1, sizeof(char *), VARIABLES_MAX);
        if (rc == 0) ((const char **)merged)[count++] = *own;
    }
    for (size_t i = 0; rc == 0; i++) {
        rc = tm_grow(&merged, &capacity, count + 1, sizeof(char *), VARIABLES_MAX);
        if (rc == 0) ((const char **)merged)[count++] = added[i];
        if (added[i] == NULL) break;
    }
    if (rc != 0) {
        tm_free(merged);
        return tm_error_set(e, (enum tm_code) - rc, "the environment of the process is too large");
    }
    *out = merged;
    return 0;
}

/* A group of its own, away from the terminal, with signals as a fresh program has them. */
static int set_attributes(posix_spawnattr_t *attributes, const struct tm_process_options *options)
{
    if (!options->group) return 0;
    sigset_t none;
    sigset_t usual;
    (void)sigemptyset(&none);
    (void)sigemptyset(&usual);
    if (options->deaf) (void)sigaddset(&none, SIGTERM); /* blocked, it waits for ever */
    const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        (void)sigaddset(&usual, signals[i]);
    int failed = posix_spawnattr_setpgroup(attributes, 0);
    if (failed == 0) failed = posix_spawnattr_setsigmask(attributes, &none);
    if (failed == 0) failed = posix_spawnattr_setsigdefault(attributes, &usual);
    if (failed == 0)
        failed = posix_spawnattr_setflags(attributes,
                                          POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    return failed;
}

/* `into`: where its outputs go; -1: where the options say. */
static int set_files(posix_spawn_file_actions_t *files, const struct tm_process_options *options, int into)
{
    int failed = options->group ? posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0) : 0;
    if (failed == 0 && options->folder != NULL) failed = posix_spawn_file_actions_addchdir_np(files, options->folder);
    if (failed != 0 || (options->output == NULL && into < 0)) return failed;
    failed = into >= 0
                 ? posix_spawn_file_actions_adddup2(files, into, 1)
                 : posix_spawn_file_actions_addopen(files, 1, options->output, O_WRONLY | O_CREAT | O_APPEND, 0600);
    return failed != 0 ? failed : posix_spawn_file_actions_adddup2(files, 1, 2);
}

static int spawn(const struct tm_process_options *options, const char *const *variables, int into, int *out_pid)
{
    union { /* posix_spawnp promises not to write to what it is given, but its type does not say so */
        const char *const *given;
        char *const *taken;
    } words = {.given = options->argv}, settings = {.given = variables};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    pid_t pid = 0;
    int failed = posix_spawnattr_init(&attributes);
    if (failed != 0) return failed;
    failed = posix_spawn_file_actions_init(&files);
    if (failed == 0) {
        failed = set_attributes(&attributes, options);
        if (failed == 0) failed = set_files(&files, options, into);
        if (failed == 0)
            failed = posix_spawnp(&pid, options->argv[0], &files, &attributes, words.taken,
                                  variables != NULL ? settings.taken : environ);
        (void)posix_spawn_file_actions_destroy(&files);
    }
    (void)posix_spawnattr_destroy(&attributes);
    *out_pid = (int)pid;
    return failed;
}

/* A pipe and not a pair of sockets: programs open /dev/stderr, which a socket cannot. We never wait for it; the process
 * that writes may. */
static int open_capture(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    int flags = fcntl(ends[0], F_GETFL);
    return flags < 0 ? -1 : fcntl(ends[0], F_SETFL, flags | O_NONBLOCK);
}

int tm_env__process_start_with(struct tm_env *env, const struct tm_process_options *options, int *out_pid,
                               struct tm_error *e)
{
    (void)env;
    const char **variables = NULL;
    int pid = 0;
    int ends[2] = {-1, -1};
    int rc = options->variables != NULL ? merge_variables(options->variables, &variables, e) : 0;
    if (rc != 0) return tm_error_wrap(e, rc, "starting %s", options->argv[0]);
    int failed = options->captured != NULL && open_capture(ends) != 0 ? errno : 0;
    if (failed == 0) failed = spawn(options, variables, ends[1], &pid);
    tm_free(variables);
    if (ends[1] >= 0) (void)close(ends[1]);
    if (failed != 0 && ends[0] >= 0) (void)close(ends[0]);
    /* A folder of PATH that may not be read hides that the program is in none of them. */
    if (failed == EACCES && strchr(options->argv[0], '/') == NULL) failed = ENOENT;
    if (failed != 0 && options->folder != NULL && access(options->folder, X_OK) != 0)
        return tm_error_errno(e, errno, "starting %s in %s", options->argv[0], options->folder);
    if (failed != 0) return tm_error_errno(e, failed, "starting %s", options->argv[0]);
    if (options->captured != NULL) *options->captured = ends[0];
    *out_pid = pid;
    return 0;
}

/* The soft limit alone, so that it can be raised again without being root. */
int tm_env__process_limit_files(struct tm_env *env, int pid, int64_t bytes, struct tm_error *e)
{
    (void)env;
    struct rlimit limit;
    int failed = prlimit(pid, RLIMIT_FSIZE, NULL, &limit);
    limit.rlim_cur = bytes < 0 || (rlim_t)bytes > limit.rlim_max ? limit.rlim_max : (rlim_t)bytes;
    if (failed == 0) failed = prlimit(pid, RLIMIT_FSIZE, &limit, NULL);
    if (failed != 0 && errno == ESRCH) return tm_error_set(e, TM_ENOTFOUND, "process %d is gone", pid);
    return failed == 0 ? 0 : tm_error_errno(e, errno, "limiting the files of process %d", pid);
}

/* ---- who is who ---- */

int tm_env__pidfd_open(int pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

int tm_env__process_signal_group(struct tm_env *env, int group, int signal_number, struct tm_error *e)
{
    (void)env;
    if (group <= 1) return tm_error_set(e, TM_EUSAGE, "process group %d cannot be signalled", group);
    if (kill(-group, signal_number) == 0) return 0;
    if (errno == ESRCH) return tm_error_set(e, TM_ENOTFOUND, "process group %d is gone", group);
    return tm_error_errno(e, errno, "signalling process group %d", group);
}

int tm_env__process_handle(struct tm_env *env, int pid, int *out_handle, struct tm_error *e)
{
    (void)env;
    int fd = tm_env__pidfd_open(pid);
    if (fd < 0 && errno == ESRCH) return tm_error_set(e, TM_ENOTFOUND, "process %d is gone", pid);
    if (fd < 0) return tm_error_errno(e, errno, "watching process %d", pid);
    *out_handle = fd;
    return 0;
}

int tm_env__process_self(struct tm_env *env)
{
    (void)env;
    return (int)getpid();
}

static void end_group(int number)
{
    (void)number;
    (void)kill(0, SIGKILL);
}

void tm_env__process_end_together(struct tm_env *env)
{
    (void)env;
    struct sigaction action = {.sa_handler = end_group};
    (void)sigaction(SIGTERM, &action, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
}

/* The file's first bytes; 0 where it cannot be read. */
static size_t read_some(const char *path, char *buffer, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    if (fd < 0) return 0;
    for (ssize_t got = 1; got > 0 && length<size; length += got> 0 ? (size_t)got : 0)
        got = read(fd, buffer + length, size - length);
    (void)close(fd);
    return length;
}

int tm_env__process_started(struct tm_env *env, int pid, int64_t *out_start, struct tm_error *e)
{
    (void)env;
    char path[64];
    char text[STAT_BYTES_MAX];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    size_t length = read_some(path, text, sizeof text - 1);
    text[length] = '\0';
    const char *at = strrchr(text, ')'); /* ends the name, which may hold anything; field 3 follows */
    if (at == NULL) return tm_error_set(e, TM_ENOTFOUND, "process %d is gone", pid);
    at += 2;
    for (int field = 3; field < START_FIELD && at != NULL; field++) {
        at = strchr(at, ' ');
        if (at != NULL) at++;
    }
    if (at == NULL || !tm_number_i64(at, strcspn(at, " "), out_start))
        return tm_error_set(e, TM_EIO, "%s: no start time in field %d", path, START_FIELD);
    return 0;
}

/* ---- marks ---- */

/* The variables that a process was started with. In the middle of an exec there are none to be seen for a moment: a
 * process that has a program but no variables is looked at again. */
static size_t read_variables(int pid, char *buffer, size_t size)
{
    enum { LOOKS = 20 };
    char path[64];
    char program[64];
    char link[8];
    const struct timespec moment = {.tv_nsec = 1000000};
    (void)snprintf(path, sizeof path, "/proc/%d/environ", pid);
    (void)snprintf(program, sizeof program, "/proc/%d/exe", pid);
    size_t length = read_some(path, buffer, size);
    for (int i = 1; length == 0 && i < LOOKS && readlink(program, link, sizeof link) > 0; i++) {
        (void)nanosleep(&moment, NULL);
        length = read_some(path, buffer, size);
    }
    return length;
}

static bool bears_mark(int pid, const char *mark, char *buffer, size_t size)
{
    size_t length = read_variables(pid, buffer, size - 1);
    buffer[length] = '\0';
    for (size_t at = 0; at < length; at += strlen(buffer + at) + 1) {
        if (strcmp(buffer + at, mark) == 0) return true;
    }
    return false;
}

/* Looks and kills through one pidfd: a later process of the same number is never hit. */
static bool end_if_marked(int pid, const char *mark, char *buffer, size_t size)
{
    int fd = tm_env__pidfd_open(pid);
    if (fd < 0) return false;
    bool ended = bears_mark(pid, mark, buffer, size) && syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0;
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    if (ended) (void)poll(&polled, 1, DEATH_LIMIT_MS);
    (void)close(fd);
    return ended;
}

static int sweep(const char *mark, char *buffer, size_t size)
{
    DIR *folder = opendir("/proc");
    int count = 0;
    if (folder == NULL) return 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int64_t pid = 0;
        if (!tm_number_i64(entry->d_name, strlen(entry->d_name), &pid) || pid == getpid()) continue;
        count += end_if_marked((int)pid, mark, buffer, size);
    }
    (void)closedir(folder);
    return count;
}

int tm_env__process_end_marked(struct tm_env *env, const char *mark, int *out_count, struct tm_error *e)
{
    (void)env;
    enum { ENVIRON_BYTES_MAX = 1 << 20 };
    char *buffer = tm_alloc(ENVIRON_BYTES_MAX);
    if (buffer == NULL) return tm_error_nomem(e);
    int total = 0;
    int found = 1;
    for (int i = 0; i < SWEEPS_MAX && found > 0; i++) { /* again: one may have forked before it died */
        found = sweep(mark, buffer, ENVIRON_BYTES_MAX);
        total += found;
    }
    tm_free(buffer);
    if (found > 0) return tm_error_set(e, TM_EBUSY, "processes marked %s start faster than they can be ended", mark);
    *out_count = total;
    return 0;
}
