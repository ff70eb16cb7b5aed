#include "base/fields.h"

#include "base/number.h"
#include "base/suggest.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_MAX_LENGTH = 256 };

/* Where we are, for messages: "job.yaml:3:11: resources.spot". */
struct place {
    const char *file;
    const struct tm_node *node; /* NULL: a command line option */
    char path[PATH_MAX_LENGTH];
};

static bool unit_of(enum tm_field_type type, enum tm_unit_kind *kind)
{
    switch (type) {
    case TM_FIELD_DURATION:
        *kind = TM_UNIT_DURATION;
        return true;
    case TM_FIELD_MONEY:
        *kind = TM_UNIT_MONEY;
        return true;
    case TM_FIELD_BYTES:
        *kind = TM_UNIT_BYTES;
        return true;
    case TM_FIELD_RATE:
        *kind = TM_UNIT_RATE;
        return true;
    default:
        return false;
    }
}

static bool has_bounds(const struct tm_field *field)
{
    return field->min != 0 || field->max != 0;
}

void tm_field_expected(const struct tm_field *field, struct tm_text *out)
{
    static const char *const names[] = {
        [TM_FIELD_STRING] = "text",
        [TM_FIELD_BOOL] = "true or false",
        [TM_FIELD_INTEGER] = "whole number",
        [TM_FIELD_NUMBER] = "number",
        [TM_FIELD_DURATION] = "duration",
        [TM_FIELD_MONEY] = "amount in dollars",
        [TM_FIELD_BYTES] = "size in bytes",
        [TM_FIELD_RATE] = "rate in bits per second",
        [TM_FIELD_CHOICE] = "one of ",
        [TM_FIELD_STRINGS] = "list of strings",
        [TM_FIELD_MAP] = "map",
        [TM_FIELD_MAPS] = "list of maps",
    };
    tm_text_puts(out, names[field->type]);
    if (field->type == TM_FIELD_CHOICE) {
        for (size_t i = 0; field->choices[i] != NULL; i++)
            tm_text_printf(out, "%s%s", i > 0 ? ", " : "", field->choices[i]);
    }
    if (field->type == TM_FIELD_INTEGER && has_bounds(field))
        tm_text_printf(out, " from %.0f to %.0f", field->min, field->max);
    if (field->type == TM_FIELD_NUMBER && has_bounds(field))
        tm_text_printf(out, " from %g to %g", field->min, field->max);
}

static const char *example_of(const struct tm_field *field)
{
    enum tm_unit_kind kind = TM_UNIT_DURATION;
    if (field->example != NULL) return field->example;
    if (unit_of(field->type, &kind)) return tm_unit__example(kind);
    switch (field->type) {
    case TM_FIELD_BOOL:
        return "true";
    case TM_FIELD_INTEGER:
    case TM_FIELD_NUMBER:
        return has_bounds(field) && (field->min > 8 || field->max < 8) ? NULL : "8";
    case TM_FIELD_CHOICE:
        return field->choices[0];
    default:
        return NULL;
    }
}

static const char *found_in_words(const struct tm_node *node)
{
    switch (node->kind) {
    case TM_NODE_NULL:
        return "nothing";
    case TM_NODE_LIST:
        return "a list";
    case TM_NODE_MAP:
        return "a map";
    default:
        return node->text;
    }
}

static const char *print_place(const struct place *place, char *buffer, size_t size)
{
    char position[512];
    if (place->node == NULL)
        (void)snprintf(buffer, size, "%s", place->file);
    else
        (void)snprintf(buffer, size, "%s: %s", tm_node_place(place->file, place->node, position, sizeof position),
                       place->path);
    return buffer;
}

static int wrong(const struct place *place, const struct tm_field *field, const struct tm_node *node,
                 struct tm_error *e)
{
    struct tm_text expected;
    tm_text_init(&expected, 512);
    tm_field_expected(field, &expected);
    char where[900];
    const char *quote = node->kind == TM_NODE_SCALAR ? "\"" : "";
    const char *example = example_of(field);
    int rc = tm_error_set(e, TM_EINPUT, "%s: expected %s, got %s%.60s%s%s%s", print_place(place, where, sizeof where),
                          tm_text_string(&expected), quote, found_in_words(node), quote,
                          example != NULL ? "; write for example " : "", example != NULL ? example : "");
    tm_text_deinit(&expected);
    return rc;
}

static bool read_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on", NULL};
    static const char *const no[] = {"false", "no", "off", NULL};
    for (size_t i = 0; yes[i] != NULL; i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *out = strcmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool in_bounds(const struct tm_field *field, double value)
{
    return !has_bounds(field) || (value >= field->min && value <= field->max);
}

static bool read_choice(const struct tm_field *field, const char *text, int *out)
{
    for (int i = 0; field->choices[i] != NULL; i++) {
        if (strcmp(field->choices[i], text) != 0) continue;
        *out = i;
        return true;
    }
    return false;
}

/* Values that are one scalar, but for lists of strings and maps. False: not of the type. */
static bool read_scalar(const struct tm_field *field, const char *text, void *member)
{
    size_t length = strlen(text);
    enum tm_unit_kind kind = TM_UNIT_DURATION;
    int64_t integer = 0;
    double number = 0;
    if (unit_of(field->type, &kind)) return tm_unit_parse(kind, text, length, member, NULL) == 0;
    switch (field->type) {
    case TM_FIELD_BOOL:
        return read_bool(text, member);
    case TM_FIELD_CHOICE:
        return read_choice(field, text, member);
    case TM_FIELD_INTEGER:
        if (!tm_number_whole(text, length, &integer) || !in_bounds(field, (double)integer)) return false;
        *(int64_t *)member = integer;
        return true;
    case TM_FIELD_NUMBER:
        if (!tm_number_written(text, length, has_bounds(field) ? field->max : INFINITY, &number) ||
            !in_bounds(field, number))
            return false;
        *(double *)member = number;
        return true;
    default:
        return false;
    }
}

static int read_strings(const struct place *place, const struct tm_node *node, const struct tm_field *field,
                        struct tm_arena *arena, struct tm_strings *out, struct tm_error *e)
{
    bool alone = node->kind == TM_NODE_SCALAR;
    if (!alone && node->kind != TM_NODE_LIST) return wrong(place, field, node, e);
    size_t count = alone ? 1 : node->count;
    const char **items = tm_arena_alloc(arena, (count + 1) * sizeof *items);
    if (items == NULL) return tm_error_nomem(e);
    const struct tm_node *item = alone ? node : node->first;
    for (size_t i = 0; i < count; i++, item = item->next) {
        if (item->kind != TM_NODE_SCALAR) return wrong(place, field, item, e);
        items[i] = item->text;
    }
    *out = (struct tm_strings){items, count};
    return 0;
}

static int read_map(struct place *place, const struct tm_node *map, const struct tm_field *fields,
                    struct tm_arena *arena, char *target, struct tm_error *e);

/* place->path grows by "[2]", counted from 1, for the length of one item. */
static int read_maps(struct place *place, const struct tm_node *node, const struct tm_field *field,
                     struct tm_arena *arena, struct tm_maps *out, struct tm_error *e)
{
    char where[900];
    if (node->kind != TM_NODE_LIST) return wrong(place, field, node, e);
    if (node->count == 0)
        return tm_error_set(e, TM_EINPUT, "%s: the list is empty; write at least one item, or leave %s out",
                            print_place(place, where, sizeof where), field->key);
    if (node->count > TM_FIELD_MAPS_MAX)
        return tm_error_set(e, TM_ELIMIT, "%s: %zu items, but at most %d are read; write fewer",
                            print_place(place, where, sizeof where), node->count, TM_FIELD_MAPS_MAX);
    char *items = tm_arena_alloc(arena, (node->count + 1) * field->size);
    if (items == NULL) return tm_error_nomem(e);
    size_t number = 0;
    size_t length = strlen(place->path);
    for (const struct tm_node *item = node->first; item != NULL; item = item->next, number++) {
        char *target = items + number * field->size;
        (void)snprintf(place->path + length, sizeof place->path - length, "[%zu]", number + 1);
        place->node = item;
        if (item->kind != TM_NODE_MAP) {
            struct tm_field one = {.key = field->key, .type = TM_FIELD_MAP};
            return wrong(place, &one, item, e);
        }
        memset(target, 0, field->size);
        if (field->initial != NULL) memcpy(target, field->initial, field->size);
        int rc = read_map(place, item, field->fields, arena, target, e);
        place->path[length] = '\0';
        if (rc != 0) return rc;
    }
    *out = (struct tm_maps){items, node->count};
    return 0;
}

/* Durations, money, sizes and rates: what is below the least is not taken for "not said". */
static int check_least(const struct place *place, const struct tm_node *node, const struct tm_field *field,
                       const void *member, struct tm_error *e)
{
    enum tm_unit_kind kind = TM_UNIT_DURATION;
    char least[TM_UNITS_TEXT_MAX];
    char where[900];
    int64_t value = 0;
    if (!unit_of(field->type, &kind) || !(field->min > 0)) return 0;
    memcpy(&value, member, sizeof value);
    if ((double)value >= field->min) return 0;
    bool any = field->min <= 1;
    return tm_error_set(e, TM_EINPUT, "%s: must be %s%s, got \"%.60s\"; write for example %s, or leave it out",
                        print_place(place, where, sizeof where), any ? "more than 0" : "at least ",
                        any ? "" : tm_unit_print_exact(kind, (int64_t)field->min, least), node->text,
                        example_of(field));
}

static int read_value(struct place *place, const struct tm_node *node, const struct tm_field *field,
                      struct tm_arena *arena, char *target, struct tm_error *e)
{
    void *member = target + field->offset;
    if (field->type == TM_FIELD_MAP) {
        if (node->kind != TM_NODE_MAP) return wrong(place, field, node, e);
        return read_map(place, node, field->fields, arena, member, e);
    }
    if (field->type == TM_FIELD_MAPS) return read_maps(place, node, field, arena, member, e);
    if (field->type == TM_FIELD_STRINGS) return read_strings(place, node, field, arena, member, e);
    if (node->kind != TM_NODE_SCALAR) return wrong(place, field, node, e);
    if (field->type == TM_FIELD_STRING) {
        *(const char **)member = node->text;
        return 0;
    }
    if (!read_scalar(field, node->text, member)) return wrong(place, field, node, e);
    return check_least(place, node, field, member, e);
}

static int unknown_key(const struct place *place, const struct tm_node *child, const struct tm_field *fields,
                       struct tm_error *e)
{
    struct tm_suggest suggest = {.word = child->key};
    for (size_t i = 0; fields[i].key != NULL; i++)
        tm_suggest_offer(&suggest, fields[i].key);
    char where[900];
    return tm_error_set(e, TM_EINPUT, "%s: unknown key%s%s%s", print_place(place, where, sizeof where),
                        suggest.best != NULL ? "; did you mean \"" : "", suggest.best != NULL ? suggest.best : "",
                        suggest.best != NULL ? "\"?" : "");
}

/* place->path grows by ".key" for the length of one call. */
static size_t enter(struct place *place, const struct tm_node *child)
{
    size_t length = strlen(place->path);
    (void)snprintf(place->path + length, sizeof place->path - length, "%s%.100s", length > 0 ? "." : "", child->key);
    place->node = child;
    return length;
}

static int check_required(struct place *place, const struct tm_node *map, const struct tm_field *fields,
                          struct tm_error *e)
{
    for (size_t i = 0; fields[i].key != NULL; i++) {
        if (!fields[i].required) continue;
        bool found = false;
        for (const struct tm_node *child = map->first; child != NULL && !found; child = child->next)
            found = strcmp(child->key, fields[i].key) == 0;
        if (found) continue;
        char position[512];
        const char *example = example_of(&fields[i]);
        return tm_error_set(e, TM_EINPUT, "%s: key \"%s%s%s\" is missing; write for example %s: %s",
                            tm_node_place(place->file, map, position, sizeof position), place->path,
                            place->path[0] != '\0' ? "." : "", fields[i].key, fields[i].key,
                            example != NULL ? example : "...");
    }
    return 0;
}

static int read_map(struct place *place, const struct tm_node *map, const struct tm_field *fields,
                    struct tm_arena *arena, char *target, struct tm_error *e)
{
    for (const struct tm_node *child = map->first; child != NULL; child = child->next) {
        size_t length = enter(place, child);
        const struct tm_field *field = fields;
        while (field->key != NULL && strcmp(field->key, child->key) != 0)
            field++;
        int rc = field->key == NULL ? unknown_key(place, child, fields, e)
                                    : read_value(place, child, field, arena, target, e);
        place->path[length] = '\0';
        if (rc != 0) return rc;
    }
    return check_required(place, map, fields, e);
}

int tm_fields_read(const char *file, const struct tm_node *map, const struct tm_field *fields, struct tm_arena *arena,
                   void *target, struct tm_error *e)
{
    struct place place = {.file = file, .node = map};
    if (map->kind != TM_NODE_MAP) {
        char position[512];
        return tm_error_set(e, TM_EINPUT, "%s: expected a map of keys and values, got %.60s",
                            tm_node_place(file, map, position, sizeof position), found_in_words(map));
    }
    return read_map(&place, map, fields, arena, target, e);
}

int tm_field_read_text(const char *place_name, const char *text, const struct tm_field *field, struct tm_arena *arena,
                       void *target, struct tm_error *e)
{
    struct place place = {.file = place_name};
    struct tm_node node = {.kind = TM_NODE_SCALAR, .text = text};
    if (field->type == TM_FIELD_STRING || field->type == TM_FIELD_STRINGS) node.text = tm_arena_strdup(arena, text);
    if (node.text == NULL) return tm_error_nomem(e);
    return read_value(&place, &node, field, arena, target, e);
}
