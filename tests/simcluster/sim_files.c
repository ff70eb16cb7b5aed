/* The files of copies: a copy store (store/copy_store.h) in memory, with faults. Workers put and get layers by
 * worker/copy_files.h, manifests are kept by run/set_manifests.h, both the real ones: so what the processes make of a
 * store's errors, and when, is what they do. */
#include "sim.h"

#include "base/alloc.h"
#include "worker/copy_files.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool files_readable(const struct sim *sim)
{
    return !sim->faults.files_down && sim->faults.files_unreadable_ms <= sim->now_ms;
}

bool files_writable(const struct sim *sim)
{
    return !sim->faults.files_down && sim->faults.files_full_ms <= sim->now_ms;
}

/* ---- files ---- */

/* Set 0's manifest is the file `newest`. */
struct stored_file *files_find(const struct sim *sim, uint64_t set, uint32_t layer)
{
    for (size_t i = 0; i < sim->file_count; i++)
        if (sim->files[i].set == set && sim->files[i].layer == layer) return &sim->files[i];
    return NULL;
}

/* Takes the data over. */
static void keep(struct sim *sim, uint64_t set, uint32_t layer, uint8_t *data, size_t length)
{
    struct stored_file *file = files_find(sim, set, layer);
    if (file == NULL) {
        int rc = tm_grow((void **)&sim->files, &sim->file_capacity, sim->file_count + 1, sizeof *sim->files, 65536);
        assert(rc == 0);
        file = &sim->files[sim->file_count++];
        *file = (struct stored_file){.set = set, .layer = layer};
    }
    tm_free(file->data);
    file->data = data;
    file->length = length;
    file->damaged = false;
}

void files_deinit(struct sim *sim)
{
    while (sim->file_count > 0)
        tm_free(sim->files[--sim->file_count].data);
    tm_free(sim->files);
    sim->files = NULL;
}

/* ---- as the coordinator's process sees them ---- */

static int store_seal(struct tm_copy_store *store, uint64_t set, const void *manifest, size_t length,
                      struct tm_error *e)
{
    struct sim *sim = store->self;
    char number[32];
    int digits = snprintf(number, sizeof number, "%llu\n", (unsigned long long)set);
    const void *const parts[] = {manifest, number};
    const size_t lengths[] = {length, (size_t)digits};
    const uint64_t sets[] = {set, 0};
    assert(set > 0 && length > 0);
    if (!files_writable(sim)) return tm_error_set(e, TM_EIO, "set %s: No space left on device", number);
    for (size_t i = 0; i < 2; i++) {
        int rc = tm_grow((void **)&sim->files, &sim->file_capacity, sim->file_count + 1, sizeof *sim->files, 65536);
        uint8_t *copy = rc == 0 ? tm_alloc(lengths[i] + 1) : NULL;
        if (copy == NULL) return tm_error_nomem(e);
        memcpy(copy, parts[i], lengths[i]);
        copy[lengths[i]] = '\0';
        keep(sim, sets[i], (uint32_t)MANIFEST, copy, lengths[i]);
    }
    return 0;
}

static int store_list(struct tm_copy_store *store, tm_sealed_set_f each, void *context, struct tm_error *e)
{
    const struct sim *sim = store->self;
    uint64_t below = UINT64_MAX;
    int rc = files_readable(sim) ? 0 : tm_error_set(e, TM_EIO, "Input/output error");
    while (rc == 0) {
        const struct stored_file *next = NULL;
        for (size_t i = 0; i < sim->file_count; i++) {
            const struct stored_file *file = &sim->files[i];
            if (file->layer != (uint32_t)MANIFEST || file->set == 0 || file->set >= below) continue;
            if (next == NULL || file->set > next->set) next = file;
        }
        if (next == NULL) break;
        below = next->set;
        rc = each(context, &(struct tm_sealed_set){next->set, "a manifest", next->data, next->length}, e);
    }
    return rc;
}

/* A set whose manifest goes is dropped. */
static int store_drop(struct tm_copy_store *store, uint64_t set, struct tm_error *e)
{
    struct sim *sim = store->self;
    if (sim->faults.files_down) return tm_error_set(e, TM_EIO, "Input/output error");
    for (size_t i = 0; i < sim->set_count; i++)
        if (sim->sets[i].set == set && files_find(sim, set, (uint32_t)MANIFEST) != NULL) sim->sets[i].dropped = true;
    for (size_t i = sim->file_count; i-- > 0;) {
        if (sim->files[i].set != set) continue;
        tm_free(sim->files[i].data);
        sim->files[i] = sim->files[--sim->file_count];
    }
    return 0;
}

static int store_sweep(struct tm_copy_store *store, uint64_t below, const uint64_t *keep, size_t keep_count,
                       struct tm_error *e)
{
    struct sim *sim = store->self;
    if (sim->faults.files_down) return tm_error_set(e, TM_EIO, "Input/output error");
    for (size_t i = sim->file_count; i-- > 0;) {
        uint64_t set = sim->files[i].set;
        bool stays = set == 0 || set >= below || files_find(sim, set, (uint32_t)MANIFEST) != NULL;
        for (size_t k = 0; k < keep_count; k++)
            stays = stays || keep[k] == set;
        if (stays) continue;
        tm_free(sim->files[i].data);
        sim->files[i] = sim->files[--sim->file_count];
    }
    return 0;
}

void files_drop(struct sim *sim, struct tm_set_manifests *manifests, uint64_t set)
{
    tm_set_manifests_drop(manifests, set);
    for (size_t i = 0; i < sim->set_count; i++)
        if (sim->sets[i].set == set && files_find(sim, set, (uint32_t)MANIFEST) == NULL) sim->sets[i].dropped = true;
}

void files_retry(struct sim *sim)
{
    (void)tm_set_manifests_retry(&sim->manifests);
    files_mended(sim);
}

uint64_t files_newest_step(const struct sim *sim)
{
    const struct stored_file *newest = files_find(sim, 0, (uint32_t)MANIFEST);
    uint64_t set = newest == NULL ? 0 : strtoull((const char *)newest->data, NULL, 10);
    const struct stored_file *manifest = set == 0 ? NULL : files_find(sim, set, (uint32_t)MANIFEST);
    Tmw__RecordEvent *event = NULL;
    struct tm_arena arena;
    uint64_t step = 0;
    tm_arena_init(&arena, 64 << 20);
    if (manifest != NULL && tm_record_event_unpack(manifest->data, manifest->length, &arena, &event, NULL) == 0 &&
        event->body_case == TMW__RECORD_EVENT__BODY_SET_WHOLE)
        step = event->set_whole->step;
    tm_arena_deinit(&arena);
    return step;
}

/* ---- what a lost record may cost ---- */

static struct set_seen *newest_in_files(struct sim *sim)
{
    for (size_t i = sim->set_count; i-- > 0;)
        if (sim->sets[i].in_files && !sim->sets[i].bad) return &sim->sets[i];
    return NULL;
}

void files_mended(struct sim *sim)
{
    struct set_seen *newest = newest_in_files(sim);
    if (newest != NULL && files_writable(sim)) newest->due = true;
}

/* What was recorded a moment ago and has no manifest yet is lost with it; an older one without a manifest was passed
 * over while the disk was full. */
void files_forgotten(struct sim *sim)
{
    const struct set_seen *newest = newest_in_files(sim);
    for (size_t i = 0; i < sim->set_count; i++) {
        struct set_seen *set = &sim->sets[i];
        bool named = files_find(sim, set->set, (uint32_t)MANIFEST) != NULL;
        set->forgotten = true;
        set->bad = false;
        set->unnamed = set->unnamed || (set->in_files && !named && !(set == newest && set->due));
    }
}

/* ---- as workers see them ---- */

static int store_put(struct tm_copy_store *store, const struct tm_copy_name *name, struct tm_block *block,
                     struct tm_error *e)
{
    struct sim *sim = store->self;
    struct tm_text file;
    if (!files_writable(sim)) {
        bool full = sim->faults.files_full_ms > sim->now_ms;
        return tm_error_set(e, full ? TM_EFULL : TM_EIO, "a file cannot be written");
    }
    tm_text_init(&file, tm_copy_file_length(name->size));
    tm_copy_file_encode(name, block->data, &file);
    assert(tm_text_status(&file, NULL) == 0); /* there is memory here */
    uint8_t *copy = tm_alloc(file.length);
    assert(copy != NULL);
    memcpy(copy, file.data, file.length);
    keep(sim, name->set, name->layer, copy, file.length);
    tm_text_deinit(&file);
    return 0;
}

static int store_get(struct tm_copy_store *store, uint64_t set, uint32_t layer, uint64_t size,
                     struct tm_block_pool *pool, struct tm_copy_name *out_name, struct tm_block **out_block,
                     struct tm_error *e)
{
    const struct sim *sim = store->self;
    const struct stored_file *file = files_find(sim, set, layer);
    bool sure = files_find(sim, 0, (uint32_t)MANIFEST) != NULL;
    const void *data = NULL;
    if (!files_readable(sim)) return tm_error_set(e, TM_EIO, "a file cannot be read");
    if (file == NULL) return tm_error_set(e, sure ? TM_ENOTFOUND : TM_EIO, "no such file");
    int rc = tm_copy_file_decode(file->data, file->length, out_name, &data, e);
    if (rc == 0 && size != 0 && out_name->size != size) rc = tm_error_set(e, TM_EINPUT, "another size");
    if (rc != 0) return rc;
    *out_block = tm_block_create(pool, (size_t)out_name->size);
    assert(*out_block != NULL);
    memcpy((*out_block)->data, data, (size_t)out_name->size);
    return 0;
}

void files_open(struct sim *sim)
{
    sim->store = (struct tm_copy_store){.self = sim,
                                        .where = "copies",
                                        .put = store_put,
                                        .get = store_get,
                                        .seal = store_seal,
                                        .list = store_list,
                                        .drop = store_drop,
                                        .sweep = store_sweep};
    tm_set_manifests_init(&sim->manifests, &sim->store);
}

static void tell(struct sim *sim, struct node *node, const struct tm_copy_file_done *done)
{
    struct tm_outbox out;
    tm_outbox_init(&out);
    sim_memory_short(sim);
    tm_copy_tell(node->worker, sim_clock(sim, node), done, &out);
    sim_memory_back(sim);
    tm_block_release(done->got.block);
    sim_worker_actions(sim, node, &out);
    tm_outbox_deinit(&out);
}

/* The disk is done with it, also where the worker is gone by now. */
static void stored(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    struct tm_copy_file_done done;
    struct tm_copy_name name;
    struct tm_error e = {.text = ""};
    const void *data = NULL;
    int rc = tm_copy_file_decode(event->data, event->length, &name, &data, NULL);
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_block *block = pool == NULL ? NULL : tm_block_create(pool, (size_t)name.size);
    assert(rc == 0 && block != NULL);
    memcpy(block->data, data, (size_t)name.size);
    tm_copy_put(&sim->store, &name, block, &done, &e);
    tm_block_release(block);
    tm_block_pool_destroy(pool);
    if (node->worker != NULL && node->incarnation == event->d) tell(sim, node, &done);
}

void files_put(struct sim *sim, struct node *node, int64_t at_ms, uint64_t set, uint32_t layer)
{
    struct tm_copy_name name;
    struct tm_text file;
    struct tm_block *block = tm_worker_file_block(node->worker, set, layer, &name);
    assert(block != NULL);
    tm_text_init(&file, tm_copy_file_length(name.size));
    tm_copy_file_encode(&name, block->data, &file);
    assert(tm_text_status(&file, NULL) == 0);
    sim_schedule(sim, at_ms, stored, node->id, set, layer, node->incarnation, file.data, file.length);
    tm_text_deinit(&file);
    tm_block_release(block);
}

static void have_read(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    struct tm_copy_file_done done;
    struct tm_error e = {.text = ""};
    uint32_t layer = (uint32_t)event->c;
    if (node->worker == NULL || node->incarnation != event->d) return;
    tm_copy_get(&sim->store, event->b, layer, toy_layer_bytes(layer), tm_worker_blocks(node->worker), &done, &e);
    tell(sim, node, &done);
}

void files_get(struct sim *sim, const struct node *node, int64_t at_ms, uint64_t set, uint32_t layer)
{
    sim_schedule(sim, at_ms, have_read, node->id, set, layer, node->incarnation, NULL, 0);
}
