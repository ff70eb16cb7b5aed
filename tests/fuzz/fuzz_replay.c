/* What the record keeps of decisions: layouts, costs, facts, a decision and a policy's options, with a zero byte
 * between each two. What can be read prints, and reads back, as the same. */
#include "fuzz.h"
#include "layout/recorded.h"
#include "policy/facts_record.h"

#include <string.h>

enum { PARTS = 5, TEXT_MAX = 4 << 20 };

struct part {
    const char *at;
    size_t length;
};

static struct part next_part(const char **at, const char *end)
{
    const char *zero = *at < end ? memchr(*at, 0, (size_t)(end - *at)) : NULL;
    struct part part = {.at = *at, .length = (size_t)((zero == NULL ? end : zero) - *at)};
    *at = zero == NULL ? end : zero + 1;
    return part;
}

static void again(const struct tm_layouts *layouts, const struct part parts[PARTS])
{
    static struct tm_facts facts, facts_back;
    static struct tm_cost cost, cost_back;
    struct tm_decision decision, decision_back;
    struct tm_policy_options options;
    struct tm_text first, second;
    struct tm_error e;
    tm_text_init(&first, TEXT_MAX);
    tm_text_init(&second, TEXT_MAX);
    if (tm_cost_recall(parts[1].at, parts[1].length, &cost, &e) == 0) {
        tm_cost_record(&cost, &first);
        assert(tm_cost_recall(tm_text_string(&first), first.length, &cost_back, &e) == 0);
        tm_cost_record(&cost_back, &second);
        assert(strcmp(tm_text_string(&first), tm_text_string(&second)) == 0);
    }
    tm_text_clear(&first);
    tm_text_clear(&second);
    if (tm_facts_recall(parts[2].at, parts[2].length, layouts, &facts, &e) == 0) {
        tm_facts_record(&facts, &first);
        assert(tm_facts_recall(tm_text_string(&first), first.length, layouts, &facts_back, &e) == 0);
        tm_facts_record(&facts_back, &second);
        assert(strcmp(tm_text_string(&first), tm_text_string(&second)) == 0);
    }
    tm_text_clear(&first);
    if (tm_decision_recall(parts[3].at, parts[3].length, layouts, &decision, &e) == 0) {
        tm_decision_record(&decision, &first);
        assert(tm_decision_recall(tm_text_string(&first), first.length, layouts, &decision_back, &e) == 0);
        assert(tm_decision_difference(&decision, &decision_back, false) == NULL);
    }
    (void)tm_policy_options_recall(parts[4].at, parts[4].length, &options, &e);
    tm_text_deinit(&first);
    tm_text_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tm_layouts layouts, back;
    struct part parts[PARTS];
    struct tm_error e;
    const char *at = (const char *)data, *end = at + size;
    for (size_t i = 0; i < PARTS; i++)
        parts[i] = next_part(&at, end);
    if (tm_layouts_recall(parts[0].at, parts[0].length, &layouts, &e) == 0) {
        struct tm_text text;
        tm_text_init(&text, TEXT_MAX);
        tm_layouts_record(&layouts, &text);
        if (text.failed == 0) {
            assert(tm_layouts_recall(text.data, text.length, &back, &e) == 0);
            assert(back.count == layouts.count);
            tm_layouts_deinit(&back);
        }
        tm_text_deinit(&text);
        again(&layouts, parts);
        tm_layouts_deinit(&layouts);
    }
    assert(tm_alloc_live() == 0);
    return 0;
}
