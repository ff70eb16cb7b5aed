#include "base/precision.h"

#include <stddef.h>

const char *const tm_precision_names[] = {"fp32", "tf32", "fp16", "bf16", "fp8", "mixed", NULL};

double tm_precision_value_bytes(enum tm_precision precision)
{
    return precision == TM_FP16 || precision == TM_BF16 || precision == TM_FP8 ? 2 : 4;
}
