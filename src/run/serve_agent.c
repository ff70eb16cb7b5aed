#include "run/serve.h"

#include "base/alloc.h"
#include "base/log.h"
#include "wire/peer_links.h"
#include "wire/tls.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { WAIT_MS = 20, WORDS_MAX = 64, WORD_BYTES = 4096 };

struct service {
    struct tm_env *env;
    const struct tm_agent_service *given;
    struct tm_agent agent;
    struct tm_links *links;
    struct tm_tls *tls;
    struct tm_outbox out;
    int worker; /* process; 0: none */
    uint64_t incarnation;
    bool ends;
    int heard; /* of SIGTERM */
    int failed;
    struct tm_error error;
};

static int64_t now_ms(const struct service *s)
{
    return s->env->monotonic_ns(s->env) / 1000000;
}

static void start_worker(struct service *s, uint64_t incarnation)
{
    static char made[WORDS_MAX][WORD_BYTES];
    const char *words[WORDS_MAX + 1];
    struct tm_error e;
    size_t count = 0;
    for (; s->given->worker[count] != NULL && count < WORDS_MAX; count++) {
        const char *word = s->given->worker[count];
        words[count] = word;
        if (strcmp(word, "%u") != 0) continue;
        (void)snprintf(made[count], sizeof made[count], "%" PRIu64, incarnation);
        words[count] = made[count];
    }
    words[count] = NULL;
    s->incarnation = incarnation;
    if (s->env->process_start(s->env, words, &s->worker, &e) == 0) return;
    s->worker = 0;
    tm_log(TM_LOG_ERROR, "the worker does not start: %s", e.text);
    tm_agent_worker_ended(&s->agent, now_ms(s), incarnation, false, &s->out);
}

static void carry_out(struct service *s)
{
    for (size_t i = 0; i < s->out.count; i++) {
        struct tm_action action = s->out.actions[i];
        if (action.kind == TM_ACTION_SEND)
            tm_links_send(s->links, &action.to, s->given->coordinator, tm_outbox_data(&s->out, &action), action.length);
        if (action.kind == TM_AGENT_START_WORKER && s->worker == 0) start_worker(s, action.number);
        if (action.kind == TM_AGENT_END_WORKER && s->worker != 0 && s->incarnation == action.number)
            (void)s->env->process_signal(s->env, s->worker, SIGKILL, NULL);
        if (action.kind == TM_AGENT_STOP) s->ends = true;
    }
    if (s->failed == 0) s->failed = tm_outbox_status(&s->out, &s->error);
    tm_outbox_clear(&s->out);
}

static void on_message(void *context, const tm_message *message)
{
    struct service *s = context;
    tm_agent_receive(&s->agent, now_ms(s), message, &s->out);
    carry_out(s);
}

static void watch_worker(struct service *s)
{
    int status = 0;
    if (s->worker == 0 || s->env->process_wait(s->env, s->worker, 0, &status, NULL) != 0) return;
    s->worker = 0;
    tm_agent_worker_ended(&s->agent, now_ms(s), s->incarnation, status == 0, &s->out);
    carry_out(s);
}

/* SIGTERM is a notice; the instance goes when its time is up, or at the second SIGTERM. */
static void watch_signals(struct service *s)
{
    int told = s->given->terminating == NULL ? 0 : *s->given->terminating;
    if (told > s->heard && s->heard == 0) {
        tm_agent_notice(&s->agent, now_ms(s), s->given->notice_ms, &s->out);
        carry_out(s);
    }
    s->heard = told;
    if (told > 1 || (told > 0 && now_ms(s) >= s->agent.notice_end_ms)) s->ends = true;
}

int tm_agent_serve(struct tm_env *env, struct tm_agent_service *service, struct tm_error *e)
{
    struct service s = {.env = env, .given = service};
    struct tm_agent_options options = service->agent;
    if (options.incarnation == 0) options.incarnation = env->random_u64(env) | 1;
    options.random_seed = env->random_u64(env);
    tm_outbox_init(&s.out);
    int rc = service->tls_folder == NULL ? 0 : tm_tls_load(env, service->tls_folder, &s.tls, e);
    if (rc == 0) rc = tm_links_create(env, NULL, s.tls, &s.links, e);
    if (rc == 0) tm_agent_init(&s.agent, &options);
    while (rc == 0 && s.failed == 0 && !s.ends) {
        struct tm_links_waiting waiting;
        tm_links_note(s.links, WAIT_MS, &waiting);
        tm_links_wait(s.links, &waiting);
        tm_links_take(s.links, on_message, &s);
        watch_worker(&s);
        watch_signals(&s);
        tm_agent_tick(&s.agent, now_ms(&s), &s.out);
        carry_out(&s);
    }
    if (s.worker != 0) { /* it does not outlive its agent */
        int status = 0;
        (void)env->process_signal(env, s.worker, SIGKILL, NULL);
        (void)env->process_wait(env, s.worker, 5000, &status, NULL);
    }
    tm_links_destroy(s.links);
    tm_tls_destroy(s.tls);
    tm_outbox_deinit(&s.out);
    if (rc == 0 && s.failed != 0) {
        rc = s.failed;
        if (e != NULL) *e = s.error;
    }
    return rc;
}
