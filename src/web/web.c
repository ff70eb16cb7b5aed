#include "web/web.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"
#include "base/number.h"
#include "web/tape.h"

#include <assert.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    SOCKETS_MAX = 3 * TM_WEB_CALLS_MAX, /* with those of name lookups */
    CONNECT_MS = 10000,
    LOOK_MS = 10,
    HELD_MAX_MS = 120000,
    PAUSE_FIRST_MS = 100,
    PAUSE_MAX_MS = 20000,
    URL_MAX = 16384,
    HEADERS_MAX = 32768,
};

static const int64_t ms_ns = 1000000;

enum call_state { CALL_TRIES, CALL_PLAYED, CALL_PAUSES, CALL_DONE };

struct tm_web_call {
    struct tm_web *web;
    struct tm_web_call *next;
    struct tm_web_request request;
    enum call_state state;
    int64_t deadline_ns;
    int64_t next_ns; /* CALL_PAUSES: of the next try */
    int64_t held_ns; /* since when credentials are waited for; 0: they are not */
    int64_t held_max_ns;
    CURL *easy;
    struct curl_slist *headers;
    struct tm_web_answer answer;
    char *asked; /* what goes on a tape; NULL: there is none */
    bool too_long;
    int rc;
    struct tm_error error;
};

struct tm_web {
    struct tm_env *env;
    CURLM *multi;
    struct tm_web_call *calls; /* all that have not ended */
    size_t call_count;
    int64_t timer_ns; /* when curl wants to be called; INT64_MAX: not */
    size_t socket_count;
    struct {
        int fd;
        int what; /* CURL_POLL_... */
    } sockets[SOCKETS_MAX];
};

static int64_t now_ns(const struct tm_web *web)
{
    return web->env->monotonic_ns(web->env);
}

/* ---- curl's callbacks ---- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *own)
{
    (void)easy;
    (void)own;
    struct tm_web *web = context;
    size_t at = 0;
    while (at < web->socket_count && web->sockets[at].fd != fd)
        at++;
    if (what == CURL_POLL_REMOVE) {
        if (at < web->socket_count) web->sockets[at] = web->sockets[--web->socket_count];
        return 0;
    }
    if (at == SOCKETS_MAX) return -1;
    if (at == web->socket_count) web->socket_count++;
    web->sockets[at].fd = fd;
    web->sockets[at].what = what;
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *context)
{
    (void)multi;
    struct tm_web *web = context;
    web->timer_ns = timeout_ms < 0 ? INT64_MAX : now_ns(web) + timeout_ms * ms_ns;
    return 0;
}

/* What we start does not inherit connections. */
static int on_new_socket(void *context, curl_socket_t fd, curlsocktype purpose)
{
    (void)context;
    (void)purpose;
    return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 ? CURL_SOCKOPT_OK : CURL_SOCKOPT_ERROR;
}

static size_t on_body(char *data, size_t size, size_t count, void *context)
{
    struct tm_web_call *call = context;
    struct tm_web_answer *answer = &call->answer;
    size_t length = size * count;
    long status = 0;
    (void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (call->request.into != NULL && status >= 200 && status < 300) {
        if (length > call->request.room - answer->received) {
            call->too_long = true;
            return 0;
        }
        memcpy((char *)call->request.into + answer->received, data, length);
        answer->received += length;
        return length;
    }
    tm_text_append(&answer->body, data, length);
    return answer->body.failed == 0 ? length : 0;
}

static bool is_header(const char *line, size_t length, const char *name, const char **out, size_t *out_length)
{
    size_t name_length = strlen(name);
    if (length <= name_length || line[name_length] != ':' || strncasecmp(line, name, name_length) != 0) return false;
    const char *at = line + name_length + 1;
    const char *end = line + length;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    *out = at;
    *out_length = (size_t)(end - at);
    return true;
}

static void copy_word(char *to, size_t room, const char *from, size_t length)
{
    (void)snprintf(to, room, "%.*s", (int)(length < room ? length : room - 1), from);
}

int64_t tm_web__retry_after_ms(const char *value, size_t length, int64_t now_ms)
{
    char text[64];
    int64_t seconds = 0;
    if (tm_number_i64(value, length, &seconds)) return seconds > 0 && seconds < 86400 ? seconds * 1000 : 0;
    copy_word(text, sizeof text, value, length);
    time_t at = curl_getdate(text, NULL);
    int64_t wait = at < 0 ? 0 : (int64_t)at * 1000 - now_ms;
    return wait > 0 && wait < 86400 * 1000LL ? wait : 0;
}

static size_t on_header(char *line, size_t size, size_t count, void *context)
{
    struct tm_web_call *call = context;
    struct tm_web_answer *answer = &call->answer;
    struct tm_env *env = call->web->env;
    size_t length = size * count;
    const char *value = NULL;
    size_t n = 0;
    char text[64];
    if (length > 5 && strncmp(line, "HTTP/", 5) == 0) { /* a new head: what one before it said is void */
        answer->etag[0] = answer->operation[0] = answer->generation[0] = '\0';
        answer->total = -1;
    }
    if (is_header(line, length, "etag", &value, &n)) copy_word(answer->etag, sizeof answer->etag, value, n);
    bool operation = is_header(line, length, "azure-asyncoperation", &value, &n);
    if (operation || (answer->operation[0] == '\0' && is_header(line, length, "location", &value, &n)))
        copy_word(answer->operation, sizeof answer->operation, value, n < sizeof answer->operation ? n : 0);
    if (is_header(line, length, "x-goog-generation", &value, &n))
        copy_word(answer->generation, sizeof answer->generation, value, n);
    if (is_header(line, length, "x-amz-bucket-region", &value, &n))
        copy_word(answer->region, sizeof answer->region, value, n);
    if (is_header(line, length, "retry-after", &value, &n))
        answer->retry_after_ms = tm_web__retry_after_ms(value, n, env->now_ms(env));
    if (is_header(line, length, "date", &value, &n)) {
        copy_word(text, sizeof text, value, n);
        time_t at = curl_getdate(text, NULL);
        answer->date_ms = at > 0 ? (int64_t)at * 1000 : 0;
    }
    if (is_header(line, length, "content-range", &value, &n)) {
        const char *slash = memchr(value, '/', n);
        int64_t total = -1;
        if (slash != NULL && tm_number_i64(slash + 1, n - (size_t)(slash + 1 - value), &total) && total >= 0)
            answer->total = total;
    }
    return length;
}

/* ---- one try ---- */

bool tm_web__set_clock(struct tm_env *env, const struct tm_web_answer *answer, _Atomic int64_t *ahead_ms)
{
    static const int64_t skew_ms = 60000;
    if (answer->date_ms <= 0) return false;
    int64_t ahead = answer->date_ms - env->now_ms(env);
    int64_t off = ahead - atomic_load(ahead_ms);
    if (off <= skew_ms && off >= -skew_ms) return false;
    tm_log(TM_LOG_WARN, "the clock of this machine is %lld s %s that of the service: it is taken for wrong",
           (long long)((ahead < 0 ? -ahead : ahead) / 1000), ahead < 0 ? "ahead of" : "behind");
    atomic_store(ahead_ms, ahead);
    return true;
}

int64_t tm_web__pause_ms(int tries, uint64_t random, int64_t retry_after_ms)
{
    int64_t most = PAUSE_FIRST_MS;
    for (int i = 1; i < tries && most < PAUSE_MAX_MS; i++)
        most *= 2;
    if (most > PAUSE_MAX_MS) most = PAUSE_MAX_MS;
    int64_t pause = most / 2 + (int64_t)(random % (uint64_t)(most / 2 + 1));
    return pause > retry_after_ms ? pause : retry_after_ms;
}

static void clear_try(struct tm_web_call *call)
{
    if (call->easy != NULL) {
        (void)curl_multi_remove_handle(call->web->multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    curl_slist_free_all(call->headers);
    tm_free(call->asked);
    call->asked = NULL;
    call->easy = NULL;
    call->headers = NULL;
}

static void finish(struct tm_web_call *call, int rc)
{
    clear_try(call);
    call->state = CALL_DONE;
    call->rc = rc;
}

static int add_header(struct tm_web_call *call, const char *line)
{
    struct curl_slist *list = curl_slist_append(call->headers, line);
    if (list == NULL) return -(int)TM_ENOMEM;
    call->headers = list;
    return 0;
}

/* Lines of text to curl's list; a body without a type gets none. */
static int add_headers(struct tm_web_call *call, const struct tm_text *lines)
{
    char line[HEADERS_MAX];
    bool typed = false;
    int rc = add_header(call, "Expect:");
    for (const char *at = tm_text_string(lines); rc == 0 && *at != '\0';) {
        size_t length = strcspn(at, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)length, at);
        typed = typed || strncasecmp(line, "content-type:", 13) == 0;
        if (length > 0) rc = add_header(call, line);
        at += length + (at[length] == '\n');
    }
    if (rc == 0 && !typed) rc = add_header(call, "Content-Type:");
    return rc;
}

static CURLcode set_pem(CURL *easy, CURLoption option, const char *pem)
{
    if (pem == NULL) return CURLE_OK;
    struct curl_blob blob = {.data = (void *)pem, .len = strlen(pem), .flags = CURL_BLOB_COPY};
    return curl_easy_setopt(easy, option, &blob);
}

static CURLcode set_tls(CURL *easy, const struct tm_web_tls *tls)
{
    if (tls == NULL) return CURLE_OK;
    CURLcode bad = set_pem(easy, CURLOPT_CAINFO_BLOB, tls->authority);
    if (bad == CURLE_OK && tls->authority != NULL) bad = curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    if (bad == CURLE_OK) bad = set_pem(easy, CURLOPT_SSLCERT_BLOB, tls->certificate);
    if (bad == CURLE_OK) bad = set_pem(easy, CURLOPT_SSLKEY_BLOB, tls->key);
    if (bad == CURLE_OK && tls->unchecked) bad = curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
    if (bad == CURLE_OK && tls->unchecked) bad = curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    return bad;
}

/* libcurl before 7.85, on VMs of Ubuntu 22.04, has only the older form. */
static CURLcode set_protocols(CURL *easy)
{
    CURLcode bad = curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    if (bad != CURLE_UNKNOWN_OPTION) return bad;
    CURL_IGNORE_DEPRECATION(bad = curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));)
    return bad;
}

static CURLcode set_options(struct tm_web_call *call, const char *url, int64_t left_ms)
{
    CURL *easy = call->easy;
    const struct tm_web_request *r = &call->request;
    CURLcode bad = CURLE_OK;
#define SET(option, value)                                                                                             \
    if (bad == CURLE_OK) bad = curl_easy_setopt(easy, option, value)
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PATH_AS_IS, 1L);
    if (bad == CURLE_OK) bad = set_protocols(easy);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_BUFFERSIZE, 256L << 10);
    SET(CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
    SET(CURLOPT_HTTPHEADER, call->headers);
    SET(CURLOPT_PRIVATE, (void *)call);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, (void *)call);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, (void *)call);
    SET(CURLOPT_SOCKOPTFUNCTION, on_new_socket);
    SET(CURLOPT_TIMEOUT_MS, (long)left_ms);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(left_ms < CONNECT_MS ? left_ms : CONNECT_MS));
    if (r->direct || r->socket != NULL) SET(CURLOPT_PROXY, "");
    if (r->socket != NULL) SET(CURLOPT_UNIX_SOCKET_PATH, r->socket);
    if (bad == CURLE_OK) bad = set_tls(easy, r->tls);
    if (r->silence_ms > 0) {
        SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
        SET(CURLOPT_LOW_SPEED_TIME, (long)((r->silence_ms + 999) / 1000));
    }
    if (strcmp(r->method, "HEAD") == 0) {
        SET(CURLOPT_NOBODY, 1L);
    } else if (r->body != NULL || strcmp(r->method, "POST") == 0 || strcmp(r->method, "PUT") == 0) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->length);
        SET(CURLOPT_POSTFIELDS, r->body != NULL ? r->body : "");
        SET(CURLOPT_CUSTOMREQUEST, r->method);
    } else {
        SET(CURLOPT_CUSTOMREQUEST, r->method);
    }
#undef SET
    return bad;
}

static int begin_try(struct tm_web_call *call, int64_t left_ms, struct tm_error *e)
{
    struct tm_text url;
    struct tm_text lines;
    struct tm_web_answer *answer = &call->answer;
    tm_text_init(&url, URL_MAX);
    tm_text_init(&lines, HEADERS_MAX - 1);
    tm_text_clear(&answer->body);
    *answer = (struct tm_web_answer){.body = answer->body, .total = -1, .tries = answer->tries + 1};
    call->too_long = false;
    int rc = call->request.prepare(call->request.context, &url, &lines, e);
    if (rc == 0) rc = tm_text_status(&url, e);
    if (rc == 0) rc = tm_text_status(&lines, e);
    if (rc == 0)
        call->asked = tm_tape__describe(call->request.method, tm_text_string(&url), tm_text_string(&lines),
                                        call->request.body, call->request.length);
    if (rc == 0 && tm_tape__is_replayed()) {
        call->state = CALL_PLAYED; /* the next step has it */
        tm_text_deinit(&url);
        tm_text_deinit(&lines);
        return 0;
    }
    if (rc == 0 && add_headers(call, &lines) != 0) rc = tm_error_nomem(e);
    if (rc == 0 && (call->easy = curl_easy_init()) == NULL) rc = tm_error_nomem(e);
    if (rc == 0 && set_options(call, tm_text_string(&url), left_ms) != CURLE_OK) rc = tm_error_nomem(e);
    if (rc == 0 && curl_multi_add_handle(call->web->multi, call->easy) != CURLM_OK) rc = tm_error_nomem(e);
    tm_text_deinit(&url);
    tm_text_deinit(&lines);
    return rc;
}

/* The deadline is the service's: what credentials took (a person who types a code, a slow program) is beside it. They
 * have limits of their own. */
static bool add_held(struct tm_web_call *call)
{
    if (call->held_ns == 0) return false;
    int64_t held_ns = now_ns(call->web) - call->held_ns;
    if (held_ns > call->held_max_ns) held_ns = call->held_max_ns;
    call->held_max_ns -= held_ns;
    call->deadline_ns += held_ns;
    call->held_ns = 0;
    return true;
}

/* Begins a try, unless the time is over. */
static void try_now(struct tm_web_call *call)
{
    bool held = add_held(call);
    int64_t left_ms = (call->deadline_ns - now_ns(call->web)) / ms_ns;
    call->state = CALL_TRIES;
    if (left_ms <= 0) {
        finish(call, tm_error_set(&call->error, TM_ETIMEOUT, "no %s in time", held ? "credentials" : "answer"));
        return;
    }
    int rc = begin_try(call, left_ms, &call->error);
    if (rc == -(int)TM_EBUSY) { /* it is no try */
        call->answer.tries--;
        call->state = CALL_PAUSES;
        call->held_ns = now_ns(call->web);
        call->next_ns = call->held_ns + LOOK_MS * ms_ns;
    } else if (rc != 0) {
        finish(call, rc);
    }
}

/* What came, or did not, as our error; 0: an answer. */
static int judge(struct tm_web_call *call, CURLcode result)
{
    struct tm_error *e = &call->error;
    const char *words = curl_easy_strerror(result);
    switch (result) {
    case CURLE_OK:
        return 0;
    case CURLE_OUT_OF_MEMORY:
        return tm_error_nomem(e);
    case CURLE_OPERATION_TIMEDOUT:
        return tm_error_set(e, TM_ETIMEOUT, "no answer in time");
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
        return tm_error_set(e, TM_EINPUT, "%s", words);
    case CURLE_WRITE_ERROR:
        if (call->answer.body.failed == -(int)TM_ENOMEM) return tm_error_nomem(e);
        if (call->too_long || call->answer.body.failed != 0)
            return tm_error_set(e, TM_ELIMIT, "the answer is longer than expected");
        return tm_error_set(e, TM_EPEER, "%s", words);
    default:
        return tm_error_set(e, TM_EPEER, "%s", words);
    }
}

static bool is_temporary(int rc, int status)
{
    if (rc == -(int)TM_EPEER || rc == -(int)TM_ETIMEOUT) return true;
    return rc == 0 && (status == 429 || status == 500 || status == 502 || status == 503 || status == 504);
}

/* A try is over, with an answer or our error: another one, or the call is. */
static void settle(struct tm_web_call *call, int rc)
{
    struct tm_web *web = call->web;
    struct tm_web_answer *answer = &call->answer;
    const struct tm_web_request *r = &call->request;
    tm_tape__keep(call->asked, call->request.secret, rc, call->error.text, answer);
    clear_try(call);
    bool again = is_temporary(rc, answer->status);
    if (rc == 0 && answer->status >= 300 && r->again != NULL && r->again(r->context, answer)) again = true;
    int64_t pause_ms = tm_web__pause_ms(answer->tries, web->env->random_u64(web->env), answer->retry_after_ms);
    int64_t next_ns = now_ns(web) + pause_ms * ms_ns;
    if (!again || answer->tries >= r->tries_max || next_ns >= call->deadline_ns) {
        finish(call, rc);
        return;
    }
    call->next_ns = next_ns;
    call->state = CALL_PAUSES;
}

static void end_try(struct tm_web_call *call, CURLcode result)
{
    struct tm_web_answer *answer = &call->answer;
    long status = 0;
    int rc = judge(call, result);
    (void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    answer->status = rc == 0 ? (int)status : 0;
    if (tm_debug_is_on(TM_DEBUG_WEB)) { /* nothing of the query or the headers: there are secrets in them */
        char *url = NULL;
        (void)curl_easy_getinfo(call->easy, CURLINFO_EFFECTIVE_URL, &url);
        tm_debug(TM_DEBUG_WEB, "%s %.*s, try %d: %d %s", call->request.method, url == NULL ? 0 : (int)strcspn(url, "?"),
                 url == NULL ? "" : url, answer->tries, answer->status, rc == 0 ? "" : call->error.text);
    }
    settle(call, rc);
}

/* A try that is answered from a tape. */
static void play(struct tm_web_call *call)
{
    struct tm_web_answer *answer = &call->answer;
    const struct tm_tape__body body = {call->request.body, call->request.length};
    int rc = tm_tape__play(call->asked, &body, answer, &call->error);
    size_t length = answer->body.length;
    if (rc == 0 && call->request.into != NULL && answer->status >= 200 && answer->status < 300) {
        answer->received = length < call->request.room ? length : call->request.room;
        memcpy(call->request.into, tm_text_string(&answer->body), answer->received);
    }
    settle(call, rc);
}

/* ---- all calls ---- */

static void drive_sockets(struct tm_web *web)
{
    struct tm_watch watches[SOCKETS_MAX];
    int64_t ignored = 0;
    int running = 0;
    size_t count = tm_web_watch(web, watches, SOCKETS_MAX, &ignored);
    if (count > 0 && web->env->net_watch(web->env, watches, count, 0, NULL) != 0) count = 0;
    for (size_t i = 0; i < count; i++) {
        int mask = (watches[i].can_receive ? CURL_CSELECT_IN : 0) | (watches[i].can_send ? CURL_CSELECT_OUT : 0);
        if (mask != 0) (void)curl_multi_socket_action(web->multi, watches[i].handle, mask, &running);
    }
    if (now_ns(web) >= web->timer_ns) {
        web->timer_ns = INT64_MAX;
        (void)curl_multi_socket_action(web->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
}

void tm_web_step(struct tm_web *web)
{
    assert(web != NULL);
    int left = 0;
    for (struct tm_web_call *call = web->calls; call != NULL; call = call->next)
        if (call->state == CALL_PLAYED)
            play(call);
        else if (call->state == CALL_PAUSES && now_ns(web) >= call->next_ns)
            try_now(call);
    drive_sockets(web);
    for (CURLMsg *news = NULL; (news = curl_multi_info_read(web->multi, &left)) != NULL;) {
        char *call = NULL;
        if (news->msg != CURLMSG_DONE) continue;
        CURLcode result = news->data.result; /* gone with the handle */
        (void)curl_easy_getinfo(news->easy_handle, CURLINFO_PRIVATE, &call);
        end_try((struct tm_web_call *)(void *)call, result);
    }
}

size_t tm_web_watch(struct tm_web *web, struct tm_watch *watches, size_t max, int64_t *out_wait_ms)
{
    size_t count = 0;
    int64_t until = web->timer_ns;
    for (size_t i = 0; i < web->socket_count && count < max; i++) {
        int what = web->sockets[i].what;
        if (what != CURL_POLL_IN && what != CURL_POLL_OUT && what != CURL_POLL_INOUT) continue;
        watches[count++] = (struct tm_watch){.handle = web->sockets[i].fd,
                                             .want = what == CURL_POLL_IN    ? TM_WATCH_RECEIVE
                                                     : what == CURL_POLL_OUT ? TM_WATCH_SEND
                                                                             : TM_WATCH_BOTH};
    }
    for (const struct tm_web_call *call = web->calls; call != NULL; call = call->next)
        if (call->state == CALL_PLAYED)
            until = 0;
        else if (call->state == CALL_PAUSES && call->next_ns < until)
            until = call->next_ns;
    int64_t wait_ns = until == INT64_MAX ? INT64_MAX : until - now_ns(web);
    *out_wait_ms = wait_ns == INT64_MAX ? INT64_MAX : wait_ns <= 0 ? 0 : (wait_ns + ms_ns - 1) / ms_ns;
    return count;
}

int tm_web_step_wait(struct tm_web *web, struct tm_error *e)
{
    struct tm_watch watches[SOCKETS_MAX];
    int64_t wait_ms = 0;
    size_t count = tm_web_watch(web, watches, SOCKETS_MAX, &wait_ms);
    if (wait_ms > 1000) wait_ms = 1000;
    if (wait_ms > 0 && count == 0) web->env->sleep_ms(web->env, wait_ms);
    if (wait_ms > 0 && count > 0) {
        struct tm_error own;
        int rc = web->env->net_watch(web->env, watches, count, wait_ms, &own);
        if (rc != 0 && rc != -(int)TM_ETIMEOUT) return tm_error_set(e, own.code, "%s", own.text);
    }
    tm_web_step(web);
    return 0;
}

/* ---- calls ---- */

int tm_web_begin(struct tm_web *web, const struct tm_web_request *request, struct tm_web_call **out, struct tm_error *e)
{
    assert(request->method != NULL && request->prepare != NULL && request->deadline_ms > 0 && request->tries_max > 0);
    if (web->call_count >= TM_WEB_CALLS_MAX)
        return tm_error_set(e, TM_ELIMIT, "%d requests are under way already", TM_WEB_CALLS_MAX);
    struct tm_web_call *call = tm_calloc(1, sizeof *call);
    if (call == NULL) return tm_error_nomem(e);
    call->web = web;
    call->request = *request;
    call->deadline_ns = now_ns(web) + request->deadline_ms * ms_ns;
    call->held_max_ns = HELD_MAX_MS * ms_ns;
    tm_text_init(&call->answer.body, TM_WEB_BODY_MAX);
    call->next = web->calls;
    web->calls = call;
    web->call_count++;
    try_now(call);
    *out = call;
    return 0;
}

bool tm_web_is_done(const struct tm_web_call *call)
{
    return call->state == CALL_DONE;
}

void tm_web_answer_deinit(struct tm_web_answer *answer)
{
    tm_text_deinit(&answer->body);
}

static void forget(struct tm_web_call *call)
{
    struct tm_web *web = call->web;
    struct tm_web_call **at = &web->calls;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
    web->call_count--;
    clear_try(call);
    tm_web_answer_deinit(&call->answer);
    tm_free(call);
}

int tm_web_end(struct tm_web_call *call, struct tm_web_answer *out, struct tm_error *e)
{
    bool done = tm_web_is_done(call);
    int rc = call->rc;
    if (done && rc == 0) {
        *out = call->answer;
        call->answer.body = (struct tm_text){.data = NULL};
    } else if (done && e != NULL) {
        *e = call->error;
    }
    forget(call);
    return done ? rc : tm_error_set(e, TM_ECANCELED, "given up");
}

int tm_web__finish(struct tm_web *web, struct tm_web_call *call, struct tm_web_answer *out, struct tm_error *e)
{
    int rc = 0;
    while (rc == 0 && !tm_web_is_done(call))
        rc = tm_web_step_wait(web, e);
    int ended = tm_web_end(call, out, rc == 0 ? e : NULL);
    return rc != 0 ? rc : ended;
}

int tm_web_ask(struct tm_web *web, const struct tm_web_request *request, struct tm_web_answer *out, struct tm_error *e)
{
    struct tm_web_call *call = NULL;
    int rc = tm_web_begin(web, request, &call, e);
    return rc != 0 ? rc : tm_web__finish(web, call, out, e);
}

/* ---- the whole ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode begun;

static void begin_curl(void)
{
    begun = curl_global_init(CURL_GLOBAL_DEFAULT);
}

int tm_web_create(struct tm_env *env, struct tm_web **out, struct tm_error *e)
{
    assert(env != NULL);
    (void)pthread_once(&once, begin_curl);
    struct tm_web *web = tm_calloc(1, sizeof *web);
    if (web == NULL || begun != CURLE_OK || (web->multi = curl_multi_init()) == NULL) {
        tm_free(web);
        return tm_error_nomem(e);
    }
    web->env = env;
    web->timer_ns = INT64_MAX;
    (void)curl_multi_setopt(web->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (void)curl_multi_setopt(web->multi, CURLMOPT_SOCKETDATA, (void *)web);
    (void)curl_multi_setopt(web->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    (void)curl_multi_setopt(web->multi, CURLMOPT_TIMERDATA, (void *)web);
    (void)curl_multi_setopt(web->multi, CURLMOPT_MAXCONNECTS, (long)TM_WEB_CALLS_MAX);
    *out = web;
    return 0;
}

void tm_web_destroy(struct tm_web *web)
{
    if (web == NULL) return;
    while (web->calls != NULL)
        forget(web->calls);
    (void)curl_multi_cleanup(web->multi);
    tm_free(web);
}
