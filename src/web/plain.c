#include "web/plain.h"

#include <string.h>

enum { TRIES = 3, END_MS = 10000 };

struct plain {
    const char *url;
    const char *header;
};

static int prepare(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    (void)e;
    const struct plain *p = context;
    tm_text_puts(url, p->url);
    tm_text_puts(headers, p->header);
    return 0;
}

int tm_web_plain__ask(struct tm_env *env, const char *method, const char *url, const char *header, const char *body,
                      int64_t deadline_ms, struct tm_web_answer *out, struct tm_error *e)
{
    struct tm_web *web = NULL;
    struct plain plain = {url, header};
    struct tm_web_request request = {.method = method,
                                     .body = body,
                                     .length = body != NULL ? strlen(body) : 0,
                                     .deadline_ms = deadline_ms,
                                     .tries_max = TRIES,
                                     .direct = strncmp(url, "http://", 7) == 0,
                                     .secret = true,
                                     .prepare = prepare,
                                     .context = &plain};
    int rc = tm_web_create(env, &web, e);
    if (rc == 0) rc = tm_web_ask(web, &request, out, e);
    tm_web_destroy(web);
    return rc;
}

static int read_output(struct tm_env *env, int handle, int64_t limit_ms, struct tm_text *out, struct tm_error *e)
{
    int64_t until = env->monotonic_ns(env) + limit_ms * 1000000;
    for (;;) {
        char buffer[4096];
        size_t got = 0;
        int rc = env->net_receive(env, handle, buffer, sizeof buffer, &got, e);
        if (rc == 0 && got == 0) return tm_text_status(out, e);
        if (rc == 0) tm_text_append(out, buffer, got);
        if (rc == -(int)TM_EBUSY) {
            bool ready = false;
            int64_t left_ms = (until - env->monotonic_ns(env)) / 1000000;
            rc = left_ms <= 0 ? tm_error_set(e, TM_ETIMEOUT, "no answer in %d seconds", (int)(limit_ms / 1000))
                              : env->net_wait(env, &handle, 1, left_ms, &ready, e);
            if (rc == -(int)TM_ETIMEOUT)
                return tm_error_set(e, TM_ETIMEOUT, "no answer in %d seconds", (int)(limit_ms / 1000));
        }
        if (rc != 0) return rc;
    }
}

int tm_web_process__ask(struct tm_env *env, const char *const *argv, int64_t limit_ms, struct tm_text *out,
                        struct tm_error *e)
{
    int pid = 0;
    int handle = -1;
    int status = 0;
    int rc = env->process_start_with(
        env, &(struct tm_process_options){.argv = argv, .group = true, .captured = &handle}, &pid, e);
    if (rc != 0) return rc;
    rc = read_output(env, handle, limit_ms, out, e);
    if (rc != 0) (void)env->process_signal_group(env, pid, 9, NULL);
    env->net_close(env, handle);
    int waited = env->process_wait(env, pid, limit_ms < END_MS ? limit_ms : END_MS, &status, rc == 0 ? e : NULL);
    if (waited == -(int)TM_ETIMEOUT && rc == 0) { /* it has said all, and stays */
        (void)env->process_signal_group(env, pid, 9, NULL);
        (void)env->process_wait(env, pid, END_MS, &status, NULL);
    }
    if (rc == 0) rc = waited;
    if (rc == 0 && status != 0) rc = tm_error_set(e, TM_EINPUT, "it ended with status %d; run it to see why", status);
    return rc;
}
