#include "worker/copy_files.h"

#include "base/alloc.h"
#include "base/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { FOLDER_MAX = 1024 };

struct order {
    struct order *next;
    bool is_put;
    bool no_room; /* is not even tried */
    uint64_t set;
    uint32_t layer;
    size_t length; /* of data, or the most that is read */
    uint8_t data[];
};

struct tm_copy_files {
    struct tm_env *env;
    char folder[FOLDER_MAX];
    tm_copy_files_done_f done;
    void *context;
    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    struct order *first; /* the one under way stays at the head until it is done */
    uint64_t bytes;      /* of puts that wait */
};

static void path_of(const struct tm_copy_files *files, const struct order *order, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/set-%" PRIu64 "/layer-%" PRIu32 ".tmcopy", files->folder, order->set, order->layer);
}

/* Before it is answered: asked for again because of the answer, it is a new order. */
static void take_out(struct tm_copy_files *files, const struct order *order)
{
    (void)pthread_mutex_lock(&files->lock);
    files->first = order->next;
    if (order->is_put) files->bytes -= order->length;
    (void)pthread_mutex_unlock(&files->lock);
}

static void put(struct tm_copy_files *files, const struct order *order)
{
    char path[FOLDER_MAX + 128];
    struct tm_error e;
    struct tm_copy_file_done done = {.set = order->set, .layer = order->layer, .is_put = true};
    path_of(files, order, path, sizeof path);
    if (files->folder[0] != '\0' && !order->no_room) {
        int rc = files->env->file_write(files->env, path, (const char *)order->data, order->length, &e);
        if (rc != 0) tm_log(TM_LOG_WARN, "a copy is not stored: %s", e.text);
        done.written = rc == 0;
    }
    take_out(files, order);
    files->done(files->context, &done);
}

static void get(struct tm_copy_files *files, const struct order *order)
{
    char path[FOLDER_MAX + 128];
    struct tm_text text;
    struct tm_copy_file_done done = {.set = order->set, .layer = order->layer};
    path_of(files, order, path, sizeof path);
    tm_text_init(&text, order->length);
    int rc = files->env->file_read(files->env, path, &text, NULL);
    bool missing = rc == -(int)TM_ENOTFOUND || rc == -(int)TM_ELIMIT;
    if (rc == 0 || missing) done.data = tm_text_string(&text);
    if (rc == 0) done.length = text.length;
    take_out(files, order);
    files->done(files->context, &done);
    tm_text_deinit(&text);
}

static void *serve(void *argument)
{
    struct tm_copy_files *files = argument;
    (void)pthread_mutex_lock(&files->lock);
    while (!files->stop) {
        struct order *order = files->first;
        if (order == NULL) {
            (void)pthread_cond_wait(&files->changed, &files->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&files->lock);
        if (order->is_put)
            put(files, order);
        else
            get(files, order);
        tm_free(order);
        (void)pthread_mutex_lock(&files->lock);
    }
    (void)pthread_mutex_unlock(&files->lock);
    return NULL;
}

int tm_copy_files_create(struct tm_env *env, const char *folder, tm_copy_files_done_f done, void *context,
                         struct tm_copy_files **out, struct tm_error *e)
{
    if (strlen(folder) >= FOLDER_MAX) return tm_error_set(e, TM_EUSAGE, "the folder for copies has too long a name");
    struct tm_copy_files *files = tm_calloc(1, sizeof *files);
    if (files == NULL) return tm_error_nomem(e);
    files->env = env;
    files->done = done;
    files->context = context;
    (void)snprintf(files->folder, sizeof files->folder, "%s", folder);
    (void)pthread_mutex_init(&files->lock, NULL);
    (void)pthread_cond_init(&files->changed, NULL);
    files->thread_runs = pthread_create(&files->thread, NULL, serve, files) == 0;
    if (!files->thread_runs) {
        tm_copy_files_destroy(files);
        return tm_error_nomem(e);
    }
    *out = files;
    return 0;
}

void tm_copy_files_destroy(struct tm_copy_files *files)
{
    if (files == NULL) return;
    if (files->thread_runs) {
        (void)pthread_mutex_lock(&files->lock);
        files->stop = true;
        (void)pthread_cond_signal(&files->changed);
        (void)pthread_mutex_unlock(&files->lock);
        (void)pthread_join(files->thread, NULL);
    }
    while (files->first != NULL) {
        struct order *order = files->first;
        files->first = order->next;
        tm_free(order);
    }
    (void)pthread_cond_destroy(&files->changed);
    (void)pthread_mutex_destroy(&files->lock);
    tm_free(files);
}

/* Appends an order, unless the same one waits already. */
static void ask(struct tm_copy_files *files, struct order *order)
{
    (void)pthread_mutex_lock(&files->lock);
    struct order **at = &files->first;
    bool same = false;
    for (; *at != NULL; at = &(*at)->next)
        same = same || ((*at)->is_put == order->is_put && (*at)->set == order->set && (*at)->layer == order->layer);
    if (!same) {
        if (order->is_put && files->bytes > 0 && files->bytes + order->length > TM_COPY_FILES_WAITING_MAX)
            order->no_room = true;
        if (order->is_put) files->bytes += order->length;
        *at = order;
        (void)pthread_cond_signal(&files->changed);
    }
    (void)pthread_mutex_unlock(&files->lock);
    if (same) tm_free(order);
}

void tm_copy_files_put(struct tm_copy_files *files, uint64_t set, uint32_t layer, const void *data, size_t length)
{
    struct order *order = tm_alloc(sizeof *order + length);
    if (order == NULL) return; /* it is asked for again */
    *order = (struct order){.is_put = true, .set = set, .layer = layer, .length = length};
    memcpy(order->data, data, length);
    ask(files, order);
}

void tm_copy_files_get(struct tm_copy_files *files, uint64_t set, uint32_t layer, size_t length_max)
{
    struct order *order = tm_alloc(sizeof *order);
    if (order == NULL) return;
    *order = (struct order){.set = set, .layer = layer, .length = length_max};
    ask(files, order);
}
