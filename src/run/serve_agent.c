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
    ALL_HEAR_MS = 3000,
    OUTPUT_BYTES = 16 << 10
};
enum { STATUS_NOT_FOUND = 127 };

/* What keeps one worker. Its connection is its own: to the coordinator it is a member like any other. */
struct keeper {
    struct service *service;
    struct tm_env *env;
    const struct tm_agent_worker *given;
    struct tm_agent agent;
    struct tm_links *links;
    struct tm_outbox out;
    int worker; /* process, and the group that it leads; 0: none */
    int handle; /* ready when it has ended; -1: none */
    uint64_t incarnation;
    size_t output_begin; /* of its output file: what stands before is of earlier ones */
};

struct service {
    struct tm_env *env;
    const struct tm_agent_service *given;
    struct keeper *keepers;
    uint32_t keeper_count;
    struct tm_tls *tls;
    struct tm_notice_reader *reader;
    const struct keeper *bad; /* was refused, or its worker fails again and again, or nobody answers it; NULL: none */
    bool over;                /* the job is: workers hear it, too, and may still have something to save */
    int64_t over_ms;          /* when the first keeper heard so */
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
static void write_worker_file(struct keeper *k)
{
    char line[64];
    int64_t start = 0;
    if (k->given->worker_file == NULL || k->env->process_started(k->env, k->worker, &start, NULL) != 0) return;
    (void)snprintf(line, sizeof line, "%d %" PRId64 "\n", k->worker, start);
    (void)k->env->file_write_private(k->env, k->given->worker_file, line, strlen(line), NULL);
}

static int start_process(struct keeper *k, uint64_t incarnation, struct tm_error *e)
{
    char number[32];
    char variable[64];
    char parent[64];
    const char *words[WORDS_MAX + 1];
    const char *variables[VARIABLES_MAX + 3];
    const char *const *lists[] = {k->service->given->variables, k->given->variables};
    size_t count = 0;
    (void)snprintf(number, sizeof number, "%" PRIu64, incarnation);
    (void)snprintf(variable, sizeof variable, "TIDEMILL_INCARNATION=%s", number);
    (void)snprintf(parent, sizeof parent, "TIDEMILL_AGENT_PID=%d", k->env->process_self(k->env));
    for (; k->service->given->worker[count] != NULL && count < WORDS_MAX; count++)
        words[count] = strcmp(k->service->given->worker[count], "%u") == 0 ? number : k->service->given->worker[count];
    words[count] = NULL;
    count = 0;
    for (size_t i = 0; i < 2; i++)
        for (size_t n = 0; lists[i] != NULL && lists[i][n] != NULL && count < VARIABLES_MAX; n++)
            variables[count++] = lists[i][n];
    variables[count++] = variable;
    variables[count++] = parent; /* who has lost its agent before it could watch it knows it by this */
    variables[count] = NULL;
    struct tm_process_options options = {.argv = words,
                                         .variables = variables,
                                         .group = true,
                                         .deaf = k->service->given->worker_deaf,
                                         .output = k->given->output};
    int rc = k->env->process_start_with(k->env, &options, &k->worker, e);
    if (rc == 0 && k->env->process_handle(k->env, k->worker, &k->handle, NULL) != 0) k->handle = -1;
    return rc;
}

/* How many bytes its output file has. */
static size_t output_length(struct keeper *k)
{
    const void *data = NULL;
    size_t length = 0;
    if (k->given->output == NULL || k->env->file_map(k->env, k->given->output, &data, &length, NULL) != 0) return 0;
    k->env->file_unmap(k->env, data, length);
    return length;
}

static void start_worker(struct keeper *k, uint64_t incarnation)
{
    struct tm_error e;
    k->incarnation = incarnation;
    k->handle = -1;
    k->output_begin = output_length(k);
    if (start_process(k, incarnation, &e) == 0) {
        write_worker_file(k);
        return;
    }
    k->worker = 0;
    tm_log(TM_LOG_ERROR, "the worker could not be started: %s", e.text);
    struct tm_worker_end end = {.status = STATUS_NOT_FOUND, .output = e.text, .output_length = strlen(e.text)};
    tm_agent_worker_ended(&k->agent, now_ms(k->service), incarnation, &end, &k->out);
}

/* What it started goes with it, or would train on beside the next one. */
static void forget_worker(struct keeper *k)
{
    (void)k->env->process_signal_group(k->env, k->worker, SIGKILL, NULL);
    if (k->handle >= 0) k->env->net_close(k->env, k->handle);
    k->handle = -1;
    k->worker = 0;
}

/* At the job's end only what takes no part is ended at once: the others may have a result to save. */
static void end_worker(struct keeper *k, bool at_once)
{
    if (k->service->over && !at_once) return;
    if (k->service->over)
        tm_log(TM_LOG_INFO, "the job is over: worker %" PRIu64 ", which takes no part in it, is ended",
               k->agent.self.id);
    (void)k->env->process_signal_group(k->env, k->worker, SIGKILL, NULL);
}

static void carry_out(struct keeper *k)
{
    struct service *s = k->service;
    for (size_t i = 0; i < k->out.count; i++) {
        struct tm_action action = k->out.actions[i];
        if (action.kind == TM_ACTION_SEND)
            tm_links_send(k->links, &action.to, s->given->coordinator, tm_outbox_data(&k->out, &action), action.length);
        if (k->agent.stopped && !s->over) {
            s->over = true;
            s->over_ms = now_ms(s);
        }
        if (action.kind == TM_AGENT_START_WORKER && k->worker == 0 && !s->over) start_worker(k, action.number);
        if (action.kind == TM_AGENT_END_WORKER && k->worker != 0 && k->incarnation == action.number)
            end_worker(k, action.other != 0);
        if (action.kind == TM_AGENT_STOP && action.number != 0) {
            s->ends = true;
            s->bad = k;
        }
    }
    tm_outbox_clear(&k->out);
}

static void tell_end(struct keeper *k, int status)
{
    struct tm_worker_end end = {.status = status, .file = k->given->output_name};
    const void *data = NULL;
    size_t length = 0;
    bool known = k->given->output != NULL && k->env->file_map(k->env, k->given->output, &data, &length, NULL) == 0;
    if (known && length > 0) {
        size_t begin = length > OUTPUT_BYTES ? length - OUTPUT_BYTES : 0;
        if (begin < k->output_begin && k->output_begin <= length) begin = k->output_begin;
        end.output = (const char *)data + begin;
        end.output_length = length - begin;
    }
    tm_agent_worker_ended(&k->agent, now_ms(k->service), k->incarnation, &end, &k->out);
    if (known) k->env->file_unmap(k->env, data, length);
}

static void watch_worker(struct keeper *k)
{
    int status = 0;
    if (k->worker == 0 || k->env->process_wait(k->env, k->worker, 0, &status, NULL) != 0) return;
    forget_worker(k);
    tell_end(k, status);
    carry_out(k);
    if (!k->agent.gave_up || k->service->over) return;
    k->service->ends = true; /* somebody else's machine may do better than this one */
    k->service->bad = k;
}

/* ---- what the instance hears ---- */

static void on_message(void *context, const tm_message *message)
{
    struct keeper *k = context;
    tm_agent_receive(&k->agent, now_ms(k->service), message, &k->out);
    carry_out(k);
}

static void tell_notice(struct service *s, int64_t left_ms)
{
    for (uint32_t i = 0; i < s->keeper_count; i++) {
        tm_agent_notice(&s->keepers[i].agent, now_ms(s), left_ms, &s->keepers[i].out);
        carry_out(&s->keepers[i]);
    }
}

/* SIGTERM is a notice; the instance goes when its time is up, or at the second SIGTERM. */
static void watch_signals(struct service *s)
{
    int told = s->given->terminating == NULL ? 0 : *s->given->terminating;
    if (told > s->heard && s->heard == 0) tell_notice(s, s->given->notice_ms);
    s->heard = told;
    if (told > 1 || (told > 0 && now_ms(s) >= s->keepers[0].agent.notice_end_ms)) s->ends = true;
}

/* The cloud's word, in the cloud's form. A hint is no notice: nothing is moved for it. */
static void watch_notice(struct service *s)
{
    struct tm_notice word;
    struct tm_error e;
    if (s->reader == NULL || tm_notice_reader_step(s->reader, &word, &e) != 0 || s->heard != 0) return;
    int64_t left_ms = word.gone_utc_ms - s->env->now_ms(s->env);
    if (word.going || s->keepers[0].agent.noticed) tell_notice(s, word.going ? (left_ms > 0 ? left_ms : 0) : -1);
    if (word.going) tm_log(TM_LOG_INFO, "this instance will be preempted in %" PRId64 " ms", left_ms);
}

/* The first that no coordinator has; NULL: one has them all. */
static const struct keeper *unregistered(const struct service *s)
{
    for (uint32_t i = 0; i < s->keeper_count; i++)
        if (!s->keepers[i].agent.registered) return &s->keepers[i];
    return NULL;
}

/* Whoever let this machine in hears of it, and says when it may go. */
static void watch_host(struct service *s)
{
    if (s->given->stays == NULL) return;
    const struct tm_agent *agent = &s->keepers[0].agent;
    int64_t left_ms = agent->notice_end_ms - now_ms(s);
    if (!s->given->stays(s->given->context, agent->noticed, left_ms > 0 ? left_ms : 0)) s->ends = true;
}

/* What is in the way of a coordinator is said once, not each time it is tried; and not tried for ever. */
static void watch_contact(struct service *s)
{
    const struct keeper *k = unregistered(s);
    if (k == NULL) {
        if (s->told[0] != '\0') tm_log(TM_LOG_INFO, "connected to the coordinator");
        s->told[0] = '\0';
        s->contact_ms = now_ms(s);
        return;
    }
    const char *trouble = tm_links_trouble(k->links);
    bool news = trouble[0] != '\0' && strcmp(trouble, s->told) != 0;
    if (news && (s->told[0] == '\0' || now_ms(s) - s->told_ms >= TELL_MS)) {
        (void)snprintf(s->told, sizeof s->told, "%s", trouble);
        s->told_ms = now_ms(s);
        tm_log(TM_LOG_WARN, "no coordinator yet: %s", trouble);
    }
    if (s->given->give_up_ms <= 0 || now_ms(s) - s->contact_ms <= s->given->give_up_ms) return;
    s->ends = true;
    s->bad = k;
}

static int say_bad(const struct service *s, struct tm_error *e)
{
    const struct keeper *k = s->bad;
    if (k->agent.gave_up)
        return tm_error_set(e, TM_EPEER, "the worker ended %zu times; its output says why", k->agent.restart_count);
    if (k->agent.refused[0] != '\0')
        return tm_error_set(e, TM_EPEER, "the coordinator refused this machine: %s", k->agent.refused);
    const char *trouble = tm_links_trouble(k->links);
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
    tm_links_note(s->keepers[0].links, wait_ms > 0 ? wait_ms : 0, &waiting);
    for (uint32_t i = 0; i < s->keeper_count; i++) {
        if (i > 0) tm_links_note_more(s->keepers[i].links, &waiting);
        if (s->keepers[i].handle >= 0) tm_links_also(&waiting, s->keepers[i].handle);
    }
    int handle = s->reader != NULL ? tm_notice_reader_handle(s->reader) : -1;
    if (handle >= 0) tm_links_also(&waiting, handle);
    tm_links_wait(s->keepers[0].links, &waiting);
}

/* They do not outlive their agent; at the job's end they are given time to end by themselves. */
static void end_workers(struct service *s)
{
    int status = 0;
    int64_t end_ms = now_ms(s) + LINGER_MS;
    for (uint32_t i = 0; i < s->keeper_count; i++) {
        struct keeper *k = &s->keepers[i];
        while (k->worker != 0 && s->over && now_ms(s) < end_ms) {
            bool told = s->given->terminating != NULL && *s->given->terminating > 1;
            if (told || s->env->process_wait(s->env, k->worker, WAIT_MS, &status, NULL) == 0) break;
        }
        if (k->worker != 0) (void)s->env->process_signal_group(s->env, k->worker, SIGKILL, NULL);
    }
    for (uint32_t i = 0; i < s->keeper_count; i++) {
        struct keeper *k = &s->keepers[i];
        if (k->worker == 0) continue;
        (void)s->env->process_wait(s->env, k->worker, DEATH_LIMIT_MS, &status, NULL);
        forget_worker(k);
    }
}

/* Each keeper hears for itself what its worker may still do: not for ever, the coordinator goes too. */
static bool all_heard(const struct service *s)
{
    bool all = true;
    for (uint32_t i = 0; i < s->keeper_count; i++)
        all = all && (s->keepers[i].agent.stopped || s->keepers[i].worker == 0);
    return s->over && (all || now_ms(s) - s->over_ms > ALL_HEAR_MS);
}

static void loop(struct service *s)
{
    while (!s->ends && !all_heard(s)) {
        wait_for_anything(s);
        for (uint32_t i = 0; i < s->keeper_count; i++) {
            tm_links_take(s->keepers[i].links, on_message, &s->keepers[i]);
            watch_worker(&s->keepers[i]);
        }
        watch_signals(s);
        watch_notice(s);
        watch_contact(s);
        watch_host(s);
        for (uint32_t i = 0; i < s->keeper_count; i++) {
            tm_agent_tick(&s->keepers[i].agent, now_ms(s), &s->keepers[i].out);
            carry_out(&s->keepers[i]);
        }
    }
    end_workers(s);
}

static int make_keepers(struct service *s, struct tm_error *e)
{
    static const struct tm_agent_worker plain = {.output = NULL};
    struct tm_agent_options options = s->given->agent;
    uint32_t count = s->given->worker_count > 0 ? s->given->worker_count : 1;
    int rc = 0;
    if (options.incarnation == 0) options.incarnation = s->env->random_u64(s->env) | 1;
    options.random_seed = s->env->random_u64(s->env);
    s->keepers = tm_calloc(count, sizeof *s->keepers);
    if (s->keepers == NULL) return tm_error_nomem(e);
    for (; rc == 0 && s->keeper_count < count; s->keeper_count++) {
        struct keeper *k = &s->keepers[s->keeper_count];
        *k = (struct keeper){.service = s,
                             .env = s->env,
                             .given = s->given->worker_count > 0 ? &s->given->workers[s->keeper_count] : &plain,
                             .handle = -1};
        tm_outbox_init(&k->out);
        tm_agent_init(&k->agent, &options);
        options.id++;
        rc = tm_links_create(s->env, NULL, s->tls, s->given->agent.token, &k->links, e);
    }
    return rc;
}

int tm_agent_serve(struct tm_env *env, struct tm_agent_service *service, struct tm_error *e)
{
    struct service s = {.env = env, .given = service};
    int rc = service->tls_folder == NULL ? 0 : tm_tls_load(env, service->tls_folder, &s.tls, e);
    if (rc == 0) rc = make_keepers(&s, e);
    if (rc == 0 && service->notice != NULL) rc = tm_notice_reader_create(env, service->notice, &s.reader, e);
    if (rc == 0) {
        s.contact_ms = now_ms(&s);
        loop(&s);
        if (s.bad != NULL) rc = say_bad(&s, e);
    }
    tm_notice_reader_destroy(s.reader);
    for (uint32_t i = 0; i < s.keeper_count; i++) {
        tm_links_destroy(s.keepers[i].links);
        tm_outbox_deinit(&s.keepers[i].out);
    }
    tm_free(s.keepers);
    tm_tls_destroy(s.tls);
    return rc;
}
