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

/* Whatever is not on loopback would need TLS: rather an SSH tunnel. */
static int check_listen(const char *listen, struct tm_error *e)
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    int rc = tm_address_split(listen, host, port, e);
    if (rc != 0) return tm_error_wrap(e, rc, "--listen");
    if (strcmp(host, "127.0.0.1") == 0 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0) return 0;
    return tm_error_set(
        e, TM_EUSAGE,
        "--listen %s: the dashboard listens on loopback only (127.0.0.1, ::1, localhost); from elsewhere "
        "use ssh -L 8642:127.0.0.1:8642 HOST",
        listen);
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
    d->http = tm_http_server_create(d->env, &limits);
    if (d->http == NULL) return tm_error_nomem(e);
    int rc = tm_http_server_open(d->http, d->options.listen, &listener, d->address, &number, e);
    if (rc != 0) return rc;
    const char *port = strrchr(d->address, ':');
    (void)snprintf(d->cookie, sizeof d->cookie, "tidemill-%.20s", port == NULL ? "0" : port + 1);
    return 0;
}

int tm_dashboard_create(struct tm_env *env, const struct tm_dashboard_options *options, struct tm_dashboard **out,
                        struct tm_error *e)
{
    int rc = check_listen(options->listen, e);
    if (rc != 0) return rc;
    struct tm_dashboard *d = tm_calloc(1, sizeof *d);
    if (d == NULL) return tm_error_nomem(e);
    d->env = env;
    d->options = *options;
    d->searched_ms = -1;
    rc = tm_dashboard__load_tokens(d, e);
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
    tm_free(d);
}

void tm_dashboard_link(const struct tm_dashboard *d, bool steer, struct tm_text *out)
{
    tm_text_printf(out, "http://%s/#token=%s", d->address, steer ? d->steer_token : d->watch_token);
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
