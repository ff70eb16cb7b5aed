/* Carries out the faults of cloud/chaos.h on a run: kills and stops processes, cuts links, fills disks.
 *
 *   worker, agent     SIGKILL, or SIGSTOP and later SIGCONT, of one instance's; an agent's death is its instance's
 *   coordinator       SIGKILL
 *   link              of an instance, where instances have namespaces of their own; else it is passed over
 *   disk              of a worker: no file of it may grow (a limit of the process, which needs no root)
 *
 * Time counts from the first step. What has been stopped, cut or filled is mended when its time is over, and in any
 * case at the end. */
#ifndef TM_RUN_CHAOS_DRIVER_H
#define TM_RUN_CHAOS_DRIVER_H

#include "cloud/chaos.h"
#include "cloud/cloud.h"

enum { TM_CHAOS_LASTING_MAX = 64 };

struct tm_chaos_options {
    struct tm_chaos chaos;
    uint64_t faults_max; /* then it stops; 0: never */
    uint32_t workers;    /* of an instance, one after the other; 0: 1 */
    bool netns;          /* links can be cut */
};

struct tm_chaos_driver;

/* All is borrowed. */
int tm_chaos_driver__create(struct tm_env *env, const struct tm_chaos_options *options, struct tm_cloud *cloud,
                            const char *dir, struct tm_chaos_driver **out, struct tm_error *e);
void tm_chaos_driver__destroy(struct tm_chaos_driver *driver); /* NULL is allowed; mends all */

/* Does what is due. `coordinator` is its pid, 0: none runs now. */
void tm_chaos_driver__step(struct tm_chaos_driver *driver, int coordinator);
/* Until the next is due. */
int64_t tm_chaos_driver__wait_ms(const struct tm_chaos_driver *driver);
uint64_t tm_chaos_driver__count(const struct tm_chaos_driver *driver); /* carried out so far */
/* One that was carried out and not told yet, in words ("kill-worker of instance 3"); false: none. */
bool tm_chaos_driver__said(struct tm_chaos_driver *driver, char *out, size_t size);

#endif
