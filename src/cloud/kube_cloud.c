#include "cloud/kube_cloud.h"

#include "base/alloc.h"
#include "base/dns_name.h"
#include "base/log.h"
#include "cloud/kube_config.h"
#include "cloud/tool_process.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    CALL_MS = 20000,
    TRIES_MAX = 4,
    POLL_MS = 5000,
    END_LIMIT_MS = 120000,
    START_LIMIT_MS = 600000,
    FORCE_AFTER_MS = 30000,
    GRACE_S = 2,             /* for one that is not needed: what it did is elsewhere */
    SEND_LOOK_MS = 5,        /* while a connection is being made */
    PLUGIN_PAUSE_MS = 10000, /* between two answers of a credential plugin */
    BODY_MAX = 64 << 10,
    PATH_BYTES = 512,
    HANDLES_MAX = 16
};

/* What a call does, one request after the other. */
enum request { POST_SECRET, POST_POD, PATCH_SECRET, PATCH_POD, GET_PODS, DELETE_POD, DELETE_SECRET, REQUEST_NONE };

struct kube {
    struct tm_env *env;
    struct tm_kube_options options;
    struct tm_kube_config config;
    struct tm_web *web;
    struct tm_web_call *web_call;
    struct tm_tool__process plugin;
    int64_t plugin_ms; /* it is asked again from then on */
    bool waits;        /* the request is not sent before the plugin has answered */
    bool doubted;      /* a token was refused for this call, and the plugin asked again */
    struct tm_remote_call call;
    enum request request;
    bool pod_gone; /* as its deletion told */
    const char *method;
    char path[PATH_BYTES]; /* and query */
    struct tm_text body;
    char prefix[TM_REMOTE_NAME_MAX];
    char folder[TM_REMOTE_NAME_MAX]; /* the prefix as a label */
    char look_up[PATH_BYTES];
    struct tm_remote_row *rows;
    size_t row_count, row_capacity;
};

/* ---- requests ---- */

/* The token is read before each try: it may have changed. */
static int prepare(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    struct kube *k = context;
    struct tm_text token;
    tm_text_printf(url, "%s%s", k->config.server, k->path);
    tm_text_puts(headers, "Accept: application/json\nUser-Agent: tidemill\n");
    bool patch = strcmp(k->method, "PATCH") == 0;
    if (k->body.length > 0) tm_text_printf(headers, "Content-Type: application/%sjson\n", patch ? "merge-patch+" : "");
    if (k->config.token_file == NULL) {
        if (k->config.token != NULL) tm_text_printf(headers, "Authorization: Bearer %s\n", k->config.token);
        return 0;
    }
    tm_text_init(&token, BODY_MAX);
    int rc = k->env->file_read(k->env, k->config.token_file, &token, e);
    if (rc == 0) {
        const char *text = tm_text_string(&token);
        tm_text_printf(headers, "Authorization: Bearer %.*s\n", (int)strcspn(text, " \r\n"), text);
    }
    if (token.data != NULL) memset(token.data, 0, token.length);
    tm_text_deinit(&token);
    return rc;
}

static int send_request(struct kube *k, struct tm_error *e)
{
    struct tm_web_request request = {.method = k->method,
                                     .body = k->body.length > 0 ? k->body.data : NULL,
                                     .length = k->body.length,
                                     .deadline_ms = CALL_MS,
                                     .tries_max = TRIES_MAX,
                                     .tls = &k->config.tls,
                                     .prepare = prepare,
                                     .context = k};
    return tm_web_begin(k->web, &request, &k->web_call, e);
}

static int64_t now_ms(const struct kube *k)
{
    return k->env->monotonic_ns(k->env) / 1000000;
}

static int start_plugin(struct kube *k, struct tm_error *e)
{
    const char *words[TM_KUBE_WORDS_MAX + 5];
    tm_kube_config__put_plugin(&k->config, words);
    k->plugin.variables = k->config.variables;
    return tm_tool_process__start(&k->plugin, k->env, words, TM_KUBE_PLUGIN_MS, e);
}

/* Its answer, when it is there. An error: that was none; a token that is still good goes on. */
static int step_plugin(struct kube *k, struct tm_error *e)
{
    int status = 0;
    int rc = 0;
    if (k->plugin.pid == 0 || !tm_tool_process__step(&k->plugin, k->env, &status)) return 0;
    k->plugin_ms = now_ms(k) + PLUGIN_PAUSE_MS;
    if (status < 0)
        rc = tm_error_set(e, TM_ETIMEOUT, "it did not end within a minute");
    else if (status != 0)
        rc = tm_error_set(e, TM_EINPUT, "it ended with status %d; run it to see why", status);
    else
        rc = tm_kube_config__take_credential(&k->config, tm_text_string(&k->plugin.text), k->plugin.text.length,
                                             k->options.arena, e);
    if (k->plugin.text.data != NULL) memset(k->plugin.text.data, 0, k->plugin.text.length);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "credential plugin %.100s", k->config.command[0]);
}

/* The plugin runs beside: before its token ends, and while nothing can be asked without one. */
static int ask(struct kube *k, const char *method, struct tm_error *e)
{
    enum tm_kube__need need = tm_kube_config__need(&k->config, k->env->now_ms(k->env));
    bool due = need == TM_KUBE_TOKEN_NEEDED || (need == TM_KUBE_TOKEN_AGES && now_ms(k) >= k->plugin_ms);
    int rc = 0;
    k->method = method;
    if (due && k->plugin.pid == 0) rc = start_plugin(k, e);
    k->waits = rc == 0 && need == TM_KUBE_TOKEN_NEEDED;
    return rc != 0 || k->waits ? rc : send_request(k, e);
}

__attribute__((format(printf, 2, 3))) static void set_path(struct kube *k, const char *format, ...)
{
    va_list arguments;
    int length = snprintf(k->path, sizeof k->path, "/api/v1/namespaces/%.200s/", k->config.space);
    va_start(arguments, format);
    (void)vsnprintf(k->path + length, sizeof k->path - (size_t)length, format, arguments);
    va_end(arguments);
}

/* A new one, or what changes of one that there is. */
static int write_secret(struct kube *k, struct tm_error *e)
{
    char ticket[TM_REMOTE_WORDS_MAX];
    struct tm_jsonout json;
    int rc = k->options.ticket(k->options.ticket_context, k->call.instance, k->call.market, ticket, e);
    if (rc != 0) return rc;
    tm_jsonout_init_line(&json, &k->body);
    if (k->request == PATCH_SECRET)
        tm_kube_secret__write_patch("ticket", ticket, &json);
    else
        tm_kube_secret__write(k->call.name, k->options.pod.app, k->folder, "ticket", ticket, &json);
    memset(ticket, 0, sizeof ticket);
    return tm_text_status(&k->body, e);
}

static int write_pod(struct kube *k, struct tm_error *e)
{
    struct tm_kube_pod pod = k->options.pod;
    struct tm_jsonout json;
    pod.name = pod.secret = k->call.name;
    pod.secret_key = "ticket";
    pod.folder = k->folder;
    pod.instance = k->call.instance;
    pod.market = k->call.market;
    tm_jsonout_init_line(&json, &k->body);
    tm_kube_pod_write(&pod, &json);
    return tm_text_status(&k->body, e);
}

/* Which instance the pod is now. That it changes has the kubelet look at its Secret at once, not within a minute. */
static int write_number(struct kube *k, struct tm_error *e)
{
    struct tm_jsonout json;
    tm_jsonout_init_line(&json, &k->body);
    tm_kube_pod__write_patch(k->call.instance, &json);
    return tm_text_status(&k->body, e);
}

static int start(struct kube *k, enum request request, struct tm_error *e)
{
    int rc = 0;
    int64_t grace_s = k->call.force ? 0 : GRACE_S;
    if (k->body.data != NULL) memset(k->body.data, 0, k->body.length);
    tm_text_clear(&k->body);
    k->request = request;
    switch (request) {
    case POST_SECRET:
        set_path(k, "secrets");
        rc = write_secret(k, e);
        return rc == 0 ? ask(k, "POST", e) : rc;
    case POST_POD:
        set_path(k, "pods");
        rc = write_pod(k, e);
        return rc == 0 ? ask(k, "POST", e) : rc;
    case PATCH_SECRET:
        set_path(k, "secrets/%s", k->call.name);
        rc = write_secret(k, e);
        return rc == 0 ? ask(k, "PATCH", e) : rc;
    case PATCH_POD:
        set_path(k, "pods/%s", k->call.name);
        rc = write_number(k, e);
        return rc == 0 ? ask(k, "PATCH", e) : rc;
    case GET_PODS:
        set_path(k, "pods?labelSelector=tidemill.io%%2Ffolder%%3D%s", k->folder);
        return ask(k, "GET", e);
    case DELETE_POD:
        set_path(k, "pods/%s?gracePeriodSeconds=%" PRId64, k->call.name, grace_s);
        return ask(k, "DELETE", e);
    case DELETE_SECRET:
        set_path(k, "secrets/%s", k->call.name);
        return ask(k, "DELETE", e);
    case REQUEST_NONE:
        break;
    }
    return 0;
}

static int kube_begin(void *self, const struct tm_remote_call *call, struct tm_error *e)
{
    static const enum request first[] = {[TM_REMOTE_CREATE] = POST_SECRET,
                                         [TM_REMOTE_ADOPT] = PATCH_SECRET,
                                         [TM_REMOTE_LIST] = GET_PODS,
                                         [TM_REMOTE_DELETE] = DELETE_POD};
    struct kube *k = self;
    k->call = *call;
    k->doubted = false;
    return start(k, first[call->kind], e);
}

/* ---- answers ---- */

static bool is_good(int status)
{
    return status >= 200 && status < 300;
}

static void take_list(struct kube *k, const struct tm_web_answer *answer, struct tm_remote_answer *out)
{
    struct tm_error e = {.text = ""};
    int64_t now_ms = answer->date_ms > 0 ? answer->date_ms : k->env->now_ms(k->env);
    int rc = tm_kube_pods__read(tm_text_string(&answer->body), answer->body.length, now_ms, &k->rows, &k->row_capacity,
                                &k->row_count, &e);
    out->outcome = rc == 0 ? TM_REMOTE_DONE : TM_REMOTE_NO_ANSWER;
    if (rc != 0) (void)snprintf(out->words, sizeof out->words, "%.250s", e.text);
    out->rows = k->rows;
    out->row_count = rc == 0 ? k->row_count : 0;
}

/* What comes after a request: another one, or the answer. */
static enum request after(struct kube *k, const struct tm_web_answer *answer, struct tm_remote_answer *out)
{
    int status = answer->status;
    bool done = is_good(status);
    bool exists = status == 409 && (k->request == POST_SECRET || k->request == POST_POD); /* an answer was lost */
    bool gone = status == 404 && (k->request == DELETE_POD || k->request == DELETE_SECRET);
    out->outcome = done || exists ? TM_REMOTE_DONE : TM_REMOTE_REFUSED;
    if (!done) {
        tm_kube_status__read(tm_text_string(&answer->body), answer->body.length, out->words);
        if (out->words[0] == '\0') (void)snprintf(out->words, sizeof out->words, "HTTP status %d", status);
        if (status == 401)
            (void)snprintf(out->words, sizeof out->words, "the API server does not accept our credentials (401)");
    }
    if (status == 401 && k->config.command[0] != NULL && !k->doubted) {
        k->doubted = true;
        k->config.token_ends_ms = 0; /* the plugin is asked again, and so is this */
        return k->request;
    }
    if (status == 0 || status >= 500 || status == 429) out->outcome = TM_REMOTE_NO_ANSWER;
    if (k->request == POST_SECRET && (done || exists)) return POST_POD;
    if (k->request == PATCH_SECRET && done) return PATCH_POD;
    if (k->request == DELETE_POD && (done || gone)) {
        k->pod_gone = gone;
        return DELETE_SECRET;
    }
    if (k->request == DELETE_SECRET && (done || gone)) out->outcome = k->pod_gone ? TM_REMOTE_GONE : TM_REMOTE_DONE;
    if (k->request == GET_PODS && done) take_list(k, answer, out);
    return REQUEST_NONE;
}

static bool say(struct tm_remote_answer *out, const struct tm_error *e)
{
    *out = (struct tm_remote_answer){.outcome = TM_REMOTE_NO_ANSWER};
    (void)snprintf(out->words, sizeof out->words, "%.250s", e->text);
    return true;
}

/* False: the request is on its way, or must wait; true: it could not even be sent, as `out` says. */
static bool pass_plugin(struct kube *k, struct tm_remote_answer *out)
{
    struct tm_error e = {.text = ""};
    int rc = step_plugin(k, &e);
    if (!k->waits) {
        if (rc != 0) tm_log(TM_LOG_WARN, "pods: %s; the token that there is is good for less than a minute", e.text);
        return false;
    }
    if (rc == 0 && k->plugin.pid != 0) return false;
    k->waits = false;
    if (rc == 0) rc = send_request(k, &e);
    return rc != 0 && say(out, &e);
}

static bool kube_step(void *self, struct tm_remote_answer *out)
{
    struct kube *k = self;
    for (;;) {
        struct tm_web_answer answer = {.status = 0};
        struct tm_error e = {.text = ""};
        if (pass_plugin(k, out)) return true;
        if (k->waits) return false;
        tm_web_step(k->web);
        if (!tm_web_is_done(k->web_call)) return false;
        int rc = tm_web_end(k->web_call, &answer, &e);
        k->web_call = NULL;
        *out = (struct tm_remote_answer){.outcome = TM_REMOTE_NO_ANSWER};
        if (rc != 0) return say(out, &e);
        enum request next = after(k, &answer, out);
        tm_web_answer_deinit(&answer);
        if (next == REQUEST_NONE) return true;
        if (start(k, next, &e) != 0) return say(out, &e);
    }
}

static size_t kube_watch(void *self, int *handles, size_t max, int64_t *out_wait_ms)
{
    struct kube *k = self;
    struct tm_watch watches[HANDLES_MAX];
    int own[2];
    size_t count = 0;
    *out_wait_ms = INT64_MAX;
    if (!k->waits) count = tm_web_watch(k->web, watches, max < HANDLES_MAX ? max : HANDLES_MAX, out_wait_ms);
    for (size_t i = 0; i < count; i++) {
        handles[i] = watches[i].handle;
        if (watches[i].want != TM_WATCH_RECEIVE && *out_wait_ms > SEND_LOOK_MS) *out_wait_ms = SEND_LOOK_MS;
    }
    size_t more = tm_tool_process__watch(&k->plugin, own);
    for (size_t i = 0; i < more && count < max; i++)
        handles[count++] = own[i];
    int64_t left_ms = k->plugin.deadline_ms - now_ms(k);
    if (more > 0 && *out_wait_ms > left_ms) *out_wait_ms = left_ms > 0 ? left_ms : 0;
    return count;
}

/* ---- life ---- */

/* Waits for the call: at the beginning and at the end. */
static void wait_for(struct kube *k, struct tm_remote_answer *out)
{
    while (!kube_step(k, out)) {
        int handles[HANDLES_MAX];
        bool ready[HANDLES_MAX];
        int64_t wait_ms = 0;
        size_t count = kube_watch(k, handles, HANDLES_MAX, &wait_ms);
        (void)k->env->net_wait(k->env, handles, count, wait_ms < CALL_MS ? wait_ms : CALL_MS, ready, NULL);
    }
}

static void kube_destroy(void *self, bool whole)
{
    struct kube *k = self;
    struct tm_remote_answer answer;
    if (whole) { /* Secrets whose pods were never made */
        tm_text_clear(&k->body);
        k->request = DELETE_SECRET;
        set_path(k, "secrets?labelSelector=tidemill.io%%2Ffolder%%3D%s", k->folder);
        if (ask(k, "DELETE", NULL) == 0) wait_for(k, &answer);
    }
    tm_tool_process__stop(&k->plugin, k->env);
    tm_text_deinit(&k->plugin.text);
    tm_web_destroy(k->web);
    tm_text_deinit(&k->body);
    tm_free(k->rows);
    tm_free(k);
}

/* Once, before anything is made: is it there, and may we? */
static int check(struct kube *k, struct tm_error *e)
{
    const struct tm_remote_call call = {.kind = TM_REMOTE_LIST};
    struct tm_remote_answer answer = {.outcome = TM_REMOTE_DONE};
    int rc = kube_begin(k, &call, e);
    if (rc == 0) wait_for(k, &answer);
    if (rc != 0 || answer.outcome == TM_REMOTE_DONE) return rc;
    return tm_error_set(e, answer.outcome == TM_REMOTE_REFUSED ? TM_EINPUT : TM_EPEER,
                        "Kubernetes at %s, namespace %s: %s", k->config.server, k->config.space, answer.words);
}

static int open_kube(struct kube *k, struct tm_error *e)
{
    const struct tm_kube_options *options = &k->options;
    int rc = tm_kube_config__find(k->env, options->context, options->arena, &k->config, e);
    if (rc == 0 && options->space != NULL) k->config.space = options->space;
    if (rc == 0 && !tm_dns_label_is_good(k->config.space))
        rc = tm_error_set(e, TM_EINPUT, "\"%.60s\" cannot be the name of a namespace", k->config.space);
    if (rc == 0) rc = tm_web_create(k->env, &k->web, e);
    tm_remote__prefix(options->folder, k->prefix);
    (void)snprintf(k->folder, sizeof k->folder, "%.*s", (int)strlen(k->prefix) - 1, k->prefix);
    (void)snprintf(k->look_up, sizeof k->look_up, "kubectl get pods -n %.100s -l " TM_KUBE_LABEL_FOLDER "=%s",
                   rc == 0 ? k->config.space : "default", k->folder);
    return rc == 0 ? check(k, e) : rc;
}

int tm_kube_cloud_create(struct tm_env *env, const struct tm_kube_options *options, struct tm_cloud **out,
                         struct tm_error *e)
{
    struct kube *k = tm_calloc(1, sizeof *k);
    if (k == NULL) return tm_error_nomem(e);
    k->env = env;
    k->options = *options;
    tm_text_init(&k->body, BODY_MAX);
    tm_text_init(&k->plugin.text, BODY_MAX);
    int rc = open_kube(k, e);
    if (rc != 0) {
        kube_destroy(k, false);
        return rc;
    }
    struct tm_remote_driver driver = {.self = k,
                                      .things = "pods",
                                      .look_up = k->look_up,
                                      .adopts_waiting = true,
                                      .begin = kube_begin,
                                      .step = kube_step,
                                      .watch = kube_watch,
                                      .destroy = kube_destroy};
    struct tm_remote_options remote = {.prefix = k->prefix,
                                       .type = "pod",
                                       .limit = {options->limit[0], options->limit[1]},
                                       .price_usd_h = {options->price_usd_h[0], options->price_usd_h[1]},
                                       .poll_ms = options->poll_ms > 0 ? options->poll_ms : POLL_MS,
                                       .end_limit_ms = END_LIMIT_MS,
                                       .start_limit_ms = START_LIMIT_MS,
                                       .delete_again_ms = FORCE_AFTER_MS,
                                       .id_first = options->id_first,
                                       .has_joined = options->has_joined,
                                       .context = options->ticket_context};
    return tm_remote_cloud__create(env, &driver, &remote, out, e);
}
