/* Manifests of copy sets: none is lost to a disk that is full for a while, nothing goes before what replaces it is
 * there, and all are found again. */
#include "run/set_manifests.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "run/coordinator.h"
#include "run/decide.h"

#include <stdio.h>
#include <string.h>

static struct tm_env *env;
static struct tm_copy_store *store;
static struct tm_set_manifests m;

static int setup(void **state)
{
    (void)state;
    env = tm_env_virtual_create(1);
    assert_int_equal(tm_copy_store_open(env, "copies", 0, &store, NULL), 0);
    tm_set_manifests_init(&m, store);
    return env == NULL;
}

static int teardown(void **state)
{
    (void)state;
    tm_set_manifests_deinit(&m);
    store->close(store);
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
    (void)store->newest(store, &set, NULL);
    return set;
}

static int list(void *context, const struct tm_sealed_set *set, struct tm_error *e)
{
    char *all = context;
    (void)e;
    size_t used = strlen(all);
    (void)snprintf(all + used, 256 - used, "%s ", set->where + strlen("copies/set-"));
    return 0;
}

static void test_put_and_drop(void **state)
{
    (void)state;
    put_layers(1);
    assert_int_equal(tm_set_manifests_put(&m, 1, "one", 3, NULL), 0);
    put_layers(2);
    assert_int_equal(tm_set_manifests_put(&m, 2, "two", 3, NULL), 0);
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
        assert_int_equal(tm_set_manifests_put(&m, set, "old", 3, NULL), 0);
        put_layers(set + 1);
        tm_env_virtual_fail_write_at(env, failing);
        assert_int_equal(tm_set_manifests_put(&m, set + 1, "new", 3, NULL), 0);
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
    assert_int_equal(tm_set_manifests_put(&m, 1, "one", 3, NULL), 0);
    tm_env_virtual_fail_write_at(env, 1);
    assert_int_equal(tm_set_manifests_put(&m, 2, "two", 3, NULL), 0);
    tm_set_manifests_drop(&m, 2);
    assert_true(tm_set_manifests_retry(&m));
    assert_int_equal(newest(), 1);
    assert_false(is_there(2));
}

/* What was under way when a coordinator died goes once the next has named a set of its own, and not before; a set that
 * is whole stays, also where a newer one's manifest was stored first and its own never; and what is newer stays. */
static void test_left_behind(void **state)
{
    (void)state;
    put_layers(3);
    put_layers(5);
    put_layers(70);
    assert_true(tm_set_manifests_retry(&m));
    assert_true(layers_there(3)); /* nothing was named so far: somebody may name it */
    put_layers(68);
    tm_env_virtual_fail_write_at(env, 1);
    assert_int_equal(tm_set_manifests_put(&m, 68, "whole", 5, NULL), 0);
    assert_true(layers_there(3));
    put_layers(69);
    assert_int_equal(tm_set_manifests_put(&m, 69, "newer", 5, NULL), 0);
    assert_false(layers_there(3) || layers_there(5));
    assert_true(!is_there(68) && layers_there(68));
    assert_true(layers_there(69) && layers_there(70));
    put_layers(66); /* late */
    assert_int_equal(tm_set_manifests_put(&m, 71, "next", 4, NULL), 0);
    tm_set_manifests_drop(&m, 68);
    assert_false(layers_there(66) || layers_there(68) || layers_there(70));
}

/* However high the numbers are, and though the newest's name was not written. */
static void test_found_again(void **state)
{
    (void)state;
    char all[256] = "";
    assert_int_equal(store->list(store, list, all, NULL), 0);
    assert_string_equal(all, "");
    assert_int_equal(tm_set_manifests_put(&m, 3, "a", 1, NULL), 0);
    assert_int_equal(env->file_remove(env, "copies/newest", NULL), 0);
    assert_int_equal(store->list(store, list, all, NULL), 0);
    assert_string_equal(all, "3.manifest ");
    assert_int_equal(tm_set_manifests_put(&m, 1000000, "b", 1, NULL), 0);
    assert_int_equal(tm_set_manifests_put(&m, 1000007, "c", 1, NULL), 0);
    tm_env_virtual_fail_write_at(env, 2);
    assert_int_equal(tm_set_manifests_put(&m, 1000009, "d", 1, NULL), 0);
    all[0] = '\0';
    assert_int_equal(store->list(store, list, all, NULL), 0);
    assert_string_equal(all, "1000009.manifest 1000007.manifest 1000000.manifest 3.manifest ");
}

static void test_no_folder(void **state)
{
    (void)state;
    m.store = NULL;
    assert_int_equal(tm_set_manifests_put(&m, 1, "a", 1, NULL), 0);
    tm_set_manifests_drop(&m, 1);
    assert_true(tm_set_manifests_retry(&m));
    assert_int_equal(tm_set_manifests_load(&m, NULL, NULL), 0);
}

/* ---- a coordinator starts ---- */

static Tmw__CopyPart part;
static Tmw__CopyPart *parts[] = {&part};
static Tmw__CopySet whole;

static Tmw__RecordEvent set_event(uint64_t set, uint64_t holder)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    tmw__copy_part__init(&part);
    tmw__copy_set__init(&whole);
    part.set = set;
    part.step = whole.step = 10 * set;
    part.holder = holder;
    whole.set = set;
    whole.parts = parts;
    whole.n_parts = 1;
    event.body_case = TMW__RECORD_EVENT__BODY_SET_WHOLE;
    event.set_whole = &whole;
    return event;
}

static void saw(uint64_t set, uint64_t holder)
{
    Tmw__RecordEvent event = set_event(set, holder);
    assert_int_equal(tm_set_manifests_saw(&m, &event, NULL), 0);
}

/* The newest set in files, unless it was given up; one that only peers hold has no manifest. */
static void test_mended(void **state)
{
    (void)state;
    saw(1, 0);
    saw(2, 0);
    saw(3, 7);
    assert_int_equal(tm_set_manifests_mend(&m, NULL), 0);
    assert_true(is_there(2) && !is_there(1) && !is_there(3));
    assert_int_equal(newest(), 2);
    Tmw__RecordEvent bad = TMW__RECORD_EVENT__INIT;
    bad.body_case = TMW__RECORD_EVENT__BODY_SET_BAD;
    bad.set_bad = 4;
    saw(4, 0);
    assert_int_equal(tm_set_manifests_saw(&m, &bad, NULL), 0);
    assert_int_equal(tm_set_manifests_mend(&m, NULL), 0);
    assert_false(is_there(4));
}

/* The record knows a whole set of which there is no manifest: it stays. */
static void test_left_and_known(void **state)
{
    (void)state;
    for (uint64_t set = 1; set <= 6; set++)
        put_layers(set);
    saw(2, 0);
    saw(4, 0);
    assert_int_equal(tm_set_manifests_mend(&m, NULL), 0);
    assert_true(layers_there(1)); /* a start waits for no more than it must */
    assert_true(tm_set_manifests_retry(&m));
    assert_false(layers_there(1) || layers_there(3));
    assert_true(layers_there(2) && layers_there(4) && layers_there(5) && layers_there(6));
}

static struct tm_coordinator *rebuilder(void)
{
    struct tm_coordinator_options options = {.job = 1, .token = "token", .layers = 1, .steps = 100, .micro_batches = 1};
    struct tm_use_all rule = {.stages = 1};
    struct tm_decider decider = tm_decider_use_all(&rule);
    return tm_coordinator_create(&options, &decider);
}

static int cannot_read(struct tm_env *any, const char *path, struct tm_text *out, struct tm_error *e)
{
    (void)any;
    (void)out;
    return tm_error_set(e, TM_EIO, "%s: Input/output error", path);
}

/* A damaged manifest is passed over; a folder that cannot be read is not an empty one. */
static void test_loaded(void **state)
{
    (void)state;
    struct tm_error e;
    struct tm_coordinator *c = rebuilder();
    assert_non_null(c);
    saw(2, 0);
    assert_int_equal(tm_set_manifests_mend(&m, NULL), 0);
    assert_int_equal(tm_set_manifests_put(&m, 3, "no event", 8, NULL), 0);
    assert_int_equal(tm_set_manifests_load(&m, c, &e), 0);
    assert_int_equal(tm_coordinator_look(c).durable_step, 20);
    struct tm_env whole_env = *env;
    env->file_read = cannot_read;
    assert_int_equal(tm_set_manifests_load(&m, c, &e), -(int)TM_EIO);
    assert_non_null(strstr(e.text, "copies/newest: Input/output error"));
    *env = whole_env;
    tm_coordinator_destroy(c);
}

static int start(void)
{
    Tmw__RecordEvent event = set_event(2, 0);
    struct tm_coordinator *c = rebuilder();
    int rc = c == NULL ? -(int)TM_ENOMEM : tm_set_manifests_saw(&m, &event, NULL);
    if (rc == 0) rc = tm_set_manifests_mend(&m, NULL);
    if (rc == 0) rc = tm_set_manifests_load(&m, c, NULL);
    tm_coordinator_destroy(c);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    assert_int_equal(start(), 0);
    tm_set_manifests_deinit(&m);
    TM_FAIL_EACH_ALLOC({
        tm_set_manifests_init(&m, store);
        rc = start();
        tm_set_manifests_deinit(&m);
    });
    tm_set_manifests_init(&m, store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_put_and_drop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disk_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_given_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_found_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mended, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left_and_known, setup, teardown),
        cmocka_unit_test_setup_teardown(test_loaded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
