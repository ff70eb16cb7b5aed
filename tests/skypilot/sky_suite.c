/* The common suite of clouds on SkyPilot: PYTHONPATH has a stand-in for its SDK (tests/skypilot/fake), whose clusters
 * are processes. Use: sky-suite PROGRAM FOLDER [walk]: what runs in a cluster in place of tidemill, and a folder for
 * files; `walk`: nothing but drivers that die. */
#include "cloud/test/suite_parts.h"

#include "cloud/sky_cloud.h"

#include <stdio.h>
#include <stdlib.h>

static const char *program;
static const char *folder;
static char task[1000];

/* The number that the stand-in prints. */
static int ask(const char *words)
{
    return suite_ask("python3 -m sky %s", words);
}

static struct tm_cloud *open_sky(void *context, bool again, uint64_t id_first)
{
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    (void)context;
    (void)again;
    struct tm_sky_options options = {.task = task,
                                     .folder = folder,
                                     .program = program,
                                     .state = "/the/suite",
                                     .dir = folder,
                                     .limit = {3, 1},
                                     .poll_ms = 500,
                                     .id_first = id_first,
                                     .ticket = suite_ticket};
    assert_row(tm_sky_cloud_create(suite_env(), &options, &cloud, &e) == 0, "%s", e.text);
    return cloud;
}

static void lose_cluster(void *context, const struct tm_cloud_instance *instance)
{
    char words[100];
    (void)context;
    (void)snprintf(words, sizeof words, "preempt %" PRIu64, instance->id);
    assert_int_equal(ask(words), 0);
}

static int alive(void *context)
{
    (void)context;
    return ask("alive");
}

static void put_file(const char *name, bool there)
{
    char path[1000];
    (void)snprintf(path, sizeof path, "%s/%s", getenv("FAKE_SKY"), name);
    FILE *file = there ? fopen(path, "w") : NULL;
    if (file != NULL) (void)fclose(file);
    if (!there) assert_int_equal(remove(path), 0);
}

/* No capacity for what is launched from now on. */
static void fill(void *context, bool full)
{
    (void)context;
    put_file("full", full);
}

/* By their launches. */
static int same(void *context)
{
    (void)context;
    return ask("same");
}

static void test_suite(void **state)
{
    (void)state;
    struct cloud_place place = {
        /* no notice: SkyPilot announces nothing, the cloud does to the VM, where its agent reads it */
        .limit = 3, .open = open_sky, .lose = lose_cluster, .alive = alive, .full = fill, .same = same};
    cloud_suite(&place);
    assert_int_equal(ask("left"), 0);
}

static void test_walk(void **state)
{
    (void)state;
    suite_walk(&(struct cloud_place){.limit = 3, .open = open_sky, .lose = lose_cluster, .alive = alive});
    assert_int_equal(ask("left"), 0);
}

/* A launch that SkyPilot refuses at once, and one that finds no capacity: told, tried again, and in the end there. */
static void test_refused(void **state)
{
    (void)state;
    static const char *const faults[] = {"refuse", "full"};
    for (size_t i = 0; i < 2; i++) {
        struct tm_cloud *cloud = open_sky(NULL, false, 1);
        put_file(faults[i], true);
        assert_int_equal(cloud->want(cloud, TM_CLOUD_ON_DEMAND, 1, NULL), 0);
        assert_int_equal(suite_await(cloud, TM_CLOUD_LOST).instance, 1);
        if (i == 0) assert_int_equal(suite_await(cloud, TM_CLOUD_REFUSED).count, 1);
        put_file(faults[i], false);
        assert_true(suite_await(cloud, TM_CLOUD_ARRIVED).pool == TM_CLOUD_ON_DEMAND);
        assert_int_equal(cloud->destroy(cloud, NULL), 0);
        assert_int_equal(ask("left"), 0);
    }
}

static void await_held(struct tm_cloud *cloud, bool held)
{
    struct tm_cloud_event event;
    for (int i = 0; i < SUITE_STEPS && (ask("held") > 0) != held; i++)
        if (cloud != NULL) (void)cloud->next(cloud, SUITE_LONG_MS / SUITE_STEPS, &event, NULL);
    assert_true((ask("held") > 0) == held);
}

/* A driver that dies while a launch is under way: what calls SkyPilot for it ends, too, and launches nothing later,
 * when another driver has looked already. */
static void test_orphan(void **state)
{
    (void)state;
    int status = 0;
    put_file("hold", true);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct tm_cloud *dying = open_sky(NULL, false, 1);
        suite_want(dying, 1);
        await_held(dying, true);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    await_held(NULL, false);
    put_file("hold", false);
    assert_int_equal(ask("left"), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_suite), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_orphan)};
    const struct CMUnitTest walk[] = {cmocka_unit_test(test_walk), cmocka_unit_test(test_orphan)};
    if (argc != 3 && argc != 4) return 2;
    program = argv[1];
    folder = argv[2];
    (void)snprintf(task, sizeof task, "%s/task.yaml", folder);
    return argc == 3 ? cmocka_run_group_tests(tests, NULL, NULL) : cmocka_run_group_tests(walk, NULL, NULL);
}
