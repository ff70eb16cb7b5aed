/* Layers on their way into the engine, for the three kinds of engines. */
#include "base/test/harness.h"
#include "worker/layer_places.h"

#include <string.h>

enum { LAYERS = 3, SIZE = 10000 };

struct engine {
    void *taken[LAYERS]; /* take_layer */
    uint8_t own[LAYERS][SIZE];
    int drops;
    int fail; /* so many calls to come */
};

static int take_layer(void *context, uint32_t layer, void *memory, uint64_t bytes)
{
    struct engine *engine = context;
    assert_int_equal(bytes, SIZE);
    if (engine->fail > 0 && engine->fail-- > 0) return 1;
    engine->taken[layer] = memory;
    return 0;
}

static void *layer_memory(void *context, uint32_t layer, uint64_t bytes)
{
    struct engine *engine = context;
    assert_int_equal(bytes, SIZE);
    return engine->fail > 0 && engine->fail-- > 0 ? NULL : engine->own[layer];
}

static int read_layer(void *context, uint32_t layer, void *out, uint64_t bytes)
{
    struct engine *engine = context;
    memcpy(out, engine->own[layer], bytes);
    return 0;
}

static int write_layer(void *context, uint32_t layer, const void *data, uint64_t bytes)
{
    struct engine *engine = context;
    if (engine->fail > 0 && engine->fail-- > 0) return 1;
    memcpy(engine->own[layer], data, bytes);
    return 0;
}

static void drop_layer(void *context, uint32_t layer)
{
    struct engine *engine = context;
    engine->taken[layer] = NULL;
    engine->drops++;
}

enum kind { TAKES, OWN_MEMORY, OWN_WAYS, KINDS };

struct rig {
    struct engine engine;
    struct tm_block_pool *pool;
    pthread_mutex_t lock;
    struct tm_layer_places places;
};

static void open_rig(struct rig *rig, enum kind kind)
{
    struct tidemill_engine engine = {.context = &rig->engine, .drop_layer = drop_layer};
    *rig = (struct rig){.pool = tm_block_pool_create()};
    if (kind == TAKES) engine.take_layer = take_layer;
    if (kind == OWN_MEMORY) engine.layer_memory = layer_memory;
    if (kind == OWN_WAYS) engine.read_layer = read_layer;
    if (kind == OWN_WAYS) engine.write_layer = write_layer;
    assert_int_equal(pthread_mutex_init(&rig->lock, NULL), 0);
    assert_int_equal(tm_layer_places_init(&rig->places, &engine, LAYERS, rig->pool, &rig->lock), 0);
    (void)pthread_mutex_lock(&rig->lock);
}

static void close_rig(struct rig *rig)
{
    (void)pthread_mutex_unlock(&rig->lock);
    tm_layer_places_deinit(&rig->places);
    tm_block_pool_destroy(rig->pool);
    (void)pthread_mutex_destroy(&rig->lock);
}

static struct tm_block *block_of(struct rig *rig, int value)
{
    struct tm_block *block = tm_block_create(rig->pool, SIZE);
    assert_non_null(block);
    memset(block->data, value, SIZE);
    return block;
}

static void assert_reads(struct rig *rig, uint32_t layer, int value)
{
    uint8_t out[SIZE] = {0};
    assert_true(tm_layer_places__has(&rig->places, layer));
    assert_int_equal(tm_layer_places__read(&rig->places, layer, out, SIZE), 0);
    for (size_t i = 0; i < SIZE; i++)
        assert_int_equal(out[i], value);
}

/* The same for all kinds, whether somebody else still needs the bytes or not. */
static void test_in_its_place(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct rig rig;
        uint8_t out[SIZE];
        open_rig(&rig, (enum kind)kind);
        assert_int_equal(tm_layer_places__read(&rig.places, 1, out, SIZE), -(int)TM_EINTERNAL);
        struct tm_block *shared = block_of(&rig, 7);
        tm_layer_places_stage(&rig.places, 0, block_of(&rig, 5));
        tm_layer_places_stage(&rig.places, 2, tm_block_share(shared));
        assert_reads(&rig, 0, 5); /* before it is there */
        for (int round = 0; round < 2; round++) {
            assert_true(rig.places.unsettled);
            while (rig.places.unsettled)
                assert_int_equal(tm_layer_places_settle(&rig.places), 0);
            assert_null(rig.places.places[0].staged);
            assert_null(rig.places.places[2].staged);
            assert_reads(&rig, 0, 5 + round);
            assert_reads(&rig, 2, 7);
            tm_layer_places_stage(&rig.places, 0, block_of(&rig, 6 + round)); /* a later one */
        }
        assert_false(tm_block_is_shared(shared));
        assert_int_equal(rig.engine.drops, 0);
        tm_layer_places__drop(&rig.places, 0);
        tm_layer_places__drop(&rig.places, 1); /* was never there */
        assert_int_equal(tm_layer_places_settle(&rig.places), 0);
        assert_int_equal(rig.engine.drops, 1);
        assert_false(tm_layer_places__has(&rig.places, 0));
        tm_block_release(shared);
        close_rig(&rig);
    }
}

/* What nobody else needs is not copied; what somebody does stays as it is when the engine trains. */
static void test_given_or_copied(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, TAKES);
    struct tm_block *alone = block_of(&rig, 1);
    struct tm_block *shared = block_of(&rig, 2);
    void *bytes = alone->data;
    tm_layer_places_stage(&rig.places, 0, alone);
    tm_layer_places_stage(&rig.places, 1, tm_block_share(shared));
    while (rig.places.unsettled)
        assert_int_equal(tm_layer_places_settle(&rig.places), 0);
    assert_ptr_equal(rig.engine.taken[0], bytes);
    assert_ptr_equal(tm_layer_places__view(&rig.places, 0), bytes);
    assert_ptr_not_equal(rig.engine.taken[1], shared->data);
    memset(rig.engine.taken[1], 3, SIZE); /* a step */
    assert_int_equal(shared->data[0], 2);
    assert_reads(&rig, 1, 3);
    bytes = rig.engine.taken[1];
    tm_layer_places_stage(&rig.places, 1, tm_block_share(shared)); /* back to it: in the memory that is there */
    assert_int_equal(tm_layer_places_settle(&rig.places), 0);
    assert_ptr_equal(rig.engine.taken[1], bytes);
    assert_reads(&rig, 1, 2);
    tm_block_release(shared);
    close_rig(&rig);
}

/* What the engine has no room for stays staged, and is there the next time. */
static void test_no_room(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct rig rig;
        open_rig(&rig, (enum kind)kind);
        tm_layer_places_stage(&rig.places, 0, block_of(&rig, 5));
        rig.engine.fail = 1;
        assert_int_equal(tm_layer_places_settle(&rig.places), -(int)TM_ENOMEM);
        assert_true(rig.places.unsettled);
        assert_reads(&rig, 0, 5);
        assert_int_equal(tm_layer_places_settle(&rig.places), 0);
        assert_reads(&rig, 0, 5);
        close_rig(&rig);
    }
    struct rig rig; /* for the copy of what somebody else needs, too */
    open_rig(&rig, TAKES);
    struct tm_block *shared = block_of(&rig, 5);
    tm_layer_places_stage(&rig.places, 0, tm_block_share(shared));
    for (int fail = 0; fail < 3; fail++) {
        tm_alloc_fail_at(fail < 2 ? fail + 1 : 0);
        rig.engine.fail = fail == 2;
        assert_int_equal(tm_layer_places_settle(&rig.places), -(int)TM_ENOMEM);
        tm_alloc_fail_at(0);
        assert_reads(&rig, 0, 5);
        assert_null(rig.engine.taken[0]);
    }
    assert_int_equal(tm_layer_places_settle(&rig.places), 0);
    assert_reads(&rig, 0, 5);
    tm_block_release(shared);
    close_rig(&rig);
    TM_FAIL_EACH_ALLOC({
        struct tm_layer_places places;
        struct tidemill_engine engine = {.context = NULL};
        rc = tm_layer_places_init(&places, &engine, LAYERS, NULL, NULL);
        tm_layer_places_deinit(&places);
    });
}

/* ---- while another thread has the lock ---- */

static void *restage(void *argument)
{
    struct rig *rig = argument;
    for (int i = 0; i < 200; i++) {
        (void)pthread_mutex_lock(&rig->lock);
        struct tm_block *block = block_of(rig, i);
        if (i % 3 == 0) tm_layer_places__drop(&rig->places, 0);
        tm_layer_places_stage(&rig->places, 0, tm_block_share(block));
        (void)pthread_mutex_unlock(&rig->lock);
        tm_block_release(block); /* at any time: shared when the engine looks, or not */
    }
    return NULL;
}

static void test_staged_meanwhile(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct rig rig;
        pthread_t thread;
        open_rig(&rig, (enum kind)kind);
        (void)pthread_mutex_unlock(&rig.lock);
        assert_int_equal(pthread_create(&thread, NULL, restage, &rig), 0);
        for (int i = 0; i < 200; i++) {
            (void)pthread_mutex_lock(&rig.lock);
            assert_int_equal(tm_layer_places_settle(&rig.places), 0);
            (void)pthread_mutex_unlock(&rig.lock);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        (void)pthread_mutex_lock(&rig.lock);
        while (rig.places.unsettled)
            assert_int_equal(tm_layer_places_settle(&rig.places), 0);
        assert_null(rig.places.places[0].staged);
        assert_reads(&rig, 0, 199);
        close_rig(&rig);
    }
}

TM_TEST_MAIN(TM_TEST(test_in_its_place), TM_TEST(test_given_or_copied), TM_TEST(test_no_room),
             TM_TEST(test_staged_meanwhile))
