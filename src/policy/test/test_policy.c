/* Policies: the table, what a decision may be, and what becomes of a layout that does not fit. */
#include "policy/policy_internal.h"

#include "policy/facts_record.h"

#include "layout/test/layout_helpers.h"

#define COST                                                                                                           \
    "tidemill-cost: 1\nkind: paper\ntransfer_us: {1: 100, 1000000000: 20000000}\nmodels: {test: {stages_min: 2, "      \
    "stages_max: 4, process_ms: 240, rendezvous_ms: 6600, build_base_ms: 300, build_per_layer_ms: 430, "               \
    "group_add: {base_ms: 35, per_instance_ms: 500}, group_remove: {base_ms: 35, per_instance_ms: 40}}}\n"

/* On the same number of instances, deeper is a little faster: 3x4 on 12, 2x4 on 8. */
static int deep_speed(void *context, int pipelines, int stages, double *samples_per_s, double *step_s,
                      struct tm_error *e)
{
    (void)context;
    (void)e;
    *samples_per_s = 10 * pow(pipelines * stages, 0.9) * pow(stages, 0.05);
    *step_s = 1;
    return 0;
}

static void test_the_table(void **state)
{
    (void)state;
    static const char *const wanted[] = {"ideal",         "on-demand",    "reactive", "parcae",
                                         "parcae-notice", "parcae-truth", "tidemill", "oracle"};
    for (size_t i = 0; i < TM_COUNT(wanted); i++) {
        const struct tm_policy_info *info = tm_policy_find(wanted[i]);
        assert_row(info != NULL && strcmp(info->name, wanted[i]) == 0, "%s", wanted[i]);
    }
    assert_ptr_equal(tm_policy_find("Parcae-TRUTH"), tm_policy_find("parcae-truth"));
    assert_null(tm_policy_find("parca"));
    assert_null(tm_policy_find(""));
    for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++) {
        assert_row(info->summary != NULL && strlen(info->summary) > 10 && info->decide != NULL, "%s", info->name);
        assert_row(tm_policy_find(info->name) == info, "%s: a name twice", info->name);
    }
}

/* Whole pipelines, else one over all, else the pause. Stages are 2 to 4. */
static void test_realise(void **state)
{
    (void)state;
    static const struct {
        int pipelines, stages, instances, want_pipelines, want_stages;
    } rows[] = {
        {3, 4, 12, 3, 4}, {3, 4, 14, 3, 4}, {3, 4, 11, 2, 4}, {3, 4, 8, 2, 4}, {3, 4, 7, 1, 4},
        {3, 4, 4, 1, 4},  {3, 4, 3, 1, 3},  {3, 4, 2, 1, 2},  {3, 4, 1, 0, 0}, {3, 4, 0, 0, 0},
        {1, 2, 1, 0, 0},  {0, 0, 0, 0, 0},  {0, 0, 9, 0, 0},
    };
    struct test_job *job = job_make(9, true, COST, 14, deep_speed);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int layout = tm_layouts_find(&job->layouts, rows[i].pipelines, rows[i].stages);
        const struct tm_layout *got =
            &job->layouts.list[tm_policy_realise(&job->layouts, layout, rows[i].instances, 0)];
        assert_row(got->pipelines == rows[i].want_pipelines && got->stages == rows[i].want_stages, "%dx%d on %d: %dx%d",
                   rows[i].pipelines, rows[i].stages, rows[i].instances, got->pipelines, got->stages);
    }
    job_drop(job);
}

/* ---- decisions ---- */

enum { HORIZON = 6 };
static const struct tm_policy_options usual = {.interval_s = 60, .horizon = 12};

struct scene {
    struct tm_view view;
    struct tm_ahead ahead[HORIZON];
};

/* A view as the simulator makes it: the event at this moment, then no change. */
static void make_scene(struct scene *scene, const struct test_job *job, const struct tm_policy_info *info, int before,
                       int lost, int arrived, int layout)
{
    int after = before - lost + arrived;
    bool told = info->knows != TM_KNOWS_PAST;
    for (int i = 0; i < HORIZON; i++)
        scene->ahead[i] = i == 0 && told ? (struct tm_ahead){60, before, lost, after}
                                         : (struct tm_ahead){60, told ? after : before, 0, told ? after : before};
    assert_true(job->layouts.list[layout].instances <= before);
    scene->view = (struct tm_view){.standing = {layout, 0},
                                   .event = told && (lost > 0 || arrived > 0),
                                   .before = before,
                                   .lost = told ? lost : 0,
                                   .after = told ? after : before,
                                   .interval_s = 60,
                                   .ahead = scene->ahead,
                                   .ahead_count = HORIZON};
}

/* Whatever a policy is: its layout fits what it was told, the same view gives the same decision, and the pace is a
 * share. */
static void test_decisions_fit(void **state)
{
    (void)state;
    struct test_job *job = job_make(9, false, COST, 12, deep_speed);
    for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++)
        for (int before = 0; before <= 12; before++)
            for (int change = 0; change < 3; change++) {
                int lost = change == 1 ? (before + 1) / 2 : 0, arrived = change == 2 ? (12 - before) / 2 : 0;
                struct scene scene;
                struct tm_policy *policy[2];
                struct tm_decision got[2];
                struct tm_error e = {0};
                make_scene(&scene, job, info, before, lost, arrived, job->layouts.best[before]);
                for (int i = 0; i < 2; i++) {
                    int rc = tm_policy_create(info, &job->layouts, job->migrations, &job->cost, &usual, &policy[i], &e);
                    assert_row(rc == 0, "%s: %s", info->name, e.text);
                    rc = tm_policy__ask(policy[i], &scene.view, &got[i], &e);
                    assert_row(rc == 0, "%s: %s", info->name, e.text);
                    tm_policy_destroy(policy[i]);
                }
                assert_row(got[0].layout == got[1].layout && got[0].change == got[1].change, "%s: not the same twice",
                           info->name);
                assert_row(got[0].layout >= 0 && got[0].layout < (int)job->layouts.count, "%s: shape %d", info->name,
                           got[0].layout);
                assert_row(job->layouts.list[got[0].layout].instances <= scene.view.after, "%s: %d do not fit on %d",
                           info->name, job->layouts.list[got[0].layout].instances, scene.view.after);
                assert_row(got[0].pace > 0 && got[0].pace <= 1, "%s: pace %g", info->name, got[0].pace);
            }
    job_drop(job);
}

/* Rows of (policy, event) and what it does. */
static void test_decisions_by_hand(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int before, lost, arrived, pipelines, stages, want_pipelines, want_stages;
        enum tm_change change;
    } rows[] = {
        {"ideal", 12, 4, 0, 3, 4, 2, 4, TM_CHANGE_FREE},
        {"ideal", 8, 0, 4, 2, 4, 3, 4, TM_CHANGE_FREE},
        {"reactive", 12, 4, 0, 3, 4, 2, 4, TM_CHANGE_ROLLBACK},
        {"reactive", 12, 0, 0, 2, 4, 2, 4, TM_CHANGE_MIGRATE}, /* no event: nothing is done */
        {"reactive", 8, 0, 4, 2, 4, 3, 4, TM_CHANGE_ROLLBACK},
        {"reactive", 2, 1, 0, 1, 2, 0, 0, TM_CHANGE_ROLLBACK},
        {"on-demand", 0, 0, 12, 0, 0, 3, 4, TM_CHANGE_MIGRATE},
        {"parcae-notice", 12, 4, 0, 3, 4, 2, 4, TM_CHANGE_MIGRATE},
        {"parcae-notice", 12, 0, 0, 3, 4, 3, 4, TM_CHANGE_MIGRATE},
        {"parcae-truth", 8, 0, 4, 2, 4, 3, 4, TM_CHANGE_MIGRATE},
        {"parcae-truth", 2, 1, 0, 1, 2, 0, 0, TM_CHANGE_MIGRATE},
        {"oracle", 12, 4, 0, 3, 4, 2, 4, TM_CHANGE_MIGRATE},
    };
    struct test_job *job = job_make(9, false, COST, 12, deep_speed);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        const struct tm_policy_info *info = tm_policy_find(rows[i].name);
        struct scene scene;
        struct tm_policy *policy;
        struct tm_decision got;
        struct tm_error e = {0};
        make_scene(&scene, job, info, rows[i].before, rows[i].lost, rows[i].arrived,
                   tm_layouts_find(&job->layouts, rows[i].pipelines, rows[i].stages));
        assert_int_equal(tm_policy_create(info, &job->layouts, job->migrations, &job->cost, &usual, &policy, &e), 0);
        assert_int_equal(tm_policy__ask(policy, &scene.view, &got, &e), 0);
        const struct tm_layout *layout = &job->layouts.list[got.layout];
        assert_row(layout->pipelines == rows[i].want_pipelines && layout->stages == rows[i].want_stages,
                   "row %zu, %s: %dx%d", i, rows[i].name, layout->pipelines, layout->stages);
        assert_row(got.change == rows[i].change, "row %zu, %s: change %d", i, rows[i].name, (int)got.change);
        tm_policy_destroy(policy);
    }
    job_drop(job);
}

/* A run's state moves at a change: what its reactive policy says is what is done. */
static void test_reactive_migrates_in_a_run(void **state)
{
    (void)state;
    struct test_job *job = job_make(9, false, COST, 12, deep_speed);
    struct tm_policy_options options = usual;
    const struct tm_policy_info *info = tm_policy_find("reactive");
    struct scene scene;
    struct tm_policy *policy;
    struct tm_decision got;
    struct tm_error e = {0};
    options.live = true;
    make_scene(&scene, job, info, 12, 4, 0, tm_layouts_find(&job->layouts, 3, 4));
    assert_int_equal(tm_policy_create(info, &job->layouts, job->migrations, &job->cost, &options, &policy, &e), 0);
    assert_int_equal(tm_policy__ask(policy, &scene.view, &got, &e), 0);
    assert_int_equal(got.layout, tm_layouts_find(&job->layouts, 2, 4));
    assert_int_equal(got.change, TM_CHANGE_MIGRATE);
    tm_policy_destroy(policy);
    job_drop(job);
}

/* Looking ahead pays: an arrival that is lost again a minute later is not taken in by one who knows. */
static void test_truth_sees_what_comes(void **state)
{
    (void)state;
    struct test_job *job = job_make(9, false, COST, 12, deep_speed);
    struct scene scene;
    struct tm_error e = {0};
    const char *const names[] = {"parcae-truth", "oracle"};
    for (size_t i = 0; i < TM_COUNT(names); i++) {
        const struct tm_policy_info *info = tm_policy_find(names[i]);
        struct tm_policy *policy;
        struct tm_decision stays, grows;
        make_scene(&scene, job, info, 8, 0, 4, tm_layouts_find(&job->layouts, 2, 4));
        scene.ahead[0].duration_s = 10; /* the four are there for ten seconds */
        scene.ahead[1] = (struct tm_ahead){60, 12, 4, 8};
        for (int k = 2; k < HORIZON; k++)
            scene.ahead[k] = (struct tm_ahead){60, 8, 0, 8};
        assert_int_equal(tm_policy_create(info, &job->layouts, job->migrations, &job->cost, &usual, &policy, &e), 0);
        assert_int_equal(tm_policy__ask(policy, &scene.view, &stays, &e), 0);
        tm_policy_destroy(policy);
        make_scene(&scene, job, info, 8, 0, 4, tm_layouts_find(&job->layouts, 2, 4));
        assert_int_equal(tm_policy_create(info, &job->layouts, job->migrations, &job->cost, &usual, &policy, &e), 0);
        assert_int_equal(tm_policy__ask(policy, &scene.view, &grows, &e), 0);
        tm_policy_destroy(policy);
        assert_row(job->layouts.list[stays.layout].instances == 8, "%s: takes %d", names[i],
                   job->layouts.list[stays.layout].instances);
        assert_row(job->layouts.list[grows.layout].instances == 12, "%s: takes %d", names[i],
                   job->layouts.list[grows.layout].instances);
    }
    job_drop(job);
}

static int decide_once(struct test_job *job, const struct tm_policy_info *info)
{
    struct scene scene;
    struct tm_policy *policy;
    struct tm_migrations *migrations;
    struct tm_decision decision;
    struct tm_error e;
    int rc = tm_migrations_create(&job->layouts, &job->cost, &migrations, &e);
    if (rc != 0) return rc;
    make_scene(&scene, job, info, 12, 2, 0, job->layouts.best[12]);
    rc = tm_policy_create(info, &job->layouts, migrations, &job->cost, &usual, &policy, &e);
    if (rc == 0) {
        rc = tm_policy__ask(policy, &scene.view, &decision, &e);
        tm_policy_destroy(policy);
    }
    tm_migrations_destroy(migrations);
    return rc;
}

/* ---- ours, by its formula ---- */

enum { LOOKS = 12, CHANGE_MAX = 5 };

/* The worth of a layout as the head of policy_tidemill.c has it: all jumps, all targets, nothing left out. */
static double plain_worth(struct test_job *job, const struct tm_view *view, int layout, double trust)
{
    const struct tm_layouts *layouts = &job->layouts;
    double speed = layouts->list[layout].samples_per_s, changing = 0, after[LOOKS + 1] = {0};
    for (int count = 0; count <= view->forecast->count_max; count++) {
        double p = view->forecast->steps[0].pmf[count] * trust;
        int lost = view->after > count ? view->after - count : 0;
        if (count == view->after || p <= 0) continue;
        changing += p;
        for (int k = 1; k < LOOKS; k++) {
            double best = 0;
            for (int to = 1; to < (int)layouts->count; to++) {
                if (layouts->list[to].instances > count) continue;
                double ms = tm_migrations_ms(job->migrations, view->after, layout, lost, to);
                best = fmax(best, layouts->list[to].samples_per_s * (view->interval_s * (LOOKS - k) - ms / 1000));
            }
            after[k] += p * best;
        }
    }
    double pause_ms = tm_migrations_ms(job->migrations, view->before, view->standing.layout, view->lost, layout);
    double worth = -speed * pause_ms / 1000, unchanged = 1;
    for (int k = 1; k <= LOOKS; k++) {
        worth += unchanged * (speed * view->interval_s + (k < LOOKS ? after[k] : 0));
        unchanged *= 1 - changing;
    }
    return worth;
}

/* It looks at few layouts and few of their changes; what it takes must be the best of all nevertheless. */
static void test_ours_takes_the_best(void **state)
{
    (void)state;
    static const char measured[] = "tidemill-cost: 1\nkind: measured\nreform_ms: 1500\nreform_per_instance_ms: 20\n"
                                   "link_latency_ms: 5\nlink: 40Mbit/s\nstore: 20Mbit/s\n"
                                   "models: {test: {stages_max: 4}}\n";
    const struct tm_policy_info *info = tm_policy_find("tidemill");
    struct tm_random random = tm_random_make(4, 0);
    for (int round = 0; round < 120; round++) {
        struct test_job *job = job_make(9, false, round % 2 == 0 ? COST : measured, 12, deep_speed);
        int before = 7 + (int)tm_random_below(&random, 6), lost = (int)tm_random_below(&random, 3);
        struct scene scene;
        struct tm_forecast forecast = {.count_max = 12};
        double pmf[13] = {0};
        struct tm_policy *policy;
        struct tm_decision got;
        struct tm_error e = {0};
        make_scene(&scene, job, info, before, lost, lost == 0 && before < 12, job->layouts.best[before]);
        double left = 1;
        for (int count = 0; count <= 12; count++) {
            int change = count - scene.view.after;
            if (change == 0 || change > CHANGE_MAX || change < -CHANGE_MAX) continue;
            double p = left * 0.2 * (double)tm_random_below(&random, 1000) / 1000;
            pmf[count] = p;
            left -= p;
        }
        pmf[scene.view.after] = left;
        forecast.steps[0].pmf = pmf;
        scene.view.forecast = &forecast;
        scene.view.forecast_from = scene.view.after;
        scene.view.observed = (int)tm_random_below(&random, 500);
        double trust = 1 - left > 0.9 ? 1 : scene.view.observed / (scene.view.observed + 80.0);
        assert_int_equal(tm_policy_create(info, &job->layouts, job->migrations, &job->cost, &usual, &policy, &e), 0);
        assert_int_equal(tm_policy__ask(policy, &scene.view, &got, &e), 0);
        double worth = plain_worth(job, &scene.view, got.layout, trust);
        for (int layout = 1; layout < (int)job->layouts.count; layout++) {
            if (job->layouts.list[layout].instances > scene.view.after) continue;
            double other = plain_worth(job, &scene.view, layout, trust);
            assert_row(other <= worth + 1e-9 * fabs(worth), "round %d: %dx%d is worth %.12g, %dx%d %.12g", round,
                       job->layouts.list[got.layout].pipelines, job->layouts.list[got.layout].stages, worth,
                       job->layouts.list[layout].pipelines, job->layouts.list[layout].stages, other);
        }
        tm_policy_destroy(policy);
        job_drop(job);
    }
}

/* ---- from facts ---- */

/* Steps that take longer than predicted leave more to do: a deadline then needs on-demand instances. */
static void test_measured_steps_count(void **state)
{
    (void)state;
    struct test_job *job = job_make(9, false, COST, 12, deep_speed);
    int layout = job->layouts.best[6];
    double full = job->layouts.list[job->layouts.best[12]].samples_per_s;
    int wanted[2];
    for (int i = 0; i < 2; i++) {
        struct tm_policy *policy;
        struct tm_decision decision;
        struct tm_error e = {0};
        struct tm_facts facts = {
            .speed = 1,
            .before = 6,
            .after = 6,
            .standing = {layout, 0},
            .pools = {{.market = TM_POOL_SPOT, .role = TM_POOL_TRAINS, .price_usd_h = 1, .here = 6, .offered = -1},
                      {.market = TM_POOL_ON_DEMAND, .role = TM_POOL_TRAINS, .price_usd_h = 3, .start_s = 60}},
            .pool_count = 2,
            .progress = {.samples_left = full * 3600,
                         .efficiency = NAN,
                         .step_s = job->layouts.list[layout].step_s * (i == 0 ? 1 : 2)},
            .limits = {.workers_max = 12, .has_deadline = true, .seconds_left = 2.6 * 3600}};
        assert_int_equal(tm_policy_create(tm_policy_find("tidemill"), &job->layouts, job->migrations, &job->cost,
                                          &usual, &policy, &e),
                         0);
        assert_int_equal(tm_policy_decide(policy, &facts, &decision, &e), 0);
        wanted[i] = decision.want_on_demand;
        assert_true(decision.rents && decision.want_spot + decision.want_on_demand == 12 && !decision.stop);
        assert_int_equal(decision.why == TM_WHY_DEADLINE, wanted[i] > 0);
        tm_policy_destroy(policy);
    }
    assert_int_equal(wanted[0], 0);
    assert_true(wanted[1] > 0 && wanted[1] <= 6); /* beside the spot ones */
    job_drop(job);
}

/* A job with no time to lose begins on the spot instances that may be there, and buys what they leave. */
static void test_spot_is_asked_first(void **state)
{
    (void)state;
    struct test_job *job = job_make(9, false, COST, 12, deep_speed);
    double full = job->layouts.list[job->layouts.best[12]].samples_per_s;
    static const struct {
        const char *name;
        double now_s;
        int ordered, want_on_demand;
    } rows[] = {{"at the beginning", 0, 0, 0}, {"nine are coming", 30, 9, 3}, {"none came", 61, 0, 12}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_policy *policy;
        struct tm_decision decision;
        struct tm_error e = {0};
        struct tm_facts facts = {
            .now_s = rows[i].now_s,
            .speed = 1,
            .first = true,
            .pools = {{.market = TM_POOL_SPOT,
                       .role = TM_POOL_TRAINS,
                       .price_usd_h = 1,
                       .ordered = rows[i].ordered,
                       .offered = -1,
                       .start_s = 60},
                      {.market = TM_POOL_ON_DEMAND, .role = TM_POOL_TRAINS, .price_usd_h = 3, .start_s = 60}},
            .pool_count = 2,
            .progress = {.samples_left = full * 3600, .efficiency = NAN},
            .limits = {.workers_max = 12, .has_deadline = true, .seconds_left = 3700}};
        assert_int_equal(tm_policy_create(tm_policy_find("tidemill"), &job->layouts, job->migrations, &job->cost,
                                          &usual, &policy, &e),
                         0);
        assert_int_equal(tm_policy_decide(policy, &facts, &decision, &e), 0);
        assert_row(decision.want_on_demand == rows[i].want_on_demand, "%s: %d on-demand", rows[i].name,
                   decision.want_on_demand);
        tm_policy_destroy(policy);
    }
    job_drop(job);
}

/* Eight instances may do more for their money than six: they are rented where six would do. Where that is little, or
 * prices are not known, the fewest. Those that train alone are kept until there is time enough to do without. */
static void test_on_demand_by_the_sample(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double six_per_s, on_demand_usd_h;
        double share; /* of the throughput of eight that the deadline needs */
        int have, wanted;
    } rows[] = {{"eight are cheaper", 53, 3, 0.65, 0, 8},
                {"hardly cheaper", 58.5, 3, 0.65, 0, 6},
                {"no price", 53, NAN, 0.65, 0, 6},
                {"much slack", 53, 3, 0.5, 0, 0},
                {"much slack, nothing else runs", 53, 3, 0.5, 8, 8},
                {"ample slack", 53, 3, 0.3, 8, 0}};
    struct test_job *job = job_make(9, false, COST, 8, deep_speed);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        for (size_t k = 0; k < job->layouts.count; k++) {
            int instances = job->layouts.list[k].instances;
            job->layouts.list[k].samples_per_s = instances == 6 ? rows[i].six_per_s : 10 * instances;
        }
        struct tm_view view = {.choices = true,
                               .has_deadline = true,
                               .on_demand = rows[i].have,
                               .after = rows[i].have,
                               .interval_s = 3600,
                               .start_s = 60,
                               .on_demand_usd_h = rows[i].on_demand_usd_h,
                               .spot_usd_h = NAN,
                               .samples_left = 80 * 36000 * rows[i].share,
                               .seconds_left = 36000 + 60 + 3600,
                               .efficiency = NAN};
        int wanted = tm_policy__on_demand_needed(&job->layouts, &view);
        assert_row(wanted == rows[i].wanted, "%s: %d", rows[i].name, wanted);
    }
    job_drop(job);
}

/* A gang that is late goes on-demand, where the budget pays for all that is left; else it keeps to spot. */
static void test_gang_within_its_budget(void **state)
{
    (void)state;
    struct test_job *job = job_make(9, false, COST, 12, deep_speed);
    int layout = job->layouts.best[12];
    double full = job->layouts.list[layout].samples_per_s;
    static const struct {
        const char *name;
        double budget_usd, bill_usd;
        int want_spot, want_on_demand;
    } rows[] = {
        {"no budget", 0, 5, 0, 12},
        {"money for an hour of twelve at $3", 50, 5, 0, 12},
        {"not enough", 40, 5, 12, 0},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_policy *policy;
        struct tm_decision decision;
        struct tm_error e = {0};
        struct tm_facts facts = {
            .speed = 1,
            .before = 6,
            .after = 6,
            .pools = {{.market = TM_POOL_SPOT, .role = TM_POOL_TRAINS, .price_usd_h = 1, .here = 6},
                      {.market = TM_POOL_ON_DEMAND, .role = TM_POOL_TRAINS, .price_usd_h = 3, .start_s = 60}},
            .pool_count = 2,
            .progress = {.samples_left = full * 3600, .efficiency = NAN},
            .limits = {.workers_min = 12,
                       .workers_max = 12,
                       .has_deadline = true,
                       .seconds_left = 3600,
                       .budget_usd = rows[i].budget_usd,
                       .bill_usd = rows[i].bill_usd}};
        assert_int_equal(tm_policy_create(tm_policy_find("tidemill"), &job->layouts, job->migrations, &job->cost,
                                          &usual, &policy, &e),
                         0);
        assert_int_equal(tm_policy_decide(policy, &facts, &decision, &e), 0);
        assert_row(decision.want_spot == rows[i].want_spot && decision.want_on_demand == rows[i].want_on_demand,
                   "%s: %d spot, %d on-demand", rows[i].name, decision.want_spot, decision.want_on_demand);
        tm_policy_destroy(policy);
    }
    job_drop(job);
}

static void test_without_memory(void **state)
{
    (void)state;
    struct test_job *job = job_make(9, false, COST, 12, deep_speed);
    for (const struct tm_policy_info *info = tm_policies; info->name != NULL; info++)
        TM_FAIL_EACH_ALLOC({ rc = decide_once(job, info); });
    tm_policy_destroy(NULL);
    job_drop(job);
}

/* ---- pools ---- */

/* A pool that took or refused some is short until one arrives there. */
static void test_short_until_one_arrives(void **state)
{
    (void)state;
    static const struct {
        int here, lost, refused;
        bool is_short;
    } rows[] = {{2, 0, 0, false}, {1, 1, 0, true}, {1, 0, 0, true},
                {2, 0, 0, false}, {2, 0, 1, true}, {3, 0, 0, false}};
    struct tm_learned_pools learned;
    struct tm_pool pools[3] = {{.here = 2}, {.here = 2}, {.here = 2}};
    int capacities[TM_POOLS_MAX];
    tm_learned_pools__init(&learned);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        pools[1].here = rows[i].here;
        pools[1].lost = rows[i].lost;
        pools[1].refused = rows[i].refused;
        tm_learned_pools__observe(&learned, 60.0 * (double)i, pools, 3, capacities);
        assert_row(learned.pools[1].is_short == rows[i].is_short, "row %zu", i);
    }
}

/* A group of which some pool is not known yet is not taken for empty. */
static void test_unknown_is_not_none(void **state)
{
    (void)state;
    struct tm_learned_pools learned;
    struct tm_pool pools[3] = {{.offered = 4}, {.offered = -1, .group = 1}, {.offered = 2, .group = 1}};
    int capacities[TM_POOLS_MAX];
    tm_learned_pools__init(&learned);
    tm_learned_pools__observe(&learned, 0, pools, 3, capacities);
    assert_true(capacities[0] == 4 && capacities[1] == -1);
    pools[1].offered = 3;
    tm_learned_pools__observe(&learned, 60, pools, 3, capacities);
    assert_true(capacities[0] == 4 && capacities[1] == 5);
}

/* A pool that says nothing of what it would give is known by its refusals: once each time after it gave some, whether
 * it is asked again and again or not; and where two refuse at once, they go together. */
static void test_refusals_are_learned(void **state)
{
    (void)state;
    struct tm_learned_pools learned;
    struct tm_pool pools[3] = {{.offered = -1}, {.offered = -1}, {.offered = -1, .group = 1}};
    int capacities[TM_POOLS_MAX];
    tm_learned_pools__init(&learned);
    for (int i = 0; i < 1200; i++) { /* each hour the first two give two and refuse a third; the last gives all */
        int hour = i % 60;
        pools[0].here = pools[1].here = hour < 50 ? 2 : 0;
        pools[2].here = 3;
        pools[0].refused = hour >= 30 && hour < 50;
        pools[1].refused = hour >= 33 && hour < 40;
        tm_learned_pools__observe(&learned, 60.0 * i, pools, 3, capacities);
        for (int g = 0; g < 2; g++)
            if (capacities[g] >= 0) tm_learned_pools__sample(&learned, g, capacities[g]);
    }
    assert_true(learned.pools[2].drops == 0);
    assert_true(learned.pools[0].drops == 20); /* what was given back is not one */
    assert_true(tm_learned_pools__lost_per_s(&learned, 0) > 2 * tm_learned_pools__lost_per_s(&learned, 2));
    assert_true(tm_learned_pools__together(&learned, 0, 1) > 0.8);
    assert_true(tm_learned_pools__together(&learned, 0, 2) < 0.1);
    struct tm_pool refuses = {.offered = -1,
                              .refused = 1}; /* with nothing there: the group has nothing, and that is known */
    tm_learned_pools__init(&learned);
    tm_learned_pools__observe(&learned, 0, &refuses, 1, capacities);
    assert_int_equal(capacities[0], 0);
    assert_true(learned.pools[0].drops == 0); /* it never gave any */
}

/* A look through the forecast is taken in a run, too, where it does not take long. */
static void test_forecasts_of_large_runs(void **state)
{
    (void)state;
    static const struct {
        int instances;
        bool live, looks;
    } rows[] = {{64, true, true}, {256, true, true}, {1024, true, true}, {1040, true, false}, {1040, false, true}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct test_job *job = job_make(9, false, COST, rows[i].instances, deep_speed); /* up to four stages */
        struct tm_policy_options options = usual;
        struct tm_policy *policy;
        struct tm_decision got;
        struct tm_error e = {0};
        struct tm_facts facts = {.speed = 1,
                                 .before = 8,
                                 .after = 8,
                                 .pool_count = 1,
                                 .pools = {{.here = 8, .speed = 1, .price_usd_h = 1}},
                                 .progress = {.samples_left = INFINITY, .efficiency = NAN},
                                 .limits = {.workers_max = rows[i].instances}};
        options.live = rows[i].live;
        int rc = tm_policy_create(tm_policy_find("tidemill"), &job->layouts, job->migrations, &job->cost, &options,
                                  &policy, &e);
        assert_int_equal(rc, 0);
        assert_int_equal(tm_policy_observe(policy, 8, 8, 0, &e), 0);
        assert_int_equal(tm_policy_decide(policy, &facts, &got, &e), 0);
        assert_row(policy->forecast_fresh == rows[i].looks, "%d instances", rows[i].instances);
        tm_policy_destroy(policy);
        job_drop(job);
    }
}

/* Who has taken none for long is expected to take none for longer. */
static void test_calm_pools_live_longer(void **state)
{
    (void)state;
    struct tm_learned_pools learned;
    struct tm_pool pools[2] = {{.offered = 4}, {.offered = 4}};
    int capacities[TM_POOLS_MAX];
    tm_learned_pools__init(&learned);
    for (int i = 0; i < 600; i++) { /* of the second, one goes every half hour */
        pools[1].offered = i % 30 == 29 ? 3 : 4;
        tm_learned_pools__observe(&learned, 60.0 * i, pools, 2, capacities);
    }
    double calm = tm_learned_pools__lost_per_s(&learned, 0), restless = tm_learned_pools__lost_per_s(&learned, 1);
    assert_true(calm < 1 / 18000.0 && restless > 2 * calm);
    pools[0].offered = 3;
    tm_learned_pools__observe(&learned, 36000, pools, 2, capacities);
    assert_true(tm_learned_pools__lost_per_s(&learned, 0) > calm);
}

/* Pools that took instances in the same quarter of an hour are expected to do so again, others are not; what two pools
 * of a region lose at once is not taken for chance. */
static void test_losing_together_is_learned(void **state)
{
    (void)state;
    struct tm_learned_pools learned;
    struct tm_pool pools[3] = {{.offered = 4}, {.offered = 4}, {.offered = 4}};
    int capacities[TM_POOLS_MAX];
    tm_learned_pools__init(&learned);
    for (int i = 0; i < 1200; i++) { /* the first two every hour, the third half an hour later */
        pools[0].offered = i % 60 == 30 ? 2 : 4;
        pools[1].offered = i % 60 == 33 ? 2 : 4;
        pools[2].offered = i % 60 == 0 ? 2 : 4;
        tm_learned_pools__observe(&learned, 60.0 * i, pools, 3, capacities);
    }
    assert_true(tm_learned_pools__together(&learned, 0, 1) > 0.8);
    assert_true(tm_learned_pools__together(&learned, 1, 0) > 0.8);
    assert_true(tm_learned_pools__together(&learned, 0, 2) < 0.1);
}

/* Six pools of two: as many as are worth it, and one pool's at least; with a deadline or without a price, all. */
static void test_what_is_worth_its_money(void **state)
{
    (void)state;
    static const struct {
        double scaling, price_usd_h;
        bool has_deadline, restless;
        int wanted;
    } rows[] = {{1, 1, false, false, 12},    {0.94, 1, false, false, 4}, {0.5, 1, false, false, 2},
                {0.94, 1, true, false, 12},  {0.01, 1, false, true, 2},  {0.01, 0, false, true, 12},
                {0.01, NAN, false, true, 12}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct test_job *job = job_make(9, false, COST, 12, deep_speed);
        struct tm_learned_pools learned;
        struct tm_facts facts = {.pool_count = 6, .limits = {.workers_max = 12, .has_deadline = rows[i].has_deadline}};
        int capacities[TM_POOLS_MAX];
        short order[12];
        double scaling = rows[i].scaling;
        for (size_t k = 0; k < job->layouts.count; k++)
            if (job->layouts.list[k].pipelines > 0)
                job->layouts.list[k].samples_per_s = 10 * pow(job->layouts.list[k].instances, scaling);
        struct tm_policy policy = {.layouts = &job->layouts, .migrations = job->migrations, .pools = &learned};
        for (short k = 0; k < 12; k++)
            order[k] = k / 2;
        for (int k = 0; k < 6; k++)
            facts.pools[k] = (struct tm_pool){.price_usd_h = rows[i].price_usd_h, .offered = 2, .speed = 1};
        tm_learned_pools__init(&learned);
        for (int k = 0; k < 10000; k++) { /* nothing was ever lost, or one of each pool every twenty minutes */
            for (int pool = 0; pool < 6; pool++)
                facts.pools[pool].offered = rows[i].restless && k % 2 == 0 ? 1 : 2;
            tm_learned_pools__observe(&learned, 600.0 * k, facts.pools, 6, capacities);
        }
        int count = tm_pools__worthwhile(&policy, &facts, order, 12, 2);
        assert_row(count == rows[i].wanted, "row %zu: %d", i, count);
        job_drop(job);
    }
}

/* Pools that take many at once stop the job once for all of them; and for a few instances more or less than are worth
 * their money nobody is made to stand still. */
static void test_few_stops(void **state)
{
    (void)state;
    struct test_job *job = job_make(9, false, COST, 12, deep_speed);
    struct tm_learned_pools learned;
    struct tm_facts facts = {.pool_count = 6, .limits = {.workers_max = 12}};
    int capacities[TM_POOLS_MAX], counts[3];
    short order[12];
    for (size_t k = 0; k < job->layouts.count; k++)
        if (job->layouts.list[k].pipelines > 0)
            job->layouts.list[k].samples_per_s = 10 * pow(job->layouts.list[k].instances, 0.97);
    struct tm_policy policy = {.layouts = &job->layouts, .migrations = job->migrations, .pools = &learned};
    for (short k = 0; k < 12; k++)
        order[k] = k / 2;
    static const int here[] = {0, 2, 12}; /* of the twelve */
    for (int i = 0; i < 3; i++) {
        tm_learned_pools__init(&learned);
        for (int k = 0; k < 6; k++)
            facts.pools[k] = (struct tm_pool){
                .price_usd_h = 1, .here = 2 * k < here[i] ? 2 : 0, .offered = 2 * k < here[i] ? 0 : 2, .speed = 1};
        for (int k = 0; k < 10000; k++)
            tm_learned_pools__observe(&learned, 600.0 * k, facts.pools, 6, capacities);
        counts[i] = tm_pools__worthwhile(&policy, &facts, order, 12, 2);
    }
    assert_row(counts[0] >= 10 && counts[0] < 12, "of none: %d", counts[0]);
    assert_int_equal(counts[1], counts[0]); /* many more are worth a stop */
    assert_int_equal(counts[2], 12);        /* a few less are not */
    struct tm_pool pool = {.speed = 1};
    tm_learned_pools__init(&learned);
    assert_true(tm_learned_pools__at_once(&learned, 0) == 1);
    for (int k = 0; k < 100; k++) {
        pool.offered = k % 2 == 0 ? 80 : 40;
        tm_learned_pools__observe(&learned, 600.0 * k, &pool, 1, capacities);
    }
    double at_once = tm_learned_pools__at_once(&learned, 0);
    assert_row(at_once > 35 && at_once < 40, "%g at once", at_once);
    job_drop(job);
}

/* Two partitions that cost nothing and do not tell what they would give: each is rented from up to its limit, and no
 * more is asked of the first in place of the second, whatever is here, in the queue or was refused. */
static void test_free_pools_up_to_their_limits(void **state)
{
    (void)state;
    static const struct {
        int here, ordered, refused; /* of the first */
        int others_ordered, others_refused;
    } rows[] = {{0, 0, 0, 0, 0}, {0, 2, 2, 0, 0}, {2, 0, 0, 1, 1}, {2, 0, 0, 0, 0}, {1, 1, 1, 1, 0}, {1, 0, 0, 1, 0}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct test_job *job = job_make(9, false, COST, 3, deep_speed);
        struct tm_learned_pools learned;
        struct tm_facts facts = {.choices = true, .pool_count = 2, .limits = {.workers_min = 1, .workers_max = 3}};
        struct tm_decision out = {0};
        int capacities[TM_POOLS_MAX];
        for (size_t k = 0; k < job->layouts.count; k++)
            if (job->layouts.list[k].pipelines > 0)
                job->layouts.list[k].samples_per_s = 10 * sqrt(job->layouts.list[k].instances);
        struct tm_policy policy = {.info = tm_policy_find("tidemill"),
                                   .layouts = &job->layouts,
                                   .migrations = job->migrations,
                                   .pools = &learned};
        facts.pools[0] = (struct tm_pool){.here = rows[i].here,
                                          .ordered = rows[i].ordered,
                                          .refused = rows[i].refused,
                                          .offered = -1,
                                          .limit = 2,
                                          .speed = 1};
        facts.pools[1] = (struct tm_pool){.market = TM_POOL_ON_DEMAND,
                                          .ordered = rows[i].others_ordered,
                                          .refused = rows[i].others_refused,
                                          .offered = -1,
                                          .limit = 1,
                                          .speed = 1};
        tm_learned_pools__init(&learned);
        tm_learned_pools__observe(&learned, 0, facts.pools, 2, capacities);
        tm_policy__choose_pools(&policy, &facts, 0, &out);
        assert_row(out.want[0] == 2 && out.want[1] == 1, "row %zu: %d and %d", i, out.want[0], out.want[1]);
        job_drop(job);
    }
}

/* Whatever mattered most can be read back. */
static void test_why_is_read_back(void **state)
{
    (void)state;
    struct test_job *job = job_make(9, false, COST, 4, deep_speed);
    for (int why = 0; why <= TM_WHY_SHARES; why++) {
        struct tm_decision decision = {.why = (enum tm_why)why, .pace = 1}, back;
        struct tm_text text;
        struct tm_error e;
        tm_text_init(&text, 1 << 16);
        tm_decision_record(&decision, &text);
        int rc = tm_decision_recall(tm_text_string(&text), text.length, &job->layouts, &back, &e);
        assert_row(rc == 0 && back.why == decision.why, "%d", why);
        tm_text_deinit(&text);
    }
    job_drop(job);
}

TM_TEST_MAIN(TM_TEST(test_short_until_one_arrives), TM_TEST(test_unknown_is_not_none),
             TM_TEST(test_refusals_are_learned), TM_TEST(test_forecasts_of_large_runs),
             TM_TEST(test_calm_pools_live_longer), TM_TEST(test_losing_together_is_learned),
             TM_TEST(test_what_is_worth_its_money), TM_TEST(test_few_stops),
             TM_TEST(test_free_pools_up_to_their_limits), TM_TEST(test_why_is_read_back),
             TM_TEST(test_reactive_migrates_in_a_run), TM_TEST(test_gang_within_its_budget),
             TM_TEST(test_on_demand_by_the_sample), TM_TEST(test_spot_is_asked_first), TM_TEST(test_the_table),
             TM_TEST(test_realise), TM_TEST(test_decisions_fit), TM_TEST(test_decisions_by_hand),
             TM_TEST(test_truth_sees_what_comes), TM_TEST(test_ours_takes_the_best), TM_TEST(test_measured_steps_count),
             TM_TEST(test_without_memory))
