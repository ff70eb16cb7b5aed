#include "cloud/aws_cloud.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "cloud/aws_internal.h"

#include <stdio.h>
#include <string.h>

enum { ARENA_MAX = 256 << 20, FLEET_TRIES = 2, PRICE_PAGES_MAX = 1000 };

/* The driver's `self` is the cloud, which begins with what all clouds of VMs share. */

static struct tm_vm__call *call_of(struct tm_aws__cloud *c, size_t slot)
{
    return &c->shared.slots[slot].call;
}

/* ---- calls ---- */

static int begin_object(struct tm_aws__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_aws__slot *s = &c->slots[slot];
    const struct tm_vm__slot *about = &c->shared.slots[slot];
    bool put = about->call.kind == TM_VM_PUT_TICKET;
    const char *method = put ? "PUT" : about->call.kind == TM_VM_DROP ? "DELETE" : "GET";
    tm_aws__make_object(c, about->call.at, tm_vm_cloud__object(&c->shared, slot), method, s->key, &s->object);
    if (put) {
        s->object.body = about->word;
        s->object.length = strlen(about->word);
    }
    return tm_aws_begin(c->shared.web, &s->object, out, e);
}

static int aws_begin(void *self, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_aws__cloud *c = self;
    struct tm_aws__slot *s = &c->slots[slot];
    const struct tm_vm__call *call = call_of(c, slot);
    int rc = 0;
    *s = (struct tm_aws__slot){.is_fleet = false};
    switch (call->kind) {
    case TM_VM_DESCRIBE:
        tm_aws__make_describe(c, "", &s->ec2);
        break;
    case TM_VM_RUN:
        rc = tm_aws__make_run(c, call->at, &s->ec2, &s->then, e);
        break;
    case TM_VM_TERMINATE:
        tm_aws__make_terminate(c, call->at, &s->ec2);
        break;
    case TM_VM_PRICES:
        s->pages = 0;
        s->from_ms = tm_aws__prices_from(c);
        tm_aws__make_prices(c, s->from_ms, "", &s->ec2);
        break;
    case TM_VM_DROP_TEMPLATE:
        tm_aws__make_drop_template(c, call->at, &s->ec2);
        break;
    default:
        return begin_object(c, slot, out, e);
    }
    return rc == 0 ? tm_ec2__begin(&s->ec2, c->shared.web, out, e) : rc;
}

static void aws_end(void *self, size_t slot)
{
    struct tm_aws__cloud *c = self;
    tm_ec2__deinit(&c->slots[slot].ec2);
    tm_text_deinit(&c->slots[slot].then);
}

/* ---- answers ---- */

static int take_rows(struct tm_aws__cloud *c, const struct tm_xml *root, struct tm_error *e)
{
    const struct tm_xml *reservation = tm_xml_child(root, "reservationSet/item");
    for (; reservation != NULL; reservation = tm_xml_again(reservation)) {
        const struct tm_xml *one = tm_xml_child(reservation, "instancesSet/item");
        for (; one != NULL; one = tm_xml_again(one)) {
            struct tm_vm__row row;
            int rc = tm_aws__read_vm(one, &row) ? tm_vm_cloud__add_row(&c->shared, &row, e) : 0;
            if (rc != 0) return rc;
        }
    }
    return 0;
}

/* A page; the next follows, or all is known. */
static int take_described(struct tm_aws__cloud *c, size_t slot, int rc, const struct tm_xml *root,
                          struct tm_web_call **out, struct tm_error *e)
{
    struct tm_aws__slot *s = &c->slots[slot];
    if (rc == 0) rc = take_rows(c, root, e);
    (void)snprintf(s->next_page, sizeof s->next_page, "%.1000s", rc == 0 ? tm_xml_text(root, "nextToken") : "");
    if (s->next_page[0] == '\0') return tm_vm_cloud__take_rows(&c->shared, rc, e);
    tm_ec2__deinit(&s->ec2);
    tm_aws__make_describe(c, s->next_page, &s->ec2);
    return tm_vm_cloud__go_on(&c->shared, slot, tm_ec2__begin(&s->ec2, c->shared.web, out, e), e);
}

/* A page; the next follows, or all that could be had is known. */
static int take_prices(struct tm_aws__cloud *c, size_t slot, int rc, const struct tm_xml *root,
                       struct tm_web_call **out, struct tm_error *e)
{
    struct tm_aws__slot *s = &c->slots[slot];
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "spotPriceHistorySet/item") : NULL;
    for (; one != NULL; one = tm_xml_again(one)) {
        struct tm_vm__price price;
        if (tm_aws__read_price(one, &price)) tm_vms__priced(&c->shared.vms, &price);
    }
    (void)snprintf(s->next_page, sizeof s->next_page, "%.1000s", rc == 0 ? tm_xml_text(root, "nextToken") : "");
    if (s->next_page[0] == '\0' || ++s->pages == PRICE_PAGES_MAX) {
        tm_vms__all_priced(&c->shared.vms, tm_vm_cloud__now_ms(&c->shared));
        return 0;
    }
    tm_ec2__deinit(&s->ec2);
    tm_aws__make_prices(c, s->from_ms, s->next_page, &s->ec2);
    return tm_vm_cloud__go_on(&c->shared, slot, tm_ec2__begin(&s->ec2, c->shared.web, out, e), e);
}

/* The template is there: the fleet that takes it. */
static int begin_fleet(struct tm_aws__cloud *c, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_aws__slot *s = &c->slots[slot];
    c->shared.vms.vms[call_of(c, slot)->at].templated = true;
    tm_ec2__deinit(&s->ec2);
    tm_ec2__init(&s->ec2, c->aws, NULL, "CreateFleet");
    s->ec2.request.tries_max = FLEET_TRIES;
    tm_text_clear(&s->ec2.form);
    tm_text_puts(&s->ec2.form, tm_text_string(&s->then));
    tm_text_clear(&s->then);
    s->is_fleet = true;
    return tm_vm_cloud__go_on(&c->shared, slot, tm_ec2__begin(&s->ec2, c->shared.web, out, e), e);
}

static int take_rented(struct tm_aws__cloud *c, size_t slot, int rc, const struct tm_xml *root, const char *code,
                       const struct tm_error *why, struct tm_web_call **out, struct tm_error *e)
{
    struct tm_vm__row row;
    const struct tm_aws__slot *s = &c->slots[slot];
    size_t at = call_of(c, slot)->at;
    int64_t now_ms = tm_vm_cloud__now_ms(&c->shared);
    bool named = strcmp(code, "InvalidLaunchTemplateName.AlreadyExistsException") == 0;
    if (s->then.length > 0 && (rc == 0 || named)) return begin_fleet(c, slot, out, e); /* the name is ours alone */
    if (rc == 0 && s->is_fleet) return tm_aws__take_fleet(c, at, root, now_ms, e);
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "instancesSet/item") : NULL;
    if (one != NULL && tm_aws__read_vm(one, &row)) {
        tm_vms__rented(&c->shared.vms, at, &row, now_ms);
        return 0;
    }
    return tm_vms__refused(&c->shared.vms, at, code, rc != 0 ? why->text : "an answer without an instance", now_ms, e);
}

static int aws_take(void *self, size_t slot, int rc, struct tm_web_answer *answer, const struct tm_error *why,
                    struct tm_web_call **out, struct tm_error *e)
{
    struct tm_aws__cloud *c = self;
    const struct tm_vm__call *call = call_of(c, slot);
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    struct tm_error own = *why;
    char code[128];
    tm_arena_init(&arena, ARENA_MAX);
    rc = tm_ec2__take(&c->slots[slot].ec2, rc, answer, &arena, &root, code, &own);
    if (rc != 0) tm_debug(TM_DEBUG_CLOUD, "aws: call %d: %s", (int)call->kind, own.text);
    int taken = rc == -(int)TM_ENOMEM ? tm_error_nomem(e) : 0;
    if (taken == 0 && call->kind == TM_VM_DESCRIBE) taken = take_described(c, slot, rc, root, out, e);
    if (taken == 0 && call->kind == TM_VM_RUN) taken = take_rented(c, slot, rc, root, code, &own, out, e);
    if (taken == 0 && call->kind == TM_VM_PRICES) taken = take_prices(c, slot, rc, root, out, e);
    if (call->kind == TM_VM_TERMINATE)
        tm_vms__terminated(&c->shared.vms, call->at, rc == 0 || code[0] != '\0', code, tm_vm_cloud__now_ms(&c->shared));
    tm_arena_deinit(&arena);
    return taken;
}

/* ---- life ---- */

static void aws_destroy(void *self)
{
    struct tm_aws__cloud *c = self;
    tm_aws_destroy(c->aws);
    tm_free(c->slots);
    tm_free(c);
}

int tm_aws__create(struct tm_env *env, const struct tm_aws_options *options, struct tm_aws__cloud **out,
                   struct tm_error *e)
{
    struct tm_aws__cloud *c = tm_calloc(1, sizeof *c);
    if (c == NULL) return tm_error_nomem(e);
    const struct tm_vm__driver driver = {.self = c,
                                         .rules = &tm_aws__rules,
                                         .folder = "aws",
                                         .begin = aws_begin,
                                         .take = aws_take,
                                         .end = aws_end,
                                         .remove_rest = tm_aws__remove_rest,
                                         .destroy = aws_destroy};
    c->options = *options;
    c->slots = tm_calloc(TM_VM_CALLS_MAX, sizeof *c->slots);
    if (c->slots == NULL) {
        tm_free(c);
        return tm_error_nomem(e);
    }
    int rc = tm_vm_cloud__init(&c->shared, env, &driver, &options->common, e);
    if (rc == 0) rc = tm_aws_create(env, options->region, &c->aws, e);
    if (rc == 0) rc = tm_aws__prepare(c, e);
    if (rc == 0)
        *out = c;
    else
        tm_aws__destroy(c);
    return rc;
}

void tm_aws__destroy(struct tm_aws__cloud *c)
{
    tm_vm_cloud__deinit(&c->shared);
    aws_destroy(c);
}

int tm_aws_cloud_create(struct tm_env *env, const struct tm_aws_options *options, struct tm_cloud **out,
                        struct tm_error *e)
{
    struct tm_aws__cloud *c = NULL;
    int rc = tm_aws__create(env, options, &c, e);
    if (rc != 0) return rc;
    rc = tm_vm_cloud__open(&c->shared, e);
    if (rc == 0)
        *out = &c->shared.cloud;
    else
        tm_aws__destroy(c);
    return rc;
}

int tm_aws_cloud_origin(struct tm_env *env, const char *region, char out[TM_VM_ORIGIN_MAX], struct tm_error *e)
{
    struct tm_aws *aws = NULL;
    char origin[TM_AWS_ORIGIN_MAX] = "";
    int rc = tm_aws_create(env, region, &aws, e);
    if (rc == 0) rc = tm_aws_origin(aws, "ec2", origin, e);
    tm_aws_destroy(aws);
    if (rc == 0) (void)snprintf(out, TM_VM_ORIGIN_MAX, "%s", origin);
    return rc;
}
