/* The job's record: every event that the coordinator must find again after a restart, in order, in one SQLite file
 * (write-ahead log). Format: table event (sequence, at_ms, kind, data, hash): data is a RecordEvent of the schema, hash
 * its XXH3, at_ms and kind are for people with sqlite3.
 *
 * Events are put down in the order in which they come; those that must last are synced before the call returns, with
 * all before them; the others wait in memory for the next sync or flush. What was not synced may be lost with the
 * process, but never out of order. A disk that is full loses nothing: what waits goes on waiting, and is put down when
 * there is room again. */
#ifndef TM_STORE_RECORD_H
#define TM_STORE_RECORD_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tm_record;

/* Opens or makes the file. -TM_EBUSY: another coordinator has it open. -TM_EINPUT: it is no record, or of another
 * version. The caller owns the result. */
int tm_record_open(const char *path, struct tm_record **out, struct tm_error *e);
/* Opens one for reading alone; it must be there (-TM_ENOTFOUND). -TM_EBUSY: a coordinator has it open. */
int tm_record_open_read(const char *path, struct tm_record **out, struct tm_error *e);
void tm_record_close(struct tm_record *record); /* NULL is allowed; puts down what is pending */

/* -TM_EFULL: it cannot be written now, as a disk is full; an event that was to be synced is not part of the record
 * then. One without sync waits; of many thousands that wait, the last are left out. */
int tm_record_append(struct tm_record *record, const void *event, size_t length, bool sync, struct tm_error *e);
/* Puts down what was appended without sync; called now and then. After -TM_EFULL all of it waits on. */
int tm_record_flush(struct tm_record *record, struct tm_error *e);

/* Events are numbered from 1 as they come, those that wait too. The number of the last one; 0: none. */
uint64_t tm_record_last(const struct tm_record *record);
/* Calls `each` with every event whose number is above `after`, oldest first, with at most `max`, until it returns other
 * than 0, which is then returned. -TM_EINPUT: an event is damaged; all before it have been given. */
typedef int (*tm_record_each_f)(void *context, uint64_t sequence, const void *event, size_t length, struct tm_error *e);
int tm_record_each(struct tm_record *record, uint64_t after, size_t max, tm_record_each_f each, void *context,
                   struct tm_error *e);

#endif
