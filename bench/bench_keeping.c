/* What keeping work costs, as ratios to a baseline of the same run: parts of copy sets through memory (baseline:
 * memcpy), events into the record, each synced or not (baseline: a loop of write and fsync, or of write). Copies in
 * files: bench_copies.
 *
 * Use: bench_keeping [FOLDER]; the record goes to a new folder there (/tmp). */
#include "base/alloc.h"
#include "bench_tools.h"
#include "store/copies.h"
#include "store/record.h"
#include "wire/message.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAYER_BYTES = 16 << 20, LAYERS = 16, CHUNK_BYTES = 1 << 20, SYNCED = 200, UNSYNCED = 20000 };

static void must(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "bench_keeping: %s\n", what);
    exit(1);
}

static double write_loop_s(const char *path, const void *data, size_t length, int rounds, int sync)
{
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    must(file >= 0, "cannot write files here");
    double start_s = bench_now_s();
    for (int i = 0; i < rounds; i++) {
        must(write(file, data, length) == (ssize_t)length, "write");
        if (sync) must(fsync(file) == 0, "fsync");
    }
    double took_s = bench_now_s() - start_s;
    (void)close(file);
    (void)unlink(path);
    return took_s;
}

static void bench_memory(const uint8_t *layer, uint8_t *room)
{
    struct tm_copies copies;
    double mb = (double)LAYER_BYTES * LAYERS / 1e6;
    struct tm_copy_name name = {.set = 1, .step = 7, .hash = tm_hash_of(layer, LAYER_BYTES), .size = LAYER_BYTES};
    struct tm_block_pool *pool = tm_block_pool_create();
    must(pool != NULL, "no memory");
    tm_copies_init(&copies, (uint64_t)LAYER_BYTES * LAYERS, pool);
    double put_s = bench_now_s();
    for (uint32_t l = 0; l < LAYERS; l++) {
        name.layer = l;
        for (uint64_t offset = 0; offset < LAYER_BYTES; offset += CHUNK_BYTES) {
            uint64_t received = 0;
            must(tm_copies_put(&copies, &name, offset, layer + offset, CHUNK_BYTES, &received, NULL) == 0, "put");
        }
    }
    put_s = bench_now_s() - put_s;
    tm_copies_deinit(&copies);
    tm_block_pool_destroy(pool);
    double copy_s = bench_now_s();
    for (uint32_t l = 0; l < LAYERS; l++) { /* into fresh memory, as a copy is */
        uint8_t *fresh = tm_alloc(LAYER_BYTES);
        must(fresh != NULL, "no memory");
        memcpy(fresh, layer, LAYER_BYTES);
        room[l] = fresh[l];
        tm_free(fresh);
    }
    copy_s = bench_now_s() - copy_s;
    printf("copies in memory: %.0f MB in chunks of 1 MiB, hashed, at %.0f MB/s, %.2f of memcpy into fresh memory\n", mb,
           mb / put_s, copy_s / put_s);
}

static size_t make_event(struct tm_text *text)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__NoteEvent note = TMW__NOTE_EVENT__INIT;
    char what[] = "a generation takes effect when this is on the disk";
    note.what = what;
    event.body_case = TMW__RECORD_EVENT__BODY_NOTE;
    event.note = &note;
    tm_record_event_pack(&event, text);
    must(tm_text_status(text, NULL) == 0, "no memory");
    return text->length;
}

static double record_s(const char *path, const struct tm_text *event, int count, bool sync)
{
    struct tm_record *record = NULL;
    struct tm_error e = {.text = ""};
    must(tm_record_open(path, &record, &e) == 0, e.text);
    double start_s = bench_now_s();
    for (int i = 0; i < count; i++) {
        must(record->append(record, event->data, event->length, sync, NULL, NULL) == 0, "append");
        if (sync) must(record->flush(record, true, NULL) == 0, "sync");
    }
    must(record->flush(record, true, NULL) == 0, "flush");
    double took_s = bench_now_s() - start_s;
    tm_record_close(record);
    (void)unlink(path);
    return took_s;
}

static void bench_record(const char *folder)
{
    char path[512];
    char plain[512];
    struct tm_text event;
    tm_text_init(&event, 4096);
    size_t length = make_event(&event);
    (void)snprintf(path, sizeof path, "%s/record", folder);
    (void)snprintf(plain, sizeof plain, "%s/plain", folder);
    double synced_s = record_s(path, &event, SYNCED, true);
    double fsync_s = write_loop_s(plain, event.data, length, SYNCED, 1);
    double unsynced_s = record_s(path, &event, UNSYNCED, false);
    double write_s = write_loop_s(plain, event.data, length, UNSYNCED, 0);
    printf("record: %.0f events/s each synced, %.2f of a loop of write and fsync (%.0f/s); %.0f/s unsynced, %.2f of a "
           "loop of write\n",
           SYNCED / synced_s, fsync_s / synced_s, SYNCED / fsync_s, UNSYNCED / unsynced_s, write_s / unsynced_s);
    tm_text_deinit(&event);
}

int main(int argc, char **argv)
{
    char folder[256];
    (void)snprintf(folder, sizeof folder, "%s/bench-keeping-XXXXXX", argc > 1 ? argv[1] : "/tmp");
    must(mkdtemp(folder) != NULL, "cannot make a folder");
    uint8_t *layer = tm_alloc(LAYER_BYTES);
    uint8_t *room = tm_alloc(LAYERS);
    must(layer != NULL && room != NULL, "no memory");
    for (size_t i = 0; i < LAYER_BYTES; i++)
        layer[i] = (uint8_t)(i * 2654435761U >> 13);
    bench_memory(layer, room);
    bench_record(folder);
    tm_free(room);
    tm_free(layer);
    (void)rmdir(folder);
    return 0;
}
