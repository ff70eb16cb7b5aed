#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "store/record.h"
#include "wire/message.h"

#include <pthread.h>
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
    if (rc == 0) rc = record->append(record, text.data, text.length, sync, NULL, e);
    if (rc == 0 && sync) rc = record->flush(record, true, e);
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
    assert_row(record->each(record, 0, SIZE_MAX, count_up, &count, &e) == 0, "%s", e.text);
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
    assert_int_equal(record->last(record), 0);
    for (uint64_t i = 1; i <= 20; i++)
        assert_int_equal(append(record, i, i == 10, &e), 0);
    assert_int_equal(record->last(record), 20);
    assert_int_equal(tm_record_open_read(path, &reader, &e), -(int)TM_EBUSY);
    for (int by_another = 0; by_another < 2; by_another++) {
        for (size_t i = 0; i < TM_COUNT(rows); i++) {
            uint64_t next = rows[i].after == UINT64_MAX ? 0 : rows[i].after;
            assert_int_equal(record->each(record, rows[i].after, rows[i].max, count_up, &next, &e), 0);
            assert_row(next == rows[i].last, "row %zu: %llu", i, (unsigned long long)next);
        }
        tm_record_close(record);
        assert_int_equal(tm_record_open_read(path, &record, &e), 0);
        assert_int_equal(record->last(record), 20);
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
    if (append(record, 2, false, &e) != 0 || record->flush(record, true, &e) != -(int)TM_EFULL) return 3;
    if (strstr(e.text, "disk full") == NULL || strstr(e.text, path) == NULL) return 4;
    if (append(record, 99, true, &e) != -(int)TM_EFULL || append(record, 3, false, &e) != 0) return 5;
    uint64_t seen = 0;
    if (record->last(record) != 3 || record->each(record, 0, SIZE_MAX, count_up, &seen, &e) != 0) return 6;
    if (seen != 3 || setrlimit(RLIMIT_FSIZE, &whole) != 0) return 7;
    if (record->flush(record, true, &e) != 0 || append(record, 4, true, &e) != 0) return 8;
    if (setrlimit(RLIMIT_FSIZE, &none) != 0 || append(record, 5, false, &e) != 0) return 9;
    tm_record_close(record); /* what waits is lost */
    struct tm_record *again = NULL;
    if (tm_record_open(path, &again, &e) != 0) return 10; /* one that is there can be opened */
    if (again->last(again) != 4) return 11;
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

static int append_only(struct tm_record *record, uint64_t number, bool sync, uint64_t *out_number)
{
    struct tm_text text;
    tm_text_init(&text, 4096);
    make_event(number, &text);
    int rc = record->append(record, text.data, text.length, sync, out_number, NULL);
    tm_text_deinit(&text);
    return rc;
}

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t tries;
    bool shut; /* the writer is kept where it tells */
};

static void on_news(void *context)
{
    struct gate *gate = context;
    (void)pthread_mutex_lock(&gate->lock);
    gate->tries++;
    (void)pthread_cond_broadcast(&gate->changed);
    while (gate->shut)
        (void)pthread_cond_wait(&gate->changed, &gate->lock);
    (void)pthread_mutex_unlock(&gate->lock);
}

static void await_try(struct gate *gate, uint64_t tries)
{
    (void)pthread_mutex_lock(&gate->lock);
    while (gate->tries < tries)
        (void)pthread_cond_wait(&gate->changed, &gate->lock);
    (void)pthread_mutex_unlock(&gate->lock);
}

static void set_gate(struct gate *gate, bool shut)
{
    (void)pthread_mutex_lock(&gate->lock);
    gate->shut = shut;
    (void)pthread_cond_broadcast(&gate->changed);
    (void)pthread_mutex_unlock(&gate->lock);
}

/* Appending waits for no disk; what may still be taken back is shown to nobody. */
static void test_nobody_waits(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .shut = true};
    struct tm_record *record = NULL;
    struct tm_record_news news;
    uint64_t number = 0;
    uint64_t seen = 0;
    assert_int_equal(tm_record_open(tm_tempdir_path(&dir, "job.record"), &record, NULL), 0);
    record->tell(record, on_news, &gate);
    assert_int_equal(append_only(record, 1, true, &number), 0);
    assert_int_equal(number, 1);
    await_try(&gate, 1); /* the first is on disk, and the thread stands still */
    assert_int_equal(append_only(record, 2, false, &number), 0);
    assert_int_equal(record->last(record), 2);
    assert_int_equal(append_only(record, 3, true, &number), 0);
    assert_int_equal(append_only(record, 4, false, &number), 0);
    assert_int_equal(number, 4);
    assert_int_equal(record->look(record, &news, NULL), 0);
    assert_int_equal(news.durable, 1);
    assert_false(news.taken_back);
    assert_int_equal(record->last(record), 2); /* 3 may not come to be, nor what was built on it */
    assert_int_equal(record->each(record, 0, SIZE_MAX, count_up, &seen, NULL), 0);
    assert_int_equal(seen, 2);
    set_gate(&gate, false);
    assert_int_equal(record->flush(record, true, NULL), 0);
    assert_int_equal(record->look(record, &news, NULL), 0);
    assert_int_equal(news.durable, 4);
    assert_int_equal(record->last(record), 4);
    assert_int_equal(record->each(record, seen, SIZE_MAX, count_up, &seen, NULL), 0);
    assert_int_equal(seen, 4);
    tm_record_close(record);
    tm_tempdir_remove(&dir);
}

/* More than memory keeps, faster than the disk, read from anywhere. */
static void test_many(void **state)
{
    (void)state;
    enum { MANY = 150000 };
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    const char *path = tm_tempdir_path(&dir, "job.record");
    struct tm_record *record = NULL;
    assert_int_equal(tm_record_open(path, &record, NULL), 0);
    for (uint64_t i = 1; i <= MANY; i++)
        assert_int_equal(append_only(record, i, false, NULL), 0);
    assert_int_equal(record->last(record), MANY);
    for (uint64_t after = 0; after < MANY; after += MANY / 7) {
        uint64_t seen = after;
        assert_int_equal(record->each(record, after, SIZE_MAX, count_up, &seen, NULL), 0);
        assert_int_equal(seen, MANY);
        seen = after;
        assert_int_equal(record->each(record, after, 1000, count_up, &seen, NULL), 0);
        assert_true(seen == after + 1000 || seen == MANY);
    }
    tm_record_close(record);
    assert_int_equal(read_all(path), MANY);
    tm_tempdir_remove(&dir);
}

/* In a child with a disk that is full for a while: what was to last and could not is no part of the record, nor what
 * came after it, also what came before anybody knew; what came before waits. */
static int take_back_on_a_full_disk(const char *path)
{
    struct tm_record *record = NULL;
    struct tm_record_news news;
    struct tm_error e = {.text = ""};
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct rlimit whole = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit none = {1, RLIM_INFINITY};
    uint64_t number = 0;
    (void)signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &whole) != 0 || tm_record_open(path, &record, NULL) != 0) return 1;
    record->tell(record, on_news, &gate);
    if (append(record, 1, true, NULL) != 0 || setrlimit(RLIMIT_FSIZE, &none) != 0) return 2;
    await_try(&gate, 1);
    if (append_only(record, 2, false, NULL) != 0 || append_only(record, 97, true, NULL) != 0) return 3;
    await_try(&gate, 2);
    if (append_only(record, 98, false, NULL) != 0 || append_only(record, 99, true, NULL) != 0) return 4;
    if (record->last(record) != 2) return 5;
    if (record->look(record, &news, &e) != -(int)TM_EFULL || !news.taken_back || news.durable != 1) return 6;
    if (strstr(e.text, "disk full") == NULL || record->last(record) != 2) return 7;
    if (record->look(record, &news, NULL) != -(int)TM_EFULL || news.taken_back) return 8;
    if (append_only(record, 3, false, &number) != 0 || number != 3 || setrlimit(RLIMIT_FSIZE, &whole) != 0) return 9;
    if (append_only(record, 4, true, &number) != 0 || number != 4) return 10;
    await_try(&gate, 3);
    if (record->look(record, &news, NULL) != 0 || news.taken_back || news.durable != 4) return 11;
    tm_record_close(record);
    return 0;
}

static void test_taken_back(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    const char *path = tm_tempdir_path(&dir, "job.record");
    pid_t child = fork();
    if (child == 0) _exit(take_back_on_a_full_disk(path));
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
    assert_int_equal(record->each(record, 0, SIZE_MAX, count_up, &count, &e), -(int)TM_EINPUT);
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
             TM_TEST(test_damage), TM_TEST(test_nobody_waits), TM_TEST(test_many), TM_TEST(test_taken_back))
