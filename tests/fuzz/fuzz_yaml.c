/* Typed fields over YAML: what job files and settings go through. */
#include "base/fields.h"
#include "base/yaml_print.h"
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

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

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same(const struct tm_node *a, const struct tm_node *b)
{
    if (a->kind != b->kind || a->count != b->count || !same_text(a->key, b->key)) return false;
    if (a->kind == TM_NODE_SCALAR) return same_text(a->text, b->text);
    const struct tm_node *y = b->first;
    for (const struct tm_node *x = a->first; x != NULL; x = x->next, y = y->next)
        if (!same(x, y)) return false;
    return true;
}

/* What is printed reads back as the same, as far as it is not too long. */
static void print_again(const struct tm_node *root, struct tm_arena *arena)
{
    struct tm_node *again = NULL;
    struct tm_error e;
    struct tm_text text;
    tm_text_init(&text, 16 << 20);
    tm_yaml_print(root, &text);
    int rc = tm_text_status(&text, &e);
    if (rc == 0) rc = tm_doc_parse_yaml("again", tm_text_string(&text), text.length, arena, &again, &e);
    assert(rc == -(int)TM_ELIMIT || rc == -(int)TM_ENOMEM || (rc == 0 && same(root, again)));
    tm_text_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_arena arena;
    struct tm_node *root = NULL;
    struct tm_error e;
    struct job job = {0};
    tm_arena_init(&arena, 16 << 20);
    if (tm_doc_parse_yaml("fuzz", (const char *)data, size, &arena, &root, &e) == 0) {
        if (root->kind == TM_NODE_MAP && root->count > 0) print_again(root, &arena);
        (void)tm_fields_read("fuzz", root, job_fields, &arena, &job, &e);
    }
    tm_arena_deinit(&arena);
    assert(tm_alloc_live() == 0);
    return 0;
}
