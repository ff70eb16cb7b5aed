/* What a fuzz target is: reads any bytes without a crash, a leak, or memory beyond its limits. */
#ifndef TM_FUZZ_H
#define TM_FUZZ_H

#include "base/alloc.h"
#include "base/error.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
