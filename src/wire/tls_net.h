/* An env whose connections are encrypted: what speaks through its network (http_server.h, http_call.h) speaks TLS
 * without knowing it. Clock and network are those of the env below; nothing else of it may be used.
 *
 * A handshake is part of receiving, so who listens must wait for bytes before it has sent any; what send has begun to
 * send it must be given again until it is sent, as one does after -TM_EBUSY. */
#ifndef TM_WIRE_TLS_NET_H
#define TM_WIRE_TLS_NET_H

#include "wire/tls.h"

struct tm_tls_net;

/* Both are borrowed. `host`: of a client, whom the system's authorities must vouch for; NULL: the TLS itself knows its
 * server. The caller owns the result; NULL: out of memory. */
struct tm_tls_net *tm_tls_net_create(struct tm_env *under, struct tm_tls *tls, bool server, const char *host);
/* Connections must be closed before; NULL is allowed. */
void tm_tls_net_destroy(struct tm_tls_net *net);
struct tm_env *tm_tls_net_env(struct tm_tls_net *net); /* borrowed */

#endif
