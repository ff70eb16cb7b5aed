#include "api/api_logs.h"
#include "api/dashboard_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STATUS_AGE_MS = 700,
    HISTORY_AGE_MS = 1500,
    EVENTS_WAIT_S = 20,
    PATIENCE_MS = 5000,
    SOON_MS = 100,
    SEARCHED_MS = 200,
    BEAT_MS = 15000
};

struct asking {
    struct tm_dashboard *d;
    const struct tm_http_request *request;
    struct tm_api_asked asked;
    struct tm_dashboard_job *job; /* NULL: of none */
    enum tm_api_scope scope;
    struct tm_text *out;
};

/* ---- the page ---- */

static const char page_headers[] =
    "Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n"
    "X-Frame-Options: DENY\r\nContent-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n";

static void answer_file(struct tm_dashboard *d, const struct tm_http_request *request, struct tm_text *out)
{
    const char *type = NULL;
    const char *begin = NULL;
    size_t length = 0;
    (void)d;
    bool get = tm_slice_is(request->head->method, "GET") || tm_slice_is(request->head->method, "HEAD");
    if (!tm_web__find(tm_http_path(request->head->target), &type, &begin, &length)) {
        tm_api__refuse(request, 404, "", "not found; the page is /, the API is described in /v1/openapi.json", out);
    } else if (!get) {
        tm_api__refuse(request, 405, "Allow: GET\r\n", "GET it", out);
    } else {
        struct tm_http_reply reply = {
            .status = 200, .type = type, .more = page_headers, .body = begin, .length = length};
        tm_http_reply(request, &reply, out);
    }
}

/* ---- a run's own ---- */

static void put_target(const struct asking *a, char *out, size_t size)
{
    const struct tm_api_param *params = a->asked.route->params;
    int length = snprintf(out, size, "%s", a->asked.route->path);
    for (size_t i = 0; params != NULL && params[i].name != NULL; i++)
        length += snprintf(out + length, size - (size_t)length, "%c%s=%" PRId64, i == 0 ? '?' : '&', params[i].name,
                           a->asked.params[i]);
}

static void refuse_away(const struct asking *a, struct tm_api_content *out)
{
    (void)a;
    tm_api__content_refuse(out, 503, "the coordinator does not answer; training continues without it for a while");
}

static int64_t ask_record(const struct asking *a, struct tm_api_content *out)
{
    (void)a->job->tap.status(&a->job->tap); /* its last number */
    tm_api__produce(&a->job->source, &a->asked, a->request->waited, out);
    return out->hold_ms;
}

/* As its coordinator answers; what is written here is told from here, so that nobody waits for a coordinator. */
static int64_t ask_live(const struct asking *a, struct tm_api_content *out)
{
    char target[200];
    enum tm_api_what what = a->asked.route->what;
    bool steers = a->asked.route->scope == TM_API_STEER;
    bool told_here =
        what == TM_API_PREDICTION || (what == TM_API_LOGS && tm_api__are_logs_here(&a->job->source, &a->asked));
    if (a->job->remote == NULL && a->job->away == NULL && told_here) {
        tm_api__produce(&a->job->source, &a->asked, true, out);
        return 0;
    }
    put_target(a, target, sizeof target);
    if (a->request->cursor[0] == 0) {
        int64_t wait_ms = what == TM_API_EVENTS ? tm_api__param(&a->asked, "wait") * 1000 : 0;
        a->request->cursor[0] = (uint64_t)(a->request->now_ms + wait_ms + PATIENCE_MS);
        a->request->cursor[1] = (uint64_t)a->request->now_ms;
    }
    /* What was asked after this request came is new enough for what changes something. */
    int64_t age_ms = what == TM_API_HISTORY  ? HISTORY_AGE_MS
                     : what == TM_API_STATUS ? STATUS_AGE_MS
                                             : a->request->now_ms - (int64_t)a->request->cursor[1];
    const struct tm_fetch *fetch = tm_dashboard__fetch(a->d, a->job, steers ? "POST" : "GET", target, age_ms);
    bool patient = (uint64_t)a->request->now_ms < a->request->cursor[0];
    if (fetch == NULL && patient) return SOON_MS;
    if (fetch != NULL && fetch->status == 0 && a->job->away != NULL && !steers) return ask_record(a, out);
    if (fetch == NULL || fetch->status == 0) {
        refuse_away(a, out);
        return 0;
    }
    out->status = fetch->status;
    out->type = fetch->status == a->asked.route->status ? a->asked.route->type : "application/json";
    tm_text_append(&out->body, tm_text_string(&fetch->body), fetch->body.length);
    return 0;
}

static int64_t ask_job(const struct asking *a, struct tm_api_content *out)
{
    assert(a->job != NULL); /* its routes have one in their path */
    if (tm_dashboard__is_live(a->d, a->job)) return ask_live(a, out);
    if (a->job->away != NULL && a->job->owned && a->asked.route->scope == TM_API_STEER) {
        tm_api__content_refuse(out, 503, "its coordinator, on another machine, is not reached from here");
        return 0;
    }
    return ask_record(a, out);
}

/* ---- streams: the cursor is the last event told, when the status was, whether it was said to be away, when the run
 * began whose events are told (0: not known yet), and when the stream did ---- */

static int64_t number_in(const struct tm_text *document, const char *key)
{
    const char *at = strstr(tm_text_string(document), key);
    return at == NULL ? 0 : strtoll(at + strlen(key), NULL, 10);
}

/* When the run began, and its last number; false: not known now. A word from before the stream began says too little:
 * whoever comes back may know more. */
static bool look_at_run(const struct asking *a, bool live, uint64_t *out_begun, uint64_t *out_last)
{
    const uint64_t *cursor = a->request->cursor;
    if (!live) {
        const struct tm_run_status *status = a->job->tap.status(&a->job->tap);
        if (status == NULL) return false;
        *out_begun = (uint64_t)status->begun_utc_ms;
        *out_last = status->sequence;
        return true;
    }
    bool doubted = cursor[3] == 0 && cursor[0] > 0;
    int64_t age_ms = doubted ? a->request->now_ms - (int64_t)cursor[4] : BEAT_MS;
    const struct tm_fetch *fetch = tm_dashboard__fetch(a->d, a->job, "GET", "/v1/status", age_ms);
    if (fetch == NULL || fetch->status != 200 || (doubted && fetch->asked_ms < (int64_t)cursor[4])) return false;
    *out_begun = (uint64_t)number_in(&fetch->body, "\n  \"begun_utc_ms\": ");
    *out_last = (uint64_t)number_in(&fetch->body, "\n  \"sequence\": ");
    return *out_begun > 0;
}

/* Another run in the same place (run --again) has other events: whoever looks is to forget those that he has. */
static void begin_anew(const struct asking *a, bool live)
{
    uint64_t *cursor = a->request->cursor;
    uint64_t begun = 0, last = 0;
    if (!look_at_run(a, live, &begun, &last)) return;
    bool other = cursor[3] != 0 ? begun != cursor[3] : cursor[0] > last;
    cursor[3] = begun;
    if (!other) return;
    tm_api__stream_again(&cursor[0], a->out);
    cursor[1] = 0;
}

static bool stream_events(const struct asking *a, bool live)
{
    struct tm_api_asked next = a->asked;
    uint64_t *cursor = a->request->cursor;
    uint64_t before = cursor[0];
    if (live) {
        char target[200];
        (void)snprintf(target, sizeof target, "/v1/events?after=%" PRIu64 "&limit=1000&wait=%d&brief=%" PRId64,
                       cursor[0], EVENTS_WAIT_S, tm_api__param(&a->asked, "brief"));
        const struct tm_fetch *fetch = tm_dashboard__fetch(a->d, a->job, "GET", target, 1000);
        if (fetch != NULL && fetch->status == 0 && cursor[2] == 0) {
            cursor[2] = 1;
            tm_text_puts(a->out, "event: away\ndata: {}\n\n");
        }
        if (fetch == NULL || fetch->status != 200) return false;
        if (cursor[2] != 0) cursor[1] = 0; /* it is back: its status at once */
        cursor[2] = 0;
        tm_api__stream_events(tm_text_string(&fetch->body), fetch->body.length, cursor, a->out);
    } else {
        struct tm_api_content content;
        next.params[0] = (int64_t)cursor[0];
        next.params[2] = 0;
        if (a->job->tap.status(&a->job->tap) == NULL || a->job->tap.sequence <= cursor[0]) return false;
        tm_api__content_init(&content);
        tm_api__produce(&a->job->source, &next, true, &content);
        if (content.status == 200)
            tm_api__stream_events(tm_text_string(&content.body), content.body.length, cursor, a->out);
        tm_text_deinit(&content.body);
    }
    return cursor[0] != before;
}

/* In the place of the time: the status of a run that is over was told, as it was after this event. */
static uint64_t told_after(uint64_t sequence)
{
    return UINT64_MAX - sequence;
}

static bool is_told_after(uint64_t cursor)
{
    return cursor > INT64_MAX;
}

/* Of a run that is over it is told once, until it goes on. */
static void stream_status(const struct asking *a, bool live)
{
    uint64_t *cursor = a->request->cursor;
    if (live) {
        const struct tm_fetch *fetch = tm_dashboard__fetch(a->d, a->job, "GET", "/v1/status", STATUS_AGE_MS);
        if (fetch == NULL || fetch->status != 200) return;
        tm_api__stream_document("status", tm_text_string(&fetch->body), fetch->body.length, a->out);
        cursor[1] = (uint64_t)a->request->now_ms;
    } else if (a->job->tap.status(&a->job->tap) != NULL && cursor[1] != told_after(a->job->tap.sequence)) {
        struct tm_api_content content;
        struct tm_api_asked status = {.route = &tm_api__routes[0]};
        tm_api__content_init(&content);
        tm_api__produce(&a->job->source, &status, true, &content);
        if (content.status == 200) {
            tm_api__stream_document("status", tm_text_string(&content.body), content.body.length, a->out);
            cursor[1] = told_after(a->job->tap.sequence);
        }
        tm_text_deinit(&content.body);
    }
}

static int64_t stream(const struct asking *a)
{
    uint64_t *cursor = a->request->cursor;
    size_t before = 0;
    bool live = tm_dashboard__is_live(a->d, a->job);
    bool statuses = tm_api__param(&a->asked, "status") == 1;
    if (!a->request->streaming) {
        cursor[0] = tm_api__stream_begin(&a->asked, a->request->head);
        cursor[4] = (uint64_t)a->request->now_ms;
        tm_api__stream_head(a->out);
        before = a->out->length;
    }
    begin_anew(a, live);
    if (live && is_told_after(cursor[1])) cursor[1] = 0;
    bool more = stream_events(a, live);
    int64_t since_ms =
        cursor[1] == 0 || is_told_after(cursor[1]) ? TM_API_STATUS_EVERY_MS : a->request->now_ms - (int64_t)cursor[1];
    /* A long status goes out less often: 200 who watch a thousand instances are no load either. */
    if (statuses && (!more || cursor[1] == 0) && since_ms >= TM_API_STATUS_EVERY_MS) stream_status(a, live);
    if (a->out->length == before && a->request->waited && !statuses && !live) tm_text_puts(a->out, ":\n\n");
    if (more) return 1;
    return statuses && live ? TM_API_STATUS_EVERY_MS / 2 : live ? BEAT_MS : TM_API_STATUS_EVERY_MS;
}

/* ---- the dashboard's own ---- */

static void write_session(const struct asking *a, enum tm_api_scope scope, struct tm_api_content *out)
{
    static const char *const names[] = {"none", "watch", "steer"};
    struct tm_jsonout json;
    tm_jsonout_init(&json, &out->body);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "scope", names[scope]);
    tm_jsonout_string(&json, "version", a->d->options.version);
    tm_jsonout_end(&json);
}

static void log_in(const struct asking *a, struct tm_api_content *out, char *more, size_t size)
{
    struct tm_slice token = a->request->body;
    while (token.length > 0 && (token.at[token.length - 1] == '\n' || token.at[token.length - 1] == ' '))
        token.length--;
    enum tm_api_scope scope = tm_dashboard__token_scope(a->d, token);
    if (scope == TM_API_FOR_ALL) {
        tm_api__content_refuse(out, 401, "this is not the token that tidemill dashboard printed");
        if (a->d->guarded) tm_dashboard__wrong_token(&a->d->guard, a->request->peer, a->request->now_ms);
        return;
    }
    if (a->d->guarded) tm_dashboard__right_token(&a->d->guard, a->request->peer, a->request->now_ms);
    (void)snprintf(more, size, "Set-Cookie: %s=%s; Path=/; %sHttpOnly; SameSite=Strict\r\n", a->d->cookie,
                   scope == TM_API_STEER ? a->d->steer_token : a->d->watch_token, a->d->tls != NULL ? "Secure; " : "");
    write_session(a, scope, out);
}

static int64_t ask_program(const struct asking *a, struct tm_api_content *out)
{
    static const char *const plan[] = {"plan", "--json", NULL};
    static const char *const pareto[] = {"plan", "--json", "--objective", "pareto", NULL};
    static const char *const simulate[] = {"simulate", "--json", NULL};
    static const char *const report[] = {"simulate", NULL};
    uint64_t *cursor = a->request->cursor;
    struct tm_error e = {.text = ""};
    if (cursor[0] == 0) {
        bool is_plan = a->asked.route->what == TM_API_PLAN;
        bool is_report = a->asked.route->what == TM_API_REPORT;
        if (a->request->body.length == 0) {
            tm_api__content_refuse(out, 400, "the body must be a job file");
            return 0;
        }
        if (tm_dashboard__check_body(a->d, a->request->body, &e) != 0) {
            tm_api__content_refuse(out, 422, e.text);
            return 0;
        }
        cursor[0] = tm_dashboard__start(a->d,
                                        is_report                                 ? report
                                        : !is_plan                                ? simulate
                                        : tm_api__param(&a->asked, "pareto") == 1 ? pareto
                                                                                  : plan,
                                        is_report, a->request->body, &e);
        if (cursor[0] == 0) {
            tm_api__content_refuse(out, 503, e.text);
            return 0;
        }
    }
    return tm_dashboard__child_result(a->d, cursor[0], out) ? 0 : 1000;
}

static void resume(const struct asking *a, struct tm_api_content *out)
{
    struct tm_error e = {.text = ""};
    const struct tm_run_status *status = NULL;
    assert(a->job != NULL);
    if (tm_dashboard__is_live(a->d, a->job)) {
        tm_api__content_refuse(out, 409, "it is running");
        return;
    }
    status = a->job->tap.status(&a->job->tap);
    if (status != NULL && status->state == TM_JOB_FINISHED)
        tm_api__content_refuse(out, 409, "it is finished");
    else if (tm_dashboard__resume(a->d, a->job, &e) != 0)
        tm_api__content_refuse(out, 503, e.text);
    else {
        out->status = 202;
        a->job->looked_ms = -1;
        tm_text_puts(&out->body, "{\n  \"state\": \"starting\"\n}\n");
    }
}

static int64_t produce(const struct asking *a, struct tm_api_content *out, char *more, size_t size)
{
    struct tm_jsonout json;
    out->type = a->asked.route->type;
    out->status = a->asked.route->status;
    switch (a->asked.route->what) {
    case TM_API_JOBS:
        return tm_dashboard__list(a->d, &a->asked, a->request, out);
    case TM_API_PLAN:
    case TM_API_SIMULATE:
    case TM_API_REPORT:
        return ask_program(a, out);
    case TM_API_SESSION:
        write_session(a, a->scope, out);
        return 0;
    case TM_API_LOG_IN:
        log_in(a, out, more, size);
        return 0;
    case TM_API_LOG_OUT:
        (void)snprintf(more, size, "Set-Cookie: %s=; Path=/; Max-Age=0; %sHttpOnly; SameSite=Strict\r\n", a->d->cookie,
                       a->d->tls != NULL ? "Secure; " : "");
        write_session(a, TM_API_FOR_ALL, out);
        return 0;
    case TM_API_OPENAPI:
        tm_jsonout_init(&json, &out->body);
        tm_api_describe(true, a->d->options.version, &json);
        return 0;
    case TM_API_RESUME:
        assert(a->job != NULL);
        if (a->job->remote != NULL) return ask_job(a, out);
        resume(a, out);
        return 0;
    default:
        return ask_job(a, out);
    }
}

static int64_t answer_route(const struct asking *a)
{
    struct tm_api_content content;
    char more[200] = "";
    if (a->job != NULL && tm_api__wants_stream(&a->asked, a->request->head)) return stream(a);
    tm_api__content_init(&content);
    int64_t hold_ms = produce(a, &content, more, sizeof more);
    if (hold_ms == 0 && tm_text_status(&content.body, NULL) != 0)
        tm_api__content_refuse(&content, 503, "out of memory; try again");
    if (hold_ms == 0) tm_api__send(a->request, &content, more, a->out);
    tm_text_deinit(&content.body);
    return hold_ms;
}

/* 0, or the status and words of a refusal. A cookie is sent by the browser by itself: then the page must say that it is
 * ours. */
static int may_not(const struct asking *a, int found, bool by_cookie, const char **out_why)
{
    bool open = found == 0 && a->asked.route->scope == TM_API_FOR_ALL;
    bool reads = tm_slice_is(a->request->head->method, "GET") || tm_slice_is(a->request->head->method, "HEAD");
    *out_why = "log in with the token that tidemill dashboard printed, or give it as a bearer token";
    if (!open && a->scope == TM_API_FOR_ALL) return 401;
    if (found != 0) return 0;
    *out_why = "a request that changes something must come from the dashboard's own page";
    if (!reads && !open && by_cookie && tm_http_header(a->request->head, "origin").at == NULL) return 403;
    *out_why = "this token may only watch";
    return a->asked.route->scope == TM_API_STEER && a->scope != TM_API_STEER ? 403 : 0;
}

/* Off loopback; a request that was held was admitted when it came. */
static bool is_too_much(const struct asking *a)
{
    char more[48];
    if (!a->d->guarded || a->request->waited || a->request->streaming) return false;
    int64_t wait_ms = tm_dashboard__admit(&a->d->guard, a->request->peer, a->request->now_ms);
    if (wait_ms == 0) return false;
    (void)snprintf(more, sizeof more, "Retry-After: %" PRId64 "\r\n", (wait_ms + 999) / 1000);
    tm_api__refuse(a->request, 429, more, "too many requests, or wrong tokens: wait", a->out);
    return true;
}

/* Whoever asks for a run that has just begun does not wait for the next search. */
static struct tm_dashboard_job *job_asked(const struct asking *a)
{
    struct tm_dashboard_job *job = tm_dashboard__job(a->d, a->asked.job);
    bool again = a->request->waited || a->request->streaming;
    if (job != NULL || again || tm_dashboard__now_ms(a->d) - a->d->searched_ms < SEARCHED_MS) return job;
    tm_dashboard__search(a->d);
    return tm_dashboard__job(a->d, a->asked.job);
}

int64_t tm_dashboard__answer(void *context, const struct tm_http_request *request, struct tm_text *out)
{
    struct asking a = {.d = context, .request = request, .out = out};
    const char *why = "";
    bool by_cookie = false;
    struct tm_slice path = tm_http_path(request->head->target);
    bool host = tm_http_header(request->head, "host").at != NULL;
    if (is_too_much(&a)) return 0;
    bool file = path.length < 3 || memcmp(path.at, "/v1", 3) != 0;
    bool ours = tm_api__is_ours(request->head, &a.d->place) ||
                (file && tm_api__is_visit(request->head, &a.d->place)); /* a link on another page was clicked */
    if (!host || !ours) {
        tm_api__refuse(request, 403, "", "the dashboard answers its own page, by its own names", out);
        return 0;
    }
    if (file) {
        answer_file(a.d, request, out);
        return 0;
    }
    a.scope = tm_dashboard__scope(a.d, request->head, &by_cookie);
    if (a.d->guarded && !request->waited && !request->streaming && a.scope == TM_API_FOR_ALL &&
        tm_dashboard__gave_token(a.d, request->head))
        tm_dashboard__wrong_token(&a.d->guard, request->peer, request->now_ms);
    int found = tm_api__find(request->head, true, &a.asked);
    int refused = may_not(&a, found, by_cookie, &why);
    if (refused == 0 && found == 0 && a.asked.job.at != NULL) {
        a.job = job_asked(&a);
        if (a.job == NULL) refused = 404;
        why = "there is no such job; /v1/jobs lists them";
    }
    if ((refused != 0 || found != 0) && request->streaming) return 0; /* the run has gone: the stream ends */
    if (refused != 0 || found != 0) {
        if (refused != 0)
            tm_api__refuse(request, refused, refused == 401 ? "WWW-Authenticate: Bearer\r\n" : "", why, out);
        else
            tm_api__refuse_request(request, found, &a.asked, out);
        return 0;
    }
    return answer_route(&a);
}
