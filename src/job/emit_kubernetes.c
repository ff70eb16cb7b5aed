#include "job/emit_kubernetes.h"

#include "base/units.h"
#include "base/yaml_print.h"
#include "cloud/kube_pod.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAME_BYTES = 64, PORT = 7070, TEXT_MAX = 16 << 20, ARENA_MAX = 64 << 20 };

/* ---- JSON to YAML ---- */

static bool is_plain(const char *text)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"};
    if (!isalpha((unsigned char)text[0])) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i]) == 0) return false;
    for (const char *at = text; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && strchr("-_./", *at) == NULL) return false;
    return true;
}

static void put_scalar(const struct tm_node *node, struct tm_text *out)
{
    if (node->kind == TM_NODE_SCALAR && node->quoted && !is_plain(node->text))
        tm_yaml_print_quoted(node->text, out);
    else
        tm_text_puts(out, node->kind == TM_NODE_SCALAR ? node->text : "null");
}

/* A map or list, each value on lines of its own; `inside`: the first stands behind a "- ". */
static void put_block(const struct tm_node *node, size_t indent, bool inside, struct tm_text *out)
{ /* NOLINT(misc-no-recursion): as deep as what is written below */
    for (const struct tm_node *at = node->first; at != NULL; at = at->next) {
        bool list = node->kind == TM_NODE_LIST;
        bool nested = (at->kind == TM_NODE_MAP || at->kind == TM_NODE_LIST) && at->count > 0;
        if (!inside || at != node->first) tm_text_fill(out, ' ', indent);
        if (list)
            tm_text_puts(out, "- ");
        else if (is_plain(at->key))
            tm_text_printf(out, "%s:%s", at->key, nested ? "\n" : " ");
        else
            tm_text_printf(out, "\"%s\":%s", at->key, nested ? "\n" : " ");
        if (nested) {
            put_block(at, indent + 2, list, out);
            continue;
        }
        if (at->kind == TM_NODE_MAP || at->kind == TM_NODE_LIST)
            tm_text_puts(out, at->kind == TM_NODE_MAP ? "{}" : "[]");
        else
            put_scalar(at, out);
        tm_text_putc(out, '\n');
    }
}

/* ---- documents ---- */

struct manifests {
    const struct tm_emit *emit;
    const char *space;        /* the pods' namespace; NULL: whoever applies them says it */
    char name[NAME_BYTES];    /* of the job, as Kubernetes has names */
    char tickets[NAME_BYTES]; /* the Secret */
    struct tm_text json;
    struct tm_jsonout j;
    struct tm_text *out;
    int documents;
};

static void begin(struct manifests *m)
{
    tm_text_clear(&m->json);
    tm_jsonout_init_line(&m->j, &m->json);
}

/* What has been written, as a document. */
static int put(struct manifests *m, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_node *root = NULL;
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_text_status(&m->json, e);
    if (rc == 0) rc = tm_doc_parse_yaml("manifest", tm_text_string(&m->json), m->json.length, &arena, &root, e);
    if (rc == 0) {
        if (m->documents++ > 0) tm_text_puts(m->out, "---\n");
        put_block(root, 0, false, m->out);
    }
    tm_arena_deinit(&arena);
    return rc;
}

static void head_in(struct manifests *m, const char *version, const char *kind, const char *name, const char *space)
{
    begin(m);
    tm_jsonout_object(&m->j, NULL);
    tm_kube_head_write(&m->j, version, kind, name, space, m->name);
    tm_jsonout_end(&m->j); /* labels */
    tm_jsonout_end(&m->j); /* metadata */
}

static void head(struct manifests *m, const char *version, const char *kind, const char *name)
{
    head_in(m, version, kind, name, m->space);
}

static void put_labels(struct tm_jsonout *j, const char *key, const char *name)
{
    tm_jsonout_object(j, key);
    tm_jsonout_string(j, "app.kubernetes.io/name", "tidemill");
    tm_jsonout_string(j, "app.kubernetes.io/instance", name);
    tm_jsonout_end(j);
}

/* Others' pods are not thrown out for ours; of two Tidemill jobs the user may raise one. It is in no namespace. */
static int put_priority(struct manifests *m, struct tm_error *e)
{
    head_in(m, "scheduling.k8s.io/v1", "PriorityClass", m->name, NULL);
    tm_jsonout_integer(&m->j, "value", 1000);
    tm_jsonout_bool(&m->j, "globalDefault", false);
    tm_jsonout_string(&m->j, "preemptionPolicy", "Never");
    tm_jsonout_string(&m->j, "description", "Training that can be preempted: it goes on elsewhere");
    tm_jsonout_end(&m->j);
    return put(m, e);
}

static void put_words(struct tm_jsonout *j, const char *key, const char *const *words)
{
    tm_jsonout_list(j, key);
    for (; *words != NULL; words++)
        tm_jsonout_string(j, NULL, *words);
    tm_jsonout_end(j);
}

/* What `tidemill run --cloud kubernetes` does in the cluster, and nothing else. */
static int put_rights(struct manifests *m, struct tm_error *e)
{
    static const char *const groups[] = {"", NULL};
    static const char *const kinds[] = {"pods", "secrets", NULL};
    static const char *const verbs[] = {"create", "list", "patch", "delete", "deletecollection", NULL};
    head(m, "v1", "ServiceAccount", m->name);
    tm_jsonout_end(&m->j);
    int rc = put(m, e);
    if (rc != 0) return rc;
    head(m, "rbac.authorization.k8s.io/v1", "Role", m->name);
    tm_jsonout_list(&m->j, "rules");
    tm_jsonout_object(&m->j, NULL);
    put_words(&m->j, "apiGroups", groups);
    put_words(&m->j, "resources", kinds);
    put_words(&m->j, "verbs", verbs);
    tm_jsonout_end(&m->j);
    tm_jsonout_end(&m->j);
    tm_jsonout_end(&m->j);
    rc = put(m, e);
    if (rc != 0) return rc;
    head(m, "rbac.authorization.k8s.io/v1", "RoleBinding", m->name);
    tm_jsonout_object(&m->j, "roleRef");
    tm_jsonout_string(&m->j, "apiGroup", "rbac.authorization.k8s.io");
    tm_jsonout_string(&m->j, "kind", "Role");
    tm_jsonout_string(&m->j, "name", m->name);
    tm_jsonout_end(&m->j);
    tm_jsonout_list(&m->j, "subjects");
    tm_jsonout_object(&m->j, NULL);
    tm_jsonout_string(&m->j, "kind", "ServiceAccount");
    tm_jsonout_string(&m->j, "name", m->name);
    if (m->space != NULL) tm_jsonout_string(&m->j, "namespace", m->space);
    tm_jsonout_end(&m->j);
    tm_jsonout_end(&m->j);
    tm_jsonout_end(&m->j);
    return put(m, e);
}

/* Names of pods, without an address of its own; they are found before they are ready, as workers are. */
static int put_service(struct manifests *m, struct tm_error *e)
{
    head(m, "v1", "Service", m->name);
    tm_jsonout_object(&m->j, "spec");
    tm_jsonout_string(&m->j, "clusterIP", "None");
    tm_jsonout_bool(&m->j, "publishNotReadyAddresses", true);
    put_labels(&m->j, "selector", m->name);
    tm_jsonout_list(&m->j, "ports");
    tm_jsonout_object(&m->j, NULL);
    tm_jsonout_string(&m->j, "name", "coordinator");
    tm_jsonout_integer(&m->j, "port", PORT);
    tm_jsonout_end(&m->j);
    tm_jsonout_end(&m->j);
    tm_jsonout_end(&m->j);
    tm_jsonout_end(&m->j);
    return put(m, e);
}

/* Drains take one pod at a time, so that its work is moved before the next goes. Of pods without a controller a budget
 * may say only how many must be there. */
static int put_budget(struct manifests *m, int pods, struct tm_error *e)
{
    head(m, "policy/v1", "PodDisruptionBudget", m->name);
    tm_jsonout_object(&m->j, "spec");
    tm_jsonout_integer(&m->j, "minAvailable", pods - 1);
    tm_jsonout_object(&m->j, "selector");
    put_labels(&m->j, "matchLabels", m->name);
    tm_jsonout_end(&m->j);
    tm_jsonout_end(&m->j);
    tm_jsonout_end(&m->j);
    return put(m, e);
}

static int put_secret(struct manifests *m, int pods, struct tm_error *e)
{
    head(m, "v1", "Secret", m->tickets);
    tm_jsonout_string(&m->j, "type", "Opaque");
    tm_jsonout_object(&m->j, "stringData");
    for (int i = 1; i <= pods; i++) {
        char key[32];
        char ticket[32];
        (void)snprintf(key, sizeof key, "instance-%d", i);
        (void)snprintf(ticket, sizeof ticket, "TICKET-%d", i);
        tm_jsonout_string(&m->j, key, ticket);
    }
    tm_jsonout_end(&m->j);
    tm_jsonout_end(&m->j);
    return put(m, e);
}

static enum tm_kube_spot spot_of(const char *cloud)
{
    if (strcmp(cloud, "aws") == 0) return TM_KUBE_SPOT_EKS;
    if (strcmp(cloud, "gcp") == 0) return TM_KUBE_SPOT_GKE;
    return strcmp(cloud, "azure") == 0 ? TM_KUBE_SPOT_AKS : TM_KUBE_SPOT_ANY;
}

static int put_pod(struct manifests *m, const struct tm_plan_part *part, bool spot, int number, struct tm_error *e)
{
    const struct tm_job_pods *said = m->emit->job != NULL ? &m->emit->job->fleet.pods : NULL;
    const struct tm_job_pods nothing = {.image = NULL};
    const char *plus = strchr(part->instance->name, '+'); /* GCP: the host and its GPUs */
    char name[NAME_BYTES + 16];
    char key[32];
    char type[128];
    if (said == NULL) said = &nothing;
    (void)snprintf(name, sizeof name, "%s-%d", m->name, number);
    (void)snprintf(key, sizeof key, "instance-%d", number);
    (void)snprintf(type, sizeof type, "%.*s", plus == NULL ? 120 : (int)(plus - part->instance->name),
                   part->instance->name);
    bool zones = strcmp(part->instance->cloud, "aws") == 0 || strcmp(part->instance->cloud, "gcp") == 0;
    const char *zone = zones && part->offer->zone[0] != '\0' ? part->offer->zone : NULL;
    struct tm_kube_pod pod = {.name = name,
                              .space = m->space,
                              .app = m->name,
                              .instance = (uint64_t)number,
                              .image = said->image != NULL ? said->image : "tidemill",
                              .secret = m->tickets,
                              .secret_key = key,
                              .subdomain = m->name,
                              .account = said->account,
                              .priority = said->priority != NULL ? said->priority : m->name,
                              .type = type,
                              .zone = zone,
                              .selector = said->selector.items,
                              .selector_count = said->selector.count,
                              .spot = said->spot != 0 ? (enum tm_kube_spot)said->spot : spot_of(part->instance->cloud),
                              .market = spot ? TM_INSTANCE_SPOT : TM_INSTANCE_ON_DEMAND,
                              .gpu = said->gpu,
                              .gpus = (int64_t)part->instance->gpus,
                              .cpu = said->cpu,
                              .memory = said->memory,
                              .grace_s = tm_kube_grace_s(m->emit->job != NULL ? m->emit->job->fleet.notice_ms : 0)};
    begin(m);
    tm_kube_pod_write(&pod, &m->j);
    return put(m, e);
}

static int put_pods(struct manifests *m, struct tm_error *e)
{
    const struct tm_plan_fleet *fleet = &m->emit->answer->fleet;
    int number = 0;
    int rc = 0;
    for (size_t i = 0; i < fleet->part_count; i++) {
        const struct tm_plan_part *part = &fleet->parts[i];
        for (int k = 0; rc == 0 && k < part->spot; k++)
            rc = put_pod(m, part, true, ++number, e);
        for (int k = 0; rc == 0 && k < part->on_demand; k++)
            rc = put_pod(m, part, false, ++number, e);
    }
    return rc;
}

/* A job's name as Kubernetes has names: letters in lower case, digits and '-'. */
static void name_of(const struct tm_emit *emit, char out[NAME_BYTES])
{
    const char *given = emit->job != NULL && emit->job->name != NULL ? emit->job->name : "tidemill";
    size_t length = 0;
    for (; *given != '\0' && length < 40; given++) {
        char c = (char)tolower((unsigned char)*given);
        bool good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (length == 0 && !(c >= 'a' && c <= 'z')) continue; /* services begin with a letter */
        if (good || out[length - 1] != '-') out[length++] = good ? c : '-';
    }
    while (length > 0 && out[length - 1] == '-')
        length--;
    out[length] = '\0';
    if (length == 0) (void)snprintf(out, NAME_BYTES, "tidemill");
}

static void put_heading(const struct manifests *m, int pods)
{
    const struct tm_expectation *expectation = &m->emit->answer->expectation;
    const struct tm_plan_fleet *fleet = &m->emit->answer->fleet;
    const char *file = m->emit->file != NULL ? m->emit->file : "job.yaml";
    char time[TM_UNITS_TEXT_MAX];
    bool said = m->emit->job != NULL && m->emit->job->fleet.pods.image != NULL;
    (void)tm_unit_print(TM_UNIT_DURATION, (int64_t)(expectation->time_s.mean * 1000), time);
    tm_text_printf(m->out, "# tidemill plan: about %s and $%.2f; $%.2f an hour\n", time, expectation->cost_usd.mean,
                   expectation->usd_h);
    tm_text_printf(
        m->out,
        "# A pod for each of %d instances. Its agent joins by a ticket, which stands in the Secret %s in place "
        "of TICKET-1 and so on.\n"
        "# Or leave the Secret and the pods out: `tidemill run %s --cloud kubernetes` makes, replaces and "
        "deletes them itself,\n"
        "# from outside, or in a pod with the service account below.\n",
        pods, m->tickets, file);
    if (!said)
        tm_text_puts(m->out, "# The image must have tidemill in it: fleet: {pods: {image: ...}} in the job file names "
                             "yours.\n");
    if (fleet->anchor_instances > 0)
        tm_text_printf(m->out, "# besides: %d x %s on demand in %s to hold copies of the state\n",
                       fleet->anchor_instances, fleet->anchor.instance->name, fleet->anchor.offer->region);
}

int tm_emit_kubernetes(const struct tm_emit *emit, struct tm_text *out, struct tm_error *e)
{
    const struct tm_plan_fleet *fleet = &emit->answer->fleet;
    int pods = tm_plan_spot_instances(fleet) + tm_plan_on_demand_instances(fleet);
    struct manifests m = {.emit = emit, .space = emit->job != NULL ? emit->job->fleet.pods.space : NULL, .out = out};
    if (pods > TM_EMIT_KUBERNETES_PODS_MAX)
        return tm_error_set(e, TM_ELIMIT, "%d pods, but at most %d are written; give --max-nodes", pods,
                            TM_EMIT_KUBERNETES_PODS_MAX);
    name_of(emit, m.name);
    (void)snprintf(m.tickets, sizeof m.tickets, "%.40s-tickets", m.name);
    tm_text_init(&m.json, TEXT_MAX);
    put_heading(&m, pods);
    int rc = put_priority(&m, e);
    if (rc == 0) rc = put_rights(&m, e);
    if (rc == 0) rc = put_service(&m, e);
    if (rc == 0) rc = put_budget(&m, pods, e);
    if (rc == 0) rc = put_secret(&m, pods, e);
    if (rc == 0) rc = put_pods(&m, e);
    tm_text_deinit(&m.json);
    return rc;
}
