/* What is said of a job before anything is rented. */
#include "job/verdict.h"

#include "base/test/harness.h"

#include <math.h>
#include <string.h>

static int settings_of(const char *text, struct tm_run_settings *out, struct tm_error *e)
{
    tm_run_settings_init(out);
    int rc = tm_job_parse("job.yaml", text, strlen(text), &out->job, e);
    out->job.folder = "/jobs";
    return rc == 0 ? tm_run_settings_settle(out, e) : rc;
}

static struct tm_run_expectation expectation_of(const char *policy, double time_s, double bill_usd, double deadline_s)
{
    return (struct tm_run_expectation){.policy = policy,
                                       .time_s = {time_s, 0.9 * time_s, 1.1 * time_s},
                                       .bill_usd = {bill_usd, bill_usd, bill_usd},
                                       .sure_s = time_s,
                                       .p_deadline = deadline_s > 0 ? time_s <= deadline_s : NAN};
}

static struct tm_run_plan plan_of(double time_s, double bill_usd, double deadline_s)
{
    return (struct tm_run_plan){.chosen = expectation_of("tidemill", time_s, bill_usd, deadline_s),
                                .restart = expectation_of("checkpoint", 2 * time_s, 2 * bill_usd, deadline_s),
                                .on_demand = expectation_of("on-demand", time_s / 2, 3 * bill_usd, deadline_s)};
}

static void limits_are_looked_at(void **state)
{
    static const struct {
        const char *job;
        double time_s, bill_usd;
        bool feasible;
        double p_deadline;
        const char *why;
    } rows[] = {
        {"", 3600, 2, true, NAN, "policy tidemill: about 1h and $2.00"},
        {"deadline: 2h\nbudget: 5\n", 3600, 2, true, 1,
         "policy tidemill: about 1h and $2.00; the probability of meeting the deadline of 2h is 100%; within the "
         "budget of "
         "$5.00"},
        {"deadline: 30m\n", 3600, 2, false, 0,
         "the probability of meeting the deadline of 30m is 0%, below 95%; 1h can be met; on-demand would do: about "
         "30m and "
         "$6.00"},
        {"deadline: 25m\nbudget: 0.50\n", 2460, 3.184, false, 0,
         "the probability of meeting the deadline of 25m is 0%, below 95%; 41m can be met; the budget of $0.50 is not "
         "enough: "
         "about $3.18 is needed; $3.19 is enough"},
        {"budget: 1\n", 3600, 2, false, NAN,
         "the budget of $1.00 is not enough: about $2.00 is needed; $2.00 is enough"},
        {"budget: 1\n", INFINITY, 1, false, NAN, "policy tidemill does not finish the job within the budget of $1.00"},
    };
    (void)state;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_run_settings settings;
        struct tm_verdict verdict;
        struct tm_arena arena;
        struct tm_error e;
        char text[200];
        (void)snprintf(text, sizeof text, "name: a\nfleet: {instance: p3.2xlarge}\n%s", rows[i].job);
        assert_row(settings_of(text, &settings, &e) == 0, "%s", e.text);
        tm_arena_init(&arena, 1 << 16);
        struct tm_run_plan plan = plan_of(rows[i].time_s, rows[i].bill_usd, (double)settings.job.deadline_ms / 1000);
        assert_int_equal(tm_verdict_make(&settings.job, &plan, NULL, &arena, &verdict, &e), 0);
        assert_row(verdict.feasible == rows[i].feasible, "row %zu", i);
        assert_row_string(rows[i].job, verdict.why, rows[i].why);
        double p = verdict.rows[0].p_deadline;
        assert_row(isnan(p) ? isnan(rows[i].p_deadline) : p == rows[i].p_deadline, "row %zu: %g", i, p);
        size_t chosen = 0;
        for (size_t k = 0; k < verdict.row_count; k++)
            chosen += verdict.rows[k].chosen;
        assert_true(chosen == 1 && verdict.row_count == 3);
        tm_arena_deinit(&arena);
        tm_run_settings_deinit(&settings);
    }
}

/* The one that will run is chosen, whatever is better; what is better is said. */
static void what_is_better_is_said(void **state)
{
    struct tm_run_settings settings;
    struct tm_verdict verdict;
    struct tm_arena arena;
    struct tm_error e;
    (void)state;
    assert_int_equal(settings_of("name: a\npolicy: tidemill\n", &settings, &e), 0);
    tm_arena_init(&arena, 1 << 16);
    struct tm_run_plan plan = plan_of(INFINITY, 2, 0);
    plan.unlimited = expectation_of("tidemill", 7200, 4, 0);
    plan.unlimited.sure_usd = 4.999;
    settings.job.budget_usd_millionths = 2000000;
    assert_int_equal(tm_verdict_make(&settings.job, &plan, NULL, &arena, &verdict, &e), 0);
    assert_false(verdict.feasible);
    assert_string_equal(verdict.why, "policy tidemill does not finish the job within the budget of $2.00; with $5.00 "
                                     "and 2h it does");
    settings.job.budget_usd_millionths = 0;
    plan = plan_of(3600, 2, 0);
    plan.restart.bill_usd.mean = 1.5;
    plan.on_demand.policy = NULL; /* nobody offers it */
    assert_int_equal(tm_verdict_make(&settings.job, &plan, NULL, &arena, &verdict, &e), 0);
    assert_true(verdict.feasible && verdict.row_count == 2 && verdict.rows[0].chosen && !verdict.rows[1].chosen);
    assert_string_equal(verdict.why, "policy tidemill: about 1h and $2.00; policy checkpoint would cost less: about 2h "
                                     "and $1.50");
    tm_arena_deinit(&arena);
    tm_run_settings_deinit(&settings);
}

static void the_fleet_is_named(void **state)
{
    static const struct {
        const char *fleet;
        struct tm_job_pool pools[2];
        size_t count;
    } rows[] = {
        {"limit: 6", {{.instance = "", .market = TM_POOL_SPOT, .count = 6}}, 1},
        {"limit: 6, on_demand: 2, on_demand_trains: 0",
         {{.instance = "", .count = 4},
          {.instance = "", .market = TM_POOL_ON_DEMAND, .role = TM_POOL_KEEPS_COPIES, .count = 2}},
         2},
        {"pools: [{instance: b, zone: z, count: 3, market: on-demand}]",
         {{.instance = "b", .zone = "z", .market = TM_POOL_ON_DEMAND, .count = 3}},
         1},
    };
    (void)state;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_run_settings settings;
        struct tm_verdict verdict;
        struct tm_error e;
        char text[200];
        (void)snprintf(text, sizeof text, "name: a\nfleet: {%s}\n", rows[i].fleet);
        assert_row(settings_of(text, &settings, &e) == 0, "%s", e.text);
        tm_verdict_never(&settings.job, "why", &verdict);
        assert_true(!verdict.feasible && verdict.row_count == 1 && verdict.rows[0].chosen);
        assert_row(verdict.fleet_count == rows[i].count, "row %zu: %zu pools", i, verdict.fleet_count);
        for (size_t k = 0; k < verdict.fleet_count; k++) {
            const struct tm_job_pool *got = &verdict.fleet[k];
            const struct tm_job_pool *want = &rows[i].pools[k];
            assert_row_string(rows[i].fleet, got->instance, want->instance);
            assert_row(got->count == want->count && got->market == want->market && got->role == want->role, "row %zu",
                       i);
        }
        tm_run_settings_deinit(&settings);
    }
}

static void without_memory(void **state)
{
    struct tm_run_settings settings;
    struct tm_error e;
    struct tm_run_plan plan = plan_of(1, 1, 0);
    (void)state;
    assert_int_equal(settings_of("name: a\n", &settings, &e), 0);
    TM_FAIL_EACH_ALLOC({
        struct tm_arena arena;
        struct tm_verdict verdict;
        tm_arena_init(&arena, 1 << 16);
        rc = tm_verdict_make(&settings.job, &plan, "no", &arena, &verdict, NULL);
        tm_arena_deinit(&arena);
    });
    tm_run_settings_deinit(&settings);
}

TM_TEST_MAIN(TM_TEST(limits_are_looked_at), TM_TEST(what_is_better_is_said), TM_TEST(the_fleet_is_named),
             TM_TEST(without_memory))
