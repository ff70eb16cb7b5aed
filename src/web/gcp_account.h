/* Files that say who we are to Google, and what is made of them: inside the room, and for its tests. */
#ifndef TM_WEB_GCP_ACCOUNT_H
#define TM_WEB_GCP_ACCOUNT_H

#include "base/env.h"
#include "base/text.h"

enum { TM_GCP_TOKEN_MAX = 8192, TM_GCP_SUBJECT_MAX = 32768, TM_GCP_SIGNATURE_MAX = 1024 };

#define TM_GCP_SCOPE     "https://www.googleapis.com/auth/cloud-platform"
#define TM_GCP_IAM_SCOPE "https://www.googleapis.com/auth/iam" /* enough to ask in another's name */

enum tm_gcp__kind { TM_GCP_MACHINE, TM_GCP_KEY, TM_GCP_USER, TM_GCP_FEDERATED };

/* Workload identity federation: the token of another identity provider, from a file or a URL, and what Google makes one
 * of its own of. */
struct tm_gcp__federation {
    char audience[512];
    char token_type[128];
    char user_project[128]; /* of a workforce pool; "": none */
    char file[1024];        /* "": the next */
    char url[1024];
    char headers[2048]; /* to ask it with: lines */
    char field[128];    /* of the JSON that holds the token; "": it is the whole text */
};

/* A service account in whose name all is asked; its address "": in our own. */
struct tm_gcp__impersonation {
    char url[1024];
    char email[256];
    char delegates[2048]; /* a JSON array */
    int64_t life_s;
};

struct tm_gcp__account {
    enum tm_gcp__kind kind;
    void *key; /* TM_GCP_KEY: OpenSSL's */
    char email[256];
    char key_id[128];
    char client_id[256]; /* TM_GCP_USER, with the next two; TM_GCP_FEDERATED: "", or who asks, with the next */
    char client_secret[256];
    char refresh[1024];
    char token_uri[512];
    char project[128]; /* "": not said */
    struct tm_gcp__federation federation;
    struct tm_gcp__impersonation as;
};

/* What a file of credentials says. -TM_EINPUT: it is none, or of a kind that is not known; nothing of it is in the
 * words. */
int tm_gcp__read_account(const char *file, const char *text, size_t length, struct tm_gcp__account *out,
                         struct tm_error *e);
void tm_gcp__account_deinit(struct tm_gcp__account *account);

/* RSA over the SHA-256 of the data, by a service account's key. */
int tm_gcp__sign(const struct tm_gcp__account *account, const void *data, size_t length,
                 unsigned char out[TM_GCP_SIGNATURE_MAX], size_t *out_length, struct tm_error *e);
/* Appends the form that the account is exchanged for a token by; `subject`: TM_GCP_FEDERATED: the provider's. Cleanse
 * it. */
int tm_gcp__token_form(const struct tm_gcp__account *account, const char *subject, int64_t now_ms, struct tm_text *out,
                       struct tm_error *e);
/* The token in an answer, and how long it lasts. */
int tm_gcp__read_token(const char *text, size_t length, char token[TM_GCP_TOKEN_MAX], int64_t *out_s,
                       struct tm_error *e);

/* ---- gcp_federation.c ---- */

/* What files of the type external_account, and impersonated_service_account, say beside; `root` is the file's JSON. */
int tm_gcp__take_federation(const char *file, const void *root, struct tm_gcp__account *out, struct tm_error *e);
int tm_gcp__take_impersonation(const char *file, const void *root, struct tm_gcp__account *out, struct tm_error *e);
/* The provider's token, in what a file or URL holds. -TM_EINPUT: there is none. */
int tm_gcp__read_subject(const struct tm_gcp__federation *federation, const char *text, size_t length,
                         char out[TM_GCP_SUBJECT_MAX], struct tm_error *e);
/* The same, fetched: it blocks. Cleanse it. */
int tm_gcp__fetch_subject(struct tm_env *env, const struct tm_gcp__federation *federation, char out[TM_GCP_SUBJECT_MAX],
                          struct tm_error *e);
/* Appends what the service account is asked for by. */
int tm_gcp__impersonation_body(const struct tm_gcp__impersonation *as, struct tm_text *out, struct tm_error *e);
/* The token of the service account in an answer, and when it ends. */
int tm_gcp__read_impersonated(const char *text, size_t length, char token[TM_GCP_TOKEN_MAX], int64_t *out_ends_ms,
                              struct tm_error *e);

/* ---- */

/* The value of "project" below "[core]" of one of gcloud's configurations; false: it has none. */
bool tm_gcp__read_configuration(const char *text, char out[128]);

#endif
