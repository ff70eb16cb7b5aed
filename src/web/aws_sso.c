/* The login that `aws sso login` left, and the credentials of a role that it gives. A login that ends is renewed by its
 * refresh token, as AWS's own tools do it, and written back to where they keep it: they share it, and a refresh token
 * is good once. */
#include "base/alloc.h"
#include "base/calendar.h"
#include "base/doc.h"
#include "base/log.h"
#include "web/aws_credentials.h"
#include "web/plain.h"

#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MAX = 1 << 20, PATH_BYTES = 4096, VALUE_BYTES = 4096, SSO_MS = 20000, RENEW_MS = 15 * 60000 };

/* ---- the login ---- */

struct login {
    char path[PATH_BYTES];
    json_t *root; /* the file */
    int64_t ends_ms;
};

static const char *text_of(const struct login *login, const char *key)
{
    return json_string_value(json_object_get(login->root, key));
}

/* The name under which `aws sso login` keeps its token: SHA-1 of the session's name, or of the start URL. */
static void token_name(const char *of, char out[48])
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    unsigned size = 0;
    (void)EVP_Digest(of, strlen(of), digest, &size, EVP_sha1(), NULL);
    for (unsigned i = 0; i < 20; i++)
        (void)snprintf(out + (size_t)2 * i, 3, "%02x", digest[i]);
}

int tm_aws_sso__read(const char *path, const char *text, size_t length, json_t **out, int64_t *out_ends_ms,
                     struct tm_error *e)
{
    json_t *root = NULL;
    struct tm_error own; /* what is wrong in the text may show some of it */
    int rc = tm_json_load(path, text, length, &root, &own);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    const char *token = json_string_value(json_object_get(root, "accessToken"));
    const char *ends = json_string_value(json_object_get(root, "expiresAt"));
    bool good = rc == 0 && token != NULL && token[0] != '\0' && strlen(token) < VALUE_BYTES &&
                strpbrk(token, "\r\n") == NULL && ends != NULL && tm_calendar_parse(ends, strlen(ends), out_ends_ms);
    if (good) {
        *out = root;
        return 0;
    }
    json_decref(root);
    return tm_error_set(e, TM_EINPUT, "%s: not a token of `aws sso login`", path);
}

static int read_login(struct tm_env *env, struct login *login, struct tm_error *e)
{
    struct tm_text text;
    json_t *root = NULL;
    int64_t ends_ms = 0;
    tm_text_init(&text, FILE_MAX);
    int rc = env->file_read(env, login->path, &text, e);
    if (rc == -(int)TM_ENOTFOUND) rc = tm_error_set(e, TM_EINPUT, "nobody is logged in: run `aws sso login`");
    if (rc == 0) rc = tm_aws_sso__read(login->path, tm_text_string(&text), text.length, &root, &ends_ms, e);
    if (text.data != NULL) OPENSSL_cleanse(text.data, text.length);
    tm_text_deinit(&text);
    if (rc != 0) return rc;
    json_decref(login->root);
    login->root = root;
    login->ends_ms = ends_ms;
    return 0;
}

static bool can_renew(struct tm_env *env, const struct login *login)
{
    static const char *const keys[] = {"refreshToken", "clientId", "clientSecret"};
    const char *until = text_of(login, "registrationExpiresAt");
    int64_t until_ms = INT64_MAX;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (text_of(login, keys[i]) == NULL) return false;
    if (until != NULL && !tm_calendar_parse(until, strlen(until), &until_ms)) return false;
    return until_ms > env->now_ms(env);
}

/* Words of the request: a refresh token, and who we are. */
static int print_request(const struct login *login, char **out, struct tm_error *e)
{
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:s}", "grantType", "refresh_token", "clientId", text_of(login, "clientId"),
                  "clientSecret", text_of(login, "clientSecret"), "refreshToken", text_of(login, "refreshToken"));
    *out = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return *out != NULL ? 0 : tm_error_nomem(e);
}

/* What it says is in the login now, and in its file. */
static int take_renewed(struct tm_env *env, struct login *login, const struct tm_web_answer *answer, struct tm_error *e)
{
    json_t *root = NULL;
    char ends[TM_CALENDAR_TEXT_MAX];
    struct tm_error own = {.text = ""};
    int rc = tm_json_load("SSO", tm_text_string(&answer->body), answer->body.length, &root, e);
    const char *token = json_string_value(json_object_get(root, "accessToken"));
    json_int_t seconds = json_integer_value(json_object_get(root, "expiresIn"));
    json_t *next = json_object_get(root, "refreshToken");
    if (rc == 0 && (token == NULL || strlen(token) >= VALUE_BYTES || seconds <= 0 || seconds > 366 * 86400))
        rc = tm_error_set(e, TM_EINPUT, "no token in its answer");
    if (rc == 0) {
        int64_t ends_ms = env->now_ms(env) + (int64_t)seconds * 1000;
        bool set = json_object_set_new(login->root, "accessToken", json_string(token)) == 0 &&
                   json_object_set_new(login->root, "expiresAt",
                                       json_string(tm_calendar_print(ends_ms / 1000 * 1000, ends))) == 0 &&
                   (!json_is_string(next) || json_object_set(login->root, "refreshToken", next) == 0);
        login->ends_ms = ends_ms;
        char *text = set ? json_dumps(login->root, 0) : NULL;
        if (text == NULL)
            rc = tm_error_nomem(e);
        else if (env->file_write_private(env, login->path, text, strlen(text), &own) != 0)
            tm_log(TM_LOG_WARN, "the renewed login could not be kept: %s; `aws sso login` makes a new one", own.text);
        if (text != NULL) OPENSSL_cleanse(text, strlen(text));
        tm_free(text);
    }
    json_decref(root);
    return rc;
}

static int renew(struct tm_env *env, const struct tm_aws_sso *s, struct login *login, struct tm_error *e)
{
    char url[VALUE_BYTES];
    char *body = NULL;
    struct tm_web_answer answer;
    const char *endpoint = env->variable(env, "AWS_ENDPOINT_URL_SSO_OIDC");
    if (endpoint != NULL)
        (void)snprintf(url, sizeof url, "%.4000s/token", endpoint);
    else
        (void)snprintf(url, sizeof url, "https://oidc.%s.amazonaws.com/token", s->region);
    int rc = print_request(login, &body, e);
    if (rc != 0) return rc;
    rc = tm_web_plain__ask(env, "POST", url, "Content-Type: application/json\n", body, SSO_MS, &answer, e);
    OPENSSL_cleanse(body, strlen(body));
    tm_free(body);
    if (rc != 0) return rc;
    if (answer.status == 200)
        rc = take_renewed(env, login, &answer, e);
    else
        rc = tm_error_set(e, TM_EINPUT, "SSO answers %d", answer.status);
    tm_web_answer_deinit(&answer);
    return rc;
}

/* A token that is good, renewed where it soon is not. */
static int find_token(struct tm_env *env, const struct tm_aws_sso *s, struct login *login, struct tm_error *e)
{
    struct tm_error why = {.text = ""};
    char name[48] = "";
    const char *home = env->variable(env, "HOME");
    token_name(s->session[0] != '\0' ? s->session : s->start, name);
    (void)snprintf(login->path, sizeof login->path, "%.4000s/.aws/sso/cache/%s.json", home != NULL ? home : "", name);
    int rc = read_login(env, login, e);
    if (rc != 0) return rc;
    if (login->ends_ms - env->now_ms(env) < RENEW_MS && can_renew(env, login)) {
        rc = renew(env, s, login, &why);
        if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
        if (rc != 0) rc = read_login(env, login, e); /* another program may have renewed it at the same time */
    }
    if (rc == 0 && login->ends_ms <= env->now_ms(env))
        rc = tm_error_set(e, TM_EINPUT, "the login has ended%s%s: run `aws sso login` again",
                          why.text[0] != '\0' ? ", and is not renewed: " : "", why.text);
    return rc;
}

/* ---- the role ---- */

static int read_role(const struct tm_web_answer *answer, struct tm_aws_keys *out, struct tm_error *e)
{
    json_t *root = NULL;
    int rc = tm_json_load("SSO", tm_text_string(&answer->body), answer->body.length, &root, e);
    const json_t *role = json_object_get(root, "roleCredentials");
    const char *id = json_string_value(json_object_get(role, "accessKeyId"));
    const char *secret = json_string_value(json_object_get(role, "secretAccessKey"));
    const char *token = json_string_value(json_object_get(role, "sessionToken"));
    json_int_t ends = json_integer_value(json_object_get(role, "expiration"));
    if (rc == 0 && (id == NULL || secret == NULL || token == NULL || strlen(token) >= sizeof out->token || ends <= 0))
        rc = tm_error_set(e, TM_EINPUT, "SSO: no credentials in its answer");
    if (rc == 0) {
        *out = (struct tm_aws_keys){.ends_ms = (int64_t)ends};
        (void)snprintf(out->id, sizeof out->id, "%s", id);
        (void)snprintf(out->secret, sizeof out->secret, "%s", secret);
        (void)snprintf(out->token, sizeof out->token, "%s", token);
    }
    json_decref(root);
    return rc;
}

int tm_aws_keys__of_sso(struct tm_env *env, const struct tm_aws_sso *s, struct tm_aws_keys *out, struct tm_error *e)
{
    char header[VALUE_BYTES + 64];
    struct tm_text url;
    struct tm_web_answer answer;
    struct login login = {.root = NULL};
    int rc = find_token(env, s, &login, e);
    (void)snprintf(header, sizeof header, "x-amz-sso_bearer_token: %s\n",
                   rc == 0 ? text_of(&login, "accessToken") : "");
    json_decref(login.root);
    if (rc != 0) return rc;
    const char *endpoint = env->variable(env, "AWS_ENDPOINT_URL_SSO");
    tm_text_init(&url, VALUE_BYTES);
    if (endpoint != NULL)
        tm_text_puts(&url, endpoint);
    else
        tm_text_printf(&url, "https://portal.sso.%s.amazonaws.com", s->region);
    tm_text_puts(&url, "/federation/credentials?account_id=");
    tm_percent_encode(s->account, false, &url);
    tm_text_puts(&url, "&role_name=");
    tm_percent_encode(s->role, false, &url);
    rc = tm_text_status(&url, e);
    if (rc == 0) rc = tm_web_plain__ask(env, "GET", url.data, header, NULL, SSO_MS, &answer, e);
    tm_text_deinit(&url);
    if (rc != 0) return rc;
    if (answer.status != 200)
        rc = tm_error_set(e, TM_EINPUT, "SSO answers %d: run `aws sso login` again", answer.status);
    if (rc == 0) rc = read_role(&answer, out, e);
    tm_web_answer_deinit(&answer);
    return rc;
}
