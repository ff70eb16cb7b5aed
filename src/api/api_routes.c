#include "api/api_routes.h"

#include "api/api_schema.h"
#include "base/number.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const struct tm_api_param event_params[] = {
    {"after", INT64_MAX, 0, "Only events with a number above it. A stream that is resumed says Last-Event-ID instead.",
     0},
    {"limit", 10000, 1000, "At most so many. Ask again with the last number as after.", TM_API_FROM_ONE},
    {"wait", 60, 0, "Where there is none yet: hold the request up to so many seconds until there is one.", 0},
    {"status", 1, 0, "Of a stream, 1: also the status, as events named status, at most one a second.", 0},
    {"brief", 1, 0, "1: of each only its number, time, kind and words, and of orders to rent and copies what they are.",
     0},
    {NULL, 0, 0, NULL, 0},
};
static const struct tm_api_param history_params[] = {
    {"points", 4000, 400, "At most so many points a curve.", 0},
    {NULL, 0, 0, NULL, 0},
};
static const struct tm_api_param log_params[] = {
    {"instance", INT64_MAX, 0, "Only the output of this instance's worker; 0: all that have written something.", 0},
    {"last", 5000, 200, "Only so many lines of each, the last ones.", 0},
    {NULL, 0, 0, NULL, 0},
};
static const struct tm_api_param stop_params[] = {
    {"now", 1, 0, "1: at once, without a copy of the last step.", 0},
    {NULL, 0, 0, NULL, 0},
};
static const struct tm_api_param deadline_params[] = {
    {"seconds", 1LL << 40, 0,
     "Of the whole job, from its start, in the cloud's time; none, or 0: it has none from now on.",
     TM_API_MUST | TM_API_OR_NONE},
    {NULL, 0, 0, NULL, 0},
};
static const struct tm_api_param budget_params[] = {
    {"cents", 1LL << 40, 0, "Of the whole job, in hundredths of a dollar; none, or 0: it has none from now on.",
     TM_API_MUST | TM_API_OR_NONE},
    {NULL, 0, 0, NULL, 0},
};
static const struct tm_api_param drain_params[] = {
    {"instance", INT64_MAX, 0, "Its number, as the status has it.", TM_API_MUST | TM_API_FROM_ONE},
    {NULL, 0, 0, NULL, 0},
};
static const struct tm_api_param page_params[] = {
    {"after", INT64_MAX, 0, "Leave out so many.", 0},
    {"limit", 500, 100, "At most so many; next is null on the last page, else what to give as after.", TM_API_FROM_ONE},
    {NULL, 0, 0, NULL, 0},
};

static const struct tm_api_param plan_params[] = {
    {"pareto", 1, 0, "1: the trade-off between cost and time (--objective pareto).", 0},
    {NULL, 0, 0, NULL, 0},
};

#define JSON      "application/json"
#define OF_RUNS   (TM_API_OF_RUN | TM_API_OF_JOB)
#define OF_EITHER (TM_API_OF_RUN | TM_API_OF_DASHBOARD)

const struct tm_api_route tm_api__routes[] = {
    {"GET", "/v1/status", TM_API_STATUS, OF_RUNS, TM_API_WATCH, "The run as it stands: as tidemill status --json.",
     NULL, NULL, 200, JSON, "Status", false},
    {"GET", "/v1/events", TM_API_EVENTS, OF_RUNS, TM_API_WATCH,
     "What happened, oldest first: JSON lines, or server-sent events that go on (Accept: text/event-stream).",
     event_params, NULL, 200, "application/x-ndjson", "Event", true},
    {"GET", "/v1/history", TM_API_HISTORY, OF_RUNS, TM_API_WATCH,
     "The run over time, in seconds of real time: progress, fleet, pools, layouts, cost, copies, pauses, instances.",
     history_params, NULL, 200, JSON, "History", false},
    {"GET", "/v1/logs", TM_API_LOGS, OF_RUNS, TM_API_WATCH, "What workers printed: as tidemill logs --json.",
     log_params, NULL, 200, JSON, "Logs", false},
    {"GET", "/v1/prediction", TM_API_PREDICTION, OF_RUNS, TM_API_WATCH,
     "What was expected before it started; an empty object where nothing was.", NULL, NULL, 200, JSON, "Prediction",
     false},
    {"POST", "/v1/stop", TM_API_STOP, OF_RUNS, TM_API_STEER, "Stop with a copy of the last step.", stop_params, NULL,
     202, JSON, "State", false},
    {"POST", "/v1/deadline", TM_API_DEADLINE, OF_RUNS, TM_API_STEER, "Another deadline: as tidemill set --deadline.",
     deadline_params, NULL, 202, JSON, "Ordered", false},
    {"POST", "/v1/budget", TM_API_BUDGET, OF_RUNS, TM_API_STEER, "Another budget: as tidemill set --budget.",
     budget_params, NULL, 202, JSON, "Ordered", false},
    {"POST", "/v1/drain", TM_API_DRAIN, OF_RUNS, TM_API_STEER,
     "An instance is to go: its seat moves, another is rented in its place, then it is released.", drain_params, NULL,
     202, JSON, "Ordered", false},
    {"POST", "/v1/copy", TM_API_COPY, OF_RUNS, TM_API_STEER, "Make a copy set now.", NULL, NULL, 202, JSON, "Ordered",
     false},
    {"POST", "/v1/resume", TM_API_RESUME, TM_API_OF_JOB, TM_API_STEER,
     "Resume a run that was stopped: tidemill run --resume, with its own settings.", NULL, NULL, 202, JSON, "State",
     false},
    {"GET", "/metrics", TM_API_METRICS, TM_API_OF_RUN, TM_API_WATCH, "For Prometheus.", NULL, NULL, 200,
     "text/plain; version=0.0.4; charset=utf-8", NULL, false},
    {"GET", "/v1/jobs", TM_API_JOBS, TM_API_OF_DASHBOARD, TM_API_WATCH, "All runs that are known here, by name.",
     page_params, NULL, 200, JSON, "Jobs", false},
    {"POST", "/v1/plan", TM_API_PLAN, TM_API_OF_DASHBOARD, TM_API_STEER,
     "What to rent for a job: the body is a job file, the answer that of tidemill plan --json.", plan_params,
     "application/yaml", 200, JSON, "Plan", false},
    {"POST", "/v1/simulate", TM_API_SIMULATE, TM_API_OF_DASHBOARD, TM_API_STEER,
     "What would happen: the body is a job file, the answer that of tidemill simulate --json.", NULL,
     "application/yaml", 200, JSON, "Simulation", false},
    {"POST", "/v1/report", TM_API_REPORT, TM_API_OF_DASHBOARD, TM_API_STEER,
     "What would happen, as a page with pictures: the body is a job file, the answer that of tidemill simulate "
     "--report.",
     NULL, "application/yaml", 200, "text/html; charset=utf-8", NULL, false},
    {"GET", "/v1/session", TM_API_SESSION, TM_API_OF_DASHBOARD, TM_API_WATCH, "What whoever asks is allowed.", NULL,
     NULL, 200, JSON, "Session", false},
    {"POST", "/v1/session", TM_API_LOG_IN, TM_API_OF_DASHBOARD, TM_API_FOR_ALL,
     "Log in: the body is a token. The answer sets a cookie that only this page may send.", NULL, "text/plain", 200,
     JSON, "Session", false},
    {"DELETE", "/v1/session", TM_API_LOG_OUT, TM_API_OF_DASHBOARD, TM_API_WATCH, "Forget the cookie.", NULL, NULL, 200,
     JSON, "Session", false},
    {"GET", "/v1/openapi.json", TM_API_OPENAPI, OF_EITHER, TM_API_WATCH, "This description.", NULL, NULL, 200, JSON,
     "Description", false},
    {NULL, NULL, TM_API_STATUS, 0, TM_API_WATCH, NULL, NULL, NULL, 0, NULL, NULL, false},
};

static const char jobs_prefix[] = "/v1/jobs/";

static void put_path(const struct tm_api_route *route, bool dashboard, struct tm_text *out)
{
    if (dashboard && (route->of & TM_API_OF_JOB) != 0)
        tm_text_printf(out, "%s{job}%s", jobs_prefix, route->path + strlen("/v1"));
    else
        tm_text_puts(out, route->path);
}

/* "/v1/jobs/NAME/status" is NAME's "/v1/status". */
static bool has_path(const struct tm_api_route *route, bool dashboard, struct tm_slice path, struct tm_slice *job)
{
    size_t prefix = strlen(jobs_prefix);
    *job = (struct tm_slice){0};
    if (!dashboard) return (route->of & TM_API_OF_RUN) != 0 && tm_slice_is(path, route->path);
    if ((route->of & TM_API_OF_DASHBOARD) != 0 && tm_slice_is(path, route->path)) return true;
    if ((route->of & TM_API_OF_JOB) == 0 || path.length <= prefix || memcmp(path.at, jobs_prefix, prefix) != 0)
        return false;
    const char *name = path.at + prefix;
    const char *slash = memchr(name, '/', path.length - prefix);
    if (slash == NULL || slash == name || slash - name >= TM_API_JOB_NAME_MAX) return false;
    *job = (struct tm_slice){.at = name, .length = (size_t)(slash - name)};
    struct tm_slice rest = {.at = slash, .length = (size_t)(path.at + path.length - slash)};
    return tm_slice_is(rest, route->path + strlen("/v1"));
}

static bool has_param(const struct tm_api_route *route, struct tm_slice name)
{
    for (const struct tm_api_param *param = route->params; param != NULL && param->name != NULL; param++)
        if (tm_slice_is(name, param->name)) return true;
    return false;
}

/* What is misspelt must not pass for what was left out. */
static bool has_unknown(struct tm_slice target, struct tm_api_asked *out)
{
    const char *end = target.at + target.length;
    const char *at = memchr(target.at, '?', target.length);
    while (at != NULL && at < end) {
        at++;
        const char *next = memchr(at, '&', (size_t)(end - at));
        size_t length = (size_t)((next != NULL ? next : end) - at);
        const char *equals = memchr(at, '=', length);
        struct tm_slice name = {.at = at, .length = equals != NULL ? (size_t)(equals - at) : length};
        if (length > 0 && !has_param(out->route, name)) {
            out->unknown = name;
            return true;
        }
        at = next;
    }
    return false;
}

static bool read_param(const struct tm_api_param *param, struct tm_slice given, int64_t *out)
{
    *out = param->usual;
    if (given.at == NULL) return (param->rules & TM_API_MUST) == 0;
    if ((param->rules & TM_API_OR_NONE) != 0 && tm_slice_is(given, "none")) {
        *out = 0;
        return true;
    }
    return tm_number_i64(given.at, given.length, out) && *out >= ((param->rules & TM_API_FROM_ONE) != 0) &&
           *out <= param->max;
}

static int read_params(const struct tm_http_head *head, struct tm_api_asked *out)
{
    const struct tm_api_param *params = out->route->params;
    if (has_unknown(head->target, out)) return 400;
    for (size_t i = 0; params != NULL && params[i].name != NULL; i++) {
        assert(i < TM_API_PARAMS_MAX);
        if (!read_param(&params[i], tm_http_query(head->target, params[i].name), &out->params[i])) {
            out->wrong = &params[i];
            return 400;
        }
    }
    return 0;
}

int tm_api__find(const struct tm_http_head *head, bool dashboard, struct tm_api_asked *out)
{
    struct tm_slice path = tm_http_path(head->target);
    struct tm_slice job;
    bool headless = tm_slice_is(head->method, "HEAD");
    *out = (struct tm_api_asked){.route = NULL};
    for (const struct tm_api_route *route = tm_api__routes; route->method != NULL; route++) {
        if (!has_path(route, dashboard, path, &job)) continue;
        size_t used = strlen(out->allow);
        (void)snprintf(out->allow + used, sizeof out->allow - used, "%s%s", used > 0 ? ", " : "", route->method);
        out->route = route;
        out->job = job;
        if (tm_slice_is(head->method, route->method) || (headless && strcmp(route->method, "GET") == 0))
            return read_params(head, out);
    }
    return out->route == NULL ? 404 : 405;
}

int64_t tm_api__param(const struct tm_api_asked *asked, const char *name)
{
    const struct tm_api_param *params = asked->route->params;
    size_t i = 0;
    while (strcmp(params[i].name, name) != 0)
        i++;
    return asked->params[i];
}

/* ---- OpenAPI ---- */

/* A number, or the word. */
static void describe_param(const struct tm_api_param *param, struct tm_jsonout *json)
{
    bool word = (param->rules & TM_API_OR_NONE) != 0;
    if (word) {
        tm_jsonout_list(json, "type");
        tm_jsonout_string(json, NULL, "integer");
        tm_jsonout_string(json, NULL, "string");
        tm_jsonout_end(json);
        tm_jsonout_string(json, "pattern", "^none$");
    } else {
        tm_jsonout_string(json, "type", "integer");
    }
    tm_jsonout_integer(json, "minimum", (param->rules & TM_API_FROM_ONE) != 0);
    tm_jsonout_integer(json, "maximum", param->max);
    if ((param->rules & TM_API_MUST) == 0) tm_jsonout_integer(json, "default", param->usual);
}

static void describe_params(const struct tm_api_route *route, bool dashboard, struct tm_jsonout *json)
{
    tm_jsonout_list(json, "parameters");
    if (dashboard && (route->of & TM_API_OF_JOB) != 0) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "name", "job");
        tm_jsonout_string(json, "in", "path");
        tm_jsonout_bool(json, "required", true);
        tm_jsonout_string(json, "description", "The name of a run, as /v1/jobs lists it.");
        tm_jsonout_object(json, "schema");
        tm_jsonout_string(json, "type", "string");
        tm_jsonout_end(json);
        tm_jsonout_end(json);
    }
    for (const struct tm_api_param *param = route->params; param != NULL && param->name != NULL; param++) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_string(json, "name", param->name);
        tm_jsonout_string(json, "in", "query");
        if ((param->rules & TM_API_MUST) != 0) tm_jsonout_bool(json, "required", true);
        tm_jsonout_string(json, "description", param->help);
        tm_jsonout_object(json, "schema");
        describe_param(param, json);
        tm_jsonout_end(json);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
}

/* Text where there is no shape. */
static void describe_content(const char *type, const char *shape, struct tm_jsonout *json)
{
    static const char place[] = "#/components/schemas/";
    char ref[sizeof place + 32];
    tm_jsonout_object(json, type);
    tm_jsonout_object(json, "schema");
    if (shape == NULL) {
        tm_jsonout_string(json, "type", "string");
    } else {
        (void)snprintf(ref, sizeof ref, "%s%s", place, shape);
        tm_jsonout_string(json, "$ref", ref);
    }
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void describe_error(const char *status, const char *words, struct tm_jsonout *json)
{
    tm_jsonout_object(json, status);
    tm_jsonout_string(json, "description", words);
    tm_jsonout_object(json, "content");
    describe_content(JSON, "Error", json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}

static void describe_answers(const struct tm_api_route *route, bool dashboard, struct tm_jsonout *json)
{
    char status[12];
    tm_jsonout_object(json, "responses");
    assert(route->status >= 100 && route->status <= 999);
    status[0] = (char)('0' + route->status / 100);
    status[1] = (char)('0' + route->status / 10 % 10);
    status[2] = (char)('0' + route->status % 10);
    status[3] = '\0';
    tm_jsonout_object(json, status);
    tm_jsonout_string(json, "description", route->help);
    tm_jsonout_object(json, "content");
    describe_content(route->type, route->shape, json);
    if (route->streams) describe_content("text/event-stream", NULL, json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    describe_error("400", "A parameter is wrong, is missing or is not known, or the body is wrong.", json);
    describe_error("401", "No token, or a wrong one.", json);
    describe_error("403", "The scope, or where the request comes from, does not allow it.", json);
    if (dashboard && (route->of & TM_API_OF_JOB) != 0)
        describe_error("404", "There is no such job, or no such instance.", json);
    else if (route->what == TM_API_DRAIN || route->what == TM_API_LOGS)
        describe_error("404", "There is no such instance.", json);
    if (route->scope == TM_API_STEER) describe_error("409", "Not in the state that it is in.", json);
    if (route->body != NULL) describe_error("413", "The body is too long.", json);
    if (route->what == TM_API_PLAN || route->what == TM_API_SIMULATE || route->what == TM_API_REPORT)
        describe_error("422", "The command's own words: what is wrong with the job, or that nothing satisfies it.",
                       json);
    if (dashboard)
        describe_error("429", "Off loopback: too many requests, or wrong tokens. Retry-After says when.", json);
    describe_error("503", "Not now: ask again.", json);
    tm_jsonout_end(json);
}

static void describe_method(const struct tm_api_route *route, bool dashboard, struct tm_jsonout *json)
{
    static const char *const methods[][2] = {{"GET", "get"}, {"POST", "post"}, {"DELETE", "delete"}};
    static const char *const scopes[] = {"", "watch", "steer"};
    size_t m = 0;
    while (m + 1 < sizeof methods / sizeof methods[0] && strcmp(methods[m][0], route->method) != 0)
        m++;
    tm_jsonout_object(json, methods[m][1]);
    tm_jsonout_string(json, "summary", route->help);
    tm_jsonout_list(json, "security");
    if (route->scope != TM_API_FOR_ALL) {
        tm_jsonout_object(json, NULL);
        tm_jsonout_list(json, "bearer");
        tm_jsonout_string(json, NULL, scopes[route->scope]);
        tm_jsonout_end(json);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    describe_params(route, dashboard, json);
    if (route->body != NULL) {
        tm_jsonout_object(json, "requestBody");
        tm_jsonout_bool(json, "required", true);
        tm_jsonout_object(json, "content");
        describe_content(route->body, NULL, json);
        tm_jsonout_end(json);
        tm_jsonout_end(json);
    }
    describe_answers(route, dashboard, json);
    tm_jsonout_end(json);
}

/* Routes of one path stand together in the table. */
static void describe_paths(bool dashboard, struct tm_jsonout *json)
{
    int served = dashboard ? TM_API_OF_JOB | TM_API_OF_DASHBOARD : TM_API_OF_RUN;
    const char *open = NULL;
    struct tm_text path;
    tm_text_init(&path, 512);
    tm_jsonout_object(json, "paths");
    for (const struct tm_api_route *route = tm_api__routes; route->method != NULL; route++) {
        if ((route->of & served) == 0) continue;
        if (open == NULL || strcmp(open, route->path) != 0) {
            if (open != NULL) tm_jsonout_end(json);
            tm_text_clear(&path);
            put_path(route, dashboard, &path);
            tm_jsonout_object(json, tm_text_string(&path));
            open = route->path;
        }
        describe_method(route, dashboard, json);
    }
    if (open != NULL) tm_jsonout_end(json);
    tm_jsonout_end(json);
    if (tm_text_status(&path, NULL) != 0) json->out->failed = -(int)TM_ENOMEM;
    tm_text_deinit(&path);
}

void tm_api_describe(bool dashboard, const char *version, struct tm_jsonout *json)
{
    tm_jsonout_object(json, NULL);
    tm_jsonout_string(json, "openapi", "3.1.0");
    tm_jsonout_object(json, "info");
    tm_jsonout_string(json, "title", dashboard ? "Tidemill's dashboard" : "A run of Tidemill");
    tm_jsonout_string(json, "version", version);
    tm_jsonout_end(json);
    tm_jsonout_object(json, "components");
    tm_api__schemas_write(json);
    tm_jsonout_object(json, "securitySchemes");
    tm_jsonout_object(json, "bearer");
    tm_jsonout_string(json, "type", "http");
    tm_jsonout_string(json, "scheme", "bearer");
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    tm_jsonout_end(json);
    describe_paths(dashboard, json);
    tm_jsonout_end(json);
}
