/* How the protocol grows with a fleet: one coordinator and 8 to 1,024 real workers (the state machines, every message
 * packed and unpacked) in this process, with an engine that computes nothing.
 *
 * - From the loss of a member to the start of the next generation: what the coordinator says (bytes, messages) and how
 *   much of its time it takes.
 * - The flags of one step: messages and bytes between all workers.
 * - A decision of the policy for a fleet of so many that has lost one, without what it remembers of earlier ones.
 *
 * Growth is the exponent p of n^p between 32 members, from which on flags go through a tree, and the largest fleet: 1
 * is linear, 2 quadratic; n log n is about 1.2 here. What is counted (messages and bytes, not times, which depend on
 * what else the machine does) must not grow faster than n log n: else the exit status is 1. */
#include "base/alloc.h"
#include "run/coordinator.h"
#include "run/decide_policy.h"
#include "worker/worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { JOB = 3, LAYERS = 96, STAGES = 8, MOST = 1024, LAYER_BYTES = 64, STEPS = 1000000, GROWTH_FROM = 32 };

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "bench_scale: %s\n", what);
    exit(1);
}

/* ---- an engine that does nothing ---- */

struct cluster;
struct toy {
    struct cluster *cluster;
    struct tm_worker *worker;
    const struct tm_roster *roster;
    uint64_t id, begun, applying;
    bool dead;
};

static uint64_t layer_bytes(void *context, uint32_t layer)
{
    (void)context;
    (void)layer;
    return LAYER_BYTES;
}

static int export_layer(void *context, uint32_t layer, void *out, uint64_t size)
{
    (void)context;
    memset(out, (int)layer, size);
    return 0;
}

static int import_layer(void *context, uint32_t layer, uint64_t step, struct tm_block *block)
{
    (void)context;
    (void)layer;
    (void)step;
    (void)block;
    return 0;
}

static int init_layer(void *context, uint32_t layer)
{
    (void)context;
    (void)layer;
    return 0;
}

static void drop_layer(void *context, uint32_t layer)
{
    (void)context;
    (void)layer;
}

static void begin_step(void *context, const struct tm_roster *roster, uint64_t step)
{
    struct toy *toy = context;
    toy->roster = roster;
    toy->begun = step;
}

static void cancel_step(void *context)
{
    ((struct toy *)context)->begun = 0;
}

static void apply_step(void *context, uint64_t step, double norm)
{
    (void)norm;
    ((struct toy *)context)->applying = step;
}

static void discard_step(void *context)
{
    (void)context;
}

static uint64_t waiting_for(void *context)
{
    (void)context;
    return 0;
}

/* ---- the cluster ---- */

struct packet {
    struct tm_peer to;
    size_t length;
    uint8_t *data; /* owned */
};

struct cluster {
    struct tm_coordinator *coordinator;
    struct tm_use_all rule;
    struct toy toys[MOST + 1];
    size_t count;
    int64_t now_ms;
    struct packet *queue;
    size_t first, last, capacity;
    bool holds_steps; /* nobody computes */
    double spent_s;   /* inside the coordinator */
    double said, said_bytes;
    double flags, flag_bytes;
};

static void post(struct cluster *c, struct tm_outbox *out, bool of_coordinator)
{
    for (size_t i = 0; i < out->count; i++) {
        const struct tm_action *action = &out->actions[i];
        if (action->kind != TM_ACTION_SEND) continue;
        must(tm_grow((void **)&c->queue, &c->capacity, c->last + 1, sizeof *c->queue, 1 << 24) == 0, "no memory");
        struct packet *packet = &c->queue[c->last++];
        *packet = (struct packet){.to = action->to, .length = action->length, .data = tm_alloc(action->length + 1)};
        must(packet->data != NULL, "no memory");
        memcpy(packet->data, tm_outbox_data(out, action), action->length);
        if (of_coordinator) {
            c->said++;
            c->said_bytes += (double)action->length;
        }
    }
    tm_outbox_clear(out);
}

static void deliver(struct cluster *c, const struct packet *packet)
{
    struct tm_arena arena;
    struct tm_outbox out;
    tm_message *message = NULL;
    tm_arena_init(&arena, 64 << 20);
    tm_outbox_init(&out);
    must(tm_message_unpack(packet->data, packet->length, &arena, &message, NULL) == 0, "a message of ours is refused");
    if (packet->to.role == TM_ROLE_COORDINATOR) {
        double start_s = now_s();
        tm_coordinator_receive(c->coordinator, c->now_ms, message, &out);
        c->spent_s += now_s() - start_s;
        post(c, &out, true);
    } else if (!c->toys[packet->to.id].dead) {
        if (message->body_case == TMW__ENVELOPE__BODY_PREPARED) {
            c->flags++;
            c->flag_bytes += (double)packet->length;
        }
        tm_worker_receive(c->toys[packet->to.id].worker, c->now_ms, message, &out);
        post(c, &out, false);
    }
    tm_outbox_deinit(&out);
    tm_arena_deinit(&arena);
}

/* What engines were told to do is done. */
static void compute(struct cluster *c)
{
    struct tm_outbox out;
    tm_outbox_init(&out);
    for (uint64_t id = 1; id <= c->count; id++) {
        struct toy *toy = &c->toys[id];
        if (toy->dead) continue;
        if (toy->applying != 0) {
            uint64_t step = toy->applying;
            toy->applying = 0;
            tm_worker_applied(toy->worker, c->now_ms, step, &out);
        }
        if (toy->begun != 0 && !c->holds_steps) {
            const struct tm_member *me = tm_roster_find(toy->roster, id);
            struct tm_norm norms[LAYERS];
            size_t count = 0;
            for (uint32_t l = toy->roster->stage_first[me->stage]; l < toy->roster->stage_first[me->stage + 1]; l++)
                norms[count++] = (struct tm_norm){.layer = l, .sum = 0.5};
            uint64_t step = toy->begun;
            toy->begun = 0;
            tm_worker_held(toy->worker, c->now_ms, step, norms, count, &out);
        }
        post(c, &out, false);
    }
    tm_outbox_deinit(&out);
}

static void settle(struct cluster *c)
{
    while (c->first < c->last) {
        struct packet packet = c->queue[c->first++];
        deliver(c, &packet);
        tm_free(packet.data);
        if (c->first == c->last) {
            c->first = c->last = 0;
            compute(c);
        }
    }
}

static void tick(struct cluster *c)
{
    struct tm_outbox out;
    tm_outbox_init(&out);
    c->now_ms += 50;
    for (uint64_t id = 1; id <= c->count; id++) {
        if (!c->toys[id].dead) tm_worker_tick(c->toys[id].worker, c->now_ms, &out);
        post(c, &out, false);
    }
    double start_s = now_s();
    tm_coordinator_tick(c->coordinator, c->now_ms, c->now_ms, &out);
    c->spent_s += now_s() - start_s;
    post(c, &out, true);
    tm_outbox_deinit(&out);
    compute(c);
    settle(c);
}

static bool runs(const struct cluster *c)
{
    return tm_coordinator_look(c->coordinator).phase == TM_COORDINATOR_RUNNING;
}

static struct cluster *make_cluster(size_t count)
{
    static const struct tm_coordinator_options options = {.job = JOB,
                                                          .incarnation = 77,
                                                          .token = "t",
                                                          .layers = LAYERS,
                                                          .steps = STEPS,
                                                          .micro_batches = 1024,
                                                          .heartbeat_ms = 1000,
                                                          .lease_ms = 1000000,
                                                          .orphan_ms = 2000000,
                                                          .resend_ms = 100000,
                                                          .settle_ms = 1000,
                                                          .drain_limit_ms = 100000,
                                                          .fetch_limit_ms = 1000000,
                                                          .stall_ms = 1000000,
                                                          .fresh = true};
    struct cluster *c = tm_calloc(1, sizeof *c);
    must(c != NULL, "no memory");
    c->rule = (struct tm_use_all){.stages = STAGES, .workers_min = (uint32_t)count};
    c->count = count;
    c->now_ms = 1000;
    c->holds_steps = true;
    struct tm_decider decider = tm_decider_use_all(&c->rule);
    c->coordinator = tm_coordinator_create(&options, &decider);
    must(c->coordinator != NULL, "no memory");
    struct tm_outbox out;
    tm_outbox_init(&out);
    tm_coordinator_begin(c->coordinator, c->now_ms, c->now_ms, &out);
    tm_outbox_deinit(&out);
    for (uint64_t id = 1; id <= count; id++) {
        struct toy *toy = &c->toys[id];
        struct tm_worker_engine engine = {.context = toy,
                                          .layer_bytes = layer_bytes,
                                          .export_layer = export_layer,
                                          .import_layer = import_layer,
                                          .init_layer = init_layer,
                                          .drop_layer = drop_layer,
                                          .begin = begin_step,
                                          .cancel = cancel_step,
                                          .apply = apply_step,
                                          .discard = discard_step,
                                          .waiting_for = waiting_for};
        struct tm_worker_options worker = {.job = JOB,
                                           .id = id,
                                           .incarnation = 1000 + id,
                                           .token = "t",
                                           .address = "10.123.45.67:40123",
                                           .endpoint = "10.123.45.67:40124",
                                           .kernel_class = "toy",
                                           .chunk_bytes = 1024,
                                           .copy_bytes_max = 1 << 20,
                                           .resend_ms = 100000};
        *toy = (struct toy){.cluster = c, .id = id, .worker = tm_worker_create(&worker, &engine)};
        must(toy->worker != NULL, "no memory");
    }
    for (int i = 0; i < 40 && !runs(c); i++)
        tick(c);
    must(runs(c), "no generation starts");
    c->rule.workers_min = 1;
    return c;
}

static void drop_cluster(struct cluster *c)
{
    for (uint64_t id = 1; id <= c->count; id++)
        tm_worker_destroy(c->toys[id].worker);
    for (size_t i = c->first; i < c->last; i++)
        tm_free(c->queue[i].data);
    tm_free(c->queue);
    tm_coordinator_destroy(c->coordinator);
    tm_free(c);
}

/* ---- a decision ---- */

static int speed_of(void *context, int pipelines, int stages, double *samples_per_s, double *step_s, struct tm_error *e)
{
    (void)context;
    (void)e;
    *samples_per_s = 10.0 * pipelines * stages / (1 + 0.1 * stages);
    *step_s = 8 / *samples_per_s;
    return 0;
}

/* Of the first decision after a loss, in seconds. */
static double decision_s(size_t count)
{
    static const char cost_text[] = "tidemill-cost: 1\nkind: paper\ntransfer_us: {1: 100, 1000000000: 20000000}\n"
                                    "models: {toy: {stages_max: 8, process_ms: 200, rendezvous_ms: 300}}\n";
    struct tm_layer list[LAYERS];
    struct tm_cost cost;
    struct tm_layouts layouts;
    struct tm_migrations *migrations = NULL;
    struct tm_policy_decider *policy = NULL;
    struct tm_error e;
    for (int l = 0; l < LAYERS; l++)
        list[l] = (struct tm_layer){.params = 1000, .tied = -1};
    struct tm_model model = {.name = "toy", .optimizer_states = 2, .layers = list, .layer_count = LAYERS};
    must(tm_cost_parse("cost", cost_text, sizeof cost_text - 1, "toy", &cost, &e) == 0, "cost");
    must(tm_layouts_init(&layouts, &model, &cost.rules, (int)count, speed_of, NULL, &e) == 0, "layouts");
    must(tm_migrations_create(&layouts, &cost, &migrations, &e) == 0, "migrations");
    struct tm_policy_rule rule = {.info = tm_policy_find("tidemill"),
                                  .layouts = &layouts,
                                  .migrations = migrations,
                                  .cost = &cost,
                                  .interval_s = 60,
                                  .workers_min = 1,
                                  .samples_per_step = 8};
    must(tm_policy_decider_create(&rule, &policy, &e) == 0, "policy");
    struct tm_decider decider = tm_policy_decider_get(policy);
    struct tm_run_worker *workers = tm_calloc(count, sizeof *workers);
    must(workers != NULL, "no memory");
    for (size_t i = 0; i < count; i++)
        workers[i] = (struct tm_run_worker){.id = i + 1, .pool = -1, .seated = true};
    struct tm_run_view view = {.now_ms = 1000,
                               .layers = LAYERS,
                               .micro_batches = 1024,
                               .steps = STEPS,
                               .applied = 50,
                               .workers = workers,
                               .worker_count = count - 1,
                               .generation = 2,
                               .pipelines = (uint32_t)(count / STAGES),
                               .stages = STAGES,
                               .last_pipelines = (uint32_t)(count / STAGES),
                               .last_stages = STAGES,
                               .last_workers = count,
                               .last_here = count - 1,
                               .since_copy_ms = 1000};
    struct tm_run_decision out;
    double start_s = now_s();
    decider.decide(decider.context, &view, &out);
    double took_s = now_s() - start_s;
    tm_free(workers);
    tm_policy_decider_destroy(policy);
    tm_migrations_destroy(migrations);
    tm_layouts_deinit(&layouts);
    return took_s;
}

/* ---- */

struct row {
    double count, decision_s, time_s, messages, bytes, flags, flag_bytes;
};

static struct row measure(size_t count)
{
    struct cluster *c = make_cluster(count);
    struct tm_outbox out;
    struct row row = {.count = (double)count, .decision_s = decision_s(count)};
    c->holds_steps = false; /* one step, and no more */
    c->flags = c->flag_bytes = 0;
    compute(c);
    c->holds_steps = true;
    settle(c);
    row.flags = c->flags;
    row.flag_bytes = c->flag_bytes;
    for (uint64_t id = 1; id <= count; id++)
        must(tm_worker_look(c->toys[id].worker, c->now_ms).applied == 1, "a step is not applied by all");
    struct tm_peer lost = {.role = TM_ROLE_WORKER, .id = count / 2, .incarnation = 1000 + count / 2};
    c->toys[lost.id].dead = true;
    c->spent_s = c->said = c->said_bytes = 0;
    tm_outbox_init(&out);
    double start_s = now_s();
    tm_coordinator_dead(c->coordinator, c->now_ms, &lost, &out);
    c->spent_s += now_s() - start_s;
    post(c, &out, true);
    tm_outbox_deinit(&out);
    settle(c);
    for (int i = 0; i < 20 && !runs(c); i++)
        tick(c);
    must(runs(c), "no generation after a loss");
    row.time_s = c->spent_s;
    row.messages = c->said;
    row.bytes = c->said_bytes;
    drop_cluster(c);
    return row;
}

static double growth(double few, double many, double times)
{
    return few > 0 && many > 0 ? log(many / few) / log(times) : NAN;
}

/* Is what is counted within n log n? A tenth of the exponent is left for what does not grow at all. */
static bool grows_slowly(const struct row *first, const struct row *last)
{
    double times = last->count / first->count;
    double most = growth(first->count * log(first->count), last->count * log(last->count), times) + 0.1;
    const struct {
        const char *what;
        double few, many;
    } rows[] = {{"messages from loss to start", first->messages, last->messages},
                {"bytes from loss to start", first->bytes, last->bytes},
                {"messages of a step's flags", first->flags, last->flags},
                {"bytes of a step's flags", first->flag_bytes, last->flag_bytes}};
    bool slowly = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double grown = growth(rows[i].few, rows[i].many, times);
        if (grown <= most) continue;
        printf("MISSED: %s grow as n^%.2f, n log n would be n^%.2f\n", rows[i].what, grown, most - 0.1);
        slowly = false;
    }
    return slowly;
}

int main(int argc, char **argv)
{
    static const size_t counts[] = {8, 16, 32, 64, 128, 256, 512, 1024};
    size_t rows = sizeof counts / sizeof *counts;
    struct row first = {0}, last = {0};
    size_t most = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : MOST;
    printf("members  decision   loss to start: time, messages, bytes     flags of a step: messages, bytes\n");
    for (size_t i = 0; i < rows && counts[i] <= most; i++) {
        last = measure(counts[i]);
        if (counts[i] == GROWTH_FROM) first = last;
        printf("%7.0f  %6.2f ms  %10.2f ms %8.0f %10.0f  %17.0f %10.0f\n", last.count, last.decision_s * 1e3,
               last.time_s * 1e3, last.messages, last.bytes, last.flags, last.flag_bytes);
    }
    double times = last.count / first.count;
    printf("growth n^p, from %.0f to %.0f members: decision %.2f; loss to start: time %.2f, messages %.2f, bytes %.2f; "
           "flags: messages %.2f, bytes %.2f\n",
           first.count, last.count, growth(first.decision_s, last.decision_s, times),
           growth(first.time_s, last.time_s, times), growth(first.messages, last.messages, times),
           growth(first.bytes, last.bytes, times), growth(first.flags, last.flags, times),
           growth(first.flag_bytes, last.flag_bytes, times));
    printf("each to each, the flags of a step would be %.0f messages; whole rosters, %.1f MB\n",
           last.count * (last.count - 1), last.count * last.count * 45 / 1e6);
    return last.count <= first.count || grows_slowly(&first, &last) ? 0 : 1;
}
