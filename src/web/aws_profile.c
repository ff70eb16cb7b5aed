/* Credentials of the shared files: the role that a profile assumes (aws_role.c), its SSO login (aws_sso.c), its keys,
 * its credential_process. */
#include "web/aws_config.h"
#include "web/aws_credentials.h"
#include "web/plain.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MAX = 1 << 20, PATH_BYTES = 4096, VALUE_BYTES = 4096, PROCESS_MS = 60000, ROLES_MAX = 8 };

struct files {
    struct tm_env *env;
    struct tm_text config;
    struct tm_text credentials;
    char config_path[PATH_BYTES];
    char credentials_path[PATH_BYTES];
    char profile[256];
    char section[300]; /* of the config file */
    int roles;         /* so many are assumed, one after the other, with the keys of this profile */
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

static const char *set_variable(struct tm_env *env, const char *name)
{
    const char *value = env->variable(env, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static void choose(struct files *f, const char *name)
{
    bool is_default = strcmp(name, "default") == 0;
    (void)snprintf(f->profile, sizeof f->profile, "%s", name);
    (void)snprintf(f->section, sizeof f->section, "%s%s", is_default ? "" : "profile ", f->profile);
    /* [profile default] is as good as [default] */
    if (is_default && !tm_aws_config__has(f->config.data, f->config.length, "default"))
        (void)snprintf(f->section, sizeof f->section, "profile default");
}

static int open_files(struct tm_env *env, struct files *f, struct tm_error *e)
{
    const char *name = set_variable(env, "AWS_PROFILE");
    if (name == NULL) name = set_variable(env, "AWS_DEFAULT_PROFILE");
    f->env = env;
    f->roles = 0;
    find_path(env, "AWS_CONFIG_FILE", "config", f->config_path);
    find_path(env, "AWS_SHARED_CREDENTIALS_FILE", "credentials", f->credentials_path);
    tm_text_init(&f->config, FILE_MAX);
    tm_text_init(&f->credentials, FILE_MAX);
    int rc = read_one(env, f->config_path, &f->config, e);
    if (rc == 0) rc = read_one(env, f->credentials_path, &f->credentials, e);
    choose(f, name != NULL ? name : "default");
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

/* ---- roles ---- */

/* Of the profile, in either file. */
static bool setting(const struct files *f, const char *key, char *out, size_t room)
{
    out[0] = '\0';
    return get(&f->credentials, f->profile, key, out, room) || get(&f->config, f->section, key, out, room);
}

static int of_files(struct files *f, struct tm_aws_keys *out, char source[256], struct tm_error *e);

/* With the keys of another profile. One that names itself has keys of its own. */
static int by_profile(struct files *f, const char *name, struct tm_aws_keys *out, struct tm_error *e)
{
    char source[256];
    bool own = strcmp(name, f->profile) == 0;
    if (own && (keys_of(&f->credentials, f->profile, out) || keys_of(&f->config, f->section, out))) return 0;
    if (own || ++f->roles > ROLES_MAX)
        return tm_error_set(e, TM_EINPUT, "source_profile: profile %s comes to itself, and nowhere are keys", name);
    choose(f, name);
    int rc = of_files(f, out, source, e);
    if (rc == -(int)TM_ENOTFOUND)
        return tm_error_set(e, TM_EINPUT, "source_profile = %s: it has no credentials in %s or %s", name,
                            f->credentials_path, f->config_path);
    return rc;
}

static int by_source(struct tm_env *env, const char *name, struct tm_aws_keys *out, struct tm_error *e)
{
    int rc = 0;
    if (strcmp(name, "Environment") == 0)
        rc = tm_aws_keys__of_environment(env, out, e);
    else if (strcmp(name, "Ec2InstanceMetadata") == 0)
        rc = tm_aws_keys__of_instance(env, out, e);
    else if (strcmp(name, "EcsContainer") == 0)
        rc = tm_aws_keys__of_container(env, out, e);
    else
        return tm_error_set(e, TM_EINPUT,
                            "credential_source = %s: write Environment, Ec2InstanceMetadata or EcsContainer", name);
    if (rc == 0 || rc == -(int)TM_ENOMEM) return rc;
    (void)tm_error_wrap(e, rc, "credential_source = %s", name);
    if (e != NULL) e->code = TM_EINPUT; /* nobody else is asked */
    return -(int)TM_EINPUT;
}

static void find_region(const struct files *f, char out[64])
{
    const char *set = set_variable(f->env, "AWS_REGION");
    if (set == NULL) set = set_variable(f->env, "AWS_DEFAULT_REGION");
    if (set == NULL)
        (void)setting(f, "region", out, 64);
    else
        (void)snprintf(out, 64, "%.63s", set);
}

static int of_role(struct files *f, struct tm_aws_role *role, struct tm_aws_keys *out, struct tm_error *e)
{
    char device[300];
    char name[256];
    char from[64];
    char profile[256];
    struct tm_aws_keys by = {.id = ""};
    int rc = 0;
    (void)snprintf(profile, sizeof profile, "%s", f->profile);
    bool named = setting(f, "source_profile", name, sizeof name);
    bool placed = setting(f, "credential_source", from, sizeof from);
    if (setting(f, "mfa_serial", device, sizeof device))
        rc = tm_error_set(
            e, TM_EINPUT,
            "mfa_serial: the role wants the code of a device, and nobody types codes while a job runs; set "
            "what `aws configure export-credentials --profile %.200s --format env` prints, or use a role "
            "without",
            f->profile);
    else if (named == placed)
        rc = tm_error_set(e, TM_EINPUT, "role_arn: write source_profile or credential_source beside it, one of them");
    else
        rc = named ? by_profile(f, name, &by, e) : by_source(f->env, from, &by, e);
    if (rc == 0) rc = tm_aws_keys__of_role(f->env, role, &by, out, e);
    tm_aws_keys__clear(&by);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "profile %s", profile);
}

/* -TM_ENOTFOUND: no role is assumed. Variables are for the first profile. */
static int assume(struct files *f, struct tm_aws_keys *out, struct tm_error *e)
{
    struct tm_aws_role role = {.arn = ""};
    bool first = f->roles == 0;
    bool by_keys = setting(f, "role_arn", role.arn, sizeof role.arn) &&
                   !setting(f, "web_identity_token_file", role.token_file, sizeof role.token_file);
    const char *file = first && !by_keys ? set_variable(f->env, "AWS_WEB_IDENTITY_TOKEN_FILE") : NULL;
    const char *arn = first && !by_keys ? set_variable(f->env, "AWS_ROLE_ARN") : NULL;
    const char *session = first && !by_keys ? set_variable(f->env, "AWS_ROLE_SESSION_NAME") : NULL;
    if (!by_keys) (void)setting(f, "web_identity_token_file", role.token_file, sizeof role.token_file);
    if (file != NULL) (void)snprintf(role.token_file, sizeof role.token_file, "%s", file);
    if (arn != NULL) (void)snprintf(role.arn, sizeof role.arn, "%s", arn);
    if (!by_keys && role.token_file[0] == '\0') return -(int)TM_ENOTFOUND;
    if (role.arn[0] == '\0')
        return tm_error_set(e, TM_EINPUT,
                            "there is a token (AWS_WEB_IDENTITY_TOKEN_FILE), but no role: set AWS_ROLE_ARN");
    (void)setting(f, "role_session_name", role.session, sizeof role.session);
    if (session != NULL) (void)snprintf(role.session, sizeof role.session, "%s", session);
    (void)setting(f, "external_id", role.external_id, sizeof role.external_id);
    (void)setting(f, "duration_seconds", role.duration_s, sizeof role.duration_s);
    find_region(f, role.region);
    return by_keys ? of_role(f, &role, out, e) : tm_aws_keys__of_role(f->env, &role, NULL, out, e);
}

/* ---- all of them ---- */

static int nobody(const struct files *f, bool here, struct tm_error *e)
{
    const char *named = f->env->variable(f->env, "AWS_PROFILE");
    if (!here && f->roles == 0 && named != NULL && named[0] != '\0' &&
        !tm_aws_config__has(f->credentials.data, f->credentials.length, f->profile))
        return tm_error_set(e, TM_EINPUT, "there is no profile %s (AWS_PROFILE) in %s or %s", f->profile,
                            f->config_path, f->credentials_path);
    return tm_error_set(e, TM_ENOTFOUND, "profile %s has no credentials", f->profile);
}

static int of_files(struct files *f, struct tm_aws_keys *out, char source[256], struct tm_error *e)
{
    char value[VALUE_BYTES];
    struct tm_aws_sso sso;
    bool here = tm_aws_config__has(f->config.data, f->config.length, f->section);
    (void)snprintf(source, 256, "profile %.60s of %.180s", f->profile, f->config_path);
    int rc = assume(f, out, e);
    if (rc != -(int)TM_ENOTFOUND) return rc;
    if (find_sso(f, &sso)) return tm_aws_keys__of_sso(f->env, &sso, out, e);
    if (keys_of(&f->credentials, f->profile, out)) {
        (void)snprintf(source, 256, "profile %.60s of %.180s", f->profile, f->credentials_path);
        return 0;
    }
    if (get(&f->config, f->section, "credential_process", value, sizeof value) ||
        get(&f->credentials, f->profile, "credential_process", value, sizeof value))
        return of_process(f->env, value, f->profile, out, e);
    if (keys_of(&f->config, f->section, out)) return 0;
    return nobody(f, here, e);
}

int tm_aws_keys__of_profile(struct tm_env *env, struct tm_aws_keys *out, char source[256], struct tm_error *e)
{
    struct files f;
    int rc = open_files(env, &f, e);
    if (rc == 0) rc = of_files(&f, out, source, e);
    close_files(&f);
    return rc;
}
