/* The files of copies. Workers put and read layers; manifests are written by the real run/set_manifests.h over an env
 * of files in memory, so that what a coordinator's process does about them, and when, is what it does. */
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
static void store(struct sim *sim, uint64_t set, uint32_t layer, uint8_t *data, size_t length)
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

/* The file that a path of set_manifests.h names; false: a folder. */
static bool read_path(const char *path, uint64_t *out_set, uint32_t *out_layer)
{
    unsigned long long set = 0;
    unsigned layer = 0;
    char rest[16] = "";
    *out_set = 0;
    *out_layer = (uint32_t)MANIFEST;
    if (strcmp(path, "copies/newest") == 0) return true;
    if (sscanf(path, "copies/set-%llu/layer-%u.tmcopy", &set, &layer) == 2) {
        *out_layer = layer;
    } else if (sscanf(path, "copies/set-%llu%15s", &set, rest) != 2 || strcmp(rest, ".manifest") != 0) {
        return false;
    }
    *out_set = set;
    return true;
}

static int env_write(struct tm_env *env, const char *path, const char *data, size_t length, struct tm_error *e)
{
    struct sim *sim = env->self;
    uint64_t set = 0;
    uint32_t layer = 0;
    if (!files_writable(sim)) return tm_error_set(e, TM_EIO, "%s: No space left on device", path);
    int rc = tm_grow((void **)&sim->files, &sim->file_capacity, sim->file_count + 1, sizeof *sim->files, 65536);
    uint8_t *copy = rc == 0 ? tm_alloc(length + 1) : NULL;
    if (copy == NULL) return tm_error_nomem(e);
    bool is_file = read_path(path, &set, &layer);
    assert(is_file);
    memcpy(copy, data, length);
    store(sim, set, layer, copy, length);
    return 0;
}

static int env_read(struct tm_env *env, const char *path, struct tm_text *out, struct tm_error *e)
{
    struct sim *sim = env->self;
    uint64_t set = 0;
    uint32_t layer = 0;
    if (!files_readable(sim)) return tm_error_set(e, TM_EIO, "%s: Input/output error", path);
    const struct stored_file *file = read_path(path, &set, &layer) ? files_find(sim, set, layer) : NULL;
    if (file == NULL) return tm_error_set(e, TM_ENOTFOUND, "%s: No such file or directory", path);
    tm_text_append(out, (const char *)file->data, file->length);
    return tm_text_status(out, e);
}

static bool env_exists(struct tm_env *env, const char *path)
{
    const struct sim *sim = env->self;
    uint64_t set = 0;
    uint32_t layer = 0;
    return files_readable(sim) && read_path(path, &set, &layer) && files_find(sim, set, layer) != NULL;
}

/* Manifests alone: nobody asks for more. */
static int env_each(struct tm_env *env, const char *path, tm_name_f take, void *context, struct tm_error *e)
{
    const struct sim *sim = env->self;
    int rc = files_readable(sim) ? 0 : tm_error_set(e, TM_EIO, "%s: Input/output error", path);
    for (size_t i = 0; rc == 0 && i < sim->file_count; i++) {
        char name[64];
        if (sim->files[i].layer != (uint32_t)MANIFEST) continue;
        (void)snprintf(name, sizeof name, "set-%llu.manifest", (unsigned long long)sim->files[i].set);
        rc = take(context, sim->files[i].set == 0 ? "newest" : name, e);
    }
    return rc;
}

/* A set whose manifest goes is dropped. */
static int env_remove(struct tm_env *env, const char *path, struct tm_error *e)
{
    struct sim *sim = env->self;
    uint64_t set = 0;
    uint32_t layer = 0;
    if (sim->faults.files_down) return tm_error_set(e, TM_EIO, "%s: Input/output error", path);
    struct stored_file *file = read_path(path, &set, &layer) ? files_find(sim, set, layer) : NULL;
    if (file == NULL) return 0;
    tm_free(file->data);
    *file = sim->files[--sim->file_count];
    for (size_t i = 0; layer == (uint32_t)MANIFEST && i < sim->set_count; i++)
        if (sim->sets[i].set == set) sim->sets[i].dropped = true;
    return 0;
}

void files_open(struct sim *sim)
{
    sim->files_env = (struct tm_env){.self = sim,
                                     .file_write = env_write,
                                     .file_write_private = env_write,
                                     .file_read = env_read,
                                     .file_exists = env_exists,
                                     .folder_each = env_each,
                                     .file_remove = env_remove};
    tm_set_manifests_init(&sim->manifests, &sim->files_env, "copies", sim->layers);
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
        store(sim, event->b, (uint32_t)event->c, event->data, event->length);
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
static struct tm_copy_file check(const struct node *node, const struct stored_file *file)
{
    struct tm_copy_file got = {.state = TM_COPY_FILE_BAD};
    const void *data = NULL;
    if (file == NULL || tm_copy_file_decode(file->data, file->length, &got.name, &data, NULL) != 0) return got;
    got.block = tm_block_create(tm_worker_blocks(node->worker), (size_t)got.name.size);
    assert(got.block != NULL);
    memcpy(got.block->data, data, (size_t)got.name.size);
    got.state = TM_COPY_FILE_GOOD;
    return got;
}

static void have_read(struct sim *sim, struct event *event)
{
    struct node *node = &sim->instances[event->a];
    if (node->worker == NULL || node->incarnation != event->d) return;
    struct tm_outbox out;
    tm_outbox_init(&out);
    struct tm_copy_file got = {.state = TM_COPY_FILE_LATER};
    if (files_readable(sim)) got = check(node, files_find(sim, event->b, (uint32_t)event->c));
    sim_memory_short(sim);
    tm_worker_file_trouble(node->worker, false, got.state == TM_COPY_FILE_LATER ? "a file cannot be read" : "");
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
