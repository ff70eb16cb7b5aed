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
     .variables = {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_WEB_IDENTITY_TOKEN_FILE",
                   "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"},
     .files = {".aws/credentials", ".aws/config"}},
    {.name = "gcp",
     .people = "Google Cloud",
     .find = tm_rented_find_gcp,
     .end = tm_rented_end_gcp,
     .clear = tm_rented_clear_gcp,
     .check = tm_gcp_check,
     .policy = tm_gcp_check_policy,
     .variables = {"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"},
     .files = {".config/gcloud/application_default_credentials.json"}},
    {.name = "azure",
     .people = "Azure",
     .find = tm_rented_find_azure,
     .end = tm_rented_end_azure,
     .clear = tm_rented_clear_azure,
     .check = tm_azure_check,
     .policy = tm_azure_check_policy,
     .variables = {"AZURE_SUBSCRIPTION_ID"},
     .files = {".azure/azureProfile.json"}},
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

bool tm_cloud_kind_is_set(struct tm_env *env, const struct tm_cloud_kind *kind)
{
    const char *home = env->variable(env, "HOME");
    for (size_t i = 0; i < sizeof kind->variables / sizeof *kind->variables && kind->variables[i] != NULL; i++) {
        const char *value = env->variable(env, kind->variables[i]);
        if (value != NULL && value[0] != '\0') return true;
    }
    for (size_t i = 0; home != NULL && i < sizeof kind->files / sizeof *kind->files && kind->files[i] != NULL; i++) {
        char path[1200];
        struct tm_text text;
        (void)snprintf(path, sizeof path, "%.1000s/%s", home, kind->files[i]);
        tm_text_init(&text, 1 << 20);
        bool there = env->file_read(env, path, &text, NULL) == 0;
        tm_text_deinit(&text);
        if (there) return true;
    }
    return false;
}
