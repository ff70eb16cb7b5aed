/* What the cloud of Google's VMs asks of Compute Engine and Cloud Storage. */
#include "base/jsonout.h"
#include "base/log.h"
#include "cloud/away_vm_internal.h"
#include "cloud/gcp_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    ASK_MS = 60000,
    WAIT_MS = 150000, /* Google holds the answer for up to two minutes */
    UPLOAD_MS = 10 * 60000,
    TRIES = 6,
    INSERT_TRIES = 3,
    SCRIPT_MAX = 65536,
    BODY_MAX = 4 * SCRIPT_MAX,
    LIFE_MAX_S = 120 * 86400,
    KEY_MAX = 700
};

static const struct tm_vm__guest guest = {
    .cloud = "Google Cloud",
    .notice = "gcp",
    .put_header = "",
    .noticed = "    [ \"$(curl -fsS -m 5 -H \"$flavor\" $metadata/preempted)\" = TRUE ]\n",
    /* A VM that shuts down is not deleted: with an account of its own it deletes itself, else the run does, or Google
     * when its time is over. */
    .power_off =
        "    local zone name token\n"
        "    zone=$(curl -fsS -m 5 -H \"$flavor\" $metadata/zone) name=$(curl -fsS -m 5 -H \"$flavor\" "
        "$metadata/name)\n"
        "    token=$(curl -fsS -m 5 -H \"$flavor\" $metadata/service-accounts/default/token |\n"
        "        sed -nE 's/.*\"access_token\": *\"([^\"]*)\".*/\\1/p')\n"
        "    [ -n \"$token\" ] && curl -fsS -m 30 -o /dev/null -X DELETE -H \"Authorization: Bearer $token\" \\\n"
        "        \"$instances/zones/${zone##*/}/instances/$name\"\n"
        "    shutdown -P now\n",
    .addresses =
        "    own=$(curl -fsS -m 5 --retry 5 -H \"$flavor\" $metadata/network-interfaces/0/ip)\n"
        "    public=$(curl -fsS -m 5 -H \"$flavor\" $metadata/network-interfaces/0/access-configs/0/external-ip)\n",
    .room = 16384};

static struct tm_gcp_request make_request(struct tm_gcp__cloud *c, const char *method, const char *path)
{
    return (struct tm_gcp_request){.gcp = c->gcp,
                                   .service = TM_GCP_COMPUTE,
                                   .method = method,
                                   .path = path,
                                   .deadline_ms = ASK_MS,
                                   .tries_max = TRIES};
}

static void add_query(struct tm_gcp_request *request, const char *name, const char *value)
{
    request->query[request->query_count++] = (struct tm_web_pair){name, value};
}

/* ---- objects ---- */

/* "/b/BUCKET/o/KEY", or the key alone. */
static void object_path(struct tm_gcp__cloud *c, size_t at, const char *what, bool alone, char *out, size_t room)
{
    char key[KEY_MAX];
    struct tm_text text;
    tm_vm_cloud__key(&c->shared, at, what, key, sizeof key);
    tm_text_init(&text, room - 1);
    if (alone) {
        tm_text_puts(&text, key + 1);
    } else {
        tm_text_printf(&text, "/b/%s/o/", c->options.common.bucket);
        tm_percent_encode(key + 1, false, &text);
    }
    (void)snprintf(out, room, "%s", tm_text_string(&text));
    tm_text_deinit(&text);
}

/* One that is written: its name is in the query. */
static struct tm_gcp_request make_upload(struct tm_gcp__cloud *c, char *path, size_t room, const char *key)
{
    (void)snprintf(path, room, "/b/%s/o", c->options.common.bucket);
    struct tm_gcp_request request = make_request(c, "POST", path);
    request.service = TM_GCP_UPLOAD;
    request.type = "application/octet-stream";
    add_query(&request, "uploadType", "media");
    add_query(&request, "name", key);
    return request;
}

void tm_gcp__make_object(struct tm_gcp__cloud *c, size_t slot)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    struct tm_vm__slot *shared = &c->shared.slots[slot];
    const char *what = tm_vm_cloud__object(&c->shared, slot);
    if (shared->call.kind == TM_VM_PUT_TICKET) {
        object_path(c, shared->call.at, what, true, s->word, sizeof s->word);
        s->request = make_upload(c, s->path, sizeof s->path, s->word);
        s->request.body = shared->word;
        s->request.length = strlen(shared->word);
        return;
    }
    object_path(c, shared->call.at, what, false, s->path, sizeof s->path);
    s->request = make_request(c, shared->call.kind == TM_VM_DROP ? "DELETE" : "GET", s->path);
    s->request.service = TM_GCP_STORAGE;
    if (shared->call.kind == TM_VM_GET_LOG) add_query(&s->request, "alt", "media");
}

static int put_url(void *self, size_t at, const char *what, const char *method, int64_t seconds, struct tm_text *out,
                   struct tm_error *e)
{
    struct tm_gcp__cloud *c = self;
    char key[KEY_MAX];
    object_path(c, at, what, true, key, sizeof key);
    const struct tm_gcp_object object = {method, c->options.common.bucket, key};
    if (c->shared.coordinator != NULL) /* which may wait */
        return tm_gcp_ask_url(c->gcp, &object, c->options.service_account, seconds, out, e);
    return tm_gcp_url(c->gcp, &object, c->options.service_account, seconds, out, e);
}

/* ---- renting ---- */

static void put_scheduling(struct tm_gcp__cloud *c, bool spot, struct tm_jsonout *json)
{
    char seconds[24];
    int64_t life_s = tm_vm_cloud__life_ms(&c->shared) / 1000;
    (void)snprintf(seconds, sizeof seconds, "%" PRId64, life_s < 30 ? 30 : life_s > LIFE_MAX_S ? LIFE_MAX_S : life_s);
    tm_jsonout_object(json, "scheduling");
    tm_jsonout_string(json, "provisioningModel", spot ? "SPOT" : "STANDARD");
    tm_jsonout_string(json, "instanceTerminationAction", "DELETE");
    tm_jsonout_bool(json, "automaticRestart", false);
    tm_jsonout_string(json, "onHostMaintenance", "TERMINATE");
    tm_jsonout_object(json, "maxRunDuration");
    tm_jsonout_string(json, "seconds", seconds);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void put_labels(struct tm_gcp__cloud *c, size_t at, struct tm_jsonout *json)
{
    struct tm_vm__tag tags[TM_VM_TAGS];
    size_t count = tm_vm_cloud__tags(&c->shared, at, tags);
    tm_jsonout_object(json, "labels");
    for (size_t i = 0; i < count; i++) {
        char name[TM_GCP_LABEL_MAX];
        char value[TM_GCP_LABEL_MAX];
        if (strncmp(tags[i].name, "tidemill", 8) != 0) continue;
        tm_gcp__label(tags[i].name, name);
        tm_gcp__label(tags[i].value, value);
        if (strcmp(tags[i].name, TM_VM_TAG_COORDINATOR) == 0) /* a place is no label */
            (void)snprintf(value, sizeof value, "%016" PRIx64, c->shared.options.group);
        tm_jsonout_string(json, name, value);
    }
    tm_jsonout_end(json);
}

static void put_disk(struct tm_gcp__cloud *c, size_t at, struct tm_jsonout *json)
{
    const char *image = c->options.image != NULL ? c->options.image : TM_GCP_IMAGE;
    char path[300];
    char size[24];
    bool whole = strncmp(image, "projects/", 9) == 0 || strncmp(image, "https://", 8) == 0;
    (void)snprintf(path, sizeof path, "%s%.250s", whole ? "" : "global/images/", image);
    (void)snprintf(size, sizeof size, "%" PRId64, c->options.disk_gb);
    tm_jsonout_list(json, "disks");
    tm_jsonout_object(json, NULL);
    tm_jsonout_bool(json, "boot", true);
    tm_jsonout_bool(json, "autoDelete", true);
    tm_jsonout_object(json, "initializeParams");
    tm_jsonout_string(json, "sourceImage", path);
    if (c->options.disk_gb > 0) tm_jsonout_string(json, "diskSizeGb", size);
    put_labels(c, at, json); /* it costs for itself, too */
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void put_network(struct tm_gcp__cloud *c, struct tm_jsonout *json)
{
    char path[200];
    char region[64];
    tm_gcp__region(c->region, region);
    tm_jsonout_list(json, "networkInterfaces");
    tm_jsonout_object(json, NULL);
    (void)snprintf(path, sizeof path, "global/networks/%.150s",
                   c->options.network != NULL ? c->options.network : "default");
    tm_jsonout_string(json, "network", path);
    (void)snprintf(path, sizeof path, "regions/%s/subnetworks/%.100s", region,
                   c->options.subnetwork != NULL ? c->options.subnetwork : "");
    if (c->options.subnetwork != NULL) tm_jsonout_string(json, "subnetwork", path);
    tm_jsonout_list(json, "accessConfigs");
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "type", "ONE_TO_ONE_NAT");
    tm_jsonout_string(json, "name", "External NAT");
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void put_item(struct tm_jsonout *json, const char *key, const char *value)
{
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "key", key);
    tm_jsonout_string(json, "value", value);
    tm_jsonout_end(json);
}

static void put_machine(struct tm_gcp__slot *s, const char *type, struct tm_jsonout *json)
{
    struct tm_gcp__machine machine;
    char path[200];
    tm_gcp__machine(type, &machine);
    (void)snprintf(path, sizeof path, "zones/%s/machineTypes/%s", s->zone, machine.type);
    tm_jsonout_string(json, "machineType", path);
    if (machine.count == 0) return;
    (void)snprintf(path, sizeof path, "zones/%s/acceleratorTypes/%s", s->zone, machine.accelerator);
    tm_jsonout_list(json, "guestAccelerators");
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "acceleratorType", path);
    tm_jsonout_integer(json, "acceleratorCount", machine.count);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

/* By which rules know it. */
static void put_tags(const struct tm_gcp__cloud *c, struct tm_jsonout *json)
{
    char rule[40];
    char api[48];
    tm_gcp__rule_name(c->shared.options.group, rule);
    (void)snprintf(api, sizeof api, "%s" TM_GCP_RULE_API, rule);
    tm_jsonout_object(json, "tags");
    tm_jsonout_list(json, "items");
    tm_jsonout_string(json, NULL, rule);
    if (c->shared.coordinator != NULL) tm_jsonout_string(json, NULL, api);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void print_body(struct tm_gcp__cloud *c, size_t slot)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    size_t at = c->shared.slots[slot].call.at;
    const struct tm_cloud_pool *pool = &c->shared.pools[c->shared.vms.instances[at].pool];
    const struct tm_away_vm *coordinator = c->shared.coordinator;
    struct tm_jsonout json;
    tm_text_clear(&s->body);
    tm_jsonout_init_line(&json, &s->body);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "name", c->shared.vms.vms[at].token);
    tm_jsonout_string(&json, "description",
                      coordinator != NULL ? "the coordinator of a Tidemill job" : "an instance of a Tidemill job");
    put_machine(s, pool->type, &json);
    put_labels(c, at, &json);
    put_scheduling(c, pool->kind == TM_INSTANCE_SPOT, &json);
    put_disk(c, at, &json);
    put_network(c, &json);
    put_tags(c, &json);
    tm_jsonout_object(&json, "metadata");
    tm_jsonout_list(&json, "items");
    put_item(&json, "startup-script", tm_text_string(&s->script));
    if (coordinator != NULL)
        put_item(&json, TM_GCP_LABEL_COORDINATOR, coordinator->place);
    else
        put_item(&json, "install-nvidia-driver", "True");
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    if (c->options.service_account != NULL) {
        tm_jsonout_list(&json, "serviceAccounts");
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "email", c->options.service_account);
        tm_jsonout_list(&json, "scopes");
        tm_jsonout_string(&json, NULL, "https://www.googleapis.com/auth/cloud-platform");
        tm_jsonout_end(&json);
        tm_jsonout_end(&json);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
}

/* For a VM that rents others: project and region, and where services are that are not Google's own. */
static void put_variables(const struct tm_gcp__cloud *c, struct tm_text *words)
{
    static const char *const names[] = {"CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE",
                                        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE",
                                        "CLOUDSDK_API_ENDPOINT_OVERRIDES_IAMCREDENTIALS",
                                        "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER",
                                        "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBILLING",
                                        "STORAGE_EMULATOR_HOST",
                                        NULL};
    char region[64];
    tm_gcp__region(c->region, region);
    tm_text_puts(words, "export ");
    tm_vm__put_word(words, "GOOGLE_CLOUD_PROJECT", c->project);
    tm_text_puts(words, "export ");
    tm_vm__put_word(words, "CLOUDSDK_COMPUTE_REGION", region);
    tm_away__put_variables(c->shared.env, names, words);
}

static int print_script(struct tm_gcp__cloud *c, size_t slot, struct tm_error *e)
{
    struct tm_text words;
    char place[700];
    const struct tm_vm__boot boot = {.guest = &guest, .sha256 = c->sha256, .url = put_url, .self = c};
    struct tm_vm__boot whole = boot;
    tm_text_init(&words, 4096);
    (void)snprintf(place, sizeof place, "%s/projects/%s", tm_gcp_base(c->gcp, TM_GCP_COMPUTE), c->project);
    tm_vm__put_word(&words, "instances", place);
    tm_vm__put_word(&words, "metadata", "http://169.254.169.254/computeMetadata/v1/instance");
    tm_vm__put_word(&words, "flavor", "Metadata-Flavor: Google");
    if (c->shared.coordinator != NULL) put_variables(c, &words);
    whole.words = tm_text_string(&words);
    int rc = tm_text_status(&words, e);
    if (rc == 0)
        rc = tm_vm_cloud__print_boot(&c->shared, c->shared.slots[slot].call.at, &whole, &c->slots[slot].script, e);
    tm_text_deinit(&words);
    return rc == 0 ? tm_text_status(&c->slots[slot].script, e) : rc;
}

/* The same for the same name and zone, so that it need not be kept: a UUID of their hash. */
static void make_request_id(const char *name, const char *zone, char out[40])
{
    char text[160];
    char hash[TM_SHA256_HEX];
    (void)snprintf(text, sizeof text, "%.64s/%.64s", zone, name);
    tm_sha256_hex(text, strlen(text), hash);
    (void)snprintf(out, 40, "%.8s-%.4s-4%.3s-8%.3s-%.12s", hash, hash + 8, hash + 12, hash + 15, hash + 18);
}

static void fill_insert(struct tm_gcp__cloud *c, size_t slot)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    (void)snprintf(s->path, sizeof s->path, "/projects/%s/zones/%s/instances", c->project, s->zone);
    make_request_id(c->shared.vms.vms[c->shared.slots[slot].call.at].token, s->zone, s->word);
    s->request = make_request(c, "POST", s->path);
    s->request.tries_max = INSERT_TRIES;
    s->request.body = s->body.data;
    s->request.length = s->body.length;
    add_query(&s->request, "requestId", s->word);
    s->stage = 0;
}

/* What is asked: the zone, a line end, the body. */
static int write_down(struct tm_gcp__cloud *c, size_t slot, struct tm_error *e)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    struct tm_text words;
    tm_text_init(&words, BODY_MAX + 100);
    tm_text_printf(&words, "%s\n%s", s->zone, tm_text_string(&s->body));
    int rc = tm_text_status(&s->body, e);
    if (rc == 0) rc = tm_text_status(&words, e);
    if (rc == 0) rc = tm_vm_cloud__write_note(&c->shared, c->shared.slots[slot].call.at, tm_text_string(&words), e);
    tm_text_deinit(&words);
    return rc;
}

/* As it was asked before: the same words. */
static int read_again(struct tm_gcp__cloud *c, size_t slot, struct tm_error *e)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    struct tm_text words;
    tm_text_init(&words, BODY_MAX + 100);
    int rc = tm_vm_cloud__read_words(&c->shared, c->shared.vms.vms[c->shared.slots[slot].call.at].token, &words, e);
    const char *line = rc == 0 ? strchr(tm_text_string(&words), '\n') : NULL;
    size_t length = line != NULL ? (size_t)(line - words.data) : 0;
    if (rc == 0 && (length == 0 || length >= sizeof s->zone))
        rc = tm_error_set(e, TM_ENOTFOUND, "no words of an insert");
    if (rc == 0) {
        (void)snprintf(s->zone, sizeof s->zone, "%.*s", (int)length, words.data);
        tm_text_puts(&s->body, line + 1);
        while (s->body.length > 0 && s->body.data[s->body.length - 1] == '\n')
            s->body.data[--s->body.length] = '\0';
        rc = tm_text_status(&s->body, e);
    }
    tm_text_deinit(&words);
    return rc;
}

/* The zone of the pool's region that follows the one at `from`; false: it has none. */
static bool next_zone(struct tm_gcp__cloud *c, const char *place, size_t from, struct tm_gcp__slot *s)
{
    char region[64];
    tm_gcp__region(place[0] != '\0' ? place : c->region, region);
    for (size_t i = 1; i <= c->zone_count; i++) {
        const char *zone = c->zones[(from + i) % c->zone_count];
        char of[64];
        tm_gcp__region(zone, of);
        if (strcmp(of, region) != 0) continue;
        (void)snprintf(s->zone, sizeof s->zone, "%s", zone);
        return true;
    }
    return false;
}

static size_t zone_index(const struct tm_gcp__cloud *c, const char *zone)
{
    size_t at = 0;
    while (at < c->zone_count && strcmp(c->zones[at], zone) != 0)
        at++;
    return at;
}

static size_t count_zones(const struct tm_gcp__cloud *c, const char *place)
{
    char region[64];
    char of[64];
    size_t count = 0;
    tm_gcp__region(place[0] != '\0' ? place : c->region, region);
    for (size_t i = 0; i < c->zone_count; i++) {
        tm_gcp__region(c->zones[i], of);
        count += strcmp(of, region) == 0;
    }
    return count;
}

int tm_gcp__make_insert(struct tm_gcp__cloud *c, size_t slot, struct tm_error *e)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    size_t at = c->shared.slots[slot].call.at;
    const char *place = c->shared.pools[c->shared.vms.instances[at].pool].zone;
    tm_text_init(&s->body, BODY_MAX);
    tm_text_init(&s->script, SCRIPT_MAX);
    s->zones_left = tm_gcp__is_zone(place) || c->zone_count == 0 ? 0 : count_zones(c, place) - 1;
    if (c->shared.vms.vms[at].kept) {
        int rc = read_again(c, slot, e);
        if (rc == 0) fill_insert(c, slot);
        return rc;
    }
    tm_vm_cloud__name(&c->shared, at);
    if (tm_gcp__is_zone(place)) {
        (void)snprintf(s->zone, sizeof s->zone, "%s", place);
    } else if (!next_zone(c, place, c->zone_next, s)) {
        return tm_error_set(e, TM_EINPUT, "region %s has no zones", place);
    }
    int rc = print_script(c, slot, e);
    if (rc != 0) return rc;
    c->zone_next = zone_index(c, s->zone);
    print_body(c, slot);
    rc = write_down(c, slot, e);
    if (rc == 0) fill_insert(c, slot);
    return rc;
}

int tm_gcp__make_elsewhere(struct tm_gcp__cloud *c, size_t slot, bool *out_more, struct tm_error *e)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    const char *place = c->shared.pools[c->shared.vms.instances[c->shared.slots[slot].call.at].pool].zone;
    *out_more = false;
    if (s->zones_left == 0 || !next_zone(c, place, zone_index(c, s->zone), s)) return 0;
    s->zones_left--;
    tm_vms__elsewhere(&c->shared.vms, c->shared.slots[slot].call.at);
    int rc = s->script.length == 0 ? print_script(c, slot, e) : 0; /* it was asked for by an earlier program */
    if (rc == 0) print_body(c, slot);
    if (rc == 0) rc = write_down(c, slot, e);
    if (rc != 0) return rc;
    fill_insert(c, slot);
    *out_more = true;
    return 0;
}

void tm_gcp__make_get(struct tm_gcp__cloud *c, size_t slot)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    (void)snprintf(s->path, sizeof s->path, "/projects/%s/zones/%s/instances/%s", c->project, s->zone,
                   c->shared.vms.vms[c->shared.slots[slot].call.at].token);
    s->request = make_request(c, "GET", s->path);
    s->stage = 2;
}

void tm_gcp__make_delete(struct tm_gcp__cloud *c, size_t slot)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    char name[64] = "";
    if (!tm_gcp__split(c->shared.vms.vms[c->shared.slots[slot].call.at].id, s->zone, name)) s->zone[0] = '\0';
    (void)snprintf(s->path, sizeof s->path, "/projects/%s/zones/%s/instances/%s", c->project, s->zone, name);
    s->request = make_request(c, "DELETE", s->path);
    s->stage = 0;
}

void tm_gcp__make_wait(struct tm_gcp__cloud *c, size_t slot, const char *operation)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    char name[TM_GCP_NAME_MAX];
    (void)snprintf(name, sizeof name, "%s", operation); /* it may be the slot's own */
    (void)snprintf(s->path, sizeof s->path, "/projects/%s/zones/%s/operations/%s/wait", c->project, s->zone, name);
    s->request = make_request(c, "POST", s->path);
    s->request.body = "";
    s->request.deadline_ms = WAIT_MS;
    s->stage = 1;
}

/* ---- looking ---- */

const char *tm_gcp__stage(int stage)
{
    static const char *const kinds[] = {"", "compute.instances.preempted", "delete",
                                        "compute.instances.guestTerminate"};
    return stage < (int)(sizeof kinds / sizeof *kinds) ? kinds[stage] : NULL;
}

void tm_gcp__make_list(struct tm_gcp__cloud *c, size_t slot)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    (void)snprintf(s->path, sizeof s->path, "/projects/%s/aggregated/%s", c->project,
                   s->stage == 0 ? "instances" : "operations");
    if (s->stage == 0)
        (void)snprintf(s->word, sizeof s->word, "labels." TM_GCP_LABEL_RUN "=%016" PRIx64, c->options.common.run);
    else
        (void)snprintf(s->word, sizeof s->word, "operationType=\"%s\"", tm_gcp__stage(s->stage));
    s->request = make_request(c, "GET", s->path);
    add_query(&s->request, "filter", s->word);
    add_query(&s->request, "maxResults", "500");
    if (s->page[0] != '\0') add_query(&s->request, "pageToken", s->page);
}

/* ---- before anything is rented ---- */

static int refused(const char *what, struct tm_web_answer *answer, struct tm_error *e)
{
    struct tm_gcp_refusal why;
    int rc = tm_gcp_refusal(answer, &why, e);
    int status = answer->status;
    tm_web_answer_deinit(answer);
    if (rc != 0) return rc;
    return tm_error_set(e, status == 404 ? TM_ENOTFOUND : TM_EINPUT,
                        "%s: Google answers %d %s: %.200s; `tidemill cloud check gcp` says more", what, status,
                        why.code, why.message);
}

static int find_zones(struct tm_gcp__cloud *c, struct tm_error *e)
{
    char path[200];
    struct tm_web_answer answer;
    json_t *root = NULL;
    (void)snprintf(path, sizeof path, "/projects/%s/zones", c->project);
    struct tm_gcp_request request = make_request(c, "GET", path);
    int rc = tm_gcp_ask(c->shared.web, &request, &answer, e);
    if (rc != 0) return rc;
    if (answer.status != 200) return refused("zones", &answer, e);
    rc = tm_json_load("zones", tm_text_string(&answer.body), answer.body.length, &root, e);
    tm_web_answer_deinit(&answer);
    const json_t *items = rc == 0 ? json_object_get(root, "items") : NULL;
    for (size_t i = 0; i < json_array_size(items) && c->zone_count < TM_GCP_ZONES_MAX; i++) {
        const char *name = json_string_value(json_object_get(json_array_get(items, i), "name"));
        const char *status = json_string_value(json_object_get(json_array_get(items, i), "status"));
        if (name == NULL || strlen(name) >= 64 || (status != NULL && strcmp(status, "UP") != 0)) continue;
        (void)snprintf(c->zones[c->zone_count++], sizeof c->zones[0], "%s", name);
    }
    json_decref(root);
    c->zone_next = c->zone_count > 0 ? (size_t)(c->shared.env->random_u64(c->shared.env) % c->zone_count) : 0;
    return rc;
}

static int check_places(const struct tm_gcp__cloud *c, struct tm_error *e)
{
    for (int i = 0; i < c->options.common.pool_count; i++) {
        const char *zone = c->options.common.pools[i].zone;
        if (zone[0] == '\0' && c->region[0] == '\0')
            return tm_error_set(
                e, TM_EINPUT,
                "where? give pools a zone or a region (infra: gcp/us-central1), or set CLOUDSDK_COMPUTE_REGION");
        if (!tm_gcp__is_zone(zone) && count_zones(c, zone) == 0)
            return tm_error_set(e, TM_EINPUT, "project %s has no region %s", c->project,
                                zone[0] != '\0' ? zone : c->region);
    }
    return 0;
}

/* By its hash, so that it is brought once. */
static int bring(struct tm_gcp__cloud *c, const char *what, const char *file, char sha256[TM_SHA256_HEX],
                 struct tm_error *e)
{
    struct tm_web_answer answer;
    char path[TM_GCP_PATH_MAX];
    char key[KEY_MAX];
    char name[128];
    const void *data = NULL;
    size_t length = 0;
    struct tm_env *env = c->shared.env;
    int rc = env->file_map(env, file, &data, &length, e);
    if (rc != 0) return rc;
    tm_sha256_hex(data, length, sha256);
    (void)snprintf(name, sizeof name, "%s-%s", what, sha256);
    object_path(c, SIZE_MAX, name, false, path, sizeof path);
    struct tm_gcp_request request = make_request(c, "GET", path);
    request.service = TM_GCP_STORAGE;
    rc = tm_gcp_ask(c->shared.web, &request, &answer, e);
    if (rc == 0 && answer.status == 404) {
        tm_web_answer_deinit(&answer);
        object_path(c, SIZE_MAX, name, true, key, sizeof key);
        tm_log(TM_LOG_INFO, "bringing the %s (%zu bytes) to gs://%s/%s", what, length, c->options.common.bucket, key);
        request = make_upload(c, path, sizeof path, key);
        request.body = data;
        request.length = length;
        request.deadline_ms = UPLOAD_MS;
        rc = tm_gcp_ask(c->shared.web, &request, &answer, e);
    }
    env->file_unmap(env, data, length);
    if (rc == 0 && answer.status != 200)
        rc = refused(c->options.common.bucket, &answer, e);
    else if (rc == 0)
        tm_web_answer_deinit(&answer);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "bringing the %s to the bucket", what);
}

int tm_gcp__prepare(struct tm_gcp__cloud *c, struct tm_error *e)
{
    const struct tm_vm_options *o = &c->options.common;
    int rc = tm_gcp_project(c->gcp, &c->project, e);
    if (rc == 0) rc = bring(c, "program", o->program, c->sha256, e);
    if (rc == 0 && o->wheel != NULL) rc = bring(c, "wheel", o->wheel, c->shared.wheel_sha256, e);
    if (rc == 0) rc = find_zones(c, e);
    if (rc == 0) rc = check_places(c, e);
    return rc == 0 ? tm_gcp__make_rules(c, e) : rc;
}
