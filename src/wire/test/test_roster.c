#include "base/test/harness.h"
#include "wire/roster.h"

#include <string.h>

/* Two pipelines of two stages over five layers, one spare. */
static void fill(struct tm_roster *roster)
{
    *roster = (struct tm_roster){.generation = 4, .pipelines = 2, .stages = 2};
    roster->stage_first[1] = 3;
    roster->stage_first[2] = 5;
    roster->micro_batches[0] = 4;
    roster->micro_batches[1] = 3;
    roster->members = tm_calloc(5, sizeof *roster->members);
    assert_non_null(roster->members);
    roster->member_count = 5;
    for (uint32_t i = 0; i < 5; i++) {
        roster->members[i] = (struct tm_member){
            .id = i + 1, .incarnation = 100 + i, .pipeline = i / 2, .stage = i % 2, .address = "127.0.0.1:7"};
    }
    roster->members[4].spare = true;
}

static void test_round_trip(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_roster roster;
        struct tm_roster back = {0};
        struct tm_arena arena;
        struct tm_error e = {0};
        tm_alloc_fail_at(0);
        fill(&roster);
        tm_alloc_fail_at(tm_n);
        tm_arena_init(&arena, 1 << 20);
        Tmw__Layout *layout = tm_roster_write(&roster, &arena);
        rc = layout == NULL ? -(int)TM_ENOMEM : tm_roster_read(4, layout, 5, 7, &back, &e);
        if (rc == 0) {
            assert_int_equal(back.member_count, 5);
            assert_int_equal(tm_roster_seated(&back), 4);
            assert_int_equal(tm_roster_at(&back, 1, 0)->id, 3);
            assert_int_equal(tm_roster_stage_of(&back, 2), 0);
            assert_int_equal(tm_roster_stage_of(&back, 3), 1);
            assert_int_equal(tm_roster_find(&back, 5)->spare, true);
            assert_null(tm_roster_find(&back, 6));
            assert_string_equal(back.members[1].address, "127.0.0.1:7");
        }
        tm_roster_deinit(&back);
        tm_arena_deinit(&arena);
        tm_roster_deinit(&roster);
    });
}

static void break_it(size_t row, struct tm_roster *r)
{
    switch (row) {
    case 0:
        r->members[1].id = 1;
        break;
    case 1:
        r->members[1].stage = 0;
        break;
    case 2:
        r->members[3].pipeline = 2;
        break;
    case 3:
        r->members[2].spare = true;
        break;
    case 4:
        r->stage_first[1] = 5;
        break;
    case 5:
        r->micro_batches[1] = 4;
        break;
    case 6:
        r->pipelines = 0;
        break;
    default:
        r->stage_first[2] = 4;
        break;
    }
}

static void test_checks(void **state)
{
    (void)state;
    static const char *const says[] = {"worker 1 twice", "two workers at stage 0", "outside",
                                       "seats taken",    "holds no layer",         "gives out 8",
                                       "layout",         "layers 0 to 5"};
    for (size_t i = 0; i < TM_COUNT(says); i++) {
        struct tm_roster roster;
        struct tm_error e = {0};
        fill(&roster);
        break_it(i, &roster);
        assert_row(tm_roster_check(&roster, 5, 7, &e) == -(int)TM_EINPUT, "row %zu", i);
        assert_row(strstr(e.text, says[i]) != NULL, "row %zu: %s", i, e.text);
        tm_roster_deinit(&roster);
    }
}

TM_TEST_MAIN(TM_TEST(test_round_trip), TM_TEST(test_checks))
