#include "cloud/metadata_server.h"

#include "base/address.h"
#include "base/alloc.h"
#include "base/http_server.h"

#include <stdio.h>

enum { RESPONSE_MAX = 16384 };

struct endpoint {
    struct tm_env *env;
    const struct tm_metadata *known;
    struct tm_metadata_tokens tokens;
};

struct tm_metadata_server {
    struct tm_env *env;
    struct tm_http_server *http;
    struct endpoint endpoints[TM_METADATA_ENDPOINTS]; /* by listener */
};

struct tm_metadata_server *tm_metadata_server__create(struct tm_env *env)
{
    struct tm_http_limits limits = {.listeners = TM_METADATA_ENDPOINTS,
                                    .connections = TM_METADATA_CONNECTIONS,
                                    .connections_each = TM_METADATA_CONNECTIONS_EACH,
                                    .response_max = RESPONSE_MAX};
    struct tm_metadata_server *server = tm_calloc(1, sizeof *server);
    if (server == NULL) return NULL;
    server->env = env;
    server->http = tm_http_server_create(env, &limits);
    if (server->http != NULL) return server;
    tm_free(server);
    return NULL;
}

void tm_metadata_server__destroy(struct tm_metadata_server *server)
{
    if (server == NULL) return;
    tm_http_server_destroy(server->http);
    tm_free(server);
}

static int64_t answer(void *context, const struct tm_http_request *request, struct tm_text *out)
{
    struct endpoint *endpoint = context;
    struct tm_env *env = endpoint->env;
    const uint64_t random[2] = {env->random_u64(env), env->random_u64(env)};
    return tm_metadata__respond(endpoint->known, request->head, &endpoint->tokens, request->now_ms, request->waited,
                                random, out)
        .hold_ms;
}

int tm_metadata_server__open(struct tm_metadata_server *server, const char *host, const struct tm_metadata *known,
                             char bound[TM_ADDRESS_MAX], int *out_endpoint, struct tm_error *e)
{
    char address[TM_ADDRESS_MAX];
    tm_address_join(host, "0", address);
    int number = tm_http_server_free(server->http);
    struct endpoint *endpoint = &server->endpoints[number < 0 ? 0 : number];
    struct tm_http_listener listener = {.answer = answer, .context = endpoint, .version = &known->version};
    int rc = tm_http_server_open(server->http, address, &listener, bound, &number, e);
    if (rc != 0) return tm_error_wrap(e, rc, "metadata endpoint");
    *endpoint = (struct endpoint){.env = server->env, .known = known};
    *out_endpoint = number;
    return 0;
}

void tm_metadata_server__close(struct tm_metadata_server *server, int endpoint)
{
    tm_http_server_close(server->http, endpoint);
}

void tm_metadata_server__serve(struct tm_metadata_server *server)
{
    tm_http_server_serve(server->http);
}

size_t tm_metadata_server__watch(const struct tm_metadata_server *server, int *handles, size_t max,
                                 int64_t *out_wait_ms)
{
    return tm_http_server_watch(server->http, handles, max, out_wait_ms);
}
