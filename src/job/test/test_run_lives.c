/* What a run's instances tell the next plan. */
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "job/pool_lives.h"
#include "job/run_lives.h"
#include "market/risk.h"
#include "market/starts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct tm_cloud_pool pools[2] = {
    {.type = "p3.2xlarge", .zone = "us-west-2a", .kind = TM_INSTANCE_SPOT, .notice_ms = 120000},
    {.type = "p3.2xlarge", .zone = "us-west-2a", .kind = TM_INSTANCE_ON_DEMAND},
};
enum { HOUR_MS = 3600000 };
static struct tm_cloud_instance instances[] = {
    {.id = 1, .state = TM_INSTANCE_LOST, .arrived_ms = 0, .noticed_ms = HOUR_MS / 2 - 120000, .gone_ms = HOUR_MS / 2},
    {.id = 2, .state = TM_INSTANCE_LOST, .arrived_ms = 0, .noticed_ms = 1, .gone_ms = 2 * HOUR_MS},
    {.id = 3, .state = TM_INSTANCE_LOST, .arrived_ms = 0, .noticed_ms = -1, .gone_ms = HOUR_MS}, /* it crashed */
    {.id = 4, .state = TM_INSTANCE_RELEASED, .arrived_ms = HOUR_MS, .noticed_ms = -1, .gone_ms = 3 * HOUR_MS},
    {.id = 5, .state = TM_INSTANCE_RUNNING, .arrived_ms = 2 * HOUR_MS, .noticed_ms = -1, .gone_ms = -1},
    {.id = 6, .state = TM_INSTANCE_STARTING, .arrived_ms = -1, .noticed_ms = -1, .gone_ms = -1},
    {.id = 7, .pool = 1, .kind = TM_INSTANCE_ON_DEMAND, .state = TM_INSTANCE_RUNNING, .gone_ms = -1},
};

static const struct tm_cloud_pool *get_pools(struct tm_cloud *cloud, int *out_count)
{
    (void)cloud;
    *out_count = 2;
    return pools;
}

static const struct tm_cloud_instance *get_instances(struct tm_cloud *cloud, size_t *out_count)
{
    (void)cloud;
    *out_count = TM_COUNT(instances);
    return instances;
}

static const struct tm_cloud_instance *get_came(struct tm_cloud *cloud, size_t *out_count)
{
    *out_count = 5;
    return cloud->self;
}

static int64_t get_now_50_s(struct tm_cloud *cloud)
{
    (void)cloud;
    return 50000;
}

static int64_t get_now_ms(struct tm_cloud *cloud)
{
    (void)cloud;
    return 3 * HOUR_MS;
}

static struct tm_cloud cloud = {.pools = get_pools, .instances = get_instances, .now_ms = get_now_ms};

/* Instance-hours and preemptions that the user has recorded. */
static void learned(struct tm_env *env, double *lost, double *hours)
{
    struct tm_risk risk;
    struct tm_error e = {0};
    tm_risk_init(&risk);
    *lost = *hours = 0;
    assert_row(tm_risk_load(env, &risk, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < risk.count; i++)
        for (int b = 0; b < TM_AGE_BINS && strcmp(risk.pools[i].campaign, TM_RISK_OWN) == 0; b++) {
            *lost += risk.pools[i].age_lost[b];
            *hours += risk.pools[i].age_hours[b];
        }
    tm_risk_deinit(&risk);
}

static void test_kept(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_run_lives lives = {.cloud = "aws", .dir = "/run", .emulated = true};
    struct tm_error e = {0};
    struct tm_text text;
    double lost, hours;
    tm_text_init(&text, 1 << 16);
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/d"), 0);
    assert_row(tm_run_lives__keep(env, &cloud, &lives, &e) == 0, "%s", e.text);
    learned(env, &lost, &hours);
    assert_true(lost == 0 && hours == 0); /* nothing of a cloud that was not there */
    assert_int_equal(env->file_read(env, "/run/lifetimes.csv", &text, &e), 0);
    assert_string_equal(tm_text_string(&text), "instance,gpu,zone,lifetime_s,end\n"
                                               "p3.2xlarge,V100,us-west-2a,1800,preempted\n"
                                               "p3.2xlarge,V100,us-west-2a,7200,preempted\n"
                                               "p3.2xlarge,V100,us-west-2a,3600,failed\n"
                                               "p3.2xlarge,V100,us-west-2a,7200,stopped\n"
                                               "p3.2xlarge,V100,us-west-2a,3600,stopped\n");
    lives.emulated = false;
    assert_row(tm_run_lives__keep(env, &cloud, &lives, &e) == 0, "%s", e.text);
    learned(env, &lost, &hours);
    assert_true(lost == 2 && hours == 6.5);
    tm_text_clear(&text);
    assert_int_equal(env->file_read(env, "/run/lifetimes.csv", &text, &e), 0);
    size_t lines = 0;
    for (size_t i = 0; i < text.length; i++)
        lines += tm_text_string(&text)[i] == '\n';
    assert_int_equal(lines, 11); /* what an earlier program of the run wrote stays */
    tm_text_deinit(&text);
    tm_env_virtual_destroy(env);
}

/* How long VMs took to come, by type and zone; not those that an earlier program had asked for. */
static void test_starts(void **state)
{
    (void)state;
    static const char job_text[] = "cloud: aws\nfleet: {instance: p3.2xlarge}\n";
    static const char pools_text[] =
        "cloud: aws\nfleet: {limit: 2, pools: [{instance: p3.2xlarge, zone: us-west-2b, limit: 1}, {instance: "
        "p3.2xlarge, zone: us-west-2a, limit: 1}, {instance: p3.2xlarge, zone: us-west-2a, limit: 1, start: 7s}, "
        "{instance: g5.xlarge, zone: us-west-2a, limit: 1}]}\n";
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_cloud_instance came[] = {
        {.id = 1, .asked_ms = 1000, .arrived_ms = 41000, .zone = "us-west-2a", .type = "p3.2xlarge"},
        {.id = 2, .asked_ms = 1000, .arrived_ms = 61000, .zone = "us-west-2a", .type = "p3.2xlarge"},
        {.id = 3, .asked_ms = 1000, .arrived_ms = 91000, .zone = "us-west-2b", .type = "p3.2xlarge"},
        {.id = 4, .asked_ms = 0, .arrived_ms = HOUR_MS, .zone = "us-west-2b", .type = "p3.2xlarge", .recalled = true},
        {.id = 5, .asked_ms = 0, .arrived_ms = -1, .gone_ms = -1, .zone = "us-west-2b", .type = "p3.2xlarge"},
    };
    struct tm_cloud vms = {
        .learns_start = true, .pools = get_pools, .instances = get_came, .now_ms = get_now_50_s, .self = came};
    struct tm_job job;
    struct tm_error e = {0};
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/d"), 0);
    assert_row(tm_run_lives__keep_waits(env, &vms, "aws", &e) == 0, "%s", e.text);
    tm_job_init(&job);
    assert_row(tm_job_parse("a.yaml", job_text, strlen(job_text), &job, &e) == 0, "%s", e.text);
    assert_int_equal(tm_pool_lives__fill_starts(env, &job, &e), 0);
    assert_int_equal(job.fleet.spot_start_ms, 63333);
    assert_int_equal(job.fleet.on_demand_start_ms, 63333);
    tm_job_deinit(&job);
    tm_job_init(&job);
    assert_row(tm_job_parse("a.yaml", pools_text, strlen(pools_text), &job, &e) == 0, "%s", e.text);
    assert_int_equal(tm_pool_lives__fill_starts(env, &job, &e), 0);
    const struct tm_job_pool *filled = job.fleet.pools.items;
    assert_int_equal(filled[0].start_ms, 90000);
    assert_int_equal(filled[1].start_ms, 50000);
    assert_int_equal(filled[2].start_ms, 7000); /* what the job says counts */
    assert_true(filled[3].start_ms < 0);
    assert_int_equal(job.fleet.spot_start_ms, 0); /* each choice has its own */
    tm_job_deinit(&job);
    tm_env_virtual_destroy(env);
}

/* Those that never came: they have waited so long at least. */
static void test_starts_in_vain(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_cloud_instance came[] = {
        {.id = 1, .asked_ms = 0, .arrived_ms = 10000, .zone = "spot", .type = "spot"},
        {.id = 2, .asked_ms = 0, .arrived_ms = -1, .gone_ms = -1, .zone = "spot", .type = "spot"},   /* so far 50 s */
        {.id = 3, .asked_ms = 0, .arrived_ms = -1, .gone_ms = 9000, .zone = "spot", .type = "spot"}, /* given up soon */
        {.id = 4, .asked_ms = 0, .arrived_ms = -1, .gone_ms = 20000, .zone = "none", .type = "none"}, /* nobody came */
        {.id = 5, .asked_ms = 0, .arrived_ms = -1, .gone_ms = 9000, .zone = "no", .type = "no", .ungranted = true},
    };
    struct tm_cloud queue = {
        .learns_start = true, .pools = get_pools, .instances = get_came, .now_ms = get_now_50_s, .self = came};
    struct tm_error e = {0};
    double wait_s = 0;
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/d"), 0);
    assert_row(tm_run_lives__keep_waits(env, &queue, "slurm", &e) == 0, "%s", e.text);
    assert_int_equal(tm_starts_ask(env, "slurm", "spot", &wait_s, NULL), 0);
    assert_true(wait_s == 30);
    assert_int_equal(tm_starts_ask(env, "slurm", "none", &wait_s, NULL), 0);
    assert_true(wait_s == 20);
    assert_int_equal(tm_starts_ask(env, "slurm", "no", &wait_s, NULL), 0);
    assert_true(isnan(wait_s));
    tm_env_virtual_destroy(env);
}

/* Pools that are all wanted: the fleet waits as long as for the slowest that trains, in each market. */
static void test_starts_of_fleet(void **state)
{
    (void)state;
    static const struct {
        const char *fleet;
        int64_t spot_ms, on_demand_ms;
    } rows[] = {
        {"{pools: [{partition: spot, limit: 4, start: 10h}]}", 10 * HOUR_MS, -1},
        {"{pools: [{partition: spot, limit: 4, start: 10h}], spot_start: 1h}", HOUR_MS, -1},
        {"{pools: [{partition: seen, limit: 4}]}", 40000, -1},
        {"{pools: [{partition: long, limit: 4, market: on-demand, start: 5h}]}", 0, 5 * HOUR_MS},
        {"{pools: [{partition: seen, limit: 4, market: on-demand}]}", 0, 40000},
        {"{pools: [{partition: long, limit: 4, market: on-demand}]}", 0, 0}, /* not as VMs */
        {"{pools: [{partition: long, limit: 4, market: on-demand}], on_demand_start: 1h}", 0, HOUR_MS},
        {"{pools: [{partition: spot, count: 4, start: 1h}, {partition: low, count: 2, start: 2h}]}", 2 * HOUR_MS, -1},
        {"{pools: [{partition: spot, limit: 4, start: 1h}, {partition: low, limit: 2, start: 2h}]}", 0, -1},
    };
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_start seen = {.cloud = "slurm", .place = "seen", .seconds = 40, .seen = 1};
    struct tm_error e = {0};
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/d"), 0);
    assert_row(tm_starts_learn(env, &seen, 1, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_job job;
        char text[256];
        (void)snprintf(text, sizeof text, "cloud: slurm\nfleet: %s\n", rows[i].fleet);
        tm_job_init(&job);
        assert_row(tm_job_parse("a.yaml", text, strlen(text), &job, &e) == 0, "%s", e.text);
        assert_int_equal(tm_pool_lives__fill_starts(env, &job, &e), 0);
        assert_row(job.fleet.spot_start_ms == rows[i].spot_ms, "%s: spot %lld", rows[i].fleet,
                   (long long)job.fleet.spot_start_ms);
        assert_row(job.fleet.on_demand_start_ms == rows[i].on_demand_ms, "%s: on-demand %lld", rows[i].fleet,
                   (long long)job.fleet.on_demand_start_ms);
        tm_job_deinit(&job);
    }
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_kept), TM_TEST(test_starts), TM_TEST(test_starts_in_vain), TM_TEST(test_starts_of_fleet))
