/* Placement: every instance placed once, zones spread, little moved. */
#include "layout/placement.h"

#include "layout/test/layout_helpers.h"

enum { PLACED_MAX = 96 };

static int ceil_of(int a, int b)
{
    return (a + b - 1) / b;
}

/* Each place is filled once; no stage has more of a zone than an even share. */
static void check_placement(const struct tm_placed *list, int count, int pipelines, int stages, const char *row)
{
    bool filled[PLACED_MAX] = {false};
    int of_zone[TM_ZONES_MAX] = {0}, of_both[TM_ZONES_MAX][TM_LAYOUT_STAGES_MAX] = {{0}}, working = 0;
    for (int i = 0; i < count; i++) {
        of_zone[list[i].zone]++;
        if (list[i].stage == TM_PLACE_SPARE) continue;
        assert_row(list[i].stage < stages && list[i].pipeline >= 0 && list[i].pipeline < pipelines, "%s: out of range",
                   row);
        int place = list[i].pipeline * stages + list[i].stage;
        assert_row(!filled[place], "%s: place %d twice", row, place);
        filled[place] = true;
        working++;
        of_both[list[i].zone][list[i].stage]++;
    }
    assert_row(working == pipelines * stages, "%s: %d places filled", row, working);
    for (int zone = 0; zone < TM_ZONES_MAX; zone++)
        for (int stage = 0; stage < stages; stage++)
            assert_row(of_both[zone][stage] <= ceil_of(of_zone[zone], stages), "%s: zone %d has %d of stage %d", row,
                       zone, of_both[zone][stage], stage);
}

static void test_random_fleets(void **state)
{
    (void)state;
    struct tm_random random = tm_random_make(3, 9);
    for (int round = 0; round < 2000; round++) {
        struct tm_placed list[PLACED_MAX];
        int stages = 1 + (int)tm_random_below(&random, 12), pipelines = 1 + (int)tm_random_below(&random, 6);
        int count = pipelines * stages + (int)tm_random_below(&random, 5), zones = 1 + (int)tm_random_below(&random, 5);
        for (int i = 0; i < count; i++)
            list[i] = (struct tm_placed){.zone = (int)tm_random_below(&random, (uint64_t)zones),
                                         .holds = (int)tm_random_below(&random, (uint64_t)stages + 1) - 1};
        char row[128];
        (void)snprintf(row, sizeof row, "round %d: %dx%d on %d, %d zones", round, pipelines, stages, count, zones);
        assert_row(tm_place(list, count, pipelines, stages, NULL) == 0, "%s: refused", row);
        check_placement(list, count, pipelines, stages, row);
        int most[TM_ZONES_MAX] = {0}, largest = 0;
        for (int i = 0; i < count; i++)
            if (++most[list[i].zone] > largest) largest = most[list[i].zone];
        if (ceil_of(largest, stages) < pipelines)
            assert_row(tm_placement_left_by_worst_zone(list, count, stages) >= 1, "%s: a zone takes a stage", row);
    }
}

static void test_who_holds_a_stage_keeps_it(void **state)
{
    (void)state;
    struct tm_placed list[12];
    for (int i = 0; i < 12; i++)
        list[i] = (struct tm_placed){.zone = i % 3, .holds = i / 3};
    assert_int_equal(tm_place(list, 12, 3, 4, NULL), 0);
    struct tm_placed again[12];
    for (int i = 0; i < 12; i++)
        again[i] = (struct tm_placed){.zone = list[i].zone, .holds = list[i].stage};
    assert_int_equal(tm_place(again, 12, 3, 4, NULL), 0);
    for (int i = 0; i < 12; i++)
        assert_row(again[i].stage == list[i].stage, "instance %d moves from stage %d to %d", i, list[i].stage,
                   again[i].stage);
}

static void test_refusals(void **state)
{
    (void)state;
    struct tm_error e;
    struct tm_placed list[4] = {{.zone = 0, .holds = -1}, {.zone = 0, .holds = -1}, {.zone = 0}, {.zone = 0}};
    assert_int_equal(tm_place(list, 4, 3, 2, &e), -TM_EUSAGE);
    assert_error_has(e, "3x2 does not fit on 4 instances");
    list[1].zone = TM_ZONES_MAX;
    assert_int_equal(tm_place(list, 4, 2, 2, &e), -TM_EUSAGE);
    assert_error_has(e, "instance 1");
    list[1].zone = 0;
    list[3].holds = 2;
    assert_int_equal(tm_place(list, 4, 2, 2, &e), -TM_EUSAGE);
    assert_int_equal(tm_place(list, 0, 1, 1, &e), -TM_EUSAGE);
}

TM_TEST_MAIN(TM_TEST(test_random_fleets), TM_TEST(test_who_holds_a_stage_keeps_it), TM_TEST(test_refusals))
