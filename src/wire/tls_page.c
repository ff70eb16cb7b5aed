#include "wire/tls_page.h"

#include "base/alloc.h"
#include "wire/tls_internal.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>

enum { PEM_MAX = 1 << 20, PATH_BYTES = 4096, CHAIN_MAX = 16 };

/* ---- servers ---- */

static int read_file(struct tm_env *env, const char *path, BIO **out, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, PEM_MAX);
    int rc = env->file_read(env, path, &text, e);
    BIO *memory = rc == 0 ? BIO_new(BIO_s_mem()) : NULL;
    if (rc == 0 && (memory == NULL || BIO_write(memory, tm_text_string(&text), (int)text.length) != (int)text.length)) {
        (void)BIO_free(memory);
        rc = tm_error_nomem(e);
    } else {
        *out = memory;
    }
    tm_text_deinit(&text);
    return rc;
}

/* Its own, then those that vouch for it. */
static bool use_chain(SSL_CTX *context, BIO *file)
{
    X509 *own = PEM_read_bio_X509(file, NULL, NULL, NULL);
    bool good = own != NULL && SSL_CTX_use_certificate(context, own) == 1;
    X509_free(own);
    for (int i = 0; good && i < CHAIN_MAX; i++) {
        X509 *next = PEM_read_bio_X509(file, NULL, NULL, NULL);
        if (next == NULL) break;
        good = SSL_CTX_add1_chain_cert(context, next) == 1;
        X509_free(next);
    }
    if (good) ERR_clear_error(); /* the end of the file */
    return good;
}

static bool use_key(SSL_CTX *context, BIO *file)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(file, NULL, NULL, NULL);
    bool good = key != NULL && SSL_CTX_use_PrivateKey(context, key) == 1 && SSL_CTX_check_private_key(context) == 1;
    EVP_PKEY_free(key);
    return good;
}

static int no_password(char *buffer, int size, int writes, void *context)
{
    (void)buffer;
    (void)size;
    (void)writes;
    (void)context;
    return -1; /* nobody is asked on the terminal */
}

int tm_tls_load_server(struct tm_env *env, const char *certificate, const char *key, struct tm_tls **out,
                       struct tm_error *e)
{
    BIO *certificates = NULL, *private_key = NULL;
    struct tm_tls *tls = tm_calloc(1, sizeof *tls);
    if (tls == NULL) return tm_error_nomem(e);
    int rc = read_file(env, certificate, &certificates, e);
    if (rc == 0) rc = read_file(env, key, &private_key, e);
    if (rc == 0) {
        tls->context = SSL_CTX_new(TLS_server_method());
        if (tls->context == NULL || SSL_CTX_set_min_proto_version(tls->context, TLS1_3_VERSION) != 1)
            rc = tm_tls__failed(e, TM_EINTERNAL, "TLS");
    }
    if (rc == 0) {
        SSL_CTX_set_default_passwd_cb(tls->context, no_password);
        tm_tls__set_usual(tls->context);
        if (!use_chain(tls->context, certificates))
            rc = tm_error_wrap(e, tm_tls__failed(e, TM_EINPUT, "not a certificate (PEM)"), "%s", certificate);
        else if (!use_key(tls->context, private_key))
            rc = tm_error_wrap(
                e, tm_tls__failed(e, TM_EINPUT, "not the key of that certificate (PEM, without password)"), "%s", key);
    }
    (void)BIO_free(certificates);
    (void)BIO_free(private_key);
    if (rc != 0)
        tm_tls_destroy(tls);
    else
        *out = tls;
    return rc;
}

static bool is_expired(const struct tm_tls *tls)
{
    const X509 *own = SSL_CTX_get0_certificate(tls->context);
    return X509_cmp_current_time(X509_get0_notAfter(own)) <= 0;
}

static int make(struct tm_env *env, const char *folder, const char *const names[TM_TLS_NAMES_MAX], struct tm_error *e)
{
    struct tm_tls_authority *authority = NULL;
    struct tm_tls_member page = {.subject = "tidemill dashboard", .days = TM_TLS_PAGE_DAYS};
    for (size_t i = 0; i < TM_TLS_NAMES_MAX && names[i] != NULL; i++)
        page.names[i] = names[i];
    int rc = tm_tls_authority_create(env, &authority, e);
    if (rc == 0) rc = tm_tls_authority_issue(authority, env, folder, &page, e);
    tm_tls_authority_destroy(authority);
    return rc;
}

int tm_tls_load_or_make_server(struct tm_env *env, const char *folder, const char *const names[TM_TLS_NAMES_MAX],
                               struct tm_tls **out, struct tm_error *e)
{
    char certificate[PATH_BYTES], key[PATH_BYTES];
    struct tm_tls *tls = NULL;
    int rc = 0;
    (void)snprintf(certificate, sizeof certificate, "%s/node.pem", folder);
    (void)snprintf(key, sizeof key, "%s/node.key", folder);
    bool there = env->file_exists(env, certificate) && env->file_exists(env, key);
    if (there) rc = tm_tls_load_server(env, certificate, key, &tls, e);
    if (rc != 0) return rc;
    if (!there || is_expired(tls)) {
        tm_tls_destroy(tls);
        tls = NULL;
        rc = make(env, folder, names, e);
        if (rc == 0) rc = tm_tls_load_server(env, certificate, key, &tls, e);
    }
    if (rc == 0) *out = tls;
    return rc;
}

/* ---- fingerprints ---- */

void tm_tls_print_fingerprint(const struct tm_tls *tls, char out[TM_TLS_FINGERPRINT_TEXT_MAX])
{
    uint8_t hash[TM_TLS_FINGERPRINT_BYTES] = {0};
    const X509 *own = SSL_CTX_get0_certificate(tls->context);
    if (own != NULL) (void)tm_tls__hash(own, hash);
    for (size_t i = 0; i < sizeof hash; i++)
        (void)snprintf(out + 3 * i, 4, i + 1 < sizeof hash ? "%02X:" : "%02X", hash[i]);
}

static int digit_of(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = c == '\0' ? NULL : strchr(digits, c);
    return at == NULL ? -1 : (int)((at - digits) % 16);
}

bool tm_tls_read_fingerprint(const char *text, uint8_t out[TM_TLS_FINGERPRINT_BYTES])
{
    for (size_t i = 0; i < TM_TLS_FINGERPRINT_BYTES; i++) {
        if (i > 0 && *text == ':') text++;
        int high = digit_of(text[0]);
        int low = high < 0 ? -1 : digit_of(text[1]);
        if (low < 0) return false;
        out[i] = (uint8_t)(high * 16 + low);
        text += 2;
    }
    return *text == '\0';
}

/* ---- clients ---- */

/* It is the one whose fingerprint we have; that it has the key is what TLS shows. */
static int verify_own(X509_STORE_CTX *store, void *context)
{
    const struct tm_tls *tls = context;
    uint8_t hash[TM_TLS_FINGERPRINT_BYTES];
    const X509 *shown = X509_STORE_CTX_get0_cert(store);
    bool same = shown != NULL && tm_tls__hash(shown, hash) == 0 && memcmp(hash, tls->pinned, sizeof hash) == 0;
    X509_STORE_CTX_set_error(store, same ? X509_V_OK : X509_V_ERR_CERT_UNTRUSTED);
    return same;
}

int tm_tls_create_client(const uint8_t *fingerprint, struct tm_tls **out, struct tm_error *e)
{
    struct tm_tls *tls = tm_calloc(1, sizeof *tls);
    if (tls == NULL) return tm_error_nomem(e);
    tls->context = SSL_CTX_new(TLS_client_method());
    if (tls->context == NULL || SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION) != 1 ||
        (fingerprint == NULL && SSL_CTX_set_default_verify_paths(tls->context) != 1)) {
        tm_tls_destroy(tls);
        return tm_tls__failed(e, TM_EINTERNAL, "TLS");
    }
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    if (fingerprint != NULL) {
        memcpy(tls->pinned, fingerprint, sizeof tls->pinned);
        SSL_CTX_set_cert_verify_callback(tls->context, verify_own, tls);
    }
    tm_tls__set_usual(tls->context);
    *out = tls;
    return 0;
}
