/* TLS for a server whose clients are browsers and other people's programs: they show no certificate, and know the
 * server by its name (an authority of the system vouches for it) or by its certificate's fingerprint. */
#ifndef TM_WIRE_TLS_PAGE_H
#define TM_WIRE_TLS_PAGE_H

#include "wire/tls.h"

enum { TM_TLS_PAGE_DAYS = 397, TM_TLS_FINGERPRINT_TEXT_MAX = 3 * TM_TLS_FINGERPRINT_BYTES };

/* A server's certificate, with those that vouch for it after it, and its key, both PEM. -TM_EINPUT: which file is
 * wrong, or that they do not belong together. The caller owns the result. */
int tm_tls_load_server(struct tm_env *env, const char *certificate, const char *key, struct tm_tls **out,
                       struct tm_error *e);
/* The same from node.pem and node.key of a folder; they are made where there are none, or when they have expired.
 * `names`: of the server, up to the first NULL. */
int tm_tls_load_or_make_server(struct tm_env *env, const char *folder, const char *const names[TM_TLS_NAMES_MAX],
                               struct tm_tls **out, struct tm_error *e);
/* SHA-256 of the server's own certificate, as browsers show it: "AB:CD:...". */
void tm_tls_print_fingerprint(const struct tm_tls *tls, char out[TM_TLS_FINGERPRINT_TEXT_MAX]);
/* Such a text, with colons or without, in either case. */
bool tm_tls_read_fingerprint(const char *text, uint8_t out[TM_TLS_FINGERPRINT_BYTES]);

/* A client. `fingerprint`: of the server's own certificate; NULL: the system's authorities vouch for its name. */
int tm_tls_create_client(const uint8_t *fingerprint, struct tm_tls **out, struct tm_error *e);

#endif
