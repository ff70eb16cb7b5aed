#include "cloud/aws_check.h"

#include "base/doc.h"
#include "cloud/ec2.h"
#include "cloud/rented.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { ARENA_MAX = 64 << 20, QUOTAS_MAX = 64, PAGES_MAX = 20 };

static const char policy[] =
    "{\n"
    "  \"Version\": \"2012-10-17\",\n"
    "  \"Statement\": [\n"
    "    {\"Sid\": \"Look\", \"Effect\": \"Allow\", \"Resource\": \"*\", \"Action\": [\"ec2:DescribeInstances\",\n"
    "      \"ec2:DescribeRegions\", \"ec2:DescribeImages\", \"ec2:DescribeVpcs\", \"ec2:DescribeSubnets\",\n"
    "      \"ec2:DescribeSpotPriceHistory\", \"ec2:GetSpotPlacementScores\", \"ec2:DescribeInstanceTypeOfferings\",\n"
    "      \"ec2:DescribeAvailabilityZones\", \"ec2:DescribeSecurityGroups\", \"ec2:DescribeLaunchTemplates\",\n"
    "      \"ec2:DescribeVolumes\", "
    "\"servicequotas:ListServiceQuotas\"]},\n"
    "    {\"Sid\": \"Rent\", \"Effect\": \"Allow\", \"Resource\": \"*\", \"Action\": [\"ec2:RunInstances\", "
    "\"ec2:CreateFleet\",\n"
    "      \"ec2:CreateLaunchTemplate\", \"ec2:CreateSecurityGroup\", \"ec2:CreateTags\"]},\n"
    "    {\"Sid\": \"FirstSpotOfTheAccount\", \"Effect\": \"Allow\", \"Resource\": \"*\", \"Action\": "
    "\"iam:CreateServiceLinkedRole\",\n"
    "      \"Condition\": {\"StringEquals\": {\"iam:AWSServiceName\": [\"spot.amazonaws.com\", "
    "\"ec2fleet.amazonaws.com\"]}}},\n"
    "    {\"Sid\": \"InstanceProfile\", \"Effect\": \"Allow\", \"Resource\": \"*\", \"Action\": \"iam:PassRole\",\n"
    "      \"Condition\": {\"StringEquals\": {\"iam:PassedToService\": [\"ec2.amazonaws.com\", "
    "\"ec2.amazonaws.com.cn\"]}}},\n"
    "    {\"Sid\": \"EndOnlyOurs\", \"Effect\": \"Allow\", \"Resource\": \"*\", \"Action\": "
    "[\"ec2:TerminateInstances\", \"ec2:DeleteVolume\",\n"
    "      \"ec2:DeleteLaunchTemplate\", \"ec2:DeleteSecurityGroup\", \"ec2:AuthorizeSecurityGroupIngress\"],\n"
    "      \"Condition\": {\"StringLike\": {\"aws:ResourceTag/" TM_RENTED_TAG "\": \"*\"}}},\n"
    "    {\"Sid\": \"Copies\", \"Effect\": \"Allow\", \"Action\": [\"s3:PutObject\", \"s3:GetObject\", "
    "\"s3:DeleteObject\",\n"
    "      \"s3:AbortMultipartUpload\"], \"Resource\": \"arn:aws:s3:::YOUR-BUCKET/*\"},\n"
    "    {\"Sid\": \"ListCopies\", \"Effect\": \"Allow\", \"Action\": [\"s3:ListBucket\", "
    "\"s3:ListBucketMultipartUploads\"],\n"
    "      \"Resource\": \"arn:aws:s3:::YOUR-BUCKET\"}\n"
    "  ]\n"
    "}\n";

const char *tm_aws_check_policy(void)
{
    return policy;
}

struct checking {
    struct tm_aws *aws;
    struct tm_web *web;
    struct tm_arena arena;
    struct tm_cloud_checks *out;
    char image[64];
    bool memory; /* there was too little */
};

static struct tm_cloud_check *add(struct checking *c, const char *name, enum tm_check_result result)
{
    return tm_cloud_checks_add(c->out, name, result);
}

#define LOG_IN "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure` or `aws sso login`"

static bool is_denial(const char *code)
{
    return strcmp(code, "UnauthorizedOperation") == 0 || strcmp(code, "AccessDenied") == 0 ||
           strcmp(code, "AccessDeniedException") == 0;
}

static void say_refused(struct checking *c, const char *name, int rc, const char *code, const struct tm_error *e)
{
    bool nobody = code[0] == '\0' && (rc == -(int)TM_ENOTFOUND || strstr(e->text, "AWS credentials") != NULL);
    struct tm_cloud_check *line = add(c, name, TM_CHECK_BAD);
    c->memory = c->memory || rc == -(int)TM_ENOMEM;
    (void)snprintf(line->what, sizeof line->what, "%.390s", e->text);
    (void)snprintf(line->fix, sizeof line->fix, "%s",
                   is_denial(code)   ? "allow what `tidemill cloud check aws --emit policy` prints"
                   : nobody          ? LOG_IN
                   : code[0] != '\0' ? "correct the credentials, or the clock of this machine"
                                     : "check the network, AWS_REGION and AWS_ENDPOINT_URL");
}

/* A call without parameters but these pairs. */
static int ask(struct checking *c, const char *action, const char *const *pairs, struct tm_xml **out, char code[128],
               struct tm_error *e)
{
    struct tm_ec2_call call;
    tm_ec2__init(&call, c->aws, NULL, action);
    for (; pairs != NULL && pairs[0] != NULL; pairs += 2)
        tm_ec2__put(&call, pairs[0], pairs[1]);
    int rc = tm_ec2__ask(&call, c->web, &c->arena, out, code, e);
    tm_ec2__deinit(&call);
    return rc;
}

/* ---- lines ---- */

/* Whom AWS takes us for; false: nothing else can be asked. */
static bool check_credentials(struct checking *c)
{
    static const char body[] = "Action=GetCallerIdentity&Version=2011-06-15";
    struct tm_error e = {.text = ""};
    struct tm_web_answer answer;
    struct tm_aws_refusal why = {.code = ""};
    struct tm_xml *root = NULL;
    struct tm_aws_request r = {.aws = c->aws,
                               .service = "sts",
                               .method = "POST",
                               .path = "/",
                               .body = body,
                               .length = sizeof body - 1,
                               .deadline_ms = 30000,
                               .tries_max = 4};
    r.headers[r.header_count++] = (struct tm_web_pair){"content-type", "application/x-www-form-urlencoded"};
    int rc = tm_aws_ask(c->web, &r, &answer, &e);
    if (rc == 0 && answer.status >= 300) {
        (void)tm_aws_refusal(&answer, &why, NULL);
        rc =
            tm_error_set(&e, TM_EINPUT, "AWS refuses the credentials: %d %s: %s", answer.status, why.code, why.message);
        tm_web_answer_deinit(&answer);
    } else if (rc == 0) {
        rc = tm_xml_read(tm_text_string(&answer.body), answer.body.length, &c->arena, &root, &e);
        tm_web_answer_deinit(&answer);
    }
    if (rc != 0) {
        say_refused(c, "credentials", rc, why.code, &e);
        return false;
    }
    struct tm_cloud_check *line = add(c, "credentials", TM_CHECK_GOOD);
    (void)snprintf(line->what, sizeof line->what, "%.250s, region %s", tm_xml_text(root, "GetCallerIdentityResult/Arn"),
                   tm_aws_region(c->aws));
    return true;
}

static void check_list(struct checking *c)
{
    struct tm_error e = {.text = ""};
    struct tm_xml *root = NULL;
    char code[128];
    int rc = ask(c, "DescribeInstances", (const char *const[]){"MaxResults", "5", NULL}, &root, code, &e);
    if (rc == 0) rc = ask(c, "DescribeVolumes", (const char *const[]){"MaxResults", "5", NULL}, &root, code, &e);
    if (rc == 0) rc = ask(c, "DescribeRegions", NULL, &root, code, &e);
    if (rc != 0)
        say_refused(c, "see instances", rc, code, &e);
    else
        (void)snprintf(add(c, "see instances", TM_CHECK_GOOD)->what, 64, "in every region of the account");
}

static void check_image(struct checking *c, const char *given)
{
    struct tm_error e = {.text = ""};
    struct tm_xml *root = NULL;
    char code[128];
    const char *newest = "";
    const char *const by_id[] = {"ImageId.1", given, NULL};
    const char *const by_name[] = {"Owner.1",         "amazon", "Filter.1.Name", "name", "Filter.1.Value.1",
                                   TM_AWS_IMAGE_NAME, NULL};
    int rc = ask(c, "DescribeImages", given != NULL ? by_id : by_name, &root, code, &e);
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "imagesSet/item") : NULL;
    for (; one != NULL; one = tm_xml_again(one)) {
        if (strcmp(tm_xml_text(one, "creationDate"), newest) < 0) continue;
        newest = tm_xml_text(one, "creationDate");
        (void)snprintf(c->image, sizeof c->image, "%s", tm_xml_text(one, "imageId"));
        (void)snprintf(code, sizeof code, "%.127s", tm_xml_text(one, "name"));
    }
    if (c->image[0] != '\0') {
        (void)snprintf(add(c, "image", TM_CHECK_GOOD)->what, 300, "%s, %.127s", c->image, code);
        return;
    }
    struct tm_cloud_check *line = add(c, "image", TM_CHECK_BAD);
    (void)snprintf(line->what, sizeof line->what, "%.200s: %.180s", given != NULL ? given : TM_AWS_IMAGE_NAME,
                   rc != 0 ? e.text : "there is none here");
    (void)snprintf(line->fix, sizeof line->fix, "name one that has NVIDIA's driver: --image ami-...");
}

/* Dry runs: AWS says whether it would, and does not. What they name need not be there. */
#define TRIED_NAME "tidemill-check"
#define TRIED_TAG(of)                                                                                                  \
    "TagSpecification.1.ResourceType", of, "TagSpecification.1.Tag.1.Key", TM_RENTED_TAG,                              \
        "TagSpecification.1.Tag.1.Value", "check"

enum { TRIED_PAIRS = 24 };

static const struct {
    const char *action;
    const char *pairs[TRIED_PAIRS];
} tried[] = {
    {"RunInstances", {"InstanceType", "t3.micro", "MinCount", "1", "MaxCount", "1", TRIED_TAG("instance"), NULL}},
    {"CreateLaunchTemplate",
     {"LaunchTemplateName", TRIED_NAME, "LaunchTemplateData.InstanceType", "t3.micro", TRIED_TAG("launch-template"),
      NULL}},
    {"CreateFleet",
     {"Type", "instant", "TargetCapacitySpecification.TotalTargetCapacity", "1",
      "TargetCapacitySpecification.DefaultTargetCapacityType", "spot",
      "LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", TRIED_NAME,
      "LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version", "1",
      "LaunchTemplateConfigs.1.Overrides.1.InstanceType", "t3.micro", NULL}},
    {"CreateSecurityGroup",
     {"GroupName", TRIED_NAME, "GroupDescription", "a dry run", TRIED_TAG("security-group"), NULL}},
};

static int try_one(struct checking *c, size_t at, char code[128], struct tm_error *e)
{
    const char *pairs[TRIED_PAIRS + 6] = {"DryRun", "true"};
    size_t count = 2;
    struct tm_xml *root = NULL;
    for (size_t i = 0; tried[at].pairs[i] != NULL; i++)
        pairs[count++] = tried[at].pairs[i];
    if (at == 0) {
        pairs[count++] = "ImageId";
        pairs[count++] = c->image[0] != '\0' ? c->image : "ami-00000000";
    }
    return ask(c, tried[at].action, pairs, &root, code, e);
}

static void check_rent(struct checking *c)
{
    struct tm_error e = {.text = ""};
    struct tm_error other = {.text = ""};
    char lacking[200] = "";
    bool unknown = false;
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        char code[128];
        int rc = try_one(c, i, code, &e);
        if (strcmp(code, "DryRunOperation") == 0) continue;
        if (rc != 0 && code[0] == '\0') {
            say_refused(c, "rent and tag", rc, code, &e);
            return;
        }
        unknown = unknown || !is_denial(code);
        if (rc == 0) break; /* nothing more is tried where a dry run is none */
        size_t used = strlen(lacking);
        if (is_denial(code))
            (void)snprintf(lacking + used, sizeof lacking - used, "%sec2:%s", used > 0 ? ", " : "", tried[i].action);
        else
            other = e;
    }
    struct tm_cloud_check *line = add(c, "rent and tag",
                                      lacking[0] != '\0' ? TM_CHECK_BAD
                                      : unknown          ? TM_CHECK_UNKNOWN
                                                         : TM_CHECK_GOOD);
    if (lacking[0] != '\0') {
        (void)snprintf(line->what, sizeof line->what, "not allowed: %s (dry runs)", lacking);
        (void)snprintf(line->fix, sizeof line->fix, "allow what `tidemill cloud check aws --emit policy` prints");
    } else if (unknown) {
        (void)snprintf(line->what, sizeof line->what, "%.390s",
                       other.text[0] != '\0' ? other.text : "the service does not know dry runs");
    } else {
        (void)snprintf(line->what, sizeof line->what,
                       "allowed: instances, launch templates, fleets, groups (dry runs)");
    }
}

/* False: there is a volume of ours that no instance has, and it may not be deleted. */
static bool may_delete_volumes(struct checking *c, char code[128], struct tm_error *e)
{
    struct tm_xml *root = NULL;
    char id[32] = "";
    static const char *const ours[] = {"Filter.1.Name",    "tag-key",       "Filter.1.Value.1",
                                       TM_RENTED_TAG,      "Filter.2.Name", "status",
                                       "Filter.2.Value.1", "available",     NULL};
    if (ask(c, "DescribeVolumes", ours, &root, code, e) == 0)
        (void)snprintf(id, sizeof id, "%.31s", tm_xml_text(root, "volumeSet/item/volumeId"));
    if (id[0] == '\0') return true;
    (void)ask(c, "DeleteVolume", (const char *const[]){"DryRun", "true", "VolumeId", id, NULL}, &root, code, e);
    return !is_denial(code);
}

/* Whether an instance may be ended is known for sure only of one that is ours: it may be allowed by tag. */
static void check_end(struct checking *c)
{
    struct tm_error e = {.text = ""};
    struct tm_xml *root = NULL;
    char code[128];
    char id[32] = "i-00000000000000000";
    static const char *const ours[] = {"Filter.1.Name", "tag-key", "Filter.1.Value.1", TM_RENTED_TAG, NULL};
    int rc = ask(c, "DescribeInstances", ours, &root, code, &e);
    const char *found = rc == 0 ? tm_xml_text(root, "reservationSet/item/instancesSet/item/instanceId") : "";
    bool is_ours = found[0] != '\0' && strlen(found) < sizeof id;
    if (is_ours) (void)snprintf(id, sizeof id, "%s", found);
    rc = ask(c, "TerminateInstances", (const char *const[]){"DryRun", "true", "InstanceId.1", id, NULL}, &root, code,
             &e);
    bool ends = strcmp(code, "DryRunOperation") == 0;
    if (ends && !may_delete_volumes(c, code, &e)) {
        say_refused(c, "end", -(int)TM_EINPUT, code, &e);
    } else if (ends) {
        (void)snprintf(add(c, "end", TM_CHECK_GOOD)->what, 64, "allowed (a dry run)");
    } else if (is_ours || (rc != 0 && code[0] == '\0')) {
        say_refused(c, "end", rc, code, &e);
    } else {
        struct tm_cloud_check *line = add(c, "end", TM_CHECK_UNKNOWN);
        (void)snprintf(line->what, sizeof line->what, "not known before something is rented: %.300s", e.text);
        if (is_denial(code))
            (void)snprintf(line->fix, sizeof line->fix,
                           "allow ec2:TerminateInstances, as `tidemill cloud check aws --emit policy` prints it, if "
                           "that is not so yet");
    }
}

static void check_network(struct checking *c)
{
    struct tm_error e = {.text = ""};
    struct tm_xml *root = NULL;
    char code[128];
    char vpc[64] = "";
    int subnets = 0;
    int rc =
        ask(c, "DescribeVpcs", (const char *const[]){"Filter.1.Name", "is-default", "Filter.1.Value.1", "true", NULL},
            &root, code, &e);
    if (rc == 0) (void)snprintf(vpc, sizeof vpc, "%s", tm_xml_text(root, "vpcSet/item/vpcId"));
    if (rc == 0 && vpc[0] != '\0')
        rc = ask(c, "DescribeSubnets", (const char *const[]){"Filter.1.Name", "vpc-id", "Filter.1.Value.1", vpc, NULL},
                 &root, code, &e);
    const struct tm_xml *one = rc == 0 && vpc[0] != '\0' ? tm_xml_child(root, "subnetSet/item") : NULL;
    for (; one != NULL; one = tm_xml_again(one))
        subnets++;
    if (rc != 0) {
        say_refused(c, "network", rc, code, &e);
        return;
    }
    struct tm_cloud_check *line = add(c, "network", subnets > 0 ? TM_CHECK_GOOD : TM_CHECK_BAD);
    if (subnets > 0)
        (void)snprintf(line->what, sizeof line->what, "%s with %d subnets", vpc, subnets);
    else
        (void)snprintf(line->what, sizeof line->what, "there is no default VPC with subnets in this region");
    if (subnets == 0) (void)snprintf(line->fix, sizeof line->fix, "run `aws ec2 create-default-vpc`");
}

static bool is_vcpu_quota(const char *name)
{
    return strstr(name, "Spot Instance Requests") != NULL || strncmp(name, "Running On-Demand", 17) == 0;
}

/* A word of a quota's name: "P", "P3", "Standard", "VT". */
static bool is_word_of(const char *word, size_t length, const char *type)
{
    size_t letters = strspn(type, "abcdefghijklmnopqrstuvwxyz");
    size_t family = letters + strspn(type + letters, "0123456789");
    return (length == letters || length == family) && strncasecmp(word, type, length) == 0;
}

bool tm_aws__is_quota_of(const char *quota, const char *type, bool spot)
{
    static const char parting[] = " ,()";
    bool is_spot = strstr(quota, "Spot Instance Requests") != NULL;
    if (!is_vcpu_quota(quota) || is_spot != spot) return false;
    const char *at = quota + (is_spot ? strlen("All") : strlen("Running On-Demand"));
    while (*at != '\0') {
        at += strspn(at, parting);
        size_t length = strcspn(at, parting);
        if (strncmp(at, "instances", 9) == 0 || strncmp(at, "Spot", 4) == 0) return false;
        if (length > 0 && is_word_of(at, length, type)) return true;
        at += length;
    }
    return false;
}

/* The quotas that count vCPUs, of all pages. */
struct quota {
    char name[100];
    char code[24];
    double vcpus;
};

struct quotas {
    struct quota list[QUOTAS_MAX];
    size_t count;
};

static void take_quotas(const json_t *root, struct quotas *out)
{
    const json_t *list = json_object_get(root, "Quotas");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(one, "QuotaName"));
        const char *code = json_string_value(json_object_get(one, "QuotaCode"));
        if (name == NULL || !is_vcpu_quota(name) || out->count == QUOTAS_MAX) continue;
        struct quota *quota = &out->list[out->count++];
        (void)snprintf(quota->name, sizeof quota->name, "%.99s", name);
        (void)snprintf(quota->code, sizeof quota->code, "%.23s", code != NULL ? code : "");
        quota->vcpus = json_number_value(json_object_get(one, "Value"));
    }
}

static int ask_quotas(struct checking *c, struct quotas *out, struct tm_error *e)
{
    char next[1024] = "";
    int rc = 0;
    for (int page = 0; rc == 0 && page < PAGES_MAX && (page == 0 || next[0] != '\0'); page++) {
        char body[1200];
        struct tm_web_answer answer = {.status = 0};
        json_t *root = NULL;
        (void)snprintf(body, sizeof body, "{\"ServiceCode\": \"ec2\", \"MaxResults\": 100%s%s%s}",
                       next[0] != '\0' ? ", \"NextToken\": \"" : "", next, next[0] != '\0' ? "\"" : "");
        struct tm_aws_request r = {.aws = c->aws,
                                   .service = "servicequotas",
                                   .method = "POST",
                                   .path = "/",
                                   .body = body,
                                   .length = strlen(body),
                                   .deadline_ms = 20000,
                                   .tries_max = 3};
        r.headers[r.header_count++] = (struct tm_web_pair){"content-type", "application/x-amz-json-1.1"};
        r.headers[r.header_count++] = (struct tm_web_pair){"x-amz-target", "ServiceQuotasV20190624.ListServiceQuotas"};
        rc = tm_aws_ask(c->web, &r, &answer, e);
        if (rc == 0 && answer.status == 200)
            rc = tm_json_load("quotas", tm_text_string(&answer.body), answer.body.length, &root, e);
        else if (rc == 0)
            rc = tm_error_set(e, TM_EINPUT, "Service Quotas answers %d", answer.status);
        if (root != NULL) take_quotas(root, out);
        const char *more = json_string_value(json_object_get(root, "NextToken"));
        bool plain = more != NULL && strlen(more) < sizeof next && strpbrk(more, "\"\\") == NULL;
        (void)snprintf(next, sizeof next, "%s", plain ? more : "");
        if (answer.status != 0) tm_web_answer_deinit(&answer);
        json_decref(root);
    }
    return rc;
}

static void hold_need(struct checking *c, const struct tm_check_need *need, const struct quotas *quotas)
{
    double needed = need->vcpus * (double)need->count;
    for (size_t i = 0; needed > 0 && i < quotas->count; i++) {
        const struct quota *quota = &quotas->list[i];
        char fix[300];
        if (!tm_aws__is_quota_of(quota->name, need->type, need->spot)) continue;
        (void)snprintf(
            fix, sizeof fix,
            "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code %s --region %.30s "
            "--desired-value %.0f",
            quota->code, tm_aws_region(c->aws), needed);
        tm_check__quota(c->out, need, needed, "vCPUs", quota->vcpus, quota->name, fix);
        return;
    }
    tm_check__no_quota(c->out, need, needed > 0 ? "Service Quotas lists none for it" : "its vCPUs are not known");
}

static void check_quotas(struct checking *c, const struct tm_check_request *request)
{
    struct quotas quotas;
    struct tm_error e = {.text = ""};
    size_t used = 0;
    int zero = 0;
    quotas.count = 0;
    int rc = ask_quotas(c, &quotas, &e);
    struct tm_cloud_check *line = add(c, "quotas", quotas.count > 0 ? TM_CHECK_GOOD : TM_CHECK_UNKNOWN);
    for (size_t i = 0; i < quotas.count; i++) {
        const struct quota *quota = &quotas.list[i];
        zero += quota->vcpus <= 0;
        if (quota->vcpus > 0 && used + 80 < sizeof line->what)
            used += (size_t)snprintf(line->what + used, sizeof line->what - used, "%s%.0f vCPUs %.50s",
                                     used > 0 ? "; " : "", quota->vcpus, quota->name);
    }
    if (rc != 0)
        (void)snprintf(line->what, sizeof line->what, "not known: %.300s", e.text);
    else if (quotas.count == 0)
        (void)snprintf(line->what, sizeof line->what, "the service lists none");
    if (zero > 0)
        (void)snprintf(line->fix, sizeof line->fix, "%d are 0: ask for more under Service Quotas, Amazon EC2", zero);
    for (size_t i = 0; i < request->need_count; i++)
        hold_need(c, &request->needs[i], &quotas);
}

int tm_aws_check(struct tm_env *env, const struct tm_check_request *request, struct tm_cloud_checks *out,
                 struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    struct checking c = {.out = out};
    out->count = 0;
    tm_arena_init(&c.arena, ARENA_MAX);
    int rc = tm_aws_create(env, request->region, &c.aws, &own);
    if (rc == 0) rc = tm_web_create(env, &c.web, &own);
    if (rc != 0 && rc != -(int)TM_ENOMEM) {
        struct tm_cloud_check *line = add(&c, "settings", TM_CHECK_BAD);
        (void)snprintf(line->what, sizeof line->what, "%.390s", own.text);
        (void)snprintf(line->fix, sizeof line->fix,
                       "set AWS_REGION, and correct AWS_PROFILE and ~/.aws/config; `aws configure` writes them");
        rc = 0;
    } else if (rc == 0 && check_credentials(&c)) {
        check_list(&c);
        check_image(&c, request->image);
        check_rent(&c);
        check_end(&c);
        check_network(&c);
        check_quotas(&c, request);
    }
    tm_web_destroy(c.web);
    tm_aws_destroy(c.aws);
    tm_arena_deinit(&c.arena);
    return rc == -(int)TM_ENOMEM || c.memory ? tm_error_nomem(e) : 0;
}
