/* The record as one SQLite file (write-ahead log). Format: table event (sequence, at_ms, kind, data, hash): data is a
 * RecordEvent of the schema, hash its XXH3, at_ms and kind are for people with sqlite3.
 *
 * Two locks: `lock` for the list of events, held for moments, and `file_lock` for the connection, held while something
 * is written or read. Nobody takes `lock` while it has `file_lock`. */
#include "store/record.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "wire/hash.h"
#include "wire/message.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    VERSION = 1,
    BUSY_MS = 1000,
    PATH_BYTES = 4096,
    WAITING_MAX = 1 << 16,
    WAITING_BYTES_MAX = 16 << 20,
    KEPT_BYTES_MAX = 1 << 20, /* of events that are on disk, for who reads the newest */
};

struct event {
    struct event *next;
    int64_t at_ms;
    const char *kind; /* static */
    bool sync;
    size_t length;
    uint8_t data[];
};

struct sqlite_record {
    struct tm_record record;
    char path[PATH_BYTES]; /* for messages */
    sqlite3 *file;         /* with file_lock, as the statement */
    sqlite3_stmt *insert;  /* NULL: for reading alone, and there is no thread */
    pthread_mutex_t file_lock;
    pthread_t thread;
    bool thread_runs;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t asked;
    pthread_cond_t tried;
    struct event *first; /* the oldest in memory: those kept, then those that wait */
    struct event *last;
    struct event *waiting; /* the first that is not on disk */
    uint64_t first_number;
    uint64_t written;     /* the number of the last event on disk */
    uint64_t last_number; /* of all */
    size_t kept_bytes;
    size_t waiting_bytes;
    uint64_t first_sync; /* of the synced ones that wait; 0: none */
    uint64_t wanted;     /* up to here it is to be written */
    uint64_t tries;
    bool stuck; /* what was to be synced could not be: nothing is written until the owner knows */
    bool ends;
    int rc; /* of the last try */
    struct tm_error error;
    void (*news)(void *context);
    void *context;
};

static struct sqlite_record *record_of(struct tm_record *record)
{
    assert(record != NULL && record->self != NULL);
    return record->self;
}

/* With the lock: what must hold whenever it is given back. */
static void check(const struct sqlite_record *r)
{
    assert(r->written <= r->last_number);
    assert((r->waiting == NULL) == (r->written == r->last_number));
    assert((r->first == NULL) == (r->last == NULL));
    assert(r->first == NULL || r->first_number <= r->written + 1);
    assert(r->first_sync == 0 || (r->first_sync > r->written && r->first_sync <= r->last_number));
    assert(!r->stuck || (r->first_sync != 0 && r->rc != 0));
    assert(r->wanted <= r->last_number);
}

static int failed(struct sqlite_record *record, const char *what, struct tm_error *e)
{
    int code = sqlite3_extended_errcode(record->file) & 0xff;
    const char *text = sqlite3_errmsg(record->file);
    if (code == SQLITE_NOMEM) return tm_error_nomem(e);
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return tm_error_set(e, TM_EBUSY, "%s: in use by another coordinator; stop that one first", what);
    if (code == SQLITE_FULL) return tm_error_set(e, TM_EFULL, "disk full: %s cannot be written", record->path);
    if (sqlite3_extended_errcode(record->file) == SQLITE_IOERR_WRITE) /* a limit or a quota is this, too */
        return tm_error_set(e, TM_EFULL, "disk full or broken: %s cannot be written", record->path);
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        return tm_error_set(e, TM_EINPUT, "%s: %s; move it away, and it will be rebuilt from the workers", what, text);
    return tm_error_set(e, TM_EIO, "%s: %s", what, text);
}

static int run(struct sqlite_record *record, const char *sql, const char *what, struct tm_error *e)
{
    return sqlite3_exec(record->file, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(record, what, e);
}

static int one_number(struct sqlite_record *record, const char *sql, int64_t *out)
{
    sqlite3_stmt *query = NULL;
    int rc = sqlite3_prepare_v2(record->file, sql, -1, &query, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(query) == SQLITE_ROW ? SQLITE_OK : SQLITE_ERROR;
    if (rc == SQLITE_OK) *out = sqlite3_column_int64(query, 0);
    (void)sqlite3_finalize(query);
    return rc;
}

static int check_version(struct sqlite_record *record, const char *path, bool *out_new, struct tm_error *e)
{
    int64_t version = 0;
    if (one_number(record, "PRAGMA user_version", &version) != SQLITE_OK) return failed(record, path, e);
    if (out_new != NULL) *out_new = version == 0;
    if (version == VERSION || (version == 0 && out_new != NULL)) return 0;
    return tm_error_set(e, TM_EINPUT, "%s: record of version %lld, but this program writes %d: use the same release",
                        path, (long long)version, VERSION);
}

static int find_last(struct sqlite_record *record, const char *path, struct tm_error *e)
{
    int64_t last = 0;
    if (one_number(record, "SELECT coalesce(max(sequence), 0) FROM event", &last) != SQLITE_OK)
        return failed(record, path, e);
    record->written = record->last_number = record->wanted = (uint64_t)last;
    return 0;
}

/* SQLite gives its other files the mode of this one, which is for the owner alone. */
static void make_private(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd >= 0) (void)close(fd); /* else it says what is wrong when it is opened */
}

/* FULL: a commit is on the disk when it returns. EXCLUSIVE: no second coordinator on the same record. One that is there
 * is not written to: the disk may be full. */
static int prepare(struct sqlite_record *record, const char *path, struct tm_error *e)
{
    bool is_new = false;
    int rc =
        run(record, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL", path, e);
    if (rc == 0) rc = check_version(record, path, &is_new, e);
    if (rc != 0) return rc;
    const char *make =
        "BEGIN IMMEDIATE;"
        "CREATE TABLE IF NOT EXISTS event (sequence INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, kind TEXT NOT NULL,"
        " data BLOB NOT NULL, hash INTEGER NOT NULL);"
        "PRAGMA user_version = 1; COMMIT";
    if (is_new) rc = run(record, make, path, e);
    if (rc == 0 && !is_new) rc = run(record, "BEGIN IMMEDIATE; ROLLBACK", path, e); /* nobody else has it */
    if (rc == 0) rc = find_last(record, path, e);
    if (rc != 0) return rc;
    const char *sql = "INSERT INTO event (at_ms, kind, data, hash) VALUES (?, ?, ?, ?)";
    if (sqlite3_prepare_v2(record->file, sql, -1, &record->insert, NULL) != SQLITE_OK) return failed(record, path, e);
    return 0;
}

/* ---- the list ---- */

static void free_events(struct event *event)
{
    while (event != NULL) {
        struct event *next = event->next;
        tm_free(event);
        event = next;
    }
}

/* With the lock: those on disk beyond what is kept for readers. */
static void trim(struct sqlite_record *r)
{
    while (r->first != NULL && r->first != r->waiting && r->kept_bytes > KEPT_BYTES_MAX) {
        struct event *event = r->first;
        r->kept_bytes -= event->length;
        r->first = event->next;
        r->first_number++;
        if (r->first == NULL) r->last = NULL;
        tm_free(event);
    }
}

/* With the lock: the first synced event that waits, and all after it, never happened. */
static void take_back(struct sqlite_record *r)
{
    assert(r->stuck && r->first_sync > r->written);
    struct event *before = NULL;
    struct event *event = r->first;
    for (uint64_t number = r->first_number; number < r->first_sync; number++) {
        before = event;
        event = event->next;
    }
    assert(event != NULL && event->sync);
    for (const struct event *gone = event; gone != NULL; gone = gone->next)
        r->waiting_bytes -= gone->length;
    if (r->waiting == event) r->waiting = NULL;
    if (before != NULL) before->next = NULL;
    if (before == NULL) r->first = NULL;
    r->last = before;
    r->last_number = r->first_sync - 1;
    r->first_sync = 0;
    r->wanted = r->written;
    r->stuck = false;
    free_events(event);
    check(r);
}

/* ---- writing ---- */

static const char *kind_of(const Tmw__RecordEvent *event)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(&tmw__record_event__descriptor, (unsigned)event->body_case);
    return field == NULL ? "other" : field->name;
}

static int insert(struct sqlite_record *r, const struct event *event, struct tm_error *e)
{
    sqlite3_stmt *query = r->insert;
    bool done = sqlite3_bind_int64(query, 1, event->at_ms) == SQLITE_OK &&
                sqlite3_bind_text(query, 2, event->kind, -1, SQLITE_STATIC) == SQLITE_OK &&
                sqlite3_bind_blob(query, 3, event->data, (int)event->length, SQLITE_STATIC) == SQLITE_OK &&
                sqlite3_bind_int64(query, 4, (sqlite3_int64)tm_hash_of(event->data, event->length).low) == SQLITE_OK &&
                sqlite3_step(query) == SQLITE_DONE;
    int rc = done ? 0 : failed(r, "writing the record", e);
    (void)sqlite3_reset(query);
    (void)sqlite3_clear_bindings(query);
    return rc;
}

/* So many events, all or none, and synced. */
static int write_events(struct sqlite_record *r, const struct event *event, uint64_t count, struct tm_error *e)
{
    (void)pthread_mutex_lock(&r->file_lock);
    int rc = run(r, "BEGIN IMMEDIATE", "writing the record", e);
    for (uint64_t i = 0; rc == 0 && i < count; i++) {
        rc = insert(r, event, e);
        if (i + 1 < count) event = event->next; /* what is behind the last may be about to change */
    }
    if (rc == 0) rc = run(r, "COMMIT", "writing the record", e);
    if (rc != 0 && sqlite3_get_autocommit(r->file) == 0) (void)sqlite3_exec(r->file, "ROLLBACK", NULL, NULL, NULL);
    (void)pthread_mutex_unlock(&r->file_lock);
    return rc;
}

/* With the lock: so many more are on disk. */
static void have_written(struct sqlite_record *r, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        r->kept_bytes += r->waiting->length;
        r->waiting_bytes -= r->waiting->length;
        r->waiting = r->waiting->next;
    }
    r->written += count;
    tm_debug(TM_DEBUG_STORE, "record: %" PRIu64 " events written, %" PRIu64 " in all", count, r->written);
    r->first_sync = 0;
    uint64_t number = r->written + 1;
    for (const struct event *event = r->waiting; event != NULL && r->first_sync == 0; event = event->next, number++)
        if (event->sync) r->first_sync = number;
    trim(r);
}

/* With the lock, which is given back meanwhile: all that waits. */
static void write_all(struct sqlite_record *r)
{
    const struct event *first = r->waiting;
    uint64_t count = r->last_number - r->written;
    struct tm_error e = {.text = ""};
    assert(first != NULL && count > 0);
    (void)pthread_mutex_unlock(&r->lock);
    int rc = write_events(r, first, count, &e);
    (void)pthread_mutex_lock(&r->lock);
    r->rc = rc;
    r->error = e;
    if (rc == 0) have_written(r, count);
    if (rc != 0) { /* all of them wait on, unless one was to last by now */
        r->wanted = r->written;
        r->stuck = r->first_sync != 0;
    }
    r->tries++;
    check(r);
    (void)pthread_cond_broadcast(&r->tried);
    void (*news)(void *context) = r->news;
    void *context = r->context;
    (void)pthread_mutex_unlock(&r->lock);
    if (news != NULL) news(context);
    (void)pthread_mutex_lock(&r->lock);
}

static void *serve(void *argument)
{
    struct sqlite_record *r = argument;
    (void)pthread_mutex_lock(&r->lock);
    for (;;) {
        if (!r->stuck && r->wanted > r->written)
            write_all(r);
        else if (r->ends)
            break;
        else
            (void)pthread_cond_wait(&r->asked, &r->lock);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- the owner ---- */

/* With the lock: all that there is is to be written. */
static void want_all(struct sqlite_record *r)
{
    r->wanted = r->last_number;
    (void)pthread_cond_signal(&r->asked);
}

/* What is kept of an event; the caller's. */
static int make_event(const void *data, size_t length, bool sync, struct event **out, struct tm_error *e)
{
    struct tm_arena arena;
    Tmw__RecordEvent *body = NULL;
    tm_arena_init(&arena, 64 << 20);
    int rc = tm_record_event_unpack(data, length, &arena, &body, e);
    struct event *event = rc == 0 ? tm_alloc(sizeof *event + length) : NULL;
    if (rc == 0 && event == NULL) rc = tm_error_nomem(e);
    if (rc == 0) {
        *event = (struct event){.at_ms = body->at_ms, .kind = kind_of(body), .sync = sync, .length = length};
        memcpy(event->data, data, length);
        *out = event;
    }
    tm_arena_deinit(&arena);
    return rc;
}

static bool has_room(const struct sqlite_record *r, size_t length)
{
    return r->last_number - r->written < WAITING_MAX && r->waiting_bytes + length <= WAITING_BYTES_MAX;
}

/* With the lock: waits for room, unless a disk that is full is why there is none. */
static bool find_room(struct sqlite_record *r, size_t length)
{
    while (!has_room(r, length)) {
        uint64_t tries = r->tries;
        if (r->stuck) return false;
        want_all(r);
        while (tries == r->tries)
            (void)pthread_cond_wait(&r->tried, &r->lock);
        if (r->rc != 0) return false;
    }
    return true;
}

static void push(struct sqlite_record *r, struct event *event)
{
    if (r->last != NULL) r->last->next = event;
    if (r->first == NULL) {
        r->first = event;
        r->first_number = r->last_number + 1;
    }
    r->last = event;
    if (r->waiting == NULL) r->waiting = event;
    r->waiting_bytes += event->length;
    r->last_number++;
    if (event->sync && r->first_sync == 0) r->first_sync = r->last_number;
}

static int sqlite_append(struct tm_record *record, const void *data, size_t length, bool sync, uint64_t *out_number,
                         struct tm_error *e)
{
    struct sqlite_record *r = record_of(record);
    struct event *event = NULL;
    uint64_t number = 0;
    if (r->insert == NULL) return tm_error_set(e, TM_EIO, "the record was opened for reading");
    int rc = make_event(data, length, sync, &event, e);
    if (rc != 0) return rc;
    (void)pthread_mutex_lock(&r->lock);
    bool room = find_room(r, length);
    if (room) {
        push(r, event);
        number = r->last_number;
        if (sync || r->last_number - r->written > WAITING_MAX / 2 || r->waiting_bytes > WAITING_BYTES_MAX / 2)
            want_all(r);
    } else if (sync) {
        rc = r->rc;
        if (e != NULL) *e = r->error;
    } /* else the disk has been full for long: this one is left out */
    check(r);
    (void)pthread_mutex_unlock(&r->lock);
    if (!room) tm_free(event);
    if (rc == 0 && out_number != NULL) *out_number = number;
    return rc;
}

static int sqlite_flush(struct tm_record *record, bool wait, struct tm_error *e)
{
    struct sqlite_record *r = record_of(record);
    int rc = 0;
    if (r->insert == NULL) return 0;
    (void)pthread_mutex_lock(&r->lock);
    if (!r->stuck && r->last_number > r->written) want_all(r);
    while (wait && rc == 0 && r->written < r->last_number) {
        uint64_t tries = r->tries;
        while (!r->stuck && tries == r->tries)
            (void)pthread_cond_wait(&r->tried, &r->lock);
        rc = r->rc;
        if (rc != 0 && e != NULL) *e = r->error;
        if (r->stuck) take_back(r);
        if (rc == 0 && r->written < r->last_number) want_all(r);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return rc;
}

static int sqlite_look(struct tm_record *record, struct tm_record_news *out, struct tm_error *e)
{
    struct sqlite_record *r = record_of(record);
    (void)pthread_mutex_lock(&r->lock);
    *out = (struct tm_record_news){.durable = r->written, .taken_back = r->stuck};
    int rc = r->rc;
    if (rc != 0 && e != NULL) *e = r->error;
    if (r->stuck) take_back(r);
    (void)pthread_mutex_unlock(&r->lock);
    return rc;
}

static void sqlite_tell(struct tm_record *record, void (*news)(void *context), void *context)
{
    struct sqlite_record *r = record_of(record);
    (void)pthread_mutex_lock(&r->lock);
    r->news = news;
    r->context = context;
    (void)pthread_mutex_unlock(&r->lock);
}

/* With the lock: the last that stays whatever happens. */
static uint64_t last_sure(const struct sqlite_record *r)
{
    return r->first_sync != 0 ? r->first_sync - 1 : r->last_number;
}

static uint64_t sqlite_last(struct tm_record *record)
{
    struct sqlite_record *r = record_of(record);
    (void)pthread_mutex_lock(&r->lock);
    uint64_t last = last_sure(r);
    (void)pthread_mutex_unlock(&r->lock);
    return last;
}

/* ---- reading ---- */

/* From one number to another, which are on disk. */
static int each_written(struct sqlite_record *r, uint64_t from, uint64_t to, tm_record_each_f each, void *context,
                        struct tm_error *e)
{
    sqlite3_stmt *query = NULL;
    const char *sql = "SELECT sequence, data, hash FROM event WHERE sequence BETWEEN ? AND ? ORDER BY sequence";
    if (sqlite3_prepare_v2(r->file, sql, -1, &query, NULL) != SQLITE_OK ||
        sqlite3_bind_int64(query, 1, (int64_t)from) != SQLITE_OK ||
        sqlite3_bind_int64(query, 2, (int64_t)to) != SQLITE_OK) {
        (void)sqlite3_finalize(query);
        return failed(r, "reading the record", e);
    }
    int rc = 0;
    int step = SQLITE_DONE;
    while (rc == 0 && (step = sqlite3_step(query)) == SQLITE_ROW) {
        int64_t sequence = sqlite3_column_int64(query, 0);
        const void *data = sqlite3_column_blob(query, 1);
        size_t length = (size_t)sqlite3_column_bytes(query, 1);
        uint64_t hash = (uint64_t)sqlite3_column_int64(query, 2);
        if (data == NULL || hash != tm_hash_of(data, length).low)
            rc = tm_error_set(e, TM_EINPUT, "event %lld of the record is damaged", (long long)sequence);
        else
            rc = each(context, (uint64_t)sequence, data, length, e);
    }
    if (rc == 0 && step != SQLITE_DONE) rc = failed(r, "reading the record", e);
    (void)sqlite3_finalize(query);
    return rc;
}

/* With the lock. */
static int each_in_memory(const struct sqlite_record *r, uint64_t from, uint64_t to, tm_record_each_f each,
                          void *context, struct tm_error *e)
{
    int rc = 0;
    uint64_t number = r->first_number;
    assert(r->first != NULL && from >= number && to <= r->last_number);
    for (const struct event *event = r->first; rc == 0 && number <= to; event = event->next, number++)
        if (number >= from) rc = each(context, number, event->data, event->length, e);
    return rc;
}

static int sqlite_each(struct tm_record *record, uint64_t after, size_t max, tm_record_each_f each, void *context,
                       struct tm_error *e)
{
    struct sqlite_record *r = record_of(record);
    int rc = 0;
    while (rc == 0 && max > 0) {
        (void)pthread_mutex_lock(&r->lock);
        uint64_t to = last_sure(r);
        bool in_memory = r->first != NULL && after + 1 >= r->first_number;
        if (!in_memory && to > r->written) to = r->written;
        bool over = after >= to;
        if (!over && to - after > max) to = after + max;
        if (!over && in_memory) rc = each_in_memory(r, after + 1, to, each, context, e);
        (void)pthread_mutex_unlock(&r->lock);
        if (over) break;
        if (!in_memory) {
            (void)pthread_mutex_lock(&r->file_lock);
            rc = each_written(r, after + 1, to, each, context, e);
            (void)pthread_mutex_unlock(&r->file_lock);
        }
        max -= (size_t)(to - after);
        after = to;
    }
    return rc;
}

/* ---- opening ---- */

static void sqlite_close(struct tm_record *record)
{
    struct sqlite_record *r = record_of(record);
    (void)pthread_mutex_lock(&r->lock);
    if (r->stuck) take_back(r);
    r->news = NULL;
    r->ends = true;
    want_all(r);
    (void)pthread_mutex_unlock(&r->lock);
    if (r->thread_runs) (void)pthread_join(r->thread, NULL);
    free_events(r->first);
    (void)sqlite3_finalize(r->insert);
    (void)sqlite3_close(r->file);
    (void)pthread_cond_destroy(&r->tried);
    (void)pthread_cond_destroy(&r->asked);
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_mutex_destroy(&r->file_lock);
    tm_free(r);
}

static int open_file(const char *path, int flags, struct sqlite_record **out, struct tm_error *e)
{
    struct sqlite_record *r = tm_calloc(1, sizeof *r);
    if (r == NULL) return tm_error_nomem(e);
    r->record = (struct tm_record){.self = r,
                                   .append = sqlite_append,
                                   .flush = sqlite_flush,
                                   .look = sqlite_look,
                                   .tell = sqlite_tell,
                                   .last = sqlite_last,
                                   .each = sqlite_each,
                                   .close = sqlite_close};
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_mutex_init(&r->file_lock, NULL);
    (void)pthread_cond_init(&r->asked, NULL);
    (void)pthread_cond_init(&r->tried, NULL);
    if ((flags & SQLITE_OPEN_CREATE) != 0) make_private(path);
    (void)snprintf(r->path, sizeof r->path, "%s", path);
    if (sqlite3_open_v2(path, &r->file, flags, NULL) != SQLITE_OK) {
        int rc = r->file == NULL ? tm_error_nomem(e) : failed(r, path, e);
        sqlite_close(&r->record);
        return rc;
    }
    (void)sqlite3_extended_result_codes(r->file, 1);
    (void)sqlite3_busy_timeout(r->file, BUSY_MS); /* one who only reads is soon done */
    *out = r;
    return 0;
}

static void discard(struct sqlite_record *r)
{
    if (r != NULL) sqlite_close(&r->record);
}

int tm_record_open(const char *path, struct tm_record **out, struct tm_error *e)
{
    struct sqlite_record *r = NULL;
    int rc = open_file(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &r, e);
    assert((rc == 0) == (r != NULL));
    if (rc == 0) rc = prepare(r, path, e);
    if (rc == 0 && pthread_create(&r->thread, NULL, serve, r) != 0) rc = tm_error_nomem(e);
    if (rc != 0) {
        discard(r);
        return tm_error_wrap(e, rc, "opening the record");
    }
    r->thread_runs = true;
    *out = &r->record;
    return 0;
}

/* What is there, for one who only reads. */
static int look(struct sqlite_record *r, const char *path, struct tm_error *e)
{
    int rc = check_version(r, path, NULL, e);
    return rc != 0 ? rc : find_last(r, path, e);
}

int tm_record_open_read(const char *path, struct tm_record **out, struct tm_error *e)
{
    struct sqlite_record *r = NULL;
    int rc = open_file(path, SQLITE_OPEN_READONLY, &r, e);
    if (rc == -(int)TM_EIO && access(path, F_OK) != 0)
        return tm_error_set(e, TM_ENOTFOUND, "%s: there is no record", path);
    if (r != NULL) rc = look(r, path, e);
    if (rc == -(int)TM_EIO || rc == -(int)TM_EFULL) { /* readers share a file, and there may be no room to make it */
        discard(r);
        r = NULL;
        rc = open_file(path, SQLITE_OPEN_READWRITE, &r, e);
        if (r != NULL) rc = run(r, "PRAGMA locking_mode = EXCLUSIVE", path, e);
        if (r != NULL && rc == 0) rc = look(r, path, e);
    }
    if (rc != 0) {
        discard(r);
        return tm_error_wrap(e, rc, "opening the record");
    }
    *out = &r->record;
    return 0;
}
