#include "run/action_queue.h"

#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

enum { OWN = TM_ACTION_OWN + 3 };

static void release(struct tm_action_queue *q, uint64_t durable, char all[200])
{
    struct tm_queued_action *queued = NULL;
    tm_action_queue_release(q, durable);
    while ((queued = tm_action_queue_take(q)) != NULL) {
        size_t used = strlen(all);
        (void)snprintf(all + used, 200 - used, "%d:%.*s ", queued->action.kind, (int)queued->action.length,
                       queued->data);
        tm_free(queued);
    }
}

static int put(struct tm_action_queue *q, int kind, const char *data, struct tm_error *e)
{
    return tm_action_queue_put(q, &(struct tm_action){.kind = kind, .length = strlen(data)}, data, e);
}

/* In order, each when what it waits for lasts, and none before. */
static void test_order(void **state)
{
    (void)state;
    static const struct {
        uint64_t durable;
        const char *out;
    } rows[] = {{0, ""}, {4, ""}, {5, "0:a 0:b "}, {5, ""}, {8, ""}, {12, "19:c 0:d "}};
    struct tm_action_queue q;
    tm_action_queue_init(&q);
    assert_true(tm_action_queue_open(&q));
    tm_action_queue_hold(&q, 5);
    assert_false(tm_action_queue_open(&q));
    assert_int_equal(put(&q, TM_ACTION_SEND, "a", NULL), 0);
    assert_int_equal(put(&q, TM_ACTION_SEND, "b", NULL), 0);
    tm_action_queue_hold(&q, 9);
    assert_int_equal(put(&q, OWN, "c", NULL), 0);
    assert_int_equal(put(&q, TM_ACTION_SEND, "d", NULL), 0);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char all[200] = "";
        release(&q, rows[i].durable, all);
        assert_row(strcmp(all, rows[i].out) == 0, "row %zu: %s", i, all);
        assert_int_equal(tm_action_queue_open(&q), rows[i].durable >= 9);
    }
    tm_action_queue_hold(&q, 13);
    assert_int_equal(put(&q, OWN, "e", NULL), 0);
    tm_action_queue_clear(&q); /* the event was taken back, and its number is given again */
    assert_true(tm_action_queue_open(&q));
    tm_action_queue_hold(&q, 13);
    assert_int_equal(put(&q, OWN, "f", NULL), 0);
    char all[200] = "";
    release(&q, 13, all);
    assert_string_equal(all, "19:f ");
    tm_action_queue_clear(&q);
}

static void test_limit(void **state)
{
    (void)state;
    struct tm_action_queue q;
    struct tm_error e;
    tm_action_queue_init(&q);
    tm_action_queue_hold(&q, 1);
    for (size_t i = 0; i < TM_QUEUED_ACTIONS_MAX; i++)
        assert_int_equal(put(&q, TM_ACTION_SEND, "", NULL), 0);
    assert_int_equal(put(&q, TM_ACTION_SEND, "said again", NULL), 0); /* left out */
    assert_int_equal(q.count, TM_QUEUED_ACTIONS_MAX);
    assert_int_equal(put(&q, OWN, "", &e), -(int)TM_ELIMIT);
    assert_error_has(e, "the record's disk does not answer");
    tm_action_queue_clear(&q);
}

static void test_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_action_queue q;
        tm_action_queue_init(&q);
        tm_action_queue_hold(&q, 1);
        rc = put(&q, OWN, "a", NULL);
        if (rc == 0) rc = put(&q, OWN, "b", NULL);
        tm_action_queue_clear(&q);
    });
}

TM_TEST_MAIN(TM_TEST(test_order), TM_TEST(test_limit), TM_TEST(test_memory))
