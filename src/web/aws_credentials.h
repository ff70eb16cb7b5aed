/* AWS credentials, found as AWS's own tools find them, the first that has some:
 *
 *   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
 *   2. the profile AWS_PROFILE (else "default") of ~/.aws/credentials and ~/.aws/config (AWS_SHARED_CREDENTIALS_FILE,
 *      AWS_CONFIG_FILE): the role that it assumes (role_arn, with source_profile, credential_source or
 *      web_identity_token_file), its login by SSO (the token that `aws sso login` left, renewed by its refresh token),
 *      its keys, or its credential_process; before all but a role, AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN
 *      (AWS_ROLE_SESSION_NAME)
 *   3. a container's: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI, with
 *      AWS_CONTAINER_AUTHORIZATION_TOKEN(_FILE)
 *   4. the instance's role by IMDSv2, unless AWS_EC2_METADATA_DISABLED is "true"
 *
 * A role whose use asks for the code of a device (mfa_serial) is refused: nobody types codes while a job runs.
 *
 * Those that end are asked for again 15 minutes before (or at half of their life), beside whoever asks, and not more
 * than once a minute; while the old ones are good, failing to is no error. They are kept in memory only, and never
 * printed. Any thread. */
#ifndef TM_WEB_AWS_CREDENTIALS_H
#define TM_WEB_AWS_CREDENTIALS_H

#include "base/env.h"
#include "web/aws_sign.h"

#include <jansson.h>

struct tm_aws_credentials;

int tm_aws_credentials__create(struct tm_env *env, struct tm_aws_credentials **out, struct tm_error *e);
void tm_aws_credentials__destroy(struct tm_aws_credentials *credentials);
/* A copy, to be cleared by the caller (tm_aws_keys__clear). -TM_ENOTFOUND: nobody has any; -TM_EINPUT: what was found
 * cannot be used. Without good ones it waits for whoever has them. */
int tm_aws_credentials__get(struct tm_aws_credentials *credentials, struct tm_aws_keys *out, struct tm_error *e);
/* The same, but nobody waits. -TM_EBUSY: they are being asked for; look again later. */
int tm_aws_credentials__look(struct tm_aws_credentials *credentials, struct tm_aws_keys *out, struct tm_error *e);
/* The service says that they have ended: ask for new ones with the next get. */
void tm_aws_credentials__doubt(struct tm_aws_credentials *credentials);
/* Where the last ones came from, in words: "the environment", "profile x of ~/.aws/credentials"; "": not so far. */
void tm_aws_credentials__source(struct tm_aws_credentials *credentials, char out[256]);

void tm_aws_keys__clear(struct tm_aws_keys *keys);

/* ---- shared inside the room, and with tests ---- */

/* The JSON of credential_process, containers and IMDS. -TM_EINPUT: it is something else. */
int tm_aws_keys__read(const char *from, const char *text, size_t length, struct tm_aws_keys *out, struct tm_error *e);
/* A setting of the profile: of the config file, "" where there is none. */
int tm_aws_profile__setting(struct tm_env *env, const char *key, char *out, size_t room, struct tm_error *e);
/* endpoint_url of a service ("ec2") in the section that the profile names as its `services`; "" where there is none. */
int tm_aws_profile__endpoint(struct tm_env *env, const char *service, char *out, size_t room, struct tm_error *e);
/* What a profile says of its login by SSO. */
struct tm_aws_sso {
    char session[256]; /* "": none, as it was before there were any */
    char start[1024];
    char region[64];
    char account[64];
    char role[256];
};
/* The file of a login, as the JSON that it is (the caller's), and when its token ends. -TM_EINPUT: it is something
 * else.
 */
int tm_aws_sso__read(const char *path, const char *text, size_t length, json_t **out, int64_t *out_ends_ms,
                     struct tm_error *e);
/* Of the login that `aws sso login` left, which is renewed where it can be. -TM_EINPUT: somebody must log in. */
int tm_aws_keys__of_sso(struct tm_env *env, const struct tm_aws_sso *sso, struct tm_aws_keys *out, struct tm_error *e);
/* A role that is assumed at AWS's token service. */
struct tm_aws_role {
    char arn[512];
    char session[72];       /* "": one is made up */
    char external_id[1232]; /* "": none */
    char duration_s[12];    /* "": as the service has it */
    char token_file[1024];  /* by the token of an identity provider, which writes it anew now and then; "": by keys */
    char region[64];        /* "": the one that the role's partition has for all */
};
/* `by`: who assumes it; NULL: who has the token file. -TM_EINPUT: it is refused, in the service's words. */
int tm_aws_keys__of_role(struct tm_env *env, const struct tm_aws_role *role, const struct tm_aws_keys *by,
                         struct tm_aws_keys *out, struct tm_error *e);
/* What the service answers, in XML. -TM_EINPUT: it is something else. For the fuzzer, too. */
int tm_aws_keys__read_role(const char *text, size_t length, struct tm_aws_keys *out, struct tm_error *e);
/* Each -TM_ENOTFOUND where it has none. */
int tm_aws_keys__of_environment(struct tm_env *env, struct tm_aws_keys *out, struct tm_error *e);
int tm_aws_keys__of_profile(struct tm_env *env, struct tm_aws_keys *out, char source[256], struct tm_error *e);
int tm_aws_keys__of_container(struct tm_env *env, struct tm_aws_keys *out, struct tm_error *e);
int tm_aws_keys__of_instance(struct tm_env *env, struct tm_aws_keys *out, struct tm_error *e);

#endif
