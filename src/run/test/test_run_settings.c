/* How a job is run: what its file says, what is assumed, and run.yaml as it comes back. */
#include "run/run_settings.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"

#include <string.h>

static int settings_of(const char *text, struct tm_run_settings *out, struct tm_error *e)
{
    struct tm_job job;
    tm_job_init(&job);
    tm_run_settings_init(out);
    int rc = tm_job_parse("job.yaml", text, strlen(text), &job, e);
    if (rc == 0) rc = tm_run_settings_of_job(&job, "job.yaml", "/jobs", out, e);
    tm_job_deinit(&job);
    return rc;
}

static void defaults_and_what_is_said(void **state)
{
    struct tm_run_settings s;
    struct tm_error e;
    (void)state;
    assert_row(settings_of("name: a\n", &s, &e) == 0, "%s", e.text);
    assert_string_equal(s.fleet.trace, "hadp");
    assert_int_equal(s.fleet.limit, 6);
    assert_int_equal(s.fleet.notice_ms, 120000);
    assert_int_equal(s.engine, TM_RUN_GPT);
    assert_string_equal(s.policy, "tidemill");
    assert_false(s.checkpoint_restart);
    tm_run_settings_deinit(&s);
    assert_row(settings_of("name: a\nrun: python train.py\npolicy: checkpoint\n"
                           "fleet: {trace: my.csv, speed: 10, limit: 3, notice: 0s, spot_price: 0.5}\n",
                           &s, &e) == 0,
               "%s", e.text);
    assert_int_equal(s.engine, TM_RUN_COMMAND);
    assert_true(s.checkpoint_restart);
    assert_string_equal(s.fleet.trace, "/jobs/my.csv");
    assert_int_equal(s.fleet.notice_ms, 0);
    assert_int_equal(s.fleet.spot_usd_h_millionths, 500000);
    assert_int_equal(s.fleet.on_demand_usd_h_millionths, TM_FLEET_UNSAID);
    tm_run_settings_deinit(&s);
    assert_row(settings_of("name: a\nanchors: [1x c5.xlarge, 2x m6i.xlarge]\n", &s, &e) == 0, "%s", e.text);
    assert_true(s.fleet.on_demand == 3 && s.fleet.on_demand_trains == 0);
    tm_run_settings_deinit(&s);
    assert_row(settings_of("name: a\nanchors: 2x c5.xlarge\nfleet: {on_demand: 1}\n", &s, &e) == 0, "%s", e.text);
    assert_true(s.fleet.on_demand == 1 && s.fleet.on_demand_trains == 1);
    tm_run_settings_deinit(&s);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {"name: a/b\n", "job.yaml:1: name: a job that is run needs a name"},
        {"name: a\nfleet: {limit: 65}\n", "job.yaml:2:16: fleet.limit: expected"},
        {"name: a\nfleet:\n  workers_min: 9\n", "fleet.workers_min: 9 workers at least, but at most 6 instances"},
        {"name: a\nfleet: {on_demand: 9}\n", "job.yaml:2: fleet.on_demand: 9 instances"},
        {"name: a\nanchors: c5.xlarge\n", "job.yaml: anchors: expected COUNTx TYPE"},
        {"name: a\nanchors: 6x c5.xlarge\n", "fleet.on_demand: 6 instances, but at most 6 in all"},
        {"name: a\nfleet: {on_demand: 2, on_demand_trains: 0, workers_min: 5}\n",
         "fleet.workers_min: 5 workers at least, but of 6 instances 2 keep copies"},
        {"name: a\nfleet: {from: 10m, to: 5m}\n", "job.yaml:2: fleet.to: must lie behind"},
        {"name: a\nfleet: {stages_min: 3, stages_max: 2}\n", "job.yaml:2: fleet.stages_min: must not be above"},
        {"name: a\nfleet: {sped: 3}\n", "did you mean \"speed\"?"},
        {"name: a\nengine: gtp\n", "job.yaml:2:9: engine: expected one of gpt, paced"},
        {"name: a\ncloud: aws\n", "job.yaml:2:8: cloud: expected"},
        {"name: a\n\npolicy: tidemil\n", "job.yaml:3: policy: there is no \"tidemil\"; did you mean tidemill?"},
        {"name: a\npolicy: ideal\n", "job.yaml:2: policy: \"ideal\" can be simulated, not run"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_run_settings s;
        struct tm_error e;
        int rc = settings_of(rows[i].text, &s, &e);
        assert_row(rc == -(int)TM_EINPUT, "row %zu: %d", i, rc);
        assert_row(strstr(e.text, rows[i].says) != NULL, "row %zu: %s", i, e.text);
        tm_run_settings_deinit(&s);
    }
}

static void come_back_from_the_file(void **state)
{
    struct tm_run_settings s;
    struct tm_run_settings back;
    struct tm_text text;
    struct tm_text again;
    struct tm_error e;
    (void)state;
    assert_int_equal(settings_of("name: a\npolicy: checkpoint\nfleet: {memory: 5MB, stages_min: 2, speed: 0.5, from: "
                                 "90s, to: 3m, spot_price: 0.25, "
                                 "hint: 5m, instance: p3.2xlarge}\n",
                                 &s, &e),
                     0);
    s.job = 0x123456789ABCDEF0;
    s.chaos = 7;
    s.netns = true;
    s.link_bit_s = 1500000;
    tm_text_init(&text, 1 << 16);
    tm_text_init(&again, 1 << 16);
    tm_run_settings_print(&s, &text);
    tm_run_settings_init(&back);
    assert_row(tm_run_settings_parse("run.yaml", tm_text_string(&text), text.length, &back, &e) == 0, "%s", e.text);
    tm_run_settings_print(&back, &again);
    assert_string_equal(tm_text_string(&text), tm_text_string(&again));
    assert_true(back.job == s.job && back.checkpoint_restart && back.chaos == 7 && back.link_bit_s == 1500000);
    assert_int_equal(back.fleet.from_ms, 90000);
    assert_int_equal(tm_run_settings_parse("run.yaml", "name: a\n", 8, &back, &e), -(int)TM_EINPUT);
    tm_text_deinit(&text);
    tm_text_deinit(&again);
    tm_run_settings_deinit(&s);
    tm_run_settings_deinit(&back);
}

/* The published hours have 32 instances; six of them still come and go. */
static void a_trace_is_scaled(void **state)
{
    static const char *const hours[] = {"hadp", "hasp", "ladp", "lasp"};
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_error e;
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct tm_run_settings s;
        struct tm_trace trace;
        struct tm_trace whole;
        int64_t in = 0;
        int64_t out = 0;
        int64_t most = 0;
        assert_int_equal(settings_of("name: a\n", &s, &e), 0);
        tm_trace_init(&trace);
        tm_trace_init(&whole);
        s.fleet.trace = hours[i];
        assert_row(tm_run_trace(env, &s, &trace, &e) == 0, "%s", e.text);
        assert_int_equal(tm_trace_load(env, hours[i], NULL, &whole, &e), 0);
        for (size_t k = 0; k < trace.event_count; k++) {
            in += trace.events[k].in;
            out += trace.events[k].out;
            if (in - out > most) most = in - out;
            assert_row(in >= out, "%s: below 0", hours[i]);
        }
        assert_row(most <= 6 && most >= 2 && out >= 1, "%s: %d at most, %d go", hours[i], (int)most, (int)out);
        assert_int_equal(trace.instances_max, 6);
        assert_true(trace.end_ms == whole.end_ms);
        s.fleet.scaled = 0; /* as many as there were do not fit */
        assert_int_equal(tm_run_trace(env, &s, &trace, &e), -(int)TM_EINPUT);
        assert_error_has(e, "more than fleet.limit (6)");
        s.no_losses = true; /* the limit's number of them comes, and stays */
        assert_int_equal(tm_run_trace(env, &s, &trace, &e), 0);
        tm_trace_deinit(&trace);
        tm_trace_deinit(&whole);
        tm_run_settings_deinit(&s);
    }
    tm_env_virtual_destroy(env);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_run_settings s;
        rc = settings_of("name: a\nfleet: {trace: x.csv, instance: p3.2xlarge}\n", &s, NULL);
        tm_run_settings_deinit(&s);
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_and_what_is_said), cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(come_back_from_the_file),   cmocka_unit_test(a_trace_is_scaled),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
