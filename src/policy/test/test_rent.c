/* How many instances to have: a table of what is wanted and what can be paid. */
#include "base/test/harness.h"
#include "policy/rent_internal.h"

#include <math.h>

static const struct {
    const char *name;
    struct tm_rent_view view;
    struct tm_rent rent;
} rows[] = {
    {"all spot", {.workers_max = 6}, {.spot = 6}},
    {"a deadline", {.workers_max = 6, .on_demand = 2}, {.spot = 4, .on_demand = 2}},
    {"more than fit", {.workers_max = 6, .on_demand = 9}, {.spot = 0, .on_demand = 6}},
    {"anchors beside", {.workers_max = 6, .anchors = 2}, {.spot = 6, .on_demand = 2}},
    {"an anchor that trains", {.workers_max = 6, .anchors = 1, .anchors_train = true}, {.spot = 5, .on_demand = 1}},
    {"it is among those wanted",
     {.workers_max = 6, .anchors = 1, .anchors_train = true, .on_demand = 3},
     {.spot = 3, .on_demand = 3}},
    {"money for one only",
     {.workers_max = 4,
      .on_demand = 2,
      .spot_usd_h = 1,
      .on_demand_usd_h = 3,
      .budget_usd = 10,
      .bill_usd = 4,
      .hours_left = 1},
     {.spot = 3, .on_demand = 1}},
    {"money for none, but the anchor stays",
     {.workers_max = 4,
      .on_demand = 2,
      .anchors = 1,
      .anchors_train = true,
      .spot_usd_h = 1,
      .on_demand_usd_h = 3,
      .budget_usd = 5,
      .bill_usd = 4,
      .hours_left = 1},
     {.spot = 3, .on_demand = 1}},
    {"no price is known: as wanted",
     {.workers_max = 4,
      .on_demand = 2,
      .spot_usd_h = NAN,
      .on_demand_usd_h = NAN,
      .budget_usd = 5,
      .bill_usd = 4,
      .hours_left = 1},
     {.spot = 2, .on_demand = 2}},
    {"the money is used up", {.workers_max = 4, .on_demand = 2, .budget_usd = 5, .bill_usd = 5}, {.stop = true}},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_rent_view view = rows[i].view;
        if (view.budget_usd == 0) view.budget_usd = INFINITY;
        struct tm_rent rent = tm_rent__decide(&view);
        assert_row(rent.spot == rows[i].rent.spot && rent.on_demand == rows[i].rent.on_demand &&
                       rent.stop == rows[i].rent.stop,
                   "%s: %d spot, %d on-demand%s", rows[i].name, rent.spot, rent.on_demand, rent.stop ? ", stop" : "");
    }
}

TM_TEST_MAIN(TM_TEST(test_rows))
