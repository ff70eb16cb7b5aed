/* The common suite of clouds on Kubernetes: KUBECONFIG is that of tests/kubernetes/fake_api.py, which runs a program
 * named tidemill as the pod (here: one that sleeps). Use: kube-suite CONTROL [walk], the script that orders the
 * stand-in; `walk`: nothing but a driver that dies at some points. */
#include "cloud/test/suite_parts.h"
#include "cloud/test/suite_web.h"

#include "base/arena.h"
#include "cloud/kube_cloud.h"

#include <stdio.h>
#include <stdlib.h>

static const char *control; /* a script: control WORDS... prints what the stand-in has */
static struct tm_arena arena;

/* The number that the control prints. */
static int ask(const char *words)
{
    return suite_ask("%s %s", control, words);
}

/* `context`: of the kubeconfig; NULL: the current one. */
static struct tm_cloud *open_kube(void *context, bool again, uint64_t id_first)
{
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    (void)again;
    struct tm_kube_options options = {.pod = {.app = "suite", .image = "any", .grace_s = 5, .gpus = 1},
                                      .context = context,
                                      .folder = "/the/suite",
                                      .limit = {3, 0},
                                      .price_usd_h = {1, 3},
                                      .poll_ms = 500,
                                      .id_first = id_first,
                                      .arena = &arena,
                                      .ticket = suite_ticket};
    assert_row(tm_kube_cloud_create(suite_env(), &options, &cloud, &e) == 0, "%s", e.text);
    return cloud;
}

static void lose_pod(void *context, const struct tm_cloud_instance *instance)
{
    char words[100];
    (void)context;
    (void)snprintf(words, sizeof words, "kill %" PRIu64, instance->id);
    assert_true(ask(words) >= 0);
}

/* An eviction: it has its grace period, and does not end before. */
static void evict(void *context, const struct tm_cloud_instance *instance)
{
    char words[100];
    (void)context;
    (void)snprintf(words, sizeof words, "evict %" PRIu64, instance->id);
    assert_int_equal(ask("stay"), 0);
    assert_int_equal(ask(words), 0);
}

/* No node but the one that is taken. */
static void fill(void *context, bool full)
{
    (void)context;
    assert_true(ask(full ? "nodes 1" : "nodes 6") >= 0);
}

static int alive(void *context)
{
    (void)context;
    return ask("alive");
}

/* By their uids. */
static int same(void *context)
{
    (void)context;
    return ask("same");
}

static void test_suite(void **state)
{
    (void)state;
    struct cloud_place place = {
        .limit = 3, .open = open_kube, .lose = lose_pod, .alive = alive, .notice = evict, .full = fill, .same = same};
    cloud_suite(&place);
    assert_int_equal(ask("go"), 0);
    assert_int_equal(ask("left"), 0); /* neither pods nor Secrets */
}

static void test_walk(void **state)
{
    (void)state;
    suite_walk(&(struct cloud_place){.limit = 3, .open = open_kube, .lose = lose_pod, .alive = alive});
    assert_int_equal(ask("left"), 0);
}

/* An eviction is a notice, with the grace period as the time left; then a loss that was announced. */
static void test_eviction(void **state)
{
    (void)state;
    struct tm_cloud *cloud = open_kube(NULL, false, 1);
    char words[100];
    suite_want(cloud, 1);
    uint64_t id = suite_await(cloud, TM_CLOUD_ARRIVED).instance;
    (void)snprintf(words, sizeof words, "evict %" PRIu64, id);
    assert_int_equal(ask("stay"), 0); /* pods do not end with SIGTERM */
    assert_int_equal(ask(words), 0);
    struct tm_cloud_event notice = suite_await(cloud, TM_CLOUD_NOTICE);
    assert_true(notice.instance == id && notice.left_ms <= 5000);
    (void)suite_await(cloud, TM_CLOUD_ARRIVED); /* another one, before it has gone */
    struct tm_cloud_event lost = suite_await(cloud, TM_CLOUD_LOST);
    assert_true(lost.instance == id && lost.announced);
    assert_int_equal(ask("go"), 0);
    assert_int_equal(cloud->destroy(cloud, NULL), 0);
    assert_int_equal(ask("left"), 0);
}

/* No node: told as capacity that is not there; when there is one, it comes. */
static void test_no_node(void **state)
{
    (void)state;
    assert_true(ask("nodes 1") >= 0);
    struct tm_cloud *cloud = open_kube(NULL, false, 1);
    suite_want(cloud, 3);
    (void)suite_await(cloud, TM_CLOUD_ARRIVED);
    struct tm_cloud_event refused = suite_await(cloud, TM_CLOUD_REFUSED);
    assert_true(refused.count >= 1);
    assert_true(ask("nodes 6") >= 0);
    (void)suite_await(cloud, TM_CLOUD_ARRIVED);
    (void)suite_await(cloud, TM_CLOUD_ARRIVED);
    assert_int_equal(cloud->destroy(cloud, NULL), 0);
    assert_int_equal(ask("left"), 0);
}

/* A server that is busy, fails, or answers nobody: what it did is found, nothing is made twice, nothing is left. */
static void test_bad_server(void **state)
{
    (void)state;
    static const char *const faults[] = {"fail 429 2 POST pods",  "fail 503 9 POST pods", "fail 500 9 POST secrets",
                                         "fail 0 9 POST pods",    "fail 410 1 GET pods",  "fail 403 1 POST pods",
                                         "fail 500 5 DELETE pods"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct tm_cloud *cloud = open_kube(NULL, false, 1);
        assert_int_equal(ask(faults[i]), 0);
        suite_want(cloud, 2);
        while (suite_here(cloud) < 2) {
            struct tm_cloud_event event;
            (void)cloud->next(cloud, 100, &event, NULL);
        }
        suite_await_alive(&(struct cloud_place){.alive = alive}, cloud, 2);
        assert_row(cloud->destroy(cloud, NULL) == 0, "%s", faults[i]);
        assert_int_equal(ask("clear"), 0);
        assert_row(ask("left") == 0, "%s", faults[i]);
    }
}

static void await_plugins(struct tm_cloud *cloud, int count)
{
    struct tm_cloud_event event;
    for (int i = 0; i < SUITE_STEPS && ask("plugins") < count; i++)
        (void)cloud->next(cloud, SUITE_LONG_MS / SUITE_STEPS, &event, NULL);
    assert_int_equal(ask("plugins"), count);
}

/* A credential plugin that takes its time keeps nobody: with a token that ends soon the calls go on meanwhile, without
 * one they wait, and the loop does not. A token that is refused is asked for anew, and the call made again. */
static void test_plugin(void **state)
{
    (void)state;
    static char context[] = "plugin";
    struct tm_cloud_event event;
    int before = ask("plugins");
    assert_int_equal(ask("life 3600"), 0);
    assert_int_equal(ask("wrong"), 0);
    struct tm_cloud *cloud = open_kube(context, false, 1);
    assert_int_equal(ask("plugins"), before + 2);
    assert_int_equal(cloud->destroy(cloud, NULL), 0);
    assert_int_equal(ask("life 50"), 0);
    cloud = open_kube(context, false, 1);
    assert_int_equal(ask("hold"), 0);
    suite_want(cloud, 1);
    (void)suite_await(cloud, TM_CLOUD_ARRIVED);
    await_plugins(cloud, before + 4); /* one that was asked before the token ends, and has not answered */
    suite_want(cloud, 2);
    (void)suite_await(cloud, TM_CLOUD_ARRIVED);
    assert_int_equal(ask("plugins"), before + 4);
    assert_int_equal(ask("life 0"), 0);
    assert_int_equal(ask("unhold"), 0);
    assert_int_equal(cloud->destroy(cloud, NULL), 0);
    assert_int_equal(ask("left"), 0);
    cloud = open_kube(context, false, 1);
    before = ask("plugins");
    assert_int_equal(ask("hold"), 0);
    suite_want(cloud, 2);
    await_plugins(cloud, before + 1);
    for (int i = 0; i < 20; i++) /* a call waits: the loop does not */
        assert_int_equal(cloud->next(cloud, 0, &event, NULL), -(int)TM_ETIMEOUT);
    assert_int_equal(ask("alive"), 0);
    assert_int_equal(ask("plugins"), before + 1);
    assert_int_equal(ask("life 3600"), 0);
    assert_int_equal(ask("unhold"), 0);
    (void)suite_await(cloud, TM_CLOUD_ARRIVED);
    (void)suite_await(cloud, TM_CLOUD_ARRIVED);
    assert_int_equal(ask("plugins"), before + 1);
    assert_int_equal(cloud->destroy(cloud, NULL), 0);
    assert_int_equal(ask("left"), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suite),      cmocka_unit_test(test_eviction), cmocka_unit_test(test_no_node),
        cmocka_unit_test(test_bad_server), cmocka_unit_test(test_plugin),
    };
    const struct CMUnitTest walk[] = {cmocka_unit_test(test_walk)};
    if (argc != 2 && argc != 3) return 2;
    control = argv[1];
    tm_arena_init(&arena, 16 << 20);
    int rc = argc == 2 ? cmocka_run_group_tests(tests, NULL, NULL) : cmocka_run_group_tests(walk, NULL, NULL);
    tm_arena_deinit(&arena);
    return rc;
}
