/* When the coordinator gives a job up: tries that fail without a new step, by the record also after a restart. */
#include "base/test/harness.h"
#include "run/test/coord_rig.h"

#define ENTRY(name) TMW__RECORD_EVENT__BODY_##name
#define KIND(name)  TMW__ENVELOPE__BODY_##name

struct end {
    uint64_t id;
    uint64_t incarnation;
    uint32_t status;
    uint64_t ran_ms;
    bool notice;
};

/* Its agent tells of a worker's end. */
static void ends(struct coord_rig *r, struct end end)
{
    struct fake *fake = &r->fakes[end.id];
    Tmw__AgentHeartbeat body = TMW__AGENT_HEARTBEAT__INIT;
    char first[] = "Traceback (most recent call last):";
    char second[] = "ValueError: no";
    char file[] = "logs/worker-1.log";
    char *lines[] = {first, second};
    body.sequence = ++fake->agent_sequence;
    body.instance = end.id;
    body.ended_incarnation = end.incarnation;
    body.ended_status = end.status;
    body.ended_failed = true;
    body.ended_ran_ms = end.ran_ms;
    body.notice = end.notice;
    body.notice_left_ms = end.notice ? 30000 : 0;
    body.n_ended_lines = 2;
    body.ended_lines = lines;
    body.ended_file = file;
    RIG_TELL(r, rig_agent(r, end.id), AGENT_HEARTBEAT, agent_heartbeat, &body);
}

static void setup(struct coord_rig *r, uint64_t agents)
{
    struct tm_coordinator_options options = rig_options;
    options.failures_max = 3;
    assert_true(rig_create(r, &options));
    rig_begin(r);
    for (uint64_t id = 1; id <= agents; id++)
        rig_agent_joins(r, id);
    rig_pass(r, 1000, false);
    rig_clear(r);
}

static enum tm_job_state state_after(struct coord_rig *r, struct end end)
{
    for (int i = 0; i < 2; i++) {
        rig_pass(r, 500, false);
        for (uint64_t id = 1; id <= 3; id++)
            if (r->fakes[id].agent_incarnation != 0 && (id != end.id || !end.notice))
                rig_agent_says(r, id, (struct agent_word){0});
    }
    rig_clear(r);
    ends(r, end);
    return rig_look(r).state;
}

static void test_gives_up(void **state)
{
    (void)state;
    struct coord_rig r;
    Tmw__RecordEvent *event = NULL;
    setup(&r, 3);
    assert_int_equal(state_after(&r, (struct end){1, 101, 1, 10, false}), TM_JOB_STARTING);
    assert_int_equal(state_after(&r, (struct end){1, 101, 1, 10, false}), TM_JOB_STARTING);   /* said again */
    assert_int_equal(state_after(&r, (struct end){2, 201, 1, 5000, false}), TM_JOB_STARTING); /* of the same try */
    assert_int_equal(state_after(&r, (struct end){1, 102, 1, 10, false}), TM_JOB_STARTING);
    assert_true(rig_recorded(&r, ENTRY(FAILURE), 0, &event) >= 0);
    assert_int_equal(event->failure->failures, 2);
    assert_int_equal(state_after(&r, (struct end){3, 301, 139, 10, false}), TM_JOB_FAILED);
    assert_true(rig_recorded(&r, ENTRY(FAILED), 0, &event) >= 0);
    assert_string_equal(event->failed->reason, "worker 3 was killed by SIGSEGV; 3 failures without a new step");
    assert_int_equal(event->failed->n_lines, 2);
    assert_string_equal(event->failed->lines[1], "ValueError: no");
    assert_string_equal(event->failed->file, "logs/worker-1.log");
    const tm_message *order = mailbox_find_to(&r.box, KIND(AGENT_ORDER), 3);
    assert_true(order != NULL && order->agent_order->stop);
    rig_destroy(&r);
}

/* A program that knows nothing of the job does its own thing and ends well: on all machines, and the job fails. */
static void test_never_joined(void **state)
{
    (void)state;
    struct coord_rig r;
    Tmw__RecordEvent *event = NULL;
    setup(&r, 2);
    assert_int_equal(state_after(&r, (struct end){1, 101, 0, 10, false}),
                     TM_JOB_STARTING); /* the other may do better */
    assert_int_equal(state_after(&r, (struct end){2, 201, 0, 10, false}), TM_JOB_FAILED);
    assert_true(rig_recorded(&r, ENTRY(FAILED), 0, &event) >= 0);
    assert_non_null(strstr(event->failed->reason, "worker 2 ended with status 0 and never joined the job"));
    rig_destroy(&r);
}

static void test_a_restart_counts_on(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r, 1);
    (void)state_after(&r, (struct end){1, 101, 1, 10, false});
    assert_int_equal(state_after(&r, (struct end){1, 102, 1, 10, false}), TM_JOB_STARTING);
    rig_restart(&r, true);
    rig_begin(&r);
    rig_agent_joins(&r, 1);
    assert_int_equal(state_after(&r, (struct end){1, 102, 1, 10, false}), TM_JOB_STARTING); /* heard of before */
    assert_int_equal(state_after(&r, (struct end){1, 103, 1, 10, false}), TM_JOB_FAILED);
    rig_destroy(&r);
}

static void test_who_goes_does_not_fail(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r, 1);
    for (uint64_t i = 0; i < 5; i++) { /* the notice is told with the end, or before it */
        rig_agent_says(&r, 1, (struct agent_word){.notice = true, .notice_left_ms = 30000});
        assert_int_equal(state_after(&r, (struct end){1, 110 + i, 1, 10, true}), TM_JOB_STARTING);
    }
    assert_true(rig_recorded(&r, ENTRY(FAILURE), 0, NULL) < 0);
    rig_destroy(&r);
}

static void test_a_new_step_counts(void **state)
{
    (void)state;
    struct coord_rig r;
    struct tm_coordinator_options options = rig_options;
    options.failures_max = 3;
    assert_true(rig_create(&r, &options));
    rig_begin(&r);
    rig_run(&r, 4);
    rig_agent_joins(&r, 5);
    for (uint64_t i = 0; i < 6; i++) {
        uint64_t before = rig_look(&r).applied;
        rig_pass(&r, 2000, true);
        assert_true(rig_look(&r).applied > before);
        rig_clear(&r);
        ends(&r, (struct end){5, 501 + i, 1, 10, false});
        assert_int_not_equal(rig_look(&r).state, TM_JOB_FAILED);
    }
    rig_destroy(&r);
}

/* Mended, says who wants it to go on; and the coordinators after that one know it by the record. */
static void test_tried_again(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r, 1);
    for (uint64_t i = 0; i < 3; i++)
        (void)state_after(&r, (struct end){1, 101 + i, 1, 10, false});
    assert_int_equal(rig_look(&r).state, TM_JOB_FAILED);
    rig_restart(&r, true);
    rig_begin(&r);
    assert_int_equal(rig_look(&r).state, TM_JOB_FAILED); /* by itself it stays so */
    r.options.retry = true;
    rig_restart(&r, true);
    rig_begin(&r);
    assert_int_equal(rig_look(&r).state, TM_JOB_STARTING);
    r.options.retry = false;
    rig_restart(&r, true);
    rig_begin(&r);
    assert_int_equal(rig_look(&r).state, TM_JOB_STARTING);
    rig_agent_joins(&r, 1);
    assert_int_equal(state_after(&r, (struct end){1, 111, 1, 10, false}), TM_JOB_STARTING); /* counted from none */
    rig_destroy(&r);
}

/* One machine is broken, the others have not failed: it is tried more often before the job is blamed. */
static void test_one_machine_alone(void **state)
{
    (void)state;
    struct coord_rig r;
    setup(&r, 2);
    for (uint64_t i = 0; i < 11; i++)
        assert_int_equal(state_after(&r, (struct end){1, 101 + i, 1, 10, false}), TM_JOB_STARTING);
    assert_int_equal(state_after(&r, (struct end){2, 201, 1, 10, false}), TM_JOB_FAILED); /* the other one, too */
    rig_destroy(&r);
    setup(&r, 2);
    for (uint64_t i = 0; i < 11; i++)
        assert_int_equal(state_after(&r, (struct end){1, 101 + i, 1, 10, false}), TM_JOB_STARTING);
    assert_int_equal(state_after(&r, (struct end){1, 112, 1, 10, false}), TM_JOB_FAILED);
    rig_destroy(&r);
}

TM_TEST_MAIN(TM_TEST(test_tried_again), TM_TEST(test_one_machine_alone), TM_TEST(test_gives_up),
             TM_TEST(test_never_joined), TM_TEST(test_a_restart_counts_on), TM_TEST(test_who_goes_does_not_fail),
             TM_TEST(test_a_new_step_counts))
