/* A progress bar for work that takes more than a second. Drawn on a terminal only, at most ten times a second, and
 * wiped when the work is done. */
#ifndef TM_BASE_PROGRESS_H
#define TM_BASE_PROGRESS_H

#include "base/env.h"
#include "base/term.h"

struct tm_progress {
    struct tm_env *env;
    struct tm_term term;
    const char *label;
    int64_t total;
    int64_t started_ns;
    int64_t drawn_ns;                                              /* 0: never */
    void (*write)(void *context, const char *text, size_t length); /* where the bar goes; NULL: standard error */
    void *write_context;
};

void tm_progress_start(struct tm_progress *progress, struct tm_env *env, struct tm_term term, const char *label,
                       int64_t total);
void tm_progress_update(struct tm_progress *progress, int64_t done);
void tm_progress_finish(struct tm_progress *progress);

#endif
