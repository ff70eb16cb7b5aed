/* VMs of AWS as instances, with the test as AWS: renting, refusals, losses, adoption, the bill; what it says, read; and
 * what a VM is told. */
#include "base/test/harness.h"
#include "cloud/aws_check.h"
#include "cloud/aws_internal.h"
#include "cloud/aws_text.h"
#include "cloud/test/remedies.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- words ---- */

static void test_remedies(void **state)
{
    (void)state;
    static const struct remedy_row rows[] = {{"InsufficientInstanceCapacity", TM_VM_ELSEWHERE},
                                             {"UnfulfillableCapacity", TM_VM_ELSEWHERE},
                                             {"Unsupported", TM_VM_ELSEWHERE},
                                             {"SpotMaxPriceTooLow", TM_VM_ELSEWHERE},
                                             {"MaxSpotInstanceCountExceeded", TM_VM_QUOTA},
                                             {"VcpuLimitExceeded", TM_VM_QUOTA},
                                             {"RequestLimitExceeded", TM_VM_AGAIN},
                                             {"RequestExpired", TM_VM_AGAIN},
                                             {"InternalError", TM_VM_AGAIN},
                                             {"InsufficientFreeAddressesInSubnet", TM_VM_ELSEWHERE},
                                             {"MaxFleetCountExceeded", TM_VM_ELSEWHERE},
                                             {"EC2ThrottledException", TM_VM_AGAIN},
                                             {"Unavailable", TM_VM_AGAIN},
                                             {"ExpiredToken", TM_VM_AGAIN},
                                             {"InvalidInstanceID.NotFound", TM_VM_AGAIN},
                                             {"InvalidParameterCombination", TM_VM_STOP},
                                             {"", TM_VM_AGAIN},
                                             {"IdempotentParameterMismatch", TM_VM_LOOK},
                                             {"InvalidAMIID.NotFound", TM_VM_STOP},
                                             {"UnauthorizedOperation", TM_VM_STOP},
                                             {"AuthFailure", TM_VM_STOP},
                                             {"SomethingNew", TM_VM_STOP}};
    check_remedies(&tm_aws__rules, rows, TM_COUNT(rows));
    assert_true(strstr(tm_aws__advice("UnauthorizedOperation"), "--emit policy") != NULL);
    assert_true(strstr(tm_aws__advice("InvalidParameterCombination"), "cloud check aws") != NULL);
    const char *role = tm_aws__advice("AuthFailure.ServiceLinkedRoleCreationNotPermitted");
    assert_true(strstr(role, "create-service-linked-role") != NULL && strstr(role, "CreateServiceLinkedRole") != NULL);
}

static void test_quotas(void **state)
{
    (void)state;
    static const char standard[] = "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances";
    static const char old[] = "All P4, P3 and P2 Spot Instance Requests";
    static const struct {
        const char *quota, *type;
        bool spot, is;
    } rows[] = {{standard, "c5n.large", false, true},
                {standard, "c5n.large", true, false},
                {standard, "inf2.xlarge", false, false},
                {standard, "p3.2xlarge", false, false},
                {old, "p3.2xlarge", true, true},
                {old, "p3dn.24xlarge", true, true},
                {old, "p5.48xlarge", true, false},
                {"Running On-Demand P instances", "p5.48xlarge", false, true},
                {"All G and VT Spot Instance Requests", "g5.xlarge", true, true},
                {"All G and VT Spot Instance Requests", "vt1.3xlarge", true, true},
                {"Running On-Demand Trn instances", "trn1.32xlarge", false, true},
                {"Running On-Demand Trn instances", "t3.small", false, false},
                {"EC2-VPC Elastic IPs", "p3.2xlarge", false, false}};
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(tm_aws__is_quota_of(rows[i].quota, rows[i].type, rows[i].spot) == rows[i].is, "%s: %s",
                   rows[i].quota, rows[i].type);
}

/* The newest of several; a disk of another size is what that image calls its first. */
static void test_images(void **state)
{
    (void)state;
    static const struct {
        const char *text, *image, *device; /* image NULL: there is none */
    } rows[] = {{"<r><imagesSet/></r>", NULL, NULL},
                {"<r><imagesSet><item><imageId>ami-1</imageId><rootDeviceName>/dev/xvda</rootDeviceName></item></"
                 "imagesSet></r>",
                 "ami-1", "/dev/xvda"},
                {"<r><imagesSet><item><imageId>ami-1</imageId></item></imagesSet></r>", "ami-1", "/dev/sda1"},
                {"<r><imagesSet><item><imageId>ami-1</imageId><creationDate>2026-01-01</creationDate></item>"
                 "<item><imageId>ami-3</imageId><creationDate>2026-03-01</creationDate><rootDeviceName>/dev/xvda</"
                 "rootDeviceName>"
                 "</item><item><imageId>ami-2</imageId><creationDate>2026-02-01</creationDate></item></imagesSet></r>",
                 "ami-3", "/dev/xvda"}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_arena arena;
        struct tm_xml *root = NULL;
        char image[64] = "";
        char device[32] = "";
        tm_arena_init(&arena, 1 << 20);
        assert_int_equal(tm_xml_read(rows[i].text, strlen(rows[i].text), &arena, &root, NULL), 0);
        assert_row(tm_aws__read_image(root, image, device) == (rows[i].image != NULL), "row %zu", i);
        if (rows[i].image != NULL)
            assert_row(strcmp(image, rows[i].image) == 0 && strcmp(device, rows[i].device) == 0, "row %zu: %s %s", i,
                       image, device);
        tm_arena_deinit(&arena);
    }
}

/* vCPUs are counted by family and market: who shares them waits, too. */
static void test_shared_quotas(void **state)
{
    (void)state;
    enum { SPOT = false, ON_DEMAND = true };
    static const struct quota_row rows[] = {
        {"MaxSpotInstanceCountExceeded", "no more", "p3.2xlarge", "a", "p3.8xlarge", "b", SPOT, true},
        {"MaxSpotInstanceCountExceeded", "no more", "p3.2xlarge", "a", "p4d.24xlarge", "a", SPOT, true},
        {"MaxSpotInstanceCountExceeded", "no more", "p3.2xlarge", "a", "p5.48xlarge", "a", SPOT, false},
        {"MaxSpotInstanceCountExceeded", "no more", "p3.2xlarge", "a", "g5.xlarge", "a", SPOT, false},
        {"MaxSpotInstanceCountExceeded", "no more", "p3.2xlarge", "a", "p3.2xlarge", "a", ON_DEMAND, false},
        {"VcpuLimitExceeded", "no more", "c5.large", "a", "m5.large", "a", SPOT, true},
        {"VcpuLimitExceeded", "no more", "trn1.2xlarge", "a", "t3.large", "a", SPOT, false},
        {"VcpuLimitExceeded", "no more", "trn1.2xlarge", "a", "trn1n.32xlarge", "a", SPOT, true},
        {"VolumeLimitExceeded", "no more", "p3.2xlarge", "a", "g5.xlarge", "a", ON_DEMAND, true}};
    check_quotas(&tm_aws__rules, rows, TM_COUNT(rows));
}

static void test_rows(void **state)
{
    (void)state;
    static const char text[] =
        "<a><item><instanceId>i-1</instanceId><clientToken>other</clientToken><instanceState><name>shutting-down</name>"
        "</instanceState><stateReason><code>Server.SpotInstanceTermination</code></stateReason><instanceType>t</"
        "instanceType>"
        "<placement><availabilityZone>us-east-1b</availabilityZone></placement><launchTime>1970-01-01T00:00:02Z</"
        "launchTime><reason>User initiated (1970-01-01 00:01:05 GMT)</reason>"
        "<tagSet><item><key>tidemill:token</key><value>tm-1</value></item><item><key>tidemill:pool</key><value>3</"
        "value>"
        "</item></tagSet></item><item><instanceId/></item>"
        "<p><instanceType>t</instanceType><availabilityZone>z</availabilityZone><spotPrice>0.5</spotPrice>"
        "<timestamp>1970-01-01T00:00:03.000Z</timestamp></p>"
        "<q><instanceType>t</instanceType><spotPrice>much</spotPrice></q></a>";
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    struct tm_error e = {.text = ""};
    struct tm_vm__row row;
    struct tm_vm__price price;
    tm_arena_init(&arena, 1 << 20);
    assert_row(tm_xml_read(text, strlen(text), &arena, &root, &e) == 0, "%s", e.text);
    const struct tm_xml *item = tm_xml_child(root, "item");
    assert_true(tm_aws__read_vm(item, &row));
    assert_string_equal(row.token, "tm-1");
    assert_string_equal(row.zone, "us-east-1b");
    assert_int_equal(row.pool, 3);
    assert_int_equal(row.launched_ms, 2000);
    assert_int_equal(row.ended_ms, 65000);
    assert_true(row.phase == TM_VM_ENDED && row.interrupted);
    assert_false(tm_aws__read_vm(tm_xml_again(item), &row));
    assert_true(tm_aws__read_price(tm_xml_child(root, "p"), &price) && price.usd_h == 0.5 && price.since_ms == 3000);
    assert_false(tm_aws__read_price(tm_xml_child(root, "q"), &price));
    tm_arena_deinit(&arena);
}

static void test_user_data(void **state)
{
    (void)state;
    struct tm_vm__user_data data = {.guest = &tm_aws__guest,
                                    .job = "it's",
                                    .program = "https://b.s3/program?a=1&b=2",
                                    .sha256 = "abc",
                                    .ticket = "tmt1_x",
                                    .ticket_url = "t",
                                    .log_url = "l",
                                    .variables = "export A='b'\n",
                                    .setup = "echo 'x'\n",
                                    .silence_s = 60,
                                    .life_s = 3600};
    struct tm_text text;
    struct tm_error e = {.text = ""};
    static char longer[16384];
    tm_text_init(&text, 1 << 20);
    assert_int_equal(tm_vm__print_user_data(&data, &text, &e), 0);
    assert_true(strncmp(tm_text_string(&text), "#!/bin/bash\n", 12) == 0);
    assert_non_null(strstr(text.data, "job='it'\\''s'\n"));
    assert_non_null(strstr(text.data, "setup='echo '\\''x'\\''\n'\n"));
    assert_non_null(strstr(text.data, "export A='b'\nexec bash -c \"$setup\""));
    assert_non_null(strstr(text.data, "silence=60\nlife=3600\n"));
    assert_true(text.length < tm_aws__guest.room / 2);
    assert_null(strstr(text.data, "pip install")); /* the Python package: only where it is needed, and before setup */
    tm_text_clear(&text);
    data.wheel = "https://b/w";
    data.wheel_name = "tidemill-1-py3-none-any.whl";
    data.wheel_sha256 = "77aa";
    assert_int_equal(tm_vm__print_user_data(&data, &text, &e), 0);
    assert_non_null(
        strstr(text.data, "wheel='https://b/w'\nwheel_name='tidemill-1-py3-none-any.whl'\nwheel_sha256='77aa'\n"));
    const char *checked = strstr(text.data, "\"$wheel_sha256  $wheel_name\" | sha256sum -c -");
    assert_non_null(checked);
    const char *installed = strstr(checked, "pip install");
    assert_true(installed != NULL && strstr(installed, "exec bash -c \"$setup\"") != NULL);
    assert_true(text.length < tm_aws__guest.room / 2);
    data.wheel = NULL;
    memset(longer, 'x', sizeof longer - 1);
    data.setup = longer;
    assert_int_equal(tm_vm__print_user_data(&data, &text, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "make setup shorter");
    tm_text_deinit(&text);
}

/* ---- VMs ---- */

static void begin(struct tm_vms *v)
{
    tm_vms__init(v, &tm_aws__rules);
    for (int i = 0; i < 2; i++) {
        v->pools[i] = (struct tm_vm__pool){.about = {.kind = i == 0 ? TM_INSTANCE_SPOT : TM_INSTANCE_ON_DEMAND,
                                                     .type = "t",
                                                     .zone = "us-east-1",
                                                     .limit = 3},
                                           .price_usd_h = 3.6};
        (void)snprintf(v->pools[i].about.name, sizeof v->pools[i].about.name, "pool %d", i);
    }
    v->pool_count = 2;
    v->begin_utc_ms = 1000000000;
}

/* The next call, which must be of this kind; where it is. */
static size_t call(struct tm_vms *v, int64_t now_ms, enum tm_vm__call_kind kind)
{
    struct tm_vm__call out;
    struct tm_error e = {.text = ""};
    bool due = false;
    assert_row(tm_vms__next(v, now_ms, &out, &due, &e) == 0, "%s", e.text);
    assert_true(due);
    assert_int_equal(out.kind, kind);
    return out.at;
}

static void no_call(struct tm_vms *v, int64_t now_ms)
{
    struct tm_vm__call out;
    bool due = true;
    assert_int_equal(tm_vms__next(v, now_ms, &out, &due, NULL), 0);
    assert_row(!due, "call %d", (int)out.kind);
}

static struct tm_vm__row row_of(const char *id, enum tm_vm__phase phase)
{
    struct tm_vm__row row = {.zone = "us-east-1a", .type = "t", .pool = -1};
    (void)snprintf(row.id, sizeof row.id, "%s", id);
    row.phase = phase;
    return row;
}

/* Nobody is there from before, and prices are not asked for. */
static void settle(struct tm_vms *v)
{
    static const struct tm_vm__row none;
    (void)call(v, 0, TM_VM_DESCRIBE);
    no_call(v, 0);
    assert_int_equal(tm_vms__described(v, &none, 0, 0, NULL), 0);
    v->pricing = true;
}

static size_t rent(struct tm_vms *v, int64_t now_ms, const char *id)
{
    size_t at = call(v, now_ms, TM_VM_RUN);
    struct tm_vm__row row = row_of(id, TM_VM_RUNS);
    tm_vms__rented(v, at, &row, now_ms);
    return at;
}

static struct tm_cloud_event next_event(struct tm_vms *v, enum tm_cloud_event_kind kind)
{
    struct tm_cloud_event event = {0};
    assert_true(tm_vms__event(v, &event));
    assert_int_equal(event.kind, kind);
    return event;
}

static void near(double got, double want)
{
    assert_row(fabs(got - want) < 1e-9, "got %.12g, want %.12g", got, want);
}

static void test_life(void **state)
{
    (void)state;
    struct tm_vms v;
    begin(&v);
    tm_vms__want(&v, 0, 2, 0);
    settle(&v);
    size_t a = rent(&v, 0, "i-a");
    size_t b = rent(&v, 0, "i-b");
    no_call(&v, 0);
    assert_int_equal(tm_vms__joined(&v, a, 5000, NULL), 0);
    assert_int_equal(next_event(&v, TM_CLOUD_ARRIVED).instance, v.instances[a].id);
    (void)call(&v, 5000, TM_VM_GET_LOG);
    near(tm_vms__bill(&v, 30000).usd[0], 2 * 0.06); /* 60 s at least */
    near(tm_vms__bill(&v, 100000).usd[0], 2 * 0.1);
    /* the price changes in the middle */
    tm_vms__priced(&v, &(struct tm_vm__price){
                           .type = "t", .zone = "us-east-1a", .usd_h = 7.2, .since_ms = v.begin_utc_ms + 100000});
    tm_vms__all_priced(&v, 150000);
    near(tm_vms__bill(&v, 200000).usd[0], 2 * 0.3);
    /* AWS takes one back within its first hour; the other before it joined, for a reason of its own */
    struct tm_vm__row rows[] = {row_of("i-a", TM_VM_ENDED), row_of("i-b", TM_VM_ENDED)};
    rows[0].interrupted = true;
    rows[1].itself = true;
    (void)call(&v, 200000, TM_VM_DESCRIBE);
    assert_int_equal(tm_vms__described(&v, rows, 2, 200000, NULL), 0);
    struct tm_cloud_event lost = next_event(&v, TM_CLOUD_LOST);
    assert_true(lost.instance == v.instances[a].id && lost.announced);
    near(tm_vms__bill(&v, 900000).usd[0], 0.3);
    assert_true(v.vms[a].over && v.vms[b].over && tm_vms__left(&v) == 0);
    assert_true(v.pools[0].retry_ms > 200000); /* not at once: it may fail again */
    tm_vms__deinit(&v);
}

static void test_refusals(void **state)
{
    (void)state;
    struct tm_vms v;
    struct tm_error e = {.text = ""};
    begin(&v);
    settle(&v);
    tm_vms__want(&v, 0, 1, 0);
    size_t at = call(&v, 0, TM_VM_RUN);
    /* no answer, and a service that is busy: the same VM again, not another */
    assert_int_equal(tm_vms__refused(&v, at, "", "cut", 0, &e), 0);
    no_call(&v, 0);
    assert_int_equal(call(&v, v.vms[at].retry_ms, TM_VM_RUN), at);
    assert_int_equal(tm_vms__refused(&v, at, "RequestLimitExceeded", "busy", 9000, &e), 0);
    assert_int_equal(call(&v, v.vms[at].retry_ms, TM_VM_RUN), at);
    assert_int_equal(v.count, 1);
    /* no capacity: told, and this pool waits */
    assert_int_equal(tm_vms__refused(&v, at, "InsufficientInstanceCapacity", "none", 20000, &e), 0);
    struct tm_cloud_event event = next_event(&v, TM_CLOUD_REFUSED);
    assert_true(event.pool == 0 && event.count == 1);
    assert_true(v.instances[at].ungranted); /* not a loss */
    no_call(&v, 30000);
    int64_t again_ms = tm_vms__due_ms(&v);
    assert_true(again_ms > 20000 + 100000 && again_ms < 20000 + 300000);
    assert_false(v.instances[rent(&v, again_ms, "i-c")].ungranted);
    assert_int_equal(next_event(&v, TM_CLOUD_REFUSED).count, 0);
    /* nothing that waiting cures: an error, as nobody is here */
    tm_vms__want(&v, 1, 1, again_ms);
    at = call(&v, again_ms, TM_VM_RUN);
    assert_int_equal(tm_vms__refused(&v, at, "InvalidAMIID.NotFound", "no image", again_ms, &e), -(int)TM_EINPUT);
    assert_error_has(e, "no image; name an image of this region");
    tm_vms__deinit(&v);
}

/* AWS keeps what it answered to a token, an empty fleet, too: so another VM is asked for, after a pause that grows. */
static void test_empty_fleet(void **state)
{
    (void)state;
    static const char answer[] =
        "<CreateFleetResponse><fleetId>fleet-1</fleetId><errorSet><item><errorCode>InternalError</errorCode>"
        "<errorMessage>An internal error has occurred</errorMessage></item></errorSet></CreateFleetResponse>";
    static struct tm_aws__cloud c;
    struct tm_vms *v = &c.shared.vms;
    struct tm_error e = {.text = ""};
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    int64_t now_ms = 0;
    int64_t waited_ms = 0;
    tm_arena_init(&arena, 1 << 20);
    assert_int_equal(tm_xml_read(answer, strlen(answer), &arena, &root, &e), 0);
    begin(v);
    settle(v);
    tm_vms__want(v, 0, 1, 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(call(v, now_ms, TM_VM_RUN), i); /* with a token of its own */
        v->vms[i].templated = true;
        assert_int_equal(tm_aws__take_fleet(&c, i, root, now_ms, &e), 0);
        assert_true(v->vms[i].over && v->instances[i].ungranted);
        assert_int_equal(call(v, now_ms, TM_VM_DROP_TEMPLATE), i);
        if (i == 0) {
            struct tm_cloud_event event = next_event(v, TM_CLOUD_REFUSED);
            assert_string_equal(event.why, "InternalError: An internal error has occurred");
        }
        assert_true(v->pools[0].retry_ms - now_ms > waited_ms);
        waited_ms = v->pools[0].retry_ms - now_ms;
        no_call(v, now_ms);
        now_ms = v->pools[0].retry_ms;
    }
    assert_true(waited_ms > 10000);
    (void)rent(v, now_ms, "i-a");
    assert_int_equal(next_event(v, TM_CLOUD_REFUSED).count, 0);
    tm_vms__deinit(v);
    tm_arena_deinit(&arena);
}

/* What is told of a refusal has all of the advice, and whole words of the cloud's. */
static void test_words_are_whole(void **state)
{
    (void)state;
    struct tm_vms v;
    struct tm_error e = {.text = ""};
    begin(&v);
    settle(&v);
    tm_vms__want(&v, 0, 1, 0);
    size_t at = call(&v, 0, TM_VM_RUN);
    assert_int_equal(
        tm_vms__refused(&v, at, "VcpuLimitExceeded",
                        "You have requested more vCPU capacity than your current vCPU limit of 0 allows "
                        "for the instance bucket that the specified instance type belongs to. Please visit "
                        "http://aws.amazon.com/contact-us/ec2-request to request an adjustment.",
                        0, &e),
        0);
    assert_string_equal(
        next_event(&v, TM_CLOUD_REFUSED).why,
        "VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit of 0 "
        "allows for the instance bucket that the specified...; ask for more vCPUs under Service Quotas, Amazon EC2");
    tm_vms__deinit(&v);
}

/* The token was used with other words: what is there is found by its tag, or there is nothing. */
static void test_mismatch(void **state)
{
    (void)state;
    struct tm_vms v;
    begin(&v);
    settle(&v);
    tm_vms__want(&v, 0, 1, 0);
    size_t at = call(&v, 0, TM_VM_RUN);
    (void)snprintf(v.vms[at].token, sizeof v.vms[at].token, "tm-x");
    assert_int_equal(tm_vms__refused(&v, at, "IdempotentParameterMismatch", "other", 0, NULL), 0);
    (void)call(&v, 5000, TM_VM_DESCRIBE);
    struct tm_vm__row row = row_of("i-x", TM_VM_RUNS);
    (void)snprintf(row.token, sizeof row.token, "tm-x");
    assert_int_equal(tm_vms__described(&v, &row, 1, 5000, NULL), 0);
    assert_string_equal(v.vms[at].id, "i-x");
    assert_int_equal(v.vms[at].step, TM_VM_BOOTS);
    tm_vms__deinit(&v);
}

/* A program died after the cloud had launched its VM and before it saw the answer. Its account was written in between,
 * and has nothing of that VM: all of it is paid now. */
static void test_launched_and_not_yet_known(void **state)
{
    (void)state;
    struct tm_vms v;
    begin(&v);
    v.before_utc_ms = v.begin_utc_ms - 30000;
    assert_int_equal(tm_vms__recall(&v, 0, "tm-1", "", NULL), 0);
    (void)call(&v, 0, TM_VM_DESCRIBE);
    struct tm_vm__row row = row_of("i-1", TM_VM_RUNS);
    assert_int_equal(tm_vms__described(&v, &row, 0, 0, NULL), 0); /* not listed yet */
    size_t at = call(&v, 0, TM_VM_RUN);
    row.launched_ms = v.begin_utc_ms - 40000;
    tm_vms__rented(&v, at, &row, 0);
    v.pricing = true;
    near(tm_vms__bill(&v, 0).usd[0], 0.06);
    near(tm_vms__bill(&v, 60000).usd[0], 0.1);
    tm_vms__deinit(&v);
}

/* A program died with three VMs: one whose answer it never saw, one that it knew, one whose note was lost. Two are
 * wanted. */
static void test_adoption(void **state)
{
    (void)state;
    struct tm_vms v;
    begin(&v);
    v.id_next = 10;
    v.before_utc_ms = v.begin_utc_ms - 30000;
    assert_int_equal(tm_vms__recall(&v, 0, "tm-1", "", NULL), 0);
    assert_int_equal(tm_vms__recall(&v, 0, "tm-2", "i-2", NULL), 0);
    struct tm_vm__row rows[] = {row_of("i-2", TM_VM_RUNS), row_of("i-3", TM_VM_RUNS), row_of("i-4", TM_VM_ENDED)};
    rows[0].launched_ms = v.begin_utc_ms - 100000; /* paid for up to 30 s ago */
    rows[1].launched_ms = v.begin_utc_ms - 10000;
    rows[1].pool = 0;
    (void)call(&v, 0, TM_VM_DESCRIBE);
    assert_int_equal(tm_vms__described(&v, rows, 3, 0, NULL), 0);
    assert_int_equal(v.count, 3);
    for (size_t i = 0; i < v.count; i++) /* nobody here knows how long they took to come */
        assert_true(v.instances[i].recalled);
    v.pricing = true;
    near(tm_vms__bill(&v, 0).usd[0], 0.03 + 0.06);
    size_t first = call(&v, 0, TM_VM_RUN); /* the same words again, whether it is wanted or not */
    for (int i = 0; i < 2; i++) { /* of those that are known there may be templates; their old tickets are void */
        (void)call(&v, 0, TM_VM_DROP_TEMPLATE);
        (void)call(&v, 0, TM_VM_PUT_TICKET);
    }
    assert_int_equal(v.instances[first].id, 10);
    struct tm_vm__row row = row_of("i-1", TM_VM_RUNS);
    row.launched_ms = v.begin_utc_ms - 5000;
    tm_vms__rented(&v, first, &row, 100);
    (void)call(&v, 100, TM_VM_DROP_TEMPLATE);
    (void)call(&v, 100, TM_VM_PUT_TICKET);
    no_call(&v, 100);
    tm_vms__want(&v, 0, 2, 200);
    size_t ended = call(&v, 200, TM_VM_TERMINATE);
    tm_vms__terminated(&v, ended, true, "", 300);
    no_call(&v, 300);
    assert_int_equal(v.instances[ended].state, TM_INSTANCE_RELEASED);
    assert_int_equal(tm_vms__left(&v), 3); /* until AWS says that it has gone */
    tm_vms__deinit(&v);
}

/* Two spot pools are asked in one call: the one that gave it is told by what AWS names; the other one's refusal is a
 * fact all the same. The template goes. */
static void test_fleet(void **state)
{
    (void)state;
    struct tm_vms v;
    begin(&v);
    settle(&v);
    v.pools[1].about.kind = TM_INSTANCE_SPOT;
    (void)snprintf(v.pools[1].about.type, sizeof v.pools[1].about.type, "u");
    tm_vms__want(&v, 0, 1, 0);
    tm_vms__want(&v, 1, 2, 0);
    size_t at = call(&v, 0, TM_VM_RUN);
    assert_int_equal(v.instances[at].pool, 0);
    assert_true(tm_vms__may_ask(&v, 1, 0));
    v.vms[at].templated = true;
    struct tm_vm__row row = row_of("i-a", TM_VM_RUNS);
    (void)snprintf(row.type, sizeof row.type, "u");
    tm_vms__rented(&v, at, &row, 0);
    assert_int_equal(v.instances[at].pool, 1);
    assert_int_equal(tm_vms__pool_refused(&v, 0, "InsufficientInstanceCapacity", 0, NULL), 0);
    struct tm_cloud_event event = next_event(&v, TM_CLOUD_REFUSED);
    assert_true(event.pool == 0 && event.count == 1);
    assert_int_equal(call(&v, 0, TM_VM_DROP_TEMPLATE), at);
    assert_int_equal(v.instances[call(&v, 0, TM_VM_RUN)].pool, 1); /* pool 0 waits */
    assert_true(!tm_vms__may_ask(&v, 0, 0) && tm_vms__may_ask(&v, 0, 300000));
    /* of a pool's zones the cheapest is its price */
    static const struct tm_vm__price prices[] = {{"u", "us-east-1b", 2, 9},
                                                 {"u", "us-east-1c", 1, 5},
                                                 {"u", "us-east-1d", 3, 7},
                                                 {"u", "us-east-1b", 0.5, 4},
                                                 {"t", "us-east-1a", 0.1, 4}};
    (void)snprintf(v.pools[1].about.zone, sizeof v.pools[1].about.zone, "us-east-1");
    for (int i = 0; i < 5; i++)
        tm_vms__priced(&v, &prices[i]);
    tm_vms__all_priced(&v, 0);
    near(v.pools[1].price_usd_h, 1);
    tm_vms__deinit(&v);
}

/* The bill is the cloud's: from launch to end as it says them, through all prices of that time, 60 s at least, and
 * nothing for one that is taken back within its first hour. What prices were is asked for once more when all have gone.
 */
static void test_bill(void **state)
{
    (void)state;
    struct tm_vms v;
    begin(&v);
    v.pools[0].about.limit = 4;
    tm_vms__want(&v, 0, 4, 0);
    settle(&v);
    size_t a = rent(&v, 0, "i-a"); /* long, then ended by us */
    size_t b = rent(&v, 0, "i-b"); /* short */
    size_t c = rent(&v, 0, "i-c"); /* taken back early */
    size_t d = rent(&v, 0, "i-d"); /* taken back late */
    struct tm_vm__row rows[] = {row_of("i-a", TM_VM_RUNS), row_of("i-b", TM_VM_RUNS), row_of("i-c", TM_VM_RUNS),
                                row_of("i-d", TM_VM_RUNS)};
    for (int i = 0; i < 4; i++)
        rows[i].launched_ms = v.begin_utc_ms + 10000;
    assert_int_equal(tm_vms__described(&v, rows, 4, 20000, NULL), 0);
    rows[1].phase = TM_VM_ENDED;
    rows[1].ended_ms = v.begin_utc_ms + 30000;
    rows[2].phase = TM_VM_ENDED;
    rows[2].interrupted = true;
    assert_int_equal(tm_vms__described(&v, rows, 4, 1000000, NULL), 0);
    assert_int_equal(tm_vms__unsettled_ms(&v, 2000000), 10000);
    /* 3.6 $/h from the beginning, 7.2 after 1,000 s, 36 after 5,000 s, in any order */
    static const double usd_h[] = {36, 3.6, 7.2};
    static const int64_t since_s[] = {5000, -500, 1010};
    for (int i = 0; i < 3; i++)
        tm_vms__priced(&v, &(struct tm_vm__price){"t", "us-east-1a", usd_h[i], v.begin_utc_ms + since_s[i] * 1000});
    tm_vms__all_priced(&v, 4010000);
    (void)tm_vms__bill(&v, 4010000);
    near(v.instances[a].bill_usd, 1 + 3 * 2);
    near(v.instances[b].bill_usd, 0.06);
    near(v.instances[c].bill_usd, 0);
    /* the last two go: the end as the cloud says it, or when it accepted it */
    tm_vms__terminated(&v, a, true, "", 4110000);
    rows[0].phase = rows[3].phase = TM_VM_ENDED;
    rows[3].interrupted = true;
    tm_vms__want(&v, 0, 0, 4100000);
    assert_true(tm_vms__owes(&v));
    assert_int_equal(tm_vms__described(&v, rows, 4, 4210000, NULL), 0);
    assert_true(tm_vms__left(&v) == 0 && tm_vms__owes(&v));
    near(tm_vms__bill(&v, 9000000).usd[0], 7 + 0.2 + 0.06 + 7 + 0.4);
    for (struct tm_vm__call next = {.kind = TM_VM_RUN}; next.kind != TM_VM_PRICES;) {
        bool due = false;
        assert_int_equal(tm_vms__next(&v, 4210000, &next, &due, NULL), 0);
        assert_true(due);
    }
    tm_vms__priced(&v, &(struct tm_vm__price){"t", "us-east-1a", 3.6, v.begin_utc_ms + 4010000});
    tm_vms__all_priced(&v, 4211000);
    assert_false(tm_vms__owes(&v));
    near(tm_vms__bill(&v, 9000000).usd[0], 7 + 0.1 + 0.06 + 7 + 0.2);
    near(v.instances[d].bill_usd, 7.2);
    tm_vms__deinit(&v);
}

/* Adopted, and then taken back within the hour: what an earlier program has paid for it comes back. */
static void test_refund(void **state)
{
    (void)state;
    struct tm_vms v;
    begin(&v);
    v.before_utc_ms = v.begin_utc_ms - 30000;
    assert_int_equal(tm_vms__recall(&v, 0, "tm-2", "i-2", NULL), 0);
    struct tm_vm__row row = row_of("i-2", TM_VM_RUNS);
    row.launched_ms = v.begin_utc_ms - 130000;
    (void)call(&v, 0, TM_VM_DESCRIBE);
    assert_int_equal(tm_vms__described(&v, &row, 1, 0, NULL), 0);
    near(tm_vms__bill(&v, 70000).usd[0], 0.1);
    /* one that had run for a second: a minute is paid */
    struct tm_vm__row late = row_of("i-3", TM_VM_RUNS);
    late.launched_ms = v.begin_utc_ms - 31000;
    late.pool = 0;
    v.adopting = true;
    assert_int_equal(tm_vms__described(&v, &late, 1, 0, NULL), 0);
    near(tm_vms__bill(&v, 29000).usd[0], 0.059);
    near(tm_vms__bill(&v, 70000).usd[0], 0.1 + 0.041);
    v.vms[1].over = true;
    v.vms[1].end_ms = v.vms[1].paid_ms;
    row.phase = TM_VM_ENDED;
    row.interrupted = true;
    assert_int_equal(tm_vms__described(&v, &row, 1, 70000, NULL), 0);
    near(tm_vms__bill(&v, 90000).usd[0], -0.1);
    tm_vms__deinit(&v);
}

/* What is not wanted any more while its call is on its way is ended when the answer comes. */
static void test_dropped_on_its_way(void **state)
{
    (void)state;
    struct tm_vms v;
    begin(&v);
    settle(&v);
    tm_vms__want(&v, 0, 1, 0);
    size_t at = call(&v, 0, TM_VM_RUN);
    tm_vms__want(&v, 0, 0, 10);
    no_call(&v, 10);
    struct tm_vm__row row = row_of("i-a", TM_VM_RUNS);
    tm_vms__rented(&v, at, &row, 20);
    assert_int_equal(call(&v, 20, TM_VM_TERMINATE), at);
    (void)call(&v, 2000, TM_VM_DESCRIBE);
    row = row_of("i-a", TM_VM_ENDED);
    assert_int_equal(tm_vms__described(&v, &row, 1, 2000, NULL), 0);
    assert_int_equal(tm_vms__left(&v), 0);
    struct tm_cloud_event event;
    assert_false(tm_vms__event(&v, &event));
    tm_vms__deinit(&v);
}

/* A list names it while its call is on its way, which then has to go on in another zone: it is one all the same. */
static void test_named_too_early(void **state)
{
    (void)state;
    struct tm_vms v;
    begin(&v);
    settle(&v);
    tm_vms__want(&v, 0, 1, 0);
    size_t at = call(&v, 0, TM_VM_RUN);
    (void)snprintf(v.vms[at].token, sizeof v.vms[at].token, "t-1");
    struct tm_vm__row row = row_of("b/t-1", TM_VM_RUNS);
    (void)snprintf(row.token, sizeof row.token, "t-1");
    assert_int_equal(tm_vms__described(&v, &row, 1, 10, NULL), 0);
    assert_string_equal(v.vms[at].id, "b/t-1");
    tm_vms__elsewhere(&v, at);
    tm_vms__elsewhere(&v, at); /* not named again meanwhile */
    (void)snprintf(row.id, sizeof row.id, "c/t-1");
    assert_int_equal(tm_vms__described(&v, &row, 1, 60000, NULL), 0);
    tm_vms__rented(&v, at, &row, 60010);
    assert_int_equal(v.count, 1);
    assert_string_equal(v.vms[at].id, "c/t-1");
    assert_int_equal(v.vms[at].step, TM_VM_BOOTS);
    assert_int_equal(v.vms[at].paid_ms, 60000); /* for the first nobody pays */
    assert_int_equal(tm_vms__joined(&v, at, 60020, NULL), 0);
    assert_int_equal(next_event(&v, TM_CLOUD_ARRIVED).instance, v.instances[at].id);
    tm_vms__deinit(&v);
}

/* What AWS does not name is believed to be gone only after a while; one that never joins is ended. */
static void test_patience(void **state)
{
    (void)state;
    struct tm_vms v;
    static const struct tm_vm__row none;
    begin(&v);
    settle(&v);
    v.start_limit_ms = 20000;
    tm_vms__want(&v, 0, 2, 0);
    size_t a = rent(&v, 0, "i-a");
    size_t b = rent(&v, 0, "i-b");
    assert_int_equal(tm_vms__joined(&v, a, 1000, NULL), 0);
    (void)next_event(&v, TM_CLOUD_ARRIVED);
    assert_int_equal(tm_vms__described(&v, &none, 0, 30000, NULL), 0);
    assert_false(v.vms[a].over || v.vms[b].over);
    assert_int_equal(tm_vms__tick(&v, 30000, NULL), 0);
    assert_true(v.vms[b].ending && !v.vms[a].ending);
    assert_int_equal(tm_vms__described(&v, &none, 0, 61000, NULL), 0);
    assert_true(v.vms[a].over && v.vms[b].over);
    assert_false(next_event(&v, TM_CLOUD_LOST).announced);
    tm_vms__deinit(&v);
}

static void live_once(int *rc)
{
    struct tm_vms v;
    struct tm_vm__call out;
    bool due = false;
    begin(&v);
    v.adopting = false;
    v.pricing = true;
    tm_vms__want(&v, 0, 1, 0);
    *rc = tm_vms__next(&v, 0, &out, &due, NULL);
    if (*rc == 0) {
        struct tm_vm__row row = row_of("i-a", TM_VM_RUNS);
        tm_vms__rented(&v, out.at, &row, 0);
        *rc = tm_vms__joined(&v, out.at, 1, NULL);
    }
    tm_vms__deinit(&v);
}

static void test_no_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(live_once(&rc));
}

TM_TEST_MAIN(TM_TEST(test_remedies), TM_TEST(test_shared_quotas), TM_TEST(test_images), TM_TEST(test_empty_fleet),
             TM_TEST(test_words_are_whole), TM_TEST(test_rows), TM_TEST(test_quotas), TM_TEST(test_user_data),
             TM_TEST(test_life), TM_TEST(test_bill), TM_TEST(test_refund), TM_TEST(test_refusals),
             TM_TEST(test_mismatch), TM_TEST(test_launched_and_not_yet_known), TM_TEST(test_adoption),
             TM_TEST(test_fleet), TM_TEST(test_dropped_on_its_way), TM_TEST(test_named_too_early),
             TM_TEST(test_patience), TM_TEST(test_no_memory))
