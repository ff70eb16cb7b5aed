/* One worker's engine: prepared, applied, discarded; numbers that are none; memory as computed; continuing from a
 * checkpoint; jobs that cannot be. */
#include "base/env_virtual.h"
#include "engine/engine.h"
#include "engine/mesh_local.h"
#include "engine/test/engine_helpers.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>

struct lone {
    struct tm_blas blas;
    struct tm_corpus corpus;
    struct tm_engine *engine;
    struct tm_mesh_local *local;
    struct tm_mesh *mesh;
};

static int open_lone(struct lone *lone, const struct tm_train_job *job, struct tm_error *e)
{
    *lone = (struct lone){.blas = test_blas()};
    assert_int_equal(tm_corpus_open(tm_env_real(), job->data, &lone->corpus, NULL), 0);
    struct tm_engine_options options = {.network = job->network,
                                        .micro_batch = (int)job->micro_batch,
                                        .micro_batches = job->batch / job->micro_batch,
                                        .seed = job->seed,
                                        .determinism = job->determinism,
                                        .optimizer = job->optimizer,
                                        .memory_max = job->memory_max,
                                        .kernels = &tm_kernels__avx2,
                                        .blas = &lone->blas,
                                        .corpus = &lone->corpus,
                                        .windows = 100};
    struct tm_assignment assignment;
    int rc = tm_assignment_make(&job->network, 1, 1, options.micro_batches, &assignment, e);
    if (rc == 0) rc = tm_engine_create(&options, &lone->engine, e);
    for (int l = 0; rc == 0 && l < tm_network_layers(&job->network); l++) {
        rc = tm_engine_hold(lone->engine, l, e);
        if (rc == 0) tm_engine_start_layer(lone->engine, l);
    }
    if (rc == 0) rc = tm_engine_assign(lone->engine, &assignment, 0, e);
    if (rc == 0) rc = tm_mesh_local_create(1, &lone->local, e);
    if (rc == 0) lone->mesh = tm_mesh_local_end(lone->local, 0);
    return rc;
}

static void close_lone(struct lone *lone)
{
    tm_engine_destroy(lone->engine);
    tm_mesh_local_destroy(lone->local);
    tm_corpus__close(&lone->corpus);
}

/* Of everything that is committed: weights, moments, scales. */
static struct tm_hash state_hash(struct lone *lone, const struct tm_train_job *job)
{
    struct tm_hash hashes[16];
    int layers = tm_network_layers(&job->network);
    for (int l = 0; l < layers; l++)
        hashes[l] = tm_layer_state__hash(tm_engine__layer(lone->engine, l));
    return tm_hash_of(hashes, (size_t)layers * sizeof *hashes);
}

/* A step that is discarded never was; done again it gives the same bits. */
static void test_discard_then_do_again(void **state)
{
    (void)state;
    struct tm_train_job job = small_job();
    struct lone a;
    struct lone b;
    struct tm_step_result first;
    struct tm_step_result again;
    assert_int_equal(open_lone(&a, &job, NULL), 0);
    assert_int_equal(open_lone(&b, &job, NULL), 0);
    for (int64_t step = 0; step < 3; step++) {
        struct tm_hash before = state_hash(&a, &job);
        assert_int_equal(tm_engine_prepare(a.engine, a.mesh, step, &first, NULL), 0);
        assert_int_equal(tm_engine__phase(a.engine), TM_ENGINE_PREPARED);
        tm_engine__discard(a.engine);
        assert_int_equal(tm_engine__phase(a.engine), TM_ENGINE_IDLE);
        assert_true(tm_hash_equal(before, state_hash(&a, &job)));
        assert_int_equal(tm_engine_prepare(a.engine, a.mesh, step, &again, NULL), 0);
        assert_true(first.loss == again.loss && first.norm == again.norm);
        tm_engine_apply(a.engine, again.clip_factor);
        assert_int_equal(tm_engine_prepare(b.engine, b.mesh, step, &first, NULL), 0);
        tm_engine_apply(b.engine, first.clip_factor);
        assert_true(tm_hash_equal(state_hash(&b, &job), state_hash(&a, &job)));
    }
    close_lone(&a);
    close_lone(&b);
}

/* Layers in memory of the caller's, given anew after every step, train to the same bits. */
static void test_layers_in_memory_of_others(void **state)
{
    (void)state;
    struct tm_train_job job = small_job();
    struct lone a;
    struct lone b;
    void *memory[2][16];
    int layers = tm_network_layers(&job.network);
    assert_int_equal(open_lone(&a, &job, NULL), 0);
    assert_int_equal(open_lone(&b, &job, NULL), 0);
    for (int l = 0; l < layers; l++)
        for (int i = 0; i < 2; i++)
            memory[i][l] = tm_alloc_pages(tm_layer_state__size(&tm_engine__layer(a.engine, l)->spec));
    for (int64_t step = 0; step < 4; step++) {
        struct tm_step_result result;
        for (int l = 0; l < layers; l++) {
            size_t bytes = 0;
            void *to = memory[step % 2][l];
            const void *from = tm_layer_state__bytes(tm_engine__layer(a.engine, l), &bytes);
            memcpy(to, from, bytes);
            if (step == 2) tm_engine__drop(a.engine, l); /* nothing of it is freed by the engine */
            if (step == 2) tm_alloc_fail_at(1);
            if (step == 2) assert_int_equal(tm_engine__take(a.engine, l, to, NULL), -(int)TM_ENOMEM);
            if (step == 2) assert_null(tm_engine__layer(a.engine, l));
            assert_int_equal(tm_engine__take(a.engine, l, to, NULL), 0);
            assert_ptr_equal(tm_layer_state__bytes(tm_engine__layer(a.engine, l), &bytes), to);
        }
        assert_int_equal(tm_engine_prepare(a.engine, a.mesh, step, &result, NULL), 0);
        tm_engine_apply(a.engine, result.clip_factor);
        assert_int_equal(tm_engine_prepare(b.engine, b.mesh, step, &result, NULL), 0);
        tm_engine_apply(b.engine, result.clip_factor);
        assert_true(tm_hash_equal(state_hash(&b, &job), state_hash(&a, &job)));
    }
    close_lone(&a);
    close_lone(&b);
    for (int l = 0; l < layers; l++)
        for (int i = 0; i < 2; i++)
            tm_free(memory[i][l]);
}

static void test_both_copies_of_the_tied_weight_stay_equal(void **state)
{
    (void)state;
    struct tm_train_job job = small_job();
    struct lone lone;
    struct tm_step_result result;
    assert_int_equal(open_lone(&lone, &job, NULL), 0);
    for (int64_t step = 0; step < 3; step++) {
        assert_int_equal(tm_engine_prepare(lone.engine, lone.mesh, step, &result, NULL), 0);
        tm_engine_apply(lone.engine, result.clip_factor);
    }
    const struct tm_layer_state *embed = tm_engine__layer(lone.engine, 0);
    const struct tm_layer_state *head = tm_engine__layer(lone.engine, job.network.blocks + 1);
    size_t bytes = embed->spec.tensors[0].count * sizeof(float);
    assert_memory_equal(embed->weights, head->weights, bytes);
    assert_memory_equal(embed->moment2, head->moment2, bytes);
    assert_int_equal(embed->scales[0], head->scales[0]);
    close_lone(&lone);
}

/* A weight that is no number: the step is refused, names its layer, and changes nothing. */
static void test_numbers_that_are_none(void **state)
{
    (void)state;
    static const struct {
        int layer;
        size_t tensor;
        const char *words;
    } rows[] = {{0, TM_EMBED_WPE, "step 4: layer 0 (the embedding) gave NaN"},
                {3, TM_BLOCK_FC_W, "step 4: layer 3 (block 2) gave NaN"},
                {5, TM_HEAD_LN_B, "step 4: layer 5 (the head) gave NaN"}};
    for (int kind = TM_BITWISE; kind <= TM_FAST; kind++) {
        for (size_t i = 0; i < TM_COUNT(rows); i++) {
            struct tm_train_job job = small_job();
            job.determinism = (enum tm_determinism)kind;
            struct lone lone;
            struct tm_step_result result;
            struct tm_error e = {0};
            assert_int_equal(open_lone(&lone, &job, NULL), 0);
            struct tm_layer_state *layer = tm_engine__layer(lone.engine, rows[i].layer);
            layer->weights[layer->spec.tensors[rows[i].tensor].offset + 1] = NAN;
            struct tm_hash before = state_hash(&lone, &job);
            assert_int_equal(tm_engine_prepare(lone.engine, lone.mesh, 4, &result, &e), -(int)TM_EINPUT);
            assert_error_has(e, rows[i].words);
            assert_true(tm_hash_equal(before, state_hash(&lone, &job)));
            close_lone(&lone);
        }
    }
}

/* Bytes that the process has in memory: VmRSS now, VmHWM at most so far. */
static size_t resident(const char *key)
{
    struct tm_text status;
    tm_text_init(&status, 1 << 16);
    assert_int_equal(tm_env_real()->file_read(tm_env_real(), "/proc/self/status", &status, NULL), 0);
    const char *at = strstr(tm_text_string(&status), key);
    size_t kilobytes = at != NULL ? strtoul(at + strlen(key) + 1, NULL, 10) : 0;
    tm_text_deinit(&status);
    return kilobytes * 1024;
}

/* Everything that comes with training (OpenBLAS's buffers, stacks, messages) is within 50 MB of what was computed. */
static void test_memory_of_the_process(void **state)
{
    (void)state;
    if (mallinfo2().arena == 0) skip(); /* a sanitizer's shadow is larger than that */
    struct tm_train_job job = small_job();
    job.network = (struct tm_network){.blocks = 6, .width = 384, .heads = 6, .ctx = 128, .dropout = 0.1};
    job.batch = job.micro_batch = 2;
    struct lone lone;
    struct tm_step_result result;
    struct tm_error e = {0};
    size_t before = resident("VmRSS:");
    assert_row(open_lone(&lone, &job, &e) == 0, "%s", e.text);
    assert_int_equal(tm_engine_prepare(lone.engine, lone.mesh, 0, &result, NULL), 0);
    tm_engine_apply(lone.engine, result.clip_factor);
    struct tm_engine__memory memory = tm_engine__memory(lone.engine);
    size_t computed = memory.state + memory.gradients + memory.activations + memory.scratch;
    size_t most = resident("VmHWM:");
    close_lone(&lone);
    assert_row(most < before + computed + (50U << 20), "%zu MB at most, %zu before, %zu computed", most >> 20,
               before >> 20, computed >> 20);
    assert_true(computed > 200U << 20); /* 10.8 million parameters, 20 bytes each */
}

/* What the allocator gave is what was computed, and little more. */
static void test_memory_is_as_computed(void **state)
{
    (void)state;
    struct tm_train_job job = small_job();
    job.network = (struct tm_network){.blocks = 4, .width = 128, .heads = 4, .ctx = 64, .dropout = 0.1};
    size_t used[2] = {0};
    for (int recompute = 0; recompute < 2; recompute++) {
        struct lone lone;
        struct tm_step_result result;
        size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
        job.memory_max = recompute ? (int64_t)used[0] - 4096 : 0;
        struct tm_error e = {0};
        assert_row(open_lone(&lone, &job, &e) == 0, "%s", e.text);
        assert_int_equal(tm_engine_prepare(lone.engine, lone.mesh, 0, &result, NULL), 0);
        tm_engine_apply(lone.engine, result.clip_factor);
        struct tm_engine__memory memory = tm_engine__memory(lone.engine);
        assert_int_equal(memory.recompute, recompute);
        size_t computed = memory.state + memory.gradients + memory.activations + memory.scratch;
        size_t taken = mallinfo2().uordblks + mallinfo2().hblkhd - before;
        used[recompute] = computed;
        bool measured = mallinfo2().arena > 0; /* a sanitizer's allocator does not say */
        assert_row(!measured || (taken >= computed && taken < computed + 1000000), "%zu taken, %zu computed", taken,
                   computed);
        close_lone(&lone);
    }
    assert_true(used[1] < used[0]);
    job.memory_max = 1000000;
    struct lone lone;
    struct tm_error e = {0};
    assert_int_equal(open_lone(&lone, &job, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "even with activations recomputed;");
    close_lone(&lone);
}

static void test_without_memory(void **state)
{
    (void)state;
    struct tm_train_job job = small_job();
    job.network.blocks = 1;
    TM_FAIL_EACH_ALLOC({
        struct lone lone;
        struct tm_step_result result;
        rc = open_lone(&lone, &job, NULL);
        if (rc == 0) rc = tm_engine_prepare(lone.engine, lone.mesh, 0, &result, NULL);
        close_lone(&lone);
    });
}

/* 3 steps, a checkpoint, 3 more in another layout: as 6 in a row. A run that fails keeps its last checkpoint. */
static void test_resume_and_a_loss_that_is_none(void **state)
{
    (void)state;
    struct tm_env *files = tm_env_virtual_create(1);
    struct tm_blas blas = test_blas();
    struct tm_train_job job = small_job();
    struct tm_train_result result;
    struct tm_error e = {0};
    struct tm_hash want = train_as(&job, 1, 1);
    static const struct tm_layout_change one[] = {{0, 2, 2}};
    static const struct tm_layout_change two[] = {{0, 1, 3}, {5, 2, 1}};
    job.checkpoint.dir = "run";
    job.checkpoint.every = 3;
    struct tm_train_options options = {
        .job = &job, .steps = 3, .layouts = one, .layout_count = 1, .kernels = &tm_kernels__avx2, .blas = &blas};
    assert_row(tm_train(files, &options, &result, &e) == 0, "%s", e.text);
    tm_train_result_deinit(&result);
    options.resume = "run";
    assert_int_equal(tm_train(files, &options, &result, &e), -(int)TM_EINPUT);
    assert_error_has(e, "already has 3 steps");
    options.steps = 6;
    options.layouts = two;
    options.layout_count = 2;
    assert_row(tm_train(files, &options, &result, &e) == 0, "%s", e.text);
    assert_int_equal(result.steps, 3);
    assert_true(tm_hash_equal(result.weights_hash, want));
    tm_train_result_deinit(&result);

    job.optimizer.lr = 1e30; /* the loss is no number soon */
    job.optimizer.warmup_steps = 0;
    job.checkpoint.every = 1000;
    options.steps = 20;
    assert_int_equal(tm_train(files, &options, &result, &e), -(int)TM_EINPUT);
    assert_error_has(e, "step ");
    assert_error_has(e, "layer ");
    options.steps = 7;
    job.optimizer.lr = 1e-3;
    assert_row(tm_train(files, &options, &result, &e) == 0, "%s", e.text); /* the checkpoint of step 6 is whole */
    tm_train_result_deinit(&result);
    job.network.width = 64;
    assert_int_equal(tm_train(files, &options, &result, &e), -(int)TM_EINPUT);
    assert_error_has(e, "a checkpoint of another network");
    tm_env_virtual_destroy(files);
}

static int parse_job(const char *text, struct tm_arena *arena, struct tm_train_job *out, struct tm_error *e)
{
    struct tm_job job;
    tm_job_init(&job);
    int rc = tm_job_parse("j", text, strlen(text), &job, e);
    if (rc == 0) rc = tm_train_job_of(&job, arena, out, e);
    tm_job_deinit(&job);
    return rc;
}

static void test_jobs_that_cannot_be(void **state)
{
    (void)state;
#define GPT  "model: {gpt: {layers: 2, hidden: 8, heads: 2, ctx: 4}}\n"
#define REST "data: kjv-new-testament\nbatch: 4\nmicro_batch: 2\nsteps: 5\n"
    static const struct {
        const char *text;
        const char *words;
    } rows[] = {
        {REST, "model"},
        {GPT "batch: 4\nsteps: 1\n", "data"},
        {"model: {gpt: {layers: 2, hidden: 8, heads: 3, ctx: 4}}\n" REST,
         "hidden (8) must be a multiple of heads, got 3"},
        {"model: {gpt: {layers: 0, hidden: 8, heads: 2, ctx: 4}}\n" REST, "j:1:23: model.gpt.layers"},
        {"model: {gpt: {layers: 2, hidden: 8, heads: 2, ctx: 99999}}\n" REST, "ctx"},
        {"model: {gpt: {layers: 2, hidden: 8, heads: 2, ctx: 4, vocab: 1000}}\n" REST, "vocab"},
        {"model: {gpt: {layers: 2, hidden: 8, heads: 2, ctx: 4, dropout: 1}}\n" REST, "dropout"},
        {GPT "data: x\nbatch: 4\nmicro_batch: 0\nsteps: 5\n", "j:4:14: micro_batch"},
        {GPT "data: x\nbatch: 5\nmicro_batch: 2\nsteps: 5\n", "batch: must be a multiple of micro_batch (2), got 5"},
        {GPT REST "layout: 1x5\n", "5 stages, but the network has 4 layers"},
        {GPT REST "layout: 3x1\n", "3 pipelines, but a step has 2 micro-batches;"},
        {GPT REST "layout: big\n", "expected a layout such as 2x3"},
        {GPT REST "determinism: sometimes\n", "determinism"},
        {GPT REST "optimiser: {lr: 1}\n", "optimizer"},
        {GPT REST "optimizer: {lr: -1}\n", "lr"},
        {GPT REST "checkpoint: {every: 5}\n", "dir"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_arena arena;
        struct tm_train_job job;
        struct tm_error e = {0};
        tm_arena_init(&arena, 1 << 20);
        int rc = parse_job(rows[i].text, &arena, &job, &e);
        assert_row(rc == -(int)TM_EINPUT, "row %zu: %d", i, rc);
        assert_error_has(e, rows[i].words);
        tm_arena_deinit(&arena);
    }
    static const char good[] = GPT REST "optimizer: {lr: 0.1}\ncheckpoint: {dir: x}\n";
    TM_FAIL_EACH_ALLOC({
        struct tm_arena arena;
        struct tm_train_job job;
        tm_arena_init(&arena, 1 << 20);
        rc = parse_job(good, &arena, &job, NULL);
        tm_arena_deinit(&arena);
    });
}

static void test_texts_that_are_too_short(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_corpus corpus;
    struct tm_error e = {0};
    uint64_t windows = 0;
    static const struct {
        const char *text;
        int rc;
        const char *words;
    } rows[] = {{"", -(int)TM_EINPUT, "the file is empty"},
                {"abcd", -(int)TM_EINPUT, "are 0 windows of 4 bytes"},
                {"abcdefgh", -(int)TM_EINPUT, "fewer than one step's 2 samples"},
                {"abcdefghi", 0, ""}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        assert_int_equal(env->file_write(env, "t", rows[i].text, strlen(rows[i].text), NULL), 0);
        assert_int_equal(tm_corpus_open(env, "t", &corpus, &e), 0);
        assert_int_equal(tm_corpus_windows(&corpus, "t", 4, 2, &windows, &e), rows[i].rc);
        if (rows[i].rc != 0) assert_error_has(e, rows[i].words);
        tm_corpus__close(&corpus);
    }
    assert_int_equal(tm_corpus_open(env, "missing", &corpus, &e), -(int)TM_ENOTFOUND);
    tm_env_virtual_destroy(env);
}

/* Whoever applies others' gradients to a layer's bytes gets what they get, to the bit; also where gradients are floats.
 */
static void test_a_layer_advances_elsewhere(void **state)
{
    (void)state;
    for (int fast = 0; fast < 2; fast++) {
        struct tm_train_job job = small_job();
        struct lone lone;
        struct tm_step_result result;
        unsigned char *bytes[16];
        job.determinism = fast ? TM_FAST : TM_BITWISE;
        assert_int_equal(open_lone(&lone, &job, NULL), 0);
        struct tm_engine_options options = {.network = job.network,
                                            .micro_batches = job.batch / job.micro_batch,
                                            .determinism = job.determinism,
                                            .optimizer = job.optimizer,
                                            .kernels = &tm_kernels__avx2};
        int layers = tm_network_layers(&job.network);
        size_t size = 0;
        for (int l = 0; l < layers; l++) {
            const void *from = tm_layer_state__bytes(tm_engine__layer(lone.engine, l), &size);
            bytes[l] = malloc(size + 4);
            memcpy(bytes[l] + 4, from, size); /* alignment does not matter */
        }
        assert_int_equal(tm_engine__read_gradient(lone.engine, 0, bytes[0], 1, NULL), -(int)TM_EINTERNAL);
        for (int64_t step = 0; step < 6; step++) {
            assert_int_equal(tm_engine_prepare(lone.engine, lone.mesh, step, &result, NULL), 0);
            for (int l = 0; l < layers; l++) {
                size_t length = tm_engine__gradient_bytes(&options, l);
                void *gradient = malloc(length);
                (void)tm_layer_state__bytes(tm_engine__layer(lone.engine, l), &size);
                assert_int_equal(tm_engine__read_gradient(lone.engine, l, gradient, length, NULL), 0);
                assert_int_equal(tm_engine__advance_layer(&options, l, step, result.clip_factor, bytes[l] + 4, size - 1,
                                                          gradient, length, NULL),
                                 -(int)TM_EINPUT);
                assert_int_equal(tm_engine__advance_layer(&options, l, step, result.clip_factor, bytes[l] + 4, size,
                                                          gradient, length, NULL),
                                 0);
                free(gradient);
            }
            tm_engine_apply(lone.engine, result.clip_factor);
            for (int l = 0; l < layers; l++) {
                const void *there = tm_layer_state__bytes(tm_engine__layer(lone.engine, l), &size);
                assert_row(memcmp(there, bytes[l] + 4, size) == 0, "layer %d after step %d", l, (int)step);
            }
        }
        for (int l = 0; l < layers; l++)
            free(bytes[l]);
        close_lone(&lone);
    }
}

TM_TEST_MAIN(TM_TEST(test_memory_of_the_process), TM_TEST(test_discard_then_do_again),
             TM_TEST(test_layers_in_memory_of_others), TM_TEST(test_both_copies_of_the_tied_weight_stay_equal),
             TM_TEST(test_numbers_that_are_none), TM_TEST(test_memory_is_as_computed), TM_TEST(test_without_memory),
             TM_TEST(test_resume_and_a_loss_that_is_none), TM_TEST(test_jobs_that_cannot_be),
             TM_TEST(test_texts_that_are_too_short), TM_TEST(test_a_layer_advances_elsewhere))
