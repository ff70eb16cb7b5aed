/* Copy sets in files against the disk: layers written and read back as a worker does it (encoded, synced, renamed;
 * read, hash checked), and the same bytes by a plain loop with O_DIRECT in the same folder, turn by turn.
 *
 * Use: bench_copies FOLDER [MEGABYTES] [LAYERS] */
#include "base/alloc.h"
#include "store/copies.h"
#include "worker/copy_files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 5, BLOCK = 8 << 20, LAYERS_MAX = 256 };

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench_copies: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    return (double)tm_env_real()->monotonic_ns(tm_env_real()) * 1e-9;
}

/* ---- ours ---- */

struct answers {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t count;
    size_t good;
};

static void on_done(void *context, const struct tm_copy_file_done *done)
{
    struct answers *answers = context;
    struct tm_copy_name name;
    const void *data = NULL;
    bool good = done->is_put
                    ? done->written
                    : done->data != NULL && tm_copy_file_decode(done->data, done->length, &name, &data, NULL) == 0;
    (void)pthread_mutex_lock(&answers->lock);
    answers->count++;
    answers->good += good;
    (void)pthread_cond_signal(&answers->changed);
    (void)pthread_mutex_unlock(&answers->lock);
}

static void await(struct answers *answers, size_t count)
{
    (void)pthread_mutex_lock(&answers->lock);
    while (answers->count < count)
        (void)pthread_cond_wait(&answers->changed, &answers->lock);
    (void)pthread_mutex_unlock(&answers->lock);
}

static void forget_cached(const char *folder, uint32_t layers)
{
    for (uint32_t l = 0; l < layers; l++) {
        char path[1024];
        (void)snprintf(path, sizeof path, "%s/set-1/layer-%u.tmcopy", folder, l);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) fail(path);
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        (void)close(file);
    }
}

static double ours(const char *folder, const uint8_t *data, size_t length, uint32_t layers, bool write)
{
    struct answers answers = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct tm_copy_files *files = NULL;
    if (tm_copy_files_create(tm_env_real(), folder, on_done, &answers, &files, NULL) != 0) fail("copy files");
    if (!write) forget_cached(folder, layers);
    double begin_s = now_s();
    for (uint32_t l = 0; l < layers; l++) {
        if (write) {
            struct tm_copy_name name = {
                .set = 1, .step = 1, .layer = l, .size = length, .hash = tm_hash_of(data, length)};
            struct tm_text file;
            tm_text_init(&file, length + 4096);
            tm_copy_file_encode(&name, data, &file);
            tm_copy_files_put(files, 1, l, file.data, file.length);
            tm_text_deinit(&file);
        } else {
            tm_copy_files_get(files, 1, l, length + 4096);
        }
        if (l >= 2) await(&answers, l - 1); /* two wait: a worker does not hold all its layers twice */
    }
    await(&answers, layers);
    double took_s = now_s() - begin_s;
    if (answers.good != layers) fail("a copy is not what it should be");
    tm_copy_files_destroy(files);
    return took_s;
}

/* ---- the disk's own rate ---- */

static double direct(const char *folder, uint8_t *block, size_t length, uint32_t layers, bool write)
{
    double begin_s = now_s();
    for (uint32_t l = 0; l < layers; l++) {
        char path[1024];
        (void)snprintf(path, sizeof path, "%s/direct-%u", folder, l);
        int flags = write ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
        int file = open(path, flags | O_DIRECT | O_CLOEXEC, 0600);
        if (file < 0) fail(path);
        for (size_t at = 0; at < length; at += BLOCK) {
            size_t part = length - at < BLOCK ? length - at : BLOCK;
            ssize_t done = write ? pwrite(file, block, part, (off_t)at) : pread(file, block, part, (off_t)at);
            if (done != (ssize_t)part) fail(path);
        }
        if (write && fsync(file) != 0) fail(path);
        (void)close(file);
    }
    return now_s() - begin_s;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;
    return *x < *y ? -1 : *x > *y ? 1 : 0;
}

static void compare(const char *folder, const uint8_t *data, uint8_t *block, size_t length, uint32_t layers, bool write)
{
    double us[ROUNDS];
    double disk[ROUNDS];
    double bytes = (double)length * layers;
    for (int i = 0; i < ROUNDS; i++) {
        us[i] = ours(folder, data, length, layers, write);
        disk[i] = direct(folder, block, length, layers, write);
    }
    qsort(us, ROUNDS, sizeof *us, ascending);
    qsort(disk, ROUNDS, sizeof *disk, ascending);
    double ratio = disk[ROUNDS / 2] / us[ROUNDS / 2];
    printf("%-28s %8.0f MB/s   O_DIRECT %8.0f MB/s   ratio %.2f   target 0.80: %s\n",
           write ? "copy set to files" : "restored from files", bytes / us[ROUNDS / 2] / 1e6,
           bytes / disk[ROUNDS / 2] / 1e6, ratio, ratio >= 0.8 ? "met" : "MISSED");
}

int main(int argc, char **argv)
{
    size_t megabytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 64;
    uint32_t layers = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 12;
    if (argc < 2 || megabytes < 1 || layers < 1 || layers > LAYERS_MAX)
        fail("use: bench_copies FOLDER [MEGABYTES] [LAYERS]");
    char folder[512];
    (void)snprintf(folder, sizeof folder, "%s/tidemill-copies-XXXXXX", argv[1]);
    if (mkdtemp(folder) == NULL) fail(folder);
    size_t length = megabytes << 20;
    uint8_t *data = tm_alloc(length);
    void *block = NULL;
    if (data == NULL || posix_memalign(&block, 4096, BLOCK) != 0) fail("memory");
    for (size_t i = 0; i < length; i++)
        data[i] = (uint8_t)(i * 2654435761U >> 13);
    memcpy(block, data, BLOCK < length ? BLOCK : length);
    printf("%u layers of %zu MB, one worker, median of %d:\n", layers, megabytes, ROUNDS);
    compare(folder, data, block, length, layers, true);
    compare(folder, data, block, length, layers, false);
    free(block);
    tm_free(data);
    char command[600];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : 1;
}
