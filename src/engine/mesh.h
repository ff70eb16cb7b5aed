/* How the workers of one generation reach each other: send, receive, all-reduce; cancellable at once.
 *
 * A mesh is one worker's end. It lives for one generation: what an older one sent dies with its mesh. The engine knows
 * only this interface; behind it are queues between threads (mesh_local.h) or sockets (mesh_socket.h). */
#ifndef TM_ENGINE_MESH_H
#define TM_ENGINE_MESH_H

#include "engine/inbox.h"
#include "engine/kernels.h"

enum { TM_MESH_WORKERS_MAX = 256 }; /* that one mesh connects: so many train together */

struct tm_mesh {
    int rank;
    int size;
    uint64_t bytes_sent; /* payload so far */
    /* Hands a message over; the data is copied or written before it returns. Never waits for the receiver to ask. */
    int (*send)(struct tm_mesh *mesh, int to, uint64_t tag, const void *data, size_t length, struct tm_error *e);
    /* Waits for the message of that sender and tag; give it back with give_back. */
    int (*receive)(struct tm_mesh *mesh, int from, uint64_t tag, size_t length, struct tm_parcel **out,
                   struct tm_error *e);
    void (*give_back)(struct tm_mesh *mesh, struct tm_parcel *parcel);
    /* From any thread: every wait of this worker ends with -TM_ECANCELED, now and later. */
    void (*cancel)(struct tm_mesh *mesh);
    /* Was it cancelled? For who computes for long without waiting; NULL: it is not asked. */
    bool (*is_cancelled)(struct tm_mesh *mesh);
};

/* What a message is for; a tag is unique within a generation. */
enum tm_message_kind {
    TM_MESSAGE_FORWARD = 1, /* index: micro-batch */
    TM_MESSAGE_BACKWARD,    /* index: micro-batch */
    TM_MESSAGE_REDUCE,      /* index: a running number */
    TM_MESSAGE_LARGEST,
    TM_MESSAGE_EXCHANGE,
    TM_MESSAGE_LAYER, /* index: layer */
    TM_MESSAGE_REPORT,
};

uint64_t tm_message__tag(enum tm_message_kind kind, int64_t step, uint32_t attempt, uint32_t index);

int tm_mesh__receive_into(struct tm_mesh *mesh, int from, uint64_t tag, void *buffer, size_t length,
                          struct tm_error *e);

enum tm_sum_kind { TM_SUM_I32, TM_SUM_F32 };

/* Who sums: ranks in an order that all of them share; `place` is one's own index. */
struct tm_group {
    int ranks[TM_MESH_WORKERS_MAX];
    int count;
    int place;
};

/* The sum over the group, in place: every member sends and receives about twice the data. `tag` gives kind, step and
 * attempt; its index must leave room for the pieces (*index is moved on by as many as were used, for all alike).
 *
 * In a ring, in 2 (n - 1) messages of each member. Of more than TM_MESH_RING_MAX members integers, whose sum does not
 * depend on the order, are summed by halves: in about 2 log2(n) messages, to as many others. */
enum { TM_MESH_RING_MAX = 16 };
int tm_mesh__all_reduce(struct tm_mesh *mesh, const struct tm_group *group, const struct tm_kernels *kernels,
                        enum tm_sum_kind kind, void *data, size_t count, uint64_t tag, uint32_t *index,
                        struct tm_error *e);

/* The largest over the group, element by element; NAN wins. For a few numbers: everyone tells everyone, or, of more
 * than TM_MESH_RING_MAX members, those at a distance of 1, 2, 4, ... what it has heard so far. */
int tm_mesh__all_largest(struct tm_mesh *mesh, const struct tm_group *group, float *values, size_t count, uint64_t tag,
                         struct tm_error *e);

#endif
