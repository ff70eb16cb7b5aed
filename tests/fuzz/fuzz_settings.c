#include "cli/settings.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_arena arena;
    struct tm_settings settings;
    struct tm_error e;
    tm_arena_init(&arena, 16 << 20);
    tm_settings_defaults(&settings);
    (void)tm_settings_parse("fuzz", (const char *)data, size, &arena, &settings, &e);
    tm_arena_deinit(&arena);
    assert(tm_alloc_live() == 0);
    return 0;
}
