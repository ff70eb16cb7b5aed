/* A run as it goes, on a terminal: the picture of run_picture.h, redrawn in place a few times a second; elsewhere plain
 * lines: every event once, and how far it is every ten seconds.
 *
 *     struct tm_live_view *view = NULL;
 *     tm_live_view_create(&options, &view, e);
 *     while (...) { other work; tm_live_view_step(view); }
 *     tm_live_view_finish(view);    the last frame stays, the cursor is below it
 *
 * It never waits and never fails: without news it leaves what there is. On a terminal, lines of the log go above the
 * picture as long as there is a view; there can be one at a time. */
#ifndef TM_CLI_LIVE_VIEW_H
#define TM_CLI_LIVE_VIEW_H

#include "base/env.h"
#include "base/term.h"
#include "run/run_status.h"

struct tm_live_source {
    void *context;
    /* 0: here is a new one, which the caller then owns; -TM_EBUSY: not yet; else: it cannot be had now. */
    int (*next)(void *context, struct tm_run_status *out, struct tm_error *e);
};

struct tm_live_view_options {
    struct tm_env *env;
    struct tm_term term;
    struct tm_live_source source;
    void (*write)(void *context, const char *text, size_t length); /* NULL: standard output */
    void *write_context;
    size_t (*rows)(void *context); /* of the terminal now; NULL: asked of it */
    int (*width)(void *context);
};

struct tm_live_view;

/* The caller owns the result. NULL: out of memory. */
struct tm_live_view *tm_live_view_create(const struct tm_live_view_options *options);
/* The status API of a run is the source. `write` as above. */
struct tm_live_view *tm_live_view_of_run(struct tm_env *env, struct tm_term term, const char *state_dir,
                                         void (*write)(void *context, const char *text, size_t length),
                                         void *write_context);
void tm_live_view_destroy(struct tm_live_view *view); /* NULL is allowed */

void tm_live_view_step(struct tm_live_view *view);
/* Whole lines that stay: on a terminal they stand above the picture. */
void tm_live_view_put(struct tm_live_view *view, const struct tm_text *lines);
/* Draws `status` (NULL: the last one heard) for the last time. */
void tm_live_view_finish(struct tm_live_view *view, const struct tm_run_status *status);
/* The last one heard; borrowed; NULL: none. */
const struct tm_run_status *tm_live_view_status(const struct tm_live_view *view);

#endif
