/* The migration table: expectations against outcomes, and what must hold of costs that were measured. */
#include "layout/migrate.h"

#include "layout/test/layout_helpers.h"

#define PAPER_COST PAPER_COST_TO("6")
#define PAPER_COST_TO(stages_max)                                                                                      \
    "tidemill-cost: 1\nkind: paper\ntransfer_us: {1: 100, 1000000000: 1000000}\n"                                      \
    "models: {test: {stages_max: " stages_max                                                                          \
    ", process_ms: 30, rendezvous_ms: 660, build_base_ms: 55, build_per_layer_ms: 43, "                                \
    "group_add: {base_ms: 35, per_instance_ms: 44}, group_remove: {base_ms: 35, per_instance_ms: 34}}}\n"

/* ---- a measured job with given figures ---- */

struct figures {
    double reform_ms, reform_per_instance_ms, latency_ms, link_bit_s, store_bit_s;
};

static const struct figures usual = {1500, 20, 5, 1e9, 4e8};

static struct test_job *measured_job(const struct figures *figures, int stages_max, int layers, double params_times,
                                     int instances_max)
{
    char text[512];
    (void)snprintf(text, sizeof text,
                   "tidemill-cost: 1\nkind: measured\nreform_ms: %.17g\nreform_per_instance_ms: %.17g\n"
                   "link_latency_ms: %.17g\nlink: %.0fbit/s\nstore: %.0fbit/s\nmodels: {test: {stages_max: %d}}\n",
                   figures->reform_ms, figures->reform_per_instance_ms, figures->latency_ms, figures->link_bit_s,
                   figures->store_bit_s, stages_max);
    struct test_job *job = job_make(layers, false, text, instances_max, test_speed);
    if (params_times == 1) return job;
    struct tm_error e = {0};
    for (int i = 0; i < layers; i++)
        job->layers[i].params *= params_times;
    tm_migrations_destroy(job->migrations);
    tm_layouts_deinit(&job->layouts);
    assert_int_equal(tm_layouts_init(&job->layouts, &job->model, &job->cost.rules, instances_max, test_speed, NULL, &e),
                     0);
    assert_int_equal(tm_migrations_create(&job->layouts, &job->cost, &job->migrations, &e), 0);
    return job;
}

static const int froms[][3] = {{1, 1, 0}, {3, 1, 1}, {1, 2, 2}, {2, 2, 1}, {4, 2, 0}, {2, 3, 0},
                               {3, 3, 1}, {1, 4, 0}, {2, 4, 2}, {2, 5, 0}, {1, 6, 2}};

/* Wide ones, of which many replicas are left whoever goes: with few stages at most, their costs have closed forms. */
static const int wide_froms[][3] = {{10, 1, 2}, {12, 1, 0}, {6, 2, 0}, {5, 2, 2}, {4, 3, 0}, {4, 3, 2}, {5, 3, 0}};

static const double *row_of(struct test_job *job, const int *from, int lost)
{
    const double *row = tm_migrations_row(job->migrations, from[0] * from[1] + from[2],
                                          tm_layouts_find(&job->layouts, from[0], from[1]), lost);
    assert_non_null(row);
    return row;
}

static const char *place_of(const struct test_job *job, const int *from, int lost, size_t to)
{
    static char text[96];
    (void)snprintf(text, sizeof text, "%dx%d + %d, %d lost, to %dx%d", from[0], from[1], from[2], lost,
                   job->layouts.list[to].pipelines, job->layouts.list[to].stages);
    return text;
}

/* ---- a row is the mean of its outcomes ---- */

struct mean {
    struct test_job *job;
    const int *from;
    int lost;
    double sum[64], square[64], least[64];
    double count;
};

static void add_outcome(void *context, const bool *gone)
{
    struct mean *mean = context;
    struct tm_survivors left = survivors_of(mean->from[0], mean->from[1], gone);
    int from = tm_layouts_find(&mean->job->layouts, mean->from[0], mean->from[1]);
    mean->count++;
    for (size_t to = 0; to < mean->job->layouts.count && to < 64; to++) {
        double ms = tm_migration__ms(mean->job->migrations, from, &left, mean->lost, (int)to);
        mean->sum[to] += ms;
        mean->square[to] += ms * ms;
        if (mean->count == 1 || ms < mean->least[to]) mean->least[to] = ms;
    }
}

/* Entries asked for one by one, before the row as a whole, are the same; and none is below the least. Of fleets whose
 * workers are `each` of an instance, those of whole ones. */
static void check_means_by(struct test_job *job, const int (*list)[3], size_t count, int lost_max, int each)
{
    job->layouts.workers_each = each;
    for (size_t i = 0; i < count; i++) {
        int instances = list[i][0] * list[i][1] + list[i][2],
            from = tm_layouts_find(&job->layouts, list[i][0], list[i][1]);
        for (int lost = 0; lost <= lost_max && lost <= instances && instances % each == 0; lost += each) {
            struct mean mean = {.job = job, .from = list[i], .lost = lost};
            double alone[64];
            for (size_t to = job->layouts.count; to-- > 0;)
                alone[to] = tm_migrations_ms(job->migrations, instances, from, lost, (int)to);
            const double *row = row_of(job, list[i], lost);
            each_subset_by(each, instances, lost, add_outcome, &mean);
            for (size_t to = 0; to < job->layouts.count; to++) {
                double want = mean.sum[to] / mean.count;
                double least = tm_migrations_least_ms(job->migrations, from, lost, (int)to);
                assert_row(close_to(row[to], want, 1e-11) && alone[to] == row[to],
                           "%s: %.12g (alone %.12g), want %.12g", place_of(job, list[i], lost, to), row[to], alone[to],
                           want);
                assert_row(least >= 0 && least <= mean.least[to] * (1 + 1e-12), "%s: least %g, yet %g",
                           place_of(job, list[i], lost, to), least, mean.least[to]);
            }
        }
    }
}

static void check_means(struct test_job *job, const int (*list)[3], size_t count, int lost_max)
{
    check_means_by(job, list, count, lost_max, 1);
}

/* Workers of one instance are lost together: neighbouring stages, or whole pipelines. */
static void test_rows_of_instances_are_means(void **state)
{
    (void)state;
    static const int pairs[][3] = {{3, 2, 2}, {2, 4, 2}, {3, 4, 0}, {4, 1, 2},
                                   {6, 1, 0}, {8, 2, 0}, {7, 2, 2}, {4, 4, 0}};
    static const int fours[][3] = {{2, 4, 4}, {3, 4, 0}, {4, 2, 4}, {8, 2, 0}, {8, 1, 4}, {4, 4, 0}};
    struct test_job *paper = job_make(13, false, PAPER_COST_TO("4"), 16, test_speed);
    struct test_job *measured = measured_job(&usual, 4, 13, 1, 16);
    check_means_by(paper, pairs, TM_COUNT(pairs), 6, 2);
    check_means_by(measured, pairs, TM_COUNT(pairs), 6, 2);
    job_drop(paper);
    job_drop(measured);
    paper = job_make(13, false, PAPER_COST_TO("4"), 16, test_speed);
    measured = measured_job(&usual, 4, 13, 1, 16);
    check_means_by(paper, fours, TM_COUNT(fours), 8, 4);
    check_means_by(measured, fours, TM_COUNT(fours), 8, 4);
    job_drop(paper);
    job_drop(measured);
}

static void test_rows_are_means(void **state)
{
    (void)state;
    struct test_job *paper = job_make(13, false, PAPER_COST, 12, test_speed);
    struct test_job *measured = measured_job(&usual, 6, 13, 1, 12);
    check_means(paper, froms, TM_COUNT(froms), 5);
    check_means(measured, froms, TM_COUNT(froms), 5);
    job_drop(paper);
    job_drop(measured);
    paper = job_make(13, false, PAPER_COST_TO("3"), 16, test_speed);
    measured = measured_job(&usual, 3, 13, 1, 16);
    check_means(paper, wide_froms, TM_COUNT(wide_froms), 6);
    check_means(measured, wide_froms, TM_COUNT(wide_froms), 6);
    job_drop(paper);
    job_drop(measured);
}

/* Fleets whose outcomes are drawn in the table, against drawing once more: both have their error: five of
 * them, and a thousandth for outcomes so rare that one of the two may not have seen them. */
static void test_drawn_rows_are_near_means(void **state)
{
    (void)state;
    enum { DRAWS = 3000 };
    static const int large[][4] = {{6, 6, 4, 20}, {9, 6, 0, 12}, {4, 6, 6, 14}};
    for (size_t i = 0; i < 2 * TM_COUNT(large); i++) {
        const int *from = large[i / 2];
        struct test_job *job =
            i % 2 == 0 ? measured_job(&usual, 6, 13, 1, 60) : job_make(13, false, PAPER_COST, 60, test_speed);
        struct tm_random random = tm_random_make(5, i);
        struct mean mean = {.job = job, .from = from, .lost = from[3]};
        bool gone[64];
        for (int draw = 0; draw < DRAWS; draw++) {
            draw_subset(&random, from[0] * from[1] + from[2], from[3], gone);
            add_outcome(&mean, gone);
        }
        const double *row = row_of(job, from, from[3]);
        for (size_t to = 1; to < job->layouts.count && to < 64; to++) {
            double want = mean.sum[to] / DRAWS, variance = fmax(0, mean.square[to] / DRAWS - want * want);
            double error = 5 * sqrt(variance * (1.0 / DRAWS + 1.0 / TM_LOSSES_DRAWN)) + 1e-3 * want;
            assert_row(fabs(row[to] - want) <= error, "%s: %g, drawn %g +- %g", place_of(job, from, from[3], to),
                       row[to], want, error);
        }
        job_drop(job);
    }
}

/* ---- measured costs ---- */

/* Row by row, `better` never costs more than `worse`; and somewhere it costs less. */
static void check_never_more(const char *name, struct test_job *better, struct test_job *worse)
{
    bool less = false;
    for (size_t i = 0; i < TM_COUNT(froms); i++)
        for (int lost = 0; lost <= 4 && lost <= froms[i][0] * froms[i][1]; lost++) {
            const double *a = row_of(better, froms[i], lost), *b = row_of(worse, froms[i], lost);
            for (size_t to = 0; to < better->layouts.count; to++) {
                assert_row(isfinite(a[to]) && a[to] >= 0, "%s: %s: %g", name, place_of(better, froms[i], lost, to),
                           a[to]);
                assert_row(a[to] <= b[to] * (1 + 1e-12), "%s: %s: %g above %g", name,
                           place_of(better, froms[i], lost, to), a[to], b[to]);
                less = less || a[to] < b[to] * (1 - 1e-9);
            }
        }
    assert_row(less, "%s: changes nothing", name);
    job_drop(better);
}

static void test_better_figures_never_cost_more(void **state)
{
    (void)state;
    struct test_job *job = measured_job(&usual, 6, 13, 1, 12);
    check_never_more("link", measured_job(&(struct figures){1500, 20, 5, 2e9, 4e8}, 6, 13, 1, 12), job);
    check_never_more("store", measured_job(&(struct figures){1500, 20, 5, 1e9, 8e8}, 6, 13, 1, 12), job);
    check_never_more("latency", measured_job(&(struct figures){1500, 20, 1, 1e9, 4e8}, 6, 13, 1, 12), job);
    check_never_more("reform", measured_job(&(struct figures){100, 20, 5, 1e9, 4e8}, 6, 13, 1, 12), job);
    check_never_more("reform of each", measured_job(&(struct figures){1500, 0, 5, 1e9, 4e8}, 6, 13, 1, 12), job);
    check_never_more("bytes", measured_job(&usual, 6, 13, 0.5, 12), job);
    job_drop(job);
}

/* Without fixed parts, twice the bytes cost twice the time, and so does half the bandwidth. */
static void test_cost_is_in_proportion_to_bytes(void **state)
{
    (void)state;
    static const struct figures bare = {0, 0, 0, 1e9, 4e8}, half = {0, 0, 0, 5e8, 2e8};
    struct test_job *once = measured_job(&bare, 6, 13, 1, 12);
    struct test_job *twice = measured_job(&bare, 6, 13, 2, 12);
    struct test_job *slow = measured_job(&half, 6, 13, 1, 12);
    for (size_t i = 0; i < TM_COUNT(froms); i++)
        for (int lost = 0; lost <= 4 && lost <= froms[i][0] * froms[i][1]; lost++) {
            const double *a = row_of(once, froms[i], lost), *b = row_of(twice, froms[i], lost);
            const double *c = row_of(slow, froms[i], lost);
            for (size_t to = 0; to < once->layouts.count; to++)
                assert_row(close_to(2 * a[to], b[to], 1e-11) && close_to(2 * a[to], c[to], 1e-11), "%s: %g, %g, %g",
                           place_of(once, froms[i], lost, to), a[to], b[to], c[to]);
        }
    job_drop(once);
    job_drop(twice);
    job_drop(slow);
}

/* Outcomes by hand. Three stages of two replicas; layers of 5, 3 x 11 and 5 million parameters, 12 bytes each, are cut
 * 5 + 4 + 4 by number; `usual` figures, so a transfer of b bytes takes 5 + b x 8 / 1e6 ms, the store 8 / 4e5. */
static void test_outcomes_by_hand(void **state)
{
    (void)state;
    struct test_job *job = measured_job(&usual, 6, 13, 1, 12);
    double bytes[3];
    for (int s = 0; s < 3; s++)
        bytes[s] = tm_layouts_stage_bytes(&job->layouts, 3, s);
    const double link = 8 / 1e6, store = 8 / 4e5, restart2 = 1500 + 20 * 6, restart1 = 1500 + 20 * 3;
    const double largest = fmax(bytes[0], fmax(bytes[1], bytes[2]));
    const struct {
        const char *name;
        int left[3], lost, to_pipelines, to_stages;
        double want;
    } rows[] = {
        {"nothing happens", {2, 2, 2}, 0, 2, 3, 0},
        {"spares go", {2, 2, 2}, 1, 2, 3, 0},
        {"one pipeline fewer", {2, 2, 2}, 0, 1, 3, restart1},
        {"a replica goes, one pipeline is whole", {2, 1, 2}, 1, 1, 3, restart1},
        {"a replica goes, a spare takes its place", {2, 1, 2}, 1, 2, 3, restart2 + 5 + bytes[1] * link},
        {"a stage of each pipeline", {1, 1, 2}, 2, 2, 3, restart2 + 5 + fmax(bytes[0], bytes[1]) * link},
        {"a stage is gone", {2, 0, 2}, 2, 1, 3, restart1 + bytes[1] * store},
        {"a stage is gone, wanted twice", {2, 0, 2}, 2, 2, 3, restart2 + bytes[1] * store + 5 + bytes[1] * link},
        {"all are gone", {0, 0, 0}, 6, 1, 3, restart1 + (bytes[0] + bytes[1] + bytes[2]) * store},
        {"two from one", {1, 2, 2}, 1, 3, 3, 1500 + 20 * 9 + 5 + fmax(2 * bytes[0], largest) * link},
        {"pause", {1, 0, 2}, 3, 0, 0, 0},
    };
    int from = tm_layouts_find(&job->layouts, 2, 3);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_survivors left = {.stages = 3, .left = {rows[i].left[0], rows[i].left[1], rows[i].left[2]}};
        int to = tm_layouts_find(&job->layouts, rows[i].to_pipelines, rows[i].to_stages);
        double got = tm_migration__ms(job->migrations, from, &left, rows[i].lost, to);
        assert_row(close_to(got, rows[i].want, 1e-12), "%s: %.9g, want %.9g", rows[i].name, got, rows[i].want);
    }
    job_drop(job);
}

/* Whatever the target: a stage of which nothing is left is read from the store at least once. */
static void test_a_lost_stage_is_read_from_the_store(void **state)
{
    (void)state;
    struct test_job *job = measured_job(&usual, 6, 13, 1, 12);
    for (size_t i = 0; i < TM_COUNT(froms); i++)
        for (int stage = 0; stage < froms[i][1]; stage++) {
            struct tm_survivors left = {.stages = froms[i][1]};
            for (int s = 0; s < froms[i][1]; s++)
                left.left[s] = s == stage ? 0 : froms[i][0];
            int from = tm_layouts_find(&job->layouts, froms[i][0], froms[i][1]);
            double least = 1500 + tm_layouts_stage_bytes(&job->layouts, froms[i][1], stage) * 8 / 4e5;
            for (size_t to = 1; to < job->layouts.count; to++) {
                double got = tm_migration__ms(job->migrations, from, &left, froms[i][0], (int)to);
                assert_row(got >= least, "%s, stage %d: %g below %g", place_of(job, froms[i], froms[i][0], to), stage,
                           got, least);
            }
        }
    job_drop(job);
}

/* With the same cut, one replica fewer never makes it cheaper. */
static void test_fewer_survivors_never_cost_less(void **state)
{
    (void)state;
    struct test_job *job = measured_job(&usual, 6, 13, 1, 12);
    int from = tm_layouts_find(&job->layouts, 3, 3);
    for (int code = 0; code < 64; code++) {
        struct tm_survivors left = {.stages = 3, .left = {code & 3, code >> 2 & 3, code >> 4 & 3}};
        int lost = 9 - left.left[0] - left.left[1] - left.left[2];
        for (int to = tm_layouts_find(&job->layouts, 1, 3); to <= tm_layouts_find(&job->layouts, 4, 3); to++) {
            double here = tm_migration__ms(job->migrations, from, &left, lost, to);
            for (int s = 0; s < 3; s++) {
                struct tm_survivors fewer = left;
                if (fewer.left[s]-- == 0) continue;
                double there = tm_migration__ms(job->migrations, from, &fewer, lost + 1, to);
                assert_row(there >= here - 1e-9, "%d %d %d less one of %d: %g below %g", left.left[0], left.left[1],
                           left.left[2], s, there, here);
            }
        }
    }
    job_drop(job);
}

static void test_from_the_pause_all_comes_from_the_store(void **state)
{
    (void)state;
    struct test_job *job = measured_job(&usual, 6, 13, 1, 12);
    const double *row = tm_migrations_row(job->migrations, 9, TM_LAYOUT_PAUSE, 4);
    double bytes = job->layouts.layer_params_before[13] * 12;
    assert_non_null(row);
    assert_true(row[TM_LAYOUT_PAUSE] == 0);
    for (size_t to = 1; to < job->layouts.count; to++) {
        double want = 1500 + 20 * job->layouts.list[to].instances + 5 + bytes * 8 / 4e5;
        assert_row(close_to(row[to], want, 1e-12), "to %zu: %g, want %g", to, row[to], want);
        assert_row(close_to(tm_cost_rollback_ms(&job->cost, &job->layouts, (int)to, false, false), want, 1e-12),
                   "rollback to %zu", to);
    }
    job_drop(job);
}

/* ---- another cut, as it is defined ---- */

/* The closest free survivor of new stage `j`: it shares most; of equals the one of the lowest pipeline, then stage. */
static int plain_closest(const struct tm_layouts *layouts, const struct tm_survivors *survivors, const int *taken,
                         int stages, int j, double *out_shared)
{
    const struct tm_cut *old = &layouts->cuts[survivors->stages], *cut = &layouts->cuts[stages];
    int best = -1;
    *out_shared = 0;
    for (int s = 0; s < survivors->stages; s++) {
        int from = old->first[s] > cut->first[j] ? old->first[s] : cut->first[j];
        int to = old->first[s + 1] < cut->first[j + 1] ? old->first[s + 1] : cut->first[j + 1];
        if (to <= from || taken[s] >= survivors->left[s]) continue;
        double shared = layouts->layer_params_before[to] - layouts->layer_params_before[from];
        bool closer = shared > *out_shared || (best >= 0 && shared == *out_shared && taken[s] < taken[best]);
        if (!closer) continue;
        best = s;
        *out_shared = shared;
    }
    return best;
}

/* Place by place, all layers of all old stages each time: milliseconds of the transfer. */
static double plain_new_cut_ms(const struct test_job *job, const struct tm_survivors *survivors, int stages,
                               int pipelines)
{
    const struct tm_layouts *layouts = &job->layouts;
    const struct tm_cut *cut = &layouts->cuts[stages], *old = &layouts->cuts[survivors->stages];
    double given[TM_LAYOUT_STAGES_MAX] = {0}, worst = 0, from_store = 0, shared;
    int taken[TM_LAYOUT_STAGES_MAX] = {0};
    for (int place = 0; place < stages * pipelines; place++) {
        int j = place % stages, own = plain_closest(layouts, survivors, taken, stages, j, &shared);
        if (own >= 0) taken[own]++;
        worst = fmax(worst, cut->params[j] - shared);
        for (int s = 0; s < survivors->stages; s++) {
            int from = old->first[s] > cut->first[j] ? old->first[s] : cut->first[j];
            int to = old->first[s + 1] < cut->first[j + 1] ? old->first[s + 1] : cut->first[j + 1];
            if (to <= from || s == own) continue;
            double params = layouts->layer_params_before[to] - layouts->layer_params_before[from];
            if (survivors->left[s] > 0)
                given[s] += params / survivors->left[s];
            else if (place < stages)
                from_store += params;
        }
    }
    for (int s = 0; s < survivors->stages; s++)
        worst = fmax(worst, given[s]);
    double bytes = worst * layouts->bytes_per_param;
    double ms = bytes <= 0 ? 0 : job->cost.measured.link_latency_ms + bytes * 8e3 / job->cost.measured.link_bit_s;
    return from_store > 0 ? ms + from_store * layouts->bytes_per_param * 8e3 / job->cost.measured.store_bit_s : ms;
}

/* The table goes through near stages alone and pipeline by pipeline; that must not show, not even in the last bit. */
static void test_another_cut_is_as_defined(void **state)
{
    (void)state;
    struct test_job *job = measured_job(&usual, 16, 40, 1, 32);
    struct tm_random random = tm_random_make(9, 0);
    for (int round = 0; round < 20000; round++) {
        int from = 1 + (int)tm_random_below(&random, job->layouts.count - 1);
        int to = 1 + (int)tm_random_below(&random, job->layouts.count - 1);
        const struct tm_layout *old = &job->layouts.list[from], *target = &job->layouts.list[to];
        if (old->stages == target->stages) continue;
        struct tm_survivors left = {.stages = old->stages};
        int lost = old->instances;
        for (int s = 0; s < old->stages; s++) {
            left.left[s] = (int)tm_random_below(&random, (uint64_t)old->pipelines + 1);
            lost -= left.left[s];
        }
        double restart_ms =
            tm_cost_restart_ms(&job->cost, &job->layouts, to, target->instances > old->instances - lost);
        double want = plain_new_cut_ms(job, &left, target->stages, target->pipelines) + restart_ms;
        double got = tm_migration__ms(job->migrations, from, &left, lost, to);
        assert_row(got == want, "%dx%d, %d lost, to %dx%d: %.17g, want %.17g", old->pipelines, old->stages, lost,
                   target->pipelines, target->stages, got, want);
        double least = tm_migrations_least_ms(job->migrations, from, lost, to);
        assert_row(least <= got, "%dx%d to %dx%d: at least %.17g, yet %.17g", old->pipelines, old->stages,
                   target->pipelines, target->stages, least, got);
    }
    job_drop(job);
}

/* ---- the table ---- */

static void test_rows_stay(void **state)
{
    (void)state;
    struct test_job *job = measured_job(&usual, 6, 13, 1, 60);
    const double *first = tm_migrations_row(job->migrations, 60, 1, 1);
    double kept = first[2];
    size_t rows = 0, bytes = tm_migrations_bytes(job->migrations);
    for (int fleet = 1; fleet <= 60; fleet++) /* more than the first table holds */
        for (int pipelines = 1; pipelines <= fleet; pipelines++, rows++) {
            const double *row =
                tm_migrations_row(job->migrations, fleet, tm_layouts_find(&job->layouts, pipelines, 1), 1);
            assert_non_null(row);
        }
    assert_true(rows > 1500);
    assert_int_equal(tm_migrations__count(job->migrations), rows);
    assert_true(tm_migrations_bytes(job->migrations) >= bytes + (rows - 1) * job->layouts.count * sizeof(double));
    assert_ptr_equal(tm_migrations_row(job->migrations, 60, 1, 1), first);
    assert_true(first[2] == kept);
    const double *pause = tm_migrations_row(job->migrations, 5, TM_LAYOUT_PAUSE, 2);
    assert_ptr_equal(tm_migrations_row(job->migrations, 50, TM_LAYOUT_PAUSE, 0), pause); /* nothing to lose: one row */
    assert_int_equal(tm_migrations__count(job->migrations), rows + 1);
    job_drop(job);
}

static int use_once(struct test_job *job)
{
    struct tm_migrations *migrations;
    struct tm_error e;
    int rc = tm_migrations_create(&job->layouts, &job->cost, &migrations, &e);
    if (rc != 0) return rc;
    for (int lost = 0; lost < 4; lost++)
        if (tm_migrations_row(migrations, 9, 3, lost) == NULL) rc = -(int)TM_ENOMEM;
    tm_migrations_destroy(migrations);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    struct test_job *job = measured_job(&usual, 6, 13, 1, 12);
    TM_FAIL_EACH_ALLOC({ rc = use_once(job); });
    tm_migrations_destroy(NULL);
    job_drop(job);
}

TM_TEST_MAIN(TM_TEST(test_rows_are_means), TM_TEST(test_rows_of_instances_are_means),
             TM_TEST(test_drawn_rows_are_near_means), TM_TEST(test_better_figures_never_cost_more),
             TM_TEST(test_cost_is_in_proportion_to_bytes), TM_TEST(test_outcomes_by_hand),
             TM_TEST(test_a_lost_stage_is_read_from_the_store), TM_TEST(test_fewer_survivors_never_cost_less),
             TM_TEST(test_from_the_pause_all_comes_from_the_store), TM_TEST(test_another_cut_is_as_defined),
             TM_TEST(test_rows_stay), TM_TEST(test_without_memory))
