#include "run/set_manifests.h"

#include "base/log.h"
#include "store/copy_file.h"
#include "wire/message.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096, ABOVE_NEWEST = 4096, BELOW_NEWEST = 8192 };

void tm_set_manifests_init(struct tm_set_manifests *m, struct tm_env *env, const char *folder, uint32_t layers)
{
    *m = (struct tm_set_manifests){.env = env, .folder = folder, .layers = layers};
    tm_text_init(&m->waiting, TM_MESSAGE_BYTES_MAX);
}

void tm_set_manifests_deinit(struct tm_set_manifests *m)
{
    tm_text_deinit(&m->waiting);
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
    int rc = m->env->file_write(m->env, path, data, length, e);
    (void)snprintf(number, sizeof number, "%" PRIu64 "\n", set);
    (void)snprintf(path, sizeof path, "%s/newest", m->folder);
    return rc != 0 ? rc : m->env->file_write(m->env, path, number, strlen(number), e);
}

static void all_there(struct tm_set_manifests *m)
{
    m->waiting_set = 0;
    tm_text_clear(&m->waiting);
    while (m->drop_count > 0)
        remove_set(m, m->drops[--m->drop_count]);
}

void tm_set_manifests_put(struct tm_set_manifests *m, uint64_t set, const void *data, size_t length)
{
    struct tm_error e;
    if (m->folder == NULL) return;
    if (write_it(m, set, data, length, &e) == 0) { /* one before it that still waits is of no use any more */
        all_there(m);
        return;
    }
    tm_log(TM_LOG_WARN, "the manifest of a copy set is not stored, and is tried again: %s", e.text);
    m->waiting_set = set;
    tm_text_clear(&m->waiting);
    tm_text_append(&m->waiting, data, length); /* without memory for it, the next set's is the next chance */
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
    if (m->waiting_set == 0) return true;
    if (tm_text_status(&m->waiting, NULL) != 0) return false;
    if (write_it(m, m->waiting_set, m->waiting.data, m->waiting.length, NULL) != 0) return false;
    all_there(m);
    return true;
}

int tm_set_manifests_each(struct tm_set_manifests *m, tm_manifest_f take, void *context, struct tm_error *e)
{
    char path[PATH_BYTES];
    uint64_t newest = 0;
    if (m->folder == NULL) return 0;
    /* A manifest may be there that `newest` does not name yet; without `newest`, it is near the beginning. */
    (void)tm_copy_newest_set(m->env, m->folder, &newest, NULL);
    for (uint64_t set = newest + ABOVE_NEWEST; set > 0 && set + BELOW_NEWEST > newest; set--) {
        manifest_path(m, set, path);
        if (!m->env->file_exists(m->env, path)) continue;
        int rc = take(context, path, e);
        if (rc != 0) return rc;
    }
    return 0;
}
