/* What Azure says, read; what a renter does when it refuses; what a VM is told; and VMs that fail after they were
 * accepted, with the test as Azure. */
#include "base/test/harness.h"
#include "cloud/azure_check.h"
#include "cloud/azure_text.h"
#include "cloud/test/remedies.h"
#include "web/azure_arm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *load(const char *text)
{
    json_t *root = NULL;
    struct tm_error e = {.text = ""};
    assert_row(tm_json_load("test", text, strlen(text), &root, &e) == 0, "%s", e.text);
    return root;
}

static void test_shared_quotas(void **state)
{
    (void)state;
    static const char spot[] = "Operation results in exceeding approved LowPriorityCores quota";
    static const struct quota_row rows[] = {
        {"OperationNotAllowed", spot, "Standard_NC6s_v3", "", "Standard_NC4as_T4_v3", "", false, true},
        {"OperationNotAllowed", spot, "Standard_NC6s_v3", "", "Standard_NC6s_v3", "", true, false}};
    check_quotas(&tm_azure__rules, rows, TM_COUNT(rows));
}

static void test_remedies(void **state)
{
    (void)state;
    static const struct remedy_row rows[] = {{"SkuNotAvailable", TM_VM_ELSEWHERE},
                                             {"AllocationFailed", TM_VM_ELSEWHERE},
                                             {"ZonalAllocationFailed", TM_VM_ELSEWHERE},
                                             {"OverconstrainedAllocationRequest", TM_VM_ELSEWHERE},
                                             {"OverconstrainedZonalAllocationRequest", TM_VM_ELSEWHERE},
                                             {"SpotPriceGreaterThanProvidedMaxPrice", TM_VM_ELSEWHERE},
                                             {"OperationNotAllowed", TM_VM_QUOTA},
                                             {"TooManyRequests", TM_VM_AGAIN},
                                             {"ExpiredAuthenticationToken", TM_VM_AGAIN},
                                             {"", TM_VM_AGAIN},
                                             {"PropertyChangeNotAllowed", TM_VM_LOOK},
                                             {"AuthorizationFailed", TM_VM_STOP},
                                             {"SomethingNew", TM_VM_STOP}};
    check_remedies(&tm_azure__rules, rows, TM_COUNT(rows));
    assert_non_null(strstr(tm_azure__advice("AuthorizationFailed"), "--emit policy"));
}

static void test_rows(void **state)
{
    (void)state;
    struct tm_vm__row row;
    char run[32];
    char name[TM_VM_ID_MAX];
    bool stopped = false;
    json_t *root =
        load("{\"name\":\"tm-1\",\"location\":\"eastus\",\"zones\":[\"2\"],\"tags\":{\"tidemill:run\":\"r\","
             "\"tidemill:pool\":\"3\"},\"properties\":{\"provisioningState\":\"Failed\",\"timeCreated\":"
             "\"1970-01-01T00:00:02+00:00\",\"hardwareProfile\":{\"vmSize\":\"t\"},\"instanceView\":{"
             "\"statuses\":[{\"code\":\"ProvisioningState/succeeded\"},{\"code\":\"PowerState/stopped\"}]}}}");
    assert_true(tm_azure__read_vm(root, &row, run));
    assert_string_equal(row.id, "tm-1");
    assert_string_equal(row.zone, "eastus-2");
    assert_string_equal(row.type, "t");
    assert_string_equal(run, "r");
    assert_int_equal(row.pool, 3);
    assert_int_equal(row.phase, TM_VM_STOPPED);
    assert_int_equal(row.launched_ms, 2000);
    assert_true(tm_azure__read_power(root, name, &stopped) && stopped);
    assert_false(tm_azure__read_part(root, "-nic", name));
    json_decref(root);
    root = load("{\"name\":\"tm-1-nic\",\"properties\":{\"ipConfigurations\":[{\"properties\":{\"privateIPAddress\":"
                "\"10.0.0.4\"}}]}}");
    assert_true(tm_azure__read_part(root, "-nic", name));
    assert_string_equal(name, "tm-1");
    tm_azure__read_address(root, name);
    assert_string_equal(name, "10.0.0.4");
    json_decref(root);
#define ROW(sku, product, place, unit, price)                                                                          \
    "{\"armSkuName\":\"t\",\"skuName\":\"" sku "\",\"productName\":\"" product "\",\"armRegionName\":\"" place         \
    "\",\"unitOfMeasure\":\"" unit "\",\"retailPrice\":" price "}"
    root = load("{\"Items\":[" ROW("t Spot", "T Windows", "eastus", "1 Hour", "0.1") "," ROW(
        "t Spot", "T", "eastus", "1 Hour",
        "0.3") "," ROW("t", "T", "eastus", "1 Hour", "0.2") "," ROW("t Spot", "T", "eastus", "1 Month",
                                                                    "0.01") "," ROW("t Spot", "T", "westus", "1 Hour",
                                                                                    "0.4") "]}");
    assert_true(tm_azure__read_spot_price(root, "t", "eastus") == 0.3);
    assert_true(tm_azure__read_spot_price(root, "t", "westus") == 0.4);
    assert_true(isnan(tm_azure__read_spot_price(root, "t", "northeurope")));
    assert_true(isnan(tm_azure__read_spot_price(root, "u", "eastus")));
    json_decref(root);
}

static void test_operations(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *text;
        enum tm_azure__progress progress;
    } rows[] = {{200, "{\"status\":\"InProgress\"}", TM_AZURE_UNDER_WAY},
                {200, "{\"status\":\"Failed\"}", TM_AZURE_FAILED},
                {200, "{\"status\":\"Canceled\"}", TM_AZURE_FAILED},
                {200, "{\"status\":\"Succeeded\"}", TM_AZURE_DONE},
                {202, "{}", TM_AZURE_UNDER_WAY},
                {200, "{}", TM_AZURE_DONE}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        json_t *root = load(rows[i].text);
        assert_row(tm_azure__read_operation(rows[i].status, root) == rows[i].progress, "%s", rows[i].text);
        json_decref(root);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const char nested[] =
        "{\"error\":{\"code\":\"DeploymentFailed\",\"message\":\"a\\nb\",\"details\":[{\"code\":"
        "\"SkuNotAvailable\",\"message\":\"none\"}]}}";
    struct tm_arm_refusal why;
    assert_int_equal(tm_arm_refusal(nested, strlen(nested), &why, NULL), 0);
    assert_string_equal(why.code, "SkuNotAvailable");
    assert_int_equal(tm_arm_refusal("<html>", 6, &why, NULL), 0);
    assert_string_equal(why.code, "");
}

/* A VM that was refused, or failed later, is ended until nothing of it is named, and costs nothing. */
static void test_failed(void **state)
{
    (void)state;
    struct tm_vms v;
    struct tm_vm__call call;
    struct tm_error e = {.text = ""};
    bool due = false;
    tm_vms__init(&v, &tm_azure__rules);
    v.pools[0] = (struct tm_vm__pool){.about = {.type = "t", .name = "spot"}, .price_usd_h = 3600};
    v.pool_count = 1;
    v.unpriced = true;
    static const struct tm_vm__row none;
    assert_int_equal(tm_vms__next(&v, 0, &call, &due, &e), 0);
    assert_int_equal(tm_vms__described(&v, &none, 0, 0, &e), 0);
    tm_vms__want(&v, 0, 1, 0);
    assert_true(tm_vms__next(&v, 0, &call, &due, &e) == 0 && due && call.kind == TM_VM_RUN);
    (void)snprintf(v.vms[call.at].token, sizeof v.vms[call.at].token, "tm-a");
    struct tm_vm__row row = {.id = "tm-a", .pool = -1};
    tm_vms__rented(&v, call.at, &row, 1000);
    tm_vms__follow(&v, call.at, 500, 1000);
    assert_true(tm_vms__next(&v, 1500, &call, &due, &e) == 0 && due && call.kind == TM_VM_FOLLOW);
    assert_int_equal(tm_vms__failed(&v, call.at, "AllocationFailed", "none", 2000, &e), 0);
    assert_int_equal(tm_vms__left(&v), 1);
    assert_true(tm_vms__next(&v, 2000, &call, &due, &e) == 0 && due && call.kind == TM_VM_TERMINATE);
    tm_vms__terminated(&v, call.at, true, "", 3000);
    row.phase = TM_VM_ENDED;
    assert_int_equal(tm_vms__described(&v, &row, 1, 4000, &e), 0);
    assert_int_equal(tm_vms__left(&v), 0);
    assert_true(tm_vms__bill(&v, 9000).usd[0] == 0);
    struct tm_cloud_event event;
    assert_true(tm_vms__event(&v, &event) && event.kind == TM_CLOUD_REFUSED && event.count == 1);
    tm_vms__deinit(&v);
}

/* It deletes itself where it has an identity, and its token is on no command line. */
static void test_user_data(void **state)
{
    (void)state;
    struct tm_text text;
    struct tm_error e = {.text = ""};
    const struct tm_vm__user_data data = {.guest = &tm_azure__guest,
                                          .words = "arm='https://x'\naudience='https://x'\nidentity='/i'\n",
                                          .job = "it's",
                                          .program = "p",
                                          .sha256 = "abc",
                                          .ticket = "tmt1_x",
                                          .ticket_url = "t",
                                          .log_url = "l",
                                          .variables = "",
                                          .silence_s = 60,
                                          .life_s = 3600};
    tm_text_init(&text, 1 << 20);
    assert_int_equal(tm_vm__print_user_data(&data, &text, &e), 0);
    assert_non_null(strstr(text.data, "arm='https://x'\naudience='https://x'\nidentity='/i'\n"));
    assert_non_null(strstr(text.data, "--data-urlencode \"resource=$audience/\""));
    assert_null(strstr(text.data, "management.azure.com")); /* China's and the American government's are elsewhere */
    assert_non_null(strstr(text.data, "-X DELETE \"$arm$me?"));
    assert_non_null(strstr(text.data, "curl -fsS -m 60 -K - -X DELETE"));
    assert_non_null(strstr(text.data, "put_header='-H x-ms-blob-type:BlockBlob'"));
    assert_true(text.length < 16384);
    tm_text_deinit(&text);
}

static void test_families(void **state)
{
    (void)state;
    assert_true(tm_azure__is_family_of("standardNCASv3_T4Family", "Standard_NC4as_T4_v3"));
    assert_true(tm_azure__is_family_of("StandardNCADSA100v4Family", "Standard_NC24ads_A100_v4"));
    assert_true(tm_azure__is_family_of("standardNCSv3Family", "Standard_NC6s_v3"));
    assert_false(tm_azure__is_family_of("standardNCSv2Family", "Standard_NC6s_v3"));
    assert_false(tm_azure__is_family_of("cores", "Standard_NC6s_v3"));
}

TM_TEST_MAIN(TM_TEST(test_families), TM_TEST(test_remedies), TM_TEST(test_shared_quotas), TM_TEST(test_rows),
             TM_TEST(test_operations), TM_TEST(test_refusals), TM_TEST(test_failed), TM_TEST(test_user_data))
