#include "engine/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { ROOM_MB = 320 };                                /* two of OpenBLAS's buffers, and threads beside */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* CBLAS's own numbers */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tm_blas opened; /* sgemm NULL: not yet */
static char opened_as[32];

/* ISO C has no cast from an object pointer to a function pointer; POSIX promises that the bytes are the same. */
static void find(void *library, const char *name, void *out_function)
{
    void *symbol = dlsym(library, name);
    memcpy(out_function, &symbol, sizeof symbol);
}

/* Without memory for its buffers OpenBLAS asks for it again and again, for ever, and says nothing. */
static int check_room(struct tm_error *e)
{
    struct rlimit limit;
    size_t bytes = (size_t)ROOM_MB << 20;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room != MAP_FAILED) {
        (void)munmap(room, bytes);
        return 0;
    }
    return tm_error_set(
        e, TM_ELIMIT,
        "matrix products need %d MB of address space, but the limit (ulimit -v) of %llu kB leaves less: raise it",
        ROOM_MB, (unsigned long long)(limit.rlim_cur >> 10));
}

static int open_library(struct tm_env *env, const char *core, struct tm_error *e)
{
    void (*set_threads)(int) = NULL;
    const char *(*core_name)(void) = NULL;
    int rc = check_room(e);
    if (rc != 0) return rc;
    /* Whatever the user's environment says: the bits of a job are those of its kernel class on every machine. */
    (void)env->set_variable(env, "OPENBLAS_CORETYPE", core);
    (void)env->set_variable(env, "OPENBLAS_NUM_THREADS", "1"); /* no pool of threads that nobody asks for work */
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return tm_error_set(e, TM_ENOTFOUND, "libopenblas.so.0 is missing: install the package libopenblas0-pthread");
    struct tm_blas blas = {0};
    find(library, "cblas_sgemm", &blas.sgemm);
    find(library, "openblas_set_num_threads", &set_threads);
    find(library, "openblas_get_corename", &core_name);
    if (blas.sgemm == NULL || set_threads == NULL || core_name == NULL)
        return tm_error_set(e, TM_ENOTFOUND, "libopenblas.so.0 lacks cblas_sgemm; install libopenblas0-pthread");
    set_threads(1);
    const char *name = core_name();
    size_t length = strnlen(name, sizeof blas.core - 1);
    memcpy(blas.core, name, length);
    length = strnlen(core, sizeof opened_as - 1);
    memcpy(opened_as, core, length);
    opened = blas;
    return 0;
}

int tm_blas_open(struct tm_env *env, const char *core, struct tm_blas *out, struct tm_error *e)
{
    int rc = 0;
    (void)pthread_mutex_lock(&open_lock);
    if (opened.sgemm == NULL)
        rc = open_library(env, core, e);
    else if (strcmp(opened_as, core) != 0)
        rc = tm_error_set(e, TM_EBUSY, "matrix products are fixed to %s in this process; start another for %s",
                          opened_as, core);
    if (rc == 0) *out = opened;
    (void)pthread_mutex_unlock(&open_lock);
    return rc;
}

void tm_gemm(const struct tm_blas *blas, const struct tm_gemm *shape, const float *a, const float *b, float *c)
{
    blas->sgemm(ROW_MAJOR, shape->transpose_a ? TRANS : NO_TRANS, shape->transpose_b ? TRANS : NO_TRANS, shape->m,
                shape->n, shape->k, shape->alpha, a, shape->lda, b, shape->ldb, shape->beta, c, shape->ldc);
}
