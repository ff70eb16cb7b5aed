#include "run/cloud_driver.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "run/run_tap.h"
#include "run/state_folder.h"
#include "wire/peer_links.h"
#include "wire/tls.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    APART_MS = 10000,
    ACCOUNT_EVERY_MS = 1000,
    TOLD_AFTER_END_MS = 3600 * 1000,
    NOTICED_MAX = 256,
    HINTS_MAX = 64,
    ZONES_MAX = 64
};
enum { TOLD_MAX = 4096, ACCOUNT_BYTES_MAX = 1 << 16, WAITS_MAX = 20, BILL_WAIT_MS = 60000, BILL_LOOK_MS = 200 };

struct noticed {
    uint64_t id;
    int64_t end_ms; /* by our clock */
};

struct hinted {
    uint64_t id;
    char why[200]; /* in the cloud's words */
};

struct tm_cloud_driver {
    struct tm_env *env;
    struct tm_cloud_driver_options options;
    struct tm_cloud *cloud;
    struct tm_cloud_link link;
    struct tm_links *links;
    struct tm_tls *tls;
    struct tm_outbox out;
    char address[TM_ADDRESS_MAX];
    int pool_count;
    int wanted[TM_CLOUD_POOLS_MAX];    /* what the cloud was told */
    int refused[TM_CLOUD_POOLS_MAX];   /* of that, what it has no capacity for */
    char why[TM_CLOUD_POOLS_MAX][200]; /* in its words */
    struct noticed noticed[NOTICED_MAX];
    size_t noticed_count;
    struct hinted hinted[HINTS_MAX];
    size_t hinted_count;
    struct tm_cloud_event *events; /* ring, TM_DRIVER_EVENTS_MAX; owned */
    size_t event_first, event_count;
    int64_t account_ms;
    bool account_due;
    size_t account_billed;  /* instances that cost something, in the account */
    bool account_failed;    /* and that was told */
    int64_t apart_since_ms; /* since when it cannot be reached, if it cannot */
    bool apart_told;
};

static int64_t now_ms(const struct tm_cloud_driver *d)
{
    return d->env->monotonic_ns(d->env) / 1000000;
}

/* ---- the account ---- */

/* Numbers of a line, set apart by blanks; how many, or -1. */
static int read_numbers(const char *line, size_t length, double *out, int max)
{
    int count = 0;
    const char *end = line + length;
    while (line < end) {
        const char *blank = memchr(line, ' ', (size_t)(end - line));
        size_t word = (size_t)((blank != NULL ? blank : end) - line);
        if (count == max || !tm_number_double(line, word, &out[count]) || out[count] < 0 || out[count] > 1e17)
            return -1;
        count++;
        line += word + (blank != NULL);
    }
    return count;
}

static bool take_pool(struct tm_cloud_account *account, const double n[3])
{
    if (n[0] >= TM_CLOUD_POOLS_MAX) return false;
    account->bill.usd[(int)n[0]] = n[1];
    account->bill.seconds[(int)n[0]] = n[2];
    return true;
}

static bool take_line(struct tm_cloud_account *account, const char *line, size_t length, bool first)
{
    double n[10];
    if (first && length > 19 && memcmp(line, "tidemill-account 1 ", 19) == 0) {
        if (read_numbers(line + 19, length - 19, n, 6) != 6) return false;
        *account = (struct tm_cloud_account){.time_ms = (int64_t)n[0],
                                             .instance = (uint64_t)n[1],
                                             .bill = {.usd = {n[2], n[4]}, .seconds = {n[3], n[5]}}};
        return true;
    }
    if (!first && length > 5 && memcmp(line, "pool ", 5) == 0)
        return read_numbers(line + 5, length - 5, n, 3) == 3 && take_pool(account, n);
    if (!first && length > 4 && memcmp(line, "own ", 4) == 0)
        return read_numbers(line + 4, length - 4, &account->own_usd, 1) == 1;
    if (first || length <= 9 || memcmp(line, "instance ", 9) != 0) return false;
    int count = account->count == TM_ACCOUNT_INSTANCES_MAX ? -1 : read_numbers(line + 9, length - 9, n, 10);
    /* six, eight: of earlier releases, which told of those that were there, and knew no pools */
    if ((count != 10 && count != 8 && count != 6) || (count == 10 && n[8] >= TM_CLOUD_POOLS_MAX)) return false;
    account->list[account->count++] = (struct tm_account_instance){.id = (uint64_t)n[0],
                                                                   .start_ms = (int64_t)n[1],
                                                                   .pool = count == 10 ? (int)n[8] : n[2] == 0,
                                                                   .paid_before_ms = count == 10 ? (int64_t)n[9] : 0,
                                                                   .spot = n[2] != 0,
                                                                   .announced = n[3] != 0,
                                                                   .price_usd_h = n[4],
                                                                   .bill_usd = n[5],
                                                                   .end_ms = count >= 8 ? (int64_t)n[6] : 0,
                                                                   .released = count >= 8 && n[7] != 0};
    return true;
}

int tm_cloud_account_read(struct tm_env *env, const char *dir, struct tm_cloud_account *out, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_text text;
    struct tm_cloud_account account = {0};
    tm_state_path(dir, TM_STATE_ACCOUNT, path);
    if (!env->file_exists(env, path)) {
        *out = account;
        return 0;
    }
    tm_text_init(&text, ACCOUNT_BYTES_MAX);
    int rc = env->file_read(env, path, &text, e);
    const char *line = tm_text_string(&text);
    bool good = rc == 0 && *line != '\0';
    for (bool first = true; good && *line != '\0'; first = false) {
        size_t length = strcspn(line, "\n");
        good = take_line(&account, line, length, first);
        line += length + (line[length] == '\n');
    }
    tm_text_deinit(&text);
    if (rc == 0 && !good)
        rc = tm_error_set(e, TM_EINPUT, "%s: not an account of version 1; remove it, and the cost starts from zero",
                          path);
    if (rc == 0) *out = account;
    return rc;
}

/* Of an earlier program: what was there then ended at its last word at the latest. */
static void end_those_before(struct tm_cloud_account *before)
{
    for (size_t i = 0; i < before->count; i++) {
        if (before->list[i].end_ms != 0) continue;
        before->list[i].end_ms = before->time_ms > 0 ? before->time_ms : 1;
        before->list[i].released = true;
    }
}

static bool is_told(const struct tm_cloud_driver *d, const struct tm_cloud_instance *instance)
{
    bool paid = d->cloud->bills_start && instance->gone_ms >= 0 && !instance->ungranted;
    if (instance->arrived_ms < 0 && !paid) return false; /* not there yet, or never was */
    if (tm_instance_is_here(instance)) return true;
    int64_t ago_ms = d->cloud->now_ms(d->cloud) - instance->gone_ms;
    return (double)ago_ms <= TOLD_AFTER_END_MS * fmax(1, d->options.speed);
}

static struct tm_account_instance entry_of(const struct tm_cloud_driver *d, const struct tm_cloud_instance *instance)
{
    int64_t base_ms = d->options.before.time_ms;
    int64_t end_ms = base_ms + instance->gone_ms > 0 ? base_ms + instance->gone_ms : 1;
    int64_t start_ms = instance->arrived_ms >= 0 ? instance->arrived_ms : instance->gone_ms; /* it never came */
    return (struct tm_account_instance){.id = instance->id,
                                        .start_ms = base_ms + start_ms,
                                        .paid_before_ms = d->cloud->bills_start ? start_ms - instance->asked_ms : 0,
                                        .end_ms = tm_instance_is_here(instance) ? 0 : end_ms,
                                        .pool = instance->pool,
                                        .spot = instance->kind == TM_INSTANCE_SPOT,
                                        .announced = instance->noticed_ms >= 0,
                                        .released = instance->state == TM_INSTANCE_RELEASED,
                                        .price_usd_h = instance->price_usd_h,
                                        .bill_usd = fmax(0, instance->bill_usd)};
}

/* Those that are here first: they must not be missing for want of room. */
static void list_instances(const struct tm_cloud_driver *d, const struct tm_cloud_instance *all, size_t count,
                           struct tm_cloud_account *out)
{
    const struct tm_cloud_account *before = &d->options.before;
    out->count = 0;
    for (int ended = 0; ended < 2; ended++) {
        for (size_t i = count; i-- > 0 && out->count < TM_ACCOUNT_INSTANCES_MAX;)
            if (is_told(d, &all[i]) && tm_instance_is_here(&all[i]) == (ended == 0))
                out->list[out->count++] = entry_of(d, &all[i]);
    }
    for (size_t i = 0; i < before->count && out->count < TM_ACCOUNT_INSTANCES_MAX; i++)
        out->list[out->count++] = before->list[i];
}

/* Of the VM that this runs on: a minute at least, as clouds bill. */
static double own_usd(const struct tm_cloud_driver *d)
{
    int64_t used_ms = d->env->now_ms(d->env) - d->options.own_since_ms;
    return d->options.own_usd_h * fmax(60000, (double)used_ms) / 3.6e6;
}

struct tm_cloud_account tm_cloud_driver__account(struct tm_cloud_driver *d)
{
    struct tm_cloud_account account = d->options.before;
    struct tm_cloud_bill bill = d->cloud->bill(d->cloud);
    size_t count = 0;
    const struct tm_cloud_instance *all = d->cloud->instances(d->cloud, &count);
    list_instances(d, all, count, &account);
    account.time_ms += d->cloud->now_ms(d->cloud);
    if (d->options.own_usd_h > 0) account.own_usd += own_usd(d);
    if (count > 0) account.instance = all[count - 1].id;
    for (int i = 0; i < d->pool_count; i++) {
        account.bill.usd[i] = fmax(0, account.bill.usd[i] + bill.usd[i]); /* some of it may have come back */
        account.bill.seconds[i] += bill.seconds[i];
    }
    return account;
}

static void print_account(const struct tm_cloud_account *a, struct tm_text *out)
{
    char n[4][TM_NUMBER_TEXT_MAX];
    for (int i = 0; i < 2; i++) {
        tm_number_print(a->bill.usd[i], n[2 * i]);
        tm_number_print(a->bill.seconds[i], n[2 * i + 1]);
    }
    tm_text_printf(out, "tidemill-account 1 %" PRId64 " %" PRIu64 " %s %s %s %s\n", a->time_ms, a->instance, n[0], n[1],
                   n[2], n[3]);
    for (int i = 2; i < TM_CLOUD_POOLS_MAX; i++)
        if (a->bill.seconds[i] > 0)
            tm_text_printf(out, "pool %d %s %s\n", i, tm_number_print(a->bill.usd[i], n[0]),
                           tm_number_print(a->bill.seconds[i], n[1]));
    if (a->own_usd > 0) tm_text_printf(out, "own %s\n", tm_number_print(a->own_usd, n[0]));
    for (size_t i = 0; i < a->count; i++) {
        const struct tm_account_instance *one = &a->list[i];
        tm_text_printf(out, "instance %" PRIu64 " %" PRId64 " %d %d %s %s %" PRId64 " %d %d %" PRId64 "\n", one->id,
                       one->start_ms, one->spot, one->announced, tm_number_print(one->price_usd_h, n[0]),
                       tm_number_print(one->bill_usd, n[1]), one->end_ms, one->released, one->pool,
                       one->paid_before_ms);
    }
}

static size_t billed_count(struct tm_cloud_driver *d)
{
    size_t count = 0, billed = 0;
    (void)d->cloud->bill(d->cloud); /* of each instance, up to now */
    const struct tm_cloud_instance *all = d->cloud->instances(d->cloud, &count);
    for (size_t i = 0; i < count; i++)
        billed += all[i].bill_usd > 0;
    return billed;
}

/* An instance that begins to cost is written down at once: whoever goes on after a kill takes what the account had by
 * then for paid. */
static bool account_is_due(struct tm_cloud_driver *d)
{
    return d->account_due || now_ms(d) - d->account_ms >= ACCOUNT_EVERY_MS || billed_count(d) != d->account_billed;
}

static void write_account(struct tm_cloud_driver *d)
{
    struct tm_cloud_account account = tm_cloud_driver__account(d);
    struct tm_text text;
    struct tm_error e;
    tm_text_init(&text, ACCOUNT_BYTES_MAX);
    print_account(&account, &text);
    int rc = tm_text_status(&text, &e);
    if (rc == 0) rc = tm_state_write(d->env, d->options.dir, TM_STATE_ACCOUNT, tm_text_string(&text), &e);
    if (rc != 0 && !d->account_failed)
        tm_log(TM_LOG_WARN, "the cloud's account could not be stored, retrying: %s", e.text);
    d->account_failed = rc != 0;
    tm_text_deinit(&text);
    d->account_ms = now_ms(d);
    d->account_due = false;
    d->account_billed = billed_count(d);
}

/* ---- what the cloud does ---- */

static void note_notice(struct tm_cloud_driver *d, const struct tm_cloud_event *event)
{
    size_t i = 0;
    while (i < d->noticed_count && d->noticed[i].id != event->instance)
        i++;
    bool known = i < d->noticed_count;
    if (event->kind == TM_CLOUD_NOTICE && i < NOTICED_MAX) {
        d->noticed[i] = (struct noticed){event->instance, now_ms(d) + event->left_ms};
        d->noticed_count += !known;
    }
    if (known && (event->kind == TM_CLOUD_LOST || event->kind == TM_CLOUD_RELEASED))
        d->noticed[i] = d->noticed[--d->noticed_count];
}

static void note_hint(struct tm_cloud_driver *d, const struct tm_cloud_event *event)
{
    size_t i = 0;
    while (i < d->hinted_count && d->hinted[i].id != event->instance)
        i++;
    bool known = i < d->hinted_count;
    if (event->kind == TM_CLOUD_HINT && i < HINTS_MAX) {
        d->hinted[i].id = event->instance;
        memcpy(d->hinted[i].why, event->why, sizeof event->why);
        d->hinted_count += !known;
    }
    if (known && (event->kind == TM_CLOUD_LOST || event->kind == TM_CLOUD_RELEASED))
        d->hinted[i] = d->hinted[--d->hinted_count];
}

static void take_event(struct tm_cloud_driver *d, const struct tm_cloud_event *event)
{
    const struct tm_cloud_instance *instance = tm_cloud_find(d->cloud, event->instance);
    note_notice(d, event);
    note_hint(d, event);
    /* One that ended in order, or that we gave back, is not asked for again: the cloud wants one less. */
    if (event->kind == TM_CLOUD_RELEASED && instance != NULL && d->wanted[instance->pool] > 0)
        d->wanted[instance->pool]--;
    if (event->kind == TM_CLOUD_REFUSED && event->pool < d->pool_count) {
        d->refused[event->pool] = event->count;
        memcpy(d->why[event->pool], event->why, sizeof event->why);
    }
    if (d->event_count == TM_DRIVER_EVENTS_MAX) {
        d->event_first = (d->event_first + 1) % TM_DRIVER_EVENTS_MAX;
        d->event_count--;
    }
    d->events[(d->event_first + d->event_count++) % TM_DRIVER_EVENTS_MAX] = *event;
    tm_cloud_link__changed(&d->link);
    d->account_due = true;
}

static int take_events(struct tm_cloud_driver *d, struct tm_error *e)
{
    struct tm_cloud_event event;
    int rc = 0;
    while ((rc = d->cloud->next(d->cloud, 0, &event, e)) == 0)
        take_event(d, &event);
    return rc == -(int)TM_ETIMEOUT ? 0 : rc;
}

bool tm_cloud_driver__event(struct tm_cloud_driver *d, struct tm_cloud_event *out)
{
    if (d->event_count == 0) return false;
    *out = d->events[d->event_first];
    d->event_first = (d->event_first + 1) % TM_DRIVER_EVENTS_MAX;
    d->event_count--;
    return true;
}

/* ---- reports ---- */

static uint64_t microusd(double usd)
{
    return isfinite(usd) && usd > 0 ? (uint64_t)floor(usd * 1e6) : 0;
}

static uint64_t microusd_h(double usd_h)
{
    return isfinite(usd_h) && usd_h > 0 ? (uint64_t)llround(usd_h * 1e6) : 0;
}

static int64_t notice_left_ms(const struct tm_cloud_driver *d, uint64_t id)
{
    for (size_t i = 0; i < d->noticed_count; i++) {
        int64_t left_ms = d->noticed[i].end_ms - now_ms(d);
        if (d->noticed[i].id == id) return left_ms > 0 ? left_ms : 0;
    }
    return 0;
}

/* The number of the zone's first instance. */
static uint32_t zone_of(const struct tm_cloud_instance *all, size_t at)
{
    size_t first = 0;
    if (all[at].zone[0] == '\0') return 0;
    while (strcmp(all[first].zone, all[at].zone) != 0)
        first++;
    return (uint32_t)all[first].id;
}

static void fill_instance(const struct tm_account_instance *entry, Tmw__Instance *out)
{
    tmw__instance__init(out);
    out->id = entry->id;
    out->start_ms = entry->start_ms;
    out->end_ms = entry->end_ms;
    out->price_microusd_h = microusd_h(entry->price_usd_h);
    out->pool = (uint32_t)entry->pool;
    out->paid_before_ms = entry->paid_before_ms;
    out->spot = entry->spot;
    out->announced = entry->announced;
    /* Up, where the total is rounded down: what they add up to is never less than the total that was shown. */
    out->bill_microusd = entry->bill_usd > 0 ? (uint64_t)ceil(entry->bill_usd * 1e6) : 0;
    out->released = entry->released;
}

/* Those of an earlier program, those that are here, and as many of the others as there is room for, by age. */
static size_t fill_instances(const struct tm_cloud_driver *d, Tmw__Instance *told, Tmw__Instance **list)
{
    size_t count = 0;
    size_t filled = 0;
    const struct tm_cloud_instance *all = d->cloud->instances(d->cloud, &count);
    size_t room = TOLD_MAX - d->options.before.count;
    for (size_t i = 0; i < count; i++)
        room -= room > 0 && tm_instance_is_here(&all[i]);
    for (size_t i = 0; i < d->options.before.count; i++)
        fill_instance(&d->options.before.list[i], &told[filled++]);
    for (size_t i = 0; i < count && filled < TOLD_MAX; i++) {
        bool here = tm_instance_is_here(&all[i]);
        if (!is_told(d, &all[i]) || (!here && room == 0)) continue;
        struct tm_account_instance entry = entry_of(d, &all[i]);
        fill_instance(&entry, &told[filled]);
        told[filled].notice_left_ms = notice_left_ms(d, entry.id);
        told[filled++].zone = zone_of(all, i);
        room -= !here;
    }
    for (size_t i = 0; i < filled; i++)
        list[i] = &told[i];
    return filled;
}

static double usd_of(const struct tm_cloud_driver *d, const struct tm_cloud_account *account, bool on_demand_only)
{
    int count = 0;
    double usd = account->own_usd;
    const struct tm_cloud_pool *pools = d->cloud->pools(d->cloud, &count);
    for (int i = 0; i < count; i++)
        if (!on_demand_only || pools[i].kind == TM_INSTANCE_ON_DEMAND) usd += account->bill.usd[i];
    return usd;
}

/* The least of a market's pools; NaN: there is none, or it is not known. */
static double price_of(const struct tm_cloud_driver *d, enum tm_instance_kind kind)
{
    int count = 0;
    double usd_h = NAN;
    const struct tm_cloud_pool *pools = d->cloud->pools(d->cloud, &count);
    for (int i = 0; i < count; i++)
        if (pools[i].kind == kind) usd_h = fmin(usd_h, d->cloud->price_usd_h(d->cloud, i));
    return usd_h;
}

static void fill_pools(struct tm_cloud_driver *d, const struct tm_cloud_account *account, Tmw__PoolReport *told,
                       Tmw__PoolReport **list)
{
    size_t count = 0;
    const struct tm_cloud_instance *all = d->cloud->instances(d->cloud, &count);
    for (int i = 0; i < d->pool_count; i++) {
        tmw__pool_report__init(&told[i]);
        told[i].price_microusd_h = microusd_h(d->cloud->price_usd_h(d->cloud, i));
        told[i].offered = d->cloud->offered != NULL ? d->cloud->offered(d->cloud, i) : -1;
        told[i].refused = (uint32_t)d->refused[i];
        told[i].why = d->why[i];
        told[i].bill_microusd = microusd(account->bill.usd[i]);
        told[i].instance_ms = (uint64_t)fmax(0, account->bill.seconds[i] * 1000);
        int64_t wait_ms = d->cloud->learns_start ? tm_cloud_wait_ms(d->cloud, i, WAITS_MAX) : -1;
        told[i].wait_ms = wait_ms > 0 ? wait_ms : 0;
        list[i] = &told[i];
    }
    for (size_t i = 0; i < count; i++)
        told[all[i].pool].starting += all[i].state == TM_INSTANCE_STARTING;
}

static size_t fill_hints(struct tm_cloud_driver *d, Tmw__HintEvent *told, Tmw__HintEvent **list)
{
    for (size_t i = 0; i < d->hinted_count; i++) {
        tmw__hint_event__init(&told[i]);
        told[i].instance = d->hinted[i].id;
        told[i].why = d->hinted[i].why;
        list[i] = &told[i];
    }
    return d->hinted_count;
}

/* Of those instances: each zone once, as far as there is room. */
static size_t fill_zones(struct tm_cloud_driver *d, const Tmw__CloudReport *body, Tmw__ZoneEvent *told,
                         Tmw__ZoneEvent **list)
{
    size_t filled = 0;
    for (size_t i = 0; i < body->n_instances && filled < ZONES_MAX; i++) {
        uint32_t zone = body->instances[i]->zone;
        const struct tm_cloud_instance *first = zone != 0 ? tm_cloud_find(d->cloud, zone) : NULL;
        bool known = first == NULL;
        for (size_t k = 0; k < filled && !known; k++)
            known = told[k].zone == zone;
        if (known) continue;
        tmw__zone_event__init(&told[filled]);
        told[filled].zone = zone;
        told[filled].name = (char *)first->zone;
        list[filled] = &told[filled];
        filled++;
    }
    return filled;
}

static void report(struct tm_cloud_driver *d)
{
    Tmw__CloudReport body = TMW__CLOUD_REPORT__INIT;
    struct tm_cloud_account account = tm_cloud_driver__account(d); /* settles the bills of instances, too */
    Tmw__PoolReport pools[TM_CLOUD_POOLS_MAX];
    Tmw__PoolReport *pool_list[TM_CLOUD_POOLS_MAX];
    Tmw__HintEvent hints[HINTS_MAX];
    Tmw__HintEvent *hint_list[HINTS_MAX];
    Tmw__ZoneEvent zones[ZONES_MAX];
    Tmw__ZoneEvent *zone_list[ZONES_MAX];
    Tmw__Instance *told = tm_calloc(TOLD_MAX, sizeof *told);
    Tmw__Instance **list = tm_calloc(TOLD_MAX, sizeof *list);
    if (told != NULL && list != NULL) {
        body.n_instances = fill_instances(d, told, list);
        body.instances = list;
        body.now_ms = account.time_ms;
        body.utc_ms = d->env->now_ms(d->env);
        body.speed = d->options.speed;
        body.spot_microusd_h = microusd_h(price_of(d, TM_INSTANCE_SPOT));
        body.on_demand_microusd_h = microusd_h(price_of(d, TM_INSTANCE_ON_DEMAND));
        body.spot_offered = -1;
        body.bill_microusd = microusd(usd_of(d, &account, false));
        body.on_demand_bill_microusd = microusd(usd_of(d, &account, true));
        fill_pools(d, &account, pools, pool_list);
        body.pools = pool_list;
        body.n_pools = (size_t)d->pool_count;
        body.hints = hint_list;
        body.n_hints = fill_hints(d, hints, hint_list);
        body.zones = zone_list;
        body.n_zones = fill_zones(d, &body, zones, zone_list);
        tm_cloud_link_report(&d->link, now_ms(d), &body, &d->out);
    }
    tm_free(list);
    tm_free(told);
}

/* ---- orders ---- */

static void carry_out_order(struct tm_cloud_driver *d)
{
    const struct tm_cloud_order *order = &d->link.order;
    struct tm_error e;
    if (!order->given) return;
    for (size_t i = 0; i < order->release_count; i++) {
        const struct tm_cloud_instance *instance = tm_cloud_find(d->cloud, order->release[i]);
        if (instance == NULL || !tm_instance_is_here(instance)) continue;
        if (d->cloud->release(d->cloud, order->release[i], &e) != 0)
            tm_log(TM_LOG_WARN, "instance %" PRIu64 " could not be released: %s", order->release[i], e.text);
    }
    for (int i = 0; i < d->pool_count; i++) {
        int want = order->stop || (size_t)i >= order->pool_count ? 0 : (int)(order->want[i] % 1000000);
        if (want == d->wanted[i]) continue; /* asked again, it would forget how long it waits after failures */
        if (d->cloud->want(d->cloud, i, want, &e) == 0)
            d->wanted[i] = want;
        else
            tm_log(TM_LOG_WARN, "the cloud refused the order: %s", e.text);
    }
}

static void carry_out(struct tm_cloud_driver *d)
{
    for (size_t i = 0; i < d->out.count; i++) {
        const struct tm_action *action = &d->out.actions[i];
        if (action->kind == TM_ACTION_SEND)
            tm_links_send(d->links, &action->to, d->address[0] != '\0' ? d->address : NULL,
                          tm_outbox_data(&d->out, action), action->length);
    }
    tm_outbox_clear(&d->out);
}

static void on_message(void *context, const tm_message *message)
{
    struct tm_cloud_driver *d = context;
    if (tm_cloud_link_receive(&d->link, now_ms(d), message, &d->out)) carry_out_order(d);
    carry_out(d);
}

const struct tm_cloud_order *tm_cloud_driver__order(const struct tm_cloud_driver *d)
{
    return &d->link.order;
}

bool tm_cloud_driver__connected(const struct tm_cloud_driver *d)
{
    return d->link.registered;
}

void tm_cloud_driver__greet(struct tm_cloud_driver *d)
{
    d->link.registered = false;
    d->link.nonce = 0;
    d->link.said_ms = -1;
}

/* ---- life ---- */

static void wait_for_anything(struct tm_cloud_driver *d, int64_t timeout_ms, const int *handles, size_t handle_count)
{
    int watched[TM_LINKS_OTHERS_MAX];
    struct tm_links_waiting waiting;
    int64_t cloud_ms = INT64_MAX;
    size_t count = d->cloud->watch(d->cloud, watched, TM_LINKS_OTHERS_MAX - 16, &cloud_ms);
    if (cloud_ms < timeout_ms) timeout_ms = cloud_ms;
    tm_links_note(d->links, timeout_ms > 0 ? timeout_ms : 0, &waiting);
    for (size_t i = 0; i < count; i++)
        tm_links_also(&waiting, watched[i]);
    for (size_t i = 0; i < handle_count; i++)
        tm_links_also(&waiting, handles[i]);
    tm_links_wait(d->links, &waiting);
}

/* It is on this machine, whatever others are told. */
static void find_coordinator(struct tm_cloud_driver *d)
{
    const char *dir = d->options.dir;
    if (tm_state_read(d->env, dir, TM_STATE_ADDRESS_HERE, d->address, sizeof d->address, NULL) != 0)
        (void)tm_state_read(d->env, dir, TM_STATE_ADDRESS, d->address, sizeof d->address, NULL);
}

/* Without it nothing is rented, and nothing would say why. */
static void warn_if_apart(struct tm_cloud_driver *d)
{
    const char *trouble = tm_links_trouble(d->links);
    bool apart = !d->link.registered && trouble[0] != '\0';
    if (!apart) d->apart_since_ms = now_ms(d);
    if (d->link.registered) d->apart_told = false;
    if (!apart || d->apart_told || now_ms(d) - d->apart_since_ms < APART_MS) return;
    d->apart_told = true;
    tm_log(TM_LOG_WARN, "this program cannot reach its coordinator at %s: %s; retrying", d->address, trouble);
}

int tm_cloud_driver__step(struct tm_cloud_driver *d, int64_t timeout_ms, const int *handles, size_t handle_count,
                          struct tm_error *e)
{
    int rc = take_events(d, e);
    if (rc != 0) return rc;
    wait_for_anything(d, timeout_ms, handles, handle_count);
    tm_links_take(d->links, on_message, d);
    rc = take_events(d, e);
    /* The coordinator may have been started again elsewhere. */
    if (!d->link.registered) find_coordinator(d);
    warn_if_apart(d);
    bool told = d->address[0] != '\0' && tm_cloud_link_due(&d->link, now_ms(d), &d->out);
    if (told) report(d);
    /* Before the report goes out: should all be killed then, the account must not say less than the record. */
    if (told || account_is_due(d)) write_account(d);
    carry_out(d);
    return rc;
}

/* ---- the end ---- */

/* The record may end before the last instances did: nobody was there any more to write it. A run whose bill cannot be
 * written has a result all the same, so this is no error. */
static void settle_record(struct tm_cloud_driver *d)
{
    char path[TM_STATE_PATH_MAX];
    struct tm_error e = {.text = ""};
    tm_state_path(d->options.dir, TM_STATE_RECORD, path);
    if (!d->env->file_exists(d->env, path)) return;
    Tmw__Instance *told = tm_calloc(TOLD_MAX, sizeof *told);
    Tmw__Instance **list = tm_calloc(TOLD_MAX, sizeof *list);
    int rc = told == NULL || list == NULL ? tm_error_nomem(&e) : 0;
    struct tm_cloud_account account = tm_cloud_driver__account(d);
    const struct tm_run_bill bill = {microusd(usd_of(d, &account, false)), microusd(usd_of(d, &account, true))};
    if (rc == 0)
        rc = tm_run_record__settle(path, d->env->now_ms(d->env), list, fill_instances(d, told, list),
                                   d->cloud->owes != NULL ? &bill : NULL, &e);
    if (rc != 0) tm_log(TM_LOG_WARN, "the last bill of the run is not in its record: %s", e.text);
    tm_free(list);
    tm_free(told);
}

/* Clouds bill until an instance has ended, and say late what it cost. */
static void await_bill(struct tm_cloud_driver *d)
{
    int64_t end_ms = now_ms(d) + BILL_WAIT_MS;
    while (d->cloud->owes != NULL && d->cloud->owes(d->cloud) && now_ms(d) < end_ms) {
        struct tm_cloud_event event;
        int rc = d->cloud->next(d->cloud, BILL_LOOK_MS, &event, NULL);
        if (rc == 0) take_event(d, &event);
        if (rc != 0 && rc != -(int)TM_ETIMEOUT) break; /* its `destroy` says why */
    }
}

int tm_cloud_driver__close(struct tm_cloud_driver *d, struct tm_error *e)
{
    size_t count = 0;
    int rc = 0;
    for (size_t i = 0;; i++) {
        const struct tm_cloud_instance *all = d->cloud->instances(d->cloud, &count);
        if (i >= count) break;
        if (!tm_instance_is_here(&all[i])) continue;
        int released = d->cloud->release(d->cloud, all[i].id, rc == 0 ? e : NULL);
        if (rc == 0) rc = released;
    }
    for (int i = 0; i < d->pool_count; i++)
        (void)d->cloud->want(d->cloud, i, 0, NULL);
    await_bill(d);
    write_account(d);
    settle_record(d);
    return rc;
}

int tm_cloud_driver__create(struct tm_env *env, const struct tm_cloud_driver_options *options,
                            struct tm_cloud_driver **out, struct tm_error *e)
{
    struct tm_cloud_driver *d = tm_calloc(1, sizeof *d);
    if (d == NULL) return tm_error_nomem(e);
    d->env = env;
    d->options = *options;
    end_those_before(&d->options.before);
    d->cloud = options->cloud;
    (void)d->cloud->pools(d->cloud, &d->pool_count);
    tm_outbox_init(&d->out);
    struct tm_cloud_link_options link = {
        .job = options->job, .incarnation = env->random_u64(env) | 1, .token = options->token};
    tm_cloud_link_init(&d->link, &link);
    d->events = tm_calloc(TM_DRIVER_EVENTS_MAX, sizeof *d->events);
    int rc = d->events == NULL ? tm_error_nomem(e) : 0;
    if (rc == 0 && options->tls_folder != NULL) rc = tm_tls_load(env, options->tls_folder, &d->tls, e);
    if (rc == 0) rc = tm_links_create(env, NULL, d->tls, options->token, &d->links, e);
    if (rc == 0)
        *out = d;
    else
        tm_cloud_driver__destroy(d);
    return rc;
}

void tm_cloud_driver__destroy(struct tm_cloud_driver *d)
{
    if (d == NULL) return;
    if (d->links != NULL) write_account(d);
    tm_links_destroy(d->links);
    tm_tls_destroy(d->tls);
    tm_outbox_deinit(&d->out);
    tm_free(d->events);
    tm_free(d);
}
