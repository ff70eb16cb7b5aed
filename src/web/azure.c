#include "web/azure.h"

#include "base/alloc.h"
#include "base/doc.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEY_MAX = 128, TOKEN_MAX = 8192, TOKEN_MS = 10000, TRIES = 3, PAIRS = 16 };

#define VERSION "2021-12-02"

static const int64_t renew_before_ms = 5 * 60000;

struct tm_azure {
    struct tm_env *env;
    char account[64];
    char endpoint[512]; /* "https://HOST", or "http://HOST:PORT/ACCOUNT" */
    unsigned char key[KEY_MAX];
    size_t key_length; /* 0: none */
    char sas[2048];    /* "": none */
    pthread_mutex_t lock;
    char token[TOKEN_MAX]; /* with the lock; "": none so far */
    int64_t token_ends_ms;
};

/* ---- settings ---- */

static const char *variable(struct tm_env *env, const char *name)
{
    const char *value = env->variable(env, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int take_key(struct tm_azure *azure, const char *text, size_t length, const char *from, struct tm_error *e)
{
    unsigned char bytes[KEY_MAX + 3];
    int size = length % 4 == 0 && length / 4 * 3 <= KEY_MAX
                   ? EVP_DecodeBlock(bytes, (const unsigned char *)text, (int)length)
                   : -1;
    if (size <= 0) return tm_error_set(e, TM_EINPUT, "%s: not a key of a storage account (base64)", from);
    size_t padding = text[length - 1] != '=' ? 0 : text[length - 2] == '=' ? 2 : 1;
    azure->key_length = (size_t)size - padding;
    memcpy(azure->key, bytes, azure->key_length);
    OPENSSL_cleanse(bytes, sizeof bytes);
    return 0;
}

static int take_word(const char *text, size_t length, char *out, size_t room, const char *from, struct tm_error *e)
{
    if (length == 0 || length >= room || strcspn(text, "\r\n") < length)
        return tm_error_set(e, TM_EINPUT, "%s: empty, or too long", from);
    (void)snprintf(out, room, "%.*s", (int)length, text);
    return 0;
}

static int take_endpoint(struct tm_azure *azure, const char *text, size_t length, const char *from, struct tm_error *e)
{
    while (length > 0 && text[length - 1] == '/')
        length--;
    if (strncmp(text, "https://", 8) != 0 && strncmp(text, "http://", 7) != 0)
        return tm_error_set(e, TM_EINPUT, "%s: an endpoint is written as https://HOST", from);
    return take_word(text, length, azure->endpoint, sizeof azure->endpoint, from, e);
}

/* "Name=value;Name=value": names that we do not know are of other services. */
static int take_connection(struct tm_azure *azure, const char *text, struct tm_error *e)
{
    static const char from[] = "AZURE_STORAGE_CONNECTION_STRING";
    int rc = 0;
    while (rc == 0 && *text != '\0') {
        size_t length = strcspn(text, ";");
        size_t name = strcspn(text, "=");
        const char *value = text + name + 1;
        if (name >= length) return tm_error_set(e, TM_EINPUT, "%s: NAME=VALUE;NAME=VALUE is expected", from);
        size_t rest = length - name - 1;
        if (strncmp(text, "AccountName=", name + 1) == 0)
            rc = take_word(value, rest, azure->account, sizeof azure->account, from, e);
        else if (strncmp(text, "AccountKey=", name + 1) == 0)
            rc = take_key(azure, value, rest, from, e);
        else if (strncmp(text, "SharedAccessSignature=", name + 1) == 0)
            rc = take_word(value, rest, azure->sas, sizeof azure->sas, from, e);
        else if (strncmp(text, "BlobEndpoint=", name + 1) == 0)
            rc = take_endpoint(azure, value, rest, from, e);
        text += length + (text[length] == ';' ? 1 : 0);
    }
    if (rc == 0 && azure->account[0] == '\0' && azure->endpoint[0] == '\0')
        rc = tm_error_set(e, TM_EINPUT, "%s: it names no account (AccountName, or BlobEndpoint)", from);
    return rc;
}

static int take_settings(struct tm_azure *azure, struct tm_error *e)
{
    struct tm_env *env = azure->env;
    const char *connection = variable(env, "AZURE_STORAGE_CONNECTION_STRING");
    const char *account = variable(env, "AZURE_STORAGE_ACCOUNT");
    const char *key = variable(env, "AZURE_STORAGE_KEY");
    const char *sas = variable(env, "AZURE_STORAGE_SAS_TOKEN");
    int rc = 0;
    if (connection != NULL) return take_connection(azure, connection, e);
    if (account == NULL)
        return tm_error_set(e, TM_EINPUT,
                            "no Azure storage account: set AZURE_STORAGE_ACCOUNT, or AZURE_STORAGE_CONNECTION_STRING");
    if (strspn(account, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(account))
        return tm_error_set(e, TM_EINPUT, "AZURE_STORAGE_ACCOUNT: small letters and digits are expected");
    rc = take_word(account, strlen(account), azure->account, sizeof azure->account, "AZURE_STORAGE_ACCOUNT", e);
    if (rc == 0 && key != NULL) rc = take_key(azure, key, strlen(key), "AZURE_STORAGE_KEY", e);
    if (rc == 0 && key == NULL && sas != NULL)
        rc = take_word(sas, strlen(sas), azure->sas, sizeof azure->sas, "AZURE_STORAGE_SAS_TOKEN", e);
    return rc;
}

/* ---- tokens ---- */

struct plain {
    const char *url;
    const char *header;
};

static int prepare_plain(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    (void)e;
    const struct plain *plain = context;
    tm_text_puts(url, plain->url);
    tm_text_puts(headers, plain->header);
    return 0;
}

static int read_token(struct tm_azure *azure, const struct tm_web_answer *answer, struct tm_error *e)
{
    json_t *root = NULL;
    struct tm_error own; /* what is wrong in the text may show some of it */
    if (answer->status != 200)
        return tm_error_set(e, TM_EIO,
                            "Azure gives no token: refused with %d; check the service principal or the "
                            "machine's identity, or set AZURE_STORAGE_KEY",
                            answer->status);
    int rc = tm_json_load("token", tm_text_string(&answer->body), answer->body.length, &root, &own);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    const char *token = rc == 0 ? json_string_value(json_object_get(root, "access_token")) : NULL;
    const json_t *left = rc == 0 ? json_object_get(root, "expires_in") : NULL; /* a number, or a number in quotes */
    long long left_s = json_is_integer(left)  ? (long long)json_integer_value(left)
                       : json_is_string(left) ? strtoll(json_string_value(left), NULL, 10)
                                              : 0;
    bool good =
        token != NULL && left_s > 0 && left_s < 10000000 && strlen(token) < TOKEN_MAX && strpbrk(token, "\r\n") == NULL;
    if (good) {
        (void)snprintf(azure->token, sizeof azure->token, "%s", token);
        azure->token_ends_ms = azure->env->now_ms(azure->env) + left_s * 1000;
    }
    json_decref(root);
    return good ? 0 : tm_error_set(e, TM_EIO, "Azure's answer holds no token");
}

static int ask_token(struct tm_azure *azure, const char *method, const char *url, const char *header, const char *body,
                     struct tm_error *e)
{
    struct tm_web *web = NULL;
    struct tm_web_answer answer;
    struct plain plain = {url, header};
    struct tm_web_request request = {.method = method,
                                     .body = body,
                                     .length = body != NULL ? strlen(body) : 0,
                                     .deadline_ms = TOKEN_MS,
                                     .tries_max = TRIES,
                                     .direct = strncmp(url, "http://", 7) == 0,
                                     .prepare = prepare_plain,
                                     .context = &plain};
    int rc = tm_web_create(azure->env, &web, e);
    if (rc == 0 && (rc = tm_web__ask(web, &request, &answer, e)) == 0) {
        rc = read_token(azure, &answer, e);
        tm_web_answer_deinit(&answer);
    }
    tm_web_destroy(web);
    return rc;
}

/* As the service principal: credentials go in the body, never in the URL. */
static int principal_token(struct tm_azure *azure, const char *tenant, const char *client, const char *secret,
                           struct tm_error *e)
{
    struct tm_text url;
    struct tm_text body;
    const char *authority = variable(azure->env, "AZURE_AUTHORITY_HOST");
    if (authority == NULL) authority = "https://login.microsoftonline.com";
    tm_text_init(&url, 2048);
    tm_text_init(&body, 8192);
    tm_text_printf(&url, "%.*s/", (int)(strlen(authority) - (authority[strlen(authority) - 1] == '/')), authority);
    tm_percent_encode(tenant, false, &url);
    tm_text_puts(&url, "/oauth2/v2.0/token");
    tm_text_puts(&body, "grant_type=client_credentials&scope=https%3A%2F%2Fstorage.azure.com%2F.default&client_id=");
    tm_percent_encode(client, false, &body);
    tm_text_puts(&body, "&client_secret=");
    tm_percent_encode(secret, false, &body);
    int rc = tm_text_status(&url, e);
    if (rc == 0) rc = tm_text_status(&body, e);
    if (rc == 0)
        rc = ask_token(azure, "POST", tm_text_string(&url), "Content-Type: application/x-www-form-urlencoded\n",
                       tm_text_string(&body), e);
    if (body.data != NULL) OPENSSL_cleanse(body.data, body.length);
    tm_text_deinit(&body);
    tm_text_deinit(&url);
    return rc;
}

static int machine_token(struct tm_azure *azure, struct tm_error *e)
{
    char url[1024];
    const char *host = variable(azure->env, "AZURE_POD_IDENTITY_AUTHORITY_HOST");
    (void)snprintf(
        url, sizeof url,
        "%.500s/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%%3A%%2F%%2Fstorage.azure.com%%2F",
        host != NULL ? host : "http://169.254.169.254");
    return ask_token(azure, "GET", url, "Metadata: true\n", NULL, e);
}

/* A token that lasts for a while yet, as a header. */
static int add_token(struct tm_azure *azure, struct tm_text *headers, struct tm_error *e)
{
    const char *tenant = variable(azure->env, "AZURE_TENANT_ID");
    const char *client = variable(azure->env, "AZURE_CLIENT_ID");
    const char *secret = variable(azure->env, "AZURE_CLIENT_SECRET");
    int rc = 0;
    (void)pthread_mutex_lock(&azure->lock);
    if (azure->token[0] == '\0' || azure->env->now_ms(azure->env) > azure->token_ends_ms - renew_before_ms)
        rc = tenant != NULL && client != NULL && secret != NULL ? principal_token(azure, tenant, client, secret, e)
                                                                : machine_token(azure, e);
    if (rc == 0) tm_text_printf(headers, "authorization: Bearer %s\n", azure->token);
    (void)pthread_mutex_unlock(&azure->lock);
    return rc;
}

/* ---- signatures ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tm_web_pair *)a)->name, ((const struct tm_web_pair *)b)->name);
}

static const char *header_of(const struct tm_azure_request *r, const char *name)
{
    for (size_t i = 0; i < r->header_count; i++)
        if (strcmp(r->headers[i].name, name) == 0) return r->headers[i].value;
    return "";
}

void tm_azure__to_sign(const struct tm_azure_request *r, const char *account, const char *path, const char *time,
                       struct tm_text *out)
{
    struct tm_web_pair pairs[PAIRS];
    size_t count = 0;
    tm_text_printf(out, "%s\n\n\n", r->method);
    if (r->length > 0) tm_text_printf(out, "%zu", r->length);
    tm_text_printf(out, "\n\n%s\n\n\n%s\n%s\n\n\n", r->body != NULL ? "application/octet-stream" : "",
                   header_of(r, "if-match"), header_of(r, "if-none-match"));
    pairs[count++] = (struct tm_web_pair){"x-ms-date", time};
    pairs[count++] = (struct tm_web_pair){"x-ms-version", VERSION};
    for (size_t i = 0; i < r->header_count; i++)
        if (strncmp(r->headers[i].name, "x-ms-", 5) == 0) pairs[count++] = r->headers[i];
    qsort(pairs, count, sizeof *pairs, by_name);
    for (size_t i = 0; i < count; i++)
        tm_text_printf(out, "%s:%s\n", pairs[i].name, pairs[i].value);
    tm_text_printf(out, "/%s%s", account, path);
    memcpy(pairs, r->query, r->query_count * sizeof *pairs);
    qsort(pairs, r->query_count, sizeof *pairs, by_name);
    for (size_t i = 0; i < r->query_count; i++)
        tm_text_printf(out, "\n%s:%s", pairs[i].name, pairs[i].value);
}

static int add_signature(const struct tm_azure_request *r, const char *path, const char *time, struct tm_text *headers,
                         struct tm_error *e)
{
    const struct tm_azure *azure = r->azure;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned char base64[EVP_MAX_MD_SIZE * 2];
    unsigned size = 0;
    struct tm_text text;
    tm_text_init(&text, 16384);
    tm_azure__to_sign(r, azure->account, path, time, &text);
    int rc = tm_text_status(&text, e);
    if (rc == 0) {
        (void)HMAC(EVP_sha256(), azure->key, (int)azure->key_length, (const unsigned char *)text.data, text.length,
                   digest, &size);
        (void)EVP_EncodeBlock(base64, digest, (int)size);
        tm_text_printf(headers, "authorization: SharedKey %s:%s\n", azure->account, (const char *)base64);
    }
    tm_text_deinit(&text);
    return rc;
}

/* ---- requests ---- */

/* The path as it is sent, with that of the endpoint before it. */
static void encode_path(const struct tm_azure_request *r, struct tm_text *out)
{
    const char *host = strstr(r->azure->endpoint, "://");
    const char *before = host != NULL ? strchr(host + 3, '/') : NULL;
    if (before != NULL) tm_text_puts(out, before);
    tm_percent_encode(r->path, true, out);
}

static void add_query(const struct tm_azure_request *r, struct tm_text *url)
{
    char mark = '?';
    for (size_t i = 0; i < r->query_count; i++, mark = '&') {
        tm_text_printf(url, "%c%s=", mark, r->query[i].name);
        tm_percent_encode(r->query[i].value, false, url);
    }
    const char *sas = r->azure->sas;
    if (sas[0] != '\0') tm_text_printf(url, "%c%s", mark, sas + (sas[0] == '?' ? 1 : 0));
}

static int prepare(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    struct tm_azure_request *r = context;
    struct tm_azure *azure = r->azure;
    struct tm_text path;
    struct tm tm;
    char time[40];
    time_t now = (time_t)(azure->env->now_ms(azure->env) / 1000);
    (void)gmtime_r(&now, &tm);
    (void)strftime(time, sizeof time, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    tm_text_init(&path, 4096);
    encode_path(r, &path);
    size_t origin = strcspn(strstr(azure->endpoint, "://") + 3, "/") +
                    (size_t)(strstr(azure->endpoint, "://") + 3 - azure->endpoint);
    tm_text_printf(url, "%.*s%s", (int)origin, azure->endpoint, tm_text_string(&path));
    add_query(r, url);
    tm_text_printf(headers, "x-ms-date: %s\nx-ms-version: " VERSION "\n", time);
    if (r->body != NULL) tm_text_puts(headers, "Content-Type: application/octet-stream\n");
    for (size_t i = 0; i < r->header_count; i++)
        tm_text_printf(headers, "%s: %s\n", r->headers[i].name, r->headers[i].value);
    int rc = tm_text_status(&path, e);
    if (rc == 0 && azure->key_length > 0) rc = add_signature(r, tm_text_string(&path), time, headers, e);
    if (rc == 0 && azure->key_length == 0 && azure->sas[0] == '\0') rc = add_token(azure, headers, e);
    tm_text_deinit(&path);
    return rc;
}

/* A token may have ended before its time. */
static bool again(void *context, const struct tm_web_answer *answer)
{
    struct tm_azure_request *r = context;
    if (answer->status != 401 || r->renewed || r->azure->key_length > 0 || r->azure->sas[0] != '\0') return false;
    r->renewed = true;
    (void)pthread_mutex_lock(&r->azure->lock);
    r->azure->token[0] = '\0';
    (void)pthread_mutex_unlock(&r->azure->lock);
    return true;
}

int tm_azure_begin(struct tm_web *web, struct tm_azure_request *r, struct tm_web_call **out, struct tm_error *e)
{
    assert(r->azure != NULL && r->path[0] == '/' && r->query_count <= 8 && r->header_count <= 8);
    struct tm_web_request request = {.method = r->method,
                                     .body = r->body,
                                     .length = r->length,
                                     .into = r->into,
                                     .room = r->room,
                                     .deadline_ms = r->deadline_ms,
                                     .silence_ms = r->silence_ms,
                                     .tries_max = r->tries_max,
                                     .prepare = prepare,
                                     .again = again,
                                     .context = r};
    return tm_web_begin(web, &request, out, e);
}

int tm_azure_ask(struct tm_web *web, struct tm_azure_request *r, struct tm_web_answer *out, struct tm_error *e)
{
    struct tm_web_call *call = NULL;
    int rc = tm_azure_begin(web, r, &call, e);
    if (rc != 0) return rc;
    rc = tm_web__finish(web, call, out, e);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "%s", r->azure->account);
}

/* ---- the account ---- */

int tm_azure_create(struct tm_env *env, struct tm_azure **out, struct tm_error *e)
{
    assert(env != NULL);
    struct tm_azure *azure = tm_calloc(1, sizeof *azure);
    if (azure == NULL) return tm_error_nomem(e);
    azure->env = env;
    (void)pthread_mutex_init(&azure->lock, NULL);
    int rc = take_settings(azure, e);
    if (rc != 0) {
        tm_azure_destroy(azure);
        return rc;
    }
    if (azure->endpoint[0] == '\0')
        (void)snprintf(azure->endpoint, sizeof azure->endpoint, "https://%s.blob.core.windows.net", azure->account);
    *out = azure;
    return 0;
}

void tm_azure_destroy(struct tm_azure *azure)
{
    if (azure == NULL) return;
    (void)pthread_mutex_destroy(&azure->lock);
    OPENSSL_cleanse(azure, sizeof *azure);
    tm_free(azure);
}

const char *tm_azure_account(const struct tm_azure *azure)
{
    return azure->account;
}
