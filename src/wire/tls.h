/* TLS 1.3 with certificates of the job on both sides (OpenSSL). Bytes in, bytes out: no sockets here.
 *
 * Each job has a certificate authority of its own, made when the job is, and each member a key and a certificate of it
 * that holds for some weeks; whoever has one may connect, nobody else. That one may then join is decided by the join
 * token: link_proof.h. */
#ifndef TM_WIRE_TLS_H
#define TM_WIRE_TLS_H

#include "base/env.h"

#include <stddef.h>
#include <stdint.h>

struct tm_tls;
struct tm_tls_session;

enum { TM_TLS_BINDING_BYTES = 32 };

/* A job's authority. Its key is in the memory of whoever made it and nowhere else: when that is gone, no more
 * certificates can be made, and none of another. */
struct tm_tls_authority;
enum { TM_TLS_VALID_DAYS = 30 };

int tm_tls_authority_create(struct tm_env *env, struct tm_tls_authority **out, struct tm_error *e);
void tm_tls_authority_destroy(struct tm_tls_authority *authority); /* NULL is allowed */
/* Makes a key and a certificate for one member, named `name`, and writes them to `folder` with the authority's own
 * certificate: ca.pem, node.pem and node.key, the last readable by the owner alone. What is there is replaced. */
int tm_tls_authority_issue(struct tm_tls_authority *authority, struct tm_env *env, const char *folder, const char *name,
                           struct tm_error *e);

/* An authority and one certificate, for members that share it. -TM_EEXISTS: there is one already. */
int tm_tls_make_job(struct tm_env *env, const char *folder, struct tm_error *e);
/* Reads ca.pem, node.pem and node.key. The caller owns the result. */
int tm_tls_load(struct tm_env *env, const char *folder, struct tm_tls **out, struct tm_error *e);
void tm_tls_destroy(struct tm_tls *tls); /* NULL is allowed */

struct tm_tls_session *tm_tls_session_create(struct tm_tls *tls, bool server); /* NULL: out of memory */
void tm_tls_session_destroy(struct tm_tls_session *session);                   /* NULL is allowed */
/* Plain bytes to send; they come out of tm_tls_session_output once the handshake is done. Not 0: the stream has lost
 * bytes (memory, or more pending than its limit): close. */
int tm_tls_session_write(struct tm_tls_session *session, const void *plain, size_t length);
/* Raw bytes to put on the wire, appended to `out`. */
void tm_tls_session_output(struct tm_tls_session *session, struct tm_text *out);
/* Raw bytes from the wire; plain ones are appended to `plain`. -TM_EPEER: the other side is not of this job, or the
 * bytes were altered: close. */
int tm_tls_session_input(struct tm_tls_session *session, const void *raw, size_t length, struct tm_text *plain);

/* A value that only the two ends of this session have, the same for both; once the handshake is done. */
int tm_tls_session__binding(const struct tm_tls_session *session, uint8_t out[TM_TLS_BINDING_BYTES]);

#endif
