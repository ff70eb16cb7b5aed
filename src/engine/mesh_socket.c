#include "engine/mesh_socket.h"

#include "base/alloc.h"

#include <stdatomic.h>
#include <string.h>

/* Everything on a connection is a frame: this head, then `length` bytes. */
struct frame {
    uint64_t tag;
    uint64_t length;
};

/* What a worker says first. */
struct hello {
    uint64_t magic;
    uint64_t generation;
    int32_t rank;
    int32_t size;
    char address[TM_ADDRESS_MAX + 4];
};

static const uint64_t hello_magic = 0x544D4D4553483031U; /* "TMMESH01" */
static const uint64_t frame_bytes_max = (uint64_t)4 << 30;
static const int64_t poll_ms = 1000; /* how often the reader looks whether it is to stop */
enum { SIZE_MAX_PEERS = 256 };

struct peer {
    int handle; /* -1: none (oneself) */
    bool open;
    pthread_mutex_t sending;
    /* the frame that is being read */
    struct frame head;
    size_t got; /* bytes of head, then of the parcel */
    struct tm_parcel *parcel;
};

struct tm_mesh_socket {
    struct tm_mesh mesh; /* first: a mesh is its end */
    struct tm_env *env;
    struct tm_inbox inbox;
    struct peer *peers; /* by rank */
    pthread_t reader;
    bool reading;
    atomic_bool stop;
};

static struct tm_mesh_socket *socket_of(struct tm_mesh *mesh)
{
    return (struct tm_mesh_socket *)(void *)mesh;
}

/* ---- bytes ---- */

static int send_all(struct tm_env *env, int handle, const void *data, size_t length, const atomic_bool *stop,
                    struct tm_error *e)
{
    const unsigned char *at = data;
    while (length > 0) {
        size_t done = 0;
        int rc = env->net_send(env, handle, at, length, &done, e);
        if (rc == -(int)TM_EBUSY) {
            rc = env->net_wait_send(env, handle, poll_ms, e);
            if (rc != 0 && rc != -(int)TM_ETIMEOUT) return rc;
            if (stop != NULL && atomic_load(stop)) return tm_error_set(e, TM_ECANCELED, "sending was cancelled");
            continue;
        }
        if (rc != 0) return rc;
        at += done;
        length -= done;
    }
    return 0;
}

/* For the hellos alone, before the reader runs. */
static int receive_all(struct tm_env *env, int handle, void *buffer, size_t length, int64_t timeout_ms,
                       struct tm_error *e)
{
    unsigned char *at = buffer;
    while (length > 0) {
        size_t got = 0;
        bool ready = false;
        int rc = env->net_receive(env, handle, at, length, &got, e);
        if (rc == -(int)TM_EBUSY) {
            rc = env->net_wait(env, &handle, 1, timeout_ms, &ready, e);
            if (rc != 0) return rc;
            continue;
        }
        if (rc == 0 && got == 0) rc = tm_error_set(e, TM_EPEER, "a worker left before it identified itself");
        if (rc != 0) return rc;
        at += got;
        length -= got;
    }
    return 0;
}

/* ---- reading ---- */

/* Takes in what has come from a peer. Negative: the peer is lost (0 bytes: it closed in order). */
static int read_some(struct tm_mesh_socket *socket, int rank)
{
    struct peer *peer = &socket->peers[rank];
    struct tm_env *env = socket->env;
    for (;;) {
        size_t got = 0;
        bool in_head = peer->parcel == NULL;
        void *to = in_head ? (unsigned char *)&peer->head + peer->got : peer->parcel->data + peer->got;
        size_t want = (in_head ? sizeof peer->head : peer->parcel->length) - peer->got;
        int rc = want > 0 ? env->net_receive(env, peer->handle, to, want, &got, NULL) : 0;
        if (rc == -(int)TM_EBUSY) return 0;
        if (rc != 0 || (want > 0 && got == 0)) return -(int)TM_EPEER;
        peer->got += got;
        if (got < want) continue;
        peer->got = 0;
        if (in_head) {
            if (peer->head.length > frame_bytes_max) return -(int)TM_EPEER;
            peer->parcel = tm_inbox__parcel(&socket->inbox, (size_t)peer->head.length);
            if (peer->parcel == NULL) return -(int)TM_ENOMEM;
            peer->parcel->from = rank;
            peer->parcel->tag = peer->head.tag;
            continue;
        }
        struct tm_parcel *parcel = peer->parcel;
        peer->parcel = NULL;
        if (tm_inbox__put(&socket->inbox, parcel, NULL) != 0) return -(int)TM_ELIMIT;
    }
}

static void *read_all(void *argument)
{
    struct tm_mesh_socket *socket = argument;
    while (!atomic_load(&socket->stop)) {
        int handles[SIZE_MAX_PEERS];
        int ranks[SIZE_MAX_PEERS];
        bool ready[SIZE_MAX_PEERS] = {false};
        size_t count = 0;
        for (int r = 0; r < socket->mesh.size; r++) {
            if (!socket->peers[r].open) continue;
            handles[count] = socket->peers[r].handle;
            ranks[count++] = r;
        }
        if (count == 0) break;
        if (socket->env->net_wait(socket->env, handles, count, poll_ms, ready, NULL) != 0) continue;
        for (size_t i = 0; i < count; i++) {
            if (!ready[i] || read_some(socket, ranks[i]) == 0) continue;
            socket->peers[ranks[i]].open = false;
            /* who waits for a lost worker must know; one that is done leaves only when all have what they need */
            tm_inbox__lost(&socket->inbox, ranks[i]);
        }
    }
    return NULL;
}

/* ---- the interface ---- */

static int socket_send(struct tm_mesh *mesh, int to, uint64_t tag, const void *data, size_t length, struct tm_error *e)
{
    struct tm_mesh_socket *socket = socket_of(mesh);
    struct peer *peer = &socket->peers[to];
    struct frame head = {.tag = tag, .length = length};
    (void)pthread_mutex_lock(&peer->sending);
    int rc = send_all(socket->env, peer->handle, &head, sizeof head, &socket->stop, e);
    if (rc == 0) rc = send_all(socket->env, peer->handle, data, length, &socket->stop, e);
    (void)pthread_mutex_unlock(&peer->sending);
    mesh->bytes_sent += length;
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "worker %d", to);
}

static int socket_receive(struct tm_mesh *mesh, int from, uint64_t tag, size_t length, struct tm_parcel **out,
                          struct tm_error *e)
{
    return tm_inbox__take(&socket_of(mesh)->inbox, from, tag, length, out, e);
}

static void socket_give_back(struct tm_mesh *mesh, struct tm_parcel *parcel)
{
    tm_inbox__give_back(&socket_of(mesh)->inbox, parcel);
}

static void socket_cancel(struct tm_mesh *mesh)
{
    struct tm_mesh_socket *socket = socket_of(mesh);
    atomic_store(&socket->stop, true);
    tm_inbox__cancel(&socket->inbox);
    for (int r = 0; r < mesh->size; r++) {
        if (socket->peers[r].handle >= 0) socket->env->net_shutdown(socket->env, socket->peers[r].handle);
    }
}

struct tm_mesh *tm_mesh_socket__end(struct tm_mesh_socket *mesh)
{
    return &mesh->mesh;
}

/* ---- connecting ---- */

int tm_mesh_socket__listen(struct tm_env *env, const char *address, int *out_listener, char bound[TM_ADDRESS_MAX],
                           struct tm_error *e)
{
    return env->net_listen(env, address, out_listener, bound, e);
}

static struct hello hello_of(const struct tm_mesh_socket_options *o)
{
    struct hello hello = {
        .magic = hello_magic, .generation = o->generation, .rank = (int32_t)o->rank, .size = (int32_t)o->size};
    memcpy(hello.address, o->own, strnlen(o->own, TM_ADDRESS_MAX));
    return hello;
}

static int check_hello(const struct tm_mesh_socket_options *o, const struct hello *hello, struct tm_error *e)
{
    if (hello->magic != hello_magic || hello->size != o->size || hello->rank < 0 || hello->rank >= o->size)
        return tm_error_set(e, TM_EPEER, "something connected that is not a worker of this run");
    if (hello->generation != o->generation)
        return tm_error_set(e, TM_EPEER, "worker %d is in generation %llu, this is %llu", (int)hello->rank,
                            (unsigned long long)hello->generation, (unsigned long long)o->generation);
    return 0;
}

static int accept_one(struct tm_mesh_socket *socket, const struct tm_mesh_socket_options *o, struct hello *out,
                      struct tm_error *e)
{
    int handle = -1;
    bool ready = false;
    int rc = socket->env->net_accept(socket->env, o->listener, &handle, e);
    while (rc == -(int)TM_EBUSY) {
        rc = socket->env->net_wait(socket->env, &o->listener, 1, o->timeout_ms, &ready, e);
        if (rc != 0) return tm_error_wrap(e, rc, "waiting for workers to connect");
        rc = socket->env->net_accept(socket->env, o->listener, &handle, e);
    }
    if (rc != 0) return rc;
    rc = receive_all(socket->env, handle, out, sizeof *out, o->timeout_ms, e);
    if (rc == 0) rc = check_hello(o, out, e);
    if (rc == 0 && socket->peers[out->rank].handle >= 0)
        rc = tm_error_set(e, TM_EPEER, "worker %d connected twice", (int)out->rank);
    if (rc != 0) {
        socket->env->net_close(socket->env, handle);
        return rc;
    }
    socket->peers[out->rank].handle = handle;
    return 0;
}

static int connect_to(struct tm_mesh_socket *socket, const struct tm_mesh_socket_options *o, int rank,
                      const char *address, struct tm_error *e)
{
    struct hello hello = hello_of(o);
    int rc = socket->env->net_connect(socket->env, address, &socket->peers[rank].handle, e);
    if (rc != 0) return rc;
    return send_all(socket->env, socket->peers[rank].handle, &hello, sizeof hello, NULL, e);
}

/* Worker 0: hears everyone, then tells everyone where all are. */
static int gather(struct tm_mesh_socket *socket, const struct tm_mesh_socket_options *o, struct hello *roster,
                  struct tm_error *e)
{
    int rc = 0;
    roster[0] = hello_of(o);
    for (int i = 1; rc == 0 && i < o->size; i++) {
        struct hello hello = {0};
        rc = accept_one(socket, o, &hello, e);
        if (rc == 0) roster[hello.rank] = hello;
    }
    for (int r = 1; rc == 0 && r < o->size; r++)
        rc = send_all(socket->env, socket->peers[r].handle, roster, (size_t)o->size * sizeof *roster, NULL, e);
    return rc;
}

static int join(struct tm_mesh_socket *socket, const struct tm_mesh_socket_options *o, struct hello *roster,
                struct tm_error *e)
{
    int rc = connect_to(socket, o, 0, o->first, e);
    if (rc == 0)
        rc = receive_all(socket->env, socket->peers[0].handle, roster, (size_t)o->size * sizeof *roster, o->timeout_ms,
                         e);
    for (int r = 1; rc == 0 && r < o->rank; r++) {
        roster[r].address[TM_ADDRESS_MAX] = '\0';
        rc = connect_to(socket, o, r, roster[r].address, e);
    }
    for (int r = o->rank + 1; rc == 0 && r < o->size; r++) {
        struct hello hello = {0};
        rc = accept_one(socket, o, &hello, e);
    }
    return rc;
}

static int connect_all(struct tm_mesh_socket *socket, const struct tm_mesh_socket_options *o, struct tm_error *e)
{
    struct hello *roster = tm_calloc((size_t)o->size, sizeof *roster);
    if (roster == NULL) return tm_error_nomem(e);
    int rc = o->rank == 0 ? gather(socket, o, roster, e) : join(socket, o, roster, e);
    tm_free(roster);
    if (rc != 0) return rc;
    for (int r = 0; r < o->size; r++)
        socket->peers[r].open = socket->peers[r].handle >= 0;
    if (pthread_create(&socket->reader, NULL, read_all, socket) != 0)
        return tm_error_set(e, TM_ENOMEM, "out of threads");
    socket->reading = true;
    return 0;
}

int tm_mesh_socket__create(struct tm_env *env, const struct tm_mesh_socket_options *options,
                           struct tm_mesh_socket **out, struct tm_error *e)
{
    if (options->size < 1 || options->size > SIZE_MAX_PEERS) {
        env->net_close(env, options->listener);
        return tm_error_set(e, TM_EUSAGE, "at most %d workers", SIZE_MAX_PEERS);
    }
    struct tm_mesh_socket *socket = tm_calloc(1, sizeof *socket);
    struct peer *peers = tm_calloc((size_t)options->size, sizeof *peers);
    int rc = socket == NULL || peers == NULL ? tm_error_nomem(e) : tm_inbox__init(&socket->inbox, frame_bytes_max, e);
    if (rc != 0) {
        env->net_close(env, options->listener);
        tm_free(socket);
        tm_free(peers);
        return rc;
    }
    socket->env = env;
    socket->peers = peers;
    socket->mesh = (struct tm_mesh){.rank = options->rank,
                                    .size = options->size,
                                    .send = socket_send,
                                    .receive = socket_receive,
                                    .give_back = socket_give_back,
                                    .cancel = socket_cancel};
    for (int r = 0; r < options->size; r++) {
        peers[r].handle = -1;
        (void)pthread_mutex_init(&peers[r].sending, NULL);
    }
    rc = connect_all(socket, options, e);
    env->net_close(env, options->listener);
    if (rc != 0) {
        tm_mesh_socket__destroy(socket);
        return rc;
    }
    *out = socket;
    return 0;
}

void tm_mesh_socket__destroy(struct tm_mesh_socket *mesh)
{
    if (mesh == NULL) return;
    socket_cancel(&mesh->mesh); /* wakes the reader; what was sent is on its way already */
    if (mesh->reading) (void)pthread_join(mesh->reader, NULL);
    for (int r = 0; r < mesh->mesh.size; r++) {
        if (mesh->peers[r].handle >= 0) mesh->env->net_close(mesh->env, mesh->peers[r].handle);
        tm_free(mesh->peers[r].parcel);
        (void)pthread_mutex_destroy(&mesh->peers[r].sending);
    }
    tm_inbox__deinit(&mesh->inbox);
    tm_free(mesh->peers);
    tm_free(mesh);
}
