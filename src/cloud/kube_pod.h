/* Pods that are instances: as JSON for the API server (and for `plan --emit kubernetes`, which prints the same as
 * YAML), and the list of pods that it answers. Shapes are those of core/v1, which have not changed since 1.9. */
#ifndef TM_CLOUD_KUBE_POD_H
#define TM_CLOUD_KUBE_POD_H

#include "base/jsonout.h"
#include "cloud/remote_cloud.h"

/* Labels of what is ours. */
#define TM_KUBE_LABEL_FOLDER   "tidemill.io/folder"
#define TM_KUBE_LABEL_INSTANCE "tidemill.io/instance"

/* How nodes are marked that a cloud may take away. Every pod tolerates the taints that these put on spot nodes; the
 * label is asked for of spot instances alone. */
enum tm_kube_spot { /* in the order of tm_pods_spot_names (workload/job_fleet.h) */
                    TM_KUBE_SPOT_ANY,
                    TM_KUBE_SPOT_EKS,
                    TM_KUBE_SPOT_KARPENTER,
                    TM_KUBE_SPOT_GKE,
                    TM_KUBE_SPOT_AKS
};

/* All is borrowed. */
struct tm_kube_pod {
    const char *name;
    const char *space;  /* namespace; NULL: that of the request */
    const char *app;    /* label app.kubernetes.io/instance: of the job */
    const char *folder; /* label TM_KUBE_LABEL_FOLDER; NULL: none */
    uint64_t instance;
    const char *image;
    const char *secret;          /* name of the Secret with the ticket ... */
    const char *secret_key;      /* ... under this key */
    const char *subdomain;       /* of the headless service; NULL: none */
    const char *account;         /* service account; NULL: the namespace's */
    const char *priority;        /* priority class; NULL: none */
    const char *type;            /* node.kubernetes.io/instance-type; NULL: any */
    const char *zone;            /* topology.kubernetes.io/zone, or topology.k8s.aws/zone-id; NULL: any */
    const char *const *selector; /* further labels of nodes, "NAME=VALUE", `selector_count` of them */
    size_t selector_count;
    enum tm_kube_spot spot;
    enum tm_instance_kind market;
    const char *gpu;    /* resource of a GPU; NULL: "nvidia.com/gpu" */
    int64_t gpus;       /* 0: none */
    const char *cpu;    /* "4", "500m"; NULL: not said */
    const char *memory; /* "16Gi"; NULL: not said */
    int64_t grace_s;    /* from SIGTERM to SIGKILL: the notice */
};

/* The pod; within a list or object where `json` stands in one (key NULL). */
void tm_kube_pod_write(const struct tm_kube_pod *pod, struct tm_jsonout *json);
/* Its Secret; `folder` and `app` as above. */
void tm_kube_secret__write(const char *name, const char *app, const char *folder, const char *key, const char *ticket,
                           struct tm_jsonout *json);
/* What changes of a Secret that has another ticket, and of a pod that is another instance (merge patches). */
void tm_kube_secret__write_patch(const char *key, const char *ticket, struct tm_jsonout *json);
void tm_kube_pod__write_patch(uint64_t instance, struct tm_jsonout *json);
/* "apiVersion", "kind" and "metadata" of anything of ours, in an object that is open; metadata stays open. `space`: its
 * namespace; NULL: that of the request, or none. */
void tm_kube_head_write(struct tm_jsonout *json, const char *version, const char *kind, const char *name,
                        const char *space, const char *app);
/* The grace period of pods whose fleet has this notice; 0 or less: none is said. */
int64_t tm_kube_grace_s(int64_t notice_ms);

/* A PodList as rows, in an array that grows (tm_grow); `now_ms`: the server's clock, UTC. What looks like no pod is
 * left out. -TM_EINPUT: it is no list. */
int tm_kube_pods__read(const char *text, size_t length, int64_t now_ms, struct tm_remote_row **rows, size_t *capacity,
                       size_t *out_count, struct tm_error *e);
/* What a Status says: its message, and whether it is about a quota. */
void tm_kube_status__read(const char *text, size_t length, char words[TM_REMOTE_WORDS_MAX]);

#endif
