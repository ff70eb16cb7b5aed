#include "base/http_call.h"

void tm_http_call_init(struct tm_http_call *call, struct tm_env *env, size_t received_max)
{
    *call = (struct tm_http_call){.env = env, .handle = -1};
    tm_text_init(&call->request, TM_HTTP_HEAD_MAX);
    tm_text_init(&call->received, received_max);
}

void tm_http_call_hang_up(struct tm_http_call *call)
{
    if (call->handle >= 0) call->env->net_close(call->env, call->handle);
    call->handle = -1;
}

void tm_http_call_deinit(struct tm_http_call *call)
{
    tm_http_call_hang_up(call);
    tm_text_deinit(&call->request);
    tm_text_deinit(&call->received);
}

void tm_http_call_clear(struct tm_http_call *call)
{
    tm_http_call_hang_up(call);
    tm_text_clear(&call->request);
    tm_text_clear(&call->received);
    call->sent = 0;
}

int tm_http_call_begin(struct tm_http_call *call, const char *address, struct tm_error *e)
{
    tm_text_printf(&call->request, "Host: %s\r\nAccept: */*\r\nConnection: close\r\n\r\n", address);
    int rc = tm_text_status(&call->request, e);
    return rc != 0 ? rc : call->env->net_connect(call->env, address, &call->handle, e);
}

static int send_rest(struct tm_http_call *call, struct tm_error *e)
{
    struct tm_env *env = call->env;
    while (call->sent < call->request.length) {
        size_t done = 0;
        int rc = env->net_send(env, call->handle, call->request.data + call->sent, call->request.length - call->sent,
                               &done, e);
        if (rc != 0) return rc;
        call->sent += done;
    }
    return 0;
}

static int receive_some(struct tm_http_call *call, bool *out_closed, struct tm_error *e)
{
    struct tm_env *env = call->env;
    char buffer[4096];
    for (;;) {
        size_t got = 0;
        int rc = env->net_receive(env, call->handle, buffer, sizeof buffer, &got, e);
        if (rc == -(int)TM_EBUSY) return 0;
        if (rc != 0) return rc;
        if (got == 0) {
            *out_closed = true;
            return 0;
        }
        tm_text_append(&call->received, buffer, got);
        rc = tm_text_status(&call->received, e);
        if (rc != 0) return rc;
    }
}

int tm_http_call_step(struct tm_http_call *call, struct tm_http_head *head, struct tm_text *body, struct tm_error *e)
{
    bool closed = false;
    int rc = send_rest(call, e);
    if (rc == 0) rc = receive_some(call, &closed, e);
    if (rc != 0) return rc;
    const char *bytes = tm_text_string(&call->received);
    rc = tm_http__read_response(bytes, call->received.length, head, e);
    if (rc == -(int)TM_EBUSY && closed) return tm_error_set(e, TM_EPEER, "the connection closed before an answer came");
    if (rc == 0)
        rc = tm_http__read_body(head, bytes + head->length, call->received.length - head->length, closed, body, e);
    if (rc == 0) tm_http_call_hang_up(call);
    return rc;
}

int tm_http_call_wait(struct tm_http_call *call, const char *address, int64_t timeout_ms, struct tm_http_head *head,
                      struct tm_text *body, struct tm_error *e)
{
    struct tm_env *env = call->env;
    int64_t end_ms = env->monotonic_ns(env) / 1000000 + timeout_ms;
    int rc = tm_http_call_begin(call, address, e);
    if (rc != 0) return rc;
    while ((rc = tm_http_call_step(call, head, body, e)) == -(int)TM_EBUSY) {
        int64_t left_ms = end_ms - env->monotonic_ns(env) / 1000000;
        bool ready = false;
        if (left_ms <= 0) {
            rc = tm_error_set(e, TM_ETIMEOUT, "no complete answer in time");
            break;
        }
        if (call->sent < call->request.length)
            (void)env->net_wait_send(env, call->handle, left_ms, NULL);
        else
            (void)env->net_wait(env, &call->handle, 1, left_ms, &ready, NULL);
    }
    tm_http_call_hang_up(call);
    return rc;
}
