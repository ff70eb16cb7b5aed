/* Number formats that GPUs compute in. */
#ifndef TM_BASE_PRECISION_H
#define TM_BASE_PRECISION_H

#include <stddef.h>

enum tm_precision { TM_FP32, TM_TF32, TM_FP16, TM_BF16, TM_FP8, TM_PRECISION_COUNT };

/* What mixed-precision training would use: bf16 or fp16 tensor rates where the GPU has them, else fp32. */
enum { TM_PRECISION_MIXED = TM_PRECISION_COUNT };

/* "fp32", ..., "mixed"; NULL-terminated, in the order of the enum. */
extern const char *const tm_precision_names[];

/* A format by its name in any letters, or as PyTorch calls it: bfloat16, torch.float16, half, bf16-mixed; -1: none. */
int tm_precision_find(const char *text, size_t length);

/* Bytes that activations and gradients take in mixed training: 2 in formats of 16 bits or fewer, else 4. */
double tm_precision_value_bytes(enum tm_precision precision);

#endif
