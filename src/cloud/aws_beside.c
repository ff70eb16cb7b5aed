#include "cloud/aws_beside.h"

#include "base/debug.h"
#include "cloud/rented.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ARENA_MAX = 64 << 20, LAG_TRIES = 10, LAG_MS = 1000, PAGES_MAX = 1000 };

void tm_aws__put_tags(struct tm_ec2_call *call, const char *stem, int number, const char *resource,
                      const struct tm_vm__tag *tags, size_t count)
{
    char name[96];
    (void)snprintf(name, sizeof name, "%sTagSpecification.%d.ResourceType", stem, number);
    tm_ec2__put(call, name, resource);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "%sTagSpecification.%d.Tag.%zu.Key", stem, number, i + 1);
        tm_ec2__put(call, name, tags[i].name);
        (void)snprintf(name, sizeof name, "%sTagSpecification.%d.Tag.%zu.Value", stem, number, i + 1);
        tm_ec2__put(call, name, tags[i].value);
    }
}

/* One call of these parameters; what it says at `path` goes to `out`, where that is not NULL. What was just made may
 * not be known everywhere at once: then again, a few times. */
static int ask(const struct tm_aws__place *place, struct tm_ec2_call *call, const char *path, char *out, size_t room,
               char code[128], struct tm_error *e)
{
    int rc = 0;
    for (int i = 0; i < LAG_TRIES; i++) {
        struct tm_arena arena;
        struct tm_xml *root = NULL;
        tm_arena_init(&arena, ARENA_MAX);
        rc = tm_ec2__ask(call, place->web, &arena, &root, code, e);
        if (rc == 0 && out != NULL) (void)snprintf(out, room, "%.*s", (int)room - 1, tm_xml_text(root, path));
        tm_arena_deinit(&arena);
        if (rc == 0 || strcmp(code, "InvalidGroup.NotFound") != 0) break;
        place->env->sleep_ms(place->env, LAG_MS);
    }
    tm_ec2__deinit(call);
    return rc;
}

/* ---- the group ---- */

static int find_vpc(const struct tm_aws__place *place, const char *subnet, char out[TM_VM_ID_MAX], struct tm_error *e)
{
    struct tm_ec2_call call;
    char code[128];
    tm_ec2__init(&call, place->aws, place->region, subnet != NULL ? "DescribeSubnets" : "DescribeVpcs");
    if (subnet != NULL) {
        tm_ec2__put(&call, "SubnetId.1", subnet);
    } else {
        tm_ec2__put(&call, "Filter.1.Name", "is-default");
        tm_ec2__put(&call, "Filter.1.Value.1", "true");
    }
    const char *path = subnet != NULL ? "subnetSet/item/vpcId" : "vpcSet/item/vpcId";
    int rc = ask(place, &call, path, out, TM_VM_ID_MAX, code, e);
    if (rc == 0 && out[0] == '\0')
        rc = tm_error_set(e, TM_EINPUT, "region %s has no %s%s; %s", tm_aws_region(place->aws),
                          subnet != NULL ? "subnet " : "default VPC", subnet != NULL ? subnet : "",
                          "name a subnet: fleet: {aws: {subnet: subnet-...}}, or run `aws ec2 create-default-vpc`");
    return rc;
}

static int find_group(const struct tm_aws__place *place, const char *filter, const char *value, char *out,
                      struct tm_error *e)
{
    struct tm_ec2_call call;
    char code[128];
    tm_ec2__init(&call, place->aws, place->region, "DescribeSecurityGroups");
    tm_ec2__put(&call, "Filter.1.Name", filter);
    tm_ec2__put(&call, "Filter.1.Value.1", value);
    return ask(place, &call, "securityGroupInfo/item/groupId", out, TM_VM_ID_MAX, code, e);
}

static int create_group(const struct tm_aws__place *place, const char *name, const char *vpc,
                        const struct tm_vm__tag *tags, size_t tag_count, char *out, struct tm_error *e)
{
    struct tm_ec2_call call;
    char code[128];
    tm_ec2__init(&call, place->aws, place->region, "CreateSecurityGroup");
    tm_ec2__put(&call, "GroupName", name);
    tm_ec2__put(&call, "GroupDescription", "Tidemill: the VMs of one job reach each other");
    tm_ec2__put(&call, "VpcId", vpc);
    tm_aws__put_tags(&call, "", 1, "security-group", tags, tag_count);
    int rc = ask(place, &call, "groupId", out, TM_VM_ID_MAX, code, e);
    if (rc != 0 && strcmp(code, "InvalidGroup.Duplicate") == 0) /* a call whose answer was lost */
        rc = find_group(place, "group-name", name, out, e);
    return rc;
}

static int open_group(const struct tm_aws__place *place, const char *group, struct tm_error *e)
{
    struct tm_ec2_call call;
    char code[128];
    tm_ec2__init(&call, place->aws, place->region, "AuthorizeSecurityGroupIngress");
    tm_ec2__put(&call, "GroupId", group);
    tm_ec2__put(&call, "IpPermissions.1.IpProtocol", "-1");
    tm_ec2__put(&call, "IpPermissions.1.Groups.1.GroupId", group);
    int rc = ask(place, &call, NULL, NULL, 0, code, e);
    return strcmp(code, "InvalidPermission.Duplicate") == 0 ? 0 : rc;
}

int tm_aws__make_group(const struct tm_aws__place *place, uint64_t run, const char *subnet,
                       const struct tm_vm__tag *tags, size_t tag_count, char out[TM_VM_ID_MAX], struct tm_error *e)
{
    char name[64];
    char word[24];
    char vpc[TM_VM_ID_MAX];
    char group[TM_VM_ID_MAX] = "";
    (void)snprintf(word, sizeof word, "%016" PRIx64, run);
    (void)snprintf(name, sizeof name, "tidemill-%s", word);
    int rc = find_group(place, "tag:" TM_VM_TAG_RUN, word, group, e);
    if (rc == 0 && group[0] == '\0') {
        rc = find_vpc(place, subnet, vpc, e);
        if (rc == 0) rc = create_group(place, name, vpc, tags, tag_count, group, e);
        if (rc == 0 && group[0] == '\0') rc = tm_error_set(e, TM_EPEER, "AWS names no group");
    }
    if (rc == 0) rc = open_group(place, group, e);
    if (rc != 0)
        return tm_error_wrap(e, rc,
                             "making the security group of the job (or name one: fleet: {aws: {security_group: "
                             "sg-...}})");
    (void)snprintf(out, TM_VM_ID_MAX, "%s", group);
    return 0;
}

int tm_aws__open_port(const struct tm_aws__place *place, const char *group, int port, const char *from,
                      struct tm_error *e)
{
    struct tm_ec2_call call;
    char code[128];
    char number[16];
    (void)snprintf(number, sizeof number, "%d", port);
    tm_ec2__init(&call, place->aws, place->region, "AuthorizeSecurityGroupIngress");
    tm_ec2__put(&call, "GroupId", group);
    tm_ec2__put(&call, "IpPermissions.1.IpProtocol", "tcp");
    tm_ec2__put(&call, "IpPermissions.1.FromPort", number);
    tm_ec2__put(&call, "IpPermissions.1.ToPort", number);
    tm_ec2__put(&call, "IpPermissions.1.IpRanges.1.CidrIp", from);
    int rc = ask(place, &call, NULL, NULL, 0, code, e);
    if (strcmp(code, "InvalidPermission.Duplicate") == 0) return 0;
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "fleet.aws.reached_from: opening port %d for %s", port, from);
}

/* ---- removing ---- */

static int remove_one(const struct tm_aws__place *place, bool is_group, const char *id, struct tm_aws__beside *out)
{
    struct tm_ec2_call call;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    struct tm_error e = {.text = ""};
    char code[128];
    tm_ec2__init(&call, place->aws, place->region, is_group ? "DeleteSecurityGroup" : "DeleteLaunchTemplate");
    tm_ec2__put(&call, is_group ? "GroupId" : "LaunchTemplateId", id);
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_ec2__ask(&call, place->web, &arena, &root, code, &e);
    tm_arena_deinit(&arena);
    tm_ec2__deinit(&call);
    bool gone = rc == 0 || strstr(code, "NotFound") != NULL;
    if (!gone) tm_debug(TM_DEBUG_CLOUD, "aws: %s stays: %s", id, e.text);
    out->removed += rc == 0;
    out->left += !gone;
    return rc == -(int)TM_ENOMEM ? rc : 0;
}

static int remove_kind(const struct tm_aws__place *place, bool is_group, const char *tag, const char *value,
                       struct tm_aws__beside *out, struct tm_error *e)
{
    char filter[64];
    char next[1024] = "";
    char code[128];
    int rc = 0;
    (void)snprintf(filter, sizeof filter, "tag:%s", tag);
    for (int page = 0; rc == 0 && page < PAGES_MAX && (page == 0 || next[0] != '\0'); page++) {
        struct tm_ec2_call call;
        struct tm_arena arena;
        struct tm_xml *root = NULL;
        tm_ec2__init(&call, place->aws, place->region, is_group ? "DescribeSecurityGroups" : "DescribeLaunchTemplates");
        tm_ec2__put(&call, "Filter.1.Name", value != NULL ? filter : "tag-key");
        tm_ec2__put(&call, "Filter.1.Value.1", value != NULL ? value : tag);
        tm_ec2__put(&call, "MaxResults", "200");
        if (next[0] != '\0') tm_ec2__put(&call, "NextToken", next);
        tm_arena_init(&arena, ARENA_MAX);
        rc = tm_ec2__ask(&call, place->web, &arena, &root, code, e);
        tm_ec2__deinit(&call);
        const struct tm_xml *one =
            rc == 0 ? tm_xml_child(root, is_group ? "securityGroupInfo/item" : "launchTemplates/item") : NULL;
        (void)snprintf(next, sizeof next, "%.1000s", rc == 0 ? tm_xml_text(root, "nextToken") : "");
        for (; rc == 0 && one != NULL; one = tm_xml_again(one))
            rc = remove_one(place, is_group, tm_xml_text(one, is_group ? "groupId" : "launchTemplateId"), out);
        tm_arena_deinit(&arena);
    }
    return rc;
}

int tm_aws__remove_beside(const struct tm_aws__place *place, const char *tag, const char *value,
                          struct tm_aws__beside *out, struct tm_error *e)
{
    struct tm_aws__beside sum = {.removed = 0};
    int rc = remove_kind(place, false, tag, value, &sum, e);
    if (rc == 0) rc = remove_kind(place, true, tag, value, &sum, e);
    if (rc == 0) *out = sum;
    return rc;
}
