#include "engine/simd_avx512.h"

#define KERNEL_CLASS "avx512"
#define KERNEL_CORE  "SkylakeX"
#include "engine/kernels_body.h"
