#include "base/suggest.h"

#include "base/test/harness.h"

#include <string.h>

static void test_distance(void **state)
{
    (void)state;
    static const struct {
        const char *a;
        const char *b;
        size_t distance;
    } rows[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"abc", "", 3},
        {"abc", "abc", 0},
        {"abc", "ABC", 0},
        {"abc", "abd", 1},
        {"abc", "abcd", 1},
        {"abc", "bc", 1},
        {"abc", "acb", 1},
        {"kitten", "sitting", 3},
        {"deadlien", "deadline", 1},
        {"a", "z", 1},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        size_t there = tm_suggest__distance(rows[i].a, rows[i].b);
        size_t back = tm_suggest__distance(rows[i].b, rows[i].a);
        assert_row(there == rows[i].distance, "\"%s\" to \"%s\": %zu", rows[i].a, rows[i].b, there);
        assert_row(back == there, "\"%s\" to \"%s\": %zu there, %zu back", rows[i].a, rows[i].b, there, back);
    }
}

static void test_long_names_are_far(void **state)
{
    (void)state;
    char name[65];
    memset(name, 'x', sizeof name);
    name[63] = '\0';
    assert_int_equal(tm_suggest__distance(name, name), 0);
    assert_int_equal(tm_suggest__distance(name, ""), 63);
    name[63] = 'x';
    name[64] = '\0';
    assert_true(tm_suggest__distance(name, name) == SIZE_MAX);
    assert_true(tm_suggest__distance("x", name) == SIZE_MAX);
}

static void test_offer(void **state)
{
    (void)state;
    static const char *const candidates[] = {"deadline_margin", "deadline", "nodes",      "node",  "seed",
                                             "spend",           "trace",    "strategies", "output"};
    static const struct {
        const char *word;
        const char *best;
    } rows[] = {
        {"deadlien", "deadline"},    {"Deadline", "deadline"}, /* another case beats a name that only starts so */
        {"dead", "deadline_margin"}, {"noeds", "nodes"},       {"nodess", "nodes"}, {"sed", "seed"}, {"spedn", "spend"},
        {"strat", "strategies"},     {"xyzzy", NULL},          {"zz", NULL},        {"", NULL},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_suggest suggest = {.word = rows[i].word};
        for (size_t c = 0; c < TM_COUNT(candidates); c++)
            tm_suggest_offer(&suggest, candidates[c]);
        const char *got = suggest.best != NULL ? suggest.best : "(none)";
        assert_row_string(rows[i].word, got, rows[i].best != NULL ? rows[i].best : "(none)");
    }
}

static void test_offer_does_not_go_too_far(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        const char *candidate;
        int near;
    } rows[] = {
        {"ab", "ax", 1},
        {"ab", "xy", 0},
        {"abcdef", "abcdxy", 1},
        {"abcdef", "abcxyz", 0},
        {"abcdefghijkl", "abcdefghixyz", 1},
        {"abcdefghijklmno", "abcdefghijkwxyz", 0},
        {"llama-65b", "llama-2-7b", 0}, /* other digits are another size */
        {"llama-2-6b", "llama-2-7b", 1},
        {"lama2-7b", "llama-2-7b", 1},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_suggest suggest = {.word = rows[i].word};
        tm_suggest_offer(&suggest, rows[i].candidate);
        assert_row((suggest.best != NULL) == rows[i].near, "\"%s\" and \"%s\"", rows[i].word, rows[i].candidate);
    }
}

TM_TEST_MAIN(TM_TEST(test_distance), TM_TEST(test_long_names_are_far), TM_TEST(test_offer),
             TM_TEST(test_offer_does_not_go_too_far))
