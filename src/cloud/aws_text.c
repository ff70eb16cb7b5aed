#include "cloud/aws_text.h"

#include "base/calendar.h"
#include "base/number.h"
#include "cloud/aws_check.h"

#include <stdio.h>
#include <string.h>

/* A code, or the beginning of some where it ends in a dot. */
static const struct {
    const char *code;
    enum tm_vm__remedy remedy;
    const char *advice;
} table[] = {
    {"InsufficientInstanceCapacity", TM_VM_ELSEWHERE, ""},
    {"InsufficientHostCapacity", TM_VM_ELSEWHERE, ""},
    {"InsufficientReservedInstanceCapacity", TM_VM_ELSEWHERE, ""},
    {"InsufficientFreeAddressesInSubnet", TM_VM_ELSEWHERE, "give the pool another subnet or zone"},
    {"UnfulfillableCapacity", TM_VM_ELSEWHERE, ""},
    {"SpotMaxPriceTooLow", TM_VM_ELSEWHERE, ""},
    {"MaxFleetCountExceeded", TM_VM_ELSEWHERE, "ask for more fleets under Service Quotas, Amazon EC2 Fleet"},
    {"Unsupported", TM_VM_ELSEWHERE, "the zone may not have this instance type: name another"},
    {"MaxSpotInstanceCountExceeded", TM_VM_QUOTA, "ask for more under Service Quotas, Amazon EC2, Spot"},
    {"VcpuLimitExceeded", TM_VM_QUOTA, "ask for more vCPUs under Service Quotas, Amazon EC2"},
    {"InstanceLimitExceeded", TM_VM_QUOTA, "ask for more under Service Quotas, Amazon EC2"},
    {"VolumeLimitExceeded", TM_VM_QUOTA, "ask for more under Service Quotas, Amazon EBS"},
    {"InvalidFleetConfiguration", TM_VM_ELSEWHERE, "the zone may not have this instance type: name another"},
    {"InvalidLaunchTemplateName.", TM_VM_AGAIN, ""}, /* it was just made, and is not known everywhere */
    {"InvalidLaunchTemplateId.", TM_VM_AGAIN, ""},
    {"RequestLimitExceeded", TM_VM_AGAIN, ""},
    {"EC2ThrottledException", TM_VM_AGAIN, ""},
    {"Throttling", TM_VM_AGAIN, ""},
    {"ThrottlingException", TM_VM_AGAIN, ""},
    {"Unavailable", TM_VM_AGAIN, ""},
    {"ServiceUnavailable", TM_VM_AGAIN, ""},
    {"InternalError", TM_VM_AGAIN, ""},
    {"InternalFailure", TM_VM_AGAIN, ""},
    {"InsufficientCapacityOnHost", TM_VM_ELSEWHERE, ""},
    {"RequestExpired", TM_VM_AGAIN, "log in again, or correct the clock of this machine"},
    {"ExpiredToken", TM_VM_AGAIN, "log in again (aws sso login)"},
    {"ExpiredTokenException", TM_VM_AGAIN, "log in again (aws sso login)"},
    {"InvalidInstanceID.NotFound", TM_VM_AGAIN, ""},
    {"IdempotentParameterMismatch", TM_VM_LOOK, ""},
    {"IdempotentInstanceTerminated", TM_VM_LOOK, ""},
    {"PendingVerification", TM_VM_QUOTA, "AWS verifies the account first; that takes up to four hours"},
    {"UnauthorizedOperation", TM_VM_STOP, "allow what `tidemill cloud check aws --emit policy` prints"},
    {"AuthFailure.ServiceLinkedRoleCreationNotPermitted", TM_VM_STOP,
     "run `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`, or allow "
     "iam:CreateServiceLinkedRole"},
    {"AuthFailure", TM_VM_STOP, "`tidemill cloud check aws` says what is wrong with the credentials"},
    {"SignatureDoesNotMatch", TM_VM_STOP, "`tidemill cloud check aws` says what is wrong with the credentials"},
    {"OptInRequired", TM_VM_STOP, "the image or the region wants to be subscribed to first"},
    {"InvalidAMIID.", TM_VM_STOP, "name an image of this region: fleet: {aws: {image: ami-...}}"},
    {"InvalidSubnetID.", TM_VM_STOP, "name a subnet of this region: fleet: {aws: {subnet: subnet-...}}"},
    {"InvalidGroup.", TM_VM_STOP, "name a group of this VPC: fleet: {aws: {security_group: sg-...}}"},
    {"InvalidParameterCombination", TM_VM_STOP,
     "do image, instance type, subnet and the rest of fleet: {aws: {...}} go together? `tidemill cloud check aws` "
     "tries "
     "them"},
    {"InvalidParameter", TM_VM_STOP, ""},
};

static const char *match(const char *code, enum tm_vm__remedy *remedy)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        size_t length = strlen(table[i].code);
        bool begins = table[i].code[length - 1] == '.' && strncmp(code, table[i].code, length) == 0;
        if (!begins && strcmp(code, table[i].code) != 0) continue;
        *remedy = table[i].remedy;
        return table[i].advice;
    }
    *remedy = code[0] == '\0' ? TM_VM_AGAIN : TM_VM_STOP;
    return "";
}

enum tm_vm__remedy tm_aws__remedy_of(const char *code)
{
    enum tm_vm__remedy remedy = TM_VM_STOP;
    (void)match(code, &remedy);
    return remedy;
}

const char *tm_aws__advice(const char *code)
{
    enum tm_vm__remedy remedy = TM_VM_STOP;
    return match(code, &remedy);
}

/* ---- quotas ---- */

/* vCPUs are counted by these, in each region, for each market. */
static const char *const vcpu_quotas[] = {"Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
                                          "Running On-Demand G and VT instances",
                                          "Running On-Demand P instances",
                                          "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
                                          "All G and VT Spot Instance Requests",
                                          "All P4, P3 and P2 Spot Instance Requests"};

/* Types whose quota is not known above have one with those that begin with the same letters: F, X, Inf, Trn, P5. */
static bool is_same_family(const char *a, const char *b, bool spot)
{
    size_t length = strspn(a, "abcdefghijklmnopqrstuvwxyz");
    for (size_t i = 0; i < sizeof vcpu_quotas / sizeof *vcpu_quotas; i++) {
        bool of_a = tm_aws__is_quota_of(vcpu_quotas[i], a, spot);
        bool of_b = tm_aws__is_quota_of(vcpu_quotas[i], b, spot);
        if (of_a || of_b) return of_a && of_b;
    }
    return length > 0 && length == strspn(b, "abcdefghijklmnopqrstuvwxyz") && strncmp(a, b, length) == 0;
}

/* All pools of a run are in one region. */
static bool shares_quota(const char *code, const char *words, const struct tm_cloud_pool *refused,
                         const struct tm_cloud_pool *other)
{
    (void)words;
    if (strcmp(code, "VolumeLimitExceeded") == 0 || strcmp(code, "PendingVerification") == 0) return true;
    return refused->kind == other->kind && is_same_family(refused->type, other->type, other->kind == TM_INSTANCE_SPOT);
}

const struct tm_vm__rules tm_aws__rules = {.cloud = "AWS",
                                           .remedy_of = tm_aws__remedy_of,
                                           .advice = tm_aws__advice,
                                           .shares_quota = shares_quota,
                                           .minimum_s = 60,
                                           .free_s = 3600,
                                           .believe_ms = 60000, /* its answers lag behind */
                                           .free_leaving = true,
                                           .templates = true};

static enum tm_vm__phase phase_of(const char *name)
{
    if (strcmp(name, "shutting-down") == 0 || strcmp(name, "terminated") == 0) return TM_VM_ENDED;
    return strcmp(name, "stopping") == 0 || strcmp(name, "stopped") == 0 ? TM_VM_STOPPED : TM_VM_RUNS;
}

static void copy(char *out, size_t room, const char *text)
{
    (void)snprintf(out, room, "%.*s", (int)room - 1, text);
}

/* "User initiated (2026-11-17 14:21:03 GMT)" */
static int64_t end_of(const char *reason)
{
    char text[20] = "";
    int64_t at_ms = 0;
    const char *open = strchr(reason, '(');
    if (open == NULL || strlen(open) < 20) return 0;
    copy(text, sizeof text, open + 1);
    text[10] = 'T';
    return tm_calendar_parse(text, strlen(text), &at_ms) ? at_ms : 0;
}

bool tm_aws__read_vm(const struct tm_xml *item, struct tm_vm__row *out)
{
    *out = (struct tm_vm__row){.pool = -1};
    copy(out->id, sizeof out->id, tm_xml_text(item, "instanceId"));
    copy(out->token, sizeof out->token, tm_xml_text(item, "clientToken"));
    copy(out->reason, sizeof out->reason, tm_xml_text(item, "stateReason/code"));
    out->phase = phase_of(tm_xml_text(item, "instanceState/name"));
    out->interrupted = strcmp(out->reason, "Server.SpotInstanceTermination") == 0 ||
                       strcmp(out->reason, "Server.SpotInstanceShutdown") == 0;
    out->itself = strcmp(out->reason, "Client.InstanceInitiatedShutdown") == 0;
    copy(out->zone, sizeof out->zone, tm_xml_text(item, "placement/availabilityZone"));
    copy(out->type, sizeof out->type, tm_xml_text(item, "instanceType"));
    copy(out->address, sizeof out->address, tm_xml_text(item, "privateIpAddress"));
    const char *launched = tm_xml_text(item, "launchTime");
    if (!tm_calendar_parse(launched, strlen(launched), &out->launched_ms)) out->launched_ms = 0;
    if (out->phase == TM_VM_ENDED) out->ended_ms = end_of(tm_xml_text(item, "reason"));
    for (const struct tm_xml *tag = tm_xml_child(item, "tagSet/item"); tag != NULL; tag = tm_xml_again(tag)) {
        const char *key = tm_xml_text(tag, "key");
        const char *value = tm_xml_text(tag, "value");
        int64_t number = 0;
        if (strcmp(key, TM_VM_TAG_TOKEN) == 0) copy(out->token, sizeof out->token, value);
        if (strcmp(key, TM_VM_TAG_POOL) == 0 && tm_number_i64(value, strlen(value), &number) && number >= 0 &&
            number < 1 << 16)
            out->pool = (int)number;
    }
    return out->id[0] != '\0';
}

bool tm_aws__read_image(const struct tm_xml *root, char image[64], char root_device[32])
{
    const char *newest = "";
    bool found = false;
    const struct tm_xml *one = tm_xml_child(root, "imagesSet/item");
    for (; one != NULL; one = tm_xml_again(one)) {
        const char *device = tm_xml_text(one, "rootDeviceName");
        if (tm_xml_text(one, "imageId")[0] == '\0' || strcmp(tm_xml_text(one, "creationDate"), newest) < 0) continue;
        newest = tm_xml_text(one, "creationDate");
        copy(image, 64, tm_xml_text(one, "imageId"));
        copy(root_device, 32, device[0] != '\0' ? device : "/dev/sda1"); /* as Ubuntu's is called */
        found = true;
    }
    return found;
}

bool tm_aws__read_price(const struct tm_xml *item, struct tm_vm__price *out)
{
    const char *text = tm_xml_text(item, "spotPrice");
    copy(out->type, sizeof out->type, tm_xml_text(item, "instanceType"));
    copy(out->zone, sizeof out->zone, tm_xml_text(item, "availabilityZone"));
    const char *since = tm_xml_text(item, "timestamp");
    if (!tm_calendar_parse(since, strlen(since), &out->since_ms)) out->since_ms = 0;
    return tm_number_double(text, strlen(text), &out->usd_h) && out->usd_h >= 0 && out->type[0] != '\0';
}
