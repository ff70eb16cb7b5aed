/* Records made by hand, event by event, for tests and for the program that makes a record file for them. */
#ifndef TM_RUN_TEST_RECORD_SAMPLES_H
#define TM_RUN_TEST_RECORD_SAMPLES_H

#include "base/arena.h"
#include "run/run_status.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { SAMPLES_MAX = 1024 };

struct samples {
    struct tm_arena arena;
    Tmw__RecordEvent *events[SAMPLES_MAX];
    size_t count;
    int64_t at_ms; /* of the next event, UTC */
};

#define SAMPLES_BEGIN_MS 1700000000000LL

static inline void samples_init(struct samples *s)
{
    *s = (struct samples){.at_ms = SAMPLES_BEGIN_MS};
    tm_arena_init(&s->arena, 64 << 20);
}

static inline void samples_deinit(struct samples *s)
{
    tm_arena_deinit(&s->arena);
}

static inline void *samples_alloc(struct samples *s, size_t size)
{
    void *memory = tm_arena_alloc(&s->arena, size);
    assert(memory != NULL);
    return memory;
}

static inline char *samples_text(struct samples *s, const char *text)
{
    char *copy = samples_alloc(s, strlen(text) + 1);
    memcpy(copy, text, strlen(text) + 1);
    return copy;
}

static inline Tmw__RecordEvent *samples_event(struct samples *s)
{
    assert(s->count < SAMPLES_MAX);
    Tmw__RecordEvent *event = samples_alloc(s, sizeof *event);
    tmw__record_event__init(event);
    event->at_ms = s->at_ms;
    s->events[s->count++] = event;
    return event;
}

/* A new event, and its body in `variable`. */
#define SAMPLE(s, variable, type, field, NAME, init)                                                                   \
    type *variable = samples_alloc((s), sizeof *(variable));                                                           \
    do {                                                                                                               \
        init(variable);                                                                                                \
        Tmw__RecordEvent *made_event = samples_event(s);                                                               \
        made_event->body_case = TMW__RECORD_EVENT__BODY_##NAME;                                                        \
        made_event->field = (variable);                                                                                \
    } while (0)

static inline void add_job(struct samples *s, const char *name, uint64_t steps)
{
    SAMPLE(s, body, Tmw__JobEvent, job, JOB, tmw__job_event__init);
    body->name = samples_text(s, name);
    body->n_command = 1;
    body->command = samples_alloc(s, sizeof *body->command);
    body->command[0] = samples_text(s, "tidemill run job.yaml -y");
    body->steps = steps;
    body->samples_per_step = 32;
    body->tokens_per_step = 32 * 64;
    body->layers = 4;
    body->micro_batches = 8;
    body->speed = 60;
}

static inline void add_price(struct samples *s, uint64_t spot_microusd_h, uint64_t on_demand_microusd_h)
{
    SAMPLE(s, body, Tmw__PriceEvent, price, PRICE, tmw__price_event__init);
    body->spot_microusd_h = spot_microusd_h;
    body->on_demand_microusd_h = on_demand_microusd_h;
}

static inline void add_rent(struct samples *s, uint32_t want_spot)
{
    SAMPLE(s, body, Tmw__RentEvent, rent, RENT, tmw__rent_event__init);
    body->want_spot = want_spot;
}

/* A spot instance at $1 an hour; times are the cloud's. */
static inline Tmw__Instance *add_instance(struct samples *s, uint64_t id, int64_t start_ms, int64_t end_ms)
{
    SAMPLE(s, body, Tmw__Instance, instance, INSTANCE, tmw__instance__init);
    body->id = id;
    body->start_ms = start_ms;
    body->end_ms = end_ms;
    body->price_microusd_h = 1000000;
    body->spot = true;
    body->bill_microusd = (uint64_t)(end_ms > start_ms ? end_ms - start_ms : 0) * 1000000 / 3600000;
    return body;
}

static inline Tmw__ArrivalEvent *add_arrival(struct samples *s, uint64_t id)
{
    SAMPLE(s, body, Tmw__ArrivalEvent, arrival, ARRIVAL, tmw__arrival_event__init);
    body->instance = id;
    body->incarnation = id << 40;
    return body;
}

static inline Tmw__LossEvent *add_loss(struct samples *s, uint64_t id, bool announced)
{
    SAMPLE(s, body, Tmw__LossEvent, loss, LOSS, tmw__loss_event__init);
    body->instance = id;
    body->worker = id;
    body->announced = announced;
    body->seated = true;
    return body;
}

static inline void add_notice(struct samples *s, uint64_t id, uint64_t left_ms, bool taken_back)
{
    SAMPLE(s, body, Tmw__NoticeEvent, notice, NOTICE, tmw__notice_event__init);
    body->instance = id;
    body->left_ms = left_ms;
    body->taken_back = taken_back;
}

static inline void add_fence(struct samples *s, uint64_t generation, enum tm_change_cause cause)
{
    SAMPLE(s, body, Tmw__GenerationEvent, generation, GENERATION, tmw__generation_event__init);
    body->generation = generation;
    body->cause = cause;
}

/* Members 1 to n in order of `ids`: seats pipeline by pipeline, the rest are spares. Layers are 4. */
static inline Tmw__GenerationEvent *add_start(struct samples *s, uint64_t generation, uint64_t base, uint32_t pipelines,
                                              uint32_t stages, const uint64_t *ids, size_t n)
{
    SAMPLE(s, body, Tmw__GenerationEvent, generation, GENERATION, tmw__generation_event__init);
    Tmw__Layout *layout = samples_alloc(s, sizeof *layout);
    tmw__layout__init(layout);
    body->generation = generation;
    body->base_step = base;
    body->started = true;
    body->layout = layout;
    layout->pipelines = pipelines;
    layout->n_stages = stages;
    layout->stages = samples_alloc(s, stages * sizeof *layout->stages);
    for (uint32_t i = 0; i < stages; i++) {
        layout->stages[i] = samples_alloc(s, sizeof **layout->stages);
        tmw__stage__init(layout->stages[i]);
        layout->stages[i]->first_layer = i * 4 / stages;
        layout->stages[i]->layer_count = (i + 1) * 4 / stages - i * 4 / stages;
    }
    layout->n_members = n;
    layout->members = samples_alloc(s, n * sizeof *layout->members);
    for (size_t i = 0; i < n; i++) {
        Tmw__Member *member = samples_alloc(s, sizeof *member);
        tmw__member__init(member);
        member->id = ids[i];
        member->spare = i >= (size_t)pipelines * stages;
        member->pipeline = (uint32_t)i / stages;
        member->stage = (uint32_t)i % stages;
        layout->members[i] = member;
    }
    layout->n_micro_batches = pipelines;
    layout->micro_batches = samples_alloc(s, pipelines * sizeof *layout->micro_batches);
    for (uint32_t p = 0; p < pipelines; p++)
        layout->micro_batches[p] = (p + 1) * 8 / pipelines - p * 8 / pipelines;
    return body;
}

static inline void add_pause(struct samples *s, uint64_t generation, enum tm_change_cause cause, uint64_t pause_ms,
                             uint64_t step_ms)
{
    SAMPLE(s, body, Tmw__PauseEvent, pause, PAUSE, tmw__pause_event__init);
    body->generation = generation;
    body->cause = cause;
    body->pause_ms = pause_ms;
    body->step_ms = step_ms;
}

static inline void add_progress(struct samples *s, uint64_t step, double loss, uint32_t step_ms)
{
    SAMPLE(s, body, Tmw__ProgressEvent, progress, PROGRESS, tmw__progress_event__init);
    body->step = step;
    body->loss = isnan(loss) ? 0 : loss;
    body->loss_known = !isnan(loss);
    body->step_ms = step_ms;
}

/* Every layer on two holders. */
static inline void add_set(struct samples *s, uint64_t set, uint64_t step)
{
    enum { PARTS = 8 };
    SAMPLE(s, body, Tmw__CopySet, set_whole, SET_WHOLE, tmw__copy_set__init);
    body->set = set;
    body->step = step;
    body->n_parts = PARTS;
    body->parts = samples_alloc(s, PARTS * sizeof *body->parts);
    for (uint32_t i = 0; i < PARTS; i++) {
        Tmw__CopyPart *part = samples_alloc(s, sizeof *part);
        tmw__copy_part__init(part);
        part->set = set;
        part->step = step;
        part->layer = i / 2;
        part->hash_low = step * 1000 + i / 2;
        part->hash_high = ~(uint64_t)step;
        part->holder = 1 + i % 2;
        body->parts[i] = part;
    }
}

static inline void add_state(struct samples *s, enum tm_job_state state, const char *reason, uint64_t step)
{
    SAMPLE(s, body, Tmw__StateEvent, state, STATE, tmw__state_event__init);
    body->state = state;
    body->reason = samples_text(s, reason);
    body->step = step;
}

static inline void add_note(struct samples *s, const char *what, uint64_t worker, uint64_t value)
{
    SAMPLE(s, body, Tmw__NoteEvent, note, NOTE, tmw__note_event__init);
    body->what = samples_text(s, what);
    body->worker = worker;
    body->value = value;
}

static inline void add_failed(struct samples *s, const char *reason, uint64_t worker, uint64_t step)
{
    SAMPLE(s, body, Tmw__FailedEvent, failed, FAILED, tmw__failed_event__init);
    body->reason = samples_text(s, reason);
    body->worker = worker;
    body->step = step;
}

static inline void add_finished(struct samples *s, uint64_t step)
{
    Tmw__RecordEvent *event = samples_event(s);
    event->body_case = TMW__RECORD_EVENT__BODY_FINISHED_STEP;
    event->finished_step = step;
}

/* Twenty minutes of four instances in twenty seconds: one is lost without a notice (and worker 2 with it), one goes as
 * announced, one comes; 100 steps in all. The cloud's time is 60 times as fast, and begins at 0. */
static inline void samples_small_run(struct samples *s, bool to_the_end)
{
    static const uint64_t first[] = {1, 2, 3, 4};
    static const uint64_t second[] = {1, 3, 4};
    static const uint64_t third[] = {1, 4, 5};
    add_job(s, "gpt-small", 100);
    add_price(s, 1000000, 3000000);
    add_rent(s, 4);
    for (uint64_t id = 1; id <= 4; id++) {
        (void)add_instance(s, id, 60000, 0);
        (void)add_arrival(s, id);
    }
    s->at_ms += 1000; /* the cloud's minute 1 */
    add_fence(s, 1, TM_CHANGED_BEGIN);
    (void)add_start(s, 1, 0, 2, 2, first, 4);
    for (uint64_t step = 10; step <= 40; step += 10) {
        s->at_ms += 1000;
        add_progress(s, step, 5.0 - (double)step / 25, 100);
    }
    add_set(s, 1, 40);
    s->at_ms += 250;
    (void)add_loss(s, 2, false);
    add_fence(s, 2, TM_CHANGED_LOSS);
    (void)add_instance(s, 2, 60000, 315000);
    s->at_ms += 300;
    add_start(s, 2, 42, 1, 2, second, 3)->redone = 1;
    s->at_ms += 250;
    add_pause(s, 2, TM_CHANGED_LOSS, 650, 100);
    for (uint64_t step = 45; step <= 60; step += 5) {
        s->at_ms += 1000;
        add_progress(s, step, 5.0 - (double)step / 25, 200);
    }
    add_notice(s, 3, 2000, false);
    add_instance(s, 3, 60000, 0)->announced = true;
    (void)add_instance(s, 5, 600000, 0);
    (void)add_arrival(s, 5);
    s->at_ms += 400;
    add_fence(s, 3, TM_CHANGED_NOTICE);
    (void)add_start(s, 3, 62, 1, 2, third, 3);
    s->at_ms += 200;
    add_pause(s, 3, TM_CHANGED_NOTICE, 350, 200);
    s->at_ms += 1400;
    (void)add_loss(s, 3, true);
    add_instance(s, 3, 60000, 735000)->announced = true;
    if (!to_the_end) return;
    for (uint64_t step = 70; step <= 100; step += 10) {
        s->at_ms += 2000;
        add_progress(s, step, 5.0 - (double)step / 25, 200);
    }
    add_set(s, 2, 100);
    add_finished(s, 100);
    add_state(s, TM_JOB_FINISHED, "", 100);
    s->at_ms += 100;
    for (uint64_t id = 1; id <= 5; id++)
        if (id == 1 || id > 3) add_instance(s, id, id == 5 ? 600000 : 60000, 1260000)->released = true;
}

#endif
