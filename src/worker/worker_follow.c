/* Following: a worker that is to get layers takes them while the others train on. It fetches a version, an immutable
 * snapshot that a member makes when it is first asked; the member keeps the reduced gradients of every step that it
 * applies since; and the follower applies those to its version, step after step, until it is level with the members.
 * Then the change of generation moves nothing.
 *
 * Nothing depends on it: at the fence a follower reports its layers with their hashes, and what is not exactly what the
 * members have is fetched as ever. Versions and gradients are asked for again until they come; whoever is not asked for
 * a while forgets them. */
#include "worker/worker_internal.h"

#include "base/alloc.h"
#include "base/planted.h"

#include <assert.h>
#include <string.h>

enum { IDLE_RESENDS = 20, ASKED_AT_ONCE = 8, SERVED_TIMES = 3 };

static bool can_follow(const struct tm_worker *w)
{
    return w->engine.gradient_bytes != NULL && w->engine.export_gradient != NULL && w->engine.advance_layer != NULL;
}

/* ---- serving: versions and gradients ---- */

static void served_clear(struct tm_worker *w, struct followed *served)
{
    assert(w->serving.bytes >= served->bytes);
    for (size_t i = 0; i < served->gradient_count; i++)
        tm_block_release(served->gradients[i].block);
    tm_free(served->gradients);
    tm_block_release(served->version);
    w->serving.bytes -= served->bytes;
    *served = (struct followed){.version = NULL};
}

void tm_worker__serving_end(struct tm_worker *w)
{
    for (size_t i = 0; i < w->serving.count; i++)
        served_clear(w, &w->serving.layers[i]);
    tm_free(w->serving.layers);
    w->serving = (struct serving){.layers = NULL};
}

static struct followed *served_layer(struct tm_worker *w, uint32_t layer)
{
    for (size_t i = 0; i < w->serving.count; i++)
        if (w->serving.layers[i].version != NULL && w->serving.layers[i].layer == layer) return &w->serving.layers[i];
    return NULL;
}

static struct followed *free_place(struct tm_worker *w)
{
    for (size_t i = 0; i < w->serving.count; i++)
        if (w->serving.layers[i].version == NULL) return &w->serving.layers[i];
    if (tm_grow((void **)&w->serving.layers, &w->serving.capacity, w->serving.count + 1, sizeof *w->serving.layers,
                TM_LAYERS_MAX) != 0)
        return NULL;
    w->serving.layers[w->serving.count] = (struct followed){.version = NULL};
    return &w->serving.layers[w->serving.count++];
}

/* What is kept for followers is bounded by what is trained here: a version of it, and twice as much of gradients. */
static bool has_room(const struct tm_worker *w, uint64_t size)
{
    uint64_t held = 0;
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (w->layers[l].have) held += w->engine.layer_bytes(w->engine.context, l);
    uint64_t most = SERVED_TIMES * held > w->options.copy_bytes_max ? SERVED_TIMES * held : w->options.copy_bytes_max;
    return w->serving.bytes + size <= most;
}

/* A snapshot of the layer as it is now: the state stands still unless a step is being applied. */
static struct followed *make_version(struct tm_worker *w, uint32_t layer)
{
    assert(layer < w->layer_count);
    bool mine = w->phase == TM_WORKER_RUNNING && w->applying == 0 && w->layers[layer].have && w->applied > 0;
    uint64_t size = w->engine.layer_bytes(w->engine.context, layer);
    if (!mine || w->layers[layer].step != w->applied || !has_room(w, size)) return NULL;
    struct followed *served = free_place(w);
    struct tm_block *block = served == NULL ? NULL : tm_block_create(w->blocks, (size_t)size);
    if (block == NULL || w->engine.export_layer(w->engine.context, layer, block->data, size) != 0) {
        tm_block_release(block);
        return NULL;
    }
    *served = (struct followed){.layer = layer,
                                .step = w->applied,
                                .version = block,
                                .bytes = size,
                                .hash = tm_hash_of(block->data, (size_t)size)};
    w->serving.bytes += size;
    return served;
}

static bool keep_gradient(struct tm_worker *w, struct followed *served, double norm)
{
    uint64_t size = w->engine.gradient_bytes(w->engine.context, served->layer);
    struct tm_block *block = has_room(w, size) ? tm_block_create(w->blocks, (size_t)size) : NULL;
    if (block == NULL || w->engine.export_gradient(w->engine.context, served->layer, block->data, size) != 0 ||
        tm_grow((void **)&served->gradients, &served->gradient_capacity, served->gradient_count + 1,
                sizeof *served->gradients, 1 << 16) != 0) {
        tm_block_release(block);
        return false;
    }
    served->gradients[served->gradient_count++] = (struct kept_gradient){.block = block, .norm = norm};
    served->bytes += size;
    w->serving.bytes += size;
    return true;
}

/* Before a step is applied: its gradients are still there. */
void tm_worker__keep_gradients(struct tm_worker *w, uint64_t step, double norm)
{
    assert(step == w->applied + 1 && w->applying == step);
    for (size_t i = 0; i < w->serving.count; i++) {
        struct followed *served = &w->serving.layers[i];
        if (served->version == NULL) continue;
        bool next = step == served->step + served->gradient_count + 1;
        if (!next || !keep_gradient(w, served, norm))
            served_clear(w, served); /* followers begin with another version */
    }
}

/* A follower that asks for a step has applied those before it: where there is one follower, nobody asks for them again.
 */
static void forget_used(struct tm_worker *w, struct followed *served, uint64_t step)
{
    assert(step > served->step);
    size_t used = (size_t)(step - served->step - 1);
    for (size_t i = 0; w->follow.follower_count == 1 && i < used && i < served->gradient_count; i++) {
        struct tm_block *block = served->gradients[i].block;
        if (block == NULL) continue;
        served->bytes -= block->size;
        w->serving.bytes -= block->size;
        tm_block_release(block);
        served->gradients[i].block = NULL;
    }
}

static void send_data(struct tm_worker *w, const struct tm_peer *to, const Tmw__FollowRequest *request, uint64_t step,
                      const struct tm_block *from, double norm, const struct tm_hash *hash, struct tm_outbox *out)
{
    assert(from != NULL && request->offset < from->size);
    Tmw__FollowData body = TMW__FOLLOW_DATA__INIT;
    tm_message message = tm_worker__head(w, to);
    uint64_t left = from->size - request->offset;
    body.generation = request->generation;
    body.number = request->number;
    body.layer = request->layer;
    body.step = step;
    body.gradient = request->step != 0;
    body.offset = request->offset;
    body.total = from->size;
    body.norm = norm;
    body.hash_low = hash->low;
    body.hash_high = hash->high;
    body.data.data = from->data + request->offset;
    body.data.len = left < w->options.chunk_bytes ? (size_t)left : w->options.chunk_bytes;
    TM_BODY(message, FOLLOW_DATA, follow_data, &body);
    tm_outbox_send(out, to, &message);
}

static void say_gone(struct tm_worker *w, const struct tm_peer *to, const Tmw__FollowRequest *request,
                     struct tm_outbox *out)
{
    Tmw__FollowData body = TMW__FOLLOW_DATA__INIT;
    tm_message message = tm_worker__head(w, to);
    body.generation = request->generation;
    body.number = request->number;
    body.layer = request->layer;
    body.step = request->step;
    body.gone = true;
    TM_BODY(message, FOLLOW_DATA, follow_data, &body);
    tm_outbox_send(out, to, &message);
}

/* The answer, if it can be given now. A gradient that is still to come is answered when it is there. */
static void answer(struct tm_worker *w, const struct tm_peer *to, const Tmw__FollowRequest *request,
                   struct tm_outbox *out)
{
    assert(to->role == TM_ROLE_WORKER && request->layer < w->layer_count);
    static const struct tm_hash none = {0};
    struct followed *served = served_layer(w, request->layer);
    if (request->step == 0) { /* a version */
        if (served == NULL) served = make_version(w, request->layer);
        if (served == NULL || request->offset >= served->version->size) return;
        send_data(w, to, request, served->step, served->version, 0, &served->hash, out);
        return;
    }
    if (served == NULL || request->step <= served->step) {
        say_gone(w, to, request, out);
        return;
    }
    size_t at = (size_t)(request->step - served->step - 1);
    if (at >= served->gradient_count) return;
    const struct kept_gradient *kept = &served->gradients[at];
    if (kept->block == NULL)
        say_gone(w, to, request, out);
    else if (request->offset < kept->block->size)
        send_data(w, to, request, request->step, kept->block, kept->norm, &none, out);
}

static bool may_follow(const struct tm_worker *w, const struct tm_peer *peer)
{
    for (size_t i = 0; i < w->follow.follower_count; i++)
        if (tm_peer_equal(&w->follow.followers[i], peer)) return true;
    return false;
}

void tm_worker__on_follow_request(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__FollowRequest *request = message->follow_request;
    struct tm_peer from = tm_message_sender(message);
    if (request->generation != w->generation || !tm_worker__leased(w, now_ms) || request->layer >= w->layer_count)
        return;
    if (!can_follow(w) || (!may_follow(w, &from) && !TM_PLANTED(strangers_served))) return;
    answer(w, &from, request, out);
    struct followed *served = served_layer(w, request->layer);
    if (served == NULL) return;
    served->asked_ms = now_ms;
    if (request->step > served->step) forget_used(w, served, request->step);
    /* Remembered until it can be answered. */
    if (request->step != served->step + served->gradient_count + 1) return;
    size_t i = 0;
    while (i < served->waiting_count && served->waiting[i].id != from.id)
        i++;
    if (i == FOLLOWERS_MAX) return;
    if (i == served->waiting_count) served->waiting_count++;
    served->waiting[i] = from;
    served->waiting_number = request->number;
}

/* A step was applied: those who wait for its gradients get them. */
void tm_worker__tell_followers(struct tm_worker *w, struct tm_outbox *out)
{
    for (size_t i = 0; i < w->serving.count; i++) {
        struct followed *served = &w->serving.layers[i];
        size_t waiting = served->version == NULL ? 0 : served->waiting_count;
        served->waiting_count = 0;
        for (size_t k = 0; k < waiting; k++) {
            Tmw__FollowRequest request = TMW__FOLLOW_REQUEST__INIT;
            request.generation = w->generation;
            request.number = served->waiting_number;
            request.layer = served->layer;
            request.step = served->step + served->gradient_count;
            if (served->gradient_count > 0) answer(w, &served->waiting[k], &request, out);
        }
    }
}

static void forget_idle(struct tm_worker *w, int64_t now_ms)
{
    for (size_t i = 0; i < w->serving.count; i++) {
        struct followed *served = &w->serving.layers[i];
        if (served->version != NULL && now_ms - served->asked_ms > IDLE_RESENDS * w->options.resend_ms)
            served_clear(w, served);
    }
}

/* ---- following ---- */

static void following_clear(struct following_layer *layer)
{
    tm_block_release(layer->block);
    tm_block_release(layer->gradient);
    layer->block = NULL;
    layer->gradient = NULL;
    layer->received = layer->gradient_received = 0;
    layer->step = layer->version = 0;
    layer->asked = false;
}

void tm_worker__follow_end(struct tm_worker *w)
{
    for (size_t i = 0; i < w->follow.count; i++)
        following_clear(&w->follow.layers[i]);
    tm_free(w->follow.layers);
    tm_free(w->follow.peers);
    tm_free(w->follow.followers);
    w->follow = (struct follow){.number = 0};
}

static const struct tm_peer *follow_peer(const struct tm_worker *w, uint64_t id)
{
    for (size_t i = 0; i < w->follow.peer_count; i++)
        if (w->follow.peers[i].peer.id == id) return &w->follow.peers[i].peer;
    return NULL;
}

/* At what step all layers are; 0: not all have come. */
uint64_t tm_worker__follow_step(const struct tm_worker *w)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < w->follow.count; i++)
        if (w->follow.layers[i].step < least) least = w->follow.layers[i].step;
    return w->follow.count == 0 ? 0 : least;
}

static void ask(struct tm_worker *w, struct following_layer *layer, int64_t now_ms, struct tm_outbox *out)
{
    assert(!w->follow.frozen && layer->layer < w->layer_count);
    const struct tm_peer *to = follow_peer(w, layer->source);
    layer->asked = true;
    layer->asked_ms = now_ms;
    if (to == NULL) return;
    Tmw__FollowRequest body = TMW__FOLLOW_REQUEST__INIT;
    tm_message message = tm_worker__head(w, to);
    body.generation = w->generation;
    body.number = w->follow.number;
    body.layer = layer->layer;
    body.step = layer->step == 0 ? 0 : layer->step + 1;
    body.offset = layer->step == 0 ? layer->received : layer->gradient_received;
    TM_BODY(message, FOLLOW_REQUEST, follow_request, &body);
    tm_outbox_send(out, to, &message);
}

void tm_worker__follow_pump(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    forget_idle(w, now_ms);
    size_t asked = 0; /* of versions, which are large */
    for (size_t i = 0; !w->follow.frozen && i < w->follow.count; i++) {
        struct following_layer *layer = &w->follow.layers[i];
        if (layer->step == 0 && asked++ == ASKED_AT_ONCE) return;
        if (layer->asked && now_ms - layer->asked_ms < w->options.resend_ms) continue;
        ask(w, layer, now_ms, out);
    }
}

static bool keep_peers(struct tm_worker *w, const Tmw__Follow *body)
{
    w->follow.peers = tm_calloc(body->n_peers + 1, sizeof *w->follow.peers);
    w->follow.followers = tm_calloc(body->n_followers + 1, sizeof *w->follow.followers);
    if (w->follow.peers == NULL || w->follow.followers == NULL) return false;
    for (size_t i = 0; i < body->n_followers; i++)
        w->follow.followers[w->follow.follower_count++] = (struct tm_peer){
            .role = TM_ROLE_WORKER, .id = body->followers[i]->id, .incarnation = body->followers[i]->incarnation};
    for (size_t i = 0; i < body->n_peers; i++) {
        struct follow_peer *peer = &w->follow.peers[w->follow.peer_count++];
        peer->peer = (struct tm_peer){
            .role = TM_ROLE_WORKER, .id = body->peers[i]->id, .incarnation = body->peers[i]->incarnation};
        size_t length = strnlen(body->peers[i]->address, sizeof peer->address - 1);
        memcpy(peer->address, body->peers[i]->address, length);
    }
    return true;
}

void tm_worker__on_follow(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__Follow *body = message->follow;
    if (body->generation != w->generation || body->number <= w->follow.number || !can_follow(w)) return;
    if (body->n_tasks > w->layer_count || body->n_peers > TM_MEMBERS_MAX || body->n_followers > TM_MEMBERS_MAX) return;
    tm_worker__follow_end(w);
    w->follow.layers = tm_calloc(body->n_tasks + 1, sizeof *w->follow.layers);
    if (w->follow.layers == NULL || !keep_peers(w, body)) { /* it will be told again */
        tm_worker__follow_end(w);
        return;
    }
    w->follow.number = body->number;
    for (size_t i = 0; i < body->n_tasks; i++)
        if (body->tasks[i]->layer < w->layer_count)
            w->follow.layers[w->follow.count++] =
                (struct following_layer){.layer = body->tasks[i]->layer, .source = body->tasks[i]->source};
    w->heartbeat_now = true;
    tm_worker__follow_pump(w, now_ms, out);
}

/* Takes a chunk in order. True: all of it is there. */
static bool take_chunk(struct tm_worker *w, struct tm_block **block, uint64_t *received, const Tmw__FollowData *body,
                       uint64_t most)
{
    if (body->total == 0 || body->total > most || body->offset != *received) return false;
    if (*block == NULL) *block = tm_block_create(w->blocks, (size_t)body->total);
    if (*block == NULL) return false;
    if (body->total != (*block)->size || body->data.len > (*block)->size - body->offset) return false;
    if (body->data.len > 0) memcpy((*block)->data + body->offset, body->data.data, body->data.len);
    *received += body->data.len;
    assert(*received <= (*block)->size);
    return *received == (*block)->size;
}

/* The engine may have it from a change that was given up: then it gets another to change. */
static bool make_own(struct tm_worker *w, struct following_layer *layer)
{
    if (!tm_block_is_shared(layer->block)) return true;
    struct tm_block *own = tm_block_create(w->blocks, layer->block->size);
    if (own == NULL) return false;
    memcpy(own->data, layer->block->data, own->size);
    tm_block_release(layer->block);
    layer->block = own;
    return true;
}

static void take_version(struct tm_worker *w, struct following_layer *layer, const Tmw__FollowData *body)
{
    assert(layer->step == 0 && layer->layer < w->layer_count);
    uint64_t size = w->engine.layer_bytes(w->engine.context, layer->layer);
    if (body->offset == 0) layer->version = body->step;
    if (body->step != layer->version || body->total != size) { /* another version meanwhile: from its beginning */
        following_clear(layer);
        return;
    }
    if (!take_chunk(w, &layer->block, &layer->received, body, size)) return;
    struct tm_hash hash = {.low = body->hash_low, .high = body->hash_high};
    if (tm_hash_equal(tm_hash_of(layer->block->data, layer->block->size), hash)) {
        layer->step = layer->version;
        w->fetched_bytes += size;
        w->progress++;
    } else {
        following_clear(layer);
    }
}

static void take_gradient(struct tm_worker *w, struct following_layer *layer, const Tmw__FollowData *body)
{
    assert(layer->step > 0 && layer->block != NULL && body->step == layer->step + 1);
    uint64_t most = w->engine.gradient_bytes(w->engine.context, layer->layer);
    if (!take_chunk(w, &layer->gradient, &layer->gradient_received, body, most)) return;
    double norm = TM_PLANTED(follow_wrong) || TM_PLANTED(follow_unchecked) ? body->norm * 2 : body->norm;
    int rc = -(int)TM_ENOMEM;
    if (make_own(w, layer))
        rc = w->engine.advance_layer(w->engine.context, layer->layer, body->step, norm, layer->block->data,
                                     layer->block->size, layer->gradient->data, layer->gradient->size);
    tm_block_release(layer->gradient);
    layer->gradient = NULL;
    layer->gradient_received = 0;
    if (rc == 0)
        layer->step = body->step;
    else
        following_clear(layer);
}

void tm_worker__on_follow_data(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__FollowData *body = message->follow_data;
    if (body->generation != w->generation || body->number != w->follow.number || w->follow.frozen) return;
    struct following_layer *layer = NULL;
    for (size_t i = 0; i < w->follow.count; i++)
        if (w->follow.layers[i].layer == body->layer) layer = &w->follow.layers[i];
    if (layer == NULL || layer->source != message->from_id) return;
    bool version = layer->step == 0;
    uint64_t before = tm_worker__follow_step(w);
    if (body->gone) {
        if (version || body->step != layer->step + 1) return;
        following_clear(layer);
    } else if (version && !body->gradient) {
        take_version(w, layer, body);
    } else if (!version && body->gradient && body->step == layer->step + 1) {
        take_gradient(w, layer, body);
    } else {
        return; /* it came twice */
    }
    if (tm_worker__follow_step(w) != before) w->heartbeat_now = true;
    ask(w, layer, now_ms, out);
}

/* ---- at the change ---- */

/* From here on nothing is followed: what was reported stays so until it is used. */
size_t tm_worker__report_followed(struct tm_worker *w, struct tm_arena *arena, Tmw__LayerState ***out)
{
    Tmw__LayerState *states = tm_arena_alloc(arena, (w->follow.count + 1) * sizeof *states);
    size_t count = 0;
    *out = tm_arena_alloc(arena, (w->follow.count + 1) * sizeof(Tmw__LayerState *));
    if (states == NULL || *out == NULL) return 0;
    w->follow.frozen = w->follow.count > 0;
    for (size_t i = 0; i < w->follow.count; i++) {
        struct following_layer *layer = &w->follow.layers[i];
        if (layer->step == 0) continue;
        layer->hash = tm_hash_of(layer->block->data, layer->block->size);
        tmw__layer_state__init(&states[count]);
        states[count].layer = layer->layer;
        states[count].step = layer->step;
        states[count].hash_low = layer->hash.low;
        states[count].hash_high = layer->hash.high;
        (*out)[count] = &states[count];
        count++;
    }
    return count;
}

/* The layer goes to the engine, if it is at the base. */
void tm_worker__take_followed(struct tm_worker *w, uint32_t layer)
{
    assert(layer < w->layer_count && w->phase == TM_WORKER_FETCHING);
    if (w->layers[layer].have && w->layers[layer].step == w->base) return;
    for (size_t i = 0; i < w->follow.count; i++) {
        struct following_layer *followed = &w->follow.layers[i];
        if (followed->layer != layer || followed->step != w->base || !w->follow.frozen) continue;
        if (w->engine.import_layer(w->engine.context, layer, w->base, followed->block) != 0) return;
        w->layers[layer] = (struct held_layer){.have = true, .hashed = true, .step = w->base, .hash = followed->hash};
        w->progress++;
    }
}
