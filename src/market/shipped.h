/* Files that are part of the binary: the catalogue, the recorded pools of spot instances and the four published trace
 * hours. */
#ifndef TM_MARKET_SHIPPED_H
#define TM_MARKET_SHIPPED_H

#include <stdbool.h>
#include <stddef.h>

struct tm_shipped {
    const char *name;
    const char *summary;
    const char *text; /* not NUL-terminated */
    size_t length;
};

struct tm_shipped tm_shipped__catalog(void);
struct tm_shipped tm_shipped__risk(void);
size_t tm_shipped__trace_count(void);
struct tm_shipped tm_shipped__trace(size_t i);
/* False: none of that name; case does not matter. */
bool tm_shipped__trace_find(const char *name, struct tm_shipped *out);

#endif
