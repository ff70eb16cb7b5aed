/* The worker's side of the protocol as a state machine: (state, event) -> (state, actions). It does no I/O and reads no
 * clock; every event brings the time (monotonic, ms), every action goes to an outbox. include/tidemill.h is the
 * blocking interface over it that engines use; the simulated cluster drives it directly.
 *
 *             Fence(g)                 Assign(g)              all layers at base          Start(g)
 *   any phase ---------> FENCED ------------------> FETCHING --------------------> READY ----------> RUNNING
 *                        report (applied, held)     fetch what is missing          say so            step after step
 *
 * A step in RUNNING: the engine computes until it holds the reduced gradients (tm_worker_held); the worker then tells
 * every member "prepared" with its layers' shares of the norm; a worker that has heard it from all applies the step
 * (tm_worker_applied ends it). So a member can be at most one step ahead of another, and one that is behind still holds
 * the gradients of the step that the other has applied: this is what lets a new generation resolve the step in doubt.
 *
 * In a large generation not every member tells every other: the flags of a step go up a tree and come down again
 * (Assign.vote_fan says how many branches; the coordinator chooses). Seated members are its nodes, in the order of
 * their numbers. A member tells its parent once it and all below it are prepared, with the shares of the norm that they
 * know; who has no parent then knows that all are, adds the norm, and applies the step; "all are prepared", with the
 * norm, goes down. One that has applied the step answers a child that still asks. What was said above holds: who
 * applies a step knows that all are prepared.
 *
 * Three things stop a worker: a fence (messages of other generations are then ignored), the end of the orphan time (the
 * coordinator was not heard: it may have started a generation without us), and Stop. A worker whose
 * lease has ended serves no layers. */
#ifndef TM_WORKER_WORKER_H
#define TM_WORKER_WORKER_H

#include "store/copies.h"
#include "wire/outbox.h"
#include "wire/roster.h"

enum { TM_WORKER_FILES_AT_ONCE = 8 }; /* that one worker has written */

/* Actions beside TM_ACTION_SEND. Copies in files are named by (set, layer): number and other. */
enum {
    TM_WORKER_FILE_PUT = TM_ACTION_OWN, /* of what tm_worker_file_block gives; answer with tm_worker__file_put */
    TM_WORKER_FILE_GET,                 /* answer with tm_worker__file_got */
    TM_WORKER_STOP, /* the job is done, or we were refused or the job has failed (number: 1); data: why */
};

/* What reading a part of a copy set came to. */
enum tm_copy_state {
    TM_COPY_LATER, /* could not be read now */
    TM_COPY_BAD,   /* is not there, or not what it should be */
    TM_COPY_GOOD,
};
struct tm_copy_got {
    enum tm_copy_state state;
    struct tm_copy_name name; /* GOOD: as it says itself, the hash compared with the bytes */
    struct tm_block *block;   /* GOOD: a share, the caller's */
};

struct tm_norm {
    uint32_t layer;
    double sum; /* of squares of its reduced gradient */
};

/* The trainer. Calls come from inside a step of the machine and may not call back into it. All state that the engine
 * keeps for a layer (weights, moments, scale) is one run of bytes here. */
struct tm_worker_engine {
    void *context;
    uint64_t (*layer_bytes)(void *context, uint32_t layer);
    /* The layer's state as of the last step applied. Never called while a step is being applied. */
    int (*export_layer)(void *context, uint32_t layer, void *out, uint64_t size);
    /* The same without copying, valid until the next event; NULL (the function, or what it gives): only by export. */
    const void *(*view_layer)(void *context, uint32_t layer);
    /* The engine may keep a share of the block. */
    int (*import_layer)(void *context, uint32_t layer, uint64_t step, struct tm_block *block);
    int (*init_layer)(void *context, uint32_t layer); /* as it was before step 1 */
    void (*drop_layer)(void *context, uint32_t layer);
    void (*begin)(void *context, const struct tm_roster *roster, uint64_t step); /* later: tm_worker_held */
    void (*cancel)(void *context);                                               /* what begin began */
    void (*apply)(void *context, uint64_t step, double norm);                    /* later: tm_worker_applied */
    void (*discard)(void *context);                                              /* gradients held but not applied */
    uint64_t (*waiting_for)(void *context); /* the member whose data the computation lacks; 0: none */
    /* For layers to be taken while they are trained (worker_follow.c); all three or none. The reduced gradients of a
     * layer as bytes: read between tm_worker_held and apply of that step. */
    uint64_t (*gradient_bytes)(void *context, uint32_t layer); /* the most it can be */
    int (*export_gradient)(void *context, uint32_t layer, void *out, uint64_t size);
    /* What `apply` does to a layer's state, done to these bytes of it: a pure function. */
    int (*advance_layer)(void *context, uint32_t layer, uint64_t step, double norm, void *state, uint64_t state_size,
                         const void *gradient, uint64_t gradient_size);
};

struct tm_worker_options {
    uint64_t job;
    uint64_t id; /* of the instance; > 0 */
    uint64_t incarnation;
    const char *token;        /* borrowed */
    const char *address;      /* borrowed */
    const char *kernel_class; /* borrowed */
    const char *fingerprint;  /* lines of wire/fingerprint.h; borrowed; NULL: none */
    const char *endpoint;     /* borrowed; of the engine, told to its peers; NULL: none */
    bool anchor;
    uint32_t chunk_bytes;    /* of a layer in one message */
    uint64_t copy_bytes_max; /* memory for others' copies */
    int64_t resend_ms;
};

struct tm_worker;

/* The caller owns the result. Options' texts must outlive it. NULL: out of memory. */
struct tm_worker *tm_worker_create(const struct tm_worker_options *options, const struct tm_worker_engine *engine);
void tm_worker_destroy(struct tm_worker *worker);

/* Events. The outbox gets what is to be done; a failure in it means that the worker must be destroyed. */
void tm_worker_tick(struct tm_worker *worker, int64_t now_ms, struct tm_outbox *out);
void tm_worker_receive(struct tm_worker *worker, int64_t now_ms, const tm_message *message, struct tm_outbox *out);
void tm_worker_held(struct tm_worker *worker, int64_t now_ms, uint64_t step, const struct tm_norm *norms, size_t count,
                    struct tm_outbox *out);
void tm_worker_applied(struct tm_worker *worker, int64_t now_ms, uint64_t step, struct tm_outbox *out);
void tm_worker__file_put(struct tm_worker *worker, int64_t now_ms, uint64_t set, uint32_t layer, bool stored,
                         struct tm_outbox *out);
/* Why the last file could not be written or read, in words; `full`: there is no room. "": it could. The coordinator is
 * told. */
void tm_worker__file_trouble(struct tm_worker *worker, bool full, const char *trouble);
/* LATER: it will be asked for again. The caller keeps its share. */
void tm_worker__file_got(struct tm_worker *worker, int64_t now_ms, uint64_t set, uint32_t layer,
                         const struct tm_copy_got *got, struct tm_outbox *out);
/* What a file is to hold: a share, the caller's; NULL: not needed any more. */
struct tm_block *tm_worker_file_block(struct tm_worker *worker, uint64_t set, uint32_t layer,
                                      struct tm_copy_name *out_name);
/* Where blocks for it come from; borrowed. */
struct tm_block_pool *tm_worker_blocks(struct tm_worker *worker);

/* The loss of a step, for the coordinator's view; before tm_worker_applied of that step. Finite. */
void tm_worker_loss(struct tm_worker *worker, uint64_t step, double loss);
/* How long the engine computed for a step, others not waited for; before tm_worker_held of that step. What a
 * micro-batch takes is told to the coordinator, which shares them out by it. Engines need not say it. */
void tm_worker_computed(struct tm_worker *worker, uint64_t step, uint64_t time_us);
/* Another number of a step, for loggers; nothing where the job has none. Finite. */
void tm_worker__metric(struct tm_worker *worker, uint64_t step, const char *name, double value);
/* The job itself is wrong: the coordinator is told with every heartbeat until it stops us. */
void tm_worker__failed(struct tm_worker *worker, int64_t now_ms, const char *reason, struct tm_outbox *out);

/* A view for programs and checkers; borrowed, valid until the next event. */
struct tm_worker_view {
    enum tm_worker_phase phase;
    uint64_t generation; /* obeyed */
    uint64_t applied;
    uint64_t held;
    bool registered;
    bool working; /* computing or applying */
    bool may_serve;
    const struct tm_roster *roster; /* of the last assignment */
    const struct tm_copies *copies;
    uint64_t snapshot_bytes; /* kept for copies under way */
    uint32_t layers;
    uint64_t steps; /* of the job */
    uint64_t fetched_bytes;
};
struct tm_worker_view tm_worker_look(const struct tm_worker *worker, int64_t now_ms);
/* Where a peer is reached, as the coordinator told; NULL: not known. */
const char *tm_worker__address(const struct tm_worker *worker, uint64_t id);
/* Does it hold the layer's state, and of which step? */
bool tm_worker_holds(const struct tm_worker *worker, uint32_t layer, uint64_t *out_step);

#endif
