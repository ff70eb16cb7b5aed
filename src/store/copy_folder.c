/* A store of copies in a folder that all machines share:
 *
 *   job               the job's number: who claimed it
 *   newest            the number of the set that was sealed last
 *   set-N.manifest    of a sealed set
 *   set-N/layer-L.tmcopy
 *
 * Nobody else builds these names. A folder that is not mounted looks empty: so that nothing is found counts only where
 * a sealed set is. */
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "store/store_internal.h"
#include "wire/message.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FOLDER_MAX = TM_COPY_PLACE_MAX, PATH_BYTES = FOLDER_MAX + 128 };

struct folder {
    struct tm_copy_store store;
    struct tm_env *env;
    uint64_t job;        /* 0: any */
    atomic_bool is_ours; /* its claim was seen */
    atomic_bool told_buffered;
    char path[FOLDER_MAX];
};

static struct folder *folder_of(struct tm_copy_store *store)
{
    assert(store != NULL && store->self != NULL);
    return store->self;
}

/* ---- names ---- */

static void part_path(const struct folder *f, uint64_t set, uint32_t layer, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%s/set-%" PRIu64 "/layer-%" PRIu32 ".tmcopy", f->path, set, layer);
}

static void manifest_path(const struct folder *f, uint64_t set, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%s/set-%" PRIu64 ".manifest", f->path, set);
}

static void file_path(const struct folder *f, const char *name, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%s/%s", f->path, name);
}

/* Numbers in the names of a folder's files. */
struct numbers {
    const char *before;
    const char *after;
    struct tm_copy_sets found; /* owned */
};

static int take_number(void *context, const char *name, struct tm_error *e)
{
    struct numbers *n = context;
    int64_t number = 0;
    size_t length = strlen(name);
    size_t before = strlen(n->before);
    size_t after = strlen(n->after);
    if (length <= before + after || strncmp(name, n->before, before) != 0) return 0;
    if (strcmp(name + length - after, n->after) != 0) return 0;
    if (!tm_number_i64(name + before, length - before - after, &number) || number < 0) return 0;
    return tm_copy_sets__add(&n->found, (uint64_t)number, e);
}

/* All of them, the highest first. A folder that is not there has none. */
static int find_numbers(const struct folder *f, const char *folder, struct numbers *n, struct tm_error *e)
{
    int rc = f->env->folder_each(f->env, folder, take_number, n, e);
    tm_copy_sets__sort(&n->found);
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

/* ---- whose it is ---- */

/* The number in the file `job`; 0: there is none, or it is no number. */
static int read_claim(const struct folder *f, const char *path, uint64_t *out, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, 64);
    int rc = f->env->file_read(f->env, path, &text, e);
    *out = rc == 0 ? strtoull(tm_text_string(&text), NULL, 10) : 0;
    tm_text_deinit(&text);
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

static int folder_claim(struct tm_copy_store *store, bool take_over, struct tm_error *e)
{
    const struct folder *f = folder_of(store);
    char path[PATH_BYTES];
    char number[32];
    uint64_t claimed = 0;
    if (f->job == 0) return 0;
    file_path(f, "job", path);
    int rc = read_claim(f, path, &claimed, e);
    if (rc != 0 || claimed == f->job) return rc; /* ours also where the disk is full by now */
    if (claimed != 0 && !take_over)
        return tm_error_set(
            e, TM_EINPUT,
            "%s holds the copies of another job: give each job its own folder (another --copies, with another --state)",
            f->path);
    int length = snprintf(number, sizeof number, "%" PRIu64 "\n", f->job);
    return f->env->file_write_private(f->env, path, number, (size_t)length, e);
}

static int check_claim(struct folder *f, struct tm_error *e)
{
    char path[PATH_BYTES];
    uint64_t claimed = 0;
    if (f->job == 0 || atomic_load(&f->is_ours)) return 0;
    file_path(f, "job", path);
    int rc = read_claim(f, path, &claimed, e);
    if (rc != 0) return rc;
    if (claimed != f->job)
        return tm_error_set(e, TM_EINPUT,
                            "%s is not the coordinator's folder for copies (%s): all machines must use the same folder",
                            f->path, claimed == 0 ? "no file `job` in it" : "it belongs to another job");
    atomic_store(&f->is_ours, true);
    return 0;
}

/* ---- sealed sets ---- */

/* Where the file that names it is lost, the manifests tell. */
static int highest_manifest(const struct folder *f, uint64_t *out, struct tm_error *e)
{
    struct numbers sets = {.before = "set-", .after = ".manifest"};
    int rc = find_numbers(f, f->path, &sets, e);
    if (rc == 0 && (sets.found.count == 0 || sets.found.list[0] == 0))
        rc = tm_error_set(e, TM_ENOTFOUND, "%s: there is no complete copy set yet", f->path);
    if (rc == 0) *out = sets.found.list[0];
    tm_free(sets.found.list);
    return rc;
}

static int folder_newest(struct tm_copy_store *store, uint64_t *out, struct tm_error *e)
{
    const struct folder *f = folder_of(store);
    char path[PATH_BYTES];
    struct tm_text text;
    int64_t set = 0;
    file_path(f, "newest", path);
    tm_text_init(&text, 64);
    int rc = f->env->file_read(f->env, path, &text, e);
    if (rc == -(int)TM_ENOTFOUND) {
        tm_text_deinit(&text);
        return highest_manifest(f, out, e);
    }
    if (rc == 0) {
        size_t length = strcspn(tm_text_string(&text), "\n");
        if (!tm_number_i64(tm_text_string(&text), length, &set) || set <= 0)
            rc = tm_error_set(e, TM_EINPUT, "%s: not the number of a copy set", path);
    }
    tm_text_deinit(&text);
    if (rc == 0) *out = (uint64_t)set;
    return rc;
}

static int folder_seal(struct tm_copy_store *store, uint64_t set, const void *manifest, size_t length,
                       struct tm_error *e)
{
    const struct folder *f = folder_of(store);
    char path[PATH_BYTES];
    char number[32];
    assert(set > 0 && length > 0);
    manifest_path(f, set, path);
    int rc = f->env->file_write_private(f->env, path, manifest, length, e);
    if (rc != 0) return rc;
    int digits = snprintf(number, sizeof number, "%" PRIu64 "\n", set);
    file_path(f, "newest", path);
    return f->env->file_write_private(f->env, path, number, (size_t)digits, e);
}

static int list_one(const struct folder *f, uint64_t set, tm_sealed_set_f each, void *context, struct tm_error *e)
{
    char path[PATH_BYTES];
    struct tm_text text;
    manifest_path(f, set, path);
    tm_text_init(&text, TM_MESSAGE_BYTES_MAX);
    int rc = f->env->file_read(f->env, path, &text, e);
    if (rc == 0)
        rc = each(context,
                  &(struct tm_sealed_set){.set = set, .where = path, .manifest = text.data, .length = text.length}, e);
    else if (rc == -(int)TM_ENOTFOUND || rc == -(int)TM_ELIMIT) /* gone by now, or no manifest at all */
        rc = 0;
    tm_text_deinit(&text);
    return rc;
}

static int folder_list(struct tm_copy_store *store, tm_sealed_set_f each, void *context, struct tm_error *e)
{
    const struct folder *f = folder_of(store);
    struct numbers sets = {.before = "set-", .after = ".manifest"};
    uint64_t newest = 0;
    int rc = folder_newest(store, &newest, e); /* a folder that cannot be read is not one without sets */
    if (rc == -(int)TM_ENOTFOUND || rc == -(int)TM_EINPUT || rc == -(int)TM_ELIMIT) rc = 0;
    if (rc == 0) rc = find_numbers(f, f->path, &sets, e);
    for (size_t i = 0; rc == 0 && i < sets.found.count; i++)
        if (sets.found.list[i] > 0) rc = list_one(f, sets.found.list[i], each, context, e);
    tm_free(sets.found.list);
    return rc;
}

/* The manifest first: what it names is whole before anything else forgets it. */
static int folder_drop(struct tm_copy_store *store, uint64_t set, struct tm_error *e)
{
    const struct folder *f = folder_of(store);
    struct numbers layers = {.before = "layer-", .after = ".tmcopy"};
    char folder[PATH_BYTES];
    char path[PATH_BYTES];
    assert(set > 0);
    manifest_path(f, set, path);
    int rc = f->env->file_remove(f->env, path, e);
    (void)snprintf(folder, sizeof folder, "%s/set-%" PRIu64, f->path, set);
    if (rc == 0) rc = find_numbers(f, folder, &layers, e);
    for (size_t i = 0; i < layers.found.count; i++) {
        part_path(f, set, (uint32_t)layers.found.list[i], path);
        int removed = f->env->file_remove(f->env, path, rc == 0 ? e : NULL);
        if (rc == 0) rc = removed;
    }
    (void)f->env->file_remove(f->env, folder, NULL); /* something may be on its way into it */
    tm_free(layers.found.list);
    return rc;
}

static int folder_sweep(struct tm_copy_store *store, uint64_t below, const uint64_t *keep, size_t keep_count,
                        struct tm_error *e)
{
    const struct folder *f = folder_of(store);
    struct numbers parts = {.before = "set-", .after = ""};
    struct numbers sealed = {.before = "set-", .after = ".manifest"};
    int rc = find_numbers(f, f->path, &parts, e);
    if (rc == 0) rc = find_numbers(f, f->path, &sealed, e);
    if (rc == 0) rc = tm_copy_sets__sweep(store, &parts.found, &sealed.found, below, keep, keep_count, e);
    tm_free(parts.found.list);
    tm_free(sealed.found.list);
    return rc;
}

/* ---- parts ---- */

static int folder_put(struct tm_copy_store *store, const struct tm_copy_name *name, struct tm_block *block,
                      struct tm_error *e)
{
    struct folder *f = folder_of(store);
    char path[PATH_BYTES];
    bool direct = true;
    assert(name->set > 0 && block != NULL);
    int rc = check_claim(f, e);
    if (rc != 0) return rc;
    part_path(f, name->set, name->layer, path);
    rc = tm_copy_file__write(f->env, path, name, block, &direct, e);
    if (rc == -(int)TM_EFULL) return tm_error_set(e, TM_EFULL, "disk full: %s cannot be written", path);
    if (rc == 0 && !direct && !atomic_exchange(&f->told_buffered, true))
        tm_log(TM_LOG_WARN,
               "%s: the file system does not support O_DIRECT: copies go through the page cache, which is slower",
               f->path);
    return rc;
}

static int folder_get(struct tm_copy_store *store, uint64_t set, uint32_t layer, uint64_t size,
                      struct tm_block_pool *pool, struct tm_copy_name *out_name, struct tm_block **out_block,
                      struct tm_error *e)
{
    const struct folder *f = folder_of(store);
    char path[PATH_BYTES];
    struct tm_error why;
    uint64_t newest = 0;
    assert(set > 0 && pool != NULL);
    part_path(f, set, layer, path);
    int rc = tm_copy_file__read(f->env, path, size, pool, out_name, out_block, e);
    if (rc != -(int)TM_ENOTFOUND && rc != -(int)TM_EINPUT) return rc;
    /* Where there are sealed sets, one is the newest. If none is, the file is not damaged: the folder is. */
    int found = folder_newest(store, &newest, &why);
    if (found == 0 || found == -(int)TM_EINPUT) return rc;
    return tm_error_set(e, TM_EIO, "the folder for copies has changed: %s", why.text);
}

/* ---- the store ---- */

static int take_any(void *context, const char *name, struct tm_error *e)
{
    (void)context;
    (void)name;
    (void)e;
    return 0;
}

static int folder_check(struct tm_copy_store *store, struct tm_error *e)
{
    const struct folder *f = folder_of(store);
    static const char word[] = "written\n";
    char path[PATH_BYTES];
    struct tm_text back;
    file_path(f, "check", path);
    tm_text_init(&back, sizeof word);
    int rc = f->env->file_write_private(f->env, path, word, sizeof word - 1, e);
    if (rc == 0) rc = f->env->file_read(f->env, path, &back, e);
    if (rc == 0 && strcmp(tm_text_string(&back), word) != 0)
        rc = tm_error_set(e, TM_EIO, "%s: the data read differs from the data written", path);
    if (rc == 0) rc = f->env->folder_each(f->env, f->path, take_any, NULL, e);
    if (rc == 0) rc = f->env->file_remove(f->env, path, e);
    tm_text_deinit(&back);
    return rc;
}

static void folder_close(struct tm_copy_store *store)
{
    tm_free(folder_of(store));
}

int tm_copy_folder__open(struct tm_env *env, const char *place, uint64_t job, struct tm_copy_store **out,
                         struct tm_error *e)
{
    assert(env != NULL && strlen(place) < FOLDER_MAX);
    struct folder *f = tm_calloc(1, sizeof *f);
    if (f == NULL) return tm_error_nomem(e);
    f->env = env;
    f->job = job;
    (void)snprintf(f->path, sizeof f->path, "%s", place);
    f->store = (struct tm_copy_store){.self = f,
                                      .where = f->path,
                                      .put = folder_put,
                                      .get = folder_get,
                                      .seal = folder_seal,
                                      .newest = folder_newest,
                                      .list = folder_list,
                                      .drop = folder_drop,
                                      .sweep = folder_sweep,
                                      .claim = folder_claim,
                                      .check = folder_check,
                                      .close = folder_close};
    *out = &f->store;
    return 0;
}
