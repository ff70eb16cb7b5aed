/* Files that cannot be written or read: what waits for the record, what goes on, when the job gives up. */
#include "run/test/coord_bench.h"

/* Actions that ask for a sync since the last bench_forget. */
static size_t syncs(const struct bench *b)
{
    size_t count = 0;
    for (size_t i = 0; i < b->out.count; i++)
        count += b->out.actions[i].kind == TM_COORDINATOR_RECORD && b->out.actions[i].number != 0;
    return count;
}

static struct tm_coordinator_view look(const struct bench *b)
{
    return tm_coordinator_look(b->coordinator);
}

/* It trains, and has this trouble with files. */
static void trouble(struct bench *b, uint64_t worker, uint64_t applied, const char *text, bool full)
{
    static uint64_t sequence = 100000;
    Tmw__Heartbeat body = TMW__HEARTBEAT__INIT;
    tm_message message = bench_head(worker);
    char words[TM_MESSAGE_STRING_MAX + 1];
    (void)snprintf(words, sizeof words, "%s", text);
    body.sequence = ++sequence;
    body.generation = bench_generation(b);
    body.phase = TM_WORKER_RUNNING;
    body.applied = applied;
    body.trouble = words;
    body.trouble_full = full;
    message.body_case = TMW__ENVELOPE__BODY_HEARTBEAT;
    message.heartbeat = &body;
    tm_coordinator_receive(b->coordinator, b->now_ms, &message, &b->out);
}

static void test_waits_for_the_record(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b);
    bench_run(&b, 3); /* 1 and 2 have seats, 3 is a spare */
    tm_coordinator_record_stuck(b.coordinator, "disk full: /x cannot be written");
    bench_forget(&b);
    uint64_t generation = bench_generation(&b);
    bench_heartbeat(&b, 1, 50, 0);
    assert_non_null(bench_said(&b, 1, TMW__ENVELOPE__BODY_HEARTBEAT_ACK)); /* training goes on */
    assert_int_equal(look(&b).applied, 50);
    assert_string_equal(look(&b).trouble, "disk full: /x cannot be written");
    assert_true(look(&b).trouble_full);
    bench_dead(&b, 2);
    bench_hello(&b, 4);
    for (int i = 0; i < 30; i++) {
        bench_heartbeat(&b, 1, 50, 0);
        bench_heartbeat(&b, 3, 0, 0);
        bench_tick(&b, 500);
    }
    assert_int_equal(syncs(&b), 0);
    assert_int_equal(bench_generation(&b), generation);
    assert_int_equal(look(&b).phase, TM_COORDINATOR_RUNNING);
    tm_coordinator_record_stuck(b.coordinator, NULL);
    bench_tick(&b, 100);
    assert_int_equal(bench_generation(&b), generation + 1);
    assert_non_null(bench_said(&b, 1, TMW__ENVELOPE__BODY_FENCE));
    assert_int_equal(syncs(&b), 1);
    assert_string_equal(look(&b).trouble, "");
    bench_close(&b);
}

/* Who is lost while the record cannot be written, and is back before it can: nothing has to change. */
static void test_back_in_time(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b);
    bench_run(&b, 2);
    uint64_t generation = bench_generation(&b);
    tm_coordinator_record_stuck(b.coordinator, "full");
    bench_heartbeat(&b, 1, 50, 0);
    bench_tick(&b, 1500); /* both leases are over */
    bench_hello(&b, 1);
    bench_hello(&b, 2);
    tm_coordinator_record_stuck(b.coordinator, NULL);
    bench_tick(&b, 100);
    bench_heartbeat(&b, 2, 51, 0);
    assert_int_equal(bench_generation(&b), generation);
    assert_int_equal(look(&b).applied, 51);
    bench_close(&b);
}

static void test_stop_answers(void **state)
{
    (void)state;
    struct bench b;
    struct tm_coordinator_options options = bench_options;
    options.drain_limit_ms = 1000;
    options.copy_limit_ms = 1000;
    bench_open_as(&b, &options);
    tm_coordinator_begin(b.coordinator, b.now_ms, 0, &b.out);
    bench_run(&b, 2);
    tm_coordinator_record_stuck(b.coordinator, "full");
    bench_forget(&b);
    tm_coordinator_stop(b.coordinator, b.now_ms, "told to", false, &b.out);
    for (int i = 0; i < 30 && look(&b).phase != TM_COORDINATOR_STOPPED; i++) {
        bench_heartbeat(&b, 1, 50, 0);
        bench_heartbeat(&b, 2, 50, 0);
        bench_tick(&b, 200);
    }
    assert_int_equal(look(&b).phase, TM_COORDINATOR_STOPPED);
    assert_int_equal(syncs(&b), 0);
    assert_false(look(&b).gave_up);
    bench_close(&b);
}

/* Sets that fail again and again: what is said, how it ends. */
static void test_gives_up(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *text;
        bool full;
        uint64_t applied;
        bool gives_up;
        const char *reason;
    } rows[] = {
        {"a folder that cannot be used", "/c/set-1/layer-0: Not a directory", false, 50, true,
         "copy set abandoned: /c/set-1/layer-0: Not a directory; fix that, then resume it"},
        {"a full disk", "disk full: /c", true, 50, false, ""},
        {"a full disk at the end", "disk full: /c", true, 1000, true,
         "copy set abandoned: disk full: /c; free some disk space, then resume it"},
        {"only slow", "", false, 50, false, ""},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct bench b;
        struct tm_coordinator_options options = bench_options;
        options.copies_to_files = true;
        options.copy_limit_ms = 2000;
        bench_open_as(&b, &options);
        b.rule.copy_every_ms = 500;
        tm_coordinator_begin(b.coordinator, b.now_ms, 0, &b.out);
        bench_run(&b, 2);
        for (int t = 0; t < 60 && look(&b).state != TM_JOB_STOPPED; t++) {
            trouble(&b, 1, rows[i].applied, rows[i].text, rows[i].full);
            trouble(&b, 2, rows[i].applied, "", false);
            bench_tick(&b, 200);
        }
        Tmw__RecordEvent *event = NULL;
        assert_row(bench_recorded(&b, TMW__RECORD_EVENT__BODY_NOTE, &event) >= 3, "%s: no set was tried", rows[i].name);
        assert_row(strncmp(event->note->what, "copy set abandoned: ", 19) == 0, "%s: %s", rows[i].name,
                   event->note->what);
        assert_row((look(&b).state == TM_JOB_STOPPED) == rows[i].gives_up, "%s", rows[i].name);
        assert_row(look(&b).gave_up == rows[i].gives_up, "%s", rows[i].name);
        if (rows[i].gives_up) {
            (void)bench_recorded(&b, TMW__RECORD_EVENT__BODY_STATE, &event);
            assert_true(event->state->gave_up);
            assert_string_equal(event->state->reason, rows[i].reason);
        }
        bench_close(&b);
    }
}

TM_TEST_MAIN(TM_TEST(test_waits_for_the_record), TM_TEST(test_back_in_time), TM_TEST(test_stop_answers),
             TM_TEST(test_gives_up))
