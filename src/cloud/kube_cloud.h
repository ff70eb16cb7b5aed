/* Kubernetes as a cloud: one pod is one instance, made and deleted by the API server's HTTP interface (remote_cloud.h
 * has what is common to such services). A pod's ticket is in a Secret of the pod's name,
 * which its agent sees as a file. A pod that an earlier program of the run left is taken over by another ticket in it:
 * its agent joins by that one, wherever it stands.
 *
 * A pod that is evicted, preempted by another or deleted by somebody has a notice: its grace period. One that has no
 * node is capacity that is not there. A list is asked for, not watched: a second after a change, then ever less often.
 */
#ifndef TM_CLOUD_KUBE_CLOUD_H
#define TM_CLOUD_KUBE_CLOUD_H

#include "base/arena.h"
#include "cloud/kube_pod.h"

/* All is borrowed as long as the cloud is there. */
struct tm_kube_options {
    struct tm_kube_pod pod; /* of all: but for name, folder, instance, secret and market */
    const char *context;    /* of the kubeconfig; NULL: the current one */
    const char *space;      /* namespace; NULL: the context's */
    const char *folder;     /* the state folder: it names all pods of all runs in it */
    int limit[2];           /* by market */
    double price_usd_h[2];
    int64_t poll_ms; /* 0: 5 s */
    uint64_t id_first;
    struct tm_arena *arena;
    /* What the instance's agent needs, as one word. */
    int (*ticket)(void *context, uint64_t id, enum tm_instance_kind market, char out[TM_REMOTE_WORDS_MAX],
                  struct tm_error *e);
    bool (*has_joined)(void *context, uint64_t id);
    void *ticket_context;
};

/* Asks the API server once, and waits for that: -TM_EINPUT and -TM_EPEER say why it will not work. The caller owns the
 * result (its `destroy`, which waits until all pods are gone, at most two minutes). */
int tm_kube_cloud_create(struct tm_env *env, const struct tm_kube_options *options, struct tm_cloud **out,
                         struct tm_error *e);

#endif
