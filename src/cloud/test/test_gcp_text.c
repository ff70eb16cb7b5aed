/* What Compute Engine says, read; and what a renter does when it refuses. */
#include "base/test/harness.h"
#include "cloud/gcp_sku.h"
#include "cloud/gcp_text.h"
#include "cloud/test/remedies.h"

#include <math.h>
#include <string.h>

/* A quota is of a region, of one kind of GPU or one market where Google names it, or of all regions. */
static void test_shared_quotas(void **state)
{
    (void)state;
    enum { SPOT = false, ON_DEMAND = true };
    static const char t4[] = "n1-standard-8+1xT4";
    static const char v100[] = "n1-standard-8+1xV100";
    static const char cpus[] = "Quota 'CPUS' exceeded. Limit: 8.0 in region us-central1.";
    static const char gpus[] = "Quota 'PREEMPTIBLE_NVIDIA_T4_GPUS' exceeded. Limit: 1.0 in region us-central1.";
    static const char all[] = "Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally.";
    static const char a[] = "us-central1-a";
    static const char b[] = "us-central1-b";
    static const char far[] = "europe-west4-a";
    static const struct quota_row rows[] = {
        {"QUOTA_EXCEEDED", cpus, t4, a, v100, b, SPOT, true},
        {"QUOTA_EXCEEDED", cpus, t4, a, v100, b, ON_DEMAND, true},
        {"QUOTA_EXCEEDED", cpus, t4, a, t4, far, SPOT, false},
        {"QUOTA_EXCEEDED", gpus, t4, a, "n1-standard-16+1xT4", b, SPOT, true},
        {"QUOTA_EXCEEDED", gpus, t4, a, v100, b, SPOT, false},
        {"QUOTA_EXCEEDED", gpus, t4, a, t4, b, ON_DEMAND, false},
        {"QUOTA_EXCEEDED", gpus, "g2-standard-4", a, "g2-standard-8", b, SPOT, true},
        {"QUOTA_EXCEEDED", all, t4, a, v100, far, ON_DEMAND, true}};
    check_quotas(&tm_gcp__rules, rows, TM_COUNT(rows));
}

static void test_remedies(void **state)
{
    (void)state;
    static const struct remedy_row rows[] = {{"ZONE_RESOURCE_POOL_EXHAUSTED", TM_VM_ELSEWHERE},
                                             {"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", TM_VM_ELSEWHERE},
                                             {"UNSUPPORTED_OPERATION", TM_VM_ELSEWHERE},
                                             {"insufficientCapacity", TM_VM_ELSEWHERE},
                                             {"VM_MIN_COUNT_NOT_REACHED", TM_VM_ELSEWHERE},
                                             {"QUOTA_EXCEEDED", TM_VM_QUOTA},
                                             {"quotaExceeded", TM_VM_QUOTA},
                                             {"RESOURCE_OPERATION_RATE_EXCEEDED", TM_VM_AGAIN},
                                             {"rateLimitExceeded", TM_VM_AGAIN},
                                             {"", TM_VM_AGAIN},
                                             {"alreadyExists", TM_VM_LOOK},
                                             {"forbidden", TM_VM_STOP},
                                             {"SomethingNew", TM_VM_STOP}};
    check_remedies(&tm_gcp__rules, rows, TM_COUNT(rows));
    assert_non_null(strstr(tm_gcp__advice("forbidden"), "--emit policy"));
    assert_non_null(strstr(tm_gcp__advice("QUOTA_EXCEEDED"), "GPUS_ALL_REGIONS"));
}

static void test_words(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        const char *machine;
        const char *accelerator;
        int count;
    } machines[] = {{"g2-standard-4", "g2-standard-4", "", 0},
                    {"n1-standard-8+1xV100", "n1-standard-8", "nvidia-tesla-v100", 1},
                    {"n1-standard-16+2xT4", "n1-standard-16", "nvidia-tesla-t4", 2},
                    {"n1-standard-16+1xL4", "n1-standard-16", "nvidia-l4", 1},
                    {"n1-standard-16+manyxT4", "n1-standard-16", "", 0}};
    for (size_t i = 0; i < TM_COUNT(machines); i++) {
        struct tm_gcp__machine machine;
        tm_gcp__machine(machines[i].type, &machine);
        assert_row_string(machines[i].type, machine.type, machines[i].machine);
        assert_row_string(machines[i].type, machine.accelerator, machines[i].accelerator);
        assert_int_equal(machine.count, machines[i].count);
    }
    char text[64];
    char name[64];
    tm_gcp__label("High Tide: 2026-11-17T10:00:00Z_x", text);
    assert_string_equal(text, "high-tide--2026-11-17t10-00-00z_x");
    assert_true(tm_gcp__is_zone("us-central1-a") && !tm_gcp__is_zone("us-central1") && !tm_gcp__is_zone(""));
    tm_gcp__region("europe-west4-c", text);
    assert_string_equal(text, "europe-west4");
    tm_gcp__region("europe-west4", text);
    assert_string_equal(text, "europe-west4");
    assert_true(tm_gcp__split("us-central1-a/tm-1", text, name));
    assert_string_equal(name, "tm-1");
    assert_false(tm_gcp__split("tm-1", text, name) || tm_gcp__split("/a", text, name) ||
                 tm_gcp__split("a/b/c", text, name));
}

static json_t *load(const char *text)
{
    json_t *root = NULL;
    struct tm_error e = {.text = ""};
    assert_row(tm_json_load("test", text, strlen(text), &root, &e) == 0, "%s", e.text);
    return root;
}

static void test_vms(void **state)
{
    (void)state;
    static const struct {
        const char *status;
        enum tm_vm__phase phase;
    } rows[] = {{"PROVISIONING", TM_VM_RUNS}, {"STAGING", TM_VM_RUNS},       {"RUNNING", TM_VM_RUNS},
                {"STOPPING", TM_VM_RUNS},     {"TERMINATED", TM_VM_STOPPED}, {"SUSPENDED", TM_VM_STOPPED}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[600];
        struct tm_vm__row row;
        (void)snprintf(
            text, sizeof text,
            "{\"name\": \"tm-1\", \"zone\": \"https://g/projects/p/zones/us-central1-b\", \"status\": \"%s\", "
            "\"machineType\": \"https://g/machineTypes/g2-standard-4\", \"creationTimestamp\": "
            "\"1970-01-01T00:00:02.000-00:00\", \"labels\": {\"tidemill-pool\": \"3\"}, \"networkInterfaces\": "
            "[{\"networkIP\": \"10.0.0.9\"}]}",
            rows[i].status);
        json_t *root = load(text);
        assert_true(tm_gcp__read_vm(root, &row));
        assert_row(row.phase == rows[i].phase, "%s", rows[i].status);
        assert_string_equal(row.id, "us-central1-b/tm-1");
        assert_string_equal(row.token, "tm-1");
        assert_string_equal(row.type, "g2-standard-4");
        assert_string_equal(row.address, "10.0.0.9");
        assert_true(row.pool == 3 && row.launched_ms == 2000);
        json_decref(root);
    }
    struct tm_vm__row row;
    json_t *root = load("{\"name\": \"tm-1\"}");
    assert_false(tm_gcp__read_vm(root, &row));
    json_decref(root);
}

static void test_operations(void **state)
{
    (void)state;
    struct tm_gcp__operation op;
    json_t *root =
        load("{\"name\": \"operation-1\", \"operationType\": \"compute.instances.preempted\", \"status\": \"DONE\", "
             "\"targetLink\": \"https://g/projects/p/zones/us-central1-b/instances/tm-1\"}");
    assert_true(tm_gcp__read_operation(root, &op) && op.done && op.code[0] == '\0');
    assert_string_equal(op.target, "us-central1-b/tm-1");
    json_decref(root);
    root = load(
        "{\"name\": \"o\", \"status\": \"DONE\", \"error\": {\"errors\": [{\"code\": \"QUOTA_EXCEEDED\", \"message\": "
        "\"Quota 'GPUS_ALL_REGIONS' exceeded\"}]}}");
    assert_true(tm_gcp__read_operation(root, &op) && op.done);
    assert_string_equal(op.code, "QUOTA_EXCEEDED");
    json_decref(root);
    root = load("{\"name\": \"o\", \"status\": \"DONE\", \"error\": {}}"); /* an error without words is one, too */
    assert_true(tm_gcp__read_operation(root, &op) && op.code[0] != '\0');
    json_decref(root);
    root = load("{\"name\": \"o/../x\", \"status\": \"RUNNING\"}");
    assert_false(tm_gcp__read_operation(root, &op));
    json_decref(root);
}

/* A SKU of the price list. */
#define SKU(about, usage, unit, units, nanos, regions)                                                                 \
    "{\"description\": \"" about "\", \"category\": {\"usageType\": \"" usage "\"}, \"serviceRegions\": [" regions     \
    "], \"pricingInfo\": [{\"pricingExpression\": {\"usageUnit\": \"x\"}}, {\"pricingExpression\": {\"usageUnit\": "   \
    "\"" unit "\", \"tieredRates\": [{\"unitPrice\": {\"currencyCode\": \"USD\", \"units\": \"" units                  \
    "\", \"nanos\": " nanos "}}]}}]}"

static void test_skus(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int part; /* -1: none */
        const char *of;
        double usd_h;
    } rows[] = {
        {SKU("Spot Preemptible N1 Predefined Instance Core running in A", "Preemptible", "h", "0", "6655000", "\"r\""),
         TM_GCP_CORE, "n1-", 0.006655},
        {SKU("Spot Preemptible A2 Instance Ram running in A", "Preemptible", "GiBy.h", "0", "1000000", "\"r\""),
         TM_GCP_MEMORY, "a2-", 0.001},
        {SKU("Nvidia Tesla A100 80GB GPU attached to Spot Preemptible VMs", "Preemptible", "h", "1", "500000000", ""),
         TM_GCP_GPU, "A100-80GB", 1.5},
        {SKU("Nvidia Tesla A100 GPU attached to Spot Preemptible VMs", "Preemptible", "h", "2", "0", ""), TM_GCP_GPU,
         "A100", 2},
        {SKU("N1 Predefined Instance Core running in A", "OnDemand", "h", "0", "1", ""), -1, NULL, 0},
        {SKU("Spot Preemptible N1 Predefined Instance Core running in A", "Preemptible", "GiBy.h", "0", "1", ""), -1,
         NULL, 0},
        {SKU("Spot Preemptible N2 Custom Instance Core running in A", "Preemptible", "h", "0", "1", ""), -1, NULL, 0},
        {SKU("Spot Preemptible XA2 Instance Core running in A", "Preemptible", "h", "0", "1", ""), -1, NULL, 0},
        {SKU("Spot Preemptible A2 Instance Core running in A", "Preemptible", "h", "0", "0", ""), -1, NULL, 0},
        {SKU("Spot Preemptible A2 Instance Core running in A", "Preemptible", "h", "many", "1", ""), -1, NULL, 0},
        {"{}", -1, NULL, 0},
        {"{\"pricingInfo\": [], \"category\": 3}", -1, NULL, 0},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_gcp__sku sku;
        json_t *root = load(rows[i].text);
        bool found = tm_gcp__read_sku(root, &sku);
        assert_row(found == (rows[i].part >= 0), "row %zu", i);
        if (found) {
            assert_row((int)sku.part == rows[i].part && fabs(sku.usd_h - rows[i].usd_h) < 1e-12, "row %zu", i);
            assert_string_equal(sku.of, rows[i].of);
        }
        json_decref(root);
    }
}

static void test_prices(void **state)
{
    (void)state;
    static const struct tm_instance_type type = {
        .name = "n1-standard-8+2xV100", .gpu = "V100", .gpus = 2, .vcpus = 8, .memory_gib = 30};
    static const char *const texts[] = {
        SKU("Spot Preemptible N1 Predefined Instance Core running in A", "Preemptible", "h", "0", "10000000", "\"r\""),
        SKU("Spot Preemptible N1 Predefined Instance Ram running in A", "Preemptible", "GiBy.h", "0", "1000000",
            "\"q\", \"r\""),
        SKU("Spot Preemptible N1 Predefined Instance Core running in B", "Preemptible", "h", "0", "90000000", "\"q\""),
        SKU("Spot Preemptible N2 Instance Core running in A", "Preemptible", "h", "0", "80000000", "\"r\""),
        SKU("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs", "Preemptible", "h", "9", "0", "\"r\""),
        SKU("Nvidia Tesla V100 GPU attached to Spot Preemptible VMs", "Preemptible", "h", "1", "0", "\"r\"")};
    struct tm_gcp__price price;
    tm_gcp__price_init(&price);
    for (size_t i = 0; i < TM_COUNT(texts); i++) {
        struct tm_gcp__sku sku;
        json_t *root = load(texts[i]);
        assert_row(isnan(tm_gcp__price_sum(&price, &type)), "whole before row %zu", i);
        assert_true(tm_gcp__read_sku(root, &sku));
        tm_gcp__price_take(&price, &type, "r", &sku);
        json_decref(root);
    }
    assert_true(fabs(tm_gcp__price_sum(&price, &type) - (0.08 + 0.03 + 2)) < 1e-9);
}

/* Prices hold for days: the list is not asked for every few minutes, nor once more when the last VM has gone; what it
 * said is what is billed, from the first second on. */
static void test_steady_prices(void **state)
{
    (void)state;
    static const int64_t hour_ms = 3600000;
    struct tm_vms v;
    struct tm_vm__call call = {.kind = TM_VM_RUN};
    struct tm_vm__row row = {
        .id = "us-central1-a/tm-a", .token = "tm-a", .zone = "us-central1-a", .type = "t", .pool = 0};
    const struct tm_vm__price price = {.type = "t", .zone = "us-central1-a", .usd_h = 3.6};
    bool due = false;
    tm_vms__init(&v, &tm_gcp__rules);
    v.pools[0] = (struct tm_vm__pool){
        .about = {.type = "t", .zone = "us-central1-a", .limit = 1, .kind = TM_INSTANCE_SPOT}, .price_usd_h = 10};
    v.pool_count = 1;
    assert_int_equal(tm_vms__next(&v, 0, &call, &due, NULL), 0);
    assert_int_equal(tm_vms__described(&v, &row, 0, 0, NULL), 0);
    tm_vms__want(&v, 0, 1, 0);
    assert_true(tm_vms__next(&v, 0, &call, &due, NULL) == 0 && due && call.kind == TM_VM_RUN);
    tm_vms__rented(&v, call.at, &row, 0);
    for (int i = 0; i < 5 && call.kind != TM_VM_PRICES; i++) {
        assert_int_equal(tm_vms__next(&v, 1000, &call, &due, NULL), 0);
        if (due && call.kind == TM_VM_DESCRIBE) assert_int_equal(tm_vms__described(&v, &row, 1, 1000, NULL), 0);
    }
    assert_true(due && call.kind == TM_VM_PRICES);
    tm_vms__priced(&v, &price);
    tm_vms__all_priced(&v, 1000);
    assert_true(v.prices_ms >= 1000 + 6 * hour_ms);
    assert_true(v.pools[0].price_usd_h > 3.59 && v.pools[0].price_usd_h < 3.61);
    tm_vms__want(&v, 0, 0, hour_ms);
    row.phase = TM_VM_ENDED;
    assert_int_equal(tm_vms__described(&v, &row, 1, hour_ms, NULL), 0);
    assert_int_equal(tm_vms__left(&v), 0);
    assert_false(tm_vms__owes(&v));
    assert_true(tm_vms__next(&v, hour_ms, &call, &due, NULL) == 0 && !(due && call.kind == TM_VM_PRICES));
    double usd = tm_vms__bill(&v, 2 * hour_ms).usd[0];
    assert_row(usd > 3.59 && usd < 3.61, "%g", usd);
    tm_vms__deinit(&v);
}

static void test_advice(void **state)
{
    (void)state;
    struct tm_text text;
    struct tm_error e;
    tm_text_init(&text, 4096);
    assert_int_equal(tm_gcp__print_advice("n1-standard-8+2xT4", "us-central1-a", 4, &text, &e), 0);
    json_t *root = load(tm_text_string(&text));
    const json_t *one = json_object_get(
        json_object_get(json_object_get(root, "instanceFlexibilityPolicy"), "instanceSelections"), "one");
    assert_string_equal(json_string_value(json_array_get(json_object_get(one, "machineTypes"), 0)), "n1-standard-8");
    assert_int_equal(json_array_size(json_object_get(one, "guestAccelerators")), 1);
    assert_int_equal(json_integer_value(json_object_get(root, "size")), 4);
    assert_true(isnan(tm_gcp__read_advice(root)));
    json_decref(root);
    tm_text_deinit(&text);
    root = load("{\"recommendations\": [{\"scores\": {\"obtainability\": 0.7, \"estimatedUptime\": \"60s\"}}]}");
    assert_true(tm_gcp__read_advice(root) == 0.7);
    json_decref(root);
    root = load("{\"recommendations\": [{\"scores\": {\"obtainability\": 7}}]}");
    assert_true(isnan(tm_gcp__read_advice(root)));
    json_decref(root);
}

TM_TEST_MAIN(TM_TEST(test_skus), TM_TEST(test_prices), TM_TEST(test_steady_prices), TM_TEST(test_advice),
             TM_TEST(test_remedies), TM_TEST(test_shared_quotas), TM_TEST(test_words), TM_TEST(test_vms),
             TM_TEST(test_operations))
