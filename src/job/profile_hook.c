#include "job/profile_hook.h"

#include "base/embed.h"

#include <stdlib.h>

TM_EMBED(tm_profiler_source, "../python/tidemill/profiler.py");
TM_EMBED(tm_sitehook_source, "../python/tidemill/sitehook.py");

int tm_profile_hook_make(struct tm_env *env, struct tm_arena *arena, struct tm_profile_hook *out, struct tm_error *e)
{
    const char *parent = env->variable(env, "TMPDIR");
    if (parent == NULL || parent[0] != '/') parent = "/tmp";
    struct tm_profile_hook hook = {0};
    hook.folder =
        tm_arena_printf(arena, "%s/tidemill-profile-%016llx", parent, (unsigned long long)env->random_u64(env));
    if (hook.folder == NULL) return tm_error_nomem(e);
    hook.out = tm_arena_printf(arena, "%s/out", hook.folder);
    hook.why = tm_arena_printf(arena, "%s/out.why", hook.folder);
    hook.site = tm_arena_printf(arena, "%s/sitecustomize.py", hook.folder);
    hook.source = tm_arena_printf(arena, "%s/tidemill_profiler.py", hook.folder);
    if (hook.out == NULL || hook.why == NULL || hook.site == NULL || hook.source == NULL) return tm_error_nomem(e);
    int rc = env->file_write(env, hook.site, tm_sitehook_source_begin,
                             (size_t)(tm_sitehook_source_end - tm_sitehook_source_begin), e);
    if (rc == 0)
        rc = env->file_write(env, hook.source, tm_profiler_source_begin,
                             (size_t)(tm_profiler_source_end - tm_profiler_source_begin), e);
    if (rc != 0) {
        tm_profile_hook_remove(env, &hook);
        return rc;
    }
    *out = hook;
    return 0;
}

void tm_profile_hook_remove(struct tm_env *env, const struct tm_profile_hook *hook)
{
    const char *const files[] = {hook->site, hook->source, hook->out, hook->why, hook->folder};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        (void)env->file_remove(env, files[i], NULL);
}
