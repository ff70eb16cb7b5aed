/* Which alerts a status raises, once each; and whom they reach: real receivers, one that is down, one that is slow. */
#include "run/alert.h"
#include "run/notifier.h"

#include "base/test/harness.h"
#include "base/test/tempdir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct seen {
    char names[200];
    char text[TM_ALERT_TEXT_MAX];
};

static void note(void *context, enum tm_alert alert, const char *text)
{
    struct seen *seen = context;
    size_t length = strlen(seen->names);
    (void)snprintf(seen->names + length, sizeof seen->names - length, "%s ", tm_notify_alert_names[alert]);
    (void)snprintf(seen->text, sizeof seen->text, "%s", text);
}

static void test_alerts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum tm_job_state state;
        bool gave_up;
        uint64_t committed;
        double wall_s, bill_usd;
        int64_t now_s;
        const char *raised;
    } rows[] = {
        {"it begins", TM_JOB_STARTING, false, 0, 0, 0, 1, ""},
        {"it waits", TM_JOB_WAITING, false, 0, 50, 0, 61, "capacity "},
        {"still", TM_JOB_WAITING, false, 0, 100, 0, 500, ""},
        {"it trains", TM_JOB_TRAINING, false, 2, 200, 1, 501, ""},
        {"too early to tell", TM_JOB_TRAINING, false, 4, 210, 1, 502, ""},
        {"far too slow", TM_JOB_TRAINING, false, 10, 520, 1, 503, "deadline "},
        {"four fifths are spent", TM_JOB_TRAINING, false, 20, 530, 8, 510, "budget "},
        {"faster, but it stands", TM_JOB_TRAINING, false, 60, 540, 8.5, 520, ""},
        {"for a minute", TM_JOB_TRAINING, false, 60, 600, 8.6, 581, "stalled "},
        {"it goes on", TM_JOB_TRAINING, false, 61, 604, 8.7, 590, ""},
        {"and stands again", TM_JOB_TRAINING, false, 61, 605, 8.8, 660, "stalled "},
        {"stopped", TM_JOB_STOPPED, false, 61, 690, 8.8, 661, "stopped "},
        {"resumed", TM_JOB_TRAINING, false, 99, 700, 8.9, 700, ""},
        {"gave up", TM_JOB_STOPPED, true, 99, 700, 8.9, 701, "failed "},
        {"finished", TM_JOB_FINISHED, false, 100, 710, 9, 702, "finished "},
        {"still finished", TM_JOB_FINISHED, false, 100, 710, 9, 703, ""},
        {"failed", TM_JOB_FAILED, false, 100, 710, 9, 704, "failed "},
    };
    struct tm_alert_limits limits = {.patience_s = 60};
    struct tm_alerts alerts = {.committed = 0};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct seen seen = {.names = ""};
        struct tm_run_status status = {.job = {.name = "j", .steps = 100, .speed = 1}};
        status.state = rows[i].state;
        status.gave_up = rows[i].gave_up;
        status.committed = rows[i].committed;
        status.wall_s = rows[i].wall_s;
        status.bill_usd = rows[i].bill_usd;
        status.deadline_s = 1000;
        status.budget_usd = 10;
        tm_alerts__look(&alerts, &limits, &status, rows[i].now_s * 1000, note, &seen);
        assert_row_string(rows[i].name, seen.names, rows[i].raised);
        assert_row(seen.names[0] == '\0' || strncmp(seen.text, "j ", 2) == 0, "%s: %s", rows[i].name, seen.text);
    }
}

/* A quarter of the time is gone, and little or nothing is done. */
static void test_late(void **state)
{
    (void)state;
    for (uint64_t committed = 0; committed < 3; committed += 2) {
        struct seen seen = {.names = ""};
        struct tm_alert_limits limits = {.patience_s = 1e6};
        struct tm_alerts alerts = {.committed = 0};
        struct tm_run_status status = {.job = {.name = "j", .steps = 100, .speed = 1},
                                       .state = TM_JOB_WAITING,
                                       .committed = committed,
                                       .wall_s = 240,
                                       .deadline_s = 1000};
        tm_alerts__look(&alerts, &limits, &status, 1000, note, &seen);
        assert_string_equal(seen.names, "");
        status.wall_s = 260;
        tm_alerts__look(&alerts, &limits, &status, 2000, note, &seen);
        assert_string_equal(seen.names, "deadline ");
    }
}

/* Without limits nothing is said of them. */
static void test_no_limits(void **state)
{
    (void)state;
    struct tm_alert_limits limits = {.patience_s = 60};
    struct tm_alerts alerts = {.committed = 0};
    struct seen seen = {.names = ""};
    struct tm_run_status status = {.job = {.name = "j", .steps = 100, .speed = 1}, .state = TM_JOB_TRAINING};
    status.committed = 50;
    status.wall_s = 1e9;
    status.bill_usd = 1e9;
    status.deadline_s = status.budget_usd = NAN;
    tm_alerts__look(&alerts, &limits, &status, 1000, note, &seen);
    assert_string_equal(seen.names, "");
}

/* A run whose throughput falls: first the deadline is safe, then it is in doubt, and what was asked for decides when.
 */
static void test_deadline_in_danger(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double asked;
        int slow_from;       /* second from which on it makes three steps a second instead of ten */
        int noise;           /* more and less in turns */
        double from_s, to_s; /* when it is told; 0: never */
    } rows[] = {
        {"steady", 0.9, 10000, 0, 0, 0},
        {"steady, noisy", 0.9, 10000, 2, 0, 0},
        {"slower, and much is asked", 0.99, 300, 2, 301, 400},
        {"slower", 0.9, 300, 2, 301, 420},
        {"slower, and little is asked", 0.05, 300, 2, 380, 600},
    };
    double last_s = 0;
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_alert_limits limits = {.probability = rows[i].asked, .patience_s = 1e9};
        struct tm_alerts alerts = {.committed = 0};
        struct tm_run_status status = {.job = {.name = "j", .steps = 10000, .speed = 1}, .state = TM_JOB_TRAINING};
        double told_s = 0;
        status.deadline_s = 1200;
        status.budget_usd = NAN;
        for (int t = 1; t < 999 && told_s == 0; t++) {
            struct seen seen = {.names = ""};
            int steps = t < rows[i].slow_from ? 10 : 3;
            status.committed += (uint64_t)(t % 2 == 0 ? steps - rows[i].noise : steps + rows[i].noise);
            status.wall_s = t;
            tm_alerts__look(&alerts, &limits, &status, t * 1000LL, note, &seen);
            if (strcmp(seen.names, "deadline ") == 0) told_s = t;
            if (told_s > 0) assert_row(strstr(seen.text, "probability") != NULL, "%s: %s", rows[i].name, seen.text);
        }
        assert_row(told_s >= rows[i].from_s && told_s <= rows[i].to_s, "%s: at %g s", rows[i].name, told_s);
        assert_row(told_s == 0 || told_s >= last_s, "%s: at %g s, before who asks for more", rows[i].name, told_s);
        last_s = told_s;
    }
}

static void test_checks(void **state)
{
    (void)state;
    static const char *word[] = {"finishd"};
    static const char *words[] = {"finished", "failed"};
    static const struct {
        struct tm_notify_target target;
        const char *error; /* NULL: good */
    } rows[] = {
        {{.webhook = "https://hooks.example/x"}, NULL},
        {{.webhook = "http://127.0.0.1:1/", .on = {words, 2}}, NULL},
        {{.email = "me@example.org"}, NULL},
        {{.command = "true"}, NULL},
        {{.webhook = NULL}, "one of webhook, email and command"},
        {{.command = "true", .email = "me@example.org"}, "number 1 has 2"},
        {{.webhook = "ftp://x"}, "no http:// or https://"},
        {{.webhook = "http://x\"\nurl=\"file:///etc"}, "no http:// or https://"},
        {{.email = "me"}, "no address"},
        {{.email = "a@b\nBcc: c@d"}, "no address"},
        {{.command = "true", .on = {word, 1}}, "did you mean finished?"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_notify_target target = rows[i].target;
        struct tm_maps maps = {.items = &target, .count = 1};
        struct tm_error e = {.text = ""};
        int rc = tm_notify_check(&maps, "job.yaml", &e);
        assert_row((rc == 0) == (rows[i].error == NULL), "%zu: %s", i, e.text);
        assert_row(rows[i].error == NULL || strstr(e.text, rows[i].error) != NULL, "%zu: %s", i, e.text);
    }
}

/* A command is told, in variables; one that fails the first time is tried again. */
static void test_telling(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    char told[600];
    char flaky[1200];
    (void)snprintf(told, sizeof told, "echo \"$TIDEMILL_ALERT|$TIDEMILL_JOB|$TIDEMILL_TEXT\" >> '%s/told'", dir.path);
    (void)snprintf(flaky, sizeof flaky, "[ -e '%s/once' ] && echo later >> '%s/told' || { : > '%s/once'; exit 1; }",
                   dir.path, dir.path, dir.path);
    static const char *only[] = {"failed"};
    struct tm_notify_target targets[] = {{.command = told}, {.command = flaky}, {.command = "exit 1", .on = {only, 1}}};
    struct tm_maps maps = {.items = targets, .count = TM_COUNT(targets)};
    const struct tm_maps *lists[] = {&maps};
    struct tm_alert_limits limits = {.patience_s = 60};
    struct tm_run_status status = {.job = {.name = "j", .steps = 9, .speed = 1}, .state = TM_JOB_FINISHED};
    status.committed = 9;
    struct tm_notifier *notifier = tm_notifier_create(env, dir.path, lists, 1, &limits);
    assert_non_null(notifier);
    assert_true(tm_notifier_step(notifier)); /* nothing yet */
    tm_notifier_look(notifier, &status);
    tm_notifier_look(notifier, &status);
    int64_t end_ms = env->monotonic_ns(env) / 1000000 + 60000;
    while (!tm_notifier_step(notifier) && env->monotonic_ns(env) / 1000000 < end_ms)
        env->sleep_ms(env, 10);
    tm_notifier_destroy(notifier);
    char path[512];
    struct tm_text text;
    tm_text_init(&text, 4096);
    (void)snprintf(path, sizeof path, "%s/told", dir.path);
    assert_int_equal(env->file_read(env, path, &text, NULL), 0);
    assert_non_null(strstr(tm_text_string(&text), "finished|j|j is finished: 9 steps, $0.00\n"));
    assert_non_null(strstr(tm_text_string(&text), "later\n"));
    tm_text_deinit(&text);
    tm_tempdir_remove(&dir);
}

static void tell_all(struct tm_env *env, struct tm_notifier *notifier)
{
    int64_t end_ms = env->monotonic_ns(env) / 1000000 + 60000;
    while (!tm_notifier_step(notifier) && env->monotonic_ns(env) / 1000000 < end_ms)
        env->sleep_ms(env, 1);
}

/* A run of weeks tells of more than the queue holds; one that goes on does not tell again of what still is. */
static void test_a_long_run(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    char path[512], command[600];
    (void)snprintf(path, sizeof path, "%s/told", dir.path);
    (void)snprintf(command, sizeof command, "echo \"$TIDEMILL_ALERT\" >> '%s'", path);
    struct tm_notify_target targets[] = {{.command = command}};
    struct tm_maps maps = {.items = targets, .count = TM_COUNT(targets)};
    const struct tm_maps *lists[] = {&maps};
    struct tm_alert_limits limits = {.patience_s = 60};
    struct tm_run_status status = {.job = {.name = "j", .steps = 9, .speed = 1}, .state = TM_JOB_TRAINING};
    status.budget_usd = 10;
    status.bill_usd = 9;
    struct tm_notifier *notifier = tm_notifier_create(env, dir.path, lists, 1, &limits);
    assert_non_null(notifier);
    tm_notifier_look(notifier, &status);
    for (int strays = 1; strays <= 300; strays++) {
        tm_notifier_found(notifier, "j", strays);
        if (strays % 50 == 0) tell_all(env, notifier);
    }
    tm_notifier_destroy(notifier);
    notifier = tm_notifier_create(env, dir.path, lists, 1, &limits);
    assert_non_null(notifier);
    tm_notifier_go_on(notifier);
    tm_notifier_look(notifier, &status);
    tm_notifier_failed(notifier, "j", "the disk is full");
    tell_all(env, notifier);
    tm_notifier_destroy(notifier);
    struct tm_text text;
    tm_text_init(&text, 1 << 16);
    assert_int_equal(env->file_read(env, path, &text, NULL), 0);
    int budgets = 0, leaks = 0;
    for (const char *at = tm_text_string(&text); *at != '\0'; at++) {
        budgets += strncmp(at, "budget", 6) == 0;
        leaks += strncmp(at, "leaked", 6) == 0;
    }
    assert_int_equal(budgets, 1);
    assert_int_equal(leaks, 300);
    assert_non_null(strstr(tm_text_string(&text), "failed\n"));
    tm_text_deinit(&text);
    tm_tempdir_remove(&dir);
}

/* Each receiver has its own patience. */
static void test_patience(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    char path[512];
    char soon[600];
    char late[600];
    (void)snprintf(path, sizeof path, "%s/told", dir.path);
    (void)snprintf(soon, sizeof soon, "echo \"soon $TIDEMILL_ALERT\" >> '%s'", path);
    (void)snprintf(late, sizeof late, "echo \"late $TIDEMILL_ALERT\" >> '%s'", path);
    struct tm_notify_target targets[] = {{.command = late}, {.command = soon, .patience_ms = 1}};
    struct tm_maps maps = {.items = targets, .count = TM_COUNT(targets)};
    const struct tm_maps *lists[] = {&maps};
    struct tm_alert_limits limits = {.patience_s = 600};
    struct tm_run_status status = {.job = {.name = "j", .steps = 9, .speed = 1}, .state = TM_JOB_TRAINING};
    struct tm_notifier *notifier = tm_notifier_create(env, dir.path, lists, 1, &limits);
    assert_non_null(notifier);
    tm_notifier_look(notifier, &status);
    env->sleep_ms(env, 5);
    tm_notifier_look(notifier, &status);
    int64_t end_ms = env->monotonic_ns(env) / 1000000 + 60000;
    while (!tm_notifier_step(notifier) && env->monotonic_ns(env) / 1000000 < end_ms)
        env->sleep_ms(env, 10);
    tm_notifier_destroy(notifier);
    struct tm_text text;
    tm_text_init(&text, 4096);
    assert_int_equal(env->file_read(env, path, &text, NULL), 0);
    assert_string_equal(tm_text_string(&text), "soon stalled\n");
    tm_text_deinit(&text);
    tm_tempdir_remove(&dir);
}

static int raise_once(void)
{
    struct tm_notify_target target = {.command = "true"};
    struct tm_maps maps = {.items = &target, .count = 1};
    const struct tm_maps *lists[] = {&maps};
    struct tm_alert_limits limits = {.patience_s = 60};
    struct tm_notifier *notifier = tm_notifier_create(tm_env_real(), "/nowhere", lists, 1, &limits);
    tm_notifier_destroy(notifier);
    return notifier == NULL ? -(int)TM_ENOMEM : 0;
}

static void test_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = raise_once());
}

TM_TEST_MAIN(TM_TEST(test_alerts), TM_TEST(test_late), TM_TEST(test_no_limits), TM_TEST(test_deadline_in_danger),
             TM_TEST(test_checks), TM_TEST(test_telling), TM_TEST(test_a_long_run), TM_TEST(test_patience),
             TM_TEST(test_memory))
