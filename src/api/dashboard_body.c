/* A job file that came over the network names models, profiles and traces that ship with Tidemill, and no files of this
 * machine: what is wrong with a file is told with a piece of it, and nobody who asks for a plan is to read others'
 * files by that. */
#include "api/dashboard_internal.h"

#include "base/doc.h"

#include <stdio.h>
#include <string.h>

enum { MEMORY_MAX = 32 << 20 };

static bool names_file(const char *key)
{
    return key != NULL && (strcmp(key, "trace") == 0 || strcmp(key, "model") == 0 || strcmp(key, "profile") == 0);
}

/* A plain name is looked for beside the job file, too. */
static bool is_file(const struct tm_dashboard *d, const char *name)
{
    char path[TM_STATE_PATH_MAX];
    if (strchr(name, '/') != NULL || name[0] == '~' || strcmp(name, "-") == 0) return true;
    return snprintf(path, sizeof path, "%s/%s", d->options.root, name) >= (int)sizeof path ||
           d->env->file_exists(d->env, path);
}

/* In the order of the document; a tree of at most 32 levels, walked without recursion. */
static const struct tm_node *find_file(const struct tm_dashboard *d, const struct tm_node *root)
{
    enum { LEVELS = 40 };
    const struct tm_node *stack[LEVELS];
    size_t depth = 0;
    stack[depth++] = root;
    while (depth > 0) {
        const struct tm_node *node = stack[depth - 1];
        if (node == NULL) {
            depth--;
            continue;
        }
        stack[depth - 1] = depth > 1 ? node->next : NULL; /* the root stands alone */
        if (node->kind == TM_NODE_SCALAR && names_file(node->key) && is_file(d, node->text)) return node;
        if (node->first != NULL && depth < LEVELS) stack[depth++] = node->first;
    }
    return NULL;
}

int tm_dashboard__check_body(const struct tm_dashboard *d, struct tm_slice body, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_node *root = NULL;
    int rc = 0;
    tm_arena_init(&arena, MEMORY_MAX);
    if (tm_doc_parse_yaml("job file", body.at, body.length, &arena, &root, NULL) == 0) { /* else tidemill says it */
        const struct tm_node *found = find_file(d, root);
        if (found != NULL)
            rc = tm_error_set(e, TM_EINPUT,
                              "line %d: %s: \"%.200s\": files are not read over the API; name one that ships with "
                              "Tidemill",
                              found->line, found->key, found->text);
    }
    tm_arena_deinit(&arena);
    return rc;
}
