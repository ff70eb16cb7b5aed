#include "cloud/notice_internal.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/http_call.h"

#include <stdio.h>
#include <string.h>

enum { BODY_MAX = 65536, RECEIVED_MAX = TM_HTTP_HEAD_MAX + 2 * BODY_MAX + 4096 };

struct tm_notice_reader {
    struct tm_env *env;
    struct tm_notice_options options;
    const struct tm_notice__kind *kind;
    struct tm_notice__talk talk;
    struct tm_notice told; /* the last word given out */
    int64_t due_ms;        /* monotonic: the next request, or the end of patience with this one */
    struct tm_http_call call;
    struct tm_notice_health health;
    struct tm_error failure;
};

static const struct tm_notice__kind *const kinds[] = {&tm_notice__aws, &tm_notice__gcp, &tm_notice__azure};

static int64_t monotonic_ms(const struct tm_notice_reader *reader)
{
    return reader->env->monotonic_ns(reader->env) / 1000000;
}

static int64_t or_default(int64_t value, int64_t usual)
{
    return value > 0 ? value : usual;
}

int tm_notice_reader_create(struct tm_env *env, const struct tm_notice_options *options, struct tm_notice_reader **out,
                            struct tm_error *e)
{
    struct tm_notice_reader *reader = tm_calloc(1, sizeof *reader);
    if (reader == NULL) return tm_error_nomem(e);
    reader->env = env;
    reader->options = *options;
    if (options->address == NULL) reader->options.address = TM_NOTICE_ADDRESS;
    reader->options.poll_ms = or_default(options->poll_ms, 1000);
    reader->options.answer_ms = or_default(options->answer_ms, 2000);
    reader->options.retry_ms = or_default(options->retry_ms, 250);
    reader->options.retry_max_ms = or_default(options->retry_max_ms, 5000);
    reader->options.gcp_left_ms = or_default(options->gcp_left_ms, 30000);
    reader->kind = kinds[options->cloud];
    reader->talk.options = &reader->options;
    reader->due_ms = monotonic_ms(reader);
    tm_http_call_init(&reader->call, env, RECEIVED_MAX);
    *out = reader;
    return 0;
}

void tm_notice_reader_destroy(struct tm_notice_reader *reader)
{
    if (reader == NULL) return;
    tm_http_call_deinit(&reader->call);
    tm_free(reader);
}

/* ---- one request ---- */

static void give_up(struct tm_notice_reader *reader)
{
    uint64_t doublings = reader->health.failures_in_row < 16 ? reader->health.failures_in_row : 16;
    int64_t pause_ms = reader->options.retry_ms << doublings;
    tm_http_call_hang_up(&reader->call);
    reader->health.failures++;
    reader->health.failures_in_row++;
    if (pause_ms > reader->options.retry_max_ms) pause_ms = reader->options.retry_max_ms;
    reader->due_ms = monotonic_ms(reader) + pause_ms;
}

static int begin(struct tm_notice_reader *reader, struct tm_error *e)
{
    tm_http_call_clear(&reader->call);
    int64_t longer_ms = reader->kind->ask(&reader->talk, monotonic_ms(reader), &reader->call.request);
    int rc = tm_http_call_begin(&reader->call, reader->options.address, e);
    if (rc != 0) return rc;
    reader->due_ms = monotonic_ms(reader) + reader->options.answer_ms + longer_ms;
    return 0;
}

static int understand(struct tm_notice_reader *reader, const struct tm_http_head *head, const struct tm_text *body,
                      struct tm_error *e)
{
    int64_t pause_ms = 0;
    struct tm_notice__answer answer = {.head = head,
                                       .body = tm_text_string(body),
                                       .length = body->length,
                                       .now_ms = monotonic_ms(reader),
                                       .now_utc_ms = reader->env->now_ms(reader->env)};
    int rc = reader->kind->hear(&reader->talk, &answer, &pause_ms, e);
    if (rc != 0) return rc;
    reader->health.answers++;
    reader->health.failures_in_row = 0;
    reader->due_ms = monotonic_ms(reader) + pause_ms;
    return 0;
}

/* -TM_EBUSY: nothing to do now. */
static int advance(struct tm_notice_reader *reader, struct tm_error *e)
{
    struct tm_http_head head;
    struct tm_text body;
    if (reader->call.handle < 0) {
        if (monotonic_ms(reader) < reader->due_ms) return -(int)TM_EBUSY;
        int rc = begin(reader, e);
        if (rc != 0) return rc;
    }
    tm_text_init(&body, BODY_MAX);
    int rc = tm_http_call_step(&reader->call, &head, &body, e);
    if (rc == 0) rc = understand(reader, &head, &body, e);
    tm_text_deinit(&body);
    if (rc == -(int)TM_EBUSY && monotonic_ms(reader) >= reader->due_ms)
        rc = tm_error_set(e, TM_ETIMEOUT, "no complete answer in time");
    return rc;
}

static bool same_word(const struct tm_notice *a, const struct tm_notice *b)
{
    return a->hinted == b->hinted && a->going == b->going && (!a->going || a->gone_utc_ms == b->gone_utc_ms);
}

int tm_notice_reader_step(struct tm_notice_reader *reader, struct tm_notice *out, struct tm_error *e)
{
    enum { ROUNDS_MAX = 8 };
    for (int i = 0; i < ROUNDS_MAX; i++) {
        struct tm_error failure;
        int rc = advance(reader, &failure);
        if (rc == -(int)TM_EBUSY) break;
        if (rc != 0) {
            reader->failure = failure;
            tm_debug(TM_DEBUG_CLOUD, "notices of %s: %s", reader->options.address, failure.text);
            give_up(reader);
            break;
        }
        if (same_word(&reader->talk.word, &reader->told)) continue;
        reader->told = reader->talk.word;
        tm_debug(TM_DEBUG_CLOUD, "notices of %s: %s", reader->options.address,
                 reader->told.going    ? "it goes"
                 : reader->told.hinted ? "it may go"
                                       : "it stays");
        *out = reader->told;
        return 0;
    }
    return tm_error_set(e, TM_EBUSY, "no news");
}

int tm_notice_reader_handle(const struct tm_notice_reader *reader)
{
    return reader->call.handle;
}

int64_t tm_notice_reader_wait_ms(const struct tm_notice_reader *reader)
{
    int64_t left_ms = reader->due_ms - monotonic_ms(reader);
    return left_ms > 0 ? left_ms : 0;
}

struct tm_notice_health tm_notice_reader__health(const struct tm_notice_reader *reader)
{
    struct tm_notice_health health = reader->health;
    health.last = reader->failure.text;
    return health;
}

/* ---- for all clouds ---- */

bool tm_notice__keep(char out[TM_NOTICE_TOKEN_MAX], struct tm_slice value)
{
    if (value.at == NULL || value.length == 0 || value.length >= TM_NOTICE_TOKEN_MAX) return false;
    for (size_t i = 0; i < value.length; i++) {
        if (value.at[i] <= ' ' || value.at[i] > '~' || value.at[i] == '&') return false;
    }
    memcpy(out, value.at, value.length);
    out[value.length] = '\0';
    return true;
}

int tm_notice__unexpected(const struct tm_notice__answer *answer, const char *what, struct tm_error *e)
{
    return tm_error_set(e, answer->head->status >= 500 ? TM_EPEER : TM_EINPUT, "%s: status %d", what,
                        answer->head->status);
}
