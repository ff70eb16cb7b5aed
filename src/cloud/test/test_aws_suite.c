/* The common suite of clouds on AWS. It needs a service that speaks like EC2 and S3: tests/clouds/run starts one on
 * loopback, and says where it is and that it may be used (TIDEMILL_TEST_EC2, a bucket's name). Its VMs do not boot
 * there: whoever is named by AWS counts as joined (tests/aws boots them). */
#include "cloud/test/cloud_suite.h"

#include "base/test/tempdir.h"
#include "cloud/aws_cloud.h"
#include "web/aws.h"

#include <stdio.h>
#include <stdlib.h>

struct place {
    struct tm_tempdir dir;
    struct tm_cloud_pool pools[2];
    const char *bucket;
    char program[300];
    uint64_t run;
};

static int give_ticket(void *context, uint64_t id, bool on_demand, char out[TM_AWS_TICKET_MAX], struct tm_error *e)
{
    (void)context;
    (void)e;
    assert_false(on_demand);
    (void)snprintf(out, TM_AWS_TICKET_MAX, "tmt1_%" PRIu64, id);
    return 0;
}

static bool has_joined(void *context, uint64_t id)
{
    (void)context;
    (void)id;
    return true;
}

static struct tm_cloud *open_aws(void *context, bool again, uint64_t id_first)
{
    const struct place *p = context;
    (void)again;
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    struct tm_aws_options options = {.pools = p->pools,
                                     .pool_count = 2,
                                     .image = "ami-12345678",
                                     .job = "suite",
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
                                     .has_joined = has_joined};
    assert_row(tm_aws_cloud_create(tm_env_real(), &options, &cloud, &e) == 0, "%s", e.text);
    return cloud;
}

/* An order to the service for tests; its answer as a number. */
static int order(const char *words)
{
    char command[500];
    char answer[64] = "";
    (void)snprintf(command, sizeof command, "curl -sS %s", words);
    FILE *out = popen(command, "r"); /* NOLINT(cert-env33-c): a test's own words */
    assert_non_null(out);
    (void)fread(answer, 1, sizeof answer - 1, out);
    assert_int_equal(pclose(out), 0);
    return (int)strtol(answer, NULL, 10);
}

static void lose_aws(void *context, const struct tm_cloud_instance *instance)
{
    (void)context;
    char words[300];
    (void)snprintf(words, sizeof words, "--data '{\"address\": \"%s\"}' $AWS_ENDPOINT_URL/tidemill/lose",
                   instance->host);
    (void)order(words);
}

static int alive_aws(void *context)
{
    (void)context;
    return order("$AWS_ENDPOINT_URL/tidemill/alive");
}

static void test_suite(void **state)
{
    (void)state;
    struct place p = {.bucket = getenv("TIDEMILL_TEST_EC2"), .run = (uint64_t)getpid() << 20};
    if (p.bucket == NULL) skip();
    tm_tempdir_make(&p.dir);
    tm_cloud_pools__plain(p.pools);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(p.pools[i].type, sizeof p.pools[i].type, "p3.2xlarge");
        p.pools[i].limit = 3;
        p.pools[i].price_usd_h = 1;
    }
    (void)snprintf(p.program, sizeof p.program, "%.200s/program", p.dir.path);
    struct tm_error e = {.text = ""};
    assert_row(tm_env_real()->file_write(tm_env_real(), p.program, "#!\n", 3, &e) == 0, "%s", e.text);
    cloud_suite(
        &(struct cloud_place){.context = &p, .limit = 3, .open = open_aws, .lose = lose_aws, .alive = alive_aws});
    tm_tempdir_remove(&p.dir);
}

TM_TEST_MAIN(TM_TEST(test_suite))
