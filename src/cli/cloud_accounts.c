#include "cli/cloud_accounts.h"

#include "cloud/aws_check.h"
#include "cloud/azure_check.h"
#include "cloud/gcp_check.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const char *const tm_cloud_kind_names[] = {"aws", "gcp", "azure", NULL};

static const struct tm_cloud_kind kinds[] = {
    {.name = "aws",
     .people = "AWS",
     .find = tm_rented_find_aws,
     .end = tm_rented_end_aws,
     .clear = tm_rented_clear_aws,
     .check = tm_aws_check,
     .policy = tm_aws_check_policy,
     .variables = {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
                   "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                   "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_EC2_METADATA_SERVICE_ENDPOINT"},
     .files = {{"AWS_SHARED_CREDENTIALS_FILE", NULL, ".aws/credentials"}, {"AWS_CONFIG_FILE", NULL, ".aws/config"}}},
    {.name = "gcp",
     .people = "Google Cloud",
     .find = tm_rented_find_gcp,
     .end = tm_rented_end_gcp,
     .clear = tm_rented_clear_gcp,
     .check = tm_gcp_check,
     .policy = tm_gcp_check_policy,
     .variables = {"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT",
                   "CLOUDSDK_ACTIVE_CONFIG_NAME", "GCE_METADATA_HOST"},
     .files = {{"CLOUDSDK_CONFIG", "application_default_credentials.json",
                ".config/gcloud/application_default_credentials.json"}}},
    {.name = "azure",
     .people = "Azure",
     .find = tm_rented_find_azure,
     .end = tm_rented_end_azure,
     .clear = tm_rented_clear_azure,
     .check = tm_azure_check,
     .policy = tm_azure_check_policy,
     .variables = {"AZURE_SUBSCRIPTION_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"},
     .files = {{"AZURE_CONFIG_DIR", "azureProfile.json", ".azure/azureProfile.json"}}},
};

enum { KINDS = sizeof kinds / sizeof *kinds };
static_assert((int)KINDS <= (int)TM_CLOUD_KINDS_MAX, "lists of clouds have room");

const struct tm_cloud_kind *tm_cloud_kind_at(size_t index)
{
    return index < KINDS ? &kinds[index] : NULL;
}

int tm_cloud_kind_find(const char *name, const struct tm_cloud_kind **out, struct tm_error *e)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].name, name) != 0) continue;
        *out = &kinds[i];
        return 0;
    }
    return tm_error_set(e, TM_EUSAGE, "which cloud? expected aws, gcp or azure, got \"%.100s\"", name);
}

static const char *set_variable(struct tm_env *env, const char *name)
{
    const char *value = env->variable(env, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* One that is there and cannot be read counts: whoever asks the cloud then says why. */
static bool is_there(struct tm_env *env, const struct tm_cloud_kind_file *file)
{
    char path[4200];
    struct tm_text text;
    const char *given = set_variable(env, file->variable);
    const char *home = set_variable(env, "HOME");
    if (given == NULL && home == NULL) return false;
    if (given != NULL)
        (void)snprintf(path, sizeof path, "%.4000s%s%s", given, file->inside != NULL ? "/" : "",
                       file->inside != NULL ? file->inside : "");
    else
        (void)snprintf(path, sizeof path, "%.4000s/%s", home, file->below_home);
    tm_text_init(&text, 1 << 20);
    int rc = env->file_read(env, path, &text, NULL);
    bool there = rc == 0 ? text.length > 0 : rc != -(int)TM_ENOTFOUND;
    tm_text_deinit(&text);
    return there;
}

bool tm_cloud_kind_is_set(struct tm_env *env, const struct tm_cloud_kind *kind)
{
    for (size_t i = 0; i < sizeof kind->variables / sizeof *kind->variables && kind->variables[i] != NULL; i++)
        if (set_variable(env, kind->variables[i]) != NULL) return true;
    for (size_t i = 0; i < sizeof kind->files / sizeof *kind->files && kind->files[i].variable != NULL; i++)
        if (is_there(env, &kind->files[i])) return true;
    return false;
}
