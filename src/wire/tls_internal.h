/* Shared inside the room: what TLS is made of, for members of a job (tls.c) and for pages (tls_page.c). */
#ifndef TM_WIRE_TLS_INTERNAL_H
#define TM_WIRE_TLS_INTERNAL_H

#include "wire/tls.h"

#include <openssl/ssl.h>

struct tm_tls {
    SSL_CTX *context;
    uint8_t pinned[TM_TLS_FINGERPRINT_BYTES]; /* of a client that knows its server, or its authority, by this alone */
};

struct tm_tls_session {
    SSL *ssl;
    BIO *in;                /* owned by ssl */
    BIO *out;               /* owned by ssl */
    struct tm_text pending; /* plain bytes that wait for the handshake */
};

int tm_tls__failed(struct tm_error *e, enum tm_code code, const char *what); /* with OpenSSL's own words */
int tm_tls__hash(const X509 *certificate, uint8_t out[TM_TLS_FINGERPRINT_BYTES]);
void tm_tls__set_usual(SSL_CTX *context);

#endif
