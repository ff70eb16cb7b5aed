/* The key by which URLs of single blobs are signed where nobody gave us that of the account: a user delegation key,
 * which the service gives to whoever has a token and may ask for it. It lasts for a week, and is asked for anew, beside
 * whoever needs it, when it is an hour old: what it signs ends with it. Kept in memory only. Any thread. */
#ifndef TM_WEB_AZURE_DELEGATION_H
#define TM_WEB_AZURE_DELEGATION_H

#include "web/azure.h"
#include "web/renewal.h"

enum { TM_AZURE_DELEGATED_MAX = 128 };

/* As the service gave it. */
struct tm_azure_delegated {
    char object[64]; /* who asked, and their tenant */
    char tenant[64];
    char start[40];
    char expiry[40];
    char service[8];
    char version[24];
    unsigned char key[TM_AZURE_DELEGATED_MAX];
    size_t key_length;
    int64_t ends_ms;
};

struct tm_azure_delegation {
    struct tm_azure *azure;
    struct tm_env *env;
    struct tm_renewal renewal;
    struct tm_azure_delegated key; /* with the renewal's lock; key_length 0: none so far */
};

/* It stays where it is until deinit. */
void tm_azure_delegation__init(struct tm_azure_delegation *delegation, struct tm_env *env, struct tm_azure *azure);
void tm_azure_delegation__deinit(struct tm_azure_delegation *delegation);
/* A copy, for the caller to clear. Where there is none that lasts for a day it is asked for: -TM_EBUSY, look again
 * later; `waits`: until it has come. -TM_EINPUT: it is refused. */
int tm_azure_delegation__get(struct tm_azure_delegation *delegation, bool waits, struct tm_azure_delegated *out,
                             struct tm_error *e);
/* What the service answers. -TM_EINPUT: it is something else. */
int tm_azure_delegation__read(const char *text, size_t length, struct tm_azure_delegated *out, struct tm_error *e);

#endif
