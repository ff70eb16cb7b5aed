#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "store/record.h"
#include "wire/message.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void make_event(uint64_t number, struct tm_text *out)
{
    Tmw__RecordEvent event = TMW__RECORD_EVENT__INIT;
    Tmw__NoteEvent note = TMW__NOTE_EVENT__INIT;
    char what[] = "a note";
    note.what = what;
    note.value = number;
    event.at_ms = 1000 + (int64_t)number;
    event.body_case = TMW__RECORD_EVENT__BODY_NOTE;
    event.note = &note;
    tm_record_event_pack(&event, out);
}

static int append(struct tm_record *record, uint64_t number, bool sync, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, 4096);
    make_event(number, &text);
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = tm_record_append(record, text.data, text.length, sync, e);
    tm_text_deinit(&text);
    return rc;
}

static int count_up(void *context, uint64_t sequence, const void *data, size_t length, struct tm_error *e)
{
    uint64_t *next = context;
    struct tm_arena arena;
    Tmw__RecordEvent *event = NULL;
    tm_arena_init(&arena, 1 << 20);
    int rc = tm_record_event_unpack(data, length, &arena, &event, e);
    if (rc == 0) assert_int_equal(event->note->value, ++*next);
    assert_int_equal(sequence, *next);
    tm_arena_deinit(&arena);
    return rc;
}

static uint64_t read_all(const char *path)
{
    struct tm_record *record = NULL;
    struct tm_error e = {0};
    uint64_t count = 0;
    assert_row(tm_record_open(path, &record, &e) == 0, "%s", e.text);
    assert_row(tm_record_each(record, 0, SIZE_MAX, count_up, &count, &e) == 0, "%s", e.text);
    tm_record_close(record);
    return count;
}

static void test_comes_back(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    const char *path = tm_tempdir_path(&dir, "job.record");
    struct tm_record *record = NULL;
    struct tm_error e = {0};
    assert_row(tm_record_open(path, &record, &e) == 0, "%s", e.text);
    for (uint64_t i = 1; i <= 100; i++)
        assert_int_equal(append(record, i, i % 10 == 0, &e), 0);
    struct tm_record *second = NULL;
    assert_int_equal(tm_record_open(path, &second, &e), -(int)TM_EBUSY);
    assert_error_has(e, "another coordinator");
    tm_record_close(record);
    assert_int_equal(read_all(path), 100);
    tm_tempdir_remove(&dir);
}

/* A process that is killed keeps what it synced, and loses only the tail. */
static void test_killed(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    const char *path = tm_tempdir_path(&dir, "job.record");
    pid_t child = fork();
    if (child == 0) {
        struct tm_record *record = NULL;
        if (tm_record_open(path, &record, NULL) != 0) _exit(1);
        for (uint64_t i = 1; i <= 57; i++)
            if (append(record, i, i == 50, NULL) != 0) _exit(1);
        _exit(7); /* without a word to SQLite */
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 7);
    uint64_t kept = read_all(path);
    assert_true(kept >= 50 && kept <= 57);
    tm_tempdir_remove(&dir);
}

/* Reading from a number on, while it is written and by someone else afterwards. */
static void test_reading_a_part(void **state)
{
    (void)state;
    static const struct {
        uint64_t after;
        size_t max;
        uint64_t last;
    } rows[] = {{0, SIZE_MAX, 20}, {0, 7, 7}, {15, SIZE_MAX, 20}, {15, 2, 17}, {20, 5, 20}, {UINT64_MAX, 5, 0}};
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    const char *path = tm_tempdir_path(&dir, "job.record");
    struct tm_record *record = NULL;
    struct tm_record *reader = NULL;
    struct tm_error e = {0};
    assert_int_equal(tm_record_open_read(path, &reader, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(tm_record_open(path, &record, &e), 0);
    assert_int_equal(tm_record_last(record), 0);
    for (uint64_t i = 1; i <= 20; i++)
        assert_int_equal(append(record, i, i == 10, &e), 0);
    assert_int_equal(tm_record_last(record), 20);
    assert_int_equal(tm_record_open_read(path, &reader, &e), -(int)TM_EBUSY);
    for (int by_another = 0; by_another < 2; by_another++) {
        for (size_t i = 0; i < TM_COUNT(rows); i++) {
            uint64_t next = rows[i].after == UINT64_MAX ? 0 : rows[i].after;
            assert_int_equal(tm_record_each(record, rows[i].after, rows[i].max, count_up, &next, &e), 0);
            assert_row(next == rows[i].last, "row %zu: %llu", i, (unsigned long long)next);
        }
        tm_record_close(record);
        assert_int_equal(tm_record_open_read(path, &record, &e), 0);
        assert_int_equal(tm_record_last(record), 20);
    }
    assert_true(append(record, 21, true, &e) < 0);
    tm_record_close(record);
    tm_tempdir_remove(&dir);
}

/* Written by a child, whose files may not grow for a while, as if the disk were full. */
static int write_through_a_full_disk(const char *path)
{
    struct tm_record *record = NULL;
    struct tm_error e = {0};
    struct rlimit whole = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit none = {1, RLIM_INFINITY};
    (void)signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &whole) != 0 || tm_record_open(path, &record, &e) != 0) return 1;
    if (append(record, 1, true, &e) != 0 || setrlimit(RLIMIT_FSIZE, &none) != 0) return 2;
    if (append(record, 2, false, &e) != 0 || tm_record_flush(record, &e) != -(int)TM_EFULL) return 3;
    if (strstr(e.text, "disk full") == NULL || strstr(e.text, path) == NULL) return 4;
    if (append(record, 99, true, &e) != -(int)TM_EFULL || append(record, 3, false, &e) != 0) return 5;
    uint64_t seen = 0;
    if (tm_record_last(record) != 3 || tm_record_each(record, 0, SIZE_MAX, count_up, &seen, &e) != 0) return 6;
    if (seen != 3 || setrlimit(RLIMIT_FSIZE, &whole) != 0) return 7;
    if (tm_record_flush(record, &e) != 0 || append(record, 4, true, &e) != 0) return 8;
    if (setrlimit(RLIMIT_FSIZE, &none) != 0 || append(record, 5, false, &e) != 0) return 9;
    tm_record_close(record); /* what waits is lost */
    struct tm_record *again = NULL;
    if (tm_record_open(path, &again, &e) != 0) return 10; /* one that is there can be opened */
    if (tm_record_last(again) != 4) return 11;
    return 0;
}

static void test_full_disk(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    const char *path = tm_tempdir_path(&dir, "job.record");
    pid_t child = fork();
    if (child == 0) _exit(write_through_a_full_disk(path));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(read_all(path), 4);
    tm_tempdir_remove(&dir);
}

static void test_damage(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    const char *path = tm_tempdir_path(&dir, "job.record");
    struct tm_record *record = NULL;
    struct tm_error e = {0};
    assert_int_equal(tm_record_open(path, &record, &e), 0);
    for (uint64_t i = 1; i <= 5; i++)
        assert_int_equal(append(record, i, true, &e), 0);
    tm_record_close(record);
    sqlite3 *file = NULL;
    assert_int_equal(sqlite3_open(path, &file), SQLITE_OK);
    assert_int_equal(sqlite3_exec(file, "UPDATE event SET data = x'0801' WHERE sequence = 4", NULL, NULL, NULL), 0);
    (void)sqlite3_close(file);
    uint64_t count = 0;
    assert_int_equal(tm_record_open(path, &record, &e), 0);
    assert_int_equal(tm_record_each(record, 0, SIZE_MAX, count_up, &count, &e), -(int)TM_EINPUT);
    assert_error_has(e, "event 4");
    assert_int_equal(count, 3); /* all before it have been given */
    tm_record_close(record);

    path = tm_tempdir_path(&dir, "not-a-record");
    FILE *other = fopen(path, "w");
    assert_non_null(other);
    for (int i = 0; i < 500; i++)
        (void)fputs("this is no database at all\n", other);
    (void)fclose(other);
    assert_int_equal(tm_record_open(path, &record, &e), -(int)TM_EINPUT);
    assert_error_has(e, "move it away");
    path = tm_tempdir_path(&dir, "no/such/folder");
    assert_int_equal(tm_record_open(path, &record, &e), -(int)TM_EIO);
    tm_tempdir_remove(&dir);
}

TM_TEST_MAIN(TM_TEST(test_comes_back), TM_TEST(test_killed), TM_TEST(test_reading_a_part), TM_TEST(test_full_disk),
             TM_TEST(test_damage))
