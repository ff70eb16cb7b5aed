/* Credentials of the shared files: a profile's keys, its SSO login (aws_sso.c), its credential_process. */
#include "web/aws_config.h"
#include "web/aws_credentials.h"
#include "web/plain.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MAX = 1 << 20, PATH_BYTES = 4096, VALUE_BYTES = 4096, PROCESS_MS = 60000 };

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
    if (text.data != NULL) OPENSSL_cleanse(text.data, text.length);
    tm_text_deinit(&text);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "credential_process of profile %s", profile);
}

/* ---- SSO ---- */

static bool find_sso(const struct files *f, struct tm_aws_sso *s)
{
    char section[300];
    *s = (struct tm_aws_sso){.session = ""};
    if (!get(&f->config, f->section, "sso_account_id", s->account, sizeof s->account)) return false;
    if (!get(&f->config, f->section, "sso_role_name", s->role, sizeof s->role)) return false;
    bool named = get(&f->config, f->section, "sso_session", s->session, sizeof s->session);
    (void)snprintf(section, sizeof section, "sso-session %s", s->session);
    const char *from = named ? section : f->section;
    return get(&f->config, from, "sso_start_url", s->start, sizeof s->start) &&
           get(&f->config, from, "sso_region", s->region, sizeof s->region);
}

/* ---- all of them ---- */

static int of_files(const struct files *f, struct tm_aws_keys *out, char source[256], struct tm_error *e)
{
    char value[VALUE_BYTES];
    struct tm_aws_sso sso;
    bool here = tm_aws_config__has(f->config.data, f->config.length, f->section);
    (void)snprintf(source, 256, "profile %.60s of %.180s", f->profile, f->config_path);
    if (find_sso(f, &sso)) return tm_aws_keys__of_sso(f->env, &sso, out, e);
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
