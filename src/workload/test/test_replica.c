#include "workload/replica.h"

#include "workload/profile_report.h"
#include "workload/test/workload_helpers.h"

#define HEAD "tidemill-profile 1\n"
#define STEPS                                                                                                          \
    "[step]\nnetwork,gpu,precision,micro_batch,forward_ms,backward_ms,optimizer_ms,data_ms,other_ms,step_ms_p10,"      \
    "step_ms_p90,micro_batches,busy_cores,cores\n"
#define GRADIENTS "[gradient]\nnetwork,bytes,ready\n"

/* All of the rate, 1 ms a hop, no handling, no waiting, no burst worth the name. */
static struct tm_comm_model plain_model(void)
{
    return (struct tm_comm_model){.x = {50, 0, -50, 0, -50}, .spread = 0.1};
}

struct fixture {
    struct tm_profile profile;
    struct tm_comm_model comm;
    struct tm_replica_request request;
};

static void set_up(struct fixture *fixture, const char *text)
{
    struct tm_error e = {0};
    tm_profile_init(&fixture->profile);
    int rc = tm_profile_parse("p", text, strlen(text), &fixture->profile, &e);
    assert_row(rc == 0, "%s", e.text);
    fixture->comm = plain_model();
    fixture->request = (struct tm_replica_request){.profile = &fixture->profile,
                                                   .network = "net",
                                                   .gpu = "cpu",
                                                   .precision = TM_FP32,
                                                   .comm = &fixture->comm,
                                                   .workers = 1};
}

static struct tm_replica_prediction predict(const struct fixture *fixture)
{
    struct tm_replica_prediction prediction;
    struct tm_error e = {0};
    int rc = tm_replica_predict(&fixture->request, &prediction, &e);
    assert_row(rc == 0, "%s", e.text);
    double sum = prediction.compute_ms + prediction.exposed_ms + prediction.optimizer_ms + prediction.data_ms +
                 prediction.other_ms;
    assert_true(close_to(sum, prediction.step_ms.mean, 1e-12));
    assert_true(prediction.step_ms.p10 <= prediction.step_ms.mean && prediction.step_ms.mean <= prediction.step_ms.p90);
    return prediction;
}

static const char job[] = HEAD STEPS "net,cpu,fp32,8,10,20,3,1,2,,,,1,2\n" GRADIENTS "net,2000000,0.5\nnet,1000000,1\n";

/* One worker takes what was measured; several wait for their gradients, by hand. */
static void test_by_hand(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, job);
    struct tm_replica_prediction p = predict(&f);
    assert_true(p.step_ms.mean == 36 && p.compute_ms == 30 && p.exposed_ms == 0 && p.profiled);
    assert_true(close_to(p.samples_per_s, 8 / 0.036, 1e-12) && p.batch == 8 && p.micro_batches == 1);
    /* Two workers at 100 Mbit/s: 2 MB (160 ms and two hops) ready at 13 + 10 ms, then 1 MB: 80 ms and two hops. */
    f.request.workers = 2;
    f.request.rate_bit_s = 1e8;
    p = predict(&f);
    assert_row(close_to(p.step_ms.mean, 23 + 162 + 82 + 3, 1e-6), "two workers: %g", p.step_ms.mean);
    assert_true(p.buckets == 2 && p.grad_bytes == 3e6);
    /* Four: one and a half times the bytes, six hops. */
    f.request.workers = 4;
    p = predict(&f);
    assert_row(close_to(p.step_ms.mean, 23 + 246 + 126 + 3, 1e-6), "four workers: %g", p.step_ms.mean);
    /* A link so fast that all but the last bucket hides. */
    f.request.rate_bit_s = 1e12;
    p = predict(&f);
    assert_row(close_to(p.step_ms.mean, 33 + 6 + 3, 1e-3), "a fast link: %g", p.step_ms.mean);
    tm_profile_deinit(&f.profile);
}

/* Workers that need more processors than there are slow each other down. */
static void test_crowding(void **state)
{
    (void)state;
    static const struct {
        int per_host;
        double crowding;
    } rows[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1.5}, {4, 2}, {8, 4}};
    struct fixture f;
    set_up(&f, job);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        f.request.per_host = rows[i].per_host;
        struct tm_replica_prediction p = predict(&f);
        assert_row(p.crowding == rows[i].crowding && p.step_ms.mean == 36 * rows[i].crowding, "%d on a machine: %g",
                   rows[i].per_host, p.crowding);
    }
    tm_profile_deinit(&f.profile);
    set_up(&f, HEAD STEPS "net,cpu,fp32,8,10,20,3,1,2,,,,0.1,2\n"); /* it mostly waits for a device */
    f.request.per_host = 8;
    assert_true(predict(&f).crowding == 1);
    tm_profile_deinit(&f.profile);
}

/* Steps that vary make everybody wait for the slowest, the more the more there are. */
static void test_waiting_for_the_slowest(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, HEAD STEPS "net,cpu,fp32,8,10,20,3,1,2,35,37,,1,2\n" GRADIENTS "net,8,1\n");
    f.request.rate_bit_s = 1e12;
    double last = predict(&f).compute_ms;
    assert_true(last == 30);
    for (int workers = 2; workers <= 64; workers *= 2) {
        f.request.workers = workers;
        double ms = predict(&f).compute_ms;
        assert_row(ms > last && ms < 33, "%d workers: %g", workers, ms);
        last = ms;
    }
    double spread = log(37.0 / 35) / (2 * 1.2815515655446004);
    f.request.workers = 2; /* the larger of two normals lies 0.564 above their mean; Blom says 0.589 */
    assert_true(close_to(predict(&f).compute_ms, 30 * (1 + 0.589 * spread), 1e-3));
    tm_profile_deinit(&f.profile);
}

/* Micro-batches: only the last backward pass overlaps. */
static void test_accumulation(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, HEAD STEPS "net,cpu,fp32,8,10,20,3,1,2,,,4,1,2\n" GRADIENTS "net,2000000,0.5\nnet,1000000,1\n");
    struct tm_replica_prediction p = predict(&f);
    assert_true(p.micro_batches == 4 && p.step_ms.mean == 4 * 30 + 6);
    f.request.workers = 2;
    f.request.rate_bit_s = 1e8;
    p = predict(&f);
    assert_row(close_to(p.step_ms.mean, 3 + 90 + 10 + 10 + 162 + 82 + 3, 1e-6), "%g", p.step_ms.mean);
    f.request.micro_batches = 2;
    assert_true(close_to(predict(&f).step_ms.mean, p.step_ms.mean - 60, 1e-6));
    tm_profile_deinit(&f.profile);
}

/* Batches that were not profiled, on processors: a line, or in proportion. */
static void test_other_batches(void **state)
{
    (void)state;
    static const struct {
        const char *steps;
        int batch;
        double passes_ms;
    } rows[] = {
        {"net,cpu,fp32,8,10,20,3,,,,,,,\n", 16, 60},                                    /* one: in proportion */
        {"net,cpu,fp32,8,10,20,3,,,,,,,\n", 4, 15},                                     /* one: in proportion */
        {"net,cpu,fp32,8,10,20,3,,,,,,,\nnet,cpu,fp32,16,16,34,3,,,,,,,\n", 12, 40},    /* 10 + 2.5 b */
        {"net,cpu,fp32,8,10,20,3,,,,,,,\nnet,cpu,fp32,16,16,34,3,,,,,,,\n", 32, 90},    /* beyond them */
        {"net,cpu,fp32,8,10,20,3,,,,,,,\nnet,cpu,fp32,16,10,20,3,,,,,,,\n", 12, 30},    /* no slower with more */
        {"net,cpu,fp32,8,10,20,3,,,,,,,\nnet,cpu,bf16,16,1,2,3,,,,,,,\n", 16, 60},      /* another precision */
        {"net,cpu,fp32,8,10,20,3,,,,,,,\nother,cpu,fp32,16,1,2,3,,,,,,,\n", 16, 60},    /* another network */
        {"net,cpu,fp32,8,10,20,3,,,,,,,\nnet,H200,fp32,16,0.1,0.2,3,,,,,,,\n", 16, 60}, /* another device */
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct fixture f;
        struct tm_text text;
        tm_text_init(&text, 4096);
        tm_text_printf(&text, HEAD STEPS "%s", rows[i].steps);
        set_up(&f, tm_text_string(&text));
        f.request.batch = rows[i].batch;
        struct tm_replica_prediction p = predict(&f);
        assert_row(!p.profiled && close_to(p.compute_ms, rows[i].passes_ms, 1e-9), "row %zu: %g", i, p.compute_ms);
        assert_row(p.optimizer_ms == 3 && p.step_ms.p90 > 1.02 * p.step_ms.mean, "row %zu", i);
        tm_text_deinit(&text);
        tm_profile_deinit(&f.profile);
    }
}

static void test_wrong_requests(void **state)
{
    (void)state;
    struct fixture f;
    struct tm_replica_prediction p;
    struct tm_error e = {0};
    set_up(&f, HEAD STEPS "net,cpu,fp32,8,10,20,3,1,2,,,,1,2\n");
    f.request.workers = 2;
    assert_int_equal(tm_replica_predict(&f.request, &p, &e), -(int)TM_EINPUT);
    assert_error_has(e, "bandwidth of the links is not known");
    f.request.rate_bit_s = 1e9;
    assert_int_equal(tm_replica_predict(&f.request, &p, &e), -(int)TM_EINPUT);
    assert_error_has(e, "no table [gradient] of net");
    f.request.workers = 0;
    assert_int_equal(tm_replica_predict(&f.request, &p, &e), -(int)TM_EINPUT);
    f.request.workers = 1;
    f.request.precision = TM_BF16;
    assert_int_equal(tm_replica_predict(&f.request, &p, &e), -(int)TM_EINPUT);
    assert_error_has(e, "no steps of net on cpu in bf16");
    tm_profile_deinit(&f.profile);
}

/* ---- a GPU of the catalogue ---- */

/* Three batches of each network known, the rest predicted: what was measured on an H200. */
static void test_batches_of_an_h200(void **state)
{
    (void)state;
    static const char *const networks[] = {"gpt2-124m", "gpt2-355m", "resnet50", "resnet152", "vgg19", "mobilenet_v2"};
    struct tm_profile all;
    struct tm_compute_model compute = tm_compute_prior();
    struct tm_gpu_figures gpu = h200();
    double sum = 0;
    size_t cells = 0;
    skip_without(H200_STEPS);
    profile_from(H200_STEPS, &all);
    for (size_t n = 0; n < TM_COUNT(networks); n++) {
        for (int p = 0; p < TM_PRECISION_COUNT; p++) {
            struct tm_profile_step rows[32];
            struct tm_model model;
            size_t count = 0;
            size_t length = strlen(networks[n]);
            for (size_t i = 0; i < all.step_count && count < 32; i++) {
                const struct tm_profile_step *step = &all.steps[i];
                bool same = strncmp(step->network, networks[n], length) == 0 &&
                            (step->network[length] == '\0' || step->network[length] == '-');
                if (same && (int)step->precision == p) rows[count++] = *step;
            }
            if (count < 5) continue;
            model_from(networks[n], &model);
            struct tm_network layers = tm_network_of(model.layers, model.layer_count);
            struct tm_profile_step known[] = {rows[0], rows[count / 2], rows[count - 1]}; /* rows ascend */
            struct tm_profile profile = {.steps = known, .step_count = 3};
            struct tm_replica_request request = {.profile = &profile,
                                                 .network = rows[0].network,
                                                 .gpu = rows[0].gpu,
                                                 .precision = (enum tm_precision)p,
                                                 .figures = &gpu,
                                                 .layers = &layers,
                                                 .compute = &compute,
                                                 .workers = 1};
            for (size_t i = 1; i + 1 < count; i++) {
                struct tm_replica_prediction prediction;
                if (i == count / 2) continue;
                request.batch = rows[i].micro_batch;
                assert_int_equal(tm_replica_predict(&request, &prediction, NULL), 0);
                sum += fabs(prediction.step_ms.mean / tm_profile_step_ms(&rows[i]) - 1);
                cells++;
            }
            tm_model_deinit(&model);
        }
    }
    assert_row(cells > 40 && sum / (double)cells < 0.06, "%zu cells: MAPE %.1f%%", cells, 100 * sum / (double)cells);
    tm_profile_deinit(&all);
}

/* ---- buckets of whole tensors ---- */

static void test_tensor_buckets(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    static const struct {
        struct tm_comm_bucket tensors[5];
        size_t count;
        struct tm_comm_bucket buckets[4];
        size_t made;
    } rows[] = {
        {{{100, 0.5}}, 1, {{100, 0.5}}, 1},
        {{{MIB, 0.1}, {MIB, 0.2}}, 2, {{MIB, 0.1}, {MIB, 0.2}}, 2}, /* the first closes at 1 MiB, not beyond */
        {{{MIB - 1, 0.1}, {5 * MIB, 0.2}, {1, 1}}, 3, {{6 * MIB - 1, 0.2}, {1, 1}}, 2}, /* tensors are not cut */
        {{{MIB, 0.9}, {24 * MIB, 0.2}, {MIB, 0.1}, {7, 1}}, 4, {{MIB, 0.9}, {25 * MIB, 0.2}, {7, 1}}, 3},
        {{{0, 0.1}}, 0, {{0, 0}}, 0},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_comm_bucket got[8];
        size_t made = tm_comm__tensor_buckets(rows[i].tensors, rows[i].count, got, 8);
        assert_row(made == rows[i].made, "row %zu: %zu buckets", i, made);
        for (size_t k = 0; k < made; k++)
            assert_row(got[k].bytes == rows[i].buckets[k].bytes && got[k].ready == rows[i].buckets[k].ready,
                       "row %zu, bucket %zu: %g at %g", i, k, got[k].bytes, got[k].ready);
    }
    struct tm_comm_bucket one;
    assert_int_equal(tm_comm__tensor_buckets(rows[3].tensors, 4, &one, 1), 1); /* no room: all in one */
    assert_true(one.bytes == 26 * MIB + 7 && one.ready == 1);
}

/* ---- the report ---- */

static const char told[] = HEAD STEPS "net,cpu,fp32,8,10,20,3,9,10,40,60,,1,2\n"
                                      "[layer]\nnetwork,name,kind,params,forward_flops,traffic_values,saved_values,"
                                      "output_values,ops,forward_ms,backward_ms\n"
                                      "net,a,norm,1,1,1,1,1,1,1,\nnet,b,block,1,1,1,1,1,1,6,16\n"
                                      "net,c,block,1,1,1,1,1,1,2,2\nother,d,block,1,1,1,1,1,1,99,99\n" GRADIENTS
                                      "net,2000000,0.5\nnet,6000000,1\n";

static void test_report(void **state)
{
    (void)state;
    struct tm_profile profile;
    struct tm_profile_report report;
    struct tm_error e = {0};
    static const char *const words[] = {"waits for data 17%",      "19% of a step is outside",
                                        "One layer (b) takes 81%", "75% of the gradients are ready only when",
                                        "Steps vary by 16%",       "Only one batch size is known:"};
    tm_profile_init(&profile);
    assert_row(tm_profile_parse("p", told, strlen(told), &profile, &e) == 0, "%s", e.text);
    assert_int_equal(tm_profile_report(&profile, "net", &report, &e), 0);
    assert_true(report.step_ms == 52 && close_to(report.samples_per_s, 8 / 0.052, 1e-12));
    assert_true(report.layer_count == 3 && report.layers_in_all == 3 && report.layers_ms == 27);
    assert_string_equal(report.layers[0]->layer.name, "b");
    assert_string_equal(report.layers[2]->layer.name, "a");
    assert_true(report.buckets == 2 && report.first_ready == 0.5 && report.hidden_share == 0.25);
    assert_int_equal(report.advice_count, TM_COUNT(words));
    for (size_t i = 0; i < TM_COUNT(words); i++)
        assert_row(strstr(report.advice[i], words[i]) != NULL, "%s", report.advice[i]);
    assert_int_equal(tm_profile_report(&profile, "none", &report, &e), -(int)TM_EINPUT);
    tm_profile_deinit(&profile);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    struct fixture f;
    struct tm_replica_prediction p;
    struct tm_profile_report report;
    struct tm_compute_model compute = tm_compute_prior();
    struct tm_gpu_figures gpu = h200();
    struct tm_network layers = tm_network__of_totals(1e6, 3);
    set_up(&f, told);
    f.request.workers = 2;
    f.request.rate_bit_s = 1e9;
    f.request.figures = &gpu;
    f.request.layers = &layers;
    f.request.compute = &compute;
    f.request.batch = 16;
    TM_FAIL_EACH_ALLOC(rc = tm_replica_predict(&f.request, &p, NULL));
    TM_FAIL_EACH_ALLOC(rc = tm_profile_report(&f.profile, "net", &report, NULL));
    tm_profile_deinit(&f.profile);
}

static void test_a_share_of_the_batch(void **state)
{
    (void)state;
    static const struct {
        int64_t samples;
        int workers, batch; /* 0: nobody says */
        int each, micro_batches;
    } rows[] = {{48, 2, 0, 24, 1}, {48, 2, 8, 8, 3}, {49, 2, 0, 25, 1},
                {49, 2, 8, 8, 4},  {4, 4, 0, 1, 1},  {3, 4, 0, 0, 0}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_replica_request request = {.workers = rows[i].workers, .batch = rows[i].batch};
        struct tm_error e = {0};
        int rc = tm_replica_share_batch(rows[i].samples, &request, &e);
        assert_row(rc == (rows[i].each > 0 ? 0 : -(int)TM_EUSAGE), "row %zu: %d", i, rc);
        assert_row(rc != 0 || (request.batch == rows[i].each && request.micro_batches == rows[i].micro_batches),
                   "row %zu: %d x %d", i, request.micro_batches, request.batch);
    }
}

TM_TEST_MAIN(TM_TEST(test_a_share_of_the_batch), TM_TEST(test_by_hand), TM_TEST(test_crowding),
             TM_TEST(test_waiting_for_the_slowest), TM_TEST(test_accumulation), TM_TEST(test_other_batches),
             TM_TEST(test_wrong_requests), TM_TEST(test_batches_of_an_h200), TM_TEST(test_tensor_buckets),
             TM_TEST(test_report), TM_TEST(test_failing_allocations))
