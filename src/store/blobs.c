/* Objects of a container of Azure's blobs, under a prefix (objects.h). Large ones go up as blocks, which are nothing
 * until a list of them is put; their names begin with a number drawn for the upload, so that two uploads of one object
 * never mix. */
#include "base/alloc.h"
#include "store/objects.h"
#include "store/transfer.h"
#include "web/azure.h"
#include "web/xml.h"

#include <assert.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_MS = 60000, TRIES = 8, ARENA_MAX = 64 << 20, PAGES_MAX = 100000, PATH_BYTES = TM_KEY_MAX + TM_BUCKET_MAX };

struct blobs {
    struct tm_env *env;
    struct tm_azure *azure;
    char container[TM_BUCKET_MAX];
    char prefix[TM_PREFIX_MAX]; /* without slashes at its ends; "": none */
    struct tm_webs webs;
};

/* "/CONTAINER/PREFIX/NAME". */
static void make_path(const struct blobs *blobs, const char *name, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "/%s/%s%s%s", blobs->container, blobs->prefix, blobs->prefix[0] != '\0' ? "/" : "",
                   name);
}

static struct tm_azure_request make_request(const struct blobs *blobs, const char *method, const char *path)
{
    return (struct tm_azure_request){
        .azure = blobs->azure, .method = method, .path = path, .deadline_ms = SMALL_MS, .tries_max = TRIES};
}

static void add_query(struct tm_azure_request *request, const char *name, const char *value)
{
    request->query[request->query_count++] = (struct tm_web_pair){name, value};
}

static void add_header(struct tm_azure_request *request, const char *name, const char *value)
{
    request->headers[request->header_count++] = (struct tm_web_pair){name, value};
}

/* ---- what it says ---- */

static int read_code(const struct tm_web_answer *answer, char code[128], struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    code[0] = '\0';
    if (answer->body.length == 0) return 0;
    tm_arena_init(&arena, 8 << 20);
    /* It may begin with a byte order mark. */
    size_t mark = answer->body.length > 3 && memcmp(answer->body.data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    int rc = tm_xml_read(answer->body.data + mark, answer->body.length - mark, &arena, &root, e);
    if (rc == 0) (void)snprintf(code, 128, "%s", tm_xml_text(root, "Code"));
    tm_arena_deinit(&arena);
    return rc == -(int)TM_ENOMEM ? rc : 0;
}

static int refused(const struct blobs *blobs, const char *path, const struct tm_web_answer *answer, struct tm_error *e)
{
    char code[128];
    int rc = read_code(answer, code, e);
    if (rc != 0) return rc;
    if (strcmp(code, "ContainerNotFound") == 0)
        return tm_error_set(e, TM_EIO, "account %s has no container %s: create it, or correct its name",
                            tm_azure_account(blobs->azure), blobs->container);
    if (answer->status == 404) return tm_error_set(e, TM_ENOTFOUND, "az:/%s: not found", path);
    if (answer->status == 412 || strcmp(code, "BlobAlreadyExists") == 0)
        return tm_error_set(e, TM_EEXISTS, "az:/%s: has changed", path);
    if (answer->status == 416) return tm_error_set(e, TM_EINPUT, "az:/%s: shorter than expected", path);
    const char *fix = answer->status != 401 && answer->status != 403
                          ? ""
                          : " (is the key right? a service principal or a machine needs the role Storage Blob Data "
                            "Contributor)";
    return tm_error_set(e, TM_EIO, "az:/%s: refused with %d %s%s", path, answer->status, code, fix);
}

/* What became of a request: `rc` and the answer, as a result. Takes the answer's memory where it is no success. */
static int judge(const struct blobs *blobs, int rc, const char *path, struct tm_web_answer *answer, struct tm_error *e)
{
    if (rc == -(int)TM_ENOMEM) return rc;
    if (rc != 0) {
        (void)tm_error_wrap(e, rc, "az://%s", blobs->container);
        if (e != NULL) e->code = TM_EIO; /* temporary, as far as the store's callers can tell */
        return -(int)TM_EIO;
    }
    if (answer->status >= 200 && answer->status < 300) return 0;
    rc = refused(blobs, path, answer, e);
    tm_web_answer_deinit(answer);
    return rc;
}

/* Asks and judges; 0: the answer is the caller's. */
static int ask(struct blobs *blobs, struct tm_azure_request *request, struct tm_web_answer *out, struct tm_error *e)
{
    struct tm_web *web = NULL;
    int rc = tm_webs__take(&blobs->webs, &web, e);
    if (rc != 0) return rc;
    rc = judge(blobs, tm_azure_ask(web, request, out, e), request->path, out, e);
    tm_webs__give(&blobs->webs, web);
    return rc;
}

/* ---- small objects ---- */

static int blobs_put(void *self, const char *name, const void *data, size_t length, const char *if_match,
                     char out_etag[TM_WEB_WORD_MAX], struct tm_error *e)
{
    struct blobs *blobs = self;
    char path[PATH_BYTES];
    struct tm_web_answer answer;
    make_path(blobs, name, path);
    struct tm_azure_request request = make_request(blobs, "PUT", path);
    request.body = data;
    request.length = length;
    add_header(&request, "x-ms-blob-type", "BlockBlob");
    if (if_match != NULL)
        add_header(&request, if_match[0] == '\0' ? "if-none-match" : "if-match", if_match[0] == '\0' ? "*" : if_match);
    int rc = ask(blobs, &request, &answer, e);
    if (rc != 0) return if_match != NULL && if_match[0] != '\0' && rc == -(int)TM_ENOTFOUND ? -(int)TM_EEXISTS : rc;
    if (out_etag != NULL) (void)snprintf(out_etag, TM_WEB_WORD_MAX, "%s", answer.etag);
    tm_web_answer_deinit(&answer);
    return 0;
}

static int blobs_get(void *self, const char *name, struct tm_text *out, char out_etag[TM_WEB_WORD_MAX],
                     struct tm_error *e)
{
    struct blobs *blobs = self;
    char path[PATH_BYTES];
    struct tm_web_answer answer;
    make_path(blobs, name, path);
    struct tm_azure_request request = make_request(blobs, "GET", path);
    int rc = ask(blobs, &request, &answer, e);
    if (rc != 0) return rc;
    tm_text_append(out, tm_text_string(&answer.body), answer.body.length);
    if (out_etag != NULL) (void)snprintf(out_etag, TM_WEB_WORD_MAX, "%s", answer.etag);
    tm_web_answer_deinit(&answer);
    return tm_text_status(out, e);
}

static int blobs_remove(void *self, const char *name, struct tm_error *e)
{
    struct blobs *blobs = self;
    char path[PATH_BYTES];
    struct tm_web_answer answer;
    make_path(blobs, name, path);
    struct tm_azure_request request = make_request(blobs, "DELETE", path);
    int rc = ask(blobs, &request, &answer, e);
    if (rc == 0) tm_web_answer_deinit(&answer);
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

/* ---- lists ---- */

static const char *below_prefix(const struct blobs *blobs, const char *key)
{
    size_t length = strlen(blobs->prefix);
    return length == 0 ? key : strlen(key) > length ? key + length + 1 : "";
}

/* Which blobs a list is to name. */
struct wanted {
    const char *from;
    bool flat;
    bool unfinished; /* those of which blocks were put, but no list of them */
    tm_name_f take;
    void *context;
};

static int take_page(struct blobs *blobs, const struct wanted *wanted, const struct tm_xml *root, struct tm_error *e)
{
    int rc = 0;
    for (const struct tm_xml *one = tm_xml_child(root, "Blobs/Blob"); rc == 0 && one != NULL; one = tm_xml_again(one)) {
        /* One of which only blocks are there has no bytes; none of ours is empty. */
        if (!wanted->unfinished || strcmp(tm_xml_text(one, "Properties/Content-Length"), "0") == 0)
            rc = wanted->take(wanted->context, below_prefix(blobs, tm_xml_text(one, "Name")), e);
    }
    return rc;
}

/* A page; `more` is where the next begins, "" after the last. */
static int one_page(struct blobs *blobs, const struct wanted *wanted, char more[2 * TM_KEY_MAX], struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    struct tm_web_answer answer;
    char path[PATH_BYTES];
    char container[TM_BUCKET_MAX + 2];
    make_path(blobs, wanted->from, path);
    (void)snprintf(container, sizeof container, "/%s", blobs->container);
    struct tm_azure_request request = make_request(blobs, "GET", container);
    add_query(&request, "restype", "container");
    add_query(&request, "comp", "list");
    add_query(&request, "prefix", path + strlen(container) + 1);
    if (wanted->flat) add_query(&request, "delimiter", "/");
    if (wanted->unfinished) add_query(&request, "include", "uncommittedblobs");
    if (more[0] != '\0') add_query(&request, "marker", more);
    int rc = ask(blobs, &request, &answer, e);
    if (rc != 0) return rc;
    tm_arena_init(&arena, ARENA_MAX);
    size_t mark = answer.body.length > 3 && memcmp(answer.body.data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    rc = tm_xml_read(tm_text_string(&answer.body) + mark, answer.body.length - mark, &arena, &root, e);
    tm_web_answer_deinit(&answer);
    if (rc != 0 && rc != -(int)TM_ENOMEM)
        rc = tm_error_set(e, TM_EIO, "az://%s: the answer is not a list", blobs->container);
    if (rc == 0) rc = take_page(blobs, wanted, root, e);
    (void)snprintf(more, (size_t)2 * TM_KEY_MAX, "%s", rc == 0 ? tm_xml_text(root, "NextMarker") : "");
    tm_arena_deinit(&arena);
    return rc;
}

static int all_pages(struct blobs *blobs, const struct wanted *wanted, struct tm_error *e)
{
    char more[2 * TM_KEY_MAX] = "";
    int rc = 0;
    for (int page = 0; rc == 0 && page < PAGES_MAX; page++) {
        rc = one_page(blobs, wanted, more, e);
        if (more[0] == '\0') break;
    }
    return rc;
}

static int blobs_each(void *self, const char *from, bool flat, tm_name_f take, void *context, struct tm_error *e)
{
    return all_pages(self, &(struct wanted){from, flat, false, take, context}, e);
}

/* Blocks without a list go when the blob is put whole, and then it goes, too. */
static int abort_one(void *context, const char *name, struct tm_error *e)
{
    int rc = blobs_put(context, name, "", 0, NULL, NULL, e);
    return rc == 0 ? blobs_remove(context, name, e) : rc;
}

static int blobs_abort_uploads(void *self, const char *from, struct tm_error *e)
{
    return all_pages(self, &(struct wanted){from, false, true, abort_one, self}, e);
}

/* ---- large objects ---- */

enum { BLOCK_NAME = 33 }; /* 24 bytes in base64 */

struct moving {
    struct blobs *blobs;
    struct tm_web *web;
    const char *path;
    const uint8_t *from; /* an upload; NULL: a download */
    uint8_t *into;
    uint64_t upload; /* its number */
    uint64_t total;  /* a download: of the whole object */
    struct tm_azure_request requests[TM_TRANSFER_STREAMS];
    char words[TM_TRANSFER_STREAMS][64]; /* of each request: its block's name, or its range */
};

static void name_block(const struct moving *m, size_t number, char out[BLOCK_NAME])
{
    char text[25];
    (void)snprintf(text, sizeof text, "%016" PRIx64 "%08" PRIx32, m->upload, (uint32_t)number);
    (void)EVP_EncodeBlock((unsigned char *)out, (const unsigned char *)text, 24);
}

static int begin_part(void *context, const struct tm_stretch *part, struct tm_web_call **out, struct tm_error *e)
{
    struct moving *m = context;
    struct tm_azure_request *r = &m->requests[part->stream];
    char *word = m->words[part->stream];
    *r = make_request(m->blobs, m->from != NULL ? "PUT" : "GET", m->path);
    r->deadline_ms = TM_TRANSFER_MS;
    r->silence_ms = TM_TRANSFER_SILENCE_MS;
    r->tries_max = TM_TRANSFER_TRIES;
    if (m->from != NULL) {
        name_block(m, part->number, word);
        add_query(r, "comp", "block");
        add_query(r, "blockid", word);
        r->body = m->from + part->at;
        r->length = part->length;
    } else {
        (void)snprintf(word, sizeof m->words[0], "bytes=%zu-%zu", part->at, part->at + part->length - 1);
        add_header(r, "x-ms-range", word);
        r->into = m->into + part->at;
        r->room = part->length;
    }
    return tm_azure_begin(m->web, r, out, e);
}

static int end_part(void *context, const struct tm_stretch *part, struct tm_web_call *call, struct tm_error *e)
{
    struct moving *m = context;
    struct tm_web_answer answer;
    int rc = judge(m->blobs, tm_web_end(call, &answer, e), m->path, &answer, e);
    if (rc != 0) return rc;
    uint64_t total = answer.total >= 0 ? (uint64_t)answer.total : answer.received;
    if (part->number == 0) m->total = total;
    if (m->from == NULL && answer.received != part->length)
        rc = tm_error_set(e, TM_EINPUT, "%s: has %" PRIu64 " bytes, fewer than expected", m->path, total);
    tm_web_answer_deinit(&answer);
    return rc;
}

static int blobs_download(void *self, const char *name, void *into, size_t length, uint64_t *out_total,
                          struct tm_error *e)
{
    struct blobs *blobs = self;
    char path[PATH_BYTES];
    make_path(blobs, name, path);
    struct moving *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return tm_error_nomem(e);
    *m = (struct moving){.blobs = blobs, .path = path, .into = into};
    int rc = tm_webs__take(&blobs->webs, &m->web, e);
    if (rc == 0) {
        rc = tm_transfer__carry(
            &(struct tm_transfer){.web = m->web, .length = length, .context = m, .begin = begin_part, .end = end_part},
            0, e);
        tm_webs__give(&blobs->webs, m->web);
    }
    if (rc == 0) *out_total = m->total;
    tm_free(m);
    return rc;
}

static int put_list(struct moving *m, size_t parts, struct tm_error *e)
{
    struct tm_text body;
    struct tm_web_answer answer;
    char name[BLOCK_NAME];
    tm_text_init(&body, 4 << 20);
    tm_text_puts(&body, "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
    for (size_t i = 0; i < parts; i++) {
        name_block(m, i, name);
        tm_text_printf(&body, "<Latest>%s</Latest>", name);
    }
    tm_text_puts(&body, "</BlockList>");
    int rc = tm_text_status(&body, e);
    if (rc == 0) {
        struct tm_azure_request request = make_request(m->blobs, "PUT", m->path);
        add_query(&request, "comp", "blocklist");
        request.body = body.data;
        request.length = body.length;
        rc = judge(m->blobs, tm_azure_ask(m->web, &request, &answer, e), m->path, &answer, e);
        if (rc == 0) tm_web_answer_deinit(&answer);
    }
    tm_text_deinit(&body);
    return rc;
}

static int blobs_upload(void *self, const char *name, const void *data, size_t length, struct tm_error *e)
{
    struct blobs *blobs = self;
    char path[PATH_BYTES];
    size_t parts = tm_transfer__upload_parts(length);
    if (parts == 1) return blobs_put(self, name, data, length, NULL, NULL, e);
    make_path(blobs, name, path);
    struct moving *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return tm_error_nomem(e);
    *m = (struct moving){.blobs = blobs, .path = path, .from = data, .upload = blobs->env->random_u64(blobs->env)};
    int rc = tm_webs__take(&blobs->webs, &m->web, e);
    if (rc == 0) {
        rc = tm_transfer__carry(
            &(struct tm_transfer){.web = m->web, .length = length, .context = m, .begin = begin_part, .end = end_part},
            parts, e);
        if (rc == 0) rc = put_list(m, parts, e);
        tm_webs__give(&blobs->webs, m->web);
    }
    tm_free(m);
    return rc == -(int)TM_ENOTFOUND ? tm_error_set(e, TM_EIO, "az:/%s: the upload is gone", path) : rc;
}

/* ---- for somebody without credentials ---- */

/* Always as blocks: one that is put whole would need a header beside its URL. */
static int add_blocks(const struct moving *m, const char *url, size_t parts, struct tm_text *out)
{
    char name[BLOCK_NAME];
    for (size_t i = 0; i < parts; i++) {
        name_block(m, i, name);
        tm_text_printf(out, "%s&comp=block&blockid=", url);
        tm_percent_encode(name, false, out);
        tm_text_puts(out, "\n");
    }
    return tm_text_status(out, NULL);
}

static int blobs_grant(void *self, const char *name, size_t length, struct tm_grant *out, struct tm_error *e)
{
    struct blobs *blobs = self;
    char path[PATH_BYTES];
    struct tm_text url;
    make_path(blobs, name, path);
    tm_text_init(&url, TM_WEB_LINK_MAX);
    int rc = tm_azure_await_key(blobs->azure, e);
    if (rc == 0) rc = tm_azure_url(blobs->azure, length > 0 ? "PUT" : "GET", path, TM_GRANT_S, &url, e);
    if (rc != 0 && rc != -(int)TM_ENOMEM) rc = tm_error_set(e, TM_ENONE, "az:/%s: nothing here signs URLs", path);
    if (rc == 0 && length == 0) tm_text_printf(&out->urls, "%s\n", tm_text_string(&url));
    if (rc == 0 && length > 0) {
        const struct moving m = {.blobs = blobs, .path = path, .upload = blobs->env->random_u64(blobs->env)};
        out->part_bytes = tm_transfer__part_bytes(length, TM_GRANT_PARTS_MAX);
        (void)snprintf(out->upload, sizeof out->upload, "%016" PRIx64, m.upload);
        rc = add_blocks(&m, tm_text_string(&url), (length - 1) / out->part_bytes + 1, &out->urls);
    }
    tm_text_deinit(&url);
    return rc == 0 ? tm_text_status(&out->urls, e) : rc;
}

/* What is given up the service forgets, or it goes with its set. */
static int blobs_granted(void *self, const char *name, const char *upload, const char *tags, struct tm_error *e)
{
    struct blobs *blobs = self;
    char path[PATH_BYTES];
    size_t parts = 0;
    for (; (tags = strchr(tags, '\n')) != NULL; tags++)
        parts++;
    if (parts == 0) return 0;
    if (parts > TM_GRANT_PARTS_MAX) return tm_error_set(e, TM_EINPUT, "az: too many parts");
    make_path(blobs, name, path);
    struct moving *m = tm_calloc(1, sizeof *m);
    if (m == NULL) return tm_error_nomem(e);
    *m = (struct moving){.blobs = blobs, .path = path, .upload = strtoull(upload, NULL, 16)};
    int rc = tm_webs__take(&blobs->webs, &m->web, e);
    if (rc == 0) {
        rc = put_list(m, parts, e);
        tm_webs__give(&blobs->webs, m->web);
    }
    tm_free(m);
    return rc == -(int)TM_ENOTFOUND ? tm_error_set(e, TM_EIO, "az:/%s: the upload is gone", path) : rc;
}

/* ---- the container ---- */

static void blobs_close(void *self)
{
    struct blobs *blobs = self;
    tm_webs__deinit(&blobs->webs);
    tm_azure_destroy(blobs->azure);
    tm_free(blobs);
}

int tm_blobs__open(struct tm_env *env, const char *place, struct tm_objects *out, struct tm_error *e)
{
    struct blobs *blobs = tm_calloc(1, sizeof *blobs);
    if (blobs == NULL) return tm_error_nomem(e);
    blobs->env = env;
    tm_webs__init(&blobs->webs, env);
    int rc = tm_objects_place(place, blobs->container, blobs->prefix, e);
    if (rc == 0) rc = tm_azure_create(env, &blobs->azure, e);
    if (rc != 0) {
        blobs_close(blobs);
        return rc;
    }
    *out = (struct tm_objects){.self = blobs,
                               .put = blobs_put,
                               .get = blobs_get,
                               .remove = blobs_remove,
                               .each = blobs_each,
                               .abort_uploads = blobs_abort_uploads,
                               .upload = blobs_upload,
                               .download = blobs_download,
                               .grant = blobs_grant,
                               .granted = blobs_granted,
                               .close = blobs_close};
    return 0;
}
