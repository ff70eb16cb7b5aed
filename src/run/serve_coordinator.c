#include "run/serve.h"

#include "base/alloc.h"
#include "base/log.h"
#include "run/action_queue.h"
#include "run/manifest_keeper.h"
#include "run/state_folder.h"
#include "store/record.h"
#include "wire/peer_links.h"
#include "wire/tls.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    HOOK_MS = 100,
    HOOK_HANDLES_MAX = 64,
    TICK_MS = 50,
    FLUSH_MS = 1000,
    LAST_WORDS_MS = 3000,
    LAST_FILES_MS = 30000
};
enum { OWNER_LOOK_MS = 1000 };

struct service {
    struct tm_env *env;
    const struct tm_coordinator_service *given;
    struct tm_coordinator *coordinator;
    struct tm_record *record;
    struct tm_links *links;
    struct tm_tls *tls;
    struct tm_outbox out;
    struct tm_action_queue queue; /* of what waits for the record */
    struct tm_copy_store *copies; /* NULL: none */
    struct tm_set_manifests manifests;
    struct tm_manifest_keeper *keeper; /* has them from the start of the loop on */
    int failed;                        /* nothing more may be done */
    bool stuck;                        /* the record cannot be written now */
    bool untold;                       /* nor could the address be */
    bool revived;                      /* the state machine went back to the record */
    struct tm_error error;
    int64_t done_ms;   /* -1: the job is not finished */
    int64_t looked_ms; /* for the owner */
    bool alone;
    struct tm_run_watch *watch;
    struct tm_run_tap tap;
    uint64_t durable;  /* the last event that lasts: a later one may go with the process, and its number come again */
    int64_t hooked_ms; /* when the hook was last served */
    int64_t hook_until_ms; /* it is to be served then at the latest */
    size_t hook_first;     /* of what is waited for, the first that is the hook's; the rest is, too */
    uint64_t hooked_sequence;
    int stop_asked; /* by the tap: 1 in order, 2 at once */
    int stopping;   /* so far */
    bool heard;     /* since the last tick: a message, or that a connection was lost */
};

static int64_t now_ms(const struct service *s)
{
    return s->env->monotonic_ns(s->env) / 1000000;
}

/* ---- actions, in order; one that must be on disk holds up the rest until it is ---- */

static void carry_out(struct service *s);

static bool is_full(int rc)
{
    return rc == -(int)TM_EFULL || rc == -(int)TM_EIO;
}

static void note(struct service *s, const char *what)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__NoteEvent body = TMW__NOTE_EVENT__INIT;
    char text[TM_MESSAGE_STRING_MAX + 1];
    struct tm_text packed;
    (void)snprintf(text, sizeof text, "%.*s", TM_MESSAGE_STRING_MAX, what);
    body.what = text;
    event.at_ms = s->env->now_ms(s->env);
    event.body_case = TMW__RECORD_EVENT__BODY_NOTE;
    event.note = &body;
    tm_text_init(&packed, TM_MESSAGE_BYTES_MAX);
    tm_record_event_pack(&event, &packed);
    if (tm_text_status(&packed, NULL) == 0)
        (void)s->record->append(s->record, packed.data, packed.length, false, NULL, NULL);
    tm_text_deinit(&packed);
    s->tap.sequence = s->durable;
}

/* The note is what is tried to be written until there is room. */
static void set_stuck(struct service *s, bool stuck)
{
    char text[TM_ERROR_TEXT_MAX + 64];
    if (stuck == s->stuck) return;
    s->stuck = stuck;
    (void)snprintf(text, sizeof text, "%s; training continues; free some disk space", s->error.text);
    if (stuck) tm_log(TM_LOG_WARN, "%s", text);
    note(s, stuck ? text : "there is disk space again: the record is complete");
    tm_coordinator_record_stuck(s->coordinator, stuck ? s->error.text : NULL);
}

static int make_coordinator(struct service *s, struct tm_error *e)
{
    struct tm_coordinator_options options = s->given->coordinator;
    if (options.incarnation == 0) options.incarnation = s->env->random_u64(s->env) | 1;
    options.retry = options.retry && !s->revived;
    options.random_seed = s->env->random_u64(s->env);
    s->coordinator = tm_coordinator_create(&options, &s->given->decider);
    return s->coordinator == NULL ? tm_error_nomem(e) : 0;
}

static int reload_event(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct service *s = context;
    (void)sequence;
    return tm_coordinator_load(s->coordinator, event, e);
}

/* An event that had to be in the record is not: what was to follow it must not happen. The state machine goes back to
 * what the record says, as after a restart; whoever is here joins again within moments, and trains on. */
static void release(struct service *s, uint64_t durable);

static void revive(struct service *s)
{
    struct tm_record_news news;
    (void)s->record->look(s->record, &news, NULL);
    s->durable = news.durable;
    release(s, news.durable); /* what waited for what lasts may go */
    if (s->failed != 0) return;
    tm_outbox_clear(&s->out);
    tm_action_queue_clear(&s->queue);
    tm_coordinator_destroy(s->coordinator);
    s->coordinator = NULL;
    s->revived = true; /* a failed job is tried again once, not each time */
    s->failed = make_coordinator(s, &s->error);
    if (s->failed == 0) s->failed = tm_run_record__read(s->record, 0, SIZE_MAX, reload_event, s, &s->error);
    if (s->failed == 0 && tm_coordinator_rebuilds(s->coordinator))
        s->failed = tm_set_manifests_load(&s->manifests, s->coordinator, &s->error);
    if (s->failed != 0) return;
    s->stopping = 0; /* it is told again */
    s->stuck = false;
    set_stuck(s, true);
    tm_coordinator_begin(s->coordinator, now_ms(s), s->env->now_ms(s->env), &s->out);
    carry_out(s);
}

/* False: it is not in the record, and nothing may follow. */
static bool put_event(struct service *s, const void *data, size_t length, bool sync)
{
    uint64_t number = 0;
    int rc = s->record->append(s->record, data, length, sync, &number, &s->error);
    if (rc == 0 && sync) tm_action_queue_hold(&s->queue, number);
    if (rc != 0 && !is_full(rc)) s->failed = rc;
    return rc == 0;
}

/* What nothing stands in the way of any more. */
static void carry_out_one(struct service *s, const struct tm_action *action, const void *data)
{
    switch (action->kind) {
    case TM_ACTION_SEND:
        tm_links_send(s->links, &action->to, NULL, data, action->length); /* they connect to us */
        break;
    case TM_COORDINATOR_MANIFEST:
        s->failed = tm_manifest_keeper__put(s->keeper, action->number, data, action->length, &s->error);
        break;
    case TM_COORDINATOR_FILES_DROP:
        s->failed = tm_manifest_keeper__drop(s->keeper, action->number, &s->error);
        break;
    case TM_COORDINATOR_DONE:
        if (s->done_ms < 0) s->done_ms = now_ms(s);
        break;
    default:
        break;
    }
}

static void release(struct service *s, uint64_t durable)
{
    struct tm_queued_action *queued = NULL;
    tm_action_queue_release(&s->queue, durable);
    while (s->failed == 0 && (queued = tm_action_queue_take(&s->queue)) != NULL) {
        carry_out_one(s, &queued->action, queued->data);
        tm_free(queued);
    }
}

static void carry_out(struct service *s)
{
    for (size_t i = 0; i < s->out.count && s->failed == 0; i++) {
        const struct tm_action *action = &s->out.actions[i];
        const void *data = tm_outbox_data(&s->out, action);
        if (action->kind == TM_COORDINATOR_RECORD) {
            if (put_event(s, data, action->length, action->number != 0)) continue;
            if (s->failed == 0) revive(s);
            return;
        }
        if (tm_action_queue_open(&s->queue))
            carry_out_one(s, action, data);
        else
            s->failed = tm_action_queue_put(&s->queue, action, data, &s->error);
    }
    if (s->failed == 0) s->failed = tm_outbox_status(&s->out, &s->error);
    tm_outbox_clear(&s->out);
    s->tap.sequence = s->durable;
}

/* What has become of the record since we looked: what waited for it goes out, or must never. */
static void heed_record(struct service *s)
{
    struct tm_record_news news;
    if (s->failed != 0) return;
    int rc = s->record->look(s->record, &news, &s->error);
    if (rc != 0 && !is_full(rc)) {
        s->failed = rc;
        return;
    }
    s->durable = news.durable;
    if (news.taken_back) {
        revive(s);
        return;
    }
    set_stuck(s, rc != 0);
    release(s, news.durable);
    s->tap.sequence = s->durable;
}

/* By the record's thread. */
static void on_news(void *context)
{
    tm_links_wake_always(context);
}

static void on_message(void *context, const tm_message *message)
{
    struct service *s = context;
    if (s->failed != 0) return;
    tm_coordinator__utc(s->coordinator, s->env->now_ms(s->env));
    tm_coordinator_receive(s->coordinator, now_ms(s), message, &s->out);
    carry_out(s);
    s->heard = true;
}

static void on_lost(void *context, const struct tm_peer *peer)
{
    struct service *s = context;
    if (s->failed != 0) return;
    tm_coordinator__utc(s->coordinator, s->env->now_ms(s->env));
    tm_coordinator_disconnected(s->coordinator, now_ms(s), peer, &s->out);
    carry_out(s);
    s->heard = true;
}

/* ---- starting ---- */

static int load_event(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    struct service *s = context;
    (void)sequence;
    int rc = tm_set_manifests_saw(&s->manifests, event, e);
    return rc != 0 ? rc : tm_coordinator_load(s->coordinator, event, e);
}

/* ---- what is shown ---- */

static int watch_event(void *context, uint64_t sequence, const Tmw__RecordEvent *event, struct tm_error *e)
{
    return tm_run_watch_take(context, sequence, event, e);
}

static const struct tm_run_status *tap_status(struct tm_run_tap *tap)
{
    struct service *s = tap->self;
    struct tm_coordinator_view view = tm_coordinator_look(s->coordinator);
    uint64_t seen = tm_run_watch_status(s->watch)->sequence;
    if (tm_run_record__read(s->record, seen, SIZE_MAX, watch_event, s->watch, NULL) != 0 ||
        tm_run_watch_look(s->watch, &view, s->env->now_ms(s->env), NULL) != 0)
        return NULL;
    return tm_run_watch_status(s->watch);
}

static int tap_events(struct tm_run_tap *tap, uint64_t after, size_t max, tm_run_each_f each, void *context,
                      struct tm_error *e)
{
    struct service *s = tap->self;
    uint64_t more = s->durable > after ? s->durable - after : 0; /* who follows must not be told what may not last */
    if (max > more) max = (size_t)more;
    if (max == 0) return 0;
    return tm_run_record__read(s->record, after, max, each, context, e);
}

static void tap_stop(struct tm_run_tap *tap, bool now)
{
    struct service *s = tap->self;
    if (s->stop_asked < 1 + now) s->stop_asked = 1 + now;
}

static int tap_steer(struct tm_run_tap *tap, const struct tm_steer_order *order, struct tm_error *e)
{
    struct service *s = tap->self;
    tm_coordinator__utc(s->coordinator, s->env->now_ms(s->env));
    int rc = tm_coordinator__steer(s->coordinator, order, &s->out, e);
    carry_out(s);
    s->heard = true;
    return rc;
}

/* What whoever watches waits for ends the wait, too: it is answered at once, and nobody looks for it between. */
static void note_hook(struct service *s, struct tm_links_waiting *waiting)
{
    const struct tm_run_hook *hook = &s->given->hook;
    int handles[HOOK_HANDLES_MAX];
    int64_t wait_ms = INT64_MAX;
    s->hook_first = waiting->count;
    s->hook_until_ms = s->hooked_ms + HOOK_MS;
    if (hook->watch == NULL || s->failed != 0) return;
    size_t count = hook->watch(hook->context, handles, HOOK_HANDLES_MAX, &wait_ms);
    for (size_t i = 0; i < count; i++)
        tm_links_also(waiting, handles[i]);
    if (wait_ms < HOOK_MS) s->hook_until_ms = now_ms(s) + wait_ms;
    if (wait_ms < waiting->timeout_ms) waiting->timeout_ms = wait_ms;
}

static bool is_called(const struct service *s, const struct tm_links_waiting *waiting)
{
    for (size_t i = s->hook_first; i < waiting->count; i++)
        if (waiting->watches[i].ready != 0) return true;
    return now_ms(s) >= s->hook_until_ms;
}

static void serve_hook(struct service *s, const struct tm_links_waiting *waiting)
{
    const struct tm_run_hook *hook = &s->given->hook;
    bool news = s->tap.sequence != s->hooked_sequence;
    if (hook->serve == NULL || s->failed != 0 || (!news && !is_called(s, waiting))) return;
    s->hooked_ms = now_ms(s);
    s->hooked_sequence = s->tap.sequence;
    hook->serve(hook->context, &s->tap);
}

/* The record's first event says what the job is. */
static void tell_job(struct service *s)
{
    const struct tm_run_job *job = s->given->job;
    struct tm_text text;
    if (job == NULL) return;
    tm_text_init(&text, TM_MESSAGE_BYTES_MAX);
    tm_run_job__pack(job, s->env->now_ms(s->env), &text);
    s->failed = tm_text_status(&text, &s->error);
    if (s->failed == 0) (void)put_event(s, text.data, text.length, false);
    tm_text_deinit(&text);
}

/* Where others find us: our port at the host that they are told. */
static void find_address(const struct service *s, char out[TM_ADDRESS_MAX])
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    const char *bound = tm_links_address(s->links);
    if (s->given->advertise != NULL && tm_address_split(bound, host, port, NULL) == 0)
        tm_address_of_host(s->given->advertise, port, out);
    else
        (void)snprintf(out, TM_ADDRESS_MAX, "%s", bound);
}

/* Where this machine finds us: what others are told may be an address that only they reach, before a NAT. */
static void find_here(const struct service *s, char out[TM_ADDRESS_MAX])
{
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    const char *bound = tm_links_address(s->links);
    (void)snprintf(out, TM_ADDRESS_MAX, "%s", bound);
    if (tm_address_split(bound, host, port, NULL) == 0 && tm_host_is_any(host))
        tm_address_join("127.0.0.1", port, out); /* [::] has it, too */
}

/* Mostly the file says so already, from the one before us. */
static int write_address(struct service *s, const char *file, const char *address)
{
    struct tm_text text;
    tm_text_init(&text, TM_ADDRESS_MAX);
    bool same = s->env->file_read(s->env, file, &text, NULL) == 0 && strcmp(tm_text_string(&text), address) == 0;
    tm_text_deinit(&text);
    return same ? 0 : s->env->file_write_private(s->env, file, address, strlen(address), &s->error);
}

static void tell_address(struct service *s)
{
    char address[TM_ADDRESS_MAX];
    char here[TM_ADDRESS_MAX];
    int rc = 0;
    find_address(s, address);
    find_here(s, here);
    if (s->given->here_file != NULL && strcmp(address, here) != 0) rc = write_address(s, s->given->here_file, here);
    if (rc == 0) rc = write_address(s, s->given->address_file, address);
    if (is_full(rc) && !s->untold) tm_log(TM_LOG_WARN, "%s; retrying: free some disk space", s->error.text);
    s->untold = is_full(rc);
    if (rc != 0 && !s->untold) s->failed = rc;
}

/* Workers store nothing that is not claimed. A claim that fails for now is made later. */
static int open_copies(struct service *s, enum tm_claim *out_claim, struct tm_error *e)
{
    struct tm_error own;
    const struct tm_coordinator_service *given = s->given;
    *out_claim = TM_CLAIMED;
    if (given->copy_folder == NULL) return 0;
    int rc = tm_copy_store_open(s->env, given->copy_folder, given->coordinator.job, &s->copies, e);
    if (rc != 0) return rc;
    s->manifests.store = s->copies;
    rc = s->copies->claim(s->copies, !given->copies_shared, &own);
    if (rc == -(int)TM_EINPUT) {
        if (e != NULL) *e = own;
        return rc;
    }
    if (rc != 0) tm_log(TM_LOG_WARN, "the folder for copies: %s; retrying", own.text);
    if (rc != 0) *out_claim = given->copies_shared ? TM_CLAIM_LATER : TM_CLAIM_LATER_TAKE_OVER;
    return 0;
}

static int start_failed(const struct service *s, struct tm_error *e)
{
    if (e != NULL) *e = s->error;
    return s->failed;
}

static int start(struct service *s, struct tm_error *e)
{
    enum tm_claim claim = TM_CLAIMED;
    s->watch = tm_run_watch_create();
    int rc = s->watch == NULL ? tm_error_nomem(e) : make_coordinator(s, e);
    if (rc != 0) return rc;
    s->tap = (struct tm_run_tap){
        .self = s, .status = tap_status, .events = tap_events, .stop = tap_stop, .steer = tap_steer};
    /* First what may be wrong: a port in use leaves no record that somebody would take for a lost one. */
    if (s->given->tls_folder != NULL) rc = tm_tls_load(s->env, s->given->tls_folder, &s->tls, e);
    if (rc == 0) rc = tm_links_create(s->env, s->given->listen, s->tls, s->given->coordinator.token, &s->links, e);
    if (rc == 0) rc = open_copies(s, &claim, e);
    if (rc == 0) rc = tm_record_open(s->given->record, &s->record, e);
    if (rc == 0) s->record->tell(s->record, on_news, s->links);
    if (rc == 0) rc = tm_run_record__read(s->record, 0, SIZE_MAX, load_event, s, e);
    if (rc == 0) rc = tm_set_manifests_mend(&s->manifests, e);
    if (rc != 0) return rc;
    tm_links_on_lost(s->links, on_lost, s);
    if (tm_coordinator_rebuilds(s->coordinator)) rc = tm_set_manifests_load(&s->manifests, s->coordinator, e);
    if (rc == 0) rc = tm_manifest_keeper__create(&s->manifests, claim, &s->keeper, e);
    if (rc == 0 && s->given->bound != NULL) {
        char address[TM_ADDRESS_MAX];
        find_address(s, address);
        s->given->bound(s->given->context, address);
    }
    if (rc == 0 && s->given->address_file != NULL) tell_address(s);
    return rc == 0 && s->failed != 0 ? start_failed(s, e) : rc;
}

/* ---- the loop ---- */

/* Whoever runs us is gone: nobody would start us again, or pay for what we order. */
static bool is_alone(struct service *s)
{
    struct tm_state_owner owner;
    if (s->given->alone != NULL && *s->given->alone != 0) s->alone = true;
    if (s->alone || s->given->owner_dir == NULL || now_ms(s) - s->looked_ms < OWNER_LOOK_MS) return s->alone;
    s->looked_ms = now_ms(s);
    s->alone = tm_state__owner(s->env, s->given->owner_dir, &owner, NULL) != 0;
    return s->alone;
}

/* 0: go on, 1: stop in order, 2: at once. */
static int stop_level(const struct service *s)
{
    int told = s->given->stop == NULL ? 0 : *s->given->stop;
    return told > s->stop_asked ? told : s->stop_asked;
}

static void heed_stop(struct service *s)
{
    int level = stop_level(s);
    if (s->failed != 0 || level <= s->stopping) return;
    s->stopping = level;
    tm_coordinator_stop(s->coordinator, now_ms(s), "requested", level > 1, &s->out);
    carry_out(s);
}

static bool ends(struct service *s)
{
    if (s->failed != 0 || is_alone(s)) return true;
    if (s->done_ms < 0) return false;
    bool waits = s->stopping < 2 && tm_manifest_keeper__waits(s->keeper); /* who reads the result? */
    if (waits && now_ms(s) - s->done_ms <= LAST_FILES_MS) return false;
    struct tm_coordinator_view view = tm_coordinator_look(s->coordinator);
    bool all_gone = view.workers == 0 && view.agents_untold == 0;
    return now_ms(s) - s->done_ms > (all_gone ? 500 : LAST_WORDS_MS);
}

static void loop(struct service *s)
{
    struct tm_links_waiting waiting;
    int64_t ticked_ms = 0;
    int64_t flushed_ms = 0;
    tell_job(s);
    tm_coordinator_begin(s->coordinator, now_ms(s), s->env->now_ms(s->env), &s->out);
    carry_out(s);
    while (!ends(s)) {
        tm_links_note(s->links, TICK_MS, &waiting);
        note_hook(s, &waiting);
        tm_links_wait(s->links, &waiting);
        heed_record(s);
        tm_links_take_ready(s->links, &waiting, on_message, s);
        /* what a message has made possible is not left to the next tick */
        if (s->failed == 0 && (s->heard || now_ms(s) - ticked_ms >= TICK_MS)) {
            ticked_ms = now_ms(s);
            s->heard = false;
            tm_coordinator_tick(s->coordinator, ticked_ms, s->env->now_ms(s->env), &s->out);
            carry_out(s);
        }
        if (s->failed == 0 && ticked_ms - flushed_ms >= FLUSH_MS) {
            flushed_ms = ticked_ms;
            (void)s->record->flush(s->record, false, NULL); /* what comes of it is looked at later */
            tm_manifest_keeper__retry(s->keeper);
            if (s->untold) tell_address(s);
            if (s->failed == 0) s->failed = tm_manifest_keeper__status(s->keeper, &s->error);
        }
        serve_hook(s, &waiting);
        heed_stop(s);
    }
}

/* At the end one may wait: for what the last words need, and for what need not be synced. */
static void end_record(struct service *s)
{
    struct tm_record_news news;
    int rc = s->record->flush(s->record, true, &s->error);
    if (rc != 0 && !is_full(rc)) s->failed = rc;
    if (s->failed != 0) return;
    set_stuck(s, rc != 0);
    (void)s->record->look(s->record, &news, NULL);
    if (rc == 0) release(s, news.durable);
}

int tm_coordinator_serve(struct tm_env *env, struct tm_coordinator_service *service, struct tm_error *e)
{
    struct service s = {.env = env, .given = service, .done_ms = -1};
    tm_outbox_init(&s.out);
    tm_action_queue_init(&s.queue);
    tm_set_manifests_init(&s.manifests, NULL);
    int rc = start(&s, e);
    if (rc == 0) {
        loop(&s);
        if (s.failed == 0) {
            tm_coordinator__last_words(s.coordinator, now_ms(&s), &s.out);
            carry_out(&s);
        }
        if (s.failed == 0) end_record(&s);
        tm_manifest_keeper__destroy(s.keeper);
        s.keeper = NULL;
        service->unrecorded = s.stuck || s.manifests.waiting_set != 0;
        if (s.alone && s.failed == 0) rc = tm_error_set(e, TM_EPEER, "the program that runs this job has ended");
        if (s.failed != 0) {
            rc = s.failed;
            if (e != NULL) *e = s.error;
        }
    }
    tm_record_close(s.record); /* before the links, which it wakes */
    tm_links_destroy(s.links);
    tm_tls_destroy(s.tls);
    tm_coordinator_destroy(s.coordinator);
    tm_run_watch_destroy(s.watch);
    tm_outbox_deinit(&s.out);
    tm_action_queue_clear(&s.queue);
    tm_manifest_keeper__destroy(s.keeper);
    tm_set_manifests_deinit(&s.manifests);
    if (s.copies != NULL) s.copies->close(s.copies);
    return rc;
}
