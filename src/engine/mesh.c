#include "engine/mesh.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1 << 16 }; /* elements of a message: large enough to pay, small enough to stay in the cache */

uint64_t tm_message__tag(enum tm_message_kind kind, int64_t step, uint32_t attempt, uint32_t index)
{
    return (uint64_t)kind << 60 | ((uint64_t)step & 0xFFFFFF) << 36 | (uint64_t)(attempt & 0xF) << 32 | index;
}

int tm_mesh__receive_into(struct tm_mesh *mesh, int from, uint64_t tag, void *buffer, size_t length, struct tm_error *e)
{
    struct tm_parcel *parcel = NULL;
    int rc = mesh->receive(mesh, from, tag, length, &parcel, e);
    if (rc != 0) return rc;
    memcpy(buffer, parcel->data, length);
    mesh->give_back(mesh, parcel);
    return 0;
}

struct ring {
    struct tm_mesh *mesh;
    const struct tm_group *group;
    const struct tm_kernels *kernels;
    enum tm_sum_kind kind;
    unsigned char *data;
    size_t count;
    uint64_t tag;
    uint32_t *index;
};

static size_t chunk_start(const struct ring *ring, int chunk)
{
    return ring->count * (size_t)chunk / (size_t)ring->group->count;
}

static void absorb(const struct ring *ring, size_t at, const struct tm_parcel *parcel, size_t count, bool add)
{
    void *to = ring->data + 4 * at;
    if (!add)
        memcpy(to, parcel->data, 4 * count);
    else if (ring->kind == TM_SUM_I32)
        ring->kernels->add_i32(to, (const void *)parcel->data, count);
    else
        ring->kernels->add_f32(to, (const void *)parcel->data, count);
}

/* Some of the elements. */
struct range {
    size_t at;
    size_t end;
};

/* Pieces are numbered by round, so that all count alike, whatever each has to do in one. */
struct round {
    struct ring *ring;
    uint32_t first;  /* index of the first piece of the first round */
    uint32_t pieces; /* that a round can have */
    uint32_t number;
};

static struct round rounds_of(struct ring *ring, size_t most)
{
    return (struct round){.ring = ring, .first = *ring->index, .pieces = (uint32_t)((most + PIECE - 1) / PIECE)};
}

/* Sends some elements to one while others come from another, piece by piece. */
static int swap(const struct round *round, int to, struct range out, int from, struct range in, bool add,
                struct tm_error *e)
{
    const struct ring *ring = round->ring;
    uint64_t tag = ring->tag + round->first + round->number * round->pieces;
    int rc = 0;
    for (; rc == 0 && (out.at < out.end || in.at < in.end); tag++) {
        size_t out_count = out.end - out.at < PIECE ? out.end - out.at : PIECE;
        size_t in_count = in.end - in.at < PIECE ? in.end - in.at : PIECE;
        if (out_count > 0) rc = ring->mesh->send(ring->mesh, to, tag, ring->data + 4 * out.at, 4 * out_count, e);
        if (rc == 0 && in_count > 0) {
            struct tm_parcel *parcel = NULL;
            rc = ring->mesh->receive(ring->mesh, from, tag, 4 * in_count, &parcel, e);
            if (rc == 0) absorb(ring, in.at, parcel, in_count, add);
            if (rc == 0) ring->mesh->give_back(ring->mesh, parcel);
        }
        out.at += out_count;
        in.at += in_count;
    }
    return rc;
}

/* Sends chunk `out` to the right while chunk `in` comes from the left. */
static int pass_chunk(const struct round *round, int out, int in, bool add, struct tm_error *e)
{
    const struct ring *ring = round->ring;
    const struct tm_group *group = ring->group;
    int right = group->ranks[(group->place + 1) % group->count];
    int left = group->ranks[(group->place + group->count - 1) % group->count];
    struct range sent = {chunk_start(ring, out), chunk_start(ring, out + 1)};
    struct range came = {chunk_start(ring, in), chunk_start(ring, in + 1)};
    return swap(round, right, sent, left, came, add, e);
}

static int reduce_in_ring(struct ring *ring, struct tm_error *e)
{
    int n = ring->group->count, place = ring->group->place, rc = 0;
    struct round round = rounds_of(ring, (ring->count + (size_t)n - 1) / (size_t)n);
    for (int i = 0; rc == 0 && i < n - 1; i++, round.number++) /* after this, chunk place + 1 is whole here */
        rc = pass_chunk(&round, (place - i + n) % n, (place - i - 1 + 2 * n) % n, true, e);
    for (int i = 0; rc == 0 && i < n - 1; i++, round.number++)
        rc = pass_chunk(&round, (place - i + 1 + n) % n, (place - i + n) % n, false, e);
    *ring->index += 2 * (uint32_t)(n - 1) * round.pieces;
    return rc;
}

/* ---- by halves ---- */

static int swap_with(const struct round *round, int place, struct range out, struct range in, bool add,
                     struct tm_error *e)
{
    int rank = round->ring->group->ranks[place];
    return swap(round, rank, out, rank, in, add, e);
}

/* Each swaps a half of what it sums with the one at half the distance, down to its own part; then the parts come
 * together the same way. `size`, a power of two, take part. */
static int sum_halves(struct round *round, int size, struct tm_error *e)
{
    int place = round->ring->group->place, rc = 0, level = 0;
    struct range own = {0, round->ring->count}, others[8 * sizeof(int)];
    for (int distance = size / 2; rc == 0 && distance > 0; distance /= 2, level++, round->number++) {
        size_t middle = own.at + (own.end - own.at) / 2;
        struct range low = {own.at, middle}, high = {middle, own.end};
        bool lower = (place & distance) == 0;
        own = lower ? low : high;
        others[level] = lower ? high : low;
        rc = swap_with(round, place ^ distance, others[level], own, true, e);
    }
    for (int distance = 1; rc == 0 && level > 0; distance *= 2, round->number++) {
        struct range other = others[--level];
        rc = swap_with(round, place ^ distance, own, other, false, e);
        own = (struct range){own.at < other.at ? own.at : other.at, own.end > other.end ? own.end : other.end};
    }
    return rc;
}

/* Those beyond the largest power of two give theirs to another one first, and get the sum last. */
static int reduce_by_halves(struct ring *ring, struct tm_error *e)
{
    int n = ring->group->count, place = ring->group->place, size = 1, levels = 0, rc = 0;
    struct range all = {0, ring->count}, none = {0, 0};
    for (; 2 * size <= n; size *= 2)
        levels++;
    struct round round = rounds_of(ring, ring->count);
    bool beyond = place >= size, helps = place < n - size;
    if (beyond) rc = swap_with(&round, place - size, all, none, false, e);
    if (helps) rc = swap_with(&round, place + size, none, all, true, e);
    round.number = 1;
    if (rc == 0 && !beyond) rc = sum_halves(&round, size, e);
    round.number = 2 * (uint32_t)levels + 1;
    if (rc == 0 && beyond) rc = swap_with(&round, place - size, none, all, false, e);
    if (rc == 0 && helps) rc = swap_with(&round, place + size, all, none, false, e);
    *ring->index += (2 * (uint32_t)levels + 2) * round.pieces;
    return rc;
}

int tm_mesh__all_reduce(struct tm_mesh *mesh, const struct tm_group *group, const struct tm_kernels *kernels,
                        enum tm_sum_kind kind, void *data, size_t count, uint64_t tag, uint32_t *index,
                        struct tm_error *e)
{
    struct ring ring = {.mesh = mesh,
                        .group = group,
                        .kernels = kernels,
                        .kind = kind,
                        .data = data,
                        .count = count,
                        .tag = tag,
                        .index = index};
    bool by_halves = group->count > TM_MESH_RING_MAX && kind == TM_SUM_I32;
    return by_halves ? reduce_by_halves(&ring, e) : reduce_in_ring(&ring, e);
}

static int hear_largest(struct tm_mesh *mesh, int from, float *values, size_t count, uint64_t tag, struct tm_error *e)
{
    struct tm_parcel *parcel = NULL;
    int rc = mesh->receive(mesh, from, tag, count * sizeof *values, &parcel, e);
    if (rc != 0) return rc;
    const float *theirs = (const void *)parcel->data;
    for (size_t k = 0; k < count; k++)
        if (isnan(theirs[k]) || theirs[k] > values[k]) values[k] = theirs[k];
    mesh->give_back(mesh, parcel);
    return 0;
}

int tm_mesh__all_largest(struct tm_mesh *mesh, const struct tm_group *group, float *values, size_t count, uint64_t tag,
                         struct tm_error *e)
{
    int rc = 0, n = group->count;
    for (int distance = 1; n > TM_MESH_RING_MAX && rc == 0 && distance < n; distance *= 2) {
        int to = group->ranks[(group->place + distance) % n], from = group->ranks[(group->place + n - distance) % n];
        rc = mesh->send(mesh, to, tag, values, count * sizeof *values, e);
        if (rc == 0) rc = hear_largest(mesh, from, values, count, tag, e);
    }
    if (n > TM_MESH_RING_MAX) return rc;
    for (int i = 0; rc == 0 && i < n; i++)
        if (i != group->place) rc = mesh->send(mesh, group->ranks[i], tag, values, count * sizeof *values, e);
    for (int i = 0; rc == 0 && i < n; i++)
        if (i != group->place) rc = hear_largest(mesh, group->ranks[i], values, count, tag, e);
    return rc;
}
