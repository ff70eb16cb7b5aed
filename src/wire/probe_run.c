/* The side that asks: rounds of pairs, then all at once. */
#include "wire/probe_internal.h"

#include "base/alloc.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MACHINES_MAX = TM_PROBE_PEERS_MAX + 1, HERE = -1, TEST_COUNT = 6 };

/* ---- orders ---- */

static int receive_figures(struct tm_probe_stream *stream, double *figures, size_t count, struct tm_error *e)
{
    struct tm_probe_frame frame;
    char text[TM_PROBE_TEXT_MAX + 1] = "";
    int rc = tm_probe__receive_frame(stream, &frame, e);
    if (rc != 0) return rc;
    if (frame.kind == TM_PROBE_FAILED) {
        rc = tm_probe__receive(stream, text, (size_t)frame.a, e);
        return rc == 0 ? tm_error_set(e, TM_EPEER, "%s", text) : rc;
    }
    if (frame.kind != TM_PROBE_RESULT || frame.a != count) return tm_error_set(e, TM_EPEER, "an unexpected answer");
    for (size_t i = 0; i < count; i++) {
        uint8_t bytes[8];
        uint64_t bits = 0;
        rc = tm_probe__receive(stream, bytes, sizeof bytes, e);
        if (rc != 0) return rc;
        for (int k = 0; k < 8; k++)
            bits |= (uint64_t)bytes[k] << (8 * k);
        memcpy(&figures[i], &bits, sizeof bits);
        if (!isfinite(figures[i]) || figures[i] < 0) return tm_error_set(e, TM_EPEER, "an answer that is not a number");
    }
    return 0;
}

/* Lets a server measure its link to another. */
static int order(const struct tm_probe_target *server, enum tm_probe_kind kind, const char *other, double *figures,
                 size_t count, struct tm_error *e)
{
    struct tm_probe_stream stream;
    int rc = tm_probe__connect(server->env, server->address, server->tls, &stream, e);
    if (rc != 0) return rc;
    stream.wait_ms += (TEST_COUNT + 2) * server->duration_ms + TM_PROBE_WAIT_MS;
    rc = tm_probe__send_frame(&stream, kind, strlen(other), (uint64_t)server->duration_ms, e);
    if (rc == 0) rc = tm_probe__send(&stream, other, strlen(other), e);
    if (rc == 0) rc = receive_figures(&stream, figures, count, e);
    tm_probe__close(&stream);
    return rc;
}

/* ---- things done at once ---- */

struct task {
    const struct tm_probe_request *request;
    struct tm_env *env;
    int from; /* HERE or a peer */
    int to;
    bool ring; /* of all at once: one way only */
    struct tm_probe_pair pair;
    double bits_s;
    int rc;
    struct tm_error e;
    pthread_t thread;
};

static const char *name_of(const struct tm_probe_request *request, int machine)
{
    return machine == HERE ? "here" : request->peers[machine];
}

static struct tm_probe_target target_of(const struct task *task, int peer)
{
    return (struct tm_probe_target){.env = task->env,
                                    .address = task->request->peers[peer],
                                    .tls = task->request->tls,
                                    .duration_ms = task->request->duration_ms,
                                    .streams = task->request->streams};
}

static int run_ring_task(struct task *task)
{
    struct tm_probe_target target = target_of(task, task->from == HERE ? task->to : task->from);
    if (task->from == HERE) return tm_probe__measure_flow(&target, false, &task->bits_s, &task->e);
    if (task->to == HERE) return tm_probe__measure_flow(&target, true, &task->bits_s, &task->e);
    return order(&target, TM_PROBE_FLOOD, task->request->peers[task->to], &task->bits_s, 1, &task->e);
}

static int run_pair_task(struct task *task)
{
    double f[7];
    if (task->from == HERE) {
        struct tm_probe_target target = target_of(task, task->to);
        return tm_probe__measure_pair(&target, &task->pair, &task->e);
    }
    struct tm_probe_target server = target_of(task, task->from);
    int rc = order(&server, TM_PROBE_PAIR, task->request->peers[task->to], f, sizeof f / sizeof *f, &task->e);
    if (rc == 0) task->pair = (struct tm_probe_pair){f[0], f[1], f[2], f[3], f[4], f[5], f[6]};
    return rc;
}

static void *run_task(void *context)
{
    struct task *task = context;
    task->rc = task->ring ? run_ring_task(task) : run_pair_task(task);
    return NULL;
}

static int run_tasks(struct task *tasks, size_t count, struct tm_error *e)
{
    size_t started = 0;
    while (started < count && pthread_create(&tasks[started].thread, NULL, run_task, &tasks[started]) == 0)
        started++;
    int rc = started == count ? 0 : tm_error_set(e, TM_ENOMEM, "no more threads");
    for (size_t i = 0; i < started; i++) {
        (void)pthread_join(tasks[i].thread, NULL);
        if (rc != 0 || tasks[i].rc == 0) continue;
        rc = tasks[i].rc;
        if (e != NULL) *e = tasks[i].e;
        (void)tm_error_wrap(e, rc, "from %s to %s", name_of(tasks[i].request, tasks[i].from),
                            name_of(tasks[i].request, tasks[i].to));
    }
    return rc;
}

/* ---- rounds ---- */

static void add_pair(struct tm_probe_report *report, const struct task *task)
{
    const struct tm_probe_pair *pair = &task->pair;
    report->links[report->link_count++] = (struct tm_probe_link){
        task->from, task->to, pair->latency_ms, pair->out, pair->both_out, pair->streams_out, NAN};
    report->links[report->link_count++] = (struct tm_probe_link){
        task->to, task->from, pair->latency_ms, pair->back, pair->both_back, pair->streams_back, NAN};
}

/* Round r of a tournament by the circle method: machine 0 stays, the others move on; with an odd number one rests. */
static size_t pair_up(int machines, int round, struct task *tasks)
{
    int places = machines + machines % 2;
    size_t count = 0;
    for (int i = 0; i < places / 2; i++) {
        int one = i == 0 ? 0 : 1 + (round + i - 1) % (places - 1);
        int other = 1 + (round + places - 2 - i) % (places - 1);
        if (one >= machines || other >= machines) continue;
        int first = one < other ? one : other; /* machine 0 is here, the rest are peers */
        int second = one < other ? other : one;
        tasks[count].from = first - 1;
        tasks[count].to = second - 1;
        tasks[count++].ring = false;
    }
    return count;
}

static void tell(const struct tm_probe_request *request, const char *what, double share)
{
    if (request->progress != NULL) request->progress(request->context, what, share);
}

static int run_rounds(const struct tm_probe_request *request, struct task *tasks, struct tm_probe_report *out,
                      struct tm_error *e)
{
    int machines = (int)request->peer_count + 1;
    int rounds = machines + machines % 2 - 1;
    int rc = 0;
    for (int round = 0; rc == 0 && round < rounds; round++) {
        tell(request, "pairs", (double)round / (rounds + 1));
        size_t count = pair_up(machines, round, tasks);
        rc = run_tasks(tasks, count, e);
        for (size_t i = 0; rc == 0 && i < count; i++)
            add_pair(out, &tasks[i]);
    }
    return rc;
}

/* All send to their neighbour in a ring at once. */
static int run_together(const struct tm_probe_request *request, struct task *tasks, struct tm_probe_report *out,
                        struct tm_error *e)
{
    int machines = (int)request->peer_count + 1;
    tell(request, "all at once", (double)machines / (machines + 1));
    for (int i = 0; i < machines; i++) {
        tasks[i].from = i - 1;
        tasks[i].to = (i + 1) % machines - 1;
        tasks[i].ring = true;
    }
    int rc = run_tasks(tasks, (size_t)machines, e);
    for (int i = 0; rc == 0 && i < machines; i++) {
        for (size_t k = 0; k < out->link_count; k++) {
            struct tm_probe_link *link = &out->links[k];
            if (link->from == tasks[i].from && link->to == tasks[i].to) link->together = tasks[i].bits_s;
        }
    }
    return rc;
}

static int compare_links(const void *a, const void *b)
{
    const struct tm_probe_link *x = a;
    const struct tm_probe_link *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

int tm_probe_run(struct tm_env *env, const struct tm_probe_request *request, struct tm_probe_report *out,
                 struct tm_error *e)
{
    if (request->peer_count < 1 || request->peer_count > TM_PROBE_PEERS_MAX)
        return tm_error_set(e, TM_EUSAGE, "from 1 to %d peers can be probed", TM_PROBE_PEERS_MAX);
    for (size_t i = 0; i < request->peer_count; i++) {
        if (strlen(request->peers[i]) < TM_ADDRESS_MAX) continue;
        return tm_error_set(e, TM_EUSAGE, "\"%.60s...\" is too long for an address", request->peers[i]);
    }
    struct task *tasks = tm_calloc(MACHINES_MAX, sizeof *tasks);
    if (tasks == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < MACHINES_MAX; i++)
        tasks[i] = (struct task){.request = request, .env = env};
    out->link_count = 0;
    int rc = run_rounds(request, tasks, out, e);
    if (rc == 0) rc = run_together(request, tasks, out, e);
    for (size_t i = 0; rc == 0 && i < request->peer_count; i++) {
        struct tm_probe_target target = target_of(&tasks[0], (int)i);
        rc = tm_probe__measure_sizes(&target, out->size_ms[i], e);
        if (rc != 0) (void)tm_error_wrap(e, rc, "to %s", request->peers[i]);
    }
    tm_free(tasks);
    qsort(out->links, out->link_count, sizeof *out->links, compare_links);
    return rc;
}
