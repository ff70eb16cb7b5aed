/* What the local cloud remembers beyond its death, as text:
 *
 *     tidemill-local-cloud 1
 *     run 0123456789abcdef
 *     program PID START
 *     netns 0|1
 *     instance ID PID START        one line each that is there
 *
 * START is what process_started says, so that a later process of the same number is not taken for it. */
#include "cloud/local_internal.h"

#include "base/number.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { RECORD_MAX = 1 << 16, FIELDS_MAX = 4 };

struct record {
    char run[TM_LOCAL_RUN_TEXT];
    bool netns;
    int64_t program_pid;
    int64_t program_start;
    struct {
        int64_t pid;
        int64_t start;
    } instances[TM_LOCAL_INSTANCES_MAX];
    size_t count;
};

void tm_local__record_path(const char *state_dir, char *out, size_t size)
{
    (void)snprintf(out, size, "%.900s/local-cloud.tmcloud", state_dir);
}

int tm_local__write_record(struct tm_local__cloud *local, struct tm_error *e)
{
    struct tm_env *env = local->env;
    struct tm_text text;
    tm_text_init(&text, RECORD_MAX);
    tm_text_printf(&text, "tidemill-local-cloud 1\nrun %s\nprogram %d %" PRId64 "\nnetns %d\n", local->run,
                   env->process_self(env), local->self_start, local->options.netns ? 1 : 0);
    for (size_t i = 0; i < TM_LOCAL_INSTANCES_MAX; i++) {
        const struct tm_local__place *place = &local->places[i];
        if (place->id == 0 || place->handle < 0) continue;
        tm_text_printf(&text, "instance %" PRIu64 " %d %" PRId64 "\n", place->id, tm_local__instance(local, place)->pid,
                       place->pid_start);
    }
    int rc = tm_text_status(&text, e);
    if (rc == 0) rc = env->file_write_private(env, local->record_path, text.data, text.length, e);
    tm_text_deinit(&text);
    if (rc == 0) local->record_due = false;
    return rc;
}

/* ---- reading ---- */

/* Up to FIELDS_MAX words of a line. */
static size_t split(const char *line, size_t length, const char *words[], size_t lengths[])
{
    size_t count = 0;
    for (size_t at = 0; at < length && count < FIELDS_MAX;) {
        size_t from = at;
        while (at < length && line[at] != ' ')
            at++;
        words[count] = line + from;
        lengths[count++] = at - from;
        at++;
    }
    return count;
}

static bool is_word(const char *word, size_t length, const char *text)
{
    return length == strlen(text) && memcmp(word, text, length) == 0;
}

static bool is_run(const char *word, size_t length)
{
    return length == 16 && strspn(word, "0123456789abcdef") >= 16;
}

static bool read_line(struct record *record, const char *line, size_t length, int number)
{
    const char *words[FIELDS_MAX] = {0};
    size_t lengths[FIELDS_MAX] = {0};
    size_t count = split(line, length, words, lengths);
    int64_t values[FIELDS_MAX] = {0};
    for (size_t i = 1; i < count; i++)
        if (!tm_number_i64(words[i], lengths[i], &values[i])) values[i] = -1;
    if (number == 1) return is_word(line, length, "tidemill-local-cloud 1");
    if (count == 2 && is_word(words[0], lengths[0], "run") && is_run(words[1], lengths[1])) {
        memcpy(record->run, words[1], 16);
    } else if (count == 3 && is_word(words[0], lengths[0], "program") && values[1] > 1 && values[2] >= 0) {
        record->program_pid = values[1];
        record->program_start = values[2];
    } else if (count == 2 && is_word(words[0], lengths[0], "netns") && (values[1] == 0 || values[1] == 1)) {
        record->netns = values[1] == 1;
    } else if (count == 4 && is_word(words[0], lengths[0], "instance") && values[2] > 1 && values[2] <= INT32_MAX &&
               values[3] >= 0 && record->count < TM_LOCAL_INSTANCES_MAX) {
        record->instances[record->count].pid = values[2];
        record->instances[record->count++].start = values[3];
    } else {
        return false;
    }
    return true;
}

static int read_record(const char *path, const struct tm_text *text, struct record *out, struct tm_error *e)
{
    int number = 0;
    *out = (struct record){0};
    for (size_t at = 0; at < text->length;) {
        const char *line = text->data + at;
        const char *end = memchr(line, '\n', text->length - at);
        size_t length = end != NULL ? (size_t)(end - line) : text->length - at;
        number++;
        if (!read_line(out, line, length, number))
            return tm_error_set(
                e, TM_EINPUT,
                "%s:%d: not a line of a local cloud's record; remove the file once its processes have ended", path,
                number);
        at += length + 1;
    }
    if (out->run[0] == '\0' || out->program_pid == 0 || out->program_pid > INT32_MAX)
        return tm_error_set(e, TM_EINPUT, "%s: incomplete; remove it once its processes have ended", path);
    return 0;
}

static bool is_running(struct tm_env *env, int64_t pid, int64_t start)
{
    int64_t found = 0;
    return env->process_started(env, (int)pid, &found, NULL) == 0 && found == start;
}

static int end_leftovers(struct tm_env *env, const struct record *record, int *out_count, struct tm_error *e)
{
    char mark[64];
    int count = 0;
    int groups = 0;
    for (size_t i = 0; i < record->count; i++) {
        if (!is_running(env, record->instances[i].pid, record->instances[i].start)) continue;
        groups += env->process_signal_group(env, (int)record->instances[i].pid, SIGKILL, NULL) == 0;
    }
    (void)snprintf(mark, sizeof mark, "TIDEMILL_CLOUD_MARK=%s", record->run);
    int rc = env->process_end_marked(env, mark, &count, e);
    if (rc != 0) return rc;
    if (record->netns) count += tm_local__netns_clean_up(env, record->run);
    *out_count = count > groups ? count : groups;
    return 0;
}

int tm_local__clean_up(struct tm_env *env, const char *state_dir, int *out_count, struct tm_error *e)
{
    struct record record;
    struct tm_text text;
    char path[1024];
    int count = 0;
    tm_local__record_path(state_dir, path, sizeof path);
    *out_count = 0;
    if (!env->file_exists(env, path)) return 0;
    tm_text_init(&text, RECORD_MAX);
    int rc = env->file_read(env, path, &text, e);
    if (rc == 0) rc = read_record(path, &text, &record, e);
    tm_text_deinit(&text);
    if (rc != 0) return rc;
    if (is_running(env, record.program_pid, record.program_start))
        return tm_error_set(e, TM_EBUSY,
                            "%s: process %d is running a local cloud there; stop it, or use another folder", state_dir,
                            (int)record.program_pid);
    rc = end_leftovers(env, &record, &count, e);
    if (rc == 0) rc = env->file_remove(env, path, e);
    if (rc == 0) *out_count = count;
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "cleaning up after an earlier run");
}
