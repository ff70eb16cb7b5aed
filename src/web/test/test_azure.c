/* Azure's settings, what is signed, and tokens; tests/clouds/run has the whole way, against Microsoft's own emulator.
 */
#include "base/env_virtual.h"
#include "base/test/script_server.h"
#include "base/test/tempdir.h"
#include "web/azure.h"
#include "web/azure_arm.h"
#include "web/azure_delegation.h"
#include "web/azure_identity.h"

#include <stdlib.h>

static const char *const names[] = {"AZURE_STORAGE_CONNECTION_STRING",
                                    "AZURE_STORAGE_ACCOUNT",
                                    "AZURE_STORAGE_KEY",
                                    "AZURE_STORAGE_SAS_TOKEN",
                                    "AZURE_TENANT_ID",
                                    "AZURE_CLIENT_ID",
                                    "AZURE_CLIENT_SECRET",
                                    "AZURE_FEDERATED_TOKEN_FILE",
                                    "AZURE_AUTHORITY_HOST",
                                    "AZURE_POD_IDENTITY_AUTHORITY_HOST"};

static void forget(void)
{
    for (size_t i = 0; i < TM_COUNT(names); i++)
        (void)unsetenv(names[i]);
}

static void test_settings(void **state)
{
    (void)state;
    static const struct {
        const char *connection;
        const char *account;
        const char *key;
        const char *wanted; /* the account; NULL: refused */
        const char *words;
    } rows[] = {{NULL, "tide", "a2V5", "tide", NULL},
                {NULL, "tide", NULL, "tide", NULL}, /* by a token */
                {"AccountName=x;AccountKey=a2V5;EndpointSuffix=core.windows.net", NULL, NULL, "x", NULL},
                {"BlobEndpoint=http://127.0.0.1:1/x/;SharedAccessSignature=sv=1&sig=2", NULL, NULL, "", NULL},
                {NULL, NULL, "a2V5", NULL, "set AZURE_STORAGE_ACCOUNT"},
                {NULL, "Tide!", NULL, NULL, "small letters and digits"},
                {NULL, "tide", "not base64", NULL, "not a key of a storage account"},
                {"AccountName", NULL, NULL, NULL, "NAME=VALUE;NAME=VALUE is expected"},
                {"AccountKey=a2V5", NULL, NULL, NULL, "names no account"},
                {"BlobEndpoint=ftp://x", NULL, NULL, NULL, "written as https://HOST"}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_azure *azure = NULL;
        struct tm_error e;
        forget();
        if (rows[i].connection != NULL) (void)setenv(names[0], rows[i].connection, 1);
        if (rows[i].account != NULL) (void)setenv(names[1], rows[i].account, 1);
        if (rows[i].key != NULL) (void)setenv(names[2], rows[i].key, 1);
        int rc = tm_azure_create(tm_env_real(), &azure, &e);
        assert_row((rc == 0) == (rows[i].wanted != NULL), "row %zu: %d", i, rc);
        if (rc == 0) assert_row_string("account", tm_azure_account(azure), rows[i].wanted);
        if (rc != 0) assert_error_has(e, rows[i].words);
        if (rc != 0) assert_int_equal(rc, -(int)TM_EINPUT);
        tm_azure_destroy(azure);
    }
    forget();
}

/* A token of a service, and of az. */
static void test_read_token(void **state)
{
    (void)state;
    static char token[TM_AZURE_TOKEN_MAX];
    int64_t ends_ms = 0;
    const char *of_az = "{\"accessToken\":\"abc\",\"expires_on\":100}";
    assert_int_equal(tm_azure_identity__read(of_az, strlen(of_az), 40000, token, &ends_ms, NULL), 0);
    assert_string_equal(token, "abc");
    assert_int_equal(ends_ms, 100000);
    const char *over = "{\"access_token\":\"abc\",\"expires_in\":0}";
    assert_int_equal(tm_azure_identity__read(over, strlen(over), 0, token, &ends_ms, NULL), -(int)TM_EINPUT);
}

/* The example's parts in the order that the service documents. */
static void test_to_sign(void **state)
{
    (void)state;
    struct tm_text text;
    struct tm_azure_request request = {.method = "PUT",
                                       .path = "/c/b",
                                       .query = {{"comp", "block"}, {"blockid", "QUFB"}},
                                       .query_count = 2,
                                       .headers = {{"x-ms-range", "bytes=0-1"}, {"if-none-match", "*"}},
                                       .header_count = 2,
                                       .body = "x",
                                       .length = 1};
    tm_text_init(&text, 4096);
    tm_azure__to_sign(&request, "acc", "/c/b", "NOW", &text);
    assert_string_equal(tm_text_string(&text), "PUT\n\n\n1\n\napplication/octet-stream\n\n\n\n*\n\n\nx-ms-date:NOW\n"
                                               "x-ms-range:bytes=0-1\nx-ms-version:2021-12-02\n/acc/c/b\n"
                                               "blockid:QUFB\ncomp:block");
    tm_text_deinit(&text);
}

#define BODY(status, body) "HTTP/1.1 " status " x\r\nConnection: close\r\n\r\n" body

static void ask_once(struct tm_azure *azure, int wanted_status)
{
    struct tm_web *web = NULL;
    struct tm_web_answer answer;
    struct tm_azure_request request = {
        .azure = azure, .method = "GET", .path = "/c/b", .deadline_ms = 20000, .tries_max = 3};
    assert_int_equal(tm_web_create(tm_env_real(), &web, NULL), 0);
    assert_int_equal(tm_azure_ask(web, &request, &answer, NULL), 0);
    assert_int_equal(answer.status, wanted_status);
    tm_web_answer_deinit(&answer);
    tm_web_destroy(web);
}

/* One token for several requests, a new one when it is refused; secrets are in no URL. */
static void test_tokens(void **state)
{
    (void)state;
    static const char *const script[] = {BODY("200", "{\"access_token\": \"first\",  \"expires_in\": \"3600\" }"),
                                         BODY("200", "ok"),
                                         BODY("200", "ok"),
                                         BODY("401", "no"),
                                         BODY("200", "{\"access_token\": \"second\", \"expires_in\": 3600}"),
                                         BODY("200", "ok")};
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    assert_int_equal(tm_env_real()->file_write(tm_env_real(), tm_tempdir_path(&dir, "word"), "a.word/b\n", 9, NULL), 0);
    for (int machine = 0; machine < 3; machine++) {
        struct server server;
        struct tm_azure *azure = NULL;
        char place[TM_ADDRESS_MAX + 40];
        start(&server, script, TM_COUNT(script));
        forget();
        (void)snprintf(place, sizeof place, "AccountName=tide;BlobEndpoint=http://%s", server.address);
        (void)setenv(names[0], place, 1);
        (void)snprintf(place, sizeof place, "http://%s/", server.address);
        (void)setenv("AZURE_AUTHORITY_HOST", place, 1);
        place[strlen(place) - 1] = '\0';
        (void)setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", place, 1);
        if (machine != 1) (void)setenv("AZURE_TENANT_ID", "tenant", 1);
        (void)setenv("AZURE_CLIENT_ID", "client", 1);
        (void)setenv("AZURE_FEDERATED_TOKEN_FILE", tm_tempdir_path(&dir, "word"), 1);
        if (machine != 2) (void)setenv("AZURE_CLIENT_SECRET", "hush/hush", 1);
        assert_int_equal(tm_azure_create(tm_env_real(), &azure, NULL), 0);
        ask_once(azure, 200);
        ask_once(azure, 200);
        ask_once(azure, 200); /* 401 first */
        tm_azure_destroy(azure);
        stop(&server);
        forget();
        assert_int_equal((int)server.served, 6);
        if (machine == 0) {
            assert_non_null(strstr(server.seen[0], "POST /tenant/oauth2/v2.0/token HTTP"));
            assert_non_null(strstr(server.seen[0], "client_secret=hush%2Fhush"));
        } else if (machine == 2) {
            assert_non_null(strstr(server.seen[0], "POST /tenant/oauth2/v2.0/token HTTP"));
            assert_non_null(strstr(server.seen[0], "jwt-bearer&client_assertion=a.word%2Fb"));
        } else {
            assert_non_null(strstr(server.seen[0], "GET /metadata/identity/oauth2/token?"));
            assert_non_null(strstr(server.seen[0], "Metadata: true"));
        }
        assert_non_null(strstr(server.seen[1], "authorization: Bearer first"));
        assert_non_null(strstr(server.seen[3], "authorization: Bearer first"));
        assert_non_null(strstr(server.seen[5], "authorization: Bearer second"));
    }
    tm_tempdir_remove(&dir);
}

/* A token that does not last for long (a metadata service gives the one that it has) is not asked for at every request.
 */
static void test_short_tokens(void **state)
{
    (void)state;
    static const char *const script[] = {BODY("200", "{\"access_token\": \"short\",  \"expires_in\": \"200\" }"),
                                         BODY("200", "ok"), BODY("200", "ok"), BODY("200", "ok")};
    struct server server;
    struct tm_azure *azure = NULL;
    char place[TM_ADDRESS_MAX + 40];
    start(&server, script, TM_COUNT(script));
    forget();
    (void)snprintf(place, sizeof place, "AccountName=tide;BlobEndpoint=http://%s", server.address);
    (void)setenv(names[0], place, 1);
    (void)snprintf(place, sizeof place, "http://%s", server.address);
    (void)setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", place, 1);
    assert_int_equal(tm_azure_create(tm_env_real(), &azure, NULL), 0);
    for (int i = 0; i < 3; i++)
        ask_once(azure, 200);
    tm_azure_destroy(azure);
    stop(&server);
    forget();
    assert_int_equal((int)server.served, 4);
    for (int i = 1; i < 4; i++)
        assert_non_null(strstr(server.seen[i], "authorization: Bearer short"));
}

#define DELEGATED                                                                                                      \
    "<?xml version=\"1.0\" "                                                                                           \
    "encoding=\"utf-8\"?><UserDelegationKey><SignedOid>an-oid</SignedOid><SignedTid>a-tid</SignedTid>"                 \
    "<SignedStart>2030-01-01T00:00:00Z</SignedStart><SignedExpiry>2030-01-07T00:00:00Z</SignedExpiry>"                 \
    "<SignedService>b</SignedService><SignedVersion>2021-12-02</SignedVersion><Value>a2V5a2V5</Value></"               \
    "UserDelegationKey>"

/* Without a key of the account a URL is signed by a user delegation key, which is asked for once, and ends with it; the
 * signature is what Azurite computes. */
static void test_delegation(void **state)
{
    (void)state;
    static const char *const script[] = {BODY("200", "{\"access_token\": \"first\", \"expires_in\": 3600}"),
                                         BODY("200", DELEGATED)};
    struct server server;
    struct tm_azure *azure = NULL;
    struct tm_text url;
    struct tm_error e = {.text = ""};
    char place[TM_ADDRESS_MAX + 40];
    start(&server, script, TM_COUNT(script));
    forget();
    (void)snprintf(place, sizeof place, "AccountName=tide;BlobEndpoint=http://%s", server.address);
    (void)setenv(names[0], place, 1);
    (void)snprintf(place, sizeof place, "http://%s", server.address);
    (void)setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", place, 1);
    assert_int_equal(tm_azure_create(tm_env_real(), &azure, NULL), 0);
    tm_text_init(&url, 4096);
    assert_int_equal(tm_azure_url(azure, "GET", "/c/b", 60, &url, &e), -(int)TM_EBUSY); /* nobody waits for the key */
    assert_int_equal(url.length, 0);
    tm_text_deinit(&url);
    assert_row(tm_azure_await_key(azure, &e) == 0, "%s", e.text);
    for (int i = 0; i < 2; i++) {
        tm_text_init(&url, 4096);
        assert_row(tm_azure_url(azure, "GET", "/c/b", 200 * 365 * 86400LL, &url, &e) == 0, "%s", e.text);
        assert_non_null(strstr(tm_text_string(&url),
                               "/c/"
                               "b?sv=2021-12-02&sr=b&sp=r&se=2030-01-07T00%3A00%3A00Z&skoid=an-oid&sktid=a-"
                               "tid&skt=2030-01-01T00%3A00%3A00Z&ske=2030-01-07T00%3A00%3A00Z&sks=b&skv=2021-"
                               "12-02&sig=jUk4WwMk5ANdgEznzdaRjsMuuahQTeck93a6SJ5cNUM%3D"));
        tm_text_deinit(&url);
    }
    tm_azure_destroy(azure);
    stop(&server);
    forget();
    assert_int_equal((int)server.served, 2);
    assert_non_null(strstr(server.seen[1], "POST /?restype=service&comp=userdelegationkey HTTP"));
    assert_non_null(strstr(server.seen[1], "authorization: Bearer first"));
    assert_non_null(strstr(server.seen[1], "<KeyInfo><Start>20"));
}

static void test_read_delegation(void **state)
{
    (void)state;
    static const char *const rows[] = {"", "<UserDelegationKey/>", "<a><Value>a2V5a2V5</Value></a>", "{}"};
    struct tm_azure_delegated key;
    struct tm_error e;
    assert_int_equal(tm_azure_delegation__read(DELEGATED, strlen(DELEGATED), &key, &e), 0);
    assert_int_equal((int)key.key_length, 6);
    assert_memory_equal(key.key, "keykey", 6);
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(tm_azure_delegation__read(rows[i], strlen(rows[i]), &key, &e) == -(int)TM_EINPUT, "row %zu", i);
    TM_FAIL_EACH_ALLOC(rc = tm_azure_delegation__read(DELEGATED, strlen(DELEGATED), &key, &e));
}

/* Tokens are for the Resource Manager in use: one for the public cloud's is refused by another's. */
static void test_audience(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {NULL, "https://management.azure.com"},
        {"https://management.chinacloudapi.cn/", "https://management.chinacloudapi.cn"},
        {"https://management.usgovcloudapi.net", "https://management.usgovcloudapi.net"},
        {"http://127.0.0.1:1", "https://management.azure.com"}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_env *env = tm_env_virtual_create(1);
        struct tm_arm *arm = NULL;
        struct tm_error e = {.text = ""};
        assert_non_null(env);
        assert_int_equal(tm_env_virtual_set_variable(env, "AZURE_SUBSCRIPTION_ID", "5ab"), 0);
        if (rows[i][0] != NULL)
            assert_int_equal(tm_env_virtual_set_variable(env, "AZURE_RESOURCE_MANAGER_ENDPOINT", rows[i][0]), 0);
        assert_row(tm_arm_create(env, &arm, &e) == 0, "row %zu: %s", i, e.text);
        assert_string_equal(tm_arm_audience(arm), rows[i][1]);
        tm_arm_destroy(arm);
        tm_env_virtual_destroy(env);
    }
}

TM_TEST_MAIN(TM_TEST(test_audience), TM_TEST(test_delegation), TM_TEST(test_read_delegation), TM_TEST(test_settings),
             TM_TEST(test_read_token), TM_TEST(test_to_sign), TM_TEST(test_tokens), TM_TEST(test_short_tokens))
