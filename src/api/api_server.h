/* The status API as part of a coordinator's loop: hang tm_api_server_hook into struct tm_coordinator_service.
 *
 * It listens on loopback only. Where, and the credential, which is new with each server, are in the file `api` of the
 * state folder, readable by the owner alone: "HOST:PORT CREDENTIAL". */
#ifndef TM_API_API_SERVER_H
#define TM_API_API_SERVER_H

#include "base/env.h"
#include "run/run_tap.h"

enum { TM_API_CREDENTIAL_MAX = 65 };

struct tm_api_server;

/* Listens, and writes the file. The caller owns the result. */
int tm_api_server_create(struct tm_env *env, const char *state_dir, struct tm_api_server **out, struct tm_error *e);
/* Answers waiting clients, best effort, and removes the file. NULL is allowed. */
void tm_api_server_destroy(struct tm_api_server *server);
struct tm_run_hook tm_api_server_hook(struct tm_api_server *server);

#endif
