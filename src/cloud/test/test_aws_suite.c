/* The common suite of clouds on AWS. It needs a service that speaks like EC2 and S3: tests/clouds/run starts one on
 * loopback, and says where it is and that it may be used (TIDEMILL_TEST_EC2, a bucket's name). tests/aws boots VMs. */
#include "cloud/aws_cloud.h"
#include "cloud/test/vm_suite.h"

static struct tm_cloud *open_aws(void *context, bool again, uint64_t id_first)
{
    const struct vm_place *p = context;
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    const char *image = getenv("TIDEMILL_TEST_IMAGE");
    (void)again;
    const struct tm_aws_options options = {.common = vm_suite_options(p, id_first),
                                           .image = image != NULL ? image : "ami-12345678",
                                           .disk_gb = (int64_t)vm_suite_number("TIDEMILL_TEST_DISK_GB")};
    int rc = tm_aws_cloud_create(vm_suite_env(), &options, &cloud, &e);
    if (rc != 0) vm_suite_open_failed(&e);
    assert_row(rc == 0, "%s", e.text);
    return cloud;
}

static void lose_aws(void *context, const struct tm_cloud_instance *instance)
{
    (void)context;
    (void)suite_ask("curl -sS --data '{\"address\": \"%s\"}' $AWS_ENDPOINT_URL/tidemill/lose", instance->host);
}

static int alive_aws(void *context)
{
    (void)context;
    return suite_ask("curl -sS $AWS_ENDPOINT_URL/tidemill/alive");
}

/* No other was ever made. */
static int same_aws(void *context)
{
    (void)context;
    return suite_ask("curl -sS $AWS_ENDPOINT_URL/tidemill/ever");
}

static void test_suite(void **state)
{
    (void)state;
    vm_suite("TIDEMILL_TEST_EC2", "p3.2xlarge", "",
             (struct cloud_place){.open = open_aws, .lose = lose_aws, .alive = alive_aws, .same = same_aws});
}

TM_TEST_MAIN(TM_TEST(test_suite))
