#include "cloud/azure_text.h"

#include "base/calendar.h"
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *code;
    enum tm_vm__remedy remedy;
    const char *advice;
} table[] = {
    {"SkuNotAvailable", TM_VM_ELSEWHERE, "the location may not have this size: name another, or another zone"},
    {"AllocationFailed", TM_VM_ELSEWHERE, ""},
    {"ZonalAllocationFailed", TM_VM_ELSEWHERE, ""},
    {"OverconstrainedAllocationRequest", TM_VM_ELSEWHERE, ""},
    {"OverconstrainedZonalAllocationRequest", TM_VM_ELSEWHERE, ""},
    {"SpotPriceGreaterThanProvidedMaxPrice", TM_VM_ELSEWHERE, ""},
    {"NotAvailableForSubscription", TM_VM_ELSEWHERE, "ask Azure for access to this size in this location"},
    {"SubnetIsFull", TM_VM_ELSEWHERE, "give the run a larger subnet: fleet: {azure: {subnet: ...}}"},
    {"OperationPreempted", TM_VM_ELSEWHERE, ""},
    {"OperationNotAllowed", TM_VM_QUOTA, "ask for more under Quotas in Azure's portal"},
    {"QuotaExceeded", TM_VM_QUOTA, "ask for more under Quotas in Azure's portal"},
    {"PublicIPCountLimitReached", TM_VM_QUOTA, "ask for more addresses under Quotas, or leave out public_ip"},
    {"TooManyRequests", TM_VM_AGAIN, ""},
    {"OperationNotAllowedOnVMImageAsVMsBeingProvisioned", TM_VM_AGAIN, ""},
    {"SubscriptionRequestsThrottled", TM_VM_AGAIN, ""},
    {"RetryableError", TM_VM_AGAIN, ""},
    {"RetryableErrorDueToAnotherOperation", TM_VM_AGAIN, ""},
    {"AnotherOperationInProgress", TM_VM_AGAIN, ""},
    {"ReferencedResourceNotProvisioned", TM_VM_AGAIN, ""},
    {"InternalServerError", TM_VM_AGAIN, ""},
    {"InternalExecutionError", TM_VM_AGAIN, ""},
    {"InternalOperationError", TM_VM_AGAIN, ""},
    {"NetworkingInternalOperationError", TM_VM_AGAIN, ""},
    {"ServiceUnavailable", TM_VM_AGAIN, ""},
    {"ServerTimeout", TM_VM_AGAIN, ""},
    {"GatewayTimeout", TM_VM_AGAIN, ""},
    {"Conflict", TM_VM_AGAIN, ""},
    {"ExpiredAuthenticationToken", TM_VM_AGAIN, "log in again (az login), or correct the clock of this machine"},
    {"AuthenticationFailed", TM_VM_STOP, "`tidemill cloud check azure` says what is wrong with the credentials"},
    {"InvalidAuthenticationToken", TM_VM_AGAIN, "log in again (az login)"},
    {"InvalidAuthenticationTokenTenant", TM_VM_STOP, "the subscription is of another tenant than the credentials"},
    {"AuthorizationFailed", TM_VM_STOP, "allow what `tidemill cloud check azure --emit policy` prints"},
    {"LinkedAuthorizationFailed", TM_VM_STOP, "allow what `tidemill cloud check azure --emit policy` prints"},
    {"PropertyChangeNotAllowed", TM_VM_LOOK, ""},
    {"InvalidResourceReference", TM_VM_STOP,
     "if `cloud clean` took the run's security group while it had no VM, run --resume makes it again"},
    {"SubscriptionNotFound", TM_VM_STOP, "correct AZURE_SUBSCRIPTION_ID"},
    {"ResourceGroupNotFound", TM_VM_STOP, "create it, or name another: fleet: {azure: {resource_group: ...}}"},
    {"MissingSubscriptionRegistration", TM_VM_STOP,
     "az provider register -n Microsoft.Compute; then of Microsoft.Network"},
    {"RequestDisallowedByPolicy", TM_VM_STOP, "a policy of the subscription forbids this VM"},
    {"PlatformImageNotFound", TM_VM_STOP, "name an image: fleet: {azure: {image: PUBLISHER:OFFER:SKU:VERSION}}"},
    {"ImageNotFound", TM_VM_STOP, "name an image: fleet: {azure: {image: PUBLISHER:OFFER:SKU:VERSION}}"},
    {"ResourcePurchaseValidationFailed", TM_VM_STOP, "accept the image's terms: az vm image terms accept"},
    {"VMMarketplaceInvalidInput", TM_VM_STOP, "accept the image's terms: az vm image terms accept"},
    {"InvalidParameter", TM_VM_STOP, ""},
    {"BadRequest", TM_VM_STOP, ""},
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

enum tm_vm__remedy tm_azure__remedy_of(const char *code)
{
    enum tm_vm__remedy remedy = TM_VM_STOP;
    (void)match(code, &remedy);
    return remedy;
}

const char *tm_azure__advice(const char *code)
{
    enum tm_vm__remedy remedy = TM_VM_STOP;
    return match(code, &remedy);
}

/* Spot VMs of a location share one quota; of the others Azure's words say whether it was the location's. */
static bool shares_quota(const char *code, const char *words, const struct tm_cloud_pool *refused,
                         const struct tm_cloud_pool *other)
{
    (void)code;
    bool whole = refused->kind == TM_INSTANCE_SPOT || strstr(words, "Total Regional") != NULL;
    return refused->kind == other->kind && (whole || strcmp(refused->type, other->type) == 0);
}

/* Per second, from the first; an eviction is not free. */
const struct tm_vm__rules tm_azure__rules = {.cloud = "Azure",
                                             .remedy_of = tm_azure__remedy_of,
                                             .advice = tm_azure__advice,
                                             .shares_quota = shares_quota,
                                             .minimum_s = 0,
                                             .free_s = 0,
                                             .believe_ms = 60000};

const struct tm_vm__guest tm_azure__guest = {
    .cloud = "Azure",
    .notice = "azure",
    .put_header = "-H x-ms-blob-type:BlockBlob",
    .noticed = "    curl -fsS -m 20 -H Metadata:true "
               "'http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01' | grep -q '\"Preempt\"'\n",
    .power_off =
        "    local m=http://169.254.169.254/metadata t i me\n"
        "    me=$(curl -fsS -m 20 -H Metadata:true "
        "\"$m/instance/compute/resourceId?api-version=2021-02-01&format=text\")\n"
        "    for i in 1 2 3 4 5 6; do\n"
        "        [ -n \"$identity\" ] || break\n"
        "        t=$(curl -fsS -m 20 -H Metadata:true -G --data-urlencode \"msi_res_id=$identity\" "
        "--data-urlencode \"resource=$audience/\" "
        "\"$m/identity/oauth2/token?api-version=2018-02-01\" | sed -E 's/.*\"access_token\": *\"([^\"]*)\".*/\\1/')\n"
        "        printf 'header = \"Authorization: Bearer %s\"\\n' \"$t\" |\n"
        "            curl -fsS -m 60 -K - -X DELETE \"$arm$me?api-version=2024-07-01&forceDeletion=true\" && return\n"
        "        sleep 10\n"
        "    done\n"
        "    shutdown -P now\n",
    .addresses =
        "    own=$(curl -fsS -m 20 --retry 5 -H Metadata:true \"http://169.254.169.254/metadata/instance/network/"
        "interface/0/ipv4/ipAddress/0/privateIpAddress?api-version=2021-02-01&format=text\")\n"
        "    public=$public_address\n",
    .room = 65535};

static void copy(char *out, size_t room, const char *text)
{
    (void)snprintf(out, room, "%.*s", (int)room - 1, text != NULL ? text : "");
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

bool tm_azure__read_vm(const json_t *item, struct tm_vm__row *out, char run[32])
{
    *out = (struct tm_vm__row){.pool = -1};
    const json_t *properties = json_object_get(item, "properties");
    const json_t *tags = json_object_get(item, "tags");
    const json_t *zones = json_object_get(item, "zones");
    const char *state = text_of(properties, "provisioningState");
    const char *made = text_of(properties, "timeCreated");
    const char *pool = text_of(tags, TM_VM_TAG_POOL);
    int64_t number = 0;
    copy(out->id, sizeof out->id, text_of(item, "name"));
    copy(out->token, sizeof out->token, text_of(item, "name"));
    copy(out->type, sizeof out->type, text_of(json_object_get(properties, "hardwareProfile"), "vmSize"));
    copy(out->zone, sizeof out->zone, text_of(item, "location"));
    if (json_string_value(json_array_get(zones, 0)) != NULL)
        (void)snprintf(out->zone, sizeof out->zone, "%.50s-%.8s",
                       text_of(item, "location") != NULL ? text_of(item, "location") : "",
                       json_string_value(json_array_get(zones, 0)));
    if (pool != NULL && tm_number_i64(pool, strlen(pool), &number) && number >= 0 && number < 1 << 16)
        out->pool = (int)number;
    if (made == NULL || !tm_calendar_parse(made, strlen(made), &out->launched_ms)) out->launched_ms = 0;
    if (state != NULL && strcmp(state, "Deleting") == 0) out->phase = TM_VM_LEAVING;
    if (state != NULL && (strcmp(state, "Failed") == 0 || strcmp(state, "Canceled") == 0)) out->phase = TM_VM_STOPPED;
    copy(run, 32, text_of(tags, TM_VM_TAG_RUN));
    return out->id[0] != '\0';
}

bool tm_azure__read_power(const json_t *item, char name[TM_VM_ID_MAX], bool *out_stopped)
{
    const json_t *view = json_object_get(json_object_get(item, "properties"), "instanceView");
    const json_t *statuses = json_object_get(view, "statuses");
    copy(name, TM_VM_ID_MAX, text_of(item, "name"));
    for (size_t i = 0; i < json_array_size(statuses); i++) {
        const char *code = text_of(json_array_get(statuses, i), "code");
        if (code == NULL || strncmp(code, "PowerState/", 11) != 0) continue;
        *out_stopped = strcmp(code, "PowerState/stopped") == 0 || strcmp(code, "PowerState/deallocated") == 0;
        return name[0] != '\0';
    }
    return false;
}

bool tm_azure__read_part(const json_t *item, const char *ending, char vm[TM_VM_ID_MAX])
{
    const char *name = text_of(item, "name");
    size_t length = name != NULL ? strlen(name) : 0;
    size_t end = strlen(ending);
    if (length <= end || length - end >= TM_VM_ID_MAX || strcmp(name + length - end, ending) != 0) return false;
    (void)snprintf(vm, TM_VM_ID_MAX, "%.*s", (int)(length - end), name);
    return strncmp(vm, "tm-", 3) == 0;
}

void tm_azure__read_address(const json_t *nic, char out[64])
{
    const json_t *all = json_object_get(json_object_get(nic, "properties"), "ipConfigurations");
    copy(out, 64, text_of(json_object_get(json_array_get(all, 0), "properties"), "privateIPAddress"));
}

int tm_azure__read_page(const json_t *root, const json_t **out_items, const char **out_next, struct tm_error *e)
{
    *out_items = json_object_get(root, "value");
    const char *next = text_of(root, "nextLink");
    *out_next = next != NULL ? next : "";
    return json_is_array(*out_items) ? 0 : tm_error_set(e, TM_EINPUT, "Azure's answer holds no list");
}

enum tm_azure__progress tm_azure__read_operation(int status, const json_t *root)
{
    const char *word = text_of(root, "status");
    if (word == NULL) return status == 202 ? TM_AZURE_UNDER_WAY : TM_AZURE_DONE; /* of a Location */
    if (strcmp(word, "Failed") == 0 || strcmp(word, "Canceled") == 0) return TM_AZURE_FAILED;
    return strcmp(word, "Succeeded") == 0 ? TM_AZURE_DONE : TM_AZURE_UNDER_WAY;
}

double tm_azure__read_spot_price(const json_t *root, const char *type, const char *location)
{
    const json_t *items = json_object_get(root, "Items");
    double lowest = NAN;
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        const char *size = text_of(item, "armSkuName");
        const char *sku = text_of(item, "skuName");
        const char *product = text_of(item, "productName");
        const json_t *price = json_object_get(item, "retailPrice");
        bool spot = sku != NULL && strstr(sku, "Spot") != NULL;
        bool windows = product != NULL && strstr(product, "Windows") != NULL;
        const char *place = text_of(item, "armRegionName");
        const char *unit = text_of(item, "unitOfMeasure");
        bool hourly = unit != NULL && strcmp(unit, "1 Hour") == 0;
        bool here = place != NULL && strcmp(place, location) == 0;
        if (!spot || windows || !hourly || !here || size == NULL || strcmp(size, type) != 0) continue;
        if (!json_is_number(price)) continue;
        double usd_h = json_number_value(price);
        if (usd_h > 0 && (isnan(lowest) || usd_h < lowest)) lowest = usd_h;
    }
    return lowest;
}
