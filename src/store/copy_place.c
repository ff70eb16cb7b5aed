/* Which store a place names. */
#include "store/objects.h"
#include "store/store_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

int tm_copy_store_check_place(const char *place, struct tm_error *e)
{
    char bucket[TM_BUCKET_MAX];
    char prefix[TM_PREFIX_MAX];
    if (tm_objects__is_place(place)) return tm_objects_place(place, bucket, prefix, e);
    if (tm_copy_office__is_place(place)) return tm_copy_office__check(place, e);
    if (strstr(place, "://") != NULL) /* r2://BUCKET/PATH is not a folder named "r2:" */
        return tm_error_set(
            e, TM_EUSAGE,
            "%.200s: not supported; give a folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX",
            place);
    if (place[0] == '\0' || strlen(place) >= TM_COPY_PLACE_MAX)
        return tm_error_set(e, TM_EUSAGE, "the name of the folder for copies must have 1 to %d bytes",
                            TM_COPY_PLACE_MAX - 1);
    return 0;
}

int tm_copy_store_place(struct tm_env *env, const char *place, char out[TM_COPY_PLACE_MAX], struct tm_error *e)
{
    struct tm_text text;
    int rc = tm_copy_store_check_place(place, e);
    if (rc != 0) return rc;
    (void)snprintf(out, TM_COPY_PLACE_MAX, "%s", place);
    if (tm_objects__is_place(place) || tm_copy_office__is_place(place)) return 0;
    tm_text_init(&text, TM_COPY_PLACE_MAX - 1);
    int found = env->file_read(env, place, &text, NULL); /* fails for a folder */
    if (found == 0 && tm_objects__is_place(tm_text_string(&text))) {
        (void)snprintf(out, TM_COPY_PLACE_MAX, "%.*s", (int)strcspn(text.data, "\r\n"), text.data);
        rc = tm_copy_store_check_place(out, e);
        if (rc != 0) rc = tm_error_wrap(e, rc, "%s", place);
    }
    tm_text_deinit(&text);
    return found == -(int)TM_ENOMEM ? tm_error_nomem(e) : rc;
}

int tm_copy_store_open(struct tm_env *env, const char *place, uint64_t job, struct tm_copy_store **out,
                       struct tm_error *e)
{
    assert(env != NULL && place != NULL);
    char found[TM_COPY_PLACE_MAX];
    int rc = tm_copy_store_place(env, place, found, e);
    if (rc != 0) return rc;
    if (tm_copy_office__is_place(found)) return tm_copy_office__open(env, found, out, e);
    return tm_objects__is_place(found) ? tm_copy_bucket__open(env, found, job, out, e)
                                       : tm_copy_folder__open(env, found, job, out, e);
}

int tm_copy_store_newest(struct tm_env *env, const char *place, uint64_t *out_set, struct tm_error *e)
{
    struct tm_copy_store *store = NULL;
    int rc = tm_copy_store_open(env, place, 0, &store, e);
    if (rc != 0) return rc;
    rc = store->newest(store, out_set, e);
    store->close(store);
    return rc;
}
