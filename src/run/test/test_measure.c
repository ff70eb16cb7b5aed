/* Costs from records: a run made by hand with known costs gives these costs back. */
#include "run/measure.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "run/test/record_samples.h"
#include "store/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SPEED = 60, LAYER_BYTES = 1000000, NOTICE_S = 2, LAYERS = 4 };

static double layer_bytes(void *context, uint32_t layer)
{
    (void)context;
    (void)layer;
    return LAYER_BYTES;
}

static struct tm_measure *measure_new(void)
{
    struct tm_measure_options options = {.speed = SPEED,
                                         .notice_wall_s = NOTICE_S,
                                         .layer_bytes = layer_bytes,
                                         .rules = {.stages_min = 1, .stages_max = 4, .pipelines_min = 1}};
    return tm_measure__create(&options);
}

static void feed(struct tm_measure *m, const struct samples *s)
{
    struct tm_error e = {0};
    for (size_t i = 0; i < s->count; i++)
        if (tm_measure__take(m, s->events[i], &e) != 0) fail_msg("%s", e.text);
}

static void near(const char *name, double got, double want, double share)
{
    assert_row(fabs(got - want) <= share * fabs(want) + 1e-9, "%s: %.12g, want %.12g", name, got, want);
}

/* ---- a run with known costs ---- */

/* What the made-up run costs, in milliseconds on the wall. */
static const double step_of_ms = 400, reform_ms = 120, per_instance_ms = 7, ms_per_byte = 2e-5;
enum { JOIN_MS = 900, LEAVE_MS = 300, BEGIN_MS = 1500, DETECT_MS = 40 };

struct made {
    struct samples *s;
    uint64_t ids[64];
    size_t count;
    int pipelines, stages;
    uint64_t generation;
    uint64_t step;    /* last commit ... */
    double commit_ms; /* ... and when, since the beginning */
};

static double step_ms(const struct made *made)
{
    return step_of_ms / (made->pipelines * made->stages);
}

static void at(struct made *made, double ms)
{
    made->s->at_ms = SAMPLES_BEGIN_MS + (int64_t)ms;
}

static void train_until(struct made *made, double ms)
{
    double each = step_ms(made);
    while (made->commit_ms + each <= ms) {
        made->commit_ms += each;
        made->step++;
        if (made->step % 10 != 0) continue;
        at(made, made->commit_ms);
        add_progress(made->s, made->step, NAN, (uint32_t)each);
    }
}

/* The most that one of `ids` lacks, in layers: seats are dealt as add_start does. */
static int worst_layers(const struct made *old, const uint64_t *ids, int pipelines, int stages)
{
    int worst = 0;
    for (int i = 0; i < pipelines * stages; i++) {
        int first = i % stages * LAYERS / stages, end = (i % stages + 1) * LAYERS / stages, lacks = 0;
        int old_first = 0, old_end = 0;
        for (int k = 0; k < old->pipelines * old->stages; k++)
            if (old->ids[k] == ids[i]) {
                old_first = k % old->stages * LAYERS / old->stages;
                old_end = (k % old->stages + 1) * LAYERS / old->stages;
            }
        for (int l = first; l < end; l++)
            lacks += l < old_first || l >= old_end;
        worst = lacks > worst ? lacks : worst;
    }
    return worst;
}

static void change(struct made *made, const uint64_t *ids, size_t count, int pipelines, int stages,
                   enum tm_change_cause cause)
{
    double pause = reform_ms + per_instance_ms * pipelines * stages +
                   ms_per_byte * LAYER_BYTES * worst_layers(made, ids, pipelines, stages);
    at(made, made->commit_ms + 10);
    add_fence(made->s, ++made->generation, cause);
    at(made, made->commit_ms + 50);
    (void)add_start(made->s, made->generation, made->step, (uint32_t)pipelines, (uint32_t)stages, ids, count);
    memcpy(made->ids, ids, count * sizeof *ids);
    made->count = count;
    made->pipelines = pipelines;
    made->stages = stages;
    pause += step_ms(made);
    made->commit_ms += pause;
    made->step++;
    at(made, made->commit_ms + 30);
    add_pause(made->s, made->generation, cause, (uint64_t)pause, 0);
    made->s->events[made->s->count - 1]->pause->ago_ms = 30;
}

static int64_t cloud(double wall_ms)
{
    return (int64_t)(wall_ms * SPEED);
}

/* Times are whole milliseconds, so that the record can hold them. */
static void make_run(struct samples *s)
{
    static const uint64_t four[] = {1, 2, 3, 4}, two[] = {1, 2}, five[] = {1, 2, 3, 4, 5}, then[] = {1, 2, 4, 5},
                          last[] = {1, 4, 5, 7, 8};
    struct made made = {.s = s, .pipelines = 1, .stages = 2};
    add_job(s, "made", 1000);
    for (uint64_t id = 1; id <= 4; id++)
        (void)add_instance(s, id, 0, 0);
    at(&made, 500);
    add_state(s, TM_JOB_TRAINING, "", 0);
    add_fence(s, ++made.generation, TM_CHANGED_BEGIN); /* two are there first: part of the beginning */
    (void)add_start(s, made.generation, 0, 1, 2, two, 2);
    made.commit_ms = 600;
    train_until(&made, 1100);            /* two steps of the first two */
    made.commit_ms = BEGIN_MS + 2 * 100; /* so that the first step of all four ends here ... */
    made.pipelines = made.stages = 2;
    at(&made, 1200);
    add_fence(s, ++made.generation, TM_CHANGED_ARRIVAL);
    (void)add_start(s, made.generation, made.step, 2, 2, four, 4);
    memcpy(made.ids, four, sizeof four);
    made.step++;
    made.commit_ms += 100; /* ... BEGIN_MS and three steps after the beginning */
    at(&made, made.commit_ms);
    add_pause(s, made.generation, TM_CHANGED_ARRIVAL, 700, 0);
    add_set(s, 1, made.step);

    train_until(&made, 9000 + JOIN_MS);
    at(&made, 9100);
    (void)add_instance(s, 5, cloud(made.commit_ms - JOIN_MS), 0);
    change(&made, five, 5, 5, 1, TM_CHANGED_ARRIVAL);

    train_until(&made, 15000);
    double lost_ms = made.commit_ms - LEAVE_MS + NOTICE_S * 1000;
    at(&made, made.commit_ms - 100);
    add_instance(s, 3, 0, 0)->announced = true;
    change(&made, then, 4, 2, 2, TM_CHANGED_NOTICE);
    train_until(&made, lost_ms + 100);
    at(&made, lost_ms + 150);
    (void)add_loss(s, 3, true);
    add_instance(s, 3, 0, cloud(lost_ms))->announced = true;
    add_set(s, 2, made.step);

    train_until(&made, 20000);
    lost_ms = made.commit_ms + 20;
    at(&made, lost_ms + DETECT_MS);
    (void)add_loss(s, 2, false);
    (void)add_instance(s, 2, 0, cloud(lost_ms));
    static const uint64_t three[] = {1, 4, 5};
    change(&made, three, 3, 1, 2, TM_CHANGED_LOSS);

    train_until(&made, 26000);
    for (uint64_t id = 7; id <= 8; id++) {
        at(&made, 26010);
        (void)add_instance(s, id, cloud(26000), 0);
    }
    train_until(&made, 26000 + JOIN_MS);
    change(&made, last, 5, 1, 4, TM_CHANGED_ARRIVAL);
    train_until(&made, 40000);
    static const uint64_t end[] = {4, 5, 7, 8, 1};
    change(&made, end, 5, 1, 4, TM_CHANGED_POLICY);
    train_until(&made, 50000);
}

static void test_known_costs_come_back(void **state)
{
    (void)state;
    struct samples s;
    struct tm_cost cost;
    struct tm_error e = {0};
    struct tm_measure *m = measure_new();
    samples_init(&s);
    make_run(&s);
    feed(m, &s);
    assert_row(tm_measure__cost(m, &cost, &e) == 0, "%s", e.text);
    near("speed", cost.measured.speed, SPEED, 0);
    near("reform_ms", cost.measured.reform_ms / SPEED, reform_ms, 0.02);
    near("reform_per_instance_ms", cost.measured.reform_per_instance_ms / SPEED, per_instance_ms, 0.05);
    near("link", cost.measured.link_bit_s * SPEED, 8e3 / ms_per_byte, 0.02);
    near("begin_s", cost.measured.begin_s / SPEED, BEGIN_MS / 1000.0, 0.01);
    near("join_s", cost.measured.join_s / SPEED, JOIN_MS / 1000.0, 0.15); /* up to a step of drain */
    near("leave_s", cost.measured.leave_s / SPEED, LEAVE_MS / 1000.0, 0.01);
    near("detect_ms", cost.measured.detect_ms / SPEED, DETECT_MS, 0.01);
    assert_true(cost.measured.leaves);
    static const struct tm_step_time steps[] = {{1, 2, 200}, {2, 2, 100}, {5, 1, 80}, {1, 4, 100}};
    assert_int_equal(cost.step_count, TM_COUNT(steps));
    for (size_t i = 0; i < TM_COUNT(steps); i++) {
        assert_true(cost.steps[i].pipelines == steps[i].pipelines && cost.steps[i].stages == steps[i].stages);
        near("step", cost.steps[i].step_ms / SPEED, steps[i].step_ms, 0.01);
    }
    /* and as a file */
    struct tm_text text;
    struct tm_cost again;
    tm_text_init(&text, 1 << 16);
    tm_cost_print(&cost, "m", &text);
    assert_row(tm_cost_parse("made", tm_text_string(&text), text.length, "m", &again, &e) == 0, "%s", e.text);
    near("read again", again.measured.reform_ms, cost.measured.reform_ms, 1e-5);
    near("read again", again.steps[2].step_ms, cost.steps[2].step_ms, 1e-5);
    tm_text_deinit(&text);
    tm_measure__destroy(m);
    samples_deinit(&s);
}

/* Whatever is left out of a record, what comes out is a cost that reads back, or a clear refusal. */
static void test_whatever_is_missing(void **state)
{
    (void)state;
    struct samples s;
    samples_init(&s);
    make_run(&s);
    int made = 0, refused = 0;
    for (size_t skip = 0; skip <= s.count; skip++) {
        for (int tail = 0; tail < 2; tail++) { /* one event less, or all from it on */
            struct tm_measure *m = measure_new();
            struct tm_cost cost, again;
            struct tm_error e = {0};
            struct tm_text text;
            for (size_t i = 0; i < s.count; i++)
                if (tail == 0 ? i != skip : i < skip) assert_int_equal(tm_measure__take(m, s.events[i], &e), 0);
            int rc = tm_measure__cost(m, &cost, &e);
            tm_text_init(&text, 1 << 16);
            if (rc == 0) {
                tm_cost_print(&cost, "m", &text);
                assert_row(tm_cost_parse("made", tm_text_string(&text), text.length, "m", &again, &e) == 0, "%s: %s",
                           e.text, tm_text_string(&text));
                made++;
            } else {
                assert_int_equal(rc, -TM_ENONE);
                refused++;
            }
            tm_text_deinit(&text);
            tm_measure__destroy(m);
        }
    }
    assert_true(made > 0 && refused > 0);
    samples_deinit(&s);
}

/* The sample that the status is tested with: its times are made up, and fit each other only so far. */
static void test_a_small_run(void **state)
{
    (void)state;
    struct samples s;
    struct tm_cost cost;
    struct tm_error e = {0};
    struct tm_measure *m = measure_new();
    samples_init(&s);
    samples_small_run(&s, true);
    feed(m, &s);
    assert_row(tm_measure__cost(m, &cost, &e) == 0, "%s", e.text);
    near("step of 2x2", cost.steps[0].step_ms / SPEED, 100, 0.3);
    near("step of 1x2", cost.steps[1].step_ms / SPEED, 200, 0.3);
    assert_true(cost.measured.reform_ms >= 0 && cost.measured.link_bit_s > 0);
    tm_measure__destroy(m);
    samples_deinit(&s);
}

static void test_refusals(void **state)
{
    (void)state;
    struct tm_cost cost;
    struct tm_error e = {0};
    struct tm_measure *m = measure_new();
    assert_int_equal(tm_measure__cost(m, &cost, &e), -TM_ENONE);
    assert_non_null(strstr(e.text, "no generation"));
    struct samples s;
    samples_init(&s);
    static const uint64_t ids[] = {1, 2};
    (void)add_instance(&s, 1, 0, 0);
    (void)add_start(&s, 1, 0, 1, 2, ids, 2);
    for (uint64_t step = 1; step < 5; step++) {
        s.at_ms += 1000;
        add_progress(&s, step, NAN, 1000);
    }
    feed(m, &s);
    assert_int_equal(tm_measure__cost(m, &cost, &e), -TM_ENONE);
    assert_non_null(strstr(e.text, "never changed"));
    tm_measure__destroy(m);
    samples_deinit(&s);
}

/* From a record in a file to the file that `--cost measured` reads. */
static void test_files(void **state)
{
    (void)state;
    char path[] = "/tmp/tidemill-measure-XXXXXX";
    struct samples s;
    struct tm_record *record = NULL;
    struct tm_cost cost, again;
    struct tm_error e = {0};
    struct tm_text packed;
    int handle = mkstemp(path);
    assert_true(handle >= 0);
    (void)close(handle);
    samples_init(&s);
    make_run(&s);
    assert_row(tm_record_open(path, &record, &e) == 0, "%s", e.text);
    tm_text_init(&packed, 1 << 20);
    for (size_t i = 0; i < s.count; i++) {
        packed.length = 0;
        tm_record_event_pack(s.events[i], &packed);
        assert_int_equal(record->append(record, packed.data, packed.length, false, NULL, &e), 0);
    }
    tm_text_deinit(&packed);
    tm_record_close(record);
    struct tm_measure_options options = {.speed = SPEED, .notice_wall_s = NOTICE_S, .layer_bytes = layer_bytes};
    options.rules = (struct tm_layout_rules){.stages_min = 1, .stages_max = 4, .pipelines_min = 1};
    assert_row(tm_measure_record(path, &options, &cost, &e) == 0, "%s", e.text);

    struct tm_env *env = tm_env_virtual_create(1);
    assert_int_not_equal(tm_measure_save(env, "/state/a", "m", &cost, &e), 0);           /* nothing tells a home ... */
    assert_int_equal(tm_cost_load(env, "/state/a/measured.tmcost", "m", &again, &e), 0); /* ... its own is there */
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/data"), 0);
    assert_row(tm_measure_save(env, "/state/a", "m", &cost, &e) == 0, "%s", e.text);
    assert_row(tm_cost_load(env, "measured", "m", &again, &e) == 0, "%s", e.text);
    near("read again", again.measured.begin_s, cost.measured.begin_s, 1e-5);
    TM_FAIL_EACH_ALLOC({ rc = tm_measure_save(env, "/state/a", "m", &cost, NULL); });
    tm_env_virtual_destroy(env);
    samples_deinit(&s);
    (void)unlink(path);
}

static int take_all(const struct samples *s)
{
    struct tm_cost cost;
    struct tm_measure *m = measure_new();
    int rc = m == NULL ? -TM_ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < s->count; i++)
        rc = tm_measure__take(m, s->events[i], NULL);
    if (rc == 0) rc = tm_measure__cost(m, &cost, NULL);
    tm_measure__destroy(m);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    struct samples s;
    samples_init(&s);
    make_run(&s);
    TM_FAIL_EACH_ALLOC({ rc = take_all(&s); });
    samples_deinit(&s);
}

TM_TEST_MAIN(TM_TEST(test_known_costs_come_back), TM_TEST(test_whatever_is_missing), TM_TEST(test_a_small_run),
             TM_TEST(test_refusals), TM_TEST(test_files), TM_TEST(test_without_memory))
