/* What somebody without credentials needs to move one object between its memory and a bucket: URLs that are good for
 * one thing and a while. Who has the credentials makes them, and ends an upload of several parts (`grant` and `granted`
 * of objects.h and copy_store.h); who has the bytes uses them. URLs are as good as credentials for what they are for:
 * they are never logged or stored. */
#ifndef TM_STORE_GRANT_H
#define TM_STORE_GRANT_H

#include "base/text.h"
#include "store/transfer.h"

enum { TM_GRANT_URLS_MAX = 1 << 20, TM_GRANT_UPLOAD_MAX = 1024, TM_GRANT_PARTS_MAX = 128, TM_GRANT_S = 3600 };

struct tm_grant {
    struct tm_text urls;              /* one a line: one for each part, in order; of a download one for all of it */
    char upload[TM_GRANT_UPLOAD_MAX]; /* by which it is ended; "": the one part is all, and nothing is to be ended */
    size_t part_bytes;                /* of each part but the last */
};

void tm_grant_init(struct tm_grant *grant);
void tm_grant_deinit(struct tm_grant *grant);

/* Moves the bytes, in several streams, straight from and to this memory. `tries`: of each request. Up: appends what the
 * service said of each part, one a line. Down: -TM_EINPUT: the object has not so many bytes. -TM_EPEER: it is not
 * reached from here, or refuses what was granted; -TM_EIO: it cannot do it now; -TM_ENOMEM. */
int tm_grant__up(const struct tm_grant *grant, struct tm_webs *webs, int tries, const void *data, size_t length,
                 struct tm_text *out_tags, struct tm_error *e);
int tm_grant__down(const struct tm_grant *grant, struct tm_webs *webs, int tries, void *into, size_t length,
                   struct tm_error *e);

#endif
