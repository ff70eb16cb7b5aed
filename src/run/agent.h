/* The agent as a state machine: one per worker of an instance. It keeps the worker running there (and starts it again
 * when it dies, not too often), tells the coordinator of its end at once, and passes on what the cloud says of the
 * instance. An instance with several workers has one agent process with such a keeper for each of them (serve.h): to
 * the coordinator a worker and its keeper have the same number. */
#ifndef TM_RUN_AGENT_H
#define TM_RUN_AGENT_H

#include "wire/last_lines.h"
#include "wire/outbox.h"

enum {
    TM_AGENT_START_WORKER = TM_ACTION_OWN, /* number: its incarnation */
    TM_AGENT_END_WORKER,                   /* number: its incarnation; the job is done, and it may save something first;
                                              other 1: at once, it hangs or has nothing to save */
    TM_AGENT_STOP,                         /* the job is done, or we were refused (number 1) */
};

struct tm_agent_options {
    uint64_t job;
    uint64_t id;       /* of its worker */
    uint64_t instance; /* 0: the same number */
    uint64_t incarnation;
    const char *token;       /* borrowed */
    const char *fingerprint; /* what its worker would train: lines of wire/fingerprint.h; borrowed; NULL: not known */
    uint64_t random_seed;
    int64_t heartbeat_ms;
    int64_t backoff_ms; /* before the first restart; doubles with each in the window */
    uint32_t restarts_max;
    int64_t restart_window_ms;
    bool kills_expected; /* workers are killed on purpose (chaos): SIGKILL is not a failure */
};

/* How a worker's process ended. */
struct tm_worker_end {
    int status;         /* 0: in order; 128 + N: signal N */
    const char *output; /* the end of what it wrote, borrowed; NULL: not known */
    size_t output_length;
    const char *file; /* where all of it is, below the job's state folder, borrowed; NULL: not known */
};

enum { TM_AGENT_RESTARTS_KEPT = 16 };

struct tm_agent {
    char refused[TM_MESSAGE_STRING_MAX + 1]; /* why the coordinator refused us; "": it did not */
    struct tm_agent_options options;
    struct tm_peer self;
    struct tm_peer coordinator;
    bool registered;
    bool stopped;
    bool done; /* the worker ended with status 0: no other is started */
    int state; /* of its worker, at the end of the last event (agent.c) */
    uint64_t nonce;
    int64_t said_ms; /* hello or heartbeat, last sent; -1: never */
    uint64_t sequence;
    uint64_t acked;
    uint64_t worker; /* incarnation of the running one; 0: none runs */
    uint64_t starts;
    uint64_t ended;  /* incarnation of the one that ended last */
    uint64_t ending; /* of the one that was to be ended by order */
    int64_t started_ms;
    int64_t ended_ms;
    int64_t ended_ran_ms;
    int ended_status;
    bool ended_failed;
    uint64_t ended_sequence; /* of the first heartbeat that tells of it */
    struct tm_last_lines ended_lines;
    char ended_file[TM_MESSAGE_STRING_MAX + 1];
    int64_t start_at_ms;
    int64_t restarts_ms[TM_AGENT_RESTARTS_KEPT];
    size_t restart_count;
    bool gave_up;
    bool noticed;
    int64_t notice_end_ms;
};

/* The caller owns the struct; there is nothing to free. */
void tm_agent_init(struct tm_agent *agent, const struct tm_agent_options *options);

void tm_agent_tick(struct tm_agent *agent, int64_t now_ms, struct tm_outbox *out);
void tm_agent_receive(struct tm_agent *agent, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_agent_worker_ended(struct tm_agent *agent, int64_t now_ms, uint64_t incarnation,
                           const struct tm_worker_end *end, struct tm_outbox *out);
/* The cloud's word, or SIGTERM: the instance goes in `left_ms`. Said again, the newest word counts; a notice taken back
 * (`left_ms` < 0) is undone. */
void tm_agent_notice(struct tm_agent *agent, int64_t now_ms, int64_t left_ms, struct tm_outbox *out);

#endif
