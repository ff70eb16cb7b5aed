#include "run/set_manifests.h"

#include "base/log.h"
#include "base/planted.h"
#include "run/coordinator.h"
#include "store/copy_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096, ABOVE_NEWEST = 4096, BELOW_NEWEST = 8192 };

void tm_set_manifests_init(struct tm_set_manifests *m, struct tm_env *env, const char *folder, uint32_t layers)
{
    *m = (struct tm_set_manifests){.env = env, .folder = folder, .layers = layers};
    tm_text_init(&m->waiting, TM_MESSAGE_BYTES_MAX);
    tm_text_init(&m->seen, TM_MESSAGE_BYTES_MAX);
}

void tm_set_manifests_deinit(struct tm_set_manifests *m)
{
    tm_text_deinit(&m->waiting);
    tm_text_deinit(&m->seen);
}

static void manifest_path(const struct tm_set_manifests *m, uint64_t set, char *out)
{
    (void)snprintf(out, PATH_BYTES, "%s/set-%" PRIu64 ".manifest", m->folder, set);
}

/* The manifest first: what it names is whole before anything else forgets it. */
static void remove_set(const struct tm_set_manifests *m, uint64_t set)
{
    char path[PATH_BYTES];
    manifest_path(m, set, path);
    (void)m->env->file_remove(m->env, path, NULL);
    for (uint32_t l = 0; l < m->layers; l++) {
        tm_copy_file_path(m->folder, set, l, path, sizeof path);
        (void)m->env->file_remove(m->env, path, NULL);
    }
    (void)snprintf(path, sizeof path, "%s/set-%" PRIu64, m->folder, set);
    (void)m->env->file_remove(m->env, path, NULL);
}

static int write_it(const struct tm_set_manifests *m, uint64_t set, const void *data, size_t length, struct tm_error *e)
{
    char path[PATH_BYTES];
    char number[32];
    manifest_path(m, set, path);
    int rc = m->env->file_write_private(m->env, path, data, length, e);
    (void)snprintf(number, sizeof number, "%" PRIu64 "\n", set);
    (void)snprintf(path, sizeof path, "%s/newest", m->folder);
    return rc != 0 ? rc : m->env->file_write_private(m->env, path, number, strlen(number), e);
}

static void all_there(struct tm_set_manifests *m)
{
    m->waiting_set = 0;
    tm_text_clear(&m->waiting);
    while (m->drop_count > 0)
        remove_set(m, m->drops[--m->drop_count]);
}

int tm_set_manifests_put(struct tm_set_manifests *m, uint64_t set, const void *data, size_t length, struct tm_error *e)
{
    struct tm_error own;
    if (m->folder == NULL) return 0;
    if (write_it(m, set, data, length, &own) == 0) { /* one before it that still waits is of no use any more */
        all_there(m);
        return 0;
    }
    tm_log(TM_LOG_WARN, "the manifest of a copy set is not stored, and is tried again: %s", own.text);
    m->waiting_set = set;
    tm_text_clear(&m->waiting);
    tm_text_append(&m->waiting, data, length);
    return tm_text_status(&m->waiting, e);
}

void tm_set_manifests_drop(struct tm_set_manifests *m, uint64_t set)
{
    if (m->folder == NULL) return;
    if (set == m->waiting_set) { /* it was given up, so it is not the newest */
        m->waiting_set = 0;
        tm_text_clear(&m->waiting);
    }
    if (m->waiting_set == 0)
        remove_set(m, set);
    else if (m->drop_count < TM_MANIFEST_DROPS_MAX)
        m->drops[m->drop_count++] = set;
}

bool tm_set_manifests_retry(struct tm_set_manifests *m)
{
    if (m->waiting_set == 0 || TM_PLANTED(manifest_untried)) return true;
    if (write_it(m, m->waiting_set, m->waiting.data, m->waiting.length, NULL) != 0) return false;
    all_there(m);
    return true;
}

/* A folder that cannot be read is not one without sets. */
static bool is_unreadable(int rc)
{
    return rc != 0 && rc != -(int)TM_ENOTFOUND && rc != -(int)TM_ELIMIT;
}

static int folder_reads(struct tm_set_manifests *m, struct tm_error *e)
{
    char path[PATH_BYTES];
    struct tm_text text;
    (void)snprintf(path, sizeof path, "%s/newest", m->folder);
    tm_text_init(&text, TM_MESSAGE_BYTES_MAX);
    int rc = m->env->file_read(m->env, path, &text, e);
    tm_text_deinit(&text);
    return is_unreadable(rc) ? tm_error_wrap(e, rc, "the copies cannot be read, and nothing is done without them") : 0;
}

int tm_set_manifests_each(struct tm_set_manifests *m, tm_manifest_f take, void *context, struct tm_error *e)
{
    char path[PATH_BYTES];
    uint64_t newest = 0;
    if (m->folder == NULL) return 0;
    /* A manifest may be there that `newest` does not name yet; without `newest`, it is near the beginning. */
    int rc = folder_reads(m, e);
    if (rc != 0) return rc;
    (void)tm_copy_newest_set(m->env, m->folder, &newest, NULL);
    for (uint64_t set = newest + ABOVE_NEWEST; set > 0 && set + BELOW_NEWEST > newest; set--) {
        manifest_path(m, set, path);
        if (!m->env->file_exists(m->env, path)) continue;
        rc = take(context, path, e);
        if (rc != 0) return rc;
    }
    return 0;
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
    }
    if (event->body_case == TMW__RECORD_EVENT__BODY_SET_BAD && event->set_bad == m->seen_set) m->seen_set = 0;
    return tm_text_status(&m->seen, e);
}

int tm_set_manifests_mend(struct tm_set_manifests *m, struct tm_error *e)
{
    int rc = 0;
    if (m->seen_set != 0 && !TM_PLANTED(manifest_unmended))
        rc = tm_set_manifests_put(m, m->seen_set, m->seen.data, m->seen.length, e);
    m->seen_set = 0;
    tm_text_clear(&m->seen);
    return rc;
}

struct loading {
    struct tm_env *env;
    struct tm_coordinator *coordinator;
};

static int load_manifest(void *context, const char *path, struct tm_error *e)
{
    const struct loading *loading = context;
    struct tm_text text;
    struct tm_arena arena;
    struct tm_error own = {.text = ""};
    Tmw__RecordEvent *event = NULL;
    tm_text_init(&text, TM_MESSAGE_BYTES_MAX);
    tm_arena_init(&arena, 64 << 20);
    int rc = loading->env->file_read(loading->env, path, &text, &own);
    bool fatal = is_unreadable(rc);
    if (rc == 0) rc = tm_record_event_unpack(text.data, text.length, &arena, &event, &own);
    if (rc == 0) rc = tm_coordinator_load_manifest(loading->coordinator, event, &own);
    tm_arena_deinit(&arena);
    tm_text_deinit(&text);
    if (fatal || rc == -(int)TM_ENOMEM) {
        if (e != NULL) *e = own;
        return rc;
    }
    if (rc != 0) tm_log(TM_LOG_WARN, "%s is passed over: %s", path, own.text);
    return 0;
}

int tm_set_manifests_load(struct tm_set_manifests *m, struct tm_coordinator *coordinator, struct tm_error *e)
{
    struct loading loading = {.env = m->env, .coordinator = coordinator};
    return tm_set_manifests_each(m, load_manifest, &loading, e);
}
