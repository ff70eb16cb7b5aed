/* Loggers: what a file lacks is added, once, whatever its end looks like. */
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "run/event_file.h"
#include "run/step_log.h"
#include "run/test/record_samples.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 6 };
#define EVENTS "/job/tb/events.out.tfevents.1700000000.tidemill.000000000000002a"
#define LINES  "/state/metrics.jsonl"

static const struct tm_log_target target = {.tensorboard = "tb"};

static void add_steps(struct samples *s, uint64_t first, uint64_t last)
{
    SAMPLE(s, body, Tmw__StepsEvent, steps, STEPS, tmw__steps_event__init);
    body->steps = samples_alloc(s, (size_t)(last - first + 1) * sizeof(Tmw__StepLoss *));
    for (uint64_t step = first; step <= last; step++) {
        Tmw__StepLoss *one = samples_alloc(s, sizeof *one);
        tmw__step_loss__init(one);
        one->step = step;
        one->unknown = step == 2;
        one->loss = step == 2 ? 0 : 1.0 / (double)step;
        body->steps[body->n_steps++] = one;
    }
}

static void fill(struct samples *s)
{
    samples_init(s);
    add_progress(s, 1, 1.0, 250);
    add_steps(s, 1, 3);
    s->at_ms += 1000;
    add_steps(s, 4, STEPS);
}

static int log_all(struct tm_env *env, const struct samples *s, size_t count)
{
    struct tm_log_target copy = target;
    struct tm_maps targets = {.items = &copy, .count = 1};
    struct tm_step_log *log = tm_step_log_create(env, "/state", &targets, "/job", 42);
    int rc = log == NULL ? -(int)TM_ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = tm_step_log__take(log, i + 1, s->events[i], NULL);
    if (rc == 0) rc = tm_step_log__write(log, NULL);
    tm_step_log_destroy(log);
    return rc;
}

static size_t size_of(struct tm_env *env, const char *path)
{
    size_t got = 0;
    int64_t size = 0;
    return env->file_read_at(env, path, 0, NULL, 0, &got, &size, NULL) == 0 ? (size_t)size : 0;
}

static void read_all(struct tm_env *env, const char *path, struct tm_text *out)
{
    tm_text_clear(out);
    assert_int_equal(env->file_read(env, path, out, NULL), 0);
}

/* Every length that a killed writer may leave ends as the same file. */
static void test_torn(void **state)
{
    (void)state;
    static const char *const paths[] = {LINES, EVENTS};
    struct tm_env *env = tm_env_virtual_create(3);
    struct samples s;
    struct tm_text whole[2];
    struct tm_text now;
    fill(&s);
    tm_text_init(&now, 1 << 20);
    assert_int_equal(log_all(env, &s, s.count), 0);
    for (size_t f = 0; f < 2; f++) {
        tm_text_init(&whole[f], 1 << 20);
        read_all(env, paths[f], &whole[f]);
    }
    for (size_t f = 0; f < 2; f++)
        for (size_t kept = 0; kept <= whole[f].length; kept++) {
            assert_int_equal(env->file_extend(env, paths[f], (int64_t)kept, "", 0, NULL), 0);
            assert_int_equal(log_all(env, &s, s.count), 0);
            read_all(env, paths[f], &now);
            assert_row(now.length == whole[f].length && memcmp(now.data, whole[f].data, now.length) == 0,
                       "%s, cut after %zu bytes", paths[f], kept);
        }
    struct tm_event_scan scan = {.step = 0};
    tm_event_file__scan(whole[1].data, whole[1].length, &scan);
    assert_true(scan.used == whole[1].length && !scan.damaged && scan.step == STEPS && scan.records == STEPS + 1);
    whole[1].data[60] ^= 1;
    scan = (struct tm_event_scan){.step = 0};
    tm_event_file__scan(whole[1].data, whole[1].length, &scan);
    assert_true(scan.damaged && scan.records < STEPS + 1);
    assert_non_null(strstr(tm_text_string(&whole[0]), "{\"step\": 2, \"utc_ms\": 1699999999750, \"loss\": null, "));
    for (size_t f = 0; f < 2; f++)
        tm_text_deinit(&whole[f]);
    tm_text_deinit(&now);
    samples_deinit(&s);
    tm_env_virtual_destroy(env);
}

/* Half a run, then all of it: a second writer adds the rest. */
static void test_goes_on(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(3);
    struct samples s;
    fill(&s);
    assert_int_equal(log_all(env, &s, 1), 0);
    assert_int_equal(size_of(env, LINES), 0); /* no step yet */
    assert_int_equal(log_all(env, &s, 2), 0);
    size_t half = size_of(env, EVENTS);
    assert_true(half > 0);
    assert_int_equal(log_all(env, &s, s.count), 0);
    size_t all = size_of(env, EVENTS);
    assert_true(all > half);
    assert_int_equal(log_all(env, &s, s.count), 0);
    assert_int_equal(size_of(env, EVENTS), all);
    samples_deinit(&s);
    tm_env_virtual_destroy(env);
}

static void test_memory(void **state)
{
    (void)state;
    struct samples s;
    fill(&s);
    TM_FAIL_EACH_ALLOC({
        struct tm_env *env = tm_env_virtual_create(3);
        rc = env == NULL ? -(int)TM_ENOMEM : log_all(env, &s, s.count);
        tm_env_virtual_destroy(env);
    });
    samples_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torn),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
