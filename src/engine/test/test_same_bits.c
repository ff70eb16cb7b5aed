/* The weights after N steps have the same bits whatever the layout, also when it changes on the way, and in whatever
 * order messages arrive. Dropout, clipping and the tied weight are on; pipelines get unequal shares. */
#include "engine/test/engine_helpers.h"

static const struct {
    int pipelines;
    int stages;
} layouts[] = {{2, 1}, {4, 1}, {1, 2}, {2, 2}, {1, 4}, {3, 2}, {2, 3}, {7, 1}, {1, 6}, {5, 3}};

static void test_layouts(void **state)
{
    (void)state;
    struct tm_train_job job = small_job();
    struct tm_hash want = train_as(&job, 1, 1);
    for (size_t i = 0; i < TM_COUNT(layouts); i++) {
        struct tm_hash got = train_as(&job, layouts[i].pipelines, layouts[i].stages);
        assert_row(tm_hash_equal(got, want), "%dx%d gives other bits than 1x1", layouts[i].pipelines,
                   layouts[i].stages);
    }
}

static void test_layouts_with_recomputation(void **state)
{
    (void)state;
    struct tm_train_job job = small_job();
    job.steps = 3;
    struct tm_hash want = train_as(&job, 1, 1);
    job.memory_max = 2200000; /* too little for all activations of 1x1, enough with recomputation */
    struct tm_hash got = train_as(&job, 1, 1);
    assert_true(tm_hash_equal(got, want));
}

static void test_layout_changes_on_the_way(void **state)
{
    (void)state;
    static const struct tm_layout_change changes[] = {{0, 1, 2}, {1, 2, 3}, {2, 2, 1}, {3, 1, 6}, {4, 3, 2}, {5, 1, 1}};
    struct tm_train_job job = small_job();
    struct tm_train_result result;
    struct tm_hash want = train_as(&job, 1, 1);
    struct tm_hash got = train_layouts(&job, changes, TM_COUNT(changes), 0, &result);
    assert_true(tm_hash_equal(got, want));
    /* only what is missing moves: counted here anew, layer by layer */
    int64_t missing = 0;
    for (size_t c = 1; c < TM_COUNT(changes); c++) {
        struct tm_assignment from;
        struct tm_assignment to;
        assert_int_equal(
            tm_assignment_make(&job.network, changes[c - 1].pipelines, changes[c - 1].stages, 7, &from, NULL), 0);
        assert_int_equal(tm_assignment_make(&job.network, changes[c].pipelines, changes[c].stages, 7, &to, NULL), 0);
        for (int w = 0; w < 6; w++) {
            for (int l = 0; l < tm_network_layers(&job.network); l++)
                missing += tm_assignment_holds(&to, w, l) && !tm_assignment_holds(&from, w, l);
        }
    }
    assert_int_equal(result.layers_moved, missing);
    assert_true(missing > 0);
}

static void test_any_order_of_arrival(void **state)
{
    (void)state;
    struct tm_train_job job = small_job();
    job.steps = 3;
    static const struct tm_layout_change changes[] = {{0, 3, 2}, {2, 2, 3}};
    struct tm_hash want = train_as(&job, 1, 1);
    for (uint64_t shuffle = 1; shuffle <= 5; shuffle++) {
        struct tm_hash got = train_layouts(&job, changes, TM_COUNT(changes), shuffle, NULL);
        assert_row(tm_hash_equal(got, want), "shuffle %d", (int)shuffle);
    }
}

/* The planted bug: floats added over a worker's micro-batches, integers only between workers. It must show. */
static void test_the_naive_way_differs(void **state)
{
    (void)state;
    struct tm_train_job job = small_job();
    job.determinism = TM_NAIVE;
    struct tm_hash one = train_as(&job, 1, 1);
    assert_true(tm_hash_equal(one, train_as(&job, 1, 3))); /* the cut into stages alone does not group gradients */
    assert_false(tm_hash_equal(one, train_as(&job, 2, 1)));
    assert_false(tm_hash_equal(one, train_as(&job, 3, 2)));
}

/* A gradient that does not fit its scale: the step is redone, and to the same bits. */
static void test_overflow_is_redone(void **state)
{
    (void)state;
    struct tm_train_job job = small_job();
    job.optimizer.lr = 0.3; /* wild steps make gradients grow by more than the two spare bits */
    job.optimizer.warmup_steps = 0;
    job.optimizer.clip = 0;
    job.steps = 8;
    static const struct tm_layout_change one[] = {{0, 1, 1}};
    static const struct tm_layout_change many[] = {{0, 2, 3}};
    struct tm_train_result first;
    struct tm_train_result second;
    struct tm_hash want = train_layouts(&job, one, 1, 0, &first);
    struct tm_hash got = train_layouts(&job, many, 1, 0, &second);
    assert_true(first.steps_redone > 0);
    assert_int_equal(first.steps_redone, second.steps_redone);
    assert_true(tm_hash_equal(got, want));
}

/* Each of these must change the bits, or the test above compares nothing. */
static void test_bits_depend_on_what_they_should(void **state)
{
    (void)state;
    struct tm_train_job job = small_job();
    job.steps = 2;
    struct tm_hash want = train_as(&job, 1, 1);
    struct tm_train_job other = job;
    other.seed = 8;
    assert_false(tm_hash_equal(want, train_as(&other, 1, 1)));
    other = job;
    other.network.dropout = 0.2;
    assert_false(tm_hash_equal(want, train_as(&other, 1, 1)));
    other = job;
    other.optimizer.clip = 0;
    assert_false(tm_hash_equal(want, train_as(&other, 1, 1)));
    other = job;
    other.steps = 3;
    assert_false(tm_hash_equal(want, train_as(&other, 1, 1)));
}

TM_TEST_MAIN(TM_TEST(test_layouts), TM_TEST(test_layouts_with_recomputation), TM_TEST(test_layout_changes_on_the_way),
             TM_TEST(test_any_order_of_arrival), TM_TEST(test_the_naive_way_differs), TM_TEST(test_overflow_is_redone),
             TM_TEST(test_bits_depend_on_what_they_should))
