/* What the AWS cloud asks of EC2 and S3. */
#include "base/alloc.h"
#include "base/calendar.h"
#include "base/log.h"
#include "cloud/away_vm_internal.h"
#include "cloud/aws_beside.h"
#include "cloud/aws_check.h"
#include "cloud/aws_internal.h"
#include "cloud/rented.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

enum {
    UPLOAD_MS = 10 * 60000,
    OBJECT_MS = 60000,
    TRIES = 6,
    RUN_TRIES = 2, /* a refusal for want of capacity is a 500, too, and no reason to ask on */
    ARENA_MAX = 64 << 20,
    REST_MS = 180000,
    REST_EVERY_MS = 5000
};

const struct tm_vm__guest tm_aws__guest = {
    .cloud = "AWS",
    .notice = "aws",
    .put_header = "",
    .noticed = "    local m=http://169.254.169.254/latest t\n"
               "    t=$(curl -fsS -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $m/api/token) &&\n"
               "        curl -fsS -m 5 -o /dev/null -H \"X-aws-ec2-metadata-token: $t\" "
               "$m/meta-data/spot/instance-action\n",
    .power_off = "    shutdown -P now\n", /* which terminates it: InstanceInitiatedShutdownBehavior */
    .addresses = "    local m=http://169.254.169.254/latest t\n"
                 "    t=$(curl -fsS -m 5 --retry 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 600' "
                 "$m/api/token)\n"
                 "    own=$(curl -fsS -m 5 -H \"X-aws-ec2-metadata-token: $t\" $m/meta-data/local-ipv4)\n"
                 "    public=$(curl -fsS -m 5 -H \"X-aws-ec2-metadata-token: $t\" $m/meta-data/public-ipv4 "
                 "2>/dev/null)\n",
    .room = 16384};

/* ---- objects ---- */

void tm_aws__make_object(struct tm_aws__cloud *c, size_t at, const char *what, const char *method, char *key,
                         struct tm_aws_request *out)
{
    tm_vm_cloud__key(&c->shared, at, what, key, TM_AWS_KEY_MAX);
    *out = (struct tm_aws_request){.aws = c->aws,
                                   .service = "s3",
                                   .region = c->bucket_region[0] != '\0' ? c->bucket_region : NULL,
                                   .bucket = c->options.common.bucket,
                                   .method = method,
                                   .path = key,
                                   .deadline_ms = OBJECT_MS,
                                   .tries_max = TRIES};
}

static int put_url(void *self, size_t at, const char *what, const char *method, int64_t seconds, struct tm_text *out,
                   struct tm_error *e)
{
    struct tm_aws__cloud *c = self;
    struct tm_aws_request request;
    char key[TM_AWS_KEY_MAX];
    tm_aws__make_object(c, at, what, method, key, &request);
    return tm_aws_url(&request, seconds, out, e);
}

/* ---- renting ---- */

/* Where services are that are not Amazon's own: for a VM that rents others. */
static const char *const endpoints[] = {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_EC2",
                                        "AWS_ENDPOINT_URL_STS", NULL};

static int put_user_data(struct tm_aws__cloud *c, size_t at, const char *stem, struct tm_ec2_call *call,
                         struct tm_error *e)
{
    struct tm_text words, text;
    char name[64];
    (void)snprintf(name, sizeof name, "%sUserData", stem);
    tm_text_init(&words, 8192);
    tm_text_init(&text, 4 * tm_aws__guest.room);
    tm_text_puts(&words, "export "); /* what the VM fetches itself by its own role needs a region, too */
    tm_vm__put_word(&words, "AWS_REGION", tm_aws_region(c->aws));
    if (c->shared.coordinator != NULL) tm_away__put_variables(c->shared.env, endpoints, &words);
    const struct tm_vm__boot boot = {
        .guest = &tm_aws__guest, .words = tm_text_string(&words), .sha256 = c->sha256, .url = put_url, .self = c};
    int rc = tm_text_status(&words, e);
    if (rc == 0) rc = tm_vm_cloud__print_boot(&c->shared, at, &boot, &text, e);
    unsigned char *coded = rc == 0 ? tm_alloc(text.length / 3 * 4 + 8) : NULL;
    if (rc == 0 && coded == NULL) rc = tm_error_nomem(e);
    if (rc == 0) {
        (void)EVP_EncodeBlock(coded, (const unsigned char *)text.data, (int)text.length);
        tm_ec2__put(call, name, (const char *)coded);
    }
    tm_free(coded);
    tm_text_deinit(&text);
    tm_text_deinit(&words);
    return rc;
}

/* A zone has a letter behind its region's number. */
bool tm_aws__is_zone(const char *text)
{
    size_t length = strlen(text);
    return length > 1 && text[length - 1] >= 'a' && text[length - 1] <= 'z';
}

/* As the catalogue calls it: the same zone for every account, "use2-az3". */
static bool is_zone_id(const char *text)
{
    return strstr(text, "-az") != NULL;
}

/* What a VM is, wherever it comes from. `stem`: "" or "LaunchTemplateData.". */
static void put_machine(struct tm_aws__cloud *c, const char *stem, struct tm_ec2_call *call)
{
    const struct tm_aws_options *o = &c->options;
    char size[24];
    (void)snprintf(size, sizeof size, "%" PRId64, o->disk_gb);
    const struct {
        const char *name;
        const char *value; /* NULL: not said */
    } rows[] = {{"ImageId", c->image},
                {"InstanceInitiatedShutdownBehavior", "terminate"},
                {"MetadataOptions.HttpTokens", "required"},
                {"MetadataOptions.HttpPutResponseHopLimit", "1"},
                {"SecurityGroupId.1", c->group[0] != '\0' ? c->group : NULL},
                {"IamInstanceProfile.Name", o->profile},
                {"BlockDeviceMapping.1.DeviceName", o->disk_gb > 0 ? c->root_device : NULL},
                {"BlockDeviceMapping.1.Ebs.VolumeSize", o->disk_gb > 0 ? size : NULL},
                {"BlockDeviceMapping.1.Ebs.VolumeType", o->disk_gb > 0 ? "gp3" : NULL},
                {"BlockDeviceMapping.1.Ebs.DeleteOnTermination", o->disk_gb > 0 ? "true" : NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[96];
        if (rows[i].value == NULL) continue;
        (void)snprintf(name, sizeof name, "%s%s", stem, rows[i].name);
        tm_ec2__put(call, name, rows[i].value);
    }
}

/* One type, in one place or wherever AWS puts it. */
static void put_single(struct tm_aws__cloud *c, const struct tm_cloud_pool *pool, struct tm_ec2_call *call)
{
    tm_ec2__put(call, "InstanceType", pool->type);
    tm_ec2__put(call, "MinCount", "1");
    tm_ec2__put(call, "MaxCount", "1");
    if (c->options.subnet != NULL) tm_ec2__put(call, "SubnetId", c->options.subnet);
    if (is_zone_id(pool->zone))
        tm_ec2__put(call, "Placement.AvailabilityZoneId", pool->zone);
    else if (tm_aws__is_zone(pool->zone))
        tm_ec2__put(call, "Placement.AvailabilityZone", pool->zone);
    if (pool->kind == TM_INSTANCE_SPOT) {
        tm_ec2__put(call, "InstanceMarketOptions.MarketType", "spot");
        tm_ec2__put(call, "InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time");
        tm_ec2__put(call, "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior", "terminate");
    }
}

/* A fleet takes user data, group and tags from a launch template alone: one for this VM, which goes as soon as the VM
 * is there. */
static int put_template(struct tm_aws__cloud *c, size_t at, const struct tm_vm__tag *tags, size_t count,
                        struct tm_ec2_call *call, struct tm_error *e)
{
    static const char stem[] = "LaunchTemplateData.";
    tm_ec2__put(call, "LaunchTemplateName", c->shared.vms.vms[at].token);
    tm_aws__put_tags(call, "", 1, "launch-template", tags, count);
    put_machine(c, stem, call);
    tm_aws__put_tags(call, stem, 1, "instance", tags, count);
    tm_aws__put_tags(call, stem, 2, "volume", tags, count);
    return put_user_data(c, at, stem, call, e);
}

/* The words as they were written down; a second line is the second call's. */
static int recall_words(struct tm_aws__cloud *c, const char *token, struct tm_text *first, struct tm_text *then,
                        struct tm_error *e)
{
    struct tm_text all;
    tm_text_init(&all, 2 * TM_AWS_FORM_MAX);
    int rc = tm_vm_cloud__read_words(&c->shared, token, &all, e);
    if (rc == 0) {
        const char *line = strchr(tm_text_string(&all), '\n');
        tm_text_clear(first);
        tm_text_append(first, all.data, line != NULL ? (size_t)(line - all.data) : all.length);
        if (line != NULL) tm_text_puts(then, line + 1);
        rc = tm_text_status(first, e);
    }
    tm_text_deinit(&all);
    return rc == 0 ? tm_text_status(then, e) : rc;
}

static int write_words(struct tm_aws__cloud *c, size_t at, const struct tm_text *first, const struct tm_text *then,
                       struct tm_error *e)
{
    struct tm_text all;
    tm_text_init(&all, 2 * TM_AWS_FORM_MAX);
    tm_text_puts(&all, tm_text_string(first));
    if (then->length > 0) tm_text_printf(&all, "\n%s", tm_text_string(then));
    int rc = tm_text_status(&all, e);
    if (rc == 0) rc = tm_vm_cloud__write_note(&c->shared, at, tm_text_string(&all), e);
    tm_text_deinit(&all);
    return rc;
}

int tm_aws__make_run(struct tm_aws__cloud *c, size_t at, struct tm_ec2_call *call, struct tm_text *then,
                     struct tm_error *e)
{
    struct tm_vm *vm = &c->shared.vms.vms[at];
    const struct tm_cloud_pool *pool = &c->shared.pools[c->shared.vms.instances[at].pool];
    struct tm_aws__override overrides[TM_AWS_OVERRIDES_MAX];
    struct tm_vm__tag tags[TM_VM_TAGS];
    size_t count = tm_aws__list_overrides(c, at, tm_vm_cloud__now_ms(&c->shared), overrides);
    tm_ec2__init(call, c->aws, NULL, count > 1 ? "CreateLaunchTemplate" : "RunInstances");
    tm_text_init(then, TM_AWS_FORM_MAX);
    call->request.tries_max = RUN_TRIES;
    if (vm->kept) return recall_words(c, vm->token, &call->form, then, e); /* asked before: the same words */
    tm_vm_cloud__name(&c->shared, at);
    size_t tag_count = tm_vm_cloud__tags(&c->shared, at, tags);
    tm_ec2__put(call, "ClientToken", vm->token);
    int rc = 0;
    if (count > 1) {
        struct tm_ec2_call fleet;
        rc = put_template(c, at, tags, tag_count, call, e);
        tm_aws__make_fleet(c, at, overrides, count, &fleet);
        tm_text_puts(then, tm_text_string(&fleet.form));
        tm_ec2__deinit(&fleet);
    } else {
        put_machine(c, "", call);
        put_single(c, pool, call);
        tm_aws__put_tags(call, "", 1, "instance", tags, tag_count);
        tm_aws__put_tags(call, "", 2, "volume", tags, tag_count);
        rc = put_user_data(c, at, "", call, e);
    }
    if (rc == 0) rc = tm_text_status(&call->form, e);
    if (rc == 0) rc = tm_text_status(then, e);
    return rc == 0 ? write_words(c, at, &call->form, then, e) : rc;
}

/* ---- the rest of EC2 ---- */

void tm_aws__make_describe(struct tm_aws__cloud *c, const char *page, struct tm_ec2_call *call)
{
    char run[24];
    (void)snprintf(run, sizeof run, "%016" PRIx64, c->options.common.run);
    tm_ec2__init(call, c->aws, NULL, "DescribeInstances");
    tm_ec2__put(call, "Filter.1.Name", "tag:" TM_VM_TAG_RUN);
    tm_ec2__put(call, "Filter.1.Value.1", run);
    tm_ec2__put(call, "MaxResults", "1000");
    if (page[0] != '\0') tm_ec2__put(call, "NextToken", page);
}

void tm_aws__make_terminate(struct tm_aws__cloud *c, size_t at, struct tm_ec2_call *call)
{
    tm_ec2__init(call, c->aws, NULL, "TerminateInstances");
    tm_ec2__put(call, "InstanceId.1", c->shared.vms.vms[at].id);
}

int64_t tm_aws__prices_from(struct tm_aws__cloud *c)
{
    int64_t now_ms = tm_vm_cloud__now_ms(&c->shared);
    return c->shared.vms.begin_utc_ms + tm_vms__unsettled_ms(&c->shared.vms, now_ms);
}

void tm_aws__make_prices(struct tm_aws__cloud *c, int64_t from_ms, const char *next_page, struct tm_ec2_call *call)
{
    char from[TM_CALENDAR_TEXT_MAX];
    char name[32];
    int number = 0;
    tm_ec2__init(call, c->aws, NULL, "DescribeSpotPriceHistory");
    tm_ec2__put(call, "ProductDescription.1", "Linux/UNIX");
    tm_ec2__put(call, "StartTime", tm_calendar_print(from_ms / 1000 * 1000, from));
    for (int i = 0; i < c->options.common.pool_count; i++) {
        if (c->shared.pools[i].kind != TM_INSTANCE_SPOT) continue;
        (void)snprintf(name, sizeof name, "InstanceType.%d", ++number);
        tm_ec2__put(call, name, c->shared.pools[i].type);
    }
    if (next_page[0] != '\0') tm_ec2__put(call, "NextToken", next_page);
}

/* ---- before anything is rented ---- */

/* Where none is said, the newest of Amazon's; where one is, it is looked at if its disk is to have another size. */
static int find_image(struct tm_aws__cloud *c, struct tm_error *e)
{
    struct tm_ec2_call call;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    char code[128];
    const char *said = c->options.image;
    if (said != NULL) (void)snprintf(c->image, sizeof c->image, "%s", said);
    if (said != NULL && c->options.disk_gb <= 0) return 0;
    tm_ec2__init(&call, c->aws, NULL, "DescribeImages");
    if (said != NULL) tm_ec2__put(&call, "ImageId.1", said);
    if (said == NULL) tm_ec2__put(&call, "Owner.1", "amazon");
    if (said == NULL) tm_ec2__put(&call, "Filter.1.Name", "name");
    if (said == NULL) tm_ec2__put(&call, "Filter.1.Value.1", TM_AWS_IMAGE_NAME);
    tm_arena_init(&arena, ARENA_MAX);
    int rc = tm_ec2__ask(&call, c->shared.web, &arena, &root, code, e);
    if (rc == 0 && !tm_aws__read_image(root, c->image, c->root_device))
        rc = tm_error_set(e, TM_EINPUT, "region %s has no image \"%s\"; name one: fleet: {aws: {image: ami-...}}",
                          tm_aws_region(c->aws), said != NULL ? said : TM_AWS_IMAGE_NAME);
    tm_arena_deinit(&arena);
    tm_ec2__deinit(&call);
    return rc;
}

/* What became of a request for an object: 0, -TM_ENOTFOUND, or words. */
static int judge(struct tm_aws__cloud *c, int rc, struct tm_web_answer *answer, struct tm_error *e)
{
    struct tm_aws_refusal why;
    if (rc != 0) return rc;
    int status = answer->status;
    if (status >= 300) rc = tm_aws_refusal(answer, &why, e);
    tm_web_answer_deinit(answer);
    if (rc != 0 || status < 300) return rc;
    bool unsaid = why.code[0] == '\0' && (status == 403 || status == 404); /* HEAD has no words */
    if (unsaid || (status == 404 && strcmp(why.code, "NoSuchBucket") != 0))
        return tm_error_set(e, TM_ENOTFOUND, "there is no such object");
    return tm_error_set(e, TM_EINPUT,
                        "bucket %s: the service answers %d %s: %s; `tidemill cloud check aws --bucket "
                        "s3://%s/%s` says more",
                        c->options.common.bucket, status, why.code, why.message, c->options.common.bucket,
                        c->options.common.prefix);
}

static int ask_object(struct tm_aws__cloud *c, struct tm_aws_request *request, struct tm_error *e)
{
    struct tm_web_answer answer;
    int rc = tm_aws_ask(c->shared.web, request, &answer, e);
    if (rc == 0 && answer.status >= 300 && answer.region[0] != '\0' && c->bucket_region[0] == '\0' &&
        strcmp(answer.region, tm_aws_region(c->aws)) != 0) { /* it lies elsewhere */
        (void)snprintf(c->bucket_region, sizeof c->bucket_region, "%s", answer.region);
        tm_web_answer_deinit(&answer);
        request->region = c->bucket_region;
        rc = tm_aws_ask(c->shared.web, request, &answer, e);
    }
    return judge(c, rc, &answer, e);
}

/* By its hash, so that it is brought once. */
static int bring(struct tm_aws__cloud *c, const char *what, const char *file, char sha256[TM_SHA256_HEX],
                 struct tm_error *e)
{
    struct tm_aws_request request;
    char key[TM_AWS_KEY_MAX];
    char name[128];
    const void *data = NULL;
    size_t length = 0;
    int rc = c->shared.env->file_map(c->shared.env, file, &data, &length, e);
    if (rc != 0) return rc;
    tm_sha256_hex(data, length, sha256);
    (void)snprintf(name, sizeof name, "%s-%s", what, sha256);
    tm_aws__make_object(c, SIZE_MAX, name, "HEAD", key, &request);
    rc = ask_object(c, &request, e);
    if (rc == -(int)TM_ENOTFOUND) {
        tm_log(TM_LOG_INFO, "bringing the %s (%zu bytes) to s3://%s%s", what, length, c->options.common.bucket, key);
        tm_aws__make_object(c, SIZE_MAX, name, "PUT", key, &request);
        request.body = data;
        request.length = length;
        request.deadline_ms = UPLOAD_MS;
        rc = ask_object(c, &request, e);
    }
    c->shared.env->file_unmap(c->shared.env, data, length);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "bringing the %s to the bucket", what);
}

static struct tm_aws__place place_of(struct tm_aws__cloud *c)
{
    return (struct tm_aws__place){.env = c->shared.env, .aws = c->aws, .web = c->shared.web};
}

static int find_group(struct tm_aws__cloud *c, struct tm_error *e)
{
    struct tm_vm__tag tags[TM_VM_TAGS];
    struct tm_aws__place place = place_of(c);
    if (c->options.security_group != NULL) {
        (void)snprintf(c->group, sizeof c->group, "%.30s", c->options.security_group);
        return 0;
    }
    size_t count = tm_vm_cloud__tags(&c->shared, SIZE_MAX, tags);
    return tm_aws__make_group(&place, c->shared.options.group, c->options.subnet, tags, count, c->group, e);
}

int tm_aws__prepare(struct tm_aws__cloud *c, struct tm_error *e)
{
    const struct tm_vm_options *o = &c->options.common;
    int rc = bring(c, "program", o->program, c->sha256, e);
    if (rc == 0 && o->wheel != NULL) rc = bring(c, "wheel", o->wheel, c->shared.wheel_sha256, e);
    if (rc == 0) rc = find_image(c, e);
    if (rc == 0) rc = tm_aws__find_zones(c, e);
    return rc == 0 ? find_group(c, e) : rc;
}

/* AWS keeps a group until its VMs have ended for good, which takes a while after it says that they end. */
void tm_aws__remove_rest(void *self)
{
    struct tm_aws__cloud *c = self;
    char run[24];
    struct tm_aws__place place = place_of(c);
    struct tm_aws__beside rest = {.left = 1};
    struct tm_error e = {.text = "its VMs have not ended yet"};
    int64_t end_ns = c->shared.env->monotonic_ns(c->shared.env) + REST_MS * 1000000LL;
    (void)snprintf(run, sizeof run, "%016" PRIx64, c->options.common.run);
    for (int i = 0;; i++) {
        int rc = tm_aws__remove_beside(&place, TM_VM_TAG_RUN, run, &rest, &e);
        if ((rc == 0 && rest.left == 0) || c->shared.env->monotonic_ns(c->shared.env) >= end_ns) break;
        if (i == 0) tm_log(TM_LOG_INFO, "waiting until AWS lets the security group of the job go");
        c->shared.env->sleep_ms(c->shared.env, i < 5 ? 1000 : REST_EVERY_MS);
    }
    if (rest.left > 0)
        tm_log(TM_LOG_WARN,
               "the security group of the job could not be removed: %s; `tidemill cloud clean` does it "
               "later (it costs nothing)",
               e.text);
}
