/* Answers in XML, as clouds write them, into a small tree: elements with their text. Attributes, comments and name
 * spaces are passed over; document types (and with them entities) are refused. At most 32 levels and 200,000 elements.
 */
#ifndef TM_WEB_XML_H
#define TM_WEB_XML_H

#include "base/arena.h"
#include "base/error.h"

struct tm_xml {
    const char *name;
    const char *text; /* of its own, without space at its ends; "" where there is none */
    struct tm_xml *first;
    struct tm_xml *next; /* of the same parent */
};

/* The root lives in the arena. -TM_EINPUT names the line. */
int tm_xml_read(const char *bytes, size_t length, struct tm_arena *arena, struct tm_xml **out, struct tm_error *e);
/* The first child of that name; a path "a/b/c" goes down. NULL where there is none, or no element. */
const struct tm_xml *tm_xml_child(const struct tm_xml *element, const char *path);
/* Its text; "" where there is none. */
const char *tm_xml_text(const struct tm_xml *element, const char *path);
/* The next of the same name and parent; NULL: none. */
const struct tm_xml *tm_xml_again(const struct tm_xml *element);
/* The first of that name at any depth, this one included; NULL: none. */
const struct tm_xml *tm_xml__anywhere(const struct tm_xml *element, const char *name);

#endif
