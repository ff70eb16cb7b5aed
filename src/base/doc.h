/* Documents people write (job files, settings): YAML through libfyaml, JSON through jansson, into one small tree in
 * which every value knows its place.
 *
 * Bounded on purpose: at most 32 levels, 100,000 values and 1,000 keys in a map; aliases and anchors are refused (no
 * bombs); a key may stand only once in a map. */
#ifndef TM_BASE_DOC_H
#define TM_BASE_DOC_H

#include "base/arena.h"
#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum tm_node_kind { TM_NODE_NULL, TM_NODE_SCALAR, TM_NODE_LIST, TM_NODE_MAP };

struct tm_node {
    enum tm_node_kind kind;
    bool quoted;           /* scalar: stood in quotes, so it is text even if it looks like a number */
    int line;              /* from 1; 0: not known (some JSON) */
    int column;            /* from 1 */
    const char *key;       /* in a map: the key of this value; else NULL */
    const char *text;      /* scalar: its text */
    struct tm_node *next;  /* the next value of the same list or map */
    struct tm_node *first; /* list, map: the first value */
    size_t count;          /* list, map: how many */
};

/* The root goes to *out and lives in the arena. `file` is for messages. */
int tm_doc_parse_yaml(const char *file, const char *text, size_t length, struct tm_arena *arena, struct tm_node **out,
                      struct tm_error *e);
int tm_doc__parse_json(const char *file, const char *text, size_t length, struct tm_arena *arena, struct tm_node **out,
                       struct tm_error *e);

/* "file:3:7" or "file" where the place is not known; for messages. Returns `buffer`. */
const char *tm_node_place(const char *file, const struct tm_node *node, char *buffer, size_t size);

/* JSON data too large or too plain for a tree of nodes: jansson's own tree, with our errors. The caller owns it
 * (json_decref). Duplicate keys, NUL in strings and more than 64 levels are refused. */
int tm_json_load(const char *file, const char *text, size_t length, json_t **out, struct tm_error *e);

/* Makes jansson take memory from alloc.h. Call once at the start of a program or test. */
void tm_json_use_our_alloc(void);

#endif
