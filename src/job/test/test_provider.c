/* The table of providers: every name has its row, and what a run on one settles. */
#include "base/address.h"
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "job/provider.h"
#include "job/provider_vms.h"

#include <stdio.h>
#include <string.h>

static void test_rows(void **state)
{
    (void)state;
    size_t count = 0;
    for (; tm_job_cloud_names[count] != NULL; count++) {
        struct tm_job job = {.cloud = (int)count};
        const struct tm_provider *provider = tm_provider__at(count);
        assert_row(provider != NULL && strcmp(provider->name, tm_job_cloud_names[count]) == 0, "%s",
                   tm_job_cloud_names[count]);
        assert_row(provider->open != NULL && (provider->host != NULL || provider->joins) &&
                       provider->instances_max > 0 && provider->about[0] != '\0',
                   "%s", provider->name);
        assert_ptr_equal(tm_provider_of(&job), provider);
    }
    assert_null(tm_provider__at(count));
}

/* A file's `cloud`, and one that nobody knows. */
static void test_names(void **state)
{
    (void)state;
    static const char known[] = "cloud: local\n";
    static const char unknown[] = "name: a\ncloud: locla\n";
    struct tm_job job;
    struct tm_error e = {0};
    tm_job_init(&job);
    assert_int_equal(tm_job_parse("a.yaml", known, strlen(known), &job, &e), 0);
    assert_string_equal(tm_provider_of(&job)->name, "local");
    tm_job_deinit(&job);
    tm_job_init(&job);
    assert_int_equal(tm_job_parse("a.yaml", unknown, strlen(unknown), &job, &e), -(int)TM_EINPUT);
    assert_error_has(e, "a.yaml:2:8: cloud");
    assert_error_has(e, "local");
    tm_job_deinit(&job);
}

/* More than a cloud has is refused by name; on the local one a trace's speed stays. */
static void test_settle(void **state)
{
    (void)state;
    struct tm_run_settings settings;
    struct tm_error e = {0};
    tm_run_settings_init(&settings);
    settings.job.fleet.speed = 60;
    settings.job.fleet.limit = 6;
    assert_int_equal(tm_provider_settle(tm_env_real(), &settings, "a.yaml", &e), 0);
    assert_true(settings.job.fleet.speed == 60);
    assert_false(settings.no_losses);
    settings.job.fleet.limit = tm_provider_of(&settings.job)->instances_max + 1;
    assert_int_equal(tm_provider_settle(tm_env_real(), &settings, "a.yaml", &e), -(int)TM_EINPUT);
    assert_error_has(e, "a.yaml: fleet.limit: 257 instances, but cloud local has at most 256");
    settings.job.fleet.limit = 6;
    assert_int_equal(tm_provider_check(&settings, "a.yaml", &e), 0);
    tm_run_settings_deinit(&settings);
}

/* Who rents, where variables do not say it. */
static void test_owner(void **state)
{
    (void)state;
    static const char status[] = "Name:\ttidemill\nUid:\t1000\t1000\t1000\t1000\nGid:\t1\n";
    static const char passwd[] =
        "root:x:0:0:root:/root:/bin/sh\n10:x:100:1::/:/bin/sh\nanna:x:1000:1::/home/anna:/bin/sh\n";
    struct tm_env *env = tm_env_virtual_create(1);
    char owner[TM_PROVIDER_OWNER_MAX];
    tm_provider_vms_owner(env, owner);
    assert_string_equal(owner, "not known");
    assert_int_equal(env->file_write(env, "/proc/self/status", status, sizeof status - 1, NULL), 0);
    tm_provider_vms_owner(env, owner);
    assert_string_equal(owner, "uid 1000");
    assert_int_equal(env->file_write(env, "/etc/passwd", passwd, sizeof passwd - 1, NULL), 0);
    assert_int_equal(tm_env_virtual_set_variable(env, "USER", ""), 0);
    tm_provider_vms_owner(env, owner);
    assert_string_equal(owner, "anna");
    assert_int_equal(tm_env_virtual_set_variable(env, "USER", "bert"), 0);
    tm_provider_vms_owner(env, owner);
    assert_string_equal(owner, "bert");
    tm_env_virtual_destroy(env);
}

static int read_hosts_job(const char *text, bool given, int cloud, struct tm_job *job, struct tm_error *e)
{
    tm_job_init(job);
    assert_int_equal(tm_job_parse("a.yaml", text, strlen(text), job, e), 0);
    if (given) job->cloud = cloud;
    return tm_provider_heed_hosts(job, given, e);
}

/* Whoever lists hosts means them: they are not passed over on another cloud. */
static void test_hosts_mean_a_cloud(void **state)
{
    (void)state;
    static const char *const alone[] = {"hosts: [gpu1, user@gpu2:2222 gpus=4]\n", "fleet: {hosts: [gpu1, gpu2]}\n",
                                        "cloud: hosts\nhosts: [gpu1, gpu2]\n"};
    struct tm_job job;
    struct tm_error e = {0};
    for (size_t i = 0; i < TM_COUNT(alone); i++) {
        assert_row(read_hosts_job(alone[i], false, 0, &job, &e) == 0, "%s: %s", alone[i], e.text);
        assert_row(strcmp(tm_provider_of(&job)->name, "hosts") == 0, "%s", alone[i]);
        assert_row(job.fleet.hosts.count == 2, "%s", alone[i]);
        tm_job_deinit(&job);
    }
    assert_int_equal(read_hosts_job("name: a\n", false, 0, &job, &e), 0);
    assert_string_equal(tm_provider_of(&job)->name, "local");
    tm_job_deinit(&job);
    assert_int_equal(read_hosts_job("cloud: slurm\nhosts: [a]\n", false, 0, &job, &e), -(int)TM_EUSAGE);
    assert_error_has(e, "the cloud is slurm; say cloud hosts");
    tm_job_deinit(&job);
    assert_int_equal(read_hosts_job("hosts: [a]\n", true, 0, &job, &e), -(int)TM_EUSAGE); /* --cloud local */
    tm_job_deinit(&job);
}

/* A partition without a word of Slurm is not a type of instance. */
static void test_partitions_mean_slurm(void **state)
{
    (void)state;
    static const char text[] = "fleet: {pools: [{partition: spot, limit: 4}]}\n";
    struct tm_run_settings settings;
    struct tm_error e = {0};
    tm_run_settings_init(&settings);
    assert_int_equal(tm_job_parse("a.yaml", text, strlen(text), &settings.job, &e), 0);
    assert_int_equal(tm_provider_settle(tm_env_real(), &settings, "a.yaml", &e), -(int)TM_EINPUT);
    assert_error_has(e, "a.yaml: fleet.pools: partition is Slurm's, but the cloud is local; write cloud: slurm");
    tm_run_settings_deinit(&settings);
}

/* An instance is one node: sbatch cannot say otherwise. */
static void test_options_of_sbatch(void **state)
{
    (void)state;
    static const char *const wrong[] = {"--nodes=2", "-N2", "--gpus=1 --array 1-4", "--requeue", "-N 2"};
    for (size_t i = 0; i < TM_COUNT(wrong) + 1; i++) {
        struct tm_run_settings settings;
        struct tm_error e = {0};
        char text[200];
        const char *said = i < TM_COUNT(wrong) ? wrong[i] : "--nodelist=a --account=b";
        (void)snprintf(text, sizeof text, "cloud: slurm\nfleet: {pools: [{partition: spot, limit: 4, sbatch: %s}]}\n",
                       said);
        tm_run_settings_init(&settings);
        assert_row(tm_job_parse("a.yaml", text, strlen(text), &settings.job, &e) == 0, "%s", e.text);
        settings.advertise = "a";
        int rc = tm_provider_settle(tm_env_real(), &settings, "a.yaml", &e);
        assert_row(i == TM_COUNT(wrong) ? rc == 0 : rc == -(int)TM_EINPUT, "%s: %s", said, e.text);
        if (rc != 0) assert_error_has(e, "a.yaml: fleet.pools[1].sbatch: leave -");
        tm_run_settings_deinit(&settings);
    }
}

static bool is_reached(const char *address)
{
    struct tm_env *env = tm_env_real();
    int handle = -1;
    bool reached =
        env->net_connect(env, address, &handle, NULL) == 0 && env->net_wait_send(env, handle, 10000, NULL) == 0;
    if (handle >= 0) env->net_close(env, handle);
    return reached;
}

/* Machines come by either family, where this one has both. */
static void test_listens_on_both_families(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    char address[TM_ADDRESS_MAX];
    char bound[TM_ADDRESS_MAX];
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    int handle = -1;
    struct tm_error e = {0};
    const char *any = tm_provider_any_host(env);
    tm_address_join(any, "0", address);
    assert_row(env->net_listen(env, address, &handle, bound, &e) == 0, "%s", e.text);
    assert_int_equal(tm_address_split(bound, host, port, &e), 0);
    assert_true(tm_host_is_any(host));
    tm_address_join("127.0.0.1", port, address);
    assert_true(is_reached(address));
    int six = -1;
    bool has_six = env->net_listen(env, "[::1]:0", &six, bound, NULL) == 0;
    if (has_six) env->net_close(env, six);
    tm_address_join("::1", port, address);
    assert_true(!has_six || is_reached(address));
    env->net_close(env, handle);
}

/* A machine that reaches EC2 by one address. */
static const char *route_own; /* NULL: it does not */

static const char *route_variable(struct tm_env *env, const char *name)
{
    (void)env;
    return strcmp(name, "AWS_REGION") == 0 ? "us-west-2" : NULL;
}

static int route_connect(struct tm_env *env, const char *address, int *out_handle, struct tm_error *e)
{
    (void)env;
    assert_string_equal(address, "ec2.us-west-2.amazonaws.com:443");
    if (route_own == NULL) return tm_error_set(e, TM_EPEER, "no route");
    *out_handle = 99;
    return 0;
}

static int route_wait(struct tm_env *env, int handle, int64_t timeout_ms, struct tm_error *e)
{
    (void)env;
    (void)timeout_ms;
    (void)e;
    assert_int_equal(handle, 99);
    return 0;
}

static int route_address(struct tm_env *env, int handle, char out[TM_ADDRESS_MAX], struct tm_error *e)
{
    (void)env;
    (void)handle;
    (void)e;
    (void)snprintf(out, TM_ADDRESS_MAX, "%s", route_own);
    return 0;
}

static void route_close(struct tm_env *env, int handle)
{
    (void)env;
    assert_int_equal(handle, 99);
}

/* Where VMs reach this machine: as somebody says; else by the address that it has on its way to the cloud, which must
 * be one that others reach. */
static void test_own_address_for_vms(void **state)
{
    (void)state;
    static const char text[] = "cloud: aws\ncopies: s3://tide/one\nfleet: {instance: g5.xlarge, limit: 2}\n";
    static const struct {
        const char *listen, *advertise, *want; /* want NULL: refused; "": nothing is told */
        const char *own;                       /* what the route to the cloud says */
    } rows[] = {{NULL, NULL, "203.0.113.7", "203.0.113.7:4711"},
                {"0.0.0.0:7000", NULL, "10.1.2.3", "10.1.2.3:4711"},
                {"[::]:7000", NULL, "2001:db8::7", "[2001:db8::7]:4711"},
                {NULL, NULL, NULL, "127.0.0.1:4711"},
                {NULL, "198.51.100.1", "198.51.100.1", "203.0.113.7:4711"},
                {"198.51.100.1:7000", NULL, "", "203.0.113.7:4711"},
                {NULL, NULL, NULL, NULL}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_run_settings settings;
        struct tm_error e = {.text = ""};
        struct tm_env env = *tm_env_real();
        route_own = rows[i].own;
        env.variable = route_variable;
        env.net_connect = route_connect;
        env.net_wait_send = route_wait;
        env.net_own_address = route_address;
        env.net_close = route_close;
        tm_run_settings_init(&settings);
        assert_int_equal(tm_job_parse("a.yaml", text, strlen(text), &settings.job, &e), 0);
        settings.listen = rows[i].listen;
        settings.advertise = rows[i].advertise;
        int rc = tm_provider_settle(&env, &settings, "a.yaml", &e);
        assert_row(rc == (rows[i].want == NULL ? -(int)TM_EUSAGE : 0), "row %zu: %s", i, e.text);
        if (rc != 0) assert_error_has(e, "where do VMs reach this machine? give --advertise ADDRESS");
        const char *got = settings.advertise != NULL ? settings.advertise : "";
        if (rc == 0) assert_row(strcmp(got, rows[i].want) == 0, "row %zu: %s", i, got);
        tm_run_settings_deinit(&settings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_settle),
        cmocka_unit_test(test_owner),
        cmocka_unit_test(test_hosts_mean_a_cloud),
        cmocka_unit_test(test_partitions_mean_slurm),
        cmocka_unit_test(test_listens_on_both_families),
        cmocka_unit_test(test_options_of_sbatch),
        cmocka_unit_test(test_own_address_for_vms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
