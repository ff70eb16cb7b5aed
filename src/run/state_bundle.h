/* A run's books as one piece of data: what a state folder has that another machine needs to read the run, or to go on
 * with it. Copies and weights are not among them: they have places of their own.
 *
 *     "tidemill-state 1 HASH\n", the hash (32 hexadecimal digits) of all that follows; then for each file
 *     "NAME LENGTH\n", its bytes and "\n"
 *
 * The names are of a list, and of logs/: a bundle cannot write elsewhere. */
#ifndef TM_RUN_STATE_BUNDLE_H
#define TM_RUN_STATE_BUNDLE_H

#include "base/env.h"
#include "base/text.h"

enum { TM_BUNDLE_BYTES_MAX = 256 << 20, TM_BUNDLE_HEAD = 50, TM_BUNDLE_LOG_BYTES = 256 << 10 };

/* Appends the folder's files to `out`. Of a log its end. The record may be written to meanwhile: it is taken as it was
 * at one moment (-TM_EBUSY: it changed all the time; try again). */
int tm_state_pack(struct tm_env *env, const char *dir, struct tm_text *out, struct tm_error *e);
/* Writes what is in a bundle into the folder: files that are not in it stay, but a record is replaced as a whole.
 * -TM_EINPUT: it is none, or damaged; nothing is written then. */
int tm_state__unpack(struct tm_env *env, const char *dir, const char *data, size_t length, struct tm_error *e);

/* Each file of a bundle, in order; for tests. */
typedef int (*tm_bundle_file_f)(void *context, const char *name, const char *data, size_t length, struct tm_error *e);
int tm_state__unpack_each(const char *data, size_t length, tm_bundle_file_f take, void *context, struct tm_error *e);

#endif
