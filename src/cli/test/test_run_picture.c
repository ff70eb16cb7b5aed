/* The picture of a run at any width, and the live view that redraws it or prints lines. */
#include "cli/live_view.h"
#include "cli/run_picture.h"

#include "base/env_virtual.h"
#include "base/log.h"
#include "base/test/harness.h"
#include "run/test/sample_tap.h"

#include <stdio.h>

static const struct tm_term plain = {.utf8 = true};

static void picture(const struct tm_run_status *status, const struct tm_term *term,
                    const struct tm_picture_options *options, struct tm_text *out)
{
    tm_text_init(out, 1 << 20);
    tm_run_picture(status, term, options, out);
    assert_int_equal(tm_text_status(out, NULL), 0);
}

static void test_a_picture(void **state)
{
    (void)state;
    struct sample_tap t;
    struct tm_text out;
    sample_tap_init(&t, 31); /* three has a notice, five is here */
    struct tm_picture_options options = {.events = 2, .note = "a note"};
    picture(sample_tap_status(&t.tap), &plain, &options, &out);
    assert_string_equal(
        tm_text_string(&out),
        "gpt-small  training  generation 2  9.8s real time, 9m 48s in the cloud\n"
        "a note\n"
        "step 60 of 100   60% ██████████████████████░░░░░░░░░░░░░░░░  4.24 steps/s  8.67k tokens/s  "
        "9.4s left\n"
        "loss 2.6000  █▇▅▄▃▂▂▁\n"
        "cost $0.0708, on-demand $1.56: 95% less  (spot $1.00/h, on-demand $3.00/h)\n"
        "1 pipeline of 2 stages, 1 spare; step 40 is durable\n"
        "layers      0-1     2-3\n"
        "pipeline 0  [1]     [3! 2s]\n"
        "spares      [4]\n"
        "joining     [5]\n"
        "instances   4 running, 1 with a notice, 4 wanted; 5 arrived, 0 preempted with notice, 1 without\n"
        "migrations  1: median 0.55s, longest 0.55s, 0.55s in total; 1 redone, 0 rolled back\n"
        "\n"
        "     9.8s  instance 3 has a notice: it will be preempted in 2 s\n"
        "     9.8s  worker 5 joined\n");
    tm_text_deinit(&out);
    sample_tap_deinit(&t);
}

static void test_a_loss_in_the_layout(void **state)
{
    (void)state;
    struct sample_tap t;
    struct tm_text out;
    sample_tap_init(&t, 21);
    struct tm_picture_options options = {.events = 0};
    picture(sample_tap_status(&t.tap), &plain, &options, &out);
    assert_non_null(strstr(tm_text_string(&out), "layers      0-1  2-3\n"
                                                 "pipeline 0  [1]  [2x]\n"
                                                 "pipeline 1  [3]  [4]\n"));
    tm_text_deinit(&out);
    struct tm_term ascii = {.utf8 = false};
    picture(sample_tap_status(&t.tap), &ascii, &options, &out);
    for (const char *at = tm_text_string(&out); *at != '\0'; at++)
        assert_row((unsigned char)*at < 0x80, "%s", at);
    tm_text_deinit(&out);
    sample_tap_deinit(&t);
}

/* Nothing is known yet; nothing breaks. */
static void test_an_empty_run(void **state)
{
    (void)state;
    struct tm_text out;
    struct tm_run_watch *watch = tm_run_watch_create();
    struct tm_picture_options options = {.events = 5};
    picture(tm_run_watch_status(watch), &plain, &options, &out);
    assert_string_equal(tm_text_string(&out), "a run  starting  0s real time\n"
                                              "step 0  0 steps/s\n"
                                              "instances   0 running; 0 arrived, 0 preempted with notice, 0 without\n");
    tm_text_deinit(&out);
    tm_run_watch_destroy(watch);
}

static size_t columns_without_colour(const char *line, size_t length)
{
    char bare[4096];
    size_t used = 0;
    for (size_t i = 0; i < length && used < sizeof bare - 1; i++) {
        if (line[i] == '\033') {
            while (i < length && line[i] != 'm')
                i++;
            continue;
        }
        bare[used++] = line[i];
    }
    bare[used] = '\0';
    return tm_term_columns(bare);
}

static void test_any_width_and_height(void **state)
{
    (void)state;
    static const size_t seen[] = {1, 10, 21, 31, 36, 46};
    struct samples big;
    samples_init(&big); /* 64 pipelines of 4 stages */
    uint64_t ids[256];
    for (uint64_t i = 0; i < 256; i++)
        ids[i] = i + 1;
    (void)add_start(&big, 1, 0, 64, 4, ids, 256);
    for (size_t i = 0; i <= TM_COUNT(seen); i++) {
        struct sample_tap t;
        sample_tap_init(&t, i < TM_COUNT(seen) ? seen[i] : 1);
        if (i == TM_COUNT(seen)) assert_int_equal(tm_run_watch_take(t.watch, 2, big.events[0], NULL), 0);
        const struct tm_run_status *status = tm_run_watch_status(t.watch);
        if (i < TM_COUNT(seen)) status = sample_tap_status(&t.tap);
        for (int width = 20; width <= 240; width++) {
            struct tm_term term = {.utf8 = width % 2 == 0, .color = width % 3 == 0, .width = width};
            struct tm_picture_options options = {.rows = (size_t)width / 4 + 14, .events = 50};
            struct tm_text out;
            size_t lines = 0;
            picture(status, &term, &options, &out);
            for (const char *at = tm_text_string(&out); *at != '\0'; lines++) {
                const char *end = strchr(at, '\n');
                assert_non_null(end);
                size_t columns = columns_without_colour(at, (size_t)(end - at));
                assert_row(columns <= (size_t)width, "width %d: %zu columns in %.*s", width, columns, (int)(end - at),
                           at);
                at = end + 1;
            }
            assert_row(width < 60 || lines <= options.rows, "width %d: %zu lines of %zu", width, lines, options.rows);
            tm_text_deinit(&out);
        }
        sample_tap_deinit(&t);
    }
    samples_deinit(&big);
}

/* ---- the live view ---- */

struct screen {
    struct sample_tap tap;
    struct tm_text seen;
    int rc; /* of the source, where it has nothing */
    int width;
};

static int next(void *context, struct tm_run_status *out, struct tm_error *e)
{
    struct screen *screen = context;
    struct tm_text text;
    struct tm_jsonout json;
    if (screen->rc != 0) return screen->rc;
    tm_text_init(&text, 1 << 20);
    tm_jsonout_init(&json, &text);
    tm_run_status_write(sample_tap_status(&screen->tap.tap), &json);
    int rc = tm_run_status_read("status", text.data, text.length, out, e);
    tm_text_deinit(&text);
    return rc;
}

static void keep(void *context, const char *text, size_t length)
{
    struct screen *screen = context;
    tm_text_append(&screen->seen, text, length);
}

static size_t rows_of(void *context)
{
    (void)context;
    return 30;
}

static int width_of(void *context)
{
    const struct screen *screen = context;
    return screen->width;
}

static struct tm_live_view *open_view(struct screen *screen, struct tm_env *env, bool is_terminal)
{
    *screen = (struct screen){.width = 100};
    sample_tap_init(&screen->tap, 14);
    tm_text_init(&screen->seen, 1 << 20);
    struct tm_live_view_options options = {.env = env,
                                           .term = {.is_terminal = is_terminal, .utf8 = true},
                                           .source = {.context = screen, .next = next},
                                           .write = keep,
                                           .write_context = screen,
                                           .rows = rows_of,
                                           .width = width_of};
    return tm_live_view_create(&options);
}

static void close_view(struct screen *screen, struct tm_live_view *view)
{
    tm_live_view_destroy(view);
    tm_text_deinit(&screen->seen);
    sample_tap_deinit(&screen->tap);
}

static size_t count_of(const char *text, const char *piece)
{
    size_t count = 0;
    for (const char *at = strstr(text, piece); at != NULL; at = strstr(at + 1, piece))
        count++;
    return count;
}

static void test_redrawn_in_place(void **state)
{
    (void)state;
    struct screen screen;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_live_view *view = open_view(&screen, env, true);
    screen.rc = -(int)TM_ENOTFOUND; /* no coordinator yet: nothing is drawn */
    tm_live_view_step(view);
    assert_int_equal(screen.seen.length, 0);
    assert_null(tm_live_view_status(view));
    screen.rc = 0;
    tm_env_virtual_advance(env, 300);
    tm_live_view_step(view);
    const char *first = tm_text_string(&screen.seen);
    size_t lines = count_of(first, "\n");
    assert_int_equal(count_of(first, "\033[K\n"), lines);
    assert_int_equal(count_of(first, "A\r"), 0);
    tm_live_view_step(view); /* too soon */
    assert_int_equal(count_of(tm_text_string(&screen.seen), "\n"), lines);
    tm_text_clear(&screen.seen);
    tm_env_virtual_advance(env, 300);
    tm_live_view_step(view);
    char up[32];
    (void)snprintf(up, sizeof up, "\033[%zuA\r", lines);
    assert_int_equal(count_of(tm_text_string(&screen.seen), up), 1);
    /* A line of the log goes above it, and the picture is whole again. */
    tm_text_clear(&screen.seen);
    tm_log(TM_LOG_WARN, "something");
    (void)snprintf(up, sizeof up, "\033[%zuA\r\033[J", lines);
    assert_int_equal(count_of(tm_text_string(&screen.seen), up), 1);
    assert_non_null(strstr(tm_text_string(&screen.seen), "\033[Jwarning: something\n\033[?2026hgpt-small"));
    /* Narrower: the old frame has wrapped, so the new one begins below it. */
    tm_text_clear(&screen.seen);
    screen.width = 60;
    tm_env_virtual_advance(env, 300);
    tm_live_view_step(view);
    assert_int_equal(count_of(tm_text_string(&screen.seen), "A\r"), 0);
    /* The coordinator is away for a while: that is said. */
    tm_text_clear(&screen.seen);
    screen.rc = -(int)TM_EPEER;
    tm_env_virtual_advance(env, 2000);
    tm_live_view_step(view);
    assert_non_null(strstr(tm_text_string(&screen.seen), "does not answer"));
    tm_text_clear(&screen.seen);
    tm_live_view_finish(view, NULL);
    assert_null(strstr(tm_text_string(&screen.seen), "does not answer"));
    close_view(&screen, view);
    tm_env_virtual_destroy(env);
}

static void test_lines(void **state)
{
    (void)state;
    struct screen screen;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_live_view *view = open_view(&screen, env, false);
    tm_live_view_step(view);
    assert_string_equal(tm_text_string(&screen.seen),
                        "     0.0s  wanted: 4 spot and 0 on-demand instances\n"
                        "     0.0s  worker 1 joined\n"
                        "     0.0s  worker 2 joined\n"
                        "     0.0s  worker 3 joined\n"
                        "     0.0s  worker 4 joined\n"
                        "     1.0s  generation 1 trains from step 0: 2 x 2\n"
                        "     2.0s  training: step 10 of 100, loss 4.6000, 10 steps/s, 2x2, 4 instances, cost $0.00\n");
    tm_text_clear(&screen.seen);
    tm_env_virtual_advance(env, 1000);
    tm_live_view_step(view); /* nothing new */
    assert_int_equal(screen.seen.length, 0);
    screen.tap.tap.sequence = 19;
    tm_env_virtual_advance(env, 1000);
    tm_live_view_step(view);
    assert_string_equal(tm_text_string(&screen.seen), "     5.2s  worker 2 is gone: its process ended\n");
    tm_text_clear(&screen.seen);
    screen.tap.tap.sequence = 46;
    tm_env_virtual_advance(env, 1000);
    tm_live_view_step(view);
    tm_live_view_finish(view, NULL);
    const char *end = tm_text_string(&screen.seen);
    assert_int_equal(count_of(end, "worker 2 is gone"), 0);
    assert_int_equal(count_of(end, "the job is finished at step 100"), 1);
    assert_int_equal(count_of(end, "finished: step 100 of 100, loss 1.0000"), 1);
    assert_int_equal(count_of(end, "\033"), 0);
    close_view(&screen, view);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_a_picture), TM_TEST(test_a_loss_in_the_layout), TM_TEST(test_an_empty_run),
             TM_TEST(test_any_width_and_height), TM_TEST(test_redrawn_in_place), TM_TEST(test_lines))
