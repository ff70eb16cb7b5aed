/* Codes of a cloud's errors, walked one by one: each through the machine of VMs (vms.h), which does what its remedy
 * says, and tells it in words. */
#ifndef TM_CLOUD_TEST_REMEDIES_H
#define TM_CLOUD_TEST_REMEDIES_H

#include "base/test/harness.h"
#include "cloud/vms.h"

#include <string.h>

struct remedy_row {
    const char *code;
    enum tm_vm__remedy remedy;
};

/* The pool waits, and whoever rents hears why. */
static void check_blocked(struct tm_vms *v, const char *code, int64_t least_ms, int64_t most_ms)
{
    const char *advice = v->rules->advice(code);
    struct tm_cloud_event event = {.pool = -1};
    bool told = tm_vms__event(v, &event);
    assert_row(told && event.kind == TM_CLOUD_REFUSED && event.count == 1, "%s is told", code);
    assert_row(strstr(event.why, code) != NULL, "%s is in \"%s\"", code, event.why);
    assert_row(strstr(event.why, advice) != NULL, "%s: what to do is in \"%s\"", code, event.why);
    assert_row(v->pools[0].retry_ms >= least_ms && v->pools[0].retry_ms <= most_ms, "%s: waits %lld ms", code,
               (long long)v->pools[0].retry_ms);
    assert_row(v->vms[0].over, "%s: nothing of it is there", code);
}

/* A pool of this type and place that wants one, beside another that was refused for this reason: does it wait, too? */
struct quota_row {
    const char *code, *words;
    const char *refused, *refused_zone;
    const char *other, *other_zone;
    bool on_demand; /* the other; the one that was refused is spot */
    bool waits;
};

static void check_quotas(const struct tm_vm__rules *rules, const struct quota_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct tm_vms v;
        struct tm_error e = {.text = ""};
        struct tm_vm__call call;
        struct tm_cloud_event event;
        bool due = false;
        tm_vms__init(&v, rules);
        v.pools[0] = (struct tm_vm__pool){.about = {.kind = TM_INSTANCE_SPOT, .name = "one"}, .price_usd_h = 1};
        v.pools[1] = (struct tm_vm__pool){
            .about = {.kind = rows[i].on_demand ? TM_INSTANCE_ON_DEMAND : TM_INSTANCE_SPOT, .name = "other"},
            .price_usd_h = 1};
        (void)snprintf(v.pools[0].about.type, sizeof v.pools[0].about.type, "%s", rows[i].refused);
        (void)snprintf(v.pools[0].about.zone, sizeof v.pools[0].about.zone, "%s", rows[i].refused_zone);
        (void)snprintf(v.pools[1].about.type, sizeof v.pools[1].about.type, "%s", rows[i].other);
        (void)snprintf(v.pools[1].about.zone, sizeof v.pools[1].about.zone, "%s", rows[i].other_zone);
        v.pool_count = 2;
        v.adopting = false;
        tm_vms__want(&v, 0, 1, 0);
        assert_true(tm_vms__next(&v, 0, &call, &due, &e) == 0 && due && call.kind == TM_VM_RUN);
        tm_vms__want(&v, 1, 1, 0);
        assert_int_equal(tm_vms__refused(&v, call.at, rows[i].code, rows[i].words, 0, &e), 0);
        assert_row(!tm_vms__may_ask(&v, 0, 9 * 60000), "%zu", i);
        assert_row(tm_vms__may_ask(&v, 1, 9 * 60000) == !rows[i].waits, "%zu: %s beside %s", i, rows[i].other,
                   rows[i].refused);
        for (int pool = 0; pool < 1 + rows[i].waits; pool++)
            assert_row(tm_vms__event(&v, &event) && event.pool == pool && event.count == 1 &&
                           strstr(event.why, rows[i].code) != NULL,
                       "%zu: pool %d is told", i, pool);
        assert_false(tm_vms__event(&v, &event));
        tm_vms__deinit(&v);
    }
}

static void check_remedies(const struct tm_vm__rules *rules, const struct remedy_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct tm_vms v;
        struct tm_vm__call call;
        struct tm_error e = {.text = ""};
        bool due = false;
        const char *code = rows[i].code;
        tm_vms__init(&v, rules);
        v.pools[0] = (struct tm_vm__pool){.about = {.kind = TM_INSTANCE_SPOT, .name = "spot"}, .price_usd_h = 1};
        v.pool_count = 1;
        v.adopting = false;
        tm_vms__want(&v, 0, 1, 0);
        assert_int_equal(tm_vms__next(&v, 0, &call, &due, &e), 0);
        assert_true(due && call.kind == TM_VM_RUN);
        (void)snprintf(v.vms[0].token, sizeof v.vms[0].token, "tm-1");
        assert_row(rules->remedy_of(code) == rows[i].remedy, "%s", code);
        int rc = tm_vms__refused(&v, 0, code, "in the cloud's words", 0, &e);
        switch (rows[i].remedy) {
        case TM_VM_ELSEWHERE:
            check_blocked(&v, code, 2 * 60000, 4 * 60000);
            break;
        case TM_VM_QUOTA:
            check_blocked(&v, code, 10 * 60000, 20 * 60000);
            break;
        case TM_VM_AGAIN: /* the same VM, by the same token, soon */
            assert_row(rc == 0 && !v.vms[0].over && v.vms[0].retry_ms < 60000, "%s", code);
            assert_string_equal(v.vms[0].token, "tm-1");
            break;
        case TM_VM_LOOK: /* no new token: lists tell */
            assert_row(rc == 0 && !v.vms[0].over && v.vms[0].retry_ms == INT64_MAX, "%s", code);
            break;
        case TM_VM_STOP:
            assert_row(rc != 0 && strstr(e.text, "in the cloud's words") != NULL, "%s: %s", code, e.text);
            assert_row(strstr(e.text, rules->advice(code)) != NULL, "%s: %s", code, e.text);
            break;
        }
        tm_vms__deinit(&v);
    }
}

#endif
