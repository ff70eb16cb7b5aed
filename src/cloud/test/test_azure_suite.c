/* The common suite of clouds on Azure. It needs a service that speaks like Azure's Resource Manager and blobs:
 * tests/azure starts one on loopback, and says where it is and that it may be used (TIDEMILL_TEST_AZURE, a container's
 * name). Its VMs do not boot there: whoever is named counts as joined (tests/azure_full boots them). */
#include "cloud/test/cloud_suite.h"

#include "base/test/tempdir.h"
#include "cloud/azure_cloud.h"
#include "cloud/test/suite_parts.h"

#include <stdio.h>
#include <stdlib.h>

struct place {
    struct tm_tempdir dir;
    struct tm_cloud_pool pools[2];
    const char *container;
    char program[300];
    uint64_t run;
};

static int give_ticket(void *context, uint64_t id, bool on_demand, char out[TM_VM_TICKET_MAX], struct tm_error *e)
{
    (void)context;
    (void)e;
    assert_false(on_demand);
    (void)snprintf(out, TM_VM_TICKET_MAX, "tmt1_%" PRIu64, id);
    return 0;
}

static bool has_joined(void *context, uint64_t id)
{
    (void)context;
    (void)id;
    return true;
}

static struct tm_cloud *open_azure(void *context, bool again, uint64_t id_first)
{
    const struct place *p = context;
    (void)again;
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    struct tm_azure_options options = {.vm = {.pools = p->pools,
                                              .pool_count = 2,
                                              .job = "suite",
                                              .owner = "some body",
                                              .run = p->run,
                                              .bucket = p->container,
                                              .prefix = "clouds",
                                              .program = p->program,
                                              .setup = "echo it's me",
                                              .state_dir = p->dir.path,
                                              .log_dir = p->dir.path,
                                              .id_first = id_first,
                                              .poll_ms = 300,
                                              .ticket = give_ticket,
                                              .has_joined = has_joined},
                                       .location = "eastus",
                                       .identity = "/subscriptions/5ab/x",
                                       .public_ip = true};
    assert_row(tm_azure_cloud_create(tm_env_real(), &options, &cloud, &e) == 0, "%s", e.text);
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

static void test_suite(void **state)
{
    (void)state;
    struct place p = {.container = getenv("TIDEMILL_TEST_AZURE"), .run = (uint64_t)getpid() << 20};
    if (p.container == NULL) skip();
    tm_tempdir_make(&p.dir);
    tm_cloud_pools__plain(p.pools);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(p.pools[i].type, sizeof p.pools[i].type, "Standard_NC4as_T4_v3");
        p.pools[i].limit = 3;
        p.pools[i].price_usd_h = 1;
    }
    (void)snprintf(p.program, sizeof p.program, "%.200s/program", p.dir.path);
    struct tm_error e = {.text = ""};
    assert_row(tm_env_real()->file_write(tm_env_real(), p.program, "#!\n", 3, &e) == 0, "%s", e.text);
    cloud_suite(
        &(struct cloud_place){.context = &p, .limit = 3, .open = open_azure, .lose = lose_azure, .alive = alive_azure});
    assert_int_equal(suite_ask("curl -sS $AZURE_RESOURCE_MANAGER_ENDPOINT/tidemill/left"), 0);
    tm_tempdir_remove(&p.dir);
}

TM_TEST_MAIN(TM_TEST(test_suite))
