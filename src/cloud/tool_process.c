#include "cloud/tool_process.h"

#include <signal.h>

enum { DEATH_LIMIT_MS = 10000, PIECE = 4096 };

static int64_t now_ms(struct tm_env *env)
{
    return env->monotonic_ns(env) / 1000000;
}

int tm_tool_process__start(struct tm_tool__process *p, struct tm_env *env, const char *const *argv, int64_t limit_ms,
                           struct tm_error *e)
{
    struct tm_process_options options = {
        .argv = argv, .variables = p->variables, .group = true, .captured = &p->output};
    tm_text_clear(&p->text);
    p->handle = p->output = -1;
    p->deadline_ms = now_ms(env) + limit_ms;
    int rc = env->process_start_with(env, &options, &p->pid, e);
    if (rc != 0) {
        p->pid = 0;
        return rc;
    }
    if (env->process_handle(env, p->pid, &p->handle, NULL) != 0) p->handle = -1;
    return 0;
}

static void read_output(struct tm_tool__process *p, struct tm_env *env)
{
    char piece[PIECE];
    size_t got = 0;
    while (p->output >= 0) {
        int rc = env->net_receive(env, p->output, piece, sizeof piece, &got, NULL);
        if (rc == -(int)TM_EBUSY) return;
        if (rc == 0 && got > 0) {
            tm_text_append(&p->text, piece, got); /* too much of it is as good as no answer */
            continue;
        }
        env->net_close(env, p->output);
        p->output = -1;
    }
}

static void close_all(struct tm_tool__process *p, struct tm_env *env)
{
    if (p->output >= 0) env->net_close(env, p->output);
    if (p->handle >= 0) env->net_close(env, p->handle);
    p->output = p->handle = -1;
    p->pid = 0;
}

void tm_tool_process__stop(struct tm_tool__process *p, struct tm_env *env)
{
    int status = 0;
    if (p->pid == 0) return;
    (void)env->process_signal_group(env, p->pid, SIGKILL, NULL);
    (void)env->process_wait(env, p->pid, DEATH_LIMIT_MS, &status, NULL);
    close_all(p, env);
}

bool tm_tool_process__step(struct tm_tool__process *p, struct tm_env *env, int *out_status)
{
    int status = 0;
    if (p->pid == 0) return false;
    read_output(p, env);
    if (env->process_wait(env, p->pid, 0, &status, NULL) == 0) {
        read_output(p, env); /* what came between */
        close_all(p, env);
        *out_status = p->text.failed != 0 ? -1 : status;
        return true;
    }
    if (now_ms(env) < p->deadline_ms) return false;
    tm_tool_process__stop(p, env);
    *out_status = -1;
    return true;
}

size_t tm_tool_process__watch(const struct tm_tool__process *p, int handles[2])
{
    size_t count = 0;
    if (p->pid == 0) return 0;
    if (p->handle >= 0) handles[count++] = p->handle;
    if (p->output >= 0) handles[count++] = p->output;
    return count;
}
