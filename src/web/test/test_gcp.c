/* Google's credentials, in the order of its own tools; tokens; what a refusal says. tests/gcp/run has the whole way,
 * against a fake that checks tokens and signatures with Google's own library. */
#include "base/test/script_server.h"
#include "base/test/tempdir.h"
#include "web/gcp.h"
#include "web/gcp_account.h"

#include <stdlib.h>

static const char *const names[] = {"GOOGLE_APPLICATION_CREDENTIALS",
                                    "GOOGLE_CLOUD_PROJECT",
                                    "CLOUDSDK_CORE_PROJECT",
                                    "CLOUDSDK_CONFIG",
                                    "CLOUDSDK_ACTIVE_CONFIG_NAME",
                                    "GCE_METADATA_HOST",
                                    "STORAGE_EMULATOR_HOST",
                                    "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE",
                                    "CLOUDSDK_API_ENDPOINT_OVERRIDES_IAMCREDENTIALS",
                                    "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE"};

static void forget(void)
{
    for (size_t i = 0; i < TM_COUNT(names); i++)
        (void)unsetenv(names[i]);
}

#define USER(more)                                                                                                     \
    "{\"type\": \"authorized_user\", \"client_id\": \"c\", \"client_secret\": \"hush/hush\", \"refresh_token\": "      \
    "\"1//r\"" more "}"

#define FEDERATED(source)                                                                                              \
    "{\"type\": \"external_account\", \"audience\": \"//iam/x\", \"subject_token_type\": \"jwt\", \"token_url\": "     \
    "\"https://sts/v1/token\", \"credential_source\": {" source "}}"
#define IMPERSONATED(source, url, delegates)                                                                           \
    "{\"type\": \"impersonated_service_account\", \"service_account_impersonation_url\": \"" url                       \
    "\", \"delegates\": " delegates ", \"source_credentials\": " source "}"

static void test_files(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words; /* NULL: it is good */
        const char *project;
    } rows[] = {
        {USER(""), NULL, ""},
        {USER(", \"quota_project_id\": \"q\""), NULL, "q"},
        {USER(", \"project_id\": \"p\", \"quota_project_id\": \"q\""), NULL, "p"},
        {USER(", \"token_uri\": \"ftp://x\""), "token_uri: an address is written as https://HOST/PATH", NULL},
        {"{\"type\": \"authorized_user\", \"client_id\": \"hush\"}", "refresh_token is missing; run `gcloud auth",
         NULL},
        {"{\"type\": \"service_account\", \"client_email\": \"a@b\"}", "private_key: not an RSA key in PEM", NULL},
        {"{\"type\": \"service_account\", \"private_key\": \"hush\"}", "private_key: not an RSA key in PEM", NULL},
        {"{\"type\": \"gdch_service_account\", \"x\": \"hush\"}", "type \"gdch_service_account\" are not supported",
         NULL},
        {"{\"type\": \"external_account\", \"x\": \"hush\"}", "audience, subject_token_type or token_url is missing",
         NULL},
        {FEDERATED("\"file\": \"/t\""), NULL, ""},
        {FEDERATED("\"url\": \"http://t/x\", \"headers\": {\"A\": \"hush\"}"), NULL, ""},
        {FEDERATED("\"url\": \"http://t/x\", \"headers\": {\"A\": \"hush\\nB: c\"}"),
         "headers: expected names and texts", NULL},
        {FEDERATED("\"url\": \"ftp://t/x\""), "this kind is not supported; have the provider's token in a file", NULL},
        {FEDERATED("\"environment_id\": \"aws1\", \"url\": \"http://t\""), "AWS's signatures are not supported", NULL},
        {FEDERATED("\"executable\": {\"command\": \"hush\"}"), "a program that is run is not supported", NULL},
        {FEDERATED("\"file\": \"/t\", \"format\": {\"type\": \"json\"}"), "json with its subject_token_field_name",
         NULL},
        {FEDERATED("\"file\": \"/t\", \"format\": {\"type\": \"xml\"}"), "format: expected type text, or json", NULL},
        {IMPERSONATED(USER(""), "https://i/v1/projects/-/serviceAccounts/a@b:generateAccessToken", "[]"), NULL, ""},
        {IMPERSONATED(USER(""), "https://i/v1/projects/-/serviceAccounts/a@b:generateAccessToken", "[\"d\", \"e\"]"),
         NULL, ""},
        {IMPERSONATED(USER(""), "https://i/v1/projects/-/serviceAccounts/a@b:generateAccessToken", "[\"d\", 3]"),
         "delegates: expected a list", NULL},
        {IMPERSONATED(USER(""), "https://i/v1/projects/-/serviceAccounts/a@b:hush", "[]"),
         "service_account_impersonation_url: expected https", NULL},
        {IMPERSONATED("{\"type\": \"x\"}", "https://i/v1/projects/-/serviceAccounts/a@b:generateAccessToken", "[]"),
         "source_credentials: f: credentials of type", NULL},
        {IMPERSONATED(IMPERSONATED(USER(""), "https://i", "[]"), "https://i", "[]"),
         "name those in between as delegates", NULL},
        {"hush", "f: not JSON", NULL},
        {"", "f: not JSON", NULL}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_gcp__account account;
        struct tm_error e = {.text = ""};
        int rc = tm_gcp__read_account("f", rows[i].text, strlen(rows[i].text), &account, &e);
        assert_row((rc == 0) == (rows[i].words == NULL), "row %zu: %s", i, e.text);
        if (rc == 0) {
            assert_row_string("project", account.project, rows[i].project);
            tm_gcp__account_deinit(&account);
            continue;
        }
        assert_int_equal(rc, -(int)TM_EINPUT);
        assert_error_has(e, rows[i].words);
        assert_null(strstr(e.text, "hush"));
    }
}

/* The provider's token, in what a file or a URL holds. */
static void test_subjects(void **state)
{
    (void)state;
    static const struct {
        const char *field, *text;
        const char *token; /* NULL: refused */
    } rows[] = {{"", "word\n", "word"},
                {"", " \n", NULL},
                {"", "", NULL},
                {"", "hush\r\nX: y", NULL},
                {"value", "{\"value\": \"word\"}", "word"},
                {"value", "{\"other\": \"hush\"}", NULL},
                {"value", "{\"value\": \"hush\\nX\"}", NULL},
                {"value", "hush", NULL}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_gcp__federation federation = {.file = "/t"};
        struct tm_error e = {.text = ""};
        char token[TM_GCP_SUBJECT_MAX] = "";
        (void)snprintf(federation.field, sizeof federation.field, "%s", rows[i].field);
        int rc = tm_gcp__read_subject(&federation, rows[i].text, strlen(rows[i].text), token, &e);
        assert_row((rc == 0) == (rows[i].token != NULL), "row %zu: %s", i, e.text);
        if (rc == 0) assert_row_string("token", token, rows[i].token);
        if (rc != 0) assert_true(strstr(e.text, "/t") != NULL && strstr(e.text, "hush") == NULL);
    }
    const struct tm_gcp__federation federation = {.file = "/t"};
    char token[TM_GCP_SUBJECT_MAX] = "";
    assert_int_equal(tm_gcp__read_subject(&federation, "\0word", 5, token, NULL), -(int)TM_EINPUT);
}

static void test_configuration(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *project; /* NULL: none */
    } rows[] = {{"[core]\nproject = tide\n", "tide"},
                {"[compute]\nproject = other\n[core]\naccount = me\r\nproject=tide", "tide"},
                {"[core]\nprojects = x\n", NULL},
                {"[compute]\nproject = other\n", NULL},
                {"project = other\n", NULL},
                {"[core]\nproject =\n", NULL},
                {"", NULL}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char project[128] = "";
        bool found = tm_gcp__read_configuration(rows[i].text, project);
        assert_row(found == (rows[i].project != NULL), "row %zu", i);
        if (found) assert_row_string("project", project, rows[i].project);
    }
}

static void write_file(const struct tm_tempdir *dir, const char *name, const char *text)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%.200s/%s", dir->path, name);
    assert_int_equal(tm_env_real()->file_write(tm_env_real(), path, text, strlen(text), NULL), 0);
}

/* gcloud's configuration is the one that it was told to use. */
static void test_active_configuration(void **state)
{
    (void)state;
    static const struct {
        const char *active;   /* the file; NULL: there is none */
        const char *variable; /* NULL: not set */
        const char *project;
    } rows[] = {{NULL, NULL, "tide-default"},
                {"work\n", NULL, "tide-work"},
                {"work", "home", "tide-home"},
                {"", NULL, "tide-default"},
                {"../x\n", NULL, "tide-default"}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_tempdir dir;
        struct tm_gcp *gcp = NULL;
        struct tm_error e = {.text = ""};
        const char *project = NULL;
        forget();
        tm_tempdir_make(&dir);
        (void)setenv("CLOUDSDK_CONFIG", dir.path, 1);
        if (rows[i].variable != NULL) (void)setenv("CLOUDSDK_ACTIVE_CONFIG_NAME", rows[i].variable, 1);
        write_file(&dir, "application_default_credentials.json", USER(""));
        write_file(&dir, "configurations/config_default", "[core]\nproject = tide-default\n");
        write_file(&dir, "configurations/config_work", "[core]\nproject = tide-work\n");
        write_file(&dir, "configurations/config_home", "[core]\nproject = tide-home\n");
        if (rows[i].active != NULL) write_file(&dir, "active_config", rows[i].active);
        assert_row(tm_gcp_create(tm_env_real(), &gcp, &e) == 0, "row %zu: %s", i, e.text);
        assert_row(tm_gcp_project(gcp, &project, &e) == 0, "row %zu: %s", i, e.text);
        assert_row_string("project", project, rows[i].project);
        tm_gcp_destroy(gcp);
        tm_tempdir_remove(&dir);
    }
    forget();
}

static void test_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t seconds; /* 0: refused */
    } rows[] = {{"{\"access_token\": \"t\", \"expires_in\": 3599, \"token_type\": \"Bearer\"}", 3599},
                {"{\"access_token\": \"t\", \"expires_in\": 0}", 0},
                {"{\"access_token\": \"t\\r\\nX: y\", \"expires_in\": 3599}", 0},
                {"{\"access_token\": 3, \"expires_in\": 3599}", 0},
                {"{\"error\": \"hush\"}", 0},
                {"[]", 0}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char token[TM_GCP_TOKEN_MAX];
        int64_t seconds = 0;
        struct tm_error e = {.text = ""};
        int rc = tm_gcp__read_token(rows[i].text, strlen(rows[i].text), token, &seconds, &e);
        assert_row((rc == 0) == (rows[i].seconds > 0) && seconds == rows[i].seconds, "row %zu", i);
        assert_null(strstr(e.text, "hush"));
    }
}

#define BODY(status, body) "HTTP/1.1 " status " x\r\nMetadata-Flavor: Google\r\nConnection: close\r\n\r\n" body

static void ask_once(struct tm_gcp *gcp, int wanted_status)
{
    struct tm_web *web = NULL;
    struct tm_web_answer answer;
    struct tm_gcp_request request = {.gcp = gcp,
                                     .service = TM_GCP_COMPUTE,
                                     .method = "GET",
                                     .path = "/projects/p",
                                     .deadline_ms = 20000,
                                     .tries_max = 3};
    request.query[request.query_count++] = (struct tm_web_pair){"filter", "labels.a=b c"};
    assert_int_equal(tm_web_create(tm_env_real(), &web, NULL), 0);
    assert_int_equal(tm_gcp_ask(web, &request, &answer, NULL), 0);
    assert_int_equal(answer.status, wanted_status);
    tm_web_answer_deinit(&answer);
    tm_web_destroy(web);
}

/* One token for several requests, a new one when it is refused; who asks too often asks again. A login's file comes
 * before the metadata server. */
static void test_requests(void **state)
{
    (void)state;
    static const char *const script[] = {
        BODY("200", "{\"access_token\": \"first\", \"expires_in\": 3600}"),
        BODY("200", "{}"),
        BODY("401", "no"),
        BODY("200", "{\"access_token\": \"second\", \"expires_in\": 3600}"),
        BODY("403", "{\"error\": {\"errors\": [{\"reason\": \"rateLimitExceeded\"}]}}"),
        BODY("200", "{}")};
    for (int machine = 0; machine < 2; machine++) {
        struct server server;
        struct tm_tempdir dir;
        struct tm_gcp *gcp = NULL;
        struct tm_error e = {.text = ""};
        char text[600];
        char path[400];
        start(&server, script, TM_COUNT(script));
        forget();
        tm_tempdir_make(&dir);
        (void)setenv("CLOUDSDK_CONFIG", dir.path, 1);
        (void)setenv("GOOGLE_CLOUD_PROJECT", "p", 1);
        (void)snprintf(text, sizeof text, "http://%s/compute/v1/", server.address);
        (void)setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", text, 1);
        (void)setenv("GCE_METADATA_HOST", server.address, 1);
        (void)snprintf(path, sizeof path, "%.300s/application_default_credentials.json", dir.path);
        (void)snprintf(text, sizeof text, USER(", \"token_uri\": \"http://%s/token\""), server.address);
        if (machine == 0) assert_int_equal(tm_env_real()->file_write(tm_env_real(), path, text, strlen(text), NULL), 0);
        assert_row(tm_gcp_create(tm_env_real(), &gcp, &e) == 0, "%s", e.text);
        ask_once(gcp, 200);
        ask_once(gcp, 200); /* 401 first, then too often */
        tm_gcp_destroy(gcp);
        stop(&server);
        forget();
        tm_tempdir_remove(&dir);
        assert_int_equal((int)server.served, 6);
        if (machine == 0) {
            assert_non_null(strstr(server.seen[0], "POST /token HTTP"));
            assert_non_null(strstr(server.seen[0], "client_secret=hush%2Fhush&refresh_token=1%2F%2Fr"));
        } else {
            assert_non_null(
                strstr(server.seen[0], "GET /computeMetadata/v1/instance/service-accounts/default/token HTTP"));
            assert_non_null(strstr(server.seen[0], "Metadata-Flavor: Google"));
        }
        assert_non_null(strstr(server.seen[1], "GET /compute/v1/projects/p?filter=labels.a%3Db%20c HTTP"));
        assert_non_null(strstr(server.seen[1], "authorization: Bearer first"));
        assert_non_null(strstr(server.seen[2], "authorization: Bearer first"));
        assert_non_null(strstr(server.seen[4], "authorization: Bearer second"));
        assert_non_null(strstr(server.seen[5], "authorization: Bearer second"));
    }
}

/* A token that does not last for long (a metadata server gives the one that it has) is not asked for at every request.
 */
static void test_short_tokens(void **state)
{
    (void)state;
    static const char *const script[] = {BODY("200", "{\"access_token\": \"short\", \"expires_in\": 200}"),
                                         BODY("200", "{}"), BODY("200", "{}"), BODY("200", "{}")};
    struct server server;
    struct tm_gcp *gcp = NULL;
    char text[600];
    start(&server, script, TM_COUNT(script));
    forget();
    (void)setenv("CLOUDSDK_CONFIG", "/nowhere", 1);
    (void)setenv("GOOGLE_CLOUD_PROJECT", "p", 1);
    (void)snprintf(text, sizeof text, "http://%s/compute/v1/", server.address);
    (void)setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", text, 1);
    (void)setenv("GCE_METADATA_HOST", server.address, 1);
    assert_int_equal(tm_gcp_create(tm_env_real(), &gcp, NULL), 0);
    for (int i = 0; i < 3; i++)
        ask_once(gcp, 200);
    tm_gcp_destroy(gcp);
    stop(&server);
    forget();
    assert_int_equal((int)server.served, 4);
    for (int i = 1; i < 4; i++)
        assert_non_null(strstr(server.seen[i], "authorization: Bearer short"));
}

/* ---- URLs that Google signs ---- */

#define SIGNED BODY("200", "{\"keyId\": \"1\", \"signedBlob\": \"AQIDBAUGBwg=\"}")

/* One question of the thread's to signBlob, which this test answers when it likes. */
static int hear(int listener, char *seen, size_t room)
{
    struct tm_env *env = tm_env_real();
    struct server s = {.env = env};
    bool ready = false;
    int handle = -1;
    int rc = 0;
    while ((rc = env->net_accept(env, listener, &handle, NULL)) == -(int)TM_EBUSY)
        assert_int_equal(env->net_wait(env, &listener, 1, 20000, &ready, NULL), 0);
    assert_int_equal(rc, 0);
    read_request(&s, handle, seen, room);
    return handle;
}

static void say(int handle, const char *answer)
{
    struct tm_env *env = tm_env_real();
    size_t sent = 0;
    assert_int_equal(env->net_send(env, handle, answer, strlen(answer), &sent, NULL), 0);
    assert_int_equal(sent, strlen(answer));
    env->net_close(env, handle);
}

static int url_of(struct tm_gcp *gcp, const char *name, char out[2000], struct tm_error *e)
{
    const struct tm_gcp_object object = {"GET", "tide", name};
    struct tm_text url;
    tm_text_init(&url, 8192);
    int rc = tm_gcp_url(gcp, &object, NULL, 600, &url, e);
    (void)snprintf(out, 2000, "%s", tm_text_string(&url));
    tm_text_deinit(&url);
    return rc;
}

static int await_url(struct tm_gcp *gcp, const char *name, char out[2000], struct tm_error *e)
{
    int rc = 0;
    while ((rc = url_of(gcp, name, out, e)) == -(int)TM_EBUSY)
        tm_env_real()->sleep_ms(tm_env_real(), 1);
    return rc;
}

static struct tm_gcp *open_machine(struct server *server, const char *iam)
{
    struct tm_gcp *gcp = NULL;
    char text[600];
    forget();
    (void)setenv("CLOUDSDK_CONFIG", "/nowhere", 1);
    (void)setenv("GOOGLE_CLOUD_PROJECT", "p", 1);
    (void)setenv("GCE_METADATA_HOST", server->address, 1);
    (void)snprintf(text, sizeof text, "http://%s", iam);
    (void)setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_IAMCREDENTIALS", text, 1);
    assert_int_equal(tm_gcp_create(tm_env_real(), &gcp, NULL), 0);
    return gcp;
}

static const char *const machine_script[] = {BODY("200", "me@p.iam\n"),
                                             BODY("200", "{\"access_token\": \"first\", \"expires_in\": 3600}")};

/* Nobody waits for a signature: who looks is told that it is under way, whatever else is wanted meanwhile, until it is
 * there. Then it is the same for all who want that. */
static void test_signed_beside(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct server server;
    struct tm_error e = {.text = ""};
    char address[TM_ADDRESS_MAX], seen[4096], first[2000], second[2000], again[2000];
    int listener = -1;
    start(&server, machine_script, TM_COUNT(machine_script));
    assert_int_equal(env->net_listen(env, "127.0.0.1:0", &listener, address, NULL), 0);
    struct tm_gcp *gcp = open_machine(&server, address);
    assert_int_equal(url_of(gcp, "a", first, &e), -(int)TM_EBUSY);
    int handle = hear(listener, seen, sizeof seen); /* from now on it waits for us */
    assert_non_null(strstr(seen, "POST /v1/projects/-/serviceAccounts/me@p.iam:signBlob HTTP"));
    assert_non_null(strstr(seen, "authorization: Bearer first"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(url_of(gcp, "a", first, &e), -(int)TM_EBUSY);
        assert_int_equal(url_of(gcp, "b", second, &e), -(int)TM_EBUSY);
    }
    say(handle, SIGNED);
    assert_row(await_url(gcp, "a", first, &e) == 0, "%s", e.text);
    assert_non_null(strstr(first, "https://storage.googleapis.com/tide/a?X-Goog-Algorithm=GOOG4-RSA-SHA256"));
    assert_non_null(strstr(first, "&X-Goog-Credential=me%40p.iam%2F20"));
    assert_non_null(strstr(first, "&X-Goog-Signature=0102030405060708"));
    handle = hear(listener, seen, sizeof seen); /* each was asked for once */
    assert_int_equal(url_of(gcp, "a", again, &e), 0);
    assert_string_equal(again, first);
    say(handle, SIGNED);
    assert_row(await_url(gcp, "b", second, &e) == 0, "%s", e.text);
    assert_non_null(strstr(second, "/tide/b?"));
    assert_int_equal(url_of(gcp, "a", again, &e), 0);
    assert_string_equal(again, first);
    assert_int_equal(env->net_accept(env, listener, &handle, NULL), -(int)TM_EBUSY); /* and no more */
    tm_gcp_destroy(gcp);
    stop(&server);
    env->net_close(env, listener);
    forget();
    assert_int_equal((int)server.served, 2); /* who this VM is does not change */
}

/* A refusal is told to who looks, and what is asked for is given up when all ends. */
static void test_not_signed(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct server server;
    struct tm_error e = {.text = ""};
    char address[TM_ADDRESS_MAX], seen[4096], url[2000];
    int listener = -1;
    start(&server, machine_script, TM_COUNT(machine_script));
    assert_int_equal(env->net_listen(env, "127.0.0.1:0", &listener, address, NULL), 0);
    struct tm_gcp *gcp = open_machine(&server, address);
    assert_int_equal(url_of(gcp, "a", url, &e), -(int)TM_EBUSY);
    say(hear(listener, seen, sizeof seen), BODY("403", "{\"error\": {\"message\": \"not you\"}}"));
    assert_int_equal(await_url(gcp, "a", url, &e), -(int)TM_EINPUT);
    assert_error_has(e, "Google does not sign in the name of me@p.iam: 403 not you");
    assert_string_equal(url, "");
    assert_int_equal(url_of(gcp, "b", url, &e), -(int)TM_EBUSY);
    int handle = hear(listener, seen, sizeof seen);
    tm_gcp_destroy(gcp); /* there is no answer, and none is waited for */
    env->net_close(env, handle);
    stop(&server);
    env->net_close(env, listener);
    forget();
}

static void test_settings(void **state)
{
    (void)state;
    struct tm_gcp *gcp = NULL;
    struct tm_error e = {.text = ""};
    const char *project = NULL;
    forget();
    (void)setenv("CLOUDSDK_CONFIG", "/nowhere", 1);
    (void)setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json", 1);
    assert_int_equal(tm_gcp_create(tm_env_real(), &gcp, &e), -(int)TM_EINPUT);
    assert_error_has(e, "GOOGLE_APPLICATION_CREDENTIALS");
    (void)unsetenv("GOOGLE_APPLICATION_CREDENTIALS");
    (void)setenv("STORAGE_EMULATOR_HOST", "ftp://x", 1);
    assert_int_equal(tm_gcp_create(tm_env_real(), &gcp, &e), -(int)TM_EINPUT);
    assert_error_has(e, "STORAGE_EMULATOR_HOST: an endpoint is written as https://HOST");
    (void)setenv("STORAGE_EMULATOR_HOST", "localhost:1", 1);
    (void)setenv("GCE_METADATA_HOST", "127.0.0.1:1", 1);
    assert_int_equal(tm_gcp_create(tm_env_real(), &gcp, &e), 0);
    assert_int_equal(tm_gcp_project(gcp, &project, &e), -(int)TM_EINPUT);
    assert_error_has(e, "set GOOGLE_APPLICATION_CREDENTIALS to a service account's key, or run `gcloud auth");
    tm_gcp_destroy(gcp);
    (void)setenv("CLOUDSDK_CORE_PROJECT", "tide", 1);
    assert_int_equal(tm_gcp_create(tm_env_real(), &gcp, &e), 0);
    assert_int_equal(tm_gcp_project(gcp, &project, &e), 0);
    assert_string_equal(project, "tide");
    tm_gcp_destroy(gcp);
    forget();
}

static void create_once(int *rc)
{
    struct tm_gcp *gcp = NULL;
    struct tm_gcp__account account;
    *rc = tm_gcp_create(tm_env_real(), &gcp, NULL);
    tm_gcp_destroy(*rc == 0 ? gcp : NULL);
    if (*rc != 0) return;
    *rc = tm_gcp__read_account("f", USER(""), strlen(USER("")), &account, NULL);
    if (*rc == 0) tm_gcp__account_deinit(&account);
}

static void test_no_memory(void **state)
{
    (void)state;
    forget();
    (void)setenv("CLOUDSDK_CONFIG", "/nowhere", 1);
    TM_FAIL_EACH_ALLOC(create_once(&rc));
    forget();
}

TM_TEST_MAIN(TM_TEST(test_files), TM_TEST(test_subjects), TM_TEST(test_configuration),
             TM_TEST(test_active_configuration), TM_TEST(test_tokens), TM_TEST(test_requests),
             TM_TEST(test_short_tokens), TM_TEST(test_signed_beside), TM_TEST(test_not_signed), TM_TEST(test_settings),
             TM_TEST(test_no_memory))
