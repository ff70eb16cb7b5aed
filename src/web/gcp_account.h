/* Files that say who we are to Google, and what is made of them: inside the room, and for its tests. */
#ifndef TM_WEB_GCP_ACCOUNT_H
#define TM_WEB_GCP_ACCOUNT_H

#include "base/env.h"
#include "base/text.h"

enum { TM_GCP_TOKEN_MAX = 8192, TM_GCP_SIGNATURE_MAX = 1024 };

enum tm_gcp__kind { TM_GCP_MACHINE, TM_GCP_KEY, TM_GCP_USER };

struct tm_gcp__account {
    enum tm_gcp__kind kind;
    void *key; /* TM_GCP_KEY: OpenSSL's */
    char email[256];
    char key_id[128];
    char client_id[256]; /* TM_GCP_USER, with the next two */
    char client_secret[256];
    char refresh[1024];
    char token_uri[512];
    char project[128]; /* "": not said */
};

/* What a file of credentials says. -TM_EINPUT: it is none, or of a kind that is not known; nothing of it is in the
 * words. */
int tm_gcp__read_account(const char *file, const char *text, size_t length, struct tm_gcp__account *out,
                         struct tm_error *e);
void tm_gcp__account_deinit(struct tm_gcp__account *account);

/* RSA over the SHA-256 of the data, by a service account's key. */
int tm_gcp__sign(const struct tm_gcp__account *account, const void *data, size_t length,
                 unsigned char out[TM_GCP_SIGNATURE_MAX], size_t *out_length, struct tm_error *e);
/* Appends the form that the account is exchanged for a token by. Cleanse it. */
int tm_gcp__token_form(const struct tm_gcp__account *account, int64_t now_ms, struct tm_text *out, struct tm_error *e);
/* The token in an answer, and how long it lasts. */
int tm_gcp__read_token(const char *text, size_t length, char token[TM_GCP_TOKEN_MAX], int64_t *out_s,
                       struct tm_error *e);
/* The value of "project" below "[core]" of one of gcloud's configurations; false: it has none. */
bool tm_gcp__read_configuration(const char *text, char out[128]);

#endif
