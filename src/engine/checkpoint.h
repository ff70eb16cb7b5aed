/* Checkpoints: a folder a step, with shards in safetensors form and an index in Hugging Face's.
 *
 *     DIR/latest                              names of the folders below, newest first
 *     DIR/step-00000200/model-00001-of-00006.safetensors      weights of a layer, by GPT-2's names
 *     DIR/step-00000200/optimizer-00001-of-00006.safetensors  its moments and scales
 *     DIR/step-00000200/optimizer.safetensors.index.json
 *     DIR/step-00000200/config.json                           as Hugging Face's GPT-2 wants it
 *     DIR/step-00000200/model.safetensors.index.json          written last: with it, the checkpoint is whole
 *
 * Every file is written to a new name, synced and renamed; the indexes hold a checksum of every shard. Older
 * checkpoints are removed only when a newer one is whole. */
#ifndef TM_ENGINE_CHECKPOINT_H
#define TM_ENGINE_CHECKPOINT_H

#include "engine/layer_state.h"
#include "engine/safetensors.h"

/* ---- writing ---- */

struct tm_checkpoint_place {
    struct tm_env *env;
    const char *dir;
    int64_t keep; /* whole checkpoints that stay */
};

struct tm_checkpoint_info {
    struct tm_network network;
    int64_t step; /* steps that are in it */
    const char *kernels;
    const char *blas_core;
    const char *name;
    uint64_t seed;
};

struct tm_layer_files {
    struct tm_hash model;
    struct tm_hash optimizer;
};

/* The two files of one layer; any worker may write its own. */
int tm_checkpoint__write_layer(const struct tm_checkpoint_place *place, const struct tm_checkpoint_info *info,
                               struct tm_layer_state *state, struct tm_layer_files *out, struct tm_error *e);
/* When all layers' files are there: makes the checkpoint whole, then removes what is too old. */
int tm_checkpoint__finish(const struct tm_checkpoint_place *place, const struct tm_checkpoint_info *info,
                          const struct tm_layer_files *files, struct tm_error *e);

/* ---- reading ---- */

struct tm_checkpoint {
    struct tm_env *env;
    const char *dir; /* the folder itself, in the arena */
    struct tm_arena arena;
    struct tm_network network;
    int64_t step;
    const char *kernels; /* "" where the file does not say: not ours */
    bool has_optimizer;
    const char **model_shards;     /* by layer: file name; a foreign checkpoint may have one for many */
    const char **optimizer_shards; /* by layer; NULL: none */
    struct tm_hash *model_hashes;  /* by layer; 0: the index does not say */
    struct tm_hash *optimizer_hashes;
};

/* A checkpoint's folder, or one that holds `latest`. Reads index and config; shards are read layer by layer. */
int tm_checkpoint_open(struct tm_env *env, const char *path, struct tm_checkpoint *out, struct tm_error *e);
void tm_checkpoint_close(struct tm_checkpoint *checkpoint);

/* Fills a layer; moments are left at 0 where there is no optimizer state. Shapes, types and checksums are checked. */
int tm_checkpoint__read_layer(const struct tm_checkpoint *checkpoint, struct tm_layer_state *state, struct tm_error *e);

#endif
