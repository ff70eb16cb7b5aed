/* Manifests of copy sets, beside their files: what a coordinator without a record goes on from, and what names the
 * newest set for who reads the weights. In a folder for copies:
 *
 *   job               the job's number: whose folder it is (store/copy_file.h)
 *   newest            the number of the newest whole set
 *   set-N.manifest    its event of the record
 *   set-N/layer-L.tmcopy
 *
 * A manifest that cannot be written now is written later, and until it is there no older set goes: a lost record must
 * find one that is whole. */
#ifndef TM_RUN_SET_MANIFESTS_H
#define TM_RUN_SET_MANIFESTS_H

#include "base/env.h"
#include "base/text.h"
#include "wire/message.h"

struct tm_coordinator;

enum { TM_MANIFEST_DROPS_MAX = 64 };

struct tm_set_manifests {
    struct tm_env *env;
    const char *folder; /* borrowed; NULL: no copies in files, and nothing is done */
    uint32_t layers;
    uint64_t waiting_set; /* whose manifest is not there yet; 0: none */
    struct tm_text waiting;
    uint64_t drops[TM_MANIFEST_DROPS_MAX]; /* sets that go once it is */
    size_t drop_count;
    uint64_t seen_set; /* the newest in files that the record names; 0: none */
    struct tm_text seen;
};

void tm_set_manifests_init(struct tm_set_manifests *manifests, struct tm_env *env, const char *folder, uint32_t layers);
void tm_set_manifests_deinit(struct tm_set_manifests *manifests);

/* The set is whole, and newer than all before it. Copies the data. -TM_ENOMEM: it is not written, and nobody will try
 * again; the program has to end, and the next one mends it. */
int tm_set_manifests_put(struct tm_set_manifests *manifests, uint64_t set, const void *data, size_t length,
                         struct tm_error *e);
/* The set's files may go. */
void tm_set_manifests_drop(struct tm_set_manifests *manifests, uint64_t set);
/* Now and then: what could not be written before. Returns whether all is there. */
bool tm_set_manifests_retry(struct tm_set_manifests *manifests);

/* A coordinator starts: every event of the record, oldest first; ... */
int tm_set_manifests_saw(struct tm_set_manifests *manifests, const Tmw__RecordEvent *event, struct tm_error *e);
/* ... after the last, the newest set's manifest is put again: the one before us may have died between the record's word
 * of a whole set and the manifest beside its files. */
int tm_set_manifests_mend(struct tm_set_manifests *manifests, struct tm_error *e);
/* ... and where the record says nothing, the coordinator is given all manifests that there are. A damaged one is passed
 * over, with a warning. Where the folder cannot be read, nobody knows which sets there are, and that is an error. */
int tm_set_manifests_load(struct tm_set_manifests *manifests, struct tm_coordinator *coordinator, struct tm_error *e);

/* Gives each manifest that there is, the newest first, with its path for messages. A result other than 0 of `take` ends
 * it. Sets are looked for near the one that `newest` names: their numbers grow by one for each try. A
 * folder that cannot be read is an error. */
typedef int (*tm_manifest_f)(void *context, const char *path, struct tm_error *e);
int tm_set_manifests_each(struct tm_set_manifests *manifests, tm_manifest_f take, void *context, struct tm_error *e);

#endif
