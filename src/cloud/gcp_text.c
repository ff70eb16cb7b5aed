#include "cloud/gcp_text.h"

#include "base/calendar.h"
#include "base/number.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define QUOTA "ask for more under IAM & Admin, Quotas (GPUs have one for each type, and GPUS_ALL_REGIONS)"
#define CHECK "`tidemill cloud check gcp` says what is wrong"

static const struct {
    const char *code;
    enum tm_vm__remedy remedy;
    const char *advice;
} table[] = {
    {"ZONE_RESOURCE_POOL_EXHAUSTED", TM_VM_ELSEWHERE, ""},
    {"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", TM_VM_ELSEWHERE, ""},
    {"RESOURCE_POOL_EXHAUSTED", TM_VM_ELSEWHERE, ""},
    {"UNSUPPORTED_OPERATION", TM_VM_ELSEWHERE, ""}, /* preempted while it was made */
    {"insufficientCapacity", TM_VM_ELSEWHERE, ""},
    {"VM_MIN_COUNT_NOT_REACHED", TM_VM_ELSEWHERE, ""},
    {"QUOTA_EXCEEDED", TM_VM_QUOTA, QUOTA},
    {"quotaExceeded", TM_VM_QUOTA, QUOTA},
    {"limitExceeded", TM_VM_QUOTA, QUOTA},
    {"RESOURCE_OPERATION_RATE_EXCEEDED", TM_VM_AGAIN, ""},
    {"rateLimitExceeded", TM_VM_AGAIN, ""},
    {"userRateLimitExceeded", TM_VM_AGAIN, ""},
    {"RATE_LIMIT_EXCEEDED", TM_VM_AGAIN, ""},
    {"resourceNotReady", TM_VM_AGAIN, ""},
    {"RESOURCE_NOT_READY", TM_VM_AGAIN, ""},
    {"backendError", TM_VM_AGAIN, ""},
    {"internalError", TM_VM_AGAIN, ""},
    {"INTERNAL_ERROR", TM_VM_AGAIN, ""},
    {"INTERNAL", TM_VM_AGAIN, ""},
    {"UNAVAILABLE", TM_VM_AGAIN, ""},
    {"SERVICE_UNAVAILABLE", TM_VM_AGAIN, ""},
    {"authError", TM_VM_AGAIN, "log in again, or correct the clock of this machine; " CHECK},
    {"UNAUTHENTICATED", TM_VM_AGAIN, "log in again, or correct the clock of this machine; " CHECK},
    {"alreadyExists", TM_VM_LOOK, ""},
    {"RESOURCE_ALREADY_EXISTS", TM_VM_LOOK, ""},
    {"ALREADY_EXISTS", TM_VM_LOOK, ""},
    {"forbidden", TM_VM_STOP, "allow what `tidemill cloud check gcp --emit policy` prints"},
    {"PERMISSION_DENIED", TM_VM_STOP, "allow what `tidemill cloud check gcp --emit policy` prints"},
    {"PERMISSIONS_ERROR", TM_VM_STOP, "allow what `tidemill cloud check gcp --emit policy` prints"},
    {"accessNotConfigured", TM_VM_STOP, "run `gcloud services enable compute.googleapis.com`"},
    {"SERVICE_DISABLED", TM_VM_STOP, "run `gcloud services enable compute.googleapis.com`"},
    {"notFound", TM_VM_STOP, "is the image, the network and the machine type there? " CHECK},
    {"RESOURCE_NOT_FOUND", TM_VM_STOP, "is the image, the network and the machine type there? " CHECK},
    {"invalid", TM_VM_STOP, ""},
    {"badRequest", TM_VM_STOP, ""},
};

static const char *match(const char *code, enum tm_vm__remedy *remedy)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(code, table[i].code) != 0) continue;
        *remedy = table[i].remedy;
        return table[i].advice;
    }
    *remedy = code[0] == '\0' ? TM_VM_AGAIN : TM_VM_STOP;
    return "";
}

enum tm_vm__remedy tm_gcp__remedy_of(const char *code)
{
    enum tm_vm__remedy remedy = TM_VM_STOP;
    (void)match(code, &remedy);
    return remedy;
}

const char *tm_gcp__advice(const char *code)
{
    enum tm_vm__remedy remedy = TM_VM_STOP;
    return match(code, &remedy);
}

/* Has it the same GPUs: beside it, or as machines of its series have them? */
static bool has_same_gpu(const char *a, const char *b)
{
    struct tm_gcp__machine one, other;
    tm_gcp__machine(a, &one);
    tm_gcp__machine(b, &other);
    if (one.count > 0 || other.count > 0) return strcmp(one.accelerator, other.accelerator) == 0;
    size_t length = strcspn(a, "-");
    length += a[length] == '-' ? 1 + strcspn(a + length + 1, "-") : 0; /* "a2-highgpu" */
    return strncmp(a, b, length) == 0 && (b[length] == '-' || b[length] == '\0');
}

/* A quota is of a region, unless Google's words name one of all. One of a kind of GPU holds those that have it, one of
 * preemptible ones spot alone. */
static bool shares_quota(const char *code, const char *words, const struct tm_cloud_pool *refused,
                         const struct tm_cloud_pool *other)
{
    char here[64], there[64];
    (void)code;
    if (strstr(words, "GPUS_ALL_REGIONS") != NULL) return true;
    tm_gcp__region(refused->zone, here);
    tm_gcp__region(other->zone, there);
    if (strcmp(here, there) != 0) return false;
    if (strstr(words, "PREEMPTIBLE_") != NULL && other->kind != TM_INSTANCE_SPOT) return false;
    return strstr(words, "NVIDIA_") == NULL || has_same_gpu(refused->type, other->type);
}

const struct tm_vm__rules tm_gcp__rules = {.cloud = "Google Cloud",
                                           .remedy_of = tm_gcp__remedy_of,
                                           .advice = tm_gcp__advice,
                                           .shares_quota = shares_quota,
                                           .minimum_s = 60,
                                           .free_s = 60,
                                           .believe_ms = 60000,
                                           /* cloud.google.com/compute/docs/instances/spot: prices change up to once
                                            * every 30 days; the list of all that Google sells is long */
                                           .steady_ms = 6 * 3600 * INT64_C(1000)};

/* ---- words ---- */

static void copy(char *out, size_t room, const char *text)
{
    (void)snprintf(out, room, "%.*s", (int)room - 1, text != NULL ? text : "");
}

static const char *text_of(const json_t *item, const char *name)
{
    const char *text = json_string_value(json_object_get(item, name));
    return text != NULL ? text : "";
}

/* What is behind the last slash of a URL. */
static const char *last_of(const char *url)
{
    const char *slash = strrchr(url, '/');
    return slash != NULL ? slash + 1 : url;
}

void tm_gcp__label(const char *text, char out[TM_GCP_LABEL_MAX])
{
    size_t length = 0;
    for (; *text != '\0' && length < TM_GCP_LABEL_MAX - 1; text++) {
        bool plain = (*text >= 'a' && *text <= 'z') || (*text >= '0' && *text <= '9') || *text == '_';
        bool capital = *text >= 'A' && *text <= 'Z';
        out[length++] = plain ? *text : capital ? (char)(*text - 'A' + 'a') : '-';
    }
    out[length] = '\0';
}

bool tm_gcp__is_zone(const char *place)
{
    size_t length = strlen(place);
    return length > 2 && place[length - 2] == '-' && place[length - 1] >= 'a' && place[length - 1] <= 'z';
}

void tm_gcp__region(const char *place, char out[64])
{
    size_t length = strlen(place) - (tm_gcp__is_zone(place) ? 2 : 0);
    (void)snprintf(out, 64, "%.*s", (int)(length < 63 ? length : 63), place);
}

bool tm_gcp__split(const char *id, char zone[64], char name[64])
{
    const char *slash = strchr(id, '/');
    if (slash == NULL || slash == id || (size_t)(slash - id) >= 64 || slash[1] == '\0' || strlen(slash + 1) >= 64 ||
        strchr(slash + 1, '/') != NULL)
        return false;
    (void)snprintf(zone, 64, "%.*s", (int)(slash - id), id);
    (void)snprintf(name, 64, "%s", slash + 1);
    return true;
}

void tm_gcp__machine(const char *type, struct tm_gcp__machine *out)
{
    static const char *const tesla[] = {"K80", "P4", "P100", "T4", "V100"};
    const char *plus = strchr(type, '+');
    const char *gpu = plus != NULL ? strchr(plus, 'x') : NULL;
    int64_t count = 0;
    *out = (struct tm_gcp__machine){.count = 0};
    (void)snprintf(out->type, sizeof out->type, "%.*s", plus != NULL ? (int)(plus - type) : 63, type);
    if (gpu == NULL || !tm_number_i64(plus + 1, (size_t)(gpu - plus - 1), &count) || count < 1 || count > 16) return;
    out->count = (int)count;
    const char *maker = "nvidia-";
    for (size_t i = 0; i < sizeof tesla / sizeof *tesla; i++)
        if (strcmp(gpu + 1, tesla[i]) == 0) maker = "nvidia-tesla-";
    (void)snprintf(out->accelerator, sizeof out->accelerator, "%s%.40s", maker, gpu + 1);
    for (char *at = out->accelerator; *at != '\0'; at++)
        *at = (char)tolower((unsigned char)*at);
}

/* "ZONE/NAME"; false: it is too long, or nothing. */
static bool join(const char *zone, size_t length, const char *name, char out[TM_VM_ID_MAX])
{
    if (length == 0 || name[0] == '\0' || length + 1 + strlen(name) >= TM_VM_ID_MAX) return false;
    memcpy(out, zone, length);
    out[length] = '/';
    (void)snprintf(out + length + 1, TM_VM_ID_MAX - length - 1, "%s", name);
    return true;
}

/* ---- answers ---- */

static enum tm_vm__phase phase_of(const char *status)
{
    static const char *const stopped[] = {"TERMINATED", "STOPPED", "SUSPENDED"};
    for (size_t i = 0; i < sizeof stopped / sizeof *stopped; i++)
        if (strcmp(status, stopped[i]) == 0) return TM_VM_STOPPED;
    return TM_VM_RUNS; /* STOPPING, too: why it stops is told by an operation, or by what follows */
}

bool tm_gcp__read_vm(const json_t *item, struct tm_vm__row *out)
{
    const json_t *labels = json_object_get(item, "labels");
    const char *name = text_of(item, "name");
    const char *created = text_of(item, "creationTimestamp");
    const char *pool = text_of(labels, TM_GCP_LABEL_POOL);
    int64_t number = 0;
    *out = (struct tm_vm__row){.pool = -1};
    copy(out->zone, sizeof out->zone, last_of(text_of(item, "zone")));
    if (!join(out->zone, strlen(out->zone), name, out->id)) return false;
    copy(out->token, sizeof out->token, name);
    copy(out->reason, sizeof out->reason, text_of(item, "status"));
    copy(out->type, sizeof out->type, last_of(text_of(item, "machineType")));
    copy(out->address, sizeof out->address,
         text_of(json_array_get(json_object_get(item, "networkInterfaces"), 0), "networkIP"));
    out->phase = phase_of(out->reason);
    if (!tm_calendar_parse(created, strlen(created), &out->launched_ms)) out->launched_ms = 0;
    if (tm_number_i64(pool, strlen(pool), &number) && number >= 0 && number < 1 << 16) out->pool = (int)number;
    return true;
}

bool tm_gcp__read_disk(const json_t *item, struct tm_gcp__disk *out)
{
    const char *created = text_of(item, "creationTimestamp");
    *out = (struct tm_gcp__disk){.used = json_array_size(json_object_get(item, "users")) > 0};
    copy(out->zone, sizeof out->zone, last_of(text_of(item, "zone")));
    copy(out->job, sizeof out->job, text_of(json_object_get(item, "labels"), TM_GCP_LABEL_JOB));
    copy(out->type, sizeof out->type, last_of(text_of(item, "type")));
    copy(out->size_gb, sizeof out->size_gb, text_of(item, "sizeGb"));
    if (!tm_calendar_parse(created, strlen(created), &out->created_ms)) out->created_ms = 0;
    bool going = strcmp(text_of(item, "status"), "DELETING") == 0;
    return !going && out->job[0] != '\0' && join(out->zone, strlen(out->zone), text_of(item, "name"), out->id);
}

bool tm_gcp__read_operation(const json_t *root, struct tm_gcp__operation *out)
{
    const json_t *error = json_array_get(json_object_get(json_object_get(root, "error"), "errors"), 0);
    const char *target = text_of(root, "targetLink");
    const char *zones = strstr(target, "/zones/");
    const char *instances = zones != NULL ? strstr(zones, "/instances/") : NULL;
    *out = (struct tm_gcp__operation){.name = ""};
    copy(out->name, sizeof out->name, text_of(root, "name"));
    copy(out->kind, sizeof out->kind, text_of(root, "operationType"));
    copy(out->code, sizeof out->code, text_of(error, "code"));
    copy(out->message, sizeof out->message, text_of(error, "message"));
    out->done = strcmp(text_of(root, "status"), "DONE") == 0;
    if (instances == NULL || !join(zones + 7, (size_t)(instances - zones) - 7, instances + 11, out->target))
        out->target[0] = '\0';
    if (json_object_get(root, "error") != NULL && out->code[0] == '\0') copy(out->code, sizeof out->code, "UNKNOWN");
    return out->name[0] != '\0' && strpbrk(out->name, "/?#") == NULL;
}
