/* The chain, on files and variables of the virtual world; what asks a service, and a process, on the machine itself. */
#include "base/calendar.h"
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "web/aws.h"
#include "web/aws_config.h"
#include "web/aws_credentials.h"
#include "web/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char config[] = "# comment\n[default]\nregion = eu-west-1 ; mine\n\n[profile dev]\n"
                             "aws_access_key_id=CONFIGID\naws_secret_access_key=CONFIGSECRET\ns3 =\n  region = nested\n"
                             "[profile  role]\nrole_arn = arn:x\n[profile empty]\n[other dev]\nregion=no\n"
                             "[profile twice]\nregion=a\nregion=b\n"
                             "[profile both]\nrole_arn=arn:x\nsource_profile=dev\ncredential_source=Environment\n"
                             "[profile device]\nrole_arn=arn:x\nsource_profile=dev\nmfa_serial=arn:m\n"
                             "[profile self]\nrole_arn=arn:x\nsource_profile=self\n"
                             "[profile round]\nrole_arn=arn:x\nsource_profile=trip\n"
                             "[profile trip]\nrole_arn=arn:x\nsource_profile=round\n"
                             "[profile above]\nrole_arn=arn:x\nsource_profile=empty\n"
                             "[profile moon]\nrole_arn=arn:x\ncredential_source=Moon\n"
                             "[profile around]\nrole_arn=arn:x\ncredential_source=Environment\n"
                             "[profile here]\nrole_arn=arn:x\ncredential_source=EcsContainer\n";
static const char credentials[] = "[default]\naws_access_key_id = FILEID\naws_secret_access_key = FILE/SECRET+=\n"
                                  "[work]\nAWS_ACCESS_KEY_ID = WORKID\naws_secret_access_key = WORKSECRET\n"
                                  "aws_session_token = WORKTOKEN\n";

static void test_config(void **state)
{
    (void)state;
    static const struct {
        const char *section;
        const char *key;
        const char *want; /* NULL: none */
    } rows[] = {{"default", "region", "eu-west-1"},    {"profile dev", "aws_access_key_id", "CONFIGID"},
                {"profile dev", "region", NULL},       {"profile role", "role_arn", "arn:x"},
                {"profile twice", "region", "b"},      {"profile none", "region", NULL},
                {"other dev", "region", "no"},         {"dev", "region", NULL},
                {"default", "aws_access_key_id", NULL}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        const char *value = NULL;
        size_t length = 0;
        bool found = tm_aws_config__find(config, sizeof config - 1, rows[i].section, rows[i].key, &value, &length);
        assert_row(found == (rows[i].want != NULL), "%s %s", rows[i].section, rows[i].key);
        if (found)
            assert_row(length == strlen(rows[i].want) && memcmp(value, rows[i].want, length) == 0, "%s %s: %.*s",
                       rows[i].section, rows[i].key, (int)length, value);
    }
    assert_true(tm_aws_config__has(config, sizeof config - 1, "profile empty"));
    assert_false(tm_aws_config__has(config, sizeof config - 1, "profile emp"));
}

static struct tm_env *world(void)
{
    struct tm_env *env = tm_env_virtual_create(1);
    assert_int_equal(tm_env_virtual_set_variable(env, "HOME", "/home/u"), 0);
    assert_int_equal(tm_env_virtual_set_variable(env, "AWS_EC2_METADATA_DISABLED", "true"), 0);
    assert_int_equal(env->file_write(env, "/home/u/.aws/config", config, sizeof config - 1, NULL), 0);
    assert_int_equal(env->file_write(env, "/home/u/.aws/credentials", credentials, sizeof credentials - 1, NULL), 0);
    return env;
}

/* Where services are asked, in the order of AWS's own tools. */
static void test_endpoints(void **state)
{
    (void)state;
    static const char text[] = "[default]\nregion = us-east-1\nservices = here\nendpoint_url = http://all\n"
                               "[services other]\nec2 =\n  endpoint_url = http://no\n"
                               "[services here]\ns3 =\n  # a comment\n  addressing_style = path\n\n"
                               "  endpoint_url = http://mine\nservice_quotas =\n  endpoint_url = http://quotas\nec2 =\n"
                               "endpoint_url = http://not-below\n"
                               "[profile bare]\nregion = us-east-1\nignore_configured_endpoint_urls = true\n"
                               "endpoint_url = http://all\n";
    static const struct {
        const char *profile, *name, *value; /* a variable; NULL: none */
        const char *service, *want;
    } rows[] = {{NULL, NULL, NULL, "s3", "http://mine"},
                {NULL, NULL, NULL, "servicequotas", "http://quotas"},
                {NULL, NULL, NULL, "ec2", "http://all"},
                {NULL, "AWS_ENDPOINT_URL", "http://env", "s3", "http://env"},
                {NULL, "AWS_ENDPOINT_URL_S3", "http://env-s3", "s3", "http://env-s3"},
                {NULL, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", "s3", "https://s3.us-east-1.amazonaws.com"},
                {NULL, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "false", "s3", "http://mine"},
                {"bare", "AWS_ENDPOINT_URL", "http://env", "ec2", "https://ec2.us-east-1.amazonaws.com"},
                {"bare", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "false", "ec2", "http://all"}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_env *env = world();
        struct tm_aws *aws = NULL;
        struct tm_error e = {.text = ""};
        char origin[TM_AWS_ORIGIN_MAX] = "";
        assert_int_equal(env->file_write(env, "/home/u/.aws/config", text, sizeof text - 1, NULL), 0);
        if (rows[i].profile != NULL)
            assert_int_equal(tm_env_virtual_set_variable(env, "AWS_PROFILE", rows[i].profile), 0);
        if (rows[i].name != NULL) assert_int_equal(tm_env_virtual_set_variable(env, rows[i].name, rows[i].value), 0);
        assert_row(tm_aws_create(env, NULL, &aws, &e) == 0, "row %zu: %s", i, e.text);
        assert_row(tm_aws_origin(aws, rows[i].service, origin, &e) == 0, "row %zu: %s", i, e.text);
        assert_row(strcmp(origin, rows[i].want) == 0, "row %zu: %s", i, origin);
        tm_aws_destroy(aws);
        tm_env_virtual_destroy(env);
    }
}

static void test_chain(void **state)
{
    (void)state;
    static const struct {
        const char *variables[8];
        int rc;
        const char *id;
        const char *token;
        const char *words; /* of the source, or the error */
    } rows[] = {
        {{NULL}, 0, "FILEID", "", "profile default of /home/u/.aws/credentials"},
        {{"AWS_ACCESS_KEY_ID", "VARID", "AWS_SECRET_ACCESS_KEY", "s", "AWS_SESSION_TOKEN", "t"},
         0,
         "VARID",
         "t",
         "the environment"},
        {{"AWS_ACCESS_KEY_ID", "VARID"}, -(int)TM_EINPUT, NULL, NULL, "AWS_SECRET_ACCESS_KEY is not"},
        {{"AWS_PROFILE", "work"}, 0, "WORKID", "WORKTOKEN", "profile work of"},
        {{"AWS_PROFILE", "dev"}, 0, "CONFIGID", "", "profile dev of /home/u/.aws/config"},
        {{"AWS_PROFILE", "role"}, -(int)TM_EINPUT, NULL, NULL, "profile role: role_arn: write source_profile or"},
        {{"AWS_PROFILE", "both"}, -(int)TM_EINPUT, NULL, NULL, "one of them"},
        {{"AWS_PROFILE", "device"}, -(int)TM_EINPUT, NULL, NULL, "aws configure export-credentials --profile device"},
        {{"AWS_PROFILE", "self"}, -(int)TM_EINPUT, NULL, NULL, "profile self comes to itself"},
        {{"AWS_PROFILE", "round"}, -(int)TM_EINPUT, NULL, NULL, "comes to itself, and nowhere are keys"},
        {{"AWS_PROFILE", "above"}, -(int)TM_EINPUT, NULL, NULL, "source_profile = empty: it has no credentials"},
        {{"AWS_PROFILE", "moon"}, -(int)TM_EINPUT, NULL, NULL, "credential_source = Moon: write Environment, Ec2"},
        {{"AWS_PROFILE", "around"}, -(int)TM_EINPUT, NULL, NULL, "credential_source = Environment: AWS_ACCESS_KEY_ID"},
        {{"AWS_PROFILE", "here"}, -(int)TM_EINPUT, NULL, NULL, "credential_source = EcsContainer: not in a container"},
        {{"AWS_WEB_IDENTITY_TOKEN_FILE", "/token"}, -(int)TM_EINPUT, NULL, NULL, "but no role: set AWS_ROLE_ARN"},
        {{"AWS_WEB_IDENTITY_TOKEN_FILE", "/token", "AWS_ROLE_ARN", "arn:x"},
         -(int)TM_EINPUT,
         NULL,
         NULL,
         "the token of the identity provider (AWS_WEB_IDENTITY_TOKEN_FILE): "},
        {{"AWS_WEB_IDENTITY_TOKEN_FILE", "/token", "AWS_ACCESS_KEY_ID", "VARID", "AWS_SECRET_ACCESS_KEY", "s"},
         0,
         "VARID",
         "",
         "the environment"},
        {{"AWS_PROFILE", "nobody"}, -(int)TM_EINPUT, NULL, NULL, "there is no profile nobody"},
        {{"AWS_PROFILE", "empty"}, -(int)TM_ENOTFOUND, NULL, NULL, "no AWS credentials: set AWS_ACCESS_KEY_ID"},
        {{"AWS_PROFILE", "work", "AWS_SHARED_CREDENTIALS_FILE", "/none"}, -(int)TM_EINPUT, NULL, NULL, "/none"},
        {{"AWS_SHARED_CREDENTIALS_FILE", "/none", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://1.2.3.4/x"},
         -(int)TM_EINPUT,
         NULL,
         NULL,
         "only https"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_env *env = world();
        struct tm_aws_credentials *c = NULL;
        struct tm_aws_keys keys = {.id = ""};
        struct tm_error e = {.text = ""};
        char source[256] = "";
        for (size_t v = 0; v + 1 < 8 && rows[i].variables[v] != NULL; v += 2)
            assert_int_equal(tm_env_virtual_set_variable(env, rows[i].variables[v], rows[i].variables[v + 1]), 0);
        assert_int_equal(tm_aws_credentials__create(env, &c, NULL), 0);
        int rc = tm_aws_credentials__get(c, &keys, &e);
        assert_row(rc == rows[i].rc, "row %zu: %d %s", i, rc, e.text);
        if (rc == 0) {
            assert_string_equal(keys.id, rows[i].id);
            assert_string_equal(keys.token, rows[i].token);
            tm_aws_credentials__source(c, source);
        }
        assert_row(strstr(rc == 0 ? source : e.text, rows[i].words) != NULL, "row %zu: %s%s", i, source, e.text);
        tm_aws_credentials__destroy(c);
        tm_env_virtual_destroy(env);
    }
}

static void test_region(void **state)
{
    (void)state;
    struct tm_env *env = world();
    struct tm_aws *aws = NULL;
    struct tm_error e;
    assert_int_equal(tm_aws_create(env, NULL, &aws, NULL), 0);
    assert_string_equal(tm_aws_region(aws), "eu-west-1");
    tm_aws_destroy(aws);
    assert_int_equal(tm_env_virtual_set_variable(env, "AWS_REGION", "us-west-2"), 0);
    assert_int_equal(tm_aws_create(env, NULL, &aws, NULL), 0);
    assert_string_equal(tm_aws_region(aws), "us-west-2");
    tm_aws_destroy(aws);
    assert_int_equal(tm_env_virtual_set_variable(env, "AWS_REGION", "us west"), 0);
    assert_int_equal(tm_aws_create(env, NULL, &aws, &e), -(int)TM_EINPUT);
    assert_int_equal(tm_env_virtual_set_variable(env, "AWS_REGION", NULL), 0);
    assert_int_equal(tm_env_virtual_set_variable(env, "AWS_PROFILE", "dev"), 0);
    assert_int_equal(tm_aws_create(env, NULL, &aws, &e), -(int)TM_EINPUT);
    assert_error_has(e, "no AWS region: set AWS_REGION");
    tm_env_virtual_destroy(env);
}

static void test_json(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        int64_t ends_ms;
    } rows[] = {
        {"{\"Version\":1,\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\"}", 0, INT64_MAX},
        {"{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"Token\":\"T\",\"Expiration\":\"1970-01-01T00:00:05Z\"}", 0,
         5000},
        {"{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"Expiration\":\"soon\"}", -(int)TM_EINPUT, 0},
        {"{\"AccessKeyId\":\"A\"}", -(int)TM_EINPUT, 0},
        {"{\"AccessKeyId\":\"A\\n\",\"SecretAccessKey\":\"S\"}", -(int)TM_EINPUT, 0},
        {"Secret words", -(int)TM_EINPUT, 0},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_aws_keys keys;
        struct tm_error e = {.text = ""};
        assert_row(tm_aws_keys__read("it", rows[i].text, strlen(rows[i].text), &keys, &e) == rows[i].rc, "%s: %s",
                   rows[i].text, e.text);
        if (rows[i].rc == 0) assert_int_equal(keys.ends_ms, rows[i].ends_ms);
        assert_null(strstr(e.text, "words")); /* nothing of what was read */
    }
}

/* What the token service answers. */
static void test_role(void **state)
{
    (void)state;
#define ROLE(credentials)                                                                                              \
    "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult>" credentials           \
    "</AssumeRoleResult></AssumeRoleResponse>"
    static const struct {
        const char *text;
        int rc;
    } rows[] = {{ROLE("<Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>S</SecretAccessKey>"
                      "<SessionToken>T</SessionToken><Expiration>1970-01-01T00:00:05Z</Expiration></Credentials>"),
                 0},
                {ROLE("<Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>words</SecretAccessKey>"
                      "<SessionToken>T</SessionToken><Expiration>soon</Expiration></Credentials>"),
                 -(int)TM_EINPUT},
                {ROLE("<Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>words</SecretAccessKey>"
                      "<Expiration>1970-01-01T00:00:05Z</Expiration></Credentials>"),
                 -(int)TM_EINPUT},
                {ROLE(""), -(int)TM_EINPUT},
                {"Secret words", -(int)TM_EINPUT}};
#undef ROLE
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_aws_keys keys = {.id = ""};
        struct tm_error e = {.text = ""};
        assert_row(tm_aws_keys__read_role(rows[i].text, strlen(rows[i].text), &keys, &e) == rows[i].rc, "row %zu: %s",
                   i, e.text);
        if (rows[i].rc == 0) assert_true(strcmp(keys.token, "T") == 0 && keys.ends_ms == 5000);
        assert_null(strstr(e.text, "words")); /* nothing of what was read */
    }
}

struct waiting {
    struct tm_aws_credentials *credentials;
    struct tm_error e;
    int rc;
};

static void *wait_for_keys(void *argument)
{
    struct waiting *w = argument;
    struct tm_aws_keys keys;
    w->rc = tm_aws_credentials__get(w->credentials, &keys, &w->e);
    return NULL;
}

/* Nobody waits for a process that has not answered, also while another thread does; what it says then, be it a failure,
 * is for whoever looks. */
static void look_beside(struct tm_aws_credentials *c, const struct tm_tempdir *dir)
{
    static const int wanted[] = {0, -(int)TM_EINPUT};
    struct tm_env *env = tm_env_real();
    struct tm_aws_keys keys;
    struct tm_error e;
    for (size_t i = 0; i < TM_COUNT(wanted); i++) {
        struct waiting waiting = {.credentials = c, .e = {.text = ""}};
        pthread_t thread;
        if (wanted[i] != 0) assert_int_equal(env->file_remove(env, tm_tempdir_path(dir, "answer"), NULL), 0);
        assert_int_equal(mkfifo(tm_tempdir_path(dir, "gate"), 0600), 0);
        tm_aws_credentials__doubt(c);
        assert_int_equal(pthread_create(&thread, NULL, wait_for_keys, &waiting), 0);
        int gate = open(tm_tempdir_path(dir, "gate"), O_WRONLY); /* once it asks */
        assert_true(gate >= 0);
        assert_int_equal(unlink(tm_tempdir_path(dir, "gate")), 0);
        for (int look = 0; look < 3; look++)
            assert_int_equal(tm_aws_credentials__look(c, &keys, &e), -(int)TM_EBUSY);
        (void)close(gate);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_row(waiting.rc == wanted[i], "row %zu: %d %s", i, waiting.rc, waiting.e.text);
        assert_int_equal(tm_aws_credentials__look(c, &keys, NULL), wanted[i]); /* nobody asks again so soon */
    }
}

/* A process that has said all and does not end is ended, and leaves nothing. */
static void test_stays(void **state)
{
    (void)state;
    static const char *const argv[] = {"/bin/sh", "-c", "echo $$; exec > /dev/null 2>&1; exec sleep 1000", NULL};
    struct tm_text text;
    struct tm_error e = {.text = ""};
    tm_text_init(&text, 100);
    assert_int_equal(tm_web_process__ask(tm_env_real(), argv, 500, &text, &e), -(int)TM_ETIMEOUT);
    assert_error_has(e, "still running");
    pid_t pid = (pid_t)strtol(tm_text_string(&text), NULL, 10);
    assert_true(pid > 1);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    tm_text_deinit(&text);
}

/* A process of the machine, asked again when its credentials end soon, and kept while they are good. */
static void test_process(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_env *env = tm_env_real();
    struct tm_aws_credentials *c = NULL;
    struct tm_aws_keys keys;
    struct tm_error e;
    char text[2000];
    tm_tempdir_make(&dir);
    (void)snprintf(
        text, sizeof text,
        "[default]\ncredential_process = echo x >> %s/asked; echo noise >&2; [ ! -p %s/gate ] || cat %s/gate; "
        "cat %s/answer\n",
        dir.path, dir.path, dir.path, dir.path);
    assert_int_equal(env->file_write(env, tm_tempdir_path(&dir, "config"), text, strlen(text), NULL), 0);
    (void)setenv("AWS_CONFIG_FILE", tm_tempdir_path(&dir, "config"), 1);
    (void)setenv("AWS_SHARED_CREDENTIALS_FILE", "/none", 1);
    (void)setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    (void)unsetenv("AWS_ACCESS_KEY_ID");
    (void)unsetenv("AWS_PROFILE");
    static const char soon[] =
        "{\"Version\":1,\"AccessKeyId\":\"P\",\"SecretAccessKey\":\"S\",\"Expiration\":\"2999-01-01T00:00:00Z\"}";
    assert_int_equal(tm_aws_credentials__create(env, &c, NULL), 0);
    assert_int_equal(tm_aws_credentials__get(c, &keys, &e), -(int)TM_EINPUT);
    assert_error_has(e, "credential_process of profile default: it ended with status 1");
    tm_aws_credentials__doubt(c); /* else that is the answer for a moment */
    assert_int_equal(env->file_write(env, tm_tempdir_path(&dir, "answer"), soon, sizeof soon - 1, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_row(tm_aws_credentials__get(c, &keys, &e) == 0, "%s", e.text);
    assert_string_equal(keys.id, "P");
    tm_aws_credentials__doubt(c);
    assert_int_equal(tm_aws_credentials__get(c, &keys, &e), 0);
    look_beside(c, &dir);
    struct tm_text asked;
    tm_text_init(&asked, 100);
    assert_int_equal(env->file_read(env, tm_tempdir_path(&dir, "asked"), &asked, NULL), 0);
    assert_int_equal(asked.length, 2 * 5); /* the failure, the first, the doubted, and two beside */
    tm_text_deinit(&asked);
    tm_aws_credentials__destroy(c);
    tm_tempdir_remove(&dir);
}

/* The machine's environment with a clock that is moved. */
static int64_t moved_ms;

static int64_t moved_now_ms(struct tm_env *env)
{
    (void)env;
    return tm_env_real()->now_ms(tm_env_real()) + moved_ms;
}

static int64_t moved_monotonic_ns(struct tm_env *env)
{
    (void)env;
    return tm_env_real()->monotonic_ns(tm_env_real()) + moved_ms * 1000000;
}

static void print_answer(const char *id, int64_t ends_ms, char *out, size_t room)
{
    char ends[TM_CALENDAR_TEXT_MAX];
    (void)snprintf(out, room, "{\"AccessKeyId\":\"%s\",\"SecretAccessKey\":\"S\",\"Expiration\":\"%s\"}", id,
                   tm_calendar_print(ends_ms, ends));
}

static size_t count_asked(struct tm_tempdir *dir)
{
    struct tm_text asked;
    tm_text_init(&asked, 1000);
    assert_int_equal(tm_env_real()->file_read(tm_env_real(), tm_tempdir_path(dir, "asked"), &asked, NULL), 0);
    size_t count = asked.length / 2;
    tm_text_deinit(&asked);
    return count;
}

/* Sessions of a quarter of an hour: asked for once, then beside whoever uses the old ones, who does not wait. The
 * process of this test answers only when it is given something through a pipe. */
static void test_short_sessions(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    struct tm_env env = *tm_env_real();
    struct tm_aws_credentials *c = NULL;
    struct tm_aws_keys keys;
    struct tm_error e;
    char text[1000];
    env.now_ms = moved_now_ms;
    env.monotonic_ns = moved_monotonic_ns;
    moved_ms = 0;
    tm_tempdir_make(&dir);
    (void)snprintf(text, sizeof text, "[default]\ncredential_process = echo x >> %s/asked; cat %s/answer\n", dir.path,
                   dir.path);
    assert_int_equal(env.file_write(&env, tm_tempdir_path(&dir, "config"), text, strlen(text), NULL), 0);
    (void)setenv("AWS_CONFIG_FILE", tm_tempdir_path(&dir, "config"), 1);
    (void)setenv("AWS_SHARED_CREDENTIALS_FILE", "/none", 1);
    (void)setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    print_answer("FIRST", moved_now_ms(&env) + 14 * 60000, text, sizeof text);
    assert_int_equal(env.file_write(&env, tm_tempdir_path(&dir, "answer"), text, strlen(text), NULL), 0);
    assert_int_equal(tm_aws_credentials__create(&env, &c, NULL), 0);
    for (int i = 0; i < 20; i++)
        assert_row(tm_aws_credentials__get(c, &keys, &e) == 0, "%s", e.text);
    assert_int_equal(count_asked(&dir), 1);

    moved_ms += 8 * 60000;
    (void)unlink(tm_tempdir_path(&dir, "answer"));
    assert_int_equal(mkfifo(tm_tempdir_path(&dir, "answer"), 0600), 0);
    for (int i = 0; i < 20; i++) {
        assert_row(tm_aws_credentials__get(c, &keys, &e) == 0, "%s", e.text);
        assert_string_equal(keys.id, "FIRST");
    }
    print_answer("SECOND", moved_now_ms(&env) + 14 * 60000, text, sizeof text);
    FILE *pipe = fopen(tm_tempdir_path(&dir, "answer"), "w"); /* when the process reads */
    assert_non_null(pipe);
    assert_true(fputs(text, pipe) >= 0);
    (void)fclose(pipe);
    for (int i = 0; i < 10000 && strcmp(keys.id, "SECOND") != 0; i++) {
        assert_int_equal(tm_aws_credentials__get(c, &keys, &e), 0);
        env.sleep_ms(&env, 1);
    }
    assert_string_equal(keys.id, "SECOND");
    assert_int_equal(count_asked(&dir), 2);

    moved_ms += 15 * 60000; /* without good ones it waits, and fails */
    (void)unlink(tm_tempdir_path(&dir, "answer"));
    assert_int_equal(tm_aws_credentials__get(c, &keys, &e), -(int)TM_EINPUT);
    tm_aws_credentials__destroy(c);
    tm_tempdir_remove(&dir);
}

static int use(struct tm_env *env)
{
    struct tm_aws_credentials *c = NULL;
    struct tm_aws_keys keys;
    int rc = tm_aws_credentials__create(env, &c, NULL);
    if (rc == 0) rc = tm_aws_credentials__get(c, &keys, NULL);
    tm_aws_credentials__destroy(c);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    struct tm_env *env = world();
    TM_FAIL_EACH_ALLOC(rc = use(env));
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_config), TM_TEST(test_endpoints), TM_TEST(test_chain), TM_TEST(test_region),
             TM_TEST(test_json), TM_TEST(test_role), TM_TEST(test_process), TM_TEST(test_stays),
             TM_TEST(test_short_sessions), TM_TEST(test_memory))
