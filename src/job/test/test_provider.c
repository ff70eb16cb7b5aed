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
    tm_provider_vms__owner(env, owner);
    assert_string_equal(owner, "not known");
    assert_int_equal(env->file_write(env, "/proc/self/status", status, sizeof status - 1, NULL), 0);
    tm_provider_vms__owner(env, owner);
    assert_string_equal(owner, "uid 1000");
    assert_int_equal(env->file_write(env, "/etc/passwd", passwd, sizeof passwd - 1, NULL), 0);
    assert_int_equal(tm_env_virtual_set_variable(env, "USER", ""), 0);
    tm_provider_vms__owner(env, owner);
    assert_string_equal(owner, "anna");
    assert_int_equal(tm_env_virtual_set_variable(env, "USER", "bert"), 0);
    tm_provider_vms__owner(env, owner);
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
    const char *any = tm_provider__any_host(env);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
