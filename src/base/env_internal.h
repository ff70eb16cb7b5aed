/* Parts of the real environment that live in a file of their own. */
#ifndef TM_BASE_ENV_INTERNAL_H
#define TM_BASE_ENV_INTERNAL_H

#include "base/env.h"

#include <sys/stat.h>

enum { TM_ENV__FRESH_MAX = 4096 + 64 };

/* env_real.c */
/* A new file beside `path`, to be renamed to it once it is whole: its handle (negative: errno) and its name. */
int tm_env__open_fresh(struct tm_env *env, const char *path, mode_t mode, char fresh[TM_ENV__FRESH_MAX]);
int tm_env__make_parents(const char *path, mode_t mode, struct tm_error *e); /* the folders that a file is in */
void tm_env__sync_folder_of(const char *path); /* a rename lasts only once the folder that holds the name is synced */
int tm_env__cannot_open(const char *path, int errno_value, struct tm_error *e);

/* env_blocks.c; see env.h. */
int tm_env__file_write_blocks(struct tm_env *env, const char *path, const void *data, size_t length, bool *out_direct,
                              struct tm_error *e);
int tm_env__file_read_blocks(struct tm_env *env, const char *path, void *data, size_t room, tm_piece_f piece,
                             void *context, size_t *out_length, struct tm_error *e);

/* env_files.c */
/* A file, a pipe, a device: opened without waiting, and read to its end. */
int tm_env__open_to_read(const char *path, struct stat *status, int *out, struct tm_error *e);
int tm_env__read_all(int fd, const char *path, const struct stat *status, char *chunk, size_t size, struct tm_text *out,
                     struct tm_error *e);
int tm_env__file_lock(struct tm_env *env, const char *path, int *out_handle, struct tm_error *e);
void tm_env__file_unlock(struct tm_env *env, int handle);
int tm_env__folder_each(struct tm_env *env, const char *path, tm_name_f take, void *context, struct tm_error *e);

/* env_process.c; see env.h. */
int tm_env__process_start_with(struct tm_env *env, const struct tm_process_options *options, int *out_pid,
                               struct tm_error *e);
int tm_env__process_signal_group(struct tm_env *env, int group, int signal_number, struct tm_error *e);
int tm_env__process_handle(struct tm_env *env, int pid, int *out_handle, struct tm_error *e);
int tm_env__process_self(struct tm_env *env);
int tm_env__process_started(struct tm_env *env, int pid, int64_t *out_start, struct tm_error *e);
int tm_env__process_end_marked(struct tm_env *env, const char *mark, int *out_count, struct tm_error *e);
int tm_env__process_limit_files(struct tm_env *env, int pid, int64_t bytes, struct tm_error *e);

#endif
