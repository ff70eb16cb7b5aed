#include "run/set_manifests.h"

#include "base/log.h"
#include "base/planted.h"
#include "run/coordinator.h"

#include <assert.h>

void tm_set_manifests_init(struct tm_set_manifests *m, struct tm_copy_store *store)
{
    *m = (struct tm_set_manifests){.store = store};
    tm_text_init(&m->waiting, TM_MESSAGE_BYTES_MAX);
    tm_text_init(&m->seen, TM_MESSAGE_BYTES_MAX);
}

void tm_set_manifests_deinit(struct tm_set_manifests *m)
{
    tm_text_deinit(&m->waiting);
    tm_text_deinit(&m->seen);
}

/* More than so many are forgotten, and stay where they are. */
static void drop_later(struct tm_set_manifests *m, uint64_t set)
{
    if (m->drop_count < TM_MANIFEST_DROPS_MAX) m->drops[m->drop_count++] = set;
}

static void drop_all(struct tm_set_manifests *m)
{
    assert(m->waiting_set == 0 && m->drop_count <= TM_MANIFEST_DROPS_MAX);
    size_t count = m->drop_count;
    m->drop_count = 0;
    for (size_t i = 0; i < count; i++)
        if (m->store->drop(m->store, m->drops[i], NULL) != 0) drop_later(m, m->drops[i]);
}

/* ---- what nobody names ---- */

static void know(struct tm_set_manifests *m, uint64_t set)
{
    for (size_t i = 0; i < m->known_count; i++)
        if (m->known[i] == set) return;
    if (m->known_count < TM_MANIFEST_SETS_MAX) m->known[m->known_count++] = set;
}

static void forget(struct tm_set_manifests *m, uint64_t set)
{
    for (size_t i = m->known_count; i-- > 0;)
        if (m->known[i] == set) m->known[i] = m->known[--m->known_count];
}

/* A set may be whole and have no manifest: one was stored for a newer set first. With so many that not all are known,
 * nothing goes. */
static void sweep(struct tm_set_manifests *m)
{
    assert(m->waiting_set == 0);
    if (m->swept_below == 0 || m->known_count == TM_MANIFEST_SETS_MAX) return;
    if (m->store->sweep(m->store, m->swept_below, m->known, m->known_count, NULL) == 0) m->swept_below = 0;
}

static void named(struct tm_set_manifests *m, uint64_t set)
{
    m->waiting_set = 0;
    tm_text_clear(&m->waiting);
    if (set > m->swept_below) m->swept_below = set;
}

/* Every manifest is there: what waited for that goes. */
static void tidy(struct tm_set_manifests *m)
{
    drop_all(m);
    sweep(m);
}

static int put(struct tm_set_manifests *m, uint64_t set, const void *data, size_t length, struct tm_error *e)
{
    struct tm_error own;
    assert(set > 0 && length > 0);
    if (m->store == NULL) return 0;
    know(m, set);
    int rc = m->store->seal(m->store, set, data, length, &own);
    if (rc == 0) { /* one before it that still waits is of no use now */
        named(m, set);
        return 0;
    }
    if (rc == -(int)TM_EINPUT) { /* the store is another coordinator's by now */
        if (e != NULL) *e = own;
        return rc;
    }
    tm_log(TM_LOG_WARN, "the manifest of a copy set could not be stored, retrying: %s", own.text);
    m->waiting_set = set;
    tm_text_clear(&m->waiting);
    tm_text_append(&m->waiting, data, length);
    return tm_text_status(&m->waiting, e);
}

int tm_set_manifests_put(struct tm_set_manifests *m, uint64_t set, const void *data, size_t length, struct tm_error *e)
{
    int rc = put(m, set, data, length, e);
    if (rc == 0 && m->store != NULL && m->waiting_set == 0) tidy(m);
    return rc;
}

void tm_set_manifests_drop(struct tm_set_manifests *m, uint64_t set)
{
    assert(set > 0);
    if (m->store == NULL) return;
    forget(m, set);
    if (set == m->waiting_set) { /* it was given up, so it is not the newest */
        m->waiting_set = 0;
        tm_text_clear(&m->waiting);
    }
    drop_later(m, set);
    if (m->waiting_set == 0) drop_all(m);
}

bool tm_set_manifests_retry(struct tm_set_manifests *m)
{
    if (m->store == NULL || TM_PLANTED(manifest_untried)) return true;
    if (m->waiting_set != 0) {
        if (m->store->seal(m->store, m->waiting_set, m->waiting.data, m->waiting.length, NULL) != 0) return false;
        named(m, m->waiting_set);
    }
    tidy(m);
    return true;
}

/* ---- a coordinator starts ---- */

int tm_set_manifests_saw(struct tm_set_manifests *m, const Tmw__RecordEvent *event, struct tm_error *e)
{
    const Tmw__CopySet *set = event->body_case == TMW__RECORD_EVENT__BODY_SET_WHOLE ? event->set_whole : NULL;
    bool in_files = false;
    for (size_t i = 0; set != NULL && i < set->n_parts; i++)
        in_files = in_files || set->parts[i]->holder == 0;
    if (in_files) {
        tm_text_clear(&m->seen);
        tm_record_event_pack(event, &m->seen);
        m->seen_set = set->set;
        know(m, set->set);
    }
    if (event->body_case == TMW__RECORD_EVENT__BODY_SET_BAD) {
        if (event->set_bad == m->seen_set) m->seen_set = 0;
        forget(m, event->set_bad);
    }
    return tm_text_status(&m->seen, e);
}

int tm_set_manifests_mend(struct tm_set_manifests *m, struct tm_error *e)
{
    int rc = 0;
    if (m->seen_set != 0 && !TM_PLANTED(manifest_unmended))
        rc = put(m, m->seen_set, m->seen.data, m->seen.length, e); /* the loop waits for nothing more; see retry */
    m->seen_set = 0;
    tm_text_clear(&m->seen);
    return rc;
}

struct loading {
    struct tm_coordinator *coordinator;
};

static int load_manifest(void *context, const struct tm_sealed_set *set, struct tm_error *e)
{
    const struct loading *loading = context;
    struct tm_arena arena;
    struct tm_error own = {.text = ""};
    Tmw__RecordEvent *event = NULL;
    tm_arena_init(&arena, 64 << 20);
    int rc = tm_record_event_unpack(set->manifest, set->length, &arena, &event, &own);
    if (rc == 0) rc = tm_coordinator__load_manifest(loading->coordinator, event, &own);
    tm_arena_deinit(&arena);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (rc != 0) tm_log(TM_LOG_WARN, "skipping %s: %s", set->where, own.text);
    return 0;
}

int tm_set_manifests_load(struct tm_set_manifests *m, struct tm_coordinator *coordinator, struct tm_error *e)
{
    struct loading loading = {.coordinator = coordinator};
    if (m->store == NULL) return 0;
    int rc = m->store->list(m->store, load_manifest, &loading, e);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "the copies cannot be read, and the job cannot continue without them");
}
