#include "engine/simd_avx2.h"

#define KERNEL_CLASS "avx2"
#define KERNEL_CORE  "Haswell"
#include "engine/kernels_body.h"
