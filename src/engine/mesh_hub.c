#include "engine/mesh_hub.h"

#include "base/alloc.h"
#include "base/debug.h"
#include "base/log.h"
#include "engine/mesh_hub_internal.h"
#include "wire/peer_links.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    SIZE_MAX_MEMBERS = 256,
    LINKS_MAX = 2 * SIZE_MAX_MEMBERS,
    REDIAL_MS = 20,
    KNOCK_MS = 500,
    GREETING_LIMIT_MS = 10000,
    IDLE_MS = 1000,
    TOKEN_MAX = 1024
};
static const size_t inbox_bytes_max = (size_t)4 << 30;

struct hub_member {
    uint64_t instance;
    char endpoint[TM_ADDRESS_MAX];
    _Atomic(struct tm_mesh_link *) link; /* once it is up */
    atomic_bool wanted;                  /* we talk with it, or it wants to talk with us */
    bool lost;
    int64_t dial_ms; /* not before */
};

/* The mesh of one generation. */
struct hub_mesh {
    struct tm_mesh mesh; /* first: a mesh is its end */
    struct tm_mesh_hub *hub;
    uint64_t generation;
    struct tm_inbox inbox;
    struct hub_member *members; /* by rank */
    atomic_bool cancelled;
};

struct tm_mesh_hub {
    struct tm_env *env;
    struct tm_mesh_hub_options options;
    char token[TOKEN_MAX];
    char address[TM_ADDRESS_MAX];
    int listener;
    int wake[2]; /* the thread waits on the first, others send to the second */
    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    bool stop;
    struct hub_mesh *mesh; /* in force; NULL: none yet */
    struct tm_mesh_link *links;
};

static struct hub_mesh *mesh_of(struct tm_mesh *mesh)
{
    return (struct hub_mesh *)(void *)mesh;
}

static int64_t now_ms(struct tm_mesh_hub *hub)
{
    return hub->env->monotonic_ns(hub->env) / 1000000;
}

static void wake(struct tm_mesh_hub *hub)
{
    size_t sent = 0;
    (void)hub->env->net_send(hub->env, hub->wake[1], "", 1, &sent, NULL);
}

/* ---- the interface: by the thread that uses the mesh ---- */

static void tell_waiting(struct hub_mesh *mesh, uint64_t instance)
{
    const struct tm_mesh_hub_options *o = &mesh->hub->options;
    if (o->waiting != NULL) o->waiting(o->context, instance);
}

static void want(struct hub_mesh *mesh, int rank)
{
    if (atomic_exchange(&mesh->members[rank].wanted, true)) return;
    wake(mesh->hub);
}

/* The link to a member, once there is one. */
static int await_link(struct hub_mesh *mesh, int to, struct tm_mesh_link **out, struct tm_error *e)
{
    struct hub_member *member = &mesh->members[to];
    *out = atomic_load(&member->link);
    if (*out != NULL) return 0;
    want(mesh, to);
    tell_waiting(mesh, member->instance);
    (void)pthread_mutex_lock(&mesh->hub->lock);
    while ((*out = atomic_load(&member->link)) == NULL && !member->lost && !atomic_load(&mesh->cancelled))
        (void)pthread_cond_wait(&mesh->hub->changed, &mesh->hub->lock);
    (void)pthread_mutex_unlock(&mesh->hub->lock);
    if (*out != NULL) {
        tell_waiting(mesh, 0);
        return 0;
    }
    if (atomic_load(&mesh->cancelled)) return tm_error_set(e, TM_ECANCELED, "connecting was cancelled");
    return tm_error_set(e, TM_EPEER, "instance %llu was lost", (unsigned long long)member->instance);
}

static int hub_send(struct tm_mesh *end, int to, uint64_t tag, const void *data, size_t length, struct tm_error *e)
{
    struct hub_mesh *mesh = mesh_of(end);
    struct tm_mesh_link *link = NULL;
    int rc = await_link(mesh, to, &link, e);
    if (rc == 0) rc = tm_mesh_link__send(link, mesh->hub->env, tag, data, length, e);
    end->bytes_sent += length;
    if (rc == 0) return 0;
    if (atomic_load(&mesh->cancelled)) return tm_error_set(e, TM_ECANCELED, "sending was cancelled");
    tell_waiting(mesh, mesh->members[to].instance);
    return tm_error_wrap(e, rc, "instance %llu", (unsigned long long)mesh->members[to].instance);
}

static int hub_receive(struct tm_mesh *end, int from, uint64_t tag, size_t length, struct tm_parcel **out,
                       struct tm_error *e)
{
    struct hub_mesh *mesh = mesh_of(end);
    *out = tm_inbox__try(&mesh->inbox, from, tag, length);
    if (*out != NULL) return 0;
    want(mesh, from);
    tell_waiting(mesh, mesh->members[from].instance);
    int rc = tm_inbox__take(&mesh->inbox, from, tag, length, out, e);
    if (rc == 0) tell_waiting(mesh, 0);
    return rc;
}

static void hub_give_back(struct tm_mesh *end, struct tm_parcel *parcel)
{
    tm_inbox__give_back(&mesh_of(end)->inbox, parcel);
}

static bool hub_is_cancelled(struct tm_mesh *end)
{
    return atomic_load(&mesh_of(end)->cancelled);
}

static void cancel_locked(struct hub_mesh *mesh)
{
    struct tm_mesh_hub *hub = mesh->hub;
    if (atomic_exchange(&mesh->cancelled, true)) return;
    tm_inbox__cancel(&mesh->inbox);
    for (int i = 0; i < LINKS_MAX; i++)
        if (hub->links[i].state == LINK_UP) hub->env->net_shutdown(hub->env, hub->links[i].handle);
    (void)pthread_cond_broadcast(&hub->changed);
}

static void hub_cancel(struct tm_mesh *end)
{
    struct hub_mesh *mesh = mesh_of(end);
    (void)pthread_mutex_lock(&mesh->hub->lock);
    cancel_locked(mesh);
    (void)pthread_mutex_unlock(&mesh->hub->lock);
}

void tm_mesh_hub__cancel(struct tm_mesh_hub *hub)
{
    (void)pthread_mutex_lock(&hub->lock);
    if (hub->mesh != NULL) cancel_locked(hub->mesh);
    (void)pthread_mutex_unlock(&hub->lock);
}

/* ---- forming ---- */

static void mesh_destroy(struct hub_mesh *mesh)
{
    if (mesh == NULL) return;
    tm_inbox__deinit(&mesh->inbox);
    tm_free(mesh->members);
    tm_free(mesh);
}

static int mesh_create(struct tm_mesh_hub *hub, uint64_t generation, int rank, const struct tm_mesh_member *members,
                       int size, struct hub_mesh **out, struct tm_error *e)
{
    struct hub_mesh *mesh = tm_calloc(1, sizeof *mesh);
    struct hub_member *list = tm_calloc((size_t)size, sizeof *list);
    int rc = mesh == NULL || list == NULL ? tm_error_nomem(e) : tm_inbox__init(&mesh->inbox, inbox_bytes_max, e);
    for (int i = 0; rc == 0 && i < size; i++) {
        size_t length = strlen(members[i].endpoint);
        if (length >= sizeof list[i].endpoint)
            rc = tm_error_set(e, TM_EPEER, "instance %llu: an endpoint of %zu bytes",
                              (unsigned long long)members[i].instance, length);
        else
            memcpy(list[i].endpoint, members[i].endpoint, length + 1);
        list[i].instance = members[i].instance;
        atomic_init(&list[i].wanted, size <= TM_MESH_EAGER_MAX);
        if (rc != 0) tm_inbox__deinit(&mesh->inbox);
    }
    if (rc != 0) {
        tm_free(list);
        tm_free(mesh);
        return rc;
    }
    mesh->hub = hub;
    mesh->generation = generation;
    mesh->members = list;
    mesh->mesh = (struct tm_mesh){.rank = rank,
                                  .size = size,
                                  .send = hub_send,
                                  .receive = hub_receive,
                                  .give_back = hub_give_back,
                                  .cancel = hub_cancel,
                                  .is_cancelled = hub_is_cancelled};
    *out = mesh;
    return 0;
}

int tm_mesh_hub__form(struct tm_mesh_hub *hub, uint64_t generation, int rank, const struct tm_mesh_member *members,
                      int size, struct tm_mesh **out, struct tm_error *e)
{
    struct hub_mesh *mesh = NULL;
    if (size < 1 || size > SIZE_MAX_MEMBERS || rank < 0 || rank >= size)
        return tm_error_set(e, TM_EUSAGE, "at most %d workers", SIZE_MAX_MEMBERS);
    int rc = mesh_create(hub, generation, rank, members, size, &mesh, e);
    if (rc != 0) return rc;
    (void)pthread_mutex_lock(&hub->lock);
    struct hub_mesh *old = hub->mesh;
    hub->mesh = mesh;
    (void)pthread_mutex_unlock(&hub->lock);
    mesh_destroy(old); /* links of it are closed by the thread, which finds them to be of another generation */
    wake(hub);
    *out = &mesh->mesh;
    return 0;
}

/* ---- the thread: everything below holds the lock ---- */

static struct tm_mesh_link *free_link(struct tm_mesh_hub *hub)
{
    for (int i = 0; i < LINKS_MAX; i++)
        if (hub->links[i].state == LINK_FREE) return &hub->links[i];
    return NULL;
}

static int rank_of(const struct hub_mesh *mesh, uint64_t instance)
{
    for (int r = 0; r < mesh->mesh.size; r++)
        if (mesh->members[r].instance == instance) return r;
    return -1;
}

/* A link that is over. One that is up may be in use: its handle is shut, and it is closed with its generation. */
static void drop(struct tm_mesh_hub *hub, struct tm_mesh_link *link)
{
    if (link->state != LINK_UP) {
        tm_mesh_link__close(link, hub->env);
        return;
    }
    link->state = LINK_LOST;
    tm_debug(TM_DEBUG_ENGINE, "mesh: the link to rank %d is lost", link->rank);
    hub->env->net_shutdown(hub->env, link->handle);
    if (hub->mesh == NULL || link->greeting.generation != hub->mesh->generation) return;
    hub->mesh->members[link->rank].lost = true;
    tm_inbox__lost(&hub->mesh->inbox, link->rank);
    (void)pthread_cond_broadcast(&hub->changed);
}

static void put_up(struct tm_mesh_hub *hub, struct tm_mesh_link *link)
{
    link->state = LINK_UP;
    tm_debug(TM_DEBUG_ENGINE, "mesh: generation %" PRIu64 ": rank %d is linked", hub->mesh->generation, link->rank);
    atomic_store(&hub->mesh->members[link->rank].link, link);
    (void)pthread_cond_broadcast(&hub->changed);
    if (tm_mesh_link__read(link, hub->env, &hub->mesh->inbox) != 0) drop(hub, link); /* what came with the greeting */
}

/* A member of a smaller rank is called; one of a larger rank is asked to call. */
static void dial(struct tm_mesh_hub *hub, int rank)
{
    struct hub_member *member = &hub->mesh->members[rank];
    struct tm_mesh_link *link = free_link(hub);
    bool knocks = rank > hub->mesh->mesh.rank;
    int handle = -1;
    member->dial_ms = now_ms(hub) + (knocks ? KNOCK_MS : REDIAL_MS);
    if (link == NULL || (hub->options.tls == NULL && !tm_address_is_loopback(member->endpoint))) return;
    struct tm_error e;
    if (hub->env->net_connect(hub->env, member->endpoint, &handle, &e) != 0) {
        tm_debug(TM_DEBUG_ENGINE, "mesh: rank %d: %s", rank, e.text);
        return;
    }
    tm_debug(TM_DEBUG_ENGINE, "mesh: generation %" PRIu64 ": calling rank %d at %s", hub->mesh->generation, rank,
             member->endpoint);
    if (tm_mesh_link__open(link, hub->env, handle, hub->options.tls, false, NULL) != 0) return;
    link->state = LINK_DIALING;
    link->rank = rank;
    link->knocks = knocks;
    link->deadline_ms = INT64_MAX; /* it may take its time: the generation ends first */
    link->greeting = (struct tm_mesh_greeting){.job = hub->options.job,
                                               .generation = hub->mesh->generation,
                                               .from = hub->options.instance,
                                               .to = member->instance,
                                               .dialer_nonce = hub->env->random_u64(hub->env)};
    if (tm_mesh_link__greet(link, hub->env, hub->token, 1) != 0) drop(hub, link);
}

static bool is_linked(const struct tm_mesh_hub *hub, int rank)
{
    for (int i = 0; i < LINKS_MAX; i++) {
        const struct tm_mesh_link *link = &hub->links[i];
        if (link->state != LINK_FREE && !link->knocks && link->rank == rank &&
            link->greeting.generation == hub->mesh->generation)
            return true;
    }
    return false;
}

/* The hello of one who came in is of our generation: answer it. */
static void admit(struct tm_mesh_hub *hub, struct tm_mesh_link *link)
{
    assert(hub->mesh != NULL);
    int rank = rank_of(hub->mesh, link->greeting.from);
    if (rank >= 0 && rank < hub->mesh->mesh.rank) atomic_store(&hub->mesh->members[rank].wanted, true); /* a knock */
    bool wanted = rank > hub->mesh->mesh.rank && !hub->mesh->members[rank].lost && !is_linked(hub, rank);
    link->rank = rank;
    link->greeting.answerer_nonce = hub->env->random_u64(hub->env);
    link->state = LINK_PROVING;
    if (!wanted || tm_mesh_link__greet(link, hub->env, hub->token, 2) != 0) drop(hub, link);
}

static void on_hello(struct tm_mesh_hub *hub, struct tm_mesh_link *link)
{
    const struct tm_mesh_greeting *hello = &link->greeting_in;
    uint64_t current = hub->mesh == NULL ? 0 : hub->mesh->generation;
    link->greeting = *hello;
    if (hello->kind != 1 || hello->job != hub->options.job || hello->to != hub->options.instance ||
        hello->generation < current) {
        drop(hub, link);
    } else if (hello->generation == current) {
        admit(hub, link);
    } else {
        link->state = LINK_PARKED;
        link->deadline_ms = now_ms(hub) + GREETING_LIMIT_MS;
    }
}

/* Something can be read from a link, or sent to it. */
static void serve_link(struct tm_mesh_hub *hub, struct tm_mesh_link *link)
{
    if (link->state == LINK_UP) {
        if (tm_mesh_link__read(link, hub->env, &hub->mesh->inbox) != 0) drop(hub, link);
        return;
    }
    if (link->state == LINK_LOST) return;
    int rc = tm_mesh_link__flush(link, hub->env);
    if (rc == 0 && link->state == LINK_PARKED) return;
    if (rc == 0) rc = tm_mesh_link__greeted(link, hub->env);
    if (rc < 0) drop(hub, link);
    if (rc != 1) return;
    if (link->state == LINK_ASKED) {
        on_hello(hub, link);
    } else if (link->state == LINK_DIALING && tm_mesh_link__believes(link, hub->token, 2)) {
        link->greeting.answerer_nonce = link->greeting_in.answerer_nonce;
        if (tm_mesh_link__greet(link, hub->env, hub->token, 3) == 0 && link->out.length == 0)
            put_up(hub, link);
        else
            drop(hub, link);
    } else if (link->state == LINK_PROVING && tm_mesh_link__believes(link, hub->token, 3)) {
        put_up(hub, link);
    } else {
        drop(hub, link);
    }
}

/* Calls those who are wanted and not linked. Returns when to call again. */
static int64_t call_wanted(struct tm_mesh_hub *hub, int64_t at_ms)
{
    struct hub_mesh *mesh = hub->mesh;
    int64_t next_ms = INT64_MAX;
    bool linked[SIZE_MAX_MEMBERS] = {false};
    for (int i = 0; i < LINKS_MAX; i++) {
        const struct tm_mesh_link *link = &hub->links[i];
        if (link->state != LINK_FREE && link->rank >= 0 && link->rank < mesh->mesh.size &&
            link->greeting.generation == mesh->generation)
            linked[link->rank] = true;
    }
    for (int r = 0; r < mesh->mesh.size; r++) {
        struct hub_member *member = &mesh->members[r];
        bool comes_in = r > mesh->mesh.rank && mesh->mesh.size <= TM_MESH_EAGER_MAX;
        if (r == mesh->mesh.rank || member->lost || linked[r] || comes_in || !atomic_load(&member->wanted)) continue;
        if (member->dial_ms <= at_ms) dial(hub, r);
        if (member->dial_ms < next_ms) next_ms = member->dial_ms;
    }
    return next_ms;
}

/* Closes what is past, admits who waited for this generation, calls who is to be called. Returns when to look again. */
static int64_t tend(struct tm_mesh_hub *hub)
{
    struct hub_mesh *mesh = hub->mesh;
    int64_t at_ms = now_ms(hub);
    int64_t next_ms = at_ms + IDLE_MS;
    uint64_t current = mesh == NULL ? 0 : mesh->generation;
    for (int i = 0; i < LINKS_MAX; i++) {
        struct tm_mesh_link *link = &hub->links[i];
        if (link->state == LINK_FREE) continue;
        bool past = link->state != LINK_ASKED && link->greeting.generation < current;
        bool late = link->state < LINK_UP && at_ms > link->deadline_ms;
        if (past || late)
            tm_mesh_link__close(link, hub->env);
        else if (link->state == LINK_PARKED && link->greeting.generation == current)
            admit(hub, link);
    }
    if (mesh == NULL || atomic_load(&mesh->cancelled)) return next_ms;
    int64_t call_ms = call_wanted(hub, at_ms);
    return call_ms < next_ms ? call_ms : next_ms;
}

static void let_in(struct tm_mesh_hub *hub)
{
    int handle = -1;
    while (hub->env->net_accept(hub->env, hub->listener, &handle, NULL) == 0) {
        struct tm_mesh_link *link = free_link(hub);
        if (link == NULL) {
            hub->env->net_close(hub->env, handle);
            continue;
        }
        if (tm_mesh_link__open(link, hub->env, handle, hub->options.tls, true, NULL) != 0) continue;
        link->state = LINK_ASKED;
        link->deadline_ms = now_ms(hub) + GREETING_LIMIT_MS;
    }
}

struct watched {
    struct tm_watch watches[LINKS_MAX + 2]; /* the listener, the waker, links */
    struct tm_mesh_link *links[LINKS_MAX];
    size_t count;
};

static void note(struct tm_mesh_hub *hub, struct watched *out)
{
    out->watches[0] = (struct tm_watch){.handle = hub->listener};
    out->watches[1] = (struct tm_watch){.handle = hub->wake[0]};
    out->count = 0;
    for (int i = 0; i < LINKS_MAX; i++) {
        struct tm_mesh_link *link = &hub->links[i];
        if (link->state == LINK_FREE || link->state == LINK_LOST || link->state == LINK_PARKED) continue;
        out->links[out->count] = link;
        bool sends = link->state != LINK_UP && link->out.length > 0;
        out->watches[2 + out->count++] =
            (struct tm_watch){.handle = link->handle, .want = sends ? TM_WATCH_BOTH : TM_WATCH_RECEIVE};
    }
}

static void *serve(void *argument)
{
    struct tm_mesh_hub *hub = argument;
    struct watched watched;
    (void)pthread_mutex_lock(&hub->lock);
    while (!hub->stop) {
        int64_t next_ms = tend(hub);
        note(hub, &watched);
        int64_t wait_ms = next_ms - now_ms(hub);
        (void)pthread_mutex_unlock(&hub->lock);
        int rc = hub->env->net_watch(hub->env, watched.watches, watched.count + 2, wait_ms > 0 ? wait_ms : 0, NULL);
        (void)pthread_mutex_lock(&hub->lock);
        if (rc != 0) continue;
        if (watched.watches[1].ready) {
            char drained[64];
            size_t got = 0;
            (void)hub->env->net_receive(hub->env, hub->wake[0], drained, sizeof drained, &got, NULL);
        }
        for (size_t i = 0; i < watched.count; i++) {
            struct tm_mesh_link *link = watched.links[i];
            /* a mesh that was formed meanwhile has made the links of the one before past */
            bool past = link->state != LINK_ASKED && link->greeting.generation != hub->mesh->generation;
            if (watched.watches[2 + i].ready && !past) serve_link(hub, link);
        }
        if (watched.watches[0].ready) let_in(hub);
    }
    (void)pthread_mutex_unlock(&hub->lock);
    return NULL;
}

/* ---- opening and closing ---- */

static int open_all(struct tm_mesh_hub *hub, const char *listen, struct tm_error *e)
{
    hub->links = tm_calloc(LINKS_MAX, sizeof *hub->links);
    if (hub->links == NULL) return tm_error_nomem(e);
    int rc = hub->env->net_listen(hub->env, listen, &hub->listener, hub->address, e);
    if (rc == 0) rc = hub->env->net_pair(hub->env, hub->wake, e);
    if (rc == 0 && pthread_create(&hub->thread, NULL, serve, hub) != 0) rc = tm_error_nomem(e);
    hub->thread_runs = rc == 0;
    return rc;
}

int tm_mesh_hub__create(struct tm_env *env, const struct tm_mesh_hub_options *options, struct tm_mesh_hub **out,
                        struct tm_error *e)
{
    if (options->tls == NULL && !tm_address_is_loopback(options->listen))
        return tm_error_set(e, TM_EUSAGE, "listening on %s needs TLS: only loopback works without it", options->listen);
    if (strlen(options->token) >= TOKEN_MAX) return tm_error_set(e, TM_EUSAGE, "the join token is too long");
    struct tm_mesh_hub *hub = tm_calloc(1, sizeof *hub);
    if (hub == NULL) return tm_error_nomem(e);
    hub->env = env;
    hub->options = *options;
    hub->listener = -1;
    hub->wake[0] = hub->wake[1] = -1;
    (void)snprintf(hub->token, sizeof hub->token, "%s", options->token);
    (void)pthread_mutex_init(&hub->lock, NULL);
    (void)pthread_cond_init(&hub->changed, NULL);
    int rc = open_all(hub, options->listen, e);
    if (rc != 0) {
        tm_mesh_hub__destroy(hub);
        return rc;
    }
    *out = hub;
    return 0;
}

void tm_mesh_hub__destroy(struct tm_mesh_hub *hub)
{
    if (hub == NULL) return;
    if (hub->thread_runs) {
        (void)pthread_mutex_lock(&hub->lock);
        hub->stop = true;
        (void)pthread_mutex_unlock(&hub->lock);
        wake(hub);
        (void)pthread_join(hub->thread, NULL);
    }
    for (int i = 0; hub->links != NULL && i < LINKS_MAX; i++)
        tm_mesh_link__close(&hub->links[i], hub->env);
    for (int i = 0; i < 2; i++)
        if (hub->wake[i] >= 0) hub->env->net_close(hub->env, hub->wake[i]);
    if (hub->listener >= 0) hub->env->net_close(hub->env, hub->listener);
    mesh_destroy(hub->mesh);
    tm_free(hub->links);
    (void)pthread_cond_destroy(&hub->changed);
    (void)pthread_mutex_destroy(&hub->lock);
    tm_free(hub);
}

int tm_mesh_hub__linked(struct tm_mesh_hub *hub)
{
    int count = 0;
    (void)pthread_mutex_lock(&hub->lock);
    for (int r = 0; hub->mesh != NULL && r < hub->mesh->mesh.size; r++)
        count += atomic_load(&hub->mesh->members[r].link) != NULL;
    (void)pthread_mutex_unlock(&hub->lock);
    return count;
}

const char *tm_mesh_hub__address(const struct tm_mesh_hub *hub)
{
    return hub->address;
}
