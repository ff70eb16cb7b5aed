#include "cloud/kube_pod.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "base/dns_name.h"
#include "base/doc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TICKET_DIR  "/var/run/secrets/tidemill.io"
#define TICKET_FILE "ticket"
#define GIVE_UP     "15m" /* without its run: so long it may be taken over */

static const char ticket_at[] = "@" TICKET_DIR "/" TICKET_FILE;

enum { PODS_MAX = 4096, LOST_AFTER_S = 15, GRACE_S = 30 };

static const struct {
    const char *label;
    const char *value;
    bool taint; /* nodes may carry it as a taint, too */
} spot_marks[] = {
    [TM_KUBE_SPOT_ANY] = {NULL, NULL, false},
    [TM_KUBE_SPOT_EKS] = {"eks.amazonaws.com/capacityType", "SPOT", true},
    [TM_KUBE_SPOT_KARPENTER] = {"karpenter.sh/capacity-type", "spot", true},
    [TM_KUBE_SPOT_GKE] = {"cloud.google.com/gke-spot", "true", true},
    [TM_KUBE_SPOT_AKS] = {"kubernetes.azure.com/scalesetpriority", "spot", true},
};

enum { SPOT_MARKS = sizeof spot_marks / sizeof *spot_marks };

/* ---- writing ---- */

void tm_kube_head_write(struct tm_jsonout *json, const char *version, const char *kind, const char *name,
                        const char *space, const char *app)
{
    tm_jsonout_string(json, "apiVersion", version);
    tm_jsonout_string(json, "kind", kind);
    tm_jsonout_object(json, "metadata");
    tm_jsonout_string(json, "name", name);
    if (space != NULL) tm_jsonout_string(json, "namespace", space);
    tm_jsonout_object(json, "labels");
    tm_jsonout_string(json, "app.kubernetes.io/name", "tidemill");
    tm_jsonout_string(json, "app.kubernetes.io/instance", app);
    /* labels and metadata stay open */
}

int64_t tm_kube_grace_s(int64_t notice_ms)
{
    return notice_ms > 0 ? (notice_ms + 999) / 1000 : GRACE_S;
}

static void end_head(struct tm_jsonout *json)
{
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void write_selector(const struct tm_kube_pod *pod, struct tm_jsonout *json)
{
    bool spot = pod->market == TM_INSTANCE_SPOT && pod->spot != TM_KUBE_SPOT_ANY;
    if (!spot && pod->type == NULL && pod->zone == NULL && pod->selector_count == 0) return;
    tm_jsonout_object(json, "nodeSelector");
    if (spot) tm_jsonout_string(json, spot_marks[pod->spot].label, spot_marks[pod->spot].value);
    if (pod->type != NULL) tm_jsonout_string(json, "node.kubernetes.io/instance-type", pod->type);
    if (pod->zone != NULL) { /* "use2-az3" is an id of AWS, which its nodes carry beside the account's own name */
        bool id = strstr(pod->zone, "-az") != NULL;
        tm_jsonout_string(json, id ? "topology.k8s.aws/zone-id" : "topology.kubernetes.io/zone", pod->zone);
    }
    for (size_t i = 0; i < pod->selector_count; i++) {
        char name[320];
        const char *value = strchr(pod->selector[i], '=');
        if (value == NULL) continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)(value - pod->selector[i]), pod->selector[i]);
        tm_jsonout_string(json, name, value + 1);
    }
    tm_jsonout_end(json);
}

static void write_toleration(struct tm_jsonout *json, const char *key, const char *value, const char *effect,
                             int64_t seconds)
{
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "key", key);
    tm_jsonout_string(json, "operator", value != NULL ? "Equal" : "Exists");
    if (value != NULL) tm_jsonout_string(json, "value", value);
    tm_jsonout_string(json, "effect", effect);
    if (seconds >= 0) tm_jsonout_integer(json, "tolerationSeconds", seconds);
    tm_jsonout_end(json);
}

/* Spot and GPU nodes are kept for those who say that they mean them. A node that does not answer has lost its pods
 * soon, not after the usual five minutes. */
static void write_tolerations(const struct tm_kube_pod *pod, struct tm_jsonout *json)
{
    const char *gpu = pod->gpu != NULL ? pod->gpu : "nvidia.com/gpu";
    tm_jsonout_list(json, "tolerations");
    for (int i = 0; i < SPOT_MARKS && pod->market == TM_INSTANCE_SPOT; i++)
        if (spot_marks[i].taint) write_toleration(json, spot_marks[i].label, spot_marks[i].value, "NoSchedule", -1);
    if (pod->gpus > 0) write_toleration(json, gpu, NULL, "NoSchedule", -1);
    write_toleration(json, "node.kubernetes.io/not-ready", NULL, "NoExecute", LOST_AFTER_S);
    write_toleration(json, "node.kubernetes.io/unreachable", NULL, "NoExecute", LOST_AFTER_S);
    tm_jsonout_end(json);
}

static void write_amounts(const struct tm_kube_pod *pod, const char *key, struct tm_jsonout *json)
{
    char count[32];
    (void)snprintf(count, sizeof count, "%" PRId64, pod->gpus);
    tm_jsonout_object(json, key);
    if (pod->cpu != NULL) tm_jsonout_string(json, "cpu", pod->cpu);
    if (pod->memory != NULL) tm_jsonout_string(json, "memory", pod->memory);
    if (pod->gpus > 0) tm_jsonout_string(json, pod->gpu != NULL ? pod->gpu : "nvidia.com/gpu", count);
    tm_jsonout_end(json);
}

static void write_variables(struct tm_jsonout *json)
{
    tm_jsonout_list(json, "env");
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "name", "POD_IP");
    tm_jsonout_object(json, "valueFrom");
    tm_jsonout_object(json, "fieldRef");
    tm_jsonout_string(json, "fieldPath", "status.podIP");
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

/* Its Secret as a file, since the file changes with it: a variable would not, nor would a file by subPath. */
static void write_mounts(struct tm_jsonout *json)
{
    tm_jsonout_list(json, "volumeMounts");
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "name", "ticket");
    tm_jsonout_string(json, "mountPath", TICKET_DIR);
    tm_jsonout_bool(json, "readOnly", true);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void write_volumes(const struct tm_kube_pod *pod, struct tm_jsonout *json)
{
    tm_jsonout_list(json, "volumes");
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "name", "ticket");
    tm_jsonout_object(json, "secret");
    tm_jsonout_string(json, "secretName", pod->secret);
    tm_jsonout_list(json, "items");
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "key", pod->secret_key);
    tm_jsonout_string(json, "path", TICKET_FILE);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void write_container(const struct tm_kube_pod *pod, struct tm_jsonout *json)
{
    char left[32];
    (void)snprintf(left, sizeof left, "%" PRId64 "s", pod->grace_s);
    const char *const words[] = {"tidemill",  "agent",         "--join", ticket_at,   "--host",
                                 "$(POD_IP)", "--notice-left", left,     "--give-up", GIVE_UP};
    tm_jsonout_list(json, "containers");
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "name", "agent");
    tm_jsonout_string(json, "image", pod->image);
    tm_jsonout_list(json, "command");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        tm_jsonout_string(json, NULL, words[i]);
    tm_jsonout_end(json);
    write_variables(json);
    write_mounts(json);
    if (pod->cpu != NULL || pod->memory != NULL || pod->gpus > 0) {
        tm_jsonout_object(json, "resources");
        write_amounts(pod, "requests", json);
        write_amounts(pod, "limits", json);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

void tm_kube_pod_write(const struct tm_kube_pod *pod, struct tm_jsonout *json)
{
    char number[32];
    (void)snprintf(number, sizeof number, "%" PRIu64, pod->instance);
    tm_jsonout_object(json, NULL);
    tm_kube_head_write(json, "v1", "Pod", pod->name, pod->space, pod->app);
    if (pod->folder != NULL) tm_jsonout_string(json, TM_KUBE_LABEL_FOLDER, pod->folder);
    tm_jsonout_string(json, TM_KUBE_LABEL_INSTANCE, number);
    end_head(json);
    tm_jsonout_object(json, "spec");
    tm_jsonout_string(json, "restartPolicy", "Never"); /* another one is another instance, with another ticket */
    tm_jsonout_integer(json, "terminationGracePeriodSeconds", pod->grace_s);
    tm_jsonout_bool(json, "automountServiceAccountToken", false);
    if (pod->account != NULL) tm_jsonout_string(json, "serviceAccountName", pod->account);
    if (pod->priority != NULL) tm_jsonout_string(json, "priorityClassName", pod->priority);
    if (pod->subdomain != NULL) {
        tm_jsonout_string(json, "hostname", pod->name);
        tm_jsonout_string(json, "subdomain", pod->subdomain);
    }
    write_selector(pod, json);
    write_tolerations(pod, json);
    write_container(pod, json);
    write_volumes(pod, json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

void tm_kube_pod__write_patch(uint64_t instance, struct tm_jsonout *json)
{
    char number[32];
    (void)snprintf(number, sizeof number, "%" PRIu64, instance);
    tm_jsonout_object(json, NULL);
    tm_jsonout_object(json, "metadata");
    tm_jsonout_object(json, "labels");
    tm_jsonout_string(json, TM_KUBE_LABEL_INSTANCE, number);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void put_ticket(const char *key, const char *ticket, struct tm_jsonout *json)
{
    tm_jsonout_object(json, "stringData");
    tm_jsonout_string(json, key, ticket);
    tm_jsonout_end(json);
}

void tm_kube_secret__write(const char *name, const char *app, const char *folder, const char *key, const char *ticket,
                           struct tm_jsonout *json)
{
    tm_jsonout_object(json, NULL);
    tm_kube_head_write(json, "v1", "Secret", name, NULL, app);
    if (folder != NULL) tm_jsonout_string(json, TM_KUBE_LABEL_FOLDER, folder);
    end_head(json);
    tm_jsonout_string(json, "type", "Opaque");
    put_ticket(key, ticket, json);
    tm_jsonout_end(json);
}

void tm_kube_secret__write_patch(const char *key, const char *ticket, struct tm_jsonout *json)
{
    tm_jsonout_object(json, NULL);
    put_ticket(key, ticket, json);
    tm_jsonout_end(json);
}

/* ---- reading ---- */

static const char *word(const json_t *map, const char *key)
{
    const char *text = json_string_value(json_object_get(map, key));
    return text != NULL ? text : "";
}

/* The entry of a list of conditions with this type that is what `status` says; NULL: none. */
static const json_t *condition(const json_t *status, const char *type, const char *value)
{
    size_t i = 0;
    const json_t *one = NULL;
    json_array_foreach(json_object_get(status, "conditions"), i, one)
    {
        if (strcmp(word(one, "type"), type) == 0 && strcmp(word(one, "status"), value) == 0) return one;
    }
    return NULL;
}

static void take_words(struct tm_remote_row *row, const char *reason, const char *message)
{
    (void)snprintf(row->words, sizeof row->words, "%.60s%s%.180s", reason,
                   reason[0] != '\0' && message[0] != '\0' ? ": " : "", message);
    for (char *at = row->words; *at != '\0'; at++) /* one line of a log, whatever is in it */
        if ((unsigned char)*at < 32 || *at == 127) *at = ' ';
}

/* The only container: why it waits, or how it ended. */
static void take_container(const json_t *status, struct tm_remote_row *row)
{
    static const char *const usual[] = {"", "ContainerCreating", "PodInitializing"};
    const json_t *state = json_object_get(json_array_get(json_object_get(status, "containerStatuses"), 0), "state");
    const json_t *waiting = json_object_get(state, "waiting");
    const json_t *ended = json_object_get(state, "terminated");
    if (json_is_object(ended)) {
        const json_t *code = json_object_get(ended, "exitCode");
        row->status = json_is_integer(code) ? (int)json_integer_value(code) : -1;
    }
    if (row->phase != TM_REMOTE_PENDING || waiting == NULL) return;
    const char *reason = word(waiting, "reason");
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcmp(reason, usual[i]) == 0) return;
    take_words(row, reason, word(waiting, "message"));
}

/* When it will be gone: the API server says so once it is to go. */
static void take_end(const json_t *metadata, const json_t *spec, int64_t now_ms, struct tm_remote_row *row)
{
    const char *at = word(metadata, "deletionTimestamp");
    const json_t *grace = json_object_get(spec, "terminationGracePeriodSeconds");
    int64_t end_ms = 0;
    row->phase = TM_REMOTE_LEAVING;
    row->left_ms = json_is_integer(grace) ? json_integer_value(grace) * 1000 : 30000;
    if (tm_calendar_parse(at, strlen(at), &end_ms) && end_ms - now_ms < row->left_ms) row->left_ms = end_ms - now_ms;
    if (row->left_ms < 0) row->left_ms = 0;
}

static bool take_pod(const json_t *pod, int64_t now_ms, struct tm_remote_row *row)
{
    const json_t *metadata = json_object_get(pod, "metadata");
    const json_t *status = json_object_get(pod, "status");
    const json_t *spec = json_object_get(pod, "spec");
    const char *name = word(metadata, "name");
    const char *phase = word(status, "phase");
    size_t length = strlen(name);
    *row = (struct tm_remote_row){.phase = TM_REMOTE_PENDING, .status = -1};
    if (length == 0 || length >= sizeof row->name || !tm_dns_name_is_good(name)) return false;
    memcpy(row->name, name, length + 1);
    (void)snprintf(row->host, sizeof row->host, "%.60s", word(status, "podIP"));
    (void)snprintf(row->zone, sizeof row->zone, "%.60s", word(spec, "nodeName"));
    bool leaves = word(metadata, "deletionTimestamp")[0] != '\0' || condition(status, "DisruptionTarget", "True");
    if (strcmp(phase, "Running") == 0) row->phase = TM_REMOTE_RUNNING;
    bool ended = strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0 || strcmp(phase, "Unknown") == 0;
    if (ended) {
        row->phase = TM_REMOTE_ENDED;
        take_words(row, word(status, "reason"), word(status, "message"));
    }
    take_container(status, row);
    if (strcmp(phase, "Succeeded") == 0 && row->status < 0) row->status = 0;
    if (leaves && !ended) take_end(metadata, spec, now_ms, row);
    const json_t *not_placed = condition(status, "PodScheduled", "False");
    if (row->phase == TM_REMOTE_PENDING && strcmp(word(not_placed, "reason"), "Unschedulable") == 0) {
        row->refused = true;
        take_words(row, "no node for it now", word(not_placed, "message"));
    }
    return true;
}

int tm_kube_pods__read(const char *text, size_t length, int64_t now_ms, struct tm_remote_row **rows, size_t *capacity,
                       size_t *out_count, struct tm_error *e)
{
    json_t *root = NULL;
    size_t count = 0;
    size_t i = 0;
    const json_t *pod = NULL;
    int rc = tm_json_load("the API server's list of pods", text, length, &root, e);
    if (rc != 0) return rc;
    const json_t *items = json_object_get(root, "items");
    if (!json_is_array(items) && !json_is_null(items))
        rc = tm_error_set(e, TM_EINPUT, "the API server's answer is not a list of pods");
    json_array_foreach(items, i, pod)
    {
        void *list = *rows;
        if (rc == 0) {
            rc = tm_grow(&list, capacity, count + 1, sizeof **rows, PODS_MAX);
            if (rc != 0) rc = tm_error_set(e, (enum tm_code) - rc, "too many pods in one list");
        }
        *rows = list;
        if (rc == 0 && take_pod(pod, now_ms, &(*rows)[count])) count++;
    }
    json_decref(root);
    if (rc == 0) *out_count = count;
    return rc;
}

void tm_kube_status__read(const char *text, size_t length, char words[TM_REMOTE_WORDS_MAX])
{
    json_t *root = NULL;
    words[0] = '\0';
    if (tm_json_load("status", text, length, &root, NULL) != 0) return;
    (void)snprintf(words, TM_REMOTE_WORDS_MAX, "%.250s", word(root, "message"));
    for (char *at = words; *at != '\0'; at++)
        if ((unsigned char)*at < 32 || *at == 127) *at = ' ';
    json_decref(root);
}
