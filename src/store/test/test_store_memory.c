/* The record with every allocation failing in turn, SQLite's own among them: what was synced is there afterwards, in
 * order and undamaged; nothing is left over. */
#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "store/record.h"
#include "wire/message.h"

#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

/* ---- SQLite's allocations are ours; it wants to know how large each is ---- */

enum { HEAD = 16 };

static void *sqlite_alloc(int size)
{
    char *memory = tm_alloc((size_t)size + HEAD);
    if (memory == NULL) return NULL;
    memcpy(memory, &size, sizeof size);
    return memory + HEAD;
}

static void sqlite_free(void *memory)
{
    if (memory != NULL) tm_free((char *)memory - HEAD);
}

static void *sqlite_realloc(void *old, int size)
{
    if (old == NULL) return sqlite_alloc(size);
    char *memory = tm_realloc((char *)old - HEAD, (size_t)size + HEAD);
    if (memory == NULL) return NULL;
    memcpy(memory, &size, sizeof size);
    return memory + HEAD;
}

static int sqlite_size(void *memory)
{
    int size = 0;
    if (memory != NULL) memcpy(&size, (char *)memory - HEAD, sizeof size);
    return size;
}

static int sqlite_roundup(int size)
{
    return (size + 7) & ~7;
}

static int sqlite_init(void *context)
{
    (void)context;
    return SQLITE_OK;
}

static void sqlite_shutdown(void *context)
{
    (void)context;
}

__attribute__((constructor)) static void route_allocations(void)
{
    static const sqlite3_mem_methods methods = {sqlite_alloc,   sqlite_free, sqlite_realloc,  sqlite_size,
                                                sqlite_roundup, sqlite_init, sqlite_shutdown, NULL};
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK) __builtin_trap();
}

/* ---- the record ---- */

enum { EVENTS = 12 };

static int append(struct tm_record *record, uint64_t number, bool sync)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__NoteEvent note = TMW__NOTE_EVENT__INIT;
    struct tm_text text;
    char what[] = "a note";
    note.what = what;
    note.value = number;
    event.body_case = TMW__RECORD_EVENT__BODY_NOTE;
    event.note = &note;
    tm_text_init(&text, 4096);
    tm_record_event_pack(&event, &text);
    int rc = tm_text_status(&text, NULL);
    if (rc == 0) rc = record->append(record, text.data, text.length, sync, NULL, NULL);
    if (rc == 0 && sync) rc = record->flush(record, true, NULL);
    tm_text_deinit(&text);
    return rc;
}

static int count_up(void *context, uint64_t sequence, const void *data, size_t length, struct tm_error *e)
{
    uint64_t *next = context;
    (void)sequence;
    struct tm_arena arena;
    Tmw__RecordEvent *event = NULL;
    tm_arena_init(&arena, 1 << 20);
    int rc = tm_record_event_unpack(data, length, &arena, &event, e);
    if (rc == 0) assert_int_equal(event->note->value, ++*next);
    tm_arena_deinit(&arena);
    return rc;
}

static int read_all(const char *path, uint64_t *count)
{
    struct tm_record *record = NULL;
    *count = 0;
    int rc = tm_record_open(path, &record, NULL);
    if (rc == 0) rc = record->each(record, 0, SIZE_MAX, count_up, count, NULL);
    tm_record_close(record);
    return rc;
}

/* Every third event is synced. Says how many surely are on disk. */
static int write_all(const char *path, uint64_t *synced)
{
    struct tm_record *record = NULL;
    *synced = 0;
    int rc = tm_record_open(path, &record, NULL);
    for (uint64_t i = 1; rc == 0 && i <= EVENTS; i++) {
        rc = append(record, i, i % 3 == 0);
        if (rc == 0 && i % 3 == 0) *synced = i;
    }
    tm_record_close(record);
    return rc;
}

static void remove_record(const char *path)
{
    char beside[512];
    (void)unlink(path);
    static const char *const ends[] = {"-wal", "-shm", "-journal"};
    for (size_t i = 0; i < TM_COUNT(ends); i++) {
        (void)snprintf(beside, sizeof beside, "%s%s", path, ends[i]);
        (void)unlink(beside);
    }
}

static void test_record(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    char path[256];
    (void)snprintf(path, sizeof path, "%s", tm_tempdir_path(&dir, "job.record"));
    uint64_t synced = 0;
    uint64_t there = 0;
    assert_int_equal(write_all(path, &synced), 0); /* what SQLite keeps for good is there from now on */
    int failed = 1;
    for (long n = 1; failed; n += 1 + n / 12) {
        remove_record(path);
        long live = tm_alloc_live();
        tm_alloc_fail_at(n);
        int rc = write_all(path, &synced);
        failed = tm_alloc_failed();
        tm_alloc_fail_at(0);
        assert_row(failed || rc == 0, "%d without a failure", rc);
        assert_row(tm_alloc_live() == live, "allocation %ld fails: %ld are left", n, tm_alloc_live() - live);
        assert_row(read_all(path, &there) == 0, "allocation %ld fails: the record cannot be read", n);
        assert_row(there >= synced, "allocation %ld fails: %d of %d synced events are there", n, (int)there,
                   (int)synced);
    }
    assert_int_equal(there, EVENTS);
    failed = 1;
    for (long n = 1; failed; n += 1 + n / 12) {
        long live = tm_alloc_live();
        tm_alloc_fail_at(n);
        int rc = read_all(path, &there);
        failed = tm_alloc_failed();
        tm_alloc_fail_at(0);
        assert_row(failed || rc == 0, "%d without a failure", rc);
        assert_row(rc != 0 || there == EVENTS, "allocation %ld fails: %d events, and no error", n, (int)there);
        assert_row(tm_alloc_live() == live, "allocation %ld fails: %ld are left", n, tm_alloc_live() - live);
    }
    tm_tempdir_remove(&dir);
}

TM_TEST_MAIN(TM_TEST(test_record))
