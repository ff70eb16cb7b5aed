#include "web/gcp_account.h"

#include "base/alloc.h"
#include "base/doc.h"
#include "web/aws_sign.h"

#include <inttypes.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_URI "https://oauth2.googleapis.com/token"

enum { LIFE_S = 3600, CLAIMS_MAX = 4096 };

/* ---- files ---- */

static const char *word_of(const json_t *root, const char *name)
{
    const char *text = json_string_value(json_object_get(root, name));
    return text != NULL && strpbrk(text, "\r\n") == NULL ? text : "";
}

/* False: missing, or too long. */
static bool take(const json_t *root, const char *name, char *out, size_t room)
{
    const char *text = word_of(root, name);
    if (text[0] == '\0' || strlen(text) >= room) return false;
    (void)snprintf(out, room, "%s", text);
    return true;
}

static int take_key(const char *file, const json_t *root, struct tm_gcp__account *out, struct tm_error *e)
{
    const char *pem = json_string_value(json_object_get(root, "private_key"));
    BIO *bio = pem != NULL && strlen(pem) < 65536 ? BIO_new_mem_buf(pem, (int)strlen(pem)) : NULL;
    EVP_PKEY *key = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, NULL, (void *)"") : NULL;
    BIO_free(bio);
    ERR_clear_error();
    out->key = key;
    out->kind = TM_GCP_KEY;
    if (key == NULL || EVP_PKEY_base_id(key) != EVP_PKEY_RSA || EVP_PKEY_size(key) > TM_GCP_SIGNATURE_MAX)
        return tm_error_set(e, TM_EINPUT, "%s: private_key: not an RSA key in PEM; create a new key of the account",
                            file);
    if (!take(root, "client_email", out->email, sizeof out->email))
        return tm_error_set(e, TM_EINPUT, "%s: client_email is missing", file);
    (void)take(root, "private_key_id", out->key_id, sizeof out->key_id);
    if (strpbrk(out->email, "\"\\") != NULL || strpbrk(out->key_id, "\"\\") != NULL)
        return tm_error_set(e, TM_EINPUT, "%s: client_email: not the name of a service account", file);
    return 0;
}

static int take_user(const char *file, const json_t *root, struct tm_gcp__account *out, struct tm_error *e)
{
    out->kind = TM_GCP_USER;
    if (!take(root, "client_id", out->client_id, sizeof out->client_id) ||
        !take(root, "client_secret", out->client_secret, sizeof out->client_secret) ||
        !take(root, "refresh_token", out->refresh, sizeof out->refresh))
        return tm_error_set(e, TM_EINPUT,
                            "%s: client_id, client_secret or refresh_token is missing; run `gcloud auth "
                            "application-default login` again",
                            file);
    return 0;
}

static int take_uri(const char *file, const json_t *root, struct tm_gcp__account *out, struct tm_error *e)
{
    if (out->token_uri[0] == '\0') (void)snprintf(out->token_uri, sizeof out->token_uri, "%s", TOKEN_URI);
    (void)take(root, "token_uri", out->token_uri, sizeof out->token_uri);
    if (strncmp(out->token_uri, "https://", 8) != 0 && strncmp(out->token_uri, "http://", 7) != 0)
        return tm_error_set(e, TM_EINPUT, "%s: token_uri: an address is written as https://HOST/PATH", file);
    if (strpbrk(out->token_uri, "\"\\ ") != NULL)
        return tm_error_set(e, TM_EINPUT, "%s: token_uri: not an address", file);
    return 0;
}

static int take_account(const char *file, const json_t *root, struct tm_gcp__account *out, struct tm_error *e);

/* Who asks in the name of a service account stands inside; one that itself asks in another's name is not known. */
static int take_impersonated(const char *file, const json_t *root, struct tm_gcp__account *out, struct tm_error *e)
{
    const json_t *source = json_object_get(root, "source_credentials");
    if (strcmp(word_of(source, "type"), "impersonated_service_account") == 0)
        return tm_error_set(e, TM_EINPUT, "%s: source_credentials: name those in between as delegates", file);
    int rc = take_account(file, source, out, e);
    if (rc != 0) return tm_error_wrap(e, rc, "source_credentials");
    return tm_gcp__take_impersonation(file, root, out, e);
}

static int take_account(const char *file, const json_t *root, struct tm_gcp__account *out, struct tm_error *e)
{
    const char *type = word_of(root, "type");
    int rc = 0;
    if (strcmp(type, "impersonated_service_account") == 0) return take_impersonated(file, root, out, e);
    if (strcmp(type, "service_account") == 0)
        rc = take_key(file, root, out, e);
    else if (strcmp(type, "authorized_user") == 0)
        rc = take_user(file, root, out, e);
    else if (strcmp(type, "external_account") == 0)
        rc = tm_gcp__take_federation(file, root, out, e);
    else
        rc =
            tm_error_set(e, TM_EINPUT,
                         "%s: credentials of type \"%.60s\" are not supported; use a service account's key, or `gcloud "
                         "auth application-default login`",
                         file, type);
    return rc == 0 ? take_uri(file, root, out, e) : rc;
}

int tm_gcp__read_account(const char *file, const char *text, size_t length, struct tm_gcp__account *out,
                         struct tm_error *e)
{
    json_t *root = NULL;
    struct tm_error own; /* what is wrong in the text may show some of it */
    *out = (struct tm_gcp__account){.kind = TM_GCP_MACHINE};
    int rc = tm_json_load("credentials", text, length, &root, &own);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (rc != 0) return tm_error_set(e, TM_EINPUT, "%s: not JSON", file);
    rc = take_account(file, root, out, e);
    if (rc == 0 && !take(root, "project_id", out->project, sizeof out->project))
        (void)take(root, "quota_project_id", out->project, sizeof out->project);
    json_decref(root);
    if (rc != 0) tm_gcp__account_deinit(out);
    return rc;
}

void tm_gcp__account_deinit(struct tm_gcp__account *account)
{
    EVP_PKEY_free(account->key);
    OPENSSL_cleanse(account, sizeof *account);
}

bool tm_gcp__read_configuration(const char *text, char out[128])
{
    bool core = false;
    while (*text != '\0') {
        size_t length = strcspn(text, "\r\n");
        size_t at = strspn(text, " \t");
        if (at < length && text[at] == '[') core = strncmp(text + at, "[core]", 6) == 0;
        if (core && strncmp(text + at, "project", 7) == 0) {
            size_t value = at + 7 + strspn(text + at + 7, " \t");
            if (text[value] == '=') {
                value += 1 + strspn(text + value + 1, " \t");
                size_t word = strcspn(text + value, " \t\r\n");
                if (word > 0 && word < 128) {
                    (void)snprintf(out, 128, "%.*s", (int)word, text + value);
                    return true;
                }
            }
        }
        text += length;
        text += strspn(text, "\r\n");
    }
    return false;
}

/* ---- tokens ---- */

int tm_gcp__sign(const struct tm_gcp__account *account, const void *data, size_t length,
                 unsigned char out[TM_GCP_SIGNATURE_MAX], size_t *out_length, struct tm_error *e)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    size_t size = TM_GCP_SIGNATURE_MAX;
    bool good = context != NULL && EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, account->key) == 1 &&
                EVP_DigestSign(context, out, &size, data, length) == 1;
    EVP_MD_CTX_free(context);
    ERR_clear_error();
    if (!good) return tm_error_set(e, TM_EIO, "the key of %s cannot sign", account->email);
    *out_length = size;
    return 0;
}

static const char *scope_of(const struct tm_gcp__account *account)
{
    return account->as.url[0] != '\0' ? TM_GCP_IAM_SCOPE : TM_GCP_SCOPE;
}

/* base64url without padding. */
static int put_coded(struct tm_text *out, const void *data, size_t length, struct tm_error *e)
{
    unsigned char *coded = tm_alloc(length / 3 * 4 + 8);
    if (coded == NULL) return tm_error_nomem(e);
    int size = EVP_EncodeBlock(coded, data, (int)length);
    for (int i = 0; i < size && coded[i] != '='; i++)
        tm_text_putc(out, coded[i] == '+' ? '-' : coded[i] == '/' ? '_' : (char)coded[i]);
    tm_free(coded);
    return 0;
}

static int put_part(struct tm_text *out, const struct tm_text *json, struct tm_error *e)
{
    int rc = tm_text_status(json, e);
    return rc == 0 ? put_coded(out, json->data, json->length, e) : rc;
}

/* A JSON Web Token: who asks, for what, and until when, signed. */
static int put_assertion(const struct tm_gcp__account *account, int64_t now_ms, struct tm_text *out, struct tm_error *e)
{
    struct tm_text json;
    unsigned char signature[TM_GCP_SIGNATURE_MAX];
    size_t size = 0;
    size_t from = out->length;
    int64_t now_s = now_ms / 1000;
    tm_text_init(&json, CLAIMS_MAX);
    tm_text_puts(&json, "{\"alg\":\"RS256\",\"typ\":\"JWT\"");
    if (account->key_id[0] != '\0') tm_text_printf(&json, ",\"kid\":\"%s\"", account->key_id);
    tm_text_puts(&json, "}");
    int rc = put_part(out, &json, e);
    tm_text_clear(&json);
    tm_text_printf(
        &json, "{\"iss\":\"%s\",\"scope\":\"%s\",\"aud\":\"" TOKEN_URI "\",\"iat\":%" PRId64 ",\"exp\":%" PRId64 "}",
        account->email, scope_of(account), now_s, now_s + LIFE_S);
    tm_text_putc(out, '.');
    if (rc == 0) rc = put_part(out, &json, e);
    tm_text_deinit(&json);
    if (rc == 0) rc = tm_text_status(out, e);
    if (rc == 0) rc = tm_gcp__sign(account, out->data + from, out->length - from, signature, &size, e);
    tm_text_putc(out, '.');
    return rc == 0 ? put_coded(out, signature, size, e) : rc;
}

static void put_word(struct tm_text *out, const char *name, const char *value)
{
    tm_text_printf(out, "%s=", name);
    tm_percent_encode(value, false, out);
}

static void put_federated(const struct tm_gcp__account *account, const char *subject, struct tm_text *out)
{
    const struct tm_gcp__federation *f = &account->federation;
    tm_text_puts(out, "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange"
                      "&requested_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token");
    put_word(out, "&audience", f->audience);
    put_word(out, "&scope", scope_of(account));
    put_word(out, "&subject_token_type", f->token_type);
    if (f->user_project[0] != '\0' && account->client_id[0] == '\0') {
        put_word(out, "&options", "{\"userProject\": \"");
        tm_percent_encode(f->user_project, false, out);
        tm_text_puts(out, "%22%7D");
    }
    put_word(out, "&subject_token", subject);
}

int tm_gcp__token_form(const struct tm_gcp__account *account, const char *subject, int64_t now_ms, struct tm_text *out,
                       struct tm_error *e)
{
    int rc = 0;
    if (account->kind == TM_GCP_KEY) {
        tm_text_puts(out, "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=");
        rc = put_assertion(account, now_ms, out, e);
    } else if (account->kind == TM_GCP_FEDERATED) {
        put_federated(account, subject, out);
    } else {
        put_word(out, "grant_type=refresh_token&client_id", account->client_id);
        put_word(out, "&client_secret", account->client_secret);
        put_word(out, "&refresh_token", account->refresh);
    }
    return rc == 0 ? tm_text_status(out, e) : rc;
}

int tm_gcp__read_token(const char *text, size_t length, char token[TM_GCP_TOKEN_MAX], int64_t *out_s,
                       struct tm_error *e)
{
    json_t *root = NULL;
    struct tm_error own; /* what is wrong in the text may show some of it */
    int rc = tm_json_load("token", text, length, &root, &own);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    const char *found = rc == 0 ? word_of(root, "access_token") : "";
    const json_t *left = rc == 0 ? json_object_get(root, "expires_in") : NULL;
    int64_t left_s = json_is_integer(left) ? (int64_t)json_integer_value(left) : 0;
    bool good = found[0] != '\0' && left_s > 0 && left_s < 10000000 && strlen(found) < TM_GCP_TOKEN_MAX;
    if (good) {
        (void)snprintf(token, TM_GCP_TOKEN_MAX, "%s", found);
        *out_s = left_s;
    }
    json_decref(root);
    return good ? 0 : tm_error_set(e, TM_EIO, "Google's answer holds no token");
}
