/* Parts of the real environment that live in a file of their own. */
#ifndef TM_BASE_ENV_INTERNAL_H
#define TM_BASE_ENV_INTERNAL_H

#include "base/env.h"

#include <netdb.h>
#include <poll.h>
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
int tm_env__folder_make(struct tm_env *env, const char *path, struct tm_error *e);
int tm_env__file_extend(struct tm_env *env, const char *path, int64_t offset, const void *data, size_t length,
                        struct tm_error *e);
int tm_env__file_read_at(struct tm_env *env, const char *path, int64_t offset, void *buffer, size_t room,
                         size_t *out_length, int64_t *out_size, struct tm_error *e);
bool tm_env__file_is_link(struct tm_env *env, const char *path);

/* env_net.c; see env.h. */
int tm_env__net_listen(struct tm_env *env, const char *address, int *out_handle, char bound[TM_ADDRESS_MAX],
                       struct tm_error *e);
int tm_env__net_accept(struct tm_env *env, int listener, int *out_handle, struct tm_error *e);
int tm_env__net_send(struct tm_env *env, int handle, const void *data, size_t length, size_t *out_sent,
                     struct tm_error *e);
int tm_env__net_receive(struct tm_env *env, int handle, void *buffer, size_t size, size_t *out_received,
                        struct tm_error *e);
int tm_env__net_wait(struct tm_env *env, const int *handles, size_t count, int64_t timeout_ms, bool *out_ready,
                     struct tm_error *e);
int tm_env__net_watch(struct tm_env *env, struct tm_watch *watches, size_t count, int64_t timeout_ms,
                      struct tm_error *e);
int tm_env__net_wait_send(struct tm_env *env, int handle, int64_t timeout_ms, struct tm_error *e);
int tm_env__net_pair(struct tm_env *env, int out_handles[2], struct tm_error *e);
int tm_env__net_own_address(struct tm_env *env, int handle, char out[TM_ADDRESS_MAX], struct tm_error *e);
int tm_env__net_peer_address(struct tm_env *env, int handle, char out[TM_ADDRESS_MAX], struct tm_error *e);
void tm_env__net_shutdown(struct tm_env *env, int handle);
void tm_env__net_close(struct tm_env *env, int handle);
int tm_env__unix_connect(const char *path, int *out_handle, struct tm_error *e);
int tm_env__poll(struct pollfd *polled, size_t count, int64_t timeout_ms); /* poll that a signal does not cut short */

/* env_connect.c */
int tm_env__net_connect(struct tm_env *env, const char *address, int *out_handle, struct tm_error *e);
/* The handle of a connection that was being made becomes the connection: 0. -TM_EBUSY: it is still being made;
 * -TM_EPEER: it could not be; -TM_ENOTFOUND: the handle is none of these. */
int tm_env__connect_settle(int handle, struct tm_error *e);
void tm_env__connect_stop(int handle);  /* what is still being made fails; what was made is shut down */
void tm_env__connect_close(int handle); /* its owner closes the handle */
/* The addresses of a name, for the caller to free; waits at most TM_CONNECT_LIMIT_MS. -TM_EPEER: there are none. */
int tm_env__look_up(const char *host, const char *port, struct addrinfo **out, struct tm_error *e);
/* getaddrinfo and TM_CONNECT_LIMIT_MS; tests put their own in their place. */
extern struct tm_env__connecting {
    int (*look_up)(const char *host, const char *port, struct addrinfo **out);
    int64_t limit_ms;
} tm_env__connecting;

/* env_process.c */
/* As pidfd_open, which libc has since glibc 2.36 only: the program also runs where that is older, on VMs of
 * Ubuntu 22.04. */
int tm_env__pidfd_open(int pid);
/* See env.h. */
int tm_env__process_start_with(struct tm_env *env, const struct tm_process_options *options, int *out_pid,
                               struct tm_error *e);
int tm_env__process_signal_group(struct tm_env *env, int group, int signal_number, struct tm_error *e);
int tm_env__process_handle(struct tm_env *env, int pid, int *out_handle, struct tm_error *e);
int tm_env__process_self(struct tm_env *env);
void tm_env__process_end_together(struct tm_env *env);
int tm_env__process_started(struct tm_env *env, int pid, int64_t *out_start, struct tm_error *e);
int tm_env__process_end_marked(struct tm_env *env, const char *mark, int *out_count, struct tm_error *e);
int tm_env__process_limit_files(struct tm_env *env, int pid, int64_t bytes, struct tm_error *e);

#endif
