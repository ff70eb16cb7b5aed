/* Probed links: what is read, and what it does to a prediction. */
#include "workload/probed_links.h"

#include "workload/test/workload_helpers.h"

static int parse(const char *text, struct tm_probed_links *links, struct tm_error *e)
{
    return tm_probed_links__parse("links.csv", text, strlen(text), links, e);
}

static void test_reads(void **state)
{
    (void)state;
    struct tm_probed_links links;
    assert_int_equal(parse("a,b,mbit,latency_ms\n0,1,1000,0.2\n1,2,2000,0.4\n2,3,500,\n", &links, NULL), 0);
    assert_true(links.count == 3 && links.rate_bit_s == 5e8 && links.latency_ms == 0.4 && links.spread > 0.5);
    assert_int_equal(parse("mbit\n100\n", &links, NULL), 0);
    assert_true(links.count == 1 && links.rate_bit_s == 1e8 && isnan(links.latency_ms) && links.spread == 0);
}

/* What tidemill probe writes: a ring counts more than both ways, and those more than one. */
static void test_reads_a_probe(void **state)
{
    (void)state;
    struct tm_probed_links links;
    assert_int_equal(parse("from,to,mbit,latency_ms,both_mbit,streams_mbit,together_mbit\n"
                           "here,a:1,900,0.1,600,1200,700\na:1,here,900,0.1,650,1200,\n",
                           &links, NULL),
                     0);
    assert_true(links.count == 2 && links.rate_bit_s == 6.5e8 && links.latency_ms == 0.1);
    assert_int_equal(parse("mbit,together_mbit\n900,700\n", &links, NULL), 0);
    assert_true(links.rate_bit_s == 7e8);
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {{"rate\n3\n", "expected a header with the column mbit,"},
                {"mbit\n", "no links"},
                {"mbit\n-3\n", "links.csv:2: mbit: expected a number above 0, got \"-3\""},
                {"mbit\nnan\n", "mbit: expected a number above 0"},
                {"mbit,both_mbit\n3,-1\n", "both_mbit: expected a number above 0, got \"-1\""},
                {"mbit,latency_ms\n3,x\n", "latency_ms: expected a number above 0, got \"x\""}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_probed_links links;
        struct tm_error e = {0};
        assert_row(parse(rows[i].text, &links, &e) == -(int)TM_EINPUT, "%s", rows[i].text);
        assert_row(strstr(e.text, rows[i].says) != NULL, "%s: \"%s\"", rows[i].text, e.text);
    }
}

/* Slower links than the catalogue's make data parallelism slower, faster ones never do. */
static void test_moves_a_prediction(void **state)
{
    (void)state;
    struct tm_model model;
    struct tm_compute_model compute = tm_compute_prior();
    double before = INFINITY;
    model_from("vgg19", &model);
    static const char *const texts[] = {"mbit\n25000\n", "mbit\n5000\n", "mbit\n500\n", "mbit\n50\n"};
    for (size_t i = 0; i < TM_COUNT(texts); i++) {
        struct tm_fleet_group group = {
            .instance = "v", .gpu = v100(), .instances = 4, .gpus_per_node = 1, .network_bit_s = 1e10};
        struct tm_comm_model comm = tm_comm_gpus();
        struct tm_probed_links links;
        struct tm_prediction p;
        assert_int_equal(parse(texts[i], &links, NULL), 0);
        tm_probed_links_use(&links, &group, 1, &comm);
        struct tm_predict_request request = {.model = &model,
                                             .groups = &group,
                                             .group_count = 1,
                                             .precision = TM_FP16,
                                             .batch = 128,
                                             .pipelines = 4,
                                             .stages = 1,
                                             .compute = &compute,
                                             .comm = &comm};
        assert_int_equal(tm_predict(&request, &p, NULL), 0);
        assert_row(p.samples_per_s < before, "%s: %g after %g", texts[i], p.samples_per_s, before);
        before = p.samples_per_s;
    }
    tm_model_deinit(&model);
}

static void test_without_memory(void **state)
{
    (void)state;
    struct tm_probed_links links;
    TM_FAIL_EACH_ALLOC(rc = parse("mbit,latency_ms\n1,2\n3,4\n", &links, NULL));
}

TM_TEST_MAIN(TM_TEST(test_reads), TM_TEST(test_reads_a_probe), TM_TEST(test_refuses), TM_TEST(test_moves_a_prediction),
             TM_TEST(test_without_memory))
