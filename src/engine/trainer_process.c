#include "engine/trainer_process.h"

#include "base/number.h"
#include "engine/mesh_socket.h"
#include "engine/train_worker.h"

#include <stdio.h>
#include <string.h>

static const int64_t connect_ms = 60000;
static const int64_t leave_ms = 60000;

const char *const tm_transport_names[] = {"threads", "unix", "tcp", NULL};

const char *tm_worker_identity_print(const struct tm_worker_identity *identity, char buffer[TM_ADDRESS_MAX + 64])
{
    (void)snprintf(buffer, TM_ADDRESS_MAX + 64, "%d,%d,%lld,%s", identity->rank, identity->size,
                   (long long)identity->generation, identity->first);
    return buffer;
}

int tm_worker_identity_parse(const char *text, struct tm_worker_identity *out, struct tm_error *e)
{
    int64_t numbers[3] = {0};
    const char *at = text;
    for (int i = 0; i < 3; i++) {
        size_t length = strcspn(at, ",");
        if (at[length] != ',' || !tm_number_i64(at, length, &numbers[i]))
            return tm_error_set(e, TM_EUSAGE, "expected RANK,SIZE,GENERATION,ADDRESS, got \"%.80s\"", text);
        at += length + 1;
    }
    if (numbers[1] < 1 || numbers[1] > TM_WORKERS_MAX || numbers[0] < 1 || numbers[0] >= numbers[1] ||
        strlen(at) >= TM_ADDRESS_MAX)
        return tm_error_set(e, TM_EUSAGE, "\"%.80s\": no such worker", text);
    *out = (struct tm_worker_identity){
        .rank = (int)numbers[0], .size = (int)numbers[1], .generation = (uint64_t)numbers[2]};
    memcpy(out->first, at, strlen(at) + 1);
    return 0;
}

/* Where a worker listens: beside worker 0's socket, or on a free port of the loopback interface. */
static void own_address(const struct tm_worker_identity *identity, char out[TM_ADDRESS_MAX])
{
    if (strncmp(identity->first, "unix:", 5) == 0)
        (void)snprintf(out, TM_ADDRESS_MAX, "%.*s.%d", TM_ADDRESS_MAX - 8, identity->first, identity->rank);
    else
        (void)snprintf(out, TM_ADDRESS_MAX, "127.0.0.1:0");
}

static void remove_socket(struct tm_env *env, const char *address)
{
    if (strncmp(address, "unix:", 5) == 0) (void)env->file_remove(env, address + 5, NULL);
}

int tm_train_as_worker(struct tm_env *env, const struct tm_train_options *options,
                       const struct tm_worker_identity *identity, struct tm_error *e)
{
    struct tm_train_shared shared;
    char wanted[TM_ADDRESS_MAX];
    char bound[TM_ADDRESS_MAX];
    int listener = -1;
    struct tm_mesh_socket *mesh = NULL;
    int rc = tm_train_shared__init(&shared, env, options, e);
    if (rc != 0) return rc;
    own_address(identity, wanted);
    rc = tm_mesh_socket__listen(env, wanted, &listener, bound, e);
    if (rc == 0) {
        struct tm_mesh_socket_options link = {.rank = identity->rank,
                                              .size = identity->size,
                                              .listener = listener,
                                              .own = bound,
                                              .first = identity->first,
                                              .generation = identity->generation,
                                              .timeout_ms = connect_ms};
        rc = tm_mesh_socket__create(env, &link, &mesh, e);
        remove_socket(env, bound);
    }
    if (rc == 0) rc = tm_train_worker__run(&shared, tm_mesh_socket__end(mesh), NULL, e);
    tm_mesh_socket__destroy(mesh);
    tm_train_shared__deinit(&shared);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "worker %d", identity->rank);
}

/* ---- worker 0 ---- */

struct family {
    struct tm_env *env;
    int pids[TM_WORKERS_MAX];
    int count;
};

/* Waits for all of them; the first that did not end well is an error. */
static int wait_for(struct family *family, struct tm_error *e)
{
    int rc = 0;
    for (int i = 0; i < family->count; i++) {
        int status = 0;
        int waited = family->env->process_wait(family->env, family->pids[i], leave_ms, &status, rc == 0 ? e : NULL);
        if (waited != 0) (void)family->env->process_signal(family->env, family->pids[i], 9, NULL);
        if (waited == -(int)TM_ETIMEOUT)
            (void)family->env->process_wait(family->env, family->pids[i], leave_ms, &status, NULL);
        if (rc == 0 && waited != 0) rc = waited;
        if (rc == 0 && status != 0)
            rc = tm_error_set(e, TM_EPEER, "the process of worker %d ended with status %d", i + 1, status);
    }
    return rc;
}

static int start_all(struct family *family, const struct tm_worker_identity *first,
                     int (*start)(void *context, const struct tm_worker_identity *identity, int *out_pid,
                                  struct tm_error *e),
                     void *context, struct tm_error *e)
{
    for (int r = 1; r < first->size; r++) {
        struct tm_worker_identity identity = *first;
        identity.rank = r;
        int rc = start(context, &identity, &family->pids[family->count], e);
        if (rc != 0) return tm_error_wrap(e, rc, "starting worker %d", r);
        family->count++;
    }
    return 0;
}

static void first_address(struct tm_env *env, enum tm_transport transport, uint64_t generation,
                          char out[TM_ADDRESS_MAX])
{
    const char *folder = env->variable(env, "TMPDIR");
    if (transport == TM_TRANSPORT_UNIX)
        (void)snprintf(out, TM_ADDRESS_MAX, "unix:%.60s/tidemill-%llx", folder != NULL ? folder : "/tmp",
                       (unsigned long long)generation);
    else
        (void)snprintf(out, TM_ADDRESS_MAX, "127.0.0.1:0");
}

int tm_train_processes(struct tm_env *env, const struct tm_train_options *options, enum tm_transport transport,
                       int (*start)(void *context, const struct tm_worker_identity *identity, int *out_pid,
                                    struct tm_error *e),
                       void *context, struct tm_train_result *out, struct tm_error *e)
{
    struct tm_train_shared shared;
    struct family family = {.env = env};
    struct tm_worker_identity first = {.generation = env->random_u64(env) >> 1};
    char wanted[TM_ADDRESS_MAX];
    int listener = -1;
    struct tm_mesh_socket *mesh = NULL;
    struct tm_train_result result = {0};
    int rc = tm_train_shared__init(&shared, env, options, e);
    if (rc != 0) return rc;
    first.size = shared.workers;
    first_address(env, transport, first.generation, wanted);
    rc = tm_mesh_socket__listen(env, wanted, &listener, first.first, e);
    if (rc == 0) {
        struct tm_mesh_socket_options link = {.size = first.size,
                                              .listener = listener,
                                              .own = first.first,
                                              .first = first.first,
                                              .generation = first.generation,
                                              .timeout_ms = connect_ms};
        rc = start_all(&family, &first, start, context, e);
        if (rc == 0)
            rc = tm_mesh_socket__create(env, &link, &mesh, e);
        else
            env->net_close(env, listener);
        remove_socket(env, first.first);
    }
    if (rc == 0) rc = tm_train_worker__run(&shared, tm_mesh_socket__end(mesh), &result, e);
    tm_mesh_socket__destroy(mesh);
    int left = wait_for(&family, rc == 0 ? e : NULL);
    if (rc == 0) rc = left;
    if (rc == 0)
        *out = result;
    else
        tm_train_result_deinit(&result);
    tm_train_shared__deinit(&shared);
    return rc;
}
