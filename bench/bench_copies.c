/* Copy sets in files against the disk, turn by turn in one folder.
 *
 * Ours: from a worker's snapshot (a block whose hash was made when it was taken) to a file that is whole, synced and
 * renamed; and back: read, checked by its hash and given to the engine, whose layers of before go back to the pool. By
 * the worker's own threads, as a worker asks them: writes a few files ahead, reads all at once. Once more for an engine
 * that has its layers in memory of its own (layer_memory), where they are copied, for comparison. The disk: the same
 * bytes, from and to memory that was used before, as files of the same sizes by as many threads with O_DIRECT in calls
 * of 8 MiB, with fdatasync; nothing is hashed, renamed or copied.
 *
 * Files are new in every round of writing, as those of a set are; the old ones are removed in between. Memory that no
 * process has used yet is dear on a virtual machine: a first restore, of both, is printed by itself and counts in no
 * ratio. Nor do the rounds of reading after it: behind the disk there may be a cache that learns. What a snapshot costs
 * the engine (copied and hashed in one pass, into memory that was used before) is printed too. Sets of up to 1 GB: what
 * a pool keeps for the next.
 *
 * Use: bench_copies FOLDER [MEGABYTES] [LAYERS] [ROUNDS] */
#include "base/alloc.h"
#include "bench_tools.h"
#include "worker/copy_files.h"
#include "worker/layer_places.h"
#include "worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS_MAX = 99, WARM_ROUNDS = 4, BLOCK = 8 << 20, LAYERS_MAX = 256 };

enum what { WRITE, GIVE, COPY };

struct bench {
    char folder[512];
    enum what what; /* is measured */
    size_t length;
    uint32_t layers;
    int rounds;
    struct tm_block_pool *pool;
    struct tm_block *snapshot[LAYERS_MAX];
    uint8_t *direct[LAYERS_MAX]; /* what the disk's own rate is measured with */
    struct tm_hash hash[LAYERS_MAX];
    uint8_t *own[LAYERS_MAX]; /* an engine's own memory */
    void *given[LAYERS_MAX];  /* where an engine has what it was given */
    struct answers {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        uint32_t count;
        uint32_t good;
    } answers;
    struct tm_layer_places places[2]; /* of an engine that takes, and one that has memory of its own */
};

static struct tm_layer_places *places_of(struct bench *b)
{
    return &b->places[b->what == COPY];
}

static int take_layer(void *context, uint32_t layer, void *memory, uint64_t bytes)
{
    (void)bytes;
    ((struct bench *)context)->given[layer] = memory;
    return 0;
}

static void *layer_memory(void *context, uint32_t layer, uint64_t bytes)
{
    (void)bytes;
    return ((struct bench *)context)->own[layer];
}

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench_copies: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- ours ---- */

/* As a worker's session does (src/worker/session.c). */
static void on_done(void *context, const struct tm_copy_file_done *done)
{
    struct bench *b = context;
    bool good = done->is_put ? done->written : done->got.state == TM_COPY_GOOD;
    (void)pthread_mutex_lock(&b->answers.lock);
    b->answers.count++;
    b->answers.good += good;
    if (good && !done->is_put) tm_layer_places_stage(places_of(b), done->layer, done->got.block);
    (void)pthread_cond_signal(&b->answers.changed);
    (void)pthread_mutex_unlock(&b->answers.lock);
}

/* As the engine's thread does while it waits for the rest. */
static void await(struct bench *b, uint32_t count)
{
    struct tm_layer_places *places = places_of(b);
    (void)pthread_mutex_lock(&b->answers.lock);
    while (b->answers.count < count || places->unsettled) {
        if (!places->unsettled)
            (void)pthread_cond_wait(&b->answers.changed, &b->answers.lock);
        else if (tm_layer_places_settle(places) != 0)
            fail("the engine's memory");
    }
    (void)pthread_mutex_unlock(&b->answers.lock);
}

static struct tm_copy_store *open_store(const struct bench *b)
{
    struct tm_copy_store *store = NULL;
    if (tm_copy_store_open(tm_env_real(), b->folder, 0, &store, NULL) != 0) fail("the store");
    return store;
}

static void remove_files(const struct bench *b)
{
    struct tm_copy_store *store = open_store(b);
    (void)store->drop(store, 1, NULL);
    store->close(store);
    for (uint32_t l = 0; l < b->layers; l++) {
        char path[1024];
        (void)snprintf(path, sizeof path, "%s/direct-%u", b->folder, l);
        (void)unlink(path);
    }
    sync();
}

static double ours(struct bench *b)
{
    struct tm_copy_files *files = NULL;
    struct tm_copy_store *store = open_store(b);
    b->answers.count = b->answers.good = 0;
    if (tm_copy_files_create(store, on_done, b, &files, NULL) != 0) fail("copy files");
    double begin_s = bench_now_s();
    for (uint32_t l = 0; l < b->layers; l++) {
        struct tm_copy_name name = {.set = 1, .step = 1, .layer = l, .size = b->length, .hash = b->hash[l]};
        if (b->what == WRITE && l >= TM_WORKER_FILES_AT_ONCE) await(b, l - TM_WORKER_FILES_AT_ONCE + 1);
        if (b->what == WRITE)
            tm_copy_files_put(files, &name, tm_block_share(b->snapshot[l]));
        else
            tm_copy_files_get(files, 1, l, b->length, b->pool);
    }
    await(b, b->layers);
    double took_s = bench_now_s() - begin_s;
    if (b->answers.good != b->layers) fail("a copy is not what it should be");
    tm_copy_files_destroy(files);
    store->close(store);
    return took_s;
}

/* ---- the disk's own rate ---- */

struct direct {
    const struct bench *b;
    bool write;
    atomic_uint next;
};

static void one_file(const struct bench *b, uint32_t layer, bool write)
{
    uint8_t *bytes = b->direct[layer];
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/direct-%u", b->folder, layer);
    int file = open(path, (write ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY) | O_DIRECT | O_CLOEXEC, 0600);
    if (file < 0) fail(path);
    for (size_t at = 0; at < b->length; at += BLOCK) {
        size_t part = b->length - at < BLOCK ? b->length - at : BLOCK;
        ssize_t done = write ? pwrite(file, bytes + at, part, (off_t)at) : pread(file, bytes + at, part, (off_t)at);
        if (done != (ssize_t)part) fail(path);
    }
    if (write && fdatasync(file) != 0) fail(path);
    (void)close(file);
}

static void *direct_files(void *argument)
{
    struct direct *direct = argument;
    for (;;) {
        uint32_t layer = atomic_fetch_add(&direct->next, 1);
        if (layer >= direct->b->layers) return NULL;
        one_file(direct->b, layer, direct->write);
    }
}

static double disk(const struct bench *b)
{
    struct direct direct = {.b = b, .write = b->what == WRITE};
    pthread_t threads[TM_COPY_FILES_AT_ONCE];
    double begin_s = bench_now_s();
    for (size_t i = 0; i < TM_COPY_FILES_AT_ONCE; i++)
        if (pthread_create(&threads[i], NULL, direct_files, &direct) != 0) fail("thread");
    for (size_t i = 0; i < TM_COPY_FILES_AT_ONCE; i++)
        (void)pthread_join(threads[i], NULL);
    return bench_now_s() - begin_s;
}

/* ---- side by side ---- */

static void compare(struct bench *b, enum what what)
{
    static const char *const words[] = {"copy set to files", "restored", "restored by copy"};
    double ratio[ROUNDS_MAX] = {0};
    double us[ROUNDS_MAX];
    double theirs[ROUNDS_MAX];
    double mb = (double)b->length * b->layers / 1e6;
    b->what = what;
    for (int i = 0; what != WRITE && i < WARM_ROUNDS; i++)
        (void)(ours(b) + disk(b));
    for (int i = 0; i < b->rounds; i++) { /* neighbours in time are compared: a shared disk's rate drifts */
        if (what == WRITE) remove_files(b);
        double first_s = i % 2 == 0 ? ours(b) : disk(b);
        double second_s = i % 2 == 0 ? disk(b) : ours(b);
        us[i] = i % 2 == 0 ? first_s : second_s;
        theirs[i] = i % 2 == 0 ? second_s : first_s;
        ratio[i] = theirs[i] / us[i];
    }
    size_t rounds = (size_t)b->rounds;
    double middle = bench_median(ratio, rounds);
    bench_sort(ratio, rounds);
    printf("%-18s %6.0f MB/s   O_DIRECT %6.0f MB/s   ratio %.2f (%.2f to %.2f)%s\n", words[what],
           mb / bench_median(us, rounds), mb / bench_median(theirs, rounds), middle, ratio[0], ratio[rounds - 1],
           what == COPY    ? ""
           : middle >= 0.8 ? "   target 0.80: met"
                           : "   target 0.80: MISSED");
}

static void prepare(struct bench *b)
{
    struct tidemill_engine takes = {.context = b, .take_layer = take_layer};
    struct tidemill_engine copies = {.context = b, .layer_memory = layer_memory};
    (void)pthread_mutex_init(&b->answers.lock, NULL);
    (void)pthread_cond_init(&b->answers.changed, NULL);
    b->pool = tm_block_pool_create();
    if (b->pool == NULL || tm_layer_places_init(&b->places[0], &takes, b->layers, b->pool, &b->answers.lock) != 0 ||
        tm_layer_places_init(&b->places[1], &copies, b->layers, b->pool, &b->answers.lock) != 0)
        fail("memory");
    for (uint32_t l = 0; l < b->layers; l++) {
        b->own[l] = tm_alloc_pages(b->length);
        b->snapshot[l] = tm_block_create(b->pool, b->length);
        if (b->own[l] == NULL || b->snapshot[l] == NULL) fail("memory");
        for (size_t i = 0; i < b->length; i++)
            b->own[l][i] = (uint8_t)((i + l) * 2654435761U >> 13);
        b->direct[l] = b->snapshot[l]->data;
        memset(b->snapshot[l]->data, 0, b->length);
    }
    double begin_s = bench_now_s();
    for (uint32_t l = 0; l < b->layers; l++)
        b->hash[l] = tm_hash_copy(b->snapshot[l]->data, b->own[l], b->length);
    double snapshot_s = bench_now_s() - begin_s;
    begin_s = bench_now_s();
    for (uint32_t l = 0; l < b->layers; l++)
        if (!tm_hash_equal(tm_hash_of(b->snapshot[l]->data, b->length), b->hash[l])) fail("hash");
    double hash_s = bench_now_s() - begin_s;
    begin_s = bench_now_s();
    for (uint32_t l = 0; l < b->layers; l++)
        memcpy(b->own[l], b->snapshot[l]->data, b->length);
    double copy_s = bench_now_s() - begin_s;
    double mb = (double)b->length * b->layers / 1e6;
    printf("one thread: snapshot (copied and hashed) %.0f MB/s; hash %.0f MB/s; copy %.0f MB/s\n", mb / snapshot_s,
           mb / hash_s, mb / copy_s);
}

/* Both into fresh memory: ours stays with the engine, and the pool then gets what an engine's old layers need. */
static void first_restore(struct bench *b)
{
    double mb = (double)b->length * b->layers / 1e6;
    struct tm_block *fresh[LAYERS_MAX];
    b->what = GIVE;
    double us = mb / ours(b);
    for (uint32_t l = 0; l < b->layers; l++) {
        fresh[l] = tm_block_create(b->pool, b->length);
        if (fresh[l] == NULL) fail("memory");
        b->direct[l] = fresh[l]->data;
    }
    double theirs = mb / disk(b);
    printf("first restore, into memory never used: %.0f MB/s; O_DIRECT %.0f MB/s\n", us, theirs);
    for (uint32_t l = 0; l < b->layers; l++) {
        b->direct[l] = b->snapshot[l]->data;
        tm_block_release(fresh[l]);
    }
}

int main(int argc, char **argv)
{
    struct bench b = {.length = argc > 2 ? strtoul(argv[2], NULL, 10) << 20 : 64 << 20,
                      .layers = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 12,
                      .rounds = argc > 4 ? atoi(argv[4]) : 9};
    if (argc < 2 || b.length < 1 || b.layers < 1 || b.layers > LAYERS_MAX || b.rounds < 1 || b.rounds > ROUNDS_MAX)
        fail("use: bench_copies FOLDER [MEGABYTES] [LAYERS] [ROUNDS]");
    (void)snprintf(b.folder, sizeof b.folder, "%s/tidemill-copies-XXXXXX", argv[1]);
    if (mkdtemp(b.folder) == NULL) fail(b.folder);
    printf("%u layers of %zu MB, one worker, median of %d pairs, %ld cores:\n", b.layers, b.length >> 20, b.rounds,
           sysconf(_SC_NPROCESSORS_ONLN));
    prepare(&b);
    compare(&b, WRITE);
    first_restore(&b);
    compare(&b, GIVE);
    for (uint32_t l = 0; l < b.layers; l++)
        if (!tm_hash_equal(tm_hash_of(b.given[l], b.length), b.hash[l])) fail("hash");
    compare(&b, COPY);
    tm_layer_places_deinit(&b.places[0]);
    tm_layer_places_deinit(&b.places[1]);
    for (uint32_t l = 0; l < b.layers; l++) {
        tm_block_release(b.snapshot[l]);
        tm_free(b.own[l]);
    }
    tm_block_pool_destroy(b.pool);
    char command[600];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", b.folder);
    return system(command) == 0 ? 0 : 1;
}
