#include "job/workdir.h"

#include "base/log.h"
#include "run/state_folder.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAR_LIMIT_MS = 10 * 60 * 1000 };

const char *tm_workdir__find(const struct tm_job *job, struct tm_arena *arena)
{
    bool absolute = job->workdir != NULL && (job->workdir[0] == '/' || job->folder[0] == '\0');
    if (job->workdir == NULL) return job->folder[0] != '\0' ? job->folder : NULL;
    return absolute ? job->workdir : tm_arena_printf(arena, "%s/%s", job->folder, job->workdir);
}

static int run_words(struct tm_env *env, const char *const *words, int *out_status, struct tm_error *e)
{
    const struct tm_process_options options = {.argv = words};
    int pid = 0;
    int rc = env->process_start_with(env, &options, &pid, e);
    return rc == 0 ? env->process_wait(env, pid, TAR_LIMIT_MS, out_status, e) : rc;
}

/* "--exclude=./STATE" where the state folder is in the one that is packed. */
static int leave_state_out(const char *folder, const char *dir, struct tm_arena *arena, const char **out,
                           struct tm_error *e)
{
    char outer[PATH_MAX];
    char inner[PATH_MAX];
    *out = "--exclude=./.tidemill";
    if (realpath(folder, outer) == NULL || realpath(dir, inner) == NULL) return 0;
    size_t length = strlen(outer);
    if (strncmp(inner, outer, length) != 0 || inner[length] != '/') return 0;
    *out = tm_arena_printf(arena, "--exclude=.%s", inner + length);
    return *out == NULL ? tm_error_nomem(e) : 0;
}

int tm_workdir__pack(struct tm_env *env, const struct tm_job *job, const char *dir, struct tm_arena *arena,
                     const char **out, struct tm_error *e)
{
    char byte = 0;
    size_t length = 0;
    int64_t size = 0;
    const char *state = NULL;
    *out = NULL;
    if (job->engine != TM_JOB_ENGINE_COMMAND || job->workdir == NULL) return 0;
    const char *folder = tm_workdir__find(job, arena);
    const char *file = tm_arena_printf(arena, "%s/workdir.tar", dir);
    if (folder == NULL || file == NULL) return tm_error_nomem(e);
    int rc = leave_state_out(folder, dir, arena, &state, e);
    /* Not more than may go along, however much there is. Status 1 of tar: a file changed meanwhile. */
    static const char script[] =
        "rm -f \"$2.bad\"\n"
        "{ tar -C \"$0\" --exclude-vcs --exclude=__pycache__ \"$1\" -cf - . || [ $? = 1 ] || : >\"$2.bad\"; } |\n"
        "head -c \"$3\" >\"$2\"\n"
        "[ ! -e \"$2.bad\" ]";
    const char *most = tm_arena_printf(arena, "%d", TM_WORKDIR_MAX + 1);
    const char *const words[] = {"/bin/sh", "-c", script, folder, state, file, most, NULL};
    int status = 0;
    if (rc == 0 && most == NULL) rc = tm_error_nomem(e);
    if (rc == 0) rc = run_words(env, words, &status, e);
    if (rc == 0) rc = env->file_read_at(env, file, 0, &byte, 1, &length, &size, e);
    if (rc != 0) return tm_error_wrap(e, rc, "workdir: packing %s", folder);
    if (size > TM_WORKDIR_MAX) {
        tm_log(TM_LOG_WARN, "workdir %s has more than %d MB: it does not go along, machines need it at the same path",
               folder, TM_WORKDIR_MAX / 1000000);
        return env->file_remove(env, file, e);
    }
    if (status != 0) return tm_error_set(e, TM_EIO, "workdir: tar could not read all of %s", folder);
    *out = file;
    return 0;
}

int tm_workdir__unpack(struct tm_env *env, const char *file, const char *folder, struct tm_error *e)
{
    const char *const words[] = {"tar", "-C", folder, "--no-same-owner", "-xf", file, NULL};
    int status = 0;
    int rc = env->folder_make(env, folder, e);
    if (rc == 0) rc = run_words(env, words, &status, e);
    if (rc == 0 && status != 0) rc = tm_error_set(e, TM_EIO, "tar ended with status %d", status);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "unpacking the job's folder");
}
