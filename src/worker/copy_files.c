#include "worker/copy_files.h"

#include "base/alloc.h"
#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { FOLDER_MAX = 1024 };

struct order {
    struct order *next;
    bool is_put;
    bool taken; /* by a thread */
    struct tm_copy_name name;
    struct tm_block *block;     /* a put: owned share */
    struct tm_block_pool *pool; /* a get */
};

struct tm_copy_files {
    struct tm_env *env;
    char folder[FOLDER_MAX];
    uint64_t job;        /* 0: any */
    atomic_bool is_ours; /* the folder was looked at */
    tm_copy_files_done_f done;
    void *context;
    pthread_t threads[TM_COPY_FILES_AT_ONCE];
    size_t thread_count;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    struct order *first; /* those under way stay in the list until they are done */
    atomic_bool told_buffered;
};

/* ---- the threads ---- */

/* Before it is answered: asked for again because of the answer, it is a new order. */
static void take_out(struct tm_copy_files *files, struct order *order)
{
    (void)pthread_mutex_lock(&files->lock);
    struct order **at = &files->first;
    while (*at != order)
        at = &(*at)->next;
    *at = order->next;
    (void)pthread_mutex_unlock(&files->lock);
}

static int check_folder(struct tm_copy_files *files, struct tm_error *e)
{
    if (files->job == 0 || atomic_load(&files->is_ours)) return 0;
    int rc = tm_copy_folder_check(files->env, files->folder, files->job, e);
    if (rc == 0) atomic_store(&files->is_ours, true);
    return rc;
}

static void put(struct tm_copy_files *files, const struct order *order, const char *path,
                struct tm_copy_file_done *done, struct tm_error *e)
{
    bool direct = true;
    int rc = check_folder(files, e);
    if (rc == 0) rc = tm_copy_file_write(files->env, path, &order->name, order->block, &direct, e);
    done->written = rc == 0;
    done->full = rc == -(int)TM_EFULL;
    if (rc == -(int)TM_EFULL) (void)tm_error_set(e, TM_EFULL, "disk full: %s cannot be written", path);
    if (rc != 0) done->trouble = e->text;
    if (rc != 0) tm_log(TM_LOG_WARN, "a copy is not stored: %s", e->text);
    if (rc == 0 && !direct && !atomic_exchange(&files->told_buffered, true))
        tm_log(TM_LOG_WARN,
               "%s: the file system does not do O_DIRECT: copies go through the page cache, which is slower",
               files->folder);
}

static void get(struct tm_copy_files *files, const struct order *order, const char *path,
                struct tm_copy_file_done *done, struct tm_error *e)
{
    uint64_t newest = 0;
    done->file = tm_copy_file_read(files->env, path, order->name.size, order->pool, e);
    if (done->file.state == TM_COPY_FILE_GOOD) return;
    tm_log(TM_LOG_WARN, "a copy is not read: %s", e->text);
    /* Where there are whole sets, `newest` names one. If it is not there, the file is not damaged: the folder is. */
    struct tm_error why;
    int rc = tm_copy_newest_set(files->env, files->folder, &newest, &why);
    if (done->file.state == TM_COPY_FILE_BAD && rc != 0 && rc != -(int)TM_EINPUT) {
        done->file.state = TM_COPY_FILE_LATER;
        (void)tm_error_set(e, TM_EIO, "the folder for copies is not what it was: %s", why.text);
    }
    if (done->file.state == TM_COPY_FILE_LATER) done->trouble = e->text;
}

static void carry_out(struct tm_copy_files *files, struct order *order)
{
    char path[FOLDER_MAX + 128];
    struct tm_error e = {.text = ""};
    struct tm_copy_file_done done = {
        .set = order->name.set, .layer = order->name.layer, .is_put = order->is_put, .trouble = ""};
    tm_copy_file_path(files->folder, order->name.set, order->name.layer, path, sizeof path);
    if (order->is_put && files->folder[0] != '\0') put(files, order, path, &done, &e);
    if (order->is_put && files->folder[0] == '\0') done.trouble = "this worker was given no folder for copies";
    if (!order->is_put) get(files, order, path, &done, &e);
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

int tm_copy_files_create(struct tm_env *env, const char *folder, uint64_t job, tm_copy_files_done_f done, void *context,
                         struct tm_copy_files **out, struct tm_error *e)
{
    if (strlen(folder) >= FOLDER_MAX) return tm_error_set(e, TM_EUSAGE, "the folder for copies has too long a name");
    struct tm_copy_files *files = tm_calloc(1, sizeof *files);
    if (files == NULL) return tm_error_nomem(e);
    files->env = env;
    files->job = job;
    files->done = done;
    files->context = context;
    (void)snprintf(files->folder, sizeof files->folder, "%s", folder);
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
    ask(files, &(struct order){.is_put = true, .name = *name, .block = block});
}

void tm_copy_files_get(struct tm_copy_files *files, uint64_t set, uint32_t layer, uint64_t size,
                       struct tm_block_pool *pool)
{
    ask(files, &(struct order){.name = {.set = set, .layer = layer, .size = size}, .pool = pool});
}
