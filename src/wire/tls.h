/* TLS 1.3 with certificates of the job on both sides (OpenSSL). Bytes in, bytes out: no sockets here.
 *
 * Each job has its own certificate authority, made when the job is. Each member has a key and a certificate that is
 * valid for some weeks; only members can connect. A certificate names what it is for (subject alternative names): the
 * coordinator's has TM_TLS_COORDINATOR and the hosts where it is reached, so no other member can pass for it. Whether a
 * member may then join is decided by the join token: link_proof.h. */
#ifndef TM_WIRE_TLS_H
#define TM_WIRE_TLS_H

#include "base/env.h"

#include <stddef.h>
#include <stdint.h>

struct tm_tls;
struct tm_tls_session;

enum { TM_TLS_BINDING_BYTES = 32, TM_TLS_FINGERPRINT_BYTES = 32 };

/* A job's authority. Its key is only in the memory of the process that made it: when that ends, no more certificates of
 * this authority can be made. */
struct tm_tls_authority;
enum { TM_TLS_VALID_DAYS = 30, TM_TLS_NAMES_MAX = 4 };

/* What the coordinator's certificate is called, wherever it runs. */
#define TM_TLS_COORDINATOR "coordinator.tidemill"
#define TM_TLS_OFFICE      "office.tidemill" /* run/office.h */

/* For whom a certificate is. */
struct tm_tls_member {
    const char *subject;
    /* Names and IP addresses; NULL and what is neither (a wildcard address, a scope) are left out. */
    const char *names[TM_TLS_NAMES_MAX];
    int days; /* that it is valid; 0: TM_TLS_VALID_DAYS */
};

int tm_tls_authority_create(struct tm_env *env, struct tm_tls_authority **out, struct tm_error *e);
void tm_tls_authority_destroy(struct tm_tls_authority *authority); /* NULL is allowed */
/* Makes a key and a certificate for one member and writes them to `folder` with the authority's own certificate:
 * ca.pem, node.pem and node.key, the last readable by the owner alone. What is there is replaced. */
int tm_tls_authority_issue(struct tm_tls_authority *authority, struct tm_env *env, const char *folder,
                           const struct tm_tls_member *member, struct tm_error *e);

/* ---- members elsewhere: they make their own key, and it never leaves them ---- */

/* SHA-256 of the authority's certificate, by which others know it. */
int tm_tls_authority_fingerprint(const struct tm_tls_authority *authority, uint8_t out[TM_TLS_FINGERPRINT_BYTES],
                                 struct tm_error *e);
/* A certificate for somebody else's public key (DER, an EC key of P-256, else -TM_EINPUT): both are appended as PEM. */
int tm_tls_authority_sign(struct tm_tls_authority *authority, struct tm_env *env, const void *public_key, size_t length,
                          const struct tm_tls_member *member, struct tm_text *certificate, struct tm_text *ca,
                          struct tm_error *e);
/* A new key: the private one as PEM, the public one as DER. */
int tm_tls_make_key(struct tm_text *private_key, struct tm_text *public_key, struct tm_error *e);

/* An authority and one certificate, for members that share it, the coordinator among them. -TM_EEXISTS: there is one
 * already. */
int tm_tls_make_job(struct tm_env *env, const char *folder, struct tm_error *e);
/* Reads ca.pem, node.pem and node.key. The caller owns the result. */
int tm_tls_load(struct tm_env *env, const char *folder, struct tm_tls **out, struct tm_error *e);
void tm_tls_destroy(struct tm_tls *tls); /* NULL is allowed */
/* The same for a server that also hears clients without a certificate, and shows them its authority's. */
int tm_tls_load_open(struct tm_env *env, const char *folder, struct tm_tls **out, struct tm_error *e);
/* A client without a certificate, for a server whose authority has this fingerprint. */
int tm_tls_create_pinned(const uint8_t fingerprint[TM_TLS_FINGERPRINT_BYTES], struct tm_tls **out, struct tm_error *e);

/* `name`, `host`: DNS names, of which the other side's certificate must have one; NULL: not asked for. NULL: out of
 * memory. */
struct tm_tls_session *tm_tls_session_create(struct tm_tls *tls, bool server, const char *name, const char *host);
void tm_tls_session_destroy(struct tm_tls_session *session); /* NULL is allowed */
/* Plain bytes to send; they come out of tm_tls_session_output once the handshake is done. Not 0: the stream has lost
 * bytes (memory, or more pending than its limit): close. */
int tm_tls_session_write(struct tm_tls_session *session, const void *plain, size_t length);
/* Raw bytes to put on the wire, appended to `out`. */
void tm_tls_session_output(struct tm_tls_session *session, struct tm_text *out);
/* Raw bytes from the wire; plain ones are appended to `plain`. -TM_EPEER: the other side is not of this job, is not
 * who it should be, or the bytes were altered: close. */
int tm_tls_session_input(struct tm_tls_session *session, const void *raw, size_t length, struct tm_text *plain);

/* The other end has a certificate of this job; once the handshake is done. */
bool tm_tls_session_is_member(const struct tm_tls_session *session);
/* The other end's certificate has this name; once the handshake is done. */
bool tm_tls_session_has_name(const struct tm_tls_session *session, const char *name);
bool tm_tls_session__is_ready(const struct tm_tls_session *session); /* the handshake is done */

/* A value that only the two ends of this session have, the same for both; once the handshake is done. */
int tm_tls_session_binding(const struct tm_tls_session *session, uint8_t out[TM_TLS_BINDING_BYTES]);

#endif
