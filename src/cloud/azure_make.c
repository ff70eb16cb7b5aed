/* What the Azure cloud asks to be made. */
#include "base/alloc.h"
#include "base/jsonout.h"
#include "base/log.h"
#include "cloud/away_vm_internal.h"
#include "cloud/azure_internal.h"
#include "cloud/rented.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <string.h>

enum { OBJECT_MS = 60000, UPLOAD_MS = 10 * 60000, TRIES = 6, ASK_MS = 60000, READY_MS = 120000, READY_PAUSE_MS = 1000 };

const char *tm_azure__group_of(const struct tm_azure__cloud *c)
{
    return c->options.group != NULL ? c->options.group : TM_AZURE_GROUP;
}

/* ---- parts of a VM ---- */

static const struct {
    const char *type;
    const char *ending;
    const char *api;
} parts[] = {[TM_AZURE_ADDRESS] = {"Microsoft.Network/publicIPAddresses", "-ip", TM_AZURE_API_NETWORK},
             [TM_AZURE_NIC] = {"Microsoft.Network/networkInterfaces", "-nic", TM_AZURE_API_NETWORK},
             [TM_AZURE_DISK] = {"Microsoft.Compute/disks", "-disk", TM_AZURE_API_DISK},
             [TM_AZURE_VM] = {"Microsoft.Compute/virtualMachines", "", TM_AZURE_API_VM}};

void tm_azure__part_path(const struct tm_azure__cloud *c, enum tm_azure__stage part, const char *vm,
                         char out[TM_AZURE_PATH_MAX])
{
    const char *name = vm != NULL ? vm : "";
    (void)snprintf(out, TM_AZURE_PATH_MAX, "/resourceGroups/%.100s/providers/%s%s%.100s%s", tm_azure__group_of(c),
                   parts[part].type, vm != NULL ? "/" : "", name, vm != NULL ? parts[part].ending : "");
}

void tm_azure__path_of(struct tm_azure__cloud *c, enum tm_azure__stage part, const char *vm, struct tm_arm_request *out)
{
    char path[TM_AZURE_PATH_MAX];
    tm_azure__part_path(c, part, vm, path);
    out->arm = c->arm;
    out->body = NULL;
    tm_arm_path(out, "%s?api-version=%s", path, parts[part].api);
}

static void put_tags(struct tm_azure__cloud *c, size_t at, struct tm_jsonout *json)
{
    struct tm_vm__tag tags[TM_VM_TAGS];
    size_t count = tm_vm_cloud__tags(&c->base, at, tags);
    tm_jsonout_object(json, "tags");
    for (size_t i = 0; i < count; i++)
        tm_jsonout_string(json, tags[i].name, tags[i].value);
    tm_jsonout_end(json);
}

/* Of a part of this VM, as one resource names another. */
static void put_id(struct tm_azure__cloud *c, size_t at, enum tm_azure__stage part, struct tm_jsonout *json)
{
    char id[512];
    (void)snprintf(id, sizeof id, "/subscriptions/%s/resourceGroups/%.100s/providers/%s/%s%s",
                   tm_arm_subscription(c->arm), tm_azure__group_of(c), parts[part].type, c->base.vms.vms[at].token,
                   parts[part].ending);
    tm_jsonout_string(json, "id", id);
}

static void put_gone_with_it(struct tm_jsonout *json)
{
    tm_jsonout_object(json, "properties");
    tm_jsonout_string(json, "deleteOption", "Delete");
    tm_jsonout_end(json);
}

/* "eastus-2": zone 2 of eastus; "": Azure's choice. */
static const char *zone_of(const struct tm_azure__cloud *c, size_t at)
{
    const char *zone = c->base.pools[c->base.vms.instances[at].pool].zone;
    const char *dash = strrchr(zone, '-');
    return dash != NULL && dash[1] >= '1' && dash[1] <= '9' && dash[2] == '\0' ? dash + 1 : "";
}

static void put_place(struct tm_azure__cloud *c, size_t at, bool zoned, struct tm_jsonout *json)
{
    tm_jsonout_string(json, "location", c->options.location);
    if (zoned && zone_of(c, at)[0] != '\0') {
        tm_jsonout_list(json, "zones");
        tm_jsonout_string(json, NULL, zone_of(c, at));
        tm_jsonout_end(json);
    }
    put_tags(c, at, json);
}

static void put_reference(struct tm_jsonout *json, const char *key, const char *id)
{
    tm_jsonout_object(json, key);
    tm_jsonout_string(json, "id", id);
    tm_jsonout_end(json);
}

static void put_nic(struct tm_azure__cloud *c, size_t at, struct tm_jsonout *json)
{
    if (c->options.security_group != NULL) put_reference(json, "networkSecurityGroup", c->options.security_group);
    tm_azure__put_rules(c, json);
    tm_jsonout_list(json, "ipConfigurations");
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "name", "one");
    tm_jsonout_object(json, "properties");
    tm_jsonout_string(json, "privateIPAllocationMethod", "Dynamic");
    put_reference(json, "subnet", c->subnet);
    tm_azure__put_member(c, json);
    if (c->options.public_ip) {
        tm_jsonout_object(json, "publicIPAddress");
        put_id(c, at, TM_AZURE_ADDRESS, json);
        put_gone_with_it(json);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

int tm_azure__print_part(struct tm_azure__cloud *c, size_t at, enum tm_azure__stage part, struct tm_text *out,
                         struct tm_error *e)
{
    struct tm_jsonout json;
    tm_jsonout_init_line(&json, out);
    tm_jsonout_object(&json, NULL);
    put_place(c, at, part == TM_AZURE_ADDRESS, &json);
    if (part == TM_AZURE_ADDRESS) {
        tm_jsonout_object(&json, "sku");
        tm_jsonout_string(&json, "name", "Standard");
        tm_jsonout_end(&json);
    }
    tm_jsonout_object(&json, "properties");
    if (part == TM_AZURE_ADDRESS) {
        tm_jsonout_string(&json, "publicIPAllocationMethod", "Static");
        tm_jsonout_string(&json, "publicIPAddressVersion", "IPv4");
    } else {
        put_nic(c, at, &json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    return tm_text_status(out, e);
}

/* ---- the VM ---- */

static int put_url(void *self, size_t at, const char *what, const char *method, int64_t seconds, struct tm_text *out,
                   struct tm_error *e)
{
    struct tm_azure__cloud *c = self;
    struct tm_azure_request request;
    char key[TM_AZURE_KEY_MAX];
    tm_azure__make_object(c, at, what, method, key, &request);
    return tm_azure_url(c->azure, method, request.path, seconds, out, e);
}

/* For a VM that rents others, as its identity: subscription and storage account, and where services are that are not
 * Azure's own. No key. */
static void put_variables(const struct tm_azure__cloud *c, struct tm_text *words)
{
    static const char *const names[] = {"AZURE_RESOURCE_MANAGER_ENDPOINT", "AZURE_RETAIL_PRICES_ENDPOINT", NULL};
    char account[700];
    (void)snprintf(account, sizeof account, "AccountName=%.90s;BlobEndpoint=%.500s", tm_azure_account(c->azure),
                   tm_azure_endpoint(c->azure));
    tm_vm__put_word(words, "public_address", c->public_address);
    tm_text_puts(words, "export ");
    tm_vm__put_word(words, "AZURE_SUBSCRIPTION_ID", tm_arm_subscription(c->arm));
    tm_text_puts(words, "export ");
    tm_vm__put_word(words, "AZURE_STORAGE_CONNECTION_STRING", account);
    tm_away__put_variables(c->base.env, names, words);
}

/* The script, in base64. */
static int put_boot(struct tm_azure__cloud *c, size_t at, struct tm_jsonout *json, struct tm_error *e)
{
    struct tm_text words, text;
    unsigned char *coded = NULL;
    tm_text_init(&words, 4096);
    tm_text_init(&text, 2 * tm_azure__guest.room);
    tm_vm__put_word(&words, "arm", tm_arm_endpoint(c->arm));
    tm_vm__put_word(&words, "audience", tm_arm_audience(c->arm));
    tm_vm__put_word(&words, "identity", c->options.identity != NULL ? c->options.identity : "");
    if (c->base.coordinator != NULL) put_variables(c, &words);
    const struct tm_vm__boot boot = {
        .guest = &tm_azure__guest, .words = tm_text_string(&words), .sha256 = c->sha256, .url = put_url, .self = c};
    int rc = tm_text_status(&words, e);
    if (rc == 0) rc = tm_vm_cloud__print_boot(&c->base, at, &boot, &text, e);
    if (rc == 0 && (coded = tm_alloc(text.length / 3 * 4 + 8)) == NULL) rc = tm_error_nomem(e);
    if (rc == 0) {
        (void)EVP_EncodeBlock(coded, (const unsigned char *)text.data, (int)text.length);
        tm_jsonout_string(json, "customData", (const char *)coded);
    }
    tm_free(coded);
    tm_text_deinit(&text);
    tm_text_deinit(&words);
    return rc;
}

static int put_system(struct tm_azure__cloud *c, size_t at, struct tm_jsonout *json, struct tm_error *e)
{
    tm_jsonout_object(json, "osProfile");
    tm_jsonout_string(json, "computerName", c->base.vms.vms[at].token);
    tm_jsonout_string(json, "adminUsername", "tidemill");
    tm_jsonout_object(json, "linuxConfiguration");
    tm_jsonout_bool(json, "disablePasswordAuthentication", true);
    tm_jsonout_object(json, "ssh");
    tm_jsonout_list(json, "publicKeys");
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "path", "/home/tidemill/.ssh/authorized_keys");
    tm_jsonout_string(json, "keyData", c->ssh_key);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    int rc = put_boot(c, at, json, e);
    tm_jsonout_end(json);
    return rc;
}

/* "a:b:c:d", or an id. */
static void put_image(const char *image, struct tm_jsonout *json)
{
    static const char *const names[] = {"publisher", "offer", "sku", "version"};
    tm_jsonout_object(json, "imageReference");
    if (image[0] == '/') tm_jsonout_string(json, "id", image);
    for (size_t i = 0; image[0] != '/' && i < 4; i++) {
        char word[128];
        size_t length = strcspn(image, ":");
        (void)snprintf(word, sizeof word, "%.*s", (int)(length < 127 ? length : 127), image);
        tm_jsonout_string(json, names[i], i == 3 && word[0] == '\0' ? "latest" : word);
        image += length + (image[length] == ':' ? 1 : 0);
    }
    tm_jsonout_end(json);
}

static void put_storage(struct tm_azure__cloud *c, size_t at, struct tm_jsonout *json)
{
    char name[TM_VM_ID_MAX + 8];
    (void)snprintf(name, sizeof name, "%s%s", c->base.vms.vms[at].token, parts[TM_AZURE_DISK].ending);
    tm_jsonout_object(json, "storageProfile");
    put_image(c->options.image != NULL ? c->options.image : TM_AZURE_IMAGE, json);
    tm_jsonout_object(json, "osDisk");
    tm_jsonout_string(json, "name", name);
    tm_jsonout_string(json, "createOption", "FromImage");
    tm_jsonout_string(json, "deleteOption", "Delete");
    if (c->options.disk_gb > 0) tm_jsonout_integer(json, "diskSizeGB", c->options.disk_gb);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void put_identity(const struct tm_azure__cloud *c, struct tm_jsonout *json)
{
    if (c->options.identity == NULL) return;
    tm_jsonout_object(json, "identity");
    tm_jsonout_string(json, "type", "UserAssigned");
    tm_jsonout_object(json, "userAssignedIdentities");
    tm_jsonout_object(json, c->options.identity);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static int print_vm(struct tm_azure__cloud *c, size_t at, struct tm_text *out, struct tm_error *e)
{
    const struct tm_cloud_pool *pool = &c->base.pools[c->base.vms.instances[at].pool];
    struct tm_jsonout json;
    tm_jsonout_init_line(&json, out);
    tm_jsonout_object(&json, NULL);
    put_place(c, at, true, &json);
    put_identity(c, &json);
    tm_jsonout_object(&json, "properties");
    tm_jsonout_object(&json, "hardwareProfile");
    tm_jsonout_string(&json, "vmSize", pool->type);
    tm_jsonout_end(&json);
    if (pool->kind == TM_INSTANCE_SPOT) {
        tm_jsonout_string(&json, "priority", "Spot");
        tm_jsonout_string(&json, "evictionPolicy", "Delete");
        tm_jsonout_object(&json, "billingProfile");
        tm_jsonout_integer(&json, "maxPrice", -1);
        tm_jsonout_end(&json);
    }
    int rc = put_system(c, at, &json, e);
    put_storage(c, at, &json);
    tm_jsonout_object(&json, "networkProfile");
    tm_jsonout_list(&json, "networkInterfaces");
    tm_jsonout_object(&json, NULL);
    put_id(c, at, TM_AZURE_NIC, &json);
    put_gone_with_it(&json);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    return rc == 0 ? tm_text_status(out, e) : rc;
}

int tm_azure__print_vm(struct tm_azure__cloud *c, size_t at, struct tm_text *out, struct tm_error *e)
{
    struct tm_vm *vm = &c->base.vms.vms[at];
    if (vm->kept) return tm_vm_cloud__read_words(&c->base, vm->token, out, e); /* asked before: the same words */
    tm_vm_cloud__name(&c->base, at);
    int rc = print_vm(c, at, out, e);
    return rc == 0 ? tm_vm_cloud__write_note(&c->base, at, tm_text_string(out), e) : rc;
}

/* ---- objects ---- */

void tm_azure__make_object(struct tm_azure__cloud *c, size_t at, const char *what, const char *method, char *key,
                           struct tm_azure_request *out)
{
    int length = snprintf(key, TM_AZURE_KEY_MAX, "/%.100s", c->base.options.bucket);
    tm_vm_cloud__key(&c->base, at, what, key + length, TM_AZURE_KEY_MAX - (size_t)length);
    *out = (struct tm_azure_request){
        .azure = c->azure, .method = method, .path = key, .deadline_ms = OBJECT_MS, .tries_max = TRIES};
    if (strcmp(method, "PUT") == 0)
        out->headers[out->header_count++] = (struct tm_web_pair){"x-ms-blob-type", "BlockBlob"};
}

/* ---- before anything is rented ---- */

static int ask_object(struct tm_azure__cloud *c, struct tm_azure_request *request, struct tm_error *e)
{
    struct tm_web_answer answer;
    int rc = tm_azure_ask(c->base.web, request, &answer, e);
    if (rc != 0) return rc;
    int status = answer.status;
    tm_web_answer_deinit(&answer);
    if (status < 300) return 0;
    if (status == 404 && strcmp(request->method, "HEAD") == 0)
        return tm_error_set(e, TM_ENOTFOUND, "there is no such blob");
    return tm_error_set(e, TM_EINPUT,
                        "container %s: the service answers %d; `tidemill cloud check azure --bucket az://%s` says more",
                        c->base.options.bucket, status, c->base.options.bucket);
}

/* By its hash, so that it is brought once. */
static int bring(struct tm_azure__cloud *c, const char *what, const char *file, char sha256[TM_SHA256_HEX],
                 struct tm_error *e)
{
    struct tm_azure_request request;
    char key[TM_AZURE_KEY_MAX];
    char name[128];
    const void *data = NULL;
    size_t length = 0;
    struct tm_env *env = c->base.env;
    int rc = env->file_map(env, file, &data, &length, e);
    if (rc != 0) return rc;
    tm_sha256_hex(data, length, sha256);
    (void)snprintf(name, sizeof name, "%s-%s", what, sha256);
    tm_azure__make_object(c, SIZE_MAX, name, "HEAD", key, &request);
    rc = ask_object(c, &request, e);
    if (rc == -(int)TM_ENOTFOUND) {
        tm_log(TM_LOG_INFO, "bringing the %s (%zu bytes) to az:/%s", what, length, key);
        tm_azure__make_object(c, SIZE_MAX, name, "PUT", key, &request);
        request.body = data;
        request.length = length;
        request.deadline_ms = UPLOAD_MS;
        rc = ask_object(c, &request, e);
    }
    env->file_unmap(env, data, length);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "bringing the %s to the container", what);
}

int tm_azure__ask_json(struct tm_web *web, struct tm_arm_request *r, const char *what, struct tm_azure__said *out,
                       struct tm_error *e)
{
    struct tm_web_answer answer;
    struct tm_arm_refusal why = {.code = ""};
    *out = (struct tm_azure__said){.root = NULL};
    r->deadline_ms = ASK_MS;
    r->tries_max = TRIES;
    int rc = tm_arm_ask(web, r, &answer, e);
    if (rc != 0) return tm_error_wrap(e, rc, "%s", what);
    int status = out->status = answer.status;
    const char *text = tm_text_string(&answer.body);
    (void)snprintf(out->operation, sizeof out->operation, "%s", answer.operation);
    if (status >= 300)
        rc = tm_arm_refusal(text, answer.body.length, &why, e);
    else if (answer.body.length > 0)
        rc = tm_json_load(what, text, answer.body.length, &out->root, e);
    tm_web_answer_deinit(&answer);
    if (rc != 0 || status < 300) return rc;
    if (status == 404 && strcmp(why.code, "SubscriptionNotFound") != 0)
        return tm_error_set(e, TM_ENOTFOUND, "%s: there is none: %s %s", what, why.code, why.message);
    const char *advice = tm_azure__advice(why.code);
    return tm_error_set(e, tm_azure__remedy_of(why.code) == TM_VM_LOOK ? TM_EEXISTS : TM_EINPUT,
                        "%s: Azure answers %d %s: %.300s%s%s", what, status, why.code, why.message,
                        advice[0] != '\0' ? "; " : "", advice);
}

int tm_azure__ask_arm(struct tm_azure__cloud *c, struct tm_arm_request *r, const char *what, char out_state[32],
                      struct tm_error *e)
{
    struct tm_azure__said said;
    int rc = tm_azure__ask_json(c->base.web, r, what, &said, e);
    const json_t *properties = json_object_get(said.root, "properties");
    const char *state = json_string_value(json_object_get(properties, "provisioningState"));
    if (rc == 0 && out_state != NULL) (void)snprintf(out_state, 32, "%.31s", state != NULL ? state : "");
    json_decref(said.root);
    return rc;
}

/* Of what all runs use: who made it, and for which job. */
static void put_maker(const struct tm_azure__cloud *c, struct tm_jsonout *json)
{
    tm_jsonout_object(json, "tags");
    tm_jsonout_string(json, TM_RENTED_TAG, c->options.vm.job);
    tm_jsonout_string(json, TM_VM_TAG_OWNER, c->options.vm.owner);
    tm_jsonout_end(json);
}

static int make_group(struct tm_azure__cloud *c, struct tm_error *e)
{
    struct tm_arm_request r = {.arm = c->arm, .method = "GET"};
    struct tm_text body;
    struct tm_jsonout json;
    char what[160];
    (void)snprintf(what, sizeof what, "resource group %.100s", tm_azure__group_of(c));
    tm_arm_path(&r, "/resourcegroups/%.100s?api-version=" TM_AZURE_API_GROUP, tm_azure__group_of(c));
    int rc = tm_azure__ask_arm(c, &r, what, NULL, e);
    if (rc != -(int)TM_ENOTFOUND) return rc;
    tm_text_init(&body, 4096);
    tm_jsonout_init_line(&json, &body);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "location", c->options.location);
    put_maker(c, &json);
    tm_jsonout_end(&json);
    rc = tm_text_status(&body, e);
    r.method = "PUT";
    r.body = tm_text_string(&body);
    if (rc == 0) rc = tm_azure__ask_arm(c, &r, what, NULL, e);
    tm_text_deinit(&body);
    return rc;
}

static void print_network(const struct tm_azure__cloud *c, struct tm_text *out)
{
    struct tm_jsonout json;
    tm_jsonout_init_line(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "location", c->options.location);
    put_maker(c, &json);
    tm_jsonout_object(&json, "properties");
    tm_jsonout_object(&json, "addressSpace");
    tm_jsonout_list(&json, "addressPrefixes");
    tm_jsonout_string(&json, NULL, "10.0.0.0/8");
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    tm_jsonout_list(&json, "subnets");
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "name", "default");
    tm_jsonout_object(&json, "properties");
    tm_jsonout_string(&json, "addressPrefix", "10.0.0.0/16");
    tm_jsonout_bool(&json, "defaultOutboundAccess", true); /* VMs dial out */
    for (int i = 0; i < 5; i++)
        tm_jsonout_end(&json);
}

int tm_azure__make_resource(struct tm_azure__cloud *c, const char *path, const char *body, const char *what,
                            struct tm_error *e)
{
    struct tm_arm_request r = {.arm = c->arm, .method = "GET"};
    char state[32] = "";
    struct tm_env *env = c->base.env;
    tm_arm_path(&r, "%s?api-version=" TM_AZURE_API_NETWORK, path);
    int64_t until_ns = env->monotonic_ns(env) + READY_MS * 1000000LL;
    for (;;) {
        r.method = "GET";
        r.body = NULL;
        int rc = tm_azure__ask_arm(c, &r, what, state, e);
        if (rc == -(int)TM_ENOTFOUND) { /* or it was going until now: the program before us has removed it */
            r.method = "PUT";
            r.body = body;
            rc = tm_azure__ask_arm(c, &r, what, state, e);
        }
        if (rc != 0 || strcmp(state, "Succeeded") == 0) return rc;
        if (strcmp(state, "Failed") == 0 || env->monotonic_ns(env) > until_ns)
            return tm_error_set(e, TM_EPEER, "%s: %s is not ready: %s", what, strrchr(path, '/') + 1, state);
        env->sleep_ms(env, READY_PAUSE_MS);
    }
}

/* A network that the user did not name: made once, used by all runs in its location, and of no cost. */
static int make_network(struct tm_azure__cloud *c, struct tm_error *e)
{
    struct tm_text body;
    char path[300];
    (void)snprintf(path, sizeof path,
                   "/resourceGroups/%.100s/providers/Microsoft.Network/virtualNetworks/tidemill-%.60s",
                   tm_azure__group_of(c), c->options.location);
    (void)snprintf(c->subnet, sizeof c->subnet, "/subscriptions/%s%s/subnets/default", tm_arm_subscription(c->arm),
                   path);
    tm_text_init(&body, 4096);
    print_network(c, &body);
    int rc = tm_text_status(&body, e);
    if (rc == 0) rc = tm_azure__make_resource(c, path, tm_text_string(&body), "network", e);
    tm_text_deinit(&body);
    return rc == 0 ? 0
                   : tm_error_wrap(e, rc, "making a network (fleet: {azure: {subnet: ID}} names a subnet of yours)");
}

/* Azure takes no VM without a key or a password; nobody keeps the other half of this one. */
static int make_key(struct tm_azure__cloud *c, struct tm_error *e)
{
    unsigned char blob[700] = {0, 0, 0, 7, 's', 's', 'h', '-', 'r', 's', 'a'};
    size_t length = 11;
    EVP_PKEY *key = EVP_RSA_gen(2048);
    static const char *const names[] = {OSSL_PKEY_PARAM_RSA_E, OSSL_PKEY_PARAM_RSA_N};
    bool good = key != NULL;
    for (size_t i = 0; good && i < 2; i++) {
        BIGNUM *number = NULL;
        good = EVP_PKEY_get_bn_param(key, names[i], &number) == 1 && BN_num_bytes(number) <= 300;
        int size = good ? BN_num_bytes(number) : 0;
        int zero = good && BN_num_bits(number) % 8 == 0; /* or it would be negative */
        blob[length + 2] = (unsigned char)((size + zero) >> 8);
        blob[length + 3] = (unsigned char)((size + zero) & 0xff);
        if (good) (void)BN_bn2bin(number, blob + length + 4 + zero);
        length += (size_t)(4 + zero + size);
        BN_free(number);
    }
    EVP_PKEY_free(key);
    if (!good) return tm_error_set(e, TM_EIO, "no key could be made for VMs of Azure");
    int head = snprintf(c->ssh_key, sizeof c->ssh_key, "ssh-rsa ");
    (void)EVP_EncodeBlock((unsigned char *)c->ssh_key + head, blob, (int)length);
    return 0;
}

/* That URLs can be signed: a key for that is asked for here, where we may wait, and a refusal ends the run. */
static int check_urls(struct tm_azure__cloud *c, struct tm_error *e)
{
    struct tm_text url;
    tm_text_init(&url, 16384);
    int rc = tm_azure_await_key(c->azure, e);
    if (rc == 0) rc = put_url(c, SIZE_MAX, "program", "GET", 60, &url, e);
    tm_text_deinit(&url);
    return rc;
}

int tm_azure__prepare(struct tm_azure__cloud *c, struct tm_error *e)
{
    const struct tm_vm_options *o = &c->base.options;
    int rc = bring(c, "program", o->program, c->sha256, e);
    if (rc == 0 && o->wheel != NULL) rc = bring(c, "wheel", o->wheel, c->base.wheel_sha256, e);
    if (rc == 0) rc = check_urls(c, e);
    if (rc == 0) rc = make_key(c, e);
    if (rc == 0) rc = make_group(c, e);
    if (rc != 0) return rc;
    if (c->options.subnet == NULL)
        rc = make_network(c, e);
    else
        (void)snprintf(c->subnet, sizeof c->subnet, "%.500s", c->options.subnet);
    return rc == 0 ? tm_azure__make_firewall(c, e) : rc;
}
