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

/* The fleet of fill() without the third, with a new one in its seat, another share, and one whose address is new. */
static void change(struct tm_roster *roster)
{
    fill(roster);
    roster->generation = 5;
    roster->members[2] = roster->members[4];
    roster->members[2].spare = false;
    roster->members[2].pipeline = 1;
    roster->members[2].stage = 0;
    roster->members[4] = (struct tm_member){.id = 9, .incarnation = 900, .spare = true, .address = "127.0.0.1:9"};
    roster->members[0].slowness = 1500;
    roster->micro_batches[0] = 3;
    roster->micro_batches[1] = 4;
    tm_roster_order(roster);
}

static void test_a_change(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_roster from;
        struct tm_roster to;
        struct tm_roster back = {0};
        struct tm_arena arena;
        struct tm_error e = {0};
        tm_alloc_fail_at(0);
        fill(&from);
        tm_roster_order(&from);
        change(&to);
        tm_alloc_fail_at(tm_n);
        tm_arena_init(&arena, 1 << 20);
        Tmw__Layout *layout = tm_roster_write_change(&from, &to, &arena);
        rc = layout == NULL ? -(int)TM_ENOMEM : tm_roster_read_change(&from, 5, layout, 5, 7, &back, &e);
        if (rc == 0) {
            assert_int_equal(layout->n_members, 3); /* the first, the fifth, the ninth */
            assert_int_equal(layout->n_gone, 1);
            assert_int_equal(layout->n_stages, 0);
            assert_int_equal(layout->n_shares, 2);
            assert_int_equal(back.generation, 5);
            assert_int_equal(back.member_count, to.member_count);
            for (size_t i = 0; i < to.member_count; i++)
                assert_memory_equal(&back.members[i], &to.members[i], sizeof back.members[i]);
            assert_int_equal(back.micro_batches[0], 3);
            assert_null(tm_roster_find(&back, 3));
            assert_int_equal(tm_roster_find(&back, 9)->incarnation, 900);
            tm_alloc_fail_at(0);
            layout->shares[0]->pipeline = 7;
            assert_int_equal(tm_roster_read_change(&from, 5, layout, 5, 7, &back, &e), -TM_EINPUT);
            layout->shares[0]->pipeline = 0;
            layout->n_gone = 0; /* then the third and the fifth have one seat */
            assert_int_equal(tm_roster_read_change(&from, 5, layout, 5, 7, &back, &e), -TM_EINPUT);
        }
        tm_roster_deinit(&from);
        tm_roster_deinit(&to);
        tm_roster_deinit(&back);
        tm_arena_deinit(&arena);
    });
}

TM_TEST_MAIN(TM_TEST(test_a_change), TM_TEST(test_round_trip), TM_TEST(test_checks))
