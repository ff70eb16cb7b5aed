/* include/tidemill.h over the state machine of worker.h: one thread of ours for messages and time, the engine's thread
 * for work. One lock; nobody waits for the network while holding it. */
#include <assert.h>
#include <tidemill.h>

#include "base/address.h"
#include "base/alloc.h"
#include "base/debug.h"
#include "base/env.h"
#include "base/log.h"
#include "wire/peer_links.h"
#include "wire/tls.h"
#include "worker/copy_files.h"
#include "worker/layer_places.h"
#include "worker/worker.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { TICK_MS = 50, CHUNK_BYTES = 1 << 20, RESEND_MS = 1000, TEXT_MAX = 1024, FINGERPRINT_MAX = 1 << 14 };
static const uint64_t copy_bytes_default = (uint64_t)1 << 30;

struct peer_texts {
    char address[TM_MEMBER_ADDRESS_MAX];
    char endpoint[TM_MEMBER_ADDRESS_MAX];
};

struct tidemill {
    struct tm_env *env;
    uint64_t id;
    struct tidemill_engine engine;
    char coordinator[TM_ADDRESS_MAX];
    char token[TEXT_MAX];
    char kernel_class[TEXT_MAX];
    char fingerprint[FINGERPRINT_MAX];
    struct tm_copy_store *store; /* for copies; NULL: none */
    char endpoint[TM_MEMBER_ADDRESS_MAX];
    char reason[TEXT_MAX];
    struct tm_tls *tls;
    struct tm_links *links;
    struct tm_copy_files *files;
    struct tm_worker *worker;
    struct tm_outbox out;

    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing;
    bool heard; /* a message, in this round */
    bool stopped;
    int stop_code; /* what tidemill_next returns then */
    bool due;      /* work waits for the engine */
    struct tidemill_work work;
    atomic_uint_fast64_t ticket; /* of the newest order; grows with every begin and cancel */
    atomic_uint_fast64_t taken;  /* the one the engine works on: another number, and it works in vain */
    atomic_uint_fast64_t waiting_for;
    uint32_t stage_first[TM_STAGES_MAX + 1]; /* for the next work, as `members` */
    uint32_t micro_batch_first[TM_MEMBERS_MAX + 1];
    uint32_t given_stage_first[TM_STAGES_MAX + 1];
    uint32_t given_micro_batch_first[TM_MEMBERS_MAX + 1];
    struct tm_member *members; /* of the generation, for the next work; room for TM_MEMBERS_MAX */
    size_t member_count;
    struct tidemill_peer peers[TM_MEMBERS_MAX]; /* what the engine was given, with its addresses */
    struct peer_texts *texts;
    struct tm_layer_places layers;
};

/* ---- the machine's engine: everything here runs under the lock ---- */

static uint64_t engine_bytes(void *context, uint32_t layer)
{
    struct tidemill *t = context;
    return t->engine.layer_bytes(t->engine.context, layer);
}

static int engine_export(void *context, uint32_t layer, void *out, uint64_t size)
{
    struct tidemill *t = context;
    return tm_layer_places__read(&t->layers, layer, out, size);
}

static const void *engine_view(void *context, uint32_t layer)
{
    struct tidemill *t = context;
    return tm_layer_places__view(&t->layers, layer);
}

/* Takes over the caller's share. */
static void stage(struct tidemill *t, uint32_t layer, struct tm_block *block)
{
    assert(block != NULL);
    tm_layer_places_stage(&t->layers, layer, block);
    (void)pthread_cond_broadcast(&t->changed);
}

static int engine_import(void *context, uint32_t layer, uint64_t step, struct tm_block *block)
{
    (void)step;
    stage(context, layer, tm_block_share(block));
    return 0;
}

static int engine_init(void *context, uint32_t layer)
{
    struct tidemill *t = context;
    uint64_t bytes = engine_bytes(t, layer);
    struct tm_block *block = tm_block_create(tm_worker_blocks(t->worker), (size_t)bytes);
    if (block == NULL) return -(int)TM_ENOMEM;
    if (t->engine.init_layer(t->engine.context, layer, block->data, bytes) != 0) {
        tm_block_release(block);
        return -(int)TM_EINTERNAL;
    }
    stage(t, layer, block);
    return 0;
}

static void engine_drop(void *context, uint32_t layer)
{
    struct tidemill *t = context;
    tm_layer_places__drop(&t->layers, layer);
    (void)pthread_cond_broadcast(&t->changed); /* a spare's engine gives it up now, not when it is seated again */
}

static void describe(struct tidemill *t, const struct tm_roster *roster)
{
    const struct tm_member *me = tm_roster_find(roster, t->id);
    assert(me != NULL && !me->spare && roster->member_count <= TM_MEMBERS_MAX);
    struct tidemill_work *work = &t->work;
    work->generation = roster->generation;
    work->pipeline = me->pipeline;
    work->pipelines = roster->pipelines;
    work->stage = me->stage;
    work->stages = roster->stages;
    work->first_layer = roster->stage_first[me->stage];
    work->last_layer = roster->stage_first[me->stage + 1];
    memcpy(t->stage_first, roster->stage_first, sizeof t->stage_first);
    for (uint32_t p = 0; p < roster->pipelines; p++)
        t->micro_batch_first[p + 1] = t->micro_batch_first[p] + roster->micro_batches[p];
    work->first_micro_batch = t->micro_batch_first[me->pipeline];
    work->last_micro_batch = t->micro_batch_first[me->pipeline + 1];
    t->member_count = 0;
    for (size_t i = 0; i < roster->member_count; i++)
        if (!roster->members[i].spare) t->members[t->member_count++] = roster->members[i];
}

static void engine_begin(void *context, const struct tm_roster *roster, uint64_t step)
{
    struct tidemill *t = context;
    describe(t, roster);
    t->work.kind = TIDEMILL_STEP;
    t->work.step = step;
    t->due = true;
    (void)atomic_fetch_add(&t->ticket, 1);
    atomic_store(&t->waiting_for, 0);
    (void)pthread_cond_broadcast(&t->changed);
}

static void engine_cancel(void *context)
{
    struct tidemill *t = context;
    t->due = false;
    (void)atomic_fetch_add(&t->ticket, 1);
    if (t->engine.cancelled != NULL) t->engine.cancelled(t->engine.context);
}

static void engine_apply(void *context, uint64_t step, double norm)
{
    struct tidemill *t = context;
    t->work.kind = TIDEMILL_APPLY;
    t->work.step = step;
    t->work.norm = norm;
    t->due = true;
    (void)pthread_cond_broadcast(&t->changed);
}

static void engine_discard(void *context)
{
    (void)context;
}

static uint64_t engine_waiting_for(void *context)
{
    struct tidemill *t = context;
    return atomic_load(&t->waiting_for);
}

static uint64_t engine_gradient_bytes(void *context, uint32_t layer)
{
    struct tidemill *t = context;
    return t->engine.gradient_bytes(t->engine.context, layer);
}

static int engine_export_gradient(void *context, uint32_t layer, void *out, uint64_t size)
{
    struct tidemill *t = context;
    return t->engine.read_gradient(t->engine.context, layer, out, size) == 0 ? 0 : -(int)TM_EINTERNAL;
}

static int engine_advance(void *context, uint32_t layer, uint64_t step, double norm, void *state, uint64_t state_size,
                          const void *gradient, uint64_t gradient_size)
{
    struct tidemill *t = context;
    int rc = t->engine.advance_layer(t->engine.context, layer, step, norm, state, state_size, gradient, gradient_size);
    return rc == 0 ? 0 : -(int)TM_EINTERNAL;
}

/* ---- actions ---- */

static int64_t now_ms(struct tidemill *t)
{
    return t->env->monotonic_ns(t->env) / 1000000;
}

static void send_action(struct tidemill *t, const struct tm_action *action)
{
    const char *address = t->coordinator;
    if (action->to.role == TM_ROLE_WORKER) address = tm_worker__address(t->worker, action->to.id);
    tm_links_send(t->links, &action->to, address, tm_outbox_data(&t->out, action), action->length);
}

/* The machine may be used: no step of it was lost for want of memory. */
static bool alive(const struct tidemill *t)
{
    return !t->stopped || t->stop_code >= 0;
}

static void stop(struct tidemill *t, int code)
{
    if (t->stopped) return;
    t->stopped = true;
    t->stop_code = code;
    (void)atomic_fetch_add(&t->ticket, 1); /* whatever is computed is in vain */
    if (t->engine.cancelled != NULL) t->engine.cancelled(t->engine.context);
    (void)pthread_cond_broadcast(&t->changed);
}

static void put_file(struct tidemill *t, uint64_t set, uint32_t layer)
{
    struct tm_copy_name name;
    struct tm_block *block = tm_worker_file_block(t->worker, set, layer, &name);
    if (block != NULL) tm_copy_files_put(t->files, &name, block);
}

static void carry_out(struct tidemill *t)
{
    for (size_t i = 0; i < t->out.count; i++) {
        const struct tm_action *action = &t->out.actions[i];
        const void *data = tm_outbox_data(&t->out, action);
        uint32_t layer = (uint32_t)action->other;
        switch (action->kind) {
        case TM_ACTION_SEND:
            send_action(t, action);
            break;
        case TM_WORKER_FILE_GET:
            tm_copy_files_get(t->files, action->number, layer, engine_bytes(t, layer), tm_worker_blocks(t->worker));
            break;
        case TM_WORKER_FILE_PUT:
            put_file(t, action->number, layer);
            break;
        case TM_WORKER_STOP:
            (void)snprintf(t->reason, sizeof t->reason, "%.*s", (int)action->length, (const char *)data);
            stop(t, action->number != 0 ? -(int)TM_EPEER : 1);
            break;
        default:
            break;
        }
    }
    struct tm_error e;
    int rc = tm_outbox_status(&t->out, &e);
    if (rc != 0) { /* a step of the machine is void: it must not go on */
        (void)snprintf(t->reason, sizeof t->reason, "%s", e.text);
        stop(t, rc);
    }
    tm_outbox_clear(&t->out);
}

/* What an event has brought about may make more due, a heartbeat for example: that is not left to the next tick. */
static void follow_up(struct tidemill *t)
{
    carry_out(t);
    if (!alive(t)) return;
    tm_worker_tick(t->worker, now_ms(t), &t->out);
    carry_out(t);
}

/* The same for events of other threads than ours, which may wait for less than there is now. */
static void follow_up_elsewhere(struct tidemill *t)
{
    follow_up(t);
    tm_links_wake(t->links);
}

static void on_message(void *context, const tm_message *message)
{
    struct tidemill *t = context;
    if (!alive(t)) return;
    tm_worker_receive(t->worker, now_ms(t), message, &t->out);
    carry_out(t);
    t->heard = true;
}

static void on_file(void *context, const struct tm_copy_file_done *done)
{
    struct tidemill *t = context;
    (void)pthread_mutex_lock(&t->lock);
    if (alive(t)) {
        tm_copy_tell(t->worker, now_ms(t), done, &t->out);
        follow_up_elsewhere(t);
    }
    /* before the engine's thread looks: what nobody else needs is not copied into its place */
    tm_block_release(done->got.block);
    (void)pthread_mutex_unlock(&t->lock);
}

static void *serve(void *context)
{
    struct tidemill *t = context;
    struct tm_links_waiting waiting;
    int64_t ticked_ms = 0;
    for (;;) {
        (void)pthread_mutex_lock(&t->lock);
        tm_links_note(t->links, TICK_MS, &waiting);
        (void)pthread_mutex_unlock(&t->lock);
        tm_links_wait(t->links, &waiting);
        (void)pthread_mutex_lock(&t->lock);
        bool end = t->closing;
        t->heard = false;
        tm_links_take_ready(t->links, &waiting, on_message, t);
        if (alive(t) && (t->heard || now_ms(t) - ticked_ms >= TICK_MS)) {
            ticked_ms = now_ms(t);
            follow_up(t);
        }
        (void)pthread_mutex_unlock(&t->lock);
        if (end) return NULL;
    }
}

/* ---- opening and closing ---- */

static bool keep(char *to, size_t size, const char *from)
{
    size_t length = from == NULL ? 0 : strlen(from);
    if (length >= size) return false;
    if (length > 0) memcpy(to, from, length);
    to[length] = '\0';
    return true;
}

static int open_links(struct tidemill *t, const struct tidemill_options *options, struct tm_error *e)
{
    int rc = 0;
    char listen[TM_ADDRESS_MAX];
    const char *given = options->listen == NULL ? "127.0.0.1" : options->listen;
    tm_address_of_host(given, "0", listen);
    rc = tm_debug_open(t->env, e);
    if (rc == 0 && options->tls_folder != NULL) rc = tm_tls_load(t->env, options->tls_folder, &t->tls, e);
    if (rc == 0) rc = tm_links_create(t->env, listen, t->tls, t->token, &t->links, e);
    return rc;
}

static int open_worker(struct tidemill *t, const struct tidemill_options *options, struct tm_error *e)
{
    struct tm_worker_options worker = {
        .job = options->job,
        .id = options->instance,
        .incarnation = options->incarnation != 0 ? options->incarnation : (t->env->random_u64(t->env) | 1),
        .token = t->token,
        .address = tm_links_address(t->links),
        .kernel_class = t->kernel_class,
        .fingerprint = t->fingerprint,
        .endpoint = t->endpoint,
        .anchor = options->anchor != 0,
        .chunk_bytes = CHUNK_BYTES,
        .copy_bytes_max = options->copy_bytes_max != 0 ? options->copy_bytes_max : copy_bytes_default,
        .resend_ms = RESEND_MS};
    struct tm_worker_engine engine = {.context = t,
                                      .layer_bytes = engine_bytes,
                                      .export_layer = engine_export,
                                      .view_layer = engine_view,
                                      .import_layer = engine_import,
                                      .init_layer = engine_init,
                                      .drop_layer = engine_drop,
                                      .begin = engine_begin,
                                      .cancel = engine_cancel,
                                      .apply = engine_apply,
                                      .discard = engine_discard,
                                      .waiting_for = engine_waiting_for};
    if (t->engine.gradient_bytes != NULL && t->engine.read_gradient != NULL && t->engine.advance_layer != NULL) {
        engine.gradient_bytes = engine_gradient_bytes;
        engine.export_gradient = engine_export_gradient;
        engine.advance_layer = engine_advance;
    }
    t->id = options->instance;
    t->worker = tm_worker_create(&worker, &engine);
    t->texts = tm_calloc(TM_MEMBERS_MAX, sizeof *t->texts);
    t->members = tm_calloc(TM_MEMBERS_MAX, sizeof *t->members);
    if (t->worker == NULL || t->texts == NULL || t->members == NULL) return tm_error_nomem(e);
    if (tm_layer_places_init(&t->layers, &t->engine, TM_LAYERS_MAX, tm_worker_blocks(t->worker), &t->lock) != 0)
        return tm_error_nomem(e);
    int rc = 0;
    if (options->copy_folder != NULL && options->copy_folder[0] != '\0')
        rc = tm_copy_store_open(t->env, options->copy_folder, options->job, &t->store, e);
    if (rc == 0) rc = tm_copy_files_create(t->store, on_file, t, &t->files, e);
    if (rc != 0) return rc;
    if (pthread_create(&t->thread, NULL, serve, t) != 0) return tm_error_nomem(e);
    t->thread_runs = true;
    return 0;
}

static int read_token(struct tidemill *t, const struct tidemill_options *options, struct tm_error *e)
{
    struct tm_text text;
    if (options->token != NULL || options->token_file == NULL) return 0;
    tm_text_init(&text, sizeof t->token - 1);
    int rc = t->env->file_read(t->env, options->token_file, &text, e);
    if (rc == 0) (void)keep(t->token, sizeof t->token, tm_text_string(&text));
    t->token[strcspn(t->token, "\r\n")] = '\0';
    tm_text_deinit(&text);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "reading the join token");
}

static int open_with(struct tidemill *t, const struct tidemill_options *options, const struct tidemill_engine *engine,
                     struct tm_error *e)
{
    t->env = tm_env_real();
    t->engine = *engine;
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->changed, NULL);
    tm_outbox_init(&t->out);
    bool fits = keep(t->coordinator, sizeof t->coordinator, options->coordinator) &&
                keep(t->token, sizeof t->token, options->token) &&
                keep(t->kernel_class, sizeof t->kernel_class, options->kernel_class) &&
                keep(t->fingerprint, sizeof t->fingerprint, options->fingerprint) &&
                keep(t->endpoint, sizeof t->endpoint, options->endpoint);
    int rc = fits ? read_token(t, options, e) : tm_error_set(e, TM_EUSAGE, "an option is too long");
    if (rc == 0) rc = open_links(t, options, e);
    if (rc == 0) rc = open_worker(t, options, e);
    return rc;
}

tidemill *tidemill_open(const struct tidemill_options *options, const struct tidemill_engine *engine, char *error,
                        size_t error_size)
{
    struct tm_error e;
    struct tidemill_options given = {.size = 0};
    struct tidemill *t = NULL;
    int rc = 0;
    if (options->size < sizeof given.size || options->size > sizeof given)
        rc = tm_error_set(&e, TM_EUSAGE, "options of %zu bytes: the program was built for a newer libtidemill",
                          options->size);
    if (rc == 0) memcpy(&given, options, options->size);
    if (rc == 0 && given.instance == 0) rc = tm_error_set(&e, TM_EUSAGE, "the instance number is missing");
    if (rc == 0) {
        t = tm_calloc(1, sizeof *t);
        rc = t == NULL ? tm_error_nomem(&e) : open_with(t, &given, engine, &e);
    }
    if (rc == 0) return t;
    if (error != NULL) (void)snprintf(error, error_size, "%s", e.text);
    tidemill_close(t);
    return NULL;
}

void tidemill_close(tidemill *t)
{
    if (t == NULL) return;
    if (t->thread_runs) {
        (void)pthread_mutex_lock(&t->lock);
        t->closing = true;
        tm_links_wake_always(t->links);
        (void)pthread_mutex_unlock(&t->lock);
        (void)pthread_join(t->thread, NULL);
    }
    tm_copy_files_destroy(t->files);
    if (t->store != NULL) t->store->close(t->store);
    tm_worker_destroy(t->worker);
    tm_links_destroy(t->links);
    tm_tls_destroy(t->tls);
    tm_outbox_deinit(&t->out);
    tm_layer_places_deinit(&t->layers);
    tm_free(t->texts);
    tm_free(t->members);
    (void)pthread_cond_destroy(&t->changed);
    (void)pthread_mutex_destroy(&t->lock);
    tm_free(t);
}

/* ---- the engine's thread ---- */

/* At the end the engine is left with the layers of the last step alone: a spare may hold older ones. */
static void keep_result(struct tidemill *t)
{
    uint64_t last = tm_worker_look(t->worker, 0).steps;
    for (uint32_t l = 0; l < TM_LAYERS_MAX; l++) {
        uint64_t step = 0;
        if (tm_worker_holds(t->worker, l, &step) && step == last) continue;
        if (tm_layer_places__has(&t->layers, l)) engine_drop(t, l);
    }
    while (t->layers.unsettled && tm_layer_places_settle(&t->layers) == 0)
        continue;
}

static void give_peers(struct tidemill *t, struct tidemill_work *out)
{
    for (size_t i = 0; i < t->member_count; i++) {
        const struct tm_member *member = &t->members[i];
        struct peer_texts *texts = &t->texts[i];
        memcpy(texts->address, member->address, sizeof texts->address);
        memcpy(texts->endpoint, member->endpoint, sizeof texts->endpoint);
        t->peers[i] = (struct tidemill_peer){.instance = member->id,
                                             .pipeline = member->pipeline,
                                             .stage = member->stage,
                                             .address = texts->address,
                                             .endpoint = texts->endpoint};
    }
    out->peers = t->peers;
    out->peer_count = t->member_count;
    memcpy(t->given_stage_first, t->stage_first, sizeof t->stage_first);
    memcpy(t->given_micro_batch_first, t->micro_batch_first, sizeof t->micro_batch_first);
    out->stage_first = t->given_stage_first;
    out->micro_batch_first = t->given_micro_batch_first;
}

int tidemill_next(tidemill *t, struct tidemill_work *out)
{
    int rc = 0;
    (void)pthread_mutex_lock(&t->lock);
    while (rc == 0 && !t->stopped && (!t->due || t->layers.unsettled)) {
        if (t->layers.unsettled) /* while others still come */
            rc = tm_layer_places_settle(&t->layers);
        else
            (void)pthread_cond_wait(&t->changed, &t->lock);
    }
    if (rc != 0) {
        (void)snprintf(t->reason, sizeof t->reason, "not enough memory for the layers of this worker");
    } else if (t->stopped) {
        rc = t->stop_code;
        if (rc == 1) keep_result(t);
    } else {
        t->due = false;
        *out = t->work;
        give_peers(t, out);
        atomic_store(&t->taken, atomic_load(&t->ticket));
    }
    (void)pthread_mutex_unlock(&t->lock);
    return rc;
}

int tidemill_cancelled(tidemill *t)
{
    return atomic_load(&t->ticket) != atomic_load(&t->taken);
}

int tidemill_held(tidemill *t, uint64_t step, const struct tidemill_norm *norms, size_t count)
{
    struct tm_norm *list = tm_calloc(count + 1, sizeof *list);
    for (size_t i = 0; list != NULL && i < count; i++)
        list[i] = (struct tm_norm){.layer = norms[i].layer, .sum = norms[i].sum};
    (void)pthread_mutex_lock(&t->lock);
    if (list == NULL) stop(t, -(int)TM_ENOMEM);
    bool cancelled = tidemill_cancelled(t) != 0 || !alive(t);
    if (!cancelled) {
        tm_worker_held(t->worker, now_ms(t), step, list, count, &t->out);
        follow_up_elsewhere(t);
    }
    (void)pthread_mutex_unlock(&t->lock);
    tm_free(list);
    return cancelled;
}

int tidemill_applied(tidemill *t, uint64_t step)
{
    (void)pthread_mutex_lock(&t->lock);
    if (alive(t)) {
        tm_worker_applied(t->worker, now_ms(t), step, &t->out);
        follow_up_elsewhere(t);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return 0;
}

void tidemill_waiting_for(tidemill *t, uint64_t instance)
{
    atomic_store(&t->waiting_for, instance);
}

void tidemill_report_loss(tidemill *t, uint64_t step, double loss)
{
    if (!isfinite(loss)) return;
    (void)pthread_mutex_lock(&t->lock);
    tm_worker_loss(t->worker, step, loss);
    (void)pthread_mutex_unlock(&t->lock);
}

void tidemill_computed(tidemill *t, uint64_t step, uint64_t microseconds)
{
    (void)pthread_mutex_lock(&t->lock);
    tm_worker_computed(t->worker, step, microseconds);
    (void)pthread_mutex_unlock(&t->lock);
}

void tidemill_report_metric(tidemill *t, uint64_t step, const char *name, double value)
{
    if (!isfinite(value) || name == NULL) return;
    (void)pthread_mutex_lock(&t->lock);
    tm_worker__metric(t->worker, step, name, value);
    (void)pthread_mutex_unlock(&t->lock);
}

void tidemill_failed(tidemill *t, const char *reason)
{
    (void)pthread_mutex_lock(&t->lock);
    tm_worker__failed(t->worker, now_ms(t), reason == NULL ? "" : reason, &t->out);
    follow_up_elsewhere(t);
    (void)pthread_mutex_unlock(&t->lock);
}

const char *tidemill_reason(const tidemill *t)
{
    return t->reason;
}

struct tidemill_abi tidemill_abi(void)
{
    return (struct tidemill_abi){.number = TIDEMILL_ABI,
                                 .options = sizeof(struct tidemill_options),
                                 .engine = sizeof(struct tidemill_engine),
                                 .peer = sizeof(struct tidemill_peer),
                                 .work = sizeof(struct tidemill_work),
                                 .norm = sizeof(struct tidemill_norm)};
}
