/* A store of copies in a bucket, under a prefix:
 *
 *   job                    the job's number: who claimed it
 *   newest                 "SET WRITER": the number of the set that was sealed last (0: none so far), and a number that
 *                          the coordinator drew that wrote it
 *   set-N.manifest         of a sealed set
 *   set-N/layer-L.tmcopy   as in a folder (copy_file.h)
 *
 * The service replaces an object whole or not at all. `newest` is written only in place of what the same writer wrote
 * before (If-Match); who claims the store writes it anew first. So of two coordinators of a job, the one that claimed
 * last names the newest set, and the other is told that it may not (-TM_EINPUT). */
#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "store/objects.h"
#include "store/store_internal.h"
#include "wire/message.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 96, WHERE_BYTES = TM_BUCKET_MAX + TM_PREFIX_MAX + 16, RACES = 5 };

struct bucket {
    struct tm_copy_store store;
    struct tm_objects objects;
    uint64_t job;        /* 0: any */
    atomic_bool is_ours; /* its claim was seen */
    uint64_t writer;
    char where[WHERE_BYTES];
    pthread_mutex_t lock;
    char etag[TM_WEB_WORD_MAX]; /* with the lock: of `newest` as we wrote it; "": not so far */
};

static struct bucket *bucket_of(struct tm_copy_store *store)
{
    assert(store != NULL && store->self != NULL);
    return store->self;
}

static void part_name(uint64_t set, uint32_t layer, char out[NAME_BYTES])
{
    (void)snprintf(out, NAME_BYTES, "set-%" PRIu64 "/layer-%" PRIu32 ".tmcopy", set, layer);
}

static void manifest_name(uint64_t set, char out[NAME_BYTES])
{
    (void)snprintf(out, NAME_BYTES, "set-%" PRIu64 ".manifest", set);
}

/* The number in "set-N" with that end, or with whatever follows an end that is "/"; 0: it is another name. */
static uint64_t set_of(const char *name, const char *end)
{
    int64_t number = 0;
    if (strncmp(name, "set-", 4) != 0) return 0;
    size_t digits = strspn(name + 4, "0123456789");
    const char *rest = name + 4 + digits;
    bool same = end[0] == '/' ? rest[0] == '/' : strcmp(rest, end) == 0;
    if (!same || !tm_number_i64(name + 4, digits, &number)) return 0;
    return number > 0 ? (uint64_t)number : 0;
}

/* Sets of which there is a manifest, and, where they are looked for, of which there are parts. */
struct found {
    struct tm_copy_sets sealed;
    struct tm_copy_sets parts;
};

static int take_set(void *context, const char *name, struct tm_error *e)
{
    struct found *found = context;
    uint64_t sealed = set_of(name, ".manifest");
    uint64_t part = set_of(name, "/");
    if (sealed != 0) return tm_copy_sets__add(&found->sealed, sealed, e);
    return part != 0 ? tm_copy_sets__add(&found->parts, part, e) : 0;
}

static int find_sets(struct bucket *b, struct tm_copy_sets *out, struct tm_error *e)
{
    struct found found = {.sealed = {.list = NULL}};
    int rc = b->objects.each(b->objects.self, "set-", true, take_set, &found, e);
    tm_copy_sets__sort(&found.sealed);
    *out = found.sealed;
    tm_free(found.parts.list);
    return rc;
}

/* ---- whose it is ---- */

/* A small object whose text is a number; 0 and no ETag where it is not there. */
static int read_number(struct bucket *b, const char *name, struct tm_text *text, uint64_t *out,
                       char etag[TM_WEB_WORD_MAX], struct tm_error *e)
{
    int64_t number = 0;
    *out = 0;
    etag[0] = '\0';
    int rc = b->objects.get(b->objects.self, name, text, etag, e);
    if (rc == -(int)TM_ENOTFOUND) return 0;
    if (rc != 0) return rc;
    size_t length = strcspn(tm_text_string(text), " \n");
    if (!tm_number_i64(tm_text_string(text), length, &number) && name[0] == 'n')
        return tm_error_set(e, TM_EINPUT, "%s/%s: not the number of a copy set", b->where, name);
    *out = strcmp(name, "job") == 0 ? strtoull(tm_text_string(text), NULL, 10) : (uint64_t)number;
    return 0;
}

/* `newest` names the set, in place of what has that ETag ("": of nothing). -TM_EEXISTS: it is something else by now. */
static int write_newest(struct bucket *b, uint64_t set, const char *in_place_of, char out_etag[TM_WEB_WORD_MAX],
                        struct tm_error *e)
{
    char text[64];
    char etag[TM_WEB_WORD_MAX] = "";
    struct tm_text there;
    int length = snprintf(text, sizeof text, "%" PRIu64 " %016" PRIx64 "\n", set, b->writer);
    int rc = b->objects.put(b->objects.self, "newest", text, (size_t)length, in_place_of, out_etag, e);
    if (rc != -(int)TM_EEXISTS) return rc;
    /* It may have been us: the answer to an earlier try was lost. */
    tm_text_init(&there, 256);
    if (b->objects.get(b->objects.self, "newest", &there, etag, NULL) == 0 &&
        strcmp(tm_text_string(&there), text) == 0) {
        (void)snprintf(out_etag, TM_WEB_WORD_MAX, "%s", etag);
        rc = 0;
    }
    tm_text_deinit(&there);
    return rc;
}

/* Makes us the only one that may write `newest`: with the lock. */
static int take_newest(struct bucket *b, struct tm_error *e)
{
    int rc = -(int)TM_EEXISTS;
    for (int race = 0; rc == -(int)TM_EEXISTS && race < RACES; race++) {
        struct tm_text text;
        char etag[TM_WEB_WORD_MAX];
        uint64_t set = 0;
        tm_text_init(&text, 256);
        rc = read_number(b, "newest", &text, &set, etag, e);
        tm_text_deinit(&text);
        if (rc == -(int)TM_EINPUT) rc = 0; /* nobody can read it: name none */
        if (rc == 0) rc = write_newest(b, set, etag, b->etag, e);
    }
    return rc == -(int)TM_EEXISTS ? tm_error_set(e, TM_EIO, "%s: others write to it all the time", b->where) : rc;
}

static int claim_job(struct bucket *b, bool take_over, struct tm_error *e)
{
    struct tm_text text;
    char etag[TM_WEB_WORD_MAX];
    char number[32];
    uint64_t claimed = 0;
    tm_text_init(&text, 64);
    int rc = read_number(b, "job", &text, &claimed, etag, e);
    tm_text_deinit(&text);
    if (rc != 0 || claimed == b->job) return rc;
    if (claimed != 0 && !take_over)
        return tm_error_set(
            e, TM_EINPUT, "%s holds the copies of another job: give each job its own prefix (copies: in the job file)",
            b->where);
    int length = snprintf(number, sizeof number, "%" PRIu64 "\n", b->job);
    rc = b->objects.put(b->objects.self, "job", number, (size_t)length, etag, NULL, e);
    return rc == -(int)TM_EEXISTS ? tm_error_set(e, TM_EIO, "%s: another job claims it at this moment", b->where) : rc;
}

/* Uploads that a coordinator's machines had under way when it died are of sets that nobody seals or drops any more, and
 * cost, though no list of objects shows them. One of a worker that lives fails, and it uploads anew. Azure forgets such
 * blocks by itself, after a week. */
static int abort_left(struct bucket *b, struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    int rc = b->objects.aborts_alone ? b->objects.abort_uploads(b->objects.self, "set-", &own) : 0;
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (rc != 0) tm_log(TM_LOG_WARN, "%s: uploads that were not finished stay: %s", b->where, own.text);
    return 0;
}

static int bucket_claim(struct tm_copy_store *store, bool take_over, struct tm_error *e)
{
    struct bucket *b = bucket_of(store);
    if (b->job == 0) return 0;
    int rc = claim_job(b, take_over, e);
    if (rc != 0) return rc;
    (void)pthread_mutex_lock(&b->lock);
    rc = take_newest(b, e);
    (void)pthread_mutex_unlock(&b->lock);
    return rc == 0 ? abort_left(b, e) : rc;
}

static int check_claim(struct bucket *b, struct tm_error *e)
{
    struct tm_text text;
    char etag[TM_WEB_WORD_MAX];
    uint64_t claimed = 0;
    if (b->job == 0 || atomic_load(&b->is_ours)) return 0;
    tm_text_init(&text, 64);
    int rc = read_number(b, "job", &text, &claimed, etag, e);
    tm_text_deinit(&text);
    if (rc != 0) return rc;
    if (claimed != b->job)
        return tm_error_set(
            e, TM_EINPUT, "%s is not where the coordinator keeps its copies (%s): all machines must use the same place",
            b->where, claimed == 0 ? "no job has claimed it" : "it belongs to another job");
    atomic_store(&b->is_ours, true);
    return 0;
}

/* ---- sealed sets ---- */

static int bucket_newest(struct tm_copy_store *store, uint64_t *out, struct tm_error *e)
{
    struct bucket *b = bucket_of(store);
    struct tm_text text;
    struct tm_copy_sets sets = {.list = NULL};
    char etag[TM_WEB_WORD_MAX];
    uint64_t set = 0;
    tm_text_init(&text, 256);
    int rc = read_number(b, "newest", &text, &set, etag, e);
    tm_text_deinit(&text);
    if (rc == 0 && set == 0) { /* where it was lost, the manifests tell */
        rc = etag[0] == '\0' ? find_sets(b, &sets, e) : 0;
        if (rc == 0 && sets.count == 0)
            rc = tm_error_set(e, TM_ENOTFOUND, "%s: there is no complete copy set yet", b->where);
        if (rc == 0 && sets.count > 0) set = sets.list[0];
        tm_free(sets.list);
    }
    if (rc == 0) *out = set;
    return rc;
}

/* Are we still the one that may write `newest`? Of what we wrote last we may not have the ETag: its answer was lost.
 * -TM_EEXISTS: another coordinator is. With the lock. */
static int still_ours(struct bucket *b, struct tm_error *e)
{
    struct tm_text text;
    char etag[TM_WEB_WORD_MAX] = "";
    tm_text_init(&text, 256);
    int rc = b->objects.get(b->objects.self, "newest", &text, etag, e);
    const char *writer = rc == 0 ? strchr(tm_text_string(&text), ' ') : NULL;
    if (rc == 0 && (writer == NULL || strtoull(writer, NULL, 16) != b->writer)) rc = -(int)TM_EEXISTS;
    if (rc == 0) (void)snprintf(b->etag, sizeof b->etag, "%s", etag);
    tm_text_deinit(&text);
    return rc == -(int)TM_ENOTFOUND ? -(int)TM_EEXISTS : rc;
}

/* Before the manifest: of a set that we may not name, the parts may be gone, and it must not be listed. */
static int may_name(struct bucket *b, struct tm_error *e)
{
    if (b->job == 0) b->etag[0] = '\0'; /* nobody's: it takes what is there, each time */
    return b->etag[0] == '\0' ? take_newest(b, e) : still_ours(b, e);
}

static int bucket_seal(struct tm_copy_store *store, uint64_t set, const void *manifest, size_t length,
                       struct tm_error *e)
{
    struct bucket *b = bucket_of(store);
    char name[NAME_BYTES];
    assert(set > 0 && length > 0);
    manifest_name(set, name);
    (void)pthread_mutex_lock(&b->lock);
    int rc = may_name(b, e);
    if (rc == 0) rc = b->objects.put(b->objects.self, name, manifest, length, NULL, NULL, e);
    if (rc == 0) rc = write_newest(b, set, b->etag, b->etag, e);
    (void)pthread_mutex_unlock(&b->lock);
    if (rc != -(int)TM_EEXISTS) return rc;
    return tm_error_set(e, TM_EINPUT,
                        "%s: another coordinator has taken this job over, and this one may not name copy sets any more",
                        b->where);
}

static int list_one(struct bucket *b, uint64_t set, tm_sealed_set_f each, void *context, struct tm_error *e)
{
    char name[NAME_BYTES];
    char where[WHERE_BYTES + NAME_BYTES];
    struct tm_text text;
    manifest_name(set, name);
    (void)snprintf(where, sizeof where, "%s/%s", b->where, name);
    tm_text_init(&text, TM_MESSAGE_BYTES_MAX);
    int rc = b->objects.get(b->objects.self, name, &text, NULL, e);
    if (rc == 0)
        rc = each(context,
                  &(struct tm_sealed_set){.set = set, .where = where, .manifest = text.data, .length = text.length}, e);
    else if (rc == -(int)TM_ENOTFOUND || rc == -(int)TM_ELIMIT) /* gone by now, or no manifest at all */
        rc = 0;
    tm_text_deinit(&text);
    return rc;
}

static int bucket_list(struct tm_copy_store *store, tm_sealed_set_f each, void *context, struct tm_error *e)
{
    struct bucket *b = bucket_of(store);
    struct tm_copy_sets sets = {.list = NULL};
    int rc = find_sets(b, &sets, e);
    for (size_t i = 0; rc == 0 && i < sets.count; i++)
        rc = list_one(b, sets.list[i], each, context, e);
    tm_free(sets.list);
    return rc;
}

static int remove_one(void *context, const char *name, struct tm_error *e)
{
    const struct tm_objects *objects = context;
    return objects->remove(objects->self, name, e);
}

/* The manifest first: what it names is whole before anything else forgets it. */
static int bucket_drop(struct tm_copy_store *store, uint64_t set, struct tm_error *e)
{
    struct bucket *b = bucket_of(store);
    char name[NAME_BYTES];
    assert(set > 0);
    manifest_name(set, name);
    int rc = b->objects.remove(b->objects.self, name, e);
    (void)snprintf(name, sizeof name, "set-%" PRIu64 "/", set);
    if (rc == 0) rc = b->objects.abort_uploads(b->objects.self, name, e);
    if (rc == 0) rc = b->objects.each(b->objects.self, name, false, remove_one, &b->objects, e);
    return rc;
}

static int bucket_sweep(struct tm_copy_store *store, uint64_t below, const uint64_t *keep, size_t keep_count,
                        struct tm_error *e)
{
    struct bucket *b = bucket_of(store);
    struct found found = {.sealed = {.list = NULL}};
    int rc = b->objects.each(b->objects.self, "set-", false, take_set, &found, e);
    if (rc == 0) rc = tm_copy_sets__sweep(store, &found.parts, &found.sealed, below, keep, keep_count, e);
    tm_free(found.sealed.list);
    tm_free(found.parts.list);
    return rc;
}

/* ---- parts ---- */

static int bucket_put(struct tm_copy_store *store, const struct tm_copy_name *name, struct tm_block *block,
                      struct tm_error *e)
{
    struct bucket *b = bucket_of(store);
    char part[NAME_BYTES];
    assert(name->set > 0 && block != NULL);
    int rc = check_claim(b, e);
    if (rc != 0) return rc;
    part_name(name->set, name->layer, part);
    size_t length = tm_copy_file__prepare(name, block);
    return b->objects.upload(b->objects.self, part, block->data - TM_BLOCK_HEAD, length, e);
}

/* A part of known size into a block of its own. */
static int get_sized(struct bucket *b, const char *part, uint64_t size, struct tm_block_pool *pool,
                     struct tm_copy_name *out_name, struct tm_block **out_block, struct tm_error *e)
{
    uint64_t total = 0;
    const void *data = NULL;
    struct tm_copy_name name = {.set = 0};
    if (size > SIZE_MAX / 2) return tm_error_set(e, TM_EINPUT, "%s/%s: not a copy of that size", b->where, part);
    size_t length = tm_copy_file_length(size);
    struct tm_block *block = tm_block_create(pool, (size_t)size);
    if (block == NULL) return tm_error_nomem(e);
    uint8_t *file = block->data - TM_BLOCK_HEAD;
    int rc = b->objects.download(b->objects.self, part, file, length, &total, e);
    if (rc == 0 && total != length)
        rc = tm_error_set(e, TM_EINPUT, "%s/%s: has %" PRIu64 " bytes, not %zu", b->where, part, total, length);
    if (rc == 0 && (rc = tm_copy_file_decode(file, length, &name, &data, e)) != 0)
        rc = tm_error_wrap(e, rc, "%s/%s", b->where, part);
    if (rc == 0 && name.size != size)
        rc = tm_error_set(e, TM_EINPUT, "%s/%s: a copy of %" PRIu64 " bytes, not %" PRIu64, b->where, part, name.size,
                          size);
    if (rc != 0) {
        tm_block_release(block);
        return rc;
    }
    *out_name = name;
    *out_block = block;
    return 0;
}

/* The head of a part tells its size. */
static int find_size(struct bucket *b, const char *part, uint64_t *out, struct tm_error *e)
{
    char head[TM_BLOCK_HEAD];
    uint64_t total = 0;
    struct tm_copy_name name = {.set = 0};
    int rc = b->objects.download(b->objects.self, part, head, sizeof head, &total, e);
    if (rc == 0) rc = tm_copy_file__head(head, &name, e);
    if (rc == 0) *out = name.size;
    return rc;
}

static int bucket_get(struct tm_copy_store *store, uint64_t set, uint32_t layer, uint64_t size,
                      struct tm_block_pool *pool, struct tm_copy_name *out_name, struct tm_block **out_block,
                      struct tm_error *e)
{
    struct bucket *b = bucket_of(store);
    char part[NAME_BYTES];
    struct tm_error why;
    uint64_t newest = 0;
    assert(set > 0 && pool != NULL);
    part_name(set, layer, part);
    int rc = size == 0 ? find_size(b, part, &size, e) : 0;
    if (rc == 0) rc = get_sized(b, part, size, pool, out_name, out_block, e);
    if (rc != -(int)TM_ENOTFOUND && rc != -(int)TM_EINPUT) return rc;
    /* Where there are sealed sets, one is the newest. If none is, this is not the place that it was. */
    int found = bucket_newest(store, &newest, &why);
    if (found == 0 || found == -(int)TM_EINPUT) return rc;
    return tm_error_set(e, TM_EIO, "the store of copies has changed: %s", why.text);
}

/* ---- for members without credentials ---- */

static int bucket_grant(struct tm_copy_store *store, uint64_t set, uint32_t layer, uint64_t length,
                        struct tm_grant *out, struct tm_error *e)
{
    struct bucket *b = bucket_of(store);
    char part[NAME_BYTES];
    assert(set > 0);
    int rc = length > 0 ? check_claim(b, e) : 0;
    if (rc != 0) return rc;
    if (length > SIZE_MAX / 2) return tm_error_set(e, TM_EINPUT, "%s: not a copy of that size", b->where);
    part_name(set, layer, part);
    return b->objects.grant(b->objects.self, part, (size_t)length, out, e);
}

static int bucket_granted(struct tm_copy_store *store, uint64_t set, uint32_t layer, const char *upload,
                          const char *tags, struct tm_error *e)
{
    struct bucket *b = bucket_of(store);
    char part[NAME_BYTES];
    assert(set > 0);
    part_name(set, layer, part);
    return b->objects.granted(b->objects.self, part, upload, tags, e);
}

/* ---- the store ---- */

static int take_any(void *context, const char *name, struct tm_error *e)
{
    (void)name;
    (void)e;
    *(bool *)context = true;
    return 0;
}

static int bucket_check(struct tm_copy_store *store, struct tm_error *e)
{
    struct bucket *b = bucket_of(store);
    static const char word[] = "written\n";
    struct tm_text back;
    bool listed = false;
    tm_text_init(&back, sizeof word);
    int rc = b->objects.put(b->objects.self, "check", word, sizeof word - 1, NULL, NULL, e);
    if (rc == 0) rc = b->objects.get(b->objects.self, "check", &back, NULL, e);
    if (rc == 0 && strcmp(tm_text_string(&back), word) != 0)
        rc = tm_error_set(e, TM_EIO, "%s/check: the data read differs from the data written", b->where);
    if (rc == 0) rc = b->objects.each(b->objects.self, "check", true, take_any, &listed, e);
    if (rc == 0 && !listed) rc = tm_error_set(e, TM_EIO, "%s: what was written is not listed", b->where);
    /* A service that ignores conditions would let two coordinators name the newest set. */
    if (rc == 0 && b->objects.put(b->objects.self, "check", word, sizeof word - 1, "", NULL, NULL) != -(int)TM_EEXISTS)
        rc = tm_error_set(e, TM_EIO, "%s: the service ignores If-None-Match, so copies are not safe there", b->where);
    if (rc == 0) rc = b->objects.remove(b->objects.self, "check", e);
    tm_text_deinit(&back);
    return rc;
}

static void bucket_close(struct tm_copy_store *store)
{
    struct bucket *b = bucket_of(store);
    b->objects.close(b->objects.self);
    (void)pthread_mutex_destroy(&b->lock);
    tm_free(b);
}

int tm_copy_bucket__open(struct tm_env *env, const char *place, uint64_t job, struct tm_copy_store **out,
                         struct tm_error *e)
{
    struct bucket *b = tm_calloc(1, sizeof *b);
    if (b == NULL) return tm_error_nomem(e);
    int rc = tm_objects_open(env, place, &b->objects, e);
    if (rc != 0) {
        tm_free(b);
        return rc;
    }
    b->job = job;
    b->writer = env->random_u64(env);
    (void)pthread_mutex_init(&b->lock, NULL);
    (void)snprintf(b->where, sizeof b->where, "%.*s", (int)sizeof b->where - 1, place);
    for (size_t length = strlen(b->where); length > 0 && b->where[length - 1] == '/'; length--)
        b->where[length - 1] = '\0';
    b->store = (struct tm_copy_store){.self = b,
                                      .where = b->where,
                                      .put = bucket_put,
                                      .get = bucket_get,
                                      .seal = bucket_seal,
                                      .newest = bucket_newest,
                                      .list = bucket_list,
                                      .drop = bucket_drop,
                                      .sweep = bucket_sweep,
                                      .claim = bucket_claim,
                                      .check = bucket_check,
                                      .close = bucket_close};
    if (b->objects.grant != NULL) {
        b->store.grant = bucket_grant;
        b->store.granted = bucket_granted;
    }
    *out = &b->store;
    return 0;
}
