/* Objects of a bucket of Google Cloud Storage, under a prefix (objects.h), by its JSON API. An object's generation is
 * what conditions are about (ifGenerationMatch), so it is what callers get as its ETag.
 *
 * Large objects go up as parts, objects of their own named "NAME.part-UPLOAD-NUMBER", which are composed at once and
 * dropped: what is there under the name is whole or not there. Parts that a crash left are no objects to whoever lists,
 * and go with abort_uploads. */
#include "base/alloc.h"
#include "base/doc.h"
#include "base/jsonout.h"
#include "store/objects.h"
#include "store/transfer.h"
#include "web/gcp.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART ".part-"

enum {
    SMALL_MS = 60000,
    TRIES = 8,
    PAGES_MAX = 100000,
    COMPOSED_MAX = 32, /* of one call */
    PATH_BYTES = 3 * TM_KEY_MAX + TM_BUCKET_MAX + 16,
    MORE_MAX = 2048
};

struct gs {
    struct tm_env *env;
    struct tm_gcp *gcp;
    char bucket[TM_BUCKET_MAX];
    char prefix[TM_PREFIX_MAX]; /* without slashes at its ends; "": none */
    struct tm_webs webs;
};

static void make_key(const struct gs *gs, const char *name, char out[TM_KEY_MAX])
{
    (void)snprintf(out, TM_KEY_MAX, "%s%s%.500s", gs->prefix, gs->prefix[0] != '\0' ? "/" : "", name);
}

/* "/b/BUCKET/o/KEY", with slashes of the key encoded, too. */
static int make_path(const struct gs *gs, const char *name, struct tm_text *out, struct tm_error *e)
{
    char key[TM_KEY_MAX];
    make_key(gs, name, key);
    tm_text_init(out, PATH_BYTES);
    tm_text_printf(out, "/b/%s/o/", gs->bucket);
    tm_percent_encode(key, false, out);
    return tm_text_status(out, e);
}

static struct tm_gcp_request make_request(const struct gs *gs, const char *method, const char *path)
{
    return (struct tm_gcp_request){.gcp = gs->gcp,
                                   .service = TM_GCP_STORAGE,
                                   .method = method,
                                   .path = path,
                                   .deadline_ms = SMALL_MS,
                                   .tries_max = TRIES};
}

static void add_query(struct tm_gcp_request *request, const char *name, const char *value)
{
    request->query[request->query_count++] = (struct tm_web_pair){name, value};
}

/* ---- what it says ---- */

static int refused(const struct gs *gs, const char *path, const struct tm_web_answer *answer, struct tm_error *e)
{
    struct tm_gcp_refusal why;
    int rc = tm_gcp_refusal(answer, &why, e);
    if (rc != 0) return rc;
    if (answer->status == 404 && strstr(why.message, "bucket") != NULL)
        return tm_error_set(e, TM_EIO, "there is no bucket %s: create it, or correct its name", gs->bucket);
    if (answer->status == 404) return tm_error_set(e, TM_ENOTFOUND, "gs:%s: not found", path);
    if (answer->status == 412) return tm_error_set(e, TM_EEXISTS, "gs:%s: has changed", path);
    if (answer->status == 416) return tm_error_set(e, TM_EINPUT, "gs:%s: shorter than expected", path);
    const char *fix = answer->status != 401 && answer->status != 403
                          ? ""
                          : "; the account needs the role Storage Object User on the bucket";
    return tm_error_set(e, TM_EIO, "gs:%s: refused with %d %s: %.200s%s", path, answer->status, why.code, why.message,
                        fix);
}

/* What became of a request: `rc` and the answer, as a result. Takes the answer's memory where it is no success. */
static int judge(const struct gs *gs, int rc, const char *path, struct tm_web_answer *answer, struct tm_error *e)
{
    if (rc == -(int)TM_ENOMEM) return rc;
    if (rc != 0) {
        (void)tm_error_wrap(e, rc, "gs://%s", gs->bucket);
        if (e != NULL) e->code = TM_EIO; /* temporary, as far as the store's callers can tell */
        return -(int)TM_EIO;
    }
    if (answer->status >= 200 && answer->status < 300) return 0;
    rc = refused(gs, path, answer, e);
    tm_web_answer_deinit(answer);
    return rc;
}

/* Asks and judges; 0: the answer is the caller's. */
static int ask(struct gs *gs, struct tm_gcp_request *request, struct tm_web_answer *out, struct tm_error *e)
{
    struct tm_web *web = NULL;
    int rc = tm_webs__take(&gs->webs, &web, e);
    if (rc != 0) return rc;
    rc = judge(gs, tm_gcp_ask(web, request, out, e), request->path, out, e);
    tm_webs__give(&gs->webs, web);
    return rc;
}

/* The answer's object, which was made: its generation. Takes the answer's memory. */
static int take_generation(struct tm_web_answer *answer, char *out, struct tm_error *e)
{
    json_t *root = NULL;
    int rc = out == NULL ? 0 : tm_json_load("object", tm_text_string(&answer->body), answer->body.length, &root, e);
    tm_web_answer_deinit(answer);
    if (out == NULL || rc == -(int)TM_ENOMEM) return rc;
    const char *found = rc == 0 ? json_string_value(json_object_get(root, "generation")) : NULL;
    bool good = found != NULL && found[0] != '\0' && strspn(found, "0123456789") == strlen(found) && strlen(found) < 32;
    if (good) (void)snprintf(out, TM_WEB_WORD_MAX, "%s", found);
    json_decref(root);
    return good ? 0 : tm_error_set(e, TM_EIO, "the answer names no generation of the object");
}

/* ---- small objects ---- */

struct writing {
    const char *name;
    const void *data;
    size_t length;
    const char *if_match; /* as of `put` */
};

static int write_object(struct gs *gs, const struct writing *w, int64_t deadline_ms, char *out_etag, struct tm_error *e)
{
    char key[TM_KEY_MAX];
    char path[TM_BUCKET_MAX + 8];
    struct tm_web_answer answer;
    make_key(gs, w->name, key);
    (void)snprintf(path, sizeof path, "/b/%s/o", gs->bucket);
    struct tm_gcp_request request = make_request(gs, "POST", path);
    request.service = TM_GCP_UPLOAD;
    request.body = w->data;
    request.length = w->length;
    request.type = "application/octet-stream";
    request.deadline_ms = deadline_ms;
    if (deadline_ms > SMALL_MS) request.silence_ms = TM_TRANSFER_SILENCE_MS;
    add_query(&request, "uploadType", "media");
    add_query(&request, "name", key);
    if (w->if_match != NULL) add_query(&request, "ifGenerationMatch", w->if_match[0] == '\0' ? "0" : w->if_match);
    int rc = ask(gs, &request, &answer, e);
    return rc == 0 ? take_generation(&answer, out_etag, e) : rc;
}

static int gs_put(void *self, const char *name, const void *data, size_t length, const char *if_match,
                  char out_etag[TM_WEB_WORD_MAX], struct tm_error *e)
{
    const struct writing w = {name, length > 0 ? data : "", length, if_match};
    int rc = write_object(self, &w, SMALL_MS, out_etag, e);
    return if_match != NULL && if_match[0] != '\0' && rc == -(int)TM_ENOTFOUND ? -(int)TM_EEXISTS : rc;
}

static int gs_get(void *self, const char *name, struct tm_text *out, char out_etag[TM_WEB_WORD_MAX], struct tm_error *e)
{
    struct gs *gs = self;
    struct tm_text path;
    struct tm_web_answer answer;
    int rc = make_path(gs, name, &path, e);
    if (rc == 0) {
        struct tm_gcp_request request = make_request(gs, "GET", path.data);
        add_query(&request, "alt", "media");
        rc = ask(gs, &request, &answer, e);
    }
    tm_text_deinit(&path);
    if (rc != 0) return rc;
    tm_text_append(out, tm_text_string(&answer.body), answer.body.length);
    if (out_etag != NULL) (void)snprintf(out_etag, TM_WEB_WORD_MAX, "%s", answer.generation);
    tm_web_answer_deinit(&answer);
    return tm_text_status(out, e);
}

static int gs_remove(void *self, const char *name, struct tm_error *e)
{
    struct gs *gs = self;
    struct tm_text path;
    struct tm_web_answer answer;
    int rc = make_path(gs, name, &path, e);
    if (rc == 0) {
        struct tm_gcp_request request = make_request(gs, "DELETE", path.data);
        rc = ask(gs, &request, &answer, e);
    }
    if (rc == 0) tm_web_answer_deinit(&answer);
    tm_text_deinit(&path);
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

/* ---- lists ---- */

/* Which objects a list is to name. */
struct wanted {
    const char *from;
    bool flat;
    bool parts; /* those of uploads, and only those */
    tm_name_f take;
    void *context;
};

static bool is_part(const char *name)
{
    const char *found = strstr(name, PART);
    return found != NULL && strlen(found) == sizeof PART - 1 + 16 + 1 + 8 && strchr(found, '/') == NULL;
}

static int take_page(struct gs *gs, const struct wanted *wanted, const json_t *root, struct tm_error *e)
{
    const json_t *items = json_object_get(root, "items");
    size_t skip = strlen(gs->prefix) + (gs->prefix[0] != '\0');
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(items); i++) {
        const char *key = json_string_value(json_object_get(json_array_get(items, i), "name"));
        if (key == NULL || strlen(key) <= skip || is_part(key) != wanted->parts) continue;
        rc = wanted->take(wanted->context, key + skip, e);
    }
    return rc;
}

/* A page; `more` is where the next begins, "" after the last. */
static int one_page(struct gs *gs, const struct wanted *wanted, char more[MORE_MAX], struct tm_error *e)
{
    struct tm_web_answer answer;
    json_t *root = NULL;
    char key[TM_KEY_MAX];
    char path[TM_BUCKET_MAX + 8];
    make_key(gs, wanted->from, key);
    (void)snprintf(path, sizeof path, "/b/%s/o", gs->bucket);
    struct tm_gcp_request request = make_request(gs, "GET", path);
    add_query(&request, "prefix", key);
    add_query(&request, "fields", "items(name),nextPageToken");
    if (wanted->flat) add_query(&request, "delimiter", "/");
    if (more[0] != '\0') add_query(&request, "pageToken", more);
    int rc = ask(gs, &request, &answer, e);
    if (rc != 0) return rc;
    rc = tm_json_load("list", tm_text_string(&answer.body), answer.body.length, &root, e);
    tm_web_answer_deinit(&answer);
    if (rc != 0 && rc != -(int)TM_ENOMEM) rc = tm_error_set(e, TM_EIO, "gs://%s: the answer is not a list", gs->bucket);
    if (rc == 0) rc = take_page(gs, wanted, root, e);
    const char *next = rc == 0 ? json_string_value(json_object_get(root, "nextPageToken")) : NULL;
    if (next != NULL && strlen(next) >= MORE_MAX)
        rc = tm_error_set(e, TM_EIO, "gs://%s: a page's token is too long", gs->bucket);
    (void)snprintf(more, MORE_MAX, "%s", rc == 0 && next != NULL ? next : "");
    json_decref(root);
    return rc;
}

static int all_pages(struct gs *gs, const struct wanted *wanted, struct tm_error *e)
{
    char more[MORE_MAX] = "";
    int rc = 0;
    for (int page = 0; rc == 0 && page < PAGES_MAX; page++) {
        rc = one_page(gs, wanted, more, e);
        if (more[0] == '\0') break;
    }
    return rc;
}

static int gs_each(void *self, const char *from, bool flat, tm_name_f take, void *context, struct tm_error *e)
{
    return all_pages(self, &(struct wanted){from, flat, false, take, context}, e);
}

static int gs_abort_uploads(void *self, const char *from, struct tm_error *e)
{
    return all_pages(self, &(struct wanted){from, false, true, gs_remove, self}, e);
}

/* ---- large objects ---- */

struct moving {
    struct gs *gs;
    struct tm_web *web;
    const char *name;
    const char *path;    /* a download */
    const uint8_t *from; /* an upload; NULL: a download */
    uint8_t *into;
    uint64_t upload; /* its number */
    uint64_t total;  /* a download: of the whole object */
    struct tm_gcp_request requests[TM_TRANSFER_STREAMS];
    char words[TM_TRANSFER_STREAMS][TM_KEY_MAX]; /* of each request: its part's key, or its range */
    char upload_path[TM_BUCKET_MAX + 8];
};

static void name_part(const struct moving *m, size_t number, char out[TM_KEY_MAX])
{
    (void)snprintf(out, TM_KEY_MAX, "%.450s" PART "%016" PRIx64 "-%08" PRIx32, m->name, m->upload, (uint32_t)number);
}

static int begin_part(void *context, const struct tm_stretch *part, struct tm_web_call **out, struct tm_error *e)
{
    struct moving *m = context;
    struct tm_gcp_request *r = &m->requests[part->stream];
    char *word = m->words[part->stream];
    char name[TM_KEY_MAX];
    *r = make_request(m->gs, m->from != NULL ? "POST" : "GET", m->from != NULL ? m->upload_path : m->path);
    r->deadline_ms = TM_TRANSFER_MS;
    r->silence_ms = TM_TRANSFER_SILENCE_MS;
    r->tries_max = TM_TRANSFER_TRIES;
    if (m->from != NULL) {
        name_part(m, part->number, name);
        make_key(m->gs, name, word);
        r->service = TM_GCP_UPLOAD;
        add_query(r, "uploadType", "media");
        add_query(r, "name", word);
        r->body = m->from + part->at;
        r->length = part->length;
        r->type = "application/octet-stream";
    } else {
        (void)snprintf(word, sizeof m->words[0], "bytes=%zu-%zu", part->at, part->at + part->length - 1);
        add_query(r, "alt", "media");
        r->headers[r->header_count++] = (struct tm_web_pair){"range", word};
        r->into = m->into + part->at;
        r->room = part->length;
    }
    return tm_gcp_begin(m->web, r, out, e);
}

static int end_part(void *context, const struct tm_stretch *part, struct tm_web_call *call, struct tm_error *e)
{
    struct moving *m = context;
    struct tm_web_answer answer;
    int rc = judge(m->gs, tm_web_end(call, &answer, e), m->from != NULL ? m->upload_path : m->path, &answer, e);
    if (rc != 0) return rc;
    uint64_t total = answer.total >= 0 ? (uint64_t)answer.total : answer.received;
    if (part->number == 0) m->total = total;
    if (m->from == NULL && answer.received != part->length)
        rc = tm_error_set(e, TM_EINPUT, "%s: has %" PRIu64 " bytes, fewer than expected", m->name, total);
    tm_web_answer_deinit(&answer);
    return rc;
}

static int gs_download(void *self, const char *name, void *into, size_t length, uint64_t *out_total, struct tm_error *e)
{
    struct gs *gs = self;
    struct tm_text path;
    int rc = make_path(gs, name, &path, e);
    struct moving *m = rc == 0 ? tm_calloc(1, sizeof *m) : NULL;
    if (rc == 0 && m == NULL) rc = tm_error_nomem(e);
    if (rc == 0) {
        *m = (struct moving){.gs = gs, .name = name, .path = path.data, .into = into};
        rc = tm_webs__take(&gs->webs, &m->web, e);
    }
    if (rc == 0) {
        rc = tm_transfer__carry(
            &(struct tm_transfer){.web = m->web, .length = length, .context = m, .begin = begin_part, .end = end_part},
            0, e);
        tm_webs__give(&gs->webs, m->web);
    }
    if (rc == 0) *out_total = m->total;
    tm_free(m);
    tm_text_deinit(&path);
    return rc;
}

/* One object of some of the parts: `count` of them, `step` numbers apart. It takes the name of the first of them, or
 * that of the upload where it is the last. */
static int compose_some(struct moving *m, size_t first, size_t step, size_t count, bool last, struct tm_error *e)
{
    struct tm_text path;
    struct tm_text body;
    struct tm_web_answer answer;
    char name[TM_KEY_MAX];
    char key[TM_KEY_MAX];
    struct tm_jsonout json;
    name_part(m, first, name);
    int rc = make_path(m->gs, last ? m->name : name, &path, e);
    tm_text_puts(&path, "/compose");
    tm_text_init(&body, 1 << 20);
    tm_jsonout_init(&json, &body);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_list(&json, "sourceObjects");
    for (size_t i = 0; i < count; i++) {
        name_part(m, first + i * step, name);
        make_key(m->gs, name, key);
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "name", key);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    if (rc == 0) rc = tm_text_status(&body, e);
    if (rc == 0) rc = tm_text_status(&path, e);
    if (rc == 0) {
        struct tm_gcp_request request = make_request(m->gs, "POST", path.data);
        request.body = body.data;
        request.length = body.length;
        rc = judge(m->gs, tm_gcp_ask(m->web, &request, &answer, e), path.data, &answer, e);
        if (rc == 0) tm_web_answer_deinit(&answer);
    }
    tm_text_deinit(&body);
    tm_text_deinit(&path);
    return rc;
}

/* 32 at a time, and 32 of those, until one is left. Parts keep their numbers: after each round every `step`th holds all
 * that follows it up to the next. */
static int compose_all(struct moving *m, size_t parts, struct tm_error *e)
{
    int rc = 0;
    size_t step = 1;
    for (; rc == 0 && (parts + step - 1) / step > COMPOSED_MAX; step *= COMPOSED_MAX) {
        for (size_t first = 0; rc == 0 && first < parts; first += step * COMPOSED_MAX) {
            size_t left = (parts - first + step - 1) / step;
            rc = compose_some(m, first, step, left < COMPOSED_MAX ? left : COMPOSED_MAX, false, e);
        }
    }
    return rc == 0 ? compose_some(m, 0, step, (parts + step - 1) / step, true, e) : rc;
}

/* What of the parts stays goes with its set. */
static int join_parts(struct moving *m, size_t parts, int rc, struct tm_error *e)
{
    if (rc == 0) rc = compose_all(m, parts, e);
    for (size_t i = 0; i < parts; i++) {
        char part[TM_KEY_MAX];
        name_part(m, i, part);
        (void)gs_remove(m->gs, part, NULL);
    }
    if (rc != -(int)TM_ENOTFOUND) return rc;
    return tm_error_set(e, TM_EIO, "gs://%s/%s: the upload is gone", m->gs->bucket, m->name);
}

static int upload_parts(struct gs *gs, const char *name, const void *data, size_t length, size_t parts,
                        struct tm_error *e)
{
    struct moving *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return tm_error_nomem(e);
    *m = (struct moving){.gs = gs, .name = name, .from = data, .upload = gs->env->random_u64(gs->env)};
    (void)snprintf(m->upload_path, sizeof m->upload_path, "/b/%s/o", gs->bucket);
    int rc = tm_webs__take(&gs->webs, &m->web, e);
    if (rc == 0) {
        rc = tm_transfer__carry(
            &(struct tm_transfer){.web = m->web, .length = length, .context = m, .begin = begin_part, .end = end_part},
            parts, e);
        rc = join_parts(m, parts, rc, e);
        tm_webs__give(&gs->webs, m->web);
    }
    tm_free(m);
    return rc;
}

static int gs_upload(void *self, const char *name, const void *data, size_t length, struct tm_error *e)
{
    size_t parts = tm_transfer__upload_parts(length);
    const struct writing w = {name, length > 0 ? data : "", length, NULL};
    return parts == 1 ? write_object(self, &w, TM_TRANSFER_MS, NULL, e)
                      : upload_parts(self, name, data, length, parts, e);
}

/* ---- for somebody without credentials ---- */

/* A key of ours signs. Where Google would have to, a call for each URL, bytes had better come through us. */
static int add_url(const struct gs *gs, const char *method, const char *name, struct tm_text *out, struct tm_error *e)
{
    char key[TM_KEY_MAX];
    make_key(gs, name, key);
    const struct tm_gcp_object object = {.method = method, .bucket = gs->bucket, .name = key};
    int rc = tm_gcp_url(gs->gcp, &object, NULL, TM_GRANT_S, out, e);
    if (rc != 0 && rc != -(int)TM_ENOMEM)
        return tm_error_set(e, TM_ENONE, "gs://%s: nothing here signs URLs", gs->bucket);
    tm_text_puts(out, "\n");
    return rc == 0 ? tm_text_status(out, e) : rc;
}

static int gs_grant(void *self, const char *name, size_t length, struct tm_grant *out, struct tm_error *e)
{
    struct gs *gs = self;
    size_t parts = length > 0 ? tm_transfer__upload_parts(length) : 1;
    out->part_bytes = length;
    out->upload[0] = '\0';
    if (parts == 1) return add_url(gs, length > 0 ? "PUT" : "GET", name, &out->urls, e);
    const struct moving m = {.gs = gs, .name = name, .upload = gs->env->random_u64(gs->env)};
    int rc = 0;
    out->part_bytes = tm_transfer__part_bytes(length, TM_GRANT_PARTS_MAX);
    (void)snprintf(out->upload, sizeof out->upload, "%016" PRIx64, m.upload);
    for (size_t i = 0; rc == 0 && i * out->part_bytes < length; i++) {
        char part[TM_KEY_MAX];
        name_part(&m, i, part);
        rc = add_url(gs, "PUT", part, &out->urls, e);
    }
    return rc;
}

/* Parts of what is given up go with its set. */
static int gs_granted(void *self, const char *name, const char *upload, const char *tags, struct tm_error *e)
{
    struct gs *gs = self;
    size_t parts = 0;
    for (; (tags = strchr(tags, '\n')) != NULL; tags++)
        parts++;
    if (parts == 0) return 0;
    if (parts > TM_GRANT_PARTS_MAX) return tm_error_set(e, TM_EINPUT, "gs: too many parts");
    struct moving *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return tm_error_nomem(e);
    *m = (struct moving){.gs = gs, .name = name, .upload = strtoull(upload, NULL, 16)};
    int rc = tm_webs__take(&gs->webs, &m->web, e);
    if (rc == 0) {
        rc = join_parts(m, parts, 0, e);
        tm_webs__give(&gs->webs, m->web);
    }
    tm_free(m);
    return rc;
}

/* ---- the bucket ---- */

static void gs_close(void *self)
{
    struct gs *gs = self;
    tm_webs__deinit(&gs->webs);
    tm_gcp_destroy(gs->gcp);
    tm_free(gs);
}

int tm_gs__open(struct tm_env *env, const char *place, struct tm_objects *out, struct tm_error *e)
{
    struct gs *gs = tm_calloc(1, sizeof *gs);
    if (gs == NULL) return tm_error_nomem(e);
    gs->env = env;
    tm_webs__init(&gs->webs, env);
    int rc = tm_objects_place(place, gs->bucket, gs->prefix, e);
    if (rc == 0) rc = tm_gcp_create(env, &gs->gcp, e);
    if (rc != 0) {
        gs_close(gs);
        return rc;
    }
    *out = (struct tm_objects){.self = gs,
                               .put = gs_put,
                               .get = gs_get,
                               .remove = gs_remove,
                               .each = gs_each,
                               .abort_uploads = gs_abort_uploads,
                               .aborts_alone = true,
                               .upload = gs_upload,
                               .download = gs_download,
                               .grant = gs_grant,
                               .granted = gs_granted,
                               .close = gs_close};
    return 0;
}
