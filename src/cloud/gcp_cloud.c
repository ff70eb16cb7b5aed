#include "cloud/gcp_cloud.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "cloud/gcp_internal.h"

#include <stdio.h>
#include <string.h>

/* The driver's `self` is the cloud, which begins with what all clouds of VMs share. */

static struct tm_vm__call *call_of(struct tm_gcp__cloud *c, size_t slot)
{
    return &c->shared.slots[slot].call;
}

static int begin_request(struct tm_gcp__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    return tm_gcp_begin(c->shared.web, &c->slots[slot].request, out, e);
}

/* The call goes on with another request. */
static int go_on(struct tm_gcp__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    return tm_vm_cloud__go_on(&c->shared, slot, begin_request(c, slot, out, e), e);
}

static int gcp_begin(void *self, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_gcp__cloud *c = self;
    struct tm_gcp__slot *s = &c->slots[slot];
    int rc = 0;
    tm_text_init(&s->body, 0);
    tm_text_init(&s->script, 0);
    s->stage = 0;
    s->page[0] = '\0';
    switch (call_of(c, slot)->kind) {
    case TM_VM_DESCRIBE:
        tm_gcp__make_list(c, slot);
        break;
    case TM_VM_RUN:
        rc = tm_gcp__make_insert(c, slot, e);
        break;
    case TM_VM_TERMINATE:
        tm_gcp__make_delete(c, slot);
        break;
    case TM_VM_PRICES:
        return tm_gcp__begin_prices(c, slot, out, e);
    default:
        tm_gcp__make_object(c, slot);
        break;
    }
    return rc == 0 ? begin_request(c, slot, out, e) : rc;
}

static void gcp_end(void *self, size_t slot)
{
    struct tm_gcp__cloud *c = self;
    tm_text_deinit(&c->slots[slot].body);
    tm_text_deinit(&c->slots[slot].script);
}

/* ---- what an answer says ---- */

struct said {
    json_t *root; /* NULL: nothing that can be read; owned */
    int status;
    char code[128]; /* "": there was no answer, or it is none */
    char message[512];
};

/* Takes the answer's memory. -TM_ENOMEM. */
static int read_answer(int rc, struct tm_web_answer *answer, const struct tm_error *why, struct said *out,
                       struct tm_error *e)
{
    struct tm_gcp_refusal refusal = {.code = ""};
    struct tm_error own = {.text = ""};
    *out = (struct said){.status = 0};
    if (rc != 0) {
        (void)snprintf(out->message, sizeof out->message, "%.500s", why->text);
        return rc == -(int)TM_ENOMEM ? tm_error_nomem(e) : 0;
    }
    out->status = answer->status;
    if (answer->status >= 200 && answer->status < 300) {
        rc = tm_json_load("answer", tm_text_string(&answer->body), answer->body.length, &out->root, &own);
        if (rc != 0) (void)snprintf(out->message, sizeof out->message, "an answer that is not JSON");
    } else {
        rc = tm_gcp_refusal(answer, &refusal, &own);
        const char *usual = answer->status == 401   ? "authError"
                            : answer->status == 403 ? "forbidden"
                            : answer->status == 404 ? "notFound"
                                                    : "";
        (void)snprintf(out->code, sizeof out->code, "%s", refusal.code[0] != '\0' ? refusal.code : usual);
        (void)snprintf(out->message, sizeof out->message, "Google answers %d %s: %.300s", answer->status, refusal.code,
                       refusal.message);
    }
    tm_web_answer_deinit(answer);
    return rc == -(int)TM_ENOMEM ? tm_error_nomem(e) : 0;
}

/* ---- renting ---- */

/* Nothing there now: the next zone of the region, at once, or the pool waits. */
static int take_refusal(struct tm_gcp__cloud *c, size_t slot, const char *code, const char *words,
                        struct tm_web_call **out, struct tm_error *e)
{
    bool more = false;
    if (tm_gcp__remedy_of(code) == TM_VM_ELSEWHERE) {
        tm_debug(TM_DEBUG_CLOUD, "gcp: %s: %s", c->slots[slot].zone, words);
        int rc = tm_gcp__make_elsewhere(c, slot, &more, e);
        if (rc != 0) return tm_vm_cloud__go_on(&c->shared, slot, rc, e); /* asked for again later */
    }
    if (more) return go_on(c, slot, out, e);
    return tm_vms__refused(&c->shared.vms, call_of(c, slot)->at, code, words, tm_vm_cloud__now_ms(&c->shared), e);
}

/* It is there: as it says itself, or, where that was not heard, as it was asked for. */
static void take_rented(struct tm_gcp__cloud *c, size_t slot, const json_t *root)
{
    size_t at = call_of(c, slot)->at;
    const struct tm_vm *vm = &c->shared.vms.vms[at];
    struct tm_vm__row row;
    if (root == NULL || !tm_gcp__read_vm(root, &row)) {
        row = (struct tm_vm__row){.phase = TM_VM_RUNS};
        (void)snprintf(row.id, sizeof row.id, "%.27s/%.36s", c->slots[slot].zone, vm->token);
        (void)snprintf(row.token, sizeof row.token, "%s", vm->token);
        (void)snprintf(row.zone, sizeof row.zone, "%s", c->slots[slot].zone);
    }
    tm_vms__rented(&c->shared.vms, at, &row, tm_vm_cloud__now_ms(&c->shared));
}

/* Its operation has failed, and Google names that operation to whoever asks with its requestId again: so it is not
 * repeated. What may be there all the same is deleted, and another VM, of another name, comes later. */
static int take_failed(struct tm_gcp__cloud *c, size_t slot, const struct tm_gcp__operation *op, struct tm_error *e)
{
    size_t at = call_of(c, slot)->at;
    struct tm_vm *vm = &c->shared.vms.vms[at];
    (void)snprintf(vm->id, sizeof vm->id, "%.27s/%.36s", c->slots[slot].zone, vm->token);
    vm->kept = false;
    return tm_vms__failed(&c->shared.vms, at, op->code, op->message, tm_vm_cloud__now_ms(&c->shared), e);
}

/* An insert, the wait for its operation, or what it has made. */
static int take_insert(struct tm_gcp__cloud *c, size_t slot, const struct said *said, struct tm_web_call **out,
                       struct tm_error *e)
{
    struct tm_gcp__operation op;
    size_t at = call_of(c, slot)->at;
    if (c->slots[slot].stage == 2) {
        take_rented(c, slot, said->root);
        return 0;
    }
    if (said->root == NULL) { /* an operation that is not there any more is asked for again, too */
        const char *code = c->slots[slot].stage == 1 && said->status == 404 ? "" : said->code;
        return take_refusal(c, slot, code, said->message, out, e);
    }
    if (!tm_gcp__read_operation(said->root, &op))
        return tm_vms__refused(&c->shared.vms, at, "", "an answer without an operation",
                               tm_vm_cloud__now_ms(&c->shared), e);
    if (!op.done) {
        tm_gcp__make_wait(c, slot, op.name);
        return go_on(c, slot, out, e);
    }
    if (op.code[0] != '\0' && tm_gcp__remedy_of(op.code) == TM_VM_AGAIN) return take_failed(c, slot, &op, e);
    if (op.code[0] != '\0') return take_refusal(c, slot, op.code, op.message, out, e);
    tm_gcp__make_get(c, slot);
    return go_on(c, slot, out, e);
}

/* A delete, or the wait for its operation: the next look tells that it has gone. */
static int take_delete(struct tm_gcp__cloud *c, size_t slot, const struct said *said, struct tm_web_call **out,
                       struct tm_error *e)
{
    struct tm_gcp__operation op = {.done = true};
    size_t at = call_of(c, slot)->at;
    bool gone = said->status == 404 && c->slots[slot].stage == 0;
    if (said->root != NULL && !tm_gcp__read_operation(said->root, &op)) op.done = true;
    if (said->root != NULL && !op.done) {
        tm_gcp__make_wait(c, slot, op.name);
        return go_on(c, slot, out, e);
    }
    bool answered = said->root != NULL || said->code[0] != '\0';
    const char *code = gone ? "" : said->root != NULL ? op.code : said->code;
    tm_vms__terminated(&c->shared.vms, at, answered, code, tm_vm_cloud__now_ms(&c->shared));
    return 0;
}

/* ---- looking ---- */

static struct tm_vm__row *find_row(struct tm_gcp__cloud *c, const char *id)
{
    for (size_t i = 0; i < c->shared.row_count; i++)
        if (strcmp(c->shared.rows[i].id, id) == 0) return &c->shared.rows[i];
    return NULL;
}

static const struct tm_vm *find_vm(const struct tm_gcp__cloud *c, const char *id)
{
    for (size_t i = 0; i < c->shared.vms.count; i++)
        if (!c->shared.vms.vms[i].over && strcmp(c->shared.vms.vms[i].id, id) == 0) return &c->shared.vms.vms[i];
    return NULL;
}

/* One that is missing in the list, or about to go, and nobody has said why. */
static bool has_questions(struct tm_gcp__cloud *c)
{
    for (size_t i = 0; i < c->shared.vms.count; i++) {
        const struct tm_vm *vm = &c->shared.vms.vms[i];
        const struct tm_vm__row *row = vm->over || vm->id[0] == '\0' ? NULL : find_row(c, vm->id);
        bool leaves = row != NULL && (row->phase != TM_VM_RUNS || strcmp(row->reason, "STOPPING") == 0);
        if (!vm->over && vm->id[0] != '\0' && (row == NULL || leaves)) return true;
    }
    return false;
}

/* An operation says what became of one of ours. */
static int take_event(struct tm_gcp__cloud *c, const json_t *item, struct tm_error *e)
{
    struct tm_gcp__operation op;
    if (!tm_gcp__read_operation(item, &op) || op.target[0] == '\0' || !op.done || op.code[0] != '\0') return 0;
    const struct tm_vm *vm = find_vm(c, op.target);
    struct tm_vm__row *row = find_row(c, op.target);
    bool preempted = strcmp(op.kind, "compute.instances.preempted") == 0;
    if (vm == NULL) return 0;
    if (row != NULL) {
        row->interrupted = row->interrupted || preempted;
        row->itself = row->itself || strcmp(op.kind, "compute.instances.guestTerminate") == 0;
        if (preempted && row->phase == TM_VM_RUNS) row->phase = TM_VM_ENDED; /* Google deletes it */
        return 0;
    }
    struct tm_vm__row gone = {.pool = -1, .phase = TM_VM_ENDED, .interrupted = preempted};
    (void)snprintf(gone.id, sizeof gone.id, "%s", op.target);
    (void)snprintf(gone.token, sizeof gone.token, "%s", vm->token);
    (void)snprintf(gone.reason, sizeof gone.reason, "%s", op.kind);
    return tm_vm_cloud__add_row(&c->shared, &gone, e);
}

static int take_page(struct tm_gcp__cloud *c, size_t slot, const json_t *root, struct tm_error *e)
{
    int stage = c->slots[slot].stage;
    json_t *zones = json_object_get(root, "items");
    const char *zone = NULL;
    json_t *part = NULL;
    int rc = 0;
    json_object_foreach(zones, zone, part)
    {
        const json_t *items = json_object_get(part, stage == 0 ? "instances" : "operations");
        for (size_t i = 0; rc == 0 && i < json_array_size(items); i++) {
            struct tm_vm__row row;
            const json_t *item = json_array_get(items, i);
            if (stage > 0)
                rc = take_event(c, item, e);
            else if (tm_gcp__read_vm(item, &row))
                rc = tm_vm_cloud__add_row(&c->shared, &row, e);
        }
    }
    return rc;
}

static int take_list(struct tm_gcp__cloud *c, size_t slot, const struct said *said, struct tm_web_call **out,
                     struct tm_error *e)
{
    struct tm_gcp__slot *s = &c->slots[slot];
    if (said->root == NULL && s->stage == 0) {
        tm_debug(TM_DEBUG_CLOUD, "gcp: no list: %s", said->message);
        return tm_vm_cloud__take_rows(&c->shared, -(int)TM_EPEER, e);
    }
    int rc = said->root != NULL ? take_page(c, slot, said->root, e) : 0;
    const char *more = json_string_value(json_object_get(said->root, "nextPageToken"));
    bool next = more != NULL && more[0] != '\0' && strlen(more) < sizeof s->page;
    if (rc != 0) return rc;
    (void)snprintf(s->page, sizeof s->page, "%s", next ? more : "");
    if (!next) s->stage++;
    if (!next && (tm_gcp__stage(s->stage) == NULL || !has_questions(c)))
        return tm_vm_cloud__take_rows(&c->shared, 0, e);
    tm_gcp__make_list(c, slot);
    return go_on(c, slot, out, e);
}

static int gcp_take(void *self, size_t slot, int rc, struct tm_web_answer *answer, const struct tm_error *why,
                    struct tm_web_call **out, struct tm_error *e)
{
    struct tm_gcp__cloud *c = self;
    struct said said;
    rc = read_answer(rc, answer, why, &said, e);
    if (rc == 0 && call_of(c, slot)->kind == TM_VM_DESCRIBE) rc = take_list(c, slot, &said, out, e);
    if (rc == 0 && call_of(c, slot)->kind == TM_VM_RUN) rc = take_insert(c, slot, &said, out, e);
    if (rc == 0 && call_of(c, slot)->kind == TM_VM_TERMINATE) rc = take_delete(c, slot, &said, out, e);
    if (rc == 0 && call_of(c, slot)->kind == TM_VM_PRICES)
        rc = tm_gcp__take_prices(c, slot, said.root, said.message, out, e);
    json_decref(said.root);
    return rc;
}

/* ---- life ---- */

static void remove_rest(void *self)
{
    tm_gcp__remove_rules(self);
}

static void gcp_destroy(void *self)
{
    struct tm_gcp__cloud *c = self;
    tm_gcp_destroy(c->gcp);
    tm_catalog_deinit(&c->catalog);
    tm_free(c->slots);
    tm_free(c);
}

static void find_region(struct tm_gcp__cloud *c)
{
    struct tm_env *env = c->shared.env;
    const char *place = c->options.region;
    if (place == NULL) place = env->variable(env, "CLOUDSDK_COMPUTE_REGION");
    if (place == NULL) place = env->variable(env, "CLOUDSDK_COMPUTE_ZONE");
    (void)snprintf(c->region, sizeof c->region, "%.63s", place != NULL ? place : "");
}

int tm_gcp__create(struct tm_env *env, const struct tm_gcp_options *options, struct tm_gcp__cloud **out,
                   struct tm_error *e)
{
    struct tm_gcp__cloud *c = tm_calloc(1, sizeof *c);
    if (c == NULL) return tm_error_nomem(e);
    const struct tm_vm__driver driver = {.self = c,
                                         .rules = &tm_gcp__rules,
                                         .folder = "gcp",
                                         .begin = gcp_begin,
                                         .take = gcp_take,
                                         .end = gcp_end,
                                         .remove_rest = remove_rest,
                                         .destroy = gcp_destroy};
    c->options = *options;
    c->slots = tm_calloc(TM_VM_CALLS_MAX, sizeof *c->slots);
    if (c->slots == NULL) {
        tm_free(c);
        return tm_error_nomem(e);
    }
    int rc = tm_vm_cloud__init(&c->shared, env, &driver, &options->common, e);
    tm_catalog_init(&c->catalog);
    find_region(c);
    if (rc == 0) rc = tm_catalog_load(env, &c->catalog, e);
    if (rc == 0) rc = tm_gcp_create(env, &c->gcp, e);
    if (rc == 0) rc = tm_gcp__prepare(c, e);
    if (rc == 0)
        *out = c;
    else
        tm_gcp__destroy(c);
    return rc;
}

void tm_gcp__destroy(struct tm_gcp__cloud *c)
{
    tm_vm_cloud__deinit(&c->shared);
    gcp_destroy(c);
}

int tm_gcp_cloud_create(struct tm_env *env, const struct tm_gcp_options *options, struct tm_cloud **out,
                        struct tm_error *e)
{
    struct tm_gcp__cloud *c = NULL;
    int rc = tm_gcp__create(env, options, &c, e);
    if (rc != 0) return rc;
    rc = tm_vm_cloud__open(&c->shared, e);
    if (rc == 0)
        *out = &c->shared.cloud;
    else
        tm_gcp__destroy(c);
    return rc;
}

int tm_gcp_cloud_origin(struct tm_env *env, const char *region, char out[TM_VM_ORIGIN_MAX], struct tm_error *e)
{
    struct tm_gcp *gcp = NULL;
    (void)region;
    int rc = tm_gcp_create(env, &gcp, e);
    if (rc == 0) (void)snprintf(out, TM_VM_ORIGIN_MAX, "%s", tm_gcp_base(gcp, TM_GCP_COMPUTE));
    tm_gcp_destroy(gcp);
    return rc;
}
