/* Copies: an immutable snapshot of our layers at one step, sent to its holders while training goes on. */
#include "worker/worker_internal.h"

#include "base/alloc.h"
#include "base/planted.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { FILE_PATIENCE = 10 };

void tm_worker__copy_end(struct tm_worker *w)
{
    for (size_t i = 0; i < w->out.part_count; i++)
        tm_block_release(w->out.parts[i].block);
    tm_free(w->out.parts);
    w->out = (struct copy_out){.set = 0};
}

/* ---- the snapshot ---- */

static bool snapshot_part(struct tm_worker *w, struct copy_part_out *part)
{
    assert(part->name.layer < w->layer_count && part->block == NULL);
    assert(w->applying == 0);
    uint32_t layer = part->name.layer;
    const struct held_layer *held = &w->layers[layer];
    if (!held->have || (held->step != w->out.step && !TM_PLANTED(wrong_version))) return false;
    part->name.size = w->engine.layer_bytes(w->engine.context, layer);
    part->name.step = w->out.step;
    part->name.set = w->out.set;
    part->name.generation = w->generation;
    part->block = tm_block_create(w->blocks, (size_t)part->name.size);
    if (part->block == NULL) return false;
    const void *seen = w->engine.view_layer != NULL ? w->engine.view_layer(w->engine.context, layer) : NULL;
    if (seen != NULL) {
        part->name.hash = tm_hash_copy(part->block->data, seen, (size_t)part->name.size);
    } else {
        if (w->engine.export_layer(w->engine.context, layer, part->block->data, part->name.size) != 0) return false;
        part->name.hash = tm_hash_of(part->block->data, (size_t)part->name.size);
    }
    w->layers[layer].hash = part->name.hash;
    w->layers[layer].hashed = true;
    return true;
}

static void snapshot(struct tm_worker *w)
{
    assert(!w->out.taken && w->out.set != 0);
    w->out.taken = true;
    for (size_t i = 0; i < w->out.part_count; i++)
        if (!snapshot_part(w, &w->out.parts[i])) w->out.missed = true;
    w->heartbeat_now = w->out.missed;
}

/* The state is of step `applied` and stands still until the next step is applied: take it now or never. */
void tm_worker__copy_applied(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    if (w->out.set == 0 || w->out.taken || w->out.missed || w->applying != 0) return;
    uint64_t step = w->out.step;
    if (TM_PLANTED(wrong_version) && w->self.id % 2 == 0) step++;
    if (w->applied > step) {
        w->out.missed = true;
        w->heartbeat_now = true;
    }
    if (w->applied != step) return;
    snapshot(w);
    tm_worker__copy_pump(w, now_ms, out);
}

void tm_worker__on_copy_order(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__CopyOrder *order = message->copy_order;
    if (order->generation != w->generation || w->phase != TM_WORKER_RUNNING || order->set <= w->out.set) return;
    if (order->n_tasks > w->layer_count || order->set == 0) return;
    tm_worker__copy_end(w);
    w->out.parts = tm_calloc(order->n_tasks + 1, sizeof *w->out.parts);
    if (w->out.parts == NULL) return;
    w->out.set = order->set;
    w->out.step = order->step;
    for (size_t i = 0; i < order->n_tasks; i++) {
        const Tmw__CopyTask *task = order->tasks[i];
        struct copy_part_out *part = &w->out.parts[w->out.part_count];
        if (task->layer >= w->layer_count || task->n_targets >= COPY_TARGETS_MAX) continue;
        part->name.layer = task->layer;
        for (size_t t = 0; t < task->n_targets; t++)
            part->targets[part->target_count++] = (struct copy_target){.id = task->targets[t]};
        if (task->to_file) part->targets[part->target_count++] = (struct copy_target){.id = 0};
        w->out.part_count++;
    }
    tm_worker__copy_applied(w, now_ms, out);
}

/* ---- sending ---- */

static void send_chunk(struct tm_worker *w, const struct copy_part_out *part, struct copy_target *target,
                       int64_t now_ms, struct tm_outbox *out)
{
    assert(part->block != NULL && target->id != 0);
    struct tm_peer to = tm_worker__member(w, target->id);
    target->asked = true;
    target->sent_ms = now_ms;
    if (to.id == 0) return;
    Tmw__CopyPut body = TMW__COPY_PUT__INIT;
    tm_message message = tm_worker__head(w, &to);
    assert(target->acked <= part->name.size);
    uint64_t left = part->name.size - target->acked;
    body.set = part->name.set;
    body.generation = w->generation;
    body.step = part->name.step;
    body.layer = part->name.layer;
    body.hash_low = part->name.hash.low;
    body.hash_high = part->name.hash.high;
    body.offset = target->acked;
    body.total = part->name.size;
    body.data.data = part->block->data + target->acked;
    body.data.len = left < w->options.chunk_bytes ? (size_t)left : w->options.chunk_bytes;
    TM_BODY(message, COPY_PUT, copy_put, &body);
    tm_outbox_send(out, &to, &message);
}

static void put_file(const struct copy_part_out *part, struct copy_target *target, int64_t now_ms,
                     struct tm_outbox *out)
{
    assert(part->block != NULL && target->id == 0 && !target->done);
    tm_outbox_add(out, TM_WORKER_FILE_PUT, NULL, 0, part->name.set, part->name.layer);
    target->asked = true;
    target->refused = false;
    target->sent_ms = now_ms;
}

/* Our own part of the set stays with us. */
static void put_here(struct tm_worker *w, const struct copy_part_out *part, struct copy_target *target)
{
    assert(target->id == w->self.id && part->block != NULL);
    target->done = tm_copies_share(&w->copies, &part->name, part->block, NULL) == 0;
    if (!target->done) w->out.missed = w->heartbeat_now = true; /* no room */
}

/* Files are written a few at a time: more of them would not be faster, and each would be done later. */
static bool file_may_begin(const struct tm_worker *w, int64_t now_ms)
{
    size_t under_way = 0;
    for (size_t i = 0; i < w->out.part_count; i++)
        for (size_t t = 0; w->out.parts[i].block != NULL && t < w->out.parts[i].target_count; t++) {
            const struct copy_target *target = &w->out.parts[i].targets[t];
            under_way += target->id == 0 && target->asked && !target->done && !target->refused &&
                         now_ms - target->sent_ms < FILE_PATIENCE * w->options.resend_ms;
        }
    return under_way < TM_WORKER_FILES_AT_ONCE;
}

static void part_pump(struct tm_worker *w, struct copy_part_out *part, int64_t now_ms, struct tm_outbox *out)
{
    assert(part->block != NULL && part->target_count <= COPY_TARGETS_MAX);
    bool all = true;
    for (size_t t = 0; t < part->target_count; t++) {
        struct copy_target *target = &part->targets[t];
        if (!target->done && target->id == w->self.id) put_here(w, part, target);
        if (target->done) continue;
        all = false;
        if (target->id == w->self.id) continue;
        bool writing = target->id == 0 && !target->refused; /* a full disk is asked again sooner than a slow one */
        int64_t patience_ms = writing ? FILE_PATIENCE * w->options.resend_ms : w->options.resend_ms;
        if (target->asked && now_ms - target->sent_ms < patience_ms) continue;
        if (target->id == 0 && file_may_begin(w, now_ms))
            put_file(part, target, now_ms, out);
        else if (target->id != 0)
            send_chunk(w, part, target, now_ms, out);
    }
    if (!all) return;
    tm_block_release(part->block);
    part->block = NULL;
    w->heartbeat_now = true;
}

void tm_worker__copy_pump(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    if (!w->out.taken || w->out.missed || w->phase != TM_WORKER_RUNNING) return;
    for (size_t i = 0; i < w->out.part_count; i++)
        if (w->out.parts[i].block != NULL) part_pump(w, &w->out.parts[i], now_ms, out);
}

static struct copy_part_out *find_part(struct tm_worker *w, uint64_t set, uint32_t layer)
{
    for (size_t i = 0; w->out.taken && w->out.set == set && i < w->out.part_count; i++)
        if (w->out.parts[i].name.layer == layer && w->out.parts[i].block != NULL) return &w->out.parts[i];
    return NULL;
}

void tm_worker__on_copy_ack(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__CopyAck *ack = message->copy_ack;
    struct copy_part_out *part = tm_worker__from_member(w, message) ? find_part(w, ack->set, ack->layer) : NULL;
    for (size_t t = 0; part != NULL && t < part->target_count; t++) {
        struct copy_target *target = &part->targets[t];
        if (target->id != message->from_id || target->id == 0 || target->done) continue;
        if (ack->refused) {
            w->out.missed = true;
            w->heartbeat_now = true;
            return;
        }
        if (ack->received > part->name.size) return;
        target->done = ack->complete;
        if (ack->received != target->acked) { /* on to the next chunk; back to the first where it was forgotten */
            target->acked = ack->received;
            target->asked = false;
        }
    }
    if (part != NULL) part_pump(w, part, now_ms, out);
}

void tm_worker__file_put(struct tm_worker *w, int64_t now_ms, uint64_t set, uint32_t layer, bool stored,
                         struct tm_outbox *out)
{
    struct copy_part_out *part = find_part(w, set, layer);
    for (size_t t = 0; part != NULL && t < part->target_count; t++) {
        struct copy_target *target = &part->targets[t];
        if (target->id != 0 || target->done) continue;
        target->done = stored;
        target->refused = !stored;
        target->sent_ms = now_ms;
    }
    if (part != NULL) tm_worker__copy_pump(w, now_ms, out); /* the next file's turn */
}

void tm_worker__file_trouble(struct tm_worker *w, bool full, const char *trouble)
{
    assert(trouble != NULL);
    bool news = (w->trouble[0] != '\0') != (trouble[0] != '\0');
    (void)snprintf(w->trouble, sizeof w->trouble, "%s", trouble);
    w->trouble_full = full && trouble[0] != '\0';
    if (news) w->heartbeat_now = true;
}

struct tm_block *tm_worker_file_block(struct tm_worker *w, uint64_t set, uint32_t layer, struct tm_copy_name *out_name)
{
    assert(out_name != NULL);
    struct copy_part_out *part = find_part(w, set, layer);
    if (part == NULL) return NULL;
    *out_name = part->name;
    return tm_block_share(part->block);
}

/* ---- holding ---- */

void tm_worker__on_copy_put(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__CopyPut *put = message->copy_put;
    struct tm_peer from = tm_message_sender(message);
    if (put->generation != w->generation || w->phase != TM_WORKER_RUNNING || put->layer >= w->layer_count) return;
    if (!tm_worker__from_member(w, message)) return;
    (void)now_ms;
    struct tm_copy_name name = {.set = put->set,
                                .step = put->step,
                                .generation = put->generation,
                                .layer = put->layer,
                                .hash = {.low = put->hash_low, .high = put->hash_high},
                                .size = put->total};
    uint64_t received = 0;
    int rc = tm_copies_put(&w->copies, &name, put->offset, put->data.data, put->data.len, &received, NULL);
    Tmw__CopyAck body = TMW__COPY_ACK__INIT;
    tm_message message_out = tm_worker__head(w, &from);
    body.set = put->set;
    body.layer = put->layer;
    body.received = rc == 0 ? received : 0;
    body.complete = rc == 0 && received == put->total;
    body.refused = rc == -(int)TM_ELIMIT || rc == -(int)TM_ENOMEM;
    TM_BODY(message_out, COPY_ACK, copy_ack, &body);
    tm_outbox_send(out, &from, &message_out);
}

/* ---- telling ---- */

size_t tm_worker__copied(const struct tm_worker *w, struct tm_arena *arena, Tmw__CopyPart ***out)
{
    size_t count = 0;
    if (w->out.set == 0 || !w->out.taken || w->out.missed) return 0;
    size_t most = w->out.part_count * COPY_TARGETS_MAX + 1;
    if (most > TM_MESSAGE_LIST_MAX) most = TM_MESSAGE_LIST_MAX;
    Tmw__CopyPart *parts = tm_arena_alloc(arena, most * sizeof *parts);
    *out = tm_arena_alloc(arena, most * sizeof(Tmw__CopyPart *));
    if (parts == NULL || *out == NULL) return 0;
    for (size_t i = 0; i < w->out.part_count; i++) {
        const struct copy_part_out *part = &w->out.parts[i];
        for (size_t t = 0; t < part->target_count && count < most; t++) {
            if (!part->targets[t].done) continue;
            tmw__copy_part__init(&parts[count]);
            parts[count].set = part->name.set;
            parts[count].step = part->name.step;
            parts[count].layer = part->name.layer;
            parts[count].hash_low = part->name.hash.low;
            parts[count].hash_high = part->name.hash.high;
            parts[count].holder = part->targets[t].id;
            (*out)[count] = &parts[count];
            count++;
        }
    }
    return count;
}
