#include "cloud/aws_check.h"

#include "base/doc.h"
#include "cloud/ec2.h"
#include "cloud/rented.h"

#include <stdio.h>
#include <string.h>

enum { ARENA_MAX = 64 << 20 };

static const char policy[] =
    "{\n"
    "  \"Version\": \"2012-10-17\",\n"
    "  \"Statement\": [\n"
    "    {\"Sid\": \"Look\", \"Effect\": \"Allow\", \"Resource\": \"*\", \"Action\": [\"ec2:DescribeInstances\",\n"
    "      \"ec2:DescribeRegions\", \"ec2:DescribeImages\", \"ec2:DescribeVpcs\", \"ec2:DescribeSubnets\",\n"
    "      \"ec2:DescribeSpotPriceHistory\", \"ec2:GetSpotPlacementScores\", \"ec2:DescribeInstanceTypeOfferings\",\n"
    "      \"ec2:DescribeAvailabilityZones\", \"ec2:DescribeSecurityGroups\", \"ec2:DescribeLaunchTemplates\",\n"
    "      \"servicequotas:ListServiceQuotas\"]},\n"
    "    {\"Sid\": \"Rent\", \"Effect\": \"Allow\", \"Resource\": \"*\", \"Action\": [\"ec2:RunInstances\", "
    "\"ec2:CreateFleet\",\n"
    "      \"ec2:CreateLaunchTemplate\", \"ec2:CreateSecurityGroup\", \"ec2:CreateTags\"]},\n"
    "    {\"Sid\": \"EndOnlyOurs\", \"Effect\": \"Allow\", \"Resource\": \"*\", \"Action\": "
    "[\"ec2:TerminateInstances\",\n"
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
    struct tm_aws_checks *out;
    char image[64];
    bool memory; /* there was too little */
};

static struct tm_aws_check_line *add(struct checking *c, const char *name, enum tm_check_result result)
{
    struct tm_aws_check_line *line = &c->out->lines[c->out->count++];
    *line = (struct tm_aws_check_line){.name = name, .result = result};
    return line;
}

static void say_refused(struct checking *c, const char *name, int rc, const char *code, const struct tm_error *e)
{
    bool denied = strcmp(code, "UnauthorizedOperation") == 0 || strcmp(code, "AccessDenied") == 0 ||
                  strcmp(code, "AccessDeniedException") == 0;
    struct tm_aws_check_line *line = add(c, name, TM_CHECK_BAD);
    c->memory = c->memory || rc == -(int)TM_ENOMEM;
    (void)snprintf(line->what, sizeof line->what, "%.390s", e->text);
    (void)snprintf(line->fix, sizeof line->fix, "%s",
                   denied            ? "allow what `tidemill cloud check aws --emit policy` prints"
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
    struct tm_aws_check_line *line = add(c, "credentials", TM_CHECK_GOOD);
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
    struct tm_aws_check_line *line = add(c, "image", TM_CHECK_BAD);
    (void)snprintf(line->what, sizeof line->what, "%.200s: %.180s", given != NULL ? given : TM_AWS_IMAGE_NAME,
                   rc != 0 ? e.text : "there is none here");
    (void)snprintf(line->fix, sizeof line->fix, "name one that has NVIDIA's driver: --image ami-...");
}

/* A dry run: AWS says whether it would, and does not. */
static void check_rent(struct checking *c)
{
    struct tm_error e = {.text = ""};
    struct tm_xml *root = NULL;
    char code[128];
    const char *const pairs[] = {"DryRun",
                                 "true",
                                 "ImageId",
                                 c->image[0] != '\0' ? c->image : "ami-00000000",
                                 "InstanceType",
                                 "t3.micro",
                                 "MinCount",
                                 "1",
                                 "MaxCount",
                                 "1",
                                 "TagSpecification.1.ResourceType",
                                 "instance",
                                 "TagSpecification.1.Tag.1.Key",
                                 TM_RENTED_TAG,
                                 "TagSpecification.1.Tag.1.Value",
                                 "check",
                                 NULL};
    int rc = ask(c, "RunInstances", pairs, &root, code, &e);
    if (strcmp(code, "DryRunOperation") == 0)
        (void)snprintf(add(c, "rent and tag", TM_CHECK_GOOD)->what, 64, "allowed (a dry run)");
    else if (rc == 0)
        (void)snprintf(add(c, "rent and tag", TM_CHECK_UNKNOWN)->what, 128, "the service does not know dry runs");
    else
        say_refused(c, "rent and tag", rc, code, &e);
}

static void check_network(struct checking *c)
{
    struct tm_error e = {.text = ""};
    struct tm_xml *root = NULL;
    char code[128];
    char vpc[64] = "";
    int subnets = 0;
    int rc =
        ask(c, "DescribeVpcs", (const char *const[]){"Filter.1.Name", "isDefault", "Filter.1.Value.1", "true", NULL},
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
    struct tm_aws_check_line *line = add(c, "network", subnets > 0 ? TM_CHECK_GOOD : TM_CHECK_BAD);
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

static void print_quotas(const json_t *root, struct tm_aws_check_line *line)
{
    const json_t *list = json_object_get(root, "Quotas");
    size_t used = 0;
    int zero = 0;
    line->result = TM_CHECK_UNKNOWN;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(one, "QuotaName"));
        double value = json_number_value(json_object_get(one, "Value"));
        if (name == NULL || !is_vcpu_quota(name)) continue;
        line->result = TM_CHECK_GOOD;
        zero += value <= 0;
        if (value > 0 && used + 80 < sizeof line->what)
            used += (size_t)snprintf(line->what + used, sizeof line->what - used, "%s%.0f vCPUs %.50s",
                                     used > 0 ? "; " : "", value, name);
    }
    if (line->result == TM_CHECK_UNKNOWN) (void)snprintf(line->what, sizeof line->what, "the service lists none");
    if (zero > 0)
        (void)snprintf(line->fix, sizeof line->fix, "%d are 0: ask for more under Service Quotas, Amazon EC2", zero);
}

/* The first page says enough: a hundred quotas. */
static void check_quotas(struct checking *c)
{
    static const char body[] = "{\"ServiceCode\": \"ec2\", \"MaxResults\": 100}";
    struct tm_error e = {.text = ""};
    struct tm_web_answer answer = {.status = 0};
    json_t *root = NULL;
    struct tm_aws_request r = {.aws = c->aws,
                               .service = "servicequotas",
                               .method = "POST",
                               .path = "/",
                               .body = body,
                               .length = sizeof body - 1,
                               .deadline_ms = 20000,
                               .tries_max = 3};
    r.headers[r.header_count++] = (struct tm_web_pair){"content-type", "application/x-amz-json-1.1"};
    r.headers[r.header_count++] = (struct tm_web_pair){"x-amz-target", "ServiceQuotasV20190624.ListServiceQuotas"};
    int rc = tm_aws_ask(c->web, &r, &answer, &e);
    struct tm_aws_check_line *line = add(c, "quotas", TM_CHECK_UNKNOWN);
    if (rc == 0 && answer.status == 200)
        rc = tm_json_load("quotas", tm_text_string(&answer.body), answer.body.length, &root, &e);
    else if (rc == 0)
        rc = tm_error_set(&e, TM_EINPUT, "Service Quotas answers %d", answer.status);
    if (root != NULL) print_quotas(root, line);
    if (rc != 0) (void)snprintf(line->what, sizeof line->what, "not known: %.300s", e.text);
    if (answer.status != 0) tm_web_answer_deinit(&answer);
    json_decref(root);
}

int tm_aws_check(struct tm_env *env, const char *image, struct tm_aws_checks *out, struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    struct checking c = {.out = out};
    out->count = 0;
    tm_arena_init(&c.arena, ARENA_MAX);
    int rc = tm_aws_create(env, NULL, &c.aws, &own);
    if (rc == 0) rc = tm_web_create(env, &c.web, &own);
    if (rc != 0 && rc != -(int)TM_ENOMEM) {
        struct tm_aws_check_line *line = add(&c, "settings", TM_CHECK_BAD);
        (void)snprintf(line->what, sizeof line->what, "%.390s", own.text);
        rc = 0;
    } else if (rc == 0 && check_credentials(&c)) {
        check_list(&c);
        check_image(&c, image);
        check_rent(&c);
        check_network(&c);
        check_quotas(&c);
    }
    tm_web_destroy(c.web);
    tm_aws_destroy(c.aws);
    tm_arena_deinit(&c.arena);
    return rc == -(int)TM_ENOMEM || c.memory ? tm_error_nomem(e) : 0;
}
