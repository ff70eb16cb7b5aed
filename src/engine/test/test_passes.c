/* Loss and every gradient against finite differences of the same network in double precision, for both kernel classes,
 * with and without dropout, at sizes that fill vectors and at sizes that do not.
 *
 * Tolerance: fp32 rounds to 6e-8, sums here have a few hundred terms and pass some ten operations, so a gradient is
 * held to 2e-5 of the largest of its tensor (and the loss to 1e-5); central differences in double err by 1e-9.
 * builds: release asan */
#include "base/random.h"
#include "base/test/harness.h"
#include "engine/passes.h"
#include "engine/test/reference_gpt.h"

struct fixture {
    struct tm_network network;
    struct tm_pass pass;
    struct tm_blas blas;
    struct tm_layer_state *states;
    struct tm_gradients *gradients;
    struct tm_block_cache *caches;
    float *single;
    uint8_t *tokens;
    uint8_t *targets;
};

static float *floats(size_t count)
{
    float *memory = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    assert_non_null(memory);
    for (size_t i = 0; i < count; i++)
        memory[i] = NAN; /* what is read before it is written shows */
    return memory;
}

static void set_up(struct fixture *f, struct tm_network network, int samples, const struct tm_kernels *kernels)
{
    size_t layers = (size_t)tm_network_layers(&network);
    size_t rows = (size_t)samples * (size_t)network.ctx;
    size_t width = (size_t)network.width;
    *f = (struct fixture){.network = network};
    assert_int_equal(tm_network__check(&network, NULL), 0);
    assert_int_equal(tm_blas_open(tm_env_real(), tm_kernels__avx2.core, &f->blas, NULL), 0);
    f->states = calloc(layers, sizeof *f->states);
    f->gradients = calloc(layers, sizeof *f->gradients);
    f->caches = calloc(layers, sizeof *f->caches);
    f->tokens = calloc(rows, 1);
    f->targets = calloc(rows, 1);
    f->single = floats((256 + 4 * width + (size_t)network.ctx) * width);
    f->pass = (struct tm_pass){.network = &f->network,
                               .kernels = kernels,
                               .blas = &f->blas,
                               .samples = samples,
                               .seed = 0x123456789ABCU,
                               .step = 3,
                               .micro = 5,
                               .training = true,
                               .scratch = floats(tm_pass__scratch_floats(&network, samples))};
    struct tm_random random = tm_random_make(11, 0);
    for (size_t l = 0; l < layers; l++) {
        assert_int_equal(tm_layer_state__init(&f->states[l], &f->network, (int)l, NULL), 0);
        struct tm_layer_spec *spec = &f->states[l].spec;
        for (size_t t = 0; t < spec->tensor_count; t++) { /* larger than at the start, so that nothing is nearly 0 */
            for (size_t i = 0; i < spec->tensors[t].count; i++)
                f->states[l].weights[spec->tensors[t].offset + i] = (float)(tm_random_unit(&random) - 0.45) * 0.5F;
        }
        int32_t scales[TM_TENSORS_MAX] = {0};
        assert_int_equal(tm_gradients__init(&f->gradients[l], kernels, &f->states[l], TM_FAST, f->single, NULL), 0);
        tm_gradients__start(&f->gradients[l], scales);
        f->caches[l].input = floats(rows * width);
        tm_block_cache__lay(&f->caches[l], &f->network, samples, floats(tm_block_cache__floats(&network, samples)));
    }
    size_t wte = f->states[0].spec.tensors[0].count;
    memcpy(f->states[layers - 1].weights, f->states[0].weights, wte * sizeof(float));
    for (size_t r = 0; r < rows; r++) {
        f->tokens[r] = (uint8_t)tm_random_below(&random, 256);
        f->targets[r] = (uint8_t)tm_random_below(&random, 256);
    }
}

static void tear_down(struct fixture *f)
{
    for (int l = 0; l < tm_network_layers(&f->network); l++) {
        free(f->caches[l].input);
        free(f->caches[l].norm1);
        tm_gradients__deinit(&f->gradients[l]);
        tm_layer_state__deinit(&f->states[l]);
    }
    free(f->states);
    free(f->gradients);
    free(f->caches);
    free(f->tokens);
    free(f->targets);
    free(f->single);
    free(f->pass.scratch);
}

/* The loss, and all gradients into f->gradients. */
static double run(struct fixture *f)
{
    int head = f->network.blocks + 1;
    size_t rows = (size_t)f->pass.samples * (size_t)f->network.ctx;
    float *d = floats(rows * (size_t)f->network.width);
    tm_embed__forward(&f->pass, &f->states[0], f->tokens, f->caches[1].input);
    for (int l = 1; l < head; l++)
        tm_block__forward(&f->pass, &f->states[l], &f->caches[l], f->caches[l + 1].input);
    double loss = tm_head__loss(&f->pass, &f->states[head], f->caches[head].input, f->targets, d, &f->gradients[head]);
    for (int l = head - 1; l >= 1; l--)
        tm_block__backward(&f->pass, &f->states[l], &f->caches[l], d, &f->gradients[l]);
    tm_embed__backward(&f->pass, f->tokens, d, &f->gradients[0]);
    free(d);
    return loss;
}

/* Central difference of the reference's loss by one weight. */
static double slope(const struct reference *ref, const struct fixture *f, double *weight)
{
    const double h = 1e-4;
    double at = *weight;
    *weight = at + h;
    double up = ref_loss(ref, f->tokens, f->targets);
    *weight = at - h;
    double down = ref_loss(ref, f->tokens, f->targets);
    *weight = at;
    return (up - down) / (2 * h);
}

static void check_tensor(const struct reference *ref, const struct fixture *f, int layer, size_t tensor,
                         const char *row)
{
    const struct tm_tensor_spec *spec = &f->states[layer].spec.tensors[tensor];
    const float *got = f->gradients[layer].sums.floats + spec->offset;
    double largest = 0;
    for (size_t i = 0; i < spec->count; i++)
        largest = fmax(largest, fabs((double)got[i]));
    size_t every = spec->count > 64 ? spec->count / 37 : 1; /* some 37 of the large ones */
    for (size_t i = 0; i < spec->count; i += every) {
        double want = slope(ref, f, ref->weights[layer] + spec->offset + i);
        assert_row(fabs(want - (double)got[i]) <= 2e-5 * fmax(largest, 1e-3),
                   "%s layer %d %s[%zu]: got %.9g, want %.9g (largest %.3g)", row, layer, spec->name, i, (double)got[i],
                   want, largest);
    }
}

static void check_network(struct tm_network network, int samples, const struct tm_kernels *kernels, const char *row)
{
    struct fixture f;
    set_up(&f, network, samples, kernels);
    int layers = tm_network_layers(&network);
    double *weights[8];
    for (int l = 0; l < layers; l++) {
        weights[l] = ref_doubles(f.states[l].spec.floats);
        for (size_t i = 0; i < f.states[l].spec.floats; i++)
            weights[l][i] = (double)f.states[l].weights[i];
    }
    struct reference ref = {.network = &f.network,
                            .kernels = kernels,
                            .weights = weights,
                            .samples = samples,
                            .seed = f.pass.seed,
                            .step = f.pass.step,
                            .micro = f.pass.micro};
    double loss = run(&f);
    double want = ref_loss(&ref, f.tokens, f.targets);
    assert_row(fabs(loss - want) < 1e-5 * want, "%s: loss %.9g, want %.9g", row, loss, want);
    for (int l = 0; l < layers; l++) {
        for (size_t t = 0; t < f.states[l].spec.tensor_count; t++)
            check_tensor(&ref, &f, l, t, row);
    }
    for (int l = 0; l < layers; l++)
        free(weights[l]);
    tear_down(&f);
}

static void check_all(enum tm_kernel_class kernel_class, const struct tm_kernels *kernels)
{
    if (!tm_kernels__runs(kernel_class)) skip();
    check_network((struct tm_network){.blocks = 2, .width = 32, .heads = 2, .ctx = 6}, 2, kernels, "32 wide");
    check_network((struct tm_network){.blocks = 1, .width = 21, .heads = 3, .ctx = 5, .dropout = 0.25}, 2, kernels,
                  "21 wide, dropout");
    check_network((struct tm_network){.blocks = 1, .width = 16, .heads = 1, .ctx = 70, .dropout = 0.1}, 1, kernels,
                  "70 positions, dropout");
}

static void test_gradients_avx2(void **state)
{
    (void)state;
    check_all(TM_KERNELS_AVX2, &tm_kernels__avx2);
}

static void test_gradients_avx512(void **state)
{
    (void)state;
    check_all(TM_KERNELS_AVX512, &tm_kernels__avx512);
}

TM_TEST_MAIN(TM_TEST(test_gradients_avx2), TM_TEST(test_gradients_avx512))
