/* Credentials of the shared files: a profile's keys, its SSO login, its credential_process. */
#include "base/calendar.h"
#include "base/doc.h"
#include "web/aws_config.h"
#include "web/aws_credentials.h"
#include "web/plain.h"

#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MAX = 1 << 20, PATH_BYTES = 4096, VALUE_BYTES = 4096, PROCESS_MS = 60000, SSO_MS = 20000 };

struct files {
    struct tm_env *env;
    struct tm_text config;
    struct tm_text credentials;
    char config_path[PATH_BYTES];
    char credentials_path[PATH_BYTES];
    char profile[256];
    char section[300]; /* of the config file */
};

static void find_path(struct tm_env *env, const char *variable, const char *name, char out[PATH_BYTES])
{
    const char *given = env->variable(env, variable);
    const char *home = env->variable(env, "HOME");
    if (given != NULL && given[0] != '\0')
        (void)snprintf(out, PATH_BYTES, "%s", given);
    else
        (void)snprintf(out, PATH_BYTES, "%s/.aws/%s", home != NULL ? home : "", name);
}

static int read_one(struct tm_env *env, const char *path, struct tm_text *out, struct tm_error *e)
{
    int rc = env->file_read(env, path, out, e);
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

static int open_files(struct tm_env *env, struct files *f, struct tm_error *e)
{
    const char *name = env->variable(env, "AWS_PROFILE");
    if (name == NULL || name[0] == '\0') name = env->variable(env, "AWS_DEFAULT_PROFILE");
    if (name == NULL || name[0] == '\0') name = "default";
    f->env = env;
    (void)snprintf(f->profile, sizeof f->profile, "%s", name);
    bool is_default = strcmp(name, "default") == 0;
    (void)snprintf(f->section, sizeof f->section, "%s%s", is_default ? "" : "profile ", f->profile);
    find_path(env, "AWS_CONFIG_FILE", "config", f->config_path);
    find_path(env, "AWS_SHARED_CREDENTIALS_FILE", "credentials", f->credentials_path);
    tm_text_init(&f->config, FILE_MAX);
    tm_text_init(&f->credentials, FILE_MAX);
    int rc = read_one(env, f->config_path, &f->config, e);
    if (rc == 0) rc = read_one(env, f->credentials_path, &f->credentials, e);
    /* [profile default] is as good as [default] */
    if (rc == 0 && is_default && !tm_aws_config__has(f->config.data, f->config.length, "default"))
        (void)snprintf(f->section, sizeof f->section, "profile default");
    return rc;
}

static void close_files(struct files *f)
{
    tm_text_deinit(&f->config);
    tm_text_deinit(&f->credentials);
}

static bool get(const struct tm_text *file, const char *section, const char *key, char *out, size_t room)
{
    const char *value = NULL;
    size_t length = 0;
    if (!tm_aws_config__find(file->data, file->length, section, key, &value, &length) || length >= room) return false;
    (void)snprintf(out, room, "%.*s", (int)length, value);
    return true;
}

int tm_aws_profile__setting(struct tm_env *env, const char *key, char *out, size_t room, struct tm_error *e)
{
    struct files f;
    int rc = open_files(env, &f, e);
    out[0] = '\0';
    if (rc == 0) (void)get(&f.config, f.section, key, out, room);
    close_files(&f);
    return rc;
}

int tm_aws_profile__endpoint(struct tm_env *env, const char *service, char *out, size_t room, struct tm_error *e)
{
    struct files f;
    char name[256];
    char section[300];
    const char *value = NULL;
    size_t length = 0;
    int rc = open_files(env, &f, e);
    out[0] = '\0';
    if (rc == 0 && get(&f.config, f.section, "services", name, sizeof name)) {
        (void)snprintf(section, sizeof section, "services %s", name);
        if (tm_aws_config__find_below(f.config.data, f.config.length, section, service, "endpoint_url", &value,
                                      &length) &&
            length < room)
            (void)snprintf(out, room, "%.*s", (int)length, value);
    }
    close_files(&f);
    return rc;
}

/* ---- keys ---- */

static bool keys_of(const struct tm_text *file, const char *section, struct tm_aws_keys *out)
{
    struct tm_aws_keys keys = {.ends_ms = INT64_MAX};
    bool found = get(file, section, "aws_access_key_id", keys.id, sizeof keys.id) &&
                 get(file, section, "aws_secret_access_key", keys.secret, sizeof keys.secret);
    if (found) (void)get(file, section, "aws_session_token", keys.token, sizeof keys.token);
    if (found) *out = keys;
    tm_aws_keys__clear(&keys);
    return found;
}

/* ---- credential_process ---- */

static int of_process(struct tm_env *env, const char *command, const char *profile, struct tm_aws_keys *out,
                      struct tm_error *e)
{
    struct tm_text text;
    char line[VALUE_BYTES + 32];
    (void)snprintf(line, sizeof line, "exec 2> /dev/null; %s", command);
    const char *const argv[] = {"/bin/sh", "-c", line, NULL};
    tm_text_init(&text, 65536);
    int rc = tm_web_process__ask(env, argv, PROCESS_MS, &text, e);
    if (rc == 0) rc = tm_aws_keys__read("its output", tm_text_string(&text), text.length, out, e);
    if (text.data != NULL) memset(text.data, 0, text.length);
    tm_text_deinit(&text);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "credential_process of profile %s", profile);
}

/* ---- SSO ---- */

/* The name under which `aws sso login` keeps its token: SHA-1 of the session's name, or of the start URL. */
static void token_name(const char *of, char out[48])
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    unsigned size = 0;
    (void)EVP_Digest(of, strlen(of), digest, &size, EVP_sha1(), NULL);
    for (unsigned i = 0; i < 20; i++)
        (void)snprintf(out + (size_t)2 * i, 3, "%02x", digest[i]);
}

static int read_token(struct tm_env *env, const char *of, char *out, size_t room, struct tm_error *e)
{
    char name[48] = "";
    char path[PATH_BYTES];
    struct tm_text text;
    json_t *root = NULL;
    int64_t ends_ms = 0;
    const char *home = env->variable(env, "HOME");
    token_name(of, name);
    (void)snprintf(path, sizeof path, "%s/.aws/sso/cache/%s.json", home != NULL ? home : "", name);
    tm_text_init(&text, FILE_MAX);
    int rc = env->file_read(env, path, &text, e);
    if (rc == -(int)TM_ENOTFOUND) rc = tm_error_set(e, TM_EINPUT, "nobody is logged in: run `aws sso login`");
    if (rc == 0) rc = tm_json_load(path, tm_text_string(&text), text.length, &root, e);
    const char *token = json_string_value(json_object_get(root, "accessToken"));
    const char *ends = json_string_value(json_object_get(root, "expiresAt"));
    if (rc == 0 &&
        (token == NULL || strlen(token) >= room || ends == NULL || !tm_calendar_parse(ends, strlen(ends), &ends_ms)))
        rc = tm_error_set(e, TM_EINPUT, "%s: not a token of `aws sso login`", path);
    if (rc == 0 && ends_ms <= env->now_ms(env))
        rc = tm_error_set(e, TM_EINPUT, "the login has ended: run `aws sso login` again");
    if (rc == 0) (void)snprintf(out, room, "%s", token);
    json_decref(root);
    tm_text_deinit(&text);
    return rc;
}

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

struct sso {
    char session[256];
    char start[1024];
    char region[64];
    char account[64];
    char role[256];
};

static bool find_sso(const struct files *f, struct sso *s)
{
    char section[300];
    *s = (struct sso){.session = ""};
    if (!get(&f->config, f->section, "sso_account_id", s->account, sizeof s->account)) return false;
    if (!get(&f->config, f->section, "sso_role_name", s->role, sizeof s->role)) return false;
    bool named = get(&f->config, f->section, "sso_session", s->session, sizeof s->session);
    (void)snprintf(section, sizeof section, "sso-session %s", s->session);
    const char *from = named ? section : f->section;
    return get(&f->config, from, "sso_start_url", s->start, sizeof s->start) &&
           get(&f->config, from, "sso_region", s->region, sizeof s->region);
}

static int of_sso(struct tm_env *env, const struct sso *s, struct tm_aws_keys *out, struct tm_error *e)
{
    char token[VALUE_BYTES];
    char header[VALUE_BYTES + 64];
    struct tm_text url;
    struct tm_web_answer answer;
    int rc = read_token(env, s->session[0] != '\0' ? s->session : s->start, token, sizeof token, e);
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
    (void)snprintf(header, sizeof header, "x-amz-sso_bearer_token: %s\n", token);
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

/* ---- all of them ---- */

static int of_files(const struct files *f, struct tm_aws_keys *out, char source[256], struct tm_error *e)
{
    char value[VALUE_BYTES];
    struct sso sso;
    bool here = tm_aws_config__has(f->config.data, f->config.length, f->section);
    (void)snprintf(source, 256, "profile %.60s of %.180s", f->profile, f->config_path);
    if (find_sso(f, &sso)) return of_sso(f->env, &sso, out, e);
    if (keys_of(&f->credentials, f->profile, out)) {
        (void)snprintf(source, 256, "profile %.60s of %.180s", f->profile, f->credentials_path);
        return 0;
    }
    if (get(&f->config, f->section, "credential_process", value, sizeof value) ||
        get(&f->credentials, f->profile, "credential_process", value, sizeof value))
        return of_process(f->env, value, f->profile, out, e);
    if (keys_of(&f->config, f->section, out)) return 0;
    if (get(&f->config, f->section, "role_arn", value, sizeof value) ||
        get(&f->credentials, f->profile, "role_arn", value, sizeof value))
        return tm_error_set(e, TM_EINPUT,
                            "profile %s assumes a role, which Tidemill does not do itself; add a profile with "
                            "credential_process = aws configure export-credentials --profile %s",
                            f->profile, f->profile);
    const char *named = f->env->variable(f->env, "AWS_PROFILE");
    if (!here && named != NULL && named[0] != '\0' &&
        !tm_aws_config__has(f->credentials.data, f->credentials.length, f->profile))
        return tm_error_set(e, TM_EINPUT, "there is no profile %s (AWS_PROFILE) in %s or %s", f->profile,
                            f->config_path, f->credentials_path);
    return tm_error_set(e, TM_ENOTFOUND, "profile %s has no credentials", f->profile);
}

int tm_aws_keys__of_profile(struct tm_env *env, struct tm_aws_keys *out, char source[256], struct tm_error *e)
{
    struct files f;
    int rc = open_files(env, &f, e);
    if (rc == 0) rc = of_files(&f, out, source, e);
    close_files(&f);
    return rc;
}
