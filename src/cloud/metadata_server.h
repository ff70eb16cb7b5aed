/* Metadata endpoints: one small HTTP server per instance, all served by one loop that never blocks.
 *
 * Bounded: TM_METADATA_CONNECTIONS at a time (TM_METADATA_CONNECTIONS_EACH per instance), one request each, five
 * seconds to send it, one answer per connection. */
#ifndef TM_CLOUD_METADATA_SERVER_H
#define TM_CLOUD_METADATA_SERVER_H

#include "base/env.h"
#include "cloud/metadata.h"

enum { TM_METADATA_CONNECTIONS = 384, TM_METADATA_CONNECTIONS_EACH = 8, TM_METADATA_ENDPOINTS = 256 };

struct tm_metadata_server;

/* The caller owns the result. NULL: out of memory. */
struct tm_metadata_server *tm_metadata_server__create(struct tm_env *env);
void tm_metadata_server__destroy(struct tm_metadata_server *server); /* NULL is allowed */

/* Listens on HOST:0 for an instance; `known` is borrowed until it is closed. The endpoint's number is not negative. */
int tm_metadata_server__open(struct tm_metadata_server *server, const char *host, const struct tm_metadata *known,
                             char bound[TM_ADDRESS_MAX], int *out_endpoint, struct tm_error *e);
void tm_metadata_server__close(struct tm_metadata_server *server, int endpoint);

/* Does what can be done now, without waiting. */
void tm_metadata_server__serve(struct tm_metadata_server *server);
/* What to wait for: appends handles, and gives the wait in ms after which to serve at the latest (INT64_MAX: none). */
size_t tm_metadata_server__watch(const struct tm_metadata_server *server, int *handles, size_t max,
                                 int64_t *out_wait_ms);

#endif
