/* Models that are part of the binary: files, and formulas under a name. */
#ifndef TM_WORKLOAD_SHIPPED_MODELS_H
#define TM_WORKLOAD_SHIPPED_MODELS_H

#include <stddef.h>

struct tm_shipped__model {
    const char *name;
    const char *text; /* not NUL-terminated; NULL: a formula */
    size_t length;
    const char *formula;
    const char *source;
};

size_t tm_shipped_model__count(void);
struct tm_shipped__model tm_shipped__model(size_t i);

#endif
