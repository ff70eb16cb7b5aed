#include "run/run_home.h"

#include "base/alloc.h"
#include "base/log.h"
#include "run/state_bundle.h"
#include "run/state_folder.h"
#include "store/copy_store.h"
#include "store/objects.h"
#include "wire/hash.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { EVERY_MS = 10000, SHARE = 20, TRIES = 3, ORDER_MAX = 16 };

#define BOOKS "run/books"
#define WHERE "run/where"
#define ORDER "run/order"

struct tm_run_home {
    struct tm_env *env;
    const char *dir;
    struct tm_objects objects;
    pthread_t thread;
    pthread_mutex_t lock;
    int wake[2];            /* the thread waits at the first */
    struct tm_hash brought; /* the thread's, or whoever is alone with it */
    int64_t every_ms;
    bool warned;
    /* with the lock */
    char where[TM_HOME_WHERE_MAX];
    bool told; /* `where` is to be written */
    bool ends;
    enum tm_home_order order;
};

/* ---- the thread ---- */

/* What has not changed is not brought again. */
static int bring_books(struct tm_run_home *home, struct tm_error *e)
{
    struct tm_text books;
    tm_text_init(&books, TM_BUNDLE_BYTES_MAX);
    int rc = tm_state_pack(home->env, home->dir, &books, e);
    struct tm_hash hash = rc == 0 ? tm_hash_of(books.data, books.length) : home->brought;
    if (rc == 0 && !tm_hash_equal(hash, home->brought))
        rc = home->objects.upload(home->objects.self, BOOKS, books.data, books.length, e);
    if (rc == 0) home->brought = hash;
    tm_text_deinit(&books);
    return rc;
}

static int write_where(struct tm_run_home *home, const char *where, struct tm_error *e)
{
    struct tm_objects *o = &home->objects;
    return where[0] == '\0' ? o->remove(o->self, WHERE, e)
                            : o->put(o->self, WHERE, where, strlen(where), NULL, NULL, e);
}

/* An order is carried out once. */
static enum tm_home_order take_order(struct tm_run_home *home)
{
    struct tm_objects *o = &home->objects;
    struct tm_text text;
    enum tm_home_order order = TM_HOME_ORDER_NONE;
    tm_text_init(&text, ORDER_MAX);
    if (o->get(o->self, ORDER, &text, NULL, NULL) == 0) {
        order = strcmp(tm_text_string(&text), "now") == 0 ? TM_HOME_ORDER_NOW : TM_HOME_ORDER_STOP;
        (void)o->remove(o->self, ORDER, NULL);
    }
    tm_text_deinit(&text);
    return order;
}

/* Without the lock. The bucket being away is told once: the run goes on, and so does this. */
static void bring(struct tm_run_home *home, const char *where)
{
    struct tm_error e = {.text = ""};
    int rc = where != NULL ? write_where(home, where, &e) : 0;
    if (rc == 0) rc = bring_books(home, &e);
    if (rc == -(int)TM_EBUSY) return;
    if (rc != 0 && !home->warned)
        tm_log(TM_LOG_WARN, "the books of the run cannot be brought to the bucket now: %s", e.text);
    home->warned = rc != 0;
}

/* Without the lock: until it is woken, or so long. */
static void await(struct tm_run_home *home, int64_t ms)
{
    char bytes[16];
    size_t got = 0;
    bool ready = false;
    (void)home->env->net_wait(home->env, &home->wake[0], 1, ms, &ready, NULL);
    if (ready) (void)home->env->net_receive(home->env, home->wake[0], bytes, sizeof bytes, &got, NULL);
}

static void wake(struct tm_run_home *home)
{
    size_t sent = 0;
    (void)home->env->net_send(home->env, home->wake[1], "", 1, &sent, NULL); /* full: it is awake */
}

/* Large books are brought less often: they take at most a twentieth of the time. */
static void *serve(void *argument)
{
    struct tm_run_home *home = argument;
    int64_t pause_ms = home->every_ms;
    (void)pthread_mutex_lock(&home->lock);
    while (!home->ends) {
        char where[TM_HOME_WHERE_MAX];
        bool idle = !home->told || home->warned; /* what failed is not tried again at once */
        (void)pthread_mutex_unlock(&home->lock);
        if (idle) await(home, pause_ms);
        (void)pthread_mutex_lock(&home->lock);
        if (home->ends) break;
        bool told = home->told;
        memcpy(where, home->where, sizeof where);
        home->told = false;
        (void)pthread_mutex_unlock(&home->lock);
        int64_t begun_ns = home->env->monotonic_ns(home->env);
        bring(home, told ? where : NULL);
        enum tm_home_order order = take_order(home);
        int64_t took_ms = (home->env->monotonic_ns(home->env) - begun_ns) / 1000000;
        pause_ms = took_ms * SHARE > home->every_ms ? took_ms * SHARE : home->every_ms;
        (void)pthread_mutex_lock(&home->lock);
        if (told && home->warned) home->told = true; /* again */
        if (told && home->warned) pause_ms = home->every_ms;
        if (order > home->order) home->order = order;
    }
    (void)pthread_mutex_unlock(&home->lock);
    return NULL;
}

/* ---- the caller ---- */

static void free_home(struct tm_run_home *home)
{
    if (home->objects.close != NULL) home->objects.close(home->objects.self);
    for (int i = 0; i < 2; i++)
        if (home->wake[i] >= 0) home->env->net_close(home->env, home->wake[i]);
    (void)pthread_mutex_destroy(&home->lock);
    tm_free(home);
}

int tm_run_home_open(struct tm_env *env, const char *dir, const char *place, int64_t every_ms, struct tm_run_home **out,
                     struct tm_error *e)
{
    struct tm_run_home *home = tm_calloc(1, sizeof *home);
    if (home == NULL) return tm_error_nomem(e);
    home->env = env;
    home->dir = dir;
    home->every_ms = every_ms > 0 ? every_ms : EVERY_MS;
    home->wake[0] = home->wake[1] = -1;
    (void)pthread_mutex_init(&home->lock, NULL);
    int rc = tm_objects_open(env, place, &home->objects, e);
    if (rc == 0) rc = env->net_pair(env, home->wake, e);
    if (rc == 0) rc = bring_books(home, e);
    if (rc == 0) rc = home->objects.remove(home->objects.self, ORDER, e); /* meant for one before */
    if (rc == 0 && pthread_create(&home->thread, NULL, serve, home) != 0) rc = tm_error_nomem(e);
    if (rc == 0) {
        *out = home;
        return 0;
    }
    free_home(home);
    return tm_error_wrap(e, rc, "bringing the books of the run to %s", place);
}

void tm_run_home_tell(struct tm_run_home *home, const char *where)
{
    (void)pthread_mutex_lock(&home->lock);
    (void)snprintf(home->where, sizeof home->where, "%s", where);
    home->told = true;
    (void)pthread_mutex_unlock(&home->lock);
    wake(home);
}

enum tm_home_order tm_run_home_order(struct tm_run_home *home)
{
    (void)pthread_mutex_lock(&home->lock);
    enum tm_home_order order = home->order;
    home->order = TM_HOME_ORDER_NONE;
    (void)pthread_mutex_unlock(&home->lock);
    return order;
}

int tm_run_home_close(struct tm_run_home *home, struct tm_error *e)
{
    if (home == NULL) return 0;
    (void)pthread_mutex_lock(&home->lock);
    home->ends = true;
    (void)pthread_mutex_unlock(&home->lock);
    wake(home);
    (void)pthread_join(home->thread, NULL);
    int rc = bring_books(home, e);
    if (rc == 0) rc = write_where(home, "", e); /* last: whoever does not find it reads the books */
    free_home(home);
    return rc;
}

/* ---- others ---- */

/* One that is replaced meanwhile does not fit together, and is read again. */
static int read_books(struct tm_objects *o, const char *dir, struct tm_env *env, struct tm_error *e)
{
    char head[TM_BUNDLE_HEAD];
    uint64_t total = 0;
    int rc = o->download(o->self, BOOKS, head, sizeof head, &total, e);
    if (rc != 0) return rc;
    if (total > TM_BUNDLE_BYTES_MAX)
        return tm_error_set(e, TM_ELIMIT, "the books have %llu bytes", (unsigned long long)total);
    char *data = tm_alloc((size_t)total);
    if (data == NULL) return tm_error_nomem(e);
    rc = o->download(o->self, BOOKS, data, (size_t)total, &total, e);
    if (rc == 0) rc = tm_state__unpack(env, dir, data, (size_t)total, e);
    tm_free(data);
    return rc;
}

int tm_run_home_fetch(struct tm_env *env, const char *place, const char *dir, struct tm_error *e)
{
    struct tm_objects o;
    int rc = tm_objects_open(env, place, &o, e);
    if (rc != 0) return rc;
    rc = -(int)TM_EINPUT;
    for (int i = 0; rc == -(int)TM_EINPUT && i < TRIES; i++)
        rc = read_books(&o, dir, env, e);
    o.close(o.self);
    if (rc == -(int)TM_ENOTFOUND) return tm_error_set(e, TM_ENOTFOUND, "%s: there are no books of a run", place);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "the books of the run in %s", place);
}

int tm_run_home_where(struct tm_env *env, const char *place, char *out, struct tm_error *e)
{
    struct tm_objects o;
    struct tm_text text;
    int rc = tm_objects_open(env, place, &o, e);
    if (rc != 0) return rc;
    tm_text_init(&text, TM_HOME_WHERE_MAX - 1);
    rc = o.get(o.self, WHERE, &text, NULL, e);
    if (rc == 0) (void)snprintf(out, TM_HOME_WHERE_MAX, "%s", tm_text_string(&text));
    tm_text_deinit(&text);
    o.close(o.self);
    return rc;
}

int tm_run_home_ask_stop(struct tm_env *env, const char *place, bool now, struct tm_error *e)
{
    struct tm_objects o;
    const char *order = now ? "now" : "stop";
    int rc = tm_objects_open(env, place, &o, e);
    if (rc != 0) return rc;
    rc = o.put(o.self, ORDER, order, strlen(order), NULL, NULL, e);
    o.close(o.self);
    return rc;
}

/* ---- away ---- */

bool tm_run_is_away(struct tm_env *env, const char *dir)
{
    char path[TM_STATE_PATH_MAX];
    tm_state_path(dir, TM_STATE_AWAY, path);
    return env->file_exists(env, path);
}

int tm_run_away_place(struct tm_env *env, const char *dir, char *out, struct tm_error *e)
{
    return tm_state_read(env, dir, TM_STATE_AWAY, out, TM_COPY_PLACE_MAX, e);
}

int tm_run_away_write(struct tm_env *env, const char *dir, const char *place, struct tm_error *e)
{
    return tm_state_write(env, dir, TM_STATE_AWAY, place, e);
}

static int write_api(struct tm_env *env, const char *dir, int known, const char *where, struct tm_error *e)
{
    char path[TM_STATE_PATH_MAX];
    char words[TM_HOME_WHERE_MAX];
    struct tm_home_where parts;
    (void)snprintf(words, sizeof words, "%s", known == 0 ? where : "");
    if (known == 0 && tm_home_where_read(words, &parts)) return tm_state_write(env, dir, TM_STATE_API, where, e);
    tm_state_path(dir, TM_STATE_API, path);
    return env->file_remove(env, path, e);
}

int tm_run_away_refresh(struct tm_env *env, const char *dir, struct tm_error *e)
{
    char place[TM_COPY_PLACE_MAX];
    char where[TM_HOME_WHERE_MAX] = "";
    int rc = tm_run_away_place(env, dir, place, e);
    if (rc != 0) return rc;
    int known = tm_run_home_where(env, place, where, e);
    if (known != 0 && known != -(int)TM_ENOTFOUND) return known;
    rc = tm_run_home_fetch(env, place, dir, e); /* after it: one that has ended has its last books */
    int written = write_api(env, dir, known, where, rc == 0 ? e : NULL);
    return rc == 0 ? written : rc;
}

bool tm_run__away_is_live(struct tm_env *env, const char *dir)
{
    char place[TM_COPY_PLACE_MAX];
    char where[TM_HOME_WHERE_MAX] = "";
    char path[TM_STATE_PATH_MAX];
    struct tm_error e;
    int rc = tm_run_away_place(env, dir, place, &e);
    if (rc == 0) rc = tm_run_home_where(env, place, where, &e);
    if (rc == 0) return true;
    if (rc == -(int)TM_ENOTFOUND) {
        (void)tm_run_away_refresh(env, dir, NULL); /* it has ended: its last books */
        return false;
    }
    tm_state_path(dir, TM_STATE_API, path);
    return env->file_exists(env, path);
}

bool tm_home_where_read(char *text, struct tm_home_where *out)
{
    static const char secure[] = "https://";
    const char *words[4];
    char *at = text;
    text[strcspn(text, "\r\n")] = '\0';
    for (int i = 0; i < 4; i++) {
        size_t length = strcspn(at, " ");
        bool last = i == 3;
        if (length == 0 || (at[length] == '\0') != last) return false;
        words[i] = at;
        at[length] = '\0';
        if (!last) at += length + 1;
    }
    if (strncmp(words[0], secure, strlen(secure)) != 0) return false;
    *out = (struct tm_home_where){words[0] + strlen(secure), words[1], words[2], words[3]};
    return true;
}
