/* How often clouds are asked: within what they allow, and as soon as they do. */
#include "base/test/harness.h"
#include "cloud/vms.h"

static enum tm_vm__remedy remedy_of(const char *code)
{
    (void)code;
    return TM_VM_AGAIN;
}

static const char *advice(const char *code)
{
    (void)code;
    return "";
}

static const struct tm_vm__rules rules = {.cloud = "a cloud", .remedy_of = remedy_of, .advice = advice};

static void test_buckets(void **state)
{
    (void)state;
    struct tm_vms v;
    tm_vms__init(&v, &rules);
    v.rates = tm_vms__rates("aws");
    assert_null(tm_vms__rates("local"));
    for (int i = 0; i < 5; i++) { /* a full bucket */
        assert_true(tm_vms__free_ms(&v, TM_VM_RUN) <= 1000);
        tm_vms__spend(&v, TM_VM_RUN, 1000);
    }
    assert_int_equal(tm_vms__free_ms(&v, TM_VM_RUN), 1500);
    assert_true(tm_vms__free_ms(&v, TM_VM_TERMINATE) <= 1000); /* another kind has its own */
    assert_true(tm_vms__free_ms(&v, TM_VM_GET_LOG) <= 1000);
    tm_vms__spend(&v, TM_VM_RUN, 1500);
    assert_int_equal(tm_vms__free_ms(&v, TM_VM_RUN), 2000);
    tm_vms__spend(&v, TM_VM_RUN, 3000); /* one more has come back meanwhile */
    assert_true(tm_vms__free_ms(&v, TM_VM_RUN) <= 3000);
    tm_vms__spend(&v, TM_VM_RUN, 1000000); /* a full one again, and not more than that */
    for (int i = 0; i < 4; i++)
        tm_vms__spend(&v, TM_VM_RUN, 1000000);
    assert_int_equal(tm_vms__free_ms(&v, TM_VM_RUN), 1000500);
    tm_vms__deinit(&v);
}

/* Sixty VMs are wanted: how many are asked for in each second, whoever answers at once; and nobody spins. */
static void test_asking(void **state)
{
    (void)state;
    static const struct {
        const char *cloud;
        int burst;
        double per_s;
    } rows[] = {{"aws", 5, 2}, {"azure", 60, 3.3}, {"gcp", 60, 12}};
    for (size_t r = 0; r < TM_COUNT(rows); r++) {
        struct tm_vms v;
        struct tm_vm__call out;
        int64_t now_ms = 0;
        int asked = 0, looks = 0;
        tm_vms__init(&v, &rules);
        v.rates = tm_vms__rates(rows[r].cloud);
        v.pools[0] = (struct tm_vm__pool){.about = {.kind = TM_INSTANCE_ON_DEMAND, .type = "t"}};
        v.pool_count = 1;
        v.adopting = false;
        tm_vms__want(&v, 0, 60, 0);
        while (asked < 60 && looks++ < 1000) {
            bool due = false;
            assert_int_equal(tm_vms__next(&v, now_ms, &out, &due, NULL), 0);
            if (due && out.kind == TM_VM_RUN) asked++;
            if (due && out.kind == TM_VM_DESCRIBE) assert_int_equal(tm_vms__described(&v, NULL, 0, now_ms, NULL), 0);
            assert_row(asked <= rows[r].burst + 1 + (double)now_ms / 1000 * rows[r].per_s, "%s: %d in %lld ms",
                       rows[r].cloud, asked, (long long)now_ms);
            if (due) continue;
            assert_row(tm_vms__due_ms(&v) > now_ms, "%s: something is due, and nothing is done", rows[r].cloud);
            now_ms = tm_vms__due_ms(&v);
        }
        assert_row(asked == 60, "%s: %d were asked for", rows[r].cloud, asked);
        tm_vms__deinit(&v);
    }
}

TM_TEST_MAIN(TM_TEST(test_buckets), TM_TEST(test_asking))
