/* The kernels against plain loops in double, in both classes; and that nothing depends on alignment or on other
 * threads, which is what "the same bits" rests on. */
#include "base/random.h"
#include "base/test/harness.h"
#include "engine/blas.h"
#include "engine/kernels.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1003 }; /* fills no vector */

static const struct tm_kernels *const classes[] = {&tm_kernels__avx2, &tm_kernels__avx512};

static bool runs(size_t c)
{
    return tm_kernels__runs((enum tm_kernel_class)c);
}

static void fill(float *x, size_t count, uint64_t seed)
{
    struct tm_random random = tm_random_make(seed, 0);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(tm_random_unit(&random) * 4 - 2);
}

static void test_masks_are_philox(void **state)
{
    (void)state;
    struct tm_dropout dropout = tm_dropout__make(0.3, 0xFEDCBA9876543210U, 77, 5, 3, TM_SITE_MLP);
    float mask[4 * TM_DROPOUT_GROUP];
    uint64_t start = 7 * TM_DROPOUT_GROUP;
    for (size_t c = 0; c < TM_COUNT(classes); c++) {
        if (!runs(c)) continue;
        classes[c]->dropout_mask(mask, &dropout, start, TM_COUNT(mask));
        size_t dropped = 0;
        for (size_t i = 0; i < TM_COUNT(mask); i++) {
            uint64_t element = start + i;
            uint64_t in_group = element % 128;
            uint32_t counter[4] = {(uint32_t)(element / 128 * 16 + in_group % 16), dropout.site, 5, 77};
            uint32_t key[2] = {0x76543210U, 0xFEDCBA98U};
            uint32_t bits[4];
            tm_random_block(counter, key, bits);
            uint32_t word = bits[in_group / 32];
            uint32_t half = in_group / 16 % 2 == 0 ? word & 0xFFFF : word >> 16;
            float want = half >= dropout.threshold ? dropout.scale : 0;
            assert_row(mask[i] == want, "%s element %zu", classes[c]->name, i);
            dropped += mask[i] == 0;
        }
        assert_true(dropped > 100 && dropped < 210); /* of 512 at 0.3: 154, six deviations either way */
    }
}

static void test_softmax_gives_probabilities(void **state)
{
    (void)state;
    enum { ROWS = 5, FIRST = 14, COLUMNS = 19, STRIDE = 128 };
    struct tm_dropout none = {.scale = 1};
    for (size_t c = 0; c < TM_COUNT(classes); c++) {
        float scores[ROWS * STRIDE];
        float kept[ROWS * STRIDE];
        float lse[ROWS];
        if (!runs(c)) continue;
        fill(scores, TM_COUNT(scores), 3);
        for (size_t i = 0; i < TM_COUNT(scores); i++)
            scores[i] *= 20; /* far apart: exp must not overflow */
        memcpy(kept, scores, sizeof kept);
        classes[c]->softmax(scores, lse, &none, 0, ROWS, FIRST, COLUMNS, STRIDE);
        for (size_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (size_t i = 0; i <= FIRST + r; i++)
                sum += exp((double)kept[r * STRIDE + i]);
            assert_true(fabs((double)lse[r] - log(sum)) < 1e-5 * fabs(log(sum)));
            for (size_t i = 0; i < COLUMNS; i++) {
                double want = i <= FIRST + r ? exp((double)kept[r * STRIDE + i]) / sum : 0;
                assert_row(fabs((double)scores[r * STRIDE + i] - want) < 1e-6, "%s row %zu column %zu",
                           classes[c]->name, r, i);
            }
        }
    }
}

static void test_quantise(void **state)
{
    (void)state;
    static float g[COUNT];
    static int32_t sum[COUNT];
    for (size_t c = 0; c < TM_COUNT(classes); c++) {
        if (!runs(c)) continue;
        fill(g, COUNT, 5);
        g[500] = -3.5F;
        assert_true(classes[c]->quantise(sum, g, 1024, true, COUNT) == 3.5F);
        for (size_t i = 0; i < COUNT; i++)
            assert_int_equal(sum[i], lrint((double)g[i] * 1024));
        (void)classes[c]->quantise(sum, g, 1024, false, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            assert_int_equal(sum[i], 2 * lrint((double)g[i] * 1024));
        static const float odd[] = {NAN, INFINITY, -INFINITY};
        for (size_t k = 0; k < TM_COUNT(odd); k++) { /* anywhere, also in the part-filled vector */
            for (size_t at = 0; at < COUNT; at += 167) {
                float kept = g[at];
                g[at] = odd[k];
                assert_true(isnan(classes[c]->quantise(sum, g, 1024, true, COUNT)));
                assert_false(classes[c]->all_finite(g, COUNT));
                g[at] = kept;
            }
        }
        assert_true(classes[c]->all_finite(g, COUNT));
    }
}

static void test_square_sums_are_the_same_in_all_classes(void **state)
{
    (void)state;
    static float g[COUNT];
    static int32_t q[COUNT];
    double floats[2] = {0};
    double integers[2] = {0};
    fill(g, COUNT, 9);
    double want = 0;
    for (size_t i = 0; i < COUNT; i++) {
        q[i] = (int32_t)(g[i] * 1e8F);
        want += (double)g[i] * (double)g[i];
    }
    for (size_t c = 0; c < TM_COUNT(classes); c++) {
        size_t from = runs(c) ? c : 0;
        floats[c] = classes[from]->square_sum_f32(g, COUNT);
        integers[c] = classes[from]->square_sum_i32(q, COUNT);
    }
    assert_true(fabs(floats[0] - want) < 1e-12 * want);
    assert_true(floats[0] == floats[1]);
    assert_true(integers[0] == integers[1]);
}

static void test_adamw(void **state)
{
    (void)state;
    static float w[COUNT];
    static float m[COUNT];
    static float v[COUNT];
    static float g[COUNT];
    struct tm_adamw a = {.beta1 = 0.9F,
                         .beta2 = 0.95F,
                         .eps = 1e-8F,
                         .step_size = 0.01F,
                         .v_scale = 2,
                         .keep = 0.999F,
                         .grad_scale = 0.25F};
    for (size_t c = 0; c < TM_COUNT(classes); c++) {
        if (!runs(c)) continue;
        fill(w, COUNT, 1);
        fill(m, COUNT, 2);
        fill(v, COUNT, 3);
        fill(g, COUNT, 4);
        for (size_t i = 0; i < COUNT; i++)
            v[i] = fabsf(v[i]);
        float old_w[COUNT];
        float old_m[COUNT];
        float old_v[COUNT];
        memcpy(old_w, w, sizeof w);
        memcpy(old_m, m, sizeof m);
        memcpy(old_v, v, sizeof v);
        classes[c]->adamw_f32(w, m, v, g, &a, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            double grad = (double)g[i] * 0.25;
            double m1 = 0.9 * (double)old_m[i] + 0.1 * grad;
            double v1 = 0.95 * (double)old_v[i] + 0.05 * grad * grad;
            double want = 0.999 * (double)old_w[i] - 0.01 * m1 / (sqrt(v1) * 2 + 1e-8);
            assert_row(fabs((double)w[i] - want) < 2e-6, "%s element %zu: %g, want %g", classes[c]->name, i,
                       (double)w[i], want);
        }
    }
}

/* ---- bits ---- */

enum { ROWS = 37, WIDTH = 53, INNER = 129 };

static void multiply(const struct tm_blas *blas, const float *a, const float *b, float *c)
{
    struct tm_gemm shape = {.m = ROWS, .n = WIDTH, .k = INNER, .alpha = 1, .lda = INNER, .ldb = WIDTH, .ldc = WIDTH};
    tm_gemm(blas, &shape, a, b, c);
}

static void test_products_do_not_depend_on_alignment(void **state)
{
    (void)state;
    struct tm_blas blas;
    assert_int_equal(tm_blas_open(tm_env_real(), tm_kernels__avx2.core, &blas, NULL), 0);
    static float a[ROWS * INNER + 16];
    static float b[INNER * WIDTH + 16];
    static float c[ROWS * WIDTH + 16];
    static float want[ROWS * WIDTH];
    float plain_a[ROWS * INNER];
    float plain_b[INNER * WIDTH];
    fill(plain_a, TM_COUNT(plain_a), 1);
    fill(plain_b, TM_COUNT(plain_b), 2);
    multiply(&blas, plain_a, plain_b, want);
    for (size_t shift = 1; shift < 16; shift += 3) {
        memcpy(a + shift, plain_a, sizeof plain_a);
        memcpy(b + 16 - shift, plain_b, sizeof plain_b);
        multiply(&blas, a + shift, b + 16 - shift, c + shift / 2);
        assert_memory_equal(c + shift / 2, want, sizeof want);
    }
}

static void test_kernels_do_not_depend_on_alignment(void **state)
{
    (void)state;
    static float x[ROWS * WIDTH + 16];
    static float out[ROWS * WIDTH + 16];
    static float want[ROWS * WIDTH];
    static float plain[ROWS * WIDTH];
    float w[WIDTH];
    float stats[2 * ROWS];
    struct tm_dropout dropout = tm_dropout__make(0.2, 1, 2, 3, 4, TM_SITE_PROJECTION);
    fill(plain, TM_COUNT(plain), 1);
    fill(w, WIDTH, 2);
    for (size_t c = 0; c < TM_COUNT(classes); c++) {
        if (!runs(c)) continue;
        for (size_t shift = 0; shift < 16; shift += 5) {
            memcpy(x + shift, plain, sizeof plain);
            classes[c]->layernorm(out + 16 - shift, stats, stats + ROWS, x + shift, w, w, ROWS, WIDTH);
            classes[c]->residual(out + 16 - shift, out + 16 - shift, x + shift, w, &dropout, ROWS, WIDTH);
            if (shift == 0) memcpy(want, out + 16, sizeof want);
            assert_memory_equal(out + 16 - shift, want, sizeof want);
        }
    }
}

struct thread_work {
    const struct tm_blas *blas;
    const float *a;
    const float *b;
    float c[ROWS * WIDTH];
};

static void *work(void *argument)
{
    struct thread_work *w = argument;
    for (int i = 0; i < 50; i++)
        multiply(w->blas, w->a, w->b, w->c);
    return NULL;
}

static void test_products_do_not_depend_on_other_threads(void **state)
{
    (void)state;
    struct tm_blas blas;
    assert_int_equal(tm_blas_open(tm_env_real(), tm_kernels__avx2.core, &blas, NULL), 0);
    static float a[ROWS * INNER];
    static float b[INNER * WIDTH];
    static struct thread_work works[4];
    pthread_t threads[4];
    fill(a, TM_COUNT(a), 1);
    fill(b, TM_COUNT(b), 2);
    float want[ROWS * WIDTH];
    multiply(&blas, a, b, want);
    for (int t = 0; t < 4; t++) {
        works[t] = (struct thread_work){.blas = &blas, .a = a, .b = b};
        assert_int_equal(pthread_create(&threads[t], NULL, work, &works[t]), 0);
    }
    for (int t = 0; t < 4; t++) {
        assert_int_equal(pthread_join(threads[t], NULL), 0);
        assert_memory_equal(works[t].c, want, sizeof want);
    }
}

/* Also by a user whose environment says another core type. */
static void test_a_class_is_pinned(void **state)
{
    (void)state;
    struct tm_blas blas;
    struct tm_error e = {0};
    assert_int_equal(setenv("OPENBLAS_CORETYPE", "Nehalem", 1), 0);
    assert_int_equal(tm_blas_open(tm_env_real(), tm_kernels__avx2.core, &blas, &e), 0);
    assert_string_equal(blas.core, "Haswell");
    assert_int_equal(tm_blas_open(tm_env_real(), "SkylakeX", &blas, &e), -(int)TM_EBUSY);
    assert_error_has(e, "fixed to Haswell");
    const struct tm_kernels *kernels = NULL;
    assert_int_equal(tm_kernels__by_name("avx", &kernels, &e), -(int)TM_EINPUT);
    assert_int_equal(tm_kernels__by_name("avx2", &kernels, &e), 0);
    assert_ptr_equal(kernels, &tm_kernels__avx2);
}

TM_TEST_MAIN(TM_TEST(test_a_class_is_pinned), TM_TEST(test_masks_are_philox), TM_TEST(test_softmax_gives_probabilities),
             TM_TEST(test_quantise), TM_TEST(test_square_sums_are_the_same_in_all_classes), TM_TEST(test_adamw),
             TM_TEST(test_products_do_not_depend_on_alignment), TM_TEST(test_kernels_do_not_depend_on_alignment),
             TM_TEST(test_products_do_not_depend_on_other_threads))
