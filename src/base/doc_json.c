#include "base/doc.h"

#include "base/alloc.h"
#include "base/doc_internal.h"
#include "base/number.h"

#include <stdio.h>
#include <string.h>

enum { JSON_LEVELS_MAX = 64 };

/* jansson takes a lack of memory for a syntax error here and drops a letter there, so we note it ourselves. */
static _Thread_local bool out_of_memory;

/* jansson reads recursively; its own limit is 2,048 levels. Ours is lower and checked before it starts. */
static int check_levels(const char *file, const char *text, size_t length, struct tm_error *e)
{
    int levels = 0;
    int line = 1;
    bool in_string = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == '\n') line++;
        if (in_string) {
            if (c == '\\') i++;
            if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++levels > JSON_LEVELS_MAX)
                return tm_error_set(e, TM_ELIMIT, "%s:%d: nested more than %d levels deep", file, line,
                                    JSON_LEVELS_MAX);
        } else if (c == ']' || c == '}') {
            levels--;
        }
    }
    return 0;
}

int tm_json_load(const char *file, const char *text, size_t length, json_t **out, struct tm_error *e)
{
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        length -= 3;
    }
    int rc = check_levels(file, text, length, e);
    if (rc != 0) return rc;
    json_error_t error = {0};
    out_of_memory = false;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (out_of_memory || (root == NULL && error.text[0] == '\0')) {
        json_decref(root);
        return tm_error_nomem(e);
    }
    if (root == NULL)
        return tm_error_set(e, TM_EINPUT, "%s:%d:%d: not JSON: %s", file, error.line, error.column, error.text);
    *out = root;
    return 0;
}

static struct tm_node *convert(struct tm_doc_builder *builder, json_t *value, int depth);

static struct tm_node *convert_group(struct tm_doc_builder *builder, json_t *value, int depth)
{
    bool is_map = json_is_object(value);
    struct tm_node *node = tm_doc__node(builder, is_map ? TM_NODE_MAP : TM_NODE_LIST, 0, 0);
    struct tm_node *last = NULL;
    if (node == NULL) return NULL;
    if (is_map) {
        const char *key;
        json_t *item;
        json_object_foreach(value, key, item)
        {
            struct tm_node *child = convert(builder, item, depth + 1);
            char *copy = child == NULL ? NULL : tm_arena_strdup(builder->arena, key);
            if (copy == NULL) {
                if (child != NULL) (void)tm_error_nomem(builder->e);
                return NULL;
            }
            child->key = copy;
            if (tm_doc__append(builder, node, &last, child) != 0) return NULL;
        }
        return node;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        struct tm_node *child = convert(builder, json_array_get(value, i), depth + 1);
        if (child == NULL || tm_doc__append(builder, node, &last, child) != 0) return NULL;
    }
    return node;
}

static struct tm_node *convert_scalar(struct tm_doc_builder *builder, json_t *value)
{
    struct tm_node *node = tm_doc__node(builder, json_is_null(value) ? TM_NODE_NULL : TM_NODE_SCALAR, 0, 0);
    if (node == NULL) return NULL;
    char number[TM_NUMBER_TEXT_MAX];
    const char *text = "";
    if (json_is_string(value)) {
        text = json_string_value(value);
        node->quoted = true;
    } else if (json_is_integer(value)) {
        (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        text = number;
    } else if (json_is_real(value)) {
        text = tm_number_print(json_real_value(value), number);
    } else if (json_is_boolean(value)) {
        text = json_is_true(value) ? "true" : "false";
    }
    node->text = tm_arena_strdup(builder->arena, text);
    if (node->text == NULL) {
        (void)tm_error_nomem(builder->e);
        return NULL;
    }
    return node;
}

static struct tm_node *convert(struct tm_doc_builder *builder, json_t *value, int depth)
{
    bool group = json_is_object(value) || json_is_array(value);
    if (group && depth > TM_DOC_DEPTH_MAX) {
        (void)tm_error_set(builder->e, TM_ELIMIT, "%s: nested more than %d levels deep", builder->file,
                           TM_DOC_DEPTH_MAX);
        return NULL;
    }
    return group ? convert_group(builder, value, depth) : convert_scalar(builder, value);
}

/* Copies the places of `from` to `to` as far as the two trees have the same shape. */
static void copy_places(struct tm_node *to, const struct tm_node *from)
{
    if (to->kind != from->kind || to->count != from->count) return;
    to->line = from->line;
    to->column = from->column;
    const struct tm_node *place = from->first;
    for (struct tm_node *child = to->first; child != NULL && place != NULL; child = child->next, place = place->next)
        copy_places(child, place); /* no deeper than TM_DOC_DEPTH_MAX */
}

/* jansson checks JSON strictly but does not say where a value stood. Its text is YAML too, nearly always: then the YAML
 * reader tells. Where it does not, values go without a place. */
static void find_places(const char *file, const char *text, size_t length, struct tm_node *root)
{
    struct tm_arena arena;
    struct tm_node *placed = NULL;
    tm_arena_init(&arena, 64 << 20);
    if (tm_doc_parse_yaml(file, text, length, &arena, &placed, NULL) == 0) copy_places(root, placed);
    tm_arena_deinit(&arena);
}

int tm_doc__parse_json(const char *file, const char *text, size_t length, struct tm_arena *arena, struct tm_node **out,
                       struct tm_error *e)
{
    struct tm_error local;
    struct tm_doc_builder builder = {.file = file, .arena = arena, .e = e != NULL ? e : &local};
    json_t *root = NULL;
    int rc = tm_json_load(file, text, length, &root, e);
    if (rc != 0) return rc;
    struct tm_node *node = convert(&builder, root, 1);
    json_decref(root);
    if (node == NULL) return -(int)builder.e->code;
    find_places(file, text, length, node);
    *out = node;
    return 0;
}

static void *noting_alloc(size_t size)
{
    void *memory = tm_alloc(size);
    if (memory == NULL) out_of_memory = true;
    return memory;
}

void tm_json_use_our_alloc(void)
{
    json_set_alloc_funcs(noting_alloc, tm_free);
}
