#include "cloud/slurm_text.h"

#include "base/alloc.h"
#include "base/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { FIELDS = 8 /* before the comment */, ROWS_MAX = 1 << 16 };

static const char tag_word[] = "tidemill:";

struct piece {
    const char *text;
    size_t length;
};

/* The next line, without its end. */
static bool next_line(const char *text, size_t length, size_t *at, struct piece *out)
{
    if (*at >= length) return false;
    const char *line = text + *at;
    const char *end = memchr(line, '\n', length - *at);
    *out = (struct piece){line, end != NULL ? (size_t)(end - line) : length - *at};
    *at += out->length + (end != NULL);
    return true;
}

/* What comes before the next `stop`, which is passed by; false: there is none. */
static bool take_field(struct piece *line, char stop, struct piece *out)
{
    const char *end = memchr(line->text, stop, line->length);
    if (end == NULL) return false;
    *out = (struct piece){line->text, (size_t)(end - line->text)};
    line->text = end + 1;
    line->length -= out->length + 1;
    return true;
}

static bool is_word(struct piece piece, const char *word)
{
    return piece.length == strlen(word) && memcmp(piece.text, word, piece.length) == 0;
}

static void copy_word(struct piece piece, char out[TM_SLURM_WORD_MAX])
{
    (void)snprintf(out, TM_SLURM_WORD_MAX, "%.*s", (int)(piece.length < 4096 ? piece.length : 4096), piece.text);
}

/* ---- durations ---- */

int64_t tm_slurm__duration_ms(const char *text, size_t length)
{
    static const int64_t limits[] = {60, 60, 24};
    struct piece rest = {text, length};
    struct piece days;
    int64_t parts[3] = {0};
    int64_t value = 0;
    int64_t sum = 0;
    size_t count = 0;
    bool has_days = take_field(&rest, '-', &days);
    if (has_days && (!tm_number_i64(days.text, days.length, &sum) || sum < 0 || sum > 100000)) return -1;
    for (bool more = true; more; count++) {
        struct piece part;
        more = take_field(&rest, ':', &part);
        if (!more) part = rest;
        bool good = part.length > 0 && part.length < 8 && tm_number_i64(part.text, part.length, &value) && value >= 0;
        if (count == 3 || !good) return -1;
        parts[count] = value;
    }
    if (has_days && count != 3) return -1;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && parts[i] >= limits[count - 1 - i]) return -1;
        sum = i == 0 ? sum * 24 + parts[i] : sum * 60 + parts[i];
    }
    return sum * 1000;
}

void tm_slurm__print_duration(int64_t ms, char out[TM_SLURM_WORD_MAX])
{
    int64_t minutes = (ms + 59999) / 60000; /* Slurm counts limits in minutes */
    (void)snprintf(out, TM_SLURM_WORD_MAX, "%" PRId64 "-%02d:%02d:00", minutes / 1440, (int)(minutes / 60 % 24),
                   (int)(minutes % 60));
}

/* ---- tags ---- */

void tm_slurm__print_tag(const struct tm_slurm__tag *tag, char out[TM_SLURM_COMMENT_MAX])
{
    (void)snprintf(out, TM_SLURM_COMMENT_MAX, "%s%s:%" PRIu64 ":%" PRIu64, tag_word, tag->folder, tag->run,
                   tag->instance);
}

/* Slurm's numbers and ours are below 2^63; a job's own may be any of 64 bits. */
static bool read_u64(struct piece piece, uint64_t *out)
{
    uint64_t value = 0;
    if (piece.length == 0 || piece.length > 20) return false;
    for (size_t i = 0; i < piece.length; i++) {
        unsigned digit = (unsigned)(piece.text[i] - '0');
        if (piece.text[i] < '0' || digit > 9 || value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

bool tm_slurm__read_tag(const char *text, size_t length, struct tm_slurm__tag *out)
{
    struct piece rest = {text, length};
    struct piece folder;
    struct piece run;
    *out = (struct tm_slurm__tag){.run = 0};
    while (rest.length > 0 && (rest.text[rest.length - 1] == '|' || rest.text[rest.length - 1] == '\r'))
        rest.length--;
    if (rest.length < sizeof tag_word || memcmp(rest.text, tag_word, sizeof tag_word - 1) != 0) return false;
    rest.text += sizeof tag_word - 1;
    rest.length -= sizeof tag_word - 1;
    if (!take_field(&rest, ':', &folder) || folder.length == 0 || folder.length >= TM_SLURM_TAG_MAX) return false;
    if (!take_field(&rest, ':', &run) || !read_u64(run, &out->run) || !read_u64(rest, &out->instance)) return false;
    if (memchr(folder.text, '\0', folder.length) != NULL) return false;
    memcpy(out->folder, folder.text, folder.length);
    return out->instance > 0;
}

/* ---- squeue ---- */

enum tm_slurm__phase tm_slurm__phase_of(const char *text, size_t length)
{
    struct piece state = {text, length};
    static const char *const pending[] = {"PENDING",     "CONFIGURING",  "REQUEUED",     "REQUEUE_HOLD",
                                          "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"};
    static const char *const running[] = {"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"};
    for (size_t i = 0; i < sizeof pending / sizeof *pending; i++)
        if (is_word(state, pending[i])) return TM_SLURM_PENDING;
    for (size_t i = 0; i < sizeof running / sizeof *running; i++)
        if (is_word(state, running[i])) return TM_SLURM_RUNNING;
    return is_word(state, "COMPLETING") ? TM_SLURM_COMPLETING : TM_SLURM_ENDED;
}

int tm_slurm__exit_status(int64_t status)
{
    if (status < 0 || status > 0xffff) return 0;
    return (status & 0x7f) != 0 ? 128 + (int)(status & 0x7f) : (int)(status >> 8);
}

static bool read_row(struct piece line, struct tm_slurm__row *out)
{
    struct piece f[FIELDS];
    int64_t status = 0;
    *out = (struct tm_slurm__row){.left_ms = -1};
    for (size_t i = 0; i < FIELDS; i++)
        if (!take_field(&line, '|', &f[i])) return false;
    if (!tm_number_i64(f[0].text, f[0].length, &out->job) || out->job <= 0 || f[1].length == 0) return false;
    if (!tm_slurm__read_tag(line.text, line.length, &out->tag)) return false;
    out->phase = tm_slurm__phase_of(f[1].text, f[1].length);
    copy_word(f[1], out->state);
    copy_word(f[2], out->reason);
    copy_word(f[3], out->node);
    copy_word(f[7], out->partition);
    out->preempted = is_word(f[1], "PREEMPTED") || (f[4].length > 0 && f[4].text[0] >= '0' && f[4].text[0] <= '9');
    if (out->phase == TM_SLURM_RUNNING) out->left_ms = tm_slurm__duration_ms(f[5].text, f[5].length);
    if (tm_number_i64(f[6].text, f[6].length, &status)) out->status = tm_slurm__exit_status(status);
    return true;
}

bool tm_slurm__next_row(const char *text, size_t length, size_t *at, struct tm_slurm__row *out)
{
    struct piece line;
    while (next_line(text, length, at, &line))
        if (read_row(line, out)) return true;
    return false;
}

void tm_slurm__in_one_line(const char *text, size_t length, char out[TM_SLURM_SAID_MAX])
{
    size_t used = 0;
    for (size_t at = 0; at < length;) {
        size_t end = at;
        while (end < length && text[end] != '\n' && text[end] != '\r')
            end++;
        size_t size = end - at;
        while (size > 0 && text[at + size - 1] == ' ')
            size--;
        if (size > 0 && used < TM_SLURM_SAID_MAX - 1) {
            int put =
                snprintf(out + used, TM_SLURM_SAID_MAX - used, "%s%.*s", used > 0 ? "; " : "", (int)size, text + at);
            used = used + (size_t)put < TM_SLURM_SAID_MAX - 1 ? used + (size_t)put : TM_SLURM_SAID_MAX - 1;
        }
        at = end + 1;
    }
    out[used] = '\0';
}

bool tm_slurm__is_stuck(const char *reason)
{
    static const char *const words[] = {"JobHeld", "QOS",        "Assoc",         "Partition",       "BadConstraints",
                                        "Invalid", "AccountNot", "launch failed", "ReqNodeNotAvail", "Reservation"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(reason, words[i], strlen(words[i])) == 0) return true;
    return false;
}

/* ---- the others ---- */

int64_t tm_slurm__job_number(const char *text, size_t length)
{
    struct piece line;
    size_t at = 0;
    while (next_line(text, length, &at, &line)) {
        struct piece number = line;
        int64_t job = 0;
        struct piece rest = line;
        if (take_field(&rest, ';', &number) && (rest.length == 0 || memchr(rest.text, ' ', rest.length) != NULL))
            continue;
        if (tm_number_i64(number.text, number.length, &job) && job > 0) return job;
    }
    return 0;
}

/* The value of " KEY=" in a line. */
static bool find_value(struct piece line, const char *key, struct piece *out)
{
    struct piece word;
    size_t length = strlen(key);
    for (bool more = true; more;) {
        more = take_field(&line, ' ', &word);
        if (!more) word = line;
        if (word.length <= length || memcmp(word.text, key, length) != 0 || word.text[length] != '=') continue;
        *out = (struct piece){word.text + length + 1, word.length - length - 1};
        return true;
    }
    return false;
}

bool tm_slurm__read_partition(const char *text, size_t length, const char *name, struct tm_slurm__partition *out)
{
    struct piece line;
    struct piece value;
    size_t at = 0;
    while (next_line(text, length, &at, &line)) {
        if (!find_value(line, "PartitionName", &value) || !is_word(value, name)) continue;
        *out = (struct tm_slurm__partition){.up = true, .time_max_ms = -1, .nodes = -1};
        if (find_value(line, "State", &value)) out->up = is_word(value, "UP");
        if (find_value(line, "GraceTime", &value) && tm_number_i64(value.text, value.length, &out->grace_ms)) {
            bool sane = out->grace_ms >= 0 && out->grace_ms < 1000000;
            out->grace_ms = sane ? out->grace_ms * 1000 : 0;
        }
        if (find_value(line, "MaxTime", &value)) out->time_max_ms = tm_slurm__duration_ms(value.text, value.length);
        if (find_value(line, "TotalNodes", &value) && !tm_number_i64(value.text, value.length, &out->nodes))
            out->nodes = -1;
        return true;
    }
    return false;
}

bool tm_slurm__read_address(const char *text, size_t length, const char *name, char out[TM_SLURM_WORD_MAX])
{
    struct piece line;
    struct piece value;
    size_t at = 0;
    while (next_line(text, length, &at, &line)) {
        if (!find_value(line, "NodeName", &value) || !is_word(value, name)) continue;
        if (!find_value(line, "NodeAddr", &value) || value.length >= TM_SLURM_WORD_MAX) return false;
        copy_word(value, out);
        return true;
    }
    return false;
}

bool tm_slurm__is_leaving(const char *state, size_t length)
{
    static const char *const words[] = {"drain", "drng", "fail", "reboot", "down", "maint", "powering_down"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t count = strlen(words[i]);
        if (length >= count && strncasecmp(state, words[i], count) == 0) return true;
    }
    return false;
}

bool tm_slurm__next_leaving(const char *text, size_t length, size_t *at, char node[TM_SLURM_WORD_MAX])
{
    struct piece line;
    while (next_line(text, length, at, &line)) {
        struct piece name;
        if (!take_field(&line, '|', &name) || name.length == 0) continue;
        if (!tm_slurm__is_leaving(line.text, line.length)) continue;
        copy_word(name, node);
        return true;
    }
    return false;
}

/* ---- answers ---- */

void tm_slurm_answer__clear(struct tm_slurm__answer *answer)
{
    answer->status = 0;
    answer->words = "";
    answer->job = 0;
    answer->length = answer->row_count = answer->leaving_count = 0;
}

void tm_slurm_answer__deinit(struct tm_slurm__answer *answer)
{
    tm_free(answer->rows);
    tm_free(answer->leaving);
}

static int failed(int rc, struct tm_error *e)
{
    return rc == -(int)TM_ENOMEM ? tm_error_nomem(e)
                                 : tm_error_set(e, TM_ELIMIT, "more than %d rows in an answer of Slurm", ROWS_MAX);
}

int tm_slurm_answer__add_row(struct tm_slurm__answer *answer, const struct tm_slurm__row *row, struct tm_error *e)
{
    void *list = answer->rows;
    int rc = tm_grow(&list, &answer->row_capacity, answer->row_count + 1, sizeof *row, ROWS_MAX);
    answer->rows = list;
    if (rc != 0) return failed(rc, e);
    answer->rows[answer->row_count++] = *row;
    return 0;
}

int tm_slurm_answer__add_leaving(struct tm_slurm__answer *answer, const char *node, struct tm_error *e)
{
    void *list = answer->leaving;
    int rc = tm_grow(&list, &answer->leaving_capacity, answer->leaving_count + 1, sizeof *answer->leaving, ROWS_MAX);
    answer->leaving = list;
    if (rc != 0) return failed(rc, e);
    (void)snprintf(answer->leaving[answer->leaving_count++], TM_SLURM_WORD_MAX, "%s", node);
    return 0;
}

int tm_slurm_answer__read(struct tm_slurm__answer *answer, enum tm_slurm__command_kind kind, int status,
                          const char *text, size_t length, struct tm_error *e)
{
    struct tm_slurm__row row;
    char node[TM_SLURM_WORD_MAX];
    size_t at = 0;
    int rc = 0;
    tm_slurm_answer__clear(answer);
    answer->status = status;
    answer->words = text;
    answer->length = length;
    if (status != 0) return 0;
    if (kind == TM_SLURM_SUBMIT) answer->job = tm_slurm__job_number(text, length);
    while (kind == TM_SLURM_QUERY && rc == 0 && tm_slurm__next_row(text, length, &at, &row))
        rc = tm_slurm_answer__add_row(answer, &row, e);
    while (kind == TM_SLURM_NODES && rc == 0 && tm_slurm__next_leaving(text, length, &at, node))
        rc = tm_slurm_answer__add_leaving(answer, node, e);
    return rc;
}
