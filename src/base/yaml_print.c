#include "base/yaml_print.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* ---- values ---- */

void tm_yaml_print_quoted(const char *text, struct tm_text *out)
{
    tm_text_putc(out, '"');
    for (const char *at = text; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        if (c == '"' || c == '\\')
            tm_text_printf(out, "\\%c", c);
        else if (c == '\n')
            tm_text_puts(out, "\\n");
        else if (c == '\t')
            tm_text_puts(out, "\\t");
        else if (c < 32 || c == 127)
            tm_text_printf(out, "\\x%02x", c);
        else
            tm_text_putc(out, (char)c);
    }
    tm_text_putc(out, '"');
}

/* Can it stand without quotes? Strict: all but words, numbers and paths get some. */
static bool is_plain(const char *text)
{
    if (!isalnum((unsigned char)text[0]) && strchr("/$.", text[0]) == NULL) return false;
    for (const char *at = text; *at != '\0'; at++) {
        bool inside = *at == ' ' && at[1] != ' ' && at[1] != '\0';
        if (!isalnum((unsigned char)*at) && !inside && strchr("-_./$+", *at) == NULL) return false;
    }
    return strncmp(text, "...", 3) != 0;
}

/* Would it be nothing at all without quotes? */
static bool is_null(const char *text)
{
    return text[0] == '\0' || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0;
}

static void print_scalar(const struct tm_node *node, struct tm_text *out)
{
    if (node->kind == TM_NODE_NULL)
        tm_text_puts(out, "null");
    else if (!node->quoted && is_plain(node->text) && !is_null(node->text))
        tm_text_puts(out, node->text);
    else
        tm_yaml_print_quoted(node->text, out);
}

static void print_key(const char *key, struct tm_text *out)
{
    if (is_plain(key) && !is_null(key))
        tm_text_puts(out, key);
    else
        tm_yaml_print_quoted(key, out);
    tm_text_puts(out, ":");
}

/* On one line. */
static void print_flow(const struct tm_node *node, struct tm_text *out)
{
    bool map = node->kind == TM_NODE_MAP;
    if (!map && node->kind != TM_NODE_LIST) {
        print_scalar(node, out);
        return;
    }
    tm_text_putc(out, map ? '{' : '[');
    for (const struct tm_node *at = node->first; at != NULL; at = at->next) {
        if (at != node->first) tm_text_puts(out, ", ");
        if (map) {
            print_key(at->key, out);
            tm_text_putc(out, ' ');
        }
        print_flow(at, out);
    }
    tm_text_putc(out, map ? '}' : ']');
}

/* Several lines as a block: only where each of them comes back as it is. */
static bool is_script(const struct tm_node *node)
{
    if (node->kind != TM_NODE_SCALAR || strchr(node->text, '\n') == NULL) return false;
    size_t length = strlen(node->text);
    if (strchr(" \n\t", node->text[0]) != NULL || (length > 1 && node->text[length - 2] == '\n')) return false;
    for (const char *at = node->text; *at != '\0'; at++)
        if (*at != '\n' && (iscntrl((unsigned char)*at) || (unsigned char)*at >= 127)) return false;
    return true;
}

static void print_script(const char *text, int indent, struct tm_text *out)
{
    tm_text_puts(out, text[strlen(text) - 1] == '\n' ? " |\n" : " |-\n");
    for (const char *at = text; *at != '\0';) {
        size_t line = strcspn(at, "\n");
        if (line > 0) tm_text_printf(out, "%*s%.*s", indent, "", (int)line, at);
        tm_text_putc(out, '\n');
        at += line + (at[line] == '\n');
    }
}

static void print_map(const struct tm_node *map, int indent, struct tm_text *out);

static void print_value(const struct tm_node *node, int indent, struct tm_text *out)
{
    bool of_maps = node->kind == TM_NODE_LIST && node->first != NULL && node->first->kind == TM_NODE_MAP;
    if (is_script(node)) {
        print_script(node->text, indent + 2, out);
    } else if (node->kind == TM_NODE_MAP && node->first != NULL && indent == 0) {
        tm_text_putc(out, '\n');
        print_map(node, indent + 2, out);
    } else if (of_maps) {
        tm_text_putc(out, '\n');
        for (const struct tm_node *at = node->first; at != NULL; at = at->next) {
            tm_text_printf(out, "%*s- ", indent + 2, "");
            print_flow(at, out);
            tm_text_putc(out, '\n');
        }
    } else {
        tm_text_putc(out, ' ');
        print_flow(node, out);
        tm_text_putc(out, '\n');
    }
}

static void print_map(const struct tm_node *map, int indent, struct tm_text *out)
{
    for (const struct tm_node *at = map->first; at != NULL; at = at->next) {
        tm_text_printf(out, "%*s", indent, "");
        print_key(at->key, out);
        print_value(at, indent, out);
    }
}

void tm_yaml_print(const struct tm_node *root, struct tm_text *out)
{
    print_map(root, 0, out);
}

/* ---- changes ---- */

struct tm_node *tm_node_find(const struct tm_node *map, const char *key)
{
    struct tm_node *at = map->first;
    while (at != NULL && strcmp(at->key, key) != 0)
        at = at->next;
    return at;
}

struct tm_node *tm_node_take(struct tm_node *map, const char *key)
{
    struct tm_node **at = &map->first;
    while (*at != NULL && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    struct tm_node *found = *at;
    if (found == NULL) return NULL;
    *at = found->next;
    found->next = NULL;
    map->count--;
    return found;
}

struct tm_node *tm_node_make(struct tm_arena *arena, enum tm_node_kind kind)
{
    struct tm_node *node = tm_arena_alloc(arena, sizeof *node);
    if (node != NULL) node->kind = kind;
    return node;
}

int tm_node_put(struct tm_arena *arena, struct tm_node *parent, const char *key, struct tm_node *value,
                struct tm_error *e)
{
    struct tm_node **at = &parent->first;
    if (value == NULL) return tm_error_nomem(e);
    value->key = key != NULL ? tm_arena_strdup(arena, key) : NULL;
    if (key != NULL && value->key == NULL) return tm_error_nomem(e);
    while (*at != NULL && (key == NULL || strcmp((*at)->key, key) != 0))
        at = &(*at)->next;
    value->next = *at != NULL ? (*at)->next : NULL;
    if (*at == NULL) parent->count++;
    *at = value;
    return 0;
}

int tm_node_put_text(struct tm_arena *arena, struct tm_node *parent, const char *key, const char *text, bool quoted,
                     struct tm_error *e)
{
    struct tm_node *node = tm_node_make(arena, TM_NODE_SCALAR);
    if (node == NULL) return tm_error_nomem(e);
    node->text = tm_arena_strdup(arena, text);
    node->quoted = quoted;
    return node->text == NULL ? tm_error_nomem(e) : tm_node_put(arena, parent, key, node, e);
}
