/* Layouts and costs read back from the record are the same to the last bit, and give the same migrations. */
#include "layout/recorded.h"

#include "layout/test/layout_helpers.h"

#define MEASURED                                                                                                       \
    "tidemill-cost: 1\nkind: measured\nlink: 10Gbit/s\nreform_ms: 0.1\njoin_s: 3.3\nspeed: 60\nstart_s: 7\n"           \
    "models: {m: {stages_max: 5, stages_skipped: [3], pipelines_min: 2}}\n"
#define PAPER                                                                                                          \
    "tidemill-cost: 1\nkind: paper\ntransfer_us: {4: 100, 1024: 200.7}\nrollback_ms: 1.5\n"                            \
    "models: {m: {stages_max: 4, group_add: {base_ms: 0.3}}}\n"

static void make(struct test_job *job, const char *cost)
{
    struct tm_error e;
    test_model(job, 9, false);
    job->cost = cost_from(cost, "m");
    assert_int_equal(tm_layouts_init(&job->layouts, &job->model, &job->cost.rules, 12, test_speed, NULL, &e), 0);
}

static void assert_same_layouts(const struct tm_layouts *a, const struct tm_layouts *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->instances_max, b->instances_max);
    assert_int_equal(a->stages_min, b->stages_min);
    for (size_t i = 0; i < a->count; i++) { /* not as memory: there is padding */
        assert_int_equal(a->list[i].pipelines, b->list[i].pipelines);
        assert_int_equal(a->list[i].stages, b->list[i].stages);
        assert_int_equal(a->list[i].instances, b->list[i].instances);
        assert_true(a->list[i].samples_per_s == b->list[i].samples_per_s && a->list[i].step_s == b->list[i].step_s);
    }
    assert_memory_equal(a->first_of, b->first_of, sizeof a->first_of);
    assert_memory_equal(a->best, b->best, ((size_t)a->instances_max + 1) * sizeof *a->best);
    assert_memory_equal(a->fastest, b->fastest, a->count * sizeof *a->fastest);
    assert_memory_equal(a->cuts, b->cuts, ((size_t)a->stages_max + 1) * sizeof *a->cuts);
    assert_memory_equal(a->layer_params_before, b->layer_params_before, sizeof a->layer_params_before);
    assert_true(a->bytes_per_param == b->bytes_per_param);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const char *const costs[] = {MEASURED, PAPER};
    static struct test_job job;
    for (size_t i = 0; i < TM_COUNT(costs); i++) {
        static struct tm_layouts layouts;
        static struct tm_cost cost;
        struct tm_text text;
        struct tm_error e;
        make(&job, costs[i]);
        tm_text_init(&text, 1 << 20);
        tm_layouts_record(&job.layouts, &text);
        assert_int_equal(tm_text_status(&text, &e), 0);
        assert_row(tm_layouts_recall(text.data, text.length, &layouts, &e) == 0, "%s", e.text);
        assert_same_layouts(&job.layouts, &layouts);
        tm_text_clear(&text);
        tm_cost_record(&job.cost, &text);
        assert_row(tm_cost_recall(text.data, text.length, &cost, &e) == 0, "%s", e.text);
        memcpy(cost.source, job.cost.source, sizeof cost.source);
        struct tm_migrations *first = NULL, *again = NULL;
        assert_int_equal(tm_migrations_create(&job.layouts, &job.cost, &first, &e), 0);
        assert_int_equal(tm_migrations_create(&layouts, &cost, &again, &e), 0);
        for (int from = 0; from < (int)layouts.count; from++) {
            const double *a = tm_migrations_row(first, 12, from, 2);
            const double *b = tm_migrations_row(again, 12, from, 2);
            assert_memory_equal(a, b, layouts.count * sizeof *a);
        }
        tm_migrations_destroy(first);
        tm_migrations_destroy(again);
        tm_layouts_deinit(&layouts);
        tm_layouts_deinit(&job.layouts);
        tm_text_deinit(&text);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "instances_max 5000\n",
        "instances_max 2\nstages_max 1\nlayer_count 3\n\nstages 1\ncount 1\nsamples_per_s 1\n",
        "instances_max 1\nstages_max 1\nlayer_count 3\n\nstages 1\ncount 1\nsamples_per_s nan\n",
        "instances_max 1\nstages_max 1\nlayer_count 3\n\nstages 1\ncount 1\n\nstages 1\ncount 1\n",
        "instances_max 1\n\n",
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        static struct tm_layouts layouts;
        struct tm_error e;
        assert_row(tm_layouts_recall(rows[i], strlen(rows[i]), &layouts, &e) == -(int)TM_EINPUT, "row %zu", i);
    }
}

static void test_memory(void **state)
{
    (void)state;
    static struct test_job job;
    static struct tm_layouts layouts;
    struct tm_text text;
    struct tm_error e;
    make(&job, PAPER);
    tm_text_init(&text, 1 << 20);
    tm_layouts_record(&job.layouts, &text);
    TM_FAIL_EACH_ALLOC({
        rc = tm_layouts_recall(text.data, text.length, &layouts, &e);
        if (rc == 0) tm_layouts_deinit(&layouts);
    });
    TM_FAIL_EACH_ALLOC({
        struct tm_text again;
        tm_text_init(&again, 1 << 20);
        tm_layouts_record(&job.layouts, &again);
        rc = tm_text_status(&again, &e);
        tm_text_deinit(&again);
    });
    tm_text_deinit(&text);
    tm_layouts_deinit(&job.layouts);
}

TM_TEST_MAIN(TM_TEST(test_round_trip), TM_TEST(test_refusals), TM_TEST(test_memory))
