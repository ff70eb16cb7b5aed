/* What engines tell the coordinator of the job: its kernel class, losses, and that the job itself is wrong. */
#include "base/test/harness.h"
#include "run/coordinator.h"
#include "run/test/record_samples.h"
#include "wire/proof.h"

#include <string.h>

enum { JOB = 3 };

static const struct tm_coordinator_options options = {.job = JOB,
                                                      .incarnation = 22,
                                                      .token = "t",
                                                      .layers = 4,
                                                      .steps = 1000,
                                                      .micro_batches = 8,
                                                      .heartbeat_ms = 100,
                                                      .lease_ms = 1000000,
                                                      .orphan_ms = 3000000,
                                                      .resend_ms = 1000000,
                                                      .fetch_limit_ms = 1000000,
                                                      .fresh = true};

struct bench {
    struct tm_use_all rule;
    struct tm_coordinator *coordinator;
    struct tm_outbox out;
    struct tm_arena arena;
    int64_t now_ms;
};

static void bench_open_with(struct bench *b, const char *fingerprint)
{
    struct tm_coordinator_options given = options;
    given.fingerprint = fingerprint;
    *b = (struct bench){.rule = {.stages = 1, .workers_min = 9}, .now_ms = 1000};
    struct tm_decider decider = tm_decider_use_all(&b->rule);
    b->coordinator = tm_coordinator_create(&given, &decider);
    assert_non_null(b->coordinator);
    tm_outbox_init(&b->out);
    tm_arena_init(&b->arena, 64 << 20);
}

static void bench_open(struct bench *b)
{
    bench_open_with(b, NULL);
}

static void bench_close(struct bench *b)
{
    tm_coordinator_destroy(b->coordinator);
    tm_outbox_deinit(&b->out);
    tm_arena_deinit(&b->arena);
}

/* The newest message of a kind to that worker; NULL: none. */
static const tm_message *said(struct bench *b, uint64_t worker, int body)
{
    tm_message *found = NULL;
    for (size_t i = 0; i < b->out.count; i++) {
        const struct tm_action *action = &b->out.actions[i];
        tm_message *message = NULL;
        if (action->kind != TM_ACTION_SEND || action->to.id != worker) continue;
        assert_int_equal(tm_message_unpack(tm_outbox_data(&b->out, action), action->length, &b->arena, &message, NULL),
                         0);
        if ((int)message->body_case == body) found = message;
    }
    return found;
}

static tm_message head(uint64_t worker)
{
    struct tm_peer from = {.role = TM_ROLE_WORKER, .id = worker, .incarnation = 100 + worker};
    struct tm_peer to = {.role = TM_ROLE_COORDINATOR};
    return tm_message_make(JOB, &from, &to);
}

static void hello_with(struct bench *b, uint64_t worker, const char *kernel_class, char *part)
{
    Tmw__Hello body = TMW__HELLO__INIT;
    tm_message message = head(worker);
    char text[64];
    struct tm_peer self = tm_message_sender(&message);
    uint8_t proof[TM_PROOF_BYTES];
    (void)snprintf(text, sizeof text, "%s", kernel_class);
    body.kernel_class = text;
    body.fingerprint = &part;
    body.n_fingerprint = part != NULL;
    message.body_case = TMW__ENVELOPE__BODY_HELLO;
    message.hello = &body;
    tm_coordinator_receive(b->coordinator, b->now_ms, &message, &b->out);
    const tm_message *challenge = said(b, worker, TMW__ENVELOPE__BODY_CHALLENGE);
    assert_non_null(challenge);
    tm_proof_put_hello("t", message.job, &self, challenge->challenge->nonce, proof, &body);
    tm_outbox_clear(&b->out);
    tm_coordinator_receive(b->coordinator, b->now_ms, &message, &b->out);
}

static void hello(struct bench *b, uint64_t worker, const char *kernel_class)
{
    hello_with(b, worker, kernel_class, NULL);
}

static void heartbeat_at(struct bench *b, uint64_t worker, uint64_t sequence, uint64_t applied,
                         const struct tm_step_loss *losses, size_t count, const char *failure)
{
    Tmw__Heartbeat body = TMW__HEARTBEAT__INIT;
    Tmw__StepLoss parts[8];
    Tmw__StepLoss *list[8];
    tm_message message = head(worker);
    char text[64];
    (void)snprintf(text, sizeof text, "%s", failure);
    for (size_t i = 0; i < count; i++) {
        tmw__step_loss__init(&parts[i]);
        parts[i].step = losses[i].step;
        parts[i].loss = losses[i].loss;
        list[i] = &parts[i];
    }
    body.sequence = sequence;
    body.applied = applied;
    body.generation = tm_coordinator_look(b->coordinator).generation;
    body.step_ms = 7;
    body.losses = list;
    body.n_losses = count;
    body.failure = text;
    message.body_case = TMW__ENVELOPE__BODY_HEARTBEAT;
    message.heartbeat = &body;
    tm_coordinator_receive(b->coordinator, b->now_ms, &message, &b->out);
}

static void heartbeat(struct bench *b, uint64_t worker, uint64_t sequence, const struct tm_step_loss *losses,
                      size_t count, const char *failure)
{
    heartbeat_at(b, worker, sequence, options.steps, losses, count, failure);
}

/* Every event recorded so far of one kind, the last of them; the outbox is emptied. */
static size_t recorded(struct bench *b, Tmw__RecordEvent__BodyCase body, Tmw__RecordEvent **out_last)
{
    size_t count = 0;
    for (size_t i = 0; i < b->out.count; i++) {
        const struct tm_action *action = &b->out.actions[i];
        Tmw__RecordEvent *event = NULL;
        if (action->kind != TM_COORDINATOR_RECORD) continue;
        assert_int_equal(
            tm_record_event_unpack(tm_outbox_data(&b->out, action), action->length, &b->arena, &event, NULL), 0);
        if (event->body_case != body) continue;
        *out_last = event;
        count++;
    }
    tm_outbox_clear(&b->out);
    return count;
}

static void test_kernel_class(void **state)
{
    (void)state;
    struct bench b;
    Tmw__RecordEvent *event = NULL;
    bench_open(&b);
    tm_coordinator_begin(b.coordinator, b.now_ms, 0, &b.out);
    hello(&b, 1, "avx2");
    assert_non_null(said(&b, 1, TMW__ENVELOPE__BODY_WELCOME));
    assert_int_equal(recorded(&b, TMW__RECORD_EVENT__BODY_KERNEL_CLASS, &event), 1);
    assert_string_equal(event->kernel_class, "avx2");
    hello(&b, 2, "avx512");
    assert_null(said(&b, 2, TMW__ENVELOPE__BODY_WELCOME));
    const tm_message *refused = said(&b, 2, TMW__ENVELOPE__BODY_REFUSE);
    assert_non_null(refused);
    assert_non_null(strstr(refused->refuse->reason, "'avx512'"));
    assert_non_null(strstr(refused->refuse->reason, "'avx2'"));
    hello(&b, 3, "avx2");
    assert_non_null(said(&b, 3, TMW__ENVELOPE__BODY_WELCOME));
    struct bench again; /* the record is enough to go on refusing */
    bench_open(&again);
    assert_int_equal(tm_coordinator_load(again.coordinator, event, NULL), 0);
    tm_coordinator_begin(again.coordinator, 0, 0, &again.out);
    hello(&again, 2, "avx512");
    assert_non_null(said(&again, 2, TMW__ENVELOPE__BODY_REFUSE));
    bench_close(&again);
    bench_close(&b);
}

/* A machine with another job file, other data or another program is refused with both values, by the first word of
 * whoever came first, or of the coordinator's own job file; and so after a restart. */
static void test_fingerprint(void **state)
{
    (void)state;
    struct bench b;
    struct bench again;
    struct tm_error e = {0};
    Tmw__RecordEvent *event = NULL;
    char right[] = "lr=0.003";
    char wrong[] = "lr=0.001";
    bench_open(&b);
    tm_coordinator_begin(b.coordinator, b.now_ms, 0, &b.out);
    hello_with(&b, 1, "k", right);
    assert_non_null(said(&b, 1, TMW__ENVELOPE__BODY_WELCOME));
    assert_int_equal(recorded(&b, TMW__RECORD_EVENT__BODY_FINGERPRINT, &event), 1);
    assert_int_equal(event->fingerprint->n_parts, 1);
    assert_string_equal(event->fingerprint->parts[0], right);
    hello_with(&b, 2, "k", wrong);
    assert_null(said(&b, 2, TMW__ENVELOPE__BODY_WELCOME));
    const tm_message *refused = said(&b, 2, TMW__ENVELOPE__BODY_REFUSE);
    assert_non_null(refused);
    assert_non_null(strstr(refused->refuse->reason, "another job file: lr is 0.001"));
    assert_non_null(strstr(refused->refuse->reason, "0.003 in the job:"));
    hello_with(&b, 3, "k", right);
    assert_non_null(said(&b, 3, TMW__ENVELOPE__BODY_WELCOME));
    bench_open(&again); /* the record is enough to go on refusing */
    assert_int_equal(tm_coordinator_load(again.coordinator, event, NULL), 0);
    tm_coordinator_begin(again.coordinator, 0, 0, &again.out);
    hello_with(&again, 2, "k", wrong);
    assert_non_null(said(&again, 2, TMW__ENVELOPE__BODY_REFUSE));
    bench_close(&again);
    bench_open_with(&again, wrong); /* a coordinator with another job file does not go on with the record at all */
    assert_int_equal(tm_coordinator_load(again.coordinator, event, &e), -(int)TM_EINPUT);
    assert_error_has(e, "lr is 0.003 on the record, but 0.001 in the job");
    bench_close(&again);
    bench_open_with(&again, right); /* its own job file counts more than who comes first */
    tm_coordinator_begin(again.coordinator, 0, 0, &again.out);
    hello_with(&again, 2, "k", wrong);
    assert_non_null(said(&again, 2, TMW__ENVELOPE__BODY_REFUSE));
    bench_close(&again);
    bench_close(&b);
}

static void test_losses(void **state)
{
    (void)state;
    struct bench b;
    Tmw__RecordEvent *event = NULL;
    bench_open(&b);
    tm_coordinator_begin(b.coordinator, b.now_ms, 0, &b.out);
    hello(&b, 1, "k");
    hello(&b, 2, "k");
    const struct tm_step_loss first[] = {{1, 5.5}, {3, 4.5}};
    const struct tm_step_loss second[] = {{2, 5.0}, {3, 4.5}, {2000, 1}, {0, 1}};
    heartbeat(&b, 1, 1, first, 2, "");
    heartbeat(&b, 2, 1, second, 4, "");
    struct tm_coordinator_view view = tm_coordinator_look(b.coordinator);
    assert_int_equal(view.loss_count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(view.losses[i].step, i + 1);
        assert_true(view.losses[i].loss == 5.5 - 0.5 * (double)i);
    }
    assert_int_equal(view.step_ms, 7);
    tm_outbox_clear(&b.out);
    tm_coordinator_tick(b.coordinator, b.now_ms += 2000, 0, &b.out);
    assert_int_equal(recorded(&b, TMW__RECORD_EVENT__BODY_PROGRESS, &event), 1);
    assert_int_equal(event->progress->step, 3);
    assert_true(event->progress->loss == 4.5 && event->progress->step_ms == 7);
    for (uint64_t step = 4; step <= 600; step++) { /* two a tick, a tick each 50 ms: an event a second */
        struct tm_step_loss told = {step, 1.0 / (double)step};
        heartbeat(&b, 1 + step % 2, step, &told, 1, "");
        if (step % 2 == 0) tm_coordinator_tick(b.coordinator, b.now_ms += 50, 0, &b.out);
    }
    assert_true(recorded(&b, TMW__RECORD_EVENT__BODY_PROGRESS, &event) <= 15);
    view = tm_coordinator_look(b.coordinator);
    assert_int_equal(view.loss_count, 256);
    assert_int_equal(view.losses[0].step, 345);
    assert_int_equal(view.losses[255].step, 600);
    /* A stopped job's last loss is told at once; a restarted coordinator forgets those of steps that are rolled back.
     */
    const struct tm_step_loss more[] = {{601, 0.25}};
    heartbeat(&b, 1, 601, more, 1, "");
    tm_coordinator_tick(b.coordinator, b.now_ms += 2000, 0, &b.out);
    const struct tm_step_loss last[] = {{602, 0.125}};
    heartbeat(&b, 1, 602, last, 1, "");
    tm_outbox_clear(&b.out);
    tm_coordinator_stop(b.coordinator, b.now_ms, "requested", true, &b.out);
    assert_int_equal(recorded(&b, TMW__RECORD_EVENT__BODY_PROGRESS, &event), 1);
    assert_int_equal(event->progress->step, 602);
    bench_close(&b);
}

/* Rolled back to step 10, says the record: what was told of later steps is past, also where a worker repeats it. */
static void test_losses_of_rolled_back_steps(void **state)
{
    (void)state;
    static const uint64_t ids[] = {1, 2};
    struct bench b;
    struct samples s;
    bench_open(&b);
    samples_init(&s);
    for (uint64_t step = 10; step <= 40; step += 10)
        add_progress(&s, step, 1.0 / (double)step, 7);
    (void)add_start(&s, (uint64_t)1 << 32 | 2, 10, 1, 2, ids, 2);
    for (size_t i = 0; i < s.count; i++) {
        struct tm_error e = {0};
        assert_row(tm_coordinator_load(b.coordinator, s.events[i], &e) == 0, "%s", e.text);
    }
    struct tm_coordinator_view view = tm_coordinator_look(b.coordinator);
    assert_int_equal(view.loss_count, 1);
    assert_int_equal(view.losses[0].step, 10);
    tm_coordinator_begin(b.coordinator, b.now_ms, 0, &b.out);
    hello(&b, 1, "k");
    heartbeat_at(&b, 1, 1, 11, &(struct tm_step_loss){40, 0.025}, 1, "");
    assert_int_equal(tm_coordinator_look(b.coordinator).loss_count, 1);
    heartbeat_at(&b, 1, 2, 11, &(struct tm_step_loss){12, 0.5}, 1, "");
    assert_int_equal(tm_coordinator_look(b.coordinator).loss_count, 2);
    samples_deinit(&s);
    bench_close(&b);
}

static void test_failed(void **state)
{
    (void)state;
    struct bench b;
    Tmw__RecordEvent *event = NULL;
    bench_open(&b);
    tm_coordinator_begin(b.coordinator, b.now_ms, 0, &b.out);
    hello(&b, 1, "k");
    hello(&b, 2, "k");
    heartbeat(&b, 2, 1, NULL, 0, "the loss is no number");
    for (uint64_t worker = 1; worker <= 2; worker++) {
        const tm_message *stop = said(&b, worker, TMW__ENVELOPE__BODY_STOP);
        assert_true(stop != NULL && stop->stop->failed);
        assert_string_equal(stop->stop->reason, "the loss is no number");
    }
    assert_int_equal(recorded(&b, TMW__RECORD_EVENT__BODY_FAILED, &event), 1);
    assert_int_equal(event->failed->worker, 2);
    heartbeat(&b, 2, 2, NULL, 0, "again"); /* the first word counts */
    assert_string_equal(tm_coordinator_look(b.coordinator).failure, "the loss is no number");
    struct bench again; /* a restarted coordinator tries nothing either */
    bench_open(&again);
    assert_int_equal(tm_coordinator_load(again.coordinator, event, NULL), 0);
    tm_coordinator_begin(again.coordinator, 0, 0, &again.out);
    assert_int_equal(tm_coordinator_look(again.coordinator).phase, TM_COORDINATOR_FAILED);
    bench_close(&again);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel_class), cmocka_unit_test(test_fingerprint), cmocka_unit_test(test_losses),
        cmocka_unit_test(test_losses_of_rolled_back_steps), cmocka_unit_test(test_failed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
