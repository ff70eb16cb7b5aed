/* A store of copies that the office of a run keeps (run/office.h): for members on machines that do not see the
 * coordinator's folder. Each call has a connection of its own; those that are free are kept for the next.
 *
 * Where the office's store is a bucket that has URLs for members (grant.h), bytes go straight between this machine's
 * memory and the bucket, and the office is asked for the URLs alone. What cannot go that way, because the bucket is not
 * reached from here or what it says is not clear, goes through the office; where nothing ever went that way, it is not
 * tried again. */
#include "base/address.h"
#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"
#include "store/grant.h"
#include "store/store_internal.h"
#include "wire/office_link.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { IDLE_MAX = 12, PIECE = 512 << 10, PLACE_MAX = 4096 };

static const char scheme[] = "tidemill://";

/* What is known of the way past the office. */
enum way { WAY_UNKNOWN, WAY_OPEN, WAY_CLOSED };

struct office {
    struct tm_copy_store store;
    struct tm_webs webs; /* to the bucket */
    atomic_int straight; /* enum way */
    struct tm_env *env;
    struct tm_tls *tls; /* NULL: not loaded yet; with the lock, as what follows */
    struct tm_office_link *idle[IDLE_MAX];
    size_t idle_count;
    pthread_mutex_t lock;
    char place[PLACE_MAX];
    char address[TM_ADDRESS_MAX];
    const char *folder; /* in place */
};

void tm_copy_store_office_place(const char *address, const char *tls_folder, struct tm_text *out)
{
    tm_text_printf(out, "%s%s%s", scheme, address, tls_folder);
}

bool tm_copy_office__is_place(const char *place)
{
    return strncmp(place, scheme, strlen(scheme)) == 0;
}

int tm_copy_office__check(const char *place, struct tm_error *e)
{
    const char *slash = strchr(place + strlen(scheme), '/');
    char address[TM_ADDRESS_MAX];
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    size_t length = slash == NULL ? 0 : (size_t)(slash - place) - strlen(scheme);
    if (length == 0 || length >= sizeof address || strlen(place) >= PLACE_MAX)
        return tm_error_set(e, TM_EUSAGE, "%.200s: expected tidemill://HOST:PORT/FOLDER", place);
    memcpy(address, place + strlen(scheme), length);
    address[length] = '\0';
    return tm_address_split(address, host, port, e);
}

/* ---- connections ---- */

static int load_tls(struct office *o, struct tm_error *e)
{
    (void)pthread_mutex_lock(&o->lock);
    int rc = o->tls != NULL ? 0 : tm_tls_load(o->env, o->folder, &o->tls, e);
    (void)pthread_mutex_unlock(&o->lock);
    return rc;
}

/* `out_used`: it was idle, and may have been closed meanwhile. */
static int take_link(struct office *o, bool fresh, struct tm_office_link **out, bool *out_used, struct tm_error *e)
{
    struct tm_office_link *link = NULL;
    int rc = load_tls(o, e);
    if (rc != 0) return rc;
    (void)pthread_mutex_lock(&o->lock);
    if (!fresh && o->idle_count > 0) link = o->idle[--o->idle_count];
    (void)pthread_mutex_unlock(&o->lock);
    *out_used = link != NULL;
    if (link == NULL) {
        rc = tm_office_link_open(o->env, o->address, o->tls, &link, e);
        if (rc == -(int)TM_EPEER || rc == -(int)TM_ETIMEOUT)
            rc = tm_error_set(e, TM_EIO, "%s: cannot be reached", o->place);
        if (rc != 0) return rc;
    }
    *out = link;
    return 0;
}

static void give_link(struct office *o, struct tm_office_link *link, bool good)
{
    (void)pthread_mutex_lock(&o->lock);
    if (good && o->idle_count < IDLE_MAX) {
        o->idle[o->idle_count++] = link;
        link = NULL;
    }
    (void)pthread_mutex_unlock(&o->lock);
    tm_office_link_close(link);
}

/* One call on a connection; where an old connection turns out to be gone, on a new one. */
typedef int (*call_f)(struct office *o, struct tm_office_link *link, void *context, bool *out_answered,
                      struct tm_error *e);

static int call(struct office *o, call_f f, void *context, struct tm_error *e)
{
    struct tm_office_link *link = NULL;
    bool used = false;
    bool answered = false;
    int rc = take_link(o, false, &link, &used, e);
    if (rc != 0) return rc;
    rc = f(o, link, context, &answered, e);
    give_link(o, link, answered);
    if (answered || !used) return rc;
    rc = take_link(o, true, &link, &used, e);
    if (rc != 0) return rc;
    rc = f(o, link, context, &answered, e);
    give_link(o, link, answered);
    return rc;
}

/* ---- calls ---- */

struct part {
    const struct tm_copy_name *name; /* put */
    const struct tm_block *block;
    uint64_t set; /* get */
    uint32_t layer;
    uint64_t size;
    struct tm_block_pool *pool;
    struct tm_copy_name got_name;
    struct tm_block *got;
};

/* The office's last word on a call: an error of its own is an answer, too. */
static int hear_done(struct tm_office_link *link, bool *out_answered, uint64_t *out_number, struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_error own = {.code = TM_OK};
    Tmw__OfficeMessage *message = NULL;
    tm_arena_init(&arena, 8 << 20);
    int rc = tm_office_link_receive(link, &arena, &message, &own);
    bool told = rc == 0 && message->body_case == TMW__OFFICE_MESSAGE__BODY_DONE;
    if (rc == 0 && !told) rc = tm_error_set(&own, TM_EIO, "an answer to another question");
    if (told) *out_number = message->done->number;
    *out_answered = told || (rc != 0 && rc != -(int)TM_EIO && rc != -(int)TM_ENOMEM && rc != -(int)TM_EPEER);
    tm_arena_deinit(&arena);
    if (rc != 0 && e != NULL) *e = own;
    return rc;
}

static int put(struct office *o, struct tm_office_link *link, void *context, bool *out_answered, struct tm_error *e)
{
    const struct part *part = context;
    const struct tm_copy_name *name = part->name;
    uint64_t number = 0;
    int rc = 0;
    uint64_t at = 0;
    (void)o;
    do {
        Tmw__OfficeMessage message = tm_office_message_make();
        Tmw__StorePut body = TMW__STORE_PUT__INIT;
        uint64_t length = name->size - at < PIECE ? name->size - at : PIECE;
        message.body_case = TMW__OFFICE_MESSAGE__BODY_STORE_PUT;
        message.store_put = &body;
        body.set = name->set;
        body.step = name->step;
        body.generation = name->generation;
        body.layer = name->layer;
        body.hash_low = name->hash.low;
        body.hash_high = name->hash.high;
        body.total = name->size;
        body.offset = at;
        body.data.data = part->block->data + at;
        body.data.len = length;
        rc = tm_office_link_send(link, &message, e);
        at += length;
    } while (rc == 0 && at < name->size);
    return rc == 0 ? hear_done(link, out_answered, &number, e) : rc;
}

/* ---- past the office ---- */

struct asked {
    uint64_t set;
    uint32_t layer;
    uint64_t length; /* of the file to put; 0: to get it */
    struct tm_grant grant;
    struct tm_text tags; /* of what was put; empty: it is given up */
};

static int take_grant(struct asked *asked, const Tmw__StoreUrls *body, struct tm_error *e)
{
    struct tm_grant *grant = &asked->grant;
    if (body->upload.len >= sizeof grant->upload || body->part_bytes > SIZE_MAX / 2)
        return tm_error_set(e, TM_EIO, "the office grants what cannot be used");
    tm_text_append(&grant->urls, (const char *)body->urls.data, body->urls.len);
    if (body->upload.len > 0) memcpy(grant->upload, body->upload.data, body->upload.len);
    grant->upload[body->upload.len] = '\0';
    grant->part_bytes = (size_t)body->part_bytes;
    return tm_text_status(&grant->urls, e);
}

static int ask_grant(struct office *o, struct tm_office_link *link, void *context, bool *out_answered,
                     struct tm_error *e)
{
    struct asked *asked = context;
    struct tm_arena arena;
    struct tm_error own = {.code = TM_OK};
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__OfficeMessage *answer = NULL;
    Tmw__StoreGrant body = TMW__STORE_GRANT__INIT;
    (void)o;
    message.body_case = TMW__OFFICE_MESSAGE__BODY_STORE_GRANT;
    message.store_grant = &body;
    body.set = asked->set;
    body.layer = asked->layer;
    body.length = asked->length;
    int rc = tm_office_link_send(link, &message, e);
    if (rc != 0) return rc;
    tm_arena_init(&arena, 8 << 20);
    rc = tm_office_link_receive(link, &arena, &answer, &own);
    if (rc == 0 && answer->body_case != TMW__OFFICE_MESSAGE__BODY_STORE_URLS)
        rc = tm_error_set(&own, TM_EIO, "an answer to another question");
    else
        *out_answered = rc == 0 || rc == -(int)TM_ENONE || rc == -(int)TM_EINPUT || rc == -(int)TM_ENOTFOUND;
    if (rc == 0) rc = take_grant(asked, answer->store_urls, &own);
    tm_arena_deinit(&arena);
    if (rc != 0 && e != NULL) *e = own;
    return rc;
}

static int tell_granted(struct office *o, struct tm_office_link *link, void *context, bool *out_answered,
                        struct tm_error *e)
{
    const struct asked *asked = context;
    uint64_t number = 0;
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__StoreGranted body = TMW__STORE_GRANTED__INIT;
    (void)o;
    message.body_case = TMW__OFFICE_MESSAGE__BODY_STORE_GRANTED;
    message.store_granted = &body;
    body.set = asked->set;
    body.layer = asked->layer;
    body.upload = (ProtobufCBinaryData){strlen(asked->grant.upload), (uint8_t *)asked->grant.upload};
    body.tags = (ProtobufCBinaryData){asked->tags.length, (uint8_t *)asked->tags.data};
    int rc = tm_office_link_send(link, &message, e);
    return rc == 0 ? hear_done(link, out_answered, &number, e) : rc;
}

/* The first try finds out whether there is a way at all, and does not wait long for that. */
static int tries(struct office *o)
{
    return atomic_load(&o->straight) == WAY_OPEN ? TM_TRANSFER_TRIES : 1;
}

static void learn(struct office *o, int rc, const struct tm_error *why)
{
    int unknown = WAY_UNKNOWN;
    bool changed = atomic_compare_exchange_strong(&o->straight, &unknown, rc == 0 ? WAY_OPEN : WAY_CLOSED);
    if (changed && rc != 0 && rc != -(int)TM_ENONE)
        tm_log(TM_LOG_WARN, "copies go through the coordinator: the store cannot be reached from here: %s", why->text);
}

static int put_granted(struct office *o, struct asked *asked, const struct tm_block *block, struct tm_error *e)
{
    int rc = tm_grant__up(&asked->grant, &o->webs, tries(o), block->data - TM_BLOCK_HEAD, (size_t)asked->length,
                          &asked->tags, e);
    if (rc == 0 || rc == -(int)TM_EPEER) learn(o, rc, e);
    if (asked->grant.upload[0] == '\0') return rc;
    if (rc != 0) tm_text_clear(&asked->tags);
    int ended = call(o, tell_granted, asked, rc == 0 ? e : NULL);
    return rc == 0 ? ended : rc;
}

static int put_straight(struct office *o, const struct tm_copy_name *name, struct tm_block *block, struct tm_error *e)
{
    struct tm_error own = {.text = ""};
    struct asked asked = {.set = name->set, .layer = name->layer, .length = tm_copy_file__prepare(name, block)};
    tm_grant_init(&asked.grant);
    tm_text_init(&asked.tags, TM_GRANT_URLS_MAX);
    int rc = call(o, ask_grant, &asked, &own);
    bool may_not = rc == -(int)TM_EINPUT;
    if (rc == -(int)TM_ENONE) learn(o, rc, &own);
    if (rc == 0) rc = put_granted(o, &asked, block, &own);
    if (rc == 0) tm_debug(TM_DEBUG_STORE, "layer %" PRIu32 " was put straight", name->layer);
    tm_text_deinit(&asked.tags);
    tm_grant_deinit(&asked.grant);
    if (rc != 0 && e != NULL) *e = own;
    return rc == 0 || may_not || rc == -(int)TM_ENOMEM ? rc : -(int)TM_ENONE;
}

static int office_put(struct tm_copy_store *store, const struct tm_copy_name *name, struct tm_block *block,
                      struct tm_error *e)
{
    struct office *o = store->self;
    struct part part = {.name = name, .block = block};
    int rc = atomic_load(&o->straight) == WAY_CLOSED ? -(int)TM_ENONE : put_straight(o, name, block, e);
    return rc == -(int)TM_ENONE ? call(o, put, &part, e) : rc;
}

/* A piece of what was asked for. */
static int take_piece(struct part *part, const Tmw__StorePut *piece, struct tm_error *e)
{
    if (part->got == NULL) {
        part->got_name = (struct tm_copy_name){.set = piece->set,
                                               .step = piece->step,
                                               .generation = piece->generation,
                                               .layer = piece->layer,
                                               .hash = {piece->hash_low, piece->hash_high},
                                               .size = piece->total};
        bool right = piece->set == part->set && piece->layer == part->layer && piece->offset == 0 &&
                     (part->size == 0 || piece->total == part->size);
        if (!right) return tm_error_set(e, TM_EIO, "the office answered with another part");
        part->got = tm_block_create(part->pool, piece->total);
        if (part->got == NULL) return tm_error_nomem(e);
    }
    if (piece->total != part->got->size || piece->offset > piece->total ||
        piece->data.len > piece->total - piece->offset)
        return tm_error_set(e, TM_EIO, "the office's pieces do not fit");
    if (piece->data.len > 0) memcpy(part->got->data + piece->offset, piece->data.data, piece->data.len);
    return 0;
}

static int get(struct office *o, struct tm_office_link *link, void *context, bool *out_answered, struct tm_error *e)
{
    struct part *part = context;
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__StoreGet body = TMW__STORE_GET__INIT;
    uint64_t at = 0;
    (void)o;
    message.body_case = TMW__OFFICE_MESSAGE__BODY_STORE_GET;
    message.store_get = &body;
    body.set = part->set;
    body.layer = part->layer;
    body.size = part->size;
    int rc = tm_office_link_send(link, &message, e);
    while (rc == 0 && (part->got == NULL || at < part->got->size)) {
        struct tm_arena arena;
        struct tm_error own = {.code = TM_OK};
        Tmw__OfficeMessage *answer = NULL;
        tm_arena_init(&arena, 8 << 20);
        rc = tm_office_link_receive(link, &arena, &answer, &own);
        if (rc == 0 && answer->body_case != TMW__OFFICE_MESSAGE__BODY_STORE_PUT)
            rc = tm_error_set(&own, TM_EIO, "an answer to another question");
        *out_answered = rc == -(int)TM_ENOTFOUND || rc == -(int)TM_EINPUT;
        if (rc == 0) rc = take_piece(part, answer->store_put, &own);
        if (rc == 0) at = answer->store_put->offset + answer->store_put->data.len;
        tm_arena_deinit(&arena);
        if (rc != 0 && e != NULL) *e = own;
    }
    *out_answered = *out_answered || rc == 0;
    if (rc == 0 && !tm_hash_equal(tm_hash_of(part->got->data, part->got->size), part->got_name.hash))
        rc = tm_error_set(e, TM_EINPUT, "set %" PRIu64 ", layer %" PRIu32 ": the bytes are not what their hash says",
                          part->set, part->layer);
    if (rc == 0) return 0;
    tm_block_release(part->got);
    part->got = NULL;
    return rc;
}

static int read_granted(struct office *o, const struct asked *asked, struct part *part, struct tm_error *e)
{
    const void *data = NULL;
    size_t length = tm_copy_file_length(part->size);
    struct tm_block *block = tm_block_create(part->pool, (size_t)part->size);
    if (block == NULL) return tm_error_nomem(e);
    int rc = tm_grant__down(&asked->grant, &o->webs, tries(o), block->data - TM_BLOCK_HEAD, length, e);
    if (rc == 0 || rc == -(int)TM_EPEER) learn(o, rc, e);
    if (rc == 0) rc = tm_copy_file_decode(block->data - TM_BLOCK_HEAD, length, &part->got_name, &data, e);
    if (rc == 0 && part->got_name.size != part->size) rc = tm_error_set(e, TM_EINPUT, "a copy of another size");
    if (rc == 0)
        part->got = block;
    else
        tm_block_release(block);
    return rc;
}

/* Whatever is not as it should be, the office says what that means. */
static bool get_straight(struct office *o, struct part *part)
{
    struct tm_error own = {.text = ""};
    struct asked asked = {.set = part->set, .layer = part->layer};
    if (part->size == 0 || part->size > SIZE_MAX / 2 || atomic_load(&o->straight) == WAY_CLOSED) return false;
    tm_grant_init(&asked.grant);
    int rc = call(o, ask_grant, &asked, &own);
    if (rc == -(int)TM_ENONE) learn(o, rc, &own);
    if (rc == 0) rc = read_granted(o, &asked, part, &own);
    if (rc == 0) tm_debug(TM_DEBUG_STORE, "layer %" PRIu32 " was got straight", part->layer);
    tm_grant_deinit(&asked.grant);
    return rc == 0;
}

static int office_get(struct tm_copy_store *store, uint64_t set, uint32_t layer, uint64_t size,
                      struct tm_block_pool *pool, struct tm_copy_name *out_name, struct tm_block **out_block,
                      struct tm_error *e)
{
    struct part part = {.set = set, .layer = layer, .size = size, .pool = pool};
    int rc = get_straight(store->self, &part) ? 0 : call(store->self, get, &part, e);
    if (rc != 0) return rc;
    *out_name = part.got_name;
    *out_block = part.got;
    return 0;
}

static int newest(struct office *o, struct tm_office_link *link, void *context, bool *out_answered, struct tm_error *e)
{
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__StoreNewest body = TMW__STORE_NEWEST__INIT;
    (void)o;
    message.body_case = TMW__OFFICE_MESSAGE__BODY_STORE_NEWEST;
    message.store_newest = &body;
    int rc = tm_office_link_send(link, &message, e);
    return rc == 0 ? hear_done(link, out_answered, context, e) : rc;
}

static int office_newest(struct tm_copy_store *store, uint64_t *out_set, struct tm_error *e)
{
    uint64_t set = 0;
    int rc = call(store->self, newest, &set, e);
    if (rc == 0) *out_set = set;
    return rc;
}

/* ---- what only the coordinator does, with the folder itself ---- */

static int refuse(const struct tm_copy_store *store, struct tm_error *e)
{
    return tm_error_set(e, TM_EUSAGE, "%s: only the coordinator seals, lists, drops, sweeps and claims", store->where);
}

static int office_seal(struct tm_copy_store *store, uint64_t set, const void *manifest, size_t length,
                       struct tm_error *e)
{
    (void)set;
    (void)manifest;
    (void)length;
    return refuse(store, e);
}

static int office_list(struct tm_copy_store *store, tm_sealed_set_f each, void *context, struct tm_error *e)
{
    (void)each;
    (void)context;
    return refuse(store, e);
}

static int office_drop(struct tm_copy_store *store, uint64_t set, struct tm_error *e)
{
    (void)set;
    return refuse(store, e);
}

static int office_sweep(struct tm_copy_store *store, uint64_t below, const uint64_t *keep, size_t keep_count,
                        struct tm_error *e)
{
    (void)below;
    (void)keep;
    (void)keep_count;
    return refuse(store, e);
}

static int office_claim(struct tm_copy_store *store, bool take_over, struct tm_error *e)
{
    (void)take_over;
    return refuse(store, e);
}

static int office_check(struct tm_copy_store *store, struct tm_error *e)
{
    uint64_t set = 0;
    int rc = office_newest(store, &set, e);
    return rc == -(int)TM_ENOTFOUND ? 0 : rc;
}

static void office_close(struct tm_copy_store *store)
{
    struct office *o = store->self;
    for (size_t i = 0; i < o->idle_count; i++)
        tm_office_link_close(o->idle[i]);
    tm_tls_destroy(o->tls);
    tm_webs__deinit(&o->webs);
    (void)pthread_mutex_destroy(&o->lock);
    tm_free(o);
}

int tm_copy_office__open(struct tm_env *env, const char *place, struct tm_copy_store **out, struct tm_error *e)
{
    struct office *o = tm_calloc(1, sizeof *o);
    if (o == NULL) return tm_error_nomem(e);
    o->env = env;
    tm_webs__init(&o->webs, env);
    (void)pthread_mutex_init(&o->lock, NULL);
    (void)snprintf(o->place, sizeof o->place, "%s", place);
    o->folder = strchr(o->place + strlen(scheme), '/');
    memcpy(o->address, o->place + strlen(scheme), (size_t)(o->folder - o->place) - strlen(scheme));
    o->store = (struct tm_copy_store){.self = o,
                                      .where = o->place,
                                      .put = office_put,
                                      .get = office_get,
                                      .seal = office_seal,
                                      .newest = office_newest,
                                      .list = office_list,
                                      .drop = office_drop,
                                      .sweep = office_sweep,
                                      .claim = office_claim,
                                      .check = office_check,
                                      .close = office_close};
    *out = &o->store;
    return 0;
}
