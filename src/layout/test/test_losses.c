/* Losses: every small case against all subsets, large ones against drawing. */
#include "layout/losses.h"

#include "layout/test/layout_helpers.h"

enum { OUTCOMES_MAX = TM_LOSSES_COUNTED_MAX };

struct outcomes {
    int pipelines, stages;
    size_t count;
    double sum;
    struct tm_survivors list[OUTCOMES_MAX]; /* here `probability` is the sum of equal ones */
};

static void add_outcome(struct outcomes *all, const struct tm_survivors *survivors, double weight)
{
    all->sum += weight;
    for (size_t i = 0; i < all->count; i++) {
        if (memcmp(all->list[i].left, survivors->left, sizeof(int) * (size_t)survivors->stages) != 0) continue;
        all->list[i].probability += weight;
        return;
    }
    assert_true(all->count < OUTCOMES_MAX);
    all->list[all->count] = *survivors;
    all->list[all->count++].probability = weight;
}

static void add_counted(void *context, const struct tm_survivors *survivors)
{
    struct outcomes *all = context;
    size_t before = all->count;
    add_outcome(all, survivors, survivors->probability);
    assert_row(all->count == before + 1, "%dx%d: an outcome was visited twice", all->pipelines, all->stages);
}

static void add_subset(void *context, const bool *gone)
{
    struct outcomes *all = context;
    struct tm_survivors survivors = survivors_of(all->pipelines, all->stages, gone);
    add_outcome(all, &survivors, 1);
}

static double probability_of(const struct outcomes *all, const int *left, int stages)
{
    for (size_t i = 0; i < all->count; i++)
        if (memcmp(all->list[i].left, left, sizeof(int) * (size_t)stages) == 0) return all->list[i].probability;
    return 0;
}

/* The share of subsets that leave at least `keep` replicas of each of the first `stages` stages. */
static double kept_share(const struct outcomes *subsets, int stages, int keep)
{
    double kept = 0;
    for (size_t i = 0; i < subsets->count; i++) {
        bool all = true;
        for (int s = 0; s < stages; s++)
            all = all && subsets->list[i].left[s] >= keep;
        if (all) kept += subsets->list[i].probability;
    }
    return kept / subsets->sum;
}

static void check_all_subsets(struct outcomes *counted, struct outcomes *subsets, int pipelines, int stages, int spares,
                              int lost)
{
    counted->count = subsets->count = 0;
    counted->sum = subsets->sum = 0;
    counted->pipelines = subsets->pipelines = pipelines;
    counted->stages = subsets->stages = stages;
    char row[64];
    (void)snprintf(row, sizeof row, "%dx%d + %d, %d lost", pipelines, stages, spares, lost);
    assert_row(tm_losses__each(pipelines, stages, spares, lost, add_counted, counted), "%s: drawn", row);
    each_subset(pipelines * stages + spares, lost, add_subset, subsets);
    assert_row(counted->count == subsets->count, "%s: %zu outcomes, want %zu", row, counted->count, subsets->count);
    assert_row(fabs(counted->sum - 1) < 1e-12, "%s: probabilities sum to %.17g", row, counted->sum);
    for (size_t i = 0; i < subsets->count; i++) {
        double want = subsets->list[i].probability / subsets->sum;
        double got = probability_of(counted, subsets->list[i].left, stages);
        assert_row(fabs(got - want) < 1e-12, "%s: outcome %zu: %.17g, want %.17g", row, i, got, want);
    }
    for (int keep = 0; keep <= pipelines; keep++) {
        double want = kept_share(subsets, stages, keep), still_kept[TM_LAYOUT_STAGES_MAX + 1];
        double got = tm_losses_keep_probability(pipelines, stages, spares, lost, 1, keep);
        assert_row(fabs(got - want) < 1e-12, "%s: keeping %d: %.17g, want %.17g", row, keep, got, want);
        tm_losses__kept(pipelines, stages, spares, lost, keep, still_kept);
        for (int s = 0; s <= stages; s++) {
            want = kept_share(subsets, s, keep);
            assert_row(fabs(still_kept[s] - want) < 1e-12, "%s: %d stages keeping %d: %.17g, want %.17g", row, s, keep,
                       still_kept[s], want);
        }
    }
}

static void test_counted_equals_all_subsets(void **state)
{
    (void)state;
    struct outcomes *counted = tm_alloc(sizeof *counted), *subsets = tm_alloc(sizeof *subsets);
    assert_true(counted != NULL && subsets != NULL);
    int rows = 0;
    for (int pipelines = 1; pipelines <= 4; pipelines++)
        for (int stages = 1; stages <= 5; stages++)
            for (int spares = 0; spares <= 3; spares++) {
                int instances = pipelines * stages + spares;
                if (instances > 11) continue;
                for (int lost = 0; lost <= instances; lost++, rows++)
                    check_all_subsets(counted, subsets, pipelines, stages, spares, lost);
            }
    assert_true(rows > 300);
    /* and some wider ones with few losses */
    check_all_subsets(counted, subsets, 4, 8, 0, 3);
    check_all_subsets(counted, subsets, 5, 5, 4, 4);
    check_all_subsets(counted, subsets, 2, 14, 3, 3);
    check_all_subsets(counted, subsets, 15, 2, 2, 4);
    tm_free(counted);
    tm_free(subsets);
}

/* Of instances with several workers: the chance that every stage keeps some, and what is left, against all subsets. */
static void test_instances_go_whole(void **state)
{
    (void)state;
    static const int rows[][4] = {{3, 2, 2, 2}, {2, 4, 2, 2}, {4, 1, 2, 2}, {6, 1, 0, 2}, {2, 8, 0, 4}, {4, 2, 4, 4},
                                  {3, 4, 4, 4}, {8, 1, 4, 4}, {3, 6, 3, 3}, {3, 1, 0, 2}, {3, 3, 1, 2}, {5, 2, 2, 4}};
    struct outcomes *subsets = tm_alloc(sizeof *subsets);
    assert_non_null(subsets);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int pipelines = rows[i][0], stages = rows[i][1], spares = rows[i][2], each = rows[i][3];
        int workers = pipelines * stages + spares;
        bool whole = stages % each == 0 || (each % stages == 0 && pipelines % (each / stages) == 0);
        int step = whole ? each : 1; /* else every worker goes by itself */
        for (int lost = 0; lost <= workers; lost += step) {
            *subsets = (struct outcomes){.pipelines = pipelines, .stages = stages};
            each_subset_by(step, workers, lost, add_subset, subsets);
            struct tm_blocks blocks = tm_losses__blocks(pipelines, stages, spares, lost, each);
            assert_int_equal(blocks.depth * blocks.width, step);
            for (int keep = 0; keep <= pipelines; keep++) {
                double got = tm_losses_keep_probability(pipelines, stages, spares, lost, each, keep);
                double want = kept_share(subsets, stages, keep);
                assert_row(fabs(got - want) < 1e-12, "%dx%d + %d by %d, %d lost, keep %d: %.17g, want %.17g", pipelines,
                           stages, spares, each, lost, keep, got, want);
            }
        }
    }
    tm_free(subsets);
}

/* ---- drawn ---- */

struct drawn {
    int pipelines, stages, spares, lost, keep;
    size_t visits;
    double sum, kept, left_sum;
    uint64_t digest; /* of all that was visited, in order */
};

static void add_drawn(void *context, const struct tm_survivors *survivors)
{
    struct drawn *drawn = context;
    int left = 0;
    bool kept = true;
    for (int s = 0; s < survivors->stages; s++) {
        assert_true(survivors->left[s] >= 0 && survivors->left[s] <= drawn->pipelines);
        left += survivors->left[s];
        kept = kept && survivors->left[s] >= drawn->keep;
        drawn->digest = (drawn->digest ^ (uint64_t)survivors->left[s]) * 0x100000001b3u;
    }
    int gone = drawn->pipelines * drawn->stages - left;
    assert_true(gone <= drawn->lost && drawn->lost - gone <= drawn->spares);
    drawn->visits++;
    drawn->sum += survivors->probability;
    drawn->left_sum += survivors->probability * left;
    if (kept) drawn->kept += survivors->probability;
}

/* Instances in use that are left: hypergeometric, so its mean and its variance are known. Five standard errors: one
 * correct draw in two million is further away, and the seed is fixed. */
static void test_drawn_is_repeatable_and_close(void **state)
{
    (void)state;
    static const struct {
        int pipelines, stages, spares, lost, keep;
    } rows[] = {{8, 12, 4, 10, 6},    {16, 16, 0, 32, 12}, {100, 10, 24, 100, 84},
                {64, 64, 0, 300, 50}, {3, 30, 10, 20, 1},  {2, 40, 3, 83, 0}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct drawn first = {
            rows[i].pipelines, rows[i].stages, rows[i].spares, rows[i].lost, rows[i].keep, 0, 0, 0, 0, 0};
        struct drawn again = first;
        assert_row(!tm_losses__each(rows[i].pipelines, rows[i].stages, rows[i].spares, rows[i].lost, add_drawn, &first),
                   "row %zu: counted", i);
        (void)tm_losses__each(rows[i].pipelines, rows[i].stages, rows[i].spares, rows[i].lost, add_drawn, &again);
        assert_row(first.digest == again.digest, "row %zu: not the same twice", i);
        assert_row(first.visits == TM_LOSSES_DRAWN, "row %zu: %zu draws", i, first.visits);
        assert_row(fabs(first.sum - 1) < 1e-9, "row %zu: probabilities sum to %.17g", i, first.sum);
        double used = rows[i].pipelines * rows[i].stages, fleet = used + rows[i].spares, lost = rows[i].lost;
        double mean = used * (1 - lost / fleet);
        double variance = lost * (used / fleet) * (1 - used / fleet) * (fleet - lost) / (fleet - 1);
        double error = 5 * sqrt(variance / (double)first.visits) + 1e-9;
        assert_row(fabs(first.left_sum - mean) <= error, "row %zu: %g left, want %g +- %g", i, first.left_sum, mean,
                   error);
        double keep = tm_losses_keep_probability(rows[i].pipelines, rows[i].stages, rows[i].spares, rows[i].lost, 1,
                                                 rows[i].keep);
        error = 5 * sqrt(keep * (1 - keep) / (double)first.visits) + 1e-9;
        assert_row(fabs(first.kept - keep) <= error, "row %zu: kept %g, want %g +- %g", i, first.kept, keep, error);
    }
}

/* ---- the probability to keep ---- */

/* Against drawing, on fleets too large for subsets; each row is chosen so that the answer is far from 0 and 1. */
static void test_keep_against_drawing(void **state)
{
    (void)state;
    static const struct {
        int pipelines, stages, spares, lost, keep;
    } rows[] = {{4, 8, 0, 6, 2},     {10, 10, 5, 20, 6},       {128, 8, 64, 100, 112}, {200, 5, 24, 500, 85},
                {64, 16, 0, 16, 60}, {1000, 4, 96, 2000, 490}, {3, 64, 8, 5, 2}};
    enum { DRAWS = 4000 };
    static bool gone[TM_LAYOUT_INSTANCES_MAX];
    struct tm_random random = tm_random_make(11, 4);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int instances = rows[i].pipelines * rows[i].stages + rows[i].spares, kept = 0;
        for (int draw = 0; draw < DRAWS; draw++) {
            draw_subset(&random, instances, rows[i].lost, gone);
            struct tm_survivors left = survivors_of(rows[i].pipelines, rows[i].stages, gone);
            bool all = true;
            for (int s = 0; s < rows[i].stages; s++)
                all = all && left.left[s] >= rows[i].keep;
            kept += all;
        }
        double got = tm_losses_keep_probability(rows[i].pipelines, rows[i].stages, rows[i].spares, rows[i].lost, 1,
                                                rows[i].keep);
        double share = (double)kept / DRAWS, error = 5 * sqrt(got * (1 - got) / DRAWS);
        assert_row(got > 0.01 && got < 0.99, "row %zu: %g says little", i, got);
        assert_row(fabs(got - share) <= error, "row %zu: %g, drawn %g +- %g", i, got, share, error);
    }
}

static void test_keep_at_the_edges(void **state)
{
    (void)state;
    static const struct {
        int pipelines, stages, spares, lost, keep;
        double want;
    } rows[] = {
        {4, 8, 0, 0, 4, 1},        {4, 8, 0, 1, 4, 0},
        {4, 8, 1, 1, 4, 1.0 / 33}, {4, 8, 0, 32, 0, 1},
        {4, 8, 0, 32, 1, 0},       {4, 8, 0, 33, 0, 0},
        {4, 8, 3, 2, 5, 0},        {1, 1, 0, 1, 0, 1},
        {1, 1, 0, 1, 1, 0},        {1, 1, 4095, 1, 1, 4095.0 / 4096},
        {4096, 1, 0, 4095, 1, 1},  {64, 64, 0, 1, 63, 1},
        {64, 64, 0, 4096, 0, 1},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double got = tm_losses_keep_probability(rows[i].pipelines, rows[i].stages, rows[i].spares, rows[i].lost, 1,
                                                rows[i].keep);
        assert_row(fabs(got - rows[i].want) < 1e-9, "row %zu: %.12g, want %.12g", i, got, rows[i].want);
    }
}

/* Losing more never helps; a spare more never hurts; needing fewer never hurts. */
static void test_keep_is_monotone(void **state)
{
    (void)state;
    for (int lost = 0; lost < 24; lost++)
        for (int keep = 1; keep <= 4; keep++) {
            double here = tm_losses_keep_probability(4, 6, 4, lost, 1, keep);
            assert_row(tm_losses_keep_probability(4, 6, 4, lost + 1, 1, keep) <= here + 1e-12, "%d lost, keep %d", lost,
                       keep);
            assert_row(tm_losses_keep_probability(4, 6, 5, lost, 1, keep) >= here - 1e-12, "%d lost, keep %d", lost,
                       keep);
            assert_row(tm_losses_keep_probability(4, 6, 4, lost, 1, keep - 1) >= here - 1e-12, "%d lost, keep %d", lost,
                       keep);
        }
}

TM_TEST_MAIN(TM_TEST(test_counted_equals_all_subsets), TM_TEST(test_instances_go_whole),
             TM_TEST(test_drawn_is_repeatable_and_close), TM_TEST(test_keep_against_drawing),
             TM_TEST(test_keep_at_the_edges), TM_TEST(test_keep_is_monotone))
