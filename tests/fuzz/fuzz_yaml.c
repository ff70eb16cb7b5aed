/* Typed fields over YAML: what job files and settings go through. */
#include "base/fields.h"
#include "fuzz.h"

#include <stdbool.h>

struct resources {
    bool spot;
    int64_t instances;
    double share;
    struct tm_strings zones;
};

struct job {
    const char *name;
    int64_t deadline_ms;
    int64_t budget;
    int64_t checkpoint_bytes;
    int64_t link_bits;
    int mode;
    struct resources resources;
};

static const char *const modes[] = {"cheapest", "fastest", NULL};

static const struct tm_field resource_fields[] = {
    {.key = "spot", .type = TM_FIELD_BOOL, .offset = offsetof(struct resources, spot)},
    {.key = "nodes", .type = TM_FIELD_INTEGER, .offset = offsetof(struct resources, instances), .min = 1, .max = 1024},
    {.key = "share", .type = TM_FIELD_NUMBER, .offset = offsetof(struct resources, share)},
    {.key = "zones", .type = TM_FIELD_STRINGS, .offset = offsetof(struct resources, zones)},
    {.key = NULL},
};

static const struct tm_field job_fields[] = {
    {.key = "name", .type = TM_FIELD_STRING, .offset = offsetof(struct job, name), .required = true},
    {.key = "deadline", .type = TM_FIELD_DURATION, .offset = offsetof(struct job, deadline_ms)},
    {.key = "budget", .type = TM_FIELD_MONEY, .offset = offsetof(struct job, budget)},
    {.key = "checkpoint", .type = TM_FIELD_BYTES, .offset = offsetof(struct job, checkpoint_bytes)},
    {.key = "link", .type = TM_FIELD_RATE, .offset = offsetof(struct job, link_bits)},
    {.key = "mode", .type = TM_FIELD_CHOICE, .offset = offsetof(struct job, mode), .choices = modes},
    {.key = "resources", .type = TM_FIELD_MAP, .offset = offsetof(struct job, resources), .fields = resource_fields},
    {.key = NULL},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_arena arena;
    struct tm_node *root = NULL;
    struct tm_error e;
    struct job job = {0};
    tm_arena_init(&arena, 16 << 20);
    if (tm_doc_parse_yaml("fuzz", (const char *)data, size, &arena, &root, &e) == 0)
        (void)tm_fields_read("fuzz", root, job_fields, &arena, &job, &e);
    tm_arena_deinit(&arena);
    assert(tm_alloc_live() == 0);
    return 0;
}
