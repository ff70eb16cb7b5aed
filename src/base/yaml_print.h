/* A document (doc.h) as YAML text again: reading it gives the same keys and values. The upper two levels of maps
 * and lists of maps become blocks, what is in them stands on one line, and comments are gone. */
#ifndef TM_BASE_YAML_PRINT_H
#define TM_BASE_YAML_PRINT_H

#include "base/doc.h"
#include "base/text.h"

/* The root must be a map. */
void tm_yaml_print(const struct tm_node *root, struct tm_text *out);
/* A text in double quotes. */
void tm_yaml_print_quoted(const char *text, struct tm_text *out);

/* ---- changing a document before it is printed; what is new lives in the arena ---- */

/* The value of a key; NULL: there is none. */
struct tm_node *tm_node_find(const struct tm_node *map, const char *key);
/* Takes a key out of a map; NULL: it is not there. */
struct tm_node *tm_node_take(struct tm_node *map, const char *key);
/* A map or list without values; NULL: no memory. */
struct tm_node *tm_node_make(struct tm_arena *arena, enum tm_node_kind kind);
/* Puts a value at the end of a map, or in the place of the one with that key; with a NULL key at the end of a list. */
int tm_node_put(struct tm_arena *arena, struct tm_node *parent, const char *key, struct tm_node *value,
                struct tm_error *e);
/* The same with a text; `quoted`: it is text whatever it looks like. */
int tm_node_put_text(struct tm_arena *arena, struct tm_node *parent, const char *key, const char *text, bool quoted,
                     struct tm_error *e);

#endif
