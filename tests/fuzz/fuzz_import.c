/* Imports of every kind into a virtual world. */
#include "base/env_virtual.h"
#include "fuzz.h"
#include "market/import.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_import_report *report = tm_alloc(sizeof *report);
    struct tm_error e;
    assert(env != NULL && report != NULL);
    (void)tm_env_virtual_set_variable(env, "TIDEMILL_DATA_DIR", "/data");
    (void)env->file_write(env, "/in", (const char *)data, size, &e);
    const char *paths[] = {"/in"};
    static const char small[] =
        "tidemill-catalog 1\n[source]\nname,as_of,text\ns,2026-01-01,t\n[gpu]\nname,aliases,memory_gib,"
        "memory_gbyte_s,fp32,tf32,fp16,bf16,fp8,source\nV100,,16,900,15.7,,125,,,s\n";
    struct tm_catalog known; /* the shipped one is large: parsing it would take all the time */
    tm_catalog_init(&known);
    assert(tm_catalog_parse(&known, "known", small, strlen(small), false, &e) == 0);
    struct tm_import_options options = {.format = TM_IMPORT_AUTO, .as_of = "2026-01-01", .known = &known};
    tm_import_report_init(report);
    if (tm_import_files(env, &options, paths, 1, report, &e) == 0) {
        struct tm_catalog catalog;
        tm_catalog_init(&catalog);
        assert(tm_catalog__parse_imported(env, &catalog, true, &e) == 0); /* what was imported can be read */
        assert(tm_catalog_finish(&catalog, &e) == 0);
        tm_catalog_deinit(&catalog);
    }
    tm_catalog_deinit(&known);
    tm_import_report_deinit(report);
    tm_free(report);
    tm_env_virtual_destroy(env);
    assert(tm_alloc_live() == 0);
    return 0;
}
