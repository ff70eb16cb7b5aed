#include "cloud/aws_text.h"

#include "base/calendar.h"
#include "base/number.h"

#include <stdio.h>
#include <string.h>

/* A code, or the beginning of some where it ends in a dot. */
static const struct {
    const char *code;
    enum tm_aws__remedy remedy;
    const char *advice;
} table[] = {
    {"InsufficientInstanceCapacity", TM_AWS_ELSEWHERE, ""},
    {"InsufficientHostCapacity", TM_AWS_ELSEWHERE, ""},
    {"InsufficientReservedInstanceCapacity", TM_AWS_ELSEWHERE, ""},
    {"InsufficientFreeAddressesInSubnet", TM_AWS_ELSEWHERE, "give the pool another subnet or zone"},
    {"UnfulfillableCapacity", TM_AWS_ELSEWHERE, ""},
    {"SpotMaxPriceTooLow", TM_AWS_ELSEWHERE, ""},
    {"MaxFleetCountExceeded", TM_AWS_ELSEWHERE, ""},
    {"Unsupported", TM_AWS_ELSEWHERE, "the zone may not have this instance type: name another"},
    {"MaxSpotInstanceCountExceeded", TM_AWS_QUOTA, "ask for more under Service Quotas, Amazon EC2, Spot"},
    {"VcpuLimitExceeded", TM_AWS_QUOTA, "ask for more vCPUs under Service Quotas, Amazon EC2"},
    {"InstanceLimitExceeded", TM_AWS_QUOTA, "ask for more under Service Quotas, Amazon EC2"},
    {"VolumeLimitExceeded", TM_AWS_QUOTA, "ask for more under Service Quotas, Amazon EBS"},
    {"RequestLimitExceeded", TM_AWS_AGAIN, ""},
    {"EC2ThrottledException", TM_AWS_AGAIN, ""},
    {"Throttling", TM_AWS_AGAIN, ""},
    {"ThrottlingException", TM_AWS_AGAIN, ""},
    {"Unavailable", TM_AWS_AGAIN, ""},
    {"ServiceUnavailable", TM_AWS_AGAIN, ""},
    {"InternalError", TM_AWS_AGAIN, ""},
    {"InternalFailure", TM_AWS_AGAIN, ""},
    {"InsufficientCapacityOnHost", TM_AWS_ELSEWHERE, ""},
    {"RequestExpired", TM_AWS_AGAIN, "log in again, or correct the clock of this machine"},
    {"ExpiredToken", TM_AWS_AGAIN, "log in again (aws sso login)"},
    {"ExpiredTokenException", TM_AWS_AGAIN, "log in again (aws sso login)"},
    {"InvalidInstanceID.NotFound", TM_AWS_AGAIN, ""},
    {"IdempotentParameterMismatch", TM_AWS_LOOK, ""},
    {"IdempotentInstanceTerminated", TM_AWS_LOOK, ""},
    {"PendingVerification", TM_AWS_QUOTA, "AWS verifies the account first; that takes up to four hours"},
    {"UnauthorizedOperation", TM_AWS_STOP, "allow what `tidemill cloud check aws --emit policy` prints"},
    {"AuthFailure", TM_AWS_STOP, "`tidemill cloud check aws` says what is wrong with the credentials"},
    {"SignatureDoesNotMatch", TM_AWS_STOP, "`tidemill cloud check aws` says what is wrong with the credentials"},
    {"OptInRequired", TM_AWS_STOP, "the image or the region wants to be subscribed to first"},
    {"InvalidAMIID.", TM_AWS_STOP, "name an image of this region: fleet: {aws: {image: ami-...}}"},
    {"InvalidSubnetID.", TM_AWS_STOP, "name a subnet of this region: fleet: {aws: {subnet: subnet-...}}"},
    {"InvalidGroup.", TM_AWS_STOP, "name a group of this VPC: fleet: {aws: {security_group: sg-...}}"},
    {"InvalidParameter", TM_AWS_STOP, ""},
};

static const char *match(const char *code, enum tm_aws__remedy *remedy)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        size_t length = strlen(table[i].code);
        bool begins = table[i].code[length - 1] == '.' && strncmp(code, table[i].code, length) == 0;
        if (!begins && strcmp(code, table[i].code) != 0) continue;
        *remedy = table[i].remedy;
        return table[i].advice;
    }
    *remedy = code[0] == '\0' ? TM_AWS_AGAIN : TM_AWS_STOP;
    return "";
}

enum tm_aws__remedy tm_aws__remedy_of(const char *code)
{
    enum tm_aws__remedy remedy = TM_AWS_STOP;
    (void)match(code, &remedy);
    return remedy;
}

const char *tm_aws__advice(const char *code)
{
    enum tm_aws__remedy remedy = TM_AWS_STOP;
    return match(code, &remedy);
}

static void copy(char *out, size_t room, const char *text)
{
    (void)snprintf(out, room, "%.*s", (int)room - 1, text);
}

bool tm_aws__read_vm(const struct tm_xml *item, struct tm_aws__row *out)
{
    *out = (struct tm_aws__row){.pool = -1};
    copy(out->id, sizeof out->id, tm_xml_text(item, "instanceId"));
    copy(out->token, sizeof out->token, tm_xml_text(item, "clientToken"));
    copy(out->state, sizeof out->state, tm_xml_text(item, "instanceState/name"));
    copy(out->reason, sizeof out->reason, tm_xml_text(item, "stateReason/code"));
    copy(out->zone, sizeof out->zone, tm_xml_text(item, "placement/availabilityZone"));
    copy(out->type, sizeof out->type, tm_xml_text(item, "instanceType"));
    copy(out->address, sizeof out->address, tm_xml_text(item, "privateIpAddress"));
    const char *launched = tm_xml_text(item, "launchTime");
    if (!tm_calendar_parse(launched, strlen(launched), &out->launched_ms)) out->launched_ms = 0;
    for (const struct tm_xml *tag = tm_xml_child(item, "tagSet/item"); tag != NULL; tag = tm_xml_again(tag)) {
        const char *key = tm_xml_text(tag, "key");
        const char *value = tm_xml_text(tag, "value");
        int64_t number = 0;
        if (strcmp(key, TM_AWS_TAG_TOKEN) == 0) copy(out->token, sizeof out->token, value);
        if (strcmp(key, TM_AWS_TAG_POOL) == 0 && tm_number_i64(value, strlen(value), &number) && number >= 0 &&
            number < 1 << 16)
            out->pool = (int)number;
    }
    return out->id[0] != '\0';
}

bool tm_aws__is_gone(const struct tm_aws__row *row)
{
    return strcmp(row->state, "shutting-down") == 0 || strcmp(row->state, "terminated") == 0;
}

bool tm_aws__is_interrupted(const struct tm_aws__row *row)
{
    return strcmp(row->reason, "Server.SpotInstanceTermination") == 0 ||
           strcmp(row->reason, "Server.SpotInstanceShutdown") == 0;
}

bool tm_aws__read_price(const struct tm_xml *item, struct tm_aws__price *out)
{
    const char *text = tm_xml_text(item, "spotPrice");
    copy(out->type, sizeof out->type, tm_xml_text(item, "instanceType"));
    copy(out->zone, sizeof out->zone, tm_xml_text(item, "availabilityZone"));
    return tm_number_double(text, strlen(text), &out->usd_h) && out->usd_h >= 0 && out->type[0] != '\0';
}
