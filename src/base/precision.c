#include "base/precision.h"

#include <stddef.h>

const char *const tm_precision_names[] = {"fp32", "tf32", "fp16", "bf16", "fp8", "mixed", NULL};
