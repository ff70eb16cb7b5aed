#include "cloud/gcp_check.h"

#include "base/doc.h"
#include "cloud/gcp_cloud.h"
#include "cloud/gcp_text.h"
#include "web/gcp.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 30000, TRIES = 3 };

static const char *const permissions[] = {"compute.instances.create",
                                          "compute.instances.delete",
                                          "compute.instances.get",
                                          "compute.instances.list",
                                          "compute.instances.setLabels",
                                          "compute.instances.setMetadata",
                                          "compute.disks.create",
                                          "compute.subnetworks.use",
                                          "compute.subnetworks.useExternalIp",
                                          "compute.zoneOperations.get",
                                          "compute.zoneOperations.list",
                                          "compute.globalOperations.list",
                                          "compute.zones.list",
                                          "compute.regions.get",
                                          "compute.projects.get",
                                          "compute.networks.get",
                                          "compute.firewalls.create",
                                          "compute.firewalls.delete",
                                          "compute.firewalls.list",
                                          "compute.networks.updatePolicy",
                                          "compute.instances.setTags",
                                          "compute.instances.setServiceAccount",
                                          "compute.disks.setLabels",
                                          "compute.disks.list",
                                          "compute.disks.delete"};

enum { PERMISSIONS = sizeof permissions / sizeof *permissions };

static const char policy[] =
    "# run --detach: fleet.gcp.coordinator_account needs this role, too, with Storage Object User on the bucket and\n"
    "# Service Account Token Creator on itself; you need Service Account User on it.\n"
    "title: Tidemill\n"
    "description: What `tidemill run --cloud gcp` needs; beside it the role Storage Object User on the bucket\n"
    "stage: GA\n"
    "includedPermissions:\n"
    "- compute.disks.create\n"
    "- compute.disks.delete\n"
    "- compute.disks.list\n"
    "- compute.disks.setLabels\n"
    "- compute.firewalls.create\n"
    "- compute.firewalls.delete\n"
    "- compute.firewalls.list\n"
    "- compute.globalOperations.list\n"
    "- compute.instances.create\n"
    "- compute.instances.delete\n"
    "- compute.instances.get\n"
    "- compute.instances.list\n"
    "- compute.instances.setLabels\n"
    "- compute.instances.setMetadata\n"
    "- compute.instances.setServiceAccount\n"
    "- compute.instances.setTags\n"
    "- compute.networks.get\n"
    "- compute.networks.updatePolicy\n"
    "- compute.projects.get\n"
    "- compute.regions.get\n"
    "- compute.subnetworks.use\n"
    "- compute.subnetworks.useExternalIp\n"
    "- compute.zoneOperations.get\n"
    "- compute.zoneOperations.list\n"
    "- compute.zones.list\n";

const char *tm_gcp_check_policy(void)
{
    return policy;
}

struct checking {
    struct tm_env *env;
    struct tm_gcp *gcp;
    struct tm_web *web;
    const char *project;
    struct tm_cloud_checks *out;
    bool memory; /* there was too little */
};

static struct tm_cloud_check *add(struct checking *c, const char *name, enum tm_check_result result)
{
    return tm_cloud_checks_add(c->out, name, result);
}

/* Asks; NULL: a line says why not, if `name` is given. */
static json_t *ask(struct checking *c, const char *name, struct tm_gcp_request *request, const char *fix)
{
    struct tm_web_answer answer;
    struct tm_gcp_refusal why = {.code = ""};
    struct tm_error e = {.text = ""};
    json_t *root = NULL;
    request->gcp = c->gcp;
    request->deadline_ms = ASK_MS;
    request->tries_max = TRIES;
    int rc = tm_gcp_ask(c->web, request, &answer, &e);
    if (rc == 0 && answer.status >= 300) {
        (void)tm_gcp_refusal(&answer, &why, NULL);
        rc = tm_error_set(&e, TM_EINPUT, "Google answers %d %s: %.200s", answer.status, why.code, why.message);
        tm_web_answer_deinit(&answer);
    } else if (rc == 0) {
        rc = tm_json_load("answer", tm_text_string(&answer.body), answer.body.length, &root, &e);
        tm_web_answer_deinit(&answer);
    }
    c->memory = c->memory || rc == -(int)TM_ENOMEM;
    if (rc == 0 || name == NULL) return root;
    const char *advice = tm_gcp__advice(why.code);
    struct tm_cloud_check *line = add(c, name, TM_CHECK_BAD);
    (void)snprintf(line->what, sizeof line->what, "%.390s", e.text);
    (void)snprintf(line->fix, sizeof line->fix, "%.290s",
                   advice[0] != '\0' && strcmp(why.code, "notFound") != 0 ? advice : fix);
    return NULL;
}

/* ---- lines ---- */

/* Whom Google takes us for; false: nothing else can be asked. */
static bool check_credentials(struct checking *c)
{
    char path[200];
    (void)snprintf(path, sizeof path, "/projects/%s", c->project);
    struct tm_gcp_request request = {.service = TM_GCP_COMPUTE, .method = "GET", .path = path};
    json_t *root = ask(c, "credentials", &request, "correct the credentials, or GOOGLE_CLOUD_PROJECT");
    if (root == NULL) return false;
    struct tm_cloud_check *line = add(c, "credentials", TM_CHECK_GOOD);
    (void)snprintf(line->what, sizeof line->what, "%.250s, project %.100s", tm_gcp_identity(c->gcp), c->project);
    json_decref(root);
    return true;
}

/* Google says which of them we have, and does nothing. */
static void check_permissions(struct checking *c)
{
    char path[200];
    char body[2000] = "{\"permissions\": [";
    size_t used = strlen(body);
    for (size_t i = 0; i < PERMISSIONS; i++)
        used += (size_t)snprintf(body + used, sizeof body - used, "%s\"%s\"", i > 0 ? ", " : "", permissions[i]);
    used += (size_t)snprintf(body + used, sizeof body - used, "]}");
    (void)snprintf(path, sizeof path, "/projects/%s:testIamPermissions", c->project);
    struct tm_gcp_request request = {
        .service = TM_GCP_RESOURCES, .method = "POST", .path = path, .body = body, .length = used};
    json_t *root = ask(c, NULL, &request, "");
    if (root == NULL) {
        struct tm_cloud_check *line = add(c, "permissions", TM_CHECK_UNKNOWN);
        (void)snprintf(line->what, sizeof line->what, "not known: the Cloud Resource Manager API does not answer");
        (void)snprintf(line->fix, sizeof line->fix, "run `gcloud services enable cloudresourcemanager.googleapis.com`");
        return;
    }
    const json_t *given = json_object_get(root, "permissions");
    struct tm_cloud_check *line = add(c, "permissions", TM_CHECK_GOOD);
    size_t missing = 0;
    used = 0;
    for (size_t i = 0; i < PERMISSIONS; i++) {
        bool has = false;
        for (size_t j = 0; !has && j < json_array_size(given); j++) {
            const char *one = json_string_value(json_array_get(given, j));
            has = one != NULL && strcmp(one, permissions[i]) == 0;
        }
        if (has) continue;
        missing++;
        if (used + 60 < sizeof line->what)
            used += (size_t)snprintf(line->what + used, sizeof line->what - used, "%s%.50s",
                                     used > 0 ? ", " : "missing: ", permissions[i]);
    }
    if (missing > 0) {
        line->result = TM_CHECK_BAD;
        (void)snprintf(line->fix, sizeof line->fix, "allow what `tidemill cloud check gcp --emit policy` prints");
    } else {
        (void)snprintf(line->what, sizeof line->what, "all %d that renting needs", (int)PERMISSIONS);
    }
    json_decref(root);
}

static void check_image(struct checking *c, const char *given)
{
    const char *image = given != NULL ? given : TM_GCP_IMAGE;
    bool whole = strncmp(image, "projects/", 9) == 0;
    char path[400];
    (void)snprintf(path, sizeof path, whole ? "/%s%.300s" : "/projects/%s/global/images/%.200s",
                   whole ? "" : c->project, image);
    struct tm_gcp_request request = {.service = TM_GCP_COMPUTE, .method = "GET", .path = path};
    json_t *root = ask(c, "image", &request,
                       "name one that has NVIDIA's driver: --image projects/PROJECT/global/images/family/NAME");
    if (root == NULL) return;
    const char *name = json_string_value(json_object_get(root, "name"));
    (void)snprintf(add(c, "image", TM_CHECK_GOOD)->what, 300, "%.200s", name != NULL ? name : image);
    json_decref(root);
}

static void check_network(struct checking *c)
{
    char path[200];
    (void)snprintf(path, sizeof path, "/projects/%s/global/networks/default", c->project);
    struct tm_gcp_request request = {.service = TM_GCP_COMPUTE, .method = "GET", .path = path};
    json_t *root =
        ask(c, "network", &request, "create the network default, or name another: fleet: {gcp: {network: NAME}}");
    if (root == NULL) return;
    (void)snprintf(add(c, "network", TM_CHECK_GOOD)->what, 64, "default");
    json_decref(root);
}

/* Those of GPUs, and of preemptible CPUs. */
static void print_quotas(const json_t *root, struct tm_cloud_check *line)
{
    const json_t *list = json_object_get(root, "quotas");
    size_t used = strlen(line->what);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *metric = json_string_value(json_object_get(one, "metric"));
        double limit = json_number_value(json_object_get(one, "limit"));
        if (metric == NULL || (strstr(metric, "GPUS") == NULL && strcmp(metric, "PREEMPTIBLE_CPUS") != 0)) continue;
        if (limit <= 0 || used + 70 >= sizeof line->what) continue;
        line->result = TM_CHECK_GOOD;
        used += (size_t)snprintf(line->what + used, sizeof line->what - used, "%s%.0f %.50s", used > 0 ? "; " : "",
                                 limit, metric);
    }
}

/* What is left of a quota; -1: it is not in the list. */
static double left_of(const json_t *root, const char *metric)
{
    const json_t *list = json_object_get(root, "quotas");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(one, "metric"));
        if (name != NULL && strcmp(name, metric) == 0)
            return json_number_value(json_object_get(one, "limit")) - json_number_value(json_object_get(one, "usage"));
    }
    return -1;
}

/* GPUs and vCPUs are counted apart, spot ("preemptible") and standard, too. */
static void hold_need(struct checking *c, const struct tm_check_need *need, const json_t *region)
{
    char metric[96];
    char of[64];
    const char *market = need->spot ? "PREEMPTIBLE_" : "";
    (void)snprintf(metric, sizeof metric, "%sNVIDIA_%.40s_GPUS", market, need->gpu);
    for (char *at = metric; *at != '\0'; at++)
        *at = (char)(*at == '-' ? '_' : toupper((unsigned char)*at));
    (void)snprintf(of, sizeof of, "%.40s GPUs", need->gpu);
    double left = need->gpus > 0 ? left_of(region, metric) : -1;
    if (left >= 0)
        tm_check__quota(c->out, need, need->gpus * (double)need->count, of, left, metric,
                        tm_gcp__advice("QUOTA_EXCEEDED"));
    else if (need->gpus > 0)
        tm_check__no_quota(c->out, need, "Google lists no quota for its GPU there");
    (void)snprintf(metric, sizeof metric, "%sCPUS", market);
    left = need->vcpus > 0 ? left_of(region, metric) : -1;
    if (left > 0 || (left == 0 && !need->spot)) /* without preemptible ones, those of the others count */
        tm_check__quota(c->out, need, need->vcpus * (double)need->count, "vCPUs", left, metric,
                        tm_gcp__advice("QUOTA_EXCEEDED"));
}

static void hold_needs(struct checking *c, const struct tm_check_request *request, const json_t *project,
                       const json_t *region)
{
    double gpus = 0;
    double left = left_of(project, "GPUS_ALL_REGIONS");
    for (size_t i = 0; i < request->need_count; i++) {
        gpus += request->needs[i].gpus * (double)request->needs[i].count;
        hold_need(c, &request->needs[i], region);
    }
    if (request->need_count == 0 || left < 0 || gpus <= left) return;
    struct tm_cloud_check *line = add(c, "quota", TM_CHECK_BAD);
    (void)snprintf(line->what, sizeof line->what, "%.0f GPUs are wanted at a time; %.0f may be had (GPUS_ALL_REGIONS)",
                   gpus, left);
    (void)snprintf(line->fix, sizeof line->fix, "%s", tm_gcp__advice("QUOTA_EXCEEDED"));
}

static void check_quotas(struct checking *c, const struct tm_check_request *asked)
{
    const char *place = asked->region != NULL ? asked->region : c->env->variable(c->env, "CLOUDSDK_COMPUTE_REGION");
    char path[200];
    struct tm_cloud_check *line = add(c, "quotas", TM_CHECK_UNKNOWN);
    (void)snprintf(path, sizeof path, "/projects/%s", c->project);
    struct tm_gcp_request request = {.service = TM_GCP_COMPUTE, .method = "GET", .path = path};
    json_t *project = ask(c, NULL, &request, "");
    if (project != NULL) print_quotas(project, line);
    if (place == NULL) {
        (void)snprintf(line->fix, sizeof line->fix, "set CLOUDSDK_COMPUTE_REGION to see those of a region");
        json_decref(project);
        return;
    }
    (void)snprintf(path, sizeof path, "/projects/%s/regions/%.60s", c->project, place);
    request = (struct tm_gcp_request){.service = TM_GCP_COMPUTE, .method = "GET", .path = path};
    json_t *region = ask(c, NULL, &request, "");
    if (region != NULL) print_quotas(region, line);
    if (line->what[0] == '\0') {
        line->result = TM_CHECK_BAD;
        (void)snprintf(line->what, sizeof line->what, "no GPUs are allowed in %.60s", place);
        (void)snprintf(line->fix, sizeof line->fix, "%s", tm_gcp__advice("QUOTA_EXCEEDED"));
    }
    hold_needs(c, asked, project, region);
    json_decref(project);
    json_decref(region);
}

/* VMs find the program by URLs that are signed. */
static void check_urls(struct checking *c)
{
    struct tm_text url;
    struct tm_error e = {.text = ""};
    const struct tm_gcp_object object = {"GET", "bucket", "object"};
    tm_text_init(&url, 8192);
    int rc = tm_gcp_ask_url(c->gcp, &object, NULL, 60, &url, &e);
    struct tm_cloud_check *line = add(c, "signed URLs", rc == 0 ? TM_CHECK_GOOD : TM_CHECK_BAD);
    c->memory = c->memory || rc == -(int)TM_ENOMEM;
    (void)snprintf(line->what, sizeof line->what, "%.390s", rc == 0 ? "can be made" : e.text);
    if (rc != 0)
        (void)snprintf(line->fix, sizeof line->fix,
                       "use a service account's key, or name an account that signs: fleet: {gcp: {service_account: "
                       "NAME}}");
    tm_text_deinit(&url);
}

int tm_gcp_check(struct tm_env *env, const struct tm_check_request *request, struct tm_cloud_checks *out,
                 struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    struct checking c = {.env = env, .out = out};
    out->count = 0;
    int rc = tm_gcp_create(env, &c.gcp, &own);
    if (rc == 0) rc = tm_gcp_project(c.gcp, &c.project, &own);
    if (rc == 0) rc = tm_web_create(env, &c.web, &own);
    if (rc != 0 && rc != -(int)TM_ENOMEM) {
        struct tm_cloud_check *line = add(&c, "settings", TM_CHECK_BAD);
        (void)snprintf(line->what, sizeof line->what, "%.390s", own.text);
        (void)snprintf(line->fix, sizeof line->fix,
                       "set GOOGLE_APPLICATION_CREDENTIALS and GOOGLE_CLOUD_PROJECT, or run `gcloud auth "
                       "application-default login` and `gcloud config set project NAME`");
        rc = 0;
    } else if (rc == 0 && check_credentials(&c)) {
        check_permissions(&c);
        check_image(&c, request->image);
        check_network(&c);
        check_quotas(&c, request);
        check_urls(&c);
    }
    tm_web_destroy(c.web);
    tm_gcp_destroy(c.gcp);
    return rc == -(int)TM_ENOMEM || c.memory ? tm_error_nomem(e) : 0;
}
