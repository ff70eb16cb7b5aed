/* Shared inside the room: the worker's state, and what its parts ask of each other. */
#ifndef TM_WORKER_INTERNAL_H
#define TM_WORKER_INTERNAL_H

#include "wire/last_lines.h"
#include "wire/step_list.h"
#include "worker/worker.h"

#define TM_BODY(message, name, field, pointer)                                                                         \
    do {                                                                                                               \
        (message).body_case = TMW__ENVELOPE__BODY_##name;                                                              \
        (message).field = (pointer);                                                                                   \
    } while (0)

enum {
    FETCH_CHUNKS_AT_ONCE = 8,
    SNAPSHOT_PARTS_MAX = TM_LAYERS_MAX,
    COPY_TARGETS_MAX = 16,
    LOSSES_MAX = 256, /* unless every step is logged */
    PACES_MAX = 15,   /* steps whose micro-batches are remembered ... */
    PACES_MIN = 5,    /* ... and how many are enough */
    NEVER_MS = -1
};

struct held_layer {
    bool have;
    bool hashed;
    uint64_t step;
    struct tm_hash hash; /* where hashed */
};

/* Layers that were read from the engine while it stands still. */
struct layer_read {
    uint32_t layer;
    struct tm_hash hash;
    struct tm_block *block;
};
struct layer_reads {
    struct layer_read *list;
    size_t count;
    size_t capacity;
    uint64_t bytes;
};

/* Flags and shares of one step, as they come in. */
struct ballot {
    uint64_t step;
    bool *flagged;  /* by place in the roster */
    bool *has_norm; /* by layer */
    double *norm;   /* by layer */
    bool own;       /* ours is among them */
    bool all;       /* in a tree: we were told that all are prepared ... */
    double total;   /* ... with this norm */
};

/* Our place in the tree of flags: places in the roster. */
enum { VOTE_FAN_MAX = 16, VOTE_NOBODY = -1 };
struct votes {
    uint32_t fan; /* 0: each tells each */
    int parent;   /* VOTE_NOBODY: none */
    int children[VOTE_FAN_MAX];
    size_t child_count;
};

struct fetch_chunk {
    bool here;
    bool asked;
    int64_t asked_ms;
    uint32_t tries;
};

struct fetch {
    uint32_t layer;
    struct tm_hash hash;
    uint64_t set; /* 0: live state */
    uint64_t *sources;
    size_t source_count;
    bool from_file;
    bool initial;
    bool done;
    bool file_asked;
    bool alone;      /* bytes from all sources together were wrong: one source at a time, to find the bad one */
    size_t alone_at; /* that source */
    uint64_t size;
    struct tm_block *block; /* what comes from peers */
    struct fetch_chunk *chunks;
    size_t chunk_count;
    size_t missing;
    int64_t file_asked_ms;
};

struct copy_target {
    uint64_t id; /* 0: files */
    bool done;
    bool asked;
    bool refused; /* a file: could not be stored then */
    uint64_t acked;
    int64_t sent_ms;
};

struct copy_part_out {
    struct tm_copy_name name;
    struct tm_block *block; /* NULL once every target has it */
    struct copy_target targets[COPY_TARGETS_MAX];
    size_t target_count;
};

/* The copy set that we are a source of. */
struct copy_out {
    uint64_t set; /* 0: none */
    uint64_t step;
    bool taken; /* the snapshot is made */
    bool missed;
    struct copy_part_out *parts;
    size_t part_count;
};

/* What a micro-batch took in the last steps of this generation; the first step of one is not among them. */
struct paces {
    uint64_t step; /* that was computed last ... */
    uint64_t time_us;
    uint64_t micro_us[PACES_MAX]; /* a ring */
    size_t count;                 /* steps so far, but for the first */
    bool warm;                    /* there was a first */
};

enum { FOLLOWERS_MAX = 16 };

/* A layer that others follow: a version of it and the gradients of every step since. */
struct kept_gradient {
    struct tm_block *block; /* NULL: whoever follows has had it */
    double norm;
};
struct followed {
    uint32_t layer;
    uint64_t step;            /* of the version */
    struct tm_block *version; /* NULL: a free place */
    struct tm_hash hash;
    struct kept_gradient *gradients; /* of step + 1, step + 2, ... */
    size_t gradient_count;
    size_t gradient_capacity;
    uint64_t bytes;
    int64_t asked_ms;
    struct tm_peer waiting[FOLLOWERS_MAX]; /* for the gradients of the next step */
    size_t waiting_count;
    uint64_t waiting_number;
};
struct serving {
    struct followed *layers;
    size_t count;
    size_t capacity;
    uint64_t bytes;
};

/* Layers that we follow. */
struct following_layer {
    uint32_t layer;
    uint64_t source;
    uint64_t version; /* step of the one that comes */
    uint64_t step;    /* at which the layer is; 0: it has not come yet */
    struct tm_block *block;
    uint64_t received;
    struct tm_block *gradient; /* of the next step */
    uint64_t gradient_received;
    struct tm_hash hash; /* once reported */
    bool asked;
    int64_t asked_ms;
};
struct follow_peer {
    struct tm_peer peer;
    char address[TM_MEMBER_ADDRESS_MAX];
};
struct follow {
    uint64_t number; /* of the order; 0: none */
    struct following_layer *layers;
    size_t count;
    struct follow_peer *peers;
    size_t peer_count;
    struct tm_peer *followers; /* to whom we give layers, and to nobody else */
    size_t follower_count;
    bool frozen; /* reported: stays as it is */
};

struct tm_worker {
    struct tm_worker_options options;
    struct tm_worker_engine engine;
    struct tm_peer self;
    struct tm_peer coordinator;

    /* the lease */
    bool registered;
    uint64_t nonce;
    int64_t hello_ms; /* last sent */
    uint64_t sequence;
    uint64_t acked_sequence;
    int64_t heartbeat_ms; /* last sent */
    int64_t *sent_ms;     /* ring: when heartbeat i was sent */
    int64_t contact_ms;   /* when the newest heartbeat that was answered was sent; NEVER_MS: not yet */
    uint32_t heartbeat_every_ms;
    uint32_t lease_ms;
    uint32_t orphan_ms;
    bool heartbeat_now; /* something the coordinator waits for has happened */

    /* the job, from Welcome */
    uint32_t layer_count; /* 0: not known yet */
    uint64_t steps;
    uint32_t micro_batches;

    /* the generation */
    enum tm_worker_phase phase;
    uint64_t generation; /* obeyed */
    struct tm_roster roster;
    size_t my_place; /* in the roster */
    uint64_t base;
    bool report_due;
    uint64_t drain_step;
    bool drain_heard; /* ... from the coordinator that is now: it counts on what it said, not on what another did */

    /* the state */
    struct held_layer *layers;
    uint64_t applied;
    double applied_norm;
    bool applied_norm_known;
    uint64_t held;
    bool computing;
    uint64_t applying; /* 0: none */
    double applying_norm;
    int64_t begun_ms;
    int64_t applied_ms;   /* when `applied` was; NEVER_MS: not by this process */
    uint64_t fenced_step; /* that was under way when the fence came; 0: none */
    uint32_t step_ms;
    struct ballot ballots[2];     /* of steps applied + 1 and applied + 2 */
    struct tm_norm *own_norms[2]; /* of the step prepared last and the one before it */
    size_t own_norm_count[2];
    uint64_t own_norm_step[2];
    int64_t prepared_ms; /* last sent */
    uint32_t vote_fan;   /* of the assignment */
    struct votes votes;
    struct paces paces;

    /* moving layers */
    struct fetch *fetches;
    size_t fetch_count;
    uint64_t progress;
    uint64_t fetched_bytes;
    struct layer_reads reads;

    /* copies */
    struct tm_block_pool *blocks;
    struct tm_copies copies;
    struct copy_out out;
    struct tm_step_list steps_told; /* that the coordinator may not have heard of yet; `sequence`: of the first
                                       heartbeat with it, 0: none yet */
    bool log_steps;                 /* or that its record may not have */
    char failure[TM_MESSAGE_STRING_MAX + 1];
    char trouble[TM_MESSAGE_STRING_MAX + 1]; /* with files; "": none */
    bool trouble_full;
    struct tm_last_lines failure_lines; /* of more than one */
    uint64_t refused;                   /* the set a target had no room for */

    /* following */
    struct serving serving;
    struct follow follow;
};

/* worker.c */
tm_message tm_worker__head(const struct tm_worker *w, const struct tm_peer *to);
struct tm_peer tm_worker__member(const struct tm_worker *w, uint64_t id); /* of the roster; id 0 if not there */
/* Is the sender a member of the roster, and the very process? Its incarnation is drawn by it and told to members alone,
 * so others on this machine cannot speak in its name. */
bool tm_worker__from_member(const struct tm_worker *w, const tm_message *message);
bool tm_worker__leased(const struct tm_worker *w, int64_t now_ms);
uint64_t tm_worker__applied_ago_ms(const struct tm_worker *w, int64_t now_ms);
bool tm_worker__may_work(const struct tm_worker *w, int64_t now_ms);
void tm_worker__say_now(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out);

/* worker_check.c */
bool tm_worker__may_enter(enum tm_worker_phase from, enum tm_worker_phase to);
void tm_worker__enter(struct tm_worker *w, enum tm_worker_phase phase);
void tm_worker__check(const struct tm_worker *w); /* what always holds, after every event */

/* worker_step.c */
int tm_worker__steps_init(struct tm_worker *w);
void tm_worker__steps_deinit(struct tm_worker *w);
void tm_worker__steps_reset(struct tm_worker *w); /* a new generation: no flag counts any more */
void tm_worker__pump(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out);
void tm_worker__resend_prepared(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out);
void tm_worker__on_prepared(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
uint64_t tm_worker__waiting_for(const struct tm_worker *w);
uint64_t tm_worker__micro_us(const struct tm_worker *w); /* the median of the last steps; 0: too few so far */

/* worker_generation.c */
void tm_worker__fence(struct tm_worker *w, uint64_t generation); /* nothing if it is not newer */
void tm_worker__on_fence(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_worker__on_resolve(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_worker__on_assign(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_worker__on_start(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_worker__report(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out);
void tm_worker__check_ready(struct tm_worker *w, struct tm_outbox *out);
void tm_worker__say_ready(struct tm_worker *w, struct tm_outbox *out);

/* worker_fetch.c */
int tm_worker__fetch_begin(struct tm_worker *w, const Tmw__Assign *assign);
void tm_worker__fetch_pump(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out);
void tm_worker__fetch_end(struct tm_worker *w);
void tm_worker__on_fetch_request(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_worker__on_fetch_data(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_worker__on_fetch_refused(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);

/* worker_reads.c */
/* The bytes of a layer that is held, as of its step, which is then hashed; no step is being applied. They stay until
 * the next call, or longer. NULL: out of memory, or the engine failed. */
const uint8_t *tm_worker__layer_bytes(struct tm_worker *w, uint32_t layer, uint64_t *out_size);
/* Training goes on, or a fence came: what was read is forgotten. */
void tm_worker__reads_end(struct tm_worker *w);

/* worker_follow.c */
void tm_worker__on_follow(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_worker__on_follow_request(struct tm_worker *w, int64_t now_ms, const tm_message *message,
                                  struct tm_outbox *out);
void tm_worker__on_follow_data(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_worker__follow_pump(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out);
void tm_worker__follow_end(struct tm_worker *w);
void tm_worker__serving_end(struct tm_worker *w);
uint64_t tm_worker__follow_step(const struct tm_worker *w);
void tm_worker__keep_gradients(struct tm_worker *w, uint64_t step, double norm);
void tm_worker__tell_followers(struct tm_worker *w, struct tm_outbox *out);
size_t tm_worker__report_followed(struct tm_worker *w, struct tm_arena *arena, Tmw__LayerState ***out);
void tm_worker__take_followed(struct tm_worker *w, uint32_t layer);

/* worker_copy.c */
void tm_worker__on_copy_order(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_worker__on_copy_put(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_worker__on_copy_ack(struct tm_worker *w, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_worker__copy_applied(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out);
void tm_worker__copy_pump(struct tm_worker *w, int64_t now_ms, struct tm_outbox *out);
void tm_worker__copy_end(struct tm_worker *w);
/* The parts that have arrived, for the heartbeat. */
size_t tm_worker__list_steps(struct tm_worker *w, bool all, struct tm_arena *arena, Tmw__StepLoss ***out);
void tm_worker__step_done(struct tm_worker *w, uint64_t step);
size_t tm_worker__copied(const struct tm_worker *w, struct tm_arena *arena, Tmw__CopyPart ***out);

#endif
