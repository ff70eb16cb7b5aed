#include "api/api_server.h"

#include "api/api_answer.h"
#include "base/alloc.h"
#include "run/state_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CONNECTIONS = 24, WORDS = 4, TELL_AGAIN_MS = 1000, KEEP_MS = 30000 };

struct tm_api_server {
    struct tm_env *env;
    struct tm_http_server *http;
    struct tm_api_source source; /* its tap: while it is served */
    uint64_t sequence;           /* held requests are answered when it changes */
    char credential[TM_API_CREDENTIAL_MAX];
    char dir[TM_STATE_PATH_MAX];
    char path[TM_STATE_PATH_MAX];
    char told[TM_ADDRESS_MAX + TM_API_CREDENTIAL_MAX]; /* what the file is to say */
    bool untold;                                       /* the disk was full: it is tried again */
    int64_t tried_ms;
};

static int64_t answer(void *context, const struct tm_http_request *request, struct tm_text *out)
{
    struct tm_api_server *server = context;
    return tm_api__answer(&server->source, server->credential, request, out);
}

/* A full disk is no reason not to run: the owner is told when there is room. */
static int tell(struct tm_api_server *server, struct tm_error *e)
{
    int rc = tm_state_write(server->env, server->dir, TM_STATE_API, server->told, e);
    server->untold = rc == -(int)TM_EFULL;
    server->tried_ms = server->env->monotonic_ns(server->env) / 1000000;
    return server->untold ? 0 : rc;
}

static int listen_and_tell(struct tm_api_server *server, struct tm_error *e)
{
    char bound[TM_ADDRESS_MAX];
    int number = 0;
    struct tm_http_listener listener = {.answer = answer, .context = server, .version = &server->sequence};
    int rc = tm_http_server_open(server->http, "127.0.0.1:0", &listener, bound, &number, e);
    if (rc != 0) return rc;
    (void)snprintf(server->told, sizeof server->told, "%s %s", bound, server->credential);
    return tell(server, e);
}

int tm_api_server_create(struct tm_env *env, const char *state_dir, struct tm_api_server **out, struct tm_error *e)
{
    struct tm_http_limits limits = {.listeners = 1,
                                    .connections = CONNECTIONS,
                                    .connections_each = CONNECTIONS,
                                    .response_max = TM_API_RESPONSE_MAX + 4096,
                                    .keep_ms = KEEP_MS};
    struct tm_api_server *server = tm_calloc(1, sizeof *server);
    if (server == NULL) return tm_error_nomem(e);
    server->env = env;
    (void)snprintf(server->dir, sizeof server->dir, "%s", state_dir);
    tm_state_path(state_dir, TM_STATE_API, server->path);
    server->source = (struct tm_api_source){.env = env, .dir = server->dir, .live = true};
    for (size_t i = 0; i < WORDS; i++)
        (void)snprintf(server->credential + 16 * i, 17, "%016" PRIx64, env->random_u64(env));
    server->http = tm_http_server_create(env, &limits);
    int rc = server->http == NULL ? tm_error_nomem(e) : listen_and_tell(server, e);
    if (rc != 0) {
        tm_api_server_destroy(server);
        return tm_error_wrap(e, rc, "status API");
    }
    *out = server;
    return 0;
}

void tm_api_server_destroy(struct tm_api_server *server)
{
    if (server == NULL) return;
    if (server->http != NULL) (void)server->env->file_remove(server->env, server->path, NULL);
    tm_http_server_destroy(server->http);
    tm_api__source_deinit(&server->source);
    tm_free(server);
}

static void serve(void *context, struct tm_run_tap *tap)
{
    struct tm_api_server *server = context;
    bool due = server->untold && server->env->monotonic_ns(server->env) / 1000000 - server->tried_ms >= TELL_AGAIN_MS;
    if (due) (void)tell(server, NULL);
    server->source.tap = tap;
    server->sequence = tap->sequence;
    tm_http_server_serve(server->http);
    server->source.tap = NULL;
}

static size_t watch(void *context, int *handles, size_t max, int64_t *out_wait_ms)
{
    const struct tm_api_server *server = context;
    return tm_http_server_watch(server->http, handles, max, out_wait_ms);
}

struct tm_run_hook tm_api_server_hook(struct tm_api_server *server)
{
    return (struct tm_run_hook){.context = server, .serve = serve, .watch = watch};
}
