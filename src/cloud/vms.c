#include "cloud/vms.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    POLL_MIN_MS = 1000,
    POLL_MAX_MS = 15000,
    AGAIN_MS = 1000,
    AGAIN_MAX_MS = 60000,
    END_AGAIN_MS = 10000,
    UNMADE_MS = 5000,
    BLOCK_MS = 3 * 60000,
    QUOTA_MS = 15 * 60000,
    STOP_MS = 5 * 60000,
    FAILED_MS = 2000, /* after a VM that never joined; doubled */
    FAILED_DOUBLINGS = 7,
    START_LIMIT_MS = 30 * 60000,
    EVENTS_MAX = 1 << 16
};

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When a call of this kind is due, as far as the cloud's limits let it be made. */
static int64_t allowed_ms(const struct tm_vms *v, enum tm_vm__call_kind kind, int64_t due_ms)
{
    int64_t free_ms = tm_vms__free_ms(v, kind);
    return due_ms > free_ms ? due_ms : free_ms;
}

/* ---- events ---- */

static int tell(struct tm_vms *v, struct tm_cloud_event event, struct tm_error *e)
{
    if (v->event_first == v->event_count) v->event_first = v->event_count = 0;
    int rc = tm_grow((void **)&v->events, &v->event_capacity, v->event_count + 1, sizeof *v->events, EVENTS_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "too many pending events of %s", v->rules->cloud);
    v->events[v->event_count++] = event;
    tm_debug(TM_DEBUG_CLOUD, "%s: instance %" PRIu64 ": %s", v->rules->cloud, event.instance,
             tm_cloud_event_kind_name(event.kind));
    return 0;
}

bool tm_vms__event(struct tm_vms *v, struct tm_cloud_event *out)
{
    if (v->event_first == v->event_count) return false;
    *out = v->events[v->event_first++];
    return true;
}

static void look_soon(struct tm_vms *v, int64_t now_ms)
{
    v->poll_ms = POLL_MIN_MS < v->poll_max_ms ? POLL_MIN_MS : v->poll_max_ms;
    if (v->look_ms > now_ms + v->poll_ms) v->look_ms = now_ms + v->poll_ms;
}

/* Between 80% and 120% of it, so that many renters do not come back together. */
static int64_t jittered(struct tm_vms *v, int64_t ms)
{
    v->random += 0x9e3779b97f4a7c15U;
    uint64_t x = v->random;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    x ^= x >> 31;
    return ms * 8 / 10 + (int64_t)(x % (uint64_t)(ms * 4 / 10 + 1));
}

/* ---- pools ---- */

/* Asked for, booting or here, but for those that are about to go. */
static int active(const struct tm_vms *v, int pool)
{
    int count = 0;
    for (size_t i = 0; i < v->count; i++)
        count += v->instances[i].pool == pool && v->vms[i].step != TM_VM_GONE &&
                 v->instances[i].state != TM_INSTANCE_NOTICED;
    return count;
}

static int most(const struct tm_vm__pool *pool)
{
    return pool->about.limit > 0 && pool->about.limit < pool->want ? pool->about.limit : pool->want;
}

static bool lacks(const struct tm_vms *v, int pool)
{
    return most(&v->pools[pool]) > active(v, pool);
}

/* How many are missing because the cloud has none. */
static int tell_missing(struct tm_vms *v, int pool, int64_t now_ms, struct tm_error *e)
{
    struct tm_vm__pool *p = &v->pools[pool];
    int missing = p->retry_ms > now_ms && lacks(v, pool) ? most(p) - active(v, pool) : 0;
    if (missing == p->missing) return 0;
    p->missing = missing;
    struct tm_cloud_event event = {.kind = TM_CLOUD_REFUSED, .pool = pool, .count = missing, .time_ms = now_ms};
    if (missing > 0) memcpy(event.why, p->why, sizeof event.why);
    return tell(v, event, e);
}

/* How many bytes of a text are its first whole words, in so much room; one long word is cut. */
static size_t whole_words(const char *text, size_t room)
{
    size_t length = strlen(text);
    if (length <= room) return length;
    for (size_t i = room; i > 0; i--)
        if (text[i] == ' ') return i;
    while (room > 0 && ((unsigned char)text[room] & 0xc0) == 0x80) /* no half letters */
        room--;
    return room;
}

/* As many whole words as the room has, with dots where some are left out. */
static size_t put_words(char *out, size_t room, const char *text)
{
    static const char dots[] = "...";
    bool whole = strlen(text) < room;
    size_t length = whole ? strlen(text) : room > sizeof dots ? whole_words(text, room - sizeof dots) : 0;
    if (length == 0) return 0;
    memcpy(out, text, length);
    memcpy(out + length, dots, whole ? 0 : sizeof dots - 1);
    length += whole ? 0 : sizeof dots - 1;
    out[length] = '\0';
    return length;
}

/* What is told with it: the code, the cloud's words unless they begin with it, and what to do, which has room before
 * the cloud's words have. */
static void keep_why(struct tm_vms *v, int pool, const char *code, const char *words)
{
    char *why = v->pools[pool].why;
    size_t room = sizeof v->pools[pool].why;
    const char *advice = v->rules->advice(code);
    bool has_code = strstr(words, code) != NULL;
    size_t after = advice[0] != '\0' ? strlen(advice) + 2 : 0;
    size_t at = (size_t)snprintf(why, room, "%.60s", has_code ? "" : code);
    size_t gap = at > 0 ? 2 : 0;
    size_t said = room > at + gap + after ? put_words(why + at + gap, room - at - gap - after, words) : 0;
    if (said > 0) {
        memcpy(why + at, ": ", gap);
        at += gap + said;
    }
    if (advice[0] == '\0') return;
    at += (size_t)snprintf(why + at, room - at, "%s", at > 0 ? "; " : "");
    (void)put_words(why + at, room - at, advice);
}

static void block(struct tm_vms *v, int pool, int64_t now_ms, int64_t ms)
{
    int64_t until_ms = now_ms + jittered(v, ms);
    if (v->pools[pool].retry_ms < until_ms) v->pools[pool].retry_ms = until_ms;
}

static void back_off(struct tm_vms *v, int pool, int64_t now_ms)
{
    struct tm_vm__pool *p = &v->pools[pool];
    int doublings = p->failures < FAILED_DOUBLINGS ? p->failures : FAILED_DOUBLINGS;
    p->failures++;
    block(v, pool, now_ms, (int64_t)FAILED_MS << doublings);
}

static void wait_after(struct tm_vms *v, int pool, enum tm_vm__remedy remedy, int64_t now_ms)
{
    if (remedy == TM_VM_AGAIN)
        back_off(v, pool, now_ms);
    else
        block(v, pool, now_ms, remedy == TM_VM_QUOTA ? QUOTA_MS : remedy == TM_VM_STOP ? STOP_MS : BLOCK_MS);
}

/* The pool waits, and with it those that the same quota holds; whoever rents hears why. */
static int hold_back(struct tm_vms *v, int pool, const char *code, const char *words, int64_t now_ms,
                     struct tm_error *e)
{
    enum tm_vm__remedy remedy = v->rules->remedy_of(code);
    bool shared = remedy == TM_VM_QUOTA && v->rules->shares_quota != NULL;
    int rc = 0;
    for (int i = 0; rc == 0 && i < v->pool_count; i++) {
        bool held = shared && v->rules->shares_quota(code, words, &v->pools[pool].about, &v->pools[i].about);
        if (i != pool && !held) continue;
        keep_why(v, i, code, words);
        wait_after(v, i, remedy, now_ms);
        rc = tell_missing(v, i, now_ms, e);
    }
    return rc;
}

/* ---- one VM ---- */

static size_t find_vm(const struct tm_vms *v, const struct tm_vm__row *row)
{
    for (size_t i = 0; i < v->count; i++) {
        if (v->vms[i].id[0] != '\0' && strcmp(v->vms[i].id, row->id) == 0) return i;
        if (v->vms[i].id[0] == '\0' && row->token[0] != '\0' && strcmp(v->vms[i].token, row->token) == 0) return i;
    }
    return v->count;
}

static int add(struct tm_vms *v, int pool, int64_t now_ms, size_t *out_at, struct tm_error *e)
{
    size_t need = v->count + 1;
    int rc = tm_grow((void **)&v->instances, &v->instance_capacity, need, sizeof *v->instances, TM_VMS_MAX);
    if (rc == 0) rc = tm_grow((void **)&v->vms, &v->vm_capacity, need, sizeof *v->vms, TM_VMS_MAX);
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "more than %d instances in one run", TM_VMS_MAX);
    const struct tm_vm__pool *p = &v->pools[pool];
    struct tm_cloud_instance *instance = &v->instances[v->count];
    *instance = (struct tm_cloud_instance){.id = v->id_next++,
                                           .pool = pool,
                                           .kind = p->about.kind,
                                           .state = TM_INSTANCE_STARTING,
                                           .price_usd_h = p->price_usd_h,
                                           .asked_ms = now_ms,
                                           .arrived_ms = -1,
                                           .noticed_ms = -1,
                                           .gone_ms = -1};
    (void)snprintf(instance->type, sizeof instance->type, "%s", p->about.type);
    (void)snprintf(instance->zone, sizeof instance->zone, "%s", p->about.zone);
    v->vms[v->count] =
        (struct tm_vm){.step = TM_VM_ASKED, .minimum = true, .follow_ms = INT64_MAX, .end_ms = INT64_MAX};
    *out_at = v->count++;
    return 0;
}

static int leave(struct tm_vms *v, size_t at, enum tm_instance_state state, int64_t now_ms, struct tm_error *e)
{
    struct tm_cloud_instance *instance = &v->instances[at];
    bool here = tm_instance_is_here(instance);
    if (v->vms[at].step == TM_VM_GONE) return 0;
    v->vms[at].step = TM_VM_GONE;
    instance->state = state;
    instance->gone_ms = now_ms;
    instance->ungranted = v->vms[at].id[0] == '\0' || v->vms[at].paid_ms == INT64_MAX; /* see() may know better later */
    look_soon(v, now_ms);
    if (!here) return 0; /* nobody was told of it */
    return tell(v,
                (struct tm_cloud_event){.kind = state == TM_INSTANCE_LOST ? TM_CLOUD_LOST : TM_CLOUD_RELEASED,
                                        .instance = instance->id,
                                        .pool = instance->pool,
                                        .time_ms = now_ms,
                                        .announced = instance->noticed_ms >= 0,
                                        .status = -1},
                e);
}

/* It is not wanted any more, wherever it stands. */
static int drop(struct tm_vms *v, size_t at, enum tm_instance_state state, int64_t now_ms, struct tm_error *e)
{
    struct tm_vm *vm = &v->vms[at];
    bool never_asked = vm->id[0] == '\0' && !vm->calling && vm->tries == 0 && !vm->adopted;
    if (!vm->ending) vm->retry_ms = now_ms;
    vm->ending = true;
    vm->over = vm->over || never_asked;
    return leave(v, at, state, now_ms, e);
}

/* Is a VM of this type, in this zone, what the pool is? */
static bool is_of_pool(const struct tm_cloud_pool *pool, const struct tm_vm__row *row)
{
    bool type = row->type[0] == '\0' || pool->type[0] == '\0' || strcmp(pool->type, row->type) == 0;
    bool by_id = strstr(pool->zone, "-az") != NULL; /* AWS's answer has the zone's name */
    return type && (row->zone[0] == '\0' || by_id || strncmp(row->zone, pool->zone, strlen(pool->zone)) == 0);
}

/* Of several pools that were asked at once, this one gave it. */
static void settle_pool(struct tm_vms *v, size_t at, const struct tm_vm__row *row)
{
    struct tm_cloud_instance *instance = &v->instances[at];
    if (!v->rules->templates || instance->kind != TM_INSTANCE_SPOT || is_of_pool(&v->pools[instance->pool].about, row))
        return;
    for (int pass = 0; pass < 2; pass++) /* one that lacks some first */
        for (int i = 0; i < v->pool_count; i++) {
            const struct tm_cloud_pool *about = &v->pools[i].about;
            if (about->kind != TM_INSTANCE_SPOT || !is_of_pool(about, row) || (pass == 0 && !lacks(v, i))) continue;
            instance->pool = i;
            return;
        }
}

/* When the cloud says that it began; the answer to the call that rents it may not say it yet. */
static void launch(struct tm_vms *v, size_t at, const struct tm_vm__row *row, int64_t now_ms)
{
    struct tm_vm *vm = &v->vms[at];
    int64_t began_ms = row->launched_ms - v->begin_utc_ms;
    if (vm->launched || vm->adopted || row->launched_ms <= 0 || vm->paid_ms != vm->begin_ms) return;
    if (began_ms < v->instances[at].asked_ms) began_ms = v->instances[at].asked_ms; /* its clock is another */
    vm->since_ms = vm->begin_ms = vm->paid_ms = earlier(began_ms, now_ms);
    vm->launched = true;
}

/* The cloud names it. */
static void see(struct tm_vms *v, size_t at, const struct tm_vm__row *row, int64_t now_ms)
{
    struct tm_vm *vm = &v->vms[at];
    struct tm_cloud_instance *instance = &v->instances[at];
    vm->seen_ms = now_ms;
    if (row->zone[0] != '\0') (void)snprintf(instance->zone, sizeof instance->zone, "%s", row->zone);
    if (row->type[0] != '\0') (void)snprintf(instance->type, sizeof instance->type, "%s", row->type);
    if (row->address[0] != '\0') (void)snprintf(instance->host, sizeof instance->host, "%s", row->address);
    if (vm->id[0] != '\0' && vm->paid_ms != INT64_MIN) {
        launch(v, at, row, now_ms);
        return;
    }
    instance->ungranted = false;
    bool unnamed = vm->kept && vm->id[0] == '\0'; /* an earlier program never saw the answer: nor has it paid for it */
    (void)snprintf(vm->id, sizeof vm->id, "%s", row->id);
    settle_pool(v, at, row);
    vm->since_ms = vm->paid_ms = vm->boots_ms = now_ms;
    vm->retry_ms = now_ms;
    vm->kept = false;
    if (vm->adopted && row->launched_ms > 0) { /* it is paid from its beginning, or from where we know to have paid */
        bool paid = !unnamed && v->before_utc_ms > row->launched_ms;
        int64_t least_ms = row->launched_ms + v->rules->minimum_s * 1000; /* it has paid that in any case */
        int64_t until_ms = v->before_utc_ms > least_ms ? v->before_utc_ms : least_ms;
        vm->since_ms = row->launched_ms - v->begin_utc_ms;
        vm->paid_ms = (paid ? until_ms : row->launched_ms) - v->begin_utc_ms;
        vm->minimum = !paid;
        if (!paid && vm->paid_ms > now_ms) vm->paid_ms = now_ms;
        vm->launched = true;
    }
    vm->begin_ms = vm->paid_ms;
    launch(v, at, row, now_ms);
    instance->asked_ms = earlier(vm->paid_ms, now_ms);
    if (instance->kind == TM_INSTANCE_SPOT) { /* the price of its zone */
        instance->price_usd_h = v->pools[instance->pool].price_usd_h;
        v->prices_ms = earlier(v->prices_ms, now_ms + POLL_MIN_MS);
    }
    vm->ticket_due = vm->adopted;
    if (vm->step == TM_VM_ASKED) vm->step = TM_VM_BOOTS;
    tm_debug(TM_DEBUG_CLOUD, "%s: instance %" PRIu64 " is %s in %s%s", v->rules->cloud, instance->id, vm->id,
             instance->zone, vm->adopted ? ", from before" : "");
}

/* It has gone. */
static int finish(struct tm_vms *v, size_t at, const struct tm_vm__row *row, int64_t now_ms, struct tm_error *e)
{
    struct tm_vm *vm = &v->vms[at];
    struct tm_cloud_instance *instance = &v->instances[at];
    if (vm->over) return 0;
    tm_vms__end_bill(v, at, row, now_ms);
    if (row != NULL && row->interrupted && instance->noticed_ms < 0) instance->noticed_ms = now_ms;
    vm->over = true;
    (void)tm_vms__bill(v, now_ms);
    vm->log_due = vm->id[0] != '\0';
    if (vm->step == TM_VM_BOOTS) {
        tm_log(TM_LOG_WARN,
               "instance %" PRIu64 " (%s) ended before it joined: %s; tidemill logs --instance %" PRIu64 " may say why",
               instance->id, vm->id, row != NULL && row->reason[0] != '\0' ? row->reason : "the cloud does not say why",
               instance->id);
        back_off(v, instance->pool, now_ms);
    }
    bool in_order = row != NULL && row->itself && vm->step == TM_VM_HERE; /* its agent was told to go */
    return leave(v, at, in_order ? TM_INSTANCE_RELEASED : TM_INSTANCE_LOST, now_ms, e);
}

int tm_vms__recall(struct tm_vms *v, int pool, const char *token, const char *id, struct tm_error *e)
{
    size_t at = 0;
    int rc = add(v, pool, 0, &at, e);
    if (rc != 0) return rc;
    struct tm_vm *vm = &v->vms[at];
    (void)snprintf(vm->token, sizeof vm->token, "%s", token);
    (void)snprintf(vm->id, sizeof vm->id, "%s", id);
    vm->adopted = vm->kept = v->instances[at].recalled = true;
    vm->templated = v->rules->templates && v->instances[at].kind == TM_INSTANCE_SPOT;
    vm->paid_ms = id[0] != '\0' ? INT64_MIN : 0; /* not known until the cloud names it */
    if (id[0] != '\0') vm->step = TM_VM_BOOTS;
    return 0;
}

int tm_vms__joined(struct tm_vms *v, size_t at, int64_t now_ms, struct tm_error *e)
{
    struct tm_cloud_instance *instance = &v->instances[at];
    if (v->vms[at].step != TM_VM_BOOTS) return 0;
    v->vms[at].step = TM_VM_HERE;
    v->vms[at].log_due = true;
    v->pools[instance->pool].failures = 0;
    instance->state = TM_INSTANCE_RUNNING;
    instance->arrived_ms = now_ms;
    return tell(v,
                (struct tm_cloud_event){
                    .kind = TM_CLOUD_ARRIVED, .instance = instance->id, .pool = instance->pool, .time_ms = now_ms},
                e);
}

/* ---- answers ---- */

void tm_vms__rented(struct tm_vms *v, size_t at, const struct tm_vm__row *row, int64_t now_ms)
{
    v->vms[at].calling = false;
    v->vms[at].tries++;
    see(v, at, row, now_ms);
    look_soon(v, now_ms);
    (void)tell_missing(v, v->instances[at].pool, now_ms, NULL);
}

void tm_vms__unmade(struct tm_vms *v, size_t at, int64_t now_ms)
{
    v->vms[at].calling = false;
    v->vms[at].retry_ms = now_ms + jittered(v, UNMADE_MS);
}

static void warn(const struct tm_vms *v, size_t at, const char *code, const char *words)
{
    const char *advice = v->rules->advice(code);
    tm_log(TM_LOG_WARN, "%s gives no %s now: %.300s%s%s", v->rules->cloud, v->pools[v->instances[at].pool].about.name,
           words, advice[0] != '\0' ? "; " : "", advice);
}

static bool any_here(const struct tm_vms *v)
{
    for (size_t i = 0; i < v->count; i++)
        if (v->vms[i].step == TM_VM_HERE) return true;
    return false;
}

/* The same VM, with the same token, after a pause. */
static void ask_again(struct tm_vms *v, size_t at, enum tm_vm__remedy remedy, int64_t now_ms)
{
    struct tm_vm *vm = &v->vms[at];
    int doublings = vm->tries < 7 ? vm->tries : 7;
    int64_t wait_ms = (int64_t)AGAIN_MS << doublings;
    if (wait_ms > AGAIN_MAX_MS) wait_ms = AGAIN_MAX_MS;
    vm->retry_ms = now_ms + jittered(v, wait_ms);
    if (remedy == TM_VM_LOOK) vm->retry_ms = INT64_MAX; /* what is there is seen by its tag, or there is nothing */
    vm->seen_ms = now_ms;
    look_soon(v, now_ms);
}

/* What is told when this VM does not come. An error where no waiting brings one, and nobody is here. */
static int explain(struct tm_vms *v, size_t at, const char *code, const char *words, int64_t now_ms, struct tm_error *e)
{
    int pool = v->instances[at].pool;
    const char *advice = v->rules->advice(code);
    if (v->rules->remedy_of(code) == TM_VM_STOP && !any_here(v))
        return tm_error_set(e, TM_EINPUT, "%.300s%s%s", words, advice[0] != '\0' ? "; " : "", advice);
    if (v->pools[pool].retry_ms <= now_ms) warn(v, at, code, words);
    return hold_back(v, pool, code, words, now_ms, e);
}

static int never_was(struct tm_vms *v, size_t at, const char *code, const char *words, int64_t now_ms,
                     struct tm_error *e)
{
    v->vms[at].over = true;
    int rc = leave(v, at, TM_INSTANCE_LOST, now_ms, e);
    return rc == 0 ? explain(v, at, code, words, now_ms, e) : rc;
}

int tm_vms__refused(struct tm_vms *v, size_t at, const char *code, const char *words, int64_t now_ms,
                    struct tm_error *e)
{
    struct tm_vm *vm = &v->vms[at];
    enum tm_vm__remedy remedy = v->rules->remedy_of(code);
    vm->calling = false;
    vm->tries++;
    if (remedy != TM_VM_AGAIN && remedy != TM_VM_LOOK) return never_was(v, at, code, words, now_ms, e);
    ask_again(v, at, remedy, now_ms);
    if (vm->tries == 1) warn(v, at, code, words);
    return 0;
}

int tm_vms__denied(struct tm_vms *v, size_t at, const char *code, const char *words, int64_t now_ms, struct tm_error *e)
{
    if (v->rules->remedy_of(code) != TM_VM_AGAIN) return tm_vms__refused(v, at, code, words, now_ms, e);
    v->vms[at].calling = false;
    v->vms[at].tries++;
    return never_was(v, at, code, words, now_ms, e);
}

int tm_vms__failed(struct tm_vms *v, size_t at, const char *code, const char *words, int64_t now_ms, struct tm_error *e)
{
    struct tm_vm *vm = &v->vms[at];
    vm->calling = false;
    vm->tries++;
    vm->minimum = false;
    vm->paid_usd = vm->paid_s = 0;
    vm->paid_ms = INT64_MAX;
    vm->follow_ms = INT64_MAX;
    vm->seen_ms = now_ms;
    if (vm->id[0] == '\0') {
        (void)snprintf(vm->id, sizeof vm->id, "%s", vm->token);
        vm->kept = false;
    }
    int rc = drop(v, at, TM_INSTANCE_LOST, now_ms, e);
    return rc == 0 ? explain(v, at, code, words, now_ms, e) : rc;
}

void tm_vms__elsewhere(struct tm_vms *v, size_t at)
{
    struct tm_vm *vm = &v->vms[at];
    if (vm->id[0] == '\0') return;
    vm->id[0] = v->instances[at].host[0] = '\0';
    vm->kept = vm->launched = vm->priced = false;
    vm->paid_usd = vm->paid_s = 0; /* it never was */
    if (vm->step == TM_VM_BOOTS) vm->step = TM_VM_ASKED;
}

void tm_vms__follow(struct tm_vms *v, size_t at, int64_t wait_ms, int64_t now_ms)
{
    v->vms[at].follow_ms = now_ms + wait_ms;
}

int tm_vms__pool_refused(struct tm_vms *v, int pool, const char *code, int64_t now_ms, struct tm_error *e)
{
    return hold_back(v, pool, code, "", now_ms, e);
}

/* One that nobody here knows of: an earlier program's, whose notes were lost; else it is ended. */
static int take_unknown(struct tm_vms *v, const struct tm_vm__row *row, int64_t now_ms, struct tm_error *e)
{
    size_t at = 0;
    bool pool_known = row->pool >= 0 && row->pool < v->pool_count;
    if (row->phase == TM_VM_ENDED) return 0;
    int rc = add(v, pool_known ? row->pool : 0, now_ms, &at, e);
    if (rc != 0) return rc;
    (void)snprintf(v->vms[at].token, sizeof v->vms[at].token, "%s", row->token);
    v->vms[at].adopted = v->instances[at].recalled = true;
    v->vms[at].templated = v->rules->templates && v->instances[at].kind == TM_INSTANCE_SPOT;
    see(v, at, row, now_ms);
    if (pool_known && v->adopting) return 0;
    v->strays++;
    return drop(v, at, TM_INSTANCE_RELEASED, now_ms, e);
}

static int take_row(struct tm_vms *v, const struct tm_vm__row *row, int64_t now_ms, struct tm_error *e)
{
    size_t at = find_vm(v, row);
    if (at == v->count) return take_unknown(v, row, now_ms, e);
    if (v->vms[at].over) return 0;
    see(v, at, row, now_ms);
    if (row->phase == TM_VM_ENDED) return finish(v, at, row, now_ms, e);
    if (row->phase == TM_VM_LEAVING) return leave(v, at, TM_INSTANCE_LOST, now_ms, e);
    return row->phase == TM_VM_STOPPED ? drop(v, at, TM_INSTANCE_LOST, now_ms, e) : 0;
}

static int take_missing(struct tm_vms *v, int64_t now_ms, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->count; i++) {
        struct tm_vm *vm = &v->vms[i];
        bool looked_for = vm->id[0] != '\0' || vm->retry_ms == INT64_MAX;
        if (vm->over || vm->calling || !looked_for || now_ms - vm->seen_ms < v->rules->believe_ms) continue;
        rc = finish(v, i, NULL, now_ms, e);
    }
    return rc;
}

/* Those that are not there yet go first, the newest first; those that are go by release. */
static void drop_waiting(struct tm_vms *v, int pool, int64_t now_ms)
{
    int more = active(v, pool) - v->pools[pool].want;
    for (int booting = 0; booting < 2; booting++) {
        enum tm_vm__step step = booting ? TM_VM_BOOTS : TM_VM_ASKED;
        for (size_t i = v->count; more > 0 && i-- > 0;) {
            if (v->instances[i].pool != pool || v->vms[i].step != step) continue;
            (void)drop(v, i, TM_INSTANCE_RELEASED, now_ms, NULL);
            more--;
        }
    }
}

int tm_vms__described(struct tm_vms *v, const struct tm_vm__row *rows, size_t count, int64_t now_ms, struct tm_error *e)
{
    int rc = 0;
    v->looking = false;
    v->look_ms = now_ms + v->poll_ms;
    v->poll_ms = v->poll_ms * 2 < v->poll_max_ms ? v->poll_ms * 2 : v->poll_max_ms;
    if (rows == NULL) return 0; /* no answer says nothing */
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = take_row(v, &rows[i], now_ms, e);
    if (rc == 0) rc = take_missing(v, now_ms, e);
    for (int i = 0; rc == 0 && v->adopting && i < v->pool_count; i++)
        if (v->pools[i].said) drop_waiting(v, i, now_ms);
    if (rc == 0) v->adopting = false;
    return rc;
}

void tm_vms__terminated(struct tm_vms *v, size_t at, bool answered, const char *code, int64_t now_ms)
{
    struct tm_vm *vm = &v->vms[at];
    if (answered && code[0] == '\0') {
        vm->ended = true;
        if (v->rules->free_leaving) vm->end_ms = earlier(vm->end_ms, now_ms);
    }
    look_soon(v, now_ms);
}

/* ---- calls ---- */

bool tm_vms__may_ask(const struct tm_vms *v, int pool, int64_t now_ms)
{
    return v->pools[pool].retry_ms <= now_ms && lacks(v, pool);
}

/* To be asked for (again): its id is not known. */
static bool is_asking(const struct tm_vm *vm)
{
    return vm->id[0] == '\0' && !vm->over && !vm->calling;
}

/* Its launch template has done its work. */
static bool has_template(const struct tm_vm *vm)
{
    return vm->templated && !vm->calling && (vm->id[0] != '\0' || vm->over);
}

/* All have gone, and what the last of them cost is not known to the end. */
static bool owes_last(const struct tm_vms *v)
{
    return !v->unpriced && tm_vms__left(v) == 0 && tm_vms__owes(v);
}

static bool wants_prices(const struct tm_vms *v)
{
    for (int i = 0; !v->unpriced && i < v->pool_count; i++)
        if (v->pools[i].about.kind == TM_INSTANCE_SPOT && v->pools[i].want > 0) return true;
    return owes_last(v);
}

/* When prices are asked for: every few minutes; and at once when the last VM has gone. */
static int64_t prices_due_ms(const struct tm_vms *v)
{
    if (v->pricing || !wants_prices(v)) return INT64_MAX;
    return owes_last(v) ? 0 : v->prices_ms;
}

static bool find_call(struct tm_vms *v, int64_t now_ms, struct tm_vm__call *out)
{
    bool may[TM_VM_CALL_KINDS];
    for (int kind = 0; kind < TM_VM_CALL_KINDS; kind++)
        may[kind] = tm_vms__free_ms(v, (enum tm_vm__call_kind)kind) <= now_ms;
    for (size_t i = 0; i < v->count; i++) {
        struct tm_vm *vm = &v->vms[i];
        out->at = i;
        if (may[TM_VM_TERMINATE] && vm->ending && vm->id[0] != '\0' && !vm->over && vm->retry_ms <= now_ms) {
            out->kind = TM_VM_TERMINATE;
            vm->retry_ms = now_ms + END_AGAIN_MS;
            return true;
        }
        if (may[TM_VM_RUN] && is_asking(vm) && vm->retry_ms <= now_ms) {
            out->kind = TM_VM_RUN;
            vm->calling = true;
            return true;
        }
        if (may[TM_VM_DROP_TEMPLATE] && has_template(vm)) {
            out->kind = TM_VM_DROP_TEMPLATE;
            vm->templated = false;
            return true;
        }
        if (vm->ticket_due && vm->step == TM_VM_BOOTS && vm->retry_ms <= now_ms) {
            out->kind = TM_VM_PUT_TICKET;
            vm->ticket_due = false;
            return true;
        }
        if (may[TM_VM_FOLLOW] && vm->follow_ms <= now_ms && !vm->over) {
            out->kind = TM_VM_FOLLOW;
            vm->follow_ms = INT64_MAX;
            return true;
        }
        if (vm->log_due) {
            out->kind = TM_VM_GET_LOG;
            vm->log_due = false;
            return true;
        }
        if (vm->drops_due > 0) {
            out->kind = TM_VM_DROP;
            vm->drops_due--;
            return true;
        }
    }
    return false;
}

static int choose(struct tm_vms *v, int64_t now_ms, struct tm_vm__call *out, bool *out_due, struct tm_error *e)
{
    *out = (struct tm_vm__call){.kind = TM_VM_DESCRIBE};
    *out_due = !v->looking;
    if (v->adopting) { /* before anything is asked for: who is there already? */
        *out_due = !v->looking && allowed_ms(v, TM_VM_DESCRIBE, v->look_ms) <= now_ms;
        v->looking = v->looking || *out_due;
        return 0;
    }
    *out_due = true;
    if (find_call(v, now_ms, out)) return 0;
    for (int i = 0; i < v->pool_count; i++) {
        if (!tm_vms__may_ask(v, i, now_ms) || tm_vms__free_ms(v, TM_VM_RUN) > now_ms) continue;
        out->kind = TM_VM_RUN;
        int rc = add(v, i, now_ms, &out->at, e);
        if (rc == 0) v->vms[out->at].calling = true;
        return rc;
    }
    out->kind = TM_VM_DESCRIBE;
    if (!v->looking && allowed_ms(v, TM_VM_DESCRIBE, v->look_ms) <= now_ms && tm_vms__left(v) > 0) {
        v->looking = true;
        return 0;
    }
    out->kind = TM_VM_PRICES;
    if (allowed_ms(v, TM_VM_PRICES, prices_due_ms(v)) <= now_ms) {
        v->pricing = true;
        return 0;
    }
    *out_due = false;
    return 0;
}

int tm_vms__next(struct tm_vms *v, int64_t now_ms, struct tm_vm__call *out, bool *out_due, struct tm_error *e)
{
    int rc = choose(v, now_ms, out, out_due, e);
    if (rc == 0 && *out_due) tm_vms__spend(v, out->kind, now_ms);
    return rc;
}

static int64_t vm_due_ms(const struct tm_vms *v, const struct tm_vm *vm)
{
    int64_t due_ms = INT64_MAX;
    if (vm->log_due || vm->drops_due > 0) return 0;
    if (has_template(vm)) due_ms = allowed_ms(v, TM_VM_DROP_TEMPLATE, 0);
    if (vm->over) return due_ms;
    if (!v->looking) due_ms = earlier(due_ms, allowed_ms(v, TM_VM_DESCRIBE, v->look_ms));
    due_ms = earlier(due_ms, allowed_ms(v, TM_VM_FOLLOW, vm->follow_ms));
    if (is_asking(vm)) due_ms = earlier(due_ms, allowed_ms(v, TM_VM_RUN, vm->retry_ms));
    if (vm->ending && vm->id[0] != '\0') due_ms = earlier(due_ms, allowed_ms(v, TM_VM_TERMINATE, vm->retry_ms));
    if (vm->ticket_due && vm->step == TM_VM_BOOTS) due_ms = earlier(due_ms, vm->retry_ms);
    if (vm->step == TM_VM_BOOTS) due_ms = earlier(due_ms, vm->boots_ms + v->start_limit_ms + 1);
    return due_ms;
}

int64_t tm_vms__due_ms(const struct tm_vms *v)
{
    int64_t due_ms = v->event_first < v->event_count ? 0 : INT64_MAX;
    if (v->adopting) return v->looking ? due_ms : earlier(due_ms, allowed_ms(v, TM_VM_DESCRIBE, v->look_ms));
    for (size_t i = 0; i < v->count; i++)
        due_ms = earlier(due_ms, vm_due_ms(v, &v->vms[i]));
    for (int i = 0; i < v->pool_count; i++)
        if (lacks(v, i)) due_ms = earlier(due_ms, allowed_ms(v, TM_VM_RUN, v->pools[i].retry_ms));
    return earlier(due_ms, allowed_ms(v, TM_VM_PRICES, prices_due_ms(v)));
}

int tm_vms__tick(struct tm_vms *v, int64_t now_ms, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->count; i++) {
        const struct tm_cloud_instance *instance = &v->instances[i];
        if (v->vms[i].step != TM_VM_BOOTS || now_ms - v->vms[i].boots_ms <= v->start_limit_ms) continue;
        tm_log(TM_LOG_WARN, "instance %" PRIu64 " (%s) has not joined within %" PRId64 " minutes: it is ended",
               instance->id, v->vms[i].id, v->start_limit_ms / 60000);
        back_off(v, instance->pool, now_ms);
        rc = drop(v, i, TM_INSTANCE_LOST, now_ms, e);
    }
    return rc;
}

size_t tm_vms__left(const struct tm_vms *v)
{
    size_t count = 0;
    for (size_t i = 0; i < v->count; i++)
        count += !v->vms[i].over;
    return count;
}

/* ---- orders ---- */

void tm_vms__want(struct tm_vms *v, int pool, int count, int64_t now_ms)
{
    tm_debug(TM_DEBUG_CLOUD, "%s: %d wanted of %s, was %d", v->rules->cloud, count, v->pools[pool].about.name,
             v->pools[pool].want);
    v->pools[pool].want = count;
    v->pools[pool].said = true;
    look_soon(v, now_ms);
    drop_waiting(v, pool, now_ms);
    (void)tell_missing(v, pool, now_ms, NULL);
}

int tm_vms__release(struct tm_vms *v, uint64_t id, int64_t now_ms, struct tm_error *e)
{
    size_t at = 0;
    while (at < v->count && v->instances[at].id != id)
        at++;
    if (at == v->count || v->vms[at].step == TM_VM_GONE)
        return tm_error_set(e, TM_ENOTFOUND, "there is no instance %" PRIu64, id);
    struct tm_vm__pool *pool = &v->pools[v->instances[at].pool];
    if (pool->want > 0) pool->want--;
    return drop(v, at, TM_INSTANCE_RELEASED, now_ms, e);
}

void tm_vms__end_all(struct tm_vms *v, int64_t now_ms)
{
    for (int i = 0; i < v->pool_count; i++)
        v->pools[i].want = 0;
    for (size_t i = 0; i < v->count; i++) {
        if (v->vms[i].over) continue;
        (void)drop(v, i, TM_INSTANCE_RELEASED, now_ms, NULL);
    }
    look_soon(v, now_ms);
}

void tm_vms__init(struct tm_vms *v, const struct tm_vm__rules *rules)
{
    *v = (struct tm_vms){.rules = rules,
                         .id_next = 1,
                         .poll_max_ms = POLL_MAX_MS,
                         .poll_ms = POLL_MIN_MS,
                         .start_limit_ms = START_LIMIT_MS,
                         .adopting = true};
}

void tm_vms__deinit(struct tm_vms *v)
{
    tm_free(v->instances);
    tm_free(v->vms);
    tm_free(v->quotes);
    tm_free(v->events);
}
