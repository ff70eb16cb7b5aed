/* From one generation to the next: who is asked to apply the step in doubt, and what people are told of it all. */
#include "run/test/coord_bench.h"

/* A worker that comes back from an older generation holds the step that the last one applied. It is not to apply it:
 * with others of its time it may be all that is left of the step before (found by seed 4910). */
static void test_straggler_keeps_its_step(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b);
    bench_run(&b, 2);
    bench_heartbeat(&b, 2, 50, 0);
    b.now_ms += 800;
    bench_heartbeat(&b, 1, 50, 0);
    bench_tick(&b, 800); /* nothing is heard of 2 any more: its link is cut */
    bench_report(&b, 1, 50, 51, 0, 2);
    for (int i = 0; i < 5; i++) { /* it may only be silent: for the orphan time step 50 is not given up */
        assert_int_equal(tm_coordinator_look(b.coordinator).phase, TM_COORDINATOR_COLLECTING);
        bench_heartbeat(&b, 1, 50, 0);
        bench_tick(&b, 700);
    }
    bench_ready(&b, 1);
    struct tm_coordinator_view view = tm_coordinator_look(b.coordinator);
    assert_int_equal(view.phase, TM_COORDINATOR_RUNNING);
    assert_int_equal(view.base, 0); /* half of the layers is lost, and there are no copies */
    bench_heartbeat(&b, 1, 50, 0);
    bench_hello(&b, 2); /* it is back, as it was */
    bench_tick(&b, 100);
    assert_int_equal(tm_coordinator_look(b.coordinator).phase, TM_COORDINATOR_DRAINING);
    bench_heartbeat(&b, 1, 51, 0);
    assert_int_equal(tm_coordinator_look(b.coordinator).phase, TM_COORDINATOR_DRAINING); /* it does not know yet */
    b.drain_step = 51;
    bench_heartbeat(&b, 1, 51, 0);
    assert_int_equal(tm_coordinator_look(b.coordinator).phase, TM_COORDINATOR_COLLECTING);
    bench_forget(&b);
    bench_report(&b, 2, 50, 51, 2, 4);
    bench_report(&b, 1, 51, 0, 0, 4);
    assert_null(bench_said(&b, 2, TMW__ENVELOPE__BODY_RESOLVE));
    view = tm_coordinator_look(b.coordinator);
    assert_int_equal(view.phase, TM_COORDINATOR_ASSIGNED);
    assert_int_equal(view.base, 51);
    bench_close(&b);
}

/* A member that holds the step which another has applied is asked to apply it. */
static void test_member_applies(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b);
    bench_run(&b, 3); /* 1 and 2 have seats, 3 is a spare */
    bench_heartbeat(&b, 1, 50, 0);
    bench_dead(&b, 3); /* no seat is lost */
    bench_tick(&b, 10);
    assert_int_equal(tm_coordinator_look(b.coordinator).phase, TM_COORDINATOR_RUNNING);
    b.now_ms += 1200; /* nobody spoke: both leases end */
    tm_coordinator_tick(b.coordinator, b.now_ms, 0, &b.out);
    assert_int_equal(tm_coordinator_look(b.coordinator).phase, TM_COORDINATOR_COLLECTING);
    bench_hello(&b, 1);
    bench_hello(&b, 2);
    bench_forget(&b);
    bench_report(&b, 1, 51, 0, 0, 2);
    bench_report(&b, 2, 50, 51, 2, 4);
    assert_non_null(bench_said(&b, 2, TMW__ENVELOPE__BODY_RESOLVE));
    bench_report(&b, 2, 51, 0, 2, 4);
    assert_int_equal(tm_coordinator_look(b.coordinator).base, 51);
    bench_close(&b);
}

static void test_events(void **state)
{
    (void)state;
    struct bench b;
    Tmw__RecordEvent *event = NULL;
    bench_open(&b);
    bench_run(&b, 4);
    assert_int_equal(bench_recorded(&b, TMW__RECORD_EVENT__BODY_ARRIVAL, &event), 4);
    assert_false(event->arrival->again);
    bench_forget(&b);
    for (uint64_t w = 1; w <= 4; w++)
        bench_heartbeat(&b, w, 10, 30);
    assert_int_equal(bench_recorded(&b, TMW__RECORD_EVENT__BODY_PAUSE, NULL), 0); /* the start is none */
    int64_t committed_ms = b.now_ms - 30;
    b.now_ms += 300;
    bench_dead(&b, 4);
    bench_dead(&b, 4);
    assert_int_equal(bench_recorded(&b, TMW__RECORD_EVENT__BODY_LOSS, &event), 1);
    assert_true(event->loss->seated && !event->loss->announced && !event->loss->silent);
    assert_int_equal(bench_recorded(&b, TMW__RECORD_EVENT__BODY_GENERATION, &event), 1);
    assert_int_equal(event->generation->cause, TM_CHANGED_LOSS);
    b.now_ms += 100;
    b.report_ago_ms = (uint64_t)(b.now_ms - committed_ms);
    for (uint64_t w = 1; w <= 3; w++)
        bench_report(&b, w, 10, 11, w % 2 == 1 ? 0 : 2, w % 2 == 1 ? 2 : 4);
    bench_forget(&b);
    for (uint64_t w = 1; w <= 3; w++)
        bench_ready(&b, w);
    assert_int_equal(bench_recorded(&b, TMW__RECORD_EVENT__BODY_GENERATION, &event), 1);
    assert_true(event->generation->started);
    assert_int_equal(event->generation->redone, 1);
    assert_int_equal(event->generation->rolled_back, 0);
    b.now_ms += 500;
    bench_heartbeat(&b, 1, 12, 20); /* the first commit was one step of 70 ms earlier */
    assert_int_equal(bench_recorded(&b, TMW__RECORD_EVENT__BODY_PAUSE, &event), 1);
    assert_int_equal(event->pause->cause, TM_CHANGED_LOSS);
    assert_int_equal(event->pause->pause_ms, b.now_ms - 20 - 70 - committed_ms);
    assert_int_equal(event->pause->step_ms, 70);
    bench_forget(&b);
    tm_message again = bench_head(4);
    again.from_incarnation = 555;
    bench_hello_as(&b, &again, false);
    assert_int_equal(bench_recorded(&b, TMW__RECORD_EVENT__BODY_ARRIVAL, &event), 1);
    assert_true(event->arrival->again);
    assert_int_equal(tm_coordinator_look(b.coordinator).steps_redone, 1);
    bench_close(&b);
}

TM_TEST_MAIN(TM_TEST(test_straggler_keeps_its_step), TM_TEST(test_member_applies), TM_TEST(test_events))
