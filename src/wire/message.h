/* Messages between coordinator, agents and workers: one schema (tidemill.proto), one envelope, limits on everything.
 *
 * All messages from outside go through tm_message_unpack: after it, the version is known, there is exactly one
 * body, every list, text and chunk is within its limit, every real number is finite. What the numbers mean is the
 * receiver's to check. A message lives in the arena it was unpacked into. */
#ifndef TM_WIRE_MESSAGE_H
#define TM_WIRE_MESSAGE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "wire/tidemill.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TM_MESSAGE_VERSION = 1,
    TM_MESSAGE_BYTES_MAX = 4 << 20,
    TM_MESSAGE_LIST_MAX = 16384,
    TM_MESSAGE_STRING_MAX = 256,
    TM_MESSAGE_CHUNK_MAX = 1 << 20, /* bytes of a layer in one message */
    TM_FRAME_HEADER = 4,
};

enum tm_role { TM_ROLE_NONE, TM_ROLE_COORDINATOR, TM_ROLE_AGENT, TM_ROLE_WORKER, TM_ROLE_CLOUD };
const char *tm_role_name(enum tm_role role); /* "coordinator", ...; "?" for what is no role */

/* What a worker says it is doing, in its heartbeats (worker.h has the picture). */
enum tm_worker_phase {
    TM_WORKER_FENCED, /* also before the first generation */
    TM_WORKER_FETCHING,
    TM_WORKER_READY,
    TM_WORKER_RUNNING,
    TM_WORKER_STOPPED
};

/* How the job stands, as the coordinator tells it to the cloud, the record and views. */
enum tm_job_state {
    TM_JOB_STARTING, /* no generation has started yet */
    TM_JOB_TRAINING,
    TM_JOB_WAITING,  /* for workers, or for holders of the newest copy set */
    TM_JOB_STOPPING, /* it was told to: a last copy set is made */
    TM_JOB_STOPPED,  /* it can go on later from where it stands */
    TM_JOB_FINISHED,
    TM_JOB_FAILED, /* the user's own code is wrong: nothing is tried again */
};
const char *tm_job_state_name(enum tm_job_state state); /* "starting", ...; "?" for what is no state */

/* Why a generation ends. */
enum tm_change_cause {
    TM_CHANGED_NONE,
    TM_CHANGED_LOSS,    /* a member was lost without a notice */
    TM_CHANGED_NOTICE,  /* planned: a member will leave */
    TM_CHANGED_ARRIVAL, /* planned: more workers can be used */
    TM_CHANGED_POLICY,  /* planned: another layout is better */
    TM_CHANGED_RELEASE, /* planned: an instance is given back */
    TM_CHANGED_STALL,   /* no step in time: a worker hangs, or a link is cut */
    TM_CHANGED_DAMAGE,  /* a source of layers was damaged */
    TM_CHANGED_BEGIN,   /* a coordinator begins, or its record was lost */
};
const char *tm_change_cause_name(enum tm_change_cause cause); /* "loss", ... */

/* Who: a worker is known by its number, and what keeps it running (the agent of its instance has one keeper for each of
 * its workers, run/agent.h) by the same; its incarnation tells one process from the next. */
struct tm_peer {
    enum tm_role role;
    uint64_t id;
    uint64_t incarnation; /* 0 in an address: the process that runs there now */
};

bool tm_peer_equal(const struct tm_peer *a, const struct tm_peer *b);

/* A job has a number of workers an instance, for life (0: 1). Workers of instance i are numbered (i - 1) x workers + 1
 * to i x workers; of one each, a worker has its instance's number. So everybody knows by their numbers which workers
 * are lost together. */
enum { TM_WORKERS_EACH_MAX = 64 };
static inline uint64_t tm_instance_of_worker(uint64_t worker, uint32_t workers)
{
    return workers > 1 && worker > 0 ? (worker - 1) / workers + 1 : worker;
}
/* `local` counts from 0. */
static inline uint64_t tm_worker_of_instance(uint64_t instance, uint32_t local, uint32_t workers)
{
    return workers > 1 ? (instance - 1) * workers + 1 + local : instance;
}

typedef Tmw__Envelope tm_message;

/* A message with its envelope's head filled in; the caller sets body_case and the body, then packs it. */
tm_message tm_message_make(uint64_t job, const struct tm_peer *from, const struct tm_peer *to);
struct tm_peer tm_message_sender(const tm_message *message);

/* Appends the packed message (without a frame) to `out`. */
void tm_message_pack(const tm_message *message, struct tm_text *out);
/* -TM_EINPUT: not a message that we know, or one beyond its limits. `out` borrows from the arena alone. */
int tm_message_unpack(const void *data, size_t length, struct tm_arena *arena, tm_message **out, struct tm_error *e);
/* The name of a body as in the schema ("heartbeat"); "none". */
const char *tm_message_name(const tm_message *message);

/* The same for the office (run/office.h); `out` has exactly one body. */
void tm_office_message_pack(const Tmw__OfficeMessage *message, struct tm_text *out);
int tm_office_message_unpack(const void *data, size_t length, struct tm_arena *arena, Tmw__OfficeMessage **out,
                             struct tm_error *e);

/* The same for events of the record. */
void tm_record_event_pack(const Tmw__RecordEvent *event, struct tm_text *out);
int tm_record_event_unpack(const void *data, size_t length, struct tm_arena *arena, Tmw__RecordEvent **out,
                           struct tm_error *e);

/* Frames: how messages follow each other in a stream: length in 4 bytes, little endian, then the message. */
void tm_frame_append(struct tm_text *out, const void *message, size_t length);
/* Looks at the head of a stream. Returns the length of the first message, its bytes at data + TM_FRAME_HEADER; 0 when
 * more bytes are needed; -TM_EINPUT for a length of 0 or beyond the limit: the stream cannot be followed any more. */
int64_t tm_frame_next(const void *data, size_t length, struct tm_error *e);

#endif
