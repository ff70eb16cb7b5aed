/* The programs around the machines, on a virtual clock: a local cloud whose instances are entries, the driver over
 * virtual links, and a real coordinator at their other end. */
#include "run/supervisor.h"

#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "cloud/local_cloud.h"
#include "run/coordinator.h"
#include "wire/peer_links.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char token[] = "00000000000000ab-0123456789abcdef0123456789abcdef";
static const char *const command[] = {"agent", NULL};

struct world {
    struct tm_env *env;
    struct tm_trace trace;
    struct tm_cloud *cloud;
    struct tm_cloud_driver_options driver;
    /* The coordinator's end. */
    struct tm_use_all rule;
    struct tm_coordinator *coordinator;
    struct tm_links *links;
    struct tm_outbox out;
    int incarnation;
    bool behind_nat; /* what others are told is nothing for this machine */
};

static int64_t now_ms(const struct world *w)
{
    return w->env->monotonic_ns(w->env) / 1000000;
}

static void carry_out(struct world *w)
{
    for (size_t i = 0; i < w->out.count; i++) {
        const struct tm_action *action = &w->out.actions[i];
        if (action->kind == TM_ACTION_SEND)
            tm_links_send(w->links, &action->to, NULL, tm_outbox_data(&w->out, action), action->length);
    }
    tm_outbox_clear(&w->out);
}

static void on_message(void *context, const tm_message *message)
{
    struct world *w = context;
    tm_coordinator_receive(w->coordinator, now_ms(w), message, &w->out);
    carry_out(w);
}

static void start_coordinator(struct world *w)
{
    struct tm_coordinator_options options = {.job = 0xAB,
                                             .incarnation = (uint64_t)++w->incarnation,
                                             .token = token,
                                             .layers = 2,
                                             .steps = 10,
                                             .micro_batches = 2,
                                             .heartbeat_ms = 100,
                                             .lease_ms = 1000,
                                             .orphan_ms = 3000,
                                             .resend_ms = 100,
                                             .fresh = true};
    struct tm_decider decider = tm_decider_use_all(&w->rule);
    struct tm_error e;
    w->coordinator = tm_coordinator_create(&options, &decider);
    assert_non_null(w->coordinator);
    assert_row(tm_links_create(w->env, "127.0.0.1:0", NULL, token, &w->links, &e) == 0, "%s", e.text);
    const char *told = w->behind_nat ? "192.0.2.1:7" : tm_links_address(w->links);
    if (w->behind_nat)
        assert_int_equal(tm_state_write(w->env, "/s", TM_STATE_ADDRESS_HERE, tm_links_address(w->links), &e), 0);
    assert_int_equal(tm_state_write(w->env, "/s", TM_STATE_ADDRESS, told, &e), 0);
    tm_coordinator_begin(w->coordinator, now_ms(w), 0, &w->out);
    carry_out(w);
}

static void stop_coordinator(struct world *w)
{
    tm_links_destroy(w->links);
    tm_coordinator_destroy(w->coordinator);
    w->links = NULL;
    w->coordinator = NULL;
}

static void tend_coordinator(struct world *w)
{
    if (w->coordinator == NULL) return;
    tm_links_take(w->links, on_message, w);
    tm_coordinator_tick(w->coordinator, now_ms(w), 0, &w->out);
    carry_out(w);
}

static void set_up(struct world *w, const char *trace)
{
    struct tm_error e;
    *w = (struct world){.env = tm_env_virtual_create(7), .rule = {.stages = 1, .workers_min = 1, .workers_max = 4}};
    tm_outbox_init(&w->out);
    tm_trace_init(&w->trace);
    assert_row(tm_trace_parse("test", trace, strlen(trace), NULL, &w->trace, &e) == 0, "%s", e.text);
    struct tm_local_options options = {.trace = &w->trace,
                                       .command = command,
                                       .state_dir = "/s/cloud",
                                       .speed = 10,
                                       .notice_ms = 30000,
                                       .spot_usd_h = 3.6,
                                       .on_demand_usd_h = 36,
                                       .limit = 8,
                                       .id_first = 5,
                                       .seed = 1};
    assert_row(tm_local_cloud_create(w->env, &options, &w->cloud, &e) == 0, "%s", e.text);
    w->driver =
        (struct tm_cloud_driver_options){.cloud = w->cloud, .dir = "/s", .token = token, .job = 0xAB, .speed = 10};
}

static void tear_down(struct world *w)
{
    struct tm_error e;
    if (w->coordinator != NULL) stop_coordinator(w);
    assert_row(w->cloud->destroy(w->cloud, &e) == 0, "%s", e.text);
    tm_outbox_deinit(&w->out);
    tm_trace_deinit(&w->trace);
    tm_env_virtual_destroy(w->env);
}

static size_t count_here(const struct world *w)
{
    size_t count = 0;
    size_t here = 0;
    const struct tm_cloud_instance *all = w->cloud->instances(w->cloud, &count);
    for (size_t i = 0; i < count; i++)
        here += tm_instance_is_here(&all[i]);
    return here;
}

static void drive(struct world *w, struct tm_cloud_driver *driver, int64_t ms)
{
    struct tm_error e;
    for (int64_t end_ms = now_ms(w) + ms; now_ms(w) < end_ms;) {
        assert_row(tm_cloud_driver__step(driver, 20, NULL, 0, &e) == 0, "%s", e.text);
        tend_coordinator(w);
    }
}

/* Three there at the start; one goes after 300 s of the trace, that is 30 s on the wall; one comes at 400 s. */
static const char trace_text[] = "tidemill-trace 1\nend: 1000s\nnodes: 3\n\n0 +3\n300 -1\n400 +1\n";

static void what_is_ordered_is_rented(void **state)
{
    struct world w;
    struct tm_error e;
    struct tm_cloud_driver *driver = NULL;
    struct tm_cloud_event event;
    (void)state;
    set_up(&w, trace_text);
    assert_row(tm_cloud_driver__create(w.env, &w.driver, &driver, &e) == 0, "%s", e.text);
    drive(&w, driver, 1000);
    assert_int_equal(count_here(&w), 0); /* nobody has ordered anything */
    assert_false(tm_cloud_driver__connected(driver));
    start_coordinator(&w);
    drive(&w, driver, 3000);
    assert_true(tm_cloud_driver__connected(driver));
    assert_int_equal(tm_cloud_driver__order(driver)->want_spot, 4);
    assert_int_equal(count_here(&w), 3); /* all that the trace gives */
    assert_true(tm_cloud_driver__event(driver, &event));
    assert_int_equal(event.kind, TM_CLOUD_ARRIVED);
    assert_int_equal(event.instance, 5); /* numbers go on where an earlier run stopped */
    /* The coordinator is gone: the order stands, and what is lost is lost. */
    stop_coordinator(&w);
    drive(&w, driver, 30000);
    assert_int_equal(count_here(&w), 2);
    drive(&w, driver, 10000);
    assert_int_equal(count_here(&w), 3); /* still wanted, and there again */
    /* The next one hears of everything, of the loss and its notice, too. */
    start_coordinator(&w);
    drive(&w, driver, 2000);
    struct tm_coordinator_view view = tm_coordinator_look(w.coordinator);
    assert_int_equal(view.instance_count, 4);
    size_t ended = 0;
    for (size_t i = 0; i < view.instance_count; i++) {
        ended += view.instances[i].end_ms != 0;
        if (view.instances[i].end_ms != 0) assert_true(view.instances[i].announced && !view.instances[i].released);
    }
    assert_int_equal(ended, 1);
    assert_int_equal(view.spot_microusd_h, 3600000);
    tm_cloud_driver__destroy(driver);
    tear_down(&w);
}

/* The bill and the numbers last beyond the program. */
static void the_account_goes_on(void **state)
{
    struct world w;
    struct tm_error e;
    struct tm_cloud_driver *driver = NULL;
    struct tm_cloud_account before = {0};
    (void)state;
    set_up(&w, trace_text);
    assert_int_equal(tm_cloud_account_read(w.env, "/s", &before, &e), 0);
    assert_true(before.time_ms == 0 && before.instance == 0);
    start_coordinator(&w);
    assert_int_equal(tm_cloud_driver__create(w.env, &w.driver, &driver, &e), 0);
    drive(&w, driver, 12000);
    struct tm_cloud_account now = tm_cloud_driver__account(driver);
    tm_cloud_driver__destroy(driver);
    assert_row(tm_cloud_account_read(w.env, "/s", &before, &e) == 0, "%s", e.text);
    assert_int_equal(before.instance, 7);
    assert_true(before.time_ms == now.time_ms);
    double usd = before.bill.usd[TM_INSTANCE_SPOT];
    assert_true(usd > 0.3 && usd < 0.4); /* three for 110 to 120 s at a tenth of a cent a second */
    w.driver.before = before;
    assert_int_equal(tm_cloud_driver__create(w.env, &w.driver, &driver, &e), 0);
    assert_true(tm_cloud_driver__account(driver).bill.usd[TM_INSTANCE_SPOT] >= 2 * usd);
    tm_cloud_driver__destroy(driver);
    assert_int_equal(tm_state_write(w.env, "/s", TM_STATE_ACCOUNT, "tidemill-account 1 x", &e), 0);
    assert_int_equal(tm_cloud_account_read(w.env, "/s", &before, &e), -(int)TM_EINPUT);
    tear_down(&w);
}

static const struct tm_account_instance *entry_of(const struct tm_cloud_account *account, uint64_t id)
{
    for (size_t i = 0; i < account->count; i++)
        if (account->list[i].id == id) return &account->list[i];
    return NULL;
}

/* An end that no coordinator heard of is told to the next one, whichever program starts it; and a run that is over
 * leaves nothing that looks as if it were there. */
static void ends_are_told_later(void **state)
{
    struct world w;
    struct tm_error e;
    struct tm_cloud_driver *driver = NULL;
    struct tm_cloud_account account = {0};
    (void)state;
    set_up(&w, trace_text);
    start_coordinator(&w);
    assert_int_equal(tm_cloud_driver__create(w.env, &w.driver, &driver, &e), 0);
    drive(&w, driver, 5000);
    stop_coordinator(&w);
    drive(&w, driver, 28000); /* one is lost */
    assert_int_equal(count_here(&w), 2);
    tm_cloud_driver__destroy(driver); /* as if killed: nothing is given back */
    assert_row(tm_cloud_account_read(w.env, "/s", &account, &e) == 0, "%s", e.text);
    assert_int_equal(account.count, 3);
    size_t ended = 0;
    for (uint64_t id = 5; id <= 7; id++)
        ended += entry_of(&account, id)->end_ms != 0 && !entry_of(&account, id)->released;
    assert_int_equal(ended, 1);
    w.driver.before = account;
    w.driver.before.instance = 7;
    assert_int_equal(tm_cloud_driver__create(w.env, &w.driver, &driver, &e), 0);
    assert_int_equal(w.env->file_write(w.env, "/s/record", "none", 4, &e), 0); /* a bill that cannot be written ... */
    assert_row(tm_cloud_driver__close(driver, &e) == 0, "%s", e.text);         /* ... takes nothing else with it */
    assert_int_equal(count_here(&w), 0);
    tm_cloud_driver__destroy(driver);
    assert_row(tm_cloud_account_read(w.env, "/s", &account, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < account.count; i++)
        assert_row(account.list[i].end_ms != 0, "instance %llu is there", (unsigned long long)account.list[i].id);
    /* As an earlier release wrote it: all that are named were there. */
    static const char old[] = "tidemill-account 1 500 6 0.5 100 0 0\ninstance 6 100 1 0 3.6 0.25\n";
    assert_int_equal(tm_state_write(w.env, "/s", TM_STATE_ACCOUNT, old, &e), 0);
    assert_row(tm_cloud_account_read(w.env, "/s", &account, &e) == 0, "%s", e.text);
    assert_int_equal(account.count, 1);
    assert_int_equal(account.list[0].end_ms, 0);
    tear_down(&w);
}

/* ---- the supervisor ---- */

static void supervise(struct world *w, struct tm_supervisor *supervisor, int64_t ms)
{
    struct tm_error e;
    for (int64_t end_ms = now_ms(w) + ms; now_ms(w) < end_ms && !tm_supervisor_ended(supervisor);) {
        assert_row(tm_supervisor_step(supervisor, 20, &e) == 0, "%s", e.text);
        tend_coordinator(w);
    }
}

static void a_killed_coordinator_is_started_again(void **state)
{
    struct world w;
    struct tm_error e;
    struct tm_supervisor *supervisor = NULL;
    (void)state;
    set_up(&w, trace_text);
    struct tm_supervisor_options options = {.driver = w.driver,
                                            .program = "/bin/tidemill",
                                            .mark = "TIDEMILL_RUN_MARK=00000000000000aa",
                                            .call = "TIDEMILL_RUN_COMMAND=tidemill run a.yaml"};
    assert_row(tm_supervisor_create(w.env, &options, &supervisor, &e) == 0, "%s", e.text);
    start_coordinator(&w);
    supervise(&w, supervisor, 6000);
    struct tm_supervisor_view view = tm_supervisor__look(supervisor);
    assert_true(view.connected && view.coordinator_pid > 0);
    assert_string_equal(tm_env_virtual_process_variable(w.env, view.coordinator_pid, "TIDEMILL_RUN_COMMAND"),
                        "tidemill run a.yaml");
    assert_string_equal(tm_env_virtual_process_variable(w.env, view.coordinator_pid, "TIDEMILL_RUN_MARK"),
                        "00000000000000aa");
    for (int kills = 0; kills < 10; kills++) { /* a signal is no fault of its own: it is never given up */
        tm_env_virtual_exit(w.env, tm_supervisor__look(supervisor).coordinator_pid, 128 + SIGKILL);
        supervise(&w, supervisor, 5000);
        assert_row(tm_supervisor__look(supervisor).coordinator_starts == kills + 2, "after kill %d", kills);
    }
    assert_int_equal(count_here(&w), 3);
    /* A stop is passed on; at the end of the coordinator all is over. */
    tm_supervisor_stop(supervisor);
    supervise(&w, supervisor, 1000);
    view = tm_supervisor__look(supervisor);
    assert_int_equal(tm_env_virtual_last_signal(w.env, view.coordinator_pid), SIGTERM);
    tm_env_virtual_exit(w.env, view.coordinator_pid, 0);
    supervise(&w, supervisor, 1000);
    assert_true(tm_supervisor_ended(supervisor));
    tm_supervisor_destroy(supervisor);
    tear_down(&w);
}

static void one_that_cannot_start_is_an_error(void **state)
{
    struct world w;
    struct tm_error e;
    struct tm_supervisor *supervisor = NULL;
    (void)state;
    set_up(&w, trace_text);
    struct tm_supervisor_options options = {.driver = w.driver, .program = "/bin/tidemill", .mark = "A=b"};
    assert_int_equal(tm_supervisor_create(w.env, &options, &supervisor, &e), 0);
    static const char words[] = "one\ntidemill: error: the disk is full\n";
    assert_int_equal(w.env->file_write(w.env, "/s/logs/coordinator.log", words, strlen(words), &e), 0);
    int rc = 0;
    for (int i = 0; i < 10000 && rc == 0; i++) {
        int pid = tm_supervisor__look(supervisor).coordinator_pid;
        if (pid != 0) tm_env_virtual_exit(w.env, pid, 1);
        rc = tm_supervisor_step(supervisor, 20, &e);
    }
    assert_int_equal(rc, -(int)TM_EPEER);
    assert_row(strstr(e.text, "the disk is full") != NULL, "%s", e.text);
    tm_supervisor_destroy(supervisor);
    tear_down(&w);
}

/* ---- chaos, and checkpoint-restart ---- */

/* Every instance has a worker: a process of its own, as its agent writes down. */
static int add_worker(struct world *w, uint64_t instance)
{
    static const char *const argv[] = {"worker", NULL};
    struct tm_process_options options = {.argv = argv, .group = true};
    struct tm_error e;
    char path[TM_STATE_PATH_MAX];
    char line[64];
    int64_t start = 0;
    int pid = 0;
    assert_int_equal(w->env->process_start_with(w->env, &options, &pid, &e), 0);
    assert_int_equal(w->env->process_started(w->env, pid, &start, &e), 0);
    tm_state_worker_path("/s", instance, path);
    (void)snprintf(line, sizeof line, "%d %lld\n", pid, (long long)start);
    assert_int_equal(w->env->file_write(w->env, path, line, strlen(line), &e), 0);
    return pid;
}

static void every_kind_of_fault_is_carried_out(void **state)
{
    static const struct {
        enum tm_fault_kind kind;
        int signal;     /* that its target gets at once */
        int afterwards; /* when it is over */
        bool of_worker;
    } rows[] = {
        {TM_FAULT_KILL_WORKER, SIGKILL, SIGKILL, true},
        {TM_FAULT_STOP_WORKER, SIGSTOP, SIGCONT, true},
        {TM_FAULT_STOP_AGENT, SIGSTOP, SIGCONT, false},
        {TM_FAULT_KILL_AGENT, SIGKILL, SIGKILL, false},
        {TM_FAULT_FULL_DISK, 0, 0, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct world w;
        struct tm_error e;
        struct tm_cloud_driver *driver = NULL;
        struct tm_chaos_driver *chaos = NULL;
        char words[96];
        set_up(&w, "tidemill-trace 1\nend: 1000s\nnodes: 1\n\n0 +1\n");
        start_coordinator(&w);
        assert_int_equal(tm_cloud_driver__create(w.env, &w.driver, &driver, &e), 0);
        drive(&w, driver, 2000);
        int worker = add_worker(&w, 5);
        int agent = tm_cloud_find(w.cloud, 5)->pid;
        struct tm_chaos_options options = {.chaos = {.seed = 3, .mean_ms = 1000, .lasting_ms = 500}, .faults_max = 1};
        options.chaos.weights[rows[i].kind] = 1;
        assert_int_equal(tm_chaos_driver__create(w.env, &options, w.cloud, "/s", &chaos, &e), 0);
        for (int k = 0; k < 2000 && tm_chaos_driver__count(chaos) == 0; k++) {
            tm_chaos_driver__step(chaos, 0);
            tm_env_virtual_advance(w.env, 1);
        }
        int target = rows[i].of_worker ? worker : agent;
        assert_row(tm_chaos_driver__count(chaos) == 1, "row %zu", i);
        assert_row(tm_env_virtual_last_signal(w.env, target) == rows[i].signal, "row %zu", i);
        assert_row(tm_chaos_driver__said(chaos, words, sizeof words), "row %zu", i);
        assert_row(strstr(words, tm_fault_kind_name(rows[i].kind)) != NULL, "row %zu: %s", i, words);
        tm_chaos_driver__destroy(chaos); /* mends what lasts */
        assert_row(tm_env_virtual_last_signal(w.env, target) == rows[i].afterwards, "row %zu", i);
        tm_cloud_driver__destroy(driver);
        tear_down(&w);
    }
}

/* Without namespaces links cannot be cut, and a coordinator that does not run cannot be killed: neither stops it. */
static void what_cannot_be_done_is_passed_over(void **state)
{
    struct world w;
    struct tm_error e;
    struct tm_chaos_driver *chaos = NULL;
    (void)state;
    set_up(&w, trace_text);
    struct tm_chaos_options options = {.chaos = {.seed = 3, .mean_ms = 100, .lasting_ms = 500}};
    options.chaos.weights[TM_FAULT_CUT_LINK] = 1;
    assert_int_equal(tm_chaos_driver__create(w.env, &options, w.cloud, "/s", &chaos, &e), 0);
    for (int k = 0; k < 1000; k++) {
        tm_chaos_driver__step(chaos, 0);
        assert_true(tm_chaos_driver__wait_ms(chaos) > 0);
        tm_env_virtual_advance(w.env, 1);
    }
    assert_int_equal(tm_chaos_driver__count(chaos), 0);
    tm_chaos_driver__destroy(chaos);
    tear_down(&w);
}

static void all_workers_restart_at_each_change(void **state)
{
    struct world w;
    struct tm_error e;
    struct tm_supervisor *supervisor = NULL;
    int workers[3];
    (void)state;
    set_up(&w, trace_text);
    struct tm_supervisor_options options = {
        .driver = w.driver, .program = "/bin/tidemill", .mark = "A=b", .restart_all = true};
    assert_int_equal(tm_supervisor_create(w.env, &options, &supervisor, &e), 0);
    start_coordinator(&w);
    supervise(&w, supervisor, 3000);
    for (int i = 0; i < 3; i++)
        workers[i] = add_worker(&w, (uint64_t)i + 5);
    supervise(&w, supervisor, 20000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(tm_env_virtual_last_signal(w.env, workers[i]), 0);
    supervise(&w, supervisor, 10000); /* one is lost */
    int ended = 0;
    for (int i = 0; i < 3; i++)
        ended += tm_env_virtual_last_signal(w.env, workers[i]) == SIGKILL;
    assert_int_equal(ended, 2); /* the lost one's went with its instance */
    tm_supervisor_destroy(supervisor);
    tear_down(&w);
}

static void survives_lack_of_memory(void **state)
{
    struct world w;
    struct tm_supervisor *made = NULL;
    (void)state;
    set_up(&w, trace_text);
    struct tm_chaos_options chaos = {.chaos = {.seed = 3, .mean_ms = 100, .lasting_ms = 500}};
    struct tm_supervisor_options options = {
        .driver = w.driver, .program = "/bin/tidemill", .mark = "A=b", .chaos = &chaos};
    long before = tm_alloc_live();
    assert_int_equal(tm_supervisor_create(w.env, &options, &made, NULL), 0);
    tm_supervisor_destroy(made);
    long files = tm_alloc_live() - before; /* the world keeps what was written and who was started */
    for (long fail = 1;; fail++) {
        made = NULL;
        before = tm_alloc_live();
        tm_alloc_fail_at(fail);
        int rc = tm_supervisor_create(w.env, &options, &made, NULL);
        int failed = tm_alloc_failed();
        tm_alloc_fail_at(0);
        if (rc == 0) tm_supervisor_destroy(made);
        assert_row(rc == 0 || rc == -(int)TM_ENOMEM, "allocation %ld: %d", fail, rc);
        assert_row(tm_alloc_live() <= before + files, "allocation %ld: something is left", fail);
        if (!failed) break;
    }
    tear_down(&w);
}

/* Others are told an address that this machine does not reach: its own part goes where the coordinator listens. */
static void an_address_for_others_is_not_for_us(void **state)
{
    (void)state;
    struct world w;
    struct tm_error e;
    struct tm_cloud_driver *driver = NULL;
    set_up(&w, trace_text);
    w.behind_nat = true;
    tm_env_virtual_never_answer(w.env, "192.0.2.1:7");
    assert_int_equal(tm_cloud_driver__create(w.env, &w.driver, &driver, &e), 0);
    start_coordinator(&w);
    drive(&w, driver, 3000);
    assert_true(tm_cloud_driver__connected(driver));
    assert_int_equal(tm_cloud_driver__close(driver, &e), 0);
    tm_cloud_driver__destroy(driver);
    tear_down(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_ordered_is_rented),
        cmocka_unit_test(an_address_for_others_is_not_for_us),
        cmocka_unit_test(the_account_goes_on),
        cmocka_unit_test(ends_are_told_later),
        cmocka_unit_test(a_killed_coordinator_is_started_again),
        cmocka_unit_test(one_that_cannot_start_is_an_error),
        cmocka_unit_test(every_kind_of_fault_is_carried_out),
        cmocka_unit_test(what_cannot_be_done_is_passed_over),
        cmocka_unit_test(all_workers_restart_at_each_change),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
