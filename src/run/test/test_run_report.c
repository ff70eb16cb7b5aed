/* A run's history from its record, and the report that is made of it. */
#include "run/run_report.h"

#include "base/test/harness.h"
#include "run/test/record_samples.h"

#include <stdio.h>

static int feed(struct tm_run_historian *historian, const struct samples *s, struct tm_error *e)
{
    for (size_t i = 0; i < s->count; i++) {
        int rc = tm_run_historian_take(historian, i + 1, s->events[i], e);
        if (rc != 0) return rc;
    }
    return 0;
}

static struct tm_run_historian *historian_of(const struct samples *s)
{
    struct tm_error e;
    struct tm_run_historian *historian = tm_run_historian_create();
    assert_non_null(historian);
    if (feed(historian, s, &e) != 0) fail_msg("%s", e.text);
    return historian;
}

static void near(const char *what, double got, double want)
{
    if (!(fabs(got - want) < 1e-6)) fail_msg("%s: got %.9g, want %.9g", what, got, want);
}

static void test_history(void **state)
{
    (void)state;
    static const double layouts[][4] = {{1, 5.25, 2, 2}, {5.55, 10.2, 1, 2}, {10.2, 19.8, 1, 2}};
    static const double pauses[][3] = {
        {0, 1, TM_CHANGED_BEGIN}, {5.25, 5.8, TM_CHANGED_LOSS}, {10.25, 10.4, TM_CHANGED_NOTICE}};
    static const double stays[][3] = {{1, 0, 19.8}, {2, 0, 5.25}, {3, 0, 11.8}, {4, 0, 19.8}, {5, 9.8, 19.8}};
    struct samples s;
    samples_init(&s);
    samples_small_run(&s, true);
    struct tm_run_historian *historian = tm_run_historian_create();
    for (size_t i = 0; i < s.count; i++) { /* told at every event, it tells the same in the end */
        assert_int_equal(tm_run_historian_take(historian, i + 1, s.events[i], NULL), 0);
        (void)tm_run_historian_tell(historian);
    }
    const struct tm_run_history *got = tm_run_historian_tell(historian);
    assert_int_equal(got->layout_count, TM_COUNT(layouts));
    for (size_t i = 0; i < TM_COUNT(layouts); i++) {
        near("layout from", got->layouts[i].from_s, layouts[i][0]);
        near("layout to", got->layouts[i].to_s, layouts[i][1]);
        near("pipelines", got->layouts[i].pipelines, layouts[i][2]);
        near("stages", got->layouts[i].stages, layouts[i][3]);
    }
    assert_int_equal(got->pause_count, TM_COUNT(pauses));
    for (size_t i = 0; i < TM_COUNT(pauses); i++) {
        near("pause from", got->pauses[i].from_s, pauses[i][0]);
        near("pause to", got->pauses[i].to_s, pauses[i][1]);
        near("cause", got->pauses[i].cause, pauses[i][2]);
    }
    assert_int_equal(got->instance_count, TM_COUNT(stays));
    for (size_t i = 0; i < TM_COUNT(stays); i++) {
        near("instance", (double)got->instances[i].id, stays[i][0]);
        near("instance from", got->instances[i].from_s, stays[i][1]);
        near("instance to", got->instances[i].to_s, stays[i][2]);
    }
    near("notice", got->instances[2].notice_s, 9.8);
    assert_int_equal(got->instances[1].state, TM_INSTANCE_LOST);
    assert_false(got->instances[1].announced);
    assert_true(got->instances[2].announced);
    assert_int_equal(got->instances[4].state, TM_INSTANCE_RELEASED);
    assert_int_equal(got->progress_count, 12);
    near("first fleet", got->fleet[0].here, 1); /* one after the other, in one moment */
    near("last fleet", got->fleet[got->fleet_count - 1].here, 0);
    const struct tm_history_bill *last = &got->bill[got->bill_count - 1];
    near("bill", last->bill_usd, got->status->bill_usd);
    near("on demand", last->on_demand_usd, got->status->on_demand_usd);
    for (size_t i = 1; i < got->bill_count; i++)
        assert_row(got->bill[i].bill_usd >= got->bill[i - 1].bill_usd && got->bill[i].time_s > got->bill[i - 1].time_s,
                   "bill %zu", i);
    /* Four are wanted; they come one by one, two go, one comes, and all go: market 0, spot. */
    static const uint32_t here[] = {0, 1, 2, 3, 4, 3, 4, 3, 2, 1, 0};
    assert_int_equal(got->pool_count, TM_COUNT(here));
    for (size_t i = 0; i < TM_COUNT(here); i++)
        assert_row(got->pools[i].pool == 0 && got->pools[i].want == 4 && got->pools[i].here == here[i], "pool %zu", i);
    near("its cost", got->pool_usd[0] * got->pool_scale, got->status->bill_usd);
    assert_int_equal(got->events_left_out, 0);
    assert_string_equal(got->events[0].text, "wanted: 4 spot and 0 on-demand instances");
    tm_run_historian_destroy(historian);
    samples_deinit(&s);
}

/* The newest copy sets that were not dropped, and who has them, however long ago they were made. */
static void test_copies(void **state)
{
    (void)state;
    enum { SETS = 12, DROPPED = 9 };
    struct samples s;
    samples_init(&s);
    samples_small_run(&s, true);
    for (uint64_t i = 1; i <= SETS; i++)
        add_set(&s, 100 + i, 20 + i);
    Tmw__RecordEvent *bad = samples_event(&s);
    bad->body_case = TMW__RECORD_EVENT__BODY_SET_BAD;
    bad->set_bad = 100 + DROPPED;
    struct tm_run_historian *historian = historian_of(&s);
    const struct tm_run_history *got = tm_run_historian_tell(historian);
    assert_int_equal(got->copy_count, TM_HISTORY_COPIES_MAX - 1);
    for (size_t i = 0; i < got->copy_count; i++) {
        const struct tm_history_copy *copy = &got->copies[i];
        uint64_t number = SETS - TM_HISTORY_COPIES_MAX + 1 + i;
        if (number >= DROPPED) number++;
        assert_int_equal(copy->set, 100 + number);
        assert_int_equal(copy->step, 20 + number);
        assert_int_equal(copy->holder_count, 2);
    }
    tm_run_historian_destroy(historian);
    samples_deinit(&s);
}

/* What was forecast on the way: a few, over all of the run, and of a steady one all are right. */
static void test_forecasts(void **state)
{
    (void)state;
    enum { STEPS = 3000 };
    struct samples s;
    struct tm_error e;
    struct tm_run_historian *historian = tm_run_historian_create();
    samples_init(&s);
    add_job(&s, "x", STEPS);
    assert_int_equal(feed(historian, &s, &e), 0);
    for (uint64_t i = 1; i <= STEPS; i++) {
        Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
        Tmw__ProgressEvent body = TMW__PROGRESS_EVENT__INIT;
        body.step = i;
        event.at_ms = s.at_ms + (int64_t)i * 1000;
        event.body_case = TMW__RECORD_EVENT__BODY_PROGRESS;
        event.progress = &body;
        assert_int_equal(tm_run_historian_take(historian, i + 1, &event, &e), 0);
    }
    const struct tm_run_history *got = tm_run_historian_tell(historian);
    size_t count = got->forecast_count;
    assert_in_range(count, TM_HISTORY_FORECASTS_MAX / 2, TM_HISTORY_FORECASTS_MAX);
    assert_true(got->forecasts[0].time_s < STEPS / 20.0 && got->forecasts[count - 1].time_s > STEPS * 0.9);
    for (size_t i = 0; i < count; i++) {
        const struct tm_history_forecast *one = &got->forecasts[i];
        assert_row(i == 0 || one->time_s > got->forecasts[i - 1].time_s, "%zu: %g", i, one->time_s);
        assert_row(fabs(one->low_s - STEPS) < STEPS / 10.0 && fabs(one->high_s - STEPS) < STEPS / 10.0, "%zu: %g to %g",
                   i, one->low_s, one->high_s);
        assert_row(one->low_s <= one->high_s && one->low_s >= one->time_s, "%zu", i);
    }
    tm_run_historian_destroy(historian);
    samples_deinit(&s);
}

/* Waiting is drawn; a stop leaves no gap, and going on is start-up. */
static void test_waiting_and_going_on(void **state)
{
    (void)state;
    static const uint64_t ids[] = {1};
    static const double pauses[][3] = {{0, 1, TM_CHANGED_BEGIN}, {3, 6, TM_CHANGED_NONE}, {8, 9, TM_CHANGED_BEGIN}};
    struct samples s;
    samples_init(&s);
    add_job(&s, "x", 10);
    (void)add_arrival(&s, 1);
    s.at_ms += 1000;
    (void)add_start(&s, 1, 0, 1, 1, ids, 1);
    s.at_ms += 2000;
    (void)add_loss(&s, 1, false);
    add_fence(&s, 2, TM_CHANGED_LOSS);
    add_state(&s, TM_JOB_WAITING, "more workers", 2);
    s.at_ms += 3000;
    add_arrival(&s, 1)->again = true;
    (void)add_start(&s, 2, 2, 1, 1, ids, 1);
    s.at_ms += 2000;
    add_state(&s, TM_JOB_STOPPED, "requested", 5);
    s.at_ms += 86400000;
    add_state(&s, TM_JOB_STARTING, "", 5);
    s.at_ms += 1000;
    (void)add_start(&s, 3, 5, 1, 1, ids, 1);
    s.at_ms += 500;
    add_note(&s, "the end", 0, 0);
    struct tm_run_historian *historian = historian_of(&s);
    const struct tm_run_history *got = tm_run_historian_tell(historian);
    assert_int_equal(got->pause_count, TM_COUNT(pauses));
    for (size_t i = 0; i < TM_COUNT(pauses); i++) {
        near("pause from", got->pauses[i].from_s, pauses[i][0]);
        near("pause to", got->pauses[i].to_s, pauses[i][1]);
        near("cause", got->pauses[i].cause, pauses[i][2]);
    }
    assert_int_equal(got->layout_count, 3);
    near("last layout", got->layouts[2].to_s, 9.5);
    assert_int_equal(got->instance_count, 1);
    near("worker", got->instances[0].to_s, 9.5);
    tm_run_historian_destroy(historian);
    samples_deinit(&s);
}

/* ---- the report ---- */

static void report_of(const struct samples *s, bool predicted, struct tm_text *out)
{
    static const struct tm_run_predicted run = {.time_s = 1100, .bill_usd = 1.0, .paused_s = 30};
    static const struct tm_run_predicted restart = {.time_s = 2000, .bill_usd = 2.0, .paused_s = NAN};
    struct tm_run_historian *historian = historian_of(s);
    struct tm_error e;
    struct tm_run_report report = {.history = tm_run_historian_tell(historian)};
    if (predicted) {
        report.run = &run;
        report.restart = &restart;
    }
    tm_text_init(out, 16 << 20);
    if (tm_run_report_html(&report, out, &e) != 0) fail_msg("%s", e.text);
    tm_run_historian_destroy(historian);
}

static void test_report(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "<title>gpt-small: finished</title>",
        "<code>tidemill run job.yaml -y</code>",
        "$1.11</b>",
        "on-demand: $3.33, 67% less",
        "19.8 s</b>",
        "of 100",
        "1 redone",
        "5 instances arrived; 1 was preempted with notice and 1 without. 3 generations trained. 1 of the "
        "pauses "
        "was an unplanned recovery",
        "<tr class=won><th>this run</th><td>19.8 min</td><td>+8.0%</td><td>$1.11</td><td>+10.8%</td>",
        "predicted: checkpoint-restart",
        ">instances</span>",
        ">steps/s</span>",
        ">dollars</span>",
        "time since the start (s)",
        "<tr><th>a loss</th><td>1</td><td>0.550</td>",
        "training loss",
        "\xe2\x9c\x95 preempted, no notice",
        "worker 2 is gone: its process ended",
        "generation 1, 2 \xc3\x97 2",
    };
    struct samples s;
    struct tm_text html;
    samples_init(&s);
    samples_small_run(&s, true);
    report_of(&s, true, &html);
    for (size_t i = 0; i < TM_COUNT(pieces); i++)
        assert_row(strstr(html.data, pieces[i]) != NULL, "no \"%s\"", pieces[i]);
    assert_null(strstr(html.data, "http")); /* nothing comes from elsewhere */
    assert_null(strstr(strstr(html.data, "</style>"), "nan"));
    tm_text_deinit(&html);
    report_of(&s, false, &html);
    assert_null(strstr(html.data, "What was predicted"));
    tm_text_deinit(&html);
    samples_deinit(&s);
}

/* What a record holds may come from outside. */
static void test_hostile_text(void **state)
{
    (void)state;
    static const uint64_t ids[] = {1};
    struct samples s;
    struct tm_text html;
    samples_init(&s);
    add_job(&s, "<script>alert(1)</script>", 10);
    (void)add_start(&s, 1, 0, 1, 1, ids, 1);
    s.at_ms += 1000;
    add_failed(&s, "</td><script>alert(2)</script>\xff", 1, 3);
    report_of(&s, false, &html);
    assert_null(strstr(html.data, "<script>alert"));
    assert_non_null(strstr(html.data, "&lt;script&gt;alert(1)"));
    tm_text_deinit(&html);
    samples_deinit(&s);
}

static void test_nothing_yet(void **state)
{
    (void)state;
    struct samples s;
    struct tm_text html;
    samples_init(&s);
    report_of(&s, true, &html);
    assert_non_null(strstr(html.data, "Nothing has happened yet"));
    assert_non_null(strstr(html.data, "</html>"));
    tm_text_deinit(&html);
    samples_deinit(&s);
}

/* ---- memory ---- */

static int all_of_it(const struct samples *s)
{
    struct tm_run_historian *historian = tm_run_historian_create();
    struct tm_text html;
    int rc = historian == NULL ? -(int)TM_ENOMEM : feed(historian, s, NULL);
    if (rc == 0) {
        struct tm_run_report report = {.history = tm_run_historian_tell(historian)};
        tm_text_init(&html, 16 << 20);
        rc = tm_run_report_html(&report, &html, NULL);
        tm_text_deinit(&html);
    }
    tm_run_historian_destroy(historian);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    struct samples s;
    samples_init(&s);
    samples_small_run(&s, true);
    TM_FAIL_EACH_ALLOC(rc = all_of_it(&s));
    samples_deinit(&s);
}

TM_TEST_MAIN(TM_TEST(test_history), TM_TEST(test_copies), TM_TEST(test_forecasts), TM_TEST(test_waiting_and_going_on),
             TM_TEST(test_report), TM_TEST(test_hostile_text), TM_TEST(test_nothing_yet), TM_TEST(test_memory))
