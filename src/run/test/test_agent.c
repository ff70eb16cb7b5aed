/* The agent: starts its worker, starts it again but not for ever, tells of its end at once, passes notices on. */
#include "base/test/harness.h"
#include "run/agent.h"

#include <signal.h>

static const struct tm_agent_options options = {.job = 1,
                                                .id = 5,
                                                .incarnation = 9,
                                                .token = "t",
                                                .heartbeat_ms = 1000,
                                                .backoff_ms = 100,
                                                .restarts_max = 3,
                                                .restart_window_ms = 10000};

static const struct tm_worker_end failed = {.status = 1};
static const struct tm_worker_end in_order = {.status = 0};

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
    tm_agent_worker_ended(&agent, 50, first + 1, &failed, &out); /* of another one: nothing */
    assert_int_equal(agent.worker, first);
    int64_t now_ms = 100;
    uint64_t last = first;
    for (int i = 0; i < 3; i++) {
        tm_agent_worker_ended(&agent, now_ms, last, &failed, &out);
        tm_agent_tick(&agent, now_ms + (100 << i) - 1, &out);
        assert_int_equal(started(&out), 0); /* not before its time, which doubles */
        now_ms += 100 << i;
        tm_agent_tick(&agent, now_ms, &out);
        uint64_t next = started(&out);
        assert_true(next != 0 && next != last);
        last = next;
    }
    tm_agent_worker_ended(&agent, now_ms, last, &failed, &out);
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
    tm_agent_worker_ended(&agent, 10, started(&out), &in_order, &out);
    tm_agent_tick(&agent, 100000, &out);
    assert_int_equal(started(&out), 0);
    tm_outbox_deinit(&out);
}

static void order(struct tm_agent *agent, bool at_once, uint64_t worker, struct tm_outbox *out)
{
    struct tm_peer from = {.role = TM_ROLE_COORDINATOR, .incarnation = 3};
    tm_message message = tm_message_make(options.job, &from, &agent->self);
    Tmw__AgentOrder body = TMW__AGENT_ORDER__INIT;
    body.sequence = agent->sequence;
    body.stop = true;
    body.restart_worker = at_once;
    body.worker_incarnation = worker;
    message.body_case = TMW__ENVELOPE__BODY_AGENT_ORDER;
    message.agent_order = &body;
    tm_agent_receive(agent, 2000, &message, out);
}

/* At the job's end a worker is given time, unless it takes no part; another one than was meant is given time, too. */
static void test_end_of_the_job(void **state)
{
    (void)state;
    static const struct {
        bool at_once;
        bool another;
        uint64_t want;
    } rows[] = {{false, false, 0}, {true, false, 1}, {true, true, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_agent agent;
        struct tm_outbox out;
        tm_outbox_init(&out);
        tm_agent_init(&agent, &options);
        agent.registered = true;
        agent.coordinator.incarnation = 3;
        tm_agent_tick(&agent, 1000, &out);
        uint64_t worker = started(&out);
        order(&agent, rows[i].at_once, worker + rows[i].another, &out);
        assert_true(agent.stopped);
        assert_int_equal(out.count, 2);
        assert_int_equal(out.actions[0].kind, TM_AGENT_END_WORKER);
        assert_int_equal(out.actions[0].number, worker);
        assert_int_equal(out.actions[0].other, rows[i].want);
        assert_int_equal(out.actions[1].kind, TM_AGENT_STOP);
        tm_outbox_deinit(&out);
    }
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

/* What the next heartbeat says of the worker that ended. */
static const Tmw__AgentHeartbeat *word(struct tm_outbox *out, struct tm_arena *arena)
{
    tm_message *message = NULL;
    assert_true(out->count > 0);
    const struct tm_action *last = &out->actions[out->count - 1];
    assert_int_equal(tm_message_unpack(tm_outbox_data(out, last), last->length, arena, &message, NULL), 0);
    return message->agent_heartbeat;
}

/* Which ends are failures. */
static void test_failures(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int status;
        bool kills_expected, noticed, ordered;
        bool failed;
    } rows[] = {
        {"exit status", 1, false, false, false, true},
        {"segfault", 128 + SIGSEGV, true, false, false, true},
        {"out of memory", 128 + SIGKILL, false, false, false, true},
        {"a kill of ours", 128 + SIGKILL, true, false, false, false},
        {"the machine goes down", 128 + SIGTERM, false, false, false, false},
        {"preempted", 1, false, true, false, false},
        {"ended by order", 128 + SIGKILL, false, false, true, false},
        {"with status 0, of which the coordinator knows better", 0, false, false, false, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_agent_options own = options;
        struct tm_agent agent;
        struct tm_outbox out;
        struct tm_arena arena;
        tm_outbox_init(&out);
        tm_arena_init(&arena, 1 << 20);
        own.kills_expected = rows[i].kills_expected;
        tm_agent_init(&agent, &own);
        tm_agent_tick(&agent, 1000, &out);
        agent.registered = true;
        if (rows[i].noticed) tm_agent_notice(&agent, 1500, 30000, &out);
        if (rows[i].ordered) agent.ending = agent.worker;
        struct tm_worker_end end = {
            .status = rows[i].status, .output = "a\nb\n", .output_length = 4, .file = "logs/worker-5.log"};
        tm_agent_worker_ended(&agent, 3000, agent.worker, &end, &out);
        const Tmw__AgentHeartbeat *said = word(&out, &arena);
        assert_row(said->ended_failed == rows[i].failed, "%s", rows[i].name);
        assert_int_equal(said->ended_status, rows[i].status);
        assert_int_equal(said->ended_ran_ms, 2000);
        assert_row(said->n_ended_lines == (rows[i].failed ? 2U : 0U), "%s", rows[i].name);
        agent.acked = agent.sequence; /* heard: the lines need not be said again */
        tm_outbox_clear(&out);
        tm_agent_tick(&agent, 9000, &out);
        said = word(&out, &arena);
        if (rows[i].failed) assert_int_equal(said->ended_ago_ms, 6000);
        assert_int_equal(said->n_ended_lines, 0);
        tm_arena_deinit(&arena);
        tm_outbox_deinit(&out);
    }
}

TM_TEST_MAIN(TM_TEST(test_failures), TM_TEST(test_restarts), TM_TEST(test_ends_in_order), TM_TEST(test_end_of_the_job),
             TM_TEST(test_notice))
