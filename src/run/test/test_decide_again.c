/* Recorded decisions, made again: the same policy differs in nothing, another one somewhere, and what the record lacks
 * is not judged. */
#include "run/decide_again.h"

#include "layout/recorded.h"
#include "layout/test/layout_helpers.h"
#include "policy/facts_record.h"

#define COST                                                                                                           \
    "tidemill-cost: 1\nkind: paper\ntransfer_us: {1: 100, 1000000000: 20000000}\nstart_s: 90\n"                        \
    "models: {test: {stages_max: 3, process_ms: 200, rendezvous_ms: 300}}\n"

enum { EVENTS_MAX = 128, COUNT = 40, COORDINATOR = 77 };

/* A record as a coordinator writes it, packed. */
struct written {
    struct tm_text events[EVENTS_MAX];
    size_t count;
    uint64_t number;
};

static ProtobufCBinaryData bytes_of(struct tm_text *text)
{
    return (ProtobufCBinaryData){.len = text->length, .data = (uint8_t *)text->data};
}

static void put(struct written *w, Tmw__RecordEvent *event)
{
    assert_true(w->count < EVENTS_MAX);
    tm_text_init(&w->events[w->count], 1 << 20);
    tm_record_event_pack(event, &w->events[w->count]);
    assert_int_equal(w->events[w->count++].failed, 0);
}

static void put_policy(struct written *w, const struct test_job *job, const struct tm_policy_options *options,
                       const char *name)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__PolicyEvent body = TMW__POLICY_EVENT__INIT;
    struct tm_text texts[4];
    ProtobufCBinaryData pieces[2];
    char copy[32];
    for (size_t i = 0; i < TM_COUNT(texts); i++)
        tm_text_init(&texts[i], 1 << 20);
    tm_policy_options_record(options, &texts[0]);
    tm_layouts_record(&job->layouts, &texts[1]);
    tm_cost_record(&job->cost, &texts[2]);
    (void)snprintf(copy, sizeof copy, "%s", name);
    body.coordinator = COORDINATOR;
    body.name = copy;
    body.options = bytes_of(&texts[0]);
    body.cost = bytes_of(&texts[2]);
    pieces[0] = bytes_of(&texts[1]); /* in two pieces, cut anywhere */
    pieces[0].len /= 2;
    pieces[1] = (ProtobufCBinaryData){.len = texts[1].length - pieces[0].len, .data = pieces[0].data + pieces[0].len};
    body.layouts = pieces;
    body.n_layouts = 2;
    event.body_case = TMW__RECORD_EVENT__BODY_POLICY;
    event.policy = &body;
    put(w, &event);
    w->number = 0;
    for (size_t i = 0; i < TM_COUNT(texts); i++)
        tm_text_deinit(&texts[i]);
}

static void put_decision(struct written *w, Tmw__DecisionEvent *body)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    body->coordinator = COORDINATOR;
    body->number = ++w->number;
    event.at_ms = (int64_t)w->number * 1000;
    event.body_case = TMW__RECORD_EVENT__BODY_DECISION;
    event.decision = body;
    put(w, &event);
}

static void put_decided(struct written *w, const struct tm_facts *facts, const struct tm_decision *decision)
{
    Tmw__DecisionEvent body = TMW__DECISION_EVENT__INIT;
    struct tm_text asked, answered;
    tm_text_init(&asked, 1 << 16);
    tm_text_init(&answered, 1 << 16);
    tm_facts_record(facts, &asked);
    tm_decision_record(decision, &answered);
    body.facts = bytes_of(&asked);
    body.decision = bytes_of(&answered);
    put_decision(w, &body);
    tm_text_deinit(&asked);
    tm_text_deinit(&answered);
}

/* The fleet of moment i: it comes and goes. */
static struct tm_facts facts_at(int i, int standing, int before)
{
    int after = 2 + (i * 7) % 5;
    struct tm_facts facts = {.now_s = 61.7 * i,
                             .speed = 1,
                             .first = i == 0,
                             .event = after != before,
                             .before = before,
                             .lost = after < before ? before - after : 0,
                             .after = after,
                             .noticed = true,
                             .standing = {standing, 0},
                             .pool_count = 1,
                             .progress = {.samples_left = 1e5 / 3 - i, .samples_per_step = 8, .efficiency = NAN},
                             .copies = {.since_s = -1, .uncopied = i % 2 == 0},
                             .losses = {1e-4 / 7, 0.3, 0.1},
                             .limits = {.workers_min = 1, .workers_max = 6, .bill_usd = 0.01 * i}};
    facts.pools[0] = (struct tm_pool){.price_usd_h = i == 3 ? NAN : 0.33, .here = after, .offered = -1};
    return facts;
}

/* A job that "tidemill" decides. `wrong`: so many-th decision is put down otherwise than it was made; 0: none. */
static void write_job(struct written *w, struct test_job *job, int wrong)
{
    struct tm_policy_options options = {.interval_s = 60, .horizon = 12, .live = true};
    struct tm_policy *policy = NULL;
    struct tm_error e;
    int standing = TM_LAYOUT_PAUSE, before = 0;
    *w = (struct written){.count = 0};
    put_policy(w, job, &options, "tidemill");
    assert_int_equal(
        tm_policy_create(tm_policy_find("tidemill"), &job->layouts, job->migrations, &job->cost, &options, &policy, &e),
        0);
    for (int i = 0; i < COUNT; i++) {
        struct tm_facts facts = facts_at(i, standing, before);
        struct tm_decision decision;
        uint32_t observed[] = {(uint32_t)facts.after, facts.after > before ? (uint32_t)(facts.after - before) : 0,
                               (uint32_t)facts.lost};
        Tmw__DecisionEvent body = TMW__DECISION_EVENT__INIT;
        body.n_observed = 3;
        body.observed = observed;
        put_decision(w, &body);
        assert_int_equal(tm_policy_observe(policy, (int)observed[0], (int)observed[1], (int)observed[2], &e), 0);
        if (i % 9 == 4) {
            struct tm_text text;
            Tmw__DecisionEvent hint = TMW__DECISION_EVENT__INIT;
            tm_text_init(&text, 1 << 10);
            tm_hint_record(1, 30.5, &text);
            hint.hint = bytes_of(&text);
            put_decision(w, &hint);
            tm_policy_hint(policy, 1, 30.5);
            tm_text_deinit(&text);
        }
        assert_row(tm_policy_decide(policy, &facts, &decision, &e) == 0, "%d: %s", i, e.text);
        struct tm_decision told = decision;
        if (i + 1 == wrong) told.want_spot++;
        put_decided(w, &facts, &told);
        standing = decision.layout;
        before = facts.after;
    }
    tm_policy_destroy(policy);
}

static void written_deinit(struct written *w)
{
    for (size_t i = 0; i < w->count; i++)
        tm_text_deinit(&w->events[i]);
}

/* `leave_out`: the event with this place is not there; 0: all are. */
static int again(const struct written *w, const char *policy, size_t leave_out, struct tm_decided_again *out,
                 struct tm_error *e)
{
    struct tm_decide_again *replay = NULL;
    int rc = tm_decide_again_create(policy == NULL ? NULL : tm_policy_find(policy), &replay, e);
    for (size_t i = 0; rc == 0 && i < w->count; i++) {
        struct tm_arena arena;
        Tmw__RecordEvent *event = NULL;
        if (i == leave_out && i > 0) continue;
        tm_arena_init(&arena, 16 << 20);
        rc = tm_record_event_unpack(w->events[i].data, w->events[i].length, &arena, &event, e);
        if (rc == 0) rc = tm_decide_again_take(replay, i + 1, event, e);
        tm_arena_deinit(&arena);
    }
    if (rc == 0) *out = *tm_decide_again_result(replay);
    tm_decide_again_destroy(replay);
    return rc;
}

static struct test_job *make_job(void)
{
    return job_make(6, false, COST, 6, test_speed);
}

/* A record of COUNT decisions, and what comes out when they are made again. */
struct replayed {
    struct test_job *job;
    struct written written;
    struct tm_decided_again result;
    struct tm_error e;
};

/* The decision of that number is another one in the record; 0: none is. */
static void begin(struct replayed *a, int spoiled)
{
    a->job = make_job();
    write_job(&a->written, a->job, spoiled);
}

static int set_up(void **state)
{
    *state = tm_calloc(1, sizeof(struct replayed));
    return *state == NULL ? -1 : 0;
}

static int tear_down(void **state)
{
    struct replayed *a = *state;
    written_deinit(&a->written);
    job_drop(a->job);
    tm_free(a);
    return 0;
}

static void test_the_same_again(void **state)
{
    struct replayed *a = *state;
    begin(a, 0);
    assert_row(again(&a->written, NULL, 0, &a->result, &a->e) == 0, "%s", a->e.text);
    assert_int_equal(a->result.decisions, COUNT);
    assert_int_equal(a->result.different, 0);
    assert_int_equal(a->result.unknown, 0);
    assert_int_equal(a->result.policies, 1);
}

static void test_what_differs_is_found(void **state)
{
    struct replayed *a = *state;
    begin(a, 17);
    assert_int_equal(again(&a->written, NULL, 0, &a->result, &a->e), 0);
    assert_int_equal(a->result.different, 1);
    assert_int_equal(a->result.first.index, 17);
    assert_string_equal(a->result.first.figure, "want_spot");
    assert_string_equal(a->result.first.policy, "tidemill");
    assert_int_equal(a->result.first.was.want_spot, a->result.first.would.want_spot + 1);
}

static void test_another_policy(void **state)
{
    struct replayed *a = *state;
    begin(a, 0);
    assert_int_equal(again(&a->written, "tidemill", 0, &a->result, &a->e), 0);
    assert_int_equal(a->result.different, 0);
    assert_int_equal(again(&a->written, "checkpoint", 0, &a->result, &a->e), 0);
    assert_int_equal(a->result.decisions, COUNT);
    assert_true(a->result.different > 0);
    assert_int_equal(again(&a->written, "oracle", 0, &a->result, &a->e), -(int)TM_EUSAGE);
}

/* The policy is not what it was: nothing is said of what follows, until the next coordinator. */
static void test_a_gap(void **state)
{
    struct replayed *a = *state;
    begin(a, 0);
    assert_int_equal(again(&a->written, NULL, 11, &a->result, &a->e), 0);
    assert_true(a->result.decisions > 0 && a->result.decisions < COUNT / 2);
    assert_true(a->result.decisions + a->result.unknown >= COUNT - 1);
    assert_int_equal(a->result.different, 0);
}

static void test_nonsense(void **state)
{
    (void)state;
    static struct written w;
    static struct tm_decided_again result;
    static const char *const facts[] = {"now_s 1\nspeed 1\nafter 7000\n", "speed 1\nstanding.layout 3000\n",
                                        "speed 0\nbefore 1\n", "speed 1\nbefore 2\nlost 3\n", "what 1\n"};
    struct test_job *job = make_job();
    struct tm_policy_options options = {.interval_s = 60, .horizon = 12};
    for (size_t i = 0; i < TM_COUNT(facts); i++) {
        struct tm_error e = {.text = ""};
        Tmw__DecisionEvent body = TMW__DECISION_EVENT__INIT;
        struct tm_text text;
        w = (struct written){.count = 0};
        tm_text_init(&text, 1 << 10);
        tm_text_puts(&text, facts[i]);
        put_policy(&w, job, &options, "tidemill");
        body.facts = bytes_of(&text);
        put_decision(&w, &body);
        assert_row(again(&w, NULL, 0, &result, &e) == -(int)TM_EINPUT && strstr(e.text, "event 2") != NULL, "%s: %s",
                   facts[i], e.text);
        tm_text_deinit(&text);
        written_deinit(&w);
    }
    struct tm_error e = {.text = ""};
    w = (struct written){.count = 0};
    put_policy(&w, job, &options, "unheard-of");
    assert_int_equal(again(&w, NULL, 0, &result, &e), -(int)TM_EINPUT);
    written_deinit(&w);
    job_drop(job);
}

static void test_memory(void **state)
{
    struct replayed *a = *state;
    begin(a, 0);
    size_t all = a->written.count;
    a->written.count = 12;
    TM_FAIL_EACH_ALLOC({ rc = again(&a->written, NULL, 0, &a->result, &a->e); });
    a->written.count = all;
}

#define AGAIN(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
TM_TEST_MAIN(AGAIN(test_the_same_again), AGAIN(test_what_differs_is_found), AGAIN(test_another_policy),
             AGAIN(test_a_gap), TM_TEST(test_nonsense), AGAIN(test_memory))
