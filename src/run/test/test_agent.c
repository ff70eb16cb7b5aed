/* The agent: starts its worker, starts it again but not for ever, tells of its end at once, passes notices on. */
#include "base/test/harness.h"
#include "run/agent.h"

static const struct tm_agent_options options = {.job = 1,
                                                .id = 5,
                                                .incarnation = 9,
                                                .token = "t",
                                                .heartbeat_ms = 1000,
                                                .backoff_ms = 100,
                                                .restarts_max = 3,
                                                .restart_window_ms = 10000};

static uint64_t started(struct tm_outbox *out)
{
    uint64_t incarnation = 0;
    for (size_t i = 0; i < out->count; i++)
        if (out->actions[i].kind == TM_AGENT_START_WORKER) incarnation = out->actions[i].number;
    tm_outbox_clear(out);
    return incarnation;
}

static void test_restarts(void **state)
{
    (void)state;
    struct tm_agent agent;
    struct tm_outbox out;
    tm_outbox_init(&out);
    tm_agent_init(&agent, &options);
    tm_agent_tick(&agent, 0, &out);
    uint64_t first = started(&out);
    assert_true(first != 0);
    tm_agent_worker_ended(&agent, 50, first + 1, false, &out); /* of another one: nothing */
    assert_int_equal(agent.worker, first);
    int64_t now_ms = 100;
    uint64_t last = first;
    for (int i = 0; i < 3; i++) {
        tm_agent_worker_ended(&agent, now_ms, last, false, &out);
        tm_agent_tick(&agent, now_ms + (100 << i) - 1, &out);
        assert_int_equal(started(&out), 0); /* not before its time, which doubles */
        now_ms += 100 << i;
        tm_agent_tick(&agent, now_ms, &out);
        uint64_t next = started(&out);
        assert_true(next != 0 && next != last);
        last = next;
    }
    tm_agent_worker_ended(&agent, now_ms, last, false, &out);
    assert_true(agent.gave_up); /* the fourth within the window */
    tm_agent_tick(&agent, now_ms + 5000, &out);
    assert_int_equal(started(&out), 0);
    tm_outbox_deinit(&out);
}

static void test_ends_in_order(void **state)
{
    (void)state;
    struct tm_agent agent;
    struct tm_outbox out;
    tm_outbox_init(&out);
    tm_agent_init(&agent, &options);
    tm_agent_tick(&agent, 0, &out);
    tm_agent_worker_ended(&agent, 10, started(&out), true, &out);
    tm_agent_tick(&agent, 100000, &out);
    assert_int_equal(started(&out), 0);
    tm_outbox_deinit(&out);
}

static void test_notice(void **state)
{
    (void)state;
    struct tm_agent agent;
    struct tm_outbox out;
    struct tm_arena arena;
    tm_message *message = NULL;
    tm_outbox_init(&out);
    tm_arena_init(&arena, 1 << 20);
    tm_agent_init(&agent, &options);
    agent.registered = true;
    tm_agent_notice(&agent, 1000, 30000, &out);
    assert_int_equal(out.count, 1); /* at once, not with the next heartbeat */
    assert_int_equal(
        tm_message_unpack(tm_outbox_data(&out, &out.actions[0]), out.actions[0].length, &arena, &message, NULL), 0);
    assert_true(message->agent_heartbeat->notice);
    assert_int_equal(message->agent_heartbeat->notice_left_ms, 30000);
    tm_outbox_clear(&out);
    tm_agent_notice(&agent, 2000, -1, &out); /* taken back */
    assert_int_equal(
        tm_message_unpack(tm_outbox_data(&out, &out.actions[0]), out.actions[0].length, &arena, &message, NULL), 0);
    assert_false(message->agent_heartbeat->notice);
    tm_arena_deinit(&arena);
    tm_outbox_deinit(&out);
}

TM_TEST_MAIN(TM_TEST(test_restarts), TM_TEST(test_ends_in_order), TM_TEST(test_notice))
