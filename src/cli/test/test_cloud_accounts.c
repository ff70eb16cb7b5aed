#include "cli/cloud_accounts.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"

#include <string.h>

/* Everything that a cloud's credentials are looked for by says that the cloud is set up: `cloud list` without a cloud
 * would leave out what costs there, and not say so. */
static const struct {
    const char *name;
    const char *variable; /* NULL: none */
    const char *value;
    const char *file;  /* NULL: none */
    const char *cloud; /* "": none */
} rows[] = {
    {"nothing", NULL, NULL, NULL, ""},
    {"an empty variable", "AWS_PROFILE", "", NULL, ""},
    {"a key", "AWS_ACCESS_KEY_ID", "AKIA", NULL, "aws"},
    {"a profile", "AWS_PROFILE", "mine", NULL, "aws"},
    {"a profile, as older tools call it", "AWS_DEFAULT_PROFILE", "mine", NULL, "aws"},
    {"a region", "AWS_REGION", "us-east-1", NULL, "aws"},
    {"a region, as older tools call it", "AWS_DEFAULT_REGION", "us-east-1", NULL, "aws"},
    {"a container", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x", NULL, "aws"},
    {"a container's whole address", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost/x", NULL, "aws"},
    {"an instance's role elsewhere", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://localhost:1", NULL, "aws"},
    {"AWS's config", NULL, NULL, "/home/me/.aws/config", "aws"},
    {"AWS's credentials", NULL, NULL, "/home/me/.aws/credentials", "aws"},
    {"AWS's config elsewhere", "AWS_CONFIG_FILE", "/etc/aws.conf", "/etc/aws.conf", "aws"},
    {"AWS's credentials elsewhere", "AWS_SHARED_CREDENTIALS_FILE", "/etc/keys", "/etc/keys", "aws"},
    {"one that is not there", "AWS_CONFIG_FILE", "/etc/aws.conf", NULL, ""},
    {"not in its usual place, which nobody reads then", "AWS_CONFIG_FILE", "/dev/none", "/home/me/.aws/config", ""},
    {"Google's key", "GOOGLE_APPLICATION_CREDENTIALS", "/k.json", NULL, "gcp"},
    {"a project", "GOOGLE_CLOUD_PROJECT", "p", NULL, "gcp"},
    {"a project of gcloud", "CLOUDSDK_CORE_PROJECT", "p", NULL, "gcp"},
    {"a configuration of gcloud", "CLOUDSDK_ACTIVE_CONFIG_NAME", "work", NULL, "gcp"},
    {"a metadata server", "GCE_METADATA_HOST", "localhost:1", NULL, "gcp"},
    {"a login", NULL, NULL, "/home/me/.config/gcloud/application_default_credentials.json", "gcp"},
    {"a login elsewhere", "CLOUDSDK_CONFIG", "/etc/gcloud", "/etc/gcloud/application_default_credentials.json", "gcp"},
    {"a folder of gcloud without one", "CLOUDSDK_CONFIG", "/etc/gcloud", "/etc/gcloud/active_config", ""},
    {"a subscription", "AZURE_SUBSCRIPTION_ID", "5ab", NULL, "azure"},
    {"a service principal", "AZURE_CLIENT_SECRET", "x", NULL, "azure"},
    {"a federated token", "AZURE_FEDERATED_TOKEN_FILE", "/t", NULL, "azure"},
    {"az's login", NULL, NULL, "/home/me/.azure/azureProfile.json", "azure"},
    {"az's login elsewhere", "AZURE_CONFIG_DIR", "/etc/az", "/etc/az/azureProfile.json", "azure"},
};

static void test_what_says_that_there_is_an_account(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_env *env = tm_env_virtual_create(1);
        assert_non_null(env);
        assert_int_equal(tm_env_virtual_set_variable(env, "HOME", "/home/me"), 0);
        if (rows[i].variable != NULL)
            assert_int_equal(tm_env_virtual_set_variable(env, rows[i].variable, rows[i].value), 0);
        if (rows[i].file != NULL) assert_int_equal(env->file_write(env, rows[i].file, "x\n", 2, NULL), 0);
        const struct tm_cloud_kind *kind = NULL;
        for (size_t k = 0; (kind = tm_cloud_kind_at(k)) != NULL; k++) {
            bool wanted = strcmp(kind->name, rows[i].cloud) == 0;
            assert_row(tm_cloud_kind_is_set(env, kind) == wanted, "%s: %s %s set up", rows[i].name, kind->name,
                       wanted ? "is not" : "is");
        }
        tm_env_virtual_destroy(env);
    }
}

TM_TEST_MAIN(TM_TEST(test_what_says_that_there_is_an_account))
