#include "web/aws_sign.h"

#include "base/calendar.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGEST = 32, CANONICAL_MAX = 1 << 18, HEADERS_MAX = 32 };

/* ---- pieces ---- */

static void to_hex(const unsigned char digest[DIGEST], char out[TM_SHA256_HEX])
{
    for (size_t i = 0; i < DIGEST; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

void tm_sha256_hex(const void *data, size_t length, char out[TM_SHA256_HEX])
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    unsigned size = 0;
    (void)EVP_Digest(data, length, digest, &size, EVP_sha256(), NULL);
    to_hex(digest, out);
}

static void hmac(const void *key, size_t key_length, const char *text, unsigned char out[DIGEST])
{
    unsigned size = 0;
    (void)HMAC(EVP_sha256(), key, (int)key_length, (const unsigned char *)text, strlen(text), out, &size);
}

void tm_percent_encode(const char *text, bool keep_slash, struct tm_text *out)
{
    for (const char *at = text; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                     strchr("-._~", c) != NULL || (keep_slash && c == '/');
        if (plain)
            tm_text_putc(out, (char)c);
        else
            tm_text_printf(out, "%%%02X", c);
    }
}

/* "20150830T123600Z" */
static void print_time(int64_t time_ms, char out[24])
{
    char iso[TM_CALENDAR_TEXT_MAX];
    size_t used = 0;
    (void)tm_calendar_print(time_ms / 1000 * 1000, iso);
    for (const char *at = iso; *at != '\0' && used < 23; at++)
        if (*at != '-' && *at != ':') out[used++] = *at;
    out[used] = '\0';
}

/* ---- the query: sorted by name, then by value, as they are encoded ---- */

struct encoded {
    size_t name; /* where they begin in the text; each ends in NUL */
    size_t value;
    const char *base;
};

static int by_name_and_value(const void *a, const void *b)
{
    const struct encoded *x = a;
    const struct encoded *y = b;
    int names = strcmp(x->base + x->name, y->base + y->name);
    return names != 0 ? names : strcmp(x->base + x->value, y->base + y->value);
}

static int put_query(const struct tm_web_pair *pairs, size_t count, struct tm_text *out, struct tm_error *e)
{
    struct encoded list[TM_AWS_PAIRS_MAX];
    struct tm_text text;
    if (count > TM_AWS_PAIRS_MAX)
        return tm_error_set(e, TM_ELIMIT, "a request with more than %d parameters", TM_AWS_PAIRS_MAX);
    tm_text_init(&text, CANONICAL_MAX);
    for (size_t i = 0; i < count; i++) {
        list[i].name = text.length;
        tm_percent_encode(pairs[i].name, false, &text);
        tm_text_append(&text, "", 1);
        list[i].value = text.length;
        tm_percent_encode(pairs[i].value, false, &text);
        tm_text_append(&text, "", 1);
    }
    int rc = tm_text_status(&text, e);
    for (size_t i = 0; i < count; i++)
        list[i].base = text.data;
    if (rc == 0 && count > 1) qsort(list, count, sizeof *list, by_name_and_value);
    for (size_t i = 0; rc == 0 && i < count; i++)
        tm_text_printf(out, "%s%s=%s", i == 0 ? "" : "&", text.data + list[i].name, text.data + list[i].value);
    tm_text_deinit(&text);
    return rc;
}

/* ---- the signature ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tm_web_pair *)a)->name, ((const struct tm_web_pair *)b)->name);
}

struct scope {
    char time[24];
    char text[160]; /* DATE/REGION/SERVICE/aws4_request */
};

static void make_scope(const struct tm_aws_signed *r, struct scope *out)
{
    print_time(r->time_ms, out->time);
    (void)snprintf(out->text, sizeof out->text, "%.8s/%.64s/%.32s/aws4_request", out->time, r->region, r->service);
}

static void put_names(const struct tm_web_pair *headers, size_t count, struct tm_text *out)
{
    for (size_t i = 0; i < count; i++)
        tm_text_printf(out, "%s%s", i == 0 ? "" : ";", headers[i].name);
}

static void sign_text(const struct tm_aws_signed *r, const struct tm_aws_keys *keys, const struct scope *scope,
                      const struct tm_text *canonical, char out[TM_SHA256_HEX])
{
    char hash[TM_SHA256_HEX];
    char to_sign[320];
    char first[sizeof keys->secret + 4];
    char date[9];
    unsigned char key[DIGEST];
    tm_sha256_hex(canonical->data, canonical->length, hash);
    (void)snprintf(to_sign, sizeof to_sign, "AWS4-HMAC-SHA256\n%s\n%s\n%s", scope->time, scope->text, hash);
    (void)snprintf(first, sizeof first, "AWS4%s", keys->secret);
    (void)snprintf(date, sizeof date, "%.8s", scope->time);
    hmac(first, strlen(first), date, key);
    hmac(key, DIGEST, r->region, key);
    hmac(key, DIGEST, r->service, key);
    hmac(key, DIGEST, "aws4_request", key);
    hmac(key, DIGEST, to_sign, key);
    to_hex(key, out);
    OPENSSL_cleanse(first, sizeof first);
}

/* `target` is path and query as they are sent; the query begins at `query`. */
static int sign(const struct tm_aws_signed *r, const struct tm_aws_keys *keys, const struct scope *scope,
                const char *target, const struct tm_web_pair *headers, size_t count, char out[TM_SHA256_HEX],
                struct tm_error *e)
{
    struct tm_text text;
    const char *query = strchr(target, '?');
    tm_text_init(&text, CANONICAL_MAX);
    tm_text_printf(&text, "%s\n", r->method);
    tm_text_append(&text, target, query == NULL ? strlen(target) : (size_t)(query - target));
    tm_text_printf(&text, "\n%s\n", query == NULL ? "" : query + 1);
    for (size_t i = 0; i < count; i++)
        tm_text_printf(&text, "%s:%s\n", headers[i].name, headers[i].value);
    tm_text_putc(&text, '\n');
    put_names(headers, count, &text);
    tm_text_printf(&text, "\n%s", r->payload);
    int rc = tm_text_status(&text, e);
    if (rc == 0) sign_text(r, keys, scope, &text, out);
    tm_text_deinit(&text);
    return rc;
}

static int put_target(const struct tm_aws_signed *r, const struct tm_web_pair *query, size_t count,
                      struct tm_text *target, struct tm_error *e)
{
    tm_percent_encode(r->path, true, target);
    if (count > 0) tm_text_putc(target, '?');
    int rc = put_query(query, count, target, e);
    return rc == 0 ? tm_text_status(target, e) : rc;
}

int tm_aws_sign(const struct tm_aws_signed *r, const struct tm_aws_keys *keys, struct tm_text *target,
                struct tm_text *headers, struct tm_error *e)
{
    assert(r->path[0] == '/');
    struct tm_web_pair all[HEADERS_MAX];
    struct scope scope;
    char signature[TM_SHA256_HEX];
    size_t count = 0;
    size_t from = target->length;
    if (r->header_count + 4 > HEADERS_MAX)
        return tm_error_set(e, TM_ELIMIT, "a request with more than %d headers", HEADERS_MAX);
    make_scope(r, &scope);
    all[count++] = (struct tm_web_pair){"host", r->host};
    all[count++] = (struct tm_web_pair){"x-amz-date", scope.time};
    if (r->payload_header) all[count++] = (struct tm_web_pair){"x-amz-content-sha256", r->payload};
    if (keys->token[0] != '\0') all[count++] = (struct tm_web_pair){"x-amz-security-token", keys->token};
    for (size_t i = 0; i < r->header_count; i++)
        all[count++] = r->headers[i];
    qsort(all, count, sizeof *all, by_name);
    int rc = put_target(r, r->query, r->query_count, target, e);
    if (rc == 0) rc = sign(r, keys, &scope, target->data + from, all, count, signature, e);
    if (rc != 0) return rc;
    for (size_t i = 0; i < count; i++)
        tm_text_printf(headers, "%s: %s\n", all[i].name, all[i].value);
    tm_text_printf(headers, "authorization: AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=", keys->id, scope.text);
    put_names(all, count, headers);
    tm_text_printf(headers, ", Signature=%s\n", signature);
    return tm_text_status(headers, e);
}

int tm_aws_presign(const struct tm_aws_signed *r, const struct tm_aws_keys *keys, int64_t seconds,
                   struct tm_text *target, struct tm_error *e)
{
    struct tm_web_pair query[HEADERS_MAX];
    const struct tm_web_pair host = {"host", r->host};
    struct tm_aws_signed own = *r;
    struct scope scope;
    char credential[352];
    char expires[24];
    char signature[TM_SHA256_HEX];
    size_t count = 0;
    size_t from = target->length;
    if (r->query_count + 6 > HEADERS_MAX)
        return tm_error_set(e, TM_ELIMIT, "a presigned URL with more than %d parameters", HEADERS_MAX - 6);
    make_scope(r, &scope);
    own.payload = TM_AWS_UNSIGNED;
    (void)snprintf(credential, sizeof credential, "%s/%s", keys->id, scope.text);
    (void)snprintf(expires, sizeof expires, "%lld", (long long)seconds);
    for (size_t i = 0; i < r->query_count; i++)
        query[count++] = r->query[i];
    query[count++] = (struct tm_web_pair){"X-Amz-Algorithm", "AWS4-HMAC-SHA256"};
    query[count++] = (struct tm_web_pair){"X-Amz-Credential", credential};
    query[count++] = (struct tm_web_pair){"X-Amz-Date", scope.time};
    query[count++] = (struct tm_web_pair){"X-Amz-Expires", expires};
    query[count++] = (struct tm_web_pair){"X-Amz-SignedHeaders", "host"};
    if (keys->token[0] != '\0') query[count++] = (struct tm_web_pair){"X-Amz-Security-Token", keys->token};
    int rc = put_target(r, query, count, target, e);
    if (rc == 0) rc = sign(&own, keys, &scope, target->data + from, &host, 1, signature, e);
    if (rc == 0) tm_text_printf(target, "&X-Amz-Signature=%s", signature);
    return rc == 0 ? tm_text_status(target, e) : rc;
}
