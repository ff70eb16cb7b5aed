/* Azure's object store as one account: where it is, as whom we ask, and requests that are signed anew for each try.
 * Settings are those of Azure's own tools, the first that is set:
 *
 *   AZURE_STORAGE_CONNECTION_STRING                   AccountName=...;AccountKey=...;BlobEndpoint=...
 *   AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY          the account's key: requests are signed with it
 *   AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_SAS_TOKEN    a shared access signature
 *   AZURE_STORAGE_ACCOUNT alone                       a token (azure_identity.h)
 *
 * Keys and tokens are never printed, logged or stored; a token is asked for anew before it ends. */
#ifndef TM_WEB_AZURE_H
#define TM_WEB_AZURE_H

#include "web/aws_sign.h"
#include "web/web.h"

struct tm_azure;

/* Reads settings, asks nobody. -TM_EINPUT: they are missing, or no good. Any thread may use the result. */
int tm_azure_create(struct tm_env *env, struct tm_azure **out, struct tm_error *e);
void tm_azure_destroy(struct tm_azure *azure);
const char *tm_azure_account(const struct tm_azure *azure); /* borrowed */
const char *
tm_azure_endpoint(const struct tm_azure *azure); /* borrowed: "https://HOST", or "http://HOST:PORT/ACCOUNT" */

/* One request; the caller's, and as it is until the call has ended. */
struct tm_azure_request {
    struct tm_azure *azure;
    const char *method;
    const char *path; /* "/CONTAINER/...", not encoded */
    struct tm_web_pair query[8];
    size_t query_count;
    struct tm_web_pair headers[8]; /* "if-match", "if-none-match" and names that begin with "x-ms-"; in lower case */
    size_t header_count;
    const void *body;
    size_t length;
    void *into; /* as of tm_web_request */
    size_t room;
    int64_t deadline_ms;
    int64_t silence_ms;
    int tries_max;
    bool renewed; /* its own */
};

/* Begins it. What follows is as of tm_web_begin. */
int tm_azure_begin(struct tm_web *web, struct tm_azure_request *request, struct tm_web_call **out, struct tm_error *e);
/* From begin to end, waiting. */
int tm_azure_ask(struct tm_web *web, struct tm_azure_request *request, struct tm_web_answer *out, struct tm_error *e);

/* Appends the URL by which anybody may GET or PUT this one blob, for so long (at most as long as the key lasts that
 * signs it): by the account's key, or a user delegation key. -TM_EBUSY: the service is being asked for that key; look
 * again later. -TM_EINPUT: nothing can sign it. */
int tm_azure_url(struct tm_azure *azure, const char *method, const char *path, int64_t seconds, struct tm_text *out,
                 struct tm_error *e);
/* Waits until there is a key that signs URLs, or why there is none. */
int tm_azure_await_key(struct tm_azure *azure, struct tm_error *e);

/* By the service's clock. */
int64_t tm_azure__now_ms(const struct tm_azure *azure);
/* Appends what a request is signed by: pure, for tests. `path` as it is sent, `time` as in its x-ms-date. */
void tm_azure__to_sign(const struct tm_azure_request *request, const char *account, const char *path, const char *time,
                       struct tm_text *out);

#endif
