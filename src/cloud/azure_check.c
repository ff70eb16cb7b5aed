#include "cloud/azure_check.h"

#include "base/doc.h"
#include "cloud/azure_cloud.h"
#include "cloud/azure_text.h"
#include "web/azure_arm.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { ASK_MS = 30000, TRIES = 3 };

static const char policy[] =
    "{\n"
    "  \"Name\": \"Tidemill\",\n"
    "  \"Description\": \"Rents VMs for training, and releases them; with run --detach also of "
    "fleet.azure.coordinator_identity, beside Storage Blob Data Contributor\",\n"
    "  \"AssignableScopes\": [\"/subscriptions/SUBSCRIPTION\"],\n"
    "  \"Actions\": [\n"
    "    \"Microsoft.Resources/subscriptions/resourceGroups/read\",\n"
    "    \"Microsoft.Resources/subscriptions/resourceGroups/write\",\n"
    "    \"Microsoft.Compute/virtualMachines/read\",\n"
    "    \"Microsoft.Compute/virtualMachines/write\",\n"
    "    \"Microsoft.Compute/virtualMachines/delete\",\n"
    "    \"Microsoft.Compute/disks/read\",\n"
    "    \"Microsoft.Compute/disks/write\",\n"
    "    \"Microsoft.Compute/disks/delete\",\n"
    "    \"Microsoft.Compute/locations/operations/read\",\n"
    "    \"Microsoft.Compute/locations/usages/read\",\n"
    "    \"Microsoft.Network/networkInterfaces/read\",\n"
    "    \"Microsoft.Network/networkInterfaces/write\",\n"
    "    \"Microsoft.Network/networkInterfaces/delete\",\n"
    "    \"Microsoft.Network/networkInterfaces/join/action\",\n"
    "    \"Microsoft.Network/publicIPAddresses/read\",\n"
    "    \"Microsoft.Network/publicIPAddresses/write\",\n"
    "    \"Microsoft.Network/publicIPAddresses/delete\",\n"
    "    \"Microsoft.Network/publicIPAddresses/join/action\",\n"
    "    \"Microsoft.Network/virtualNetworks/read\",\n"
    "    \"Microsoft.Network/virtualNetworks/write\",\n"
    "    \"Microsoft.Network/virtualNetworks/subnets/join/action\",\n"
    "    \"Microsoft.Network/networkSecurityGroups/read\",\n"
    "    \"Microsoft.Network/networkSecurityGroups/write\",\n"
    "    \"Microsoft.Network/networkSecurityGroups/delete\",\n"
    "    \"Microsoft.Network/networkSecurityGroups/join/action\",\n"
    "    \"Microsoft.Network/networkSecurityGroups/securityRules/write\",\n"
    "    \"Microsoft.Network/applicationSecurityGroups/read\",\n"
    "    \"Microsoft.Network/applicationSecurityGroups/write\",\n"
    "    \"Microsoft.Network/applicationSecurityGroups/delete\",\n"
    "    \"Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action\",\n"
    "    \"Microsoft.Network/applicationSecurityGroups/joinNetworkSecurityRule/action\",\n"
    "    \"Microsoft.ManagedIdentity/userAssignedIdentities/assign/action\"\n"
    "  ],\n"
    "  \"NotActions\": []\n"
    "}\n";

const char *tm_azure_check_policy(void)
{
    return policy;
}

struct checking {
    struct tm_env *env;
    struct tm_arm *arm;
    struct tm_web *web;
    struct tm_cloud_checks *out;
    bool memory; /* there was none */
};

static struct tm_cloud_check *add(struct checking *c, const char *name, enum tm_check_result result)
{
    return tm_cloud_checks_add(c->out, name, result);
}

/* Asks; false: a line says that it was refused. *out: the caller's, NULL where it is not found. */
static bool ask(struct checking *c, const char *name, struct tm_arm_request *r, json_t **out)
{
    struct tm_error e = {.text = ""};
    struct tm_web_answer answer;
    struct tm_arm_refusal why = {.code = ""};
    r->method = "GET";
    r->deadline_ms = ASK_MS;
    r->tries_max = TRIES;
    *out = NULL;
    int rc = tm_arm_ask(c->web, r, &answer, &e);
    int status = rc == 0 ? answer.status : 0;
    if (rc == 0 && status >= 300)
        rc = tm_arm_refusal(tm_text_string(&answer.body), answer.body.length, &why, &e);
    else if (rc == 0)
        rc = tm_json_load("Azure's answer", tm_text_string(&answer.body), answer.body.length, out, &e);
    if (status != 0) tm_web_answer_deinit(&answer);
    c->memory = c->memory || rc == -(int)TM_ENOMEM;
    bool missing = status == 404 && strcmp(why.code, "SubscriptionNotFound") != 0;
    if (rc == 0 && (status < 300 || missing)) return true;
    struct tm_cloud_check *line = add(c, name, TM_CHECK_BAD);
    if (rc == 0)
        (void)snprintf(line->what, sizeof line->what, "Azure answers %d %.100s: %.250s", status, why.code, why.message);
    else
        (void)snprintf(line->what, sizeof line->what, "%.390s", e.text);
    const char *advice = tm_azure__advice(why.code);
    (void)snprintf(line->fix, sizeof line->fix, "%.290s",
                   advice[0] != '\0' ? advice
                   : status != 0     ? "correct the credentials, or the clock of this machine"
                                     : "check the network, the credentials, AZURE_AUTHORITY_HOST and "
                                       "AZURE_RESOURCE_MANAGER_ENDPOINT");
    return false;
}

static bool check_credentials(struct checking *c)
{
    struct tm_arm_request r = {.arm = c->arm};
    json_t *root = NULL;
    tm_arm_path(&r, "?api-version=2022-12-01");
    if (!ask(c, "credentials", &r, &root)) return false;
    const char *name = json_string_value(json_object_get(root, "displayName"));
    (void)snprintf(add(c, "credentials", TM_CHECK_GOOD)->what, 390, "subscription %s (%.200s)",
                   tm_arm_subscription(c->arm), name != NULL ? name : "");
    json_decref(root);
    return true;
}

/* Does a pattern of a role (with stars) allow it? Letters are the same in either case. */
static bool allows(const char *pattern, const char *action)
{
    for (; *pattern != '\0' && *pattern != '*'; pattern++, action++)
        if ((*pattern | 0x20) != (*action | 0x20)) return false;
    if (*pattern == '\0') return *action == '\0';
    for (;; action++) {
        if (allows(pattern + 1, action)) return true;
        if (*action == '\0') return false;
    }
}

static bool in_list(const json_t *list, const char *action)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *pattern = json_string_value(json_array_get(list, i));
        if (pattern != NULL && strlen(pattern) < 200 && allows(pattern, action)) return true;
    }
    return false;
}

static bool is_allowed(const json_t *roles, const char *action)
{
    for (size_t i = 0; i < json_array_size(roles); i++) {
        const json_t *role = json_array_get(roles, i);
        if (in_list(json_object_get(role, "actions"), action) && !in_list(json_object_get(role, "notActions"), action))
            return true;
    }
    return false;
}

static void check_permissions(struct checking *c)
{
    struct tm_arm_request r = {.arm = c->arm};
    struct tm_error e;
    json_t *root = NULL;
    json_t *needed = NULL;
    tm_arm_path(&r, "/providers/Microsoft.Authorization/permissions?api-version=2022-04-01");
    if (!ask(c, "permissions", &r, &root)) return;
    int rc = tm_json_load("policy", policy, sizeof policy - 1, &needed, &e);
    c->memory = c->memory || rc != 0;
    const json_t *actions = json_object_get(needed, "Actions");
    const char *lacking = NULL;
    for (size_t i = 0; lacking == NULL && i < json_array_size(actions); i++) {
        const char *action = json_string_value(json_array_get(actions, i));
        if (!is_allowed(json_object_get(root, "value"), action)) lacking = action;
    }
    struct tm_cloud_check *line = add(c, "permissions", lacking == NULL ? TM_CHECK_GOOD : TM_CHECK_BAD);
    if (lacking == NULL)
        (void)snprintf(line->what, sizeof line->what, "all that renting needs, by the roles in this subscription");
    else {
        (void)snprintf(line->what, sizeof line->what, "%.200s is not allowed in the whole subscription", lacking);
        (void)snprintf(line->fix, sizeof line->fix,
                       "give the role that `tidemill cloud check azure --emit policy` prints");
    }
    json_decref(needed);
    json_decref(root);
}

static void check_list(struct checking *c)
{
    struct tm_arm_request r = {.arm = c->arm};
    json_t *root = NULL;
    tm_arm_path(&r, "/providers/Microsoft.Compute/virtualMachines?api-version=2024-07-01");
    if (!ask(c, "see instances", &r, &root)) return;
    (void)snprintf(add(c, "see instances", TM_CHECK_GOOD)->what, 64, "in every location of the subscription");
    json_decref(root);
}

static void check_group(struct checking *c)
{
    struct tm_arm_request r = {.arm = c->arm};
    json_t *root = NULL;
    tm_arm_path(&r, "/resourcegroups/" TM_AZURE_GROUP "?api-version=2021-04-01");
    if (!ask(c, "resource group", &r, &root)) return;
    (void)snprintf(add(c, "resource group", TM_CHECK_GOOD)->what, 390, "%s",
                   root != NULL ? TM_AZURE_GROUP " is there"
                                : TM_AZURE_GROUP " is not there: the first run makes it, with its network");
    json_decref(root);
}

static void check_image(struct checking *c, const char *image)
{
    size_t colons = 0;
    for (const char *at = image; at != NULL && *at != '\0'; at++)
        colons += *at == ':';
    bool good = image == NULL || image[0] == '/' || colons == 3;
    struct tm_cloud_check *line = add(c, "image", good ? TM_CHECK_UNKNOWN : TM_CHECK_BAD);
    (void)snprintf(line->what, sizeof line->what, "%.200s%s", image != NULL ? image : TM_AZURE_IMAGE,
                   good ? ": not asked for" : " is not PUBLISHER:OFFER:SKU:VERSION, nor an id");
    if (!good) (void)snprintf(line->fix, sizeof line->fix, "az vm image list --all --publisher ... shows them");
}

/* What is left of a usage. */
static double left_of(const json_t *one)
{
    return (double)(json_integer_value(json_object_get(one, "limit")) -
                    json_integer_value(json_object_get(one, "currentValue")));
}

/* How often each letter or digit is in a text, but for that of the count of vCPUs: Azure names sizes and families by
 * the same ones in another order (Standard_NC4as_T4_v3, standardNCASv3_T4Family). */
static void count_letters(const char *text, bool is_size, unsigned char out[128])
{
    memset(out, 0, 128);
    if (strncasecmp(text, "standard", 8) == 0) text += 8;
    bool before = is_size; /* the first number, behind the first letters */
    for (const char *at = text; *at != '\0' && strcasecmp(at, "Family") != 0; at++) {
        unsigned char c = (unsigned char)*at;
        if (before && isdigit(c)) {
            while (isdigit((unsigned char)at[1]))
                at++;
            before = false;
            continue;
        }
        if (isalnum(c) && c < 128) out[tolower(c)]++;
    }
}

bool tm_azure__is_family_of(const char *family, const char *size)
{
    unsigned char a[128], b[128];
    count_letters(family, false, a);
    count_letters(size, true, b);
    return memcmp(a, b, sizeof a) == 0;
}

/* Spot VMs share one quota; others have one of their family, and one of the location. */
static void hold_need(struct checking *c, const struct tm_check_need *need, const json_t *all)
{
    double needed = need->vcpus * (double)need->count;
    bool held = false;
    for (size_t i = 0; needed > 0 && i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        const char *name = json_string_value(json_object_get(json_object_get(one, "name"), "value"));
        if (name == NULL) continue;
        bool holds = need->spot ? strcmp(name, "lowPriorityCores") == 0
                                : strcmp(name, "cores") == 0 || tm_azure__is_family_of(name, need->type);
        if (!holds) continue;
        held = true;
        tm_check__quota(c->out, need, needed, "vCPUs", left_of(one), name,
                        "ask for more under Quotas in Azure's portal");
    }
    if (!held) tm_check__no_quota(c->out, need, needed > 0 ? "Azure lists no quota for it" : "its vCPUs are not known");
}

static void check_quota(struct checking *c, const struct tm_check_request *request)
{
    struct tm_arm_request r = {.arm = c->arm};
    json_t *root = NULL;
    const char *location =
        request->region != NULL ? request->region : c->env->variable(c->env, "AZURE_DEFAULTS_LOCATION");
    if (location == NULL || location[0] == '\0') {
        (void)snprintf(add(c, "quota", TM_CHECK_UNKNOWN)->what, 390, "not asked; set AZURE_DEFAULTS_LOCATION");
        return;
    }
    tm_arm_path(&r, "/providers/Microsoft.Compute/locations/%.60s/usages?api-version=2024-07-01", location);
    if (!ask(c, "quota", &r, &root)) return;
    const json_t *all = json_object_get(root, "value");
    double left = -1;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        const char *name = json_string_value(json_object_get(json_object_get(one, "name"), "value"));
        if (name != NULL && strcmp(name, "lowPriorityCores") == 0) left = left_of(one);
    }
    struct tm_cloud_check *line = add(c, "quota",
                                      left > 0    ? TM_CHECK_GOOD
                                      : left == 0 ? TM_CHECK_BAD
                                                  : TM_CHECK_UNKNOWN);
    (void)snprintf(line->what, sizeof line->what, "%.0f spot vCPUs left in %.60s", left < 0 ? 0 : left, location);
    if (left == 0) (void)snprintf(line->fix, sizeof line->fix, "ask for more under Quotas in Azure's portal");
    for (size_t i = 0; i < request->need_count; i++)
        hold_need(c, &request->needs[i], all);
    json_decref(root);
}

int tm_azure_check(struct tm_env *env, const struct tm_check_request *request, struct tm_cloud_checks *out,
                   struct tm_error *e)
{
    struct checking c = {.env = env, .out = out};
    struct tm_error own = {.text = ""};
    int rc = tm_arm_create(env, &c.arm, &own);
    if (rc == 0) rc = tm_web_create(env, &c.web, &own);
    if (rc == -(int)TM_ENOMEM) c.memory = true;
    if (rc != 0 && !c.memory) {
        struct tm_cloud_check *line = add(&c, "settings", TM_CHECK_BAD);
        (void)snprintf(line->what, sizeof line->what, "%.380s", own.text);
        (void)snprintf(line->fix, sizeof line->fix, "set AZURE_SUBSCRIPTION_ID, or run `az login`");
    }
    if (rc == 0 && check_credentials(&c)) {
        check_permissions(&c);
        check_list(&c);
        check_group(&c);
        check_quota(&c, request);
    }
    if (rc == 0) check_image(&c, request->image);
    tm_web_destroy(c.web);
    tm_arm_destroy(c.arm);
    return c.memory ? tm_error_nomem(e) : 0;
}
