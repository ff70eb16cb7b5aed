#include "run/state_bundle.h"

#include "base/alloc.h"
#include "base/number.h"
#include "run/state_folder.h"
#include "wire/hash.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 64, LOGS_MAX = 4096, TRIES = 20, TRY_MS = 20, RECORD_BYTES_MAX = 200 << 20 };

#define MAGIC "tidemill-state 1 "
#define LOGS  "logs/"

/* The record's own file goes last: what is there before it is of no use without it. */
static const char *const names[] = {"job.yaml",        "run.yaml",     "token",           "cloud/account",
                                    "prediction.json", "summary.json", "measured.tmcost", "lifetimes.csv",
                                    "metrics.jsonl",   "record-wal",   "record"};
enum { NAMES = sizeof names / sizeof *names, BOOKS = NAMES - 2 };

static bool is_log(const char *name)
{
    size_t length = strlen(LOGS);
    const char *rest = name + length;
    if (strncmp(name, LOGS, length) != 0 || *rest == '\0' || *rest == '.') return false;
    return rest[strspn(rest, "abcdefghijklmnopqrstuvwxyz0123456789.-")] == '\0';
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < NAMES; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return is_log(name);
}

/* ---- packing ---- */

struct packing {
    struct tm_env *env;
    const char *dir;
    struct tm_text *out;
    char (*logs)[NAME_BYTES]; /* names, owned */
    size_t log_count, log_capacity;
};

static void put_file(struct tm_text *out, const char *name, const char *data, size_t length)
{
    tm_text_printf(out, "%s %zu\n", name, length);
    tm_text_append(out, data, length);
    tm_text_putc(out, '\n');
}

static void path_of(const char *dir, const char *name, char out[TM_STATE_PATH_MAX])
{
    (void)snprintf(out, TM_STATE_PATH_MAX, "%s/%s", dir, name);
}

/* 0 also where there is no such file: then nothing is appended. */
static int read_file(struct packing *p, const char *name, struct tm_text *into, bool *out_there, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    path_of(p->dir, name, path);
    *out_there = p->env->file_exists(p->env, path);
    if (!*out_there) return 0;
    int rc = p->env->file_read(p->env, path, into, e);
    if (rc == -(int)TM_ENOTFOUND) *out_there = false;
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

static int pack_one(struct packing *p, const char *name, struct tm_error *e)
{
    struct tm_text text;
    bool there = false;
    tm_text_init(&text, TM_BUNDLE_BYTES_MAX);
    int rc = read_file(p, name, &text, &there, e);
    size_t length = text.length;
    if (strcmp(name, "token") == 0) length = strcspn(tm_text_string(&text), "-"); /* the secret half stays here */
    if (rc == 0 && there) put_file(p->out, name, tm_text_string(&text), length);
    tm_text_deinit(&text);
    return rc;
}

/* What SQLite writes to it goes to its log first, which only grows until it is carried over: where the file itself is
 * the same before and after the log was read, both belong together. */
static int pack_record(struct packing *p, bool *out_same, struct tm_error *e)
{
    struct tm_text before, log, after;
    bool there = false, logged = false;
    tm_text_init(&before, RECORD_BYTES_MAX);
    tm_text_init(&log, RECORD_BYTES_MAX);
    tm_text_init(&after, RECORD_BYTES_MAX);
    int rc = read_file(p, "record", &before, &there, e);
    if (rc == 0 && there) rc = read_file(p, "record-wal", &log, &logged, e);
    if (rc == 0 && there) rc = read_file(p, "record", &after, &there, e);
    *out_same = rc == 0 && before.length == after.length &&
                (before.length == 0 || memcmp(before.data, after.data, before.length) == 0);
    if (*out_same && there) {
        if (logged) put_file(p->out, "record-wal", tm_text_string(&log), log.length);
        put_file(p->out, "record", tm_text_string(&before), before.length);
    }
    tm_text_deinit(&before);
    tm_text_deinit(&log);
    tm_text_deinit(&after);
    return rc;
}

static int take_log(void *context, const char *file, struct tm_error *e)
{
    struct packing *p = context;
    char name[NAME_BYTES];
    if (snprintf(name, sizeof name, LOGS "%s", file) >= (int)sizeof name || !is_log(name)) return 0;
    if (p->log_count == LOGS_MAX) return 0;
    if (tm_grow((void **)&p->logs, &p->log_capacity, p->log_count + 1, sizeof *p->logs, LOGS_MAX) != 0)
        return tm_error_nomem(e);
    memcpy(p->logs[p->log_count++], name, sizeof name);
    return 0;
}

/* Its end, where it is long. */
static int pack_log(struct packing *p, const char *name, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    int64_t size = 0;
    size_t got = 0;
    path_of(p->dir, name, path);
    if (p->env->file_read_at(p->env, path, 0, NULL, 0, &got, &size, NULL) != 0) return 0;
    int64_t from = size > TM_BUNDLE_LOG_BYTES ? size - TM_BUNDLE_LOG_BYTES : 0;
    struct tm_text text;
    tm_text_init(&text, TM_BUNDLE_LOG_BYTES);
    char *room = tm_text_room(&text, (size_t)(size - from));
    int rc = size > from && room == NULL ? tm_error_nomem(e) : 0;
    if (rc == 0 && size > from)
        rc = p->env->file_read_at(p->env, path, from, room, (size_t)(size - from), &got, &size, e);
    if (rc == 0) put_file(p->out, name, tm_text_string(&text), got);
    tm_text_deinit(&text);
    return rc;
}

static int pack_logs(struct packing *p, struct tm_error *e)
{
    char folder[TM_STATE_PATH_MAX];
    tm_state_path(p->dir, TM_STATE_LOGS, folder);
    int rc = p->env->folder_each(p->env, folder, take_log, p, e);
    if (rc == -(int)TM_ENOTFOUND) rc = 0; /* nobody has written so far */
    for (size_t i = 0; rc == 0 && i < p->log_count; i++)
        rc = pack_log(p, p->logs[i], e);
    tm_free(p->logs);
    return rc;
}

int tm_state_pack(struct tm_env *env, const char *dir, struct tm_text *out, struct tm_error *e)
{
    struct packing p = {.env = env, .dir = dir, .out = out};
    char hash[33];
    size_t begin = out->length;
    bool same = false;
    int rc = 0;
    tm_text_puts(out, MAGIC "00000000000000000000000000000000\n");
    size_t body = out->length;
    for (size_t i = 0; rc == 0 && i < BOOKS; i++)
        rc = pack_one(&p, names[i], e);
    if (rc == 0) rc = pack_logs(&p, e);
    for (int i = 0; rc == 0 && !same && i < TRIES; i++) {
        if (i > 0) env->sleep_ms(env, TRY_MS);
        rc = pack_record(&p, &same, e);
    }
    if (rc == 0 && !same) rc = tm_error_set(e, TM_EBUSY, "%s: the record changes all the time", dir);
    if (rc == 0) rc = tm_text_status(out, e);
    if (rc != 0) return rc;
    (void)tm_hash_print(tm_hash_of(out->data + body, out->length - body), hash);
    memcpy(out->data + begin + strlen(MAGIC), hash, 32);
    return 0;
}

/* ---- unpacking ---- */

static int damaged(struct tm_error *e)
{
    return tm_error_set(e, TM_EINPUT, "not the books of a run, or damaged");
}

/* The name and length of the file at `at`; out_next: where its bytes begin. */
static bool read_head(const char *at, const char *end, char name[NAME_BYTES], size_t *out_length, const char **out_next)
{
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    const char *space = line_end == NULL ? NULL : memchr(at, ' ', (size_t)(line_end - at));
    int64_t length = 0;
    if (space == NULL || space - at >= NAME_BYTES || space == at) return false;
    (void)snprintf(name, NAME_BYTES, "%.*s", (int)(space - at), at);
    if (strlen(name) != (size_t)(space - at) || !is_known(name)) return false;
    if (!tm_number_i64(space + 1, (size_t)(line_end - space - 1), &length) || length < 0) return false;
    if (length >= end - line_end - 1 || line_end[1 + length] != '\n') return false;
    *out_length = (size_t)length;
    *out_next = line_end + 1;
    return true;
}

int tm_state__unpack_each(const char *data, size_t length, tm_bundle_file_f take, void *context, struct tm_error *e)
{
    char hash[33];
    char name[NAME_BYTES];
    size_t magic = strlen(MAGIC);
    if (length < TM_BUNDLE_HEAD || memcmp(data, MAGIC, magic) != 0 || data[TM_BUNDLE_HEAD - 1] != '\n')
        return damaged(e);
    const char *end = data + length;
    (void)tm_hash_print(tm_hash_of(data + TM_BUNDLE_HEAD, length - TM_BUNDLE_HEAD), hash);
    if (memcmp(hash, data + magic, 32) != 0) return damaged(e);
    const char *bytes = NULL;
    size_t size = 0;
    for (const char *at = data + TM_BUNDLE_HEAD; at < end; at = bytes + size + 1)
        if (!read_head(at, end, name, &size, &bytes)) return damaged(e);
    int rc = 0;
    for (const char *at = data + TM_BUNDLE_HEAD; rc == 0 && at < end; at = bytes + size + 1) {
        (void)read_head(at, end, name, &size, &bytes);
        rc = take(context, name, bytes, size, e);
    }
    return rc;
}

static int write_one(void *context, const char *name, const char *data, size_t length, struct tm_error *e)
{
    struct packing *p = context;
    char path[TM_STATE_PATH_MAX];
    path_of(p->dir, name, path);
    return p->env->file_write_private(p->env, path, data, length, e);
}

static int find_record(void *context, const char *name, const char *data, size_t length, struct tm_error *e)
{
    (void)data;
    (void)length;
    (void)e;
    if (strcmp(name, "record") == 0) *(bool *)context = true;
    return 0;
}

int tm_state__unpack(struct tm_env *env, const char *dir, const char *data, size_t length, struct tm_error *e)
{
    static const char *const old[] = {"record", "record-wal", "record-shm"};
    struct packing p = {.env = env, .dir = dir};
    char path[TM_STATE_PATH_MAX];
    bool has_record = false;
    int rc = tm_state__unpack_each(data, length, find_record, &has_record, e);
    for (size_t i = 0; rc == 0 && has_record && i < sizeof old / sizeof *old; i++) {
        path_of(dir, old[i], path); /* a log belongs to its own file */
        rc = env->file_remove(env, path, e);
    }
    return rc == 0 ? tm_state__unpack_each(data, length, write_one, &p, e) : rc;
}
