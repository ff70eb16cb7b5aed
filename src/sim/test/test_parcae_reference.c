/* Fidelity: the outputs of Parcae's released planner, minute by minute, from the reference beside the repository; and
 * always, on the shipped hours, the totals of its two baselines.
 *
 * Tolerances: ideal and reactive have no chance in them: 0.1%. The reference drew where there are more than 6,000 ways
 * to lose, and breaks ties between equal transfers by instance: 0.5% in samples, the same layout in 97% of minutes.
 * builds: release asan */
#include "sim/test/sim_helpers.h"

#define REFERENCE TIDEMILL_SOURCE_DIR "/../shared/reference/parcae_reference.json"
#define TRACE     TIDEMILL_SOURCE_DIR "/../shared/data/traces/aws-fleet-bamboo-p3.csv"

enum { HORIZON = 12, MINUTE_MS = 60000 };

static const struct {
    const char *key;  /* in the reference */
    const char *name; /* of the shipped trace */
    int from_minute, to_minute;
} hours[] = {
    {"HADP_hh_5.5-6.5", "hadp", 330, 390},
    {"HASP_hl_1.5-2.5", "hasp", 90, 150},
    {"LADP_lh_8-9", "ladp", 480, 540},
    {"LASP_ll_10-11", "lasp", 600, 660},
    {"full12h", NULL, 0, 683},
};

static const char *const models[] = {"gpt-1.5b", "bert", "resnet152"};

static bool within(double got, double want, double share)
{
    return fabs(got - want) <= share * want;
}

/* ---- always: the shipped hours ---- */

static void test_shipped_hours(void **state)
{
    (void)state;
    static const struct {
        const char *model, *trace;
        double ideal, reactive;
    } rows[] = {
        {"gpt-1.5b", "hadp", 143547.3, 107545.2},    {"gpt-1.5b", "hasp", 149501.6, 124158.5},
        {"gpt-1.5b", "ladp", 108432.9, 73255.3},     {"gpt-1.5b", "lasp", 103787.5, 98820.4},
        {"bert", "hadp", 1806875.0, 1603702.6},      {"bert", "hasp", 1911813.3, 1775195.7},
        {"bert", "ladp", 1288287.8, 1093673.5},      {"bert", "lasp", 1213433.0, 1186338.7},
        {"resnet152", "hadp", 9288690.5, 8416277.6}, {"resnet152", "hasp", 9906699.5, 9300482.2},
        {"resnet152", "ladp", 6286382.2, 5464472.2}, {"resnet152", "lasp", 5898259.5, 5789076.9},
    };
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_sim_options options = minute_options(0, 60 * MINUTE_MS);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_trace trace;
        struct tm_error e = {0};
        char name[64];
        tm_trace_init(&trace);
        assert_int_equal(tm_trace_load(env, rows[i].trace, NULL, &trace, &e), 0);
        (void)snprintf(name, sizeof name, "parcae/%s", rows[i].model);
        struct test_job *job = paper_job(env, name, 32);
        double ideal = simulate(env, job, &trace, "ideal", &options, NULL).samples;
        double reactive = simulate(env, job, &trace, "reactive", &options, NULL).samples;
        assert_row(within(ideal, rows[i].ideal, 1e-3), "%s, %s: ideal %.1f, want %.1f", rows[i].model, rows[i].trace,
                   ideal, rows[i].ideal);
        assert_row(within(reactive, rows[i].reactive, 1e-3), "%s, %s: reactive %.1f, want %.1f", rows[i].model,
                   rows[i].trace, reactive, rows[i].reactive);
        paper_job_drop(job);
        tm_trace_deinit(&trace);
    }
    tm_env_virtual_destroy(env);
}

/* ---- the reference ---- */

struct reference {
    struct tm_env *env; /* in which files are those of the machine */
    struct tm_trace trace;
    json_t *root;
};

static bool open_reference(struct reference *reference)
{
    struct tm_error e = {0};
    json_error_t json_error;
    struct tm_env *env = tm_env_real();
    if (!env->file_exists(env, REFERENCE) || !env->file_exists(env, TRACE)) return false;
    reference->env = env;
    tm_trace_init(&reference->trace);
    int rc = tm_trace_load(env, TRACE, NULL, &reference->trace, &e);
    assert_row(rc == 0, "%s", e.text);
    reference->root = json_load_file(REFERENCE, 0, &json_error);
    assert_row(reference->root != NULL, "%s", json_error.text);
    return true;
}

static void close_reference(struct reference *reference)
{
    json_decref(reference->root);
    tm_trace_deinit(&reference->trace);
}

/* What the planner was given, as the simulator takes it; NULL where the reference has none. The caller frees it. */
static int *forecasts_of(json_t *run, size_t *count)
{
    json_t *given = json_object_get(run, "forecast_N");
    if (given == NULL) return NULL;
    *count = json_array_size(given);
    int *forecasts = tm_alloc(*count * HORIZON * sizeof *forecasts);
    assert_non_null(forecasts);
    for (size_t i = 0; i < *count * HORIZON; i++)
        forecasts[i] = (int)json_integer_value(json_array_get(json_array_get(given, i / HORIZON), i % HORIZON));
    return forecasts;
}

/* The share of minutes in the same layout. */
static double same_share(json_t *run, const struct tm_sim_log *log)
{
    json_t *intervals = json_object_get(run, "intervals");
    size_t same = 0, count = json_array_size(intervals);
    assert_int_equal(log->count, count);
    for (size_t i = 0; i < count; i++) {
        json_t *row = json_array_get(intervals, i);
        same += json_integer_value(json_object_get(row, "D")) == log->intervals[i].pipelines &&
                json_integer_value(json_object_get(row, "P")) == log->intervals[i].stages;
    }
    return (double)same / (double)count;
}

static void check_policy(struct reference *reference, struct test_job *job, const char *key, json_t *run,
                         const char *policy, double tolerance, const struct tm_sim_options *options)
{
    struct tm_sim_log log;
    tm_sim_log_init(&log);
    double got = simulate(reference->env, job, &reference->trace, policy, options, &log).samples;
    double want = json_number_value(json_object_get(run, "total_samples"));
    double same = same_share(run, &log);
    assert_row(within(got, want, tolerance), "%s, %s: %.1f samples, want %.1f", key, policy, got, want);
    assert_row(same >= 0.97, "%s, %s: the same layout in %.1f%% of minutes", key, policy, 100 * same);
    tm_sim_log_deinit(&log);
}

static void check_hour(struct reference *reference, struct test_job *job, const char *model, size_t hour)
{
    char key[96], notice_key[128];
    (void)snprintf(key, sizeof key, "%s|%s", model, hours[hour].key);
    (void)snprintf(notice_key, sizeof notice_key, "%s|notice", key);
    json_t *run = json_object_get(json_object_get(reference->root, "runs"), key);
    assert_row(run != NULL, "no run %s", key);
    struct tm_sim_options options =
        minute_options((int64_t)hours[hour].from_minute * MINUTE_MS, (int64_t)hours[hour].to_minute * MINUTE_MS);
    check_policy(reference, job, key, json_object_get(run, "ideal"), "ideal", 1e-3, &options);
    check_policy(reference, job, key, json_object_get(run, "tpt"), "reactive", 1e-3, &options);
    check_policy(reference, job, key, json_object_get(run, "truth"), "parcae-truth", 5e-3, &options);
    json_t *notice = json_object_get(json_object_get(reference->root, "what_if_total_samples"), notice_key);
    if (notice != NULL) {
        double got = simulate(reference->env, job, &reference->trace, "parcae-notice", &options, NULL).samples;
        assert_row(within(got, json_number_value(notice), 5e-3), "%s: %.1f, want %.1f", notice_key, got,
                   json_number_value(notice));
    }
    struct tm_sim_options fed = options;
    int *forecasts = forecasts_of(json_object_get(run, "pred"), &fed.forecast_count);
    assert_row((forecasts == NULL) == (hours[hour].name == NULL), "%s: forecasts", key);
    fed.forecasts = forecasts;
    if (forecasts != NULL) check_policy(reference, job, key, json_object_get(run, "pred"), "parcae", 5e-3, &fed);
    tm_free(forecasts);
}

static void test_reference_runs(void **state)
{
    (void)state;
    struct reference reference;
    if (!open_reference(&reference)) skip();
    for (size_t m = 0; m < TM_COUNT(models); m++) {
        char name[64];
        (void)snprintf(name, sizeof name, "parcae/%s", models[m]);
        struct test_job *job = paper_job(reference.env, name, 32);
        for (size_t hour = 0; hour < TM_COUNT(hours); hour++)
            check_hour(&reference, job, models[m], hour);
        paper_job_drop(job);
    }
    close_reference(&reference);
}

/* Parcae with our own copy of its predictor, to its end: 1.5%. Poisson draws and the fit decide the rest. */
static void test_parcae_with_its_own_forecasts(void **state)
{
    (void)state;
    struct reference reference;
    if (!open_reference(&reference)) skip();
    double worst = 0;
    for (size_t m = 0; m < TM_COUNT(models); m++) {
        char name[64], key[96];
        (void)snprintf(name, sizeof name, "parcae/%s", models[m]);
        struct test_job *job = paper_job(reference.env, name, 32);
        for (size_t hour = 0; hour < TM_COUNT(hours); hour++) {
            (void)snprintf(key, sizeof key, "%s|%s", models[m], hours[hour].key);
            json_t *run = json_object_get(json_object_get(json_object_get(reference.root, "runs"), key), "pred");
            struct tm_sim_options options = minute_options((int64_t)hours[hour].from_minute * MINUTE_MS,
                                                           (int64_t)hours[hour].to_minute * MINUTE_MS);
            double got = simulate(reference.env, job, &reference.trace, "parcae", &options, NULL).samples;
            double want = json_number_value(json_object_get(run, "total_samples"));
            worst = fmax(worst, fabs(got / want - 1));
            assert_row(within(got, want, 0.015), "%s: %.1f samples, want %.1f (%+.2f%%)", key, got, want,
                       100 * (got / want - 1));
        }
        paper_job_drop(job);
    }
    print_message("parcae with its own forecasts: at most %.3f%% off\n", 100 * worst);
    close_reference(&reference);
}

/* The shipped hours are those of the whole trace: without history before them, policies that need none do the same. */
static void test_shipped_hours_are_of_the_trace(void **state)
{
    (void)state;
    static const char *const policies[] = {"ideal", "reactive", "parcae-notice"};
    struct reference reference;
    if (!open_reference(&reference)) skip();
    struct test_job *job = paper_job(reference.env, "parcae/bert", 32);
    for (size_t hour = 0; hour < TM_COUNT(hours) - 1; hour++) {
        struct tm_trace trace;
        struct tm_error e = {0};
        tm_trace_init(&trace);
        assert_int_equal(tm_trace_load(reference.env, hours[hour].name, NULL, &trace, &e), 0);
        struct tm_sim_options own = minute_options(0, 60 * MINUTE_MS);
        struct tm_sim_options of_whole =
            minute_options((int64_t)hours[hour].from_minute * MINUTE_MS, (int64_t)hours[hour].to_minute * MINUTE_MS);
        for (size_t p = 0; p < TM_COUNT(policies); p++) {
            double a = simulate(reference.env, job, &trace, policies[p], &own, NULL).samples;
            double b = simulate(reference.env, job, &reference.trace, policies[p], &of_whole, NULL).samples;
            assert_row(close_to(a, b, 1e-12), "%s, %s: %.3f, %.3f", hours[hour].name, policies[p], a, b);
        }
        tm_trace_deinit(&trace);
    }
    paper_job_drop(job);
    close_reference(&reference);
}

TM_TEST_MAIN(TM_TEST(test_shipped_hours), TM_TEST(test_reference_runs), TM_TEST(test_parcae_with_its_own_forecasts),
             TM_TEST(test_shipped_hours_are_of_the_trace))
