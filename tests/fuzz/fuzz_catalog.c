/* Our catalogue format: what parses prints, and parses again to the same text. */
#include "fuzz.h"
#include "market/catalog.h"

#include <string.h>

static void round_trip(const struct tm_catalog *catalog)
{
    struct tm_text once;
    struct tm_text twice;
    struct tm_catalog again;
    struct tm_error e;
    tm_text_init(&once, 16 << 20);
    tm_text_init(&twice, 16 << 20);
    tm_catalog_init(&again);
    tm_catalog__print(catalog, &once);
    assert(tm_catalog_parse(&again, "again", tm_text_string(&once), once.length, false, &e) == 0);
    tm_catalog__print(&again, &twice);
    assert(strcmp(tm_text_string(&once), tm_text_string(&twice)) == 0);
    tm_catalog_deinit(&again);
    tm_text_deinit(&once);
    tm_text_deinit(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_catalog catalog;
    struct tm_error e;
    tm_catalog_init(&catalog);
    if (tm_catalog_parse(&catalog, "fuzz", (const char *)data, size, size % 2 == 0, &e) == 0) {
        if (memchr(data, '\0', size) == NULL) round_trip(&catalog);
        (void)tm_catalog_finish(&catalog, &e);
    }
    tm_catalog_deinit(&catalog);
    assert(tm_alloc_live() == 0);
    return 0;
}
