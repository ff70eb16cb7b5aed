#ifndef TM_WIRE_PROBE_INTERNAL_H
#define TM_WIRE_PROBE_INTERNAL_H

#include "wire/probe.h"

enum {
    TM_PROBE_FRAME_BYTES = 24,
    TM_PROBE_CHUNK = 1 << 18,
    TM_PROBE_ECHO_MAX = 64 << 20,
    TM_PROBE_DURATION_MAX_MS = 60000,
    TM_PROBE_WAIT_MS = 15000, /* for the other side, before it is given up */
    TM_PROBE_FIGURES = 8,     /* of a RESULT */
    TM_PROBE_TEXT_MAX = 400,
};

enum tm_probe_kind {
    TM_PROBE_ECHO = 1,
    TM_PROBE_ACK,
    TM_PROBE_SINK,
    TM_PROBE_SOURCE,
    TM_PROBE_DATA,
    TM_PROBE_END,
    TM_PROBE_PAIR,
    TM_PROBE_FLOOD,
    TM_PROBE_RESULT,
    TM_PROBE_FAILED,
    TM_PROBE_KINDS
};

struct tm_probe_frame {
    enum tm_probe_kind kind;
    uint64_t a;
    uint64_t b;
};

void tm_probe__put_frame(const struct tm_probe_frame *frame, uint8_t out[TM_PROBE_FRAME_BYTES]);
/* -TM_EPEER: no frame of this protocol, or one beyond the limits. */
int tm_probe__get_frame(const uint8_t bytes[TM_PROBE_FRAME_BYTES], struct tm_probe_frame *out, struct tm_error *e);

/* ---- a connection that waits: one thread uses it ---- */

struct tm_probe_stream {
    struct tm_env *env;
    int handle;
    struct tm_tls_session *session; /* NULL: plain */
    struct tm_text raw;             /* to send */
    struct tm_text plain;           /* received, from `taken` on not yet taken */
    size_t taken;
    char *chunk; /* TM_PROBE_CHUNK bytes */
    int64_t wait_ms;
};

int tm_probe__connect(struct tm_env *env, const char *address, struct tm_tls *tls, struct tm_probe_stream *out,
                      struct tm_error *e);
/* Takes a connected handle over, unless it fails. */
int tm_probe__adopt(struct tm_env *env, int handle, struct tm_tls *tls, bool server, struct tm_probe_stream *out,
                    struct tm_error *e);
void tm_probe__close(struct tm_probe_stream *stream);
int tm_probe__send(struct tm_probe_stream *stream, const void *data, size_t length, struct tm_error *e);
/* Exactly `length` bytes; NULL: they are dropped. */
int tm_probe__receive(struct tm_probe_stream *stream, void *buffer, size_t length, struct tm_error *e);
int tm_probe__send_frame(struct tm_probe_stream *stream, enum tm_probe_kind kind, uint64_t a, uint64_t b,
                         struct tm_error *e);
int tm_probe__receive_frame(struct tm_probe_stream *stream, struct tm_probe_frame *out, struct tm_error *e);

/* ---- both ends of the tests ---- */

/* Sends for a time, and tells the end. */
int tm_probe__pour(struct tm_probe_stream *stream, int64_t duration_ms, struct tm_error *e);
/* Receives until the end; bits a second behind the first `warm_ms`. */
int tm_probe__drain(struct tm_probe_stream *stream, int64_t warm_ms, uint64_t *out_bytes, uint64_t *out_ns,
                    struct tm_error *e);

/* ---- tests of one link ---- */

struct tm_probe_target {
    struct tm_env *env;
    const char *address;
    struct tm_tls *tls;
    int64_t duration_ms;
    int streams;
};

/* What a pair gives, both ways. */
struct tm_probe_pair {
    double latency_ms;
    double out;
    double back;
    double both_out;
    double both_back;
    double streams_out;
    double streams_back;
};

int tm_probe__measure_pair(const struct tm_probe_target *target, struct tm_probe_pair *out, struct tm_error *e);
int tm_probe__measure_sizes(const struct tm_probe_target *target, double ms[TM_PROBE_SIZES], struct tm_error *e);
/* One stream, out or (back) in. */
int tm_probe__measure_flow(const struct tm_probe_target *target, bool back, double *out_bits_s, struct tm_error *e);

#endif
