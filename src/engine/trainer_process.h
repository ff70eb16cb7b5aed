/* Training with a process a worker, connected by sockets: worker 0 is the process that was called, and starts the
 * others.
 */
#ifndef TM_ENGINE_TRAINER_PROCESS_H
#define TM_ENGINE_TRAINER_PROCESS_H

#include "engine/trainer.h"

enum tm_transport { TM_TRANSPORT_THREADS, TM_TRANSPORT_UNIX, TM_TRANSPORT_TCP };
extern const char *const tm_transport_names[]; /* "threads", "unix", "tcp" */

/* Who a worker's process is. As text ("RANK,SIZE,GENERATION,ADDRESS") it is passed to it by the one that starts it. */
struct tm_worker_identity {
    int rank;
    int size;
    uint64_t generation;        /* drawn anew for each run: strangers are refused */
    char first[TM_ADDRESS_MAX]; /* where worker 0 listens */
};

const char *tm_worker_identity_print(const struct tm_worker_identity *identity, char buffer[TM_ADDRESS_MAX + 64]);
int tm_worker_identity_parse(const char *text, struct tm_worker_identity *out, struct tm_error *e);

/* As tm_train, with `start` called for workers 1 .. n - 1 to start the process of each. A process that ends with
 * another status than 0 is an error. */
int tm_train_processes(struct tm_env *env, const struct tm_train_options *options, enum tm_transport transport,
                       int (*start)(void *context, const struct tm_worker_identity *identity, int *out_pid,
                                    struct tm_error *e),
                       void *context, struct tm_train_result *out, struct tm_error *e);

/* What the process of another worker does. */
int tm_train_as_worker(struct tm_env *env, const struct tm_train_options *options,
                       const struct tm_worker_identity *identity, struct tm_error *e);

#endif
