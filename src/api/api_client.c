#include "api/api_client.h"

#include "api/api_answer.h"
#include "api/api_server.h"
#include "base/alloc.h"
#include "base/doc.h"
#include "run/find_run.h"
#include "run/run_home.h"
#include "run/run_tap.h"
#include "run/state_folder.h"
#include "wire/tls_net.h"
#include "wire/tls_page.h"

#include <stdio.h>
#include <string.h>

enum { STEP_LIMIT_MS = 2000, TRIES = 5, ANSWER_MS = 3000 };

struct tm_api_client {
    struct tm_env *env;
    const char *state_dir;
    struct tm_http_call call;
    int64_t until_ms; /* of the call under way */
    /* of a run that another machine has: whom it is asked from */
    struct tm_tls *tls;
    struct tm_tls_net *net;
    uint8_t fingerprint[TM_TLS_FINGERPRINT_BYTES];
};

struct tm_api_client *tm_api_client_create(struct tm_env *env, const char *state_dir)
{
    struct tm_api_client *client = tm_calloc(1, sizeof *client);
    if (client == NULL) return NULL;
    client->env = env;
    client->state_dir = state_dir;
    tm_http_call_init(&client->call, env, TM_API_RESPONSE_MAX + TM_HTTP_HEAD_MAX);
    return client;
}

static void close_tls(struct tm_api_client *client)
{
    tm_tls_net_destroy(client->net);
    tm_tls_destroy(client->tls);
    client->net = NULL;
    client->tls = NULL;
}

void tm_api_client_destroy(struct tm_api_client *client)
{
    if (client == NULL) return;
    tm_http_call_deinit(&client->call);
    close_tls(client);
    tm_free(client);
}

/* Only the one that has this certificate is spoken with. */
static int open_tls(struct tm_api_client *client, const char *fingerprint, struct tm_error *e)
{
    uint8_t bytes[TM_TLS_FINGERPRINT_BYTES];
    if (!tm_tls_read_fingerprint(fingerprint, bytes))
        return tm_error_set(e, TM_EINPUT, "%s/api: \"%.80s\" is no fingerprint", client->state_dir, fingerprint);
    if (client->net != NULL && memcmp(bytes, client->fingerprint, sizeof bytes) == 0) return 0;
    tm_http_call_hang_up(&client->call);
    close_tls(client);
    memcpy(client->fingerprint, bytes, sizeof bytes);
    int rc = tm_tls_create_client(bytes, &client->tls, e);
    if (rc != 0) return rc;
    client->net = tm_tls_net_create(client->env, client->tls, false, NULL);
    return client->net == NULL ? tm_error_nomem(e) : 0;
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-_.", c) != NULL;
}

/* A dashboard answers for it, there: it has several runs. */
static int prepare_away(struct tm_api_client *client, const char *method, const char *target, char *text,
                        char address[TM_ADDRESS_MAX], struct tm_error *e)
{
    struct tm_home_where where;
    if (!tm_home_where_read(text, &where) || strlen(where.address) >= TM_ADDRESS_MAX)
        return tm_error_set(e, TM_EINPUT, "%s/api was not written by a run", client->state_dir);
    int rc = open_tls(client, where.fingerprint, e);
    if (rc != 0) return rc;
    (void)snprintf(address, TM_ADDRESS_MAX, "%s", where.address);
    tm_http_call_clear(&client->call);
    client->call.env = tm_tls_net_env(client->net);
    tm_text_printf(&client->call.request, "%s /v1/jobs/", method);
    for (const char *at = where.name; *at != '\0'; at++)
        tm_text_printf(&client->call.request, is_plain(*at) ? "%c" : "%%%02X",
                       is_plain(*at) ? *at : (unsigned char)*at);
    tm_text_printf(&client->call.request, "%s HTTP/1.1\r\nAuthorization: Bearer %s\r\n", target + strlen("/v1"),
                   where.token);
    return 0;
}

/* Puts the request together; `address` is where to send it. */
static int prepare(struct tm_api_client *client, const char *method, const char *target, char address[TM_ADDRESS_MAX],
                   struct tm_error *e)
{
    char text[TM_HOME_WHERE_MAX];
    int rc = tm_state_read(client->env, client->state_dir, TM_STATE_API, text, sizeof text, e);
    if (rc == 0 && strncmp(text, "https://", strlen("https://")) == 0) {
        rc = prepare_away(client, method, target, text, address, e);
        if (rc == 0 && strcmp(method, "GET") != 0) tm_text_puts(&client->call.request, "Content-Length: 0\r\n");
        return rc;
    }
    if (rc != 0) return rc;
    char *space = strchr(text, ' ');
    if (space == NULL || space - text >= TM_ADDRESS_MAX || strchr(text, '\n') != NULL)
        return tm_error_set(e, TM_EINPUT, "%s/api was not written by a coordinator", client->state_dir);
    *space = '\0';
    memcpy(address, text, (size_t)(space - text) + 1);
    tm_http_call_clear(&client->call);
    client->call.env = client->env;
    tm_text_printf(&client->call.request, "%s %s HTTP/1.1\r\nAuthorization: Bearer %s\r\n", method, target, space + 1);
    if (strcmp(method, "GET") != 0) tm_text_puts(&client->call.request, "Content-Length: 0\r\n");
    return 0;
}

static int check_answer(const struct tm_http_head *head, const struct tm_text *body, struct tm_error *e)
{
    json_t *root = NULL;
    if (head->status >= 200 && head->status <= 299) return 0;
    bool is_json = body->length > 0 && tm_json_load("answer", body->data, body->length, &root, NULL) == 0;
    const char *why = is_json ? json_string_value(json_object_get(root, "error")) : NULL;
    int rc = tm_error_set(e, head->status == 400 ? TM_EUSAGE : TM_EPEER, "the coordinator answered %d%s%s",
                          head->status, why == NULL ? "" : ": ", why == NULL ? "" : why);
    json_decref(root);
    return rc;
}

int tm_api_ask(struct tm_api_client *client, const char *method, const char *target, int64_t timeout_ms,
               struct tm_text *body, struct tm_error *e)
{
    char address[TM_ADDRESS_MAX];
    struct tm_http_head head;
    int rc = -1;
    bool crowded =
        true; /* closed before our request was heard: many connect at once, and the next try may be luckier */
    for (int i = 0; crowded && i < TRIES; i++) {
        rc = prepare(client, method, target, address, e);
        if (rc == 0) rc = tm_http_call_wait(&client->call, address, timeout_ms, &head, body, e);
        crowded = rc == -(int)TM_EPEER && client->call.sent > 0 && client->call.received.length == 0;
    }
    if (rc == 0) rc = check_answer(&head, body, e);
    return rc;
}

int tm_api_status(struct tm_api_client *client, int64_t timeout_ms, struct tm_run_status *out, struct tm_error *e)
{
    struct tm_text body;
    tm_text_init(&body, TM_API_RESPONSE_MAX);
    int rc = tm_api_ask(client, "GET", "/v1/status", timeout_ms, &body, e);
    if (rc == 0) rc = tm_run_status_read("status API", tm_text_string(&body), body.length, out, e);
    tm_text_deinit(&body);
    return rc;
}

int tm_api_ask_step(struct tm_api_client *client, const char *target, struct tm_text *body, struct tm_error *e)
{
    struct tm_http_call *call = &client->call;
    struct tm_http_head head;
    int64_t now_ms = client->env->monotonic_ns(client->env) / 1000000;
    if (call->handle < 0) {
        char address[TM_ADDRESS_MAX];
        int rc = prepare(client, "GET", target, address, e);
        if (rc == 0) rc = tm_http_call_begin(call, address, e);
        if (rc != 0) return rc;
        client->until_ms = now_ms + STEP_LIMIT_MS;
    }
    int rc = tm_http_call_step(call, &head, body, e);
    if (rc == 0) rc = check_answer(&head, body, e);
    if (rc == -(int)TM_EBUSY && now_ms > client->until_ms) rc = tm_error_set(e, TM_ETIMEOUT, "no answer in time");
    if (rc != -(int)TM_EBUSY) tm_http_call_hang_up(call);
    return rc;
}

int tm_api_status_step(struct tm_api_client *client, struct tm_run_status *out, struct tm_error *e)
{
    struct tm_text body;
    tm_text_init(&body, TM_API_RESPONSE_MAX);
    int rc = tm_api_ask_step(client, "/v1/status", &body, e);
    if (rc == 0) rc = tm_run_status_read("status API", tm_text_string(&body), body.length, out, e);
    tm_text_deinit(&body);
    return rc;
}

/* ---- a run ---- */

int tm_api_run_status(struct tm_env *env, const char *state_dir, struct tm_run_status *out, struct tm_error *e)
{
    struct tm_error asking = {.text = ""};
    struct tm_api_client *client = tm_api_client_create(env, state_dir);
    if (client == NULL) return tm_error_nomem(e);
    int rc = tm_api_status(client, ANSWER_MS, out, &asking);
    tm_api_client_destroy(client);
    if (rc == 0) return 0;
    rc = tm_run_record_status(state_dir, out, e);
    if (rc == -(int)TM_EBUSY) /* a coordinator has the record, but does not answer */
        return tm_error_set(e, TM_EBUSY, "the coordinator does not answer (%s); try again", asking.text);
    return rc;
}

const char *tm_api_away_note(struct tm_env *env, const char *state_dir, const struct tm_run_status *status)
{
    if (status->live || status->state == TM_JOB_FINISHED || status->state == TM_JOB_FAILED) return "";
    if (tm_run_is_owned(env, state_dir) && tm_run_is_away(env, state_dir))
        return "by its books in the bucket, a few seconds old: its coordinator is not reached from here";
    if (tm_run_is_owned(env, state_dir))
        return "the coordinator does not answer; training continues without it for a while";
    return "not running; resume it with tidemill run --resume";
}
