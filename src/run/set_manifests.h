/* Manifests of copy sets, beside their files: what a coordinator without a record goes on from, and what names the
 * newest set for who reads the weights. In a folder for copies:
 *
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

enum { TM_MANIFEST_DROPS_MAX = 64 };

struct tm_set_manifests {
    struct tm_env *env;
    const char *folder; /* borrowed; NULL: no copies in files, and nothing is done */
    uint32_t layers;
    uint64_t waiting_set; /* whose manifest is not there yet; 0: none */
    struct tm_text waiting;
    uint64_t drops[TM_MANIFEST_DROPS_MAX]; /* sets that go once it is */
    size_t drop_count;
};

void tm_set_manifests_init(struct tm_set_manifests *manifests, struct tm_env *env, const char *folder, uint32_t layers);
void tm_set_manifests_deinit(struct tm_set_manifests *manifests);

/* The set is whole, and newer than all before it. Copies the data. */
void tm_set_manifests_put(struct tm_set_manifests *manifests, uint64_t set, const void *data, size_t length);
/* The set's files may go. */
void tm_set_manifests_drop(struct tm_set_manifests *manifests, uint64_t set);
/* Now and then: what could not be written before. Returns whether all is there. */
bool tm_set_manifests_retry(struct tm_set_manifests *manifests);

/* Gives each manifest that there is, the newest first, with its path for messages. A result other than 0 of `take` ends
 * it. Sets are looked for near the one that `newest` names: their numbers grow by one for each try. */
typedef int (*tm_manifest_f)(void *context, const char *path, struct tm_error *e);
int tm_set_manifests_each(struct tm_set_manifests *manifests, tm_manifest_f take, void *context, struct tm_error *e);

#endif
