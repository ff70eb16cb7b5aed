#include "run/serve.h"

#include "base/alloc.h"
#include "base/log.h"
#include "wire/peer_links.h"
#include "wire/tls.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    WAIT_MS = 50,
    WORDS_MAX = 64,
    VARIABLES_MAX = 128,
    DEATH_LIMIT_MS = 5000,
    LINGER_MS = 60000,
    TELL_MS = 60000,
    OUTPUT_BYTES = 16 << 10
};
enum { STATUS_NOT_FOUND = 127 };

struct service {
    struct tm_env *env;
    const struct tm_agent_service *given;
    struct tm_agent agent;
    struct tm_links *links;
    struct tm_tls *tls;
    struct tm_outbox out;
    struct tm_notice_reader *reader;
    int worker;    /* process, and the group that it leads; 0: none */
    int handle;    /* ready when it has ended; -1: none */
    bool went_bad; /* refused, or the worker fails again and again */
    uint64_t incarnation;
    size_t output_begin; /* of its output file: what stands before is of earlier ones */
    bool ends;
    int heard;                    /* of SIGTERM */
    int64_t contact_ms;           /* when a coordinator last had us */
    int64_t told_ms;              /* when it was last said what is in the way */
    char told[TM_ERROR_TEXT_MAX]; /* that */
};

static int64_t now_ms(const struct service *s)
{
    return s->env->monotonic_ns(s->env) / 1000000;
}

/* ---- the worker ---- */

/* For whoever wants to find it: "PID START". */
static void write_worker_file(struct service *s)
{
    char line[64];
    int64_t start = 0;
    if (s->given->worker_file == NULL || s->env->process_started(s->env, s->worker, &start, NULL) != 0) return;
    (void)snprintf(line, sizeof line, "%d %" PRId64 "\n", s->worker, start);
    (void)s->env->file_write_private(s->env, s->given->worker_file, line, strlen(line), NULL);
}

static int start_process(struct service *s, uint64_t incarnation, struct tm_error *e)
{
    char number[32];
    char variable[64];
    char parent[64];
    const char *words[WORDS_MAX + 1];
    const char *variables[VARIABLES_MAX + 3];
    size_t count = 0;
    (void)snprintf(number, sizeof number, "%" PRIu64, incarnation);
    (void)snprintf(variable, sizeof variable, "TIDEMILL_INCARNATION=%s", number);
    (void)snprintf(parent, sizeof parent, "TIDEMILL_AGENT_PID=%d", s->env->process_self(s->env));
    for (; s->given->worker[count] != NULL && count < WORDS_MAX; count++)
        words[count] = strcmp(s->given->worker[count], "%u") == 0 ? number : s->given->worker[count];
    words[count] = NULL;
    count = 0;
    for (; s->given->variables != NULL && s->given->variables[count] != NULL && count < VARIABLES_MAX; count++)
        variables[count] = s->given->variables[count];
    variables[count++] = variable;
    variables[count++] = parent; /* who has lost its agent before it could watch it knows it by this */
    variables[count] = NULL;
    struct tm_process_options options = {.argv = words,
                                         .variables = variables,
                                         .group = true,
                                         .deaf = s->given->worker_deaf,
                                         .output = s->given->output};
    int rc = s->env->process_start_with(s->env, &options, &s->worker, e);
    if (rc == 0 && s->env->process_handle(s->env, s->worker, &s->handle, NULL) != 0) s->handle = -1;
    return rc;
}

/* How many bytes its output file has. */
static size_t output_length(struct service *s)
{
    const void *data = NULL;
    size_t length = 0;
    if (s->given->output == NULL || s->env->file_map(s->env, s->given->output, &data, &length, NULL) != 0) return 0;
    s->env->file_unmap(s->env, data, length);
    return length;
}

static void start_worker(struct service *s, uint64_t incarnation)
{
    struct tm_error e;
    s->incarnation = incarnation;
    s->handle = -1;
    s->output_begin = output_length(s);
    if (start_process(s, incarnation, &e) == 0) {
        write_worker_file(s);
        return;
    }
    s->worker = 0;
    tm_log(TM_LOG_ERROR, "the worker could not be started: %s", e.text);
    struct tm_worker_end end = {.status = STATUS_NOT_FOUND, .output = e.text, .output_length = strlen(e.text)};
    tm_agent_worker_ended(&s->agent, now_ms(s), incarnation, &end, &s->out);
}

/* What it started goes with it, or would train on beside the next one. */
static void forget_worker(struct service *s)
{
    (void)s->env->process_signal_group(s->env, s->worker, SIGKILL, NULL);
    if (s->handle >= 0) s->env->net_close(s->env, s->handle);
    s->handle = -1;
    s->worker = 0;
}

static void carry_out(struct service *s)
{
    for (size_t i = 0; i < s->out.count; i++) {
        struct tm_action action = s->out.actions[i];
        if (action.kind == TM_ACTION_SEND)
            tm_links_send(s->links, &action.to, s->given->coordinator, tm_outbox_data(&s->out, &action), action.length);
        if (action.kind == TM_AGENT_START_WORKER && s->worker == 0) start_worker(s, action.number);
        bool over = s->agent.stopped; /* the worker hears it, too, and may still have something to save */
        if (action.kind == TM_AGENT_END_WORKER && s->worker != 0 && s->incarnation == action.number && !over)
            (void)s->env->process_signal_group(s->env, s->worker, SIGKILL, NULL);
        if (action.kind == TM_AGENT_STOP) {
            s->ends = true;
            s->went_bad = action.number != 0;
        }
    }
    tm_outbox_clear(&s->out);
}

static void tell_end(struct service *s, int status)
{
    struct tm_worker_end end = {.status = status, .file = s->given->output_name};
    const void *data = NULL;
    size_t length = 0;
    bool known = s->given->output != NULL && s->env->file_map(s->env, s->given->output, &data, &length, NULL) == 0;
    if (known && length > 0) {
        size_t begin = length > OUTPUT_BYTES ? length - OUTPUT_BYTES : 0;
        if (begin < s->output_begin && s->output_begin <= length) begin = s->output_begin;
        end.output = (const char *)data + begin;
        end.output_length = length - begin;
    }
    tm_agent_worker_ended(&s->agent, now_ms(s), s->incarnation, &end, &s->out);
    if (known) s->env->file_unmap(s->env, data, length);
}

static void watch_worker(struct service *s)
{
    int status = 0;
    if (s->worker == 0 || s->env->process_wait(s->env, s->worker, 0, &status, NULL) != 0) return;
    forget_worker(s);
    tell_end(s, status);
    carry_out(s);
    if (!s->agent.gave_up) return;
    s->ends = s->went_bad = true; /* somebody else's machine may do better than this one */
}

/* ---- what the instance hears ---- */

static void on_message(void *context, const tm_message *message)
{
    struct service *s = context;
    tm_agent_receive(&s->agent, now_ms(s), message, &s->out);
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

/* The cloud's word, in the cloud's form. A hint is no notice: nothing is moved for it. */
static void watch_notice(struct service *s)
{
    struct tm_notice word;
    struct tm_error e;
    if (s->reader == NULL || tm_notice_reader_step(s->reader, &word, &e) != 0 || s->heard != 0) return;
    int64_t left_ms = word.gone_utc_ms - s->env->now_ms(s->env);
    if (word.going || s->agent.noticed)
        tm_agent_notice(&s->agent, now_ms(s), word.going ? (left_ms > 0 ? left_ms : 0) : -1, &s->out);
    if (word.going) tm_log(TM_LOG_INFO, "this instance will be preempted in %" PRId64 " ms", left_ms);
    carry_out(s);
}

/* What is in the way of a coordinator is said once, not each time it is tried; and not tried for ever. */
static void watch_contact(struct service *s)
{
    if (s->agent.registered) {
        if (s->told[0] != '\0') tm_log(TM_LOG_INFO, "connected to the coordinator");
        s->told[0] = '\0';
        s->contact_ms = now_ms(s);
        return;
    }
    const char *trouble = tm_links_trouble(s->links);
    bool news = trouble[0] != '\0' && strcmp(trouble, s->told) != 0;
    if (news && (s->told[0] == '\0' || now_ms(s) - s->told_ms >= TELL_MS)) {
        (void)snprintf(s->told, sizeof s->told, "%s", trouble);
        s->told_ms = now_ms(s);
        tm_log(TM_LOG_WARN, "no coordinator yet: %s", trouble);
    }
    if (s->given->give_up_ms > 0 && now_ms(s) - s->contact_ms > s->given->give_up_ms) s->ends = s->went_bad = true;
}

static int say_bad(const struct service *s, struct tm_error *e)
{
    if (s->agent.gave_up)
        return tm_error_set(e, TM_EPEER, "the worker ended %zu times; its output says why", s->agent.restart_count);
    if (s->agent.refused[0] != '\0')
        return tm_error_set(e, TM_EPEER, "the coordinator refused this machine: %s", s->agent.refused);
    const char *trouble = tm_links_trouble(s->links);
    return tm_error_set(e, TM_EPEER, "no answer from the coordinator within %lld s: %s",
                        (long long)(s->given->give_up_ms / 1000), trouble[0] != '\0' ? trouble : "it does not answer");
}

/* ---- the loop ---- */

static void wait_for_anything(struct service *s)
{
    struct tm_links_waiting waiting;
    int64_t wait_ms = WAIT_MS;
    if (s->reader != NULL && tm_notice_reader_wait_ms(s->reader) < wait_ms)
        wait_ms = tm_notice_reader_wait_ms(s->reader);
    tm_links_note(s->links, wait_ms > 0 ? wait_ms : 0, &waiting);
    int others[] = {s->handle, s->reader != NULL ? tm_notice_reader_handle(s->reader) : -1};
    for (size_t i = 0; i < 2; i++)
        if (others[i] >= 0) tm_links_also(&waiting, others[i]);
    tm_links_wait(s->links, &waiting);
}

static void loop(struct service *s)
{
    while (!s->ends) {
        wait_for_anything(s);
        tm_links_take(s->links, on_message, s);
        watch_worker(s);
        watch_signals(s);
        watch_notice(s);
        watch_contact(s);
        tm_agent_tick(&s->agent, now_ms(s), &s->out);
        carry_out(s);
    }
    if (s->worker == 0) return;
    int status = 0;
    for (int64_t end_ms = now_ms(s) + LINGER_MS; s->agent.stopped && now_ms(s) < end_ms;) {
        bool told = s->given->terminating != NULL && *s->given->terminating > 1;
        if (told || s->env->process_wait(s->env, s->worker, WAIT_MS, &status, NULL) == 0) break;
    }
    /* it does not outlive its agent */
    (void)s->env->process_signal_group(s->env, s->worker, SIGKILL, NULL);
    (void)s->env->process_wait(s->env, s->worker, DEATH_LIMIT_MS, &status, NULL);
    forget_worker(s);
}

int tm_agent_serve(struct tm_env *env, struct tm_agent_service *service, struct tm_error *e)
{
    struct service s = {.env = env, .given = service, .handle = -1};
    struct tm_agent_options options = service->agent;
    if (options.incarnation == 0) options.incarnation = env->random_u64(env) | 1;
    options.random_seed = env->random_u64(env);
    tm_outbox_init(&s.out);
    int rc = service->tls_folder == NULL ? 0 : tm_tls_load(env, service->tls_folder, &s.tls, e);
    if (rc == 0) rc = tm_links_create(env, NULL, s.tls, service->agent.token, &s.links, e);
    if (rc == 0 && service->notice != NULL) rc = tm_notice_reader_create(env, service->notice, &s.reader, e);
    if (rc == 0) {
        tm_agent_init(&s.agent, &options);
        s.contact_ms = now_ms(&s);
        loop(&s);
        if (s.went_bad) rc = say_bad(&s, e);
    }
    tm_notice_reader_destroy(s.reader);
    tm_links_destroy(s.links);
    tm_tls_destroy(s.tls);
    tm_outbox_deinit(&s.out);
    return rc;
}
