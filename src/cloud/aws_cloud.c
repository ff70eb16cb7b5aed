#include "cloud/aws_cloud.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"
#include "cloud/aws_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LOOK_MS = 200, /* at who has joined */
    SEND_MS = 20,  /* loops watch for what can be received only */
    END_LIMIT_MS = 120000,
    LAST_LIMIT_MS = 10000, /* for the last outputs */
    WATCHES_MAX = 3 * TM_WEB_CALLS_MAX,
    ARENA_MAX = 256 << 20,
    ROWS_MAX = 1 << 18
};

static struct tm_aws__cloud *of(const struct tm_cloud *cloud)
{
    return cloud->self;
}

static int64_t time_ms(const struct tm_aws__cloud *c)
{
    return (c->env->monotonic_ns(c->env) - c->start_ns) / 1000000;
}

/* ---- answers ---- */

static int add_row(struct tm_aws__cloud *c, const struct tm_xml *item, struct tm_error *e)
{
    struct tm_vm__row row;
    if (!tm_aws__read_vm(item, &row)) return 0;
    int rc = tm_grow((void **)&c->rows, &c->row_capacity, c->row_count + 1, sizeof row, ROWS_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "AWS names more than %d instances of one run", ROWS_MAX);
    c->rows[c->row_count++] = row;
    return 0;
}

/* A page; the next follows, or all is known. */
static int take_described(struct tm_aws__cloud *c, int rc, const struct tm_xml *root, struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    const struct tm_xml *reservation = rc == 0 ? tm_xml_child(root, "reservationSet/item") : NULL;
    for (; rc == 0 && reservation != NULL; reservation = tm_xml_again(reservation)) {
        const struct tm_xml *one = tm_xml_child(reservation, "instancesSet/item");
        for (; rc == 0 && one != NULL; one = tm_xml_again(one))
            rc = add_row(c, one, &own);
    }
    (void)snprintf(c->next_page, sizeof c->next_page, "%s", rc == 0 ? tm_xml_text(root, "nextToken") : "");
    if (c->next_page[0] != '\0') return 0;
    static const struct tm_vm__row none;
    const struct tm_vm__row *rows = rc != 0 ? NULL : c->row_count > 0 ? c->rows : &none;
    int taken = tm_vms__described(&c->vms, rows, c->row_count, time_ms(c), e);
    c->row_count = 0;
    return rc == -(int)TM_ENOMEM ? tm_error_nomem(e) : taken;
}

static void take_prices(struct tm_aws__cloud *c, int rc, const struct tm_xml *root)
{
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "spotPriceHistorySet/item") : NULL;
    for (; one != NULL; one = tm_xml_again(one)) {
        struct tm_vm__price price;
        if (tm_aws__read_price(one, &price)) tm_vms__priced(&c->vms, &price, time_ms(c));
    }
    for (int i = 0; i < c->options.pool_count; i++)
        c->pools[i].price_usd_h = c->vms.pools[i].price_usd_h;
    tm_vms__all_priced(&c->vms, time_ms(c));
}

static int take_rented(struct tm_aws__cloud *c, struct tm_aws__slot *slot, int rc, const struct tm_xml *root,
                       const char *code, const struct tm_error *why, struct tm_error *e)
{
    struct tm_vm__row row;
    size_t at = slot->call.at;
    bool named = strcmp(code, "InvalidLaunchTemplateName.AlreadyExistsException") == 0;
    if (slot->then.length > 0 && (rc == 0 || named)) { /* a template, and the name is ours alone */
        c->vms.vms[at].templated = slot->then_due = true;
        return 0;
    }
    if (rc == 0 && slot->is_fleet) return tm_aws__take_fleet(c, at, root, time_ms(c), e);
    const struct tm_xml *one = rc == 0 ? tm_xml_child(root, "instancesSet/item") : NULL;
    if (one != NULL && tm_aws__read_vm(one, &row)) {
        tm_vms__rented(&c->vms, at, &row, time_ms(c));
        return 0;
    }
    return tm_vms__refused(&c->vms, at, code, rc != 0 ? why->text : "an answer without an instance", time_ms(c), e);
}

static int take_ec2(struct tm_aws__cloud *c, struct tm_aws__slot *slot, int rc, struct tm_web_answer *answer,
                    struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    struct tm_error own = *e;
    char code[128];
    tm_arena_init(&arena, ARENA_MAX);
    rc = tm_ec2__take(&slot->ec2, rc, answer, &arena, &root, code, &own);
    if (rc != 0) tm_debug(TM_DEBUG_CLOUD, "aws: call %d: %s", (int)slot->call.kind, own.text);
    int taken = rc == -(int)TM_ENOMEM ? tm_error_nomem(e) : 0;
    if (taken == 0 && slot->call.kind == TM_VM_DESCRIBE) taken = take_described(c, rc, root, e);
    if (taken == 0 && slot->call.kind == TM_VM_RUN) taken = take_rented(c, slot, rc, root, code, &own, e);
    if (slot->call.kind == TM_VM_PRICES) take_prices(c, rc, root);
    if (slot->call.kind == TM_VM_TERMINATE)
        tm_vms__terminated(&c->vms, slot->call.at, rc == 0 || code[0] != '\0', code, time_ms(c));
    tm_arena_deinit(&arena);
    return taken;
}

static void keep_log(struct tm_aws__cloud *c, size_t at, const struct tm_text *text)
{
    char path[TM_AWS_PATH_MAX];
    struct tm_error e;
    (void)snprintf(path, sizeof path, "%.1000s/worker-%" PRIu64 ".log", c->options.log_dir, c->vms.instances[at].id);
    if (c->env->file_write_private(c->env, path, tm_text_string(text), text->length, &e) != 0)
        tm_log(TM_LOG_WARN, "the output of instance %" PRIu64 " could not be kept: %s", c->vms.instances[at].id,
               e.text);
}

static void take_object(struct tm_aws__cloud *c, struct tm_aws__slot *slot, int rc, struct tm_web_answer *answer)
{
    struct tm_vm *vm = &c->vms.vms[slot->call.at];
    bool good = rc == 0 && answer->status < 300;
    if (slot->call.kind == TM_VM_PUT_TICKET && !good) {
        vm->ticket_due = true;
        vm->retry_ms = time_ms(c) + 5000;
    }
    if (slot->call.kind == TM_VM_GET_LOG && good) keep_log(c, slot->call.at, &answer->body);
    if (slot->call.kind == TM_VM_GET_LOG && vm->over) vm->drops_due = vm->adopted ? 2 : 1;
    if (rc == 0) tm_web_answer_deinit(answer);
}

static bool is_object(const struct tm_aws__slot *slot)
{
    return slot->call.kind >= TM_VM_PUT_TICKET;
}

static int give_up_call(struct tm_aws__cloud *c, struct tm_aws__slot *slot, int rc, struct tm_error *e);

/* The template is there: the fleet that takes it. */
static int begin_fleet(struct tm_aws__cloud *c, struct tm_aws__slot *slot, struct tm_error *e)
{
    tm_ec2__init(&slot->ec2, c->aws, NULL, "CreateFleet");
    slot->ec2.request.tries_max = 2;
    tm_text_clear(&slot->ec2.form);
    tm_text_puts(&slot->ec2.form, tm_text_string(&slot->then));
    tm_text_deinit(&slot->then);
    slot->then_due = false;
    slot->is_fleet = true;
    int rc = tm_ec2__begin(&slot->ec2, c->web, &slot->begun, e);
    slot->used = rc == 0;
    return rc == 0 ? 0 : give_up_call(c, slot, rc, e);
}

static int take_answers(struct tm_aws__cloud *c, struct tm_error *e)
{
    int taken = 0;
    for (size_t i = 0; taken == 0 && i < TM_AWS_CALLS_MAX; i++) {
        struct tm_aws__slot *slot = &c->slots[i];
        struct tm_web_answer answer = {.status = 0};
        struct tm_error own = {.text = ""};
        if (!slot->used || !tm_web_is_done(slot->begun)) continue;
        int rc = tm_web_end(slot->begun, &answer, &own);
        slot->used = false;
        if (is_object(slot)) {
            take_object(c, slot, rc, &answer);
            continue;
        }
        taken = take_ec2(c, slot, rc, &answer, &own);
        tm_ec2__deinit(&slot->ec2);
        if (taken == 0 && slot->then_due)
            taken = begin_fleet(c, slot, &own);
        else
            tm_text_deinit(&slot->then);
        if (taken != 0 && e != NULL) *e = own;
    }
    return taken;
}

/* ---- calls ---- */

static int make_object(struct tm_aws__cloud *c, struct tm_aws__slot *slot, struct tm_error *e)
{
    const struct tm_cloud_instance *instance = &c->vms.instances[slot->call.at];
    if (slot->call.kind == TM_VM_GET_LOG || slot->call.kind == TM_VM_DROP) {
        bool log = slot->call.kind == TM_VM_GET_LOG || c->vms.vms[slot->call.at].drops_due == 0;
        tm_aws__make_object(c, slot->call.at, log ? "log" : "ticket", slot->call.kind == TM_VM_DROP ? "DELETE" : "GET",
                            slot->key, &slot->object);
        return 0;
    }
    bool on_demand = instance->kind == TM_INSTANCE_ON_DEMAND;
    int rc = c->options.ticket(c->options.context, instance->id, on_demand, slot->word, e);
    tm_aws__make_object(c, slot->call.at, "ticket", "PUT", slot->key, &slot->object);
    slot->object.body = slot->word;
    slot->object.length = strlen(slot->word);
    return rc;
}

static int make_call(struct tm_aws__cloud *c, struct tm_aws__slot *slot, struct tm_error *e)
{
    slot->then = (struct tm_text){.data = NULL};
    slot->is_fleet = slot->then_due = false;
    switch (slot->call.kind) {
    case TM_VM_DESCRIBE:
        tm_aws__make_describe(c, &slot->ec2);
        return 0;
    case TM_VM_RUN:
        return tm_aws__make_run(c, slot->call.at, &slot->ec2, &slot->then, e);
    case TM_VM_TERMINATE:
        tm_aws__make_terminate(c, slot->call.at, &slot->ec2);
        return 0;
    case TM_VM_PRICES:
        tm_aws__make_prices(c, &slot->ec2);
        return 0;
    case TM_VM_DROP_TEMPLATE:
        tm_aws__make_drop_template(c, slot->call.at, &slot->ec2);
        return 0;
    default:
        return make_object(c, slot, e);
    }
}

/* What could not be asked: as if nobody had answered. */
static int give_up_call(struct tm_aws__cloud *c, struct tm_aws__slot *slot, int rc, struct tm_error *e)
{
    size_t at = slot->call.at;
    if (!is_object(slot)) tm_ec2__deinit(&slot->ec2);
    tm_text_deinit(&slot->then);
    if (rc == -(int)TM_ENOMEM || rc == -(int)TM_ELIMIT) return rc;
    tm_log(TM_LOG_WARN, "AWS could not be asked, retrying: %s", e->text);
    switch (slot->call.kind) {
    case TM_VM_DESCRIBE:
        c->next_page[0] = '\0';
        c->row_count = 0;
        return tm_vms__described(&c->vms, NULL, 0, time_ms(c), e);
    case TM_VM_RUN:
        tm_vms__unmade(&c->vms, at, time_ms(c));
        return 0;
    case TM_VM_PRICES:
        tm_vms__all_priced(&c->vms, time_ms(c));
        return 0;
    case TM_VM_PUT_TICKET:
        c->vms.vms[at].ticket_due = true;
        c->vms.vms[at].retry_ms = time_ms(c) + 5000;
        return 0;
    default: /* ended again, or not so important */
        return 0;
    }
}

static int begin(struct tm_aws__cloud *c, struct tm_aws__slot *slot, struct tm_error *e)
{
    int rc = make_call(c, slot, e);
    if (rc == 0)
        rc = is_object(slot) ? tm_aws_begin(c->web, &slot->object, &slot->begun, e)
                             : tm_ec2__begin(&slot->ec2, c->web, &slot->begun, e);
    slot->used = rc == 0;
    return rc == 0 ? 0 : give_up_call(c, slot, rc, e);
}

/* What is known is written down before anything else is asked. */
static int keep_notes(struct tm_aws__cloud *c, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->vms.count; i++) {
        const struct tm_vm *vm = &c->vms.vms[i];
        if (vm->over && !vm->dropped)
            tm_aws__drop_note(c, i);
        else if (!vm->over && !vm->kept && vm->id[0] != '\0')
            rc = tm_aws__write_note(c, i, NULL, e);
    }
    return rc;
}

static struct tm_aws__slot *free_slot(struct tm_aws__cloud *c)
{
    for (size_t i = 0; i < TM_AWS_CALLS_MAX; i++)
        if (!c->slots[i].used) return &c->slots[i];
    return NULL;
}

static int start_calls(struct tm_aws__cloud *c, struct tm_error *e)
{
    struct tm_aws__slot *slot = NULL;
    while ((slot = free_slot(c)) != NULL) {
        bool due = c->next_page[0] != '\0';
        int rc = 0;
        slot->call = (struct tm_vm__call){.kind = TM_VM_DESCRIBE};
        if (due)
            for (size_t i = 0; i < TM_AWS_CALLS_MAX; i++)
                due = due && !(c->slots[i].used && c->slots[i].call.kind == TM_VM_DESCRIBE);
        if (!due) rc = tm_vms__next(&c->vms, time_ms(c), &slot->call, &due, e);
        if (rc != 0 || !due) return rc;
        rc = begin(c, slot, e);
        if (rc != 0) return rc;
    }
    return 0;
}

/* A VM of a fleet has an address once AWS describes it. */
static bool has_arrived(struct tm_aws__cloud *c, size_t at)
{
    const struct tm_cloud_instance *instance = &c->vms.instances[at];
    return c->vms.vms[at].step == TM_VM_BOOTS && instance->host[0] != '\0' &&
           c->options.has_joined(c->options.context, instance->id);
}

static int see_joined(struct tm_aws__cloud *c, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->vms.count; i++)
        if (has_arrived(c, i)) rc = tm_vms__joined(&c->vms, i, time_ms(c), e);
    return rc;
}

static int advance(struct tm_aws__cloud *c, struct tm_error *e)
{
    tm_web_step(c->web);
    int rc = take_answers(c, e);
    if (rc == 0) rc = see_joined(c, e);
    if (rc == 0) rc = tm_vms__tick(&c->vms, time_ms(c), e);
    if (rc == 0) rc = keep_notes(c, e);
    return rc == 0 ? start_calls(c, e) : rc;
}

/* ---- the interface ---- */

static const struct tm_cloud_pool *aws_pools(struct tm_cloud *cloud, int *out_count)
{
    *out_count = of(cloud)->options.pool_count;
    return of(cloud)->pools;
}

static int aws_want(struct tm_cloud *cloud, int pool, int count, struct tm_error *e)
{
    struct tm_aws__cloud *c = of(cloud);
    if (pool < 0 || pool >= c->options.pool_count || count < 0)
        return tm_error_set(e, TM_EUSAGE, "there is no pool %d", pool);
    tm_vms__want(&c->vms, pool, count, time_ms(c));
    return 0;
}

static int aws_release(struct tm_cloud *cloud, uint64_t id, struct tm_error *e)
{
    return tm_vms__release(&of(cloud)->vms, id, time_ms(of(cloud)), e);
}

static const struct tm_cloud_instance *aws_instances(struct tm_cloud *cloud, size_t *out_count)
{
    *out_count = of(cloud)->vms.count;
    return of(cloud)->vms.instances;
}

static int64_t wait_ms(struct tm_aws__cloud *c)
{
    int64_t due_ms = tm_vms__due_ms(&c->vms);
    int64_t now = time_ms(c);
    int64_t wait = due_ms == INT64_MAX ? INT64_MAX : due_ms > now ? due_ms - now : 0;
    if (wait == 0 && c->vms.event_first == c->vms.event_count && free_slot(c) == NULL) wait = LOOK_MS;
    for (size_t i = 0; wait > LOOK_MS && i < c->vms.count; i++)
        if (c->vms.vms[i].step == TM_VM_BOOTS) wait = LOOK_MS;
    return wait;
}

static size_t aws_watch(struct tm_cloud *cloud, int *handles, size_t max, int64_t *out_wait_ms)
{
    struct tm_aws__cloud *c = of(cloud);
    struct tm_watch watches[WATCHES_MAX];
    int64_t web_ms = INT64_MAX;
    int64_t wait = wait_ms(c);
    size_t count = tm_web_watch(c->web, watches, WATCHES_MAX, &web_ms);
    size_t given = 0;
    if (web_ms < wait) wait = web_ms;
    for (size_t i = 0; i < count; i++) {
        if (watches[i].want != TM_WATCH_SEND && given < max) handles[given++] = watches[i].handle;
        if (watches[i].want != TM_WATCH_RECEIVE && wait > SEND_MS) wait = SEND_MS;
    }
    *out_wait_ms = wait;
    return given;
}

static int aws_next(struct tm_cloud *cloud, int64_t timeout_ms, struct tm_cloud_event *out, struct tm_error *e)
{
    struct tm_aws__cloud *c = of(cloud);
    int64_t end_ms = time_ms(c) + timeout_ms;
    for (;;) {
        struct tm_watch watches[WATCHES_MAX];
        int64_t web_ms = INT64_MAX;
        struct tm_error own = {.text = ""};
        if (tm_vms__event(&c->vms, out)) return 0;
        int rc = advance(c, &own);
        if (rc != 0) {
            if (e != NULL) *e = own;
            return rc;
        }
        if (tm_vms__event(&c->vms, out)) return 0;
        int64_t left_ms = end_ms - time_ms(c);
        if (left_ms <= 0) return tm_error_set(e, TM_ETIMEOUT, "nothing happened");
        size_t count = tm_web_watch(c->web, watches, WATCHES_MAX, &web_ms);
        int64_t wait = wait_ms(c);
        if (web_ms < wait) wait = web_ms;
        if (left_ms < wait) wait = left_ms;
        if (count == 0)
            c->env->sleep_ms(c->env, wait);
        else
            (void)c->env->net_watch(c->env, watches, count, wait, NULL);
    }
}

static double aws_price_usd_h(struct tm_cloud *cloud, int pool)
{
    return of(cloud)->pools[pool].price_usd_h;
}

static int64_t aws_now_ms(struct tm_cloud *cloud)
{
    return time_ms(of(cloud));
}

static struct tm_cloud_bill aws_bill(struct tm_cloud *cloud)
{
    return tm_vms__bill(&of(cloud)->vms, time_ms(of(cloud)));
}

/* ---- life ---- */

static void free_all(struct tm_aws__cloud *c)
{
    for (size_t i = 0; i < TM_AWS_CALLS_MAX; i++)
        if (c->slots[i].used) {
            if (!is_object(&c->slots[i])) tm_ec2__deinit(&c->slots[i].ec2);
            tm_text_deinit(&c->slots[i].then);
        }
    tm_web_destroy(c->web);
    tm_aws_destroy(c->aws);
    tm_vms__deinit(&c->vms);
    tm_free(c->rows);
    tm_free(c);
}

static bool is_busy(const struct tm_aws__cloud *c)
{
    for (size_t i = 0; i < TM_AWS_CALLS_MAX; i++)
        if (c->slots[i].used) return true;
    for (size_t i = 0; i < c->vms.count; i++)
        if (c->vms.vms[i].log_due || c->vms.vms[i].drops_due > 0 || c->vms.vms[i].templated) return true;
    return false;
}

/* Nothing stays: what was rented is ended, and looked for until AWS says that it has gone. */
static int aws_destroy(struct tm_cloud *cloud, struct tm_error *e)
{
    struct tm_aws__cloud *c = of(cloud);
    struct tm_cloud_event event;
    struct tm_error own = {.text = ""};
    int64_t end_ms = time_ms(c) + END_LIMIT_MS;
    int rc = 0;
    while ((tm_vms__left(&c->vms) > 0 || c->vms.adopting) && time_ms(c) < end_ms) {
        tm_vms__end_all(&c->vms, time_ms(c));
        rc = aws_next(cloud, LOOK_MS, &event, &own);
        if (rc == 0 || rc == -(int)TM_ETIMEOUT) continue;
        tm_log(TM_LOG_WARN, "ending the instances: %s", own.text);
        c->env->sleep_ms(c->env, LOOK_MS);
    }
    size_t left = tm_vms__left(&c->vms);
    end_ms = time_ms(c) + LAST_LIMIT_MS;
    while (left == 0 && is_busy(c) && time_ms(c) < end_ms)
        (void)aws_next(cloud, LOOK_MS, &event, NULL);
    rc = keep_notes(c, e);
    if (left == 0) tm_aws__remove_rest(c);
    if (left > 0 || c->vms.adopting)
        rc = tm_error_set(e, TM_EPEER,
                          "%zu instances of AWS may still be there; look with tidemill cloud list, and end them with "
                          "tidemill cloud clean",
                          left);
    free_all(c);
    return rc;
}

static int aws_strays(struct tm_cloud *cloud)
{
    const struct tm_aws__cloud *c = cloud->self;
    return c->vms.strays;
}

static const struct tm_cloud functions = {.bills_start = true,
                                          .pools = aws_pools,
                                          .want = aws_want,
                                          .release = aws_release,
                                          .instances = aws_instances,
                                          .next = aws_next,
                                          .watch = aws_watch,
                                          .price_usd_h = aws_price_usd_h,
                                          .strays = aws_strays,
                                          .now_ms = aws_now_ms,
                                          .bill = aws_bill,
                                          .destroy = aws_destroy};

static void fill_pools(struct tm_aws__cloud *c)
{
    for (int i = 0; i < c->options.pool_count; i++) {
        c->pools[i] = c->options.pools[i];
        c->vms.pools[i] = (struct tm_vm__pool){.about = c->pools[i], .price_usd_h = c->pools[i].price_usd_h};
    }
    c->vms.pool_count = c->options.pool_count;
    c->vms.id_next = c->options.id_first > 0 ? c->options.id_first : 1;
    c->vms.random = c->env->random_u64(c->env);
    c->vms.begin_utc_ms = c->env->now_ms(c->env);
    if (c->options.poll_ms > 0) c->vms.poll_max_ms = c->options.poll_ms;
    if (c->options.start_ms > 0) c->vms.start_limit_ms = c->options.start_ms;
    if (c->vms.poll_ms > c->vms.poll_max_ms) c->vms.poll_ms = c->vms.poll_max_ms;
}

int tm_aws_cloud_create(struct tm_env *env, const struct tm_aws_options *options, struct tm_cloud **out,
                        struct tm_error *e)
{
    if (options->pool_count < 1 || options->pool_count > TM_CLOUD_POOLS_MAX)
        return tm_error_set(e, TM_EUSAGE, "cloud aws: expected 1 to %d pools", TM_CLOUD_POOLS_MAX);
    struct tm_aws__cloud *c = tm_calloc(1, sizeof *c);
    if (c == NULL) return tm_error_nomem(e);
    c->cloud = functions;
    c->cloud.self = c;
    c->env = env;
    c->options = *options;
    c->start_ns = env->monotonic_ns(env);
    tm_vms__init(&c->vms, &tm_aws__rules);
    fill_pools(c);
    (void)snprintf(c->folder, sizeof c->folder, "%.1000s/aws", options->state_dir);
    int rc = tm_aws_create(env, options->region, &c->aws, e);
    if (rc == 0) rc = tm_web_create(env, &c->web, e);
    if (rc == 0) rc = tm_aws__prepare(c, e);
    if (rc == 0) rc = tm_aws__read_notes(c, e);
    if (rc != 0) {
        free_all(c);
        return rc;
    }
    *out = &c->cloud;
    return 0;
}
