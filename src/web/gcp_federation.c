/* Who we are to Google by somebody else's word: workload identity federation (the token of another identity provider,
 * of Kubernetes, GitHub, another cloud, is exchanged for one of Google's), and impersonation (a service account's token
 * is given to whoever may have it). What files say of them: https://google.aip.dev/auth/4117. */
#include "base/calendar.h"
#include "base/doc.h"
#include "web/gcp_account.h"
#include "web/plain.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

enum { FETCH_MS = 10000, LIFE_S = 3600, LIFE_MAX_S = 43200, DELEGATES_MAX = 8 };

static bool take(const json_t *root, const char *name, char *out, size_t room)
{
    const char *text = json_string_value(json_object_get(root, name));
    if (text == NULL || text[0] == '\0' || strlen(text) >= room || strpbrk(text, "\r\n") != NULL) return false;
    (void)snprintf(out, room, "%s", text);
    return true;
}

static bool is_address(const char *text)
{
    return (strncmp(text, "https://", 8) == 0 || strncmp(text, "http://", 7) == 0) && strpbrk(text, "\"\\ ") == NULL;
}

/* ---- impersonation ---- */

/* Of ".../serviceAccounts/EMAIL:generateAccessToken". */
static bool take_email(struct tm_gcp__impersonation *as)
{
    const char *name = strstr(as->url, "/serviceAccounts/");
    if (name == NULL) return false;
    name += strlen("/serviceAccounts/");
    size_t length = strcspn(name, ":/?#%");
    if (length == 0 || length >= sizeof as->email || strcmp(name + length, ":generateAccessToken") != 0) return false;
    (void)snprintf(as->email, sizeof as->email, "%.*s", (int)length, name);
    return true;
}

static int take_address(const char *file, const json_t *root, struct tm_gcp__impersonation *as, struct tm_error *e)
{
    if (!take(root, "service_account_impersonation_url", as->url, sizeof as->url) || !is_address(as->url) ||
        !take_email(as))
        return tm_error_set(e, TM_EINPUT,
                            "%s: service_account_impersonation_url: expected https://iamcredentials.googleapis.com/v1/"
                            "projects/-/serviceAccounts/NAME:generateAccessToken",
                            file);
    as->life_s = LIFE_S;
    (void)snprintf(as->delegates, sizeof as->delegates, "[]");
    return 0;
}

int tm_gcp__take_impersonation(const char *file, const void *root, struct tm_gcp__account *out, struct tm_error *e)
{
    const json_t *delegates = json_object_get(root, "delegates");
    size_t count = json_array_size(delegates);
    if (out->as.url[0] != '\0')
        return tm_error_set(e, TM_EINPUT,
                            "%s: source_credentials have a service_account_impersonation_url of their own", file);
    int rc = take_address(file, root, &out->as, e);
    if (rc != 0 || count == 0) return rc;
    struct tm_text text;
    tm_text_init(&text, sizeof out->as.delegates);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(delegates, i));
        if (name == NULL || count > DELEGATES_MAX || strpbrk(name, "\"\\\r\n") != NULL) {
            rc = tm_error_set(e, TM_EINPUT, "%s: delegates: expected a list of at most %d names", file, DELEGATES_MAX);
            break;
        }
        tm_text_printf(&text, "%s\"%s\"", i == 0 ? "[" : ", ", name);
    }
    tm_text_putc(&text, ']');
    if (rc == 0) rc = tm_text_status(&text, e);
    if (rc == 0) (void)snprintf(out->as.delegates, sizeof out->as.delegates, "%s", tm_text_string(&text));
    tm_text_deinit(&text);
    return rc;
}

int tm_gcp__impersonation_body(const struct tm_gcp__impersonation *as, struct tm_text *out, struct tm_error *e)
{
    tm_text_printf(out, "{\"delegates\": %s, \"scope\": [\"" TM_GCP_SCOPE "\"], \"lifetime\": \"%" PRId64 "s\"}",
                   as->delegates, as->life_s);
    return tm_text_status(out, e);
}

int tm_gcp__read_impersonated(const char *text, size_t length, char token[TM_GCP_TOKEN_MAX], int64_t *out_ends_ms,
                              struct tm_error *e)
{
    json_t *root = NULL;
    char ends[64];
    int64_t ends_ms = 0;
    struct tm_error own; /* what is wrong in the text may show some of it */
    int rc = tm_json_load("token", text, length, &root, &own);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    bool good = rc == 0 && take(root, "expireTime", ends, sizeof ends) &&
                tm_calendar_parse(ends, strlen(ends), &ends_ms) && take(root, "accessToken", token, TM_GCP_TOKEN_MAX);
    json_decref(root);
    if (good) *out_ends_ms = ends_ms;
    return good ? 0 : tm_error_set(e, TM_EIO, "Google's answer holds no token of the service account");
}

/* ---- federation ---- */

static int take_headers(const char *file, const json_t *source, struct tm_gcp__federation *f, struct tm_error *e)
{
    const char *name = NULL;
    const json_t *value = NULL;
    size_t length = 0;
    json_object_foreach((json_t *)json_object_get(source, "headers"), name, value)
    {
        const char *text = json_string_value(value);
        bool good = text != NULL && strpbrk(text, "\r\n") == NULL && strpbrk(name, "\r\n: ") == NULL &&
                    length + strlen(name) + strlen(text) + 4 < sizeof f->headers;
        if (!good) return tm_error_set(e, TM_EINPUT, "%s: credential_source: headers: expected names and texts", file);
        length += (size_t)snprintf(f->headers + length, sizeof f->headers - length, "%s: %s\n", name, text);
    }
    return 0;
}

static int take_source(const char *file, const json_t *source, struct tm_gcp__federation *f, struct tm_error *e)
{
    const json_t *format = json_object_get(source, "format");
    char form[16] = "text";
    bool by_file = take(source, "file", f->file, sizeof f->file);
    bool by_url = take(source, "url", f->url, sizeof f->url) && is_address(f->url);
    bool of_aws = json_object_get(source, "environment_id") != NULL;
    if (of_aws || by_file == by_url)
        return tm_error_set(e, TM_EINPUT,
                            "%s: credential_source: %s not supported; have the provider's token in a file, or at a url",
                            file,
                            of_aws                                           ? "AWS's signatures are"
                            : json_object_get(source, "executable") != NULL  ? "a program that is run is"
                            : json_object_get(source, "certificate") != NULL ? "a certificate is"
                                                                             : "this kind is");
    (void)take(format, "type", form, sizeof form);
    bool is_json = strcmp(form, "json") == 0;
    if (is_json != take(format, "subject_token_field_name", f->field, sizeof f->field) ||
        (!is_json && strcmp(form, "text") != 0))
        return tm_error_set(e, TM_EINPUT,
                            "%s: credential_source: format: expected type text, or json with its "
                            "subject_token_field_name",
                            file);
    return take_headers(file, source, f, e);
}

int tm_gcp__take_federation(const char *file, const void *root, struct tm_gcp__account *out, struct tm_error *e)
{
    struct tm_gcp__federation *f = &out->federation;
    const json_t *life =
        json_object_get(json_object_get(root, "service_account_impersonation"), "token_lifetime_seconds");
    out->kind = TM_GCP_FEDERATED;
    if (!take(root, "audience", f->audience, sizeof f->audience) ||
        !take(root, "subject_token_type", f->token_type, sizeof f->token_type) ||
        !take(root, "token_url", out->token_uri, sizeof out->token_uri))
        return tm_error_set(
            e, TM_EINPUT,
            "%s: audience, subject_token_type or token_url is missing; make the file anew with `gcloud iam "
            "workload-identity-pools create-cred-config`",
            file);
    (void)take(root, "client_id", out->client_id, sizeof out->client_id);
    (void)take(root, "client_secret", out->client_secret, sizeof out->client_secret);
    (void)take(root, "workforce_pool_user_project", f->user_project, sizeof f->user_project);
    int rc = take_source(file, json_object_get(root, "credential_source"), f, e);
    if (rc != 0 || json_object_get(root, "service_account_impersonation_url") == NULL) return rc;
    rc = take_address(file, root, &out->as, e);
    if (rc != 0 || life == NULL) return rc;
    out->as.life_s = (int64_t)json_integer_value(life);
    if (out->as.life_s < 600 || out->as.life_s > LIFE_MAX_S)
        return tm_error_set(e, TM_EINPUT, "%s: token_lifetime_seconds: expected 600 to %d", file, LIFE_MAX_S);
    return 0;
}

int tm_gcp__read_subject(const struct tm_gcp__federation *f, const char *text, size_t length,
                         char out[TM_GCP_SUBJECT_MAX], struct tm_error *e)
{
    json_t *root = NULL;
    struct tm_error own; /* what is wrong in the text may show some of it */
    int rc = f->field[0] != '\0' ? tm_json_load("token", text, length, &root, &own) : 0;
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    const char *word = f->field[0] == '\0' ? text : json_string_value(json_object_get(root, f->field));
    size_t size = word == NULL ? 0 : f->field[0] == '\0' ? length : strlen(word);
    while (size > 0 && strchr(" \t\r\n", word[size - 1]) != NULL)
        size--;
    bool good = rc == 0 && size > 0 && size < TM_GCP_SUBJECT_MAX && memchr(word, '\n', size) == NULL &&
                memchr(word, '\0', size) == NULL;
    if (good) (void)snprintf(out, TM_GCP_SUBJECT_MAX, "%.*s", (int)size, word);
    json_decref(root);
    if (good) return 0;
    return tm_error_set(e, TM_EINPUT, "%s%s holds no token of the identity provider%s%s", f->file,
                        f->file[0] == '\0' ? f->url : "", f->field[0] != '\0' ? " as its " : "", f->field);
}

int tm_gcp__fetch_subject(struct tm_env *env, const struct tm_gcp__federation *f, char out[TM_GCP_SUBJECT_MAX],
                          struct tm_error *e)
{
    struct tm_web_answer answer = {.status = 0};
    struct tm_text text;
    int rc = 0;
    tm_text_init(&text, (size_t)2 * TM_GCP_SUBJECT_MAX);
    if (f->file[0] != '\0') {
        rc = env->file_read(env, f->file, &text, e);
        if (rc == 0) rc = tm_gcp__read_subject(f, tm_text_string(&text), text.length, out, e);
    } else {
        rc = tm_web_plain__ask(env, "GET", f->url, f->headers, NULL, FETCH_MS, &answer, e);
        if (rc == 0 && answer.status != 200)
            rc = tm_error_set(e, TM_EINPUT, "%s answers %d", f->url, answer.status);
        else if (rc == 0)
            rc = tm_gcp__read_subject(f, tm_text_string(&answer.body), answer.body.length, out, e);
        if (answer.body.data != NULL) OPENSSL_cleanse(answer.body.data, answer.body.length);
        if (answer.status != 0) tm_web_answer_deinit(&answer);
    }
    if (text.data != NULL) OPENSSL_cleanse(text.data, text.length);
    tm_text_deinit(&text);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "the token of the identity provider");
}
