/* A part of a copy set as a file. Format 2: one page (4096 bytes) of head, the layer's bytes, zeros to the end of the
 * last page; so that it is written and read past the page cache, straight from and to the memory that others use. The
 * head is one line of text that names the part, its size, its hash and that of the line so far, spaces, and a newline
 * as its last byte. A file that is torn or altered anywhere is -TM_EINPUT; so is one of format 1, which earlier
 * versions wrote, with words that say so. */
#ifndef TM_STORE_COPY_FILE_H
#define TM_STORE_COPY_FILE_H

#include "base/text.h"
#include "store/copies.h"

/* How many bytes the file of a part of `size` bytes has. */
size_t tm_copy_file_length(uint64_t size);
void tm_copy_file_encode(const struct tm_copy_name *name, const void *data, struct tm_text *out);
/* `out_data` borrows from `file`. */
int tm_copy_file_decode(const void *file, size_t length, struct tm_copy_name *out, const void **out_data,
                        struct tm_error *e);

#endif
