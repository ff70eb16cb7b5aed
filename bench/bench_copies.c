/* Copy sets in files against the disk, turn by turn in one folder.
 *
 * Ours: from a worker's snapshot (a block whose hash was made when it was taken) to a file that is whole, synced and
 * renamed; and back: read and checked by its hash, and once more with the copy to where an engine has its layers. By
 * the worker's own threads, as a worker asks them: writes a few files ahead, reads all at once. The disk: the same
 * bytes, from and to the same memory, as files of the same sizes by as many threads with O_DIRECT in calls of 8 MiB,
 * with fdatasync; nothing is hashed, renamed or copied. Files are new in every round, as those of a set are; the old
 * ones are removed in between. Memory that no process has used yet is dear on a virtual machine: the first restore of a
 * worker pays for it, is printed by itself and counts in no ratio. What a snapshot costs the engine (copied and hashed
 * in one pass, into memory that was used before) is printed too.
 *
 * Use: bench_copies FOLDER [MEGABYTES] [LAYERS] [ROUNDS] */
#include "base/alloc.h"
#include "bench_tools.h"
#include "worker/copy_files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS_MAX = 99, BLOCK = 8 << 20, LAYERS_MAX = 256 };

enum what { WRITE, CHECK, PLACE };

struct bench {
    char folder[512];
    enum what what; /* is measured */
    size_t length;
    uint32_t layers;
    int rounds;
    struct tm_block_pool *pool;
    struct tm_block *snapshot[LAYERS_MAX];
    struct tm_hash hash[LAYERS_MAX];
    uint8_t *engine[LAYERS_MAX]; /* where the layers live */
};

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench_copies: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- ours ---- */

struct answers {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t count;
    uint32_t good;
    struct tm_block *waiting[LAYERS_MAX]; /* read, to be put in the engine's memory by its own thread */
    uint32_t layer_of[LAYERS_MAX];
    uint32_t waiting_count;
};

static void on_done(void *context, const struct tm_copy_file_done *done)
{
    struct answers *answers = context;
    bool good = done->is_put ? done->written : done->file.state == TM_COPY_FILE_GOOD;
    (void)pthread_mutex_lock(&answers->lock);
    answers->count++;
    answers->good += good;
    if (good && !done->is_put) {
        answers->layer_of[answers->waiting_count] = done->layer;
        answers->waiting[answers->waiting_count++] = tm_block_share(done->file.block);
    }
    (void)pthread_cond_signal(&answers->changed);
    (void)pthread_mutex_unlock(&answers->lock);
}

/* As the engine's thread does while it waits for the rest. */
static void await(struct bench *b, struct answers *answers, uint32_t count)
{
    (void)pthread_mutex_lock(&answers->lock);
    while (answers->count < count || answers->waiting_count > 0) {
        if (answers->waiting_count == 0) {
            (void)pthread_cond_wait(&answers->changed, &answers->lock);
            continue;
        }
        struct tm_block *block = answers->waiting[--answers->waiting_count];
        uint32_t layer = answers->layer_of[answers->waiting_count];
        (void)pthread_mutex_unlock(&answers->lock);
        if (b->what == PLACE) memcpy(b->engine[layer], block->data, b->length);
        tm_block_release(block);
        (void)pthread_mutex_lock(&answers->lock);
    }
    (void)pthread_mutex_unlock(&answers->lock);
}

static void remove_files(const struct bench *b)
{
    for (uint32_t l = 0; l < b->layers; l++) {
        char path[1024];
        tm_copy_file_path(b->folder, 1, l, path, sizeof path);
        (void)unlink(path);
        (void)snprintf(path, sizeof path, "%s/direct-%u", b->folder, l);
        (void)unlink(path);
    }
    sync();
}

static double ours(struct bench *b)
{
    struct answers answers = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct tm_copy_files *files = NULL;
    if (tm_copy_files_create(tm_env_real(), b->folder, on_done, &answers, &files, NULL) != 0) fail("copy files");
    double begin_s = bench_now_s();
    for (uint32_t l = 0; l < b->layers; l++) {
        struct tm_copy_name name = {.set = 1, .step = 1, .layer = l, .size = b->length, .hash = b->hash[l]};
        if (b->what == WRITE && l >= TM_COPY_FILES_AT_ONCE) await(b, &answers, l - TM_COPY_FILES_AT_ONCE + 1);
        if (b->what == WRITE)
            tm_copy_files_put(files, &name, tm_block_share(b->snapshot[l]));
        else
            tm_copy_files_get(files, 1, l, b->length, b->pool);
    }
    await(b, &answers, b->layers);
    double took_s = bench_now_s() - begin_s;
    if (answers.good != b->layers) fail("a copy is not what it should be");
    tm_copy_files_destroy(files);
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
    uint8_t *bytes = b->snapshot[layer]->data;
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
    static const char *const words[] = {"copy set to files", "restored, checked", "and in its place"};
    double ratio[ROUNDS_MAX];
    double us[ROUNDS_MAX];
    double theirs[ROUNDS_MAX];
    double mb = (double)b->length * b->layers / 1e6;
    b->what = what;
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
    printf("%-18s %6.0f MB/s   O_DIRECT %6.0f MB/s   ratio %.2f (%.2f to %.2f)   target 0.80: %s\n", words[what],
           mb / bench_median(us, rounds), mb / bench_median(theirs, rounds), middle, ratio[0], ratio[rounds - 1],
           middle >= 0.8 ? "met" : "MISSED");
}

static void prepare(struct bench *b)
{
    b->pool = tm_block_pool_create();
    if (b->pool == NULL) fail("memory");
    for (uint32_t l = 0; l < b->layers; l++) {
        b->engine[l] = tm_alloc_pages(b->length);
        b->snapshot[l] = tm_block_create(b->pool, b->length);
        if (b->engine[l] == NULL || b->snapshot[l] == NULL) fail("memory");
        for (size_t i = 0; i < b->length; i++)
            b->engine[l][i] = (uint8_t)((i + l) * 2654435761U >> 13);
        memset(b->snapshot[l]->data, 0, b->length);
    }
    double begin_s = bench_now_s();
    for (uint32_t l = 0; l < b->layers; l++)
        b->hash[l] = tm_hash_copy(b->snapshot[l]->data, b->engine[l], b->length);
    double snapshot_s = bench_now_s() - begin_s;
    begin_s = bench_now_s();
    for (uint32_t l = 0; l < b->layers; l++)
        if (!tm_hash_equal(tm_hash_of(b->snapshot[l]->data, b->length), b->hash[l])) fail("hash");
    double hash_s = bench_now_s() - begin_s;
    begin_s = bench_now_s();
    for (uint32_t l = 0; l < b->layers; l++)
        memcpy(b->engine[l], b->snapshot[l]->data, b->length);
    double copy_s = bench_now_s() - begin_s;
    double mb = (double)b->length * b->layers / 1e6;
    printf("one thread: snapshot (copied and hashed) %.0f MB/s; hash %.0f MB/s; copy %.0f MB/s\n", mb / snapshot_s,
           mb / hash_s, mb / copy_s);
}

int main(int argc, char **argv)
{
    struct bench b = {.length = argc > 2 ? strtoul(argv[2], NULL, 10) << 20 : 64 << 20,
                      .layers = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 12,
                      .rounds = argc > 4 ? atoi(argv[4]) : 7};
    if (argc < 2 || b.length < 1 || b.layers < 1 || b.layers > LAYERS_MAX || b.rounds < 1 || b.rounds > ROUNDS_MAX)
        fail("use: bench_copies FOLDER [MEGABYTES] [LAYERS] [ROUNDS]");
    (void)snprintf(b.folder, sizeof b.folder, "%s/tidemill-copies-XXXXXX", argv[1]);
    if (mkdtemp(b.folder) == NULL) fail(b.folder);
    printf("%u layers of %zu MB, one worker, median of %d pairs, %ld cores:\n", b.layers, b.length >> 20, b.rounds,
           sysconf(_SC_NPROCESSORS_ONLN));
    prepare(&b);
    compare(&b, WRITE);
    b.what = PLACE;
    printf("first restore, into memory never used: %.0f MB/s\n", (double)b.length * b.layers / 1e6 / ours(&b));
    compare(&b, CHECK);
    compare(&b, PLACE);
    for (uint32_t l = 0; l < b.layers; l++) {
        tm_block_release(b.snapshot[l]);
        tm_free(b.engine[l]);
    }
    tm_block_pool_destroy(b.pool);
    char command[600];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", b.folder);
    return system(command) == 0 ? 0 : 1;
}
