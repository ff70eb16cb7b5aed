#include "web/azure_identity.h"

#include "base/doc.h"
#include "base/log.h"
#include "base/number.h"
#include "web/aws_sign.h"
#include "web/plain.h"
#include "web/tape.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 10000, OUTPUT_MS = 30000, OUTPUT_MAX = 65536, ASSERTION_MAX = 16384 };

static const int64_t renew_before_ms = 5 * 60000;

static const char *variable(struct tm_env *env, const char *name)
{
    const char *value = env->variable(env, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* A number, or a number in quotes; 0: neither. */
static int64_t number_of(const json_t *value)
{
    int64_t number = 0;
    const char *text = json_string_value(value);
    if (json_is_integer(value)) return json_integer_value(value);
    return text != NULL && tm_number_i64(text, strlen(text), &number) ? number : 0;
}

int tm_azure_identity__read(const char *text, size_t length, int64_t now_ms, char token[TM_AZURE_TOKEN_MAX],
                            int64_t *out_ends_ms, struct tm_error *e)
{
    static const int64_t most_s = 10000000;
    json_t *root = NULL;
    struct tm_error own; /* what is wrong in the text may show some of it */
    int rc = tm_json_load("token", text, length, &root, &own);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    const char *word = rc == 0 ? json_string_value(json_object_get(root, "access_token")) : NULL;
    if (rc == 0 && word == NULL) word = json_string_value(json_object_get(root, "accessToken")); /* of az */
    int64_t left_s = rc == 0 ? number_of(json_object_get(root, "expires_in")) : 0;
    int64_t ends_s = rc == 0 ? number_of(json_object_get(root, "expires_on")) : 0;
    if (left_s <= 0 && ends_s > now_ms / 1000) left_s = ends_s - now_ms / 1000;
    bool good = word != NULL && word[0] != '\0' && left_s > 0 && left_s < most_s && strlen(word) < TM_AZURE_TOKEN_MAX &&
                strpbrk(word, "\r\n") == NULL;
    if (good) {
        (void)snprintf(token, TM_AZURE_TOKEN_MAX, "%s", word);
        *out_ends_ms = now_ms + left_s * 1000;
    }
    json_decref(root);
    return good ? 0 : tm_error_set(e, TM_EINPUT, "Azure's answer holds no token");
}

static bool has_login(struct tm_env *env)
{
    char path[1024];
    struct tm_text text;
    const char *folder = variable(env, "AZURE_CONFIG_DIR");
    const char *home = variable(env, "HOME");
    if (folder == NULL && home == NULL) return false;
    (void)snprintf(path, sizeof path, "%.900s%s/azureProfile.json", folder != NULL ? folder : home,
                   folder != NULL ? "" : "/.azure");
    tm_text_init(&text, 1 << 20);
    int rc = env->file_read(env, path, &text, NULL);
    bool found = rc == 0 && text.data != NULL && strstr(text.data, "tenantId") != NULL;
    tm_text_deinit(&text);
    return found;
}

static bool has_application(struct tm_env *env, const char *by)
{
    return variable(env, "AZURE_TENANT_ID") != NULL && variable(env, "AZURE_CLIENT_ID") != NULL &&
           variable(env, by) != NULL;
}

static bool has_principal(struct tm_env *env)
{
    return has_application(env, "AZURE_CLIENT_SECRET");
}

static bool is_federated(struct tm_env *env)
{
    return has_application(env, "AZURE_FEDERATED_TOKEN_FILE");
}

static const char *kind_of(struct tm_env *env)
{
    if (!has_principal(env) && is_federated(env))
        return "the application (AZURE_CLIENT_ID, AZURE_TENANT_ID) and its federated credential, which must name the "
               "issuer and subject of the token in AZURE_FEDERATED_TOKEN_FILE";
    if (has_principal(env)) return "the service principal (AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET)";
    return has_login(env) ? "the login of az"
                          : "the machine's identity (or set AZURE_CLIENT_SECRET and so on; or az login)";
}

struct fresh {
    char token[TM_AZURE_TOKEN_MAX];
    int64_t ends_ms;
};

static int take(const struct tm_azure_identity *id, const char *text, size_t length, struct fresh *out,
                struct tm_error *e)
{
    return tm_azure_identity__read(text, length, id->env->now_ms(id->env), out->token, &out->ends_ms, e);
}

static int ask(const struct tm_azure_identity *id, const char *method, const char *url, const char *header,
               const char *body, struct fresh *out, struct tm_error *e)
{
    struct tm_web_answer answer;
    int rc = tm_web_plain__ask(id->env, method, url, header, body, ASK_MS, &answer, e);
    if (rc != 0) return tm_error_wrap(e, rc, "asking for a token of %s", kind_of(id->env));
    if (answer.status == 200)
        rc = take(id, tm_text_string(&answer.body), answer.body.length, out, e);
    else
        rc =
            tm_error_set(e, TM_EIO, "Azure gives no token: refused with %d; check %s", answer.status, kind_of(id->env));
    if (answer.body.data != NULL) OPENSSL_cleanse(answer.body.data, answer.body.length);
    tm_web_answer_deinit(&answer);
    return rc;
}

/* The word of another identity provider, which writes it anew now and then. */
static int put_assertion(struct tm_env *env, struct tm_text *body, struct tm_error *e)
{
    struct tm_text text;
    const char *path = variable(env, "AZURE_FEDERATED_TOKEN_FILE");
    tm_text_init(&text, ASSERTION_MAX);
    int rc = env->file_read(env, path, &text, e);
    if (rc == 0 && text.length > 0) {
        text.data[strcspn(text.data, " \t\r\n")] = '\0';
        tm_text_puts(body, "&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer"
                           "&client_assertion=");
        tm_percent_encode(text.data, false, body);
    }
    if (rc == 0 && (text.length == 0 || text.data[0] == '\0')) rc = tm_error_set(e, TM_EINPUT, "%s is empty", path);
    if (text.data != NULL) OPENSSL_cleanse(text.data, text.length);
    tm_text_deinit(&text);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "AZURE_FEDERATED_TOKEN_FILE");
}

/* As an application, by its secret or by the word of another identity provider: both go in the body, never in the URL.
 */
static int of_principal(const struct tm_azure_identity *id, struct fresh *out, struct tm_error *e)
{
    struct tm_text url;
    struct tm_text body;
    const char *authority = variable(id->env, "AZURE_AUTHORITY_HOST");
    if (authority == NULL) authority = "https://login.microsoftonline.com";
    tm_text_init(&url, 2048);
    tm_text_init(&body, (size_t)4 * ASSERTION_MAX);
    tm_text_printf(&url, "%.*s/", (int)(strlen(authority) - (authority[strlen(authority) - 1] == '/')), authority);
    tm_percent_encode(variable(id->env, "AZURE_TENANT_ID"), false, &url);
    tm_text_puts(&url, "/oauth2/v2.0/token");
    tm_text_puts(&body, "grant_type=client_credentials&scope=");
    tm_percent_encode(id->resource, false, &body);
    tm_text_puts(&body, "%2F.default&client_id=");
    tm_percent_encode(variable(id->env, "AZURE_CLIENT_ID"), false, &body);
    int rc = 0;
    if (has_principal(id->env)) {
        tm_text_puts(&body, "&client_secret=");
        tm_percent_encode(variable(id->env, "AZURE_CLIENT_SECRET"), false, &body);
    } else {
        rc = put_assertion(id->env, &body, e);
    }
    if (rc == 0) rc = tm_text_status(&url, e);
    if (rc == 0) rc = tm_text_status(&body, e);
    if (rc == 0)
        rc = ask(id, "POST", tm_text_string(&url), "Content-Type: application/x-www-form-urlencoded\n",
                 tm_text_string(&body), out, e);
    if (body.data != NULL) OPENSSL_cleanse(body.data, body.length);
    tm_text_deinit(&body);
    tm_text_deinit(&url);
    return rc;
}

static int of_machine(const struct tm_azure_identity *id, struct fresh *out, struct tm_error *e)
{
    struct tm_text url;
    const char *host = variable(id->env, "AZURE_POD_IDENTITY_AUTHORITY_HOST");
    const char *client = variable(id->env, "AZURE_CLIENT_ID");
    tm_text_init(&url, 2048);
    tm_text_printf(&url, "%.500s/metadata/identity/oauth2/token?api-version=2018-02-01&resource=",
                   host != NULL ? host : "http://169.254.169.254");
    tm_percent_encode(id->resource, false, &url);
    tm_text_puts(&url, "%2F");
    if (client != NULL) {
        tm_text_puts(&url, "&client_id=");
        tm_percent_encode(client, false, &url);
    }
    int rc = tm_text_status(&url, e);
    if (rc == 0) rc = ask(id, "GET", tm_text_string(&url), "Metadata: true\n", NULL, out, e);
    tm_text_deinit(&url);
    return rc;
}

/* az keeps logins, and renews them. */
static int of_cli(const struct tm_azure_identity *id, struct fresh *out, struct tm_error *e)
{
    struct tm_text text;
    const char *const argv[] = {
        "/bin/sh", "-c",         "exec 2> /dev/null; exec az account get-access-token --output json --resource \"$1\"",
        "sh",      id->resource, NULL};
    tm_text_init(&text, OUTPUT_MAX);
    int rc = tm_web_process__ask(id->env, argv, OUTPUT_MS, &text, e);
    if (rc == 0) rc = take(id, tm_text_string(&text), text.length, out, e);
    if (text.data != NULL) OPENSSL_cleanse(text.data, text.length);
    tm_text_deinit(&text);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "az account get-access-token; log in again with `az login`");
}

static int ask_token(const struct tm_azure_identity *id, struct fresh *out, struct tm_error *e)
{
    if (tm_tape__is_replayed()) { /* nobody is asked, so nobody checks it */
        *out = (struct fresh){.token = "replayed", .ends_ms = INT64_MAX};
        return 0;
    }
    if (has_principal(id->env) || is_federated(id->env)) return of_principal(id, out, e);
    return has_login(id->env) ? of_cli(id, out, e) : of_machine(id, out, e);
}

/* With the lock. */
static void keep(struct tm_azure_identity *id, const struct fresh *fresh)
{
    bool same = strcmp(id->token, fresh->token) == 0;
    memcpy(id->token, fresh->token, sizeof id->token);
    id->ends_ms = fresh->ends_ms;
    if (!same) tm_renewal__got(&id->renewal);
}

static bool is_good(const struct tm_azure_identity *id)
{
    return id->token[0] != '\0' && tm_renewal__is_good(&id->renewal, id->ends_ms);
}

/* By a thread. */
static int ask_beside(void *context, struct tm_error *e)
{
    struct tm_azure_identity *id = context;
    struct fresh fresh = {.token = ""};
    int rc = ask_token(id, &fresh, e);
    (void)pthread_mutex_lock(&id->renewal.lock);
    if (rc == 0) keep(id, &fresh);
    bool good = is_good(id);
    (void)pthread_mutex_unlock(&id->renewal.lock);
    OPENSSL_cleanse(&fresh, sizeof fresh);
    if (rc != 0 && good) tm_log(TM_LOG_WARN, "%s; the old token is still good", e->text);
    return rc;
}

int tm_azure_identity__add(struct tm_azure_identity *id, struct tm_text *headers, struct tm_error *e)
{
    int rc = 0;
    (void)pthread_mutex_lock(&id->renewal.lock);
    if (is_good(id))
        tm_renewal__refresh(&id->renewal, id->ends_ms, renew_before_ms);
    else
        rc = tm_renewal__look(&id->renewal, e);
    if (rc == 0) tm_text_printf(headers, "authorization: Bearer %s\n", id->token);
    (void)pthread_mutex_unlock(&id->renewal.lock);
    return rc;
}

void tm_azure_identity__forget(struct tm_azure_identity *id)
{
    (void)pthread_mutex_lock(&id->renewal.lock);
    id->token[0] = '\0';
    tm_renewal__doubt(&id->renewal);
    (void)pthread_mutex_unlock(&id->renewal.lock);
}

void tm_azure_identity__init(struct tm_azure_identity *id, struct tm_env *env, const char *resource)
{
    *id = (struct tm_azure_identity){.env = env};
    (void)snprintf(id->resource, sizeof id->resource, "%.250s", resource);
    tm_renewal__init(&id->renewal, env, ask_beside, id);
}

void tm_azure_identity__deinit(struct tm_azure_identity *id)
{
    tm_renewal__deinit(&id->renewal);
    OPENSSL_cleanse(id, sizeof *id);
}
