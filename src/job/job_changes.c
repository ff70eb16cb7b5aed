#include "job/job_changes.h"

#include "base/doc.h"
#include "base/term.h"

#include <stdio.h>
#include <string.h>

enum { KEY_MAX = 256, VALUE_SHOWN = 60, DEPTH_MAX = 32 };

struct comparing {
    const char *given; /* name of the file */
    struct tm_text *out;
};

static const struct tm_node *find(const struct tm_node *map, const char *key)
{
    const struct tm_node *at = map != NULL && map->kind == TM_NODE_MAP ? map->first : NULL;
    while (at != NULL && strcmp(at->key, key) != 0)
        at = at->next;
    return at;
}

static bool same(const struct tm_node *a, const struct tm_node *b, int depth)
{
    if (a->kind != b->kind || a->count != b->count || depth > DEPTH_MAX) return false;
    if (a->kind == TM_NODE_SCALAR) return strcmp(a->text, b->text) == 0;
    const struct tm_node *other = b->first;
    for (const struct tm_node *at = a->first; at != NULL; at = at->next) {
        const struct tm_node *match = a->kind == TM_NODE_MAP ? find(b, at->key) : other;
        if (match == NULL || !same(at, match, depth + 1)) return false;
        if (other != NULL) other = other->next;
    }
    return true;
}

/* As it might stand in a file, in one line. */
static void put_value(struct tm_text *out, const struct tm_node *node)
{
    if (node == NULL) {
        tm_text_puts(out, "nothing");
    } else if (node->kind == TM_NODE_SCALAR) {
        size_t length = strlen(node->text);
        tm_term_put_safe(out, node->text, length > VALUE_SHOWN ? VALUE_SHOWN : length);
        if (length > VALUE_SHOWN) tm_text_puts(out, "...");
    } else {
        tm_text_puts(out, node->kind == TM_NODE_NULL ? "nothing" : node->kind == TM_NODE_LIST ? "[...]" : "{...}");
    }
}

static void compare(struct comparing *c, const char *prefix, const struct tm_node *own, const struct tm_node *given,
                    int depth);

static void compare_value(struct comparing *c, const char *key, const struct tm_node *own, const struct tm_node *given,
                          int depth)
{
    bool maps = (own == NULL || own->kind == TM_NODE_MAP) && (given == NULL || given->kind == TM_NODE_MAP);
    if (own != NULL && given != NULL && same(own, given, depth)) return;
    if (maps && depth < DEPTH_MAX) {
        compare(c, key, own, given, depth + 1);
        return;
    }
    tm_text_puts(c->out, "  ");
    tm_term_put_safe(c->out, key, strlen(key));
    tm_text_puts(c->out, ": ");
    put_value(c->out, own);
    tm_text_puts(c->out, ", not ");
    put_value(c->out, given);
    tm_text_printf(c->out, " as in %s\n", c->given);
}

/* Every key of both, those of `own` first. */
static void compare(struct comparing *c, const char *prefix, const struct tm_node *own, const struct tm_node *given,
                    int depth)
{
    char key[KEY_MAX];
    const char *dot = prefix[0] != '\0' ? "." : "";
    for (const struct tm_node *at = own != NULL ? own->first : NULL; at != NULL; at = at->next) {
        (void)snprintf(key, sizeof key, "%s%s%s", prefix, dot, at->key);
        compare_value(c, key, at, find(given, at->key), depth);
    }
    for (const struct tm_node *at = given != NULL ? given->first : NULL; at != NULL; at = at->next) {
        if (find(own, at->key) != NULL) continue;
        (void)snprintf(key, sizeof key, "%s%s%s", prefix, dot, at->key);
        compare_value(c, key, NULL, at, depth);
    }
}

int tm_job__changes(const struct tm_job *own, const struct tm_job *given, struct tm_text *out, struct tm_error *e)
{
    struct comparing comparing = {.given = given->file, .out = out};
    compare(&comparing, "", own->root, given->root, 0);
    return tm_text_status(out, e);
}
