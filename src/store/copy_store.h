/* Where copy sets outlive the machines that made them: one struct of functions. A folder that all machines share
 * implements it (copy_folder.c), and a bucket of S3 or of Azure (copy_bucket.c).
 *
 * A store holds the sets of one job. A set is put part by part, one layer each, by the workers that hold the layers;
 * once all parts are there the coordinator seals it with a manifest (its event of the record). `list` and `newest` name
 * sealed sets only; what was put and never sealed stays unused until it is dropped.
 *
 * Threads: every function may be called by any thread at any time, even by several at once, but not while or after the
 * store is closed. There is one writer per name: the parts of a set come from one attempt, and only the coordinator
 * seals, drops and claims.
 *
 * Time: a call may take as long as a disk or a network takes, possibly minutes. So never call it from a loop that must
 * go on, or with a lock that such a loop needs: workers have threads for it (worker/copy_files.h), the coordinator has
 * one (run/manifest_keeper.h); at the start and end of a program waiting is fine.
 *
 * Atomic: a put and a seal are complete or have not happened. Of a put that was torn (the process died, the connection
 * was lost) nothing is found (-TM_ENOTFOUND), or what was there before, or what is found is told from a copy by its
 * hash (-TM_EINPUT); never bytes that were not put. A seal that failed may already be listed, but the newest is what it
 * was; it is sealed again. A drop is not atomic: the manifest goes first, so that what is listed is whole; a set of
 * which parts are left is dropped again.
 *
 * Errors: -TM_EFULL there is no space now; -TM_EIO it cannot be reached, read or written now; -TM_ENOMEM. These are
 * temporary: the caller tries again, and nothing that was there has been damaged. -TM_ENOTFOUND it is not there, and
 * the store is sure: it can be read. -TM_EINPUT what is there is not what it should be, and trying again will not help.
 */
#ifndef TM_STORE_COPY_STORE_H
#define TM_STORE_COPY_STORE_H

#include "base/env.h"
#include "store/copies.h"

/* A sealed set: its number, where its manifest is (for messages), and the manifest, borrowed for the call. */
struct tm_sealed_set {
    uint64_t set;
    const char *where;
    const void *manifest;
    size_t length;
};
/* Other than 0 ends the list, which returns it. */
typedef int (*tm_sealed_set_f)(void *context, const struct tm_sealed_set *set, struct tm_error *e);

struct tm_grant;

struct tm_copy_store {
    void *self;
    const char *where; /* for messages; the store's own */
    /* Stores a part: name->size bytes of the block, which may be shared but must not change meanwhile; the room before
     * and after its bytes is the store's to write to. It lasts when the call returns. One that is there is replaced.
     * -TM_EINPUT: the store was claimed by another job, or by none so far. */
    int (*put)(struct tm_copy_store *store, const struct tm_copy_name *name, struct tm_block *block,
               struct tm_error *e);
    /* Reads a part of `size` bytes (0: as many as it has) and checks its hash. The block is a share, the caller's.
     * -TM_EINPUT: it is damaged, or of another size. Where no set is sealed, nothing is sure, and what is not there is
     * -TM_EIO. */
    int (*get)(struct tm_copy_store *store, uint64_t set, uint32_t layer, uint64_t size, struct tm_block_pool *pool,
               struct tm_copy_name *out_name, struct tm_block **out_block, struct tm_error *e);
    /* All parts of the set are there: it is the newest now. -TM_EINPUT: another coordinator claimed the store since;
     * this one may not name sets any more (only where the store can tell: a bucket). */
    int (*seal)(struct tm_copy_store *store, uint64_t set, const void *manifest, size_t length, struct tm_error *e);
    /* The number of the set that was sealed last. -TM_ENOTFOUND: none was. */
    int (*newest)(struct tm_copy_store *store, uint64_t *out_set, struct tm_error *e);
    /* Sealed sets, the highest number first. One that goes meanwhile is left out. `each` may not call the store. */
    int (*list)(struct tm_copy_store *store, tm_sealed_set_f each, void *context, struct tm_error *e);
    /* Removes the set, sealed or not; 0 where there is none. */
    int (*drop)(struct tm_copy_store *store, uint64_t set, struct tm_error *e);
    /* Drops every set below that number that has parts and was never sealed, but those in `keep`: what coordinators had
     * under way when they died, and what came late of sets that were given up. Only for who has sealed `below`, or may
     * name sets still: it knows that nobody seals them. */
    int (*sweep)(struct tm_copy_store *store, uint64_t below, const uint64_t *keep, size_t keep_count,
                 struct tm_error *e);
    /* Makes the store its job's (see below): only then anything can be put. Machines with separate
     * stores would each keep a part of a set, and none all of it. If another job had it before, `take_over` makes it
     * this job's; else it is -TM_EINPUT, and the sets stay that job's. */
    int (*claim)(struct tm_copy_store *store, bool take_over, struct tm_error *e);
    /* Writes, lists, reads and removes something of no use: what cannot be done now would never last. */
    int (*check)(struct tm_copy_store *store, struct tm_error *e);
    /* For members without credentials (grant.h), so that their bytes need not go through the coordinator: the part as
     * a file (copy_file.h) of so many bytes to put, or, with 0, to get. NULL: there is no such thing. An upload lasts
     * once it was ended by `granted`, with what its parts were answered with; with "" it is given up. Errors of the one
     * are those of put and get, of the other those of put. */
    int (*grant)(struct tm_copy_store *store, uint64_t set, uint32_t layer, uint64_t length, struct tm_grant *out,
                 struct tm_error *e);
    int (*granted)(struct tm_copy_store *store, uint64_t set, uint32_t layer, const char *upload, const char *tags,
                   struct tm_error *e);
    /* Ends and frees it; what is stored stays. */
    void (*close)(struct tm_copy_store *store);
};

/* The place of the store that a run's office keeps for members on other machines: "tidemill://HOST:PORT/FOLDER", where
 * the folder, on this machine, has the member's certificate. It puts, gets and names the newest; what only the
 * coordinator does, it does on its own side. */
void tm_copy_store_office_place(const char *address, const char *tls_folder, struct tm_text *out);

enum { TM_COPY_PLACE_MAX = 4096 };

/* Can a store be opened there, as far as its name tells? -TM_EUSAGE: no. */
int tm_copy_store_check_place(const char *place, struct tm_error *e);
/* Where a place leads: "s3://BUCKET/PREFIX" or "az://CONTAINER/PREFIX" where it is, or is a file that says so; else the
 * folder itself. */
int tm_copy_store_place(struct tm_env *env, const char *place, char out[TM_COPY_PLACE_MAX], struct tm_error *e);
/* Opens the store at `place`, for that job (0: any, which may put without a claim): a folder, which need not be there
 * yet; "s3://BUCKET/PREFIX" or "az://CONTAINER/PREFIX"; or a file with that line in it. Nothing of the store is read or
 * written so far. The caller owns the result, and closes it. -TM_EUSAGE: no such place; -TM_EINPUT: settings of AWS are
 * missing. */
int tm_copy_store_open(struct tm_env *env, const char *place, uint64_t job, struct tm_copy_store **out,
                       struct tm_error *e);
/* The newest set of the store at a place, without keeping it open. */
int tm_copy_store_newest(struct tm_env *env, const char *place, uint64_t *out_set, struct tm_error *e);

#endif
