/* Shared by checkpoint.c and checkpoint_read.c only. */
#ifndef TM_ENGINE_CHECKPOINT_INTERNAL_H
#define TM_ENGINE_CHECKPOINT_INTERNAL_H

#include "engine/checkpoint.h"

enum { TM_CHECKPOINT__NAME_MAX = TM_TENSOR_NAME_MAX + 16 };

/* "h.3.ln_1.weight.moment1" */
void tm_checkpoint__moment_name(const struct tm_network *network, int layer, size_t tensor, int moment,
                                char out[TM_CHECKPOINT__NAME_MAX]);

#endif
