/* Where the API server of a Kubernetes cluster is, and who we are to it: a kubeconfig file, as kubectl reads it
 * ($KUBECONFIG, else ~/.kube/config; the context that is current, or one that is named), or, in a pod, its service
 * account. Tokens, token files, client certificates and credential plugins (`exec`, as EKS, GKE and AKS use them). */
#ifndef TM_CLOUD_KUBE_CONFIG_H
#define TM_CLOUD_KUBE_CONFIG_H

#include "base/arena.h"
#include "base/env.h"
#include "web/web.h"

#define TM_KUBE_ACCOUNT_DIR "/var/run/secrets/kubernetes.io/serviceaccount"

enum { TM_KUBE_WORDS_MAX = 32 };

/* In the arena. */
struct tm_kube_config {
    const char *server;                           /* "https://HOST:PORT", without a slash at its end */
    const char *space;                            /* namespace */
    struct tm_web_tls tls;                        /* `tls` of a request */
    const char *token;                            /* NULL: none */
    const char *token_file;                       /* read for each call: it is changed while we run; NULL: none */
    const char *command[TM_KUBE_WORDS_MAX + 1];   /* credential plugin, ends in NULL; first NULL: none */
    const char *variables[TM_KUBE_WORDS_MAX + 1]; /* "NAME=VALUE" for it, ends in NULL */
    int64_t token_ends_ms;                        /* UTC, of one that a plugin gave; INT64_MAX: not known */
};

/* Finds it. -TM_EINPUT says what is missing or cannot be used, and where. */
int tm_kube_config__find(struct tm_env *env, const char *context, struct tm_arena *arena, struct tm_kube_config *out,
                         struct tm_error *e);
/* One file's text; `folder`: from where its relative names are meant. */
int tm_kube_config__read(struct tm_env *env, const char *file, const char *text, size_t length, const char *folder,
                         const char *context, struct tm_arena *arena, struct tm_kube_config *out, struct tm_error *e);
/* ---- credential plugins ---- */

enum { TM_KUBE_PLUGIN_MS = 60000 }; /* so long it may take */

enum tm_kube__need {
    TM_KUBE_TOKEN_GOOD,  /* or there is no plugin */
    TM_KUBE_TOKEN_AGES,  /* it ends within a minute: the plugin is due, and requests go on meanwhile */
    TM_KUBE_TOKEN_NEEDED /* there is none, or it has ended: no request before the plugin has answered */
};

/* `now_ms`: UTC. */
enum tm_kube__need tm_kube_config__need(const struct tm_kube_config *config, int64_t now_ms);
/* The plugin as a command, without what it says to people; ends in NULL. */
void tm_kube_config__put_plugin(const struct tm_kube_config *config, const char *out[TM_KUBE_WORDS_MAX + 5]);
/* Its answer: an ExecCredential. */
int tm_kube_config__take_credential(struct tm_kube_config *config, const char *text, size_t length,
                                    struct tm_arena *arena, struct tm_error *e);

#endif
