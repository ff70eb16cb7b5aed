/* libtidemill: how an engine (any trainer) takes part in a Tidemill job. A C ABI that shows no types of the engine and
 * none of Tidemill's internals.
 *
 * The engine's thread does one piece of work after another:
 *
 *     tidemill *t = tidemill_open(&options, &engine, error, sizeof error);
 *     struct tidemill_work work;
 *     while (tidemill_next(t, &work) == 0) {
 *         if (work.kind == TIDEMILL_STEP) {          compute and reduce the gradients of work.step over work's share
 *             ... poll tidemill_cancelled(t) now and then (or implement `cancelled`), and stop if it is set ...
 *             tidemill_held(t, work.step, norms, count);
 *         } else if (work.kind == TIDEMILL_APPLY) {  apply them; work.norm is the sum of squares over all layers
 *             tidemill_applied(t, work.step);
 *         }
 *     }
 *     tidemill_close(t);
 *
 * Meanwhile a thread of the library joins, keeps the lease, votes on steps, moves layers between workers and makes
 * copies. It may read a layer's memory whenever no step is being applied, and never writes to it: fetched layers are
 * put into the engine's memory, or handed to it, inside tidemill_next, by the engine's own thread. */
#ifndef TIDEMILL_H
#define TIDEMILL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TIDEMILL_API __attribute__((visibility("default")))

typedef struct tidemill tidemill;

/* Set `size` to sizeof(struct tidemill_options): fields may be added at the end, and count as 0 for programs that do
 * not know them. Strings are copied. */
struct tidemill_options {
    size_t size;
    const char *coordinator; /* HOST:PORT */
    const char *listen;      /* where peers reach us: HOST:PORT, or HOST and any port; NULL: 127.0.0.1 */
    const char *token;       /* the job's join token; NULL: it is in token_file */
    const char *kernel_class;
    const char *tls_folder;  /* ca.pem, node.pem, node.key; NULL: none, loopback only */
    const char *copy_folder; /* for copies in files; NULL: none */
    uint64_t job;
    uint64_t instance;    /* this worker's number, > 0: its instance's, where instances have one worker each */
    uint64_t incarnation; /* of this process; 0: random */
    int anchor;
    uint64_t copy_bytes_max; /* memory for copies of others' layers; 0: 1 GiB */
    const char *endpoint;    /* where the engines of peers reach ours; any string of less than 108 bytes; NULL: none */
    const char *token_file;
    /* What this worker would train: lines "name=value" (a learning rate, a hash of the data). A worker that differs
     * from the job in one of them is refused and told which. NULL: nothing is compared. */
    const char *fingerprint;
};

struct tidemill_engine {
    void *context;
    /* The size of a layer's whole state in bytes. Any thread. */
    uint64_t (*layer_bytes)(void *context, uint32_t layer);
    /* Writes the layer's state before the first step, a pure function of the job. Any thread. Not 0: failed. */
    int (*init_layer)(void *context, uint32_t layer, void *out, uint64_t bytes);
    /* Where the engine keeps the layer, NULL: no memory. Called by the engine's thread, inside tidemill_next; the
     * memory must stay until drop_layer, also called there. */
    void *(*layer_memory)(void *context, uint32_t layer, uint64_t bytes);
    void (*drop_layer)(void *context, uint32_t layer);
    /* For engines whose layers are not plain memory (a GPU's); both or none, and then neither layer_memory nor
     * take_layer is called. Not 0: failed. read_layer is called by any thread, but never while a step is applied;
     * write_layer by the engine's, inside tidemill_next. */
    int (*read_layer)(void *context, uint32_t layer, void *out, uint64_t bytes);
    int (*write_layer)(void *context, uint32_t layer, const void *data, uint64_t bytes);
    /* The current step was cancelled (tidemill_cancelled is set, too): ends what the computation is waiting for,
     * without waiting itself. Called by the library's thread; it must not call the library. NULL: none. */
    void (*cancelled)(void *context);
    /* To move layers while they are trained: the worker that will get one applies the gradients of the steps that the
     * others do meanwhile. Give all three or none (layers then move while all wait). gradient_bytes: the most bytes
     * that the reduced gradients of a layer take (any thread). read_gradient: called between tidemill_held and the
     * APPLY of that step, by any thread. advance_layer does to a layer's state, given as bytes, what APPLY does: a pure
     * function, to the same bits, called by the library's thread. Not 0: failed. */
    uint64_t (*gradient_bytes)(void *context, uint32_t layer);
    int (*read_gradient)(void *context, uint32_t layer, void *out, uint64_t bytes);
    int (*advance_layer)(void *context, uint32_t layer, uint64_t step, double norm, void *state, uint64_t state_bytes,
                         const void *gradient, uint64_t gradient_bytes);
    /* Instead of layer_memory, which is then not called: the layer is in `memory`, page-aligned (or will be before
     * tidemill_next returns), and the engine keeps it there, so that what was read from a disk or came from a peer is
     * not copied again. Called by the engine's thread, inside tidemill_next. The engine reads and writes it until the
     * layer is given again (in other memory), is dropped, or tidemill_close; the library frees it. Not 0: not enough
     * memory for what else the layer needs. */
    int (*take_layer)(void *context, uint32_t layer, void *memory, uint64_t bytes);
};

enum tidemill_kind { TIDEMILL_STEP = 1, TIDEMILL_APPLY = 2 };

struct tidemill_peer {
    uint64_t instance;
    uint32_t pipeline;
    uint32_t stage;
    const char *address;  /* of its library; strings are valid until the next tidemill_next */
    const char *endpoint; /* of its engine, as it gave it; "": none */
};

struct tidemill_work {
    enum tidemill_kind kind;
    uint64_t generation;
    uint64_t step;
    double norm;       /* APPLY */
    uint32_t pipeline; /* ours, of `pipelines` */
    uint32_t pipelines;
    uint32_t stage; /* ours, of `stages` */
    uint32_t stages;
    uint32_t first_layer; /* ours: [first_layer, last_layer) */
    uint32_t last_layer;
    uint32_t first_micro_batch; /* our pipeline's: [first, last) of the step's */
    uint32_t last_micro_batch;
    const struct tidemill_peer *peers; /* all seated members; valid until the next tidemill_next */
    size_t peer_count;
    const uint32_t *stage_first;       /* stage s of all pipelines holds layers [stage_first[s], stage_first[s + 1]) */
    const uint32_t *micro_batch_first; /* pipeline p has micro-batches [micro_batch_first[p], [p + 1]) */
};

struct tidemill_norm {
    uint32_t layer;
    double sum; /* of squares of the layer's reduced gradient */
};

/* For bindings without a compiler's checks: a number that grows when meanings change, and the sizes of the structs. */
enum { TIDEMILL_ABI = 1 };
struct tidemill_abi {
    uint32_t number;
    uint32_t options;
    uint32_t engine;
    uint32_t peer;
    uint32_t work;
    uint32_t norm;
};
TIDEMILL_API struct tidemill_abi tidemill_abi(void);

/* Options of a worker that an agent has started, from the environment: TIDEMILL_COORDINATOR, TIDEMILL_TOKEN_FILE,
 * TIDEMILL_JOB, TIDEMILL_INSTANCE_ID, TIDEMILL_INCARNATION, TIDEMILL_HOST (listen), TIDEMILL_COPIES (copy_folder),
 * TIDEMILL_TLS (tls_folder), TIDEMILL_ANCHOR (1: anchor), TIDEMILL_FINGERPRINT. Strings are borrowed. Not 0:
 * `error` says which is missing or wrong. kernel_class and endpoint are the engine's to set. */
TIDEMILL_API int tidemill_options_from_environment(struct tidemill_options *out, char *error, size_t error_size);
/* NULL: failed, and `error` says why. */
TIDEMILL_API tidemill *tidemill_open(const struct tidemill_options *options, const struct tidemill_engine *engine,
                                     char *error, size_t error_size);
TIDEMILL_API void tidemill_close(tidemill *t);

/* Waits for the next piece of work: 0 and `out`, 1 when the job is finished, negative if this worker was refused or the
 * job has failed. */
TIDEMILL_API int tidemill_next(tidemill *t, struct tidemill_work *out);
/* Was the current step cancelled? Cheap. */
TIDEMILL_API int tidemill_cancelled(tidemill *t);
/* The step's reduced gradients are held: 0, or 1 if the step was cancelled in the meantime. */
TIDEMILL_API int tidemill_held(tidemill *t, uint64_t step, const struct tidemill_norm *norms, size_t count);
TIDEMILL_API int tidemill_applied(tidemill *t, uint64_t step);
/* Reports the loss of a step to the user; before tidemill_applied of that step, by any worker that knows it. Numbers
 * that are not finite are not passed on. */
TIDEMILL_API void tidemill_report_loss(tidemill *t, uint64_t step, double loss);
/* Optional: how long this worker computed for a step, in microseconds, without what it waited for others; before
 * tidemill_held of that step. Micro-batches are shared out among pipelines by it. An engine that says it at all says it
 * on every worker. */
TIDEMILL_API void tidemill_computed(tidemill *t, uint64_t step, uint64_t microseconds);
/* Another number of a step, for the loggers of the job file (tidemill-job(5), log), as the loss: by every worker that
 * knows it, so that losing one loses nothing. At most 16 a step, with names of at most 47 bytes. */
TIDEMILL_API void tidemill_report_metric(tidemill *t, uint64_t step, const char *name, double value);
/* The job itself is wrong (an exception in the user's code, a loss that is not a number) and would fail again: this is
 * recorded, all workers stop and nothing is retried. tidemill_next then returns a negative number. */
TIDEMILL_API void tidemill_failed(tidemill *t, const char *reason);
/* Why tidemill_next returned other than 0; "" before. Valid until tidemill_close. */
TIDEMILL_API const char *tidemill_reason(const tidemill *t);
/* The computation waits for data of this peer (0: of none). Lets the coordinator find a cut link. */
TIDEMILL_API void tidemill_waiting_for(tidemill *t, uint64_t instance);

/* The order of samples that Tidemill's own engines keep: each item once an epoch, in a keyed permutation, whoever asks.
 * `out` gets the items (0 to items - 1) of `count` samples of a job from number `first` (from 0) on. Not 0: no items.
 */
TIDEMILL_API int tidemill_sample_items(uint64_t seed, uint64_t items, uint64_t first, size_t count, uint64_t *out);
/* What seeds the random numbers of samples (or micro-batches) `first` and following of a step, for a purpose: 63 bits
 * each, a function of these numbers alone. */
TIDEMILL_API void tidemill_sample_keys(uint64_t seed, uint64_t step, uint32_t first, size_t count, uint16_t purpose,
                                       uint64_t *out);

#ifdef __cplusplus
}
#endif

#endif
