#include "engine/trainer.h"

#include "base/alloc.h"
#include "engine/mesh_local.h"
#include "engine/train_worker.h"

#include <pthread.h>
#include <stdio.h>

struct thread {
    pthread_t id;
    bool started;
    const struct tm_train_shared *shared;
    struct tm_mesh_local *local;
    int rank;
    struct tm_train_result *result; /* worker 0 only */
    int rc;
    struct tm_error e;
};

static void *run_thread(void *argument)
{
    struct thread *thread = argument;
    struct tm_mesh *mesh = tm_mesh_local_end(thread->local, thread->rank);
    thread->rc = tm_train_worker__run(thread->shared, mesh, thread->result, &thread->e);
    tm_mesh_local__leave(thread->local, thread->rank);
    if (thread->rc != 0) tm_mesh_local__cancel_all(thread->local); /* nobody waits for one who will not come */
    return NULL;
}

/* The error that began it: others were cancelled because of it. */
static int first_error(const struct thread *threads, int count, struct tm_error *e)
{
    int rc = 0;
    for (int i = 0; i < count; i++) {
        bool better = rc == 0 || (rc == -(int)TM_ECANCELED && threads[i].rc != rc);
        if (threads[i].rc == 0 || !better) continue;
        rc = threads[i].rc;
        if (e != NULL) *e = threads[i].e;
    }
    return rc;
}

static int run_threads(const struct tm_train_shared *shared, struct tm_mesh_local *local, struct thread *threads,
                       struct tm_train_result *result, struct tm_error *e)
{
    int rc = 0;
    for (int i = 0; i < shared->workers; i++)
        threads[i] = (struct thread){
            .shared = shared, .local = local, .rank = i, .result = i == 0 ? result : NULL, .e = {.code = TM_OK}};
    for (int i = 1; rc == 0 && i < shared->workers; i++) {
        if (pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) != 0)
            rc = tm_error_set(e, TM_ENOMEM, "starting worker %d of %d: out of threads", i, shared->workers);
        else
            threads[i].started = true;
    }
    if (rc == 0)
        (void)run_thread(&threads[0]); /* worker 0 is this thread */
    else
        tm_mesh_local__cancel_all(local);
    for (int i = 1; i < shared->workers; i++) {
        if (threads[i].started) (void)pthread_join(threads[i].id, NULL);
    }
    return rc != 0 ? rc : first_error(threads, shared->workers, e);
}

int tm_train(struct tm_env *env, const struct tm_train_options *options, struct tm_train_result *out,
             struct tm_error *e)
{
    struct tm_train_shared shared;
    struct tm_mesh_local *local = NULL;
    int rc = tm_train_shared__init(&shared, env, options, e);
    if (rc != 0) return rc;
    struct thread *threads = tm_calloc((size_t)shared.workers, sizeof *threads);
    struct tm_train_result result = {0};
    rc = threads == NULL ? tm_error_nomem(e) : tm_mesh_local_create(shared.workers, &local, e);
    if (rc == 0) {
        tm_mesh_local__shuffle(local, options->shuffle);
        rc = run_threads(&shared, local, threads, &result, e);
    }
    if (rc == 0)
        *out = result;
    else
        tm_train_result_deinit(&result);
    tm_mesh_local_destroy(local);
    tm_free(threads);
    tm_train_shared__deinit(&shared);
    return rc;
}
