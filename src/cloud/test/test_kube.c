/* Kubernetes without a cluster: kubeconfig files, pods as they are written, lists as they are read. */
#include "base/doc.h"
#include "base/test/harness.h"
#include "cloud/kube_cloud.h"
#include "cloud/kube_config.h"

#include <string.h>

/* ---- kubeconfig ---- */

#define HEAD                                                                                                           \
    "apiVersion: v1\nkind: Config\ncurrent-context: here\ncontexts:\n"                                                 \
    "- {name: here, context: {cluster: c, user: u, namespace: ml}}\n"                                                  \
    "- {name: other, context: {cluster: d, user: v}}\n"
#define CLUSTERS                                                                                                       \
    "clusters:\n- {name: c, cluster: {server: 'https://10.0.0.1:6443/', certificate-authority-data: aGVsbG8=}}\n"      \
    "- {name: d, cluster: {server: 'https://[::1]:6443', insecure-skip-tls-verify: true}}\n"

static int read_config(const char *text, const char *context, struct tm_arena *arena, struct tm_kube_config *out,
                       struct tm_error *e)
{
    return tm_kube_config__read(tm_env_real(), "config", text, strlen(text), "/folder", context, arena, out, e);
}

static void test_config(void **state)
{
    (void)state;
    struct tm_arena arena;
    struct tm_kube_config config;
    struct tm_error e = {.text = ""};
    static const char text[] =
        HEAD CLUSTERS "users:\n- {name: u, user: {token: abc}}\n"
                      "- {name: v, user: {exec: {command: aws, args: [eks, get-token], env: "
                      "[{name: A, value: b}], apiVersion: client.authentication.k8s.io/v1beta1}}}\n";
    tm_arena_init(&arena, 1 << 20);
    assert_row(read_config(text, NULL, &arena, &config, &e) == 0, "%s", e.text);
    assert_string_equal(config.server, "https://10.0.0.1:6443");
    assert_string_equal(config.space, "ml");
    assert_string_equal(config.token, "abc");
    assert_string_equal(config.tls.authority, "hello");
    assert_false(config.tls.unchecked);
    assert_null(config.command[0]);
    assert_row(read_config(text, "other", &arena, &config, &e) == 0, "%s", e.text);
    assert_true(config.tls.unchecked && config.tls.authority == NULL && config.space == NULL && config.token == NULL);
    assert_string_equal(config.command[0], "aws");
    assert_string_equal(config.command[2], "get-token");
    assert_string_equal(config.variables[0], "A=b");
    assert_true(strstr(config.variables[1], "client.authentication.k8s.io/v1beta1") != NULL);
    tm_arena_deinit(&arena);
}

static void test_config_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {"- a\n", "expected a kubeconfig"},
        {"kind: Config\n", "there is no context that is current"},
        {"current-context: gone\n", "there is no context gone"},
        {HEAD, "its cluster is missing"},
        {HEAD "clusters: [{name: c, cluster: {server: 'ftp://x'}}]\n", "server: expected https://HOST:PORT"},
        {HEAD "clusters: [{name: c, cluster: {server: 'http://10.0.0.1:8080'}}]\n", "plain http"},
        {HEAD "clusters: [{name: c, cluster: {server: 'http://localhost.example/'}}]\n", "plain http"},
        {HEAD "clusters: [{name: c, cluster: {server: 'https://x', tls-server-name: y}}]\n", "not supported"},
        {HEAD "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority-data: '*'}}]\n",
         "certificate-authority-data: expected base64"},
        {HEAD "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority: gone.pem}}]\n", "gone.pem"},
        {HEAD CLUSTERS "users: [{name: u, user: {client-certificate-data: aGVsbG8=}}]\n", "go together"},
        {HEAD CLUSTERS "users: [{name: u, user: {username: a, password: b}}]\n", "only token"},
        {HEAD CLUSTERS "users: [{name: u, user: {exec: {args: [a]}}}]\n", "exec: command: missing"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_arena arena;
        struct tm_kube_config config;
        struct tm_error e = {.text = ""};
        tm_arena_init(&arena, 1 << 20);
        assert_row(read_config(rows[i].text, NULL, &arena, &config, &e) < 0, "row %zu", i);
        assert_row(strstr(e.text, rows[i].says) != NULL, "row %zu: %s", i, e.text);
        tm_arena_deinit(&arena);
    }
}

static void test_config_memory(void **state)
{
    (void)state;
    static const char text[] =
        HEAD CLUSTERS "users: [{name: u, user: {exec: {command: ./p, env: [{name: A, value: b}]}}}]\n";
    struct tm_error e = {.text = ""};
    TM_FAIL_EACH_ALLOC({
        struct tm_arena arena;
        struct tm_kube_config config;
        tm_arena_init(&arena, 1 << 20);
        rc = read_config(text, NULL, &arena, &config, &e);
        tm_arena_deinit(&arena);
    });
}

static void test_credential(void **state)
{
    (void)state;
    struct tm_arena arena;
    struct tm_kube_config config = {.token_ends_ms = INT64_MAX};
    struct tm_error e = {.text = ""};
    static const char good[] = "{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t1\",\"expirationTimestamp\":"
                               "\"2026-01-02T03:04:05Z\"}}";
    static const char bad[] = "{\"kind\":\"ExecCredential\",\"status\":{}}";
    tm_arena_init(&arena, 1 << 20);
    assert_int_equal(tm_kube_config__take_credential(&config, good, strlen(good), &arena, &e), 0);
    assert_string_equal(config.token, "t1");
    assert_true(config.token_ends_ms == 1767323045000);
    assert_int_equal(tm_kube_config__take_credential(&config, bad, strlen(bad), &arena, &e), -(int)TM_EINPUT);
    tm_arena_deinit(&arena);
}

/* When a plugin is asked: before its token ends, and first of all where there is none. */
static void test_plugin(void **state)
{
    (void)state;
    struct tm_kube_config config = {.token_ends_ms = INT64_MAX};
    const char *words[TM_KUBE_WORDS_MAX + 5];
    assert_int_equal(tm_kube_config__need(&config, 0), TM_KUBE_TOKEN_GOOD); /* there is nobody to ask */
    config.command[0] = "aws";
    config.command[1] = "get-token";
    assert_int_equal(tm_kube_config__need(&config, 0), TM_KUBE_TOKEN_NEEDED);
    config.token = "t";
    assert_int_equal(tm_kube_config__need(&config, INT64_MAX - 1), TM_KUBE_TOKEN_GOOD);
    config.token_ends_ms = 100000;
    assert_int_equal(tm_kube_config__need(&config, 39999), TM_KUBE_TOKEN_GOOD);
    assert_int_equal(tm_kube_config__need(&config, 40000), TM_KUBE_TOKEN_AGES);
    assert_int_equal(tm_kube_config__need(&config, 99999), TM_KUBE_TOKEN_AGES);
    assert_int_equal(tm_kube_config__need(&config, 100000), TM_KUBE_TOKEN_NEEDED);
    tm_kube_config__put_plugin(&config, words);
    assert_string_equal(words[0], "/bin/sh");
    assert_string_equal(words[4], "aws");
    assert_string_equal(words[5], "get-token");
    assert_null(words[6]);
}

/* ---- pods ---- */

static const struct tm_kube_pod a_pod = {.name = "tm-1",
                                         .app = "job",
                                         .folder = "tm-abc",
                                         .instance = 7,
                                         .image = "image",
                                         .secret = "s",
                                         .secret_key = "ticket",
                                         .spot = TM_KUBE_SPOT_GKE,
                                         .market = TM_INSTANCE_SPOT,
                                         .gpus = 2,
                                         .cpu = "4",
                                         .grace_s = 25};

static const char *text_at(const json_t *root, const char *a, const char *b, const char *c)
{
    const json_t *at = json_object_get(json_object_get(root, a), b);
    return json_string_value(c != NULL ? json_object_get(at, c) : at);
}

static void test_pod(void **state)
{
    (void)state;
    static const char *const selector[] = {"a.b/c=d", "nothing"};
    struct tm_text text;
    struct tm_jsonout json;
    struct tm_error e = {.text = ""};
    json_t *root = NULL;
    for (int market = 0; market < 2; market++) {
        struct tm_kube_pod pod = a_pod;
        pod.market = (enum tm_instance_kind)market;
        pod.selector = selector;
        pod.selector_count = 2;
        pod.zone = "use2-az3";
        tm_text_init(&text, 1 << 16);
        tm_jsonout_init_line(&json, &text);
        tm_kube_pod_write(&pod, &json);
        assert_row(tm_json_load("pod", tm_text_string(&text), text.length, &root, &e) == 0, "%s", e.text);
        assert_string_equal(text_at(root, "metadata", "name", NULL), "tm-1");
        assert_string_equal(text_at(root, "metadata", "labels", "tidemill.io/instance"), "7");
        assert_string_equal(text_at(root, "metadata", "labels", "tidemill.io/folder"), "tm-abc");
        assert_string_equal(text_at(root, "spec", "nodeSelector", "a.b/c"), "d");
        assert_string_equal(text_at(root, "spec", "nodeSelector", "topology.k8s.aws/zone-id"), "use2-az3");
        const char *spot = text_at(root, "spec", "nodeSelector", "cloud.google.com/gke-spot");
        assert_true(market == TM_INSTANCE_SPOT ? spot != NULL && strcmp(spot, "true") == 0 : spot == NULL);
        assert_true(strstr(tm_text_string(&text), "\"nvidia.com/gpu\": \"2\"") != NULL);
        assert_true(strstr(tm_text_string(&text), "\"terminationGracePeriodSeconds\": 25") != NULL);
        json_decref(root);
        tm_text_deinit(&text);
    }
}

/* What is sent to take a pod over: its number and its ticket, and nothing else of it. */
static void test_patches(void **state)
{
    (void)state;
    struct tm_text text;
    struct tm_jsonout json;
    tm_text_init(&text, 1 << 16);
    tm_jsonout_init_line(&json, &text);
    tm_kube_pod__write_patch(12, &json);
    assert_string_equal(tm_text_string(&text), "{\"metadata\": {\"labels\": {\"tidemill.io/instance\": \"12\"}}}\n");
    tm_text_clear(&text);
    tm_jsonout_init_line(&json, &text);
    tm_kube_secret__write_patch("ticket", "tmt1_a", &json);
    assert_string_equal(tm_text_string(&text), "{\"stringData\": {\"ticket\": \"tmt1_a\"}}\n");
    tm_text_deinit(&text);
}

static void test_list(void **state)
{
    (void)state;
    static const struct {
        const char *pod;
        enum tm_remote_phase phase;
        int status;
        bool refused;
        int64_t left_ms;
        const char *words;
    } rows[] = {
        {"{\"metadata\":{\"name\":\"a\"},\"status\":{\"phase\":\"Pending\"}}", TM_REMOTE_PENDING, -1, false, 0, ""},
        {"{\"metadata\":{\"name\":\"a\"},\"status\":{\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\","
         "\"status\":\"False\",\"reason\":\"Unschedulable\",\"message\":\"0/3 nodes\"}]}}",
         TM_REMOTE_PENDING, -1, true, 0, "no node for it now: 0/3 nodes"},
        {"{\"metadata\":{\"name\":\"a\"},\"status\":{\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{"
         "\"waiting\":{\"reason\":\"ImagePullBackOff\",\"message\":\"no such\\nimage\"}}}]}}",
         TM_REMOTE_PENDING, -1, false, 0, "ImagePullBackOff: no such image"},
        {"{\"metadata\":{\"name\":\"a\"},\"status\":{\"phase\":\"Pending\",\"containerStatuses\":[{\"state\":{"
         "\"waiting\":{\"reason\":\"ContainerCreating\"}}}]}}",
         TM_REMOTE_PENDING, -1, false, 0, ""},
        {"{\"metadata\":{\"name\":\"a\"},\"status\":{\"phase\":\"Running\"}}", TM_REMOTE_RUNNING, -1, false, 0, ""},
        {"{\"metadata\":{\"name\":\"a\",\"deletionTimestamp\":\"2026-01-02T03:04:25Z\"},\"spec\":{"
         "\"terminationGracePeriodSeconds\":30},\"status\":{\"phase\":\"Running\"}}",
         TM_REMOTE_LEAVING, -1, false, 20000, ""},
        {"{\"metadata\":{\"name\":\"a\"},\"spec\":{\"terminationGracePeriodSeconds\":15},\"status\":{\"phase\":"
         "\"Running\",\"conditions\":[{\"type\":\"DisruptionTarget\",\"status\":\"True\"}]}}",
         TM_REMOTE_LEAVING, -1, false, 15000, ""},
        {"{\"metadata\":{\"name\":\"a\"},\"status\":{\"phase\":\"Succeeded\"}}", TM_REMOTE_ENDED, 0, false, 0, ""},
        {"{\"metadata\":{\"name\":\"a\"},\"status\":{\"phase\":\"Failed\",\"containerStatuses\":[{\"state\":{"
         "\"terminated\":{\"exitCode\":137}}}]}}",
         TM_REMOTE_ENDED, 137, false, 0, ""},
        {"{\"metadata\":{\"name\":\"a\"},\"status\":{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"disk\"}"
         "}",
         TM_REMOTE_ENDED, -1, false, 0, "Evicted: disk"},
        {"{\"metadata\":{\"name\":\"a\"},\"status\":{\"phase\":\"Unknown\"}}", TM_REMOTE_ENDED, -1, false, 0, ""},
    };
    struct tm_remote_row *list = NULL;
    size_t capacity = 0;
    struct tm_error e = {.text = ""};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[2000];
        size_t count = 0;
        int length = snprintf(text, sizeof text, "{\"items\":[{\"metadata\":{\"name\":\"A B\"}},%s,7]}", rows[i].pod);
        int rc = tm_kube_pods__read(text, (size_t)length, 1767323045000, &list, &capacity, &count, &e);
        assert_row(rc == 0 && count == 1, "row %zu: %s", i, e.text);
        assert_row(list[0].phase == rows[i].phase && list[0].status == rows[i].status &&
                       list[0].refused == rows[i].refused && list[0].left_ms == rows[i].left_ms,
                   "row %zu: %d %d %d", i, (int)list[0].phase, list[0].status, (int)list[0].left_ms);
        assert_row(strcmp(list[0].words, rows[i].words) == 0, "row %zu: %s", i, list[0].words);
    }
    size_t count = 9;
    assert_int_equal(tm_kube_pods__read("{}", 2, 0, &list, &capacity, &count, &e), -(int)TM_EINPUT);
    assert_int_equal(tm_kube_pods__read("{\"items\":null}", 14, 0, &list, &capacity, &count, &e), 0);
    assert_int_equal(count, 0);
    tm_free(list);
    char words[TM_REMOTE_WORDS_MAX];
    static const char status[] = "{\"kind\":\"Status\",\"message\":\"exceeded\\nquota\"}";
    tm_kube_status__read(status, strlen(status), words);
    assert_string_equal(words, "exceeded quota");
    tm_kube_status__read("<html>", 6, words);
    assert_string_equal(words, "");
}

static void test_list_memory(void **state)
{
    (void)state;
    static const char text[] = "{\"items\":[{\"metadata\":{\"name\":\"a\"}},{\"metadata\":{\"name\":\"b\"}}]}";
    struct tm_error e = {.text = ""};
    TM_FAIL_EACH_ALLOC({
        struct tm_remote_row *list = NULL;
        size_t capacity = 0;
        size_t count = 0;
        rc = tm_kube_pods__read(text, strlen(text), 0, &list, &capacity, &count, &e);
        tm_free(list);
    });
}

TM_TEST_MAIN(TM_TEST(test_config), TM_TEST(test_config_wrong), TM_TEST(test_config_memory), TM_TEST(test_credential),
             TM_TEST(test_plugin), TM_TEST(test_pod), TM_TEST(test_patches), TM_TEST(test_list),
             TM_TEST(test_list_memory))
