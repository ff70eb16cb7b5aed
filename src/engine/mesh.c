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

/* Sends chunk `out` to the right while chunk `in` comes from the left, piece by piece. */
static int pass_chunk(struct ring *ring, int out, int in, bool add, struct tm_error *e)
{
    const struct tm_group *group = ring->group;
    int right = group->ranks[(group->place + 1) % group->count];
    int left = group->ranks[(group->place + group->count - 1) % group->count];
    size_t out_at = chunk_start(ring, out);
    size_t out_end = chunk_start(ring, out + 1);
    size_t in_at = chunk_start(ring, in);
    size_t in_end = chunk_start(ring, in + 1);
    int rc = 0;
    while (rc == 0 && (out_at < out_end || in_at < in_end)) {
        size_t out_count = out_end - out_at < PIECE ? out_end - out_at : PIECE;
        size_t in_count = in_end - in_at < PIECE ? in_end - in_at : PIECE;
        uint64_t tag = ring->tag + (*ring->index)++;
        if (out_count > 0) rc = ring->mesh->send(ring->mesh, right, tag, ring->data + 4 * out_at, 4 * out_count, e);
        if (rc == 0 && in_count > 0) {
            struct tm_parcel *parcel = NULL;
            rc = ring->mesh->receive(ring->mesh, left, tag, 4 * in_count, &parcel, e);
            if (rc == 0) absorb(ring, in_at, parcel, in_count, add);
            if (rc == 0) ring->mesh->give_back(ring->mesh, parcel);
        }
        out_at += out_count;
        in_at += in_count;
    }
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
    int n = group->count;
    int rc = 0;
    for (int i = 0; rc == 0 && i < n - 1; i++) /* after this, chunk place + 1 is whole here */
        rc = pass_chunk(&ring, (group->place - i + n) % n, (group->place - i - 1 + 2 * n) % n, true, e);
    for (int i = 0; rc == 0 && i < n - 1; i++)
        rc = pass_chunk(&ring, (group->place - i + 1 + n) % n, (group->place - i + n) % n, false, e);
    return rc;
}

int tm_mesh__all_largest(struct tm_mesh *mesh, const struct tm_group *group, float *values, size_t count, uint64_t tag,
                         struct tm_error *e)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < group->count; i++) {
        if (i != group->place) rc = mesh->send(mesh, group->ranks[i], tag, values, count * sizeof *values, e);
    }
    for (int i = 0; rc == 0 && i < group->count; i++) {
        struct tm_parcel *parcel = NULL;
        if (i == group->place) continue;
        rc = mesh->receive(mesh, group->ranks[i], tag, count * sizeof *values, &parcel, e);
        if (rc != 0) break;
        const float *theirs = (const void *)parcel->data;
        for (size_t k = 0; k < count; k++) {
            if (isnan(theirs[k]) || theirs[k] > values[k]) values[k] = theirs[k];
        }
        mesh->give_back(mesh, parcel);
    }
    return rc;
}
