/* Moving layers: asking for what the new layout wants here, from several sources at once, and serving others. */
#include "worker/worker_internal.h"

#include "base/alloc.h"
#include "base/planted.h"

#include <assert.h>
#include <string.h>

enum { FILE_RETRY_MS = 5000, TRIES_BEFORE_FILE = 3 };

static void fetch_deinit(struct fetch *fetch)
{
    tm_free(fetch->sources);
    tm_block_release(fetch->block);
    tm_free(fetch->chunks);
    *fetch = (struct fetch){.done = true};
}

void tm_worker__fetch_end(struct tm_worker *w)
{
    for (size_t i = 0; i < w->fetch_count; i++)
        fetch_deinit(&w->fetches[i]);
    tm_free(w->fetches);
    w->fetches = NULL;
    w->fetch_count = 0;
}

static int fetch_init(struct tm_worker *w, struct fetch *fetch, const Tmw__Fetch *from)
{
    assert(from->layer < w->layer_count && w->options.chunk_bytes > 0);
    *fetch = (struct fetch){.layer = from->layer,
                            .hash = {.low = from->hash_low, .high = from->hash_high},
                            .set = from->set,
                            .from_file = from->from_file,
                            .initial = from->initial};
    fetch->size = w->engine.layer_bytes(w->engine.context, from->layer);
    fetch->chunk_count = (size_t)((fetch->size + w->options.chunk_bytes - 1) / w->options.chunk_bytes);
    fetch->missing = fetch->chunk_count;
    if (from->initial) return 0;
    fetch->sources = tm_calloc(from->n_sources + 1, sizeof *fetch->sources);
    if (from->n_sources > 0) fetch->block = tm_block_create(w->blocks, (size_t)fetch->size);
    fetch->chunks = tm_calloc(fetch->chunk_count + 1, sizeof *fetch->chunks);
    if (fetch->sources == NULL || fetch->chunks == NULL) return -(int)TM_ENOMEM;
    if (from->n_sources > 0 && fetch->block == NULL) return -(int)TM_ENOMEM;
    if (from->n_sources > 0) memcpy(fetch->sources, from->sources, from->n_sources * sizeof *fetch->sources);
    fetch->source_count = from->n_sources;
    return 0;
}

int tm_worker__fetch_begin(struct tm_worker *w, const Tmw__Assign *assign)
{
    assert(w->phase == TM_WORKER_FENCED && w->applying == 0);
    tm_worker__fetch_end(w);
    if (assign->n_fetches > w->layer_count) return -(int)TM_EINPUT;
    w->fetches = tm_calloc(assign->n_fetches + 1, sizeof *w->fetches);
    if (w->fetches == NULL) return -(int)TM_ENOMEM;
    for (size_t i = 0; i < assign->n_fetches; i++) {
        const Tmw__Fetch *from = assign->fetches[i];
        if (from->layer >= w->layer_count || from->n_sources > TM_MEMBERS_MAX) continue;
        w->fetch_count++;
        if (fetch_init(w, &w->fetches[w->fetch_count - 1], from) == 0) continue;
        tm_worker__fetch_end(w);
        return -(int)TM_ENOMEM;
    }
    return 0;
}

/* ---- one layer has come ---- */

static void say_failed(struct tm_worker *w, const struct fetch *fetch, uint64_t source, struct tm_outbox *out)
{
    Tmw__FetchFailed body = TMW__FETCH_FAILED__INIT;
    tm_message message = tm_worker__head(w, &w->coordinator);
    body.generation = w->generation;
    body.layer = fetch->layer;
    body.set = fetch->set;
    body.source = source;
    TM_BODY(message, FETCH_FAILED, fetch_failed, &body);
    tm_outbox_send(out, &w->coordinator, &message);
}

static void take(struct tm_worker *w, struct fetch *fetch, struct tm_block *block, struct tm_outbox *out)
{
    assert(w->phase == TM_WORKER_FETCHING && !fetch->done);
    assert(block != NULL && block->size == fetch->size && fetch->layer < w->layer_count);
    if (w->engine.import_layer(w->engine.context, fetch->layer, w->base, block) != 0) return;
    w->layers[fetch->layer] = (struct held_layer){.have = true, .hashed = true, .step = w->base, .hash = fetch->hash};
    w->progress++;
    w->fetched_bytes += fetch->size;
    fetch_deinit(fetch);
    tm_worker__check_ready(w, out);
}

static void forget_chunks(struct fetch *fetch)
{
    memset(fetch->chunks, 0, fetch->chunk_count * sizeof *fetch->chunks);
    fetch->missing = fetch->chunk_count;
}

/* All chunks are here: if together they are wrong, find out whose. */
static void finish(struct tm_worker *w, struct fetch *fetch, struct tm_outbox *out)
{
    assert(fetch->missing == 0 && fetch->block != NULL && fetch->source_count > 0);
    if (tm_hash_equal(tm_hash_of(fetch->block->data, fetch->size), fetch->hash) || TM_PLANTED(fetch_unchecked)) {
        take(w, fetch, fetch->block, out);
        return;
    }
    forget_chunks(fetch);
    if (fetch->alone || fetch->source_count == 1) {
        say_failed(w, fetch, fetch->sources[fetch->alone_at % fetch->source_count], out);
        fetch->alone_at++;
    }
    fetch->alone = true;
}

/* ---- asking ---- */

static uint64_t source_of(const struct fetch *fetch, size_t chunk)
{
    assert(fetch->source_count > 0 && chunk < fetch->chunk_count);
    if (fetch->alone) return fetch->sources[fetch->alone_at % fetch->source_count];
    return fetch->sources[(chunk + fetch->layer + fetch->chunks[chunk].tries) % fetch->source_count];
}

static void ask(struct tm_worker *w, struct fetch *fetch, size_t chunk, int64_t now_ms, struct tm_outbox *out)
{
    assert(chunk < fetch->chunk_count && !fetch->chunks[chunk].here);
    struct tm_peer to = tm_worker__member(w, source_of(fetch, chunk));
    fetch->chunks[chunk].asked = true;
    fetch->chunks[chunk].asked_ms = now_ms;
    if (to.id == 0) return; /* not a member of this generation: the next try asks another */
    Tmw__FetchRequest body = TMW__FETCH_REQUEST__INIT;
    tm_message message = tm_worker__head(w, &to);
    uint64_t offset = (uint64_t)chunk * w->options.chunk_bytes;
    uint64_t left = fetch->size - offset;
    body.generation = w->generation;
    body.step = w->base;
    body.layer = fetch->layer;
    body.set = fetch->set;
    body.hash_low = fetch->hash.low;
    body.hash_high = fetch->hash.high;
    body.offset = offset;
    body.length = left < w->options.chunk_bytes ? (uint32_t)left : w->options.chunk_bytes;
    TM_BODY(message, FETCH_REQUEST, fetch_request, &body);
    tm_outbox_send(out, &to, &message);
}

static void ask_file(const struct tm_worker *w, struct fetch *fetch, int64_t now_ms, struct tm_outbox *out)
{
    (void)w;
    if (fetch->file_asked && now_ms - fetch->file_asked_ms < FILE_RETRY_MS) return;
    fetch->file_asked = true;
    fetch->file_asked_ms = now_ms;
    tm_outbox_add(out, TM_WORKER_FILE_GET, NULL, 0, fetch->set, fetch->layer);
}

static void ask_chunks(struct tm_worker *w, struct fetch *fetch, size_t *budget, int64_t now_ms, struct tm_outbox *out)
{
    assert(fetch->source_count > 0 && fetch->missing > 0);
    for (size_t c = 0; c<fetch->chunk_count && * budget> 0; c++) {
        struct fetch_chunk *chunk = &fetch->chunks[c];
        if (chunk->here) continue;
        (*budget)--;
        if (chunk->asked && now_ms - chunk->asked_ms < w->options.resend_ms) continue;
        if (chunk->asked) chunk->tries++;
        ask(w, fetch, c, now_ms, out);
        if (fetch->from_file && chunk->tries > TRIES_BEFORE_FILE * fetch->source_count) ask_file(w, fetch, now_ms, out);
    }
}

static bool take_at_hand(struct tm_worker *w, struct fetch *fetch, struct tm_outbox *out)
{
    assert(!fetch->done && fetch->layer < w->layer_count);
    if (fetch->initial) {
        if (w->engine.init_layer(w->engine.context, fetch->layer) != 0) return true;
        w->layers[fetch->layer] = (struct held_layer){.have = true, .step = 0};
        w->progress++;
        fetch_deinit(fetch);
        tm_worker__check_ready(w, out);
        return true;
    }
    if (fetch->source_count > 0 && fetch->missing == 0) { /* all came, but the engine had no room for it then */
        finish(w, fetch, out);
        return true;
    }
    const struct tm_copy_part *own = fetch->set == 0 ? NULL : tm_copies_find(&w->copies, fetch->set, fetch->layer);
    if (own == NULL || !tm_hash_equal(own->name.hash, fetch->hash) || own->name.size != fetch->size) return false;
    if (!tm_hash_equal(tm_hash_of(own->block->data, own->name.size), fetch->hash)) return false;
    take(w, fetch, own->block, out);
    return true;
}

void tm_worker__fetch_pump(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out)
{
    size_t budget = FETCH_CHUNKS_AT_ONCE;
    for (size_t i = 0; w->phase == TM_WORKER_FETCHING && i < w->fetch_count && budget > 0; i++) {
        struct fetch *fetch = &w->fetches[i];
        if (fetch->done || take_at_hand(w, fetch, out)) continue;
        if (fetch->source_count == 0)
            ask_file(w, fetch, now_ms, out);
        else
            ask_chunks(w, fetch, &budget, now_ms, out);
    }
}

static struct fetch *find_fetch(struct tm_worker *w, uint64_t set, uint32_t layer)
{
    for (size_t i = 0; w->phase == TM_WORKER_FETCHING && i < w->fetch_count; i++)
        if (!w->fetches[i].done && w->fetches[i].layer == layer && w->fetches[i].set == set) return &w->fetches[i];
    return NULL;
}

void tm_worker__on_fetch_data(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__FetchData *body = message->fetch_data;
    if (body->generation != w->generation || body->step != w->base || !tm_worker__from_member(w, message)) return;
    struct fetch *fetch = find_fetch(w, body->set, body->layer);
    if (fetch == NULL || fetch->source_count == 0 || body->total != fetch->size) return;
    if (body->offset % w->options.chunk_bytes != 0 || body->offset >= fetch->size) return;
    size_t c = (size_t)(body->offset / w->options.chunk_bytes);
    uint64_t left = fetch->size - body->offset;
    uint64_t want = left < w->options.chunk_bytes ? left : w->options.chunk_bytes;
    if (fetch->alone && message->from_id != source_of(fetch, c)) return;
    if (fetch->chunks[c].here || body->data.len != want) return;
    assert(c < fetch->chunk_count && fetch->missing > 0 && fetch->block != NULL);
    memcpy(fetch->block->data + body->offset, body->data.data, body->data.len);
    fetch->chunks[c].here = true;
    if (--fetch->missing == 0) finish(w, fetch, out);
    tm_worker__fetch_pump(w, now_ms, out);
}

void tm_worker__on_fetch_refused(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__FetchRefused *body = message->fetch_refused;
    (void)now_ms;
    if (body->generation != w->generation || body->step != w->base || !body->damaged) return;
    if (!tm_worker__from_member(w, message)) return;
    struct fetch *fetch = find_fetch(w, body->set, body->layer);
    if (fetch != NULL) say_failed(w, fetch, message->from_id, out);
}

void tm_worker__file_got(struct tm_worker *w, int64_t now_ms, uint64_t set, uint32_t layer,
                         const struct tm_copy_got *file, struct tm_outbox *out)
{
    assert(file->state != TM_COPY_GOOD || file->block != NULL);
    struct fetch *fetch = find_fetch(w, set, layer);
    (void)now_ms;
    if (fetch == NULL || !fetch->from_file || file->state == TM_COPY_LATER) return;
    const struct tm_copy_name *name = &file->name;
    bool good = file->state == TM_COPY_GOOD && name->set == set && name->layer == layer && name->size == fetch->size &&
                tm_hash_equal(name->hash, fetch->hash);
    if (good)
        take(w, fetch, file->block, out);
    else
        say_failed(w, fetch, 0, out);
}

/* ---- serving ---- */

/* The layer's bytes as of its step; NULL: not ours to give. */
static const uint8_t *live_bytes(struct tm_worker *w, const Tmw__FetchRequest *body, uint64_t *out_size)
{
    const struct held_layer *held = body->layer < w->layer_count ? &w->layers[body->layer] : NULL;
    struct tm_hash wanted = {.low = body->hash_low, .high = body->hash_high};
    bool standing_still = w->phase != TM_WORKER_RUNNING && w->applying == 0;
    if (held == NULL || !held->have || held->step != body->step || !held->hashed || !standing_still) return NULL;
    if (!tm_hash_equal(held->hash, wanted)) return NULL;
    const uint8_t *bytes = tm_worker__layer_bytes(w, body->layer, out_size);
    return tm_hash_equal(held->hash, wanted) ? bytes : NULL;
}

static const uint8_t *copy_bytes(const struct tm_worker *w, const Tmw__FetchRequest *body, uint64_t *out_size)
{
    const struct tm_copy_part *part = tm_copies_find(&w->copies, body->set, body->layer);
    struct tm_hash hash = {.low = body->hash_low, .high = body->hash_high};
    if (part == NULL || part->name.step != body->step || !tm_hash_equal(part->name.hash, hash)) return NULL;
    *out_size = part->name.size;
    return part->block->data;
}

static void refuse(struct tm_worker *w, const struct tm_peer *to, const Tmw__FetchRequest *request, bool damaged,
                   struct tm_outbox *out)
{
    assert(to->role == TM_ROLE_WORKER);
    Tmw__FetchRefused body = TMW__FETCH_REFUSED__INIT;
    tm_message message = tm_worker__head(w, to);
    body.generation = request->generation;
    body.step = request->step;
    body.layer = request->layer;
    body.set = request->set;
    body.damaged = damaged;
    TM_BODY(message, FETCH_REFUSED, fetch_refused, &body);
    tm_outbox_send(out, to, &message);
}

void tm_worker__on_fetch_request(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out)
{
    const Tmw__FetchRequest *request = message->fetch_request;
    struct tm_peer from = tm_message_sender(message);
    if (request->generation != w->generation || !tm_worker__leased(w, now_ms)) return;
    if (!tm_worker__from_member(w, message) && !TM_PLANTED(strangers_served))
        return; /* one that our assignment will name asks again */
    uint64_t size = 0;
    const uint8_t *data = request->set == 0 ? live_bytes(w, request, &size) : copy_bytes(w, request, &size);
    if (data == NULL) { /* a copy that is not here will not come; live state may still be on its way to that step */
        refuse(w, &from, request, request->set != 0, out);
        return;
    }
    if (request->offset >= size || request->length > size - request->offset || request->length > TM_MESSAGE_CHUNK_MAX)
        return;
    Tmw__FetchData body = TMW__FETCH_DATA__INIT;
    tm_message answer = tm_worker__head(w, &from);
    union {
        const uint8_t *given;
        uint8_t *taken;
    } bytes = {data + request->offset};
    body.generation = request->generation;
    body.step = request->step;
    body.layer = request->layer;
    body.set = request->set;
    body.offset = request->offset;
    body.total = size;
    body.data.data = bytes.taken;
    body.data.len = request->length;
    TM_BODY(answer, FETCH_DATA, fetch_data, &body);
    tm_outbox_send(out, &from, &answer);
}
