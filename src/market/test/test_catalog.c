#include "market/catalog.h"

#include "base/env_virtual.h"
#include "market/test/market_helpers.h"

/* A whole small catalogue. Columns stand in any order, and a table may come twice. */
static const char shipped_text[] =
    "tidemill-catalog 1\n# words\n\n[source]\nname,as_of,text\nold,2020-01-01,\"a, \"\"b\"\"\"\nnew,2024-01-01,\n"
    "[gpu]\nname,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\n"
    "K80,Tesla-K80,12,240,4.37,,,,,old\nV100,V100-SXM2|V100-16GB,16,900,15.7,,125,,,old\n"
    "A100,A100-40GB,40,1555,19.5,156,312,312,,new\n"
    "[instance]\nname,cloud,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"
    "p2.xlarge,aws,K80,1,4,61,12,,old\np3.8xlarge,aws,V100,4,32,244,16,10,old\na.half,aws,A100,0.5,,,,,new\n"
    "c5.large,aws,,,2,4,,,old\nodd,gcp,Mystery,2,8,30,,,old\n"
    "[offer]\ncloud,region,zone,instance,on_demand,spot,source\n"
    "aws,us-east-1,us-east-1a,p3.8xlarge,12.24,4,old\naws,us-east-1,us-east-1b,p3.8xlarge,12.24,,old\n"
    "aws,us-west-2,,p3.8xlarge,12.24,5,old\naws,us-east-1,,p2.xlarge,0.9,0.27,old\n"
    "[band]\ncloud,region,instance,band,saving_percent,source\naws,us-east-1,p3.8xlarge,2,65,new\n"
    "[offer]\ncloud,region,zone,instance,on_demand,spot,source\ngcp,r,r-a,odd,1,,new\n"
    "[price]\ncloud,zone,instance,spot,time,source\naws,us-west-2z,nothing,1,2024-01-01T00:00:00Z,new\n";

static void parse_more(struct tm_catalog *catalog, const char *text, bool imported)
{
    struct tm_error e = {0};
    int rc = tm_catalog_parse(catalog, "c", text, strlen(text), imported, &e);
    assert_row(rc == 0, "%s", e.text);
}

static void parse_first(struct tm_catalog *catalog)
{
    tm_catalog_init(catalog);
    parse_more(catalog, shipped_text, false);
}

static const struct tm_offer *find_offer(const struct tm_catalog *catalog, const char *region, const char *zone,
                                         const char *name)
{
    for (size_t i = 0; i < catalog->offer_count; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        if (strcmp(offer->region, region) == 0 && strcmp(offer->zone, zone) == 0 &&
            strcmp(catalog->instances[offer->instance].name, name) == 0)
            return offer;
    }
    return NULL;
}

static void test_parsing(void **state)
{
    (void)state;
    struct tm_catalog catalog;
    parse_first(&catalog);
    assert_int_equal(catalog.source_count, 2);
    assert_string_equal(catalog.sources[0].text, "a, \"b\"");
    assert_int_equal(catalog.gpu_count, 3);
    assert_int_equal(catalog.instance_count, 5);
    assert_int_equal(catalog.offer_count, 5);
    assert_int_equal(catalog.band_count, 1);
    assert_int_equal(catalog.price_count, 1);
    const struct tm_instance_type *p3 = tm_catalog_instance(&catalog, "aws", "p3.8xlarge");
    assert_non_null(p3);
    assert_string_equal(p3->gpu, "V100");
    assert_true(p3->gpus == 4 && p3->vcpus == 32 && p3->memory_gib == 244 && p3->network_gbps == 10);
    assert_true(isnan(tm_catalog_instance(&catalog, "aws", "p2.xlarge")->network_gbps));
    assert_true(tm_catalog_instance(&catalog, "aws", "c5.large")->gpus == 0);
    assert_null(tm_catalog_instance(&catalog, "gcp", "p3.8xlarge"));
    assert_null(tm_catalog_instance(&catalog, "aws", "P3.8xlarge"));
    assert_int_equal(tm_catalog_finish(&catalog, NULL), 0);
    assert_string_equal(catalog.as_of, "2024-01-01"); /* the newest of the sources */
    assert_int_equal(find_offer(&catalog, "us-east-1", "us-east-1b", "p3.8xlarge")->band, 2);
    assert_int_equal(find_offer(&catalog, "us-west-2", "", "p3.8xlarge")->band, TM_BAND_UNKNOWN);
    tm_catalog_deinit(&catalog);
    tm_catalog_deinit(&catalog);
}

static void print_to(const struct tm_catalog *catalog, struct tm_text *out)
{
    tm_text_init(out, 1 << 24);
    tm_catalog__print(catalog, out);
    assert_int_equal(tm_text_status(out, NULL), 0);
}

/* What is printed parses, and prints the same again. */
static void check_round_trip_of(const struct tm_catalog *catalog)
{
    struct tm_catalog again;
    struct tm_text first;
    struct tm_text second;
    struct tm_error e = {0};
    print_to(catalog, &first);
    tm_catalog_init(&again);
    int rc = tm_catalog_parse(&again, "printed", tm_text_string(&first), first.length, true, &e);
    assert_row(rc == 0, "%s", e.text);
    print_to(&again, &second);
    assert_string_equal(tm_text_string(&first), tm_text_string(&second));
    assert_int_equal(again.offer_count, catalog->offer_count);
    assert_int_equal(again.instance_count, catalog->instance_count);
    tm_text_deinit(&first);
    tm_text_deinit(&second);
    tm_catalog_deinit(&again);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct tm_catalog catalog;
    parse_first(&catalog);
    check_round_trip_of(&catalog);
    struct tm_text out;
    print_to(&catalog, &out);
    assert_non_null(strstr(tm_text_string(&out), "\nold,2020-01-01,\"a, \"\"b\"\"\"\n"));
    assert_non_null(strstr(tm_text_string(&out), "\nV100,V100-SXM2|V100-16GB,16,900,15.7,,125,,,old\n"));
    assert_non_null(strstr(tm_text_string(&out), "\naws,us-east-1,us-east-1b,p3.8xlarge,12.24,,old\n"));
    tm_text_deinit(&out);
    tm_catalog_deinit(&catalog);
    tm_catalog_init(&catalog);
    check_round_trip_of(&catalog); /* an empty one */
    assert_int_equal(tm_catalog_load_shipped(&catalog, NULL), 0);
    check_round_trip_of(&catalog);
    tm_catalog_deinit(&catalog);
}

static void test_rows_of_the_same_key_replace(void **state)
{
    (void)state;
    struct tm_catalog catalog;
    parse_first(&catalog);
    parse_more(
        &catalog,
        "tidemill-catalog 1\n[source]\nname,as_of,text\nold,2021-01-01,z\n"
        "[gpu]\nname,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\nv100,,16,900,14,,112,,,old\n"
        "[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"
        "aws,p3.8xlarge,V100,4,36,,,,old\n"
        "[offer]\ncloud,region,zone,instance,on_demand,spot,source\naws,us-west-2,,p3.8xlarge,13,6,old\n"
        "[band]\ncloud,region,instance,band,saving_percent,source\naws,us-east-1,p3.8xlarge,4,60,old\n"
        "[price]\ncloud,zone,instance,spot,time,source\naws,us-west-2z,nothing,9,2023-01-01,old\n",
        false);
    assert_int_equal(catalog.source_count, 2);
    assert_string_equal(catalog.sources[0].as_of, "2021-01-01");
    assert_int_equal(catalog.gpu_count, 3);
    assert_true(tm_catalog_gpu(&catalog, "V100")->tflops[TM_FP16] == 112);
    const struct tm_instance_type *p3 = tm_catalog_instance(&catalog, "aws", "p3.8xlarge");
    assert_true(p3->vcpus == 36 && p3->memory_gib == 244 && p3->network_gbps == 10); /* what is not said stays */
    assert_int_equal(catalog.instance_count, 5);
    assert_int_equal(catalog.offer_count, 5);
    assert_true(find_offer(&catalog, "us-west-2", "", "p3.8xlarge")->on_demand_usd_h == 13);
    assert_int_equal(catalog.band_count, 1);
    assert_int_equal(catalog.bands[0].band, 4);
    assert_int_equal(catalog.price_count, 1);
    assert_true(catalog.prices[0].spot_usd_h == 1); /* an older price replaces nothing */
    tm_catalog_deinit(&catalog);
}

#define IMPORT_HEAD "tidemill-catalog 1\n[source]\nname,as_of,text\nimport:x,2024-06-01,\n"
#define OFFER_HEAD  "[offer]\ncloud,region,zone,instance,on_demand,spot,source\n"
#define PRICE_HEAD  "[price]\ncloud,zone,instance,spot,time,source\n"
#define INSTANCE_ROW                                                                                                   \
    "[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\n"                            \
    "aws,p3.8xlarge,V100,4,32,244,16,,import:x\n"

/* All offers of p3.8xlarge in one text: "zone:on_demand/spot[*];", * for imported. */
static void show_offers(const struct tm_catalog *catalog, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < catalog->offer_count && used < size; i++) {
        const struct tm_offer *offer = &catalog->offers[i];
        if (strcmp(catalog->instances[offer->instance].name, "p3.8xlarge") != 0) continue;
        used += (size_t)snprintf(out + used, size - used, "%s%s:%g/%g%s;", offer->region, offer->zone,
                                 offer->on_demand_usd_h, isnan(offer->spot_usd_h) ? -1 : offer->spot_usd_h,
                                 offer->imported ? "*" : "");
    }
}

static void test_imports_on_top(void **state)
{
    (void)state;
#define WEST "us-west-2:12.24/5;"
    static const struct {
        const char *rows;
        const char *want;
    } rows[] = {
        {"", "us-east-1us-east-1a:12.24/4;us-east-1us-east-1b:12.24/-1;" WEST},
        /* one imported offer hides all shipped ones of its type and region, and no others */
        {OFFER_HEAD "aws,us-east-1,use1-az1,p3.8xlarge,11,3,import:x\n", WEST "us-east-1use1-az1:11/3*;"},
        {OFFER_HEAD "aws,us-east-1,us-east-1b,p3.8xlarge,11,,import:x\n", "us-east-1us-east-1b:11/-1*;" WEST},
        {OFFER_HEAD "aws,eu-west-1,,p3.8xlarge,13,,import:x\n",
         "us-east-1us-east-1a:12.24/4;us-east-1us-east-1b:12.24/-1;" WEST "eu-west-1:13/-1*;"},
        /* prices: laid over the zone's offer, or an offer of its own beside those of the region */
        {PRICE_HEAD "aws,us-east-1a,p3.8xlarge,3.5,2024-06-01,import:x\n",
         "us-east-1us-east-1a:12.24/3.5;us-east-1us-east-1b:12.24/-1;" WEST},
        {PRICE_HEAD "aws,us-east-1b,p3.8xlarge,3.5,2024-06-01,import:x\n",
         "us-east-1us-east-1a:12.24/4;us-east-1us-east-1b:12.24/3.5;" WEST},
        {PRICE_HEAD "aws,us-west-2d,p3.8xlarge,3.5,2024-06-01,import:x\n",
         "us-east-1us-east-1a:12.24/4;us-east-1us-east-1b:12.24/-1;" WEST "us-west-2us-west-2d:12.24/3.5;"},
        {PRICE_HEAD "aws,ap-south-1a,p3.8xlarge,3.5,2024-06-01,import:x\naws,7,p3.8xlarge,3.5,2024-06-01,import:x\n",
         "us-east-1us-east-1a:12.24/4;us-east-1us-east-1b:12.24/-1;" WEST},
        /* a price of a zone must not put the shipped offer in the place of the imported one */
        {OFFER_HEAD "aws,us-east-1,us-east-1b,p3.8xlarge,11,3,import:x\n" PRICE_HEAD
                    "aws,us-east-1b,p3.8xlarge,2.5,2024-06-01,import:x\n",
         "us-east-1us-east-1b:11/2.5*;" WEST},
        {OFFER_HEAD "aws,us-east-1,us-east-1b,p3.8xlarge,11,3,import:x\n" PRICE_HEAD
                    "aws,us-east-1f,p3.8xlarge,2.5,2024-06-01,import:x\n",
         "us-east-1us-east-1b:11/3*;" WEST "us-east-1us-east-1f:11/2.5*;"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[1000];
        char shown[1000];
        struct tm_catalog catalog;
        parse_first(&catalog);
        (void)snprintf(text, sizeof text, IMPORT_HEAD INSTANCE_ROW "%s", rows[i].rows);
        parse_more(&catalog, text, true);
        assert_int_equal(tm_catalog_finish(&catalog, NULL), 0);
        show_offers(&catalog, shown, sizeof shown);
        assert_row_string(rows[i].rows, shown, rows[i].want);
        assert_string_equal(catalog.as_of, "2024-06-01");
        assert_true(tm_catalog_instance(&catalog, "aws", "p3.8xlarge")->network_gbps == 10);
        tm_catalog_deinit(&catalog);
    }
#undef WEST
}

static void test_old_prices_are_not_laid_over(void **state)
{
    (void)state;
    struct tm_catalog catalog;
    char shown[400];
    parse_first(&catalog);
    parse_more(&catalog,
               "tidemill-catalog 1\n[source]\nname,as_of,text\nimport:y,2019-06-01,\n" PRICE_HEAD
               "aws,us-east-1a,p3.8xlarge,3.5,2019-06-01,import:y\naws,us-east-1f,p3.8xlarge,3.5,2019-06-01,import:y\n",
               true);
    assert_int_equal(tm_catalog_finish(&catalog, NULL), 0);
    show_offers(&catalog, shown, sizeof shown);
    assert_string_equal(shown, "us-east-1us-east-1a:12.24/4;us-east-1us-east-1b:12.24/-1;us-west-2:12.24/5;");
    tm_catalog_deinit(&catalog);
}

static void test_bad_files(void **state)
{
    (void)state;
#define GPU_HEAD  "[gpu]\nname,aliases,memory_gib,memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\n"
#define BAND_HEAD "[band]\ncloud,region,instance,band,saving_percent,source\n"
    static const struct {
        const char *text; /* behind a good heading and source "import:x" */
        const char *words;
    } rows[] = {
        {"[nonsense]\n",
         "c:5: unknown table [nonsense]; expected [source], [gpu], [instance], [burst], [offer], [band] or [price]"},
        {"[burst]\ncloud,instance,burst_gbps,source\naws,none,10,import:x\n",
         "c:7: instance: expected an instance from the [instance] table above, got \"none\""},
        {"[gpu]\nname\n", "c:6: table [gpu] has no column \"aliases\""},
        {"[source]\nname,as_of,text\n,2024-01-01,\n", "c:7: name: expected a name, got \"\""},
        {"[source]\nname,as_of,text\na,yesterday,\n",
         "c:7: as_of: expected a date such as 2026-08-22, got \"yesterday\""},
        {"[source]\nname,as_of,text\na,2024-13-01,\n", "c:7: as_of: expected a date"},
        {GPU_HEAD ",,16,900,14,,112,,,import:x\n", "c:7: name: expected a name"},
        {GPU_HEAD "X,,16,-900,14,,112,,,import:x\n",
         "c:7: memory_gbyte_s: expected a number of 0 or more, got \"-900\""},
        {GPU_HEAD "X,,16,900,nan,,112,,,import:x\n", "c:7: fp32: expected a number of 0 or more, got \"nan\""},
        {GPU_HEAD "X,,16,900,14,,112,,,nobody\n", "c:7: source: expected a name from the [source] table above, got"},
        {GPU_HEAD "X,,16\n", "c:7: source: expected a name from the [source] table"},
        {"[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\naws,x,V100,,1,1,1,1,"
         "import:x\n",
         "c:7: gpus: expected a number of GPUs where there is a GPU"},
        {"[instance]\ncloud,name,gpu,gpus,vcpus,memory_gib,gpu_memory_gib,network_gbps,source\naws,x,,1,1,1,1,1,import:"
         "x\n",
         "c:7: gpus: expected a number of GPUs where there is a GPU, and none where there is none"},
        {OFFER_HEAD "aws,r,,nothing,1,,import:x\n",
         "c:7: instance: expected an instance from the [instance] table above"},
        {INSTANCE_ROW OFFER_HEAD "aws,r,,p3.8xlarge,,,import:x\n",
         "c:10: on_demand: expected an on-demand price or a spot price"},
        {INSTANCE_ROW OFFER_HEAD "aws,,,p3.8xlarge,1,,import:x\n", "c:10: region: expected a name"},
        {INSTANCE_ROW OFFER_HEAD "aws,r,,p3.8xlarge,free,,import:x\n",
         "c:10: on_demand: expected a number of 0 or more"},
        {BAND_HEAD "aws,r,x,5,1,import:x\n", "c:7: band: expected 0, 1, 2, 3 or 4, got \"5\""},
        {BAND_HEAD "aws,r,x,,1,import:x\n", "c:7: band: expected 0, 1, 2, 3 or 4"},
        {BAND_HEAD "aws,r,x,1.5,1,import:x\n", "c:7: band: expected 0, 1, 2, 3 or 4"},
        {PRICE_HEAD "aws,z,x,,2024-01-01,import:x\n", "c:7: spot: expected a price"},
        {PRICE_HEAD "aws,z,x,1,noon,import:x\n", "c:7: time: expected a time, got \"noon\""},
        {"[gpu]\n\"name\n", "c:6: quoted field has no closing"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char text[1000];
        struct tm_catalog catalog;
        struct tm_error e = {0};
        tm_catalog_init(&catalog);
        int length = snprintf(text, sizeof text, IMPORT_HEAD "%s", rows[i].text);
        int rc = tm_catalog_parse(&catalog, "c", text, (size_t)length, true, &e);
        assert_row(rc == -TM_EINPUT, "\"%s\": got %d", rows[i].text, rc);
        assert_row(strstr(e.text, rows[i].words) != NULL, "\"%s\": \"%s\"", rows[i].text, e.text);
        tm_catalog_deinit(&catalog);
    }
}

static void test_files_of_another_kind(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words;
    } rows[] = {
        {"", "c:1: expected \"tidemill-catalog 1\" in the first line"},
        {"tidemill-catalog 2\n", "c:1: expected \"tidemill-catalog 1\" in the first line"},
        {"tidemill-trace 1\n", "c:1: expected \"tidemill-catalog 1\""},
        {"tidemill-catalog 1\na,b\n", "c:2: expected a table such as [offer]"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_catalog catalog;
        struct tm_error e = {0};
        tm_catalog_init(&catalog);
        int rc = tm_catalog_parse(&catalog, "c", rows[i].text, strlen(rows[i].text), false, &e);
        assert_row(rc == -TM_EINPUT && strstr(e.text, rows[i].words) != NULL, "\"%s\": %s", rows[i].text, e.text);
        tm_catalog_deinit(&catalog);
    }
}

static void test_gpus_have_many_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *want; /* NULL: unknown */
    } rows[] = {
        {"V100", "V100"}, {"v100", "V100"}, {"V100-sxm2", "V100"},         {"V100-16GB", "V100"}, {"Tesla-K80", "K80"},
        {"", NULL},       {"V10", NULL},    {"V100-SXM2|V100-16GB", NULL}, {"V100-SXM", NULL},    {"16GB", NULL},
    };
    struct tm_catalog catalog;
    parse_first(&catalog);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        const struct tm_gpu *gpu = tm_catalog_gpu(&catalog, rows[i].name);
        assert_row((gpu != NULL) == (rows[i].want != NULL), "\"%s\": known: %d", rows[i].name, gpu != NULL);
        if (gpu != NULL) assert_row_string(rows[i].name, gpu->name, rows[i].want);
    }
    tm_catalog_deinit(&catalog);
}

static void test_flops(void **state)
{
    (void)state;
    static const struct {
        const char *cloud;
        const char *instance;
        int precision;
        double want; /* NaN: unknown */
        int used;
    } rows[] = {
        {"aws", "p2.xlarge", TM_FP32, 4.37, TM_FP32},
        {"aws", "p2.xlarge", TM_FP16, NAN, TM_FP16}, /* no such mode */
        {"aws", "p2.xlarge", TM_PRECISION_MIXED, 4.37, TM_FP32},
        {"aws", "p3.8xlarge", TM_FP32, 62.8, TM_FP32},
        {"aws", "p3.8xlarge", TM_FP16, 500, TM_FP16},
        {"aws", "p3.8xlarge", TM_PRECISION_MIXED, 500, TM_FP16},
        {"aws", "a.half", TM_PRECISION_MIXED, 156, TM_BF16},
        {"aws", "a.half", TM_TF32, 78, TM_TF32},
        {"aws", "a.half", TM_FP8, NAN, TM_FP8},
        {"aws", "c5.large", TM_FP32, NAN, TM_FP32},
        {"gcp", "odd", TM_FP32, NAN, TM_FP32},
        {"gcp", "odd", TM_PRECISION_MIXED, NAN, TM_PRECISION_MIXED},
    };
    struct tm_catalog catalog;
    parse_first(&catalog);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        const struct tm_instance_type *instance = tm_catalog_instance(&catalog, rows[i].cloud, rows[i].instance);
        int used = -1;
        double got = tm_instance__tflops(&catalog, instance, rows[i].precision, &used);
        bool same = isnan(rows[i].want) ? isnan(got) : near(got, rows[i].want, 1e-9);
        assert_row(same && used == rows[i].used, "row %zu: %g TFLOPS, precision %d", i, got, used);
        (void)tm_instance__tflops(&catalog, instance, rows[i].precision, NULL);
    }
    tm_catalog_deinit(&catalog);
}

static void test_prices_and_flopp(void **state)
{
    (void)state;
    struct tm_offer both = {.on_demand_usd_h = 3, .spot_usd_h = 1};
    struct tm_offer no_spot = {.on_demand_usd_h = 3, .spot_usd_h = NAN};
    assert_true(tm_offer__price(&both, TM_PRICE_SPOT_OR_ON_DEMAND) == 1);
    assert_true(tm_offer__price(&both, TM_PRICE_SPOT) == 1);
    assert_true(tm_offer__price(&both, TM_PRICE_ON_DEMAND) == 3);
    assert_true(tm_offer__price(&no_spot, TM_PRICE_SPOT_OR_ON_DEMAND) == 3);
    assert_true(isnan(tm_offer__price(&no_spot, TM_PRICE_SPOT)));
    assert_true(near(tm_offer__flopp(125, 0.918), 125e12 / 0.918 * 3600, 1e3)); /* 4.9e17 operations for a dollar */
    assert_true(tm_offer__flopp(1, 3600) == 1e12);
    assert_true(isnan(tm_offer__flopp(125, 0)) && isnan(tm_offer__flopp(125, -1)) && isnan(tm_offer__flopp(125, NAN)));
    assert_true(isnan(tm_offer__flopp(NAN, 1)));
    static const char *const labels[] = {"-", "<5%", "5-10%", "10-15%", "15-20%", ">20%", "-"};
    for (int band = -1; band <= 5; band++)
        assert_string_equal(tm_band_label(band), labels[band + 1]);
    static const char *const names[] = {"fp32", "tf32", "fp16", "bf16", "fp8", "mixed"};
    for (int i = 0; i <= TM_PRECISION_MIXED; i++)
        assert_string_equal(tm_precision_names[i], names[i]);
    assert_null(tm_precision_names[TM_PRECISION_MIXED + 1]);
}

static void test_what_is_shipped(void **state)
{
    (void)state;
    static const char *const families[] = {"p2.", "p3.", "g3.", "g4dn.", "g5.", "p4d.", "p5."};
    static const char *const gpus[] = {"K80",       "M60", "V100", "T4",   "A10G", "A100",
                                       "A100-80GB", "L4",  "H100", "H200", "B200"};
    static const char *const clouds[] = {"aws", "gcp", "azure", "lambda"};
    struct tm_catalog catalog;
    tm_catalog_init(&catalog);
    assert_int_equal(tm_catalog_load_shipped(&catalog, NULL), 0);
    size_t with_gpu = 0;
    size_t per_cloud[4] = {0};
    size_t per_family[TM_COUNT(families)] = {0};
    for (size_t i = 0; i < catalog.instance_count; i++) {
        const struct tm_instance_type *instance = &catalog.instances[i];
        assert_row(instance->vcpus > 0 && instance->memory_gib > 0, "%s: no figures", instance->name);
        for (size_t f = 0; f < TM_COUNT(families); f++)
            per_family[f] += strncmp(instance->name, families[f], strlen(families[f])) == 0;
        for (size_t c = 0; c < 4; c++)
            per_cloud[c] += strcmp(instance->cloud, clouds[c]) == 0;
        if (instance->gpu[0] == '\0') continue;
        with_gpu++;
        assert_row(tm_catalog_gpu(&catalog, instance->gpu) != NULL, "%s: unknown GPU %s", instance->name,
                   instance->gpu);
        assert_row(tm_instance__tflops(&catalog, instance, TM_PRECISION_MIXED, NULL) > 0, "%s: no FLOPS",
                   instance->name);
    }
    assert_row(with_gpu >= 90, "only %zu GPU types", with_gpu);
    assert_row(catalog.instance_count - with_gpu >= 25, "only %zu CPU types", catalog.instance_count - with_gpu);
    assert_row(per_cloud[0] + per_cloud[1] + per_cloud[2] + per_cloud[3] == catalog.instance_count, "a fifth cloud");
    for (size_t c = 0; c < 4; c++)
        assert_row(per_cloud[c] > 0, "nothing of %s", clouds[c]);
    for (size_t f = 0; f < TM_COUNT(families); f++)
        assert_row(per_family[f] > 0, "no %s*", families[f]);
    for (size_t g = 0; g < TM_COUNT(gpus); g++)
        assert_row(tm_catalog_gpu(&catalog, gpus[g]) != NULL, "no %s", gpus[g]);
    assert_int_equal(strlen(catalog.as_of), 10);
    tm_catalog_deinit(&catalog);
}

static void test_every_type_is_for_sale(void **state)
{
    (void)state;
    static const char *const in_many_regions[] = {"g4dn.xlarge", "g5.xlarge", "p3.2xlarge"};
    struct tm_catalog catalog;
    tm_catalog_init(&catalog);
    assert_int_equal(tm_catalog_load_shipped(&catalog, NULL), 0);
    size_t *offers = calloc(catalog.instance_count, sizeof *offers);
    assert_non_null(offers);
    for (size_t i = 0; i < catalog.offer_count; i++) {
        const struct tm_offer *offer = &catalog.offers[i];
        const char *name = catalog.instances[offer->instance].name;
        offers[offer->instance]++;
        assert_row(tm_offer__price(offer, TM_PRICE_SPOT_OR_ON_DEMAND) > 0, "%s in %s: no price", name, offer->region);
        assert_row(!(offer->spot_usd_h > 1.5 * offer->on_demand_usd_h), "%s in %s: spot is dear", name, offer->region);
        assert_row(!offer->imported && offer->band >= -1 && offer->band <= 4, "%s in %s", name, offer->region);
    }
    for (size_t i = 0; i < catalog.instance_count; i++)
        assert_row(offers[i] > 0, "%s: no offer", catalog.instances[i].name);
    free(offers);
    for (size_t n = 0; n < TM_COUNT(in_many_regions); n++) {
        const char *first = NULL;
        bool second = false;
        for (size_t i = 0; i < catalog.offer_count; i++) {
            const struct tm_offer *offer = &catalog.offers[i];
            if (strcmp(catalog.instances[offer->instance].name, in_many_regions[n]) != 0) continue;
            if (first == NULL) first = offer->region;
            second = second || strcmp(first, offer->region) != 0;
        }
        assert_row(second, "%s: in one region only", in_many_regions[n]);
    }
    tm_catalog_deinit(&catalog);
}

static void test_loading_with_the_users_file(void **state)
{
    (void)state;
    static const char imported[] = IMPORT_HEAD INSTANCE_ROW OFFER_HEAD "aws,us-east-1,zz,p3.8xlarge,11,3,import:x\n";
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_catalog catalog;
    struct tm_error e = {0};
    tm_catalog_init(&catalog);
    assert_int_equal(tm_catalog_load(env, &catalog, &e), 0); /* no home: no imports */
    size_t shipped = catalog.offer_count;
    tm_catalog_deinit(&catalog);
    assert_int_equal(tm_env_virtual_set_variable(env, "HOME", "/h"), 0);
    assert_int_equal(env->file_write(env, "/h/.local/share/tidemill/catalog.tmcat", imported, sizeof imported - 1, &e),
                     0);
    tm_catalog_init(&catalog);
    assert_int_equal(tm_catalog_load(env, &catalog, &e), 0);
    assert_true(catalog.offer_count < shipped);
    const struct tm_offer *offer = find_offer(&catalog, "us-east-1", "zz", "p3.8xlarge");
    assert_true(offer != NULL && offer->imported);
    assert_null(find_offer(&catalog, "us-east-1", "us-east-1a", "p3.8xlarge"));
    tm_catalog_deinit(&catalog);
    assert_int_equal(env->file_write(env, "/h/.local/share/tidemill/catalog.tmcat", "bad\n", 4, &e), 0);
    tm_catalog_init(&catalog);
    assert_int_equal(tm_catalog_load(env, &catalog, &e), -TM_EINPUT);
    assert_error_has(e, "/h/.local/share/tidemill/catalog.tmcat:1: expected \"tidemill-catalog 1\"");
    assert_error_has(e, "run tidemill catalog import again"); /* the way on */
    tm_catalog_deinit(&catalog);
    tm_env_virtual_destroy(env);
}

static int parse_once_and_finish(void)
{
    struct tm_catalog catalog;
    struct tm_text out;
    tm_catalog_init(&catalog);
    tm_text_init(&out, 1 << 20);
    int rc = tm_catalog_parse(&catalog, "c", shipped_text, sizeof shipped_text - 1, true, NULL);
    if (rc == 0) rc = tm_catalog_finish(&catalog, NULL);
    if (rc == 0) tm_catalog__print(&catalog, &out);
    if (rc == 0) rc = tm_text_status(&out, NULL);
    tm_text_deinit(&out);
    tm_catalog_deinit(&catalog);
    return rc;
}

static int load_once(struct tm_env *env)
{
    struct tm_catalog catalog;
    tm_catalog_init(&catalog);
    int rc = tm_catalog_load(env, &catalog, NULL);
    if (rc == 0 && find_offer(&catalog, "us-east-1", "zz", "p3.8xlarge") == NULL)
        rc = -TM_EINTERNAL; /* lost silently */
    tm_catalog_deinit(&catalog);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    static const char imported[] = IMPORT_HEAD INSTANCE_ROW OFFER_HEAD "aws,us-east-1,zz,p3.8xlarge,11,3,import:x\n";
    struct tm_env *env = tm_env_virtual_create(1);
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/d"), 0);
    assert_int_equal(env->file_write(env, "/d/catalog.tmcat", imported, sizeof imported - 1, NULL), 0);
    TM_FAIL_EACH_ALLOC(rc = parse_once_and_finish());
    TM_FAIL_EACH_ALLOC(rc = load_once(env));
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_parsing), TM_TEST(test_round_trip), TM_TEST(test_rows_of_the_same_key_replace),
             TM_TEST(test_imports_on_top), TM_TEST(test_old_prices_are_not_laid_over), TM_TEST(test_bad_files),
             TM_TEST(test_files_of_another_kind), TM_TEST(test_gpus_have_many_names), TM_TEST(test_flops),
             TM_TEST(test_prices_and_flopp), TM_TEST(test_what_is_shipped), TM_TEST(test_every_type_is_for_sale),
             TM_TEST(test_loading_with_the_users_file), TM_TEST(test_without_memory))
