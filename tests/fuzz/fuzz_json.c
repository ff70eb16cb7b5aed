#include "base/doc.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_arena arena;
    struct tm_node *root = NULL;
    struct tm_error e;
    tm_arena_init(&arena, 16 << 20);
    (void)tm_doc__parse_json("fuzz", (const char *)data, size, &arena, &root, &e);
    tm_arena_deinit(&arena);
    assert(tm_alloc_live() == 0);
    return 0;
}
