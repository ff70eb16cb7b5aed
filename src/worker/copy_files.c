#include "worker/copy_files.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/planted.h"

#include <assert.h>
#include <pthread.h>

struct order {
    struct order *next;
    bool is_put;
    bool taken; /* by a thread */
    struct tm_copy_name name;
    struct tm_block *block;     /* a put: owned share */
    struct tm_block_pool *pool; /* a get */
};

struct tm_copy_files {
    struct tm_copy_store *store; /* NULL: none */
    tm_copy_files_done_f done;
    void *context;
    pthread_t threads[TM_COPY_FILES_AT_ONCE];
    size_t thread_count;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    struct order *first; /* those under way stay in the list until they are done */
};

/* ---- one part ---- */

void tm_copy_put(struct tm_copy_store *store, const struct tm_copy_name *name, struct tm_block *block,
                 struct tm_copy_file_done *done, struct tm_error *e)
{
    int rc = store->put(store, name, block, e);
    *done = (struct tm_copy_file_done){.set = name->set,
                                       .layer = name->layer,
                                       .is_put = true,
                                       .written = rc == 0 || TM_PLANTED(put_unchecked),
                                       .full = rc == -(int)TM_EFULL,
                                       .trouble = rc == 0 ? "" : e->text};
}

void tm_copy_get(struct tm_copy_store *store, uint64_t set, uint32_t layer, uint64_t size, struct tm_block_pool *pool,
                 struct tm_copy_file_done *done, struct tm_error *e)
{
    *done = (struct tm_copy_file_done){.set = set, .layer = layer, .got = {.state = TM_COPY_LATER}, .trouble = ""};
    int rc = store->get(store, set, layer, size, pool, &done->got.name, &done->got.block, e);
    if (rc == 0) done->got.state = TM_COPY_GOOD;
    if (rc == -(int)TM_ENOTFOUND || rc == -(int)TM_EINPUT) done->got.state = TM_COPY_BAD;
    if (done->got.state == TM_COPY_LATER) done->trouble = e->text;
}

void tm_copy_tell(struct tm_worker *worker, int64_t now_ms, const struct tm_copy_file_done *done, struct tm_outbox *out)
{
    tm_worker__file_trouble(worker, done->full, done->trouble);
    if (done->is_put)
        tm_worker__file_put(worker, now_ms, done->set, done->layer, done->written, out);
    else
        tm_worker__file_got(worker, now_ms, done->set, done->layer, &done->got, out);
}

/* ---- the threads ---- */

/* Before it is answered: asked for again because of the answer, it is a new order. */
static void take_out(struct tm_copy_files *files, struct order *order)
{
    (void)pthread_mutex_lock(&files->lock);
    struct order **at = &files->first;
    while (*at != order) {
        assert(*at != NULL);
        at = &(*at)->next;
    }
    *at = order->next;
    (void)pthread_mutex_unlock(&files->lock);
}

static void carry_out(struct tm_copy_files *files, struct order *order)
{
    assert(order->taken && order->is_put == (order->block != NULL));
    const struct tm_copy_name *name = &order->name;
    struct tm_error e = {.text = ""};
    struct tm_copy_file_done done = {.set = name->set,
                                     .layer = name->layer,
                                     .is_put = order->is_put,
                                     .trouble = "this worker was given no folder for copies"};
    if (files->store != NULL && order->is_put) tm_copy_put(files->store, name, order->block, &done, &e);
    if (files->store != NULL && !order->is_put)
        tm_copy_get(files->store, name->set, name->layer, name->size, order->pool, &done, &e);
    if (e.text[0] != '\0') tm_log(TM_LOG_WARN, "a copy could not be %s: %s", order->is_put ? "stored" : "read", e.text);
    take_out(files, order);
    files->done(files->context, &done);
    tm_block_release(order->block);
    tm_free(order);
}

static void *serve(void *argument)
{
    struct tm_copy_files *files = argument;
    (void)pthread_mutex_lock(&files->lock);
    while (!files->stop) {
        struct order *order = files->first;
        while (order != NULL && order->taken)
            order = order->next;
        if (order == NULL) {
            (void)pthread_cond_wait(&files->changed, &files->lock);
            continue;
        }
        order->taken = true;
        (void)pthread_mutex_unlock(&files->lock);
        carry_out(files, order);
        (void)pthread_mutex_lock(&files->lock);
    }
    (void)pthread_mutex_unlock(&files->lock);
    return NULL;
}

/* ---- the caller ---- */

int tm_copy_files_create(struct tm_copy_store *store, tm_copy_files_done_f done, void *context,
                         struct tm_copy_files **out, struct tm_error *e)
{
    assert(done != NULL);
    struct tm_copy_files *files = tm_calloc(1, sizeof *files);
    if (files == NULL) return tm_error_nomem(e);
    files->store = store;
    files->done = done;
    files->context = context;
    (void)pthread_mutex_init(&files->lock, NULL);
    (void)pthread_cond_init(&files->changed, NULL);
    while (files->thread_count < TM_COPY_FILES_AT_ONCE &&
           pthread_create(&files->threads[files->thread_count], NULL, serve, files) == 0)
        files->thread_count++;
    if (files->thread_count == 0) { /* fewer than wanted is slower, no more */
        tm_copy_files_destroy(files);
        return tm_error_nomem(e);
    }
    *out = files;
    return 0;
}

void tm_copy_files_destroy(struct tm_copy_files *files)
{
    if (files == NULL) return;
    (void)pthread_mutex_lock(&files->lock);
    files->stop = true;
    (void)pthread_cond_broadcast(&files->changed);
    (void)pthread_mutex_unlock(&files->lock);
    for (size_t i = 0; i < files->thread_count; i++)
        (void)pthread_join(files->threads[i], NULL);
    while (files->first != NULL) {
        struct order *order = files->first;
        files->first = order->next;
        tm_block_release(order->block);
        tm_free(order);
    }
    (void)pthread_cond_destroy(&files->changed);
    (void)pthread_mutex_destroy(&files->lock);
    tm_free(files);
}

/* Appends a copy of the order, unless the same one waits already. Without memory it is asked for again. */
static void ask(struct tm_copy_files *files, const struct order *wanted)
{
    struct order *order = tm_alloc(sizeof *order);
    bool same = order == NULL;
    if (order != NULL) *order = *wanted;
    (void)pthread_mutex_lock(&files->lock);
    struct order **at = &files->first;
    for (; *at != NULL; at = &(*at)->next)
        same = same || ((*at)->is_put == wanted->is_put && (*at)->name.set == wanted->name.set &&
                        (*at)->name.layer == wanted->name.layer);
    if (!same) {
        *at = order;
        (void)pthread_cond_signal(&files->changed);
    }
    (void)pthread_mutex_unlock(&files->lock);
    if (!same) return;
    tm_block_release(wanted->block);
    tm_free(order);
}

void tm_copy_files_put(struct tm_copy_files *files, const struct tm_copy_name *name, struct tm_block *block)
{
    assert(name->set > 0 && block != NULL && block->size == name->size);
    ask(files, &(struct order){.is_put = true, .name = *name, .block = block});
}

void tm_copy_files_get(struct tm_copy_files *files, uint64_t set, uint32_t layer, uint64_t size,
                       struct tm_block_pool *pool)
{
    assert(set > 0 && pool != NULL);
    ask(files, &(struct order){.name = {.set = set, .layer = layer, .size = size}, .pool = pool});
}
