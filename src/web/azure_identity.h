/* Tokens of Azure for one of its services ("https://management.azure.com"), the first that there is:
 *
 *   AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET   a service principal's (AZURE_AUTHORITY_HOST)
 *   AZURE_TENANT_ID, AZURE_CLIENT_ID,                       an application's, for the token of another identity
 *   AZURE_FEDERATED_TOKEN_FILE                              provider (workload identity federation)
 *   a login of `az` (AZURE_CONFIG_DIR, ~/.azure)            whoever logged in: `az account get-access-token`
 *   none of these                                           the machine's own identity (AZURE_CLIENT_ID says which)
 *
 * They are kept in memory, asked for anew before they end, and never printed, logged or stored. Any thread may ask. */
#ifndef TM_WEB_AZURE_IDENTITY_H
#define TM_WEB_AZURE_IDENTITY_H

#include "base/env.h"
#include "base/text.h"
#include "web/renewal.h"

enum { TM_AZURE_TOKEN_MAX = 8192 };

struct tm_azure_identity {
    struct tm_env *env;
    char resource[256];
    struct tm_renewal renewal;
    char token[TM_AZURE_TOKEN_MAX]; /* with the renewal's lock; "": none so far */
    int64_t ends_ms;
};

/* It stays where it is until deinit. */
void tm_azure_identity__init(struct tm_azure_identity *identity, struct tm_env *env, const char *resource);
void tm_azure_identity__deinit(struct tm_azure_identity *identity);
/* Appends the header "authorization: Bearer TOKEN\n", with a token that lasts for a while yet. -TM_EBUSY: there
 * is none, it is being asked for; look again later. */
int tm_azure_identity__add(struct tm_azure_identity *identity, struct tm_text *headers, struct tm_error *e);
/* The token was refused: the next is asked for. */
void tm_azure_identity__forget(struct tm_azure_identity *identity);
/* What a service, or az, says: the token and when it ends. -TM_EINPUT: it is something else. For the fuzzer. */
int tm_azure_identity__read(const char *text, size_t length, int64_t now_ms, char token[TM_AZURE_TOKEN_MAX],
                            int64_t *out_ends_ms, struct tm_error *e);

#endif
