/* The common suite of clouds on Google Cloud. It needs a service that speaks like Compute Engine and Cloud Storage:
 * tests/gcp/run starts one on loopback, and says that it may be used (TIDEMILL_TEST_GCP, a bucket's name).
 * tests/gcp_full boots VMs. */
#include "cloud/gcp_cloud.h"
#include "cloud/test/vm_suite.h"

static struct tm_cloud *open_gcp(void *context, bool again, uint64_t id_first)
{
    const struct vm_place *p = context;
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    (void)again;
    const struct tm_gcp_options options = {.common = vm_suite_options(p, id_first)};
    int rc = tm_gcp_cloud_create(vm_suite_env(), &options, &cloud, &e);
    if (rc != 0) vm_suite_open_failed(&e);
    assert_row(rc == 0, "%s", e.text);
    return cloud;
}

static void lose_gcp(void *context, const struct tm_cloud_instance *instance)
{
    (void)context;
    (void)suite_ask("curl -sS --data '{\"address\": \"%s\"}' $GCP_FAKE/tidemill/lose", instance->host);
}

static int alive_gcp(void *context)
{
    (void)context;
    return suite_ask("curl -sS $GCP_FAKE/tidemill/alive");
}

/* No other was ever made. */
static int same_gcp(void *context)
{
    (void)context;
    return suite_ask("curl -sS $GCP_FAKE/tidemill/ever");
}

static void test_suite(void **state)
{
    (void)state;
    vm_suite("TIDEMILL_TEST_GCP", "n1-standard-8+1xV100", "us-central1",
             (struct cloud_place){.open = open_gcp, .lose = lose_gcp, .alive = alive_gcp, .same = same_gcp});
}

TM_TEST_MAIN(TM_TEST(test_suite))
