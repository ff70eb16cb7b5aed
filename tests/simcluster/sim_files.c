/* The files of copies. Workers put and read layers; manifests are kept by the real run/set_manifests.h over a store of
 * ours, so that what a coordinator's process does about them, and when, is what it does. */
#include "sim.h"

#include "base/alloc.h"

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

void files_open(struct sim *sim)
{
    sim->store = (struct tm_copy_store){
        .self = sim, .where = "copies", .seal = store_seal, .list = store_list, .drop = store_drop};
    tm_set_manifests_init(&sim->manifests, &sim->store);
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

static void stored(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    bool good = files_writable(sim);
    if (good) {
        keep(sim, event->b, (uint32_t)event->c, event->data, event->length);
        event->data = NULL;
    }
    if (node->worker == NULL || node->incarnation != event->d) return;
    struct tm_outbox out;
    tm_outbox_init(&out);
    sim_memory_short(sim);
    bool full = !good && sim->faults.files_full_ms > sim->now_ms;
    tm_worker_file_trouble(node->worker, full, good ? "" : "a file cannot be written");
    tm_worker_file_put(node->worker, sim_clock(sim, node), event->b, (uint32_t)event->c, good, &out);
    sim_memory_back(sim);
    sim_worker_actions(sim, node, &out);
    tm_outbox_deinit(&out);
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

/* Checked before the worker hears of it. */
static struct tm_copy_got check(const struct node *node, const struct stored_file *file)
{
    struct tm_copy_got got = {.state = TM_COPY_BAD};
    const void *data = NULL;
    if (file == NULL || tm_copy_file_decode(file->data, file->length, &got.name, &data, NULL) != 0) return got;
    got.block = tm_block_create(tm_worker_blocks(node->worker), (size_t)got.name.size);
    assert(got.block != NULL);
    memcpy(got.block->data, data, (size_t)got.name.size);
    got.state = TM_COPY_GOOD;
    return got;
}

static void have_read(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    if (node->worker == NULL || node->incarnation != event->d) return;
    struct tm_outbox out;
    tm_outbox_init(&out);
    struct tm_copy_got got = {.state = TM_COPY_LATER};
    if (files_readable(sim)) got = check(node, files_find(sim, event->b, (uint32_t)event->c));
    sim_memory_short(sim);
    tm_worker_file_trouble(node->worker, false, got.state == TM_COPY_LATER ? "a file cannot be read" : "");
    tm_worker_file_got(node->worker, sim_clock(sim, node), event->b, (uint32_t)event->c, &got, &out);
    sim_memory_back(sim);
    tm_block_release(got.block);
    sim_worker_actions(sim, node, &out);
    tm_outbox_deinit(&out);
}

void files_get(struct sim *sim, const struct node *node, int64_t at_ms, uint64_t set, uint32_t layer)
{
    sim_schedule(sim, at_ms, have_read, node->id, set, layer, node->incarnation, NULL, 0);
}
