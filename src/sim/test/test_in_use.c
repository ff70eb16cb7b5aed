/* What is used of what is paid: arrivals later, losses earlier, nobody twice, and the bill as the trace has it. */
#include "sim/in_use.h"

#include "sim/test/sim_helpers.h"

static void trace_of(const char *lines, struct tm_trace *trace)
{
    char text[512];
    struct tm_error e = {0};
    (void)snprintf(text, sizeof text, "tidemill-trace 1\n%s", lines);
    tm_trace_init(trace);
    int rc = tm_trace_parse("t", text, strlen(text), "tidemill", trace, &e);
    assert_row(rc == 0, "\"%s\": %s", lines, e.text);
}

static struct tm_cost cost_with(double join_s, double leave_s)
{
    struct tm_cost cost = {.kind = TM_COST_MEASURED};
    cost.measured.join_s = join_s;
    cost.measured.leaves = leave_s >= 0;
    cost.measured.leave_s = leave_s >= 0 ? leave_s : 0;
    return cost;
}

static void test_shifted_traces(void **state)
{
    (void)state;
    static const struct {
        const char *name, *trace, *want;
        double join_s, leave_s;
        int64_t from_ms;
        double first_wait_s;
    } rows[] = {
        {"losses come earlier by what is left", "end: 300s\n\n0 +4\n100 -1\n", "0+4 70 80-1", 0, 10, 0, 0},
        {"arrivals come later", "end: 300s\n\n0 +4\n100 +2\n", "0+4 100 125+2", 25, -1, 0, 0},
        {"to its end where it does not say", "end: 300s\n\n0 +4\n100 -1\n", "0+4 100-1", 25, -1, 0, 0},
        {"a notice that is over is no help", "end: 300s\n\n0 +4\n100 -1\n", "0+4 100-1", 25, 31, 0, 0},
        {"what comes at the end is not used", "end: 300s\n\n0 +4\n290 +1\n", "0+4 290", 25, 10, 0, 0},
        {"lost before it joins", "end: 300s\n\n0 +1\n100 +2\n110 -3\n", "0+1 80 90-1 100 125", 25, 10, 0, 0},
        {"lost in its place", "end: 300s\n\n0 +2\n100 +2\n140 -3\n", "0+2 100 110 120-2 125+1", 25, 10, 0, 0},
        {"both at one time", "end: 300s\n\n0 +4\n100 +2\n145 -1\n", "0+4 100 115 125+2-1", 25, 10, 0, 0},
        {"history stays", "end: 300s\n\n0 +4\n50 +1\n60 -2\n150 -1\n", "0+4 50+1 60-2 120 130-1", 25, 10, 100, 0},
        {"never before the start", "end: 300s\n\n0 +4\n110 -1\n", "0+4 100.001-1", 25, 10, 100, 0},
        {"the first are waited for", "end: 300s\n\n0 +4\n100 +2\n", "0 90+4 100 125+2", 25, -1, 0, 90},
        {"lost before it came", "end: 300s\n\n0 +4\n60 -1\n", "0 60 90+3", 25, -1, 0, 90},
        {"and never come", "end: 300s\n\n0 +4\n", "0", 25, -1, 0, 400},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_trace trace, out;
        struct tm_cost cost = cost_with(rows[i].join_s, rows[i].leave_s);
        char got[256] = "";
        size_t used = 0;
        trace_of(rows[i].trace, &trace);
        tm_trace_init(&out);
        assert_int_equal(tm_in_use__trace(&trace, &cost, rows[i].from_ms * 1000, 30, rows[i].first_wait_s, &out, NULL),
                         0);
        for (size_t k = 0; k < out.event_count; k++) {
            const struct tm_trace_event *event = &out.events[k];
            used += (size_t)snprintf(got + used, sizeof got - used, "%s%g", k > 0 ? " " : "",
                                     (double)event->time_ms / 1000);
            if (event->in > 0) used += (size_t)snprintf(got + used, sizeof got - used, "+%d", event->in);
            if (event->out > 0) used += (size_t)snprintf(got + used, sizeof got - used, "-%d", event->out);
        }
        assert_row(strcmp(got, rows[i].want) == 0, "%s: \"%s\", want \"%s\"", rows[i].name, got, rows[i].want);
        tm_trace_deinit(&trace);
        tm_trace_deinit(&out);
    }
}

static void test_what_is_paid(void **state)
{
    (void)state;
    struct tm_trace trace;
    double usd, hours, usd_sum = 0, hours_sum = 0;
    trace_of("end: 3600s\n\n0 +4\n900 -2\n1800 +8\n", &trace);
    trace.events[1].price_usd_h = 2; /* from then on */
    struct tm_paid paid = tm_paid__begin(&trace, 0);
    tm_paid__advance(&paid, 1350000, 6, 1, &usd, &hours); /* 4 x 0.25 h at 1, 2 x 0.125 h at 2 */
    assert_true(close_to(hours, 1.25, 1e-12) && close_to(usd, 1.5, 1e-12));
    tm_paid__advance(&paid, 3600000, 6, 1, &usd, &hours); /* 2 x 0.125 h, then 6 of 10 x 0.5 h, at 2 */
    assert_true(close_to(hours, 3.25, 1e-12) && close_to(usd, 6.5, 1e-12));
    for (int parts = 1; parts <= 7; parts++) { /* however it is cut */
        paid = tm_paid__begin(&trace, 450000);
        usd_sum = hours_sum = 0;
        for (int i = 1; i <= parts; i++) {
            tm_paid__advance(&paid, 450000 + 3150000.0 * i / parts, 6, 1, &usd, &hours);
            usd_sum += usd;
            hours_sum += hours;
        }
        assert_row(close_to(hours_sum, 4, 1e-12) && close_to(usd_sum, 7.5, 1e-12), "%d parts: %g h, $%g", parts,
                   hours_sum, usd_sum);
    }
    tm_trace_deinit(&trace);
}

/* By hand: 8 instances from 100 s on, one fewer from 230 s on (notice at 170 + 60), 9 again from 400 + 40 s on. */
static void test_a_run_as_measured(void **state)
{
    (void)state;
    static const char measured[] =
        "tidemill-cost: 1\nkind: measured\nspeed: 10\nreform_ms: 300\nlink: 1000Gbit/s\n"
        "begin_s: 10\njoin_s: 4\nleave_s: 6\ndetect_ms: 500\nmodels: {test: {stages_max: 1}}\n";
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = job_make(9, false, measured, 9, test_speed);
    struct tm_trace trace;
    trace_of("end: 600s\n\n0 +8\n290 -1\n400 +2\n", &trace);
    struct tm_sim_options options = minute_options(0, 600000);
    options.notice_s = 120;
    struct tm_sim_result result = simulate(env, job, &trace, "tidemill", &options, NULL);
    const struct tm_layout *layouts = job->layouts.list;
    double on8 = layouts[tm_layouts_find(&job->layouts, 8, 1)].samples_per_s;
    double on7 = layouts[tm_layouts_find(&job->layouts, 7, 1)].samples_per_s;
    double on9 = layouts[tm_layouts_find(&job->layouts, 9, 1)].samples_per_s;
    double bytes = tm_layouts_stage_bytes(&job->layouts, 1, 0), move_s = bytes * 8 / 1e11 * 2 / 7;
    double want = on8 * 130 + on7 * (210 - 3) + on9 * (160 - 3 - fmax(move_s, bytes * 8 / 1e11));
    assert_row(close_to(result.samples, want, 1e-9), "%.9g, want %.9g", result.samples, want);
    assert_true(close_to(result.pauses.start_s, 100, 1e-12) && result.reconfigurations == 2);
    double hours = (8 * 290 + 7 * 110 + 9 * 200) / 3600.0; /* as the trace has it */
    assert_true(close_to(result.instance_hours, hours, 1e-12) && close_to(result.bill_usd, hours * 0.91, 1e-12));

    struct tm_sim_result ideal = simulate(env, job, &trace, "ideal", &options, NULL);
    assert_true(close_to(ideal.samples, on8 * 290 + on7 * 110 + on9 * 200, 1e-12));
    assert_true(close_to(ideal.bill_usd, result.bill_usd, 1e-12));

    options.notice_s = 0; /* nobody says so: the loss is found, and costs the step under way */
    result = simulate(env, job, &trace, "tidemill", &options, NULL);
    double flight = fmod(190, layouts[tm_layouts_find(&job->layouts, 8, 1)].step_s) * on8;
    want = on8 * 190 - flight + on7 * (150 - 3 - 5) + on9 * (160 - 3 - fmax(move_s, bytes * 8 / 1e11));
    assert_row(close_to(result.samples, want, 1e-9), "%.9g, want %.9g", result.samples, want);
    tm_trace_deinit(&trace);
    job_drop(job);
    tm_env_virtual_destroy(env);
}

static void test_without_memory(void **state)
{
    (void)state;
    struct tm_trace trace, out;
    struct tm_cost cost = cost_with(25, 10);
    trace_of("end: 300s\n\n0 +2\n100 +2\n140 -3\n", &trace);
    TM_FAIL_EACH_ALLOC({
        tm_trace_init(&out);
        rc = tm_in_use__trace(&trace, &cost, 0, 30, 0, &out, NULL);
        tm_trace_deinit(&out);
    });
    tm_trace_deinit(&trace);
}

TM_TEST_MAIN(TM_TEST(test_shifted_traces), TM_TEST(test_what_is_paid), TM_TEST(test_a_run_as_measured),
             TM_TEST(test_without_memory))
