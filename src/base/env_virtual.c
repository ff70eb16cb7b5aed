#include "base/env_virtual.h"

#include "base/alloc.h"
#include "base/random.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ENTRIES_MAX = 16384,
    QUEUE_BYTES_MAX = 1 << 16,
    FILE_BYTES_MAX = 1 << 28,
    SELF_PID = 1000000,
    NAME_BYTES = 256, /* of a file in its folder */
    LOCKS_MAX = 16,
    SILENT_MAX = 16
};

struct entry { /* a file or a variable */
    char *name;
    unsigned mode;
    struct tm_text content;
};

enum socket_state {
    SOCKET_FREE,
    SOCKET_LISTENING,
    SOCKET_WAITING,
    SOCKET_OPEN,
    SOCKET_CUT,
    SOCKET_PROCESS,
    SOCKET_CONNECTING
};

struct virtual_socket { /* handle = index + 1 */
    enum socket_state state;
    char address[TM_ADDRESS_MAX];
    int peer;          /* index of the other end, -1 once it closed; SOCKET_PROCESS: the pid */
    int accepted_by;   /* SOCKET_WAITING: index of the listener */
    struct tm_text in; /* bytes that came and were not read */
    int64_t due_ns;    /* SOCKET_CONNECTING: when the outcome is known */
    const char *why;   /* SOCKET_CUT: there was no connection, because; NULL: there was one */
};

struct virtual_process { /* pid = index + 1 */
    bool ended;
    bool waited;
    int status;
    int last_signal;
    bool group;
    int output;               /* the end of a pair that it writes to; 0: nobody listens */
    int64_t files_max;        /* that process_limit_files said */
    struct tm_text variables; /* each followed by a NUL */
};

struct world {
    pthread_mutex_t files_lock;
    int64_t now_ns;
    struct tm_random random;
    struct entry *files;
    size_t file_count;
    size_t file_capacity;
    struct entry *variables;
    size_t variable_count;
    size_t variable_capacity;
    struct virtual_socket *sockets;
    size_t socket_count;
    size_t socket_capacity;
    struct virtual_process *processes;
    size_t process_count;
    size_t process_capacity;
    long fail_write_at;
    int next_port;
    int64_t connect_ms;
    char silent[SILENT_MAX][TM_ADDRESS_MAX];
    size_t silent_count;
    char *locks[LOCKS_MAX]; /* by handle: the path that is locked; NULL: free */
};

static struct world *world_of(struct tm_env *env)
{
    return env->self;
}

/* ---- clock, randomness ---- */

static int64_t virtual_now_ms(struct tm_env *env)
{
    return world_of(env)->now_ns / 1000000;
}

static int64_t virtual_monotonic_ns(struct tm_env *env)
{
    return world_of(env)->now_ns;
}

/* Whatever happens here takes time because it was work. */
static int64_t virtual_processor_ns(struct tm_env *env)
{
    return world_of(env)->now_ns;
}

void tm_env_virtual_advance(struct tm_env *env, int64_t ms)
{
    world_of(env)->now_ns += ms * 1000000;
}

static uint64_t virtual_random_u64(struct tm_env *env)
{
    return tm_random_u64(&world_of(env)->random);
}

/* ---- entries ---- */

static struct entry *find_entry(struct entry *entries, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(entries[i].name, name) == 0) return &entries[i];
    }
    return NULL;
}

static struct entry *add_entry(struct entry **entries, size_t *count, size_t *capacity, const char *name)
{
    void *array = *entries;
    int rc = tm_grow(&array, capacity, *count + 1, sizeof **entries, ENTRIES_MAX);
    *entries = array;
    char *copy = rc == 0 ? tm_strndup(name, strlen(name)) : NULL;
    if (copy == NULL) return NULL;
    struct entry *entry = &(*entries)[(*count)++];
    entry->name = copy;
    entry->mode = 0;
    tm_text_init(&entry->content, FILE_BYTES_MAX);
    return entry;
}

static void drop_entry(struct entry *entries, size_t *count, struct entry *entry)
{
    tm_free(entry->name);
    tm_text_deinit(&entry->content);
    *entry = entries[--*count];
}

/* ---- variables ---- */

static const char *virtual_variable(struct tm_env *env, const char *name)
{
    struct world *world = world_of(env);
    struct entry *entry = find_entry(world->variables, world->variable_count, name);
    return entry == NULL ? NULL : tm_text_string(&entry->content);
}

int tm_env_virtual_set_variable(struct tm_env *env, const char *name, const char *value)
{
    struct world *world = world_of(env);
    struct entry *entry = find_entry(world->variables, world->variable_count, name);
    if (value == NULL) {
        if (entry != NULL) drop_entry(world->variables, &world->variable_count, entry);
        return 0;
    }
    if (entry == NULL) entry = add_entry(&world->variables, &world->variable_count, &world->variable_capacity, name);
    if (entry == NULL) return -(int)TM_ENOMEM;
    tm_text_clear(&entry->content);
    tm_text_puts(&entry->content, value);
    return tm_text_status(&entry->content, NULL);
}

/* ---- files ---- */

static int read_file(struct world *world, const char *path, struct tm_text *out, struct tm_error *e)
{
    struct entry *file = find_entry(world->files, world->file_count, path);
    if (file == NULL) return tm_error_errno(e, ENOENT, "%s", path);
    tm_text_append(out, tm_text_string(&file->content), file->content.length);
    int rc = tm_text_status(out, e);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "%s", path);
}

static int write_file(struct world *world, const char *path, unsigned mode, const struct tm_part *parts, size_t count,
                      struct tm_error *e)
{
    if (world->fail_write_at > 0 && --world->fail_write_at == 0) return tm_error_errno(e, ENOSPC, "writing %s", path);
    struct tm_text content; /* made whole before it replaces the old one */
    tm_text_init(&content, FILE_BYTES_MAX);
    for (size_t i = 0; i < count; i++)
        tm_text_append(&content, parts[i].data, parts[i].length);
    int rc = tm_text_status(&content, e);
    struct entry *file = find_entry(world->files, world->file_count, path);
    if (rc == 0 && file == NULL) file = add_entry(&world->files, &world->file_count, &world->file_capacity, path);
    if (rc == 0 && file == NULL) rc = tm_error_nomem(e);
    if (rc != 0) {
        tm_text_deinit(&content);
        return tm_error_wrap(e, rc, "writing %s", path);
    }
    tm_text_deinit(&file->content);
    file->content = content;
    file->mode = mode;
    return 0;
}

/* A copy, so that it lasts when the file is written anew. */
static int map_file(struct world *world, const char *path, const void **out_data, size_t *out_length,
                    struct tm_error *e)
{
    struct entry *file = find_entry(world->files, world->file_count, path);
    if (file == NULL) return tm_error_errno(e, ENOENT, "%s", path);
    void *copy = tm_strndup(tm_text_string(&file->content), file->content.length);
    if (copy == NULL) return tm_error_nomem(e);
    *out_data = copy;
    *out_length = file->content.length;
    return 0;
}

/* Files may be used by several threads, as on a real machine. */
static int virtual_file_read(struct tm_env *env, const char *path, struct tm_text *out, struct tm_error *e)
{
    struct world *world = world_of(env);
    (void)pthread_mutex_lock(&world->files_lock);
    int rc = read_file(world, path, out, e);
    (void)pthread_mutex_unlock(&world->files_lock);
    return rc;
}

static int write_with_mode(struct tm_env *env, const char *path, unsigned mode, const struct tm_part *parts,
                           size_t count, struct tm_error *e)
{
    struct world *world = world_of(env);
    (void)pthread_mutex_lock(&world->files_lock);
    int rc = write_file(world, path, mode, parts, count, e);
    (void)pthread_mutex_unlock(&world->files_lock);
    return rc;
}

static int virtual_file_write_parts(struct tm_env *env, const char *path, const struct tm_part *parts, size_t count,
                                    struct tm_error *e)
{
    return write_with_mode(env, path, 0644, parts, count, e);
}

static int virtual_file_write_mode(struct tm_env *env, const char *path, unsigned mode, const char *data, size_t length,
                                   struct tm_error *e)
{
    struct tm_part part = {.data = data, .length = length};
    return write_with_mode(env, path, mode, &part, 1, e);
}

static int virtual_file_write_private(struct tm_env *env, const char *path, const char *data, size_t length,
                                      struct tm_error *e)
{
    return virtual_file_write_mode(env, path, 0600, data, length, e);
}

unsigned tm_env_virtual__file_mode(struct tm_env *env, const char *path)
{
    struct world *world = world_of(env);
    (void)pthread_mutex_lock(&world->files_lock);
    struct entry *file = find_entry(world->files, world->file_count, path);
    unsigned mode = file == NULL ? 0 : file->mode;
    (void)pthread_mutex_unlock(&world->files_lock);
    return mode;
}

static int virtual_file_write(struct tm_env *env, const char *path, const char *data, size_t length, struct tm_error *e)
{
    struct tm_part part = {.data = data, .length = length};
    return virtual_file_write_parts(env, path, &part, 1, e);
}

static int virtual_file_write_blocks(struct tm_env *env, const char *path, const void *data, size_t length,
                                     bool *out_direct, struct tm_error *e)
{
    struct tm_part part = {.data = data, .length = length};
    *out_direct = true;
    return write_with_mode(env, path, 0600, &part, 1, e);
}

static int virtual_file_read_blocks(struct tm_env *env, const char *path, void *data, size_t room, tm_piece_f piece,
                                    void *context, size_t *out_length, struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, room);
    int rc = virtual_file_read(env, path, &text, e);
    if (rc == 0 && text.length > 0) memcpy(data, text.data, text.length);
    if (rc == 0 && text.length > 0) rc = piece(context, data, text.length, e);
    if (rc == 0) *out_length = text.length;
    tm_text_deinit(&text);
    return rc;
}

static int virtual_file_remove(struct tm_env *env, const char *path, struct tm_error *e)
{
    (void)e;
    struct world *world = world_of(env);
    (void)pthread_mutex_lock(&world->files_lock);
    struct entry *file = find_entry(world->files, world->file_count, path);
    if (file != NULL) drop_entry(world->files, &world->file_count, file);
    (void)pthread_mutex_unlock(&world->files_lock);
    return 0;
}

static int virtual_file_lock(struct tm_env *env, const char *path, int *out_handle, struct tm_error *e)
{
    struct world *world = world_of(env);
    int place = -1;
    for (int i = 0; i < LOCKS_MAX; i++) {
        if (world->locks[i] == NULL)
            place = i;
        else if (strcmp(world->locks[i], path) == 0)
            return tm_error_set(e, TM_EBUSY, "%s: in use by another process", path);
    }
    if (place < 0) return tm_error_set(e, TM_ELIMIT, "%s: too many locks", path);
    world->locks[place] = tm_strndup(path, strlen(path));
    if (world->locks[place] == NULL) return tm_error_nomem(e);
    *out_handle = place;
    return 0;
}

static void virtual_file_unlock(struct tm_env *env, int handle)
{
    struct world *world = world_of(env);
    tm_free(world->locks[handle]);
    world->locks[handle] = NULL;
}

/* Is an earlier file in the folder that the first bytes of this name are? */
static bool is_again(const struct world *world, size_t before, const char *name, size_t length)
{
    for (size_t i = 0; i < before; i++)
        if (strncmp(world->files[i].name, name, length) == 0 && world->files[i].name[length] == '/') return true;
    return false;
}

/* There are no folders here but in files' names; those are given, too. `take` must not reach for files itself. */
static int virtual_folder_each(struct tm_env *env, const char *path, tm_name_f take, void *context, struct tm_error *e)
{
    struct world *world = world_of(env);
    size_t length = strlen(path);
    size_t seen = 0;
    int rc = 0;
    (void)pthread_mutex_lock(&world->files_lock);
    for (size_t i = 0; rc == 0 && i < world->file_count; i++) {
        const char *name = world->files[i].name;
        if (strncmp(name, path, length) != 0 || name[length] != '/') continue;
        seen++;
        char own[NAME_BYTES];
        size_t end = length + 1 + strcspn(name + length + 1, "/");
        if (name[end] == '/' && is_again(world, i, name, end)) continue;
        (void)snprintf(own, sizeof own, "%.*s", (int)(end - length - 1), name + length + 1);
        rc = take(context, own, e);
    }
    (void)pthread_mutex_unlock(&world->files_lock);
    return rc == 0 && seen == 0 ? tm_error_errno(e, ENOENT, "%s", path) : rc;
}

static int virtual_folder_make(struct tm_env *env, const char *path, struct tm_error *e)
{
    (void)env;
    (void)path;
    (void)e;
    return 0;
}

static bool virtual_file_exists(struct tm_env *env, const char *path);

static int virtual_file_read_at(struct tm_env *env, const char *path, int64_t offset, void *buffer, size_t room,
                                size_t *out_length, int64_t *out_size, struct tm_error *e)
{
    struct world *world = world_of(env);
    (void)pthread_mutex_lock(&world->files_lock);
    struct entry *file = find_entry(world->files, world->file_count, path);
    if (file != NULL) {
        size_t size = file->content.length;
        size_t left = offset < (int64_t)size ? size - (size_t)offset : 0;
        *out_length = left < room ? left : room;
        *out_size = (int64_t)size;
        if (*out_length > 0) memcpy(buffer, file->content.data + offset, *out_length);
    }
    (void)pthread_mutex_unlock(&world->files_lock);
    return file != NULL ? 0 : tm_error_errno(e, ENOENT, "%s", path);
}

static int virtual_file_extend(struct tm_env *env, const char *path, int64_t offset, const void *data, size_t length,
                               struct tm_error *e)
{
    struct tm_text text;
    tm_text_init(&text, 1 << 28);
    int rc = virtual_file_exists(env, path) ? virtual_file_read(env, path, &text, e) : 0;
    size_t before = text.length < (size_t)offset ? text.length : (size_t)offset;
    struct tm_part parts[] = {{.data = text.data, .length = before}, {.data = data, .length = length}};
    if (rc == 0) rc = write_with_mode(env, path, 0600, parts, 2, e);
    tm_text_deinit(&text);
    return rc;
}

/* There are none here. */
static bool virtual_file_is_link(struct tm_env *env, const char *path)
{
    (void)env;
    (void)path;
    return false;
}

static bool virtual_file_exists(struct tm_env *env, const char *path)
{
    struct world *world = world_of(env);
    (void)pthread_mutex_lock(&world->files_lock);
    bool exists = find_entry(world->files, world->file_count, path) != NULL;
    (void)pthread_mutex_unlock(&world->files_lock);
    return exists;
}

static int virtual_file_map(struct tm_env *env, const char *path, const void **out_data, size_t *out_length,
                            struct tm_error *e)
{
    struct world *world = world_of(env);
    (void)pthread_mutex_lock(&world->files_lock);
    int rc = map_file(world, path, out_data, out_length, e);
    (void)pthread_mutex_unlock(&world->files_lock);
    return rc;
}

static void virtual_file_unmap(struct tm_env *env, const void *data, size_t length)
{
    (void)env;
    (void)length;
    union { /* ours since virtual_file_map */
        const void *given;
        void *taken;
    } address = {.given = data};
    tm_free(address.taken);
}

void tm_env_virtual_fail_write_at(struct tm_env *env, long n)
{
    world_of(env)->fail_write_at = n;
}

/* ---- network ---- */

static struct virtual_socket *socket_of(struct world *world, int handle)
{
    if (handle < 1 || (size_t)handle > world->socket_count) return NULL;
    struct virtual_socket *found = &world->sockets[handle - 1];
    return found->state == SOCKET_FREE ? NULL : found;
}

static int add_socket(struct world *world, enum socket_state state, int *out_handle, struct tm_error *e)
{
    size_t free_at = 0; /* numbers are used again, as real ones are */
    while (free_at < world->socket_count && world->sockets[free_at].state != SOCKET_FREE)
        free_at++;
    void *array = world->sockets;
    int rc = tm_grow(&array, &world->socket_capacity, free_at + 1, sizeof *world->sockets, ENTRIES_MAX);
    world->sockets = array;
    if (rc != 0) return tm_error_set(e, (enum tm_code) - rc, "no room for another connection");
    struct virtual_socket *fresh = &world->sockets[free_at];
    if (free_at == world->socket_count) world->socket_count++;
    *fresh = (struct virtual_socket){.state = state, .peer = -1, .accepted_by = -1};
    tm_text_init(&fresh->in, QUEUE_BYTES_MAX);
    *out_handle = (int)free_at + 1;
    return 0;
}

static int virtual_net_listen(struct tm_env *env, const char *address, int *out_handle, char bound[TM_ADDRESS_MAX],
                              struct tm_error *e)
{
    struct world *world = world_of(env);
    char full[TM_ADDRESS_MAX];
    size_t length = strlen(address);
    if (length > 2 && strcmp(address + length - 2, ":0") == 0)
        (void)snprintf(full, sizeof full, "%.*s:%d", (int)(length - 2), address, ++world->next_port);
    else
        (void)snprintf(full, sizeof full, "%s", address);
    for (size_t i = 0; i < world->socket_count; i++) {
        if (world->sockets[i].state == SOCKET_LISTENING && strcmp(world->sockets[i].address, full) == 0)
            return tm_error_errno(e, EADDRINUSE, "listening on %s", full);
    }
    int rc = add_socket(world, SOCKET_LISTENING, out_handle, e);
    if (rc != 0) return rc;
    memcpy(world->sockets[*out_handle - 1].address, full, sizeof full);
    memcpy(bound, full, sizeof full);
    return 0;
}

static int find_listener(const struct world *world, const char *address) /* its index; -1: nobody listens there */
{
    for (size_t i = 0; i < world->socket_count; i++)
        if (world->sockets[i].state == SOCKET_LISTENING && strcmp(world->sockets[i].address, address) == 0)
            return (int)i;
    return -1;
}

static int connect_pair(struct world *world, int listener, int near, struct tm_error *e)
{
    int far = 0;
    int rc = add_socket(world, SOCKET_WAITING, &far, e);
    if (rc != 0) return rc;
    world->sockets[near - 1].state = SOCKET_OPEN;
    world->sockets[near - 1].peer = far - 1;
    world->sockets[far - 1].peer = near - 1;
    world->sockets[far - 1].accepted_by = listener;
    return 0;
}

static bool never_answers(const struct world *world, const char *address)
{
    for (size_t i = 0; i < world->silent_count; i++)
        if (strcmp(world->silent[i], address) == 0) return true;
    return false;
}

static int virtual_net_connect(struct tm_env *env, const char *address, int *out_handle, struct tm_error *e)
{
    struct world *world = world_of(env);
    int64_t takes_ms = never_answers(world, address) ? TM_CONNECT_LIMIT_MS : world->connect_ms;
    int listener = find_listener(world, address);
    int near = 0;
    if (takes_ms == 0 && listener < 0)
        return tm_error_set(e, TM_EPEER, "connecting to %s: connection refused", address);
    int rc = add_socket(world, SOCKET_CONNECTING, &near, e);
    if (rc != 0) return rc;
    struct virtual_socket *fresh = &world->sockets[near - 1];
    (void)snprintf(fresh->address, sizeof fresh->address, "%s", address);
    fresh->due_ns = world->now_ns + takes_ms * 1000000;
    if (takes_ms == 0) rc = connect_pair(world, listener, near, e);
    if (rc != 0) world->sockets[near - 1].state = SOCKET_FREE;
    if (rc == 0) *out_handle = near;
    return rc;
}

/* Connections whose time has come are made, or not. */
static void settle(struct world *world)
{
    for (size_t i = 0; i < world->socket_count; i++) {
        struct virtual_socket *made = &world->sockets[i];
        if (made->state != SOCKET_CONNECTING || world->now_ns < made->due_ns) continue;
        bool silent = never_answers(world, made->address);
        int listener = find_listener(world, made->address);
        if (!silent && listener >= 0 && connect_pair(world, listener, (int)i + 1, NULL) == 0) continue;
        made = &world->sockets[i]; /* there may be more room for sockets now, elsewhere */
        made->state = SOCKET_CUT;
        made->why = silent ? "no answer in time" : "connection refused";
    }
}

void tm_env_virtual_set_connect_ms(struct tm_env *env, int64_t ms)
{
    world_of(env)->connect_ms = ms;
}

void tm_env_virtual_never_answer(struct tm_env *env, const char *address)
{
    struct world *world = world_of(env);
    assert(world->silent_count < SILENT_MAX);
    (void)snprintf(world->silent[world->silent_count++], TM_ADDRESS_MAX, "%s", address);
}

static int lost(const struct virtual_socket *gone, const char *what, struct tm_error *e)
{
    if (gone != NULL && gone->why != NULL)
        return tm_error_set(e, TM_EPEER, "connecting to %s: %s", gone->address, gone->why);
    return tm_error_set(e, TM_EPEER, "%s: connection lost", what);
}

static int find_waiting(const struct world *world, int listener)
{
    for (size_t i = 0; i < world->socket_count; i++) {
        if (world->sockets[i].state == SOCKET_WAITING && world->sockets[i].accepted_by == listener - 1) return (int)i;
    }
    return -1;
}

static int virtual_net_accept(struct tm_env *env, int listener, int *out_handle, struct tm_error *e)
{
    struct world *world = world_of(env);
    settle(world);
    int waiting = find_waiting(world, listener);
    if (waiting < 0) return tm_error_set(e, TM_EBUSY, "accept would block");
    world->sockets[waiting].state = SOCKET_OPEN;
    *out_handle = waiting + 1;
    return 0;
}

static int virtual_net_send(struct tm_env *env, int handle, const void *data, size_t length, size_t *out_sent,
                            struct tm_error *e)
{
    struct world *world = world_of(env);
    settle(world);
    struct virtual_socket *from = socket_of(world, handle);
    if (from != NULL && from->state == SOCKET_CONNECTING) return tm_error_set(e, TM_EBUSY, "send would block");
    if (from == NULL || from->state == SOCKET_CUT || from->peer < 0) return lost(from, "send", e);
    struct tm_text *queue = &world->sockets[from->peer].in;
    size_t room = queue->max - queue->length;
    if (room == 0) return tm_error_set(e, TM_EBUSY, "send would block");
    size_t sent = length < room ? length : room;
    tm_text_append(queue, data, sent);
    int rc = tm_text_status(queue, e);
    if (rc == 0) *out_sent = sent;
    return rc;
}

static int virtual_net_receive(struct tm_env *env, int handle, void *buffer, size_t size, size_t *out_received,
                               struct tm_error *e)
{
    struct world *world = world_of(env);
    settle(world);
    struct virtual_socket *to = socket_of(world, handle);
    if (to == NULL || to->state == SOCKET_CUT) return lost(to, "receive", e);
    if (to->state == SOCKET_CONNECTING || (to->in.length == 0 && to->peer >= 0))
        return tm_error_set(e, TM_EBUSY, "receive would block");
    size_t taken = size < to->in.length ? size : to->in.length;
    if (taken > 0) {
        memcpy(buffer, to->in.data, taken);
        memmove(to->in.data, to->in.data + taken, to->in.length - taken);
        to->in.length -= taken;
    }
    *out_received = taken;
    return 0;
}

static bool can_receive(struct world *world, int handle)
{
    struct virtual_socket *asked = socket_of(world, handle);
    if (asked == NULL) return true;
    if (asked->state == SOCKET_CONNECTING) return false;
    if (asked->state == SOCKET_PROCESS) return world->processes[asked->peer - 1].ended;
    if (asked->state == SOCKET_LISTENING) return find_waiting(world, handle) >= 0;
    return asked->state == SOCKET_CUT || asked->in.length > 0 || asked->peer < 0;
}

static bool can_send(struct world *world, int handle)
{
    struct virtual_socket *asked = socket_of(world, handle);
    if (asked == NULL) return true;
    if (asked->state == SOCKET_CONNECTING || asked->state == SOCKET_PROCESS || asked->state == SOCKET_LISTENING)
        return false;
    if (asked->state == SOCKET_CUT || asked->peer < 0) return true;
    const struct tm_text *queue = &world->sockets[asked->peer].in;
    return queue->length < queue->max;
}

static bool look(struct world *world, struct tm_watch *watches, size_t count)
{
    bool any = false;
    settle(world);
    for (size_t i = 0; i < count; i++) {
        struct tm_watch *w = &watches[i];
        w->can_receive = w->want != TM_WATCH_SEND && can_receive(world, w->handle);
        w->can_send = w->want != TM_WATCH_RECEIVE && can_send(world, w->handle);
        w->ready = w->can_receive || w->can_send;
        any = any || w->ready;
    }
    return any;
}

/* The time passes, but not beyond the next connection's outcome. */
static void pass_time(struct world *world, int64_t end_ns)
{
    for (size_t i = 0; i < world->socket_count; i++) {
        const struct virtual_socket *made = &world->sockets[i];
        if (made->state == SOCKET_CONNECTING && made->due_ns < end_ns) end_ns = made->due_ns;
    }
    world->now_ns = end_ns;
}

static int virtual_net_watch(struct tm_env *env, struct tm_watch *watches, size_t count, int64_t timeout_ms,
                             struct tm_error *e)
{
    struct world *world = world_of(env);
    int64_t end_ns = world->now_ns + (timeout_ms > 0 ? timeout_ms : 0) * 1000000;
    for (;;) {
        if (look(world, watches, count)) return 0;
        if (world->now_ns >= end_ns) break;
        pass_time(world, end_ns);
    }
    return tm_error_set(e, TM_ETIMEOUT, "nothing arrived within %lld ms", (long long)timeout_ms);
}

static int virtual_net_wait(struct tm_env *env, const int *handles, size_t count, int64_t timeout_ms, bool *out_ready,
                            struct tm_error *e)
{
    enum { WAIT_HANDLES_MAX = 256 };
    struct tm_watch watches[WAIT_HANDLES_MAX];
    if (count > WAIT_HANDLES_MAX)
        return tm_error_set(e, TM_ELIMIT, "waiting for %zu connections, more than %d", count, WAIT_HANDLES_MAX);
    for (size_t i = 0; i < count; i++)
        watches[i] = (struct tm_watch){.handle = handles[i]};
    int rc = virtual_net_watch(env, watches, count, timeout_ms, e);
    for (size_t i = 0; i < count; i++)
        out_ready[i] = watches[i].ready;
    return rc;
}

static int virtual_net_pair(struct tm_env *env, int out_handles[2], struct tm_error *e)
{
    struct world *world = world_of(env);
    int rc = add_socket(world, SOCKET_OPEN, &out_handles[0], e);
    if (rc != 0) return rc;
    rc = add_socket(world, SOCKET_OPEN, &out_handles[1], e);
    if (rc != 0) {
        world->sockets[out_handles[0] - 1].state = SOCKET_FREE;
        return rc;
    }
    world->sockets[out_handles[0] - 1].peer = out_handles[1] - 1;
    world->sockets[out_handles[1] - 1].peer = out_handles[0] - 1;
    return 0;
}

static int virtual_net_wait_send(struct tm_env *env, int handle, int64_t timeout_ms, struct tm_error *e)
{
    struct tm_watch watch = {.handle = handle, .want = TM_WATCH_SEND};
    return virtual_net_watch(env, &watch, 1, timeout_ms, e);
}

static int virtual_net_own_address(struct tm_env *env, int handle, char out[TM_ADDRESS_MAX], struct tm_error *e)
{
    (void)env;
    (void)handle;
    (void)e;
    (void)snprintf(out, TM_ADDRESS_MAX, "127.0.0.1:1");
    return 0;
}

static void virtual_net_shutdown(struct tm_env *env, int handle)
{
    tm_env_virtual_cut(env, handle);
}

static void virtual_net_close(struct tm_env *env, int handle)
{
    struct world *world = world_of(env);
    struct virtual_socket *closed = socket_of(world, handle);
    if (closed == NULL) return;
    for (size_t i = 0; closed->state == SOCKET_LISTENING && i < world->socket_count; i++) { /* never accepted */
        if (world->sockets[i].state == SOCKET_WAITING && world->sockets[i].accepted_by == handle - 1)
            virtual_net_close(env, (int)i + 1);
    }
    if (closed->peer >= 0 && closed->state != SOCKET_PROCESS) world->sockets[closed->peer].peer = -1;
    tm_text_deinit(&closed->in);
    closed->state = SOCKET_FREE;
}

size_t tm_env_virtual_handles(struct tm_env *env)
{
    struct world *world = world_of(env);
    size_t count = 0;
    for (size_t i = 0; i < world->socket_count; i++)
        count += world->sockets[i].state != SOCKET_FREE && world->sockets[i].state != SOCKET_WAITING;
    return count;
}

void tm_env_virtual_cut(struct tm_env *env, int handle)
{
    struct world *world = world_of(env);
    struct virtual_socket *cut = socket_of(world, handle);
    if (cut == NULL || cut->state == SOCKET_LISTENING || cut->state == SOCKET_PROCESS) return;
    cut->state = SOCKET_CUT;
    if (cut->peer >= 0) world->sockets[cut->peer].state = SOCKET_CUT;
}

/* ---- processes ---- */

static struct virtual_process *process_of(struct tm_env *env, int pid)
{
    struct world *world = world_of(env);
    return pid < 1 || (size_t)pid > world->process_count ? NULL : &world->processes[pid - 1];
}

static int virtual_process_start_with(struct tm_env *env, const struct tm_process_options *options, int *out_pid,
                                      struct tm_error *e)
{
    struct world *world = world_of(env);
    void *array = world->processes;
    int rc = tm_grow(&array, &world->process_capacity, world->process_count + 1, sizeof *world->processes, ENTRIES_MAX);
    world->processes = array;
    if (rc != 0)
        return tm_error_set(e, (enum tm_code) - rc, "starting %s: no room for another process", options->argv[0]);
    struct virtual_process *process = &world->processes[world->process_count];
    *process = (struct virtual_process){.group = options->group};
    tm_text_init(&process->variables, FILE_BYTES_MAX);
    for (size_t i = 0; options->variables != NULL && options->variables[i] != NULL; i++)
        tm_text_append(&process->variables, options->variables[i], strlen(options->variables[i]) + 1);
    int ends[2] = {0, 0};
    rc = tm_text_status(&process->variables, e);
    if (rc == 0 && options->captured != NULL) rc = virtual_net_pair(env, ends, e);
    if (rc != 0) {
        tm_text_deinit(&process->variables);
        return rc;
    }
    process->output = ends[1];
    if (options->captured != NULL) *options->captured = ends[0];
    *out_pid = (int)++world->process_count;
    return 0;
}

static int virtual_process_start(struct tm_env *env, const char *const *argv, int *out_pid, struct tm_error *e)
{
    struct tm_process_options options = {.argv = argv};
    return virtual_process_start_with(env, &options, out_pid, e);
}

static int virtual_process_signal(struct tm_env *env, int pid, int signal_number, struct tm_error *e)
{
    struct virtual_process *process = process_of(env, pid);
    if (process == NULL || process->waited) return tm_error_set(e, TM_ENOTFOUND, "process %d is gone", pid);
    process->last_signal = signal_number;
    return 0;
}

static int virtual_process_wait(struct tm_env *env, int pid, int64_t timeout_ms, int *out_status, struct tm_error *e)
{
    struct virtual_process *process = process_of(env, pid);
    if (process == NULL || process->waited) return tm_error_set(e, TM_EIO, "waiting for process %d: no child", pid);
    if (!process->ended) {
        tm_env_virtual_advance(env, timeout_ms);
        return tm_error_set(e, TM_ETIMEOUT, "process %d is still running", pid);
    }
    process->waited = true;
    *out_status = process->status;
    return 0;
}

/* It ends, and with it what it writes to. */
static void end_process(struct tm_env *env, struct virtual_process *process, int status)
{
    if (process->output != 0) virtual_net_close(env, process->output);
    process->output = 0;
    process->ended = true;
    process->status = status;
}

static void virtual_kill(struct tm_env *env, struct virtual_process *process)
{
    process->last_signal = 9;
    end_process(env, process, process->ended ? process->status : 128 + 9);
}

int tm_env_virtual__process_write(struct tm_env *env, int pid, const char *data, size_t length)
{
    struct virtual_process *process = process_of(env, pid);
    size_t sent = 0;
    if (process == NULL || process->output == 0) return -(int)TM_ENOTFOUND;
    return virtual_net_send(env, process->output, data, length, &sent, NULL);
}

static int virtual_process_signal_group(struct tm_env *env, int group, int signal_number, struct tm_error *e)
{
    struct virtual_process *leader = process_of(env, group);
    if (leader == NULL || leader->waited || !leader->group)
        return tm_error_set(e, TM_ENOTFOUND, "process group %d is gone", group);
    leader->last_signal = signal_number;
    if (signal_number == 9) virtual_kill(env, leader);
    return 0;
}

static int virtual_process_limit_files(struct tm_env *env, int pid, int64_t bytes, struct tm_error *e)
{
    struct virtual_process *process = process_of(env, pid);
    if (process == NULL || process->waited) return tm_error_set(e, TM_ENOTFOUND, "process %d is gone", pid);
    process->files_max = bytes;
    return 0;
}

static int virtual_process_handle(struct tm_env *env, int pid, int *out_handle, struct tm_error *e)
{
    struct world *world = world_of(env);
    struct virtual_process *process = process_of(env, pid);
    if (process == NULL || process->waited) return tm_error_set(e, TM_ENOTFOUND, "process %d is gone", pid);
    int rc = add_socket(world, SOCKET_PROCESS, out_handle, e);
    if (rc == 0) world->sockets[*out_handle - 1].peer = pid;
    return rc;
}

static void virtual_process_end_together(struct tm_env *env)
{
    (void)env; /* processes end when the test says so */
}

static int virtual_process_self(struct tm_env *env)
{
    (void)env;
    return SELF_PID;
}

/* No number is used twice: the start is made from it. */
static int virtual_process_started(struct tm_env *env, int pid, int64_t *out_start, struct tm_error *e)
{
    struct virtual_process *process = process_of(env, pid);
    if (pid != SELF_PID && (process == NULL || process->waited))
        return tm_error_set(e, TM_ENOTFOUND, "process %d is gone", pid);
    *out_start = 1000 + pid;
    return 0;
}

static bool has_variable(const struct virtual_process *process, const char *mark)
{
    const struct tm_text *variables = &process->variables;
    for (size_t at = 0; at < variables->length; at += strlen(variables->data + at) + 1) {
        if (strcmp(variables->data + at, mark) == 0) return true;
    }
    return false;
}

static int virtual_process_end_marked(struct tm_env *env, const char *mark, int *out_count, struct tm_error *e)
{
    (void)e;
    struct world *world = world_of(env);
    int count = 0;
    for (size_t i = 0; i < world->process_count; i++) {
        struct virtual_process *process = &world->processes[i];
        if (process->ended || !has_variable(process, mark)) continue;
        virtual_kill(env, process);
        count++;
    }
    *out_count = count;
    return 0;
}

const char *tm_env_virtual_process_variable(struct tm_env *env, int pid, const char *name)
{
    struct virtual_process *process = process_of(env, pid);
    size_t length = strlen(name);
    for (size_t at = 0; process != NULL && at < process->variables.length;) {
        const char *variable = process->variables.data + at;
        if (strncmp(variable, name, length) == 0 && variable[length] == '=') return variable + length + 1;
        at += strlen(variable) + 1;
    }
    return NULL;
}

void tm_env_virtual_exit(struct tm_env *env, int pid, int status)
{
    struct virtual_process *process = process_of(env, pid);
    if (process != NULL) end_process(env, process, status);
}

int tm_env_virtual_last_signal(struct tm_env *env, int pid)
{
    struct virtual_process *process = process_of(env, pid);
    return process == NULL ? 0 : process->last_signal;
}

/* ---- life ---- */

/* Whoever is told the names in a folder may look into the files meanwhile. */
static void init_files_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t again;
    (void)pthread_mutexattr_init(&again);
    (void)pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(lock, &again);
    (void)pthread_mutexattr_destroy(&again);
}

struct tm_env *tm_env_virtual_create(uint64_t seed)
{
    struct tm_env *env = tm_calloc(1, sizeof *env);
    struct world *world = tm_calloc(1, sizeof *world);
    if (env == NULL || world == NULL) {
        tm_free(env);
        tm_free(world);
        return NULL;
    }
    init_files_lock(&world->files_lock);
    world->random = tm_random_make(seed, 0);
    world->next_port = 40000;
    *env = (struct tm_env){
        .self = world,
        .now_ms = virtual_now_ms,
        .monotonic_ns = virtual_monotonic_ns,
        .sleep_ms = tm_env_virtual_advance,
        .random_u64 = virtual_random_u64,
        .variable = virtual_variable,
        .set_variable = tm_env_virtual_set_variable,
        .processor_ns = virtual_processor_ns,
        .file_read = virtual_file_read,
        .file_write = virtual_file_write,
        .file_write_private = virtual_file_write_private,
        .file_write_mode = virtual_file_write_mode,
        .file_write_parts = virtual_file_write_parts,
        .file_write_blocks = virtual_file_write_blocks,
        .file_read_blocks = virtual_file_read_blocks,
        .file_remove = virtual_file_remove,
        .file_read_at = virtual_file_read_at,
        .file_extend = virtual_file_extend,
        .file_exists = virtual_file_exists,
        .file_is_link = virtual_file_is_link,
        .file_map = virtual_file_map,
        .file_unmap = virtual_file_unmap,
        .file_lock = virtual_file_lock,
        .file_unlock = virtual_file_unlock,
        .folder_each = virtual_folder_each,
        .folder_make = virtual_folder_make,
        .net_listen = virtual_net_listen,
        .net_connect = virtual_net_connect,
        .net_accept = virtual_net_accept,
        .net_send = virtual_net_send,
        .net_receive = virtual_net_receive,
        .net_wait = virtual_net_wait,
        .net_watch = virtual_net_watch,
        .net_pair = virtual_net_pair,
        .net_own_address = virtual_net_own_address,
        .net_peer_address = virtual_net_own_address, /* all live at one */
        .net_wait_send = virtual_net_wait_send,
        .net_shutdown = virtual_net_shutdown,
        .net_close = virtual_net_close,
        .process_start = virtual_process_start,
        .process_signal = virtual_process_signal,
        .process_wait = virtual_process_wait,
        .process_start_with = virtual_process_start_with,
        .process_signal_group = virtual_process_signal_group,
        .process_handle = virtual_process_handle,
        .process_self = virtual_process_self,
        .process_end_together = virtual_process_end_together,
        .process_started = virtual_process_started,
        .process_end_marked = virtual_process_end_marked,
        .process_limit_files = virtual_process_limit_files,
    };
    return env;
}

void tm_env_virtual_destroy(struct tm_env *env)
{
    if (env == NULL) return;
    struct world *world = world_of(env);
    for (int i = 0; i < LOCKS_MAX; i++)
        tm_free(world->locks[i]);
    while (world->file_count > 0)
        drop_entry(world->files, &world->file_count, &world->files[0]);
    while (world->variable_count > 0)
        drop_entry(world->variables, &world->variable_count, &world->variables[0]);
    for (size_t i = 0; i < world->socket_count; i++)
        tm_text_deinit(&world->sockets[i].in);
    for (size_t i = 0; i < world->process_count; i++)
        tm_text_deinit(&world->processes[i].variables);
    tm_free(world->files);
    tm_free(world->variables);
    tm_free(world->sockets);
    tm_free(world->processes);
    (void)pthread_mutex_destroy(&world->files_lock);
    tm_free(world);
    tm_free(env);
}
