/* Orders to a run that goes on: set, drain, copy. Each asks first, and returns when the record has it. */
#include "api/api_client.h"
#include "base/doc.h"
#include "base/jsonout.h"
#include "base/number.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/confirm.h"
#include "run/find_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ANSWER_MS = 5000, WAIT_S = 5, PATIENCE_MS = 120000, BODY_MAX = 16 << 20, QUESTION_MAX = 400 };

#define STATE_OPTION                                                                                                   \
    {                                                                                                                  \
        .name = "state", .value = "DIR|NAME",                                                                          \
        .help = "state folder or name of the run (the one running, or the only one)"                                   \
    }
#define YES_OPTION                                                                                                     \
    {                                                                                                                  \
        .name = "yes", .letter = 'y', .help = "do not ask; required if the input is not a terminal"                    \
    }

const struct tm_option tm_set_command_options[] = {
    STATE_OPTION,
    {.name = "deadline",
     .value = "DURATION",
     .help = "of the whole job, from its start, in the cloud's time, as in the job file; or none"},
    {.name = "budget", .value = "DOLLARS", .help = "of the whole job; or none"},
    YES_OPTION,
    {.name = NULL},
};
const struct tm_option tm_drain_command_options[] = {STATE_OPTION, YES_OPTION, {.name = NULL}};
const struct tm_option tm_copy_command_options[] = {STATE_OPTION, YES_OPTION, {.name = NULL}};

struct steering {
    struct tm_cli *cli;
    const char *dir;
    struct tm_api_client *client;
    struct tm_run_status status; /* before the order */
    uint64_t after;              /* the last event seen */
    uint64_t step;               /* committed at the order */
    char text[TM_STATUS_TEXT_MAX];
};

static int begin(struct steering *s, struct tm_error *e)
{
    int rc = tm_run_find(s->cli->env, tm_given_text(s->cli, "state"), &s->cli->arena, &s->dir, e);
    if (rc != 0) return rc;
    if (!tm_run_is_owned(s->cli->env, s->dir)) return tm_error_set(e, TM_ENOTFOUND, "%s: it is not running", s->dir);
    s->client = tm_api_client_create(s->cli->env, s->dir);
    if (s->client == NULL) return tm_error_nomem(e);
    rc = tm_api_status(s->client, ANSWER_MS, &s->status, e);
    s->after = rc == 0 ? s->status.sequence : 0;
    return rc;
}

static void end(struct steering *s)
{
    tm_api_client_destroy(s->client);
    tm_run_status_deinit(&s->status);
}

/* ---- what the record says of it ---- */

/* Looks at one event. True: it is what is waited for. */
static bool is_order(struct steering *s, json_t *event)
{
    if (strcmp(json_string_value(json_object_get(event, "kind")), "steer") != 0) return false;
    s->step = (uint64_t)json_integer_value(json_object_get(json_object_get(event, "steer"), "step"));
    return true;
}

static bool is_copy(struct steering *s, json_t *event)
{
    if (strcmp(json_string_value(json_object_get(event, "kind")), "set_whole") != 0) return false;
    return (uint64_t)json_integer_value(json_object_get(json_object_get(event, "set_whole"), "step")) >= s->step;
}

/* Reads JSON lines up to the event that is waited for. */
static bool found(struct steering *s, const struct tm_text *lines, bool (*is)(struct steering *s, json_t *event))
{
    const char *at = tm_text_string(lines);
    const char *stop = at + lines->length;
    while (at < stop) {
        const char *line_end = memchr(at, '\n', (size_t)(stop - at));
        json_t *event = NULL;
        if (line_end == NULL) return false;
        int rc = tm_json_load("events", at, (size_t)(line_end - at), &event, NULL);
        at = line_end + 1;
        if (rc != 0) continue;
        json_t *number = json_object_get(event, "sequence");
        bool whole = json_is_integer(number) && json_is_string(json_object_get(event, "kind"));
        if (whole) s->after = (uint64_t)json_integer_value(number);
        bool is_it = whole && is(s, event);
        const char *text = json_string_value(json_object_get(event, "text"));
        if (is_it) (void)snprintf(s->text, sizeof s->text, "%s", text == NULL ? "" : text);
        json_decref(event);
        if (is_it) return true;
    }
    return false;
}

/* Events are told once they last: then the order holds whatever is killed. */
static int await(struct steering *s, bool (*is)(struct steering *s, json_t *event), const char *what,
                 struct tm_error *e)
{
    char target[80];
    struct tm_text body;
    int64_t end_ms = s->cli->env->monotonic_ns(s->cli->env) / 1000000 + PATIENCE_MS;
    bool done = false;
    int rc = 0;
    tm_text_init(&body, BODY_MAX);
    while (!done) {
        if (s->cli->env->monotonic_ns(s->cli->env) / 1000000 > end_ms) {
            rc = tm_error_set(e, TM_ETIMEOUT, "%s was ordered %d s ago, and is not there yet; see: tidemill events",
                              what, PATIENCE_MS / 1000);
            break;
        }
        (void)snprintf(target, sizeof target, "/v1/events?after=%" PRIu64 "&wait=%d", s->after, WAIT_S);
        tm_text_clear(&body);
        rc = tm_api_ask(s->client, "GET", target, (WAIT_S + 5) * 1000, &body, e);
        if (rc == -(int)TM_ENOMEM || !tm_run_is_owned(s->cli->env, s->dir)) break;
        if (rc != 0) s->cli->env->sleep_ms(s->cli->env, 100); /* its coordinator may be starting again */
        done = rc == 0 && found(s, &body, is);
    }
    tm_text_deinit(&body);
    if (rc == 0 && !done) rc = tm_error_set(e, TM_EPEER, "the run has ended before %s was there", what);
    return rc;
}

static int order(struct steering *s, const char *target, struct tm_error *e)
{
    struct tm_text body;
    tm_text_init(&body, 1 << 16);
    int rc = tm_api_ask(s->client, "POST", target, ANSWER_MS, &body, e);
    tm_text_deinit(&body);
    return rc != 0 ? rc : await(s, is_order, "it", e);
}

static void put_done(const struct steering *s, const char *key, struct tm_jsonout *json)
{
    if (s->cli->json)
        tm_jsonout_string(json, key, s->text);
    else
        tm_text_printf(&s->cli->out, "%s: %s\n", s->status.job.name, s->text);
}

static void put_begin(const struct steering *s, struct tm_jsonout *json)
{
    tm_jsonout_init(json, &s->cli->out);
    if (!s->cli->json) return;
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "job", s->status.job.name);
}

/* ---- set ---- */

struct limits {
    bool deadline;
    bool budget;
    int64_t deadline_ms; /* 0: none */
    int64_t budget_microusd;
};

static int read_limit(const struct tm_cli *cli, const char *name, enum tm_unit_kind kind, int64_t least,
                      bool *out_given, int64_t *out, struct tm_error *e)
{
    const char *text = tm_given_text(cli, name);
    *out_given = text != NULL;
    *out = 0;
    if (text == NULL || strcmp(text, "none") == 0) return 0;
    if (tm_unit_parse(kind, text, strlen(text), out, e) == 0 && *out >= least) return 0;
    return tm_error_set(e, TM_EUSAGE, "--%s: expected %s or none, got \"%.40s\"", name,
                        kind == TM_UNIT_MONEY ? "dollars, at least 0.01," : "a duration of at least 1s", text);
}

static const char *limit_words(enum tm_unit_kind kind, double value, char text[TM_UNITS_TEXT_MAX])
{
    if (!(value > 0)) return "none";
    return tm_unit_print(kind, (int64_t)llround(value * (kind == TM_UNIT_MONEY ? 1e6 : 1000)), text);
}

static int confirm_limits(const struct steering *s, const struct limits *l, struct tm_error *e)
{
    char question[QUESTION_MAX], now[TM_UNITS_TEXT_MAX], then[TM_UNITS_TEXT_MAX];
    int length = snprintf(question, sizeof question, "%s: ", s->status.job.name);
    if (l->deadline)
        length += snprintf(question + length, sizeof question - (size_t)length, "deadline %s instead of %s",
                           limit_words(TM_UNIT_DURATION, (double)l->deadline_ms / 1000, then),
                           limit_words(TM_UNIT_DURATION, s->status.deadline_s, now));
    if (l->budget)
        length += snprintf(question + length, sizeof question - (size_t)length, "%sbudget %s instead of %s",
                           l->deadline ? ", " : "", limit_words(TM_UNIT_MONEY, (double)l->budget_microusd / 1e6, then),
                           limit_words(TM_UNIT_MONEY, s->status.budget_usd, now));
    (void)snprintf(question + length, sizeof question - (size_t)length, "?");
    return tm_confirm(s->cli, question, e);
}

static int set_limits(struct steering *s, const struct limits *l, struct tm_error *e)
{
    char target[80];
    struct tm_jsonout json;
    int rc = confirm_limits(s, l, e);
    if (rc != 0) return rc;
    put_begin(s, &json);
    if (l->deadline) {
        (void)snprintf(target, sizeof target, "/v1/deadline?seconds=%" PRId64, l->deadline_ms / 1000);
        rc = order(s, target, e);
        if (rc == 0) put_done(s, "deadline", &json);
    }
    if (rc == 0 && l->budget) {
        (void)snprintf(target, sizeof target, "/v1/budget?cents=%" PRId64, l->budget_microusd / 10000);
        rc = order(s, target, e);
        if (rc == 0) put_done(s, "budget", &json);
    }
    if (s->cli->json) tm_jsonout_end(&json);
    return rc;
}

int tm_cmd_set(struct tm_cli *cli, struct tm_error *e)
{
    struct steering s = {.cli = cli};
    struct limits l;
    if (cli->argument_count > 0)
        return tm_error_set(e, TM_EUSAGE, "unexpected argument \"%.60s\"; name a run with --state", cli->arguments[0]);
    int rc = read_limit(cli, "deadline", TM_UNIT_DURATION, 1000, &l.deadline, &l.deadline_ms, e);
    if (rc == 0) rc = read_limit(cli, "budget", TM_UNIT_MONEY, 10000, &l.budget, &l.budget_microusd, e);
    if (rc != 0) return rc;
    if (!l.deadline && !l.budget) return tm_error_set(e, TM_EUSAGE, "what is to be set? --deadline, --budget, or both");
    rc = begin(&s, e);
    if (rc == 0) rc = set_limits(&s, &l, e);
    end(&s);
    return rc;
}

/* ---- drain ---- */

int tm_cmd_drain(struct tm_cli *cli, struct tm_error *e)
{
    struct steering s = {.cli = cli};
    char target[80], question[QUESTION_MAX];
    struct tm_jsonout json;
    int64_t instance = 0;
    const char *text = cli->argument_count == 1 ? cli->arguments[0] : "";
    if (!tm_number_i64(text, strlen(text), &instance) || instance <= 0)
        return tm_error_set(e, TM_EUSAGE, "expected the number of one instance, as tidemill status shows it");
    int rc = begin(&s, e);
    if (rc == 0) {
        (void)snprintf(question, sizeof question, "%s: let instance %" PRId64 " go, and rent another in its place?",
                       s.status.job.name, instance);
        rc = tm_confirm(cli, question, e);
    }
    (void)snprintf(target, sizeof target, "/v1/drain?instance=%" PRId64, instance);
    if (rc == 0) rc = order(&s, target, e);
    if (rc == 0) {
        put_begin(&s, &json);
        put_done(&s, "drain", &json);
        if (cli->json) tm_jsonout_end(&json);
    }
    end(&s);
    return rc;
}

/* ---- copy ---- */

int tm_cmd_copy(struct tm_cli *cli, struct tm_error *e)
{
    struct steering s = {.cli = cli};
    char question[QUESTION_MAX];
    struct tm_jsonout json;
    if (cli->argument_count > 0)
        return tm_error_set(e, TM_EUSAGE, "unexpected argument \"%.60s\"; name a run with --state", cli->arguments[0]);
    int rc = begin(&s, e);
    if (rc == 0) {
        (void)snprintf(question, sizeof question, "%s: make a copy now?", s.status.job.name);
        rc = tm_confirm(cli, question, e);
    }
    if (rc == 0) rc = order(&s, "/v1/copy", e);
    if (rc == 0) rc = await(&s, is_copy, "the copy", e);
    if (rc == 0) {
        put_begin(&s, &json);
        put_done(&s, "copy", &json);
        if (cli->json) tm_jsonout_end(&json);
    }
    end(&s);
    return rc;
}
