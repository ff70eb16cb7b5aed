#include "workload/compute.h"

#include "base/random.h"
#include "workload/test/workload_helpers.h"

enum { CELLS_MAX = 200 };

static const char *const networks[] = {"resnet50", "resnet152", "vgg19", "mobilenet_v2", "gpt2-124m", "gpt2-355m"};

static struct tm_network network_of(const char *name)
{
    struct tm_model model;
    model_from(name, &model);
    struct tm_network network = tm_network_of(model.layers, model.layer_count);
    tm_model_deinit(&model);
    return network;
}

static struct tm_compute__curve curve_of(const struct tm_compute_model *model, const struct tm_network *network,
                                         const struct tm_gpu_figures *gpu, enum tm_precision precision)
{
    struct tm_compute__curve curve;
    struct tm_error e = {0};
    int rc = tm_compute__curve(model, network, gpu, precision, &curve, &e);
    assert_row(rc == 0, "%s", e.text);
    return curve;
}

/* ---- networks ---- */

static void test_network_of_layers(void **state)
{
    (void)state;
    static const struct tm_layer layers[] = {
        {.kind = TM_LAYER_conv, .params = 1, .forward_flops = 10, .traffic_values = 100, .ops = 2},
        {.kind = TM_LAYER_depthwise, .params = 2, .forward_flops = 20, .traffic_values = 200, .ops = 3},
        {.kind = TM_LAYER_matmul, .params = 4, .forward_flops = 40, .traffic_values = 400, .ops = 5},
        {.kind = TM_LAYER_block, .params = 8, .forward_flops = 80, .traffic_values = 800, .ops = 7},
    };
    struct tm_network network = tm_network_of(layers, TM_COUNT(layers));
    assert_true(network.forward.conv_flops == 30 && network.forward.matmul_flops == 120);
    assert_true(network.params == 15 && network.forward.traffic_values == 1500 && network.ops == 17);
    network = tm_network_of(layers, 0);
    assert_true(network.forward.conv_flops == 0 && network.ops == 0);
}

/* A guess from totals may be off, but not by an order of magnitude for transformers. */
static void test_network_of_totals(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2-124m", "gpt2-355m", "gpt2-774m", "gpt2-1.5b", "vit_b_16"};
    for (size_t i = 0; i < TM_COUNT(names); i++) {
        struct tm_network real = network_of(names[i]);
        struct tm_network guess =
            tm_network__of_totals(real.params, 3 * (real.forward.matmul_flops + real.forward.conv_flops) / 1e9);
        assert_row(close_to(guess.forward.matmul_flops, real.forward.matmul_flops + real.forward.conv_flops, 1e-9),
                   "%s", names[i]);
        assert_row(guess.params == real.params, "%s", names[i]);
        double traffic = guess.forward.traffic_values / real.forward.traffic_values;
        double ops = guess.ops / real.ops;
        assert_row(traffic > 1.0 / 4 && traffic < 4, "%s: traffic guessed %.2f times", names[i], traffic);
        assert_row(ops > 1.0 / 4 && ops < 4, "%s: ops guessed %.2f times", names[i], ops);
    }
}

/* ---- the curve ---- */

static void test_monotone_in_batch(void **state)
{
    (void)state;
    struct tm_compute_model prior = tm_compute_prior();
    struct tm_gpu_figures gpu = h200();
    for (size_t i = 0; i < TM_COUNT(networks); i++) {
        struct tm_network network = network_of(networks[i]);
        for (int p = 0; p < TM_PRECISION_COUNT; p++) {
            struct tm_compute__curve curve = curve_of(&prior, &network, &gpu, (enum tm_precision)p);
            double before = 0;
            for (int batch = 1; batch <= 4096; batch = batch * 3 / 2 + 1) {
                double step = tm_compute__step_ms(&curve, batch).mean;
                assert_row(step > before, "%s %s batch %d: %g after %g", networks[i], tm_precision_names[p], batch,
                           step, before);
                before = step;
            }
            assert_row(close_to(before, curve.base_ms + curve.sample_ms * 3889, 0.7), "%s: %g", networks[i], before);
        }
    }
}

/* Batches too small for the GPU cost what the host needs for its launches, and no less. */
static void test_floor(void **state)
{
    (void)state;
    struct tm_compute_model prior = tm_compute_prior();
    struct tm_gpu_figures gpu = h200();
    for (size_t i = 0; i < TM_COUNT(networks); i++) {
        struct tm_network network = network_of(networks[i]);
        struct tm_compute__curve curve = curve_of(&prior, &network, &gpu, TM_BF16);
        for (double batch = 0.001; batch < 10000; batch *= 2) {
            double gpu_ms = curve.base_ms + curve.sample_ms * batch;
            double step = tm_compute__step_ms(&curve, batch).mean;
            double high = fmax(gpu_ms, curve.floor_ms);
            assert_row(step >= high && step <= 1.12 * high, "%s: %g of %g", networks[i], step, high);
            if (gpu_ms < 0.4 * curve.floor_ms)
                assert_row(step < 1.01 * curve.floor_ms, "%s: not at the floor", networks[i]);
        }
    }
    struct tm_compute__curve nothing = {0};
    assert_true(tm_compute__step_ms(&nothing, 1).mean == 0);
}

static void test_faster_gpus_are_faster(void **state)
{
    (void)state;
    struct tm_compute_model prior = tm_compute_prior();
    struct tm_gpu_figures fast = h200();
    struct tm_gpu_figures slow = v100();
    for (size_t i = 0; i < TM_COUNT(networks); i++) {
        struct tm_network network = network_of(networks[i]);
        struct tm_compute__curve a = curve_of(&prior, &network, &fast, TM_FP16);
        struct tm_compute__curve b = curve_of(&prior, &network, &slow, TM_FP16);
        struct tm_compute__curve c = curve_of(&prior, &network, &slow, TM_FP32);
        assert_row(a.sample_ms < b.sample_ms && b.sample_ms < c.sample_ms, "%s", networks[i]);
        assert_row(a.base_ms < b.base_ms && a.floor_ms == b.floor_ms, "%s", networks[i]);
    }
}

/* Of 8 bits there are matrix products, and neither convolutions nor attention. */
static void test_products_of_8_bits(void **state)
{
    (void)state;
    struct tm_compute_model prior = tm_compute_prior();
    struct tm_gpu_figures gpu = h200();
    struct tm_network products = {.forward = {.matmul_flops = 1e12}};
    struct tm_network attention = {.forward = {.attention_flops = 1e12, .attention_scores = 1e9}};
    struct tm_network conv = {.forward = {.conv_flops = 1e12, .traffic_values = 1e8}};
    const struct {
        const struct tm_network *network;
        double faster;
    } rows[] = {{&products, gpu.flops[TM_FP8] / gpu.flops[TM_BF16]}, {&attention, 1}, {&conv, 1}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double ms_16 = curve_of(&prior, rows[i].network, &gpu, TM_BF16).sample_ms;
        double ms_8 = curve_of(&prior, rows[i].network, &gpu, TM_FP8).sample_ms;
        assert_row(close_to(ms_16, ms_8 * rows[i].faster, 1e-9), "row %zu: %g and %g", i, ms_16, ms_8);
    }
    assert_true(rows[0].faster > 1.5);
    gpu.flops[TM_BF16] = 0; /* nobody said it: half of the rate of 8 bits */
    double half = curve_of(&prior, &conv, &gpu, TM_FP8).sample_ms;
    gpu.flops[TM_BF16] = gpu.flops[TM_FP8] / 2;
    assert_true(close_to(half, curve_of(&prior, &conv, &gpu, TM_BF16).sample_ms, 1e-9));
}

static void test_missing_precision(void **state)
{
    (void)state;
    static const enum tm_precision missing[] = {TM_TF32, TM_BF16, TM_FP8};
    struct tm_compute_model prior = tm_compute_prior();
    struct tm_network network = network_of("resnet50");
    struct tm_gpu_figures gpu = v100();
    struct tm_compute__curve curve = {.floor_ms = 77};
    struct tm_error e = {0};
    for (size_t i = 0; i < TM_COUNT(missing); i++) {
        int rc = tm_compute__curve(&prior, &network, &gpu, missing[i], &curve, &e);
        assert_row(rc == -(int)TM_EINPUT, "%s: %d", tm_precision_names[missing[i]], rc);
        assert_row(strstr(e.text, "V100 has no ") != NULL, "%s", e.text);
        assert_row(strstr(e.text, tm_precision_names[missing[i]]) != NULL, "%s", e.text);
    }
    gpu.memory_bytes_s = NAN;
    assert_int_equal(tm_compute__curve(&prior, &network, &gpu, TM_FP32, &curve, &e), -(int)TM_EINPUT);
    assert_true(curve.floor_ms == 77);
}

static void test_interval(void **state)
{
    (void)state;
    struct tm_compute_model prior = tm_compute_prior();
    struct tm_gpu_figures gpu = h200();
    struct tm_network network = network_of("resnet50");
    struct tm_compute__curve curve = curve_of(&prior, &network, &gpu, TM_BF16);
    for (int batch = 1; batch <= 1024; batch *= 2) {
        struct tm_estimate step = tm_compute__step_ms(&curve, batch);
        assert_row(step.p10 < step.mean && step.mean < step.p90, "batch %d", batch);
        assert_row(close_to(log(step.p90 / step.mean), 1.2816 * prior.product_spread, 1e-3), "batch %d", batch);
    }
    curve.gpu_spread = 0.01; /* each end has the spread of what sets the pace */
    curve.floor_spread = 0.2;
    struct tm_estimate small = tm_compute__step_ms(&curve, 0.01);
    struct tm_estimate large = tm_compute__step_ms(&curve, 4096);
    assert_true(close_to(log(small.p90 / small.mean), 1.2816 * 0.2, 0.02));
    assert_true(close_to(log(large.p90 / large.mean), 1.2816 * 0.01, 0.02));
}

/* ---- learning ---- */

/* A world that is not the prior: shares, launches and the host's time are all moved. */
static struct tm_compute_model other_world(void)
{
    struct tm_compute_model model = tm_compute_prior();
    static const double moved[TM_COMPUTE_UNKNOWNS] = {0.3, -0.3, 0.2, -0.2, 0.3, 0.1, -0.4,
                                                      0.5, -0.3, 0.3, -0.2, 0.2, 0.2};
    for (size_t i = 0; i < TM_COMPUTE_UNKNOWNS; i++)
        model.x[i] += moved[i];
    return model;
}

static size_t make_cells(const struct tm_compute_model *world, struct tm_compute_cell cells[CELLS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < TM_COUNT(networks); i++) {
        for (int batch = 1; batch <= 1024; batch *= 2) {
            for (int p = 0; p < 2; p++) {
                struct tm_compute_cell cell = {.gpu = h200(), .precision = p == 0 ? TM_BF16 : TM_TF32, .batch = batch};
                cell.network = network_of(networks[i]);
                struct tm_compute__curve curve = curve_of(world, &cell.network, &cell.gpu, cell.precision);
                cell.step_ms = tm_compute__step_ms(&curve, batch).mean;
                assert_true(count < CELLS_MAX);
                cells[count++] = cell;
            }
        }
    }
    return count;
}

/* The largest share by which predictions of the learned model lie off the clean cells. */
static double worst_error(const struct tm_compute_model *model, const struct tm_compute_cell *cells, size_t count)
{
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        struct tm_compute__curve curve = curve_of(model, &cells[i].network, &cells[i].gpu, cells[i].precision);
        worst = fmax(worst, fabs(tm_compute__step_ms(&curve, cells[i].batch).mean / cells[i].step_ms - 1));
    }
    return worst;
}

static double mean_error(const struct tm_compute_model *model, const struct tm_compute_cell *cells, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += worst_error(model, cells + i, 1);
    return sum / (double)count;
}

/* Cells that the model itself made are met within 5%, the worst of them within 10%. What is left is the pull of the
 * prior, on purpose: the cells of a network err together, so that one alone counts for little. */
static void test_learning_recovers(void **state)
{
    (void)state;
    static struct tm_compute_cell cells[CELLS_MAX];
    struct tm_compute_model world = other_world();
    struct tm_compute_model prior = tm_compute_prior();
    struct tm_compute_model learned;
    struct tm_error e = {0};
    size_t count = make_cells(&world, cells);
    int rc = tm_compute_learn(cells, count, &learned, &e);
    assert_row(rc == 0, "%s", e.text);
    assert_true(worst_error(&prior, cells, count) > 0.3);
    double mean = mean_error(&learned, cells, count);
    double worst = worst_error(&learned, cells, count);
    assert_row(mean < 0.05 && worst < 0.10, "off by %g, up to %g", mean, worst);
    assert_true(learned.product_spread < prior.product_spread);
}

/* 5% of the cells are ten times too slow: the others are still met within 5%, the worst of them within 15%. */
static void test_learning_survives_wild_cells(void **state)
{
    (void)state;
    static struct tm_compute_cell clean[CELLS_MAX];
    static struct tm_compute_cell wild[CELLS_MAX];
    struct tm_compute_model world = other_world();
    struct tm_compute_model learned;
    size_t count = make_cells(&world, clean);
    memcpy(wild, clean, sizeof wild);
    for (size_t i = 7; i < count; i += 20)
        wild[i].step_ms *= 10;
    assert_int_equal(tm_compute_learn(wild, count, &learned, NULL), 0);
    double mean = mean_error(&learned, clean, count);
    double worst = worst_error(&learned, clean, count);
    assert_row(mean < 0.05 && worst < 0.15, "off by %g, up to %g", mean, worst);
}

static void test_learning_from_nothing(void **state)
{
    (void)state;
    struct tm_compute_model prior = tm_compute_prior();
    struct tm_compute_model learned = {0};
    assert_int_equal(tm_compute_learn(NULL, 0, &learned, NULL), 0);
    for (size_t i = 0; i < TM_COMPUTE_UNKNOWNS; i++)
        assert_row(learned.x[i] == prior.x[i], "unknown %zu", i);
    assert_true(close_to(learned.product_spread, prior.product_spread, 1e-12));
    struct tm_compute_cell bad = {.network = network_of("vgg19"), .gpu = v100(), .precision = TM_BF16, .batch = 1};
    bad.step_ms = 1; /* a cell that cannot be: the GPU has no such mode */
    struct tm_compute_model untouched = {.product_spread = 5};
    assert_int_equal(tm_compute_learn(&bad, 1, &untouched, NULL), -(int)TM_EINPUT);
    assert_true(untouched.product_spread == 5);
}

/* What was learned on one GPU at one precision moves the others along: the predictions for a GPU and a precision that
 * were never profiled stay those of a working GPU, between its peak and a tenth of it. */
static void test_unprofiled_gpu_and_precision(void **state)
{
    (void)state;
    static struct tm_compute_cell cells[CELLS_MAX];
    struct tm_compute_model world = other_world();
    struct tm_compute_model learned;
    struct tm_gpu_figures gpu = v100();
    assert_int_equal(tm_compute_learn(cells, make_cells(&world, cells), &learned, NULL), 0);
    for (size_t i = 0; i < TM_COUNT(networks); i++) {
        struct tm_network network = network_of(networks[i]);
        struct tm_compute__curve curve = curve_of(&learned, &network, &gpu, TM_FP16);
        double ideal_ms = 3 * (network.forward.conv_flops + network.forward.matmul_flops) / gpu.flops[TM_FP16] * 1e3 +
                          3 * network.forward.traffic_values * 2 / gpu.memory_bytes_s * 1e3;
        assert_row(curve.sample_ms > ideal_ms && curve.sample_ms < 10 * ideal_ms, "%s: %g of %g", networks[i],
                   curve.sample_ms, ideal_ms);
        struct tm_compute__curve truth = curve_of(&world, &network, &gpu, TM_FP16);
        assert_row(close_to(curve.sample_ms, truth.sample_ms, 0.1), "%s: %g, in that world %g", networks[i],
                   curve.sample_ms, truth.sample_ms);
    }
}

/* ---- tuning ---- */

/* Two exact measurements of a network that is slower than all others: the curve goes through both within the noise of
 * a measurement (8% where the host paces, 2% where the GPU does), and is right between them. */
static void test_tune_passes_through(void **state)
{
    (void)state;
    static const double factors[][2] = {{1, 1}, {1.1, 1.5}, {0.9, 0.6}, {1.0, 2.0}, {0.85, 1.2}};
    static const int batches[] = {1, 1024};
    struct tm_compute_model prior = tm_compute_prior();
    struct tm_gpu_figures gpu = h200();
    struct tm_network network = network_of("resnet50");
    for (size_t i = 0; i < TM_COUNT(factors); i++) {
        struct tm_compute__curve curve = curve_of(&prior, &network, &gpu, TM_BF16);
        struct tm_compute__curve truth = curve;
        truth.floor_ms *= factors[i][0];
        truth.base_ms *= factors[i][1];
        truth.sample_ms *= factors[i][1];
        double ms[2] = {tm_compute__step_ms(&truth, 1).mean, tm_compute__step_ms(&truth, 1024).mean};
        assert_int_equal(tm_compute__tune(&curve, TM_COMPUTE_KNOWN_HOST, batches, ms, 2, NULL), 0);
        double low = tm_compute__step_ms(&curve, 1).mean / ms[0];
        double high = tm_compute__step_ms(&curve, 1024).mean / ms[1];
        assert_row(fabs(low - 1) < 0.08 && fabs(high - 1) < 0.02, "row %zu: %g and %g times", i, low, high);
        double between = tm_compute__step_ms(&curve, 512).mean / tm_compute__step_ms(&truth, 512).mean;
        assert_row(fabs(between - 1) < 0.1, "row %zu: %g times between", i, between);
        assert_row(curve.floor_spread < prior.product_spread && curve.gpu_spread < 0.1, "row %zu", i);
    }
}

/* One measurement tells of its own end of the curve only. */
static void test_tune_shrinks_the_spread_it_saw(void **state)
{
    (void)state;
    struct tm_compute_model prior = tm_compute_prior();
    struct tm_gpu_figures gpu = h200();
    struct tm_network network = network_of("resnet50");
    struct tm_compute__curve fresh = curve_of(&prior, &network, &gpu, TM_BF16);
    for (int end = 0; end < 2; end++) {
        struct tm_compute__curve curve = fresh;
        int batch = end == 0 ? 1 : 2048;
        double ms = tm_compute__step_ms(&curve, batch).mean;
        assert_int_equal(tm_compute__tune(&curve, TM_COMPUTE_KNOWN_HOST, &batch, &ms, 1, NULL), 0);
        assert_row((curve.floor_spread < fresh.floor_spread) == (end == 0), "batch %d", batch);
        assert_row((curve.gpu_spread < fresh.gpu_spread) == (end == 1), "batch %d", batch);
    }
}

static void test_tune_refuses(void **state)
{
    (void)state;
    static const struct {
        int batch;
        double ms;
    } rows[] = {{0, 1}, {-1, 1}, {1, 0}, {1, -1}, {1, NAN}};
    const struct tm_compute__curve fresh = {.floor_ms = 1, .base_ms = 2, .sample_ms = 3};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_compute__curve curve = fresh;
        struct tm_error e = {0};
        int batches[] = {4, rows[i].batch};
        double ms[] = {15, rows[i].ms};
        assert_row(tm_compute__tune(&curve, TM_COMPUTE_KNOWN_HOST, batches, ms, 2, &e) == -(int)TM_EINPUT, "row %zu",
                   i);
        assert_error_has(e, "measured step 2");
        assert_row(memcmp(&curve, &fresh, sizeof curve) == 0, "row %zu: the curve was moved", i);
    }
    struct tm_compute__curve curve = fresh;
    assert_int_equal(tm_compute__tune(&curve, TM_COMPUTE_KNOWN_HOST, NULL, NULL, 0, NULL), 0);
    assert_memory_equal(&curve, &fresh, sizeof curve);
}

TM_TEST_MAIN(TM_TEST(test_network_of_layers), TM_TEST(test_network_of_totals), TM_TEST(test_monotone_in_batch),
             TM_TEST(test_floor), TM_TEST(test_faster_gpus_are_faster), TM_TEST(test_products_of_8_bits),
             TM_TEST(test_missing_precision), TM_TEST(test_interval), TM_TEST(test_learning_recovers),
             TM_TEST(test_learning_survives_wild_cells), TM_TEST(test_learning_from_nothing),
             TM_TEST(test_unprofiled_gpu_and_precision), TM_TEST(test_tune_passes_through),
             TM_TEST(test_tune_shrinks_the_spread_it_saw), TM_TEST(test_tune_refuses))
