#include "cloud/slurm_rest_json.h"

#include "base/doc.h"
#include "base/jsonout.h"
#include "base/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NO_SUCH_JOB = 2017, WORD_BYTES = 256 };

/* ---- what is asked ---- */

static const char blanks[] = " \t\n";

/* An option of sbatch, and where it goes: before 0.0.39, and from then on. */
struct place {
    const char *option;
    const char *letter;
    const char *old_key;
    const char *key;
    const char *before; /* of the value, from 0.0.39 on */
    bool number;
};

static const struct place places[] = {
    {.option = "--account", .letter = "-A", .old_key = "account", .key = "account"},
    {.option = "--qos", .letter = "-q", .old_key = "qos", .key = "qos"},
    {.option = "--constraint", .letter = "-C", .old_key = "constraints", .key = "constraints"},
    {.option = "--reservation", .old_key = "reservation", .key = "reservation"},
    {.option = "--licenses", .letter = "-L", .old_key = "licenses", .key = "licenses"},
    {.option = "--gres", .old_key = "gres", .key = "tres_per_node", .before = "gres/"},
    {.option = "--gpus-per-node", .old_key = "gpus_per_node", .key = "tres_per_node", .before = "gres/gpu:"},
    {.option = "--cpus-per-task", .letter = "-c", .old_key = "cpus_per_task", .key = "cpus_per_task", .number = true},
};

/* The next "--name=value", "--name value" or "-x value" of the words; false: there are no more. A word that has no
 * place or no value leaves *out NULL, and is in `value`. */
static bool next_option(const char **words, const struct place **out, char value[WORD_BYTES])
{
    const char *at = *words + strspn(*words, blanks);
    size_t length = strcspn(at, blanks);
    *out = NULL;
    if (length == 0) return false;
    (void)snprintf(value, WORD_BYTES, "%.*s", (int)(length < WORD_BYTES ? length : WORD_BYTES - 1), at);
    *words = at + length;
    const char *sign = strncmp(value, "--", 2) == 0 ? strchr(value, '=') : NULL;
    size_t name = sign != NULL ? (size_t)(sign - value) : strlen(value);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const struct place *place = &places[i];
        bool named = strlen(place->option) == name && memcmp(value, place->option, name) == 0;
        bool letter = place->letter != NULL && sign == NULL && strcmp(value, place->letter) == 0;
        if (!named && !letter) continue;
        const char *given = sign != NULL ? sign + 1 : *words + strspn(*words, blanks);
        size_t count = strcspn(given, blanks);
        int64_t number = 0;
        bool fits = count > 0 && count < WORD_BYTES && given[0] != '-';
        if (!fits || (place->number && !tm_number_i64(given, count, &number))) return true;
        if (sign == NULL) *words = given + count;
        memmove(value, given, count);
        value[count] = '\0';
        *out = place;
        return true;
    }
    return true;
}

int tm_slurm_rest__check_words(const char *words, struct tm_error *e)
{
    const struct place *place = NULL;
    char value[WORD_BYTES];
    while (words != NULL && next_option(&words, &place, value))
        if (place == NULL)
            return tm_error_set(e, TM_EINPUT,
                                "slurmrestd is not asked for \"%.100s\" (only --account, --qos, --constraint, "
                                "--reservation, --licenses, --gres, --gpus-per-node and --cpus-per-task, each with a "
                                "value); leave it out, or fleet.slurm.rest, so that sbatch is",
                                value);
    return 0;
}

static void write_options(const struct tm_slurm__rest_job *job, struct tm_jsonout *json)
{
    const struct place *place = NULL;
    char value[WORD_BYTES];
    char text[2 * WORD_BYTES];
    bool old = job->version <= TM_SLURM_REST_OLD;
    int64_t number = 0;
    for (const char *words = job->words; words != NULL && next_option(&words, &place, value);) {
        if (place == NULL) continue;
        const char *key = old ? place->old_key : place->key;
        (void)snprintf(text, sizeof text, "%s%s", !old && place->before != NULL ? place->before : "", value);
        if (place->number && tm_number_i64(value, strlen(value), &number))
            tm_jsonout_integer(json, key, number);
        else
            tm_jsonout_string(json, key, text);
    }
}

/* Slurm's own variables are of the job that we run in, if we do; a token is nobody else's. */
static bool goes_along(const char *variable, size_t length, size_t name)
{
    bool slurms = strncmp(variable, "SLURM", 5) == 0 && strncmp(variable, "SLURM_CONF=", 11) != 0;
    bool batchs = strncmp(variable, "SBATCH_", 7) == 0;
    return name > 0 && name < length && name < WORD_BYTES && !slurms && !batchs;
}

static void write_variables(const struct tm_slurm__rest_job *job, struct tm_jsonout *json)
{
    bool old = job->version <= TM_SLURM_REST_OLD;
    char key[WORD_BYTES];
    if (old)
        tm_jsonout_object(json, "environment");
    else
        tm_jsonout_list(json, "environment");
    for (size_t at = 0; at < job->variables_length;) {
        const char *variable = job->variables + at;
        size_t length = strnlen(variable, job->variables_length - at);
        at += length + 1;
        if (at > job->variables_length) break; /* without its end */
        size_t name = strcspn(variable, "=");
        if (!goes_along(variable, length, name)) continue;
        (void)snprintf(key, sizeof key, "%.*s", (int)name, variable);
        tm_jsonout_string(json, old ? key : NULL, old ? variable + name + 1 : variable);
    }
    tm_jsonout_end(json);
}

static void write_word(struct tm_jsonout *json, bool listed, const char *key, const char *word)
{
    if (!listed) {
        tm_jsonout_string(json, key, word);
        return;
    }
    tm_jsonout_list(json, key);
    tm_jsonout_string(json, NULL, word);
    tm_jsonout_end(json);
}

void tm_slurm_rest__write_job(const struct tm_slurm__rest_job *job, struct tm_text *out)
{
    struct tm_jsonout json;
    bool old = job->version <= TM_SLURM_REST_OLD;
    bool inside = job->version > TM_SLURM_REST_OLD + 1; /* from 0.0.40 on the script is the job's */
    tm_jsonout_init_line(&json, out);
    tm_jsonout_object(&json, NULL);
    if (!inside) tm_jsonout_string(&json, "script", job->script);
    tm_jsonout_object(&json, "job");
    if (inside) tm_jsonout_string(&json, "script", job->script);
    tm_jsonout_string(&json, "name", job->name);
    tm_jsonout_string(&json, "comment", job->comment);
    tm_jsonout_string(&json, "partition", job->partition);
    tm_jsonout_string(&json, "current_working_directory", job->folder);
    tm_jsonout_string(&json, "nodes", "1");
    tm_jsonout_integer(&json, "tasks", 1);
    write_word(&json, !old, "exclusive", old ? "exclusive" : "true");
    tm_jsonout_bool(&json, "requeue", false);
    write_word(&json, !old, "open_mode", old ? "append" : "APPEND");
    tm_jsonout_string(&json, "standard_output", "/dev/null");
    tm_jsonout_string(&json, "standard_error", "/dev/null");
    if (job->time_limit_ms > 0) {
        int64_t minutes = (job->time_limit_ms + 59999) / 60000;
        if (!old) tm_jsonout_object(&json, "time_limit");
        if (!old) tm_jsonout_bool(&json, "set", true);
        tm_jsonout_integer(&json, old ? "time_limit" : "number", minutes);
        if (!old) tm_jsonout_end(&json);
    }
    write_options(job, &json);
    write_variables(job, &json);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
}

/* ---- what is answered ---- */

/* 7, or {"set": true, "infinite": false, "number": 7}; -1: not said, or without end. */
static int64_t number_of(const json_t *value)
{
    if (json_is_object(value)) {
        if (json_is_true(json_object_get(value, "infinite")) || json_is_false(json_object_get(value, "set"))) return -1;
        value = json_object_get(value, "number");
    }
    int64_t number = json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
    return number >= 0 ? number : -1;
}

static int64_t number_at(const json_t *map, const char *key)
{
    return number_of(json_object_get(map, key));
}

static const char *word_at(const json_t *map, const char *key)
{
    const char *text = json_string_value(json_object_get(map, key));
    return text != NULL ? text : "";
}

/* The i-th word of "a" or ["a", "b"]; NULL: there are no more. */
static const char *nth_word(const json_t *value, size_t i)
{
    if (json_is_array(value)) return json_string_value(json_array_get(value, i));
    return i == 0 ? json_string_value(value) : NULL;
}

static void copy(char out[TM_SLURM_WORD_MAX], const char *text)
{
    (void)snprintf(out, TM_SLURM_WORD_MAX, "%.*s", TM_SLURM_WORD_MAX - 1, text);
}

/* The state comes first, its flags after it; which of them says that something moves decides. */
static bool take_state(const json_t *value, struct tm_slurm__row *row)
{
    const char *word = nth_word(value, 0);
    if (word == NULL || word[0] == '\0') return false;
    copy(row->state, word);
    row->phase = tm_slurm__phase_of(word, strlen(word));
    for (size_t i = 1; (word = nth_word(value, i)) != NULL; i++) {
        enum tm_slurm__phase phase = tm_slurm__phase_of(word, strlen(word));
        if (phase == TM_SLURM_COMPLETING || phase == TM_SLURM_PENDING) row->phase = phase;
    }
    return true;
}

static int exit_status(const json_t *value)
{
    if (json_is_integer(value)) return tm_slurm__exit_status(json_integer_value(value));
    const json_t *signal = json_object_get(value, "signal");
    int64_t killed = number_at(signal, "id");
    if (killed <= 0) killed = number_at(signal, "signal_id");
    if (killed > 0 && killed < 128) return 128 + (int)killed;
    int64_t code = number_at(value, "return_code");
    return code > 0 && code < 256 ? (int)code : 0;
}

static bool take_job(const json_t *job, int64_t now_s, struct tm_slurm__row *row)
{
    const char *comment = word_at(job, "comment");
    int64_t end_s = number_at(job, "end_time");
    bool limited = json_is_integer(json_object_get(job, "time_limit")) || number_at(job, "time_limit") > 0;
    *row = (struct tm_slurm__row){.job = number_at(job, "job_id"), .left_ms = -1};
    if (row->job <= 0 || !tm_slurm__read_tag(comment, strlen(comment), &row->tag)) return false;
    if (!take_state(json_object_get(job, "job_state"), row)) return false;
    copy(row->reason, word_at(job, "state_reason"));
    copy(row->node, word_at(job, "nodes"));
    copy(row->partition, word_at(job, "partition"));
    row->preempted = strcmp(row->state, "PREEMPTED") == 0 || number_at(job, "preempt_time") > 0;
    if (row->phase == TM_SLURM_RUNNING && limited && end_s > 0 && end_s - now_s < INT64_MAX / 1000)
        row->left_ms = end_s > now_s ? (end_s - now_s) * 1000 : 0;
    row->status = exit_status(json_object_get(job, "exit_code"));
    return true;
}

static int take_jobs(struct tm_slurm__answer *answer, const json_t *root, int64_t now_s, struct tm_error *e)
{
    struct tm_slurm__row row;
    const json_t *job = NULL;
    size_t i = 0;
    int rc = 0;
    json_array_foreach(json_object_get(root, "jobs"), i, job)
    {
        if (rc == 0 && take_job(job, now_s, &row)) rc = tm_slurm_answer__add_row(answer, &row, e);
    }
    return rc;
}

static bool has_leaving(const json_t *value)
{
    const char *word = NULL;
    for (size_t i = 0; (word = nth_word(value, i)) != NULL; i++)
        if (tm_slurm__is_leaving(word, strlen(word))) return true;
    return false;
}

static int take_nodes(struct tm_slurm__answer *answer, const json_t *root, struct tm_error *e)
{
    const json_t *node = NULL;
    size_t i = 0;
    int rc = 0;
    json_array_foreach(json_object_get(root, "nodes"), i, node)
    {
        const char *name = word_at(node, "name");
        bool leaves = has_leaving(json_object_get(node, "state")) || has_leaving(json_object_get(node, "state_flags"));
        if (rc == 0 && leaves && name[0] != '\0') rc = tm_slurm_answer__add_leaving(answer, name, e);
    }
    return rc;
}

/* The first error: its number, and its words on one line. 0: there is none. */
static int64_t first_error(const json_t *root, char words[TM_SLURM_REST_WORDS_MAX])
{
    static const char *const keys[] = {"error_number", "errno", "error_code"};
    const json_t *first = json_array_get(json_object_get(root, "errors"), 0);
    const char *said = word_at(first, "description");
    int64_t number = -1;
    if (!json_is_object(first)) return 0;
    for (size_t i = 0; number <= 0 && i < sizeof keys / sizeof *keys; i++)
        number = number_at(first, keys[i]);
    (void)snprintf(words, TM_SLURM_REST_WORDS_MAX, "%.120s%s%.120s", word_at(first, "error"),
                   said[0] != '\0' ? ": " : "", said);
    for (char *at = words; *at != '\0'; at++)
        if ((unsigned char)*at < 32 || *at == 127) *at = ' ';
    return number > 0 ? number : 1;
}

static int take(struct tm_slurm__answer *answer, enum tm_slurm__command_kind kind, const json_t *root, int64_t now_s,
                struct tm_error *e)
{
    int64_t job = 0;
    switch (kind) {
    case TM_SLURM_SUBMIT:
        job = number_at(root, "job_id");
        if (job <= 0) job = number_at(json_object_get(root, "result"), "job_id");
        answer->job = job > 0 ? job : 0;
        return 0;
    case TM_SLURM_QUERY:
        return take_jobs(answer, root, now_s, e);
    case TM_SLURM_NODES:
        return take_nodes(answer, root, e);
    case TM_SLURM_CANCEL:
        break;
    }
    return 0;
}

int tm_slurm_rest__read(struct tm_slurm__answer *answer, enum tm_slurm__command_kind kind, int http_status,
                        const char *text, size_t length, int64_t now_s, char words[TM_SLURM_REST_WORDS_MAX],
                        struct tm_error *e)
{
    json_t *root = NULL;
    bool good = http_status >= 200 && http_status < 300;
    bool answered = http_status > 0 && http_status != 502 && http_status != 503 && http_status != 504;
    words[0] = '\0';
    int rc = tm_json_load("slurmrestd's answer", text, length, &root, e);
    if (rc == -(int)TM_ENOMEM) return rc;
    int64_t wrong = first_error(root, words);
    bool listed = json_is_array(json_object_get(root, kind == TM_SLURM_NODES ? "nodes" : "jobs"));
    bool asks = kind == TM_SLURM_QUERY || kind == TM_SLURM_NODES;
    if (wrong == NO_SUCH_JOB && kind != TM_SLURM_SUBMIT) {
        words[0] = '\0';
        rc = 0;
    } else if (good && wrong == 0 && root != NULL && (listed || !asks)) {
        rc = take(answer, kind, root, now_s, e);
    } else {
        if (words[0] == '\0') (void)snprintf(words, TM_SLURM_REST_WORDS_MAX, "HTTP status %d", http_status);
        answer->status = answered ? 1 : -1;
        answer->words = words;
        answer->length = strlen(words);
        rc = 0;
    }
    json_decref(root);
    return rc;
}

bool tm_slurm_rest__read_partition(const char *text, size_t length, const char *name, struct tm_slurm__partition *out)
{
    json_t *root = NULL;
    const json_t *one = NULL;
    size_t i = 0;
    bool found = false;
    if (tm_json_load("slurmrestd's partitions", text, length, &root, NULL) != 0) return false;
    json_array_foreach(json_object_get(root, "partitions"), i, one)
    {
        if (found || strcmp(word_at(one, "name"), name) != 0) continue;
        const json_t *most = json_object_get(json_object_get(one, "maximums"), "time");
        const json_t *state = json_object_get(json_object_get(one, "partition"), "state");
        int64_t grace_s = number_at(one, "preemption_grace_time"); /* of 0.0.38 */
        if (grace_s < 0) grace_s = number_at(one, "grace_time");
        int64_t minutes = number_of(most != NULL ? most : json_object_get(one, "max_time_limit"));
        const char *word = nth_word(state != NULL ? state : json_object_get(one, "state"), 0);
        int64_t nodes = number_at(one, "total_nodes");
        if (nodes < 0) nodes = number_at(json_object_get(one, "nodes"), "total");
        *out = (struct tm_slurm__partition){.up = word == NULL || strcmp(word, "UP") == 0,
                                            .grace_ms = grace_s > 0 && grace_s < 1000000 ? grace_s * 1000 : 0,
                                            .time_max_ms = minutes >= 0 && minutes < 1 << 30 ? minutes * 60000 : -1,
                                            .nodes = nodes};
        found = true;
    }
    json_decref(root);
    return found;
}
