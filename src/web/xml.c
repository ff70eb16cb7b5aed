#include "web/xml.h"

#include "base/alloc.h"
#include "base/text.h"

#include <assert.h>
#include <expat.h>
#include <stdint.h>
#include <string.h>

enum { LEVELS_MAX = 32, ELEMENTS_MAX = 200000, TEXT_MAX = 1 << 20 };

struct reading {
    XML_Parser parser;
    struct tm_arena *arena;
    struct tm_xml *root;
    struct tm_xml *open[LEVELS_MAX];
    struct tm_xml *last[LEVELS_MAX]; /* child of each */
    size_t level;
    size_t count;
    struct tm_text text; /* of the innermost */
    int rc;
    const char *why;
};

static void refuse(struct reading *r, int rc, const char *why)
{
    if (r->rc == 0) {
        r->rc = rc;
        r->why = why;
    }
    (void)XML_StopParser(r->parser, XML_FALSE);
}

static void on_open(void *context, const char *name, const char **attributes)
{
    struct reading *r = context;
    (void)attributes;
    if (r->level >= LEVELS_MAX || r->count >= ELEMENTS_MAX) {
        refuse(r, -(int)TM_EINPUT, "too many elements");
        return;
    }
    const char *colon = strrchr(name, ':');
    struct tm_xml *element = tm_arena_alloc(r->arena, sizeof *element);
    if (element != NULL) element->name = tm_arena_strdup(r->arena, colon == NULL ? name : colon + 1);
    if (element == NULL || element->name == NULL) {
        refuse(r, -(int)TM_ENOMEM, "out of memory");
        return;
    }
    element->text = "";
    if (r->level == 0) {
        r->root = element;
    } else if (r->last[r->level - 1] == NULL) {
        r->open[r->level - 1]->first = element;
    } else {
        r->last[r->level - 1]->next = element;
    }
    if (r->level > 0) r->last[r->level - 1] = element;
    r->open[r->level] = element;
    r->last[r->level] = NULL;
    r->level++;
    r->count++;
    tm_text_clear(&r->text);
}

static void on_close(void *context, const char *name)
{
    struct reading *r = context;
    (void)name;
    assert(r->level > 0);
    struct tm_xml *element = r->open[--r->level];
    const char *text = tm_text_string(&r->text);
    size_t length = r->text.length;
    while (length > 0 && strchr(" \t\r\n", text[length - 1]) != NULL)
        length--;
    while (length > 0 && strchr(" \t\r\n", *text) != NULL) {
        text++;
        length--;
    }
    if (element->first == NULL && length > 0) element->text = tm_arena_strndup(r->arena, text, length);
    if (element->text == NULL) {
        element->text = "";
        refuse(r, -(int)TM_ENOMEM, "out of memory");
    }
    tm_text_clear(&r->text);
}

static void on_text(void *context, const char *text, int length)
{
    struct reading *r = context;
    tm_text_append(&r->text, text, (size_t)length);
    if (r->text.failed == -(int)TM_ENOMEM) refuse(r, -(int)TM_ENOMEM, "out of memory");
    if (r->text.failed == -(int)TM_ELIMIT) refuse(r, -(int)TM_EINPUT, "an element with too much text");
}

static void on_doctype(void *context, const char *name, const char *system, const char *public, int internal)
{
    (void)name;
    (void)system;
    (void)public;
    (void)internal;
    refuse(context, -(int)TM_EINPUT, "a document type is not allowed");
}

int tm_xml_read(const char *bytes, size_t length, struct tm_arena *arena, struct tm_xml **out, struct tm_error *e)
{
    static const XML_Memory_Handling_Suite memory = {tm_alloc, tm_realloc, tm_free};
    struct reading r = {.arena = arena};
    if (length > INT32_MAX) return tm_error_set(e, TM_EINPUT, "XML of %zu bytes", length);
    r.parser = XML_ParserCreate_MM(NULL, &memory, NULL);
    if (r.parser == NULL) return tm_error_nomem(e);
    tm_text_init(&r.text, TEXT_MAX);
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_open, on_close);
    XML_SetCharacterDataHandler(r.parser, on_text);
    XML_SetStartDoctypeDeclHandler(r.parser, on_doctype);
    enum XML_Status status = XML_Parse(r.parser, bytes, (int)length, 1);
    enum XML_Error wrong = XML_GetErrorCode(r.parser);
    int rc = r.rc;
    if (rc == 0 && status != XML_STATUS_OK) {
        rc = wrong == XML_ERROR_NO_MEMORY ? -(int)TM_ENOMEM : -(int)TM_EINPUT;
        r.why = XML_ErrorString(wrong);
    }
    if (rc != 0)
        (void)tm_error_set(e, (enum tm_code) - rc, "XML, line %lu: %s",
                           (unsigned long)XML_GetCurrentLineNumber(r.parser), r.why);
    XML_ParserFree(r.parser);
    tm_text_deinit(&r.text);
    if (rc == 0) *out = r.root;
    return rc;
}

const struct tm_xml *tm_xml_child(const struct tm_xml *element, const char *path)
{
    while (element != NULL) {
        size_t length = strcspn(path, "/");
        const struct tm_xml *child = element->first;
        while (child != NULL && (strlen(child->name) != length || strncmp(child->name, path, length) != 0))
            child = child->next;
        if (child == NULL || path[length] == '\0') return child;
        element = child;
        path += length + 1;
    }
    return NULL;
}

const char *tm_xml_text(const struct tm_xml *element, const char *path)
{
    const struct tm_xml *child = tm_xml_child(element, path);
    return child == NULL ? "" : child->text;
}

const struct tm_xml *tm_xml_again(const struct tm_xml *element)
{
    const struct tm_xml *next = element->next;
    while (next != NULL && strcmp(next->name, element->name) != 0)
        next = next->next;
    return next;
}

const struct tm_xml *tm_xml__anywhere(const struct tm_xml *element, const char *name)
{
    if (element == NULL || strcmp(element->name, name) == 0) return element;
    for (const struct tm_xml *child = element->first; child != NULL; child = child->next) { /* at most 32 deep */
        const struct tm_xml *found = tm_xml__anywhere(child, name);                         // NOLINT(misc-no-recursion)
        if (found != NULL) return found;
    }
    return NULL;
}
