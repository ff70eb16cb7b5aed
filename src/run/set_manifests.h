/* Manifests of copy sets, in the store beside their parts: a coordinator without a record continues from them, and they
 * name the newest set for readers of the weights (store/copy_store.h).
 *
 * A manifest that cannot be stored now is stored later, and until it is there no older set goes: a lost record must
 * find one that is whole. A set that cannot be dropped now is dropped later. With each manifest that is stored,
 * whatever older sets left in the store that nobody names or knows goes, too: what was under way when a coordinator
 * died, and parts that came late. Functions wait for the store: see manifest_keeper.h. */
#ifndef TM_RUN_SET_MANIFESTS_H
#define TM_RUN_SET_MANIFESTS_H

#include "base/text.h"
#include "store/copy_store.h"
#include "wire/message.h"

struct tm_coordinator;

enum { TM_MANIFEST_DROPS_MAX = 64, TM_MANIFEST_SETS_MAX = 256 };

struct tm_set_manifests {
    struct tm_copy_store *store; /* borrowed; NULL: copies go to no store, and nothing is done */
    uint64_t waiting_set;        /* whose manifest is not there yet; 0: none */
    struct tm_text waiting;
    uint64_t drops[TM_MANIFEST_DROPS_MAX]; /* sets that go once it is */
    size_t drop_count;
    uint64_t known[TM_MANIFEST_SETS_MAX]; /* sets that are whole, whether or not their manifests are there */
    size_t known_count;
    uint64_t swept_below; /* unsealed sets with lower numbers are still to go; 0: none */
    uint64_t seen_set;    /* the newest in the store that the record names; 0: none */
    struct tm_text seen;
};

void tm_set_manifests_init(struct tm_set_manifests *manifests, struct tm_copy_store *store);
void tm_set_manifests_deinit(struct tm_set_manifests *manifests);

/* The set is whole, and newer than all before it. Copies the data. -TM_ENOMEM: it is not stored, and nobody will try
 * again; the program has to end, and the next one mends it. -TM_EINPUT: another coordinator has taken the store over,
 * and this one has to end. */
int tm_set_manifests_put(struct tm_set_manifests *manifests, uint64_t set, const void *data, size_t length,
                         struct tm_error *e);
/* The set may go. */
void tm_set_manifests_drop(struct tm_set_manifests *manifests, uint64_t set);
/* Now and then: what could not be done before. Returns whether every manifest is there. */
bool tm_set_manifests_retry(struct tm_set_manifests *manifests);

/* A coordinator starts: every event of the record, oldest first; ... */
int tm_set_manifests_saw(struct tm_set_manifests *manifests, const Tmw__RecordEvent *event, struct tm_error *e);
/* ... after the last, the newest set's manifest is put again: the one before us may have died between the record's word
 * of a whole set and the manifest beside its parts. */
int tm_set_manifests_mend(struct tm_set_manifests *manifests, struct tm_error *e);
/* ... and where the record says nothing, the coordinator is given all manifests that there are. A damaged one is passed
 * over, with a warning. Where the store cannot be read, nobody knows which sets there are, and that is an error. */
int tm_set_manifests_load(struct tm_set_manifests *manifests, struct tm_coordinator *coordinator, struct tm_error *e);

#endif
