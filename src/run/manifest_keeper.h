/* The coordinator's access to the store of copies: a thread that carries out the functions of set_manifests.h in the
 * order in which they were called, because a store may be slow and the coordinator's loop must go on. */
#ifndef TM_RUN_MANIFEST_KEEPER_H
#define TM_RUN_MANIFEST_KEEPER_H

#include "run/set_manifests.h"

enum { TM_KEEPER_ORDERS_MAX = 4096 };

struct tm_manifest_keeper;

/* Whether the store is the job's by now. */
enum tm_claim { TM_CLAIMED, TM_CLAIM_LATER, TM_CLAIM_LATER_TAKE_OVER };
/* The manifests are borrowed, and the keeper's alone until it is destroyed. A claim that is due is tried with each
 * retry. */
int tm_manifest_keeper__create(struct tm_set_manifests *manifests, enum tm_claim claim, struct tm_manifest_keeper **out,
                               struct tm_error *e);
/* What was asked for is tried once more, then it ends. NULL is allowed. */
void tm_manifest_keeper__destroy(struct tm_manifest_keeper *keeper);

/* As those of set_manifests.h, without waiting. -TM_ELIMIT: too much waits for a store that does not answer. */
int tm_manifest_keeper__put(struct tm_manifest_keeper *keeper, uint64_t set, const void *data, size_t length,
                            struct tm_error *e);
int tm_manifest_keeper__drop(struct tm_manifest_keeper *keeper, uint64_t set, struct tm_error *e);
void tm_manifest_keeper__retry(struct tm_manifest_keeper *keeper);

/* Is there a manifest that is not stored yet? */
bool tm_manifest_keeper__waits(struct tm_manifest_keeper *keeper);
/* Why the program has to end: no memory, or the store is another job's. 0: it need not. */
int tm_manifest_keeper__status(struct tm_manifest_keeper *keeper, struct tm_error *e);

#endif
