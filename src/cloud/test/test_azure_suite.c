/* The common suite of clouds on Azure. It needs a service that speaks like Azure's Resource Manager and blobs:
 * tests/azure starts one on loopback, and says where it is and that it may be used (TIDEMILL_TEST_AZURE, a container's
 * name). tests/azure_full boots VMs. */
#include "cloud/azure_cloud.h"
#include "cloud/test/vm_suite.h"

static struct tm_cloud *open_azure(void *context, bool again, uint64_t id_first)
{
    const struct vm_place *p = context;
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    (void)again;
    const struct tm_azure_options options = {.vm = vm_suite_options(p, id_first),
                                             .location = "eastus",
                                             .identity = "/subscriptions/5ab/x",
                                             .public_ip = true};
    int rc = tm_azure_cloud_create(vm_suite_env(), &options, &cloud, &e);
    if (rc != 0) vm_suite_open_failed(&e);
    assert_row(rc == 0, "%s", e.text);
    return cloud;
}

static void lose_azure(void *context, const struct tm_cloud_instance *instance)
{
    (void)context;
    (void)suite_ask("curl -sS --data '{\"name\": \"%s\"}' $AZURE_RESOURCE_MANAGER_ENDPOINT/tidemill/lose",
                    instance->host);
}

static int alive_azure(void *context)
{
    (void)context;
    return suite_ask("curl -sS $AZURE_RESOURCE_MANAGER_ENDPOINT/tidemill/alive");
}

/* No other was ever made. */
static int same_azure(void *context)
{
    (void)context;
    return suite_ask("curl -sS $AZURE_RESOURCE_MANAGER_ENDPOINT/tidemill/ever");
}

static void test_suite(void **state)
{
    (void)state;
    vm_suite("TIDEMILL_TEST_AZURE", "Standard_NC4as_T4_v3", "",
             (struct cloud_place){.open = open_azure, .lose = lose_azure, .alive = alive_azure, .same = same_azure});
    if (getenv("TIDEMILL_TEST_AZURE") != NULL && getenv("TIDEMILL_TEST_DRIVE") == NULL)
        assert_int_equal(suite_ask("curl -sS $AZURE_RESOURCE_MANAGER_ENDPOINT/tidemill/left"), 0);
}

TM_TEST_MAIN(TM_TEST(test_suite))
