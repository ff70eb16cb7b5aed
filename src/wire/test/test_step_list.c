/* What is told of steps: order, limits, messages there and back. */
#include "base/test/harness.h"
#include "wire/step_list.h"

#include <stdio.h>
#include <string.h>

static void test_order(void **state)
{
    struct tm_step_list list = {.entries = NULL};
    static const uint64_t steps[] = {5, 3, 9, 4, 9};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        struct tm_step_entry *entry = tm_step_list_at(&list, steps[i]);
        assert_non_null(entry);
        entry->loss = (double)steps[i];
        entry->known = true;
    }
    assert_int_equal(list.count, 4);
    for (size_t i = 1; i < list.count; i++)
        assert_true(list.entries[i].step > list.entries[i - 1].step);
    tm_step_list_drop_after(&list, 4);
    assert_int_equal(list.count, 2);
    tm_step_list_drop_first(&list, 1);
    assert_int_equal(list.entries[0].step, 4);
    tm_step_list_clear(&list);
    assert_int_equal(list.count, 0);
}

static void test_limits(void **state)
{
    struct tm_step_list list = {.entries = NULL};
    char name[TM_STEP_NAME_MAX + 8];
    (void)state;
    for (uint64_t step = 1; step <= TM_STEPS_KEPT + 2; step++)
        assert_non_null(tm_step_list_at(&list, step));
    assert_int_equal(list.count, TM_STEPS_KEPT);
    assert_int_equal(list.entries[0].step, 3);
    assert_null(tm_step_list_at(&list, 1)); /* older than all that are kept */
    struct tm_step_entry *entry = tm_step_list_at(&list, 100);
    for (int i = 0; i < TM_STEP_METRICS_MAX + 3; i++) {
        (void)snprintf(name, sizeof name, "m%d", i);
        tm_step_entry_set(entry, name, i);
    }
    tm_step_entry_set(entry, "m0", 7);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    tm_step_entry_set(entry, name, 1); /* too long: left out */
    tm_step_entry_set(entry, "", 1);
    assert_int_equal(entry->metric_count, TM_STEP_METRICS_MAX);
    assert_true(entry->metrics[0].value > 6);
    tm_step_list_clear(&list);
}

static int there_and_back(void)
{
    struct tm_step_list from = {.entries = NULL};
    struct tm_step_list to = {.entries = NULL};
    struct tm_arena arena;
    int rc = -(int)TM_ENOMEM;
    tm_arena_init(&arena, 1 << 16);
    struct tm_step_entry *entry = tm_step_list_at(&from, 12);
    Tmw__StepLoss *told = NULL;
    if (entry != NULL) {
        entry->loss = 0.5;
        entry->known = true;
        tm_step_entry_set(entry, "lr", 0.25);
        told = tm_step_entry_write(entry, &arena);
    }
    if (told != NULL) tm_step_list_take(&to, told);
    if (to.count == 1 && to.entries[0].metric_count == 1) {
        assert_int_equal(to.entries[0].step, 12);
        assert_true(to.entries[0].known && to.entries[0].loss > 0.49 && to.entries[0].loss < 0.51);
        assert_string_equal(to.entries[0].metrics[0].name, "lr");
        rc = 0;
    }
    tm_step_list_clear(&from);
    tm_step_list_clear(&to);
    tm_arena_deinit(&arena);
    return rc;
}

static void test_messages(void **state)
{
    (void)state;
    assert_int_equal(there_and_back(), 0);
}

static void test_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({ rc = there_and_back(); });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
