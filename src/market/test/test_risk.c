#include "market/risk.h"

#include "base/env_virtual.h"
#include "market/catalog.h"
#include "market/test/market_helpers.h"

static int load_from(struct tm_env *env, struct tm_risk *risk, struct tm_error *e)
{
    tm_risk_init(risk);
    return tm_risk_load(env, risk, e);
}

/* As it ships. */
static void load(struct tm_risk *risk)
{
    struct tm_error e = {0};
    struct tm_env *env = tm_env_virtual_create(1);
    int rc = load_from(env, risk, &e);
    assert_row(rc == 0, "%s", e.text);
    tm_env_virtual_destroy(env);
}

static double recorded_share(const struct tm_risk_pool *pool, size_t bins)
{
    double hazard[TM_AGE_BINS];
    double last = 0;
    for (size_t b = 0; b < TM_AGE_BINS; b++) {
        if (pool->age_hours[b] >= 0.3) last = pool->age_lost[b] / pool->age_hours[b];
        hazard[b] = last;
    }
    return tm_hazards_lost_by(hazard, tm_age_bin_h[bins]);
}

/* Predictions for recorded pools that were left out, alone or with all that was recorded with them. */
static void test_left_out(void **state)
{
    (void)state;
    struct tm_risk risk;
    load(&risk);
    for (int campaign = 0; campaign < 2; campaign++) {
        double held[2] = {0};
        double error[2] = {0};
        double tried = 0;
        for (size_t i = 0; i < risk.count; i++) {
            const struct tm_risk_pool *pool = &risk.pools[i];
            struct tm_risk rest;
            struct tm_risk_answer answer;
            struct tm_error e;
            struct tm_risk_query query = {pool->cloud, pool->instance, pool->gpu,       pool->gpus, pool->region,
                                          pool->zone,  pool->campaign, TM_BAND_UNKNOWN, -1};
            query.band = strcmp(pool->cloud, "aws") == 0 ? 4 : TM_BAND_UNKNOWN;
            if (pool->instances < 10) continue;
            tm_risk_init(&rest);
            assert_int_equal(tm_risk_without(&risk, pool, campaign == 1, &rest, &e), 0);
            tm_risk_ask(&rest, &query, &answer);
            for (int a = 0; a < 2; a++) {
                size_t age = a == 0 ? 0 : TM_RISK_AGES - 1;
                struct tm_risk_share want = tm_risk_recorded(&answer, age, pool->instances);
                double share = recorded_share(pool, age + 1);
                double half = 0.5 / pool->instances;
                held[a] += share >= want.low - half && share <= want.high + half;
                error[a] += fabs(share - want.middle);
            }
            tried++;
            tm_risk_deinit(&rest);
        }
        for (int a = 0; a < 2; a++) {
            print_message("%s left out, within %d h: 80%% intervals hold %.0f%% of %.0f, mean error %.0f points\n",
                          campaign ? "campaigns" : "pools", a == 0 ? 1 : 24, 100 * held[a] / tried, tried,
                          100 * error[a] / tried);
            assert_true(held[a] >= 0.7 * tried && held[a] <= 0.9 * tried);
            assert_true(error[a] / tried < (campaign ? 0.30 : 0.13));
        }
    }
    tm_risk_deinit(&risk);
}

/* The figures that ship are those of the traces, where they are at hand: every pool of these files is a row. */
static void test_shipped_figures(void **state)
{
    (void)state;
    static const char *const files[] = {
        "aws-avail-2023-02-15-p3.2xlarge-us-east-1a-n1.json", "aws-avail-2022-12-13-p2.xlarge-us-west-2a-n1.csv",
        "aws-preempt-2023-08-03-p3.2xlarge-us-west-2c-n4.json", "gcp-lifetimes-2019-k80-p100-v100.csv"};
    struct tm_env *env = tm_env_real();
    struct tm_risk risk;
    if (!env->file_exists(env, SHARED_DATA "/traces/index.csv")) {
        print_message("skipped: no traces in ../shared/data\n");
        skip();
    }
    load(&risk);
    for (size_t i = 0; i < TM_COUNT(files); i++) {
        struct tm_lifetimes lifetimes;
        struct tm_error e = {0};
        char path[512];
        double instances = 0;
        double lost = 0;
        bool found = false;
        (void)snprintf(path, sizeof path, "%s/traces/%s", SHARED_DATA, files[i]);
        tm_lifetimes_init(&lifetimes);
        assert_row(tm_lifetimes_load(env, path, -1, &lifetimes, &e) == 0, "%s", e.text);
        for (size_t k = 0; k < lifetimes.count; k++) { /* of the list: the first type and zone */
            const struct tm_lifetime *life = &lifetimes.records[k];
            if (life->type != lifetimes.records[0].type || life->zone != lifetimes.records[0].zone) continue;
            instances += life->weight;
            lost += life->end == TM_LIFETIME_LOST ? life->weight : 0;
        }
        for (size_t k = 0; k < risk.count; k++) {
            double known = 0;
            for (int b = 0; b < TM_AGE_BINS; b++)
                known += risk.pools[k].age_lost[b];
            found = found || (near(risk.pools[k].instances, instances, 0.6) && near(known, lost, 0.6));
        }
        assert_row(found, "%s: %g instances, %g preempted", files[i], instances, lost);
        tm_lifetimes_deinit(&lifetimes);
    }
    tm_risk_deinit(&risk);
}

static struct tm_risk_answer ask(const struct tm_risk *risk, struct tm_risk_query query)
{
    struct tm_risk_answer answer;
    query.hour_utc = -1;
    tm_risk_ask(risk, &query, &answer);
    return answer;
}

/* What is safer than what, by what was recorded and by AWS's bands. */
static void test_order(void **state)
{
    (void)state;
    struct tm_risk risk;
    load(&risk);
    struct tm_risk_query v100 = {"aws", "p3.2xlarge", "V100", 1, "us-east-1", "", NULL, 4, -1};
    struct tm_risk_answer known = ask(&risk, v100);
    assert_true(known.lost[0].middle > 0.29 && known.lost[0].middle < 0.75); /* four recorded pools lost 29 to 63% */
    assert_true(known.life_h.middle < 24 && known.same_type > 10);
    for (int a = 1; a < TM_RISK_AGES; a++)
        assert_true(known.lost[a].middle >= known.lost[a - 1].middle && known.lost[a].low <= known.lost[a].middle &&
                    known.lost[a].middle <= known.lost[a].high);
    /* Bands: the higher, the riskier; without one as bad as the highest, and less sure. */
    struct tm_risk_query other = {"aws", "g6.xlarge", "L4", 1, "us-east-2", "", NULL, 0, -1};
    double before = 0;
    for (int band = 0; band < 5; band++) {
        other.band = band;
        struct tm_risk_answer now = ask(&risk, other);
        assert_true(now.loss_per_s > before);
        before = now.loss_per_s;
    }
    struct tm_risk_answer highest = ask(&risk, other);
    other.band = TM_BAND_UNKNOWN;
    struct tm_risk_answer unknown = ask(&risk, other);
    assert_true(unknown.loss_per_s >= highest.loss_per_s && unknown.spread > highest.spread);
    /* A cloud that nobody recorded: a wide answer, no safer than AWS's top band. */
    struct tm_risk_query azure = {"azure", "Standard_NC24ads_A100_v4", "A100", 1, "eastus", "", NULL, -1, -1};
    struct tm_risk_answer wide = ask(&risk, azure);
    assert_true(wide.spread > 1.5 && wide.same_type == 0);
    print_message("preemptions an hour: AWS >20%% %.3g, AWS without a band %.3g, Azure %.3g\n",
                  highest.loss_per_s * 3600, unknown.loss_per_s * 3600, wide.loss_per_s * 3600);
    assert_true(wide.loss_per_s >= highest.loss_per_s);
    assert_true(wide.lost[0].high - wide.lost[0].low > 0.5);
    tm_risk_deinit(&risk);
}

/* The user's own records count for more than others'; two of the same pool are added up. */
static void test_learned(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_risk risk;
    struct tm_error e = {0};
    struct tm_risk_query query = {"aws", "p3.2xlarge", "V100", 1, "us-east-1", "us-east-1a", NULL, 4, -1};
    struct tm_risk_pool calm = {.cloud = "aws",
                                .instance = "p3.2xlarge",
                                .gpu = "V100",
                                .gpus = 1,
                                .region = "us-east-1",
                                .zone = "us-east-1a",
                                .instances = 100,
                                .age_lost = {1, 1, 1, 1, 1, 0},
                                .age_hours = {100, 200, 300, 600, 1200, 0},
                                .hour_lost = {[3] = 5},
                                .hour_hours = {[3] = 100, [4] = 100}};
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/d"), 0);
    assert_int_equal(load_from(env, &risk, &e), 0);
    size_t shipped = risk.count;
    struct tm_risk_answer before = ask(&risk, query);
    tm_risk_deinit(&risk);
    for (int times = 1; times <= 2; times++) {
        assert_int_equal(tm_risk_learn(env, &calm, 1, &e), 0);
        assert_int_equal(load_from(env, &risk, &e), 0);
        assert_int_equal(risk.count, shipped + 1);
        const struct tm_risk_pool *own = &risk.pools[shipped];
        assert_true(own->instances == 100 * times && own->age_lost[2] == times && own->hour_lost[3] == 5 * times);
        assert_string_equal(own->campaign, TM_RISK_OWN);
        struct tm_risk_answer after = ask(&risk, query);
        assert_true(after.life_h.middle > 4 * before.life_h.middle && after.lost[0].middle < before.lost[0].middle);
        assert_true(after.spread < before.spread);
        tm_risk_deinit(&risk);
    }
    tm_env_virtual_destroy(env);
}

static void test_hours(void **state)
{
    (void)state;
    struct tm_risk risk;
    load(&risk);
    double sum = 0;
    double most = 0;
    for (int h = 0; h < TM_HOURS; h++) {
        double factor = tm_risk__hour_factor(&risk, "aws", "us-west-2", h);
        sum += factor;
        most = fmax(most, factor);
        /* Regions see the same hours of their own day. */
        assert_true(near(tm_risk__hour_factor(&risk, "aws", "us-east-1", (h + 21) % TM_HOURS), factor, 1e-9));
    }
    assert_true(near(sum / TM_HOURS, 1, 0.1) && most > 1.05);
    assert_true(tm_risk__hour_factor(&risk, "azure", "eastus", 3) == 1);
    tm_risk_deinit(&risk);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const char head[] =
        "cloud,instance,gpu,gpus,region,zone,campaign,instances,lost_1h,lost_3h,lost_6h,lost_12h,lost_24h,lost_later,"
        "hours_1h,hours_3h,hours_6h,hours_12h,hours_24h,hours_later,hour_lost,hour_hours\n";
    static const struct {
        const char *row;
        const char *want;
    } rows[] = {{"", "expected the header"},
                {"aws,t,G,1,r,z,c,1\n", "t.tmrisk:2: expected 22 fields, got 8"},
                {"aws,t,G,-1,r,z,c,1,0,0,0,0,0,0,1,0,0,0,0,0,,\n", "t.tmrisk:2: gpus: expected a number"},
                {"aws,t,G,1,r,z,c,1,0,x,0,0,0,0,1,0,0,0,0,0,,\n", "t.tmrisk:2: lost_3h: expected a number"},
                {"aws,t,G,1,r,z,c,1,0,0,0,0,0,0,1,0,0,0,0,0,1 2,\n", "t.tmrisk:2: hour_lost: expected 24 numbers"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_risk risk;
        struct tm_error e = {0};
        char text[1024];
        int length = snprintf(text, sizeof text, "%s%s", i > 0 ? head : "", rows[i].row);
        tm_risk_init(&risk);
        assert_row(tm_risk__parse(&risk, "t.tmrisk", text, (size_t)length, &e) == -(int)TM_EINPUT, "%zu", i);
        assert_row(strstr(e.text, rows[i].want) != NULL, "%zu: %s", i, e.text);
        tm_risk_deinit(&risk);
    }
    char region[64];
    tm_risk_region("us-east-1a", region);
    assert_string_equal(region, "us-east-1");
    tm_risk_region("us-central1-c", region);
    assert_string_equal(region, "us-central1");
    tm_risk_region("use1-az1", region);
    assert_string_equal(region, "use1-az1");
}

static int learn_and_load(struct tm_env *env)
{
    struct tm_risk risk;
    struct tm_error e;
    struct tm_risk_pool pool = {.cloud = "aws", .instance = "t", .gpu = "", .region = "r", .zone = "z"};
    int rc = tm_risk_learn(env, &pool, 1, &e);
    if (rc != 0) return rc;
    rc = load_from(env, &risk, &e);
    tm_risk_deinit(&risk);
    return rc;
}

static int make_without(const struct tm_risk *risk)
{
    struct tm_risk rest;
    struct tm_error e;
    tm_risk_init(&rest);
    int rc = tm_risk_without(risk, &risk->pools[0], false, &rest, &e);
    tm_risk_deinit(&rest);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    struct tm_risk risk;
    struct tm_env *env = tm_env_virtual_create(1);
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/d"), 0);
    assert_int_equal(learn_and_load(env), 0); /* the file is there from now on */
    TM_FAIL_EACH_ALLOC(rc = learn_and_load(env));
    tm_env_virtual_destroy(env);
    load(&risk);
    TM_FAIL_EACH_ALLOC(rc = make_without(&risk));
    tm_risk_deinit(&risk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_out), cmocka_unit_test(test_shipped_figures), cmocka_unit_test(test_order),
        cmocka_unit_test(test_learned),  cmocka_unit_test(test_hours),           cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
