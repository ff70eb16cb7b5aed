/* Pools of a market as people write them; and prices of now over the catalogue's. */
#include "base/test/harness.h"
#include "cloud/market_record.h"
#include "market/catalog.h"

#include <string.h>

static void test_pools(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",     "p3.2xlarge",    "@us-east-1a",    "p3.2xlarge@us-east-1",
                                        "a@b",  "x@us-east-1a,", "x@us-central1-", "Standard_X@",
                                        "n1@-a"};
    struct tm_market_pool pools[TM_MARKET_POOLS_MAX];
    struct tm_error e = {.text = ""};
    size_t count = 0;
    assert_row(tm_market_pools_read("p3.2xlarge@us-east-1a", "d.x/m", pools, &count, &e) == 0, "%s", e.text);
    assert_int_equal(count, 1);
    assert_string_equal(pools[0].region, "us-east-1");
    assert_string_equal(pools[0].path, "d.x/m");
    assert_int_equal(tm_market_pools_read("a1@us-east-1a,b2@eu-west-3c", "d.x/m.tmtrace", pools, &count, &e), 0);
    assert_int_equal(count, 2);
    assert_string_equal(pools[1].path, "d.x/m-b2-eu-west-3c.tmtrace");
    assert_string_equal(pools[0].cloud, "aws");
    assert_int_equal(
        tm_market_pools_read("g2-standard-4@us-central1-a,Standard_NC4as_T4_v3@eastus,Standard_X@westus2-3", "m", pools,
                             &count, &e),
        0);
    assert_string_equal(pools[0].cloud, "gcp");
    assert_string_equal(pools[0].region, "us-central1");
    assert_string_equal(pools[1].cloud, "azure");
    assert_string_equal(pools[1].region, "eastus");
    assert_string_equal(pools[2].zone, "westus2-3");
    assert_string_equal(pools[2].region, "westus2");
    for (size_t i = 0; i < TM_COUNT(wrong); i++)
        assert_row(tm_market_pools_read(wrong[i], "m", pools, &count, &e) == -(int)TM_EUSAGE, "%s", wrong[i]);
}

static void test_live(void **state)
{
    (void)state;
    struct tm_catalog catalog;
    struct tm_error e = {.text = ""};
    tm_catalog_init(&catalog);
    assert_row(tm_catalog_load_shipped(&catalog, &e) == 0, "%s", e.text);
    assert_int_equal(
        tm_catalog_set_spot(&catalog, "aws", "g5.xlarge", "us-east-1", "us-east-1a", "use1-az1", 0.0123456), 0);
    assert_int_equal(tm_catalog_begin_live(&catalog, "aws", 1800000000000, &e), 0);
    size_t set = tm_catalog_set_spot(&catalog, "aws", "g5.xlarge", "us-east-1", "us-east-1a", "use1-az1", 0.0123456);
    size_t found = 0;
    for (size_t i = 0; i < catalog.offer_count; i++)
        if (catalog.offers[i].spot_usd_h == 0.0123456) {
            assert_string_equal(catalog.sources[catalog.offers[i].source].name, "live-aws");
            assert_string_equal(catalog.sources[catalog.offers[i].source].as_of, "2027-01-15");
            found++;
        }
    assert_true(set == 1 && found == 1);
    assert_int_equal(tm_catalog_begin_live(&catalog, "gcp", 1800000000000, &e), 0);
    set = tm_catalog_set_spot(&catalog, "gcp", "g2-standard-4", "us-central1", "", "", 0.0123456); /* each zone of it */
    assert_true(set >= 2);
    tm_catalog_deinit(&catalog);
}

TM_TEST_MAIN(TM_TEST(test_pools), TM_TEST(test_live))
