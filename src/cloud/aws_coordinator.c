#include "cloud/aws_coordinator.h"

#include "base/alloc.h"
#include "base/calendar.h"
#include "cloud/aws_beside.h"
#include "cloud/aws_internal.h"
#include "cloud/rented.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

enum { LIFE_MS = 6 * 24 * 3600000, URL_S = 7 * 24 * 3600 - 60, ARENA_MAX = 64 << 20, DEADLINE_MS = 120000, TRIES = 6 };

#define TAG "tidemill:coordinator"

/* ---- its user data ---- */

/* A run that was killed begins again where its folder says; one that has ended, well or not, is over. */
static const char rest[] =
    "m=http://169.254.169.254/latest\n"
    "meta() { curl -fsS -m 5 -H \"X-aws-ec2-metadata-token: $t\" $m/meta-data/$1; }\n"
    "t=$(curl -fsS -m 5 --retry 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 600' $m/api/token)\n"
    "own=$(meta local-ipv4) || end 'the metadata service does not say our address'\n"
    "public=$(meta public-ipv4 2>/dev/null) || public=$own\n"
    "status=255\n"
    "for i in 1 2 3 4 5; do\n"
    "    ./program run \"$place\" --state \"$HOME/.local/state/tidemill/$job\" -y --anyway --listen 0.0.0.0:$port \\\n"
    "        --advertise \"$own\" --serve 0.0.0.0:$api_port --serve-as \"$public\" \"$@\" &\n"
    "    run=$!\n"
    "    (while sleep 20; do put_log; done) &\n"
    "    logger=$!\n"
    "    wait $run\n"
    "    status=$?\n"
    "    kill $logger\n"
    "    say \"the run ended with status $status\"\n"
    "    [ $status -lt 128 ] && break\n"
    "done\n"
    "end 'the coordinator is not needed any more'\n";

/* What it does when it boots. */
struct coordinator_data {
    const char *job;
    const char *place;
    const char *program; /* URL */
    const char *sha256;
    const char *wheel; /* URL; NULL: it is not needed */
    const char *wheel_name;
    const char *wheel_sha256;
    const char *log_url;
    const char *variables; /* lines "export NAME='VALUE'" */
    const char *options;
    int64_t life_s;
};

static int print_coordinator_data(const struct coordinator_data *data, struct tm_text *out, struct tm_error *e)
{
    size_t from = out->length;
    tm_text_puts(out, "#!/bin/bash\n# The coordinator of a Tidemill job.\n");
    tm_vm__put_word(out, "job", data->job);
    tm_vm__put_word(out, "place", data->place);
    tm_vm__put_word(out, "program", data->program);
    tm_vm__put_word(out, "sha256", data->sha256);
    if (data->wheel != NULL) tm_vm__put_wheel(out, data->wheel, data->wheel_name, data->wheel_sha256);
    tm_vm__put_word(out, "log_url", data->log_url);
    tm_text_printf(out, "life=%" PRId64 "\nport=%d\napi_port=%d\nset --%s%s\n", data->life_s, TM_AWS_COORDINATOR_PORT,
                   TM_AWS_COORDINATOR_API_PORT, data->options[0] != '\0' ? " " : "", data->options);
    tm_text_puts(out, data->variables);
    tm_vm__put_guest(out, &tm_aws__guest);
    tm_text_puts(out, tm_vm__boot_script());
    if (data->wheel != NULL) {
        tm_text_puts(out, tm_vm__wheel_script());
        tm_text_puts(out, "export TIDEMILL_WHEEL=$d/$wheel_name\n");
    }
    tm_text_puts(out, rest);
    int rc = tm_text_status(out, e);
    if (rc == 0 && out->length - from > tm_aws__guest.room)
        rc = tm_error_set(e, TM_ELIMIT,
                          "what the coordinator's VM is told when it boots has %zu bytes, and AWS takes %zu",
                          out->length - from, tm_aws__guest.room);
    return rc;
}

/* ---- renting ---- */

/* As the VMs' own: image, program and URLs are found by the same code. */
static int open_cloud(struct tm_env *env, const struct tm_aws_coordinator *o, struct tm_aws__cloud *c,
                      struct tm_error *e)
{
    c->shared.env = env;
    c->shared.options = (struct tm_vm_options){.bucket = o->bucket,
                                               .prefix = o->prefix,
                                               .program = o->program,
                                               .wheel = o->wheel,
                                               .job = o->job,
                                               .owner = o->owner};
    c->options = (struct tm_aws_options){
        .common = c->shared.options, .region = o->region, .image = o->image, .disk_gb = o->disk_gb};
    int rc = tm_aws_create(env, o->region, &c->aws, e);
    if (rc == 0) rc = tm_web_create(env, &c->shared.web, e);
    return rc;
}

static void close_cloud(struct tm_aws__cloud *c)
{
    tm_web_destroy(c->shared.web);
    tm_aws_destroy(c->aws);
    tm_free(c);
}

static int put_url(struct tm_aws__cloud *c, const char *what, const char *method, struct tm_text *out,
                   struct tm_error *e)
{
    struct tm_aws_request request;
    char key[TM_AWS_KEY_MAX];
    tm_aws__make_object(c, SIZE_MAX, what, method, key, &request);
    return tm_aws_url(&request, URL_S, out, e);
}

/* Region and endpoints, as they are here, and where traces go; never credentials, nor headers that may be such. */
static void put_variables(struct tm_env *env, const struct tm_aws__cloud *c, const struct tm_aws_coordinator *o,
                          struct tm_text *out)
{
    static const char *const names[] = {
        "AWS_ENDPOINT_URL",     "AWS_ENDPOINT_URL_S3",         "AWS_ENDPOINT_URL_EC2",
        "AWS_ENDPOINT_URL_STS", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_SERVICE_NAME",    "OTEL_RESOURCE_ATTRIBUTES"};
    tm_text_puts(out, "export ");
    tm_vm__put_word(out, "AWS_REGION", tm_aws_region(c->aws));
    tm_text_printf(out, "export " TM_OWN_USD_H "=%.6f " TM_OWN_SINCE "=$(date +%%s)\nexport ", o->usd_h);
    tm_vm__put_word(out, TM_OWN_GROUP, c->group);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = env->variable(env, names[i]);
        if (value == NULL || value[0] == '\0') continue;
        tm_text_puts(out, "export ");
        tm_vm__put_word(out, names[i], value);
    }
}

static int print_data(struct tm_env *env, struct tm_aws__cloud *c, const struct tm_aws_coordinator *o,
                      struct tm_text *out, struct tm_error *e)
{
    struct tm_text program, wheel, log_url, variables;
    char name[128];
    const char *slash = o->wheel != NULL ? strrchr(o->wheel, '/') : NULL;
    tm_text_init(&program, 1 << 14);
    tm_text_init(&wheel, 1 << 14);
    tm_text_init(&log_url, 1 << 14);
    tm_text_init(&variables, 1 << 14);
    (void)snprintf(name, sizeof name, "program-%s", c->sha256);
    int rc = tm_aws_await_keys(c->aws, e);
    if (rc == 0) rc = put_url(c, name, "GET", &program, e);
    (void)snprintf(name, sizeof name, "wheel-%s", c->shared.wheel_sha256);
    if (rc == 0 && o->wheel != NULL) rc = put_url(c, name, "GET", &wheel, e);
    if (rc == 0) rc = put_url(c, "coordinator.log", "PUT", &log_url, e);
    put_variables(env, c, o, &variables);
    if (rc == 0) rc = tm_text_status(&variables, e);
    const struct coordinator_data data = {.job = o->job,
                                          .place = o->place,
                                          .program = tm_text_string(&program),
                                          .sha256 = c->sha256,
                                          .wheel = o->wheel != NULL ? tm_text_string(&wheel) : NULL,
                                          .wheel_name = slash != NULL ? slash + 1 : o->wheel,
                                          .wheel_sha256 = c->shared.wheel_sha256,
                                          .log_url = tm_text_string(&log_url),
                                          .variables = tm_text_string(&variables),
                                          .options = o->options,
                                          .life_s = (o->life_ms > 0 ? o->life_ms : LIFE_MS) / 1000};
    if (rc == 0) rc = print_coordinator_data(&data, out, e);
    tm_text_deinit(&program);
    tm_text_deinit(&wheel);
    tm_text_deinit(&log_url);
    tm_text_deinit(&variables);
    return rc;
}

static int put_data(struct tm_env *env, struct tm_aws__cloud *c, const struct tm_aws_coordinator *o,
                    struct tm_ec2_call *call, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, 4 * tm_aws__guest.room);
    int rc = print_data(env, c, o, &text, e);
    unsigned char *coded = rc == 0 ? tm_alloc(text.length / 3 * 4 + 8) : NULL;
    if (rc == 0 && coded == NULL) rc = tm_error_nomem(e);
    if (rc == 0) {
        (void)EVP_EncodeBlock(coded, (const unsigned char *)text.data, (int)text.length);
        tm_ec2__put(call, "UserData", (const char *)coded);
    }
    tm_free(coded);
    tm_text_deinit(&text);
    return rc;
}

enum { TAGS = 6, TAGS_OF_VM = 5 };

struct tags {
    char until[TM_CALENDAR_TEXT_MAX];
    char run[24];
    struct tm_vm__tag list[TAGS]; /* the last is the group's alone: of a VM with it the run would think that it works */
};

/* Which group is the run's: as long as its books are there, also that of the VM that takes them over. */
static uint64_t group_number(const struct tm_aws_coordinator *o)
{
    return tm_hash_of(o->place, strlen(o->place)).low;
}

static void fill_tags(struct tm_env *env, const struct tm_aws_coordinator *o, struct tags *t)
{
    int64_t life_ms = o->life_ms > 0 ? o->life_ms : LIFE_MS;
    (void)snprintf(t->run, sizeof t->run, "%016" PRIx64, group_number(o));
    const char *const words[TAGS][2] = {
        {TM_RENTED_TAG, o->job},
        {TM_VM_TAG_OWNER, o->owner},
        {TM_VM_TAG_UNTIL, tm_calendar_print((env->now_ms(env) + life_ms) / 1000 * 1000, t->until)},
        {TAG, o->place},
        {"Name", o->job},
        {TM_VM_TAG_RUN, t->run}};
    for (size_t i = 0; i < TAGS; i++) {
        t->list[i].name = words[i][0];
        (void)snprintf(t->list[i].value, sizeof t->list[i].value, "%.255s", words[i][1]);
    }
}

/* For the VM and those that its run rents: members reach each other; its API is reached from where the user said. */
static int make_group(struct tm_aws__cloud *c, const struct tm_aws_coordinator *o, const struct tags *tags,
                      char own[TM_VM_ID_MAX], struct tm_error *e)
{
    const struct tm_aws__place place = {.env = c->shared.env, .aws = c->aws, .web = c->shared.web};
    c->options.security_group = o->security_group;
    if (o->security_group != NULL) return 0;
    int rc = tm_aws__make_group(&place, group_number(o), o->subnet, tags->list, TAGS, own, e);
    c->options.security_group = own;
    if (rc != 0 || o->reached_from == NULL) return rc;
    return tm_aws__open_port(&place, own, TM_AWS_COORDINATOR_API_PORT, o->reached_from, e);
}

static void put_machine(struct tm_aws__cloud *c, const struct tm_aws_coordinator *o, struct tm_ec2_call *call)
{
    char size[24];
    tm_ec2__put(call, "ClientToken", o->token);
    tm_ec2__put(call, "ImageId", c->image);
    tm_ec2__put(call, "InstanceType", o->type);
    tm_ec2__put(call, "MinCount", "1");
    tm_ec2__put(call, "MaxCount", "1");
    tm_ec2__put(call, "InstanceInitiatedShutdownBehavior", "terminate");
    tm_ec2__put(call, "MetadataOptions.HttpTokens", "required");
    tm_ec2__put(call, "MetadataOptions.HttpPutResponseHopLimit", "1");
    tm_ec2__put(call, "IamInstanceProfile.Name", o->profile);
    if (o->subnet != NULL) tm_ec2__put(call, "SubnetId", o->subnet);
    if (c->group[0] != '\0') tm_ec2__put(call, "SecurityGroupId.1", c->group);
    if (o->disk_gb <= 0) return;
    (void)snprintf(size, sizeof size, "%" PRId64, o->disk_gb);
    tm_ec2__put(call, "BlockDeviceMapping.1.DeviceName", c->root_device);
    tm_ec2__put(call, "BlockDeviceMapping.1.Ebs.VolumeSize", size);
    tm_ec2__put(call, "BlockDeviceMapping.1.Ebs.VolumeType", "gp3");
    tm_ec2__put(call, "BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true");
}

static int ask(struct tm_aws__cloud *c, const struct tm_aws_coordinator *o, struct tm_ec2_call *call,
               char out_id[TM_AWS_COORDINATOR_ID_MAX], struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    char code[128];
    tm_arena_init(&arena, ARENA_MAX);
    call->request.deadline_ms = DEADLINE_MS;
    call->request.tries_max = TRIES; /* with the same token: it is rented once */
    int rc = tm_ec2__ask(call, c->shared.web, &arena, &root, code, e);
    if (rc == 0)
        (void)snprintf(out_id, TM_AWS_COORDINATOR_ID_MAX, "%s", tm_xml_text(root, "instancesSet/item/instanceId"));
    if (rc == 0 && out_id[0] == '\0') rc = tm_error_set(e, TM_EPEER, "EC2's answer names no instance");
    if (rc != 0 && strcmp(code, "IdempotentParameterMismatch") == 0)
        rc = tm_error_set(e, TM_EEXISTS, "it was rented before");
    if (rc != 0) rc = tm_error_wrap(e, rc, "renting a %s for the coordinator", o->type);
    tm_arena_deinit(&arena);
    return rc;
}

int tm_aws_coordinator_rent(struct tm_env *env, const struct tm_aws_coordinator *o,
                            char out_id[TM_AWS_COORDINATOR_ID_MAX], struct tm_error *e)
{
    struct tm_ec2_call call;
    struct tm_aws__cloud *c = tm_calloc(1, sizeof *c);
    if (c == NULL) return tm_error_nomem(e);
    struct tags tags;
    char own[TM_VM_ID_MAX];
    fill_tags(env, o, &tags);
    int rc = open_cloud(env, o, c, e);
    if (rc == 0) rc = make_group(c, o, &tags, own, e);
    if (rc == 0) rc = tm_aws__prepare(c, e);
    if (rc == 0) {
        tm_ec2__init(&call, c->aws, NULL, "RunInstances");
        put_machine(c, o, &call);
        tm_aws__put_tags(&call, "", 1, "instance", tags.list, TAGS_OF_VM);
        tm_aws__put_tags(&call, "", 2, "volume", tags.list, TAGS_OF_VM);
        rc = put_data(env, c, o, &call, e);
        if (rc == 0) rc = tm_text_status(&call.form, e);
        if (rc == 0) rc = ask(c, o, &call, out_id, e);
        tm_ec2__deinit(&call);
    }
    close_cloud(c);
    return rc;
}

/* ---- finding ---- */

/* The value of a tag of the first VM that lives and has this tag; both may be out of the same one. */
static int find(struct tm_env *env, const char *region, const char *key, const char *value, struct tm_arena *arena,
                const struct tm_xml **out, struct tm_error *e)
{
    static const char *const states[] = {"pending", "running"};
    struct tm_aws_coordinator o = {.region = region};
    struct tm_ec2_call call;
    struct tm_xml *root = NULL;
    char code[128];
    char name[64];
    struct tm_aws__cloud *c = tm_calloc(1, sizeof *c);
    if (c == NULL) return tm_error_nomem(e);
    int rc = open_cloud(env, &o, c, e);
    if (rc == 0) {
        tm_ec2__init(&call, c->aws, NULL, "DescribeInstances");
        (void)snprintf(name, sizeof name, "tag:%s", key);
        tm_ec2__put(&call, "Filter.1.Name", name);
        tm_ec2__put(&call, "Filter.1.Value.1", value);
        tm_ec2__put(&call, "Filter.2.Name", "tag-key");
        tm_ec2__put(&call, "Filter.2.Value.1", TAG);
        tm_ec2__put(&call, "Filter.3.Name", "instance-state-name");
        tm_ec2__put(&call, "Filter.3.Value.1", states[0]);
        tm_ec2__put(&call, "Filter.3.Value.2", states[1]);
        rc = tm_ec2__ask(&call, c->shared.web, arena, &root, code, e);
        tm_ec2__deinit(&call);
    }
    close_cloud(c);
    if (rc != 0) return rc;
    *out = tm_xml_child(root, "reservationSet/item/instancesSet/item");
    return *out != NULL ? 0 : tm_error_set(e, TM_ENOTFOUND, "no VM with %s %s", key, value);
}

int tm_aws_coordinator_find(struct tm_env *env, const char *region, const char *place,
                            char out_id[TM_AWS_COORDINATOR_ID_MAX], struct tm_error *e)
{
    struct tm_arena arena;
    const struct tm_xml *vm = NULL;
    tm_arena_init(&arena, ARENA_MAX);
    int rc = find(env, region, TAG, place, &arena, &vm, e);
    if (rc == 0) (void)snprintf(out_id, TM_AWS_COORDINATOR_ID_MAX, "%s", tm_xml_text(vm, "instanceId"));
    tm_arena_deinit(&arena);
    return rc;
}

int tm_aws_coordinator_place(struct tm_env *env, const char *job, char *out, size_t room, struct tm_error *e)
{
    struct tm_arena arena;
    const struct tm_xml *vm = NULL;
    tm_arena_init(&arena, ARENA_MAX);
    int rc = find(env, NULL, TM_RENTED_TAG, job, &arena, &vm, e);
    const struct tm_xml *tag = rc == 0 ? tm_xml_child(vm, "tagSet/item") : NULL;
    for (; tag != NULL; tag = tm_xml_again(tag))
        if (strcmp(tm_xml_text(tag, "key"), TAG) == 0) (void)snprintf(out, room, "%s", tm_xml_text(tag, "value"));
    tm_arena_deinit(&arena);
    return rc;
}
