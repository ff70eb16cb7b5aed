/* The job's record: every event that the coordinator must find again after a restart, in order. One struct of
 * functions, which an SQLite file implements (record_sqlite.c).
 *
 * No caller waits for a disk. Events are numbered from 1 as they are appended, and written in that order by a thread of
 * the record. An event that must be durable is appended with `sync`: it is written at once, and a caller that may act
 * only when it is durable waits for `durable` to reach its number (see `look`). The others wait for the next sync or
 * flush. What is not durable may be lost with the process, but never out of order.
 *
 * A full disk loses nothing that was acknowledged: events without sync keep waiting, and are written when there is
 * space again. A synced event that cannot be written is taken back, with all that were appended after it, because they
 * were built on something that has not happened. Events that are appended before the owner has looked (and so knows)
 * are taken back, too.
 *
 * What was read never changes afterwards: of waiting events, `each` and `last` know only those that cannot be taken
 * back, the ones before the first synced one.
 *
 * Threads: all functions are for one thread, that of the record's owner; the function of `tell` is called by another.
 */
#ifndef TM_STORE_RECORD_H
#define TM_STORE_RECORD_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How far it has come. */
struct tm_record_news {
    uint64_t durable; /* all events up to this number last */
    bool taken_back;  /* since the last look: a synced event and all after it; their numbers are given again */
};

typedef int (*tm_record_each_f)(void *context, uint64_t sequence, const void *event, size_t length, struct tm_error *e);

struct tm_record {
    void *self;
    /* Copies the event, and gives its number (NULL: not wanted). Waits only where many thousands wait for a disk that
     * is slow; where they do because it is full, one without sync is left out (number 0), and one with it is -TM_EFULL.
     * -TM_EINPUT: it is no event. */
    int (*append)(struct tm_record *record, const void *event, size_t length, bool sync, uint64_t *out_number,
                  struct tm_error *e);
    /* What waits is to be put down; `wait`: until it is. Then -TM_EFULL, or another error: it is not, as of `look`. */
    int (*flush)(struct tm_record *record, bool wait, struct tm_error *e);
    /* How far it has come, without waiting. The result is that of the last try to write: 0, -TM_EFULL or -TM_EIO (it is
     * tried again with the next sync or flush), or an error that does not pass. `out` is set in any case. */
    int (*look)(struct tm_record *record, struct tm_record_news *out, struct tm_error *e);
    /* Has `news` called after every try to write, by the thread that did, which holds nothing. NULL: not any more. */
    void (*tell)(struct tm_record *record, void (*news)(void *context), void *context);
    /* The number of the last event that can be read; 0: none. */
    uint64_t (*last)(struct tm_record *record);
    /* Calls `each` with every event whose number is above `after`, oldest first, with at most `max`, until it returns
     * other than 0, which is then returned. -TM_EINPUT: an event is damaged; all before it have been given. The newest
     * ones come from memory; older ones may have to wait for a write that is under way. `each` may not use the record.
     */
    int (*each)(struct tm_record *record, uint64_t after, size_t max, tm_record_each_f each, void *context,
                struct tm_error *e);
    /* Puts down what is pending, as far as that is possible, and frees it. */
    void (*close)(struct tm_record *record);
};

/* Opens or makes the file. -TM_EBUSY: another coordinator has it open. -TM_EINPUT: it is no record, or of another
 * version. The caller owns the result, and closes it. */
int tm_record_open(const char *path, struct tm_record **out, struct tm_error *e);
/* Opens one for reading alone; it must be there (-TM_ENOTFOUND). -TM_EBUSY: a coordinator has it open. */
int tm_record_open_read(const char *path, struct tm_record **out, struct tm_error *e);

static inline void tm_record_close(struct tm_record *record) /* NULL is allowed */
{
    if (record != NULL) record->close(record);
}

#endif
