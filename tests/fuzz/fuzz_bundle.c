/* The books of a run, which come from a bucket, and the line that says how it is reached. */
#include "fuzz.h"

#include "run/run_home.h"
#include "run/state_bundle.h"
#include "wire/hash.h"

#include <stdlib.h>
#include <string.h>

static int take(void *context, const char *name, const char *data, size_t length, struct tm_error *e)
{
    (void)context;
    (void)e;
    assert(name[0] != '/' && strstr(name, "..") != name && strstr(name, "/..") == NULL);
    unsigned sum = 0;
    for (size_t i = 0; i < length; i++)
        sum += (unsigned char)data[i];
    return sum == 0xffffffff;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_home_where where;
    char line[TM_HOME_WHERE_MAX];
    (void)tm_state__unpack_each((const char *)data, size, take, NULL, NULL);
    if (size > TM_BUNDLE_HEAD) { /* with the right hash: what is behind it is read */
        char *copy = malloc(size);
        char hash[33];
        assert(copy != NULL);
        memcpy(copy, data, size);
        (void)tm_hash_print(tm_hash_of(copy + TM_BUNDLE_HEAD, size - TM_BUNDLE_HEAD), hash);
        memcpy(copy + TM_BUNDLE_HEAD - 33, hash, 32);
        (void)tm_state__unpack_each(copy, size, take, NULL, NULL);
        free(copy);
    }
    if (size < sizeof line && memchr(data, 0, size) == NULL) {
        memcpy(line, data, size);
        line[size] = '\0';
        if (tm_home_where_read(line, &where)) assert(where.name[0] != '\0' && where.token[0] != '\0');
    }
    return 0;
}
