/* The public catalogues, advisor data and price histories beside the repository, through the importers as they are.
 * What the catalogue then says is compared with the files, read here once more and by themselves. */
#include "market/import.h"

#include "base/content.h"
#include "base/csv.h"
#include "base/number.h"
#include "base/test/tempdir.h"
#include "market/test/market_helpers.h"

#define CATALOG  SHARED_DATA "/catalog/"
#define ADVISOR  SHARED_DATA "/advisor/"
#define PRICES   SHARED_DATA "/prices/"
#define GCP_FILE CATALOG "gcp.csv"

static struct tm_tempdir folder;

static int make_folder(void **state)
{
    (void)state;
    tm_tempdir_make(&folder);
    return setenv("TIDEMILL_DATA_DIR", folder.path, 1);
}

static int drop_folder(void **state)
{
    (void)state;
    tm_tempdir_remove(&folder);
    return unsetenv("TIDEMILL_DATA_DIR");
}

static void skip_without(const char *path)
{
    if (tm_env_real()->file_exists(tm_env_real(), path)) return;
    print_message("skipped: no file %s\n", path);
    skip();
}

static struct tm_import_report *import(const char *path)
{
    struct tm_import_options options = {.format = TM_IMPORT_AUTO};
    struct tm_import_report *report = tm_alloc(sizeof *report);
    struct tm_error e = {0};
    assert_non_null(report);
    tm_import_report_init(report);
    int rc = tm_import_files(tm_env_real(), &options, &path, 1, report, &e);
    assert_row(rc == 0, "%s: %s", path, e.text);
    return report;
}

static void drop(struct tm_import_report *report)
{
    tm_import_report_deinit(report);
    tm_free(report);
}

/* A file of the folder, opened as CSV at its header. The caller frees both. */
static struct tm_csv *open_csv(const char *path, struct tm_text *text)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    struct tm_error e = {0};
    assert_non_null(csv);
    tm_text_init(text, 64 << 20);
    assert_row(tm_content_read(tm_env_real(), path, text, &e) == 0, "%s", e.text);
    tm_csv_init(csv, path, tm_text_string(text), text->length);
    assert_int_equal(tm_csv_next(csv, &e), 1);
    return csv;
}

static double number_at(const struct tm_csv *csv, int column)
{
    double value = NAN;
    if (column < 0 || (size_t)column >= csv->field_count) return NAN;
    (void)tm_number_double(csv->fields[column].data, csv->fields[column].length, &value);
    return value;
}

static bool text_at_is(const struct tm_csv *csv, int column, const char *want)
{
    if (column < 0) return want[0] == '\0';
    return tm_slice_equals(csv->fields[column], want);
}

/* ---- how many rows ---- */

/* Data rows of a file, and those of them with neither price. */
static void count_rows(const char *path, size_t *out_rows, size_t *out_priceless)
{
    struct tm_text text;
    struct tm_csv *csv = open_csv(path, &text);
    int price = tm_csv_find(csv, "Price");
    int spot = tm_csv_find(csv, "SpotPrice");
    *out_rows = 0;
    *out_priceless = 0;
    while (tm_csv_next(csv, NULL) == 1) {
        ++*out_rows;
        *out_priceless += isnan(number_at(csv, price)) && isnan(number_at(csv, spot));
    }
    tm_free(csv);
    tm_text_deinit(&text);
}

static void test_catalogues(void **state)
{
    (void)state;
    static const char *const paths[] = {CATALOG "aws.csv", CATALOG "aws-2022-11.csv", CATALOG "aws-2025-06-p3.csv",
                                        CATALOG "azure.csv", CATALOG "lambda.csv"};
    size_t offers = 0;
    for (size_t i = 0; i < TM_COUNT(paths); i++) {
        size_t rows = 0;
        size_t priceless = 0;
        skip_without(paths[i]);
        count_rows(paths[i], &rows, &priceless);
        struct tm_import_report *report = import(paths[i]);
        assert_row(report->rows == rows, "%s: %zu rows of %zu", paths[i], report->rows, rows);
        assert_row(report->rejected == priceless, "%s: %zu rejected, %zu without a price", paths[i], report->rejected,
                   priceless);
        assert_row(report->kept == rows - priceless, "%s: %zu kept", paths[i], report->kept);
        assert_row(report->offers > offers, "%s: no more offers", paths[i]);
        offers = report->offers;
        drop(report);
    }
}

/* Rows with an accelerator stand for themselves and their host; hosts that come only with GPUs for no offer. */
static void test_gcp(void **state)
{
    (void)state;
    skip_without(GCP_FILE);
    size_t rows = 0;
    size_t priceless = 0;
    count_rows(GCP_FILE, &rows, &priceless);
    struct tm_import_report *report = import(GCP_FILE);
    assert_int_equal(report->rows, rows);
    assert_true(report->kept > rows / 2 && report->kept < rows);
    assert_true(report->rejected >= priceless && report->rejected < rows / 10);
    drop(report);
}

static void test_tables_of_gpus_and_networks(void **state)
{
    (void)state;
    static const char *const paths[] = {CATALOG "gpus.csv", CATALOG "aws.csv", CATALOG "network.csv"};
    for (size_t i = 0; i < TM_COUNT(paths); i++) {
        skip_without(paths[i]);
        struct tm_import_report *report = import(paths[i]);
        assert_row(report->kept > 30, "%s: kept %zu of %zu", paths[i], report->kept, report->rows);
        drop(report);
    }
    struct tm_catalog catalog;
    tm_catalog_init(&catalog);
    assert_int_equal(tm_catalog_load(tm_env_real(), &catalog, NULL), 0);
    assert_true(tm_catalog_instance(&catalog, "aws", "c5.12xlarge")->network_gbps == 12);
    assert_true(tm_catalog_gpu(&catalog, "H100")->memory_gib == 80);
    tm_catalog_deinit(&catalog);
}

static void test_advisor_and_prices(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool prices;
        size_t rows;
        size_t rejected;
    } rows[] = {
        {ADVISOR "spot-advisor-2021-02-10.json", false, 4255, 0},
        {ADVISOR "spot-advisor-2025-06-28.json", false, 14962, 0}, /* one saving is -62 % */
        {PRICES "aws-p2p3-changes-2019-12-20_2020-03-23.csv.gz", true, 16560, 0},
        {PRICES "aws-gpu-changes-2024-02.csv.gz", true, 23037, 0},
        {PRICES "aws-gpu-changes-2026-02.csv.gz", true, 43382, 0},
        {PRICES "aws-gpu-daily-2024-01-13_2026-03-30.csv.gz", true, 124293, 0},
    };
    size_t prices = 0;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        skip_without(rows[i].path);
        struct tm_import_report *report = import(rows[i].path);
        assert_row(report->rows == rows[i].rows && report->rejected == rows[i].rejected &&
                       report->kept == report->rows - report->rejected,
                   "%s: %zu rows, %zu kept, %zu rejected", rows[i].path, report->rows, report->kept, report->rejected);
        assert_row(rows[i].prices || report->bands > 1000, "%s: %zu bands", rows[i].path, report->bands);
        assert_row(!rows[i].prices || report->prices > prices, "%s: %zu prices", rows[i].path, report->prices);
        if (rows[i].prices) prices = report->prices;
        drop(report);
    }
    struct tm_catalog catalog;
    tm_catalog_init(&catalog);
    assert_int_equal(tm_catalog_load(tm_env_real(), &catalog, NULL), 0);
    assert_string_equal(catalog.as_of, "2026-08-22"); /* what is shipped is newer than all of these */
    tm_catalog_deinit(&catalog);
}

/* ---- single rows ---- */

struct spot_check {
    const char *file;
    const char *cloud;
    const char *instance; /* in the catalogue; on GCP the host's name, with what it carries behind a '+' */
    const char *region;
    const char *zone;
    const char *gpu; /* as gpus.csv calls it */
    double gpus;
};

static const struct spot_check spot_checks[] = {
    {CATALOG "aws.csv", "aws", "g5.xlarge", "us-east-1", "use1-az1", "A10G", 1},
    {CATALOG "aws.csv", "aws", "g4dn.12xlarge", "us-west-2", "usw2-az2", "T4", 4},
    {CATALOG "aws.csv", "aws", "p5.48xlarge", "us-east-1", "use1-az6", "H100", 8},
    {CATALOG "aws-2022-11.csv", "aws", "p3.16xlarge", "us-east-1", "us-east-1a", "V100", 8},
    {CATALOG "aws-2022-11.csv", "aws", "p2.xlarge", "us-west-2", "us-west-2a", "K80", 1},
    {CATALOG "azure.csv", "azure", "Standard_ND96isr_H100_v5", "eastus", "", "H100", 8},
    {CATALOG "azure.csv", "azure", "Standard_NC24ads_A100_v4", "eastus", "", "A100-80GB-PCIe", 1},
    {CATALOG "lambda.csv", "lambda", "gpu_8x_a100", "us-east-1", "", "A100", 8},
    {GCP_FILE, "gcp", "a2-highgpu-1g", "us-central1", "us-central1-a", "A100", 1},
    {GCP_FILE, "gcp", "n1-standard-8+1xV100", "us-central1", "us-central1-a", "V100", 1},
};

/* Both prices of the row with an instance type, or an accelerator and no instance type, in a place. */
static void read_prices(const struct spot_check *check, bool accelerator, double *out_price, double *out_spot)
{
    struct tm_text text;
    struct tm_csv *csv = open_csv(check->file, &text);
    char instance[100];
    int key = tm_csv_find(csv, accelerator ? "AcceleratorName" : "InstanceType");
    int count = tm_csv_find(csv, "AcceleratorCount");
    int region = tm_csv_find(csv, "Region");
    int zone = tm_csv_find(csv, "AvailabilityZone");
    int price = tm_csv_find(csv, "Price");
    int spot = tm_csv_find(csv, "SpotPrice");
    bool found = false;
    (void)snprintf(instance, sizeof instance, "%.*s", (int)strcspn(check->instance, "+"), check->instance);
    while (!found && tm_csv_next(csv, NULL) == 1) {
        found = text_at_is(csv, key, accelerator ? check->gpu : instance) && text_at_is(csv, region, check->region) &&
                text_at_is(csv, zone, check->zone) && (!accelerator || number_at(csv, count) == check->gpus);
        *out_price = number_at(csv, price);
        *out_spot = number_at(csv, spot);
    }
    assert_row(found, "%s: no %s in %s", check->file, check->instance, check->region);
    tm_free(csv);
    tm_text_deinit(&text);
}

static double read_flops(const char *gpu, const char *column)
{
    struct tm_text text;
    struct tm_csv *csv = open_csv(CATALOG "gpus.csv", &text);
    int name = tm_csv_find(csv, "name");
    int flops = tm_csv_find(csv, column);
    double found = NAN;
    while (isnan(found) && tm_csv_next(csv, NULL) == 1) {
        if (text_at_is(csv, name, gpu)) found = number_at(csv, flops);
    }
    tm_free(csv);
    tm_text_deinit(&text);
    return found;
}

static bool same(double a, double b)
{
    return (isnan(a) && isnan(b)) || near(a, b, 1e-9);
}

static void check_spot(const struct tm_catalog *catalog, const struct spot_check *check)
{
    double price = NAN;
    double spot = NAN;
    double more_price = 0;
    double more_spot = 0;
    read_prices(check, false, &price, &spot);
    if (strcmp(check->cloud, "gcp") == 0) read_prices(check, true, &more_price, &more_spot);
    const struct tm_instance_type *instance = tm_catalog_instance(catalog, check->cloud, check->instance);
    assert_row(instance != NULL, "%s is not in the catalogue", check->instance);
    assert_row(instance->gpus == check->gpus, "%s: %g GPUs", check->instance, instance->gpus);
    double flops = tm_instance__tflops(catalog, instance, TM_FP32, NULL);
    double want = read_flops(check->gpu, "fp32_tflops") * check->gpus;
    assert_row(same(flops, want), "%s: %g TFLOPS, want %g", check->instance, flops, want);
    size_t found = 0;
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        if (&catalog->instances[offer->instance] != instance || strcmp(offer->region, check->region) != 0 ||
            strcmp(offer->zone, check->zone) != 0)
            continue;
        found++;
        assert_row(same(offer->on_demand_usd_h, price + more_price), "%s: $%g, want $%g", check->instance,
                   offer->on_demand_usd_h, price + more_price);
        assert_row(same(offer->spot_usd_h, spot + more_spot), "%s: spot $%g, want $%g", check->instance,
                   offer->spot_usd_h, spot + more_spot);
        assert_row(offer->imported, "%s: the shipped offer", check->instance);
    }
    assert_row(found == 1, "%s in %s: %zu offers", check->instance, check->region, found);
}

static void test_single_rows(void **state)
{
    (void)state;
    skip_without(CATALOG "gpus.csv");
    struct tm_catalog catalog;
    struct tm_error e = {0};
    tm_catalog_init(&catalog);
    for (size_t i = 0; i < TM_COUNT(spot_checks); i++) {
        skip_without(spot_checks[i].file);
        if (i == 0 || strcmp(spot_checks[i].file, spot_checks[i - 1].file) != 0) drop(import(spot_checks[i].file));
    }
    assert_row(tm_catalog_load(tm_env_real(), &catalog, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < TM_COUNT(spot_checks); i++)
        check_spot(&catalog, &spot_checks[i]);
    tm_catalog_deinit(&catalog);
}

/* Every GPU of the table: the shipped figures are the same. */
static void test_shipped_gpus_agree_with_the_table(void **state)
{
    (void)state;
    static const char *const columns[TM_PRECISION_COUNT] = {"fp32_tflops", "tf32_tflops", "fp16_tflops", "bf16_tflops",
                                                            "fp8_tflops"};
    skip_without(CATALOG "gpus.csv");
    struct tm_catalog catalog;
    tm_catalog_init(&catalog);
    assert_int_equal(tm_catalog_load_shipped(&catalog, NULL), 0);
    size_t checked = 0;
    for (size_t i = 0; i < catalog.gpu_count; i++) {
        const struct tm_gpu *gpu = &catalog.gpus[i];
        if (isnan(read_flops(gpu->name, "mem_gb"))) continue; /* under another name, or not in the table */
        for (int p = 0; p < TM_PRECISION_COUNT; p++)
            assert_row(same(gpu->tflops[p], read_flops(gpu->name, columns[p])), "%s: %s: %g", gpu->name, columns[p],
                       gpu->tflops[p]);
        checked++;
    }
    assert_row(checked >= 20, "only %zu GPUs in both tables", checked);
    tm_catalog_deinit(&catalog);
}

#define FOLDER_TEST(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

TM_TEST_MAIN(FOLDER_TEST(test_catalogues), FOLDER_TEST(test_gcp), FOLDER_TEST(test_tables_of_gpus_and_networks),
             FOLDER_TEST(test_advisor_and_prices), FOLDER_TEST(test_single_rows),
             TM_TEST(test_shipped_gpus_agree_with_the_table))
