/* Reading whole input files with all their traps: gzip, byte order marks, binary data, files too large. */
#ifndef TM_BASE_CONTENT_H
#define TM_BASE_CONTENT_H

#include "base/env.h"

/* Appends the text of a file to `out` (whose limit bounds what is read and what is unpacked). "-" is standard input.
 * gzip is unpacked. Binary data is -TM_EINPUT, an empty file is -TM_EINPUT. */
int tm_content_read(struct tm_env *env, const char *path, struct tm_text *out, struct tm_error *e);

/* The same checks for bytes in hand; `name` is for messages. */
int tm_content__unpack(const char *name, const char *data, size_t length, struct tm_text *out, struct tm_error *e);

#endif
