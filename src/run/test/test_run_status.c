/* What a run's status says of records made by hand: every count of its header, words, JSON there and back. */
#include "run/run_status.h"

#include "base/test/harness.h"
#include "run/run_tap.h"
#include "run/test/record_samples.h"
#include "store/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int feed(struct tm_run_watch *watch, const struct samples *s, struct tm_error *e)
{
    for (size_t i = 0; i < s->count; i++) {
        int rc = tm_run_watch_take(watch, i + 1, s->events[i], e);
        if (rc != 0) return rc;
    }
    return 0;
}

static struct tm_run_watch *watch_of(const struct samples *s)
{
    struct tm_error e;
    struct tm_run_watch *watch = tm_run_watch_create();
    assert_non_null(watch);
    if (feed(watch, s, &e) != 0) fail_msg("%s", e.text);
    return watch;
}

static void near(double got, double want)
{
    if (!(fabs(got - want) < 1e-9)) fail_msg("got %.12g, want %.12g", got, want);
}

static void test_a_small_run(void **state)
{
    (void)state;
    struct samples s;
    samples_init(&s);
    samples_small_run(&s, true);
    struct tm_run_watch *watch = watch_of(&s);
    const struct tm_run_status *got = tm_run_watch_status(watch);
    assert_string_equal(got->job.name, "gpt-small");
    assert_int_equal(got->state, TM_JOB_FINISHED);
    assert_int_equal(got->committed, 100);
    assert_int_equal(got->durable, 100);
    assert_int_equal(got->redone, 1);
    assert_int_equal(got->rolled_back, 0);
    assert_int_equal(got->generations, 3);
    assert_int_equal(got->arrivals, 5);
    assert_int_equal(got->losses_announced, 1);
    assert_int_equal(got->losses_unannounced, 1);
    assert_int_equal(got->worker_losses, 2);
    assert_int_equal(got->pause.count, 2);
    near(got->pause.p50_s, 0.35);
    near(got->pause.max_s, 0.55);
    near(got->pause.total_s, 0.7);
    assert_int_equal(got->recovery.count, 1);
    near(got->recovery.p50_s, 0.55);
    near(got->waiting_s, 0);
    near(got->bill_usd, 0.333333 + 0.070833 + 0.1875 + 0.333333 + 0.183333);
    near(got->on_demand_usd, (1200 + 255 + 675 + 1200 + 660) / 3600.0 * 3);
    near(got->wall_s, 19.8);
    near(got->loss, 1.0);
    assert_int_equal(strlen(got->state_hash), 32);
    assert_int_equal(got->here, 0);
    assert_int_equal(got->pipelines, 1);
    assert_int_equal(got->stages, 2);
    assert_int_equal(got->seats[0], 1);
    assert_int_equal(got->seats[1], 4);
    assert_int_equal(got->spares, 1);
    assert_false(got->live);
    tm_run_watch_destroy(watch);
    samples_deinit(&s);
}

/* Cut in the middle: the same events once more change nothing. */
static void test_halfway_and_again(void **state)
{
    (void)state;
    struct samples s;
    samples_init(&s);
    samples_small_run(&s, false);
    struct tm_run_watch *watch = watch_of(&s);
    assert_int_equal(feed(watch, &s, NULL), 0);
    const struct tm_run_status *got = tm_run_watch_status(watch);
    assert_int_equal(got->state, TM_JOB_TRAINING);
    assert_int_equal(got->committed, 62);
    assert_int_equal(got->here, 3);
    assert_int_equal(got->noticed, 0);
    assert_int_equal(got->generations, 3);
    assert_int_equal(got->state_hash[0], 0);
    near(got->step_s, 0.2);
    near(got->steps_s, 5); /* nothing yet in this generation: by the last step's time */
    tm_run_watch_destroy(watch);
    samples_deinit(&s);
}

/* Time without workers is waiting, not a pause; a roll-back is work done again. */
static void test_waiting_and_rolling_back(void **state)
{
    (void)state;
    static const uint64_t ids[] = {1, 2};
    struct samples s;
    samples_init(&s);
    add_job(&s, "x", 100);
    add_fence(&s, 1, TM_CHANGED_BEGIN);
    (void)add_start(&s, 1, 0, 1, 2, ids, 2);
    add_pause(&s, 1, TM_CHANGED_BEGIN, 5000, 0); /* start-up */
    add_progress(&s, 50, NAN, 100);
    s.at_ms += 500;
    add_fence(&s, 2, TM_CHANGED_LOSS);
    s.at_ms += 100;
    add_state(&s, TM_JOB_WAITING, "more workers", 50);
    s.at_ms += 7000;
    struct tm_run_watch *half = watch_of(&s);
    assert_int_equal(tm_run_watch_status(half)->state, TM_JOB_WAITING);
    assert_string_equal(tm_run_watch_status(half)->reason, "more workers");
    near(tm_run_watch_status(half)->steps_s, 0);
    tm_run_watch_destroy(half);
    Tmw__GenerationEvent *start = add_start(&s, 2, 40, 1, 2, ids, 2);
    start->rolled_back = 10;
    start->redone = 1;
    s.at_ms += 300;
    add_pause(&s, 2, TM_CHANGED_LOSS, 8000, 100);
    add_progress(&s, 41, NAN, 100);
    struct tm_run_watch *watch = watch_of(&s);
    const struct tm_run_status *got = tm_run_watch_status(watch);
    assert_int_equal(got->state, TM_JOB_TRAINING);
    assert_int_equal(got->committed, 41);
    assert_int_equal(got->rolled_back, 10);
    assert_int_equal(got->redone, 11);
    near(got->waiting_s, 7);
    assert_int_equal(got->pause.count, 1);
    near(got->pause.total_s, 0.9);
    near(got->recovery.max_s, 0.9);
    tm_run_watch_destroy(watch);
    samples_deinit(&s);
}

static void test_stopped_and_gone_on(void **state)
{
    (void)state;
    static const uint64_t ids[] = {1};
    struct samples s;
    samples_init(&s);
    add_job(&s, "x", 100);
    (void)add_start(&s, 1, 0, 1, 1, ids, 1);
    s.at_ms += 2000;
    add_progress(&s, 20, NAN, 100);
    add_state(&s, TM_JOB_STOPPED, "requested", 20);
    s.at_ms += 3600000; /* an hour later */
    add_state(&s, TM_JOB_STARTING, "", 20);
    s.at_ms += 1000;
    (void)add_start(&s, 2, 20, 1, 1, ids, 1);
    add_pause(&s, 2, TM_CHANGED_BEGIN, 3601000, 100);
    struct tm_run_watch *watch = watch_of(&s);
    const struct tm_run_status *got = tm_run_watch_status(watch);
    near(got->wall_s, 3);
    assert_int_equal(got->pause.count, 0);
    assert_true(isnan(got->pause.p50_s));
    assert_int_equal(got->committed, 20);
    tm_run_watch_destroy(watch);
    samples_deinit(&s);
}

/* Without a cloud, workers stand for their instances. */
static void test_no_cloud(void **state)
{
    (void)state;
    struct samples s;
    samples_init(&s);
    (void)add_arrival(&s, 1);
    (void)add_arrival(&s, 2);
    (void)add_loss(&s, 1, false);
    add_arrival(&s, 1)->again = true;
    add_notice(&s, 2, 30000, false);
    (void)add_loss(&s, 2, true);
    struct tm_run_watch *watch = watch_of(&s);
    const struct tm_run_status *got = tm_run_watch_status(watch);
    assert_int_equal(got->arrivals, 2);
    assert_int_equal(got->losses_announced, 1);
    assert_int_equal(got->losses_unannounced, 1);
    assert_int_equal(got->here, 1);
    near(got->bill_usd, 0);
    assert_true(isnan(got->on_demand_usd));
    tm_run_watch_destroy(watch);
    samples_deinit(&s);
}

/* Workers that join before the cloud says so are not counted twice, even if somebody asks between. */
/* Each instance is compared with its own type on-demand: a small one that keeps copies says nothing of large ones. */
static void test_pools_on_demand(void **state)
{
    (void)state;
    static const struct {
        uint64_t large_microusd_h; /* by the catalogue */
        double want_usd;
    } rows[] = {{12240000, 2 * 12.24 + 0.126}, {0, NAN}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct samples s;
        char *names[] = {"large", "keeper on-demand"};
        uint64_t prices[] = {rows[i].large_microusd_h, 0}; /* what is on-demand costs what it costs */
        samples_init(&s);
        add_job(&s, "pools", 100);
        s.events[0]->job->pools = names;
        s.events[0]->job->n_pools = 2;
        s.events[0]->job->on_demand_microusd_h = prices;
        s.events[0]->job->n_on_demand_microusd_h = 2;
        s.events[0]->job->keepers = 2;
        add_price(&s, 1000000, 126000);
        for (uint64_t id = 1; id <= 3; id++) {
            Tmw__Instance *one = add_instance(&s, id, 0, 3600000);
            one->pool = id == 3;
            one->spot = id != 3;
            one->price_microusd_h = id == 3 ? 126000 : 1000000;
            one->released = true;
        }
        static const uint64_t ids[] = {1, 2, 3};
        (void)add_start(&s, 1, 0, 2, 1, ids, 3);
        struct tm_run_watch *watch = watch_of(&s);
        const struct tm_run_status *got = tm_run_watch_status(watch);
        assert_row(isnan(rows[i].want_usd) ? isnan(got->on_demand_usd)
                                           : fabs(got->on_demand_usd - rows[i].want_usd) < 1e-9,
                   "%zu: $%g", i, got->on_demand_usd);
        assert_int_equal(got->spares, 0);
        assert_int_equal(got->instances[2].seat, TM_SEAT_KEEPS);
        tm_run_watch_destroy(watch);
        samples_deinit(&s);
    }
}

/* What gradients cost from region to region is in the bill of its pool and of the job, beside what instances cost; on
 * demand it would cost as much. The last word of a cloud knows nothing of it. */
static void test_traffic(void **state)
{
    (void)state;
    struct samples s;
    char *names[] = {"east", "west"};
    uint64_t prices[] = {3000000, 3000000}, traffic[] = {250000, 500000};
    samples_init(&s);
    add_job(&s, "pools", 100);
    s.events[0]->job->pools = names;
    s.events[0]->job->n_pools = 2;
    s.events[0]->job->on_demand_microusd_h = prices;
    s.events[0]->job->n_on_demand_microusd_h = 2;
    for (uint64_t id = 1; id <= 2; id++) {
        Tmw__Instance *one = add_instance(&s, id, 0, 3600000);
        one->pool = id == 2;
        one->price_microusd_h = one->bill_microusd = 1000000;
        one->released = true;
    }
    add_progress(&s, 100, NAN, 100);
    s.events[s.count - 1]->progress->pool_traffic_microusd = traffic;
    s.events[s.count - 1]->progress->n_pool_traffic_microusd = 2;
    for (int settled = 0; settled < 2; settled++) {
        struct tm_run_watch *watch = watch_of(&s);
        const struct tm_run_status *got = tm_run_watch_status(watch);
        near(got->bill_usd, 2.75);
        near(got->pools[0].bill_usd, 1.25);
        near(got->pools[1].bill_usd, 1.5);
        near(got->on_demand_usd, 6.75);
        near(tm_run_watch_status(watch)->bill_usd, 2.75); /* however often it is asked */
        tm_run_watch_destroy(watch);
        add_progress(&s, 100, NAN, 100);
        s.events[s.count - 1]->progress->settled = true;
        s.events[s.count - 1]->progress->bill_microusd = 2000000;
    }
    samples_deinit(&s);
}

static void test_a_slow_cloud(void **state)
{
    (void)state;
    struct samples s;
    struct tm_error e;
    samples_init(&s);
    struct tm_run_watch *watch = tm_run_watch_create();
    assert_non_null(watch);
    (void)add_arrival(&s, 1);
    (void)add_arrival(&s, 2);
    assert_int_equal(feed(watch, &s, &e), 0);
    assert_int_equal(tm_run_watch_status(watch)->arrivals, 2);
    size_t before = s.count;
    for (uint64_t id = 1; id <= 3; id++)
        (void)add_instance(&s, id, 1000, 0);
    for (size_t i = before; i < s.count; i++)
        assert_int_equal(tm_run_watch_take(watch, i + 1, s.events[i], &e), 0);
    assert_int_equal(tm_run_watch_status(watch)->arrivals, 3);
    tm_run_watch_destroy(watch);
    samples_deinit(&s);
}

static void test_zones_have_names(void **state)
{
    (void)state;
    struct samples s;
    samples_init(&s);
    SAMPLE(&s, body, Tmw__ZoneEvent, zone, ZONE, tmw__zone_event__init);
    body->zone = 1;
    body->name = (char *)"us-east-1b";
    add_instance(&s, 1, 60000, 0)->zone = 1;
    add_instance(&s, 2, 60000, 0)->zone = 2; /* nobody has told its name */
    (void)add_instance(&s, 3, 60000, 0);
    struct tm_run_watch *watch = watch_of(&s);
    const struct tm_run_status *got = tm_run_watch_status(watch);
    assert_string_equal(got->instances[0].zone_name, "us-east-1b");
    assert_string_equal(got->instances[1].zone_name, "");
    assert_string_equal(got->instances[2].zone_name, "");
    tm_run_watch_destroy(watch);
    samples_deinit(&s);
}

static void test_the_loss_curve_is_thinned(void **state)
{
    (void)state;
    struct samples s;
    samples_init(&s);
    for (uint64_t step = 1; step <= 1000; step++)
        add_progress(&s, step, (double)step, 10);
    struct tm_run_watch *watch = watch_of(&s);
    const struct tm_run_status *got = tm_run_watch_status(watch);
    assert_int_equal(got->point_count, 250);
    for (size_t i = 0; i < got->point_count; i++)
        assert_row(got->points[i].step == 1 + 4 * i && got->points[i].loss == (double)got->points[i].step, "point %zu",
                   i);
    near(got->loss, 1000);
    tm_run_watch_destroy(watch);
    samples_deinit(&s);
}

static void test_the_pace(void **state)
{
    (void)state;
    static const uint64_t ids[] = {1};
    struct samples s;
    samples_init(&s);
    (void)add_start(&s, 1, 0, 1, 1, ids, 1);
    for (uint64_t i = 1; i <= 30; i++) { /* 4 a second, then 8 */
        s.at_ms += 1000;
        add_progress(&s, i <= 15 ? 4 * i : 60 + 8 * (i - 15), NAN, 100);
    }
    struct tm_run_watch *watch = watch_of(&s);
    near(tm_run_watch_status(watch)->steps_s, 8);
    struct tm_coordinator_view view = {
        .phase = TM_COORDINATOR_RUNNING, .applied = 180, .waiting = "", .failure = "", .state = TM_JOB_TRAINING};
    assert_int_equal(tm_run_watch_look(watch, &view, s.at_ms + 22000, NULL), 0); /* nothing new: it stands */
    assert_true(tm_run_watch_status(watch)->steps_s < 3);
    tm_run_watch_destroy(watch);
    samples_deinit(&s);
}

/* ---- live ---- */

static void test_looking(void **state)
{
    (void)state;
    struct samples s;
    samples_init(&s);
    samples_small_run(&s, false);
    struct tm_run_watch *watch = watch_of(&s);
    const struct tm_step_loss losses[] = {{.step = 66, .loss = 2.25}};
    Tmw__Instance instance = TMW__INSTANCE__INIT;
    instance.id = 4;
    instance.start_ms = 60000;
    instance.spot = true;
    instance.announced = true;
    instance.notice_left_ms = 1500;
    instance.price_microusd_h = 1000000;
    struct tm_coordinator_view view = {.phase = TM_COORDINATOR_RUNNING,
                                       .state = TM_JOB_TRAINING,
                                       .applied = 66,
                                       .durable_step = 62,
                                       .waiting = "",
                                       .failure = "",
                                       .losses = losses,
                                       .loss_count = 1,
                                       .step_ms = 250,
                                       .bill_microusd = 1234567,
                                       .want_spot = 4,
                                       .instances = &instance,
                                       .instance_count = 1};
    int64_t now_ms = s.at_ms + 1000;
    assert_int_equal(tm_run_watch_look(watch, &view, now_ms, NULL), 0);
    const struct tm_run_status *got = tm_run_watch_status(watch);
    assert_true(got->live);
    assert_int_equal(got->committed, 66);
    assert_int_equal(got->durable, 62);
    near(got->loss, 2.25);
    near(got->step_s, 0.25);
    near(got->bill_usd, 1.234567);
    assert_int_equal(got->noticed, 1);
    assert_int_equal(got->arrivals, 5);
    assert_int_equal(got->instances[3].leaves_utc_ms, now_ms + 1500);
    near(got->wall_s, 12.8);
    /* The cloud was at 735 s when it was last heard; a second at speed 60 has passed since. */
    near(got->on_demand_usd, ((795 - 60) * 2 + 255 + 675 + (795 - 600)) / 3600.0 * 3);
    view.phase = TM_COORDINATOR_COLLECTING;
    view.state = TM_JOB_WAITING;
    view.waiting = "more workers";
    assert_int_equal(tm_run_watch_look(watch, &view, now_ms + 1000, NULL), 0);
    assert_int_equal(tm_run_watch_look(watch, &view, now_ms + 3000, NULL), 0);
    got = tm_run_watch_status(watch);
    assert_int_equal(got->state, TM_JOB_WAITING);
    assert_string_equal(got->reason, "more workers");
    near(got->waiting_s, 2);
    tm_run_watch_destroy(watch);
    samples_deinit(&s);
}

/* ---- words ---- */

static void test_words(void **state)
{
    (void)state;
    static const uint64_t ids[] = {7, 8, 9};
    struct samples s;
    samples_init(&s);
    add_instance(&s, 3, 0, 0)->announced = false;
    add_instance(&s, 3, 0, 3600000)->announced = true;
    (void)add_instance(&s, 3, 0, 1800000);
    add_instance(&s, 3, 0, 1800000)->released = true;
    add_arrival(&s, 5)->again = true;
    (void)add_loss(&s, 5, false);
    add_loss(&s, 5, true)->silent = true;
    add_notice(&s, 5, 120000, false);
    add_notice(&s, 5, 0, true);
    add_fence(&s, 4, TM_CHANGED_STALL);
    Tmw__GenerationEvent *start = add_start(&s, (1ULL << 32) + 4, 17, 1, 2, ids, 3);
    start->redone = 1;
    start->rolled_back = 2;
    add_pause(&s, 4, TM_CHANGED_LOSS, 900, 100);
    add_set(&s, 2, 30);
    add_progress(&s, 31, 2.5, 120);
    add_state(&s, TM_JOB_STOPPED, "requested", 31);
    add_failed(&s, "ValueError: \x1b[31mred", 5, 32);
    add_note(&s, "a copy is damaged", 5, 2);
    add_finished(&s, 100);
    static const struct {
        const char *words;
        const char *kind;
        bool quiet;
    } rows[] = {
        {"instance 3 (spot, $1/h) has arrived", "instance", true},
        {"instance 3 (spot, $1/h) was preempted, with notice; it cost $1", "instance", false},
        {"instance 3 (spot, $1/h) was preempted, without notice; it cost $0.5", "instance", false},
        {"instance 3 (spot, $1/h) was released; it cost $0.5", "instance", false},
        {"worker 5 rejoined", "arrival", false},
        {"worker 5 is gone: its process ended", "loss", false},
        {"worker 5 is gone, as announced: it does not answer", "loss", false},
        {"instance 5 has a notice: it will be preempted in 120 s", "notice", false},
        {"instance 5 stays: its notice was withdrawn", "notice", false},
        {"generation 4 is forming: stall", "generation", true},
        {"generation 4 trains from step 17: 1 x 2 and 1 spare; 1 step redone; 2 steps rolled back", "generation",
         false},
        {"training continues after a pause of 0.800 s (loss)", "pause", false},
        {"step 30 is durable (copy set 2)", "set_whole", true},
        {"step 31, loss 2.5000, 120 ms per step", "progress", true},
        {"the job is stopped at step 31: requested", "state", false},
        {"failed at step 32 on worker 5: ValueError: ?[31mred", "failed", false},
        {"a copy is damaged (worker 5) (2)", "note", false},
        {"finished: step 100 is the last", "finished_step", true},
    };
    assert_int_equal(s.count, TM_COUNT(rows));
    for (size_t i = 0; i < s.count; i++) {
        struct tm_text words;
        tm_text_init(&words, 4096);
        tm_run_event_words(s.events[i], &words);
        assert_row_string(rows[i].words, tm_text_string(&words), rows[i].words);
        assert_row_string(rows[i].words, tm_run_event_kind(s.events[i]), rows[i].kind);
        assert_row(tm_run_event_quiet(s.events[i]) == rows[i].quiet, "%s: quiet", rows[i].words);
        tm_text_deinit(&words);
    }
    samples_deinit(&s);
}

/* Whatever the schema has, there are words for it. */
static void test_every_kind_has_words(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *schema = &tmw__record_event__descriptor;
    for (unsigned i = 0; i < schema->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &schema->fields[i];
        uint64_t memory[64] = {0};
        static char text[] = "text";
        Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
        struct tm_text words;
        if (strcmp(field->name, "at_ms") == 0) continue;
        event.body_case = (Tmw__RecordEvent__BodyCase)field->id;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            const ProtobufCMessageDescriptor *body = field->descriptor;
            assert_true(body->sizeof_message <= sizeof memory);
            body->message_init((ProtobufCMessage *)memory);
            event.job = (Tmw__JobEvent *)memory; /* all bodies lie in one place */
            if (event.body_case == TMW__RECORD_EVENT__BODY_NOTE) event.note->what = text;
        } else if (field->type == PROTOBUF_C_TYPE_STRING) {
            event.kernel_class = text;
        }
        tm_text_init(&words, 4096);
        tm_run_event_words(&event, &words);
        assert_row(words.length > 0 && strstr(words.data, "does not know") == NULL, "%s", field->name);
        tm_text_deinit(&words);
    }
}

static void test_events_as_json(void **state)
{
    (void)state;
    struct samples s;
    struct tm_text text;
    struct tm_jsonout json;
    samples_init(&s);
    tm_text_init(&text, 1 << 20);
    add_loss(&s, 5, true)->incarnation = 0xfedcba9876543210;
    add_set(&s, 2, 30);
    for (size_t i = 0; i < s.count; i++) {
        tm_jsonout_init_line(&json, &text);
        tm_run_event_write(i + 1, s.events[i], &json);
    }
    assert_string_equal(
        tm_text_string(&text),
        "{\"sequence\": 1, \"utc_ms\": 1700000000000, \"kind\": \"loss\", \"quiet\": false, "
        "\"text\": \"worker 5 is gone, as announced: its process ended\", \"loss\": {\"instance\": 5, "
        "\"incarnation\": \"fedcba9876543210\", \"announced\": true, \"silent\": false, \"seated\": true, "
        "\"worker\": 5}}\n"
        "{\"sequence\": 2, \"utc_ms\": 1700000000000, \"kind\": \"set_whole\", \"quiet\": true, "
        "\"text\": \"step 30 is durable (copy set 2)\", \"set_whole\": {\"set\": 2, \"generation\": 0, \"step\": 30, "
        "\"took_ms\": 0}, \"holders\": [1, 2]}\n");
    tm_text_clear(&text); /* all kinds are JSON */
    s.count = 0;
    samples_small_run(&s, true);
    for (size_t i = 0; i < s.count; i++) {
        json_t *root = NULL;
        struct tm_error e;
        tm_text_clear(&text);
        tm_jsonout_init_line(&json, &text);
        tm_run_event_write(i + 1, s.events[i], &json);
        if (tm_json_load("event", text.data, text.length, &root, &e) != 0) fail_msg("%s: %s", e.text, text.data);
        assert_non_null(json_object_get(root, json_string_value(json_object_get(root, "kind"))));
        json_decref(root);
    }
    tm_text_deinit(&text);
    samples_deinit(&s);
}

/* ---- JSON of the whole ---- */

static void write_text(const struct tm_run_status *status, bool summary, struct tm_text *out)
{
    struct tm_jsonout json;
    tm_text_init(out, 8 << 20);
    tm_jsonout_init(&json, out);
    (summary ? tm_run_summary_write : tm_run_status_write)(status, &json);
    assert_int_equal(tm_text_status(out, NULL), 0);
}

/* A long call, as with deep folders, comes back whole: in the record, in the status, and as JSON. */
static void test_a_long_command(void **state)
{
    (void)state;
    static struct tm_run_job job;
    (void)snprintf(job.name, sizeof job.name, "long");
    (void)snprintf(job.command, sizeof job.command, "tidemill run ");
    while (strlen(job.command) < TM_STATUS_COMMAND_MAX - 48)
        (void)snprintf(job.command + strlen(job.command), 40, "/deep/f\xc3\xb6lder %zu", strlen(job.command));
    struct tm_text packed;
    struct tm_arena arena;
    struct tm_error e = {0};
    Tmw__RecordEvent *event = NULL;
    struct tm_run_watch *watch = NULL;
    tm_text_init(&packed, 1 << 16);
    tm_arena_init(&arena, 1 << 20);
    tm_run_job__pack(&job, SAMPLES_BEGIN_MS, &packed);
    assert_row(tm_record_event_unpack(packed.data, packed.length, &arena, &event, &e) == 0, "%s", e.text);
    assert_true(event->job->n_command > 10);
    watch = tm_run_watch_create();
    assert_non_null(watch);
    assert_int_equal(tm_run_watch_take(watch, 1, event, &e), 0);
    assert_string_equal(tm_run_watch_status(watch)->job.command, job.command);
    tm_run_watch_destroy(watch);
    tm_arena_deinit(&arena);
    tm_text_deinit(&packed);
}

static void test_status_there_and_back(void **state)
{
    (void)state;
    for (int to_the_end = 0; to_the_end < 2; to_the_end++) {
        struct samples s;
        struct tm_text first;
        struct tm_text second;
        struct tm_run_status read;
        struct tm_error e;
        samples_init(&s);
        samples_small_run(&s, to_the_end != 0);
        struct tm_run_watch *watch = watch_of(&s);
        write_text(tm_run_watch_status(watch), false, &first);
        if (tm_run_status_read("status", first.data, first.length, &read, &e) != 0) fail_msg("%s", e.text);
        write_text(&read, false, &second);
        assert_string_equal(first.data, second.data);
        tm_run_status_deinit(&read);
        tm_text_deinit(&first);
        tm_text_deinit(&second);
        tm_run_watch_destroy(watch);
        samples_deinit(&s);
    }
}

static void test_wrong_status(void **state)
{
    (void)state;
    static const struct {
        const char *from;
        const char *to;
        const char *piece;
    } rows[] = {
        {"\"committed\": 100", "\"committed\": -1", "\"committed\""},
        {"\"committed\": 100", "\"comitted\": 100", "\"committed\""},
        {"\"state\": \"finished\"", "\"state\": \"tired\"", "\"state\""},
        {"\"live\": false", "\"live\": 0", "\"live\""},
        {"\"stages\": 2", "\"stages\": 3", "\"layout\""},
        {"\"wall_s\": 19.8", "\"wall_s\": \"long\"", "\"wall_s\""},
        {"\"cause\": \"loss\"", "\"cause\": \"loos\"", "\"cause\""},
        {"\"seat\": \"spare\"", "\"seat\": 7", "\"seat\""},
        {"{", "[", "status"},
    };
    struct samples s;
    struct tm_text text;
    samples_init(&s);
    samples_small_run(&s, true);
    struct tm_run_watch *watch = watch_of(&s);
    write_text(tm_run_watch_status(watch), false, &text);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text wrong;
        struct tm_run_status read;
        struct tm_error e = {.text = ""};
        const char *at = strstr(text.data, rows[i].from);
        assert_row(at != NULL, "%s", rows[i].from);
        tm_text_init(&wrong, 8 << 20);
        tm_text_append(&wrong, text.data, (size_t)(at - text.data));
        tm_text_puts(&wrong, rows[i].to);
        tm_text_puts(&wrong, at + strlen(rows[i].from));
        assert_row(tm_run_status_read("status", wrong.data, wrong.length, &read, &e) == -(int)TM_EINPUT, "%s",
                   rows[i].to);
        assert_error_has(e, rows[i].piece);
        tm_text_deinit(&wrong);
    }
    tm_text_deinit(&text);
    tm_run_watch_destroy(watch);
    samples_deinit(&s);
}

static void test_summary(void **state)
{
    (void)state;
    static const char *const keys[] = {"job",
                                       "state",
                                       "steps_committed",
                                       "steps_redone",
                                       "steps_rolled_back",
                                       "samples_committed",
                                       "final_loss",
                                       "weights_hash",
                                       "generations",
                                       "losses_announced",
                                       "losses_unannounced",
                                       "arrivals",
                                       "pause_s",
                                       "recovery_s",
                                       "bill_usd",
                                       "on_demand_usd",
                                       "wall_s"};
    struct samples s;
    struct tm_text text;
    json_t *root = NULL;
    samples_init(&s);
    samples_small_run(&s, true);
    struct tm_run_watch *watch = watch_of(&s);
    write_text(tm_run_watch_status(watch), true, &text);
    assert_int_equal(tm_json_load("summary", text.data, text.length, &root, NULL), 0);
    assert_int_equal(json_object_size(root), TM_COUNT(keys));
    for (size_t i = 0; i < TM_COUNT(keys); i++)
        assert_row(json_object_get(root, keys[i]) != NULL, "%s", keys[i]);
    assert_int_equal(json_integer_value(json_object_get(root, "samples_committed")), 3200);
    assert_int_equal(json_object_size(json_object_get(root, "pause_s")), 3);
    assert_int_equal(json_object_size(json_object_get(root, "recovery_s")), 2);
    json_decref(root);
    tm_text_deinit(&text);
    tm_run_watch_destroy(watch);
    samples_deinit(&s);
}

/* ---- memory ---- */

static int all_of_it(const struct samples *s, struct tm_text *text)
{
    struct tm_error e;
    struct tm_run_watch *watch = tm_run_watch_create();
    int rc = watch == NULL ? -(int)TM_ENOMEM : feed(watch, s, &e);
    if (rc == 0) {
        struct tm_jsonout json;
        struct tm_run_status read;
        tm_text_init(text, 8 << 20);
        tm_jsonout_init(&json, text);
        tm_run_status_write(tm_run_watch_status(watch), &json);
        rc = tm_text_status(text, NULL);
        if (rc == 0) rc = tm_run_status_read("status", text->data, text->length, &read, &e);
        if (rc == 0) tm_run_status_deinit(&read);
        tm_text_deinit(text);
    }
    tm_run_watch_destroy(watch);
    return rc;
}

static void test_memory(void **state)
{
    (void)state;
    struct samples s;
    struct tm_text text;
    samples_init(&s);
    samples_small_run(&s, true);
    TM_FAIL_EACH_ALLOC(rc = all_of_it(&s, &text));
    samples_deinit(&s);
}

/* ---- a record whose coordinator was gone before the instances were ---- */

static void put_instance(const char *path, uint64_t id, int64_t end_ms, uint64_t bill_microusd)
{
    struct tm_record *record = NULL;
    struct tm_text packed;
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__Instance instance = TMW__INSTANCE__INIT;
    instance.id = id;
    instance.start_ms = 1000;
    instance.end_ms = end_ms;
    instance.bill_microusd = bill_microusd;
    event.body_case = TMW__RECORD_EVENT__BODY_INSTANCE;
    event.instance = &instance;
    tm_text_init(&packed, 1 << 16);
    tm_record_event_pack(&event, &packed);
    assert_int_equal(tm_record_open(path, &record, NULL), 0);
    assert_int_equal(record->append(record, packed.data, packed.length, true, NULL, NULL), 0);
    tm_record_close(record);
    tm_text_deinit(&packed);
}

static uint64_t last_of(const char *path)
{
    struct tm_record *record = NULL;
    assert_int_equal(tm_record_open_read(path, &record, NULL), 0);
    uint64_t last = record->last(record);
    tm_record_close(record);
    return last;
}

static void test_settling(void **state)
{
    (void)state;
    char path[] = "/tmp/tidemill-settle-XXXXXX";
    struct tm_error e;
    int handle = mkstemp(path);
    assert_true(handle >= 0);
    (void)close(handle);
    put_instance(path, 1, 0, 10);    /* has ended since */
    put_instance(path, 2, 9000, 80); /* known to have ended */
    put_instance(path, 3, 9000, 70); /* the same, and an old word says that it is there */
    Tmw__Instance told[4];
    Tmw__Instance *list[4];
    static const struct {
        int64_t end_ms;
        uint64_t bill_microusd;
    } rows[] = {{9500, 95}, {9000, 80}, {0, 60}, {9700, 5}};
    for (size_t i = 0; i < 4; i++) {
        tmw__instance__init(&told[i]);
        told[i].id = i + 1;
        told[i].start_ms = 1000;
        told[i].end_ms = rows[i].end_ms;
        told[i].bill_microusd = rows[i].bill_microusd;
        told[i].released = true;
        list[i] = &told[i];
    }
    TM_FAIL_EACH_ALLOC(rc = tm_run_record__settle(path, 50, list, 4, NULL, &e));
    assert_int_equal(last_of(path), 5); /* 1 and 4 are new */
    assert_row(tm_run_record__settle(path, 60, list, 4, NULL, &e) == 0, "%s", e.text);
    assert_int_equal(last_of(path), 5);
    struct tm_run_watch *watch = tm_run_watch_create();
    assert_row(tm_run_record__watch(path, watch, &e) == 0, "%s", e.text);
    const struct tm_run_status *status = tm_run_watch_status(watch);
    assert_int_equal(status->here, 0);
    assert_true(fabs(status->bill_usd * 1e6 - (95 + 80 + 70 + 5)) < 1e-3);
    tm_run_watch_destroy(watch);
    /* the cloud asks less in the end; said once */
    static const struct tm_run_bill bill = {200, 20};
    for (int i = 0; i < 2; i++)
        assert_int_equal(tm_run_record__settle(path, 70, list, 4, &bill, &e), 0);
    assert_int_equal(last_of(path), 6);
    watch = tm_run_watch_create();
    assert_int_equal(tm_run_record__watch(path, watch, &e), 0);
    assert_true(fabs(tm_run_watch_status(watch)->bill_usd * 1e6 - 200) < 1e-3);
    tm_run_watch_destroy(watch);
    (void)remove(path);
}

TM_TEST_MAIN(TM_TEST(test_settling), TM_TEST(test_a_small_run), TM_TEST(test_halfway_and_again),
             TM_TEST(test_waiting_and_rolling_back), TM_TEST(test_stopped_and_gone_on), TM_TEST(test_no_cloud),
             TM_TEST(test_pools_on_demand), TM_TEST(test_traffic), TM_TEST(test_a_slow_cloud),
             TM_TEST(test_zones_have_names), TM_TEST(test_the_loss_curve_is_thinned), TM_TEST(test_the_pace),
             TM_TEST(test_looking), TM_TEST(test_words), TM_TEST(test_every_kind_has_words),
             TM_TEST(test_events_as_json), TM_TEST(test_a_long_command), TM_TEST(test_status_there_and_back),
             TM_TEST(test_wrong_status), TM_TEST(test_summary), TM_TEST(test_memory))
