/* What the coordinator puts in the record, and how it reads it back. */
#include "run/coord_internal.h"

#include "base/alloc.h"
#include "base/planted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tm_coord__record(struct tm_coordinator *c, Tmw__RecordEvent *event, bool sync, struct tm_outbox *out)
{
    struct tm_text text;
    event->at_ms = c->utc_ms;
    tm_text_init(&text, TM_MESSAGE_BYTES_MAX);
    tm_record_event_pack(event, &text);
    if (tm_text_status(&text, NULL) == 0)
        tm_outbox_add(out, TM_COORDINATOR_RECORD, text.data, text.length, sync, 0);
    else
        tm_outbox_fail(out, -(int)TM_ENOMEM); /* what was to be recorded first must not happen */
    tm_text_deinit(&text);
}

void tm_coord__record_fenced(struct tm_coordinator *c, enum tm_change_cause cause, const char *why,
                             struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__GenerationEvent body = TMW__GENERATION_EVENT__INIT;
    body.generation = c->generation;
    body.base_step = c->base;
    body.cause = cause;
    char text[TM_MESSAGE_STRING_MAX + 1];
    (void)snprintf(text, sizeof text, "%s", why);
    body.why = text;
    event.body_case = TMW__RECORD_EVENT__BODY_GENERATION;
    event.generation = &body;
    tm_coord__record(c, &event, !TM_PLANTED(record_unsynced), out);
}

void tm_coord__record_started(struct tm_coordinator *c, uint64_t rolled_back, uint64_t redone, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__GenerationEvent body = TMW__GENERATION_EVENT__INIT;
    struct tm_arena arena;
    tm_arena_init(&arena, 4 << 20);
    body.generation = c->generation;
    body.base_step = c->base;
    body.started = true;
    body.rolled_back = rolled_back;
    body.redone = redone;
    body.layout = tm_roster_write(&c->roster, &arena);
    if (body.layout == NULL) tm_outbox_fail(out, -(int)TM_ENOMEM);
    event.body_case = TMW__RECORD_EVENT__BODY_GENERATION;
    event.generation = &body;
    tm_coord__record(c, &event, !TM_PLANTED(record_unsynced), out);
    tm_arena_deinit(&arena);
}

void tm_coord__record_set(struct tm_coordinator *c, const struct copy_set *set, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__CopySet body = TMW__COPY_SET__INIT;
    struct tm_arena arena;
    tm_arena_init(&arena, 16 << 20);
    Tmw__CopyPart *parts = tm_arena_alloc(&arena, (set->part_count + 1) * sizeof *parts);
    body.parts = tm_arena_alloc(&arena, (set->part_count + 1) * sizeof(Tmw__CopyPart *));
    if (parts == NULL || body.parts == NULL) {
        tm_outbox_fail(out, -(int)TM_ENOMEM);
        tm_arena_deinit(&arena);
        return;
    }
    for (size_t i = 0; i < set->part_count; i++) {
        tmw__copy_part__init(&parts[i]);
        parts[i].set = set->set;
        parts[i].step = set->step;
        parts[i].layer = set->parts[i].layer;
        parts[i].hash_low = set->parts[i].hash.low;
        parts[i].hash_high = set->parts[i].hash.high;
        parts[i].holder = set->parts[i].holder;
        parts[i].holder_incarnation = set->parts[i].holder_incarnation;
        body.parts[i] = &parts[i];
    }
    body.n_parts = set->part_count;
    body.set = set->set;
    body.generation = set->generation;
    body.step = set->step;
    body.took_ms = set->took_ms;
    event.body_case = TMW__RECORD_EVENT__BODY_SET_WHOLE;
    event.set_whole = &body;
    bool in_files = false;
    for (size_t i = 0; i < set->part_count; i++)
        in_files = in_files || set->parts[i].holder == 0;
    tm_coord__record(c, &event, true, out);
    if (in_files && out->count > 0 && out->failed == 0) { /* the same bytes beside the files, for when we lose ours */
        const struct tm_action recorded = out->actions[out->count - 1];
        struct tm_text text;
        tm_text_init(&text, TM_MESSAGE_BYTES_MAX);
        tm_text_append(&text, tm_outbox_data(out, &recorded), recorded.length);
        if (tm_text_status(&text, NULL) == 0)
            tm_outbox_add(out, TM_COORDINATOR_MANIFEST, text.data, text.length, set->set, 0);
        else
            tm_outbox_fail(out, -(int)TM_ENOMEM);
        tm_text_deinit(&text);
    }
    tm_arena_deinit(&arena);
}

void tm_coord__record_sets_named(struct tm_coordinator *c, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    event.body_case = TMW__RECORD_EVENT__BODY_SETS_NAMED;
    event.sets_named = c->sets_named;
    tm_coord__record(c, &event, true, out);
}

void tm_coord__record_bad(struct tm_coordinator *c, uint64_t set, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    event.body_case = TMW__RECORD_EVENT__BODY_SET_BAD;
    event.set_bad = set;
    tm_coord__record(c, &event, true, out);
}

void tm_coord__record_finished(struct tm_coordinator *c, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    event.body_case = TMW__RECORD_EVENT__BODY_FINISHED_STEP;
    event.finished_step = c->options.steps;
    tm_coord__record(c, &event, true, out);
}

void tm_coord__record_progress(struct tm_coordinator *c, const struct tm_step_loss *newest, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__ProgressEvent body = TMW__PROGRESS_EVENT__INIT;
    body.step = c->progress_step;
    body.step_ms = c->told_step_ms;
    body.loss_known = newest != NULL;
    if (newest != NULL) body.loss = newest->loss;
    body.bill_microusd = tm_coord__bill(c, false);
    body.on_demand_bill_microusd = tm_coord__bill(c, true);
    c->told_bill_microusd = body.bill_microusd;
    c->told_on_demand_bill_microusd = body.on_demand_bill_microusd;
    uint64_t traffic[TM_RUN_POOLS_MAX];
    bool any = false;
    for (uint32_t i = 0; i < c->options.pools; i++) {
        traffic[i] = (uint64_t)(c->traffic_usd[i] * 1e6 + 0.5);
        any = any || traffic[i] > 0;
    }
    body.pool_traffic_microusd = traffic;
    body.n_pool_traffic_microusd = any ? c->options.pools : 0;
    event.body_case = TMW__RECORD_EVENT__BODY_PROGRESS;
    event.progress = &body;
    tm_coord__record(c, &event, false, out);
}

void tm_coord__record_failed(struct tm_coordinator *c, const struct why_failed *why, struct tm_outbox *out)
{
    char *lines[TM_LAST_LINES];
    char file[TM_MESSAGE_STRING_MAX + 1];
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__FailedEvent body = TMW__FAILED_EVENT__INIT;
    body.reason = c->failure;
    body.worker = why->worker;
    body.step = why->step;
    for (size_t i = 0; i < why->line_count && i < TM_LAST_LINES; i++)
        lines[body.n_lines++] = why->lines[i];
    body.lines = lines;
    (void)snprintf(file, sizeof file, "%s", why->file);
    body.file = file;
    event.body_case = TMW__RECORD_EVENT__BODY_FAILED;
    event.failed = &body;
    tm_coord__record(c, &event, !c->stuck, out); /* a full disk must not keep us from ending */
}

void tm_coord__record_kernel_class(struct tm_coordinator *c, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    event.body_case = TMW__RECORD_EVENT__BODY_KERNEL_CLASS;
    event.kernel_class = c->kernel_class;
    tm_coord__record(c, &event, true, out);
}

void tm_coord__record_fingerprint(struct tm_coordinator *c, struct tm_outbox *out)
{
    if (c->fingerprint_told == c->fingerprint.count) return;
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__FingerprintEvent body = TMW__FINGERPRINT_EVENT__INIT;
    char *parts[TM_FINGERPRINT_PARTS_MAX];
    body.n_parts = tm_fingerprint_list(&c->fingerprint, parts) - c->fingerprint_told;
    body.parts = parts + c->fingerprint_told;
    c->fingerprint_told = c->fingerprint.count;
    event.body_case = TMW__RECORD_EVENT__BODY_FINGERPRINT;
    event.fingerprint = &body;
    tm_coord__record(c, &event, !c->stuck, out); /* who joins again while the disk is full trains on */
}

/* The job file of a coordinator that starts again must be the one that the record is of. */
static int load_fingerprint(struct tm_coordinator *c, const Tmw__FingerprintEvent *body, struct tm_error *e)
{
    char why[TM_MESSAGE_STRING_MAX + 1];
    for (size_t i = 0; i < body->n_parts; i++) {
        if (tm_fingerprint_may_change(body->parts[i])) continue;
        if (tm_fingerprint_differs(&c->fingerprint, body->parts[i], "the record", why))
            return tm_error_set(e, TM_EINPUT, "%s", why);
        (void)tm_fingerprint_add(&c->fingerprint, body->parts[i]);
    }
    return 0;
}

void tm_coord__note(struct tm_coordinator *c, const char *what, uint64_t worker, uint64_t value, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__NoteEvent body = TMW__NOTE_EVENT__INIT;
    char text[TM_MESSAGE_STRING_MAX];
    size_t length = strnlen(what, sizeof text - 1);
    memcpy(text, what, length);
    text[length] = '\0';
    body.what = text;
    body.worker = worker;
    body.value = value;
    event.body_case = TMW__RECORD_EVENT__BODY_NOTE;
    event.note = &body;
    tm_coord__record(c, &event, false, out);
}

void tm_coord__record_instance(struct tm_coordinator *c, const Tmw__Instance *instance, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    union {
        const Tmw__Instance *given;
        Tmw__Instance *taken;
    } body = {instance};
    event.body_case = TMW__RECORD_EVENT__BODY_INSTANCE;
    event.instance = body.taken;
    tm_coord__record(c, &event, false, out);
}

void tm_coord__record_price(struct tm_coordinator *c, struct tm_outbox *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__PriceEvent body = TMW__PRICE_EVENT__INIT;
    body.spot_microusd_h = c->cloud.spot_microusd_h;
    body.on_demand_microusd_h = c->cloud.on_demand_microusd_h;
    uint64_t prices[TM_RUN_POOLS_MAX];
    for (uint32_t i = 0; i < c->options.pools; i++)
        prices[i] = c->cloud.pools[i].microusd_h;
    body.pool_microusd_h = prices;
    body.n_pool_microusd_h = c->options.pools;
    event.body_case = TMW__RECORD_EVENT__BODY_PRICE;
    event.price = &body;
    tm_coord__record(c, &event, false, out);
}

/* ---- reading it back ---- */

static int load_generation(struct tm_coordinator *c, const Tmw__GenerationEvent *body, struct tm_error *e)
{
    c->loaded = true; /* notes and bills alone are no record of where the job stands */
    c->generation = body->generation;
    c->loaded_started = body->started;
    if (!body->started) return 0;
    struct tm_roster roster = {0};
    int rc = tm_roster_read(body->generation, body->layout, c->options.layers, c->options.micro_batches, &roster, e);
    if (rc != 0) return tm_error_wrap(e, rc, "record: generation %llu", (unsigned long long)body->generation);
    bool *dead = tm_calloc(roster.member_count + 1, sizeof *dead);
    if (dead == NULL || tm_roster_copy(&c->started, &roster, e) != 0) {
        tm_free(dead);
        tm_roster_deinit(&roster);
        return tm_error_nomem(e);
    }
    tm_free(c->started_dead);
    c->started_dead = dead;
    tm_roster_deinit(&c->roster);
    c->roster = roster;
    c->base = body->base_step;
    c->applied = body->base_step;
    c->reached = body->base_step;
    tm_coord__losses_forget(c, c->base);
    c->rolled_back += body->rolled_back;
    c->redone += body->redone;
    c->generations_started++;
    return 0;
}

static int load_set(struct tm_coordinator *c, const Tmw__CopySet *body, struct tm_error *e)
{
    if (c->set_count == SETS_MAX) { /* one that is bad, which most are that were ever made; else the oldest */
        size_t i = 0;
        while (i < c->set_count && !c->sets[i].bad)
            i++;
        if (i == c->set_count) i = 0;
        tm_free(c->sets[i].parts);
        memmove(&c->sets[i], &c->sets[i + 1], (c->set_count - i - 1) * sizeof *c->sets);
        c->set_count--;
    }
    int rc = tm_grow((void **)&c->sets, &c->set_capacity, c->set_count + 1, sizeof *c->sets, SETS_MAX);
    struct copy_held *parts = rc == 0 ? tm_calloc(body->n_parts + 1, sizeof *parts) : NULL;
    if (parts == NULL) return tm_error_nomem(e);
    for (size_t i = 0; i < body->n_parts; i++) {
        const Tmw__CopyPart *part = body->parts[i];
        parts[i] = (struct copy_held){.set = body->set,
                                      .step = body->step,
                                      .layer = part->layer,
                                      .hash = {.low = part->hash_low, .high = part->hash_high},
                                      .holder = part->holder,
                                      .holder_incarnation = part->holder_incarnation};
    }
    c->sets[c->set_count++] = (struct copy_set){.set = body->set,
                                                .generation = body->generation,
                                                .step = body->step,
                                                .took_ms = body->took_ms,
                                                .parts = parts,
                                                .part_count = body->n_parts};
    /* A coordinator that was killed while it rebuilt its record has put down the same sets before. */
    for (size_t i = c->set_count - 1; i > 0 && c->sets[i - 1].set > c->sets[i].set; i--) {
        struct copy_set later = c->sets[i - 1];
        c->sets[i - 1] = c->sets[i];
        c->sets[i] = later;
    }
    if (body->set > c->newest_set) c->newest_set = body->set;
    if (body->generation > c->highest_seen) c->highest_seen = body->generation;
    return 0;
}

static void load_progress(struct tm_coordinator *c, const Tmw__ProgressEvent *body)
{
    c->progress_step = body->step;
    tm_coord__progress_made(c, body->step);
    if (body->loss_known) tm_coord__loss_told(c, body->step, body->loss);
    if (body->step > c->reached && !TM_PLANTED(redone_untold)) c->reached = body->step;
    if (body->settled || body->bill_microusd > c->told_bill_microusd) c->told_bill_microusd = body->bill_microusd;
    if (body->settled || body->on_demand_bill_microusd > c->told_on_demand_bill_microusd)
        c->told_on_demand_bill_microusd = body->on_demand_bill_microusd;
    c->traffic_step = body->step;
    for (size_t i = 0; i < body->n_pool_traffic_microusd && i < TM_RUN_POOLS_MAX; i++)
        c->traffic_usd[i] = (double)body->pool_traffic_microusd[i] / 1e6;
}

static int by_set(const void *a, const void *b)
{
    const struct copy_set *x = a;
    const struct copy_set *y = b;
    return x->set < y->set ? -1 : x->set > y->set;
}

int tm_coordinator__load_manifest(struct tm_coordinator *c, const Tmw__RecordEvent *event, struct tm_error *e)
{
    bool whole = event->body_case == TMW__RECORD_EVENT__BODY_SET_WHOLE;
    if (!whole || event->set_whole->set == 0 || event->set_whole->set >= UINT64_MAX / 2 ||
        !tm_coord__can_be_generation(event->set_whole->generation))
        return tm_error_set(e, TM_EINPUT, "not the manifest of a copy set");
    int rc = load_set(c, event->set_whole, e);
    if (rc == 0) qsort(c->sets, c->set_count, sizeof *c->sets, by_set);
    return rc;
}

static void load_price(struct tm_coordinator *c, const Tmw__PriceEvent *price)
{
    c->cloud.spot_microusd_h = price->spot_microusd_h;
    c->cloud.on_demand_microusd_h = price->on_demand_microusd_h;
    for (size_t i = 0; i < price->n_pool_microusd_h && i < TM_RUN_POOLS_MAX; i++)
        c->cloud.pools[i].microusd_h = price->pool_microusd_h[i];
}

int tm_coordinator_load(struct tm_coordinator *c, const Tmw__RecordEvent *event, struct tm_error *e)
{
    if (!c->job_utc_known) c->job_utc_ms = event->at_ms;
    c->job_utc_known = true;
    switch (event->body_case) {
    case TMW__RECORD_EVENT__BODY_GENERATION:
        return load_generation(c, event->generation, e);
    case TMW__RECORD_EVENT__BODY_SET_WHOLE:
        if (event->set_whole->generation == c->started.generation && event->set_whole->step > c->reached)
            c->reached = event->set_whole->step;
        tm_coord__steer_copied(c, event->set_whole->step);
        return load_set(c, event->set_whole, e);
    case TMW__RECORD_EVENT__BODY_SET_BAD:
        for (size_t i = 0; i < c->set_count; i++)
            if (c->sets[i].set == event->set_bad) c->sets[i].bad = true;
        return 0;
    case TMW__RECORD_EVENT__BODY_SETS_NAMED:
        c->sets_named = event->sets_named;
        if (c->sets_named > c->newest_set && !TM_PLANTED(set_renamed)) c->newest_set = c->sets_named;
        return 0;
    case TMW__RECORD_EVENT__BODY_FAILED:
        (void)snprintf(c->failure, sizeof c->failure, "%s", event->failed->reason);
        return 0;
    case TMW__RECORD_EVENT__BODY_KERNEL_CLASS:
        (void)snprintf(c->kernel_class, sizeof c->kernel_class, "%s", event->kernel_class);
        c->kernel_class_known = true;
        return 0;
    case TMW__RECORD_EVENT__BODY_FINGERPRINT:
        return load_fingerprint(c, event->fingerprint, e);
    case TMW__RECORD_EVENT__BODY_PROGRESS:
        load_progress(c, event->progress);
        return 0;
    case TMW__RECORD_EVENT__BODY_STEPS:
        tm_coord__load_steps(c, event->steps);
        return 0;
    case TMW__RECORD_EVENT__BODY_FAILURE:
        tm_coord__load_failure(c, event->failure);
        return 0;
    case TMW__RECORD_EVENT__BODY_ARRIVAL:
    case TMW__RECORD_EVENT__BODY_LOSS:
        return tm_coord__load_here(c, event, e);
    case TMW__RECORD_EVENT__BODY_STATE:
        tm_coord__load_state(c, event->state);
        return 0;
    case TMW__RECORD_EVENT__BODY_RENT:
        c->told_rent = true;
        c->told_spot = event->rent->want_spot;
        c->told_on_demand = event->rent->want_on_demand;
        for (size_t i = 0; i < event->rent->n_want && i < TM_RUN_POOLS_MAX; i++)
            c->told_want[i] = event->rent->want[i];
        return 0;
    case TMW__RECORD_EVENT__BODY_INSTANCE:
        return tm_coord__store_instance(c, event->instance) == 0 ? 0 : tm_error_nomem(e);
    case TMW__RECORD_EVENT__BODY_PRICE:
        load_price(c, event->price);
        return 0;
    case TMW__RECORD_EVENT__BODY_FINISHED_STEP:
        c->loaded_finished = true;
        return 0;
    case TMW__RECORD_EVENT__BODY_HINT:
        tm_coord__keep_hint(c, event->hint->instance);
        return 0;
    case TMW__RECORD_EVENT__BODY_ZONE:
        tm_coord__keep_zone(c, event->zone->zone);
        return 0;
    case TMW__RECORD_EVENT__BODY_STEER:
        tm_coord__load_steer(c, event->steer);
        return 0;
    default:
        return 0;
    }
}
