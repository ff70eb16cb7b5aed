#include "cloud/azure_cloud.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"
#include "cloud/azure_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    ASK_MS = 60000,
    MAKE_MS = 120000,
    TRIES = 5,
    MAKE_TRIES = 2,
    FOLLOW_MS = 5000,
    FOLLOW_MAX_MS = 60000,
    POWER_EVERY_MS = 60000,
    LAG_MS = 30000, /* a list may not name yet what was just made */
    BODY_MAX = 1 << 20,
    OPERATIONS_MAX = 1 << 16
};

static int64_t now_of(const struct tm_azure__cloud *c)
{
    return tm_vm_cloud__now_ms(&c->base);
}

static struct tm_vm__call *call_of(struct tm_azure__cloud *c, size_t slot)
{
    return &c->base.slots[slot].call;
}

/* ---- answers ---- */

/* An answer that was understood as far as it goes. */
struct reply {
    int status; /* 0: none came */
    json_t *root;
    struct tm_arm_refusal why;
};

/* Takes the answer's memory. -TM_ENOMEM. */
static int read_reply(int rc, struct tm_web_answer *answer, const struct tm_error *why, struct reply *out,
                      struct tm_error *e)
{
    *out = (struct reply){.status = 0};
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (rc != 0) {
        (void)snprintf(out->why.message, sizeof out->why.message, "%.500s", why->text);
        return 0;
    }
    out->status = answer->status;
    size_t length = answer->body.length;
    const char *text = tm_text_string(&answer->body);
    int read = length > 0 ? tm_json_load("answer", text, length, &out->root, NULL) : 0;
    if (read == -(int)TM_ENOMEM) rc = tm_error_nomem(e);
    if (rc == 0 && out->status >= 300) rc = tm_arm_refusal(text, length, &out->why, e);
    bool cut = out->status < 300 && read != 0;
    if (cut || (out->status >= 500 && out->why.code[0] == '\0')) { /* as if nobody had answered */
        out->status = 0;
        out->why.code[0] = '\0';
        if (out->why.message[0] == '\0')
            (void)snprintf(out->why.message, sizeof out->why.message, "an answer that cannot be read");
    }
    if (rc != 0) json_decref(out->root);
    return rc;
}

static int again(struct tm_azure__cloud *c, struct tm_azure__ask *ask, const char *method, struct tm_web_call **out,
                 struct tm_error *e)
{
    ask->arm.method = method;
    ask->arm.deadline_ms = ASK_MS;
    ask->arm.tries_max = TRIES;
    return tm_arm_begin(c->base.web, &ask->arm, out, e);
}

/* ---- renting ---- */

static int begin_make(struct tm_azure__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_azure__ask *ask = &c->asks[slot];
    size_t at = call_of(c, slot)->at;
    int rc = 0;
    tm_text_clear(&ask->body);
    if (ask->stage == TM_AZURE_VM)
        rc = tm_azure__print_vm(c, at, &ask->body, e);
    else
        rc = tm_azure__print_part(c, at, ask->stage, &ask->body, e);
    if (rc != 0) return rc;
    tm_azure__path_of(c, ask->stage, c->base.vms.vms[at].token, &ask->arm);
    ask->arm.body = tm_text_string(&ask->body);
    ask->arm.method = "PUT";
    ask->arm.deadline_ms = MAKE_MS;
    ask->arm.tries_max = MAKE_TRIES;
    return tm_arm_begin(c->base.web, &ask->arm, out, e);
}

/* What is to be made is written down before the first call: the body of the last. */
static int begin_run(struct tm_azure__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_azure__ask *ask = &c->asks[slot];
    tm_text_clear(&ask->body);
    int rc = tm_azure__print_vm(c, call_of(c, slot)->at, &ask->body, e);
    ask->stage = c->options.public_ip ? TM_AZURE_ADDRESS : TM_AZURE_NIC;
    return rc == 0 ? begin_make(c, slot, out, e) : rc;
}

static void forget_operation(struct tm_azure__cloud *c, size_t at)
{
    if (at >= c->operation_count) return;
    tm_free(c->operations[at]);
    c->operations[at] = NULL;
}

static int keep_operation(struct tm_azure__cloud *c, size_t at, const char *url, struct tm_error *e)
{
    size_t length = strlen(url);
    if (length == 0) return 0;
    if (at >= c->operation_count) {
        size_t capacity = c->operation_count;
        int rc = tm_grow((void **)&c->operations, &capacity, at + 1, sizeof *c->operations, OPERATIONS_MAX);
        if (rc != 0) return tm_error_nomem(e);
        memset(c->operations + c->operation_count, 0, (capacity - c->operation_count) * sizeof *c->operations);
        c->operation_count = capacity;
    }
    forget_operation(c, at);
    c->operations[at] = tm_alloc(length + 1);
    if (c->operations[at] == NULL) return tm_error_nomem(e);
    memcpy(c->operations[at], url, length + 1);
    return 0;
}

static int64_t pause_ms(int64_t retry_after_ms)
{
    if (retry_after_ms <= 0) return FOLLOW_MS;
    return retry_after_ms < FOLLOW_MAX_MS ? retry_after_ms : FOLLOW_MAX_MS;
}

static int refuse(struct tm_azure__cloud *c, size_t at, const struct reply *reply, struct tm_error *e)
{
    const struct tm_arm_refusal *why = &reply->why;
    char words[700];
    const char *code = reply->status == 429 ? "TooManyRequests" : why->code;
    (void)snprintf(words, sizeof words, "%s%s%.500s", code, code[0] != '\0' ? ": " : "", why->message);
    enum tm_vm__remedy remedy = tm_azure__remedy_of(code);
    if (remedy == TM_VM_AGAIN || remedy == TM_VM_LOOK)
        return tm_vms__refused(&c->base.vms, at, code, words, now_of(c), e);
    return tm_vms__failed(&c->base.vms, at, code, words, now_of(c), e); /* its interface may be there */
}

static int take_made(struct tm_azure__cloud *c, size_t slot, const struct reply *reply, const char *operation,
                     int64_t retry_after_ms, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_azure__ask *ask = &c->asks[slot];
    size_t at = call_of(c, slot)->at;
    struct tm_vm__row row;
    char run[32];
    if (reply->status == 0 || reply->status >= 300) return refuse(c, at, reply, e);
    if (ask->stage != TM_AZURE_VM) {
        tm_azure__read_address(reply->root, ask->address);
        ask->stage = ask->stage == TM_AZURE_ADDRESS ? TM_AZURE_NIC : TM_AZURE_VM;
        return tm_vm_cloud__go_on(&c->base, slot, begin_make(c, slot, out, e), e);
    }
    if (!tm_azure__read_vm(reply->root, &row, run)) row = (struct tm_vm__row){.pool = -1};
    (void)snprintf(row.id, sizeof row.id, "%s", c->base.vms.vms[at].token);
    (void)snprintf(row.address, sizeof row.address, "%s", ask->address);
    row.launched_ms = 0;
    tm_vms__rented(&c->base.vms, at, &row, now_of(c));
    int rc = keep_operation(c, at, operation, e);
    if (rc == 0 && operation[0] != '\0') tm_vms__follow(&c->base.vms, at, pause_ms(retry_after_ms), now_of(c));
    return rc;
}

/* ---- operations ---- */

static int begin_follow(struct tm_azure__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_azure__ask *ask = &c->asks[slot];
    size_t at = call_of(c, slot)->at;
    const char *url = at < c->operation_count ? c->operations[at] : NULL;
    ask->arm = (struct tm_arm_request){.arm = c->arm};
    if (url != NULL && tm_arm_follow(&ask->arm, url)) return again(c, ask, "GET", out, e);
    /* not Azure's own: the VM itself says how it is */
    tm_azure__path_of(c, TM_AZURE_VM, c->base.vms.vms[at].token, &ask->arm);
    return again(c, ask, "GET", out, e);
}

static int take_followed(struct tm_azure__cloud *c, size_t slot, const struct reply *reply, int64_t retry_after_ms,
                         struct tm_error *e)
{
    size_t at = call_of(c, slot)->at;
    bool known = reply->status != 0 && reply->status < 300;
    enum tm_azure__progress progress =
        known ? tm_azure__read_operation(reply->status, reply->root) : TM_AZURE_UNDER_WAY;
    if (reply->status == 404) progress = TM_AZURE_DONE; /* it is forgotten: lists tell */
    if (progress == TM_AZURE_UNDER_WAY) {
        tm_vms__follow(&c->base.vms, at, pause_ms(retry_after_ms), now_of(c));
        return 0;
    }
    forget_operation(c, at);
    if (progress == TM_AZURE_DONE || c->base.vms.vms[at].ending) return 0;
    struct tm_arm_refusal why = {.code = ""};
    const json_t *error = json_object_get(reply->root, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    (void)snprintf(why.code, sizeof why.code, "%.120s", code != NULL ? code : "AllocationFailed");
    (void)snprintf(why.message, sizeof why.message, "%.120s: %.380s", why.code, message != NULL ? message : "");
    return tm_vms__failed(&c->base.vms, at, why.code, why.message, now_of(c), e);
}

/* ---- ending ---- */

static int begin_delete(struct tm_azure__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_azure__ask *ask = &c->asks[slot];
    tm_azure__path_of(c, ask->stage, c->base.vms.vms[call_of(c, slot)->at].id, &ask->arm);
    if (ask->stage == TM_AZURE_VM) {
        size_t length = strlen(ask->arm.url);
        (void)snprintf(ask->arm.url + length, sizeof ask->arm.url - length, "&forceDeletion=true");
    }
    return again(c, ask, "DELETE", out, e);
}

/* A VM takes its parts with it; where it is gone, what it left is removed part by part. */
static int take_deleted(struct tm_azure__cloud *c, size_t slot, const struct reply *reply, struct tm_web_call **out)
{
    static const enum tm_azure__stage next[] = {
        [TM_AZURE_VM] = TM_AZURE_NIC, [TM_AZURE_NIC] = TM_AZURE_DISK, [TM_AZURE_DISK] = TM_AZURE_ADDRESS};
    struct tm_azure__ask *ask = &c->asks[slot];
    size_t at = call_of(c, slot)->at;
    bool gone = reply->status == 204 || reply->status == 404;
    bool more = ask->stage == TM_AZURE_VM ? gone : ask->stage != TM_AZURE_ADDRESS && reply->status != 0;
    if (ask->stage == TM_AZURE_VM)
        tm_vms__terminated(&c->base.vms, at, reply->status != 0, gone || reply->status < 300 ? "" : reply->why.code,
                           now_of(c));
    if (!more) return 0;
    ask->stage = next[ask->stage];
    return begin_delete(c, slot, out, NULL) == -(int)TM_ENOMEM ? -(int)TM_ENOMEM : 0;
}

/* ---- looking ---- */

static struct tm_vm__row *row_of(struct tm_azure__cloud *c, const char *id)
{
    for (size_t i = 0; i < c->base.row_count; i++)
        if (strcmp(c->base.rows[i].id, id) == 0) return &c->base.rows[i];
    return NULL;
}

static size_t vm_of(const struct tm_azure__cloud *c, const char *name)
{
    size_t at = 0;
    while (at < c->base.vms.count && strcmp(c->base.vms.vms[at].token, name) != 0)
        at++;
    return at;
}

static bool has_part(const struct tm_azure__cloud *c, const char *name)
{
    for (size_t i = 0; i < c->part_count; i++)
        if (strcmp(c->parts[i], name) == 0) return true;
    return false;
}

/* Something of a VM: remembered, and a row of its own where nobody knows that VM. */
static int take_part(struct tm_azure__cloud *c, const char *name, struct tm_error *e)
{
    char prefix[32];
    (void)snprintf(prefix, sizeof prefix, "tm-%016llx-", (unsigned long long)c->base.options.run);
    if (strncmp(name, prefix, strlen(prefix)) != 0 || has_part(c, name)) return 0;
    int rc = tm_grow((void **)&c->parts, &c->part_capacity, c->part_count + 1, sizeof *c->parts, OPERATIONS_MAX);
    if (rc != 0) return tm_error_nomem(e);
    (void)snprintf(c->parts[c->part_count++], TM_VM_ID_MAX, "%s", name);
    if (row_of(c, name) != NULL || vm_of(c, name) < c->base.vms.count) return 0; /* it is asked for by its name */
    struct tm_vm__row row = {.phase = TM_VM_STOPPED, .pool = -1};
    (void)snprintf(row.id, sizeof row.id, "%s", name);
    (void)snprintf(row.token, sizeof row.token, "%s", name);
    tm_log(TM_LOG_WARN, "Azure: %s has left parts behind: they are removed", name);
    return tm_vm_cloud__add_row(&c->base, &row, e);
}

static int take_item(struct tm_azure__cloud *c, enum tm_azure__stage stage, const json_t *item, struct tm_error *e)
{
    static const char *const endings[] = {
        [TM_AZURE_ADDRESS] = "-ip", [TM_AZURE_NIC] = "-nic", [TM_AZURE_DISK] = "-disk"};
    struct tm_vm__row row;
    char name[TM_VM_ID_MAX];
    char run[32];
    char own[32];
    bool stopped = false;
    (void)snprintf(own, sizeof own, "%016llx", (unsigned long long)c->base.options.run);
    if (stage == TM_AZURE_VM) {
        bool ours = tm_azure__read_vm(item, &row, run) && strcmp(run, own) == 0;
        return ours ? tm_vm_cloud__add_row(&c->base, &row, e) : 0;
    }
    if (stage == TM_AZURE_POWER) {
        struct tm_vm__row *known = tm_azure__read_power(item, name, &stopped) ? row_of(c, name) : NULL;
        if (known != NULL && stopped && known->phase == TM_VM_RUNS) known->phase = TM_VM_STOPPED;
        return 0;
    }
    if (!tm_azure__read_part(item, endings[stage], name)) return 0;
    struct tm_vm__row *known = row_of(c, name);
    if (known != NULL && stage == TM_AZURE_NIC) tm_azure__read_address(item, known->address);
    return take_part(c, name, e);
}

/* The next VM that should be there, and that no list named. */
static bool find_missing(struct tm_azure__cloud *c, size_t from, size_t *out)
{
    for (size_t i = from; i < c->base.vms.count; i++) {
        const struct tm_vm *vm = &c->base.vms.vms[i];
        if (vm->over || vm->calling || vm->id[0] == '\0' || row_of(c, vm->id) != NULL) continue;
        *out = i;
        return true;
    }
    return false;
}

static int begin_look(struct tm_azure__cloud *c, struct tm_azure__ask *ask, struct tm_web_call **out,
                      struct tm_error *e)
{
    if (ask->stage == TM_AZURE_CONFIRM)
        tm_azure__path_of(c, TM_AZURE_VM, c->base.vms.vms[ask->at].id, &ask->arm);
    else if (ask->stage == TM_AZURE_POWER)
        tm_arm_path(&ask->arm,
                    "/providers/Microsoft.Compute/virtualMachines?api-version=" TM_AZURE_API_VM "&statusOnly=true");
    else
        tm_azure__path_of(c, ask->stage, NULL, &ask->arm);
    return again(c, ask, "GET", out, e);
}

/* VMs, then whether they run (now and then), then parts, then those that are missing. False: that was all. */
static bool next_look(struct tm_azure__cloud *c, struct tm_azure__ask *ask)
{
    switch (ask->stage) {
    case TM_AZURE_VM:
        ask->stage = TM_AZURE_NIC;
        if (c->power_ms <= now_of(c) && c->base.row_count > 0) {
            c->power_ms = now_of(c) + POWER_EVERY_MS;
            ask->stage = TM_AZURE_POWER;
        }
        return true;
    case TM_AZURE_POWER:
        ask->stage = TM_AZURE_NIC;
        return true;
    case TM_AZURE_NIC:
        ask->stage = TM_AZURE_DISK;
        return true;
    case TM_AZURE_DISK:
        ask->stage = TM_AZURE_ADDRESS;
        if (c->options.public_ip) return true;
        ask->at = 0;
        break;
    case TM_AZURE_ADDRESS:
        ask->at = 0;
        break;
    case TM_AZURE_CONFIRM:
        ask->at++;
        break;
    }
    ask->stage = TM_AZURE_CONFIRM;
    return find_missing(c, ask->at, &ask->at);
}

/* A VM that no list named: it is there all the same, or it has gone, and then its parts must. */
static int take_confirmed(struct tm_azure__cloud *c, size_t at, const struct reply *reply, struct tm_error *e)
{
    const struct tm_vm *vm = &c->base.vms.vms[at];
    struct tm_vm__row row;
    char run[32];
    if (reply->status == 200 && tm_azure__read_vm(reply->root, &row, run))
        return tm_vm_cloud__add_row(&c->base, &row, e);
    bool lag = vm->step == TM_VM_BOOTS && now_of(c) - vm->seen_ms < LAG_MS && !vm->ending && !vm->adopted;
    if (reply->status != 404 || lag) return 0;
    row = (struct tm_vm__row){.phase = has_part(c, vm->id) ? TM_VM_STOPPED : TM_VM_ENDED, .pool = -1};
    (void)snprintf(row.id, sizeof row.id, "%s", vm->id);
    (void)snprintf(row.token, sizeof row.token, "%s", vm->token);
    return tm_vm_cloud__add_row(&c->base, &row, e);
}

static int take_looked(struct tm_azure__cloud *c, size_t slot, const struct reply *reply, struct tm_web_call **out,
                       struct tm_error *e)
{
    struct tm_azure__ask *ask = &c->asks[slot];
    const json_t *items = NULL;
    const char *next = "";
    bool good = reply->status == 200 || (reply->status == 404 && ask->stage == TM_AZURE_CONFIRM);
    int rc = good ? 0 : -(int)TM_EPEER;
    if (rc == 0 && ask->stage == TM_AZURE_CONFIRM) {
        rc = take_confirmed(c, ask->at, reply, e);
    } else if (rc == 0) {
        rc = tm_azure__read_page(reply->root, &items, &next, NULL);
        for (size_t i = 0; rc == 0 && i < json_array_size(items); i++)
            rc = take_item(c, ask->stage, json_array_get(items, i), e);
    }
    if (rc == 0 && next[0] != '\0' && tm_arm_follow(&ask->arm, next)) {
        if (again(c, ask, "GET", out, NULL) == 0) return 0;
        rc = -(int)TM_EPEER;
    }
    if (rc == 0 && next[0] == '\0' && next_look(c, ask)) {
        if (begin_look(c, ask, out, NULL) == 0) return 0;
        rc = -(int)TM_EPEER;
    }
    if (next[0] != '\0') rc = -(int)TM_EPEER; /* a page that is not asked for may hold anything */
    if (rc != 0) tm_debug(TM_DEBUG_CLOUD, "Azure: list %d: %d %s", (int)ask->stage, reply->status, reply->why.message);
    return tm_vm_cloud__take_rows(&c->base, rc, e);
}

/* ---- calls ---- */

static int begin_object(struct tm_azure__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_azure__ask *ask = &c->asks[slot];
    const struct tm_vm__slot *s = &c->base.slots[slot];
    const char *method = s->call.kind == TM_VM_PUT_TICKET ? "PUT" : s->call.kind == TM_VM_DROP ? "DELETE" : "GET";
    tm_azure__make_object(c, s->call.at, tm_vm_cloud__object(&c->base, slot), method, ask->key, &ask->object);
    if (s->call.kind == TM_VM_PUT_TICKET) {
        ask->object.body = s->word;
        ask->object.length = strlen(s->word);
    }
    return tm_azure_begin(c->base.web, &ask->object, out, e);
}

static int azure_begin(void *self, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_azure__cloud *c = self;
    struct tm_azure__ask *ask = &c->asks[slot];
    ask->arm = (struct tm_arm_request){.arm = c->arm};
    tm_text_init(&ask->body, BODY_MAX);
    switch (call_of(c, slot)->kind) {
    case TM_VM_DESCRIBE:
        ask->stage = TM_AZURE_VM;
        c->part_count = 0;
        return begin_look(c, ask, out, e);
    case TM_VM_RUN:
        return begin_run(c, slot, out, e);
    case TM_VM_TERMINATE:
        ask->stage = TM_AZURE_VM;
        return begin_delete(c, slot, out, e);
    case TM_VM_FOLLOW:
        return begin_follow(c, slot, out, e);
    case TM_VM_PRICES:
        return tm_azure__begin_prices(c, slot, out, e);
    default:
        return begin_object(c, slot, out, e);
    }
}

static int azure_take(void *self, size_t slot, int rc, struct tm_web_answer *answer, const struct tm_error *why,
                      struct tm_web_call **out, struct tm_error *e)
{
    struct tm_azure__cloud *c = self;
    enum tm_vm__call_kind kind = call_of(c, slot)->kind;
    struct reply reply;
    int taken = read_reply(rc, answer, why, &reply, e);
    if (taken == 0 && reply.status >= 300)
        tm_debug(TM_DEBUG_CLOUD, "Azure: call %d: %d %s %s", (int)kind, reply.status, reply.why.code,
                 reply.why.message);
    if (taken == 0 && kind == TM_VM_DESCRIBE) taken = take_looked(c, slot, &reply, out, e);
    if (taken == 0 && kind == TM_VM_RUN)
        taken =
            take_made(c, slot, &reply, rc == 0 ? answer->operation : "", rc == 0 ? answer->retry_after_ms : 0, out, e);
    if (taken == 0 && kind == TM_VM_FOLLOW)
        taken = take_followed(c, slot, &reply, rc == 0 ? answer->retry_after_ms : 0, e);
    if (taken == 0 && kind == TM_VM_TERMINATE && take_deleted(c, slot, &reply, out) != 0) taken = tm_error_nomem(e);
    if (taken == 0 && kind == TM_VM_PRICES) taken = tm_azure__take_prices(c, slot, reply.root, out, e);
    json_decref(reply.root);
    if (rc == 0) tm_web_answer_deinit(answer);
    return taken;
}

static void azure_end(void *self, size_t slot)
{
    struct tm_azure__cloud *c = self;
    tm_text_deinit(&c->asks[slot].body);
}

/* ---- life ---- */

static void azure_destroy(void *self)
{
    struct tm_azure__cloud *c = self;
    for (size_t i = 0; i < c->operation_count; i++)
        tm_free(c->operations[i]);
    tm_free(c->operations);
    tm_free(c->parts);
    tm_azure_destroy(c->azure);
    tm_arm_destroy(c->arm);
    tm_free(c);
}

int tm_azure__create(struct tm_env *env, const struct tm_azure_options *options, struct tm_azure__cloud **out,
                     struct tm_error *e)
{
    struct tm_azure__cloud *c = tm_calloc(1, sizeof *c);
    if (c == NULL) return tm_error_nomem(e);
    const struct tm_vm__driver driver = {.self = c,
                                         .rules = &tm_azure__rules,
                                         .folder = "azure",
                                         .begin = azure_begin,
                                         .take = azure_take,
                                         .end = azure_end,
                                         .remove_rest = tm_azure__remove_firewall,
                                         .destroy = azure_destroy};
    c->options = *options;
    int rc = tm_vm_cloud__init(&c->base, env, &driver, &options->vm, e);
    if (rc == 0) rc = tm_arm_create(env, &c->arm, e);
    if (rc == 0) rc = tm_azure_create(env, &c->azure, e);
    if (rc == 0) rc = tm_azure__prepare(c, e);
    if (rc == 0)
        *out = c;
    else
        tm_azure__destroy(c);
    return rc;
}

void tm_azure__destroy(struct tm_azure__cloud *c)
{
    tm_vm_cloud__deinit(&c->base);
    azure_destroy(c);
}

int tm_azure_cloud_create(struct tm_env *env, const struct tm_azure_options *options, struct tm_cloud **out,
                          struct tm_error *e)
{
    struct tm_azure__cloud *c = NULL;
    int rc = tm_azure__create(env, options, &c, e);
    if (rc != 0) return rc;
    rc = tm_vm_cloud__open(&c->base, e);
    if (rc != 0) {
        tm_azure__destroy(c);
        return rc;
    }
    c->base.vms.unpriced = !tm_azure__has_prices(c);
    if (options->identity == NULL)
        tm_log(TM_LOG_WARN,
               "fleet.azure.identity is not set: a VM that loses this run powers off, which Azure bills on; "
               "`tidemill cloud clean` ends it");
    *out = &c->base.cloud;
    return 0;
}

int tm_azure_cloud_origin(struct tm_env *env, const char *region, char out[TM_VM_ORIGIN_MAX], struct tm_error *e)
{
    struct tm_arm *arm = NULL;
    (void)region;
    int rc = tm_arm_create(env, &arm, e);
    if (rc == 0) (void)snprintf(out, TM_VM_ORIGIN_MAX, "%s", tm_arm_endpoint(arm));
    tm_arm_destroy(arm);
    return rc;
}
