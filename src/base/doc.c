#include "base/doc.h"

#include "base/doc_internal.h"

#include <stdio.h>
#include <string.h>

const char *tm_node_place(const char *file, const struct tm_node *node, char *buffer, size_t size)
{
    if (node->line > 0)
        (void)snprintf(buffer, size, "%s:%d:%d", file, node->line, node->column);
    else
        (void)snprintf(buffer, size, "%s", file);
    return buffer;
}

struct tm_node *tm_doc__node(struct tm_doc_builder *builder, enum tm_node_kind kind, int line, int column)
{
    if (++builder->node_count > TM_DOC_NODES_MAX) {
        (void)tm_error_set(builder->e, TM_ELIMIT, "%s:%d:%d: document has more than %d values", builder->file, line,
                           column, TM_DOC_NODES_MAX);
        return NULL;
    }
    struct tm_node *node = tm_arena_alloc(builder->arena, sizeof *node);
    if (node == NULL) {
        (void)tm_error_nomem(builder->e);
        return NULL;
    }
    node->kind = kind;
    node->line = line;
    node->column = column;
    node->text = "";
    return node;
}

int tm_doc__append(struct tm_doc_builder *builder, struct tm_node *parent, struct tm_node **last, struct tm_node *child)
{
    if (child->key != NULL) {
        if (parent->count == TM_DOC_KEYS_MAX) {
            char place[512];
            return tm_error_set(builder->e, TM_ELIMIT, "%s: map has more than %d keys",
                                tm_node_place(builder->file, child, place, sizeof place), TM_DOC_KEYS_MAX);
        }
        for (const struct tm_node *other = parent->first; other != NULL; other = other->next) {
            if (strcmp(other->key, child->key) != 0) continue;
            char place[512];
            return tm_error_set(builder->e, TM_EINPUT, "%s: %s: duplicate key, first given in line %d; keep one",
                                tm_node_place(builder->file, child, place, sizeof place), child->key, other->line);
        }
    }
    if (*last == NULL)
        parent->first = child;
    else
        (*last)->next = child;
    *last = child;
    parent->count++;
    return 0;
}
