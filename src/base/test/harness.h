/* House helpers over cmocka, for all rooms' unit tests.
 *
 *     static void test_x(void **state) { ... }
 *     TM_TEST_MAIN(TM_TEST(test_x), TM_TEST(test_y))
 *
 * TM_FAIL_EACH_ALLOC runs a statement again and again, failing the 1st, 2nd, 3rd ... allocation in it until it gets
 * through without a failure. The statement must set `rc`; while an allocation fails, rc must be -TM_ENOMEM (or 0, if
 * the loss was survivable), and afterwards nothing may be left over. */
#ifndef TM_BASE_TEST_HARNESS_H
#define TM_BASE_TEST_HARNESS_H

#include "base/alloc.h"
#include "base/doc.h"
#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TM_TEST(function) cmocka_unit_test(function)

#define TM_TEST_MAIN(...)                                                                                              \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        tm_json_use_our_alloc();                                                                                       \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                                                               \
        return cmocka_run_group_tests(tests, NULL, NULL);                                                              \
    }

#define TM_FAIL_EACH_ALLOC(statement)                                                                                  \
    do {                                                                                                               \
        for (long tm_n = 1;; tm_n++) {                                                                                 \
            int rc = 0;                                                                                                \
            long tm_live = tm_alloc_live();                                                                            \
            tm_alloc_fail_at(tm_n);                                                                                    \
            statement;                                                                                                 \
            int tm_failed = tm_alloc_failed();                                                                         \
            tm_alloc_fail_at(0);                                                                                       \
            if (tm_failed && rc != 0) assert_int_equal(rc, -(int)TM_ENOMEM);                                           \
            if (!tm_failed) assert_int_equal(rc, 0);                                                                   \
            assert_int_equal(tm_alloc_live(), tm_live);                                                                \
            if (!tm_failed) break;                                                                                     \
            assert_true(tm_n < 1000000);                                                                               \
        }                                                                                                              \
    } while (0)

#define TM_COUNT(array) (sizeof(array) / sizeof *(array))

/* Checks for tests that run over rows of a table: the message must name the row. */
#define assert_row(condition, ...)                                                                                     \
    do {                                                                                                               \
        if (!(condition)) fail_msg(__VA_ARGS__);                                                                       \
    } while (0)

/* The row is named by what was put in. */
#define assert_row_string(row, got, want)                                                                              \
    assert_row(strcmp((got), (want)) == 0, "\"%s\": got \"%s\", want \"%s\"", (row), (got), (want))

/* Checks that an error's words hold a piece of text. */
#define assert_error_has(error, piece)                                                                                 \
    do {                                                                                                               \
        if (strstr((error).text, (piece)) == NULL) fail_msg("\"%s\" does not hold \"%s\"", (error).text, (piece));     \
    } while (0)

#endif
