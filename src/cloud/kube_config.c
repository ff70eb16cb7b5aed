#include "cloud/kube_config.h"

#include "base/calendar.h"
#include "base/doc.h"
#include "base/yaml_print.h"
#include "cloud/plain_http.h"

#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 20, RENEW_BEFORE_MS = 60000, PATH_BYTES = 4096 };

/* ---- values of a file ---- */

struct reading {
    struct tm_env *env;
    const char *file;
    const char *folder;
    struct tm_arena *arena;
    struct tm_error *e;
};

static const char *text_of(const struct tm_node *map, const char *key)
{
    const struct tm_node *node = map != NULL && map->kind == TM_NODE_MAP ? tm_node_find(map, key) : NULL;
    return node != NULL && node->kind == TM_NODE_SCALAR && node->text[0] != '\0' ? node->text : NULL;
}

static const struct tm_node *map_of(const struct tm_node *map, const char *key)
{
    const struct tm_node *node = map != NULL && map->kind == TM_NODE_MAP ? tm_node_find(map, key) : NULL;
    return node != NULL && node->kind == TM_NODE_MAP ? node : NULL;
}

/* The entry of a list of {name, WHAT} with this name. */
static const struct tm_node *named(const struct tm_node *root, const char *list, const char *name, const char *what)
{
    const struct tm_node *all = tm_node_find(root, list);
    if (all == NULL || all->kind != TM_NODE_LIST || name == NULL) return NULL;
    for (const struct tm_node *at = all->first; at != NULL; at = at->next) {
        const char *own = text_of(at, "name");
        if (own != NULL && strcmp(own, name) == 0) return map_of(at, what);
    }
    return NULL;
}

static const char *path_of(const struct reading *r, const char *name)
{
    if (name[0] == '/') return name;
    return tm_arena_printf(r->arena, "%s/%s", r->folder, name);
}

static int read_file(const struct reading *r, const char *name, const char **out)
{
    struct tm_text text;
    const char *path = path_of(r, name);
    if (path == NULL) return tm_error_nomem(r->e);
    tm_text_init(&text, FILE_BYTES_MAX);
    int rc = r->env->file_read(r->env, path, &text, r->e);
    if (rc == 0) *out = tm_arena_strndup(r->arena, tm_text_string(&text), text.length);
    tm_text_deinit(&text);
    if (rc != 0) return tm_error_wrap(r->e, rc, "%s", r->file);
    return *out == NULL ? tm_error_nomem(r->e) : 0;
}

static int decode(const struct reading *r, const char *key, const char *base64, const char **out)
{
    size_t length = strlen(base64);
    if (length > FILE_BYTES_MAX) return tm_error_set(r->e, TM_ELIMIT, "%s: %s: it is too long", r->file, key);
    unsigned char *bytes = tm_arena_alloc(r->arena, length / 4 * 3 + 4);
    if (bytes == NULL) return tm_error_nomem(r->e);
    int got = length > 0 && length % 4 == 0 ? EVP_DecodeBlock(bytes, (const unsigned char *)base64, (int)length) : -1;
    if (got < 0) return tm_error_set(r->e, TM_EINPUT, "%s: %s: expected base64", r->file, key);
    bytes[got] = '\0'; /* padding became zeros before it */
    *out = (const char *)bytes;
    return 0;
}

/* PEM that stands in the file as KEY-data, or in another one that KEY names. */
static int take_pem(const struct reading *r, const struct tm_node *map, const char *key, const char **out)
{
    char data_key[64];
    (void)snprintf(data_key, sizeof data_key, "%s-data", key);
    const char *data = text_of(map, data_key);
    const char *name = text_of(map, key);
    if (data != NULL) return decode(r, data_key, data, out);
    return name != NULL ? read_file(r, name, out) : 0;
}

static int take_plugin(const struct reading *r, const struct tm_node *exec, struct tm_kube_config *out)
{
    const char *command = text_of(exec, "command");
    const struct tm_node *args = tm_node_find(exec, "args");
    const struct tm_node *env = tm_node_find(exec, "env");
    size_t count = 0;
    size_t variables = 0;
    if (command == NULL) return tm_error_set(r->e, TM_EINPUT, "%s: users: exec: command: missing", r->file);
    bool beside = command[0] != '/' && strchr(command, '/') != NULL; /* relative to the file, as kubectl has it */
    out->command[count++] = beside ? path_of(r, command) : command;
    for (const struct tm_node *at = args != NULL && args->kind == TM_NODE_LIST ? args->first : NULL; at != NULL;
         at = at->next) {
        if (count == TM_KUBE_WORDS_MAX)
            return tm_error_set(r->e, TM_ELIMIT, "%s: users: exec: args: more than %d", r->file, TM_KUBE_WORDS_MAX);
        if (at->kind == TM_NODE_SCALAR) out->command[count++] = at->text;
    }
    for (const struct tm_node *at = env != NULL && env->kind == TM_NODE_LIST ? env->first : NULL;
         at != NULL && variables + 1 < TM_KUBE_WORDS_MAX; at = at->next) {
        const char *name = text_of(at, "name");
        const char *value = text_of(at, "value");
        if (name == NULL || value == NULL) continue;
        if ((out->variables[variables++] = tm_arena_printf(r->arena, "%s=%s", name, value)) == NULL)
            return tm_error_nomem(r->e);
    }
    const char *version = text_of(exec, "apiVersion");
    out->variables[variables++] = tm_arena_printf(
        r->arena,
        "KUBERNETES_EXEC_INFO={\"apiVersion\":\"%s\",\"kind\":\"ExecCredential\",\"spec\":{\"interactive\":false}}",
        version != NULL ? version : "client.authentication.k8s.io/v1");
    return out->command[0] == NULL || out->variables[variables - 1] == NULL ? tm_error_nomem(r->e) : 0;
}

static int take_cluster(const struct reading *r, const struct tm_node *cluster, struct tm_kube_config *out)
{
    const char *server = text_of(cluster, "server");
    const char *unchecked = text_of(cluster, "insecure-skip-tls-verify");
    if (server == NULL || (strncmp(server, "https://", 8) != 0 && strncmp(server, "http://", 7) != 0))
        return tm_error_set(r->e, TM_EINPUT, "%s: clusters: server: expected https://HOST:PORT", r->file);
    if (tm_cloud__is_plain_abroad(server))
        return tm_error_set(r->e, TM_EINPUT,
                            "%s: clusters: server: over plain http anybody on the way reads tokens; write https://, or "
                            "http://127.0.0.1:PORT of kubectl proxy",
                            r->file);
    if (text_of(cluster, "tls-server-name") != NULL || text_of(cluster, "proxy-url") != NULL)
        return tm_error_set(r->e, TM_EINPUT,
                            "%s: clusters: tls-server-name and proxy-url are not supported; use a context without",
                            r->file);
    size_t length = strlen(server);
    while (length > 0 && server[length - 1] == '/')
        length--;
    out->server = tm_arena_strndup(r->arena, server, length);
    out->tls.unchecked = unchecked != NULL && strcmp(unchecked, "true") == 0;
    if (out->server == NULL) return tm_error_nomem(r->e);
    return take_pem(r, cluster, "certificate-authority", &out->tls.authority);
}

static int take_user(const struct reading *r, const struct tm_node *user, struct tm_kube_config *out)
{
    const struct tm_node *exec = map_of(user, "exec");
    const char *file = text_of(user, "tokenFile");
    int rc = take_pem(r, user, "client-certificate", &out->tls.certificate);
    if (rc == 0) rc = take_pem(r, user, "client-key", &out->tls.key);
    if (rc == 0 && (out->tls.certificate == NULL) != (out->tls.key == NULL))
        rc = tm_error_set(r->e, TM_EINPUT, "%s: users: client-certificate and client-key go together", r->file);
    if (rc != 0) return rc;
    out->token = text_of(user, "token");
    if (file != NULL && (out->token_file = path_of(r, file)) == NULL) return tm_error_nomem(r->e);
    if (exec != NULL) return take_plugin(r, exec, out);
    if (out->token != NULL || out->token_file != NULL || out->tls.certificate != NULL || user == NULL) return 0;
    if (map_of(user, "auth-provider") != NULL || text_of(user, "username") != NULL)
        return tm_error_set(r->e, TM_EINPUT,
                            "%s: users: only token, tokenFile, client-certificate and exec are supported", r->file);
    return 0;
}

int tm_kube_config__read(struct tm_env *env, const char *file, const char *text, size_t length, const char *folder,
                         const char *context, struct tm_arena *arena, struct tm_kube_config *out, struct tm_error *e)
{
    struct tm_node *root = NULL;
    struct tm_kube_config fresh = {.token_ends_ms = INT64_MAX};
    const struct reading r = {.env = env, .file = file, .folder = folder, .arena = arena, .e = e};
    int rc = tm_doc_parse_yaml(file, text, length, arena, &root, e);
    if (rc != 0) return rc;
    if (root->kind != TM_NODE_MAP) return tm_error_set(e, TM_EINPUT, "%s: expected a kubeconfig", file);
    const char *name = context != NULL ? context : text_of(root, "current-context");
    const struct tm_node *chosen = named(root, "contexts", name, "context");
    if (chosen == NULL)
        return tm_error_set(e, TM_EINPUT, "%s: there is no context %.100s; kubectl config get-contexts lists them",
                            file, name != NULL ? name : "that is current");
    const struct tm_node *cluster = named(root, "clusters", text_of(chosen, "cluster"), "cluster");
    if (cluster == NULL) return tm_error_set(e, TM_EINPUT, "%s: context %.100s: its cluster is missing", file, name);
    fresh.space = text_of(chosen, "namespace");
    rc = take_cluster(&r, cluster, &fresh);
    if (rc == 0) rc = take_user(&r, named(root, "users", text_of(chosen, "user"), "user"), &fresh);
    if (rc == 0) *out = fresh;
    return rc;
}

/* ---- where it is ---- */

static int read_account(struct tm_env *env, struct tm_arena *arena, struct tm_kube_config *out, struct tm_error *e)
{
    const char *host = env->variable(env, "KUBERNETES_SERVICE_HOST");
    const char *port = env->variable(env, "KUBERNETES_SERVICE_PORT");
    const struct reading r = {
        .env = env, .file = "service account", .folder = TM_KUBE_ACCOUNT_DIR, .arena = arena, .e = e};
    struct tm_kube_config fresh = {.token_ends_ms = INT64_MAX, .token_file = TM_KUBE_ACCOUNT_DIR "/token"};
    const char *space = "";
    bool six = host != NULL && strchr(host, ':') != NULL;
    int rc = read_file(&r, "ca.crt", &fresh.tls.authority);
    if (rc == 0) rc = read_file(&r, "namespace", &space);
    if (rc != 0) return rc;
    fresh.space = tm_arena_strndup(arena, space, strcspn(space, " \r\n"));
    fresh.server =
        tm_arena_printf(arena, "https://%s%s%s:%s", six ? "[" : "", host, six ? "]" : "", port != NULL ? port : "443");
    if (fresh.server == NULL || fresh.space == NULL) return tm_error_nomem(e);
    *out = fresh;
    return 0;
}

int tm_kube_config__find(struct tm_env *env, const char *context, struct tm_arena *arena, struct tm_kube_config *out,
                         struct tm_error *e)
{
    char path[PATH_BYTES];
    char folder[PATH_BYTES];
    struct tm_text text;
    const char *given = env->variable(env, "KUBECONFIG");
    const char *home = env->variable(env, "HOME");
    bool named_file = given != NULL && given[0] != '\0';
    if (named_file) /* of several, the first */
        (void)snprintf(path, sizeof path, "%.*s", (int)strcspn(given, ":"), given);
    else
        (void)snprintf(path, sizeof path, "%.4000s/.kube/config", home != NULL ? home : "");
    if (!named_file && !env->file_exists(env, path)) {
        if (env->variable(env, "KUBERNETES_SERVICE_HOST") != NULL) return read_account(env, arena, out, e);
        return tm_error_set(e, TM_EINPUT,
                            "which cluster? there is no %s; set KUBECONFIG, or run it in a pod with a service account",
                            path);
    }
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        (void)snprintf(folder, sizeof folder, ".");
    else
        (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    tm_text_init(&text, FILE_BYTES_MAX);
    int rc = env->file_read(env, path, &text, e);
    if (rc == 0)
        rc = tm_kube_config__read(env, tm_arena_strdup(arena, path), tm_text_string(&text), text.length, folder,
                                  context, arena, out, e);
    tm_text_deinit(&text);
    if (rc == 0 && out->space == NULL) out->space = "default";
    return rc;
}

/* ---- credential plugins ---- */

int tm_kube_config__take_credential(struct tm_kube_config *config, const char *text, size_t length,
                                    struct tm_arena *arena, struct tm_error *e)
{
    json_t *root = NULL;
    int rc = tm_json_load("its answer", text, length, &root, e);
    if (rc != 0) return rc;
    const json_t *status = json_object_get(root, "status");
    const char *token = json_string_value(json_object_get(status, "token"));
    const char *ends = json_string_value(json_object_get(status, "expirationTimestamp"));
    const char *certificate = json_string_value(json_object_get(status, "clientCertificateData"));
    const char *key = json_string_value(json_object_get(status, "clientKeyData"));
    int64_t ends_ms = INT64_MAX;
    if (token == NULL && (certificate == NULL || key == NULL))
        rc = tm_error_set(e, TM_EINPUT, "its answer has no status.token");
    if (rc == 0 && ends != NULL && !tm_calendar_parse(ends, strlen(ends), &ends_ms)) ends_ms = INT64_MAX;
    if (rc == 0 && token != NULL && (config->token = tm_arena_strdup(arena, token)) == NULL) rc = tm_error_nomem(e);
    if (rc == 0 && certificate != NULL && key != NULL) {
        config->tls.certificate = tm_arena_strdup(arena, certificate);
        config->tls.key = tm_arena_strdup(arena, key);
        if (config->tls.certificate == NULL || config->tls.key == NULL) rc = tm_error_nomem(e);
    }
    if (rc == 0) config->token_ends_ms = ends_ms;
    json_decref(root);
    return rc;
}

enum tm_kube__need tm_kube_config__need(const struct tm_kube_config *config, int64_t now_ms)
{
    if (config->command[0] == NULL) return TM_KUBE_TOKEN_GOOD;
    if (config->token == NULL && config->tls.certificate == NULL) return TM_KUBE_TOKEN_NEEDED;
    if (config->token_ends_ms == INT64_MAX || now_ms < config->token_ends_ms - RENEW_BEFORE_MS)
        return TM_KUBE_TOKEN_GOOD;
    return now_ms < config->token_ends_ms ? TM_KUBE_TOKEN_AGES : TM_KUBE_TOKEN_NEEDED;
}

void tm_kube_config__put_plugin(const struct tm_kube_config *config, const char *out[TM_KUBE_WORDS_MAX + 5])
{
    static const char *const quiet[] = {"/bin/sh", "-c", "exec \"$@\" 2> /dev/null", "sh"};
    size_t count = 0;
    for (; count < sizeof quiet / sizeof *quiet; count++)
        out[count] = quiet[count];
    for (size_t i = 0; config->command[i] != NULL; i++)
        out[count++] = config->command[i];
    out[count] = NULL;
}
