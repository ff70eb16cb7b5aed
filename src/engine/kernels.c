#include "engine/kernels.h"

#include <math.h>
#include <string.h>

/* "avx2", "avx512"; NULL-terminated. */
static const char *const class_names[] = {"avx2", "avx512", NULL};

static const struct tm_kernels *const classes[TM_KERNEL_CLASS_COUNT] = {&tm_kernels__avx2, &tm_kernels__avx512};

bool tm_kernels__runs(enum tm_kernel_class kernel_class)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return false;
    return kernel_class == TM_KERNELS_AVX2 || __builtin_cpu_supports("avx512f");
}

int tm_kernels__by_name(const char *name, const struct tm_kernels **out, struct tm_error *e)
{
    for (int c = 0; c < TM_KERNEL_CLASS_COUNT; c++) {
        if (strcmp(class_names[c], name) != 0) continue;
        if (!tm_kernels__runs((enum tm_kernel_class)c))
            return tm_error_set(e, TM_ENOTFOUND, "this machine cannot run kernels of class %s", name);
        *out = classes[c];
        return 0;
    }
    return tm_error_set(e, TM_EINPUT, "unknown kernel class \"%.40s\"; use avx2 or avx512", name);
}

int tm_kernels_choose(struct tm_env *env, const struct tm_kernels **out, struct tm_error *e)
{
    const char *wish = env->variable(env, "TIDEMILL_KERNELS");
    if (wish != NULL && wish[0] != '\0') {
        int rc = tm_kernels__by_name(wish, out, e);
        return rc == 0 ? 0 : tm_error_wrap(e, rc, "TIDEMILL_KERNELS");
    }
    for (int c = TM_KERNEL_CLASS_COUNT - 1; c >= 0; c--) {
        if (!tm_kernels__runs((enum tm_kernel_class)c)) continue;
        *out = classes[c];
        return 0;
    }
    return tm_error_set(e, TM_ENOTFOUND, "this machine has no AVX2: the built-in engine cannot train on it");
}

struct tm_dropout tm_dropout__make(double probability, uint64_t seed, uint32_t step, uint32_t micro, int layer,
                                   int site)
{
    uint32_t threshold = (uint32_t)lround(probability * 65536);
    return (struct tm_dropout){.scale = (float)(65536.0 / (65536.0 - threshold)),
                               .threshold = threshold,
                               .seed = seed,
                               .step = step,
                               .micro = micro,
                               .site = (uint32_t)(layer * TM_SITES + site)};
}
