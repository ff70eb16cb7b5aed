#include "cloud/sky_cloud.h"

#include "base/alloc.h"
#include "base/doc.h"
#include "base/embed.h"
#include "cloud/tool_process.h"

#include <stdio.h>
#include <string.h>

TM_EMBED(tm_skypilot_source, "../python/tidemill/skypilot.py");

enum {
    CALL_MS = 180000, /* it asks clouds */
    POLL_MS = 30000,
    END_LIMIT_MS = 600000,
    START_LIMIT_MS = 900000,
    AGAIN_AFTER_MS = 120000,
    TEXT_MAX = 16 << 20,
    PATH_BYTES = 4096,
    ROWS_MAX = 4096
};

struct sky {
    struct tm_env *env;
    struct tm_sky_options options;
    struct tm_tool__process process;
    struct tm_remote_row *rows;
    size_t row_capacity;
    char prefix[TM_REMOTE_NAME_MAX];
    char look_up[TM_REMOTE_NAME_MAX + 32];
    char script[PATH_BYTES];
    char ticket[PATH_BYTES];
};

/* ---- answers ---- */

static const char *word(const json_t *map, const char *key)
{
    const char *text = json_string_value(json_object_get(map, key));
    return text != NULL ? text : "";
}

static void take_words(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%.240s", text);
    for (char *at = out; *at != '\0'; at++) /* one line of a log, whatever is in it */
        if ((unsigned char)*at < 32 || *at == 127) *at = ' ';
}

static bool take_row(const json_t *from, struct tm_remote_row *row)
{
    const char *name = word(from, "name");
    const char *phase = word(from, "phase");
    const json_t *price = json_object_get(from, "price");
    *row = (struct tm_remote_row){.status = -1};
    if (name[0] == '\0' || strlen(name) >= sizeof row->name) return false;
    (void)snprintf(row->name, sizeof row->name, "%s", name);
    row->phase = strcmp(phase, "running") == 0   ? TM_REMOTE_RUNNING
                 : strcmp(phase, "pending") == 0 ? TM_REMOTE_PENDING
                                                 : TM_REMOTE_ENDED;
    (void)snprintf(row->zone, sizeof row->zone, "%.60s", word(from, "zone"));
    const json_t *status = json_object_get(from, "status");
    if (json_is_integer(status)) row->status = (int)json_integer_value(status);
    if (json_is_number(price) && json_number_value(price) > 0) row->price_usd_h = json_number_value(price);
    take_words(row->words, sizeof row->words, word(from, "words"));
    return true;
}

/* The last line that is an answer. */
static const char *find_answer(const char *text, size_t length, size_t *out_length)
{
    static const char mark[] = "TM-ANSWER ";
    const size_t mark_length = sizeof mark - 1;
    const char *found = NULL;
    for (const char *at = text; at < text + length;) {
        const char *end = memchr(at, '\n', (size_t)(text + length - at));
        if (end == NULL) end = text + length;
        if ((size_t)(end - at) > mark_length && memcmp(at, mark, mark_length) == 0) {
            found = at + mark_length;
            *out_length = (size_t)(end - found);
        }
        at = end + 1;
    }
    return found;
}

int tm_sky_answer__read(const char *text, size_t length, struct tm_remote_row **rows, size_t *capacity,
                        struct tm_remote_answer *out, struct tm_error *e)
{
    size_t line = 0;
    size_t i = 0;
    json_t *root = NULL;
    const json_t *one = NULL;
    struct tm_remote_answer answer = {.outcome = TM_REMOTE_NO_ANSWER};
    const char *at = find_answer(text, length, &line);
    if (at == NULL) return tm_error_set(e, TM_EINPUT, "SkyPilot's program gave no answer");
    int rc = tm_json_load("SkyPilot's answer", at, line, &root, e);
    if (rc != 0) return rc;
    const char *outcome = word(root, "outcome");
    if (strcmp(outcome, "done") == 0) answer.outcome = TM_REMOTE_DONE;
    if (strcmp(outcome, "gone") == 0) answer.outcome = TM_REMOTE_GONE;
    if (strcmp(outcome, "refused") == 0 || strcmp(outcome, "missing") == 0) answer.outcome = TM_REMOTE_REFUSED;
    take_words(answer.words, sizeof answer.words, word(root, "words"));
    json_array_foreach(json_object_get(root, "rows"), i, one)
    {
        void *list = *rows;
        if (rc != 0) break;
        rc = tm_grow(&list, capacity, answer.row_count + 1, sizeof **rows, ROWS_MAX);
        *rows = list;
        if (rc != 0) rc = tm_error_set(e, (enum tm_code) - rc, "too many clusters in one list");
        if (rc == 0 && take_row(one, &(*rows)[answer.row_count])) answer.row_count++;
    }
    answer.rows = *rows;
    json_decref(root);
    if (rc == 0) *out = answer;
    return rc;
}

/* ---- calls ---- */

static int write_ticket(struct sky *s, const struct tm_remote_call *call, struct tm_error *e)
{
    char ticket[TM_REMOTE_WORDS_MAX];
    int rc = s->options.ticket(s->options.context, call->instance, call->market, ticket, e);
    if (rc == 0) rc = s->env->file_write_private(s->env, s->ticket, ticket, strlen(ticket), e);
    memset(ticket, 0, sizeof ticket);
    return rc;
}

static int sky_begin(void *self, const struct tm_remote_call *call, struct tm_error *e)
{
    struct sky *s = self;
    const char *words[14] = {s->options.python != NULL ? s->options.python : "python3", s->script};
    int rc = 0;
    if (call->kind == TM_REMOTE_LIST) {
        words[2] = "list";
        words[3] = s->prefix;
        words[4] = call->ends ? "ends" : NULL;
    } else if (call->kind == TM_REMOTE_DELETE) {
        words[2] = "delete";
        words[3] = call->name;
    } else {
        words[2] = call->kind == TM_REMOTE_ADOPT ? "adopt" : "create";
        words[3] = call->name;
        words[4] = s->options.task;
        words[5] = s->options.folder;
        words[6] = s->options.program;
        words[7] = tm_instance_kind__name(call->market);
        words[8] = s->ticket;
        if (s->options.pool_count > 0) {
            words[9] = s->options.places[call->pool].instance;
            words[10] = s->options.places[call->pool].infra;
        }
        rc = write_ticket(s, call, e);
    }
    return rc == 0 ? tm_tool_process__start(&s->process, s->env, words, CALL_MS, e) : rc;
}

static bool sky_step(void *self, struct tm_remote_answer *out)
{
    struct sky *s = self;
    struct tm_error e = {.text = ""};
    int status = 0;
    if (!tm_tool_process__step(&s->process, s->env, &status)) return false;
    *out = (struct tm_remote_answer){.outcome = TM_REMOTE_NO_ANSWER};
    if (status < 0)
        (void)snprintf(out->words, sizeof out->words, "SkyPilot did not answer in time");
    else if (tm_sky_answer__read(tm_text_string(&s->process.text), s->process.text.length, &s->rows, &s->row_capacity,
                                 out, &e) != 0)
        (void)snprintf(out->words, sizeof out->words, "%.250s", e.text);
    return true;
}

static size_t sky_watch(void *self, int *handles, size_t max, int64_t *out_wait_ms)
{
    struct sky *s = self;
    int own[2];
    size_t count = tm_tool_process__watch(&s->process, own);
    int64_t left = s->process.deadline_ms - s->env->monotonic_ns(s->env) / 1000000;
    if (count > max) count = max;
    memcpy(handles, own, count * sizeof *own);
    *out_wait_ms = left > 0 ? left : 0;
    return count;
}

static void sky_destroy(void *self, bool whole)
{
    struct sky *s = self;
    (void)whole;
    tm_tool_process__stop(&s->process, s->env);
    (void)s->env->file_remove(s->env, s->ticket, NULL);
    tm_text_deinit(&s->process.text);
    tm_free(s->rows);
    tm_free(s);
}

/* ---- its beginning ---- */

/* The program that calls SkyPilot. */
static int write_script(struct sky *s, struct tm_error *e)
{
    const struct tm_sky_options *options = &s->options;
    size_t length = (size_t)(tm_skypilot_source_end - tm_skypilot_source_begin);
    (void)snprintf(s->script, sizeof s->script, "%.4000s/skypilot.py", options->dir);
    (void)snprintf(s->ticket, sizeof s->ticket, "%.4000s/ticket", options->dir);
    return s->env->file_write_private(s->env, s->script, tm_skypilot_source_begin, length, e);
}

/* Once, before anything is launched: is SkyPilot there, and does it answer? */
static int check(struct sky *s, struct tm_error *e)
{
    const struct tm_remote_call call = {.kind = TM_REMOTE_LIST};
    struct tm_remote_answer answer = {.outcome = TM_REMOTE_DONE};
    int rc = sky_begin(s, &call, e);
    while (rc == 0 && !sky_step(s, &answer)) {
        int handles[2];
        bool ready[2];
        int64_t wait_ms = 0;
        size_t count = sky_watch(s, handles, 2, &wait_ms);
        (void)s->env->net_wait(s->env, handles, count, wait_ms, ready, NULL);
    }
    if (rc != 0 || answer.outcome == TM_REMOTE_DONE) return rc;
    return tm_error_set(e, answer.outcome == TM_REMOTE_REFUSED ? TM_EINPUT : TM_EPEER,
                        "SkyPilot: %s; TIDEMILL_PYTHON names the Python that has it (pip install skypilot)",
                        answer.words);
}

int tm_sky_cloud_create(struct tm_env *env, const struct tm_sky_options *options, struct tm_cloud **out,
                        struct tm_error *e)
{
    struct sky *s = tm_calloc(1, sizeof *s);
    if (s == NULL) return tm_error_nomem(e);
    s->env = env;
    s->options = *options;
    tm_text_init(&s->process.text, TEXT_MAX);
    tm_remote__prefix(options->state, s->prefix);
    (void)snprintf(s->look_up, sizeof s->look_up, "sky status '%.40s*'", s->prefix);
    int rc = write_script(s, e);
    if (rc == 0) rc = check(s, e);
    if (rc != 0) {
        sky_destroy(s, false);
        return rc;
    }
    struct tm_remote_driver driver = {.self = s,
                                      .things = "clusters of SkyPilot",
                                      .look_up = s->look_up,
                                      .begin = sky_begin,
                                      .step = sky_step,
                                      .watch = sky_watch,
                                      .destroy = sky_destroy};
    struct tm_remote_options remote = {.prefix = s->prefix,
                                       .pools = options->pools,
                                       .pool_count = options->pool_count,
                                       .type = "cluster",
                                       .limit = {options->limit[0], options->limit[1]},
                                       .poll_ms = options->poll_ms > 0 ? options->poll_ms : POLL_MS,
                                       .end_limit_ms = END_LIMIT_MS,
                                       .start_limit_ms = START_LIMIT_MS,
                                       .delete_again_ms = AGAIN_AFTER_MS,
                                       .id_first = options->id_first,
                                       .has_joined = options->has_joined,
                                       .context = options->context};
    return tm_remote_cloud__create(env, &driver, &remote, out, e);
}
