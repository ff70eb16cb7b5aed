/* A plan as manifests for Kubernetes: a priority class, what a run in the cluster may do (service account, role), a
 * headless service, a disruption budget, a Secret for the tickets, and a pod with an agent for each instance. The pods
 * are those that cloud kubernetes makes by itself (cloud/kube_pod.h). */
#ifndef TM_JOB_EMIT_KUBERNETES_H
#define TM_JOB_EMIT_KUBERNETES_H

#include "plan/emit.h"

enum { TM_EMIT_KUBERNETES_PODS_MAX = 256 };

/* YAML documents, appended to `out`. -TM_ELIMIT: more pods than that. */
int tm_emit_kubernetes(const struct tm_emit *emit, struct tm_text *out, struct tm_error *e);

#endif
