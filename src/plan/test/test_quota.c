/* Quotas as people write them: what they name is there, and what is wrong is said. */
#include "plan/mix.h"
#include "plan/test/plan_helpers.h"

#define CATALOG                                                                                                        \
    "tidemill-catalog 1\n[source]\nname,as_of,text\ns,2026-01-01,made up\n"                                            \
    "[gpu]\nname,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\nFast,,40,1555,19.5,,312,312,,s\n"   \
    "[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"                            \
    "aws,fast.1,Fast,1,8,64,40,25,s\n"                                                                                 \
    "[offer]\ncloud,region,zone,instance,on_demand,spot,source\naws,r1,r1a,fast.1,4,1,s\n"

static void test_quotas(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *name; /* NULL: it is refused */
        int markets, limit;
        const char *wrong;
    } rows[] = {
        {"fast.1=8", "fast.1", TM_MIX_SPOT | TM_MIX_ON_DEMAND, 8, NULL},
        {"Fast:spot=16", "Fast", TM_MIX_SPOT, 16, NULL},
        {"r1:on-demand=0", "r1", TM_MIX_ON_DEMAND, 0, NULL},
        {"aws=1000000", "aws", TM_MIX_SPOT | TM_MIX_ON_DEMAND, 1000000, NULL},
        {"fast.1", NULL, 0, 0, "expected NAME=COUNT, got \"fast.1\"; write for example"},
        {"=3", NULL, 0, 0, "expected NAME=COUNT"},
        {"fast.1=", NULL, 0, 0, "expected NAME=COUNT"},
        {"fast.1=-1", NULL, 0, 0, "expected NAME=COUNT"},
        {"fast.1=1000001", NULL, 0, 0, "expected NAME=COUNT"},
        {"fast.1:sport=1", NULL, 0, 0, "expected :spot or :on-demand after the name, got \"sport\""},
        {"fast.2=1", NULL, 0, 0, "\"fast.2\"; did you mean fast.1?"},
    };
    struct planning basis;
    struct tm_plan_request request = planning_init(&basis, CATALOG);
    struct tm_arena arena;
    struct tm_error e = {0};
    tm_arena_init(&arena, 1 << 16);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        size_t before = request.quota_count;
        int rc = tm_plan_quota_add(&basis.catalog, rows[i].text, strlen(rows[i].text), &arena, &request, &e);
        assert_row(rc == (rows[i].name != NULL ? 0 : -(int)TM_EUSAGE), "%s: %d", rows[i].text, rc);
        assert_row(request.quota_count == before + (rc == 0), "%s", rows[i].text);
        if (rows[i].wrong != NULL) {
            assert_row(strstr(e.text, rows[i].wrong) != NULL, "%s: %s", rows[i].text, e.text);
            continue;
        }
        const struct tm_plan_quota *quota = &request.quotas[before];
        assert_string_equal(quota->name, rows[i].name);
        assert_row(quota->markets == rows[i].markets && quota->limit == rows[i].limit, "%s", rows[i].text);
    }
    request.quota_count = TM_PLAN_QUOTAS_MAX;
    assert_int_equal(tm_plan_quota_add(&basis.catalog, "aws=1", 5, &arena, &request, &e), -(int)TM_ELIMIT);
    tm_arena_deinit(&arena);
    TM_FAIL_EACH_ALLOC({
        struct tm_arena own;
        tm_arena_init(&own, 1 << 16);
        request.quota_count = 0;
        rc = tm_plan_quota_add(&basis.catalog, "aws=1", 5, &own, &request, NULL);
        tm_arena_deinit(&own);
    });
    planning_deinit(&basis);
}

TM_TEST_MAIN(TM_TEST(test_quotas))
