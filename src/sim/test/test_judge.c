/* The judge: a known outcome where nothing is unsure, and what unsure steps and losses add to it.
 * builds: release asan */
#include "sim/judge.h"

#include "sim/test/sim_helpers.h"

#include <math.h>
#include <string.h>

enum { HOUR_MS = 3600 * 1000, DAY_MS = 24 * HOUR_MS };

struct fixture {
    struct tm_env *env;
    struct test_job *job;
    struct tm_sim_job sim_job;
    struct tm_draw_pool pool;
    struct tm_judge judge;
};

static struct fixture make(int instances)
{
    struct fixture f = {.env = tm_env_virtual_create(1)};
    f.job = paper_job(f.env, "parcae/gpt-1.5b", instances);
    f.pool = (struct tm_draw_pool){instances, 0.9, 12 * (int64_t)HOUR_MS, false};
    f.judge = (struct tm_judge){.env = f.env,
                                .policy = tm_policy_find("tidemill"),
                                .options = minute_options(0, DAY_MS),
                                .draw = {.losses = {0.5, 0.25, 15 * 60000, 3 * 60000}}};
    f.judge.options.samples_total = 200000;
    return f;
}

static struct tm_judged judged(struct fixture *f)
{
    struct tm_judged out;
    struct tm_error e = {0};
    f->sim_job = (struct tm_sim_job){&f->job->layouts, f->job->migrations, &f->job->cost, NULL};
    f->judge.job = &f->sim_job;
    f->judge.draw.pools = &f->pool;
    f->judge.draw.pool_count = 1;
    int rc = tm_judge_job(&f->judge, &out, &e);
    assert_row(rc == 0, "%s", e.text);
    return out;
}

static void drop(struct fixture *f)
{
    paper_job_drop(f->job);
    tm_env_virtual_destroy(f->env);
}

static void test_what_is_sure_is_one_outcome(void **state)
{
    (void)state;
    struct fixture f = make(16);
    f.pool.mean_life_ms = 0;
    f.judge.options.deadline_s = 86400;
    struct tm_judged out = judged(&f);
    assert_true(out.finishes);
    assert_true(out.time_s.p10 == out.time_s.p90 && out.bill_usd.p10 == out.bill_usd.p90);
    assert_true(fabs(out.time_s.mean - out.time_s.p10) < 1e-6 && out.p_finish == 1 && out.p_deadline == 1);
    f.judge.beside_usd_h = 2;
    struct tm_judged dearer = judged(&f);
    assert_true(fabs(dearer.bill_usd.mean - out.bill_usd.mean - out.time_s.mean / 1800) < 1e-9);
    drop(&f);
}

static void test_steps_and_losses_widen_it(void **state)
{
    (void)state;
    struct fixture f = make(16);
    struct tm_judged lost = judged(&f), again = judged(&f);
    assert_memory_equal(&lost, &again, sizeof lost);
    assert_true(isnan(lost.p_deadline));
    assert_true(lost.time_s.p10 < lost.time_s.p90);
    f.judge.step_spread = 0.2;
    struct tm_judged both = judged(&f);
    assert_true(both.time_s.p90 - both.time_s.p10 > lost.time_s.p90 - lost.time_s.p10);
    assert_true(fabs(both.time_s.mean / lost.time_s.mean - 1) < 0.03);
    drop(&f);
}

static void test_a_later_deadline_is_not_less_likely(void **state)
{
    (void)state;
    struct fixture f = make(12);
    double before = -1;
    f.judge.step_spread = 0.2;
    f.judge.options.samples_total = 1000000;
    for (double hours = 6; hours < 24; hours += 2) {
        f.judge.options.deadline_s = hours * 3600;
        struct tm_judged out = judged(&f);
        assert_row(out.p_deadline >= before, "%g h: %g after %g", hours, out.p_deadline, before);
        before = out.p_deadline;
    }
    assert_true(before > 0.9);
    drop(&f);
}

static void test_a_job_that_does_not_finish(void **state)
{
    (void)state;
    struct fixture f = make(8);
    f.judge.options.samples_total = 1e9;
    f.judge.options.to_ms = HOUR_MS;
    struct tm_judged out = judged(&f);
    assert_false(out.finishes);
    assert_true(isinf(out.time_s.mean) && isinf(out.sure_s) && out.p_finish == 0);
    assert_true(out.bill_usd.mean > 0 && isfinite(out.bill_usd.mean));
    drop(&f);
}

/* A trace that is given is one outcome; what might have happened instead widens it, and changes nothing else. */
/* Without a deadline nobody gives up: what does not finish in the time it is given gets more. */
static void test_there_is_time_without_a_deadline(void **state)
{
    (void)state;
    struct fixture f = make(16);
    struct tm_trace trace;
    struct tm_error e;
    tm_trace_init(&trace);
    assert_int_equal(tm_trace_add(&trace, 0, 16, 0, 0.9, &e), 0);
    trace.end_ms = DAY_MS;
    trace.instances_max = 16;
    f.judge.draw.like = &trace;
    struct tm_judged whole = judged(&f);
    f.judge.options.to_ms = (int64_t)(whole.time_s.p10 * 1000 / 2); /* half of what it takes */
    struct tm_judged out = judged(&f);
    assert_true(out.finishes && out.p_finish == 1);
    f.judge.deadline_s = whole.time_s.p10 / 2;
    out = judged(&f);
    assert_true(!out.finishes && out.p_deadline == 0);
    tm_trace_deinit(&trace);
    drop(&f);
}

static void test_other_starts_of_a_trace_widen_it(void **state)
{
    (void)state;
    struct fixture f = make(16);
    struct tm_trace trace;
    static const char text[] = "tidemill-trace 1\nend: 86400s\n\n0 +16\n3600 -8\n10800 +8\n20000 -4\n30000 +4\n"
                               "50000 -12\n60000 +12\n";
    tm_trace_init(&trace);
    assert_int_equal(tm_trace_parse("t", text, sizeof text - 1, "tidemill", &trace, NULL), 0);
    f.judge.trace = &trace;
    f.judge.runs = 1;
    f.judge.options.deadline_s = 86400;
    struct tm_judged alone = judged(&f);
    struct tm_draw others = {.pools = &f.pool, .pool_count = 1, .like = &trace};
    f.judge.others = &others;
    struct tm_judged with = judged(&f);
    assert_true(alone.finishes && alone.time_s.p10 == alone.time_s.p90);
    assert_true(with.time_s.p10 < with.time_s.p90 && with.bill_usd.p10 < with.bill_usd.p90);
    assert_true(with.time_s.p10 <= alone.time_s.p10 && with.time_s.p90 >= alone.time_s.p90);
    assert_true(with.time_s.mean == alone.time_s.mean && with.bill_usd.mean == alone.bill_usd.mean);
    assert_true(with.sure_s == alone.sure_s && with.p_deadline == alone.p_deadline);
    tm_trace_deinit(&trace);
    drop(&f);
}

static int judge_once(struct fixture *f)
{
    struct tm_judged out;
    return tm_judge_job(&f->judge, &out, NULL);
}

static void test_allocations(void **state)
{
    (void)state;
    struct fixture f = make(6);
    f.judge.runs = 1;
    f.judge.options.samples_total = 1000;
    (void)judged(&f); /* fills the table of migrations, which stays */
    TM_FAIL_EACH_ALLOC(rc = judge_once(&f));
    f.judge.runs = TM_JUDGE_RUNS_MAX + 1;
    assert_int_equal(judge_once(&f), -(int)TM_ELIMIT);
    drop(&f);
}

TM_TEST_MAIN(TM_TEST(test_what_is_sure_is_one_outcome), TM_TEST(test_steps_and_losses_widen_it),
             TM_TEST(test_there_is_time_without_a_deadline), TM_TEST(test_other_starts_of_a_trace_widen_it),
             TM_TEST(test_a_later_deadline_is_not_less_likely), TM_TEST(test_a_job_that_does_not_finish),
             TM_TEST(test_allocations))
