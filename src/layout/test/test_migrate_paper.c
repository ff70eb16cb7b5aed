/* Parcae's migrations against an independent count: named instances, every subset of them, its rules as its paper and
 * its released planner have them. */
#include "layout/migrate.h"

#include "layout/test/layout_helpers.h"

static const char paper_cost[] = "tidemill-cost: 1\n"
                                 "kind: paper\n"
                                 "rollback_ms: 14000\n"
                                 "transfer_us: {1000: 100, 1000000: 1000, 100000000: 90000, 1000000000: 1000000}\n"
                                 "models:\n"
                                 "  test:\n"
                                 "    stages_min: 1\n"
                                 "    stages_max: 6\n"
                                 "    process_ms: 240\n"
                                 "    rendezvous_ms: 6600\n"
                                 "    rendezvous_extra_ms: 2000\n"
                                 "    group_add: {base_ms: 535, per_pipeline_ms: 500, per_stage_ms: 500, "
                                 "per_instance_ms: 500}\n"
                                 "    group_remove: {base_ms: 74.3, per_pipeline_ms: 39.3, per_stage_ms: 39.3, "
                                 "per_instance_ms: 39.3}\n"
                                 "    build_ms: {1: 4800, 2: 2500, 3: 1700, 4: 1300, 5: 1100, 6: 900}\n";

/* ---- the rules once more, written from the paper ---- */

static double p2p_ms(double bytes)
{
    static const double points[][2] = {{1e3, 0.1}, {1e6, 1}, {1e8, 90}, {1e9, 1000}};
    if (bytes <= points[0][0]) return points[0][1];
    for (int i = 1; i < 4; i++) {
        double share = (bytes - points[i - 1][0]) / (points[i][0] - points[i - 1][0]);
        if (bytes <= points[i][0]) return points[i - 1][1] + (points[i][1] - points[i - 1][1]) * share;
    }
    return bytes / 1e9 * 1000;
}

static double group_of(int d, int p, bool add)
{
    return 35 + (d + p + 1 + d * p) * (add ? 500 : 39.3);
}

static double restart_of(int d, int p, bool add)
{
    static const double build[] = {0, 4800, 2500, 1700, 1300, 1100, 900};
    return group_of(d, p, add) + 240 + build[p] + (add ? 6600 + 2000 : 0);
}

/* Layers of stage `stage` of `p`: [*first, *end). */
static void stage_of(int layers, int p, int stage, int *first, int *end)
{
    int sizes[TM_LAYOUT_STAGES_MAX], extra = (layers - 1) % p;
    for (int i = 0; i < p; i++)
        sizes[i] = (layers - 1) / p;
    for (int i = 0; i < extra; i++)
        sizes[p - 2 - i]++;
    sizes[0]++;
    *first = 0;
    for (int i = 0; i < stage; i++)
        *first += sizes[i];
    *end = *first + sizes[stage];
}

static double params_of(const struct test_job *job, int first, int end)
{
    double sum = 0;
    for (int i = first; i < end; i++)
        sum += job->layers[i].params;
    return sum;
}

static double stage_ms_of(const struct test_job *job, int p, int stage)
{
    int first, end;
    stage_of((int)job->model.layer_count, p, stage, &first, &end);
    return p2p_ms(params_of(job, first, end) * 12);
}

static double largest_ms_of(const struct test_job *job, int p)
{
    double most = 0;
    for (int s = 0; s < p; s++)
        most = fmax(most, stage_ms_of(job, p, s));
    return most;
}

/* What new stage `j` of `new_p` lacks if it takes instance k. */
static double lacks_of(const struct test_job *job, int p, int k, int new_p, int j)
{
    int first, end, from, to, layers = (int)job->model.layer_count;
    stage_of(layers, new_p, j, &first, &end);
    stage_of(layers, p, k % p, &from, &to);
    from = from > first ? from : first;
    to = to < end ? to : end;
    return params_of(job, first, end) - (to > from ? params_of(job, from, to) : 0);
}

/* What the last new stage lacks, when each in turn takes the free survivor that lacks least: with the lowest number of
 * equals (Parcae's choice), and the least and the most over all choices among equals. */
struct missing {
    double parcae, least, most;
};

struct choice {
    const struct test_job *job;
    int d, p, new_p;
    const bool *gone;
    bool taken[TEST_INSTANCES_MAX];
};

static struct missing missing_from(struct choice *choice, int j, double so_far)
{
    struct missing all = {so_far, so_far, so_far};
    double fewest = INFINITY;
    if (j == choice->new_p) return all;
    for (int k = 0; k < choice->d * choice->p; k++)
        if (!choice->gone[k] && !choice->taken[k])
            fewest = fmin(fewest, lacks_of(choice->job, choice->p, k, choice->new_p, j));
    if (!isfinite(fewest)) return all;
    bool stage_tried[TM_LAYOUT_STAGES_MAX] = {false}, first = true;
    for (int k = 0; k < choice->d * choice->p; k++) {
        if (choice->gone[k] || choice->taken[k] || stage_tried[k % choice->p]) continue;
        if (lacks_of(choice->job, choice->p, k, choice->new_p, j) > fewest + 1e-3) continue;
        stage_tried[k % choice->p] = choice->taken[k] = true;
        struct missing then = missing_from(choice, j + 1, fewest);
        choice->taken[k] = false;
        if (first) all = then;
        first = false;
        all.least = fmin(all.least, then.least);
        all.most = fmax(all.most, then.most);
    }
    return all;
}

static double between_of(const struct test_job *job, const struct tm_survivors *left, int new_d)
{
    double most = 0, sum = 0;
    for (int s = 0; s < left->stages; s++) {
        if (left->left[s] >= new_d) continue;
        most = fmax(most, stage_ms_of(job, left->stages, s));
        if (left->left[s] == 0 || (s == left->stages - 1 && left->left[s] == 1))
            sum += stage_ms_of(job, left->stages, s);
    }
    return fmax(most, sum);
}

/* The same for the cost of one outcome. */
static struct missing outcome_of(const struct test_job *job, int d, int p, const bool *gone, int lost, int new_d,
                                 int new_p)
{
    bool add = new_d * new_p > d * p - lost;
    if (d == new_d && p == new_p && lost == 0) return (struct missing){0, 0, 0};
    if (p != new_p) {
        struct choice choice = {.job = job, .d = d, .p = p, .new_p = new_p, .gone = gone};
        struct missing missing = missing_from(&choice, 0, 0);
        double rest = (new_d > 1 ? largest_ms_of(job, new_p) : 0) + restart_of(new_d, new_p, add);
        return (struct missing){p2p_ms(missing.parcae * 12) + rest, p2p_ms(missing.least * 12) + rest,
                                p2p_ms(missing.most * 12) + rest};
    }
    struct tm_survivors left = survivors_of(d, p, gone);
    bool within = true;
    for (int s = 0; s < p; s++)
        within = within && left.left[s] >= new_d;
    double ms = within ? group_of(new_d, p, false) + 240 : between_of(job, &left, new_d) + restart_of(new_d, p, add);
    return (struct missing){ms, ms, ms};
}

/* ---- all subsets against the table ---- */

struct sums {
    const struct test_job *job;
    int d, p, lost;
    struct missing of[64];
    double subsets;
};

static void add_subset(void *context, const bool *gone)
{
    struct sums *sums = context;
    sums->subsets++;
    for (size_t to = 1; to < sums->job->layouts.count; to++) {
        const struct tm_layout *target = &sums->job->layouts.list[to];
        struct missing ms =
            outcome_of(sums->job, sums->d, sums->p, gone, sums->lost, target->pipelines, target->stages);
        sums->of[to].parcae += ms.parcae;
        sums->of[to].least += ms.least;
        sums->of[to].most += ms.most;
    }
}

struct tally {
    int exact, tied;
    double worst;
};

/* The table counts survivors of each stage and breaks ties by pipeline. So it is exact wherever the choice among equals
 * changes nothing; else within what choices give, and within 2% of Parcae's. */
static void check_row(struct test_job *job, int d, int p, int spares, int lost, struct tally *tally)
{
    struct sums *sums = tm_calloc(1, sizeof *sums);
    assert_non_null(sums);
    sums->job = job;
    sums->d = d;
    sums->p = p;
    sums->lost = lost;
    each_subset(d * p + spares, lost, add_subset, sums);
    int from = tm_layouts_find(&job->layouts, d, p);
    const double *row = tm_migrations_row(job->migrations, d * p + spares, from, lost);
    assert_true(from > 0 && row != NULL && row[TM_LAYOUT_PAUSE] == 0 && job->layouts.count < TM_COUNT(sums->of));
    for (size_t to = 1; to < job->layouts.count; to++) {
        double want = sums->of[to].parcae / sums->subsets;
        double least = sums->of[to].least / sums->subsets, most = sums->of[to].most / sums->subsets;
        bool tied = most - least > 1e-9 * want;
        double off = want > 0 ? fabs(row[to] / want - 1) : row[to];
        char place[80];
        (void)snprintf(place, sizeof place, "%dx%d + %d, %d lost, to %dx%d", d, p, spares, lost,
                       job->layouts.list[to].pipelines, job->layouts.list[to].stages);
        assert_row(off < (tied ? 0.02 : 1e-11), "%s: %.9f, want %.9f%s", place, row[to], want, tied ? " (ties)" : "");
        assert_row(row[to] >= least * (1 - 1e-11) && row[to] <= most * (1 + 1e-11), "%s: %.9f, not in %.9f to %.9f",
                   place, row[to], least, most);
        tally->exact += !tied;
        tally->tied += tied;
        if (off > tally->worst) tally->worst = off;
    }
    tm_free(sums);
}

static void test_all_subsets(void **state)
{
    (void)state;
    static const int froms[][3] = {{1, 1, 0}, {3, 1, 1}, {1, 2, 2}, {2, 2, 1}, {4, 2, 0}, {1, 3, 1}, {2, 3, 0},
                                   {3, 3, 1}, {1, 4, 0}, {2, 4, 2}, {1, 5, 3}, {2, 5, 0}, {1, 6, 2}};
    static const int layers[] = {7, 9, 13, 26};
    struct tally tally = {0};
    for (size_t m = 0; m < 2 * TM_COUNT(layers); m++) {
        struct test_job *job = job_make(layers[m / 2], m % 2 == 0, paper_cost, 12, test_speed);
        for (size_t i = 0; i < TM_COUNT(froms); i++) {
            int instances = froms[i][0] * froms[i][1] + froms[i][2];
            for (int lost = 0; lost <= 4 && lost <= instances; lost++)
                check_row(job, froms[i][0], froms[i][1], froms[i][2], lost, &tally);
        }
        job_drop(job);
    }
    print_message("%d costs exact, %d where ties matter, at most %.4f%% off\n", tally.exact, tally.tied,
                  100 * tally.worst);
    assert_true(tally.exact > 5 * tally.tied);
}

static void test_from_the_pause(void **state)
{
    (void)state;
    struct test_job *job = job_make(13, false, paper_cost, 12, test_speed);
    const double *row = tm_migrations_row(job->migrations, 12, TM_LAYOUT_PAUSE, 3);
    assert_non_null(row);
    for (size_t to = 1; to < job->layouts.count; to++) {
        int d = job->layouts.list[to].pipelines, p = job->layouts.list[to].stages;
        double want = restart_of(d, p, true) + p2p_ms(0) + (d > 1 ? largest_ms_of(job, p) : 0);
        assert_row(close_to(row[to], want, 1e-12), "to %dx%d: %g, want %g", d, p, row[to], want);
        assert_row(close_to(tm_migrations_restart_ms(job->migrations, (int)to), restart_of(d, p, false), 1e-12),
                   "restart of %dx%d", d, p);
        double rollback = restart_of(d, p, false) + 14000;
        for (int s = 0; s < p; s++)
            rollback += stage_ms_of(job, p, s);
        double got = tm_cost_rollback_ms(&job->cost, &job->layouts, (int)to, false, false);
        assert_row(close_to(got, rollback, 1e-12), "rollback to %dx%d: %g, want %g", d, p, got, rollback);
        got = tm_cost_rollback_ms(&job->cost, &job->layouts, (int)to, true, true);
        rollback += restart_of(d, p, true) - restart_of(d, p, false) - 14000;
        assert_row(close_to(got, rollback, 1e-12), "start of %dx%d: %g, want %g", d, p, got, rollback);
    }
    assert_true(tm_migrations_restart_ms(job->migrations, TM_LAYOUT_PAUSE) == 0);
    assert_true(tm_cost_rollback_ms(&job->cost, &job->layouts, TM_LAYOUT_PAUSE, true, false) == 0);
    job_drop(job);
}

TM_TEST_MAIN(TM_TEST(test_all_subsets), TM_TEST(test_from_the_pause))
