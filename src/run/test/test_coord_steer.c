/* Orders to a run: limits reach the next decision, a copy is owed until one is whole, what cannot be is refused, and a
 * coordinator after this one obeys the same. */
#include "run/test/coord_bench.h"

struct spy {
    struct tm_decider under;
    struct tm_run_limits limits;
};

static void decide(void *context, const struct tm_run_view *view, struct tm_run_decision *out)
{
    struct spy *spy = context;
    spy->limits = view->limits;
    spy->under.decide(spy->under.context, view, out);
}

static void open_spied(struct bench *b, struct spy *spy, const struct tm_coordinator_options *options)
{
    *b = (struct bench){.rule = {.stages = 2, .workers_min = 1, .workers_max = 6}, .now_ms = 1000};
    *spy = (struct spy){.under = tm_decider_use_all(&b->rule)};
    struct tm_decider decider = {.context = spy, .decide = decide};
    b->coordinator = tm_coordinator_create(options, &decider);
    assert_non_null(b->coordinator);
    tm_outbox_init(&b->out);
    tm_arena_init(&b->arena, 64 << 20);
}

static int steer(struct bench *b, enum tm_steer what, uint64_t value)
{
    struct tm_steer_order order = {.what = what, .value = value};
    return tm_coordinator__steer(b->coordinator, &order, &b->out, NULL);
}

/* What was recorded of orders, in another coordinator. */
static void hand_over(struct bench *from, struct bench *to)
{
    for (size_t i = 0; i < from->out.count; i++) {
        const struct tm_action *action = &from->out.actions[i];
        Tmw__RecordEvent *event = NULL;
        if (action->kind != TM_COORDINATOR_RECORD) continue;
        assert_int_equal(
            tm_record_event_unpack(tm_outbox_data(&from->out, action), action->length, &to->arena, &event, NULL), 0);
        assert_int_equal(tm_coordinator_load(to->coordinator, event, NULL), 0);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct bench b, next;
    struct spy spy, next_spy;
    open_spied(&b, &spy, &bench_options);
    tm_coordinator_begin(b.coordinator, b.now_ms, 0, &b.out);
    bench_run(&b, 2);
    bench_tick(&b, 50);
    assert_false(spy.limits.deadline_set || spy.limits.budget_set);
    assert_int_equal(steer(&b, TM_STEER_DEADLINE, 7200000), 0);
    assert_int_equal(steer(&b, TM_STEER_BUDGET, 12500000), 0);
    bench_tick(&b, 50);
    assert_true(spy.limits.deadline_set && spy.limits.budget_set);
    assert_true(spy.limits.deadline_s == 7200 && spy.limits.budget_usd == 12.5);
    assert_int_equal(steer(&b, TM_STEER_BUDGET, 0), 0); /* none */
    assert_int_equal(steer(&b, TM_STEER_DEADLINE, 1), -(int)TM_EINPUT);
    assert_int_equal(bench_recorded(&b, TMW__RECORD_EVENT__BODY_STEER, NULL), 3);
    open_spied(&next, &next_spy, &bench_options);
    hand_over(&b, &next);
    tm_coordinator_begin(next.coordinator, next.now_ms, 0, &next.out);
    bench_hello(&next, 1);
    bench_hello(&next, 2);
    bench_tick(&next, 50);
    assert_true(next_spy.limits.deadline_s == 7200 && next_spy.limits.budget_set && next_spy.limits.budget_usd == 0);
    bench_close(&next);
    bench_close(&b);
}

static struct tm_coordinator_options copying(void)
{
    struct tm_coordinator_options options = bench_options;
    options.copies = 1;
    return options;
}

static void copied(struct bench *b, uint64_t worker)
{
    const tm_message *message = bench_said(b, worker, TMW__ENVELOPE__BODY_COPY_ORDER);
    assert_non_null(message);
    const Tmw__CopyOrder *order = message->copy_order;
    Tmw__Heartbeat body = TMW__HEARTBEAT__INIT;
    tm_message told = bench_head(worker);
    Tmw__CopyPart parts[64];
    Tmw__CopyPart *list[64];
    for (size_t t = 0; t < order->n_tasks; t++) {
        for (size_t h = 0; h < order->tasks[t]->n_targets; h++) {
            Tmw__CopyPart *part = &parts[body.n_copied];
            tmw__copy_part__init(part);
            part->set = order->set;
            part->step = order->step;
            part->layer = order->tasks[t]->layer;
            part->holder = order->tasks[t]->targets[h];
            part->hash_low = 1;
            list[body.n_copied++] = part;
        }
    }
    static uint64_t sequence = 1000000;
    body.sequence = ++sequence;
    body.generation = bench_generation(b);
    body.phase = TM_WORKER_RUNNING;
    body.applied = order->step;
    body.copied_set = order->set;
    body.copied = list;
    told.body_case = TMW__ENVELOPE__BODY_HEARTBEAT;
    told.heartbeat = &body;
    tm_coordinator_receive(b->coordinator, b->now_ms, &told, &b->out);
}

static void test_copy(void **state)
{
    (void)state;
    struct bench b, next;
    struct tm_coordinator_options options = copying();
    Tmw__RecordEvent *event = NULL;
    bench_open_as(&b, &options);
    tm_coordinator_begin(b.coordinator, b.now_ms, 0, &b.out);
    bench_run(&b, 2);
    for (uint64_t w = 1; w <= 2; w++)
        bench_heartbeat(&b, w, 5, 0);
    bench_tick(&b, 50);
    assert_null(bench_said(&b, 1, TMW__ENVELOPE__BODY_COPY_ORDER)); /* nobody wants one */
    assert_int_equal(steer(&b, TM_STEER_COPY, 0), 0);
    assert_int_equal(bench_recorded(&b, TMW__RECORD_EVENT__BODY_STEER, &event), 1);
    assert_int_equal(event->steer->step, 5);
    /* One that begins now would make it, too: it is owed by the record. */
    bench_open_as(&next, &options);
    hand_over(&b, &next);
    tm_coordinator_begin(next.coordinator, next.now_ms, 0, &next.out);
    bench_tick(&b, 50);
    for (uint64_t w = 1; w <= 2; w++)
        copied(&b, w);
    assert_int_equal(bench_recorded(&b, TMW__RECORD_EVENT__BODY_SET_WHOLE, &event), 1);
    assert_true(event->set_whole->step >= 5);
    bench_forget(&b);
    bench_tick(&b, 50);
    bench_tick(&b, 50);
    assert_null(bench_said(&b, 1, TMW__ENVELOPE__BODY_COPY_ORDER)); /* one is enough */
    bench_hello(&next, 1);
    bench_hello(&next, 2);
    for (uint64_t w = 1; w <= 2; w++)
        bench_heartbeat(&next, w, 6, 0);
    bench_tick(&next, 50);
    assert_non_null(bench_said(&next, 1, TMW__ENVELOPE__BODY_COPY_ORDER));
    bench_close(&next);
    bench_close(&b);
}

static void test_refused(void **state)
{
    (void)state;
    struct bench b;
    struct tm_coordinator_options options = copying();
    bench_open(&b);
    assert_int_equal(steer(&b, TM_STEER_COPY, 0), -(int)TM_EBUSY); /* it makes none */
    tm_coordinator_record_stuck(b.coordinator, "no room");
    assert_int_equal(steer(&b, TM_STEER_BUDGET, 5000000), -(int)TM_EFULL);
    tm_coordinator_record_stuck(b.coordinator, NULL);
    tm_coordinator_stop(b.coordinator, b.now_ms, "told to", false, &b.out);
    assert_int_equal(steer(&b, TM_STEER_BUDGET, 5000000), -(int)TM_EBUSY);
    assert_int_equal(bench_recorded(&b, TMW__RECORD_EVENT__BODY_STEER, NULL), 0);
    bench_close(&b);
    /* A copy that has no place is told, and not tried for ever. */
    bench_open_as(&b, &options);
    b.rule.stages = 1;
    tm_coordinator_begin(b.coordinator, b.now_ms, 0, &b.out);
    bench_run(&b, 1);
    bench_heartbeat(&b, 1, 5, 0);
    assert_int_equal(steer(&b, TM_STEER_COPY, 0), 0);
    bench_forget(&b);
    for (int i = 0; i < 3; i++)
        bench_tick(&b, 50);
    assert_int_equal(bench_recorded(&b, TMW__RECORD_EVENT__BODY_NOTE, NULL), 1);
    bench_close(&b);
}

TM_TEST_MAIN(TM_TEST(test_limits), TM_TEST(test_copy), TM_TEST(test_refused))
