/* Credentials of where we run: a container's service, or the instance's own (IMDSv2). */
#include "web/aws_credentials.h"
#include "web/plain.h"

#include <stdio.h>
#include <string.h>

enum { PLAIN_MS = 5000, INSTANCE_MS = 2000, URL_BYTES = 2048 };

/* ---- a container ---- */

static int find_authorization(struct tm_env *env, char *out, size_t room, struct tm_error *e)
{
    struct tm_text text;
    const char *path = env->variable(env, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = env->variable(env, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
    tm_text_init(&text, room / 2);
    int rc = path == NULL ? 0 : env->file_read(env, path, &text, e);
    if (rc == 0 && path != NULL) token = tm_text_string(&text);
    out[0] = '\0';
    if (rc == 0 && token != NULL && token[0] != '\0')
        (void)snprintf(out, room, "Authorization: %.*s\n", (int)strcspn(token, "\r\n"), token);
    tm_text_deinit(&text);
    return rc;
}

/* Credentials travel over plain HTTP only within the machine. */
static bool is_allowed(const char *url)
{
    static const char *const hosts[] = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]",
                                        "127.0.0.1",     "[::1]",          "localhost"};
    if (strncmp(url, "https://", 8) == 0) return true;
    if (strncmp(url, "http://", 7) != 0) return false;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        size_t length = strlen(hosts[i]);
        if (strncmp(url + 7, hosts[i], length) == 0 && strchr(":/", url[7 + length]) != NULL) return true;
    }
    return false;
}

int tm_aws_keys__of_container(struct tm_env *env, struct tm_aws_keys *out, struct tm_error *e)
{
    char url[URL_BYTES];
    char header[4096];
    struct tm_web_answer answer;
    const char *relative = env->variable(env, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = env->variable(env, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (relative != NULL && relative[0] != '\0')
        (void)snprintf(url, sizeof url, "http://169.254.170.2%s", relative);
    else if (full != NULL && full[0] != '\0')
        (void)snprintf(url, sizeof url, "%s", full);
    else
        return tm_error_set(e, TM_ENOTFOUND, "not in a container of AWS");
    if (!is_allowed(url))
        return tm_error_set(e, TM_EINPUT,
                            "AWS_CONTAINER_CREDENTIALS_FULL_URI=%s: only https, or http on this machine, is allowed",
                            url);
    int rc = find_authorization(env, header, sizeof header, e);
    if (rc == 0) rc = tm_web_plain__ask(env, "GET", url, header, NULL, PLAIN_MS, &answer, e);
    if (rc != 0) return tm_error_wrap(e, rc, "the container's service %s", url);
    if (answer.status == 200)
        rc = tm_aws_keys__read("the container's service", tm_text_string(&answer.body), answer.body.length, out, e);
    else
        rc = tm_error_set(e, TM_EINPUT, "the container's service %s answers %d", url, answer.status);
    tm_web_answer_deinit(&answer);
    return rc;
}

/* ---- an instance ---- */

/* 0: text of at most `room` bytes in `out`; -TM_ENOTFOUND: the service is not there, or does not know it. */
static int ask_instance(struct tm_env *env, const char *method, const char *path, const char *header, char *out,
                        size_t room, struct tm_error *e)
{
    char url[URL_BYTES];
    struct tm_web_answer answer;
    const char *endpoint = env->variable(env, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
    if (endpoint == NULL || endpoint[0] == '\0') endpoint = "http://169.254.169.254";
    size_t length = strlen(endpoint);
    while (length > 0 && endpoint[length - 1] == '/')
        length--;
    (void)snprintf(url, sizeof url, "%.*s%s", (int)length, endpoint, path);
    int rc = tm_web_plain__ask(env, method, url, header, NULL, INSTANCE_MS, &answer, e);
    if (rc == -(int)TM_EPEER || rc == -(int)TM_ETIMEOUT)
        return tm_error_set(e, TM_ENOTFOUND, "no metadata service at %s", url);
    if (rc != 0) return rc;
    if (answer.status != 200)
        rc = tm_error_set(e, TM_ENOTFOUND, "%s answers %d", url, answer.status);
    else if (answer.body.length >= room)
        rc = tm_error_set(e, TM_EINPUT, "%s answers with %zu bytes", url, answer.body.length);
    else
        (void)snprintf(out, room, "%s", tm_text_string(&answer.body));
    tm_web_answer_deinit(&answer);
    return rc;
}

int tm_aws_keys__of_instance(struct tm_env *env, struct tm_aws_keys *out, struct tm_error *e)
{
    static const char roles[] = "/latest/meta-data/iam/security-credentials/";
    char token[512];
    char header[600];
    char role[256];
    char path[400];
    char answer[16384];
    const char *disabled = env->variable(env, "AWS_EC2_METADATA_DISABLED");
    if (disabled != NULL && strcmp(disabled, "true") == 0)
        return tm_error_set(e, TM_ENOTFOUND, "AWS_EC2_METADATA_DISABLED is set");
    int rc = ask_instance(env, "PUT", "/latest/api/token", "x-aws-ec2-metadata-token-ttl-seconds: 21600\n", token,
                          sizeof token, e);
    if (rc != 0) return rc;
    (void)snprintf(header, sizeof header, "x-aws-ec2-metadata-token: %.*s\n", (int)strcspn(token, "\r\n"), token);
    rc = ask_instance(env, "GET", roles, header, role, sizeof role, e);
    if (rc != 0) return rc;
    (void)snprintf(path, sizeof path, "%s%.*s", roles, (int)strcspn(role, "\r\n"), role);
    rc = ask_instance(env, "GET", path, header, answer, sizeof answer, e);
    if (rc == 0) rc = tm_aws_keys__read("the instance's role", answer, strlen(answer), out, e);
    return rc;
}
