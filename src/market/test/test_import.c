#include "market/import.h"

#include "base/env_virtual.h"
#include "market/test/market_helpers.h"

#include <zlib.h>

#define AWS_HEAD                                                                                                       \
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"
#define V100_INFO                                                                                                      \
    "\"{'Gpus': [{'Name': 'V100', 'Manufacturer': 'NVIDIA', 'Count': 8, 'MemoryInfo': {'SizeInMiB': 16384}}], "        \
    "'TotalGpuMemoryInMiB': 131072}\""
#define AWS_GOOD "p3.16xlarge,V100,8.0,64.0,488.0," V100_INFO ",24.48,7.344,us-east-1,us-east-1a\n"
#define GCP_HEAD                                                                                                       \
    "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n"
#define AZURE_HEAD                                                                                                     \
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,Generation\n"
#define LAMBDA_HEAD  "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n"
#define CHANGES_HEAD "timestamp,availability_zone,instance_type,spot_usd_h\n"

/* One import into a world of its own. */
struct fixture {
    struct tm_env *env;
    struct tm_import_options options;
    struct tm_import_report *report; /* of the last import */
    struct tm_error e;
    struct tm_text text; /* of the file last asked for */
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    if (f == NULL) return -1;
    f->env = tm_env_virtual_create(1);
    f->report = tm_alloc(sizeof *f->report);
    if (f->env == NULL || f->report == NULL) return -1;
    tm_import_report_init(f->report);
    tm_text_init(&f->text, 1 << 20);
    *state = f;
    return tm_env_virtual_set_variable(f->env, "TIDEMILL_DATA_DIR", "/d");
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    tm_text_deinit(&f->text);
    tm_import_report_deinit(f->report);
    tm_free(f->report);
    tm_env_virtual_destroy(f->env);
    free(f);
    return 0;
}

static void put(struct fixture *f, const char *path, const char *text)
{
    assert_int_equal(f->env->file_write(f->env, path, text, strlen(text), NULL), 0);
}

static int import_paths(struct fixture *f, const char *const *paths, size_t count)
{
    tm_import_report_deinit(f->report);
    tm_import_report_init(f->report);
    f->e = (struct tm_error){0};
    return tm_import_files(f->env, &f->options, paths, count, f->report, &f->e);
}

static int import_text(struct fixture *f, const char *path, const char *text)
{
    put(f, path, text);
    return import_paths(f, &path, 1);
}

static void import_good(struct fixture *f, const char *path, const char *text)
{
    int rc = import_text(f, path, text);
    assert_row(rc == 0, "%s: %s", path, f->e.text);
}

/* What the user's file holds; "" where there is none. */
static const char *content(struct fixture *f, const char *path)
{
    tm_text_clear(&f->text);
    if (f->env->file_exists(f->env, path)) assert_int_equal(f->env->file_read(f->env, path, &f->text, NULL), 0);
    return tm_text_string(&f->text);
}

static void check_has(struct fixture *f, const char *path, const char *const *lines)
{
    const char *text = content(f, path);
    for (; *lines != NULL; lines++)
        assert_row(strstr(text, *lines) != NULL, "%s does not hold \"%s\":\n%s", path, *lines, text);
}

static void check_counts(const struct fixture *f, size_t rows, size_t kept, size_t rejected, size_t warned)
{
    const struct tm_import_report *r = f->report;
    assert_row(r->rows == rows && r->kept == kept && r->rejected == rejected && r->warned == warned,
               "%zu rows, %zu kept, %zu rejected, %zu warned of", r->rows, r->kept, r->rejected, r->warned);
    assert_int_equal(r->issue_count, rejected + warned);
}

static void test_aws(void **state)
{
    struct fixture *f = *state;
    import_good(f, "/in/aws-2025-06-03.csv",
                AWS_HEAD AWS_GOOD "c5.large,,,2.0,4.0,,0.085,,us-east-1,us-east-1a\n"
                                  "g6f.large,L4,0.125,2.0,8.0,L4,0.2,0.1,us-east-1,us-east-1a\n"
                                  "p3.2xlarge,v100-sxm2,1,8,61,,,0.918,us-west-2,us-west-2b\r\n");
    check_counts(f, 4, 4, 0, 0);
    assert_int_equal(f->report->files, 1);
    assert_int_equal(f->report->offers, 4);
    static const char *const lines[] = {
        "\nimport:aws-2025-06-03.csv,2025-06-03,imported from aws-2025-06-03.csv (SkyPilot catalogue)\n",
        "\naws,p3.16xlarge,V100,8,64,488,16,,import:aws-2025-06-03.csv\n",
        "\naws,c5.large,,0,2,4,,,import:", /* no GPU */
        "\naws,g6f.large,L4,0.125,2,8,",
        "\naws,p3.2xlarge,V100,1,8,61,16,,", /* its own name, and its memory from the table of GPUs */
        "\naws,us-east-1,us-east-1a,p3.16xlarge,24.48,7.344,import:",
        "\naws,us-east-1,us-east-1a,c5.large,0.085,,import:",
        "\naws,us-west-2,us-west-2b,p3.2xlarge,,0.918,import:",
        NULL,
    };
    check_has(f, "/d/catalog.tmcat", lines);
}

static void test_gcp_host_and_accelerator(void **state)
{
    struct fixture *f = *state;
    import_good(f, "/in/gcp.csv",
                GCP_HEAD
                ",,,A100,1.0,\"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 40960}}]}\",us-central1,us-central1-a,3,1\n"
                "a2-highgpu-1g,12.0,85.0,,,,us-central1,us-central1-a,0.5,0.25\n"
                "n1-standard-8,8.0,30.0,,,,us-central1,us-central1-a,0.375,\n"
                ",,,V100,1.0,,us-central1,us-central1-a,2.5,0.75\n"
                ",,,T4,1.0,,us-central1,us-central1-b,0.35,0.1\n"
                ",,,L4,3.0,,us-central1,us-central1-a,0.35,0.1\n"
                ",,,tpu-v4-8,1.0,tpu-v4-8,us-central2,us-central2-b,12.88,\n"
                ",,,tpu-v4-16,1.0,tpu-v4-16,us-central2,us-central2-b,25.76,\n");
    static const char *const lines[] = {
        "\ngcp,a2-highgpu-1g,A100,1,12,85,40,,import:gcp.csv\n",
        "\ngcp,n1-standard-8,,0,8,30,,,import:gcp.csv\n",
        "\ngcp,n1-standard-8+1xV100,V100,1,8,30,16,,import:gcp.csv\n", /* that VM may carry other GPUs, or none */
        "\ngcp,us-central1,us-central1-a,a2-highgpu-1g,3.5,1.25,import:gcp.csv\n",
        "\ngcp,us-central1,us-central1-a,n1-standard-8,0.375,,import:gcp.csv\n",
        "\ngcp,us-central1,us-central1-a,n1-standard-8+1xV100,2.875,,import:gcp.csv\n", /* half a spot price is none */
        "\ngcp,us-central2,us-central2-b,tpu-v4-8,12.88,,import:gcp.csv\n",
        NULL,
    };
    check_has(f, "/d/catalog.tmcat", lines);
    check_counts(f, 8, 6, 2, 1);
    const struct tm_import_issue *issues = f->report->issues;
    assert_string_equal(issues[0].text, "no host VM for 1x T4 in us-central1-b");
    assert_true(issues[0].line == 6 && issues[0].rejected);
    assert_string_equal(issues[0].file, "/in/gcp.csv");
    assert_string_equal(issues[1].text, "no host VM for 3x L4 in us-central1-a");
    assert_string_equal(issues[2].text, "TPU slices, this one and others: kept, without FLOPS");
    assert_true(issues[2].line == 8 && !issues[2].rejected);
}

static void test_azure_and_lambda(void **state)
{
    struct fixture *f = *state;
    import_good(f, "/in/azure.csv",
                AZURE_HEAD "Standard_ND96isr_H100_v5,H100,12.0,96.0,1900,H100,98.32,39.5,eastus,\"V1,V2\"\n"
                           "Standard_ND96isr_H100_v5,H100,8.0,96.0,1900,H100,98.32,,westus,V2\n"
                           "Standard_NC6s_v3,V100,1.0,6.0,112,V100,3.06,,eastus,V1\n");
    check_counts(f, 3, 3, 0, 1);
    assert_string_equal(f->report->issues[0].text,
                        "Standard_ND96isr_H100_v5: 12 GPUs in the file, 8 on the vendor's page; using 8");
    assert_int_equal(f->report->issues[0].line, 2);
    import_good(f, "/in/lambda.csv",
                LAMBDA_HEAD "gpu_1x_h100_pcie,H100,1.0,26.0,200.0,2.49,us-east-1,,\n"
                            "cpu_4x_general,,,4.0,16.0,0.2,us-east-1,,\n");
    check_counts(f, 2, 2, 0, 0);
    assert_int_equal(f->report->offers, 5); /* the first import is still there */
    static const char *const lines[] = {
        "\nazure,Standard_ND96isr_H100_v5,H100,8,96,1900,",
        "\nazure,eastus,,Standard_ND96isr_H100_v5,98.32,39.5,import:",
        "\nazure,Standard_NC6s_v3,V100-PCIe,1,6,112,",
        "\nlambda,gpu_1x_h100_pcie,H100-PCIe,1,26,200,",
        "\nlambda,us-east-1,,cpu_4x_general,0.2,,import:",
        NULL,
    };
    check_has(f, "/d/catalog.tmcat", lines);
}

static void test_bad_rows_are_named_and_the_rest_is_kept(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *row;
        const char *words;
        bool rejected;
    } rows[] = {
        {"a.b,V100,1,8,61,,,,r,r1\n", "no price", true},
        {"a.b,V100,1,8,61,,-3.06,1,r,r1\n", "Price: expected dollars per hour of 0 or more", true},
        {"a.b,V100,1,8,61,,nan,1,r,r1\n", "Price: expected dollars", true},
        {"a.b,V100,1,8,61,,1,NaN,r,r1\n", "SpotPrice: expected dollars per hour of 0 or more", true},
        {"a.b,V100,1,8,61,,1,inf,r,r1\n", "SpotPrice: expected dollars", true},
        {"a.b,V100,1,8,61,,1 $,1,r,r1\n", "Price: expected dollars", true},
        {"a.b,V100,1,many,61,,1,1,r,r1\n", "vCPUs: expected a number", true},
        {"a.b,V100,1,8,much,,1,1,r,r1\n", "MemoryGiB: expected a number", true},
        {"a.b,V100,x,8,61,,1,1,r,r1\n", "AcceleratorCount: expected a number", true},
        {"a.b,V100,-1,8,61,,1,1,r,r1\n", "AcceleratorCount: expected a number", true},
        {"a.b,V100,,8,61,,1,1,r,r1\n", "AcceleratorName and AcceleratorCount do not agree", true},
        {"a.b,,2,8,61,,1,1,r,r1\n", "AcceleratorName and AcceleratorCount do not agree", true},
        {",,,8,61,,1,1,r,r1\n", "neither InstanceType nor AcceleratorName", true},
        {"a.b,V100,1,8,61,,1,1,,r1\n", "no Region", true},
        {"a.b,V100,1,8,61\n", "not as many columns as the header", true},
        {"a.b,V100,1,8,61,,1,1,r,r1,more\n", "not as many columns as the header", true},
        {",V100,1,8,61,,1,1,r,r1\n", "no InstanceType", true},
        {"a.b,V100,1,8,61,,1,1,\"r\n2\",r1\n", "control characters", true},
        {"a.b,V100,1,8,61,,1e300,1,r,r1\n", "Price: expected dollars", true},
        {"a.b,V100,1,8,61,\"x,1,1,r,r1\n", "quoted field has no closing", true},
        {"a.b,Quantum-9,1,8,61,,1,1,r,r1\n", "unknown GPU \"Quantum-9\": kept, without FLOPS", false},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[1000];
        (void)snprintf(text, sizeof text, AWS_HEAD AWS_GOOD "%s", rows[i].row);
        import_good(f, "/in/aws.csv", text);
        const struct tm_import_issue *issue = &f->report->issues[0];
        assert_row(f->report->issue_count == 1, "\"%s\": %zu issues", rows[i].row, f->report->issue_count);
        assert_row(f->report->kept == (rows[i].rejected ? 1 : 2), "\"%s\": kept %zu", rows[i].row, f->report->kept);
        assert_row(issue->rejected == rows[i].rejected && issue->line == 3, "\"%s\": line %d", rows[i].row,
                   issue->line);
        assert_row(strstr(issue->text, rows[i].words) != NULL, "\"%s\": \"%s\"", rows[i].row, issue->text);
    }
}

static void test_strict(void **state)
{
    struct fixture *f = *state;
    f->options.strict = true;
    assert_int_equal(import_text(f, "/in/aws.csv", AWS_HEAD AWS_GOOD "a.b,V100,1,8,61,,,,r,r1\n"), -TM_EINPUT);
    assert_error_has(f->e, "1 bad rows; nothing was imported (--strict)");
    check_counts(f, 2, 1, 1, 0); /* the report is there all the same */
    assert_string_equal(content(f, "/d/catalog.tmcat"), "");
    import_good(f, "/in/aws.csv", AWS_HEAD AWS_GOOD "a.b,Quantum-9,1,8,61,,1,1,r,r1\n"); /* a warning is no bad row */
    f->options.strict = false;
    assert_int_equal(import_text(f, "/in/bad.csv", AWS_HEAD "a.b,V100,1,8,61,,,,r,r1\n"), -TM_EINPUT);
    assert_error_has(f->e, "no row could be used; nothing was imported");
}

static void test_importing_again_replaces(void **state)
{
    struct fixture *f = *state;
    import_good(f, "/in/aws.csv", AWS_HEAD AWS_GOOD "c5.large,,,2,4,,0.085,,us-east-1,us-east-1a\n");
    char *first = strdup(content(f, "/d/catalog.tmcat"));
    import_good(f, "/in/aws.csv", AWS_HEAD AWS_GOOD "c5.large,,,2,4,,0.085,,us-east-1,us-east-1a\n");
    assert_string_equal(content(f, "/d/catalog.tmcat"), first);
    free(first);
    import_good(f, "/in/aws.csv", AWS_HEAD "c5.large,,,2,4,,0.095,0.03,us-east-1,us-east-1a\n");
    assert_int_equal(f->report->offers, 2);
    static const char *const lines[] = {"\naws,us-east-1,us-east-1a,c5.large,0.095,0.03,", NULL};
    check_has(f, "/d/catalog.tmcat", lines);
    assert_null(strstr(content(f, "/d/catalog.tmcat"), "0.085"));
}

static void test_all_files_or_none(void **state)
{
    struct fixture *f = *state;
    static const char *const paths[] = {"/in/a.csv", "/in/p.csv", "/in/bad.csv"};
    import_good(f, "/in/a.csv", AWS_HEAD AWS_GOOD);
    import_good(f, "/in/p.csv", CHANGES_HEAD "2024-02-01T00:00:00Z,us-east-1a,p3.16xlarge,7\n");
    char *catalog = strdup(content(f, "/d/catalog.tmcat"));
    char *history = strdup(content(f, "/d/spot-prices.csv"));
    put(f, "/in/a.csv", AWS_HEAD "c5.large,,,2,4,,0.085,,us-east-1,us-east-1a\n");
    put(f, "/in/p.csv", CHANGES_HEAD "2024-03-01T00:00:00Z,us-east-1a,p3.16xlarge,8\n");
    put(f, "/in/bad.csv", "what,is,this\n");
    assert_int_equal(import_paths(f, paths, 3), -TM_EINPUT);
    assert_error_has(f->e, "/in/bad.csv:1: expected a SkyPilot catalogue (CSV), Spot Advisor data (JSON) or a price");
    assert_string_equal(content(f, "/d/catalog.tmcat"), catalog);
    assert_string_equal(content(f, "/d/spot-prices.csv"), history);
    for (long n = 1; n <= 2; n++) { /* the history is written first, the catalogue last */
        tm_env_virtual_fail_write_at(f->env, n);
        assert_int_equal(import_paths(f, paths, 2), -TM_EFULL);
        assert_error_has(f->e, n == 1 ? "/d/spot-prices.csv" : "/d/catalog.tmcat");
        assert_string_equal(content(f, "/d/catalog.tmcat"), catalog);
        if (n == 1) assert_string_equal(content(f, "/d/spot-prices.csv"), history);
    }
    tm_env_virtual_fail_write_at(f->env, 0);
    assert_int_equal(import_paths(f, paths, 2), 0);
    assert_int_equal(f->report->prices, 2);
    assert_int_equal(f->report->offers, 2);
    assert_null(strstr(catalog, "c5.large"));
    assert_non_null(strstr(content(f, "/d/catalog.tmcat"), "c5.large"));
    free(catalog);
    free(history);
}

/* A type whose GPU we know better than the file: what the file lacks must not become half a row of ours. */
static void test_corrected_rows_read_back(void **state)
{
    struct fixture *f = *state;
    import_good(f, "/in/azure.csv",
                AZURE_HEAD "Standard_NC24ads_A100_v4,,,24,220,,3.67,1.1,eastus,V2\n"
                           "Standard_ND96isr_H100_v5,,,96,1900,,98.32,39.5,eastus,V2\n"
                           "Standard_NC6s_v3,V100,1.0,6.0,112,V100,3.06,,eastus,V1\n");
    check_counts(f, 3, 2, 1, 1);
    assert_string_equal(f->report->issues[0].text, "an instance type with GPUs, but no GPU is given");
    assert_int_equal(f->report->issues[0].line, 2);
    static const char *const lines[] = {"\nazure,Standard_ND96isr_H100_v5,H100,8,96,1900,", NULL};
    check_has(f, "/d/catalog.tmcat", lines);
    assert_null(strstr(content(f, "/d/catalog.tmcat"), "NC24ads"));
    import_good(f, "/in/again.csv", AWS_HEAD AWS_GOOD);
}

static void test_long_names_read_back(void **state)
{
    struct fixture *f = *state;
    char text[2000];
    char host[190];
    memset(host, 'x', sizeof host);
    memcpy(host, "n1-", 3);
    host[sizeof host - 1] = '\0';
    (void)snprintf(text, sizeof text,
                   GCP_HEAD ",,,V100,1.0,,us-central1,us-central1-a,3,1\n"
                            "n1-standard-8,8,30,,,,us-central1,us-central1-b,0.5,0.25\n"
                            "%s%s,8,30,,,,us-central1,us-central1-a,0.5,0.25\n",
                   host, "yyyyyyyyyy");
    import_good(f, "/in/gcp.csv", text);
    assert_int_equal(f->report->rejected, 1);
    assert_non_null(strstr(f->report->issues[0].text, "too long together"));
    import_good(f, "/in/again.csv", AWS_HEAD AWS_GOOD);
}

static void test_a_damaged_user_file_is_kept_and_mended(void **state)
{
    struct fixture *f = *state;
    static const char bad_row[] =
        "tidemill-catalog 1\n[source]\nname,as_of,text\ns,2026-01-01,t\n"
        "[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"
        "azure,bad,A100,0,1,1,1,,s\naws,good.1,,,2,4,,,s\n[mystery]\na,b\n1,2\n"
        "[offer]\ncloud,region,zone,instance,on_demand,spot,source\n"
        "azure,eastus,,bad,1,,s\naws,r,,good.1,1,,s\n\"open\n";
    static const struct {
        const char *text;
        const char *words; /* of the first issue */
        int line;
        size_t warned;
        bool good; /* the good row is still there */
    } rows[] = {
        {"something of the user's\n", "skipped: /d/catalog.tmcat:1: expected \"tidemill-catalog 1\"", 0, 2, false},
        {"", "skipped: /d/catalog.tmcat", 0, 2, false},
        {bad_row, "row of your imported catalogue skipped: gpus: expected a number of GPUs where there is a GPU", 7, 7,
         true},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        put(f, "/d/catalog.tmcat", rows[i].text);
        import_good(f, "/in/a.csv", AWS_HEAD AWS_GOOD);
        const struct tm_import_report *r = f->report;
        assert_row(r->warned == rows[i].warned && r->rejected == 0, "row %zu: %zu, %zu", i, r->warned, r->rejected);
        assert_row(strstr(r->issues[0].text, rows[i].words) != NULL && r->issues[0].line == rows[i].line,
                   "row %zu: %d: %s", i, r->issues[0].line, r->issues[0].text);
        assert_non_null(strstr(r->issues[r->issue_count - 1].text, "kept as catalog.tmcat.damaged"));
        assert_string_equal(content(f, "/d/catalog.tmcat.damaged"), rows[i].text);
        assert_int_equal(strstr(content(f, "/d/catalog.tmcat"), "\naws,r,,good.1,1,,s\n") != NULL, rows[i].good);
        assert_non_null(strstr(content(f, "/d/catalog.tmcat"), "\naws,us-east-1,us-east-1a,p3.16xlarge,24.48,"));
        import_good(f, "/in/a.csv", AWS_HEAD AWS_GOOD);
        assert_int_equal(f->report->issue_count, 0); /* it is whole again */
    }
    put(f, "/d/catalog.tmcat", "damaged\n");
    assert_int_equal(import_text(f, "/in/a.csv", "what,is,this\n"), -TM_EINPUT); /* a failed import touches nothing */
    assert_string_equal(content(f, "/d/catalog.tmcat"), "damaged\n");
    assert_int_equal(tm_env_virtual_set_variable(f->env, "TIDEMILL_DATA_DIR", NULL), 0);
    assert_int_equal(import_text(f, "/in/a.csv", AWS_HEAD AWS_GOOD), -TM_ENOTFOUND);
    assert_error_has(f->e, "set TIDEMILL_DATA_DIR or HOME");
}

static const char advisor[] = "{\"ranges\": [], \"instance_types\": {\"x\": {}}, \"spot_advisor\": {"
                              "\"us-east-1\": {\"Linux\": {\"p3.16xlarge\": {\"r\": 3, \"s\": 70},"
                              "\"g5.xlarge\": {\"r\": 0, \"s\": 0}, \"bad.1\": {\"r\": 5, \"s\": 70},"
                              "\"bad.2\": {\"r\": 1, \"s\": 101}, \"bad.3\": {\"r\": \"1\"}},"
                              "\"Windows\": {\"p3.16xlarge\": {\"r\": 1, \"s\": 1}}},"
                              "\"eu-west-1\": {\"Windows\": {}}}}";

static void test_advisor(void **state)
{
    struct fixture *f = *state;
    import_good(f, "/in/spot-advisor-2021-02.json", advisor);
    check_counts(f, 5, 2, 3, 0);
    assert_int_equal(f->report->bands, 2);
    assert_string_equal(f->report->issues[0].text, "bad.1 in us-east-1: expected r from 0 to 4 and s of at most 100");
    static const char *const lines[] = {
        "\nimport:spot-advisor-2021-02.json,2021-02-01,imported from spot-advisor-2021-02.json (AWS Spot Advisor)\n",
        "\naws,us-east-1,p3.16xlarge,3,70,import:",
        "\naws,us-east-1,g5.xlarge,0,0,import:",
        NULL,
    };
    check_has(f, "/d/catalog.tmcat", lines);
    static const struct {
        const char *text;
        const char *words;
    } bad[] = {
        {"{\"spot_advisor\": []}", "/in/b.json: spot_advisor: expected a map of regions"},
        {"{}", "/in/b.json: spot_advisor: expected a map of regions"},
        {"{\"spot_advisor\": {}}", "no row could be used"},
        {"{\"spot_advisor\": {", "/in/b.json"},
    };
    for (size_t i = 0; i < TM_COUNT(bad); i++) {
        assert_row(import_text(f, "/in/b.json", bad[i].text) == -TM_EINPUT, "\"%s\" was taken", bad[i].text);
        assert_row(strstr(f->e.text, bad[i].words) != NULL, "\"%s\": \"%s\"", bad[i].text, f->e.text);
    }
}

static const char *const price_lines[] = {
    "instance,zone,time,usd_h\n",
    "\np3.16xlarge,us-east-1a,2024-02-01T00:01:36Z,7.5\n",
    "\np3.16xlarge,us-east-1a,2024-02-02T00:00:00Z,7.25\n",
    NULL,
};

static const char changes[] = CHANGES_HEAD "2024-02-02T00:00:00Z,us-east-1a,p3.16xlarge,7.250000\n"
                                           "2024-02-01T00:01:36+00:00,us-east-1a,p3.16xlarge,7.500000\n"
                                           "soon,us-east-1a,p3.16xlarge,7\n2024-02-01,us-east-1a,p3.16xlarge,-7\n"
                                           "2024-02-01,us-east-1a,p3.16xlarge,nan\n2024-02-01,,p3.16xlarge,7\n"
                                           "2024-02-01,us-east-1a\n2024-02-01,us-east-1a,\"p3,16xlarge\",7\n";

static void test_prices(void **state)
{
    struct fixture *f = *state;
    static const char *const words[] = {"expected a time such as",
                                        "expected dollars per hour of 0 or more",
                                        "expected dollars per hour of 0 or more",
                                        "no zone or no instance type",
                                        "too few columns",
                                        "no zone or no instance type"};
    static const char *const newest[] = {"\naws,us-east-1a,p3.16xlarge,7.25,2024-02-02T00:00:00Z,import:c.csv\n", NULL};
    static const char *const daily[] = {"\ng5.xlarge,us-east-1b,2024-01-13T00:00:00Z,0.5\n", NULL};
    import_good(f, "/in/c.csv", changes);
    check_counts(f, 8, 2, 6, 0);
    for (size_t i = 0; i < TM_COUNT(words); i++) {
        const struct tm_import_issue *issue = &f->report->issues[i];
        assert_row(issue->line == (int)i + 4 && strstr(issue->text, words[i]) != NULL, "%d: %s", issue->line,
                   issue->text);
    }
    assert_int_equal(f->report->prices, 2);
    check_has(f, "/d/spot-prices.csv", price_lines);
    check_has(f, "/d/catalog.tmcat", newest);
    import_good(f, "/in/d.csv",
                "date,availability_zone,instance_type,min_usd_h,max_usd_h,last_usd_h,changes\n"
                "2024-01-13,us-east-1b,g5.xlarge,0.4,0.6,0.5,3\n");
    assert_int_equal(f->report->prices, 3);
    check_has(f, "/d/spot-prices.csv", daily);
    check_has(f, "/d/spot-prices.csv", price_lines);
    check_has(f, "/d/catalog.tmcat", newest);
    assert_int_equal(import_text(f, "/in/e.csv", "availability_zone,instance_type,price\na,b,1\n"), -TM_EINPUT);
    assert_error_has(f->e, "/in/e.csv:1: expected columns timestamp and spot_usd_h, or date and last_usd_h");
}

static void test_prices_packed(void **state)
{
    struct fixture *f = *state;
    unsigned char packed[2000];
    z_stream stream = {.next_out = packed, .avail_out = sizeof packed};
    Bytef plain[sizeof changes];
    memcpy(plain, changes, sizeof changes);
    stream.next_in = plain;
    stream.avail_in = sizeof changes - 1;
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t length = stream.total_out;
    assert_int_equal(deflateEnd(&stream), Z_OK);
    const char *path = "/in/c.csv.gz";
    assert_int_equal(f->env->file_write(f->env, path, (const char *)packed, length, NULL), 0);
    assert_int_equal(import_paths(f, &path, 1), 0);
    check_counts(f, 8, 2, 6, 0);
    check_has(f, "/d/spot-prices.csv", price_lines);
    assert_int_equal(f->env->file_write(f->env, path, (const char *)packed, length / 2, NULL), 0);
    assert_int_equal(import_paths(f, &path, 1), -TM_EINPUT);
    assert_error_has(f->e, "/in/c.csv.gz: gzip data ends too early");
}

static void test_tables_beside_the_catalogue(void **state)
{
    struct fixture *f = *state;
    static const char *const paths[] = {"/in/gpus.csv", "/in/aws.csv", "/in/network.csv"};
    static const char *const lines[] = {
        "\nQuantum-9,,96,4000,50,100,200,200,400,import:gpus.csv\n",
        "\naws,a.b,Quantum-9,2,8,61,96,25,import:aws.csv\n", /* memory from one table, network from the other */
        NULL,
    };
    put(f, "/in/gpus.csv",
        "name,variant,fp32_tflops,tf32_tflops,fp16_tflops,bf16_tflops,fp8_tflops,mem_gb,mem_bw_gbps\n"
        "Quantum-9,x,50,100,200,200,400,96,4000\n,x,1,1,1,1,1,1,1\n");
    put(f, "/in/aws.csv", AWS_HEAD "a.b,quantum-9,2,8,61,,1,,r,r1\n");
    put(f, "/in/network.csv", "cloud,instance_type,network_gbps\naws,a.b,25\naws,other,10\naws,a.b,\naws,,10\n");
    assert_int_equal(import_paths(f, paths, 3), 0);
    check_counts(f, 7, 3, 2, 0);
    check_has(f, "/d/catalog.tmcat", lines);
    put(f, "/in/gpus.csv", "name,fp32_tflops\nX,1\n");
    assert_int_equal(import_paths(f, paths, 1), -TM_EINPUT);
    assert_error_has(f->e, "/in/gpus.csv:1: no column \"mem_gb\"");
}

static void test_formats_asked_for(void **state)
{
    struct fixture *f = *state;
    static const struct {
        enum tm_import_format format;
        const char *text;
        const char *words; /* NULL: it is taken */
    } rows[] = {
        {TM_IMPORT_AUTO, AWS_HEAD AWS_GOOD, NULL},
        {TM_IMPORT_SKYPILOT, "\xEF\xBB\xBF" AWS_HEAD AWS_GOOD, NULL},
        {TM_IMPORT_ADVISOR, advisor, NULL},
        {TM_IMPORT_PRICES, changes, NULL},
        {TM_IMPORT_SKYPILOT, changes, "/in/x:1: expected SkyPilot's CSV with a header (InstanceType, "},
        {TM_IMPORT_SKYPILOT, advisor, "/in/x:1: expected SkyPilot's CSV"},
        {TM_IMPORT_ADVISOR, AWS_HEAD AWS_GOOD, "/in/x:1: expected the Spot Advisor's JSON"},
        {TM_IMPORT_PRICES, AWS_HEAD AWS_GOOD, "/in/x:1: expected CSV with a header (timestamp,availability_zone,"},
        {TM_IMPORT_AUTO, "a,b,c\n1,2,3\n", "/in/x:1: expected a SkyPilot catalogue (CSV), Spot Advisor data (JSON)"},
        {TM_IMPORT_AUTO, "\"a\n", "/in/x:1: quoted field has no closing"},
        {TM_IMPORT_AUTO, "InstanceType,Region\nx,y\n", "/in/x:1: no column \"Price\""},
        {TM_IMPORT_AUTO, "InstanceType,Region,Price\nx,y,1\n", "no row could be used"},
        {TM_IMPORT_AUTO, AWS_HEAD, "no row could be used"},
        {TM_IMPORT_AUTO, " \r\n\t", "/in/x: file is empty"},
        {TM_IMPORT_AUTO, "\xEF\xBB\xBF", "/in/x:1: expected a SkyPilot catalogue"},
        {TM_IMPORT_AUTO, "\x1f\x8b not gzip", "/in/x"},
    };
    static const char *const names[] = {"auto", "skypilot", "advisor", "prices"};
    for (size_t i = 0; i < TM_COUNT(names); i++)
        assert_string_equal(tm_import_formats[i], names[i]);
    assert_null(tm_import_formats[TM_COUNT(names)]);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        f->options.format = rows[i].format;
        int rc = import_text(f, "/in/x", rows[i].text);
        assert_row(rc == (rows[i].words == NULL ? 0 : -TM_EINPUT), "row %zu: got %d: %s", i, rc, f->e.text);
        assert_row(rc == 0 || strstr(f->e.text, rows[i].words) != NULL, "row %zu: \"%s\"", i, f->e.text);
    }
}

static void test_files_that_cannot_be_read(void **state)
{
    struct fixture *f = *state;
    const char *missing = "/in/none.csv";
    const char *binary = "/in/binary";
    assert_int_equal(import_paths(f, &missing, 1), -TM_ENOTFOUND);
    assert_error_has(f->e, "/in/none.csv: No such file");
    assert_int_equal(f->env->file_write(f->env, binary, "PK\0\3", 4, NULL), 0);
    assert_int_equal(import_paths(f, &binary, 1), -TM_EINPUT);
    assert_error_has(f->e, "/in/binary: binary data");
    assert_int_equal(import_paths(f, NULL, 0), -TM_EINPUT);
    assert_false(f->env->file_exists(f->env, "/d/catalog.tmcat"));
}

static void test_cloud_and_date(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *path;
        const char *as_of; /* NULL: not said */
        const char *want;
    } rows[] = {
        {"/in/x.csv", "2024-05-06", "\nimport:x.csv,2024-05-06,"},
        {"/in/x-2022-11.csv", NULL, "\nimport:x-2022-11.csv,2022-11-01,"},
        {"/in/x-2022-11-03.csv", NULL, "\nimport:x-2022-11-03.csv,2022-11-03,"},
        {"/in/2019-12-20_2020-03-23.csv", NULL, "\nimport:2019-12-20_2020-03-23.csv,2020-03-23,"},
        {"/2001-01-01/x-2022-13.csv", NULL, "\nimport:x-2022-13.csv,1970-01-11,"}, /* today, in this world */
        {"/in/x-2022-11-03.csv", "2024-05-06", "\nimport:x-2022-11-03.csv,2024-05-06,"},
    };
    tm_env_virtual_advance(f->env, (int64_t)10 * 86400 * 1000);
    f->options.cloud = "lambda";
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        f->options.as_of = rows[i].as_of;
        import_good(f, rows[i].path, "InstanceType,AcceleratorName,AcceleratorCount,Region,Price\nx,V100,1,y,1\n");
        const char *const lines[] = {rows[i].want, "\nlambda,y,,x,1,,import:", NULL};
        check_has(f, "/d/catalog.tmcat", lines);
        assert_int_equal(f->env->file_remove(f->env, "/d/catalog.tmcat", NULL), 0);
    }
}

static void test_more_issues_than_are_kept(void **state)
{
    struct fixture *f = *state;
    struct tm_text text;
    tm_text_init(&text, 1 << 20);
    tm_text_puts(&text, AWS_HEAD AWS_GOOD);
    for (int i = 0; i < 300; i++)
        tm_text_puts(&text, "a.b,V100,1,8,61,,,,r,r1\n");
    import_good(f, "/in/x.csv", tm_text_string(&text));
    assert_int_equal(f->report->rejected, 300);
    assert_int_equal(f->report->issue_count, TM_IMPORT_ISSUES_MAX);
    tm_text_deinit(&text);
}

/* From nothing to nothing: a world, an old catalogue, one import. A failure must leave the old catalogue. */
#define OLD "tidemill-catalog 1\n\n[source]\nname,as_of,text\nold,2020-01-01,x\n"

static int import_once(const char *cloud, const char *old, const char *text)
{
    const char *path = "/in/x.csv";
    struct tm_import_options options = {.cloud = cloud, .as_of = "2024-01-01"};
    struct tm_import_report *report = calloc(1, sizeof *report);
    struct tm_text after;
    struct tm_env *env = tm_env_virtual_create(1);
    tm_text_init(&after, 1 << 20);
    tm_import_report_init(report);
    int rc = env == NULL ? -TM_ENOMEM : tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/d");
    if (rc == 0) rc = env->file_write(env, path, text, strlen(text), NULL);
    if (rc == 0) rc = env->file_write(env, "/d/catalog.tmcat", old, strlen(old), NULL);
    if (rc == 0) {
        rc = tm_import_files(env, &options, &path, 1, report, NULL);
        if (rc != 0 && env->file_read(env, "/d/catalog.tmcat", &after, NULL) == 0 &&
            strcmp(tm_text_string(&after), old) != 0)
            rc = -TM_EINTERNAL;
    }
    tm_text_deinit(&after);
    tm_import_report_deinit(report);
    free(report);
    tm_env_virtual_destroy(env);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    static const char *const texts[] = {
        AWS_HEAD AWS_GOOD "a.b,V100,1,8,61,,,,r,r1\na.c,Quantum-9,1,8,61,,1,1,r,r1\n",
        changes,
        "{\"spot_advisor\": {\"us-east-1\": {\"Linux\": {\"p3.16xlarge\": {\"r\": 3, \"s\": 70}}}}}",
        "name,fp32_tflops,tf32_tflops,fp16_tflops,bf16_tflops,fp8_tflops,mem_gb,mem_bw_gbps\nX,1,1,1,1,1,1,1\n",
    };
    static const char gcp[] = GCP_HEAD ",,,A100,1.0,,us-central1,us-central1-a,3,1\n"
                                       "a2-highgpu-1g,12.0,85.0,,,,us-central1,us-central1-a,0.5,0.25\n";
    for (size_t i = 0; i < TM_COUNT(texts); i++)
        TM_FAIL_EACH_ALLOC(rc = import_once("aws", OLD, texts[i]));
    TM_FAIL_EACH_ALLOC(rc = import_once(NULL, OLD, gcp));
    TM_FAIL_EACH_ALLOC(rc = import_once("aws", OLD "bad\n", texts[0])); /* of a damaged one, too */
}

#define FIXTURE_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

TM_TEST_MAIN(FIXTURE_TEST(test_aws), FIXTURE_TEST(test_gcp_host_and_accelerator), FIXTURE_TEST(test_azure_and_lambda),
             FIXTURE_TEST(test_bad_rows_are_named_and_the_rest_is_kept), FIXTURE_TEST(test_strict),
             FIXTURE_TEST(test_importing_again_replaces), FIXTURE_TEST(test_all_files_or_none),
             FIXTURE_TEST(test_corrected_rows_read_back), FIXTURE_TEST(test_long_names_read_back),
             FIXTURE_TEST(test_a_damaged_user_file_is_kept_and_mended), FIXTURE_TEST(test_advisor),
             FIXTURE_TEST(test_prices), FIXTURE_TEST(test_prices_packed),
             FIXTURE_TEST(test_tables_beside_the_catalogue), FIXTURE_TEST(test_formats_asked_for),
             FIXTURE_TEST(test_files_that_cannot_be_read), FIXTURE_TEST(test_cloud_and_date),
             FIXTURE_TEST(test_more_issues_than_are_kept), TM_TEST(test_without_memory))
