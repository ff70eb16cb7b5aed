/* Manifests of copy sets: none is lost to a disk that is full for a while, nothing goes before what replaces it is
 * there, and all are found again. */
#include "run/set_manifests.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "store/copy_file.h"

#include <stdio.h>
#include <string.h>

static struct tm_env *env;
static struct tm_set_manifests m;

static int setup(void **state)
{
    (void)state;
    env = tm_env_virtual_create(1);
    tm_set_manifests_init(&m, env, "copies", 3);
    return env == NULL;
}

static int teardown(void **state)
{
    (void)state;
    tm_set_manifests_deinit(&m);
    tm_env_virtual_destroy(env);
    return 0;
}

static bool is_there(uint64_t set)
{
    char path[64];
    (void)snprintf(path, sizeof path, "copies/set-%llu.manifest", (unsigned long long)set);
    return env->file_exists(env, path);
}

static void put_layers(uint64_t set)
{
    for (uint32_t l = 0; l < 3; l++) {
        char path[64];
        (void)snprintf(path, sizeof path, "copies/set-%llu/layer-%u.tmcopy", (unsigned long long)set, l);
        assert_int_equal(env->file_write(env, path, "x", 1, NULL), 0);
    }
}

static bool layers_there(uint64_t set)
{
    char path[64];
    (void)snprintf(path, sizeof path, "copies/set-%llu/layer-2.tmcopy", (unsigned long long)set);
    return env->file_exists(env, path);
}

static uint64_t newest(void)
{
    uint64_t set = 0;
    (void)tm_copy_newest_set(env, "copies", &set, NULL);
    return set;
}

static int list(void *context, const char *path, struct tm_error *e)
{
    char *all = context;
    (void)e;
    size_t used = strlen(all);
    (void)snprintf(all + used, 256 - used, "%s ", path + strlen("copies/set-"));
    return 0;
}

static void test_put_and_drop(void **state)
{
    (void)state;
    put_layers(1);
    tm_set_manifests_put(&m, 1, "one", 3);
    put_layers(2);
    tm_set_manifests_put(&m, 2, "two", 3);
    assert_true(is_there(1) && is_there(2));
    assert_int_equal(newest(), 2);
    tm_set_manifests_drop(&m, 1);
    assert_false(is_there(1) || layers_there(1));
    assert_true(is_there(2) && layers_there(2));
}

/* The disk is full when a set becomes whole: the one before it stays until the manifest is there. */
static void test_disk_full(void **state)
{
    (void)state;
    for (long failing = 1; failing <= 2; failing++) { /* the manifest, or the name of the newest */
        uint64_t set = (uint64_t)failing * 10;
        put_layers(set);
        tm_set_manifests_put(&m, set, "old", 3);
        put_layers(set + 1);
        tm_env_virtual_fail_write_at(env, failing);
        tm_set_manifests_put(&m, set + 1, "new", 3);
        assert_int_equal(newest(), set);
        tm_set_manifests_drop(&m, set);
        assert_true(is_there(set) && layers_there(set));
        tm_env_virtual_fail_write_at(env, failing);
        assert_false(tm_set_manifests_retry(&m)); /* still full */
        assert_true(is_there(set) && layers_there(set));
        assert_true(tm_set_manifests_retry(&m));
        assert_int_equal(newest(), set + 1);
        assert_true(is_there(set + 1));
        assert_false(is_there(set) || layers_there(set));
        assert_true(tm_set_manifests_retry(&m));
    }
}

/* A set that waits and is given up holds nothing up. */
static void test_given_up(void **state)
{
    (void)state;
    put_layers(1);
    tm_set_manifests_put(&m, 1, "one", 3);
    tm_env_virtual_fail_write_at(env, 1);
    tm_set_manifests_put(&m, 2, "two", 3);
    tm_set_manifests_drop(&m, 2);
    assert_true(tm_set_manifests_retry(&m));
    assert_int_equal(newest(), 1);
    assert_false(is_there(2));
}

/* However high the numbers are, and though the newest's name was not written. */
static void test_found_again(void **state)
{
    (void)state;
    char all[256] = "";
    assert_int_equal(tm_set_manifests_each(&m, list, all, NULL), 0);
    assert_string_equal(all, "");
    tm_set_manifests_put(&m, 3, "a", 1);
    assert_int_equal(env->file_remove(env, "copies/newest", NULL), 0);
    assert_int_equal(tm_set_manifests_each(&m, list, all, NULL), 0);
    assert_string_equal(all, "3.manifest ");
    tm_set_manifests_put(&m, 1000000, "b", 1);
    tm_set_manifests_put(&m, 1000007, "c", 1);
    tm_env_virtual_fail_write_at(env, 2);
    tm_set_manifests_put(&m, 1000009, "d", 1);
    all[0] = '\0';
    assert_int_equal(tm_set_manifests_each(&m, list, all, NULL), 0);
    assert_string_equal(all, "1000009.manifest 1000007.manifest 1000000.manifest ");
}

static void test_no_folder(void **state)
{
    (void)state;
    m.folder = NULL;
    tm_set_manifests_put(&m, 1, "a", 1);
    tm_set_manifests_drop(&m, 1);
    assert_true(tm_set_manifests_retry(&m));
    assert_int_equal(tm_set_manifests_each(&m, list, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_put_and_drop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disk_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_given_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_found_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_folder, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
