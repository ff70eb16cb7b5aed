/* Without memory: public functions of the room that its other tests reach only through others, and the paths on which
 * they refuse their input. */
#include "base/env_virtual.h"
#include "market/catalog.h"
#include "market/import.h"
#include "market/price_history.h"
#include "market/test/market_helpers.h"
#include "market/trace_format.h"
#include "market/trace_write.h"

/* What a call that must fail with `want` gave: 0 if it did, its own code if memory was the cause. */
static int refused(int rc, enum tm_code want)
{
    if (rc == -(int)want) return 0;
    return rc == -(int)TM_ENOMEM ? rc : -(int)TM_EINTERNAL;
}

/* ---- catalogue ---- */

static int add_rows(struct tm_catalog *catalog)
{
    struct tm_gpu gpu = {.name = "V100", .aliases = "V100-16GB", .memory_gib = 16, .memory_gbyte_s = 900};
    struct tm_instance_type instance = {.cloud = "aws", .name = "p3.2xlarge", .gpu = "V100", .gpus = 1, .vcpus = 8};
    struct tm_offer offer = {.region = "r", .zone = "r-a", .on_demand_usd_h = 3, .spot_usd_h = 1, .band = -1};
    struct tm_spot_price price = {.cloud = "aws", .zone = "r-a", .instance = "p3.2xlarge", .spot_usd_h = 0.9};
    struct tm_band band = {.cloud = "aws", .region = "r", .instance = "p3.2xlarge", .band = 2, .saving_percent = 70};
    int rc = tm_catalog__add_source(catalog, "s", "2024-01-01", "words", &gpu.source, NULL);
    if (rc != 0) return rc;
    if (tm_catalog__string(catalog, "a text of its own", 6) == NULL) return -(int)TM_ENOMEM;
    instance.source = offer.source = price.source = band.source = gpu.source;
    rc = tm_catalog__add_gpu(catalog, &gpu, NULL);
    for (int i = 0; rc == 0 && i < 20; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "r-%d", i);
        offer.zone = price.zone = band.region = name;
        rc = tm_catalog__add_instance(catalog, &instance, &offer.instance, NULL);
        if (rc == 0) rc = tm_catalog__add_offer(catalog, &offer, NULL);
        if (rc == 0) rc = tm_catalog__add_price(catalog, &price, NULL);
        if (rc == 0) rc = tm_catalog__add_band(catalog, &band, NULL);
    }
    return rc;
}

/* Twice the same rows, the second time over the first; whatever fails, keys and rows stay as many. */
static int add_once(void)
{
    struct tm_catalog catalog;
    struct tm_text out;
    tm_catalog_init(&catalog);
    tm_text_init(&out, 1 << 20);
    int rc = add_rows(&catalog);
    if (rc == 0) rc = add_rows(&catalog);
    if (catalog.offer_keys.count != catalog.offer_count || catalog.instance_keys.count != catalog.instance_count ||
        catalog.price_keys.count != catalog.price_count || catalog.band_keys.count != catalog.band_count)
        rc = -(int)TM_EINTERNAL;
    if (rc == 0 && (catalog.offer_count != 20 || catalog.instance_count != 1)) rc = -(int)TM_EINTERNAL;
    if (rc == 0) rc = tm_catalog_finish(&catalog, NULL);
    if (rc == 0) tm_catalog__print(&catalog, &out);
    if (rc == 0) rc = tm_text_status(&out, NULL);
    tm_text_deinit(&out);
    tm_catalog_deinit(&catalog);
    return rc;
}

static int load_shipped_once(void)
{
    struct tm_catalog catalog;
    tm_catalog_init(&catalog);
    int rc = tm_catalog_load_shipped(&catalog, NULL);
    if (rc == 0 && tm_catalog_instance(&catalog, "aws", "p3.2xlarge") == NULL) rc = -(int)TM_EINTERNAL;
    tm_catalog_deinit(&catalog);
    return rc;
}

static int parse_imported_once(struct tm_env *env, bool path_needed, enum tm_code want)
{
    struct tm_catalog catalog;
    tm_catalog_init(&catalog);
    int rc = refused(tm_catalog__parse_imported(env, &catalog, path_needed, NULL), want);
    tm_catalog_deinit(&catalog);
    return rc;
}

static void test_catalog(void **state)
{
    (void)state;
    static const char good[] = "tidemill-catalog 1\n[source]\nname,as_of,text\ns,2024-01-01,x\n";
    static const char bad[] = "tidemill-catalog 1\n[source]\nname,as_of,text\ns,soon,x\n";
    struct tm_env *env = tm_env_virtual_create(1);
    TM_FAIL_EACH_ALLOC(rc = add_once());
    TM_FAIL_EACH_ALLOC(rc = load_shipped_once());
    TM_FAIL_EACH_ALLOC(rc = parse_imported_once(env, false, TM_OK));
    TM_FAIL_EACH_ALLOC(rc = parse_imported_once(env, true, TM_ENOTFOUND));
    assert_int_equal(tm_env_virtual_set_variable(env, "HOME", "/h"), 0);
    TM_FAIL_EACH_ALLOC(rc = parse_imported_once(env, true, TM_OK));
    const char *path = "/h/.local/share/tidemill/catalog.tmcat";
    assert_int_equal(env->file_write(env, path, good, sizeof good - 1, NULL), 0);
    TM_FAIL_EACH_ALLOC(rc = parse_imported_once(env, true, TM_OK));
    assert_int_equal(env->file_write(env, path, bad, sizeof bad - 1, NULL), 0);
    TM_FAIL_EACH_ALLOC(rc = parse_imported_once(env, true, TM_EINPUT));
    tm_env_virtual_destroy(env);
}

/* ---- imports ---- */

#define AWS_HEAD                                                                                                       \
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"

/* All files or none: what the user had is whole, as it was or as it should be. */
static int import_once(const struct tm_import_options *options, const char *const *texts, size_t count,
                       enum tm_code want)
{
    static const char *const paths[] = {"/in/1", "/in/2", "/in/3"};
    struct tm_import_report *report = calloc(1, sizeof *report);
    struct tm_env *env = tm_env_virtual_create(1);
    tm_import_report_init(report);
    int rc = env == NULL ? -(int)TM_ENOMEM : tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/d");
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = env->file_write(env, paths[i], texts[i], strlen(texts[i]), NULL);
    if (rc == 0) {
        rc = tm_import_files(env, options, paths, count, report, NULL);
        if (env->file_exists(env, "/d/catalog.tmcat") != (rc == 0)) rc = -(int)TM_EINTERNAL;
        rc = refused(rc, want);
    }
    tm_import_report_deinit(report);
    free(report);
    tm_env_virtual_destroy(env);
    return rc;
}

static void test_imports(void **state)
{
    (void)state;
    static const struct {
        struct tm_import_options options;
        const char *texts[3];
        enum tm_code want;
    } rows[] = {
        {{.cloud = "aws", .as_of = "2024-01-01"},
         {AWS_HEAD "p3.2xlarge,V100,1,8,61,,3,1,r,r-a\n", "{\"spot_advisor\": {}}",
          "timestamp,availability_zone,instance_type,spot_usd_h\n2024-02-01,r-a,p3.2xlarge,1\n"},
         TM_OK},
        {{.cloud = "aws", .as_of = "2024-01-01", .strict = true},
         {AWS_HEAD "p3.2xlarge,V100,1,8,61,,-3,1,r,r-a\np3.2xlarge,V100,1,8,61,,3,1,r,r-a\n"},
         TM_EINPUT},
        {{.cloud = "aws", .as_of = "2024-01-01"}, {AWS_HEAD "p3.2xlarge,V100,1,8,61,,-3,1,r,r-a\n"}, TM_EINPUT},
        {{.cloud = "aws", .as_of = "2024-01-01"},
         {AWS_HEAD "p3.2xlarge,V100,1,8,61,,3,1,r,r-a\n", "{\"a\": "},
         TM_EINPUT},
        {{.format = TM_IMPORT_PRICES}, {AWS_HEAD "p3.2xlarge,V100,1,8,61,,3,1,r,r-a\n"}, TM_EINPUT},
        {{.format = TM_IMPORT_AUTO}, {"nothing that we know\n"}, TM_EINPUT},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        size_t count = 0;
        while (count < 3 && rows[i].texts[count] != NULL)
            count++;
        TM_FAIL_EACH_ALLOC(rc = import_once(&rows[i].options, rows[i].texts, count, rows[i].want));
    }
}

/* ---- price histories ---- */

static int history_once(void)
{
    struct tm_price_history history;
    struct tm_text out;
    tm_price_history_init(&history);
    tm_text_init(&out, 1 << 20);
    int rc = 0;
    for (int i = 0; rc == 0 && i < 40; i++) {
        size_t before = history.count;
        rc = tm_price_history__add(&history, i % 2 == 0 ? "p3" : "g5", 2, "zone-a", 6, i % 20, 1 + i, NULL);
        if (rc != 0 && history.count != before) rc = -(int)TM_EINTERNAL;
    }
    if (rc == 0) rc = tm_price_history__sort(&history, NULL);
    if (rc == 0 && history.count != 20) rc = -(int)TM_EINTERNAL;
    if (rc == 0) tm_price_history__print(&history, &out);
    if (rc == 0) rc = tm_text_status(&out, NULL);
    tm_text_deinit(&out);
    tm_price_history_deinit(&history);
    return rc;
}

static int load_history_once(struct tm_env *env, enum tm_code want)
{
    struct tm_price_history history;
    tm_price_history_init(&history);
    int rc = refused(tm_price_history_load(env, &history, NULL), want);
    tm_price_history_deinit(&history);
    return rc;
}

static void test_histories(void **state)
{
    (void)state;
    static const char bad[] = "instance,zone,time,usd_h\np3,a,soon,1\n";
    struct tm_env *env = tm_env_virtual_create(1);
    TM_FAIL_EACH_ALLOC(rc = history_once());
    TM_FAIL_EACH_ALLOC(rc = load_history_once(env, TM_OK));
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/d"), 0);
    TM_FAIL_EACH_ALLOC(rc = load_history_once(env, TM_OK));
    assert_int_equal(env->file_write(env, "/d/spot-prices.csv", bad, sizeof bad - 1, NULL), 0);
    TM_FAIL_EACH_ALLOC(rc = load_history_once(env, TM_EINPUT));
    tm_env_virtual_destroy(env);
}

/* ---- traces ---- */

/* An addition that fails leaves the events as they were. */
static int add_events_once(void)
{
    struct tm_trace trace;
    tm_trace_init(&trace);
    int rc = 0;
    for (int i = 0; rc == 0 && i < 50; i++) {
        size_t before = trace.event_count;
        rc = tm_trace_add(&trace, (int64_t)i * 1000, 1, 0, NAN, NULL);
        if (rc != 0 && trace.event_count != before) rc = -(int)TM_EINTERNAL;
    }
    if (rc == 0) rc = refused(tm_trace_add(&trace, 0, 1, 0, NAN, NULL), TM_EINPUT);
    tm_trace_deinit(&trace);
    return rc;
}

/* A failed reading, cut or copy leaves what was in `trace`. */
static int load_over_once(struct tm_env *env, const char *path, enum tm_code want)
{
    struct tm_trace trace;
    struct tm_error e = {0};
    tm_trace_init(&trace);
    int rc = tm_trace_add(&trace, 0, 7, 0, NAN, NULL);
    if (rc == 0) {
        rc = tm_trace_load(env, path, NULL, &trace, &e);
        bool kept = trace.event_count == 1 && trace.events[0].in == 7;
        if ((rc != 0 && rc != -(int)e.code) || (rc != 0) != kept) rc = -(int)TM_EINTERNAL;
        rc = refused(rc, want);
    }
    tm_trace_deinit(&trace);
    return rc;
}

static int cut_over_once(const struct tm_trace *whole, int64_t to_ms, enum tm_code want)
{
    struct tm_trace part;
    tm_trace_init(&part);
    int rc = tm_trace_add(&part, 0, 7, 0, NAN, NULL);
    if (rc == 0) {
        rc = tm_trace_cut(whole, 0, to_ms, &part, NULL);
        if ((rc != 0) != (part.event_count == 1 && part.events[0].in == 7)) rc = -(int)TM_EINTERNAL;
        rc = refused(rc, want);
    }
    if (rc == 0) rc = tm_trace_copy(whole, &part, NULL);
    if (rc == 0 && !tm_trace__equals(whole, &part)) rc = -(int)TM_EINTERNAL;
    tm_trace_deinit(&part);
    return rc;
}

static int find_format_once(void)
{
    static const char text[] = "words that no format starts with\n";
    const struct tm_trace_input input = {.file = "t", .text = text, .length = sizeof text - 1};
    const struct tm_trace_format *format = NULL;
    int rc = refused(tm_trace_format__find("csv-cuonts", &format, NULL), TM_EUSAGE);
    if (rc == 0) rc = refused(tm_trace_format__detect(&input, &format, NULL), TM_EINPUT);
    if (rc == 0) rc = tm_trace_format__find("csv-counts-s", &format, NULL);
    return rc;
}

static int refuse_writing_once(const struct tm_trace *trace)
{
    struct tm_text out;
    tm_text_init(&out, 1 << 20);
    int rc = refused(tm_trace_write(trace, "no such format", 0, &out, NULL), TM_EUSAGE);
    tm_text_deinit(&out);
    return rc;
}

static void test_traces(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        const char *text; /* NULL: no such file */
        enum tm_code want;
    } rows[] = {
        {"/t/good", "tidemill-trace 1\nend: 60s\n\n0 +4\n30 -1\n", TM_OK},
        {"/t/bad", "tidemill-trace 1\nend: 60s\n\n0 +4\n30 -x\n", TM_EINPUT},
        {"/t/unknown", "words\n", TM_EINPUT},
        {"/t/missing", NULL, TM_ENOTFOUND},
        {"hapd", NULL, TM_ENOTFOUND},
        {"lasp", NULL, TM_OK},
    };
    struct tm_env *env = tm_env_virtual_create(1);
    TM_FAIL_EACH_ALLOC(rc = add_events_once());
    TM_FAIL_EACH_ALLOC(rc = find_format_once());
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        if (rows[i].text != NULL)
            assert_int_equal(env->file_write(env, rows[i].path, rows[i].text, strlen(rows[i].text), NULL), 0);
        TM_FAIL_EACH_ALLOC(rc = load_over_once(env, rows[i].path, rows[i].want));
    }
    struct tm_trace whole;
    trace_from(rows[0].text, NULL, &whole);
    TM_FAIL_EACH_ALLOC(rc = cut_over_once(&whole, 40000, TM_OK));
    TM_FAIL_EACH_ALLOC(rc = cut_over_once(&whole, 99000, TM_EUSAGE));
    TM_FAIL_EACH_ALLOC(rc = refuse_writing_once(&whole));
    tm_trace_deinit(&whole);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_catalog), TM_TEST(test_imports), TM_TEST(test_histories), TM_TEST(test_traces))
