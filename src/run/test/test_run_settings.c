/* How a job is run: what its file says, what is assumed, and run.yaml as it comes back. */
#include "run/run_settings.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

static int settings_of(const char *text, struct tm_run_settings *out, struct tm_error *e)
{
    tm_run_settings_init(out);
    int rc = tm_job_parse("job.yaml", text, strlen(text), &out->job, e);
    out->job.folder = "/jobs";
    return rc == 0 ? tm_run_settings_settle(out, e) : rc;
}

static void defaults_and_what_is_said(void **state)
{
    struct tm_run_settings s;
    struct tm_error e;
    (void)state;
    assert_row(settings_of("name: a\n", &s, &e) == 0, "%s", e.text);
    assert_string_equal(s.job.fleet.trace, "hadp");
    assert_int_equal(s.job.fleet.limit, 6);
    assert_int_equal(s.job.fleet.notice_ms, 120000);
    assert_int_equal(s.job.engine, TM_JOB_ENGINE_GPT);
    assert_string_equal(s.job.policy, "tidemill");
    assert_false(tm_run_restarts_all(&s));
    tm_run_settings_deinit(&s);
    assert_row(settings_of("name: a\nrun: python train.py\npolicy: checkpoint\n"
                           "fleet: {trace: my.csv, speed: 10, limit: 3, notice: 0s, spot_price: 0.5}\n",
                           &s, &e) == 0,
               "%s", e.text);
    assert_int_equal(s.job.engine, TM_JOB_ENGINE_COMMAND);
    assert_true(tm_run_restarts_all(&s));
    assert_string_equal(s.job.fleet.trace, "/jobs/my.csv");
    assert_int_equal(s.job.fleet.notice_ms, 0);
    assert_int_equal(s.job.fleet.spot_usd_h_millionths, 500000);
    assert_int_equal(s.job.fleet.on_demand_usd_h_millionths, TM_FLEET_UNSAID);
    tm_run_settings_deinit(&s);
    assert_row(settings_of("name: a\nanchors: [1x c5.xlarge, 2x c5.xlarge]\n", &s, &e) == 0, "%s", e.text);
    assert_true(s.job.fleet.on_demand == 3 && s.job.fleet.on_demand_trains == 0);
    assert_int_equal(tm_job_fleet_keepers(&s.job.fleet), 3);
    assert_string_equal(s.job.fleet.anchor_instance, "c5.xlarge");
    tm_run_settings_deinit(&s);
    assert_row(settings_of("name: a\nanchors: 2x c5.xlarge\nfleet: {on_demand: 1}\n", &s, &e) == 0, "%s", e.text);
    assert_true(s.job.fleet.on_demand == 1 && s.job.fleet.on_demand_trains == 1);
    tm_run_settings_deinit(&s);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {"name: a/b\n", "job.yaml:1: name: to run, a job needs a name"},
        {"name: a\nfleet: {limit: 257}\n", "job.yaml:2:16: fleet.limit: expected"},
        {"name: a\nfleet:\n  workers_min: 9\n", "fleet.workers_min: at least 9 workers, but at most 6 instances;"},
        {"name: a\nfleet: {on_demand: 9}\n", "job.yaml:2: fleet.on_demand: 9 instances"},
        {"name: a\nanchors: c5.xlarge\n", "job.yaml:2:10: anchors: expected COUNTx TYPE"},
        {"name: a\nanchors: 2x\n", "job.yaml:2:10: anchors: expected COUNTx TYPE"},
        {"name: a\nanchors: [1x a, 1x b]\n", "anchors: must be of one instance type, got a and b"},
        {"name: a\nanchors: 1x a\nfleet: {on_demand_trains: 1}\n", "anchors: they keep copies and do not train"},
        {"name: a\nresources: {instance_type: a}\nfleet: {pools: [{instance: b, count: 1}]}\n",
         "job.yaml:3:16: fleet.pools: pool 1: b is not in resources.instance_type"},
        {"name: a\nresources: {cloud: aws, region: [x, y]}\nfleet: {pools: [{instance: b, cloud: aws, region: z, "
         "count: "
         "1}]}\n",
         "fleet.pools: pool 1: z is not in resources.region"},
        {"name: a\nresources: {cloud: aws, instance_type: a}\nfleet: {pools: [{instance: b, count: 1}]}\n",
         "pool 1: b is not in resources.instance_type"},
        {"name: a\nresources: {infra: aws/x}\nfleet: {pools: [{instance: b, cloud: aws, region: z, count: 1}]}\n",
         "pool 1: its place is not in resources.infra"},
        {"name: a\nmarket: spot\nfleet: {pools: [{instance: b, market: on-demand, count: 1}]}\n",
         "pool 1: market does not allow on-demand instances"},
        {"name: a\nresources: {use_spot: false}\nfleet: {pools: [{instance: b, count: 1}]}\n",
         "pool 1: resources.use_spot does not allow spot instances"},
        {"name: a\nmax_nodes: 2\nfleet: {pools: [{instance: b, count: 3}]}\n", "3 instances train, but max_nodes is 2"},
        {"name: a\nfleet: {memory: 1GB, pools: [{instance: b, count: 3}]}\n",
         "fleet.memory: the memory is that of the instance types"},
        {"name: a\nanchors: 6x c5.xlarge\n", "fleet.on_demand: 6 instances, but at most 6 in total;"},
        {"name: a\nfleet: {on_demand: 2, on_demand_trains: 0, workers_min: 5}\n",
         "fleet.workers_min: at least 5 workers, but of 6 instances 2 only hold copies;"},
        {"name: a\nfleet: {from: 10m, to: 5m}\n", "job.yaml:2: fleet.to: must be after"},
        {"name: a\nfleet: {stages_min: 3, stages_max: 2}\n", "job.yaml:2: fleet.stages_min: must not be greater than"},
        {"name: a\nfleet: {sped: 3}\n", "did you mean \"speed\"?"},
        {"name: a\nengine: gtp\n", "job.yaml:2:9: engine: expected one of gpt, paced"},
        {"name: a\ncloud: gpc\n", "job.yaml:2:8: cloud: expected"},
        {"name: a\n\npolicy: tidemil\n", "job.yaml:3: policy: unknown policy \"tidemil\"; did you mean tidemill?"},
        {"name: a\nfleet: {limit: 6, pools: [{instance: a, count: 4}]}\n",
         "job.yaml:2: fleet.limit: 6, but fleet.pools says 4; leave fleet.limit out"},
        {"name: a\nfleet: {instance: b, pools: [{instance: a, count: 4}]}\n",
         "fleet.instance: b, but fleet.pools says a"},
        {"name: a\nfleet: {spot_price: 1, pools: [{instance: a, count: 4, price: 2}]}\n",
         "fleet.spot_price: 1, but fleet.pools says 2"},
        {"name: a\nfleet: {on_demand: 1, pools: [{instance: a, count: 4}]}\n",
         "fleet.on_demand: 1, but fleet.pools says 0"},
        {"name: a\nfleet: {pools: [{instance: a, count: 4, role: keeps copies}]}\n",
         "fleet.pools[1]: instances that keep copies must not be preempted; write market: on-demand"},
        {"name: a\nfleet: {pools: [{instance: a, count: 4, role: keeps copies, market: on-demand}]}\n",
         "fleet.pools: no pool trains"},
        {"name: a\nfleet: {pools: [{instance: a}]}\n", "job.yaml:2: fleet.pools[1].count: how many instances?"},
        {"name: a\nfleet: {pools: [{instance: a, limit: 4}, {instance: a}]}\n",
         "job.yaml:2: fleet.pools[2].limit: how many instances? write limit: 4"},
        {"name: a\nfleet: {pools: [{instance: a, limit: 4, count: 2}]}\n", "fleet.pools[1].count: limit says how many"},
        {"name: a\nfleet: {pools: [{instance: a, trace: hadp, market: on-demand}]}\n",
         "fleet.pools[1].trace: on-demand instances are not preempted"},
        {"name: a\nfleet: {trace: hadp, pools: [{instance: a, limit: 4}]}\n",
         "fleet.trace: pools have traces of their own"},
        {"name: a\nfleet: {pools: [{instance: a, limit: 4, infra: aws//b}]}\n",
         "job.yaml:2: fleet.pools[1].infra: expected cloud/region/zone, got \"aws//b\""},
        {"name: a\nfleet: {pools: [{instance: a, limit: 4, infra: aws/b/c/d}]}\n", "infra: expected cloud/region/zone"},
        {"name: a\nfleet: {pools: [{instance: a, limit: 4, infra: aws/b, region: c}]}\n",
         "fleet.pools[1].region: c, but infra says aws/b; leave region out"},
        {"name: a\nfleet: {pools: [{instance: a, count: 4, market: cheap}]}\n",
         "fleet.pools[1].market: expected one of spot, on-demand, got \"cheap\""},
        {"name: a\nfleet: {trace: hadp, losses: {mean_life: 1h}}\n",
         "job.yaml:2: fleet.losses and fleet.trace both say when instances are preempted"},
        {"name: a\nanchors: 1x c5.xlarge\nfleet: {pools: [{instance: a, count: 4}]}\n",
         "fleet.pools and anchors both say which instances keep copies"},
        {"name: a\nanchors: none\nfleet: {pools: [{instance: a, count: 4}, {instance: b, count: 1, market: on-demand, "
         "role: keeps copies}]}\n",
         "fleet.pools and anchors both say which instances keep copies; leave one out"},
        {"name: a\npolicy: ideal\n", "job.yaml:2: policy: \"ideal\" can be simulated but not run;"},
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

#define SPOT   "{instance: Standard_NC4as_T4_v3, cloud: azure, region: westus2, zone: westus2-1, count: 4, price: 0.33}"
#define ANCHOR "{instance: c5.xlarge, market: on-demand, role: keeps copies, count: 1, price: 0.17}"

/* What a plan has chosen: the older keys follow. */
static void pools_say_what_is_rented(void **state)
{
    static const struct {
        const char *fleet;
        int64_t limit, on_demand, trains, spot_price, on_demand_price, anchor_price;
        const char *local; /* why the local cloud cannot be it; NULL: it can */
    } rows[] = {
        {"pools: [" SPOT "]", 4, 0, 1, 330000, -1, -1, NULL},
        {"pools: [" SPOT ", " ANCHOR "]", 5, 1, 0, 330000, -1, 170000, NULL},
        {"on_demand_price: 0.53, pools: [" SPOT ", " ANCHOR "]", 5, 1, 0, 330000, 530000, 170000, NULL},
        {"spot_price: 0.25, pools: [{instance: a, count: 3}]", 3, 0, 1, 250000, -1, -1, NULL},
        {"spot_price: 1, pools: [{instance: a, count: 1}, {instance: a, count: 1, price: 2}]", 2, 0, 1, 1500000, -1, -1,
         NULL},
        {"limit: 5, spot_price: 0.33, instance: standard_nc4as_t4_v3, pools: [" SPOT ", " ANCHOR "]", 5, 1, 0, 330000,
         -1, 170000, NULL},
        {"pools: [" SPOT ", {instance: Standard_NC4as_T4_v3, market: on-demand, count: 2, price: 0.53}]", 6, 2, 1,
         330000, 530000, -1, NULL},
        {"pools: [{instance: a, count: 3}]", 3, 0, 1, -1, -1, -1, NULL},
        {"pools: [{instance: a, count: 3, price: 1}, {instance: a, zone: b, count: 1, price: 2}]", 4, 0, 1, 1250000, -1,
         -1, NULL},
        {"trace: hadp, pools: [{instance: a, count: 3, price: 1}, {instance: a, count: 1, price: 2}]", 4, 0, 1, 1250000,
         -1, -1, "the local cloud cannot emulate two prices of one instance type on one market (a, a)"},
        {"pools: [{instance: a, count: 3}, {instance: b, count: 1}]", 4, 0, 1, -1, -1, -1,
         "the local cloud cannot emulate two instance types that train (a, b)"},
        {"pools: [{instance: a, region: r, count: 3}, {instance: a, region: s, count: 1}]", 4, 0, 1, -1, -1, -1,
         "instances in two regions (r, s)"},
        {"pools: [{instance: a, count: 3, market: on-demand}, " ANCHOR "]", 4, 4, 1, -1, -1, 170000,
         "on-demand instances that train beside others that keep copies"},
        {"pools: [{instance: a, count: 257}]", 257, 0, 1, -1, -1, -1,
         "257 instances, but the local cloud has at most 256"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_run_settings s;
        struct tm_error e;
        char text[700];
        (void)snprintf(text, sizeof text, "name: a\nfleet: {%s}\n", rows[i].fleet);
        assert_row(settings_of(text, &s, &e) == 0, "row %zu: %s", i, e.text);
        const struct tm_job_fleet *fleet = &s.job.fleet;
        assert_row(fleet->limit == rows[i].limit && fleet->on_demand == rows[i].on_demand &&
                       fleet->on_demand_trains == rows[i].trains,
                   "row %zu: %d instances, %d on demand", i, (int)fleet->limit, (int)fleet->on_demand);
        assert_row(fleet->spot_usd_h_millionths == rows[i].spot_price &&
                       fleet->on_demand_usd_h_millionths == rows[i].on_demand_price &&
                       fleet->anchor_usd_h_millionths == rows[i].anchor_price,
                   "row %zu: prices %lld, %lld, %lld", i, (long long)fleet->spot_usd_h_millionths,
                   (long long)fleet->on_demand_usd_h_millionths, (long long)fleet->anchor_usd_h_millionths);
        int rc = tm_job_fleet_check_local(fleet, "job.yaml:2", &e);
        assert_row(rc == (rows[i].local != NULL ? -(int)TM_EINPUT : 0), "row %zu: %d", i, rc);
        if (rc != 0) assert_row(strstr(e.text, rows[i].local) != NULL, "row %zu: %s", i, e.text);
        tm_run_settings_deinit(&s);
    }
}

/* Without a trace preemptions are drawn, as often as the file says, and only of spot instances. */
static void a_trace_is_drawn(void **state)
{
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_run_settings s;
    struct tm_trace trace;
    struct tm_error e;
    (void)state;
    tm_trace_init(&trace);
    assert_int_equal(settings_of("name: a\nfleet: {pools: [" SPOT ", " ANCHOR "], losses: {mean_life: 6h}}\n", &s, &e),
                     0);
    assert_string_equal(s.job.fleet.trace, "");
    assert_true(s.job.fleet.losses.mean_life_ms == 6 * 3600000 && s.job.fleet.losses.bursts == 0.5);
    assert_row(tm_run_trace(env, &s, &trace, &e) == 0, "%s", e.text);
    assert_true(trace.instances_max == 4 && trace.event_count > 100);
    assert_string_equal(trace.instance, "Standard_NC4as_T4_v3");
    tm_run_settings_deinit(&s);
    assert_int_equal(settings_of("name: a\nfleet: {trace: hadp, pools: [" SPOT ", " ANCHOR "]}\n", &s, &e), 0);
    assert_row(tm_run_trace(env, &s, &trace, &e) == 0, "%s", e.text);
    assert_int_equal(trace.instances_max, 4); /* the anchor is none of the trace's */
    tm_run_settings_deinit(&s);
    assert_int_equal(settings_of("name: a\nfleet: {pools: [{instance: a, market: on-demand, count: 2}]}\n", &s, &e), 0);
    assert_row(tm_run_trace(env, &s, &trace, &e) == 0, "%s", e.text);
    assert_int_equal(trace.instances_max, 0);
    tm_run_settings_deinit(&s);
    assert_int_equal(settings_of("name: a\nfleet: {limit: 3, losses: {mean_life: 1h}}\n", &s, &e), 0);
    assert_row(tm_run_trace(env, &s, &trace, &e) == 0, "%s", e.text);
    assert_int_equal(trace.instances_max, 3);
    tm_run_settings_deinit(&s);
    tm_trace_deinit(&trace);
    tm_env_virtual_destroy(env);
}

static void comes_back(const char *job)
{
    struct tm_run_settings s;
    struct tm_run_settings back;
    struct tm_text text;
    struct tm_text again;
    struct tm_error e;
    assert_row(settings_of(job, &s, &e) == 0, "%s", e.text);
    s.number = 0x123456789ABCDEF0;
    s.chaos = 7;
    s.netns = true;
    s.link_bit_s = 1500000;
    s.listen = "[::]:7070";
    s.advertise = "here.example.org";
    tm_text_init(&text, 1 << 16);
    tm_text_init(&again, 1 << 16);
    tm_run_settings_print(&s, &text);
    tm_run_settings_init(&back); /* over a job file that says otherwise: it keeps what run.yaml does not say */
    static const char other[] = "name: b\nsteps: 7\npolicy: reactive\ndeadline: 1h\nbudget: 3\nmax_failures: 9\n"
                                "fleet: {memory: 9MB, hint: 1m, spot_price: 7}\n";
    assert_int_equal(tm_job_parse("job.yaml", other, strlen(other), &back.job, &e), 0);
    assert_row(tm_run_settings__parse("run.yaml", tm_text_string(&text), text.length, &back, &e) == 0, "%s", e.text);
    tm_run_settings_print(&back, &again);
    assert_string_equal(tm_text_string(&text), tm_text_string(&again));
    assert_true(back.number == s.number && tm_run_restarts_all(&back) && back.chaos == 7 && back.link_bit_s == 1500000);
    assert_true(back.job.steps == 7 && back.job.deadline_ms == 0 && back.job.budget_usd_millionths == 0);
    assert_int_equal(back.job.fleet.from_ms, s.job.fleet.from_ms);
    assert_true(back.job.fleet.pools.count == s.job.fleet.pools.count && back.job.fleet.limit == s.job.fleet.limit);
    assert_int_equal(tm_run_settings__parse("run.yaml", "name: a\n", 8, &back, &e), -(int)TM_EINPUT);
    tm_text_deinit(&text);
    tm_text_deinit(&again);
    tm_run_settings_deinit(&s);
    tm_run_settings_deinit(&back);
}

static void tls_where_it_leaves_the_machine(void **state)
{
    (void)state;
    static const struct {
        struct tm_run_settings settings;
        bool tls;
    } rows[] = {
        {{.listen = NULL}, false},
        {{.tls = true}, true},
        {{.netns = true}, true},
        {{.listen = "127.0.0.1"}, false},
        {{.listen = "[::1]:7070"}, false},
        {{.listen = "::1"}, false},
        {{.listen = "0.0.0.0"}, true},
        {{.listen = "10.0.0.5:7070"}, true},
        {{.listen = "2001:db8::5"}, true},
        {{.listen = "127.0.0.1", .advertise = "here.example.org"}, true},
        {{.advertise = "localhost:7070"}, false},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(tm_run_settings_tls(&rows[i].settings) == rows[i].tls, "row %zu", i);
    static const struct {
        const char *listen, *advertise, *words; /* NULL: fine */
    } checked[] = {{"0.0.0.0", "10.0.0.5", NULL},
                   {"::", "[2001:db8::5]:7070", NULL},
                   {"::1:x", NULL, "--listen: address \"[::1:x]:0\": \"::1:x\" is no IPv6 address"},
                   {"", NULL, "--listen: address \":0\": expected HOST:PORT"},
                   {NULL, "0.0.0.0", "--advertise: 0.0.0.0 stands for every address of this machine"}};
    for (size_t i = 0; i < TM_COUNT(checked); i++) {
        struct tm_run_settings s;
        struct tm_error e = {0};
        assert_int_equal(settings_of("name: a\n", &s, &e), 0);
        s.listen = checked[i].listen;
        s.advertise = checked[i].advertise;
        int rc = tm_run_settings_check(&s, &(struct tm_run_places){.file = "a"}, &e);
        assert_row((rc == 0) == (checked[i].words == NULL), "row %zu: %s", i, e.text);
        if (rc != 0) assert_error_has(e, checked[i].words);
        tm_run_settings_deinit(&s);
    }
}

static void come_back_from_the_file(void **state)
{
    (void)state;
    comes_back("name: a\npolicy: checkpoint\nfleet: {memory: 5MB, stages_min: 2, speed: 0.5, from: 90s, to: 3m, "
               "spot_price: 0.25, hint: 5m, instance: p3.2xlarge}\n");
    comes_back("name: a\npolicy: checkpoint\nfleet: {pools: [" SPOT ", " ANCHOR "], losses: {mean_life: 90m, bursts: "
               "0.1, burst_size: 0.3}}\n");
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
        s.job.fleet.trace = hours[i];
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
        s.job.fleet.scaled = 0; /* as many as there were do not fit */
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
    TM_FAIL_EACH_ALLOC({
        struct tm_run_settings s;
        rc = settings_of("name: a\nfleet: {pools: [" SPOT ", " ANCHOR "]}\n", &s, NULL);
        tm_run_settings_deinit(&s);
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_and_what_is_said), cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(come_back_from_the_file),   cmocka_unit_test(tls_where_it_leaves_the_machine),
        cmocka_unit_test(pools_say_what_is_rented),  cmocka_unit_test(a_trace_is_drawn),
        cmocka_unit_test(a_trace_is_scaled),         cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
