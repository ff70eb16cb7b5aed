/* Layers that were read from an engine that has no memory of them to look at, such as a GPU's. At a fence a layer is
 * read for its hash; whoever lacks it asks for it next: what was read is kept until training goes on, so that it is
 * read once. */
#include "worker/worker_internal.h"

#include "base/alloc.h"

#include <assert.h>

/* Beyond it, what was read before is forgotten, and read again where it is asked for. */
static const uint64_t kept_bytes_max = (uint64_t)4 << 30;

void tm_worker__reads_end(struct tm_worker *w)
{
    for (size_t i = 0; i < w->reads.count; i++)
        tm_block_release(w->reads.list[i].block);
    tm_free(w->reads.list);
    w->reads = (struct layer_reads){.list = NULL};
}

/* By its hash: a layer that has changed since, or was fetched anew, has another. */
static const struct layer_read *find(const struct tm_worker *w, uint32_t layer)
{
    const struct held_layer *held = &w->layers[layer];
    for (size_t i = 0; held->hashed && i < w->reads.count; i++) {
        const struct layer_read *read = &w->reads.list[i];
        if (read->layer == layer && tm_hash_equal(read->hash, held->hash)) return read;
    }
    return NULL;
}

static const uint8_t *read_layer(struct tm_worker *w, uint32_t layer, uint64_t size)
{
    if (w->reads.bytes + size > kept_bytes_max || w->reads.count == TM_LAYERS_MAX) tm_worker__reads_end(w);
    if (tm_grow((void **)&w->reads.list, &w->reads.capacity, w->reads.count + 1, sizeof *w->reads.list,
                TM_LAYERS_MAX) != 0)
        return NULL;
    struct tm_block *block = tm_block_create(w->blocks, (size_t)size);
    if (block == NULL || w->engine.export_layer(w->engine.context, layer, block->data, size) != 0) {
        tm_block_release(block);
        return NULL;
    }
    struct held_layer *held = &w->layers[layer];
    held->hash = tm_hash_of(block->data, (size_t)size);
    held->hashed = true;
    w->reads.list[w->reads.count++] = (struct layer_read){.layer = layer, .hash = held->hash, .block = block};
    w->reads.bytes += size;
    return block->data;
}

const uint8_t *tm_worker__layer_bytes(struct tm_worker *w, uint32_t layer, uint64_t *out_size)
{
    assert(layer < w->layer_count && w->layers[layer].have && w->applying == 0);
    struct held_layer *held = &w->layers[layer];
    *out_size = w->engine.layer_bytes(w->engine.context, layer);
    const uint8_t *seen = w->engine.view_layer != NULL ? w->engine.view_layer(w->engine.context, layer) : NULL;
    if (seen != NULL) {
        if (!held->hashed) held->hash = tm_hash_of(seen, (size_t)*out_size);
        held->hashed = true;
        return seen;
    }
    const struct layer_read *read = find(w, layer);
    return read != NULL ? read->block->data : read_layer(w, layer, *out_size);
}
