/* The common suite of clouds on Google Cloud. It needs a service that speaks like Compute Engine and Cloud Storage:
 * tests/gcp/run starts one on loopback, and says that it may be used (TIDEMILL_TEST_GCP, a bucket's name). Its VMs do
 * not boot there: whoever is named by it counts as joined (tests/gcp_full boots them). */
#include "cloud/test/cloud_suite.h"

#include "base/test/tempdir.h"
#include "cloud/gcp_cloud.h"
#include "cloud/test/suite_parts.h"

#include <stdio.h>
#include <stdlib.h>

struct place {
    struct tm_tempdir dir;
    struct tm_cloud_pool pools[2];
    const char *bucket;
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

static struct tm_cloud *open_gcp(void *context, bool again, uint64_t id_first)
{
    const struct place *p = context;
    (void)again;
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    struct tm_gcp_options options = {.common = {.pools = p->pools,
                                                .pool_count = 2,
                                                .job = "Suite of clouds",
                                                .owner = "some body",
                                                .run = p->run,
                                                .bucket = p->bucket,
                                                .prefix = "clouds",
                                                .program = p->program,
                                                .setup = "echo it's me",
                                                .state_dir = p->dir.path,
                                                .log_dir = p->dir.path,
                                                .id_first = id_first,
                                                .poll_ms = 300,
                                                .ticket = give_ticket,
                                                .has_joined = has_joined}};
    assert_row(tm_gcp_cloud_create(tm_env_real(), &options, &cloud, &e) == 0, "%s", e.text);
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

static void test_suite(void **state)
{
    (void)state;
    struct place p = {.bucket = getenv("TIDEMILL_TEST_GCP"), .run = (uint64_t)getpid() << 20};
    if (p.bucket == NULL) skip();
    tm_tempdir_make(&p.dir);
    tm_cloud_pools__plain(p.pools);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(p.pools[i].type, sizeof p.pools[i].type, "n1-standard-8+1xV100");
        (void)snprintf(p.pools[i].zone, sizeof p.pools[i].zone, "us-central1");
        p.pools[i].limit = 3;
        p.pools[i].price_usd_h = 1;
    }
    (void)snprintf(p.program, sizeof p.program, "%.200s/program", p.dir.path);
    struct tm_error e = {.text = ""};
    assert_row(tm_env_real()->file_write(tm_env_real(), p.program, "#!\n", 3, &e) == 0, "%s", e.text);
    cloud_suite(
        &(struct cloud_place){.context = &p, .limit = 3, .open = open_gcp, .lose = lose_gcp, .alive = alive_gcp});
    tm_tempdir_remove(&p.dir);
}

TM_TEST_MAIN(TM_TEST(test_suite))
