/* Policies of the simulator deciding for a run: what they are asked, and what becomes of the answer. */
#include "layout/test/layout_helpers.h"
#include "policy/facts.h"
#include "run/decide_policy.h"
#include "sim/test/sim_helpers.h"

enum { TRAINED_LAYERS = 12, INSTANCES = 12 };
#define COST(process, build)                                                                                           \
    "tidemill-cost: 1\nkind: paper\ntransfer_us: {1: 100, 1000000000: 20000000}\nmodels: {test: {stages_max: 3, "      \
    "process_ms: " process ", rendezvous_ms: 3000, build_ms: {1: " build ", 2: " build ", 3: " build "}, "             \
    "group_add: {base_ms: 35, per_instance_ms: 500}, group_remove: {base_ms: 35, per_instance_ms: 300}}}\n"
static const char cost_text[] = COST("30", "110");

static struct tm_run_view view_of(size_t workers, size_t last_workers, size_t last_here, uint32_t pipelines,
                                  uint32_t stages)
{
    return (struct tm_run_view){.layers = TRAINED_LAYERS,
                                .micro_batches = 64,
                                .steps = 100,
                                .worker_count = workers,
                                .last_workers = last_workers,
                                .last_here = last_here,
                                .last_pipelines = pipelines,
                                .last_stages = stages,
                                .since_copy_ms = -1};
}

static struct tm_policy_decider *decider_of(struct test_job *job, const char *policy)
{
    struct tm_policy_rule rule = {.info = tm_policy_find(policy),
                                  .layouts = &job->layouts,
                                  .migrations = job->migrations,
                                  .cost = &job->cost,
                                  .interval_s = 60,
                                  .workers_min = 2,
                                  .copy_every_ms = 60000,
                                  .copy_every_alone_ms = 10000};
    struct tm_policy_decider *decider = NULL;
    struct tm_error e = {0};
    assert_row(tm_policy_decider_create(&rule, &decider, &e) == 0, "%s: %s", policy, e.text);
    return decider;
}

/* Whatever the policy: the layout fits the workers and the layers, and the same view gives the same answer. */
static void test_fits(void **state)
{
    (void)state;
    static const char *const policies[] = {"tidemill", "reactive", "parcae-notice"};
    struct test_job *job = job_make(TRAINED_LAYERS, true, cost_text, INSTANCES, test_speed);
    for (size_t p = 0; p < TM_COUNT(policies); p++) {
        struct tm_policy_decider *decider = decider_of(job, policies[p]);
        struct tm_decider decide = tm_policy_decider_get(decider);
        for (size_t workers = 0; workers <= INSTANCES + 3; workers++) {
            struct tm_run_view view = view_of(workers, 8, workers < 8 ? workers : 8, 4, 2);
            struct tm_run_decision out;
            struct tm_run_decision again;
            decide.decide(decide.context, &view, &out);
            decide.decide(decide.context, &view, &again);
            assert_row(memcmp(&out, &again, sizeof out) == 0, "%s, %zu workers: two answers", policies[p], workers);
            if (workers < 2) assert_int_equal(out.pipelines, 0);
            assert_row((size_t)out.pipelines * out.stages <= workers, "%s, %zu workers", policies[p], workers);
            if (out.pipelines == 0) continue;
            assert_int_equal(out.stage_first[0], 0);
            assert_int_equal(out.stage_first[out.stages], TRAINED_LAYERS);
        }
        tm_policy_decider_destroy(decider);
    }
    job_drop(job);
}

/* Nothing happens: what runs goes on. */
static void test_no_flapping(void **state)
{
    (void)state;
    struct test_job *job = job_make(TRAINED_LAYERS, true, cost_text, INSTANCES, test_speed);
    struct tm_policy_decider *decider = decider_of(job, "tidemill");
    struct tm_decider decide = tm_policy_decider_get(decider);
    struct tm_run_view first = view_of(8, 0, 0, 0, 0);
    struct tm_run_decision chosen;
    decide.decide(decide.context, &first, &chosen);
    assert_true(chosen.pipelines > 0);
    struct tm_run_view later = view_of(8, 8, 8, chosen.pipelines, chosen.stages);
    struct tm_run_decision out;
    decide.decide(decide.context, &later, &out);
    assert_int_equal(out.pipelines, chosen.pipelines);
    assert_int_equal(out.stages, chosen.stages);
    tm_policy_decider_destroy(decider);
    job_drop(job);
}

/* Steps that take longer for one slow worker are worth a change, a little slowness is not; and it is a fact. */
static void test_shares(void **state)
{
    (void)state;
    static const struct {
        double uneven;
        bool share;
    } rows[] = {{1, false}, {1.05, false}, {1.5, true}, {1.05, false}, {2, true}};
    struct test_job *job = job_make(TRAINED_LAYERS, true, cost_text, INSTANCES, test_speed);
    struct tm_policy_decider *decider = decider_of(job, "tidemill");
    struct tm_decider decide = tm_policy_decider_get(decider);
    struct tm_run_view view = view_of(8, 0, 0, 0, 0);
    struct tm_run_decision chosen, out;
    view.uneven = 3; /* nothing stands yet */
    decide.decide(decide.context, &view, &chosen);
    assert_false(chosen.share);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        view = view_of(8, 8, 8, chosen.pipelines, chosen.stages);
        view.uneven = rows[i].uneven;
        decide.decide(decide.context, &view, &out);
        assert_row(out.share == rows[i].share, "row %zu", i);
        assert_int_equal(out.pipelines, chosen.pipelines);
    }
    assert_string_equal(out.why, tm_why_words(TM_WHY_SHARES));
    tm_policy_decider_destroy(decider);
    job_drop(job);
}

/* A layout's time is the cloud's; what is compared with workers' steps is on the wall, or not said. */
static void test_steps_are_predicted_on_the_wall(void **state)
{
    (void)state;
    struct test_job *job = job_make(TRAINED_LAYERS, true, cost_text, INSTANCES, test_speed);
    struct tm_policy_rule rule = {.info = tm_policy_find("tidemill"),
                                  .layouts = &job->layouts,
                                  .migrations = job->migrations,
                                  .cost = &job->cost,
                                  .interval_s = 60,
                                  .workers_min = 2,
                                  .workers_max = 8};
    const struct {
        const char *name;
        bool rents, known, unknown_steps;
        double speed, over;
    } rows[] = {
        {"a cloud at its own pace", true, true, false, 1, 1},
        {"a cloud sixty times as fast", true, true, false, 60, 60},
        {"a cloud that was not heard yet", true, false, false, 0, 0},
        {"machines of one's own", false, false, false, 0, 1},
        {"a command", true, true, true, 60, 0},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_policy_decider *decider = NULL;
        struct tm_error e = {0};
        rule.workers_max = rows[i].rents ? 8 : 0;
        rule.steps_unknown = rows[i].unknown_steps;
        assert_int_equal(tm_policy_decider_create(&rule, &decider, &e), 0);
        struct tm_decider decide = tm_policy_decider_get(decider);
        struct tm_run_view view = view_of(8, 0, 0, 0, 0);
        struct tm_run_decision out;
        view.cloud.known = rows[i].known;
        view.cloud.speed = rows[i].speed;
        decide.decide(decide.context, &view, &out);
        int layout = tm_layouts_find(&job->layouts, (int)out.pipelines, (int)out.stages);
        assert_row(layout != TM_LAYOUT_PAUSE, "%s: no layout", rows[i].name);
        double want_ms = rows[i].over > 0 ? job->layouts.list[layout].step_s * 1000 / rows[i].over : 0;
        assert_row(fabs(out.predicted_step_ms - want_ms) <= 0.5, "%s: %u ms, want %g", rows[i].name,
                   out.predicted_step_ms, want_ms);
        tm_policy_decider_destroy(decider);
    }
    job_drop(job);
}

static void test_copies_and_future(void **state)
{
    (void)state;
    struct test_job *job = job_make(TRAINED_LAYERS, true, cost_text, INSTANCES, test_speed);
    struct tm_policy_decider *decider = decider_of(job, "tidemill");
    struct tm_decider decide = tm_policy_decider_get(decider);
    struct tm_run_view view = view_of(4, 4, 4, 2, 2);
    struct tm_run_decision out;
    view.applied = 20;
    view.copied_step = 10;
    view.since_copy_ms = 30000;
    decide.decide(decide.context, &view, &out);
    assert_false(out.copy);
    view.only_one_replica = true; /* a loss would cost more: sooner */
    decide.decide(decide.context, &view, &out);
    assert_true(out.copy);
    tm_policy_decider_destroy(decider);
    struct tm_policy_rule rule = {.info = tm_policy_find("oracle")};
    struct tm_error e = {0};
    assert_int_equal(tm_policy_decider_create(&rule, &decider, &e), -(int)TM_EUSAGE);
    assert_error_has(e, "knows the future");
    job_drop(job);
}

/* ---- as the simulator ---- */

enum { LIST_MAX = 32 };

/* The instances of a trace at a time, as a cloud lists them: of those there are the oldest goes first. */
static size_t list_at(const struct tm_trace *trace, int64_t now_ms, Tmw__Instance list[LIST_MAX], size_t *out_running)
{
    size_t count = 0, first = 0;
    for (size_t i = 0; i < trace->event_count && trace->events[i].time_ms <= now_ms; i++) {
        for (int k = 0; k < trace->events[i].out; k++)
            list[first++].end_ms = trace->events[i].time_ms;
        for (int k = 0; k < trace->events[i].in; k++) {
            assert_true(count < LIST_MAX);
            list[count] = (Tmw__Instance)TMW__INSTANCE__INIT;
            list[count].id = count + 1;
            list[count].spot = true;
            list[count++].start_ms = trace->events[i].time_ms;
        }
    }
    *out_running = count - first;
    return count;
}

/* The same moments, shown to a run's decider as a coordinator would and lived through by the simulator: the same
 * layouts. */
static void test_decides_as_simulated(void **state)
{
    (void)state;
    static const char *const policies[] = {"tidemill", "reactive", "checkpoint", "parcae"};
    static const char text[] = "tidemill-trace 1\nend: 3000s\n\n0 +8\n150 -2\n420 +1\n610 -1\n900 +4\n1333 -3\n"
                               "1500 -2\n1980 +3\n2400 -1\n";
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_trace trace;
    struct tm_error e = {0};
    tm_trace_init(&trace);
    assert_int_equal(tm_trace_parse("t", text, sizeof text - 1, "tidemill", &trace, &e), 0);
    for (size_t p = 0; p < TM_COUNT(policies); p++) {
        struct test_job *job = job_make(TRAINED_LAYERS, true, cost_text, INSTANCES, test_speed);
        struct tm_sim_options options = minute_options(0, 3000000);
        struct tm_sim_log log;
        options.notice_s = 0;
        options.live = true;
        tm_sim_log_init(&log);
        (void)simulate(env, job, &trace, policies[p], &options, &log);
        struct tm_policy_decider *decider = decider_of(job, policies[p]);
        struct tm_decider decide = tm_policy_decider_get(decider);
        struct tm_run_view view = view_of(0, 0, 0, 0, 0);
        for (size_t i = 0; i < log.count; i++) {
            const struct tm_sim_interval *moment = &log.intervals[i];
            bool ticks_only = tm_policy_find(policies[p])->ticks_only;
            Tmw__Instance list[LIST_MAX];
            struct tm_run_decision out;
            size_t running;
            view.elapsed_ms = (int64_t)(moment->time_s * 1000);
            view.cloud =
                (struct tm_run_cloud){.known = true, .now_ms = view.elapsed_ms, .speed = 1, .spot_offered = -1};
            view.cloud.instance_count = list_at(&trace, view.elapsed_ms, list, &running);
            view.cloud.instances = list;
            view.worker_count = running;
            view.last_here = view.last_workers - (size_t)moment->lost;
            decide.decide(decide.context, &view, &out);
            /* one that decides once a minute is asked at each event, too, in a run */
            if (ticks_only && fmod(moment->time_s, 60) != 0) out.pipelines = (uint32_t)moment->pipelines;
            if (ticks_only && fmod(moment->time_s, 60) != 0) out.stages = (uint32_t)moment->stages;
            assert_row((int)out.pipelines == moment->pipelines && (int)out.stages == moment->stages,
                       "%s at %g s: %ux%u, simulated %dx%d", policies[p], moment->time_s, out.pipelines, out.stages,
                       moment->pipelines, moment->stages);
            view.generation++;
            view.last_workers = running;
            view.last_pipelines = out.pipelines;
            view.last_stages = out.stages;
        }
        tm_policy_decider_destroy(decider);
        tm_sim_log_deinit(&log);
        job_drop(job);
    }
    tm_trace_deinit(&trace);
    tm_env_virtual_destroy(env);
}

/* What is rented within the limits, and when the job stops. */
static void test_limits(void **state)
{
    (void)state;
    struct test_job *job = job_make(TRAINED_LAYERS, true, cost_text, INSTANCES, test_speed);
    static const struct {
        const char *name;
        int anchors;
        bool train;
        double budget_usd, bill_usd;
        uint32_t spot, on_demand;
        bool stop;
    } rows[] = {
        {"spot alone", 0, false, 0, 5, 8, 0, false},        {"anchors on top", 2, false, 0, 5, 8, 2, false},
        {"anchors that train", 2, true, 0, 5, 6, 2, false}, {"money left", 0, false, 10, 9.9, 8, 0, false},
        {"no money left", 0, false, 10, 9.96, 0, 0, true},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_policy_rule rule = {.info = tm_policy_find("tidemill"),
                                      .layouts = &job->layouts,
                                      .migrations = job->migrations,
                                      .cost = &job->cost,
                                      .interval_s = 60,
                                      .workers_min = 1,
                                      .workers_max = 8,
                                      .anchors = rows[i].anchors,
                                      .anchors_train = rows[i].train,
                                      .samples_per_step = 8,
                                      .budget_usd = rows[i].budget_usd};
        struct tm_policy_decider *decider = NULL;
        struct tm_error e = {0};
        struct tm_run_decision out;
        struct tm_run_view view = view_of(6, 6, 6, 3, 2);
        view.cloud = (struct tm_run_cloud){.known = true,
                                           .speed = 1,
                                           .spot_microusd_h = 1000000,
                                           .on_demand_microusd_h = 3000000,
                                           .bill_microusd = (uint64_t)(rows[i].bill_usd * 1e6)};
        assert_int_equal(tm_policy_decider_create(&rule, &decider, &e), 0);
        struct tm_decider decide = tm_policy_decider_get(decider);
        decide.decide(decide.context, &view, &out);
        assert_row(out.rents && out.stop == rows[i].stop, "%s: stop %d", rows[i].name, out.stop);
        assert_row(out.stop || (out.want_spot == rows[i].spot && out.want_on_demand == rows[i].on_demand),
                   "%s: %u spot, %u on demand", rows[i].name, out.want_spot, out.want_on_demand);
        tm_policy_decider_destroy(decider);
    }
    job_drop(job);
}

/* ---- facts ---- */

static void keep_facts(void *context, const struct tm_facts *facts, const struct tm_decision *decision)
{
    (void)decision;
    *(struct tm_facts *)context = *facts;
}

static void hear_nothing(void *context, int count, int arrived, int lost)
{
    (void)context, (void)count, (void)arrived, (void)lost;
}

static void hear_no_notice(void *context, int losing, double in_s)
{
    (void)context, (void)losing, (void)in_s;
}

/* Who has not joined yet is on its way, who has a notice leaves, and what has been paid since the last report counts.
 */
static void test_the_fleet_as_facts(void **state)
{
    (void)state;
    struct test_job *job = job_make(TRAINED_LAYERS, true, cost_text, INSTANCES, test_speed);
    struct tm_policy_rule rule = {.info = tm_policy_find("tidemill"),
                                  .layouts = &job->layouts,
                                  .migrations = job->migrations,
                                  .cost = &job->cost,
                                  .interval_s = 60,
                                  .workers_min = 1,
                                  .workers_max = 8,
                                  .samples_per_step = 8,
                                  .budget_usd = 1000};
    struct tm_policy_decider *decider = NULL;
    struct tm_error e = {0};
    struct tm_facts facts = {0};
    struct tm_decision_ear ear = {&facts, hear_nothing, hear_no_notice, keep_facts};
    Tmw__Instance list[8];
    struct tm_run_worker workers[6] = {{.id = 1}, {.id = 2}, {.id = 3}, {.id = 4}, {.id = 7, .anchor = true}};
    for (size_t i = 0; i < TM_COUNT(list); i++) {
        tmw__instance__init(&list[i]);
        list[i].id = i + 1;
        list[i].start_ms = 1;
        list[i].spot = i < 6; /* six spot: four train, one has a notice, one joins; two on-demand: one joins */
        list[i].price_microusd_h = i < 6 ? 1000000 : 3000000;
    }
    list[4].announced = true;
    struct tm_run_view view = view_of(5, 6, 5, 3, 2);
    view.applied = 101; /* more than there are: a record may say so */
    view.workers = workers;
    view.ear = &ear;
    view.cloud = (struct tm_run_cloud){.known = true,
                                       .speed = 60,
                                       .ago_ms = 1000,
                                       .spot_offered = -1,
                                       .bill_microusd = 2000000,
                                       .instances = list,
                                       .instance_count = TM_COUNT(list)};
    assert_int_equal(tm_policy_decider_create(&rule, &decider, &e), 0);
    struct tm_decider decide = tm_policy_decider_get(decider);
    struct tm_run_decision out;
    decide.decide(decide.context, &view, &out);
    assert_int_equal(facts.pools[0].here, 4);
    assert_int_equal(facts.pools[0].ordered, 1);
    assert_int_equal(facts.pools[0].leaving, 1);
    assert_int_equal(facts.pools[1].here, 1);
    assert_int_equal(facts.pools[1].ordered, 1);
    assert_true(fabs(facts.limits.bill_usd - (2 + 12 / 60.0)) < 1e-9);
    assert_true(facts.progress.samples_left == 0);
    double join_s = facts.pools[0].start_s;
    assert_true(facts.pools[1].start_s == job->cost.start_s);
    view.cloud.spot_wait_ms = 45000; /* measured: how long they take to come counts from then on */
    view.cloud.on_demand_wait_ms = 60000;
    decide.decide(decide.context, &view, &out);
    assert_true(facts.pools[0].start_s == 45 + join_s && facts.pools[1].start_s == 60 + join_s);
    tm_policy_decider_destroy(decider);
    job_drop(job);
}

/* The first decision is made before the cloud has spoken: its clock is the job's, so that a deadline is as far as it
 * is. */
static void test_the_first_decision_knows_the_time(void **state)
{
    (void)state;
    struct test_job *job = job_make(TRAINED_LAYERS, true, cost_text, INSTANCES, test_speed);
    struct tm_policy_rule rule = {.info = tm_policy_find("tidemill"),
                                  .layouts = &job->layouts,
                                  .migrations = job->migrations,
                                  .cost = &job->cost,
                                  .speed = 60,
                                  .interval_s = 60,
                                  .workers_min = 4,
                                  .workers_max = 4,
                                  .samples_per_step = 1,
                                  .deadline_s = 60};
    struct tm_policy_decider *decider = NULL;
    struct tm_error e = {0};
    struct tm_facts facts = {0};
    struct tm_decision_ear ear = {&facts, hear_nothing, hear_no_notice, keep_facts};
    struct tm_run_decision out;
    struct tm_run_view view = view_of(0, 0, 0, 0, 0);
    view.ear = &ear;
    view.elapsed_ms = 1000;
    assert_int_equal(tm_policy_decider_create(&rule, &decider, &e), 0);
    struct tm_decider decide = tm_policy_decider_get(decider);
    decide.decide(decide.context, &view, &out);
    assert_true(facts.now_s == 60 && facts.limits.seconds_left == 59 * 60);
    view.limits = (struct tm_run_limits){.deadline_set = true, .deadline_s = 7200, .budget_set = true, .budget_usd = 7};
    decide.decide(decide.context, &view, &out); /* ordered: the question is a new one */
    assert_true(facts.limits.seconds_left == 7200 - 60 && facts.limits.budget_usd == 7 && facts.limits.has_deadline);
    view.limits.deadline_s = 0;
    decide.decide(decide.context, &view, &out);
    assert_true(!facts.limits.has_deadline);
    view.limits = (struct tm_run_limits){.deadline_set = false};
    struct tm_cost joins = job->cost; /* two train before the cloud has told of any: the others are on their way */
    joins.measured.join_s = 120;
    rule.cost = &joins;
    rule.workers_min = 1;
    tm_policy_decider_destroy(decider);
    assert_int_equal(tm_policy_decider_create(&rule, &decider, &e), 0);
    decide = tm_policy_decider_get(decider);
    decide.decide(decide.context, &view, &out);
    struct tm_run_view later = view_of(2, 2, 2, 1, 2);
    later.ear = &ear;
    later.elapsed_ms = 2000;
    later.cloud = (struct tm_run_cloud){.known = true, .speed = 60, .spot_offered = -1};
    decide.decide(decide.context, &later, &out);
    assert_int_equal(facts.pools[0].here, 2);
    assert_int_equal(facts.pools[0].ordered, 2);
    tm_policy_decider_destroy(decider);
    job_drop(job);
}

/* A worker that joined and was given no seat is no news a second time. */
static void test_spares_are_seen_once(void **state)
{
    (void)state;
    struct test_job *job = job_make(TRAINED_LAYERS, true, cost_text, INSTANCES, test_speed);
    struct tm_policy_decider *decider = decider_of(job, "tidemill");
    struct tm_decider decide = tm_policy_decider_get(decider);
    struct tm_facts facts = {0};
    struct tm_decision_ear ear = {&facts, hear_nothing, hear_no_notice, keep_facts};
    struct tm_run_decision out, chosen;
    struct tm_run_view view = view_of(9, 0, 0, 0, 0);
    decide.decide(decide.context, &view, &chosen);
    size_t seats = (size_t)chosen.pipelines * chosen.stages;
    view = view_of(9, seats, seats, chosen.pipelines, chosen.stages); /* the rest joined after it began */
    view.ear = &ear;
    view.generation = 7;
    for (int i = 0; i < 3; i++) {
        view.elapsed_ms = i * 60000;
        decide.decide(decide.context, &view, &out);
        bool news = seats < 9 && i == 0;
        assert_int_equal(facts.event, news);
        assert_int_equal(facts.before, news ? (int)seats : 9);
    }
    tm_policy_decider_destroy(decider);
    job_drop(job);
}

TM_TEST_MAIN(TM_TEST(test_the_fleet_as_facts), TM_TEST(test_spares_are_seen_once),
             TM_TEST(test_the_first_decision_knows_the_time), TM_TEST(test_fits), TM_TEST(test_no_flapping),
             TM_TEST(test_shares), TM_TEST(test_steps_are_predicted_on_the_wall), TM_TEST(test_copies_and_future),
             TM_TEST(test_decides_as_simulated), TM_TEST(test_limits))
