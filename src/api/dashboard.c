#include "api/dashboard_internal.h"

#include "base/address.h"
#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

enum {
    CONNECTIONS = 256,
    BODY_MAX = 256 << 10,
    KEEP_MS = 30000,
    SEARCH_MS = 2000,
    HANDLES = CONNECTIONS + 1 + TM_DASHBOARD_FETCHES,
    CHILDREN_MS = 50
};

int64_t tm_dashboard__now_ms(const struct tm_dashboard *d)
{
    return d->env->monotonic_ns(d->env) / 1000000;
}

/* Nothing is served off loopback without TLS: the user's own certificate, or one that is made on first use. */
static int open_tls(struct tm_dashboard *d, struct tm_error *e)
{
    char folder[TM_STATE_PATH_MAX], host[TM_ADDRESS_MAX], port[TM_PORT_MAX];
    const struct tm_dashboard_options *options = &d->options;
    int rc = tm_address_split(options->listen, host, port, e);
    if (rc != 0) return tm_error_wrap(e, rc, "--listen");
    d->guarded = !tm_address_is_loopback(options->listen);
    if ((options->tls_certificate != NULL) != (options->tls_key != NULL))
        return tm_error_set(e, TM_EUSAGE, "--tls-cert and --tls-key belong together");
    if (!d->guarded && options->tls_certificate == NULL) return 0;
    const char *names[TM_TLS_NAMES_MAX] = {"localhost", "127.0.0.1"};
    size_t count = 2;
    if (!tm_host_is_any(host)) names[count++] = host;
    if (options->name_count > 0 && count < TM_TLS_NAMES_MAX) names[count] = options->names[0];
    (void)snprintf(folder, sizeof folder, "%s/dashboard-tls", options->root);
    if (options->tls_certificate != NULL)
        rc = tm_tls_load_server(d->env, options->tls_certificate, options->tls_key, &d->tls, e);
    else
        rc = tm_tls_load_or_make_server(d->env, folder, names, &d->tls, e);
    if (rc != 0) return rc;
    d->tls_net = tm_tls_net_create(d->env, d->tls, true, NULL);
    return d->tls_net == NULL ? tm_error_nomem(e) : 0;
}

static int open_server(struct tm_dashboard *d, struct tm_error *e)
{
    struct tm_http_limits limits = {.listeners = 1,
                                    .connections = CONNECTIONS,
                                    .connections_each = CONNECTIONS,
                                    .response_max = TM_API_RESPONSE_MAX + 8192,
                                    .body_max = BODY_MAX,
                                    .keep_ms = KEEP_MS};
    struct tm_http_listener listener = {.answer = tm_dashboard__answer, .context = d, .version = &d->version};
    int number = 0;
    d->http = tm_http_server_create(d->tls_net != NULL ? tm_tls_net_env(d->tls_net) : d->env, &limits);
    if (d->http == NULL) return tm_error_nomem(e);
    int rc = tm_http_server_open(d->http, d->options.listen, &listener, d->address, &number, e);
    if (rc != 0) return rc;
    const char *port = strrchr(d->address, ':');
    (void)snprintf(d->cookie, sizeof d->cookie, "%stidemill-%.20s", d->tls != NULL ? "__Host-" : "",
                   port == NULL ? "0" : port + 1);
    d->place = (struct tm_api_place){
        .tls = d->tls != NULL, .open = d->guarded, .names = d->options.names, .name_count = d->options.name_count};
    return 0;
}

int tm_dashboard_create(struct tm_env *env, const struct tm_dashboard_options *options, struct tm_dashboard **out,
                        struct tm_error *e)
{
    struct tm_dashboard *d = tm_calloc(1, sizeof *d);
    if (d == NULL) return tm_error_nomem(e);
    d->env = env;
    d->options = *options;
    d->searched_ms = -1;
    int rc = tm_dashboard__load_tokens(d, e);
    if (rc == 0) rc = open_tls(d, e);
    if (rc == 0) rc = tm_dashboard__attach(d, e);
    if (rc == 0) rc = open_server(d, e);
    if (rc != 0) {
        tm_dashboard_destroy(d);
        return tm_error_wrap(e, rc, "dashboard");
    }
    *out = d;
    return 0;
}

void tm_dashboard_destroy(struct tm_dashboard *d)
{
    if (d == NULL) return;
    tm_http_server_destroy(d->http);
    tm_dashboard__end_children(d);
    tm_dashboard__forget_fetches(d, NULL);
    tm_dashboard__forget_jobs(d);
    tm_dashboard__detach(d);
    tm_tls_net_destroy(d->tls_net);
    tm_tls_destroy(d->tls);
    tm_free(d);
}

void tm_dashboard_link(const struct tm_dashboard *d, bool steer, struct tm_text *out)
{
    char host[TM_ADDRESS_MAX], port[TM_PORT_MAX], address[TM_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "%s", d->address);
    bool any = tm_address_split(d->address, host, port, NULL) == 0 && tm_host_is_any(host);
    if (any) tm_address_join(d->options.name_count > 0 ? d->options.names[0] : "127.0.0.1", port, address);
    tm_text_printf(out, "http%s://%s/#token=%s", d->tls != NULL ? "s" : "", address,
                   steer ? d->steer_token : d->watch_token);
}

void tm_dashboard_fingerprint(const struct tm_dashboard *d, struct tm_text *out)
{
    char text[TM_TLS_FINGERPRINT_TEXT_MAX];
    if (d->tls == NULL) return;
    tm_tls_print_fingerprint(d->tls, text);
    tm_text_puts(out, text);
}

static void await(struct tm_dashboard *d, int64_t timeout_ms)
{
    int handles[HANDLES];
    bool ready[HANDLES];
    int64_t wait_ms = 0;
    size_t count = tm_http_server_watch(d->http, handles, CONNECTIONS + 1, &wait_ms);
    if (wait_ms < timeout_ms) timeout_ms = wait_ms;
    for (size_t i = 0; i < TM_DASHBOARD_FETCHES; i++) {
        const struct tm_fetch *fetch = &d->fetches[i];
        if (fetch->state == TM_FETCH_ASKING && fetch->call.handle >= 0) handles[count++] = fetch->call.handle;
    }
    for (size_t i = 0; i < TM_DASHBOARD_CHILDREN; i++)
        if (d->children[i].number != 0 && d->children[i].pid > 0 && timeout_ms > CHILDREN_MS) timeout_ms = CHILDREN_MS;
    (void)d->env->net_wait(d->env, handles, count, timeout_ms, ready, NULL);
}

void tm_dashboard_step(struct tm_dashboard *d, int64_t timeout_ms)
{
    uint64_t before = d->version;
    if (d->searched_ms < 0 || tm_dashboard__now_ms(d) - d->searched_ms >= SEARCH_MS) tm_dashboard__search(d);
    if (timeout_ms > 0) await(d, timeout_ms);
    tm_dashboard__step_fetches(d);
    tm_dashboard__step_children(d);
    tm_http_server_serve(d->http);
    if (d->version != before) tm_http_server_serve(d->http); /* what has come is passed on at once */
}
