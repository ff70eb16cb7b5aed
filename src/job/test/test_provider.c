/* The table of providers: every name has its row, and what a run on one settles. */
#include "base/test/harness.h"
#include "job/provider.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_settle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
