#include "web/azure.h"

#include "base/alloc.h"
#include "web/azure_delegation.h"
#include "web/azure_identity.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEY_MAX = 128, PAIRS = 16 };

#define VERSION "2021-12-02"

struct tm_azure {
    struct tm_env *env;
    _Atomic int64_t ahead_ms; /* the service's clock is so much ahead of ours */
    char account[64];
    char endpoint[512]; /* "https://HOST", or "http://HOST:PORT/ACCOUNT" */
    unsigned char key[KEY_MAX];
    size_t key_length; /* 0: none */
    char sas[2048];    /* "": none */
    struct tm_azure_identity identity;
    struct tm_azure_delegation delegation; /* where there is neither key nor SAS */
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

int64_t tm_azure__now_ms(const struct tm_azure *azure)
{
    return azure->env->now_ms(azure->env) + atomic_load(&azure->ahead_ms);
}

/* ---- signatures ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tm_web_pair *)a)->name, ((const struct tm_web_pair *)b)->name);
}

/* What is posted are words, and in XML. */
static const char *type_of(const struct tm_azure_request *r)
{
    return strcmp(r->method, "POST") == 0 ? "application/xml" : "application/octet-stream";
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
    tm_text_printf(out, "\n\n%s\n\n\n%s\n%s\n\n\n", r->body != NULL ? type_of(r) : "", header_of(r, "if-match"),
                   header_of(r, "if-none-match"));
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
    time_t now = (time_t)(tm_azure__now_ms(azure) / 1000);
    (void)gmtime_r(&now, &tm);
    (void)strftime(time, sizeof time, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    tm_text_init(&path, 4096);
    encode_path(r, &path);
    size_t origin = strcspn(strstr(azure->endpoint, "://") + 3, "/") +
                    (size_t)(strstr(azure->endpoint, "://") + 3 - azure->endpoint);
    tm_text_printf(url, "%.*s%s", (int)origin, azure->endpoint, tm_text_string(&path));
    add_query(r, url);
    tm_text_printf(headers, "x-ms-date: %s\nx-ms-version: " VERSION "\n", time);
    if (r->body != NULL) tm_text_printf(headers, "Content-Type: %s\n", type_of(r));
    for (size_t i = 0; i < r->header_count; i++)
        tm_text_printf(headers, "%s: %s\n", r->headers[i].name, r->headers[i].value);
    int rc = tm_text_status(&path, e);
    if (rc == 0 && azure->key_length > 0) rc = add_signature(r, tm_text_string(&path), time, headers, e);
    if (rc == 0 && azure->key_length == 0 && azure->sas[0] == '\0')
        rc = tm_azure_identity__add(&azure->identity, headers, e);
    tm_text_deinit(&path);
    return rc;
}

/* A token may have ended before its time; and a signature holds the time. */
static bool again(void *context, const struct tm_web_answer *answer)
{
    struct tm_azure_request *r = context;
    if (answer->status == 403 && r->azure->key_length > 0)
        return tm_web__set_clock(r->azure->env, answer, &r->azure->ahead_ms);
    if (answer->status != 401 || r->renewed || r->azure->key_length > 0 || r->azure->sas[0] != '\0') return false;
    r->renewed = true;
    tm_azure_identity__forget(&r->azure->identity);
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

/* ---- URLs ---- */

/* A SAS of one blob: by the account's key, or (`by` not NULL) by a user delegation key, which it names. */
static int sign_url(const struct tm_azure *azure, const struct tm_azure_delegated *by, const char *permission,
                    const char *until, const char *path, unsigned char base64[EVP_MAX_MD_SIZE * 2], struct tm_error *e)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    struct tm_text text;
    tm_text_init(&text, 8192);
    tm_text_printf(&text, "%s\n\n%s\n/blob/%s%s\n", permission, until, azure->account, path);
    if (by != NULL)
        tm_text_printf(&text, "%s\n%s\n%s\n%s\n%s\n%s\n\n\n", by->object, by->tenant, by->start, by->expiry,
                       by->service, by->version);
    tm_text_printf(&text, "\n\n\n%s\nb\n\n\n\n\n\n\n", VERSION);
    int rc = tm_text_status(&text, e);
    if (rc == 0) {
        const unsigned char *key = by != NULL ? by->key : azure->key;
        size_t length = by != NULL ? by->key_length : azure->key_length;
        (void)HMAC(EVP_sha256(), key, (int)length, (const unsigned char *)text.data, text.length, digest, &size);
        (void)EVP_EncodeBlock(base64, digest, (int)size);
    }
    tm_text_deinit(&text);
    return rc;
}

static void put_delegated(const struct tm_azure_delegated *by, struct tm_text *out)
{
    const struct tm_web_pair pairs[] = {{"skoid", by->object}, {"sktid", by->tenant}, {"skt", by->start},
                                        {"ske", by->expiry},   {"sks", by->service},  {"skv", by->version}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        tm_text_printf(out, "&%s=", pairs[i].name);
        tm_percent_encode(pairs[i].value, false, out);
    }
}

static int put_url(const struct tm_azure *azure, const struct tm_azure_delegated *by, const char *method,
                   const char *path, int64_t ends_ms, struct tm_text *out, struct tm_error *e)
{
    unsigned char base64[EVP_MAX_MD_SIZE * 2];
    struct tm tm;
    char until[40];
    const char *permission = strcmp(method, "PUT") == 0 ? "cw" : "r";
    time_t ends = (time_t)(ends_ms / 1000);
    (void)gmtime_r(&ends, &tm);
    (void)strftime(until, sizeof until, "%Y-%m-%dT%H:%M:%SZ", &tm);
    int rc = sign_url(azure, by, permission, until, path, base64, e);
    if (rc != 0) return rc;
    tm_text_puts(out, azure->endpoint);
    tm_percent_encode(path, true, out);
    tm_text_puts(out, "?sv=" VERSION "&sr=b&sp=");
    tm_text_printf(out, "%s&se=", permission);
    tm_percent_encode(until, false, out);
    if (by != NULL) put_delegated(by, out);
    tm_text_puts(out, "&sig=");
    tm_percent_encode((const char *)base64, false, out);
    return tm_text_status(out, e);
}

int tm_azure_url(struct tm_azure *azure, const char *method, const char *path, int64_t seconds, struct tm_text *out,
                 struct tm_error *e)
{
    struct tm_azure_delegated by;
    int64_t ends_ms = tm_azure__now_ms(azure) + seconds * 1000;
    if (azure->key_length > 0) return put_url(azure, NULL, method, path, ends_ms, out, e);
    if (azure->sas[0] != '\0')
        return tm_error_set(e, TM_EINPUT,
                            "a SAS cannot sign the URLs by which VMs fetch single blobs: set AZURE_STORAGE_KEY, or "
                            "unset the SAS to use a login");
    int rc = tm_azure_delegation__get(&azure->delegation, false, &by, e);
    if (rc == 0) rc = put_url(azure, &by, method, path, ends_ms < by.ends_ms ? ends_ms : by.ends_ms, out, e);
    OPENSSL_cleanse(&by, sizeof by);
    return rc;
}

int tm_azure_await_key(struct tm_azure *azure, struct tm_error *e)
{
    struct tm_azure_delegated by;
    if (azure->key_length > 0 || azure->sas[0] != '\0') return 0;
    int rc = tm_azure_delegation__get(&azure->delegation, true, &by, e);
    OPENSSL_cleanse(&by, sizeof by);
    return rc;
}

/* ---- the account ---- */

int tm_azure_create(struct tm_env *env, struct tm_azure **out, struct tm_error *e)
{
    assert(env != NULL);
    struct tm_azure *azure = tm_calloc(1, sizeof *azure);
    if (azure == NULL) return tm_error_nomem(e);
    azure->env = env;
    tm_azure_identity__init(&azure->identity, env, "https://storage.azure.com");
    tm_azure_delegation__init(&azure->delegation, env, azure);
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
    tm_azure_delegation__deinit(&azure->delegation);
    tm_azure_identity__deinit(&azure->identity);
    OPENSSL_cleanse(azure, sizeof *azure);
    tm_free(azure);
}

const char *tm_azure_account(const struct tm_azure *azure)
{
    return azure->account;
}

const char *tm_azure_endpoint(const struct tm_azure *azure)
{
    return azure->endpoint;
}
