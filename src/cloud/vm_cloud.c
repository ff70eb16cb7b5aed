#include "cloud/vm_cloud.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LOOK_MS = 200, /* at who has joined */
    HELD_MS = 20,  /* until a call is begun again */
    SEND_MS = 20,  /* loops watch for what can be received only */
    END_LIMIT_MS = 120000,
    LAST_LIMIT_MS = 10000, /* for the last outputs */
    WATCHES_MAX = 3 * TM_WEB_CALLS_MAX,
    OBJECT_AGAIN_MS = 5000,
    SILENCE_MS = 15 * 60000,
    LIFE_MS = 6 * 24 * 3600000, /* URLs are good for 7 days */
    ROWS_MAX = 1 << 18
};

static struct tm_vm_cloud *of(const struct tm_cloud *cloud)
{
    return cloud->self;
}

static int64_t time_ms(const struct tm_vm_cloud *c)
{
    return (c->env->monotonic_ns(c->env) - c->start_ns) / 1000000;
}

/* ---- for drivers ---- */

int64_t tm_vm_cloud__now_ms(const struct tm_vm_cloud *c)
{
    return time_ms(c);
}

int tm_vm_cloud__add_row(struct tm_vm_cloud *c, const struct tm_vm__row *row, struct tm_error *e)
{
    int rc = tm_grow((void **)&c->rows, &c->row_capacity, c->row_count + 1, sizeof *row, ROWS_MAX);
    if (rc != 0)
        return tm_error_set(e, (enum tm_code) - rc, "%s names more than %d instances of one run",
                            c->driver.rules->cloud, ROWS_MAX);
    c->rows[c->row_count++] = *row;
    return 0;
}

int tm_vm_cloud__take_rows(struct tm_vm_cloud *c, int rc, struct tm_error *e)
{
    static const struct tm_vm__row none;
    const struct tm_vm__row *rows = rc != 0 ? NULL : c->row_count > 0 ? c->rows : &none;
    int taken = tm_vms__described(&c->vms, rows, rows == NULL ? 0 : c->row_count, time_ms(c), e);
    c->row_count = 0;
    return rc == -(int)TM_ENOMEM ? tm_error_nomem(e) : taken;
}

void tm_vm_cloud__name(struct tm_vm_cloud *c, size_t at)
{
    struct tm_vm *vm = &c->vms.vms[at];
    if (vm->token[0] == '\0')
        (void)snprintf(vm->token, sizeof vm->token, "tm-%016" PRIx64 "-%016" PRIx64, c->options.run,
                       c->env->random_u64(c->env));
}

void tm_vm_cloud__key(const struct tm_vm_cloud *c, size_t at, const char *what, char *out, size_t room)
{
    const char *prefix = c->options.prefix;
    const char *token = at == SIZE_MAX ? "" : c->vms.vms[at].token;
    (void)snprintf(out, room, "/%.500s%svm/%s%s%.100s", prefix, prefix[0] != '\0' ? "/" : "", token,
                   token[0] != '\0' ? "." : "", what);
}

const char *tm_vm_cloud__object(const struct tm_vm_cloud *c, size_t slot)
{
    const struct tm_vm__call *call = &c->slots[slot].call;
    bool log = call->kind == TM_VM_GET_LOG || (call->kind == TM_VM_DROP && c->vms.vms[call->at].drops_due == 0);
    return log ? "log" : "ticket";
}

int64_t tm_vm_cloud__silence_ms(const struct tm_vm_cloud *c)
{
    return c->options.silence_ms > 0 ? c->options.silence_ms : SILENCE_MS;
}

int64_t tm_vm_cloud__life_ms(const struct tm_vm_cloud *c)
{
    return c->options.life_ms > 0 ? c->options.life_ms : LIFE_MS;
}

/* ---- answers ---- */

static void keep_log(struct tm_vm_cloud *c, size_t at, const struct tm_text *text)
{
    char path[TM_VM_PATH_MAX];
    struct tm_error e;
    (void)snprintf(path, sizeof path, "%.1000s/worker-%" PRIu64 ".log", c->options.log_dir, c->vms.instances[at].id);
    if (c->env->file_write_private(c->env, path, tm_text_string(text), text->length, &e) != 0)
        tm_log(TM_LOG_WARN, "the output of instance %" PRIu64 " could not be kept: %s", c->vms.instances[at].id,
               e.text);
}

static void take_object(struct tm_vm_cloud *c, struct tm_vm__slot *slot, int rc, struct tm_web_answer *answer)
{
    struct tm_vm *vm = &c->vms.vms[slot->call.at];
    bool good = rc == 0 && answer->status < 300;
    if (slot->call.kind == TM_VM_PUT_TICKET && !good) {
        vm->ticket_due = true;
        vm->retry_ms = time_ms(c) + OBJECT_AGAIN_MS;
    }
    if (slot->call.kind == TM_VM_GET_LOG && good) keep_log(c, slot->call.at, &answer->body);
    if (slot->call.kind == TM_VM_GET_LOG && vm->over) vm->drops_due = vm->adopted ? 2 : 1;
    if (rc == 0) tm_web_answer_deinit(answer);
}

/* Begun in vain so far. */
static bool is_held(const struct tm_vm__slot *slot)
{
    return slot->used && slot->begun == NULL;
}

static bool is_answered(const struct tm_vm__slot *slot)
{
    return slot->begun != NULL && tm_web_is_done(slot->begun);
}

static bool is_object(const struct tm_vm__slot *slot)
{
    return slot->call.kind >= TM_VM_PUT_TICKET;
}

/* What an answer means; the call may go on. */
static int take(struct tm_vm_cloud *c, size_t at, struct tm_error *e)
{
    struct tm_vm__slot *slot = &c->slots[at];
    struct tm_web_answer answer = {.status = 0};
    struct tm_error why = {.text = ""};
    struct tm_web_call *more = NULL;
    int taken = 0;
    int rc = tm_web_end(slot->begun, &answer, &why);
    slot->begun = NULL;
    if (is_object(slot))
        take_object(c, slot, rc, &answer);
    else
        taken = c->driver.take(c->driver.self, at, rc, &answer, &why, &more, e);
    slot->begun = more;
    slot->used = more != NULL;
    for (int i = 0; i < c->options.pool_count; i++)
        c->pools[i].price_usd_h = c->vms.pools[i].price_usd_h;
    if (!slot->used) c->driver.end(c->driver.self, at);
    return taken;
}

static int take_answers(struct tm_vm_cloud *c, struct tm_error *e)
{
    int taken = 0;
    for (size_t i = 0; taken == 0 && i < TM_VM_CALLS_MAX; i++)
        if (is_answered(&c->slots[i])) taken = take(c, i, e);
    return taken;
}

/* ---- calls ---- */

/* What could not be asked: as if nobody had answered. */
static int give_up_call(struct tm_vm_cloud *c, const struct tm_vm__slot *slot, int rc, struct tm_error *e)
{
    size_t at = slot->call.at;
    if (rc == -(int)TM_ENOMEM || rc == -(int)TM_ELIMIT) return rc;
    tm_log(TM_LOG_WARN, "%s could not be asked, retrying: %s", c->driver.rules->cloud, e->text);
    switch (slot->call.kind) {
    case TM_VM_DESCRIBE:
        return tm_vm_cloud__take_rows(c, -(int)TM_EPEER, e);
    case TM_VM_RUN:
        tm_vms__unmade(&c->vms, at, time_ms(c));
        return 0;
    case TM_VM_FOLLOW:
        tm_vms__follow(&c->vms, at, OBJECT_AGAIN_MS, time_ms(c));
        return 0;
    case TM_VM_PRICES:
        tm_vms__all_priced(&c->vms, time_ms(c));
        return 0;
    case TM_VM_PUT_TICKET:
        c->vms.vms[at].ticket_due = true;
        c->vms.vms[at].retry_ms = time_ms(c) + OBJECT_AGAIN_MS;
        return 0;
    default: /* ended again, or not so important */
        return 0;
    }
}

int tm_vm_cloud__go_on(struct tm_vm_cloud *c, size_t slot, int rc, struct tm_error *e)
{
    return rc == 0 ? 0 : give_up_call(c, &c->slots[slot], rc, e);
}

static int begin(struct tm_vm_cloud *c, size_t at, struct tm_error *e)
{
    struct tm_vm__slot *slot = &c->slots[at];
    int rc = 0;
    if (slot->call.kind == TM_VM_DESCRIBE) c->row_count = 0;
    if (slot->call.kind == TM_VM_PUT_TICKET && !is_held(slot)) { /* begun again, it puts the same one */
        const struct tm_cloud_instance *instance = &c->vms.instances[slot->call.at];
        bool on_demand = instance->kind == TM_INSTANCE_ON_DEMAND;
        rc = c->options.ticket(c->options.context, instance->id, on_demand, slot->word, e);
        c->vms.vms[slot->call.at].bound = false;
    }
    slot->begun = NULL;
    if (rc == 0) rc = c->driver.begin(c->driver.self, at, &slot->begun, e);
    slot->used = rc == 0 || rc == -(int)TM_EBUSY;
    if (rc == 0) return 0;
    c->driver.end(c->driver.self, at);
    return slot->used ? 0 : give_up_call(c, slot, rc, e);
}

/* What is known is written down before anything else is asked. */
static int keep_notes(struct tm_vm_cloud *c, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->vms.count; i++) {
        const struct tm_vm *vm = &c->vms.vms[i];
        if (vm->over && !vm->dropped)
            tm_vm_cloud__drop_note(c, i);
        else if (!vm->over && !vm->kept && vm->id[0] != '\0')
            rc = tm_vm_cloud__write_note(c, i, NULL, e);
    }
    return rc;
}

static size_t free_slot(const struct tm_vm_cloud *c)
{
    size_t at = 0;
    while (at < TM_VM_CALLS_MAX && c->slots[at].used)
        at++;
    return at;
}

static int start_calls(struct tm_vm_cloud *c, struct tm_error *e)
{
    size_t at = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < TM_VM_CALLS_MAX; i++)
        if (is_held(&c->slots[i])) rc = begin(c, i, e);
    while (rc == 0 && (at = free_slot(c)) < TM_VM_CALLS_MAX) {
        bool due = false;
        rc = tm_vms__next(&c->vms, time_ms(c), &c->slots[at].call, &due, e);
        if (rc != 0 || !due) return rc;
        rc = begin(c, at, e);
    }
    return rc;
}

/* A ticket that somebody else has read is worth nothing then. */
static void bind_tickets(struct tm_vm_cloud *c)
{
    for (size_t i = 0; c->options.bind != NULL && i < c->vms.count; i++) {
        struct tm_vm *vm = &c->vms.vms[i];
        if (vm->over || vm->bound || vm->step != TM_VM_BOOTS || c->vms.instances[i].host[0] == '\0') continue;
        c->options.bind(c->options.context, c->vms.instances[i].id, c->vms.instances[i].host);
        vm->bound = true;
    }
}

/* Its address may be known later than itself. */
static bool has_arrived(struct tm_vm_cloud *c, size_t at)
{
    const struct tm_cloud_instance *instance = &c->vms.instances[at];
    return c->vms.vms[at].step == TM_VM_BOOTS && instance->host[0] != '\0' &&
           c->options.has_joined(c->options.context, instance->id);
}

static int see_joined(struct tm_vm_cloud *c, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->vms.count; i++)
        if (has_arrived(c, i)) rc = tm_vms__joined(&c->vms, i, time_ms(c), e);
    return rc;
}

static int advance(struct tm_vm_cloud *c, struct tm_error *e)
{
    tm_web_step(c->web);
    int rc = take_answers(c, e);
    bind_tickets(c);
    if (rc == 0) rc = see_joined(c, e);
    if (rc == 0) rc = tm_vms__tick(&c->vms, time_ms(c), e);
    if (rc == 0) rc = keep_notes(c, e);
    return rc == 0 ? start_calls(c, e) : rc;
}

/* ---- the interface ---- */

static const struct tm_cloud_pool *vm_pools(struct tm_cloud *cloud, int *out_count)
{
    *out_count = of(cloud)->options.pool_count;
    return of(cloud)->pools;
}

static int vm_want(struct tm_cloud *cloud, int pool, int count, struct tm_error *e)
{
    struct tm_vm_cloud *c = of(cloud);
    if (pool < 0 || pool >= c->options.pool_count || count < 0)
        return tm_error_set(e, TM_EUSAGE, "there is no pool %d", pool);
    tm_vms__want(&c->vms, pool, count, time_ms(c));
    return 0;
}

static int vm_release(struct tm_cloud *cloud, uint64_t id, struct tm_error *e)
{
    return tm_vms__release(&of(cloud)->vms, id, time_ms(of(cloud)), e);
}

static const struct tm_cloud_instance *vm_instances(struct tm_cloud *cloud, size_t *out_count)
{
    *out_count = of(cloud)->vms.count;
    return of(cloud)->vms.instances;
}

static int64_t wait_ms(struct tm_vm_cloud *c)
{
    int64_t due_ms = tm_vms__due_ms(&c->vms);
    int64_t now = time_ms(c);
    int64_t wait = due_ms == INT64_MAX ? INT64_MAX : due_ms > now ? due_ms - now : 0;
    if (wait == 0 && c->vms.event_first == c->vms.event_count && free_slot(c) == TM_VM_CALLS_MAX) wait = LOOK_MS;
    for (size_t i = 0; i < TM_VM_CALLS_MAX; i++) {
        if (is_held(&c->slots[i]) && wait > HELD_MS) wait = HELD_MS;
        if (is_answered(&c->slots[i])) wait = 0; /* as it was begun */
    }
    for (size_t i = 0; wait > LOOK_MS && i < c->vms.count; i++)
        if (c->vms.vms[i].step == TM_VM_BOOTS) wait = LOOK_MS;
    return wait;
}

static size_t vm_watch(struct tm_cloud *cloud, int *handles, size_t max, int64_t *out_wait_ms)
{
    struct tm_vm_cloud *c = of(cloud);
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

static int vm_next(struct tm_cloud *cloud, int64_t timeout_ms, struct tm_cloud_event *out, struct tm_error *e)
{
    struct tm_vm_cloud *c = of(cloud);
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

static double vm_price_usd_h(struct tm_cloud *cloud, int pool)
{
    return of(cloud)->pools[pool].price_usd_h;
}

static int64_t vm_now_ms(struct tm_cloud *cloud)
{
    return time_ms(of(cloud));
}

static int vm_strays(struct tm_cloud *cloud)
{
    return of(cloud)->vms.strays;
}

static struct tm_cloud_bill vm_bill(struct tm_cloud *cloud)
{
    return tm_vms__bill(&of(cloud)->vms, time_ms(of(cloud)));
}

static bool vm_owes(struct tm_cloud *cloud)
{
    return tm_vms__owes(&of(cloud)->vms);
}

/* ---- life ---- */

void tm_vm_cloud__deinit(struct tm_vm_cloud *c)
{
    for (size_t i = 0; i < TM_VM_CALLS_MAX; i++)
        if (c->slots[i].begun != NULL) c->driver.end(c->driver.self, i);
    tm_web_destroy(c->web);
    tm_vms__deinit(&c->vms);
    tm_free(c->rows);
}

static bool is_busy(const struct tm_vm_cloud *c)
{
    for (size_t i = 0; i < TM_VM_CALLS_MAX; i++)
        if (c->slots[i].used) return true;
    for (size_t i = 0; i < c->vms.count; i++)
        if (c->vms.vms[i].log_due || c->vms.vms[i].drops_due > 0 || c->vms.vms[i].templated) return true;
    return false;
}

/* Nothing stays: what was rented is ended, and looked for until the cloud says that it has gone. */
static int vm_destroy(struct tm_cloud *cloud, struct tm_error *e)
{
    struct tm_vm_cloud *c = of(cloud);
    struct tm_cloud_event event;
    struct tm_error own = {.text = ""};
    int64_t end_ms = time_ms(c) + END_LIMIT_MS;
    int rc = 0;
    while ((tm_vms__left(&c->vms) > 0 || c->vms.adopting) && time_ms(c) < end_ms) {
        tm_vms__end_all(&c->vms, time_ms(c));
        rc = vm_next(cloud, LOOK_MS, &event, &own);
        if (rc == 0 || rc == -(int)TM_ETIMEOUT) continue;
        tm_log(TM_LOG_WARN, "ending the instances: %s", own.text);
        c->env->sleep_ms(c->env, LOOK_MS);
    }
    size_t left = tm_vms__left(&c->vms);
    end_ms = time_ms(c) + LAST_LIMIT_MS;
    while (left == 0 && is_busy(c) && time_ms(c) < end_ms)
        (void)vm_next(cloud, LOOK_MS, &event, NULL);
    rc = keep_notes(c, e);
    if (left == 0 && c->driver.remove_rest != NULL) c->driver.remove_rest(c->driver.self);
    if (left > 0 || c->vms.adopting)
        rc = tm_error_set(e, TM_EPEER,
                          "%zu instances of %s may still be there; look with tidemill cloud list, and end them with "
                          "tidemill cloud clean",
                          left, c->driver.rules->cloud);
    tm_vm_cloud__deinit(c);
    c->driver.destroy(c->driver.self);
    return rc;
}

static const struct tm_cloud functions = {.bills_start = true,
                                          .learns_start = true,
                                          .pools = vm_pools,
                                          .want = vm_want,
                                          .release = vm_release,
                                          .instances = vm_instances,
                                          .next = vm_next,
                                          .watch = vm_watch,
                                          .price_usd_h = vm_price_usd_h,
                                          .now_ms = vm_now_ms,
                                          .bill = vm_bill,
                                          .owes = vm_owes,
                                          .strays = vm_strays,
                                          .destroy = vm_destroy};

static void fill_pools(struct tm_vm_cloud *c)
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

int tm_vm_cloud__init(struct tm_vm_cloud *c, struct tm_env *env, const struct tm_vm__driver *driver,
                      const struct tm_vm_options *options, struct tm_error *e)
{
    if (options->pool_count < 1 || options->pool_count > TM_CLOUD_POOLS_MAX)
        return tm_error_set(e, TM_EUSAGE, "cloud %s: expected 1 to %d pools", driver->folder, TM_CLOUD_POOLS_MAX);
    c->cloud = functions;
    c->cloud.self = c;
    c->env = env;
    c->driver = *driver;
    c->options = *options;
    if (c->options.group == 0) c->options.group = c->options.run;
    c->start_ns = env->monotonic_ns(env);
    tm_vms__init(&c->vms, driver->rules);
    c->vms.rates = tm_vms__rates(driver->folder);
    fill_pools(c);
    (void)snprintf(c->folder, sizeof c->folder, "%.1000s/%.50s", options->state_dir, driver->folder);
    return tm_web_create(env, &c->web, e);
}

int tm_vm_cloud__open(struct tm_vm_cloud *c, struct tm_error *e)
{
    return tm_vm_cloud__read_notes(c, e);
}
