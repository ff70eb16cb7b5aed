/* The network: a GPT of bytes (pre-norm, GELU, learned positions, tied embedding), as a list of layers that can be cut
 * into stages anywhere.
 *
 *     layer 0            embedding: wte (vocab x width), wpe (ctx x width)
 *     layer 1 .. n       blocks: attention and MLP, each behind a normalisation
 *     layer n + 1        head: a copy of wte, the last normalisation; logits and loss
 *
 * Both copies of the tied weight are updated alike, so that they stay equal to the bit; a file holds it once. Names and
 * shapes are those of GPT-2 in Hugging Face's checkpoints (matrices are input x output). */
#ifndef TM_ENGINE_NETWORK_H
#define TM_ENGINE_NETWORK_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_TENSORS_MAX = 12, TM_TENSOR_NAME_MAX = 64, TM_VOCAB = 256, TM_NETWORK_LAYERS_MAX = 1024 };

struct tm_network {
    int blocks;
    int width;
    int heads;
    int ctx; /* bytes of text in a sample */
    double dropout;
};

enum tm_layer_kind { TM_LAYER_EMBED, TM_LAYER_BLOCK, TM_LAYER_HEAD };

/* Tensors by number, for each kind of layer. */
enum { TM_EMBED_WTE, TM_EMBED_WPE };
enum {
    TM_BLOCK_LN1_W,
    TM_BLOCK_LN1_B,
    TM_BLOCK_QKV_W,
    TM_BLOCK_QKV_B,
    TM_BLOCK_PROJ_W,
    TM_BLOCK_PROJ_B,
    TM_BLOCK_LN2_W,
    TM_BLOCK_LN2_B,
    TM_BLOCK_FC_W,
    TM_BLOCK_FC_B,
    TM_BLOCK_OUT_W,
    TM_BLOCK_OUT_B
};
enum { TM_HEAD_WTE, TM_HEAD_LN_W, TM_HEAD_LN_B };

struct tm_tensor_spec {
    const char *name; /* within its layer: "attn.c_attn.weight" */
    int dims;
    int64_t shape[2];
    size_t offset; /* in floats from the start of the layer; a multiple of 16 */
    size_t count;
    bool decays; /* weight decay applies: matrices and embeddings */
};

struct tm_layer_spec {
    enum tm_layer_kind kind;
    size_t tensor_count;
    struct tm_tensor_spec tensors[TM_TENSORS_MAX];
    size_t floats; /* of the whole layer, with what aligns its tensors */
};

/* What is wrong with it, as -TM_EINPUT: sizes out of range, a width that heads do not divide. */
int tm_network__check(const struct tm_network *network, struct tm_error *e);

int tm_network_layers(const struct tm_network *network); /* blocks + 2 */
void tm_network_layer(const struct tm_network *network, int layer, struct tm_layer_spec *out);

/* "h.3.attn.c_attn.weight", "wte.weight", "ln_f.bias". Returns `buffer`. */
const char *tm_network__tensor_name(const struct tm_network *network, int layer, size_t tensor,
                                    char buffer[TM_TENSOR_NAME_MAX]);

/* Parameters, the tied weight once; and floating point operations of one sample, forward and backward. */
int64_t tm_network__parameters(const struct tm_network *network);
double tm_network_sample_flops(const struct tm_network *network);

#endif
