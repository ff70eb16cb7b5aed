#include "cloud/slurm_rest.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"
#include "cloud/plain_http.h"
#include "web/web.h"

#include <stdio.h>
#include <string.h>

enum {
    CALL_MS = 20000,
    SUBMIT_MS = 60000,
    LIST_ROOM = 64 << 20, /* some 10,000 jobs of a whole cluster */
    BODY_MAX = 1 << 20,
    VARIABLES_MAX = 256 << 10,
    TOKEN_MAX = 16 << 10,
    PATH_BYTES = 256,
    ITEMS_MAX = 4096,
    HANDLES_MAX = 16,
    SEND_LOOK_MS = 5 /* while a connection is being made */
};

/* Each is tried until one is there: newest first of those whose shapes were read, then what is newer, then older. The
 * daemon's own description (/openapi/v3) would name them all in megabytes. */
static const int versions[] = {41, 42, 43, 40, 39, TM_SLURM_REST_OLD};

struct tm_slurm__rest {
    struct tm_env *env;
    struct tm_web *web;
    struct tm_web_call *call; /* NULL: none is on its way */
    const char *address;
    const char *socket; /* NULL: by the address */
    const char *token_file;
    int version;
    enum tm_slurm__command_kind kind;
    char path[PATH_BYTES];
    struct tm_text body;
    char (*items)[TM_SLURM_WORD_MAX]; /* jobs or nodes that are still to be asked for */
    size_t item_count, item_capacity, item_at;
    char *list; /* a whole queue, while it comes; NULL: not now */
    struct tm_slurm__answer answer;
    char words[TM_SLURM_REST_WORDS_MAX];
    bool told; /* that it does not answer as it should */
};

/* ---- requests ---- */

static int put_token(const struct tm_slurm__rest *r, struct tm_text *headers, struct tm_error *e)
{
    static const char name[] = "SLURM_JWT=";
    const char *token = r->env->variable(r->env, "SLURM_JWT");
    const char *user = r->env->variable(r->env, "USER");
    struct tm_text file;
    int rc = 0;
    tm_text_init(&file, TOKEN_MAX);
    if (r->token_file != NULL) {
        rc = r->env->file_read(r->env, r->token_file, &file, e);
        token = tm_text_string(&file);
    }
    if (rc == 0 && token != NULL && token[0] != '\0') {
        token += strncmp(token, name, sizeof name - 1) == 0 ? sizeof name - 1 : 0; /* as scontrol token prints it */
        if (user == NULL) user = r->env->variable(r->env, "LOGNAME");
        if (user != NULL) tm_text_printf(headers, "X-SLURM-USER-NAME: %.*s\n", (int)strcspn(user, "\r\n"), user);
        tm_text_printf(headers, "X-SLURM-USER-TOKEN: %.*s\n", (int)strcspn(token, " \r\n"), token);
    }
    if (file.data != NULL) memset(file.data, 0, file.length);
    tm_text_deinit(&file);
    return rc;
}

static int prepare(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    const struct tm_slurm__rest *r = context;
    tm_text_printf(url, "%s/slurm/v0.0.%d/%s", r->socket != NULL ? "http://localhost" : r->address, r->version,
                   r->path);
    tm_text_puts(headers, "Accept: application/json\nUser-Agent: tidemill\n");
    if (r->body.length > 0) tm_text_puts(headers, "Content-Type: application/json\n");
    return put_token(r, headers, e);
}

static int ask(struct tm_slurm__rest *r, const char *method, struct tm_error *e)
{
    struct tm_web_request request = {.method = method,
                                     .body = r->body.length > 0 ? r->body.data : NULL,
                                     .length = r->body.length,
                                     .into = r->list,
                                     .room = LIST_ROOM,
                                     .deadline_ms = r->body.length > 0 ? SUBMIT_MS : CALL_MS,
                                     .tries_max = 1,
                                     .socket = r->socket,
                                     .prepare = prepare,
                                     .context = r};
    return tm_web_begin(r->web, &request, &r->call, e);
}

static void forget_body(struct tm_slurm__rest *r)
{
    if (r->body.data != NULL) memset(r->body.data, 0, r->body.length); /* a ticket is in it */
    tm_text_clear(&r->body);
}

/* The next job or node of the command. */
static int ask_next(struct tm_slurm__rest *r, struct tm_error *e)
{
    static const char *const folders[] = {
        [TM_SLURM_SUBMIT] = "job", [TM_SLURM_QUERY] = "job", [TM_SLURM_CANCEL] = "job", [TM_SLURM_NODES] = "node"};
    (void)snprintf(r->path, sizeof r->path, "%s/%s", folders[r->kind], r->items[r->item_at++]);
    return ask(r, r->kind == TM_SLURM_CANCEL ? "DELETE" : "GET", e);
}

/* One that finds no room is asked for the next time. */
void tm_slurm_rest__add(struct tm_slurm__rest *r, const char *name)
{
    void *list = r->items;
    int rc = tm_grow(&list, &r->item_capacity, r->item_count + 1, sizeof *r->items, ITEMS_MAX);
    r->items = list;
    if (rc == 0) (void)snprintf(r->items[r->item_count++], TM_SLURM_WORD_MAX, "%s", name);
}

int tm_slurm_rest__begin(struct tm_slurm__rest *r, enum tm_slurm__command_kind kind, struct tm_error *e)
{
    tm_slurm_answer__clear(&r->answer);
    forget_body(r);
    r->kind = kind;
    r->item_at = 0;
    if (r->item_count > 0) return ask_next(r, e);
    (void)snprintf(r->path, sizeof r->path, "%s", kind == TM_SLURM_NODES ? "nodes" : "jobs");
    r->list = tm_alloc(LIST_ROOM); /* memory that nothing is written to is not taken */
    return r->list != NULL ? ask(r, "GET", e) : tm_error_nomem(e);
}

int tm_slurm_rest__submit(struct tm_slurm__rest *r, struct tm_slurm__rest_job job, struct tm_error *e)
{
    struct tm_text variables;
    tm_text_init(&variables, VARIABLES_MAX);
    tm_slurm_answer__clear(&r->answer);
    forget_body(r);
    r->kind = TM_SLURM_SUBMIT;
    r->item_count = r->item_at = 0;
    /* As sbatch does: a job begins with the variables of whoever submits it. */
    int rc = r->env->file_read(r->env, "/proc/self/environ", &variables, e);
    if (rc == 0) {
        job.version = r->version;
        job.variables = tm_text_string(&variables);
        job.variables_length = variables.length;
        tm_slurm_rest__write_job(&job, &r->body);
        rc = tm_text_status(&r->body, e);
    }
    tm_text_deinit(&variables);
    (void)snprintf(r->path, sizeof r->path, "job/submit");
    return rc == 0 ? ask(r, "POST", e) : rc;
}

/* ---- answers ---- */

static void no_answer(struct tm_slurm__rest *r, const char *words)
{
    (void)snprintf(r->words, sizeof r->words, "%.250s", words);
    r->answer.status = -1;
    r->answer.words = r->words;
    r->answer.length = strlen(r->words);
}

/* Takes the answer to one request. */
static void take(struct tm_slurm__rest *r)
{
    struct tm_web_answer got = {.status = 0};
    struct tm_error e = {.text = ""};
    int rc = tm_web_end(r->call, &got, &e);
    bool listed = r->list != NULL && got.received > 0;
    r->call = NULL;
    if (rc == 0) {
        const char *text = listed ? r->list : tm_text_string(&got.body);
        rc = tm_slurm_rest__read(&r->answer, r->kind, got.status, text, listed ? got.received : got.body.length,
                                 r->env->now_ms(r->env) / 1000, r->words, &e);
        tm_web_answer_deinit(&got);
    }
    if (rc != 0) no_answer(r, e.text);
    tm_free(r->list);
    r->list = NULL;
}

/* What keeps it from answering is said once, until it answers again. A refused job is told by whoever asked. */
static void tell(struct tm_slurm__rest *r)
{
    bool wrong = r->answer.status != 0;
    if (wrong) tm_debug(TM_DEBUG_CLOUD, "slurmrestd: %s: %s", r->path, r->words);
    if (wrong && !r->told && r->kind != TM_SLURM_SUBMIT)
        tm_log(TM_LOG_WARN, "slurmrestd at %s does not answer as it should, retrying: %s", r->address, r->words);
    if (r->kind != TM_SLURM_SUBMIT) r->told = wrong;
}

bool tm_slurm_rest__is_busy(const struct tm_slurm__rest *r)
{
    return r->call != NULL;
}

bool tm_slurm_rest__step(struct tm_slurm__rest *r, struct tm_slurm__answer **out)
{
    for (;;) {
        struct tm_error e = {.text = ""};
        tm_web_step(r->web);
        if (!tm_web_is_done(r->call)) return false;
        take(r);
        bool more = r->item_at < r->item_count && (r->answer.status == 0 || r->kind == TM_SLURM_CANCEL);
        if (more && ask_next(r, &e) == 0) continue;
        if (more) no_answer(r, e.text);
        r->item_count = 0;
        forget_body(r);
        tell(r);
        *out = &r->answer;
        return true;
    }
}

size_t tm_slurm_rest__watch(struct tm_slurm__rest *r, int *handles, size_t max, int64_t *out_wait_ms)
{
    struct tm_watch watches[HANDLES_MAX];
    size_t count = tm_web_watch(r->web, watches, max < HANDLES_MAX ? max : HANDLES_MAX, out_wait_ms);
    for (size_t i = 0; i < count; i++) {
        handles[i] = watches[i].handle;
        if (watches[i].want != TM_WATCH_RECEIVE && *out_wait_ms > SEND_LOOK_MS) *out_wait_ms = SEND_LOOK_MS;
    }
    return count;
}

/* ---- life ---- */

/* One GET, waited for: only before anything runs. */
static int ask_waiting(struct tm_slurm__rest *r, struct tm_web_answer *out, struct tm_error *e)
{
    forget_body(r);
    int rc = ask(r, "GET", e);
    while (rc == 0 && !tm_web_is_done(r->call))
        rc = tm_web_step_wait(r->web, e);
    if (r->call == NULL) return rc;
    int ended = tm_web_end(r->call, out, e);
    r->call = NULL;
    return rc == 0 ? ended : rc;
}

static int find_version(struct tm_slurm__rest *r, struct tm_error *e)
{
    int rc = 0;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        struct tm_web_answer answer = {.status = 0};
        r->version = versions[i];
        (void)snprintf(r->path, sizeof r->path, "ping");
        rc = ask_waiting(r, &answer, e);
        int status = answer.status;
        if (rc == 0) tm_web_answer_deinit(&answer);
        if (rc != 0) return rc == -(int)TM_ETIMEOUT ? -(int)TM_EPEER : rc;
        if (status >= 200 && status < 300) return 0;
        if (status == 401 || status == 403)
            return tm_error_set(e, TM_EINPUT,
                                "it does not let us in (HTTP status %d); SLURM_JWT, or fleet.slurm.token_file, must "
                                "have a token of `scontrol token`",
                                status);
        if (status == 503 || status == 502 || status == 504) return tm_error_set(e, TM_EPEER, "HTTP status %d", status);
    }
    return tm_error_set(e, TM_EPEER, "it knows none of the versions 0.0.38 to 0.0.43");
}

static int take_address(struct tm_slurm__rest *r, struct tm_error *e)
{
    const char *address = r->address;
    if (strncmp(address, "unix:", 5) == 0 && address[5] == '/') {
        r->socket = address + 5;
        return 0;
    }
    bool plain = strncmp(address, "http://", 7) == 0;
    if (tm_cloud__is_plain_abroad(address))
        return tm_error_set(e, TM_EINPUT,
                            "fleet.slurm.rest: over plain http anybody on the way reads the token; write https://, or "
                            "unix:/PATH on the machine that has it, or http://127.0.0.1:PORT of a tunnel (ssh -L)");
    if ((plain || strncmp(address, "https://", 8) == 0) && address[strlen(address) - 1] != '/') return 0;
    return tm_error_set(e, TM_EINPUT, "expected unix:/PATH, https://HOST:PORT or http://127.0.0.1:PORT, got \"%.200s\"",
                        address);
}

int tm_slurm_rest__open(struct tm_env *env, const char *address, const char *token_file, struct tm_slurm__rest **out,
                        struct tm_error *e)
{
    struct tm_slurm__rest *r = tm_calloc(1, sizeof *r);
    if (r == NULL) return tm_error_nomem(e);
    r->env = env;
    r->address = address;
    r->token_file = token_file;
    tm_text_init(&r->body, BODY_MAX);
    int rc = take_address(r, e);
    if (rc == 0) rc = tm_web_create(env, &r->web, e);
    if (rc == 0) rc = find_version(r, e);
    if (rc != 0) {
        tm_slurm_rest__close(r);
        return tm_error_wrap(e, rc, "slurmrestd at %.200s", address);
    }
    tm_log(TM_LOG_INFO, "slurmrestd at %s: version 0.0.%d", address, r->version);
    *out = r;
    return 0;
}

void tm_slurm_rest__close(struct tm_slurm__rest *r)
{
    if (r == NULL) return;
    tm_web_destroy(r->web);
    forget_body(r);
    tm_text_deinit(&r->body);
    tm_slurm_answer__deinit(&r->answer);
    tm_free(r->items);
    tm_free(r->list);
    tm_free(r);
}

int tm_slurm_rest__ask_partition(struct tm_slurm__rest *r, const char *name, struct tm_slurm__partition *out,
                                 struct tm_error *e)
{
    struct tm_web_answer answer = {.status = 0};
    (void)snprintf(r->path, sizeof r->path, "partitions");
    int rc = ask_waiting(r, &answer, e);
    if (rc != 0) return tm_error_wrap(e, rc, "slurmrestd at %.200s", r->address);
    bool good = answer.status >= 200 && answer.status < 300;
    bool found = tm_slurm_rest__read_partition(tm_text_string(&answer.body), answer.body.length, name, out);
    if (!good)
        rc = tm_error_set(e, TM_EPEER, "slurmrestd at %.200s: HTTP status %d", r->address, answer.status);
    else if (!found)
        rc = tm_error_set(e, TM_ENOTFOUND, "no partition %s", name);
    tm_web_answer_deinit(&answer);
    return rc;
}
