#include "store/record.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "wire/hash.h"
#include "wire/message.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 1, BUSY_MS = 1000, PATH_BYTES = 4096, WAITING_MAX = 1 << 16, WAITING_BYTES_MAX = 16 << 20 };

struct tm_record {
    char path[PATH_BYTES]; /* for messages */
    sqlite3 *file;
    sqlite3_stmt *insert;
    uint64_t written;    /* the last event that is put down */
    struct tm_text data; /* of those that wait, one after the other, ... */
    size_t *ends;        /* ... and where each ends in it */
    size_t waiting;
    size_t ends_capacity;
};

static int failed(struct tm_record *record, const char *what, struct tm_error *e)
{
    int code = sqlite3_extended_errcode(record->file) & 0xff;
    const char *text = sqlite3_errmsg(record->file);
    if (code == SQLITE_NOMEM) return tm_error_nomem(e);
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return tm_error_set(e, TM_EBUSY, "%s: another coordinator has it open; stop that one first", what);
    if (code == SQLITE_FULL) return tm_error_set(e, TM_EFULL, "disk full: %s cannot be written", record->path);
    if (sqlite3_extended_errcode(record->file) == SQLITE_IOERR_WRITE) /* a limit or a quota is this, too */
        return tm_error_set(e, TM_EFULL, "disk full or broken: %s cannot be written", record->path);
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        return tm_error_set(e, TM_EINPUT, "%s: %s; move it away, and it is rebuilt from the workers", what, text);
    return tm_error_set(e, TM_EIO, "%s: %s", what, text);
}

static int run(struct tm_record *record, const char *sql, const char *what, struct tm_error *e)
{
    return sqlite3_exec(record->file, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(record, what, e);
}

static int one_number(struct tm_record *record, const char *sql, int64_t *out)
{
    sqlite3_stmt *query = NULL;
    int rc = sqlite3_prepare_v2(record->file, sql, -1, &query, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(query) == SQLITE_ROW ? SQLITE_OK : SQLITE_ERROR;
    if (rc == SQLITE_OK) *out = sqlite3_column_int64(query, 0);
    (void)sqlite3_finalize(query);
    return rc;
}

static int check_version(struct tm_record *record, const char *path, bool *out_new, struct tm_error *e)
{
    int64_t version = 0;
    if (one_number(record, "PRAGMA user_version", &version) != SQLITE_OK) return failed(record, path, e);
    if (out_new != NULL) *out_new = version == 0;
    if (version == VERSION || (version == 0 && out_new != NULL)) return 0;
    return tm_error_set(e, TM_EINPUT, "%s: record of version %lld, this program writes %d: use the same release", path,
                        (long long)version, VERSION);
}

static int find_last(struct tm_record *record, const char *path, struct tm_error *e)
{
    int64_t last = 0;
    if (one_number(record, "SELECT coalesce(max(sequence), 0) FROM event", &last) != SQLITE_OK)
        return failed(record, path, e);
    record->written = (uint64_t)last;
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
static int prepare(struct tm_record *record, const char *path, struct tm_error *e)
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

static int open_file(const char *path, int flags, struct tm_record **out, struct tm_error *e)
{
    struct tm_record *record = tm_calloc(1, sizeof *record);
    if (record == NULL) return tm_error_nomem(e);
    if ((flags & SQLITE_OPEN_CREATE) != 0) make_private(path);
    (void)snprintf(record->path, sizeof record->path, "%s", path);
    tm_text_init(&record->data, WAITING_BYTES_MAX);
    if (sqlite3_open_v2(path, &record->file, flags, NULL) != SQLITE_OK) {
        int rc = record->file == NULL ? tm_error_nomem(e) : failed(record, path, e);
        tm_record_close(record);
        return rc;
    }
    (void)sqlite3_extended_result_codes(record->file, 1);
    (void)sqlite3_busy_timeout(record->file, BUSY_MS); /* one who only reads is soon done */
    *out = record;
    return 0;
}

int tm_record_open(const char *path, struct tm_record **out, struct tm_error *e)
{
    struct tm_record *record = NULL;
    int rc = open_file(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &record, e);
    if (record != NULL) rc = prepare(record, path, e);
    if (rc != 0) {
        tm_record_close(record);
        return tm_error_wrap(e, rc, "opening the record");
    }
    *out = record;
    return 0;
}

/* What is there, for one who only reads. */
static int look(struct tm_record *record, const char *path, struct tm_error *e)
{
    int rc = check_version(record, path, NULL, e);
    return rc != 0 ? rc : find_last(record, path, e);
}

int tm_record_open_read(const char *path, struct tm_record **out, struct tm_error *e)
{
    struct tm_record *record = NULL;
    int rc = open_file(path, SQLITE_OPEN_READONLY, &record, e);
    if (rc == -(int)TM_EIO && access(path, F_OK) != 0)
        return tm_error_set(e, TM_ENOTFOUND, "%s: there is no record", path);
    if (record != NULL) rc = look(record, path, e);
    if (rc == -(int)TM_EIO || rc == -(int)TM_EFULL) { /* readers share a file, and there may be no room to make it */
        tm_record_close(record);
        record = NULL;
        rc = open_file(path, SQLITE_OPEN_READWRITE, &record, e);
        if (record != NULL) rc = run(record, "PRAGMA locking_mode = EXCLUSIVE", path, e);
        if (record != NULL && rc == 0) rc = look(record, path, e);
    }
    if (rc != 0) {
        tm_record_close(record);
        return tm_error_wrap(e, rc, "opening the record");
    }
    *out = record;
    return 0;
}

uint64_t tm_record_last(const struct tm_record *record)
{
    return record->written + record->waiting;
}

void tm_record_close(struct tm_record *record)
{
    if (record == NULL) return;
    if (record->insert != NULL) (void)tm_record_flush(record, NULL);
    (void)sqlite3_finalize(record->insert);
    (void)sqlite3_close(record->file);
    tm_text_deinit(&record->data);
    tm_free(record->ends);
    tm_free(record);
}

/* ---- writing ---- */

static const char *kind_of(const Tmw__RecordEvent *event)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(&tmw__record_event__descriptor, (unsigned)event->body_case);
    return field == NULL ? "other" : field->name;
}

static const uint8_t *waiting_event(const struct tm_record *record, size_t i, size_t *out_length)
{
    size_t begin = i == 0 ? 0 : record->ends[i - 1];
    *out_length = record->ends[i] - begin;
    return (const uint8_t *)record->data.data + begin;
}

static int insert(struct tm_record *record, const void *data, size_t length, struct tm_error *e)
{
    struct tm_arena arena;
    Tmw__RecordEvent *event = NULL;
    tm_arena_init(&arena, 64 << 20);
    int rc = tm_record_event_unpack(data, length, &arena, &event, e);
    if (rc == 0) {
        sqlite3_stmt *query = record->insert;
        bool bound = sqlite3_bind_int64(query, 1, event->at_ms) == SQLITE_OK &&
                     sqlite3_bind_text(query, 2, kind_of(event), -1, SQLITE_STATIC) == SQLITE_OK &&
                     sqlite3_bind_blob(query, 3, data, (int)length, SQLITE_STATIC) == SQLITE_OK &&
                     sqlite3_bind_int64(query, 4, (sqlite3_int64)tm_hash_of(data, length).low) == SQLITE_OK;
        if (!bound || sqlite3_step(query) != SQLITE_DONE) rc = failed(record, "writing the record", e);
        (void)sqlite3_reset(query);
        (void)sqlite3_clear_bindings(query);
    }
    tm_arena_deinit(&arena);
    return rc;
}

int tm_record_flush(struct tm_record *record, struct tm_error *e)
{
    if (record->waiting == 0) return 0;
    int rc = run(record, "BEGIN IMMEDIATE", "writing the record", e);
    for (size_t i = 0; rc == 0 && i < record->waiting; i++) {
        size_t length = 0;
        const uint8_t *data = waiting_event(record, i, &length);
        rc = insert(record, data, length, e);
    }
    if (rc == 0) rc = run(record, "COMMIT", "writing the record", e);
    if (rc != 0) { /* all of them wait on */
        if (sqlite3_get_autocommit(record->file) == 0) (void)sqlite3_exec(record->file, "ROLLBACK", NULL, NULL, NULL);
        return rc;
    }
    record->written += record->waiting;
    tm_debug(TM_DEBUG_STORE, "record: %zu events written, %" PRIu64 " in all", (size_t)record->waiting,
             (uint64_t)record->written);
    record->waiting = 0;
    tm_text_clear(&record->data);
    return 0;
}

/* The last one that waits is forgotten. */
static void take_back(struct tm_record *record)
{
    size_t begin = --record->waiting == 0 ? 0 : record->ends[record->waiting - 1];
    record->data.length = begin;
}

static int check_event(const void *data, size_t length, struct tm_error *e)
{
    struct tm_arena arena;
    Tmw__RecordEvent *event = NULL;
    tm_arena_init(&arena, 64 << 20);
    int rc = tm_record_event_unpack(data, length, &arena, &event, e);
    tm_arena_deinit(&arena);
    return rc;
}

int tm_record_append(struct tm_record *record, const void *event, size_t length, bool sync, struct tm_error *e)
{
    if (record->insert == NULL) return tm_error_set(e, TM_EIO, "the record was opened for reading");
    int rc = check_event(event, length, e);
    if (rc != 0) return rc;
    bool room = record->waiting < WAITING_MAX && record->data.length + length <= WAITING_BYTES_MAX;
    if (!room) rc = tm_record_flush(record, e);
    if (rc != 0 && !sync) return 0; /* the disk has been full for long: this one is left out */
    if (rc != 0) return rc;
    rc =
        tm_grow((void **)&record->ends, &record->ends_capacity, record->waiting + 1, sizeof *record->ends, WAITING_MAX);
    if (rc != 0) return tm_error_nomem(e);
    size_t begin = record->data.length;
    tm_text_append(&record->data, event, length);
    rc = tm_text_status(&record->data, e);
    if (rc != 0) {
        record->data.failed = 0;
        record->data.length = begin;
        return rc;
    }
    record->ends[record->waiting++] = record->data.length;
    if (sync) rc = tm_record_flush(record, e);
    if (rc != 0) take_back(record);
    return rc;
}

/* ---- reading ---- */

static int each_written(struct tm_record *record, uint64_t after, size_t max, tm_record_each_f each, void *context,
                        struct tm_error *e)
{
    sqlite3_stmt *query = NULL;
    const char *sql = "SELECT sequence, data, hash FROM event WHERE sequence > ? ORDER BY sequence LIMIT ?";
    int64_t first = after > INT64_MAX ? INT64_MAX : (int64_t)after;
    int64_t limit = max > INT64_MAX ? INT64_MAX : (int64_t)max;
    if (sqlite3_prepare_v2(record->file, sql, -1, &query, NULL) != SQLITE_OK ||
        sqlite3_bind_int64(query, 1, first) != SQLITE_OK || sqlite3_bind_int64(query, 2, limit) != SQLITE_OK) {
        (void)sqlite3_finalize(query);
        return failed(record, "reading the record", e);
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
    if (rc == 0 && step != SQLITE_DONE) rc = failed(record, "reading the record", e);
    (void)sqlite3_finalize(query);
    return rc;
}

int tm_record_each(struct tm_record *record, uint64_t after, size_t max, tm_record_each_f each, void *context,
                   struct tm_error *e)
{
    uint64_t given = record->written > after ? record->written - after : 0;
    int rc = given > 0 ? each_written(record, after, max, each, context, e) : 0;
    for (size_t i = 0; rc == 0 && i < record->waiting && given < max; i++) {
        size_t length = 0;
        const uint8_t *data = waiting_event(record, i, &length);
        uint64_t sequence = record->written + i + 1;
        if (sequence <= after) continue;
        rc = each(context, sequence, data, length, e);
        given++;
    }
    return rc;
}
