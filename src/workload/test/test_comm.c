#include "workload/comm.h"

#include "base/random.h"
#include "workload/test/workload_helpers.h"

enum { RUNS_MAX = 64 };

static const struct tm_comm_iteration usual = {
    .world = 4, .rate_bit_s = 1e9, .grad_bytes = 40e6, .forward_ms = 50, .backward_ms = 100};

static void test_one_worker_waits_for_nobody(void **state)
{
    (void)state;
    struct tm_comm_model models[] = {tm_comm__prior(), tm_comm_gpus()};
    for (size_t i = 0; i < TM_COUNT(models); i++) {
        struct tm_comm_iteration alone = usual;
        alone.world = 1;
        assert_row(tm_comm_iteration__ms(&models[i], &alone).mean == 150, "model %zu", i);
        assert_true(tm_comm__naive_ms(&alone) == 150);
        struct tm_comm_iteration silent = usual;
        silent.grad_bytes = 0;
        assert_row(tm_comm_iteration__ms(&models[i], &silent).mean == 150, "model %zu", i);
    }
}

/* Workers on instances of their own, gradients ready evenly. */
#define FLAT(n, rate, bytes, forward, backward)                                                                        \
    {                                                                                                                  \
        .world = (n), .rate_bit_s = (rate), .grad_bytes = (bytes), .forward_ms = (forward), .backward_ms = (backward)  \
    }

/* Compute, and 2 (n-1)/n of the gradients' bits at the nominal rate. */
static void test_naive_by_hand(void **state)
{
    (void)state;
    static const struct {
        struct tm_comm_iteration iteration;
        double want;
    } rows[] = {
        {FLAT(2, 1e8, 1e6, 10, 20), 30 + 80}, /* 1 MB both ways by halves: 8 Mbit at 100 Mbit/s */
        {FLAT(4, 1e8, 1e6, 10, 20), 30 + 120}, {FLAT(2, 1e9, 1e6, 10, 20), 30 + 8},
        {FLAT(8, 1e9, 4e6, 0, 0), 56},         {FLAT(1, 1e9, 4e6, 1, 2), 3},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double got = tm_comm__naive_ms(&rows[i].iteration);
        assert_row(close_to(got, rows[i].want, 1e-12), "row %zu: %g, want %g", i, got, rows[i].want);
    }
}

/* A model with round figures: all of the rate, 1 ms a hop, no handling, no waiting, no burst worth the name. */
static struct tm_comm_model plain_model(void)
{
    return (struct tm_comm_model){.x = {50, 0, -50, 0, -50}, .spread = 0.1};
}

static void test_ring_by_hand(void **state)
{
    (void)state;
    struct tm_comm_model model = plain_model();
    /* One bucket, ready at the end of the backward pass: 30 + 2 hops of 1 ms + 0.5 MB twice a half, at 1 Gbit/s. */
    struct tm_comm_iteration one = FLAT(2, 1e9, 0.5e6, 10, 20);
    assert_true(close_to(tm_comm_iteration__ms(&model, &one).mean, 30 + 2 + 4, 1e-9));
    /* Two buckets: 1 MiB, then the rest; the first goes out while the second is computed. */
    struct tm_comm_iteration two = FLAT(2, 1e9, 4 * 1048576.0, 10, 20);
    double first_end = 10 + 5 + 2 + 8.388608; /* a quarter of the backward pass, then its ring */
    double second_end = fmax(first_end, 30) + 2 + 3 * 8.388608;
    assert_true(close_to(tm_comm_iteration__ms(&model, &two).mean, second_end, 1e-9));
    /* At a tenth of the rate the link is busy from the first bucket on. */
    two.rate_bit_s = 1e8;
    assert_true(close_to(tm_comm_iteration__ms(&model, &two).mean, 15 + 2 + 83.88608 + 2 + 3 * 83.88608, 1e-9));
}

/* Two instances of four workers each: 6 hops and 6/4 of the bytes inside at a fifth of the latency, then 2 hops and all
 * bytes between them, at half the rate where two rings share the link. */
static void test_two_level_ring_by_hand(void **state)
{
    (void)state;
    struct tm_comm_model model = plain_model();
    struct tm_comm_iteration two = FLAT(8, 1e9, 0.5e6, 10, 20);
    two.local = 4;
    two.local_bit_s = 1e10;
    double inside = 6 * 0.2 + 1.5 * 0.5e6 * 8e3 / 1e10;
    assert_true(close_to(tm_comm_iteration__ms(&model, &two).mean, 30 + inside + 2 + 4, 1e-9));
    two.sharing = 2;
    assert_true(close_to(tm_comm_iteration__ms(&model, &two).mean, 30 + inside + 2 + 8, 1e-9));
    two.local = 8; /* all on one instance: nothing goes between */
    assert_true(close_to(tm_comm_iteration__ms(&model, &two).mean, 30 + 14 * 0.2 + 1.75 * 0.5e6 * 8e3 / 1e10, 1e-9));
}

/* Buckets close at 1 MiB and then at 25 MiB; a tensor that spans several is ready bit by bit. */
static void test_buckets(void **state)
{
    (void)state;
    const double mib = 1 << 20;
    const struct tm_comm_bucket tensors[] = {{0.5 * mib, 0.1}, {1.5 * mib, 0.4}, {0, 0.5}, {49 * mib, 0.99}, {0, 1}};
    struct tm_comm_bucket got[4];
    assert_int_equal(tm_comm__buckets(tensors, TM_COUNT(tensors), got, 4), 3);
    assert_true(close_to(got[0].bytes, mib, 1e-12) && close_to(got[0].ready, 0.2, 1e-9));
    assert_true(close_to(got[1].bytes, 25 * mib, 1e-12) && close_to(got[1].ready, 0.5 + 0.49 * 24 / 49, 1e-9));
    assert_true(close_to(got[2].bytes, 25 * mib, 1e-12) && close_to(got[2].ready, 0.99, 1e-9));
    assert_int_equal(tm_comm__buckets(tensors, TM_COUNT(tensors), got, 2), 2); /* the last takes the rest */
    assert_true(close_to(got[1].bytes, 50 * mib, 1e-12) && close_to(got[1].ready, 0.99, 1e-9));
    assert_int_equal(tm_comm__buckets(tensors, 0, got, 4), 0);
    const struct tm_comm_bucket large = {301 * mib, 1}; /* more than four of them: larger ones, not one for the rest */
    assert_int_equal(tm_comm__buckets(&large, 1, got, 4), 4);
    for (size_t i = 1; i < 4; i++)
        assert_row(close_to(got[i].bytes, 100 * mib, 1e-9), "%zu: %g", i, got[i].bytes);
}

/* Where the large tensors are ready first (a classifier's last layers), more of them hides behind the backward pass. */
static void test_ready_times_matter(void **state)
{
    (void)state;
    struct tm_comm_model model = plain_model();
    struct tm_comm_bucket early[2] = {{20e6, 0.1}, {1e6, 1}};
    struct tm_comm_bucket late[2] = {{1e6, 0.1}, {20e6, 1}};
    struct tm_comm_iteration iteration = FLAT(2, 1e9, 21e6, 100, 200);
    iteration.bucket_count = 2;
    iteration.buckets = early;
    double first = tm_comm_iteration__ms(&model, &iteration).mean;
    iteration.buckets = late;
    double second = tm_comm_iteration__ms(&model, &iteration).mean;
    assert_true(close_to(first, 300 + 2 + 8, 1e-9) && close_to(second, 300 + 2 + 160, 1e-9));
}

static void test_more_bandwidth_is_never_slower(void **state)
{
    (void)state;
    struct tm_comm_model models[] = {tm_comm__prior(), tm_comm_gpus()};
    for (size_t i = 0; i < TM_COUNT(models); i++) {
        for (int world = 2; world <= 64; world *= 2) {
            for (double bytes = 1e3; bytes < 1e10; bytes *= 7) {
                double before = INFINITY;
                for (double rate = 1e6; rate < 1e12; rate *= 3) {
                    struct tm_comm_iteration iteration = FLAT(world, rate, bytes, 50, 100);
                    double ms = tm_comm_iteration__ms(&models[i], &iteration).mean;
                    assert_row(ms <= before && ms >= 150, "model %zu, %d workers, %g bytes at %g bit/s: %g after %g", i,
                               world, bytes, rate, ms, before);
                    before = ms;
                }
            }
        }
    }
}

/* More workers and many more gradients cost more. (A little more may cost less: a second bucket lets the first go out
 * before the backward pass has ended.) */
static void test_more_to_send_is_never_faster(void **state)
{
    (void)state;
    struct tm_comm_model prior = tm_comm__prior();
    double before = 0;
    for (int world = 1; world <= 128; world *= 2) {
        struct tm_comm_iteration iteration = usual;
        iteration.world = world;
        double ms = tm_comm_iteration__ms(&prior, &iteration).mean;
        assert_row(ms >= before, "%d workers", world);
        before = ms;
    }
    before = 0;
    for (double bytes = 1; bytes < 1e11; bytes *= 10) {
        struct tm_comm_iteration iteration = usual;
        iteration.grad_bytes = bytes;
        double ms = tm_comm_iteration__ms(&prior, &iteration).mean;
        assert_row(ms >= before, "%g bytes: %g after %g", bytes, ms, before);
        before = ms;
    }
}

/* While the backward pass is long, all buckets but the last are hidden behind it. */
static void test_overlap(void **state)
{
    (void)state;
    struct tm_comm_model model = plain_model();
    struct tm_comm_iteration iteration = FLAT(2, 1e9, 500e6, 0, 0); /* 4,000 ms on the link */
    for (double backward = 1000; backward <= 1e6; backward *= 10) {
        iteration.backward_ms = backward;
        double added = tm_comm_iteration__ms(&model, &iteration).mean - backward;
        double last_ring = 2 + 25 * 1.048576 * 8; /* of a bucket of 25 MiB */
        if (backward >= 10000)
            assert_row(added <= last_ring + 1e-6, "backward of %g ms: %g ms on top", backward, added);
        else
            assert_row(added > 3000, "backward of %g ms: %g ms on top", backward, added);
        assert_row(added < tm_comm__naive_ms(&iteration) - backward + 50, "backward of %g ms: worse than naive",
                   backward);
    }
}

static void test_interval(void **state)
{
    (void)state;
    struct tm_comm_model prior = tm_comm__prior();
    struct tm_estimate ms = tm_comm_iteration__ms(&prior, &usual);
    assert_true(ms.p10 < ms.mean && ms.mean < ms.p90);
    assert_true(close_to(log(ms.p90 / ms.mean), 1.2816 * prior.spread, 1e-3));
    assert_true(close_to(log(ms.mean / ms.p10), 1.2816 * prior.spread, 1e-3));
}

static void test_iteration_of_a_run(void **state)
{
    (void)state;
    struct tm_profile_run run = {.world = 2, .mbit = 250, .grad_bytes = 1e6, .compute_ms = 30};
    struct tm_comm_iteration iteration = tm_comm_iteration__of(&run);
    assert_true(iteration.world == 2 && iteration.rate_bit_s == 250e6 && iteration.grad_bytes == 1e6);
    assert_true(close_to(iteration.forward_ms, 10, 1e-12) && close_to(iteration.backward_ms, 20, 1e-12));
}

/* ---- learning ---- */

/* Runs as they would be in a world that is not the prior; `wild`: 5% of them take ten times as long. */
static size_t make_runs(struct tm_profile_run runs[RUNS_MAX], const struct tm_comm_model *world, bool wild)
{
    static const double rates[] = {50, 100, 250, 1000};
    static const double bytes[] = {0.2e6, 1.2e6, 16e6, 80e6};
    size_t count = 0;
    for (int workers = 2; workers <= 8; workers *= 2) {
        for (size_t r = 0; r < TM_COUNT(rates); r++) {
            for (size_t b = 0; b < TM_COUNT(bytes); b++) {
                struct tm_profile_run run = {.network = "made-up", .world = workers, .mbit = rates[r], .batch = 8};
                run.grad_bytes = bytes[b];
                run.compute_ms = 20 + 10 * (double)b;
                struct tm_comm_iteration iteration = tm_comm_iteration__of(&run);
                run.iter_ms = tm_comm_iteration__ms(world, &iteration).mean;
                if (wild && count % 20 == 3) run.iter_ms *= 10;
                runs[count++] = run;
            }
        }
    }
    return count;
}

static struct tm_comm_model other_world(void)
{
    struct tm_comm_model model = tm_comm__prior();
    static const double moved[TM_COMM_UNKNOWNS] = {-1.5, 1.0, 0.7, 0.05, 0.8};
    for (size_t i = 0; i < TM_COMM_UNKNOWNS; i++)
        model.x[i] += moved[i];
    return model;
}

static double worst_error(const struct tm_comm_model *model, const struct tm_profile_run *runs, size_t count)
{
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        struct tm_comm_iteration iteration = tm_comm_iteration__of(&runs[i]);
        worst = fmax(worst, fabs(tm_comm_iteration__ms(model, &iteration).mean / runs[i].iter_ms - 1));
    }
    return worst;
}

static void learn(const struct tm_profile_run *runs, size_t count, struct tm_comm_model *out)
{
    const struct tm_profile_run *pointers[RUNS_MAX];
    struct tm_error e = {0};
    for (size_t i = 0; i < count; i++)
        pointers[i] = &runs[i];
    int rc = tm_comm_learn(pointers, count, out, &e);
    assert_row(rc == 0, "%s", e.text);
}

/* Exact runs are met within 2%; 5% wild ones move the worst of them to 5% at most. */
static void test_learning_recovers(void **state)
{
    (void)state;
    struct tm_profile_run clean[RUNS_MAX];
    struct tm_profile_run wild[RUNS_MAX];
    struct tm_comm_model world = other_world();
    struct tm_comm_model prior = tm_comm__prior();
    struct tm_comm_model learned;
    size_t count = make_runs(clean, &world, false);
    assert_true(worst_error(&prior, clean, count) > 0.15);
    learn(clean, count, &learned);
    double worst = worst_error(&learned, clean, count);
    assert_row(worst < 0.02, "off by up to %g", worst);
    assert_true(learned.spread < prior.spread);
    (void)make_runs(wild, &world, true);
    learn(wild, count, &learned);
    worst = worst_error(&learned, clean, count);
    assert_row(worst < 0.05, "with wild runs off by up to %g", worst);
}

static void test_learning_from_nothing(void **state)
{
    (void)state;
    struct tm_comm_model prior = tm_comm__prior();
    struct tm_comm_model learned = {0};
    learn(NULL, 0, &learned);
    for (size_t i = 0; i < TM_COMM_UNKNOWNS; i++)
        assert_row(learned.x[i] == prior.x[i], "unknown %zu", i);
    assert_true(close_to(learned.spread, prior.spread, 1e-12));
    struct tm_profile_run broken = {.network = "n", .world = 2, .mbit = 1, .batch = 1, .grad_bytes = 1, .iter_ms = NAN};
    const struct tm_profile_run *pointer = &broken;
    assert_int_equal(tm_comm_learn(&pointer, 1, &learned, NULL), -(int)TM_EINTERNAL);
    assert_true(learned.x[0] == prior.x[0]);
}

TM_TEST_MAIN(TM_TEST(test_one_worker_waits_for_nobody), TM_TEST(test_naive_by_hand), TM_TEST(test_ring_by_hand),
             TM_TEST(test_two_level_ring_by_hand), TM_TEST(test_buckets), TM_TEST(test_ready_times_matter),
             TM_TEST(test_more_bandwidth_is_never_slower), TM_TEST(test_more_to_send_is_never_faster),
             TM_TEST(test_overlap), TM_TEST(test_interval), TM_TEST(test_iteration_of_a_run),
             TM_TEST(test_learning_recovers), TM_TEST(test_learning_from_nothing))
