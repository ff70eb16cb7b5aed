/* Checkpoints: written, read back to the bit, kept and pruned; cut short, altered, incomplete, on a full disk. */
#include "base/env_virtual.h"
#include "engine/compare.h"
#include "engine/generate.h"
#include "engine/test/engine_helpers.h"

static const struct tm_network network = {.blocks = 1, .width = 8, .heads = 2, .ctx = 5};
enum { LAYERS = 3 };

static int write_at(struct tm_env *env, int64_t step, uint64_t seed, struct tm_error *e)
{
    struct tm_checkpoint_place place = {.env = env, .dir = "run", .keep = 2};
    struct tm_checkpoint_info info = {
        .network = network, .step = step, .kernels = "avx2", .blas_core = "Haswell", .name = "test", .seed = seed};
    struct tm_layer_files files[LAYERS];
    int rc = 0;
    for (int l = 0; rc == 0 && l < LAYERS; l++) {
        struct tm_layer_state state = {0};
        rc = tm_layer_state__init(&state, &network, l, e);
        if (rc == 0) {
            tm_layer_state__start(&state, &network, seed);
            for (size_t i = 0; i < state.spec.tensors[0].count; i++)
                state.moment1[i] = (float)i;
            state.scales[0] = 11;
            rc = tm_checkpoint__write_layer(&place, &info, &state, &files[l], e);
        }
        tm_layer_state__deinit(&state);
    }
    return rc == 0 ? tm_checkpoint__finish(&place, &info, files, e) : rc;
}

/* Reads every layer; the step that was found goes to *out_step. */
static int read_all(struct tm_env *env, const char *path, int64_t *out_step, struct tm_error *e)
{
    struct tm_checkpoint checkpoint;
    int rc = tm_checkpoint_open(env, path, &checkpoint, e);
    if (rc != 0) return rc;
    for (int l = 0; rc == 0 && l < LAYERS; l++) {
        struct tm_layer_state state = {0};
        rc = tm_layer_state__init(&state, &checkpoint.network, l, e);
        if (rc == 0) rc = tm_checkpoint__read_layer(&checkpoint, &state, e);
        tm_layer_state__deinit(&state);
    }
    *out_step = checkpoint.step;
    tm_checkpoint_close(&checkpoint);
    return rc;
}

static void test_read_back_to_the_bit(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_checkpoint a;
    struct tm_checkpoint b;
    struct tm_layer_difference layers[LAYERS];
    struct tm_difference difference;
    struct tm_error e = {0};
    assert_int_equal(write_at(env, 1, 5, &e), 0);
    assert_int_equal(write_at(env, 2, 5, &e), 0);
    assert_int_equal(tm_checkpoint_open(env, "run/step-00000001", &a, &e), 0);
    assert_int_equal(tm_checkpoint_open(env, "run", &b, &e), 0);
    assert_int_equal(b.step, 2);
    assert_string_equal(b.kernels, "avx2");
    assert_int_equal(tm_checkpoint_compare(&a, &b, layers, &difference, &e), 0);
    assert_true(difference.same);
    struct tm_layer_state layer;
    struct tm_layer_state want;
    for (int l = 0; l < LAYERS; l++) {
        assert_int_equal(tm_layer_state__init(&layer, &network, l, &e), 0);
        assert_int_equal(tm_layer_state__init(&want, &network, l, &e), 0);
        tm_layer_state__start(&want, &network, 5);
        assert_int_equal(tm_checkpoint__read_layer(&b, &layer, &e), 0);
        assert_true(tm_hash_equal(tm_layer_state__weights_hash(&layer), tm_layer_state__weights_hash(&want)));
        assert_int_equal(layer.scales[0], 11);
        assert_true(layer.moment1[3] == 3.0F);
        tm_layer_state__deinit(&layer);
        tm_layer_state__deinit(&want);
    }
    tm_checkpoint_close(&b);
    assert_int_equal(write_at(env, 2, 6, &e), 0);
    assert_int_equal(tm_checkpoint_open(env, "run", &b, &e), 0);
    assert_int_equal(tm_checkpoint_compare(&a, &b, layers, &difference, &e), 0);
    assert_false(difference.same);
    assert_string_equal(difference.tensor, "wte.weight");
    assert_int_equal(difference.element, 0);
    tm_checkpoint_close(&a);
    tm_checkpoint_close(&b);
    tm_env_virtual_destroy(env);
}

static void test_old_ones_go_when_a_new_one_is_whole(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    for (int64_t step = 1; step <= 4; step++)
        assert_int_equal(write_at(env, step, 5, NULL), 0);
    static const struct {
        const char *path;
        bool is_there;
    } rows[] = {{"run/step-00000001/model.safetensors.index.json", false},
                {"run/step-00000002/model-00001-of-00003.safetensors", false},
                {"run/step-00000002/optimizer-00003-of-00003.safetensors", false},
                {"run/step-00000003/model.safetensors.index.json", true},
                {"run/step-00000004/model-00001-of-00003.safetensors", true}};
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(env->file_exists(env, rows[i].path) == rows[i].is_there, "%s", rows[i].path);
    tm_env_virtual_destroy(env);
}

/* Whichever write fails, the newest whole checkpoint is the one before, and it can be read. */
static void test_a_full_disk_loses_nothing(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct tm_env *env = tm_env_virtual_create(1);
        struct tm_error e = {0};
        int64_t step = 0;
        assert_int_equal(write_at(env, 1, 5, NULL), 0);
        tm_env_virtual_fail_write_at(env, n);
        int rc = write_at(env, 2, 5, &e);
        tm_env_virtual_fail_write_at(env, 0);
        struct tm_error reading = {0};
        assert_row(read_all(env, "run", &step, &reading) == 0, "write %ld: %s", n, reading.text);
        assert_int_equal(step, rc == 0 ? 2 : 1);
        tm_env_virtual_destroy(env);
        if (rc == 0) break;
        assert_int_equal(rc, -(int)TM_EFULL);
        assert_error_has(e, "checkpoint of step 2: writing run/");
        assert_error_has(e, "No space left");
        assert_true(n < 100);
    }
}

/* A shard cut short anywhere, or with any byte changed, is refused, and named. */
static void test_damaged_shards(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    static const char *const shards[] = {"run/step-00000001/model-00002-of-00003.safetensors",
                                         "run/step-00000001/optimizer-00001-of-00003.safetensors"};
    assert_int_equal(write_at(env, 1, 5, NULL), 0);
    for (size_t s = 0; s < TM_COUNT(shards); s++) {
        struct tm_text whole;
        struct tm_error e = {0};
        int64_t step = 0;
        tm_text_init(&whole, 1 << 24);
        assert_int_equal(env->file_read(env, shards[s], &whole, NULL), 0);
        for (size_t at = 0; at < whole.length; at += at < 16 ? 1 : 97) {
            assert_int_equal(env->file_write(env, shards[s], whole.data, at, NULL), 0);
            assert_row(read_all(env, "run", &step, &e) == -(int)TM_EINPUT, "%s cut at %zu", shards[s], at);
            assert_error_has(e, shards[s]);
            whole.data[at] = (char)(whole.data[at] ^ 4);
            assert_int_equal(env->file_write(env, shards[s], whole.data, whole.length, NULL), 0);
            assert_row(read_all(env, "run", &step, &e) == -(int)TM_EINPUT, "%s changed at %zu", shards[s], at);
            assert_error_has(e, shards[s]);
            whole.data[at] = (char)(whole.data[at] ^ 4);
        }
        assert_int_equal(env->file_write(env, shards[s], whole.data, whole.length, NULL), 0);
        assert_int_equal(read_all(env, "run", &step, &e), 0);
        tm_text_deinit(&whole);
    }
    tm_env_virtual_destroy(env);
}

static void test_incomplete_checkpoints(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        const char *content; /* NULL: it is missing */
        const char *words;
    } rows[] = {
        {"model-00002-of-00003.safetensors", NULL, "missing, but run/step-00000001/model.safetensors.index.json"},
        {"optimizer-00003-of-00003.safetensors", NULL, "optimizer.safetensors.index.json lists it"},
        {"model.safetensors.index.json", NULL, "model.safetensors.index.json"},
        {"config.json", NULL, "config.json"},
        {"config.json", "{", "config.json:1"},
        {"config.json", "{}", "expected n_layer"},
        {"config.json", "{\"n_layer\": 1, \"n_embd\": 8, \"n_head\": 3, \"n_positions\": 5, \"vocab_size\": 256}",
         "hidden (8) must be a multiple of heads"},
        {"config.json", "{\"n_layer\": 1, \"n_embd\": 8, \"n_head\": 2, \"n_positions\": 5, \"vocab_size\": 50257}",
         "only byte-level networks (256)"},
        {"config.json", "{\"n_layer\": 1, \"n_embd\": 16, \"n_head\": 2, \"n_positions\": 5, \"vocab_size\": 256}",
         "does not have the type and shape"},
        {"model.safetensors.index.json", "{\"weight_map\": {}}", "weight_map has no \"wte.weight\""},
        {"model.safetensors.index.json", "{\"weight_map\": {\"wte.weight\": \"../secret\"}}",
         "is not a plain file name"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_env *env = tm_env_virtual_create(1);
        struct tm_error e = {0};
        char path[128];
        int64_t step = 0;
        assert_int_equal(write_at(env, 1, 5, NULL), 0);
        (void)snprintf(path, sizeof path, "run/step-00000001/%s", rows[i].file);
        if (rows[i].content == NULL)
            assert_int_equal(env->file_remove(env, path, NULL), 0);
        else
            assert_int_equal(env->file_write(env, path, rows[i].content, strlen(rows[i].content), NULL), 0);
        int rc = read_all(env, "run", &step, &e);
        assert_row(rc == -(int)TM_EINPUT || rc == -(int)TM_ENOTFOUND, "%s: %d", rows[i].file, rc);
        assert_error_has(e, rows[i].words);
        tm_env_virtual_destroy(env);
    }
}

/* Writing only: jansson, which reads the headers, asserts when memory runs out inside a string. */
static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_env *env = tm_env_virtual_create(1);
        rc = env == NULL ? -(int)TM_ENOMEM : write_at(env, 1, 5, NULL);
        tm_env_virtual_destroy(env);
    });
}

static void test_generate(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_blas blas = test_blas();
    struct tm_checkpoint checkpoint;
    struct tm_text texts[3];
    assert_int_equal(write_at(env, 1, 5, NULL), 0);
    assert_int_equal(tm_checkpoint_open(env, "run", &checkpoint, NULL), 0);
    struct tm_generate_options options = {.prompt = "In the", .length = 20, .temperature = 1, .seed = 3};
    for (int i = 0; i < 3; i++) {
        tm_text_init(&texts[i], 1 << 16);
        options.seed = i == 2 ? 4 : 3;
        assert_int_equal(tm_generate(&checkpoint, &tm_kernels__avx2, &blas, &options, &texts[i], NULL), 0);
        assert_int_equal(texts[i].length, 20);
    }
    assert_memory_equal(texts[0].data, texts[1].data, 20);
    assert_memory_not_equal(texts[0].data, texts[2].data, 20);
    for (int i = 0; i < 3; i++)
        tm_text_deinit(&texts[i]);
    tm_checkpoint_close(&checkpoint);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_read_back_to_the_bit), TM_TEST(test_old_ones_go_when_a_new_one_is_whole),
             TM_TEST(test_a_full_disk_loses_nothing), TM_TEST(test_damaged_shards),
             TM_TEST(test_incomplete_checkpoints), TM_TEST(test_without_memory), TM_TEST(test_generate))
