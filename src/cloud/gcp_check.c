#include "cloud/gcp_check.h"

#include "base/doc.h"
#include "cloud/gcp_cloud.h"
#include "cloud/gcp_text.h"
#include "web/gcp.h"

#include <stdio.h>
#include <string.h>

enum { ASK_MS = 30000, TRIES = 3 };

static const char *const permissions[] = {
    "compute.instances.create",   "compute.instances.delete",    "compute.instances.get",
    "compute.instances.list",     "compute.instances.setLabels", "compute.instances.setMetadata",
    "compute.disks.create",       "compute.subnetworks.use",     "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get", "compute.zoneOperations.list", "compute.globalOperations.list",
    "compute.zones.list",         "compute.regions.get",         "compute.projects.get",
    "compute.networks.get"};

enum { PERMISSIONS = sizeof permissions / sizeof *permissions };

static const char policy[] =
    "title: Tidemill\n"
    "description: What `tidemill run --cloud gcp` needs; beside it the role Storage Object User on the bucket\n"
    "stage: GA\n"
    "includedPermissions:\n"
    "- compute.disks.create\n"
    "- compute.globalOperations.list\n"
    "- compute.instances.create\n"
    "- compute.instances.delete\n"
    "- compute.instances.get\n"
    "- compute.instances.list\n"
    "- compute.instances.setLabels\n"
    "- compute.instances.setMetadata\n"
    "- compute.networks.get\n"
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
    struct tm_aws_checks *out;
    bool memory; /* there was too little */
};

static struct tm_aws_check_line *add(struct checking *c, const char *name, enum tm_check_result result)
{
    struct tm_aws_check_line *line = &c->out->lines[c->out->count++];
    *line = (struct tm_aws_check_line){.name = name, .result = result};
    return line;
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
    struct tm_aws_check_line *line = add(c, name, TM_CHECK_BAD);
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
    struct tm_aws_check_line *line = add(c, "credentials", TM_CHECK_GOOD);
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
        struct tm_aws_check_line *line = add(c, "permissions", TM_CHECK_UNKNOWN);
        (void)snprintf(line->what, sizeof line->what, "not known: the Cloud Resource Manager API does not answer");
        (void)snprintf(line->fix, sizeof line->fix, "run `gcloud services enable cloudresourcemanager.googleapis.com`");
        return;
    }
    const json_t *given = json_object_get(root, "permissions");
    struct tm_aws_check_line *line = add(c, "permissions", TM_CHECK_GOOD);
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
static void print_quotas(const json_t *root, struct tm_aws_check_line *line)
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

static void check_quotas(struct checking *c)
{
    const char *place = c->env->variable(c->env, "CLOUDSDK_COMPUTE_REGION");
    char path[200];
    struct tm_aws_check_line *line = add(c, "quotas", TM_CHECK_UNKNOWN);
    (void)snprintf(path, sizeof path, "/projects/%s", c->project);
    struct tm_gcp_request request = {.service = TM_GCP_COMPUTE, .method = "GET", .path = path};
    json_t *root = ask(c, NULL, &request, "");
    if (root != NULL) print_quotas(root, line);
    json_decref(root);
    if (place == NULL) {
        (void)snprintf(line->fix, sizeof line->fix, "set CLOUDSDK_COMPUTE_REGION to see those of a region");
        return;
    }
    (void)snprintf(path, sizeof path, "/projects/%s/regions/%.60s", c->project, place);
    request = (struct tm_gcp_request){.service = TM_GCP_COMPUTE, .method = "GET", .path = path};
    root = ask(c, NULL, &request, "");
    if (root != NULL) print_quotas(root, line);
    json_decref(root);
    if (line->what[0] == '\0') {
        line->result = TM_CHECK_BAD;
        (void)snprintf(line->what, sizeof line->what, "no GPUs are allowed in %.60s", place);
        (void)snprintf(line->fix, sizeof line->fix, "%s", tm_gcp__advice("QUOTA_EXCEEDED"));
    }
}

/* VMs find the program by URLs that are signed. */
static void check_urls(struct checking *c)
{
    struct tm_text url;
    struct tm_error e = {.text = ""};
    const struct tm_gcp_object object = {"GET", "bucket", "object"};
    tm_text_init(&url, 8192);
    int rc = tm_gcp_url(c->gcp, &object, NULL, 60, &url, &e);
    struct tm_aws_check_line *line = add(c, "signed URLs", rc == 0 ? TM_CHECK_GOOD : TM_CHECK_BAD);
    c->memory = c->memory || rc == -(int)TM_ENOMEM;
    (void)snprintf(line->what, sizeof line->what, "%.390s", rc == 0 ? "can be made" : e.text);
    tm_text_deinit(&url);
}

int tm_gcp_check(struct tm_env *env, const char *image, struct tm_aws_checks *out, struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    struct checking c = {.env = env, .out = out};
    out->count = 0;
    int rc = tm_gcp_create(env, &c.gcp, &own);
    if (rc == 0) rc = tm_gcp_project(c.gcp, &c.project, &own);
    if (rc == 0) rc = tm_web_create(env, &c.web, &own);
    if (rc != 0 && rc != -(int)TM_ENOMEM) {
        struct tm_aws_check_line *line = add(&c, "settings", TM_CHECK_BAD);
        (void)snprintf(line->what, sizeof line->what, "%.390s", own.text);
        rc = 0;
    } else if (rc == 0 && check_credentials(&c)) {
        check_permissions(&c);
        check_image(&c, image);
        check_network(&c);
        check_quotas(&c);
        check_urls(&c);
    }
    tm_web_destroy(c.web);
    tm_gcp_destroy(c.gcp);
    return rc == -(int)TM_ENOMEM || c.memory ? tm_error_nomem(e) : 0;
}
