/* A part of a copy set as a file. Format 2: one page (4096 bytes) of head, the layer's bytes, zeros to the end of the
 * last page; so that it is written and read past the page cache, straight from and to the memory that others use. The
 * head is one line of text that names the part, its size, its hash and that of the line so far, spaces, and a newline
 * as its last byte. A file that is torn or altered anywhere is -TM_EINPUT; so is one of format 1, which earlier
 * versions wrote, with words that say so. */
#ifndef TM_STORE_COPY_FILE_H
#define TM_STORE_COPY_FILE_H

#include "base/env.h"
#include "store/copies.h"

/* How many bytes the file of a part of `size` bytes has. */
size_t tm_copy_file_length(uint64_t size);
void tm_copy_file_encode(const struct tm_copy_name *name, const void *data, struct tm_text *out);
/* `out_data` borrows from `file`. */
int tm_copy_file_decode(const void *file, size_t length, struct tm_copy_name *out, const void **out_data,
                        struct tm_error *e);

/* What reading a file came to. */
enum tm_copy_file_state {
    TM_COPY_FILE_LATER, /* could not be read now */
    TM_COPY_FILE_BAD,   /* is not there, or not what it should be */
    TM_COPY_FILE_GOOD,
};
struct tm_copy_file {
    enum tm_copy_file_state state;
    struct tm_copy_name name; /* GOOD: as its head says, the hash compared with the bytes */
    struct tm_block *block;   /* GOOD: a share, the caller's */
};

/* The file of part (set, layer) in a folder for copies. */
void tm_copy_file_path(const char *folder, uint64_t set, uint32_t layer, char *out, size_t size);
/* Writes the head into the room before the block's bytes, and all of it to the file: whole or not at all, and synced.
 * `out_direct`: past the page cache. */
int tm_copy_file_write(struct tm_env *env, const char *path, const struct tm_copy_name *name, struct tm_block *block,
                       bool *out_direct, struct tm_error *e);
/* Reads a part of `size` bytes, and checks it while it comes. Not GOOD: `e` says why. */
struct tm_copy_file tm_copy_file_read(struct tm_env *env, const char *path, uint64_t size, struct tm_block_pool *pool,
                                      struct tm_error *e);

/* The newest whole set of a folder for copies, as the coordinator names it there in the file `newest`. -TM_ENOTFOUND:
 * there is none yet. */
int tm_copy_newest_set(struct tm_env *env, const char *folder, uint64_t *out, struct tm_error *e);

/* Whose folder it is: the coordinator leaves the job's number in the file `job`, and whoever stores copies looks for it
 * first. Machines that were each given a folder of their own would each keep a part of a set, and nobody all of it.
 * Where another job was here before, `take_over` makes it this one's; else it is -TM_EINPUT, and the sets stay its own.
 */
int tm_copy_folder_mark(struct tm_env *env, const char *folder, uint64_t job, bool take_over, struct tm_error *e);
/* -TM_EINPUT: it is not the job's folder, in words for a user. */
int tm_copy_folder_check(struct tm_env *env, const char *folder, uint64_t job, struct tm_error *e);

#endif
