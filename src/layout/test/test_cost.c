/* Cost files: every key, every refusal, where they are looked for, and the formulas on their figures. */
#include "layout/cost.h"

#include "base/env_virtual.h"
#include "layout/test/layout_helpers.h"

#define HEAD     "tidemill-cost: 1\n"
#define PAPER    HEAD "kind: paper\ntransfer_us: {4: 100, 1024: 200}\n"
#define MEASURED HEAD "kind: measured\nlink: 10Gbit/s\n"

static int parse(const char *text, const char *model, struct tm_cost *out, struct tm_error *e)
{
    size_t length = strlen(text);
    char *copy = malloc(length > 0 ? length : 1); /* exactly as long: the address sanitizer sees bytes read behind it */
    if (copy == NULL) return -(int)TM_ENOMEM;
    memcpy(copy, text, length);
    int rc = tm_cost_parse("c.tmcost", copy, length, model, out, e);
    free(copy);
    return rc;
}

/* ---- every key ---- */

static void test_paper_keys(void **state)
{
    (void)state;
    struct tm_cost cost = cost_from(HEAD "kind: paper\nsource: by hand\nrollback_ms: 1.5\nstart_s: 2\n"
                                         "copy_interval_s: 3\n"
                                         "transfer_us: {4: 100, 1024: 200.5, 1048576: 9e3}\n"
                                         "models:\n"
                                         "  other: {stages_min: 7}\n"
                                         "  mine:\n"
                                         "    stages_min: 2\n    stages_max: 9\n    pipelines_min: 3\n"
                                         "    stages_skipped: [4, 6]\n    process_ms: 10\n    rendezvous_ms: 11\n"
                                         "    rendezvous_extra_ms: 12\n    build_base_ms: 13\n"
                                         "    build_per_layer_ms: 14\n    build_ms: {2: 15, 9: 16}\n"
                                         "    group_add: {base_ms: 17, per_pipeline_ms: 18, per_stage_ms: 19,\n"
                                         "      per_instance_ms: 20, pipelines_1_ms: 21, pipelines_6_ms: 22,\n"
                                         "      pipelines_12_ms: 23}\n"
                                         "    group_remove: {base_ms: 24, per_pipeline_ms: 25, per_stage_ms: 26,\n"
                                         "      per_instance_ms: 27, pipelines_1_ms: 28, pipelines_6_ms: 29,\n"
                                         "      pipelines_12_ms: 30}\n",
                                    "mine");
    const struct {
        const char *key;
        double got, want;
    } rows[] = {
        {"kind", cost.kind, TM_COST_PAPER},
        {"rollback_ms", cost.paper.rollback_ms, 1.5},
        {"start_s", cost.start_s, 2},
        {"copy_interval_s", cost.copy_interval_s, 3},
        {"points", cost.paper.point_count, 3},
        {"bytes", cost.paper.point_bytes[2], 1048576},
        {"us", cost.paper.point_us[1], 200.5},
        {"stages_min", cost.rules.stages_min, 2},
        {"stages_max", cost.rules.stages_max, 9},
        {"pipelines_min", cost.rules.pipelines_min, 3},
        {"skipped 3", cost.rules.skipped[3], 0},
        {"skipped 4", cost.rules.skipped[4], 1},
        {"skipped 6", cost.rules.skipped[6], 1},
        {"process_ms", cost.paper.process_ms, 10},
        {"rendezvous_ms", cost.paper.rendezvous_ms, 11},
        {"rendezvous_extra_ms", cost.paper.rendezvous_extra_ms, 12},
        {"build_base_ms", cost.paper.build_base_ms, 13},
        {"build_per_layer_ms", cost.paper.build_per_layer_ms, 14},
        {"build_ms 2", cost.paper.build_ms[2], 15},
        {"build_ms 9", cost.paper.build_ms[9], 16},
        {"build_ms 3", cost.paper.build_ms[3], 0},
        {"add base_ms", cost.paper.group_add.base_ms, 17},
        {"add per_pipeline_ms", cost.paper.group_add.per_pipeline_ms, 18},
        {"add per_stage_ms", cost.paper.group_add.per_stage_ms, 19},
        {"add per_instance_ms", cost.paper.group_add.per_instance_ms, 20},
        {"add pipelines_1_ms", cost.paper.group_add.pipelines_1_ms, 21},
        {"add pipelines_6_ms", cost.paper.group_add.pipelines_6_ms, 22},
        {"add pipelines_12_ms", cost.paper.group_add.pipelines_12_ms, 23},
        {"remove base_ms", cost.paper.group_remove.base_ms, 24},
        {"remove pipelines_12_ms", cost.paper.group_remove.pipelines_12_ms, 30},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(rows[i].got == rows[i].want, "%s: %g, want %g", rows[i].key, rows[i].got, rows[i].want);
    assert_string_equal(cost.source, "by hand");
}

static void test_measured_keys(void **state)
{
    (void)state;
    struct tm_cost cost =
        cost_from(HEAD "kind: measured\nreform_ms: 1\nreform_per_instance_ms: 2\nlink: 10Gbit/s\n"
                       "link_latency_ms: 3\nstore: 2Gbit/s\ndetect_ms: 4\nspeed: 60\n"
                       "begin_s: 5\njoin_s: 6\nleave_s: 7\ndrain_s: 11\nstop_s: 10\nstart_s: 8\ncopy_interval_s: 9\n"
                       "models: {mine: {step_ms: {4x8: 50, 1x30: 60}}}\n",
                  "mine");
    const struct {
        const char *key;
        double got, want;
    } rows[] = {
        {"kind", cost.kind, TM_COST_MEASURED},
        {"reform_ms", cost.measured.reform_ms, 60},
        {"reform_per_instance_ms", cost.measured.reform_per_instance_ms, 120},
        {"link", cost.measured.link_bit_s, 1e10 / 60},
        {"link_latency_ms", cost.measured.link_latency_ms, 180},
        {"store", cost.measured.store_bit_s, 2e9 / 60},
        {"detect_ms", cost.measured.detect_ms, 240},
        {"begin_s", cost.measured.begin_s, 300},
        {"join_s", cost.measured.join_s, 360},
        {"leaves", cost.measured.leaves, 1},
        {"leave_s", cost.measured.leave_s, 420},
        {"drain_s", cost.measured.drain_s, 660},
        {"stop_s", cost.measured.stop_s, 600},
        {"start_s", cost.start_s, 8},
        {"copy_interval_s", cost.copy_interval_s, 9},
        {"speed", cost.measured.speed, 60},
        {"step times", cost.step_count, 2},
        {"pipelines of a step time", cost.steps[0].pipelines, 4},
        {"stages of a step time", cost.steps[1].stages, 30},
        {"step time", cost.steps[1].step_ms, 3600},
        {"leaves by default", cost_from(MEASURED, "m").measured.leaves, 0},
        {"paced", cost.measured.paced, 0},
        {"start_s by default", cost_from(MEASURED, "m").start_s, 120},
        {"copy_interval_s by default", cost_from(MEASURED, "m").copy_interval_s, 600},
        {"stages_min by default", cost.rules.stages_min, 1},
        {"stages_max by default", cost.rules.stages_max, TM_LAYOUT_STAGES_MAX},
        {"pipelines_min by default", cost.rules.pipelines_min, 1},
        {"store by default", cost_from(MEASURED, "m").measured.store_bit_s, 1e10},
        {"speed by default", cost_from(MEASURED, "m").measured.speed, 1},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(rows[i].got == rows[i].want, "%s: %g, want %g", rows[i].key, rows[i].got, rows[i].want);
    assert_string_equal(cost.source, "test"); /* the file, where it does not say */
}

/* What is printed reads back to the same; at another speed only what happened on the wall changes. */
static void test_printing(void **state)
{
    (void)state;
    static const char name[] = "gpt:layers=4,hidden=8";
    struct tm_cost cost = cost_from(HEAD "kind: measured\nsource: \"by \\\"hand\\\"\"\nreform_ms: 1.5\n"
                                         "reform_per_instance_ms: 2\nlink: 10Gbit/s\nlink_latency_ms: 3\n"
                                         "store: 2Gbit/s\ndetect_ms: 4\nspeed: 60\nbegin_s: 5\njoin_s: 6\n"
                                         "leave_s: 7\npaced: true\nmodels: {default: {stages_min: 2, stages_max: 9, "
                                         "stages_skipped: [3, 5], step_ms: {4x8: 50.25, 1x3: 60}}}\n",
                                    "m"),
                   again;
    struct tm_text text, twice;
    struct tm_error e = {0};
    tm_text_init(&text, 1 << 16);
    tm_text_init(&twice, 1 << 16);
    tm_cost_print(&cost, name, &text);
    assert_row(parse(tm_text_string(&text), name, &again, &e) == 0, "%s: %s", e.text, tm_text_string(&text));
    tm_cost_print(&again, name, &twice);
    assert_string_equal(tm_text_string(&twice), tm_text_string(&text));
    assert_true(again.measured.reform_ms == 90 && again.measured.leaves && again.measured.leave_s == 420);
    assert_true(again.steps[0].step_ms == 50.25 * 60 && again.step_count == 2);
    assert_true(again.rules.stages_min == 2 && again.rules.skipped[5] && !again.rules.skipped[4]);
    tm_cost_change_speed(&again, 1);
    assert_true(again.measured.reform_ms == 1.5 && again.measured.link_bit_s == 1e10 && again.measured.speed == 1);
    assert_true(again.steps[0].step_ms == 50.25 * 60 && again.measured.paced);
    again.measured.paced = false;
    tm_cost_change_speed(&again, 2);
    assert_true(again.steps[0].step_ms == 50.25 * 120 && again.measured.reform_ms == 3);
    struct tm_cost paper = cost_from(PAPER, "m"), same = paper;
    tm_cost_change_speed(&paper, 60);
    assert_memory_equal(&paper, &same, sizeof same);
    tm_text_deinit(&text);
    tm_text_deinit(&twice);
}

static void test_which_model(void **state)
{
    (void)state;
    static const char text[] = PAPER "models: {a: {stages_min: 2}, default: {stages_min: 3}}\n";
    assert_int_equal(cost_from(text, "a").rules.stages_min, 2);
    assert_int_equal(cost_from(text, "b").rules.stages_min, 3);
    assert_int_equal(cost_from(PAPER "models: {a: {stages_min: 2}}\n", "b").rules.stages_min, 1);
    assert_int_equal(cost_from(PAPER, "b").rules.stages_min, 1);
    assert_int_equal(cost_from(MEASURED "models: {a: {stages_max: 5}}\n", "a").rules.stages_max, 5);
}

/* ---- refusals ---- */

#define MODEL(text) PAPER "models: {m: {" text "}}\n"

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"", "c.tmcost"},
        {"[1, 2]", "tidemill-cost: 1"},
        {"word", "tidemill-cost: 1"},
        {"kind: paper\n", "\"tidemill-cost\" is missing"},
        {HEAD, "\"kind\" is missing"},
        {"tidemill-cost: 2\nkind: paper\n", "c.tmcost:1"},
        {HEAD "kind: guess\n", "c.tmcost:2"},
        {HEAD "kind: [paper]\n", "c.tmcost:2"},
        {HEAD "kind: paper\n", "transfer_us: expected 2 to 64 lines"},
        {HEAD "kind: paper\ntransfer_us: {4: 1}\n", "c.tmcost:3"},
        {HEAD "kind: paper\ntransfer_us: [4, 1]\n", "expected 2 to 64 lines"},
        {HEAD "kind: paper\ntransfer_us: 4\n", "expected 2 to 64 lines"},
        {HEAD "kind: paper\ntransfer_us: {4: 1, four: 2}\n", "got \"four\""},
        {HEAD "kind: paper\ntransfer_us: {4: 1, 8: two}\n", "a number and its figure"},
        {HEAD "kind: paper\ntransfer_us: {4: 1, 8: -2}\n", "a number and its figure"},
        {HEAD "kind: paper\ntransfer_us: {4: 1, 8: 1e13}\n", "a number and its figure"},
        {HEAD "kind: paper\ntransfer_us: {4: 1, 8: inf}\n", "a number and its figure"},
        {HEAD "kind: paper\ntransfer_us: {4: 1, 8: nan}\n", "a number and its figure"},
        {HEAD "kind: paper\ntransfer_us: {4: 1, nan: 1}\n", "a number and its figure"},
        {HEAD "kind: paper\ntransfer_us: {-4: 1, 8: 1}\n", "a number and its figure"},
        {HEAD "kind: paper\ntransfer_us: {4: 1, 8: [2]}\n", "a number and its figure"},
        {HEAD "kind: paper\ntransfer_us: {4: 1, 4.0: 2}\n", "must grow"},
        {HEAD "kind: paper\ntransfer_us: {8: 1, 4: 2}\n", "must grow"},
        {HEAD "kind: measured\n", "link: a measured cost file gives"},
        {HEAD "kind: measured\nlink: 0bit/s\n", "link"},
        {HEAD "kind: measured\nlink: fast\n", "25Gbit/s"},
        {HEAD "kind: measured\nlink: -1Gbit/s\n", "c.tmcost:3"},
        {MEASURED "store: 2\n  x: 3\n", "c.tmcost"},
        {MEASURED "reform_ms: -1\n", "reform_ms: expected"},
        {MEASURED "reform_ms: inf\n", "reform_ms: expected"},
        {MEASURED "reform_ms: 1e10\n", "reform_ms: expected"},
        {MEASURED "reform_ms: [1]\n", "reform_ms: expected"},
        {MEASURED "speed: 0\n", "speed: expected"},
        {MEASURED "leave_s: -1\n", "leave_s: expected"},
        {MEASURED "models: {m: {step_ms: 3}}\n", "step_ms: expected up to 256 lines"},
        {MEASURED "models: {m: {step_ms: {4: 3}}}\n", "got \"4\""},
        {MEASURED "models: {m: {step_ms: {0x4: 3}}}\n", "got \"0x4\""},
        {MEASURED "models: {m: {step_ms: {4x65: 3}}}\n", "got \"4x65\""},
        {MEASURED "models: {m: {step_ms: {4x-1: 3}}}\n", "got \"4x-1\""},
        {MEASURED "models: {m: {step_ms: {4x4: 0}}}\n", "milliseconds above 0"},
        {MEASURED "models: {m: {step_ms: {4x4: nan}}}\n", "milliseconds above 0"},
        {MEASURED "models: {m: {step_ms: {4x4: [3]}}}\n", "c.tmcost:4"},
        {MEASURED "reform: 1\n", "did you mean \"reform_ms\""},
        {MEASURED "reform_ms: 1\nreform_ms: 2\n", "c.tmcost:5"},
        {PAPER "models: 3\n", "names of models"},
        {PAPER "models: [m]\n", "names of models"},
        {PAPER "models: {m: 3}\n", "c.tmcost:4"},
        {PAPER "models: {m: [1]}\n", "c.tmcost:4"},
        {MODEL("stages_min: 0"), "stages_min"},
        {MODEL("stages_min: 2.5"), "stages_min"},
        {MODEL("stages_max: 65"), "stages_max"},
        {MODEL("pipelines_min: 0"), "pipelines_min"},
        {MODEL("stages_min: 4, stages_max: 3"), "c.tmcost:4"},
        {MODEL("stages_min: 4, stages_max: 3"), "stages_min is greater than stages_max"},
        {MODEL("stages_skipped: [0]"), "stages_skipped"},
        {MODEL("stages_skipped: [65]"), "c.tmcost:4"},
        {MODEL("stages_skipped: [2.5]"), "got \"2.5\""},
        {MODEL("stages_skipped: [two]"), "got \"two\""},
        {MODEL("stages_skipped: {2: 3}"), "stages_skipped"},
        {MODEL("process_ms: -1"), "process_ms"},
        {MODEL("group_add: 3"), "group_add: expected map"},
        {MODEL("group_add: {base: 3}"), "did you mean \"base_ms\""},
        {MODEL("group_remove: {base_ms: x}"), "group_remove.base_ms"},
        {MODEL("build_ms: {0: 3}"), "1 to 64"},
        {MODEL("build_ms: {65: 3}"), "1 to 64"},
        {MODEL("build_ms: {2.5: 3}"), "1 to 64"},
        {MODEL("build_ms: {2: x}"), "a number and its figure"},
        {MODEL("build_ms: [2, 3]"), "build_ms"},
        {MODEL("build_ms: 3"), "build_ms"},
        {MODEL("stage_min: 3"), "did you mean \"stages_min\""},
        {PAPER "models: {m: &a {}, n: *a}\n", "c.tmcost"},
        {HEAD "kind: paper\n\ttransfer_us: {4: 1}\n", "c.tmcost"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_cost cost;
        struct tm_error e = {0};
        memset(&cost, 7, sizeof cost);
        int rc = parse(rows[i].text, "m", &cost, &e);
        assert_row(rc == -TM_EINPUT, "\"%s\": %d, %s", rows[i].text, rc, e.text);
        assert_row(strstr(e.text, rows[i].words) != NULL, "\"%s\": \"%s\" does not hold \"%s\"", rows[i].text, e.text,
                   rows[i].words);
        assert_row(strstr(e.text, "c.tmcost") != NULL, "\"%s\": \"%s\" does not name the file", rows[i].text, e.text);
        assert_row(cost.rules.stages_min == 0x07070707, "\"%s\": filled although it failed", rows[i].text);
    }
}

static void test_too_many_points(void **state)
{
    (void)state;
    for (int points = 63; points <= 65; points++) {
        char text[2048] = HEAD "kind: paper\ntransfer_us:\n";
        size_t used = strlen(text);
        for (int i = 1; i <= points; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "  %d: %d\n", i, i);
        struct tm_cost cost;
        struct tm_error e = {0};
        assert_row((parse(text, "m", &cost, &e) == 0) == (points <= TM_COST_POINTS_MAX), "%d points: %s", points,
                   e.text);
    }
}

/* ---- where they are ---- */

static void test_loading(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_cost cost;
    struct tm_error e = {0};
    assert_int_equal(tm_cost_load(env, "paper", "parcae/gpt-1.5b", &cost, &e), 0);
    assert_int_equal(cost.rules.stages_min, 6);
    assert_true(strstr(cost.source, "Parcae") != NULL);

    assert_int_equal(tm_cost_load(env, "local", "m", &cost, &e), 0);
    assert_true(cost.kind == TM_COST_MEASURED && cost.measured.leaves && !cost.measured.paced);
    double link_bit_s = cost.measured.link_bit_s;
    assert_int_equal(tm_cost_load(env, "paced", "m", &cost, &e), 0);
    assert_true(cost.measured.paced && cost.measured.link_bit_s == 4096 * link_bit_s);

    assert_int_equal(tm_cost_load(env, "measured", "m", &cost, &e), -TM_ENOTFOUND); /* nothing tells a home */
    assert_error_has(e, "HOME");
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/data"), 0);
    assert_int_equal(tm_cost_load(env, "measured", "m", &cost, &e), -TM_ENOTFOUND);
    assert_error_has(e, "no run on this machine has measured its migration costs yet;");
    assert_int_equal(env->file_write(env, "/data/measured.tmcost", MEASURED, strlen(MEASURED), &e), 0);
    assert_int_equal(tm_cost_load(env, "measured", "m", &cost, &e), 0);
    assert_true(cost.kind == TM_COST_MEASURED && cost.measured.link_bit_s == 1e10);

    assert_int_equal(tm_cost_load(env, "/here/my.tmcost", "m", &cost, &e), -TM_ENOTFOUND);
    assert_error_has(e, "/here/my.tmcost");
    assert_int_equal(env->file_write(env, "/here/my.tmcost", PAPER, strlen(PAPER), &e), 0);
    assert_int_equal(tm_cost_load(env, "/here/my.tmcost", "m", &cost, &e), 0);
    assert_true(cost.kind == TM_COST_PAPER && cost.paper.point_count == 2);

    size_t size = TM_COST_BYTES_MAX + 10;
    char *large = tm_alloc(size);
    memset(large, '#', size);
    assert_int_equal(env->file_write(env, "/here/large", large, size, &e), 0);
    assert_int_equal(tm_cost_load(env, "/here/large", "m", &cost, &e), -TM_ELIMIT);
    assert_error_has(e, "/here/large");
    tm_free(large);
    tm_env_virtual_destroy(env);
}

/* The shipped figures against section 5 of the paper's description, model by model. */
static void test_shipped_figures(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        double add_4x8, remove_4x8, restart_add_2x8;
    } rows[] = {
        /* group: GPT 35 + (D + P + 1 + DP) g; vgg19 35 + DP g; others by D. restart: + process, build, rendezvous */
        {"parcae/gpt-1.5b", 35 + 45 * 500, 35 + 45 * 39.3, 35 + 27 * 500 + 240 + 2814.8154589913634 + 6600},
        {"parcae/bert", 1535, 1035, 1535 + 30 + 754 + 6600},
        {"parcae/resnet152", 1535, 1035, 1535 + 30 + 135 + 6600 + 3360.374},
        {"parcae/vgg19", 35 + 32 * 440, 35 + 32 * 340, 35 + 16 * 440 + 30 + 120 + 6600 + 2000},
    };
    struct tm_env *env = tm_env_virtual_create(1);
    struct test_job *job = tm_calloc(1, sizeof *job);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_error e = {0};
        assert_int_equal(tm_cost_load(env, "paper", rows[i].model, &job->cost, &e), 0);
        test_model(job, 50, true);
        assert_int_equal(tm_layouts_init(&job->layouts, &job->model, &job->cost.rules, 32, NULL, NULL, &e), 0);
        double add = tm_cost__group_ms(&job->cost.paper.group_add, 4, 8);
        double remove_ms = tm_cost__group_ms(&job->cost.paper.group_remove, 4, 8);
        double restart = tm_cost_restart_ms(&job->cost, &job->layouts, tm_layouts_find(&job->layouts, 2, 8), true);
        assert_row(close_to(add, rows[i].add_4x8, 1e-9), "%s: add %g", rows[i].model, add);
        assert_row(close_to(remove_ms, rows[i].remove_4x8, 1e-9), "%s: remove %g", rows[i].model, remove_ms);
        assert_row(close_to(restart, rows[i].restart_add_2x8, 1e-9), "%s: restart %.6f", rows[i].model, restart);
        tm_layouts_deinit(&job->layouts);
    }
    tm_free(job);
    tm_env_virtual_destroy(env);
}

/* ---- formulas ---- */

static void test_transfers(void **state)
{
    (void)state;
    struct tm_paper_cost paper = {.point_bytes = {10, 20, 100}, .point_us = {1000, 2000, 4000}, .point_count = 3};
    static const double rows[][2] = {{0, 1}, {5, 1}, {10, 1}, {15, 1.5}, {20, 2}, {60, 3}, {100, 4}, {250, 10}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double got = tm_cost__transfer_ms(&paper, rows[i][0]);
        assert_row(close_to(got, rows[i][1], 1e-12), "%g bytes: %g ms, want %g", rows[i][0], got, rows[i][1]);
    }
    assert_true(tm_cost__transfer_ms(&(struct tm_paper_cost){.point_count = 0}, 5) == 0);
}

static void test_groups_step_with_pipelines(void **state)
{
    (void)state;
    struct tm_group_cost group = {
        .base_ms = 35, .pipelines_1_ms = 1000, .pipelines_6_ms = 1500, .pipelines_12_ms = 2000};
    static const int rows[][2] = {{1, 1035}, {5, 1035}, {6, 1535}, {11, 1535}, {12, 2035}, {40, 2035}};
    for (size_t i = 0; i < TM_COUNT(rows); i++)
        assert_row(tm_cost__group_ms(&group, rows[i][0], 3) == rows[i][1], "%d pipelines", rows[i][0]);
}

/* Where the table has no row: a base, and so much for each layer of the largest stage. */
static void test_building_without_a_row(void **state)
{
    (void)state;
    struct test_job *job = job_make(9, true,
                                    PAPER "models: {test: {stages_max: 4, build_ms: {2: 7}, build_base_ms: 100, "
                                          "build_per_layer_ms: 10}}\n",
                                    4, test_speed);
    static const int rows[][2] = {{1, 190}, {2, 7}, {3, 130}, {4, 130}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        double got =
            tm_cost_restart_ms(&job->cost, &job->layouts, tm_layouts_find(&job->layouts, 1, rows[i][0]), false);
        assert_row(got == rows[i][1], "%d stages: %g, want %d", rows[i][0], got, rows[i][1]);
    }
    assert_true(tm_cost_restart_ms(&job->cost, &job->layouts, TM_LAYOUT_PAUSE, true) == 0);
    job_drop(job);
}

static void test_without_memory(void **state)
{
    (void)state;
    static const char text[] = MODEL("stages_skipped: [2, 3], build_ms: {4: 5}, group_add: {base_ms: 3}");
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_error e;
    assert_int_equal(env->file_write(env, "/data/measured.tmcost", MEASURED, strlen(MEASURED), &e), 0);
    assert_int_equal(tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/data"), 0);
    struct tm_cost cost;
    TM_FAIL_EACH_ALLOC({ rc = tm_cost_parse("c", text, strlen(text), "m", &cost, &e); });
    TM_FAIL_EACH_ALLOC({ rc = tm_cost_load(env, "measured", "m", &cost, &e); });
    TM_FAIL_EACH_ALLOC({ rc = tm_cost_load(env, "/data/measured.tmcost", "m", &cost, NULL); });
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_paper_keys), TM_TEST(test_measured_keys), TM_TEST(test_printing), TM_TEST(test_which_model),
             TM_TEST(test_refusals), TM_TEST(test_too_many_points), TM_TEST(test_loading),
             TM_TEST(test_shipped_figures), TM_TEST(test_transfers), TM_TEST(test_groups_step_with_pipelines),
             TM_TEST(test_building_without_a_row), TM_TEST(test_without_memory))
