#include "wire/tls_internal.h"

#include "base/address.h"
#include "base/alloc.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

enum { PEM_MAX = 1 << 16, PATH_BYTES = 4096, READ_BYTES = 1 << 14 };

int tm_tls__failed(struct tm_error *e, enum tm_code code, const char *what)
{
    char text[256];
    ERR_error_string_n(ERR_get_error(), text, sizeof text);
    ERR_clear_error();
    return tm_error_set(e, code, "%s: %s", what, text);
}

/* ---- a job's certificates ---- */

static bool add_extension(X509 *certificate, X509 *issuer, int kind, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    bool good = extension != NULL && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

/* Host names as DNS has them, and nothing that would be read as more than one. */
static bool is_host_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    return text[0] != '\0' && strlen(text) < 254 && strspn(text, allowed) == strlen(text);
}

/* "DNS:coordinator.tidemill,IP:10.0.0.1" */
static void print_names(const struct tm_tls_member *member, struct tm_text *out)
{
    for (size_t i = 0; i < TM_TLS_NAMES_MAX; i++) {
        const char *name = member->names[i];
        if (name == NULL || tm_host_is_any(name) || strchr(name, '%') != NULL) continue;
        if (!tm_host_is_address(name) && !is_host_name(name)) continue;
        tm_text_printf(out, "%s%s:%s", out->length > 0 ? "," : "", tm_host_is_address(name) ? "IP" : "DNS", name);
    }
}

static bool add_names(X509 *certificate, X509 *issuer, const struct tm_tls_member *member)
{
    struct tm_text names;
    tm_text_init(&names, 4096);
    print_names(member, &names);
    bool good = tm_text_status(&names, NULL) == 0;
    if (good && names.length > 0)
        good = add_extension(certificate, issuer, NID_subject_alt_name, tm_text_string(&names));
    tm_text_deinit(&names);
    return good;
}

/* A certificate for `key`, signed by `signer`; its issuer is itself where `issuer` is NULL. NULL: failed. */
static X509 *make_certificate(struct tm_env *env, EVP_PKEY *key, const struct tm_tls_member *member, X509 *issuer,
                              EVP_PKEY *signer)
{
    X509 *certificate = X509_new();
    if (certificate == NULL) return NULL;
    X509_NAME *subject = X509_get_subject_name(certificate);
    const unsigned char *words = (const unsigned char *)member->subject;
    bool good = X509_set_version(certificate, 2) == 1 &&
                ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), env->random_u64(env) >> 1) == 1 &&
                X509_gmtime_adj(X509_getm_notBefore(certificate), -86400) != NULL &&
                X509_gmtime_adj(X509_getm_notAfter(certificate),
                                86400L * (member->days > 0 ? member->days : TM_TLS_VALID_DAYS)) != NULL &&
                X509_set_pubkey(certificate, key) == 1 &&
                X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, words, -1, -1, 0) == 1 &&
                X509_set_issuer_name(certificate, issuer == NULL ? subject : X509_get_subject_name(issuer)) == 1;
    if (issuer == NULL) {
        good = good && add_extension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
               add_extension(certificate, certificate, NID_key_usage, "critical,keyCertSign");
    } else {
        good = good && add_extension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
               add_extension(certificate, issuer, NID_ext_key_usage, "serverAuth,clientAuth") &&
               add_names(certificate, issuer, member);
    }
    good = good && X509_sign(certificate, signer, EVP_sha256()) > 0;
    if (good) return certificate;
    X509_free(certificate);
    return NULL;
}

static int write_pem(struct tm_env *env, const char *folder, const char *name, X509 *certificate, EVP_PKEY *key,
                     struct tm_error *e)
{
    char path[PATH_BYTES];
    BIO *memory = BIO_new(BIO_s_mem());
    if (memory == NULL) return tm_error_nomem(e);
    bool good = certificate != NULL ? PEM_write_bio_X509(memory, certificate) == 1
                                    : PEM_write_bio_PrivateKey(memory, key, NULL, NULL, 0, NULL, NULL) == 1;
    char *data = NULL;
    long length = BIO_get_mem_data(memory, &data);
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    int rc = 0;
    if (!good) {
        rc = tm_tls__failed(e, TM_EINTERNAL, "making certificates");
    } else {
        unsigned mode = certificate == NULL ? 0600 : 0644; /* keys are for the owner alone */
        rc = env->file_write_mode(env, path, mode, data, (size_t)length, e);
    }
    (void)BIO_free(memory);
    return rc;
}

struct tm_tls_authority {
    EVP_PKEY *key;
    X509 *certificate;
};

void tm_tls_authority_destroy(struct tm_tls_authority *authority)
{
    if (authority == NULL) return;
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->key);
    tm_free(authority);
}

int tm_tls_authority_create(struct tm_env *env, struct tm_tls_authority **out, struct tm_error *e)
{
    struct tm_tls_authority *authority = tm_calloc(1, sizeof *authority);
    if (authority == NULL) return tm_error_nomem(e);
    authority->key = EVP_EC_gen("P-256");
    const struct tm_tls_member self = {.subject = "tidemill job authority"};
    if (authority->key != NULL)
        authority->certificate = make_certificate(env, authority->key, &self, NULL, authority->key);
    if (authority->certificate == NULL) {
        tm_tls_authority_destroy(authority);
        return tm_tls__failed(e, TM_EINTERNAL, "making certificates");
    }
    *out = authority;
    return 0;
}

int tm_tls_authority_issue(struct tm_tls_authority *authority, struct tm_env *env, const char *folder,
                           const struct tm_tls_member *member, struct tm_error *e)
{
    int rc = 0;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = key == NULL ? NULL : make_certificate(env, key, member, authority->certificate, authority->key);
    if (certificate == NULL) rc = tm_tls__failed(e, TM_EINTERNAL, "making certificates");
    if (rc == 0) rc = write_pem(env, folder, "node.key", NULL, key, e);
    if (rc == 0) rc = write_pem(env, folder, "node.pem", certificate, NULL, e);
    if (rc == 0) rc = write_pem(env, folder, "ca.pem", authority->certificate, NULL, e);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return rc;
}

int tm_tls__hash(const X509 *certificate, uint8_t out[TM_TLS_FINGERPRINT_BYTES])
{
    unsigned length = 0;
    bool good =
        X509_digest(certificate, EVP_sha256(), out, &length) == 1 && length == (unsigned)TM_TLS_FINGERPRINT_BYTES;
    return good ? 0 : -(int)TM_EINTERNAL;
}

int tm_tls_authority_fingerprint(const struct tm_tls_authority *authority, uint8_t out[TM_TLS_FINGERPRINT_BYTES],
                                 struct tm_error *e)
{
    return tm_tls__hash(authority->certificate, out) == 0 ? 0
                                                          : tm_tls__failed(e, TM_EINTERNAL, "hashing a certificate");
}

static int put_certificate(X509 *certificate, struct tm_text *out, struct tm_error *e)
{
    BIO *memory = BIO_new(BIO_s_mem());
    if (memory == NULL) return tm_error_nomem(e);
    int rc =
        PEM_write_bio_X509(memory, certificate) == 1 ? 0 : tm_tls__failed(e, TM_EINTERNAL, "writing a certificate");
    char *data = NULL;
    long length = BIO_get_mem_data(memory, &data);
    if (rc == 0) tm_text_append(out, data, (size_t)length);
    (void)BIO_free(memory);
    return rc == 0 ? tm_text_status(out, e) : rc;
}

static bool is_p256(const EVP_PKEY *key)
{
    char group[32] = "";
    return EVP_PKEY_is_a(key, "EC") == 1 && EVP_PKEY_get_group_name(key, group, sizeof group, NULL) == 1 &&
           strcmp(group, "prime256v1") == 0;
}

int tm_tls_authority_sign(struct tm_tls_authority *authority, struct tm_env *env, const void *public_key, size_t length,
                          const struct tm_tls_member *member, struct tm_text *certificate, struct tm_text *ca,
                          struct tm_error *e)
{
    const unsigned char *at = public_key;
    EVP_PKEY *key = length <= 4096 ? d2i_PUBKEY(NULL, &at, (long)length) : NULL;
    bool good = key != NULL && is_p256(key) && at == (const unsigned char *)public_key + length;
    ERR_clear_error();
    X509 *made = good ? make_certificate(env, key, member, authority->certificate, authority->key) : NULL;
    int rc = 0;
    if (!good) rc = tm_error_set(e, TM_EINPUT, "not a public key of P-256");
    if (good && made == NULL) rc = tm_tls__failed(e, TM_EINTERNAL, "making a certificate");
    if (rc == 0) rc = put_certificate(made, certificate, e);
    if (rc == 0) rc = put_certificate(authority->certificate, ca, e);
    X509_free(made);
    EVP_PKEY_free(key);
    return rc;
}

int tm_tls_make_key(struct tm_text *private_key, struct tm_text *public_key, struct tm_error *e)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    BIO *memory = BIO_new(BIO_s_mem());
    unsigned char *der = NULL;
    int length = key == NULL ? -1 : i2d_PUBKEY(key, &der);
    bool good = memory != NULL && length > 0 && PEM_write_bio_PrivateKey(memory, key, NULL, NULL, 0, NULL, NULL) == 1;
    if (good) {
        char *data = NULL;
        long bytes = BIO_get_mem_data(memory, &data);
        tm_text_append(private_key, data, (size_t)bytes);
        tm_text_append(public_key, (const char *)der, (size_t)length);
    }
    OPENSSL_free(der);
    (void)BIO_free(memory);
    EVP_PKEY_free(key);
    if (!good) return tm_tls__failed(e, TM_EINTERNAL, "making a key");
    int rc = tm_text_status(private_key, e);
    return rc == 0 ? tm_text_status(public_key, e) : rc;
}

int tm_tls_make_job(struct tm_env *env, const char *folder, struct tm_error *e)
{
    char path[PATH_BYTES];
    struct tm_tls_authority *authority = NULL;
    const struct tm_tls_member all = {.subject = "tidemill job member", .names = {TM_TLS_COORDINATOR}};
    (void)snprintf(path, sizeof path, "%s/ca.pem", folder);
    if (env->file_exists(env, path)) return tm_error_set(e, TM_EEXISTS, "%s: already exists", path);
    int rc = tm_tls_authority_create(env, &authority, e);
    if (rc == 0) rc = tm_tls_authority_issue(authority, env, folder, &all, e);
    tm_tls_authority_destroy(authority);
    return rc;
}

/* ---- loading ---- */

static int read_pem(struct tm_env *env, const char *folder, const char *name, BIO **out, struct tm_error *e)
{
    char path[PATH_BYTES];
    struct tm_text text;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    tm_text_init(&text, PEM_MAX);
    int rc = env->file_read(env, path, &text, e);
    if (rc == 0) {
        BIO *memory = BIO_new(BIO_s_mem());
        if (memory == NULL || BIO_write(memory, tm_text_string(&text), (int)text.length) != (int)text.length) {
            (void)BIO_free(memory);
            rc = tm_error_nomem(e);
        } else {
            *out = memory;
        }
    }
    tm_text_deinit(&text);
    return rc;
}

static bool use_files(SSL_CTX *context, BIO *ca, BIO *certificate, BIO *key)
{
    X509 *authority = PEM_read_bio_X509(ca, NULL, NULL, NULL);
    X509 *own = PEM_read_bio_X509(certificate, NULL, NULL, NULL);
    EVP_PKEY *own_key = PEM_read_bio_PrivateKey(key, NULL, NULL, NULL);
    bool good = authority != NULL && own != NULL && own_key != NULL &&
                X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority) == 1 &&
                SSL_CTX_use_certificate(context, own) == 1 && SSL_CTX_use_PrivateKey(context, own_key) == 1 &&
                SSL_CTX_check_private_key(context) == 1;
    EVP_PKEY_free(own_key);
    X509_free(own);
    X509_free(authority);
    return good;
}

void tm_tls__set_usual(SSL_CTX *context)
{
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_num_tickets(context, 0);
}

int tm_tls_load(struct tm_env *env, const char *folder, struct tm_tls **out, struct tm_error *e)
{
    BIO *ca = NULL;
    BIO *certificate = NULL;
    BIO *key = NULL;
    struct tm_tls *tls = tm_calloc(1, sizeof *tls);
    if (tls == NULL) return tm_error_nomem(e);
    int rc = read_pem(env, folder, "ca.pem", &ca, e);
    if (rc == 0) rc = read_pem(env, folder, "node.pem", &certificate, e);
    if (rc == 0) rc = read_pem(env, folder, "node.key", &key, e);
    if (rc == 0) {
        tls->context = SSL_CTX_new(TLS_method());
        if (tls->context == NULL) rc = tm_error_nomem(e);
    }
    if (rc == 0) {
        bool good = SSL_CTX_set_min_proto_version(tls->context, TLS1_3_VERSION) == 1 &&
                    use_files(tls->context, ca, certificate, key);
        if (!good) rc = tm_tls__failed(e, TM_EINPUT, "certificates of the job");
        SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        tm_tls__set_usual(tls->context);
    }
    (void)BIO_free(key);
    (void)BIO_free(certificate);
    (void)BIO_free(ca);
    if (rc != 0) {
        tm_tls_destroy(tls);
        return tm_error_wrap(e, rc, "%s", folder);
    }
    *out = tls;
    return 0;
}

int tm_tls_load_open(struct tm_env *env, const char *folder, struct tm_tls **out, struct tm_error *e)
{
    struct tm_tls *tls = NULL;
    BIO *ca = NULL;
    int rc = tm_tls_load(env, folder, &tls, e);
    if (rc != 0 || tls == NULL) return rc;
    rc = read_pem(env, folder, "ca.pem", &ca, e);
    X509 *authority = rc == 0 ? PEM_read_bio_X509(ca, NULL, NULL, NULL) : NULL;
    if (rc == 0 && (authority == NULL || SSL_CTX_add1_chain_cert(tls->context, authority) != 1))
        rc = tm_tls__failed(e, TM_EINPUT, "certificates of the job");
    if (rc == 0) {
        SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
        *out = tls;
    } else {
        tm_tls_destroy(tls);
    }
    X509_free(authority);
    (void)BIO_free(ca);
    return rc;
}

/* The server's chain is good if it ends in the authority whose fingerprint we have, whatever else it shows. */
static int verify_pinned(X509_STORE_CTX *store, void *context)
{
    const struct tm_tls *tls = context;
    STACK_OF(X509) *shown = X509_STORE_CTX_get0_untrusted(store);
    uint8_t hash[TM_TLS_FINGERPRINT_BYTES];
    for (int i = 0; shown != NULL && i < sk_X509_num(shown); i++) {
        X509 *certificate = sk_X509_value(shown, i);
        if (tm_tls__hash(certificate, hash) != 0 || memcmp(hash, tls->pinned, sizeof hash) != 0) continue;
        STACK_OF(X509) *trusted = sk_X509_new_null();
        int good = trusted != NULL && sk_X509_push(trusted, certificate) > 0;
        if (good) {
            X509_STORE_CTX_set0_trusted_stack(store, trusted);
            good = X509_verify_cert(store) == 1;
        }
        sk_X509_free(trusted);
        return good;
    }
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_UNTRUSTED);
    return 0;
}

int tm_tls_create_pinned(const uint8_t fingerprint[TM_TLS_FINGERPRINT_BYTES], struct tm_tls **out, struct tm_error *e)
{
    struct tm_tls *tls = tm_calloc(1, sizeof *tls);
    if (tls == NULL) return tm_error_nomem(e);
    memcpy(tls->pinned, fingerprint, sizeof tls->pinned);
    tls->context = SSL_CTX_new(TLS_method());
    if (tls->context == NULL || SSL_CTX_set_min_proto_version(tls->context, TLS1_3_VERSION) != 1) {
        tm_tls_destroy(tls);
        return tm_tls__failed(e, TM_EINTERNAL, "TLS");
    }
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_cert_verify_callback(tls->context, verify_pinned, tls);
    tm_tls__set_usual(tls->context);
    *out = tls;
    return 0;
}

void tm_tls_destroy(struct tm_tls *tls)
{
    if (tls == NULL) return;
    SSL_CTX_free(tls->context);
    tm_free(tls);
}

/* ---- sessions ---- */

/* Either of them will do: OpenSSL compares with the certificate's names, and not with its subject. */
static bool expect_names(SSL *ssl, const char *name, const char *host)
{
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_WILDCARDS);
    return (name == NULL || SSL_add1_host(ssl, name) == 1) && (host == NULL || SSL_add1_host(ssl, host) == 1);
}

struct tm_tls_session *tm_tls_session_create(struct tm_tls *tls, bool server, const char *name, const char *host)
{
    struct tm_tls_session *session = tm_calloc(1, sizeof *session);
    if (session == NULL) return NULL;
    tm_text_init(&session->pending, 64 << 20);
    session->ssl = SSL_new(tls->context);
    session->in = BIO_new(BIO_s_mem());
    session->out = BIO_new(BIO_s_mem());
    if (session->ssl == NULL || session->in == NULL || session->out == NULL ||
        !expect_names(session->ssl, name, host)) {
        SSL_free(session->ssl);
        (void)BIO_free(session->in);
        (void)BIO_free(session->out);
        tm_free(session);
        return NULL;
    }
    SSL_set_bio(session->ssl, session->in, session->out);
    if (server)
        SSL_set_accept_state(session->ssl);
    else
        SSL_set_connect_state(session->ssl);
    int rc = SSL_do_handshake(session->ssl);
    bool begun = SSL_get_error(session->ssl, rc) == SSL_ERROR_WANT_READ; /* for the other side's word */
    ERR_clear_error();
    if (begun) return session;
    tm_tls_session_destroy(session);
    return NULL;
}

void tm_tls_session_destroy(struct tm_tls_session *session)
{
    if (session == NULL) return;
    tm_text_deinit(&session->pending);
    SSL_free(session->ssl);
    tm_free(session);
}

static int push_pending(struct tm_tls_session *session)
{
    int rc = 0;
    while (rc == 0 && SSL_is_init_finished(session->ssl) == 1 && session->pending.length > 0) {
        size_t done = 0; /* memory takes all: nothing has to wait, so what fails is out of memory or at its end */
        if (SSL_write_ex(session->ssl, session->pending.data, session->pending.length, &done) != 1) rc = -(int)TM_EPEER;
        memmove(session->pending.data, session->pending.data + done, session->pending.length - done);
        session->pending.length -= done;
    }
    ERR_clear_error();
    return rc;
}

int tm_tls_session_write(struct tm_tls_session *session, const void *plain, size_t length)
{
    tm_text_append(&session->pending, plain, length);
    if (session->pending.failed != 0) return session->pending.failed;
    return push_pending(session);
}

void tm_tls_session_output(struct tm_tls_session *session, struct tm_text *out)
{
    char buffer[READ_BYTES];
    size_t got = 0;
    while (BIO_read_ex(session->out, buffer, sizeof buffer, &got) == 1)
        tm_text_append(out, buffer, got);
    ERR_clear_error();
}

int tm_tls_session_input(struct tm_tls_session *session, const void *raw, size_t length, struct tm_text *plain)
{
    char buffer[READ_BYTES];
    size_t got = 0;
    if (BIO_write(session->in, raw, (int)length) != (int)length) return -(int)TM_ENOMEM;
    int rc = SSL_is_init_finished(session->ssl) == 1 ? 1 : SSL_do_handshake(session->ssl);
    if (rc == 1) {
        if (push_pending(session) != 0) return -(int)TM_EPEER;
        while ((rc = SSL_read_ex(session->ssl, buffer, sizeof buffer, &got)) == 1)
            tm_text_append(plain, buffer, got);
    }
    int why = SSL_get_error(session->ssl, rc);
    ERR_clear_error();
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? 0 : -(int)TM_EPEER;
}

bool tm_tls_session__is_ready(const struct tm_tls_session *session)
{
    return SSL_is_init_finished(session->ssl) == 1;
}

bool tm_tls_session_is_member(const struct tm_tls_session *session)
{
    return tm_tls_session__is_ready(session) && SSL_get0_peer_certificate(session->ssl) != NULL &&
           SSL_get_verify_result(session->ssl) == X509_V_OK;
}

bool tm_tls_session_has_name(const struct tm_tls_session *session, const char *name)
{
    X509 *certificate = tm_tls_session_is_member(session) ? SSL_get0_peer_certificate(session->ssl) : NULL;
    bool has = certificate != NULL && X509_check_host(certificate, name, strlen(name), 0, NULL) == 1;
    ERR_clear_error();
    return has;
}

int tm_tls_session_binding(const struct tm_tls_session *session, uint8_t out[TM_TLS_BINDING_BYTES])
{
    static const char label[] = "EXPORTER-tidemill-link";
    int rc = SSL_export_keying_material(session->ssl, out, TM_TLS_BINDING_BYTES, label, strlen(label), NULL, 0, 0);
    ERR_clear_error();
    return rc == 1 ? 0 : -(int)TM_EPEER;
}
