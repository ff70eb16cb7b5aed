/* Copies in files, written and read by a thread of their own: a disk may take its time, and whoever votes on steps and
 * keeps a lease must not wait for it. What was asked for is done in order; `done` tells of each. */
#ifndef TM_WORKER_COPY_FILES_H
#define TM_WORKER_COPY_FILES_H

#include "base/env.h"

enum { TM_COPY_FILES_WAITING_MAX = 1 << 30 }; /* bytes that wait to be written; one file always may */

struct tm_copy_files;

struct tm_copy_file_done {
    uint64_t set;
    uint32_t layer;
    bool written; /* a put: it is stored. A get: `data` and `length` are what was read */
    bool is_put;
    const void *data; /* a get: NULL where it could not be read now; no bytes where the file is not there */
    size_t length;
};
/* By the thread, which holds nothing. It may ask for more. */
typedef void (*tm_copy_files_done_f)(void *context, const struct tm_copy_file_done *done);

/* The caller owns the result. `folder` is copied; "": there is none, and nothing can be stored. */
int tm_copy_files_create(struct tm_env *env, const char *folder, tm_copy_files_done_f done, void *context,
                         struct tm_copy_files **out, struct tm_error *e);
/* What waits is forgotten; the file under way is finished. NULL is allowed. */
void tm_copy_files_destroy(struct tm_copy_files *files);

/* From any thread. `data` is copied. The same file twice is written once; one that finds no room is told as not
 * stored. */
void tm_copy_files_put(struct tm_copy_files *files, uint64_t set, uint32_t layer, const void *data, size_t length);
void tm_copy_files_get(struct tm_copy_files *files, uint64_t set, uint32_t layer, size_t length_max);

#endif
