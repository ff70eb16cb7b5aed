/* What VMs cost, by the cloud's rules (tm_vm__rules). Of a spot VM it is settled up to when prices were last asked for,
 * through all that they were since then; from there on it is the last one that is known. */
#include "base/alloc.h"
#include "cloud/vms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { QUOTES_MAX = 1 << 16 };

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool is_paid(const struct tm_vm *vm)
{
    return vm->id[0] != '\0' && vm->paid_ms != INT64_MIN;
}

/* At one price, up to then. */
static void pay(struct tm_vm *vm, double usd_h, int64_t to_ms)
{
    if (!is_paid(vm) || to_ms <= vm->paid_ms) return;
    double seconds = (double)(to_ms - vm->paid_ms) / 1000;
    vm->paid_s += seconds;
    vm->paid_usd += seconds / 3600 * (isnan(usd_h) ? 0 : usd_h);
    vm->paid_ms = to_ms;
}

struct tm_cloud_bill tm_vms__bill(struct tm_vms *v, int64_t now_ms)
{
    struct tm_cloud_bill sum = {.usd = {0}};
    for (size_t i = 0; i < v->count; i++) {
        struct tm_cloud_instance *instance = &v->instances[i];
        struct tm_vm vm = v->vms[i]; /* a copy: prices may still turn out to have been others */
        double minimum_s = vm.minimum && vm.id[0] != '\0' ? (double)v->rules->minimum_s : 0;
        double usd_h = isnan(instance->price_usd_h) ? 0 : instance->price_usd_h;
        pay(&vm, usd_h, earlier(now_ms, vm.end_ms));
        instance->bill_usd = vm.paid_usd + fmax(0, minimum_s - vm.paid_s) / 3600 * usd_h;
        sum.usd[instance->pool] += instance->bill_usd;
        sum.seconds[instance->pool] += vm.paid_s;
    }
    return sum;
}

void tm_vms__end_bill(struct tm_vms *v, size_t at, const struct tm_vm__row *row, int64_t now_ms)
{
    struct tm_vm *vm = &v->vms[at];
    const struct tm_cloud_instance *instance = &v->instances[at];
    int64_t told_ms = row != NULL && row->ended_ms > 0 ? row->ended_ms - v->begin_utc_ms : INT64_MAX;
    if (told_ms >= vm->since_ms) vm->end_ms = earlier(vm->end_ms, told_ms);
    vm->end_ms = earlier(vm->end_ms, now_ms);
    bool young = (double)(vm->end_ms - vm->since_ms) / 1000 < (double)v->rules->free_s;
    if (row == NULL || !row->interrupted || !young || instance->kind != TM_INSTANCE_SPOT) return;
    /* An earlier program has paid for what is free: that comes back. */
    double before_s = vm->adopted && !vm->minimum ? (double)(vm->begin_ms - vm->since_ms) / 1000 : 0;
    double usd_h = isnan(instance->price_usd_h) ? 0 : instance->price_usd_h;
    pay(vm, 0, vm->end_ms);
    vm->paid_usd = before_s > 0 ? -before_s / 3600 * usd_h : 0;
    vm->minimum = false;
}

/* ---- prices ---- */

static bool is_unsettled(const struct tm_vms *v, size_t at)
{
    const struct tm_vm *vm = &v->vms[at];
    return v->instances[at].kind == TM_INSTANCE_SPOT && is_paid(vm) && vm->paid_ms < vm->end_ms;
}

/* Where prices hold for days, one that is known is good to the end. */
static bool is_owed(const struct tm_vms *v, size_t at)
{
    bool steady = v->rules->steady_ms > 0 && v->vms[at].priced;
    return !v->unpriced && !steady && is_unsettled(v, at);
}

bool tm_vms__owes(const struct tm_vms *v)
{
    for (size_t i = 0; i < v->count; i++)
        if (!v->vms[i].over || is_owed(v, i)) return true;
    return false;
}

int64_t tm_vms__unsettled_ms(const struct tm_vms *v, int64_t now_ms)
{
    int64_t since_ms = now_ms;
    for (size_t i = 0; i < v->count; i++)
        if (is_unsettled(v, i)) since_ms = earlier(since_ms, v->vms[i].paid_ms);
    return since_ms;
}

void tm_vms__priced(struct tm_vms *v, const struct tm_vm__price *price)
{
    if (tm_grow((void **)&v->quotes, &v->quote_capacity, v->quote_count + 1, sizeof *price, QUOTES_MAX) != 0) return;
    v->quotes[v->quote_count++] = *price;
}

static int by_time(const void *a, const void *b)
{
    const struct tm_vm__price *x = a, *y = b;
    return (x->since_ms > y->since_ms) - (x->since_ms < y->since_ms);
}

/* Is there a newer one of its type and zone? They are by time. */
static bool is_old(const struct tm_vms *v, size_t at)
{
    for (size_t i = at + 1; i < v->quote_count; i++)
        if (strcmp(v->quotes[i].type, v->quotes[at].type) == 0 && strcmp(v->quotes[i].zone, v->quotes[at].zone) == 0)
            return true;
    return false;
}

/* A pool's price is the lowest of its zones now. */
static void price_pools(struct tm_vms *v)
{
    double lowest[TM_CLOUD_POOLS_MAX];
    for (int i = 0; i < v->pool_count; i++)
        lowest[i] = NAN;
    for (size_t k = 0; k < v->quote_count; k++) {
        const struct tm_vm__price *price = &v->quotes[k];
        if (is_old(v, k)) continue;
        for (int i = 0; i < v->pool_count; i++) {
            const struct tm_cloud_pool *pool = &v->pools[i].about;
            bool here = strncmp(price->zone, pool->zone, strlen(pool->zone)) == 0; /* of a region: any of its zones */
            if (pool->kind == TM_INSTANCE_SPOT && here && strcmp(pool->type, price->type) == 0)
                lowest[i] = fmin(lowest[i], price->usd_h);
        }
    }
    for (int i = 0; i < v->pool_count; i++)
        if (!isnan(lowest[i])) v->pools[i].price_usd_h = lowest[i];
}

/* Through all prices of its type and zone. */
static void settle(struct tm_vms *v, size_t at, int64_t now_ms)
{
    struct tm_vm *vm = &v->vms[at];
    struct tm_cloud_instance *instance = &v->instances[at];
    int64_t to_ms = earlier(now_ms, vm->end_ms);
    bool quoted = false;
    for (size_t i = 0; i < v->quote_count; i++) {
        const struct tm_vm__price *price = &v->quotes[i];
        if (strcmp(instance->type, price->type) != 0 || strcmp(instance->zone, price->zone) != 0) continue;
        /* One of no known age holds from now on; the first, since ever. */
        int64_t since_ms = price->since_ms > 0 ? price->since_ms - v->begin_utc_ms : vm->priced ? now_ms : INT64_MIN;
        quoted = true;
        if (since_ms >= to_ms) continue;
        pay(vm, instance->price_usd_h, since_ms);
        instance->price_usd_h = price->usd_h;
    }
    vm->priced = vm->priced || quoted;
    if (quoted || vm->over) pay(vm, instance->price_usd_h, to_ms);
}

void tm_vms__all_priced(struct tm_vms *v, int64_t now_ms)
{
    if (v->quote_count > 0) qsort(v->quotes, v->quote_count, sizeof *v->quotes, by_time);
    price_pools(v);
    for (size_t i = 0; i < v->count; i++)
        if (is_unsettled(v, i)) settle(v, i, now_ms);
    v->quote_count = 0;
    v->pricing = false;
    v->prices_ms = now_ms + (v->rules->steady_ms > 0 ? v->rules->steady_ms : TM_VM_PRICES_EVERY_MS);
}
