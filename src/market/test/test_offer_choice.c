/* Which offers are chosen, and in what order. */
#include "market/offer_choice.h"

#include "base/test/harness.h"
#include "market/test/market_helpers.h"

#include <math.h>
#include <string.h>

static const char text[] = "tidemill-catalog 1\n[source]\nname,as_of,text\nold,2020-01-01,a\n"
                           "[gpu]\nname,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\n"
                           "K80,,12,240,3,,,,,old\nV100,,16,900,16,,125,,,old\n"
                           "[instance]\nname,cloud,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"
                           "small,aws,K80,1,4,61,12,,old\nlarge,aws,V100,4,32,244,16,10,old\nplain,gcp,,,2,4,,,old\n"
                           "[offer]\ncloud,region,zone,instance,on_demand,spot,source\n"
                           "aws,east,a,large,12,4,old\naws,east,b,large,12,,old\naws,west,,large,10,5,old\n"
                           "aws,east,,small,1,0.25,old\ngcp,r,,plain,0.1,,old\n";

static bool is_in_east(const void *context, const struct tm_instance_type *instance, const struct tm_offer *offer)
{
    (void)instance;
    return strcmp(offer->region, context) == 0;
}

/* "large@east,small@east" */
static void print(const struct tm_offer_rows *rows, char *out, size_t size)
{
    size_t length = 0;
    out[0] = '\0';
    for (size_t i = 0; i < rows->count && length < size; i++)
        length += (size_t)snprintf(out + length, size - length, "%s%s@%s", i > 0 ? "," : "",
                                   rows->rows[i].instance->name, rows->rows[i].offer->region);
}

#define ANY .max_gpus = INFINITY, .max_price_usd_h = INFINITY, .precision = TM_FP32

static void test_choice(void **state)
{
    (void)state;
    static const char east[] = "east";
    const struct {
        struct tm_offer_filter filter;
        const char *rows;
        size_t matching;
    } rows[] = {
        {{ANY}, "plain@r,small@east,large@east", 3},
        {{ANY, .reverse = true}, "large@east,small@east,plain@r", 3},
        {{ANY, .all = true}, "plain@r,small@east,large@east,large@west,large@east", 5},
        {{ANY, .all = true, .limit = 2}, "plain@r,small@east", 5},
        {{ANY, .order = TM_OFFERS_BY_FLOPP}, "large@east,small@east,plain@r", 3}, /* no FLOPS goes last ... */
        {{ANY, .order = TM_OFFERS_BY_FLOPP, .reverse = true}, "small@east,large@east,plain@r", 3}, /* ... either way */
        {{ANY, .order = TM_OFFERS_BY_FLOPS}, "large@east,small@east,plain@r", 3},
        {{ANY, .order = TM_OFFERS_BY_NAME}, "large@east,small@east,plain@r", 3},
        {{ANY, .order = TM_OFFERS_BY_NAME, .reverse = true}, "small@east,plain@r,large@east", 3},
        {{ANY, .price = TM_PRICE_SPOT}, "small@east,large@east", 2},
        {{ANY, .price = TM_PRICE_ON_DEMAND}, "plain@r,small@east,large@west", 3},
        {{ANY, .min_gpus = 2}, "large@east", 1},
        {{ANY, .min_network_gbps = 1}, "large@east", 1}, /* what is not known is not enough */
        {{.max_gpus = 1, .max_price_usd_h = 0.2, .precision = TM_FP32}, "plain@r", 1},
        {{ANY, .min_vcpus = 3, .min_memory_gib = 100, .min_gpu_memory_gib = 16}, "large@east", 1},
        {{ANY, .allows = is_in_east, .context = east}, "small@east,large@east", 2},
    };
    struct tm_catalog catalog;
    struct tm_offer_rows chosen;
    struct tm_error e = {0};
    char names[256];
    tm_catalog_init(&catalog);
    assert_row(tm_catalog_parse(&catalog, "c", text, sizeof text - 1, false, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        assert_int_equal(tm_offers_choose(&catalog, &rows[i].filter, &chosen, &e), 0);
        print(&chosen, names, sizeof names);
        assert_row(strcmp(names, rows[i].rows) == 0 && chosen.matching == rows[i].matching, "row %zu: %s of %zu", i,
                   names, chosen.matching);
        tm_offer_rows_deinit(&chosen);
    }
    assert_int_equal(tm_offers_choose(&catalog, &rows[2].filter, &chosen, &e), 0);
    assert_true(!chosen.rows[0].spot && chosen.rows[1].spot && chosen.rows[1].price_usd_h == 0.25);
    assert_true(chosen.rows[1].tflops == 3 && isnan(chosen.rows[0].flopp));
    tm_offer_rows_deinit(&chosen);
    TM_FAIL_EACH_ALLOC({
        rc = tm_offers_choose(&catalog, &rows[0].filter, &chosen, NULL);
        if (rc == 0) tm_offer_rows_deinit(&chosen);
    });
    tm_catalog_deinit(&catalog);
}

TM_TEST_MAIN(TM_TEST(test_choice))
