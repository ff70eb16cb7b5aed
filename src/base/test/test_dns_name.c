#include "base/dns_name.h"

#include "base/test/harness.h"

#include <string.h>

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool label, dotted;
    } rows[] = {
        {"a", true, true},      {"0", true, true},          {"a-b", true, true},  {"a-b.c", false, true},
        {"", false, false},     {"-a", false, false},       {"a-", false, false}, {"A", false, false},
        {"a b", false, false},  {"a/b", false, false},      {"a%", false, false}, {"a_b", false, false},
        {"a..b", false, false}, {".a", false, false},       {"a.", false, false}, {"a.-b", false, false},
        {"a-.b", false, false}, {"\xC3\xA9", false, false},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        assert_row(tm_dns_label_is_good(rows[i].name) == rows[i].label, "label \"%s\"", rows[i].name);
        assert_row(tm_dns_name_is_good(rows[i].name) == rows[i].dotted, "name \"%s\"", rows[i].name);
    }
}

static void test_lengths(void **state)
{
    (void)state;
    char name[300];
    for (size_t length = 1; length < sizeof name; length++) {
        for (size_t i = 0; i < length; i++)
            name[i] = i % 50 == 49 && i + 1 < length ? '.' : 'a';
        name[length] = '\0';
        assert_row(tm_dns_name_is_good(name) == (length <= 253), "%zu", length);
        memset(name, 'a', length);
        assert_row(tm_dns_label_is_good(name) == (length <= 63), "%zu", length);
        assert_row(tm_dns_name_is_good(name) == (length <= 63), "%zu", length);
    }
}

TM_TEST_MAIN(TM_TEST(test_names), TM_TEST(test_lengths))
