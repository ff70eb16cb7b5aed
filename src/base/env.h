/* The outside world as one struct of functions: clock, randomness, variables, files, network, processes.
 *
 * Libraries reach the world only through a `struct tm_env *`. Programs pass tm_env_real(); tests pass a virtual one
 * (env_virtual.h) in which time moves only when told to, files are in memory, and the network loses what the test wants
 * it to lose. So a test runs the code that runs in production. */
#ifndef TM_BASE_ENV_H
#define TM_BASE_ENV_H

#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_ADDRESS_MAX 108

enum { TM_CONNECT_LIMIT_MS = 10000 }; /* for a connection, from the name to the last of its addresses */

/* A piece of what is written. */
struct tm_part {
    const void *data;
    size_t length;
};

/* A piece of what is read. */
typedef int (*tm_piece_f)(void *context, const void *data, size_t length, struct tm_error *e);

/* A name in a folder. */
typedef int (*tm_name_f)(void *context, const char *name, struct tm_error *e);

/* A handle to be watched. */
enum tm_interest { TM_WATCH_RECEIVE, TM_WATCH_SEND, TM_WATCH_BOTH };
struct tm_watch {
    int handle;
    enum tm_interest want; /* until it can receive or accept; until it can send: connected, with room in its queue */
    bool can_receive;      /* out; of what was wanted. A closed one can do both: the call then returns the error */
    bool can_send;
    bool ready; /* out: something of it may be done */
};

/* How a process is started. */
struct tm_process_options {
    const char *const *argv;      /* ends in NULL; its first word is looked up in PATH */
    const char *const *variables; /* "NAME=VALUE" beside, or instead of, the program's own; ends in NULL; NULL: none */
    const char *folder;           /* that it is started in; NULL: the program's */
    bool group;                   /* leads a process group of its own, whose number is its pid; reads from /dev/null */
    bool deaf;                    /* with `group`: SIGTERM does not end it, nor what it starts */
    const char *output;           /* a file that both its outputs are appended to; NULL: those of the program */
    int *captured;                /* instead: a handle to receive both its outputs from; net_close must follow */
};

struct tm_env {
    void *self; /* the implementation's own state */

    /* Clock. now_ms is UTC since 1970 and may jump; monotonic_ns never goes back; processor_ns is the time that
     * processors have spent on this program. */
    int64_t (*now_ms)(struct tm_env *env);
    int64_t (*monotonic_ns)(struct tm_env *env);
    int64_t (*processor_ns)(struct tm_env *env);
    void (*sleep_ms)(struct tm_env *env, int64_t ms);

    uint64_t (*random_u64)(struct tm_env *env);

    /* Environment variable or NULL; borrowed. */
    const char *(*variable)(struct tm_env *env, const char *name);
    /* Sets it for this program and what it starts, in place of what it was. */
    int (*set_variable)(struct tm_env *env, const char *name, const char *value);

    /* Files. file_read appends to `out` (whose limit applies: -TM_ELIMIT names file and limit before reading a byte
     * too many). file_write replaces the whole file or leaves it as it was: new name, synced, renamed; it makes
     * missing folders, follows links, and writes straight into what is no file (a pipe, a device). file_write_private
     * is the same for private files: the file gets mode 0600, folders that it makes 0700; file_write_mode takes any
     * mode, independent of the program's umask: the file has it from the start. file_write_parts is the
     * same for data in several places. file_write_blocks and file_read_blocks are for large files: past the
     * page cache (O_DIRECT) where the file system can do that, through it where it refuses; `out_direct` says which;
     * both are private, too. `data` is on a page of 4096 bytes; what is written is whole pages, and the room to read
     * into too. file_read_blocks reads the whole file (-TM_ELIMIT: it has more bytes than there is room) and shows
     * `piece` what has come, in order, while it is in the cache: not 0 ends the reading. file_remove also removes an
     * empty folder; for a missing file it is 0. file_read_at is for a file that grows: at most `room` bytes from an
     * offset on, and how many bytes the whole file has now. A pipe is read if something writes to it, and is not waited
     * for else. file_extend is for a file of our own that grows: `data` follows its first `offset` bytes, and is its
     * end; the file, private, and missing folders are made. It is not synced. file_map shows a file's bytes without
     * reading them all, until file_unmap. */
    int (*file_read)(struct tm_env *env, const char *path, struct tm_text *out, struct tm_error *e);
    int (*file_write)(struct tm_env *env, const char *path, const char *data, size_t length, struct tm_error *e);
    int (*file_write_private)(struct tm_env *env, const char *path, const char *data, size_t length,
                              struct tm_error *e);
    int (*file_write_mode)(struct tm_env *env, const char *path, unsigned mode, const char *data, size_t length,
                           struct tm_error *e);
    int (*file_write_parts)(struct tm_env *env, const char *path, const struct tm_part *parts, size_t count,
                            struct tm_error *e);
    int (*file_write_blocks)(struct tm_env *env, const char *path, const void *data, size_t length, bool *out_direct,
                             struct tm_error *e);
    int (*file_read_blocks)(struct tm_env *env, const char *path, void *data, size_t room, tm_piece_f piece,
                            void *context, size_t *out_length, struct tm_error *e);
    int (*file_remove)(struct tm_env *env, const char *path, struct tm_error *e);
    int (*file_read_at)(struct tm_env *env, const char *path, int64_t offset, void *buffer, size_t room,
                        size_t *out_length, int64_t *out_size, struct tm_error *e);
    int (*file_extend)(struct tm_env *env, const char *path, int64_t offset, const void *data, size_t length,
                       struct tm_error *e);
    bool (*file_exists)(struct tm_env *env, const char *path);
    bool (*file_is_link)(struct tm_env *env, const char *path); /* the name is a link's, wherever that points */
    int (*file_map)(struct tm_env *env, const char *path, const void **out_data, size_t *out_length,
                    struct tm_error *e);
    void (*file_unmap)(struct tm_env *env, const void *data, size_t length);
    /* Locks the file, which is made where it is missing, private as above, until file_unlock or the end of the program:
     * -TM_EBUSY where another has it. What is started meanwhile does not inherit it. */
    int (*file_lock)(struct tm_env *env, const char *path, int *out_handle, struct tm_error *e);
    void (*file_unlock)(struct tm_env *env, int handle);
    /* Every name in a folder, in no order; a result of `take` other than 0 ends it. */
    int (*folder_each)(struct tm_env *env, const char *path, tm_name_f take, void *context, struct tm_error *e);
    /* Makes a folder, mode 0700, in one that is there; 0 also where it is there itself. */
    int (*folder_make)(struct tm_env *env, const char *path, struct tm_error *e);

    /* Network: streams over TCP, non-blocking. Addresses are "HOST:PORT" and "[IPV6]:PORT" (address.h); port 0 at
     * listen picks a free one and `bound` tells which; on the machine itself also "unix:PATH". accept, send and receive
     * answer -TM_EBUSY when they would block. receive gives 0 bytes when the peer closed in order, -TM_EPEER when it
     * was lost.
     *
     * net_connect never blocks, neither for a name lookup nor for an answer. It fails if it is clear at once that there
     * can be no connection (-TM_EPEER; -TM_EUSAGE for what is not an address). Otherwise it returns a handle. While the
     * connection is being made, send and receive would block. The handle is ready (net_watch, net_wait, net_wait_send)
     * once it is made or has failed; then they work, or return -TM_EPEER with a text that names the address.
     * A name's addresses are tried in order, the next one when one fails or is silent for a quarter of a second; after
     * TM_CONNECT_LIMIT_MS it fails. net_listen does not block for an address or "localhost". It looks any other name
     * up, for at most TM_CONNECT_LIMIT_MS: give it names only when a program starts. */
    int (*net_listen)(struct tm_env *env, const char *address, int *out_handle, char bound[TM_ADDRESS_MAX],
                      struct tm_error *e);
    int (*net_connect)(struct tm_env *env, const char *address, int *out_handle, struct tm_error *e);
    int (*net_accept)(struct tm_env *env, int listener, int *out_handle, struct tm_error *e);
    int (*net_send)(struct tm_env *env, int handle, const void *data, size_t length, size_t *out_sent,
                    struct tm_error *e);
    int (*net_receive)(struct tm_env *env, int handle, void *buffer, size_t size, size_t *out_received,
                       struct tm_error *e);
    /* Waits until one of the handles can accept or receive, and says which; -TM_ETIMEOUT if none did in time. */
    int (*net_wait)(struct tm_env *env, const int *handles, size_t count, int64_t timeout_ms, bool *out_ready,
                    struct tm_error *e);
    /* The same with a choice for each, for up to 4500 of them. */
    int (*net_watch)(struct tm_env *env, struct tm_watch *watches, size_t count, int64_t timeout_ms,
                     struct tm_error *e);
    /* Two ends of a stream within the program: what is sent to one end makes the other ready. To wake a waiting thread.
     */
    int (*net_pair)(struct tm_env *env, int out_handles[2], struct tm_error *e);
    /* Waits until the handle can send; -TM_ETIMEOUT if it could not in time. */
    int (*net_wait_send)(struct tm_env *env, int handle, int64_t timeout_ms, struct tm_error *e);
    /* Our end of a connection that was made: "HOST:PORT", an address of this machine by which the other end is reached.
     */
    int (*net_own_address)(struct tm_env *env, int handle, char out[TM_ADDRESS_MAX], struct tm_error *e);
    /* The other end's: "HOST:PORT". */
    int (*net_peer_address)(struct tm_env *env, int handle, char out[TM_ADDRESS_MAX], struct tm_error *e);
    /* Ends a connection for both sides while others may still use the handle; net_close must follow. */
    void (*net_shutdown)(struct tm_env *env, int handle);
    void (*net_close)(struct tm_env *env, int handle);

    /* Processes. `argv` ends in NULL; its first word is looked up in PATH. process_wait gives the exit status (128 +
     * signal for a killed one) and forgets the process, or answers -TM_ETIMEOUT. */
    int (*process_start)(struct tm_env *env, const char *const *argv, int *out_pid, struct tm_error *e);
    int (*process_signal)(struct tm_env *env, int pid, int signal_number, struct tm_error *e);
    int (*process_wait)(struct tm_env *env, int pid, int64_t timeout_ms, int *out_status, struct tm_error *e);
    int (*process_start_with)(struct tm_env *env, const struct tm_process_options *options, int *out_pid,
                              struct tm_error *e);
    /* To every process of a group; -TM_ENOTFOUND when none is left in it. */
    int (*process_signal_group)(struct tm_env *env, int group, int signal_number, struct tm_error *e);
    /* A handle that net_watch and net_wait call ready once the process has ended; net_close must follow. */
    int (*process_handle)(struct tm_env *env, int pid, int *out_handle, struct tm_error *e);
    int (*process_self)(struct tm_env *env); /* the pid of this program */
    /* From now on all processes of this program's group are killed when whoever started it ends, and on SIGTERM: what
     * it has started does not outlive it. */
    void (*process_end_together)(struct tm_env *env);
    /* When it started, on the machine's own clock: pid and start together name one process, never a later one.
     * -TM_ENOTFOUND when it is gone. */
    int (*process_started)(struct tm_env *env, int pid, int64_t *out_start, struct tm_error *e);
    /* Ends (SIGKILL) every process that was started with exactly this "NAME=VALUE" among its variables, in any
     * group, except this program, waits until they are gone, and returns how many there were. */
    int (*process_end_marked)(struct tm_env *env, const char *mark, int *out_count, struct tm_error *e);
    /* As if the disk were full: no file of the process grows beyond so many bytes (EFBIG, and SIGXFSZ, which it had
     * better ignore); < 0: as before. */
    int (*process_limit_files)(struct tm_env *env, int pid, int64_t bytes, struct tm_error *e);
};

/* The machine itself. Borrowed; one for the program. */
struct tm_env *tm_env_real(void);

#endif
