/* Look-ahead, and the best path, against all sequences of layouts, walked one by one. */
#include "policy/best_path.h"

#include "layout/test/layout_helpers.h"

#define COST(process, build)                                                                                           \
    "tidemill-cost: 1\nkind: paper\ntransfer_us: {1: 100, 1000000000: 20000000}\nmodels: {test: {stages_max: 3, "      \
    "process_ms: " process ", rendezvous_ms: 3000, build_ms: {1: " build ", 2: " build ", 3: " build "}, "             \
    "group_add: {base_ms: 35, per_instance_ms: 500}, group_remove: {base_ms: 35, per_instance_ms: 300}}}\n"

static const char free_cost[] = "tidemill-cost: 1\nkind: paper\ntransfer_us: {1: 0, 2: 0}\nmodels: {test: {stages_max: "
                                "3}}\n";

enum { STEPS_MAX = 4, INSTANCES = 6 };

/* ---- one step, and all sequences, as the header has them ---- */

struct place {
    int layout;
    double left_ms; /* of a migration under way */
    double samples;
};

static struct place take_step(struct test_job *job, struct place at, const struct tm_ahead *step, int to)
{
    const double *row = tm_migrations_row(job->migrations, step->before, at.layout, step->lost);
    double cost_ms = row[to];
    assert_true(job->layouts.list[to].instances <= step->after);
    if (at.left_ms > 0) cost_ms = cost_ms > 0 ? cost_ms + tm_migrations_restart_ms(job->migrations, to) : at.left_ms;
    double work_s = step->duration_s - cost_ms / 1000;
    at.layout = to;
    at.left_ms = work_s < 0 ? -work_s * 1000 : 0;
    if (work_s > 0) at.samples += job->layouts.list[to].samples_per_s * work_s;
    return at;
}

struct search {
    struct test_job *job;
    const struct tm_ahead *steps;
    size_t count;
    double best;
    bool may_pause; /* also where some layout fits */
    bool carried;   /* some migration was longer than its step */
};

static void walk(struct search *search, size_t i, struct place at)
{
    if (at.left_ms > 0) search->carried = true;
    if (i == search->count) {
        if (at.samples > search->best) search->best = at.samples;
        return;
    }
    const struct tm_layouts *layouts = &search->job->layouts;
    bool pauses = search->may_pause || search->steps[i].after < layouts->stages_min;
    for (int to = pauses ? 0 : 1; to < (int)layouts->count; to++)
        if (layouts->list[to].instances <= search->steps[i].after)
            walk(search, i + 1, take_step(search->job, at, &search->steps[i], to));
}

static int pick(struct tm_random *random, int limit)
{
    return (int)tm_random_below(random, (uint64_t)limit);
}

/* A start that its fleet can hold, then fleets that follow from each other. */
static struct tm_standing random_problem(const struct test_job *job, struct tm_random *random, struct tm_ahead *steps,
                                         size_t count)
{
    static const double durations_s[] = {60, 60, 60, 25, 7};
    int fleet = pick(random, INSTANCES + 1), layout;
    do
        layout = pick(random, (int)job->layouts.count);
    while (job->layouts.list[layout].instances > fleet);
    for (size_t i = 0; i < count; i++) {
        int lost = pick(random, 3) == 0 ? pick(random, fleet + 1) : 0;
        int room = INSTANCES - fleet + lost, arrived = pick(random, 3) == 0 ? pick(random, room + 1) : 0;
        steps[i] = (struct tm_ahead){durations_s[pick(random, 5)], fleet, lost, fleet - lost + arrived};
        fleet = steps[i].after;
    }
    bool migrating = layout != TM_LAYOUT_PAUSE && pick(random, 3) == 0;
    return (struct tm_standing){layout, migrating ? 1 + 30000 * tm_random_unit(random) : 0};
}

struct tally {
    int exact, carried, equal;
    double worst;
};

/* The answer is what its own path yields; no sequence is better unless a migration is carried over a step. Then the
 * rule keeps one place for each layout, that with most samples, as Parcae's does, and may miss one with less left. */
static void check_problem(struct test_job *job, struct tm_lookahead *lookahead, struct tm_random *random, int number,
                          struct tally *tally)
{
    struct tm_ahead steps[STEPS_MAX];
    size_t count = 1 + (size_t)pick(random, STEPS_MAX);
    struct tm_standing start = random_problem(job, random, steps, count);
    int path[STEPS_MAX];
    double samples = -1;
    struct tm_error e = {0};
    assert_int_equal(tm_lookahead__solve(lookahead, start, steps, count, path, &samples, &e), 0);
    struct place at = {start.layout, start.migrating_ms, 0};
    for (size_t i = 0; i < count; i++)
        at = take_step(job, at, &steps[i], path[i]);
    assert_row(close_to(at.samples, samples, 1e-12), "problem %d: says %g, its path yields %g", number, samples,
               at.samples);
    struct search search = {.job = job, .steps = steps, .count = count};
    walk(&search, 0, (struct place){start.layout, start.migrating_ms, 0});
    assert_row(samples <= search.best * (1 + 1e-12), "problem %d: %g above the best, %g", number, samples, search.best);
    bool equal = close_to(samples, search.best, 1e-12);
    assert_row(equal || search.carried, "problem %d: %g, best %g", number, samples, search.best);
    tally->exact += !search.carried;
    tally->carried += search.carried;
    tally->equal += search.carried && equal;
    if (!equal) tally->worst = fmax(tally->worst, 1 - samples / search.best);
    double best = -1;
    search.may_pause = true;
    walk(&search, 0, (struct place){start.layout, start.migrating_ms, 0});
    assert_int_equal(tm_best__path(&job->layouts, job->migrations, start, steps, count, path, &best, &e), 0);
    at = (struct place){start.layout, start.migrating_ms, 0};
    for (size_t i = 0; i < count; i++)
        at = take_step(job, at, &steps[i], path[i]);
    assert_row(close_to(best, search.best, 1e-12) && close_to(best, at.samples, 1e-12),
               "problem %d: best path %g, its shapes yield %g, the best is %g", number, best, at.samples, search.best);
}

static void test_all_sequences(void **state)
{
    (void)state;
    static const char *const costs[] = {COST("30", "110"), COST("2400", "9000"), COST("9000", "40000"), free_cost};
    struct tally tally = {0};
    for (size_t c = 0; c < TM_COUNT(costs); c++) {
        struct test_job *job = job_make(7, false, costs[c], INSTANCES, test_speed);
        struct tm_lookahead *lookahead;
        struct tm_error e = {0};
        struct tm_random random = tm_random_make(21, c);
        assert_int_equal(tm_lookahead__create(&job->layouts, job->migrations, &lookahead, &e), 0);
        for (int i = 0; i < 150; i++)
            check_problem(job, lookahead, &random, i, &tally);
        tm_lookahead__destroy(lookahead);
        job_drop(job);
    }
    print_message("%d problems equal; of %d with migrations carried over, %d equal, the worst %.2f%% below\n",
                  tally.exact, tally.carried, tally.equal, 100 * tally.worst);
    assert_true(tally.exact > 100 && tally.carried > 100);
    assert_true(tally.equal > 0.95 * tally.carried && tally.worst < 0.3);
}

/* ---- ties ---- */

static int equal_speed(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                       struct tm_error *e)
{
    (void)context;
    (void)e;
    *samples_per_s = pipelines * stages == 1 ? 10 : 20;
    *step_s = 1;
    return 0;
}

/* Every layout but 1x1 is equally fast. With changes for free the layout with the fewest stages, then the fewest
 * pipelines, is taken; where they cost, none is made. */
static void test_ties(void **state)
{
    (void)state;
    static const struct {
        bool free;
        int from_pipelines, from_stages;
        const char *want;
    } rows[] = {{true, 2, 1, "2x1 2x1"},  {true, 1, 2, "2x1 2x1"},  {true, 1, 3, "2x1 2x1"},  {true, 0, 0, "2x1 2x1"},
                {false, 2, 1, "2x1 2x1"}, {false, 1, 2, "1x2 1x2"}, {false, 1, 3, "1x3 1x3"}, {false, 4, 1, "4x1 4x1"}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct test_job *job = job_make(7, true, rows[i].free ? free_cost : COST("30", "110"), 4, equal_speed);
        struct tm_lookahead *lookahead;
        struct tm_error e = {0};
        static const struct tm_ahead steps[] = {{60, 4, 0, 4}, {60, 4, 0, 4}};
        int path[2];
        double samples;
        assert_int_equal(tm_lookahead__create(&job->layouts, job->migrations, &lookahead, &e), 0);
        struct tm_standing start = {tm_layouts_find(&job->layouts, rows[i].from_pipelines, rows[i].from_stages), 0};
        assert_int_equal(tm_lookahead__solve(lookahead, start, steps, 2, path, &samples, &e), 0);
        char got[64];
        (void)snprintf(got, sizeof got, "%dx%d %dx%d", job->layouts.list[path[0]].pipelines,
                       job->layouts.list[path[0]].stages, job->layouts.list[path[1]].pipelines,
                       job->layouts.list[path[1]].stages);
        assert_row(strcmp(got, rows[i].want) == 0, "row %zu: %s, want %s", i, got, rows[i].want);
        assert_row(samples == 2 * 60 * 20, "row %zu: %g", i, samples);
        tm_lookahead__destroy(lookahead);
        job_drop(job);
    }
}

/* ---- the edges ---- */

/* A migration under way goes on where nothing changes, and is paid once more where something does. */
static void test_what_is_left_of_a_migration(void **state)
{
    (void)state;
    struct test_job *job = job_make(7, false, COST("30", "110"), 1, test_speed); /* one layout only: no choice */
    struct tm_lookahead *lookahead;
    struct tm_error e = {0};
    assert_int_equal(tm_lookahead__create(&job->layouts, job->migrations, &lookahead, &e), 0);
    double speed = job->layouts.list[1].samples_per_s;
    double restart_s = tm_migrations_restart_ms(job->migrations, 1) / 1000;
    double again_s = tm_migrations_row(job->migrations, 1, 1, 1)[1] / 1000;
    const struct {
        const char *name;
        double migrating_ms, duration_s;
        int lost;
        double want;
    } rows[] = {
        {"none", 0, 60, 0, 60 * speed},
        {"one of 15 s goes on", 15000, 60, 0, 45 * speed},
        {"one of 60 s fills it", 60000, 60, 0, 0},
        {"one of 75 s goes over", 75000, 60, 0, 0},
        {"a loss during one starts it anew", 15000, 60, 1, (60 - again_s - restart_s) * speed},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_ahead step = {rows[i].duration_s, 1, rows[i].lost, 1};
        double samples = -1;
        assert_int_equal(
            tm_lookahead__solve(lookahead, (struct tm_standing){1, rows[i].migrating_ms}, &step, 1, NULL, &samples, &e),
            0);
        assert_row(close_to(samples, rows[i].want, 1e-12), "%s: %g, want %g", rows[i].name, samples, rows[i].want);
    }
    tm_lookahead__destroy(lookahead);
    job_drop(job);
}

/* Too few instances for any layout: the pause, and what comes after it. */
static void test_the_pause(void **state)
{
    (void)state;
    struct test_job *job =
        job_make(7, false,
                 "tidemill-cost: 1\nkind: paper\ntransfer_us: {1: 1, 2: 2}\nmodels: {test: {stages_min: 3, stages_max: "
                 "4}}\n",
                 4, test_speed);
    struct tm_lookahead *lookahead;
    struct tm_error e = {0};
    assert_int_equal(tm_lookahead__create(&job->layouts, job->migrations, &lookahead, &e), 0);
    static const struct tm_ahead steps[] = {{60, 3, 3, 0}, {60, 0, 0, 2}, {60, 2, 0, 3}, {60, 3, 2, 1}, {60, 1, 0, 4}};
    int path[5], want[] = {0, 0, tm_layouts_find(&job->layouts, 1, 3), 0, tm_layouts_find(&job->layouts, 1, 4)};
    double samples;
    assert_int_equal(tm_lookahead__solve(lookahead, (struct tm_standing){want[2], 0}, steps, 5, path, &samples, &e), 0);
    for (int i = 0; i < 5; i++)
        assert_row(path[i] == want[i], "step %d: shape %d, want %d", i, path[i], want[i]);
    assert_true(samples > 0);
    tm_lookahead__destroy(lookahead);
    job_drop(job);
    job = job_make(7, false, free_cost, 0, test_speed); /* no instances at all, ever */
    assert_int_equal(tm_lookahead__create(&job->layouts, job->migrations, &lookahead, &e), 0);
    assert_int_equal(tm_lookahead__solve(lookahead, (struct tm_standing){0, 0}, &(struct tm_ahead){60, 0, 0, 0}, 1,
                                         path, &samples, &e),
                     0);
    assert_true(path[0] == TM_LAYOUT_PAUSE && samples == 0);
    tm_lookahead__destroy(lookahead);
    job_drop(job);
}

/* Scratch is reused: a long problem between two equal ones changes nothing; and each call can be repeated. */
static void test_calls_do_not_disturb_each_other(void **state)
{
    (void)state;
    enum { LONG = 500 };
    struct test_job *job = job_make(7, false, COST("2400", "9000"), INSTANCES, test_speed);
    struct tm_lookahead *lookahead;
    struct tm_error e = {0};
    struct tm_random random = tm_random_make(3, 1);
    static struct tm_ahead steps[LONG];
    static int path[LONG], again[LONG];
    assert_int_equal(tm_lookahead__create(&job->layouts, job->migrations, &lookahead, &e), 0);
    struct tm_standing start = random_problem(job, &random, steps, LONG);
    double first[2], second[2];
    assert_int_equal(tm_lookahead__solve(lookahead, start, steps, 3, path, &first[0], &e), 0);
    assert_int_equal(tm_lookahead__solve(lookahead, start, steps, LONG, path, &first[1], &e), 0);
    assert_int_equal(tm_lookahead__solve(lookahead, start, steps, 3, again, &second[0], &e), 0);
    assert_int_equal(tm_lookahead__solve(lookahead, start, steps, LONG, again, &second[1], &e), 0);
    assert_true(first[0] == second[0] && first[1] == second[1]);
    assert_memory_equal(path, again, sizeof path);
    tm_lookahead__destroy(lookahead);
    job_drop(job);
}

/* ---- limits ---- */

static int solve_once(struct test_job *job, const struct tm_ahead *steps, size_t count)
{
    struct tm_lookahead *lookahead;
    struct tm_migrations *migrations;
    struct tm_error e;
    int rc = tm_migrations_create(&job->layouts, &job->cost, &migrations, &e);
    if (rc != 0) return rc;
    rc = tm_lookahead__create(&job->layouts, migrations, &lookahead, &e);
    if (rc == 0) {
        rc = tm_lookahead__solve(lookahead, (struct tm_standing){1, 0}, steps, count, NULL, NULL, &e);
        tm_lookahead__destroy(lookahead);
    }
    int path[2];
    if (rc == 0)
        rc = tm_best__path(&job->layouts, migrations, (struct tm_standing){1, 0}, steps, count, path, NULL, &e);
    tm_migrations_destroy(migrations);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    struct test_job *job = job_make(7, false, COST("30", "110"), INSTANCES, test_speed);
    static const struct tm_ahead steps[] = {{60, 6, 2, 4}, {60, 4, 0, 6}};
    TM_FAIL_EACH_ALLOC({ rc = solve_once(job, steps, 2); });
    tm_lookahead__destroy(NULL);
    job_drop(job);
}

static void test_too_long(void **state)
{
    (void)state;
    struct test_job *job = job_make(7, false, COST("30", "110"), INSTANCES, test_speed);
    struct tm_lookahead *lookahead;
    struct tm_error e = {0};
    struct tm_ahead step = {60, 6, 0, 6};
    assert_int_equal(tm_lookahead__create(&job->layouts, job->migrations, &lookahead, &e), 0);
    assert_int_equal(tm_lookahead__solve(lookahead, (struct tm_standing){1, 0}, &step, (size_t)1 << 30, NULL, NULL, &e),
                     -TM_ELIMIT); /* refused before the steps are read */
    assert_error_has(e, "too long");
    tm_lookahead__destroy(lookahead);
    job_drop(job);
}

TM_TEST_MAIN(TM_TEST(test_all_sequences), TM_TEST(test_ties), TM_TEST(test_what_is_left_of_a_migration),
             TM_TEST(test_the_pause), TM_TEST(test_calls_do_not_disturb_each_other), TM_TEST(test_without_memory),
             TM_TEST(test_too_long))
