/* Frames and waiting connections of the probe. */
#include "wire/probe_internal.h"

#include "base/alloc.h"
#include "wire/peer_links.h"
#include "wire/tls.h"

#include <string.h>

static const uint8_t magic[4] = {'T', 'M', 'P', '1'};

/* ---- frames ---- */

static void put_number(uint8_t *at, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(number >> (8 * i));
}

static uint64_t get_number(const uint8_t *at, int bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++)
        number |= (uint64_t)at[i] << (8 * i);
    return number;
}

void tm_probe__put_frame(const struct tm_probe_frame *frame, uint8_t out[TM_PROBE_FRAME_BYTES])
{
    memcpy(out, magic, sizeof magic);
    put_number(out + 4, (uint64_t)frame->kind, 4);
    put_number(out + 8, frame->a, 8);
    put_number(out + 16, frame->b, 8);
}

/* The most that `a` may be, by kind. */
static uint64_t largest_a(enum tm_probe_kind kind)
{
    switch (kind) {
    case TM_PROBE_ECHO:
        return TM_PROBE_ECHO_MAX;
    case TM_PROBE_DATA:
        return TM_PROBE_CHUNK;
    case TM_PROBE_SINK:
    case TM_PROBE_SOURCE:
        return TM_PROBE_DURATION_MAX_MS;
    case TM_PROBE_PAIR:
    case TM_PROBE_FLOOD:
        return TM_ADDRESS_MAX - 1;
    case TM_PROBE_FAILED:
        return TM_PROBE_TEXT_MAX;
    default:
        return UINT64_MAX;
    }
}

int tm_probe__get_frame(const uint8_t bytes[TM_PROBE_FRAME_BYTES], struct tm_probe_frame *out, struct tm_error *e)
{
    uint64_t kind = get_number(bytes + 4, 4);
    struct tm_probe_frame frame = {.a = get_number(bytes + 8, 8), .b = get_number(bytes + 16, 8)};
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return tm_error_set(e, TM_EPEER, "the other side does not speak the probe's protocol");
    if (kind < TM_PROBE_ECHO || kind >= TM_PROBE_KINDS)
        return tm_error_set(e, TM_EPEER, "a frame of an unknown kind (%llu)", (unsigned long long)kind);
    frame.kind = (enum tm_probe_kind)kind;
    bool ordered = frame.kind == TM_PROBE_PAIR || frame.kind == TM_PROBE_FLOOD;
    if (frame.a > largest_a(frame.kind) || (ordered && (frame.b < 1 || frame.b > TM_PROBE_DURATION_MAX_MS)))
        return tm_error_set(e, TM_EPEER, "a frame beyond the limits (kind %llu, %llu, %llu)", (unsigned long long)kind,
                            (unsigned long long)frame.a, (unsigned long long)frame.b);
    *out = frame;
    return 0;
}

/* ---- connections ---- */

int tm_probe__adopt(struct tm_env *env, int handle, struct tm_tls *tls, bool server, struct tm_probe_stream *out,
                    struct tm_error *e)
{
    *out = (struct tm_probe_stream){.env = env, .handle = handle, .wait_ms = TM_PROBE_WAIT_MS};
    tm_text_init(&out->raw, 4 << 20);
    tm_text_init(&out->plain, 4 << 20);
    out->chunk = tm_calloc(1, TM_PROBE_CHUNK);
    if (tls != NULL) out->session = tm_tls_session_create(tls, server, NULL, NULL);
    if (out->chunk != NULL && (tls == NULL || out->session != NULL)) return 0;
    out->handle = -1;
    tm_probe__close(out);
    return tm_error_nomem(e);
}

int tm_probe__connect(struct tm_env *env, const char *address, struct tm_tls *tls, struct tm_probe_stream *out,
                      struct tm_error *e)
{
    int handle = -1;
    if (tls == NULL && !tm_address_is_loopback(address))
        return tm_error_set(e, TM_EUSAGE,
                            "probing %s needs a credential: give --tls DIR; only loopback works without one", address);
    int rc = env->net_connect(env, address, &handle, e);
    if (rc != 0) return rc;
    rc = tm_probe__adopt(env, handle, tls, false, out, e);
    if (rc != 0) {
        env->net_close(env, handle);
        return rc;
    }
    /* A first round trip: TLS has shaken hands, and the other side speaks this protocol. */
    struct tm_probe_frame frame;
    rc = tm_probe__send_frame(out, TM_PROBE_ECHO, 0, 0, e);
    if (rc == 0) rc = tm_probe__receive_frame(out, &frame, e);
    if (rc == 0 && frame.kind != TM_PROBE_ACK) rc = tm_error_set(e, TM_EPEER, "%s is not a probe server", address);
    if (rc != 0) {
        (void)tm_error_wrap(e, rc, "%s", address);
        tm_probe__close(out);
    }
    return rc;
}

void tm_probe__close(struct tm_probe_stream *stream)
{
    if (stream->handle >= 0) stream->env->net_close(stream->env, stream->handle);
    stream->handle = -1;
    tm_tls_session_destroy(stream->session);
    stream->session = NULL;
    tm_text_deinit(&stream->raw);
    tm_text_deinit(&stream->plain);
    tm_free(stream->chunk);
    stream->chunk = NULL;
}

static int send_raw(struct tm_probe_stream *stream, const char *data, size_t length, struct tm_error *e)
{
    struct tm_env *env = stream->env;
    size_t done = 0;
    while (done < length) {
        size_t sent = 0;
        int rc = env->net_send(env, stream->handle, data + done, length - done, &sent, e);
        if (rc == -(int)TM_EBUSY) rc = env->net_wait_send(env, stream->handle, stream->wait_ms, e);
        if (rc != 0) return rc;
        done += sent;
    }
    return 0;
}

/* What TLS has to say. */
static int flush(struct tm_probe_stream *stream, struct tm_error *e)
{
    tm_text_clear(&stream->raw);
    tm_tls_session_output(stream->session, &stream->raw);
    int rc = tm_text_status(&stream->raw, e);
    return rc == 0 ? send_raw(stream, stream->raw.data, stream->raw.length, e) : rc;
}

/* Raw bytes that are there, at least one; blocks up to the limit. */
static int receive_raw(struct tm_probe_stream *stream, void *buffer, size_t size, size_t *out_got, struct tm_error *e)
{
    struct tm_env *env = stream->env;
    for (;;) {
        bool ready = false;
        int rc = env->net_receive(env, stream->handle, buffer, size, out_got, e);
        if (rc == 0 && *out_got == 0) return tm_error_set(e, TM_EPEER, "the other side closed the connection");
        if (rc != -(int)TM_EBUSY) return rc;
        rc = env->net_wait(env, &stream->handle, 1, stream->wait_ms, &ready, e);
        if (rc != 0) return rc;
    }
}

/* One piece from the wire through TLS into `plain`. */
static int refill(struct tm_probe_stream *stream, struct tm_error *e)
{
    size_t got = 0;
    if (stream->taken == stream->plain.length) {
        tm_text_clear(&stream->plain);
        stream->taken = 0;
    }
    int rc = receive_raw(stream, stream->chunk, TM_PROBE_CHUNK, &got, e);
    if (rc != 0) return rc;
    rc = tm_tls_session_input(stream->session, stream->chunk, got, &stream->plain);
    if (rc != 0) return tm_error_set(e, TM_EPEER, "the other side has no certificate of this job");
    rc = tm_text_status(&stream->plain, e);
    return rc == 0 ? flush(stream, e) : rc;
}

int tm_probe__send(struct tm_probe_stream *stream, const void *data, size_t length, struct tm_error *e)
{
    if (stream->session == NULL) return send_raw(stream, data, length, e);
    int rc = 0;
    for (size_t done = 0; rc == 0 && done < length;) {
        size_t piece = length - done < TM_PROBE_CHUNK ? length - done : TM_PROBE_CHUNK;
        tm_tls_session_write(stream->session, (const char *)data + done, piece);
        rc = flush(stream, e);
        done += piece;
    }
    return rc;
}

int tm_probe__receive(struct tm_probe_stream *stream, void *buffer, size_t length, struct tm_error *e)
{
    size_t done = 0;
    while (done < length) {
        size_t got = 0;
        int rc = 0;
        if (stream->session == NULL) {
            size_t most = buffer != NULL || length - done < TM_PROBE_CHUNK ? length - done : TM_PROBE_CHUNK;
            char *to = buffer != NULL ? (char *)buffer + done : stream->chunk;
            rc = receive_raw(stream, to, most, &got, e);
        } else if (stream->taken < stream->plain.length) {
            size_t there = stream->plain.length - stream->taken;
            got = there < length - done ? there : length - done;
            if (buffer != NULL) memcpy((char *)buffer + done, stream->plain.data + stream->taken, got);
            stream->taken += got;
        } else {
            rc = refill(stream, e);
        }
        if (rc != 0) return rc;
        done += got;
    }
    return 0;
}

int tm_probe__send_frame(struct tm_probe_stream *stream, enum tm_probe_kind kind, uint64_t a, uint64_t b,
                         struct tm_error *e)
{
    uint8_t bytes[TM_PROBE_FRAME_BYTES];
    struct tm_probe_frame frame = {kind, a, b};
    tm_probe__put_frame(&frame, bytes);
    return tm_probe__send(stream, bytes, sizeof bytes, e);
}

int tm_probe__receive_frame(struct tm_probe_stream *stream, struct tm_probe_frame *out, struct tm_error *e)
{
    uint8_t bytes[TM_PROBE_FRAME_BYTES];
    int rc = tm_probe__receive(stream, bytes, sizeof bytes, e);
    return rc == 0 ? tm_probe__get_frame(bytes, out, e) : rc;
}

/* ---- both ends of the tests ---- */

int tm_probe__pour(struct tm_probe_stream *stream, int64_t duration_ms, struct tm_error *e)
{
    struct tm_env *env = stream->env;
    int64_t end_ns = env->monotonic_ns(env) + duration_ms * 1000000;
    char *zeros = tm_calloc(1, TM_PROBE_FRAME_BYTES + TM_PROBE_CHUNK);
    int rc = zeros != NULL ? 0 : tm_error_nomem(e);
    if (rc == 0) { /* frame and bytes in one piece */
        struct tm_probe_frame frame = {TM_PROBE_DATA, TM_PROBE_CHUNK, 0};
        tm_probe__put_frame(&frame, (uint8_t *)zeros);
    }
    bool more = true; /* one piece at least: a test may be short and this thread late */
    for (; rc == 0 && more; more = env->monotonic_ns(env) < end_ns)
        rc = tm_probe__send(stream, zeros, TM_PROBE_FRAME_BYTES + TM_PROBE_CHUNK, e);
    tm_free(zeros);
    return rc == 0 ? tm_probe__send_frame(stream, TM_PROBE_END, 0, 0, e) : rc;
}

int tm_probe__drain(struct tm_probe_stream *stream, int64_t warm_ms, uint64_t *out_bytes, uint64_t *out_ns,
                    struct tm_error *e)
{
    struct tm_env *env = stream->env;
    int64_t first_ns = 0, warm_ns = 0, last_ns = 0;
    uint64_t bytes = 0, warm_bytes = 0;
    bool warm = false;
    for (;;) {
        struct tm_probe_frame frame;
        int rc = tm_probe__receive_frame(stream, &frame, e);
        if (rc != 0) return rc;
        if (frame.kind == TM_PROBE_END) break;
        if (frame.kind != TM_PROBE_DATA) return tm_error_set(e, TM_EPEER, "a frame that is not data");
        if (first_ns == 0) first_ns = env->monotonic_ns(env);
        rc = tm_probe__receive(stream, NULL, (size_t)frame.a, e);
        if (rc != 0) return rc;
        last_ns = env->monotonic_ns(env);
        bytes += frame.a;
        if (!warm && last_ns - first_ns >= warm_ms * 1000000) { /* counted from here */
            warm = true;
            warm_ns = last_ns;
            warm_bytes = bytes;
        }
    }
    /* A link so slow that little came: all of it counts. */
    bool enough = warm && last_ns > warm_ns;
    *out_bytes = enough ? bytes - warm_bytes : bytes;
    *out_ns = (uint64_t)(enough ? last_ns - warm_ns : last_ns - first_ns) + 1;
    if (*out_bytes == 0) return tm_error_set(e, TM_EPEER, "nothing arrived in time");
    return 0;
}
