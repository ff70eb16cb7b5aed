/* Shared by doc_yaml.c and doc_json.c only. */
#ifndef TM_BASE_DOC_INTERNAL_H
#define TM_BASE_DOC_INTERNAL_H

#include "base/doc.h"

enum { TM_DOC_DEPTH_MAX = 32, TM_DOC_NODES_MAX = 100000, TM_DOC_KEYS_MAX = 1000 };

struct tm_doc_builder {
    const char *file;
    struct tm_arena *arena;
    size_t node_count;
    struct tm_error *e;
};

/* A new node, or NULL with the error set. */
struct tm_node *tm_doc__node(struct tm_doc_builder *builder, enum tm_node_kind kind, int line, int column);
/* Puts `child` at the end of `parent` (`last` is its last child so far); refuses a key that is there already. */
int tm_doc__append(struct tm_doc_builder *builder, struct tm_node *parent, struct tm_node **last,
                   struct tm_node *child);

#endif
