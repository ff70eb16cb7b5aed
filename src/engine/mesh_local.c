#include "engine/mesh_local.h"

#include "base/alloc.h"
#include "base/random.h"

#include <string.h>

enum { HELD_MAX = 4 };
static const size_t inbox_bytes_max = (size_t)4 << 30;

struct end {
    struct tm_mesh mesh; /* first: a mesh is its end */
    struct tm_mesh_local *local;
    struct tm_inbox inbox;
    struct tm_parcel *held[HELD_MAX]; /* shuffled: sent by this end, not yet put */
    int held_to[HELD_MAX];
    int held_count;
    struct tm_random random;
};

struct tm_mesh_local {
    int size;
    int ready; /* ends whose inbox is there */
    bool shuffled;
    struct end *ends;
};

static struct end *end_of(struct tm_mesh *mesh)
{
    return (struct end *)(void *)mesh;
}

/* Lets held messages go, in a random order, until at most `keep` are left. */
static int let_go(struct end *end, int keep, struct tm_error *e)
{
    int rc = 0;
    while (rc == 0 && end->held_count > keep) {
        int pick = (int)tm_random_below(&end->random, (uint64_t)end->held_count);
        struct tm_parcel *parcel = end->held[pick];
        int to = end->held_to[pick];
        end->held_count--;
        end->held[pick] = end->held[end->held_count];
        end->held_to[pick] = end->held_to[end->held_count];
        rc = tm_inbox__put(&end->local->ends[to].inbox, parcel, e);
    }
    return rc;
}

static int local_send(struct tm_mesh *mesh, int to, uint64_t tag, const void *data, size_t length, struct tm_error *e)
{
    struct end *end = end_of(mesh);
    struct tm_inbox *inbox = &end->local->ends[to].inbox;
    struct tm_parcel *parcel = tm_inbox__parcel(inbox, length);
    if (parcel == NULL) return tm_error_nomem(e);
    parcel->from = mesh->rank;
    parcel->tag = tag;
    memcpy(parcel->data, data, length);
    mesh->bytes_sent += length;
    if (!end->local->shuffled) return tm_inbox__put(inbox, parcel, e);
    int rc = let_go(end, HELD_MAX - 1, e);
    if (rc != 0) {
        tm_free(parcel);
        return rc;
    }
    end->held[end->held_count] = parcel;
    end->held_to[end->held_count++] = to;
    return 0;
}

static int local_receive(struct tm_mesh *mesh, int from, uint64_t tag, size_t length, struct tm_parcel **out,
                         struct tm_error *e)
{
    struct end *end = end_of(mesh);
    int rc = let_go(end, 0, e); /* who waits may hold nothing that others wait for */
    return rc == 0 ? tm_inbox__take(&end->inbox, from, tag, length, out, e) : rc;
}

static void local_give_back(struct tm_mesh *mesh, struct tm_parcel *parcel)
{
    tm_inbox__give_back(&end_of(mesh)->inbox, parcel);
}

static void local_cancel(struct tm_mesh *mesh)
{
    tm_inbox__cancel(&end_of(mesh)->inbox);
}

int tm_mesh_local_create(int size, struct tm_mesh_local **out, struct tm_error *e)
{
    struct tm_mesh_local *local = tm_calloc(1, sizeof *local);
    if (local == NULL) return tm_error_nomem(e);
    local->size = size;
    local->ends = tm_calloc((size_t)size, sizeof *local->ends);
    int rc = local->ends == NULL ? tm_error_nomem(e) : 0;
    for (int i = 0; rc == 0 && i < size; i++) {
        struct end *end = &local->ends[i];
        end->mesh = (struct tm_mesh){.rank = i,
                                     .size = size,
                                     .send = local_send,
                                     .receive = local_receive,
                                     .give_back = local_give_back,
                                     .cancel = local_cancel};
        end->local = local;
        rc = tm_inbox__init(&end->inbox, inbox_bytes_max, e);
        if (rc == 0) local->ready++;
    }
    if (rc != 0) {
        tm_mesh_local_destroy(local);
        return rc;
    }
    *out = local;
    return 0;
}

void tm_mesh_local_destroy(struct tm_mesh_local *local)
{
    if (local == NULL) return;
    for (int i = 0; local->ends != NULL && i < local->ready; i++) {
        for (int k = 0; k < local->ends[i].held_count; k++)
            tm_free(local->ends[i].held[k]);
        tm_inbox__deinit(&local->ends[i].inbox);
    }
    tm_free(local->ends);
    tm_free(local);
}

struct tm_mesh *tm_mesh_local_end(struct tm_mesh_local *local, int rank)
{
    return &local->ends[rank].mesh;
}

void tm_mesh_local__leave(struct tm_mesh_local *local, int rank)
{
    (void)let_go(&local->ends[rank], 0, NULL);
}

void tm_mesh_local__cancel_all(struct tm_mesh_local *local)
{
    for (int i = 0; i < local->size; i++)
        tm_inbox__cancel(&local->ends[i].inbox);
}

void tm_mesh_local__shuffle(struct tm_mesh_local *local, uint64_t seed)
{
    local->shuffled = seed != 0;
    for (int i = 0; i < local->size; i++)
        local->ends[i].random = tm_random_make(seed, (uint64_t)i);
}
