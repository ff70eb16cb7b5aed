#include "base/doc.h"

#include "base/doc_internal.h"
#include "base/utf8.h"

#include <assert.h>
#include <libfyaml.h>
#include <string.h>

/* The tree is built from libfyaml's event stream, not from its documents: events need no recursion and no alias is
 * ever expanded. The stack holds the open lists and maps. */
struct level {
    struct tm_node *node;
    struct tm_node *last;
    const char *pending_key; /* map: key read, value still to come */
    int key_line;
    int key_column;
};

struct yaml_build {
    struct tm_doc_builder builder;
    struct level stack[TM_DOC_DEPTH_MAX];
    size_t depth;
    struct tm_node *root;
    bool root_done;
};

static int refuse(struct yaml_build *build, int line, int column, const char *what)
{
    return tm_error_set(build->builder.e, TM_EINPUT, "%s:%d:%d: %s", build->builder.file, line, column, what);
}

/* Hangs a finished or opened node where it belongs. */
static int place_node(struct yaml_build *build, struct tm_node *node)
{
    if (build->depth == 0) {
        if (build->root_done) return refuse(build, node->line, node->column, "second document in the file; keep one");
        build->root = node;
        build->root_done = true;
        return 0;
    }
    struct level *top = &build->stack[build->depth - 1];
    if (top->node->kind == TM_NODE_MAP) {
        node->key = top->pending_key;
        if (node->kind == TM_NODE_NULL && node->line == 0) {
            node->line = top->key_line;
            node->column = top->key_column;
        }
        top->pending_key = NULL;
    }
    return tm_doc__append(&build->builder, top->node, &top->last, node);
}

static int open_node(struct yaml_build *build, enum tm_node_kind kind, int line, int column)
{
    if (build->depth > 0) {
        const struct level *top = &build->stack[build->depth - 1];
        assert(top->node != NULL);
        if (top->node->kind == TM_NODE_MAP && top->pending_key == NULL)
            return refuse(build, line, column, "a key must be plain text, not a list or a map");
    }
    if (build->depth == TM_DOC_DEPTH_MAX)
        return tm_error_set(build->builder.e, TM_ELIMIT, "%s:%d:%d: nested more than %d levels deep",
                            build->builder.file, line, column, TM_DOC_DEPTH_MAX);
    struct tm_node *node = tm_doc__node(&build->builder, kind, line, column);
    if (node == NULL) return -(int)TM_ENOMEM;
    int rc = place_node(build, node);
    if (rc != 0) return rc;
    build->stack[build->depth++] = (struct level){.node = node};
    return 0;
}

static bool is_null_text(const char *text)
{
    return text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

static int add_scalar(struct yaml_build *build, struct fy_event *event, int line, int column)
{
    size_t length = 0;
    const char *text = event->scalar.value == NULL ? "" : fy_token_get_text(event->scalar.value, &length);
    if (text == NULL) return tm_error_nomem(build->builder.e);
    char *copy = tm_arena_strndup(build->builder.arena, text, length);
    if (copy == NULL) return tm_error_nomem(build->builder.e);
    if (strlen(copy) != length) return refuse(build, line, column, "zero byte in text");
    enum fy_scalar_style style = event->scalar.value != NULL ? fy_token_scalar_style(event->scalar.value) : FYSS_PLAIN;
    bool quoted = style != FYSS_PLAIN;
    bool in_quotes = style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
    if (in_quotes && column > 1) column--; /* libfyaml tells where the text starts, people see the quote */
    struct level *top = build->depth > 0 ? &build->stack[build->depth - 1] : NULL;
    assert(top == NULL || top->node != NULL);
    if (top != NULL && top->node->kind == TM_NODE_MAP && top->pending_key == NULL) {
        top->pending_key = copy;
        top->key_line = line;
        top->key_column = column;
        return 0;
    }
    bool null = !quoted && is_null_text(copy);
    struct tm_node *node = tm_doc__node(&build->builder, null ? TM_NODE_NULL : TM_NODE_SCALAR, line, column);
    if (node == NULL) return -(int)TM_ENOMEM;
    node->text = copy;
    node->quoted = quoted;
    return place_node(build, node);
}

static bool has_anchor(const struct fy_event *event)
{
    return (event->type == FYET_MAPPING_START && event->mapping_start.anchor != NULL) ||
           (event->type == FYET_SEQUENCE_START && event->sequence_start.anchor != NULL) ||
           (event->type == FYET_SCALAR && event->scalar.anchor != NULL);
}

static int take_event(struct yaml_build *build, struct fy_event *event)
{
    const struct fy_mark *mark = fy_event_start_mark(event);
    int line = mark == NULL ? 0 : mark->line + 1;
    int column = mark == NULL ? 0 : mark->column + 1;
    if (has_anchor(event)) return refuse(build, line, column, "anchors (&name) are not supported; remove it");
    switch (event->type) {
    case FYET_ALIAS:
        return refuse(build, line, column, "aliases (*name) are not supported; write the value out");
    case FYET_MAPPING_START:
        return open_node(build, TM_NODE_MAP, line, column);
    case FYET_SEQUENCE_START:
        return open_node(build, TM_NODE_LIST, line, column);
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END:
        build->depth--;
        return 0;
    case FYET_SCALAR:
        return add_scalar(build, event, line, column);
    default:
        return 0;
    }
}

static int syntax_error(const char *file, struct fy_diag *diag, struct tm_error *e)
{
    void *iterator = NULL;
    const struct fy_diag_error *first = fy_diag_errors_iterate(diag, &iterator);
    if (first == NULL || first->msg == NULL) return tm_error_set(e, TM_EINPUT, "%s: not YAML", file);
    return tm_error_set(e, TM_EINPUT, "%s:%d:%d: not YAML: %s", file, first->line, first->column, first->msg);
}

static int run_parser(struct yaml_build *build, struct fy_parser *parser, struct fy_diag *diag)
{
    struct fy_event *event;
    while ((event = fy_parser_parse(parser)) != NULL) {
        int rc = take_event(build, event);
        fy_parser_event_free(parser, event);
        if (rc != 0) {
            enum tm_code code = build->builder.e != NULL ? build->builder.e->code : (enum tm_code) - rc;
            return -(int)code;
        }
    }
    if (fy_parser_get_stream_error(parser)) return syntax_error(build->builder.file, diag, build->builder.e);
    return 0;
}

/* libfyaml may take a byte that is no text for the end of the file: what stands behind it would be lost unseen. */
static int check_characters(const char *file, const char *text, size_t length, struct tm_error *e)
{
    int line = 1;
    int column = 1;
    for (size_t at = 0, used = 0; at < length; at += used) {
        used = text[at] == '\0' ? 0 : tm_utf8__next(text + at, length - at, NULL);
        if (used == 0)
            return tm_error_set(e, TM_EINPUT, "%s:%d:%d: byte 0x%02x is not valid UTF-8", file, line, column,
                                (unsigned char)text[at]);
        column = text[at] == '\n' ? 1 : column + 1;
        line += text[at] == '\n';
    }
    return 0;
}

int tm_doc_parse_yaml(const char *file, const char *text, size_t length, struct tm_arena *arena, struct tm_node **out,
                      struct tm_error *e)
{
    struct tm_error local;
    struct yaml_build build = {.builder = {.file = file, .arena = arena, .e = e != NULL ? e : &local}};
    int rc = check_characters(file, text, length, e);
    if (rc != 0) return rc;
    struct fy_diag_cfg diag_cfg;
    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    struct fy_diag *diag = fy_diag_create(&diag_cfg);
    if (diag == NULL) return tm_error_nomem(e);
    fy_diag_set_collect_errors(diag, true);
    struct fy_parse_cfg cfg = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_JSON_NONE, .diag = diag};
    struct fy_parser *parser = fy_parser_create(&cfg);
    if (parser == NULL || fy_parser_set_string(parser, text, length) != 0) rc = tm_error_nomem(e);
    if (rc == 0) rc = run_parser(&build, parser, diag);
    if (rc == 0 && build.root == NULL) rc = tm_error_set(e, TM_EINPUT, "%s: document is empty", file);
    if (parser != NULL) fy_parser_destroy(parser);
    fy_diag_destroy(diag);
    if (rc == 0) *out = build.root;
    return rc;
}
